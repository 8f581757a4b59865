//! The parsers of requests as functions of bytes and headers, without a connection.
//!
//! Owns nothing: each function calls the parser that requests use, and returns what it found or the
//! detail of the refusal. Fuzzers and benchmarks call them.

use bytes::Bytes;
use hyper::HeaderMap;
use tidelock_core::command::{Condition, ConditionalTransaction};
use tidelock_core::slots::slot_revisions::SlotRevisions;
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::types::Version;
use uuid::Uuid;

use super::conditions::{self, ReadConditions};
use super::config::parsers as configuration;
use super::fields::Fields;
use super::problem::Problem;
use super::uri::{self, Parameters};
use super::watch::cursor;
use super::{duration, form, negotiate, snapshots, transactions, ttl};

pub use super::conditions::Verdict;
pub use configuration::{
    changes_of, document_of, export_of, namespace_changes, position_of, position_text, search_position_of,
    search_position_text, write_document,
};

/// Why bytes are refused, as the client is told.
pub type Detail = String;

fn detail(problem: Problem) -> Detail {
    problem.into_detail().into_owned()
}

/// The key in the raw rest of a path.
///
/// # Errors
/// When an escape is malformed, or the key is empty or too long.
pub fn key(raw: &str) -> Result<Bytes, Detail> {
    uri::key(raw).map_err(detail)
}

/// The first parameter of this name in a query or an urlencoded form.
///
/// # Errors
/// When an escape up to it is malformed.
pub fn parameter(query: &[u8], name: &str) -> Result<Option<Vec<u8>>, Detail> {
    Ok(Parameters::new(query).get(name).map_err(detail)?.map(|value| value.into_owned()))
}

/// The bytes of a key in a query, given as `name` or as `name_b64`.
///
/// # Errors
/// When they are malformed, too long, or given twice.
pub fn key_parameter(query: &[u8], name: &str) -> Result<Option<Bytes>, Detail> {
    Parameters::new(query).key_bytes(name).map_err(detail)
}

/// The first parameter of a query with a name that is not in `known`.
///
/// # Errors
/// When an escape up to it is malformed.
pub fn unknown_parameter(query: &[u8], known: &[&str]) -> Result<Option<String>, Detail> {
    Parameters::new(query).first_besides(known).map_err(detail)
}

/// The fields `val` and `ver` of an urlencoded form.
///
/// # Errors
/// When an escape is malformed.
pub fn urlencoded_form(body: &[u8]) -> Result<[Option<Bytes>; 2], Detail> {
    form::parse_urlencoded(body).map(|fields| [fields.val, fields.ver]).map_err(detail)
}

/// The fields `val` and `ver` of multipart form data. The future never waits.
///
/// # Errors
/// When the body is malformed.
pub async fn multipart_form(body: Bytes, boundary: &str) -> Result<[Option<Bytes>; 2], Detail> {
    let fields = form::parse_multipart(body, boundary.to_owned()).await.map_err(detail)?;
    Ok([fields.val, fields.ver])
}

/// A duration such as `30s`, in milliseconds.
pub fn duration_ms(text: &[u8]) -> Option<u64> {
    duration::parse_ms(text)
}

/// A time to live such as `30s`, in milliseconds.
pub fn ttl_ms(text: &[u8]) -> Option<u64> {
    ttl::parse(text)
}

/// The condition of a write in `If-Match` and `If-None-Match`.
///
/// # Errors
/// When it is not understood.
pub fn write_condition(headers: &HeaderMap) -> Result<Condition, Detail> {
    conditions::of_write(&Fields::of(headers)).map_err(detail)
}

/// The outcome of the conditions of a read for a key of version `current`.
///
/// # Errors
/// When they are not understood.
pub fn read_verdict(headers: &HeaderMap, current: Version) -> Result<Verdict, Detail> {
    Ok(ReadConditions::of(&Fields::of(headers)).map_err(detail)?.judge(current))
}

/// Name and fence of the lock in `If-Fence`.
///
/// # Errors
/// When the header is malformed.
pub fn fence(headers: &HeaderMap) -> Result<Option<(Bytes, Version)>, Detail> {
    let fence = conditions::fence(&Fields::of(headers)).map_err(detail)?;
    Ok(fence.map(|fence| (fence.lock, fence.number)))
}

/// The media type among `offers`, at least one, that a client prefers by its `Accept`.
pub fn preferred<'a>(headers: &HeaderMap, offers: &[&'a str]) -> &'a str {
    negotiate::choose(headers, offers)
}

/// The transaction in the body of `POST /v1/transactions`.
///
/// # Errors
/// When it is malformed or over a limit.
pub fn transaction(body: &[u8]) -> Result<ConditionalTransaction, Detail> {
    transactions::parse(body).map_err(detail)
}

/// The list of snapshots in a query, `SHARD:INDEX:TERM,…`.
pub fn snapshot_ids(text: &[u8]) -> Option<Vec<SnapshotId>> {
    snapshots::parse_ids(text)
}

/// The position in the cursor of a watch on keys, if it is one of this cluster; otherwise `None` in
/// it. `None` if it is not a cursor.
pub fn watch_position(cluster: Uuid, text: &[u8]) -> Option<Option<SlotRevisions>> {
    Some(match cursor::decode(cluster, text)? {
        cursor::Cursor::Here(position) => Some(position),
        cursor::Cursor::Foreign => None,
    })
}

/// The cursor of a position.
pub fn watch_cursor(cluster: Uuid, position: &SlotRevisions) -> String {
    cursor::encode(cluster, position)
}
