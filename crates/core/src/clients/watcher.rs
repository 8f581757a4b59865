//! A watcher of one configuration container or of a whole namespace: which lookup comes next, and
//! what the client is sent.
//!
//! Owns the cursor, the catch-up of a client that comes back, and the meaning of each answer. It
//! does not own sockets, encoding, timers, or the table of watchers to wake: the shell reports
//! notifications and answers, and does what [`Watcher::next_step`] returns. The shell calls that
//! only when the client can take more, so a slow client has no lookup in flight and no queue here.
//! One machine serves event streams and long polls; a long poll ends with its first [`Notice`].
//!
//! A lookup reads this node's own replica, which may be behind what the client has seen. Then a
//! linearizable read decides. It either waits for the missing changes, or shows that the namespace
//! was deleted, or that the client's revision comes from another cluster state. Without a leader
//! nothing can be decided, so the client is sent nothing until the replica has caught up.
//!
//! A revision may change several containers of a watched namespace. Their events follow by key, and
//! the cursor names the container of the last one. So a client that comes back between two of them
//! is sent the others.
//!
//! Invariant: the positions that a client is sent rise, and it is sent every change between two of
//! them or a notice of the gap. Only a client whose revision comes from another cluster state goes
//! back, and its notice says so.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::command::config::{
    ConfigError, ConfigReply, DocumentChange, Found, NamespaceChanges, NamespaceEvent, Query, WatchPosition,
};
use crate::command::{Consistency, Refusal};
use crate::deliberate::{Fault, Faults};

/// What a watcher watches in its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchScope {
    /// The container of this key.
    Container(Arc<str>),
    /// All containers.
    Namespace,
}

/// The state of one watcher, from its connection to its end.
#[derive(Debug)]
pub struct Watcher {
    scope: WatchScope,
    /// The label of the client; empty if it has none.
    label: Arc<str>,
    /// The last event that the client has seen.
    cursor: WatchPosition,
    phase: WatchPhase,
    /// What it watches may have changed since the latest lookup.
    is_due: bool,
    /// The replica's revision is below the cursor, and no leader answered the linearizable read
    /// that would show the reason.
    is_unsure: bool,
    /// The client has been sent that the namespace does not exist.
    knows_absence: bool,
    faults: Faults,
}

/// What the shell does next.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchStep {
    /// Send this query to the store, and pass the reply to [`Watcher::answered`].
    Ask {
        /// A query of the namespace.
        query: Query,
        /// Whether this node's own replica may answer.
        consistency: Consistency,
    },
    /// Send this to the client. A long poll ends with it.
    Tell(Notice),
    /// Wait for a notification, for the answer to the latest query, or for the heartbeat.
    Wait,
    /// End the watch. The client may come back with its last revision.
    End(WatchError),
}

/// What a client is sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// Changes after this revision are no longer kept, or were never in this history. The events
    /// below begin the present state.
    pub gap_after: Option<u64>,
    /// By rising position. A deletion at revision 0 says that the namespace does not exist.
    pub events: Vec<WatchEvent>,
    /// The client of a whole namespace now knows its state as of this revision. That ends the state
    /// with which a watch begins, or which follows a gap: containers that it did not contain do not
    /// exist.
    pub current: Option<u64>,
}

impl Notice {
    /// The position of a client that has received all of it.
    pub fn position(&self) -> Option<WatchPosition> {
        let last = || self.events.last().map(|event| event.position.clone());
        self.current.map(WatchPosition::through).or_else(last)
    }
}

/// The document to which a container resolved from a revision on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// The position of a client that has received the event.
    pub position: WatchPosition,
    /// The revision that changed the document; 0 if the namespace does not exist.
    pub revision: u64,
    /// Key of the container. `None`: all containers of a watched namespace were deleted with it.
    pub container: Option<Arc<str>>,
    /// The container; `None`: it was deleted.
    pub found: Option<Found>,
}

/// Why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// The store refuses the query.
    Refused(Refusal),
    /// The namespace or the container does not exist.
    Config(ConfigError),
    /// The reply answers another query: a bug of the store.
    Mismatched,
}

#[derive(Debug)]
enum WatchPhase {
    Idle,
    Planned(Lookup),
    Asked(Lookup),
    Answered(Notice),
    Ended(WatchError),
}

