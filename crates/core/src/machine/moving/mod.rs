//! Moves of slots as changes of state: the effect of each step on keys, configuration and
//! ownership.
//!
//! The steps in order: The receiver opens a copy and imports its parts. The giver freezes the
//! slots, and from then on no shard owns them. The receiver imports the remaining changes and
//! becomes the owner. The giver releases its keys and removes them.
//!
//! Why a slot never has two owners, and always gets one: the receiver becomes the owner only by
//! `Own`, and only if attempt and number of parts match its copy. A leader of the giver sends `Own`
//! only after it has applied `Freeze` and sent every key in its state at that point, and frozen
//! keys do not change. `Freeze` is never undone, so the move can only go forward. Every step is
//! idempotent.
//!
//! A shard takes part in moves in the order of their numbers, so a step of a lower number than the
//! last belongs to a finished move.

use super::config::moving::OutgoingConfig;
use super::data::Data;
use super::kv::ownership::{IncomingSlots, Ownership, Stage};
use crate::command::migration::{Import, Move, MoveReply, MoveStep, NamespacePart};
use crate::command::{KeptOutcome, Read, ShardAnswer, ShardError, Write, blocks_of};
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::slots::slot_set::SlotSet;
use crate::types::{MigrationId, UnixMillis, Version};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

/// Progress of an outgoing copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingRest {
    /// Number of keys that changed since they were sent.
    pub keys: usize,
    /// Number of keys in the slots.
    pub rows: u64,
    /// Whether there are namespaces that were never sent.
    pub has_config: bool,
}

impl Data {
    /// Whether the shard owns all keys of a write.
    pub(super) fn owns_all_of(&self, write: &Write) -> bool {
        let Some(ownership) = &self.kv.ownership else { return true };
        match write {
            Write::Keys(transaction) => transaction.keys().all(|key| ownership.owns(key)),
            Write::Conditional(transaction) => transaction.keys().all(|key| ownership.owns(key)),
            Write::Lease(write) => write.tags().all(|tag| ownership.owns(tag.prefix())),
            Write::Lock(write) => ownership.owns(&write.name),
            Write::Config(write) => ownership.owns(write.namespace.routing_key()),
            Write::Restore(write) => write.all_keys(|key| ownership.owns(key)),
            Write::Expire { .. }
            | Write::Flush(_)
            | Write::Slots(_)
            | Write::Registry(_)
            | Write::Checkpoint { .. } => true,
        }
    }

    /// Answers a read together with the owned slots if it covers many keys; refuses it if a key is
    /// not owned.
    pub(super) fn read_owned(&self, read: &Read) -> Result<ShardAnswer, ShardError> {
        let Some(ownership) = &self.kv.ownership else {
            return Ok(ShardAnswer { owned: None, reply: self.answer(read)? });
        };
        let owns_all = match read {
            Read::Get { key } | Read::Lock { name: key } => ownership.owns(key),
            Read::Lease { lease } => ownership.owns(lease.tag().prefix()),
            Read::Operations { operations, .. } => {
                self.faults.has(Fault::GivenSlotsRead)
                    || operations.iter().all(|operation| ownership.owns(operation.key()))
            }
            Read::Config(read) => ownership.owns(read.namespace.routing_key()),
            Read::Changes { scope, .. } => match scope.slot() {
                Some(slot) => ownership.owned.contains(slot),
                None => return self.answer_of(ownership, read),
            },
            Read::Scan { .. }
            | Read::Count
            | Read::List { .. }
            | Read::Leases { .. }
            | Read::ConfigNamespaces { .. } => {
                return self.answer_of(ownership, read);
            }
        };
        if !owns_all {
            return Err(ShardError::NotHere);
        }
        Ok(ShardAnswer { owned: None, reply: self.answer(read)? })
    }

    /// Answers a read of many keys together with the owned slots.
    fn answer_of(&self, ownership: &Ownership, read: &Read) -> Result<ShardAnswer, ShardError> {
        Ok(ShardAnswer { owned: Some(ownership.owned.clone()), reply: self.answer(read)? })
    }

