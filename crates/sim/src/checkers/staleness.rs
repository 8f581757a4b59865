//! Checks that a replica never goes back in time: stale reads of one replica, in one of its lives,
//! see rising versions.
//!
//! A process that starts again replays its log, so its next life may show an older state; that is
//! allowed. `linearizability` checks that a stale read saw only committed versions.

use std::collections::BTreeMap;

use tidelock_core::types::Version;

use super::lineage::{Lineage, Lineages, Sighting};
use super::{Checker, FinishedRun, Violation, describe};
use crate::history::Incarnation;

const CHECKER: &str = "staleness";

/// Judges the stale reads of each replica.
pub struct Staleness;

impl Checker for Staleness {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.lineages()?)
    }
}

/// Judges every key on every replica.
pub fn check(lineages: &Lineages) -> Result<(), Violation> {
    for (key, lineage) in lineages {
        let mut replicas: BTreeMap<Incarnation, Vec<&Sighting>> = BTreeMap::new();
        for seen in &lineage.sightings {
            if let Some(replica) = seen.stale_at {
                replicas.entry(replica).or_default().push(seen);
            }
        }
        for sightings in replicas.values() {
            check_replica(key, lineage, sightings)?;
        }
    }
    Ok(())
}

fn check_replica(key: &[u8], lineage: &Lineage, sightings: &[&Sighting]) -> Result<(), Violation> {
    // By completion; a read is bound only by reads that completed before it was invoked.
    let mut by_completion: Vec<&Sighting> = sightings.to_vec();
    by_completion.sort_by_key(|seen| seen.completed);
    let mut by_invocation = by_completion.clone();
    by_invocation.sort_by_key(|seen| seen.invoked);
    let mut floors: BTreeMap<_, Version> = BTreeMap::new();
    let mut floor = Version::ABSENT;
    let mut invoked = by_invocation.into_iter().peekable();
    for seen in by_completion {
        while let Some(next) = invoked.next_if(|next| next.invoked < seen.completed) {
            floors.insert(next.token, floor);
        }
        let bound = floors.get(&seen.token).copied().unwrap_or(Version::ABSENT);
        floor = floor.max(place(lineage, seen, bound).ok_or_else(|| {
            let here = describe(key, seen.version);
            let text =
                format!("operation {} saw {here}, after version {bound} on the same replica", seen.token);
            Violation::new(CHECKER, text)
        })?);
    }
    Ok(())
}

/// The earliest place of a sighting at or after a bound, if there is one.
fn place(lineage: &Lineage, seen: &Sighting, bound: Version) -> Option<Version> {
    if seen.version != Version::ABSENT {
        return (seen.version >= bound).then_some(seen.version);
    }
    let gap = (lineage.gap_of(bound)..=lineage.mutations.len()).find(|&gap| lineage.is_absent(gap));
    if lineage.unknown_deletes.iter().any(|delete| delete.invoked < seen.completed) {
        return Some(bound);
    }
    gap.map(|gap| gap.checked_sub(1).map_or(Version::ABSENT, |index| lineage.mutations[index].version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::HistoryBuilder;
    use crate::checkers::lineage::lineages;

    fn verdict(history_builder: &HistoryBuilder) -> Result<(), Violation> {
        check(&lineages(&history_builder.history).unwrap())
    }

    #[test]
    fn a_replica_that_goes_backwards_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let (first, second) = (history_builder.puts(1, true), history_builder.puts(2, false));
        for (version, writer) in [(2, second), (1, first)] {
            let get = history_builder.get_stale();
            history_builder.sees(get, version, writer);
        }
        assert!(verdict(&history_builder).unwrap_err().message.contains("after version 2"));
    }

    #[test]
    fn a_replica_that_forgets_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.puts(1, true);
        let get = history_builder.get_stale();
        history_builder.sees(get, 1, put);
        let get = history_builder.get_stale();
        history_builder.not_found(get);
        assert!(verdict(&history_builder).is_err());
    }

    #[test]
    fn a_replica_on_which_a_deleted_key_returns_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.puts(1, true);
        history_builder.deletes(2);
        let get = history_builder.get_stale();
        history_builder.sees(get, 1, put);
        let get = history_builder.get_stale();
        history_builder.not_found(get);
        assert_eq!(verdict(&history_builder), Ok(()));
        let get = history_builder.get_stale();
        history_builder.sees(get, 1, put);
        assert!(verdict(&history_builder).is_err());
    }

    #[test]
    fn reads_that_overlap_bind_nothing() {
        let mut history_builder = HistoryBuilder::default();
        let (first, second) = (history_builder.puts(1, true), history_builder.puts(2, false));
        let (one, other) = (history_builder.get_stale(), history_builder.get_stale());
        history_builder.sees(other, 2, second);
        history_builder.sees(one, 1, first);
        assert_eq!(verdict(&history_builder), Ok(()));
    }
}
