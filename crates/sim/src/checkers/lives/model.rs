//! A model of namespaces that are created and deleted, or inherit from each other, by a shard's
//! commands, independent of the core.
//!
//! Owns every state that a namespace was ever in, by life and revision, and the log position at
//! which the state began. `inheritance` owns what a state becomes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use tidelock_core::command::ConfigWrite;
use tidelock_core::command::config::{Change, ConfigOperation, DraftAction, Name, Policy, Preview, Stamp};

use super::super::config::ConfigState;
use super::super::namespace_watches::KnownIncarnation;
use super::inheritance::{self, CanaryModel, NamespaceSettings, SourcedContent};

/// The answer to a command, as far as the model determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The revision, and whether the command changed anything.
    Done((u64, bool)),
    /// The command was refused; nothing changed.
    Failed,
}

/// A namespace from its creation to its deletion.
#[derive(Debug, Default)]
pub struct Lifetime {
    began: u64,
    /// By revision, without gaps.
    states: BTreeMap<u64, RevisionState>,
}

/// A namespace since one of its revisions.
#[derive(Debug)]
struct RevisionState {
    held: SourcedContent,
    /// Who made the revision when.
    stamp: Stamp,
    canary: Option<CanaryModel>,
}

impl Lifetime {
    /// Number of the first revision.
    pub fn first(&self) -> u64 {
        self.began + 1
    }

    fn newest(&self) -> u64 {
        self.states.last_key_value().map_or(self.began, |(revision, _)| *revision)
    }

    /// Whether a revision belongs to this life.
    pub fn contains(&self, revision: u64) -> bool {
        (self.first()..=self.newest()).contains(&revision)
    }

    /// The oldest revision that was kept when `newest` was the newest.
    pub fn oldest(&self, newest: u64) -> u64 {
        self.first().max((newest + 1).saturating_sub(Policy::default().revisions))
    }

    /// The content as of a revision that was kept when `newest` was the newest.
    pub fn at(&self, revision: u64, newest: u64) -> Option<&ConfigState> {
        self.held_at(revision, newest).map(|held| &held.content)
    }

    fn held_at(&self, revision: u64, newest: u64) -> Option<&SourcedContent> {
        let is_kept = (self.oldest(newest)..=newest).contains(&revision);
        is_kept.then(|| self.states.get(&revision)).flatten().map(|state| &state.held)
    }

    /// The content as of a revision, kept or not.
    pub fn content(&self, revision: u64) -> Option<&ConfigState> {
        self.states.get(&revision).map(|state| &state.held.content)
    }

    /// The content as of a revision as a reader with a label sees it.
    pub fn content_for(&self, label: &str, revision: u64) -> Option<&ConfigState> {
        let state = self.states.get(&revision)?;
        let canary = state.canary.as_ref();
        let seen = canary.filter(|canary| canary.audience.labels.iter().any(|known| **known == *label));
        Some(seen.map_or(&state.held.content, |canary| &canary.content))
    }

    /// The draft that a canary shows since a revision.
    pub fn canary(&self, revision: u64) -> Option<&CanaryModel> {
        self.states.get(&revision)?.canary.as_ref()
    }

    /// Who made a revision and when; `None` if it does not exist.
    pub fn stamp(&self, revision: u64) -> Option<&Stamp> {
        self.states.get(&revision).map(|state| &state.stamp)
    }

    /// Its states, for the judgement of watches.
    pub fn known(&self) -> KnownIncarnation {
        let states = self.states.iter().map(|(revision, state)| (*revision, &state.held.content));
        KnownIncarnation::of(self.began, states)
    }

    /// The revisions that changed a container's document.
    pub fn changes<'a>(&'a self, key: &'a str) -> impl Iterator<Item = (u64, Option<String>)> + 'a {
        let mut before = None;
        self.states.iter().filter_map(move |(revision, state)| {
            let now = state.held.content.document(key);
            let is_other = now != before;
            before.clone_from(&now);
            is_other.then_some((*revision, now))
        })
    }
}

