//! Publications: messages of `PUBLISH`, from the clients of this node to the subscribers on all
//! nodes.
//!
//! Owns which peers get a publication, and what happens when a link is slow. A publication is sent
//! once to every peer to which there is a link, and is stored nowhere: a node gets none while it
//! has no link to the publishing node, or when the link breaks. Publications through the same node
//! arrive in order. Those through different nodes have no order.
//!
//! Flow control: a peer acknowledges the bytes of the publications that it has received, from time
//! to time ([`limits::PUBLICATION_BYTES_PER_ACKNOWLEDGEMENT`]). A publication with which more than
//! [`limits::PUBLICATION_BYTES_UNACKNOWLEDGED_MAX`] would be unacknowledged is dropped for that
//! peer. So a Raft message waits behind at most that many bytes of publications in the send
//! queue of a link. Of one drive's output, Raft messages are sent first.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

use super::Node;
use crate::codec::{DecodeError, Decoder};
use crate::command::{Publication, Refusal};
use crate::deliberate::Fault;
use crate::event::OutgoingFrame;
use crate::limits;
use crate::peer::{self, PublicationMessage};
use crate::types::NodeId;
use crate::version::ClusterVersion;

/// The publications on their way through a node.
#[derive(Debug, Default)]
pub(super) struct Publications {
    /// For the subscribers of this node's clients.
    arrived: Vec<Publication>,
    links: BTreeMap<NodeId, PublicationLink>,
    /// Publications that were not sent to a peer because its link was too slow.
    pub(super) dropped: u64,
}

/// What is on its way to one peer.
#[derive(Debug, Default)]
struct PublicationLink {
    /// The encoded publications of the next frames.
    waiting: Vec<Vec<u8>>,
    /// Bytes sent, or waiting to be, that the peer has not acknowledged.
    unacknowledged_bytes: usize,
    /// Bytes received from the peer that are not acknowledged yet.
    received_bytes: usize,
}

impl PublicationLink {
    fn must_acknowledge(&self) -> bool {
        self.received_bytes >= limits::PUBLICATION_BYTES_PER_ACKNOWLEDGEMENT
    }

    fn frame(&mut self) -> &mut Vec<u8> {
        if self.waiting.last().is_none_or(|frame| frame.len() >= limits::PEER_FRAME_BYTES_CLOSE) {
            self.waiting.push(alloc::vec![peer::KIND_PUBLICATIONS]);
        }
        self.waiting.last_mut().expect("invariant: a frame was begun just now")
    }
}

impl Publications {
    /// Forgets what was on its way through a link: it was established anew, or is broken.
    pub(super) fn link_changed(&mut self, peer: NodeId) {
        self.links.remove(&peer);
    }

    pub(super) fn has_output(&self) -> bool {
        let has_frames = |link: &PublicationLink| !link.waiting.is_empty() || link.must_acknowledge();
        !self.arrived.is_empty() || self.links.values().any(has_frames)
    }

    fn send(&mut self, peer: NodeId, publication: &Publication) {
        let link = self.links.entry(peer).or_default();
        let bytes = publication.link_bytes();
        if link.unacknowledged_bytes + bytes > limits::PUBLICATION_BYTES_UNACKNOWLEDGED_MAX {
            self.dropped += 1;
            return;
        }
        link.unacknowledged_bytes += bytes;
        peer::put_publication(link.frame(), publication);
    }

    /// Handles a frame of a peer.
    pub(super) fn heard(
        &mut self,
        from: NodeId,
        (decoder, payload): (&mut Decoder<'_>, &Bytes),
    ) -> Result<(), DecodeError> {
        let link = self.links.entry(from).or_default();
        while !decoder.is_empty() {
            match peer::publication_message(decoder, payload)? {
                PublicationMessage::Publication(publication) => {
                    link.received_bytes += publication.link_bytes();
                    self.arrived.push(publication);
                }
                PublicationMessage::Received(bytes) => {
                    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                    link.unacknowledged_bytes = link.unacknowledged_bytes.saturating_sub(bytes);
                }
            }
        }
        Ok(())
    }

    /// Takes what has arrived, for the subscribers of this node.
    pub(super) fn take_arrived(&mut self) -> Vec<Publication> {
        core::mem::take(&mut self.arrived)
    }

    /// Takes the frames to send, with acknowledgements of what was received.
    pub(super) fn take_frames(&mut self, frames: &mut Vec<OutgoingFrame>) {
        for (peer, link) in &mut self.links {
            if link.must_acknowledge() {
                let received = core::mem::take(&mut link.received_bytes);
                peer::put_received(link.frame(), received as u64);
            }
            let outgoing =
                |frame: Vec<u8>| OutgoingFrame { to: *peer, payload: frame.into(), droppable: false };
            // Not droppable: what is dropped on the way would never be acknowledged.
            frames.extend(link.waiting.drain(..).map(outgoing));
        }
    }
}

impl Node {
    /// Passes a publication of a client to the subscribers here, and sends it to every peer.
    pub(super) fn publish(&mut self, publication: Publication) -> Result<(), Refusal> {
        if !self.router.has_version(ClusterVersion::WITH_COORDINATION) {
            return Err(Refusal::VersionTooLow);
        }
        publication.validate()?;
        let faults = self.options.faults;
        let linked = self.router.peers().iter().filter(|peer| peer.up).map(|peer| peer.node);
        let peers_max = if faults.has(Fault::PublicationToOnePeer) { 1 } else { limits::HOSTS_MAX };
        for peer in linked.take(peers_max) {
            let copies = if faults.has(Fault::PublicationSentTwice) { 2 } else { 1 };
            (0..copies).for_each(|_| self.publications.send(peer, &publication));
        }
        self.publications.arrived.push(publication);
        Ok(())
    }

    /// Emits the frames with publications, and what has arrived.
    pub(super) fn emit_publications(
        &mut self,
        frames: &mut Vec<OutgoingFrame>,
        arrived: &mut Vec<Publication>,
    ) {
        // Those of removed peers.
        self.publications.links.retain(|peer, _| self.router.is_linked(*peer));
        self.publications.take_frames(frames);
        arrived.append(&mut self.publications.take_arrived());
    }
}
