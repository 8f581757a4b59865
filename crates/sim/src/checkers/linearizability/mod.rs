//! Checks that each key is a linearizable register, in the order of its versions.
//!
//! A general checker searches for an order of operations; here the store states it, since the reply
//! to every mutation has its version. So it is enough that (1) the order of versions agrees with
//! real time: an operation that completed before another was invoked must not come after it; (2)
//! each mutation's condition and its report of the state before it agree with its predecessor; (3)
//! each absence that a client saw has a place in the order. One sweep over the history by time
//! checks this with a *floor*: the highest version that must have been current by now. Stale reads
//! raise the floor too, since what they saw was committed; they are not checked against it,
//! `staleness` does that.
//!
//! Only deletes of unknown outcome have no version. One of them must explain each absence that no
//! known delete explains. A delete explains absences in only one gap between known mutations. So
//! the smallest number of gaps that explain all such absences (interval stabbing) must not exceed
//! the number of these deletes.

use tidelock_core::command::Condition;
use tidelock_core::types::Version;

use super::lineage::{Lineage, Lineages, Mutation, Sighting};
use super::{Checker, FinishedRun, Violation, describe};
use crate::history::Moment;

const CHECKER: &str = "linearizability";

/// Judges the order of each key.
pub struct Linearizability;

impl Checker for Linearizability {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.lineages()?)
    }
}

/// Checks that the lineage of every key is linearizable.
pub fn check(lineages: &Lineages) -> Result<(), Violation> {
    for (key, lineage) in lineages {
        let judge = KeyCheck { key, lineage };
        let mut absences = judge.predecessors()?;
        absences.extend(judge.order()?);
        judge.explain(absences)?;
    }
    Ok(())
}

/// An absence that only a delete of unknown outcome can explain, in one of the gaps from `low` to
/// `high`.
#[derive(Clone, Copy, Debug)]
struct Absence {
    low: usize,
    high: usize,
    completed: Moment,
}

#[derive(Clone, Copy)]
enum TimelineEvent {
    MutationInvoked(usize),
    MutationCompleted(usize),
    SightingInvoked(usize),
    SightingCompleted(usize),
}

struct KeyCheck<'a> {
    key: &'a [u8],
    lineage: &'a Lineage,
}

