//! Handshakes between simulated hosts, and what follows from a refusal.
//!
//! As in the server, the host with the higher number dials the other one, at the addresses that its
//! address book returns, and the lower one sends wake-ups. Who answers at an address is a matter of
//! [`addressing`](crate::addressing).

use tidelock_core::handshake::{HandshakeRefusal, HandshakeSide};
use tidelock_core::types::NodeId;

use super::World;
use crate::checkers::Violation;
use crate::event_queue::Direction;
use crate::faults::CrashKind;

/// A connection attempt: who dials, who answers, and at which address.
struct Attempt<'a> {
    dialer: NodeId,
    acceptor: NodeId,
    /// The host that the dialer expects.
    expected: NodeId,
    address: &'a str,
}

impl World<'_> {
    /// Two hosts try to connect: the one with the higher number dials the other. If it does not
    /// reach it, the other one asks it to.
    pub(super) fn meet(&mut self, link: Direction) -> Result<(), Violation> {
        let (low, high) = (link.from.min(link.to), link.from.max(link.to));
        if self.seek(high, low)? {
            self.net.connect(link, &mut self.event_queue);
        } else {
            self.seek(low, high)?;
            self.net.retry(link, &mut self.event_queue);
        }
        Ok(())
    }

    /// A host tries the addresses at which a peer may be, and meets the host at each of them.
    /// Returns whether that was the peer.
    fn seek(&mut self, node: NodeId, peer: NodeId) -> Result<bool, Violation> {
        for address in self.host(node).candidates(peer) {
            let Some(acceptor) = self.addressing.host_at(&address).filter(|found| *found != node) else {
                continue;
            };
            let attempt = Attempt { dialer: node, acceptor, expected: peer, address: &address };
            if self.net.can_meet(Direction { from: node, to: acceptor })
                && self.shake_hands(&attempt)?
                && acceptor == peer
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One handshake: the acceptor judges the dialer, and then the dialer the acceptor. Returns
    /// whether there could be a link.
    ///
    /// # Errors
    /// When a host accepts another one than it dialed: their link would carry frames of one host as
    /// those of another.
    fn shake_hands(&mut self, attempt: &Attempt<'_>) -> Result<bool, Violation> {
        let &Attempt { dialer, acceptor, expected, address } = attempt;
        if !self.introduce(dialer, acceptor, (HandshakeSide::Acceptor, None)) {
            return Ok(false);
        }
        if !self.introduce(acceptor, dialer, (HandshakeSide::Dialer(expected), Some(address))) {
            return Ok(false);
        }
        if acceptor != expected {
            let text = format!("node {dialer} accepts node {acceptor} at {address} as node {expected}");
            return Err(Violation::new("identity", text));
        }
        Ok(true)
    }

    /// A process introduces itself to another one, which dialed it or was dialed. Returns whether
    /// it is accepted. One that was removed learns that. One on an old copy of its directory, or on
    /// an empty one, stops, and that directory cannot be started again.
    fn introduce(&mut self, node: NodeId, to: NodeId, (role, dialed): (HandshakeSide, Option<&str>)) -> bool {
        let (Some(introduction), true) = (self.host(node).introduction(), self.host(to).is_up()) else {
            return false;
        };
        let is_wanted = self.net.wants(to, node);
        let stated = self.host(node).info().peer_address.clone();
        let verdict = self.host(to).meet(&introduction, role, is_wanted);
        self.host(to).learn((node, &stated), (role, dialed), verdict);
        match verdict {
            Ok(()) => {
                self.host(node).is_let_in();
                return true;
            }
            Err(HandshakeRefusal::Removed) => self.dismiss(node),
            Err(refusal) if refusal.is_final(self.host(node).is_registered(), self.plan.deliberate) => {
                self.note(&[24, node.0, to.0], || format!("node {to} refuses node {node}: {refusal:?}"));
                self.host(node).is_refused();
                self.crash(node, CrashKind::Process);
                self.tally.disks_refused += 1;
            }
            // It is not among the peers yet, or no longer: there is no connection until it is. Or
            // it is at the address of another peer, or asks for a connection. Or the other one is
            // on an empty disk.
            Err(
                HandshakeRefusal::UnknownNode
                | HandshakeRefusal::HostMismatch
                | HandshakeRefusal::UnexpectedNode
                | HandshakeRefusal::WrongDirection,
            ) => {}
            Err(
                refusal @ (HandshakeRefusal::ReleaseTooOld
                | HandshakeRefusal::ReleaseTooNew
                | HandshakeRefusal::VersionUnsupported),
            ) => {
                self.note(&[27, node.0, to.0], || format!("node {to} refuses node {node}: {refusal:?}"));
                self.tally.releases_refused += 1;
                return false;
            }
            Err(refusal) => panic!("node {to} refuses node {node}: {refusal}"),
        }
        false
    }

    /// A process learned that its host was removed: it ends and is not started again.
    pub(super) fn dismiss(&mut self, node: NodeId) {
        if self.host(node).is_member() {
            self.note(&[11, node.0], || format!("node {node} learns that it was removed"));
            let incarnation = self.host(node).incarnation();
            self.host(node).crash(CrashKind::Process);
            self.forget_life(incarnation);
            self.host(node).leave();
            self.tally.removed += 1;
        }
    }
}
