//! No acknowledged write is lost: after everything healed, each key shows the latest one or something newer.
//!
//! `linearizability` implies this. It stands alone, and is written apart from it, because it is the promise for which
//! the store exists, and because a store that forgets should be told so in these words.

use bytes::Bytes;
use tidelock_core::types::Version;

use super::lineage::{Lineage, Lineages, Sighting};
use super::{Violation, describe};
use crate::history::History;

const CHECKER: &str = "durability";

/// Judges the final inspection of every key that had a write acknowledged.
pub fn check(history: &History, lineages: &Lineages) -> Result<(), Violation> {
    let is_final =
        |seen: &&Sighting| history.operation(seen.token).is_some_and(|operation| operation.is_final);
    for (key, lineage) in lineages {
        let Some(latest) = lineage.mutations.last() else { continue };
        let mut inspected = false;
        for seen in lineage.sightings.iter().filter(is_final) {
            inspected = true;
            if seen.version < latest.version && !explains_absence(lineage, seen, latest.version) {
                let text = lost(key, latest.version, seen.version);
                return Err(Violation::new(CHECKER, text));
            }
        }
        if !inspected {
            let text = format!("{} was never inspected", describe(key, latest.version));
            return Err(Violation::new(CHECKER, text));
        }
    }
    Ok(())
}

/// Whether the key may rightly be absent at the end.
fn explains_absence(lineage: &Lineage, seen: &Sighting, latest: Version) -> bool {
    let deleted = lineage.mutations.iter().any(|mutation| mutation.version == latest && !mutation.is_put);
    seen.version == Version::ABSENT && (deleted || !lineage.unknown_deletes.is_empty())
}

fn lost(key: &Bytes, expected: Version, found: Version) -> String {
    let state = if found == Version::ABSENT { "absent".into() } else { format!("at version {found}") };
    format!("{} is lost: the key is {state} at the end", describe(key, expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{Story, always};
    use crate::checkers::lineage::lineages;

    fn verdict(story: &Story) -> Result<(), Violation> {
        check(&story.history, &lineages(&story.history).unwrap())
    }

    #[test]
    fn a_lost_write_is_noticed() {
        let mut story = Story::default();
        let first = story.puts(1, true);
        story.puts(2, false);
        story.is_final = true;
        let get = story.get();
        story.sees(get, 1, first);
        assert!(verdict(&story).unwrap_err().message.contains("at version 2 is lost"));
    }

    #[test]
    fn a_lost_key_is_noticed() {
        let mut story = Story::default();
        story.puts(1, true);
        story.is_final = true;
        let list = story.list();
        story.page(list, &[]);
        assert!(verdict(&story).unwrap_err().message.contains("the key is absent"));
    }

    #[test]
    fn a_delete_that_comes_undone_is_noticed() {
        let mut story = Story::default();
        let put = story.puts(1, true);
        story.deletes(2);
        story.is_final = true;
        let get = story.get();
        story.sees(get, 1, put);
        assert!(verdict(&story).is_err());
    }

    #[test]
    fn a_key_without_inspection_is_noticed() {
        let mut story = Story::default();
        story.puts(1, true);
        assert!(verdict(&story).unwrap_err().message.contains("never inspected"));
    }

    #[test]
    fn what_was_not_acknowledged_may_be_there_or_not() {
        for sees_unknown in [false, true] {
            let mut story = Story::default();
            let put = story.puts(1, true);
            let unknown = story.put(always());
            story.is_final = true;
            let get = story.get();
            if sees_unknown {
                story.sees(get, 2, unknown);
            } else {
                story.sees(get, 1, put);
            }
            assert_eq!(verdict(&story), Ok(()));
        }
    }

    #[test]
    fn a_delete_of_unknown_outcome_may_have_taken_the_key() {
        let mut story = Story::default();
        story.puts(1, true);
        story.delete(always());
        story.is_final = true;
        let get = story.get();
        story.not_found(get);
        assert_eq!(verdict(&story), Ok(()));
    }

    #[test]
    fn inspections_that_disagree_are_noticed() {
        let mut story = Story::default();
        let put = story.puts(1, true);
        let unknown = story.put(always());
        story.is_final = true;
        for (version, writer) in [(2, unknown), (1, put)] {
            let get = story.get();
            story.sees(get, version, writer);
        }
        assert!(verdict(&story).unwrap_err().message.contains("at version 2 is lost"));
    }
}
