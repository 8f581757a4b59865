//! What watchers are answered: the documents of containers since a revision.
//!
//! History holds what each revision replaced, so the content after a revision is what the next
//! revision that changed the same item replaced, or the present content. [`Replay`] indexes the
//! later revisions by item. Revisions can then be visited from the oldest to the newest, and no
//! document is written that does not fit into the answer.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::history::Revision;
use super::namespace::{Namespace, resolve};
use super::read::found;
use crate::command::config::{
    Action, Changes, Container, Content, DocumentChange, Found, Item, NamespaceChanges, NamespaceEvent, Pair,
    WatchPosition,
};
use crate::limits;

impl Namespace {
    /// The documents of a container after revision `after`, for a reader with a label.
    pub(super) fn changes(&self, key: &Arc<str>, after: u64, label: &str) -> Changes {
        let revision = self.revision;
        let now = self.contents.containers.get(key);
        let is_withdrawn = self.withdrawn_after(after, label).any(|(_, keys)| keys.contains(key));
        let is_unchanged = now.is_some_and(|container| container.changed <= after);
        if after >= revision || is_unchanged && !is_withdrawn {
            return Changes { revision, has_gap: false, events: Vec::new() };
        }
        if self.has_gap_after(after) {
            let found = now.map(|container| self.found_now(container));
            let changed = now.map_or(revision, |container| container.changed);
            let event = DocumentChange { revision: changed, found };
            return Changes { revision, has_gap: true, events: alloc::vec![event] };
        }
        let mut events = Vec::new();
        let replay = Replay::after(self, after);
        for later in self.history_after(after) {
            let change = if withdrawn_by(later, label).contains(key) {
                Some(replay.found(key, later.number))
            } else if replay.concerns(later, key) {
                replay.change(later.number, key)
            } else {
                None
            };
            events.extend(change.map(|found| DocumentChange { revision: later.number, found }));
            // The client gets the first events, and asks again for the rest.
            if events.len() == limits::CONFIG_CHANGES_MAX {
                break;
            }
        }
        // A client that knows the container from before the namespace was deleted and created again
        // has not learnt of the deletion.
        let first = self.began + 1;
        let is_of_earlier_life = after > 0 && after <= self.began;
        if is_of_earlier_life && events.first().is_none_or(|event| event.revision != first) {
            events.insert(0, DocumentChange { revision: first, found: None });
            events.truncate(limits::CONFIG_CHANGES_MAX);
        }
        Changes { revision, has_gap: false, events }
    }

    /// The documents of all containers after a position; the present state if there is none.
    pub(super) fn namespace_changes(&self, after: Option<&WatchPosition>, label: &str) -> NamespaceChanges {
        let revision = self.revision;
        let Some(after) = after else { return self.state(revision, None) };
        if after.revision > revision {
            let events = Vec::new();
            return NamespaceChanges { revision, has_gap: false, state: None, has_more: false, events };
        }
        let is_of_earlier_life = after.revision > 0 && after.revision <= self.began;
        if after.is_state && !is_of_earlier_life {
            return self.state(after.revision, after.container.as_ref());
        }
        let from = match &after.container {
            _ if is_of_earlier_life => WatchPosition::through(self.began),
            // The rest of this revision.
            Some(_) => WatchPosition { revision: after.revision.saturating_sub(1), ..after.clone() },
            None => after.clone(),
        };
        if self.has_gap_after(from.revision) {
            return NamespaceChanges { has_gap: true, ..self.state(revision, None) };
        }
        let mut page = Page::default();
        if is_of_earlier_life {
            page.push(NamespaceEvent { revision: self.began + 1, container: "".into(), found: None });
        }
        let replay = Replay::after(self, from.revision);
        for later in self.history_after(from.revision) {
            let is_cut = !is_of_earlier_life && later.number == after.revision;
            let withdrawn = withdrawn_by(later, label);
            let candidates = replay.candidates(later).into_iter().chain(withdrawn);
            for key in candidates.collect::<BTreeSet<_>>() {
                let is_withdrawn = withdrawn.contains(key);
                if is_cut && after.container.as_ref() >= Some(key)
                    || !is_withdrawn && !replay.concerns(later, key)
                {
                    continue;
                }
                let change = if is_withdrawn {
                    Some(replay.found(key, later.number))
                } else {
                    replay.change(later.number, key)
                };
                let Some(found) = change else { continue };
                let event = NamespaceEvent { revision: later.number, container: key.clone(), found };
                if !page.push(event) {
                    return page.finish(revision, None);
                }
            }
        }
        page.finish(revision, None)
    }

