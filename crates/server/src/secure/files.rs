//! The directory `tls` in the data directory, with the node's certificate, its key and the CA
//! bundle.
//!
//! Owns the order of writes. Invariants: key files have mode 0600 when they are created; files are
//! replaced atomically; `tls.crt` is written last, so that the directory is complete if it exists.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tidelock_core::auth::PrivateKey;

use super::NodeCertificateError;
use crate::tls::{AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE};

/// The directory of the files, in the data directory.
const DIRECTORY: &str = "tls";

/// Private key of the CA, until the new cluster has stored it in its prime shard.
const AUTHORITY_KEY_FILE: &str = "ca.key";

/// The uuid of a host that requests its first certificate.
const HOST_FILE: &str = "host";

/// Suffix of the new version of a file during a replacement.
const NEXT: &str = "next";

const SECRET_MODE: u32 = 0o600;
const PUBLIC_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o700;

/// The directory of the files.
#[derive(Clone, Debug)]
pub struct CertificateDirectory(PathBuf);

/// The CA of a new cluster.
#[derive(Debug, PartialEq, Eq)]
pub struct NewAuthority {
    /// CA certificate, PEM.
    pub certificate: Vec<u8>,
    /// Private key.
    pub key: PrivateKey,
}

impl CertificateDirectory {
    /// The files in a data directory, whether or not they exist.
    pub fn of(data_dir: &Path) -> CertificateDirectory {
        CertificateDirectory(data_dir.join(DIRECTORY))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Whether there is a certificate.
    pub fn have_certificate(&self) -> bool {
        self.0.join(CERTIFICATE_FILE).exists()
    }

    /// The CA of a new cluster; `None` after the prime shard has stored it.
    pub fn authority(&self) -> Result<Option<NewAuthority>, NodeCertificateError> {
        let Some(key) = self.read(AUTHORITY_KEY_FILE)? else { return Ok(None) };
        Ok(self.read(AUTHORITY_FILE)?.map(|certificate| NewAuthority { certificate, key: PrivateKey(key) }))
    }

    /// Deletes the private key of the CA after the prime shard has stored it.
    pub fn forget_authority(&self) -> Result<(), NodeCertificateError> {
        self.remove(AUTHORITY_KEY_FILE)
    }

    /// Creates the directory if necessary, and deletes the certificate, so that the directory
    /// counts as incomplete.
    pub fn begin(&self) -> Result<(), NodeCertificateError> {
        let created = DirBuilder::new().mode(DIRECTORY_MODE).create(&self.0);
        match created {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&self.0, error)),
            _ => {}
        }
        let only_ours = fs::Permissions::from_mode(DIRECTORY_MODE);
        fs::set_permissions(&self.0, only_ours).map_err(|error| failed(&self.0, error))?;
        self.remove(CERTIFICATE_FILE)
    }

    /// Writes the private key of the CA of a new cluster.
    pub fn write_authority_key(&self, key: &str) -> Result<(), NodeCertificateError> {
        self.write(AUTHORITY_KEY_FILE, key.as_bytes(), SECRET_MODE)
    }

    /// The uuid of the host that [`CertificateDirectory::write_host`] has stored.
    pub fn host(&self) -> Result<Option<String>, NodeCertificateError> {
        Ok(self.read(HOST_FILE)?.and_then(|text| String::from_utf8(text).ok()))
    }

    /// Stores the uuid of the host before a request for a certificate is sent.
    pub fn write_host(&self, host: &str) -> Result<(), NodeCertificateError> {
        self.write(HOST_FILE, host.as_bytes(), PUBLIC_MODE)
    }

    /// Writes the CA bundle, the key, and the first certificate.
    pub fn write_all(
        &self,
        (certificate, key): (&[u8], &[u8]),
        bundle: &[u8],
    ) -> Result<(), NodeCertificateError> {
        self.write_bundle(bundle)?;
        self.write(KEY_FILE, key, SECRET_MODE)?;
        self.write(CERTIFICATE_FILE, certificate, PUBLIC_MODE)
    }

    /// Replaces the CA bundle.
    pub fn write_bundle(&self, bundle: &[u8]) -> Result<(), NodeCertificateError> {
        self.write(AUTHORITY_FILE, bundle, PUBLIC_MODE)
    }

    /// Replaces the certificate and its key. After a crash,
    /// [`CertificateDirectory::finish_replacement`] restores a matching pair.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), NodeCertificateError> {
        self.write(&next(KEY_FILE), key, SECRET_MODE)?;
        self.write(&next(CERTIFICATE_FILE), certificate, PUBLIC_MODE)?;
        self.rename(&next(KEY_FILE), KEY_FILE)?;
        self.rename(&next(CERTIFICATE_FILE), CERTIFICATE_FILE)
    }

    /// After a crash: completes a replacement if the new key is already in place, and discards it
    /// otherwise.
    pub fn finish_replacement(&self) -> Result<(), NodeCertificateError> {
        if self.0.join(next(KEY_FILE)).exists() {
            self.remove(&next(CERTIFICATE_FILE))?;
            return self.remove(&next(KEY_FILE));
        }
        if self.0.join(next(CERTIFICATE_FILE)).exists() {
            return self.rename(&next(CERTIFICATE_FILE), CERTIFICATE_FILE);
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, NodeCertificateError> {
        let path = self.0.join(name);
        match fs::read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, error)),
        }
    }

    fn write(&self, name: &str, content: &[u8], mode: u32) -> Result<(), NodeCertificateError> {
        replace_file(&self.0.join(name), content, mode)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), NodeCertificateError> {
        let path = self.0.join(to);
        fs::rename(self.0.join(from), &path).and_then(|()| sync_names(&self.0)).map_err(|e| failed(&path, e))
    }

    fn remove(&self, name: &str) -> Result<(), NodeCertificateError> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_names(&self.0)).map_err(|error| failed(&path, error)),
        }
    }
}

