//! How fast snapshots are written and sent: slow enough that requests are hardly affected, fast
//! enough that the log does not outgrow them.
//!
//! Each kind of work has a token bucket that fills at a fixed rate and, in addition, with every
//! byte written to the log. So a snapshot is slow on a node with few writes. On a busy node it
//! keeps the proportion to the log on which the size limit of the data directory relies. The rates
//! count real bytes and real time, regardless of the length of a tick.
//!
//! Owns the arithmetic only. It has no clock: the caller passes the time.

use std::time::{Duration, Instant};

/// The rates at which a bucket fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes a second, at least 1.
    pub bytes_per_second: u64,
    /// Bytes for each byte written to the log.
    pub bytes_per_log_byte: u64,
}

/// Most unused bytes that are kept: enough for the coarse resolution of timers, too few for a burst
/// that would delay requests.
const CREDIT_BYTES_MAX: f64 = 256.0 * 1024.0;

/// A token bucket for work that must not go faster than its [`Pace`].
#[derive(Debug)]
pub struct Bucket {
    pace: Pace,
    /// Negative after work beyond the credit.
    credit_bytes: f64,
    filled: Instant,
    log_bytes: u64,
}

impl Bucket {
    /// A bucket that lets work begin at once. `log_bytes` is a monotonic total.
    pub fn new(pace: Pace, now: Instant, log_bytes: u64) -> Bucket {
        Bucket { pace, credit_bytes: 0.0, filled: now, log_bytes }
    }

    /// Fills the bucket for the time and the log growth since the last call.
    pub fn fill(&mut self, now: Instant, log_bytes: u64) {
        let seconds = now.saturating_duration_since(self.filled).as_secs_f64();
        let logged = log_bytes.saturating_sub(self.log_bytes);
        let bytes =
            seconds * self.pace.bytes_per_second as f64 + logged as f64 * self.pace.bytes_per_log_byte as f64;
        self.credit_bytes = (self.credit_bytes + bytes).min(CREDIT_BYTES_MAX);
        (self.filled, self.log_bytes) = (self.filled.max(now), self.log_bytes.max(log_bytes));
    }

    /// How long work must wait, unless the log grows meanwhile; zero if it may continue.
    pub fn wait(&self) -> Duration {
        Duration::from_secs_f64((-self.credit_bytes / self.pace.bytes_per_second as f64).max(0.0))
    }

    /// Deducts work that was done.
    pub fn spend(&mut self, bytes: u64) {
        self.credit_bytes -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { bytes_per_second: 1_000_000, bytes_per_log_byte: 4 };

    /// How many seconds 100 MB take, in blocks of 100 kB, while the log grows by this many bytes a
    /// second.
    fn seconds(log_bytes_per_second: f64) -> f64 {
        let start = Instant::now();
        let mut now = start;
        let mut bucket = Bucket::new(PACE, now, 0);
        for _ in 0..1_000 {
            while !bucket.wait().is_zero() {
                now += bucket.wait().min(Duration::from_millis(1));
                let log_bytes = (now - start).as_secs_f64() * log_bytes_per_second;
                bucket.fill(now, log_bytes as u64);
            }
            bucket.spend(100_000);
        }
        (now - start).as_secs_f64()
    }

    #[test]
    fn work_keeps_to_the_rate_and_to_the_log() {
        let expected = [(0.0, 100.0), (1e6, 20.0), (10e6, 100.0 / 41.0)];
        for (log_bytes_per_second, expected) in expected {
            let seconds = seconds(log_bytes_per_second);
            assert!((seconds / expected - 1.0).abs() < 0.02, "{log_bytes_per_second}: {seconds}");
        }
    }

    #[test]
    fn the_first_piece_waits_for_nothing_and_idle_time_is_no_credit() {
        let now = Instant::now();
        let mut bucket = Bucket::new(PACE, now, 7);
        assert_eq!(bucket.wait(), Duration::ZERO);
        bucket.fill(now + Duration::from_secs(3_600), 1 << 40);
        bucket.spend(1_000_000 + CREDIT_BYTES_MAX as u64);
        assert_eq!(bucket.wait(), Duration::from_secs(1));
        bucket.fill(now, 0);
        assert_eq!(bucket.wait(), Duration::from_secs(1), "neither time nor log go back");
    }
}