    /// The containers behind `after` as of revision `state`. What changes while a client is sent
    /// the state comes afterwards.
    fn state(&self, state: u64, after: Option<&Arc<str>>) -> NamespaceChanges {
        if self.has_gap_after(state) {
            return NamespaceChanges { has_gap: true, ..self.state(self.revision, None) };
        }
        let replay = Replay::after(self, state);
        // Those that were deleted since are among the changed ones.
        let keys: BTreeSet<&Arc<str>> =
            self.contents.containers.keys().chain(replay.changed.iter().copied()).collect();
        let mut page = Page::default();
        for key in keys.into_iter().filter(|key| after < Some(*key)) {
            let now = self.contents.containers.get(key).filter(|now| now.changed <= state);
            let event = match now {
                Some(now) => (now.changed, Some(self.found_now(now))),
                None => (state, replay.found(key, state)),
            };
            let (revision, found @ Some(_)) = event else { continue };
            if !page.push(NamespaceEvent { revision, container: key.clone(), found }) {
                break;
            }
        }
        page.finish(self.revision, Some(state))
    }

    /// Whether history does not hold every change after a revision.
    fn has_gap_after(&self, after: u64) -> bool {
        // The oldest kept revision also contains the state before it.
        let is_missing = |first: u64| first > self.began + 1 && after + 1 < first;
        self.history.front().is_some_and(|oldest| is_missing(oldest.number))
    }

    /// For each canary that was withdrawn after a revision, and that a reader with the label saw:
    /// the containers that get another document again.
    fn withdrawn_after(&self, after: u64, label: &str) -> impl Iterator<Item = (u64, &[Arc<str>])> {
        self.history_after(after).map(move |later| (later.number, withdrawn_by(later, label)))
    }

    fn history_after(&self, after: u64) -> impl Iterator<Item = &Arc<Revision>> {
        let kept = self.history.partition_point(|kept| kept.number <= after);
        self.history.range(kept..)
    }

    fn found_now(&self, container: &Arc<Container>) -> Found {
        found(self.revision, container, |key| self.contents.pairs.get(key))
    }
}

/// The containers that a reader with a label sees resolve to other documents because a revision
/// withdrew a canary.
fn withdrawn_by<'a>(revision: &'a Revision, label: &str) -> &'a [Arc<str>] {
    match &revision.action {
        Action::Withdraw { draft, audience, containers } if audience.contains(draft, label) => containers,
        _ => &[],
    }
}

/// The events of one answer about a namespace.
#[derive(Default)]
struct Page {
    events: Vec<NamespaceEvent>,
    document_bytes: usize,
    has_more: bool,
}

impl Page {
    /// Adds an event; `false` if it does not fit.
    fn push(&mut self, event: NamespaceEvent) -> bool {
        self.has_more = self.events.len() == limits::CONFIG_CHANGES_MAX
            || self.document_bytes >= limits::CONFIG_CHANGES_BYTES_CLOSE;
        if !self.has_more {
            self.document_bytes += event.found.as_ref().map_or(0, |found| found.container.document_bytes);
            self.events.push(event);
        }
        !self.has_more
    }

    fn finish(self, revision: u64, state: Option<u64>) -> NamespaceChanges {
        let Page { events, document_bytes: _, has_more } = self;
        NamespaceChanges { revision, has_gap: false, state, has_more, events }
    }
}

/// The content of an item before each later revision that changed it, by rising revision.
type Replaced<'a, T> = BTreeMap<&'a str, Vec<(u64, Option<&'a Arc<T>>)>>;

/// The revisions of a namespace after one of them.
struct Replay<'a> {
    namespace: &'a Namespace,
    pairs: Replaced<'a, Pair>,
    containers: Replaced<'a, Container>,
    /// The keys of `containers`.
    changed: BTreeSet<&'a Arc<str>>,
}

