//! Schemas: they are kept, checked with every change, and restored with what they belong to.

use super::*;
use crate::command::config::{Content, Schema, SchemaChecker};

fn dict(entries: &[(&str, Value)]) -> Value {
    Value::Dict(entries.iter().map(|(key, value)| ((*key).into(), value.clone())).collect())
}

/// Only integers.
pub(super) fn of_integers() -> Arc<Schema> {
    Arc::new(Schema::new(dict(&[("type", Value::text("integer"))])).expect("a schema"))
}

/// A document whose field `f`, or `a`, is an integer, if it is there.
pub(super) fn of_integer_fields() -> Arc<Schema> {
    let integer = dict(&[("type", Value::text("integer"))]);
    let fields = dict(&[("a", integer.clone()), ("f", integer)]);
    Arc::new(Schema::new(dict(&[("properties", fields)])).expect("a schema"))
}

pub(super) fn assert_holds(schema: Option<&Schema>, value: &Value) {
    if let Some(schema) = schema {
        assert_eq!(SchemaChecker::default().check(schema, value), Ok(()), "{}", value.to_json());
    }
}

fn set(item: Item, schema: Option<Arc<Schema>>) -> Change {
    Change::SetSchema { item, schema }
}

fn set_pair(key: &str, schema: Option<Arc<Schema>>) -> Change {
    set(Item::Pair(key.into()), schema)
}

fn set_container(key: &str, schema: Option<Arc<Schema>>) -> Change {
    set(Item::Container(key.into()), schema)
}

fn retyped(key: &str, value: Value) -> Change {
    Change::PutPair { key: key.into(), value, retype: true }
}

fn violated(item: Item, path: &str, rule: &str) -> Result<(u64, bool), ConfigError> {
    Err(ConfigError::SchemaViolated { item, path: path.into(), rule: rule.into() })
}

fn schema_of(config: &Config, item: &Item) -> Option<Arc<Schema>> {
    match config.namespaces[&name()].contents.get(item) {
        Some(Content::Pair(pair)) => pair.schema.clone(),
        Some(Content::Container(container)) => container.schema.clone(),
        None => None,
    }
}

#[test]
fn a_pair_keeps_its_schema_and_is_held_to_it() {
    let (mut config, p) = (sample(), Item::Pair("p".into()));
    assert_eq!(publish(&mut config, vec![set_pair("p", Some(of_integers()))]), Ok((3, true)));
    assert_eq!(publish(&mut config, vec![set_pair("p", Some(of_integers()))]), Ok((3, false)));
    assert_eq!(publish(&mut config, vec![int("p", 2)]), Ok((4, true)));
    assert_eq!(schema_of(&config, &p), Some(of_integers()));
    let refused = publish(&mut config, vec![retyped("p", Value::text("x"))]);
    assert_eq!(refused, violated(p.clone(), "", "type integer"));
    // Without the schema, in one change.
    let changes = vec![retyped("p", Value::text("x")), set_pair("p", None)];
    assert_eq!(publish(&mut config, changes), Ok((5, true)));
    assert_eq!(schema_of(&config, &p), None);
    // What is there must have the schema, too.
    let refused = publish(&mut config, vec![set_pair("p", Some(of_integers()))]);
    assert_eq!(refused, violated(p.clone(), "", "type integer"));
    // A new pair may come with one; the order does not matter.
    let changes = vec![set_pair("n", Some(of_integers())), int("n", 1)];
    assert_eq!(publish(&mut config, changes), Ok((6, true)));
    // A pair that is deleted and created again has none.
    assert_eq!(publish(&mut config, vec![delete_pair("n")]), Ok((7, true)));
    assert_eq!(publish(&mut config, vec![put("n", Value::text("x"))]), Ok((8, true)));
}

#[test]
fn a_schema_needs_what_it_belongs_to() {
    let mut config = sample();
    let refused = publish(&mut config, vec![set_pair("none", None)]);
    assert_eq!(refused, Err(ConfigError::NoPair("none".into())));
    let refused = publish(&mut config, vec![set_container("none", Some(of_integer_fields()))]);
    assert_eq!(refused, Err(ConfigError::NoContainer("none".into())));
    let changes = vec![delete_container("c"), set_container("c", Some(of_integer_fields()))];
    assert_eq!(publish(&mut config, changes), Err(ConfigError::NoContainer("c".into())));
}

