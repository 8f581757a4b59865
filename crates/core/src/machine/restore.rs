//! Machines from the blocks of a snapshot.
//!
//! Owns the layout of the first block, and the checks that blocks need beyond their checksums: a snapshot decodes
//! whole or not at all.
//!
//! Records come in the order of their keys, so they are gathered in a row and made a tree at the end: in half the
//! time that inserting one by one takes, and with full nodes, which take half the room of those that were split.

use alloc::vec::Vec;

use super::Machine;
use super::kv::{Key, KeyValue, Record};
use crate::codec::{DecodeError, Decoder};
use crate::control::registry::Registry;
use crate::types::Version;

/// First byte of a first block: the version of the layout.
const FORMAT: u8 = 1;
/// Second byte: a data shard.
pub(super) const KIND_KEY_VALUE: u8 = 1;
/// Second byte: the prime shard.
pub(super) const KIND_REGISTRY: u8 = 2;

/// The beginning of a first block.
pub(super) fn header(kind: u8) -> Vec<u8> {
    alloc::vec![FORMAT, kind]
}

/// Why blocks are not a snapshot. They passed their checksums, so this is another version or a fault of the maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A block does not decode.
    #[error("a block of the snapshot does not decode: {0}")]
    Decode(#[from] DecodeError),
    /// There was no block.
    #[error("the snapshot has no blocks")]
    Empty,
}

/// A machine in the making.
#[derive(Debug, Default)]
pub struct Restore {
    machine: Option<Machine>,
    /// Those of a data shard, in order.
    records: Vec<(Key, Record)>,
}

impl Restore {
    /// Takes the next block, in the order in which [`Machine::next_block`] made them.
    ///
    /// # Errors
    /// When the block cannot be one of this snapshot. The whole is then worthless.
    pub fn block(&mut self, block: &[u8]) -> Result<(), RestoreError> {
        let mut decoder = Decoder::new(block);
        match &mut self.machine {
            None => self.machine = Some(first(&mut decoder)?),
            Some(Machine::KeyValue(kv)) => records(kv.revision, &mut self.records, &mut decoder)?,
            Some(Machine::Registry(_)) => return Err(DecodeError::TrailingBytes.into()),
        }
        Ok(decoder.finish()?)
    }

    /// The machine, after the last block.
    ///
    /// # Errors
    /// When there was no block.
    pub fn finish(self) -> Result<Machine, RestoreError> {
        let mut machine = self.machine.ok_or(RestoreError::Empty)?;
        if let Machine::KeyValue(kv) = &mut machine {
            kv.records = self.records.into_iter().collect();
        }
        Ok(machine)
    }
}

fn first(decoder: &mut Decoder<'_>) -> Result<Machine, DecodeError> {
    if decoder.u8()? != FORMAT {
        return Err(DecodeError::UnknownTag("snapshot format"));
    }
    match decoder.u8()? {
        KIND_KEY_VALUE => {
            let revision = Version(decoder.varint()?);
            Ok(Machine::KeyValue(KeyValue { revision, ..KeyValue::default() }))
        }
        KIND_REGISTRY => Ok(Machine::Registry(Registry::restore(decoder)?)),
        _ => Err(DecodeError::UnknownTag("kind of machine")),
    }
}

fn records(
    revision: Version,
    records: &mut Vec<(Key, Record)>,
    decoder: &mut Decoder<'_>,
) -> Result<(), DecodeError> {
    while !decoder.is_empty() {
        let key = decoder.bytes()?;
        let version = Version(decoder.varint()?);
        let value = decoder.bytes()?;
        if records.last().is_some_and(|(last, _)| &**last >= key) {
            return Err(DecodeError::Invalid("order of keys"));
        }
        if version == Version::ABSENT || version > revision {
            return Err(DecodeError::Invalid("version of a key"));
        }
        records.push((key.into(), Record { version, value: value.into() }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Condition, Write};
    use crate::types::{LogIndex, ShardId};
    use alloc::vec;
    use bytes::Bytes;

    fn put(machine: &mut Machine, key: u64, value: &[u8]) {
        let key = Bytes::copy_from_slice(&key.to_be_bytes());
        let write = Write::Put { key, value: Bytes::copy_from_slice(value), condition: Condition::Always };
        machine.apply(LogIndex(1), write);
    }

    fn delete(machine: &mut Machine, key: u64) {
        let key = Bytes::copy_from_slice(&key.to_be_bytes());
        machine.apply(LogIndex(1), Write::Delete { key, condition: Condition::Always });
    }

    /// Takes all blocks of a snapshot, calling `meanwhile` before each.
    fn blocks(machine: &mut Machine, mut meanwhile: impl FnMut(&mut Machine)) -> Vec<Vec<u8>> {
        machine.begin_snapshot();
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
        let mut restore = Restore::default();
        blocks.iter().try_for_each(|block| restore.block(block)).expect("blocks decode");
        restore.finish().expect("a machine")
    }

    #[test]
    fn a_snapshot_shows_the_beginning_whatever_happens_meanwhile() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut machine = Machine::new(ShardId(1));
            for _ in 0..3_000 {
                let (key, size) = (random.u64(..4_000), random.usize(..600));
                put(&mut machine, key, &vec![7; size]);
            }
            let before = machine.digest();
            let quiet = blocks(&mut machine, |_| ());
            assert!(quiet.len() > 3, "several blocks");
            let busy = blocks(&mut machine, |machine| {
                for _ in 0..500 {
                    match random.u8(..3) {
                        0 => delete(machine, random.u64(..4_000)),
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

    #[test]
    fn an_empty_machine_and_the_registry_round_trip() {
        for shard in [ShardId::PRIME, ShardId(1)] {
            let mut machine = Machine::new(shard);
            let blocks = blocks(&mut machine, |_| ());
            assert_eq!(restored(&blocks).digest(), machine.digest());
        }
    }

    #[test]
    fn what_is_not_a_snapshot_is_refused() {
        assert_eq!(Restore::default().finish().err(), Some(RestoreError::Empty));
        for first in [&[][..], &[2, 1, 0], &[1, 9], &[1, 1], &[1, 1, 5, 0]] {
            assert!(Restore::default().block(first).is_err(), "{first:?}");
        }
        for records in
            [&[1, b'a', 9, 0][..], &[1, b'a', 0, 0], &[1, b'b', 1, 0, 1, b'a', 2, 0], &[1, b'a', 1, 5]]
        {
            let mut restore = Restore::default();
            restore.block(&[1, 1, 5]).expect("a header");
            assert!(restore.block(records).is_err(), "{records:?}");
        }
    }
}
