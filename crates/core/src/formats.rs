//! What nodes exchange and what the log holds, as values that are decoded and encoded as a whole.
//!
//! Owns nothing: `peer` and `raft` own the layouts. The node handles a payload message by message
//! and needs no such value. Tests of the formats do: they decode any bytes, and compare.

use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use raft::eraftpb::Message;

use crate::codec::{self, DecodeError, Decoder};
use crate::command::{HostLoad, Write};
use crate::membership::MembershipChange;
use crate::peer::{
    self, DiskState, Metadata, Position, PublicationMessage, ReadMessage, RequestMessage, SnapshotPart,
};
use crate::raft::{self as consensus};
use crate::storage::snapshot::SnapshotId;
use crate::types::{LogIndex, NodeId, ShardId};
use crate::version::ClusterVersion;

/// The payload of a frame between nodes.
#[derive(Debug, PartialEq)]
pub struct FramePayload(Content);

#[derive(Debug, PartialEq)]
enum Content {
    Raft(Vec<(ShardId, Message)>),
    Requests(Vec<RequestMessage>),
    Reads(Vec<ReadMessage>),
    Publications(Vec<PublicationMessage>),
    Report(DiskState, Vec<Position>),
    Hosts(Vec<(NodeId, String)>),
    SnapshotPart(SnapshotPart),
    SnapshotReceipt(SnapshotId, u64),
    Clock(peer::ClockMessage),
    Version(ClusterVersion),
    Load(HostLoad),
    SlotLoad(HostLoad),
    Removed,
}

impl FramePayload {
    /// Decodes a payload.
    ///
    /// # Errors
    /// When a node would refuse a part of it.
    pub fn decode(payload: &Bytes) -> Result<FramePayload, DecodeError> {
        let mut decoder = Decoder::new(payload);
        let content = Content::decode(&mut decoder, payload)?;
        decoder.finish()?;
        Ok(FramePayload(content))
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        match &self.0 {
            Content::Raft(messages) => with_kind(peer::KIND_RAFT, messages, |(shard, message), out| {
                codec::put_varint(out, shard.0);
                consensus::encode_message(message, out);
            }),
            Content::Requests(messages) => with_kind(peer::KIND_REQUESTS, messages, put_request),
            Content::Reads(messages) => with_kind(peer::KIND_READS, messages, put_read),
            Content::Publications(messages) => with_kind(peer::KIND_PUBLICATIONS, messages, put_publication),
            Content::Report(disk, positions) => peer::report(*disk, positions.iter().copied()),
            Content::Hosts(hosts) => peer::hosts(hosts.iter().map(|(node, address)| (*node, &**address))),
            Content::SnapshotPart(part) => peer::snapshot_part(part),
            Content::SnapshotReceipt(id, next_offset) => peer::snapshot_receipt(*id, *next_offset),
            Content::Clock(message) => peer::clock(*message),
            Content::Version(version) => peer::version(*version),
            Content::Load(load) => peer::load(load),
            Content::SlotLoad(load) => peer::slot_load(load),
            Content::Removed => alloc::vec![peer::KIND_REMOVED],
        }
    }
}

