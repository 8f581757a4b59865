//! Frame payloads between nodes.
//!
//! Owns the layout of a payload; `raft::wire` lays out the Raft messages inside. The transport owns
//! length, checksum and version of a frame, and verifies them before a payload comes here.

mod publications;
mod reads;
mod requests;

use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::auth::Caller;
use crate::codec::{self, DecodeError, Decoder};
use crate::command::config::ConfigWritten;
use crate::command::{
    Checkpoint, Denial, FlushedPart, HostLoad, LeaseReply, LockReply, MoveReply, OperationReplies,
    ShardRefusal, Write, WriteReply,
};
use crate::limits;
use crate::slots::{GROUP_SLOTS, SLOTS, SlotGroup};
use crate::spans::TraceContext;
use crate::storage::snapshot::SnapshotId;
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term, UnixMillis, Version};
use crate::version::ClusterVersion;
pub(crate) use publications::{PublicationMessage, publication_message, put_publication, put_received};
pub(crate) use reads::{Question, ReadMessage, put_read, put_read_answer, read_message};
use requests::put_refusal;
pub use requests::{LinkNumber, Origin, Outcome, RequestId};

/// First byte of a payload: Raft messages, each preceded by its shard.
pub(crate) const KIND_RAFT: u8 = 1;
/// First byte of a payload: forwarded commands and their outcomes.
pub(crate) const KIND_REQUESTS: u8 = 2;
/// First byte of a payload: the state of the sender's disk, and the positions of its replicas.
pub(crate) const KIND_REPORT: u8 = 3;

/// First byte of a payload: a part of a snapshot, or a query for the parts that the receiver has.
pub(crate) const KIND_SNAPSHOT_PART: u8 = 4;
/// First byte of a payload: how much of a snapshot the sender has.
pub(crate) const KIND_SNAPSHOT_RECEIPT: u8 = 5;
/// First byte of a payload: the hosts that the sender knows, with their addresses.
pub(crate) const KIND_HOSTS: u8 = 7;
/// First and only byte of a payload: the receiver was removed from the cluster.
pub(crate) const KIND_REMOVED: u8 = 6;

/// First byte of a payload: reads of shards without a replica at the sender, and replies to such
/// reads.
pub(crate) const KIND_READS: u8 = 8;
/// First byte of a payload: the time by the sender's clock.
pub(crate) const KIND_CLOCK: u8 = 9;

/// First byte of a payload: the newest version of anything that the sender may send from now on.
/// Only releases that support it receive this.
pub(crate) const KIND_VERSION: u8 = 10;

/// First byte of a payload: the load of the sender. Clusters of version 3 and later send it, to the
/// leader of the prime shard.
pub(crate) const KIND_LOAD: u8 = 11;

/// First byte of a payload: messages to the subscribers of channels, and acknowledgements. Clusters
/// of version 8 and later send it.
pub(crate) const KIND_PUBLICATIONS: u8 = 12;

/// First byte of a payload: as [`KIND_LOAD`], with the operations for groups of slots. Clusters of
/// version 13 and later send it.
pub(crate) const KIND_SLOT_LOAD: u8 = 13;

/// One message of a [`KIND_REQUESTS`] payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestMessage {
    /// Asks the receiver to propose a write. The sender believes that the receiver leads the shard.
    Forward { request: RequestId, shard: ShardId, write: Write },
    /// The outcome of the receiver's request.
    Outcome { request: RequestId, outcome: Outcome },
    /// Asks the receiver to transfer leadership to `to`. There is no reply.
    Transfer { shard: ShardId, to: NodeId },
    /// Says something about the next request of the same frame.
    Metadata(Metadata),
}

/// What precedes a request in its frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// Who makes it.
    Caller(Caller),
    /// It is traced.
    Trace(TraceContext),
}

/// What a frame said about its next request.
#[derive(Debug, Default)]
pub(crate) struct RequestMetadata {
    pub(crate) caller: Option<Caller>,
    pub(crate) trace: Option<TraceContext>,
}

impl RequestMetadata {
    /// Takes note of one more message about the next request.
    pub(crate) fn note(&mut self, metadata: Metadata) {
        match metadata {
            Metadata::Caller(caller) => self.caller = Some(caller),
            Metadata::Trace(context) => self.trace = Some(context),
        }
    }
}

