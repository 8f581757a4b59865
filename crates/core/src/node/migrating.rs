//! Driving moves of slots: the leader of the giver copies, freezes, hands over and cleans up.
//!
//! Owns the timing. `machine::moving` owns the effect of a step, the registry the order of moves.
//! The state of a move is in the registry and in its two shards. What a leader keeps here may be
//! lost at any time: the next leader restarts the copy, with its own term as the number of the
//! attempt.
//!
//! The sequence: open a copy at the receiver; walk the keys and send them in parts; send changed
//! keys again until few are left; freeze; send the rest; let the receiver own the slots; tell the
//! registry; release and purge. Clients wait from the freeze until the receiver owns the slots,
//! which takes a few rounds of consensus.
//!
//! Each shard has one step in progress at a time. A step whose outcome is not known is repeated,
//! because steps are idempotent.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Node;
use crate::command::migration::{Import, Move, MoveReply, MoveStep};
use crate::command::{RegistryWrite, Reply, Write, WriteReply};
use crate::deliberate::Fault;
use crate::event::MoveStatus;
use crate::limits;
use crate::machine::kv::ownership::Stage;
use crate::router::InternalRequest;
use crate::slots::founding_share;
use crate::slots::slot_set::SlotSet;
use crate::trace::{MoveStage, TraceEvent, TraceKind};
use crate::types::{MigrationId, ShardId, Term, Ticks};

/// The slots are frozen when at most this many keys are left to send again.
const REST_KEYS_MAX: usize = 512;

/// Number of parts with changed keys after which the slots are frozen even if more keys are left,
/// because clients write faster than the copy proceeds.
const CHANGED_PARTS_MAX: u64 = 256;

/// Number of steps of the walk without a key to copy before other shards get a turn.
const WALKS_PER_TURN_MAX: usize = 4;

/// Delay before a step is repeated that failed or had nothing to do.
const RETRY_TICKS: u64 = 2;

/// The moves that this node drives as the leader of givers.
#[derive(Default)]
pub(super) struct Migrating {
    copies: BTreeMap<ShardId, Copy>,
    internal_requests: u64,
}

/// One move, as far as this leader of its giver has driven it.
struct Copy {
    migration: MigrationId,
    /// Term of the leadership; another leader restarts the copy.
    term: Term,
    to: ShardId,
    slots: SlotSet,
    phase: Phase,
    sequence: u64,
    /// The part whose outcome is not known.
    part: Option<Import>,
    /// Number of parts sent since the walk was complete.
    changed_parts: u64,
    /// The request of the step in progress.
    internal_request: Option<u64>,
    not_before: Ticks,
    /// The stage as last reported.
    traced: Option<MoveStage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The receiver must open the copy.
    Opening,
    /// Parts are being sent.
    Copying,
    /// The receiver owns the slots; the registry must record that.
    Finishing,
    /// The registry knows that the receiver owns the slots. The keys are being counted, possibly by
    /// another leader than the one that sent them.
    Counting,
}

/// The next action for a shard.
enum Next {
    Wait,
    /// Propose a step, or tell the registry.
    Take(Write),
}

impl Node {
    /// Takes the next steps of all moves whose giver this node leads.
    pub(super) fn migrate(&mut self) {
        for (internal_request, reply) in self.router.take_internal_requests() {
            self.internal_request_done(internal_request, reply);
        }
        let registry = self.registry();
        let is_idle = registry.migrations().is_empty() && registry.last_migration() == MigrationId(0);
        if is_idle {
            return;
        }
        for shard in self.givers() {
            self.drive_copy(shard);
        }
    }

    /// Shards that this node leads and that must give slots away or clean up afterwards. Forgets
    /// all other copies.
    fn givers(&mut self) -> Vec<ShardId> {
        let mut givers = Vec::new();
        for group in self.groups.iter().filter(|group| group.leads()) {
            let shard = group.shard();
            let stage = group.machine().data().and_then(|data| data.ownership_of()).map(|held| held.stage());
            let is_cleaning = matches!(stage, Some(Stage::Frozen { .. } | Stage::Released { .. }));
            if is_cleaning || self.registry().move_from(shard).is_some() {
                givers.push(shard);
            }
        }
        let over: Vec<ShardId> =
            self.migrating.copies.keys().copied().filter(|shard| !givers.contains(shard)).collect();
        for shard in over {
            self.trace_finished(shard);
            self.forget_copy(shard);
        }
        givers
    }

