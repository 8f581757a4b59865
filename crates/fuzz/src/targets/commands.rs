//! Writes as logs and peers hold them, and the texts of grants, slots and leases.

use bytes::Bytes;
use tidelock_core::auth::Grant;
use tidelock_core::codec::{self, Decoder};
use tidelock_core::command::config::{Change, ConfigOperation, Name, Stamp, Value};
use tidelock_core::command::{
    AccessChange, AccessWrite, Comparison, Condition, ConditionalTransaction, ConfigWrite, ExpectedState,
    Expiry, ExpiryCondition, Flush, LeaseExpiry, LeaseId, LeaseTag, LeaseWrite, LockOperation, LockWrite,
    Operation, Operations, RegistryWrite, Restoration, RestoreWrite, RestoredKey, RowLayout, Set,
    SetCondition, Transaction, Watch, Write,
};
use tidelock_core::formats::EntryData;
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::types::{ShardId, UnixMillis, Version};
use uuid::Uuid;

use super::{Target, text, texts};

pub const TARGETS: &[Target] = &[
    Target { name: "codec", run: primitives, seeds: primitive_seeds },
    Target { name: "writes", run: writes, seeds: write_seeds },
    Target { name: "log-entries", run: entries, seeds: entry_seeds },
    Target { name: "restored-keys", run: restored_keys, seeds: restored_key_seeds },
    Target { name: "grants", run: grants, seeds: grant_seeds },
    Target { name: "slot-sets", run: slot_sets, seeds: slot_set_seeds },
];

/// Numbers and byte strings: each is encoded in as many bytes as stated, and read again.
fn primitives(input: &[u8]) {
    let mut decoder = Decoder::new(input);
    if let Ok(number) = decoder.varint() {
        let mut out = Vec::new();
        codec::put_varint(&mut out, number);
        assert_eq!(out.len(), codec::varint_bytes(number));
        assert!(out.len() <= input.len() - decoder.rest().len(), "the encoder writes the shortest form");
        assert_eq!(Decoder::new(&out).varint(), Ok(number));
    }
    if let Ok(number) = Decoder::new(input).signed() {
        let mut out = Vec::new();
        codec::put_signed(&mut out, number);
        assert_eq!(Decoder::new(&out).signed(), Ok(number));
    }
    let owner = Bytes::copy_from_slice(input);
    let mut decoder = Decoder::new(&owner);
    if let Ok(bytes) = decoder.shared(&owner) {
        let mut out = Vec::new();
        codec::put_bytes(&mut out, &bytes);
        assert_eq!(out.len(), codec::length_prefixed_bytes(&bytes));
        assert_eq!(Decoder::new(&out).bytes(), Ok(&bytes[..]));
    }
    let packed = Decoder::new(&owner).packed(&owner, "items", |items| items.bytes().map(drop));
    if let Ok((count, bytes)) = packed {
        assert!(count <= bytes.len(), "an item takes a byte at least");
    }
}

fn primitive_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0],
        vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        vec![0x80, 0x00],
        vec![3, b'a', b'b', b'c', 9],
        vec![2, 4, 1, b'a', 1, b'b'],
    ]
}

/// A write is the same after it was encoded, and its checks do not fail on it.
fn writes(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    if let Ok(write) = Write::decode(&mut Decoder::new(&bytes), &bytes) {
        check_write(&write);
    }
    if let Ok(write) = Write::decode_logged(&mut Decoder::new(&bytes), &bytes) {
        check_logged(&write);
    }
}

/// Encodes and decodes a write, as it is and as a leader proposes it.
pub fn check_write(write: &Write) {
    let bytes = encoded(write);
    let mut decoder = Decoder::new(&bytes);
    assert_eq!(Write::decode(&mut decoder, &bytes).as_ref(), Ok(write));
    assert!(decoder.is_empty(), "{} bytes of {write:?} are left over", decoder.rest().len());
    let _ = (write.needed_version(), write.only_operation(), write.needs_clock());
    if write.validate().is_ok() {
        let proposed = write.at(UnixMillis(1_795_219_200_000));
        assert_eq!(proposed.validate(), Ok(()), "{proposed:?}");
        check_logged(&proposed);
    }
}

