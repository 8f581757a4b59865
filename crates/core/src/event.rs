//! The boundary of the core: [`Event`]s from the shell to a node, and [`Actions`] from the node to
//! the shell.
//!
//! The contract of the shell, on which safety depends:
//! 1. It writes batches of [`Actions::wal`] in order, and raises [`Event::Durable`] only for
//!    batches that an fsync covered.
//! 2. It never retries a failed write or fsync of the log: the node stops. The one exception is a
//!    batch of which nothing was written because the disk is full or read-only. That batch and all
//!    later ones wait until they can be written ([`Event::DiskStalled`], [`Event::DiskRecovered`]).
//! 3. Frames to one peer arrive in order, whole and once, or not at all. When a connection is lost,
//!    [`Event::LinkDown`] comes before anything of the next connection.
//!
//! Everything else (lost or late frames, a stopped clock, a slow disk) affects availability, not
//! correctness.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;
use core::ops::Range;

use crate::auth::Caller;
pub use crate::command::PeerClock;
pub use crate::command::config::ConfigUpdate;
use crate::command::{
    ChangedKeys, Checkpoint, DivisionView, HostInfo, HotSlotMove, LeadershipTransfer, Publication, Refusal,
    Reply, Request, VoteExchange,
};
use crate::deliberate::Faults;
use crate::founding::Founding;
use crate::slots::slot_set::SlotSet;
use crate::spans::{SpanEvent, TraceContext};
use crate::storage::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};
use crate::storage::{LogHeld, WalBatch};
use crate::trace::TraceEvent;
use crate::types::{
    LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term, Ticks, Token, UnixMillis, Version, WalSequence,
};
use crate::version::{ClusterVersion, SupportedVersions};

/// Options of a node, set at its start.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// This host, as it announces itself. `host.node` is the node's own number.
    pub host: HostInfo,
    /// Peer addresses of all founders, sorted: founder `i` is node `i + 1`. Addresses in the
    /// registry take precedence. The number of founders never changes.
    pub founders: Vec<String>,
    /// Last known peer addresses of hosts, used until the node knows the registry.
    pub hosts: BTreeMap<NodeId, String>,
    /// The replica of the prime shard that a joining host was given. Founders compute theirs.
    pub prime_replica: Option<ReplicaId>,
    /// Number of data shards with which the cluster was founded, 1 to
    /// [`crate::limits::SHARDS_MAX`], not counting the prime shard.
    pub data_shards: u64,
    /// See [`Founding::replicas`].
    pub replicas: Option<u64>,
    /// See [`Founding::shard_tags`].
    pub shard_tags: BTreeMap<String, String>,
    /// See [`Founding::automatic_division`].
    pub automatic_division: bool,
    /// The version at which the cluster was founded.
    pub founding_version: ClusterVersion,
    /// The version that the data directory has recorded: see [`Actions::version`]. At least
    /// `founding_version`.
    pub version: ClusterVersion,
    /// Timeouts and intervals, in ticks.
    pub timing: Timing,
    /// When data shards are divided.
    pub division: DivisionTiming,
    /// Minimum size, in bytes, of the full log segments before a snapshot is made and the log is
    /// cut. They must also take half as much as all snapshots.
    pub snapshot_log_bytes_min: u64,
    /// Keys that one step of a move of slots inspects, 1 to
    /// [`crate::limits::MOVE_KEYS_PER_STEP_MAX`].
    pub move_step_keys: usize,
    /// Seed of all randomness of the node: election jitter, read contexts. It differs between
    /// starts.
    pub seed: u64,
    /// [`Faults::NONE`], except in tests of the simulator.
    pub faults: Faults,
}

impl NodeOptions {
    /// The founding of the node's cluster.
    pub fn founding(&self) -> Founding {
        Founding {
            founders: self.founders.len() as u64,
            data_shards: self.data_shards,
            replicas: self.replicas,
            shard_tags: self.shard_tags.clone(),
            automatic_division: self.automatic_division,
        }
    }
}

