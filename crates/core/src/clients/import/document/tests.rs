//! Tests of what an import changes. The last one imports random documents over each other.

use alloc::vec;

use super::*;
use crate::command::config::{
    ConfigOperation, ConfigReply, Container, Name, Pair, Policy, Query, SealedSecret, Stamp,
};
use crate::command::{ConfigRead, ConfigWrite};
use crate::machine::config::Config;

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
        (
            Arc::from(key),
            Arc::new(Pair { value: Value::Int(value).into(), schema: None, revision: 1, source: None }),
        )
    };
    let container = |&(key, fields): &(&str, &[(&str, &str)])| {
        let field = |&(key, pair): &(&str, &str)| Field { key: key.into(), refers: Refers::One(pair.into()) };
        let fields = fields.iter().map(field).collect();
        let (checksum, document_bytes) = ([0; 32], 0);
        let container = Container {
            fields,
            schema: None,
            source: None,
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

/// A namespace in which container `c` has these fields, and `other` refers to `used_elsewhere`.
fn nested_export(pairs: &[(&str, Value)], fields: &[(&str, Refers)], used_elsewhere: &[&str]) -> Export {
    let pair = |(key, value): &(&str, Value)| {
        (
            Arc::from(*key),
            Arc::new(Pair { value: value.clone().into(), schema: None, revision: 1, source: None }),
        )
    };
    let own = fields.iter().map(|(key, refers)| Field { key: (*key).into(), refers: refers.clone() });
    let others = used_elsewhere.iter().map(|key| Field { key: (*key).into(), refers: one(key) });
    let container = |fields| {
        let (checksum, document_bytes) = ([0; 32], 0);
        Arc::new(Container {
            fields,
            schema: None,
            source: None,
            revision: 1,
            touched: 1,
            changed: 1,
            checksum,
            document_bytes,
        })
    };
    Export {
        revision: 1,
        policy: Policy::default(),
        pairs: pairs.iter().map(pair).collect(),
        containers: [("c".into(), container(own.collect())), ("other".into(), container(others.collect()))]
            .into(),
    }
}

fn one(key: &str) -> Refers {
    Refers::One(key.into())
}

fn named(entries: &[(&str, Refers)]) -> Refers {
    Refers::Dict(entries.iter().map(|(name, entry)| (Arc::from(*name), entry.clone())).collect())
}

/// The changes of an import, as `key=value`, `-key` and the structure of the container.
fn imported(document: &Value, export: &Export) -> Result<Vec<String>, ImportFailure> {
    let changes = ContainerDocument::new("c".into(), document.clone(), true, false)?.changes(export)?;
    let shown = |change: &Change| match change {
        Change::PutPair { key, value, .. } => format!("{key}={}", value.to_json()),
        Change::Delete(item) => format!("-{}", item.key()),
        Change::SetSchema { .. } => panic!("an import sets no schema"),
        Change::KeepSecret { .. } => panic!("unchanged secrets are in no change"),
        Change::PutContainer { fields, .. } => {
            let key = |key: &Arc<str>| Some(Value::Text(key.clone()));
            let field = |field: &Field| (field.key.clone(), field.refers.value(&key).unwrap());
            Value::Dict(fields.iter().map(field).collect()).to_json()
        }
    };
    Ok(changes.iter().map(shown).collect())
}

#[test]
fn the_mask_of_a_secret_keeps_its_pair() {
    let sealed = SealedSecret::new("k1", "AAAA").expect("a sealed secret");
    let secret = ("c.password", Value::Secret(sealed));
    let fields = [("host", one("c.host")), ("password", one("c.password"))];
    let export = nested_export(&[("c.host", Value::text("a")), secret], &fields, &[]);
    let document = |host: &str, password: &str| {
        dict(&[("host", Value::text(host)), ("password", Value::text(password))])
    };
    let structure = r#"{"host":"c.host","password":"c.password"}"#;
    assert_eq!(imported(&document("a", SECRET_MASK), &export), Ok(vec![structure.into()]));
    let changed = vec![r#"c.host="b""#.into(), structure.into()];
    assert_eq!(imported(&document("b", SECRET_MASK), &export), Ok(changed));
    let plain = imported(&document("a", "plain"), &export);
    assert!(matches!(plain, Err(ImportFailure::Refused(ConfigError::FieldRetyped { .. }))), "{plain:?}");
    let masked = imported(&document(SECRET_MASK, SECRET_MASK), &export);
    assert_eq!(masked, Err(ImportFailure::Masked("host".into())));
}

#[test]
fn every_leaf_gets_a_pair() {
    let tls = dict(&[("cert", Value::Empty), ("ciphers", ints(&[1, 2]))]);
    let server = dict(&[("port", Value::Int(80)), ("tls", tls), ("x", dict(&[]))]);
    let document = dict(&[("debug", Value::Bool(true)), ("server", server)]);
    let expected = [
        "c.debug=true",
        "c.server.port=80",
        "c.server.tls.cert=null",
        "c.server.tls.ciphers=[1,2]",
        "c.server.x={}",
        r#"{"debug":"c.debug","server":{"port":"c.server.port","tls":{"cert":"c.server.tls.cert","ciphers":"c.server.tls.ciphers"},"x":"c.server.x"}}"#,
    ];
    assert_eq!(imported(&document, &export(&[])).unwrap(), expected);
}

#[test]
fn unchanged_leaves_keep_their_pairs() {
    let pairs = [("port", Value::Int(80)), ("c.s.host", Value::text("a")), ("c.s.old", Value::Int(1))];
    let fields = [("port", one("port")), ("host", one("c.s.host")), ("old", one("c.s.old"))];
    let export = nested_export(&pairs, &[("s", named(&fields))], &[]);
    let server = dict(&[("host", Value::text("b")), ("port", Value::Int(80))]);
    let expected = [r#"c.s.host="b""#, "-c.s.old", r#"{"s":{"host":"c.s.host","port":"port"}}"#];
    assert_eq!(imported(&dict(&[("s", server)]), &export).unwrap(), expected);
}

#[test]
fn a_dict_of_an_earlier_import_is_split_and_one_that_is_shared_is_not() {
    let value = dict(&[("port", Value::Int(80))]);
    let document = dict(&[("s", value.clone())]);
    let pairs = [("c.s", value.clone()), ("shared", value)];
    let export = nested_export(&pairs, &[("s", one("c.s"))], &[]);
    let expected = ["c.s.port=80", "-c.s", r#"{"s":{"port":"c.s.port"}}"#];
    assert_eq!(imported(&document, &export).unwrap(), expected);
    for (pair, used_elsewhere) in [("shared", &[][..]), ("c.s", &["c.s"])] {
        let export = nested_export(&pairs, &[("s", one(pair))], used_elsewhere);
        assert_eq!(imported(&document, &export).unwrap(), [format!(r#"{{"s":"{pair}"}}"#)]);
    }
}

#[test]
fn paths_with_the_same_text_get_different_pairs() {
    let document = dict(&[("a", dict(&[("b", Value::Int(1))])), ("a.b", Value::Int(2))]);
    let expected = ["c.a.b=1", "c.a.b~2=2", r#"{"a":{"b":"c.a.b"},"a.b":"c.a.b~2"}"#];
    assert_eq!(imported(&document, &export(&[])).unwrap(), expected);
    // Here the field with the point was first, and keeps its pair.
    let export = nested_export(&[("c.a.b", Value::Int(2))], &[("a.b", one("c.a.b"))], &[]);
    let expected = ["c.a.b~2=1", r#"{"a":{"b":"c.a.b~2"},"a.b":"c.a.b"}"#];
    assert_eq!(imported(&document, &export).unwrap(), expected);
}

#[test]
fn a_dict_stays_a_value_where_pairs_are_impossible() {
    let long = "k".repeat(limits::CONFIG_KEY_CHARACTERS_MAX - 4);
    let document = dict(&[("s", dict(&[("t", dict(&[(&long, Value::Int(1))]))]))]);
    let expected = [format!(r#"c.s.t={{"{long}":1}}"#), r#"{"s":{"t":"c.s.t"}}"#.into()];
    assert_eq!(imported(&document, &export(&[])).unwrap(), expected);
    let many = (0..=limits::CONFIG_REFERENCES_MAX).map(|at| (Arc::from(format!("{at}")), Value::Int(1)));
    let document = dict(&[("s", Value::Dict(many.collect()))]);
    assert_eq!(imported(&document, &export(&[])).unwrap().len(), 2);
}

#[test]
fn leaves_keep_their_datatypes() {
    let export = nested_export(
        &[("c.s.port", Value::Int(80)), ("c.s.rate", float(0.5))],
        &[("s", named(&[("port", one("c.s.port")), ("rate", one("c.s.rate"))]))],
        &[],
    );
    let server = |port, rate| dict(&[("s", dict(&[("port", port), ("rate", rate)]))]);
    let kept = imported(&server(Value::Int(81), Value::Int(1)), &export).unwrap();
    assert_eq!(kept[..2], ["c.s.port=81", "c.s.rate=1.0"]);
    for wanted in [Value::text("81"), dict(&[("a", Value::Int(1))])] {
        let error = ConfigError::FieldRetyped {
            container: "c".into(),
            field: "s.port".into(),
            now: Datatype::Int,
            wanted: wanted.datatype(),
        };
        assert_eq!(imported(&server(wanted, float(0.5)), &export), Err(error.into()));
    }
}

#[test]
fn what_is_no_document_is_refused() {
    let new = |value| ContainerDocument::new("c".into(), value, true, false).map(drop);
    assert_eq!(new(Value::Int(1)), Err(ImportFailure::NotADocument));
    let fields = (0..=limits::CONFIG_FIELDS_MAX).map(|field| (Arc::from(format!("{field}")), Value::Empty));
    let error = ImportFailure::TooManyFields(limits::CONFIG_FIELDS_MAX + 1);
    assert_eq!(new(Value::Dict(fields.collect())), Err(error));
    assert!(matches!(changes(&[("", 1)], &export(&[])), Err(ImportFailure::Key { .. })));
}

/// A namespace, as a data shard holds it.
fn namespace() -> Name {
    Name::new("ns").unwrap()
}

fn export_of(config: &Config) -> Export {
    let query = Query::Export { at: None };
    match config.read(&ConfigRead { namespace: namespace(), query }) {
        Ok(ConfigReply::Export(export)) => export,
        other => panic!("{other:?} is no export"),
    }
}

fn document_of(config: &Config, container: &str) -> Option<String> {
    let query = Query::Container { key: container.into(), at: None, known: None };
    match config.read(&ConfigRead { namespace: namespace(), query }) {
        Ok(ConfigReply::Container(found)) => Some(found.document()),
        _ => None,
    }
}

fn publish(config: &mut Config, changes: Vec<Change>) {
    let operation = ConfigOperation::Publish { changes, create: true };
    let (namespace, stamp) = (namespace(), Stamp::default());
    config.apply(ConfigWrite { namespace, stamp, expected: None, operation }).unwrap();
}

/// A value of at most `levels` levels, with few names, so that imports meet each other's pairs.
fn random_value(random: &mut fastrand::Rng, levels: u8) -> Value {
    match random.u8(..if levels == 0 { 5 } else { 9 }) {
        0 => Value::Int(random.i64(..3)),
        1 => Value::text(["x", "1.10", "true"][random.usize(..3)]),
        2 => float(0.5),
        3 => Value::Empty,
        4 => ints(&[1, 2][..random.usize(..3)]),
        5 => Value::List(vec![Value::Int(1), Value::text("a")]),
        _ => random_dict(random, levels - 1),
    }
}

fn random_dict(random: &mut fastrand::Rng, levels: u8) -> Value {
    let mut entries = BTreeMap::new();
    for _ in 0..random.u8(..4) {
        let name = ["a", "b", "a.b", "a.a"][random.usize(..4)];
        entries.insert(Arc::from(name), random_value(random, levels));
    }
    Value::Dict(entries)
}

#[test]
fn a_container_resolves_to_what_was_imported_and_no_other_container_changes() {
    let containers = ["c", "c.a", "d"];
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut config = Config::default();
        publish(&mut config, vec![put("c.a", 1)]);
        for _ in 0..12 {
            let container = containers[random.usize(..3)];
            let wanted = random_dict(&mut random, 3);
            let document = ContainerDocument::new(container.into(), wanted.clone(), true, true).unwrap();
            let before = containers.map(|container| document_of(&config, container));
            let changes = document.changes(&export_of(&config)).unwrap();
            publish(&mut config, changes);
            assert_eq!(document_of(&config, container), Some(wanted.to_json()), "seed {seed}");
            for (other, before) in containers.iter().zip(before).filter(|(other, _)| **other != container) {
                assert_eq!(document_of(&config, other), before, "seed {seed}: {other}");
            }
        }
        // Without containers nothing is left of what imports made.
        for container in containers {
            let Some(_) = document_of(&config, container) else { continue };
            let empty = ContainerDocument::new(container.into(), dict(&[]), true, true).unwrap();
            let changes = empty.changes(&export_of(&config)).unwrap();
            publish(&mut config, changes);
        }
        let left: Vec<_> = export_of(&config).pairs.into_keys().filter(|key| **key != *"c.a").collect();
        assert_eq!(left, [""; 0].map(Arc::from), "seed {seed}");
    }
}