/// A log entry holds the same bytes after it was read. The values may differ: operations of an
/// earlier layout are decoded at once, others when they are applied.
fn check_logged(write: &Write) {
    let bytes = encoded(write);
    let mut decoder = Decoder::new(&bytes);
    let again = Write::decode_logged(&mut decoder, &bytes).expect("what was written is read");
    assert!(decoder.is_empty(), "{} bytes are left over", decoder.rest().len());
    assert_eq!(encoded(&again), bytes);
}

fn encoded(write: &Write) -> Bytes {
    let mut out = Vec::new();
    write.encode(&mut out);
    out.into()
}

/// Writes of every kind that clients send, and of those that nodes make.
pub fn sample_writes() -> Vec<Write> {
    let mut samples = key_writes();
    samples.extend(coordination_writes());
    let pair = Change::PutPair { key: "p".into(), value: Value::text("x"), retype: false };
    let config = |operation| ConfigWrite {
        namespace: Name::new("ns").expect("a name"),
        stamp: Stamp::default(),
        expected: None,
        operation,
    };
    let record = RestoredKey {
        key: Bytes::from_static(b"a"),
        version: Version(3),
        value: Bytes::from_static(b"v"),
        expires: Some(UnixMillis(7)),
        lease: None,
    };
    let (shard, backup) = (ShardId(1), Uuid::from_u128(7));
    let restoration = Restoration { shard, backup, revision: Version(9), records: vec![record] };
    samples.extend([
        config(ConfigOperation::Publish { changes: vec![pair], create: true }).into(),
        config(ConfigOperation::Delete { force: true }).into(),
        Write::Restore(RestoreWrite::Keys(restoration)),
        Write::Checkpoint { shard },
        RegistryWrite::Access(AccessWrite::new(AccessChange::DeleteRole { name: "r".into() })).into(),
    ]);
    samples
}

fn key_writes() -> Vec<Write> {
    let key = Bytes::from_static(b"{t}k");
    let operations = [
        Operation::Get { key: &key },
        Operation::Put { key: &key, value: b"v", condition: Condition::Always },
        Operation::Delete { key: &key, condition: Condition::Version(Version(3)) },
        Operation::PutBound { key: &key, value: b"v", condition: Condition::Always, lease: b"{t}:1f" },
        Operation::Expire { key: &key, at: Some(UnixMillis(5)), condition: ExpiryCondition::Always },
        Operation::Set(Set {
            key: &key,
            value: b"v",
            condition: SetCondition::Version(Condition::Exists),
            expiry: Expiry::After(500),
            previous: true,
        }),
    ];
    let watches = vec![Watch { key: key.clone(), version: Version(2) }];
    let comparison = Comparison { key: key.clone(), expected: ExpectedState::Version(Version(1)) };
    let conditional = ConditionalTransaction {
        comparisons: vec![comparison],
        then: Operations::of(&operations[..2]),
        otherwise: Operations::of(&operations[2..3]),
        id: None,
    };
    let shard = ShardId(1);
    let mut samples: Vec<Write> = operations.iter().map(Write::of).collect();
    samples.extend([
        Write::Keys(Transaction { watches, operations: Operations::of(&operations) }),
        Write::Conditional(Box::new(conditional.clone())),
        Write::Conditional(Box::new(conditional.identified(Bytes::from_static(b"id")))),
        Write::Expire {
            shard,
            now: UnixMillis(9),
            limit: 10,
            leases: Some(LeaseExpiry { led_since: UnixMillis(3), shortens: true }),
        },
        Write::Flush(Box::new(Flush { shard, slots: Some(SlotSet::from(3..9)), after: None })),
    ]);
    samples
}

