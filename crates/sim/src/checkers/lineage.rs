//! Orders the mutations of each key by version, from the replies to clients.
//!
//! Owns the translation of a history into mutations (at known versions), writes of unknown outcome,
//! and sightings of a key's state. It also detects every contradiction that does not depend on
//! time: a value that no client put or that was refused, one write at two versions, two writes at
//! one version, a reply that its condition forbids. It judges no order; `linearizability` and
//! `staleness` do.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidelock_core::command::Operation::{Delete, Put};
use tidelock_core::command::{
    Condition, Consistency, FlushReply, OperationReply, Page, Read, ReadReply, Refusal, Reply, Request,
    StoredValue, Write, WriteReply,
};
use tidelock_core::slots::slot_of;
use tidelock_core::types::{Token, Version};

use super::{Violation, describe};
use crate::compound::is_compound;
use crate::history::{Happened, History, Incarnation, Moment, Operation, token_of};

const CHECKER: &str = "lineage";

/// The lineage of every key.
pub type Lineages = BTreeMap<Bytes, Lineage>;

/// What is known of the versions of one key.
#[derive(Debug, Default)]
pub struct Lineage {
    /// Mutations whose version is known, by version.
    pub mutations: Vec<Mutation>,
    /// Puts whose outcome is unknown and whose value no client has seen.
    pub unknown_puts: Vec<UnknownWrite>,
    /// Deletes whose outcome is unknown; their versions stay unknown.
    pub unknown_deletes: Vec<UnknownWrite>,
    /// States that clients saw.
    pub sightings: Vec<Sighting>,
}

/// A mutation that certainly took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The version that it gave the key.
    pub version: Version,
    /// Whether the key exists after it.
    pub is_put: bool,
    /// Whether the key existed before it, if the reply said so.
    pub existed: Option<bool>,
    /// Its condition, which held when it took effect.
    pub condition: Condition,
    /// The operation of the client that caused it.
    pub token: Token,
    /// When it was requested; it took effect later.
    pub invoked: Moment,
    /// When it was acknowledged; it took effect earlier. [`Moment::NEVER`] if a read revealed it.
    pub completed: Moment,
}

/// A write that may have taken place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWrite {
    /// When it was requested; it took effect later, if at all.
    pub invoked: Moment,
}

/// A state that a client saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The version; [`Version::ABSENT`] if the key did not exist.
    pub version: Version,
    /// The operation of the client that read it.
    pub token: Token,
    /// The replica that answered, if it answered a stale read from its own state.
    pub stale_at: Option<Incarnation>,
    /// When the read was requested; its result was current later, unless it is stale.
    pub invoked: Moment,
    /// When the read was answered; its result was current earlier.
    pub completed: Moment,
}

impl Lineage {
    /// How many known mutations took place at versions up to this one: the gap in which that
    /// version was current.
    pub fn gap_of(&self, version: Version) -> usize {
        self.mutations.partition_point(|mutation| mutation.version <= version)
    }

    /// Whether the key is absent at the beginning of a gap. Gap 0 is before the first mutation, gap
    /// `n` after the `n`-th.
    pub fn is_absent(&self, gap: usize) -> bool {
        gap == 0 || !self.mutations[gap - 1].is_put
    }

    /// Whether a mutation of unknown version may have taken place inside a gap: a version must be
    /// free for it.
    pub fn has_room(&self, gap: usize) -> bool {
        let before = if gap == 0 { Version::ABSENT } else { self.mutations[gap - 1].version };
        self.mutations.get(gap).is_none_or(|next| next.version.0 > before.0 + 1)
    }
}

/// Translates a history into the lineage of each key.
pub fn lineages(history: &History) -> Result<Lineages, Violation> {
    let writes = history.of_clients().filter_map(Operation::write);
    let keys = writes.filter_map(plain_write).map(|write| Bytes::copy_from_slice(write.key)).collect();
    let mut builder = Builder { history, keys, lineages: Lineages::new(), revealed: BTreeMap::new() };
    for operation in history.of_clients() {
        match (&operation.request, operation.reply()) {
            (Request::Write(write), _) => builder.write(operation, write)?,
            (Request::Flush, _) => builder.flush(operation),
            (Request::Read { read: Read::Config(_) | Read::ConfigNamespaces { .. }, .. }, _) => {}
            (Request::Read { read, consistency }, Some(reply)) => {
                let stale_at = (*consistency == Consistency::Stale).then_some(operation.answered_by());
                builder.read(operation, read, reply, stale_at)?;
            }
            (Request::Read { .. } | Request::Cluster, _) => {}
            (
                Request::Transfer { .. } | Request::SnapshotHere | Request::Registry | Request::Load { .. },
                _,
            ) => {}
            (Request::Explain { .. } | Request::Access | Request::Authorities | Request::Audit { .. }, _) => {
            }
            (Request::Publish(_), _) => {}
        }
    }
    builder.finish()
}

