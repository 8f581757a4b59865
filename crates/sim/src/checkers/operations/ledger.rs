//! The committed log of each shard, and the times that the clocks showed.
//!
//! Owns the collection during a run, because snapshots truncate the logs themselves. `agreement`
//! checks that replicas agree on it.

use std::collections::BTreeMap;

use tidelock_core::command::Write;
use tidelock_core::limits;
use tidelock_core::types::{LogIndex, NodeId, ShardId, Term, UnixMillis};

use crate::event_queue::Micros;

/// The committed commands of every shard, and the times that clocks showed.
#[derive(Debug, Default)]
pub struct Ledger {
    shards: BTreeMap<ShardId, Log>,
    /// The leader of each term, and how many times clocks had shown when it was first seen leading.
    leaders: BTreeMap<(ShardId, Term), (NodeId, u64)>,
    /// The times that each clock showed, and when in the run.
    clocks: BTreeMap<(UnixMillis, NodeId), Vec<Shown>>,
    times_shown: u64,
}

/// A period of the run in which a clock showed one time, of a millisecond.
#[derive(Clone, Copy, Debug)]
struct Shown {
    begun: Micros,
    ended: Micros,
    /// The last position among all times shown.
    position: u64,
}

/// A leader reads its clock once a tick, and takes a smaller step for time that has passed. So it
/// may claim to have led for this much longer than it has.
const OVERRATED_MS_MAX: u64 = limits::CLOCK_STEP_MS + 1_500;

#[derive(Debug, Default)]
struct Log {
    entries: u64,
    writes: Vec<Write>,
    /// The term of each write's entry.
    terms: Vec<Term>,
}

impl Ledger {
    /// Adds the entries that a replica was the first to commit. `entry` is called for indexes up to
    /// `committed`.
    pub fn observe(
        &mut self,
        shard: ShardId,
        committed: LogIndex,
        entry: impl Fn(LogIndex) -> Option<(Term, Vec<Write>)>,
    ) {
        let log = self.shards.entry(shard).or_default();
        while log.entries < committed.0
            && let Some((term, writes)) = entry(LogIndex(log.entries + 1))
        {
            log.terms.extend(writes.iter().map(|_| term));
            log.writes.extend(writes);
            log.entries += 1;
        }
    }

    /// The clock of a node showed this time at a time of the run.
    pub fn clock(&mut self, node: NodeId, time: UnixMillis, now: Micros) {
        self.times_shown += 1;
        let position = self.times_shown;
        let periods = self.clocks.entry((time, node)).or_default();
        match periods.last_mut().filter(|period| now.0 < period.begun.0 + 1_000) {
            Some(period) => (period.ended, period.position) = (now, position),
            None => periods.push(Shown { begun: now, ended: now, position }),
        }
    }

    /// A node leads a shard in a term, at the time that its clock showed last.
    pub fn leader(&mut self, node: NodeId, shard: ShardId, term: Term) {
        self.leaders.entry((shard, term)).or_insert((node, self.times_shown));
    }

    /// The writes of each data shard, in their order.
    pub fn shards(&self) -> impl Iterator<Item = (ShardId, &[Write])> {
        let data = self.shards.iter().filter(|(shard, _)| **shard != ShardId::PRIME);
        data.map(|(shard, log)| (*shard, &log.writes[..]))
    }

    /// Whether a clock ever showed this time.
    pub fn was_shown(&self, time: UnixMillis) -> bool {
        self.shown(time).next().is_some()
    }

    /// Whether the clock of the node that proposed a write ever showed this time. `place` counts
    /// the writes of the shard from 0. Any time is accepted for a leader that was never seen
    /// leading, because it died in the turn in which it was elected.
    pub fn was_shown_to_proposer(&self, (shard, place): (ShardId, usize), time: UnixMillis) -> bool {
        self.proposer((shard, place))
            .is_none_or(|(proposer, _)| self.shown(time).any(|node| node == proposer))
    }

    /// Whether the node that proposed a write led already when its clock showed `begun`, in the
    /// term of the write, and had led for so long in the time of the run when the clock showed
    /// `now`. See [`Ledger::was_shown_to_proposer`].
    pub fn has_led(&self, at: (ShardId, usize), begun: UnixMillis, now: UnixMillis) -> bool {
        let claimed_ms = now.0.saturating_sub(begun.0);
        self.proposer(at).is_none_or(|(proposer, since)| {
            let periods = |time| self.clocks.get(&(time, proposer)).into_iter().flatten();
            periods(begun).filter(|begun| begun.position >= since).any(|begun| {
                let led_ms = |until: &Shown| until.ended.0.saturating_sub(begun.begun.0) / 1_000;
                periods(now).any(|now| led_ms(now) + OVERRATED_MS_MAX >= claimed_ms)
            })
        })
    }

    /// The node that proposed a write, and since when it led.
    fn proposer(&self, (shard, place): (ShardId, usize)) -> Option<(NodeId, u64)> {
        let term = self.shards.get(&shard).and_then(|log| log.terms.get(place))?;
        self.leaders.get(&(shard, *term)).copied()
    }

    /// The nodes whose clocks showed this time.
    fn shown(&self, time: UnixMillis) -> impl Iterator<Item = NodeId> {
        let range = (time, NodeId(0))..=(time, NodeId(u64::MAX));
        self.clocks.range(range).map(|((_, node), _)| *node)
    }
}
