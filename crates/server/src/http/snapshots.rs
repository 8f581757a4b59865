//! `/v1/snapshots`: the snapshots of this node's replicas, for nodes that make a backup and lack
//! some of the shards.
//!
//! Owns both sides of these routes: what a node answers, and how the node that makes a backup asks
//! for it. `core::clients::backup` decides what is asked.

use bytes::Bytes;
use hyper::Method;
use serde::de::DeserializeOwned;
use tidelock_api::problem as api_problem;
use tidelock_api::snapshots as api;
use tidelock_core::clients::backup::{SnapshotStatus, SourceError};
use tidelock_core::clients::snapshots_here;
use tidelock_core::command::Request;
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::types::{LogIndex, MigrationId, NodeId, ShardId, Term};
use uuid::Uuid;

use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use super::stream_permission::StreamDemand;
use super::uri;
use crate::backup::{BackupSource, PartialStream};
use crate::peer_http::{self, PeerAnswer, PeerEndpoint};
use crate::store::Store;

/// The path of the routes.
const PATH: &str = "/v1/snapshots";

/// Longest answer about all replicas of a node: some thousands of them.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Longest description of a problem.
const PROBLEM_BYTES_MAX: usize = 16 << 10;

/// `GET /v1/snapshots`.
pub(super) async fn statuses<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let source = source(&call)?;
    let statuses = own_statuses(call.store()).await;
    let replicas = statuses.into_iter().map(|status| api::ReplicaSnapshot {
        shard: status.shard.0,
        applied: status.applied.0,
        snapshot: status.snapshot.map(|id| api::Snapshot { index: id.index.0, term: id.term.0 }),
        making: status.makes_snapshot,
        last_move: status.last_move.0,
        moving: status.is_moving,
        slots: status.slots.map(|slots| slots.to_string()),
    });
    let (cluster, node) = (source.cluster.to_string(), source.node.0);
    json(&api::Snapshots { cluster, node, replicas: replicas.collect() })
}

/// `POST /v1/snapshots`.
pub(super) async fn begin<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let source = source(&call)?;
    let begun = snapshots_here(vec![call.store().submit(Request::SnapshotHere).await])?;
    let shards = begun.into_iter().map(|(shard, index)| api::BegunSnapshot { id: shard.0, index: index.0 });
    let (cluster, node) = (source.cluster.to_string(), source.node.0);
    json(&api::BegunSnapshots { cluster, node, shards: shards.collect() })
}

/// `GET /v1/snapshots/backup`.
pub(super) async fn backup<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let ids = call.parameters().get("ids")?.and_then(|text| parse_ids(&text));
    let ids = ids.ok_or_else(|| {
        Problem::invalid("ids must be SHARD:INDEX:TERM, several of them with commas, by number of the shard")
    })?;
    let source = source(&call)?;
    if *call.method() == Method::HEAD {
        return Ok(response::octets(Bytes::new()));
    }
    let Some(place) = source.partial_place() else {
        let detail = "this node sends as many partial backups as it may at a time; nothing was done";
        return Err(Problem::new(ProblemKind::Overloaded, detail));
    };
    let open = source.open(ids).await.map_err(|error| {
        let detail = format!(
            "these snapshots cannot be opened, most likely because newer ones have replaced them: {error}"
        );
        Problem::new(ProblemKind::SnapshotReplaced, detail)
    })?;
    let permission_lost = call.permission_lost(StreamDemand::Administer);
    Ok(response::partial(source.read(open.alone(false), place), permission_lost))
}

/// The snapshots of this node's replicas.
pub(super) async fn own_statuses<S: Store>(store: &S) -> Vec<SnapshotStatus> {
    store.status().await.shards.iter().map(SnapshotStatus::from).collect()
}

fn source<'a, S: Store>(call: &Call<'a, S>) -> Result<&'a BackupSource, Problem> {
    call.context.backup.as_deref().ok_or_else(Problem::no_such_route)
}

fn json(answer: &impl serde::Serialize) -> Result<Response, Problem> {
    Ok(response::json(serde_json::to_vec(answer).expect("invariant: numbers and texts are JSON")))
}

/// Parses a list `SHARD:INDEX:TERM,…` of shards in rising order.
pub(super) fn parse_ids(text: &[u8]) -> Option<Vec<SnapshotId>> {
    let mut ids: Vec<SnapshotId> = Vec::new();
    for id in text.split(|byte| *byte == b',') {
        let mut numbers = id.split(|byte| *byte == b':').map(uri::parse_u64);
        let (shard, index, term) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let id = SnapshotId { shard: ShardId(shard), index: LogIndex(index), term: Term(term) };
        if numbers.next().is_some() || ids.last().is_some_and(|last| last.shard >= id.shard) {
            return None;
        }
        ids.push(id);
    }
    Some(ids)
}

/// Parses a set of slots, which may be empty.
fn parse_slots(text: &str) -> Option<SlotSet> {
    if text.is_empty() { Some(SlotSet::default()) } else { text.parse().ok() }
}

/// A node that is asked for snapshots.
#[derive(Clone, Debug)]
pub(super) struct RemoteSource {
    /// The cluster that it must belong to.
    pub cluster: Uuid,
    /// Its number.
    pub node: NodeId,
    /// Its HTTP listener.
    pub endpoint: PeerEndpoint,
}

