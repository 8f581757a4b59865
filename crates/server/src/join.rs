//! Joining a cluster, from both sides: how a host obtains its identity, and how a member decides
//! about a join request.
//!
//! Owns the contents of the two sides' messages; `transport::join` moves them. The registry assigns
//! the number of a host. Invariant: the uuid of a joining host is on its disk before the first
//! member receives it. However often the host asks, and after any crash, it is one host with one
//! number.

use std::rc::Rc;

use tidelock_core::auth::Caller;
use tidelock_core::command::{HostInfo, Refusal};
use tidelock_core::storage::control_file::Identity;
use tidelock_core::types::{NodeId, ReplicaId};
use tidelock_core::version::{Release, SupportedVersions};
use uuid::Uuid;

use crate::config::{Address, Settings};
use crate::identity_store::IdentityStore;
use crate::requests::{self, NoAnswer};
use crate::store::Store;
use crate::tls::TlsAcceptor;
use crate::transport::join::{AskError, JoinHandler, JoinRefusal, JoinRequest, Welcome, ask};
use crate::worker::Worker;

/// The registry entry that a node announces: its settings, and the number that the cluster
/// assigned.
pub fn host_info(settings: &Settings, node: NodeId, uuid: Uuid) -> HostInfo {
    let advertise = &settings.advertise;
    HostInfo {
        node,
        uuid,
        peer_address: advertise.peer.to_string(),
        http_address: advertise.http.to_string(),
        resp_address: advertise.resp.to_string(),
        resp_cluster_address: advertise.resp_cluster.as_ref().map_or_else(String::new, Address::to_string),
        tags: settings.tags.clone(),
        release: own_release(),
    }
}

/// The release of this binary.
pub fn own_release() -> Release {
    Release { name: env!("CARGO_PKG_VERSION").to_owned(), versions: SupportedVersions::OWN }
}

/// Asks the members in the settings until one admits this host. May be dropped, and called again
/// with the same uuid.
///
/// # Errors
/// When the cluster refuses permanently.
pub async fn become_member(
    settings: &Settings,
    host_uuid: Uuid,
    tls: Option<&TlsAcceptor>,
) -> Result<Identity, AskError> {
    let request = JoinRequest {
        cluster_name: settings.cluster_name().map(str::to_owned),
        data_shards: settings.given_shards(),
        host: host_info(settings, NodeId(0), host_uuid),
    };
    let welcome = ask(&settings.join(), &request, tls).await?;
    tracing::info!(node = %welcome.node, cluster = %welcome.cluster, "joined the cluster");
    Ok(Identity {
        cluster_id: welcome.cluster,
        node: welcome.node,
        prime_replica: welcome.replica,
        cluster_name: welcome.cluster_name,
        founders: welcome.founders,
        data_shards: welcome.data_shards,
        replicas: welcome.replicas,
        shard_tags: welcome.shard_tags,
        automatic_division: welcome.automatic_division,
        founding_version: welcome.founding_version,
        version: welcome.version,
        hosts: welcome.hosts,
        ..Identity::joining(host_uuid)
    })
}

/// The member's side: the handler of join requests.
pub fn handler(worker: &Worker, store: &Rc<IdentityStore>) -> JoinHandler {
    let (worker, store) = (worker.clone(), store.clone());
    Rc::new(move |request| {
        let (worker, store) = (worker.clone(), store.clone());
        Box::pin(async move {
            check(&store.identity(), &request)?;
            let (node, replica) = register(&worker, request.host).await?;
            Ok(welcome(&worker, &store.identity(), node, replica))
        })
    })
}

/// Checks what can be checked without the registry.
fn check(identity: &Identity, request: &JoinRequest) -> Result<(), JoinRefusal> {
    let refused = |reason| Err(JoinRefusal::Refused(reason));
    let name = &identity.cluster_name;
    if let Some(given) = request.cluster_name.as_ref().filter(|given| *given != name) {
        return refused(format!("the cluster's name is not `{given}`: it is `{name}`"));
    }
    if let Some(given) = request.data_shards.filter(|given| *given != identity.data_shards) {
        return refused(format!(
            "the cluster was founded with {} data shards, not {given}",
            identity.data_shards
        ));
    }
    let release = &request.host.release;
    if let Err(unsupported) = release.versions.check(identity.version) {
        return refused(unsupported.to_string());
    }
    let address = &request.host.peer_address;
    if !Address::parse("peer", address).is_ok_and(|address| address.is_reachable()) {
        return refused(format!("`{address}` is not an address at which peers could reach the host"));
    }
    Ok(())
}

