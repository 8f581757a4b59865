//! Checks leases, locks and fences.
//!
//! By the committed log, which a model replays ([`operations`](super::operations)):
//!
//! 1. A leader ends leases only by a time that its clock has shown, and only those for whose time
//!    to live it has led in the term of the entry, by its clock and by the time of the run. Steps
//!    of the clock that are too small to be noticed are allowed. The model knows which leases
//!    these are.
//! 2. Each answer to a change of a lease or lock is the model's, so queues are served in their
//!    order, and nobody keeps a place that it has lost.
//!
//! By what clients saw, whatever the log says:
//!
//! 3. A fence belongs to one lease, and fences rise: who holds a lock after another had held it has
//!    a higher fence.
//! 4. Of the writes that a lock guards, none happens after one with a higher fence.
//!
//! That the leases of a healed cluster end in time is a part of the final inspection
//! ([`world`](crate::world)).

use std::collections::BTreeMap;

use bytes::Bytes;
use tidelock_core::command::{
    ExpectedState, LeaseExpiry, LeaseId, LockReply, LockWrite, Refusal, Reply, Request, Write, WriteReply,
};
use tidelock_core::types::{ShardId, Version};

use super::operations::{Ledger, ShardModel};
use super::replay::{LogJudge, is_refused};
use super::{Checker, FinishedRun, Violation};
use crate::history::{History, Operation};
use crate::leases::{proposed_at, token_in, without_time};

const JUDGE: LogJudge = LogJudge { checker: "leases" };

/// Judges leases, locks and fences.
pub struct Leases;

impl Checker for Leases {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.history, run.ledger)
    }
}

fn check(history: &History, ledger: &Ledger) -> Result<(), Violation> {
    judge_fences(history)?;
    judge_guarded_writes(history)?;
    let mut entries = Vec::new();
    for (shard, writes) in ledger.shards() {
        entries.extend(replay(ledger, (shard, writes))?);
    }
    judge_unnamed(history, entries)
}

/// A change of the log that names no operation, with the model's answer.
struct UnnamedEntry {
    write: Write,
    answer: Reply,
}

/// Judges the times of a log. Returns the changes that name no operation.
fn replay(ledger: &Ledger, (shard, writes): (ShardId, &[Write])) -> Result<Vec<UnnamedEntry>, Violation> {
    let (mut model, mut entries) = (ShardModel::default(), Vec::new());
    for (place, write) in writes.iter().enumerate() {
        if let Write::Expire { leases: Some(LeaseExpiry { led_since, .. }), now, .. } = write
            && !ledger.has_led((shard, place), *led_since, *now)
        {
            let text = format!(
                "leases of shard {shard} were ended at {now} by a leader that had not led since {led_since}"
            );
            return Err(Violation::new(JUDGE.checker, text));
        }
        let answer = model.apply(write);
        let is_unnamed = matches!(write, Write::Lease(_) | Write::Lock(_)) && token_in(write).is_none();
        let (Ok(Some(answer)), true) = (answer, is_unnamed) else { continue };
        if let Some(at) = proposed_at(write).filter(|at| !ledger.was_shown_to_proposer((shard, place), *at)) {
            let text =
                format!("a lease of shard {shard} counts from {at}, which its leader's clock never showed");
            return Err(Violation::new(JUDGE.checker, text));
        }
        entries.push(UnnamedEntry { write: without_time(write), answer });
    }
    Ok(entries)
}

/// Checks that the log holds each acknowledged change that names no operation, with this answer,
/// and none that nobody asked for.
fn judge_unnamed(history: &History, entries: Vec<UnnamedEntry>) -> Result<(), Violation> {
    let asked = |operation: &&Operation| {
        operation.write().is_some_and(|write| {
            matches!(write, Write::Lease(_) | Write::Lock(_)) && token_in(write).is_none()
        })
    };
    let mut open: Vec<&Operation> = history.operations().iter().filter(asked).collect();
    for UnnamedEntry { write, answer } in entries {
        let is_it = |operation: &&Operation| operation.write() == Some(&write);
        let answered =
            open.iter().position(|operation| is_it(operation) && operation.reply() == Some(&answer));
        let position = answered
            .or_else(|| open.iter().position(|operation| is_it(operation) && is_unknown(operation.reply())));
        let Some(position) = position else {
            let text = format!("nobody was answered {answer:?}, the outcome of {write:?} in the log");
            return Err(Violation::new(JUDGE.checker, text));
        };
        open.remove(position);
    }
    match open.into_iter().find(|operation| operation.reply().is_some_and(|reply| !is_refused(reply))) {
        Some(operation) => JUDGE.blame(
            operation,
            format!("was answered {:?}, and no entry of the log has this outcome", operation.reply()),
        ),
        None => Ok(()),
    }
}

