//! Why a host has its role in a shard, as text.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::types::NodeId;

/// Why a host votes, follows, or has no replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It votes: it is a founder or was made a voter by an operator, and no policy says otherwise.
    DefaultVoter,
    /// It votes: it is one of the members that the policy asks for.
    Member {
        /// Number of members in the policy.
        count: usize,
        /// Its values of the `vary` tags.
        values: String,
    },
    /// It votes in place of these hosts, which are dead or drained.
    ReplacesVoters(Vec<NodeId>),
    /// It votes though it is dead: no other host can replace it.
    NoReplacement {
        /// Whether another host could replace it if voters did not have to be in distinct places.
        is_apart: bool,
    },
    /// It votes though the policy does not allow it: too few allowed hosts exist.
    TooFewAllowed,
    /// It votes though it is drained: no other host can replace it.
    DrainedVoter,
    /// It is a learner: there are enough voters.
    EnoughVoters {
        /// The hosts that vote, by number.
        voters: Vec<NodeId>,
    },
    /// It is a learner: a voter has the same values of the `vary` tags.
    SameValues {
        /// The voter with those values.
        voter: NodeId,
        /// The values of the `vary` tags, for display.
        values: String,
    },
    /// It is a learner: an operator took its vote away.
    Barred,
    /// It has no vote because it is dead.
    Dead,
    /// It has no vote because it is being drained.
    Drained,
    /// It does not have the tags that the policy requires of voters.
    NotMember {
        /// The conditions of the policy on tags, for display.
        conditions: String,
    },
    /// It is a learner: it belongs to this replica group.
    ReplicaGroup(String),
    /// It is a learner: a `cover` policy names its tags.
    Covered,
    /// It has no replica: policies name other hosts.
    NotNamed,
    /// It has not registered yet, so its tags are unknown.
    Unknown,
    /// It is leaving the cluster.
    Leaving,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::DefaultVoter => {
                f.write_str("it founded the cluster or was added, and no policy says otherwise")
            }
            Reason::Member { count, values } if values.is_empty() => {
                write!(f, "one of {count} voters by policy")
            }
            Reason::Member { count, values } => write!(f, "one of {count} voters by policy, at {values}"),
            Reason::ReplacesVoters(nodes) => write!(f, "it votes in place of {}", Nodes(nodes)),
            Reason::NoReplacement { is_apart: false } => {
                f.write_str("it is dead, but no host that may vote could take its place")
            }
            Reason::NoReplacement { is_apart: true } => f.write_str(
                "it is dead, but every host that could take its place is where another voter is already",
            ),
            Reason::TooFewAllowed => f.write_str("it does not fit the policy, but not enough other hosts do"),
            Reason::DrainedVoter => f.write_str("it is drained, but no other host could take its place"),
            Reason::EnoughVoters { voters } => {
                write!(f, "no vote: there are enough voters, {}", Nodes(voters))
            }
            Reason::SameValues { voter, values } => {
                write!(f, "no vote: node {voter} votes at {values} already")
            }
            Reason::Barred => f.write_str("no vote: an operator took it away"),
            Reason::Dead => f.write_str("no vote: it is dead"),
            Reason::Drained => f.write_str("it is drained"),
            Reason::NotMember { conditions } => write!(f, "no vote: voters need {conditions}"),
            Reason::ReplicaGroup(group) => write!(f, "one of the replica group `{group}`"),
            Reason::Covered => f.write_str("its tags are covered"),
            Reason::NotNamed => f.write_str("the policies name other hosts"),
            Reason::Unknown => f.write_str("it has not announced itself yet"),
            Reason::Leaving => f.write_str("it is leaving the cluster"),
        }
    }
}

struct Nodes<'a>(&'a [NodeId]);

impl fmt::Display for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "node " } else { "nodes " })?;
        for (position, node) in self.0.iter().enumerate() {
            write!(f, "{}{node}", if position == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