#[derive(Clone, Copy, Debug)]
struct Lookup {
    subject: Subject,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Subject {
    /// The present state, for a client that has seen nothing.
    Present,
    /// The changes after the cursor.
    Changes,
    /// The present state of a namespace whose newest revision is below the cursor.
    Replacement { newest: u64 },
}

/// An answer about a container or a namespace.
struct Answer {
    /// The namespace's revision; 0 if it does not exist.
    revision: u64,
    has_gap: bool,
    events: Vec<WatchEvent>,
    /// See [`Notice::current`].
    current: Option<u64>,
}

/// Where an answer comes from, and so what it proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// This node's replica. If it is behind the cursor, a linearizable read decides.
    Replica,
    /// A linearizable read.
    Leader,
    /// This node's replica, because no leader answers.
    ReplicaWithoutLeader,
}

impl Watcher {
    /// A watcher whose client has received events up to `last`, or has received nothing. `faults`
    /// is for tests of the simulator.
    pub fn new(scope: WatchScope, last: Option<WatchPosition>, faults: Faults) -> Watcher {
        let subject = if last.is_some() { Subject::Changes } else { Subject::Present };
        let mut cursor = last.unwrap_or_default();
        if faults.has(Fault::RestOfRevisionSkipped) && !cursor.is_state {
            cursor.container = None;
        }
        Watcher {
            scope,
            label: "".into(),
            cursor,
            phase: WatchPhase::Planned(Lookup { subject, source: Source::Leader }),
            is_due: false,
            is_unsure: false,
            knows_absence: false,
            faults,
        }
    }

    /// Watches for a client with a label, which may be among the audience of a canary.
    pub fn with_label(self, label: &str) -> Watcher {
        Watcher { label: label.into(), ..self }
    }

    /// The next step. The shell takes it when the client can take more.
    pub fn next_step(&mut self) -> WatchStep {
        match core::mem::replace(&mut self.phase, WatchPhase::Idle) {
            WatchPhase::Planned(lookup) => self.ask(lookup),
            WatchPhase::Idle if core::mem::take(&mut self.is_due) => {
                self.ask(Lookup { subject: Subject::Changes, source: Source::Replica })
            }
            WatchPhase::Idle => WatchStep::Wait,
            WatchPhase::Asked(lookup) => {
                self.phase = WatchPhase::Asked(lookup);
                WatchStep::Wait
            }
            WatchPhase::Answered(notice) => WatchStep::Tell(notice),
            WatchPhase::Ended(error) => {
                self.phase = WatchPhase::Ended(error.clone());
                WatchStep::End(error)
            }
        }
    }

    /// What is watched may have changed. A notification during a lookup leads to another one.
    pub fn notified(&mut self) {
        self.is_due = true;
    }

    /// The heartbeat of an event stream is due: time to look again if the last answer was behind
    /// the cursor and no leader could be asked.
    pub fn heartbeat(&mut self) {
        self.is_due |= self.is_unsure;
    }

    /// The reply to the latest query.
    ///
    /// # Panics
    ///
    /// If no query is open.
    pub fn answered(&mut self, answer: Result<ConfigReply, WatchError>) {
        let WatchPhase::Asked(lookup) = core::mem::replace(&mut self.phase, WatchPhase::Idle) else {
            unreachable!("invariant: each query gets one reply");
        };
        self.phase = self.judge(lookup, answer).unwrap_or_else(WatchPhase::Ended);
    }

    fn ask(&mut self, lookup: Lookup) -> WatchStep {
        self.phase = WatchPhase::Asked(lookup);
        let query = match (&self.scope, lookup.subject) {
            (WatchScope::Container(key), Subject::Changes) => {
                Query::Changes { key: key.clone(), after: self.cursor.revision }
            }
            (WatchScope::Container(key), Subject::Present | Subject::Replacement { .. }) => {
                Query::Container { key: key.clone(), at: None, known: None }
            }
            (WatchScope::Namespace, Subject::Changes) => {
                Query::NamespaceChanges { after: Some(self.cursor.clone()) }
            }
            (WatchScope::Namespace, Subject::Present | Subject::Replacement { .. }) => {
                Query::NamespaceChanges { after: None }
            }
        };
        let query = match &*self.label {
            "" => query,
            _ => Query::Labelled { label: self.label.clone(), query: query.into() },
        };
        let is_fresh = lookup.source == Source::Leader && !self.faults.has(Fault::CaughtUpByStaleRead);
        let consistency = if is_fresh { Consistency::Linearizable } else { Consistency::Stale };
        WatchStep::Ask { query, consistency }
    }

