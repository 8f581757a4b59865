//! Which shard owned which slots, and in which part of its log.
//!
//! Owns the replay of the steps of slot moves. A key is always in one slot, so the parts of the
//! logs in which shards owned the slot, in the order of the moves, are one log for the key. By it
//! checkers judge reads while slots move. Slots that moved together all the time are a [class]:
//! their keys always had one log, and the versions in it rise, because a receiver continues above
//! the giver's revision.
//!
//! [class]: SlotOwnership::class_of

use std::collections::BTreeMap;

use tidelock_core::command::{Move, MoveStep, Write};
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::slots::slots_of;
use tidelock_core::types::ShardId;

use super::Violation;
use super::operations::Ledger;
use crate::slots::SLOTS;

const CHECKER: &str = "slots";

/// The slots of one shard, by the steps of moves in its log.
#[derive(Debug, Default)]
pub struct ShardOwnership {
    /// The owned slots, once it has taken part in a move.
    owned: Option<SlotSet>,
    /// The last move that it took part in.
    last: u64,
    incoming: Option<IncomingCopy>,
}

#[derive(Debug)]
struct IncomingCopy {
    slots: SlotSet,
    attempt: u64,
    sequence: u64,
}

/// The effect of a step on a shard.
#[derive(Debug, PartialEq, Eq)]
pub enum StepEffect {
    /// A copy of these slots begins, without earlier parts.
    Opened(SlotSet),
    /// The step holds the next part of the copy.
    Imported,
    /// The shard owns these slots from now on.
    Owns(SlotSet),
    /// The shard no longer owns these slots.
    Gave(SlotSet),
}

impl ShardOwnership {
    /// Whether the shard owns a slot. A shard that never took part in a move checks nothing.
    pub fn owns(&self, slot: u16) -> bool {
        self.owned.as_ref().is_none_or(|owned| owned.contains(slot))
    }

    /// Applies a step as a whole: this does with the first command what the store does with
    /// several. Returns `None` if the step has no effect.
    pub fn step(&mut self, step: &Move) -> Option<StepEffect> {
        let migration = step.migration.0;
        match &step.step {
            MoveStep::Open { attempt, slots, founding, .. } => {
                self.owned.get_or_insert_with(|| founding.clone());
                let is_over = migration < self.last || (migration == self.last && self.incoming.is_none());
                let is_known = migration == self.last
                    && self.incoming.as_ref().is_some_and(|incoming| incoming.attempt >= *attempt);
                if is_over || is_known {
                    return None;
                }
                self.last = migration;
                self.incoming = Some(IncomingCopy { slots: slots.clone(), attempt: *attempt, sequence: 0 });
                Some(StepEffect::Opened(slots.clone()))
            }
            MoveStep::Import(import) => {
                let incoming = self.incoming.as_mut().filter(|_| migration == self.last)?;
                if (incoming.attempt, incoming.sequence) != (import.attempt, import.sequence) {
                    return None;
                }
                incoming.sequence += 1;
                Some(StepEffect::Imported)
            }
            MoveStep::Own { attempt, sequence, .. } => {
                let last = self.last;
                let is_it = |incoming: &mut IncomingCopy| {
                    migration == last && (incoming.attempt, incoming.sequence) == (*attempt, *sequence)
                };
                let incoming = self.incoming.take_if(is_it)?;
                self.owned = self.owned.as_ref().map(|owned| owned.union(&incoming.slots));
                Some(StepEffect::Owns(incoming.slots))
            }
            MoveStep::Freeze { slots, founding } => {
                let owned = self.owned.get_or_insert_with(|| founding.clone());
                if migration <= self.last {
                    return None;
                }
                *owned = owned.without(slots);
                self.last = migration;
                Some(StepEffect::Gave(slots.clone()))
            }
            MoveStep::Release { .. } | MoveStep::Purge { .. } => None,
        }
    }
}

/// A part of a shard's log in which the shard owned a slot. A place is the number of commands
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnedPeriod {
    /// The owner.
    pub shard: ShardId,
    /// The first place at which it owned the slot.
    pub first: usize,
    /// The last one.
    pub last: usize,
}

