//! The states of this node's disk and of its peers' disks, and how long a disk that was slow must
//! not lead.
//!
//! Owns the hysteresis. Without it, a disk that hangs repeatedly would move every leadership twice
//! each time, and clients would wait for the next hang. `raft::stalls` owns the behaviour of
//! replicas on a stalled disk.

use super::Node;
use crate::deliberate::Fault;
use crate::event::StallReason;
use crate::peer::DiskState;
use crate::raft::{Disks, Group};
use crate::types::{NodeId, ShardId, Ticks};
use alloc::vec::Vec;

/// Number of election timeouts after its disk was slow during which a node leads only shards that
/// no other node can lead.
const UNSTEADY_ELECTION_TIMEOUTS: u64 = 5;

/// This time doubles, up to this many election timeouts, whenever the disk is slow again within as
/// many of them: by default a minute. So a node with a bad disk moves its leaderships at most once
/// a minute.
const UNSTEADY_ELECTION_TIMEOUTS_MAX: u64 = 60;

/// The history of the node's own disk.
#[derive(Debug, Default)]
pub(super) struct DiskHistory {
    stalled: Option<StallReason>,
    /// When the disk was last slow, and for how many election timeouts it is unsteady from then on.
    slow: Option<(Ticks, u64)>,
}

impl DiskHistory {
    /// Records that the disk begins or continues to be slow.
    fn note_slow(&mut self, now: Ticks, election_ticks: u64) {
        let timeouts = match self.slow {
            Some((last, timeouts)) if now.0 <= last.0 + UNSTEADY_ELECTION_TIMEOUTS_MAX * election_ticks => {
                (2 * timeouts).min(UNSTEADY_ELECTION_TIMEOUTS_MAX)
            }
            _ => UNSTEADY_ELECTION_TIMEOUTS,
        };
        self.slow = Some((now, timeouts));
    }

    fn state(&self, now: Ticks, election_ticks: u64) -> DiskState {
        match (self.stalled, self.slow) {
            (Some(_), _) => DiskState::Stalled,
            (None, Some((last, timeouts))) if now.0 < last.0 + timeouts * election_ticks => {
                DiskState::Unsteady
            }
            (None, _) => DiskState::Healthy,
        }
    }
}

impl Node {
    /// This node's disk takes no commands for now, or the reason has changed.
    pub(super) fn disk_stalled(&mut self, reason: StallReason) {
        let is_slow = reason == StallReason::Slow;
        let faults = self.options.faults;
        if is_slow && (faults.has(Fault::SlowDiskIgnored) || faults.has(Fault::HangingDiskAwaited)) {
            return;
        }
        let was_slow = self.disk_history.stalled == Some(StallReason::Slow);
        if is_slow && !was_slow {
            self.disk_history.note_slow(self.now, self.options.timing.election_ticks);
        }
        self.disk_history.stalled = Some(reason);
        self.update_own_disk();
    }

    /// This node's disk takes commands again.
    pub(super) fn disk_recovered(&mut self) {
        let history = &mut self.disk_history;
        if history.stalled.take() == Some(StallReason::Slow)
            && let Some((last, _)) = &mut history.slow
        {
            *last = self.now;
        }
        self.update_own_disk();
    }

    /// Handles a tick: transfers leadership if the disk should not lead, and trusts a disk that was
    /// steady for long enough.
    pub(super) fn tick_disk(&mut self) {
        self.update_own_disk();
        if self.disks.own() != DiskState::Healthy {
            let router = &self.router;
            self.groups.for_each(|group| group.leave_own_disk(|node| router.is_up(node)));
        }
    }

    pub(super) fn peer_disk_changed(&mut self, peer: NodeId, state: DiskState) {
        if self.disks.set_peer(peer, state) {
            self.disks_changed();
        }
    }

    /// Whether this node's disk refuses writes, so that the log should be cut wherever possible. On
    /// a slow disk that would only add writes.
    pub(super) fn is_disk_full(&self) -> bool {
        self.disk_history.stalled == Some(StallReason::Refused)
    }

    fn update_own_disk(&mut self) {
        let state = self.disk_history.state(self.now, self.options.timing.election_ticks);
        if self.disks.set_own(state) {
            self.report_due = true;
            self.disks_changed();
        }
    }

    fn disks_changed(&mut self) {
        // A snapshot may free the space that the disk lacks.
        self.schedule_compaction_check();
        let shards: Vec<ShardId> = self.groups.iter().map(Group::shard).collect();
        let (disks, router): (&Disks, _) = (&self.disks, &self.router);
        for shard in shards {
            self.groups.with(shard, |group| {
                group.set_disks(disks);
                group.leave_own_disk(|node| router.is_up(node));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELECTION_TICKS: u64 = 10;

    fn state(history: &DiskHistory, now: u64) -> DiskState {
        history.state(Ticks(now), ELECTION_TICKS)
    }

    #[test]
    fn a_disk_that_was_slow_is_unsteady_for_a_while() {
        let mut history = DiskHistory::default();
        assert_eq!(state(&history, 0), DiskState::Healthy);
        history.note_slow(Ticks(100), ELECTION_TICKS);
        assert_eq!((state(&history, 149), state(&history, 150)), (DiskState::Unsteady, DiskState::Healthy));
    }

    #[test]
    fn the_while_doubles_with_each_relapse_up_to_a_limit_and_is_forgotten() {
        let mut history = DiskHistory::default();
        let mut now = 0;
        for timeouts in [5, 10, 20, 40, 60, 60] {
            now += 300;
            history.note_slow(Ticks(now), ELECTION_TICKS);
            let until = now + timeouts * ELECTION_TICKS;
            assert_eq!(state(&history, until - 1), DiskState::Unsteady, "{timeouts}");
            assert_eq!(state(&history, until), DiskState::Healthy, "{timeouts}");
        }
        history.note_slow(Ticks(now + 601), ELECTION_TICKS);
        assert_eq!(state(&history, now + 601 + 50), DiskState::Healthy);
    }
}
