//! Tests of configuration. `random` compares it with a model.

mod blocks;
mod drafts;
mod inheritance;
mod previews;
mod random;
mod schemas;
mod search;
mod secrets;
mod watches;

use alloc::string::String;
use alloc::vec;

use super::*;
use crate::command::config::{
    Action, Change, Changes, Datatype, DocumentChange, Field, Found, Item, NamespaceChanges, NamespaceEvent,
    Policy, Query, Refers, Selection, Stamp, Value, WatchPosition,
};

fn name() -> Name {
    Name::new("ns").expect("a name")
}

fn stamp(time_ms: u64) -> Stamp {
    Stamp { author: "ann".into(), on_behalf_of: "bob".into(), time_ms, message: "why".into() }
}

fn write(operation: ConfigOperation) -> ConfigWrite {
    ConfigWrite { namespace: name(), stamp: stamp(1_000), expected: None, operation }
}

fn apply(config: &mut Config, operation: ConfigOperation) -> Result<(u64, bool), ConfigError> {
    apply_write(config, write(operation))
}

fn apply_write(config: &mut Config, write: ConfigWrite) -> Result<(u64, bool), ConfigError> {
    config.apply(write).map(|ConfigWritten { revision, changed }| (revision, changed))
}

fn publish(config: &mut Config, changes: Vec<Change>) -> Result<(u64, bool), ConfigError> {
    apply(config, ConfigOperation::Publish { changes, create: false })
}

fn ask(config: &Config, query: Query) -> Result<ConfigReply, ConfigError> {
    config.read(&ConfigRead { namespace: name(), query })
}

/// The blocks of a snapshot.
fn blocks(config: &Config) -> Vec<Vec<u8>> {
    let mut blocks = config.blocks();
    core::iter::from_fn(|| blocks.next_block()).collect()
}

fn put(key: &str, value: Value) -> Change {
    Change::PutPair { key: key.into(), value, retype: false }
}

fn int(key: &str, number: i64) -> Change {
    put(key, Value::Int(number))
}

fn one(field: &str, pair: &str) -> Field {
    Field { key: field.into(), refers: Refers::One(pair.into()) }
}

fn container(key: &str, fields: Vec<Field>) -> Change {
    Change::PutContainer { key: key.into(), fields, retype: false }
}

fn delete_pair(key: &str) -> Change {
    Change::Delete(Item::Pair(key.into()))
}

fn delete_container(key: &str) -> Change {
    Change::Delete(Item::Container(key.into()))
}

/// A namespace at revision 2 with the pair `p` and the container `c` of it.
fn sample() -> Config {
    let mut config = Config::default();
    assert_eq!(apply(&mut config, ConfigOperation::Create), Ok((1, true)));
    let changes = vec![int("p", 1), container("c", vec![one("f", "p")])];
    assert_eq!(publish(&mut config, changes), Ok((2, true)));
    config
}