impl RemoteSource {
    /// The statuses of its replicas.
    pub async fn statuses(&self) -> Result<Vec<SnapshotStatus>, SourceError> {
        let answer: api::Snapshots = self.ask(Method::GET).await?;
        self.check(&answer.cluster, answer.node)?;
        let status = |replica: api::ReplicaSnapshot| {
            let shard = ShardId(replica.shard);
            let id = |id: api::Snapshot| SnapshotId { shard, index: LogIndex(id.index), term: Term(id.term) };
            SnapshotStatus {
                shard,
                applied: LogIndex(replica.applied),
                snapshot: replica.snapshot.map(id),
                makes_snapshot: replica.making,
                last_move: MigrationId(replica.last_move),
                is_moving: replica.moving,
                slots: replica.slots.and_then(|slots| parse_slots(&slots)),
            }
        };
        Ok(answer.replicas.into_iter().map(status).collect())
    }

    /// Lets it begin snapshots of what it has applied.
    pub async fn begin(&self) -> Result<Vec<(ShardId, LogIndex)>, SourceError> {
        let answer: api::BegunSnapshots = self.ask(Method::POST).await?;
        self.check(&answer.cluster, answer.node)?;
        Ok(answer.shards.into_iter().map(|begun| (ShardId(begun.id), LogIndex(begun.index))).collect())
    }

    /// Lets it open these snapshots, and starts to receive them.
    pub async fn open(&self, ids: Vec<SnapshotId>) -> Result<PartialStream, SourceError> {
        let texts: Vec<String> =
            ids.iter().map(|id| format!("{}:{}:{}", id.shard, id.index.0, id.term.0)).collect();
        let target = format!("{PATH}/backup?ids={}", texts.join(","));
        let answer = self.send(Method::GET, &target).await?;
        PartialStream::begin(answer, (self.cluster, self.node), ids).await.map_err(no_answer)
    }

    async fn ask<A: DeserializeOwned>(&self, method: Method) -> Result<A, SourceError> {
        let answer = self.send(method, PATH).await?;
        let body = answer.whole(ANSWER_BYTES_MAX).await.map_err(no_answer)?;
        serde_json::from_slice(&body).map_err(no_answer)
    }

    /// Sends a request, and passes an answer of success on.
    async fn send(&self, method: Method, target: &str) -> Result<PeerAnswer, SourceError> {
        let answer = peer_http::send(&self.endpoint, method, target).await.map_err(no_answer)?;
        let status = answer.status;
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.whole(PROBLEM_BYTES_MAX).await.map_err(no_answer)?;
        let Ok(problem) = serde_json::from_slice::<api_problem::Problem<'_>>(&body) else {
            return Err(SourceError::NoAnswer(format!("it answers with the status {status}")));
        };
        Err(match problem.name() {
            "snapshot-replaced" => SourceError::Open(problem.detail.into_owned()),
            "no-such-route" => SourceError::NoAnswer("its release hands out no snapshots".to_owned()),
            _ => SourceError::NoAnswer(problem.detail.into_owned()),
        })
    }

    /// Another node may have taken the address over.
    fn check(&self, cluster: &str, node: u64) -> Result<(), SourceError> {
        if Uuid::try_parse(cluster) == Ok(self.cluster) && node == self.node.0 {
            return Ok(());
        }
        let address = &self.endpoint.address;
        Err(SourceError::NoAnswer(format!(
            "at its address {address}, node {node} of cluster {cluster} answers"
        )))
    }
}

fn no_answer(error: impl std::fmt::Display) -> SourceError {
    SourceError::NoAnswer(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(shard: u64, index: u64, term: u64) -> SnapshotId {
        SnapshotId { shard: ShardId(shard), index: LogIndex(index), term: Term(term) }
    }

    #[test]
    fn snapshots_are_named_by_three_numbers() {
        assert_eq!(parse_ids(b"0:9:1,3:0:0"), Some(vec![id(0, 9, 1), id(3, 0, 0)]));
        for malformed in
            ["", ",", "1", "1:2", "1:2:3:4", "1:2:x", "1:2:-3", "1:2:3,", "2:1:1,1:1:1", "1:1:1,1:2:1"]
        {
            assert_eq!(parse_ids(malformed.as_bytes()), None, "{malformed}");
        }
    }

    #[test]
    fn an_answer_of_another_node_is_refused() {
        let cluster = Uuid::from_u128(7);
        let endpoint = PeerEndpoint { address: "h:8001".into(), tls: None, authorization: None };
        let source = RemoteSource { cluster, node: NodeId(2), endpoint };
        assert_eq!(source.check(&cluster.to_string(), 2), Ok(()));
        for (cluster, node) in [(cluster.to_string(), 3), (Uuid::nil().to_string(), 2), (String::new(), 2)] {
            let SourceError::NoAnswer(reason) = source.check(&cluster, node).unwrap_err() else {
                panic!("another kind of error")
            };
            assert!(reason.contains("h:8001") && reason.contains(&format!("node {node}")), "{reason}");
        }
    }
}
