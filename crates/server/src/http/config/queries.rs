//! Queries of one namespace, each with the type of its answer.

use std::sync::Arc;

use tidelock_core::command::config::{
    Blame, ConfigOperation, ConfigPreview, ConfigReply, Container, Draft, DraftView, Export, Found,
    HistoryPage, Inheritance, Item, NamespaceView, Pair, Preview, Query, Search, SearchPage, Selection,
};

/// A query that is answered by an `A`.
pub(super) struct TypedQuery<A> {
    pub query: Query,
    /// Takes the answer out of the reply; `None` if the reply answers another query.
    pub answer: fn(ConfigReply) -> Option<A>,
}

/// A page of pairs or containers.
pub(super) struct Selected<T> {
    /// Number of items on all pages.
    pub total: usize,
    /// Sorted by key.
    pub items: Vec<(Arc<str>, Arc<T>)>,
}

/// The query, whose answer is taken out of the replies that match.
macro_rules! query {
    ($query:expr, $($reply:pat => $answer:expr),+ $(,)?) => {
        TypedQuery {
            query: $query,
            answer: |reply| match reply {
                $($reply => Some($answer),)+
                _ => None,
            },
        }
    };
}

pub(super) fn namespace() -> TypedQuery<NamespaceView> {
    query!(Query::Namespace, ConfigReply::Namespace(view) => view)
}

pub(super) fn pairs(selection: Selection) -> TypedQuery<Selected<Pair>> {
    query!(
        Query::Pairs(selection),
        ConfigReply::Pairs { total, items, .. } => Selected { total, items },
    )
}

pub(super) fn containers(selection: Selection) -> TypedQuery<Selected<Container>> {
    query!(
        Query::Containers(selection),
        ConfigReply::Containers { total, items, .. } => Selected { total, items },
    )
}

pub(super) fn pair(key: Arc<str>, at: Option<u64>) -> TypedQuery<Arc<Pair>> {
    query!(Query::Pair { key, at }, ConfigReply::Pair { pair, .. } => pair)
}

pub(super) fn container(key: Arc<str>, at: Option<u64>) -> TypedQuery<Found> {
    query!(Query::Container { key, at, known: None }, ConfigReply::Container(found) => found)
}

/// The container as it is now; `None` if no revision after `known` wrote it or one of its pairs.
pub(super) fn newer_container(key: Arc<str>, known: u64) -> TypedQuery<Option<Found>> {
    query!(
        Query::Container { key, at: None, known: Some(known) },
        ConfigReply::Container(found) => Some(found),
        ConfigReply::Unchanged { .. } => None,
    )
}

pub(super) fn history(item: Option<Item>, before: Option<u64>, limit: usize) -> TypedQuery<HistoryPage> {
    query!(Query::History { item, before, limit }, ConfigReply::History(page) => page)
}

pub(super) fn search(search: Search) -> TypedQuery<SearchPage> {
    query!(Query::Search(search), ConfigReply::Search(page) => page)
}

pub(super) fn users(key: Arc<str>) -> TypedQuery<Vec<Arc<str>>> {
    query!(Query::Users { key }, ConfigReply::Users { containers, .. } => containers)
}

pub(super) fn blame(key: Arc<str>) -> TypedQuery<Blame> {
    query!(Query::Blame { key }, ConfigReply::Blame(blame) => blame)
}

pub(super) fn export(at: Option<u64>) -> TypedQuery<Export> {
    query!(Query::Export { at }, ConfigReply::Export(export) => export)
}

pub(super) fn inheritance() -> TypedQuery<Inheritance> {
    query!(Query::Inheritance, ConfigReply::Inheritance(inheritance) => *inheritance)
}

pub(super) fn drafts() -> TypedQuery<Vec<(Arc<str>, Arc<Draft>)>> {
    query!(Query::Drafts, ConfigReply::Drafts { drafts, .. } => drafts)
}

pub(super) fn draft(draft: Arc<str>) -> TypedQuery<DraftView> {
    query!(Query::Draft { draft }, ConfigReply::Draft(view) => *view)
}

/// The query as a reader with a label asks it.
pub(super) fn labelled<A>(label: Option<Arc<str>>, query: TypedQuery<A>) -> TypedQuery<A> {
    match label {
        Some(label) => {
            let TypedQuery { query, answer } = query;
            TypedQuery { query: Query::Labelled { label, query: query.into() }, answer }
        }
        None => query,
    }
}

pub(super) fn preview(operation: ConfigOperation, expected: Option<u64>) -> TypedQuery<ConfigPreview> {
    query!(
        Query::Preview(Preview { expected, operation }.into()),
        ConfigReply::Preview(preview) => preview,
    )
}
