//! How fast snapshots are written and sent: slowly enough that requests hardly notice, fast enough that the log does
//! not outgrow them.
//!
//! Each kind of work has a bucket that fills at a fixed rate and, besides, with every byte that the log grows by. So on
//! a node with few writes a snapshot takes its time, and on a busy one it keeps the proportion to the log on which the
//! bound of the data directory rests. The rates count real bytes and real time: they hold whatever a tick is.
//!
//! Owns the arithmetic only. It has no clock: whoever asks says what time it is.

use std::time::{Duration, Instant};

/// What a bucket is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes a second, at least 1.
    pub bytes_per_second: u64,
    /// Bytes for each byte of the log.
    pub bytes_per_log_byte: u64,
}

/// What was not used up is kept up to this many bytes: enough for the waits to be as coarse as timers are, too little
/// for a burst that requests would feel.
const CREDIT_BYTES_MAX: f64 = 256.0 * 1024.0;

/// Work that must not go faster than its [`Pace`].
#[derive(Debug)]
pub struct Bucket {
    pace: Pace,
    /// Negative: work was done ahead of its time.
    credit_bytes: f64,
    filled: Instant,
    log_bytes: u64,
}

impl Bucket {
    /// A bucket that lets work begin at once. `log_bytes` is a total that only rises.
    pub fn new(pace: Pace, now: Instant, log_bytes: u64) -> Bucket {
        Bucket { pace, credit_bytes: 0.0, filled: now, log_bytes }
    }

    /// Takes note of the time, and of how far the log has come.
    pub fn fill(&mut self, now: Instant, log_bytes: u64) {
        let seconds = now.saturating_duration_since(self.filled).as_secs_f64();
        let logged = log_bytes.saturating_sub(self.log_bytes);
        let bytes =
            seconds * self.pace.bytes_per_second as f64 + logged as f64 * self.pace.bytes_per_log_byte as f64;
        self.credit_bytes = (self.credit_bytes + bytes).min(CREDIT_BYTES_MAX);
        (self.filled, self.log_bytes) = (self.filled.max(now), self.log_bytes.max(log_bytes));
    }

    /// How long work has to wait, unless the log grows meanwhile; zero if it may go on.
    pub fn wait(&self) -> Duration {
        Duration::from_secs_f64((-self.credit_bytes / self.pace.bytes_per_second as f64).max(0.0))
    }

    /// Takes note of work done.
    pub fn spend(&mut self, bytes: u64) {
        self.credit_bytes -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { bytes_per_second: 1_000_000, bytes_per_log_byte: 4 };

    /// How many seconds 100 MB take, a block of 100 kB at a time, while the log grows by so many bytes a second.
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
