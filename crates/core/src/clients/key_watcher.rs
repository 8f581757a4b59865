//! A watcher of keys: which read comes next, and what the client is sent.
//!
//! Owns the client's position, the catch-up of a client that comes back, and the meaning of each
//! answer. It does not own sockets, encoding, timers, or the table of watchers
//! ([`watch_hub`](super::watch_hub)): the shell reports notifications and answers, and does what
//! [`KeyWatcher::next_step`] returns. The shell calls that only when the client can take more, so a
//! slow client has no read in flight and no queue here: it costs its position, and what it missed
//! is read when it goes on.
//!
//! The position is a revision for each slot ([`SlotRevisions`]), so it is valid at every node and
//! after every restart and move of slots. The first read is linearizable. Later ones read this
//! node's own replicas when a change was notified.
//!
//! Invariant: between two positions that a client is sent, it is sent the last state of each key
//! that changed between them, or [`KeyEvent::Reset`] and then the state of all keys in the scope.
//! On a connection, no state of a key is sent twice without a reset in between.

use alloc::vec::Vec;
use bytes::Bytes;

use crate::command::{
    Consistency, Item, KeyChange, KeyChanges, KeyContent, KeyScope, Page, Read, ReadReply, Refusal, Reply,
    StoredValue,
};
use crate::limits;
use crate::slots::slot_of;
use crate::slots::slot_revisions::SlotRevisions;
use crate::slots::slot_set::SlotSet;

/// The state of one watcher, from its connection to its end.
#[derive(Debug)]
pub struct KeyWatcher {
    scope: KeyScope,
    /// Whether values are left out.
    keys_only: bool,
    /// All changes up to here were sent.
    position: SlotRevisions,
    /// The client was sent that it knows the present state.
    is_live: bool,
    /// Something may have changed since the latest read.
    is_due: bool,
    /// The changes that were notified have revisions up to these.
    notified: SlotRevisions,
    /// The last read was refused for a reason that may pass, or its answer did not contain what was
    /// notified. The next heartbeat repeats it.
    must_repeat: bool,
    phase: KeyWatchPhase,
}

/// Where a client begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With the present state of all keys in the scope.
    State,
    /// With the changes from now on.
    Now,
    /// With the changes after a position.
    After(SlotRevisions),
}

/// What the shell does next.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyWatchStep {
    /// Send this read to the store, and pass the reply to [`KeyWatcher::answered`].
    Ask {
        /// A read of keys in the scope.
        read: Read,
        /// `Stale`: this node's own replicas answer, without asking the leader.
        consistency: Consistency,
    },
    /// Send this to the client.
    Tell(KeyNotice),
    /// Wait for a notification, for the answer to the latest read, or for the heartbeat.
    Wait,
    /// End the watch. The client may come back with its last position.
    End(Refusal),
}

/// What a client is sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KeyNotice {
    /// In this order.
    pub events: Vec<KeyEvent>,
    /// With which the client may come back if it has received all of these events.
    pub position: Option<SlotRevisions>,
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// A key was created, changed or removed.
    Changed(KeyChange),
    /// What the client knows of the scope may be wrong. The state of all its keys follows, then
    /// [`KeyEvent::Live`].
    Reset,
    /// The client knows the state as of the position that comes with it.
    Live,
    /// Nothing has changed up to the position that comes with it.
    Progress,
}

#[derive(Debug)]
enum KeyWatchPhase {
    Idle,
    Planned(KeyLookup),
    Asked(KeyLookup),
    /// The notice is sent next, then the lookup.
    Answered(KeyNotice, Option<KeyLookup>),
    Ended(Refusal),
}

#[derive(Clone, Debug)]
enum KeyLookup {
    /// The present revisions, to go on from there or to send the state first.
    Begin { with_state: bool },
    /// The keys of the state after this key, or all.
    State { after: Option<Bytes> },
    /// The changes after the position.
    Changes(LookupReason),
}

/// Why changes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupReason {
    /// A client comes back with a position.
    Resume,
    /// The state was sent. What has changed meanwhile follows.
    CatchUp,
    /// The client knows the state, and a change was notified.
    Follow,
}

