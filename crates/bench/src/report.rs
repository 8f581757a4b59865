//! The report, in the form of `hey` with additions from the reports of `raftdb` and `go-wrk`, or as
//! JSON.
//!
//! Owns only the format. Latencies are in seconds with six digits in the text and in microseconds
//! in JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::Serialize;
use tidelock_client::{CliError, Output, output};

use crate::load::Outcome;

/// The listed percentiles.
const PERCENTILES: [f64; 11] = [0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

/// Number of bars of the histogram, and the width of the longest.
const BARS: u64 = 10;
const BAR_WIDTH: u64 = 40;

/// The settings that the report repeats.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    /// A short description of the load.
    pub load: String,
    pub connections: usize,
    /// Most requests in flight on each connection.
    pub pipeline: usize,
    /// Requests a second, in an open loop.
    pub rate: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    setting: Setting,
    /// From the first request to the last answer.
    seconds: f64,
    /// Of correct answers.
    requests_per_second: f64,
    ok: u64,
    errors: u64,
    wrong: u64,
    /// Requests that were due and not sent before the end.
    unsent: u64,
    content_bytes: u64,
    latency_us: Latencies,
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<MixPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writes: Option<MixPart>,
    statuses: BTreeMap<String, u64>,
    error_counts: BTreeMap<String, u64>,
    wrong_answers: Vec<String>,
    #[serde(skip)]
    all: Histogram<u64>,
}

/// Figures of reads, or of writes, in a run that has both.
#[derive(Debug, Serialize)]
struct MixPart {
    ok: u64,
    latency_us: Latencies,
}

/// Latencies of correct answers; all 0 if there are none.
#[derive(Debug, Serialize)]
pub(crate) struct Latencies {
    pub fastest: f64,
    pub average: f64,
    pub slowest: f64,
    pub percentiles: BTreeMap<String, f64>,
}

impl Latencies {
    /// Converts from nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Latencies {
        let us = |nanos: u64| nanos as f64 / 1e3;
        if histogram.is_empty() {
            return Latencies { fastest: 0.0, average: 0.0, slowest: 0.0, percentiles: BTreeMap::new() };
        }
        let percentile =
            |percent: f64| (format!("{percent}"), us(histogram.value_at_quantile(percent / 100.0)));
        Latencies {
            fastest: us(histogram.min()),
            average: (histogram.mean() / 1e3 * 1e3).round() / 1e3,
            slowest: us(histogram.max()),
            percentiles: PERCENTILES.map(percentile).into(),
        }
    }
}

impl Report {
    pub fn new(setting: Setting, outcome: &Outcome) -> Report {
        let record = &outcome.record;
        let all = record.all();
        let seconds = outcome.elapsed.as_secs_f64();
        let part = |histogram: &Histogram<u64>| MixPart {
            ok: histogram.len(),
            latency_us: Latencies::of(histogram),
        };
        let both = !record.reads.is_empty() && !record.writes.is_empty();
        Report {
            setting,
            seconds,
            requests_per_second: if seconds > 0.0 { all.len() as f64 / seconds } else { 0.0 },
            ok: all.len(),
            errors: record.error_count(),
            wrong: record.wrong_count,
            unsent: record.unsent,
            content_bytes: record.content_bytes,
            latency_us: Latencies::of(&all),
            reads: both.then(|| part(&record.reads)),
            writes: both.then(|| part(&record.writes)),
            statuses: record.statuses.iter().map(|(status, count)| (status.to_string(), *count)).collect(),
            error_counts: record.errors.clone(),
            wrong_answers: record.wrong.clone(),
            all,
        }
    }

