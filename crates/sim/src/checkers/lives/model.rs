//! A model of namespaces that are created and deleted by a shard's commands, independent of the
//! core.
//!
//! Owns every state that a namespace was ever in, by life and revision, and the log position at
//! which the state began.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use tidelock_core::command::ConfigWrite;
use tidelock_core::command::config::{Change, ConfigOperation, Name, Policy, Preview, Stamp};

use super::super::config::ConfigState;
use super::super::namespace_watches::KnownIncarnation;

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
    /// By revision, without gaps: the content since then, and who made it when.
    states: BTreeMap<u64, (ConfigState, Stamp)>,
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
        (self.oldest(newest)..=newest).contains(&revision).then(|| self.content(revision)).flatten()
    }

    /// The content as of a revision, kept or not.
    pub fn content(&self, revision: u64) -> Option<&ConfigState> {
        self.states.get(&revision).map(|(state, _)| state)
    }

    /// Who made a revision and when; `None` if it does not exist.
    pub fn stamp(&self, revision: u64) -> Option<&Stamp> {
        self.states.get(&revision).map(|(_, stamp)| stamp)
    }

    /// Its states, for the judgement of watches.
    pub fn known(&self) -> KnownIncarnation {
        let states = self.states.iter().map(|(revision, (state, _))| (*revision, state));
        KnownIncarnation::of(self.began, states)
    }

    /// The revisions that changed a container's document.
    pub fn changes<'a>(&'a self, key: &'a str) -> impl Iterator<Item = (u64, Option<String>)> + 'a {
        let mut before = None;
        self.states.iter().filter_map(move |(revision, (state, _))| {
            let now = state.document(key);
            let is_other = now != before;
            before.clone_from(&now);
            is_other.then_some((*revision, now))
        })
    }
}

/// The present life and revision of a namespace, if it exists.
type NamespaceVersion = Option<(usize, u64)>;

/// All namespaces of a shard that are created and deleted.
#[derive(Debug, Default)]
pub struct NamespaceModel {
    lives: BTreeMap<Name, Vec<Lifetime>>,
    /// By log position, the life and revision of each.
    past: BTreeMap<Name, Vec<(usize, NamespaceVersion)>>,
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
    ) -> impl Iterator<Item = (usize, Option<(&Lifetime, u64)>)> {
        let past = self.past.get(name).map_or(&[][..], |past| past);
        let lives = self.lives(name);
        let begins = [(0, None)].into_iter().chain(past.iter().copied());
        let ends = past.iter().map(|(place, _)| *place).chain([usize::MAX]);
        begins.zip(ends).filter_map(move |((begin, state), end)| {
            let (low, high) = (begin.max(*places.start()), (end - 1).min(*places.end()));
            let life = state.map(|(life, revision)| (&lives[life], revision));
            (low <= high).then_some((low, life))
        })
    }

    fn now(&self, name: &Name) -> NamespaceVersion {
        self.past.get(name).and_then(|past| past.last()).and_then(|(_, state)| *state)
    }

    /// Applies the command at a log position.
    pub fn apply(&mut self, place: usize, write: &ConfigWrite) -> Expected {
        let now = self.now(&write.namespace);
        let revision = now.map_or(0, |(_, revision)| revision);
        if write.expected.is_some_and(|expected| expected != revision) {
            return Expected::Failed;
        }
        let made = match (now, &write.operation) {
            (None, ConfigOperation::Create | ConfigOperation::Publish { create: true, .. }) => {
                return self.begin(place, write);
            }
            (None, _) | (Some(_), ConfigOperation::Create) => return Expected::Failed,
            (Some((life, _)), ConfigOperation::Delete { force }) => {
                return self.end((place, write), life, *force);
            }
            (Some((life, _)), operation) => {
                let life = &self.lives[&write.namespace][life];
                outcome(life, revision, operation)
            }
        };
        match made {
            None => Expected::Failed,
            Some(None) => Expected::Done((revision, false)),
            Some(Some(state)) => self.advance(place, write, state),
        }
    }

    /// Creates the namespace, unless its content is invalid.
    fn begin(&mut self, place: usize, write: &ConfigWrite) -> Expected {
        let mut state = ConfigState::default();
        if let ConfigOperation::Publish { changes, .. } = &write.operation {
            match published(&state, changes) {
                None => return Expected::Failed,
                Some(published) => state = published,
            }
        }
        let life = Lifetime { began: self.floor, ..Lifetime::default() };
        let lives = self.lives.entry(write.namespace.clone()).or_default();
        lives.push(life);
        self.advance(place, write, state)
    }

    /// Adds the next revision to the newest life.
    fn advance(&mut self, place: usize, write: &ConfigWrite, state: ConfigState) -> Expected {
        let lives = self.lives.entry(write.namespace.clone()).or_default();
        let number = lives.len() - 1;
        let revision = lives[number].newest() + 1;
        lives[number].states.insert(revision, (state, write.stamp.clone()));
        self.past.entry(write.namespace.clone()).or_default().push((place, Some((number, revision))));
        Expected::Done((revision, true))
    }

    fn end(&mut self, (place, write): (usize, &ConfigWrite), life: usize, force: bool) -> Expected {
        let life = &self.lives[&write.namespace][life];
        let revision = life.newest();
        let is_empty = life.content(revision).is_none_or(|state| *state == ConfigState::default());
        if !force && !is_empty {
            return Expected::Failed;
        }
        self.floor = self.floor.max(revision);
        self.past.entry(write.namespace.clone()).or_default().push((place, None));
        Expected::Done((revision, true))
    }
}

/// The content after a change of a namespace in this state; `None` if the change is refused.
pub fn previewed(state: Option<(&Lifetime, u64)>, preview: &Preview) -> Option<ConfigState> {
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
        ConfigOperation::SetPolicy(_) | ConfigOperation::Create | ConfigOperation::Delete { .. } => {
            return None;
        }
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
