//! Checks that the document is what readers of OpenAPI expect.

use std::collections::BTreeSet;

use super::*;

#[test]
fn it_is_an_openapi_document() {
    let text = document().to_string();
    let parsed = oas3::from_json(&text).expect("OpenAPI 3.1");
    assert_eq!(parsed.operations().count(), operations::all().len(), "no row hides another");
    let ids: BTreeSet<String> =
        parsed.operations().filter_map(|(_, _, operation)| operation.operation_id.clone()).collect();
    assert_eq!(ids.len(), operations::all().len(), "every operation has an id of its own");
    let tags: BTreeSet<String> = parsed.tags.iter().map(|tag| tag.name.clone()).collect();
    for (path, _, operation) in parsed.operations() {
        assert!(operation.tags.iter().all(|tag| tags.contains(tag)), "{path}");
    }
}

#[test]
fn every_operation_says_how_clients_show_who_they_are() {
    let document = document();
    let schemes = document["components"]["securitySchemes"].as_object().expect("schemes");
    let alternatives = document["security"].as_array().expect("alternatives");
    for name in alternatives.iter().filter_map(|alternative| alternative.as_object()?.keys().next()) {
        assert!(schemes.contains_key(name), "{name}");
    }
    assert_eq!(document["paths"]["/livez"]["get"]["security"], json!([]));
    assert_eq!(document["paths"]["/v1/cluster"]["get"].get("security"), None);
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
                let format = members.get("format").and_then(Value::as_str).unwrap_or_default();
                assert!(!format.starts_with("uint"), "{path}: an unknown format");
                assert!(!members.contains_key("$ref") || members.len() == 1, "{path}: a reference and more");
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
fn every_member_of_a_body_is_described_and_no_other_is_allowed() {
    for (name, schema) in schemas::all() {
        let Some(members) = schema["properties"].as_object() else { continue };
        assert_eq!(schema["additionalProperties"], false, "{name}");
        for (member, schema) in members {
            let is_described = schema["description"].is_string() || schema["$ref"].is_string();
            assert!(is_described, "{name}.{member}");
        }
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
    let host = &all["WantedOfHost"];
    let problem = &all["Problem"];
    let item = &all["KeyItem"];
    for (schema, instance) in [
        (slots, json!("0-99,200")),
        (name, json!("a b/\u{e4}.\u{1f980}")),
        (policy, json!({ "revisions": 2, "ageMs": 1 })),
        (shard, json!({ "name": null, "tags": { "a": "" } })),
        (host, json!({ "node": 1, "standing": "leaving" })),
        (problem, json!({ "type": "a:b", "title": "", "status": 412, "detail": "", "current": 0 })),
        (item, json!({ "key_b64": "/w==", "ver": 1 })),
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
        (name, json!("x".repeat(129))),
        (policy, json!({ "revisions": 1 })),
        (policy, json!({ "days": 0 })),
        (shard, json!({ "name": "" })),
        (shard, json!({ "tags": { "": "" } })),
        (host, json!({ "node": 1, "standing": "unknown" })),
        (host, json!({ "node": -1 })),
        (host, json!({ "node": 1, "standing": null })),
        (problem, json!({ "type": "a:b", "title": "", "status": 200, "detail": "" })),
        (problem, json!({ "type": "a:b", "title": "", "status": 412 })),
        (item, json!({ "key_b64": "/w=a", "ver": 1 })),
        (item, json!({ "key": null, "ver": 1 })),
    ] {
        assert!(!accepts(schema, instance.clone()), "{instance}");
    }
}
