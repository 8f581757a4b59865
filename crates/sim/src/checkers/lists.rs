//! Checks each page of a list: in order, under its prefix, within its limit, and of one state of
//! each shard.
//!
//! `linearizability` judges whether items and absences are fresh enough, item by item. Here they
//! are compared with each other: if a shard's part shows some key at version `n`, the state it was
//! taken from had reached `n`, so no other key of that shard may show what a known mutation up to
//! `n` had already replaced, nor be missing unless it was absent at some state that all the others
//! allow. While slots move, this holds for the keys of slots that moved together.

use std::collections::BTreeMap;

use crate::slots::slot_of;
use bytes::Bytes;
use tidelock_core::command::{Page, Read, ReadReply, Reply, Request};
use tidelock_core::limits::LIST_PAGE_ITEMS_MAX;
use tidelock_core::types::Version;

use super::lineage::{Lineage, Lineages, covers};
use super::ownership::{SlotClass, SlotOwnership};
use super::{Checker, FinishedRun, Violation, describe};
use crate::compound::is_compound;
use crate::history::{History, Operation};

const CHECKER: &str = "lists";

/// Judges the lists and counts of keys.
pub struct Lists;

impl Checker for Lists {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        check(run.history, run.lineages()?, run.ownership()?)
    }
}

/// Checks every page of a list, by itself and against the lineages of its keys.
pub fn check(history: &History, lineages: &Lineages, ownership: &SlotOwnership) -> Result<(), Violation> {
    for operation in history.operations() {
        let (Request::Read { read: read @ Read::List { .. }, .. }, Some(Reply::Read(ReadReply::Page(page)))) =
            (&operation.request, operation.reply())
        else {
            continue;
        };
        let judge = PageCheck { operation, read, page };
        judge.shape()?;
        judge.one_state(lineages, ownership)?;
    }
    Ok(())
}

struct PageCheck<'a> {
    operation: &'a Operation,
    read: &'a Read,
    page: &'a Page,
}

impl PageCheck<'_> {
    fn shape(&self) -> Result<(), Violation> {
        let Read::List { limit, .. } = self.read else { return Ok(()) };
        let items = &self.page.items;
        if !items.is_sorted_by(|earlier, later| earlier.key < later.key) {
            return Err(self.blame("its keys do not rise".into()));
        }
        if let Some(item) = items.iter().find(|item| !covers(self.read, self.page, &item.key)) {
            return Err(self.blame(format!("\"{}\" is outside of it", item.key.escape_ascii())));
        }
        if let Some(item) = items.iter().find(|item| item.version == Version::ABSENT) {
            return Err(self.blame(format!("{} stands on it", describe(&item.key, item.version))));
        }
        if items.len() > (*limit).min(LIST_PAGE_ITEMS_MAX) {
            return Err(self.blame(format!("{} items for a limit of {limit}", items.len())));
        }
        if self.page.next.is_some() && items.is_empty() {
            return Err(self.blame("it is empty and yet goes on".into()));
        }
        Ok(())
    }

    fn one_state(&self, lineages: &Lineages, ownership: &SlotOwnership) -> Result<(), Violation> {
        let class_of = |key: &[u8]| ownership.class_of(slot_of(key));
        let mut spans: BTreeMap<SlotClass, Span> = BTreeMap::new();
        for item in &self.page.items {
            if is_compound(&item.key) {
                continue;
            }
            let span = spans.entry(class_of(&item.key)).or_default();
            span.reached = span.reached.max(item.version);
            if let Some(next) = lineages.get(&item.key).and_then(|lineage| next_after(lineage, item.version))
                && span.ended_by.as_ref().is_none_or(|(end, _)| next < *end)
            {
                span.ended_by = Some((next, item.key.clone()));
            }
        }
        for span in spans.values() {
            if let Some((end, key)) = &span.ended_by
                && *end <= span.reached
            {
                let key = key.escape_ascii();
                let text =
                    format!("\"{key}\" was replaced at {end}, beside a key at version {}", span.reached);
                return Err(self.blame(text));
            }
        }
        for (key, lineage) in lineages.iter().filter(|(key, _)| covers(self.read, self.page, key)) {
            let shown = self.page.items.iter().any(|item| item.key == *key);
            let span = spans.get(&class_of(key));
            if let (false, Some(span)) = (shown, span)
                && !span.can_lack(lineage)
            {
                let key = key.escape_ascii();
                let text =
                    format!("\"{key}\" existed, but is missing beside a key at version {}", span.reached);
                return Err(self.blame(text));
            }
        }
        Ok(())
    }

    fn blame(&self, text: String) -> Violation {
        Violation::new(CHECKER, format!("operation {}: {text}", self.operation.token))
    }
}

/// The possible revisions of the state from which a shard's part of a page was taken.
#[derive(Default)]
struct Span {
    /// The state had reached this revision: a key shows it.
    reached: Version,
    /// It had not reached this one, which replaced what this key shows.
    ended_by: Option<(Version, Bytes)>,
}

