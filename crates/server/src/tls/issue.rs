//! Creates and signs certificates.
//!
//! Of a certificate signing request (CSR) only the public key is used. The issuer sets all other
//! fields.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, Error,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, date_time_ymd,
};
use rustls::pki_types::CertificateSigningRequestDer;
use tidelock_core::auth::SecretDigest;
use tidelock_core::certified_host::CertifiedHost;

const DAY_S: u64 = 24 * 3600;

/// Lifetime of a CA certificate in days. It is long, because replacing a CA involves every host and
/// client.
const AUTHORITY_DAYS: u32 = 3650;

/// Lifetime in days of a host certificate that the cluster's own CA signs. It is renewed after two
/// thirds of that.
pub const HOST_DAYS: u32 = 30;

/// Certificates are valid from this long before they are made, because clocks differ.
const CLOCK_TOLERANCE_S: u64 = 3600;

/// From when to when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    begin_unix_s: u64,
    /// The end.
    pub end_unix_s: u64,
}

impl Validity {
    /// A number of days from now on.
    pub fn of_days(now_unix_s: u64, days: u32) -> Validity {
        Validity {
            begin_unix_s: now_unix_s.saturating_sub(CLOCK_TOLERANCE_S),
            end_unix_s: now_unix_s + u64::from(days) * DAY_S,
        }
    }

    fn apply(self, parameters: &mut CertificateParams) {
        let epoch = date_time_ymd(1970, 1, 1);
        parameters.not_before = epoch + Duration::from_secs(self.begin_unix_s);
        parameters.not_after = epoch + Duration::from_secs(self.end_unix_s);
    }
}

/// A certificate authority (CA) with its private key.
pub struct CertificateAuthority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// Generates a CA; also returns its private key, PEM.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new(cluster_name: &str, now_unix_s: u64) -> Result<(CertificateAuthority, String), Error> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        // Each CA has its own name. With equal names, a client that trusts only the other CA would
        // verify with its key, and report a bad signature instead of an unknown issuer.
        let digest = SecretDigest::of(key.public_key_raw()).0;
        let number: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        parameters
            .distinguished_name
            .push(DnType::CommonName, format!("Tidelock authority {number} of {cluster_name}"));
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Validity::of_days(now_unix_s, AUTHORITY_DAYS).apply(&mut parameters);
        let certificate = parameters.self_signed(&key)?.pem();
        let pem = key.serialize_pem();
        Ok((CertificateAuthority { certificate, issuer: Issuer::new(parameters, key) }, pem))
    }

    /// Loads an existing CA.
    ///
    /// # Errors
    /// When certificate and key are not PEM, or of a kind that is not supported.
    pub fn load(certificate: String, key: &str) -> Result<CertificateAuthority, Error> {
        let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(key)?)?;
        Ok(CertificateAuthority { certificate, issuer })
    }

    /// Its certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for servers and peers, and generates its key. `names` are its DNS names
    /// and IP addresses, at least one. Returns both as PEM.
    ///
    /// # Errors
    /// When no key can be made, or a name cannot be that of a host.
    pub fn issue(
        &self,
        names: &[String],
        host: &CertifiedHost,
        validity: Validity,
    ) -> Result<(String, String), Error> {
        let key = KeyPair::generate()?;
        Ok((self.certify(&key, names, host, validity)?, key.serialize_pem()))
    }

    /// Like [`CertificateAuthority::issue`], for the public key of a CSR, DER.
    ///
    /// # Errors
    /// Also when the signature of the CSR is invalid.
    pub fn sign(
        &self,
        request: &[u8],
        names: &[String],
        host: &CertifiedHost,
        validity: Validity,
    ) -> Result<String, Error> {
        let request = CertificateSigningRequestDer::from(request);
        let request = CertificateSigningRequestParams::from_der(&request)?;
        self.certify(&request.public_key, names, host, validity)
    }

    /// Issues a certificate for a client with this URI, and generates its key. Returns both as PEM.
    ///
    /// # Errors
    /// When no key can be made, or the URI is not ASCII.
    pub fn issue_client(&self, uri: &str, validity: Validity) -> Result<(String, String), Error> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        validity.apply(&mut parameters);
        Ok((parameters.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    fn certify(
        &self,
        key: &impl PublicKeyData,
        names: &[String],
        host: &CertifiedHost,
        validity: Validity,
    ) -> Result<String, Error> {
        let mut parameters = CertificateParams::new(names)?;
        parameters.subject_alt_names.push(SanType::URI(host.to_string().try_into()?));
        parameters.distinguished_name.push(DnType::CommonName, names.first().map_or("", String::as_str));
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        validity.apply(&mut parameters);
        Ok(parameters.signed_by(key, &self.issuer)?.pem())
    }
}

/// Generates a key, PEM, and a CSR for it, DER, without names.
///
/// # Errors
/// When no key can be made.
pub fn signing_request() -> Result<(String, Vec<u8>), Error> {
    let key = KeyPair::generate()?;
    let request = CertificateParams::default().serialize_request(&key)?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}

impl std::fmt::Debug for CertificateAuthority {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority").finish_non_exhaustive()
    }
}
