//! The parsers of the configuration centre as functions of text, for [`super::super::parsers`].

use tidelock_core::command::config::{Change, Export, Item, Name, Value, WatchPosition};

use super::super::parsers::Detail;
use super::error::ApiError;
use super::formats::Format;
use super::secrets::Sealer;
use super::values::read_json;
use super::{input, path, position, transfer};

fn detail(error: ApiError) -> Detail {
    error.into_text()
}

/// The document in a file of a format, and the notes on its numbers.
///
/// # Errors
/// When the file is not of the format, or has more than `values_max` values.
pub fn document_of(format: &str, file: &str, values_max: usize) -> Result<(Value, Vec<String>), Detail> {
    let document = Format::of(format).and_then(|format| format.read(file, values_max)).map_err(detail)?;
    Ok((document.value, document.notes.into_lines()))
}

/// A document as a file of a format.
///
/// # Errors
/// When the format cannot carry it.
pub fn write_document(format: &str, document: &Value) -> Result<String, Detail> {
    Format::of(format).and_then(|format| format.write(document)).map_err(detail)
}

/// The changes in an imported namespace. Secrets are refused.
///
/// # Errors
/// When the file is not that of a namespace.
pub fn namespace_changes(file: Value) -> Result<Vec<Change>, Detail> {
    input::namespace(file, (false, &Sealer::without_keys())).map_err(detail)
}

/// A namespace as it is exported.
pub fn export_of(namespace: &Name, export: &Export) -> Value {
    transfer::export_tree(namespace, export)
}

/// The changes of one item of a publication, in JSON. Secrets are refused.
///
/// # Errors
/// When it is malformed.
pub fn changes_of(item: &str, values_max: usize) -> Result<Vec<Change>, Detail> {
    let value = read_json(item, values_max).map_err(|error| error.to_string())?;
    input::change(value, (false, &Sealer::without_keys())).map_err(detail)
}

/// The position in a text of a watch.
pub fn position_of(text: &[u8]) -> Option<WatchPosition> {
    position::parse(text)
}

/// The text of a position of a watch.
pub fn position_text(place: &WatchPosition) -> String {
    position::to_text(place)
}

/// The namespace, and the item in it, after which a search continues.
///
/// # Errors
/// When the text is not the `next` of a page.
pub fn search_position_of(text: &str) -> Result<(Name, Option<Item>), Detail> {
    path::parse_position(text).map_err(detail)
}

/// The `next` of a page of a search.
pub fn search_position_text(namespace: &Name, item: Option<&Item>) -> String {
    path::position(namespace, item)
}