    fn forget_copy(&mut self, shard: ShardId) {
        self.migrating.copies.remove(&shard);
        self.groups.copy_from(shard, |data| data.abandon_outgoing());
    }

    /// Takes the next step of the move from a shard.
    fn drive_copy(&mut self, shard: ShardId) {
        let Some((migration, to, slots)) = self.current_move(shard) else { return };
        let Some(term) = self.groups.find(shard).map(|group| group.status().term) else { return };
        let is_same = |copy: &Copy| copy.migration == migration && copy.term == term;
        if !self.migrating.copies.get(&shard).is_some_and(is_same) {
            self.forget_copy(shard);
            let copy = Copy {
                migration,
                term,
                to,
                slots,
                phase: Phase::Opening,
                sequence: 0,
                part: None,
                changed_parts: 0,
                internal_request: None,
                not_before: self.now,
                traced: None,
            };
            self.migrating.copies.insert(shard, copy);
        }
        let Some(mut copy) = self.migrating.copies.remove(&shard) else { return };
        let is_due = copy.internal_request.is_none() && copy.not_before <= self.now;
        let next = if is_due { self.next_step(shard, &mut copy) } else { Next::Wait };
        self.trace_copy(shard, &mut copy);
        if let Next::Take(write) = next {
            self.migrating.internal_requests += 1;
            let number = self.migrating.internal_requests;
            copy.internal_request = Some(number);
            self.migrating.copies.insert(shard, copy);
            self.router.run_internal_request(InternalRequest { shard, number }, write, &mut self.groups);
        } else {
            self.migrating.copies.insert(shard, copy);
        }
    }

    /// The move in which a shard is the giver, according to its own state, or else according to the
    /// registry.
    fn current_move(&self, shard: ShardId) -> Option<(MigrationId, ShardId, SlotSet)> {
        let ownership = self.groups.find(shard)?.machine().data()?.ownership_of();
        let registry = self.registry();
        if let Some(ownership) = ownership
            && let Stage::Frozen { slots, .. } | Stage::Released { slots, .. } = ownership.stage()
        {
            let id = ownership.last();
            let to = registry.migrations().get(&id).map_or(ShardId::PRIME, |migration| migration.to);
            // The registry on this node may be older than the move.
            return (registry.last_migration() >= id).then(|| (id, to, slots.clone()));
        }
        let (id, migration) = registry.move_from(shard)?;
        let is_next = ownership.is_none_or(|ownership| ownership.last() < id);
        is_next.then(|| (id, migration.to, migration.slots.clone()))
    }

    fn next_step(&mut self, shard: ShardId, copy: &mut Copy) -> Next {
        let migration = copy.migration;
        let limit = self.options.move_step_keys;
        let is_finished = !self.registry().migrations().contains_key(&migration);
        let Some(group) = self.groups.find(shard) else { return Next::Wait };
        let stage = group.machine().data().and_then(|data| data.ownership_of()).map(|held| held.stage());
        let (is_frozen, removed) = match stage {
            Some(Stage::Released { .. }) => {
                copy.phase = Phase::Counting;
                return Next::Take(Write::from(Move { shard, migration, step: MoveStep::Purge { limit } }));
            }
            Some(Stage::Frozen { removed, .. }) => (true, *removed),
            _ => (false, 0),
        };
        if is_frozen && is_finished && copy.phase != Phase::Counting {
            // A leader that sent the keys has counted them already.
            if copy.phase != Phase::Finishing {
                self.begin_copy(shard, &copy.slots);
            }
            copy.phase = Phase::Counting;
        }
        match copy.phase {
            Phase::Opening => {
                let (attempt, slots) = (copy.term.0, copy.slots.clone());
                let founding = founding_share(copy.to, self.options.data_shards);
                self.step_of(copy, MoveStep::Open { attempt, slots, founding, limit })
            }
            Phase::Copying => self.next_part(shard, copy, is_frozen),
            Phase::Finishing => Next::Take(Write::from(RegistryWrite::FinishMigration { migration })),
            Phase::Counting => {
                let rows = self.groups.copy_from(shard, |data| {
                    for _ in 0..WALKS_PER_TURN_MAX {
                        if data.outgoing_rest().is_none() {
                            data.next_part((0, 0), limit);
                        }
                    }
                    data.outgoing_rest().map(|rest| rest.rows)
                });
                match rows.flatten() {
                    Some(rows) => {
                        let step = MoveStep::Release { rows: rows + removed };
                        Next::Take(Write::from(Move { shard, migration, step }))
                    }
                    None => Next::Wait,
                }
            }
        }
    }