impl Content {
    fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Content, DecodeError> {
        Ok(match decoder.u8()? {
            peer::KIND_RAFT => Content::Raft(all(decoder, |decoder| {
                let shard = ShardId(decoder.varint()?);
                Ok((shard, consensus::decode_message(decoder, owner)?))
            })?),
            peer::KIND_REQUESTS => {
                Content::Requests(all(decoder, |decoder| peer::request_message(decoder, owner))?)
            }
            peer::KIND_READS => Content::Reads(all(decoder, |decoder| peer::read_message(decoder, owner))?),
            peer::KIND_PUBLICATIONS => {
                Content::Publications(all(decoder, |decoder| peer::publication_message(decoder, owner))?)
            }
            peer::KIND_REPORT => Content::Report(peer::disk_state(decoder)?, all(decoder, peer::position)?),
            peer::KIND_HOSTS => Content::Hosts(all(decoder, peer::host)?),
            peer::KIND_SNAPSHOT_PART => Content::SnapshotPart(peer::decode_snapshot_part(decoder, owner)?),
            peer::KIND_SNAPSHOT_RECEIPT => {
                let (id, next_offset) = peer::decode_snapshot_receipt(decoder)?;
                Content::SnapshotReceipt(id, next_offset)
            }
            peer::KIND_CLOCK => Content::Clock(peer::clock_message(decoder)?),
            peer::KIND_VERSION => Content::Version(peer::decode_version(decoder)?),
            peer::KIND_LOAD => Content::Load(peer::decode_load(decoder)?),
            peer::KIND_SLOT_LOAD => Content::SlotLoad(peer::decode_slot_load(decoder)?),
            peer::KIND_REMOVED => Content::Removed,
            _ => return Err(DecodeError::UnknownTag("frame")),
        })
    }
}

/// Decodes messages up to the end of the payload.
fn all<T>(
    decoder: &mut Decoder<'_>,
    mut next: impl FnMut(&mut Decoder<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut messages = Vec::new();
    while !decoder.is_empty() {
        messages.push(next(decoder)?);
    }
    Ok(messages)
}

fn with_kind<T>(kind: u8, messages: &[T], put: impl Fn(&T, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = alloc::vec![kind];
    messages.iter().for_each(|message| put(message, &mut out));
    out
}

fn put_request(message: &RequestMessage, out: &mut Vec<u8>) {
    match message {
        RequestMessage::Forward { request, shard, write } => peer::put_forward(out, *request, *shard, write),
        RequestMessage::Outcome { request, outcome } => peer::put_outcome(out, *request, outcome),
        RequestMessage::Transfer { shard, to } => peer::put_transfer(out, *shard, *to),
        RequestMessage::Metadata(metadata) => put_metadata(metadata, out),
    }
}

fn put_metadata(metadata: &Metadata, out: &mut Vec<u8>) {
    match metadata {
        Metadata::Caller(caller) => peer::put_caller(out, caller),
        Metadata::Trace(context) => peer::put_trace(out, *context),
    }
}

fn put_read(message: &ReadMessage, out: &mut Vec<u8>) {
    match message {
        ReadMessage::Ask { question, read, consistency } => {
            peer::put_read(out, *question, (read, *consistency));
        }
        ReadMessage::Answer { request, shard, answer } => {
            peer::put_read_answer(out, (*request, *shard), answer);
        }
        ReadMessage::Metadata(metadata) => put_metadata(metadata, out),
    }
}

fn put_publication(message: &PublicationMessage, out: &mut Vec<u8>) {
    match message {
        PublicationMessage::Publication(publication) => peer::put_publication(out, publication),
        PublicationMessage::Received(bytes) => peer::put_received(out, *bytes),
    }
}

/// The data of a log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryData {
    /// What clients and nodes wrote; nothing in the first entry of a leader's term.
    Writes(Vec<Write>),
    /// A change of the shard's membership, based on the registry after its change at this index.
    Membership(MembershipChange, LogIndex),
}

impl EntryData {
    /// Decodes the data of an entry.
    ///
    /// # Errors
    /// When it is neither writes nor a change of the membership.
    pub fn decode(data: &Bytes) -> Result<EntryData, DecodeError> {
        match consensus::decode_change(data) {
            Ok((change, wanted_at)) => Ok(EntryData::Membership(change, wanted_at)),
            Err(_) => consensus::decode_entry(data).map(EntryData::Writes),
        }
    }

    /// Its bytes. No writes are encoded as an entry of zero writes, not as an empty one.
    pub fn encode(&self) -> Bytes {
        match self {
            EntryData::Writes(writes) => consensus::encode_writes(writes),
            EntryData::Membership(change, wanted_at) => consensus::encode_change(change, *wanted_at),
        }
    }
}
