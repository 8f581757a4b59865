//! The transaction that a client is putting together (`MULTI`), and the keys that it watches.

use alloc::vec::Vec;
use bytes::Bytes;

use super::CommandError;
use super::replies::HeldBytes;
use crate::command::{OperationsBuilder, Watch};
use crate::limits;
use crate::slots::slot_of;
use crate::types::{ShardId, Version};

/// An open transaction.
#[derive(Debug)]
pub(super) struct OpenTransaction<I> {
    pub(super) operations: OperationsBuilder,
    /// The first key, and its shard.
    first: Option<(Bytes, ShardId)>,
    /// The slots of its keys.
    pub(super) slots: SlotSpan,
    pub(super) items: Vec<I>,
    items_bytes: usize,
    /// A command was refused, so the transaction is not executed.
    pub(super) is_failed: bool,
}

/// Whether keys belong to one slot or to several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotSpan {
    first: Option<u16>,
    is_many: bool,
}

impl SlotSpan {
    pub(super) fn add(&mut self, key: &[u8]) {
        if !self.is_many {
            let slot = slot_of(key);
            self.is_many = *self.first.get_or_insert(slot) != slot;
        }
    }

    pub(super) fn is_many(self) -> bool {
        self.is_many
    }
}

/// A key that the client watches.
#[derive(Debug)]
pub(super) struct Watched {
    /// Unique among the client's watches, including former ones.
    pub(super) number: u64,
    pub(super) key: Bytes,
    pub(super) shard: ShardId,
    pub(super) version: WatchedVersion,
}

/// The version of a watched key, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchedVersion {
    /// Requested, and not known yet.
    Asked,
    /// The request for its version failed, so the transaction is not executed.
    Unknown,
    /// The version when the key was watched.
    At(Version),
}

impl<I: HeldBytes> OpenTransaction<I> {
    pub(super) fn new() -> OpenTransaction<I> {
        OpenTransaction {
            operations: OperationsBuilder::default(),
            first: None,
            slots: SlotSpan::default(),
            items: Vec::new(),
            items_bytes: 0,
            is_failed: false,
        }
    }

    /// The shard of its keys, if it has any.
    pub(super) fn shard(&self) -> Option<ShardId> {
        self.first.as_ref().map(|(_, shard)| *shard)
    }

    /// Checks that a key belongs to the shard of the keys before it.
    pub(super) fn admit(&mut self, key: &[u8], shard: ShardId) -> Result<(), CommandError> {
        self.slots.add(key);
        let (_, first) = self.first.get_or_insert_with(|| (Bytes::copy_from_slice(key), shard));
        if *first == shard { Ok(()) } else { Err(CommandError::CrossShard) }
    }

    /// Adds the form of a command whose operations were added.
    pub(super) fn add(&mut self, item: I) -> Result<(), CommandError> {
        check_length(&self.operations)?;
        self.items_bytes += item.held_bytes();
        if self.items_bytes > limits::TRANSACTION_BYTES_MAX {
            return Err(CommandError::TooManyCommands);
        }
        self.items.push(item);
        Ok(())
    }

    /// Looks its shard up again, after slots moved.
    pub(super) fn follow(&mut self, shard_of: impl Fn(&[u8]) -> ShardId) {
        if let Some((key, shard)) = &mut self.first {
            *shard = shard_of(key);
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.operations.encoded_bytes() + self.items_bytes
    }
}

impl Watched {
    /// The condition of the transaction that follows.
    pub(super) fn condition(self) -> Result<Watch, CommandError> {
        match self.version {
            WatchedVersion::At(version) => Ok(Watch { key: self.key, version }),
            WatchedVersion::Asked | WatchedVersion::Unknown => Err(CommandError::WatchUnknown),
        }
    }
}

/// Checks that operations are short enough for one transaction.
pub(super) fn check_length(operations: &OperationsBuilder) -> Result<(), CommandError> {
    if operations.encoded_bytes() > limits::TRANSACTION_BYTES_MAX {
        return Err(CommandError::TransactionTooLong);
    }
    Ok(())
}

/// Checks that a transaction stays within one shard.
pub(super) fn join(shard: &mut Option<ShardId>, other: ShardId) -> Result<(), CommandError> {
    if *shard.get_or_insert(other) == other { Ok(()) } else { Err(CommandError::CrossShard) }
}
