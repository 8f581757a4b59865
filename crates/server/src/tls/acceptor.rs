//! Handshakes, and the certificate that they show.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certificate::{AUTHORITY_FILE, CertificateFiles, TlsError, unix_s};
use super::stream::ClientStream;

/// Most handshakes of the node that are unfinished at a time. Each holds a socket and some memory
/// for a client of which nothing is known.
const HANDSHAKES_MAX: usize = 256;

/// Longest duration of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The first byte of a connection with TLS: a record with a handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// Accepts TLS on all workers of a node. A clone shares its state.
#[derive(Clone)]
pub struct TlsAcceptor(Arc<Shared>);

struct Shared {
    directory: PathBuf,
    /// The files that are in use.
    files: Mutex<CertificateFiles>,
    config: RwLock<Arc<ServerConfig>>,
    client: RwLock<Option<Arc<ClientConfig>>>,
    expires_unix_s: AtomicI64,
    unfinished: AtomicUsize,
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
    /// Too many others are unfinished.
    Overloaded,
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
    /// Reads the certificate of a directory.
    ///
    /// # Errors
    /// When the files cannot be read or do not pass the checks.
    pub fn open(directory: PathBuf, now: SystemTime) -> Result<TlsAcceptor, TlsError> {
        let files = CertificateFiles::read(&directory)?;
        let certificate = files.check(now)?;
        Ok(TlsAcceptor(Arc::new(Shared {
            directory,
            files: Mutex::new(files),
            config: RwLock::new(certificate.config),
            client: RwLock::new(certificate.client),
            expires_unix_s: AtomicI64::new(certificate.expires_unix_s),
            unfinished: AtomicUsize::new(0),
            failures: AtomicU64::new(0),
            reload_failures: AtomicU64::new(0),
        })))
    }

    /// Looks at the files again, and uses them if they have changed and pass the checks.
    pub fn reload(&self, now: SystemTime) -> Reload {
        let shared = &*self.0;
        let mut used = shared.files.lock().unwrap_or_else(PoisonError::into_inner);
        let read = CertificateFiles::read(&shared.directory);
        let checked = match read {
            Ok(files) if files == *used => return Reload::Unchanged,
            Ok(files) => files.check(now).map(|certificate| (files, certificate)),
            Err(error) => Err(error),
        };
        match checked {
            Ok((files, certificate)) => {
                *used = files;
                *shared.config.write().unwrap_or_else(PoisonError::into_inner) = certificate.config;
                *shared.client.write().unwrap_or_else(PoisonError::into_inner) = certificate.client;
                shared.expires_unix_s.store(certificate.expires_unix_s, Ordering::Relaxed);
                Reload::Replaced
            }
            Err(error) => {
                shared.reload_failures.fetch_add(1, Ordering::Relaxed);
                Reload::Kept(error)
            }
        }
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
    pub async fn accept(&self, stream: TcpStream) -> Result<ClientStream, HandshakeFailure> {
        let result = self.handshake(stream).await;
        if result.is_err() {
            self.0.failures.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// The handshake with another node, which must show a certificate for `host`, a name or an IP
    /// address, of an authority that this node trusts.
    ///
    /// # Errors
    /// When it does not, when the connection fails, or when this node knows no authority.
    pub async fn connect(&self, stream: TcpStream, host: &str) -> io::Result<TlsStream<TcpStream>> {
        let client = self.0.client.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(config) = client else {
            let reason =
                format!("the directory of --tls-dir has no {AUTHORITY_FILE} to check its certificate with");
            return Err(io::Error::other(reason));
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let handshake = TlsConnector::from(config).connect(name, stream);
        timeout(HANDSHAKE_TIMEOUT, handshake).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn handshake(&self, stream: TcpStream) -> Result<ClientStream, HandshakeFailure> {
        let Some(_permit) = HandshakePermit::acquire(&self.0.unfinished) else {
            return Err(HandshakeFailure::Overloaded);
        };
        let config = self.0.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        let handshake = async {
            let mut first = [0];
            match stream.peek(&mut first).await {
                Ok(1) if first[0] != HANDSHAKE_RECORD => Err(HandshakeFailure::NotTls(stream)),
                Ok(_) => match tokio_rustls::TlsAcceptor::from(config).accept(stream).await {
                    Ok(stream) => Ok(ClientStream::Tls(Box::new(stream))),
                    Err(error) => Err(HandshakeFailure::Failed(error)),
                },
                Err(error) => Err(HandshakeFailure::Failed(error)),
            }
        };
        timeout(HANDSHAKE_TIMEOUT, handshake).await.unwrap_or(Err(HandshakeFailure::Timeout))
    }
}

impl std::fmt::Debug for TlsAcceptor {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsAcceptor").field("directory", &self.0.directory).finish_non_exhaustive()
    }
}

/// Permission for one unfinished handshake, until it is dropped.
struct HandshakePermit<'a>(&'a AtomicUsize);

impl HandshakePermit<'_> {
    /// A permit, if one is left.
    fn acquire(unfinished: &AtomicUsize) -> Option<HandshakePermit<'_>> {
        if unfinished.fetch_add(1, Ordering::Relaxed) >= HANDSHAKES_MAX {
            unfinished.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(HandshakePermit(unfinished))
    }
}

impl Drop for HandshakePermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_handshakes_are_bounded() {
        let unfinished = AtomicUsize::new(0);
        let permits: Vec<_> =
            (0..HANDSHAKES_MAX).map(|_| HandshakePermit::acquire(&unfinished).unwrap()).collect();
        assert!(HandshakePermit::acquire(&unfinished).is_none());
        drop(permits);
        assert!(HandshakePermit::acquire(&unfinished).is_some());
    }
}
