//! Whole values: `GET`, `SET` and related commands.

use tidelock_core::command::{Condition, Expiry, ExpiryCondition, Operation, Set, SetCondition};
use tidelock_core::limits::VALUE_BYTES_MAX;
use tidelock_core::types::{UnixMillis, Version};

use super::super::dispatch::wrong_arity;
use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::replies::{Render, RenderMany, VALUE_TOO_LONG};
use super::super::session::Failure;
use super::{Result, integer, is, syntax};

/// `GET key`
pub fn get<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    executor.one(&Operation::Get { key: &arguments[1] }, Render::Value)
}

/// `SET key value [NX|XX|IFEQ value|IFNE value|IFDEQ hash|IFDNE hash] [GET]
/// [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]`
pub fn set<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let (key, value) = (&arguments[1], &arguments[2]);
    if arguments.len() == 3 {
        // By far the most frequent form.
        return executor.one(&Operation::Put { key, value, condition: Condition::Always }, Render::Ok);
    }
    let options = Options::read(executor, arguments)?;
    let condition = options.condition.unwrap_or(SetCondition::Version(Condition::Always));
    let expiry = options.expiry.unwrap_or(Expiry::Never);
    let set = Set { key, value, condition, expiry, previous: options.previous };
    executor.one(&Operation::Set(set), if options.previous { Render::Previous } else { Render::Ok })
}

/// The options of `SET` after key and value.
#[derive(Default)]
struct Options<'a> {
    condition: Option<SetCondition<'a>>,
    expiry: Option<Expiry>,
    previous: bool,
}

impl<'a> Options<'a> {
    fn read(executor: &impl Executor, arguments: CommandArguments<'a>) -> Result<Options<'a>> {
        let mut options = Options::default();
        let mut rest = arguments.from(3);
        while let Some(option) = rest.next() {
            let mut value = || rest.next().ok_or(Failure::from(super::SYNTAX));
            if is(option, "get") {
                options.previous = true;
            } else if is(option, "nx") {
                options.set_condition(SetCondition::Version(Condition::Version(Version::ABSENT)))?;
            } else if is(option, "xx") {
                options.set_condition(SetCondition::Version(Condition::Exists))?;
            } else if is_value_condition(option) {
                options.set_condition(value_condition(option, value()?)?)?;
            } else if is(option, "keepttl") {
                options.set_expiry(Expiry::Keep)?;
            } else if let Some(expiry) = ExpiryOption::named(option) {
                options.set_expiry(expiry.expiry(executor, value()?, "set")?)?;
            } else {
                return syntax();
            }
        }
        Ok(options)
    }

    fn set_condition(&mut self, condition: SetCondition<'a>) -> Result<()> {
        if self.condition.replace(condition).is_some() { syntax() } else { Ok(()) }
    }

    fn set_expiry(&mut self, expiry: Expiry) -> Result<()> {
        if self.expiry.replace(expiry).is_some() { syntax() } else { Ok(()) }
    }
}

/// The unit and origin of an expiry option.
#[derive(Clone, Copy)]
struct ExpiryOption {
    unit_ms: i64,
    /// Relative to 1970 instead of now.
    absolute: bool,
}

impl ExpiryOption {
    /// The option of this name: `EX`, `PX`, `EXAT` or `PXAT`.
    fn named(option: &[u8]) -> Option<ExpiryOption> {
        let options = [("ex", 1_000, false), ("px", 1, false), ("exat", 1_000, true), ("pxat", 1, true)];
        let (_, unit_ms, absolute) = options.into_iter().find(|(name, ..)| is(option, name))?;
        Some(ExpiryOption { unit_ms, absolute })
    }

    /// The time of expiry. The leader of the key's shard evaluates relative times.
    fn expiry(self, executor: &impl Executor, text: &[u8], command: &str) -> Result<Expiry> {
        let begin = if self.absolute { 0 } else { executor.now().0 as i64 };
        let millis = integer(text)?
            .checked_mul(self.unit_ms)
            .filter(|millis| *millis > 0)
            // A time to live that ends beyond 64 bits is an error, as in Redis.
            .filter(|millis| millis.checked_add(begin).is_some());
        let millis =
            millis.ok_or_else(|| Failure::from(format!("ERR invalid expire time in '{command}' command")))?;
        let millis = millis as u64;
        Ok(if self.absolute { Expiry::At(UnixMillis(millis)) } else { Expiry::After(millis) })
    }
}

fn is_value_condition(option: &[u8]) -> bool {
    ["ifeq", "ifne", "ifdeq", "ifdne"].iter().any(|name| is(option, name))
}

/// The condition that compares the value of a key, or its hash, with `text`.
pub(super) fn value_condition<'a>(option: &[u8], text: &'a [u8]) -> Result<SetCondition<'a>> {
    Ok(match option {
        _ if is(option, "ifeq") => SetCondition::Equals(text),
        _ if is(option, "ifne") => SetCondition::Differs(text),
        _ if is(option, "ifdeq") => SetCondition::HashEquals(hash(text)?),
        _ if is(option, "ifdne") => SetCondition::HashDiffers(hash(text)?),
        _ => return Err("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE".into()),
    })
}

/// Parses the hash of a value, as `DIGEST` returns it.
fn hash(text: &[u8]) -> Result<u64> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.len() == 16 && is_hexadecimal(text));
    let hash = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    hash.ok_or("ERR The digest must be exactly 16 hexadecimal characters".into())
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `SETEX key seconds value`
pub fn setex<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    set_for(executor, arguments, "setex", 1_000)
}

