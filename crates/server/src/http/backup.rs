//! `/v1/backup`: the state of every shard, in one file.
//!
//! Owns the parameters, the texts of refusals, and the actions of a backup at this and other nodes.
//! `core::clients::backup` decides which snapshots make up a backup, and `snapshots` asks other
//! nodes for theirs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use tidelock_core::clients::backup::{
    BackupAction, BackupFailure, BackupRequest, SnapshotStatus, SourceError,
};
use tidelock_core::clients::snapshots_here;
use tidelock_core::command::{AdminAction, Request};
use tidelock_core::deliberate::Faults;
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::types::{LogIndex, NodeId, ShardId};

use super::audit;
use super::drive;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use super::snapshots::{self, RemoteSource};
use super::stream_permission::StreamDemand;
use crate::backup::{BackupSource, OpenBackup, OpenSnapshots, PartialStream};
use crate::peer_http::PeerEndpoint;
use crate::requests;
use crate::store::Store;
use crate::tls::TlsAcceptor;

pub(super) async fn answer<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let is_stale = call.parameters().flag("stale")?;
    let Some(source) = &call.context.backup else { return Err(Problem::no_such_route()) };
    if *call.method() == Method::HEAD {
        return Ok(response::octets(Bytes::new()));
    }
    let Some(place) = source.place() else {
        let detail = "this node makes as many backups as it may at a time; nothing was done";
        return Err(Problem::new(ProblemKind::Overloaded, detail));
    };
    // A stale backup is for a cluster without a majority, which cannot commit a record.
    if !is_stale {
        audit::announce(&call, AdminAction::SaveBackup).await?;
    }
    let tls = call.context.tls.clone();
    let authorization = call.authorization();
    let lacks_token = authorization.is_none() && call.identity().proof().is_some();
    let sources =
        Sources { store: call.store().clone(), own: source.clone(), tls, authorization, lacks_token };
    let open = select(&sources, is_stale).await?;
    let permission_lost = call.permission_lost(StreamDemand::Administer);
    let mut response = response::parts(source.read(open, place), permission_lost);
    // A browser that follows a link saves it under this name.
    let name = HeaderValue::from_static("attachment; filename=\"tidelock.backup\"");
    response.headers_mut().insert(CONTENT_DISPOSITION, name);
    Ok(response)
}

/// Selects the snapshots of a backup and opens them.
async fn select<S: Store>(sources: &Sources<S>, is_stale: bool) -> Result<OpenBackup, BackupFailure> {
    let begun = Instant::now();
    let mut open = Vec::new();
    let (mut backup, mut action) = BackupRequest::begin(is_stale, Faults::NONE);
    loop {
        action = match action {
            BackupAction::Ask(requests) => backup.answered(drive::ask_all(&sources.store, requests).await),
            BackupAction::ReadStatuses { nodes, after_ms } => {
                if after_ms > 0 {
                    tokio::time::sleep(Duration::from_millis(after_ms)).await;
                }
                let results = at_all(nodes, |node| sources.clone().statuses(node)).await;
                let now_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                backup.statuses(now_ms, results)
            }
            BackupAction::BeginSnapshots(nodes) => {
                backup.begun(at_all(nodes, |node| sources.clone().begin(node)).await)
            }
            BackupAction::Open(all) => {
                // What was opened before, and replaced at another node, is closed first.
                open.clear();
                let results = at_all(all, |(node, ids)| sources.clone().open(node, ids)).await;
                let mut keep = |opened: Result<Opened, SourceError>| opened.map(|opened| open.push(opened));
                backup.opened(results.into_iter().map(&mut keep).collect())
            }
            BackupAction::Done(result) => {
                result?;
                return Ok(OpenBackup::of(open, is_stale));
            }
        }
    }
}

/// Executes an action at all nodes at the same time. Returns the results in the same order.
pub(super) async fn at_all<A, F>(nodes: Vec<A>, mut at: impl FnMut(A) -> F) -> Vec<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let tasks: Vec<_> = nodes.into_iter().map(|node| tokio::task::spawn_local(at(node))).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        let result = task.await;
        results.push(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())));
    }
    results
}