/// Log position of one replica of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) shard: ShardId,
    pub(crate) term: Term,
    pub(crate) applied: LogIndex,
    /// See [`Group::remembered`](crate::raft::Group::remembered).
    pub(crate) remembered: LogIndex,
    /// Whether the sender leads the shard in `term`.
    pub(crate) leads: bool,
    /// Whether another replica's log contradicts the entries committed in this one.
    pub(crate) diverged: bool,
    pub(crate) checkpoint: Option<Checkpoint>,
}

/// The state of a node's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DiskState {
    /// It completes writes in time.
    #[default]
    Healthy,
    /// It takes no commands: it refuses writes or is slow.
    Stalled,
    /// It completes writes in time again, but was slow until recently.
    Unsteady,
}

impl DiskState {
    /// Its code on the wire.
    pub(crate) fn code(self) -> u8 {
        match self {
            DiskState::Healthy => 0,
            DiskState::Stalled => 1,
            DiskState::Unsteady => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<DiskState> {
        [DiskState::Healthy, DiskState::Stalled, DiskState::Unsteady]
            .into_iter()
            .find(|state| state.code() == code)
    }
}

/// A part of a snapshot, or, without bytes, a query for what the receiver has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SnapshotPart {
    pub(crate) id: SnapshotId,
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

/// The whole of a [`KIND_CLOCK`] payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockMessage {
    /// When it was sent, by the sender's clock.
    pub(crate) sent: UnixMillis,
    /// When the receiver sent its last message, by the receiver's clock, and when that arrived, by
    /// the sender's.
    pub(crate) heard: Option<(UnixMillis, UnixMillis)>,
}

const TAG_FORWARD: u8 = 1;
const TAG_OUTCOME: u8 = 2;
const TAG_TRANSFER: u8 = 3;
/// The caller of the next request, among requests and among reads. Sent only once roles,
/// principals or tokens were stored, which needs cluster version 4.
const TAG_CALLER: u8 = 4;
/// The trace of the next request, among requests and among reads. Clusters of version 11 and later
/// send it.
const TAG_TRACE: u8 = 5;

/// Outcomes with more content than a tag and a number. Their tags share one number space with the
/// other outcomes.
const TAG_OPERATIONS: u8 = 15;
const TAG_BRANCHED: u8 = 41;
const TAG_INVALID: u8 = 16;
const TAG_FORBIDDEN: u8 = 28;
/// Tag of an outcome that is a configuration reply.
const TAG_OUTCOME_CONFIG: u8 = 30;
const TAG_OUTCOME_LEASE: u8 = 50;
const TAG_OUTCOME_LOCK: u8 = 51;
const TAG_OUTCOME_FLUSHED: u8 = 53;

/// Appends the caller of the request that is appended next.
pub(crate) fn put_caller(out: &mut Vec<u8>, caller: &Caller) {
    out.push(TAG_CALLER);
    caller.encode(out);
}

/// Appends the trace of the request that is appended next.
pub(crate) fn put_trace(out: &mut Vec<u8>, context: TraceContext) {
    out.push(TAG_TRACE);
    context.encode(out);
}

/// Appends a forwarded command.
pub(crate) fn put_forward(out: &mut Vec<u8>, request: RequestId, shard: ShardId, write: &Write) {
    out.push(TAG_FORWARD);
    codec::put_varint(out, request.0);
    codec::put_varint(out, shard.0);
    write.encode(out);
}

/// Appends an outcome.
pub(crate) fn put_outcome(out: &mut Vec<u8>, request: RequestId, outcome: &Outcome) {
    out.push(TAG_OUTCOME);
    codec::put_varint(out, request.0);
    match outcome {
        Outcome::Done(reply) => put_write_reply(out, reply),
        Outcome::Refused(refusal) => put_refusal(out, refusal),
        Outcome::NotDone => out.push(0),
        Outcome::NotHere => out.push(21),
    }
}

fn put_write_reply(out: &mut Vec<u8>, reply: &WriteReply) {
    match reply {
        WriteReply::ConditionFailed { current } => put_numbers(out, 5, &[current.0]),
        WriteReply::IdReused => out.push(42),
        WriteReply::Registered => out.push(6),
        WriteReply::Joined { node, replica } => put_numbers(out, 9, &[replica.0, node.0]),
        WriteReply::HostChanged => out.push(10),
        WriteReply::Denied(denial) => put_numbers(out, 11, &[denial.code().into()]),
        WriteReply::Checkpointed { index } => put_numbers(out, 12, &[index.0]),
        WriteReply::Restored => out.push(13),
        WriteReply::Operations(replies) => {
            out.push(TAG_OPERATIONS);
            replies.encode(out);
        }
        WriteReply::Branched { succeeded, replies } => {
            out.extend_from_slice(&[TAG_BRANCHED, u8::from(*succeeded)]);
            replies.encode(out);
        }
        WriteReply::Expired { keys } => put_numbers(out, 18, &[*keys]),
        WriteReply::Move(reply) => put_numbers(out, 20, &[reply.code().into()]),
        WriteReply::ShardAdded { shard } => put_numbers(out, 22, &[shard.0]),
        WriteReply::Moving { moves, last } => put_numbers(out, 23, &[last.0, *moves]),
        WriteReply::Discarded { keys_left } => put_numbers(out, 24, &[*keys_left]),
        WriteReply::AccessChanged { revision } => put_numbers(out, 25, &[revision.0]),
        WriteReply::Lease(reply) => {
            out.push(TAG_OUTCOME_LEASE);
            reply.encode(out);
        }
        WriteReply::Lock(reply) => {
            out.push(TAG_OUTCOME_LOCK);
            reply.encode(out);
        }
        WriteReply::Flushed(part) => {
            out.push(TAG_OUTCOME_FLUSHED);
            part.encode(out);
        }
        WriteReply::Config(result) => {
            out.push(TAG_OUTCOME_CONFIG);
            match result {
                Ok(written) => written.encode(out),
                Err(error) => error.encode(out),
            }
        }
    }
}

fn put_numbers(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    out.push(tag);
    numbers.iter().for_each(|number| codec::put_varint(out, *number));
}

/// Appends a request that the receiver, which leads `shard`, transfers leadership to another node.
pub(crate) fn put_transfer(out: &mut Vec<u8>, shard: ShardId, to: NodeId) {
    out.push(TAG_TRANSFER);
    codec::put_varint(out, shard.0);
    codec::put_varint(out, to.0);
}

/// Reads the next message of a [`KIND_REQUESTS`] payload.
pub(crate) fn request_message(
    decoder: &mut Decoder<'_>,
    owner: &Bytes,
) -> Result<RequestMessage, DecodeError> {
    match decoder.u8()? {
        TAG_FORWARD => {
            let request = RequestId(decoder.varint()?);
            let shard = ShardId(decoder.varint()?);
            Ok(RequestMessage::Forward { request, shard, write: Write::decode(decoder, owner)? })
        }
        TAG_OUTCOME => {
            let request = RequestId(decoder.varint()?);
            Ok(RequestMessage::Outcome { request, outcome: outcome(decoder, owner)? })
        }
        TAG_TRANSFER => {
            let shard = ShardId(decoder.varint()?);
            Ok(RequestMessage::Transfer { shard, to: NodeId(decoder.varint()?) })
        }
        TAG_CALLER => Ok(RequestMessage::Metadata(Metadata::Caller(Caller::decode(decoder)?))),
        TAG_TRACE => Ok(RequestMessage::Metadata(Metadata::Trace(TraceContext::decode(decoder)?))),
        _ => Err(DecodeError::UnknownTag("request message")),
    }
}

fn outcome(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Outcome, DecodeError> {
    Ok(Outcome::Done(match decoder.u8()? {
        0 => return Ok(Outcome::NotDone),
        21 => return Ok(Outcome::NotHere),
        7 => return Ok(Outcome::Refused(ShardRefusal::Overloaded)),
        14 => return Ok(Outcome::Refused(ShardRefusal::DiskUnavailable)),
        TAG_INVALID => return Ok(Outcome::Refused(ShardRefusal::Invalid(decoder.text()?.into()))),
        19 => return Ok(Outcome::Refused(ShardRefusal::CrossShard)),
        26 => return Ok(Outcome::Refused(ShardRefusal::Unauthenticated)),
        27 => return Ok(Outcome::Refused(ShardRefusal::PermissionsUnknown)),
        TAG_FORBIDDEN => return Ok(Outcome::Refused(ShardRefusal::Forbidden(decoder.text()?.into()))),
        5 => WriteReply::ConditionFailed { current: Version(decoder.varint()?) },
        42 => WriteReply::IdReused,
        6 => WriteReply::Registered,
        9 => {
            let replica = ReplicaId(decoder.varint()?);
            WriteReply::Joined { node: NodeId(decoder.varint()?), replica }
        }
        10 => WriteReply::HostChanged,
        11 => WriteReply::Denied(Denial::from_code(decoder.varint()?.try_into().unwrap_or(0))?),
        12 => WriteReply::Checkpointed { index: LogIndex(decoder.varint()?) },
        13 => WriteReply::Restored,
        TAG_OPERATIONS => WriteReply::Operations(OperationReplies::decode(decoder, owner)?),
        TAG_BRANCHED => {
            let succeeded = decoder.bool()?;
            WriteReply::Branched { succeeded, replies: OperationReplies::decode(decoder, owner)? }
        }
        18 => WriteReply::Expired { keys: decoder.varint()? },
        20 => WriteReply::Move(MoveReply::from_code(decoder.varint()?.try_into().unwrap_or(0))?),
        22 => WriteReply::ShardAdded { shard: ShardId(decoder.varint()?) },
        23 => {
            let last = MigrationId(decoder.varint()?);
            WriteReply::Moving { moves: decoder.varint()?, last }
        }
        24 => WriteReply::Discarded { keys_left: decoder.varint()? },
        25 => WriteReply::AccessChanged { revision: LogIndex(decoder.varint()?) },
        TAG_OUTCOME_LEASE => WriteReply::Lease(LeaseReply::decode(decoder)?),
        TAG_OUTCOME_LOCK => WriteReply::Lock(LockReply::decode(decoder)?),
        TAG_OUTCOME_FLUSHED => WriteReply::Flushed(FlushedPart::decode(decoder, owner)?),
        TAG_OUTCOME_CONFIG => WriteReply::Config(ConfigWritten::decode(decoder)?),
        _ => return Err(DecodeError::UnknownTag("outcome")),
    }))
}

/// Encodes a [`KIND_REPORT`] payload.
pub(crate) fn report(disk: DiskState, positions: impl Iterator<Item = Position>) -> Vec<u8> {
    let mut out = alloc::vec![KIND_REPORT, disk.code()];
    for position in positions {
        codec::put_varint(&mut out, position.shard.0);
        codec::put_varint(&mut out, position.term.0);
        codec::put_varint(&mut out, position.applied.0);
        codec::put_varint(&mut out, position.remembered.0);
        out.push(u8::from(position.leads) | u8::from(position.diverged) << 1);
        // The index of a checkpoint is never 0.
        let Checkpoint { index, checksum } =
            position.checkpoint.unwrap_or(Checkpoint { index: LogIndex(0), checksum: 0 });
        codec::put_varint(&mut out, index.0);
        codec::put_varint(&mut out, u64::from(checksum));
    }
    out
}

/// Reads the start of a [`KIND_REPORT`] payload: the state of the sender's disk.
pub(crate) fn disk_state(decoder: &mut Decoder<'_>) -> Result<DiskState, DecodeError> {
    DiskState::from_code(decoder.u8()?).ok_or(DecodeError::Invalid("state of a disk"))
}

/// Reads the next position of a [`KIND_REPORT`] payload.
pub(crate) fn position(decoder: &mut Decoder<'_>) -> Result<Position, DecodeError> {
    let (shard, term) = (ShardId(decoder.varint()?), Term(decoder.varint()?));
    let (applied, remembered) = (LogIndex(decoder.varint()?), LogIndex(decoder.varint()?));
    let (leads, diverged) = match decoder.u8()? {
        flags @ 0..=3 => (flags & 1 != 0, flags & 2 != 0),
        _ => return Err(DecodeError::Invalid("state of a replica")),
    };
    let index = LogIndex(decoder.varint()?);
    let checksum = decoder.bounded(u32::MAX.into(), "checksum")? as u32;
    let checkpoint = (index != LogIndex(0)).then_some(Checkpoint { index, checksum });
    Ok(Position { shard, term, applied, remembered, leads, diverged, checkpoint })
}

/// Encodes a [`KIND_CLOCK`] payload.
pub(crate) fn clock(message: ClockMessage) -> Vec<u8> {
    let mut out = alloc::vec![KIND_CLOCK];
    codec::put_varint(&mut out, message.sent.0);
    out.push(u8::from(message.heard.is_some()));
    for time in message.heard.iter().flat_map(|(sent, received)| [sent, received]) {
        codec::put_varint(&mut out, time.0);
    }
    out
}

/// Reads a [`KIND_CLOCK`] payload.
pub(crate) fn clock_message(decoder: &mut Decoder<'_>) -> Result<ClockMessage, DecodeError> {
    let sent = UnixMillis(decoder.varint()?);
    let heard = if decoder.bool()? {
        let sent = UnixMillis(decoder.varint()?);
        Some((sent, UnixMillis(decoder.varint()?)))
    } else {
        None
    };
    Ok(ClockMessage { sent, heard })
}

/// Encodes a [`KIND_VERSION`] payload.
pub(crate) fn version(recorded: ClusterVersion) -> Vec<u8> {
    let mut out = alloc::vec![KIND_VERSION];
    codec::put_varint(&mut out, recorded.0);
    out
}

/// Reads a [`KIND_VERSION`] payload.
pub(crate) fn decode_version(decoder: &mut Decoder<'_>) -> Result<ClusterVersion, DecodeError> {
    decoder.varint().map(ClusterVersion)
}

/// Encodes a [`KIND_LOAD`] payload, which has no groups of slots.
pub(crate) fn load(load: &HostLoad) -> Vec<u8> {
    let mut out = alloc::vec![KIND_LOAD];
    codec::put_varint(&mut out, load.spanning);
    put_rates(load, &mut out);
    out
}

/// Encodes a [`KIND_SLOT_LOAD`] payload.
pub(crate) fn slot_load(load: &HostLoad) -> Vec<u8> {
    let mut out = alloc::vec![KIND_SLOT_LOAD];
    codec::put_varint(&mut out, load.spanning);
    codec::put_varint(&mut out, load.groups.len() as u64);
    for (group, rate) in &load.groups {
        out.push(group.0);
        codec::put_varint(&mut out, *rate);
    }
    put_rates(load, &mut out);
    out
}

fn put_rates(load: &HostLoad, out: &mut Vec<u8>) {
    for (shard, rate) in load.rates.iter().take(limits::SHARDS_MAX as usize) {
        codec::put_varint(out, shard.0);
        codec::put_varint(out, *rate);
    }
}

/// Reads a [`KIND_LOAD`] payload.
pub(crate) fn decode_load(decoder: &mut Decoder<'_>) -> Result<HostLoad, DecodeError> {
    let load = HostLoad { spanning: decoder.varint()?, ..HostLoad::default() };
    with_rates(load, decoder)
}

/// Reads a [`KIND_SLOT_LOAD`] payload.
pub(crate) fn decode_slot_load(decoder: &mut Decoder<'_>) -> Result<HostLoad, DecodeError> {
    let mut load = HostLoad { spanning: decoder.varint()?, ..HostLoad::default() };
    let count = decoder.bounded(u64::from(SLOTS / GROUP_SLOTS), "number of groups of slots")?;
    for _ in 0..count {
        let group = SlotGroup(decoder.u8()?);
        load.groups.insert(group, decoder.varint()?);
    }
    with_rates(load, decoder)
}

fn with_rates(mut load: HostLoad, decoder: &mut Decoder<'_>) -> Result<HostLoad, DecodeError> {
    while !decoder.is_empty() {
        let shard = ShardId(decoder.varint()?);
        load.rates.insert(shard, decoder.varint()?);
        if load.rates.len() > limits::SHARDS_MAX as usize {
            return Err(DecodeError::Invalid("number of shards"));
        }
    }
    Ok(load)
}

/// Encodes a [`KIND_HOSTS`] payload.
pub(crate) fn hosts<'a>(known: impl Iterator<Item = (NodeId, &'a str)>) -> Vec<u8> {
    let mut out = alloc::vec![KIND_HOSTS];
    for (node, address) in known {
        codec::put_varint(&mut out, node.0);
        codec::put_bytes(&mut out, address.as_bytes());
    }
    out
}

