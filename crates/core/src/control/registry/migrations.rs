//! Slots on their way, and shards that are added and removed: changes of which shard holds what.
//!
//! Owns the order of moves. A move is done when no earlier one names either of its shards any more, so each shard takes part in
//! one at a time, in the order of their numbers, as `machine::moving` relies on. The map changes when a move is finished:
//! until then its slots are the giver's here, whatever the two shards have come to.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::Registry;
use super::tables::Shard;
use crate::codec::{self, DecodeError, Decoder};
use crate::command::{Denial, Reply};
use crate::control::placement::{self, policy};
use crate::control::rebalance;
use crate::control::slot_set::SlotSet;
use crate::deliberate::Fault;
use crate::limits;
use crate::membership::Role;
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId};

/// A move of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Who gives them.
    pub from: ShardId,
    /// Who receives them.
    pub to: ShardId,
    /// Which.
    pub slots: SlotSet,
    /// Log index at which it was wanted.
    pub created: LogIndex,
}

impl Migration {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.from.0, self.to.0, self.created.0] {
            codec::put_varint(out, number);
        }
        self.slots.encode(out);
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Migration, DecodeError> {
        let (from, to) = (ShardId(decoder.varint()?), ShardId(decoder.varint()?));
        let created = LogIndex(decoder.varint()?);
        Ok(Migration { from, to, slots: SlotSet::decode(decoder)?, created })
    }
}

impl Registry {
    /// Gives the cluster another data shard, which holds no slots. Its first voters are those that its policy asks for.
    pub fn add_shard(
        &mut self,
        index: LogIndex,
        name: Option<String>,
        tags: BTreeMap<String, String>,
    ) -> Reply {
        let bytes: usize = tags.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > limits::SHARD_TAGS_BYTES_MAX || policy::Policy::parse(&tags).is_err() {
            return Reply::Denied(Denial::InvalidPolicy);
        }
        let data_shards = self.shards.keys().filter(|shard| **shard != ShardId::PRIME).count();
        if data_shards as u64 >= limits::SHARDS_MAX {
            return Reply::Denied(Denial::TooManyShards);
        }
        let shard = ShardId(self.last_shard.0 + 1);
        let mut row = Shard::new(index, shard, Vec::new());
        row.name = name.unwrap_or(row.name);
        row.tags = tags;
        self.shards.insert(shard, row);
        let plan = placement::plan(self, shard).unwrap_or_default();
        let voters = plan.iter().filter(|(_, placed)| placed.role == Some(Role::Voter));
        let voters: Vec<NodeId> = voters.map(|(&node, _)| node).collect();
        if voters.is_empty() {
            self.shards.remove(&shard);
            return Reply::Denied(Denial::InvalidPolicy);
        }
        let founding: Vec<(ReplicaId, NodeId)> = voters
            .into_iter()
            .map(|node| (self.add_replica(index, (shard, node), Role::Voter), node))
            .collect();
        if let Some(row) = self.shards.get_mut(&shard) {
            row.founding = founding;
        }
        self.last_shard = shard;
        self.changed = index;
        Reply::ShardAdded { shard }
    }

    /// Removes a data shard that owns no slots, with all its replicas: each host ends its own when it learns of it. There is
    /// always another data shard, because the slots belong to some.
    ///
    /// The registry's map changes only when the receiver of a move owns the slots, so no key can be left behind; what the
    /// shard had still to purge goes with it.
    pub fn remove_shard(&mut self, index: LogIndex, shard: ShardId) -> Reply {
        if shard == ShardId::PRIME || !self.shards.contains_key(&shard) {
            return Reply::Denied(Denial::UnknownShard);
        }
        let is_moving = |migration: &Migration| migration.from == shard || migration.to == shard;
        let is_in_use = self.slots.count(shard) > 0 || self.migrations.values().any(is_moving);
        if is_in_use && !self.faults.has(Fault::ShardRemovedWithSlots) {
            return Reply::Denied(Denial::ShardInUse);
        }
        self.shards.remove(&shard);
        self.replicas.retain(|_, replica| replica.shard != shard);
        self.slots.forget(shard);
        self.changed = index;
        Reply::HostChanged
    }

