//! The configuration centre: `/api`.
//!
//! Owns what its routes accept and show; `docs/reference/http-configuration.md` describes them for
//! users. It decides nothing about configuration. Each route is one request to the store, whose
//! reply it shows; an import is a read and a conditional change. Every answer, including errors,
//! has the same envelope.
//!
//! ```text
//! path      parses paths;  queries: the answer to each query
//! input     bodies -> changes;  values: any value that serde reads
//! reads writes search transfer imports      routes by kind; transfer: export files;
//! stream drafts environments                imports: import files; stream: watchers;
//!                                           drafts: review and canaries;
//!                                           environments: inheritance, comparison, promotion
//! secrets   sealing and revealing secrets
//! position  how far a watcher has come;  readers: who watches now, at all nodes
//! formats   JSON, YAML, TOML, properties, env
//! show      replies -> JSON;  cache: encoded containers
//! error     refusals
//! ```

mod cache;
mod drafts;
mod environments;
mod error;
mod formats;
mod imports;
mod input;
pub(super) mod parsers;
mod path;
mod position;
mod queries;
mod readers;
mod reads;
mod search;
mod secrets;
mod show;
mod stream;
mod transfer;
mod values;
mod writes;

use std::sync::Arc;

use tidelock_api::config::LABEL_CHARACTERS_MAX;
use tidelock_core::clients::watcher::WatchScope;
use tidelock_core::command::config::{ConfigPreview, Content, Export, Item, Name, Stamp};
use tidelock_core::command::{ConfigRead, Consistency};
use tidelock_core::limits;

use super::authentication::ClientIdentity;
use super::problem::Problem;
use super::response::Response;
use super::route::Arguments;
use super::service::Call;
use super::uri::{self, Parameters};
use crate::offload::INLINE_BYTES_MAX;
use crate::requests::{self, NoAnswer};
use crate::store::Store;
pub use cache::Documents;
pub(super) use error::ApiError;
pub(super) use formats::Format;
use queries::TypedQuery;
pub(super) use readers::READERS_LISTED;

/// Operations on configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Config {
    Namespaces,
    Search,
    Namespace,
    CreateNamespace,
    DeleteNamespace,
    Pairs,
    Pair,
    PutPair,
    DeletePair,
    RollBackPair,
    PairHistory,
    PairContainers,
    PairSchema,
    PutPairSchema,
    DeletePairSchema,
    Containers,
    Container,
    PutContainer,
    DeleteContainer,
    RollBackContainer,
    ContainerHistory,
    ContainerSchema,
    PutContainerSchema,
    DeleteContainerSchema,
    ContainerDiff,
    Blame,
    DownloadContainer,
    ImportContainer,
    WatchContainer,
    WatchNamespace,
    Readers,
    Publish,
    RollBack,
    SetPolicy,
    Export,
    Import,
    History,
    Diff,
    Inheritance,
    SetParents,
    SetProtection,
    Compare,
    Promote,
    Drafts,
    Draft,
    DiscardDraft,
    CommentDraft,
    ApproveDraft,
    PublishDraft,
    BeginCanary,
    WithdrawCanary,
    RotateSecrets,
}

