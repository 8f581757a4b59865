//! The history of a namespace: what each revision replaced, and earlier states reconstructed from
//! it.
//!
//! A revision keeps the previous content of the keys that it changed. The content that it wrote is
//! either what the next revision replaced, or the current content. So nothing is stored twice,
//! undoing the later revisions reconstructs any kept state, and the oldest revision can be dropped
//! independently of the others.
//!
//! Age is measured against the time in the newest revision. That time is in the log, so every
//! replica drops the same revisions.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::namespace::{Contents, Namespace, container_bytes, pair_bytes};
pub use crate::command::config::block::{Revision, Undo};
use crate::command::config::{
    Action, ChangeView, ConfigError, Content, HistoryPage, Item, Policy, RevisionView, Stamp,
};
use crate::limits;

/// Bytes of a revision besides the content that it replaced.
const REVISION_BYTES: usize = 64;

impl Undo {
    /// Its size in bytes, as limits count it.
    pub fn bytes(&self) -> usize {
        let key = self.item.key();
        key.len()
            + match &self.before {
                None => 0,
                Some(Content::Pair(pair)) => pair_bytes(key, pair),
                Some(Content::Container(container)) => container_bytes(key, container),
            }
    }
}

impl Revision {
    /// Its size in bytes, as limits count it.
    pub fn bytes(&self) -> usize {
        let undo: usize = self.undo.iter().map(Undo::bytes).sum();
        REVISION_BYTES + self.stamp.text_bytes() + undo
    }
}

impl Namespace {
    /// The oldest revision whose state can be reconstructed.
    pub fn oldest(&self) -> u64 {
        self.history.front().map_or(self.revision, |oldest| oldest.number)
    }

    /// The content as of a kept revision.
    pub fn at(&self, revision: u64) -> Result<Contents, ConfigError> {
        self.kept(revision)?;
        let mut contents = self.contents.clone();
        for later in self.history.iter().rev().take_while(|later| later.number > revision) {
            later.undo.iter().for_each(|undo| contents.undo(undo));
        }
        Ok(contents)
    }

    /// Fails unless the state as of `revision` is kept.
    pub fn kept(&self, revision: u64) -> Result<(), ConfigError> {
        // A restore skips revision numbers. A skipped number shows the state of the revision before
        // it.
        let (oldest, newest) = (self.oldest(), self.revision);
        if (oldest..=newest).contains(&revision) {
            return Ok(());
        }
        Err(ConfigError::NoRevision { revision, oldest, newest })
    }

    /// Records whether only approved drafts change the namespace.
    pub fn set_protected(&mut self, is_protected: bool, stamp: Stamp) {
        if self.is_protected == is_protected {
            return;
        }
        self.is_protected = is_protected;
        let (number, action) = (self.numbered + 1, Action::SetProtected(is_protected));
        self.remember(Revision { number, stamp, action, undo: Vec::new() });
    }

    /// Changes how much history is kept. This is a revision too, because it explains why older
    /// revisions are missing.
    pub fn set_policy(&mut self, policy: Policy, stamp: Stamp) {
        if self.policy == policy {
            return;
        }
        self.policy = policy;
        let number = self.numbered + 1;
        self.remember(Revision { number, stamp, action: Action::SetPolicy, undo: Vec::new() });
    }

    /// Drops the oldest revisions that exceed a bound.
    pub fn compact(&mut self) {
        let Some(now) = self.history.back().map(|newest| newest.stamp.time_ms) else { return };
        while let Some(oldest) = self.history.front() {
            let count = self.history.len() as u64;
            let is_old = now.saturating_sub(oldest.stamp.time_ms) > self.policy.age_ms;
            let is_over = count > self.policy.revisions
                || self.history_bytes > limits::CONFIG_HISTORY_BYTES_MAX
                || is_old;
            if !is_over || count <= limits::CONFIG_HISTORY_REVISIONS_MIN {
                break;
            }
            self.history_bytes -= oldest.bytes();
            self.history.pop_front();
        }
    }

    /// Containers that later revisions wrote or deleted, as far as the history goes back.
    pub fn containers_written_since(&self, revision: u64) -> impl Iterator<Item = &Arc<str>> {
        let later = self.history.iter().rev().take_while(move |kept| kept.number > revision);
        later.flat_map(|kept| &kept.undo).filter_map(|undo| match &undo.item {
            Item::Container(key) => Some(key),
            Item::Pair(_) => None,
        })
    }

    /// A page of revisions, the newest first.
    pub fn page(&self, item: Option<&Item>, before: Option<u64>, limit: usize) -> HistoryPage {
        let mut page =
            HistoryPage { revision: self.revision, oldest: self.oldest(), revisions: Vec::new(), next: None };
        // Content of each key after the revision in question.
        let mut later: BTreeMap<&Item, Option<Content>> = BTreeMap::new();
        for revision in self.history.iter().rev() {
            let concerns = item.is_none_or(|item| revision.undo.iter().any(|undo| undo.item == *item));
            if concerns && before.is_none_or(|before| revision.number < before) {
                if page.revisions.len() == limit {
                    page.next = page.revisions.last().map(|last: &RevisionView| last.number);
                    break;
                }
                let wanted = |undo: &&Undo| item.is_none_or(|item| undo.item == *item);
                let change = |undo: &Undo| ChangeView {
                    item: undo.item.clone(),
                    before: undo.before.clone(),
                    after: later.get(&undo.item).cloned().unwrap_or_else(|| self.contents.get(&undo.item)),
                };
                page.revisions
                    .push(view(revision, revision.undo.iter().filter(wanted).map(change).collect()));
            }
            later.extend(revision.undo.iter().map(|undo| (&undo.item, undo.before.clone())));
        }
        page
    }
}

fn view(revision: &Arc<Revision>, changes: Vec<ChangeView>) -> RevisionView {
    RevisionView {
        number: revision.number,
        stamp: revision.stamp.clone(),
        action: revision.action.clone(),
        changes,
    }
}
