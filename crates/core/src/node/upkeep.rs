//! Which shard makes a snapshot, and when: what keeps the log, and with it the data directory, within bounds.
//!
//! All shards of a node share one write-ahead log, and its segments go from the front only. So the shard that needs the
//! oldest one is the one whose snapshot frees room, however small its own part of the log is; and when the log is too
//! long is a question of all shards together. Snapshots are made one at a time: walking one state delays requests by
//! one block at a time, walking all of them at once (shards fill up alike) would take a processor from requests.
//!
//! **The bound.** Let *S* be the size of all newest snapshots, and *M* of the largest. Full segments of the log may take
//! [`log_bytes_budget`], half of *S*, before the shard that holds the oldest makes its snapshot; the shell lets a snapshot
//! grow at least [`WALK_BYTES_PER_LOG_BYTE`] times as fast as the log, so even if all shards are due at once, the log
//! grows by a quarter of *S* until the last is done. At that time the disk holds the snapshots, one in the making, and
//! the log: S + M + S/2 + S/4, which is 2¾ *S* for a single shard and 2 *S* for four equal ones, and a constant: the
//! least budget, and segments that are begun, ready or spare. More is held only for a follower: see [`Pressure`].
//!
//! Two needs go before that: a follower that has joined since the newest snapshot of its shard cannot be sent that one;
//! and a disk that takes no writes is in need of whatever a snapshot lets go. Checkpoints and backups ask nobody: while
//! theirs are in the making, nothing is begun here.
//!
//! Deliberately not here: how a snapshot is made, and how fast; which entries followers still need.

use alloc::vec::Vec;

use super::Node;
use crate::raft::{Group, Groups};
use crate::storage::LogHeld;
use crate::types::{LogIndex, ShardId};

/// A snapshot in the making grows at least so many times as fast as the log. The contract of the shell.
pub const WALK_BYTES_PER_LOG_BYTE: u64 = 4;

/// What is known of the log, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// The shell's last word.
    held: LogHeld,
    /// Something has changed that may make a snapshot due.
    is_due: bool,
}

/// How much too long the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pressure {
    /// It is not.
    None,
    /// A snapshot is due. The log stays for followers that are behind, and a file that is being sent is not replaced.
    Due,
    /// The log is cut though active followers need it: they are sent snapshots.
    High,
    /// Even a file that is being sent makes way: followers are slower than the log grows.
    Urgent,
}

impl Upkeep {
    /// Whether to look for a snapshot that is due.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    fn pressure(&self, groups: &Groups, log_bytes_min: u64) -> Pressure {
        let budget = log_bytes_budget(groups, log_bytes_min);
        match self.held.bytes {
            bytes if bytes >= 2 * budget + log_bytes_min => Pressure::Urgent,
            bytes if bytes >= budget + log_bytes_min => Pressure::High,
            bytes if bytes >= budget => Pressure::Due,
            _ => Pressure::None,
        }
    }
}

/// How much of the log may stand in full segments: half of what a restart reads of snapshots.
fn log_bytes_budget(groups: &Groups, log_bytes_min: u64) -> u64 {
    let snapshot_bytes: u64 = groups.iter().map(|group| group.snapshot_file_bytes()).sum();
    log_bytes_min.max(snapshot_bytes / 2)
}

impl Node {
    /// Takes word of the log.
    pub(super) fn log_held(&mut self, held: LogHeld) {
        self.upkeep.held = held;
        self.upkeep.is_due = true;
    }

    /// A snapshot is finished or failed, or time passed.
    pub(super) fn look_at_snapshots(&mut self) {
        self.upkeep.is_due = true;
    }

    /// Lets the logs of all shards be cut behind their snapshots.
    pub(super) fn release_logs(&mut self) {
        let spares = self.pressure() < Pressure::High && !self.is_disk_full();
        let output = &mut self.output;
        self.groups.for_each(|group| group.release_log(spares, output));
    }

    /// Begins the snapshot that is due, if there is one and none is in the making.
    pub(super) fn begin_due_snapshot(&mut self) {
        if !core::mem::take(&mut self.upkeep.is_due)
            || self.groups.iter().any(|group| group.is_making_snapshot())
        {
            return;
        }
        let (pressure, stalled) = (self.pressure(), self.is_disk_full());
        let is_urgent = pressure == Pressure::Urgent;
        for shard in self.shards_where(Group::wants_newer_snapshot) {
            if self.begin_snapshot(shard, None, is_urgent) {
                return;
            }
        }
        if pressure > Pressure::None || stalled {
            let holder = self.upkeep.held.holder;
            if holder.is_some_and(|(shard, wanted)| self.begin_snapshot(shard, Some(wanted), is_urgent)) {
                return;
            }
            // Released in an earlier life, or void: what nobody needs goes with the next release, whatever it is. A
            // stalled disk looks for that by itself.
            if holder.is_none() && !stalled {
                self.output.released.push((ShardId::PRIME, LogIndex(0)));
            }
        }
        let others =
            self.shards_where(|group| group.snapshot_is_old() || (stalled && group.has_outgrown_snapshot()));
        for shard in others {
            if self.begin_snapshot(shard, None, false) {
                break;
            }
        }
    }

    /// Begins a snapshot of a shard that contains `wanted`, or else anything new. Whether it did.
    fn begin_snapshot(&mut self, shard: ShardId, wanted: Option<LogIndex>, is_urgent: bool) -> bool {
        let output = &mut self.output;
        let begun = self.groups.with(shard, |group| {
            let wanted = wanted.unwrap_or_else(|| group.status().applied);
            group.begin_snapshot(wanted, is_urgent, output)
        });
        begun == Some(true)
    }