/// A namespace that exists.
#[derive(Clone, Debug)]
struct Present {
    life: usize,
    revision: u64,
    settings: Arc<NamespaceSettings>,
}

/// A namespace between two commands.
#[derive(Clone, Copy)]
pub struct NamespaceView<'a> {
    /// Its life.
    pub life: &'a Lifetime,
    /// Its newest revision.
    pub newest: u64,
    /// Its relations and drafts.
    pub settings: &'a NamespaceSettings,
}

/// New states of namespaces that one command makes.
type Made = BTreeMap<Name, SourcedContent>;

/// All namespaces of a shard that are created and deleted, or inherit from each other.
#[derive(Debug, Default)]
pub struct NamespaceModel {
    lives: BTreeMap<Name, Vec<Lifetime>>,
    /// By log position, the state of each since then; `None`: it does not exist.
    past: BTreeMap<Name, Vec<(usize, Option<Present>)>>,
    /// The highest revision of all deleted namespaces.
    floor: u64,
}

impl NamespaceModel {
    /// All namespaces that ever existed.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.past.keys()
    }

    /// All lives of one namespace, the oldest first.
    pub fn lives(&self, name: &Name) -> &[Lifetime] {
        self.lives.get(name).map_or(&[], |lives| lives)
    }

    /// Whether a namespace exists after all commands.
    pub fn exists(&self, name: &Name) -> bool {
        self.now(name).is_some()
    }

    /// The states of a namespace between these log positions, each with its first position.
    pub fn states(
        &self,
        name: &Name,
        places: RangeInclusive<usize>,
    ) -> impl Iterator<Item = (usize, Option<NamespaceView<'_>>)> {
        let past = self.past.get(name).map_or(&[][..], |past| past);
        let lives = self.lives(name);
        let begins =
            [(0, None)].into_iter().chain(past.iter().map(|(place, state)| (*place, state.as_ref())));
        let ends = past.iter().map(|(place, _)| *place).chain([usize::MAX]);
        begins.zip(ends).filter_map(move |((begin, state), end)| {
            let (low, high) = (begin.max(*places.start()), (end - 1).min(*places.end()));
            let view = state.map(|Present { life, revision, settings }| NamespaceView {
                life: &lives[*life],
                newest: *revision,
                settings,
            });
            (low <= high).then_some((low, view))
        })
    }

    fn now(&self, name: &Name) -> Option<&Present> {
        self.past.get(name).and_then(|past| past.last()).and_then(|(_, state)| state.as_ref())
    }

    fn held(&self, name: &Name) -> Option<&SourcedContent> {
        let present = self.now(name)?;
        self.lives[name][present.life].states.get(&present.revision).map(|state| &state.held)
    }

    /// The content with the states that a command makes.
    fn held_after<'a>(&'a self, name: &Name, made: &'a Made) -> Option<&'a SourcedContent> {
        made.get(name).or_else(|| self.held(name))
    }

    fn parents<'a>(&'a self, names: &'a [Name], made: &'a Made) -> Vec<(&'a Name, &'a SourcedContent)> {
        names.iter().filter_map(|name| Some((name, self.held_after(name, made)?))).collect()
    }

    /// The namespaces that inherit from this one directly.
    pub fn children(&self, name: &Name) -> Vec<Name> {
        let inherits =
            |other: &&Name| self.now(other).is_some_and(|present| present.settings.parents.contains(name));
        self.past.keys().filter(inherits).cloned().collect()
    }

    fn canary(&self, name: &Name) -> Option<&CanaryModel> {
        let present = self.now(name)?;
        self.lives[name][present.life].canary(present.revision)
    }

    /// Applies the command at a log position.
    pub fn apply(&mut self, place: usize, write: &ConfigWrite) -> Expected {
        let name = &write.namespace;
        let now = self.now(name).cloned();
        let revision = now.as_ref().map_or(0, |present| present.revision);
        if write.expected.is_some_and(|expected| expected != revision) {
            return Expected::Failed;
        }
        match (now, &write.operation) {
            (None, ConfigOperation::Create | ConfigOperation::Publish { create: true, .. }) => {
                self.begin(place, write)
            }
            (None, _) | (Some(_), ConfigOperation::Create) => Expected::Failed,
            (Some(present), ConfigOperation::Delete { force }) => self.end((place, write), &present, *force),
            (Some(present), operation) => {
                let outcome = self.change((place, write), present, operation);
                outcome.unwrap_or(Expected::Failed)
            }
        }
    }

    /// Applies a change of a namespace that exists; `None` if it is refused.
    fn change(
        &mut self,
        (place, write): (usize, &ConfigWrite),
        present: Present,
        operation: &ConfigOperation,
    ) -> Option<Expected> {
        let name = &write.namespace;
        let (revision, mut settings) = (present.revision, NamespaceSettings::clone(&present.settings));
        let canary = self.canary(name).cloned();
        let is_open = !settings.is_protected && canary.is_none();
        let unchanged = Some(Expected::Done((revision, false)));
        let before = self.held(name)?.clone();
        let life = &self.lives[name][present.life];
        let changes = match operation {
            ConfigOperation::Publish { changes, .. } if is_open => changes.clone(),
            ConfigOperation::Rollback { to, item } if is_open => {
                inheritance::rollback(&before, life.held_at(*to, revision)?, item.as_ref())?
            }
            ConfigOperation::SetParents { parents } if is_open => {
                if *parents == settings.parents {
                    return unchanged;
                }
                self.may_inherit(name, parents).then_some(())?;
                settings.parents.clone_from(parents);
                let made = Made::new();
                let held = inheritance::inherit(&before, &self.parents(parents, &made));
                return self.advance((place, write), (held, settings, None), true);
            }
            ConfigOperation::SetProtected(is_protected) if canary.is_none() => {
                if *is_protected == settings.is_protected {
                    return unchanged;
                }
                settings.is_protected = *is_protected;
                return self.advance((place, write), (before, settings, None), true);
            }
            ConfigOperation::Withdraw => {
                canary?;
                return self.advance((place, write), (before, settings, None), true);
            }
            ConfigOperation::Draft { draft, action: DraftAction::Publish { edits } } => {
                canary.is_none_or(|canary| canary.draft == *draft).then_some(())?;
                let released = settings.drafts.remove(draft)?;
                released.is_released(*edits, settings.is_protected).then_some(())?;
                let changes = released.changes(&before, |to| life.held_at(to, revision))?;
                let held = self.published(&before, &changes, &settings)?;
                (held != before).then_some(())?;
                return self.advance((place, write), (held, settings, None), true);
            }
            ConfigOperation::Draft { draft, action: DraftAction::Canary { edits, audience } } => {
                canary.is_none().then_some(())?;
                let released = settings.drafts.get(draft)?;
                released.is_released(*edits, settings.is_protected).then_some(())?;
                let changes = released.changes(&before, |to| life.held_at(to, revision))?;
                let held = self.published(&before, &changes, &settings)?;
                (held != before).then_some(())?;
                let (draft, audience, content) = (draft.clone(), audience.clone(), held.content);
                let canary = Some(CanaryModel { draft, audience, content });
                return self.advance((place, write), (before, settings, canary), true);
            }
            ConfigOperation::Draft { draft, action } => {
                let shown = canary.as_ref().map(|canary| &canary.draft);
                settings.edit(draft, action, &write.stamp, shown).then_some(())?;
                let present = Present { settings: settings.into(), ..present };
                self.past.entry(name.clone()).or_default().push((place, Some(present)));
                return Some(Expected::Done((revision, true)));
            }
            _ => return None,
        };
        let held = self.published(&before, &changes, &settings)?;
        self.advance((place, write), (held, settings, None), false)
    }

    /// The content after changes; `None` if they are refused.
    fn published(
        &self,
        before: &SourcedContent,
        changes: &[Change],
        settings: &NamespaceSettings,
    ) -> Option<SourcedContent> {
        let made = Made::new();
        let parents = self.parents(&settings.parents, &made);
        inheritance::publish(before, changes, &parents).filter(|held| is_valid(&held.content))
    }

    /// Whether a namespace may have these parents.
    fn may_inherit(&self, name: &Name, parents: &[Name]) -> bool {
        let distinct: BTreeSet<&Name> = parents.iter().collect();
        distinct.len() == parents.len()
            && parents.iter().all(|parent| {
                parent != name && self.now(parent).is_some() && !self.inherits_from(parent, name)
            })
    }

    fn inherits_from(&self, name: &Name, other: &Name) -> bool {
        let parents = self.now(name).map(|present| present.settings.parents.clone()).unwrap_or_default();
        parents.iter().any(|parent| parent == other || self.inherits_from(parent, other))
    }

    /// Creates the namespace, unless its content is invalid.
    fn begin(&mut self, place: usize, write: &ConfigWrite) -> Expected {
        let mut held = SourcedContent::default();
        if let ConfigOperation::Publish { changes, .. } = &write.operation {
            match self.published(&held, changes, &NamespaceSettings::default()) {
                None => return Expected::Failed,
                Some(published) => held = published,
            }
        }
        let life = Lifetime { began: self.floor, ..Lifetime::default() };
        let revision = life.first();
        let lives = self.lives.entry(write.namespace.clone()).or_default();
        lives.push(life);
        let number = lives.len() - 1;
        let state = RevisionState { held, stamp: write.stamp.clone(), canary: None };
        lives[number].states.insert(revision, state);
        let present = Present { life: number, revision, settings: Arc::default() };
        self.past.entry(write.namespace.clone()).or_default().push((place, Some(present)));
        Expected::Done((revision, true))
    }

    /// Adds the next revision of a namespace and of those that inherit from it. Without `always`, a
    /// revision that changes nothing is none. `None`: one of those that inherit cannot follow.
    fn advance(
        &mut self,
        (place, write): (usize, &ConfigWrite),
        (held, settings, canary): (SourcedContent, NamespaceSettings, Option<CanaryModel>),
        always: bool,
    ) -> Option<Expected> {
        let name = &write.namespace;
        let before = self.held(name)?;
        if !always && held == *before {
            return Some(Expected::Done((self.now(name)?.revision, false)));
        }
        is_valid(&held.content).then_some(())?;
        let mut made = Made::from([(name.clone(), held)]);
        let mut open = self.children(name);
        // A namespace may be reached on several ways. The last of them sees all its parents.
        while !open.is_empty() {
            let child = open.remove(0);
            let parents = &self.now(&child)?.settings.parents;
            let before = self.held_after(&child, &made)?;
            let after = inheritance::inherit(before, &self.parents(parents, &made));
            if after != *before {
                open.extend(self.children(&child));
                made.insert(child, after);
            }
        }
        for (other, held) in &made {
            if other == name {
                continue;
            }
            let first = self.held(other)?;
            (held == first || is_valid(&held.content) && self.canary(other).is_none()).then_some(())?;
        }
        made.retain(|other, held| other == name || self.held(other) != Some(held));
        let mut canary = canary;
        for (other, held) in made {
            let settings =
                if other == *name { Arc::new(settings.clone()) } else { self.now(&other)?.settings.clone() };
            let canary = canary.take_if(|_| other == *name);
            self.push((place, &other), RevisionState { held, stamp: write.stamp.clone(), canary }, settings);
        }
        Some(Expected::Done((self.now(name)?.revision, true)))
    }

    fn push(
        &mut self,
        (place, name): (usize, &Name),
        state: RevisionState,
        settings: Arc<NamespaceSettings>,
    ) {
        let lives = self.lives.entry(name.clone()).or_default();
        let life = lives.len() - 1;
        let revision = lives[life].newest() + 1;
        lives[life].states.insert(revision, state);
        let present = Present { life, revision, settings };
        self.past.entry(name.clone()).or_default().push((place, Some(present)));
    }

    fn end(&mut self, (place, write): (usize, &ConfigWrite), present: &Present, force: bool) -> Expected {
        let life = &self.lives[&write.namespace][present.life];
        let revision = life.newest();
        let is_empty = life.content(revision).is_none_or(|state| *state == ConfigState::default());
        let is_protected = present.settings.is_protected;
        if is_protected || !force && !is_empty || !self.children(&write.namespace).is_empty() {
            return Expected::Failed;
        }
        self.floor = self.floor.max(revision);
        self.past.entry(write.namespace.clone()).or_default().push((place, None));
        Expected::Done((revision, true))
    }
}

