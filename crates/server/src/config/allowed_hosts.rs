//! Host names, besides those of its own addresses, under which HTTP clients reach a node; for
//! example those of a load balancer.

use super::{ConfigError, HOST_BYTES_MAX};

/// Most names. The host of each request is compared with all of them.
pub const ALLOWED_HOSTS_MAX: usize = 64;

/// The names, without a trailing dot.
pub(super) fn parse(list: &[String]) -> Result<Vec<String>, ConfigError> {
    let mut names: Vec<String> = vec![];
    for text in list.iter().flat_map(|element| element.split(',')).map(str::trim) {
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if name.is_empty() || name.len() > HOST_BYTES_MAX || !is_name {
            return Err(ConfigError::AllowedHost(text.to_owned()));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    if names.len() > ALLOWED_HOSTS_MAX {
        return Err(ConfigError::TooManyAllowedHosts(names.len()));
    }
    Ok(names)
}