/// Slots that had the same owners all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotClass(usize);

/// The owners of all slots during a run.
#[derive(Debug)]
pub struct SlotOwnership {
    /// By slot.
    classes: Vec<SlotClass>,
    /// By class, in the order of the moves.
    periods: Vec<Vec<OwnedPeriod>>,
    has_moves: bool,
}

impl SlotOwnership {
    /// Replays the moves of a run that was founded with `data_shards`.
    ///
    /// # Errors
    /// When a shard became the owner of slots that another one owned, or gave up slots of another.
    pub fn of(ledger: &Ledger, data_shards: u64) -> Result<SlotOwnership, Violation> {
        let mut ownership = SlotOwnership::founded(data_shards);
        // A giver gives slots up before their receiver owns them.
        let mut changes: BTreeMap<(u64, bool), (ShardId, usize, SlotSet)> = BTreeMap::new();
        for (shard, writes) in ledger.shards() {
            let mut replayed = ShardOwnership::default();
            for (place, write) in (1..).zip(writes) {
                let Write::Slots(step) = write else { continue };
                let change = match replayed.step(step) {
                    Some(StepEffect::Owns(slots)) => (true, slots),
                    Some(StepEffect::Gave(slots)) => (false, slots),
                    _ => continue,
                };
                changes.insert((step.migration.0, change.0), (shard, place, change.1));
            }
        }
        for ((migration, owns), (shard, place, slots)) in changes {
            ownership.change(owns, (shard, place), &slots).map_err(|text| {
                let text = format!("shard {shard}, move {migration} of slots {slots}: {text}");
                Violation::new(CHECKER, text)
            })?;
        }
        ownership.end(ledger);
        Ok(ownership)
    }

    /// Whether any slot was given up by its first owner.
    pub fn has_moves(&self) -> bool {
        self.has_moves
    }

    /// The class of a slot.
    pub fn class_of(&self, slot: u16) -> SlotClass {
        self.classes[usize::from(slot)]
    }

    /// The parts of the logs in which a class had an owner, in their order.
    pub fn periods(&self, class: SlotClass) -> &[OwnedPeriod] {
        &self.periods[class.0]
    }

    /// The owners at the founding.
    fn founded(data_shards: u64) -> SlotOwnership {
        let classes = vec![SlotClass(0); SLOTS as usize];
        let mut ownership = SlotOwnership { classes, periods: Vec::new(), has_moves: false };
        for shard in (1..=data_shards).map(ShardId) {
            let class = SlotClass(ownership.periods.len());
            slots_of(shard, data_shards).for_each(|slot| ownership.classes[usize::from(slot)] = class);
            ownership.periods.push(vec![OwnedPeriod { shard, first: 0, last: usize::MAX }]);
        }
        ownership
    }

    /// A shard owns slots from a place on, or no longer.
    fn change(
        &mut self,
        owns: bool,
        (shard, place): (ShardId, usize),
        slots: &SlotSet,
    ) -> Result<(), String> {
        self.has_moves = true;
        let mut changed: BTreeMap<SlotClass, SlotClass> = BTreeMap::new();
        for slot in slots.ranges().iter().cloned().flatten() {
            let old = self.classes[usize::from(slot)];
            let class = match changed.get(&old) {
                Some(class) => *class,
                None => {
                    let class = self.changed_class(owns, (shard, place), old)?;
                    changed.insert(old, class);
                    class
                }
            };
            self.classes[usize::from(slot)] = class;
        }
        Ok(())
    }

    /// The class of slots of a class after a change.
    fn changed_class(
        &mut self,
        owns: bool,
        (shard, place): (ShardId, usize),
        old: SlotClass,
    ) -> Result<SlotClass, String> {
        let mut periods = self.periods[old.0].clone();
        let owned = periods.last_mut().filter(|period| period.last == usize::MAX);
        match owned {
            Some(owner) if owns => return Err(format!("shard {} still owns slots", owner.shard)),
            None if owns => periods.push(OwnedPeriod { shard, first: place, last: usize::MAX }),
            Some(owner) if owner.shard == shard => owner.last = place - 1,
            _ => return Err("it gives up slots that it does not own".into()),
        }
        self.periods.push(periods);
        Ok(SlotClass(self.periods.len() - 1))
    }

