//! The options of a node's parts, from its settings and its identity.

use std::rc::Rc;

use tidelock_core::command::HostRole;
use tidelock_core::event::NodeOptions;
use tidelock_core::handshake::{Introduction, KnownPeer};
use tidelock_core::limits;
use tidelock_core::starts::ProcessStart;
use tidelock_core::storage::control_file::Identity;
use tidelock_core::types::ReplicaId;
use tidelock_core::version::SupportedVersions;
use uuid::Uuid;

use super::Notices;
use crate::audit_log::AuditLog;
use crate::config::Settings;
use crate::http::NodeAddresses;
use crate::identity::remembered_peers;
use crate::identity_store::IdentityStore;
use crate::join;
use crate::secure;
use crate::transport::{TransportLimits, TransportOptions};
use crate::worker::Worker;

/// The log is truncated after a snapshot once its full segments take this many bytes, unless
/// snapshots are larger. That is little disk space and is read again in well under a second.
const SNAPSHOT_LOG_BYTES_MIN: u64 = 64 << 20;

pub(super) fn node_options(settings: &Settings, identity: &Identity, seed: u64) -> NodeOptions {
    NodeOptions {
        host: join::host_info(settings, identity.node, identity.host_uuid),
        founders: identity.founders.clone(),
        hosts: remembered_peers(identity),
        faults: tidelock_core::deliberate::Faults::NONE,
        move_step_keys: limits::MOVE_KEYS_PER_STEP_MAX,
        prime_replica: (identity.prime_replica != ReplicaId(0)).then_some(identity.prime_replica),
        data_shards: identity.data_shards,
        replicas: identity.replicas,
        shard_tags: identity.shard_tags.clone(),
        automatic_division: identity.automatic_division,
        founding_version: identity.founding_version,
        version: identity.version,
        timing: settings.timing(),
        division: settings.division(),
        snapshot_log_bytes_min: SNAPSHOT_LOG_BYTES_MIN,
        seed,
    }
}

/// How this process introduces itself to peers.
pub(super) fn own_identity(identity: &Identity, instance: Uuid) -> Introduction {
    Introduction {
        cluster: identity.cluster_id,
        node: identity.node,
        host: identity.host_uuid,
        start: ProcessStart { number: identity.boots, instance },
        supported: SupportedVersions::OWN,
        version: identity.version,
    }
}

pub(super) fn transport_options(
    settings: &Settings,
    (worker, store): (&Worker, &Rc<IdentityStore>),
    own: Introduction,
    Notices { removal, supersede }: Notices,
) -> TransportOptions {
    let (sink, registry, recorded) = (worker.clone(), worker.clone(), worker.clone());
    let applied = worker.clone();
    let (remembered, starts) = (store.clone(), store.clone());
    let identity = store.identity();
    TransportOptions {
        identity: own,
        address: settings.advertise.peer.to_string(),
        fallbacks: settings.fallbacks(),
        peers: remembered_peers(&identity).into_iter().collect(),
        sink: Rc::new(move |event| sink.tell(event)),
        known_peer: Rc::new(move |node| {
            let entry = registry.host_entry(node);
            let is_removed = entry.as_ref().is_some_and(|entry| entry.standing == HostRole::Removed);
            let known = entry.and_then(|entry| entry.host).map(|host| host.info.uuid);
            let host = known.or_else(|| remembered.known_host(node));
            KnownPeer { is_removed, host, ..KnownPeer::default() }
        }),
        version: Rc::new(move || recorded.recorded_version()),
        removed: Rc::new(move |by| {
            tracing::warn!(%by, "a peer reports that this node was removed from the cluster");
            removal.send_replace(true);
        }),
        starts: identity.starts.clone(),
        remember_start: Rc::new(move |node, start| starts.remember_start(node, start)),
        is_registered: Rc::new(move || {
            let host = applied.host_entry(own.node).and_then(|entry| entry.host);
            host.is_some_and(|host| host.info.uuid == own.host)
        }),
        superseded: Rc::new(move |by, refusal| {
            supersede.send_replace(Some((by, refusal)));
        }),
        joins: join::handler(worker, store),
        enrolments: secure::enrolment_handler(worker, store),
        tls: None,
        audit_log: AuditLog::default(),
        limits: TransportLimits::default(),
    }
}

pub(super) fn addresses(settings: &Settings) -> NodeAddresses {
    NodeAddresses {
        http: settings.listen.http.to_string(),
        resp: settings.listen.resp.to_string(),
        peer: settings.listen.peer.to_string(),
    }
}

/// Whether clients of other machines are refused until tokens are required.
pub(super) fn protected_mode(settings: &Settings) -> bool {
    !settings.insecure && !settings.exposed().is_empty()
}

/// Number of listeners that other machines reach without TLS.
pub(super) fn insecure_listeners(settings: &Settings) -> usize {
    if settings.tls_dir.is_some() { 0 } else { settings.exposed().len() }
}

pub(super) fn warnings(settings: &Settings) -> Vec<String> {
    let exposed = settings.exposed().into_iter().filter(|_| settings.insecure);
    let consequence = match settings.tls_dir {
        Some(_) => "clients of other machines are served even if tokens are not required",
        None => "without TLS, and clients of other machines are served even if tokens are not required",
    };
    let unsynced = "writes are acknowledged before they are on disk, because of --sync false: a power failure may lose \
                    them";
    exposed
        .map(|(name, address)| {
            format!("{name} listens on {address}, beyond loopback, with --insecure: {consequence}")
        })
        .chain((!settings.sync).then(|| unsynced.to_owned()))
        .inspect(|warning| tracing::warn!("{warning}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawSettings;

    #[test]
    fn unsynced_writes_are_warned_of() {
        let warned = |sync| {
            let raw = RawSettings { sync: Some(sync), ..RawSettings::default() };
            warnings(&Settings::new(raw).expect("settings"))
        };
        assert!(warned(true).is_empty());
        assert!(matches!(&warned(false)[..], [warning] if warning.contains("--sync false")));
    }
}
