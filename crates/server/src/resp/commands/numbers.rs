//! Numbers in values: `INCR` and related commands.

use tidelock_core::command::Operation;
use tidelock_core::decimal::{Decimal, DecimalError};

use super::super::frame::CommandArguments;
use super::super::replies::{DECIMAL_OVERFLOW, Render};
use super::super::session::Session;
use super::{Result, integer};

/// `INCR key`
pub fn incr(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    add(session, arguments, 1)
}

/// `DECR key`
pub fn decr(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    add(session, arguments, -1)
}

/// `INCRBY key number`
pub fn incrby(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let delta = integer(&arguments[2])?;
    add(session, arguments, delta)
}

/// `DECRBY key number`
pub fn decrby(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let delta = integer(&arguments[2])?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(session, arguments, delta)
}

/// `INCRBYFLOAT key number`
pub fn incrbyfloat(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let delta = Decimal::parse(&arguments[2]).map_err(|error| match error {
        DecimalError::NotANumber => "ERR value is not a valid float",
        DecimalError::TooLarge => DECIMAL_OVERFLOW,
    })?;
    session.one(&Operation::AddDecimal { key: &arguments[1], delta }, Render::Decimal)
}

fn add(session: &mut Session, arguments: CommandArguments<'_>, delta: i64) -> Result {
    session.one(&Operation::Add { key: &arguments[1], delta }, Render::Number)
}
