//! `/v1/tls/reload`: looks at the files of the certificate now, and says what they are.

use std::time::SystemTime;

use tidelock_api::certificate::Certificate;
use tidelock_core::command::AdminAction;

use super::audit;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use crate::store::Store;
use crate::tls::Reload;

pub(super) async fn reload<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let not_used = |detail: String| Problem::new(ProblemKind::CertificateNotUsed, detail);
    let Some(tls) = call.context.tls.clone() else {
        return Err(not_used("this node has no TLS: it was started without --tls-dir".to_owned()));
    };
    let node = call.store().status().await.node;
    audit::announce(&call, AdminAction::ReloadCertificates { node }).await?;
    // On another thread: the file system of the certificate may hang, and the node must not.
    let reloading = tokio::task::spawn_blocking(move || (tls.reload(SystemTime::now()), tls));
    let (outcome, tls) =
        reloading.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    let replaced = match outcome {
        Reload::Unchanged => false,
        Reload::Replaced => true,
        Reload::Kept(reason) => {
            tracing::error!(%reason, "the new certificate is not used; the old one stays in place");
            return Err(not_used(format!("{reason}; the old certificate stays in place")));
        }
    };
    if replaced {
        let expires_unix_s = tls.expires_unix_s();
        tracing::info!(expires_unix_s, "clients and other nodes are shown the new certificate");
    }
    let certificate = Certificate { replaced, names: tls.names(), expires_unix_s: tls.expires_unix_s() };
    let body = serde_json::to_vec(&certificate).expect("invariant: numbers and texts are JSON");
    Ok(response::json(body))
}