/// Reads the next host of a [`KIND_HOSTS`] payload.
pub(crate) fn host(decoder: &mut Decoder<'_>) -> Result<(NodeId, String), DecodeError> {
    Ok((NodeId(decoder.varint()?), decoder.text()?))
}

/// Encodes a [`KIND_SNAPSHOT_PART`] payload.
pub(crate) fn snapshot_part(part: &SnapshotPart) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.bytes.len() + 64);
    out.push(KIND_SNAPSHOT_PART);
    put_snapshot_id(&mut out, part.id);
    codec::put_varint(&mut out, part.offset);
    codec::put_bytes(&mut out, &part.bytes);
    out
}

/// Reads a [`KIND_SNAPSHOT_PART`] payload.
pub(crate) fn decode_snapshot_part(
    decoder: &mut Decoder<'_>,
    owner: &Bytes,
) -> Result<SnapshotPart, DecodeError> {
    let id = snapshot_id(decoder)?;
    Ok(SnapshotPart { id, offset: decoder.varint()?, bytes: decoder.shared(owner)? })
}

/// Encodes a [`KIND_SNAPSHOT_RECEIPT`] payload.
pub(crate) fn snapshot_receipt(id: SnapshotId, next_offset: u64) -> Vec<u8> {
    let mut out = alloc::vec![KIND_SNAPSHOT_RECEIPT];
    put_snapshot_id(&mut out, id);
    codec::put_varint(&mut out, next_offset);
    out
}

