//! The replicated state machines: the effect of a log entry on a shard's state.
//!
//! Contract of a state machine: the same entries in the same order give the same state and the same
//! replies on every replica, in every release. So there is no clock (times are values in the log),
//! no randomness and no iteration in hash order. Applying cannot fail: invalid commands are refused
//! before they enter the log, and refusals that depend on state are ordinary replies.

pub mod config;
mod copy_on_write;
mod data;
pub mod kv;
mod leases;
mod locks;
pub mod moving;
mod outcomes;
mod restore;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::command::config::ConfigUpdate;
use crate::command::{
    LeaseExpiry, Read, ReadReply, ShardAnswer, ShardError, ShardRefusal, Write, WriteReply,
};
use crate::control::registry::Registry;
use crate::deliberate::Faults;
use crate::founding::Founding;
use crate::membership::Membership;
use crate::types::{LogIndex, MigrationId, ShardId, UnixMillis};
use crate::version::ClusterVersion;
pub use data::Data;
pub use kv::changes::ReportedChanges;
pub use restore::{BlockKind, Restore, RestoreError, Restored, SnapshotScan, without_secrets};

/// The state of one shard.
#[derive(Debug)]
pub enum Machine {
    /// The registry, in the prime shard.
    Registry(Box<Registry>),
    /// Keys and configuration, in a data shard.
    Data(Box<Data>),
}

impl Machine {
    /// The initial state of a shard of a cluster.
    pub fn new(shard: ShardId, founding: &Founding) -> Machine {
        if shard == ShardId::PRIME {
            Machine::Registry(Box::new(Registry::founded(founding)))
        } else {
            Machine::Data(Box::default())
        }
    }

    /// The initial state in a cluster that was founded at a version.
    pub fn founded_at(self, version: ClusterVersion) -> Machine {
        match self {
            Machine::Registry(registry) => Machine::Registry(Box::new(registry.founded_at(version))),
            Machine::Data(data) => Machine::Data(data),
        }
    }

