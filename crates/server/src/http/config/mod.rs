//! The configuration centre: `/api`.
//!
//! Owns what its routes accept and show; `docs/config.md` describes them for users. It decides
//! nothing about configuration. Each route is one request to the store, whose reply it shows; an
//! import is a read and a conditional change. Every answer, including errors, has the same
//! envelope.
//!
//! ```text
//! path      parses paths
//! input     bodies -> changes;  values: any value that serde reads
//! reads writes transfer imports stream      routes by kind; transfer: export files;
//!                                           imports: import files; stream: watchers
//! formats   JSON, YAML, TOML, properties, env
//! show      replies -> JSON;  cache: encoded containers
//! error     refusals
//! ```

mod cache;
mod error;
mod formats;
mod imports;
mod input;
mod path;
mod reads;
mod show;
mod stream;
mod transfer;
mod values;
mod writes;

use std::sync::Arc;

use hyper::Method;
use tidelock_core::command::config::{ConfigReply, Export, Item, Name, Query, Stamp};
use tidelock_core::command::{ConfigRead, Consistency, Read, Reply, Request};
use tidelock_core::limits;

use super::problem::Problem;
use super::response::Response;
use super::service::Call;
use super::uri::{self, Parameters};
use crate::offload::INLINE_BYTES_MAX;
use crate::store::Store;
pub use cache::Documents;
pub(super) use error::ApiError;
pub(super) use formats::Format;
use path::{ConfigPath, Verb};
pub(super) use stream::Events;

/// Answers a request whose path begins with `/api`; `rest` follows `/api/`.
pub(super) async fn answer<S: Store>(call: Call<'_, S>, rest: &str) -> Response {
    match route(call, rest).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

/// Answers a request that was refused before its path was parsed.
pub(super) fn refusal(problem: Problem) -> Response {
    ApiError::from(problem).into_response()
}

/// The query parameters of a change; `None` if the path has no such method.
pub(super) fn parameters_of_change(rest: &str, method: &Method) -> Option<&'static [&'static str]> {
    let is_post = *method == Method::POST;
    match ConfigPath::of(rest).ok()? {
        ConfigPath::Namespace(_) if is_post => Some(&["author", "message", "expected"]),
        ConfigPath::Namespace(_) if *method == Method::DELETE => {
            Some(&["author", "message", "expected", "force"])
        }
        ConfigPath::Item(..) if is_post => Some(&["author", "message", "expected", "create", "retype"]),
        ConfigPath::Item(..) if *method == Method::DELETE => Some(&["author", "message", "expected"]),
        ConfigPath::Verb(_, Verb::Publish) if is_post => {
            Some(&["author", "message", "expected", "create", "retype"])
        }
        ConfigPath::Verb(_, Verb::Rollback | Verb::Policy) if is_post => {
            Some(&["author", "message", "expected"])
        }
        ConfigPath::Verb(_, Verb::Import) if is_post => {
            Some(&["author", "message", "expected", "format", "replace", "retype"])
        }
        ConfigPath::ItemVerb(_, _, Verb::Rollback) if is_post => Some(&["author", "message", "expected"]),
        ConfigPath::ItemVerb(_, Item::Container(_), Verb::Import) if is_post => {
            Some(&["author", "message", "expected", "format", "create", "retype"])
        }
        _ => None,
    }
}

