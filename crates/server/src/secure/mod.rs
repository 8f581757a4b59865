//! A cluster that signs the certificates of its hosts itself: how a host gets its first one, how a
//! new cluster gets its authority and its administrator, and how certificates are renewed.
//!
//! Owns the directory `tls` in the data directory, and `root.token` beside it. The core decides who
//! may join, which authority signs and when a certificate is renewed; the shell makes keys and
//! signs. Everything here can be repeated after a crash at any point.
//!
//! Invariant: a new cluster serves no client before it has an administrator and authentication is
//! required.

mod enrolment;
mod files;
mod founding;
mod renewal;

pub use enrolment::enrolment_handler;
pub(crate) use founding::establish;
pub(crate) use renewal::keep_renewed;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tidelock_core::command::{Denial, Refusal};
use tidelock_core::storage::control_file::{self, ControlFileError};

use crate::config::Settings;
use crate::disk::FsDisk;
use crate::requests::NoAnswer;
use crate::token::MalformedToken;
use crate::transport::enrol::EnrolError;
use files::OwnFiles;

/// Why a node has no certificate of its cluster.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A key or a certificate cannot be made.
    #[error("making a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The control file cannot be read.
    #[error("data directory: {0}")]
    ControlFile(#[from] ControlFileError),
    /// The directory is that of a node that has its certificate from elsewhere, or none.
    #[error(
        "--secure is for a new cluster and an empty directory, and {} belongs to a node that was started without it; \
         start it as before, or give another --data-dir", .0.display()
    )]
    NotEmpty(PathBuf),
    /// A host that shall join has neither a certificate nor a token to get one.
    #[error(
        "--join: this host has no certificate; run `tidelock cluster join-token --out FILE` where an administrator's token \
         is, and start this host with --join-token-file FILE"
    )]
    NoJoinToken,
    /// The file has no join token.
    #[error("--join-token-file: {}: {error}", path.display())]
    JoinToken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: MalformedToken,
    },
    /// The cluster gives no certificate.
    #[error("cannot get a certificate: {0}")]
    Enrol(#[from] EnrolError),
    /// The cluster does not take its authority or its administrator.
    #[error("the new cluster cannot be completed: {0}")]
    Denied(Denial),
    /// The node gives no answer to itself.
    #[error("the new cluster cannot be completed: {0}")]
    NoAnswer(NoAnswer),
}

/// Settings in which `tls_dir` is the directory in the data directory, if the node has its
/// certificate from its cluster.
pub fn resolved(mut settings: Settings) -> Settings {
    let files = OwnFiles::of(&settings.data_dir);
    let wants = settings.secure || settings.join_token_file.is_some();
    if settings.tls_dir.is_some() || !(wants || files.have_certificate()) {
        return settings;
    }
    (settings.tls_dir, settings.secure) = (Some(files.directory().to_owned()), true);
    settings
}

/// Makes sure that the directory of the certificate has one, with `settings` that are
/// [`resolved`]. Waits only for members of the cluster to join, and may be dropped meanwhile.
///
/// # Errors
/// When files cannot be used, and when the cluster gives no certificate.
pub async fn provide(settings: &Settings, disk: &FsDisk) -> Result<(), SecureError> {
    if !settings.secure {
        return Ok(());
    }
    let files = OwnFiles::of(&settings.data_dir);
    close_directory(&settings.data_dir);
    if files.directory().exists() {
        files.finish_replacement()?;
    }
    let known = control_file::load(disk)?;
    let joins = !settings.join().is_empty();
    match known {
        // Nothing of an earlier attempt was used yet, and the settings may have changed.
        None if !joins => founding::make(settings, &files),
        _ if files.have_certificate() => Ok(()),
        Some(known) if !known.is_joining() => Err(SecureError::NotEmpty(settings.data_dir.clone())),
        _ => enrolment::enrol(settings, &files).await,
    }
}

/// Takes the data directory from the view of others. Its files are not readable to them in any
/// case.
fn close_directory(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let only_ours = std::fs::Permissions::from_mode(0o700);
    if let Err(error) = std::fs::set_permissions(path, only_ours) {
        tracing::warn!(%error, "the mode of the data directory stays as it is");
    }
}

/// The names and addresses by which clients reach the node, which its certificate has.
fn names(settings: &Settings) -> Vec<String> {
    let own = settings.http_hosts().map(|host| host.trim_matches(['[', ']']).to_owned());
    let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let is_somewhere = |name: &String| !name.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    let mut names: Vec<String> = Vec::new();
    for name in own.filter(is_somewhere).chain(loopback) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether the refusal may be over soon.
fn is_temporary(error: &NoAnswer) -> bool {
    !matches!(error, NoAnswer::Mismatched | NoAnswer::Refused(Refusal::Invalid(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawSettings;

    #[test]
    fn a_certificate_has_the_names_of_the_listeners_and_of_loopback() {
        let raw = RawSettings {
            http: Some("0.0.0.0:8001".into()),
            advertise_http: Some("kv-1.example".into()),
            resp: Some("[fd00::1]:7001".into()),
            peer: Some("10.0.0.1:9001".into()),
            allowed_hosts: Some(vec!["kv.example".into()]),
            ..RawSettings::default()
        };
        let mut names = names(&Settings::new(raw).unwrap());
        names.sort();
        assert_eq!(
            names,
            ["10.0.0.1", "127.0.0.1", "::1", "fd00::1", "kv-1.example", "kv.example", "localhost"]
        );
    }

    #[test]
    fn a_directory_with_a_certificate_needs_no_flag() {
        let directory = tempfile::tempdir().unwrap();
        let settings = |secure, tls_dir: Option<&str>| {
            let data_dir = Some(directory.path().to_owned());
            let raw =
                RawSettings { data_dir, secure, tls_dir: tls_dir.map(Into::into), ..RawSettings::default() };
            resolved(Settings::new(raw).unwrap())
        };
        let own = directory.path().join("tls");
        assert_eq!(settings(None, None).tls_dir, None);
        assert_eq!(settings(Some(true), None).tls_dir.as_ref(), Some(&own));
        let files = OwnFiles::of(directory.path());
        files.begin().unwrap();
        files.write_all((b"crt", b"key"), b"ca").unwrap();
        let found = settings(None, None);
        assert_eq!((found.tls_dir, found.secure), (Some(own), true));
        let elsewhere = settings(None, Some("/etc/tls"));
        assert_eq!((elsewhere.tls_dir, elsewhere.secure), (Some("/etc/tls".into()), false));
    }
}
