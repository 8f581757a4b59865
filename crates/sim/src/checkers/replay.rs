//! Rules for checkers that replay the committed log: commands and reads are in the order of real
//! time, and the log contains what was acknowledged.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use tidelock_core::command::{Denial, Refusal, Reply, WriteReply};

use super::Violation;
use crate::history::{Incarnation, Moment, Operation};
use crate::watcher::WatchedContent;

/// Judges by the log for one checker.
#[derive(Clone, Copy)]
pub(super) struct LogJudge {
    pub(super) checker: &'static str,
}

/// A read that was answered.
pub(super) struct AnsweredRead<'a, R> {
    pub(super) operation: &'a Operation,
    /// The query with its answer.
    pub(super) read: R,
    pub(super) is_stale: bool,
}

/// Checks that commands follow each other in the log as they did in real time.
#[derive(Default)]
pub(super) struct LogOrder<'a> {
    /// The latest request among the commands so far.
    latest: Option<&'a Operation>,
}

impl LogJudge {
    /// Blames an operation.
    pub(super) fn blame<T>(
        self,
        operation: &Operation,
        text: impl std::fmt::Display,
    ) -> Result<T, Violation> {
        let text = format!("operation {} on node {} {text}", operation.token, operation.at.node);
        Err(Violation::new(self.checker, text))
    }

    /// Checks that the log contains an acknowledged command, and does not contain a refused one.
    pub(super) fn judge_presence(self, operation: &Operation, is_in_log: bool) -> Result<(), Violation> {
        match operation.reply() {
            None | Some(Reply::Refused(Refusal::UnknownOutcome)) => Ok(()),
            Some(reply) if is_refused(reply) && is_in_log => {
                self.blame(operation, format!("was refused and stands in the log: {:?}", operation.request))
            }
            Some(reply) if is_refused(reply) => Ok(()),
            Some(_) if !is_in_log => self.blame(operation, "was answered and stands in no log"),
            Some(_) => Ok(()),
        }
    }

    /// Checks that the next command of the log was not answered before an earlier one was
    /// requested.
    pub(super) fn judge_order<'a>(
        self,
        order: &mut LogOrder<'a>,
        operation: &'a Operation,
    ) -> Result<(), Violation> {
        if let Some(latest) = order.latest.filter(|latest| latest.invoked > settled(operation)) {
            let text = format!("was answered before operation {} began, and stands behind it", latest.token);
            return self.blame(operation, text);
        }
        if order.latest.is_none_or(|latest| operation.invoked > latest.invoked) {
            order.latest = Some(operation);
        }
        Ok(())
    }

    /// Finds a place between two commands for each read, the earliest one, in the order of their
    /// answers. A place is the number of commands before it. `writes` are commands with the places
    /// after them, and `find` returns the first place of a range that explains an answer. Stale
    /// reads are only bound by earlier ones of the same process.
    pub(super) fn place_reads<R>(
        self,
        mut reads: Vec<AnsweredRead<'_, R>>,
        writes: &[(&Operation, usize)],
        commands: usize,
        find: impl Fn(RangeInclusive<usize>, &R) -> Option<usize>,
    ) -> Result<(), Violation> {
        reads.sort_by_key(|read| read.operation.completed());
        let mut placed: Vec<(Moment, usize)> = Vec::new();
        let mut stale: BTreeMap<Incarnation, Vec<(Moment, usize)>> = BTreeMap::new();
        for AnsweredRead { operation, read, is_stale } in reads {
            let before =
                if is_stale { stale.entry(operation.answered_by()).or_default() } else { &mut placed };
            let read_before = before.iter().filter(|(completed, _)| *completed < operation.invoked);
            let answered = writes.iter().filter(|(write, _)| !is_stale && settled(write) < operation.invoked);
            let fresh = answered.map(|(_, place)| *place).chain(read_before.map(|(_, place)| *place)).max();
            let low = fresh.unwrap_or(0);
            let asked_later = writes.iter().filter(|(write, _)| write.invoked > operation.completed());
            let high = asked_later.map(|(_, place)| place - 1).min().unwrap_or(commands);
            match find(low..=high, &read) {
                Some(place) => before.push((operation.completed(), place)),
                None => {
                    let reply = operation.reply();
                    let text =
                        format!("was answered {reply:?}, which no state from {low} to {high} explains");
                    return self.blame(operation, text);
                }
            }
        }
        Ok(())
    }
}

/// When a command had certainly been applied. One of unknown outcome may be applied at any later
/// time.
fn settled(operation: &Operation) -> Moment {
    match operation.reply() {
        Some(reply) if !is_refused(reply) => operation.completed(),
        _ => Moment::NEVER,
    }
}

/// Whether a command was refused, or its outcome is not known. A node also refuses a command that
/// is newer than the cluster.
pub(super) fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(_) | Reply::Write(WriteReply::Denied(Denial::VersionTooLow)))
}

/// The watches of a client, each over all connections that continued it.
pub(super) fn watches(received: &[WatchedContent]) -> impl Iterator<Item = &[WatchedContent]> {
    received.chunk_by(|_, next| !next.begins)
}

/// Checks that the revisions of a watch increase, also across connections and deletions of the
/// namespace, and that a deletion is not reported twice.
pub(super) fn judge_event_order(watch: &[WatchedContent]) -> Result<(), String> {
    if watch.windows(2).any(|two| two[0].revision == 0 && two[1].revision == 0) {
        return Err("received twice that the namespace does not exist".into());
    }
    let revisions: Vec<u64> =
        watch.iter().map(|event| event.revision).filter(|revision| *revision > 0).collect();
    match revisions.windows(2).find(|two| two[0] >= two[1]) {
        Some(two) => Err(format!("received revision {} before {}", two[0], two[1])),
        None => Ok(()),
    }
}

/// Checks that no change before the last event is missing, unless a gap was reported. `changes` are
/// the revisions that changed the container.
pub(super) fn judge_missing_events(
    received: &[&WatchedContent],
    mut changes: impl Iterator<Item = u64>,
) -> Result<(), String> {
    let Some(last) = received.last() else { return Ok(()) };
    let gap = received.iter().filter(|event| event.after_gap).map(|event| event.revision).max();
    let is_missing = |revision: &u64| {
        gap.is_none_or(|gap| *revision > gap)
            && *revision <= last.revision
            && !received.iter().any(|event| event.revision == *revision)
    };
    match changes.find(is_missing) {
        Some(revision) => Err(format!("did not receive revision {revision}")),
        None => Ok(()),
    }
}
