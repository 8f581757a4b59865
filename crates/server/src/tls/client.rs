//! Client certificates: which CAs may sign them, and which principal they authenticate.
//!
//! Only the CAs of `--client-ca` are trusted, never the CA of the hosts. So a client certificate is
//! not accepted between nodes, and a host certificate does not authenticate a client. The principal
//! is found by a subject alternative name, not by the common name: CAs sign any text as a common
//! name.
//!
//! Invariant: a name matches only as a whole. Names that could match several, such as wildcards,
//! and names with NUL are ignored.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tidelock_core::auth::Access;
use tidelock_core::limits::CERTIFICATE_NAME_BYTES_MAX;
use tidelock_core::types::UnixMillis;
use x509_parser::extensions::GeneralName;

use super::certificate::TlsError;
use super::peer::host_of;

/// A certificate with more names than this authenticates nobody, because each name is searched for
/// in all principals.
const NAMES_MAX: usize = 100;

/// What a node keeps of the certificate that a client presented in its handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The URI and DNS names that can be those of a principal.
    names: Vec<String>,
    /// When the certificate expires.
    expires: UnixMillis,
}

impl ClientCertificate {
    /// Parses the certificate. `None` if it has no name that could be that of a principal.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<ClientCertificate> {
        // A host certificate is only for connections between nodes.
        if host_of(certificate).is_ok() {
            return None;
        }
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let expires_unix_s = u64::try_from(parsed.validity().not_after.timestamp()).ok()?;
        let found = parsed.subject_alternative_name().ok()??;
        let names = &found.value.general_names;
        if names.len() > NAMES_MAX {
            return None;
        }
        let names: Vec<String> = names.iter().filter_map(exact_name).map(ToOwned::to_owned).collect();
        let expires = UnixMillis(expires_unix_s.saturating_mul(1000));
        (!names.is_empty()).then_some(ClientCertificate { names, expires })
    }

    /// The principal that has a name of the certificate, and that name. `None` if no principal has
    /// one, or two principals do.
    pub fn principal<'a>(&self, rows: &'a Access) -> Option<(&'a str, &str)> {
        let mut proved =
            self.names.iter().filter_map(|name| Some((rows.principal_of_certificate(name)?, name.as_str())));
        let first = proved.next()?;
        proved.all(|(principal, _)| principal == first.0).then_some(first)
    }

    /// When the certificate expires.
    pub fn expires(&self) -> UnixMillis {
        self.expires
    }
}

/// A name of a certificate that can be that of a principal.
fn exact_name<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    let (GeneralName::URI(name) | GeneralName::DNSName(name)) = name else { return None };
    let is_exact = (1..=CERTIFICATE_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
    is_exact.then_some(*name)
}

/// Verifies client certificates in handshakes: a CA of the PEM bundle must have signed it, its
/// usage must include clients, and it must be valid now. A client need not present one.
///
/// # Errors
/// When the bundle has no certificate, or one that cannot be a CA.
pub(super) fn verifier(
    bundle: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let failed = |error: &dyn std::fmt::Display| TlsError::ClientCa(error.to_string());
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle) {
        let authority = authority.map_err(|error| failed(&error))?;
        roots.add(authority).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() {
        return Err(failed(&"it has no certificate in PEM"));
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    verifier.allow_unauthenticated().build().map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DnType, KeyPair, SanType};

    use super::*;

    fn uri(name: &str) -> SanType {
        SanType::URI(name.try_into().unwrap())
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn certificate(names: Vec<SanType>) -> CertificateDer<'static> {
        let mut parameters = CertificateParams::default();
        parameters.subject_alt_names = names;
        parameters.distinguished_name.push(DnType::CommonName, "ann.example");
        parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    /// A certificate with these bytes as DNS names.
    fn raw_names(names: &[&[u8]]) -> CertificateDer<'static> {
        let length = |bytes: usize| match bytes {
            0..0x80 => vec![bytes as u8],
            0x80..0x100 => vec![0x81, bytes as u8],
            0x100..0x1_0000 => vec![0x82, (bytes >> 8) as u8, bytes as u8],
            _ => vec![0x83, (bytes >> 16) as u8, (bytes >> 8) as u8, bytes as u8],
        };
        let one = |name: &&[u8]| [&[0x82][..], &length(name.len()), name].concat();
        let all: Vec<u8> = names.iter().flat_map(one).collect();
        let content = [&[0x30][..], &length(all.len()), &all].concat();
        let mut parameters = CertificateParams::default();
        parameters.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], content)];
        parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
        ClientCertificate::of(certificate).map(|certificate| certificate.names).unwrap_or_default()
    }

    #[test]
    fn whole_uri_and_dns_names_count_and_nothing_else() {
        let all = certificate(vec![
            uri("spiffe://example/ann"),
            dns("ann.example"),
            dns("*.example"),
            uri("spiffe://example/*"),
            SanType::IpAddress([127, 0, 0, 1].into()),
            SanType::Rfc822Name("ann@example".try_into().unwrap()),
        ]);
        assert_eq!(names(&all), ["spiffe://example/ann", "ann.example"]);
        assert_eq!(ClientCertificate::of(&certificate(vec![])), None, "the common name is not read");
        assert_eq!(ClientCertificate::of(&b"no certificate"[..].into()), None);
        let host = "tidelock://blue/host/6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        assert_eq!(ClientCertificate::of(&certificate(vec![uri(host), dns("ann.example")])), None);
    }

    #[test]
    fn names_that_could_mean_another_one_prove_nothing() {
        assert_eq!(names(&raw_names(&[b"ann.example"])), ["ann.example"]);
        let long = vec![b'a'; 64 << 10];
        let hostile: &[&[u8]] = &[
            b"ann.example\0.evil",
            b"\0",
            b"",
            b"ann example",
            b"ann\n",
            b"\xff\xfe",
            "\u{e4}".as_bytes(),
            &long,
        ];
        for name in hostile {
            assert_eq!(names(&raw_names(&[name])), Vec::<String>::new(), "{:?}", &name[..name.len().min(20)]);
        }
        let many: Vec<Vec<u8>> = (0..=NAMES_MAX).map(|number| format!("n{number}").into_bytes()).collect();
        let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
        assert_eq!(names(&raw_names(&many[1..])).len(), NAMES_MAX);
        assert_eq!(ClientCertificate::of(&raw_names(&many)), None);
    }

    #[test]
    fn bundles_have_certificates() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        for bundle in [&b""[..], b"text", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(verifier(bundle, &provider).is_err());
        }
    }
}
