//! Numbers in values: `INCR` and related commands.

use tidelock_core::command::Operation;

use super::super::frame::CommandArguments;
use super::super::replies::Render;
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

fn add(session: &mut Session, arguments: CommandArguments<'_>, delta: i64) -> Result {
    session.one(&Operation::Add { key: &arguments[1], delta }, Render::Number)
}
