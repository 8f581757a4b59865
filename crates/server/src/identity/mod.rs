//! The node's identity: read from its data directory, or created at its first start.
//!
//! Owns the first read of the control file, and the rule that a start is refused if settings
//! contradict the directory. A running node writes the file through [`crate::identity_store`].

mod contradiction;
mod srv_founders;

use std::collections::BTreeMap;

use tidelock_core::storage::control_file::{self, ControlFileError, Identity};
use tidelock_core::storage::start_counter::{self, StartCounterError};
use tidelock_core::types::NodeId;
use tidelock_core::version::ClusterVersion;
use uuid::Uuid;

use crate::config::{ConfigError, Settings, cluster_id};
use crate::disk::FsDisk;
use crate::join::become_member;
use crate::tls::TlsAcceptor;
use crate::transport::join::AskError;
pub use contradiction::Contradiction;

/// Why the node's identity is missing or unusable.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The control file cannot be read or written.
    #[error("data directory: {0}")]
    ControlFile(#[from] ControlFileError),
    /// The cluster has removed this node.
    #[error(
        "data directory: this node was removed from the cluster. To use the host again, empty the directory and start \
         with --join: it becomes a new node"
    )]
    Removed,
    /// Peers have refused the directory as an old copy, a clone, or an empty one in the place of
    /// another.
    #[error(
        "data directory: other nodes have refused it. It is an old copy or a clone of the directory of node {0}, or a new \
         one in its place. What node {0} has promised is not in it, so it must not take part. If the current directory of \
         node {0} exists, start that one. If it is lost: `tidelock cluster remove {0}`, empty this directory, and start \
         with --join"
    )]
    Superseded(NodeId),
    /// The start counter cannot be read or written.
    #[error("data directory: {0}")]
    Starts(#[from] StartCounterError),
    /// The node has asked a cluster for admission, and does not know the answer.
    #[error(
        "data directory: this node was joining a cluster and had no answer yet; start it with --join, or empty the \
         directory"
    )]
    Joining,
    /// `--force-new-cluster` names another cluster.
    #[error(
        "--force-new-cluster names cluster {given}, and the data directory is of cluster {known}. It makes this node a \
         cluster of its own, without the others, and is to be given once; leave it out to start as before"
    )]
    ForceMismatch {
        /// The id on the command line.
        given: Uuid,
        /// The id of the cluster that the directory belongs to.
        known: Uuid,
    },
    /// The settings describe another cluster, or another node of it.
    #[error("data directory: {0}")]
    Contradiction(#[from] Contradiction),
    /// A cluster cannot be founded with these settings.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// `--force-new-cluster` on a directory without a node.
    #[error("--force-new-cluster: the data directory holds no node; it is for one that lost the others")]
    ForceNothing,
    /// The cluster refuses to admit this host.
    #[error("cannot join: {0}")]
    NotTaken(#[from] AskError),
}

/// Reads the node's identity. In an empty directory it creates one from the settings, as a founder
/// or as a new member of the cluster to join. Counts the start. Waits only for that cluster, and
/// may be dropped meanwhile.
///
/// With TLS the certificate names the host and its cluster. A new directory takes the host's uuid
/// from it; another one must have the uuid and the cluster's name that it names.
///
/// The identity of a node that will leave its cluster is still the former one, see
/// [`leave_others`].
///
/// # Errors
/// When the control file cannot be used, when the node was removed, and when a cluster refuses to
/// admit it.
pub async fn identify(
    disk: &FsDisk,
    settings: &Settings,
    tls: Option<&TlsAcceptor>,
) -> Result<Identity, IdentityError> {
    let known = control_file::load(disk)?;
    if let Some((tls, known)) = tls.zip(known.as_ref()) {
        contradiction::check_host(tls.host(), known.host_uuid)?;
    }
    let is_known = known.as_ref().is_some_and(|known| !known.is_joining());
    let identity = match (known, settings.force_new_cluster()) {
        (Some(known), Some(given)) if !known.is_joining() => {
            if given != known.cluster_id {
                return Err(IdentityError::ForceMismatch { given, known: known.cluster_id });
            }
            contradiction::check(settings, &known)?;
            known
        }
        (_, Some(_)) => return Err(IdentityError::ForceNothing),
        (known, None) => identify_member(known, disk, (settings, tls)).await?,
    };
    if is_known && settings.force_new_cluster().is_none() {
        contradiction::check_address(settings, &identity)?;
    }
    if let Some(tls) = tls {
        contradiction::check_name(tls.host(), &identity.cluster_name)?;
    }
    if !is_known {
        // Written before all other files: a directory with other files but without it is refused.
        control_file::store(disk, &identity)?;
    }
    let identity = Identity { boots: start_counter::count(disk, identity.boots)?, ..identity };
    match control_file::store(disk, &identity) {
        // A full disk must not prevent a node from serving reads. The count of its starts is
        // durable without the control file.
        Err(ControlFileError::Disk(error)) if is_known && error.kind.is_retryable() => {
            tracing::warn!(%error, "the control file could not be updated");
        }
        result => result?,
    }
    Ok(identity)
}

/// Whether [`identify`] would found a cluster in this directory.
///
/// # Errors
/// When the control file cannot be used.
pub fn is_founding(disk: &FsDisk, settings: &Settings) -> Result<bool, ControlFileError> {
    Ok(control_file::load(disk)?.is_none() && settings.join().is_empty())
}

/// Whether [`identify`] would ask members of a cluster to admit this node.
///
/// # Errors
/// When the control file cannot be used.
pub fn is_joining(disk: &FsDisk, settings: &Settings) -> Result<bool, ControlFileError> {
    let is_new = control_file::load(disk)?.is_none_or(|known| known.is_joining());
    Ok(is_new && !settings.join().is_empty())
}

/// Gives the node the id of a new cluster, on its disk too, so that all other nodes treat it as a
/// stranger. Call it after the log was read: a node that cannot start must not lose its cluster.
/// Call it before the log is changed: a node with such a log must not meet its former peers as a
/// member.
///
/// # Errors
/// When the control file cannot be written; then nothing has changed.
pub fn leave_others(disk: &FsDisk, known: Identity) -> Result<Identity, ControlFileError> {
    let identity = Identity { cluster_id: Uuid::new_v4(), removed: false, superseded: false, ..known };
    control_file::store(disk, &identity)?;
    tracing::warn!(
        left = %known.cluster_id, cluster = %identity.cluster_id,
        "FORCED NEW CLUSTER: this node goes on alone, with what its own disk holds; what only others held is lost. Do not \
         start the other nodes of the old cluster again: empty their directories and let them --join"
    );
    Ok(identity)
}

async fn identify_member(
    known: Option<Identity>,
    disk: &FsDisk,
    (settings, tls): (&Settings, Option<&TlsAcceptor>),
) -> Result<Identity, IdentityError> {
    let new_host = || tls.map_or_else(Uuid::new_v4, |tls| tls.host().host);
    Ok(match known {
        Some(known) if known.removed => return Err(IdentityError::Removed),
        Some(known) if known.superseded => return Err(IdentityError::Superseded(known.node)),
        Some(known) if known.is_joining() && settings.join().is_empty() => {
            return Err(IdentityError::Joining);
        }
        Some(known) if known.is_joining() => join((settings, tls), known.host_uuid).await?,
        Some(known) => {
            contradiction::check(settings, &known)?;
            if !settings.join().is_empty() {
                tracing::info!(node = known.node.0, cluster = %known.cluster_id, "this node has joined: it looks for its peers at --join, if it does not find them otherwise");
            }
            known
        }
        None if settings.join().is_empty() => found(settings, new_host()).await?,
        None => {
            let host_uuid = new_host();
            control_file::store(disk, &Identity::joining(host_uuid))?;
            join((settings, tls), host_uuid).await?
        }
    })
}

/// Joins a cluster. Its members check the settings that the request contains, and this node the
/// others. If one contradicts the cluster, the host keeps its number for the next attempt.
async fn join(
    (settings, tls): (&Settings, Option<&TlsAcceptor>),
    host_uuid: Uuid,
) -> Result<Identity, IdentityError> {
    let identity = become_member(settings, host_uuid, tls).await?;
    contradiction::check(settings, &identity)?;
    Ok(identity)
}

async fn found(settings: &Settings, host_uuid: Uuid) -> Result<Identity, ConfigError> {
    let (cluster_id, node, founders) = match settings.srv_founders() {
        Some(service) => {
            let (node, founders) = srv_founders::wait_for(service, settings.advertise.peer.as_str()).await;
            let id = cluster_id(&founders, settings.founding_name(), &settings.founding_terms());
            (Some(id), node, founders)
        }
        None => (settings.cluster_id(), settings.founder_number()?, settings.founders()),
    };
    Ok(Identity {
        cluster_id: cluster_id.unwrap_or_else(Uuid::new_v4),
        node,
        cluster_name: settings.founding_name().to_owned(),
        founders,
        data_shards: settings.shards,
        replicas: Some(settings.replicas),
        shard_tags: settings.shard_tags.clone(),
        automatic_division: settings.given_shards().is_none(),
        founding_version: ClusterVersion::NEWEST,
        version: ClusterVersion::NEWEST,
        ..Identity::joining(host_uuid)
    })
}

/// The last known addresses of a node's peers and of itself, which it uses until the registry is
/// read. A founder knows the other founders from the start.
pub fn remembered_peers(identity: &Identity) -> BTreeMap<NodeId, String> {
    let mut peers = BTreeMap::new();
    if is_founder(identity) {
        peers.extend((1..).map(NodeId).zip(identity.founders.iter().cloned()));
    }
    let hosts = identity.hosts.iter();
    peers.extend(hosts.map(|(node, host)| (*node, host.peer_address.clone())));
    peers
}

/// Whether the node is a founder: founders have the lowest numbers.
pub fn is_founder(identity: &Identity) -> bool {
    identity.node.0 <= identity.founders.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawSettings;
    use crate::identity_store::IdentityStore;
    use crate::transport::enrol::EnrolRefusal;
    use crate::transport::join::{JoinRefusal, JoinRequest, Welcome};

    use crate::transport::{Transport, TransportLimits, TransportOptions};
    use std::net::SocketAddr;
    use std::rc::Rc;
    use tempfile::TempDir;
    use tidelock_core::handshake::{Introduction, KnownPeer};
    use tidelock_core::starts::{KnownStart, ProcessStart};
    use tidelock_core::storage::control_file::KnownHost;

    fn settings(peers: &[&str]) -> Settings {
        let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
        Settings::new(RawSettings {
            peer: Some("b:1".into()),
            peers: (!peers.is_empty()).then_some(peers),
            ..RawSettings::default()
        })
        .unwrap()
    }

    fn joining(member: SocketAddr) -> Settings {
        let join = Some(vec![member.to_string()]);
        Settings::new(RawSettings { peer: Some("d:1".into()), join, ..RawSettings::default() }).unwrap()
    }

    /// A member whose join handler is `decide`; it answers until the transport is dropped.
    async fn member(decide: impl Fn(JoinRequest) -> Decision + 'static) -> (Transport, SocketAddr) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let start = ProcessStart { number: 1, instance: Uuid::from_u128(2) };
        let identity = Introduction {
            cluster: CLUSTER,
            node: NodeId(1),
            host: Uuid::from_u128(1),
            start,
            supported: Default::default(),
            version: Default::default(),
        };
        let options = TransportOptions {
            version: Rc::new(|| ClusterVersion::FIRST),
            identity,
            address: address.to_string(),
            fallbacks: vec![],
            peers: vec![],
            sink: Rc::new(|_| {}),
            known_peer: Rc::new(|_| KnownPeer::default()),
            removed: Rc::new(|_| {}),
            starts: BTreeMap::new(),
            remember_start: Rc::new(|_, _| {}),
            is_registered: Rc::new(|| true),
            superseded: Rc::new(|_, _| {}),
            joins: Rc::new(move |request| {
                let decision = decide(request);
                Box::pin(async { decision })
            }),
            enrolments: Rc::new(|_| Box::pin(async { Err(EnrolRefusal::NoLeader) })),
            audit_log: Default::default(),
            tls: None,
            limits: TransportLimits::default(),
        };
        (Transport::start(listener, options), address)
    }

    type Decision = Result<Welcome, JoinRefusal>;

    const CLUSTER: Uuid = Uuid::from_u128(99);

    fn welcome() -> Welcome {
        Welcome {
            cluster: CLUSTER,
            cluster_name: "blue".into(),
            node: NodeId(4),
            replica: tidelock_core::types::ReplicaId(19),
            founders: vec!["a:1".into()],
            replicas: Some(3),
            shard_tags: BTreeMap::new(),
            automatic_division: false,
            data_shards: 9,
            founding_version: ClusterVersion(2),
            version: ClusterVersion(2),
            hosts: [host(1, 1, "a:1"), host(3, 3, "c:1")].into(),
        }
    }

    #[test]
    fn a_newcomer_becomes_what_it_is_told_and_asks_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (_directory, disk) = directory();
            let stored = disk.clone();
            let (transport, address) = member(move |request| {
                // The uuid of the request is already on the host's disk.
                let newcomer = control_file::load(&stored).unwrap().unwrap();
                assert!(newcomer.is_joining() && newcomer.host_uuid == request.host.uuid);
                assert_eq!((request.host.peer_address.as_str(), request.cluster_name), ("d:1", None));
                Ok(welcome())
            })
            .await;
            let first = identify(&disk, &joining(address), None).await.unwrap();
            assert_eq!((first.cluster_id, first.node, first.data_shards), (CLUSTER, NodeId(4), 9));
            assert_eq!(first.cluster_name, "blue");
            assert_eq!(
                (&first.founders, &first.hosts, first.boots),
                (&welcome().founders, &welcome().hosts, 1)
            );
            transport.stop().await;
            let second = identify(&disk, &joining(address), None).await.unwrap();
            assert_eq!(second, Identity { boots: 2, ..first });
        });
    }

    #[test]
    fn a_newcomer_that_was_not_answered_asks_again_as_the_same_host() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (_directory, disk) = directory();
            let (sender, mut asked) = tokio::sync::mpsc::unbounded_channel();
            let (_transport, address) = member(move |request| {
                sender.send(request.host.uuid).unwrap();
                Err(JoinRefusal::NoLeader)
            })
            .await;
            let mut uuids = vec![];
            let asking = joining(address);
            for _ in 0..2 {
                tokio::select! {
                    identity = identify(&disk, &asking, None) => panic!("{identity:?}"),
                    uuid = asked.recv() => uuids.push(uuid.unwrap()),
                }
            }
            assert_eq!(uuids[0], uuids[1]);
            let refused = identify(&disk, &settings(&[]), None).await.unwrap_err();
            assert!(matches!(refused, IdentityError::Joining), "{refused}");
            let (_transport, address) = member(|_| Err(JoinRefusal::Refused("never".into()))).await;
            let refused = identify(&disk, &joining(address), None).await.unwrap_err();
            assert!(refused.to_string().ends_with("refuses: never"), "{refused}");
            let (_transport, address) = member(|_| Ok(welcome())).await;
            assert_eq!(identify(&disk, &joining(address), None).await.unwrap().host_uuid, uuids[0]);
        });
    }

    fn directory() -> (TempDir, FsDisk) {
        let directory = tempfile::tempdir().unwrap();
        let disk = FsDisk::open(directory.path()).unwrap();
        (directory, disk)
    }

    fn host(node: u64, uuid: u128, address: &str) -> (NodeId, KnownHost) {
        (NodeId(node), KnownHost { uuid: Uuid::from_u128(uuid), peer_address: address.into() })
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_founder_keeps_what_it_was_founded_as() {
        let (_directory, disk) = directory();
        let first = identify(&disk, &settings(&["a:1", "b:1"]), None).await.unwrap();
        assert_eq!((first.node, first.boots, first.has_log), (NodeId(2), 1, false));
        assert_eq!(Some(first.cluster_id), settings(&["a:1", "b:1"]).cluster_id());
        let second = identify(&disk, &settings(&["b:1", "a:1"]), None).await.unwrap();
        assert_eq!(second, Identity { boots: 2, ..first.clone() });
        let third = identify(&disk, &settings(&[]), None).await.unwrap();
        assert_eq!(third, Identity { boots: 3, ..first });
        let refused = identify(&disk, &settings(&["b:1", "c:1"]), None).await.unwrap_err();
        assert!(matches!(refused, IdentityError::Contradiction(Contradiction::Founders { .. })), "{refused}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_node_that_was_started_alone_is_no_founder_of_several() {
        let (_directory, disk) = directory();
        let alone = identify(&disk, &settings(&[]), None).await.unwrap();
        let refused = identify(&disk, &settings(&["a:1", "b:1"]), None).await.unwrap_err();
        let held = matches!(&refused, IdentityError::Contradiction(Contradiction::Founders { held, .. }) if held == "b:1");
        assert!(held, "{refused}");
        assert_eq!(identify(&disk, &settings(&["b:1"]), None).await.unwrap(), Identity { boots: 2, ..alone });
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_node_that_is_not_listed_founds_nothing() {
        let (_directory, disk) = directory();
        let refused = identify(&disk, &settings(&["a:1", "c:1"]), None).await.unwrap_err();
        assert!(matches!(refused, IdentityError::Settings(ConfigError::NotAFounder { .. })), "{refused}");
        assert_eq!(control_file::load(&disk), Ok(None));
        assert_eq!(is_founding(&disk, &settings(&[])), Ok(true));
        identify(&disk, &settings(&[]), None).await.unwrap();
        assert_eq!(is_founding(&disk, &settings(&[])), Ok(false));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_log_that_was_begun_is_remembered() {
        let (_directory, disk) = directory();
        let identity = identify(&disk, &settings(&[]), None).await.unwrap();
        IdentityStore::begin(disk.clone(), identity).unwrap();
        assert!(identify(&disk, &settings(&[]), None).await.unwrap().has_log);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_node_leaves_its_cluster_in_two_steps_and_once() {
        let (_directory, disk) = directory();
        let first = identify(&disk, &settings(&["a:1", "b:1"]), None).await.unwrap();
        let forced = |id: Uuid| {
            let force_new_cluster = Some(id.to_string());
            Settings::new(RawSettings { force_new_cluster, ..RawSettings::default() }).unwrap()
        };
        let known = identify(&disk, &forced(first.cluster_id), None).await.unwrap();
        assert_eq!(known.cluster_id, first.cluster_id, "it may turn out that it cannot start");
        let left = leave_others(&disk, known).unwrap();
        assert_ne!(left.cluster_id, first.cluster_id);
        let again = identify(&disk, &forced(first.cluster_id), None).await.unwrap_err();
        assert!(matches!(again, IdentityError::ForceMismatch { known, .. } if known == left.cluster_id));
        let (_directory, empty) = directory();
        let nothing = identify(&empty, &forced(first.cluster_id), None).await.unwrap_err();
        assert!(matches!(nothing, IdentityError::ForceNothing));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn hosts_are_remembered_with_where_they_are() {
        let (_directory, disk) = directory();
        let identity = identify(&disk, &settings(&["a:1", "b:1"]), None).await.unwrap();
        let store = IdentityStore::begin(disk.clone(), identity).unwrap();
        assert_eq!(store.known_host(NodeId(1)), None);
        store.remember([host(1, 7, "a:1"), host(3, 8, "c:1")].into());
        store.save().await.unwrap();
        store.remember([host(3, 8, "moved:1")].into());
        store.save().await.unwrap();
        assert_eq!(store.known_host(NodeId(1)), Some(Uuid::from_u128(7)));
        let reread = identify(&disk, &settings(&[]), None).await.unwrap();
        let peers: Vec<_> = remembered_peers(&reread).into_values().collect();
        assert_eq!(peers, ["a:1", "b:1", "moved:1"]);
        // A joined node uses only the stored hosts: founders may have been removed long ago.
        let joined = Identity { node: NodeId(3), ..reread };
        let peers: Vec<_> = remembered_peers(&joined).into_values().collect();
        assert_eq!(peers, ["a:1", "moved:1"]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn starts_are_counted_beside_a_control_file_that_was_put_back() {
        let (directory, disk) = directory();
        let control = directory.path().join("control");
        identify(&disk, &settings(&[]), None).await.unwrap();
        let early = std::fs::read(&control).unwrap();
        assert_eq!(identify(&disk, &settings(&[]), None).await.unwrap().boots, 2);
        // As after a write that failed on a full disk.
        std::fs::write(&control, early).unwrap();
        assert_eq!(identify(&disk, &settings(&[]), None).await.unwrap().boots, 3);
        std::fs::remove_file(directory.path().join("starts")).unwrap();
        assert_eq!(identify(&disk, &settings(&[]), None).await.unwrap().boots, 4);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_directory_that_was_refused_as_an_old_copy_starts_no_more() {
        let (_directory, disk) = directory();
        let identity = identify(&disk, &settings(&["a:1", "b:1"]), None).await.unwrap();
        let store = IdentityStore::begin(disk.clone(), identity).unwrap();
        let start = ProcessStart { number: 7, instance: Uuid::from_u128(70) };
        let start = KnownStart { host: Uuid::from_u128(1), start };
        store.remember_start(NodeId(1), start);
        assert_eq!(
            store.known_host(NodeId(1)),
            Some(Uuid::from_u128(1)),
            "another disk is distinguished from it"
        );
        store.save().await.unwrap();
        assert_eq!(identify(&disk, &settings(&[]), None).await.unwrap().starts, [(NodeId(1), start)].into());
        store.mark_superseded().await.unwrap();
        let refused = identify(&disk, &settings(&[]), None).await.unwrap_err();
        assert!(matches!(refused, IdentityError::Superseded(NodeId(2))), "{refused}");
        assert!(refused.to_string().contains("cluster remove 2"), "{refused}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_removed_node_starts_no_more_and_says_what_to_do() {
        let (_directory, disk) = directory();
        let identity = identify(&disk, &settings(&[]), None).await.unwrap();
        let store = IdentityStore::begin(disk.clone(), identity).unwrap();
        store.mark_removed().await.unwrap();
        assert!(store.identity().removed);
        let refused = identify(&disk, &settings(&[]), None).await.unwrap_err();
        assert!(matches!(refused, IdentityError::Removed) && refused.to_string().contains("--join"));
    }
}
