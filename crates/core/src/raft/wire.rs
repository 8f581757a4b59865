//! Wire encoding of the engine's messages.
//!
//! Owns the layout of one Raft message between two replicas of a shard. The frame around it has the
//! shard, length and checksum. A field that this version never uses is refused.

use alloc::vec::Vec;
use bytes::Bytes;
use raft::eraftpb::{Entry, Message, MessageType};

use super::membership;
use crate::codec::{self, DecodeError, Decoder};
use crate::types::{LogIndex, Term};

/// Every message kind that is sent, with its number on the wire. Kinds that the engine sends only
/// to itself (hup, beat, propose, transfer, …) have none.
const KINDS: [(MessageType, u8); 12] = [
    (MessageType::MsgAppend, 1),
    (MessageType::MsgAppendResponse, 2),
    (MessageType::MsgHeartbeat, 3),
    (MessageType::MsgHeartbeatResponse, 4),
    (MessageType::MsgRequestVote, 5),
    (MessageType::MsgRequestVoteResponse, 6),
    (MessageType::MsgRequestPreVote, 7),
    (MessageType::MsgRequestPreVoteResponse, 8),
    (MessageType::MsgReadIndex, 9),
    (MessageType::MsgReadIndexResp, 10),
    (MessageType::MsgTimeoutNow, 11),
    (MessageType::MsgSnapshot, 12),
];

/// Whether messages of this kind are sent to other nodes.
pub(super) fn is_sent(message: &Message) -> bool {
    kind(message).is_some()
}

fn kind(message: &Message) -> Option<u8> {
    KINDS.iter().find(|(known, _)| *known == message.get_msg_type()).map(|&(_, kind)| kind)
}

/// Appends `message`, which [`is_sent`].
pub(crate) fn encode(message: &Message, out: &mut Vec<u8>) {
    let kind = kind(message).expect("invariant: only kinds that have a place on the wire are encoded");
    out.push(kind);
    out.push(u8::from(message.reject));
    for field in [
        message.from,
        message.to,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
        // The identity of the snapshot. Its content is sent separately and includes the membership.
        message.get_snapshot().get_metadata().index,
        message.get_snapshot().get_metadata().term,
    ] {
        codec::put_varint(out, field);
    }
    codec::put_bytes(out, &message.context);
    codec::put_varint(out, message.entries.len() as u64);
    for entry in message.entries.iter() {
        codec::put_varint(out, entry.term);
        codec::put_varint(out, entry.index);
        codec::put_bytes(out, membership::data_of(entry));
    }
}

/// Reads one message from `owner`, the buffer that `decoder` reads. Entry data is copied: the log
/// keeps it, and a slice would keep the connection's whole read buffer alive.
pub(crate) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Message, DecodeError> {
    let kind = decoder.u8()?;
    let (kind, _) =
        KINDS.iter().find(|(_, known)| *known == kind).ok_or(DecodeError::UnknownTag("raft message"))?;
    let mut message = Message::default();
    message.set_msg_type(*kind);
    message.reject = decoder.bool()?;
    message.from = decoder.varint()?;
    message.to = decoder.varint()?;
    message.term = decoder.varint()?;
    message.log_term = decoder.varint()?;
    message.index = decoder.varint()?;
    message.commit = decoder.varint()?;
    message.commit_term = decoder.varint()?;
    message.reject_hint = decoder.varint()?;
    let (snapshot_index, snapshot_term) = (decoder.varint()?, decoder.varint()?);
    if (message.get_msg_type() == MessageType::MsgSnapshot) != (snapshot_index > 0) {
        return Err(DecodeError::Invalid("snapshot of a raft message"));
    }
    if snapshot_index > 0 {
        let metadata = message.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (snapshot_index, snapshot_term);
    }
    message.context = decoder.shared(owner)?;
    let kind = message.get_msg_type();
    let entries = decoder.list(|decoder| {
        let (term, index) = (Term(decoder.varint()?), LogIndex(decoder.varint()?));
        let data = Bytes::copy_from_slice(decoder.bytes()?);
        Ok(match kind {
            MessageType::MsgAppend => membership::entry(index, term, data),
            // The context of a ReadIndex request has the form of an entry, but is arbitrary bytes.
            _ => Entry { term: term.0, index: index.0, data, ..Entry::default() },
        })
    })?;
    if kind == MessageType::MsgAppend {
        check_consecutive(&message, &entries)?;
    }
    message.set_entries(entries.into());
    Ok(message)
}