    /// Applies a step.
    pub(super) fn step(&mut self, Move { migration, step, .. }: Move, faults: Faults) -> MoveReply {
        match step {
            MoveStep::Open { attempt, slots, founding, limit } => {
                self.ownership(founding);
                self.open(migration, (attempt, slots), limit)
            }
            MoveStep::Import(import) => self.import(migration, &import, faults),
            MoveStep::Own { attempt, sequence, revision, config, outcomes, leases_at } => {
                self.own(migration, (attempt, sequence), (revision, &config, outcomes), leases_at)
            }
            MoveStep::Freeze { slots, founding } => self.freeze(migration, slots, founding),
            MoveStep::Release { rows } => self.release(migration, rows),
            MoveStep::Purge { limit } => self.purge(migration, limit),
        }
    }

    /// The ownership. A shard without one gets its founding slots.
    fn ownership(&mut self, founding: SlotSet) -> &mut Ownership {
        self.kv.ownership.get_or_insert_with(|| Box::new(Ownership::founded(founding)))
    }

    fn open(&mut self, migration: MigrationId, (attempt, slots): (u64, SlotSet), limit: usize) -> MoveReply {
        let Some(ownership) = &mut self.kv.ownership else { return MoveReply::Outdated };
        if migration > ownership.last {
            if ownership.hides() {
                return MoveReply::Again;
            }
            if slots.overlaps(&ownership.owned) {
                return MoveReply::Outdated;
            }
            ownership.last = migration;
            let incoming = IncomingSlots { slots, attempt, sequence: 0, rows: 0, sweeping: None };
            ownership.stage = Stage::Incoming(incoming);
            return MoveReply::Done;
        }
        let last = ownership.last;
        let Stage::Incoming(incoming) = &mut ownership.stage else { return MoveReply::Owned };
        if migration < last {
            return MoveReply::Owned;
        }
        if attempt < incoming.attempt {
            return MoveReply::Outdated;
        }
        if attempt > incoming.attempt {
            (incoming.attempt, incoming.sequence) = (attempt, 0);
            incoming.sweeping = Some(Box::default());
        }
        let Some(swept) = incoming.sweeping.clone() else { return MoveReply::Done };
        let slots = incoming.slots.clone();
        self.kv.drop_leases(&slots);
        let rest = self.sweep(&slots, Some(&swept), limit);
        let is_over = rest.is_none();
        if let Some(Stage::Incoming(incoming)) = self.kv.stage_mut() {
            incoming.sweeping = rest;
        }
        if is_over { MoveReply::Done } else { MoveReply::Again }
    }

    fn import(&mut self, migration: MigrationId, import: &Import, faults: Faults) -> MoveReply {
        let Some(ownership) = &mut self.kv.ownership else { return MoveReply::Outdated };
        let last = ownership.last;
        if migration > last {
            return MoveReply::Outdated;
        }
        // The reply to `Own` may be lost, and a key may expire at the giver before it retries.
        let incoming = match &mut ownership.stage {
            Stage::Incoming(incoming) if migration == last => incoming,
            _ => return MoveReply::Owned,
        };
        let is_believed = faults.has(Fault::OldAttemptAccepted);
        if import.attempt != incoming.attempt && !is_believed {
            return MoveReply::Outdated;
        }
        if import.attempt == incoming.attempt {
            if import.sequence < incoming.sequence {
                return MoveReply::Done;
            }
            if import.sequence > incoming.sequence || incoming.sweeping.is_some() {
                return MoveReply::Outdated;
            }
            incoming.sequence += 1;
        }
        self.kv.raise_revision(import.revision);
        self.kv.import(&import.rows, &import.removals);
        if let Some(block) = &import.leases
            && !faults.has(Fault::LeasesLeftBehind)
        {
            let taken = self.kv.take_lease_block(block);
            assert!(taken.is_ok() || is_believed, "invariant: parts come in order: {taken:?}");
        }
        if let Some(part) = &import.config {
            let taken = self.config.import_part(part);
            // A replica that skipped what it cannot read would differ from others in silence.
            assert!(taken.is_ok() || is_believed, "invariant: parts come in order: {taken:?}");
        }
        MoveReply::Done
    }

