//! Removing all keys: one write for each data shard, until every slot is covered.
//!
//! Owns which shards are asked, and when a request is done. While slots move, a slot may belong to
//! no shard for a moment, or come to a shard that has done its part already. So each shard states
//! the slots that it owned, and slots that no answer covers are asked for again. A flush of a slot
//! is not repeated if its outcome is unknown, as no write is.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::tracing::OpenSpan;
use super::{Open, RequestId, Requester, Router, Work, WriteProgress};
use crate::command::{CheckedWrite, Flush, FlushReply, FlushedPart, Refusal, Reply, Write, WriteReply};
use crate::deliberate::Fault;
use crate::raft::Groups;
use crate::slots::slot_revisions::SlotRevisions;
use crate::slots::slot_set::SlotSet;
use crate::spans::SpanEnd;
use crate::types::{ShardId, Version};
use crate::version::ClusterVersion;

/// The progress of a request to remove all keys.
#[derive(Default)]
pub(super) struct Flushing {
    /// Slots whose keys were removed, with the revision of that.
    flushed: SlotRevisions,
    /// Those of them that were covered more than once, or took several steps.
    in_steps: SlotSet,
    /// Shards that have not done their part.
    parts: Vec<FlushPart>,
    /// Whether any key may have been removed.
    has_effect: bool,
    /// Why a shard will not do its part.
    failed: Option<Refusal>,
}

/// What is asked of one shard.
struct FlushPart {
    shard: ShardId,
    /// Only these slots; `None`: all that it owns.
    asked: Option<SlotSet>,
    /// The slots that every answer so far covers.
    covered: SlotSet,
    /// Whether it takes several steps.
    is_in_steps: bool,
}

/// A write that is a part of a flush.
#[derive(Clone, Copy)]
pub(super) struct FlushParent {
    request: RequestId,
    shard: ShardId,
}

impl Router {
    /// Accepts a request to remove all keys.
    pub(crate) fn flush(&mut self, requester: Requester, groups: &mut Groups) {
        self.counters.writes += 1;
        let is_too_new = self.version < ClusterVersion::WITH_COORDINATION
            && !self.faults.has(Fault::NewCommandBeforeRaise);
        if is_too_new {
            return self.answer(requester.token, Reply::Refused(Refusal::VersionTooLow));
        }
        if let Some(request) = self.open(requester, Work::Flush(Box::default())) {
            self.flush_again(request, groups);
        }
    }

    /// Asks the present owners of the slots that are not covered yet.
    pub(super) fn flush_again(&mut self, request: RequestId, groups: &mut Groups) {
        let slots = self.slots.clone();
        let Some(Open { work: Work::Flush(flushing), .. }) = self.get(request) else { return };
        let missing = SlotSet::all().without(&flushing.flushed.slots());
        let is_first = missing == SlotSet::all();
        for shard in slots.shards() {
            let share = slots.share(shard);
            let asked = share.without(&share.without(&missing));
            if !asked.is_empty() {
                let asked = (!is_first).then_some(asked);
                flushing.parts.push(FlushPart { shard, asked, covered: SlotSet::all(), is_in_steps: false });
            }
        }
        let asked: Vec<(ShardId, Option<SlotSet>)> =
            flushing.parts.iter().map(|part| (part.shard, part.asked.clone())).collect();
        for (shard, slots) in asked {
            self.send_flush(request, Flush { shard, slots, after: None }, groups);
        }
    }

    /// Sends the next step of a shard's part.
    fn send_flush(&mut self, request: RequestId, flush: Flush, groups: &mut Groups) {
        let Some(open) = self.get(request) else { return };
        let trace = open.span.map(OpenSpan::context);
        let requester = Requester { token: None, caller: open.caller.clone(), trace };
        let shard = flush.shard;
        let parent = FlushParent { request, shard };
        let write = CheckedWrite::new(Write::Flush(Box::new(flush)), |_| shard);
        let opened = write.map(|write| self.open(requester, Work::held(write)));
        match opened {
            Ok(Some(child)) => {
                if let Some(open) = self.get(child) {
                    open.parent = Some(parent);
                }
                self.dispatch(child, groups);
            }
            Ok(None) => self.flush_parts.push((parent, Reply::Refused(Refusal::Overloaded))),
            Err(refusal) => self.flush_parts.push((parent, Reply::Refused(refusal.into()))),
        }
    }

