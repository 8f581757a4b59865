//! Scatter-gather: collects the replies of many shards to one read and merges them.

use alloc::vec::Vec;
use bytes::Bytes;

use crate::command::{Item, KeyChanges, Page, Read, ReadReply, Refusal, Reply, ShardError};
use crate::limits;
use crate::slots::SLOTS;
use crate::slots::slot_set::SlotSet;

/// The replies collected so far.
///
/// Each reply covers the slots that its shard owned at the time. Together they are a valid answer
/// only if they cover every slot exactly once. Otherwise, while slots move, a key could be missed
/// or returned twice although it existed throughout.
#[derive(Debug)]
pub(super) struct Gather {
    outstanding: usize,
    parts: Parts,
    covered: SlotSet,
    is_apart: bool,
}

/// The replies do not cover every slot exactly once, because slots are being moved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotsNotCovered;

#[derive(Debug)]
enum Parts {
    /// Pages, to merge into one of at most `limit` items.
    Pages { limit: usize, pages: Vec<Page> },
    /// Counts, to add up.
    Count(u64),
    /// Changes of keys, to put one after the other.
    Changes(KeyChanges),
    /// An answer that makes all others useless.
    Failed(Result<Reply, SlotsNotCovered>),
}

impl Gather {
    /// Expects the replies of `shards` shards to a read.
    pub(super) fn new(read: &Read, shards: usize) -> Gather {
        let parts = match read {
            Read::List { limit, .. } | Read::ConfigNamespaces { limit, .. } | Read::Leases { limit, .. } => {
                Parts::Pages { limit: *limit, pages: Vec::with_capacity(shards) }
            }
            Read::Count => Parts::Count(0),
            Read::Changes { .. } => Parts::Changes(KeyChanges::default()),
            Read::Get { .. }
            | Read::Operations { .. }
            | Read::Scan { .. }
            | Read::Lease { .. }
            | Read::Lock { .. }
            | Read::Config(_) => Parts::Failed(Ok(Reply::Refused(Refusal::invalid("a read of one shard")))),
        };
        Gather { outstanding: shards, parts, covered: SlotSet::default(), is_apart: true }
    }

    /// Adds the reply of one shard, which covers the slots `owned`. Returns the merged reply after
    /// the last one.
    pub(super) fn add(
        &mut self,
        owned: SlotSet,
        reply: Result<ReadReply, ShardError>,
    ) -> Option<Result<Reply, SlotsNotCovered>> {
        self.is_apart &= !self.covered.overlaps(&owned);
        self.covered = self.covered.union(&owned);
        match (&mut self.parts, reply) {
            (Parts::Pages { pages, .. }, Ok(ReadReply::Page(page))) => pages.push(page),
            (Parts::Count(sum), Ok(ReadReply::Count(count))) => *sum += count,
            (Parts::Changes(all), Ok(ReadReply::Changes(part))) => append(all, part, &owned),
            (Parts::Failed(_), _) => {}
            (parts, Ok(other)) => *parts = Parts::Failed(Ok(Reply::Read(other))),
            (parts, Err(ShardError::Refused(refusal))) => {
                *parts = Parts::Failed(Ok(Reply::Refused(refusal.into())));
            }
            (parts, Err(ShardError::NotHere)) => *parts = Parts::Failed(Err(SlotsNotCovered)),
        }
        self.outstanding -= 1;
        if self.outstanding > 0 {
            return None;
        }
        let is_whole = self.is_apart && self.covered.count() == u32::from(SLOTS);
        Some(match core::mem::replace(&mut self.parts, Parts::Count(0)) {
            Parts::Failed(answer) => answer,
            _ if !is_whole => Err(SlotsNotCovered),
            Parts::Pages { limit, pages } => Ok(Reply::Read(ReadReply::Page(merge(pages, limit)))),
            Parts::Count(sum) => Ok(Reply::Read(ReadReply::Count(sum))),
            // A shard whose slots have just come is not asked for them yet.
            Parts::Changes(changes) if changes.through.slots() != SlotSet::all() => Err(SlotsNotCovered),
            Parts::Changes(changes) => Ok(Reply::Read(ReadReply::Changes(changes))),
        })
    }
}

/// Appends the changes of one shard, which owned these slots.
fn append(all: &mut KeyChanges, part: KeyChanges, owned: &SlotSet) {
    all.has_gap |= part.has_gap;
    all.has_more |= part.has_more;
    all.changes.extend(part.changes);
    all.through.raise(&part.through.within(owned));
}