/// Replaces a file atomically and durably. The file is created with `mode`.
pub fn replace_file(path: &Path, content: &[u8], mode: u32) -> Result<(), NodeCertificateError> {
    let partial = path.with_extension("partial");
    let write = || {
        // A file of an interrupted run may have another mode.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        path.parent().map_or(Ok(()), sync_names)
    };
    write().map_err(|error| failed(path, error))
}

fn next(name: &str) -> String {
    format!("{name}.{NEXT}")
}

fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

pub(super) fn failed(path: &Path, error: io::Error) -> NodeCertificateError {
    NodeCertificateError::File { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, CertificateDirectory) {
        let directory = tempfile::tempdir().unwrap();
        let files = CertificateDirectory::of(directory.path());
        files.begin().unwrap();
        files.write_all((b"crt 1", b"key 1"), b"ca").unwrap();
        (directory, files)
    }

    fn pair(files: &CertificateDirectory) -> (Vec<u8>, Vec<u8>) {
        files.finish_replacement().unwrap();
        (files.read(CERTIFICATE_FILE).unwrap().unwrap(), files.read(KEY_FILE).unwrap().unwrap())
    }

    #[test]
    fn a_replacement_leaves_a_pair_that_fits_wherever_it_stops() {
        let (_directory, files) = files();
        let old = (b"crt 1".to_vec(), b"key 1".to_vec());
        files.write(&next(KEY_FILE), b"key 2", SECRET_MODE).unwrap();
        assert_eq!(pair(&files), old);
        files.write(&next(KEY_FILE), b"key 2", SECRET_MODE).unwrap();
        files.write(&next(CERTIFICATE_FILE), b"crt 2", PUBLIC_MODE).unwrap();
        assert_eq!(pair(&files), old);
        files.write(&next(KEY_FILE), b"key 2", SECRET_MODE).unwrap();
        files.write(&next(CERTIFICATE_FILE), b"crt 2", PUBLIC_MODE).unwrap();
        files.rename(&next(KEY_FILE), KEY_FILE).unwrap();
        assert_eq!(pair(&files), (b"crt 2".to_vec(), b"key 2".to_vec()));
        files.replace(b"crt 3", b"key 3").unwrap();
        assert_eq!(pair(&files), (b"crt 3".to_vec(), b"key 3".to_vec()));
    }

    #[test]
    fn keys_are_readable_to_their_owner_only() {
        let (_directory, files) = files();
        files.write_authority_key("key").unwrap();
        files.replace(b"crt 2", b"key 2").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(files.directory()), 0o700);
        for name in [KEY_FILE, AUTHORITY_KEY_FILE] {
            assert_eq!(mode(&files.directory().join(name)), 0o600, "{name}");
        }
        files.forget_authority().unwrap();
        assert_eq!(files.authority().unwrap(), None);
    }
}