fn is_unknown(reply: Option<&Reply>) -> bool {
    matches!(reply, None | Some(Reply::Refused(Refusal::UnknownOutcome)))
}

/// A lock that a client was told to hold.
struct SeenHolder<'a> {
    fence: Version,
    lease: &'a LeaseId,
    operation: &'a Operation,
}

fn judge_fences(history: &History) -> Result<(), Violation> {
    let mut seen: BTreeMap<&Bytes, Vec<SeenHolder<'_>>> = BTreeMap::new();
    for operation in history.of_clients() {
        if let (
            Request::Write(Write::Lock(write)),
            Some(Reply::Write(WriteReply::Lock(LockReply::Held { fence, .. }))),
        ) = (&operation.request, operation.reply())
        {
            let LockWrite { name, lease, .. } = &**write;
            seen.entry(name).or_default().push(SeenHolder { fence: *fence, lease, operation });
        }
    }
    for holders in seen.values() {
        for (position, earlier) in holders.iter().enumerate() {
            for later in &holders[position + 1..] {
                let is_same = earlier.fence == later.fence;
                if is_same && earlier.lease != later.lease {
                    let text = format!("got fence {}, as {} did", later.fence, earlier.lease);
                    return JUDGE.blame(later.operation, text);
                }
                let is_after = earlier.operation.completed() < later.operation.invoked;
                if is_after && later.fence < earlier.fence {
                    let text = format!("got fence {} after fence {}", later.fence, earlier.fence);
                    return JUDGE.blame(later.operation, text);
                }
            }
        }
    }
    Ok(())
}

