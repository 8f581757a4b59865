//! Publishing changes: they are staged beside the content, checked as a whole, and only then
//! applied.
//!
//! Invariant: nothing of the namespace changes before all checks have passed, so a refused change
//! has no effect. A change that alters nothing makes no revision: a tool that publishes the same
//! content every five minutes must not displace the history.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::history::{Revision, Undo};
use super::inheritance::Parents;
use super::namespace::{Contents, Namespace, container_bytes, pair_bytes, resolve, unresolved};
use crate::command::config::{
    Action, Change, CheckError, ConfigError, Container, Content, Datatype, Field, Item, Name, Pair,
    SECRET_MASK, Schema, SchemaChecker, Stamp, Value, document_tree,
};
use crate::deliberate::{Fault, Faults};
use crate::limits;

/// New content of keys; `None` removes the key.
#[derive(Default)]
pub(super) struct Staged {
    pub(super) pairs: BTreeMap<Arc<str>, Option<Arc<Pair>>>,
    pub(super) containers: BTreeMap<Arc<str>, Option<Arc<Container>>>,
    /// Pairs and containers that must keep their datatypes.
    typed: BTreeSet<Item>,
    /// New schemas of pairs and containers; `None` removes the schema.
    schemas: BTreeMap<Item, Option<Arc<Schema>>>,
}

/// A revision that has passed all checks.
pub(super) struct PreparedRevision {
    staged: Staged,
    revision: Revision,
}

impl PreparedRevision {
    pub(super) fn staged(&self) -> &Staged {
        &self.staged
    }

    pub(super) fn number(&self) -> u64 {
        self.revision.number
    }

    /// The pairs and containers that it changes.
    pub(super) fn items(&self) -> impl Iterator<Item = Item> {
        self.revision.undo.iter().map(|undo| undo.item.clone())
    }
}

impl Staged {
    /// Content that a namespace had staged before.
    pub(super) fn of(contents: &[(Item, Option<Content>)], number: u64) -> Staged {
        let mut staged = Staged::default();
        for (item, content) in contents {
            match (item, content) {
                (Item::Pair(key), Some(Content::Pair(pair))) => {
                    let pair = Pair { revision: number, ..Pair::clone(pair) };
                    staged.pairs.insert(key.clone(), Some(Arc::new(pair)));
                }
                (Item::Container(key), Some(Content::Container(container))) => {
                    let Container { schema, source, fields, .. } = Container::clone(container);
                    let container = Container { schema, source, ..unresolved(fields, number) };
                    staged.containers.insert(key.clone(), Some(Arc::new(container)));
                }
                (Item::Pair(key), _) => drop(staged.pairs.insert(key.clone(), None)),
                (Item::Container(key), _) => drop(staged.containers.insert(key.clone(), None)),
            }
        }
        staged
    }

    /// The staged content by item.
    pub(super) fn contents(&self) -> Vec<(Item, Option<Content>)> {
        let pairs =
            self.pairs.iter().map(|(key, pair)| (Item::Pair(key.clone()), pair.clone().map(Content::Pair)));
        let containers = self.containers.iter().map(|(key, container)| {
            (Item::Container(key.clone()), container.clone().map(Content::Container))
        });
        pairs.chain(containers).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.containers.is_empty()
    }

    /// Records whether the last change of an item may give it another datatype.
    fn hold_type(&mut self, item: Item, retype: bool) {
        if retype {
            self.typed.remove(&item);
        } else {
            self.typed.insert(item);
        }
    }

    fn pair<'a>(&'a self, contents: &'a Contents, key: &str) -> Option<&'a Pair> {
        match self.pairs.get(key) {
            Some(staged) => staged.as_deref(),
            None => contents.pairs.get(key).map(|pair| &**pair),
        }
    }
}

impl Namespace {
    /// The changes that restore the content of an earlier revision, or one item of it. What the
    /// namespace inherited then, it inherits again, as its parents have it now.
    pub(super) fn restoring(&self, to: u64, item: Option<Item>) -> Result<Vec<Change>, ConfigError> {
        let target = self.at(to)?;
        let put = |item: &Item| restoration(item, target.get(item), self.contents.get(item));
        let items: BTreeSet<Item> = match item {
            Some(item) => {
                if target.get(&item).is_none() && self.contents.get(&item).is_none() {
                    return Err(match item {
                        Item::Pair(key) => ConfigError::NoPair(key),
                        Item::Container(key) => ConfigError::NoContainer(key),
                    });
                }
                [item].into()
            }
            None => {
                let later = self.history.iter().rev().take_while(|later| later.number > to);
                later.flat_map(|later| later.undo.iter().map(|undo| undo.item.clone())).collect()
            }
        };
        // Items that exist neither then nor now were created and deleted in between.
        let matters = |item: &&Item| target.get(item).is_some() || self.contents.get(item).is_some();
        Ok(items.iter().filter(matters).flat_map(put).collect())
    }