/// The nodes that give snapshots: this one, and those that the registry knows.
#[derive(Clone, Debug)]
struct Sources<S> {
    store: S,
    own: Arc<BackupSource>,
    /// The handshake with other nodes, if they are asked with TLS.
    tls: Option<TlsAcceptor>,
    /// The header of the client, which other nodes check too.
    authorization: Option<HeaderValue>,
    /// Whether the client has proved who it is by its certificate, which this node cannot present
    /// to others.
    lacks_token: bool,
}

/// The opened snapshots of one node.
#[derive(Debug)]
enum Opened {
    Own(OpenSnapshots),
    Other(Box<PartialStream>),
}

impl<S: Store> Sources<S> {
    async fn statuses(self, node: NodeId) -> Result<Vec<SnapshotStatus>, SourceError> {
        if node == self.own.node {
            return Ok(snapshots::own_statuses(&self.store).await);
        }
        self.remote(node).await?.statuses().await
    }

    async fn begin(self, node: NodeId) -> Result<Vec<(ShardId, LogIndex)>, SourceError> {
        if node == self.own.node {
            let reply = self.store.submit(Request::SnapshotHere).await;
            return snapshots_here(vec![reply]).map_err(|error| SourceError::NoAnswer(error.to_string()));
        }
        self.remote(node).await?.begin().await
    }

    async fn open(self, node: NodeId, ids: Vec<SnapshotId>) -> Result<Opened, SourceError> {
        if node == self.own.node {
            let open = self.own.open(ids).await;
            return open.map(Opened::Own).map_err(|error| SourceError::Open(error.to_string()));
        }
        Ok(Opened::Other(Box::new(self.remote(node).await?.open(ids).await?)))
    }

    /// A node at its present address, which may change at any time.
    async fn remote(&self, node: NodeId) -> Result<RemoteSource, SourceError> {
        let no_answer = |reason: String| SourceError::NoAnswer(reason);
        if self.lacks_token && self.store.access().state().is_required() {
            let reason = "it checks the client again, and a certificate cannot be passed on: use a token";
            return Err(no_answer(reason.to_owned()));
        }
        let view =
            self.store.ask(requests::cluster()).await.map_err(|error| no_answer(format!("{error:?}")))?;
        let host = view.hosts.iter().find(|host| host.info.node == node);
        let address = host.map(|host| host.info.http_address.clone()).filter(|address| !address.is_empty());
        let address = address.ok_or_else(|| no_answer("its HTTP address is not known".to_owned()))?;
        let (tls, authorization) = (self.tls.clone(), self.authorization.clone());
        let endpoint = PeerEndpoint { address, tls, authorization };
        Ok(RemoteSource { cluster: self.own.cluster, node, endpoint })
    }
}

impl OpenBackup {
    /// The snapshots of all nodes.
    fn of(all: Vec<Opened>, is_stale: bool) -> OpenBackup {
        let (mut own, mut partials) = (None, Vec::new());
        for opened in all {
            match opened {
                Opened::Own(snapshots) => own = Some(snapshots),
                Opened::Other(stream) => partials.push(*stream),
            }
        }
        let own = own.expect("invariant: a node that makes a backup is the source of the prime shard");
        OpenBackup { own, partials, is_stale }
    }
}

impl From<BackupFailure> for Problem {
    fn from(failure: BackupFailure) -> Problem {
        match failure {
            BackupFailure::SlotsMoving => Problem::new(
                ProblemKind::SlotsMoving,
                "slots are on their way between shards; nothing was done. Ask again when that is over",
            ),
            BackupFailure::SlotMapsDiffer => {
                let detail = format!("{failure}; nothing was done. Ask again when they have");
                Problem::new(ProblemKind::SlotsMoving, detail)
            }
            BackupFailure::NoReplica(_) | BackupFailure::Changing => {
                Problem::new(ProblemKind::NoSnapshot, format!("{failure}; nothing was done"))
            }
            BackupFailure::Source { ref error, .. } => {
                tracing::warn!(%failure, "no backup was made");
                let hint = match error {
                    SourceError::NoSnapshot => {
                        ": it is catching up, or its disk has no room; its log says more"
                    }
                    _ => "",
                };
                let detail = format!(
                    "{failure}{hint}. No other replica of the shard was left to ask; nothing was done"
                );
                Problem::new(ProblemKind::NoSnapshot, detail)
            }
            BackupFailure::Unanswered(error) => error.into(),
        }
    }
}