    fn own(
        &mut self,
        migration: MigrationId,
        copy: (u64, u64),
        (revision, config, outcomes): (Version, &Bytes, Vec<KeptOutcome>),
        leases_at: Option<UnixMillis>,
    ) -> MoveReply {
        let Some(ownership) = &mut self.kv.ownership else { return MoveReply::Outdated };
        match &ownership.stage {
            _ if migration > ownership.last => return MoveReply::Outdated,
            _ if migration < ownership.last => return MoveReply::Owned,
            Stage::Incoming(incoming) => {
                if (incoming.attempt, incoming.sequence) != copy || incoming.sweeping.is_some() {
                    return MoveReply::Outdated;
                }
                let slots = incoming.slots.clone();
                ownership.owned = ownership.owned.union(&slots);
                ownership.stage = Stage::Idle;
                self.kv.raise_revision(revision);
                self.kv.slots_arrived(&slots);
                let taken = self.config.take_block(config);
                assert!(taken.is_ok(), "invariant: it was checked: {taken:?}");
                self.outcomes.import(outcomes);
                leases_at.iter().for_each(|at| self.kv.leases.activate(&slots, *at));
                self.config.notify_slots(&slots);
            }
            _ => {}
        }
        MoveReply::Owned
    }

    fn freeze(&mut self, migration: MigrationId, slots: SlotSet, founding: SlotSet) -> MoveReply {
        let ownership = self.ownership(founding);
        if migration <= ownership.last {
            return MoveReply::Done;
        }
        if ownership.hides() {
            return MoveReply::Again;
        }
        if !slots.is_within(&ownership.owned) {
            return MoveReply::Outdated;
        }
        ownership.owned = ownership.owned.without(&slots);
        ownership.last = migration;
        ownership.stage = Stage::Frozen { slots: slots.clone(), removed: 0 };
        // From now on only the receiver may end them.
        self.kv.leases.deactivate(&slots);
        self.config.notify_slots(&slots);
        MoveReply::Done
    }

    fn release(&mut self, migration: MigrationId, rows: u64) -> MoveReply {
        let Some(ownership) = &mut self.kv.ownership else { return MoveReply::Outdated };
        if migration == ownership.last
            && let Stage::Frozen { slots, removed } = &ownership.stage
        {
            let (slots, rows) = (slots.clone(), rows.saturating_sub(*removed));
            self.outcomes.remove_slots(&slots);
            self.kv.drop_leases(&slots);
            let Some(ownership) = &mut self.kv.ownership else { return MoveReply::Outdated };
            ownership.stage = Stage::Released { slots, rows, swept: None };
        }
        MoveReply::Done
    }

    fn purge(&mut self, migration: MigrationId, limit: usize) -> MoveReply {
        let Some(ownership) = &mut self.kv.ownership else { return MoveReply::Outdated };
        let is_last = migration == ownership.last;
        let Stage::Released { slots, swept, .. } = &ownership.stage else { return MoveReply::Done };
        if !is_last {
            return MoveReply::Done;
        }
        let (slots, swept) = (slots.clone(), swept.clone());
        let rest = self.sweep(&slots, swept.as_deref(), limit);
        let Some(stage) = self.kv.stage_mut() else { return MoveReply::Done };
        match rest {
            Some(rest) => {
                if let Stage::Released { swept, .. } = stage {
                    *swept = Some(rest);
                }
                MoveReply::Again
            }
            None => {
                debug_assert!(
                    matches!(stage, Stage::Released { rows: 0, .. }),
                    "invariant: what is hidden is counted exactly"
                );
                *stage = Stage::Idle;
                MoveReply::Done
            }
        }
    }

    /// Removes some keys of these slots, then namespaces. Returns the key after which to continue;
    /// `None` when all are removed.
    fn sweep(&mut self, slots: &SlotSet, swept: Option<&[u8]>, limit: usize) -> Option<Box<[u8]>> {
        if let Some(rest) = self.kv.sweep(slots, swept, limit) {
            return Some(rest);
        }
        let is_over = self.config.remove_some(slots, limits::MOVE_NAMESPACES_PER_STEP_MAX);
        // All keys are inspected. Repeating that from the last key is cheap.
        if is_over {
            None
        } else {
            Some(self.kv.last_key().or_else(|| swept.map(Box::from)).unwrap_or_default())
        }
    }

