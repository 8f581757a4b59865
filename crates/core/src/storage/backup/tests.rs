//! Backups written and read, intact and damaged.

use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use proptest::prelude::*;
use uuid::Uuid;

use super::format::{CHUNK_HEADER_BYTES, HEADER_BYTES};
use super::*;
use crate::auth::{Caller, Principal, PrivateKey, SecretDigest, TokenId};
use crate::codec::Decoder;
use crate::command::{
    AccessChange, AccessWrite, AdminAction, AuditedWrite, AuthorityChange, AuthorityWrite, Condition,
    HostInfo, Operation, RegistryWrite, RestoredKey, RowLayout, Write, WriteReply,
};
use crate::founding::Founding;
use crate::limits;
use crate::machine::Machine;
use crate::membership::Membership;
use crate::types::{LogIndex, Term, UnixMillis};
use crate::version::ClusterVersion;

pub(super) fn id(shard: u64, index: u64) -> SnapshotId {
    SnapshotId { shard: ShardId(shard), index: LogIndex(index), term: Term(2) }
}

pub(super) fn header(shards: u64) -> Header {
    Header {
        cluster: Uuid::from_u128(7 << 64),
        backup: Uuid::from_u128(8),
        node: NodeId(3),
        created_unix_ms: 1_790_000_000_000,
        is_stale: false,
        shards,
        about_bytes: 1 << 33,
    }
}

pub(super) fn keys_of(count: u64, value_bytes: usize) -> Vec<RestoredKey> {
    let key = |number: u64| RestoredKey {
        key: Bytes::copy_from_slice(&number.to_be_bytes()),
        version: Version(number + 1),
        value: Bytes::from(vec![number as u8; value_bytes]),
        expires: None,
        lease: None,
    };
    (0..count).map(key).collect()
}

/// A data shard with these keys, written in order.
pub(super) fn machine_of(shard: u64, keys: &[RestoredKey]) -> Machine {
    let mut machine = Machine::new(ShardId(shard), &Founding::new(3, 4));
    for RestoredKey { key, value, .. } in keys {
        let put = Write::of(&Operation::Put { key, value, condition: Condition::Always });
        machine.apply(LogIndex(1), put).expect("applied");
    }
    machine
}

pub(super) fn registry() -> Machine {
    let mut machine = Machine::new(ShardId::PRIME, &Founding::new(3, 4));
    let host = HostInfo {
        node: NodeId(1),
        uuid: Uuid::from_u128(1),
        peer_address: "h:9001".into(),
        http_address: "h:8001".into(),
        resp_address: alloc::string::String::new(),
        resp_cluster_address: alloc::string::String::new(),
        tags: alloc::collections::BTreeMap::new(),
        release: crate::version::Release::default(),
    };
    machine.apply(LogIndex(3), Write::from(RegistryWrite::RegisterHost(host))).expect("applied");
    machine
}

pub(super) fn put_shard(
    writer: &mut BackupWriter,
    id: SnapshotId,
    machine: Option<Machine>,
    out: &mut Vec<u8>,
) {
    writer.begin_shard(id, out);
    if let Some(mut machine) = machine {
        machine.begin_snapshot(&Membership::default());
        while let Some(block) = machine.next_block() {
            writer.block(&block, out).expect("blocks of a machine decode");
        }
    }
    writer.end_shard(out);
}

/// A backup of the registry, two data shards and an empty shard.
pub(super) fn backup(first: &[RestoredKey], second: &[RestoredKey]) -> Vec<u8> {
    let mut out = vec![];
    let mut writer = BackupWriter::begin(header(4), &mut out);
    put_shard(&mut writer, id(0, 3), Some(registry()), &mut out);
    put_shard(&mut writer, id(1, 40), Some(machine_of(1, first)), &mut out);
    put_shard(&mut writer, id(2, 0), None, &mut out);
    put_shard(&mut writer, id(5, 9), Some(machine_of(5, second)), &mut out);
    writer.finish(&mut out);
    out
}

