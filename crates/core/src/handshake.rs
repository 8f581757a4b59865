//! Which process a node accepts as a peer: the policy of every handshake.
//!
//! Owns the checks of an introduction and their order. Deliberately not here: messages, nonces and
//! versions of the peer protocol, which the shell owns, and the memory of earlier starts, which is
//! in [`starts`](crate::starts). The policy proves no identity: it guards against mistakes of
//! configuration. With TLS, [`certified_host`](crate::certified_host) compares the certificate with
//! the introduction before; without TLS nothing guards against an attacker on the network.

use core::fmt;
use uuid::Uuid;

use crate::deliberate::{Fault, Faults};
use crate::starts::{KnownStart, KnownStarts, ProcessStart, StartRefusal};
use crate::types::NodeId;
use crate::version::{ClusterVersion, SupportedVersions, Unsupported};

/// What a node claims to be towards its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The cluster that the node belongs to. Nodes of other clusters are refused.
    pub cluster: Uuid,
    /// The node's number in the cluster.
    pub node: NodeId,
    /// The uuid of its host, created with its data directory.
    pub host: Uuid,
    /// The start of this process, which distinguishes it from earlier ones and from copies.
    pub start: ProcessStart,
    /// The cluster versions that its release supports.
    pub supported: SupportedVersions,
    /// The newest version of anything that it may send.
    pub version: ClusterVersion,
}

/// The judging side's end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeSide {
    /// It connected, to reach this peer.
    Dialer(NodeId),
    /// It accepted the connection.
    Acceptor,
}

/// What the judging node knows about the number in an introduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownPeer {
    /// Whether the number was removed from the cluster.
    pub is_removed: bool,
    /// The uuid of the host with this number, as far as it is known.
    pub host: Option<Uuid>,
    /// Whether the node wants a connection with this number.
    pub is_wanted: bool,
}

/// Why a handshake was refused; sent to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeRefusal {
    /// The other side's cluster id differs.
    #[error(
        "it belongs to another cluster; --peers, --cluster-name, --shards and the release of Tidelock must be the same on \
         every founder"
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
    #[error("two hosts have the same number; each needs its own advertised peer address out of --peers")]
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
    /// The release of the other side does not support the version of this side's cluster.
    #[error(
        "its release is too old for the version of the cluster; run the release that the other nodes run"
    )]
    ReleaseTooOld,
    /// The release of the other side no longer supports the version of this side's cluster.
    #[error(
        "its release is too new for the version of the cluster; upgrade all nodes to a release between the two first, and \
         wait until `tidelock cluster version` shows a newer version"
    )]
    ReleaseTooNew,
    /// The release of this side does not support what the other side may send.
    #[error(
        "it is of a cluster whose version this node's release does not support; run the same release on both"
    )]
    VersionUnsupported,
    /// Another process of the node has a link.
    #[error("a connection with another process of the node stands")]
    StillConnected,
    /// The certificate of the other side is not that of the host as which it introduces itself.
    #[error(
        "its certificate is not that of the host as which it introduces itself, or is of another cluster; each node needs \
         the tls.crt that was made for it"
    )]
    CertificateMismatch,
    /// The other side connected without TLS.
    #[error("it accepts connections with TLS only; start all nodes of the cluster with --tls-dir, or none")]
    TlsRequired,
    /// A reason that only a later version knows.
    #[error("reason {0}, which this version does not know")]
    Other(u8),
}

impl Introduction {
    /// The part of it that peers remember.
    pub fn known_start(&self) -> KnownStart {
        KnownStart { host: self.host, start: self.start }
    }

    /// Why the releases of two nodes cannot work together, if they cannot.
    ///
    /// # Errors
    /// The refusal that the other side is sent.
    pub fn judge_release(&self, other: &Introduction) -> Result<(), HandshakeRefusal> {
        match other.supported.check(self.version) {
            Err(Unsupported::TooOld { .. }) => Err(HandshakeRefusal::ReleaseTooOld),
            Err(Unsupported::TooNew { .. }) => Err(HandshakeRefusal::ReleaseTooNew),
            Ok(()) if other.version > self.supported.newest => Err(HandshakeRefusal::VersionUnsupported),
            Ok(()) => Ok(()),
        }
    }

