//! Checks that an iteration over all keys returns every key that existed from its beginning to its
//! end.
//!
//! It may return further keys, and keys twice: a key that is written or deleted meanwhile may or
//! may not be returned.

use super::lineage::{Lineage, Lineages};
use super::{Checker, FinishedRun, Violation, describe};
use crate::history::Iteration;
use tidelock_core::types::Version;

const CHECKER: &str = "scans";

/// Judges the iterations over all keys.
pub struct Scans;

impl Checker for Scans {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.iterations, run.lineages()?)
    }
}

/// Checks that every finished iteration returned the keys that existed throughout it.
pub fn check(iterations: &[Iteration], lineages: &Lineages) -> Result<(), Violation> {
    for iteration in iterations {
        let missed = lineages
            .iter()
            .filter(|(key, _)| !iteration.keys.contains(*key))
            .find_map(|(key, lineage)| Some((key, existed_throughout(lineage, iteration)?)));
        if let Some((key, version)) = missed {
            let Iteration { begun, ended, keys } = iteration;
            let text = format!(
                "the iteration from {} to {} returned {} keys without {}",
                begun.0,
                ended.0,
                keys.len(),
                describe(key, version)
            );
            return Err(Violation::new(CHECKER, text));
        }
    }
    Ok(())
}

/// The version at which a key certainly existed when the iteration began, if it certainly was not
/// deleted before its end.
fn existed_throughout(lineage: &Lineage, iteration: &Iteration) -> Option<Version> {
    let acknowledged = lineage.mutations.iter().rposition(|known| known.completed < iteration.begun)?;
    let latest = &lineage.mutations[acknowledged];
    let later = &lineage.mutations[acknowledged + 1..];
    let may_be_deleted = later.iter().any(|later| !later.is_put && later.invoked < iteration.ended)
        || lineage.unknown_deletes.iter().any(|delete| delete.invoked < iteration.ended);
    (latest.is_put && !may_be_deleted).then_some(latest.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{HistoryBuilder, KEY, always};
    use crate::checkers::lineage::lineages;
    use crate::history::Moment;

    /// An iteration that lasts while `during` runs.
    fn verdict<T>(
        history_builder: &mut HistoryBuilder,
        during: impl FnOnce(&mut HistoryBuilder) -> T,
        returned: bool,
    ) -> Result<(), Violation> {
        let moment = |history_builder: &mut HistoryBuilder| {
            let asked = history_builder.get_stale();
            history_builder.history.operation(asked).unwrap().invoked
        };
        let begun = moment(history_builder);
        during(history_builder);
        let ended: Moment = moment(history_builder);
        let keys = returned.then_some(KEY).into_iter().collect();
        check(&[Iteration { begun, ended, keys }], &lineages(&history_builder.history).unwrap())
    }

    #[test]
    fn a_key_that_is_missed_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        history_builder.puts(1, true);
        assert!(
            verdict(&mut history_builder, |_| (), false).unwrap_err().message.contains("without key \"key\"")
        );
        assert_eq!(verdict(&mut history_builder, |_| (), true), Ok(()));
    }

    #[test]
    fn a_key_that_is_only_overwritten_must_be_returned() {
        let mut history_builder = HistoryBuilder::default();
        history_builder.puts(1, true);
        let overwrite = |history_builder: &mut HistoryBuilder| history_builder.puts(2, false);
        assert!(verdict(&mut history_builder, overwrite, false).is_err());
    }

    #[test]
    fn a_key_that_came_or_went_meanwhile_may_be_missing() {
        let mut history_builder = HistoryBuilder::default();
        assert_eq!(
            verdict(&mut history_builder, |history_builder| history_builder.puts(1, true), false),
            Ok(())
        );
        assert_eq!(
            verdict(&mut history_builder, |history_builder| history_builder.deletes(2), false),
            Ok(())
        );
        assert_eq!(verdict(&mut history_builder, |_| (), false), Ok(()), "it is deleted");
        history_builder.puts(3, true);
        let unknown = |history_builder: &mut HistoryBuilder| history_builder.delete(always());
        assert_eq!(verdict(&mut history_builder, unknown, false), Ok(()));
    }

    #[test]
    fn a_key_that_was_created_again_before_must_be_returned() {
        let mut history_builder = HistoryBuilder::default();
        history_builder.puts(1, true);
        history_builder.deletes(2);
        history_builder.puts(3, true);
        assert!(verdict(&mut history_builder, |_| (), false).is_err());
    }
}
