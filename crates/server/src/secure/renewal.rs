//! Renewal of this node's certificate, and of the authorities that it trusts.
//!
//! The core decides whether and by which authority. Every node has the authority's key in its
//! replica of the prime shard, and signs for itself.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidelock_core::auth::{Authorities, AuthorityId, ShownCertificate, bundle_revision};
use tidelock_core::types::UnixMillis;
use tokio::time::MissedTickBehavior;

use super::files::OwnFiles;
use super::{SecureError, names};
use crate::config::Settings;
use crate::tls::issue::{Authority, HOST_DAYS, Validity};
use crate::tls::{Reload, ShownFiles, TlsAcceptor};
use crate::worker::Worker;

/// How often a node looks whether the authorities have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often it looks whether its certificate is old, and after a failure tries again.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(60);

/// Renews the certificate of this node and the authorities that it trusts, as long as it runs. Does
/// nothing while the cluster has no authority, or if the node's certificate is from elsewhere.
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
        // On another thread: the file system may be slow.
        let renewing = tokio::task::spawn_blocking(move || renew(&settings, &authorities, &tls));
        match renewing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            Ok(()) => {}
            Err(error) => tracing::error!(%error, "the certificate of this node could not be renewed"),
        }
    }
}

fn renew(settings: &Settings, authorities: &Authorities, tls: &TlsAcceptor) -> Result<(), SecureError> {
    let (files, now) = (OwnFiles::of(&settings.data_dir), SystemTime::now());
    let Some(shown) = tls.shown() else { return Ok(()) };
    // A node that has just started may know older authorities than it had before.
    let is_newer = authorities.revision() > bundle_revision(&shown.authorities);
    if is_newer && !authorities.rows().is_empty() {
        files.write_bundle(&authorities.bundle())?;
        reload(tls, "nodes with certificates of these authorities are trusted now");
    }
    if authorities.revision() < bundle_revision(&shown.authorities) {
        return Ok(());
    }
    let Some((id, authority)) =
        authorities.renewal(shown_certificate(&shown, authorities, now), unix_ms(now))
    else {
        return Ok(());
    };
    let text = |pem: &[u8]| String::from_utf8_lossy(pem).into_owned();
    let signer = Authority::load(text(&authority.certificate), &text(&authority.key.0))?;
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

fn shown_certificate(shown: &ShownFiles, authorities: &Authorities, now: SystemTime) -> ShownCertificate {
    let (begins, ends) = shown.validity_unix_s;
    let at = |unix_s: i64| UnixMillis(u64::try_from(unix_s).unwrap_or(0).saturating_mul(1000));
    let mut rows = authorities.rows().iter();
    let signed_by: Option<AuthorityId> =
        rows.find(|(_, row)| shown.is_signed_by(&row.certificate, now)).map(|(id, _)| *id);
    ShownCertificate { begins: at(begins), ends: at(ends), signed_by }
}

fn unix_ms(now: SystemTime) -> UnixMillis {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
