//! The handshake of a peer connection: exchanges cluster, node number, host uuid, process start and
//! protocol version.
//!
//! ```text
//! dialer                                 acceptor
//!   Hello(nonce)            ──────────▶   judges it
//!   judges it               ◀──────────   Hello(nonce, answer), or Refuse(answer) and close
//!   Accept(answer), or      ──────────▶   the link is up
//!   Refuse(answer) and close
//! ```
//!
//! **Freshness.** Each side draws a nonce for each connection, and accepts no link and no refusal
//! that does not answer it. The checksums of later frames are seeded with both nonces
//! ([`FrameChains`]), so frames of one connection are invalid on any other. Recorded bytes that are
//! sent again are refused. This is no authentication: without TLS any process that can speak the
//! protocol can claim to be a node. With TLS the certificate must be that of the host that is
//! claimed, before anything else is judged (`secure`).
//!
//! There are three messages rather than two so that no side considers a link up that the other
//! refuses. The dialer sends its first frames directly after `Accept`, so the third message costs
//! no round trip.
//!
//! **Wake-ups** (`Judge::wake_up`). A node does not make connections to nodes with higher numbers,
//! but it may ask for one. It connects, says `Hello`, and is judged like any dialer. If the
//! direction is the only objection, the answer is `Refuse(WrongDirection)`. Both sides treat it as
//! success: the higher node now dials, and the lower one knows that. A removed node learns of its
//! removal in the same way.
//!
//! **Addresses.** A `Hello` states the address at which peers reach its sender, so that a node is
//! known at its new address before the registry has it.
//!
//! **Joins.** A host that is not a member yet sends `Join` instead of `Hello`. The owner answers
//! it, see [`join`](super::join).
//!
//! Owns the messages and their order; owns no socket and no timeout. What is accepted is the policy
//! of the core, [`tidelock_core::handshake`]. [`KnownStarts`] stores what is known of earlier
//! connections.

mod message;
mod refusal;

pub use message::{FIRST_WITH_NONCES, HANDSHAKE_BYTES_MAX, Hello, Message, PROTOCOL_VERSIONS, VersionRange};

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;

use super::frame::FrameChains;
use super::join::JoinRequest;
use super::secure::CertificateCheck;
use bytes::BytesMut;
use message::ENVELOPE_BYTES;
use tidelock_core::address_book::AddressBook;
use tidelock_core::certified_host::CertificateError;
use tidelock_core::handshake::{HandshakeRefusal, HandshakeSide, Introduction, KnownPeer};
use tidelock_core::starts::KnownStarts;
use tidelock_core::types::NodeId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use uuid::Uuid;

