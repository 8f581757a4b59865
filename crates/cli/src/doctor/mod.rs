//! `tidelock doctor`: checks a cluster, and on request the machine of a node, and says which page
//! tells what to do.
//!
//! Owns the findings and their presentation. `cluster` asks the nodes, `machine` looks at this
//! machine.

mod cluster;
mod machine;

use serde::Serialize;
use tidelock_client::{CliError, Output, output};

use crate::args::DoctorArgs;

/// What one check has found.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// What was checked, in one or two words.
    check: String,
    level: Level,
    message: String,
    /// The document that says what to do, if something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Failure,
}

impl Finding {
    fn ok(check: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding { check: check.into(), level: Level::Ok, message: message.into(), page: None }
    }

    fn warning(check: impl Into<String>, message: impl Into<String>, page: &'static str) -> Finding {
        Finding { check: check.into(), level: Level::Warning, message: message.into(), page: Some(page) }
    }

    fn failure(check: impl Into<String>, message: impl Into<String>, page: &'static str) -> Finding {
        Finding { check: check.into(), level: Level::Failure, message: message.into(), page: Some(page) }
    }

    fn text(&self) -> String {
        let mark = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Failure => "FAILED",
        };
        let page = self.page.map(|page| format!("\n{:22}see {page}", "")).unwrap_or_default();
        format!("{mark:<8}{:<14}{}{page}", self.check, self.message)
    }
}

/// Runs all checks. Fails if one of them does.
pub fn run(args: &DoctorArgs) -> Result<(), CliError> {
    let mut findings = match &args.data_dir {
        Some(directory) => machine::check(directory),
        None => vec![],
    };
    match cluster::check(&args.client) {
        Ok(found) => findings.extend(found),
        // The checks of the machine are of use before a node runs on it.
        Err(error) if args.data_dir.is_some() => findings.push(cluster::unknown(&error)),
        Err(error) => return Err(error),
    }
    for finding in &findings {
        match args.client.output {
            Output::Text => output::line(&finding.text())?,
            Output::Json => {
                let json = serde_json::to_string(finding).expect("invariant: texts are JSON");
                output::line(&json)?;
            }
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    match (count(Level::Failure), count(Level::Warning)) {
        (0, 0) => report(args, "nothing is wrong"),
        (0, warnings) => report(args, &format!("nothing has failed; warnings: {warnings}")),
        (failures, warnings) => {
            Err(CliError::Failed(format!("failed checks: {failures}; warnings: {warnings}")))
        }
    }
}

/// The summary, which is for people.
fn report(args: &DoctorArgs, text: &str) -> Result<(), CliError> {
    match args.client.output {
        Output::Text => output::line(text),
        Output::Json => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_line_up_and_name_their_page() {
        assert_eq!(Finding::ok("shards", "5 have a leader").text(), "ok      shards        5 have a leader");
        assert_eq!(
            Finding::failure("node 2", "does not answer", "docs/how-to/monitor.md").text(),
            "FAILED  node 2        does not answer\n                      see docs/how-to/monitor.md"
        );
    }
}
