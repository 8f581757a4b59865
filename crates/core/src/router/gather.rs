//! One list over many shards: collects a page from each and merges them in key order.

use alloc::vec::Vec;
use bytes::Bytes;

use crate::command::{Item, Page};
use crate::limits;

/// A list whose shards have not all answered yet.
#[derive(Debug)]
pub(super) struct Gather {
    limit: usize,
    outstanding: usize,
    pages: Vec<Page>,
}

impl Gather {
    /// Waits for `shards` pages to make one of at most `limit` items.
    pub(super) fn new(limit: usize, shards: usize) -> Gather {
        Gather { limit, outstanding: shards, pages: Vec::with_capacity(shards) }
    }

    /// Takes one shard's page; returns the merged one when it was the last.
    pub(super) fn add(&mut self, page: Page) -> Option<Page> {
        self.pages.push(page);
        self.outstanding -= 1;
        (self.outstanding == 0).then(|| merge(core::mem::take(&mut self.pages), self.limit))
    }
}

/// Merges pages, each in key order, no key in two of them.
///
/// A shard's page that was cut short ends the merged one at its last key: what follows there is unknown.
fn merge(pages: Vec<Page>, limit: usize) -> Page {
    let horizon = pages.iter().filter_map(|page| page.next.clone()).min();
    let mut items: Vec<Item> = pages.into_iter().flat_map(|page| page.items).collect();
    items.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    let known = horizon.as_ref().map_or(items.len(), |last| items.partition_point(|item| item.key <= *last));
    let cut = known.min(limit).min(within_page_bytes(&items));
    let complete = horizon.is_none() && cut == items.len();
    items.truncate(cut);
    let next = if complete { None } else { items.last().map(|item| item.key.clone()) };
    Page { items, next }
}

/// How many items fit one page; at least one, so that paging always goes on.
fn within_page_bytes(items: &[Item]) -> usize {
    let mut page_bytes = 0;
    let fits = |item: &&Item| {
        let room = page_bytes < limits::LIST_PAGE_BYTES_MAX;
        page_bytes += item.key.len() + item.value.as_ref().map_or(0, Bytes::len);
        room
    };
    items.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Version;
    use alloc::vec;

    fn page(keys: &[&'static str], cut: bool) -> Page {
        let items: Vec<Item> = keys
            .iter()
            .map(|key| Item { key: Bytes::from_static(key.as_bytes()), version: Version(1), value: None })
            .collect();
        let next = if cut { items.last().map(|item| item.key.clone()) } else { None };
        Page { items, next }
    }

    fn gather(limit: usize, pages: Vec<Page>) -> (Vec<Bytes>, Option<Bytes>) {
        let mut gather = Gather::new(limit, pages.len());
        let mut merged = None;
        for page in pages {
            assert!(merged.is_none());
            merged = gather.add(page);
        }
        let merged = merged.expect("all pages are there");
        (merged.items.into_iter().map(|item| item.key).collect(), merged.next)
    }

    #[test]
    fn pages_merge_in_key_order() {
        let (keys, next) = gather(10, vec![page(&["a", "d"], false), page(&[], false), page(&["b"], false)]);
        assert_eq!((keys, next), (vec!["a".into(), "b".into(), "d".into()], None));
    }

    #[test]
    fn the_limit_cuts_and_names_where_to_go_on() {
        let (keys, next) = gather(2, vec![page(&["a", "d"], false), page(&["b", "c"], false)]);
        assert_eq!((keys, next), (vec!["a".into(), "b".into()], Some("b".into())));
    }

    #[test]
    fn nothing_behind_a_page_cut_short_is_returned() {
        // The first shard may hold "b" behind its cut: returning "c" now would skip it.
        let (keys, next) = gather(10, vec![page(&["a"], true), page(&["c"], false)]);
        assert_eq!((keys, next), (vec!["a".into()], Some("a".into())));
    }
}
