//! The keys with which a node encrypts and decrypts secrets of configuration.
//!
//! Owns the file of `--secret-key-file`: that only its owner may read it, and that a changed file
//! is used without a restart. A changed file that cannot be used is reported, and the keys in use
//! stay. `keyring` owns the format of the file, and the encryption.

mod keyring;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use sha2::{Digest as _, Sha256};

pub use keyring::{Keyring, KeyringError, OpenError, PlainSecret, SecretPair};

/// Longest file in bytes, so that a wrong file does not take memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Bits of a file's mode that let others read, write or execute it.
const OTHERS: u32 = 0o077;

/// Why a file is not used as the keys for secrets.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("secret_key_file: {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Others than its owner may use the file.
    #[error(
        "secret_key_file: others than its owner may use {} (mode {mode:03o}); let only its owner read it, with \
         chmod 600", path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file does not hold keys.
    #[error("secret_key_file: {}: {error}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: KeyringError,
    },
}

/// The keys of a node, which may have none. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct SecretKeys(Option<Arc<KeyFile>>);

#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    used: RwLock<Arc<Keyring>>,
    /// SHA-256 of the file in use.
    digest: Mutex<[u8; 32]>,
    /// Why the last change of the file is not used; `None`: the file is used as it is.
    not_used: Mutex<Option<String>>,
}

/// The result of reading the file again.
#[derive(Debug)]
pub enum KeyReload {
    /// The file is the one in use.
    Unchanged,
    /// The keys of the changed file are used.
    Replaced,
    /// The changed file is not used, for this reason; the keys in use stay.
    Kept(KeyFileError),
}

impl SecretKeys {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read, others may use it, or it does not hold keys.
    pub fn open(path: &Path) -> Result<SecretKeys, KeyFileError> {
        let (keyring, digest) = read(path)?;
        Ok(SecretKeys(Some(Arc::new(KeyFile {
            path: path.to_owned(),
            used: RwLock::new(Arc::new(keyring)),
            digest: Mutex::new(digest),
            not_used: Mutex::default(),
        }))))
    }

    /// The keys in use; `None` without a file.
    pub fn keyring(&self) -> Option<Arc<Keyring>> {
        let shared = self.0.as_ref()?;
        Some(shared.used.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Reads the file again, and uses it if it has changed and holds keys.
    pub fn reload(&self) -> KeyReload {
        let Some(shared) = &self.0 else { return KeyReload::Unchanged };
        let mut used = shared.digest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut not_used = shared.not_used.lock().unwrap_or_else(PoisonError::into_inner);
        match read(&shared.path) {
            Ok((_, digest)) if digest == *used => {
                *not_used = None;
                KeyReload::Unchanged
            }
            Ok((keyring, digest)) => {
                *used = digest;
                *not_used = None;
                *shared.used.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keyring);
                KeyReload::Replaced
            }
            Err(error) => {
                *not_used = Some(error.to_string());
                KeyReload::Kept(error)
            }
        }
    }

    /// What an operator should know: that a changed file is not used.
    pub fn warning(&self) -> Option<String> {
        let shared = self.0.as_ref()?;
        let not_used = shared.not_used.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(format!("the changed file of --secret-key-file is not used: {not_used}"))
    }
}

/// The keys of a file, and its SHA-256.
fn read(path: &Path) -> Result<(Keyring, [u8; 32]), KeyFileError> {
    let failed = |error| KeyFileError::Read { path: path.to_owned(), error };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(KeyFileError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let keyring = Keyring::parse(&text);
    let keyring = keyring.map_err(|error| KeyFileError::Keys { path: path.to_owned(), error })?;
    Ok((keyring, Sha256::digest(text.as_bytes()).into()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// 32 bytes of ones, and of twos, in base64.
    const KEYS: [&str; 2] =
        ["AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="];

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }

    #[test]
    fn only_a_file_of_the_owner_is_used() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("keys");
        assert!(matches!(SecretKeys::open(&path), Err(KeyFileError::Read { .. })));
        for (mode, is_used) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)]
        {
            if path.exists() {
                fs::remove_file(&path).expect("removed");
            }
            write(&path, &format!("k1:{}\n", KEYS[0]), mode);
            let opened = SecretKeys::open(&path);
            assert_eq!(opened.is_ok(), is_used, "{mode:o}: {opened:?}");
        }
        write(&path, "k1:short\n", 0o600);
        let refused = SecretKeys::open(&path).unwrap_err().to_string();
        assert!(refused.starts_with("secret_key_file: ") && refused.contains("line 1"), "{refused}");
        assert!(!refused.contains("short"), "{refused}");
    }

    #[test]
    fn a_changed_file_is_used_and_a_bad_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("keys");
        let first = format!("k1:{}\n", KEYS[0]);
        write(&path, &first, 0o600);
        let keys = SecretKeys::open(&path).expect("keys");
        let clone = keys.clone();
        let sealing = || clone.keyring().map(|keyring| keyring.sealing_id().to_owned());
        assert!(matches!(keys.reload(), KeyReload::Unchanged));
        write(&path, &format!("k2:{}\n{first}", KEYS[1]), 0o600);
        assert!(matches!(keys.reload(), KeyReload::Replaced));
        assert_eq!((sealing().as_deref(), keys.warning()), (Some("k2"), None));
        write(&path, "", 0o600);
        assert!(matches!(keys.reload(), KeyReload::Kept(KeyFileError::Keys { .. })));
        assert_eq!(sealing().as_deref(), Some("k2"));
        assert!(keys.warning().is_some_and(|warning| warning.contains("--secret-key-file")));
        write(&path, &first, 0o600);
        assert!(matches!(keys.reload(), KeyReload::Replaced));
        assert_eq!((sealing().as_deref(), keys.warning()), (Some("k1"), None));
        assert!(!format!("{keys:?}").contains(KEYS[0]), "{keys:?}");
        assert!(matches!(SecretKeys::default().reload(), KeyReload::Unchanged));
        assert!(SecretKeys::default().keyring().is_none());
    }
}