    /// The next part of the copy, or the step after the last part.
    fn next_part(&mut self, shard: ShardId, copy: &mut Copy, is_frozen: bool) -> Next {
        let (at, limit) = ((copy.term.0, copy.sequence), self.options.move_step_keys);
        let is_hasty = is_frozen && self.options.faults.has(Fault::OwnedBeforeLastRows);
        if copy.part.is_none() && !is_hasty {
            let is_over = copy.changed_parts >= CHANGED_PARTS_MAX;
            let found = self.groups.copy_from(shard, |data| {
                let rest = data.outgoing_rest();
                let is_little =
                    rest.is_some_and(|rest| !rest.has_config && (rest.keys <= REST_KEYS_MAX || is_over));
                if is_little && !is_frozen {
                    return Err(());
                }
                let mut part = data.next_part(at, limit);
                for _ in 1..WALKS_PER_TURN_MAX {
                    if part.is_empty() && data.has_keys_to_inspect() {
                        part = data.next_part(at, limit);
                    }
                }
                Ok((part, rest.is_some(), !data.has_keys_to_inspect()))
            });
            match found {
                Some(Err(())) => return self.freeze(shard, copy),
                Some(Ok((part, is_walked, _))) if !part.is_empty() => {
                    copy.changed_parts += u64::from(is_walked);
                    copy.part = Some(part);
                }
                Some(Ok((_, _, true))) if is_frozen => {}
                _ => return Next::Wait,
            }
        }
        match copy.part.clone() {
            Some(part) => self.step_of(copy, MoveStep::Import(part)),
            None => match self.groups.copy_from(shard, |data| data.own_step(at.0, at.1)) {
                Some(own) => self.step_of(copy, own),
                None => Next::Wait,
            },
        }
    }

    fn freeze(&self, shard: ShardId, copy: &Copy) -> Next {
        let founding = founding_share(shard, self.options.data_shards);
        let step = MoveStep::Freeze { slots: copy.slots.clone(), founding };
        Next::Take(Write::from(Move { shard, migration: copy.migration, step }))
    }

    fn step_of(&self, copy: &Copy, step: MoveStep) -> Next {
        Next::Take(Write::from(Move { shard: copy.to, migration: copy.migration, step }))
    }

    fn begin_copy(&mut self, shard: ShardId, slots: &SlotSet) {
        self.groups.copy_from(shard, |data| data.begin_outgoing(slots));
    }