    /// Stages `changes`, without those that equal the current content.
    pub(super) fn stage(&self, changes: Vec<Change>, parents: &Parents<'_>) -> Result<Staged, ConfigError> {
        let number = self.numbered + 1;
        let mut staged = Staged::default();
        for change in changes {
            match change {
                Change::PutPair { key, value, retype } => {
                    let kept = if retype { None } else { self.kept_secret(&staged, &key, &value) };
                    // An inherited secret stays inherited: it is sealed for its source.
                    let is_inherited =
                        !staged.pairs.contains_key(&key) && self.source(&Item::Pair(key.clone())).is_some();
                    if kept.is_some() && is_inherited {
                        continue;
                    }
                    let value = kept.unwrap_or(value);
                    staged.hold_type(Item::Pair(key.clone()), retype);
                    let pair = Pair { value: value.into(), schema: None, revision: number, source: None };
                    staged.pairs.insert(key, Some(Arc::new(pair)));
                }
                Change::PutContainer { key, fields, retype } => {
                    staged.hold_type(Item::Container(key.clone()), retype);
                    staged.containers.insert(key, Some(Arc::new(unresolved(fields, number))));
                }
                Change::KeepSecret { key } => {
                    let pair = staged.pair(&self.contents, &key);
                    if !pair.is_some_and(|pair| matches!(*pair.value, Value::Secret(_))) {
                        return Err(ConfigError::NoSecret(key));
                    }
                }
                Change::Delete(item) => self.stage_deletion(item, &mut staged)?,
                Change::SetSchema { item, schema } => {
                    staged.schemas.insert(item, schema);
                }
            }
        }
        // What the namespace does not set any more, it inherits.
        for (key, pair) in staged.pairs.iter_mut().filter(|(_, pair)| pair.is_none()) {
            *pair = parents.pair(key, number);
        }
        for (key, container) in staged.containers.iter_mut().filter(|(_, container)| container.is_none()) {
            *container = parents.container(key, number);
        }
        self.hold_pair_types(&mut staged)?;
        self.stage_schemas(&mut staged)?;
        self.drop_unchanged(&mut staged);
        Ok(staged)
    }

    fn stage_deletion(&self, item: Item, staged: &mut Staged) -> Result<(), ConfigError> {
        let is_staged = match &item {
            Item::Pair(key) => staged.pairs.contains_key(key),
            Item::Container(key) => staged.containers.contains_key(key),
        };
        if let Some(source) = self.source(&item).filter(|_| !is_staged) {
            return Err(ConfigError::Inherited { item, from: Name::clone(source) });
        }
        staged.typed.remove(&item);
        match item {
            Item::Pair(key) => {
                if staged.pair(&self.contents, &key).is_none() {
                    return Err(ConfigError::NoPair(key));
                }
                staged.pairs.insert(key, None);
            }
            Item::Container(key) => {
                let now = self.contents.containers.get(&key);
                if !staged.containers.get(&key).map_or(now.is_some(), Option::is_some) {
                    return Err(ConfigError::NoContainer(key));
                }
                staged.containers.insert(key, None);
            }
        }
        Ok(())
    }

    /// Drops what equals the current content.
    pub(super) fn drop_unchanged(&self, staged: &mut Staged) {
        staged.pairs.retain(|key, pair| {
            let now = self.contents.pairs.get(key).map(|now| (&now.value, &now.schema, &now.source));
            now != pair.as_ref().map(|pair| (&pair.value, &pair.schema, &pair.source))
        });
        staged.containers.retain(|key, container| {
            let now = self.contents.containers.get(key).map(|now| (&now.fields, &now.schema, &now.source));
            now != container.as_ref().map(|new| (&new.fields, &new.schema, &new.source))
        });
    }