impl KeyCheck<'_> {
    /// Compares every mutation with the one before it. Returns the absences that this leaves open.
    fn predecessors(&self) -> Result<Vec<Absence>, Violation> {
        let mut open = Vec::new();
        for (gap, mutation) in self.lineage.mutations.iter().enumerate() {
            let before = gap.checked_sub(1).map(|before| self.lineage.mutations[before]);
            let found = before.is_some_and(|before| before.is_put);
            let demanded = demanded_existence(mutation).map_err(|text| self.blame(mutation, text))?;
            let hidden_put = self.lineage.has_room(gap) && self.has_unknown_put(mutation.completed);
            match demanded {
                Some(true) if !found && !hidden_put => {
                    return Err(self.blame(mutation, "replaced or deleted a key that did not exist"));
                }
                Some(false) if found => {
                    open.push(Absence { low: gap, high: gap, completed: mutation.completed });
                }
                _ => {}
            }
            if let Condition::Version(expected) = mutation.condition
                && expected != Version::ABSENT
            {
                let current = before.map_or(Version::ABSENT, |before| before.version);
                if current > expected
                    || (current < expected && !hidden_put)
                    || (current == expected && !found)
                {
                    let text =
                        format!("was conditional on version {expected}, but behind it stands {current}");
                    return Err(self.blame(mutation, text));
                }
            }
        }
        Ok(open)
    }

    /// Sweeps over the operations by time. Returns the absences that no known delete explains.
    fn order(&self) -> Result<Vec<Absence>, Violation> {
        let sightings = &self.lineage.sightings;
        let mut floor = Version::ABSENT;
        let mut floors = vec![Version::ABSENT; sightings.len()];
        let mut open = Vec::new();
        for event in self.timeline() {
            match event {
                TimelineEvent::MutationInvoked(index) => {
                    let mutation = &self.lineage.mutations[index];
                    if floor >= mutation.version {
                        let text = format!("was invoked after version {floor} had been current");
                        return Err(self.blame(mutation, text));
                    }
                }
                TimelineEvent::MutationCompleted(index) => {
                    floor = floor.max(self.lineage.mutations[index].version)
                }
                TimelineEvent::SightingInvoked(index) => floors[index] = floor,
                TimelineEvent::SightingCompleted(index) => {
                    let seen = &sightings[index];
                    let floor_before = floors[index];
                    if seen.version != Version::ABSENT {
                        self.present(seen, floor_before)?;
                        floor = floor.max(seen.version);
                    } else if seen.stale_at.is_none() {
                        let (place, absence) = self.absent(seen, floor_before)?;
                        floor = floor.max(place);
                        open.extend(absence);
                    }
                }
            }
        }
        Ok(open)
    }

    /// All invocations and completions, by time.
    fn timeline(&self) -> Vec<TimelineEvent> {
        let mut timeline = Vec::new();
        for (index, mutation) in self.lineage.mutations.iter().enumerate() {
            timeline.push((mutation.invoked, TimelineEvent::MutationInvoked(index)));
            timeline.push((mutation.completed, TimelineEvent::MutationCompleted(index)));
        }
        for (index, sighting) in self.lineage.sightings.iter().enumerate() {
            timeline.push((sighting.invoked, TimelineEvent::SightingInvoked(index)));
            timeline.push((sighting.completed, TimelineEvent::SightingCompleted(index)));
        }
        timeline.retain(|&(moment, _)| moment != Moment::NEVER);
        timeline.sort_by_key(|&(moment, _)| moment);
        timeline.into_iter().map(|(_, event)| event).collect()
    }

    /// Judges the sighting of a version.
    fn present(&self, seen: &Sighting, floor: Version) -> Result<(), Violation> {
        let gap = self.lineage.gap_of(seen.version);
        let mutation = gap.checked_sub(1).map(|index| self.lineage.mutations[index]);
        let known = mutation.filter(|mutation| mutation.version == seen.version);
        let text = match known {
            Some(mutation) if !mutation.is_put => "which is that of a delete".into(),
            None if !self.has_unknown_put(seen.completed) => "which no client wrote".into(),
            _ if seen.stale_at.is_none() && floor > seen.version => {
                format!("though version {floor} had been current before it asked")
            }
            _ => return Ok(()),
        };
        Err(self.complain(seen, text))
    }

    /// Finds the earliest place for the sighting of an absence: the version of the delete after it,
    /// or the floor itself if a delete of unknown outcome may explain it.
    fn absent(&self, seen: &Sighting, floor: Version) -> Result<(Version, Option<Absence>), Violation> {
        let low = self.lineage.gap_of(floor);
        let unknown = self.lineage.unknown_deletes.iter().any(|delete| delete.invoked < seen.completed);
        let high = self.highest_gap(seen.completed);
        let natural = (low..=high).find(|&gap| self.lineage.is_absent(gap));
        match natural {
            Some(_) if unknown => Ok((floor, None)),
            Some(gap) => {
                let delete = gap.checked_sub(1).map(|index| self.lineage.mutations[index].version);
                Ok((delete.unwrap_or(Version::ABSENT), None))
            }
            None if unknown && low <= high => {
                Ok((floor, Some(Absence { low, high, completed: seen.completed })))
            }
            None => {
                let text = format!(
                    "though version {floor} had been current, and no delete fits between it and what came later"
                );
                Err(self.complain(seen, text))
            }
        }
    }

    /// The last gap that may have been current at a moment: the one before the first version that
    /// only operations invoked later saw or wrote.
    fn highest_gap(&self, moment: Moment) -> usize {
        let written = self.lineage.mutations.iter().map(|mutation| (mutation.invoked, mutation.version));
        let fresh = self.lineage.sightings.iter().filter(|seen| seen.stale_at.is_none());
        let read = fresh.map(|seen| (seen.invoked, seen.version));
        let later = written.chain(read).filter(|&(invoked, _)| invoked > moment);
        let ceiling = later.map(|(_, version)| version).filter(|&version| version != Version::ABSENT).min();
        let mutations = &self.lineage.mutations;
        ceiling.map_or(mutations.len(), |ceiling| mutations.partition_point(|done| done.version < ceiling))
    }

    /// Whether enough deletes of unknown outcome explain the absences left open.
    fn explain(&self, mut absences: Vec<Absence>) -> Result<(), Violation> {
        absences.sort_by_key(|absence| absence.high);
        let mut stab = None;
        let mut needed = Vec::new();
        for absence in absences {
            if stab.is_some_and(|gap| absence.low <= gap && gap <= absence.high) {
                continue;
            }
            stab = (absence.low..=absence.high).rev().find(|&gap| self.lineage.has_room(gap));
            if stab.is_none() {
                return Err(self.unexplained());
            }
            needed.push(absence.completed);
        }
        needed.sort_unstable();
        let mut available: Vec<Moment> =
            self.lineage.unknown_deletes.iter().map(|delete| delete.invoked).collect();
        available.sort_unstable();
        let matched = needed.iter().zip(&available).all(|(completed, invoked)| invoked < completed);
        if matched && needed.len() <= available.len() { Ok(()) } else { Err(self.unexplained()) }
    }

    fn has_unknown_put(&self, before: Moment) -> bool {
        self.lineage.unknown_puts.iter().any(|put| put.invoked < before)
    }

    fn blame(&self, mutation: &Mutation, text: impl Into<String>) -> Violation {
        let key = describe(self.key, mutation.version);
        Violation::new(CHECKER, format!("operation {} made {key}, and {}", mutation.token, text.into()))
    }

    fn complain(&self, seen: &Sighting, text: String) -> Violation {
        let key = describe(self.key, seen.version);
        Violation::new(CHECKER, format!("operation {} saw {key}, {text}", seen.token))
    }

    fn unexplained(&self) -> Violation {
        let key = self.key.escape_ascii();
        let text = format!("key \"{key}\" was absent more often than deletes can explain");
        Violation::new(CHECKER, text)
    }
}

/// Whether the key must have existed before a mutation, by its condition and by its reply.
fn demanded_existence(mutation: &Mutation) -> Result<Option<bool>, &'static str> {
    let by_condition = match mutation.condition {
        Condition::Always => None,
        Condition::Exists => Some(true),
        Condition::Version(version) => Some(version != Version::ABSENT),
    };
    match (by_condition, mutation.existed) {
        (Some(demanded), Some(reported)) if demanded != reported => {
            Err("its reply contradicts its condition")
        }
        (demanded, reported) => Ok(demanded.or(reported)),
    }
}

#[cfg(test)]
mod tests;