    /// Begins a copy of these slots for another shard. The copy is not part of the replicated
    /// state.
    pub fn begin_outgoing(&mut self, slots: &SlotSet) {
        self.kv.begin_outgoing(slots.clone());
        self.outgoing_config = Some(OutgoingConfig::new(slots.clone()));
        self.outgoing_leases = None;
    }

    /// Drops the copy.
    pub fn abandon_outgoing(&mut self) {
        self.kv.abandon_outgoing();
        self.outgoing_config = None;
        self.outgoing_leases = None;
    }

    /// The next part of the copy, as part `sequence` of `attempt`, found by inspecting at most
    /// `limit` keys. An empty part may only mean that none of the inspected keys belongs to the
    /// slots: see [`Data::has_keys_to_inspect`].
    pub fn next_part(&mut self, (attempt, sequence): (u64, u64), limit: usize) -> Import {
        let revision = self.kv.revision;
        let mut rows = self.kv.walk_outgoing(limit);
        let (mut removals, mut config) = (Vec::new(), None);
        if rows.is_empty() && self.kv.outgoing_rest().is_some() {
            // Alternate with keys, which clients may change faster than they are copied.
            if sequence % 2 == 1 {
                config = self.next_namespace_part();
            }
            if config.is_none() {
                (rows, removals) = self.kv.changed_outgoing(limit);
            }
            if rows.is_empty() && removals.is_empty() && config.is_none() {
                config = self.next_namespace_part();
            }
        }
        let is_rest = rows.is_empty() && removals.is_empty() && config.is_none();
        let leases = if is_rest && self.kv.outgoing_rest().is_some() { self.next_lease_part() } else { None };
        Import { attempt, sequence, revision, rows, removals, config, leases }
    }

    /// The next block of leases and locks. They are copied when the slots are frozen, because each
    /// renewal changes them.
    fn next_lease_part(&mut self) -> Option<Bytes> {
        let Some(Stage::Frozen { slots, .. }) = self.ownership_of().map(Ownership::stage) else {
            return None;
        };
        if self.outgoing_leases.is_none() {
            let is_included = |slot| slots.contains(slot);
            let blocks = blocks_of(self.kv.lease_records(&is_included), limits::MOVE_PART_BYTES_CLOSE);
            self.outgoing_leases = Some(blocks.into());
        }
        self.outgoing_leases.as_mut()?.pop_front().map(Bytes::from)
    }

    /// Whether the copy is not complete although its last part was empty: its walk over the keys is
    /// not, or a flush has removed keys that the receiver may have.
    pub fn has_keys_to_inspect(&self) -> bool {
        self.kv.outgoing_rest() != Some(0)
    }

    fn next_namespace_part(&mut self) -> Option<NamespacePart> {
        self.outgoing_config.as_mut()?.next_part(&self.config)
    }

    /// Progress of the copy; `None` until its walk is complete.
    pub fn outgoing_rest(&self) -> Option<OutgoingRest> {
        let has_config =
            self.outgoing_config.as_ref().is_some_and(|outgoing_slots| !outgoing_slots.is_passed());
        Some(OutgoingRest { keys: self.kv.outgoing_rest()?, rows: self.kv.outgoing_rows()?, has_config })
    }

    /// The step that makes the receiver of a complete copy the owner.
    pub fn own_step(&self, attempt: u64, sequence: u64) -> MoveStep {
        // Above every revision at which a watcher may have read the slots here: keys that expired
        // during the move have none.
        let revision = Version(self.kv.revision.0 + 1);
        let config = self.config.floor_block().into();
        // The slots are frozen, so no more outcomes are added.
        let (outcomes, has_leases) = match self.ownership_of().map(Ownership::stage) {
            Some(Stage::Frozen { slots, .. }) => {
                (self.outcomes.of_slots(slots), self.kv.leases.has_any_of(slots))
            }
            _ => (Vec::new(), false),
        };
        let leases_at = has_leases.then_some(UnixMillis(0));
        MoveStep::Own { attempt, sequence, revision, config, outcomes, leases_at }
    }

    /// The ownership; `None` if the shard never took part in a move.
    pub fn ownership_of(&self) -> Option<&Ownership> {
        self.kv.ownership.as_deref()
    }
}

#[cfg(test)]
mod tests;
