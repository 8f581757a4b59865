//! When a stream of events has been silent for so long that it shows that it is alive.
//!
//! Clients and proxies take silence for a lost connection. With few streams the silence is short,
//! so that clients notice a lost connection soon. With many it is longer, so that idle streams
//! occupy little of a processor.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidelock_core::types::UnixMillis;
use tokio::time::{Instant, Sleep, sleep};

use crate::clock::WallClock;
use crate::watch::Watch;

/// Longest silence with few streams.
const SILENCE_MIN: Duration = Duration::from_secs(10);

/// Longest silence with many streams: half of the idle limit of a connection, and shorter than the
/// timeouts of common proxies.
const SILENCE_MAX: Duration = Duration::from_secs(50);

/// Heartbeats that a node sends in a second before the silences become longer.
const HEARTBEATS_PER_SECOND: u32 = 200;

/// Heartbeats are due at multiples of this, so that a node wakes up for many of them at once.
const STEP_MS: u64 = 100;

/// The timer of one stream.
pub(super) struct Heartbeat {
    clock: WallClock,
    timer: Pin<Box<Sleep>>,
}

impl Heartbeat {
    pub fn new(clock: WallClock, watch: &Watch) -> Heartbeat {
        Heartbeat { clock, timer: Box::pin(sleep(silence(clock, watch))) }
    }

    /// The client hears something now.
    pub fn restart(&mut self, watch: &Watch) {
        self.timer.as_mut().reset(Instant::now() + silence(self.clock, watch));
    }

    /// Waits until the silence has lasted too long.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(context)
    }
}

/// How long the stream of a watcher may be silent from now on.
fn silence(clock: WallClock, watch: &Watch) -> Duration {
    until_step(clock.now(), after(watch.count(), watch.number()))
}

/// The time from now to the last multiple of the step that comes no later than `longest`.
fn until_step(now: UnixMillis, longest: Duration) -> Duration {
    let longest = longest.as_millis() as u64;
    Duration::from_millis(longest - now.0.wrapping_add(longest) % STEP_MS)
}

/// How long one of so many streams is silent. Streams with different numbers differ by up to a
/// fifth, so that those that heard of the same change are not all due at once.
fn after(streams: usize, number: usize) -> Duration {
    let streams = u32::try_from(streams).unwrap_or(u32::MAX);
    let longest = Duration::from_secs(u64::from(streams / HEARTBEATS_PER_SECOND));
    let longest = longest.clamp(SILENCE_MIN, SILENCE_MAX);
    // Neighbours in number are far apart in time.
    let share = (number as u32).wrapping_mul(2_654_435_769) >> 16;
    longest - longest / 5 * share / (1 << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_streams_are_silent_for_longer() {
        assert_eq!(after(1, 0), SILENCE_MIN);
        assert_eq!(after(4_000, 0), Duration::from_secs(20));
        assert_eq!(after(1_000_000, 0), SILENCE_MAX);
    }

    #[test]
    fn heartbeats_are_due_at_steps() {
        for now in [0, 1, 99, 100, 1_234_567] {
            for longest in [SILENCE_MIN.as_millis() as u64, 12_345, 49_999] {
                let until = until_step(UnixMillis(now), Duration::from_millis(longest)).as_millis() as u64;
                assert_eq!((now + until) % STEP_MS, 0, "{now} {longest}");
                assert!(longest - until < STEP_MS, "{now} {longest}");
            }
        }
    }

    #[test]
    fn streams_are_spread_over_a_fifth_of_the_time() {
        let mut fifths = [0; 5];
        for number in 0..10_000 {
            let silence = after(10_000, number);
            assert!((SILENCE_MAX * 4 / 5..=SILENCE_MAX).contains(&silence), "{silence:?}");
            let earlier = (SILENCE_MAX - silence).as_millis() as usize;
            fifths[(earlier / 2_000).min(4)] += 1;
        }
        assert!(fifths.iter().all(|&count| (1_900..2_100).contains(&count)), "{fifths:?}");
    }
}
