//! The links to peers: which are established, which peers send frames, and the frames that wait to
//! be sent to them.

use alloc::vec::Vec;

use super::Router;
use crate::auth::Caller;
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::peer::{self, LinkNumber, Origin};
use crate::types::{NodeId, ShardId, Ticks};

/// The link to one peer.
pub(crate) struct Peer {
    pub(crate) node: NodeId,
    pub(crate) up: bool,
    /// Whether a link is established and the peer has sent a frame lately.
    pub(crate) answers: bool,
    /// When the peer last sent a frame, or its link was established.
    heard: Ticks,
    /// Number of the current or last link.
    pub(super) link: LinkNumber,
    /// Frames with commands and outcomes. The last one takes further messages.
    outgoing: Vec<Vec<u8>>,
    /// Frames with reads and replies to reads.
    pub(super) reads: Vec<Vec<u8>>,
    /// Bytes of forwarded commands that are not answered yet.
    pub(super) unanswered_bytes: usize,
}

impl Router {
    /// Records that a link to a peer is established.
    pub(crate) fn link_up(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
            self.links += 1;
            (peer.up, peer.answers, peer.heard) = (true, true, self.now);
            peer.link = LinkNumber(self.links);
        }
    }

    /// Records that a peer sent a frame.
    pub(crate) fn heard(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
            peer.heard = self.now;
            // Held requests may go to this peer now.
            self.leader_changed |= peer.up && !core::mem::replace(&mut peer.answers, peer.up);
        }
    }

    /// Marks peers that have sent nothing for too long as unreachable, although their links are
    /// established. Reads that wait for them are sent to other nodes.
    pub(super) fn find_silent_peers(&mut self) {
        let (now, limit) = (self.now.0, limits::SILENT_ELECTION_TIMEOUTS * self.election_ticks);
        let is_silent = |peer: &Peer| peer.answers && now - peer.heard.0 > limit;
        let silent: Vec<NodeId> =
            self.peers.iter().filter(|peer| is_silent(peer)).map(|peer| peer.node).collect();
        for node in silent {
            if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
                peer.answers = false;
            }
            self.routes.lose(node);
            self.reads_lost(node);
        }
    }

    /// Sets the peers. Links to nodes that are no longer peers are treated as broken.
    pub(crate) fn set_peers(&mut self, nodes: impl Iterator<Item = NodeId>) {
        let nodes: Vec<NodeId> = nodes.collect();
        let gone: Vec<NodeId> =
            self.peers.iter().map(|peer| peer.node).filter(|node| !nodes.contains(node)).collect();
        for &node in &gone {
            self.link_down(node);
        }
        self.peers.retain(|peer| !gone.contains(&peer.node));
        for node in nodes {
            if !self.peers.iter().any(|peer| peer.node == node) {
                self.peers.push(Peer::new(node));
            }
        }
        self.peers.sort_unstable_by_key(|peer| peer.node);
    }

    /// Asks `leader` to transfer the leadership of a shard to `to`. Returns whether it can be
    /// asked.
    pub(crate) fn ask_transfer(
        &mut self,
        leader: NodeId,
        caller: &Caller,
        (shard, to): (ShardId, NodeId),
    ) -> bool {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == leader && peer.up) else {
            return false;
        };
        let frame = peer.frame();
        self.guard.sent(caller).iter().for_each(|caller| peer::put_caller(frame, caller));
        peer::put_transfer(frame, shard, to);
        true
    }

    /// The payloads of the next frames with commands and outcomes, in order for each peer.
    pub(crate) fn take_payloads(&mut self) -> impl Iterator<Item = (NodeId, Vec<u8>)> {
        let peers = self.peers.iter_mut();
        peers.flat_map(|peer| peer.outgoing.drain(..).map(|payload| (peer.node, payload)))
    }

    /// Frames with reads and replies. If one is lost, its read only takes longer.
    pub(crate) fn take_reads(&mut self) -> impl Iterator<Item = (NodeId, Vec<u8>)> {
        let frames = |peer: &mut Peer| {
            let node = peer.node;
            core::mem::take(&mut peer.reads).into_iter().map(move |frame| (node, frame))
        };
        self.peers.iter_mut().flat_map(frames)
    }

    /// The peers, sorted by number.
    pub(crate) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Whether a link to a node is established.
    pub(crate) fn is_linked(&self, node: NodeId) -> bool {
        self.peers.iter().any(|peer| peer.node == node && peer.up)
    }

    /// Whether a node is reachable: a link is established, and the node sends frames through it.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.peers.iter().any(|peer| peer.node == node && peer.answers)
    }
}

impl Peer {
    fn new(node: NodeId) -> Peer {
        Peer {
            node,
            up: false,
            answers: false,
            heard: Ticks(0),
            link: LinkNumber(0),
            outgoing: Vec::new(),
            reads: Vec::new(),
            unanswered_bytes: 0,
        }
    }

    /// Drops what waits to be sent: the link is broken.
    pub(super) fn link_down(&mut self) {
        (self.up, self.answers) = (false, false);
        self.outgoing.clear();
        self.reads.clear();
    }

    /// Whether there are frames to send.
    pub(super) fn has_frames(&self) -> bool {
        !self.outgoing.is_empty() || !self.reads.is_empty()
    }

    /// Whether the outcome for `origin` may be sent through this link.
    pub(super) fn is(&self, origin: &Origin, faults: Faults) -> bool {
        let same_link = self.link == origin.link || faults.has(Fault::OutcomeThroughLaterLink);
        self.up && self.node == origin.node && same_link
    }

    /// The frame for the next message. A message may make it longer than the limit at which it is
    /// closed.
    pub(super) fn frame(&mut self) -> &mut Vec<u8> {
        if self.outgoing.last().is_none_or(|frame| frame.len() >= limits::PEER_FRAME_BYTES_CLOSE) {
            self.outgoing.push(alloc::vec![peer::KIND_REQUESTS]);
        }
        self.outgoing.last_mut().expect("invariant: a frame was begun just now")
    }
}
