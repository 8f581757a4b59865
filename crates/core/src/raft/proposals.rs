//! Commands waiting to enter the log: batched into entries, and matched with their replies by
//! position.
//!
//! Invariant: every accepted command ends as exactly one [`Outcome`]. The exception are commands of
//! an entry whose fate this replica never learns. They stay here until the deadline of their
//! origin, which then reports an unknown outcome.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::codec::{self, DecodeError, Decoder};
use crate::command::Write;
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::peer::Origin;
use crate::types::{LogIndex, Term};

/// First byte of an entry's data: the version of its layout.
const ENTRY_FORMAT: u8 = 1;

/// With this many commands waiting for each entry in flight, another entry is opened. With fewer, a
/// batch that waits one round trip longer grows at no cost in throughput.
const COMMANDS_PER_FURTHER_ENTRY: usize = 32;

/// Room that a batch begins with, for the commands of a few dozen clients.
const BATCH_BYTES: usize = 1 << 10;
const BATCH_COMMANDS: usize = 16;

/// Encoded commands, with the origin of each.
struct Batch {
    commands: Vec<u8>,
    waiters: Vec<Origin>,
}

struct InFlight {
    term: Term,
    index: LogIndex,
    waiters: Vec<Origin>,
}

/// The queued and the proposed commands of one shard.
#[derive(Default)]
pub(super) struct Proposals {
    queue: VecDeque<Batch>,
    queued_commands: usize,
    queued_bytes: usize,
    in_flight: VecDeque<InFlight>,
    faults: Faults,
}

impl Proposals {
    pub(super) fn new(faults: Faults) -> Proposals {
        Proposals { faults, ..Proposals::default() }
    }

    /// Queues a command. Fails before any effect if the queue is full.
    pub(super) fn push(&mut self, write: &Write, origin: Origin) -> Result<(), QueueFull> {
        if self.queued_bytes >= limits::SHARD_QUEUE_BYTES_MAX {
            return Err(QueueFull);
        }
        if self.queue.back().is_none_or(|batch| batch.commands.len() >= limits::ENTRY_BYTES_CLOSE) {
            let commands = Vec::with_capacity(BATCH_BYTES);
            self.queue.push_back(Batch { commands, waiters: Vec::with_capacity(BATCH_COMMANDS) });
        }
        let batch = self.queue.back_mut().expect("invariant: a batch was pushed just now");
        let before = batch.commands.len();
        write.encode(&mut batch.commands);
        batch.waiters.push(origin);
        self.queued_bytes += batch.commands.len() - before;
        self.queued_commands += 1;
        Ok(())
    }

    /// The data of the next entry and the origins of its commands, if an entry should be proposed
    /// now, in `term`.
    pub(super) fn next_entry(&mut self, term: Term) -> Option<(Bytes, Vec<Origin>)> {
        let in_flight = self.in_flight.iter().rev().take_while(|entry| entry.term == term).count();
        let wanted = in_flight * COMMANDS_PER_FURTHER_ENTRY;
        if in_flight >= limits::ENTRIES_IN_FLIGHT_MAX || self.queued_commands < wanted.max(1) {
            return None;
        }
        let batch = self.queue.pop_front()?;
        self.queued_commands -= batch.waiters.len();
        self.queued_bytes -= batch.commands.len();
        Some((entry_data(batch.waiters.len(), &batch.commands), batch.waiters))
    }

    /// Records that an entry from [`Proposals::next_entry`] is in the log.
    pub(super) fn proposed(&mut self, term: Term, index: LogIndex, waiters: Vec<Origin>) {
        if let Some(last) = self.in_flight.back() {
            assert!(
                (last.term, last.index) < (term, index),
                "invariant: proposed entries follow one another in the log"
            );
        }
        self.in_flight.push_back(InFlight { term, index, waiters });
    }

    /// Handles an applied entry. Returns the origins that wait for its replies, in the order of its
    /// commands. Origins of entries that can no longer commit are added to `dead`.
    ///
    /// Once an entry of some term is committed, an uncommitted entry of an earlier term will never
    /// be committed: it would have to follow an entry of a higher term in a later leader's log
    /// (Raft paper, 5.4.3).
    pub(super) fn applied(&mut self, term: Term, index: LogIndex, dead: &mut Vec<Origin>) -> Vec<Origin> {
        while let Some(front) = self.in_flight.front() {
            let term_ignored = self.faults.has(Fault::DeposedSessionAnswered);
            if front.index == index && (front.term == term || term_ignored) {
                return self.in_flight.pop_front().map(|entry| entry.waiters).unwrap_or_default();
            }
            if front.term >= term || (term_ignored && front.index > index) {
                break;
            }
            dead.extend(self.in_flight.pop_front().into_iter().flat_map(|entry| entry.waiters));
        }
        Vec::new()
    }

    /// Forgets entries that a snapshot covers, which may be committed or not. Their origins report
    /// an unknown outcome.
    pub(super) fn forget_up_to(&mut self, index: LogIndex) {
        self.in_flight.retain(|entry| entry.index > index);
    }

    /// The origins that [`Fault::OvertakenCommandRetried`] takes for dead; none without the fault.
    pub(super) fn overtaken(&self, index: LogIndex) -> Vec<Origin> {
        if !self.faults.has(Fault::OvertakenCommandRetried) {
            return Vec::new();
        }
        let overtaken = self.in_flight.iter().filter(|entry| entry.index <= index);
        overtaken.flat_map(|entry| entry.waiters.iter().copied()).collect()
    }

