//! Secrets: what the core makes of them, which sees only sealed text.

use super::*;
use crate::command::config::{SECRET_MASK, SealedSecret, Search};

/// The secret of this number, sealed.
pub(super) fn sealed(number: i64) -> Value {
    Value::Secret(SealedSecret::new("k1", &alloc::format!("AAA{number}")).expect("a sealed secret"))
}

/// A value as text that differs for different secrets.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::Secret(sealed) => sealed.as_str().into(),
        other => other.to_json(),
    }
}

/// A document with the mask instead of the secrets of [`sealed`].
pub(super) fn masked(document: &str) -> String {
    let mut parts = document.split("\"sealed:v1:");
    let mut out = String::from(parts.next().unwrap_or_default());
    for part in parts {
        let (_, rest) = part.split_once('"').expect("the end of a text");
        out.push_str(&alloc::format!("\"{SECRET_MASK}\"{rest}"));
    }
    out
}

fn with_secret() -> Config {
    let mut config = sample();
    let changes = vec![put("s", sealed(1)), container("c", vec![one("f", "p"), one("password", "s")])];
    assert_eq!(publish(&mut config, changes), Ok((3, true)));
    config
}

fn keep(key: &str) -> Change {
    Change::KeepSecret { key: key.into() }
}

#[test]
fn a_changed_secret_changes_the_document_and_its_checksum_but_not_what_is_shown() {
    let mut config = with_secret();
    let found =
        |config: &Config| match ask(config, Query::Container { key: "c".into(), at: None, known: None }) {
            Ok(ConfigReply::Container(found)) => found,
            other => panic!("{other:?}"),
        };
    let before = found(&config);
    assert_eq!(before.document(), r#"{"f":1,"password":"********"}"#);
    assert_eq!(publish(&mut config, vec![put("s", sealed(2))]), Ok((4, true)));
    let after = found(&config);
    assert_eq!(after.document(), before.document());
    assert_ne!(after.container.checksum, before.container.checksum);
    assert_eq!(changes_since(&config, "c", 3).events.len(), 1, "watchers are notified");
    assert_eq!(publish(&mut config, vec![put("s", sealed(2))]), Ok((4, false)));
}

#[test]
fn the_mask_keeps_a_secret_and_never_becomes_one() {
    let mut config = with_secret();
    assert_eq!(publish(&mut config, vec![put("s", Value::text(SECRET_MASK))]), Ok((3, false)));
    assert_eq!(publish(&mut config, vec![keep("s")]), Ok((3, false)));
    for key in ["p", "none"] {
        assert_eq!(publish(&mut config, vec![keep(key)]), Err(ConfigError::NoSecret(key.into())));
    }
    assert_eq!(
        publish(&mut config, vec![int("p", 2), keep("none")]),
        Err(ConfigError::NoSecret("none".into())),
        "nothing of a refused change is applied"
    );
    assert_eq!(document(&config, "c", None).expect("it resolves").matches("sealed:v1:k1:AAA1").count(), 1);
    // Stated as a string, the mask is a string like others.
    let change = Change::PutPair { key: "s".into(), value: Value::text(SECRET_MASK), retype: true };
    assert_eq!(publish(&mut config, vec![change]), Ok((4, true)));
    assert_eq!(publish(&mut config, vec![keep("s")]), Err(ConfigError::NoSecret("s".into())));
}

#[test]
fn a_secret_keeps_its_datatype() {
    let mut config = with_secret();
    let refused = |now, wanted| Err(ConfigError::PairRetyped { pair: "s".into(), now, wanted });
    assert_eq!(
        publish(&mut config, vec![put("s", Value::text("plain"))]),
        refused(Datatype::Secret, Datatype::Text)
    );
    let change = Change::PutPair { key: "s".into(), value: Value::text("plain"), retype: true };
    assert_eq!(publish(&mut config, vec![change]), Ok((4, true)));
    assert_eq!(publish(&mut config, vec![put("s", sealed(1))]), refused(Datatype::Text, Datatype::Secret));
}

#[test]
fn a_search_finds_a_secret_by_its_key_only() {
    let config = with_secret();
    let search = |text: &str| {
        let search = Search { text: text.into(), after: None, limit: 10 };
        match ask(&config, Query::Search(search)) {
            Ok(ConfigReply::Search(page)) => page.matches.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((search("AAA1"), search("sealed"), search("*"), search("k1")), (0, 0, 0, 0));
    assert_eq!(search("s"), 2, "the pair, and the container with the field `password`");
}

#[test]
fn a_schema_checks_a_secret_only_as_text() {
    let rule = |keyword: &str, value| (Arc::from(keyword), value);
    let schema = |rules: Vec<_>| {
        let source = Value::Dict(rules.into_iter().collect());
        Arc::new(crate::command::config::Schema::new(source).expect("a schema"))
    };
    let set = |schema| Change::SetSchema { item: Item::Pair("s".into()), schema: Some(schema) };
    let mut config = with_secret();
    let text = rule("type", Value::text("string"));
    let long = rule("minLength", Value::Int(1_000));
    let listed = rule("enum", Value::List(vec![Value::text("a")]));
    assert_eq!(publish(&mut config, vec![set(schema(vec![text, long, listed]))]), Ok((4, true)));
    let number = schema(vec![rule("type", Value::text("integer"))]);
    let refused = publish(&mut config, vec![set(number)]);
    assert!(matches!(refused, Err(ConfigError::SchemaViolated { .. })), "{refused:?}");
}
