//! Clusters with their own certificate authority (CA), `serve --secure`: creation of the CA and the
//! administrator, enrolment of joining hosts, and renewal of certificates.
//!
//! Owns the directory `tls` in the data directory, and `root.token` beside it. The core decides who
//! may join, which CA signs and when a certificate is renewed. This module generates keys and
//! signs. Every step can be repeated after a crash.
//!
//! Invariant: a new cluster serves no client until it has an administrator and requires
//! authentication.

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
use files::CertificateDirectory;

/// Why a node cannot get or use a certificate of its cluster.
#[derive(Debug, thiserror::Error)]
pub enum NodeCertificateError {
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
    /// The data directory belongs to a node that was created without `--secure`.
    #[error(
        "--secure is for a new cluster and an empty directory, and {} belongs to a node that was started without it; \
         start it as before, or give another --data-dir", .0.display()
    )]
    NotEmpty(PathBuf),
    /// A joining host has neither a certificate nor a join token.
    #[error(
        "--join: this host has no certificate; run `tidelock cluster join-token --out FILE` where an administrator's token \
         is, and start this host with --join-token-file FILE"
    )]
    NoJoinToken,
    /// The file of the join token cannot be read.
    #[error("--join-token-file: {}: {error}", path.display())]
    JoinTokenFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file does not contain a join token.
    #[error("--join-token-file: {}: {error}", path.display())]
    JoinToken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: MalformedToken,
    },
    /// The members refuse to sign a certificate.
    #[error("cannot get a certificate: {0}")]
    Enrol(#[from] EnrolError),
    /// The prime shard denies a change that creates the CA or the administrator.
    #[error("the new cluster cannot be completed: {0}")]
    Denied(Denial),
    /// The node's own request failed.
    #[error("the new cluster cannot be completed: {0}")]
    NoAnswer(NoAnswer),
}

/// Sets `tls_dir` to the certificate directory in the data directory, if the node uses the
/// cluster's own CA.
pub fn resolved(mut settings: Settings) -> Settings {
    let files = CertificateDirectory::of(&settings.data_dir);
    let wants = settings.secure || settings.join_token_file.is_some();
    if settings.tls_dir.is_some() || !(wants || files.have_certificate()) {
        return settings;
    }
    (settings.tls_dir, settings.secure) = (Some(files.directory().to_owned()), true);
    settings
}

/// Makes sure that the node has a certificate: generates the first one of a new cluster, or
/// requests one from the members. `settings` must be [`resolved`]. May be dropped while it waits
/// for members.
///
/// # Errors
/// When files cannot be used, or the members refuse to sign.
pub async fn provide(settings: &Settings, disk: &FsDisk) -> Result<(), NodeCertificateError> {
    if !settings.secure {
        return Ok(());
    }
    let files = CertificateDirectory::of(&settings.data_dir);
    close_directory(&settings.data_dir);
    if files.directory().exists() {
        files.finish_replacement()?;
    }
    let known = control_file::load(disk)?;
    let joins = !settings.join().is_empty();
    match known {
        // An earlier attempt was interrupted before the node had an identity. Start over, because
        // the settings may have changed.
        None if !joins => founding::make(settings, &files),
        _ if files.have_certificate() => Ok(()),
        Some(known) if !known.is_joining() => Err(NodeCertificateError::NotEmpty(settings.data_dir.clone())),
        _ => enrolment::enrol(settings, &files).await,
    }
}

/// Sets the mode of an existing data directory to 0700.
fn close_directory(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let only_ours = std::fs::Permissions::from_mode(0o700);
    if let Err(error) = std::fs::set_permissions(path, only_ours) {
        tracing::warn!(%error, "the mode of the data directory stays as it is");
    }
}

/// The host names and IP addresses in the node's certificate.
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

/// Whether a retry may succeed.
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
        let files = CertificateDirectory::of(directory.path());
        files.begin().unwrap();
        files.write_all((b"crt", b"key"), b"ca").unwrap();
        let found = settings(None, None);
        assert_eq!((found.tls_dir, found.secure), (Some(own), true));
        let elsewhere = settings(None, Some("/etc/tls"));
        assert_eq!((elsewhere.tls_dir, elsewhere.secure), (Some("/etc/tls".into()), false));
    }
}
