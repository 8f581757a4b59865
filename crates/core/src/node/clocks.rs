//! Offsets between the clocks of peers and this node's clock.
//!
//! Owns the estimate. Peers exchange timestamps as NTP peers do (RFC 5905, section 8): each message
//! carries the time at which it was sent, and the two times of the last message in the other
//! direction. Four times give the offset and the round trip. The error of the offset is at most
//! half of the round trip, so the sample with the shortest round trip counts.
//!
//! Correctness does not depend on the estimate. It serves warnings, and tells clients how long a
//! key has left by the leader's clock.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Node;
use crate::event::{OutgoingFrame, PeerClock};
use crate::peer::{self, ClockMessage};
use crate::types::{NodeId, ShardId, UnixMillis};

/// Number of samples after which a better one expires, because clocks drift.
const SAMPLES_MAX: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct PeerClocks {
    peers: BTreeMap<NodeId, ClockExchange>,
    is_due: bool,
}

/// The exchange of timestamps with one peer.
#[derive(Debug, Default)]
struct ClockExchange {
    /// When the peer sent its last message, by its clock, and when it arrived, by the clock here.
    last: Option<(UnixMillis, UnixMillis)>,
    estimate: Option<Estimate>,
}

/// The best sample so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Estimate {
    offset_ms: i64,
    round_trip_ms: i64,
    /// Number of samples since this one was taken.
    age: u32,
}

impl Estimate {
    /// A sample from the times of a message to the peer (`sent`, `received`) and one back
    /// (`replied`, `arrived`), the two in the middle by the peer's clock. `None` if a clock was set
    /// in between, so that the times contradict each other.
    fn of([sent, received, replied, arrived]: [UnixMillis; 4]) -> Option<Estimate> {
        let between = |from: UnixMillis, to: UnixMillis| i128::from(to.0) - i128::from(from.0);
        let offset = (between(sent, received) + between(arrived, replied)) / 2;
        let round_trip = between(sent, arrived) - between(received, replied);
        let offset_ms = i64::try_from(offset).ok()?;
        // Times are truncated to milliseconds, so a short round trip may come out slightly below 0.
        let round_trip_ms = i64::try_from(round_trip).ok().filter(|round_trip| *round_trip > -2)?;
        Some(Estimate { offset_ms, round_trip_ms: round_trip_ms.max(0), age: 0 })
    }

    /// Error bound of the offset. The extra millisecond accounts for truncated times.
    fn error_ms(self) -> i64 {
        self.round_trip_ms / 2 + 1
    }

    /// The better of an estimate and the next sample. If they contradict each other, a clock was
    /// set, and the sample counts.
    fn next(self, sample: Estimate) -> Estimate {
        let distance = i128::from(self.offset_ms) - i128::from(sample.offset_ms);
        let contradicts = distance.abs() > i128::from(self.error_ms()) + i128::from(sample.error_ms());
        let is_better = sample.round_trip_ms <= self.round_trip_ms || self.age + 1 >= SAMPLES_MAX;
        if contradicts || is_better { sample } else { Estimate { age: self.age + 1, ..self } }
    }
}

impl Node {
    /// Schedules messages to all peers.
    pub(super) fn send_clocks(&mut self) {
        self.clocks.is_due = true;
    }

    /// Handles a clock message. Nothing can be measured before the shell has reported the time
    /// here.
    pub(super) fn clock_heard(&mut self, from: NodeId, message: ClockMessage) {
        let Some(now) = self.router.clock() else { return };
        let exchange = self.clocks.peers.entry(from).or_default();
        exchange.last = Some((message.sent, now));
        let sample =
            message.heard.and_then(|(sent, received)| Estimate::of([sent, received, message.sent, now]));
        if let Some(sample) = sample {
            let next = exchange.estimate.map_or(sample, |estimate| estimate.next(sample));
            exchange.estimate = Some(next);
        }
    }

    /// Forgets the estimate for a peer whose connection broke.
    pub(super) fn clock_lost(&mut self, peer: NodeId) {
        self.clocks.peers.remove(&peer);
    }

    pub(super) fn has_clocks_due(&self) -> bool {
        self.clocks.is_due && self.router.clock().is_some()
    }

    pub(super) fn emit_clocks(&mut self, frames: &mut Vec<OutgoingFrame>) {
        let Some(sent) = self.router.clock().filter(|_| self.clocks.is_due) else { return };
        self.clocks.is_due = false;
        for peer in self.router.peers().iter().filter(|peer| peer.up) {
            let heard = self.clocks.peers.get(&peer.node).and_then(|exchange| exchange.last);
            let payload = peer::clock(ClockMessage { sent, heard }).into();
            frames.push(OutgoingFrame { to: peer.node, payload, droppable: true });
        }
    }

    /// The offsets of all peers, as far as known.
    pub(super) fn peer_clocks(&self) -> Vec<PeerClock> {
        self.clocks.peers.keys().filter_map(|node| self.peer_clock(*node)).collect()
    }

    /// The offset of a peer, if known.
    pub(super) fn peer_clock(&self, node: NodeId) -> Option<PeerClock> {
        let estimate = self.clocks.peers.get(&node)?.estimate?;
        Some(PeerClock { node, ahead_ms: estimate.offset_ms, error_ms: estimate.error_ms() })
    }

    /// By how many milliseconds the clock of a shard's leader is ahead of this node's; 0 if this
    /// node leads or the offset is not known.
    pub fn leader_clock_ahead_ms(&self, shard: ShardId) -> i64 {
        let exchange = self.leader(shard).and_then(|leader| self.clocks.peers.get(&leader));
        exchange.and_then(|exchange| exchange.estimate).map_or(0, |estimate| estimate.offset_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(times: [u64; 4]) -> Option<(i64, i64)> {
        let estimate = Estimate::of(times.map(UnixMillis))?;
        Some((estimate.offset_ms, estimate.round_trip_ms))
    }

    #[test]
    fn four_times_tell_offset_and_round_trip() {
        for (times, expected) in [
            // Both clocks agree; 3 ms to the peer, 1 ms back; the peer waits 200 ms in between.
            ([1_000, 1_003, 1_203, 1_204], Some((1, 4))),
            // The peer's clock is a minute ahead, then a minute behind.
            ([1_000, 61_002, 61_202, 1_204], Some((60_000, 4))),
            ([100_000, 40_002, 40_202, 100_204], Some((-60_000, 4))),
            // Everything happens within a millisecond, which ends while the message is at the peer.
            ([1_000, 5_000, 5_001, 1_000], Some((4_000, 0))),
            // The clock here was set back while the message was in transit.
            ([100_000, 100_002, 100_202, 40_204], None),
            ([0, u64::MAX, u64::MAX, 0], None),
        ] {
            assert_eq!(sample(times), expected, "{times:?}");
        }
    }

    #[test]
    fn the_shortest_round_trip_counts_until_it_is_old_or_contradicted() {
        let estimate = |offset_ms, round_trip_ms| Estimate { offset_ms, round_trip_ms, age: 0 };
        let good = estimate(10, 2);
        let busy = estimate(300, 600);
        let mut kept = good;
        for _ in 1..SAMPLES_MAX {
            kept = kept.next(busy);
            assert_eq!((kept.offset_ms, kept.round_trip_ms), (10, 2));
        }
        assert_eq!(kept.next(busy), busy, "it is old");
        assert_eq!(good.next(estimate(60_010, 600)), estimate(60_010, 600), "a clock was set");
        assert_eq!(busy.next(good), good);
    }
}
