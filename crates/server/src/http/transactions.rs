//! `POST /v1/transactions`: comparisons and two branches of operations, as one entry of a shard's
//! log.
//!
//! Owns the translation between the core and `tidelock_api::transactions`, and naming the part of
//! the body that is refused. The core decides which branch happens.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use tidelock_api::transactions::{
    Comparison, DeleteResult, GetResult, Key, Operation, OperationResult, Put, PutResult, RefusedResult,
    TransactionAnswer, TransactionRequest,
};
use tidelock_core::command::{
    self as core, Condition, ConditionalTransaction, ExpectedState, Expiry, LeaseId, OperationReply,
    OperationsBuilder, Set, SetCondition,
};
use tidelock_core::limits;
use tidelock_core::slots::{hash_tag, slot_of};
use tidelock_core::types::{UnixMillis, Version};

use super::body::BodyLimit;
use super::membership::denied;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use super::{json, leases, ttl, uri};
use crate::requests::{self, Branched, NoAnswer, NotTransacted};
use crate::store::Store;

/// Operations on several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transactions {
    Execute,
}

/// Longest part of a key in a message that is shown.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// Most keys that a refusal names.
const NAMED_KEYS_MAX: usize = 8;

pub(super) async fn answer<S: Store>(
    mut call: Call<'_, S>,
    Transactions::Execute: Transactions,
) -> Result<Response, Problem> {
    let body = call.read_body(BodyLimit::Form(call.context.options.body_bytes_max)).await?;
    // Besides the body, its parts exist parsed and encoded.
    call.reserve(2 * body.len()).await?;
    let transaction = parse(&body)?;
    drop(body);
    check_slot(&transaction)?;
    let operations = transaction.comparisons.len() + transaction.operations_max();
    call.charge_operations(operations);
    call.reserve(reply_bytes_max(&transaction)).await?;
    let Branched { succeeded, replies } =
        call.ask(requests::transact(transaction.clone())).await?.map_err(not_transacted)?;
    let mut results = Vec::with_capacity(replies.len());
    for (operation, reply) in transaction.branch(succeeded).iter().zip(replies.iter()) {
        let key = operation.key();
        let now = || ttl::leader_time(call.store(), call.context.clock, key);
        results.push(result(&operation, &reply, now).ok_or_else(NoAnswer::mismatched)?);
    }
    let answer = TransactionAnswer { succeeded, results };
    Ok(response::json(json::encode(&answer)))
}

fn not_transacted(reason: NotTransacted) -> Problem {
    match reason {
        NotTransacted::IdReused => Problem::new(
            ProblemKind::IdReused,
            "another transaction with keys of this slot has this id, at most a day ago; nothing was done",
        ),
        NotTransacted::Denied(denial) => denied(denial),
    }
}

/// Bytes of the values that the transaction may read, as received and as encoded.
fn reply_bytes_max(transaction: &ConditionalTransaction) -> usize {
    let gets = |succeeded| {
        let operations = transaction.branch(succeeded).iter();
        operations.filter(|operation| operation.is_read()).count()
    };
    2 * (gets(true).max(gets(false)) * limits::VALUE_BYTES_MAX).min(limits::REPLIES_BYTES_CLOSE)
}

