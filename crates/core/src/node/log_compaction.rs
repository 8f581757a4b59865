//! Log compaction: which shard makes a snapshot, and when. It bounds the log, and with it the data
//! directory.
//!
//! All shards of a node share one write-ahead log, and its segments are released from the front
//! only. So the shard that needs the oldest segment must make a snapshot to free space, however
//! small its own part of the log is. Whether the log is too long depends on all shards together.
//! Snapshots are made one at a time. Walking one state delays requests by one block at a time.
//! Walking all states at once, since shards fill up alike, would take a processor away from
//! requests.
//!
//! **The bound.** Let *S* be the size of all newest snapshots, and *M* the size of the largest.
//! Full segments of the log may take [`log_bytes_budget`], which is half of *S*, before the shard
//! that needs the oldest one makes its snapshot. The shell lets a snapshot grow at least
//! [`WALK_BYTES_PER_LOG_BYTE`] times as fast as the log. So even if all shards are due at once, the
//! log grows by a quarter of *S* until the last snapshot is done. At that time the disk holds the
//! snapshots, an unfinished one, and the log: S + M + S/2 + S/4. This is 2¾ *S* for a single shard
//! and 2 *S* for four equal ones, plus a constant for the minimum budget and for current, ready and
//! spare segments. More is kept only for a follower: see [`LogPressure`].
//!
//! Two cases take precedence: a follower that joined after the newest snapshot of its shard cannot
//! be sent that snapshot, and a full disk needs all space that a snapshot can free. Checkpoints and
//! backups are not coordinated here: while one of theirs is being made, this module begins none.
//!
//! Deliberately not here: how a snapshot is made and how fast, and which entries followers still
//! need.

use alloc::vec::Vec;

use super::Node;
use crate::raft::{Group, Groups};
use crate::storage::LogHeld;
use crate::types::{LogIndex, ShardId};

/// Minimum ratio between the growth of an unfinished snapshot and the growth of the log. The shell
/// guarantees it.
pub const WALK_BYTES_PER_LOG_BYTE: u64 = 4;

/// The state of the log, and the decisions that follow from it.
#[derive(Debug, Default)]
pub(super) struct LogCompaction {
    /// The last report of the shell.
    held: LogHeld,
    /// Whether something has changed that may make a snapshot due.
    is_due: bool,
}

/// How far the log exceeds its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LogPressure {
    None,
    /// A snapshot is due. The log is kept for followers that are behind, and a snapshot that is
    /// being sent is not replaced.
    Due,
    /// The log is cut although active followers need it: they are sent snapshots.
    High,
    /// Even a snapshot that is being sent is replaced: followers are slower than the log grows.
    Urgent,
}

impl LogCompaction {
    /// Whether to check for a due snapshot.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    fn pressure(&self, groups: &Groups, log_bytes_min: u64) -> LogPressure {
        let budget = log_bytes_budget(groups, log_bytes_min);
        match self.held.bytes {
            bytes if bytes >= 2 * budget + log_bytes_min => LogPressure::Urgent,
            bytes if bytes >= budget + log_bytes_min => LogPressure::High,
            bytes if bytes >= budget => LogPressure::Due,
            _ => LogPressure::None,
        }
    }
}

/// Budget for the full segments of the log: half as much as a restart reads of snapshots.
fn log_bytes_budget(groups: &Groups, log_bytes_min: u64) -> u64 {
    let snapshot_bytes: u64 = groups.iter().map(|group| group.snapshot_file_bytes()).sum();
    log_bytes_min.max(snapshot_bytes / 2)
}

impl Node {
    /// Records the shell's report about the log.
    pub(super) fn log_held(&mut self, held: LogHeld) {
        self.log_compaction.held = held;
        self.log_compaction.is_due = true;
    }

    /// Schedules a check for a due snapshot, after one finished or failed or time passed.
    pub(super) fn schedule_compaction_check(&mut self) {
        self.log_compaction.is_due = true;
    }

    /// Releases the logs of all shards up to their snapshots.
    pub(super) fn release_logs(&mut self) {
        let spares = self.pressure() < LogPressure::High && !self.is_disk_full();
        let output = &mut self.output;
        self.groups.for_each(|group| group.release_log(spares, output));
    }

    /// Begins the due snapshot, if there is one and no other is unfinished.
    pub(super) fn begin_due_snapshot(&mut self) {
        if !core::mem::take(&mut self.log_compaction.is_due)
            || self.groups.iter().any(|group| group.is_making_snapshot())
        {
            return;
        }
        let (pressure, stalled) = (self.pressure(), self.is_disk_full());
        let is_urgent = pressure == LogPressure::Urgent;
        for shard in self.shards_where(Group::wants_newer_snapshot) {
            if self.begin_snapshot(shard, None, is_urgent) {
                return;
            }
        }
        if pressure > LogPressure::None || stalled {
            let holder = self.log_compaction.held.holder;
            if holder.is_some_and(|(shard, wanted)| self.begin_snapshot(shard, Some(wanted), is_urgent)) {
                return;
            }
            // The oldest segment was released before the last restart, or is void. The next release
            // of any shard removes it. On a full disk the shell does that itself.
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

    /// Begins a snapshot of a shard that contains `wanted`, or anything new if that is `None`.
    /// Returns whether it did.
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

    fn pressure(&self) -> LogPressure {
        self.log_compaction.pressure(&self.groups, self.options.snapshot_log_bytes_min)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;
    use crate::command::{Condition, Operation, Request, Write};
    use crate::event::{Actions, Event};
    use crate::storage::RecoveredShards;
    use crate::storage::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};
    use crate::types::{Token, WalSequence};
    use bytes::Bytes;

    const FULL: u64 = 1 << 20;

    /// A single-node cluster with keys in both data shards; its disk is instantaneous.
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
                let write =
                    Write::of(&Operation::Put { key: &key, value: &value, condition: Condition::Always });
                alone.tell(Event::Request {
                    token: Token(token),
                    caller: crate::auth::Caller::Anonymous,
                    request: Request::Write(write),
                    trace: None,
                });
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

        /// Shards with an unfinished snapshot.
        fn making(&self) -> Vec<u64> {
            let shards = self.node.status().shards;
            shards.iter().filter(|shard| shard.makes_snapshot).map(|shard| shard.shard.0).collect()
        }

        /// Executes the snapshot tasks; every file gets the size `file_bytes`.
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
