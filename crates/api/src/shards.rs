//! `/v1/cluster/shards` and `/v1/cluster/shards/{shard}/…`: shards, their tags, and why their
//! replicas are where they are.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest name of a shard, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// The body of `POST /v1/cluster/shards`: a new shard without slots. An empty body is a shard
/// without a name and tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AddShardRequest {
    /// Its display name; by default one that is made from its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    pub name: Option<String>,
    /// Its tags by name, placement policies among them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = {"minLength": 1}))]
    pub tags: BTreeMap<String, String>,
}

/// The shard that was added, removed or tagged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TaggedShard")]
pub struct ChangedShard {
    /// Its number.
    pub shard: u64,
}

/// The body of `POST /v1/cluster/shards/{shard}/tags`: tags to set by name. Null removes a tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ShardTags", extend("propertyNames" = {"minLength": 1}))]
pub struct TagChanges(pub BTreeMap<String, Option<String>>);

/// The answer to `GET /v1/cluster/default`: the placement policies that shards inherit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefaultPlacement {
    /// The policies by name; null if the cluster was founded by a release that had no default, and
    /// none was set since.
    pub tags: Option<BTreeMap<String, String>>,
}

/// The answer to `GET /v1/cluster/shards/{shard}/explain`: the placement of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Number of the shard.
    pub shard: u64,
    /// All hosts of the cluster, with or without a replica.
    pub hosts: Vec<ExplainedHost>,
}

/// Why a host has a replica of a shard, or has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ExplainedHost {
    /// Number of its node.
    pub node: u64,
    /// Number of its replica, present or planned; null if it has none.
    pub replica: Option<u64>,
    /// The role that placement gives it in the shard.
    pub role: PlacedRole,
    /// Whether the registry contains that role; otherwise it will soon.
    pub written: bool,
    /// The reason, as a sentence for an operator.
    pub reason: String,
}

/// The role that placement gives a host in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum PlacedRole {
    /// A replica with a vote.
    Voter,
    /// A replica without a vote.
    Learner,
    /// No replica.
    None,
    /// A role of a later release. No node sends it.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl fmt::Display for PlacedRole {
    /// Writes the word that the API uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PlacedRole::Voter => "voter",
            PlacedRole::Learner => "learner",
            PlacedRole::None => "none",
            PlacedRole::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_shown_as_they_are_sent() {
        for role in [PlacedRole::Voter, PlacedRole::Learner, PlacedRole::None] {
            assert_eq!(serde_json::to_string(&role).expect("JSON"), format!("\"{role}\""));
        }
        let later: PlacedRole = serde_json::from_str("\"witness\"").expect("a role");
        assert_eq!(later, PlacedRole::Unknown);
    }

    #[test]
    fn a_request_may_leave_out_members_but_not_invent_them() {
        let parse = |body: &str| serde_json::from_str::<AddShardRequest>(body);
        assert_eq!(parse("{}").expect("a request"), AddShardRequest::default());
        let named = AddShardRequest { name: Some("orders".to_owned()), ..AddShardRequest::default() };
        assert_eq!(parse(r#"{"name":"orders"}"#).expect("a request"), named);
        assert!(parse(r#"{"names":"orders"}"#).is_err());
    }
}
