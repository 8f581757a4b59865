//! Restoring state machines from the blocks of a snapshot.
//!
//! Owns the layout of the first block, and the checks of blocks beyond their checksums: a snapshot
//! decodes as a whole or not at all. [`Restore`] builds the state. [`SnapshotScan`] only verifies
//! that one could be built.
//!
//! Records come in the order of their keys, so they are collected in a vector and made a tree at
//! the end. This takes half the time of inserting them one by one, and the nodes are full, so it
//! takes half the memory.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Machine;
use super::config;
use super::data::Data;
use super::kv::ownership::Ownership;
use super::kv::{Ending, KeyValue, Record};
use super::locks::Locks;
use super::outcomes::Outcomes;
use crate::audit::AuditTrail;
use crate::codec::{DecodeError, Decoder};
use crate::command::config::block::check_block;
use crate::command::{end, for_each_lease_record, is_lease_block};
use crate::control::registry::Registry;
use crate::deliberate::Fault;
use crate::membership::Membership;
use crate::types::Version;

/// First byte of a first block: version of the layout.
const FORMAT: u8 = 3;
/// Second byte: a data shard.
pub(super) const KIND_DATA: u8 = 1;
/// Second byte: the prime shard.
pub(super) const KIND_REGISTRY: u8 = 2;
/// Second byte: a data shard that took part in a move of slots. Its ownership follows the
/// membership.
const KIND_MOVED: u8 = 3;
/// Second byte: a data shard that keeps outcomes of transactions. After the membership: whether it
/// took part in a move of slots, its ownership if it did, and the outcomes.
const KIND_OUTCOMES: u8 = 4;

/// The beginning of a first block: layout, kind of machine, and membership.
pub(super) fn header(kind: u8, membership: &Membership) -> Vec<u8> {
    let mut block = alloc::vec![FORMAT, kind];
    membership.encode(&mut block);
    block
}

/// The beginning of a first block of a data shard.
pub(super) fn data_header(membership: &Membership, data: &Data) -> Vec<u8> {
    let ownership = data.ownership_of();
    if !data.outcomes.is_empty() && !data.faults.has(Fault::OutcomesNotInSnapshot) {
        let mut block = header(KIND_OUTCOMES, membership);
        block.push(u8::from(ownership.is_some()));
        ownership.iter().for_each(|ownership| ownership.encode(&mut block));
        data.outcomes.encode(&mut block);
        return block;
    }
    let Some(ownership) = ownership else { return header(KIND_DATA, membership) };
    let mut block = header(KIND_MOVED, membership);
    ownership.encode(&mut block);
    block
}

/// Why blocks are not a snapshot. Their checksums were correct, so the writer has another version
/// or a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A block is not in the layout that this release knows.
    #[error("a block of the snapshot does not decode: {0}")]
    Decode(#[from] DecodeError),
    /// There was not even a first block.
    #[error("the snapshot has no blocks")]
    Empty,
}

/// A state machine under construction.
#[derive(Debug, Default)]
pub struct Restore {
    restored: Option<Restored>,
    /// The records of a data shard, in order.
    records: Vec<Record>,
}

/// The content of a snapshot, decoded.
#[derive(Debug)]
pub struct Restored {
    /// The state after the snapshot's last entry.
    pub machine: Machine,
    /// The membership of the shard at the time.
    pub membership: Membership,
}

impl Restore {
    /// Reads the next block, in the order in which [`Machine::next_block`] made them.
    ///
    /// # Errors
    /// When the block cannot be the next one of this snapshot. The [`Restore`] is then useless.
    pub fn block(&mut self, block: &[u8]) -> Result<(), RestoreError> {
        let mut decoder = Decoder::new(block);
        match self.restored.as_mut().map(|restored| &mut restored.machine) {
            None => self.restored = Some(first(&mut decoder)?),
            Some(Machine::Data(data)) => {
                if data.take_block(block)? {
                    return Ok(());
                }
                records(&mut data.kv, &mut self.records, &mut decoder)?;
            }
            Some(Machine::Registry(registry)) => registry.audit_mut().read_block(&mut decoder)?,
        }
        Ok(decoder.finish()?)
    }

