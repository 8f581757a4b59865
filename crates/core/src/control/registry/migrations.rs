//! Moves of slots, and the addition and removal of shards.
//!
//! Owns the order of moves. A move is carried out when no earlier unfinished move names either of
//! its shards. So each shard takes part in one move at a time, in the order of their numbers, as
//! `machine::moving` requires. The slot map changes when a move finishes. Until then it names the
//! giver, whatever the state of the two shards.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::Registry;
use crate::command::{Denial, DivisionCause, WriteReply};
use crate::control::division::{AUTOMATIC_TAG, CAUSE_TAG};
use crate::control::placement;
use crate::control::rebalance;
use crate::deliberate::Fault;
use crate::limits;
use crate::membership::Role;
use crate::placement_policy::PlacementPolicy;
use crate::slots::slot_set::SlotSet;
use crate::topology::{Migration, Shard};
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Version};
use crate::version::ClusterVersion;

impl Registry {
    /// Adds a data shard that holds no slots. Its first voters are those that its policy asks for.
    pub fn add_shard(
        &mut self,
        index: LogIndex,
        name: Option<String>,
        tags: BTreeMap<String, String>,
    ) -> WriteReply {
        let bytes: usize = tags.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > limits::SHARD_TAGS_BYTES_MAX || PlacementPolicy::parse(&tags).is_err() {
            return WriteReply::Denied(Denial::InvalidPolicy);
        }
        let data_shards = self.shards.keys().filter(|shard| **shard != ShardId::PRIME).count();
        if data_shards as u64 >= limits::SHARDS_MAX {
            return WriteReply::Denied(Denial::TooManyShards);
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
            return WriteReply::Denied(Denial::InvalidPolicy);
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
        WriteReply::ShardAdded { shard }
    }

    /// Removes a data shard that owns no slots, with all its replicas. Each host stops its replica
    /// when it learns of the removal. At least one data shard remains, because every slot belongs
    /// to a shard.
    ///
    /// The slot map changes only when the receiver of a move owns the slots, so no key can be lost.
    /// Keys that the shard had released but not yet removed go with it.
    pub fn remove_shard(&mut self, index: LogIndex, shard: ShardId) -> WriteReply {
        if shard == ShardId::PRIME || !self.shards.contains_key(&shard) {
            return WriteReply::Denied(Denial::UnknownShard);
        }
        let is_moving = |migration: &Migration| migration.from == shard || migration.to == shard;
        let is_in_use = self.slots.count(shard) > 0 || self.migrations.values().any(is_moving);
        if is_in_use && !self.faults.has(Fault::ShardRemovedWithSlots) {
            return WriteReply::Denied(Denial::ShardInUse);
        }
        self.shards.remove(&shard);
        self.replicas.retain(|_, replica| replica.shard != shard);
        self.slots.forget(shard);
        // Otherwise the leader would add the shard again.
        if self.version >= ClusterVersion::WITH_DIVISION
            && let Some(prime) = self.shards.get_mut(&ShardId::PRIME)
            && prime.tags.remove(AUTOMATIC_TAG).is_some()
        {
            prime.updated = index;
        }
        self.changed = index;
        WriteReply::HostChanged
    }

    /// Adds a data shard and fills it, if nothing has changed since `seen`. The shard takes over
    /// keys of all others, so it has the tags that they have in common, their policies among them.
    pub fn divide(&mut self, index: LogIndex, seen: LogIndex, cause: DivisionCause) -> WriteReply {
        if seen != self.changed {
            return WriteReply::ConditionFailed { current: Version(self.changed.0) };
        }
        let mut tags = self.common_tags();
        tags.insert(CAUSE_TAG.into(), cause.name().into());
        match self.add_shard(index, None, tags) {
            WriteReply::ShardAdded { .. } => self.rebalance(index),
            denied => denied,
        }
    }

    /// The tags that all data shards have with the same value.
    fn common_tags(&self) -> BTreeMap<String, String> {
        let mut data = self.shards.iter().filter(|(shard, _)| **shard != ShardId::PRIME);
        let mut common = data.next().map(|(_, row)| row.tags.clone()).unwrap_or_default();
        for (_, row) in data {
            common.retain(|name, value| row.tags.get(name) == Some(value));
        }
        common
    }

    /// Plans moves after which all data shards hold equally many slots, with as few slots moved as
    /// possible.
    pub fn rebalance(&mut self, index: LogIndex) -> WriteReply {
        let shards = self.shards.keys().copied().filter(|shard| *shard != ShardId::PRIME);
        let shares = shards.map(|shard| (shard, self.planned_share(shard))).collect();
        let moves = rebalance::plan(&shares);
        if self.migrations.len() + moves.len() > limits::MIGRATIONS_MAX {
            return WriteReply::Denied(Denial::TooManyMoves);
        }
        let count = moves.len() as u64;
        for rebalance::SlotMove { from, to, slots } in moves {
            self.add_migration(Migration { from, to, slots, created: index });
        }
        WriteReply::Moving { moves: count, last: self.last_migration }
    }

    /// Plans the move of hot slots, if nothing has changed since `seen`.
    pub fn move_hot_slots(
        &mut self,
        index: LogIndex,
        seen: LogIndex,
        (slots, to): (&SlotSet, ShardId),
    ) -> WriteReply {
        if seen != self.changed {
            return WriteReply::ConditionFailed { current: Version(self.changed.0) };
        }
        self.move_slots(index, slots, to)
    }

    /// Plans moves after which a shard holds these slots.
    pub fn move_slots(&mut self, index: LogIndex, slots: &SlotSet, to: ShardId) -> WriteReply {
        if to == ShardId::PRIME || !self.shards.contains_key(&to) {
            return WriteReply::Denied(Denial::UnknownShard);
        }
        if self.migrations.values().any(|migration| migration.slots.overlaps(slots)) {
            return WriteReply::Denied(Denial::SlotsMoving);
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
            return WriteReply::Denied(Denial::TooManyMoves);
        }
        let count = givers.len() as u64;
        for (from, slots) in givers {
            self.add_migration(Migration { from, to, slots, created: index });
        }
        WriteReply::Moving { moves: count, last: self.last_migration }
    }

    /// Finishes a move whose receiver owns the slots.
    pub fn finish_migration(&mut self, index: LogIndex, id: MigrationId) -> WriteReply {
        if let Some(migration) = self.migrations.remove(&id) {
            self.slots.give(id, &migration.slots, (migration.from, migration.to));
            self.changed = index;
        }
        WriteReply::HostChanged
    }

    fn add_migration(&mut self, migration: Migration) {
        self.last_migration = MigrationId(self.last_migration.0 + 1);
        self.changed = migration.created;
        self.migrations.insert(self.last_migration, migration);
    }

    /// The slots that a shard will hold once all moves are finished.
    fn planned_share(&self, shard: ShardId) -> SlotSet {
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

    /// Unfinished moves, in the order in which they are carried out.
    pub fn migrations(&self) -> &BTreeMap<MigrationId, Migration> {
        &self.migrations
    }

    /// The highest move number assigned so far.
    pub fn last_migration(&self) -> MigrationId {
        self.last_migration
    }

    /// The move in which a shard should give slots away now.
    pub fn move_from(&self, shard: ShardId) -> Option<(MigrationId, &Migration)> {
        let names = |migration: &Migration, shard| migration.from == shard || migration.to == shard;
        let first = |shard| self.migrations.iter().find(move |(_, migration)| names(migration, shard));
        let (&id, migration) = first(shard)?;
        let is_first = first(migration.to).is_some_and(|(first, _)| *first == id);
        (migration.from == shard && is_first).then_some((id, migration))
    }
}