/// A put or a delete of a plain key.
struct PlainWrite<'a> {
    key: &'a [u8],
    /// `None` for a delete.
    value: Option<&'a [u8]>,
    condition: Condition,
}

/// The put or delete of a plain key that a write consists of.
fn plain_write(write: &Write) -> Option<PlainWrite<'_>> {
    let (key, value, condition) = match write.only_operation()? {
        Put { key, value, condition } => (key, Some(value), condition),
        Delete { key, condition } => (key, None, condition),
        _ => return None,
    };
    (!is_compound(key)).then_some(PlainWrite { key, value, condition })
}

struct Builder<'a> {
    history: &'a History,
    /// Every key that was ever written to, or tried to.
    keys: BTreeSet<Bytes>,
    lineages: Lineages,
    /// Versions at which values of puts were seen.
    revealed: BTreeMap<Token, Version>,
}

impl Builder<'_> {
    fn write(&mut self, operation: &Operation, write: &Write) -> Result<(), Violation> {
        // A restore in a run brings no keys; what it does to the revision shows in the versions
        // that follow. Other checkers judge all other writes.
        let Some(PlainWrite { key, value, condition }) = plain_write(write) else { return Ok(()) };
        let is_put = value.is_some();
        let lineage = self.lineages.entry(Bytes::copy_from_slice(key)).or_default();
        let mutation = |version, existed| Mutation {
            version,
            is_put,
            existed,
            condition,
            token: operation.token,
            invoked: operation.invoked,
            completed: operation.completed(),
        };
        match operation.reply().map(|reply| (reply, reply.only())) {
            Some((_, Some(OperationReply::Written { version, created }))) if is_put => {
                lineage.mutations.push(mutation(version, Some(!created)));
            }
            Some((_, Some(OperationReply::Deleted { version }))) if !is_put => {
                lineage.mutations.push(mutation(version, Some(true)))
            }
            Some((_, Some(OperationReply::ConditionFailed { current }))) => {
                if condition.holds(current) {
                    let text = format!("{condition:?} is said to fail for {}", describe(key, current));
                    return Err(blame(operation, text));
                }
                lineage.sightings.push(sighting(operation, current, None));
            }
            Some((_, Some(OperationReply::Absent))) if !is_put => {
                if !condition.holds(Version::ABSENT) {
                    return Err(blame(operation, format!("{condition:?} is said to hold for an absent key")));
                }
                lineage.sightings.push(sighting(operation, Version::ABSENT, None));
            }
            _ if operation.happened() == Happened::Unknown && !is_put => {
                lineage.unknown_deletes.push(UnknownWrite { invoked: operation.invoked });
            }
            None | Some((Reply::Refused(_), _)) => {}
            // Its transaction was not executed, because a watched key had changed.
            Some((Reply::Write(WriteReply::ConditionFailed { .. }), _)) => {}
            Some((reply, _)) => return Err(blame(operation, format!("{reply:?} answers a write"))),
        }
        Ok(())
    }

    /// A removal of all keys is a delete of each, at the revision that the reply states.
    fn flush(&mut self, operation: &Operation) {
        let complete = match operation.reply() {
            Some(Reply::Flushed(FlushReply::Complete(revisions))) => Some(revisions),
            None | Some(Reply::Flushed(_) | Reply::Refused(Refusal::UnknownOutcome)) => None,
            Some(_) => return,
        };
        for key in &self.keys {
            let lineage = self.lineages.entry(key.clone()).or_default();
            let revision = complete.and_then(|revisions| revisions.of(slot_of(key)));
            match revision.filter(|revision| *revision != Version::ABSENT) {
                Some(version) => lineage.mutations.push(Mutation {
                    version,
                    is_put: false,
                    existed: None,
                    condition: Condition::Always,
                    token: operation.token,
                    invoked: operation.invoked,
                    completed: operation.completed(),
                }),
                // While slots move, a key may be removed by two shards, one after the other.
                None => lineage.unknown_deletes.extend([UnknownWrite { invoked: operation.invoked }; 2]),
            }
        }
    }

    fn read(
        &mut self,
        operation: &Operation,
        read: &Read,
        reply: &Reply,
        stale_at: Option<Incarnation>,
    ) -> Result<(), Violation> {
        match (read, reply) {
            (Read::Operations { .. }, Reply::Read(ReadReply::Operations(_)))
            | (Read::Changes { .. }, Reply::Read(ReadReply::Changes(_)))
            | (Read::Scan { .. }, Reply::Read(ReadReply::Scanned(_)) | Reply::SlotsMoved)
            | (Read::Lease { .. }, Reply::Read(ReadReply::Lease(_)))
            | (Read::Lock { .. }, Reply::Read(ReadReply::Lock(_)))
            | (Read::Leases { .. }, Reply::Read(ReadReply::Page(_)))
            | (Read::Count, Reply::Read(ReadReply::Count(_))) => Ok(()),
            // Judged by the log.
            (Read::Get { key }, Reply::Read(ReadReply::Value(_))) if is_compound(key) => Ok(()),
            (
                Read::Get { key },
                Reply::Read(ReadReply::Value(Some(StoredValue {
                    expires: None,
                    version,
                    value,
                    lease: None,
                }))),
            ) => self.see(operation, key, (*version, Some(value)), stale_at),
            (Read::Get { key }, Reply::Read(ReadReply::Value(None))) => {
                self.see(operation, key, (Version::ABSENT, None), stale_at)
            }
            (Read::List { keys_only, .. }, Reply::Read(ReadReply::Page(page))) => {
                for item in page.items.iter().filter(|item| !is_compound(&item.key)) {
                    if item.value.is_some() == *keys_only {
                        return Err(blame(
                            operation,
                            "values are listed exactly if keys alone were asked".into(),
                        ));
                    }
                    self.see(operation, &item.key, (item.version, item.value.as_ref()), stale_at)?;
                }
                let absent: Vec<Bytes> = self.absent_from(read, page);
                absent.iter().try_for_each(|key| self.see(operation, key, (Version::ABSENT, None), stale_at))
            }
            (_, Reply::Refused(_)) => Ok(()),
            _ => Err(blame(operation, format!("{reply:?} answers a read"))),
        }
    }

    /// Keys that were ever written to, and that a page covers but does not contain.
    fn absent_from(&self, read: &Read, page: &Page) -> Vec<Bytes> {
        let covered = self.keys.iter().filter(|key| covers(read, page, key));
        covered.filter(|key| page.items.iter().all(|item| item.key != **key)).cloned().collect()
    }

    fn see(
        &mut self,
        operation: &Operation,
        key: &Bytes,
        (version, value): (Version, Option<&Bytes>),
        stale_at: Option<Incarnation>,
    ) -> Result<(), Violation> {
        if let Some(value) = value {
            self.recognise(operation, key, (version, value))?;
        }
        let seen = sighting(operation, version, stale_at);
        self.lineages.entry(key.clone()).or_default().sightings.push(seen);
        Ok(())
    }

    /// Finds the put of a value, and compares the two.
    fn recognise(
        &mut self,
        reader: &Operation,
        key: &Bytes,
        (version, value): (Version, &Bytes),
    ) -> Result<(), Violation> {
        let writer = token_of(value).and_then(|token| self.history.operation(token));
        let here = describe(key, version);
        let Some((writer, PlainWrite { key: put_key, value: Some(put_value), .. })) =
            writer.and_then(|writer| Some((writer, plain_write(writer.write()?)?)))
        else {
            return Err(blame(reader, format!("{here} holds a value that no client put")));
        };
        if put_key != key || put_value != value {
            return Err(blame(
                reader,
                format!("{here} holds what {} put under another key or with another value", writer.token),
            ));
        }
        if writer.happened() == Happened::No {
            let reply = writer.reply();
            return Err(blame(
                reader,
                format!("{here} holds the value of {}, answered {reply:?}", writer.token),
            ));
        }
        if let Some(OperationReply::Written { version: acknowledged, .. }) =
            writer.reply().and_then(Reply::only)
            && acknowledged != version
        {
            return Err(blame(
                reader,
                format!("{here} holds the value of {}, acknowledged at {acknowledged}", writer.token),
            ));
        }
        let revealed = *self.revealed.entry(writer.token).or_insert(version);
        if revealed != version {
            return Err(blame(
                reader,
                format!("{here} holds the value of {}, seen at {revealed}", writer.token),
            ));
        }
        Ok(())
    }

    /// Adds the puts of unknown outcome, now that it is known which of them clients saw.
    fn finish(mut self) -> Result<Lineages, Violation> {
        for operation in self.history.of_clients() {
            let Some(PlainWrite { key, value: Some(_), condition }) = operation.write().and_then(plain_write)
            else {
                continue;
            };
            if operation.happened() != Happened::Unknown {
                continue;
            }
            let lineage = self.lineages.entry(Bytes::copy_from_slice(key)).or_default();
            match self.revealed.get(&operation.token) {
                None => lineage.unknown_puts.push(UnknownWrite { invoked: operation.invoked }),
                Some(&version) => lineage.mutations.push(Mutation {
                    version,
                    is_put: true,
                    existed: None,
                    condition,
                    token: operation.token,
                    invoked: operation.invoked,
                    completed: Moment::NEVER,
                }),
            }
        }
        for (key, lineage) in &mut self.lineages {
            lineage.mutations.sort_by_key(|mutation| mutation.version);
            if let Some(pair) = lineage.mutations.windows(2).find(|pair| pair[0].version == pair[1].version) {
                let text = format!(
                    "{} and {} both made {}",
                    pair[0].token,
                    pair[1].token,
                    describe(key, pair[0].version)
                );
                return Err(Violation::new(CHECKER, text));
            }
        }
        Ok(self.lineages)
    }
}

