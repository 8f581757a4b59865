//! The files of a certificate: reading and checking them.
//!
//! Owns the names of the files. They are those of a Kubernetes secret of the type
//! `kubernetes.io/tls`, so that such a secret can be mounted as the directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::{RootCertStore, ServerConfig};
use tidelock_core::certified_host::{CertificateError, CertifiedHost};

use super::client;
use super::peer::{CaBundle, CertifiedKey, PeerConfigs, fingerprint, host_of, is_signed_by, names_of};

/// The certificate of the node and those of the authorities between it and the root, PEM.
pub const CERTIFICATE_FILE: &str = "tls.crt";

/// The private key of the certificate, PEM.
pub const KEY_FILE: &str = "tls.key";

/// The certificates of the authorities that sign for the nodes of the cluster, PEM.
pub const AUTHORITY_FILE: &str = "ca.crt";

/// Why files are not used as a certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file is not PEM, or lacks what it is for.
    #[error("{file}: {error}")]
    Pem {
        /// Name of the file.
        file: &'static str,
        /// What is wrong.
        error: pem::Error,
    },
    /// The certificate cannot be decoded.
    #[error("{CERTIFICATE_FILE}: the certificate is damaged: {0}")]
    Damaged(String),
    /// The certificate is not valid yet.
    #[error("{CERTIFICATE_FILE}: the certificate is valid only from {0} on (Unix time)")]
    NotYetValid(i64),
    /// The certificate has expired.
    #[error("{CERTIFICATE_FILE}: the certificate has expired at {0} (Unix time)")]
    Expired(i64),
    /// Key and certificate do not fit each other, or are of a kind that is not supported.
    #[error("{CERTIFICATE_FILE} and {KEY_FILE}: {0}")]
    Mismatch(rustls::Error),
    /// A certificate is not that of an authority.
    #[error("{AUTHORITY_FILE}: {0}")]
    Authority(rustls::Error),
    /// There are no authorities.
    #[error(
        "{} is missing: it has the certificates of the authorities that sign for the nodes of the cluster, which check \
         each other's certificates. `tidelock tls init` makes all files of the directory", .0.display()
    )]
    NoAuthority(PathBuf),
    /// The file of `--client-ca` cannot be used.
    #[error("--client-ca: {0}")]
    ClientCa(String),
    /// The certificate does not name one host of a cluster.
    #[error("{CERTIFICATE_FILE}: {0}. `tidelock tls init` makes such certificates")]
    Name(#[from] CertificateError),
    /// A changed certificate is for another host than the one in use.
    #[error("{CERTIFICATE_FILE}: the certificate is for {new}, and this node is {used}")]
    OtherHost {
        /// The name in the changed certificate.
        new: CertifiedHost,
        /// The name in the certificate in use.
        used: CertifiedHost,
    },
    /// Other nodes would not accept the certificate.
    #[error(
        "{CERTIFICATE_FILE} does not pass the check with {AUTHORITY_FILE} that other nodes make: {0}. An authority of that file \
         must have signed it, for servers and for clients"
    )]
    Refused(rustls::Error),
}

/// Where the files are.
#[derive(Clone, Debug)]
pub struct TlsPaths {
    /// The directory with [`CERTIFICATE_FILE`], [`KEY_FILE`] and [`AUTHORITY_FILE`].
    pub directory: PathBuf,
    /// PEM file with the CAs that sign the certificates of clients; `None`: clients are not asked
    /// for certificates.
    pub client_ca: Option<PathBuf>,
}

/// The bytes of the files.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct CertificateFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// A certificate that passed all checks.
pub(super) struct Certificate {
    /// The settings of connections that show it.
    pub config: Arc<ServerConfig>,
    /// The settings of connections between nodes.
    pub peers: PeerConfigs,
    /// The host that it names.
    pub host: CertifiedHost,
    /// When it expires, in seconds since 1970.
    pub expires_unix_s: i64,
}

impl CertificateFiles {
    /// Reads the files.
    pub fn read(paths: &TlsPaths) -> Result<CertificateFiles, TlsError> {
        let read = |name: &str| read(&paths.directory.join(name));
        let authorities = match read(AUTHORITY_FILE) {
            Err(TlsError::Read { path, error }) if error.kind() == io::ErrorKind::NotFound => {
                Err(TlsError::NoAuthority(path))
            }
            found => found,
        };
        // The certificate is looked for first: a wrong directory has none of the files.
        let (certificate, key) = (read(CERTIFICATE_FILE)?, read(KEY_FILE)?);
        let client_ca = paths.client_ca.as_deref().map(self::read).transpose()?;
        Ok(CertificateFiles { certificate, key, authorities: authorities?, client_ca })
    }

