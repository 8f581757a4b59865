//! The kv1 dialect, on any other path at the root: optimistic locking with versions in JSON.
//!
//! Owns its texts and its JSON, which are those of the original. The key is the decoded path with
//! its leading `/`. A put always has a condition: without `ver` it creates and never overwrites.

use bytes::Bytes;
use hyper::StatusCode;
use tidelock_core::command::{Condition, Operation, StoredValue};
use tidelock_core::limits;
use tidelock_core::types::Version;

use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::{form, json, route, uri};
use crate::requests::{self, NotWritten, Written};
use crate::store::Store;

const NOT_FOUND: &str = "Not found";
const VERSION_NOT_A_NUMBER: &str = "Version must be uint64";
const VALUE_MISSING: &str =
    "Value missing: give val in the query, in an urlencoded form or in multipart/form-data";

/// Operations of the dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kv1 {
    Get,
    Put,
}

pub(super) async fn answer<S: Store>(
    call: Call<'_, S>,
    operation: Kv1,
    [raw_path, _]: Arguments<'_>,
) -> Result<Response, Problem> {
    match operation {
        Kv1::Get => get(call, key(raw_path)?).await,
        Kv1::Put => put(call, key(raw_path)?).await,
    }
}

fn key(raw_path: &str) -> Result<Bytes, Problem> {
    let key = uri::key(raw_path)?;
    // Checked again after decoding: `/%761/keys` must not reach a key that `/v1/keys` could not
    // name.
    if route::is_reserved(&key) {
        return Err(Problem::no_such_route());
    }
    Ok(key)
}

async fn get<S: Store>(mut call: Call<'_, S>, key: Bytes) -> Result<Response, Problem> {
    let consistency = call.parameters().consistency()?;
    match call.get(key.clone(), consistency).await? {
        Some(StoredValue { version, value, .. }) => Ok(object(&key, version, &value)),
        None => Ok(response::text(StatusCode::NOT_FOUND, NOT_FOUND)),
    }
}

async fn put<S: Store>(mut call: Call<'_, S>, key: Bytes) -> Result<Response, Problem> {
    let fields = form::read(&mut call).await?;
    let given = match fields.ver {
        None => Version::ABSENT,
        Some(digits) => match uri::parse_u64(&digits) {
            Some(version) => Version(version),
            None => return Ok(response::text(StatusCode::BAD_REQUEST, VERSION_NOT_A_NUMBER)),
        },
    };
    let Some(value) = fields.val else {
        return Ok(response::text(StatusCode::BAD_REQUEST, VALUE_MISSING));
    };
    if value.len() > limits::VALUE_BYTES_MAX {
        return Err(Problem::over_limit(ProblemKind::ValueTooLarge, "the value", limits::VALUE_BYTES_MAX));
    }
    let condition = Condition::Version(given);
    let put = Operation::Put { key: &key, value: &value, condition };
    match call.ask(requests::store(&put, None)).await? {
        Ok(Written { version, .. }) => Ok(object(&key, version, &value)),
        Err(NotWritten::ConditionFailed { current }) => {
            let mismatch = format!("Version mismatch ({given} != {current})");
            Ok(response::text(StatusCode::CONFLICT, mismatch))
        }
        Err(reason) => Err(reason.into()),
    }
}

/// `{"key":"/testkey","ver":6,"val":"testvalue"}`.
fn object(key: &[u8], version: Version, value: &[u8]) -> Response {
    let mut out = Vec::with_capacity(key.len() + value.len() + 64);
    out.push(b'{');
    json::push_bytes_member(&mut out, "key", key);
    json::push_number_member(&mut out, "ver", version.0);
    json::push_bytes_member(&mut out, "val", value);
    out.push(b'}');
    response::json(out)
}