/// Answers a request. The first parameter of its path is a namespace, the second a key.
pub(super) async fn answer<S: Store>(
    call: Call<'_, S>,
    operation: Config,
    arguments: Arguments<'_>,
) -> Response {
    match dispatch(call, operation, arguments).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

/// Answers a request that was refused before its path was parsed.
pub(super) fn refusal(problem: Problem) -> Response {
    ApiError::from(problem).into_response()
}

async fn dispatch<S: Store>(
    call: Call<'_, S>,
    operation: Config,
    [raw_namespace, raw_key]: Arguments<'_>,
) -> Result<Response, ApiError> {
    if operation == Config::Namespaces {
        return reads::namespaces(call).await;
    }
    if operation == Config::Search {
        return Box::pin(search::search(call)).await;
    }
    let namespace = path::name(raw_namespace)?;
    let key = || path::key(raw_key);
    let (pair, container) = (|| key().map(Item::Pair), || key().map(Item::Container));
    // Rare and large operations are boxed: unboxed, every request would reserve memory for them.
    match operation {
        Config::Namespaces => reads::namespaces(call).await,
        Config::Search => Box::pin(search::search(call)).await,
        Config::Pairs => reads::pairs(call, namespace).await,
        Config::Pair => reads::pair(call, namespace, key()?).await,
        Config::Containers => reads::containers(call, namespace).await,
        Config::Container => reads::container(call, namespace, key()?).await,
        Config::Namespace => Box::pin(reads::namespace(call, namespace)).await,
        Config::History => Box::pin(reads::history(call, namespace, None)).await,
        Config::PairHistory => Box::pin(reads::history(call, namespace, Some(pair()?))).await,
        Config::PairContainers => Box::pin(reads::users(call, namespace, key()?)).await,
        Config::ContainerHistory => Box::pin(reads::history(call, namespace, Some(container()?))).await,
        Config::Diff => Box::pin(reads::namespace_diff(call, namespace)).await,
        Config::ContainerDiff => Box::pin(reads::container_diff(call, namespace, key()?)).await,
        Config::Blame => Box::pin(reads::blame(call, namespace, key()?)).await,
        Config::DownloadContainer => Box::pin(transfer::download(call, namespace, key()?)).await,
        Config::WatchContainer => {
            Box::pin(stream::watch(call, namespace, WatchScope::Container(key()?))).await
        }
        Config::WatchNamespace => Box::pin(stream::watch(call, namespace, WatchScope::Namespace)).await,
        Config::Readers => Box::pin(readers::readers(call, namespace)).await,
        Config::Export => Box::pin(transfer::export(call, namespace)).await,
        Config::CreateNamespace => Box::pin(writes::create(call, namespace)).await,
        Config::DeleteNamespace => Box::pin(writes::delete_namespace(call, namespace)).await,
        Config::PutPair => Box::pin(writes::put(call, namespace, pair()?)).await,
        Config::PutContainer => Box::pin(writes::put(call, namespace, container()?)).await,
        Config::DeletePair => Box::pin(writes::delete(call, namespace, pair()?)).await,
        Config::DeleteContainer => Box::pin(writes::delete(call, namespace, container()?)).await,
        Config::PairSchema => Box::pin(reads::schema(call, namespace, pair()?)).await,
        Config::ContainerSchema => Box::pin(reads::schema(call, namespace, container()?)).await,
        Config::PutPairSchema => Box::pin(writes::set_schema(call, namespace, pair()?)).await,
        Config::PutContainerSchema => Box::pin(writes::set_schema(call, namespace, container()?)).await,
        Config::DeletePairSchema => Box::pin(writes::delete_schema(call, namespace, pair()?)).await,
        Config::DeleteContainerSchema => Box::pin(writes::delete_schema(call, namespace, container()?)).await,
        Config::Publish => Box::pin(writes::publish(call, namespace)).await,
        Config::RollBack => Box::pin(writes::roll_back(call, namespace, None)).await,
        Config::RollBackPair => Box::pin(writes::roll_back(call, namespace, Some(pair()?))).await,
        Config::RollBackContainer => Box::pin(writes::roll_back(call, namespace, Some(container()?))).await,
        Config::SetPolicy => Box::pin(writes::set_policy(call, namespace)).await,
        Config::Inheritance => Box::pin(environments::inheritance(call, namespace)).await,
        Config::SetParents => Box::pin(environments::set_parents(call, namespace)).await,
        Config::SetProtection => Box::pin(environments::set_protection(call, namespace)).await,
        Config::Compare => Box::pin(environments::compare(call, namespace)).await,
        Config::Promote => Box::pin(environments::promote(call, namespace)).await,
        Config::Drafts => Box::pin(drafts::drafts(call, namespace)).await,
        Config::Draft => Box::pin(drafts::draft(call, namespace, key()?)).await,
        Config::DiscardDraft => Box::pin(drafts::discard(call, namespace, key()?)).await,
        Config::CommentDraft => Box::pin(drafts::comment(call, namespace, key()?)).await,
        Config::ApproveDraft => Box::pin(drafts::approve(call, namespace, key()?)).await,
        Config::PublishDraft => Box::pin(drafts::publish(call, namespace, key()?)).await,
        Config::BeginCanary => Box::pin(drafts::begin_canary(call, namespace, key()?)).await,
        Config::WithdrawCanary => Box::pin(drafts::withdraw(call, namespace)).await,
        Config::RotateSecrets => Box::pin(secrets::rotate(call, namespace)).await,
        Config::Import => Box::pin(imports::import_namespace(call, namespace)).await,
        Config::ImportContainer => Box::pin(imports::import_container(call, namespace, key()?)).await,
    }
}

/// Queries a namespace. A refusal is returned as an error.
async fn ask<S: Store, A>(call: &Call<'_, S>, namespace: &Name, query: TypedQuery<A>) -> Result<A, ApiError> {
    let consistency = call.parameters().consistency()?;
    ask_store(call.store(), namespace, query, consistency).await
}

async fn ask_store<S: Store, A>(
    store: &S,
    namespace: &Name,
    TypedQuery { query, answer }: TypedQuery<A>,
    consistency: Consistency,
) -> Result<A, ApiError> {
    let read = ConfigRead { namespace: namespace.clone(), query };
    let reply = store.ask(requests::read_config(read, consistency)).await??;
    Ok(answer(reply).ok_or_else(NoAnswer::mismatched)?)
}

/// Runs `work` on a document of `bytes` bytes where it delays no shard and no other client.
async fn offload<S: Store, T: Send + 'static>(
    call: &Call<'_, S>,
    bytes: usize,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    call.context.offload.run(bytes, work).await?
}