async fn route<S: Store>(call: Call<'_, S>, rest: &str) -> Result<Response, ApiError> {
    let place = ConfigPath::of(rest)?;
    let is_read = matches!(*call.method(), Method::GET | Method::HEAD);
    let is_post = *call.method() == Method::POST;
    let is_delete = *call.method() == Method::DELETE;
    match place {
        // The most frequent route, which must be cheap.
        ConfigPath::Item(namespace, Item::Container(key)) if is_read => {
            reads::container(call, namespace, key).await
        }
        ConfigPath::Item(namespace, Item::Pair(key)) if is_read => reads::pair(call, namespace, key).await,
        ConfigPath::Namespaces if is_read => reads::namespaces(call).await,
        ConfigPath::Pairs(namespace) if is_read => reads::pairs(call, namespace).await,
        ConfigPath::Containers(namespace) if is_read => reads::containers(call, namespace).await,
        // Boxed because these are rare and large: unboxed, every request would reserve memory for
        // them.
        place if is_read => Box::pin(rare_reads(call, place)).await,
        place if is_post => Box::pin(posts(call, place)).await,
        place if is_delete => Box::pin(deletes(call, place)).await,
        place => Err(ApiError::method_not_allowed(allowed(&place))),
    }
}

async fn rare_reads<S: Store>(call: Call<'_, S>, place: ConfigPath) -> Result<Response, ApiError> {
    match place {
        ConfigPath::Namespace(namespace) => reads::namespace(call, namespace).await,
        ConfigPath::Verb(namespace, Verb::History) => reads::history(call, namespace, None).await,
        ConfigPath::ItemVerb(namespace, item, Verb::History) => {
            reads::history(call, namespace, Some(item)).await
        }
        ConfigPath::Verb(namespace, Verb::Diff) => reads::namespace_diff(call, namespace).await,
        ConfigPath::ItemVerb(namespace, Item::Container(key), Verb::Diff) => {
            reads::container_diff(call, namespace, key).await
        }
        ConfigPath::ItemVerb(namespace, Item::Container(key), Verb::Download) => {
            transfer::download(call, namespace, key).await
        }
        ConfigPath::Verb(namespace, Verb::Export) => transfer::export(call, namespace).await,
        ConfigPath::ItemVerb(namespace, Item::Container(key), Verb::Watch) => {
            stream::watch(call, namespace, key).await
        }
        place => Err(unless_allowed(&place)),
    }
}

async fn posts<S: Store>(call: Call<'_, S>, place: ConfigPath) -> Result<Response, ApiError> {
    match place {
        ConfigPath::Namespace(namespace) => writes::create(call, namespace).await,
        ConfigPath::Item(namespace, item) => writes::put(call, namespace, item).await,
        ConfigPath::Verb(namespace, Verb::Publish) => writes::publish(call, namespace).await,
        ConfigPath::Verb(namespace, Verb::Rollback) => writes::roll_back(call, namespace, None).await,
        ConfigPath::ItemVerb(namespace, item, Verb::Rollback) => {
            writes::roll_back(call, namespace, Some(item)).await
        }
        ConfigPath::Verb(namespace, Verb::Policy) => writes::set_policy(call, namespace).await,
        ConfigPath::Verb(namespace, Verb::Import) => imports::import_namespace(call, namespace).await,
        ConfigPath::ItemVerb(namespace, Item::Container(key), Verb::Import) => {
            imports::import_container(call, namespace, key).await
        }
        place => Err(unless_allowed(&place)),
    }
}

async fn deletes<S: Store>(call: Call<'_, S>, place: ConfigPath) -> Result<Response, ApiError> {
    match place {
        ConfigPath::Namespace(namespace) => writes::delete_namespace(call, namespace).await,
        ConfigPath::Item(namespace, item) => writes::delete(call, namespace, item).await,
        place => Err(unless_allowed(&place)),
    }
}

fn unless_allowed(place: &ConfigPath) -> ApiError {
    match allowed(place) {
        "" => ApiError::no_such_route(),
        allow => ApiError::method_not_allowed(allow),
    }
}

