//! Every administrative change has exactly one audit record, and every record has a request.
//!
//! After each turn of a process, it compares the records that the process has applied with the
//! requests and their answers. It does not read the log. It checks three properties:
//! - Records with the same sequence number are equal on all processes.
//! - For each caller and action, there are at most as many records as requests that were not
//!   refused.
//! - If the answer to a change of permissions has a new revision, there is a record with that
//!   index. It may belong to another request if the outcome of that request is unknown and it could
//!   have produced the same revision.

use std::collections::BTreeMap;

use tidelock_core::audit::{AuditRecord, AuditTrail};
use tidelock_core::auth::Caller;
use tidelock_core::command::{Refusal, Reply, Request, Write, WriteReply};
use tidelock_core::types::{LogIndex, Token};

use super::Violation;
use crate::history::Incarnation;

/// The records and requests so far.
#[derive(Debug, Default)]
pub struct AuditRecords {
    /// The records by sequence number, as the first process had them.
    records: BTreeMap<u64, AuditRecord>,
    /// The newest record of each process that has been compared.
    compared: BTreeMap<Incarnation, u64>,
    /// Number of requests that were not refused.
    requests: BTreeMap<ActionKey, usize>,
    open: BTreeMap<Token, OpenChange>,
    /// Requests whose outcome is unknown.
    unknown: Vec<ActionKey>,
    /// Answered changes without a record on any process so far.
    expected: Vec<ExpectedRecord>,
    /// The newest revision of permissions that any process has applied.
    revision: LogIndex,
}

/// A caller, an action and its subject.
type ActionKey = (String, String, String);

#[derive(Debug)]
struct OpenChange {
    key: ActionKey,
    /// The newest revision when the request was sent.
    revision: LogIndex,
}

#[derive(Debug)]
struct ExpectedRecord {
    token: Token,
    key: ActionKey,
    index: LogIndex,
    /// Requests with an unknown outcome that may have been applied at this index instead.
    or: Vec<ActionKey>,
}

impl AuditRecords {
    /// Records that a request was sent to a process.
    pub fn asked(&mut self, token: Token, caller: &Caller, request: &Request) {
        let Request::Write(Write::Registry(change)) = request else { return };
        let Some(action) = change.audit_action() else { return };
        let key = (name(caller), action.to_owned(), change.audit_subject());
        *self.requests.entry(key.clone()).or_default() += 1;
        self.open.insert(token, OpenChange { key, revision: self.revision });
    }

    /// Records the answer to a request.
    pub fn answered(&mut self, token: Token, reply: &Reply) {
        let Some(OpenChange { key, revision: before }) = self.open.remove(&token) else { return };
        match reply {
            Reply::Refused(Refusal::UnknownOutcome) => self.unknown.push(key),
            Reply::Refused(_) | Reply::Write(WriteReply::Denied(_) | WriteReply::ConditionFailed { .. }) => {
                *self.requests.entry(key).or_default() -= 1;
            }
            // An older revision means that the change had no effect.
            Reply::Write(WriteReply::AccessChanged { revision }) if *revision > before => {
                // Requests to crashed processes get no answer.
                let open = self.open.values().map(|open| open.key.clone());
                let or = self.unknown.iter().cloned().chain(open).collect();
                self.expected.push(ExpectedRecord { token, key, index: *revision, or });
            }
            _ => {}
        }
    }

    /// Compares the records of a process after one of its turns. `revision` is that of its
    /// permissions.
    ///
    /// # Errors
    /// When its records differ from those of another process, when a record has no request, or when
    /// a change has no record.
    pub fn observe(
        &mut self,
        at: Incarnation,
        trail: &AuditTrail,
        revision: LogIndex,
    ) -> Result<(), Violation> {
        let compared = self.compared.get(&at).copied().unwrap_or(0);
        if trail.last() > compared {
            let new = trail.records().filter(|record| record.sequence > compared);
            new.into_iter().try_for_each(|record| self.compare(at, record))?;
            self.compared.insert(at, trail.last());
        }
        self.revision = self.revision.max(revision);
        let is_due = |expected: &mut ExpectedRecord| expected.index <= revision;
        let due: Vec<ExpectedRecord> = self.expected.extract_if(.., is_due).collect();
        due.iter().try_for_each(|expected| self.judge(expected))
    }

    fn compare(&mut self, at: Incarnation, record: &AuditRecord) -> Result<(), Violation> {
        match self.records.get(&record.sequence) {
            Some(known) if known == record => return Ok(()),
            Some(known) => {
                return violation(format!("node {} has {record:?}, and another node {known:?}", at.node));
            }
            None => {}
        }
        let key = key_of(record);
        let requests = self.requests.get(&key).copied().unwrap_or(0);
        let records = self.records.values().filter(|known| key_of(known) == key).count() + 1;
        if records > requests {
            return violation(format!("{requests} requests made {records} records, the last one {record:?}"));
        }
        self.records.insert(record.sequence, record.clone());
        Ok(())
    }

