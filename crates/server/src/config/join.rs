//! Joining a cluster rather than founding one: whom to ask, and whether the cluster could answer.
//!
//! Owns the checks that only a newcomer needs: its own address will be handed to all members as it is written.

use super::{Address, ConfigError};

/// Most members to ask. One that is up is enough.
pub const JOIN_ADDRESSES_MAX: usize = 16;

/// The members to ask, in the order given. This node's own address is left out, so that all members and newcomers can
/// be given one list.
pub(super) fn parse(list: &[String], own: &Address) -> Result<Vec<Address>, ConfigError> {
    let mut members = vec![];
    for text in list.iter().flat_map(|element| element.split(',')) {
        let member = Address::parse("join", text)?;
        if !members.contains(&member) {
            members.push(member);
        }
    }
    if members.is_empty() || members.len() > JOIN_ADDRESSES_MAX {
        return Err(ConfigError::JoinCount(members.len()));
    }
    members.retain(|member| member != own);
    if members.is_empty() {
        return Err(ConfigError::JoinSelf(own.to_string()));
    }
    if !own.is_reachable() {
        return Err(ConfigError::JoinPeer(own.to_string()));
    }
    Ok(members)
}