    fn judge(
        &mut self,
        Lookup { subject, source }: Lookup,
        answer: Result<ConfigReply, WatchError>,
    ) -> Result<WatchPhase, WatchError> {
        if let (Source::Leader, Err(WatchError::Refused(refusal))) = (source, &answer)
            && is_unavailable(refusal)
        {
            return Ok(WatchPhase::Planned(Lookup { subject, source: Source::ReplicaWithoutLeader }));
        }
        match subject {
            Subject::Present => {
                let answer = self.read(answer?)?;
                Ok(self.tell(None, answer))
            }
            Subject::Changes => {
                let answer = self.read(answer?)?;
                Ok(self.judge_changes(source, answer))
            }
            Subject::Replacement { newest } => {
                let answer = match answer {
                    Err(WatchError::Config(ConfigError::NoNamespace | ConfigError::NoContainer(_))) => {
                        let current = (self.scope == WatchScope::Namespace).then_some(newest);
                        Answer { current, ..self.absence(newest) }
                    }
                    answer => self.read(answer?)?,
                };
                Ok(self.tell(Some(self.cursor.revision), answer))
            }
        }
    }

    /// The answer that everything watched was deleted.
    fn absence(&self, revision: u64) -> Answer {
        let container = match &self.scope {
            WatchScope::Container(key) => Some(key.clone()),
            WatchScope::Namespace => None,
        };
        let position = WatchPosition::through(revision);
        let deletion = WatchEvent { position, revision, container, found: None };
        Answer { revision, has_gap: false, events: [deletion].into(), current: None }
    }

    /// An answer to a lookup of either scope.
    fn read(&self, reply: ConfigReply) -> Result<Answer, WatchError> {
        match (&self.scope, reply) {
            (WatchScope::Container(key), ConfigReply::Changes(changes)) => Ok(Answer {
                revision: changes.revision,
                has_gap: changes.has_gap,
                events: changes.events.into_iter().map(|change| of_container(key, change)).collect(),
                current: None,
            }),
            (WatchScope::Container(key), ConfigReply::Container(found)) => {
                // The present state, as the change that led to it.
                let (revision, changed) = (found.revision, found.container.changed);
                let change = DocumentChange { revision: changed, found: Some(found) };
                let events = [of_container(key, change)].into();
                Ok(Answer { revision, has_gap: false, events, current: None })
            }
            (WatchScope::Namespace, ConfigReply::NamespaceChanges(changes)) => {
                let NamespaceChanges { revision, has_gap, state, has_more, events } = changes;
                let events = events.into_iter().map(|event| of_namespace(state, event)).collect();
                Ok(Answer { revision, has_gap, events, current: state.filter(|_| !has_more) })
            }
            _ => Err(WatchError::Mismatched),
        }
    }

    fn judge_changes(&mut self, source: Source, answer: Answer) -> WatchPhase {
        let revision = answer.revision;
        let is_absence_known = revision == 0 && self.knows_absence;
        let is_behind = revision < self.cursor.revision && !is_absence_known;
        match source {
            Source::Replica if is_behind => {
                return WatchPhase::Planned(Lookup { subject: Subject::Changes, source: Source::Leader });
            }
            // A new namespace of this name is reported from its first revision.
            Source::Leader if is_behind && revision == 0 => {
                return self.tell(None, self.absence(revision));
            }
            Source::Leader if is_behind => {
                let subject = Subject::Replacement { newest: revision };
                return WatchPhase::Planned(Lookup { subject, source });
            }
            _ => self.is_unsure = is_behind,
        }
        if answer.events.is_empty() && answer.current.is_none() {
            return WatchPhase::Idle;
        }
        let gap_after = answer.has_gap.then_some(self.cursor.revision);
        let phase = self.tell(gap_after, answer);
        if self.faults.has(Fault::ChangesSkipped) {
            self.cursor = WatchPosition::through(revision);
        }
        phase
    }

