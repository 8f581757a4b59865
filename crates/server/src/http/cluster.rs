//! `/v1/cluster`: which module serves which operation, and what this node knows of the cluster, as
//! one JSON object.
//!
//! Owns the translation of the core's view into the types of `tidelock_api`.

use tidelock_api::cluster as api;
use tidelock_core::command::{ClusterView, HostRole, HostView, ReplicaView, ShardView};

use super::membership::HostVerb;
use super::problem::Problem;
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::{
    audit, backup, certificate, certificate_authorities, checkpoint, clients, load, membership, registry,
    restore, slots, snapshots, version,
};
use crate::requests;
use crate::store::Store;

/// Operations on the cluster: hosts, shards, replicas, backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    View,
    Host(HostVerb),
    Progress(HostVerb),
    Dump,
    Explain,
    Tag,
    Default,
    SetDefault,
    Clients,
    Load,
    Moves,
    AddShard,
    RemoveShard,
    Rebalance,
    MoveSlots,
    Transfer,
    TransferProgress,
    Version,
    HoldVersion,
    ResumeVersion,
    Checkpoint,
    ReloadCertificate,
    CreateJoinToken,
    Authorities,
    AddAuthority,
    UseAuthority,
    RemoveAuthority,
    Backup,
    Snapshots,
    BeginSnapshots,
    PartialBackup,
    Restore,
    Audit,
}

impl Cluster {
    /// Whether the operation changes the registry.
    pub fn is_of_registry(self) -> bool {
        match self {
            Cluster::Host(_)
            | Cluster::Tag
            | Cluster::SetDefault
            | Cluster::AddShard
            | Cluster::RemoveShard
            | Cluster::Rebalance
            | Cluster::HoldVersion
            | Cluster::ResumeVersion
            | Cluster::CreateJoinToken
            | Cluster::AddAuthority
            | Cluster::UseAuthority
            | Cluster::RemoveAuthority
            | Cluster::MoveSlots => true,
            Cluster::View
            | Cluster::Progress(_)
            | Cluster::Dump
            | Cluster::Explain
            | Cluster::Default
            | Cluster::Version
            | Cluster::Clients
            | Cluster::Load
            | Cluster::Moves
            | Cluster::Transfer
            | Cluster::TransferProgress
            | Cluster::Checkpoint
            | Cluster::ReloadCertificate
            | Cluster::Authorities
            | Cluster::Backup
            | Cluster::Snapshots
            | Cluster::BeginSnapshots
            | Cluster::PartialBackup
            | Cluster::Restore
            | Cluster::Audit => false,
        }
    }
}

pub(super) async fn answer<S: Store>(
    call: Call<'_, S>,
    operation: Cluster,
    [number, _]: Arguments<'_>,
) -> Result<Response, Problem> {
    match operation {
        Cluster::View => view(call).await,
        Cluster::Host(verb) => membership::change_host(call, number, verb).await,
        Cluster::Progress(verb) => membership::progress(call, number, verb).await,
        Cluster::Dump => registry::dump(call).await,
        Cluster::Explain => registry::explain(call, number).await,
        Cluster::Tag => registry::tag(call, number).await,
        Cluster::Default => registry::default_placement(call).await,
        Cluster::SetDefault => registry::set_default(call).await,
        Cluster::Clients => clients::answer(call).await,
        Cluster::Audit => audit::answer(call).await,
        Cluster::Load => load::answer(call).await,
        Cluster::Moves => slots::moves(call).await,
        Cluster::AddShard => slots::add_shard(call).await,
        Cluster::RemoveShard => slots::remove_shard(call, number).await,
        Cluster::Rebalance => slots::rebalance(call).await,
        Cluster::MoveSlots => slots::move_slots(call, number).await,
        Cluster::Transfer => membership::transfer(call, number).await,
        Cluster::TransferProgress => membership::transfer_progress(call, number).await,
        Cluster::Version => version::show(call).await,
        Cluster::HoldVersion => version::hold(call, true).await,
        Cluster::ResumeVersion => version::hold(call, false).await,
        Cluster::Checkpoint => checkpoint::answer(call).await,
        Cluster::ReloadCertificate => certificate::reload(call).await,
        Cluster::CreateJoinToken => certificate_authorities::create_join_token(call).await,
        Cluster::Authorities => certificate_authorities::show(call).await,
        Cluster::AddAuthority => certificate_authorities::add(call).await,
        Cluster::UseAuthority => certificate_authorities::sign_by(call, number).await,
        Cluster::RemoveAuthority => certificate_authorities::remove(call, number).await,
        Cluster::Backup => backup::answer(call).await,
        Cluster::Snapshots => snapshots::statuses(call).await,
        Cluster::BeginSnapshots => snapshots::begin(call).await,
        Cluster::PartialBackup => snapshots::backup(call).await,
        Cluster::Restore => restore::answer(call).await,
    }
}

async fn view<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    Ok(response::json(encode(&*call.ask(requests::cluster()).await?)))
}

fn encode(view: &ClusterView) -> Vec<u8> {
    let cluster = api::Cluster {
        node: view.node.0,
        hosts: view.hosts.iter().map(host).collect(),
        shards: view.shards.iter().map(shard).collect(),
        replicas: view.replicas.iter().map(replica).collect(),
    };
    serde_json::to_vec(&cluster).expect("invariant: numbers, texts and maps of texts are JSON")
}

fn host(host: &HostView) -> api::Host {
    let info = &host.info;
    api::Host {
        node: info.node.0,
        id: (!info.uuid.is_nil()).then(|| info.uuid.to_string()),
        peer_address: info.peer_address.clone(),
        http_address: info.http_address.clone(),
        resp_address: info.resp_address.clone(),
        tags: info.tags.clone(),
        created: host.created.0,
        updated: host.updated.0,
        connected: host.connected,
        disk_stalled: host.disk_stalled,
        clock: host.clock.map(|clock| api::Clock { ahead_ms: clock.ahead_ms, error_ms: clock.error_ms }),
        standing: match host.standing {
            HostRole::Voter => api::HostRole::Voter,
            HostRole::Learner => api::HostRole::Learner,
            HostRole::Leaving => api::HostRole::Leaving,
            HostRole::Removed => api::HostRole::Removed,
        },
        draining: host.draining,
        dead: host.dead,
    }
}

fn shard(shard: &ShardView) -> api::Shard {
    api::Shard {
        id: shard.shard.0,
        name: shard.name.clone(),
        kind: shard.kind.into(),
        leader: shard.leader.map(|node| node.0),
        term: shard.term.0,
        slots: shard.slots,
    }
}

fn replica(replica: &ReplicaView) -> api::Replica {
    api::Replica {
        id: replica.replica.0,
        shard: replica.shard.0,
        node: replica.node.0,
        voter: replica.voter,
        applied: replica.applied.map(|index| index.0),
        checkpoint: replica.checkpoint.map(|checkpoint| api::Checkpoint {
            index: checkpoint.index.0,
            checksum: format!("{:08x}", checkpoint.checksum),
        }),
        diverged: replica.diverged,
    }
}