/// The methods of a path; empty if there is no such path.
fn allowed(place: &ConfigPath) -> &'static str {
    match place {
        ConfigPath::Namespaces | ConfigPath::Pairs(_) | ConfigPath::Containers(_) => "GET, HEAD",
        ConfigPath::Namespace(_) | ConfigPath::Item(..) => "GET, HEAD, POST, DELETE",
        ConfigPath::Verb(_, verb) => match verb {
            Verb::Export | Verb::History | Verb::Diff => "GET, HEAD",
            Verb::Import | Verb::Publish | Verb::Rollback | Verb::Policy => "POST",
            Verb::Download | Verb::Watch => "",
        },
        ConfigPath::ItemVerb(_, item, verb) => match (item, verb) {
            (_, Verb::History) => "GET, HEAD",
            (_, Verb::Rollback) => "POST",
            (Item::Container(_), Verb::Diff | Verb::Download | Verb::Watch) => "GET, HEAD",
            (Item::Container(_), Verb::Import) => "POST",
            _ => "",
        },
    }
}

/// Queries a namespace. A refusal is returned as an error.
async fn ask<S: Store>(call: &Call<'_, S>, namespace: &Name, query: Query) -> Result<ConfigReply, ApiError> {
    let consistency = call.parameters().consistency()?;
    ask_store(call.store(), namespace, query, consistency).await
}

async fn ask_store<S: Store>(
    store: &S,
    namespace: &Name,
    query: Query,
    consistency: Consistency,
) -> Result<ConfigReply, ApiError> {
    let read = Read::Config(ConfigRead { namespace: namespace.clone(), query });
    match store.submit(Request::Read { read, consistency }).await {
        Reply::Config(ConfigReply::Failed(error)) => Err(error.into()),
        Reply::Config(reply) => Ok(reply),
        Reply::Refused(refusal) => Err(refusal.into()),
        _ => Err(ApiError::mismatched_reply()),
    }
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

/// Author and message of a change from the parameters, with this node's time.
fn stamp<S: Store>(call: &Call<'_, S>) -> Result<Stamp, ApiError> {
    let parameters = call.parameters();
    let part = |name| Ok::<Arc<str>, ApiError>(text(parameters, name)?.unwrap_or_default().into());
    Ok(Stamp { author: part("author")?, time_ms: call.context.clock.now().0, message: part("message")? })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::openapi;
    use super::*;

    /// All last segments. The match has no wildcard arm, so that a new verb is added to `VERBS`,
    /// too.
    fn segment(verb: Verb) -> &'static str {
        match verb {
            Verb::Diff => "diff",
            Verb::Download => "dl",
            Verb::Export => "export",
            Verb::History => "history",
            Verb::Import => "import",
            Verb::Policy => "policy",
            Verb::Publish => "publish",
            Verb::Rollback => "rollback",
            Verb::Watch => "watch",
        }
    }

    const VERBS: [Verb; 9] = [
        Verb::Diff,
        Verb::Download,
        Verb::Export,
        Verb::History,
        Verb::Import,
        Verb::Policy,
        Verb::Publish,
        Verb::Rollback,
        Verb::Watch,
    ];

    #[test]
    fn every_place_is_described_with_the_methods_that_it_takes() {
        let of_namespace = "/api/namespaces/{namespace}";
        let mut paths = vec!["/api/namespaces".to_owned(), of_namespace.to_owned()];
        for below in ["", "/pairs/{key}", "/containers/{key}"] {
            paths.extend(VERBS.map(|verb| format!("{of_namespace}{below}/{}", segment(verb))));
        }
        for kind in ["pairs", "containers"] {
            paths.extend([format!("{of_namespace}/{kind}"), format!("{of_namespace}/{kind}/{{key}}")]);
        }
        let mut taken = BTreeSet::new();
        for path in paths {
            let real = path.replace("{namespace}", "ns").replace("{key}", "k");
            let place = ConfigPath::of(real.trim_start_matches("/api/")).unwrap();
            let methods = allowed(&place).split(", ").filter(|method| !matches!(*method, "" | "HEAD"));
            taken.extend(methods.map(|method| (path.clone(), method.to_owned())));
        }
        let described = openapi::methods().into_iter().filter(|(path, _)| path.starts_with("/api/"));
        assert_eq!(described.collect::<BTreeSet<_>>(), taken);
    }
}
