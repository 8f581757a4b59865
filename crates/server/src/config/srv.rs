//! DNS SRV names in `peers` and `join`.
//!
//! Owns their form: `srv:NAME` where one member is enough, and `srv:NAME/COUNT` for founders. The
//! founders' numbers and the cluster's id come from their complete list, and a name may have only
//! some of its records at first, while containers start. So a founder waits until the name has as
//! many hosts as are expected. It resolves nothing.

use tidelock_core::address_book::SRV_PREFIX;

use super::{ConfigError, FOUNDERS_MAX, HOST_BYTES_MAX};

/// The DNS SRV name of a cluster's founders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvFounders {
    /// The SRV name, without prefix.
    pub name: String,
    /// How many founders there are, 1 to [`FOUNDERS_MAX`].
    pub count: usize,
}

impl SrvFounders {
    /// The name as an address, `srv:NAME`.
    pub fn address(&self) -> String {
        format!("{SRV_PREFIX}{}", self.name)
    }
}

/// The SRV name of the founders, if the list is one.
///
/// # Errors
/// [`ConfigError::SrvFounders`] if it is malformed, or one of several elements.
pub(super) fn founders(list: &[String]) -> Result<Option<SrvFounders>, ConfigError> {
    let Some(text) = list.iter().map(|element| element.trim()).find(|text| text.starts_with(SRV_PREFIX))
    else {
        return Ok(None);
    };
    let invalid = || ConfigError::SrvFounders(text.to_owned());
    let (name, count) = text[SRV_PREFIX.len()..].rsplit_once('/').ok_or_else(invalid)?;
    let count = count.parse().ok().filter(|count| (1..=FOUNDERS_MAX).contains(count)).ok_or_else(invalid)?;
    if list.len() > 1 || !is_name(name) {
        return Err(invalid());
    }
    Ok(Some(SrvFounders { name: name.to_owned(), count }))
}

/// Checks an element of `join` that begins with [`SRV_PREFIX`].
///
/// # Errors
/// [`ConfigError::SrvMembers`] if it is malformed.
pub(super) fn members(text: &str) -> Result<String, ConfigError> {
    match text.strip_prefix(SRV_PREFIX) {
        Some(name) if is_name(name) => Ok(text.to_owned()),
        _ => Err(ConfigError::SrvMembers(text.to_owned())),
    }
}

fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !name.is_empty() && name.len() <= HOST_BYTES_MAX && name.bytes().all(is_valid)
}
