//! What a field of a container refers to: pairs, in the structure of the document.
//!
//! Owns the structure and its limits. `layout` encodes it.

use alloc::collections::{BTreeMap, btree_map};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::slice;

use super::value::{Datatype, Value};
use super::{Pair, valid_key};
use crate::command::ShardRefusal;
use crate::limits;

/// The pairs that a field refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refers {
    /// One pair: field type 1.
    One(Arc<str>),
    /// Pairs in order: field type 2.
    List(Vec<Arc<str>>),
    /// Pairs by name, or more such structures by name: field type 3. At most
    /// [`limits::CONFIG_VALUE_DEPTH_MAX`] levels.
    Dict(BTreeMap<Arc<str>, Refers>),
}

impl Refers {
    /// The field type's number in the API.
    pub fn field_type(&self) -> u8 {
        match self {
            Refers::One(_) => 1,
            Refers::List(_) => 2,
            Refers::Dict(_) => 3,
        }
    }

    /// Whether a dict contains anything but pairs. Releases before
    /// [`ClusterVersion::WITH_LEAVES`](crate::version::ClusterVersion::WITH_LEAVES) cannot read it.
    pub fn is_nested(&self) -> bool {
        match self {
            Refers::One(_) | Refers::List(_) => false,
            Refers::Dict(entries) => entries.values().any(|entry| !matches!(entry, Refers::One(_))),
        }
    }

    /// The keys of the pairs referred to, repeated as often as they are referred to.
    pub fn pairs(&self) -> Pairs<'_> {
        let mut pairs = Pairs { list: [].iter(), outer: Vec::new() };
        pairs.enter(self);
        pairs
    }

    /// The value to which the field resolves; `None` if `pair` returns `None` for one of its pairs.
    pub fn value(&self, pair: &impl Fn(&Arc<str>) -> Option<Value>) -> Option<Value> {
        Some(match self {
            Refers::One(key) => pair(key)?,
            Refers::List(keys) => Value::List(keys.iter().map(pair).collect::<Option<_>>()?),
            Refers::Dict(entries) => {
                let entry = |(name, entry): (&Arc<str>, &Refers)| Some((name.clone(), entry.value(pair)?));
                Value::Dict(entries.iter().map(entry).collect::<Option<_>>()?)
            }
        })
    }

    /// The datatype to which the field resolves; `None` if its pair does not exist.
    pub fn datatype<'a>(&self, pair: impl Fn(&str) -> Option<&'a Pair>) -> Option<Datatype> {
        match self {
            Refers::One(key) => pair(key).map(|pair| pair.value.datatype()),
            Refers::List(_) => Some(Datatype::List),
            Refers::Dict(_) => Some(Datatype::Dict),
        }
    }

    /// Bytes of all keys and names, as limits count them.
    pub(crate) fn key_bytes(&self) -> usize {
        match self {
            Refers::One(key) => key.len() + 1,
            Refers::List(keys) => keys.iter().map(|key| key.len() + 1).sum(),
            Refers::Dict(entries) => {
                entries.iter().map(|(name, entry)| name.len() + 1 + entry.key_bytes()).sum()
            }
        }
    }

    /// Checks keys, names, and the number of levels.
    pub(super) fn check(&self) -> Result<(), ShardRefusal> {
        self.check_within(limits::CONFIG_VALUE_DEPTH_MAX)
    }

    fn check_within(&self, levels: usize) -> Result<(), ShardRefusal> {
        match self {
            Refers::One(key) => valid_key(key),
            Refers::List(keys) => keys.iter().try_for_each(|key| valid_key(key)),
            Refers::Dict(_) if levels == 0 => {
                Err(ShardRefusal::invalid("a field with dicts more than 16 levels deep"))
            }
            Refers::Dict(entries) => entries.iter().try_for_each(|(name, entry)| {
                valid_key(name)?;
                entry.check_within(levels - 1)
            }),
        }
    }
}

/// The keys of pairs in a [`Refers`], in order.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    list: slice::Iter<'a, Arc<str>>,
    /// The rest of each dict around `list`, the innermost last.
    outer: Vec<btree_map::Values<'a, Arc<str>, Refers>>,
}

impl<'a> Pairs<'a> {
    fn enter(&mut self, refers: &'a Refers) {
        match refers {
            Refers::One(key) => self.list = slice::from_ref(key).iter(),
            Refers::List(keys) => self.list = keys.iter(),
            Refers::Dict(entries) => self.outer.push(entries.values()),
        }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = &'a Arc<str>;

    fn next(&mut self) -> Option<&'a Arc<str>> {
        loop {
            if let Some(key) = self.list.next() {
                return Some(key);
            }
            match self.outer.last_mut()?.next() {
                Some(entry) => self.enter(entry),
                None => drop(self.outer.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;

    fn one(key: &str) -> Refers {
        Refers::One(key.into())
    }

    fn dict(entries: &[(&str, Refers)]) -> Refers {
        Refers::Dict(entries.iter().map(|(name, entry)| (Arc::from(*name), entry.clone())).collect())
    }

    #[test]
    fn pairs_come_in_the_order_of_the_document() {
        let inner = dict(&[("x", one("3")), ("y", dict(&[])), ("z", Refers::List(vec![]))]);
        let refers = dict(&[
            ("a", one("1")),
            ("b", Refers::List(vec!["2".into(), "1".into()])),
            ("c", inner),
            ("d", one("4")),
        ]);
        let keys: Vec<&str> = refers.pairs().map(|key| &**key).collect();
        assert_eq!(keys, ["1", "2", "1", "3", "4"]);
        let value = refers.value(&|key| Some(Value::text(key))).unwrap();
        assert_eq!(value.to_json(), r#"{"a":"1","b":["2","1"],"c":{"x":"3","y":{},"z":[]},"d":"4"}"#);
        let known = |key: &Arc<str>| (**key != *"3").then(|| Value::text(key));
        assert_eq!(refers.value(&known), None);
    }

    #[test]
    fn levels_and_names_are_bounded() {
        let mut refers = one("p");
        for _ in 0..limits::CONFIG_VALUE_DEPTH_MAX {
            refers = dict(&[("n", refers)]);
        }
        assert_eq!(refers.check(), Ok(()));
        assert!(dict(&[("n", refers)]).check().is_err());
        assert!(dict(&[("", one("p"))]).check().is_err());
        assert!(dict(&[("n", one(&format!("{:129}", "p")))]).check().is_err());
    }

    #[test]
    fn only_dicts_of_pairs_are_known_to_earlier_releases() {
        assert!(!dict(&[("a", one("p"))]).is_nested());
        assert!(dict(&[("a", dict(&[]))]).is_nested());
        assert!(dict(&[("a", Refers::List(vec![]))]).is_nested());
    }
}
