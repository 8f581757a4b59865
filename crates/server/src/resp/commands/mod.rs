//! The handlers of commands, one file for each family.
//!
//! Owns how arguments become operations, and which reply is owed, with the argument parsers that
//! families share. Handlers do no I/O, and change data only by operations.

pub mod acl;
pub mod channels;
pub mod cluster;
pub mod connection;
pub mod expiry;
pub mod flush;
pub mod keys;
pub mod node;
pub mod numbers;
pub mod scan;
pub mod scripts;
pub mod strings;
pub mod tracking;
pub mod transactions;
pub mod versions;

use tidelock_core::machine::kv::parse_number;

use super::session::{Action, Failure};

/// What a handler returns: what the connection does next, or the error text.
type Result<T = Action> = std::result::Result<T, Failure>;

/// The error for unknown options.
const SYNTAX: &str = "ERR syntax error";

/// Parses a signed 64-bit number.
fn integer(text: &[u8]) -> Result<i64> {
    parse_number(text).ok_or("ERR value is not an integer or out of range".into())
}

/// Whether an option has this name, ignoring case.
fn is(option: &[u8], name: &str) -> bool {
    option.eq_ignore_ascii_case(name.as_bytes())
}

fn syntax<T>() -> Result<T> {
    Err(SYNTAX.into())
}
