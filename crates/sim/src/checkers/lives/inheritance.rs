//! A model of what namespaces inherit from each other, of drafts and of canaries, independent of
//! the core.
//!
//! The core carries changes from parents to children. The model computes the content of every
//! namespace from what it sets itself, and from its parents, after each command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidelock_core::command::config::{
    Audience, Change, Draft, DraftAction, DraftStep, Field, Item, Name, Stamp,
};

use super::super::config::ConfigState;

/// The content of a namespace, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcedContent {
    /// Everything that the namespace shows.
    pub content: ConfigState,
    /// The namespaces that set what it inherits.
    pub sources: BTreeMap<Item, Name>,
}

/// What is no content: relations, and drafts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceSettings {
    /// The namespaces from which it inherits.
    pub parents: Vec<Name>,
    /// Whether only approved drafts change it.
    pub is_protected: bool,
    /// By name.
    pub drafts: BTreeMap<Arc<str>, DraftModel>,
}

/// A draft, as far as the model follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftModel {
    edits: u64,
    steps: Vec<DraftStep>,
    authors: BTreeSet<Arc<str>>,
    comments: usize,
    approvals: Vec<Arc<str>>,
}

/// A draft that readers with some labels see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanaryModel {
    /// The name of the draft.
    pub draft: Arc<str>,
    /// Who sees it.
    pub audience: Audience,
    /// What they see.
    pub content: ConfigState,
}

impl DraftModel {
    /// Whether a node shows this draft.
    pub fn is_shown_as(&self, shown: &Draft) -> bool {
        let approvals = shown.approvals.iter().map(|stamp| &stamp.author);
        (self.edits, &self.authors, self.comments) == (shown.edits, &shown.authors, shown.comments.len())
            && self.approvals.iter().eq(approvals)
            && changes(&self.steps) == changes(&shown.steps)
    }

    /// Whether it may be published or shown.
    pub fn is_released(&self, edits: Option<u64>, is_protected: bool) -> bool {
        edits.is_none_or(|edits| edits == self.edits) && (!is_protected || !self.approvals.is_empty())
    }

    /// Its changes, of a namespace that has this content now, and had that of `at` at revisions.
    pub fn changes<'a>(
        &self,
        now: &SourcedContent,
        at: impl Fn(u64) -> Option<&'a SourcedContent>,
    ) -> Option<Vec<Change>> {
        let mut all: Vec<Change> = Vec::new();
        for step in &self.steps {
            let (to, item) = match step {
                DraftStep::Publish(changes) => {
                    for change in changes {
                        if let Change::Delete(item) = change {
                            all.retain(|earlier| !matches!(earlier, Change::SetSchema { item: of, .. } if of == item));
                        }
                        all.push(change.clone());
                    }
                    continue;
                }
                DraftStep::Rollback { to, item } => (to, item),
            };
            // What came before it is taken back, too.
            let (before, rest) = match item {
                None => (Vec::new(), Vec::new()),
                Some(item) => all.into_iter().partition(|change: &Change| change.is_of(item)),
            };
            all = rest;
            match rollback(now, at(*to)?, item.as_ref()) {
                Some(restoring) => all.extend(restoring),
                None if before.is_empty() => return None,
                None => {}
            }
        }
        Some(all)
    }
}

/// The changes of steps, however they are grouped.
fn changes(steps: &[DraftStep]) -> Vec<DraftStep> {
    let split = |step: &DraftStep| match step {
        DraftStep::Publish(changes) => {
            changes.iter().map(|change| DraftStep::Publish(vec![change.clone()])).collect()
        }
        rollback => vec![rollback.clone()],
    };
    steps.iter().flat_map(split).collect()
}

impl NamespaceSettings {
    /// Applies an action that changes nothing but a draft. Returns whether it is allowed.
    pub fn edit(
        &mut self,
        draft: &Arc<str>,
        action: &DraftAction,
        stamp: &Stamp,
        shown: Option<&Arc<str>>,
    ) -> bool {
        let is_shown = shown == Some(draft);
        match action {
            DraftAction::Edit(_) | DraftAction::Discard if is_shown => return false,
            DraftAction::Edit(step) => {
                let draft = self.drafts.entry(draft.clone()).or_default();
                draft.edits += 1;
                draft.steps.push(step.clone());
                draft.authors.insert(stamp.author.clone());
                draft.approvals.clear();
                return true;
            }
            _ => {}
        }
        let Some(found) = self.drafts.get_mut(draft) else { return false };
        match action {
            DraftAction::Comment if stamp.message.is_empty() => return false,
            DraftAction::Comment => found.comments += 1,
            DraftAction::Approve { edits } => {
                if *edits != found.edits || found.authors.contains(&stamp.author) {
                    return false;
                }
                found.approvals.push(stamp.author.clone());
            }
            DraftAction::Discard => drop(self.drafts.remove(draft)),
            DraftAction::Edit(_) | DraftAction::Publish { .. } | DraftAction::Canary { .. } => return false,
        }
        true
    }
}