    /// Returns the content, after the last block.
    ///
    /// # Errors
    /// When there was no block, or when the first one contradicts the others.
    pub fn finish(self) -> Result<Restored, RestoreError> {
        let mut restored = self.restored.ok_or(RestoreError::Empty)?;
        if let Machine::Data(data) = &mut restored.machine {
            if let Some(ownership) = data.kv.ownership.as_deref().filter(|ownership| ownership.hides()) {
                check_hidden(ownership, hidden_among(ownership, self.records.iter().map(Record::key)))?;
            }
            data.kv.fill(self.records);
        }
        Ok(restored)
    }
}

/// Number of keys that the ownership hides.
fn hidden_among<'a>(ownership: &Ownership, keys: impl Iterator<Item = &'a [u8]>) -> u64 {
    keys.filter(|key| !ownership.owns(key)).count() as u64
}

/// Checks the number of hidden keys that the first block states.
fn check_hidden(ownership: &Ownership, count: u64) -> Result<(), RestoreError> {
    match ownership.hidden() {
        Some(stated) if stated != count => Err(DecodeError::Invalid("number of hidden keys").into()),
        _ => Ok(()),
    }
}

fn first(decoder: &mut Decoder<'_>) -> Result<Restored, DecodeError> {
    if decoder.u8()? != FORMAT {
        return Err(DecodeError::UnknownTag("snapshot format"));
    }
    let kind = decoder.u8()?;
    let membership = Membership::decode(decoder)?;
    let machine = match kind {
        KIND_DATA | KIND_MOVED | KIND_OUTCOMES => {
            let has_ownership = kind == KIND_MOVED || (kind == KIND_OUTCOMES && decoder.bool()?);
            let ownership = if has_ownership { Some(Ownership::decode(decoder)?) } else { None };
            let outcomes =
                if kind == KIND_OUTCOMES { Outcomes::decode(decoder)? } else { Outcomes::default() };
            let revision = Version(decoder.varint()?);
            let restoring = if decoder.is_empty() { None } else { Some(decoder.uuid()?) };
            let kv = KeyValue::restored(revision, restoring, ownership);
            Machine::Data(Box::new(Data { kv, outcomes, ..Data::default() }))
        }
        KIND_REGISTRY => Machine::Registry(Box::new(Registry::restore(decoder)?)),
        _ => return Err(DecodeError::UnknownTag("kind of machine")),
    };
    Ok(Restored { machine, membership })
}

/// The first block of a snapshot, rewritten for a backup. In that of the prime shard, the tables of
/// roles, principals, tokens, certificate authorities and join tokens are empty, and that of a data
/// shard has no outcomes of transactions. Other blocks are returned unchanged.
///
/// # Errors
/// When it is no first block.
pub fn without_secrets(block: &[u8]) -> Result<Cow<'_, [u8]>, RestoreError> {
    let mut decoder = Decoder::new(block);
    let Restored { mut machine, membership } = first(&mut decoder)?;
    decoder.finish()?;
    match &mut machine {
        Machine::Data(data) if data.outcomes.is_empty() => return Ok(Cow::Borrowed(block)),
        Machine::Data(data) => data.outcomes = Outcomes::default(),
        Machine::Registry(registry) => registry.remove_secrets(),
    }
    machine.begin_snapshot(&membership);
    let rewritten = machine.next_block().expect("invariant: a snapshot has a first block");
    Ok(Cow::Owned(rewritten))
}

fn records(
    kv: &mut KeyValue,
    records: &mut Vec<Record>,
    decoder: &mut Decoder<'_>,
) -> Result<(), DecodeError> {
    while !decoder.is_empty() {
        let last = records.last().map(Record::key);
        let Row { key, version, value, ending } = record((last, kv.revision), decoder)?;
        kv.prepare(key, ending);
        records.push(Record::new(key, version, value));
    }
    Ok(())
}

struct Row<'a> {
    key: &'a [u8],
    version: Version,
    value: &'a [u8],
    ending: Ending,
}

