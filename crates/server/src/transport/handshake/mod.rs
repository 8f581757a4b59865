//! The first words on a peer connection: who are you, of which cluster, on which disk, which of your starts is this, and
//! which version do we speak?
//!
//! ```text
//! dialer                                 acceptor
//!   Hello(nonce)            ──────────▶   judges it
//!   judges it               ◀──────────   Hello(nonce, answer), or Refuse(answer) and close
//!   Accept(answer), or      ──────────▶   the link is up
//!   Refuse(answer) and close
//! ```
//!
//! **Freshness.** Each side draws a nonce for each connection, and takes nothing that does not answer it: neither a link nor
//! a refusal. The checksums of the frames that follow go on from both nonces ([`FrameChains`]), so frames of one connection
//! are damaged ones on every other. Whoever records bytes and sends them again is refused. It is no authentication: whoever
//! can speak the protocol can still claim to be a node.
//!
//! Three messages rather than two, so that neither side takes a link for standing that the other refuses; the
//! dialer sends its first frames right behind `Accept`, so the third costs no round trip.
//!
//! **Knocks.** A node of a lower number does not make connections to one of a higher; it may knock: it connects and
//! says `Hello`, is judged like anyone, and told `Refuse(WrongDirection)` if that is all there is against it. To both
//! that is a success: the higher node now knows whom to call, and the lower one that it will be called. A node that was
//! removed hears so in the same way.
//!
//! **Newcomers.** A host that is no member yet says `Join` instead, and is answered by the owner, see
//! [`join`](super::join).
//!
//! Owns judgement and order; owns no socket and no timeout. What is remembered of earlier connections is
//! [`KnownStarts`]' business. It proves
//! no identity: it guards against mistakes of configuration, not against an attacker on the network.

mod message;

pub use message::{
    FIRST_WITH_NONCES, HANDSHAKE_BYTES_MAX, HandshakeRefusal, Hello, Identity, Message, PROTOCOL_VERSIONS,
    VersionRange,
};

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;

use super::frame::FrameChains;
use super::join::JoinRequest;
use bytes::BytesMut;
use message::ENVELOPE_BYTES;
use tidelock_core::starts::KnownStarts;
use tidelock_core::types::NodeId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use uuid::Uuid;

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// This node refused.
    #[error("refused {claimed}: {refusal}")]
    Refused {
        /// Why.
        refusal: HandshakeRefusal,
        /// Who the other side says it is.
        claimed: Identity,
    },
    /// This node refused a host that is no member.
    #[error("refused host {host}, which wants to join: {refusal}")]
    NewcomerRefused {
        /// Why.
        refusal: HandshakeRefusal,
        /// Who it says it is.
        host: Uuid,
    },
    /// The other side refused.
    #[error("refused by the peer: {refusal}")]
    RefusedByPeer {
        /// Why.
        refusal: HandshakeRefusal,
        /// Who that is: as it was called by, or as it introduced itself.
        peer: NodeId,
    },
    /// The other side does not speak the protocol. It is given no answer.
    #[error("not the peer protocol: {0}")]
    Malformed(&'static str),
    /// The connection failed, or ended before the handshake did.
    #[error("connection lost during the handshake: {0}")]
    Io(#[from] io::Error),
    /// The other side took too long.
    #[error("no answer in time")]
    Timeout,
}

impl HandshakeError {
    /// Whether this node ended the handshake, rather than the peer or the network.
    pub fn is_ours(&self) -> bool {
        match self {
            HandshakeError::Refused { .. }
            | HandshakeError::NewcomerRefused { .. }
            | HandshakeError::Malformed(_)
            | HandshakeError::Timeout => true,
            HandshakeError::RefusedByPeer { .. } | HandshakeError::Io(_) => false,
        }
    }
}

/// Which end of the connection judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that connected, to reach this peer.
    Dialer(NodeId),
    /// The one that listened.
    Acceptor,
}

/// Who came to an acceptor, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A peer of a higher number: the link is up.
    Peer(Agreement),
    /// A peer of a lower number: it asks to be called.
    Knock(NodeId),
    /// A host that is no member: it waits for an answer.
    Join(JoinRequest),
}

/// What both sides of a link have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The other side.
    pub peer: Identity,
    /// Where the checksums of frames begin.
    pub chains: FrameChains,
}

