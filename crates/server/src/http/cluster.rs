//! `/v1/cluster`: which module serves which operation, and what this node knows of the cluster, as
//! one JSON object.
//!
//! Owns the names of its fields. Numbers of nodes, shards and replicas are those in logs and
//! metrics.

use std::collections::BTreeMap;

use serde::Serialize;
use tidelock_core::command::{ClusterView, HostRole, HostView, ReplicaView, Reply, Request, ShardView};

use super::membership::HostVerb;
use super::problem::Problem;
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::{backup, checkpoint, clients, membership, registry, restore, slots};
use crate::store::Store;

/// Operations on the cluster: hosts, shards, replicas, backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    View,
    Host(HostVerb),
    Dump,
    Explain,
    Tag,
    Clients,
    Moves,
    AddShard,
    RemoveShard,
    Rebalance,
    MoveSlots,
    Transfer,
    Checkpoint,
    Backup,
    Restore,
}

impl Cluster {
    /// Whether the operation changes the registry.
    pub fn is_of_registry(self) -> bool {
        match self {
            Cluster::Host(_)
            | Cluster::Tag
            | Cluster::AddShard
            | Cluster::RemoveShard
            | Cluster::Rebalance
            | Cluster::MoveSlots => true,
            Cluster::View
            | Cluster::Dump
            | Cluster::Explain
            | Cluster::Clients
            | Cluster::Moves
            | Cluster::Transfer
            | Cluster::Checkpoint
            | Cluster::Backup
            | Cluster::Restore => false,
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
        Cluster::Dump => registry::dump(call).await,
        Cluster::Explain => registry::explain(call, number).await,
        Cluster::Tag => registry::tag(call, number).await,
        Cluster::Clients => clients::answer(call).await,
        Cluster::Moves => slots::moves(call).await,
        Cluster::AddShard => slots::add_shard(call).await,
        Cluster::RemoveShard => slots::remove_shard(call, number).await,
        Cluster::Rebalance => slots::rebalance(call).await,
        Cluster::MoveSlots => slots::move_slots(call, number).await,
        Cluster::Transfer => membership::transfer(call, number).await,
        Cluster::Checkpoint => checkpoint::answer(call).await,
        Cluster::Backup => backup::answer(call).await,
        Cluster::Restore => restore::answer(call).await,
    }
}

async fn view<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    match call.submit(Request::Cluster).await? {
        Reply::Cluster(view) => Ok(response::json(encode(&view))),
        _ => Err(Problem::mismatched_reply()),
    }
}

fn encode(view: &ClusterView) -> Vec<u8> {
    let cluster = ClusterAnswer {
        node: view.node.0,
        hosts: view.hosts.iter().map(Host::of).collect(),
        shards: view.shards.iter().map(Shard::of).collect(),
        replicas: view.replicas.iter().map(Replica::of).collect(),
    };
    serde_json::to_vec(&cluster).expect("invariant: numbers, texts and maps of texts are JSON")
}

#[derive(Serialize)]
struct ClusterAnswer<'a> {
    node: u64,
    hosts: Vec<Host<'a>>,
    shards: Vec<Shard<'a>>,
    replicas: Vec<Replica>,
}

#[derive(Serialize)]
struct Host<'a> {
    node: u64,
    /// The host's uuid; `null` until the host has registered itself.
    id: Option<String>,
    peer_address: &'a str,
    http_address: &'a str,
    resp_address: &'a str,
    tags: &'a BTreeMap<String, String>,
    created: u64,
    updated: u64,
    connected: bool,
    /// How far its clock differs from the answering node's; `null` if not measured.
    clock: Option<Clock>,
    /// The wanted role: `voter`, `learner`, `leaving` or `removed`.
    standing: &'static str,
    draining: bool,
    /// Whether it has been silent for so long that its replicas are placed on other hosts.
    dead: bool,
}

impl<'a> Host<'a> {
    fn of(host: &'a HostView) -> Self {
        let info = &host.info;
        Host {
            node: info.node.0,
            id: (!info.uuid.is_nil()).then(|| info.uuid.to_string()),
            peer_address: &info.peer_address,
            http_address: &info.http_address,
            resp_address: &info.resp_address,
            tags: &info.tags,
            created: host.created.0,
            updated: host.updated.0,
            connected: host.connected,
            clock: host.clock.map(|clock| Clock { ahead_ms: clock.ahead_ms, error_ms: clock.error_ms }),
            standing: match host.standing {
                HostRole::Voter => "voter",
                HostRole::Learner => "learner",
                HostRole::Leaving => "leaving",
                HostRole::Removed => "removed",
            },
            draining: host.draining,
            dead: host.dead,
        }
    }
}

#[derive(Serialize)]
struct Clock {
    ahead_ms: i64,
    error_ms: i64,
}

#[derive(Serialize)]
struct Shard<'a> {
    id: u64,
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    leader: Option<u64>,
    term: u64,
    slots: u16,
}

impl<'a> Shard<'a> {
    fn of(shard: &'a ShardView) -> Self {
        Shard {
            id: shard.shard.0,
            name: &shard.name,
            kind: shard.kind,
            leader: shard.leader.map(|node| node.0),
            term: shard.term.0,
            slots: shard.slots,
        }
    }
}

#[derive(Serialize)]
struct Replica {
    id: u64,
    shard: u64,
    node: u64,
    voter: bool,
    applied: Option<u64>,
    checkpoint: Option<Checkpoint>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    diverged: bool,
}

#[derive(Serialize)]
struct Checkpoint {
    index: u64,
    /// Eight hexadecimal digits.
    checksum: String,
}

impl Replica {
    fn of(replica: &ReplicaView) -> Self {
        Replica {
            id: replica.replica.0,
            shard: replica.shard.0,
            node: replica.node.0,
            voter: replica.voter,
            applied: replica.applied.map(|index| index.0),
            checkpoint: replica.checkpoint.map(|checkpoint| Checkpoint {
                index: checkpoint.index.0,
                checksum: format!("{:08x}", checkpoint.checksum),
            }),
            diverged: replica.diverged,
        }
    }
}
