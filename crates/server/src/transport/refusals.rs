//! Which peers refuse this node, and why, for its health checks.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidelock_core::handshake::HandshakeRefusal;
use tidelock_core::types::NodeId;

/// The last refusal of each peer since there was a link with it.
#[derive(Debug, Default)]
pub struct PeerRefusals(Mutex<BTreeMap<NodeId, HandshakeRefusal>>);

impl PeerRefusals {
    /// With what this peer refused the last handshake; `None` if there was a link since, or no
    /// answer yet.
    pub fn of(&self, peer: NodeId) -> Option<HandshakeRefusal> {
        self.lock().get(&peer).copied()
    }

    pub(super) fn refused(&self, peer: NodeId, refusal: HandshakeRefusal) {
        self.lock().insert(peer, refusal);
    }

    pub(super) fn accepted(&self, peer: NodeId) {
        self.lock().remove(&peer);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, HandshakeRefusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
