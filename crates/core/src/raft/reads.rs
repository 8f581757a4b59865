//! Linearizable reads of one shard: batched ReadIndex rounds (Raft thesis, section 6.4).
//!
//! All reads that are queued before a round begins share it. The engine silently drops a round when
//! there is no leader, or when the leader has not committed in its term. So a round is repeated
//! until it is answered. The router refuses a read that reaches its deadline.
//!
//! Invariant: a read is answered only by a round that began after the read arrived. Contexts of
//! rounds are unique over nodes and restarts (a random number for each start, and a counter), so a
//! late reply to a round of an earlier process is never mistaken for a current one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::command::Read;
use crate::peer::RequestId;
use crate::types::{LogIndex, Ticks};

/// Ticks after which an unanswered round is repeated.
const ROUND_RETRY_TICKS: u64 = 2;

/// Maximum number of contexts remembered for one round. Replies to older repetitions are ignored.
const ROUND_CONTEXTS_MAX: usize = 8;

/// A read that waits for a round or for entries to be applied.
pub(super) struct Waiter {
    pub(super) request: RequestId,
    pub(super) read: Read,
    pub(super) arrived: Ticks,
}

/// The linearizable reads of one shard that are not answered yet: queued for the next round, part
/// of the round under way, or confirmed.
pub(super) struct Reads {
    boot: u64,
    rounds_begun: u64,
    queued: Vec<Waiter>,
    round: Option<Round>,
    /// Reads confirmed at an index that is not applied yet, by rising indexes.
    confirmed: VecDeque<(LogIndex, Vec<Waiter>)>,
}

struct Round {
    /// Contexts of this round and its repetitions. A reply to any of them is valid, because all
    /// began after the reads arrived.
    contexts: Vec<[u8; CONTEXT_BYTES]>,
    began: Ticks,
    sent: Ticks,
    waiters: Vec<Waiter>,
}

const CONTEXT_BYTES: usize = 16;

impl Round {
    /// Asserts that the round did not begin before its last read arrived.
    fn assert_began_after_reads(&self) {
        assert!(
            self.waiters.last().is_none_or(|waiter| waiter.arrived <= self.began),
            "invariant: a round begins after its reads arrived"
        );
    }
}

impl Reads {
    pub(super) fn new(boot: u64) -> Reads {
        Reads { boot, rounds_begun: 0, queued: Vec::new(), round: None, confirmed: VecDeque::new() }
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        self.queued.push(waiter);
    }

    /// Whether [`Reads::next_round`] would return a context.
    pub(super) fn wants_round(&self, now: Ticks) -> bool {
        match &self.round {
            None => !self.queued.is_empty(),
            Some(round) => now.0 >= round.sent.0 + ROUND_RETRY_TICKS,
        }
    }

    /// The context of a round to begin or repeat now, if any. At most one round is open at a time;
    /// reads that arrive during it share the next one.
    pub(super) fn next_round(&mut self, now: Ticks) -> Option<Vec<u8>> {
        if !self.wants_round(now) {
            return None;
        }
        self.rounds_begun += 1;
        let mut context = [0; CONTEXT_BYTES];
        context[..8].copy_from_slice(&self.boot.to_le_bytes());
        context[8..].copy_from_slice(&self.rounds_begun.to_le_bytes());
        match &mut self.round {
            Some(round) => {
                if round.contexts.len() == ROUND_CONTEXTS_MAX {
                    round.contexts.remove(0);
                }
                round.contexts.push(context);
                round.sent = now;
            }
            None => {
                let waiters = core::mem::take(&mut self.queued);
                let round = Round { contexts: alloc::vec![context], began: now, sent: now, waiters };
                round.assert_began_after_reads();
                self.round = Some(round);
            }
        }
        Some(context.to_vec())
    }

    /// Records that the leader has confirmed with a majority that it leads. The reads of the round
    /// with this `context` may be answered once the entry at `index` is applied here.
    pub(super) fn confirmed(&mut self, context: &[u8], index: LogIndex) {
        let Some(round) = self.round.take_if(|round| round.contexts.iter().any(|known| known == context))
        else {
            return;
        };
        round.assert_began_after_reads();
        // A later round can be confirmed at a lower index only through a message from an older
        // leader. Waiting for the higher index is always safe and keeps the queue in order.
        let floor = self.confirmed.back().map_or(index, |(last, _)| index.max(*last));
        self.confirmed.push_back((floor, round.waiters));
    }

    /// Takes all reads: this replica can answer none of them.
    pub(super) fn take_all(&mut self) -> Vec<Waiter> {
        let confirmed = core::mem::take(&mut self.confirmed).into_iter().flat_map(|(_, waiters)| waiters);
        let under_way = self.round.take().into_iter().flat_map(|round| round.waiters);
        confirmed.chain(under_way).chain(core::mem::take(&mut self.queued)).collect()
    }

    /// Takes the reads that were confirmed above `index`.
    pub(super) fn take_beyond(&mut self, index: LogIndex) -> impl Iterator<Item = Waiter> {
        let kept = self.confirmed.partition_point(|(confirmed, _)| *confirmed <= index);
        self.confirmed.split_off(kept).into_iter().flat_map(|(_, waiters)| waiters)
    }

