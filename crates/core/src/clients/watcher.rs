//! A watcher of one configuration container: which lookup comes next, and what the client is sent.
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
//! Invariant: the revisions that a client is sent rise, and it is sent every change between two of
//! them or a notice of the gap. Only a client whose revision comes from another cluster state goes
//! back, and its notice says so.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::command::config::{Changes, ConfigError, ConfigReply, DocumentChange, Query};
use crate::command::{Consistency, Refusal};
use crate::deliberate::{Fault, Faults};

/// The state of one watcher, from its connection to its end.
#[derive(Debug)]
pub struct Watcher {
    /// Key of the container.
    container: Arc<str>,
    /// The highest revision that the client has seen; 0 if none.
    cursor: u64,
    phase: WatchPhase,
    /// The container may have changed since the latest lookup.
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
        /// A query of the watched container's namespace.
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
    /// Changes after this revision are no longer kept, or were never in this history. The only
    /// change below is the present state.
    pub gap_after: Option<u64>,
    /// By rising revision. A deletion at revision 0 says that the namespace does not exist.
    pub changes: Vec<DocumentChange>,
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
    /// A watcher whose client has seen a container up to revision `last`, or has seen nothing.
    /// `faults` is for tests of the simulator.
    pub fn new(container: Arc<str>, last: Option<u64>, faults: Faults) -> Watcher {
        let subject = if last.is_some() { Subject::Changes } else { Subject::Present };
        Watcher {
            container,
            cursor: last.unwrap_or_default(),
            phase: WatchPhase::Planned(Lookup { subject, source: Source::Leader }),
            is_due: false,
            is_unsure: false,
            knows_absence: false,
            faults,
        }
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

    /// The container may have changed. A notification during a lookup leads to another one.
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
        let key = self.container.clone();
        let query = match lookup.subject {
            Subject::Changes => Query::Changes { key, after: self.cursor },
            Subject::Present | Subject::Replacement { .. } => Query::Container { key, at: None, known: None },
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
            Subject::Present => Ok(self.tell(None, [present(answer?)?].into())),
            Subject::Changes => match answer? {
                ConfigReply::Changes(changes) => Ok(self.judge_changes(source, changes)),
                _ => Err(WatchError::Mismatched),
            },
            Subject::Replacement { newest } => {
                let change = match answer {
                    Err(WatchError::Config(ConfigError::NoNamespace | ConfigError::NoContainer(_))) => {
                        DocumentChange { revision: newest, found: None }
                    }
                    answer => present(answer?)?,
                };
                Ok(self.tell(Some(self.cursor), [change].into()))
            }
        }
    }

    fn judge_changes(&mut self, source: Source, changes: Changes) -> WatchPhase {
        let Changes { revision, has_gap, events } = changes;
        let is_absence_known = revision == 0 && self.knows_absence;
        let is_behind = revision < self.cursor && !is_absence_known;
        match source {
            Source::Replica if is_behind => {
                return WatchPhase::Planned(Lookup { subject: Subject::Changes, source: Source::Leader });
            }
            // A new namespace of this name is reported from its first revision.
            Source::Leader if is_behind && revision == 0 => {
                return self.tell(None, [DocumentChange { revision, found: None }].into());
            }
            Source::Leader if is_behind => {
                let subject = Subject::Replacement { newest: revision };
                return WatchPhase::Planned(Lookup { subject, source });
            }
            _ => self.is_unsure = is_behind,
        }
        if events.is_empty() {
            return WatchPhase::Idle;
        }
        let gap_after = has_gap.then_some(self.cursor);
        let phase = self.tell(gap_after, events);
        if self.faults.has(Fault::ChangesSkipped) {
            self.cursor = revision;
        }
        phase
    }

    /// Moves the cursor over `changes`, which are not empty, and plans to send them.
    fn tell(&mut self, gap_after: Option<u64>, mut changes: Vec<DocumentChange>) -> WatchPhase {
        // An answer holds a limited number of changes, so there may be more.
        self.is_due = true;
        self.is_unsure = false;
        let last = changes.last().map_or(0, |change| change.revision);
        // The revisions of a new namespace continue those of the deleted one. So the cursor stays,
        // and a replica that has not applied the deletion yet cannot repeat the earlier changes.
        if last > 0 {
            self.cursor = last;
        }
        // A new namespace without the container begins with its deletion, which the client knows.
        if self.knows_absence && gap_after.is_none() && changes[0].found.is_none() {
            changes.remove(0);
        }
        if changes.is_empty() {
            return WatchPhase::Idle;
        }
        self.knows_absence = last == 0;
        WatchPhase::Answered(Notice { gap_after, changes })
    }
}

/// Whether another attempt may be answered, by this node's own replica or later.
fn is_unavailable(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoLeader | Refusal::Overloaded | Refusal::DiskUnavailable)
}

/// The present state, as the change that led to it.
fn present(reply: ConfigReply) -> Result<DocumentChange, WatchError> {
    match reply {
        ConfigReply::Container(found) => {
            Ok(DocumentChange { revision: found.container.changed, found: Some(found) })
        }
        _ => Err(WatchError::Mismatched),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::config::{Container, Found};
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use core::ops::RangeInclusive;

    fn watcher(last: Option<u64>) -> Watcher {
        Watcher::new("c".into(), last, Faults::NONE)
    }

    fn found(revision: u64) -> Found {
        let container = Container {
            schema: None,
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
        assert_eq!(watcher.next_step(), WatchStep::Tell(Notice { gap_after, changes }));
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
}