/// All parts and the summary, of bytes that arrive in pieces of `piece_bytes`.
fn read(bytes: &[u8], piece_bytes: usize) -> Result<(Vec<Part>, Summary), BackupError> {
    let mut reader = BackupReader::default();
    let mut parts = vec![];
    for piece in bytes.chunks(piece_bytes) {
        reader.push(piece);
        while let Some(part) = reader.next_part()? {
            parts.push(part);
        }
    }
    Ok((parts, reader.finish()?))
}

fn keys_in(parts: &[Part]) -> Vec<RestoredKey> {
    let mut keys = vec![];
    for part in parts {
        if let Part::Keys(block) = part {
            let mut decoder = Decoder::new(block);
            while !decoder.is_empty() {
                keys.push(
                    RestoredKey::decode(RowLayout::Expiring, &mut decoder, block)
                        .expect("it was looked through"),
                );
            }
        }
    }
    keys
}

#[test]
fn audit_records_stay_out_of_a_backup() {
    let backup_of = |is_audited: bool| {
        let mut machine = registry().founded_at(ClusterVersion::NEWEST);
        if is_audited {
            let change = RegistryWrite::Announce(AdminAction::SaveBackup);
            let audited = AuditedWrite { at: UnixMillis(7), caller: Caller::Anonymous, change };
            let write = Write::from(RegistryWrite::Audited(alloc::boxed::Box::new(audited)));
            machine.apply(LogIndex(4), write).expect("applied");
        }
        let digest = machine.digest();
        let mut out = vec![];
        let mut writer = BackupWriter::begin(header(1), &mut out);
        put_shard(&mut writer, id(0, 4), Some(machine), &mut out);
        writer.finish(&mut out);
        (digest, out)
    };
    let ((without, plain), (with, audited)) = (backup_of(false), backup_of(true));
    assert_ne!(without, with, "there is a record");
    assert_eq!(plain, audited);
}

#[test]
fn tokens_and_private_keys_stay_out_of_a_backup() {
    let mut machine = registry().founded_at(ClusterVersion::NEWEST);
    let (key, digest) = (b"a private key", SecretDigest::of(b"a secret"));
    let principal = Principal { roles: ["admin".into()].into(), ..Principal::default() };
    let changes = [
        RegistryWrite::Access(AccessWrite::new(AccessChange::PutPrincipal {
            name: "root".into(),
            principal,
        })),
        RegistryWrite::Access(AccessWrite::new(AccessChange::AddToken {
            id: TokenId(1),
            principal: "root".into(),
            digest,
            lifetime_ms: None,
        })),
        RegistryWrite::Authority(AuthorityWrite::new(AuthorityChange::Add {
            certificate: b"a certificate".to_vec(),
            key: PrivateKey(key.to_vec()),
        })),
    ];
    for (index, change) in (5..).zip(changes) {
        let audited = AuditedWrite { at: UnixMillis(7), caller: Caller::Anonymous, change };
        let write = Write::from(RegistryWrite::Audited(alloc::boxed::Box::new(audited)));
        let reply = machine.apply(LogIndex(index), write).expect("applied");
        assert!(!matches!(reply, WriteReply::Denied(_)), "{reply:?}");
    }
    let holds = |bytes: &[u8], secret: &[u8]| bytes.windows(secret.len()).any(|window| window == secret);
    machine.begin_snapshot(&Membership::default());
    let snapshot = machine.next_block().expect("a first block");
    let mut out = vec![];
    let mut writer = BackupWriter::begin(header(1), &mut out);
    put_shard(&mut writer, id(0, 7), Some(machine), &mut out);
    writer.finish(&mut out);
    for secret in [&key[..], &digest.0, b"root"] {
        assert!(holds(&snapshot, secret) && !holds(&out, secret), "{secret:?}");
    }
    let mut reader = BackupReader::default();
    reader.push(&out);
    while reader.next_part().expect("a backup").is_some() {}
    reader.finish().expect("it is whole");
}