/// Logical durations, in ticks of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Length of a tick in milliseconds. A wall clock that advances by more than the ticks was
    /// stepped.
    pub tick_ms: u64,
    /// A follower that hears from no leader for this long, plus up to half as much jitter, stands
    /// for election.
    pub election_ticks: u64,
    /// Maximum interval between messages of a leader.
    pub heartbeat_ticks: u64,
    /// Maximum time until a request is answered.
    pub request_ticks: u64,
    /// A host that was silent for this long is dead: other hosts replace it where they can.
    pub dead_ticks: u64,
    /// Minimum time between two leaderships that are transferred so that all nodes lead for about
    /// equally many requests; 0: none is.
    pub balance_ticks: u64,
    /// A node that has not confirmed the registry for this long refuses the requests of principals,
    /// because their permissions may have changed. At least 8.
    pub access_stale_ticks: u64,
    /// How long after its start a founder with an empty directory waits for connections to all
    /// other founders before it takes part in elections. Longer than a running peer needs to
    /// connect.
    pub founding_ticks: u64,
    /// A client request that takes longer is reported in [`Actions::slow`].
    pub slow_request_ticks: u64,
}

/// When data shards are divided automatically: see [`crate::control::division`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DivisionTiming {
    /// Interval between two reports of a node's load to the leader of the prime shard; at least 1.
    pub report_ticks: u64,
    /// A data shard with this many requests a second is busy.
    pub busy_requests_per_second: u64,
    /// For how many intervals in a row a shard is busy before another one is wanted.
    pub busy_intervals: u64,
    /// How long a transaction that spans slots holds a division back.
    pub memory_ticks: u64,
    /// How long neither slots nor replicas have moved before a division.
    pub rest_ticks: u64,
}

/// An input of a node.
#[derive(Debug)]
pub enum Event {
    /// A client request. Exactly one reply will carry the token.
    Request {
        /// Unique among the open requests.
        token: Token,
        /// Who makes it. The shell has authenticated the caller.
        caller: Caller,
        /// Checked by the node: an invalid request is answered with a refusal.
        request: Request,
        /// Set if the request is traced: see [`Actions::spans`].
        trace: Option<TraceContext>,
    },
    /// The payload of a frame from a peer whose handshake and checksum were verified.
    Frame {
        /// The node at the other end of the connection.
        from: NodeId,
        /// [`OutgoingFrame::payload`] of the sender.
        payload: Bytes,
    },
    /// What a peer said in the handshake of a connection. Comes before [`Event::LinkUp`].
    PeerVersions {
        /// The peer.
        peer: NodeId,
        /// The versions that its release supports.
        supported: SupportedVersions,
        /// The newest version of anything that it may send.
        recorded: ClusterVersion,
    },
    /// A connection to the peer is established; frames to it can be sent.
    LinkUp(NodeId),
    /// The connection is lost, together with all frames in transit in both directions.
    LinkDown(NodeId),
    /// One tick of time passed.
    Tick,
    /// The wall-clock time of the shell. It comes with each tick, and before each frame and each
    /// request that [needs it](Request::needs_clock). The leader of a shard uses it to propose the
    /// removal of overdue keys and to make relative expiries absolute, and nodes compare their
    /// clocks by it. A clock that is wrong, jumps or stands still only makes keys expire early or
    /// late.
    Clock(UnixMillis),
    /// All log batches up to this one are durable (or, without sync, written).
    Durable(WalSequence),
    /// The log takes no commands for now. A batch that holds commands, and all batches after it,
    /// wait until [`Event::DiskRecovered`], for example for free space. Earlier batches may still
    /// become durable. Repeating the event changes nothing.
    DiskStalled(StallReason),
    /// The log takes commands again, and has taken the batches that waited.
    DiskRecovered,
    /// Result of a task of [`Actions::snapshots`].
    Snapshot(SnapshotDone),
    /// So many more transactions of clients had keys of several slots of one shard. A division of
    /// the shard may part such keys.
    SpanningTransactions(u64),
    /// How much of the log is kept, and for which shard. Sent at the start and after each change.
    LogHeld(LogHeld),
    /// No client of this node watches keys any more. A read of changes makes the node report them
    /// again.
    KeysUnwatched,
    /// The node is about to stop: transfer leadership, accept no new leadership.
    Retire,
}

