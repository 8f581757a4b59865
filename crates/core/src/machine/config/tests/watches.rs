//! Tests of what watchers of containers and of namespaces are told.

use super::*;

#[test]
fn a_watcher_hears_of_each_change_of_what_it_resolves_to() {
    let mut config = sample();
    publish(&mut config, vec![int("p", 2)]).expect("published");
    publish(&mut config, vec![int("other", 2)]).expect("published");
    publish(&mut config, vec![int("q", 2)]).expect("published");
    publish(&mut config, vec![container("c", vec![one("f", "q")])]).expect("published");
    publish(&mut config, vec![container("c", vec![one("g", "q")])]).expect("published");
    publish(&mut config, vec![delete_container("c")]).expect("published");
    publish(&mut config, vec![int("q", 3)]).expect("published");
    publish(&mut config, vec![container("c", vec![one("g", "q")])]).expect("published");
    let all = [
        (2, Some(r#"{"f":1}"#)),
        (3, Some(r#"{"f":2}"#)),
        (7, Some(r#"{"g":2}"#)),
        (8, None),
        (10, Some(r#"{"g":3}"#)),
    ];
    for after in 0..12 {
        let changes = changes_since(&config, "c", after);
        let expected: Vec<_> = all.iter().filter(|(revision, _)| *revision > after).collect();
        let found = shown(&changes.events);
        let found: Vec<_> = found.iter().map(|(revision, text)| (*revision, text.as_deref())).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "after {after}");
        assert!(!changes.has_gap && changes.revision == 10);
    }
    assert_eq!(shown(&changes_since(&config, "none", 0).events), []);
}

#[test]
fn a_watcher_of_an_earlier_life_hears_that_it_ended() {
    let mut config = sample();
    assert_eq!(apply(&mut config, ConfigOperation::Delete { force: true }), Ok((2, true)));
    assert_eq!(changes_since(&config, "c", 2).revision, 0, "there is none");
    assert_eq!(apply(&mut config, ConfigOperation::Create), Ok((3, true)));
    assert_eq!(shown(&changes_since(&config, "c", 2).events), [(3, None)]);
    assert_eq!(shown(&changes_since(&config, "c", 3).events), []);
    assert_eq!(shown(&changes_since(&config, "c", 0).events), [], "who never saw it has nothing to hear");
    let changes = vec![int("p", 7), container("c", vec![one("f", "p")])];
    assert_eq!(publish(&mut config, changes.clone()), Ok((4, true)));
    let back = (4, Some(r#"{"f":7}"#.into()));
    assert_eq!(shown(&changes_since(&config, "c", 2).events), [(3, None), back.clone()]);
    assert_eq!(shown(&changes_since(&config, "c", 3).events), [back]);
    // The container was created again together with its namespace, so there is only one event.
    assert_eq!(apply(&mut config, ConfigOperation::Delete { force: true }), Ok((4, true)));
    assert_eq!(apply(&mut config, ConfigOperation::Publish { changes, create: true }), Ok((5, true)));
    assert_eq!(shown(&changes_since(&config, "c", 4).events), [(5, Some(r#"{"f":7}"#.into()))]);
}

#[test]
fn a_watcher_is_told_what_history_does_not_hold_any_more() {
    let mut config = sample();
    apply(&mut config, ConfigOperation::SetPolicy(Policy { revisions: 2, age_ms: u64::MAX })).expect("set");
    for number in 2..9 {
        publish(&mut config, vec![int("p", number)]).expect("published");
    }
    // Revisions 9 and 10 are left, and so the state after 8 is known.
    let kept = changes_since(&config, "c", 8);
    assert_eq!((kept.has_gap, kept.events.len()), (false, 2));
    let gone = changes_since(&config, "c", 7);
    assert!(gone.has_gap);
    assert_eq!(shown(&gone.events), [(10, Some(r#"{"f":8}"#.into()))]);
}

/// Two containers that resolve to the same pair, and one that resolves to another.
fn three_containers() -> Config {
    let mut config = Config::default();
    let containers = [("c", "p"), ("a", "p"), ("b", "q")];
    let containers = containers.map(|(key, pair)| container(key, vec![one("f", pair)]));
    let changes = [int("p", 1), int("q", 1)].into_iter().chain(containers).collect();
    apply(&mut config, ConfigOperation::Publish { changes, create: true }).expect("published");
    config
}

#[test]
fn a_watcher_of_a_namespace_hears_of_each_container_in_order() {
    let mut config = three_containers();
    publish(&mut config, vec![int("q", 2)]).expect("published");
    publish(&mut config, vec![int("p", 3)]).expect("published");
    publish(&mut config, vec![delete_container("b"), int("p", 4)]).expect("published");
    let state = namespace_changes(&config, None);
    assert_eq!((state.state, state.has_gap, state.has_more), (Some(4), false, false));
    let four = || Some(String::from(r#"{"f":4}"#));
    assert_eq!(named(&state.events), [(4, "a", four()), (4, "c", four())]);
    let text = |number: i64| Some(alloc::format!("{{\"f\":{number}}}"));
    let all = [
        (1, "a", text(1)),
        (1, "b", text(1)),
        (1, "c", text(1)),
        (2, "b", text(2)),
        (3, "a", text(3)),
        (3, "c", text(3)),
        (4, "a", text(4)),
        (4, "b", None),
        (4, "c", text(4)),
    ];
    let found = namespace_changes(&config, Some(WatchPosition::through(0))).events;
    assert_eq!(named(&found), all);
    // Whichever event was the last, the others follow.
    for (position, event) in found.iter().enumerate() {
        let rest = namespace_changes(&config, Some(behind(event, None)));
        assert_eq!(named(&rest.events), all[position + 1..], "after {event:?}");
        assert!(!rest.has_gap && rest.state.is_none() && rest.revision == 4);
    }
    assert_eq!(named(&namespace_changes(&config, Some(WatchPosition::through(3))).events), all[6..]);
}

#[test]
fn what_changes_while_a_state_is_sent_comes_after_it() {
    let mut config = three_containers();
    publish(&mut config, vec![int("q", 2)]).expect("published");
    let state = namespace_changes(&config, None);
    let text = |number: i64| Some(alloc::format!("{{\"f\":{number}}}"));
    assert_eq!(named(&state.events), [(1, "a", text(1)), (2, "b", text(2)), (1, "c", text(1))]);
    publish(&mut config, vec![int("p", 3)]).expect("published");
    publish(&mut config, vec![delete_container("b")]).expect("published");
    let two = vec![int("p", 5), container("d", vec![one("f", "p")])];
    publish(&mut config, two).expect("published");
    // The client has received `a`. The rest is as it was then: `b` was there, and `d` was not.
    let rest = namespace_changes(&config, Some(behind(&state.events[0], Some(2))));
    assert_eq!((rest.state, rest.has_more, rest.has_gap), (Some(2), false, false));
    assert_eq!(named(&rest.events), [(2, "b", text(2)), (2, "c", text(1))]);
    let later = namespace_changes(&config, Some(WatchPosition::through(2)));
    let expected = [
        (3, "a", text(3)),
        (3, "c", text(3)),
        (4, "b", None),
        (5, "a", text(5)),
        (5, "c", text(5)),
        (5, "d", text(5)),
    ];
    assert_eq!(named(&later.events), expected);
    // Once history does not hold that state any more, there is a gap.
    let policy = Policy { revisions: 2, age_ms: u64::MAX };
    apply(&mut config, ConfigOperation::SetPolicy(policy)).expect("set");
    let anew = namespace_changes(&config, Some(behind(&state.events[0], Some(2))));
    assert_eq!((anew.state, anew.has_gap, anew.events.len()), (Some(6), true, 3));
}

#[test]
fn a_watcher_of_an_earlier_life_of_a_namespace_hears_that_it_ended() {
    let mut config = three_containers();
    apply(&mut config, ConfigOperation::Delete { force: true }).expect("deleted");
    let known = |revision| Some(WatchPosition::through(revision));
    assert_eq!(namespace_changes(&config, known(1)).revision, 0);
    assert_eq!(ask(&config, Query::NamespaceChanges { after: None }), Err(ConfigError::NoNamespace));
    assert_eq!(apply(&mut config, ConfigOperation::Create), Ok((2, true)));
    let changes = vec![int("p", 7), container("a", vec![one("f", "p")])];
    publish(&mut config, changes).expect("published");
    let seven = || (3, "a", Some(String::from(r#"{"f":7}"#)));
    let life = namespace_changes(&config, known(1)).events;
    assert_eq!(named(&life), [(2, "", None), seven()]);
    assert_eq!(named(&namespace_changes(&config, Some(behind(&life[0], None))).events), [seven()]);
    assert_eq!(named(&namespace_changes(&config, known(0)).events), [seven()], "it has nothing to forget");
    // Also in the midst of a state of the earlier life.
    let midst = WatchPosition { revision: 1, container: Some("a".into()), is_state: true };
    assert_eq!(named(&namespace_changes(&config, Some(midst)).events).len(), 2);
    assert_eq!(namespace_changes(&config, known(9)).events, [], "of another cluster");
}

#[test]
fn a_gap_in_the_history_of_a_namespace_is_followed_by_its_state() {
    let mut config = three_containers();
    apply(&mut config, ConfigOperation::SetPolicy(Policy { revisions: 2, age_ms: u64::MAX })).expect("set");
    for number in 2..9 {
        publish(&mut config, vec![int("p", number)]).expect("published");
    }
    // Revisions 8 and 9 are left.
    let eight = WatchPosition { revision: 8, container: Some("a".into()), is_state: false };
    let kept = namespace_changes(&config, Some(eight.clone()));
    assert_eq!((kept.has_gap, kept.events.len()), (false, 3));
    let seven = WatchPosition { revision: 7, ..eight };
    for gone in [seven, WatchPosition::through(6)] {
        let state = namespace_changes(&config, Some(gone));
        assert_eq!((state.has_gap, state.state, state.events.len()), (true, Some(9), 3));
    }
}

#[test]
fn an_answer_about_a_namespace_holds_a_limited_number_and_size_of_documents() {
    let mut config = Config::default();
    let containers = (0..150).map(|number| container(&alloc::format!("c{number:03}"), vec![one("f", "p")]));
    let changes = [int("p", 1)].into_iter().chain(containers).collect();
    apply(&mut config, ConfigOperation::Publish { changes, create: true }).expect("published");
    let first = namespace_changes(&config, None);
    assert_eq!((first.events.len(), first.has_more), (limits::CONFIG_CHANGES_MAX, true));
    assert_eq!(all_after(&config, None).len(), 150);
    publish(&mut config, vec![int("p", 2)]).expect("published");
    assert_eq!(all_after(&config, Some(WatchPosition::through(1))).len(), 150);
    let long = Value::text(&"x".repeat(60_000));
    let changes = vec![Change::PutPair { key: "p".into(), value: long, retype: true }];
    publish(&mut config, changes).expect_err("150 documents of 60,000 bytes are too many");
    let changes = vec![put("q", Value::text(&"x".repeat(60_000)))];
    let containers = (0..60).map(|number| container(&alloc::format!("c{number:03}"), vec![one("f", "q")]));
    let retyped = containers.map(|change| match change {
        Change::PutContainer { key, fields, .. } => Change::PutContainer { key, fields, retype: true },
        other => other,
    });
    publish(&mut config, changes.into_iter().chain(retyped).collect()).expect("published");
    let answer = namespace_changes(&config, Some(WatchPosition::through(2)));
    let bytes: usize =
        answer.events.iter().flat_map(|event| &event.found).map(|found| found.document().len()).sum();
    assert!(answer.has_more && bytes >= limits::CONFIG_CHANGES_BYTES_CLOSE, "{bytes}");
    assert!(bytes < limits::CONFIG_CHANGES_BYTES_CLOSE + 61_000, "{bytes}");
    assert_eq!(all_after(&config, Some(WatchPosition::through(2))).len(), 60);
}

#[test]
fn many_changes_are_told_in_order_a_part_at_a_time() {
    let mut config = sample();
    for number in 2..90 {
        publish(&mut config, vec![int("p", number)]).expect("published");
    }
    let first = changes_since(&config, "c", 2);
    assert_eq!(first.events.len(), limits::CONFIG_CHANGES_MAX);
    assert_eq!(first.events[0].revision, 3);
    let last = first.events.last().expect("an event").revision;
    let rest = changes_since(&config, "c", last);
    assert_eq!(rest.events.first().map(|event| event.revision), Some(last + 1));
    assert_eq!(rest.events.last().map(|event| event.revision), Some(90));
}