    /// Prints the report. Fails if an answer was wrong or none was correct.
    pub fn print(&self, format: Output) -> Result<(), CliError> {
        match format {
            Output::Json => {
                output::line(&serde_json::to_string(self).expect("invariant: numbers and texts are JSON"))?
            }
            Output::Text => output::write(self.text().as_bytes())?,
        }
        match (self.wrong, self.ok) {
            (0, 0) => Err(CliError::Failed("no request succeeded".to_owned())),
            (0, _) => Ok(()),
            (wrong, _) => Err(CliError::Failed(format!("{wrong} answers were wrong"))),
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        self.push_summary(&mut out).expect("invariant: writing to a string cannot fail");
        if !self.all.is_empty() {
            push_bars(&mut out, &self.all).expect("invariant: writing to a string cannot fail");
            self.push_distribution(&mut out).expect("invariant: writing to a string cannot fail");
        }
        self.push_result(&mut out).expect("invariant: writing to a string cannot fail");
        out
    }

    fn push_summary(&self, out: &mut String) -> std::fmt::Result {
        let secs = |us: f64| us / 1e6;
        let latency = &self.latency_us;
        writeln!(out, "\nSummary:")?;
        writeln!(out, "  Load:         {}", self.setting.load)?;
        let Setting { connections, pipeline, .. } = self.setting;
        writeln!(out, "  Clients:      {connections}, parallel calls per client: {pipeline}")?;
        if let Some(rate) = self.setting.rate {
            writeln!(out, "  Rate:         {rate} requests/sec due, latency from when they were")?;
        }
        writeln!(out, "  Total:        {:.4} secs", self.seconds)?;
        writeln!(out, "  Slowest:      {:.6} secs", secs(latency.slowest))?;
        writeln!(out, "  Fastest:      {:.6} secs", secs(latency.fastest))?;
        writeln!(out, "  Average:      {:.6} secs", secs(latency.average))?;
        writeln!(out, "  Requests/sec: {:.4}\n", self.requests_per_second)?;
        writeln!(out, "  Total data:   {} bytes", self.content_bytes)?;
        writeln!(out, "  Size/request: {} bytes", self.content_bytes.checked_div(self.ok).unwrap_or(0))?;
        let per_second = if self.seconds > 0.0 { self.content_bytes as f64 / self.seconds } else { 0.0 };
        writeln!(out, "  Transfer:     {per_second:.0} bytes/sec ({:.2} MB/s)", per_second / 1e6)
    }

    fn push_distribution(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nLatency distribution:")?;
        for percent in PERCENTILES {
            let secs = self.all.value_at_quantile(percent / 100.0) as f64 / 1e9;
            writeln!(out, "  {percent}% in {secs:.6} secs")?;
        }
        let parts = [("reads", &self.reads), ("writes", &self.writes)];
        if parts.iter().any(|(_, part)| part.is_some()) {
            writeln!(out, "\nDetails (count, average, 50%, 99%):")?;
        }
        for (name, part) in parts {
            let Some(MixPart { ok, latency_us }) = part else { continue };
            let at = |percent: &str| latency_us.percentiles.get(percent).copied().unwrap_or(0.0) / 1e6;
            let average = latency_us.average / 1e6;
            writeln!(out, "  {name:<7} {ok}, {average:.6} secs, {:.6} secs, {:.6} secs", at("50"), at("99"))?;
        }
        Ok(())
    }

    fn push_result(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nStatus code distribution:")?;
        for (status, count) in &self.statuses {
            writeln!(out, "  [{status}] {count} responses")?;
        }
        if !self.error_counts.is_empty() {
            writeln!(out, "\nError distribution:")?;
        }
        for (reason, count) in &self.error_counts {
            writeln!(out, "  [{count}] {reason}")?;
        }
        let all = self.ok + self.errors + self.wrong;
        let share = |part: u64| if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 };
        writeln!(out, "\nResult:")?;
        writeln!(out, "  Response ok:  {} ({:.2}%)", self.ok, share(self.ok))?;
        writeln!(out, "  Errors:       {} ({:.2}%)", self.errors, share(self.errors))?;
        writeln!(out, "  Wrong:        {} ({:.2}%)", self.wrong, share(self.wrong))?;
        if self.unsent > 0 {
            writeln!(out, "  Never sent:   {} that were due; the rate was too high", self.unsent)?;
        }
        for what in &self.wrong_answers {
            writeln!(out, "  WRONG: {what}")?;
        }
        Ok(())
    }
}

