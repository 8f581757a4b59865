//! The certificate that a client presents to the nodes, and its private key.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ureq::tls::{Certificate, ClientCert, PrivateKey};

use crate::error::CliError;
use crate::private_file;

/// The longest file that is read: a chain of certificates has a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the certificate of a client is: flags and variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct CertificateArgs {
    /// File with the certificate, PEM, that proves to the nodes who you are, instead of a token
    /// [default: of the profile]
    #[arg(long, env = "TIDELOCK_CLIENT_CERT", value_name = "FILE", global = true)]
    pub client_cert: Option<PathBuf>,
    /// File with the private key of --client-cert, PEM, which only you may read (mode 600)
    /// [default: of the profile]
    #[arg(long, env = "TIDELOCK_CLIENT_KEY", value_name = "FILE", global = true)]
    pub client_key: Option<PathBuf>,
}

impl CertificateArgs {
    /// The files of the certificate and of its key; `None` without.
    ///
    /// # Errors
    /// When only one of both is given.
    pub fn paths(&self) -> Result<Option<CertificatePaths>, CliError> {
        CertificatePaths::of(self.client_cert.as_deref(), self.client_key.as_deref()).ok_or_else(|| {
            CliError::Usage("--client-cert and --client-key belong together: give both".to_owned())
        })
    }
}

/// The files of a certificate and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePaths {
    /// The certificate, and those of the authorities below the root, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

impl CertificatePaths {
    /// Both paths, or neither; otherwise `None`.
    pub(crate) fn of(certificate: Option<&Path>, key: Option<&Path>) -> Option<Option<CertificatePaths>> {
        match (certificate, key) {
            (None, None) => Some(None),
            (Some(certificate), Some(key)) => {
                Some(Some(CertificatePaths { certificate: certificate.to_owned(), key: key.to_owned() }))
            }
            _ => None,
        }
    }

    /// Both as absolute paths, which mean the same in every directory.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn absolute(&self) -> Result<CertificatePaths, CliError> {
        let absolute = |path: &Path| fs::canonicalize(path).map_err(CliError::io(path.display().to_string()));
        Ok(CertificatePaths { certificate: absolute(&self.certificate)?, key: absolute(&self.key)? })
    }
}

/// A certificate with its private key. `Debug` shows neither.
#[derive(Clone)]
pub struct ClientCertificate {
    /// For the HTTP client.
    pub(crate) parsed: ClientCert,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl ClientCertificate {
    /// Reads both files.
    ///
    /// # Errors
    /// When a file cannot be read or is not PEM, or others can read the key.
    pub fn read(paths: &CertificatePaths) -> Result<ClientCertificate, CliError> {
        let certificate = File::open(&paths.certificate)
            .map_err(CliError::io(paths.certificate.display().to_string()))
            .and_then(|file| read(file, &paths.certificate))?;
        let key = private_file::open(&paths.key, "key").and_then(|file| read(file, &paths.key))?;
        let failed = |path: &Path, error: &dyn std::fmt::Display| {
            CliError::Usage(format!("{}: {error}", path.display()))
        };
        let chain = chain(&certificate).map_err(|error| failed(&paths.certificate, &error))?;
        let chain: Vec<Certificate<'static>> =
            chain.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
        let parsed_key = PrivateKey::from_pem(&key).map_err(|error| failed(&paths.key, &error))?;
        Ok(ClientCertificate { parsed: ClientCert::new_with_certs(&chain, parsed_key), certificate, key })
    }

    /// The chain and the key, for settings of TLS.
    pub(crate) fn rustls(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let key =
            PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| format!("--client-key: {error}"))?;
        Ok((chain(&self.certificate).map_err(|error| format!("--client-cert: {error}"))?, key))
    }
}

impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

/// The certificates of a PEM file, at least one.
fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| error.to_string())?;
    if chain.is_empty() { Err("it has no certificate in PEM".to_owned()) } else { Ok(chain) }
}

fn read(file: File, path: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(CliError::io(path.display().to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn both_files_are_needed_and_the_key_is_private() {
        let half = CertificateArgs { client_cert: Some("c".into()), client_key: None };
        assert!(half.paths().expect_err("no key").to_string().contains("belong together"));
        assert_eq!(CertificateArgs::default().paths().expect("neither"), None);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let paths =
            CertificatePaths { certificate: directory.path().join("c"), key: directory.path().join("k") };
        fs::write(&paths.certificate, "no PEM").expect("a file");
        fs::write(&paths.key, "no PEM").expect("a file");
        fs::set_permissions(&paths.key, Permissions::from_mode(0o640)).expect("a mode");
        let refused = |paths| ClientCertificate::read(paths).expect_err("refused").to_string();
        assert!(refused(&paths).contains("chmod 600"), "{}", refused(&paths));
        fs::set_permissions(&paths.key, Permissions::from_mode(0o600)).expect("a mode");
        assert!(refused(&paths).contains("no certificate in PEM"), "{}", refused(&paths));
    }
}
