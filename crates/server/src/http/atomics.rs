//! `/v1/atomics/{id}`: registers, which are keys with a decimal 64-bit number.
//!
//! Owns the translation between the core and `tidelock_api::atomics`. A missing register has the
//! value 0. The state machine decides whether a key holds a number, and executes an exchange. The
//! key of a register is its id, so every other interface sees it too.
//!
//! An id may contain slashes. Only in a `POST` is the last segment an operation, so every id can be
//! read.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidelock_api::atomics::{CompareExchangeRequest, ExchangeRequest, Exchanged, Register};
use tidelock_core::command::{Exchange, Operation, Rejection, StoredValue};
use tidelock_core::machine::kv::parse_number;
use tidelock_core::types::Version;

use super::body::BodyLimit;
use super::json;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::uri;
use crate::requests;
use crate::store::Store;

/// Longest body of an exchange, in bytes: two numbers with their names, and room for white space.
const BODY_BYTES_MAX: usize = 4 << 10;

/// Operations on registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registers {
    Get,
    Exchange,
    CompareExchange,
}

pub(super) async fn answer<S: Store>(
    call: Call<'_, S>,
    operation: Registers,
    [raw_id, _]: Arguments<'_>,
) -> Result<Response, Problem> {
    let key = uri::key(raw_id)?;
    match operation {
        Registers::Get => get(call, key).await,
        Registers::Exchange => exchange(call, key).await,
        Registers::CompareExchange => compare_exchange(call, key).await,
    }
}

async fn get<S: Store>(mut call: Call<'_, S>, key: Bytes) -> Result<Response, Problem> {
    let consistency = call.parameters().consistency()?;
    let (value, version) = match call.get(key.clone(), consistency).await? {
        Some(StoredValue { version, value, .. }) => (parse_number(&value).ok_or_else(not_a_number)?, version),
        None => (0, Version::ABSENT),
    };
    let (id, id_b64) = json::text_or_base64(&key);
    Ok(response::json(encode(&Register { id, id_b64, value, ver: version.0 })))
}

async fn exchange<S: Store>(mut call: Call<'_, S>, key: Bytes) -> Result<Response, Problem> {
    let ExchangeRequest { value } = read_body(&mut call, r#"{"value":1}"#).await?;
    let exchange = Operation::Exchange { key: &key, value };
    exchanged(call.ask(requests::exchange(&exchange)).await?, &key, value)
}

async fn compare_exchange<S: Store>(mut call: Call<'_, S>, key: Bytes) -> Result<Response, Problem> {
    let CompareExchangeRequest { expected_value: expected, new_value: new } =
        read_body(&mut call, r#"{"expected_value":1,"new_value":2}"#).await?;
    let exchange = Operation::CompareExchange { key: &key, expected, new };
    exchanged(call.ask(requests::exchange(&exchange)).await?, &key, new)
}

/// `new_value` is the register's value afterwards, which is the old one if nothing was exchanged.
fn exchanged(answer: Result<Exchange, Rejection>, key: &[u8], new: i64) -> Result<Response, Problem> {
    let Exchange { swapped, old, .. } = answer.map_err(|rejection| match rejection {
        Rejection::LockHeld => Problem::rejected(rejection),
        _ => not_a_number(),
    })?;
    let (id, id_b64) = json::text_or_base64(key);
    let new_value = if swapped { new } else { old };
    Ok(response::json(encode(&Exchanged { success: swapped, id, id_b64, old_value: old, new_value })))
}

fn encode(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).expect("invariant: numbers, texts and flags are JSON")
}

async fn read_body<S: Store, T: DeserializeOwned>(
    call: &mut Call<'_, S>,
    example: &str,
) -> Result<T, Problem> {
    let limit = BODY_BYTES_MAX.min(call.context.options.body_bytes_max);
    let body = call.read_body(BodyLimit::Form(limit)).await?;
    serde_json::from_slice(&body).map_err(|_| {
        Problem::invalid(format!("the body must be JSON such as {example}, with whole numbers of 64 bits"))
    })
}

fn not_a_number() -> Problem {
    Problem::new(
        ProblemKind::NotANumber,
        "the key holds something else than a whole decimal number of 64 bits; nothing was changed",
    )
}