    /// Moves the cursor over an answer that has something to send, and plans to send it.
    fn tell(&mut self, gap_after: Option<u64>, answer: Answer) -> WatchPhase {
        // An answer holds a limited number of changes, so there may be more.
        self.is_due = true;
        self.is_unsure = false;
        let Answer { events, current, .. } = answer;
        let mut notice = Notice { gap_after, events, current };
        let Some(last) = notice.position() else { return WatchPhase::Idle };
        let is_absence = last.revision == 0;
        // The revisions of a new namespace continue those of the deleted one. So the cursor stays,
        // and a replica that has not applied the deletion yet cannot repeat the earlier changes.
        if !is_absence {
            self.cursor = last;
        }
        // A new namespace without the container begins with its deletion, which the client knows.
        if self.knows_absence
            && gap_after.is_none()
            && notice.events.first().is_some_and(|first| first.found.is_none())
        {
            notice.events.remove(0);
        }
        if notice.events.is_empty() && notice.current.is_none() {
            return WatchPhase::Idle;
        }
        self.knows_absence = is_absence;
        WatchPhase::Answered(notice)
    }
}

fn of_container(key: &Arc<str>, DocumentChange { revision, found }: DocumentChange) -> WatchEvent {
    let position = WatchPosition::through(revision);
    WatchEvent { position, revision, container: Some(key.clone()), found }
}

fn of_namespace(state: Option<u64>, event: NamespaceEvent) -> WatchEvent {
    let NamespaceEvent { revision, container, found } = event;
    let position = WatchPosition {
        revision: state.unwrap_or(revision),
        container: Some(container.clone()),
        is_state: state.is_some(),
    };
    WatchEvent { position, revision, container: Some(container).filter(|key| !key.is_empty()), found }
}

