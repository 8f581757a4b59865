//! TOML, with checks of how its numbers are written.

use tidelock_core::command::config::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::error::ApiError;
use super::super::values::too_many_values;
use super::Document;
use super::numbers::{Notes, float, line_of, too_large};

pub(super) fn read(file: &str, values_max: usize) -> Result<Document, ApiError> {
    let table = DeTable::parse(file).map_err(|error| super::no_file("TOML", &error))?;
    let mut reader = Reader { file, notes: Notes::default(), values: 0, values_max };
    let value = reader.table(table.into_inner())?;
    Ok(Document { value, notes: reader.notes })
}

struct Reader<'a> {
    file: &'a str,
    notes: Notes,
    values: usize,
    values_max: usize,
}

impl Reader<'_> {
    fn table(&mut self, table: DeTable<'_>) -> Result<Value, ApiError> {
        let entry = |(key, value): (Spanned<_>, _)| {
            let key: std::borrow::Cow<'_, str> = key.into_inner();
            Ok((key.as_ref().into(), self.value(value)?))
        };
        Ok(Value::Dict(table.into_iter().map(entry).collect::<Result<_, ApiError>>()?))
    }

    fn value(&mut self, value: Spanned<DeValue<'_>>) -> Result<Value, ApiError> {
        self.values += 1;
        if self.values > self.values_max {
            return Err(super::no_file("TOML", &too_many_values(self.values_max)));
        }
        let span = value.span();
        let file = self.file;
        let line = || line_of(file, span.start);
        let written = file.get(span.clone()).unwrap_or_default();
        let number = match value.into_inner() {
            DeValue::String(text) => return Ok(Value::text(&text)),
            DeValue::Boolean(truth) => return Ok(Value::Bool(truth)),
            DeValue::Array(items) => {
                let items = items.into_iter().map(|item| self.value(item));
                return Ok(Value::List(items.collect::<Result<_, ApiError>>()?));
            }
            DeValue::Table(table) => return self.table(table),
            DeValue::Datetime(_) => {
                let text = format!("line {}: a date is no datatype; write it as a string", line());
                return Err(ApiError::format(text));
            }
            DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
                .map(Value::Int)
                .map_err(|_| too_large(written, line()))?,
            DeValue::Float(number) => float(number.as_str(), line)?,
        };
        self.notes.compare(written, &number, line);
        Ok(number)
    }
}
