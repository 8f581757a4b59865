//! Handshakes between simulated hosts, and what follows from a refusal.

use tidelock_core::handshake::{HandshakeRefusal, HandshakeSide};
use tidelock_core::types::NodeId;

use super::World;
use crate::event_queue::Direction;
use crate::faults::CrashKind;

impl World<'_> {
    /// Two hosts try to connect: the one with the higher number dials the other. The other one may
    /// ask it to, so each judges the other.
    pub(super) fn meet(&mut self, link: Direction) {
        let (low, high) = (link.from.min(link.to), link.from.max(link.to));
        let mut is_refused = false;
        for (node, to, role) in
            [(high, low, HandshakeSide::Acceptor), (low, high, HandshakeSide::Dialer(low))]
        {
            if self.net.can_meet(link) {
                is_refused |= !self.introduce(node, to, role);
            }
        }
        if is_refused {
            return self.net.connect_later(link, &mut self.event_queue);
        }
        self.net.connect(link, &mut self.event_queue);
    }

    /// A process introduces itself to another one. One that was removed learns that. One on an old
    /// copy of its directory stops, and that directory cannot be started again. Returns false if
    /// the two releases cannot work together.
    fn introduce(&mut self, node: NodeId, to: NodeId, role: HandshakeSide) -> bool {
        let (Some(introduction), true) = (self.host(node).introduction(), self.host(to).is_up()) else {
            return true;
        };
        let is_wanted = self.net.wants(to, node);
        match self.host(to).meet(&introduction, role, is_wanted) {
            Ok(()) => self.host(node).is_let_in(),
            Err(HandshakeRefusal::Removed) => self.dismiss(node),
            // It is not among the peers yet, or no longer: there is no connection until it is.
            Err(HandshakeRefusal::UnknownNode) => {}
            Err(refusal @ (HandshakeRefusal::Outdated | HandshakeRefusal::Duplicate)) => {
                self.note(&[24, node.0, to.0], || format!("node {to} refuses node {node}: {refusal:?}"));
                self.host(node).is_refused();
                self.crash(node, CrashKind::Process);
                self.tally.old_copies_refused += 1;
            }
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
        true
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
