//! `/v1/keys/{key}`: a key as a resource whose entity tag is its version.
//!
//! Owns the meaning of methods and statuses here. The key is the rest of the path, any bytes. The
//! body is the value, any bytes; an empty body is an empty value.

use bytes::Bytes;
use hyper::StatusCode;
use tidelock_core::command::{Expiry, LeaseId, Operation, Set, SetCondition, StoredValue};
use tidelock_core::limits;
use tidelock_core::slots::slot_of;
use tidelock_core::types::Version;

use super::body::BodyLimit;
use super::conditions::{self, ReadConditions, Verdict};
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::{leases, list, ttl, uri, watch};
use crate::requests::{self, Fence, Written};
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
        Keys::Get => get(call, raw_key).await,
        Keys::Put => put(call, uri::key(raw_key)?).await,
        Keys::Delete => delete(call, uri::key(raw_key)?).await,
        Keys::List => list::answer(call).await,
        Keys::Watch => watch::answer(call).await,
    }
}

async fn get<S: Store>(mut call: Call<'_, S>, raw_key: &str) -> Result<Response, Problem> {
    let key = uri::key(raw_key)?;
    let conditions = ReadConditions::of(call.fields())?;
    let consistency = call.parameters().consistency()?;
    match call.get(key, consistency).await? {
        Some(StoredValue { version, value, expires, lease }) => match conditions.judge(version) {
            Verdict::Proceed => {
                let response = response::with_etag(response::octets(value), version);
                let response = leases::with_lease(response, lease.as_deref());
                let Some(expires) = expires else { return Ok(response) };
                // Decoded again: few keys expire, and a copy costs every read an allocation.
                let now = ttl::leader_time(call.store(), call.context.clock, &uri::key(raw_key)?);
                Ok(ttl::with_ttl(response, Some(ttl::remaining_ms(expires, now))))
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
    let (condition, fence) = (conditions::of_write(call.fields())?, conditions::fence(call.fields())?);
    check_fence_slot(fence.as_ref(), &key)?;
    let ttl_ms = ttl::of_write(call.parameters())?;
    let lease = lease_of_write(&call, &key, ttl_ms)?;
    let value = read_value(&mut call).await?;
    let put = match (ttl_ms, &lease) {
        (None, None) => Operation::Put { key: &key, value: &value, condition },
        (None, Some(lease)) => Operation::PutBound { key: &key, value: &value, condition, lease },
        (Some(ttl_ms), _) => Operation::Set(Set {
            key: &key,
            value: &value,
            condition: SetCondition::Version(condition),
            expiry: Expiry::After(ttl_ms),
            previous: false,
        }),
    };
    let request = requests::store(&put, fence);
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
    let (condition, fence) = (conditions::of_write(call.fields())?, conditions::fence(call.fields())?);
    check_fence_slot(fence.as_ref(), &key)?;
    let existed = call.ask(requests::delete(&key, condition, fence)).await??;
    if existed { Ok(response::empty(StatusCode::NO_CONTENT)) } else { Err(Problem::key_not_found()) }
}

/// The text of the lease to which a write binds the key, if there is one.
fn lease_of_write<S: Store>(
    call: &Call<'_, S>,
    key: &[u8],
    ttl_ms: Option<u64>,
) -> Result<Option<Vec<u8>>, Problem> {
    let Some(text) = call.parameters().get("lease")? else { return Ok(None) };
    if ttl_ms.is_some() {
        return Err(Problem::invalid("give either ttl or lease: a lease decides when its keys end"));
    }
    let text = text.into_owned();
    let lease = LeaseId::parse(&text).ok_or_else(|| leases::malformed_id(&text))?;
    leases::check_slot(&lease, key)?;
    Ok(Some(text))
}

/// Refuses the fence of a lock that is in another slot than the key, because they may be in
/// different shards.
fn check_fence_slot(fence: Option<&Fence>, key: &[u8]) -> Result<(), Problem> {
    match fence {
        Some(fence) if slot_of(&fence.lock) != slot_of(key) => Err(Problem::new(
            ProblemKind::CrossShard,
            "a lock guards only keys of its slot: give both the same tag in braces, or the keys the name of the \
             lock as their tag; nothing was done",
        )),
        _ => Ok(()),
    }
}

/// Reads a body that is the value.
pub(super) async fn read_value<S: Store>(call: &mut Call<'_, S>) -> Result<Bytes, Problem> {
    let limit = limits::VALUE_BYTES_MAX.min(call.context.options.body_bytes_max);
    call.read_body(BodyLimit::Value(limit)).await
}
