//! How a document becomes the pairs and fields of a container.
//!
//! Every value of a document that is not a dict is a leaf, and gets one pair: `<container>.<path>`,
//! the path being the names of the dicts around it and its own, with points between them. Lists are
//! leaves. What is unchanged keeps the pairs that it refers to, so that an import never changes
//! what other containers resolve to.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ImportFailure;
use crate::command::config::{
    Change, ConfigError, Datatype, Export, Field, Item, Refers, SECRET_MASK, Value, check_key,
};
use crate::limits;

/// A document that a container should resolve to.
#[derive(Clone, Debug)]
pub struct ContainerDocument {
    container: Arc<str>,
    fields: BTreeMap<Arc<str>, Value>,
    has_types: bool,
    retype: bool,
}

impl ContainerDocument {
    /// A document for a container. `has_types` is whether its format distinguishes text from
    /// numbers, `retype` whether fields may change their datatypes.
    ///
    /// # Errors
    /// When the value is not a dict, or has too many fields.
    pub fn new(
        container: Arc<str>,
        document: Value,
        has_types: bool,
        retype: bool,
    ) -> Result<ContainerDocument, ImportFailure> {
        match document {
            Value::Dict(fields) if fields.len() > limits::CONFIG_FIELDS_MAX => {
                Err(ImportFailure::TooManyFields(fields.len()))
            }
            Value::Dict(fields) => Ok(ContainerDocument { container, fields, has_types, retype }),
            _ => Err(ImportFailure::NotADocument),
        }
    }

    /// The changes that make the container resolve to the document.
    pub(super) fn changes(&self, export: &Export) -> Result<Vec<Change>, ImportFailure> {
        let container = &self.container;
        let old = export.containers.get(container);
        let old_fields: BTreeMap<&Arc<str>, &Refers> =
            old.iter().flat_map(|old| &old.fields).map(|field| (&field.key, &field.refers)).collect();
        let mut wanted = Vec::new();
        for (key, value) in &self.fields {
            let key = parse_key(key)?;
            let old = old_fields.get(&key).copied();
            let value = match old.and_then(|old| value_of(old, export)) {
                Some(old) if !self.retype => fitted(value, &old, self.has_types),
                _ => value.clone(),
            };
            wanted.push((key, value, old));
        }
        let leaves: usize = wanted.iter().map(|(_, value, _)| leaves_in(value)).sum();
        let splits = leaves <= limits::CONFIG_REFERENCES_MAX;
        let used_elsewhere = pairs_of_others(container, export);
        let mut builder = Builder {
            document: self,
            export,
            splits,
            used_elsewhere,
            taken: BTreeSet::new(),
            changes: Vec::new(),
        };
        for (key, value, old) in &wanted {
            builder.reserve(&Path::of_field(key), value, *old);
        }
        let mut fields = Vec::new();
        for (key, value, old) in wanted {
            let refers = builder.refers(&Path::of_field(&key), &value, old)?;
            fields.push(Field { key, refers });
        }
        let used: BTreeSet<&Arc<str>> = fields.iter().flat_map(|field| field.refers.pairs()).collect();
        let unused = old.iter().flat_map(|old| old.pairs());
        let unused: BTreeSet<&Arc<str>> =
            unused.filter(|pair| builder.is_own(pair) && !used.contains(pair)).collect();
        let deletions = unused.into_iter().map(|pair| Change::Delete(Item::Pair(pair.clone())));
        let mut changes: Vec<Change> = builder.changes.iter().cloned().chain(deletions).collect();
        changes.push(Change::PutContainer { key: container.clone(), fields, retype: self.retype });
        Ok(changes)
    }
}

/// Converts a value to the datatype of the present one if nothing is lost. An int becomes a float;
/// in a format without types, a number or a bool becomes a string.
fn fitted(value: &Value, old: &Value, has_types: bool) -> Value {
    match (value, old) {
        (Value::Int(_), Value::Float(_)) => value.int_as_float().unwrap_or_else(|| value.clone()),
        (Value::Int(_) | Value::Float(_) | Value::Bool(_), Value::Text(_)) if !has_types => {
            Value::text(&value.to_json())
        }
        (Value::List(items), Value::List(old)) => {
            // Items beyond the present ones get the datatype of the last one.
            let item = |(position, item)| match old.get(position).or(old.last()) {
                Some(old) => fitted(item, old, has_types),
                None => Value::clone(item),
            };
            Value::List(items.iter().enumerate().map(item).collect())
        }
        (Value::Dict(entries), Value::Dict(old)) => {
            let entry = |(key, value): (&Arc<str>, &Value)| match old.get(key) {
                Some(old) => (key.clone(), fitted(value, old, has_types)),
                None => (key.clone(), value.clone()),
            };
            Value::Dict(entries.iter().map(entry).collect())
        }
        _ => value.clone(),
    }
}