/// Merges pages that are each in key order and have no key in common.
///
/// If a shard's page was cut short, the merged page ends at the last key of that page, because the
/// shard's further keys are unknown.
fn merge(pages: Vec<Page>, limit: usize) -> Page {
    let horizon = pages.iter().filter_map(|page| page.next.clone()).min();
    let mut items: Vec<Item> = pages.into_iter().flat_map(|page| page.items).collect();
    items.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    let known = horizon.as_ref().map_or(items.len(), |last| items.partition_point(|item| item.key <= *last));
    let cut = known.min(limit).min(within_page_bytes(&items));
    let complete = horizon.is_none() && cut == items.len();
    items.truncate(cut);
    // Up to the horizon, the merged page is complete.
    let next = match horizon {
        _ if complete => None,
        Some(horizon) if cut == known => Some(horizon),
        _ => items.last().map(|item| item.key.clone()),
    };
    Page { items, next }
}

/// Number of items that fit one page; at least one, so that paging always makes progress.
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
    use crate::command::ShardRefusal;
    use crate::slots;
    use crate::types::{ShardId, Version};
    use alloc::vec;

    fn page(keys: &[&'static str], cut: bool) -> Page {
        let items: Vec<Item> = keys
            .iter()
            .map(|key| Item {
                key: Bytes::from_static(key.as_bytes()),
                version: Version(1),
                value: None,
                expires: None,
            })
            .collect();
        let next = if cut { items.last().map(|item| item.key.clone()) } else { None };
        Page { items, next }
    }

    fn gather(limit: usize, pages: Vec<Page>) -> (Vec<Bytes>, Option<Bytes>) {
        let (prefix, after) = (Bytes::new(), None);
        let read = Read::List { prefix, after, limit, keys_only: true };
        let mut gather = Gather::new(&read, pages.len());
        let mut merged = None;
        let count = pages.len() as u64;
        for (shard, page) in (1..).zip(pages) {
            assert!(merged.is_none());
            let share = slots::founding_share(ShardId(shard), count);
            merged = gather.add(share, Ok(ReadReply::Page(page)));
        }
        let Some(Ok(Reply::Read(ReadReply::Page(merged)))) = merged else { panic!("all pages are there") };
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
    fn numbers_add_up_and_a_refusal_spoils_them() {
        let share = |shard| slots::founding_share(ShardId(shard), 2);
        let mut gather = Gather::new(&Read::Count, 2);
        assert_eq!(gather.add(share(1), Ok(ReadReply::Count(3))), None);
        assert_eq!(gather.add(share(2), Ok(ReadReply::Count(4))), Some(Ok(Reply::Read(ReadReply::Count(7)))));
        let mut gather = Gather::new(&Read::Count, 2);
        assert_eq!(gather.add(share(1), Err(ShardRefusal::DiskUnavailable.into())), None);
        let refused = Reply::Refused(Refusal::DiskUnavailable);
        assert_eq!(gather.add(share(2), Ok(ReadReply::Count(4))), Some(Ok(refused)));
        let mut gather = Gather::new(&Read::Count, 2);
        assert_eq!(gather.add(share(1), Err(ShardError::NotHere)), None);
        assert_eq!(gather.add(share(2), Ok(ReadReply::Count(4))), Some(Err(SlotsNotCovered)));
    }

    #[test]
    fn parts_that_miss_a_slot_or_share_one_are_none() {
        let count = |shares: [SlotSet; 2]| {
            let mut gather = Gather::new(&Read::Count, 2);
            shares.map(|share| gather.add(share, Ok(ReadReply::Count(1))))[1].take_if(|_| true)
        };
        let set = |begin, end| SlotSet::from(begin..end);
        assert_eq!(count([set(0, 9), set(9, SLOTS)]), Some(Ok(Reply::Read(ReadReply::Count(2)))));
        assert_eq!(count([set(0, 9), set(10, SLOTS)]), Some(Err(SlotsNotCovered)), "a slot on its way");
        assert_eq!(
            count([set(0, 9), set(8, SLOTS)]),
            Some(Err(SlotsNotCovered)),
            "a slot that came meanwhile"
        );
    }

    #[test]
    fn nothing_behind_a_page_cut_short_is_returned() {
        // The first shard may have "b" after its last key: returning "c" now would skip it.
        let (keys, next) = gather(10, vec![page(&["a"], true), page(&["c"], false)]);
        assert_eq!((keys, next), (vec!["a".into()], Some("a".into())));
    }
}
