//! One poll of changed keys: a watch that ends with its first answer.
//!
//! Owns what makes an answer: the changes of all reads up to a position, nothing once the time is
//! over, or that the client should read the keys themselves, because it has no position, changes
//! are not known any more, or there are too many of them. What is read is decided by
//! [`KeyWatcher`], and the shell drives both alike.

use alloc::vec::Vec;

use super::key_watcher::{KeyEvent, KeyNotice, KeyWatchStep, KeyWatcher, WatchStart};
use crate::command::{Consistency, KeyChange, KeyContent, KeyScope, Read, Refusal, Reply};
use crate::limits;
use crate::slots::slot_revisions::SlotRevisions;

/// The state of one poll.
#[derive(Debug)]
pub struct KeyPoll {
    scope: KeyScope,
    keys_only: bool,
    watcher: KeyWatcher,
    /// The client is told to read the keys.
    is_reset: bool,
    /// The changes so far, and about how many bytes they have.
    changes: Vec<KeyChange>,
    bytes: usize,
    /// Up to where the client knows everything if there are no changes.
    position: Option<SlotRevisions>,
}

/// What the shell does next.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyPollStep {
    /// Send this read to the store, and pass the reply to [`KeyPoll::answered`].
    Ask {
        /// A read of keys in the scope.
        read: Read,
        /// `Stale`: this node's own replicas answer, without asking the leader.
        consistency: Consistency,
    },
    /// Wait for a notification, for the answer to the latest read, or for the end of the time.
    Wait,
    /// Send this to the client.
    Answer(KeyPollAnswer),
    /// There is no answer.
    End(Refusal),
}

/// The answer of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPollAnswer {
    /// The client should read the keys now. There are no changes then.
    pub is_reset: bool,
    /// The last state of each key that has changed.
    pub changes: Vec<KeyChange>,
    /// For the next poll.
    pub position: SlotRevisions,
}

impl KeyPoll {
    /// A poll for the changes after a position; `None` if the client has none.
    pub fn new(scope: KeyScope, keys_only: bool, after: Option<SlotRevisions>) -> KeyPoll {
        let is_reset = after.is_none();
        let start = after.map_or(WatchStart::Now, WatchStart::After);
        let watcher = KeyWatcher::new(scope.clone(), keys_only, start);
        KeyPoll { scope, keys_only, watcher, is_reset, changes: Vec::new(), bytes: 0, position: None }
    }

    /// The next step.
    pub fn next_step(&mut self) -> KeyPollStep {
        loop {
            match self.watcher.next_step() {
                KeyWatchStep::Ask { read, consistency } => return KeyPollStep::Ask { read, consistency },
                KeyWatchStep::Wait => return KeyPollStep::Wait,
                KeyWatchStep::End(refusal) => return KeyPollStep::End(refusal),
                KeyWatchStep::Tell(notice) => {
                    if let Some(answer) = self.take(notice) {
                        return KeyPollStep::Answer(answer);
                    }
                }
            }
        }
    }

    /// Keys of the scope may have changed: see [`KeyWatcher::notified`].
    pub fn notified(&mut self, matched: &SlotRevisions) {
        self.watcher.notified(matched);
    }

    /// The reply to the latest read.
    ///
    /// # Panics
    /// If no read is open.
    pub fn answered(&mut self, reply: Reply) {
        self.watcher.answered(reply);
    }

    /// The answer when the time is over: no changes. `matched` and `is_due` are those of
    /// [`KeyWatcher::heartbeat`].
    ///
    /// # Errors
    /// If the first read has no answer yet.
    pub fn time_over(mut self, matched: &SlotRevisions, is_due: bool) -> Result<KeyPollAnswer, Refusal> {
        // A part of the changes is no answer: the next poll gets them all.
        self.watcher.heartbeat(matched, is_due);
        if let KeyWatchStep::Tell(KeyNotice { position: Some(position), .. }) = self.watcher.next_step() {
            self.position = Some(position);
        }
        let position = self.position.take().ok_or(Refusal::NoLeader)?;
        Ok(KeyPollAnswer { is_reset: self.is_reset, changes: Vec::new(), position })
    }

    /// Adds a notice of the watcher. Returns the answer, if it is complete.
    fn take(&mut self, KeyNotice { events, position }: KeyNotice) -> Option<KeyPollAnswer> {
        for event in events {
            match event {
                KeyEvent::Reset => self.reset(),
                KeyEvent::Changed(change) => {
                    self.bytes +=
                        change.key.len() + change.content.as_ref().map_or(0, KeyContent::value_bytes);
                    self.changes.push(change);
                }
                KeyEvent::Live | KeyEvent::Progress => {}
            }
        }
        if self.bytes > limits::POLL_BYTES_MAX {
            self.reset();
            return None;
        }
        let position = position?;
        if self.is_reset || !self.changes.is_empty() {
            let changes = core::mem::take(&mut self.changes);
            return Some(KeyPollAnswer { is_reset: self.is_reset, changes, position });
        }
        self.position = Some(position);
        None
    }