/// Registers the host; returns its number and that of its first replica. Repeating it is safe: a
/// known uuid gets the same numbers.
async fn register(worker: &Worker, host: HostInfo) -> Result<(NodeId, ReplicaId), JoinRefusal> {
    // The node vouches for the host: it has checked what the host presented.
    match worker.for_caller(Caller::Node).ask(requests::join(host)).await {
        Ok(joined) => joined.map_err(|denial| JoinRefusal::Refused(denial.to_string())),
        Err(NoAnswer::Refused(Refusal::Invalid(reason))) => Err(JoinRefusal::Refused(reason.into_owned())),
        Err(_) => Err(JoinRefusal::NoLeader),
    }
}

fn welcome(worker: &Worker, identity: &Identity, node: NodeId, replica: ReplicaId) -> Welcome {
    Welcome {
        cluster: identity.cluster_id,
        cluster_name: identity.cluster_name.clone(),
        node,
        replica,
        founders: identity.founders.clone(),
        data_shards: identity.data_shards,
        replicas: identity.replicas,
        shard_tags: identity.shard_tags.clone(),
        automatic_division: identity.automatic_division,
        founding_version: identity.founding_version,
        version: identity.version,
        hosts: worker.known_hosts(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FoundingTerms, RawSettings, cluster_id};
    use tidelock_core::version::ClusterVersion;

    fn identity(cluster_id: Uuid) -> Identity {
        Identity {
            cluster_id,
            cluster_name: "blue".into(),
            node: NodeId(1),
            founders: vec!["a:1".into(), "b:1".into()],
            data_shards: 4,
            ..Identity::joining(Uuid::from_u128(1))
        }
    }

    fn request(cluster_name: Option<&str>, peer_address: &str) -> JoinRequest {
        let settings = Settings::new(RawSettings::default()).unwrap();
        let host = host_info(&settings, NodeId(0), Uuid::from_u128(2));
        let host = HostInfo { peer_address: peer_address.into(), ..host };
        JoinRequest { cluster_name: cluster_name.map(str::to_owned), data_shards: None, host }
    }

    #[test]
    fn name_and_shards_must_be_the_clusters_if_they_are_given() {
        // A random cluster id (founded by one node, or forced), and one of several founders.
        let none = std::collections::BTreeMap::new();
        let terms = FoundingTerms { data_shards: Some(4), replicas: 3, shard_tags: &none };
        let random = Uuid::from_u128(0x4321_0000_0000_4000_8000_0000_0000_0001);
        for id in [random, cluster_id(&["a:1", "b:1"], "blue", &terms)] {
            let blue = identity(id);
            assert_eq!(check(&blue, &request(Some("blue"), "c:1")), Ok(()));
            assert_eq!(check(&blue, &request(None, "c:1")), Ok(()));
            let wrong = Err(JoinRefusal::Refused("the cluster's name is not `green`: it is `blue`".into()));
            assert_eq!(check(&blue, &request(Some("green"), "c:1")), wrong);
            let expecting = |shards| JoinRequest { data_shards: Some(shards), ..request(None, "c:1") };
            assert_eq!(check(&blue, &expecting(4)), Ok(()));
            let wrong = "the cluster was founded with 4 data shards, not 8";
            assert_eq!(check(&blue, &expecting(8)), Err(JoinRefusal::Refused(wrong.into())));
        }
    }

    #[test]
    fn a_host_whose_release_does_not_support_the_clusters_version_is_refused() {
        let mut cluster = identity(Uuid::from_u128(1));
        let mut request = request(None, "c:1");
        request.host.release = Release::default();
        assert_eq!(check(&cluster, &request), Ok(()), "both are of the first version");
        cluster.version = ClusterVersion(2);
        let Err(JoinRefusal::Refused(reason)) = check(&cluster, &request) else { panic!("it is refused") };
        assert!(reason.starts_with("this release is too old: the cluster's version is 2"), "{reason}");
    }

    #[test]
    fn a_host_that_nobody_could_reach_is_not_taken_in() {
        let cluster = identity(Uuid::from_u128(1));
        for address in ["", "nowhere", "c:0", "0.0.0.0:1", "[::]:9001"] {
            let checked = check(&cluster, &request(None, address));
            assert!(matches!(checked, Err(JoinRefusal::Refused(_))), "{address}: {checked:?}");
        }
    }
}
