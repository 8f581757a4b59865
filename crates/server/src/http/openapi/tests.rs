//! Checks the document against the map of paths: both contain the same paths.

use std::collections::BTreeSet;

use super::super::membership::HostVerb;
use super::super::route::Route;
use super::*;

/// The paths of a route. There is no wildcard arm, so that a new route must be described here; add
/// it to `ROUTES`, too.
fn paths_of(route: Route<'_>) -> &'static [&'static str] {
    match route {
        Route::Key(_) => &["/v1/keys/{key}"],
        Route::List => &["/v1/keys"],
        Route::Atomic(_) => {
            &["/v1/atomics/{id}", "/v1/atomics/{id}/exchange", "/v1/atomics/{id}/compare-exchange"]
        }
        Route::Cluster => &["/v1/cluster"],
        Route::Checkpoint => &["/v1/cluster/checkpoint"],
        Route::Backup => &["/v1/backup"],
        Route::Restore => &["/v1/restore"],
        Route::Host { verb, .. } => match verb {
            HostVerb::Add => &["/v1/cluster/hosts/{node}/add"],
            HostVerb::Follow => &["/v1/cluster/hosts/{node}/follow"],
            HostVerb::Drain => &["/v1/cluster/hosts/{node}/drain"],
            HostVerb::Undrain => &["/v1/cluster/hosts/{node}/undrain"],
            HostVerb::Remove => &["/v1/cluster/hosts/{node}/remove"],
        },
        Route::Dump => &["/v1/cluster/dump"],
        Route::Explain(_) => &["/v1/cluster/shards/{shard}/explain"],
        Route::Tags(_) => &["/v1/cluster/shards/{shard}/tags"],
        Route::Clients => &["/v1/cluster/clients"],
        Route::Moves => &["/v1/cluster/moves"],
        Route::Rebalance => &["/v1/cluster/rebalance"],
        Route::Shard(_) => &["/v1/cluster/shards/{shard}"],
        Route::AddShard => &["/v1/cluster/shards"],
        Route::MoveSlots(_) => &["/v1/cluster/shards/{shard}/slots"],
        Route::Transfer(_) => &["/v1/cluster/shards/{shard}/transfer"],
        Route::Raftdb(_) => &["/db/{key}"],
        Route::Kv1(_) => &["/{key}"],
        Route::Welcome => &["/"],
        Route::Live => &["/livez"],
        Route::Ready => &["/readyz"],
        Route::Metrics => &["/metrics"],
        Route::OpenApi => &["/openapi.json"],
        // The configuration centre checks its own paths against the document.
        Route::Config(_) | Route::Nothing => &[],
    }
}

const fn host(verb: HostVerb) -> Route<'static> {
    Route::Host { node: "1", verb }
}

const ROUTES: [Route<'_>; 29] = [
    Route::Key("k"),
    Route::List,
    Route::Atomic("k"),
    Route::Cluster,
    Route::Checkpoint,
    Route::Backup,
    Route::Restore,
    host(HostVerb::Add),
    host(HostVerb::Follow),
    host(HostVerb::Drain),
    host(HostVerb::Undrain),
    host(HostVerb::Remove),
    Route::Dump,
    Route::Explain("1"),
    Route::Tags("1"),
    Route::Clients,
    Route::Moves,
    Route::Rebalance,
    Route::AddShard,
    Route::Shard("1"),
    Route::MoveSlots("1"),
    Route::Transfer("1"),
    Route::Raftdb("k"),
    Route::Kv1("/k"),
    Route::Welcome,
    Route::Live,
    Route::Ready,
    Route::Metrics,
    Route::OpenApi,
];

#[test]
fn every_route_is_described_and_nothing_else() {
    let routed: BTreeSet<&str> = ROUTES.into_iter().flat_map(paths_of).copied().collect();
    let described: BTreeSet<&str> = operations().iter().map(|operation| operation.path).collect();
    let (config, others): (BTreeSet<&str>, BTreeSet<&str>) =
        described.into_iter().partition(|path| path.starts_with("/api/"));
    assert_eq!(others, routed);
    for path in others {
        let real =
            path.replace("{key}", "k").replace("{id}", "k").replace("{node}", "1").replace("{shard}", "1");
        let route = Route::of(&real);
        assert!(paths_of(route).contains(&path), "{path} is routed as {route:?}");
    }
    for path in config {
        assert!(matches!(Route::of(path), Route::Config(_)), "{path}");
    }
}

