//! Promotion: the changes that give a namespace the content of another one.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::command::config::{Change, Container, Export, Item, Pair, Value};

/// Content to take over from another namespace.
#[derive(Clone, Debug)]
pub struct Promotion {
    /// The content of the other namespace.
    pub from: Export,
    /// The only pairs and containers to take over; `None`: all of them. A container needs the pairs
    /// to which it refers.
    pub keys: Option<BTreeSet<Arc<str>>>,
    /// Whether to delete what the other namespace does not have.
    pub prunes: bool,
    /// Whether pairs and fields may become ones of other datatypes.
    pub retype: bool,
}

impl Promotion {
    /// Keys of the secrets that are not taken over: each is sealed for its namespace.
    pub fn secrets(&self) -> impl Iterator<Item = &Arc<str>> {
        let is_secret = |pair: &Pair| matches!(*pair.value, Value::Secret(_));
        self.from
            .pairs
            .iter()
            .filter(move |(key, pair)| self.is_chosen(key) && is_secret(pair))
            .map(|(key, _)| key)
    }

    fn is_chosen(&self, key: &Arc<str>) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(key))
    }

    /// A chosen key that neither namespace has, such as one with a typing error.
    pub(super) fn unknown_key(&self, to: &Export) -> Option<&Arc<str>> {
        let has =
            |export: &Export, key| export.pairs.contains_key(key) || export.containers.contains_key(key);
        self.keys.iter().flatten().find(|key| !has(&self.from, *key) && !has(to, *key))
    }

    /// The changes that `to` lacks, apart from secrets. What it inherits with the same content
    /// stays inherited.
    pub(super) fn changes(&self, to: &Export) -> Vec<Change> {
        let is_chosen = |key: &Arc<str>| self.is_chosen(key);
        let mut changes = Vec::new();
        for (key, pair) in self.from.pairs.iter().filter(|(key, _)| is_chosen(key)) {
            let Pair { value, schema, .. } = &**pair;
            if matches!(**value, Value::Secret(_)) {
                continue;
            }
            let now = to.pairs.get(key);
            if now.is_none_or(|now| now.value != *value) {
                let (key, value) = (key.clone(), value.to_value());
                changes.push(Change::PutPair { key, value, retype: self.retype });
            }
            if now.and_then(|now| now.schema.as_ref()) != schema.as_ref() {
                let item = Item::Pair(key.clone());
                changes.push(Change::SetSchema { item, schema: schema.clone() });
            }
        }
        for (key, container) in self.from.containers.iter().filter(|(key, _)| is_chosen(key)) {
            let Container { fields, schema, .. } = &**container;
            let now = to.containers.get(key);
            if now.is_none_or(|now| now.fields != *fields) {
                let (key, fields) = (key.clone(), fields.clone());
                changes.push(Change::PutContainer { key, fields, retype: self.retype });
            }
            if now.and_then(|now| now.schema.as_ref()) != schema.as_ref() {
                let item = Item::Container(key.clone());
                changes.push(Change::SetSchema { item, schema: schema.clone() });
            }
        }
        if self.prunes {
            let pairs = to.pairs.iter().filter(|(key, pair)| {
                pair.source.is_none() && !self.from.pairs.contains_key(*key) && is_chosen(key)
            });
            changes.extend(pairs.map(|(key, _)| Change::Delete(Item::Pair(key.clone()))));
            let containers = to.containers.iter().filter(|(key, container)| {
                container.source.is_none() && !self.from.containers.contains_key(*key) && is_chosen(key)
            });
            changes.extend(containers.map(|(key, _)| Change::Delete(Item::Container(key.clone()))));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::config::{Name, Policy};
    use alloc::collections::BTreeMap;

    fn export(pairs: &[(&str, i64, bool)]) -> Export {
        let pair = |(key, number, is_inherited): &(&str, i64, bool)| {
            let source = is_inherited.then(|| Arc::new(Name::new("base").unwrap()));
            (
                Arc::from(*key),
                Arc::new(Pair { value: Value::Int(*number).into(), schema: None, revision: 1, source }),
            )
        };
        let pairs = pairs.iter().map(pair).collect();
        Export { revision: 1, policy: Policy::default(), pairs, containers: BTreeMap::new() }
    }

    fn put(key: &str, number: i64) -> Change {
        Change::PutPair { key: key.into(), value: Value::Int(number), retype: false }
    }

    #[test]
    fn only_what_differs_is_taken_over_and_only_what_is_set_is_deleted() {
        let from = export(&[("a", 1, false), ("b", 2, false), ("same", 3, true)]);
        let to = export(&[("a", 9, false), ("same", 3, true), ("own", 4, false), ("inherited", 5, true)]);
        let promotion = |keys: Option<&[&str]>, prunes| {
            let keys = keys.map(|keys| keys.iter().map(|key| (*key).into()).collect());
            Promotion { from: from.clone(), keys, prunes, retype: false }.changes(&to)
        };
        assert_eq!(promotion(None, false), [put("a", 1), put("b", 2)]);
        let delete = Change::Delete(Item::Pair("own".into()));
        assert_eq!(promotion(None, true), [put("a", 1), put("b", 2), delete.clone()]);
        assert_eq!(promotion(Some(&["b"]), true), [put("b", 2)]);
        assert_eq!(promotion(Some(&["own"]), true), [delete]);
    }

    #[test]
    fn a_key_that_neither_namespace_has_is_found() {
        let (from, to) = (export(&[("a", 1, false)]), export(&[("own", 4, false)]));
        let unknown = |keys: Option<&[&str]>| {
            let keys = keys.map(|keys| keys.iter().map(|key| (*key).into()).collect());
            let promotion = Promotion { from: from.clone(), keys, prunes: false, retype: false };
            promotion.unknown_key(&to).cloned()
        };
        assert_eq!([unknown(None), unknown(Some(&[])), unknown(Some(&["a", "own"]))], [None, None, None]);
        assert_eq!(unknown(Some(&["a", "b"])).as_deref(), Some("b"));
    }
}