/// Reads one record of a shard at `revision`. Its key must be greater than `last`.
fn record<'a>(
    (last, revision): (Option<&[u8]>, Version),
    decoder: &mut Decoder<'a>,
) -> Result<Row<'a>, DecodeError> {
    let key = decoder.bytes()?;
    let version = Version(decoder.varint()?);
    let value = decoder.bytes()?;
    let (expires, lease) = end(decoder)?;
    if key.is_empty() {
        // No client can write it, and a walk over the keys would pass over it.
        return Err(DecodeError::Invalid("empty key"));
    }
    if last.is_some_and(|last| last >= key) {
        return Err(DecodeError::Invalid("order of keys"));
    }
    if version == Version::ABSENT || version > revision {
        return Err(DecodeError::Invalid("version of a key"));
    }
    Ok(Row { key, version, value, ending: Ending { expires, lease } })
}

/// The kind of a snapshot block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The first block, which describes the snapshot. For the prime shard it holds all tables.
    First,
    /// Keys, as [`crate::command::RestoredKey`] reads them with
    /// [`crate::command::RowLayout::Expiring`].
    Keys,
    /// Configuration, as [`crate::command::ConfigRestoration`] takes it.
    Config,
    /// Leases and locks. A backup leaves them out.
    Leases,
    /// Audit records of the prime shard. A backup leaves them out.
    Audit,
}

impl BlockKind {
    /// Whether a backup contains such blocks.
    pub fn is_in_backup(self) -> bool {
        match self {
            BlockKind::First | BlockKind::Keys | BlockKind::Config => true,
            BlockKind::Leases | BlockKind::Audit => false,
        }
    }
}

/// Verifies a snapshot block by block. It refuses what [`Restore`] refuses. Of a data shard it
/// keeps one key and the locks instead of the state; of the prime shard it keeps the audit
/// records.
#[derive(Debug, Default)]
pub struct SnapshotScan {
    state: Option<Scanned>,
}

#[derive(Debug)]
enum Scanned {
    /// The first block is followed by audit records.
    Registry { hosts: u64, audit: AuditTrail },
    /// The first block is followed by records.
    Data {
        revision: Version,
        last: Option<Box<[u8]>>,
        records: u64,
        /// Which slots the shard owns, while a move of slots hides keys.
        ownership: Option<Ownership>,
        /// Number of hidden keys.
        hidden: u64,
        locks: Locks,
    },
}

impl SnapshotScan {
    /// Verifies the next block and returns its kind.
    ///
    /// # Errors
    /// When the block cannot be the next one of this snapshot.
    pub fn block(&mut self, block: &[u8]) -> Result<BlockKind, RestoreError> {
        let mut decoder = Decoder::new(block);
        match &mut self.state {
            None => {
                let restored = first(&mut decoder)?;
                self.state = Some(match restored.machine {
                    Machine::Registry(registry) => {
                        Scanned::Registry { hosts: registry.record_count(), audit: AuditTrail::default() }
                    }
                    Machine::Data(data) => {
                        let ownership = data.kv.ownership.as_deref().filter(|ownership| ownership.hides());
                        Scanned::Data {
                            revision: data.kv.revision,
                            last: None,
                            records: 0,
                            ownership: ownership.cloned(),
                            hidden: 0,
                            locks: Locks::default(),
                        }
                    }
                });
                decoder.finish()?;
                Ok(BlockKind::First)
            }
            Some(Scanned::Data { locks, .. }) if is_lease_block(block) => {
                for_each_lease_record(block, |record| locks.take(record))?;
                Ok(BlockKind::Leases)
            }
            Some(Scanned::Data { .. }) if config::is_block(block) => {
                check_block(block)?;
                Ok(BlockKind::Config)
            }
            Some(Scanned::Data { revision, last, records, ownership, hidden, .. }) => {
                let mut newest = None;
                while !decoder.is_empty() {
                    let behind = (newest.or(last.as_deref()), *revision);
                    let key = record(behind, &mut decoder)?.key;
                    *records += 1;
                    let is_hidden = ownership.as_ref().is_some_and(|ownership| !ownership.owns(key));
                    *hidden += u64::from(is_hidden);
                    newest = Some(key);
                }
                *last = newest.map(Box::from).or(last.take());
                Ok(BlockKind::Keys)
            }
            Some(Scanned::Registry { audit, .. }) => {
                audit.read_block(&mut decoder)?;
                Ok(BlockKind::Audit)
            }
        }
    }