impl KeyWatcher {
    /// A watcher of a client that begins at `start`.
    pub fn new(scope: KeyScope, keys_only: bool, start: WatchStart) -> KeyWatcher {
        let (lookup, position) = match start {
            WatchStart::State => (KeyLookup::Begin { with_state: true }, SlotRevisions::default()),
            WatchStart::Now => (KeyLookup::Begin { with_state: false }, SlotRevisions::default()),
            WatchStart::After(position) => {
                let slots = slots_of(&scope);
                let position = position.within(&slots);
                // A position of other keys says nothing of these.
                if position.slots() == slots {
                    (KeyLookup::Changes(LookupReason::Resume), position)
                } else {
                    (KeyLookup::Begin { with_state: true }, SlotRevisions::default())
                }
            }
        };
        KeyWatcher {
            scope,
            keys_only,
            position,
            is_live: false,
            is_due: false,
            notified: SlotRevisions::default(),
            must_repeat: false,
            phase: KeyWatchPhase::Planned(lookup),
        }
    }

    /// The next step. The shell takes it when the client can take more.
    pub fn next_step(&mut self) -> KeyWatchStep {
        match core::mem::replace(&mut self.phase, KeyWatchPhase::Idle) {
            KeyWatchPhase::Planned(lookup) => self.ask(lookup),
            KeyWatchPhase::Idle if core::mem::take(&mut self.is_due) => {
                self.ask(KeyLookup::Changes(LookupReason::Follow))
            }
            KeyWatchPhase::Idle => KeyWatchStep::Wait,
            KeyWatchPhase::Asked(lookup) => {
                self.phase = KeyWatchPhase::Asked(lookup);
                KeyWatchStep::Wait
            }
            KeyWatchPhase::Answered(notice, lookup) => {
                self.phase = lookup.map_or(KeyWatchPhase::Idle, KeyWatchPhase::Planned);
                KeyWatchStep::Tell(notice)
            }
            KeyWatchPhase::Ended(refusal) => {
                self.phase = KeyWatchPhase::Ended(refusal.clone());
                KeyWatchStep::End(refusal)
            }
        }
    }

    /// Keys of the scope may have changed, at revisions up to `matched`. A notification during a
    /// read leads to another one.
    pub fn notified(&mut self, matched: &SlotRevisions) {
        self.is_due = true;
        self.notified.raise(&matched.within(&slots_of(&self.scope)));
    }

    /// The heartbeat is due. If nothing has changed up to the revisions `matched`, the client is
    /// sent that; `is_due` says whether a notification waits.
    pub fn heartbeat(&mut self, matched: &SlotRevisions, is_due: bool) {
        self.is_due |= core::mem::take(&mut self.must_repeat);
        let is_current = self.is_live && !self.is_due && !is_due;
        if is_current && matches!(self.phase, KeyWatchPhase::Idle) {
            self.position.raise(&matched.within(&self.position.slots()));
            self.tell_with_position([KeyEvent::Progress].into());
        }
    }

    /// The reply to the latest read.
    ///
    /// # Panics
    /// If no read is open.
    pub fn answered(&mut self, reply: Reply) {
        let KeyWatchPhase::Asked(lookup) = core::mem::replace(&mut self.phase, KeyWatchPhase::Idle) else {
            unreachable!("invariant: each read gets one reply");
        };
        let reply = match reply {
            Reply::Read(reply) => reply,
            Reply::Refused(refusal) => return self.refused(lookup, refusal),
            _ => return self.end(mismatched()),
        };
        match (lookup, reply) {
            (KeyLookup::Begin { with_state }, ReadReply::Changes(changes)) => self.begin(with_state, changes),
            (KeyLookup::State { .. }, ReadReply::Page(page)) => self.state(page),
            (KeyLookup::State { .. }, ReadReply::Value(value)) => {
                let key = self.scope.bytes().clone();
                let item = value.map(|StoredValue { version, value, expires, lease: _ }| Item {
                    key,
                    version,
                    value: (!self.keys_only).then_some(value),
                    expires,
                });
                self.state(Page { items: item.into_iter().collect(), next: None });
            }
            (KeyLookup::Changes(reason), ReadReply::Changes(changes)) => self.changes(reason, changes),
            _ => self.end(mismatched()),
        }
    }