    /// Removes all commands that were not proposed yet.
    pub(super) fn drain_queue(&mut self, dead: &mut Vec<Origin>) {
        dead.extend(self.queue.drain(..).flat_map(|batch| batch.waiters));
        self.queued_commands = 0;
        self.queued_bytes = 0;
    }
}

/// The shard's queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

fn entry_data(count: usize, commands: &[u8]) -> Bytes {
    let mut data = Vec::with_capacity(commands.len() + 4);
    data.push(ENTRY_FORMAT);
    codec::put_varint(&mut data, count as u64);
    data.extend_from_slice(commands);
    data.into()
}

/// Encodes writes as the data of an entry.
pub(crate) fn encode_writes(writes: &[Write]) -> Bytes {
    let mut commands = Vec::new();
    writes.iter().for_each(|write| write.encode(&mut commands));
    entry_data(writes.len(), &commands)
}

/// The writes in the data of an entry, if it holds any.
pub(crate) fn writes_of(data: &Bytes) -> Vec<Write> {
    decode_entry(data).unwrap_or_default()
}

/// Decodes the writes of an entry, in order.
pub(crate) fn decode_entry(data: &Bytes) -> Result<Vec<Write>, DecodeError> {
    if data.is_empty() {
        return Ok(Vec::new());
    }
    let mut decoder = Decoder::new(data);
    if decoder.u8()? != ENTRY_FORMAT {
        return Err(DecodeError::UnknownTag("entry format"));
    }
    let count = decoder.varint()?;
    let mut writes = Vec::with_capacity((count as usize).min(data.len() / 3));
    for _ in 0..count {
        writes.push(Write::decode_logged(&mut decoder, data)?);
    }
    decoder.finish()?;
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Condition, Operation};
    use crate::peer::{LinkNumber, RequestId};
    use crate::types::NodeId;
    use alloc::vec;

    fn write(key: &'static str) -> Write {
        Write::of(&Operation::Delete { key: key.as_bytes(), condition: Condition::Always })
    }

    fn origin(request: u64) -> Origin {
        Origin { node: NodeId(1), link: LinkNumber(0), request: RequestId(request) }
    }

    #[test]
    fn all_that_queued_becomes_one_entry() {
        let mut proposals = Proposals::default();
        for request in 0..3 {
            proposals.push(&write("a"), origin(request)).expect("room");
        }
        let (data, waiters) = proposals.next_entry(Term(1)).expect("an entry");
        assert_eq!(waiters, vec![origin(0), origin(1), origin(2)]);
        assert_eq!(decode_entry(&data), Ok(vec![write("a"); 3]));
        proposals.proposed(Term(1), LogIndex(5), waiters);
        proposals.push(&write("b"), origin(3)).expect("room");
        assert!(proposals.next_entry(Term(1)).is_none(), "a small batch waits while one is in flight");
        let mut dead = vec![];
        assert_eq!(proposals.applied(Term(1), LogIndex(5), &mut dead).len(), 3);
        assert!(proposals.next_entry(Term(1)).is_some());
        assert!(dead.is_empty());
    }

    #[test]
    fn load_opens_more_entries_up_to_the_limit() {
        let mut proposals = Proposals::default();
        for index in 0..limits::ENTRIES_IN_FLIGHT_MAX as u64 + 1 {
            for request in 0..200 {
                proposals.push(&write("a"), origin(request)).expect("room");
            }
            let entry = proposals.next_entry(Term(1));
            assert_eq!(entry.is_some(), index < limits::ENTRIES_IN_FLIGHT_MAX as u64);
            if let Some((_, waiters)) = entry {
                proposals.proposed(Term(1), LogIndex(index), waiters);
            }
        }
    }

    #[test]
    fn a_later_term_kills_what_it_overtook() {
        let mut proposals = Proposals::default();
        proposals.proposed(Term(1), LogIndex(5), vec![origin(1)]);
        proposals.proposed(Term(1), LogIndex(6), vec![origin(2)]);
        proposals.proposed(Term(3), LogIndex(6), vec![origin(3)]);
        let mut dead = vec![];
        assert_eq!(proposals.applied(Term(1), LogIndex(4), &mut dead), vec![]);
        assert_eq!(dead, vec![], "an entry of the same term decides nothing about later ones");
        assert_eq!(proposals.applied(Term(2), LogIndex(5), &mut dead), vec![]);
        assert_eq!(dead, vec![origin(1), origin(2)]);
        assert_eq!(proposals.applied(Term(3), LogIndex(6), &mut dead), vec![origin(3)]);
    }

    #[test]
    #[should_panic(expected = "invariant: proposed entries follow one another in the log")]
    fn two_entries_never_share_an_index_in_one_term() {
        let mut proposals = Proposals::default();
        proposals.proposed(Term(1), LogIndex(5), vec![origin(1)]);
        proposals.proposed(Term(1), LogIndex(5), vec![origin(2)]);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut proposals = Proposals::default();
        let value = Bytes::from(vec![0; limits::VALUE_BYTES_MAX]);
        let put = Write::of(&Operation::Put { key: b"a", value: &value, condition: Condition::Always });
        let taken = (0..1000).take_while(|&request| proposals.push(&put, origin(request)).is_ok()).count();
        assert_eq!(taken, limits::SHARD_QUEUE_BYTES_MAX.div_ceil(limits::VALUE_BYTES_MAX + 9));
    }
}
