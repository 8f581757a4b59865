//! Numbers in JSON, YAML and TOML: their conversion, and notes on numbers that are shown
//! differently from how they were written.
//!
//! A format with types determines what is a number, and that is kept: YAML's `1.10` is the float
//! 1.1. A user who meant a version must learn of it, so the answer to an import names the lines. An
//! integer beyond 64 bits is refused: as a float it would be another number.

use tidelock_core::command::config::Value;

use super::super::error::ApiError;

/// Most notes in one answer; further ones are only counted. A file of a million such numbers must
/// not cause an answer of its size.
const NOTES_MAX: usize = 20;

/// Numbers of a file that are shown differently from how they were written.
#[derive(Debug, Default)]
pub(in super::super) struct Notes {
    shown: Vec<String>,
    more: usize,
}

impl Notes {
    /// Compares a number with its notation in the file. `line` is computed only for a note.
    pub(super) fn compare(&mut self, written: &str, number: &Value, line: impl FnOnce() -> usize) {
        let shown = number.to_json();
        if shown == written || is_written_by_programs(written, number, &shown) {
            return;
        }
        if self.shown.len() == NOTES_MAX {
            self.more += 1;
            return;
        }
        let datatype = number.datatype().name();
        self.shown.push(format!(
            "line {}: {written} was read as the {datatype} {shown}; put it in quotes to keep the text",
            line()
        ));
    }

    /// The notes as lines of text.
    pub fn into_lines(self) -> Vec<String> {
        let mut lines = self.shown;
        if self.more > 0 {
            lines.push(format!("{} more numbers are shown otherwise than the file writes them", self.more));
        }
        lines
    }
}

/// Whether programs write the float like this, with all digits or another exponent: `1.0e+16`. No
/// user means a text by that, and exports as YAML or TOML contain it.
fn is_written_by_programs(written: &str, number: &Value, shown: &str) -> bool {
    let Value::Float(float) = number else { return false };
    let with_point =
        |digits: &str| if digits.contains('.') { digits.to_owned() } else { format!("{digits}.0") };
    if with_point(&float.get().to_string()) == written {
        return true;
    }
    // A float may have two shortest texts, which differ in the last of their 16 or 17 digits.
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    if digits(written) == digits(shown) && digits(shown) >= 16 {
        return true;
    }
    let Some((mantissa, exponent)) = shown.split_once('e') else { return false };
    let Some((other_mantissa, other_exponent)) = written.split_once('e') else { return false };
    (mantissa == other_mantissa || with_point(mantissa) == other_mantissa)
        && exponent == other_exponent.strip_prefix('+').unwrap_or(other_exponent)
}

/// The line of a byte, counted from 1.
pub(super) fn line_of(file: &str, byte: usize) -> usize {
    1 + file.as_bytes()[..byte.min(file.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// The error for an integer that does not fit.
pub(super) fn too_large(written: &str, line: usize) -> ApiError {
    // Only the beginning of a long number is repeated.
    let shown: String = written.chars().take(40).collect();
    ApiError::format(format!(
        "line {line}: {shown} does not fit a signed integer of 64 bits; put it in quotes to keep the text"
    ))
}

/// Parses a float; an infinite one is an error.
pub(super) fn float(written: &str, line: impl FnOnce() -> usize) -> Result<Value, ApiError> {
    let number = written.parse().ok().and_then(Value::float);
    number.ok_or_else(|| {
        let shown: String = written.chars().take(40).collect();
        ApiError::format(format!("line {}: {shown} is no finite float", line()))
    })
}
