//! Renewal of this node's certificate, and updates of its CA bundle.
//!
//! The core decides when to renew and which CA signs. Every node has the CA's private key in its
//! replica of the prime shard, so it signs its own certificate.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidelock_core::auth::{Authorities, AuthorityId, PresentedCertificate, bundle_revision};
use tidelock_core::types::UnixMillis;
use tokio::time::MissedTickBehavior;

use super::files::CertificateDirectory;
use super::{NodeCertificateError, names};
use crate::config::Settings;
use crate::tls::issue::{CertificateAuthority, HOST_DAYS, Validity};
use crate::tls::{CertificateInUse, Reload, TlsAcceptor};
use crate::worker::Worker;

/// How often a node checks whether the CAs have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often it checks the age of its certificate, and retries after a failure.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(60);

/// Keeps the certificate and the CA bundle of this node up to date. Returns at once if the node
/// does not use the cluster's own CA.
pub(crate) async fn keep_renewed(settings: Settings, worker: Worker, tls: TlsAcceptor) {
    if !settings.secure {
        return;
    }
    let mut interval = tokio::time::interval(LOOK_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<(Arc<Authorities>, Instant)> = None;
    loop {
        interval.tick().await;
        let authorities = worker.authorities();
        let is_known = last.as_ref().is_some_and(|(seen, at)| {
            seen.revision() == authorities.revision() && at.elapsed() < RENEWAL_INTERVAL
        });
        if is_known {
            continue;
        }
        last = Some((authorities.clone(), Instant::now()));
        let (settings, tls) = (settings.clone(), tls.clone());
        // File I/O and signing run on a blocking thread.
        let renewing = tokio::task::spawn_blocking(move || renew(&settings, &authorities, &tls));
        match renewing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            Ok(()) => {}
            Err(error) => tracing::error!(%error, "the certificate of this node could not be renewed"),
        }
    }
}

fn renew(
    settings: &Settings,
    authorities: &Authorities,
    tls: &TlsAcceptor,
) -> Result<(), NodeCertificateError> {
    let (files, now) = (CertificateDirectory::of(&settings.data_dir), SystemTime::now());
    let Some(shown) = tls.shown() else { return Ok(()) };
    // After a restart, the registry may be older than the bundle on disk until the log is applied.
    let is_newer = authorities.revision() > bundle_revision(&shown.authorities);
    if is_newer && !authorities.rows().is_empty() {
        files.write_bundle(&authorities.bundle())?;
        reload(tls, "nodes with certificates of these authorities are trusted now");
    }
    if authorities.revision() < bundle_revision(&shown.authorities) {
        return Ok(());
    }
    let Some((id, authority)) =
        authorities.renewal(presented_certificate(&shown, authorities, now), unix_ms(now))
    else {
        return Ok(());
    };
    let text = |pem: &[u8]| String::from_utf8_lossy(pem).into_owned();
    let signer = CertificateAuthority::load(text(&authority.certificate), &text(&authority.key.0))?;
    let validity = Validity::of_days(unix_ms(now).0 / 1000, HOST_DAYS);
    let (certificate, key) = signer.issue(&names(settings), tls.host(), validity)?;
    files.replace(certificate.as_bytes(), key.as_bytes())?;
    tracing::info!(
        authority = id.0,
        expires_unix_s = validity.end_unix_s,
        "renewed the certificate of this node"
    );
    reload(tls, "clients and other nodes are shown the new certificate");
    Ok(())
}

fn reload(tls: &TlsAcceptor, done: &'static str) {
    match tls.reload(SystemTime::now()) {
        Reload::Replaced => tracing::info!("{done}"),
        Reload::Unchanged => {}
        Reload::Kept(reason) => {
            tracing::error!(%reason, "the new certificate is not used; the old one stays in place")
        }
    }
}

fn presented_certificate(
    shown: &CertificateInUse,
    authorities: &Authorities,
    now: SystemTime,
) -> PresentedCertificate {
    let (begins, ends) = shown.validity_unix_s;
    let at = |unix_s: i64| UnixMillis(u64::try_from(unix_s).unwrap_or(0).saturating_mul(1000));
    let mut rows = authorities.rows().iter();
    let signed_by: Option<AuthorityId> =
        rows.find(|(_, row)| shown.is_signed_by(&row.certificate, now)).map(|(id, _)| *id);
    PresentedCertificate { begins: at(begins), ends: at(ends), signed_by }
}

fn unix_ms(now: SystemTime) -> UnixMillis {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
