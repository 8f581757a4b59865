//! What commands do, a file for each family.
//!
//! Owns how arguments become operations, and which reply is owed; the readers of arguments that families share stand here. Nothing
//! here sees a socket, and nothing changes state but by an operation.

pub mod cluster;
pub mod connection;
pub mod expiry;
pub mod keys;
pub mod node;
pub mod numbers;
pub mod scan;
pub mod strings;
pub mod transactions;
pub mod versions;

use tidelock_core::machine::kv::parse_number;

use super::session::Failure;

/// What a client is told of options that no command has.
const SYNTAX: &str = "ERR syntax error";

/// Reads a number of 64 bits.
fn integer(text: &[u8]) -> Result<i64, Failure> {
    parse_number(text).ok_or("ERR value is not an integer or out of range".into())
}

/// Whether an option is this one, in any letters.
fn is(option: &[u8], name: &str) -> bool {
    option.eq_ignore_ascii_case(name.as_bytes())
}

fn syntax<T>() -> Result<T, Failure> {
    Err(SYNTAX.into())
}
