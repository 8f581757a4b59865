//! Describes messages for golden transcripts.
//!
//! Positions in a log are written as `index@term`. Heartbeats without a read round are left out:
//! there are many, and they say nothing.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};

use super::wire;
use crate::codec::{DecodeError, Decoder};

/// Reads a message and describes it; `None` for a heartbeat that serves no read.
pub(crate) fn describe(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Option<String>, DecodeError> {
    let message = wire::decode(decoder, owner)?;
    let Message { term, index, log_term, commit, .. } = message;
    let verdict = if message.reject { "refused" } else { "granted" };
    Ok(Some(match message.get_msg_type() {
        MessageType::MsgHeartbeat | MessageType::MsgHeartbeatResponse if message.context.is_empty() => {
            return Ok(None);
        }
        MessageType::MsgHeartbeat => format!("heartbeat term={term} commit={commit} for a read"),
        MessageType::MsgHeartbeatResponse => format!("heartbeat-response term={term} for a read"),
        MessageType::MsgAppend => {
            let entries: Vec<String> = message.get_entries().iter().map(describe_entry).collect();
            format!("append term={term} after={index}@{log_term} [{}] commit={commit}", entries.join(", "))
        }
        MessageType::MsgAppendResponse if message.reject => {
            format!("append-response term={term} refused={index} last={}", message.reject_hint)
        }
        MessageType::MsgAppendResponse => format!("append-response term={term} index={index}"),
        MessageType::MsgRequestPreVote => format!("pre-vote-request term={term} log={index}@{log_term}"),
        MessageType::MsgRequestPreVoteResponse => format!("pre-vote term={term} {verdict}"),
        MessageType::MsgRequestVote if message.context.is_empty() => {
            format!("vote-request term={term} log={index}@{log_term}")
        }
        MessageType::MsgRequestVote => {
            format!("vote-request term={term} log={index}@{log_term} for a transfer")
        }
        MessageType::MsgRequestVoteResponse => format!("vote term={term} {verdict}"),
        MessageType::MsgReadIndex => String::from("read-index-request"),
        MessageType::MsgReadIndexResp => format!("read-index index={index}"),
        MessageType::MsgTimeoutNow => format!("timeout-now term={term}"),
        MessageType::MsgSnapshot => {
            let metadata = message.get_snapshot().get_metadata();
            format!("snapshot term={term} at={}@{}", metadata.index, metadata.term)
        }
        other => unreachable!("invariant: {other:?} has no place on the wire"),
    }))
}

fn describe_entry(entry: &Entry) -> String {
    let content = match entry.get_entry_type() {
        EntryType::EntryNormal if entry.data.is_empty() => "empty",
        EntryType::EntryNormal => "commands",
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => "membership",
    };
    format!("{}@{} {content}", entry.index, entry.term)
}
