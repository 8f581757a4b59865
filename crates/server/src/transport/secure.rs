//! The beginning of a peer connection: TLS, if the node has it, before the handshake of the peer
//! protocol.
//!
//! Owns how failures of TLS are reported, so that a node without TLS and one with it say what is
//! wrong on both sides. The certificate and the settings of TLS are [`crate::tls`]'s.

use std::io;

use tidelock_core::certified_host::{CertificateError, CertifiedHost};
use tokio::net::TcpStream;
use uuid::Uuid;

use super::handshake::HandshakeError;
use crate::tls::{AcceptedPeer, HandshakeFailure, MaybeTlsStream, PeerStream, TlsAcceptor};

/// The names in the certificates of both sides of a connection.
pub struct CertificateCheck {
    own: CertifiedHost,
    shown: Result<CertifiedHost, CertificateError>,
}

impl CertificateCheck {
    /// Judges whether the other side is the host that it claims to be.
    ///
    /// # Errors
    /// When its certificate is not that of the host, or of no host of this cluster.
    pub fn judge(&self, claimed: Uuid) -> Result<(), CertificateError> {
        self.own.judge(self.shown.as_ref().map_err(Clone::clone)?, claimed)
    }

    /// Judges what is known before the other side says which host it is.
    ///
    /// # Errors
    /// When its certificate is of no host of this cluster.
    pub fn judge_cluster(&self) -> Result<(), CertificateError> {
        self.own.judge_cluster(self.shown.as_ref().map_err(Clone::clone)?)
    }
}

/// A connection on which the handshake of the peer protocol can begin.
pub(super) type SecuredStream = (MaybeTlsStream, Option<CertificateCheck>);

/// Begins TLS on a connection that this node made. The certificate is judged when the called node
/// answers.
pub(super) async fn connect(
    tls: Option<&TlsAcceptor>,
    stream: TcpStream,
) -> Result<SecuredStream, HandshakeError> {
    let Some(tls) = tls else { return Ok((MaybeTlsStream::Plain(stream), None)) };
    let PeerStream { stream, host } = tls.connect_peer(stream).await.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => HandshakeError::PeerWithoutTls,
        io::ErrorKind::TimedOut => HandshakeError::Timeout,
        _ => HandshakeError::Tls(error),
    })?;
    Ok((stream, Some(CertificateCheck { own: tls.host().clone(), shown: host })))
}

/// Why TLS did not begin on a connection that this node accepted.
pub(super) enum AcceptError {
    /// The caller speaks without TLS, and can be told so.
    NotTls(TcpStream),
    /// The connection has ended.
    Ended(HandshakeError),
}

/// A connection after its TLS handshake, if the node uses TLS.
pub(super) enum Accepted {
    /// The handshake of the peer protocol can begin.
    Secured(SecuredStream),
    /// The caller may send an enrolment request.
    Enrolment(MaybeTlsStream),
}

/// Begins TLS on a connection that this node accepted. The certificate is judged when the caller
/// introduces itself, so that it can be told why it is refused.
pub(super) async fn accept(tls: Option<&TlsAcceptor>, stream: TcpStream) -> Result<Accepted, AcceptError> {
    let Some(tls) = tls else { return Ok(Accepted::Secured((MaybeTlsStream::Plain(stream), None))) };
    match tls.accept_peer(stream).await {
        Ok(AcceptedPeer::Peer(PeerStream { stream, host })) => {
            let check = CertificateCheck { own: tls.host().clone(), shown: host };
            Ok(Accepted::Secured((stream, Some(check))))
        }
        Ok(AcceptedPeer::Enrolment(stream)) => Ok(Accepted::Enrolment(stream)),
        Err(HandshakeFailure::NotTls(stream)) => Err(AcceptError::NotTls(stream)),
        Err(HandshakeFailure::Failed(error)) => Err(AcceptError::Ended(HandshakeError::Tls(error))),
        Err(HandshakeFailure::Timeout | HandshakeFailure::Evicted) => {
            Err(AcceptError::Ended(HandshakeError::Timeout))
        }
    }
}