    /// Wants all data shards to hold as many slots as the others, with as few moved as that takes.
    pub fn rebalance(&mut self, index: LogIndex) -> Reply {
        let shards = self.shards.keys().copied().filter(|shard| *shard != ShardId::PRIME);
        let shares = shards.map(|shard| (shard, self.share_to_be(shard))).collect();
        let moves = rebalance::plan(&shares);
        if self.migrations.len() + moves.len() > limits::MIGRATIONS_MAX {
            return Reply::Denied(Denial::TooManyMoves);
        }
        let count = moves.len() as u64;
        for rebalance::SlotMove { from, to, slots } in moves {
            self.add_migration(Migration { from, to, slots, created: index });
        }
        Reply::Moving { moves: count, last: self.last_migration }
    }

    /// Wants a shard to hold these slots, whoever holds them now.
    pub fn move_slots(&mut self, index: LogIndex, slots: &SlotSet, to: ShardId) -> Reply {
        if to == ShardId::PRIME || !self.shards.contains_key(&to) {
            return Reply::Denied(Denial::UnknownShard);
        }
        if self.migrations.values().any(|migration| migration.slots.overlaps(slots)) {
            return Reply::Denied(Denial::SlotsMoving);
        }
        let givers: Vec<(ShardId, SlotSet)> = self
            .slots
            .shards()
            .into_iter()
            .filter(|shard| *shard != to)
            .map(|shard| {
                let share = self.slots.share(shard);
                (shard, share.without(&share.without(slots)))
            })
            .filter(|(_, slots)| !slots.is_empty())
            .collect();
        if self.migrations.len() + givers.len() > limits::MIGRATIONS_MAX {
            return Reply::Denied(Denial::TooManyMoves);
        }
        let count = givers.len() as u64;
        for (from, slots) in givers {
            self.add_migration(Migration { from, to, slots, created: index });
        }
        Reply::Moving { moves: count, last: self.last_migration }
    }

    /// The receiver of a move owns its slots.
    pub fn finish_migration(&mut self, index: LogIndex, id: MigrationId) -> Reply {
        if let Some(migration) = self.migrations.remove(&id) {
            self.slots.give(id, &migration.slots, (migration.from, migration.to));
            self.changed = index;
        }
        Reply::HostChanged
    }

    fn add_migration(&mut self, migration: Migration) {
        self.last_migration = MigrationId(self.last_migration.0 + 1);
        self.changed = migration.created;
        self.migrations.insert(self.last_migration, migration);
    }

    /// What a shard holds once all moves are done.
    fn share_to_be(&self, shard: ShardId) -> SlotSet {
        let mut share = self.slots.share(shard);
        for migration in self.migrations.values() {
            if migration.from == shard {
                share = share.without(&migration.slots);
            } else if migration.to == shard {
                share = share.union(&migration.slots);
            }
        }
        share
    }

    /// Moves that are not finished.
    pub fn migrations(&self) -> &BTreeMap<MigrationId, Migration> {
        &self.migrations
    }

    /// The last number of a move that was given out.
    pub fn last_migration(&self) -> MigrationId {
        self.last_migration
    }

    /// The move in which a shard is to give slots away now.
    pub fn move_from(&self, shard: ShardId) -> Option<(MigrationId, &Migration)> {
        let names = |migration: &Migration, shard| migration.from == shard || migration.to == shard;
        let first = |shard| self.migrations.iter().find(move |(_, migration)| names(migration, shard));
        let (&id, migration) = first(shard)?;
        let is_first = first(migration.to).is_some_and(|(first, _)| *first == id);
        (migration.from == shard && is_first).then_some((id, migration))
    }
}