    fn ask(&mut self, lookup: KeyLookup) -> KeyWatchStep {
        let changes = |after| Read::Changes {
            scope: self.scope.clone(),
            after,
            limit: limits::WATCH_ITEMS_MAX,
            keys_only: self.keys_only,
        };
        let (read, consistency) = match &lookup {
            KeyLookup::Begin { .. } => (changes(None), Consistency::Linearizable),
            KeyLookup::Changes(LookupReason::Follow) => {
                (changes(Some(self.position.clone())), Consistency::Stale)
            }
            // Another replica than the one that said the position may answer.
            KeyLookup::Changes(_) => (changes(Some(self.position.clone())), Consistency::Linearizable),
            KeyLookup::State { after } => (self.read_of_state(after.clone()), Consistency::Linearizable),
        };
        self.phase = KeyWatchPhase::Asked(lookup);
        KeyWatchStep::Ask { read, consistency }
    }

    fn read_of_state(&self, after: Option<Bytes>) -> Read {
        match &self.scope {
            KeyScope::Key(key) => Read::Get { key: key.clone() },
            KeyScope::Prefix(prefix) => Read::List {
                prefix: prefix.clone(),
                after,
                limit: limits::WATCH_ITEMS_MAX,
                keys_only: self.keys_only,
            },
        }
    }

    /// The present revisions are known.
    fn begin(&mut self, with_state: bool, changes: KeyChanges) {
        let slots = slots_of(&self.scope);
        let position = changes.through.within(&slots);
        if position.slots() != slots {
            return self.end(mismatched());
        }
        self.position = position;
        if with_state {
            let notice = KeyNotice { events: [KeyEvent::Reset].into(), position: None };
            self.phase = KeyWatchPhase::Answered(notice, Some(KeyLookup::State { after: None }));
        } else {
            self.become_live(Vec::new());
        }
    }

    /// Sends a part of the state. A key that has changed since the position follows as a change.
    fn state(&mut self, page: Page) {
        let is_known = |item: &Item| {
            self.position.of(slot_of(&item.key)).is_some_and(|revision| item.version <= revision)
        };
        let known = page.items.into_iter().filter(is_known);
        let events: Vec<KeyEvent> = known.map(|item| KeyEvent::Changed(change_of(item))).collect();
        let lookup = match page.next {
            None => KeyLookup::Changes(LookupReason::CatchUp),
            after => KeyLookup::State { after },
        };
        self.tell_and_ask(events, lookup);
    }

    fn tell_and_ask(&mut self, events: Vec<KeyEvent>, lookup: KeyLookup) {
        self.phase = if events.is_empty() {
            KeyWatchPhase::Planned(lookup)
        } else {
            KeyWatchPhase::Answered(KeyNotice { events, position: None }, Some(lookup))
        };
    }

    fn changes(&mut self, reason: LookupReason, changes: KeyChanges) {
        let KeyChanges { has_gap, has_more, changes, through } = changes;
        // One shard answers for all of its slots, and the watcher knows those of the scope.
        let through = through.within(&self.position.slots());
        // A shard that holds only a backup always answers with a gap, because keys that are
        // restored later may have lower versions. The state was sent just now, and the restore of
        // further keys is notified.
        let is_restored = reason == LookupReason::CatchUp && self.position.reaches(&through);
        // A linearizable read is not behind: the position comes from another state of the cluster.
        let is_foreign = reason == LookupReason::Resume && !through.reaches(&self.position);
        if has_gap && !is_restored || is_foreign {
            self.is_live = false;
            self.phase = KeyWatchPhase::Planned(KeyLookup::Begin { with_state: true });
            return;
        }
        if reason == LookupReason::Follow && !has_more && !self.is_due {
            // The replica that was notified may be gone, and another one behind it.
            self.must_repeat = !through.reaches(&self.notified);
            if !self.must_repeat {
                self.notified = SlotRevisions::default();
            }
        }
        self.position.raise(&through);
        let events: Vec<KeyEvent> = changes.into_iter().map(KeyEvent::Changed).collect();
        if has_more {
            // A key whose later change follows may be missing so far, so this is no position for
            // the client.
            self.tell_and_ask(events, KeyLookup::Changes(reason));
        } else if !self.is_live {
            self.become_live(events);
        } else if !events.is_empty() {
            self.tell_with_position(events);
        }
    }

    /// Sends that the client knows the state as of the position.
    fn become_live(&mut self, mut events: Vec<KeyEvent>) {
        self.is_live = true;
        events.push(KeyEvent::Live);
        self.tell_with_position(events);
    }

    fn tell_with_position(&mut self, events: Vec<KeyEvent>) {
        let position = Some(self.position.clone());
        self.phase = KeyWatchPhase::Answered(KeyNotice { events, position }, None);
    }

