//! Numbers in values: `INCR` and related commands.

use tidelock_core::command::Operation;
use tidelock_core::decimal::{Decimal, DecimalError};

use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::replies::{DECIMAL_OVERFLOW, Render};
use super::{Result, integer};

/// `INCR key`
pub fn incr<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    add(executor, arguments, 1)
}

/// `DECR key`
pub fn decr<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    add(executor, arguments, -1)
}

/// `INCRBY key number`
pub fn incrby<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let delta = integer(&arguments[2])?;
    add(executor, arguments, delta)
}

/// `DECRBY key number`
pub fn decrby<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let delta = integer(&arguments[2])?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(executor, arguments, delta)
}

/// `INCRBYFLOAT key number`
pub fn incrbyfloat<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let delta = Decimal::parse(&arguments[2]).map_err(|error| match error {
        DecimalError::NotANumber => "ERR value is not a valid float",
        DecimalError::TooLarge => DECIMAL_OVERFLOW,
    })?;
    executor.one(&Operation::AddDecimal { key: &arguments[1], delta }, Render::Decimal)
}

fn add<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>, delta: i64) -> Result<E::Output> {
    executor.one(&Operation::Add { key: &arguments[1], delta }, Render::Number)
}
