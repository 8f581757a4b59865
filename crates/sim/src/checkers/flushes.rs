//! Checks that a flush that was answered as complete has removed every key: no later read shows a
//! value whose put was answered before the flush was requested.
//!
//! `lineage` trusts the revisions that the answer states, and leaves open what happened to slots
//! without one. This checker uses only the order of requests and answers.

use tidelock_core::command::{FlushReply, Reply, Request};
use tidelock_core::types::Version;

use super::lineage::{Lineage, Lineages, Sighting};
use super::{Checker, FinishedRun, Violation, describe};
use crate::history::{History, Operation};

const CHECKER: &str = "flushes";

/// Judges that complete flushes removed every key.
pub struct Flushes;

impl Checker for Flushes {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.history, run.lineages()?)
    }
}

/// Judges every complete flush.
pub fn check(history: &History, lineages: &Lineages) -> Result<(), Violation> {
    let is_complete = |operation: &&Operation| {
        operation.request == Request::Flush
            && matches!(operation.reply(), Some(Reply::Flushed(FlushReply::Complete(_))))
    };
    let flushes: Vec<&Operation> = history.of_clients().filter(is_complete).collect();
    for (key, lineage) in lineages {
        for seen in lineage.sightings.iter().filter(|seen| seen.version != Version::ABSENT) {
            if let Some(flush) = flushes.iter().find(|flush| has_survived(lineage, seen, flush)) {
                let text = format!(
                    "operation {} saw {}, put before the flush {}",
                    seen.token,
                    describe(key, seen.version),
                    flush.token
                );
                return Err(Violation::new(CHECKER, text));
            }
        }
    }
    Ok(())
}

/// Whether a read after a flush shows a put that was answered before it.
fn has_survived(lineage: &Lineage, seen: &Sighting, flush: &Operation) -> bool {
    if seen.stale_at.is_some() || seen.invoked < flush.completed() {
        return false;
    }
    let put = lineage.mutations.binary_search_by_key(&seen.version, |mutation| mutation.version);
    put.is_ok_and(|put| lineage.mutations[put].completed < flush.invoked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::HistoryBuilder;
    use crate::checkers::lineage::lineages;
    use tidelock_core::slots::slot_revisions::SlotRevisions;

    fn verdict(is_put_before: bool, is_complete: bool) -> Result<(), Violation> {
        let mut history = HistoryBuilder::default();
        let before = is_put_before.then(|| history.puts(1, true));
        let flush = history.ask(Request::Flush);
        let put = before.unwrap_or_else(|| history.puts(1, true));
        if is_complete {
            history.answer(flush, Reply::Flushed(FlushReply::Complete(SlotRevisions::default())));
        }
        let get = history.get();
        history.sees(get, 1, put);
        check(&history.history, &lineages(&history.history).expect("no contradiction"))
    }

    #[test]
    fn a_value_that_survives_a_flush_is_noticed() {
        assert!(verdict(true, true).unwrap_err().message.contains("before the flush"));
        assert_eq!(verdict(false, true), Ok(()));
        assert_eq!(verdict(true, false), Ok(()));
    }
}