/// What a node holds against an introduction.
pub struct Judge<'a> {
    /// The judging node.
    pub own: Identity,
    /// The numbers of its peers; looked at when an introduction is judged.
    pub peers: &'a RefCell<BTreeSet<NodeId>>,
    /// What the owner of the transport knows about the number and its disk. Asked before the peers are looked at: a
    /// node that was removed is none of them, and is to hear that rather than that it is not known.
    pub accepts: &'a dyn Fn(NodeId, Uuid) -> Result<(), HandshakeRefusal>,
    /// What is remembered of the starts of peers.
    pub starts: &'a RefCell<KnownStarts>,
}

impl Judge<'_> {
    /// The version to speak, or why there is nothing to say. Version and cluster come first: what a
    /// stranger's other fields mean is not known.
    pub fn judge(&self, hello: &Hello, role: Role) -> Result<u16, HandshakeRefusal> {
        let Identity { cluster, node, host, .. } = hello.identity;
        let version = PROTOCOL_VERSIONS.common(hello.versions).ok_or(HandshakeRefusal::UnsupportedVersion)?;
        if cluster != self.own.cluster {
            return Err(HandshakeRefusal::WrongCluster);
        }
        if host == self.own.host {
            return Err(HandshakeRefusal::SelfConnection);
        }
        if node == self.own.node {
            return Err(HandshakeRefusal::SameNumber);
        }
        (self.accepts)(node, host)?;
        self.starts.borrow().judge(node, hello.identity.known_start())?;
        if !self.peers.borrow().contains(&node) {
            return Err(HandshakeRefusal::UnknownNode);
        }
        // Last, since a knock is taken for one only if nothing else is against it.
        match role {
            Role::Dialer(expected) if node != expected => Err(HandshakeRefusal::UnexpectedNode),
            Role::Acceptor if node < self.own.node => Err(HandshakeRefusal::WrongDirection),
            Role::Dialer(_) | Role::Acceptor => Ok(version),
        }
    }

    /// The dialer's side. Afterwards `buffer` holds whatever came behind the handshake: bytes of frames.
    pub async fn dial<S>(
        &self,
        stream: &mut S,
        buffer: &mut BytesMut,
        peer: NodeId,
    ) -> Result<Agreement, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let nonce = Uuid::new_v4();
        write_message(stream, &self.hello(nonce, Uuid::nil())).await?;
        let hello = match read_message(stream, buffer).await? {
            Message::Hello(hello) => hello,
            Message::Refuse { refusal, answers } => return Err(refused_by(peer, refusal, (nonce, answers))),
            _ => return Err(OUT_OF_TURN),
        };
        let version = self.decide(stream, &hello, Role::Dialer(peer)).await?;
        if hello.answers != nonce {
            return Err(NOT_FRESH);
        }
        write_message(stream, &Message::Accept { version, answers: hello.nonce }).await?;
        let chains = FrameChains::of(nonce, hello.nonce);
        Ok(Agreement { peer: hello.identity, chains })
    }

    /// Asks a peer of a higher number to call. That it refuses the direction, and nothing else, means that it will.
    pub async fn knock<S>(&self, stream: &mut S, peer: NodeId) -> Result<(), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let nonce = Uuid::new_v4();
        write_message(stream, &self.hello(nonce, Uuid::nil())).await?;
        match read_message(stream, &mut BytesMut::new()).await? {
            Message::Refuse { refusal: HandshakeRefusal::WrongDirection, answers } if answers == nonce => {
                Ok(())
            }
            Message::Refuse { refusal, answers } => Err(refused_by(peer, refusal, (nonce, answers))),
            // Whoever takes the connection is of a lower number, so it is not the peer.
            Message::Hello(Hello { identity, nonce, .. }) => {
                refuse(stream, HandshakeRefusal::UnexpectedNode, nonce).await;
                Err(HandshakeError::Refused { refusal: HandshakeRefusal::UnexpectedNode, claimed: identity })
            }
            _ => Err(OUT_OF_TURN),
        }
    }

    /// The acceptor's side; returns who called and what for. Afterwards `buffer` holds whatever came behind the
    /// handshake.
    pub async fn accept<S>(&self, stream: &mut S, buffer: &mut BytesMut) -> Result<Caller, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let hello = match read_message(stream, buffer).await? {
            Message::Hello(hello) => hello,
            Message::Join { versions, request, nonce } => {
                self.check_newcomer(stream, versions, (&request, nonce)).await?;
                return challenge(stream, buffer, nonce).await.map(|()| Caller::Join(request));
            }
            _ => return Err(OUT_OF_TURN),
        };
        let node = hello.identity.node;
        let version = match self.decide(stream, &hello, Role::Acceptor).await {
            Err(HandshakeError::Refused { refusal: HandshakeRefusal::WrongDirection, .. }) => {
                return Ok(Caller::Knock(node));
            }
            decided => decided?,
        };
        let nonce = Uuid::new_v4();
        write_message(stream, &self.hello(nonce, hello.nonce)).await?;
        match read_message(stream, buffer).await? {
            Message::Accept { answers, .. } if answers != nonce => Err(NOT_FRESH),
            Message::Accept { version: theirs, .. } if theirs == version => {
                let chains = FrameChains::of(nonce, hello.nonce);
                Ok(Caller::Peer(Agreement { peer: hello.identity, chains }))
            }
            Message::Accept { .. } => Err(HandshakeError::Malformed("the peer chose another version")),
            Message::Refuse { refusal, answers } => Err(refused_by(node, refusal, (nonce, answers))),
            _ => Err(OUT_OF_TURN),
        }
    }

    fn hello(&self, nonce: Uuid, answers: Uuid) -> Message {
        Message::Hello(Hello { versions: PROTOCOL_VERSIONS, identity: self.own, nonce, answers })
    }

    /// Judges and, if it refuses, says so.
    async fn decide<S>(&self, stream: &mut S, hello: &Hello, role: Role) -> Result<u16, HandshakeError>
    where
        S: AsyncWrite + Unpin,
    {
        match self.judge(hello, role) {
            Ok(version) => Ok(version),
            Err(refusal) => {
                refuse(stream, refusal, hello.nonce).await;
                Err(HandshakeError::Refused { refusal, claimed: hello.identity })
            }
        }
    }

    /// A newcomer is asked for nothing but that the two can talk, and that it is another host than this one.
    async fn check_newcomer<S>(
        &self,
        stream: &mut S,
        versions: VersionRange,
        (request, nonce): (&JoinRequest, Uuid),
    ) -> Result<(), HandshakeError>
    where
        S: AsyncWrite + Unpin,
    {
        let refusal = if PROTOCOL_VERSIONS.common(versions).is_none() {
            HandshakeRefusal::UnsupportedVersion
        } else if request.host.uuid == self.own.host {
            HandshakeRefusal::SelfConnection
        } else {
            return Ok(());
        };
        refuse(stream, refusal, nonce).await;
        Err(HandshakeError::NewcomerRefused { refusal, host: request.host.uuid })
    }
}