fn coordination_writes() -> Vec<Write> {
    let lease = LeaseId::parse(b"{t}:1f").expect("the id of a lease");
    let tag = LeaseTag::new(b"t").expect("a tag");
    let at = UnixMillis(0);
    let acquire = LockOperation::Acquire { value: Bytes::from_static(b"me"), waits: true, at };
    let lock = |operation| LockWrite { name: Bytes::from_static(b"{t}l"), lease: lease.clone(), operation };
    vec![
        LeaseWrite::Grant { tag, ttl_ms: 10_000, at }.into(),
        LeaseWrite::Renew { leases: vec![lease.clone()], at }.into(),
        LeaseWrite::Revoke { lease: lease.clone() }.into(),
        lock(acquire).into(),
        lock(LockOperation::Release).into(),
        lock(LockOperation::Cancel { at }).into(),
    ]
}

fn write_seeds() -> Vec<Vec<u8>> {
    sample_writes().iter().map(|write| encoded(write).to_vec()).collect()
}

/// The data of a log entry has the same bytes after it was read. The values may differ, as in
/// [`check_logged`].
fn entries(input: &[u8]) {
    let Ok(entry) = EntryData::decode(&Bytes::copy_from_slice(input)) else { return };
    let written = entry.encode();
    let again = EntryData::decode(&written).expect("what was written is read");
    assert_eq!(again.encode(), written);
}

fn entry_seeds() -> Vec<Vec<u8>> {
    use tidelock_core::membership::{MembershipChange, Role};
    use tidelock_core::types::{LogIndex, NodeId, ReplicaId};
    let changes = [
        MembershipChange::Join(ReplicaId(7), NodeId(3)),
        MembershipChange::Roles(vec![(ReplicaId(7), Some(Role::Voter)), (ReplicaId(1), None)]),
        MembershipChange::LeaveJoint,
    ];
    let changes = changes.map(|change| EntryData::Membership(change, LogIndex(5)).encode().to_vec());
    let mut seeds = vec![EntryData::Writes(sample_writes()).encode().to_vec()];
    seeds.extend(changes);
    seeds
}

/// Keys in blocks of snapshots and backups are the same after they were encoded.
fn restored_keys(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    for layout in [RowLayout::Plain, RowLayout::Expiring] {
        let mut decoder = Decoder::new(&bytes);
        while let Ok(record) = RestoredKey::decode(layout, &mut decoder, &bytes) {
            let mut out = Vec::new();
            record.encode(layout, &mut out);
            let again = Bytes::from(out);
            assert_eq!(RestoredKey::decode(layout, &mut Decoder::new(&again), &again), Ok(record));
        }
    }
}

fn restored_key_seeds() -> Vec<Vec<u8>> {
    let ends = [(None, None), (Some(UnixMillis(5)), None), (None, Some(Version(9)))];
    let record = |(expires, lease)| {
        let mut out = Vec::new();
        let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(b"v"));
        RestoredKey { key, version: Version(300), value, expires, lease }
            .encode(RowLayout::Expiring, &mut out);
        out
    };
    ends.map(record).to_vec()
}

/// A grant is read as it is shown.
fn grants(input: &[u8]) {
    if let Ok(grant) = text(input).parse::<Grant>() {
        let shown = grant.to_string();
        assert_eq!(shown.parse(), Ok(grant), "{shown}");
    }
}

fn grant_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "read keys:",
        "write keys:app/%2A%20",
        "watch keys:%FF%00",
        "read config:web*",
        "reveal config:caf\u{e9}",
        "cluster:operate",
    ])
}

/// A set of slots is read as it is shown, and has at most all slots.
fn slot_sets(input: &[u8]) {
    if let Ok(slots) = text(input).parse::<SlotSet>() {
        assert!(slots.count() <= SlotSet::all().count() && slots.is_within(&SlotSet::all()));
        let shown = slots.to_string();
        assert_eq!(shown.parse::<SlotSet>().ok(), Some(slots), "{shown}");
    }
}

fn slot_set_seeds() -> Vec<Vec<u8>> {
    texts(&["0-16383", "5", "1-3,7,9-9", "3-1"])
}