/// The result of an operation; `None` if the reply answers another one.
fn result<'a>(
    operation: &core::Operation<'a>,
    reply: &OperationReply<'a>,
    now: impl FnOnce() -> UnixMillis,
) -> Option<OperationResult<'a>> {
    let (key, key_b64) = json::text_or_base64(operation.key());
    Some(match *reply {
        OperationReply::Absent if !operation.is_read() => {
            OperationResult::Delete(DeleteResult { key, key_b64, deleted: false })
        }
        OperationReply::Written { version, created } => {
            OperationResult::Put(PutResult { key, key_b64, ver: version.0, created })
        }
        OperationReply::Deleted { .. } => {
            OperationResult::Delete(DeleteResult { key, key_b64, deleted: true })
        }
        OperationReply::Value { version, expires, value } => {
            let (val, val_b64) = json::text_or_base64(value);
            let ttl_ms = expires.map(|expires| ttl::remaining_ms(expires, now()));
            let ver = Some(version.0);
            OperationResult::Get(GetResult { key, key_b64, ver, ttl_ms, val, val_b64, omitted: false })
        }
        OperationReply::Absent => {
            OperationResult::Get(GetResult { key, key_b64, ver: Some(0), ..GetResult::default() })
        }
        OperationReply::Rejected(core::Rejection::RepliesTooLong) => {
            OperationResult::Get(GetResult { key, key_b64, omitted: true, ..GetResult::default() })
        }
        OperationReply::Rejected(rejection) => {
            let problem = Problem::rejected(rejection).name().into();
            OperationResult::Refused(RefusedResult { key, key_b64, problem })
        }
        _ => return None,
    })
}

/// Parses the body of a request.
pub(super) fn parse(body: &[u8]) -> Result<ConditionalTransaction, Problem> {
    let TransactionRequest { comparisons, then, otherwise, id } =
        json::parse_object(body, "a transaction", "`if`, `then` and `else`")?;
    for (list, length) in [("if", comparisons.len()), ("then", then.len()), ("else", otherwise.len())] {
        if length > limits::BRANCH_OPERATIONS_MAX {
            let max = limits::BRANCH_OPERATIONS_MAX;
            return Err(Problem::invalid(format!("`{list}` has more than {max} items; nothing was done")));
        }
    }
    if comparisons.is_empty() && then.is_empty() && otherwise.is_empty() {
        return Err(Problem::invalid("a transaction needs a comparison or an operation"));
    }
    let comparisons =
        comparisons.into_iter().enumerate().map(|(index, item)| comparison(item, Part { list: "if", index }));
    let transaction = ConditionalTransaction {
        comparisons: comparisons.collect::<Result<_, Problem>>()?,
        then: operations(then, "then")?,
        otherwise: operations(otherwise, "else")?,
        id: None,
    };
    match id {
        None => Ok(transaction),
        Some(id) if (1..=limits::TRANSACTION_ID_BYTES_MAX).contains(&id.len()) => {
            Ok(transaction.identified(id.into()))
        }
        Some(_) => {
            let max = limits::TRANSACTION_ID_BYTES_MAX;
            Err(Problem::invalid(format!("`id` must have 1 to {max} bytes; nothing was done")))
        }
    }
}