fn parse_key(key: &str) -> Result<Arc<str>, ImportFailure> {
    check_key(key).map_err(|error| ImportFailure::Key { key: String::from(key), error })?;
    Ok(key.into())
}

/// The pairs to which other containers refer.
fn pairs_of_others<'a>(container: &Arc<str>, export: &'a Export) -> BTreeSet<&'a Arc<str>> {
    let others = export.containers.iter().filter(|(key, _)| *key != container);
    others.flat_map(|(_, other)| other.pairs()).collect()
}

/// The value to which a field resolves, as clients see it: with the mask instead of secrets.
fn value_of(refers: &Refers, export: &Export) -> Option<Value> {
    let shown = |value: &Value| match value {
        Value::Secret(_) => Value::text(SECRET_MASK),
        other => other.clone(),
    };
    refers.value(&|pair| export.pairs.get(pair).map(|pair| shown(&pair.value)))
}

/// Whether a value is the mask of a secret, or contains it.
fn has_mask(value: &Value) -> bool {
    match value {
        Value::Text(text) => **text == *SECRET_MASK,
        Value::List(items) => items.iter().any(has_mask),
        Value::Dict(entries) => entries.values().any(has_mask),
        _ => false,
    }
}

/// The entries of a value that is a dict and not empty. An empty one is a leaf.
fn entries_of(value: &Value) -> Option<&BTreeMap<Arc<str>, Value>> {
    match value {
        Value::Dict(entries) if !entries.is_empty() => Some(entries),
        _ => None,
    }
}

fn leaves_in(value: &Value) -> usize {
    entries_of(value).map_or(1, |entries| entries.values().map(leaves_in).sum())
}

/// Where a value is in a document.
struct Path {
    /// The names from the field on, with points between them.
    text: String,
    /// Number of dicts around the value.
    levels: usize,
}

impl Path {
    fn of_field(field: &str) -> Path {
        Path { text: field.into(), levels: 0 }
    }

    fn entry(&self, name: &str) -> Path {
        Path { text: format!("{}.{name}", self.text), levels: self.levels + 1 }
    }
}

/// Converts fields to pairs of the container.
struct Builder<'a> {
    document: &'a ContainerDocument,
    export: &'a Export,
    /// Whether dicts become one pair a leaf. A document with more leaves than a container may have
    /// references keeps its dicts as values.
    splits: bool,
    used_elsewhere: BTreeSet<&'a Arc<str>>,
    /// Pairs of the new container: those that unchanged values keep, and those assigned so far.
    taken: BTreeSet<Arc<str>>,
    changes: Vec<Change>,
}

