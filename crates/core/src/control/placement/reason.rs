//! Why a host has its role in a shard, as text.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::rules::Source;
use crate::types::NodeId;

/// Why a host votes, follows, or has no replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It votes: it is a founder or was made a voter by an operator, and no policy says otherwise.
    DefaultVoter,
    /// It votes: it is one of the members that a policy asks for.
    Member {
        /// Number of members in the policy.
        count: usize,
        /// Whose policy it is.
        source: Source,
        /// The host's values of the tags over which voters are spread, for display.
        values: String,
    },
    /// It votes in place of these hosts, which are dead or drained.
    ReplacesVoters(Vec<NodeId>),
    /// It takes the vote of a host that votes in more data shards.
    TakesVote(VoteMove),
    /// It gives its vote to a host that votes in fewer data shards.
    GivesVote(VoteMove),
    /// It votes though it is dead: no other host can replace it.
    NoReplacement {
        /// Whether another host could replace it if voters did not have to be in distinct places.
        is_apart: bool,
    },
    /// It votes though the policy does not allow it: too few allowed hosts exist.
    TooFewAllowed,
    /// It votes though it is drained: no other host can replace it.
    DrainedVoter,
    /// It has no vote: there are enough voters.
    EnoughVoters {
        /// The hosts that vote, by number.
        voters: Vec<NodeId>,
    },
    /// It has no vote: a voter has the same values of the tags over which voters are spread.
    SameValues {
        /// The voter with those values.
        voter: NodeId,
        /// The values, for display.
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
        /// Whose policy it is.
        source: Source,
    },
    /// It is a learner: it belongs to this replica group.
    ReplicaGroup {
        /// Name of the group.
        group: String,
        /// Whose policy it is.
        source: Source,
    },
    /// It is a learner: a `cover` policy names its tags.
    Covered(Source),
    /// It has no replica: policies name other hosts.
    NotNamed,
    /// It has not registered yet, so its tags are unknown.
    Unknown,
    /// It is leaving the cluster.
    Leaving,
}

/// A vote that goes from one host to another, so that both vote in about equally many shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteMove {
    /// The host that votes in more data shards.
    pub from: NodeId,
    /// In how many it votes.
    pub from_votes: usize,
    /// The host that votes in fewer data shards.
    pub to: NodeId,
    /// In how many it votes.
    pub to_votes: usize,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::DefaultVoter => {
                f.write_str("it founded the cluster or was added, and no policy says otherwise")
            }
            Reason::Member { count, source, values } => {
                let noun = if *count == 1 { "voter" } else { "voters" };
                write!(f, "one of {count} {noun} {}{}", By(*source), At(values))
            }
            Reason::ReplacesVoters(nodes) => write!(f, "it votes in place of {}", Nodes(nodes)),
            Reason::TakesVote(moved) => write!(
                f,
                "it takes the vote of node {}, which votes in {}, and it in {}",
                moved.from,
                DataShardCount(moved.from_votes),
                moved.to_votes
            ),
            Reason::GivesVote(moved) => write!(
                f,
                "its vote goes to node {}, which votes in {}, and it in {}",
                moved.to,
                DataShardCount(moved.to_votes),
                moved.from_votes
            ),
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
            Reason::NotMember { conditions, source } => {
                write!(f, "no vote: voters need {conditions} {}", By(*source))
            }
            Reason::ReplicaGroup { group, source } => {
                write!(f, "one of the replica group `{group}` {}", By(*source))
            }
            Reason::Covered(source) => write!(f, "its tags are covered {}", By(*source)),
            Reason::NotNamed => f.write_str("the policies name other hosts"),
            Reason::Unknown => f.write_str("it has not announced itself yet"),
            Reason::Leaving => f.write_str("it is leaving the cluster"),
        }
    }
}

/// Whose policy decides.
struct By(Source);

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Cluster => "by the cluster's default",
            Source::Shard => "by the shard's policy",
            Source::Registry => "of the registry, which has five from seven hosts on",
        })
    }
}

struct At<'a>(&'a str);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", at {}", self.0) }
    }
}

/// A number of data shards, in words.
pub(super) struct DataShardCount(pub usize);

impl fmt::Display for DataShardCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} data shard{}", self.0, if self.0 == 1 { "" } else { "s" })
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
