//! Inheritance between namespaces: what a namespace does not set itself, it has from its parents.
//!
//! A namespace holds the content that it inherits as its own, with the mark of its source. So
//! reads, watches and the history treat it as any other content. A change of a namespace becomes a
//! revision of every namespace that inherits from it, in the same command: all of them change, or
//! none. Parents and children have the same hash slot, so one shard holds them, also while slots
//! move.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Config;
use super::namespace::{Namespace, unresolved};
use super::publish::{PreparedRevision, Staged};
use crate::command::config::{Action, ConfigError, Container, Inheritance, Item, Name, Pair, Stamp};
use crate::deliberate::Fault;
use crate::limits;
use crate::slots;

/// Revisions that one command makes, by namespace.
pub(super) type PlannedRevisions = BTreeMap<Name, PreparedRevision>;

/// Other parents of a namespace, and the revision that gives it them.
pub(super) type NewParents = (Vec<Arc<Name>>, PreparedRevision);

/// The parents of a namespace, the first that has an item before the others.
#[derive(Default)]
pub(super) struct Parents<'a>(Vec<Parent<'a>>);

struct Parent<'a> {
    name: &'a Arc<Name>,
    namespace: &'a Namespace,
    /// Its next revision, if the same command makes one.
    pending: Option<&'a Staged>,
}

impl Parent<'_> {
    fn pair(&self, key: &Arc<str>) -> Option<&Arc<Pair>> {
        match self.pending.and_then(|pending| pending.pairs.get(key)) {
            Some(pending) => pending.as_ref(),
            None => self.namespace.contents.pairs.get(key),
        }
    }

    fn container(&self, key: &Arc<str>) -> Option<&Arc<Container>> {
        match self.pending.and_then(|pending| pending.containers.get(key)) {
            Some(pending) => pending.as_ref(),
            None => self.namespace.contents.containers.get(key),
        }
    }

    fn source(&self, source: Option<&Arc<Name>>) -> Option<Arc<Name>> {
        Some(source.unwrap_or(self.name).clone())
    }
}

impl Parents<'_> {
    /// The pair that a namespace inherits under a key, as its revision `number` writes it.
    pub(super) fn pair(&self, key: &Arc<str>, number: u64) -> Option<Arc<Pair>> {
        self.0.iter().find_map(|parent| {
            let Pair { value, schema, source, .. } = &**parent.pair(key)?;
            let source = parent.source(source.as_ref());
            Some(Arc::new(Pair { value: value.clone(), schema: schema.clone(), revision: number, source }))
        })
    }

    /// As [`Parents::pair`]: a container, not resolved.
    pub(super) fn container(&self, key: &Arc<str>, number: u64) -> Option<Arc<Container>> {
        self.0.iter().find_map(|parent| {
            let Container { fields, schema, source, .. } = &**parent.container(key)?;
            let source = parent.source(source.as_ref());
            let schema = schema.clone();
            Some(Arc::new(Container { schema, source, ..unresolved(fields.clone(), number) }))
        })
    }

    /// Everything that the parents have.
    fn items(&self) -> BTreeSet<Item> {
        self.0.iter().flat_map(|parent| parent.namespace.items()).collect()
    }
}

impl Namespace {
    /// Its pairs and containers.
    fn items(&self) -> impl Iterator<Item = Item> {
        let pairs = self.contents.pairs.keys().cloned().map(Item::Pair);
        pairs.chain(self.contents.containers.keys().cloned().map(Item::Container))
    }

    /// The namespace from which an item is inherited.
    pub(super) fn source(&self, item: &Item) -> Option<&Arc<Name>> {
        match item {
            Item::Pair(key) => self.contents.pairs.get(key)?.source.as_ref(),
            Item::Container(key) => self.contents.containers.get(key)?.source.as_ref(),
        }
    }

    fn sets(&self, item: &Item) -> bool {
        self.contents.get(item).is_some() && self.source(item).is_none()
    }

