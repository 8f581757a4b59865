//! Checks that scripts take effect one after the other: none overwrites the effect of another, and
//! each reads what scripts before it wrote, of all its keys at one instant.
//!
//! The scripts count, in two keys. A removal of all keys sets both back to nothing. In such a run
//! counts say little, but a version still has one successor.

use std::collections::{BTreeMap, BTreeSet};

use tidelock_core::command::Request;
use tidelock_core::types::Version;

use super::{Checker, FinishedRun, Violation, describe};
use crate::history::{CounterRun, History, Moment};

const CHECKER: &str = "scripts";

/// Judges that no effect of a script is lost.
pub struct Scripts;

impl Checker for Scripts {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.history, run.counter_runs)
    }
}

/// Judges all runs that were answered.
pub fn check(history: &History, runs: &[CounterRun]) -> Result<(), Violation> {
    let mut counters: BTreeMap<_, Vec<&CounterRun>> = BTreeMap::new();
    runs.iter().for_each(|run| counters.entry(&run.key).or_default().push(run));
    let is_flushed = history.of_clients().any(|operation| operation.request == Request::Flush);
    for runs in counters.into_values() {
        let mut written = BTreeSet::new();
        for run in &runs {
            if run.counts[0] != run.counts[1] {
                return blame(run, "read counts of two instants".to_owned());
            }
            let may_be_absent_again = is_flushed && run.version == Version::ABSENT;
            if run.write.is_some() && !may_be_absent_again && !written.insert(run.version) {
                return blame(run, "overwrote the effect of another script that read the same".to_owned());
            }
        }
        if !is_flushed {
            judge_order(history, &runs)?;
        }
    }
    Ok(())
}

/// Checks that each script reads at least what those counted that were answered before its read.
fn judge_order(history: &History, runs: &[&CounterRun]) -> Result<(), Violation> {
    let completed = |run: &CounterRun| {
        let write = run.write.and_then(|token| history.operation(token));
        write.map_or(Moment::NEVER, |write| write.completed())
    };
    let invoked = |run: &CounterRun| history.operation(run.read).map_or(Moment(0), |read| read.invoked);
    let mut counted: Vec<(Moment, u64)> =
        runs.iter().map(|run| (completed(run), run.counts[0] + 1)).collect();
    counted.sort_unstable();
    let mut reads = runs.to_vec();
    reads.sort_by_key(|run| invoked(run));
    let (mut done, mut count) = (counted.into_iter().peekable(), 0);
    for run in reads {
        while let Some((_, next)) = done.next_if(|(completed, _)| *completed < invoked(run)) {
            count = count.max(next);
        }
        if run.counts[0] < count {
            return blame(run, format!("did not read {count}, which another script had written"));
        }
    }
    Ok(())
}

fn blame(run: &CounterRun, text: String) -> Result<(), Violation> {
    let read = describe(&run.key, run.version);
    let text = format!("the script of operation {} read {read} ({:?}) and {text}", run.read, run.counts);
    Err(Violation::new(CHECKER, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{HistoryBuilder, KEY};

    #[derive(Default)]
    struct Scene {
        builder: HistoryBuilder,
        runs: Vec<CounterRun>,
    }

    impl Scene {
        /// A script from its read to the answer of its write.
        fn counts(&mut self, version: u64, counts: [u64; 2], writes: bool) {
            let read = self.builder.get();
            self.builder.not_found(read);
            let write = writes.then(|| self.builder.puts(version + 1, false));
            self.runs.push(CounterRun { key: KEY, read, version: Version(version), counts, write });
        }

        fn blame(&self) -> String {
            let verdict = check(&self.builder.history, &self.runs);
            verdict.err().map_or_else(String::new, |violation| violation.message)
        }
    }

    #[test]
    fn lost_updates_are_noticed() {
        let mut scene = Scene::default();
        scene.counts(0, [0, 0], true);
        scene.counts(4, [1, 1], true);
        scene.counts(9, [2, 2], false);
        scene.counts(9, [2, 2], true);
        assert_eq!(scene.blame(), "");
        scene.counts(9, [2, 2], true);
        assert!(scene.blame().contains("overwrote"), "{}", scene.blame());
    }

    #[test]
    fn absence_says_little_while_all_keys_are_removed() {
        let mut scene = Scene::default();
        scene.counts(0, [0, 0], true);
        scene.counts(0, [0, 0], true);
        assert!(scene.blame().contains("overwrote"), "{}", scene.blame());
        scene.builder.ask(Request::Flush);
        assert_eq!(scene.blame(), "");
        scene.counts(5, [1, 1], true);
        scene.counts(5, [1, 1], true);
        assert!(scene.blame().contains("overwrote"), "{}", scene.blame());
    }

    #[test]
    fn old_and_torn_reads_are_noticed() {
        let mut scene = Scene::default();
        scene.counts(7, [3, 3], true);
        scene.counts(6, [2, 2], false);
        assert!(scene.blame().contains("did not read 4"), "{}", scene.blame());
        let mut scene = Scene::default();
        scene.counts(7, [3, 4], false);
        assert!(scene.blame().contains("two instants"), "{}", scene.blame());
    }
}
