//! Handshakes, and the certificate that they show.
//!
//! Owns the limits of the handshakes with clients. The transport limits those with other nodes.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::pki_types::{IpAddr, Ipv4Addr, ServerName};
use rustls::{ClientConfig, ServerConfig};
use tidelock_core::certified_host::{CertificateError, CertifiedHost};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, TlsStream};

use super::certificate::CertificateInUse;
use super::certificate::{Certificate, CertificateFiles, TlsError, TlsPaths, unix_s};
use super::peer::{ENROLMENT_PROTOCOL, PeerConfigs, enrolling, host_of};
use super::stream::MaybeTlsStream;
use crate::handshake_limit::HandshakeLimit;

/// Most unfinished handshakes of the node with clients. Each holds a socket and some memory for a
/// client of which nothing is known.
const HANDSHAKES_MAX: usize = 256;

/// Longest duration of a handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The first byte of a connection with TLS: a record with a handshake (RFC 8446, section 5.1).
pub const HANDSHAKE_RECORD: u8 = 22;

/// From this long before the end of its validity on, a warning asks for a new certificate.
pub const EXPIRY_WARNING: Duration = Duration::from_secs(7 * 24 * 3600);

/// Accepts TLS on all workers of a node. A clone shares its state.
#[derive(Clone)]
pub struct TlsAcceptor(Arc<Shared>);

struct Shared {
    paths: TlsPaths,
    /// The files that are in use.
    files: Mutex<CertificateFiles>,
    config: RwLock<Arc<ServerConfig>>,
    peers: RwLock<PeerConfigs>,
    /// The host that every certificate of this node names.
    host: CertifiedHost,
    /// Why the files are not those in use, while they are not.
    not_used: Mutex<Option<String>>,
    expires_unix_s: AtomicI64,
    handshakes: HandshakeLimit,
    failures: AtomicU64,
    reload_failures: AtomicU64,
}

/// Why a connection has no TLS.
#[derive(Debug)]
pub enum HandshakeFailure {
    /// The client began with something else. It can be told so, without encryption.
    NotTls(TcpStream),
    /// There is no common version, the client does not trust the certificate, or it is gone.
    Failed(io::Error),
    /// The handshake took too long.
    Timeout,
    /// A newer one has evicted it.
    Evicted,
}

/// A connection with another node, and the host that its certificate names.
#[derive(Debug)]
pub struct PeerStream {
    /// The connection, after the handshake of TLS.
    pub stream: MaybeTlsStream,
    /// The host, or why the certificate names none.
    pub host: Result<CertifiedHost, CertificateError>,
}

/// An accepted connection on the peer port.
#[derive(Debug)]
pub enum AcceptedPeer {
    /// The caller has presented a certificate of a trusted CA.
    Peer(PeerStream),
    /// The caller has presented no certificate. It may only request one (enrolment).
    Enrolment(MaybeTlsStream),
}

/// The result of looking at the files again.
#[derive(Debug)]
pub enum Reload {
    /// The files are those in use.
    Unchanged,
    /// New connections are shown the new certificate.
    Replaced,
    /// The new files are not used, for this reason; the certificate in use stays.
    Kept(TlsError),
}

impl TlsAcceptor {
    /// Reads the certificate of the node, and the client CAs.
    ///
    /// # Errors
    /// When the files cannot be read or do not pass the checks.
    pub fn open(paths: TlsPaths, now: SystemTime) -> Result<TlsAcceptor, TlsError> {
        let files = CertificateFiles::read(&paths)?;
        let certificate = files.check(now)?;
        Ok(TlsAcceptor(Arc::new(Shared {
            paths,
            files: Mutex::new(files),
            config: RwLock::new(certificate.config),
            peers: RwLock::new(certificate.peers),
            host: certificate.host,
            not_used: Mutex::default(),
            expires_unix_s: AtomicI64::new(certificate.expires_unix_s),
            handshakes: HandshakeLimit::new(HANDSHAKES_MAX),
            failures: AtomicU64::new(0),
            reload_failures: AtomicU64::new(0),
        })))
    }