    /// Stages those of the items that the namespace does not set itself as its parents have them.
    fn stage_inherited(&self, items: BTreeSet<Item>, parents: &Parents<'_>) -> Staged {
        let number = self.numbered + 1;
        let mut staged = Staged::default();
        for item in items.into_iter().filter(|item| !self.sets(item)) {
            match item {
                Item::Pair(key) => {
                    let inherited = parents.pair(&key, number);
                    staged.pairs.insert(key, inherited);
                }
                Item::Container(key) => {
                    let inherited = parents.container(&key, number);
                    staged.containers.insert(key, inherited);
                }
            }
        }
        self.drop_unchanged(&mut staged);
        staged
    }
}

impl Config {
    /// The parents of a namespace, with the revisions that `plan` makes of them.
    pub(super) fn parents<'a>(
        &'a self,
        names: &'a [Arc<Name>],
        plan: Option<&'a PlannedRevisions>,
    ) -> Parents<'a> {
        let parent = |name: &'a Arc<Name>| {
            let pending = plan.and_then(|plan| plan.get(&**name)).map(PreparedRevision::staged);
            Some(Parent { name, namespace: self.namespaces.get(&**name)?, pending })
        };
        Parents(names.iter().filter_map(parent).collect())
    }

    /// Adds the revisions of all namespaces that inherit from `root` what its planned revision
    /// changes.
    pub(super) fn inherit(
        &self,
        plan: &mut PlannedRevisions,
        root: &Name,
        stamp: &Stamp,
    ) -> Result<(), ConfigError> {
        let Some(revision) = plan.get(root).map(PreparedRevision::number) else { return Ok(()) };
        for name in self.descendants(root) {
            let Some(namespace) = self.namespaces.get(&name) else { continue };
            if self.faults.has(Fault::GrandchildForgotten)
                && !namespace.parents.iter().any(|parent| **parent == *root)
            {
                continue;
            }
            let changed = namespace.parents.iter().filter_map(|parent| plan.get(&**parent));
            let items: BTreeSet<Item> = changed.flat_map(PreparedRevision::items).collect();
            let staged = namespace.stage_inherited(items, &self.parents(&namespace.parents, Some(plan)));
            if staged.is_empty() {
                continue;
            }
            let action = Action::Inherit { from: root.clone(), revision };
            let checked = namespace.check_no_canary();
            let prepared =
                checked.and_then(|()| namespace.prepare(staged, (action, stamp.clone()), self.faults));
            let prepared = prepared
                .map_err(|error| ConfigError::InChild { namespace: name.clone(), error: Box::new(error) })?;
            plan.extend(prepared.map(|prepared| (name, prepared)));
        }
        Ok(())
    }

    /// The revision that gives a namespace other parents.
    pub(super) fn prepare_parents(
        &self,
        name: &Name,
        parents: &[Name],
        stamp: Stamp,
    ) -> Result<Option<NewParents>, ConfigError> {
        let Some(namespace) = self.namespaces.get(name) else { return Err(ConfigError::NoNamespace) };
        if namespace.parents.iter().map(|parent| &**parent).eq(parents) {
            return Ok(None);
        }
        self.check_parents(name, parents)?;
        let wanted: Vec<Arc<Name>> = parents.iter().cloned().map(Arc::new).collect();
        let staged = {
            let parents = self.parents(&wanted, None);
            let inherited = namespace.items().filter(|item| namespace.source(item).is_some());
            let items = inherited.chain(parents.items()).collect();
            namespace.stage_inherited(items, &parents)
        };
        // Other parents are a revision also if they give the same content.
        let prepared = namespace.prepare_always(staged, (Action::SetParents, stamp), self.faults)?;
        Ok(Some((wanted, prepared)))
    }

    fn check_parents(&self, name: &Name, parents: &[Name]) -> Result<(), ConfigError> {
        let below = self.descendants(name);
        let slot = slots::slot_of(name.routing_key());
        for (position, parent) in parents.iter().enumerate() {
            if slots::slot_of(parent.routing_key()) != slot {
                return Err(ConfigError::ParentElsewhere(parent.clone()));
            }
            if !self.namespaces.contains_key(parent) {
                return Err(ConfigError::NoParent(parent.clone()));
            }
            if parent == name || below.contains(parent) || parents[..position].contains(parent) {
                return Err(ConfigError::ParentCycle(parent.clone()));
            }
        }
        let above = self.ancestors(parents);
        let joined = |ancestor: &Name| {
            let all: BTreeSet<Name> = self.descendants(ancestor).into_iter().chain(below.clone()).collect();
            all.len() + usize::from(!all.contains(name)) > limits::CONFIG_DESCENDANTS_MAX
        };
        let mut known = BTreeMap::new();
        let levels = parents.iter().map(|parent| self.levels(parent, &Config::parents_of, &mut known));
        let above_levels = levels.max().unwrap_or(0);
        let depth = above_levels + self.levels(name, &Config::children_of, &mut BTreeMap::new());
        if depth > limits::CONFIG_INHERITANCE_DEPTH_MAX || above.iter().any(joined) {
            return Err(ConfigError::InheritanceTooLarge);
        }
        Ok(())
    }

    fn parents_of(&self, name: &Name) -> Vec<Name> {
        let namespace = self.namespaces.get(name);
        namespace.iter().flat_map(|namespace| &namespace.parents).map(|parent| Name::clone(parent)).collect()
    }

    fn children_of(&self, name: &Name) -> Vec<Name> {
        self.children.get(name).into_iter().flatten().cloned().collect()
    }

    /// The number of namespaces on the longest path from this one along `next`. `known` holds those
    /// that were computed: the number of paths may be exponential.
    fn levels(
        &self,
        name: &Name,
        next: &impl Fn(&Config, &Name) -> Vec<Name>,
        known: &mut BTreeMap<Name, usize>,
    ) -> usize {
        if let Some(levels) = known.get(name) {
            return *levels;
        }
        let below = next(self, name).iter().map(|name| self.levels(name, next, known)).max();
        let levels = 1 + below.unwrap_or(0);
        known.insert(name.clone(), levels);
        levels
    }

    fn ancestors(&self, parents: &[Name]) -> BTreeSet<Name> {
        let mut found = BTreeSet::new();
        let mut open = parents.to_vec();
        while let Some(name) = open.pop() {
            if !found.contains(&name) {
                open.extend(self.parents_of(&name));
                found.insert(name);
            }
        }
        found
    }

    /// All namespaces that inherit from one, each after those of its parents that do.
    fn descendants(&self, name: &Name) -> Vec<Name> {
        let mut order = Vec::new();
        if self.children.contains_key(name) {
            self.visit(name, &mut BTreeSet::new(), &mut order);
            order.pop();
            order.reverse();
        }
        order
    }

    /// Appends a namespace behind all that inherit from it.
    fn visit(&self, name: &Name, seen: &mut BTreeSet<Name>, order: &mut Vec<Name>) {
        if !seen.insert(name.clone()) {
            return;
        }
        for child in self.children.get(name).into_iter().flatten() {
            self.visit(child, seen, order);
        }
        order.push(name.clone());
    }

    /// Records that a namespace has these parents.
    pub(super) fn link(&mut self, name: &Name, parents: &[Arc<Name>]) {
        for parent in parents {
            self.children.entry(Name::clone(parent)).or_default().insert(name.clone());
        }
    }

    /// Records that a namespace has its present parents no longer.
    pub(super) fn unlink(&mut self, name: &Name) {
        for parent in self.parents_of(name) {
            if let Some(children) = self.children.get_mut(&parent) {
                children.remove(name);
                if children.is_empty() {
                    self.children.remove(&parent);
                }
            }
        }
    }

    /// Whether a change of a namespace concerns others.
    pub(super) fn is_related(&self, name: &Name) -> bool {
        self.children.contains_key(name)
            || self.namespaces.get(name).is_some_and(|namespace| !namespace.parents.is_empty())
    }

    /// Fails if a namespace inherits from this one.
    pub(super) fn check_childless(&self, name: &Name) -> Result<(), ConfigError> {
        match self.children.get(name).and_then(|children| children.first()) {
            Some(child) => Err(ConfigError::HasChildren(child.clone())),
            None => Ok(()),
        }
    }

    /// The relations of a namespace.
    pub(super) fn inheritance(&self, name: &Name) -> Result<Inheritance, ConfigError> {
        let Some(namespace) = self.namespaces.get(name) else { return Err(ConfigError::NoNamespace) };
        Ok(Inheritance {
            revision: namespace.revision,
            parents: self.parents_of(name),
            children: self.children_of(name),
            is_protected: namespace.is_protected,
            canary: namespace.canary.as_ref().map(|canary| canary.shown()),
        })
    }
}
