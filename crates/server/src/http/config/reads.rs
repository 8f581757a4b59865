//! Reads of the configuration centre: lists, single items, history and differences.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use tidelock_api::etag::{self, EntityTag};
use tidelock_api::{config as api, revisions};
use tidelock_core::command::config::{Content, Export, Found, HistoryPage, Item, Name, Selection, Value};
use tidelock_core::command::{Page, Read};
use tidelock_core::limits;

use super::super::response::{self, Response};
use super::super::service::Call;
use super::cache::Document;
use super::error::ApiError;
use super::queries::{self, Selected};
use super::secrets::Reveal;
use super::show::{self, HistoryDetail, action};
use super::{ask, label, limit, measured, measured_export, number, offload, offset, text, transfer};
use crate::requests;
use crate::store::Store;

/// Default number of pairs, containers or revisions on a page.
const PAGE_ITEMS: usize = 10;

/// Default number of names on a page.
const PAGE_NAMES: usize = 100;

/// `GET /namespaces?limit=&offset=&key=`: names, in order, over all shards.
pub(super) async fn namespaces<S: Store>(call: Call<'_, S>) -> Result<Response, ApiError> {
    let parameters = call.parameters();
    let (limit, mut skip) = (limit(parameters, PAGE_NAMES)?, offset(parameters)?);
    let prefix = Bytes::from(text(parameters, "key")?.unwrap_or_default());
    let consistency = parameters.consistency()?;
    let mut names: Vec<Bytes> = Vec::new();
    let mut after = None;
    loop {
        let wanted = skip.saturating_add(limit - names.len()).min(limits::LIST_PAGE_ITEMS_MAX);
        let read = Read::ConfigNamespaces { prefix: prefix.clone(), after: after.take(), limit: wanted };
        let Page { items, next } = call.store().ask(requests::page(read, consistency)).await?;
        let skipped = skip.min(items.len());
        skip -= skipped;
        let room = limit - names.len();
        names.extend(items.into_iter().skip(skipped).take(room).map(|item| item.key));
        if names.len() == limit || next.is_none() {
            break;
        }
        after = next;
    }
    let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
    Ok(show::respond(names))
}

/// `GET /namespaces/:ns`.
pub(super) async fn namespace<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let view = ask(&call, &namespace, queries::namespace()).await?;
    Ok(show::respond(show::namespace(&namespace, &view)))
}

fn selection<S: Store>(call: &Call<'_, S>) -> Result<Selection, ApiError> {
    let parameters = call.parameters();
    let contains = text(parameters, "key")?.unwrap_or_default().into();
    Ok(Selection { contains, offset: offset(parameters)?, limit: limit(parameters, PAGE_ITEMS)? })
}

/// `GET /namespaces/:ns/pairs?limit=&offset=&key=`.
pub(super) async fn pairs<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let query = queries::pairs(selection(&call)?);
    let Selected { total, items } = ask(&call, &namespace, query).await?;
    let pairs = items.iter().map(|(key, pair)| show::pair(&namespace, key, pair)).collect();
    Ok(show::respond(api::PairPage { pairs, total: total as u64 }))
}

/// `GET /namespaces/:ns/pairs/:key/containers`: the keys of the containers that refer to a pair.
pub(super) async fn users<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let containers = ask(&call, &namespace, queries::users(key)).await?;
    Ok(show::respond(containers.iter().map(|key| key.to_string()).collect::<Vec<_>>()))
}

/// `GET /namespaces/:ns/containers/:key/blame`: who wrote each value of a container, and when.
pub(super) async fn blame<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let blame = ask(&call, &namespace, queries::blame(key)).await?;
    let bytes = blame.found.container.document_bytes;
    let shown = offload(&call, bytes, move || Ok(show::success(show::blame(&blame)))).await?;
    Ok(response::json(shown))
}

/// `GET /namespaces/:ns/containers?limit=&offset=&key=`.
pub(super) async fn containers<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let query = queries::containers(selection(&call)?);
    let Selected { total, items } = ask(&call, &namespace, query).await?;
    let shown = items.iter().map(|(key, container)| show::container_in_list(&namespace, key, container));
    Ok(show::respond(api::ContainerPage { containers: shown.collect(), total: total as u64 }))
}

/// `GET /namespaces/:ns/pairs/:key?revision=&reveal=`.
pub(super) async fn pair<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let (at, reveal) = (number(call.parameters(), "revision")?, Reveal::of(&call, &namespace)?);
    let pair = ask(&call, &namespace, queries::pair(key.clone(), at)).await?;
    if let Some(reveal) = reveal {
        return reveal.pair(&call, &key, &pair);
    }
    Ok(show::respond(show::pair(&namespace, &key, &pair)))
}

