//! When keys expire: `EXPIRE`, `TTL`, `PERSIST` and their relatives.
//!
//! A relative time becomes an absolute one here, by this node's clock.

use tidelock_core::command::{ExpiryCondition, Operation};
use tidelock_core::types::UnixMillis;

use super::super::frame::Arguments;
use super::super::session::{Action, Failure, Session};
use super::super::slots::Render;
use super::{integer, is};

type Result<T = Action> = std::result::Result<T, Failure>;

/// `EXPIRE key seconds [NX|XX|GT|LT]`
pub fn expire(session: &mut Session, arguments: Arguments<'_>) -> Result {
    let now = session.context.clock.now();
    change(session, arguments, (1_000, now, "expire"))
}

/// `PEXPIRE key milliseconds [NX|XX|GT|LT]`
pub fn pexpire(session: &mut Session, arguments: Arguments<'_>) -> Result {
    let now = session.context.clock.now();
    change(session, arguments, (1, now, "pexpire"))
}

/// `EXPIREAT key unix-seconds [NX|XX|GT|LT]`
pub fn expireat(session: &mut Session, arguments: Arguments<'_>) -> Result {
    change(session, arguments, (1_000, UnixMillis(0), "expireat"))
}

/// `PEXPIREAT key unix-milliseconds [NX|XX|GT|LT]`
pub fn pexpireat(session: &mut Session, arguments: Arguments<'_>) -> Result {
    change(session, arguments, (1, UnixMillis(0), "pexpireat"))
}

fn change(
    session: &mut Session,
    arguments: Arguments<'_>,
    (unit_ms, begin, command): (i64, UnixMillis, &str),
) -> Result {
    let end =
        integer(&arguments[2])?.checked_mul(unit_ms).and_then(|millis| millis.checked_add(begin.0 as i64));
    let end = end.ok_or_else(|| Failure::from(format!("ERR invalid expire time in '{command}' command")))?;
    let condition = condition(arguments)?;
    // What has passed by our clock has passed: the key goes at once, and not when the leader next looks at its own.
    let has_passed = end <= session.context.clock.now().0 as i64;
    let at = Some(UnixMillis(if has_passed { 0 } else { end as u64 }));
    session.one(&Operation::Expire { key: &arguments[1], at, condition }, Render::Changed)
}

fn condition(arguments: Arguments<'_>) -> Result<ExpiryCondition> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in arguments.from(3) {
        match option {
            _ if is(option, "nx") => nx = true,
            _ if is(option, "xx") => xx = true,
            _ if is(option, "gt") => gt = true,
            _ if is(option, "lt") => lt = true,
            _ => {
                let text = format!("ERR Unsupported option {}", String::from_utf8_lossy(option));
                return Err(text.into());
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    match (nx, xx, gt, lt) {
        (_, _, true, true) => Err("ERR GT and LT options at the same time are not compatible".into()),
        (true, ..) => Ok(ExpiryCondition::Never),
        (_, false, false, false) => Ok(ExpiryCondition::Always),
        (_, true, false, false) => Ok(ExpiryCondition::Some),
        (_, false, true, _) => Ok(ExpiryCondition::Later),
        (_, false, _, true) => Ok(ExpiryCondition::Earlier),
        (_, true, true, _) => Ok(ExpiryCondition::SomeLater),
        (_, true, _, true) => Ok(ExpiryCondition::SomeEarlier),
    }
}

/// `TTL key`
pub fn ttl(session: &mut Session, arguments: Arguments<'_>) -> Result {
    look(session, arguments, (false, false))
}

/// `PTTL key`
pub fn pttl(session: &mut Session, arguments: Arguments<'_>) -> Result {
    look(session, arguments, (true, false))
}

/// `EXPIRETIME key`
pub fn expiretime(session: &mut Session, arguments: Arguments<'_>) -> Result {
    look(session, arguments, (false, true))
}

/// `PEXPIRETIME key`
pub fn pexpiretime(session: &mut Session, arguments: Arguments<'_>) -> Result {
    look(session, arguments, (true, true))
}

fn look(session: &mut Session, arguments: Arguments<'_>, (millis, absolute): (bool, bool)) -> Result {
    session.one(&Operation::Describe { key: &arguments[1] }, Render::Expiry { millis, absolute })
}

/// `PERSIST key`
pub fn persist(session: &mut Session, arguments: Arguments<'_>) -> Result {
    let persist = Operation::Expire { key: &arguments[1], at: None, condition: ExpiryCondition::Some };
    session.one(&persist, Render::Changed)
}