impl<'a> Replay<'a> {
    fn after(namespace: &'a Namespace, revision: u64) -> Replay<'a> {
        let (pairs, containers) = (BTreeMap::new(), BTreeMap::new());
        let mut replay = Replay { namespace, pairs, containers, changed: BTreeSet::new() };
        for later in namespace.history_after(revision) {
            for undo in &later.undo {
                match (&undo.item, &undo.before) {
                    (Item::Pair(key), before) => {
                        let before = match before {
                            Some(Content::Pair(pair)) => Some(pair),
                            _ => None,
                        };
                        replay.pairs.entry(key).or_default().push((later.number, before));
                    }
                    (Item::Container(key), before) => {
                        let before = match before {
                            Some(Content::Container(container)) => Some(container),
                            _ => None,
                        };
                        replay.containers.entry(key).or_default().push((later.number, before));
                        replay.changed.insert(key);
                    }
                }
            }
        }
        replay
    }

    /// A pair as of a revision.
    fn pair(&self, key: &str, revision: u64) -> Option<&'a Arc<Pair>> {
        replaced_after(&self.pairs, key, revision).unwrap_or_else(|| self.namespace.contents.pairs.get(key))
    }

    /// A container as of a revision, not resolved.
    fn container(&self, key: &str, revision: u64) -> Option<&'a Arc<Container>> {
        replaced_after(&self.containers, key, revision)
            .unwrap_or_else(|| self.namespace.contents.containers.get(key))
    }

    /// Every container that a revision may have changed, and perhaps others.
    fn candidates(&self, later: &'a Revision) -> BTreeSet<&'a Arc<str>> {
        let mut keys = BTreeSet::new();
        for undo in &later.undo {
            match &undo.item {
                Item::Container(key) => {
                    keys.insert(key);
                }
                Item::Pair(pair) => keys.extend(self.namespace.users.get(pair).into_iter().flatten()),
            }
        }
        // A container that was changed or deleted since may have used other pairs.
        keys.extend(&self.changed);
        keys
    }

    /// Whether a revision changed a container, or a pair that it used before or uses afterwards.
    fn concerns(&self, later: &Revision, key: &Arc<str>) -> bool {
        let sides = [later.number - 1, later.number].map(|revision| self.container(key, revision));
        later.undo.iter().any(|undo| match &undo.item {
            Item::Container(changed) => changed == key,
            Item::Pair(pair) => {
                sides.iter().flatten().any(|container| container.pairs().any(|used| used == pair))
            }
        })
    }

    /// The container after a revision, if its document is another one than before; `Some(None)` if
    /// it was deleted.
    fn change(&self, revision: u64, key: &str) -> Option<Option<Found>> {
        (self.document(key, revision - 1) != self.document(key, revision)).then(|| self.found(key, revision))
    }

    fn found(&self, key: &str, revision: u64) -> Option<Found> {
        let mut resolved = Container::clone(self.container(key, revision)?);
        let pair = |key: &str| self.pair(key, revision).map(|pair| &**pair);
        resolve(&mut resolved, pair, &mut String::new());
        (resolved.touched, resolved.changed) = (revision, revision);
        Some(found(revision, &Arc::new(resolved), |key| self.pair(key, revision)))
    }

    fn document(&self, key: &str, revision: u64) -> Option<String> {
        let container = self.container(key, revision)?;
        let mut out = String::with_capacity(container.document_bytes);
        let pair = |key: &str| self.pair(key, revision).map(|pair| &**pair);
        crate::command::config::write_document(container, pair, &mut out);
        Some(out)
    }
}

/// The content that the first revision after `revision` replaced; `None` if none changed the item.
fn replaced_after<'a, T>(all: &Replaced<'a, T>, key: &str, revision: u64) -> Option<Option<&'a Arc<T>>> {
    let replaced = all.get(key)?;
    let next = replaced.partition_point(|(number, _)| *number <= revision);
    replaced.get(next).map(|(_, before)| *before)
}