const OUT_OF_TURN: HandshakeError = HandshakeError::Malformed("a message is out of turn");
const NOT_FRESH: HandshakeError =
    HandshakeError::Malformed("a message answers another connection: it was recorded and sent again");

/// What a refusal means. One that does not answer this connection's nonce is not believed: it could stop this node for good.
/// Only whoever speaks version 1 alone cannot answer, and says so.
fn refused_by(peer: NodeId, refusal: HandshakeRefusal, (nonce, answers): (Uuid, Uuid)) -> HandshakeError {
    let is_of_version_1 = refusal == HandshakeRefusal::UnsupportedVersion && answers.is_nil();
    if answers == nonce || is_of_version_1 {
        HandshakeError::RefusedByPeer { refusal, peer }
    } else {
        NOT_FRESH
    }
}

/// Makes sure that a newcomer's question was asked on this connection.
async fn challenge<S>(stream: &mut S, buffer: &mut BytesMut, answers: Uuid) -> Result<(), HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let nonce = Uuid::new_v4();
    write_message(stream, &Message::Challenge { nonce, answers }).await?;
    match read_message(stream, buffer).await? {
        Message::Accept { answers, .. } if answers == nonce => Ok(()),
        Message::Accept { .. } => Err(NOT_FRESH),
        _ => Err(OUT_OF_TURN),
    }
}

/// Refuses before the connection closes. A failure to say so changes nothing.
async fn refuse<S: AsyncWrite + Unpin>(stream: &mut S, refusal: HandshakeRefusal, answers: Uuid) {
    if write_message(stream, &Message::Refuse { refusal, answers }).await.is_ok() {
        stream.shutdown().await.ok();
    }
}

/// Writes one message.
pub(super) async fn write_message<S: AsyncWrite + Unpin>(
    stream: &mut S,
    message: &Message,
) -> io::Result<()> {
    stream.write_all(&message.encode()).await
}