/// The sum of sizes, exact only up to what matters to [`offload`].
fn measured(sizes: impl Iterator<Item = usize>) -> usize {
    let mut total = 0;
    for size in sizes {
        total += size;
        if total > INLINE_BYTES_MAX {
            break;
        }
    }
    total
}

/// The size of a namespace's contents, exact only up to what matters to [`offload`].
fn measured_export(export: &Export) -> usize {
    let pairs = export.pairs.iter().map(|(key, pair)| key.len() + pair.value.json_bytes());
    let containers = export.containers.values().map(|container| container.document_bytes);
    measured(pairs.chain(containers))
}

/// The label of a reader; `None` if it states none.
fn label(parameters: Parameters<'_>) -> Result<Option<Arc<str>>, ApiError> {
    let max = LABEL_CHARACTERS_MAX;
    let Some(label) = text(parameters, "label")?.filter(|label| !label.is_empty()) else { return Ok(None) };
    if label.chars().count() > max || label.chars().any(char::is_control) {
        return Err(ApiError::invalid(format!(
            "label is at most {max} characters, none of them a control one"
        )));
    }
    Ok(Some(label.into()))
}

fn text(parameters: Parameters<'_>, name: &str) -> Result<Option<String>, ApiError> {
    let Some(bytes) = parameters.get(name)? else { return Ok(None) };
    let text = String::from_utf8(bytes.into_owned());
    text.map(Some).map_err(|_| ApiError::invalid(format!("{name} must be UTF-8")))
}

fn number(parameters: Parameters<'_>, name: &str) -> Result<Option<u64>, ApiError> {
    let Some(digits) = parameters.get(name)? else { return Ok(None) };
    let number = uri::parse_u64(&digits);
    number.map(Some).ok_or_else(|| ApiError::invalid(format!("{name} must be a whole number, 0 or more")))
}

/// The size of what a preview shows, exact only up to what matters to [`offload`].
fn measured_preview(preview: &ConfigPreview) -> usize {
    let content = |content: &Content| match content {
        Content::Pair(pair) => pair.value.json_bytes(),
        Content::Container(container) => container.document_bytes,
    };
    let sides = preview.changes.iter().flat_map(|change| [&change.before, &change.after]);
    let texts = preview.documents.iter().flat_map(|document| [&document.before, &document.after]);
    measured(sides.flatten().map(content).chain(texts.flatten().map(|text| text.len())))
}

/// `limit` of a page.
fn limit(parameters: Parameters<'_>, default: usize) -> Result<usize, ApiError> {
    let max = limits::CONFIG_PAGE_ITEMS_MAX;
    let Some(digits) = parameters.get("limit")? else { return Ok(default) };
    let limit = uri::parse_u64(&digits).and_then(|limit| usize::try_from(limit).ok());
    limit
        .filter(|limit| (1..=max).contains(limit))
        .ok_or_else(|| ApiError::invalid(format!("limit must be 1 to {max}")))
}

/// `offset` of a page.
fn offset(parameters: Parameters<'_>) -> Result<usize, ApiError> {
    Ok(number(parameters, "offset")?.map_or(0, |offset| usize::try_from(offset).unwrap_or(usize::MAX)))
}

/// Author and message of a change, with this node's time.
fn stamp<S: Store>(call: &Call<'_, S>) -> Result<Stamp, ApiError> {
    let parameters = call.parameters();
    let part = |name| Ok::<Arc<str>, ApiError>(text(parameters, name)?.unwrap_or_default().into());
    let mut stamp =
        Stamp { time_ms: call.context.clock.now().0, message: part("message")?, ..Stamp::default() };
    state_author(&mut stamp, part("author")?, call.identity());
    Ok(stamp)
}

/// Sets who makes a change: the principal that the client has proved to be, on behalf of the name
/// that it states. Without a principal it is that name.
fn state_author(stamp: &mut Stamp, stated: Arc<str>, identity: &ClientIdentity) {
    match identity.proof() {
        None => stamp.author = stated,
        Some(proof) => {
            stamp.author = proof.principal.clone();
            stamp.on_behalf_of = if stated == proof.principal { "".into() } else { stated };
        }
    }
}