/// `GET …/schema?revision=` of a pair or a container: null if it has none.
pub(super) async fn schema<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    item: Item,
) -> Result<Response, ApiError> {
    let at = number(call.parameters(), "revision")?;
    let schema = match item {
        Item::Pair(key) => ask(&call, &namespace, queries::pair(key, at)).await?.schema.clone(),
        Item::Container(key) => {
            ask(&call, &namespace, queries::container(key, at)).await?.container.schema.clone()
        }
    };
    Ok(show::respond(schema.as_deref().map(show::schema)))
}

/// `GET /namespaces/:ns/containers/:key?revision=&reveal=`. The entity tag is the checksum.
pub(super) async fn container<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let at = number(call.parameters(), "revision")?;
    let label = label(call.parameters())?;
    if let Some(reveal) = Reveal::of(&call, &namespace)? {
        let query = queries::labelled(label, queries::container(key.clone(), at));
        let found = ask(&call, &namespace, query).await?;
        return reveal.container(&call, &key, found).await;
    }
    // The cache holds what readers without a label are shown.
    let is_cached = at.is_none() && label.is_none();
    let documents = &call.context.documents;
    let forget = |error: ApiError| {
        if error.is_not_found() {
            documents.forget(&namespace, &key);
        }
        error
    };
    let cached = if is_cached { documents.get(&namespace, &key) } else { None };
    let document = if let Some(cached) = cached {
        let query = queries::newer_container(key.clone(), cached.touched);
        let newer = ask(&call, &namespace, query).await.map_err(forget)?;
        newer.map_or(cached, |found| documents.make(&namespace, &key, &found))
    } else {
        let query = queries::labelled(label, queries::container(key.clone(), at));
        let found = ask(&call, &namespace, query).await.map_err(forget)?;
        if is_cached {
            documents.make(&namespace, &key, &found)
        } else {
            let etag = super::cache::etag(&found.container.checksum);
            let body = show::success(show::container(&namespace, &key, &found));
            Document { touched: 0, body: body.into(), etag }.into()
        }
    };
    Ok(conditional(&call, &document.etag, || {
        response::typed(StatusCode::OK, "application/json", document.body.clone())
    }))
}

/// An answer with an entity tag, or 304 if the client has that version.
pub(super) fn conditional<S: Store>(
    call: &Call<'_, S>,
    etag: &HeaderValue,
    answer: impl FnOnce() -> Response,
) -> Response {
    let current = EntityTag::parse(etag.as_bytes()).map(|tag| tag.opaque);
    let mut known = call.headers().get_all(IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
    let is_current = |tag: EntityTag<'_>| Some(tag.opaque) == current;
    let is_known = known.any(|header| header == b"*" || etag::list(header).flatten().any(is_current));
    let mut response = if is_known { response::empty(StatusCode::NOT_MODIFIED) } else { answer() };
    if is_known {
        response.headers_mut().remove(CONTENT_TYPE);
    }
    response.headers_mut().insert(ETAG, etag.clone());
    response
}

/// `GET …/history?limit=&before=`, of a namespace or of one item; for an item with its contents
/// before and after each change.
pub(super) async fn history<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    item: Option<Item>,
) -> Result<Response, ApiError> {
    let parameters = call.parameters();
    let (limit, before) = (limit(parameters, PAGE_ITEMS)?, number(parameters, "before")?);
    let with_content = parameters.flag("content")?;
    let detail = match item.is_some() || with_content {
        true => HistoryDetail::Contents,
        false => HistoryDetail::Names,
    };
    let page = ask(&call, &namespace, queries::history(item, before, limit)).await?;
    let bytes = match detail {
        HistoryDetail::Contents => measured_history(&page),
        HistoryDetail::Names => page.revisions.len(),
    };
    let write = move || Ok(show::success(show::history(&page, detail)));
    Ok(response::json(offload(&call, bytes, write).await?))
}

/// The size of a page's contents, exact only up to what matters to [`offload`].
fn measured_history(page: &HistoryPage) -> usize {
    let changes = page.revisions.iter().flat_map(|revision| &revision.changes);
    let contents = changes.flat_map(|change| [&change.before, &change.after]).flatten();
    measured(contents.map(|content| match content {
        Content::Pair(pair) => pair.value.json_bytes(),
        Content::Container(container) => container.pairs().map(|pair| pair.len()).sum(),
    }))
}

/// The two revisions to compare; the second one defaults to the newest.
async fn range<S: Store>(call: &Call<'_, S>, namespace: &Name) -> Result<(u64, u64), ApiError> {
    let parameters = call.parameters();
    let from = number(parameters, "from")?.ok_or_else(|| ApiError::invalid("from must be a revision"))?;
    let to = match number(parameters, "to")? {
        Some(to) => to,
        None => ask(call, namespace, queries::namespace()).await?.revision,
    };
    Ok((from, to))
}

/// `GET /namespaces/:ns/diff?from=&to=`: the pairs and containers that differ.
pub(super) async fn namespace_diff<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
) -> Result<Response, ApiError> {
    let (from, to) = range(&call, &namespace).await?;
    let before = ask(&call, &namespace, queries::export(Some(from))).await?;
    let after = ask(&call, &namespace, queries::export(Some(to))).await?;
    let bytes = measured_export(&before).max(measured_export(&after));
    let before = AtRevision { revision: from, content: before };
    let after = AtRevision { revision: to, content: after };
    let write = move || Ok(show::success(show_namespace_diff(&before, &after)));
    Ok(response::json(offload(&call, bytes, write).await?))
}