impl Builder<'_> {
    /// Whether an import may have made the pair.
    fn has_own_name(&self, pair: &Arc<str>) -> bool {
        let name = pair.strip_prefix(&*self.document.container);
        name.is_some_and(|name| name.starts_with('.'))
    }

    /// Whether a pair belongs to the container alone.
    fn is_own(&self, pair: &Arc<str>) -> bool {
        self.has_own_name(pair) && !self.used_elsewhere.contains(pair)
    }

    /// The entries of a dict that become pairs of their own. A dict stays a value if a key of a
    /// pair would be too long, or if a name cannot be a key.
    fn split<'v>(&self, path: &Path, value: &'v Value) -> Option<&'v BTreeMap<Arc<str>, Value>> {
        if !self.splits || path.levels >= limits::CONFIG_VALUE_DEPTH_MAX {
            return None;
        }
        let fits = |name: &Arc<str>| {
            check_key(name).is_ok() && check_key(&self.plain_key(&path.entry(name))).is_ok()
        };
        entries_of(value).filter(|entries| entries.keys().all(fits))
    }

    /// Whether a value keeps the pairs of `old`: it is unchanged, and not a dict in an own pair,
    /// which an earlier release imported as a whole.
    fn keeps(&self, path: &Path, value: &Value, old: &Refers) -> bool {
        let is_whole = matches!(old, Refers::One(pair) if self.is_own(pair));
        let is_to_split = is_whole && self.split(path, value).is_some();
        !is_to_split && value_of(old, self.export).as_ref() == Some(value)
    }

    /// Marks the pairs that unchanged values keep as taken, before others get new ones.
    fn reserve(&mut self, path: &Path, value: &Value, old: Option<&Refers>) {
        let Some(old) = old else { return };
        if self.keeps(path, value, old) {
            self.taken.extend(old.pairs().cloned());
        } else if let (Some(entries), Refers::Dict(old)) = (self.split(path, value), old) {
            entries.iter().for_each(|(name, value)| self.reserve(&path.entry(name), value, old.get(name)));
        }
    }

    /// The pairs for a value whose present ones are `old`.
    fn refers(&mut self, path: &Path, value: &Value, old: Option<&Refers>) -> Result<Refers, ImportFailure> {
        if let Some(old) = old.filter(|old| self.keeps(path, value, old)) {
            return Ok(old.clone());
        }
        self.check_type(path, value, old)?;
        let Some(entries) = self.split(path, value) else { return self.leaf(path, value, old) };
        let old_entries = if let Some(Refers::Dict(entries)) = old { Some(entries) } else { None };
        let mut dict = BTreeMap::new();
        for (name, value) in entries {
            let old = old_entries.and_then(|entries| entries.get(name));
            dict.insert(name.clone(), self.refers(&path.entry(name), value, old)?);
        }
        Ok(Refers::Dict(dict))
    }

    /// One pair for a value that a pair can hold. A list or a dict that no pair can hold gets a
    /// pair for each of its items.
    fn leaf(&mut self, path: &Path, value: &Value, old: Option<&Refers>) -> Result<Refers, ImportFailure> {
        match (value.validate(), value) {
            (Ok(()), value) => {
                let old = if let Some(Refers::One(old)) = old { Some(old) } else { None };
                Ok(Refers::One(self.pair(path, value, old)?))
            }
            (Err(_), Value::List(items)) => {
                let items = items.iter().enumerate();
                let pairs =
                    items.map(|(position, item)| self.pair(&path.entry(&format!("{position}")), item, None));
                Ok(Refers::List(pairs.collect::<Result<_, ImportFailure>>()?))
            }
            (Err(_), Value::Dict(entries)) => {
                let pairs = entries.iter().map(|(name, item)| {
                    let pair = self.pair(&path.entry(name), item, None)?;
                    Ok((parse_key(name)?, Refers::One(pair)))
                });
                Ok(Refers::Dict(pairs.collect::<Result<_, ImportFailure>>()?))
            }
            (Err(error), _) => Err(ImportFailure::FieldValue { field: path.text.as_str().into(), error }),
        }
    }

    /// Puts a value into a pair: the present one if only this value uses it, else a new one.
    fn pair(
        &mut self,
        path: &Path,
        value: &Value,
        old: Option<&Arc<str>>,
    ) -> Result<Arc<str>, ImportFailure> {
        value.validate().map_err(|error| ImportFailure::PairValue { name: path.text.clone(), error })?;
        if has_mask(value) {
            return Err(ImportFailure::Masked(path.text.clone()));
        }
        let key = match old.filter(|old| self.has_own_name(old) && !self.taken.contains(*old)) {
            Some(old) if self.used_elsewhere.contains(old) => {
                return Err(ImportFailure::PairInUse(old.clone()));
            }
            Some(old) => old.clone(),
            None => self.new_key(path)?,
        };
        self.taken.insert(key.clone());
        let retype = self.document.retype;
        self.changes.push(Change::PutPair { key: key.clone(), value: value.clone(), retype });
        Ok(key)
    }

    /// A key for a leaf. Paths of two leaves may have the same text, such as `b` in `a` and `a.b`,
    /// and so may the keys of two containers: then the second one gets a number.
    fn new_key(&self, path: &Path) -> Result<Arc<str>, ImportFailure> {
        let plain = self.plain_key(path);
        let mut key = parse_key(&plain)?;
        let mut number = 2;
        while self.taken.contains(&key) || self.used_elsewhere.contains(&key) {
            key = parse_key(&format!("{plain}~{number}"))?;
            number += 1;
        }
        Ok(key)
    }

    fn plain_key(&self, path: &Path) -> String {
        format!("{}.{}", self.document.container, path.text)
    }

    /// A value keeps its datatype, unless the import allows another. Publishing checks fields and
    /// pairs; this checks dicts inside of fields, whose pairs come and go.
    fn check_type(&self, path: &Path, value: &Value, old: Option<&Refers>) -> Result<(), ImportFailure> {
        let pair = |pair: &str| self.export.pairs.get(pair).map(|pair| &**pair);
        let Some(now) = old.and_then(|old| old.datatype(pair)) else { return Ok(()) };
        let wanted = value.datatype();
        if self.document.retype || now == wanted || (now, wanted) == (Datatype::Float, Datatype::Int) {
            return Ok(());
        }
        let (container, field) = (self.document.container.clone(), path.text.as_str().into());
        Err(ConfigError::FieldRetyped { container, field, now, wanted }.into())
    }
}

#[cfg(test)]
mod tests;
