//! JSON, with checks of how its numbers are written.

use tidelock_core::command::config::Value;

use super::super::error::ApiError;
use super::super::values::read_json;
use super::Document;
use super::numbers::{Notes, float, line_of, too_large};

pub(super) fn read(file: &str, values_max: usize) -> Result<Document, ApiError> {
    let value = read_json(file, values_max).map_err(|error| super::no_file("JSON", &error))?;
    Ok(Document { value, notes: check_numbers(file)? })
}

/// Checks the numbers of valid JSON. serde_json silently converts an integer beyond 64 bits to a
/// float.
pub(in super::super) fn check_numbers(file: &str) -> Result<Notes, ApiError> {
    let mut notes = Notes::default();
    let numbers = Numbers { file, offset: 0 };
    for (offset, written) in numbers {
        let line = || line_of(file, offset);
        let is_float = written.contains(['.', 'e', 'E']) || written == "-0";
        let number = match written.parse() {
            _ if is_float => float(written, line)?,
            Ok(number) => Value::Int(number),
            Err(_) => return Err(too_large(written, line())),
        };
        notes.compare(written, &number, line);
    }
    Ok(notes)
}

/// The numbers of valid JSON, with their offsets.
struct Numbers<'a> {
    file: &'a str,
    offset: usize,
}

impl<'a> Iterator for Numbers<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<(usize, &'a str)> {
        let bytes = self.file.as_bytes();
        loop {
            match bytes.get(self.offset)? {
                b'"' => self.offset = end_of_text(bytes, self.offset + 1),
                b'-' | b'0'..=b'9' => {
                    let start = self.offset;
                    let belongs = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                    let length = bytes[start..].iter().take_while(|byte| belongs(byte)).count();
                    self.offset = start + length;
                    return Some((start, &self.file[start..self.offset]));
                }
                _ => self.offset += 1,
            }
        }
    }
}

/// The offset after the quotation mark that ends a string.
fn end_of_text(bytes: &[u8], mut offset: usize) -> usize {
    while let Some(byte) = bytes.get(offset) {
        match byte {
            b'\\' => offset += 2,
            b'"' => return offset + 1,
            _ => offset += 1,
        }
    }
    offset
}