/// Reads a [`KIND_SNAPSHOT_RECEIPT`] payload.
pub(crate) fn decode_snapshot_receipt(decoder: &mut Decoder<'_>) -> Result<(SnapshotId, u64), DecodeError> {
    Ok((snapshot_id(decoder)?, decoder.varint()?))
}

fn put_snapshot_id(out: &mut Vec<u8>, id: SnapshotId) {
    for field in [id.shard.0, id.index.0, id.term.0] {
        codec::put_varint(out, field);
    }
}

fn snapshot_id(decoder: &mut Decoder<'_>) -> Result<SnapshotId, DecodeError> {
    let shard = ShardId(decoder.varint()?);
    Ok(SnapshotId { shard, index: LogIndex(decoder.varint()?), term: Term(decoder.varint()?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::config::ConfigError;
    use crate::command::{
        Condition, Exchange, Operation, OperationRepliesBuilder, OperationReply, Rejection,
    };
    use alloc::vec;

    fn replies() -> OperationReplies {
        let mut replies = OperationRepliesBuilder::default();
        replies.push(&OperationReply::Absent);
        replies.push(&OperationReply::Number { version: Version(7), value: -7 });
        replies.finish()
    }

    #[test]
    fn request_messages_round_trip() {
        let write = Write::of(&Operation::Put {
            key: b"k\0",
            value: b"\xff",
            condition: Condition::Version(Version(3)),
        });
        let outcomes = [
            Outcome::NotDone,
            Outcome::NotHere,
            Outcome::Done(WriteReply::ShardAdded { shard: ShardId(300) }),
            Outcome::Done(WriteReply::Moving { moves: 300, last: MigrationId(400) }),
            Outcome::Done(WriteReply::Move(MoveReply::Again)),
            Outcome::Done(WriteReply::of(&OperationReply::Written { version: Version(9), created: true })),
            Outcome::Done(WriteReply::of(&OperationReply::Written { version: Version(9), created: false })),
            Outcome::Done(WriteReply::of(&OperationReply::Deleted { version: Version(1 << 40) })),
            Outcome::Refused(ShardRefusal::invalid("why")),
            Outcome::Done(WriteReply::ConditionFailed { current: Version(0) }),
            Outcome::Done(WriteReply::Registered),
            Outcome::Refused(ShardRefusal::Overloaded),
            Outcome::Done(WriteReply::Checkpointed { index: LogIndex(1 << 50) }),
            Outcome::Done(WriteReply::Discarded { keys_left: 1 << 50 }),
            Outcome::Done(WriteReply::Restored),
            Outcome::Refused(ShardRefusal::DiskUnavailable),
            Outcome::Refused(ShardRefusal::CrossShard),
            Outcome::Refused(ShardRefusal::Unauthenticated),
            Outcome::Refused(ShardRefusal::Forbidden("cluster:admin".into())),
            Outcome::Refused(ShardRefusal::PermissionsUnknown),
            Outcome::Done(WriteReply::AccessChanged { revision: LogIndex(300) }),
            Outcome::Done(WriteReply::of(&OperationReply::Rejected(Rejection::Overflow))),
            Outcome::Done(WriteReply::Expired { keys: 1_000 }),
            Outcome::Done(WriteReply::of(&OperationReply::Exchanged(Exchange {
                swapped: true,
                old: -1,
                version: Version(4),
            }))),
            Outcome::Done(WriteReply::Operations(replies())),
            Outcome::Done(WriteReply::Branched { succeeded: true, replies: replies() }),
            Outcome::Done(WriteReply::IdReused),
            Outcome::Done(WriteReply::Flushed(FlushedPart {
                owned: None,
                revision: Version(300),
                next: None,
            })),
            Outcome::Done(WriteReply::Lease(LeaseReply::Renewed(vec![Some(9), None]))),
            Outcome::Done(WriteReply::Lock(LockReply::Held { fence: Version(300), valid_for_ms: 9 })),
            Outcome::Done(WriteReply::Config(Ok(ConfigWritten { revision: 9, changed: true }))),
            Outcome::Done(WriteReply::Config(Err(ConfigError::RevisionMismatch { current: 9 }))),
        ];
        let mut out = vec![];
        put_forward(&mut out, RequestId(7), ShardId(2), &write);
        for outcome in &outcomes {
            put_outcome(&mut out, RequestId(8), outcome);
        }
        let bytes = Bytes::from(out);
        let mut decoder = Decoder::new(&bytes);
        let forward = request_message(&mut decoder, &bytes);
        assert_eq!(forward, Ok(RequestMessage::Forward { request: RequestId(7), shard: ShardId(2), write }));
        for outcome in outcomes {
            let message = request_message(&mut decoder, &bytes);
            assert_eq!(message, Ok(RequestMessage::Outcome { request: RequestId(8), outcome }));
        }
        assert!(decoder.is_empty());
    }

    #[test]
    fn outcomes_keep_their_bytes() {
        let joined = WriteReply::Joined { node: NodeId(4), replica: ReplicaId(300) };
        let written = ConfigWritten { revision: 9, changed: true };
        let error = ConfigError::RevisionMismatch { current: 9 };
        let expected: [(Outcome, &[u8]); 20] = [
            (Outcome::NotDone, &[0]),
            (Outcome::NotHere, &[21]),
            (Outcome::Refused(ShardRefusal::Overloaded), &[7]),
            (Outcome::Refused(ShardRefusal::DiskUnavailable), &[14]),
            (Outcome::Refused(ShardRefusal::invalid("why")), b"\x10\x03why"),
            (Outcome::Refused(ShardRefusal::CrossShard), &[19]),
            (Outcome::Done(WriteReply::ConditionFailed { current: Version(3) }), &[5, 3]),
            (Outcome::Done(WriteReply::Registered), &[6]),
            (Outcome::Done(joined), &[9, 0xac, 2, 4]),
            (Outcome::Done(WriteReply::HostChanged), &[10]),
            (Outcome::Done(WriteReply::Denied(Denial::LastVoter)), &[11, 3]),
            (Outcome::Done(WriteReply::Checkpointed { index: LogIndex(5) }), &[12, 5]),
            (Outcome::Done(WriteReply::Restored), &[13]),
            (Outcome::Done(WriteReply::Expired { keys: 6 }), &[18, 6]),
            (Outcome::Done(WriteReply::Move(MoveReply::Again)), &[20, 2]),
            (Outcome::Done(WriteReply::ShardAdded { shard: ShardId(7) }), &[22, 7]),
            (Outcome::Done(WriteReply::Moving { moves: 8, last: MigrationId(9) }), &[23, 9, 8]),
            (Outcome::Done(WriteReply::Discarded { keys_left: 1 }), &[24, 1]),
            (Outcome::Done(WriteReply::Config(Ok(written))), &[30, 0, 1, 9]),
            (Outcome::Done(WriteReply::Config(Err(error))), &[30, 8, 9]),
        ];
        for (outcome, bytes) in expected {
            let mut out = vec![];
            put_outcome(&mut out, RequestId(1), &outcome);
            assert_eq!(out, [&[TAG_OUTCOME, 1], bytes].concat(), "{outcome:?}");
        }
    }

    #[test]
    fn snapshot_messages_round_trip() {
        let id = SnapshotId { shard: ShardId(3), index: LogIndex(1 << 33), term: Term(4) };
        let part = SnapshotPart { id, offset: 1 << 34, bytes: Bytes::from_static(b"part") };
        let payload = Bytes::from(snapshot_part(&part));
        let mut decoder = Decoder::new(&payload[1..]);
        assert_eq!(decode_snapshot_part(&mut decoder, &payload), Ok(part));
        let payload = snapshot_receipt(id, u64::MAX);
        assert_eq!(decode_snapshot_receipt(&mut Decoder::new(&payload[1..])), Ok((id, u64::MAX)));
    }

    #[test]
    fn loads_round_trip() {
        let rates = [(ShardId(1), 0), (ShardId(300), u64::MAX)].into();
        for sent in [HostLoad::default(), HostLoad { spanning: 7, rates, groups: [].into() }] {
            let payload = load(&sent);
            assert_eq!(decode_load(&mut Decoder::new(&payload[1..])), Ok(sent.clone()));
            let groups = (0..=u8::MAX).map(|group| (SlotGroup(group), u64::from(group) << 40)).collect();
            let sent = HostLoad { groups, ..sent };
            let payload = slot_load(&sent);
            assert_eq!(decode_slot_load(&mut Decoder::new(&payload[1..])), Ok(sent));
        }
        let many = [&[0, 0x81, 0x02][..], &[0; 514]].concat();
        assert!(decode_slot_load(&mut Decoder::new(&many)).is_err(), "257 groups");
    }

    #[test]
    fn clocks_round_trip() {
        for heard in [None, Some((UnixMillis(1), UnixMillis(u64::MAX)))] {
            let message = ClockMessage { sent: UnixMillis(1 << 41), heard };
            let payload = clock(message);
            let mut decoder = Decoder::new(&payload[1..]);
            assert_eq!(clock_message(&mut decoder), Ok(message));
            assert!(decoder.is_empty());
        }
    }

    #[test]
    fn positions_round_trip() {
        let (applied, remembered) = (LogIndex(500), LogIndex(498));
        let (shard, term, leads) = (ShardId(3), Term(4), true);
        let sent = Position { shard, term, applied, remembered, leads, diverged: false, checkpoint: None };
        let checkpoint = Some(Checkpoint { index: LogIndex(499), checksum: u32::MAX });
        let compared = Position { checkpoint, ..sent };
        let diverged = Position { leads: false, diverged: true, ..sent };
        for disk in [DiskState::Healthy, DiskState::Stalled, DiskState::Unsteady] {
            let payload = report(disk, [sent, compared, diverged].into_iter());
            let mut decoder = Decoder::new(&payload[1..]);
            assert_eq!(disk_state(&mut decoder), Ok(disk));
            assert_eq!(position(&mut decoder), Ok(sent));
            assert_eq!(position(&mut decoder), Ok(compared));
            assert_eq!(position(&mut decoder), Ok(diverged));
            assert!(decoder.is_empty());
        }
        assert_eq!(disk_state(&mut Decoder::new(&[3])), Err(DecodeError::Invalid("state of a disk")));
    }
}
