//! Encoding of records: the payload of a group of frames.
//!
//! Owns the layout of [`WalRecord`]s. The frames carry checksums, so a record that does not decode
//! here was written that way, by a bug or another version, and not damaged by the disk.

use alloc::vec::Vec;
use bytes::Bytes;

use super::super::{HardState, LogEntry, ReplicaIncarnation, WalRecord};
use crate::codec::{self, DecodeError, Decoder};
use crate::membership::{decode_nodes, encode_nodes};
use crate::types::{LogIndex, ReplicaId, ShardId, Term};

const TAG_ENTRIES: u8 = 1;
const TAG_HARD_STATE: u8 = 2;
const TAG_RESTART: u8 = 3;
const TAG_INCARNATION: u8 = 4;

/// Minimum size of an entry: a varint of its term, a varint of its length.
const ENTRY_BYTES_MIN: usize = 2;

/// Appends `record` to `out`, as it stands in the payload of a group of frames.
///
/// # Panics
/// If a record of entries has no entry, or indexes do not begin at 1 or later and rise by one: only
/// the first index is written.
pub fn encode(record: &WalRecord, out: &mut Vec<u8>) {
    match record {
        WalRecord::Entries { shard, entries } => {
            let first = entries.first().expect("invariant: a record of entries holds at least one").index;
            assert!(first > LogIndex(0), "invariant: entries are indexed from 1");
            out.push(TAG_ENTRIES);
            codec::put_varint(out, shard.0);
            codec::put_varint(out, first.0);
            codec::put_varint(out, entries.len() as u64);
            for (entry, index) in entries.iter().zip(first.0..) {
                assert_eq!(entry.index.0, index, "invariant: indexes rise by one");
                codec::put_varint(out, entry.term.0);
                codec::put_bytes(out, &entry.data);
            }
        }
        WalRecord::HardState { shard, state } => {
            out.push(TAG_HARD_STATE);
            codec::put_varint(out, shard.0);
            codec::put_varint(out, state.term.0);
            out.push(u8::from(state.vote.is_some()));
            if let Some(vote) = state.vote {
                codec::put_varint(out, vote.0);
            }
            codec::put_varint(out, state.commit.0);
        }
        WalRecord::Restart { shard, index, term } => {
            assert!(*index > LogIndex(0), "invariant: a snapshot holds at least one entry");
            out.push(TAG_RESTART);
            codec::put_varint(out, shard.0);
            codec::put_varint(out, index.0);
            codec::put_varint(out, term.0);
        }
        WalRecord::ReplicaIncarnation { shard, incarnation, is_restated } => {
            out.push(TAG_INCARNATION);
            codec::put_varint(out, shard.0);
            out.push(u8::from(*is_restated));
            match incarnation {
                ReplicaIncarnation::Begun { replica, founding } => {
                    out.push(1);
                    codec::put_varint(out, replica.0);
                    encode_nodes(founding.iter().copied(), out);
                }
                ReplicaIncarnation::Ended(replica) => {
                    out.push(0);
                    codec::put_varint(out, replica.0);
                }
            }
        }
    }
}

/// Whether a record contains client data, instead of state that a replica needs to take part at
/// all.
pub(super) fn holds_data(record: &WalRecord) -> bool {
    match record {
        WalRecord::Entries { entries, .. } => entries.iter().any(|entry| !entry.data.is_empty()),
        WalRecord::HardState { .. } | WalRecord::Restart { .. } | WalRecord::ReplicaIncarnation { .. } => {
            false
        }
    }
}

/// Decodes the payload of one group of frames. Entries share the payload's buffer.
///
/// # Errors
/// When a record is not one that this release writes.
pub fn decode(payload: &Bytes) -> Result<Vec<WalRecord>, DecodeError> {
    Records::new(payload).collect()
}

/// The records in the payload of one group, in order. Entries share the payload's buffer.
pub(super) struct Records<'a> {
    owner: &'a Bytes,
    decoder: Decoder<'a>,
}

