//! Operations on keys: single ones, lists, registers and transactions.

use serde_json::json;
use tidelock_api as api;
use tidelock_core::limits;

use super::super::atomics::Registers;
use super::super::native::Keys;
use super::super::transactions::Transactions;
use super::native::{bytes, stale};
use super::operation::{Failures, JSON, OCTETS, Operation, Tag, flag, header, matching, query, text};
use super::schemas::schema_of;

const KEYS: Tag = Tag("keys", Failures::Problems);
const REGISTERS: Tag = Tag("registers", Failures::Problems);
const TRANSACTIONS: Tag = Tag("transactions", Failures::Problems);

/// Pattern of one version in quotes, or `*`.
const ONE_VERSION: &str = r#"^(\*|"[0-9]{1,20}")$"#;
/// Pattern of several versions, or `*`.
const VERSIONS: &str = r#"^(\*|(W/)?"[0-9]{1,20}"( *, *(W/)?"[0-9]{1,20}")*)$"#;

/// Pattern of the name of a lock and a fence.
const FENCE: &str = "^.+=[0-9]{1,20}$";

pub(super) fn operations() -> Vec<Operation> {
    let mut all = keys();
    all.push(list());
    all.push(watch());
    all.extend(registers());
    all.push(transactions());
    all
}

fn keys() -> Vec<Operation> {
    let writes = || {
        [
            header(
                "If-Match",
                matching(ONE_VERSION),
                "Only if the key has this version, `\"6\"`, or exists, `*`",
            ),
            header("If-None-Match", matching(r"^\*$"), "`*`: only if there is no such key"),
            header("If-Fence", matching(FENCE), "Only while the lock is held with this fence, `jobs=12`"),
        ]
    };
    let version = "The key's version, quoted";
    let leader = "URL of the node that leads the key's shard, if another node answers";
    let remaining = "Milliseconds that the key has left, if it expires";
    vec![
        KEYS.operation("get /v1/keys/{key}", Keys::Get, "getKey", "The value of a key")
            .asks([
                stale(),
                header("If-Match", matching(VERSIONS), "412 unless the key has one of these versions"),
                header("If-None-Match", matching(VERSIONS), "304 if the key has one of these versions"),
            ])
            .gives(200, [(OCTETS, bytes())], "The value")
            .with_header(200, "ETag", version)
            .with_header(200, "Tidelock-TTL-Ms", remaining)
            .with_header(200, "Tidelock-Lease", "The lease with which the key ends, if there is one")
            .with_header(200, "Tidelock-Leader", leader)
            .gives_nothing(304, "The client has it")
            .fails([404, 412]),
        KEYS.operation("put /v1/keys/{key}", Keys::Put, "putKey", "Writes a key")
            .asks(writes())
            .asks([
                query(
                    "ttl",
                    matching(api::DURATION),
                    "How long it lives: a whole number with ms, s, m, h or d",
                ),
                query(
                    "lease",
                    matching(api::LEASE_ID),
                    "The id of a lease with which it ends, instead of `ttl`",
                ),
            ])
            .takes([(OCTETS, bytes())])
            .or_nothing()
            .gives_nothing(200, "It was replaced")
            .with_header(200, "ETag", version)
            .with_header(200, "Tidelock-Leader", leader)
            .gives_nothing(201, "It is new")
            .with_header(201, "ETag", version)
            .with_header(201, "Tidelock-Leader", leader)
            .fails([404, 409, 412]),
        KEYS.operation("delete /v1/keys/{key}", Keys::Delete, "deleteKey", "Deletes a key")
            .asks(writes())
            .gives_nothing(204, "It is gone")
            .with_header(204, "Tidelock-Leader", leader)
            .fails([404, 409, 412]),
    ]
}

fn list() -> Operation {
    let page = json!({ "type": "integer", "minimum": 1, "maximum": limits::LIST_PAGE_ITEMS_MAX });
    KEYS.operation("get /v1/keys", Keys::List, "listKeys", "A page of keys, in byte order over all shards")
        .asks([
            query("prefix", text(), "Only keys that begin with this"),
            query("prefix_b64", matching(api::BASE64), "The same, in base64"),
            query("after", text(), "Only keys behind this one"),
            query("after_b64", matching(api::BASE64), "The same, in base64"),
            query("limit", page, "Most items"),
            query("keys", flag(), "Leave values out"),
            query(
                "delimiter",
                text(),
                "Leave values out, and fold keys with a common beginning up to this text, behind the prefix",
            ),
            stale(),
        ])
        .gives_json(schema_of::<api::keys::KeyPage>(), "The page, and where the next one begins")
}

fn watch() -> Operation {
    KEYS.operation(
        "get /v1/watch",
        Keys::Watch,
        "watchKeys",
        "Keys as they change: events, or one answer with `wait`",
    )
    .asks([
        query("prefix", text(), "Keys that begin with this; all keys if it is empty"),
        query("prefix_b64", matching(api::BASE64), "The same, in base64"),
        query("key", text(), "One key, instead of a prefix"),
        query("key_b64", matching(api::BASE64), "The same, in base64"),
        query("after", text(), "The cursor from which to go on, or `now`; else the state comes first"),
        header("Last-Event-ID", text(), "The cursor of the last event, in place of `after`"),
        query("keys_only", flag(), "Leave values out"),
        query("wait", matching(api::DURATION), "Give one answer, at the latest after this time"),
    ])
    .gives(
        200,
        [("text/event-stream", text()), (JSON, schema_of::<api::watch::KeyChanges>())],
        "Server-sent events reset, put, delete, live and progress, whose data are as in `changes`; or with `wait` \
         one answer",
    )
    .fails([409])
}

fn registers() -> Vec<Operation> {
    vec![
        REGISTERS
            .operation(
                "get /v1/atomics/{id}",
                Registers::Get,
                "getRegister",
                "A register; 0 if it was never written",
            )
            .asks([stale()])
            .gives_json(schema_of::<api::atomics::Register>(), "What it holds")
            .fails([409]),
        REGISTERS
            .operation(
                "post /v1/atomics/{id}/exchange",
                Registers::Exchange,
                "exchangeRegister",
                "Stores a number",
            )
            .takes_json(schema_of::<api::atomics::ExchangeRequest>())
            .gives_json(schema_of::<api::atomics::Exchanged>(), "What it held and holds")
            .fails([409]),
        REGISTERS
            .operation(
                "post /v1/atomics/{id}/compare-exchange",
                Registers::CompareExchange,
                "compareExchangeRegister",
                "Stores a number if the register holds another",
            )
            .takes_json(schema_of::<api::atomics::CompareExchangeRequest>())
            .gives_json(schema_of::<api::atomics::Exchanged>(), "What it held and holds")
            .fails([409]),
    ]
}

fn transactions() -> Operation {
    TRANSACTIONS
        .operation(
            "post /v1/transactions",
            Transactions::Execute,
            "executeTransaction",
            "Operations on several keys of one hash slot, all or none, by the state of keys",
        )
        .takes_json(schema_of::<api::transactions::TransactionRequest>())
        .gives_json(schema_of::<api::transactions::TransactionAnswer<'static>>(), "Which branch happened")
        .fails([409])
}
