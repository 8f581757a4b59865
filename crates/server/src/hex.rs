//! Bytes as text.

use std::fmt::Write as _;

/// Bytes as lower-case hexadecimal digits.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02x}").expect("invariant: a string takes every digit");
        out
    })
}
