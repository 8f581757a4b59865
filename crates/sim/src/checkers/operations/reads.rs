//! Judges reads of operations by the committed logs.
//!
//! All keys of a read have one hash tag, so they are in one slot. The parts of the logs in which
//! shards owned that slot, one after the other, are the log by which the read is judged: its answer
//! follows from a state between two commands, and it has a place in the order of real time with all
//! of them.

use std::collections::BTreeMap;

use tidelock_core::command::{
    Consistency, OperationReplies, OperationRepliesBuilder, Operations, Read, ReadReply, Reply, Request,
};
use tidelock_core::types::ShardId;

use super::model::ShardModel;
use super::{JUDGE, ReplayedKeys};
use crate::checkers::Violation;
use crate::checkers::ownership::{OwnedPeriod, SlotOwnership};
use crate::checkers::replay::AnsweredRead;
use crate::history::{History, Operation};
use crate::slots::slot_of;

/// The operations of a read, the most bytes of values that it takes, and the answer.
type AnsweredOperations<'a> = (&'a Operations, usize, &'a OperationReplies);

/// The log of a slot.
struct SlotLog<'a> {
    logs: &'a BTreeMap<ShardId, ReplayedKeys>,
    /// The parts of shards' logs, each with the place in this log at which it begins.
    periods: Vec<(usize, OwnedPeriod)>,
    /// The last place.
    end: usize,
}

/// Finds a place for each read, the earliest one, in the order of their answers.
pub(super) fn judge_reads(
    history: &History,
    ownership: &SlotOwnership,
    logs: &BTreeMap<ShardId, ReplayedKeys>,
) -> Result<(), Violation> {
    let mut by_slot: BTreeMap<u16, Vec<AnsweredRead<'_, AnsweredOperations<'_>>>> = BTreeMap::new();
    for operation in history.of_clients() {
        if let (
            Request::Read { read: Read::Operations { operations, bytes_max }, consistency },
            Some(Reply::Read(ReadReply::Operations(replies))),
        ) = (&operation.request, operation.reply())
            && let Some(first) = operations.iter().next()
        {
            let (read, is_stale) = ((operations, *bytes_max, replies), *consistency == Consistency::Stale);
            let reads = by_slot.entry(slot_of(first.key())).or_default();
            reads.push(AnsweredRead { operation, read, is_stale });
        }
    }
    for (slot, reads) in by_slot {
        let log = SlotLog::new(logs, ownership.periods(ownership.class_of(slot)));
        JUDGE.place_reads(reads, &log.writes(history), log.end, |mut places, read| {
            places.find(|place| log.explains(*place, *read))
        })?;
    }
    Ok(())
}

impl<'a> SlotLog<'a> {
    fn new(logs: &'a BTreeMap<ShardId, ReplayedKeys>, periods: &[OwnedPeriod]) -> SlotLog<'a> {
        let mut next = 0;
        let mut begins = |period: &OwnedPeriod| {
            let begin = next;
            next += period.last - period.first + 1;
            (begin, *period)
        };
        let periods = periods.iter().map(&mut begins).collect();
        SlotLog { logs, periods, end: next.saturating_sub(1) }
    }

    /// The commands of clients, with the places after them.
    fn writes<'h>(&self, history: &'h History) -> Vec<(&'h Operation, usize)> {
        let mut writes = Vec::new();
        for (begin, period) in &self.periods {
            let places = self.logs.get(&period.shard).into_iter().flat_map(|log| &log.places);
            // A period begins with the command that makes the shard the owner.
            let within = places.filter(|(_, place)| (period.first + 1..=period.last).contains(place));
            writes.extend(within.filter_map(|(token, place)| {
                history.operation(*token).map(|operation| (operation, begin + place - period.first))
            }));
        }
        writes
    }

    /// Whether a read at `place` gives this answer; only values beyond the reader's byte limit may
    /// be left out.
    fn explains(&self, place: usize, (operations, bytes_max, replies): AnsweredOperations<'_>) -> bool {
        let after = self.periods.partition_point(|(begin, _)| *begin <= place);
        let Some((begin, period)) = after.checked_sub(1).and_then(|index| self.periods.get(index)) else {
            return false;
        };
        let (log, place) = (self.logs.get(&period.shard), place - begin + period.first);
        let mut expected = OperationRepliesBuilder::within(bytes_max);
        for look in operations.iter() {
            let states = log.and_then(|log| log.past.get(look.key())).map_or(&[][..], |states| &states[..]);
            let reached = states.partition_point(|(from, _)| *from <= place);
            let held = reached.checked_sub(1).and_then(|last| states[last].1.as_ref());
            expected.push(&ShardModel::look(held, &look));
        }
        expected.finish() == *replies
    }
}
