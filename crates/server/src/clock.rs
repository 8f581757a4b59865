//! Turns elapsed time into ticks, the only time that the core counts by, and reads the wall clock for keys that expire.
//!
//! Owns the rate of ticks and what becomes of missed ones; what a tick means is the core's. The clock is the
//! monotonic one: setting the wall clock forwards or back moves no tick.
//!
//! **Missed ticks.** A thread that was busy for three ticks owes three, or logical time would run slow under load
//! and every timeout of a busy node be longer than its peers'. But a node that was stopped (SIGSTOP, a suspended
//! machine, a stall of the disk under its memory) owes hundreds, and must not pay them: at its first breath it would
//! believe that it had waited, in silence, for many election timeouts, though the messages of its leader lie
//! unread in its sockets; it would stand for election and fail requests that can still be answered. A stopped
//! node did not see that time pass. So at most [`TICKS_AT_ONCE_MAX`] are paid and the rest is forgotten; between
//! two payments the event loop gets to its sockets.
//!
//! None of tokio's behaviours does this: `Burst` pays everything, `Delay` and `Skip` pay one. The interval uses
//! `Skip`, which keeps to the grid of the first tick, and what is owed is counted here.
//!
//! Nothing that must be true rests on ticks: late ones cost time, as [`tidelock_core::event`] promises.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use tidelock_core::types::{ShardId, UnixMillis};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Most ticks paid at once. An election timeout has 20: it takes five such payments in a row, with the sockets looked
/// at in between, to miss a leader that is there.
pub const TICKS_AT_ONCE_MAX: u32 = 4;

/// What time it is for people: the system's clock, which may be wrong and may jump. Only when keys expire depends on it, and what
/// people read of who changed a configuration and when.
#[derive(Clone, Copy, Debug)]
pub struct WallClock(pub fn() -> UnixMillis);

impl WallClock {
    /// The time now.
    pub fn now(self) -> UnixMillis {
        (self.0)()
    }
}

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        })
    }
}

/// How far the clocks of the shards' leaders are ahead of this node's, for every worker to read.
/// What has some time left to live goes by the leader's clock, so what is left is told by that
/// clock, too.
#[derive(Clone, Debug, Default)]
pub struct LeaderClocks(Arc<RwLock<BTreeMap<ShardId, i64>>>);

impl LeaderClocks {
    /// Sets by how much the clock of a shard's leader is ahead. Negative: it is behind.
    pub fn set(&self, shard: ShardId, ahead_ms: i64) {
        // Set again for every shard with every look at the clocks, and rarely another than before.
        if self.ahead_ms(shard) != ahead_ms {
            let mut clocks = self.0.write().unwrap_or_else(PoisonError::into_inner);
            match ahead_ms {
                0 => clocks.remove(&shard),
                _ => clocks.insert(shard, ahead_ms),
            };
        }
    }

    /// By how many milliseconds the clock of a shard's leader is ahead of this node's, as far as
    /// that was measured.
    pub fn ahead_ms(&self, shard: ShardId) -> i64 {
        let clocks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clocks.get(&shard).copied().unwrap_or(0)
    }
}

/// A source of ticks.
#[derive(Debug)]
pub struct Ticker {
    interval: Interval,
    ledger: Ledger,
}

impl Ticker {
    /// Starts now; the first tick is due after one `period`.
    ///
    /// # Panics
    /// If `period` is zero, or outside of a tokio runtime with time.
    pub fn start(period: Duration) -> Ticker {
        let now = Instant::now();
        let mut interval = interval_at(now + period, period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Ticker { interval, ledger: Ledger { period, paid_until: now } }
    }

    /// Waits for the next tick; returns how many to deliver, 1 to [`TICKS_AT_ONCE_MAX`]. Dropping the future
    /// loses none, so it can stand in a `select!`.
    pub async fn ticks(&mut self) -> u32 {
        loop {
            self.interval.tick().await;
            let owed = self.ledger.pay(Instant::now());
            if owed > 0 {
                return owed;
            }
        }
    }
}

/// Which ticks were paid.
#[derive(Debug)]
struct Ledger {
    period: Duration,
    paid_until: Instant,
}

impl Ledger {
    /// The ticks to deliver now. Parts of a tick stay owed, unless the rest is forgotten.
    fn pay(&mut self, now: Instant) -> u32 {
        let elapsed = now.saturating_duration_since(self.paid_until);
        let owed = elapsed.as_nanos() / self.period.as_nanos();
        if owed > u128::from(TICKS_AT_ONCE_MAX) {
            tracing::debug!(?elapsed, "the event loop stood still; missed ticks are forgotten");
            self.paid_until = now;
            return TICKS_AT_ONCE_MAX;
        }
        let owed = owed as u32;
        self.paid_until += self.period * owed;
        owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(10);

    /// Feeds the ledger with the time since its start, in milliseconds, and collects what it pays.
    fn paid(times: &[u64]) -> Vec<u32> {
        let start = Instant::now();
        let mut ledger = Ledger { period: PERIOD, paid_until: start };
        times.iter().map(|millis| ledger.pay(start + Duration::from_millis(*millis))).collect()
    }

    #[test]
    fn clocks_of_leaders_are_told_by_shard() {
        let clocks = LeaderClocks::default();
        clocks.set(ShardId(2), -60_000);
        clocks.set(ShardId(u64::MAX), 1);
        clocks.set(ShardId(3), 5);
        clocks.set(ShardId(3), 0);
        assert_eq!([1, 2, 3, u64::MAX].map(|shard| clocks.ahead_ms(ShardId(shard))), [0, -60_000, 0, 1]);
    }

    #[test]
    fn ticks_follow_time() {
        assert_eq!(paid(&[10, 20, 30]), [1, 1, 1]);
        assert_eq!(paid(&[9, 10, 19, 20]), [0, 1, 0, 1]);
    }

    #[test]
    fn lateness_does_not_add_up() {
        // Each tick comes 9 ms late, but only the first one may shift anything.
        assert_eq!(paid(&[19, 29, 39, 49]), [1, 1, 1, 1]);
        assert_eq!(paid(&[39, 40, 50]), [3, 1, 1]);
    }

    #[test]
    fn a_stall_is_forgotten() {
        assert_eq!(paid(&[40]), [4]);
        assert_eq!(paid(&[10, 60_000, 60_009, 60_010, 60_020]), [1, TICKS_AT_ONCE_MAX, 0, 1, 1]);
    }

    #[test]
    fn a_clock_that_stands_still_pays_nothing() {
        assert_eq!(paid(&[10, 10, 10]), [1, 0, 0]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_ticker_never_runs_ahead_of_time() {
        let start = Instant::now();
        let mut ticker = Ticker::start(Duration::from_millis(1));
        let mut ticks = 0;
        while ticks < 20 {
            let paid = ticker.ticks().await;
            assert!((1..=TICKS_AT_ONCE_MAX).contains(&paid));
            ticks += paid;
            assert!(start.elapsed() >= Duration::from_millis(ticks.into()));
        }
    }
}