/// Where in the body something is: `then[2]`.
#[derive(Clone, Copy)]
struct Part {
    list: &'static str,
    index: usize,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}[{}]`", self.list, self.index)
    }
}

impl Part {
    fn invalid(self, what: impl fmt::Display) -> Problem {
        Problem::invalid(format!("{self}: {what}; nothing was done"))
    }

    /// The bytes of a member that is given as text, or in base64 under another name.
    fn bytes(
        self,
        name: &str,
        (text, base64): (Option<String>, Option<String>),
    ) -> Result<Option<Bytes>, Problem> {
        json::bytes_of(name, (text, base64)).map_err(|reason| self.invalid(reason))
    }

    fn key(self, key: (Option<String>, Option<String>)) -> Result<Bytes, Problem> {
        let key = self.bytes("key", key)?.ok_or_else(|| self.invalid("`key` or `key_b64` is missing"))?;
        if key.is_empty() {
            return Err(self.invalid("the key is empty"));
        }
        uri::check_key_length(&key, &format!("the key of {self}"))?;
        Ok(key)
    }

    fn value(self, value: (Option<String>, Option<String>)) -> Result<Option<Bytes>, Problem> {
        let value = self.bytes("val", value)?;
        if value.as_ref().is_some_and(|value| value.len() > limits::VALUE_BYTES_MAX) {
            let what = format!("the value of {self}");
            return Err(Problem::over_limit(ProblemKind::ValueTooLarge, &what, limits::VALUE_BYTES_MAX));
        }
        Ok(value)
    }
}

fn comparison(comparison: Comparison, part: Part) -> Result<core::Comparison, Problem> {
    let Comparison { key, key_b64, ver, val, val_b64, exists, fence } = comparison;
    let key = part.key((key, key_b64))?;
    let expected = match (ver, part.value((val, val_b64))?, exists, fence) {
        (Some(version), None, None, None) => ExpectedState::Version(Version(version)),
        (None, Some(value), None, None) => ExpectedState::Value(value),
        (None, None, Some(true), None) => ExpectedState::Exists,
        (None, None, Some(false), None) => ExpectedState::Version(Version::ABSENT),
        (None, None, None, Some(fence)) => ExpectedState::Fence(Version(fence)),
        _ => return Err(part.invalid("give exactly one of `ver`, `val`, `val_b64`, `exists` and `fence`")),
    };
    Ok(core::Comparison { key, expected })
}

fn operations(operations: Vec<Operation>, list: &'static str) -> Result<core::Operations, Problem> {
    let mut builder = OperationsBuilder::default();
    for (index, operation) in operations.into_iter().enumerate() {
        push(operation, Part { list, index }, &mut builder)?;
    }
    Ok(builder.finish())
}

fn push(operation: Operation, part: Part, out: &mut OperationsBuilder) -> Result<(), Problem> {
    match operation {
        Operation::Get(Key { key, key_b64 }) => {
            out.push(&core::Operation::Get { key: &part.key((key, key_b64))? });
        }
        Operation::Delete(Key { key, key_b64 }) => {
            let key = &part.key((key, key_b64))?;
            out.push(&core::Operation::Delete { key, condition: Condition::Always });
        }
        Operation::Put(Put { key, key_b64, val, val_b64, ttl, lease }) => {
            let key = &part.key((key, key_b64))?;
            let value = part.value((val, val_b64))?;
            let value = &value.ok_or_else(|| part.invalid("`val` or `val_b64` is missing"))?;
            out.push(&match (ttl, &lease) {
                (Some(_), Some(_)) => return Err(part.invalid("give either `ttl` or `lease`, not both")),
                (None, None) => core::Operation::Put { key, value, condition: Condition::Always },
                (None, Some(lease)) => {
                    check_lease(lease, key, part)?;
                    let (condition, lease) = (Condition::Always, lease.as_bytes());
                    core::Operation::PutBound { key, value, condition, lease }
                }
                (Some(ttl), None) => {
                    let after_ms = ttl::parse(ttl.as_bytes()).ok_or_else(|| part.invalid(ttl::NOTATION))?;
                    let condition = SetCondition::Version(Condition::Always);
                    let expiry = Expiry::After(after_ms);
                    core::Operation::Set(Set { key, value, condition, expiry, previous: false })
                }
            });
        }
    }
    Ok(())
}

/// Refuses what is not the id of a lease of the key's slot.
fn check_lease(lease: &str, key: &[u8], part: Part) -> Result<(), Problem> {
    match LeaseId::parse(lease.as_bytes()) {
        None => Err(part.invalid(leases::not_an_id(lease.as_bytes()))),
        Some(lease) => leases::check_slot(&lease, key),
    }
}

/// Refuses keys of several slots, and names a key of each: shards are divided between slots, so
/// such a transaction would fail sooner or later.
fn check_slot(transaction: &ConditionalTransaction) -> Result<(), Problem> {
    let mut first_keys: BTreeMap<u16, &[u8]> = BTreeMap::new();
    for key in transaction.keys() {
        first_keys.entry(slot_of(key)).or_insert(key);
    }
    if first_keys.len() <= 1 {
        return Ok(());
    }
    let shown = |bytes: &[u8]| {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.escape_debug().to_string(),
            Err(_) => bytes.escape_ascii().to_string(),
        };
        text.chars().take(SHOWN_CHARACTERS_MAX).collect::<String>()
    };
    let named = first_keys.iter().take(NAMED_KEYS_MAX).map(|(slot, key)| match hash_tag(key) {
        Some(tag) => format!("\"{}\" has the tag \"{}\" and is in slot {slot}", shown(key), shown(tag)),
        None => format!("\"{}\" has no tag and is in slot {slot}", shown(key)),
    });
    let mut named = named.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = first_keys.len().checked_sub(NAMED_KEYS_MAX) {
        named.push_str(&format!(", and there are keys of {more} more slots"));
    }
    let detail = format!(
        "the keys of a transaction must be in one slot, by a common tag in braces such as `{{order:7}}state`: \
         {named}; nothing was done"
    );
    Err(Problem::new(ProblemKind::CrossShard, detail))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(body: &Value) -> Problem {
        parse(body.to_string().as_bytes()).expect_err("refused")
    }

    #[test]
    fn limits_are_named_with_the_part_that_exceeds_them() {
        let put =
            |key: usize, value: usize| json!({ "put": { "key": "k".repeat(key), "val": "v".repeat(value) } });
        let fits = json!({ "then": [put(limits::KEY_BYTES_MAX, limits::VALUE_BYTES_MAX)] });
        assert!(parse(fits.to_string().as_bytes()).is_ok());
        let longer_key = refused(&json!({ "else": [put(1, 1), put(limits::KEY_BYTES_MAX + 1, 1)] }));
        let detail = "the key of `else[1]` is longer than 4096 bytes";
        assert_eq!((longer_key.status().as_u16(), longer_key.into_detail().as_ref()), (413, detail));
        let longer_value = refused(&json!({ "then": [put(1, limits::VALUE_BYTES_MAX + 1)] }));
        let detail = "the value of `then[0]` is longer than 1048576 bytes";
        assert_eq!((longer_value.status().as_u16(), longer_value.into_detail().as_ref()), (413, detail));
        for (list, item) in [
            ("if", json!({ "key": "k", "exists": true })),
            ("then", json!({ "get": { "key": "k" } })),
            ("else", json!({ "delete": { "key": "k" } })),
        ] {
            let body = |count| json!({ list: vec![item.clone(); count] });
            assert!(parse(body(1_024).to_string().as_bytes()).is_ok(), "{list}");
            let many = refused(&body(1_025));
            let detail = format!("`{list}` has more than 1024 items; nothing was done");
            assert_eq!((many.status().as_u16(), many.into_detail().as_ref()), (400, &*detail));
        }
    }

    #[test]
    fn an_id_has_a_length() {
        let body =
            |length| json!({ "id": "i".repeat(length), "then": [{ "get": { "key": "k" } }] }).to_string();
        let max = limits::TRANSACTION_ID_BYTES_MAX;
        assert!(parse(body(max).as_bytes()).expect("a transaction").id.is_some());
        let refused = parse(body(max + 1).as_bytes()).expect_err("too long").into_detail();
        assert_eq!(refused, "`id` must have 1 to 64 bytes; nothing was done");
    }

    #[test]
    fn long_names_are_shortened() {
        let detail = refused(&json!({ "x".repeat(10_000): 1 })).into_detail();
        assert!(detail.contains("unknown field `xxx") && detail.len() < 300, "{detail}");
        let long = "x".repeat(4_000);
        let gets = ["{a}", "{b}"].map(|tag| json!({ "get": { "key": format!("{tag}{long}") } }));
        let body = json!({ "then": gets }).to_string();
        let transaction = parse(body.as_bytes()).expect("a transaction");
        let detail = check_slot(&transaction).expect_err("two slots").into_detail();
        assert!(detail.contains("has the tag \"b\"") && detail.len() < 800, "{detail}");
    }

    #[test]
    fn values_that_were_left_out_are_marked() {
        let get = core::Operation::Get { key: b"k" };
        let left_out = OperationReply::Rejected(core::Rejection::RepliesTooLong);
        let result = result(&get, &left_out, || UnixMillis(0)).expect("a result");
        assert_eq!(json!(result), json!({ "get": { "key": "k", "omitted": true } }));
    }
}
