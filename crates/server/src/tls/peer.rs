//! TLS between nodes: both sides show the certificate of their host.
//!
//! Owns what a node accepts: TLS 1.3, and a certificate that an authority in `ca.crt` has signed
//! for servers and clients. IP addresses and DNS names are not compared, because hosts move. The
//! host named in a certificate is read here; the core decides whether it is the right one, see
//! [`tidelock_core::certified_host`].
//!
//! Sessions are not resumed: a resumed one would skip the check of a certificate that has expired
//! since, or whose authority is no longer trusted.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError as RefusedCertificate, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    RootCertStore, ServerConfig, SignatureScheme,
};
use tidelock_core::auth::SecretDigest;
use tidelock_core::certified_host::{CertificateError, CertifiedHost};
use x509_parser::extensions::GeneralName;

/// The settings of connections between nodes.
#[derive(Clone)]
pub(super) struct PeerConfigs {
    /// For the connections that other nodes make.
    pub server: Arc<ServerConfig>,
    /// For the connections that this node makes.
    pub client: Arc<ClientConfig>,
    /// For the connections that this node makes to the HTTP listeners of others, where it presents
    /// no certificate.
    pub http_client: Arc<ClientConfig>,
    /// For enrolment connections, which have no client certificate.
    pub enrolment: Arc<ServerConfig>,
}

/// ALPN protocol of enrolment connections. A connection with it serves only enrolment requests.
pub(super) const ENROLMENT_PROTOCOL: &[u8] = b"tidelock-enrol/1";

/// A certificate with those of the authorities below the root, and its key.
pub(super) struct CertifiedKey {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl PeerConfigs {
    /// The settings of a node that shows `own` and trusts `authorities`.
    ///
    /// # Errors
    /// When other nodes that trust the same authorities would not accept `own` from a caller or
    /// from a node that they call.
    pub fn new(own: CertifiedKey, authorities: CaBundle, now: UnixTime) -> Result<PeerConfigs, Error> {
        let CaBundle { roots, certificates } = authorities;
        let (provider, roots) = (Arc::new(aws_lc_rs::default_provider()), Arc::new(roots));
        let callers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let callers = callers.build().map_err(|error| Error::General(error.to_string()))?;
        let called = Arc::new(AnyNameVerifier { trusted: Trusted::Roots(roots), provider: provider.clone() });
        if let [leaf, intermediates @ ..] = &own.chain[..] {
            callers.verify_client_cert(leaf, intermediates, now)?;
            called.verify(leaf, intermediates, now)?;
        }
        let (chain, key) = (own.chain.clone(), own.key.clone_key());
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(callers)
            .with_single_cert(chain, key)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let enrolment = enrolment(&provider, &own, certificates)?;
        let client = || -> Result<_, Error> {
            let builder = ClientConfig::builder_with_provider(provider.clone());
            let builder = builder.with_protocol_versions(&[&TLS13])?.dangerous();
            Ok(builder.with_custom_certificate_verifier(called.clone()))
        };
        let (peer, http) =
            (client()?.with_client_auth_cert(own.chain, own.key)?, client()?.with_no_client_auth());
        let [client, http_client] = [peer, http].map(|mut client| {
            client.resumption = Resumption::disabled();
            client.enable_sni = false;
            Arc::new(client)
        });
        Ok(PeerConfigs { server: Arc::new(server), client, http_client, enrolment: Arc::new(enrolment) })
    }
}

/// The CA certificates of `ca.crt`.
pub(super) struct CaBundle {
    pub roots: RootCertStore,
    pub certificates: Vec<CertificateDer<'static>>,
}

/// TLS server settings for enrolment: no client certificate is requested. The chain includes the CA
/// certificates, so that the host can compare them with the fingerprint in its join token.
fn enrolment(
    provider: &Arc<CryptoProvider>,
    own: &CertifiedKey,
    authorities: Vec<CertificateDer<'static>>,
) -> Result<ServerConfig, Error> {
    let chain = own.chain.iter().cloned().chain(authorities).collect();
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, own.key.clone_key())?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![ENROLMENT_PROTOCOL.to_vec()];
    Ok(config)
}

/// TLS client settings for enrolment. The member's certificate must be signed by the CA with this
/// fingerprint.
pub(super) fn enrolling(authority: [u8; 32]) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = AnyNameVerifier { trusted: Trusted::Fingerprint(authority), provider: provider.clone() };
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    client.alpn_protocols = vec![ENROLMENT_PROTOCOL.to_vec()];
    Ok(client)
}

/// Whether the certificate is valid at this time and signed by the CA.
pub(super) fn is_signed_by(
    leaf: &CertificateDer<'_>,
    authority: &CertificateDer<'static>,
    now: UnixTime,
) -> bool {
    let mut roots = RootCertStore::empty();
    let provider = Arc::new(aws_lc_rs::default_provider());
    roots.add(authority.clone()).is_ok()
        && AnyNameVerifier { trusted: Trusted::Roots(Arc::new(roots)), provider }
            .verify(leaf, &[], now)
            .is_ok()
}

/// The SHA-256 digest of a certificate.
pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    SecretDigest::of(certificate).0
}

/// The name of the host in a certificate.
pub(super) fn host_of(certificate: &CertificateDer<'_>) -> Result<CertifiedHost, CertificateError> {
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(certificate) else {
        return Err(CertificateError::NoName);
    };
    // An error is a certificate with the extension twice.
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Err(CertificateError::NoName);
    };
    CertifiedHost::of_uris(names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    }))
}

/// The DNS names, IP addresses and URIs in a certificate.
pub(super) fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(certificate) else { return vec![] };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return vec![] };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    };
    names.value.general_names.iter().filter_map(text).collect()
}

/// Checks the certificate of a node that this one calls, whatever its names are.
#[derive(Debug)]
struct AnyNameVerifier {
    trusted: Trusted,
    provider: Arc<CryptoProvider>,
}

/// The trusted CAs.
#[derive(Debug)]
enum Trusted {
    Roots(Arc<RootCertStore>),
    /// Only the CA with this fingerprint. The peer must send its certificate in the chain.
    Fingerprint([u8; 32]),
}

impl Trusted {
    fn roots(&self, shown: &[CertificateDer<'_>]) -> Result<Arc<RootCertStore>, Error> {
        let pinned = match self {
            Trusted::Roots(roots) => return Ok(roots.clone()),
            Trusted::Fingerprint(pinned) => pinned,
        };
        let authority = shown.iter().find(|shown| fingerprint(shown) == *pinned);
        let authority = authority.ok_or(Error::InvalidCertificate(RefusedCertificate::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        Ok(Arc::new(roots))
    }
}

impl AnyNameVerifier {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let roots = self.trusted.roots(intermediates)?;
        let leaf = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&leaf, &roots, intermediates, now, algorithms)
    }
}

impl ServerCertVerifier for AnyNameVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(leaf, intermediates, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}
