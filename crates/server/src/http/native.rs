//! `/v1/keys/{key}`: a key as a resource whose entity tag is its version.
//!
//! Owns the meaning of methods and statuses here. The key is the rest of the path, any bytes. The
//! body is the value, any bytes; an empty body is an empty value.

use bytes::Bytes;
use hyper::StatusCode;
use tidelock_core::command::{Expiry, Operation, Set, SetCondition, StoredValue};
use tidelock_core::limits;
use tidelock_core::types::Version;

use super::body::BodyLimit;
use super::conditions::{self, ReadConditions, Verdict};
use super::problem::Problem;
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::{list, ttl, uri, watch};
use crate::requests::{self, Written};
use crate::store::Store;

/// Operations on keys, and lists of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Get,
    Put,
    Delete,
    List,
    Watch,
}

pub(super) async fn answer<S: Store>(
    call: Call<'_, S>,
    operation: Keys,
    [raw_key, _]: Arguments<'_>,
) -> Result<Response, Problem> {
    match operation {
        Keys::Get => get(call, uri::key(raw_key)?).await,
        Keys::Put => put(call, uri::key(raw_key)?).await,
        Keys::Delete => delete(call, uri::key(raw_key)?).await,
        Keys::List => list::answer(call).await,
        Keys::Watch => watch::answer(call).await,
    }
}

async fn get<S: Store>(mut call: Call<'_, S>, key: Bytes) -> Result<Response, Problem> {
    let conditions = ReadConditions::of(call.fields())?;
    let consistency = call.parameters().consistency()?;
    match call.get(key.clone(), consistency).await? {
        Some(StoredValue { version, value, expires, .. }) => match conditions.judge(version) {
            Verdict::Proceed => {
                let response = response::with_etag(response::octets(value), version);
                let now = ttl::leader_time(call.store(), call.context.clock, &key);
                Ok(ttl::with_ttl(response, expires.map(|expires| ttl::remaining_ms(expires, now))))
            }
            Verdict::NotModified => {
                Ok(response::with_etag(response::empty(StatusCode::NOT_MODIFIED), version))
            }
            Verdict::Failed => Err(Problem::condition_failed(version)),
        },
        None => match conditions.judge(Version::ABSENT) {
            Verdict::Failed => Err(Problem::condition_failed(Version::ABSENT)),
            Verdict::Proceed | Verdict::NotModified => Err(Problem::key_not_found()),
        },
    }
}

async fn put<S: Store>(mut call: Call<'_, S>, key: Bytes) -> Result<Response, Problem> {
    let condition = conditions::of_write(call.fields())?;
    let ttl_ms = ttl::of_write(call.parameters())?;
    let value = read_value(&mut call).await?;
    let put = match ttl_ms {
        None => Operation::Put { key: &key, value: &value, condition },
        Some(ttl_ms) => Operation::Set(Set {
            key: &key,
            value: &value,
            condition: SetCondition::Version(condition),
            expiry: Expiry::After(ttl_ms),
            previous: false,
        }),
    };
    let request = requests::store(&put);
    // The request holds a copy.
    drop(value);
    let asked = call.context.clock.now();
    let Written { version, created } = call.ask(request).await??;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let response = response::with_etag(response::empty(status), version);
    // Counted from the request: the key lives at least as long as the answer says.
    let answered = call.context.clock.now();
    Ok(ttl::with_ttl(
        response,
        ttl_ms.map(|ttl_ms| ttl_ms.saturating_sub(ttl::remaining_ms(answered, asked))),
    ))
}

async fn delete<S: Store>(call: Call<'_, S>, key: Bytes) -> Result<Response, Problem> {
    let condition = conditions::of_write(call.fields())?;
    let existed = call.ask(requests::delete(&key, condition)).await??;
    if existed { Ok(response::empty(StatusCode::NO_CONTENT)) } else { Err(Problem::key_not_found()) }
}

/// Reads a body that is the value.
pub(super) async fn read_value<S: Store>(call: &mut Call<'_, S>) -> Result<Bytes, Problem> {
    let limit = limits::VALUE_BYTES_MAX.min(call.context.options.body_bytes_max);
    call.read_body(BodyLimit::Value(limit)).await
}
