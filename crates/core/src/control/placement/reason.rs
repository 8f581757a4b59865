//! Why a host is what it is to a shard, in words.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::types::NodeId;

/// Why a host votes, follows, or has no replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It votes: a founder, or added by an operator, and no policy says otherwise.
    OwnVote,
    /// It votes: one of those that the policy asks for.
    Member {
        /// How many it asks for.
        count: usize,
        /// What sets it apart from the others: values of the tags to vary in.
        values: String,
    },
    /// It votes in place of others, which are dead or drained.
    StandsIn(Vec<NodeId>),
    /// It votes though it is dead: nobody can take its place.
    NobodyInstead {
        /// Whether there would be somebody, if voters did not have to be apart.
        is_apart: bool,
    },
    /// It votes though the policy names others: there are not enough of those.
    NobodyFits,
    /// It votes though it is drained: nobody can take its place.
    DrainedVoter,
    /// It follows: there are enough voters.
    EnoughVoters {
        /// Which.
        voters: Vec<NodeId>,
    },
    /// It follows: a voter has the same values of the tags to vary in.
    SameValues {
        /// Who votes there.
        voter: NodeId,
        /// Those values.
        values: String,
    },
    /// It follows: an operator took its vote away.
    Barred,
    /// It has no vote because it is dead.
    Dead,
    /// It is being drained.
    Drained,
    /// It does not have the tags that voters should have.
    NotMember {
        /// Those tags.
        conditions: String,
    },
    /// It follows: one of this group.
    ReplicaGroup(String),
    /// It follows: its tags are covered.
    Covered,
    /// It has no replica: policies name other hosts.
    NotNamed,
    /// It has not announced itself yet.
    Unknown,
    /// It is leaving the cluster.
    Leaving,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::OwnVote => {
                f.write_str("it founded the cluster or was added, and no policy says otherwise")
            }
            Reason::Member { count, values } if values.is_empty() => {
                write!(f, "one of {count} voters by policy")
            }
            Reason::Member { count, values } => write!(f, "one of {count} voters by policy, at {values}"),
            Reason::StandsIn(nodes) => write!(f, "it votes in place of {}", Nodes(nodes)),
            Reason::NobodyInstead { is_apart: false } => {
                f.write_str("it is dead, but no host that may vote could take its place")
            }
            Reason::NobodyInstead { is_apart: true } => f.write_str(
                "it is dead, but every host that could take its place is where another voter is already",
            ),
            Reason::NobodyFits => f.write_str("it does not fit the policy, but not enough other hosts do"),
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