fn is_valid(content: &ConfigState) -> bool {
    content.is_whole() && content.has_its_schemas()
}

/// The content after a change of a namespace in this state; `None` if the change is refused.
pub fn previewed(state: Option<NamespaceView<'_>>, preview: &Preview) -> Option<ConfigState> {
    let state = state.map(|view| (view.life, view.newest));
    let revision = state.map_or(0, |(_, revision)| revision);
    if preview.expected.is_some_and(|expected| expected != revision) {
        return None;
    }
    match (state, &preview.operation) {
        (None, ConfigOperation::Create) => Some(ConfigState::default()),
        (None, ConfigOperation::Publish { changes, create: true }) => {
            published(&ConfigState::default(), changes)
        }
        (None, _) | (Some(_), ConfigOperation::Create) => None,
        (Some((life, newest)), ConfigOperation::Delete { force }) => {
            let is_empty = life.content(newest).is_none_or(|state| *state == ConfigState::default());
            (*force || is_empty).then(ConfigState::default)
        }
        (Some((life, newest)), operation) => {
            let after = outcome(life, newest, operation)?;
            after.or_else(|| life.content(newest).cloned())
        }
    }
}

/// The result of a change of an existing namespace: refused, unchanged, or new content.
fn outcome(life: &Lifetime, newest: u64, operation: &ConfigOperation) -> Option<Option<ConfigState>> {
    let before = life.content(newest)?;
    let after = match operation {
        ConfigOperation::Publish { changes, .. } => published(before, changes)?,
        ConfigOperation::Rollback { to, item } => {
            let target = life.at(*to, newest)?;
            match item {
                None => target.clone(),
                Some(item) => {
                    let mut after = before.clone();
                    after.copy(target, item);
                    let is_there = |state: &ConfigState| state.has(item);
                    if !is_there(before) && !is_there(target) {
                        return None;
                    }
                    after
                }
            }
        }
        ConfigOperation::SetPolicy(_)
        | ConfigOperation::Create
        | ConfigOperation::Delete { .. }
        | ConfigOperation::SetParents { .. }
        | ConfigOperation::SetProtected(_)
        | ConfigOperation::Draft { .. }
        | ConfigOperation::Withdraw => return None,
    };
    (after.is_whole() && after.has_its_schemas()).then(|| (after != *before).then_some(after))
}

/// The content after these changes, or `None` if they are invalid.
fn published(before: &ConfigState, changes: &[Change]) -> Option<ConfigState> {
    let mut after = before.clone();
    for change in changes {
        if let Change::Delete(item) = change
            && !after.has(item)
        {
            return None;
        }
        after.change(change);
    }
    let mut after = before.clone();
    after.publish(changes);
    let is_missing = |change: &Change| matches!(change, Change::SetSchema { item, .. } if !after.has(item));
    if changes.iter().any(is_missing) {
        return None;
    }
    let is_valid = after.hold_types(before, changes) && after.is_whole() && after.has_its_schemas();
    is_valid.then_some(after)
}

impl ConfigState {
    /// Whether every container refers only to existing pairs.
    fn is_whole(&self) -> bool {
        let fields = self.containers.values().flatten();
        fields.flat_map(|(_, refers)| refers.pairs()).all(|pair| self.pairs.contains_key(pair))
    }
}