/// Why a handshake did not lead to a link.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// This node refused the other side.
    #[error("refused {claimed}: {refusal}")]
    Refused {
        /// What the other side is told.
        refusal: HandshakeRefusal,
        /// The identity that the other side claims.
        claimed: Introduction,
    },
    /// This node refused a host that is not a member.
    #[error("refused host {host}, which wants to join: {refusal}")]
    NewcomerRefused {
        /// What the host is told.
        refusal: HandshakeRefusal,
        /// The uuid that the host claims.
        host: Uuid,
    },
    /// The other side refused this node.
    #[error("refused by the peer: {refusal}")]
    RefusedByPeer {
        /// What the other side said.
        refusal: HandshakeRefusal,
        /// The peer that was dialed, or that introduced itself.
        peer: NodeId,
    },
    /// The certificate of the other side is not that of the host as which it introduces itself, or
    /// of no host of this cluster.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The other side connects without TLS, and is told that this node demands it.
    #[error("it connects without TLS, and this node has --tls-dir; all nodes of a cluster need it, or none")]
    CallerWithoutTls,
    /// The other side connects with TLS, and this node has none.
    #[error("it connects with TLS, and this node has no --tls-dir; all nodes of a cluster need it, or none")]
    CallerWithTls,
    /// The other side ended the connection when this node began with TLS.
    #[error(
        "the peer ended the connection when TLS began: it stops, or runs without --tls-dir, which all nodes of a cluster need, \
         or none"
    )]
    PeerWithoutTls,
    /// The other side has no certificate that this node trusts, does not trust that of this node,
    /// or does not speak TLS 1.3.
    #[error("TLS failed: {0}")]
    Tls(io::Error),
    /// The other side does not speak the protocol. It gets no answer.
    #[error("not the peer protocol: {0}")]
    Malformed(&'static str),
    /// The connection failed or ended before the handshake was complete.
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
            | HandshakeError::Certificate(_)
            | HandshakeError::CallerWithoutTls
            | HandshakeError::CallerWithTls
            | HandshakeError::Malformed(_)
            | HandshakeError::Timeout => true,
            HandshakeError::RefusedByPeer { .. }
            | HandshakeError::PeerWithoutTls
            | HandshakeError::Tls(_)
            | HandshakeError::Io(_) => false,
        }
    }

    /// Whether TLS or a certificate is the reason, on either side.
    pub fn is_of_tls(&self) -> bool {
        match self {
            HandshakeError::Certificate(_)
            | HandshakeError::CallerWithoutTls
            | HandshakeError::CallerWithTls
            | HandshakeError::PeerWithoutTls
            | HandshakeError::Tls(_) => true,
            HandshakeError::RefusedByPeer { refusal, .. } => {
                matches!(refusal, HandshakeRefusal::CertificateMismatch | HandshakeRefusal::TlsRequired)
            }
            _ => false,
        }
    }

    /// Whether the other side ended the connection during the handshake of TLS.
    pub fn is_end_of_stream(&self) -> bool {
        matches!(self, HandshakeError::Tls(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }
}

/// The result of an accepted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A peer with a higher number: the link is up.
    Peer(Agreement),
    /// A peer with a lower number, which asks this node to dial it.
    WakeUp(NodeId),
    /// A host that is not a member, which asks to join and waits for an answer.
    Join(JoinRequest),
}

/// What both sides of a link have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The identity that the other side claims, and this node accepts.
    pub peer: Introduction,
    /// The initial checksums of frames, one for each direction.
    pub chains: FrameChains,
}

/// What a node checks introductions against.
pub struct Judge<'a> {
    /// The identity of the judging node.
    pub own: Introduction,
    /// The numbers of its peers; read when an introduction is judged.
    pub peers: &'a RefCell<BTreeSet<NodeId>>,
    /// What the owner of the transport knows about a number.
    pub known_peer: &'a dyn Fn(NodeId) -> KnownPeer,
    /// The remembered starts of peers, and their connections.
    pub starts: &'a RefCell<KnownStarts>,
    /// The address that peers reach the judging node at.
    pub address: &'a str,
    /// Where peers may be. Introductions teach it.
    pub addresses: &'a RefCell<AddressBook>,
    /// The certificates of the connection; `None` without TLS.
    pub certificate: Option<&'a CertificateCheck>,
}

/// A peer, and the address at which a connection to it was made.
#[derive(Clone, Copy, Debug)]
pub struct DialTarget<'a> {
    /// The expected peer.
    pub peer: NodeId,
    /// `HOST:PORT`; the host may be a name.
    pub address: &'a str,
}