/// Why the log takes no commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallReason {
    /// The disk refuses writes: it is full or read-only.
    Refused,
    /// An operation has been in progress for longer than an election timeout, as
    /// [`SlowDiskDetector`](crate::storage::slow_disk::SlowDiskDetector) detects.
    Slow,
}

/// Outputs of a node. The shell drains them after each [`drive`](crate::node::Node::drive).
#[derive(Debug, Default)]
pub struct Actions {
    /// Frames to send, in order for each peer.
    pub frames: Vec<OutgoingFrame>,
    /// Records to append to the log and make durable.
    pub wal: Option<WalBatch>,
    /// The version that the data directory must record durably before `wal`, `snapshots` and all
    /// later ones are written. A release that does not support it must not start on the directory.
    pub version: Option<ClusterVersion>,
    /// Tasks on snapshot files, in order for each shard except for reads. They must not delay the
    /// log. The shell paces them: requests go first, but an unfinished snapshot grows at least
    /// [`WALK_BYTES_PER_LOG_BYTE`](crate::node::WALK_BYTES_PER_LOG_BYTE) times as fast as the log.
    pub snapshots: Vec<SnapshotTask>,
    /// Each token of an [`Event::Request`] occurs once, in any order.
    pub replies: Vec<(Token, Reply)>,
    /// Whether to pass on `replies` before `frames`, because all of these only tell followers what
    /// is committed, and nobody waits for that. It makes replies faster and changes nothing else.
    pub replies_first: bool,
    /// Requests to log because they took longer than [`Timing::slow_request_ticks`], at most
    /// [`crate::limits::SLOW_REQUESTS_MAX`] for each drive. [`Counters::slow_requests`] counts all
    /// of them.
    pub slow: Vec<SlowRequest>,
    /// What happened in the consensus of the shards, in order for each shard, for logs and traces.
    /// At most [`crate::limits::TRACE_EVENTS_MAX`] for each shard and drive.
    pub trace: Vec<TraceEvent>,
    /// What happened to traced requests, in order. At most [`crate::limits::SPANS_OPEN_MAX`] spans
    /// are open at once; the node does not trace further requests.
    pub spans: Vec<SpanEvent>,
    /// Configuration that changed on this node. The shell notifies the clients that watch it.
    pub config: Vec<ConfigUpdate>,
    /// Keys that changed on this node since a client first asked for changes. The shell notifies
    /// the clients that watch them.
    pub keys: Vec<KeyReport>,
    /// Slots whose shards have no replica here, or had none in the previous report. Reported once
    /// each election timeout while there are any. This node gets no [`ConfigUpdate`] for them, so
    /// clients that watch configuration in these slots should query it.
    pub remote_slots: Vec<Range<u16>>,
    /// Slots whose shards have a replica here that knows no leader, so that this node may not learn
    /// of changes. Reported once each election timeout while there are any and [`Actions::keys`]
    /// are reported. Clients that cache keys of these slots should drop them.
    pub leaderless_slots: Vec<Range<u16>>,
    /// Messages for the clients of this node that have subscribed to their channels. Messages that
    /// were published through the same node are in the order of their publication.
    pub publications: Vec<Publication>,
    /// The new set of peers with their addresses. Apply it after queueing `frames`, because the
    /// last frame to a removed peer may be among them. The first drive of a node always sets it.
    pub peers: Option<Vec<(NodeId, String)>>,
    /// Set if the node must stop after sending `frames`, which inform the other nodes. Its
    /// committed log and that of a peer contradict each other, and no later event can repair that.
    pub contradiction: Option<Contradiction>,
}

/// Changes of keys of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReport {
    /// The slots that the shard owns.
    pub slots: SlotSet,
    /// The report contains every change of these slots since the last one, up to this revision.
    pub revision: Version,
    /// Which keys.
    pub keys: ChangedKeys,
}