    /// The name of this kind of shard in `GET /v1/cluster`.
    pub fn kind(&self) -> &'static str {
        match self {
            Machine::Registry(_) => "registry",
            Machine::Data(_) => "kv",
        }
    }

    /// Whether this kind of shard applies writes of this kind. Checked before a write enters the
    /// log.
    pub fn accepts(&self, write: &Write) -> bool {
        match write {
            Write::Checkpoint { .. } => true,
            Write::Registry(_) => matches!(self, Machine::Registry(_)),
            Write::Keys(_)
            | Write::Conditional(_)
            | Write::Expire { .. }
            | Write::Flush(_)
            | Write::Lease(_)
            | Write::Lock(_)
            | Write::Config(_)
            | Write::Slots(_)
            | Write::Restore(_) => matches!(self, Machine::Data(_)),
        }
    }

    /// Whether this shard owns all keys of a write.
    pub fn owns_all_of(&self, write: &Write) -> bool {
        self.data().is_none_or(|data| data.owns_all_of(write))
    }

    /// Applies the write of the entry at `index`, and answers it.
    pub fn apply(&mut self, index: LogIndex, write: Write) -> Result<WriteReply, ShardError> {
        self.apply_for(index, write, true)
    }

    /// As [`Machine::apply`]. Unless `is_answered`, the reply may be incomplete.
    pub fn apply_for(
        &mut self,
        index: LogIndex,
        write: Write,
        is_answered: bool,
    ) -> Result<WriteReply, ShardError> {
        // The owner of the machine begins the snapshot; the state does not change.
        if let Write::Checkpoint { .. } = write {
            return Ok(WriteReply::Checkpointed { index });
        }
        match self {
            Machine::Data(data) => data.apply(write, is_answered),
            Machine::Registry(registry) => match write {
                // The node that received the request retries it, and the leader then proposes it
                // with its caller.
                Write::Registry(write) if registry.lacks_record(&write) => Err(ShardError::NotHere),
                Write::Registry(write) => Ok(registry.apply(index, *write)),
                _ => Err(ShardRefusal::invalid("write for another kind of shard").into()),
            },
        }
    }

    /// Answers a read from the current state.
    pub fn read(&self, read: &Read) -> Result<ShardAnswer, ShardError> {
        match self {
            Machine::Data(data) => data.read(read),
            // A node asks for it to confirm that it has applied the current registry.
            Machine::Registry(registry) if *read == Read::Count => {
                Ok(ShardAnswer { owned: None, reply: ReadReply::Count(registry.record_count()) })
            }
            Machine::Registry(_) => Err(ShardRefusal::invalid("read of another kind of shard").into()),
        }
    }

    /// The state of a data shard.
    pub fn data(&self) -> Option<&Data> {
        match self {
            Machine::Data(data) => Some(data),
            Machine::Registry(_) => None,
        }
    }

    /// The state of a data shard, for copying slots. Only [`Machine::apply`] changes the replicated
    /// part.
    pub fn data_mut(&mut self) -> Option<&mut Data> {
        match self {
            Machine::Data(data) => Some(data),
            Machine::Registry(_) => None,
        }
    }

    /// The last move of slots in which the shard took part, and whether it is unfinished here.
    pub fn last_move(&self) -> (MigrationId, bool) {
        let ownership = self.data().and_then(Data::ownership_of);
        ownership.map_or((MigrationId(0), false), |ownership| (ownership.last(), ownership.hides()))
    }

    /// Sets the deliberate faults of the state.
    pub fn set_faults(&mut self, faults: Faults) {
        match self {
            Machine::Data(data) => data.set_faults(faults),
            Machine::Registry(registry) => registry.set_faults(faults),
        }
    }

    /// Whether the shard has leases.
    pub fn has_leases(&self) -> bool {
        self.data().is_some_and(|data| !data.kv.leases.is_empty())
    }

    /// Number of keys and leases overdue at `now`, counted up to `limit`. All leases that must be
    /// shortened count as one.
    pub fn overdue(&self, now: UnixMillis, expiry: LeaseExpiry, limit: usize) -> usize {
        match self {
            Machine::Data(data) => {
                let outcomes = usize::from(data.outcomes.is_overdue(now));
                let leases = data.kv.leases.count_overdue(now, expiry.led_since, limit);
                let too_long = usize::from(expiry.shortens && data.kv.leases.may_last_too_long(now));
                (data.kv.overdue(now, limit) + leases + too_long + outcomes).min(limit)
            }
            Machine::Registry(_) => 0,
        }
    }

    /// Takes the configuration changes since the last call.
    pub fn take_updates(&mut self) -> Vec<ConfigUpdate> {
        match self {
            Machine::Data(data) => data.take_updates(),
            Machine::Registry(_) => Vec::new(),
        }
    }

    /// Configuration that differs from `before`, which this state replaces.
    pub fn updates_since(&self, before: &Machine) -> Vec<ConfigUpdate> {
        match (self, before) {
            // Clients that watch configuration in slots that moved must query another shard now.
            (Machine::Data(data), Machine::Data(before)) if data.kv.ownership != before.kv.ownership => {
                let mut news = data.config.all_updates();
                news.extend(before.config.all_updates());
                news
            }
            (Machine::Data(data), Machine::Data(before)) => data.config.updates_since(&before.config),
            _ => Vec::new(),
        }
    }

    /// Number of records, for metrics.
    pub fn record_count(&self) -> u64 {
        match self {
            Machine::Data(data) => data.record_count(),
            Machine::Registry(registry) => registry.record_count(),
        }
    }

    /// A checksum over the whole state in canonical order: equal on replicas that applied the same
    /// log. Linear in the state.
    pub fn digest(&self) -> u64 {
        match self {
            Machine::Data(data) => data.digest(),
            Machine::Registry(registry) => registry.digest(),
        }
    }

    /// Begins a snapshot of the current state, for a shard with these replicas. Writes continue; an
    /// unfinished snapshot is dropped.
    pub fn begin_snapshot(&mut self, membership: &Membership) {
        match self {
            Machine::Data(data) => {
                let header = restore::data_header(membership, data);
                data.begin_snapshot(header);
            }
            Machine::Registry(registry) => {
                registry.begin_snapshot(restore::header(restore::KIND_REGISTRY, membership));
            }
        }
    }

    /// The next block of the unfinished snapshot, with the state at its beginning; `None` when it
    /// is complete. Replicas that begin at the same index make the same blocks. [`Restore`] reads
    /// them.
    pub fn next_block(&mut self) -> Option<Vec<u8>> {
        match self {
            Machine::Data(data) => data.next_block(),
            Machine::Registry(registry) => registry.next_block(),
        }
    }

    /// Drops the unfinished snapshot.
    pub fn abandon_snapshot(&mut self) {
        match self {
            Machine::Data(data) => data.abandon_snapshot(),
            Machine::Registry(registry) => registry.abandon_snapshot(),
        }
    }
}
