//! Transactions: `MULTI`, `EXEC`, `WATCH`.

use super::super::frame::Arguments;
use super::super::session::{Action, Failure, Session};

type Result<T = Action> = std::result::Result<T, Failure>;

/// `MULTI`
pub fn multi(session: &mut Session, _: Arguments<'_>) -> Result {
    session.begin_multi()
}

/// `EXEC`: one log entry, or nothing.
pub fn exec(session: &mut Session, _: Arguments<'_>) -> Result {
    session.exec()
}

/// `DISCARD`
pub fn discard(session: &mut Session, _: Arguments<'_>) -> Result {
    session.discard()
}

/// `WATCH key [key …]`
pub fn watch(session: &mut Session, arguments: Arguments<'_>) -> Result {
    let keys: Vec<&[u8]> = arguments.from(1).collect();
    session.watch(keys.into_iter())
}

/// `UNWATCH`
pub fn unwatch(session: &mut Session, _: Arguments<'_>) -> Result {
    session.unwatch()
}