    /// Judges the introduction of another process, which this one dialed or accepted.
    ///
    /// # Errors
    /// The first reason to refuse it. The cluster is checked first: the other fields of a stranger
    /// may have another meaning. A removed node is told that, although its number is no longer
    /// wanted. The direction is last, because a request to be dialed is accepted if the direction
    /// is the only objection.
    pub fn judge(
        &self,
        other: &Introduction,
        role: HandshakeSide,
        known: KnownPeer,
        starts: &KnownStarts,
    ) -> Result<(), HandshakeRefusal> {
        if other.cluster != self.cluster {
            return Err(HandshakeRefusal::WrongCluster);
        }
        if other.host == self.host {
            return Err(HandshakeRefusal::SelfConnection);
        }
        if other.node == self.node {
            return Err(HandshakeRefusal::SameNumber);
        }
        if known.is_removed {
            return Err(HandshakeRefusal::Removed);
        }
        if known.host.is_some_and(|host| host != other.host) {
            return Err(HandshakeRefusal::HostMismatch);
        }
        starts.judge(other.node, other.known_start())?;
        self.judge_release(other)?;
        if !known.is_wanted {
            return Err(HandshakeRefusal::UnknownNode);
        }
        match role {
            HandshakeSide::Dialer(expected)
                if other.node != expected && !starts.faults().has(Fault::UnexpectedNodeAccepted) =>
            {
                Err(HandshakeRefusal::UnexpectedNode)
            }
            HandshakeSide::Acceptor if other.node < self.node => Err(HandshakeRefusal::WrongDirection),
            HandshakeSide::Dialer(_) | HandshakeSide::Acceptor => Ok(()),
        }
    }
}

