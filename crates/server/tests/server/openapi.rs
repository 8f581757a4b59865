//! Checks the OpenAPI document against the server: the methods of each path, and every answer in
//! the golden scripts.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use tidelock_server::http::HttpOptions;

use crate::client::{Answer, Client};
use crate::harness::Server;

/// Statuses that any request may get, which the document states once.
const ANY_REQUEST: [u16; 9] = [400, 403, 408, 413, 421, 431, 500, 503, 504];

/// First segments that are never keys.
const RESERVED: [&str; 13] = [
    "",
    "v1",
    "v2",
    "v3",
    "api",
    "db",
    "ui",
    "metrics",
    "livez",
    "readyz",
    "openapi.json",
    "favicon.ico",
    ".well-known",
];

/// The document as a server serves it.
static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let server = Server::start(HttpOptions::default());
    let answer =
        Client::connect(server.address).ask(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!((answer.status(), answer.header("content-type")), (200, Some("application/json")));
    Document(serde_json::from_slice(&answer.body).unwrap())
});

struct Document(Value);

impl Document {
    fn paths(&self) -> &Map<String, Value> {
        self.0["paths"].as_object().unwrap()
    }

    /// The description of a method of a real path, by the template with the longest literal part.
    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let method = if method == "HEAD" { "get" } else { &method.to_lowercase() };
        let fitting =
            self.paths().iter().filter(|(template, item)| item.get(method).is_some() && fits(template, path));
        let literal = |template: &str| {
            template.split('{').map(|part| part.rsplit('}').next().unwrap().len()).sum::<usize>()
        };
        fitting.max_by_key(|(template, _)| literal(template)).map(|(_, item)| &item[method])
    }

    fn validate(&self, schema: &Value, body: &Value) -> Result<(), String> {
        let mut schema = schema.clone();
        schema["components"] = self.0["components"].clone();
        let validator = jsonschema::draft202012::new(&schema).map_err(|error| error.to_string())?;
        validator.validate(body).map_err(|error| format!("{error} at {}", error.instance_path()))
    }
}

/// Whether a path matches a template. Keys and prefixes may contain slashes, other parts may not.
fn fits(template: &str, path: &str) -> bool {
    if template == "/{key}" {
        let first = path.trim_start_matches('/').split('/').next().unwrap();
        return path.len() > 1 && (path.starts_with("//") || !RESERVED.contains(&first));
    }
    if ["/api/", "/v1/cluster/", "/v1/auth/", "/v1/tls/"].iter().any(|start| template.starts_with(start)) {
        let (templates, segments) = (template.split('/'), path.split('/'));
        return templates.clone().count() == segments.clone().count()
            && templates.zip(segments).all(|(template, segment)| {
                template == segment || (template.starts_with('{') && !segment.is_empty())
            });
    }
    match template.split_once('{') {
        None => template == path,
        Some((before, behind)) => {
            let behind = behind.split_once('}').unwrap().1;
            path.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind)).is_some()
        }
    }
}

/// Fails unless the document describes the answer.
pub fn check(method: &str, target: &str, answer: &Answer) -> Result<(), String> {
    let path = target.split('?').next().unwrap();
    let status = answer.status();
    let wrong = |what: &str| format!("{method} {path}: {what}: {status} {}", answer.text());
    if method == "HEAD" && status >= 400 {
        return Ok(());
    }
    let is_no_route = status == 404
        && serde_json::from_slice::<Value>(&answer.body).is_ok_and(|body| {
            body["errcode"] == 40400
                || body["type"].as_str().is_some_and(|name| name.ends_with("/no-such-route"))
        });
    let Some(operation) = DOCUMENT.operation(method, path) else {
        let is_refused = is_no_route || matches!(status, 400 | 403 | 405 | 421 | 431);
        return if is_refused { Ok(()) } else { Err(wrong("not described")) };
    };
    // A decoded path may still be reserved, and this server has no backups.
    let of_backups = path == "/v1/backup" || path.starts_with("/v1/snapshots");
    let may_be_none = of_backups || operation["tags"][0] == "dialects";
    if is_no_route && !may_be_none {
        return Err(wrong("described, and not there"));
    }
    let responses = &operation["responses"];
    let response = match responses.get(status.to_string()) {
        Some(response) => response,
        None if ANY_REQUEST.contains(&status) => &responses["default"],
        None => return Err(wrong("a status that is not described")),
    };
    let given = answer.header("content-type");
    let Some(types) = response.get("content").and_then(Value::as_object) else {
        return if given.is_none() && answer.body.is_empty() { Ok(()) } else { Err(wrong("a body")) };
    };
    let Some(described) = given.and_then(|given| types.get(given)) else {
        return Err(wrong("a type that is not described"));
    };
    if method != "HEAD" && given.is_some_and(|given| given.ends_with("json")) {
        let body = serde_json::from_slice(&answer.body).map_err(|error| wrong(&error.to_string()))?;
        DOCUMENT.validate(&described["schema"], &body).map_err(|error| wrong(&error))?;
    }
    Ok(())
}

