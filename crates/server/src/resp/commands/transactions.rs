//! Transactions: `MULTI`, `EXEC`, `WATCH`.

use super::super::frame::CommandArguments;
use super::super::session::Session;
use super::Result;

/// `MULTI`
pub fn multi(session: &mut Session, _: CommandArguments<'_>) -> Result {
    session.begin_multi()
}

/// `EXEC`: one log entry, or nothing.
pub fn exec(session: &mut Session, _: CommandArguments<'_>) -> Result {
    session.exec()
}

/// `DISCARD`
pub fn discard(session: &mut Session, _: CommandArguments<'_>) -> Result {
    session.discard()
}

/// `WATCH key [key …]`
pub fn watch(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let keys: Vec<&[u8]> = arguments.from(1).collect();
    session.watch(keys.into_iter())
}

/// `UNWATCH`
pub fn unwatch(session: &mut Session, _: CommandArguments<'_>) -> Result {
    session.unwatch()
}