fn document(config: &Config, key: &str, at: Option<u64>) -> Result<String, ConfigError> {
    match ask(config, Query::Container { key: key.into(), at, known: None }) {
        Ok(ConfigReply::Container(found)) => {
            let text = canonical(&found);
            assert_eq!(found.container.checksum, sha256(&text), "the checksum is that of the content");
            assert_eq!(found.container.document_bytes, text.len());
            Ok(text)
        }
        Err(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

/// The document of which the container has the checksum, with the sealed text of secrets.
fn canonical(found: &Found) -> String {
    let mut text = String::new();
    let pair = |key: &str| found.pairs.get(key).map(|pair| &**pair);
    crate::command::config::write_document(&found.container, pair, &mut text);
    text
}

fn sha256(text: &str) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    Sha256::digest(text.as_bytes()).into()
}

fn changes_since(config: &Config, key: &str, after: u64) -> Changes {
    match ask(config, Query::Changes { key: key.into(), after }) {
        Ok(ConfigReply::Changes(changes)) => changes,
        other => panic!("{other:?}"),
    }
}

fn namespace_changes(config: &Config, after: Option<WatchPosition>) -> NamespaceChanges {
    match ask(config, Query::NamespaceChanges { after }) {
        Ok(ConfigReply::NamespaceChanges(changes)) => changes,
        other => panic!("{other:?}"),
    }
}

/// Revisions, containers and documents of events.
fn named(events: &[NamespaceEvent]) -> Vec<(u64, &str, Option<String>)> {
    let document = |event: &NamespaceEvent| event.found.as_ref().map(canonical);
    events.iter().map(|event| (event.revision, &*event.container, document(event))).collect()
}

/// The position after an event.
fn behind(event: &NamespaceEvent, state: Option<u64>) -> WatchPosition {
    let revision = state.unwrap_or(event.revision);
    WatchPosition { revision, container: Some(event.container.clone()), is_state: state.is_some() }
}

/// Everything that a watcher is sent after a position, whatever the size of the answers.
fn all_after(config: &Config, mut after: Option<WatchPosition>) -> Vec<NamespaceEvent> {
    let mut all = Vec::new();
    loop {
        let answer = namespace_changes(config, after.clone());
        after = match (answer.events.last(), answer.state) {
            (_, Some(state)) if !answer.has_more => Some(WatchPosition::through(state)),
            (Some(last), state) => Some(behind(last, state)),
            (None, _) => return all,
        };
        all.extend(answer.events);
    }
}

/// Revisions and documents of events.
fn shown(events: &[DocumentChange]) -> Vec<(u64, Option<String>)> {
    events.iter().map(|event| (event.revision, event.found.as_ref().map(canonical))).collect()
}

#[test]
fn a_container_resolves_to_sorted_compact_json() {
    let mut config = Config::default();
    let dict = [("ds", Value::text("string")), ("df", Value::float(1.123).expect("finite"))];
    let changes = vec![
        int("i", 123),
        put("b", Value::Bool(true)),
        put("dict", Value::Dict(dict.map(|(key, value)| (key.into(), value)).into())),
        container(
            "c",
            vec![
                one("d", "dict"),
                Field { key: "l".into(), refers: Refers::List(vec!["i".into(), "b".into(), "i".into()]) },
                Field {
                    key: "m".into(),
                    refers: Refers::Dict([("x".into(), Refers::One("b".into()))].into()),
                },
            ],
        ),
    ];
    assert_eq!(apply(&mut config, ConfigOperation::Publish { changes, create: true }), Ok((1, true)));
    let expected = r#"{"d":{"df":1.123,"ds":"string"},"l":[123,true,123],"m":{"x":true}}"#;
    assert_eq!(document(&config, "c", None).as_deref(), Ok(expected));
}

#[test]
fn namespaces_come_and_go_and_revisions_never_come_again() {
    let mut config = Config::default();
    assert_eq!(apply(&mut config, ConfigOperation::Delete { force: true }), Err(ConfigError::NoNamespace));
    assert_eq!(publish(&mut config, vec![int("p", 1)]), Err(ConfigError::NoNamespace));
    assert!(config.is_pristine() && config.digest(7) == 7, "what was refused left nothing");
    let mut config = sample();
    assert_eq!(apply(&mut config, ConfigOperation::Create), Err(ConfigError::NamespaceExists));
    let refused = ConfigError::NamespaceNotEmpty { pairs: 1, containers: 1 };
    assert_eq!(apply(&mut config, ConfigOperation::Delete { force: false }), Err(refused));
    assert_eq!(apply(&mut config, ConfigOperation::Delete { force: true }), Ok((2, true)));
    assert_eq!(ask(&config, Query::Namespace), Err(ConfigError::NoNamespace));
    assert_eq!(apply(&mut config, ConfigOperation::Create), Ok((3, true)), "the next one goes on above");
    assert_eq!(apply(&mut config, ConfigOperation::Delete { force: false }), Ok((3, true)));
}

#[test]
fn a_publish_is_one_revision_or_nothing() {
    let mut config = sample();
    let before = config.digest(0);
    let missing = |container: &str, pair: &str| {
        Err(ConfigError::MissingPair { container: container.into(), pair: pair.into() })
    };
    let in_use = Err(ConfigError::PairInUse { pair: "p".into(), container: "c".into() });
    for (changes, expected) in [
        (vec![int("q", 1), container("d", vec![one("f", "none")])], missing("d", "none")),
        (vec![int("q", 1), delete_pair("p")], in_use),
        (vec![int("q", 1), delete_pair("none")], Err(ConfigError::NoPair("none".into()))),
        (vec![int("q", 1), delete_container("none")], Err(ConfigError::NoContainer("none".into()))),
        (vec![delete_pair("p"), container("c", vec![one("g", "p")])], missing("c", "p")),
    ] {
        assert_eq!(publish(&mut config, changes), expected);
        assert_eq!(config.digest(0), before, "nothing changed");
    }
    // Order inside a publication does not matter: a container may come before its pair in it.
    assert_eq!(publish(&mut config, vec![container("d", vec![one("f", "q")]), int("q", 2)]), Ok((3, true)));
    assert_eq!(publish(&mut config, vec![delete_pair("q"), delete_container("d")]), Ok((4, true)));
    assert_eq!(publish(&mut config, vec![delete_pair("p"), container("c", vec![])]), Ok((5, true)));
    assert_eq!(document(&config, "c", None).as_deref(), Ok("{}"));
}

#[test]
fn what_changes_nothing_is_no_revision() {
    let mut config = sample();
    let before = config.digest(0);
    assert_eq!(publish(&mut config, vec![int("p", 1), container("c", vec![one("f", "p")])]), Ok((2, false)));
    assert_eq!(publish(&mut config, vec![]), Ok((2, false)));
    assert_eq!(publish(&mut config, vec![int("new", 1), delete_pair("new")]), Ok((2, false)));
    assert_eq!(apply(&mut config, ConfigOperation::Rollback { to: 2, item: None }), Ok((2, false)));
    assert_eq!(apply(&mut config, ConfigOperation::SetPolicy(Policy::default())), Ok((2, false)));
    assert_eq!(config.digest(0), before);
}

#[test]
fn a_pair_keeps_its_datatype_unless_the_change_says_otherwise() {
    let stating = |key: &str, value| Change::PutPair { key: key.into(), value, retype: true };
    let float = |number| Value::float(number).expect("finite");
    let mut config = sample();
    publish(&mut config, vec![put("ratio", float(0.5)), put("host", Value::text("a"))]).expect("published");
    let before = config.digest(0);
    let refused = |pair: &str, now, wanted| Err(ConfigError::PairRetyped { pair: pair.into(), now, wanted });
    for (changes, expected) in [
        (vec![put("p", Value::text("30s"))], refused("p", Datatype::Int, Datatype::Text)),
        (vec![put("p", Value::Empty)], refused("p", Datatype::Int, Datatype::Empty)),
        (vec![put("p", float(1.0))], refused("p", Datatype::Int, Datatype::Float)),
        (vec![put("p", Value::List(vec![]))], refused("p", Datatype::Int, Datatype::List)),
        (vec![put("host", Value::Int(1))], refused("host", Datatype::Text, Datatype::Int)),
        (vec![put("ratio", Value::Int(i64::MAX))], refused("ratio", Datatype::Float, Datatype::Int)),
        // The whole publication is refused. The last change of a pair applies.
        (vec![int("q", 1), put("p", Value::Bool(true))], refused("p", Datatype::Int, Datatype::Bool)),
        (
            vec![stating("p", Value::Int(3)), put("p", Value::text("x"))],
            refused("p", Datatype::Int, Datatype::Text),
        ),
    ] {
        assert_eq!(publish(&mut config, changes), expected);
        assert_eq!(config.digest(0), before, "nothing changed");
    }
    assert_eq!(publish(&mut config, vec![put("p", Value::text("x")), int("p", 2)]), Ok((4, true)));
    assert_eq!(publish(&mut config, vec![put("ratio", Value::Int(2))]), Ok((5, true)), "2 is 2.0 here");
    let pair = |config: &Config, key: &str| match ask(config, Query::Pair { key: key.into(), at: None }) {
        Ok(ConfigReply::Pair { pair, .. }) => pair.value.to_value(),
        other => panic!("{other:?}"),
    };
    assert_eq!(pair(&config, "ratio"), float(2.0));
    assert_eq!(publish(&mut config, vec![stating("p", Value::text("30s"))]), Ok((6, true)));
    assert_eq!(document(&config, "c", None).as_deref(), Ok(r#"{"f":"30s"}"#));
    assert_eq!(publish(&mut config, vec![int("p", 5)]), refused("p", Datatype::Text, Datatype::Int));
    assert_eq!(
        apply(&mut config, ConfigOperation::Rollback { to: 5, item: None }),
        Ok((7, true)),
        "goes back"
    );
    assert_eq!(pair(&config, "p"), Value::Int(2));
    publish(&mut config, vec![delete_pair("host")]).expect("deleted");
    assert_eq!(publish(&mut config, vec![int("host", 1)]), Ok((9, true)), "a new pair is of any datatype");
}

#[test]
fn a_field_keeps_its_datatype_unless_the_change_says_otherwise() {
    let mut config = sample();
    publish(&mut config, vec![int("q", 2), put("text", Value::text("x"))]).expect("published");
    let list = Field { key: "f".into(), refers: Refers::List(vec!["p".into()]) };
    let refused = |wanted| {
        let (container, field) = ("c".into(), "f".into());
        Err(ConfigError::FieldRetyped { container, field, now: Datatype::Int, wanted })
    };
    let before = config.digest(0);
    for (changes, expected) in [
        (vec![container("c", vec![one("f", "text")])], refused(Datatype::Text)),
        (vec![container("c", vec![list.clone()])], refused(Datatype::List)),
        (vec![container("c", vec![one("f", "new")]), put("new", Value::Bool(true))], refused(Datatype::Bool)),
    ] {
        assert_eq!(publish(&mut config, changes), expected);
        assert_eq!(config.digest(0), before, "nothing changed");
    }
    assert_eq!(
        publish(&mut config, vec![container("c", vec![one("f", "q"), one("g", "text")])]),
        Ok((4, true))
    );
    let stated = Change::PutContainer { key: "c".into(), fields: vec![list], retype: true };
    assert_eq!(publish(&mut config, vec![stated]), Ok((5, true)));
    assert_eq!(document(&config, "c", None).as_deref(), Ok(r#"{"f":[1]}"#));
    assert_eq!(publish(&mut config, vec![container("d", vec![one("f", "text")])]), Ok((6, true)));
}

#[test]
fn an_expected_revision_is_the_namespaces() {
    let mut config = sample();
    let expecting = |expected, operation| ConfigWrite { expected: Some(expected), ..write(operation) };
    let changes = || ConfigOperation::Publish { changes: vec![int("p", 5)], create: false };
    let failed = Err(ConfigError::RevisionMismatch { current: 2 });
    assert_eq!(apply_write(&mut config, expecting(1, changes())), failed);
    assert_eq!(apply_write(&mut config, expecting(2, changes())), Ok((3, true)));
    let other = |expected| ConfigWrite {
        namespace: Name::new("other").expect("a name"),
        ..expecting(expected, ConfigOperation::Create)
    };
    assert_eq!(
        apply_write(&mut config, other(0)),
        Ok((1, true)),
        "0 stands for a namespace that is not there"
    );
    assert_eq!(apply_write(&mut config, other(0)), Err(ConfigError::RevisionMismatch { current: 1 }));
}

#[test]
fn any_kept_revision_comes_back_and_so_does_what_was_there_instead() {
    let mut config = sample();
    publish(&mut config, vec![int("p", 2), int("q", 1)]).expect("published");
    publish(&mut config, vec![delete_container("c")]).expect("published");
    publish(&mut config, vec![delete_pair("p")]).expect("published");
    assert_eq!(apply(&mut config, ConfigOperation::Rollback { to: 2, item: None }), Ok((6, true)));
    assert_eq!(document(&config, "c", None).as_deref(), Ok(r#"{"f":1}"#));
    assert_eq!(
        apply(&mut config, ConfigOperation::Rollback { to: 5, item: None }),
        Ok((7, true)),
        "of a rollback"
    );
    assert_eq!(document(&config, "c", None), Err(ConfigError::NoContainer("c".into())));
    assert_eq!(
        apply(&mut config, ConfigOperation::Rollback { to: 1, item: None }),
        Ok((8, true)),
        "to nothing"
    );
    let gone = |revision| Err(ConfigError::NoRevision { revision, oldest: 1, newest: 8 });
    for revision in [0, 9] {
        assert_eq!(
            apply(&mut config, ConfigOperation::Rollback { to: revision, item: None }),
            gone(revision)
        );
    }
    // A rollback of one item requires the pairs to which it refers.
    let item = |item| ConfigOperation::Rollback { to: 3, item: Some(item) };
    let missing = ConfigError::MissingPair { container: "c".into(), pair: "p".into() };
    assert_eq!(apply(&mut config, item(Item::Container("c".into()))), Err(missing));
    assert_eq!(apply(&mut config, item(Item::Pair("p".into()))), Ok((9, true)));
    assert_eq!(apply(&mut config, item(Item::Container("c".into()))), Ok((10, true)));
    assert_eq!(document(&config, "c", None).as_deref(), Ok(r#"{"f":2}"#));
    assert_eq!(apply(&mut config, item(Item::Pair("none".into()))), Err(ConfigError::NoPair("none".into())));
    for (at, expected) in [(2, r#"{"f":1}"#), (3, r#"{"f":2}"#), (6, r#"{"f":1}"#), (10, r#"{"f":2}"#)] {
        assert_eq!(document(&config, "c", Some(at)).as_deref(), Ok(expected), "as of {at}");
    }
}

#[test]
fn history_tells_what_who_and_why() {
    let mut config = sample();
    publish(&mut config, vec![int("p", 2)]).expect("published");
    apply(&mut config, ConfigOperation::Rollback { to: 2, item: None }).expect("rolled back");
    let history = |item, before, limit| match ask(&config, Query::History { item, before, limit }) {
        Ok(ConfigReply::History(page)) => page,
        other => panic!("{other:?}"),
    };
    let page = history(None, None, 10);
    let reported: Vec<_> =
        page.revisions.iter().map(|view| (view.number, view.action.clone(), view.changes.len())).collect();
    let expected = [
        (4, Action::Rollback { to: 2 }, 1),
        (3, Action::Publish, 1),
        (2, Action::Publish, 2),
        (1, Action::Create, 0),
    ];
    assert_eq!((reported, page.next), (expected.to_vec(), None));
    assert_eq!(page.revisions[0].stamp, stamp(1_000));
    let pair = |content: &Option<_>| match content {
        Some(crate::command::config::Content::Pair(pair)) => Some(pair.value.to_value()),
        _ => None,
    };
    let change = &page.revisions[1].changes[0];
    assert_eq!((pair(&change.before), pair(&change.after)), (Some(Value::Int(1)), Some(Value::Int(2))));
    let of_container = history(Some(Item::Container("c".into())), None, 10);
    assert_eq!(of_container.revisions.iter().map(|view| view.number).collect::<Vec<_>>(), [2]);
    let first = history(None, None, 3);
    assert_eq!((first.revisions.len(), first.next), (3, Some(2)));
    let rest = history(None, first.next, 3);
    assert_eq!((rest.revisions.len(), rest.next), (1, None));
}

#[test]
fn history_is_bounded_by_count_and_by_age_in_the_log() {
    let mut config = sample();
    apply(&mut config, ConfigOperation::SetPolicy(Policy { revisions: 3, age_ms: 10_000 })).expect("set");
    let oldest = |config: &Config| match ask(config, Query::Namespace) {
        Ok(ConfigReply::Namespace(view)) => (view.oldest, view.revision),
        other => panic!("{other:?}"),
    };
    assert_eq!(oldest(&config), (1, 3));
    publish(&mut config, vec![int("p", 2)]).expect("published");
    assert_eq!(oldest(&config), (2, 4));
    let at = |time_ms, number| ConfigWrite {
        stamp: stamp(time_ms),
        ..write(ConfigOperation::Publish { changes: vec![int("p", number)], create: false })
    };
    apply_write(&mut config, at(11_000, 3)).expect("published");
    assert_eq!(oldest(&config), (3, 5), "exactly as old as allowed");
    apply_write(&mut config, at(11_001, 4)).expect("published");
    assert_eq!(oldest(&config), (5, 6), "older ones are gone");
    apply_write(&mut config, at(1 << 50, 5)).expect("published");
    assert_eq!(oldest(&config), (6, 7), "the one to go back to stays, however old");
    apply_write(&mut config, at(5, 6)).expect("published");
    assert_eq!(oldest(&config), (6, 8), "a clock that went back drops nothing");
    assert_eq!(apply(&mut config, ConfigOperation::Rollback { to: 6, item: None }), Ok((9, true)));
    assert_eq!(document(&config, "c", None).as_deref(), Ok(r#"{"f":4}"#));
}

#[test]
fn news_name_the_containers_that_resolve_to_something_else() {
    let mut config = sample();
    let reported = |config: &mut Config| {
        let news = config.take_updates();
        news.into_iter().flat_map(|news| news.containers).map(|key| String::from(&*key)).collect::<Vec<_>>()
    };
    assert_eq!(reported(&mut config), ["c"]);
    publish(&mut config, vec![int("q", 1), container("d", vec![one("f", "q")])]).expect("published");
    assert_eq!(reported(&mut config), ["d"]);
    let same = Field { key: "f".into(), refers: Refers::One("q".into()) };
    publish(&mut config, vec![container("c", vec![same])]).expect("published");
    assert_eq!(reported(&mut config), Vec::<String>::new(), "another pair of the same value");
    publish(&mut config, vec![int("q", 2)]).expect("published");
    assert_eq!(reported(&mut config), ["c", "d"]);
    publish(&mut config, vec![delete_container("d")]).expect("published");
    assert_eq!(reported(&mut config), ["d"]);
    apply(&mut config, ConfigOperation::Delete { force: true }).expect("deleted");
    assert_eq!(reported(&mut config), ["c"]);
}

#[test]
fn an_asker_who_knows_is_told_so() {
    let mut config = sample();
    let query = |known| Query::Container { key: "c".into(), at: None, known };
    assert_eq!(ask(&config, query(Some(2))), Ok(ConfigReply::Unchanged { revision: 2 }));
    assert!(matches!(ask(&config, query(Some(1))), Ok(ConfigReply::Container(_))));
    publish(&mut config, vec![int("other", 1)]).expect("published");
    assert_eq!(ask(&config, query(Some(2))), Ok(ConfigReply::Unchanged { revision: 3 }));
    publish(&mut config, vec![int("p", 9)]).expect("published");
    assert!(matches!(ask(&config, query(Some(2))), Ok(ConfigReply::Container(_))));
}

#[test]
fn pages_are_selected_and_counted() {
    let mut config = sample();
    let pairs = (0..10).map(|number| int(&alloc::format!("key{number}"), number)).collect();
    publish(&mut config, pairs).expect("published");
    let page = |contains: &str, offset, limit| {
        let selection = Selection { contains: contains.into(), offset, limit };
        match ask(&config, Query::Pairs(selection)) {
            Ok(ConfigReply::Pairs { total, items, .. }) => {
                (total, items.into_iter().map(|(key, _)| String::from(&*key)).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(page("", 9, 5), (11, vec!["key9".into(), "p".into()]));
    assert_eq!(page("ey1", 0, 5), (1, vec!["key1".into()]));
    assert_eq!(page("key", 20, 5), (10, vec![]));
    let mut config = config;
    for other in ["a", "nt", "n", "z"] {
        let namespace = Name::new(other).expect("a name");
        apply_write(&mut config, ConfigWrite { namespace, ..write(ConfigOperation::Create) })
            .expect("created");
    }
    let names = |prefix: &[u8], after: Option<&[u8]>, limit| {
        let page = config.list((prefix, after), limit, &|_| true);
        let names: Vec<_> = page.items.iter().map(|item| item.key.clone()).collect();
        (names, page.next)
    };
    assert_eq!(names(b"n", None, 2), (vec!["n".into(), "ns".into()], Some("ns".into())));
    assert_eq!(names(b"n", Some(b"ns"), 2), (vec!["nt".into()], None));
}

#[test]
fn limits_hold_and_leave_no_trace() {
    let mut config = Config::default();
    apply(&mut config, ConfigOperation::Create).expect("created");
    let many = (0..limits::CONFIG_PAIRS_MAX as i64).map(|number| int(&alloc::format!("{number}"), number));
    publish(&mut config, many.collect()).expect("published");
    let before = config.digest(0);
    assert_eq!(publish(&mut config, vec![int("more", 1)]), Err(ConfigError::TooManyPairs));
    assert_eq!(publish(&mut config, vec![delete_pair("0"), int("more", 1)]), Ok((3, true)));
    let long = || Value::text(&"x".repeat(limits::CONFIG_VALUE_BYTES_MAX - 2));
    let mut config = sample();
    let full = (0..255).map(|number| put(&alloc::format!("{number:03}"), long())).collect();
    publish(&mut config, full).expect("published");
    assert_eq!(publish(&mut config, vec![put("more", long())]), Err(ConfigError::NamespaceFull));
    let fields: Vec<_> = (0..200).map(|number| one(&alloc::format!("{number:03}"), "001")).collect();
    assert_eq!(publish(&mut config, vec![container("d", fields)]), Err(ConfigError::DocumentsTooLong));
    let fields: Vec<_> = (0..120).map(|number| one(&alloc::format!("{number:03}"), "p")).collect();
    publish(&mut config, vec![container("d", fields)]).expect("published");
    let retyped = Change::PutPair { key: "p".into(), value: long(), retype: true };
    let too_long = publish(&mut config, vec![delete_pair("001"), delete_pair("002"), retyped]);
    assert_eq!(too_long.map(|(revision, _)| revision), Ok(5), "7.5 MiB");
    let fields = (0..20).map(|number| one(&alloc::format!("{number:03}"), "p")).collect();
    assert_eq!(publish(&mut config, vec![container("e", fields)]), Err(ConfigError::DocumentsTooLong));
    assert_ne!(before, 0);
}
