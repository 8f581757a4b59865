//! The prefixes of keys whose changes are recorded in the audit log.

use super::ConfigError;

/// Most prefixes. The key of each write is compared with all of them.
pub const AUDIT_PREFIXES_MAX: usize = 64;

/// The prefixes; an empty one stands for all keys.
pub(super) fn parse(list: Option<Vec<String>>, has_log: bool) -> Result<Vec<String>, ConfigError> {
    let prefixes = list.unwrap_or_default();
    if prefixes.len() > AUDIT_PREFIXES_MAX {
        return Err(ConfigError::TooManyAuditPrefixes(prefixes.len()));
    }
    if !prefixes.is_empty() && !has_log {
        return Err(ConfigError::AuditWritesWithoutLog);
    }
    Ok(prefixes)
}
