//! Keys, regardless of their values: `DEL`, `EXISTS`, `TYPE`.

use tidelock_core::command::{Condition, Operation};

use super::super::dispatch::wrong_arity;
use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::replies::{Render, RenderMany};
use super::Result;
use super::strings::value_condition;

/// `DEL key [key …]`, `UNLINK key [key …]`: atomic for the keys of each shard, not across shards.
pub fn del<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let condition = Condition::Always;
    let deletes: Vec<_> = arguments.from(1).map(|key| Operation::Delete { key, condition }).collect();
    executor.many(deletes.into_iter(), RenderMany::Count)
}

/// `DELEX key [IFEQ value|IFNE value|IFDEQ hash|IFDNE hash]`: removes a key under a condition on
/// its value.
pub fn delex<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let key = &arguments[1];
    let delete = match arguments.len() {
        2 => Operation::Delete { key, condition: Condition::Always },
        4 => Operation::DeleteIf { key, condition: value_condition(&arguments[2], &arguments[3])? },
        _ => return Err(wrong_arity("delex")),
    };
    executor.one(&delete, Render::Changed)
}

/// `EXISTS key [key …]`, `TOUCH key [key …]`: a key that is named twice counts twice.
pub fn exists<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    let looks: Vec<_> = arguments.from(1).map(|key| Operation::Describe { key }).collect();
    executor.many(looks.into_iter(), RenderMany::Count)
}

/// `TYPE key`
pub fn kind<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    executor.one(&Operation::Describe { key: &arguments[1] }, Render::Type)
}
