//! Tests of searches, and of the containers that refer to a pair.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;
use crate::command::config::{Search, SearchPage};

fn search(config: &Config, text: &str, after: Option<Item>, limit: usize) -> SearchPage {
    match ask(config, Query::Search(Search { text: text.into(), after, limit })) {
        Ok(ConfigReply::Search(page)) => page,
        other => panic!("{other:?} is no answer to a search"),
    }
}

fn found(config: &Config, text: &str) -> Vec<String> {
    let SearchPage { matches, next, .. } = search(config, text, None, 100);
    assert_eq!(next, None);
    matches.iter().map(|found| found.item.key().as_ref().into()).collect()
}

fn example() -> Config {
    let mut config = Config::default();
    apply(&mut config, ConfigOperation::Create).unwrap();
    let hosts = Value::List(vec![Value::text("db-1.local"), Value::text("db-2.local")]);
    let limits = Value::Dict([("burst".into(), Value::Int(8080))].into());
    let server = Refers::Dict([("port".into(), Refers::One("app.server.port".into()))].into());
    let changes = vec![
        int("app.server.port", 8080),
        put("app.hosts", hosts),
        put("app.limits", limits),
        put("zone", Value::text("West")),
        container("app", vec![one("hosts", "app.hosts"), Field { key: "server".into(), refers: server }]),
        container("other", vec![one("port", "app.server.port")]),
    ];
    publish(&mut config, changes).unwrap();
    config
}

#[test]
fn keys_values_and_fields_are_searched() {
    let config = example();
    assert_eq!(found(&config, "8080"), ["app.limits", "app.server.port"]);
    assert_eq!(found(&config, "db-2"), ["app.hosts"]);
    assert_eq!(found(&config, "burst"), ["app.limits"]);
    assert_eq!(found(&config, "server"), ["app.server.port", "app"]);
    assert_eq!(found(&config, "West"), ["zone"]);
    assert_eq!(found(&config, "west"), [""; 0]);
    let page = search(&config, "server.port", None, 1);
    assert_eq!(page.matches[0].containers, [Arc::from("app"), Arc::from("other")]);
}

#[test]
fn pages_continue_one_another() {
    let config = example();
    let whole = search(&config, "", None, 100);
    let (mut matches, mut after) = (Vec::new(), None);
    loop {
        let page = search(&config, "", after, 1);
        assert!(page.matches.len() <= 1);
        matches.extend(page.matches);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!((matches.len(), matches), (6, whole.matches));
}

#[test]
fn a_step_examines_a_bounded_number_of_bytes() {
    let mut config = example();
    let text = "x".repeat(limits::CONFIG_VALUE_BYTES_MAX - 2);
    let value = |at: usize| put(&alloc::format!("big{at:02}"), Value::text(&text));
    publish(&mut config, (0..40).map(value).collect()).unwrap();
    let first = search(&config, "zone", None, 100);
    assert_eq!((first.matches.len(), first.next.is_some()), (0, true));
    let mut steps = 1;
    let mut page = first;
    while let Some(after) = page.next {
        page = search(&config, "zone", Some(after), 100);
        steps += 1;
    }
    assert_eq!((steps, page.matches.len()), (3, 1));
}

#[test]
fn containers_that_refer_to_a_pair_are_listed() {
    let config = example();
    let users = |key: &str| ask(&config, Query::Users { key: key.into() });
    let containers = |keys: &[&str]| {
        let containers = keys.iter().map(|key| Arc::from(*key)).collect();
        Ok(ConfigReply::Users { revision: 2, containers })
    };
    assert_eq!(users("app.server.port"), containers(&["app", "other"]));
    assert_eq!(users("zone"), containers(&[]));
    assert_eq!(users("none"), Err(ConfigError::NoPair("none".into())));
}
