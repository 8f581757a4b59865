//! Views of the cluster as one node sees it: hosts, shards and replicas.
//!
//! Owns the types of the answer. `node::view` fills them, and the protocols decide their
//! representation.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;

use super::{DivisionView, HostInfo, HostRole, HotSlotMoveView, LeadershipTransfer, VoteExchange};
use crate::membership::Role;
use crate::slots::slot_map::SlotMap;
use crate::topology::{HostEntry, Migration, Replica, Shard};
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term};
use crate::version::{ClusterVersion, RaiseBlocker};

/// One node's view of the cluster. The positions of replicas on other nodes are from their last
/// reports, about a second old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The node whose view this is. Other nodes may know more or less.
    pub node: NodeId,
    /// Whether the cluster has a default placement. If so, hosts of the role voter vote where
    /// placement wants them to; otherwise they vote in every shard.
    pub has_default: bool,
    /// The version of the cluster.
    pub version: VersionView,
    /// Every host of the registry, and founders that have not registered yet.
    pub hosts: Vec<HostView>,
    /// Every shard of the registry, by number.
    pub shards: Vec<ShardView>,
    /// Every replica, shard by shard.
    pub replicas: Vec<ReplicaView>,
}

/// What the clients of one node asked for recently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// The node that took the requests.
    pub node: NodeId,
    /// Over how many milliseconds they were counted: half a minute to a minute, less after a start.
    pub window_ms: u64,
    /// The shards that were asked, by number.
    pub shards: Vec<(ShardId, ShardLoad)>,
    /// Keys of which at least one request was sampled, those with most requests first.
    pub keys: Vec<HotKey>,
    /// Beginnings of keys up to a `:` or `/`, those with most requests first.
    pub prefixes: Vec<HotKey>,
    /// See [`NodeStatus::spanning_transactions`](crate::event::NodeStatus::spanning_transactions).
    pub spanning_transactions: u64,
    /// See [`NodeStatus::division`](crate::event::NodeStatus::division).
    pub division: Option<DivisionView>,
    /// The leadership that is transferred next, so that all nodes lead for about equally many
    /// requests, if the node leads the prime shard.
    pub leadership_transfer: Option<LeadershipTransfer>,
    /// The next move of hot slots, if the node leads the prime shard and one is wanted.
    pub slot_move: Option<HotSlotMoveView>,
    /// The next exchange of votes, if the node leads the prime shard and one is wanted.
    pub vote_exchange: Option<VoteExchange>,
}

/// Requests of clients for one shard. A request with several operations counts each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardLoad {
    /// Reads that the shard answered alone.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of the operations that write.
    pub bytes_written: u64,
}

/// A key or prefix with many requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// The key, or the beginning of keys.
    pub key: Bytes,
    /// About how many requests there were, estimated from samples.
    pub requests: u64,
    /// By how much `requests` may be too high because other keys were tracked before it.
    pub error: u64,
}

/// The version of the cluster, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionView {
    /// The version of the registry that this node has applied.
    pub version: ClusterVersion,
    /// The version to which it rises next; `None` if it is the newest that this node knows.
    pub next: Option<ClusterVersion>,
    /// What it waits for, as far as this node sees; empty if `next` is `None`.
    pub blockers: Vec<RaiseBlocker>,
    /// Whether an operator has stopped the rise.
    pub held: bool,
}

/// A host as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// Its announcement. Until it registers, `uuid` is nil and all addresses but the peer address
    /// are empty.
    pub info: HostInfo,
    /// Prime-shard log index at which it registered; 0 if it has not.
    pub created: LogIndex,
    /// Prime-shard log index at which its announcement last changed.
    pub updated: LogIndex,
    /// Whether this node has a connection to it (true for itself).
    pub connected: bool,
    /// Whether its disk takes no writes now, as far as this node knows.
    pub disk_stalled: bool,
    /// The measured offset of its clock from the clock of the answering node, if known.
    pub clock: Option<PeerClock>,
    /// The role that the registry wants it to have.
    pub standing: HostRole,
    /// Whether it should give up leadership as long as other nodes can lead.
    pub draining: bool,
    /// Whether it has been silent for so long that other hosts replace it.
    pub dead: bool,
}

