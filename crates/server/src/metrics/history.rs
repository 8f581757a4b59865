//! Metrics of the last hour, which the node keeps in memory.
//!
//! Owns the series, how they are computed from totals, and their fixed memory: [`STEPS`] values of
//! each. It shows what the node has done lately where there is no monitoring system.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::durations::{DURATION_BOUNDS_MICROS, DURATION_BUCKETS};

/// The time that one value stands for.
pub const STEP: Duration = Duration::from_secs(10);

/// Number of values of each series: an hour.
pub const STEPS: usize = 360;

/// The series, in the order of the values of a [`Sample`].
const NAMES: [&str; 9] = [
    "requests_per_s",
    "errors_per_s",
    "request_p50_ms",
    "request_p99_ms",
    "fsync_mean_ms",
    "apply_lag_entries",
    "memory_bytes",
    "connections",
    "watchers",
];

/// The name of a series, and its values, the oldest first.
pub type Series = (&'static str, Vec<Option<f32>>);

type Sample = [Option<f32>; NAMES.len()];

/// What a node has done since it started, and what it holds.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Requests of clients over HTTP, apart from those about the node itself, and Redis commands.
    pub requests: u64,
    /// Requests answered with a status of 500 or more.
    pub errors: u64,
    /// Number of HTTP requests by duration, for each bucket.
    pub durations: [u64; DURATION_BUCKETS],
    /// Syncs of the log, and the microseconds that they took.
    pub fsyncs: [u64; 2],
    /// Entries that are committed and not applied, of the shard with most.
    pub lag: u64,
    /// Resident memory of the process.
    pub memory_bytes: u64,
    /// Open connections of clients.
    pub connections: u64,
    /// Open watches.
    pub watchers: u64,
}

/// The last hour of a node.
#[derive(Debug, Default)]
pub struct MetricsHistory(Mutex<History>);

#[derive(Debug, Default)]
struct History {
    last: Option<(Instant, Totals)>,
    /// When the next value is due. It rises by whole steps, so that late calls add no delay.
    due: Option<Instant>,
    samples: VecDeque<Sample>,
    end: Option<SystemTime>,
}

impl MetricsHistory {
    /// Whether the next value is due. Workers may ask at the same time; [`MetricsHistory::record`]
    /// ignores all of them but the first.
    pub fn is_due(&self, now: Instant) -> bool {
        let history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        history.due.is_none_or(|due| now >= due)
    }

    /// Adds what happened since the last call, if a value is due.
    pub fn record(&self, totals: Totals, now: Instant, wall: SystemTime) {
        let mut history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = history.due.unwrap_or(now);
        if now < due {
            return;
        }
        let missed = (now - due).as_secs() / STEP.as_secs();
        if let Some((last, before)) = &history.last {
            let sample = sample(before, &totals, (now - *last).as_secs_f32());
            let gap = usize::try_from(missed).map_or(STEPS, |missed| missed.min(STEPS));
            history.samples.extend(std::iter::repeat_n([None; NAMES.len()], gap));
            history.samples.push_back(sample);
            let surplus = history.samples.len().saturating_sub(STEPS);
            history.samples.drain(..surplus);
        }
        history.due = Some(due + Duration::from_secs(STEP.as_secs() * (missed + 1)));
        history.last = Some((now, totals));
        history.end = Some(wall);
    }

    /// The series, and when their last value ends.
    pub fn series(&self) -> (Vec<Series>, Option<SystemTime>) {
        let history = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let values = |index: usize| history.samples.iter().map(|sample| sample[index]).collect();
        let series = NAMES.iter().enumerate().map(|(index, name)| (*name, values(index))).collect();
        (series, history.end)
    }
}

fn sample(before: &Totals, after: &Totals, seconds: f32) -> Sample {
    let per_second = |before: u64, after: u64| Some(after.saturating_sub(before) as f32 / seconds);
    let mut durations = after.durations;
    durations
        .iter_mut()
        .zip(before.durations)
        .for_each(|(count, before)| *count = count.saturating_sub(before));
    let [fsyncs, micros] = [0, 1].map(|index| after.fsyncs[index].saturating_sub(before.fsyncs[index]));
    [
        per_second(before.requests, after.requests),
        per_second(before.errors, after.errors),
        quantile_ms(&durations, 0.5),
        quantile_ms(&durations, 0.99),
        (fsyncs > 0).then(|| micros as f32 / fsyncs as f32 / 1e3),
        Some(after.lag as f32),
        Some(after.memory_bytes as f32),
        Some(after.connections as f32),
        Some(after.watchers as f32),
    ]
}