/// Whether a page covers a key: whether it would contain the key if it existed.
pub fn covers(read: &Read, page: &Page, key: &Bytes) -> bool {
    let Read::List { prefix, after, .. } = read else { return false };
    key.starts_with(prefix)
        && after.as_ref().is_none_or(|after| key > after)
        && page.next.as_ref().is_none_or(|last| key <= last)
}

fn sighting(operation: &Operation, version: Version, stale_at: Option<Incarnation>) -> Sighting {
    Sighting {
        version,
        token: operation.token,
        stale_at,
        invoked: operation.invoked,
        completed: operation.completed(),
    }
}

fn blame(operation: &Operation, text: String) -> Violation {
    Violation::new(CHECKER, format!("operation {} on node {}: {text}", operation.token, operation.at.node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{HistoryBuilder, always, version};

    fn verdict(history_builder: HistoryBuilder) -> String {
        lineages(&history_builder.history).err().map_or_else(String::new, |violation| violation.message)
    }

    #[test]
    fn a_value_that_nobody_put_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let get = history_builder.get();
        history_builder.sees_bytes(get, 3, b"invented value");
        assert!(verdict(history_builder).contains("no client put"));
    }

    #[test]
    fn a_value_with_strange_bytes_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.put(always());
        history_builder.written(put, 3, true);
        let get = history_builder.get();
        let mut bytes = history_builder.value(put).to_vec();
        bytes[9] ^= 1;
        history_builder.sees_bytes(get, 3, &bytes);
        assert!(verdict(history_builder).contains("under another key or with another value"));
    }

    #[test]
    fn a_refused_write_that_appears_is_noticed() {
        for refusal in [Refusal::NoLeader, Refusal::Overloaded] {
            let mut history_builder = HistoryBuilder::default();
            let put = history_builder.put(always());
            history_builder.refused(put, refusal);
            let get = history_builder.get();
            history_builder.sees(get, 3, put);
            assert!(verdict(history_builder).contains("Refused"));
        }
    }

    #[test]
    fn a_write_at_two_versions_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.put(always());
        history_builder.written(put, 3, true);
        let get = history_builder.get();
        history_builder.sees(get, 4, put);
        assert!(verdict(history_builder).contains("acknowledged at 3"));

        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.put(always());
        for version in [3, 4] {
            let get = history_builder.get();
            history_builder.sees(get, version, put);
        }
        assert!(verdict(history_builder).contains("seen at 3"));
    }

    #[test]
    fn two_writes_at_one_version_are_noticed() {
        let mut history_builder = HistoryBuilder::default();
        for _ in 0..2 {
            let put = history_builder.put(always());
            history_builder.written(put, 3, true);
        }
        assert!(verdict(history_builder).contains("both made"));
    }

    #[test]
    fn a_failed_condition_that_holds_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.put(version(3));
        history_builder.condition_failed(put, 3);
        assert!(verdict(history_builder).contains("is said to fail"));
    }

    #[test]
    fn a_reply_of_the_wrong_kind_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let get = history_builder.get();
        history_builder.written(get, 3, true);
        assert!(verdict(history_builder).contains("answers a read"));
    }

    #[test]
    fn keys_missing_from_a_page_are_sightings_of_absence() {
        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.put(always());
        history_builder.written(put, 3, true);
        let list = history_builder.list();
        history_builder.page(list, &[]);
        let lineages = lineages(&history_builder.history).unwrap();
        let sightings = &lineages.values().next().unwrap().sightings;
        assert_eq!(sightings.iter().map(|seen| seen.version).collect::<Vec<_>>(), [Version::ABSENT]);
    }
}
