//! A replica's memory never goes backwards: stale reads of one replica, in one of its lives, see versions rise.
//!
//! A process that starts again replays its log, so its next life may show an older state; that is allowed. That what
//! a stale read saw had been committed is judged by `linearizability`.

use std::collections::BTreeMap;

use tidelock_core::types::Version;

use super::lineage::{Lineage, Lineages, Sighting};
use super::{Violation, describe};
use crate::history::Incarnation;

const CHECKER: &str = "staleness";

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
    // By completion; among those, only what completed before another one was invoked binds it.
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
    use crate::checkers::fixture::Story;
    use crate::checkers::lineage::lineages;

    fn verdict(story: &Story) -> Result<(), Violation> {
        check(&lineages(&story.history).unwrap())
    }

    #[test]
    fn a_replica_that_goes_backwards_is_noticed() {
        let mut story = Story::default();
        let (first, second) = (story.puts(1, true), story.puts(2, false));
        for (version, writer) in [(2, second), (1, first)] {
            let get = story.get_stale();
            story.sees(get, version, writer);
        }
        assert!(verdict(&story).unwrap_err().message.contains("after version 2"));
    }

    #[test]
    fn a_replica_that_forgets_is_noticed() {
        let mut story = Story::default();
        let put = story.puts(1, true);
        let get = story.get_stale();
        story.sees(get, 1, put);
        let get = story.get_stale();
        story.not_found(get);
        assert!(verdict(&story).is_err());
    }

    #[test]
    fn a_replica_on_which_a_deleted_key_returns_is_noticed() {
        let mut story = Story::default();
        let put = story.puts(1, true);
        story.deletes(2);
        let get = story.get_stale();
        story.sees(get, 1, put);
        let get = story.get_stale();
        story.not_found(get);
        assert_eq!(verdict(&story), Ok(()));
        let get = story.get_stale();
        story.sees(get, 1, put);
        assert!(verdict(&story).is_err());
    }

    #[test]
    fn reads_that_overlap_bind_nothing() {
        let mut story = Story::default();
        let (first, second) = (story.puts(1, true), story.puts(2, false));
        let (one, other) = (story.get_stale(), story.get_stale());
        story.sees(other, 2, second);
        story.sees(one, 1, first);
        assert_eq!(verdict(&story), Ok(()));
    }
}
