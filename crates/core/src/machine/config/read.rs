//! Replies to queries about one namespace, from its current state or an earlier one.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::namespace::{Contents, Namespace, resolve};
use crate::command::config::{
    Blame, Changes, ConfigError, ConfigReply, Container, Export, Found, NamespaceChanges, NamespaceView,
    Pair, Query, Selection,
};

/// The reply for a namespace that does not exist. A watching client gets an empty result, other
/// queries are refused.
pub(super) fn without_namespace(query: &Query) -> Result<ConfigReply, ConfigError> {
    match query {
        Query::Changes { .. } => {
            Ok(ConfigReply::Changes(Changes { revision: 0, has_gap: false, events: Vec::new() }))
        }
        Query::NamespaceChanges { after: Some(_) } => {
            let (revision, events) = (0, Vec::new());
            let nothing = NamespaceChanges { revision, has_gap: false, state: None, has_more: false, events };
            Ok(ConfigReply::NamespaceChanges(nothing))
        }
        _ => Err(ConfigError::NoNamespace),
    }
}

impl Namespace {
    /// Answers a query of a reader with a label, which may be empty.
    pub(super) fn answer(&self, query: &Query, label: &str) -> Result<ConfigReply, ConfigError> {
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
            Query::Search(search) => ConfigReply::Search(self.search(search)),
            Query::Users { key } => {
                if !self.contents.pairs.contains_key(key) {
                    return Err(ConfigError::NoPair(key.clone()));
                }
                ConfigReply::Users { revision, containers: self.users_of(key) }
            }
            Query::Blame { key } => ConfigReply::Blame(self.blame(key)?),
            Query::Changes { key, after } => ConfigReply::Changes(self.changes(key, *after, label)),
            Query::NamespaceChanges { after } => {
                ConfigReply::NamespaceChanges(self.namespace_changes(after.as_ref(), label))
            }
            Query::Drafts => {
                let drafts = self.drafts.iter().map(|(name, draft)| (name.clone(), draft.clone()));
                ConfigReply::Drafts { revision, drafts: drafts.collect() }
            }
            Query::Preview(_) | Query::Inheritance | Query::Draft { .. } | Query::Labelled { .. } => {
                unreachable!("invariant: `Config` answers it")
            }
        })
    }

    fn blame(&self, key: &Arc<str>) -> Result<Blame, ConfigError> {
        let container = self.contents.containers.get(key);
        let container = container.ok_or_else(|| ConfigError::NoContainer(key.clone()))?;
        let found = found(self.revision, container, |key| self.contents.pairs.get(key));
        let stamp = |revision: u64| {
            let position = self.history.binary_search_by_key(&revision, |kept| kept.number).ok()?;
            Some((revision, self.history[position].stamp.clone()))
        };
        let stamps = found.pairs.values().filter_map(|pair| stamp(pair.revision)).collect();
        Ok(Blame { found, stamps })
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
}

/// A container with its pairs, as `pair` looks them up.
pub(super) fn found<'a>(
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