/// `PSETEX key milliseconds value`
pub fn psetex<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    set_for(executor, arguments, "psetex", 1)
}

fn set_for<E: Executor>(
    executor: &mut E,
    arguments: CommandArguments<'_>,
    name: &str,
    unit_ms: i64,
) -> Result<E::Output> {
    let expiry = ExpiryOption { unit_ms, absolute: false }.expiry(executor, &arguments[2], name)?;
    let set = Set {
        key: &arguments[1],
        value: &arguments[3],
        condition: SetCondition::Version(Condition::Always),
        expiry,
        previous: false,
    };
    executor.one(&Operation::Set(set), Render::Ok)
}

/// `SETNX key value`
pub fn setnx<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let condition = Condition::Version(Version::ABSENT);
    executor.one(&Operation::Put { key: &arguments[1], value: &arguments[2], condition }, Render::Changed)
}

/// `GETSET key value`
pub fn getset<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let set = Set {
        key: &arguments[1],
        value: &arguments[2],
        condition: SetCondition::Version(Condition::Always),
        expiry: Expiry::Never,
        previous: true,
    };
    executor.one(&Operation::Set(set), Render::Previous)
}

/// `GETEX key [EX s|PX ms|EXAT s|PXAT ms|PERSIST]`: a read if it has no option.
pub fn getex<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let key = &arguments[1];
    let get = Operation::Get { key };
    let mut options = arguments.from(2);
    let Some(option) = options.next() else { return executor.one(&get, Render::Value) };
    let expire = if is(option, "persist") {
        Operation::Expire { key, at: None, condition: ExpiryCondition::Some }
    } else {
        let expiry = ExpiryOption::named(option).ok_or(Failure::from(super::SYNTAX))?;
        let time = options.next().ok_or(Failure::from(super::SYNTAX))?;
        let condition = ExpiryCondition::Always;
        match expiry.expiry(executor, time, "getex")? {
            Expiry::At(at) => Operation::Expire { key, at: Some(at), condition },
            Expiry::After(after_ms) => Operation::ExpireAfter { key, after_ms, condition },
            Expiry::Never | Expiry::Keep => return syntax(),
        }
    };
    if options.next().is_some() {
        return syntax();
    }
    executor.together([get, expire].into_iter(), RenderMany::First)
}

/// `GETDEL key`
pub fn getdel<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    executor.one(&Operation::Take { key: &arguments[1] }, Render::Value)
}

/// `MGET key [key …]`: the keys of each shard come from one state of it.
pub fn mget<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let keys: Vec<Operation<'_>> = arguments.from(1).map(|key| Operation::Get { key }).collect();
    executor.many(keys.into_iter(), RenderMany::Values)
}

/// `MSET key value [key value …]`: all or none, so the keys must be in one shard.
pub fn mset<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let pairs: Vec<&[u8]> = arguments.from(1).collect();
    if !pairs.len().is_multiple_of(2) {
        return Err(wrong_arity("mset"));
    }
    let condition = Condition::Always;
    let puts: Vec<Operation<'_>> = pairs
        .chunks_exact(2)
        .map(|pair| Operation::Put { key: pair[0], value: pair[1], condition })
        .collect();
    executor.together(puts.into_iter(), RenderMany::Ok)
}

/// `MSETNX key value [key value …]`: all if none of the keys exists, else none.
pub fn msetnx<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let pairs: Vec<&[u8]> = arguments.from(1).collect();
    if !pairs.len().is_multiple_of(2) {
        return Err(wrong_arity("msetnx"));
    }
    let (pairs, condition) = (pairs.chunks_exact(2), Condition::Always);
    // Each check skips all operations behind it.
    let behind = (0..2 * pairs.len() as u64).rev();
    let checks =
        pairs.clone().zip(behind).map(|(pair, count)| Operation::SkipIfExists { key: pair[0], count });
    let puts = pairs.clone().map(|pair| Operation::Put { key: pair[0], value: pair[1], condition });
    let operations: Vec<Operation<'_>> = checks.chain(puts).collect();
    executor.together(operations.into_iter(), RenderMany::NoneSkipped)
}

/// `DIGEST key`: the hash that `IFDEQ` and `IFDNE` compare.
pub fn digest<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    executor.one(&Operation::Get { key: &arguments[1] }, Render::Hash)
}

/// `GETRANGE key start end`, `SUBSTR key start end`
pub fn getrange<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let (start, end) = (integer(&arguments[2])?, integer(&arguments[3])?);
    executor.one(&Operation::Get { key: &arguments[1] }, Render::Range { start, end })
}

/// `SETRANGE key offset value`
pub fn setrange<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let (key, bytes) = (&arguments[1], &arguments[3]);
    let offset = u64::try_from(integer(&arguments[2])?).map_err(|_| "ERR offset is out of range")?;
    if bytes.is_empty() {
        return executor.one(&Operation::Describe { key }, Render::Length);
    }
    if offset.saturating_add(bytes.len() as u64) > VALUE_BYTES_MAX as u64 {
        return Err(VALUE_TOO_LONG.into());
    }
    executor.one(&Operation::SetRange { key, offset, bytes }, Render::Number)
}

/// `STRLEN key`
pub fn strlen<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    executor.one(&Operation::Describe { key: &arguments[1] }, Render::Length)
}

/// `APPEND key value`
pub fn append<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    executor.one(&Operation::Append { key: &arguments[1], suffix: &arguments[2] }, Render::Number)
}