#[test]
fn what_was_written_is_read_in_pieces_of_any_size() {
    let (first, second) = (keys_of(3_000, 100), keys_of(7, 5));
    let bytes = backup(&first, &second);
    let (parts, summary) = read(&bytes, bytes.len()).expect("intact");
    assert_eq!(keys_in(&parts), [&first[..], &second].concat());
    assert_eq!(parts.first(), Some(&Part::Header(header(4))));
    assert_eq!(parts.last(), Some(&Part::End));
    let shards: Vec<(u64, u64, u64)> =
        summary.shards.iter().map(|shard| (shard.id.shard.0, shard.records, shard.revision.0)).collect();
    assert_eq!(shards, [(0, 1, 0), (1, 3_000, 3_000), (2, 0, 0), (5, 7, 7)]);
    assert_eq!((summary.keys(), summary.file_bytes), (3_007, bytes.len() as u64));
    assert_eq!(summary.revision_max(), Version(3_000));
    assert!(summary.shards[1].blocks > 2, "several blocks");
    for piece_bytes in [1, 7, 4096, 100_000] {
        assert_eq!(read(&bytes, piece_bytes), Ok((parts.clone(), summary.clone())), "{piece_bytes}");
    }
}

#[test]
fn a_restored_cluster_goes_on_above_everything() {
    let bytes = backup(&keys_of(9, 1), &keys_of(4, 1));
    let (_, mut summary) = read(&bytes, 99).expect("intact");
    assert_eq!(summary.restored_revision(), Version(9 + limits::RESTORE_REVISION_MARGIN));
    summary.shards[1].revision = Version(u64::MAX);
    assert_eq!(summary.restored_revision(), Version(limits::RESTORE_REVISION_MAX));
}

#[test]
fn every_truncation_is_noticed() {
    let bytes = backup(&keys_of(20, 10), &keys_of(3, 3));
    for end in 0..bytes.len() {
        let cut = read(&bytes[..end], 1 << 20);
        assert_eq!(cut, Err(BackupError::CutShort { offset: end as u64 }), "{end} bytes");
    }
}

#[test]
fn every_flipped_bit_is_noticed_where_it_is() {
    let intact = backup(&keys_of(20, 10), &keys_of(3, 3));
    for bit in 0..intact.len() * 8 {
        let mut bytes = intact.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match read(&bytes, 1 << 20) {
            Err(BackupError::Damaged { offset, .. }) => {
                assert!(offset <= bit as u64 / 8, "bit {bit} is said to be behind {offset}")
            }
            // A length that was changed to a larger valid one asks for more bytes than exist.
            Err(BackupError::CutShort { .. }) => {}
            other => panic!("bit {bit}: {other:?}"),
        }
    }
}

#[test]
fn what_follows_the_end_is_noticed() {
    let mut bytes = backup(&keys_of(2, 1), &[]);
    let end = bytes.len() as u64;
    bytes.push(0);
    for piece_bytes in [1, bytes.len()] {
        let reason = "something follows the end";
        assert_eq!(read(&bytes, piece_bytes), Err(BackupError::Damaged { offset: end, reason }));
    }
}

#[test]
fn parts_of_two_backups_make_none() {
    let one = backup(&keys_of(20, 10), &keys_of(3, 3));
    let mut other_header = vec![];
    BackupWriter::begin(Header { backup: Uuid::from_u128(9), ..header(4) }, &mut other_header);
    let mixed = [&other_header[..], &one[HEADER_BYTES..]].concat();
    assert!(matches!(read(&mixed, 1 << 20), Err(BackupError::Damaged { offset: 84, .. })));
}

#[test]
fn an_unknown_version_is_told_from_damage() {
    let mut bytes = backup(&[], &[]);
    bytes[8] = 3;
    let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(read(&bytes, 1 << 20), Err(BackupError::Version(3)));
    assert!(matches!(
        read(b"some other file, long enough to have a header of a backup, which it does not have at all", 50),
        Err(BackupError::Damaged { offset: 0, .. })
    ));
}