#[test]
fn a_container_is_held_to_its_schema_when_a_pair_changes() {
    let (mut config, c) = (sample(), Item::Container("c".into()));
    assert_eq!(publish(&mut config, vec![set_container("c", Some(of_integer_fields()))]), Ok((3, true)));
    let before = config.digest(0);
    let refused = publish(&mut config, vec![retyped("p", Value::text("x"))]);
    assert_eq!(refused, violated(c.clone(), "f", "type integer"));
    let changes = vec![put("q", Value::text("x")), container("c", vec![one("f", "q")])];
    let refused = apply(&mut config, ConfigOperation::Publish { changes: retype(changes), create: false });
    assert_eq!(refused, violated(c.clone(), "f", "type integer"));
    assert_eq!(config.digest(0), before, "a refused change leaves no trace");
    assert_eq!(publish(&mut config, vec![int("p", 5)]), Ok((4, true)));
    assert_eq!(document(&config, "c", None), Ok("{\"f\":5}".into()));
    assert_eq!(schema_of(&config, &c), Some(of_integer_fields()));
}

fn retype(mut changes: Vec<Change>) -> Vec<Change> {
    for change in &mut changes {
        if let Change::PutPair { retype, .. } | Change::PutContainer { retype, .. } = change {
            *retype = true;
        }
    }
    changes
}

#[test]
fn rollbacks_restore_schemas_and_are_held_to_those_of_others() {
    let (mut config, c) = (sample(), Item::Container("c".into()));
    let roll_back = |config: &mut Config, to, item| apply(config, ConfigOperation::Rollback { to, item });
    assert_eq!(publish(&mut config, vec![retyped("p", Value::text("x"))]), Ok((3, true)));
    assert_eq!(publish(&mut config, vec![retyped("p", Value::Int(1))]), Ok((4, true)));
    assert_eq!(publish(&mut config, vec![set_container("c", Some(of_integer_fields()))]), Ok((5, true)));
    let refused = roll_back(&mut config, 3, Some(Item::Pair("p".into())));
    assert_eq!(refused, violated(c.clone(), "f", "type integer"));
    assert_eq!(roll_back(&mut config, 3, None), Ok((6, true)));
    assert_eq!(schema_of(&config, &c), None);
    assert_eq!(roll_back(&mut config, 5, None), Ok((7, true)));
    assert_eq!(schema_of(&config, &c), Some(of_integer_fields()));
    assert_eq!(roll_back(&mut config, 4, Some(c.clone())), Ok((8, true)));
    assert_eq!(schema_of(&config, &c), None);
}

#[test]
fn schemas_count_as_bytes_of_the_namespace() {
    let mut config = sample();
    let before = config.namespaces[&name()].bytes;
    assert_eq!(publish(&mut config, vec![set_pair("p", Some(of_integers()))]), Ok((3, true)));
    assert_eq!(config.namespaces[&name()].bytes, before + of_integers().json_bytes());
    assert_eq!(publish(&mut config, vec![set_pair("p", None)]), Ok((4, true)));
    assert_eq!(config.namespaces[&name()].bytes, before);
}

#[test]
fn snapshots_contain_schemas() {
    let mut config = sample();
    assert_eq!(publish(&mut config, vec![set_pair("p", Some(of_integers()))]), Ok((3, true)));
    assert_eq!(publish(&mut config, vec![set_pair("p", None)]), Ok((4, true)));
    assert_eq!(publish(&mut config, vec![set_container("c", Some(of_integer_fields()))]), Ok((5, true)));
    let mut restored = Config::default();
    for block in blocks(&config) {
        restored.take_block(&block).expect("a block");
    }
    assert_eq!(restored.digest(0), config.digest(0));
    assert_eq!(schema_of(&restored, &Item::Container("c".into())), Some(of_integer_fields()));
    assert_eq!(apply(&mut restored, ConfigOperation::Rollback { to: 3, item: None }), Ok((6, true)));
    assert_eq!(schema_of(&restored, &Item::Pair("p".into())), Some(of_integers()));
}
