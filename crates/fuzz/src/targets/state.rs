//! The state of a shard: writes that are applied, and the blocks of its snapshots.

use bytes::Bytes;
use tidelock_core::command::{CheckedWrite, Write};
use tidelock_core::formats::EntryData;
use tidelock_core::founding::Founding;
use tidelock_core::limits::SNAPSHOT_BLOCK_BYTES_MAX;
use tidelock_core::machine::{BlockKind, Machine, Restore, Restored, SnapshotScan, without_secrets};
use tidelock_core::membership::Membership;
use tidelock_core::types::{LogIndex, NodeId, ReplicaId, ShardId, UnixMillis};

use super::{Target, commands};

pub const TARGETS: &[Target] = &[
    Target { name: "applied-writes", run: applied_writes, seeds: applied_seeds },
    Target { name: "snapshot-blocks", run: snapshot_blocks, seeds: block_seeds },
];

const SHARD: ShardId = ShardId(1);

/// Writes of clients that pass the checks of every protocol. Two replicas that apply them agree,
/// and a snapshot has all of the state.
fn applied_writes(input: &[u8]) {
    let Ok(EntryData::Writes(writes)) = EntryData::decode(&Bytes::copy_from_slice(input)) else { return };
    let founding = Founding::new(1, 1);
    let (mut one, mut other) = (Machine::new(SHARD, &founding), Machine::new(SHARD, &founding));
    for (number, write) in (1..).zip(writes) {
        let Some(write) = proposed(write, UnixMillis(1_795_219_200_000 + number)) else { continue };
        let reply = one.apply(LogIndex(number), write.clone());
        assert_eq!(other.apply(LogIndex(number), write), reply);
    }
    assert_eq!(one.digest(), other.digest());
    let blocks = blocks(&mut one, &Membership::default());
    let restored = restore(&blocks).expect("a snapshot can be restored");
    assert_eq!(restored.machine.digest(), one.digest());
}

/// The write as a leader proposes it; `None` if it is refused, or nodes alone send it.
fn proposed(write: Write, now: UnixMillis) -> Option<Write> {
    let is_of_client = matches!(
        write,
        Write::Keys(_)
            | Write::Conditional(_)
            | Write::Lease(_)
            | Write::Lock(_)
            | Write::Config(_)
            | Write::Flush(_)
            | Write::Expire { .. }
    );
    // A log entry holds operations that were decoded before: a peer decodes them when it receives
    // them.
    let mut out = Vec::new();
    write.encode(&mut out);
    let bytes = Bytes::from(out);
    let write = Write::decode(&mut tidelock_core::codec::Decoder::new(&bytes), &bytes).ok()?;
    let checked = CheckedWrite::new(write, |_| SHARD).ok().filter(|_| is_of_client)?;
    (checked.shard() == SHARD).then(|| checked.write().at(now))
}

fn applied_seeds() -> Vec<Vec<u8>> {
    let all = commands::sample_writes();
    let mut seeds: Vec<Vec<u8>> =
        all.iter().map(|write| EntryData::Writes(vec![write.clone()]).encode().to_vec()).collect();
    seeds.push(EntryData::Writes(all).encode().to_vec());
    seeds
}

fn blocks(machine: &mut Machine, membership: &Membership) -> Vec<Vec<u8>> {
    machine.begin_snapshot(membership);
    std::iter::from_fn(|| machine.next_block()).collect()
}

fn restore(blocks: &[Vec<u8>]) -> Option<Restored> {
    let mut restore = Restore::default();
    blocks.iter().try_for_each(|block| restore.block(block)).ok()?;
    restore.finish().ok()
}

/// Blocks, each preceded by its length in two bytes. What restores a state and what only verifies a
/// snapshot agree on what is one, and a state is the same after another snapshot.
fn snapshot_blocks(input: &[u8]) {
    let blocks = split(input);
    let mut scan = SnapshotScan::default();
    let scanned: Result<Vec<BlockKind>, _> = blocks.iter().map(|block| scan.block(block)).collect();
    let restored = restore(&blocks);
    assert_eq!(scanned.is_ok() && scan.finish().is_ok(), restored.is_some(), "{scanned:?}");
    if let Some(first) = blocks.first() {
        let _ = without_secrets(first);
    }
    let Some(Restored { mut machine, membership }) = restored else { return };
    // Keys of slots on their way are in the snapshot, and not counted.
    assert!(scan.records() >= machine.record_count());
    assert_eq!(scan.is_registry(), Some(matches!(machine, Machine::Registry(_))));
    let again = self::blocks(&mut machine, &membership);
    assert!(again.iter().all(|block| block.len() <= SNAPSHOT_BLOCK_BYTES_MAX));
    let again = restore(&again).expect("a snapshot can be restored");
    assert_eq!(again.membership, membership);
    assert_eq!(again.machine.digest(), machine.digest());
}

fn split(input: &[u8]) -> Vec<Vec<u8>> {
    let (mut blocks, mut rest) = (Vec::new(), input);
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
        blocks.push(behind[..length].to_vec());
        rest = &behind[length..];
    }
    blocks
}

/// The machines whose snapshots are seeds.
pub fn sample_machines() -> Vec<(Machine, Membership)> {
    let founding = Founding::new(3, 4);
    let membership = Membership::founded(&[(ReplicaId(1), NodeId(1)), (ReplicaId(2), NodeId(2))]);
    let mut data = Machine::new(SHARD, &founding);
    for (number, write) in (1..).zip(commands::sample_writes()) {
        if let Some(write) = proposed(write, UnixMillis(1_000)) {
            let _ = data.apply(LogIndex(number), write);
        }
    }
    vec![
        (data, membership.clone()),
        (Machine::new(SHARD, &founding), Membership::default()),
        (Machine::new(ShardId::PRIME, &founding), membership),
    ]
}

/// The blocks of the sample machines.
pub fn sample_blocks() -> Vec<Vec<Vec<u8>>> {
    sample_machines().iter_mut().map(|(machine, membership)| blocks(machine, membership)).collect()
}

fn block_seeds() -> Vec<Vec<u8>> {
    let joined = |blocks: &Vec<Vec<u8>>| {
        let prefixed = |block: &Vec<u8>| [&(block.len() as u16).to_le_bytes()[..], block].concat();
        blocks.iter().flat_map(prefixed).collect()
    };
    sample_blocks().iter().map(joined).collect()
}
