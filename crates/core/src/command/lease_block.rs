//! Blocks of leases and locks, as in snapshots and moves of slots.
//!
//! Owns the layout of a block: two bytes with which no other block begins, followed by records.
//! Records are in the order in which they must be applied: leases before the locks that they hold,
//! a lock before its waiters, and waiters in the order of their queue. The keys that are bound to a
//! lease say so themselves ([`RestoredKey::lease`](super::RestoredKey::lease)).
//!
//! `docs/reference/files-snapshots.md` documents the same bytes.

use alloc::vec::Vec;
use bytes::Bytes;

use super::LeaseId;
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::{UnixMillis, Version};

/// First bytes of a block. Blocks of configuration also begin with a zero byte, but no record of
/// configuration has this tag.
pub(crate) const LEASE_BLOCK: [u8; 2] = [0, 64];

const TAG_LEASE: u8 = 1;
const TAG_LOCK: u8 = 2;
const TAG_WAITER: u8 = 3;

/// One record of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRecord {
    /// A lease.
    Lease {
        /// Its id.
        lease: LeaseId,
        /// See [`LeaseView::ttl_ms`](super::LeaseView::ttl_ms).
        ttl_ms: u64,
        /// See [`LeaseView::ends`](super::LeaseView::ends).
        ends: UnixMillis,
    },
    /// A lock that is held. Its value is in the key.
    Lock {
        /// The name: a key.
        name: Bytes,
        /// The version of the key.
        fence: Version,
        /// The number of the holder's lease, in the slot of the name.
        holder: Version,
    },
    /// A lease that waits for a lock, behind those of earlier records.
    Waiter {
        /// The name of the lock.
        name: Bytes,
        /// The number of the lease, in the slot of the name.
        lease: Version,
        /// The value that the key gets when this lease becomes the holder.
        value: Bytes,
    },
}

/// Whether a block of a snapshot holds leases and locks.
pub fn is_lease_block(block: &[u8]) -> bool {
    block.starts_with(&LEASE_BLOCK)
}

/// Checks that a block decodes.
///
/// # Errors
/// When it does not.
pub fn check_lease_block(block: &[u8]) -> Result<(), DecodeError> {
    for_each_lease_record(block, |_| Ok(()))
}

/// Reads a block, record by record. The records share no memory with the block.
///
/// # Errors
/// When the block does not decode, and what `take` returns.
pub fn for_each_lease_record(
    block: &[u8],
    mut take: impl FnMut(LeaseRecord) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let rest = block.strip_prefix(&LEASE_BLOCK).ok_or(DecodeError::UnknownTag("block of leases"))?;
    let mut decoder = Decoder::new(rest);
    while !decoder.is_empty() {
        take(LeaseRecord::decode(&mut decoder)?)?;
    }
    Ok(())
}

/// Encodes records as blocks, each closed once it holds `bytes_close` bytes.
pub(crate) fn blocks_of(records: impl Iterator<Item = LeaseRecord>, bytes_close: usize) -> Vec<Vec<u8>> {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for record in records {
        if blocks.last().is_none_or(|block| block.len() >= bytes_close) {
            blocks.push(LEASE_BLOCK.to_vec());
        }
        record.encode(blocks.last_mut().expect("invariant: a block was pushed just now"));
    }
    blocks
}

impl LeaseRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            LeaseRecord::Lease { lease, ttl_ms, ends } => {
                out.push(TAG_LEASE);
                lease.encode(out);
                codec::put_varint(out, *ttl_ms);
                codec::put_varint(out, ends.0);
            }
            LeaseRecord::Lock { name, fence, holder } => {
                out.push(TAG_LOCK);
                codec::put_bytes(out, name);
                codec::put_varint(out, fence.0);
                codec::put_varint(out, holder.0);
            }
            LeaseRecord::Waiter { name, lease, value } => {
                out.push(TAG_WAITER);
                codec::put_bytes(out, name);
                codec::put_varint(out, lease.0);
                codec::put_bytes(out, value);
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<LeaseRecord, DecodeError> {
        let name = |decoder: &mut Decoder<'_>| match decoder.bytes()? {
            name if name.is_empty() || name.len() > limits::KEY_BYTES_MAX => {
                Err(DecodeError::Invalid("name of a lock"))
            }
            name => Ok(Bytes::copy_from_slice(name)),
        };
        Ok(match decoder.u8()? {
            TAG_LEASE => {
                let lease = LeaseId::decode(decoder)?;
                let ttl_ms = decoder.bounded(limits::LEASE_TTL_MS_MAX, "time to live of a lease")?;
                LeaseRecord::Lease { lease, ttl_ms, ends: UnixMillis(decoder.varint()?) }
            }
            TAG_LOCK => {
                let (name, fence) = (name(decoder)?, Version(decoder.varint()?));
                LeaseRecord::Lock { name, fence, holder: Version(decoder.varint()?) }
            }
            TAG_WAITER => {
                let (name, lease) = (name(decoder)?, Version(decoder.varint()?));
                LeaseRecord::Waiter { name, lease, value: Bytes::copy_from_slice(decoder.bytes()?) }
            }
            _ => return Err(DecodeError::UnknownTag("record of a lease or a lock")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::LeaseTag;
    use alloc::vec;

    #[test]
    fn records_round_trip_in_blocks_of_a_size() {
        let name = || Bytes::from_static(b"{t}/lock");
        let records = vec![
            LeaseRecord::Lease {
                lease: LeaseId::new(LeaseTag::new(b"t").expect("a tag"), Version(300)),
                ttl_ms: 10_000,
                ends: UnixMillis(1 << 41),
            },
            LeaseRecord::Lock { name: name(), fence: Version(301), holder: Version(300) },
            LeaseRecord::Waiter { name: name(), lease: Version(302), value: Bytes::from_static(b"\xff") },
        ];
        for (bytes_close, count) in [(1, 3), (1 << 10, 1)] {
            let blocks = blocks_of(records.iter().cloned(), bytes_close);
            assert_eq!(blocks.len(), count);
            let mut read = vec![];
            for block in &blocks {
                assert!(is_lease_block(block) && check_lease_block(block).is_ok());
                let taken = for_each_lease_record(block, |record| {
                    read.push(record);
                    Ok(())
                });
                assert_eq!(taken, Ok(()));
                assert!(check_lease_block(&block[..block.len() - 1]).is_err());
            }
            assert_eq!(read, records);
        }
        assert!(blocks_of(core::iter::empty(), 1).is_empty());
        assert!(check_lease_block(&[0, 1]).is_err());
    }
}
