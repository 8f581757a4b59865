//! Histograms of durations.
//!
//! Owns their bounds, which all of them share, so that they can be compared and added up.

use std::time::Duration;

use crate::counters::Counter;

/// Upper bounds of the duration buckets in microseconds; one more bucket counts longer durations.
pub(super) const DURATION_BOUNDS_MICROS: [u64; 15] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    3_000_000,
];
pub(super) const DURATION_BUCKETS: usize = DURATION_BOUNDS_MICROS.len() + 1;

/// A histogram of durations, with the bounds above.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    buckets: [Counter; DURATION_BUCKETS],
    sum_nanos: Counter,
}

impl DurationHistogram {
    /// Records `count` events of this duration. Only one thread may call it.
    pub fn observe(&self, duration: Duration, count: u64) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = DURATION_BOUNDS_MICROS.partition_point(|&bound| bound < micros);
        self.buckets[bucket].add(count);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.add(nanos.saturating_mul(count));
    }

    /// Number of events.
    pub fn count(&self) -> u64 {
        self.counts().iter().sum()
    }

    /// The time that all events took together, in microseconds.
    pub fn sum_micros(&self) -> u64 {
        self.sum_nanos.get() / 1_000
    }

    /// Number of events in each bucket.
    pub(super) fn counts(&self) -> [u64; DURATION_BUCKETS] {
        self.buckets.each_ref().map(Counter::get)
    }

    /// Everything that is counted.
    pub(super) fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.buckets.iter().chain([&self.sum_nanos])
    }

    /// A copy of the current values, for a scrape.
    pub(super) fn totals(&self) -> HistogramSnapshot {
        let counts = self.counts();
        let bounds = DURATION_BOUNDS_MICROS.iter().map(|&micros| micros as f64 / 1e6);
        HistogramSnapshot {
            buckets: bounds.chain([f64::INFINITY]).zip(counts).collect(),
            sum_seconds: self.sum_nanos.get() as f64 / 1e9,
            count: counts.iter().sum(),
        }
    }
}

/// The values of a histogram at one moment.
#[derive(Debug)]
pub(super) struct HistogramSnapshot {
    /// The upper bound of each bucket in seconds, and the number of events in the bucket.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum_seconds: f64,
    pub(super) count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_beyond_every_bound_is_still_counted() {
        let durations = DurationHistogram::default();
        durations.observe(Duration::from_secs(60), 2);
        assert_eq!(durations.counts()[DURATION_BUCKETS - 1], 2);
        assert_eq!((durations.count(), durations.sum_micros()), (2, 120_000_000));
    }
}