    /// Handles the outcome of a step.
    fn internal_request_done(&mut self, internal_request: InternalRequest, reply: Reply) {
        let now = self.now;
        let Some(copy) = self.migrating.copies.get_mut(&internal_request.shard) else { return };
        if copy.internal_request != Some(internal_request.number) {
            return;
        }
        copy.internal_request = None;
        let later = Ticks(now.0 + RETRY_TICKS);
        match (copy.phase, reply) {
            (Phase::Opening, Reply::Write(WriteReply::Move(MoveReply::Done))) => {
                copy.phase = Phase::Copying;
                let slots = copy.slots.clone();
                self.begin_copy(internal_request.shard, &slots);
            }
            (Phase::Opening | Phase::Copying, Reply::Write(WriteReply::Move(MoveReply::Owned))) => {
                let is_counted = copy.phase == Phase::Copying;
                copy.phase = Phase::Finishing;
                copy.part = None;
                if !is_counted {
                    let slots = copy.slots.clone();
                    self.begin_copy(internal_request.shard, &slots);
                }
            }
            (Phase::Copying, Reply::Write(WriteReply::Move(MoveReply::Done))) => {
                // The reply to a part, or to `Freeze`, which is not a part.
                copy.sequence += u64::from(copy.part.take().is_some());
            }
            (Phase::Finishing, Reply::Write(WriteReply::HostChanged)) => copy.not_before = Ticks(now.0 + 1),
            // Remaining keys of an earlier attempt are removed step by step, one each tick; another
            // move may have to finish first.
            (Phase::Opening, Reply::Write(WriteReply::Move(MoveReply::Again))) => {
                copy.not_before = Ticks(now.0 + 1)
            }
            (Phase::Counting, Reply::Write(WriteReply::Move(_))) => {}
            _ => copy.not_before = later,
        }
    }

    /// Reports the stage of a move if it has changed.
    fn trace_copy(&mut self, shard: ShardId, copy: &mut Copy) {
        let stage = match copy.phase {
            Phase::Opening => MoveStage::Opening,
            Phase::Copying if self.is_frozen(shard) => MoveStage::Frozen,
            Phase::Copying => MoveStage::Copying,
            Phase::Finishing => MoveStage::Owned,
            Phase::Counting if self.is_frozen(shard) => MoveStage::Counting,
            Phase::Counting => MoveStage::Purging,
        };
        if copy.traced.replace(stage) != Some(stage) {
            self.trace_move(shard, (copy.migration, copy.to), stage);
        }
    }

    /// Reports that a move is finished, unless this node only lost the leadership of its giver.
    fn trace_finished(&mut self, shard: ShardId) {
        let Some(&Copy { migration, to, .. }) = self.migrating.copies.get(&shard) else { return };
        let Some(group) = self.groups.find(shard).filter(|group| group.leads()) else { return };
        if group.machine().last_move() == (migration, false) {
            self.trace_move(shard, (migration, to), MoveStage::Finished);
        }
    }

    fn trace_move(&mut self, shard: ShardId, (migration, to): (MigrationId, ShardId), stage: MoveStage) {
        let Some(status) = self.groups.find(shard).map(|group| group.status()) else { return };
        let kind = TraceKind::SlotMove { migration, to, stage };
        self.output.trace.push(TraceEvent { shard, term: status.term, index: status.last, kind });
    }

    /// The moves that this node drives as the leader of their givers.
    pub(super) fn moves(&self) -> Vec<MoveStatus> {
        let copies = self.migrating.copies.iter();
        copies
            .map(|(&from, copy)| MoveStatus {
                migration: copy.migration,
                from,
                to: copy.to,
                parts: copy.sequence,
                is_frozen: self.is_frozen(from),
            })
            .collect()
    }

    fn is_frozen(&self, shard: ShardId) -> bool {
        let data = self.groups.find(shard).and_then(|group| group.machine().data());
        let stage = data.and_then(|data| data.ownership_of()).map(|ownership| ownership.stage());
        matches!(stage, Some(Stage::Frozen { .. }))
    }

    /// The slots that this node's replica of a shard owns, and whether its last move is finished;
    /// `None` for the prime shard.
    pub fn owned_slots(&self, shard: ShardId) -> Option<(SlotSet, bool)> {
        let data = self.groups.find(shard)?.machine().data()?;
        Some(match data.ownership_of() {
            Some(ownership) => (ownership.owned().clone(), *ownership.stage() == Stage::Idle),
            None => (founding_share(shard, self.options.data_shards), true),
        })
    }
}

const _: () = assert!(REST_KEYS_MAX <= limits::MOVE_KEYS_PER_STEP_MAX);
