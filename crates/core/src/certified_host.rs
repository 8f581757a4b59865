//! The name of a host in its certificate, and whether it is the host that introduces itself.
//!
//! Owns the form of the name, `tidelock://<cluster name>/host/<host uuid>`, which is a URI among
//! the subject alternative names. Deliberately not here: reading certificates and checking who
//! signed them, which the shell does before. The name has no IP address and no DNS name, because
//! hosts move. It has the cluster's name instead of its id, because the id is known only once the
//! cluster is founded, and certificates are made before.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use core::fmt;

use uuid::Uuid;

/// Begins every name of a host.
const SCHEME: &str = "tidelock://";

/// Stands between the cluster's name and the host's uuid.
const HOST_PATH: &str = "/host/";

/// Most characters of a malformed name that an error shows.
const SHOWN_CHARS_MAX: usize = 120;

/// The name of a host in its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedHost {
    /// The name of the cluster to which the host belongs.
    pub cluster_name: String,
    /// The uuid of the host.
    pub host: Uuid,
}

/// Why a certificate is not that of a particular host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// No URI of the certificate begins with the scheme.
    #[error(
        "the certificate names no host of a cluster: it needs the URI name tidelock://CLUSTER-NAME/host/HOST-UUID"
    )]
    NoName,
    /// More than one URI of the certificate begins with the scheme.
    #[error("the certificate names more than one host; one certificate is for one host")]
    SeveralNames,
    /// A URI with the scheme has another form.
    #[error("the certificate has the name {0:?}; a host is named tidelock://CLUSTER-NAME/host/HOST-UUID")]
    Malformed(String),
    /// The certificate is for a host of another cluster.
    #[error("the certificate is for a host of cluster {certified}, and this is a node of {own}")]
    OtherCluster {
        /// The cluster's name in the certificate.
        certified: String,
        /// The cluster's name in the certificate of the node that refuses it.
        own: String,
    },
    /// The certificate is for another host than the one that introduced itself.
    #[error("the certificate is for host {certified}, and host {claimed} introduces itself")]
    OtherHost {
        /// The host in the certificate.
        certified: Uuid,
        /// The host in the introduction.
        claimed: Uuid,
    },
}

impl CertifiedHost {
    /// The name of a host among the URIs of its certificate. Other URIs mean nothing.
    ///
    /// # Errors
    /// When there is no name of a host, or more than one, or one that is malformed.
    pub fn of_uris<'a>(uris: impl IntoIterator<Item = &'a str>) -> Result<CertifiedHost, CertificateError> {
        let mut names = uris.into_iter().filter(|uri| uri.starts_with(SCHEME));
        let name = names.next().ok_or(CertificateError::NoName)?;
        if names.next().is_some() {
            return Err(CertificateError::SeveralNames);
        }
        let malformed = || CertificateError::Malformed(name.chars().take(SHOWN_CHARS_MAX).collect());
        CertifiedHost::parse(name).ok_or_else(malformed)
    }

    /// Accepts only the form that `Display` writes, so that one host has one name.
    fn parse(name: &str) -> Option<CertifiedHost> {
        let (cluster_name, host) = name.strip_prefix(SCHEME)?.split_once(HOST_PATH)?;
        let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
        let uuid = Uuid::try_parse(host).ok().filter(|uuid| uuid.to_string() == host && !uuid.is_nil())?;
        let is_name = !cluster_name.is_empty() && cluster_name.chars().all(is_plain);
        is_name.then(|| CertifiedHost { cluster_name: cluster_name.to_owned(), host: uuid })
    }

    /// Judges the certificate of another node, as far as it is known before that node introduces
    /// itself. `self` is the name in the judging node's own certificate.
    ///
    /// # Errors
    /// When the certificate is for a host of another cluster.
    pub fn judge_cluster(&self, other: &CertifiedHost) -> Result<(), CertificateError> {
        if other.cluster_name == self.cluster_name {
            return Ok(());
        }
        let (certified, own) = (other.cluster_name.clone(), self.cluster_name.clone());
        Err(CertificateError::OtherCluster { certified, own })
    }

    /// Judges whether the certificate of another node is that of the host `claimed`, which it
    /// introduces itself as. `self` is the name in the judging node's own certificate.
    ///
    /// # Errors
    /// When the certificate is for another host, or for one of another cluster.
    pub fn judge(&self, other: &CertifiedHost, claimed: Uuid) -> Result<(), CertificateError> {
        self.judge_cluster(other)?;
        if other.host == claimed {
            return Ok(());
        }
        Err(CertificateError::OtherHost { certified: other.host, claimed })
    }
}

impl fmt::Display for CertifiedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{HOST_PATH}{}", self.cluster_name, self.host)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const UUID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

    fn of(uri: &str) -> Result<CertifiedHost, CertificateError> {
        CertifiedHost::of_uris([uri])
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let name = format!("tidelock://blue-1.x_y/host/{UUID}");
        let host = of(&name).unwrap();
        assert_eq!((host.cluster_name.as_str(), host.host.to_string()), ("blue-1.x_y", UUID.to_owned()));
        assert_eq!(host.to_string(), name);
        assert_eq!(CertifiedHost::of_uris(["https://a", &name, "spiffe://b/c"]), Ok(host));
    }

    #[test]
    fn other_names_are_no_hosts() {
        for uris in [&[] as &[&str], &["https://a"], &["TIDELOCK://a/host/b"]] {
            assert_eq!(CertifiedHost::of_uris(uris.iter().copied()), Err(CertificateError::NoName));
        }
        let name = format!("tidelock://a/host/{UUID}");
        assert_eq!(CertifiedHost::of_uris([&*name, &*name]), Err(CertificateError::SeveralNames));
        let upper = UUID.to_uppercase();
        for malformed in [
            "tidelock://".to_owned(),
            format!("tidelock:///host/{UUID}"),
            format!("tidelock://a/{UUID}"),
            format!("tidelock://a/host/{UUID}/"),
            format!("tidelock://a/host/{UUID}\0"),
            format!("tidelock://a\0b/host/{UUID}"),
            format!("tidelock://*/host/{UUID}"),
            format!("tidelock://a/b/host/{UUID}"),
            format!("tidelock://a/host/{upper}"),
            format!("tidelock://a/host/{{{UUID}}}"),
            format!("tidelock://a/host/{}", Uuid::nil()),
            format!("tidelock://{}/host/*", "a".repeat(1 << 16)),
        ] {
            let error = of(&malformed).unwrap_err();
            assert!(matches!(error, CertificateError::Malformed(_)), "{malformed}");
            assert!(error.to_string().len() < 1_000);
        }
    }

    #[test]
    fn a_certificate_is_that_of_one_host_of_one_cluster() {
        let named = |cluster: &str, host| CertifiedHost {
            cluster_name: cluster.to_owned(),
            host: Uuid::from_u128(host),
        };
        let own = named("blue", 1);
        assert_eq!(own.judge(&named("blue", 2), Uuid::from_u128(2)), Ok(()));
        let other_host = own.judge(&named("blue", 2), Uuid::from_u128(3));
        assert!(matches!(other_host, Err(CertificateError::OtherHost { .. })), "{other_host:?}");
        for cluster in ["green", "Blue", "blue2", "blu"] {
            let other_cluster = own.judge(&named(cluster, 2), Uuid::from_u128(2));
            assert!(matches!(other_cluster, Err(CertificateError::OtherCluster { .. })), "{cluster}");
        }
    }
}