impl Span {
    /// Whether a key may be absent from some state of the span.
    fn can_lack(&self, lineage: &Lineage) -> bool {
        let first = lineage.gap_of(self.reached);
        let past_end = |version: Version| self.ended_by.as_ref().is_some_and(|(end, _)| version >= *end);
        let mut deletes = lineage.mutations[first..].iter().filter(|mutation| !mutation.is_put);
        !lineage.unknown_deletes.is_empty()
            || lineage.is_absent(first)
            || deletes.any(|delete| !past_end(delete.version))
    }
}

/// The version of the first known mutation of a key after a version.
fn next_after(lineage: &Lineage, version: Version) -> Option<Version> {
    lineage.mutations.get(lineage.gap_of(version)).map(|mutation| mutation.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{HistoryBuilder, KEY, always};
    use crate::checkers::lineage::lineages;
    use crate::checkers::operations::Ledger;
    use crate::history::value_of;
    use tidelock_core::command::Operation::Put;
    use tidelock_core::command::{Condition, Consistency, Item, Write};
    use tidelock_core::types::Token;

    const OTHER: Bytes = Bytes::from_static(b"other");

    fn verdict(history_builder: &HistoryBuilder) -> String {
        let lineages = lineages(&history_builder.history).unwrap();
        let ownership = SlotOwnership::of(&Ledger::default(), 1).expect("nothing moved");
        check(&history_builder.history, &lineages, &ownership)
            .err()
            .map_or_else(String::new, |violation| violation.message)
    }

    fn put_other(history_builder: &mut HistoryBuilder, version: u64) -> Token {
        let value = value_of(history_builder.history.next_token(), 20);
        let put = Write::of(&Put { key: &OTHER, value: &value, condition: Condition::Always });
        let put = history_builder.ask(Request::Write(put));
        history_builder.written(put, version, true);
        put
    }

    #[test]
    fn a_page_of_two_states_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let old = history_builder.puts(1, true);
        let list = history_builder.list();
        history_builder.puts(2, false);
        let other = put_other(&mut history_builder, 3);
        history_builder.page(list, &[("key", 1, old), ("other", 3, other)]);
        assert!(verdict(&history_builder).contains("replaced at 2, beside a key at version 3"));
    }

    #[test]
    fn a_page_that_misses_a_key_of_its_state_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let list = history_builder.list();
        history_builder.puts(2, true);
        let other = put_other(&mut history_builder, 3);
        history_builder.page(list, &[("other", 3, other)]);
        assert!(verdict(&history_builder).contains("missing beside a key at version 3"));
    }

    #[test]
    fn a_key_may_be_missing_if_it_was_deleted_later_and_nothing_else_happened() {
        let mut history_builder = HistoryBuilder::default();
        let list = history_builder.list();
        history_builder.puts(2, true);
        let other = put_other(&mut history_builder, 3);
        history_builder.deletes(4);
        history_builder.page(list, &[("other", 3, other)]);
        assert_eq!(verdict(&history_builder), "");
    }

    #[test]
    fn a_page_of_the_state_before_is_fine() {
        let mut history_builder = HistoryBuilder::default();
        let old = history_builder.puts(1, true);
        let other = put_other(&mut history_builder, 3);
        let list = history_builder.list();
        history_builder.puts(4, false);
        history_builder.page(list, &[("key", 1, old), ("other", 3, other)]);
        assert_eq!(verdict(&history_builder), "");
    }

    #[test]
    fn a_misshapen_page_is_noticed() {
        let mut history_builder = HistoryBuilder::default();
        let put = history_builder.put(always());
        history_builder.written(put, 1, true);
        let other = put_other(&mut history_builder, 2);
        let list = history_builder.list();
        history_builder.page(list, &[("other", 2, other), ("key", 1, put)]);
        assert!(verdict(&history_builder).contains("do not rise"));

        let page = |prefix: &'static str, limit: usize, items: usize| {
            let mut history_builder = HistoryBuilder::default();
            history_builder.puts(1, true);
            put_other(&mut history_builder, 2);
            let prefix = Bytes::from_static(prefix.as_bytes());
            let read = Read::List { prefix, after: None, limit, keys_only: true };
            let list = history_builder.ask(Request::Read { read, consistency: Consistency::Linearizable });
            let item = |key, version| Item { key, version: Version(version), value: None, expires: None };
            let mut listed = vec![item(KEY, 1), item(OTHER, 2)];
            listed.truncate(items);
            let next = (items == 0).then_some(OTHER);
            history_builder.answer(list, Reply::Read(ReadReply::Page(Page { items: listed, next })));
            verdict(&history_builder)
        };
        assert_eq!(page("", 2, 2), "");
        assert!(page("k", 2, 2).contains("outside"));
        assert!(page("", 1, 2).contains("limit of 1"));
        assert!(page("", 2, 0).contains("goes on"));
    }
}