/// The measured offset of a peer's clock from this node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerClock {
    /// The node whose clock was measured.
    pub node: NodeId,
    /// By how many milliseconds its clock is ahead; negative if it is behind.
    pub ahead_ms: i64,
    /// Error bound in milliseconds: half of the round trip of the measurement.
    pub error_ms: i64,
}

impl PeerClock {
    /// Whether the clocks are certainly further apart than [`crate::limits::CLOCK_OFFSET_MS_MAX`].
    pub fn is_beyond_limit(&self) -> bool {
        self.ahead_ms.saturating_abs().saturating_sub(self.error_ms) > crate::limits::CLOCK_OFFSET_MS_MAX
    }
}

/// A shard as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardView {
    /// 0 is the prime shard.
    pub shard: ShardId,
    /// Display name. Only the number is unique.
    pub name: String,
    /// `registry` or `kv`.
    pub kind: &'static str,
    /// The node that leads it, if the answering node knows one.
    pub leader: Option<NodeId>,
    /// Its term, as the answering node knows it.
    pub term: Term,
    /// Number of hash slots that it owns.
    pub slots: u16,
}

/// A replica as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaView {
    /// Never reused, also not for a replica of the same shard and node.
    pub replica: ReplicaId,
    /// The shard that it replicates.
    pub shard: ShardId,
    /// The node on which it runs.
    pub node: NodeId,
    /// Whether it counts towards majorities.
    pub voter: bool,
    /// Highest log index that it has applied; `None` if its node has not reported.
    pub applied: Option<LogIndex>,
    /// The last checkpoint that it completed since its node started.
    pub checkpoint: Option<Checkpoint>,
    /// Whether its node has stopped because the log of another replica contradicts the committed
    /// entries of this one.
    pub diverged: bool,
}

/// Checksum of a replica's state at one log index, taken from the snapshot that the replica made
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Log index of the checkpoint. Only checkpoints at equal indexes are comparable.
    pub index: LogIndex,
    /// CRC-32C over the whole snapshot. Different checksums prove different states.
    pub checksum: u32,
}

/// The tables of the registry as this node has applied them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryView {
    /// Prime-shard log index of the last change.
    pub index: LogIndex,
    /// Every host that ever belonged to the cluster, including removed ones.
    pub host_entries: Vec<(NodeId, HostEntry)>,
    /// Every shard, by number, starting with the prime shard.
    pub shards: Vec<(ShardId, Shard)>,
    /// Every replica, including those that are being removed.
    pub replicas: Vec<(ReplicaId, Replica)>,
    /// The highest replica number assigned so far.
    pub last_replica: ReplicaId,
    /// The highest shard number assigned so far.
    pub last_shard: ShardId,
    /// The slot map: which shard holds which slots.
    pub slots: SlotMap,
    /// Unfinished moves of slots, in the order in which they are carried out.
    pub migrations: Vec<(MigrationId, Migration)>,
    /// The highest move number assigned so far.
    pub last_migration: MigrationId,
    /// The placement policies that shards inherit, by name; `None` if the cluster has no default
    /// placement.
    pub default_tags: Option<BTreeMap<String, String>>,
}

/// Why each replica of a shard is placed where it is, and why other hosts have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Any shard, including the prime shard.
    pub shard: ShardId,
    /// Every host of the cluster, with or without a replica.
    pub hosts: Vec<Explained>,
}

/// The role of a host in a shard, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// A host that has not been removed.
    pub node: NodeId,
    /// Its replica, present or planned; `None` if it has none.
    pub replica: Option<ReplicaId>,
    /// The role that placement wants it to have; `None` if it should have no replica.
    pub role: Option<Role>,
    /// Whether the registry holds the same role. If not, the leader of the prime shard is about to
    /// write it.
    pub is_written: bool,
    /// The reason, as a sentence for an operator.
    pub reason: String,
}