impl fmt::Display for Introduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Introduction { cluster, node, host, start, .. } = self;
        write!(f, "node {node} (host {host}, start {}, cluster {cluster})", start.number)
    }
}

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
    /// Whether a process that a peer refuses so must stop, and its directory must not be used
    /// again. `is_registered` says whether the registry, as the process knows it, has its host.
    ///
    /// A founder that no registry has and whose number belongs to another disk was started on an
    /// empty directory, for example because its disk is lost or not mounted. Such founders must not
    /// elect a leader: a majority of them would found the same cluster again, without its data. A
    /// host that is registered is among those that serve, and one peer with a directory from
    /// elsewhere must not stop it.
    ///
    /// `faults` is [`Faults::NONE`], except in tests of the simulator.
    pub fn is_final(self, is_registered: bool, faults: Faults) -> bool {
        match self {
            HandshakeRefusal::HostMismatch => !is_registered && !faults.has(Fault::EmptyFounderContinues),
            refusal => refusal.of_start().is_some_and(StartRefusal::is_final),
        }
    }

    /// The corresponding [`StartRefusal`], if it is about the process's start.
    pub fn of_start(self) -> Option<StartRefusal> {
        let all = [StartRefusal::Outdated, StartRefusal::Duplicate, StartRefusal::StillConnected];
        all.into_iter().find(|refusal| HandshakeRefusal::from(*refusal) == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction(node: u64) -> Introduction {
        let start = ProcessStart { number: 6, instance: Uuid::from_u128(u128::from(200 + node)) };
        let (cluster, host) = (Uuid::from_u128(1), Uuid::from_u128(u128::from(100 + node)));
        let (supported, version) = (SupportedVersions::default(), ClusterVersion::FIRST);
        Introduction { cluster, node: NodeId(node), host, start, supported, version }
    }

    /// The verdict of node 2, which has peers 1 and 3 and knows the host of 3.
    fn judge(other: Introduction, role: HandshakeSide) -> Result<(), HandshakeRefusal> {
        let starts = [(NodeId(3), introduction(3).known_start())].into();
        let known = KnownPeer {
            is_removed: other.node == NodeId(8),
            host: (other.node == NodeId(3)).then_some(Uuid::from_u128(103)),
            is_wanted: [1, 3].contains(&other.node.0),
        };
        introduction(2).judge(&other, role, known, &KnownStarts::new(starts, Faults::NONE))
    }

    #[test]
    fn introductions_are_judged() {
        use HandshakeRefusal as R;
        let accept = |other| judge(other, HandshakeSide::Acceptor);
        let start = |number| ProcessStart { number, instance: Uuid::from_u128(1) };
        assert_eq!(accept(introduction(3)), Ok(()));
        assert_eq!(accept(Introduction { start: start(7), ..introduction(3) }), Ok(()));
        assert_eq!(accept(Introduction { start: start(6), ..introduction(3) }), Err(R::Duplicate));
        assert_eq!(accept(Introduction { start: start(5), ..introduction(3) }), Err(R::Outdated));
        assert_eq!(accept(Introduction { cluster: Uuid::nil(), ..introduction(3) }), Err(R::WrongCluster));
        assert_eq!(
            accept(Introduction { host: Uuid::from_u128(9), ..introduction(3) }),
            Err(R::HostMismatch)
        );
        assert_eq!(accept(Introduction { host: Uuid::from_u128(9), ..introduction(2) }), Err(R::SameNumber));
        assert_eq!(accept(introduction(2)), Err(R::SelfConnection));
        assert_eq!(accept(introduction(4)), Err(R::UnknownNode));
        assert_eq!(accept(introduction(8)), Err(R::Removed));
        assert_eq!(judge(introduction(8), HandshakeSide::Dialer(NodeId(1))), Err(R::Removed));
        assert_eq!(accept(Introduction { cluster: Uuid::nil(), ..introduction(8) }), Err(R::WrongCluster));
        assert_eq!(accept(introduction(1)), Err(R::WrongDirection));
        assert_eq!(judge(introduction(1), HandshakeSide::Dialer(NodeId(1))), Ok(()));
        assert_eq!(judge(introduction(3), HandshakeSide::Dialer(NodeId(1))), Err(R::UnexpectedNode));
    }

    #[test]
    fn an_empty_directory_in_the_place_of_another_disk_stops_its_process() {
        use HandshakeRefusal as R;
        let is_final = |refusal: R, is_registered| refusal.is_final(is_registered, Faults::NONE);
        assert!(is_final(R::HostMismatch, false));
        assert!(!is_final(R::HostMismatch, true), "a peer with an old directory stops no node that serves");
        for is_registered in [false, true] {
            assert!(is_final(R::Outdated, is_registered) && is_final(R::Duplicate, is_registered));
            assert!(!is_final(R::StillConnected, is_registered) && !is_final(R::WrongCluster, is_registered));
        }
    }

    #[test]
    fn releases_are_judged_by_what_the_other_side_may_send() {
        let with = |oldest, newest, version| {
            let supported =
                SupportedVersions { oldest: ClusterVersion(oldest), newest: ClusterVersion(newest) };
            Introduction { supported, version: ClusterVersion(version), ..introduction(3) }
        };
        let own = with(1, 3, 2);
        assert_eq!(own.judge_release(&with(1, 2, 1)), Ok(()), "it has not heard of version 2 yet");
        assert_eq!(own.judge_release(&with(2, 9, 3)), Ok(()), "this node has not heard of version 3 yet");
        assert_eq!(own.judge_release(&with(1, 1, 1)), Err(HandshakeRefusal::ReleaseTooOld));
        assert_eq!(own.judge_release(&with(3, 9, 3)), Err(HandshakeRefusal::ReleaseTooNew));
        assert_eq!(own.judge_release(&with(1, 4, 4)), Err(HandshakeRefusal::VersionUnsupported));
    }
}