/// Two replicas of a shard with contradicting logs: an entry is committed in one, and the other has
/// a different entry or none at the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Contradiction {
    /// The shard of the two replicas.
    pub shard: ShardId,
    /// The node of the other replica.
    pub peer: NodeId,
    /// Index at which the two logs contradict each other.
    pub index: LogIndex,
    /// The term of the entry that is committed here; `None` if the entry is committed on the peer
    /// and is missing on this node, which leads.
    pub held: Option<Term>,
    /// The term of the entry on the peer, or of the peer's message.
    pub sent: Term,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Contradiction { shard, peer, index, held, sent } = self;
        match held {
            Some(held) => write!(
                f,
                "shard {shard}: entry {index} of term {held} is committed here, and node {peer} sends one of term {sent} in \
                 its place"
            ),
            None => write!(
                f,
                "shard {shard}: entry {index} is committed on node {peer}, and this node leads in term {sent} without it"
            ),
        }
    }
}

/// A client request that took longer than [`Timing::slow_request_ticks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    /// `write` or `read`.
    pub kind: &'static str,
    /// Its shard, if it is for a single shard.
    pub shard: Option<ShardId>,
    /// The peer that held it when it was answered or timed out.
    pub peer: Option<NodeId>,
    /// Time from its arrival to its answer.
    pub waited: Ticks,
    /// Why it was refused, if it was.
    pub refusal: Option<Refusal>,
}

/// A frame for one peer, to be sent whole and at most once.
#[derive(Clone, Debug)]
pub struct OutgoingFrame {
    /// The peer that should receive it.
    pub to: NodeId,
    /// At most [`crate::limits::PEER_FRAME_BYTES_MAX`] bytes.
    pub payload: Bytes,
    /// Whether the shell may drop it when its queue is full. This holds for Raft messages, which
    /// Raft repeats. The core bounds all other frames ([`crate::limits::FORWARD_BYTES_MAX`]); the
    /// shell must keep them or close the connection.
    pub droppable: bool,
}

/// Status of a node, for health checks and metrics.
#[derive(Clone, Debug, Default)]
pub struct NodeStatus {
    /// This node's number.
    pub node: NodeId,
    /// Ticks since it started.
    pub now: Ticks,
    /// Whether it has received [`Event::Retire`].
    pub retiring: bool,
    /// Whether it was removed from the cluster. It has nothing more to do, and should stop for
    /// good.
    pub removed: bool,
    /// Whether its disk takes no writes for now, or is slow.
    pub disk_stalled: bool,
    /// Whether its disk was slow until recently. Such a node leads only shards that no other node
    /// can lead.
    pub disk_unsteady: bool,
    /// Peers that report a stalled disk.
    pub peers_stalled: Vec<NodeId>,
    /// Number of unanswered requests of clients, of peers, and of the node itself.
    pub requests_open: usize,
    /// The replicas that run on it.
    pub shards: Vec<ShardStatus>,
    /// Its peers, and whether each is reachable: a connection is established and the peer sends
    /// frames.
    pub links: Vec<(NodeId, bool)>,
    /// Peers with an established connection that have sent nothing for two election timeouts: the
    /// process is stopped, or the network loses everything.
    pub silent: Vec<NodeId>,
    /// Offsets of the clocks of peers, as far as they were measured.
    pub clocks: Vec<PeerClock>,
    /// Moves of slots that it drives.
    pub moves: Vec<MoveStatus>,
    /// Transactions of the last hour of its clients that had keys of several slots of one shard.
    pub spanning_transactions: u64,
    /// How many data shards there should be, if it leads the prime shard and the cluster is divided
    /// automatically.
    pub division: Option<DivisionView>,
    /// The last transfer of a leadership for which it asked, so that all nodes lead for about
    /// equally many requests, and when it asked.
    pub leadership_asked: Option<(Ticks, LeadershipTransfer)>,
    /// The last move of hot slots that it proposed, and when it did.
    pub slot_move_planned: Option<(Ticks, HotSlotMove)>,
    /// The last exchange of votes by load that it proposed, and when it did.
    pub vote_exchange_planned: Option<(Ticks, VoteExchange)>,
    /// Totals since it started.
    pub counters: Counters,
}

impl NodeStatus {
    /// How many nodes can be reached, and how many there are; this node counts in both.
    pub fn reachable_nodes(&self) -> (usize, usize) {
        (1 + self.links.iter().filter(|(_, connected)| *connected).count(), 1 + self.links.len())
    }