#[test]
fn each_path_takes_the_methods_that_are_described() {
    let server = Server::start(HttpOptions::default());
    let mut client = Client::connect(server.address);
    for template in DOCUMENT.paths().keys() {
        let path = ["{node}", "{shard}", "{authority}"]
            .iter()
            .fold(template.clone(), |path, name| path.replace(name, "1"));
        let path = path
            .replace("{namespace}", "ns")
            .replace("{key}", "k")
            .replace("{id}", "k")
            .replace("{file}", "");
        let path = path.replace("{name}", "n").replace("{token}", "0123456789abcdef");
        for method in ["GET", "PUT", "POST", "DELETE", "PATCH"] {
            let answer = client.ask(
                format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
                    .as_bytes(),
            );
            let is_described = DOCUMENT.operation(method, &path).is_some();
            assert_eq!(answer.status() != 405, is_described, "{method} {path}: {}", answer.text());
            check(method, &path, &answer).unwrap();
        }
    }
}

/// A page of another site reaches no route that changes something, and a page whose name is bound
/// to this node's address reaches no route.
#[test]
fn no_path_is_open_to_pages_of_others() {
    let server = Server::start(HttpOptions::default());
    let mut client = Client::connect(server.address);
    for (template, item) in DOCUMENT.paths() {
        let path = ["{node}", "{shard}", "{authority}"]
            .iter()
            .fold(template.clone(), |path, name| path.replace(name, "1"));
        let path = path.replace("{namespace}", "ns").replace("{key}", "k").replace("{id}", "k");
        for method in ["get", "put", "post", "delete"].iter().filter(|method| item.get(**method).is_some()) {
            let method = method.to_uppercase();
            let mut ask = |headers: &str| {
                let request = format!("{method} {path} HTTP/1.1\r\n{headers}\r\ncontent-length: 0\r\n\r\n");
                let answer = client.ask(request.as_bytes());
                check(&method, &path, &answer).unwrap();
                assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{method} {path}");
                answer.status()
            };
            assert_eq!(ask("host: evil.example"), 421, "{method} {path}");
            if method != "GET" {
                assert_eq!(ask("host: localhost\r\nsec-fetch-site: cross-site"), 403, "{method} {path}");
            }
        }
    }
    assert_eq!(server.store.state().len(), 0);
}

/// A misspelt parameter of a change is refused, and described ones are not.
#[test]
fn changes_take_the_parameters_that_are_described_and_no_others() {
    let server = Server::start(HttpOptions::default());
    let mut client = Client::connect(server.address);
    for (template, item) in DOCUMENT.paths() {
        let path = ["{node}", "{shard}", "{authority}"]
            .iter()
            .fold(template.clone(), |path, name| path.replace(name, "1"));
        let path = path.replace("{namespace}", "ns").replace("{key}", "k").replace("{id}", "k");
        for method in ["put", "post", "delete"].iter().filter(|method| item.get(**method).is_some()) {
            let parameters = item[*method]["parameters"].as_array().cloned().unwrap_or_default();
            let described = parameters.iter().filter(|parameter| parameter["in"] == "query");
            let described: Vec<&str> =
                described.map(|parameter| parameter["name"].as_str().unwrap()).collect();
            let method = method.to_uppercase();
            let mut refusal = |name: &str| {
                let request = format!(
                    "{method} {path}?{name}=true HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
                );
                let answer = client.ask(request.as_bytes());
                check(&method, &path, &answer).unwrap();
                (answer.status(), answer.text().contains("there is no parameter"))
            };
            assert_eq!(refusal("misspelt"), (400, true), "{method} {path}");
            for name in described {
                assert!(!refusal(name).1, "{method} {path} {name}");
            }
        }
    }
}

#[test]
fn what_is_not_described_is_found() {
    let answer = |status, body: &Value| Answer {
        status_line: format!("HTTP/1.1 {status} ?"),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.to_string().into_bytes(),
    };
    let register = json!({ "id": "k", "value": 1, "ver": 1 });
    assert_eq!(check("GET", "/v1/atomics/k", &answer(200, &register)), Ok(()));
    for (method, path, status, body) in [
        ("GET", "/v1/atomics/k", 200, json!({ "id": "k", "value": 1 })),
        ("GET", "/v1/atomics/k", 200, json!({ "id": "k", "value": "1", "ver": 1 })),
        ("GET", "/v1/atomics/k", 200, json!({ "id": "k", "value": 1, "ver": 1, "more": 1 })),
        ("GET", "/v1/atomics/k", 201, register.clone()),
        ("PUT", "/v1/atomics/k", 200, register.clone()),
        ("GET", "/v1/registers/k", 200, register.clone()),
        ("GET", "/v1/keys/k", 200, register),
    ] {
        assert!(check(method, path, &answer(status, &body)).is_err(), "{method} {path} {status} {body}");
    }
}