    /// Lets the client read the keys, and go on from the present revisions.
    fn reset(&mut self) {
        self.is_reset = true;
        (self.changes, self.bytes) = (Vec::new(), 0);
        self.watcher = KeyWatcher::new(self.scope.clone(), self.keys_only, WatchStart::Now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{KeyChanges, ReadReply};
    use crate::slots::slot_set::SlotSet;
    use crate::types::Version;
    use alloc::vec;
    use bytes::Bytes;

    fn at(revision: u64) -> SlotRevisions {
        SlotRevisions::at(&SlotSet::all(), Version(revision))
    }

    fn poll(after: Option<u64>) -> KeyPoll {
        KeyPoll::new(KeyScope::Prefix(Bytes::from_static(b"k")), false, after.map(at))
    }

    fn change(revision: u64, bytes: usize) -> KeyChange {
        let value = Some(Bytes::from(vec![0; bytes]));
        let content = Some(KeyContent { value, expires: None });
        KeyChange { key: Bytes::from_static(b"k"), revision: Version(revision), content }
    }

    /// The poll reads the changes after a revision, and is answered.
    fn reads(poll: &mut KeyPoll, expected: Option<u64>, answer: KeyChanges) {
        let KeyPollStep::Ask { read: Read::Changes { after, .. }, .. } = poll.next_step() else {
            panic!("no read of changes")
        };
        assert_eq!(after, expected.map(at));
        poll.answered(Reply::Read(ReadReply::Changes(answer)));
    }

    fn part(changes: Vec<KeyChange>, through: u64, has_more: bool) -> KeyChanges {
        KeyChanges { has_gap: false, has_more, changes, through: at(through) }
    }

    fn answers(poll: &mut KeyPoll, is_reset: bool, changes: Vec<KeyChange>, position: u64) {
        let position = at(position);
        assert_eq!(poll.next_step(), KeyPollStep::Answer(KeyPollAnswer { is_reset, changes, position }));
    }

    #[test]
    fn changes_are_answered_at_once_in_one_piece() {
        let mut poll = poll(Some(3));
        reads(&mut poll, Some(3), part(vec![change(4, 1)], 4, true));
        reads(&mut poll, Some(4), part(vec![change(5, 1)], 6, false));
        answers(&mut poll, false, vec![change(4, 1), change(5, 1)], 6);
    }

    #[test]
    fn without_changes_it_waits_until_the_time_is_over() {
        let (new, mut poll) = (poll(Some(3)), poll(Some(3)));
        assert_eq!(new.time_over(&at(9), false), Err(Refusal::NoLeader), "nothing is known yet");
        reads(&mut poll, Some(3), part(vec![], 3, false));
        assert_eq!(poll.next_step(), KeyPollStep::Wait);
        let none = |position| KeyPollAnswer { is_reset: false, changes: vec![], position: at(position) };
        assert_eq!(poll.time_over(&at(7), false), Ok(none(7)));
    }

    #[test]
    fn a_refused_part_is_waited_for_and_then_given_up() {
        let mut poll = poll(Some(3));
        reads(&mut poll, Some(3), part(vec![], 3, false));
        assert_eq!(poll.next_step(), KeyPollStep::Wait);
        poll.notified(&at(4));
        reads(&mut poll, Some(3), part(vec![change(4, 1)], 4, true));
        assert!(matches!(poll.next_step(), KeyPollStep::Ask { .. }));
        poll.answered(Reply::Refused(Refusal::NoLeader));
        assert_eq!(poll.next_step(), KeyPollStep::Wait);
        // The client gets the same changes with its next poll.
        let none = KeyPollAnswer { is_reset: false, changes: vec![], position: at(3) };
        assert_eq!(poll.time_over(&at(9), false), Ok(none));
    }

    #[test]
    fn no_position_a_gap_or_too_much_lets_the_client_read_the_keys() {
        let gap = KeyChanges { has_gap: true, through: at(8), ..KeyChanges::default() };
        let much = part(vec![change(4, limits::POLL_BYTES_MAX)], 4, true);
        for (after, first) in [(None, None), (Some(3), Some(gap)), (Some(3), Some(much))] {
            let mut poll = poll(after);
            first.into_iter().for_each(|first| reads(&mut poll, after, first));
            let answer = loop {
                match poll.next_step() {
                    KeyPollStep::Ask { read: Read::Changes { after: None, .. }, .. } => {
                        poll.answered(Reply::Read(ReadReply::Changes(part(vec![], 8, false))));
                    }
                    KeyPollStep::Answer(answer) => break answer,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(answer, KeyPollAnswer { is_reset: true, changes: vec![], position: at(8) });
        }
    }
}