    /// Whether this node reaches a majority of nodes. Leaders step down only an election timeout
    /// later, so a lost majority is noticed here first.
    pub fn reaches_majority(&self) -> bool {
        let (reachable, nodes) = self.reachable_nodes();
        reachable > nodes / 2
    }
}

/// A move of slots, as the leader of its giver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveStatus {
    /// The number of the move.
    pub migration: MigrationId,
    /// The giver, which this node leads.
    pub from: ShardId,
    /// The receiver, led by any node.
    pub to: ShardId,
    /// Number of parts of the copy that the receiver has.
    pub parts: u64,
    /// Whether the giver has given up ownership of the slots.
    pub is_frozen: bool,
}

/// Status of one replica of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardStatus {
    /// The shard that the replica belongs to.
    pub shard: ShardId,
    /// The number of the replica; never reused.
    pub replica: ReplicaId,
    /// The leader, if one is known.
    pub leader: Option<NodeId>,
    /// Whether this node leads the shard.
    pub leads: bool,
    /// Whether a restart would keep the term and the vote in it. A single voter is elected before
    /// that, and sends and commits nothing until then: if it fails first, another replica may be
    /// elected in the same term.
    pub is_term_durable: bool,
    /// The latest term that the replica has seen.
    pub term: Term,
    /// Highest index known to be committed.
    pub committed: LogIndex,
    /// Highest index applied; at most `committed`.
    pub applied: LogIndex,
    /// Last index of the log, committed or not.
    pub last: LogIndex,
    /// The index before the log's first entry. Entries up to here are contained in a snapshot only.
    pub log_begin: LogIndex,
    /// Number of keys; for the prime shard, number of hosts.
    pub keys: u64,
    /// Bytes of commands in the part of the log that is in memory.
    pub log_bytes: u64,
    /// Whether this replica counts towards majorities.
    pub votes: bool,
    /// The newest durable snapshot; `None` before the first one.
    pub snapshot: Option<SnapshotId>,
    /// Size of that snapshot's file in bytes; 0 if there is none.
    pub snapshot_bytes: u64,
    /// Whether a snapshot is being made.
    pub makes_snapshot: bool,
    /// The last move of slots in which it took part; 0: none.
    pub last_move: MigrationId,
    /// Whether that move is unfinished on this replica.
    pub is_moving: bool,
    /// The slots that this replica's state owns; `None` for the prime shard.
    pub slots: Option<SlotSet>,
    /// The last checkpoint completed since the node started.
    pub checkpoint: Option<Checkpoint>,
    /// Whether a peer's log contradicts the entries committed here.
    pub diverged: bool,
}

/// Totals since the node started. They never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Writes received from clients of this node.
    pub writes: u64,
    /// Linearizable reads received from clients of this node.
    pub reads_linearizable: u64,
    /// Stale reads received from clients of this node.
    pub reads_stale: u64,
    /// Commands forwarded to the leader on another node.
    pub forwarded: u64,
    /// Raft entries proposed here.
    pub entries_proposed: u64,
    /// Commands in these entries.
    pub commands_proposed: u64,
    /// ReadIndex rounds begun here.
    pub read_rounds: u64,
    /// Raft entries applied here.
    pub entries_applied: u64,
    /// Times a replica of this node became leader.
    pub leaderships: u64,
    /// Requests refused because no leader was known.
    pub refused_no_leader: u64,
    /// Requests answered with an unknown outcome.
    pub refused_unknown: u64,
    /// Requests refused because a queue was full.
    pub refused_overloaded: u64,
    /// Requests refused because a disk takes no writes.
    pub refused_disk_unavailable: u64,
    /// Frames from peers that could not be decoded.
    pub frames_invalid: u64,
    /// Requests of clients that took longer than [`Timing::slow_request_ticks`].
    pub slow_requests: u64,
    /// Publications that were not sent to a peer, see
    /// [`crate::limits::PUBLICATION_BYTES_UNACKNOWLEDGED_MAX`].
    pub publications_dropped: u64,
}
