//! Two commands that Redis lacks, because its keys have no versions: `TL.GET`, `TL.SET`.

use tidelock_core::command::{Condition, Operation};
use tidelock_core::types::Version;

use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::replies::Render;
use super::super::session::Session;
use super::Result;

/// `TL.GET key`: version and value, or null.
pub fn get(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    session.one(&Operation::Get { key: &arguments[1] }, Render::Versioned)
}

/// `TL.SET key value version`: the new version, or an error `VERSION given current`; version 0
/// means that the key must not exist.
pub fn set(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let text = &arguments[3];
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let given = std::str::from_utf8(text).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    let given = Version(given.ok_or("ERR the version must be a number of 64 bits")?);
    let put =
        Operation::Put { key: &arguments[1], value: &arguments[2], condition: Condition::Version(given) };
    session.one(&put, Render::VersionSet { given })
}
