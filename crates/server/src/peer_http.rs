//! HTTP requests of this node to another one, at the HTTP address of the registry.
//!
//! Owns the only place that connects to the HTTP listener of another node, and every time limit on
//! the way. A request has a connection of its own, which ends with its answer. It runs on the
//! worker that asks. `Host` is the address that was reached, because every node answers for IP
//! addresses.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::resolve;
use crate::tls::{MaybeTlsStream, PeerStream, TlsAcceptor};

/// Time limit for a connection to one address: several round trips of any network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the head of an answer. The node only reads its memory or opens files before.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a node may send nothing of a body that is awaited. Shorter than the patience of
/// `tidelock backup save`, so that its user gets the reason.
const BODY_STALL_TIMEOUT: Duration = Duration::from_secs(45);

/// Why a node gave no answer, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum PeerHttpError {
    /// Its name does not resolve, or it takes no connection.
    #[error("it cannot be reached at its HTTP address {address}: {source}")]
    Unreachable {
        /// The address in the registry.
        address: String,
        /// The last failure.
        source: io::Error,
    },
    /// The connection or the answer broke.
    #[error("its HTTP answer broke off: {0}")]
    Broken(#[from] hyper::Error),
    /// Nothing came in time.
    #[error("it sent nothing for {} s", .0.as_secs())]
    Silent(Duration),
    /// The body is longer than any that was expected.
    #[error("its HTTP answer is longer than {0} bytes")]
    TooLong(usize),
}

/// The answer of another node, whose body is read as it is taken.
#[derive(Debug)]
pub struct PeerAnswer {
    /// The status of its head.
    pub status: StatusCode,
    body: Incoming,
    _connection: ConnectionGuard,
}

/// Ends the task of a connection when it is dropped.
#[derive(Debug)]
struct ConnectionGuard(AbortHandle);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The HTTP listener of another node, and how it is asked.
#[derive(Clone, Debug)]
pub struct PeerEndpoint {
    /// `HOST:PORT`.
    pub address: String,
    /// The handshake with it; `None`: it is asked without TLS.
    pub tls: Option<TlsAcceptor>,
    /// The header `Authorization` of the client's request that causes requests to the node, which
    /// checks it again.
    pub authorization: Option<HeaderValue>,
}

/// Sends a request without a body, and waits for the head of the answer. Requires a
/// context for local tasks.
///
/// # Errors
/// When the node cannot be reached, or does not answer in time.
pub async fn send(peer: &PeerEndpoint, method: Method, target: &str) -> Result<PeerAnswer, PeerHttpError> {
    let PeerEndpoint { address, tls, authorization } = peer;
    let unreachable = |source| PeerHttpError::Unreachable { address: address.to_owned(), source };
    let (stream, reached) = connect(address).await.map_err(unreachable)?;
    let (mut sender, guard) = match tls.as_ref() {
        None => begin(stream).await?,
        Some(tls) => begin(secure(tls, stream).await.map_err(unreachable)?).await?,
    };
    let mut request = Request::builder().method(method).uri(target).header(HOST, reached.to_string());
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).expect("invariant: targets are built from numbers");
    let answer = timeout(HEAD_TIMEOUT, sender.send_request(request)).await;
    let answer = answer.map_err(|_| PeerHttpError::Silent(HEAD_TIMEOUT))??;
    let (head, body) = answer.into_parts();
    Ok(PeerAnswer { status: head.status, body, _connection: guard })
}

/// Begins TLS. The certificate must be that of a host of this cluster.
async fn secure(tls: &TlsAcceptor, stream: TcpStream) -> io::Result<MaybeTlsStream> {
    let PeerStream { stream, host } = tls.connect_http(stream).await?;
    let judged = host.and_then(|host| tls.host().judge_cluster(&host));
    judged.map(|()| stream).map_err(io::Error::other)
}

/// Begins to speak HTTP. The connection ends with the guard.
async fn begin<S>(stream: S) -> Result<(SendRequest<Empty<Bytes>>, ConnectionGuard), PeerHttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let task = tokio::task::spawn_local(async move {
        // The request reports the error of its connection.
        let _ = connection.await;
    });
    Ok((sender, ConnectionGuard(task.abort_handle())))
}

