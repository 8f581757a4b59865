//! `GET …/readers`: the clients that watch a namespace or its containers now, at all nodes.
//!
//! Owns the question to the other nodes, which repeat the check of the client's permission, and the
//! order of the answer. A node that does not answer in time is named: a list without its clients
//! must not look complete. `crate::readers` owns the clients of this node.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use tidelock_api::config as api;
use tidelock_core::auth::Caller;
use tidelock_core::clients::watcher::WatchScope;
use tidelock_core::command::HostRole;
use tidelock_core::command::config::{ConfigError, Name, Query};
use tidelock_core::command::{ConfigRead, Consistency};
use tidelock_core::types::NodeId;
use tokio::time::timeout;

use super::super::backup::at_all;
use super::super::response::Response;
use super::super::service::Call;
use super::error::ApiError;
use super::{limit, path, show, text};
use crate::peer_http::{self, PeerEndpoint};
use crate::readers::Reader;
use crate::requests;
use crate::store::Store;

/// Clients that are listed without a limit.
pub(in crate::http) const READERS_LISTED: usize = 1_000;

/// How long another node has to answer: it only reads its memory, and checks the permission.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest answer of a node: the most clients that are listed, with the longest labels.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// `GET …/readers`.
pub(super) async fn readers<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let parameters = call.parameters();
    let container = text(parameters, "container")?.map(|key| path::parse_key(&key)).transpose()?;
    let listed_max = limit(parameters, READERS_LISTED)?;
    let is_local = parameters.flag("local")?;
    check_permission(&call, &namespace, is_local).await?;
    let own = call.store().status().await.node;
    let here = call.store().watch_registry().readers().of(&namespace, container.as_deref());
    let mut answer = api::Readers {
        node: own.0,
        cluster: call.context.cluster.to_string(),
        total: here.len() as u64,
        readers: here.iter().map(|reader| row(own, reader)).collect(),
        missing: Vec::new(),
    };
    if !is_local {
        let question = ReadersQuery {
            cluster: answer.cluster.clone(),
            target: target(&namespace, container.as_deref(), listed_max),
        };
        for (node, answered) in ask_others(&call, own, question).await? {
            match answered {
                Some(other) => {
                    answer.total += other.total;
                    answer.readers.extend(other.readers);
                }
                None => answer.missing.push(node.0),
            }
        }
    }
    let by = |reader: &api::Reader| (reader.node, reader.container.clone(), reader.label.clone());
    answer.readers.sort_by_cached_key(by);
    answer.readers.truncate(listed_max);
    answer.missing.sort_unstable();
    Ok(show::respond(answer))
}

/// Checks that the client may read the namespace. A node that another one asks may not know the
/// namespace yet.
async fn check_permission<S: Store>(
    call: &Call<'_, S>,
    namespace: &Name,
    is_local: bool,
) -> Result<(), ApiError> {
    let consistency = if is_local { Consistency::Stale } else { call.parameters().consistency()? };
    let read = ConfigRead { namespace: namespace.clone(), query: Query::Namespace };
    match call.ask(requests::read_config(read, consistency)).await? {
        Err(ConfigError::NoNamespace) if is_local => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}

fn row(node: NodeId, reader: &Arc<Reader>) -> api::Reader {
    api::Reader {
        node: node.0,
        address: reader.address.map(|address| address.to_string()),
        principal: reader.principal.as_ref().map(|principal| principal.to_string()),
        label: Some(reader.label.to_string()).filter(|label| !label.is_empty()),
        container: match &reader.scope {
            WatchScope::Container(key) => Some(key.to_string()),
            WatchScope::Namespace => None,
        },
        revision: reader.revision(),
        poll: reader.is_poll,
    }
}

/// What the other nodes are asked.
#[derive(Clone)]
struct ReadersQuery {
    /// The cluster to which they must belong.
    cluster: String,
    target: String,
}

fn target(namespace: &Name, container: Option<&str>, listed_max: usize) -> String {
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let namespace = encode(namespace.as_str());
    let mut target = format!("/api/namespaces/{namespace}/readers?local=true&limit={listed_max}");
    if let Some(container) = container {
        target.push_str(&format!("&container={}", encode(container)));
    }
    target
}

/// Asks every other node of the registry at the same time. `None` for those that gave no answer.
async fn ask_others<S: Store>(
    call: &Call<'_, S>,
    own: NodeId,
    question: ReadersQuery,
) -> Result<Vec<(NodeId, Option<api::Readers>)>, ApiError> {
    // The client needs no permission to read the registry: it learns only who reads the namespace.
    let view = call.store().for_caller(Caller::Node).ask(requests::cluster()).await?;
    let authorization = call.authorization();
    // The certificate of a client cannot be passed on.
    let lacks_token = call.identity().proof().is_some() && authorization.is_none();
    let is_refused = lacks_token && call.store().access().state().is_required();
    let others =
        view.hosts.iter().filter(|host| host.info.node != own && !matches!(host.standing, HostRole::Removed));
    let others: Vec<(NodeId, PeerEndpoint)> = others
        .map(|host| {
            let (address, tls) = (host.info.http_address.clone(), call.context.tls.clone());
            (host.info.node, PeerEndpoint { address, tls, authorization: authorization.clone() })
        })
        .collect();
    let answers = at_all(others, move |(node, endpoint)| {
        let question = question.clone();
        async move {
            let answered = if is_refused {
                Err("the certificate of the client cannot be passed on".to_owned())
            } else {
                let late = |_| Err(format!("it did not answer within {} s", ANSWER_TIMEOUT.as_secs()));
                timeout(ANSWER_TIMEOUT, ask(node, &endpoint, &question)).await.unwrap_or_else(late)
            };
            let answered = answered.inspect_err(|reason| {
                tracing::info!(node = node.0, reason, "a node does not say who watches there");
            });
            (node, answered.ok())
        }
    });
    Ok(answers.await)
}

async fn ask(node: NodeId, endpoint: &PeerEndpoint, question: &ReadersQuery) -> Result<api::Readers, String> {
    if endpoint.address.is_empty() {
        return Err("the registry has no HTTP address of it".to_owned());
    }
    let answer = peer_http::send(endpoint, Method::GET, &question.target).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let status = answer.status;
    let body = answer.whole(ANSWER_BYTES_MAX).await.map_err(|error| error.to_string())?;
    if !status.is_success() {
        return Err(format!("it answers with the status {status}"));
    }
    let answer: api::Success<api::Readers> =
        serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    // Another node may have taken the address over.
    if answer.data.node != node.0 || answer.data.cluster != question.cluster {
        return Err(format!("at its address, node {} answers", answer.data.node));
    }
    Ok(answer.data)
}