/// Checks the writes that happened under a fence, in the order of real time.
fn judge_guarded_writes(history: &History) -> Result<(), Violation> {
    let mut done: BTreeMap<&Bytes, Vec<(Version, &Operation)>> = BTreeMap::new();
    for operation in history.of_clients() {
        let (
            Some(Write::Conditional(transaction)),
            Some(Reply::Write(WriteReply::Branched { succeeded, .. })),
        ) = (operation.write(), operation.reply())
        else {
            continue;
        };
        let fences = transaction.comparisons.iter().filter_map(|comparison| match comparison.expected {
            ExpectedState::Fence(fence) => Some((&comparison.key, fence)),
            _ => None,
        });
        for (name, fence) in fences.filter(|_| *succeeded) {
            done.entry(name).or_default().push((fence, operation));
        }
    }
    for writes in done.values() {
        for (fence, write) in writes {
            let overtaken = writes
                .iter()
                .find(|(later_fence, later)| later_fence > fence && later.completed() < write.invoked);
            if let Some((later_fence, later)) = overtaken {
                let text = format!(
                    "wrote under fence {fence} after operation {} had under fence {later_fence}",
                    later.token
                );
                return JUDGE.blame(write, text);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_queue::Micros;
    use crate::history::Incarnation;
    use tidelock_core::command::{
        Comparison, ConditionalTransaction, LeaseReply, LeaseTag, LeaseWrite, LockOperation,
    };
    use tidelock_core::types::{LogIndex, NodeId, Term, UnixMillis};

    const SHARD: ShardId = ShardId(1);
    const NAME: &[u8] = b"{t}lock";

    #[derive(Default)]
    struct Run {
        history: History,
        ledger: Ledger,
        entries: u64,
    }

    impl Run {
        fn answered(&mut self, write: impl Into<Write>, reply: WriteReply) {
            let at = Incarnation { node: NodeId(1), life: 1 };
            let token = self.history.invoke(at, Request::Write(write.into()), false);
            assert!(self.history.answer(token, Reply::Write(reply)));
        }

        fn logged(&mut self, write: impl Into<Write>) {
            let write = write.into();
            self.entries += 1;
            self.ledger.observe(SHARD, LogIndex(self.entries), |_| Some((Term(1), vec![write.clone()])));
        }

        /// A clock showed a time when the run had lasted for so long, all in milliseconds.
        fn shown(&mut self, node: NodeId, shown: u64, at: u64) {
            self.ledger.clock(node, UnixMillis(shown), Micros(at * 1_000));
        }

        fn held(&mut self, lease: &str, fence: u64) {
            let operation = LockOperation::Acquire { value: Bytes::new(), waits: false, at: UnixMillis(0) };
            let lease = LeaseId::parse(lease.as_bytes()).expect("an id");
            let reply = LockReply::Held { fence: Version(fence), valid_for_ms: 1 };
            self.answered(LockWrite { name: NAME.into(), lease, operation }, WriteReply::Lock(reply));
        }

        fn guarded(&mut self, fence: u64, succeeded: bool) {
            let expected = ExpectedState::Fence(Version(fence));
            let comparisons = vec![Comparison { key: NAME.into(), expected }];
            let transaction = ConditionalTransaction { comparisons, ..Default::default() };
            let reply = WriteReply::Branched { succeeded, replies: Default::default() };
            self.answered(Write::Conditional(Box::new(transaction)), reply);
        }

        /// What clients saw, without the log.
        fn blame_of_fences(&self) -> String {
            judge_fences(&self.history).err().map_or_else(String::new, |violation| violation.message)
        }

        fn blame(&self) -> String {
            check(&self.history, &self.ledger).err().map_or_else(String::new, |violation| violation.message)
        }
    }

    fn grant(at: u64) -> LeaseWrite {
        LeaseWrite::Grant { tag: LeaseTag::new(b"t").expect("a tag"), ttl_ms: 1_000, at: UnixMillis(at) }
    }

    fn granted(number: u64) -> WriteReply {
        let lease = LeaseId::new(LeaseTag::new(b"t").expect("a tag"), Version(number));
        WriteReply::Lease(LeaseReply::Granted { lease, ttl_ms: 1_000 })
    }

    fn expire(now: u64, led_since: u64) -> Write {
        let leases = Some(LeaseExpiry { led_since: UnixMillis(led_since), shortens: true });
        Write::Expire { shard: SHARD, now: UnixMillis(now), limit: 1, leases }
    }

    #[test]
    fn fences_of_two_leases_and_falling_ones_are_noticed() {
        let mut run = Run::default();
        run.held("{t}:1", 5);
        run.held("{t}:1", 5);
        run.held("{t}:2", 7);
        assert_eq!(run.blame_of_fences(), "");
        run.held("{t}:3", 7);
        assert!(run.blame_of_fences().contains("got fence 7, as {t}:2 did"), "{}", run.blame_of_fences());
        let mut run = Run::default();
        run.held("{t}:1", 5);
        run.held("{t}:2", 4);
        assert!(run.blame_of_fences().contains("got fence 4 after fence 5"), "{}", run.blame_of_fences());
    }

    #[test]
    fn a_guarded_write_of_a_former_holder_is_noticed() {
        let mut run = Run::default();
        run.guarded(5, true);
        run.guarded(7, true);
        run.guarded(5, false);
        assert_eq!(run.blame(), "");
        run.guarded(5, true);
        assert!(run.blame().contains("under fence 5 after operation 2"), "{}", run.blame());
    }

    #[test]
    fn changes_that_the_log_has_otherwise_or_nobody_asked_for_are_noticed() {
        let mut run = Run::default();
        run.answered(grant(0), granted(1));
        assert!(run.blame().contains("no entry of the log"), "{}", run.blame());
        run.logged(grant(9));
        assert_eq!(run.blame(), "");
        run.logged(grant(9));
        assert!(run.blame().contains("nobody was answered"), "{}", run.blame());
        run.answered(grant(0), granted(7));
        assert!(run.blame().contains("nobody was answered"), "the log says 2: {}", run.blame());
    }

    #[test]
    fn a_leader_that_ends_leases_too_early_is_noticed() {
        let mut run = Run::default();
        let node = NodeId(1);
        run.shown(node, 100, 0);
        run.shown(node, 200, 100);
        run.ledger.leader(node, SHARD, Term(1));
        run.shown(node, 300, 200);
        run.logged(expire(300, 200));
        assert_eq!(run.blame(), "");
        run.logged(expire(300, 100));
        assert!(run.blame().contains("had not led since"), "{}", run.blame());
    }

    #[test]
    fn a_leader_that_counts_the_time_by_which_its_clock_was_set_is_noticed() {
        let mut run = Run::default();
        let node = NodeId(1);
        run.ledger.leader(node, SHARD, Term(1));
        for (shown, at) in [(100, 0), (9_000, 50), (9_100, 150)] {
            run.shown(node, shown, at);
        }
        run.logged(expire(9_100, 9_000));
        assert_eq!(run.blame(), "");
        run.logged(expire(9_000, 100));
        assert!(run.blame().contains("had not led since"), "{}", run.blame());
        // The clock was set back, and shows the same time again.
        run.shown(node, 9_000, 8_900);
        assert_eq!(run.blame(), "");
    }
}
