//! The founders of a cluster: parses their list and derives the cluster id.
//!
//! Owns what every founder must compute identically without communication: the order of the
//! founders, which determines their numbers, and the cluster id. Addresses are compared as texts,
//! never as what they resolve to: resolution may differ between machines and over time, and the
//! founders would disagree about their numbers.

use std::collections::BTreeMap;

use tidelock_core::version::ClusterVersion;
use uuid::Uuid;

use super::{Address, ConfigError};

/// Most founders. A cluster cannot begin before most voters of the registry are up, and a list of
/// addresses that must be the same everywhere is error-prone; larger clusters grow by joins.
pub const FOUNDERS_MAX: usize = 9;

/// What a cluster is founded with, besides its founders and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundingTerms<'a> {
    /// Number of data shards; `None` if the cluster adds them by itself.
    pub data_shards: Option<u64>,
    /// Number of voters of each data shard.
    pub replicas: u64,
    /// Tags of the data shards.
    pub shard_tags: &'a BTreeMap<String, String>,
}

/// Namespace of cluster ids (RFC 9562, version 5). Generated once at random; changing it would
/// change all cluster ids.
const CLUSTER_NAMESPACE: Uuid = Uuid::from_u128(0x8c1f_6c0e_52a7_4d0b_9a61_f3b5_0d2e_7743);

/// Returns the founders, sorted and checked.
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

/// The id of the cluster with these sorted founders, this name and these terms. A founder with
/// different settings derives another id and is refused by the others, instead of mapping keys
/// differently or counting other votes. So is a founder of a release that founds clusters of
/// another version. The name comes first, and neither it nor an address contains a line break, so
/// different clusters have different texts.
pub fn cluster_id<S: AsRef<str> + Ord>(
    founders: &[S],
    cluster_name: &str,
    terms: &FoundingTerms<'_>,
) -> Uuid {
    assert!(founders.is_sorted(), "invariant: founders are sorted");
    let (version, FoundingTerms { data_shards, replicas, shard_tags }) = (ClusterVersion::NEWEST, terms);
    let shards = data_shards.map_or_else(|| "automatic".to_owned(), |shards| shards.to_string());
    let mut name = format!("{cluster_name}\n{shards}\n{replicas} replicas\nversion {version}");
    for founder in founders {
        name.push('\n');
        name.push_str(founder.as_ref());
    }
    for (tag, value) in *shard_tags {
        name.push_str(&format!("\n{tag}={value}"));
    }
    Uuid::new_v5(&CLUSTER_NAMESPACE, name.as_bytes())
}