    /// The secret of a pair, if the new value is the mask that is shown instead of it: a client
    /// that writes back what it has read changes nothing.
    fn kept_secret(&self, staged: &Staged, key: &str, new: &Value) -> Option<Value> {
        let is_mask = matches!(new, Value::Text(text) if **text == *SECRET_MASK);
        let held = staged.pair(&self.contents, key).filter(|_| is_mask)?;
        matches!(*held.value, Value::Secret(_)).then(|| held.value.to_value())
    }

    /// Gives every staged pair and container its schema: the one that the change sets, or else the
    /// one that it has. Stages those of which only the schema changes.
    fn stage_schemas(&self, staged: &mut Staged) -> Result<(), ConfigError> {
        let revision = self.numbered + 1;
        for item in staged.schemas.keys() {
            match item {
                Item::Pair(key) if !staged.pairs.contains_key(key) => {
                    let now = self.contents.pairs.get(key);
                    let pair = now.map(|now| Arc::new(Pair { revision, ..Pair::clone(now) }));
                    staged.pairs.insert(key.clone(), pair);
                }
                Item::Container(key) if !staged.containers.contains_key(key) => {
                    let now = self.contents.containers.get(key);
                    let container = now.map(|now| Arc::new(unresolved(now.fields.clone(), revision)));
                    staged.containers.insert(key.clone(), container);
                }
                _ => {}
            }
        }
        let schema_of = |item: Item, now: Option<&Arc<Schema>>| match staged.schemas.get(&item) {
            Some(schema) => schema.clone(),
            None => now.cloned(),
        };
        for (key, pair) in &mut staged.pairs {
            let now = self.contents.pairs.get(key).and_then(|now| now.schema.as_ref());
            let item = Item::Pair(key.clone());
            let is_inherited = pair.as_ref().is_some_and(|pair| pair.source.is_some());
            match pair {
                // It keeps the schema of its source.
                Some(_) if is_inherited && !staged.schemas.contains_key(&item) => {}
                // A secret is sealed for the namespace that sets it.
                Some(pair) if is_inherited && matches!(*pair.value, Value::Secret(_)) => {
                    let from = pair.source.as_deref().cloned().ok_or(ConfigError::NoPair(key.clone()))?;
                    return Err(ConfigError::Inherited { item, from });
                }
                Some(pair) => {
                    let pair = Arc::make_mut(pair);
                    (pair.schema, pair.source) = (schema_of(item, now), None);
                }
                None if staged.schemas.contains_key(&item) => return Err(ConfigError::NoPair(key.clone())),
                None => {}
            }
        }
        for (key, container) in &mut staged.containers {
            let now = self.contents.containers.get(key).and_then(|now| now.schema.as_ref());
            let item = Item::Container(key.clone());
            let is_inherited = container.as_ref().is_some_and(|container| container.source.is_some());
            match container {
                Some(_) if is_inherited && !staged.schemas.contains_key(&item) => {}
                Some(container) => {
                    let container = Arc::make_mut(container);
                    (container.schema, container.source) = (schema_of(item, now), None);
                }
                None if staged.schemas.contains_key(&item) => {
                    return Err(ConfigError::NoContainer(key.clone()));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Checks the staged changes; `None` if there are none.
    pub(super) fn prepare(
        &self,
        staged: Staged,
        cause: (Action, Stamp),
        faults: Faults,
    ) -> Result<Option<PreparedRevision>, ConfigError> {
        if staged.is_empty() {
            return Ok(None);
        }
        self.prepare_always(staged, cause, faults).map(Some)
    }

    /// As [`Namespace::prepare`]. The result is a revision also if nothing changes.
    pub(super) fn prepare_always(
        &self,
        mut staged: Staged,
        (action, stamp): (Action, Stamp),
        faults: Faults,
    ) -> Result<PreparedRevision, ConfigError> {
        self.judge_references(&staged)?;
        self.judge_field_types(&staged)?;
        self.judge_sizes(&staged)?;
        let number = self.numbered + 1;
        // Only published items need undo records. The checksums of other containers, updated below,
        // follow from them.
        let items = staged.pairs.keys().cloned().map(Item::Pair);
        let items = items.chain(staged.containers.keys().cloned().map(Item::Container));
        let undo = items.map(|item| Undo { before: self.contents.get(&item), item }).collect();
        self.resolve_affected(&mut staged, number)?;
        self.judge_schemas(&staged, faults)?;
        Ok(PreparedRevision { staged, revision: Revision { number, stamp, action, undo } })
    }

    /// Applies a revision that was prepared for the present state.
    pub(super) fn install(&mut self, PreparedRevision { staged, revision }: PreparedRevision) {
        for (key, pair) in staged.pairs {
            self.set_pair(&key, pair);
        }
        for (key, container) in staged.containers {
            self.set_container(&key, container);
        }
        self.remember(revision);
    }

    /// Pairs keep their datatypes, unless the change allows another, because programs depend on
    /// them. An integer for a pair that holds a float becomes a float.
    fn hold_pair_types(&self, staged: &mut Staged) -> Result<(), ConfigError> {
        for (key, pair) in &mut staged.pairs {
            let (Some(pair), Some(held)) = (pair, self.contents.pairs.get(key)) else { continue };
            let (now, wanted) = (held.value.datatype(), pair.value.datatype());
            if now == wanted || !staged.typed.contains(&Item::Pair(key.clone())) {
                continue;
            }
            match pair.value.int_as_float() {
                Some(value) if now == Datatype::Float => {
                    Arc::make_mut(pair).value = value.into();
                }
                _ => return Err(ConfigError::PairRetyped { pair: key.clone(), now, wanted }),
            }
        }
        Ok(())
    }

    /// A field that refers to another pair also keeps its datatype, unless the change allows
    /// another.
    fn judge_field_types(&self, staged: &Staged) -> Result<(), ConfigError> {
        for (key, container) in &staged.containers {
            let (Some(container), Some(old)) = (container, self.contents.containers.get(key)) else {
                continue;
            };
            if !staged.typed.contains(&Item::Container(key.clone())) {
                continue;
            }
            for field in &container.fields {
                let same_key = |old: &&Field| old.key == field.key;
                let Some(old) = old.fields.iter().find(same_key).filter(|old| old.refers != field.refers)
                else {
                    continue;
                };
                let now = old.refers.datatype(|pair| self.contents.pairs.get(pair).map(|pair| &**pair));
                let wanted = field.refers.datatype(|pair| staged.pair(&self.contents, pair));
                if let (Some(now), Some(wanted)) = (now, wanted)
                    && now != wanted
                {
                    let (container, field) = (key.clone(), field.key.clone());
                    return Err(ConfigError::FieldRetyped { container, field, now, wanted });
                }
            }
        }
        Ok(())
    }

    fn judge_references(&self, staged: &Staged) -> Result<(), ConfigError> {
        for (key, container) in &staged.containers {
            let pairs = container.iter().flat_map(|container| container.pairs());
            for pair in pairs {
                if staged.pair(&self.contents, pair).is_none() {
                    return Err(ConfigError::MissingPair { container: key.clone(), pair: pair.clone() });
                }
            }
        }
        for (pair, _) in staged.pairs.iter().filter(|(_, pair)| pair.is_none()) {
            let mut users = self.users.get(pair).into_iter().flatten();
            // Staged containers were checked above.
            if let Some(container) = users.find(|user| !staged.containers.contains_key(*user)) {
                let (pair, container) = (pair.clone(), container.clone());
                return Err(ConfigError::PairInUse { pair, container });
            }
        }
        Ok(())
    }

    fn judge_sizes(&self, staged: &Staged) -> Result<(), ConfigError> {
        let (mut pairs, mut containers) = (self.contents.pairs.len(), self.contents.containers.len());
        let mut bytes = self.bytes;
        for (key, pair) in &staged.pairs {
            let old = self.contents.pairs.get(key);
            pairs = pairs + usize::from(pair.is_some()) - usize::from(old.is_some());
            bytes = bytes + pair.as_ref().map_or(0, |pair| pair_bytes(key, pair))
                - old.map_or(0, |old| pair_bytes(key, old));
        }
        for (key, container) in &staged.containers {
            let old = self.contents.containers.get(key);
            containers = containers + usize::from(container.is_some()) - usize::from(old.is_some());
            bytes = bytes + container.as_ref().map_or(0, |container| container_bytes(key, container))
                - old.map_or(0, |old| container_bytes(key, old));
        }
        if pairs > limits::CONFIG_PAIRS_MAX {
            return Err(ConfigError::TooManyPairs);
        }
        if containers > limits::CONFIG_CONTAINERS_MAX {
            return Err(ConfigError::TooManyContainers);
        }
        // A restore from a release with higher limits may have exceeded the bound. Such a namespace
        // may still shrink.
        if bytes > limits::CONFIG_NAMESPACE_BYTES_MAX && bytes > self.bytes {
            return Err(ConfigError::NamespaceFull);
        }
        Ok(())
    }

    /// Stages every container whose document changes, with its new checksum.
    fn resolve_affected(&self, staged: &mut Staged, number: u64) -> Result<(), ConfigError> {
        let staged_containers = staged.containers.iter();
        let own = staged_containers.filter(|(_, container)| container.is_some()).map(|(key, _)| key.clone());
        let users = staged.pairs.keys().filter_map(|pair| self.users.get(pair)).flatten().cloned();
        let gone = |key: &Arc<str>| matches!(staged.containers.get(key), Some(None));
        let affected: BTreeSet<Arc<str>> = own.chain(users).filter(|key| !gone(key)).collect();

        let gone_bytes = |key: &Arc<str>| {
            let is_gone = staged.containers.get(key).is_some_and(Option::is_none);
            is_gone || affected.contains(key)
        };
        let kept = self.contents.containers.iter().filter(|(key, _)| !gone_bytes(key));
        let mut total: usize = kept.map(|(_, container)| container.document_bytes).sum();
        let mut scratch = String::new();
        let mut resolved = Vec::with_capacity(affected.len());
        for key in affected {
            let old = self.contents.containers.get(&key);
            let source = staged.containers.get(&key).and_then(Option::as_ref).or(old);
            let mut container = Container::clone(source.expect("invariant: what is affected is there"));
            resolve(&mut container, |pair| staged.pair(&self.contents, pair), &mut scratch);
            container.touched = number;
            container.changed = match old {
                Some(old) if old.checksum == container.checksum => old.changed,
                _ => number,
            };
            total += container.document_bytes;
            if total > limits::CONFIG_DOCUMENTS_BYTES_MAX {
                return Err(ConfigError::DocumentsTooLong);
            }
            resolved.push((key, Some(Arc::new(container))));
        }
        staged.containers.extend(resolved);
        Ok(())
    }
}

impl Namespace {
    /// Checks the schemas of all pairs that change, and of all containers whose documents may
    /// change.
    fn judge_schemas(&self, staged: &Staged, faults: Faults) -> Result<(), ConfigError> {
        let mut checker = SchemaChecker::default();
        for (key, pair) in &staged.pairs {
            if let Some(pair) = pair
                && let Some(schema) = &pair.schema
            {
                let checked = checker.check(schema, &pair.value);
                checked.map_err(|error| violated(Item::Pair(key.clone()), error))?;
            }
        }
        for (key, container) in &staged.containers {
            let Some(container) = container else { continue };
            let Some(schema) = &container.schema else { continue };
            let is_written = container.revision == container.touched;
            if !is_written && faults.has(Fault::ContainerSchemaIgnored) {
                continue;
            }
            let document = document_tree(&container.fields, |pair| staged.pair(&self.contents, pair));
            let checked = checker.check(schema, &document);
            checked.map_err(|error| violated(Item::Container(key.clone()), error))?;
        }
        Ok(())
    }
}

fn violated(item: Item, error: CheckError) -> ConfigError {
    match error {
        CheckError::Violated { path, rule } => {
            ConfigError::SchemaViolated { item, path: path.into(), rule: rule.into() }
        }
        CheckError::TooMuchWork => ConfigError::SchemasTooCostly,
    }
}

/// The changes that restore earlier content of an item.
fn restoration(item: &Item, content: Option<Content>, now: Option<Content>) -> Vec<Change> {
    let sets = |content: &Content| match content {
        Content::Pair(pair) => pair.source.is_none(),
        Content::Container(container) => container.source.is_none(),
    };
    let key = item.key().clone();
    let (put, schema) = match content.filter(sets) {
        Some(Content::Pair(pair)) => {
            let value = pair.value.to_value();
            (Change::PutPair { key, value, retype: true }, pair.schema.clone())
        }
        Some(Content::Container(container)) => {
            let fields = container.fields.clone();
            (Change::PutContainer { key, fields, retype: true }, container.schema.clone())
        }
        None if now.as_ref().is_some_and(sets) => return Vec::from([Change::Delete(item.clone())]),
        None => return Vec::new(),
    };
    Vec::from([put, Change::SetSchema { item: item.clone(), schema }])
}
