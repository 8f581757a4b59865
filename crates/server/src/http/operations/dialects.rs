//! Operations of the dialects: `/db`, and any other path at the root.

use serde_json::json;
use tidelock_api as api;

use super::super::kv1::Kv1;
use super::super::raftdb::Raftdb;
use super::native::{bytes, stale};
use super::operation::{Failures, OCTETS, Operation, TEXT, Tag, matching, number, query, text};
use super::schemas::schema_of;

const DIALECTS: Tag = Tag("dialects", Failures::Problems);

pub(super) fn operations() -> Vec<Operation> {
    let store = |route, endpoint, id| {
        DIALECTS
            .operation(route, endpoint, id, "Stores the raw body")
            .takes([(OCTETS, bytes())])
            .or_nothing()
            .gives_nothing(200, "It is stored")
            .fails([409])
    };
    let problem = || ("application/problem+json", schema_of::<api::problem::Problem<'static>>());
    let form = json!({
        "type": "object",
        "properties": { "val": { "type": "string" }, "ver": matching("^[0-9]{1,20}$") },
    });
    vec![
        DIALECTS
            .operation("get /db/{key}", Raftdb::Get, "getRaw", "The raw value of a key")
            .asks([stale()])
            .gives(200, [(OCTETS, bytes())], "The value")
            .fails([404]),
        store("post /db/{key}", Raftdb::Put, "storeRaw"),
        store("put /db/{key}", Raftdb::Put, "putRaw"),
        DIALECTS
            .operation(
                "get /{key}", Kv1::Get,
                "getVersioned",
                "A key with its version. The key is the path with its slash, and none whose first segment is another interface's",
            )
            .asks([stale()])
            .gives_json(schema_of::<api::keys::Versioned>(), "The key")
            .gives(404, [(TEXT, text()), problem()], "There is none"),
        DIALECTS
            .operation("put /{key}", Kv1::Put, "putVersioned", "Writes a key if it has the version that is named")
            .asks([
                query("val", text(), "The value; the body wins"),
                query("ver", number(), "The key's version; 0, as when it is left out, for none"),
            ])
            .takes([("application/x-www-form-urlencoded", form.clone()), ("multipart/form-data", form)])
            .or_nothing()
            .gives_json(schema_of::<api::keys::Versioned>(), "The key as it is now")
            .gives(400, [(TEXT, text()), problem()], "Not understood")
            .gives(404, [problem()], "No such route")
            .gives(409, [(TEXT, text()), problem()], "It has another version, and both are named; or it is a held lock"),
    ]
}
