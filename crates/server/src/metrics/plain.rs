//! The Prometheus text format before OpenMetrics, version 0.0.4, for scrapers that ask for it.
//!
//! Converted from the OpenMetrics text, which has the same contents. The differences: the family of
//! a counter has the name of its samples, units have no line, and there is no end marker.

/// Converts a whole OpenMetrics scrape.
pub(super) fn of_open_metrics(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    let mut help = None;
    for line in open.lines() {
        match line.strip_prefix("# ").and_then(|rest| rest.split_once(' ')) {
            Some(("HELP", rest)) => help = rest.split_once(' '),
            Some(("TYPE", rest)) => {
                let (family, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some((_, help)) = help.take() {
                    out.push_str(&format!("# HELP {family}{suffix} {help}\n"));
                }
                out.push_str(&format!("# TYPE {family}{suffix} {kind}\n"));
            }
            _ if line.starts_with('#') => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_counters_are_named_as_their_samples() {
        let open = "# HELP a_seconds Time spent.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                    a_seconds_total{x=\"y # z\"} 1.5\n\
                    # HELP b How much.\n# TYPE b gauge\nb 2\n\
                    # HELP c Long.\n# TYPE c histogram\nc_sum 1\nc_count 1\nc_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let plain = "# HELP a_seconds_total Time spent.\n# TYPE a_seconds_total counter\n\
                     a_seconds_total{x=\"y # z\"} 1.5\n\
                     # HELP b How much.\n# TYPE b gauge\nb 2\n\
                     # HELP c Long.\n# TYPE c histogram\nc_sum 1\nc_count 1\nc_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(of_open_metrics(open), plain);
    }
}