    /// Parses what a renewal needs to know; `None` if the certificate cannot be parsed.
    pub fn shown(&self) -> Option<CertificateInUse> {
        let certificate = CertificateDer::from_pem_slice(&self.certificate).ok()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        let validity = parsed.validity();
        let validity_unix_s = (validity.not_before.timestamp(), validity.not_after.timestamp());
        Some(CertificateInUse { certificate, validity_unix_s, authorities: self.authorities.clone() })
    }

    /// The names in the certificate.
    pub fn names(&self) -> Vec<String> {
        let leaf = CertificateDer::from_pem_slice(&self.certificate);
        leaf.map_or_else(|_| vec![], |leaf| names_of(&leaf))
    }

    /// Checks that they can be shown to clients and to other nodes from now on.
    pub fn check(&self, now: SystemTime) -> Result<Certificate, TlsError> {
        let damaged = |error| TlsError::Pem { file: CERTIFICATE_FILE, error };
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<_, _>>().map_err(damaged)?;
        let Some(leaf) = chain.first() else { return Err(damaged(pem::Error::NoItemsFound)) };
        let expires_unix_s = check_validity(leaf, now)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| TlsError::Pem { file: KEY_FILE, error })?;
        let config = self.server_config(chain.clone(), key.clone_key())?;
        let authorities = authorities(&self.authorities)?;
        let host = host_of(leaf)?;
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let peers =
            PeerConfigs::new(CertifiedKey { chain, key }, authorities, now).map_err(TlsError::Refused)?;
        Ok(Certificate { config: Arc::new(config), peers, host, expires_unix_s })
    }

    /// The settings of connections with clients.
    fn server_config(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Mismatch)?;
        let Some(client_ca) = &self.client_ca else {
            return builder.with_no_client_auth().with_single_cert(chain, key).map_err(TlsError::Mismatch);
        };
        let mut config = builder
            .with_client_cert_verifier(client::verifier(client_ca, &provider)?)
            .with_single_cert(chain, key)
            .map_err(TlsError::Mismatch)?;
        // A resumed session would not check the certificate again, even if its CA is no longer
        // trusted.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

/// The content of a file.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Read { path: path.to_owned(), error })
}

/// Checks that a file can be used as `--client-ca`.
///
/// # Errors
/// When it cannot be read, or cannot be used.
pub fn check_client_ca_file(path: &Path) -> Result<(), TlsError> {
    client::verifier(&read(path)?, &Arc::new(aws_lc_rs::default_provider())).map(drop)
}

/// The authorities of the file.
fn authorities(text: &[u8]) -> Result<CaBundle, TlsError> {
    let damaged = |error| TlsError::Pem { file: AUTHORITY_FILE, error };
    let (mut roots, mut certificates) = (RootCertStore::empty(), Vec::new());
    for authority in CertificateDer::pem_slice_iter(text) {
        let authority = authority.map_err(damaged)?;
        roots.add(authority.clone()).map_err(TlsError::Authority)?;
        certificates.push(authority);
    }
    if roots.is_empty() {
        return Err(damaged(pem::Error::NoItemsFound));
    }
    Ok(CaBundle { roots, certificates })
}

/// The SHA-256 fingerprint of a PEM certificate; `None` if it cannot be parsed.
pub fn fingerprint_of(certificate: &[u8]) -> Option<[u8; 32]> {
    CertificateDer::from_pem_slice(certificate).ok().map(|certificate| fingerprint(&certificate))
}

/// The certificate and the CA bundle that a node uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInUse {
    certificate: CertificateDer<'static>,
    /// Start and end of the certificate's validity, in seconds since 1970.
    pub validity_unix_s: (i64, i64),
    /// The content of `ca.crt`.
    pub authorities: Vec<u8>,
}

impl CertificateInUse {
    /// Whether the certificate is signed by this CA, given as PEM.
    pub fn is_signed_by(&self, authority: &[u8], now: SystemTime) -> bool {
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let authority = CertificateDer::from_pem_slice(authority);
        authority.is_ok_and(|authority| is_signed_by(&self.certificate, &authority, now))
    }
}

/// The host that a certificate names, whether or not the certificate is valid.
///
/// # Errors
/// When the text is not PEM, or the certificate does not name one host.
pub fn certified_host(certificate: &[u8]) -> Result<CertifiedHost, TlsError> {
    let damaged = |error| TlsError::Pem { file: CERTIFICATE_FILE, error };
    Ok(host_of(&CertificateDer::from_pem_slice(certificate).map_err(damaged)?)?)
}

