//! What a node can show of its cluster: hosts, shards and replicas as it sees them.
//!
//! Owns the shape of the answer. Who fills it is `node::view`, how it looks to a client the protocols decide.

use alloc::string::String;
use alloc::vec::Vec;

use super::{HostInfo, Standing};
use crate::control::registry::Seat;
use crate::control::registry::migrations::Migration;
use crate::control::registry::tables::{Replica, Shard};
use crate::control::slot_map::SlotMap;
use crate::event::PeerClock;
use crate::membership::Role;
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term};

/// One node's view of the cluster. Positions of other nodes are what they last reported, about a second ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The node that answers.
    pub node: NodeId,
    /// Every host of the registry, and founders that have not registered yet.
    pub hosts: Vec<HostView>,
    /// Every shard.
    pub shards: Vec<ShardView>,
    /// Every replica.
    pub replicas: Vec<ReplicaView>,
}

/// A host as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// What it announced; `uuid` is nil and addresses other than the peer's are empty until it has.
    pub info: HostInfo,
    /// Prime-shard log index at which the registry first saw it, 0 if never.
    pub created: LogIndex,
    /// Prime-shard log index at which its announcement last changed.
    pub updated: LogIndex,
    /// Whether this node has a connection to it (true for itself).
    pub connected: bool,
    /// How far its clock is from that of the node that answers, if that was measured.
    pub clock: Option<PeerClock>,
    /// What is wanted of it.
    pub standing: Standing,
    /// Whether it should lead nothing.
    pub draining: bool,
    /// Whether it has been silent for so long that others take its place.
    pub dead: bool,
}

/// A shard as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardView {
    /// Its id.
    pub shard: ShardId,
    /// Its name.
    pub name: String,
    /// `registry` or `kv`.
    pub kind: &'static str,
    /// The node that leads it, if this node knows one.
    pub leader: Option<NodeId>,
    /// This node's term of it.
    pub term: Term,
    /// How many hash slots it owns.
    pub slots: u16,
}

/// A replica as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaView {
    /// Its id.
    pub replica: ReplicaId,
    /// The shard it replicates.
    pub shard: ShardId,
    /// The node that carries it.
    pub node: NodeId,
    /// Whether it votes.
    pub voter: bool,
    /// How far it has applied the log; `None` if its node has not reported.
    pub applied: Option<LogIndex>,
    /// The last checkpoint that it has completed since its node started.
    pub checkpoint: Option<Checkpoint>,
    /// Whether its node has stopped because another replica's log contradicts what is committed in this one.
    pub diverged: bool,
}

/// The state of a replica at one index of its log, as a checksum: that of the snapshot which the replica made there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where the checkpoint stands in the log. Replicas are comparable at equal indexes only.
    pub index: LogIndex,
    /// CRC-32C over the whole snapshot. Different ones prove different states.
    pub checksum: u32,
}

/// The tables of the registry as this node has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryView {
    /// Prime-shard log index of the last change.
    pub index: LogIndex,
    /// Every host that was ever one of the cluster's, those that were removed included.
    pub seats: Vec<(NodeId, Seat)>,
    /// Every shard.
    pub shards: Vec<(ShardId, Shard)>,
    /// Every replica, those on their way out included.
    pub replicas: Vec<(ReplicaId, Replica)>,
    /// The highest number of a replica that was given out.
    pub last_replica: ReplicaId,
    /// The highest number of a shard that was given out.
    pub last_shard: ShardId,
    /// Which shard holds which slots.
    pub slots: SlotMap,
    /// Moves of slots that are not finished, in the order in which they are done.
    pub migrations: Vec<(MigrationId, Migration)>,
    /// The highest number of a move that was given out.
    pub last_migration: MigrationId,
}

/// Why each replica of a shard is where it is, and why other hosts have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Which shard.
    pub shard: ShardId,
    /// Every host of the cluster.
    pub hosts: Vec<Explained>,
}

/// What a host is to a shard, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The host.
    pub node: NodeId,
    /// The replica that it has, or is about to have.
    pub replica: Option<ReplicaId>,
    /// What placement wants it to be; nothing, if it should have no replica.
    pub role: Option<Role>,
    /// Whether the registry says so too. If not, the leader of the prime shard is about to write it down.
    pub is_written: bool,
    /// Why.
    pub reason: String,
}
