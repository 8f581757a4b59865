//! Replies to queries about one namespace, from its current state or an earlier one.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::history::Undo;
use super::namespace::{Contents, Namespace, resolve};
use crate::command::config::{
    Changes, ConfigError, ConfigReply, Container, Content, DocumentChange, Export, Found, Item,
    NamespaceView, Pair, Query, Selection,
};
use crate::limits;

/// The reply for a namespace that does not exist. A watching client gets an empty result, other
/// queries are refused.
pub(super) fn without_namespace(query: &Query) -> Result<ConfigReply, ConfigError> {
    match query {
        Query::Changes { .. } => {
            Ok(ConfigReply::Changes(Changes { revision: 0, has_gap: false, events: Vec::new() }))
        }
        _ => Err(ConfigError::NoNamespace),
    }
}

impl Namespace {
    /// Answers a query.
    pub(super) fn answer(&self, query: &Query) -> Result<ConfigReply, ConfigError> {
        let revision = self.revision;
        Ok(match query {
            Query::Namespace => ConfigReply::Namespace(self.view()),
            Query::Pairs(selection) => {
                let (total, items) = select(&self.contents.pairs, selection);
                ConfigReply::Pairs { revision, total, items }
            }
            Query::Containers(selection) => {
                let (total, items) = select(&self.contents.containers, selection);
                ConfigReply::Containers { revision, total, items }
            }
            Query::Pair { key, at } => {
                let contents = self.contents_at(*at)?;
                let pair = contents.pairs.get(key).ok_or_else(|| ConfigError::NoPair(key.clone()))?;
                ConfigReply::Pair { revision: at.unwrap_or(revision), pair: pair.clone() }
            }
            Query::Container { key, at: None, known } => {
                let missing = || ConfigError::NoContainer(key.clone());
                let container = self.contents.containers.get(key).ok_or_else(missing)?;
                if *known == Some(container.touched) {
                    return Ok(ConfigReply::Unchanged { revision });
                }
                ConfigReply::Container(found(revision, container, |key| self.contents.pairs.get(key)))
            }
            Query::Container { key, at: Some(at), .. } => {
                let contents = self.at(*at)?;
                let container =
                    contents.containers.get(key).ok_or_else(|| ConfigError::NoContainer(key.clone()))?;
                // The history does not track changes of the pairs to which an old container refers,
                // so resolve it here.
                let mut resolved = Container::clone(container);
                let pair = |key: &str| contents.pairs.get(key).map(|pair| &**pair);
                resolve(&mut resolved, pair, &mut String::new());
                ConfigReply::Container(found(*at, &Arc::new(resolved), |key| contents.pairs.get(key)))
            }
            Query::History { item, before, limit } => {
                ConfigReply::History(self.page(item.as_ref(), *before, *limit))
            }
            Query::Export { at } => {
                let Contents { pairs, containers } = self.contents_at(*at)?;
                let (revision, policy) = (at.unwrap_or(revision), self.policy);
                ConfigReply::Export(Export { revision, policy, pairs, containers })
            }
            Query::Changes { key, after } => ConfigReply::Changes(self.changes(key, *after)),
            Query::Preview(_) => unreachable!("invariant: `Config` answers it"),
        })
    }

    fn view(&self) -> NamespaceView {
        NamespaceView {
            revision: self.revision,
            oldest: self.oldest(),
            pairs: self.contents.pairs.len() as u64,
            containers: self.contents.containers.len() as u64,
            bytes: self.bytes as u64,
            history_bytes: self.history_bytes as u64,
            policy: self.policy,
        }
    }

    fn contents_at(&self, at: Option<u64>) -> Result<Contents, ConfigError> {
        match at {
            Some(at) => self.at(at),
            None => Ok(self.contents.clone()),
        }
    }

