//! What each revision replaced, and earlier states from that.
//!
//! A revision keeps what stood under the keys that it changed before; what it put there is what the next one replaced, or
//! what stands there now. So nothing is kept twice, any state that is kept comes back by undoing the later revisions, and
//! the oldest revision can go without a look at the others.
//!
//! Age is judged against the time in the newest revision: a value of the log, so every replica drops the same ones.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::namespace::{Contents, Namespace, container_bytes, pair_bytes};
use crate::command::config::{
    Action, ChangeView, ConfigError, Content, HistoryPage, Item, Policy, RevisionView, Stamp,
};
use crate::limits;

/// What a revision weighs besides what it replaced.
const REVISION_BYTES: usize = 64;

/// One change of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    pub number: u64,
    pub stamp: Stamp,
    pub action: Action,
    /// What stood under each key that it changed. Each key once.
    pub undo: Vec<Undo>,
}

/// What stood under a key before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    pub item: Item,
    pub before: Option<Content>,
}

impl Undo {
    /// What it weighs.
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
    /// What it weighs.
    pub fn bytes(&self) -> usize {
        let undo: usize = self.undo.iter().map(Undo::bytes).sum();
        REVISION_BYTES + self.stamp.author.len() + self.stamp.message.len() + undo
    }
}

impl Namespace {
    /// The oldest revision whose state can be shown.
    pub fn oldest(&self) -> u64 {
        self.history.front().map_or(self.revision, |oldest| oldest.number)
    }

    /// The content as of a revision that is kept.
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
        // Numbers that were never given out, left out by a restore, show what the one before them left.
        let (oldest, newest) = (self.oldest(), self.revision);
        if (oldest..=newest).contains(&revision) {
            return Ok(());
        }
        Err(ConfigError::NoRevision { revision, oldest, newest })
    }

    /// Changes how much history is kept. That is a revision, too: somebody may ask where the others went.
    pub fn set_policy(&mut self, policy: Policy, stamp: Stamp) {
        if self.policy == policy {
            return;
        }
        self.policy = policy;
        let number = self.numbered + 1;
        self.remember(Revision { number, stamp, action: Action::SetPolicy, undo: Vec::new() });
    }

    /// Lets the oldest revisions go that no bound keeps.
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

    /// Containers that later revisions wrote or deleted, as far as history goes.
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
        // What each key held after the revision that is looked at.
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
    RevisionView { number: revision.number, stamp: revision.stamp.clone(), action: revision.action, changes }
}
