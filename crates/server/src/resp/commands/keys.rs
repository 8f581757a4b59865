//! Keys, regardless of their values: `DEL`, `EXISTS`, `TYPE`.

use tidelock_core::command::{Condition, Operation};

use super::super::frame::CommandArguments;
use super::super::replies::{Render, RenderMany};
use super::super::session::Session;
use super::Result;

/// `DEL key [key …]`, `UNLINK key [key …]`: atomic for the keys of each shard, not across shards.
pub fn del(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let condition = Condition::Always;
    let deletes: Vec<_> = arguments.from(1).map(|key| Operation::Delete { key, condition }).collect();
    session.many(deletes.into_iter(), RenderMany::Count)
}

/// `EXISTS key [key …]`, `TOUCH key [key …]`: a key that is named twice counts twice.
pub fn exists(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let looks: Vec<_> = arguments.from(1).map(|key| Operation::Describe { key }).collect();
    session.many(looks.into_iter(), RenderMany::Count)
}

/// `TYPE key`
pub fn kind(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    session.one(&Operation::Describe { key: &arguments[1] }, Render::Type)
}