    /// The documents of a container after revision `after`, found by undoing one revision after the
    /// other.
    fn changes(&self, key: &Arc<str>, after: u64) -> Changes {
        let revision = self.revision;
        let now = self.contents.containers.get(key);
        if after >= revision || now.is_some_and(|container| container.changed <= after) {
            return Changes { revision, has_gap: false, events: Vec::new() };
        }
        // The oldest kept revision also contains the state before it.
        let is_missing = |first: u64| first > self.began + 1 && after + 1 < first;
        let has_gap = self.history.front().is_some_and(|oldest| is_missing(oldest.number));
        if has_gap {
            let found = now.map(|container| found(revision, container, |key| self.contents.pairs.get(key)));
            let changed = now.map_or(revision, |container| container.changed);
            let event = DocumentChange { revision: changed, found };
            return Changes { revision, has_gap, events: alloc::vec![event] };
        }
        let mut events = VecDeque::new();
        let mut state = Rewound { namespace: self, pairs: BTreeMap::new(), container: now.cloned(), key };
        let mut document = state.document();
        for later in self.history.iter().rev().take_while(|later| later.number > after) {
            if !later.undo.iter().any(|undo| state.concerns(undo)) {
                later.undo.iter().for_each(|undo| state.undo(undo));
                continue;
            }
            let after_it = state.found(later.number);
            later.undo.iter().for_each(|undo| state.undo(undo));
            let before = state.document();
            if before != document {
                events.push_front(DocumentChange { revision: later.number, found: after_it });
                // The client gets the first events, and asks again for the rest.
                events.truncate(limits::CONFIG_CHANGES_MAX);
            }
            document = before;
        }
        // A client that knows the container from before the namespace was deleted and created again
        // has not learnt of the deletion.
        let first = self.began + 1;
        let is_of_earlier_life = after > 0 && after <= self.began;
        if is_of_earlier_life && events.front().is_none_or(|event| event.revision != first) {
            events.push_front(DocumentChange { revision: first, found: None });
            events.truncate(limits::CONFIG_CHANGES_MAX);
        }
        Changes { revision, has_gap: false, events: events.into() }
    }
}

/// One container while the history is undone.
struct Rewound<'a> {
    namespace: &'a Namespace,
    key: &'a Arc<str>,
    container: Option<Arc<Container>>,
    /// Pairs that had other content at that revision.
    pairs: BTreeMap<&'a Arc<str>, Option<&'a Arc<Pair>>>,
}

impl<'a> Rewound<'a> {
    fn pair(&self, key: &str) -> Option<&'a Arc<Pair>> {
        let namespace = self.namespace;
        let rewound = self.pairs.iter().find(|(known, _)| known.as_ref() == key);
        rewound.map_or_else(|| namespace.contents.pairs.get(key), |(_, pair)| *pair)
    }

    fn concerns(&self, undo: &Undo) -> bool {
        match &undo.item {
            Item::Container(key) => key == self.key,
            Item::Pair(key) => {
                self.container.iter().any(|container| container.pairs().any(|used| used == key))
            }
        }
    }

    fn undo(&mut self, undo: &'a Undo) {
        match (&undo.item, &undo.before) {
            (Item::Pair(key), Some(Content::Pair(pair))) => {
                self.pairs.insert(key, Some(pair));
            }
            (Item::Pair(key), _) => {
                self.pairs.insert(key, None);
            }
            (Item::Container(key), Some(Content::Container(container))) if key == self.key => {
                self.container = Some(container.clone());
            }
            (Item::Container(key), _) if key == self.key => self.container = None,
            (Item::Container(_), _) => {}
        }
    }

    fn found(&self, revision: u64) -> Option<Found> {
        let container = self.container.as_ref()?;
        let mut resolved = Container::clone(container);
        let pair = |key: &str| self.pair(key).map(|pair| &**pair);
        resolve(&mut resolved, pair, &mut String::new());
        (resolved.touched, resolved.changed) = (revision, revision);
        Some(found(revision, &Arc::new(resolved), |key| self.pair(key)))
    }

    fn document(&self) -> Option<String> {
        let container = self.container.as_ref()?;
        let mut out = String::with_capacity(container.document_bytes);
        let pair = |key: &str| self.pair(key).map(|pair| &**pair);
        crate::command::config::write_document(container, pair, &mut out);
        Some(out)
    }
}

/// A container with its pairs, as `pair` looks them up.
fn found<'a>(
    revision: u64,
    container: &Arc<Container>,
    pair: impl Fn(&str) -> Option<&'a Arc<Pair>>,
) -> Found {
    let held = |key: &Arc<str>| pair(key).map(|pair| (key.clone(), pair.clone()));
    Found { revision, container: container.clone(), pairs: container.pairs().filter_map(held).collect() }
}

/// The number of matching keys, and the selected page of them.
fn select<T: Clone>(all: &BTreeMap<Arc<str>, T>, selection: &Selection) -> (usize, Vec<(Arc<str>, T)>) {
    let Selection { contains, offset, limit } = selection;
    let page = |(key, item): (&Arc<str>, &T)| (key.clone(), item.clone());
    if contains.is_empty() {
        return (all.len(), all.iter().skip(*offset).take(*limit).map(page).collect());
    }
    let matching = || all.iter().filter(|(key, _)| key.contains(&**contains));
    (matching().count(), matching().skip(*offset).take(*limit).map(page).collect())
}
