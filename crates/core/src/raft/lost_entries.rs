//! Followers that have lost entries which they acknowledged, because their disks lost the end of
//! the log.
//!
//! Raft assumes that this never happens, and the engine would panic or never send to such a
//! follower again. A node without syncs loses the end of its log with its power, and must be able
//! to come back. So both sides change what the engine sees: the follower replaces a heartbeat that
//! commits missing entries, and the leader forgets what such a follower acknowledged.

use raft::eraftpb::{Message, MessageType};
use raft::{RawNode, StateRole};

use super::log_store::LogStore;

/// Whether a follower reports that it no longer has entries that it acknowledged. The engine would
/// take such a rejection for a delayed one. Frames arrive in order or not at all, so a rejection
/// that arrives after an acknowledgement was also sent after it.
pub(super) fn is_reported_by(message: &Message, engine: &RawNode<LogStore>) -> bool {
    let raft = &engine.raft;
    let is_current = raft.state == StateRole::Leader && message.term == raft.term;
    let is_rejection = message.get_msg_type() == MessageType::MsgAppendResponse && message.reject;
    let progress = raft.prs().get(message.from);
    is_current && is_rejection && progress.is_some_and(|progress| message.reject_hint < progress.matched)
}

/// Replaces a heartbeat that commits entries which this follower no longer has. A heartbeat commits
/// only acknowledged entries, so a missing one was lost, and the engine would panic. An empty
/// append after the missing entries is rejected instead, and tells the leader where to continue.
pub(super) fn replace_heartbeat(message: &mut Message, engine: &RawNode<LogStore>) {
    if message.get_msg_type() == MessageType::MsgHeartbeat
        && message.term >= engine.raft.term
        && message.commit > engine.raft.raft_log.last_index()
    {
        message.set_msg_type(MessageType::MsgAppend);
        message.index = message.commit;
        message.log_term = message.term;
        message.commit = 0;
    }
}

/// Forgets what a follower acknowledged, and sends to it from after its `last_index`. This never
/// lowers the commit index.
pub(super) fn probe_from(engine: &mut RawNode<LogStore>, replica: u64, last_index: u64) {
    if let Some(progress) = engine.raft.mut_prs().get_mut(replica) {
        progress.matched = 0;
        progress.become_probe();
        progress.next_idx = last_index + 1;
        engine.raft.send_append(replica);
    }
}

/// raft 0.7.0 may leave `next` at or below `matched` (fixed upstream in pull request 557): probe
/// from `matched`.
pub(super) fn repair_progress(engine: &mut RawNode<LogStore>, replica: u64) {
    if let Some(progress) = engine.raft.mut_prs().get_mut(replica)
        && progress.next_idx <= progress.matched
    {
        progress.become_probe();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::founding::Founding;
    use crate::raft::{Group, fixture};
    use crate::storage::{HardState, LogEntry, RecoveredLog};
    use crate::types::{LogIndex, ShardId, Term};

    const SHARD: ShardId = ShardId(1);

    /// A follower in term 5 with entries 1 to 3, none of which is committed.
    fn follower() -> Group {
        let entry = |index| LogEntry { index: LogIndex(index), term: Term(5), data: Default::default() };
        let log = RecoveredLog {
            entries: (1..=3).map(entry).collect(),
            hard_state: HardState { term: Term(5), ..HardState::default() },
            ..RecoveredLog::default()
        };
        fixture::group(SHARD, log)
    }

    #[test]
    fn only_a_heartbeat_that_commits_missing_entries_is_replaced() {
        let group = follower();
        for (term, commit, is_replaced) in [(5, 3, false), (5, 4, true), (6, 9, true), (4, 9, false)] {
            let mut message = Message { term, commit, ..Message::default() };
            message.set_msg_type(MessageType::MsgHeartbeat);
            replace_heartbeat(&mut message, &group.raft);
            let expected = if is_replaced { MessageType::MsgAppend } else { MessageType::MsgHeartbeat };
            assert_eq!(message.get_msg_type(), expected, "term {term}, commit {commit}");
            assert_eq!((message.index, message.commit), if is_replaced { (commit, 0) } else { (0, commit) });
        }
    }

    #[test]
    fn a_rejection_below_the_acknowledged_index_restarts_the_sending() {
        let mut group = follower();
        let peer = Founding::new(3, 1).voters_of(SHARD)[1].0.0;
        group.raft.raft.become_candidate();
        group.raft.raft.become_leader();
        let progress = |group: &Group| {
            let progress = group.raft.raft.prs().get(peer).expect("a member");
            (progress.matched, progress.next_idx)
        };
        group.raft.raft.mut_prs().get_mut(peer).expect("a member").maybe_update(3);
        let rejection = |reject_hint| {
            let mut message =
                Message { from: peer, term: 6, reject: true, reject_hint, ..Message::default() };
            message.set_msg_type(MessageType::MsgAppendResponse);
            message
        };
        assert!(!is_reported_by(&rejection(3), &group.raft));
        assert!(is_reported_by(&rejection(1), &group.raft));
        probe_from(&mut group.raft, peer, 1);
        assert_eq!(progress(&group).0, 0);
        group.raft.raft.mut_prs().get_mut(peer).expect("a member").matched = 3;
        repair_progress(&mut group.raft, peer);
        assert_eq!(progress(&group), (3, 4));
    }
}
