//! The committed log of each shard, and the times that the clocks showed.
//!
//! Owns the collection during a run, because snapshots truncate the logs themselves. `agreement`
//! checks that replicas agree on it.

use std::collections::BTreeMap;

use tidelock_core::command::Write;
use tidelock_core::types::{LogIndex, NodeId, ShardId, Term, UnixMillis};

/// The committed commands of every shard, and the times that clocks showed.
#[derive(Debug, Default)]
pub struct Ledger {
    shards: BTreeMap<ShardId, Log>,
    /// The leader of each term, and how many times clocks had shown when it was first seen leading.
    leaders: BTreeMap<(ShardId, Term), (NodeId, u64)>,
    /// The times that each clock showed, each with its position among all of them when it was last
    /// shown.
    clocks: BTreeMap<(UnixMillis, NodeId), u64>,
    times_shown: u64,
}

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

    /// The clock of a node showed this time.
    pub fn clock(&mut self, node: NodeId, time: UnixMillis) {
        self.times_shown += 1;
        self.clocks.insert((time, node), self.times_shown);
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

    /// Whether the clock of the node that proposed a write showed this time when the node led
    /// already, in the term of the write. See [`Ledger::was_shown_to_proposer`].
    pub fn was_shown_to_leader(&self, at: (ShardId, usize), time: UnixMillis) -> bool {
        self.proposer(at).is_none_or(|(proposer, since)| {
            self.clocks.get(&(time, proposer)).is_some_and(|shown| *shown >= since)
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
