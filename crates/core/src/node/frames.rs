//! Frames from peers.
//!
//! Owns which part of the node handles which message. `peer` owns their layout.

use bytes::Bytes;

use super::Node;
use crate::codec::{DecodeError, Decoder};
use crate::command::Request;
use crate::deliberate::Fault;
use crate::peer::{self, ReadMessage, RequestMessage, RequestMetadata};
use crate::raft;
use crate::types::{NodeId, ShardId};

impl Node {
    pub(super) fn frame(&mut self, from: NodeId, payload: &Bytes) -> Result<(), DecodeError> {
        self.router.heard(from);
        let mut decoder = Decoder::new(payload);
        let output = &mut self.output;
        match decoder.u8()? {
            peer::KIND_RAFT => {
                while !decoder.is_empty() {
                    let shard = ShardId(decoder.varint()?);
                    let step =
                        self.groups.with(shard, |group| group.step(from, (&mut decoder, payload), output));
                    // The replica has not begun here yet, or has ended.
                    step.unwrap_or_else(|| raft::skip_message(&mut decoder, payload))?;
                }
            }
            peer::KIND_REQUESTS => self.requests_heard(from, (&mut decoder, payload))?,
            peer::KIND_SNAPSHOT_PART => {
                let part = peer::decode_snapshot_part(&mut decoder, payload)?;
                self.groups.with(part.id.shard, |group| group.snapshot_part(from, part, output));
            }
            peer::KIND_SNAPSHOT_RECEIPT => {
                let (id, next_offset) = peer::decode_snapshot_receipt(&mut decoder)?;
                self.groups.with(id.shard, |group| group.snapshot_receipt(from, id, next_offset, output));
            }
            peer::KIND_REPORT => {
                let state = peer::disk_state(&mut decoder)?;
                self.peer_disk_changed(from, state);
                while !decoder.is_empty() {
                    let position = peer::position(&mut decoder)?;
                    self.reports.insert((from, position.shard), position);
                    let led = position.leads.then_some(position.term);
                    self.router.heard_of_leader(position.shard, from, led);
                }
            }
            peer::KIND_READS => self.reads_heard(from, (&mut decoder, payload))?,
            peer::KIND_HOSTS => {
                while !decoder.is_empty() {
                    let (node, address) = peer::host(&mut decoder)?;
                    self.learn_host(from, node, address);
                }
            }
            peer::KIND_CLOCK => {
                let message = peer::clock_message(&mut decoder)?;
                decoder.finish()?;
                self.clock_heard(from, message);
            }
            peer::KIND_VERSION => {
                let recorded = peer::decode_version(&mut decoder)?;
                decoder.finish()?;
                self.version_heard(recorded)?;
            }
            peer::KIND_LOAD => {
                let load = peer::decode_load(&mut decoder)?;
                self.load_heard(from, load);
            }
            peer::KIND_SLOT_LOAD => {
                let load = peer::decode_slot_load(&mut decoder)?;
                self.load_heard(from, load);
            }
            peer::KIND_PUBLICATIONS => self.publications.heard(from, (&mut decoder, payload))?,
            peer::KIND_REMOVED => {
                decoder.finish()?;
                self.removed = true;
            }
            _ => return Err(DecodeError::UnknownTag("frame")),
        }
        Ok(())
    }

    /// Handles requests of a peer and outcomes of own ones. What is said about a request precedes
    /// it.
    fn requests_heard(
        &mut self,
        from: NodeId,
        (decoder, payload): (&mut Decoder<'_>, &Bytes),
    ) -> Result<(), DecodeError> {
        let mut metadata = RequestMetadata::default();
        while !decoder.is_empty() {
            match peer::request_message(decoder, payload)? {
                RequestMessage::Metadata(more) => metadata.note(more),
                RequestMessage::Forward { request, shard, write } => {
                    let metadata = self.take_metadata(&mut metadata);
                    self.router.forwarded((from, request), metadata, (shard, &write), &mut self.groups);
                }
                RequestMessage::Outcome { request, outcome } => {
                    self.router.own_outcome(request, from, outcome);
                }
                RequestMessage::Transfer { shard, to } => {
                    let request = Request::Transfer { shard, to };
                    let caller = core::mem::take(&mut metadata).caller;
                    if self.router.may_ask(caller.as_ref(), &request) {
                        self.groups.with(shard, |group| group.transfer_to(to));
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes what was said about the request that comes now.
    fn take_metadata(&self, metadata: &mut RequestMetadata) -> RequestMetadata {
        let taken = core::mem::take(metadata);
        if self.options.faults.has(Fault::TraceOfEarlierRequest) {
            metadata.trace = taken.trace;
        }
        taken
    }

    /// Handles reads of a peer and replies to own ones.
    fn reads_heard(
        &mut self,
        from: NodeId,
        (decoder, payload): (&mut Decoder<'_>, &Bytes),
    ) -> Result<(), DecodeError> {
        let mut metadata = RequestMetadata::default();
        while !decoder.is_empty() {
            match peer::read_message(decoder, payload)? {
                ReadMessage::Metadata(more) => metadata.note(more),
                message => {
                    let metadata = self.take_metadata(&mut metadata);
                    self.router.read_message((from, metadata), message, &mut self.groups);
                }
            }
        }
        Ok(())
    }
}