/// A histogram of equal steps from the fastest to the slowest, as in hey.
fn push_bars(out: &mut String, all: &Histogram<u64>) -> std::fmt::Result {
    let (least, most) = (all.min(), all.max());
    let bound = |bar: u64| least + ((most - least) as u128 * u128::from(bar) / u128::from(BARS)) as u64;
    let mut counts = vec![0; BARS as usize + 1];
    for value in all.iter_recorded() {
        let found = value.value_iterated_to();
        let bar = (0..BARS).find(|&bar| found <= bound(bar)).unwrap_or(BARS);
        counts[bar as usize] += value.count_at_value();
    }
    let longest = counts.iter().copied().max().unwrap_or(0).max(1);
    let rows: Vec<_> =
        (0..=BARS).map(|bar| format!("{:.6} [{}]", bound(bar) as f64 / 1e9, counts[bar as usize])).collect();
    let width = rows.iter().map(String::len).max().unwrap_or(0);
    writeln!(out, "\nResponse time histogram:")?;
    for (row, count) in rows.iter().zip(counts) {
        let bar = "■".repeat(((count * BAR_WIDTH + longest / 2) / longest) as usize);
        writeln!(out, "  {row:<width$} |{bar}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::protocol::{Kind, Status};
    use crate::record::Record;

    fn report(fill: impl FnOnce(&mut Record)) -> Report {
        let mut record = Record::new();
        record.last = Some(Instant::now());
        fill(&mut record);
        let setting = Setting { load: "reads".to_owned(), connections: 2, pipeline: 3, rate: Some(5) };
        Report::new(setting, &Outcome { record, elapsed: Duration::from_secs(2) })
    }

    #[test]
    fn the_text_has_what_was_measured() {
        let report = report(|record| {
            for micros in 1..=100 {
                record.succeeded(Kind::Read, Duration::from_micros(micros), 10);
                record.answered(Status::Http(200));
            }
            record.failed("503: no", 2);
            record.answered(Status::Http(503));
        });
        let text = report.text();
        for part in [
            "  Total:        2.0000 secs\n",
            "  Requests/sec: 50.0000\n",
            "  Total data:   1000 bytes\n",
            "  Size/request: 10 bytes\n",
            "  [200] 100 responses\n",
            "  [2] 503: no\n",
            "  Response ok:  100 (98.04%)\n",
            "  Errors:       2 (1.96%)\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let drawn: u64 = text
            .lines()
            .filter(|line| line.contains(" |"))
            .filter_map(|line| line.split(['[', ']']).nth(1)?.trim().parse::<u64>().ok())
            .sum();
        assert_eq!(drawn, 100, "every request is in one bar: {text}");
        assert!(text.contains("50% in 0.000050 secs"), "{text}");
        assert!(report.print(Output::Json).is_ok());
    }

    #[test]
    fn bars_of_equal_latencies() {
        let text = report(|record| record.succeeded(Kind::Read, Duration::from_micros(5), 1)).text();
        assert!(text.contains("0.000005 [1] |■"), "{text}");
    }

    #[test]
    fn wrong_answers_and_none_at_all_fail() {
        let wrong = report(|record| {
            record.succeeded(Kind::Write, Duration::from_micros(5), 0);
            record.wrong("key 1 has the value of key 2".to_owned());
        });
        assert!(wrong.text().contains("WRONG: key 1 has the value of key 2"));
        assert!(wrong.print(Output::Json).is_err());
        assert!(report(|record| record.failed("refused", 1)).print(Output::Json).is_err());
    }

    #[test]
    fn json_tells_reads_from_writes() {
        let report = report(|record| {
            record.succeeded(Kind::Read, Duration::from_micros(10), 7);
            record.succeeded(Kind::Write, Duration::from_micros(30), 0);
        });
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((json["ok"].as_u64(), json["reads"]["ok"].as_u64()), (Some(2), Some(1)));
        let median = json["writes"]["latency_us"]["percentiles"]["50"].as_f64().unwrap();
        assert!((median - 30.0).abs() < 0.1, "{json}");
    }
}
