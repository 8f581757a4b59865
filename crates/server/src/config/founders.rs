//! The founders of a cluster: parsing their list, and the id that follows from it.
//!
//! Owns what every founder must compute alike, with nobody to ask: order, and with it numbers, and the cluster id.
//! Addresses are compared as texts, never as what they resolve to: resolution may differ between machines and
//! days, and the founders would disagree about who they are.

use uuid::Uuid;

use super::{Address, ConfigError};

/// Most founders. Each votes, and each vote more makes every write wait for more disks; larger clusters grow by
/// joining.
pub const FOUNDERS_MAX: usize = 7;

/// Namespace of cluster ids (RFC 9562, version 5). Drawn once at random; to change it would rename all clusters.
const CLUSTER_NAMESPACE: Uuid = Uuid::from_u128(0x8c1f_6c0e_52a7_4d0b_9a61_f3b5_0d2e_7743);

/// Sorted and checked.
pub(super) fn parse(list: &[String]) -> Result<Vec<Address>, ConfigError> {
    let mut founders = vec![];
    for text in list.iter().flat_map(|element| element.split(',')) {
        let founder = Address::parse("peers", text)?;
        if founder.has_any_port() {
            return Err(ConfigError::FounderPort(founder.to_string()));
        }
        founders.push(founder);
    }
    if founders.is_empty() || founders.len() > FOUNDERS_MAX {
        return Err(ConfigError::FounderCount(founders.len()));
    }
    founders.sort();
    if let Some(pair) = founders.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ConfigError::FounderTwice(pair[0].to_string()));
    }
    Ok(founders)
}

/// The id of the cluster with these founders, sorted, this name and so many data shards: the same on each founder,
/// so that one which was told otherwise is refused by the others rather than hash keys its own way. The name comes
/// first and contains no line break, nor does an address, so no two clusters spell alike.
pub fn cluster_id<S: AsRef<str> + Ord>(founders: &[S], cluster_name: &str, data_shards: u64) -> Uuid {
    assert!(founders.is_sorted(), "invariant: founders are sorted");
    let mut name = format!("{cluster_name}\n{data_shards}");
    for founder in founders {
        name.push('\n');
        name.push_str(founder.as_ref());
    }
    Uuid::new_v5(&CLUSTER_NAMESPACE, name.as_bytes())
}
