//! The state machine of a data shard: keys with leases and locks, and configuration.
//!
//! Owns the dispatch of writes and reads to these parts, and the order of the parts in a snapshot.
//! The parts do not depend on each other.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use uuid::Uuid;

use super::config::moving::OutgoingConfig;
use super::config::{self, Config};
use super::kv::KeyValue;
use super::kv::changes::ReportedChanges;
use super::outcomes::Outcomes;
use crate::codec::DecodeError;
use crate::command::config::ConfigUpdate;
use crate::command::{
    ChangedKeys, ConfigRestoration, Read, ReadReply, Restoration, RestoreWrite, ShardAnswer, ShardError,
    ShardRefusal, Write, WriteReply, blocks_of, is_lease_block,
};
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::types::Version;

/// The state of one data shard: keys and configuration.
#[derive(Debug, Default)]
pub struct Data {
    pub(super) kv: KeyValue,
    pub(super) config: Config,
    pub(super) outcomes: Outcomes,
    /// An unfinished copy of configuration for another shard.
    pub(super) outgoing_config: Option<OutgoingConfig>,
    /// The rest of a copy of leases and locks for another shard; `None` until it begins.
    pub(super) outgoing_leases: Option<VecDeque<Vec<u8>>>,
    /// Blocks of leases and locks of the unfinished snapshot. They are encoded at its beginning,
    /// which their bound allows.
    pub(super) snapshot_leases: VecDeque<Vec<u8>>,
    pub(super) faults: Faults,
}

impl Data {
    /// Applies one write. Unless `is_answered`, the reply may be incomplete.
    pub(super) fn apply(&mut self, write: Write, is_answered: bool) -> Result<WriteReply, ShardError> {
        if !self.owns_all_of(&write) {
            return Err(ShardError::NotHere);
        }
        Ok(match write {
            Write::Keys(transaction) => self.kv.transact(&transaction, is_answered),
            Write::Conditional(transaction) => self.transact_by_branch(&transaction, is_answered),
            Write::Lease(write) => WriteReply::Lease(self.kv.change_leases(&write)),
            Write::Lock(write) => WriteReply::Lock(self.kv.change_lock(&write)),
            Write::Expire { now, limit, leases, .. } => {
                self.outcomes.expire(now);
                let keys = self.kv.expire(now, limit);
                let room = limit - keys as usize;
                let of_leases = leases.map_or(0, |leases| self.kv.expire_leases(now, leases, room));
                WriteReply::Expired { keys: keys + of_leases }
            }
            Write::Flush(flush) => WriteReply::Flushed(self.kv.flush(&flush)),
            Write::Config(write) => WriteReply::Config(self.config.apply(*write)),
            Write::Slots(step) => WriteReply::Move(self.step(*step, self.faults)),
            Write::Restore(RestoreWrite::Keys(restoration)) => self.restore(&restoration),
            Write::Restore(RestoreWrite::Config(restoration)) => self.restore_config(&restoration)?,
            Write::Restore(RestoreWrite::Discard(discard)) => self.discard_restore(discard.backup),
            Write::Registry(_) | Write::Checkpoint { .. } => {
                return Err(ShardRefusal::invalid("write for another kind of shard").into());
            }
        })
    }

    /// Frees at most `limit` of the keys that a flush has removed.
    pub(crate) fn free_flushed(&mut self, limit: usize) {
        self.kv.free_flushed(limit);
    }

    /// Answers a read from the current state, if this shard owns what it reads.
    pub(super) fn read(&self, read: &Read) -> Result<ShardAnswer, ShardError> {
        self.read_owned(read)
    }

    /// Answers a read regardless of ownership. Lists, scans and counts still leave out hidden keys.
    pub(super) fn answer(&self, read: &Read) -> Result<ReadReply, ShardError> {
        Ok(match read {
            Read::Get { key } => ReadReply::Value(self.kv.get(key)),
            Read::Operations { operations, bytes_max } => {
                ReadReply::Operations(self.kv.look(operations, *bytes_max))
            }
            Read::Scan { after, count, .. } => ReadReply::Scanned(self.kv.scan(*after, *count)?),
            Read::Count => ReadReply::Count(self.kv.count().ok_or(ShardError::NotHere)?),
            Read::List { prefix, after, limit, keys_only } => {
                ReadReply::Page(self.kv.list(prefix, after.as_deref(), *limit, *keys_only))
            }
            Read::Lease { lease } => ReadReply::Lease(self.kv.lease_view(lease)),
            Read::Lock { name } => ReadReply::Lock(self.kv.lock_view(name)),
            Read::Leases { prefix, after, limit } => {
                ReadReply::Page(self.kv.list_leases(prefix, after.as_deref(), *limit))
            }
            Read::Config(read) => ReadReply::Config(self.config.read(read)),
            Read::Changes { scope, after, limit, keys_only } => {
                ReadReply::Changes(self.kv.changes(scope, after.as_ref(), (*limit, *keys_only)))
            }
            Read::ConfigNamespaces { prefix, after, limit } => {
                let ownership = self.kv.ownership.as_deref();
                let holds = |slot| ownership.is_none_or(|ownership| ownership.owned().contains(slot));
                ReadReply::Page(self.config.list((prefix, after.as_deref()), *limit, &holds))
            }
        })
    }

