//! `/v1/cluster/dump`, and the placement of shards: `/v1/cluster/default`,
//! `/v1/cluster/shards/{shard}/explain` and `…/tags`.
//!
//! Owns the members of the dump, which are fixed, and so is their order: one JSON object a line, a
//! header, then hosts, shards and replicas, each ordered by number. The data is the registry as the
//! answering node knows it.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde::Serialize;
use tidelock_api::shards::{
    ChangedShard, DefaultPlacement, ExplainedHost, Explanation, PlacedRole, TagChanges,
};
use tidelock_core::command::{Explained, HostRole, RegistryView, RegistryWrite, ShardTags};
use tidelock_core::membership::Role;
use tidelock_core::placement_policy::{self, PlacementPolicy};
use tidelock_core::topology;
use tidelock_core::topology::HostEntry;
use tidelock_core::types::{NodeId, ReplicaId, ShardId};

use super::body::BodyLimit;
use super::membership::{denied, number};
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use crate::requests;
use crate::store::Store;

const MEDIA_TYPE: &str = "application/jsonl";

/// The types of shards.
const TYPE_REGISTRY: &str = "tidelock/registry";
const TYPE_KV: &str = "tidelock/kv";

/// Longest body in bytes: more than the tags of a shard may take.
const TAGS_BODY_BYTES_MAX: usize = 16 << 10;

pub(super) async fn dump<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let view = call.ask(requests::registry()).await?;
    Ok(response::typed(StatusCode::OK, MEDIA_TYPE, lines(&view)))
}

pub(super) async fn explain<S: Store>(call: Call<'_, S>, raw_shard: &str) -> Result<Response, Problem> {
    let shard = known_shard(&call, raw_shard).await?;
    let explanation = call.ask(requests::explain(shard)).await?;
    let hosts = explanation.hosts.iter().map(explained).collect();
    Ok(response::json(encode(&Explanation { shard: shard.0, hosts })))
}

/// Changes tags. The body is `{"name": "value", "other": null}`; `null` removes a tag.
pub(super) async fn tag<S: Store>(mut call: Call<'_, S>, raw_shard: &str) -> Result<Response, Problem> {
    let shard = ShardId(number("a shard", raw_shard)?);
    let TagChanges(tags) = read_changes(&mut call).await?;
    let set = tags.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    PlacementPolicy::parse(&set.collect()).map_err(|error| Problem::invalid(error.to_string()))?;
    let write = RegistryWrite::TagShard(ShardTags { shard, tags: tags.into_iter().collect() });
    call.ask(requests::change_registry(write)).await?.map_err(denied)?;
    Ok(response::accepted(encode(&ChangedShard { shard: shard.0 })))
}

/// The policies that shards inherit.
pub(super) async fn default_placement<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let tags = call.ask(requests::registry()).await?.default_tags;
    Ok(response::json(encode(&DefaultPlacement { tags })))
}

/// Changes the policies that shards inherit. The body is as for a shard's tags.
pub(super) async fn set_default<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let TagChanges(changes) = read_changes(&mut call).await?;
    // The registry checks the result. This node knows about what that will be, and can say more.
    let known = call.ask(requests::registry()).await?.default_tags;
    let mut tags = known.unwrap_or_default();
    for (name, value) in &changes {
        match value {
            Some(value) => tags.insert(name.clone(), value.clone()),
            None => tags.remove(name),
        };
    }
    placement_policy::check_default(&tags).map_err(|error| Problem::invalid(error.to_string()))?;
    let write = RegistryWrite::SetDefault { tags: changes.into_iter().collect() };
    call.ask(requests::change_registry(write)).await?.map_err(denied)?;
    Ok(response::accepted(encode(&DefaultPlacement { tags: Some(tags) })))
}

async fn read_changes<S: Store>(call: &mut Call<'_, S>) -> Result<TagChanges, Problem> {
    let body = call.read_body(BodyLimit::Form(TAGS_BODY_BYTES_MAX)).await?;
    serde_json::from_slice(&body)
        .map_err(|_| Problem::invalid("the body must be a JSON object of texts; null takes a tag away"))
}

async fn known_shard<S: Store>(call: &Call<'_, S>, raw_shard: &str) -> Result<ShardId, Problem> {
    let shard = ShardId(number("a shard", raw_shard)?);
    let view = call.ask(requests::registry()).await?;
    if view.shards.iter().any(|(known, _)| *known == shard) {
        return Ok(shard);
    }
    Err(Problem::new(ProblemKind::UnknownShard, "there is no such shard"))
}

