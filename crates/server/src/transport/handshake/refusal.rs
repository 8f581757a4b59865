//! Why a handshake is refused, and the codes of the reasons on the wire.

use tidelock_core::starts::StartRefusal;

/// Why a handshake was refused; sent to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeRefusal {
    /// The other side's cluster id differs.
    #[error(
        "it belongs to another cluster; --peers, --cluster-name and --shards must be the same on every founder"
    )]
    WrongCluster,
    /// The number belongs to no peer of this node.
    #[error("its number is not among the peers of this cluster")]
    UnknownNode,
    /// The two sides have no protocol version in common.
    #[error(
        "the two builds have no version of the peer protocol in common; run the same release of Tidelock on every node"
    )]
    UnsupportedVersion,
    /// The number is known with another host uuid.
    #[error(
        "its number belongs to another disk; a node whose data directory was lost must join as a new one"
    )]
    HostMismatch,
    /// The connection leads back to this node, or to a copy of its data directory.
    #[error("the connection leads back to this node, or to a copy of its data directory")]
    SelfConnection,
    /// Two hosts of the cluster use one number.
    #[error("two hosts have the same number; each needs its own --peer address out of --peers")]
    SameNumber,
    /// The node with the lower number dialed the one with the higher.
    #[error("the node with the higher number makes the connection, and this came from the lower")]
    WrongDirection,
    /// The dialed address belongs to another peer.
    #[error("another node of the cluster answers at this address")]
    UnexpectedNode,
    /// The number was removed from the cluster permanently.
    #[error("this node was removed from the cluster")]
    Removed,
    /// A later start of the node is known.
    #[error(
        "a later start of the node is known: its data directory was put back to an earlier state, or is a copy of it"
    )]
    Outdated,
    /// Another process with the same start number of the node is known.
    #[error(
        "another process is known as this start of the node: its data directory was put back to an earlier state, or is a \
         copy of it"
    )]
    Duplicate,
    /// Another process of the node has a link.
    #[error("a connection with another process of the node stands")]
    StillConnected,
    /// A reason that only a later version knows.
    #[error("reason {0}, which this version does not know")]
    Other(u8),
}

/// Codes on the wire. A code is never reused.
pub(super) const REFUSAL_CODES: [(HandshakeRefusal, u8); 12] = [
    (HandshakeRefusal::WrongCluster, 1),
    (HandshakeRefusal::UnknownNode, 2),
    (HandshakeRefusal::UnsupportedVersion, 3),
    (HandshakeRefusal::HostMismatch, 4),
    (HandshakeRefusal::SelfConnection, 5),
    (HandshakeRefusal::SameNumber, 6),
    (HandshakeRefusal::WrongDirection, 7),
    (HandshakeRefusal::UnexpectedNode, 8),
    (HandshakeRefusal::Removed, 9),
    (HandshakeRefusal::Outdated, 10),
    (HandshakeRefusal::Duplicate, 11),
    (HandshakeRefusal::StillConnected, 12),
];

impl From<StartRefusal> for HandshakeRefusal {
    fn from(refusal: StartRefusal) -> HandshakeRefusal {
        match refusal {
            StartRefusal::Outdated => HandshakeRefusal::Outdated,
            StartRefusal::Duplicate => HandshakeRefusal::Duplicate,
            StartRefusal::StillConnected => HandshakeRefusal::StillConnected,
        }
    }
}

impl HandshakeRefusal {
    /// The corresponding [`StartRefusal`], if it is about the process's start.
    pub fn of_start(self) -> Option<StartRefusal> {
        let all = [StartRefusal::Outdated, StartRefusal::Duplicate, StartRefusal::StillConnected];
        all.into_iter().find(|refusal| HandshakeRefusal::from(*refusal) == self)
    }

    pub(super) fn code(self) -> u8 {
        match self {
            HandshakeRefusal::Other(code) => code,
            known => REFUSAL_CODES
                .iter()
                .find(|(refusal, _)| *refusal == known)
                .map(|(_, code)| *code)
                .expect("invariant: every refusal has a code"),
        }
    }

    pub(super) fn from_code(code: u8) -> HandshakeRefusal {
        REFUSAL_CODES
            .iter()
            .find(|(_, known)| *known == code)
            .map_or(HandshakeRefusal::Other(code), |(refusal, _)| *refusal)
    }
}