/// Whether another attempt may be answered, by this node's own replica or later.
fn is_unavailable(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoLeader | Refusal::Overloaded | Refusal::DiskUnavailable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::config::{Changes, Container};
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use core::ops::RangeInclusive;

    fn watcher(last: Option<u64>) -> Watcher {
        let scope = WatchScope::Container("c".into());
        Watcher::new(scope, last.map(WatchPosition::through), Faults::NONE)
    }

    fn found(revision: u64) -> Found {
        let container = Container {
            schema: None,
            source: None,
            fields: Vec::new(),
            revision,
            touched: revision,
            changed: revision,
            checksum: [0; 32],
            document_bytes: 2,
        };
        Found { revision, container: Arc::new(container), pairs: BTreeMap::new() }
    }

    fn change(revision: u64) -> DocumentChange {
        DocumentChange { revision, found: Some(found(revision)) }
    }

    fn deletion(revision: u64) -> DocumentChange {
        DocumentChange { revision, found: None }
    }

    /// The answer of a namespace at `revision` in which these revisions changed the container.
    fn changes(revision: u64, changed: RangeInclusive<u64>) -> Result<ConfigReply, WatchError> {
        let events = changed.map(change).collect();
        Ok(ConfigReply::Changes(Changes { revision, has_gap: false, events }))
    }

    fn nothing_at(revision: u64) -> Result<ConfigReply, WatchError> {
        Ok(ConfigReply::Changes(Changes { revision, has_gap: false, events: Vec::new() }))
    }

    fn refused(refusal: Refusal) -> Result<ConfigReply, WatchError> {
        Err(WatchError::Refused(refusal))
    }

    fn asked_after(watcher: &mut Watcher, after: u64, consistency: Consistency) {
        let query = Query::Changes { key: "c".into(), after };
        assert_eq!(watcher.next_step(), WatchStep::Ask { query, consistency });
        assert_eq!(watcher.next_step(), WatchStep::Wait, "one query at a time");
    }

    fn asked_for_state(watcher: &mut Watcher, consistency: Consistency) {
        let query = Query::Container { key: "c".into(), at: None, known: None };
        assert_eq!(watcher.next_step(), WatchStep::Ask { query, consistency });
    }

    fn tells(watcher: &mut Watcher, gap_after: Option<u64>, changes: Vec<DocumentChange>) {
        let events = changes.into_iter().map(|change| of_container(&"c".into(), change)).collect();
        assert_eq!(watcher.next_step(), WatchStep::Tell(Notice { gap_after, events, current: None }));
    }

    /// The next lookup finds the replica at `revision`, with no changes after the cursor.
    fn finds_nothing(watcher: &mut Watcher, cursor: u64, revision: u64) {
        asked_after(watcher, cursor, Consistency::Stale);
        watcher.answered(nothing_at(revision));
        assert_eq!(watcher.next_step(), WatchStep::Wait);
    }

    /// A watcher that has caught up to `revision`.
    fn caught_up(revision: u64) -> Watcher {
        let mut watcher = watcher(Some(revision));
        asked_after(&mut watcher, revision, Consistency::Linearizable);
        watcher.answered(nothing_at(revision));
        assert_eq!(watcher.next_step(), WatchStep::Wait);
        watcher
    }

    #[test]
    fn a_new_client_is_sent_the_present_state_and_then_each_change() {
        let mut watcher = watcher(None);
        asked_for_state(&mut watcher, Consistency::Linearizable);
        watcher.answered(Ok(ConfigReply::Container(found(4))));
        tells(&mut watcher, None, vec![change(4)]);
        finds_nothing(&mut watcher, 4, 7);
        watcher.notified();
        asked_after(&mut watcher, 4, Consistency::Stale);
        watcher.answered(changes(9, 8..=9));
        tells(&mut watcher, None, vec![change(8), change(9)]);
        finds_nothing(&mut watcher, 9, 9);
    }

    #[test]
    fn the_cursor_follows_the_changes_that_were_sent_not_the_state() {
        let mut watcher = caught_up(1);
        watcher.notified();
        asked_after(&mut watcher, 1, Consistency::Stale);
        watcher.answered(changes(200, 2..=65));
        tells(&mut watcher, None, (2..=65).map(change).collect());
        asked_after(&mut watcher, 65, Consistency::Stale);
        watcher.answered(changes(200, 66..=70));
        tells(&mut watcher, None, (66..=70).map(change).collect());
    }

    #[test]
    fn a_notification_during_a_lookup_leads_to_another_one() {
        let mut watcher = caught_up(1);
        watcher.notified();
        asked_after(&mut watcher, 1, Consistency::Stale);
        watcher.notified();
        watcher.notified();
        watcher.answered(nothing_at(1));
        finds_nothing(&mut watcher, 1, 2);
    }

    #[test]
    fn a_linearizable_read_decides_when_the_replica_is_behind() {
        let mut watcher = caught_up(5);
        watcher.notified();
        asked_after(&mut watcher, 5, Consistency::Stale);
        watcher.answered(nothing_at(3));
        asked_after(&mut watcher, 5, Consistency::Linearizable);
        watcher.answered(changes(6, 6..=6));
        tells(&mut watcher, None, vec![change(6)]);
    }

    #[test]
    fn without_a_leader_the_client_waits_until_the_replica_has_caught_up() {
        let mut watcher = watcher(Some(5));
        asked_after(&mut watcher, 5, Consistency::Linearizable);
        watcher.answered(refused(Refusal::NoLeader));
        asked_after(&mut watcher, 5, Consistency::Stale);
        watcher.answered(nothing_at(0));
        assert_eq!(watcher.next_step(), WatchStep::Wait, "a replica without the namespace proves nothing");
        watcher.heartbeat();
        asked_after(&mut watcher, 5, Consistency::Stale);
        watcher.answered(nothing_at(5));
        assert_eq!(watcher.next_step(), WatchStep::Wait);
        watcher.heartbeat();
        assert_eq!(watcher.next_step(), WatchStep::Wait, "the replica has caught up");
    }

    #[test]
    fn a_deleted_namespace_is_reported_once() {
        let mut watcher = caught_up(5);
        watcher.notified();
        asked_after(&mut watcher, 5, Consistency::Stale);
        watcher.answered(nothing_at(0));
        asked_after(&mut watcher, 5, Consistency::Linearizable);
        watcher.answered(nothing_at(0));
        tells(&mut watcher, None, vec![deletion(0)]);
        finds_nothing(&mut watcher, 5, 0);
        watcher.notified();
        // Another replica that has not applied the deletion.
        asked_after(&mut watcher, 5, Consistency::Stale);
        watcher.answered(nothing_at(4));
        asked_after(&mut watcher, 5, Consistency::Linearizable);
        watcher.answered(nothing_at(0));
        assert_eq!(watcher.next_step(), WatchStep::Wait);
    }

    #[test]
    fn a_namespace_that_is_created_again_is_reported_from_its_first_change() {
        let gone = || {
            let mut watcher = caught_up(5);
            watcher.notified();
            for consistency in [Consistency::Stale, Consistency::Linearizable] {
                asked_after(&mut watcher, 5, consistency);
                watcher.answered(nothing_at(0));
            }
            tells(&mut watcher, None, vec![deletion(0)]);
            watcher
        };
        let again = |events| Ok(ConfigReply::Changes(Changes { revision: 8, has_gap: false, events }));
        let mut watcher = gone();
        asked_after(&mut watcher, 5, Consistency::Stale);
        watcher.answered(again(vec![deletion(6), change(7)]));
        tells(&mut watcher, None, vec![change(7)]);
        // Without the container there is nothing new, and nothing when it is deleted once more.
        let mut watcher = gone();
        asked_after(&mut watcher, 5, Consistency::Stale);
        watcher.answered(again(vec![deletion(6)]));
        finds_nothing(&mut watcher, 6, 6);
        watcher.notified();
        finds_nothing(&mut watcher, 6, 0);
    }

    #[test]
    fn a_revision_of_another_cluster_state_is_a_gap() {
        let lost = || {
            let mut watcher = watcher(Some(99));
            asked_after(&mut watcher, 99, Consistency::Linearizable);
            watcher.answered(nothing_at(9));
            asked_for_state(&mut watcher, Consistency::Linearizable);
            watcher
        };
        let mut watcher = lost();
        watcher.answered(Ok(ConfigReply::Container(found(8))));
        tells(&mut watcher, Some(99), vec![change(8)]);
        finds_nothing(&mut watcher, 8, 9);
        let mut watcher = lost();
        watcher.answered(Err(WatchError::Config(ConfigError::NoContainer("c".into()))));
        tells(&mut watcher, Some(99), vec![deletion(9)]);
        // A refusal says nothing about the container.
        let mut watcher = lost();
        watcher.answered(refused(Refusal::UnknownOutcome));
        assert_eq!(watcher.next_step(), WatchStep::End(WatchError::Refused(Refusal::UnknownOutcome)));
    }

    #[test]
    fn changes_that_are_no_longer_kept_are_a_gap() {
        let mut watcher = watcher(Some(2));
        asked_after(&mut watcher, 2, Consistency::Linearizable);
        let events = vec![change(30)];
        watcher.answered(Ok(ConfigReply::Changes(Changes { revision: 31, has_gap: true, events })));
        tells(&mut watcher, Some(2), vec![change(30)]);
    }

    #[test]
    fn a_watch_without_an_answer_ends() {
        let missing = WatchError::Config(ConfigError::NoNamespace);
        let mut watcher = watcher(None);
        asked_for_state(&mut watcher, Consistency::Linearizable);
        watcher.answered(Err(missing.clone()));
        assert_eq!(watcher.next_step(), WatchStep::End(missing.clone()));
        assert_eq!(watcher.next_step(), WatchStep::End(missing), "for good");
        let mut watcher = caught_up(1);
        watcher.notified();
        asked_after(&mut watcher, 1, Consistency::Stale);
        watcher.answered(refused(Refusal::NoLeader));
        assert_eq!(watcher.next_step(), WatchStep::End(WatchError::Refused(Refusal::NoLeader)));
        let mut watcher = caught_up(1);
        watcher.notified();
        asked_after(&mut watcher, 1, Consistency::Stale);
        watcher.answered(Ok(ConfigReply::Unchanged { revision: 1 }));
        assert_eq!(watcher.next_step(), WatchStep::End(WatchError::Mismatched));
    }

    fn namespace_watcher(last: Option<WatchPosition>) -> Watcher {
        Watcher::new(WatchScope::Namespace, last, Faults::NONE)
    }

    /// The position after the change of a container.
    fn at(revision: u64, key: &str) -> WatchPosition {
        WatchPosition { revision, container: Some(key.into()), is_state: false }
    }

    /// The position after a container of a state.
    fn in_state(revision: u64, key: &str) -> WatchPosition {
        WatchPosition { revision, container: Some(key.into()), is_state: true }
    }

    /// An answer of a namespace at `revision` with documents of these containers.
    fn namespace_answer(
        revision: u64,
        (state, has_more): (Option<u64>, bool),
        documents: &[(u64, &str)],
    ) -> Result<ConfigReply, WatchError> {
        let event = |(revision, key): &(u64, &str)| {
            let found = (!key.is_empty()).then(|| found(*revision));
            NamespaceEvent { revision: *revision, container: (*key).into(), found }
        };
        let events = documents.iter().map(event).collect();
        let changes = NamespaceChanges { revision, has_gap: false, state, has_more, events };
        Ok(ConfigReply::NamespaceChanges(changes))
    }

    fn asks_namespace(watcher: &mut Watcher, after: Option<WatchPosition>, consistency: Consistency) {
        let query = Query::NamespaceChanges { after };
        assert_eq!(watcher.next_step(), WatchStep::Ask { query, consistency });
    }

    fn told(watcher: &mut Watcher) -> Notice {
        match watcher.next_step() {
            WatchStep::Tell(notice) => notice,
            other => panic!("{other:?}"),
        }
    }

    fn positions(notice: &Notice) -> Vec<WatchPosition> {
        notice.events.iter().map(|event| event.position.clone()).collect()
    }

    #[test]
    fn a_new_client_of_a_namespace_is_sent_its_state_part_by_part() {
        let mut watcher = namespace_watcher(None);
        asks_namespace(&mut watcher, None, Consistency::Linearizable);
        watcher.answered(namespace_answer(9, (Some(9), true), &[(5, "a"), (2, "b")]));
        let notice = told(&mut watcher);
        assert_eq!(positions(&notice), [in_state(9, "a"), in_state(9, "b")]);
        assert_eq!((notice.current, notice.position()), (None, Some(in_state(9, "b"))));
        // What changes meanwhile is sent after the state.
        asks_namespace(&mut watcher, Some(in_state(9, "b")), Consistency::Stale);
        watcher.answered(namespace_answer(10, (Some(9), false), &[(5, "c")]));
        let notice = told(&mut watcher);
        assert_eq!((positions(&notice), notice.current), (vec![in_state(9, "c")], Some(9)));
        asks_namespace(&mut watcher, Some(WatchPosition::through(9)), Consistency::Stale);
        watcher.answered(namespace_answer(10, (None, false), &[(10, "a"), (10, "d")]));
        let notice = told(&mut watcher);
        assert_eq!(positions(&notice), [at(10, "a"), at(10, "d")]);
        asks_namespace(&mut watcher, Some(at(10, "d")), Consistency::Stale);
        watcher.answered(namespace_answer(10, (None, false), &[]));
        assert_eq!(watcher.next_step(), WatchStep::Wait);
    }

    #[test]
    fn an_empty_namespace_is_current_at_once() {
        let mut watcher = namespace_watcher(None);
        asks_namespace(&mut watcher, None, Consistency::Linearizable);
        watcher.answered(namespace_answer(3, (Some(3), false), &[]));
        assert_eq!(told(&mut watcher), Notice { gap_after: None, events: vec![], current: Some(3) });
    }

    #[test]
    fn a_client_comes_back_between_two_events_of_a_revision() {
        let last = at(7, "a");
        let mut watcher = namespace_watcher(Some(last.clone()));
        asks_namespace(&mut watcher, Some(last.clone()), Consistency::Linearizable);
        watcher.answered(namespace_answer(6, (None, false), &[]));
        // The replica of another cluster state: the present state follows the notice of the gap.
        asks_namespace(&mut watcher, None, Consistency::Linearizable);
        watcher.answered(namespace_answer(6, (Some(6), false), &[(6, "b")]));
        let notice = told(&mut watcher);
        assert_eq!((notice.gap_after, notice.current), (Some(7), Some(6)));
    }

    #[test]
    fn the_deletion_of_a_namespace_ends_all_its_containers() {
        let mut watcher = namespace_watcher(Some(WatchPosition::through(5)));
        asks_namespace(&mut watcher, Some(WatchPosition::through(5)), Consistency::Linearizable);
        watcher.answered(namespace_answer(0, (None, false), &[]));
        let notice = told(&mut watcher);
        let position = WatchPosition::through(0);
        let deletion = WatchEvent { position, revision: 0, container: None, found: None };
        assert_eq!(notice.events, [deletion]);
        // Created again: it begins with the deletion, which the client knows.
        asks_namespace(&mut watcher, Some(WatchPosition::through(5)), Consistency::Stale);
        watcher.answered(namespace_answer(6, (None, false), &[(6, ""), (6, "a")]));
        assert_eq!(positions(&told(&mut watcher)), [at(6, "a")]);
        // Other clients are told.
        let mut watcher = namespace_watcher(Some(WatchPosition::through(5)));
        asks_namespace(&mut watcher, Some(WatchPosition::through(5)), Consistency::Linearizable);
        watcher.answered(namespace_answer(6, (None, false), &[(6, "")]));
        let notice = told(&mut watcher);
        assert_eq!((positions(&notice), notice.events[0].container.clone()), (vec![at(6, "")], None));
    }
}
