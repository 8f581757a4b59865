//! How a document becomes the pairs and fields of a container.
//!
//! A field whose value is unchanged keeps the pairs that it refers to. Any other field gets pairs
//! of the container, `<container>.<field>`, so that an import never changes what other containers
//! resolve to.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ImportFailure;
use crate::command::config::{Change, Export, Field, Item, Refers, Value, check_key};
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
        let mut builder = Builder { container, export, retype: self.retype, changes: Vec::new() };
        let mut fields = Vec::new();
        for (key, value) in &self.fields {
            let key = parse_key(key)?;
            let old = old_fields.get(&key).and_then(|refers| Some((*refers, resolve(refers, export)?)));
            let value = match &old {
                Some((_, old)) if !self.retype => fitted(value, old, self.has_types),
                _ => value.clone(),
            };
            let refers = match old {
                Some((refers, old)) if old == value => refers.clone(),
                _ => builder.field(&key, &value)?,
            };
            fields.push(Field { key, refers });
        }
        let used: BTreeSet<&Arc<str>> = fields.iter().flat_map(|field| field.refers.pairs()).collect();
        let own = format!("{container}.");
        let unused = old
            .iter()
            .flat_map(|old| old.pairs())
            .filter(|pair| pair.starts_with(&own) && !used.contains(pair));
        let unused: BTreeSet<Arc<str>> =
            unused.filter(|pair| !is_used_elsewhere(pair, container, export)).cloned().collect();
        let mut changes = builder.changes;
        changes.extend(unused.into_iter().map(|pair| Change::Delete(Item::Pair(pair))));
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

fn is_used_elsewhere(pair: &Arc<str>, container: &Arc<str>, export: &Export) -> bool {
    let mut others = export.containers.iter().filter(|(key, _)| *key != container);
    others.any(|(_, other)| other.pairs().any(|used| used == pair))
}

