//! The measurements: latencies of successful requests, and counts of all.
//!
//! Invariant: only answers that were found correct are in a histogram. Otherwise fast failures
//! would improve the mean.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::protocol::{Kind, Status};

/// Three significant digits: runs differ by more than a thousandth.
const SIGNIFICANT_DIGITS: u8 = 3;

/// An hour, in nanoseconds: more than any --timeout-ms.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// How many different errors are distinguished, so that a server with ever new messages cannot fill
/// the memory.
const ERROR_KINDS_MAX: usize = 20;

/// How many wrong answers are described; all are counted.
const WRONG_SHOWN_MAX: usize = 10;

/// An empty histogram of latencies in nanoseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
        .expect("invariant: the bounds are in order and three digits are few enough")
}

/// The measurements of some connections.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Latencies of correct reads, in nanoseconds.
    pub reads: Histogram<u64>,
    /// Latencies of correct writes, in nanoseconds.
    pub writes: Histogram<u64>,
    /// Number of answers by kind, correct or not.
    pub statuses: BTreeMap<Status, u64>,
    /// Number of failed requests by reason.
    pub errors: BTreeMap<String, u64>,
    /// Wrong answers, the first ones described.
    pub wrong: Vec<String>,
    /// Number of wrong answers, described or not.
    pub wrong_count: u64,
    /// Content bytes of correct answers.
    pub content_bytes: u64,
    /// Requests that were due and never sent, in an open loop.
    pub unsent: u64,
    /// Time of the last answer.
    pub last: Option<Instant>,
}

impl Record {
    pub fn new() -> Record {
        Record {
            reads: histogram(),
            writes: histogram(),
            statuses: BTreeMap::new(),
            errors: BTreeMap::new(),
            wrong: vec![],
            wrong_count: 0,
            content_bytes: 0,
            unsent: 0,
            last: None,
        }
    }

    pub fn succeeded(&mut self, kind: Kind, latency: Duration, content_bytes: usize) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX).max(1);
        match kind {
            Kind::Read => self.reads.saturating_record(nanos),
            Kind::Write => self.writes.saturating_record(nanos),
        }
        self.content_bytes += content_bytes as u64;
    }

    /// Records an answer of this kind.
    pub fn answered(&mut self, status: Status) {
        *self.statuses.entry(status).or_default() += 1;
    }

    /// Counts failed requests, by reason for the first [`ERROR_KINDS_MAX`] reasons.
    pub fn failed(&mut self, reason: &str, times: u64) {
        if times == 0 {
            return;
        }
        let known = self.errors.contains_key(reason) || self.errors.len() < ERROR_KINDS_MAX;
        let reason = if known { reason } else { "other errors" };
        *self.errors.entry(reason.to_owned()).or_default() += times;
    }

    /// Counts a wrong answer, and keeps the first descriptions.
    pub fn wrong(&mut self, what: String) {
        self.wrong_count += 1;
        if self.wrong.len() < WRONG_SHOWN_MAX {
            self.wrong.push(what);
        }
    }

    /// Adds the measurements of other connections.
    pub fn merge(&mut self, other: Record) {
        let equal = "invariant: all histograms have the same bounds";
        self.reads.add(&other.reads).expect(equal);
        self.writes.add(&other.writes).expect(equal);
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (reason, count) in other.errors {
            self.failed(&reason, count);
        }
        self.wrong_count += other.wrong_count;
        self.wrong.extend(other.wrong);
        self.wrong.truncate(WRONG_SHOWN_MAX);
        self.content_bytes += other.content_bytes;
        self.unsent += other.unsent;
        self.last = self.last.max(other.last);
    }

    /// Reads and writes together.
    pub fn all(&self) -> Histogram<u64> {
        let mut all = self.reads.clone();
        all.add(&self.writes).expect("invariant: all histograms have the same bounds");
        all
    }

    /// Number of requests that failed without a wrong answer.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_add_up() {
        let mut all = Record::new();
        for kind in [Kind::Read, Kind::Write, Kind::Write] {
            let mut one = Record::new();
            one.succeeded(kind, Duration::from_micros(5), 10);
            one.answered(Status::Http(200));
            one.failed("reset", 2);
            one.wrong("x".to_owned());
            all.merge(one);
        }
        assert_eq!((all.reads.len(), all.writes.len(), all.all().len()), (1, 2, 3));
        assert_eq!((all.statuses[&Status::Http(200)], all.error_count(), all.wrong_count), (3, 6, 3));
        assert_eq!(all.content_bytes, 30);
    }

    #[test]
    fn endless_kinds_of_errors_are_bounded() {
        let mut record = Record::new();
        for number in 0..1000 {
            record.failed(&format!("error {number}"), 1);
            record.wrong(format!("wrong {number}"));
        }
        assert!(record.errors.len() <= ERROR_KINDS_MAX + 1);
        assert_eq!(
            (record.error_count(), record.wrong_count, record.wrong.len()),
            (1000, 1000, WRONG_SHOWN_MAX)
        );
    }

    #[test]
    fn latencies_beyond_all_bounds_are_kept() {
        let mut record = Record::new();
        record.succeeded(Kind::Read, Duration::ZERO, 0);
        record.succeeded(Kind::Read, Duration::from_secs(100_000), 0);
        assert_eq!(record.reads.len(), 2);
    }
}
