//! The outcomes of transactions with an id, so that a repetition is answered with the first one.
//!
//! Owns which outcomes are kept: for [`limits::OUTCOME_KEPT_MS`], by the times in the log, and at
//! most [`limits::OUTCOMES_MAX`] of them with [`limits::OUTCOMES_BYTES_MAX`] bytes, of which the
//! oldest go first. They belong to slots, and move with them.
//!
//! The bound on bytes lets the first block of a snapshot contain all of them, so a snapshot needs
//! no copy on write for them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use crc::{CRC_64_XZ, Crc};

use super::data::Data;
use crate::codec::{self, DecodeError, Decoder};
use crate::command::{ConditionalTransaction, KeptOutcome, TransactionId, WriteReply};
use crate::limits;
use crate::slots::slot_of;
use crate::slots::slot_set::SlotSet;
use crate::types::UnixMillis;

/// The outcomes that a shard keeps.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// In the order in which they were kept, each with its number.
    kept: VecDeque<(u64, KeptOutcome)>,
    /// The numbers of outcomes by slot and id.
    by_id: BTreeMap<(u16, Bytes), u64>,
    next: u64,
    bytes: usize,
}

impl Outcomes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The reply to a repetition of a transaction; `None` if no outcome of its id is kept.
    fn reply(&self, slot: u16, id: &TransactionId) -> Option<WriteReply> {
        let number = *self.by_id.get(&(slot, id.name.clone()))?;
        let position = self.kept.binary_search_by_key(&number, |(number, _)| *number);
        let (_, outcome) = &self.kept[position.expect("invariant: an outcome with an id is kept")];
        Some(if outcome.digest == id.digest {
            WriteReply::Branched { succeeded: outcome.succeeded, replies: outcome.replies.clone() }
        } else {
            WriteReply::IdReused
        })
    }

    /// Keeps an outcome, and drops the oldest ones beyond the bounds.
    fn keep(&mut self, outcome: KeptOutcome) {
        // After a move the same id may come a second time, with an outcome that was dropped here.
        let id = (outcome.slot, outcome.name.clone());
        if self.by_id.contains_key(&id) {
            return;
        }
        self.bytes += outcome.held_bytes();
        self.by_id.insert(id, self.next);
        self.kept.push_back((self.next, outcome));
        self.next += 1;
        while self.kept.len() > limits::OUTCOMES_MAX || self.bytes > limits::OUTCOMES_BYTES_MAX {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, outcome)) = self.kept.pop_front() {
            self.bytes -= outcome.held_bytes();
            self.by_id.remove(&(outcome.slot, outcome.name));
        }
    }

    /// Whether the oldest outcome need not be kept at `now` any more.
    pub fn is_overdue(&self, now: UnixMillis) -> bool {
        let end = |outcome: &KeptOutcome| outcome.proposed.0.saturating_add(limits::OUTCOME_KEPT_MS);
        self.kept.front().is_some_and(|(_, outcome)| end(outcome) <= now.0)
    }

    /// Drops the outcomes that need not be kept at `now` any more, the oldest first.
    pub fn expire(&mut self, now: UnixMillis) {
        while self.is_overdue(now) {
            self.drop_oldest();
        }
    }

    /// The outcomes of some slots, in their order.
    pub fn of_slots(&self, slots: &SlotSet) -> Vec<KeptOutcome> {
        let kept = self.kept.iter().map(|(_, outcome)| outcome);
        kept.filter(|outcome| slots.contains(outcome.slot)).cloned().collect()
    }

    /// Keeps outcomes that another shard kept.
    pub fn import(&mut self, outcomes: Vec<KeptOutcome>) {
        outcomes.into_iter().for_each(|outcome| self.keep(outcome));
    }

    /// Drops the outcomes of some slots.
    pub fn remove_slots(&mut self, slots: &SlotSet) {
        let all = core::mem::take(self);
        let kept = all.kept.into_iter().map(|(_, outcome)| outcome);
        self.import(kept.filter(|outcome| !slots.contains(outcome.slot)).collect());
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.kept.len() as u64);
        self.kept.iter().for_each(|(_, outcome)| outcome.encode(out));
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Outcomes, DecodeError> {
        let count = decoder.bounded(limits::OUTCOMES_MAX as u64, "number of outcomes")?;
        let mut outcomes = Outcomes::default();
        for _ in 0..count {
            outcomes.keep(KeptOutcome::decode(decoder)?);
        }
        Ok(outcomes)
    }

    /// Continues the checksum `other` over all outcomes; without any it stays unchanged.
    pub(super) fn digest(&self, other: u64) -> u64 {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        if self.is_empty() {
            return other;
        }
        let mut encoded = Vec::new();
        self.encode(&mut encoded);
        let mut digest = CRC.digest();
        digest.update(&other.to_le_bytes());
        digest.update(&encoded);
        digest.finalize()
    }
}