    /// Checks what only the end shows.
    ///
    /// # Errors
    /// When there was no block, or when the first one contradicts the others.
    pub fn finish(&self) -> Result<(), RestoreError> {
        match &self.state {
            None => Err(RestoreError::Empty),
            Some(Scanned::Data { ownership: Some(ownership), hidden, .. }) => {
                check_hidden(ownership, *hidden)
            }
            Some(Scanned::Data { .. } | Scanned::Registry { .. }) => Ok(()),
        }
    }

    /// Number of keys so far; for the prime shard, number of hosts.
    pub fn records(&self) -> u64 {
        match self.state {
            Some(Scanned::Registry { hosts, .. }) => hosts,
            Some(Scanned::Data { records, .. }) => records,
            None => 0,
        }
    }

    /// The revision of a data shard: no key has a higher version. 0 for the prime shard.
    pub fn revision(&self) -> Version {
        match self.state {
            Some(Scanned::Data { revision, .. }) => revision,
            Some(Scanned::Registry { .. }) | None => Version(0),
        }
    }

    /// Whether the state is that of the prime shard; `None` before the first block.
    pub fn is_registry(&self) -> Option<bool> {
        self.state.as_ref().map(|state| matches!(state, Scanned::Registry { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Caller;
    use crate::command::{AuditedWrite, HostChange, RegistryWrite};
    use crate::command::{
        Condition, Discard, ExpiryCondition, Operation, Operations, Restoration, RestoreWrite, RestoredKey,
        Transaction, Write, WriteReply,
    };
    use crate::founding::Founding;
    use crate::machine::kv::ownership::{IncomingSlots, Stage};
    use crate::slots::slot_set::SlotSet;
    use crate::types::{LogIndex, MigrationId, NodeId, ShardId, UnixMillis};
    use crate::version::ClusterVersion;
    use alloc::vec;
    use bytes::Bytes;
    use uuid::Uuid;

    fn put(machine: &mut Machine, key: u64, value: &[u8]) {
        let key = Bytes::copy_from_slice(&key.to_be_bytes());
        let write = Write::of(&Operation::Put { key: &key, value, condition: Condition::Always });
        machine.apply(LogIndex(1), write).expect("applied");
    }

    fn delete(machine: &mut Machine, key: u64) {
        let key = Bytes::copy_from_slice(&key.to_be_bytes());
        machine
            .apply(LogIndex(1), Write::of(&Operation::Delete { key: &key, condition: Condition::Always }))
            .expect("applied");
    }

    fn set_expiry(machine: &mut Machine, key: u64, at: u64) {
        let key = &key.to_be_bytes();
        let (at, condition) = (Some(UnixMillis(at)), ExpiryCondition::Always);
        let operations = Operations::of(&[Operation::Expire { key, at, condition }]);
        machine.apply(LogIndex(1), Write::Keys(Transaction::of(operations))).expect("applied");
    }

    fn expire(machine: &mut Machine, now: u64) {
        machine
            .apply(
                LogIndex(1),
                Write::Expire { shard: ShardId(1), now: UnixMillis(now), limit: 100, leases: None },
            )
            .expect("applied");
    }

    /// Returns all blocks of a snapshot. Calls `meanwhile` before each.
    fn blocks(machine: &mut Machine, mut meanwhile: impl FnMut(&mut Machine)) -> Vec<Vec<u8>> {
        machine.begin_snapshot(&Membership::default());
        let mut blocks = vec![];
        loop {
            meanwhile(machine);
            match machine.next_block() {
                Some(block) => blocks.push(block),
                None => return blocks,
            }
        }
    }

    fn restored(blocks: &[Vec<u8>]) -> Machine {
        let (mut restore, mut scan) = (Restore::default(), SnapshotScan::default());
        blocks.iter().try_for_each(|block| restore.block(block)).expect("blocks decode");
        blocks.iter().try_for_each(|block| scan.block(block).map(drop)).expect("blocks decode");
        let machine = restore.finish().expect("a machine").machine;
        assert_eq!(scan.records(), machine.record_count());
        assert_eq!(scan.is_registry(), Some(matches!(machine, Machine::Registry(_))));
        machine
    }

    /// Blocks of a shard with these keys, of which it says that so many are on their way to it.
    fn receiving(keys: &[&[u8]], rows: u64) -> Vec<Vec<u8>> {
        let (slots, owned) = (SlotSet::all(), SlotSet::default());
        let incoming = IncomingSlots { slots, attempt: 1, sequence: 1, rows, sweeping: None };
        let ownership = Ownership { owned, last: MigrationId(1), stage: Stage::Incoming(incoming) };
        let mut kv = KeyValue::restored(Version(keys.len() as u64), None, Some(ownership));
        kv.fill(keys.iter().map(|key| Record::new(key, Version(1), b"value")).collect());
        let mut machine = Machine::Data(Box::new(Data { kv, ..Data::default() }));
        blocks(&mut machine, |_| {})
    }

    #[test]
    fn a_snapshot_whose_hidden_keys_are_not_there_is_refused() {
        // Found by the fuzzer: the number of keys without hidden ones was below zero.
        let verdict = |blocks: &[Vec<u8>]| {
            let (mut restore, mut scan) = (Restore::default(), SnapshotScan::default());
            blocks.iter().try_for_each(|block| restore.block(block)).expect("blocks decode");
            blocks.iter().try_for_each(|block| scan.block(block).map(drop)).expect("blocks decode");
            let restored = restore.finish().map(|restored| restored.machine.record_count());
            assert_eq!(scan.finish().err(), restored.as_ref().err().copied());
            restored
        };
        let wrong = Err(RestoreError::Decode(DecodeError::Invalid("number of hidden keys")));
        assert_eq!(verdict(&receiving(&[b"a", b"b"], 2)), Ok(0));
        assert_eq!(verdict(&receiving(&[b"a", b"b"], 1)), wrong);
        assert_eq!(verdict(&receiving(&[], 1)), wrong);
    }

    /// Drains a host, or undrains it, in an audited change.
    fn drain(machine: &mut Machine, index: u64) {
        let change = RegistryWrite::ChangeHost {
            node: NodeId(1),
            change: HostChange::Drain(!index.is_multiple_of(2)),
        };
        let caller = Caller::Principal("root".into());
        let audited = AuditedWrite { at: UnixMillis(index), caller, change };
        let write = Write::from(RegistryWrite::Audited(Box::new(audited)));
        machine.apply(LogIndex(index), write).expect("applied");
    }

    #[test]
    fn a_snapshot_of_the_registry_has_the_audit_records_of_its_beginning() {
        let founded = Machine::new(ShardId::PRIME, &Founding::new(3, 4));
        let mut machine = founded.founded_at(ClusterVersion::NEWEST);
        (1..9_000).for_each(|index| drain(&mut machine, index));
        let (digest, mut index) = (machine.digest(), 9_000);
        let blocks = blocks(&mut machine, |machine| {
            drain(machine, index);
            index += 1;
        });
        assert!(blocks.len() > 2, "{}", blocks.len());
        assert_ne!(machine.digest(), digest, "it changed during the snapshot");
        // The first of these changes was applied between the beginning of the snapshot and its
        // first block.
        assert_eq!(restored(&blocks).digest(), digest);
    }

    #[test]
    fn a_snapshot_shows_the_beginning_whatever_happens_meanwhile() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut machine = Machine::new(ShardId(1), &Founding::new(3, 4));
            for _ in 0..3_000 {
                let (key, size) = (random.u64(..4_000), random.usize(..600));
                put(&mut machine, key, &vec![7; size]);
                if random.u8(..4) == 0 {
                    set_expiry(&mut machine, key, random.u64(..2_000));
                }
            }
            let before = machine.digest();
            let quiet = blocks(&mut machine, |_| ());
            assert!(quiet.len() > 3, "several blocks");
            let busy = blocks(&mut machine, |machine| {
                for _ in 0..500 {
                    match random.u8(..5) {
                        0 => delete(machine, random.u64(..4_000)),
                        3 => set_expiry(machine, random.u64(..4_000), random.u64(..2_000)),
                        4 => expire(machine, random.u64(..1_000)),
                        1 => put(machine, random.u64(..8_000), b"new"),
                        _ => put(machine, random.u64(..4_000), b"changed"),
                    }
                }
            });
            assert_ne!(machine.digest(), before);
            assert_eq!(restored(&busy).digest(), before);
            assert_eq!(quiet, busy, "replicas at the same index make the same blocks");
        }
    }

    fn publish(machine: &mut Machine, pair: u64, number: i64) {
        use crate::command::config::{Change, ConfigOperation, ConfigWrite, Name, Stamp, Value};
        let key = alloc::format!("{pair}").into();
        let changes = vec![Change::PutPair { key, value: Value::Int(number), retype: false }];
        let operation = ConfigOperation::Publish { changes, create: true };
        let namespace = Name::new("ns").expect("a name");
        let write = ConfigWrite { namespace, stamp: Stamp::default(), expected: None, operation };
        machine.apply(LogIndex(1), Write::from(write)).expect("applied");
    }

    #[test]
    fn configuration_goes_behind_the_keys_of_a_snapshot() {
        let mut machine = Machine::new(ShardId(1), &Founding::new(3, 4));
        for number in 0..50 {
            put(&mut machine, number, b"value");
            publish(&mut machine, number % 7, number as i64);
        }
        let before = machine.digest();
        let blocks = blocks(&mut machine, |machine| publish(machine, 1, 1_000));
        assert_ne!(machine.digest(), before);
        let again = restored(&blocks);
        assert_eq!(again.digest(), before, "and what was written meanwhile is not in it");
        assert_eq!(again.record_count(), 50);
        let mut keys_alone = Machine::new(ShardId(1), &Founding::new(3, 4));
        (0..50).for_each(|number| put(&mut keys_alone, number, b"value"));
        assert_ne!(keys_alone.digest(), before);
    }

    #[test]
    fn a_backup_goes_only_where_no_configuration_was_written() {
        let (shard, backup) = (ShardId(1), Uuid::from_u128(7));
        let claim = Write::Restore(RestoreWrite::Keys(Restoration {
            shard,
            backup,
            revision: Version(9),
            records: vec![],
        }));
        let mut old = Machine::new(ShardId(1), &Founding::new(3, 4));
        publish(&mut old, 1, 1);
        let Machine::Data(data) = &mut old else { unreachable!("a data shard") };
        data.config.begin_snapshot();
        let block: Bytes = data.config.next_block().expect("a block").into();
        let restore = || {
            Write::Restore(RestoreWrite::Config(crate::command::ConfigRestoration {
                shard,
                backup,
                block: block.clone(),
            }))
        };
        let refused = Ok(WriteReply::ConditionFailed { current: Version::ABSENT });
        assert_eq!(old.apply(LogIndex(1), claim.clone()), refused);
        let mut fresh = Machine::new(ShardId(1), &Founding::new(3, 4));
        assert_eq!(fresh.apply(LogIndex(1), claim), Ok(WriteReply::Restored));
        for _ in 0..2 {
            assert_eq!(fresh.apply(LogIndex(1), restore()), Ok(WriteReply::Restored));
        }
        let discard = || Write::Restore(RestoreWrite::Discard(Discard { shard, backup: Uuid::from_u128(8) }));
        assert_eq!(fresh.apply(LogIndex(1), discard()), Ok(WriteReply::Discarded { keys_left: 0 }));
        let Machine::Data(data) = &fresh else { unreachable!("a data shard") };
        assert!(data.config.list((b"", None), 10, &|_| true).items.is_empty());
        assert_eq!(
            fresh.apply(LogIndex(1), restore()),
            Ok(WriteReply::ConditionFailed { current: Version(9) })
        );
        publish(&mut fresh, 1, 2);
        assert_eq!(
            fresh.apply(LogIndex(1), discard()),
            Ok(WriteReply::ConditionFailed { current: Version(9) })
        );
        assert_eq!(fresh.apply(LogIndex(1), restore()), refused, "a client has written");
        let mut written = Machine::new(ShardId(1), &Founding::new(3, 4));
        put(&mut written, 1, b"value");
        let failed = written.apply(LogIndex(1), restore());
        assert_eq!(failed, Ok(WriteReply::ConditionFailed { current: Version(1) }));
    }

    #[test]
    fn an_empty_machine_and_the_registry_round_trip() {
        for shard in [ShardId::PRIME, ShardId(1)] {
            let mut machine = Machine::new(shard, &Founding::new(3, 4));
            let blocks = blocks(&mut machine, |_| ());
            assert_eq!(restored(&blocks).digest(), machine.digest());
        }
    }

    #[test]
    fn where_a_state_comes_from_outlives_a_snapshot() {
        let part = |key: &'static [u8]| {
            let expires = Some(UnixMillis(5));
            let record = RestoredKey {
                key: key.into(),
                version: Version(3),
                value: Bytes::new(),
                expires,
                lease: None,
            };
            let (shard, backup) = (ShardId(1), Uuid::from_u128(1 << 100));
            Write::Restore(RestoreWrite::Keys(Restoration {
                shard,
                backup,
                revision: Version(9),
                records: vec![record],
            }))
        };
        let mut machine = Machine::new(ShardId(1), &Founding::new(3, 4));
        machine.apply(LogIndex(1), part(b"a")).expect("applied");
        let before = machine.digest();
        let blocks = blocks(&mut machine, |machine| {
            machine.apply(LogIndex(2), part(b"b")).expect("applied");
        });
        let mut again = restored(&blocks);
        assert_eq!(again.digest(), before, "restored keys are captured as others are");
        assert_eq!(again.apply(LogIndex(2), part(b"b")), Ok(WriteReply::Restored));
        assert_eq!(again.digest(), machine.digest());
    }

    #[test]
    fn what_is_not_a_snapshot_is_refused() {
        assert_eq!(Restore::default().finish().err(), Some(RestoreError::Empty));
        for first in [
            &[][..],
            &[2, 1, 0, 0, 0, 0, 0, 0, 0],
            &[3, 9, 0, 0, 0, 0, 0, 0, 0],
            &[3, 1, 0, 0, 0, 0, 0, 0, 0],
            &[3, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0],
            &[3, 1, 2, 3, 2, 0, 0, 0, 0, 0, 2, 2, 1, 3, 1, 5],
            &[3, 1, 1, 3, 0, 0, 0, 0, 0, 0, 5],
        ] {
            assert!(Restore::default().block(first).is_err(), "{first:?}");
            assert!(SnapshotScan::default().block(first).is_err(), "{first:?}");
        }
        for records in [
            &[1, b'a', 9, 0, 0][..],
            &[1, b'a', 0, 0, 0],
            &[1, b'b', 1, 0, 0, 1, b'a', 2, 0, 0],
            &[1, b'a', 1, 5],
        ] {
            let mut restore = Restore::default();
            restore.block(&[3, 1, 1, 3, 0, 0, 0, 0, 0, 1, 3, 1, 5]).expect("a header");
            assert!(restore.block(records).is_err(), "{records:?}");
            let mut scan = SnapshotScan::default();
            assert_eq!(scan.block(&[3, 1, 0, 0, 0, 0, 0, 0, 0, 5]), Ok(BlockKind::First));
            assert!(scan.block(records).is_err(), "{records:?}");
        }
        let mut scan = SnapshotScan::default();
        assert_eq!(scan.block(&[3, 1, 0, 0, 0, 0, 0, 0, 0, 5]), Ok(BlockKind::First));
        assert_eq!(scan.block(&[1, b'b', 1, 0, 0]), Ok(BlockKind::Keys));
        assert!(scan.block(&[1, b'a', 2, 0, 0]).is_err(), "order holds over blocks");
        assert_eq!((scan.revision(), scan.records(), scan.is_registry()), (Version(5), 1, Some(false)));
    }
}
