//! Detects messages that contradict the entries committed in this replica.
//!
//! Raft guarantees that every leader has every committed entry (Raft paper, figure 3, leader
//! completeness). So such a message proves that a replica has lost acknowledged state, for example
//! because its disk was restored to an earlier state. The engine does not detect this: it answers
//! an append from before its commit index without comparing terms, and panics in other places. A
//! node that detects a contradiction reports it and stops, because no node can decide which of the
//! two logs is correct.

use raft::eraftpb::{Message, MessageType};
use raft::{Raft, RawNode, StateRole};

use super::log_store::LogStore;
use super::snapshots::is_snapshot;
use crate::event::Contradiction;
use crate::types::{LogIndex, NodeId, ShardId, Term};

/// The first contradiction between a message and the committed log of this replica. A message of an
/// earlier term proves nothing, because it may come from a deposed leader.
pub(super) fn find(
    engine: &RawNode<LogStore>,
    shard: ShardId,
    (message, from): (&Message, NodeId),
) -> Option<Contradiction> {
    let raft = &engine.raft;
    if message.term < raft.term {
        return None;
    }
    let found = match message.get_msg_type() {
        MessageType::MsgAppend => contradicting_entry(raft, message),
        MessageType::MsgAppendResponse => unknown_commitment(raft, message),
        _ if is_snapshot(message) => {
            let metadata = message.get_snapshot().get_metadata();
            contradicting_term(raft, metadata.index, metadata.term)
        }
        _ => None,
    };
    let (index, held, sent) = found?;
    let held = (held > 0).then_some(Term(held));
    Some(Contradiction { shard, peer: from, index: LogIndex(index), held, sent: Term(sent) })
}

/// Finds an entry of the message that differs from a committed one. Returns the index, the term
/// here, and the term in the message.
fn contradicting_entry(raft: &Raft<LogStore>, message: &Message) -> Option<(u64, u64, u64)> {
    let entries = message.get_entries().iter().map(|entry| (entry.index, entry.term));
    let mut places = core::iter::once((message.index, message.log_term)).chain(entries);
    places.find_map(|(index, term)| contradicting_term(raft, index, term))
}

fn contradicting_term(raft: &Raft<LogStore>, index: u64, term: u64) -> Option<(u64, u64, u64)> {
    let log = &raft.raft_log;
    if index > log.committed {
        return None;
    }
    // The term is 0 or an error if only a snapshot contains the entry.
    let held = log.term(index).unwrap_or(0);
    (held > 0 && held != term).then_some((index, held, term))
}

/// Whether a follower has committed more entries than this leader has.
fn unknown_commitment(raft: &Raft<LogStore>, message: &Message) -> Option<(u64, u64, u64)> {
    let leads = raft.state == StateRole::Leader && message.term == raft.term;
    let is_unknown = message.index > raft.raft_log.last_index();
    (leads && !message.reject && is_unknown).then_some((message.index, 0, message.term))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Decoder;
    use crate::founding::Founding;
    use crate::raft::{Group, Output, fixture, wire};
    use crate::storage::{HardState, LogEntry, RecoveredLog};
    use alloc::vec::Vec;
    use bytes::Bytes;
    use raft::eraftpb::Entry;

    const SHARD: ShardId = ShardId(1);
    const PEER: NodeId = NodeId(2);

    /// A follower in term 5 with entries of these terms, of which `committed` are committed.
    fn follower(terms: &[u64], committed: u64) -> Group {
        let entry = |(index, term): (u64, &u64)| LogEntry {
            index: LogIndex(index),
            term: Term(*term),
            data: Bytes::new(),
        };
        let log = RecoveredLog {
            entries: (1..).zip(terms).map(entry).collect(),
            hard_state: HardState { term: Term(5), vote: None, commit: LogIndex(committed) },
            ..RecoveredLog::default()
        };
        fixture::group(SHARD, log)
    }

    fn append(term: u64, previous: (u64, u64), terms: &[u64]) -> Message {
        let (index, log_term) = previous;
        let entries: Vec<Entry> = (index + 1..)
            .zip(terms)
            .map(|(index, &term)| Entry { index, term, ..Entry::default() })
            .collect();
        let founding = Founding::new(3, 1).voters_of(SHARD);
        let mut message = Message {
            from: founding[1].0.0,
            to: founding[0].0.0,
            term,
            index,
            log_term,
            ..Message::default()
        };
        message.set_msg_type(MessageType::MsgAppend);
        message.set_entries(entries.into());
        message
    }

    #[test]
    fn another_term_in_the_place_of_a_committed_entry_is_a_contradiction() {
        let group = follower(&[1, 1, 4, 4, 5], 4);
        let found = |message: &Message| {
            let found = find(&group.raft, SHARD, (message, PEER))?;
            assert_eq!((found.shard, found.peer), (SHARD, PEER));
            Some((found.index.0, found.held.map(|term| term.0), found.sent.0))
        };
        for message in [
            append(5, (0, 0), &[1, 1, 4, 4, 5]),
            append(6, (2, 1), &[4, 4, 6]),
            append(6, (4, 4), &[6]),
            // Uncommitted entries may be replaced.
            append(6, (4, 4), &[6, 6]),
            append(6, (5, 6), &[]),
            append(6, (9, 6), &[6]),
        ] {
            assert_eq!(found(&message), None, "{message:?}");
        }
        assert_eq!(found(&append(6, (2, 1), &[6, 6])), Some((3, Some(4), 6)));
        assert_eq!(found(&append(6, (3, 6), &[])), Some((3, Some(4), 6)));
        assert_eq!(found(&append(7, (1, 1), &[1, 4, 7])), Some((4, Some(4), 7)));
        assert_eq!(found(&append(4, (2, 1), &[3])), None, "of a leader that was deposed");
    }

    #[test]
    fn a_replica_that_was_contradicted_says_so_and_does_nothing_more() {
        let mut group = follower(&[1, 1, 4, 4, 5], 4);
        let mut out = Output::new();
        let mut hear = |message: &Message| {
            let mut bytes = Vec::new();
            wire::encode(message, &mut bytes);
            let bytes = Bytes::from(bytes);
            group.step(PEER, (&mut Decoder::new(&bytes), &bytes), &mut out).unwrap();
            let status = group.status();
            (status.diverged, status.term.0, status.last.0)
        };
        assert_eq!(hear(&append(5, (4, 4), &[5])), (false, 5, 5));
        // The engine would answer it as if the entries were equal, because it begins before the
        // commit index.
        assert_eq!(hear(&append(6, (2, 1), &[6])), (true, 5, 5));
        assert_eq!(hear(&append(6, (5, 5), &[6])), (true, 5, 5));
        let contradiction = out.contradiction.expect("a contradiction is reported");
        assert_eq!((contradiction.index, contradiction.held), (LogIndex(3), Some(Term(4))));
        let text = alloc::string::ToString::to_string(&contradiction);
        assert!(text.contains("shard 1: entry 3 of term 4 is committed here"), "{text}");
    }
}