impl<'a> Records<'a> {
    pub fn new(payload: &'a Bytes) -> Records<'a> {
        Records { owner: payload, decoder: Decoder::new(payload) }
    }

    fn record(&mut self) -> Result<WalRecord, DecodeError> {
        match self.decoder.u8()? {
            TAG_ENTRIES => self.entries(),
            TAG_HARD_STATE => self.hard_state(),
            TAG_RESTART => self.restart(),
            TAG_INCARNATION => self.incarnation(),
            _ => Err(DecodeError::UnknownTag("log record")),
        }
    }

    fn entries(&mut self) -> Result<WalRecord, DecodeError> {
        let shard = ShardId(self.decoder.varint()?);
        let first = self.decoder.varint()?;
        let count_max = (self.decoder.rest().len() / ENTRY_BYTES_MIN) as u64;
        let count = self.decoder.bounded(count_max, "number of entries")?;
        if first == 0 || count == 0 || first.checked_add(count).is_none() {
            return Err(DecodeError::Invalid("range of entries"));
        }
        let mut entries = Vec::with_capacity(count as usize);
        for index in first..first + count {
            let term = Term(self.decoder.varint()?);
            let data = self.decoder.shared(self.owner)?;
            entries.push(LogEntry { index: LogIndex(index), term, data });
        }
        Ok(WalRecord::Entries { shard, entries })
    }

    fn hard_state(&mut self) -> Result<WalRecord, DecodeError> {
        let shard = ShardId(self.decoder.varint()?);
        let term = Term(self.decoder.varint()?);
        let vote = if self.decoder.bool()? { Some(ReplicaId(self.decoder.varint()?)) } else { None };
        let commit = LogIndex(self.decoder.varint()?);
        Ok(WalRecord::HardState { shard, state: HardState { term, vote, commit } })
    }

    fn incarnation(&mut self) -> Result<WalRecord, DecodeError> {
        let (shard, is_restated) = (ShardId(self.decoder.varint()?), self.decoder.bool()?);
        let begins = self.decoder.bool()?;
        let replica = ReplicaId(self.decoder.varint()?);
        let incarnation = if begins {
            ReplicaIncarnation::Begun { replica, founding: decode_nodes(&mut self.decoder)? }
        } else {
            ReplicaIncarnation::Ended(replica)
        };
        Ok(WalRecord::ReplicaIncarnation { shard, incarnation, is_restated })
    }

    fn restart(&mut self) -> Result<WalRecord, DecodeError> {
        let shard = ShardId(self.decoder.varint()?);
        let index = LogIndex(self.decoder.varint()?);
        let term = Term(self.decoder.varint()?);
        // Entries follow a restart, so the next index must exist.
        if index == LogIndex(0) || index == LogIndex(u64::MAX) {
            return Err(DecodeError::Invalid("index of a snapshot"));
        }
        Ok(WalRecord::Restart { shard, index, term })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<WalRecord, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.decoder.is_empty() { None } else { Some(self.record()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn records_round_trip() {
        let entry = |index, data: &'static [u8]| LogEntry {
            index: LogIndex(index),
            term: Term(u64::MAX),
            data: Bytes::from_static(data),
        };
        let vote = |vote| HardState { term: Term(3), vote, commit: LogIndex(300) };
        let records = vec![
            WalRecord::Entries { shard: ShardId(0), entries: vec![entry(1, b"")] },
            WalRecord::HardState { shard: ShardId(5), state: vote(None) },
            WalRecord::HardState { shard: ShardId(5), state: vote(Some(ReplicaId(0))) },
            WalRecord::Entries { shard: ShardId(5), entries: vec![entry(127, b"a"), entry(128, b"\0\xff")] },
            WalRecord::Restart { shard: ShardId(300), index: LogIndex(1), term: Term(u64::MAX) },
            WalRecord::ReplicaIncarnation {
                shard: ShardId(300),
                incarnation: ReplicaIncarnation::Ended(ReplicaId(7)),
                is_restated: true,
            },
            WalRecord::ReplicaIncarnation {
                shard: ShardId(5),
                incarnation: ReplicaIncarnation::Begun {
                    replica: ReplicaId(700),
                    founding: vec![(ReplicaId(2), crate::types::NodeId(3))],
                },
                is_restated: false,
            },
        ];
        let mut out = vec![];
        records.iter().for_each(|record| encode(record, &mut out));
        assert_eq!(decode(&Bytes::from(out)), Ok(records));
    }

    #[test]
    fn wrong_records_are_errors() {
        let cases: [(&'static [u8], DecodeError); 8] = [
            (&[9], DecodeError::UnknownTag("log record")),
            (&[TAG_ENTRIES, 0, 1, 0], DecodeError::Invalid("range of entries")),
            (&[TAG_ENTRIES, 0, 0, 1, 0, 0], DecodeError::Invalid("range of entries")),
            (&[TAG_ENTRIES, 0, 1, 0x7f, 0, 0], DecodeError::Invalid("number of entries")),
            (&[TAG_HARD_STATE, 0, 1, 2, 0], DecodeError::Invalid("boolean")),
            (&[TAG_HARD_STATE, 0, 1], DecodeError::Truncated),
            (&[TAG_RESTART, 0, 0, 1], DecodeError::Invalid("index of a snapshot")),
            (&[TAG_RESTART, 0, 1], DecodeError::Truncated),
        ];
        for (bytes, error) in cases {
            assert_eq!(decode(&Bytes::from_static(bytes)), Err(error), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            // An iterator that fails does not end, so the loop must end at the first error;
            // `collect` does that.
            let _ = decode(&Bytes::from(bytes));
        }
    }
}
