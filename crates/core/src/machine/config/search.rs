//! Search in the keys and values of a namespace.
//!
//! One step examines a bounded number of bytes, so that a search in a large namespace delays no
//! other request of the shard for long. The client asks for the next step.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use super::namespace::{Namespace, container_bytes, pair_bytes};
use crate::command::config::{Content, Item, Search, SearchMatch, SearchPage};
use crate::limits;

impl Namespace {
    /// The containers that refer to a pair, in order.
    pub(super) fn users_of(&self, pair: &str) -> Vec<Arc<str>> {
        self.users.get(pair).into_iter().flatten().cloned().collect()
    }

    /// One step of a search.
    pub(super) fn search(&self, search: &Search) -> SearchPage {
        let mut page = SearchPage { revision: self.revision, matches: Vec::new(), next: None };
        let mut examined = 0;
        for item in self.items_after(search.after.as_ref()) {
            if page.matches.len() >= search.limit || examined >= limits::CONFIG_SEARCH_STEP_BYTES {
                return page;
            }
            page.next = Some(item.clone());
            let Some(content) = self.contents.get(&item) else { continue };
            examined += bytes_of(&item, &content);
            if item.key().contains(&*search.text) || is_match(&content, &search.text) {
                let containers = match &item {
                    Item::Pair(key) => self.users_of(key),
                    Item::Container(_) => Vec::new(),
                };
                page.matches.push(SearchMatch { item, content, containers });
            }
        }
        page.next = None;
        page
    }

    /// Pairs, then containers, each in the order of their keys.
    fn items_after<'a>(&'a self, after: Option<&'a Item>) -> impl Iterator<Item = Item> + use<'a> {
        let all = Bound::Unbounded;
        let (pairs, containers) = match after {
            None => (Some(all), all),
            Some(Item::Pair(key)) => (Some(Bound::Excluded(key)), all),
            Some(Item::Container(key)) => (None, Bound::Excluded(key)),
        };
        let pairs = pairs.map(|start| keys(&self.contents.pairs, start));
        let containers = keys(&self.contents.containers, containers);
        pairs.into_iter().flatten().map(Item::Pair).chain(containers.map(Item::Container))
    }
}

fn keys<'a, T>(
    all: &'a BTreeMap<Arc<str>, T>,
    start: Bound<&'a Arc<str>>,
) -> impl Iterator<Item = Arc<str>> + use<'a, T> {
    all.range::<Arc<str>, _>((start, Bound::Unbounded)).map(|(key, _)| key.clone())
}

fn bytes_of(item: &Item, content: &Content) -> usize {
    match content {
        Content::Pair(pair) => pair_bytes(item.key(), pair),
        Content::Container(container) => container_bytes(item.key(), container),
    }
}

fn is_match(content: &Content, text: &str) -> bool {
    match content {
        Content::Pair(pair) => pair.value.contains_text(text),
        Content::Container(container) => container.fields.iter().any(|field| field.key.contains(text)),
    }
}