    /// Continues with the answers of shards that have arrived.
    pub(crate) fn continue_flushes(&mut self, groups: &mut Groups) {
        for (parent, reply) in core::mem::take(&mut self.flush_parts) {
            self.flush_part_done(parent, reply, groups);
        }
    }

    fn flush_part_done(&mut self, parent: FlushParent, reply: Reply, groups: &mut Groups) {
        let FlushParent { request, shard } = parent;
        let ignores_moves = self.faults.has(Fault::FlushSkipsMovedSlots);
        let answer = match reply {
            Reply::Write(WriteReply::Flushed(FlushedPart { owned, revision, next })) => {
                Ok((self.owned(shard, owned), revision, next))
            }
            Reply::Refused(refusal) => Err(refusal),
            _ => Err(Refusal::VersionTooLow),
        };
        let Some(Open { work: Work::Flush(flushing), .. }) = self.get(request) else { return };
        let Some(position) = flushing.parts.iter().position(|part| part.shard == shard) else { return };
        match answer {
            Ok((owned, revision, next)) => {
                if let Some(flush) = flushing.part_done(position, owned, (revision, next)) {
                    return self.send_flush(request, flush, groups);
                }
            }
            Err(refusal) => {
                flushing.parts.remove(position);
                flushing.has_effect |= refusal == Refusal::UnknownOutcome;
                // A shard without slots may have been removed meanwhile.
                if !matches!(refusal, Refusal::Invalid(_)) {
                    flushing.failed.get_or_insert(refusal);
                }
            }
        }
        if !flushing.parts.is_empty() {
            return;
        }
        let is_whole = flushing.flushed.slots() == SlotSet::all() || ignores_moves;
        match flushing.failed.take() {
            Some(refusal) => self.end_flush(request, refusal),
            None if is_whole => {
                let revisions = flushing.revisions();
                self.finish(request, Reply::Flushed(FlushReply::Complete(revisions)));
            }
            None => self.held.push_back(request),
        }
    }

    /// Answers a request that was not done as a whole. Parts that no shard has received are
    /// dropped.
    pub(super) fn end_flush(&mut self, request: RequestId, cause: Refusal) {
        let is_child = |open: &Open| open.parent.is_some_and(|parent| parent.request == request);
        let children: Vec<usize> =
            self.open.iter().filter(|(_, open)| is_child(open)).map(|(key, _)| key).collect();
        let mut is_under_way = false;
        for key in children {
            let open = self.open.remove(key);
            self.tracing.end(open.span, SpanEnd::Unknown);
            if let Work::Write { place, .. } = open.work {
                is_under_way |= place != WriteProgress::Held;
                self.left(place);
            }
        }
        let Some(Open { work: Work::Flush(flushing), .. }) = self.get(request) else { return };
        let cause = if is_under_way { Refusal::UnknownOutcome } else { cause };
        let slots = flushing.flushed.slots().count();
        let is_incomplete = slots > 0 || (flushing.has_effect && cause != Refusal::UnknownOutcome);
        self.finish(
            request,
            match is_incomplete {
                true => Reply::Flushed(FlushReply::Incomplete { slots, cause }),
                false => Reply::Refused(cause),
            },
        );
    }
}

impl Flushing {
    /// Takes the answer of a shard. Returns the next step of its part, if there is one.
    fn part_done(
        &mut self,
        position: usize,
        owned: SlotSet,
        (revision, next): (Version, Option<bytes::Bytes>),
    ) -> Option<Flush> {
        self.has_effect = true;
        let part = &mut self.parts[position];
        part.covered = within(&part.covered, &owned);
        if let Some(asked) = &part.asked {
            part.covered = within(&part.covered, asked);
        }
        if next.is_some() {
            part.is_in_steps = true;
            return Some(Flush { shard: part.shard, slots: part.asked.clone(), after: next });
        }
        let FlushPart { covered, is_in_steps, .. } = self.parts.remove(position);
        let again = within(&covered, &self.flushed.slots());
        self.in_steps = self.in_steps.union(if is_in_steps { &covered } else { &again });
        self.flushed.raise(&SlotRevisions::at(&covered, revision));
        None
    }

    /// The revisions of [`FlushReply::Complete`].
    fn revisions(&self) -> SlotRevisions {
        let mut revisions = self.flushed.within(&SlotSet::all().without(&self.in_steps));
        revisions.raise(&SlotRevisions::at(&self.in_steps, Version::ABSENT));
        revisions
    }
}

/// The slots of both sets.
fn within(one: &SlotSet, other: &SlotSet) -> SlotSet {
    one.without(&one.without(other))
}