impl Judge<'_> {
    /// Returns the version to speak, or a reason to refuse. `dialed` is the peer that this node
    /// dialed, if it made the connection. The version is checked first: the other fields may have
    /// another meaning.
    fn judge(&self, hello: &Hello, dialed: Option<DialTarget<'_>>) -> Result<u16, HandshakeRefusal> {
        let version = PROTOCOL_VERSIONS.common(hello.versions).ok_or(HandshakeRefusal::UnsupportedVersion)?;
        let node = hello.identity.node;
        let is_wanted = self.peers.borrow().contains(&node);
        let known = KnownPeer { is_wanted, ..(self.known_peer)(node) };
        let role = dialed.map_or(HandshakeSide::Acceptor, |target| HandshakeSide::Dialer(target.peer));
        let verdict = self.own.judge(&hello.identity, role, known, &self.starts.borrow());
        let mut addresses = self.addresses.borrow_mut();
        addresses.introduced(node, verdict, hello.address.as_deref(), dialed.map(|target| target.address));
        if let Some(DialTarget { peer, address }) = dialed.filter(|target| node != target.peer) {
            addresses.missed(peer, address);
        }
        verdict.map(|()| version)
    }

    /// The dialer's side. Afterwards `buffer` holds the bytes after the handshake, which belong to
    /// frames.
    pub async fn dial<S>(
        &self,
        stream: &mut S,
        buffer: &mut BytesMut,
        target: DialTarget<'_>,
    ) -> Result<Agreement, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let nonce = Uuid::new_v4();
        write_message(stream, &self.hello(nonce, Uuid::nil())).await?;
        let hello = match read_answer(stream, buffer, self.certificate).await? {
            Message::Hello(hello) => hello,
            Message::Refuse { refusal, answers } => {
                return Err(refused_by(target.peer, refusal, nonce, answers));
            }
            _ => return Err(OUT_OF_TURN),
        };
        let version = self.decide(stream, &hello, Some(target)).await?;
        if hello.answers != nonce {
            return Err(NOT_FRESH);
        }
        write_message(stream, &Message::Accept { version, answers: hello.nonce }).await?;
        let chains = FrameChains::of(nonce, hello.nonce);
        Ok(Agreement { peer: hello.identity, chains })
    }

    /// Asks a peer with a higher number to dial this node. The refusal `WrongDirection` means that
    /// it will.
    pub async fn wake_up<S>(&self, stream: &mut S, target: DialTarget<'_>) -> Result<(), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let nonce = Uuid::new_v4();
        write_message(stream, &self.hello(nonce, Uuid::nil())).await?;
        match read_answer(stream, &mut BytesMut::new(), self.certificate).await? {
            Message::Refuse { refusal: HandshakeRefusal::WrongDirection, answers } if answers == nonce => {
                Ok(())
            }
            Message::Refuse { refusal, answers } => Err(refused_by(target.peer, refusal, nonce, answers)),
            // A node that accepts this direction has a lower number, so it is not the peer. Its
            // introduction says where it is.
            Message::Hello(hello) => {
                self.check_certificate(stream, hello.identity.host, hello.nonce).await?;
                let _ = self.judge(&hello, Some(target));
                let Hello { identity, nonce, .. } = hello;
                refuse(stream, HandshakeRefusal::UnexpectedNode, nonce).await;
                Err(HandshakeError::Refused { refusal: HandshakeRefusal::UnexpectedNode, claimed: identity })
            }
            _ => Err(OUT_OF_TURN),
        }
    }

    /// The acceptor's side; returns the caller and its purpose. Afterwards `buffer` holds the bytes
    /// after the handshake.
    pub async fn accept<S>(&self, stream: &mut S, buffer: &mut BytesMut) -> Result<Caller, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let hello = match read_message(stream, buffer).await? {
            Message::Hello(hello) => hello,
            Message::Join { versions, request, nonce } => {
                self.check_newcomer(stream, versions, &request, nonce).await?;
                return challenge(stream, buffer, nonce).await.map(|()| Caller::Join(request));
            }
            _ => return Err(OUT_OF_TURN),
        };
        let node = hello.identity.node;
        let version = match self.decide(stream, &hello, None).await {
            Err(HandshakeError::Refused { refusal: HandshakeRefusal::WrongDirection, .. }) => {
                return Ok(Caller::WakeUp(node));
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
            Message::Refuse { refusal, answers } => Err(refused_by(node, refusal, nonce, answers)),
            _ => Err(OUT_OF_TURN),
        }
    }

    fn hello(&self, nonce: Uuid, answers: Uuid) -> Message {
        let address = Some(self.address.to_owned());
        Message::Hello(Hello { versions: PROTOCOL_VERSIONS, identity: self.own, nonce, answers, address })
    }

    /// Judges, and sends a refusal if there is one.
    async fn decide<S>(
        &self,
        stream: &mut S,
        hello: &Hello,
        dialed: Option<DialTarget<'_>>,
    ) -> Result<u16, HandshakeError>
    where
        S: AsyncWrite + Unpin,
    {
        self.check_certificate(stream, hello.identity.host, hello.nonce).await?;
        match self.judge(hello, dialed) {
            Ok(version) => Ok(version),
            Err(refusal) => {
                refuse(stream, refusal, hello.nonce).await;
                Err(HandshakeError::Refused { refusal, claimed: hello.identity })
            }
        }
    }

    /// Checks that the other side's certificate is that of the host that it claims to be. Precedes
    /// the policy, which learns from introductions where nodes are.
    async fn check_certificate<S>(
        &self,
        stream: &mut S,
        claimed: Uuid,
        nonce: Uuid,
    ) -> Result<(), HandshakeError>
    where
        S: AsyncWrite + Unpin,
    {
        let Some(Err(error)) = self.certificate.map(|certificate| certificate.judge(claimed)) else {
            return Ok(());
        };
        refuse(stream, HandshakeRefusal::CertificateMismatch, nonce).await;
        Err(error.into())
    }

    /// Checks only that a joining host shows its own certificate, if any, that it shares a protocol
    /// version with this one, and that it is another host.
    async fn check_newcomer<S>(
        &self,
        stream: &mut S,
        versions: VersionRange,
        request: &JoinRequest,
        nonce: Uuid,
    ) -> Result<(), HandshakeError>
    where
        S: AsyncWrite + Unpin,
    {
        self.check_certificate(stream, request.host.uuid, nonce).await?;
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

/// Reads the first message of a node that this one has dialed. Nothing that a node of another
/// cluster says counts, but it is asked all the same, so that it can log who called.
pub(super) async fn read_answer<S>(
    stream: &mut S,
    buffer: &mut BytesMut,
    certificate: Option<&CertificateCheck>,
) -> Result<Message, HandshakeError>
where
    S: AsyncRead + Unpin,
{
    let answer = read_message(stream, buffer).await;
    certificate.map_or(Ok(()), CertificateCheck::judge_cluster)?;
    answer
}

/// Tells a caller without TLS that this node demands it.
pub(super) async fn refuse_without_tls<S>(stream: &mut S, buffer: &mut BytesMut) -> HandshakeError
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let nonce = match read_message(stream, buffer).await {
        Ok(Message::Hello(Hello { nonce, .. }) | Message::Join { nonce, .. }) => nonce,
        Ok(_) => return OUT_OF_TURN,
        Err(error) => return error,
    };
    refuse(stream, HandshakeRefusal::TlsRequired, nonce).await;
    HandshakeError::CallerWithoutTls
}