    fn judge(&self, expected: &ExpectedRecord) -> Result<(), Violation> {
        let ExpectedRecord { token, key, index, or } = expected;
        let at_index = || self.records.values().filter(|record| record.index == *index).map(key_of);
        let own = at_index().filter(|found| found == key).count();
        let is_of_another = at_index().any(|found| or.contains(&found));
        if own == 1 || is_of_another {
            return Ok(());
        }
        violation(format!("{token} made revision {index} by {key:?}, which has {own} records"))
    }
}

fn key_of(record: &AuditRecord) -> ActionKey {
    (name(&record.caller), record.action.clone(), record.subject.clone())
}

fn name(caller: &Caller) -> String {
    match caller {
        Caller::Anonymous => "anonymous".to_owned(),
        Caller::Principal(name) => format!("principal {name}"),
        Caller::Node => "node".to_owned(),
    }
}

fn violation<T>(text: String) -> Result<T, Violation> {
    Err(Violation::new("audit", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_core::command::{AccessChange, AccessWrite, AuditedWrite, RegistryWrite};
    use tidelock_core::control::registry::Registry;
    use tidelock_core::founding::Founding;
    use tidelock_core::types::{NodeId, UnixMillis};
    use tidelock_core::version::ClusterVersion;

    fn put_role(name: &str) -> RegistryWrite {
        let change = AccessChange::PutRole { name: name.to_owned(), role: Default::default() };
        RegistryWrite::Access(AccessWrite::new(change))
    }

    fn root() -> Caller {
        Caller::Principal("root".into())
    }

    fn process(node: u64) -> Incarnation {
        Incarnation { node: NodeId(node), life: 1 }
    }

    /// A registry in which these callers have made these changes, from index 1 on.
    fn registry(changes: &[(Caller, RegistryWrite)]) -> Registry {
        let mut registry = Registry::founded(&Founding::new(3, 1)).founded_at(ClusterVersion::NEWEST);
        for ((caller, change), index) in changes.iter().cloned().zip(1..) {
            let audited = AuditedWrite { at: UnixMillis(index), caller, change };
            registry.apply(LogIndex(index), RegistryWrite::Audited(Box::new(audited)));
        }
        registry
    }

    /// One change was asked and answered.
    fn asked(checker: &mut AuditRecords, token: u64, change: RegistryWrite) {
        checker.asked(Token(token), &root(), &Request::Write(change.into()));
        let revision = LogIndex(token);
        checker.answered(Token(token), &Reply::Write(WriteReply::AccessChanged { revision }));
    }

    fn seen(checker: &mut AuditRecords, node: u64, registry: &Registry) -> Result<(), Violation> {
        checker.observe(process(node), registry.audit(), registry.access().revision())
    }

    #[test]
    fn changes_with_their_records_hold() {
        let mut checker = AuditRecords::default();
        asked(&mut checker, 1, put_role("a"));
        asked(&mut checker, 2, put_role("b"));
        let registry = registry(&[(root(), put_role("a")), (root(), put_role("b"))]);
        for node in [1, 2] {
            assert_eq!(seen(&mut checker, node, &registry), Ok(()));
        }
    }

    #[test]
    fn a_change_without_a_record_is_found() {
        let mut checker = AuditRecords::default();
        asked(&mut checker, 1, put_role("a"));
        let mut registry = registry(&[]);
        registry.apply(LogIndex(1), put_role("a"));
        assert!(seen(&mut checker, 1, &registry).is_err());
    }

    #[test]
    fn a_record_without_a_request_or_of_another_caller_is_found() {
        let first = registry(&[(root(), put_role("a"))]);
        assert!(seen(&mut AuditRecords::default(), 1, &first).is_err());
        let mut checker = AuditRecords::default();
        asked(&mut checker, 1, put_role("a"));
        let other = registry(&[(Caller::Anonymous, put_role("a"))]);
        assert!(seen(&mut checker, 1, &other).is_err());
    }

    #[test]
    fn nodes_with_different_records_are_found() {
        let mut checker = AuditRecords::default();
        asked(&mut checker, 1, put_role("a"));
        asked(&mut checker, 2, put_role("b"));
        let (a, b) = (registry(&[(root(), put_role("a"))]), registry(&[(root(), put_role("b"))]));
        assert_eq!(seen(&mut checker, 1, &a), Ok(()));
        assert!(seen(&mut checker, 2, &b).is_err());
    }
}