/// The changes that restore what a namespace set itself; `None` if there is nothing to restore.
pub fn rollback(now: &SourcedContent, target: &SourcedContent, item: Option<&Item>) -> Option<Vec<Change>> {
    let items: BTreeSet<Item> = match item {
        Some(item) if !now.content.has(item) && !target.content.has(item) => return None,
        Some(item) => [item.clone()].into(),
        None => items(&now.content).chain(items(&target.content)).collect(),
    };
    let restore = |item: Item| {
        let set = |held: &SourcedContent| held.content.has(&item) && !held.sources.contains_key(&item);
        if !set(target) {
            return if set(now) { vec![Change::Delete(item)] } else { Vec::new() };
        }
        let key = item.key().clone();
        let put = match &item {
            Item::Pair(_) => {
                let value = target.content.pairs[&key].clone();
                Change::PutPair { key, value, retype: true }
            }
            Item::Container(_) => {
                let fields = target.content.containers[&key].iter();
                let fields = fields.map(|(key, refers)| Field { key: key.clone(), refers: refers.clone() });
                Change::PutContainer { key, fields: fields.collect(), retype: true }
            }
        };
        let schema = target.content.schemas.get(&item).cloned();
        vec![put, Change::SetSchema { item, schema }]
    };
    Some(items.into_iter().flat_map(restore).collect())
}

fn items(content: &ConfigState) -> impl Iterator<Item = Item> {
    let pairs = content.pairs.keys().cloned().map(Item::Pair);
    pairs.chain(content.containers.keys().cloned().map(Item::Container))
}

/// The content of a namespace that sets what it sets in `held`, with these parents.
pub fn inherit(held: &SourcedContent, parents: &[(&Name, &SourcedContent)]) -> SourcedContent {
    let mut all = SourcedContent::default();
    for item in items(&held.content).filter(|item| !held.sources.contains_key(item)) {
        all.content.copy(&held.content, &item);
    }
    for (name, parent) in parents {
        for item in items(&parent.content) {
            if !all.content.has(&item) {
                all.content.copy(&parent.content, &item);
                all.sources.insert(item.clone(), parent.sources.get(&item).unwrap_or(name).clone());
            }
        }
    }
    all
}

/// The content after these changes; `None` if they are refused.
pub fn publish(
    before: &SourcedContent,
    changes: &[Change],
    parents: &[(&Name, &SourcedContent)],
) -> Option<SourcedContent> {
    let mut after = before.clone();
    let mut touched: BTreeSet<Item> = BTreeSet::new();
    for change in changes {
        let item = match change {
            Change::PutPair { key, .. } => Item::Pair(key.clone()),
            Change::PutContainer { key, .. } => Item::Container(key.clone()),
            Change::Delete(item) => {
                let is_inherited = before.sources.contains_key(item) && !touched.contains(item);
                if is_inherited || !after.content.has(item) {
                    return None;
                }
                item.clone()
            }
            Change::KeepSecret { .. } | Change::SetSchema { .. } => continue,
        };
        after.content.change(change);
        after.sources.remove(&item);
        touched.insert(item);
    }
    after.content.schemas = before.content.schemas.clone();
    after.content.schemas.retain(|item, _| match item {
        Item::Pair(key) => after.content.pairs.contains_key(key),
        Item::Container(key) => after.content.containers.contains_key(key),
    });
    // What is not set any more is inherited.
    let mut after = inherit(&after, parents);
    for change in changes {
        if let Change::SetSchema { item, schema } = change {
            if !after.content.has(item) {
                return None;
            }
            after.sources.remove(item);
            match schema {
                Some(schema) => after.content.schemas.insert(item.clone(), schema.clone()),
                None => after.content.schemas.remove(item),
            };
        }
    }
    after.content.hold_types(&before.content, changes).then_some(after)
}
