//! The authorities that a client trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use ureq::tls::{Certificate, PemItem, parse_pem};

use crate::certificate::ClientCertificate;

/// The certificates of the authorities that a client trusts.
#[derive(Clone, Debug)]
pub struct CertificateAuthorities(Vec<Certificate<'static>>);

impl CertificateAuthorities {
    /// The certificates, at least one.
    pub(crate) fn certificates(&self) -> &[Certificate<'static>] {
        &self.0
    }

    /// Reads the certificates of a PEM file.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or has none.
    pub fn read(path: &Path) -> Result<CertificateAuthorities, String> {
        let pem = std::fs::read(path);
        let path = path.display();
        let pem = pem.map_err(|error| format!("{path}: {error}"))?;
        let mut certificates = Vec::new();
        for item in parse_pem(&pem) {
            match item {
                Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
                Ok(_) => {}
                Err(error) => return Err(format!("{path}: {error}")),
            }
        }
        if certificates.is_empty() {
            return Err(format!("{path} has no certificate in PEM"));
        }
        Ok(CertificateAuthorities(certificates))
    }

    /// Settings of TLS connections to servers with their certificates, to which a client may
    /// present one too.
    ///
    /// # Errors
    /// When a certificate is not valid.
    pub fn tls_config(
        &self,
        certificate: Option<&ClientCertificate>,
    ) -> Result<rustls::ClientConfig, String> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in &self.0 {
            let der = CertificateDer::from(certificate.der().to_vec());
            roots.add(der).map_err(|error| format!("--ca: {error}"))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let builder = builder.with_root_certificates(roots);
        let Some(certificate) = certificate else { return Ok(builder.with_no_client_auth()) };
        let (chain, key) = certificate.rustls()?;
        builder.with_client_auth_cert(chain, key).map_err(|error| format!("--client-cert: {error}"))
    }
}
