//! Ends streamed answers whose client loses the permission for them.
//!
//! The core checks a request once. A stream of events or a backup goes on afterwards, so it is
//! checked again whenever the rows change, and when the token, the certificate or a role ends.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidelock_core::auth::{Access, Demand, Scope, Verb};
use tidelock_core::command::KeyScope;
use tidelock_core::command::config::Name;
use tokio::time::sleep;

use super::authentication::ClientIdentity;
use crate::access::PublishedAccess;
use crate::clock::WallClock;

/// What a streamed answer demands until it ends.
pub(super) enum StreamDemand {
    /// To read a namespace.
    ReadNamespace(Name),
    /// To watch keys.
    WatchKeys(KeyScope),
    /// `cluster:admin`.
    Administer,
}

impl StreamDemand {
    fn demand(&self) -> Demand<'_> {
        match self {
            StreamDemand::ReadNamespace(name) => {
                Demand { verb: Verb::Read, scope: Scope::Namespace(name.as_str()) }
            }
            StreamDemand::WatchKeys(KeyScope::Key(key)) => {
                Demand { verb: Verb::Watch, scope: Scope::Key(key) }
            }
            StreamDemand::WatchKeys(KeyScope::Prefix(prefix)) => {
                Demand { verb: Verb::Watch, scope: Scope::Keys { prefix } }
            }
            StreamDemand::Administer => Demand { verb: Verb::Administer, scope: Scope::Cluster },
        }
    }
}

/// Completes when the client of a streamed answer loses the permission for it.
pub(super) type PermissionLost = Pin<Box<dyn Future<Output = ()>>>;

/// Completes when these rows, or later ones, do not allow the demand to the client any more.
pub(super) fn permission_lost(
    identity: ClientIdentity,
    access: Arc<PublishedAccess>,
    clock: WallClock,
    demand: StreamDemand,
) -> PermissionLost {
    Box::pin(async move {
        loop {
            let rows = access.rows();
            if !rows.is_required() {
                access.until_changed(&rows).await;
                continue;
            }
            // In a box of its own: without authentication, thousands of streams wait above.
            let recheck = Box::pin(until_recheck(&identity, &access, clock, &demand, &rows));
            if recheck.await.is_none() {
                return;
            }
        }
    })
}

/// Waits until the permission must be checked again: the rows change, or one of them ends. `None`
/// if these rows do not allow the demand.
async fn until_recheck(
    identity: &ClientIdentity,
    access: &PublishedAccess,
    clock: WallClock,
    demand: &StreamDemand,
    rows: &Arc<Access>,
) -> Option<()> {
    let now = clock.now();
    let proof = identity.proof().filter(|proof| proof.holds(rows, now))?;
    let permissions = rows.permissions(&proof.principal)?;
    if !permissions.cover(&demand.demand(), Some(now)) {
        return None;
    }
    let expires = proof.expires.filter(|expires| *expires > now);
    let next_end = expires.into_iter().chain(permissions.next_end(now)).min();
    let until_next_end = async {
        match next_end {
            Some(end) => sleep(Duration::from_millis(end.0 - now.0)).await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = access.until_changed(rows) => {}
        () = until_next_end => {}
    }
    Some(())
}
