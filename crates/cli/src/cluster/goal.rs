//! The goal of a `cluster` command: its request, and its texts. A node decides whether it is
//! reached.

/// A goal. Nodes and shards are given by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The node may vote.
    Votes(u64),
    /// The node follows in every shard, without a vote.
    Follows(u64),
    /// The node leads no shard.
    LeadsNothing(u64),
    /// The node may lead shards again.
    MayLead(u64),
    /// The node is no longer a member of the cluster.
    Gone(u64),
    /// The node leads a certain shard.
    Leads {
        shard: u64,
        /// The node that should lead it.
        node: u64,
    },
}

impl Goal {
    /// The path of its `POST` request, and of its progress by `GET`.
    pub fn target(self) -> String {
        match self {
            Goal::Votes(node) => format!("/v1/cluster/hosts/{node}/add"),
            Goal::Follows(node) => format!("/v1/cluster/hosts/{node}/follow"),
            Goal::LeadsNothing(node) => format!("/v1/cluster/hosts/{node}/drain"),
            Goal::MayLead(node) => format!("/v1/cluster/hosts/{node}/undrain"),
            Goal::Gone(node) => format!("/v1/cluster/hosts/{node}/remove"),
            Goal::Leads { shard, node } => format!("/v1/cluster/shards/{shard}/transfer?to={node}"),
        }
    }

    /// The node that will have stopped when the goal is reached.
    pub fn leaving(self) -> Option<u64> {
        match self {
            Goal::Gone(node) => Some(node),
            _ => None,
        }
    }

    /// A sentence for the reached goal.
    pub fn reached(self) -> String {
        match self {
            Goal::Votes(node) => format!("node {node} may vote"),
            Goal::Follows(node) => format!("node {node} follows without a vote"),
            Goal::LeadsNothing(node) => format!("node {node} leads nothing"),
            Goal::MayLead(node) => format!("node {node} may lead again"),
            Goal::Gone(node) => format!("node {node} is removed"),
            Goal::Leads { shard, node } => format!("node {node} leads shard {shard}"),
        }
    }

    /// A sentence for the recorded request.
    pub fn wanted(self) -> String {
        match self {
            Goal::Votes(node) => format!("node {node} is to vote"),
            Goal::Follows(node) => format!("node {node} is to follow without a vote"),
            Goal::LeadsNothing(node) => format!("node {node} is to lead nothing"),
            Goal::MayLead(node) => format!("node {node} may lead again"),
            Goal::Gone(node) => format!("node {node} is to leave"),
            Goal::Leads { shard, node } => format!("node {node} is to lead shard {shard}"),
        }
    }

    /// Whether the cluster pursues the goal by itself. It does not for a transfer of leadership.
    pub fn is_lasting(self) -> bool {
        !matches!(self, Goal::Leads { .. })
    }
}