    /// Ends the watch, unless the next heartbeat may repeat the read.
    fn refused(&mut self, lookup: KeyLookup, refusal: Refusal) {
        let may_pass = matches!(
            refusal,
            Refusal::NoLeader | Refusal::Overloaded | Refusal::DiskUnavailable | Refusal::UnknownOutcome
        );
        if may_pass && matches!(lookup, KeyLookup::Changes(LookupReason::Follow)) {
            self.must_repeat = true;
        } else {
            self.end(refusal);
        }
    }

    fn end(&mut self, refusal: Refusal) {
        self.phase = KeyWatchPhase::Ended(refusal);
    }
}

/// The slots in which keys of the scope can be.
fn slots_of(scope: &KeyScope) -> SlotSet {
    scope.slot().map_or_else(SlotSet::all, |slot| SlotSet::from(slot..slot + 1))
}

fn change_of(Item { key, version, value, expires }: Item) -> KeyChange {
    KeyChange { key, revision: version, content: Some(KeyContent { value, expires }) }
}

/// The reply does not answer the read: a bug of the store.
fn mismatched() -> Refusal {
    Refusal::invalid("the reply answers another read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Version;
    use alloc::vec;

    fn at(revision: u64) -> SlotRevisions {
        SlotRevisions::at(&SlotSet::all(), Version(revision))
    }

    fn watcher(start: WatchStart) -> KeyWatcher {
        KeyWatcher::new(KeyScope::Prefix(Bytes::from_static(b"k")), false, start)
    }

    fn change(key: &'static str, revision: u64) -> KeyChange {
        let content = KeyContent { value: Some(Bytes::from_static(b"v")), expires: None };
        KeyChange {
            key: Bytes::from_static(key.as_bytes()),
            revision: Version(revision),
            content: Some(content),
        }
    }

    fn item(key: &'static str, version: u64) -> Item {
        let (key, value) = (Bytes::from_static(key.as_bytes()), Some(Bytes::from_static(b"v")));
        Item { key, version: Version(version), value, expires: None }
    }

    fn changes(changes: Vec<KeyChange>, through: u64) -> Reply {
        let through = at(through);
        Reply::Read(ReadReply::Changes(KeyChanges { changes, through, ..KeyChanges::default() }))
    }

    fn gap(through: u64) -> Reply {
        let (has_gap, through) = (true, at(through));
        Reply::Read(ReadReply::Changes(KeyChanges { has_gap, through, ..KeyChanges::default() }))
    }

    fn page(items: Vec<Item>, next: Option<&'static str>) -> Reply {
        let next = next.map(|key| Bytes::from_static(key.as_bytes()));
        Reply::Read(ReadReply::Page(Page { items, next }))
    }

    fn asks_for_changes(watcher: &mut KeyWatcher, revision: Option<u64>, consistency: Consistency) {
        let KeyWatchStep::Ask { read: Read::Changes { after, .. }, consistency: asked } = watcher.next_step()
        else {
            panic!("no read of changes");
        };
        assert_eq!((after, asked), (revision.map(at), consistency));
        assert_eq!(watcher.next_step(), KeyWatchStep::Wait, "one read at a time");
    }

    fn asks_for_state(watcher: &mut KeyWatcher, expected: Option<&'static str>) {
        let KeyWatchStep::Ask { read: Read::List { after, .. }, consistency } = watcher.next_step() else {
            panic!("no list");
        };
        assert_eq!((after.as_deref(), consistency), (expected.map(str::as_bytes), Consistency::Linearizable));
    }

    fn tells(watcher: &mut KeyWatcher, events: Vec<KeyEvent>, position: Option<u64>) {
        assert_eq!(watcher.next_step(), KeyWatchStep::Tell(KeyNotice { events, position: position.map(at) }));
    }

    /// A watcher that knows everything up to `revision`.
    fn live(revision: u64) -> KeyWatcher {
        let mut watcher = watcher(WatchStart::Now);
        asks_for_changes(&mut watcher, None, Consistency::Linearizable);
        watcher.answered(changes(vec![], revision));
        tells(&mut watcher, vec![KeyEvent::Live], Some(revision));
        assert_eq!(watcher.next_step(), KeyWatchStep::Wait);
        watcher
    }

    #[test]
    fn a_new_client_is_sent_the_state_and_then_changes() {
        let mut watcher = watcher(WatchStart::State);
        asks_for_changes(&mut watcher, None, Consistency::Linearizable);
        watcher.answered(changes(vec![], 5));
        tells(&mut watcher, vec![KeyEvent::Reset], None);
        asks_for_state(&mut watcher, None);
        // k2 changed after the position, so it comes as a change.
        watcher.answered(page(vec![item("k1", 4), item("k2", 6)], Some("k2")));
        tells(&mut watcher, vec![KeyEvent::Changed(change("k1", 4))], None);
        watcher.notified(&SlotRevisions::default());
        asks_for_state(&mut watcher, Some("k2"));
        watcher.answered(page(vec![item("k3", 7)], Some("k3")));
        asks_for_state(&mut watcher, Some("k3"));
        watcher.answered(page(vec![item("k4", 1)], None));
        tells(&mut watcher, vec![KeyEvent::Changed(change("k4", 1))], None);
        asks_for_changes(&mut watcher, Some(5), Consistency::Linearizable);
        watcher.answered(changes(vec![change("k2", 6), change("k3", 7)], 8));
        let events =
            vec![KeyEvent::Changed(change("k2", 6)), KeyEvent::Changed(change("k3", 7)), KeyEvent::Live];
        tells(&mut watcher, events, Some(8));
        asks_for_changes(&mut watcher, Some(8), Consistency::Stale);
        watcher.answered(changes(vec![], 8));
        assert_eq!(watcher.next_step(), KeyWatchStep::Wait);
    }

    #[test]
    fn a_client_that_comes_back_is_sent_what_it_missed() {
        let mut watcher = watcher(WatchStart::After(at(5)));
        asks_for_changes(&mut watcher, Some(5), Consistency::Linearizable);
        watcher.answered(changes(vec![change("k1", 6)], 9));
        tells(&mut watcher, vec![KeyEvent::Changed(change("k1", 6)), KeyEvent::Live], Some(9));
        watcher.notified(&SlotRevisions::default());
        asks_for_changes(&mut watcher, Some(9), Consistency::Stale);
        watcher.answered(changes(vec![], 7));
        assert_eq!(watcher.next_step(), KeyWatchStep::Wait, "the replica is behind and will notify");
        watcher.notified(&SlotRevisions::default());
        asks_for_changes(&mut watcher, Some(9), Consistency::Stale);
        watcher.answered(changes(vec![change("k1", 10)], 10));
        tells(&mut watcher, vec![KeyEvent::Changed(change("k1", 10))], Some(10));
    }

    #[test]
    fn a_gap_or_a_position_of_another_cluster_state_leads_to_the_state() {
        for answer in [gap(20), changes(vec![], 4)] {
            let mut watcher = watcher(WatchStart::After(at(5)));
            asks_for_changes(&mut watcher, Some(5), Consistency::Linearizable);
            watcher.answered(answer);
            asks_for_changes(&mut watcher, None, Consistency::Linearizable);
            watcher.answered(changes(vec![], 20));
            tells(&mut watcher, vec![KeyEvent::Reset], None);
            asks_for_state(&mut watcher, None);
            watcher.answered(page(vec![], None));
            asks_for_changes(&mut watcher, Some(20), Consistency::Linearizable);
            // The keys of a backup are being restored.
            watcher.answered(gap(20));
            tells(&mut watcher, vec![KeyEvent::Live], Some(20));
            assert_eq!(watcher.next_step(), KeyWatchStep::Wait);
        }
    }

    #[test]
    fn more_changes_than_an_answer_holds_are_read_on() {
        let mut watcher = live(1);
        watcher.notified(&SlotRevisions::default());
        asks_for_changes(&mut watcher, Some(1), Consistency::Stale);
        let (has_more, through) = (true, at(2));
        let part = KeyChanges { has_more, through, changes: vec![change("k1", 2)], ..KeyChanges::default() };
        watcher.answered(Reply::Read(ReadReply::Changes(part)));
        tells(&mut watcher, vec![KeyEvent::Changed(change("k1", 2))], None);
        asks_for_changes(&mut watcher, Some(2), Consistency::Stale);
        watcher.answered(changes(vec![change("k1", 3)], 3));
        tells(&mut watcher, vec![KeyEvent::Changed(change("k1", 3))], Some(3));
        assert_eq!(watcher.next_step(), KeyWatchStep::Wait);
    }

    #[test]
    fn the_heartbeat_takes_over_what_was_matched_only_if_nothing_waits() {
        let mut watcher = live(1);
        watcher.heartbeat(&at(7), false);
        tells(&mut watcher, vec![KeyEvent::Progress], Some(7));
        watcher.heartbeat(&at(9), true);
        assert_eq!(watcher.next_step(), KeyWatchStep::Wait, "the notification comes first");
        watcher.notified(&at(8));
        asks_for_changes(&mut watcher, Some(7), Consistency::Stale);
        watcher.heartbeat(&at(9), false);
        watcher.answered(changes(vec![], 8));
        watcher.heartbeat(&at(6), false);
        tells(&mut watcher, vec![KeyEvent::Progress], Some(8));
        watcher.notified(&SlotRevisions::default());
        asks_for_changes(&mut watcher, Some(8), Consistency::Stale);
        watcher.answered(Reply::Refused(Refusal::NoLeader));
        assert_eq!(watcher.next_step(), KeyWatchStep::Wait);
        watcher.heartbeat(&at(20), false);
        asks_for_changes(&mut watcher, Some(8), Consistency::Stale);
    }

    #[test]
    fn an_answer_without_what_was_notified_is_no_answer_to_it() {
        let mut watcher = live(1);
        watcher.notified(&at(5));
        asks_for_changes(&mut watcher, Some(1), Consistency::Stale);
        // A peer that is behind, after the replica here was removed.
        watcher.answered(changes(vec![], 3));
        assert_eq!(watcher.next_step(), KeyWatchStep::Wait);
        watcher.heartbeat(&at(5), false);
        asks_for_changes(&mut watcher, Some(3), Consistency::Stale);
        watcher.answered(changes(vec![change("k1", 4)], 5));
        tells(&mut watcher, vec![KeyEvent::Changed(change("k1", 4))], Some(5));
        watcher.heartbeat(&at(6), false);
        tells(&mut watcher, vec![KeyEvent::Progress], Some(6));
    }

    #[test]
    fn a_watch_without_an_answer_ends() {
        let mut watcher = watcher(WatchStart::State);
        asks_for_changes(&mut watcher, None, Consistency::Linearizable);
        watcher.answered(Reply::Refused(Refusal::NoLeader));
        assert_eq!(watcher.next_step(), KeyWatchStep::End(Refusal::NoLeader));
        assert_eq!(watcher.next_step(), KeyWatchStep::End(Refusal::NoLeader), "for good");
        let mut watcher = live(1);
        watcher.notified(&SlotRevisions::default());
        asks_for_changes(&mut watcher, Some(1), Consistency::Stale);
        watcher.answered(Reply::Refused(Refusal::Unauthenticated));
        assert_eq!(watcher.next_step(), KeyWatchStep::End(Refusal::Unauthenticated));
    }

    #[test]
    fn one_key_is_read_alone_and_its_position_is_that_of_its_slot() {
        let scope = KeyScope::Key(Bytes::from_static(b"foo"));
        let slot = slot_of(b"foo");
        let of_slot = SlotRevisions::at(&SlotSet::from(slot..slot + 1), Version(3));
        let mut watcher = KeyWatcher::new(scope.clone(), false, WatchStart::State);
        asks_for_changes(&mut watcher, None, Consistency::Linearizable);
        watcher.answered(changes(vec![], 3));
        tells(&mut watcher, vec![KeyEvent::Reset], None);
        let KeyWatchStep::Ask { read: Read::Get { .. }, .. } = watcher.next_step() else { panic!("no read") };
        watcher.answered(Reply::Read(ReadReply::Value(None)));
        let KeyWatchStep::Ask { read: Read::Changes { after, .. }, .. } = watcher.next_step() else {
            panic!("no read of changes")
        };
        assert_eq!(after, Some(of_slot.clone()));
        watcher.answered(changes(vec![], 3));
        let live = KeyNotice { events: vec![KeyEvent::Live], position: Some(of_slot) };
        assert_eq!(watcher.next_step(), KeyWatchStep::Tell(live));
        // A position of other slots is worth nothing.
        let elsewhere = SlotRevisions::at(&SlotSet::from(slot + 1..slot + 2), Version(3));
        let mut watcher = KeyWatcher::new(scope, false, WatchStart::After(elsewhere));
        asks_for_changes(&mut watcher, None, Consistency::Linearizable);
    }
}