const OUT_OF_TURN: HandshakeError = HandshakeError::Malformed("a message is out of turn");
const NOT_FRESH: HandshakeError =
    HandshakeError::Malformed("a message answers another connection: it was recorded and sent again");

/// Checks that a refusal answers this connection's nonce: otherwise a replayed one could stop this
/// node permanently. Only a node that speaks nothing but version 1 sends none, and only one reason.
fn refused_by(peer: NodeId, refusal: HandshakeRefusal, nonce: Uuid, answers: Uuid) -> HandshakeError {
    let is_of_version_1 = refusal == HandshakeRefusal::UnsupportedVersion && answers.is_nil();
    if answers == nonce || is_of_version_1 {
        HandshakeError::RefusedByPeer { refusal, peer }
    } else {
        NOT_FRESH
    }
}

/// Makes sure that a join request was sent on this connection.
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

/// Sends a refusal before the connection closes. It makes no difference if that fails.
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
    stream.write_all(&message.encode()).await?;
    stream.flush().await
}

/// Reads until one message is complete. Bytes after it stay in `buffer`, whose size is bounded by
/// one message: capacity grows with the bytes received, never with an announced length.
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

    #[test]
    fn introductions_are_judged_by_version_and_policy() {
        let judge = Judge {
            own: identity(2),
            starts: &RefCell::new(KnownStarts::new([].into(), Faults::NONE)),
            peers: &RefCell::new([1, 3].map(NodeId).into()),
            known_peer: &|node| KnownPeer { is_removed: node == NodeId(8), ..KnownPeer::default() },
            address: "b:1",
            addresses: &RefCell::default(),
            certificate: None,
        };
        let accept = |hello: &Hello| judge.judge(hello, None);
        assert_eq!(accept(&hello(identity(3))), Ok(PROTOCOL_VERSIONS.max));
        assert_eq!(accept(&hello(identity(4))), Err(HandshakeRefusal::UnknownNode));
        assert_eq!(accept(&hello(identity(8))), Err(HandshakeRefusal::Removed));
        for versions in [VersionRange { min: 4, max: 9 }, VersionRange { min: 1, max: 2 }] {
            let stranger = Hello { versions, ..hello(identity(8)) };
            assert_eq!(accept(&stranger), Err(HandshakeRefusal::UnsupportedVersion));
        }
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