    /// Sets the deliberate faults of the state.
    pub(super) fn set_faults(&mut self, faults: Faults) {
        (self.faults, self.kv.faults, self.config.faults) = (faults, faults, faults);
    }

    /// Restores keys of a backup. Configuration counts as keys do: a backup can be restored only
    /// into a shard that nothing else has written to.
    fn restore(&mut self, restoration: &Restoration) -> WriteReply {
        if !self.config.is_pristine() {
            return WriteReply::ConditionFailed { current: Version::ABSENT };
        }
        self.kv.restore(restoration)
    }

    /// Restores configuration of a backup, under the same condition.
    fn restore_config(&mut self, restoration: &ConfigRestoration) -> Result<WriteReply, ShardRefusal> {
        let ConfigRestoration { shard, backup, .. } = *restoration;
        let claim = Restoration { shard, backup, revision: Version::ABSENT, records: Vec::new() };
        match self.restore(&claim) {
            WriteReply::Restored => {}
            failed => return Ok(failed),
        }
        match self.config.restore_block(&restoration.block) {
            Ok(()) => Ok(WriteReply::Restored),
            Err(_) => Err(ShardRefusal::invalid("a block of configuration out of its order")),
        }
    }

    /// Removes what another restore has put here.
    fn discard_restore(&mut self, backup: Uuid) -> WriteReply {
        let holds_only_restored = self.config.is_pristine() && self.kv.holds_only_restored();
        if !holds_only_restored && !self.faults.has(Fault::WritesDiscarded) {
            return WriteReply::ConditionFailed { current: self.kv.revision };
        }
        let left = self.kv.discard_restore(backup);
        if left == Some(0) {
            self.config.discard_restored();
        }
        WriteReply::Discarded { keys_left: left.unwrap_or_default() }
    }

    /// Takes the configuration changes since the last call.
    pub(super) fn take_updates(&mut self) -> Vec<ConfigUpdate> {
        self.config.take_updates()
    }

    /// The state of the reports, if everything up to now was reported.
    pub fn reported(&self) -> ReportedChanges {
        self.kv.reported_changes()
    }

    /// The keys that changed since a report; `None` if none did.
    pub fn reportable(&self, reported: ReportedChanges) -> Option<(ChangedKeys, ReportedChanges)> {
        self.kv.reportable_keys(reported)
    }

    /// Applies a block of a snapshot that holds no keys. Returns whether it was such a block.
    pub(super) fn take_block(&mut self, block: &[u8]) -> Result<bool, DecodeError> {
        if is_lease_block(block) {
            self.kv.take_lease_block(block)?;
            return Ok(true);
        }
        let is_config = config::is_block(block);
        if is_config {
            self.config.take_block(block)?;
        }
        Ok(is_config)
    }

    /// Number of keys.
    pub(super) fn record_count(&self) -> u64 {
        self.kv.record_count()
    }

    /// A checksum over the whole state in canonical order.
    pub(super) fn digest(&self) -> u64 {
        self.kv.digest_leases(self.outcomes.digest(self.config.digest(self.kv.digest())))
    }

    /// Begins a snapshot of the current state. Its first block begins with `header`.
    pub(super) fn begin_snapshot(&mut self, header: Vec<u8>) {
        let blocks = blocks_of(self.kv.lease_records(&|_| true), limits::SNAPSHOT_BLOCK_BYTES_CLOSE);
        self.snapshot_leases = blocks.into();
        self.kv.begin_snapshot(header);
        self.config.begin_snapshot();
    }

    /// The next block of the unfinished snapshot; `None` when it is complete.
    pub(super) fn next_block(&mut self) -> Option<Vec<u8>> {
        let block = self.kv.next_block().or_else(|| self.snapshot_leases.pop_front());
        block.or_else(|| self.config.next_block())
    }

    /// Drops the unfinished snapshot.
    pub(super) fn abandon_snapshot(&mut self) {
        self.kv.copy_on_write = None;
        self.snapshot_leases.clear();
        self.config.abandon_snapshot();
    }
}