/// A quantile of durations in milliseconds, with those of one bucket spread evenly over it; `None`
/// without any. What is longer than every bound counts as the last bound.
fn quantile_ms(durations: &[u64; DURATION_BUCKETS], quantile: f32) -> Option<f32> {
    let total: u64 = durations.iter().sum();
    let mut rest = (total > 0).then_some(total as f32 * quantile)?;
    let mut lower = 0;
    for (&count, &upper) in durations.iter().zip(&DURATION_BOUNDS_MICROS) {
        if count > 0 && rest <= count as f32 {
            return Some((lower as f32 + (upper - lower) as f32 * rest / count as f32) / 1e3);
        }
        rest -= count as f32;
        lower = upper;
    }
    Some(lower as f32 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(history: &MetricsHistory, name: &str) -> Vec<Option<f32>> {
        let (series, _) = history.series();
        series.into_iter().find(|(found, _)| *found == name).expect("a series").1
    }

    #[test]
    fn values_are_what_happened_between_two_readings() {
        let (history, start) = (MetricsHistory::default(), Instant::now());
        assert!(history.is_due(start));
        history.record(Totals { requests: 100, ..Totals::default() }, start, SystemTime::now());
        assert!(!history.is_due(start + STEP / 2) && history.is_due(start + STEP));
        assert!(value(&history, "requests_per_s").is_empty());
        let mut durations = [0; DURATION_BUCKETS];
        durations[4] = 100;
        let totals = Totals { requests: 300, errors: 10, durations, fsyncs: [4, 2_000], ..Totals::default() };
        history.record(totals.clone(), start + STEP, SystemTime::now());
        assert_eq!(value(&history, "requests_per_s"), [Some(20.0)]);
        assert_eq!(value(&history, "errors_per_s"), [Some(1.0)]);
        // Between 0.5 and 1 ms.
        assert_eq!(value(&history, "request_p50_ms"), [Some(0.75)]);
        assert_eq!(value(&history, "fsync_mean_ms"), [Some(0.5)]);
        // The other worker, at nearly the same time.
        history.record(totals.clone(), start + STEP + STEP / 10, SystemTime::now());
        // Nothing was measured for two steps, and nothing was requested in the last.
        history.record(totals, start + STEP * 4, SystemTime::now());
        assert_eq!(value(&history, "requests_per_s"), [Some(20.0), None, None, Some(0.0)]);
        assert_eq!(value(&history, "request_p99_ms"), [Some(0.995), None, None, None]);
    }

    #[test]
    fn late_calls_do_not_stretch_the_hour() {
        let (history, start) = (MetricsHistory::default(), Instant::now());
        // Asked each 1.1 s for 1,100 s.
        for call in 0..=1_000_u32 {
            let now = start + Duration::from_millis(1_100) * call;
            if history.is_due(now) {
                history.record(Totals::default(), now, SystemTime::now());
            }
        }
        assert_eq!(value(&history, "connections").len(), 110);
    }

    #[test]
    fn an_hour_is_kept() {
        let (history, start) = (MetricsHistory::default(), Instant::now());
        for step in 0..=STEPS as u32 + 5 {
            let totals = Totals { connections: u64::from(step), ..Totals::default() };
            history.record(totals, start + STEP * step, SystemTime::now());
        }
        let connections = value(&history, "connections");
        assert_eq!((connections.len(), connections[0]), (STEPS, Some(6.0)));
        history.record(Totals::default(), start + STEP * 100_000, SystemTime::now());
        assert_eq!(value(&history, "connections").len(), STEPS);
    }

    #[test]
    fn durations_beyond_every_bound_count_as_the_last() {
        let mut durations = [0; DURATION_BUCKETS];
        assert_eq!(quantile_ms(&durations, 0.5), None);
        durations[DURATION_BUCKETS - 1] = 1;
        assert_eq!(quantile_ms(&durations, 0.5), Some(3_000.0));
    }
}