    /// The last periods end with the logs.
    fn end(&mut self, ledger: &Ledger) {
        let ends: BTreeMap<ShardId, usize> =
            ledger.shards().map(|(shard, writes)| (shard, writes.len())).collect();
        for period in self.periods.iter_mut().flatten().filter(|period| period.last == usize::MAX) {
            period.last = ends.get(&period.shard).copied().unwrap_or_default().max(period.first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tidelock_core::types::{LogIndex, MigrationId, Term, Version};

    fn step(shard: u64, migration: u64, step: MoveStep) -> Write {
        Write::from(Move { shard: ShardId(shard), migration: MigrationId(migration), step })
    }

    fn open(shard: u64, migration: u64, slots: &SlotSet) -> Write {
        let founding = SlotSet::from(slots_of(ShardId(shard), 2));
        step(shard, migration, MoveStep::Open { attempt: 1, slots: slots.clone(), founding, limit: 1 })
    }

    fn own(shard: u64, migration: u64) -> Write {
        let (revision, config, outcomes) = (Version(1), Bytes::new(), Vec::new());
        step(
            shard,
            migration,
            MoveStep::Own { attempt: 1, sequence: 0, revision, config, outcomes, leases_at: None },
        )
    }

    fn freeze(shard: u64, migration: u64, slots: &SlotSet) -> Write {
        let founding = SlotSet::from(slots_of(ShardId(shard), 2));
        step(shard, migration, MoveStep::Freeze { slots: slots.clone(), founding })
    }

    fn ownership(first: &[Write], second: &[Write]) -> Result<SlotOwnership, Violation> {
        let mut ledger = Ledger::default();
        for (shard, log) in [(1, first), (2, second)] {
            ledger.observe(ShardId(shard), LogIndex(1), |_| Some((Term(1), log.to_vec())));
        }
        SlotOwnership::of(&ledger, 2)
    }

    #[test]
    fn the_periods_of_a_slot_follow_the_moves() {
        let slots = SlotSet::from(0..100);
        let ownership = ownership(
            &[freeze(1, 1, &slots), open(1, 2, &slots), own(1, 2)],
            &[open(2, 1, &slots), own(2, 1), freeze(2, 2, &slots)],
        )
        .expect("one owner at a time");
        let period = |shard, first, last| OwnedPeriod { shard: ShardId(shard), first, last };
        let moved = ownership.class_of(99);
        assert_eq!(ownership.periods(moved), [period(1, 0, 0), period(2, 2, 2), period(1, 3, 3)]);
        assert_eq!(ownership.class_of(0), moved);
        assert_ne!(ownership.class_of(100), moved);
        assert_eq!(ownership.periods(ownership.class_of(100)), [period(1, 0, 3)]);
        assert_eq!(ownership.periods(ownership.class_of(16_383)), [period(2, 0, 3)]);
        assert!(ownership.has_moves());
    }

    #[test]
    fn a_second_owner_is_noticed() {
        let slots = SlotSet::from(0..100);
        let violation = ownership(&[], &[open(2, 1, &slots), own(2, 1)]).expect_err("shard 1 gave nothing");
        assert!(violation.message.contains("shard 1 still owns slots"), "{violation}");
        let violation = ownership(&[], &[freeze(2, 1, &slots)]).expect_err("they are of shard 1");
        assert!(violation.message.contains("does not own"), "{violation}");
    }

    #[test]
    fn a_run_without_moves_has_one_class_for_each_shard() {
        let ownership = ownership(&[], &[]).expect("nothing moved");
        assert!(!ownership.has_moves());
        assert_eq!(ownership.class_of(0), ownership.class_of(8_191));
        assert_ne!(ownership.class_of(0), ownership.class_of(8_192));
    }
}