/// One side of a comparison.
pub(super) struct AtRevision<T> {
    pub revision: u64,
    pub content: T,
}

pub(super) fn show_namespace_diff(
    before: &AtRevision<Export>,
    after: &AtRevision<Export>,
) -> revisions::NamespaceDiff {
    let content = |export: &Export, item: &Item| match item {
        Item::Pair(key) => export.pairs.get(key).cloned().map(Content::Pair),
        Item::Container(key) => export.containers.get(key).cloned().map(Content::Container),
    };
    let items = |export: &Export| {
        let pairs = export.pairs.keys().cloned().map(Item::Pair);
        pairs.chain(export.containers.keys().cloned().map(Item::Container)).collect::<BTreeSet<_>>()
    };
    let all: BTreeSet<Item> = items(&before.content).union(&items(&after.content)).cloned().collect();
    let changes = all.into_iter().filter_map(|item| {
        let (was, is) = (content(&before.content, &item), content(&after.content, &item));
        let differs = !is_same(was.as_ref(), is.as_ref());
        differs.then(|| show::item_change(&item, was.as_ref(), is.as_ref(), HistoryDetail::Contents))
    });
    revisions::NamespaceDiff { from: before.revision, to: after.revision, changes: changes.collect() }
}

/// Compares the content that is shown, not the revision that wrote it.
fn is_same(before: Option<&Content>, after: Option<&Content>) -> bool {
    match (before, after) {
        (Some(Content::Pair(was)), Some(Content::Pair(is))) => {
            was.value == is.value && was.schema == is.schema
        }
        (Some(Content::Container(was)), Some(Content::Container(is))) => {
            was.fields == is.fields && was.schema == is.schema
        }
        (was, is) => was.is_none() && is.is_none(),
    }
}

/// `GET …/containers/:key/diff?from=&to=`: what the container resolved to at both revisions, and
/// the paths that differ.
pub(super) async fn container_diff<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let (from, to) = range(&call, &namespace).await?;
    let (before, after) =
        (resolved(&call, &namespace, &key, from).await?, resolved(&call, &namespace, &key, to).await?);
    if before.is_none() && after.is_none() {
        return Err(tidelock_core::command::config::ConfigError::NoContainer(key).into());
    }
    let bytes = measured([&before, &after].into_iter().flatten().map(|found| found.container.document_bytes));
    let write = move || {
        let (before, after) = (before.as_ref().map(transfer::tree), after.as_ref().map(transfer::tree));
        let before = AtRevision { revision: from, content: before.as_ref() };
        let after = AtRevision { revision: to, content: after.as_ref() };
        Ok(show::success(show_container_diff(&before, &after)))
    };
    Ok(response::json(offload(&call, bytes, write).await?))
}

fn show_container_diff(
    before: &AtRevision<Option<&Value>>,
    after: &AtRevision<Option<&Value>>,
) -> revisions::ContainerDiff {
    let mut changes = Vec::new();
    compare(&mut Vec::new(), before.content, after.content, &mut changes);
    revisions::ContainerDiff {
        from: before.revision,
        to: after.revision,
        before: show::value(before.content),
        after: show::value(after.content),
        changes,
    }
}

/// A container as of a revision; `None` if it did not exist.
async fn resolved<S: Store>(
    call: &Call<'_, S>,
    namespace: &Name,
    key: &Arc<str>,
    at: u64,
) -> Result<Option<Found>, ApiError> {
    match ask(call, namespace, queries::container(key.clone(), Some(at))).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_no_container() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Collects the differing entries of the innermost dicts.
fn compare(
    path: &mut Vec<String>,
    before: Option<&Value>,
    after: Option<&Value>,
    out: &mut Vec<revisions::PathChange>,
) {
    match (before, after) {
        (Some(Value::Dict(was)), Some(Value::Dict(is))) => {
            let keys: BTreeSet<&Arc<str>> = was.keys().chain(is.keys()).collect();
            for key in keys {
                path.push(key.to_string());
                compare(path, was.get(key), is.get(key), out);
                path.pop();
            }
        }
        (was, is) if was == is => {}
        (before, after) => out.push(revisions::PathChange {
            path: path.clone(),
            action: action(before, after).into(),
            before: show::value(before),
            after: show::value(after),
        }),
    }
}

/// A container as it is now, or as of a revision.
pub(super) async fn found<S: Store>(
    call: &Call<'_, S>,
    namespace: &Name,
    key: &Arc<str>,
) -> Result<Found, ApiError> {
    let at = number(call.parameters(), "revision")?;
    let label = label(call.parameters())?;
    ask(call, namespace, queries::labelled(label, queries::container(key.clone(), at))).await
}