    /// Looks at the files again, and uses them if they have changed and pass the checks.
    pub fn reload(&self, now: SystemTime) -> Reload {
        let shared = &*self.0;
        let mut used = shared.files.lock().unwrap_or_else(PoisonError::into_inner);
        let read = CertificateFiles::read(&shared.paths);
        let mut not_used = shared.not_used.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = match read {
            Ok(files) if files == *used => {
                *not_used = None;
                return Reload::Unchanged;
            }
            Ok(files) => self.check(&files, now).map(|certificate| (files, certificate)),
            Err(error) => Err(error),
        };
        match checked {
            Ok((files, certificate)) => {
                *used = files;
                *shared.config.write().unwrap_or_else(PoisonError::into_inner) = certificate.config;
                *shared.peers.write().unwrap_or_else(PoisonError::into_inner) = certificate.peers;
                shared.expires_unix_s.store(certificate.expires_unix_s, Ordering::Relaxed);
                *not_used = None;
                Reload::Replaced
            }
            Err(error) => {
                shared.reload_failures.fetch_add(1, Ordering::Relaxed);
                *not_used = Some(error.to_string());
                Reload::Kept(error)
            }
        }
    }

    /// Checks changed files. They must be for the same host: peers know this node by its uuid.
    fn check(&self, files: &CertificateFiles, now: SystemTime) -> Result<Certificate, TlsError> {
        let certificate = files.check(now)?;
        if certificate.host != self.0.host {
            return Err(TlsError::OtherHost { new: certificate.host, used: self.0.host.clone() });
        }
        Ok(certificate)
    }

    /// The host that the certificate of this node names.
    pub fn host(&self) -> &CertifiedHost {
        &self.0.host
    }

    /// What an operator should know about the certificate: that changed files are not used, or that
    /// it expires soon.
    pub fn warnings(&self, now: SystemTime) -> Vec<String> {
        let not_used = self.0.not_used.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut warnings: Vec<String> = not_used
            .map(|reason| format!("the changed files of {} are not used: {reason}", self.flags()))
            .into_iter()
            .collect();
        let left_s = self.seconds_left(now);
        if left_s <= EXPIRY_WARNING.as_secs().cast_signed() {
            warnings.push(match left_s {
                ..=0 => "the certificate of this node has expired".to_owned(),
                _ => format!("the certificate of this node expires in {} h", left_s / 3600),
            });
        }
        warnings
    }

    /// The flags that say where the files are.
    fn flags(&self) -> &'static str {
        if self.0.paths.client_ca.is_some() { "--tls-dir or --client-ca" } else { "--tls-dir" }
    }

    /// The certificate in use; `None` if it cannot be parsed.
    pub fn shown(&self) -> Option<CertificateInUse> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner).shown()
    }

    /// The names in the certificate in use.
    pub fn names(&self) -> Vec<String> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner).names()
    }

    /// When the certificate in use expires, in seconds since 1970.
    pub fn expires_unix_s(&self) -> i64 {
        self.0.expires_unix_s.load(Ordering::Relaxed)
    }

    /// How many seconds the certificate in use is still valid; negative if it has expired.
    pub fn seconds_left(&self, now: SystemTime) -> i64 {
        self.expires_unix_s().saturating_sub(unix_s(now))
    }

    /// Number of handshakes that failed.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// How often changed files were not used.
    pub fn reload_failures(&self) -> u64 {
        self.0.reload_failures.load(Ordering::Relaxed)
    }

    /// The handshake with a new client.
    ///
    /// # Errors
    /// See [`HandshakeFailure`]; all but [`HandshakeFailure::NotTls`] end the connection.
    pub async fn accept(&self, stream: TcpStream) -> Result<MaybeTlsStream, HandshakeFailure> {
        let result = self.handshake(stream).await;
        if result.is_err() {
            self.0.failures.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// The handshake with another node, which connected to this one.
    ///
    /// # Errors
    /// As [`TlsAcceptor::accept`], but never [`HandshakeFailure::Evicted`]: the caller limits
    /// these handshakes.
    pub async fn accept_peer(&self, stream: TcpStream) -> Result<AcceptedPeer, HandshakeFailure> {
        let configs = self.0.peers.read().unwrap_or_else(PoisonError::into_inner).clone();
        let handshake = async {
            let stream = expect_tls(stream).await?;
            let hello = LazyConfigAcceptor::new(Default::default(), stream).await;
            let start = hello.map_err(HandshakeFailure::Failed)?;
            // The ALPN protocol selects the settings. Only connections with the enrolment protocol
            // need no client certificate; nodes offer no protocol.
            let mut offered = start.client_hello().alpn().into_iter().flatten();
            let enrols = offered.any(|protocol| protocol == ENROLMENT_PROTOCOL);
            drop(offered);
            let config = if enrols { configs.enrolment } else { configs.server };
            let stream = start.into_stream(config).await.map_err(HandshakeFailure::Failed)?;
            Ok((TlsStream::Server(stream), enrols))
        };
        let handshake = timeout(HANDSHAKE_TIMEOUT, handshake).await;
        let (stream, enrols) = handshake.unwrap_or(Err(HandshakeFailure::Timeout))?;
        let host = host_shown(&stream);
        let stream = MaybeTlsStream::Tls(Box::new(stream));
        Ok(if enrols {
            AcceptedPeer::Enrolment(stream)
        } else {
            AcceptedPeer::Peer(PeerStream { host, stream })
        })
    }

    /// The handshake with another node, to which this one has connected.
    ///
    /// # Errors
    /// When the node has no certificate of an authority that this node trusts, and when the
    /// connection fails.
    pub async fn connect_peer(&self, stream: TcpStream) -> io::Result<PeerStream> {
        let config = self.0.peers.read().unwrap_or_else(PoisonError::into_inner).client.clone();
        connect(config, stream).await
    }

    /// The handshake with the HTTP listener of another node, to which this one has connected. The
    /// node presents no certificate: there, only those of clients are accepted.
    ///
    /// # Errors
    /// As [`TlsAcceptor::connect_peer`].
    pub async fn connect_http(&self, stream: TcpStream) -> io::Result<PeerStream> {
        let config = self.0.peers.read().unwrap_or_else(PoisonError::into_inner).http_client.clone();
        connect(config, stream).await
    }

    async fn handshake(&self, stream: TcpStream) -> Result<MaybeTlsStream, HandshakeFailure> {
        let config = self.0.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        let done = self.0.handshakes.run(begin(config, stream)).await;
        let stream = done.unwrap_or(Err(HandshakeFailure::Evicted))?;
        Ok(MaybeTlsStream::Tls(Box::new(stream)))
    }
}

/// The handshake on a connection that this node made to another one.
async fn connect(config: Arc<ClientConfig>, stream: TcpStream) -> io::Result<PeerStream> {
    // Neither sent nor compared.
    let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0, 0, 0, 0])));
    let handshake = timeout(HANDSHAKE_TIMEOUT, TlsConnector::from(config).connect(name, stream));
    let stream = handshake.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    let stream = TlsStream::Client(stream);
    Ok(PeerStream { host: host_shown(&stream), stream: MaybeTlsStream::Tls(Box::new(stream)) })
}