    /// Takes the next reads that may be answered once `applied` is applied.
    pub(super) fn next_served(&mut self, applied: LogIndex) -> Option<Vec<Waiter>> {
        if self.confirmed.front().is_none_or(|(index, _)| *index > applied) {
            return None;
        }
        let (index, waiters) = self.confirmed.pop_front()?;
        assert!(
            self.confirmed.front().is_none_or(|(next, _)| *next >= index),
            "invariant: confirmed reads are in the order of their indexes"
        );
        Some(waiters)
    }

    /// Forgets reads that arrived before `oldest`: the router has refused them, and without a
    /// leader they would accumulate here.
    pub(super) fn forget_before(&mut self, oldest: Ticks) {
        let stale = |waiters: &[Waiter]| waiters.first().is_some_and(|waiter| waiter.arrived < oldest);
        if stale(&self.queued) {
            self.queued.retain(|waiter| waiter.arrived >= oldest);
        }
        if let Some(round) = &mut self.round
            && stale(&round.waiters)
        {
            round.waiters.retain(|waiter| waiter.arrived >= oldest);
            if round.waiters.is_empty() {
                self.round = None;
            }
        }
        while self.confirmed.front().is_some_and(|(_, waiters)| stale(waiters)) {
            let (index, mut waiters) = self.confirmed.pop_front().expect("invariant: there is a front");
            waiters.retain(|waiter| waiter.arrived >= oldest);
            if !waiters.is_empty() {
                self.confirmed.push_front((index, waiters));
                break;
            }
        }
    }

    /// Repeats the open round as soon as possible, because the leader changed.
    pub(super) fn retry_now(&mut self) {
        if let Some(round) = &mut self.round {
            round.sent = Ticks(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use bytes::Bytes;

    fn waiter(request: u64) -> Waiter {
        waiter_at(request, 0)
    }

    fn waiter_at(request: u64, arrived: u64) -> Waiter {
        let read = Read::Get { key: Bytes::from_static(b"a") };
        Waiter { request: RequestId(request), read, arrived: Ticks(arrived) }
    }

    fn served(reads: &mut Reads, applied: u64) -> Option<Vec<u64>> {
        let waiters = reads.next_served(LogIndex(applied))?;
        Some(waiters.into_iter().map(|waiter| waiter.request.0).collect())
    }

    #[test]
    fn reads_share_a_round_and_later_ones_wait_for_the_next() {
        let mut reads = Reads::new(9);
        reads.push(waiter(1));
        reads.push(waiter(2));
        let first = reads.next_round(Ticks(1)).expect("a round");
        reads.push(waiter(3));
        assert_eq!(reads.next_round(Ticks(1)), None);
        reads.confirmed(&first, LogIndex(5));
        assert_eq!(served(&mut reads, 4), None);
        assert_eq!(served(&mut reads, 5), Some(alloc::vec![1, 2]));
        let second = reads.next_round(Ticks(1)).expect("the next round");
        reads.confirmed(&first, LogIndex(9));
        assert_eq!(
            served(&mut reads, 9),
            None,
            "an answer to the first round confirms nothing of the second"
        );
        reads.confirmed(&second, LogIndex(9));
        assert_eq!(served(&mut reads, 9), Some(alloc::vec![3]));
    }

    #[test]
    fn an_unanswered_round_is_repeated_and_any_answer_will_do() {
        let mut reads = Reads::new(9);
        reads.push(waiter(1));
        let first = reads.next_round(Ticks(1)).expect("a round");
        assert_eq!(reads.next_round(Ticks(2)), None);
        let again = reads.next_round(Ticks(3)).expect("repeated");
        assert_ne!(first, again);
        reads.confirmed(&first, LogIndex(1));
        assert_eq!(served(&mut reads, 1), Some(alloc::vec![1]));
        reads.confirmed(&again, LogIndex(1));
        assert_eq!(served(&mut reads, 1), None);
    }

    #[test]
    fn reads_given_up_do_not_pile_up() {
        let mut reads = Reads::new(9);
        reads.push(waiter_at(1, 1));
        reads.next_round(Ticks(1)).expect("a round");
        reads.push(waiter_at(2, 1));
        reads.push(waiter_at(3, 5));
        reads.forget_before(Ticks(5));
        assert!(reads.round.is_none());
        let context = reads.next_round(Ticks(5)).expect("a round for what is left");
        reads.confirmed(&context, LogIndex(9));
        reads.forget_before(Ticks(5));
        assert_eq!(served(&mut reads, 9), Some(alloc::vec![3]));
    }

    #[test]
    #[should_panic(expected = "invariant: a round begins after its reads arrived")]
    fn a_round_serves_no_read_that_arrives_later() {
        let mut reads = Reads::new(9);
        reads.push(waiter_at(1, 2));
        reads.next_round(Ticks(1));
    }

    #[test]
    #[should_panic(expected = "invariant: confirmed reads are in the order of their indexes")]
    fn no_read_waits_behind_a_higher_index() {
        let mut reads = Reads::new(9);
        reads.confirmed.extend([(LogIndex(5), vec![waiter(1)]), (LogIndex(4), vec![waiter(2)])]);
        reads.next_served(LogIndex(5));
    }

    #[test]
    fn contexts_differ_between_boots() {
        let context = |boot| {
            let mut reads = Reads::new(boot);
            reads.push(waiter(1));
            reads.next_round(Ticks(1))
        };
        assert_ne!(context(1), context(2));
    }
}