fn lines(view: &RegistryView) -> Vec<u8> {
    let uuid = |node: NodeId| {
        let host_entry = view.host_entries.iter().find(|(number, _)| *number == node);
        host_entry.and_then(|(_, host_entry)| host_entry.host.as_ref()).map(|host| host.info.uuid.to_string())
    };
    let is_member = |(_, host_entry): &&(NodeId, HostEntry)| host_entry.standing != HostRole::Removed;
    let hosts: Vec<&(NodeId, HostEntry)> = view.host_entries.iter().filter(is_member).collect();
    let header = Header {
        index: view.index.0,
        hosts: hosts.len(),
        shards: view.shards.len(),
        replicas: view.replicas.len(),
        last_replica: view.last_replica.0,
        last_shard: view.last_shard.0,
        last_host: view.host_entries.last().and_then(|(node, _)| uuid(*node)),
    };
    let mut out = encode(&header);
    let mut line = |object: Vec<u8>| {
        out.push(b'\n');
        out.extend(object);
    };
    hosts.into_iter().for_each(|(_, host_entry)| line(encode(&Host::of(host_entry))));
    view.shards.iter().for_each(|(shard, row)| line(encode(&Shard::of(*shard, row))));
    for (replica, row) in &view.replicas {
        line(encode(&Replica::of(*replica, row, uuid(row.node))));
    }
    out.push(b'\n');
    out
}

fn encode(object: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(object).expect("invariant: numbers, texts and maps of texts are JSON")
}

#[derive(Serialize)]
struct Header {
    index: u64,
    hosts: usize,
    shards: usize,
    replicas: usize,
    #[serde(rename = "lastReplicaID")]
    last_replica: u64,
    #[serde(rename = "lastShardID")]
    last_shard: u64,
    #[serde(rename = "lastHostID")]
    last_host: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Host<'a> {
    id: Option<String>,
    created: u64,
    updated: u64,
    status: &'static str,
    tags: Option<&'a BTreeMap<String, String>>,
    api_address: &'a str,
    raft_address: &'a str,
    shard_types: [&'static str; 1],
}

impl<'a> Host<'a> {
    fn of(host_entry: &'a HostEntry) -> Self {
        let status = match (&host_entry.host, host_entry.standing) {
            (None, _) => "new",
            (_, HostRole::Leaving) => "leaving",
            _ if host_entry.is_dead => "dead",
            _ if host_entry.draining => "draining",
            _ => "active",
        };
        let host = host_entry.host.as_ref();
        Host {
            id: host.map(|host| host.info.uuid.to_string()),
            created: host.map_or(0, |host| host.created.0),
            updated: host.map_or(0, |host| host.updated.0),
            status,
            tags: host.map(|host| &host.info.tags).filter(|tags| !tags.is_empty()),
            api_address: host.map_or("", |host| &host.info.http_address),
            raft_address: host.map_or("", |host| &host.info.peer_address),
            shard_types: [TYPE_KV],
        }
    }
}

#[derive(Serialize)]
struct Shard<'a> {
    id: u64,
    created: u64,
    updated: u64,
    status: &'static str,
    tags: Option<&'a BTreeMap<String, String>>,
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
}

impl<'a> Shard<'a> {
    fn of(shard: ShardId, row: &'a topology::Shard) -> Self {
        Shard {
            id: shard.0,
            created: row.created.0,
            updated: row.updated.0,
            status: "active",
            tags: (!row.tags.is_empty()).then_some(&row.tags),
            kind: if shard == ShardId::PRIME { TYPE_REGISTRY } else { TYPE_KV },
            name: &row.name,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replica {
    id: u64,
    created: u64,
    updated: u64,
    status: &'static str,
    tags: Option<()>,
    #[serde(rename = "hostID")]
    host: Option<String>,
    is_non_voting: bool,
    /// Always false: there are no witnesses, but the reference has this field.
    is_witness: bool,
    #[serde(rename = "shardID")]
    shard: u64,
}

impl Replica {
    fn of(replica: ReplicaId, row: &topology::Replica, host: Option<String>) -> Self {
        Replica {
            id: replica.0,
            created: row.created.0,
            updated: row.updated.0,
            status: if row.wanted.is_some() { "active" } else { "leaving" },
            tags: None,
            host,
            is_non_voting: row.wanted != Some(Role::Voter),
            is_witness: false,
            shard: row.shard.0,
        }
    }
}

fn explained(explained: &Explained) -> ExplainedHost {
    ExplainedHost {
        node: explained.node.0,
        replica: explained.replica.map(|replica| replica.0),
        role: match explained.role {
            Some(Role::Voter) => PlacedRole::Voter,
            Some(Role::Learner) => PlacedRole::Learner,
            None => PlacedRole::None,
        },
        written: explained.is_written,
        reason: explained.reason.clone(),
    }
}
