//! `/v1/cluster/version`: the cluster's version, what its rise waits for, and the releases of the
//! hosts.
//!
//! Owns the sentences. The core decides when the version rises.

use tidelock_api::version::{Hold, HostRelease, Version};
use tidelock_core::command::{ClusterView, HostView, RegistryWrite, ShardTags};
use tidelock_core::control::registry::version::HOLD_TAG;
use tidelock_core::types::{NodeId, ShardId};
use tidelock_core::version::RaiseBlocker;

use super::membership::denied;
use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use crate::requests;
use crate::store::Store;

pub(super) async fn show<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let view = call.ask(requests::cluster()).await?;
    let version = version(&view);
    Ok(response::json(serde_json::to_vec(&version).expect("invariant: numbers and texts are JSON")))
}

/// Stops the rise of the version, or lets it continue.
pub(super) async fn hold<S: Store>(call: Call<'_, S>, held: bool) -> Result<Response, Problem> {
    let tags = vec![(HOLD_TAG.to_owned(), held.then(|| "true".to_owned()))];
    let write = RegistryWrite::TagShard(ShardTags { shard: ShardId::PRIME, tags });
    call.ask(requests::change_registry(write)).await?.map_err(denied)?;
    Ok(response::accepted(serde_json::to_vec(&Hold { held }).expect("invariant: a flag is JSON")))
}

fn version(view: &ClusterView) -> Version {
    let of = &view.version;
    let release_of = |node: NodeId| {
        let host = view.hosts.iter().find(|host| host.info.node == node);
        host.map(|host| &host.info.release).filter(|release| !release.name.is_empty())
    };
    let next = of.next.map_or(0, |next| next.0);
    let sentence = |blocker: &RaiseBlocker| match *blocker {
        RaiseBlocker::Held => {
            "an operator holds it: `tidelock cluster version --resume` lets it continue".to_owned()
        }
        RaiseBlocker::ReleaseTooOld(node) => {
            let release = release_of(node).map_or_else(String::new, |release| format!(" {}", release.name));
            format!("node {node} runs a release{release} that does not support version {next}: upgrade it")
        }
        RaiseBlocker::Disconnected(node) => format!(
            "node {node} is not connected, and may come back with any release: start it, or remove it from the cluster"
        ),
    };
    Version {
        version: of.version.0,
        next: of.next.map(|next| next.0),
        held: of.held,
        waiting_for: of.blockers.iter().map(sentence).collect(),
        hosts: view.hosts.iter().map(release).collect(),
    }
}

fn release(host: &HostView) -> HostRelease {
    let release = &host.info.release;
    HostRelease {
        node: host.info.node.0,
        release: (!release.name.is_empty()).then(|| release.name.clone()),
        oldest: release.versions.oldest.0,
        newest: release.versions.newest.0,
    }
}