/// The handshake on a connection that this node accepted.
async fn begin(
    config: Arc<ServerConfig>,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, HandshakeFailure> {
    let handshake = async {
        let stream = expect_tls(stream).await?;
        match tokio_rustls::TlsAcceptor::from(config).accept(stream).await {
            Ok(stream) => Ok(TlsStream::Server(stream)),
            Err(error) => Err(HandshakeFailure::Failed(error)),
        }
    };
    timeout(HANDSHAKE_TIMEOUT, handshake).await.unwrap_or(Err(HandshakeFailure::Timeout))
}

/// Peeks at the first byte, which must begin a TLS handshake.
async fn expect_tls(stream: TcpStream) -> Result<TcpStream, HandshakeFailure> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] != HANDSHAKE_RECORD => Err(HandshakeFailure::NotTls(stream)),
        Ok(_) => Ok(stream),
        Err(error) => Err(HandshakeFailure::Failed(error)),
    }
}

/// Performs the TLS handshake of a host without a certificate with a member. The member's
/// certificate must be signed by the CA with this SHA-256 fingerprint.
///
/// # Errors
/// When the member's CA has another fingerprint, or the connection fails.
pub async fn connect_to_enrol(stream: TcpStream, authority: [u8; 32]) -> io::Result<MaybeTlsStream> {
    let config = Arc::new(enrolling(authority).map_err(io::Error::other)?);
    // Neither sent nor compared.
    let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0, 0, 0, 0])));
    let handshake = timeout(HANDSHAKE_TIMEOUT, TlsConnector::from(config).connect(name, stream));
    let stream = handshake.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    let (_, session) = stream.get_ref();
    if session.alpn_protocol() != Some(ENROLMENT_PROTOCOL) {
        return Err(io::Error::other("the node runs a release without join tokens"));
    }
    let stream = TlsStream::Client(stream);
    host_shown(&stream).map_err(io::Error::other)?;
    Ok(MaybeTlsStream::Tls(Box::new(stream)))
}

/// The host that the certificate of the other side names.
fn host_shown(stream: &TlsStream<TcpStream>) -> Result<CertifiedHost, CertificateError> {
    let (_, session) = stream.get_ref();
    let leaf = session.peer_certificates().and_then(|chain| chain.first());
    host_of(leaf.ok_or(CertificateError::NoName)?)
}

impl std::fmt::Debug for TlsAcceptor {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsAcceptor").field("paths", &self.0.paths).finish_non_exhaustive()
    }
}
