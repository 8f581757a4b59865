//! `/openapi.json`: the HTTP interface for programs, as one OpenAPI 3.1 document.
//!
//! Owns how the tables of operations become a document.
//!
//! The document is built for each request: requests are rare, and a cached one would only take
//! memory.

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use tidelock_api as api;

use super::operations::{self, schemas};
use super::response::{self, Response};
use super::session;

const DESCRIPTION: &str = "A replicated key-value store and configuration centre. Any node answers any request. Reads are \
    linearizable unless `stale` is asked for. HEAD works wherever GET does. Keys in paths are percent-encoded; outside of \
    `/api` they are the rest of the path, slashes included.";

/// The description of keys that may contain slashes.
const REST_OF_PATH: &str = "Any bytes, percent-encoded; slashes belong to it.";

pub(super) fn answer() -> Response {
    response::typed(StatusCode::OK, "application/json", document().to_string())
}

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations::all() {
        let path = paths.entry(operation.path).or_insert_with(|| path_item(operation.path));
        path[operation.method] = operation.to_json();
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidelock",
            "version": env!("CARGO_PKG_VERSION"),
            "description": DESCRIPTION,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "The node that serves this document" }],
        "tags": [
            { "name": "keys", "description": "Keys with versions: raw values, conditional writes" },
            { "name": "registers", "description": "Numbers, exchanged in one step" },
            { "name": "transactions", "description": "Several keys at once, all or none" },
            { "name": "leases", "description": "What keys and locks last for" },
            { "name": "locks", "description": "Locks with fences" },
            { "name": "configuration", "description": "Typed pairs, containers that refer to them, history, watching" },
            { "name": "dialects", "description": "The interfaces of other stores over the same keys" },
            { "name": "cluster", "description": "Hosts, shards, replicas, backups" },
            { "name": "authentication", "description": "Roles, principals and tokens" },
            { "name": "operations", "description": "Health, numbers, this document" },
            { "name": "console", "description": "The files of the console, which runs in a browser" },
        ],
        "paths": paths,
        // The last one: none. Authentication may be off, and clients then send nothing.
        "security": [{ "token": [] }, { "session": [] }, { "certificate": [] }, {}],
        "components": { "schemas": schemas::all(), "securitySchemes": security_schemes() },
    })
}

/// How clients show who they are.
fn security_schemes() -> Value {
    json!({
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of `tidelock auth token create`",
        },
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": session::COOKIE_NAME,
            "description": "The cookie of `POST /v1/session`, for browsers",
        },
        "certificate": {
            "type": "mutualTLS",
            "description": "A certificate whose name belongs to a principal, if nodes have --client-ca",
        },
    })
}

/// The part that a path's operations share: its parameters.
fn path_item(path: &str) -> Value {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let parameters: Vec<Value> = names
        .map(|name| {
            let mut parameter =
                json!({ "name": name, "in": "path", "required": true, "schema": path_schema(path, name) });
            if !path.starts_with("/api/") && matches!(name, "key" | "id") {
                parameter["description"] = REST_OF_PATH.into();
            }
            parameter
        })
        .collect();
    if parameters.is_empty() { json!({}) } else { json!({ "parameters": parameters }) }
}

fn path_schema(path: &str, name: &str) -> Value {
    use tidelock_core::limits;
    match name {
        "node" => operations::number_in(1, i64::MAX.unsigned_abs()),
        "shard" | "authority" => operations::number(),
        "token" => operations::matching(api::TOKEN_NUMBER),
        // With an example, because generators fail to make a path of braces by the pattern alone.
        "id" if path.starts_with("/v1/leases/") => {
            json!({ "type": "string", "pattern": api::LEASE_ID, "examples": ["{orders}:1f"] })
        }
        "namespace" => schemas::name(limits::CONFIG_NAMESPACE_CHARACTERS_MAX),
        _ if path.starts_with("/api/") => schemas::name(limits::CONFIG_KEY_CHARACTERS_MAX),
        _ => json!({ "type": "string", "minLength": 1 }),
    }
}

#[cfg(test)]
mod tests;