    fn shards_where(&self, wanted: impl Fn(&Group) -> bool) -> Vec<ShardId> {
        self.groups.iter().filter(|group| wanted(group)).map(Group::shard).collect()
    }

    fn pressure(&self) -> Pressure {
        self.upkeep.pressure(&self.groups, self.options.snapshot_log_bytes_min)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;
    use crate::command::{Condition, Request, Write};
    use crate::event::{Actions, Event};
    use crate::storage::RecoveredShards;
    use crate::storage::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};
    use crate::types::{Token, WalSequence};
    use bytes::Bytes;

    const FULL: u64 = 1 << 20;

    /// A node of its own with keys in both data shards; its disk is instantaneous.
    struct Alone {
        node: Node,
        tasks: Vec<SnapshotTask>,
        released: Vec<(ShardId, LogIndex)>,
    }

    impl Alone {
        fn new() -> Alone {
            let node = Node::new(options(1, &["node-1:9001".into()]), RecoveredShards::new());
            let mut alone = Alone { node, tasks: Vec::new(), released: Vec::new() };
            for token in 0..20 {
                let (key, value) = (Bytes::from(alloc::vec![token as u8]), Bytes::from_static(b"value"));
                let write = Write::Put { key, value, condition: Condition::Always };
                alone.tell(Event::Request { token: Token(token), request: Request::Write(write) });
            }
            alone
        }

        fn tell(&mut self, event: Event) {
            self.node.handle(event);
            while self.node.has_work() {
                let mut actions = Actions::default();
                self.node.drive(&mut actions);
                self.tasks.append(&mut actions.snapshots);
                if let Some(batch) = actions.wal {
                    self.released.extend(&batch.released);
                    self.node.handle(Event::Durable(WalSequence(batch.sequence.0)));
                }
            }
        }

        fn applied(&self, shard: u64) -> LogIndex {
            self.node.status().shards[shard as usize].applied
        }

        fn held(&mut self, bytes: u64, holder: Option<(u64, LogIndex)>) {
            let holder = holder.map(|(shard, index)| (ShardId(shard), index));
            self.tell(Event::LogHeld(LogHeld { bytes, holder }));
            self.tell(Event::Tick);
        }

        /// Whose snapshots are in the making.
        fn making(&self) -> Vec<u64> {
            let shards = self.node.status().shards;
            shards.iter().filter(|shard| shard.makes_snapshot).map(|shard| shard.shard.0).collect()
        }

        /// Carries out what is asked about snapshots; every file comes out with `file_bytes`.
        fn work(&mut self, file_bytes: u64) -> Option<SnapshotId> {
            while let Some(task) = self.tasks.pop() {
                let id = task.id();
                match task {
                    SnapshotTask::Finish { .. } => {
                        self.tell(Event::Snapshot(SnapshotDone::Finished { id, file_bytes, checksum: 0 }));
                        self.tell(Event::Tick);
                        return Some(id);
                    }
                    _ => self.tell(Event::Snapshot(SnapshotDone::Written { id })),
                }
            }
            None
        }
    }

    #[test]
    fn the_shard_that_holds_the_log_makes_the_next_snapshot_and_releases_it() {
        let mut alone = Alone::new();
        let index = alone.applied(2);
        alone.held(FULL - 1, Some((2, index)));
        assert!(alone.making().is_empty(), "the log is short enough");
        alone.held(FULL, Some((2, index)));
        assert_eq!(alone.making(), [2]);
        alone.held(FULL, Some((1, alone.applied(1))));
        assert_eq!(alone.making(), [2], "one at a time");
        assert_eq!(alone.work(10).map(|id| (id.shard.0, id.index)), Some((2, index)));
        assert_eq!(alone.released, [(ShardId(2), index)]);
        assert_eq!(alone.making(), [1], "the next one follows at once");
        alone.work(10);
        alone.held(FULL, Some((1, alone.applied(1))));
        assert!(alone.making().is_empty(), "its newest one contains that already: the release is under way");
        alone.held(FULL, Some((0, LogIndex(alone.applied(0).0 + 1))));
        assert!(alone.making().is_empty(), "what is not applied cannot be released");
        alone.held(FULL, Some((0, alone.applied(0))));
        assert_eq!(alone.making(), [0], "also the prime shard, however little it holds");
    }

    #[test]
    fn large_snapshots_allow_for_a_long_log() {
        let mut alone = Alone::new();
        alone.held(FULL, Some((1, alone.applied(1))));
        alone.work(6 * FULL);
        let index = alone.applied(2);
        alone.held(3 * FULL - 1, Some((2, index)));
        assert!(alone.making().is_empty());
        alone.held(3 * FULL, Some((2, index)));
        assert_eq!(alone.making(), [2]);
    }

    #[test]
    fn what_nobody_needs_is_let_go() {
        let mut alone = Alone::new();
        alone.held(FULL, None);
        assert!(alone.making().is_empty());
        assert!(!alone.released.is_empty());
    }

    #[test]
    fn a_failed_snapshot_is_tried_again_later() {
        let mut alone = Alone::new();
        alone.held(FULL, Some((1, alone.applied(1))));
        let id = alone.tasks.remove(0).id();
        alone.tell(Event::Snapshot(SnapshotDone::Failed { id, reason: "no room".into() }));
        alone.tell(Event::Tick);
        assert!(alone.making().is_empty());
        (0..200).for_each(|_| alone.tell(Event::Tick));
        assert_eq!(alone.making(), [1]);
    }
}