/// Checks the times of a certificate. Returns when it expires, in seconds since 1970.
fn check_validity(leaf: &CertificateDer<'_>, now: SystemTime) -> Result<i64, TlsError> {
    let (_, leaf) =
        x509_parser::parse_x509_certificate(leaf).map_err(|error| TlsError::Damaged(error.to_string()))?;
    let now = unix_s(now);
    let (begins, expires) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
    if now < begins {
        return Err(TlsError::NotYetValid(begins));
    }
    if now >= expires {
        return Err(TlsError::Expired(expires));
    }
    Ok(expires)
}

/// Seconds since 1970.
pub(super) fn unix_s(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        SanType, date_time_ymd,
    };

    use super::*;

    const NAME: &str = "tidelock://blue/host/6ba7b810-9dad-11d1-80b4-00c04fd430c8";

    /// Files of a certificate that is valid throughout 2030.
    fn files() -> CertificateFiles {
        files_with(|_| {})
    }

    fn files_with(change: impl FnOnce(&mut CertificateParams)) -> CertificateFiles {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec!["kv.example".to_owned()]).unwrap();
        parameters.subject_alt_names.push(SanType::URI(NAME.try_into().unwrap()));
        (parameters.not_before, parameters.not_after) =
            (date_time_ymd(2030, 1, 1), date_time_ymd(2031, 1, 1));
        change(&mut parameters);
        CertificateFiles {
            certificate: parameters.signed_by(&key, &authority).unwrap().pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
            authorities: authority.pem().into_bytes(),
            client_ca: None,
        }
    }

    fn at(unix_s: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(unix_s)
    }

    const BEGINS: u64 = 1_893_456_000;
    const EXPIRES: u64 = 1_924_992_000;

    fn refusal(files: &CertificateFiles, unix_s: u64) -> String {
        files.check(at(unix_s)).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_certificate_passes_while_it_is_valid() {
        let files = files();
        assert_eq!(files.check(at(BEGINS)).unwrap().expires_unix_s, EXPIRES as i64);
        assert!(files.check(at(EXPIRES - 1)).is_ok());
        assert!(refusal(&files, BEGINS - 1).contains("valid only from 1893456000"));
        assert!(refusal(&files, EXPIRES).contains("expired at 1924992000"));
    }

    #[test]
    fn files_that_do_not_fit_are_refused() {
        let (one, other) = (files(), files());
        let mixed = CertificateFiles { key: other.key.clone(), ..one.clone() };
        assert!(refusal(&mixed, BEGINS).starts_with("tls.crt and tls.key: "), "{}", refusal(&mixed, BEGINS));
        let swapped =
            CertificateFiles { certificate: one.key.clone(), key: one.certificate.clone(), ..one.clone() };
        assert!(refusal(&swapped, BEGINS).starts_with("tls.crt: "), "{}", refusal(&swapped, BEGINS));
        let keyless = CertificateFiles { key: Vec::new(), ..one.clone() };
        assert!(refusal(&keyless, BEGINS).starts_with("tls.key: "), "{}", refusal(&keyless, BEGINS));
        let authorities = b"nobody".to_vec();
        let trustless = CertificateFiles { authorities, ..one.clone() };
        assert!(refusal(&trustless, BEGINS).starts_with("ca.crt: "), "{}", refusal(&trustless, BEGINS));
        let strange = CertificateFiles { authorities: files().authorities, ..one.clone() };
        let refused = refusal(&strange, BEGINS);
        assert!(refused.contains("does not pass the check with ca.crt"), "{refused}");
        let half = one.certificate.len() / 2;
        let cut = CertificateFiles { certificate: one.certificate[..half].to_vec(), ..one };
        assert!(refusal(&cut, BEGINS).starts_with("tls.crt: "), "{}", refusal(&cut, BEGINS));
    }

    #[test]
    fn a_certificate_names_one_host_and_is_for_both_sides_of_a_connection() {
        let host = certified_host(&files().certificate).unwrap();
        assert_eq!(host.to_string(), NAME);
        assert_eq!(files().check(at(BEGINS)).unwrap().host, host);
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        let named = files_with(|parameters| parameters.subject_alt_names.push(address));
        assert_eq!(named.names(), ["kv.example", NAME, "127.0.0.1"]);
        let nameless = files_with(|parameters| parameters.subject_alt_names.truncate(1));
        assert!(refusal(&nameless, BEGINS).contains("names no host"), "{}", refusal(&nameless, BEGINS));
        let (server, client) = (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
        for (usages, passes) in
            [(vec![server.clone()], false), (vec![client.clone()], false), (vec![server, client], true)]
        {
            let files = files_with(|parameters| parameters.extended_key_usages = usages);
            assert_eq!(files.check(at(BEGINS)).is_ok(), passes);
        }
    }
}
