//! `GET /v1/cluster`: hosts, shards and replicas, as the answering node knows them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one node knows of the cluster. Other nodes may know more or less.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cluster {
    /// Number of the answering node.
    pub node: u64,
    /// All hosts of the registry, and founders that have not registered yet.
    pub hosts: Vec<Host>,
    /// All shards of the registry, ordered by number.
    pub shards: Vec<Shard>,
    /// All replicas, shard by shard.
    pub replicas: Vec<Replica>,
}

/// A host of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Number of its node, from 1.
    pub node: u64,
    /// Its uuid; null until it has registered.
    #[schemars(extend("format" = "uuid"))]
    pub id: Option<String>,
    /// `host:port` for other nodes.
    pub peer_address: String,
    /// `host:port` for HTTP; empty until it has registered.
    pub http_address: String,
    /// `host:port` for the Redis protocol; empty if it does not listen for that.
    pub resp_address: String,
    /// Its tags, by name.
    pub tags: BTreeMap<String, String>,
    /// Index in the prime shard's log at which it registered; 0 if it has not.
    pub created: u64,
    /// Index in the prime shard's log at which its addresses or tags last changed.
    pub updated: u64,
    /// Whether the answering node has a connection to it; true for itself.
    pub connected: bool,
    /// Whether its disk takes no writes now, as far as the answering node knows. Left out if it
    /// takes them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disk_stalled: bool,
    /// The measured offset of its clock; null if it was not measured.
    pub clock: Option<Clock>,
    /// The role that the cluster wants it to have.
    pub standing: HostRole,
    /// Whether it transfers its leaderships and replicas to other hosts.
    pub draining: bool,
    /// Whether it has been silent for so long that its replicas are placed on other hosts.
    pub dead: bool,
}

/// The offset of a host's clock from the answering node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Clock {
    /// Milliseconds that it is ahead; negative if it is behind.
    pub ahead_ms: i64,
    /// Error bound of the measurement in milliseconds: half of its round trip.
    pub error_ms: i64,
}

/// The role that the cluster wants a host to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum HostRole {
    /// Its replicas may vote.
    Voter,
    /// Its replicas follow without a vote.
    Learner,
    /// It gives up its replicas, and is removed after that.
    Leaving,
    /// It is no longer a member.
    Removed,
    /// A role of a later release. No node sends it.
    #[default]
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl fmt::Display for HostRole {
    /// Writes the word that the API uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HostRole::Voter => "voter",
            HostRole::Learner => "learner",
            HostRole::Leaving => "leaving",
            HostRole::Removed => "removed",
            HostRole::Unknown => "unknown",
        })
    }
}

/// A shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shard {
    /// Its number; 0 is the prime shard.
    pub id: u64,
    /// Its display name. Only the number is unique.
    pub name: String,
    /// `registry` or `kv`.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["registry", "kv"]))]
    pub kind: Cow<'static, str>,
    /// The node that leads it; null if the answering node knows none.
    pub leader: Option<u64>,
    /// Its term, as the answering node knows it.
    pub term: u64,
    /// Number of hash slots that it owns, 0 to 16,384.
    #[schemars(range(max = 16_384))]
    pub slots: u16,
}

/// A replica of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replica {
    /// Its number, which is never given to another replica.
    pub id: u64,
    /// Number of its shard.
    pub shard: u64,
    /// Number of the node that holds it.
    pub node: u64,
    /// Whether it votes.
    pub voter: bool,
    /// Index of the last entry that it has applied; null if its node has not reported one.
    pub applied: Option<u64>,
    /// The last checkpoint that it has completed; null if there is none.
    pub checkpoint: Option<Checkpoint>,
    /// Whether its node has stopped because another replica's log contradicts entries committed in
    /// this one. Left out if it has not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diverged: bool,
}

/// The checksum of a replica's state at one index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Checkpoint {
    /// Index of the checkpoint in the shard's log.
    pub index: u64,
    /// The checksum of the whole state: eight hexadecimal digits.
    pub checksum: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"node":1,
        "hosts":[{"node":1,"id":"6f1c","peer_address":"a:1","http_address":"a:2","resp_address":"a:3",
            "tags":{"geo:zone":"a"},"created":3,"updated":4,"connected":true,
            "clock":{"ahead_ms":-5,"error_ms":1},"standing":"voter","draining":false,"dead":false}],
        "shards":[{"id":0,"name":"prime","type":"registry","leader":null,"term":2,"slots":0}],
        "replicas":[
            {"id":1,"shard":0,"node":1,"voter":true,"applied":9,"checkpoint":{"index":8,"checksum":"0000002a"}},
            {"id":2,"shard":0,"node":2,"voter":false,"applied":null,"checkpoint":null,"diverged":true}]}"#;

    fn parse(answer: &str) -> Result<Cluster, serde_json::Error> {
        serde_json::from_str(answer)
    }

    #[test]
    fn an_answer_keeps_its_bytes() {
        let cluster = parse(ANSWER).expect("an answer");
        let bytes: String = ANSWER.lines().map(str::trim_start).collect();
        assert_eq!(serde_json::to_string(&cluster).expect("JSON"), bytes);
        assert_eq!((cluster.replicas[0].diverged, cluster.replicas[1].diverged), (false, true));
    }

    #[test]
    fn an_answer_of_a_later_release_is_read() {
        let later = ANSWER.replace("{\"node\":1,", "{\"later\":[true],\"node\":1,");
        assert_ne!(later, ANSWER);
        assert_eq!(parse(&later).expect("an answer"), parse(ANSWER).expect("an answer"));
        let later = ANSWER.replace(":\"voter\"", ":\"witness\"");
        assert_eq!(parse(&later).expect("an answer").hosts[0].standing, HostRole::Unknown);
    }

    #[test]
    fn an_answer_without_a_required_member_is_refused() {
        for member in
            ["\"connected\":true,", "\"draining\":false,", "\"standing\":\"voter\",", "\"voter\":true,"]
        {
            assert!(ANSWER.contains(member) && parse(&ANSWER.replace(member, "")).is_err(), "{member}");
        }
    }

    #[test]
    fn roles_are_shown_as_they_are_sent() {
        for role in [HostRole::Voter, HostRole::Learner, HostRole::Leaving, HostRole::Removed] {
            assert_eq!(serde_json::to_string(&role).expect("JSON"), format!("\"{role}\""));
        }
    }
}