/// The value that a field resolves to.
fn resolve(refers: &Refers, export: &Export) -> Option<Value> {
    let value = |pair: &Arc<str>| export.pairs.get(pair).map(|pair| pair.value.clone());
    Some(match refers {
        Refers::One(pair) => value(pair)?,
        Refers::List(pairs) => Value::List(pairs.iter().map(value).collect::<Option<_>>()?),
        Refers::Dict(pairs) => {
            let entry = |(name, pair): (&Arc<str>, &Arc<str>)| Some((name.clone(), value(pair)?));
            Value::Dict(pairs.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}

/// Converts fields to pairs of the container.
struct Builder<'a> {
    container: &'a Arc<str>,
    export: &'a Export,
    retype: bool,
    changes: Vec<Change>,
}

impl Builder<'_> {
    /// Gives a value that one pair can hold one pair. A list or a dict that no pair can hold gets a
    /// pair for each of its items.
    fn field(&mut self, field: &Arc<str>, value: &Value) -> Result<Refers, ImportFailure> {
        match (value.validate(), value) {
            (Ok(()), value) => Ok(Refers::One(self.pair(field, value)?)),
            (Err(_), Value::List(items)) => {
                let items = items.iter().enumerate();
                let pairs = items.map(|(position, item)| self.pair(&format!("{field}.{position}"), item));
                Ok(Refers::List(pairs.collect::<Result<_, ImportFailure>>()?))
            }
            (Err(_), Value::Dict(entries)) => {
                let pairs = entries
                    .iter()
                    .map(|(name, item)| Ok((parse_key(name)?, self.pair(&format!("{field}.{name}"), item)?)));
                Ok(Refers::Dict(pairs.collect::<Result<_, ImportFailure>>()?))
            }
            (Err(error), _) => Err(ImportFailure::FieldValue { field: field.clone(), error }),
        }
    }

    fn pair(&mut self, name: &str, value: &Value) -> Result<Arc<str>, ImportFailure> {
        value.validate().map_err(|error| ImportFailure::PairValue { name: String::from(name), error })?;
        let key = parse_key(&format!("{}.{name}", self.container))?;
        let is_other = self.export.pairs.get(&key).is_some_and(|pair| pair.value != *value);
        if is_other && is_used_elsewhere(&key, self.container, self.export) {
            return Err(ImportFailure::PairInUse(key));
        }
        let (value, retype) = (value.clone(), self.retype);
        self.changes.push(Change::PutPair { key: key.clone(), value, retype });
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::command::config::{Container, Pair, Policy};

    fn float(number: f64) -> Value {
        Value::float(number).unwrap()
    }

    fn ints(numbers: &[i64]) -> Value {
        Value::List(numbers.iter().copied().map(Value::Int).collect())
    }

    fn dict(entries: &[(&str, Value)]) -> Value {
        Value::Dict(entries.iter().map(|(key, value)| (Arc::from(*key), value.clone())).collect())
    }

    #[test]
    fn values_get_the_present_datatype_if_nothing_is_lost() {
        // The file's value, the present value, the result with types, the result without types.
        for (value, old, typed, untyped) in [
            (Value::Int(2), float(1.5), "2.0", "2.0"),
            (float(1.5), Value::Int(2), "1.5", "1.5"),
            (Value::Int(2), Value::text("1.10"), "2", "\"2\""),
            (float(1.2), Value::text("1.10"), "1.2", "\"1.2\""),
            (Value::Bool(true), Value::text("x"), "true", "\"true\""),
            (Value::text("30s"), Value::Int(30), "\"30s\"", "\"30s\""),
            (Value::Empty, Value::text("x"), "null", "null"),
            (ints(&[1, 2, 3]), Value::List(vec![Value::text("x")]), "[1,2,3]", "[\"1\",\"2\",\"3\"]"),
            (ints(&[1]), ints(&[]), "[1]", "[1]"),
            (ints(&[1, 2]), Value::List(vec![float(0.5)]), "[1.0,2.0]", "[1.0,2.0]"),
            (
                dict(&[("a", Value::Int(1)), ("b", Value::Int(1))]),
                dict(&[("a", Value::text("x"))]),
                "{\"a\":1,\"b\":1}",
                "{\"a\":\"1\",\"b\":1}",
            ),
        ] {
            assert_eq!(fitted(&value, &old, true).to_json(), typed);
            assert_eq!(fitted(&value, &old, false).to_json(), untyped);
        }
    }

    /// A namespace with pairs 0 to 2, and containers that refer to pairs by field.
    fn export(containers: &[(&str, &[(&str, &str)])]) -> Export {
        let pair = |(key, value)| {
            (Arc::from(key), Arc::new(Pair { value: Value::Int(value), schema: None, revision: 1 }))
        };
        let container = |&(key, fields): &(&str, &[(&str, &str)])| {
            let field =
                |&(key, pair): &(&str, &str)| Field { key: key.into(), refers: Refers::One(pair.into()) };
            let fields = fields.iter().map(field).collect();
            let (checksum, document_bytes) = ([0; 32], 0);
            let container = Container {
                fields,
                schema: None,
                revision: 1,
                touched: 1,
                changed: 1,
                checksum,
                document_bytes,
            };
            (Arc::from(key), Arc::new(container))
        };
        Export {
            revision: 1,
            policy: Policy::default(),
            pairs: [("shared", 0), ("c.f", 1), ("c.g", 2)].map(pair).into(),
            containers: containers.iter().map(container).collect(),
        }
    }

    fn changes(fields: &[(&str, i64)], export: &Export) -> Result<Vec<Change>, ImportFailure> {
        let fields: Vec<_> = fields.iter().map(|&(key, number)| (key, Value::Int(number))).collect();
        ContainerDocument::new("c".into(), dict(&fields), true, false)?.changes(export)
    }

    fn put(key: &str, number: i64) -> Change {
        Change::PutPair { key: key.into(), value: Value::Int(number), retype: false }
    }

    fn container(fields: &[(&str, &str)]) -> Change {
        let field = |&(key, pair): &(&str, &str)| Field { key: key.into(), refers: Refers::One(pair.into()) };
        Change::PutContainer { key: "c".into(), fields: fields.iter().map(field).collect(), retype: false }
    }

    #[test]
    fn unchanged_fields_keep_their_pairs_and_others_get_pairs_of_the_container() {
        let export = export(&[("c", &[("f", "shared")])]);
        assert_eq!(changes(&[("f", 0)], &export), Ok(vec![container(&[("f", "shared")])]));
        let own = [("f", "c.f"), ("new", "c.new")];
        let expected = vec![put("c.f", 5), put("c.new", 6), container(&own)];
        assert_eq!(changes(&[("f", 5), ("new", 6)], &export), Ok(expected));
    }

    #[test]
    fn pairs_of_the_container_that_no_field_needs_are_deleted() {
        let fields: &[_] = &[("f", "c.f"), ("g", "c.g"), ("h", "shared")];
        let deletion = |pair: &str| Change::Delete(Item::Pair(pair.into()));
        let expected = vec![deletion("c.f"), deletion("c.g"), container(&[])];
        assert_eq!(changes(&[], &export(&[("c", fields)])), Ok(expected));
        let expected = vec![deletion("c.f"), container(&[])];
        assert_eq!(changes(&[], &export(&[("c", fields), ("other", &[("x", "c.g")])])), Ok(expected));
    }

    #[test]
    fn what_other_containers_resolve_to_does_not_change() {
        let export = export(&[("c", &[("f", "c.f")]), ("other", &[("x", "c.f")])]);
        assert_eq!(changes(&[("f", 9)], &export), Err(ImportFailure::PairInUse("c.f".into())));
        assert_eq!(changes(&[("f", 1)], &export), Ok(vec![container(&[("f", "c.f")])]));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        let new = |value| ContainerDocument::new("c".into(), value, true, false).map(drop);
        assert_eq!(new(Value::Int(1)), Err(ImportFailure::NotADocument));
        let fields =
            (0..=limits::CONFIG_FIELDS_MAX).map(|field| (Arc::from(format!("{field}")), Value::Empty));
        let error = ImportFailure::TooManyFields(limits::CONFIG_FIELDS_MAX + 1);
        assert_eq!(new(Value::Dict(fields.collect())), Err(error));
        assert!(matches!(changes(&[("", 1)], &export(&[])), Err(ImportFailure::Key { .. })));
    }
}
