//! Checks that no acknowledged write is lost: in the healed cluster each key has the latest one or
//! a newer one.
//!
//! `linearizability` implies this. It is a separate checker because durability is the main promise
//! of the store, and because its violation should be reported in these words.

use bytes::Bytes;
use tidelock_core::types::Version;

use super::lineage::{Lineage, Lineages, Sighting};
use super::{Checker, FinishedRun, Violation, describe};
use crate::history::History;

const CHECKER: &str = "durability";

/// Judges that nothing acknowledged is lost.
pub struct Durability;

impl Checker for Durability {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.history, run.lineages()?)
    }
}

/// Judges the final reads of every key with an acknowledged write.
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
    use crate::checkers::fixture::{HistoryBuilder, always};
    use crate::checkers::lineage::lineages;

    fn verdict(history_builder: &HistoryBuilder) -> Result<(), Violation> {
        check(&history_builder.history, &lineages(&history_builder.history).unwrap())
    }

    #[test]
    fn a_lost_write_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let first = history_builder.puts(1, true);
        history_builder.puts(2, false);
        history_builder.is_final = true;
        let get = history_builder.get();
        history_builder.sees(get, 1, first);
        assert!(verdict(&history_builder).unwrap_err().message.contains("at version 2 is lost"));
    }

    #[test]
    fn a_lost_key_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        history_builder.puts(1, true);
        history_builder.is_final = true;
        let list = history_builder.list();
        history_builder.page(list, &[]);
        assert!(verdict(&history_builder).unwrap_err().message.contains("the key is absent"));
    }

    #[test]
    fn a_delete_that_comes_undone_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.puts(1, true);
        history_builder.deletes(2);
        history_builder.is_final = true;
        let get = history_builder.get();
        history_builder.sees(get, 1, put);
        assert!(verdict(&history_builder).is_err());
    }

    #[test]
    fn a_key_without_inspection_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        history_builder.puts(1, true);
        assert!(verdict(&history_builder).unwrap_err().message.contains("never inspected"));
    }

    #[test]
    fn what_was_not_acknowledged_may_be_there_or_not() {
        for sees_unknown in [false, true] {
            let mut history_builder = HistoryBuilder::default();
            let put = history_builder.puts(1, true);
            let unknown = history_builder.put(always());
            history_builder.is_final = true;
            let get = history_builder.get();
            if sees_unknown {
                history_builder.sees(get, 2, unknown);
            } else {
                history_builder.sees(get, 1, put);
            }
            assert_eq!(verdict(&history_builder), Ok(()));
        }
    }

    #[test]
    fn a_delete_of_unknown_outcome_may_have_taken_the_key() {
        let mut history_builder = HistoryBuilder::default();
        history_builder.puts(1, true);
        history_builder.delete(always());
        history_builder.is_final = true;
        let get = history_builder.get();
        history_builder.not_found(get);
        assert_eq!(verdict(&history_builder), Ok(()));
    }

    #[test]
    fn inspections_that_disagree_are_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.puts(1, true);
        let unknown = history_builder.put(always());
        history_builder.is_final = true;
        for (version, writer) in [(2, unknown), (1, put)] {
            let get = history_builder.get();
            history_builder.sees(get, version, writer);
        }
        assert!(verdict(&history_builder).unwrap_err().message.contains("at version 2 is lost"));
    }
}