/// Reads until one message is whole. What is read beyond it stays in `buffer`, whose size one message bounds:
/// each pass reads into room that is left before it looks again, and room grows with what has arrived, never with
/// what was announced.
pub(super) async fn read_message<S>(stream: &mut S, buffer: &mut BytesMut) -> Result<Message, HandshakeError>
where
    S: AsyncRead + Unpin,
{
    loop {
        if let Some(message) = Message::decode(buffer)? {
            return Ok(message);
        }
        buffer.reserve(ENVELOPE_BYTES + HANDSHAKE_BYTES_MAX);
        if stream.read_buf(buffer).await? == 0 {
            return Err(HandshakeError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::join::JOIN_BYTES_MAX;
    use super::message::tests::{hello, identity};
    use super::*;
    use tidelock_core::deliberate::Faults;
    use tidelock_core::starts::ProcessStart;

    fn judge(hello: &Hello, role: Role) -> Result<u16, HandshakeRefusal> {
        let known_host = Uuid::from_u128(103);
        let removed = NodeId(8);
        Judge {
            own: identity(2),
            starts: &RefCell::new(KnownStarts::new(
                [(NodeId(3), identity(3).known_start())].into(),
                Faults::NONE,
            )),
            peers: &RefCell::new([1, 3].map(NodeId).into()),
            accepts: &|node, host| {
                if node == removed {
                    Err(HandshakeRefusal::Removed)
                } else if node == NodeId(3) && host != known_host {
                    Err(HandshakeRefusal::HostMismatch)
                } else {
                    Ok(())
                }
            },
        }
        .judge(hello, role)
    }

    #[test]
    fn introductions_are_judged() {
        use HandshakeRefusal as R;
        let accept = |identity| judge(&hello(identity), Role::Acceptor);
        assert_eq!(accept(identity(3)), Ok(2));
        let start = |number| ProcessStart { number, instance: Uuid::from_u128(1) };
        assert_eq!(accept(Identity { start: start(7), ..identity(3) }), Ok(2));
        assert_eq!(accept(Identity { start: start(6), ..identity(3) }), Err(R::Duplicate));
        assert_eq!(accept(Identity { start: start(5), ..identity(3) }), Err(R::Outdated));
        assert_eq!(accept(Identity { cluster: Uuid::nil(), ..identity(3) }), Err(R::WrongCluster));
        assert_eq!(accept(Identity { host: Uuid::from_u128(9), ..identity(3) }), Err(R::HostMismatch));
        assert_eq!(accept(Identity { host: Uuid::from_u128(9), ..identity(2) }), Err(R::SameNumber));
        assert_eq!(accept(identity(2)), Err(R::SelfConnection));
        assert_eq!(accept(identity(4)), Err(R::UnknownNode));
        assert_eq!(accept(identity(8)), Err(R::Removed));
        assert_eq!(judge(&hello(identity(8)), Role::Dialer(NodeId(1))), Err(R::Removed));
        assert_eq!(accept(Identity { cluster: Uuid::nil(), ..identity(8) }), Err(R::WrongCluster));
        assert_eq!(accept(identity(1)), Err(R::WrongDirection));
        assert_eq!(judge(&hello(identity(1)), Role::Dialer(NodeId(1))), Ok(2));
        assert_eq!(judge(&hello(identity(3)), Role::Dialer(NodeId(1))), Err(R::UnexpectedNode));
        let newer = Hello { versions: VersionRange { min: 3, max: 9 }, ..hello(identity(3)) };
        assert_eq!(judge(&newer, Role::Acceptor), Err(R::UnsupportedVersion));
        let older = Hello { versions: VersionRange { min: 1, max: 1 }, ..hello(identity(3)) };
        assert_eq!(judge(&older, Role::Acceptor), Err(R::UnsupportedVersion));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn memory_follows_what_has_arrived_and_not_what_was_announced() {
        let (mut caller, mut stream) = tokio::io::duplex(1 << 20);
        let mut envelope = b"TIDEPEER".to_vec();
        envelope.extend_from_slice(&(JOIN_BYTES_MAX as u16).to_le_bytes());
        envelope.extend_from_slice(&[0, 0, 0, 0, 4]);
        caller.write_all(&envelope).await.unwrap();
        drop(caller);
        let mut buffer = BytesMut::new();
        let lost = read_message(&mut stream, &mut buffer).await;
        assert!(matches!(lost, Err(HandshakeError::Io(_))));
        assert_eq!(buffer.len(), envelope.len());
        assert!(buffer.capacity() < 4 << 10, "{}", buffer.capacity());
    }
}