/// Skips one message.
pub(crate) fn skip(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<(), DecodeError> {
    decode(decoder, owner).map(drop)
}

/// Checks that indexes of entries rise by one and terms never decrease, because the engine checks
/// neither and the log asserts both.
fn check_consecutive(message: &Message, entries: &[Entry]) -> Result<(), DecodeError> {
    let (mut previous, mut previous_term) = (message.index, message.log_term);
    for entry in entries {
        let terms = previous_term..=message.term;
        if previous.checked_add(1) != Some(entry.index) || !terms.contains(&entry.term) {
            return Err(DecodeError::Invalid("entry order"));
        }
        (previous, previous_term) = (entry.index, entry.term);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use raft::eraftpb::EntryType;

    fn append() -> Message {
        let mut message = Message {
            from: 1,
            to: 2,
            term: 7,
            log_term: 6,
            index: 41,
            commit: 40,
            context: Bytes::from_static(b"context"),
            ..Message::default()
        };
        message.set_msg_type(MessageType::MsgAppend);
        let entry = |index, data| Entry { term: 7, index, data, ..Entry::default() };
        message.set_entries(vec![entry(42, Bytes::from_static(b"\xff\0")), entry(43, Bytes::new())].into());
        message
    }

    #[test]
    fn messages_round_trip() {
        for (kind, _) in KINDS {
            let mut message = append();
            message.set_msg_type(kind);
            message.reject = true;
            if kind == MessageType::MsgSnapshot {
                let metadata = message.mut_snapshot().mut_metadata();
                (metadata.index, metadata.term) = (41, 6);
            }
            let mut out = vec![];
            assert!(is_sent(&message));
            encode(&message, &mut out);
            let bytes = Bytes::from(out);
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(decode(&mut decoder, &bytes).as_ref(), Ok(&message));
            assert!(decoder.is_empty());
        }
    }

    #[test]
    fn only_what_is_appended_can_change_the_membership() {
        let mut message = append();
        let entry = |data| Entry { term: 7, index: 42, data, ..Entry::default() };
        message.set_entries(vec![entry(Bytes::from_static(&[membership::CHANGE_FORMAT, 0]))].into());
        for (kind, is_change) in [(MessageType::MsgAppend, true), (MessageType::MsgReadIndex, false)] {
            message.set_msg_type(kind);
            let mut out = vec![];
            encode(&message, &mut out);
            let bytes = Bytes::from(out);
            let decoded = decode(&mut Decoder::new(&bytes), &bytes).expect("it decodes");
            assert_eq!(decoded.entries[0].get_entry_type() != EntryType::EntryNormal, is_change, "{kind:?}");
        }
    }

    #[test]
    fn local_kinds_never_cross() {
        let mut message = append();
        message.set_msg_type(MessageType::MsgHup);
        assert!(!is_sent(&message));
    }

    #[test]
    fn every_truncation_and_disorder_is_an_error() {
        let mut out = vec![];
        encode(&append(), &mut out);
        for cut in 0..out.len() {
            let bytes = Bytes::copy_from_slice(&out[..cut]);
            assert!(decode(&mut Decoder::new(&bytes), &bytes).is_err(), "cut at {cut}");
        }
        let changes: [fn(&mut Message); 4] = [
            |message| message.index = 40,
            |message| message.term = 6,
            |message| message.log_term = 8,
            |message| message.mut_entries()[1].term = 6,
        ];
        for change in changes {
            let mut message = append();
            change(&mut message);
            out.clear();
            encode(&message, &mut out);
            let bytes = Bytes::copy_from_slice(&out);
            let decoded = decode(&mut Decoder::new(&bytes), &bytes);
            assert_eq!(decoded, Err(DecodeError::Invalid("entry order")), "{message:?}");
        }
    }
}