impl Data {
    /// Applies a transaction with two branches, unless the outcome of its id is kept.
    pub(super) fn transact_by_branch(
        &mut self,
        transaction: &ConditionalTransaction,
        is_answered: bool,
    ) -> WriteReply {
        let Some(id) = &transaction.id else {
            return self.kv.transact_by_branch(transaction, is_answered, self.faults);
        };
        let slot = transaction.keys().next().map_or(0, slot_of);
        if let Some(reply) = self.outcomes.reply(slot, id) {
            return reply;
        }
        // Every replica keeps the outcome, so each of them needs the replies.
        let reply = self.kv.transact_by_branch(transaction, true, self.faults);
        if let WriteReply::Branched { succeeded, replies } = &reply {
            self.outcomes.keep(KeptOutcome {
                slot,
                // A slice of the entry would keep the whole entry in memory.
                name: Bytes::copy_from_slice(&id.name),
                digest: id.digest,
                proposed: id.proposed,
                succeeded: *succeeded,
                replies: replies.clone(),
            });
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Condition, Operation, Operations};
    use crate::deliberate::Faults;
    use crate::machine::Machine;
    use crate::machine::restore::{Restore, without_secrets};
    use crate::membership::Membership;
    use alloc::boxed::Box;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;

    const KEY: &[u8] = b"{t}k";

    fn add(name: &str, delta: i64, proposed: u64) -> ConditionalTransaction {
        let then = Operations::of(&[Operation::Add { key: KEY, delta }, Operation::Get { key: KEY }]);
        let transaction = ConditionalTransaction { comparisons: vec![], then, ..Default::default() };
        let mut transaction = transaction.identified(Bytes::from(String::from(name)));
        transaction.id.as_mut().expect("an id").proposed = UnixMillis(proposed);
        transaction
    }

    fn data(machine: &mut Machine) -> &mut Data {
        machine.data_mut().expect("a data shard")
    }

    fn restored(machine: &mut Machine) -> Machine {
        machine.begin_snapshot(&Membership::default());
        let mut restore = Restore::default();
        while let Some(block) = machine.next_block() {
            restore.block(&block).expect("a block");
        }
        restore.finish().expect("a snapshot").machine
    }

    fn number(reply: &WriteReply) -> Option<i64> {
        let WriteReply::Branched { succeeded: true, replies } = reply else { return None };
        match replies.iter().next() {
            Some(crate::command::OperationReply::Number { value, .. }) => Some(value),
            _ => None,
        }
    }

    #[test]
    fn a_repetition_is_answered_with_the_first_outcome() {
        let mut machine = Machine::Data(Box::default());
        let first = data(&mut machine).transact_by_branch(&add("a", 1, 5), true);
        assert_eq!(number(&first), Some(1));
        data(&mut machine).transact_by_branch(&add("b", 10, 6), false);
        for proposed in [5, 900] {
            assert_eq!(data(&mut machine).transact_by_branch(&add("a", 1, proposed), true), first);
        }
        let reused = data(&mut machine).transact_by_branch(&add("a", 2, 7), true);
        assert_eq!(reused, WriteReply::IdReused);
        // A replica whose client does not wait keeps the same.
        let unseen = data(&mut machine).transact_by_branch(&add("b", 10, 8), true);
        assert_eq!(number(&unseen), Some(11));

        let mut copy = restored(&mut machine);
        assert_eq!(copy.digest(), machine.digest());
        assert_eq!(data(&mut copy).transact_by_branch(&add("a", 1, 9), true), first);
        data(&mut copy).transact_by_branch(&add("c", 1, 9), true);
        assert_ne!(copy.digest(), machine.digest());
    }

    #[test]
    fn a_backup_has_no_outcomes() {
        let mut machine = Machine::Data(Box::default());
        let before = restored(&mut machine).digest();
        let none = ConditionalTransaction::default().identified(Bytes::from_static(b"a"));
        let get = Operations::of(&[Operation::Get { key: KEY }]);
        let transaction = ConditionalTransaction { then: get, ..none };
        data(&mut machine).transact_by_branch(&transaction, true);
        machine.begin_snapshot(&Membership::default());
        let first = machine.next_block().expect("a first block");
        let rewritten = without_secrets(&first).expect("a first block");
        assert!(rewritten.len() < first.len());
        let mut restore = Restore::default();
        restore.block(&rewritten).expect("a block");
        assert_eq!(restore.finish().expect("a snapshot").machine.digest(), before);
        assert_ne!(machine.digest(), before);
    }

    #[test]
    fn outcomes_are_kept_for_a_day_and_within_bounds() {
        let mut outcomes = Outcomes::default();
        let mut kv = crate::machine::kv::KeyValue::default();
        let mut keep = |outcomes: &mut Outcomes, name: &str, value_bytes: usize, proposed: u64| {
            let value = vec![b'v'; value_bytes];
            let put = Operation::Put { key: KEY, value: &value, condition: Condition::Always };
            let then = Operations::of(&[put, Operation::Get { key: KEY }]);
            let transaction = ConditionalTransaction { then, ..Default::default() };
            let transaction = transaction.identified(Bytes::from(String::from(name)));
            let WriteReply::Branched { succeeded, replies } =
                kv.transact_by_branch(&transaction, true, Faults::NONE)
            else {
                panic!("another reply")
            };
            let TransactionId { name, digest, .. } = transaction.id.expect("an id");
            let proposed = UnixMillis(proposed);
            outcomes.keep(KeptOutcome { slot: 7, name, digest, proposed, succeeded, replies });
        };
        keep(&mut outcomes, "first", 1, 1_000);
        keep(&mut outcomes, "second", 1, 2_000);
        let end = UnixMillis(1_000 + limits::OUTCOME_KEPT_MS);
        assert!(!outcomes.is_overdue(UnixMillis(end.0 - 1)) && outcomes.is_overdue(end));
        outcomes.expire(end);
        assert_eq!(outcomes.kept.len(), 1);
        for number in 0..limits::OUTCOMES_MAX + 10 {
            keep(&mut outcomes, &format!("{number}"), 1, 3_000);
        }
        assert!(outcomes.kept.len() <= limits::OUTCOMES_MAX && outcomes.bytes <= limits::OUTCOMES_BYTES_MAX);
        assert_eq!(outcomes.kept.len(), outcomes.by_id.len());
        let long = limits::OUTCOME_VALUES_BYTES_MAX;
        for number in 0..200 {
            keep(&mut outcomes, &format!("long{number}"), long - 100, 3_000);
        }
        assert!(
            outcomes.bytes <= limits::OUTCOMES_BYTES_MAX && outcomes.bytes > limits::OUTCOMES_BYTES_MAX / 2
        );
        // A longer value is left out, in the first answer as in every other.
        keep(&mut outcomes, "too long", long + 1, 3_000);
        let (_, last) = outcomes.kept.back().expect("an outcome");
        assert!(last.held_bytes() < 200, "{}", last.held_bytes());
        let mut slots = SlotSet::from(7..8);
        assert_eq!(outcomes.of_slots(&slots).len(), outcomes.kept.len());
        slots = SlotSet::from(8..9);
        outcomes.remove_slots(&slots);
        assert!(outcomes.of_slots(&slots).is_empty() && !outcomes.is_empty());
    }
}