/// Chunks with correct checksums in an order that only a faulty writer would produce.
fn forged(shards: u64, chunks: &[(format::Kind, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![];
    let mut chain = format::encode_header(&header(shards), &mut out);
    for (kind, payload) in chunks {
        chain = format::encode_chunk(chain, *kind, payload, &mut out);
    }
    out
}

#[test]
fn what_contradicts_itself_is_refused() {
    use format::Kind::{Block, End, Shard, ShardEnd};
    let shard = |number, index| (Shard, format::encode_shard(id(number, index)).to_vec());
    let shard_end = |records, blocks, bytes| {
        let summary = ShardSummary { id: id(1, 1), revision: Version(5), records, blocks, bytes };
        (ShardEnd, format::encode_shard_end(&summary).to_vec())
    };
    let empty_end = {
        let summary = ShardSummary { id: id(1, 0), revision: Version(0), records: 0, blocks: 0, bytes: 0 };
        (ShardEnd, format::encode_shard_end(&summary).to_vec())
    };
    let state = (Block, vec![3, 1, 0, 0, 0, 0, 0, 0, 0, 5]);
    let end = |shards| {
        let file_bytes = (HEADER_BYTES + CHUNK_HEADER_BYTES) as u64;
        (End, format::Totals { shards, blocks: 0, records: 0, file_bytes }.encode().to_vec())
    };
    for (name, chunks) in [
        ("a block before a shard", vec![state.clone()]),
        ("the end of no shard", vec![shard_end(0, 1, 10)]),
        ("a shard inside a shard", vec![shard(1, 1), shard(2, 1)]),
        ("the end inside a shard", vec![shard(1, 1), end(1)]),
        ("shards out of order", vec![shard(2, 0), empty_end.clone(), shard(1, 1)]),
        ("too few keys", vec![shard(1, 1), state.clone(), shard_end(1, 1, 10)]),
        ("too few blocks", vec![shard(1, 1), state.clone(), shard_end(0, 2, 10)]),
        ("an index without a state", vec![shard(1, 1), empty_end.clone()]),
        ("a state without an index", vec![shard(1, 0), state.clone(), shard_end(0, 1, 10)]),
        ("keys on the prime shard", vec![shard(0, 1), state.clone(), shard_end(0, 1, 10)]),
        ("fewer shards than promised", vec![end(0)]),
        ("wrong totals", vec![end(3)]),
    ] {
        let read = read(&forged(3, &chunks), 1 << 20);
        assert!(matches!(read, Err(BackupError::Damaged { .. })), "{name}: {read:?}");
    }
    let undecodable = [shard(1, 1), (Block, vec![9, 9])];
    assert!(matches!(read(&forged(3, &undecodable), 1 << 20), Err(BackupError::Restore { offset: 120, .. })));
}

proptest! {
    /// Any bytes in any pieces give parts or an error. The reader neither panics nor buffers more
    /// than a chunk.
    #[test]
    fn any_bytes_are_survived(
        junk in proptest::collection::vec(any::<u8>(), 0..300),
        keep in 0usize..2_000,
        piece_bytes in 1usize..200,
    ) {
        let intact = backup(&keys_of(20, 10), &keys_of(3, 3));
        let bytes = [&intact[..keep.min(intact.len())], &junk].concat();
        let is_intact = bytes == intact;
        prop_assert_eq!(read(&bytes, piece_bytes).is_ok(), is_intact);
    }

    /// Two simultaneous changes are detected like one.
    #[test]
    fn changed_bytes_are_noticed(first in any::<(usize, u8)>(), second in any::<(usize, u8)>()) {
        let intact = backup(&keys_of(20, 10), &keys_of(3, 3));
        let mut bytes = intact.clone();
        for (place, change) in [first, second] {
            let place = place % intact.len();
            bytes[place] ^= change;
        }
        prop_assert_eq!(read(&bytes, 64).is_ok(), bytes == intact);
    }
}