/// Connects to the first address of a name that takes the connection.
async fn connect(name: &str) -> io::Result<(TcpStream, SocketAddr)> {
    let mut failure = io::Error::other("the name has no address");
    for address in resolve::addresses(name).await? {
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        match connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok((stream, address));
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

impl PeerAnswer {
    /// The next bytes of the body; `None` after the last ones.
    ///
    /// # Errors
    /// When the connection ends early, or nothing comes in time.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PeerHttpError> {
        loop {
            let frame = timeout(BODY_STALL_TIMEOUT, self.body.frame()).await;
            match frame.map_err(|_| PeerHttpError::Silent(BODY_STALL_TIMEOUT))?.transpose()? {
                None => return Ok(None),
                // Other frames are trailers, which nodes do not send.
                Some(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// The whole body, of at most `bytes_max`.
    ///
    /// # Errors
    /// As [`PeerAnswer::next`], and when the body is longer.
    pub async fn whole(mut self, bytes_max: usize) -> Result<Vec<u8>, PeerHttpError> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.next().await? {
            if whole.len() + bytes.len() > bytes_max {
                return Err(PeerHttpError::TooLong(bytes_max));
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::LocalSet;

    use super::*;

    /// Serves one connection with these bytes, and passes its address to `ask`.
    fn with_answer<F: Future<Output = ()>>(answer: &'static [u8], ask: impl FnOnce(String) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(LocalSet::new().run_until(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let serving = tokio::task::spawn_local(async move {
                let (mut stream, reached) = (listener.accept().await.unwrap().0, listener.local_addr());
                let mut request = vec![];
                while !request.ends_with(b"\r\n\r\n") {
                    assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
                }
                let text = String::from_utf8(request).unwrap().to_ascii_lowercase();
                assert!(text.starts_with("get /v1/x?a=1 http/1.1\r\n"), "{text}");
                assert!(text.contains(&format!("host: {}\r\n", reached.unwrap())), "{text}");
                stream.write_all(answer).await.unwrap();
            });
            ask(address).await;
            serving.await.unwrap();
        }));
    }

    fn peer(address: &str) -> PeerEndpoint {
        PeerEndpoint { address: address.to_owned(), tls: None, authorization: None }
    }

    #[test]
    fn an_answer_is_read_as_it_comes_and_whole() {
        let answer = b"HTTP/1.1 409 Conflict\r\ncontent-length: 5\r\n\r\nhello";
        with_answer(answer, |address| async move {
            let answer = send(&peer(&address), Method::GET, "/v1/x?a=1").await.unwrap();
            assert_eq!(answer.status, StatusCode::CONFLICT);
            assert_eq!(answer.whole(5).await.unwrap(), b"hello");
        });
        with_answer(answer, |address| async move {
            let answer = send(&peer(&address), Method::GET, "/v1/x?a=1").await.unwrap();
            assert!(matches!(answer.whole(4).await, Err(PeerHttpError::TooLong(4))));
        });
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error() {
        with_answer(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", |address| async move {
            let mut answer = send(&peer(&address), Method::GET, "/v1/x?a=1").await.unwrap();
            assert_eq!(answer.next().await.unwrap().unwrap(), &b"hello"[..]);
            assert!(matches!(answer.next().await, Err(PeerHttpError::Broken(_))));
        });
        with_answer(b"", |address| async move {
            let broken = send(&peer(&address), Method::GET, "/v1/x?a=1").await;
            assert!(matches!(broken, Err(PeerHttpError::Broken(_))), "{broken:?}");
        });
    }

    #[test]
    fn a_node_that_is_down_cannot_be_reached() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(LocalSet::new().run_until(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            drop(listener);
            let refused = send(&peer(&address), Method::GET, "/").await.unwrap_err().to_string();
            assert!(refused.contains(&address), "{refused}");
        }));
    }
}
