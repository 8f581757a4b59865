//! Environment variables, one a line, as shells and `docker --env-file` read them.
//!
//! Names are upper case with underscores: `servers[0].name` becomes `SERVERS_0_NAME`. Two keys with
//! the same name are refused.

use std::collections::BTreeMap;

use tidelock_core::command::config::Value;

use super::super::error::ApiError;
use super::properties::{Step, flatten, key_of, text_of};

pub(super) fn write(document: &Value) -> Result<String, ApiError> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut out = String::new();
    for (path, value) in flatten(document)? {
        let (name, key) = (name_of(&path), key_of(&path));
        if matches!(value, Value::List(_) | Value::Dict(_)) {
            let text = format!("{key} is an empty {}, which env cannot carry", value.datatype().name());
            return Err(ApiError::format(text));
        }
        let text = text_of(value);
        if text.contains('\0') {
            return Err(ApiError::format(format!("{key} holds a zero byte, which env cannot carry")));
        }
        if let Some(other) = names.insert(name.clone(), key.clone()) {
            return Err(ApiError::format(format!("{other} and {key} would both be {name} in env")));
        }
        out.push_str(&format!("{name}={}\n", quoted(&text)));
    }
    Ok(out)
}

fn name_of(path: &[Step]) -> String {
    let parts: Vec<String> = path
        .iter()
        .map(|step| match step {
            Step::Key(name) => name.to_uppercase(),
            Step::Index(position) => position.to_string(),
        })
        .collect();
    let name: String = parts
        .join("_")
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character } else { '_' })
        .collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// Quotes text for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:@%+,-".contains(&byte);
    if text.bytes().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
