//! Expiry of keys: `EXPIRE`, `TTL`, `PERSIST` and related commands.
//!
//! The leader of the key's shard evaluates relative times, and decides by its own clock which
//! absolute times have passed.

use tidelock_core::command::{ExpiryCondition, Operation};
use tidelock_core::types::UnixMillis;

use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::replies::{ExpiryForm, Render};
use super::super::session::Failure;
use super::{Result, integer, is};

/// `EXPIRE key seconds [NX|XX|GT|LT]`
pub fn expire<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    change(executor, arguments, ExpireCommand { name: "expire", unit_ms: 1_000, since: Since::Now })
}

/// `PEXPIRE key milliseconds [NX|XX|GT|LT]`
pub fn pexpire<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    change(executor, arguments, ExpireCommand { name: "pexpire", unit_ms: 1, since: Since::Now })
}

/// `EXPIREAT key unix-seconds [NX|XX|GT|LT]`
pub fn expireat<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    change(executor, arguments, ExpireCommand { name: "expireat", unit_ms: 1_000, since: Since::Epoch })
}

/// `PEXPIREAT key unix-milliseconds [NX|XX|GT|LT]`
pub fn pexpireat<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    change(executor, arguments, ExpireCommand { name: "pexpireat", unit_ms: 1, since: Since::Epoch })
}

/// The origin of a time.
#[derive(Clone, Copy)]
enum Since {
    /// When the leader proposes the command.
    Now,
    /// 1970.
    Epoch,
}

/// A command that sets a key's expiry.
#[derive(Clone, Copy)]
struct ExpireCommand {
    name: &'static str,
    /// The unit of its time, in milliseconds.
    unit_ms: i64,
    since: Since,
}

fn change<E: Executor>(
    executor: &mut E,
    arguments: CommandArguments<'_>,
    command: ExpireCommand,
) -> Result<E::Output> {
    let ExpireCommand { name, unit_ms, since } = command;
    let now_ms = match since {
        Since::Now => executor.now().0 as i64,
        Since::Epoch => 0,
    };
    let millis = integer(&arguments[2])?.checked_mul(unit_ms);
    // A time to live that ends beyond 64 bits is an error, as in Redis.
    let millis = millis.filter(|millis| millis.checked_add(now_ms).is_some());
    let millis =
        millis.ok_or_else(|| Failure::from(format!("ERR invalid expire time in '{name}' command")))?;
    let condition = condition(arguments)?;
    let key = &arguments[1];
    let operation = match (u64::try_from(millis), since) {
        (Ok(after_ms @ 1..), Since::Now) => Operation::ExpireAfter { key, after_ms, condition },
        (Ok(at @ 1..), Since::Epoch) => Operation::Expire { key, at: Some(UnixMillis(at)), condition },
        // It has passed by any clock.
        _ => Operation::Expire { key, at: Some(UnixMillis(0)), condition },
    };
    executor.one(&operation, Render::Changed)
}

fn condition(arguments: CommandArguments<'_>) -> Result<ExpiryCondition> {
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
pub fn ttl<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    look(executor, arguments, ExpiryForm::SecondsLeft)
}

/// `PTTL key`
pub fn pttl<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    look(executor, arguments, ExpiryForm::MillisLeft)
}

/// `EXPIRETIME key`
pub fn expiretime<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    look(executor, arguments, ExpiryForm::UnixSeconds)
}

/// `PEXPIRETIME key`
pub fn pexpiretime<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    look(executor, arguments, ExpiryForm::UnixMillis)
}

fn look<E: Executor>(
    executor: &mut E,
    arguments: CommandArguments<'_>,
    form: ExpiryForm,
) -> Result<E::Output> {
    let key = &arguments[1];
    let ahead_ms = executor.leader_ahead_ms(key);
    executor.one(&Operation::Describe { key }, Render::Expiry { form, ahead_ms })
}

/// `PERSIST key`
pub fn persist<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let persist = Operation::Expire { key: &arguments[1], at: None, condition: ExpiryCondition::Some };
    executor.one(&persist, Render::Changed)
}
