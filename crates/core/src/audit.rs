//! Records of administrative and security changes.
//!
//! Owns the newest records and their layout in the snapshot of the prime shard. The registry
//! appends the record when it applies the change, so that one never exists without the other. A
//! backup does not contain them, because they describe changes of the cluster that was backed up.
//!
//! Invariants:
//! - Sequence numbers are consecutive.
//! - Only the newest [`limits::AUDIT_RECORDS_MAX`] records are kept.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::auth::Caller;
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::{LogIndex, UnixMillis};

/// One administrative or security change that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Sequence number in the cluster, from 1.
    pub sequence: u64,
    /// The index of its entry in the log of the prime shard.
    pub index: LogIndex,
    /// When the leader proposed it, by the leader's wall clock.
    pub at: UnixMillis,
    /// Who asked for it.
    pub caller: Caller,
    /// What was done: see [`RegistryWrite::audit_action`](crate::command::RegistryWrite).
    pub action: String,
    /// To what: see [`RegistryWrite::audit_subject`](crate::command::RegistryWrite).
    pub subject: String,
}

/// The newest records, ordered by sequence number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditTrail {
    /// Reference-counted, so that beginning a snapshot does not copy the records.
    records: VecDeque<Arc<AuditRecord>>,
}

/// First byte of a block of a snapshot that holds records.
const BLOCK_FORMAT: u8 = 1;

impl AuditTrail {
    /// Appends a record with the next sequence number, and drops the oldest one if there are too
    /// many.
    pub(crate) fn append(&mut self, record: AuditRecord) {
        let sequence = self.last() + 1;
        if self.records.len() >= limits::AUDIT_RECORDS_MAX {
            self.records.pop_front();
        }
        self.records.push_back(Arc::new(AuditRecord { sequence, ..record }));
    }

    /// Sequence number of the newest record; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.records.back().map_or(0, |record| record.sequence)
    }

    /// At most `most` records with sequence numbers below `before`, the newest first. `None` starts
    /// at the newest record.
    pub fn page(&self, before: Option<u64>, most: usize) -> Vec<Arc<AuditRecord>> {
        let older =
            self.records.iter().rev().skip_while(|record| before.is_some_and(|end| record.sequence >= end));
        older.take(most.min(limits::AUDIT_PAGE_MAX)).cloned().collect()
    }

    /// All records, the oldest first.
    pub fn records(&self) -> impl Iterator<Item = &AuditRecord> {
        self.records.iter().map(|record| &**record)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.records().for_each(|record| record.encode(out));
    }

    /// Removes the oldest records and encodes them as the next block of a snapshot; `None` if no
    /// record is left.
    pub(crate) fn take_block(&mut self) -> Option<Vec<u8>> {
        self.records.front()?;
        let mut block = alloc::vec![BLOCK_FORMAT];
        while block.len() < limits::SNAPSHOT_BLOCK_BYTES_CLOSE
            && let Some(record) = self.records.pop_front()
        {
            record.encode(&mut block);
        }
        Some(block)
    }

    /// Appends the records of a block that [`AuditTrail::take_block`] encoded. Blocks must come in
    /// order.
    pub(crate) fn read_block(&mut self, decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
        if decoder.u8()? != BLOCK_FORMAT {
            return Err(DecodeError::UnknownTag("block of audit records"));
        }
        while !decoder.is_empty() {
            let record = AuditRecord::decode(decoder)?;
            let is_next = self.records.is_empty() || record.sequence == self.last() + 1;
            if !is_next || self.records.len() >= limits::AUDIT_RECORDS_MAX {
                return Err(DecodeError::Invalid("order of audit records"));
            }
            self.records.push_back(Arc::new(record));
        }
        Ok(())
    }
}

impl AuditRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        [self.sequence, self.index.0, self.at.0]
            .into_iter()
            .for_each(|number| codec::put_varint(out, number));
        self.caller.encode(out);
        codec::put_bytes(out, self.action.as_bytes());
        codec::put_bytes(out, self.subject.as_bytes());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<AuditRecord, DecodeError> {
        Ok(AuditRecord {
            sequence: decoder.varint()?,
            index: LogIndex(decoder.varint()?),
            at: UnixMillis(decoder.varint()?),
            caller: Caller::decode(decoder)?,
            action: decoder.text()?,
            subject: decoder.text()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn record(index: u64) -> AuditRecord {
        AuditRecord {
            sequence: 0,
            index: LogIndex(index),
            at: UnixMillis(1_700_000_000_000 + index),
            caller: Caller::Principal("root".into()),
            action: "role.put".to_string(),
            subject: "x".repeat(limits::AUDIT_SUBJECT_BYTES_MAX),
        }
    }

    fn trail(count: usize) -> AuditTrail {
        let mut trail = AuditTrail::default();
        (1..=count as u64).for_each(|index| trail.append(record(index)));
        trail
    }

    #[test]
    fn the_newest_records_are_kept_and_counted_on() {
        let trail = trail(limits::AUDIT_RECORDS_MAX + 5);
        assert_eq!(trail.records().count(), limits::AUDIT_RECORDS_MAX);
        assert_eq!(trail.records().next().map(|record| record.sequence), Some(6));
        assert_eq!(trail.last(), limits::AUDIT_RECORDS_MAX as u64 + 5);
    }

    #[test]
    fn pages_go_from_the_newest_to_the_oldest() {
        let trail = trail(5);
        let numbers = |before, most| -> Vec<u64> {
            trail.page(before, most).iter().map(|record| record.sequence).collect()
        };
        assert_eq!(numbers(None, 2), [5, 4]);
        assert_eq!(numbers(Some(4), 2), [3, 2]);
        assert_eq!(numbers(Some(2), 9), [1]);
        assert_eq!(numbers(Some(1), 9), [0u64; 0]);
    }

    #[test]
    fn a_full_trail_is_restored_from_blocks_that_a_snapshot_takes() {
        let trail = trail(limits::AUDIT_RECORDS_MAX + 5);
        let (mut left, mut restored, mut blocks) = (trail.clone(), AuditTrail::default(), 0);
        while let Some(block) = left.take_block() {
            assert!(block.len() <= limits::SNAPSHOT_BLOCK_BYTES_MAX);
            restored.read_block(&mut Decoder::new(&block)).expect("its own block");
            blocks += 1;
        }
        assert!(blocks > 10, "{blocks}");
        assert_eq!(restored, trail);
    }

    #[test]
    fn a_missing_record_is_noticed() {
        let (mut first, mut third) = (trail(3), trail(3));
        let block = first.take_block().expect("records");
        let mut restored = AuditTrail::default();
        restored.read_block(&mut Decoder::new(&block)).expect("its own block");
        third.append(record(4));
        third.append(record(5));
        third.records.drain(..4);
        let block = third.take_block().expect("records");
        assert!(restored.read_block(&mut Decoder::new(&block)).is_err(), "the fourth is missing");
    }
}
