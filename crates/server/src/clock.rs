//! Turns elapsed time into ticks, the core's unit of time, and reads the wall clock for expiring
//! keys.
//!
//! Owns the rate of ticks and the handling of missed ones; what a tick means is the core's. Ticks
//! follow the monotonic clock: setting the wall clock does not affect them.
//!
//! **Missed ticks.** A thread that was busy for three ticks delivers three. Otherwise logical time
//! would run slow under load, and every timeout of a busy node would be longer than its peers'. But
//! a node that was stopped (SIGSTOP, a suspended machine, a page fault on a stalled disk) has
//! missed hundreds, and must not deliver them. On resume it would conclude that it had heard
//! nothing for many election timeouts, although its leader's messages lie unread in its sockets. It
//! would start an election and fail requests that can still be answered. A stopped node did not
//! observe that time. So at most [`TICKS_AT_ONCE_MAX`] are delivered and the rest is dropped;
//! between two deliveries the event loop reads its sockets.
//!
//! None of tokio's behaviours does this: `Burst` delivers everything, `Delay` and `Skip` deliver
//! one. The interval uses `Skip`, which keeps to the grid of the first tick, and missed ticks are
//! counted here.
//!
//! No guarantee of correctness depends on ticks: late ones cost time, as [`tidelock_core::event`]
//! states.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use tidelock_core::types::{ShardId, UnixMillis};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Most ticks delivered at once. An election timeout has 20: a leader that is alive is missed only
/// after five such deliveries in a row, with reads of the sockets in between.
pub const TICKS_AT_ONCE_MAX: u32 = 4;

/// The system's wall clock, which may be wrong and may jump. Only the expiry of keys and the
/// timestamps of configuration changes depend on it.
#[derive(Clone, Copy, Debug)]
pub struct WallClock(pub fn() -> UnixMillis);

impl WallClock {
    /// Milliseconds since 1970, by this clock.
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

/// The wall clock as a connection sees it: read at most once a turn. A pipeline has hundreds of
/// commands a turn, and each may need the time to check whether a token has expired.
#[derive(Debug)]
pub struct TurnClock {
    clock: WallClock,
    now: Cell<Option<UnixMillis>>,
}

impl TurnClock {
    /// A clock before its first turn.
    pub fn new(clock: WallClock) -> TurnClock {
        TurnClock { clock, now: Cell::new(None) }
    }

    /// Begins a turn: the time is read again when it is needed.
    pub fn begin_turn(&self) {
        self.now.set(None);
    }

    /// Milliseconds since 1970, as first read in this turn.
    pub fn now(&self) -> UnixMillis {
        let now = self.now.get().unwrap_or_else(|| self.clock.now());
        self.now.set(Some(now));
        now
    }
}

/// How far the clocks of the shards' leaders are ahead of this node's, readable by every worker.
/// Expiry follows the leader's clock, so remaining times to live are computed with it too.
#[derive(Clone, Debug, Default)]
pub struct LeaderClocks(Arc<RwLock<BTreeMap<ShardId, i64>>>);

impl LeaderClocks {
    /// Sets by how many milliseconds the clock of a shard's leader is ahead; negative if it is
    /// behind.
    pub fn set(&self, shard: ShardId, ahead_ms: i64) {
        // Called for every shard at every tick, while the value rarely changes: avoid the write
        // lock.
        if self.ahead_ms(shard) != ahead_ms {
            let mut clocks = self.0.write().unwrap_or_else(PoisonError::into_inner);
            match ahead_ms {
                0 => clocks.remove(&shard),
                _ => clocks.insert(shard, ahead_ms),
            };
        }
    }

    /// By how many milliseconds the clock of a shard's leader is ahead of this node's, as last
    /// measured; 0 if unknown.
    pub fn ahead_ms(&self, shard: ShardId) -> i64 {
        let clocks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clocks.get(&shard).copied().unwrap_or(0)
    }
}

/// A source of ticks for the node.
#[derive(Debug)]
pub struct Ticker {
    interval: Interval,
    account: TickAccount,
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
        Ticker { interval, account: TickAccount { period, paid_until: now } }
    }

    /// Waits for the next tick; returns how many to deliver, 1 to [`TICKS_AT_ONCE_MAX`].
    /// Cancel-safe: dropping the future loses no tick.
    pub async fn ticks(&mut self) -> u32 {
        loop {
            self.interval.tick().await;
            let owed = self.account.take_due(Instant::now());
            if owed > 0 {
                return owed;
            }
        }
    }
}

/// Counts the ticks that were delivered.
#[derive(Debug)]
struct TickAccount {
    period: Duration,
    paid_until: Instant,
}

impl TickAccount {
    /// The ticks to deliver now. Fractions of a tick carry over, unless ticks are dropped.
    fn take_due(&mut self, now: Instant) -> u32 {
        let elapsed = now.saturating_duration_since(self.paid_until);
        let owed = elapsed.as_nanos() / self.period.as_nanos();
        if owed > u128::from(TICKS_AT_ONCE_MAX) {
            tracing::debug!(?elapsed, "the event loop stalled; missed ticks are dropped");
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
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const PERIOD: Duration = Duration::from_millis(10);

    /// Calls the account at times since its start, in milliseconds, and collects the ticks to
    /// deliver.
    fn paid(times: &[u64]) -> Vec<u32> {
        let start = Instant::now();
        let mut account = TickAccount { period: PERIOD, paid_until: start };
        times.iter().map(|millis| account.take_due(start + Duration::from_millis(*millis))).collect()
    }

    #[test]
    fn a_turn_has_one_time() {
        static NOW: AtomicU64 = AtomicU64::new(7);
        let clock = TurnClock::new(WallClock(|| UnixMillis(NOW.fetch_add(1, Ordering::Relaxed))));
        assert_eq!([clock.now(), clock.now()], [UnixMillis(7), UnixMillis(7)]);
        clock.begin_turn();
        assert_eq!([clock.now(), clock.now()], [UnixMillis(8), UnixMillis(8)]);
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
        // Each tick comes 9 ms late, but only the first delay may shift anything.
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