#[test]
fn it_is_an_openapi_document() {
    let text = document().to_string();
    let parsed = oas3::from_json(&text).expect("OpenAPI 3.1");
    assert_eq!(parsed.operations().count(), operations().len(), "no row hides another");
    let ids: BTreeSet<String> =
        parsed.operations().filter_map(|(_, _, operation)| operation.operation_id.clone()).collect();
    assert_eq!(ids.len(), operations().len(), "every operation has an id of its own");
    let tags: BTreeSet<String> = parsed.tags.iter().map(|tag| tag.name.clone()).collect();
    for (path, _, operation) in parsed.operations() {
        assert!(operation.tags.iter().all(|tag| tags.contains(tag)), "{path}");
    }
}

#[test]
fn every_schema_is_there_and_is_used() {
    let text = document().to_string();
    let prefix = "\"#/components/schemas/";
    let named: BTreeSet<&str> =
        text.split(prefix).skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let all = schemas::all();
    assert_eq!(named, all.keys().map(String::as_str).collect::<BTreeSet<_>>());
}

/// What client generators fail on, as found with OpenAPI Generator 7.25 and openapi-python-client
/// 0.26. They fail on missing types, alternatives with null, and formats that they take for 32
/// bits. In Go, a type `NewX` besides a type `X` fails.
#[test]
fn generators_of_clients_can_read_it() {
    fn walk(value: &Value, path: &str) {
        match value {
            Value::Object(members) => {
                assert!(!members.contains_key("const"), "{path}: a const without a type");
                assert_ne!(members.get("type"), Some(&json!("null")), "{path}: nothing but null");
                assert_ne!(members.get("format"), Some(&json!("uint64")), "{path}: an unknown format");
                if let Some(alternatives) = members.get("anyOf").and_then(Value::as_array) {
                    assert!(
                        !alternatives.contains(&json!({ "type": "null" })),
                        "{path}: an alternative is null"
                    );
                }
                members.iter().for_each(|(name, value)| walk(value, &format!("{path}/{name}")));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, path)),
            _ => {}
        }
    }
    walk(&document(), "");
    let all = schemas::all();
    for name in all.keys() {
        assert!(name.strip_prefix("New").is_none_or(|rest| !all.contains_key(rest)), "{name}");
    }
}

#[test]
fn patterns_and_bounds_are_those_of_the_server() {
    let all = schemas::all();
    let accepts = |schema: &Value, instance: Value| {
        jsonschema::draft202012::new(schema).expect("a schema").is_valid(&instance)
    };
    let slots = &all["WantedSlots"]["properties"]["slots"];
    let name = &all["Change"]["properties"]["pair"];
    let policy = &all["PolicyRequest"];
    let shard = &all["AddShardRequest"];
    for (schema, instance) in [
        (slots, json!("0-99,200")),
        (name, json!("a b/\u{e4}.\u{1f980}")),
        (policy, json!({ "revisions": 2, "ageMs": 1 })),
        (shard, json!({ "name": null, "tags": { "a": "" } })),
    ] {
        assert!(accepts(schema, instance.clone()), "{instance}");
    }
    for (schema, instance) in [
        (slots, json!("")),
        (slots, json!("0-")),
        (slots, json!("0,")),
        (name, json!("")),
        (name, json!("a\u{9f}")),
        (name, json!("a\n")),
        (name, json!("x".repeat(65))),
        (policy, json!({ "revisions": 1 })),
        (policy, json!({ "days": 0 })),
        (shard, json!({ "name": "" })),
        (shard, json!({ "tags": { "": "" } })),
    ] {
        assert!(!accepts(schema, instance.clone()), "{instance}");
    }
}
