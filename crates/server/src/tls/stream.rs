//! One type for connections with and without TLS.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::client::ClientCertificate;

/// The connection of a client or of another node.
#[derive(Debug)]
pub enum MaybeTlsStream {
    /// Not encrypted.
    Plain(TcpStream),
    /// Encrypted, after the handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

impl MaybeTlsStream {
    /// The certificate that the client has presented, if it can prove a principal.
    pub fn client_certificate(&self) -> Option<Arc<ClientCertificate>> {
        let MaybeTlsStream::Tls(stream) = self else { return None };
        let (_, session) = stream.get_ref();
        ClientCertificate::of(session.peer_certificates()?.first()?).map(Arc::new)
    }

    /// Whether the other side is on this machine: it has a loopback address, or that of this side.
    pub fn is_local(&self) -> bool {
        let socket = self.socket();
        let (Ok(remote), Ok(own)) = (socket.peer_addr(), socket.local_addr()) else { return false };
        let (remote, own) = (remote.ip().to_canonical(), own.ip().to_canonical());
        remote.is_loopback() || remote == own
    }

    /// Whether the other side has closed the connection, at least for sending, even if bytes that
    /// it sent before are not read yet. Otherwise the task is woken when that may have changed; not
    /// if unread bytes are there.
    pub fn is_closed_by_peer(&self, context: &mut Context<'_>) -> bool {
        let socket = self.socket();
        // Keeps the task registered, which the future below does not beyond this call.
        let _ = socket.poll_read_ready(context);
        let ready = pin!(socket.ready(Interest::READABLE)).poll(context);
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    fn socket(&self) -> &TcpStream {
        match self {
            MaybeTlsStream::Plain(stream) => stream,
            MaybeTlsStream::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            MaybeTlsStream::Tls(stream) => match Pin::new(stream).poll_read(context, buffer) {
                // Many clients close without the alert that TLS asks for. The protocols inside
                // show by themselves whether something is missing.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(()))
                }
                result => result,
            },
        }
    }
}

impl AsyncWrite for MaybeTlsStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            MaybeTlsStream::Plain(stream) => stream.is_write_vectored(),
            MaybeTlsStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_flush(context),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            MaybeTlsStream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
