//! The members that a joining node asks, and whether they could reach it.
//!
//! Owns the checks that only a joining node needs: its peer address is passed to all members as it
//! is written.

use tidelock_core::address_book::SRV_PREFIX;

use super::{Address, ConfigError, srv};

/// Most members to ask. One that is up suffices.
pub const JOIN_ADDRESSES_MAX: usize = 16;

/// The members to ask, in the given order. This node's own address is left out, so that one list
/// can be given to all nodes.
pub(super) fn parse(list: &[String], own: &Address) -> Result<Vec<String>, ConfigError> {
    let mut members = vec![];
    for text in list.iter().flat_map(|element| element.split(',')).map(str::trim) {
        let member = match text.starts_with(SRV_PREFIX) {
            true => srv::members(text)?,
            false => Address::parse("join", text)?.to_string(),
        };
        if !members.contains(&member) {
            members.push(member);
        }
    }
    if members.is_empty() || members.len() > JOIN_ADDRESSES_MAX {
        return Err(ConfigError::JoinCount(members.len()));
    }
    members.retain(|member| member != own.as_str());
    if members.is_empty() {
        return Err(ConfigError::JoinSelf(own.to_string()));
    }
    if !own.is_reachable() {
        return Err(ConfigError::JoinPeer(own.to_string()));
    }
    Ok(members)
}
