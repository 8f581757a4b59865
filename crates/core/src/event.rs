//! The boundary of the core: what the shell tells a node ([`Event`]) and what the node asks of it ([`Actions`]).
//!
//! Contract of the shell, on which safety rests:
//! 1. Batches of [`Actions::wal`] are written in order, and [`Event::Durable`] is raised only for what an fsync covered.
//! 2. A failed write or fsync of the log is never retried: the node stops. Only a batch of which nothing was written,
//!    because there is no room or no permission to write now, waits, and all others behind it, until it can be written
//!    ([`Event::DiskStalled`], [`Event::DiskRecovered`]).
//! 3. Frames to one peer arrive in order, whole and once, or not at all; when a connection is lost,
//!    [`Event::LinkDown`] comes before anything of the next one.
//!
//! Everything else (lost or late frames, a stopped clock, a slow disk) costs time, not truth.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;
use core::ops::Range;

use crate::command::config::Name;
use crate::command::{Checkpoint, HostInfo, Refusal, Reply, Request};
use crate::deliberate::Faults;
use crate::storage::snapshot::{SnapshotDone, SnapshotId, SnapshotTask};
use crate::storage::{LogHeld, WalBatch};
use crate::types::{
    LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term, Ticks, Token, UnixMillis, WalSequence,
};

/// What a node is told once, when it starts.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// This host, as it will announce itself. `host.node` is the node's own number.
    pub host: HostInfo,
    /// Peer addresses of all founders, sorted: founder `i` is node `i + 1`. What the registry says of an address
    /// counts for more; that there were so many founders is true for ever.
    pub founders: Vec<String>,
    /// Peer addresses of hosts as the node last knew them, for the time until it knows the registry.
    pub hosts: BTreeMap<NodeId, String>,
    /// The replica of the prime shard that a host which joined was given; founders know theirs.
    pub prime_replica: Option<ReplicaId>,
    /// Data shards that the cluster was founded with, 1 to [`crate::limits::SHARDS_MAX`]; the prime shard comes on top.
    pub data_shards: u64,
    /// Logical durations.
    pub timing: Timing,
    /// Snapshots are made, and the log cut behind them, once its full segments take so many bytes and half as many as all
    /// snapshots.
    pub snapshot_log_bytes_min: u64,
    /// Keys that one step of a move of slots looks at, 1 to [`crate::limits::MOVE_KEYS_PER_STEP_MAX`].
    pub move_step_keys: usize,
    /// Seed of all randomness of the node: election jitter, read contexts. Differs from boot to boot.
    pub seed: u64,
    /// [`Faults::NONE`], except in tests of the simulator.
    pub faults: Faults,
}

/// Logical durations, in ticks of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A follower that hears nothing for this long, plus up to half as much of jitter, stands for election.
    pub election_ticks: u64,
    /// A leader is heard at least this often.
    pub heartbeat_ticks: u64,
    /// Every request is answered after at most this long.
    pub request_ticks: u64,
    /// A host that was not heard of for so long is dead: others take its place where they can.
    pub dead_ticks: u64,
    /// Between two leaderships that a node gives away because it leads more than others; 0: it never does.
    pub balance_ticks: u64,
    /// A request of a client that takes longer is reported in [`Actions::slow`].
    pub slow_request_ticks: u64,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A client asks. Exactly one reply will carry the token.
    Request {
        /// Unique among the requests that are open.
        token: Token,
        /// The request.
        request: Request,
    },
    /// The payload of a frame arrived from a peer whose handshake and checksum were verified.
    Frame {
        /// Which peer.
        from: NodeId,
        /// As it was in [`OutgoingFrame::payload`].
        payload: Bytes,
    },
    /// A connection to the peer stands; frames to it can be sent.
    LinkUp(NodeId),
    /// The connection is lost, and with it whatever was on its way in both directions.
    LinkDown(NodeId),
    /// One tick of time passed.
    Tick,
    /// What time it is by the shell's clock: with each tick, and before each frame and each request
    /// that [needs it](Request::needs_clock). The leader of a shard proposes by it which keys are
    /// overdue and when keys expire that are to live for some time, and nodes compare their clocks
    /// by it. A clock that is wrong, jumps or stands still makes keys go early or late, and nothing
    /// else.
    Clock(UnixMillis),
    /// All log batches up to this one are durable (or, without sync, written).
    Durable(WalSequence),
    /// The log takes no commands for now: a batch that holds some, and all that follow it, waits for room, say, until
    /// [`Event::DiskRecovered`]. Others may still become durable. Repeating it changes nothing.
    DiskStalled(StallReason),
    /// The log takes commands again, and has taken what waited.
    DiskRecovered,
    /// What became of a task of [`Actions::snapshots`].
    Snapshot(SnapshotDone),
    /// How much of the log is kept, and for whom: when the node starts, and whenever that changes.
    LogHeld(LogHeld),
    /// The node is about to stop: hand leadership over, take no new leadership.
    Retire,
}

/// Why the log takes no commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallReason {
    /// The disk refuses writes: it is full or read-only.
    Refused,
    /// An operation has been under way for longer than an election timeout, as
    /// [`SlowDiskDetector`](crate::storage::slow_disk::SlowDiskDetector) tells it.
    Slow,
}

/// What the node wants done. The shell drains it after each [`drive`](crate::node::Node::drive).
#[derive(Debug, Default)]
pub struct Actions {
    /// To be sent, in order for each peer.
    pub frames: Vec<OutgoingFrame>,
    /// To be appended to the log and made durable.
    pub wal: Option<WalBatch>,
    /// To be done to snapshot files, in order for each shard except for reads, without delaying the log. The shell paces
    /// them: requests go first, but what is being made grows at least
    /// [`WALK_BYTES_PER_LOG_BYTE`](crate::node::WALK_BYTES_PER_LOG_BYTE) times as fast as the log.
    pub snapshots: Vec<SnapshotTask>,
    /// To be returned to clients.
    pub replies: Vec<(Token, Reply)>,
    /// To be logged: requests that took longer than [`Timing::slow_request_ticks`], at most
    /// [`crate::limits::SLOW_REQUESTS_MAX`] a drive. All are counted in
    /// [`Counters::slow_requests`].
    pub slow: Vec<SlowRequest>,
    /// Whose configuration changed here. Whoever watches it should look.
    pub config: Vec<ConfigNews>,
    /// Slots whose shards are not replicated here, or were not the last time, told once an election timeout while there
    /// are any. Nobody hears of changes there: whoever watches configuration in them should look, too.
    pub elsewhere: Vec<Range<u16>>,
    /// From now on these are the peers, at these addresses. To be taken in after `frames` were queued: there may be a
    /// farewell among them to one that is no peer any more. The first drive of a node's life has them.
    pub peers: Option<Vec<(NodeId, String)>>,
    /// The node must stop, after it has sent `frames`, which tell the others: its state and that of a peer exclude each
    /// other, and no later event can mend that.
    pub contradiction: Option<Contradiction>,
}

/// Two replicas of a shard that exclude each other: an entry is committed in one, and the other has another one in its place,
/// or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Contradiction {
    /// Whose replicas.
    pub shard: ShardId,
    /// The other node.
    pub peer: NodeId,
    /// The entry.
    pub index: LogIndex,
    /// The term of the entry that is committed here; `None` if the entry is committed there and this node, which leads,
    /// has none.
    pub held: Option<Term>,
    /// The term in which the peer has it, or speaks of it.
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

/// A request of a client that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    /// `write` or `read`.
    pub kind: &'static str,
    /// The shard that it is for, if it is for one.
    pub shard: Option<ShardId>,
    /// The peer that it was with when it was answered, or given up.
    pub peer: Option<NodeId>,
    /// From its arrival to its answer.
    pub waited: Ticks,
    /// Why it was not done, if it was refused.
    pub refusal: Option<Refusal>,
}

/// Word of configuration that is not what it was, on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigNews {
    /// Of which namespace.
    pub namespace: Name,
    /// The containers that resolve to something else, or are gone.
    pub containers: Vec<Arc<str>>,
}

/// Bytes for one peer.
#[derive(Clone, Debug)]
pub struct OutgoingFrame {
    /// Which peer.
    pub to: NodeId,
    /// At most [`crate::limits::PEER_FRAME_BYTES_MAX`] bytes.
    pub payload: Bytes,
    /// Whether the shell may drop it when its queue is full: raft's messages, which raft repeats. Other frames
    /// are bounded by the core ([`crate::limits::FORWARD_BYTES_MAX`]) and must be kept or the link be cut.
    pub droppable: bool,
}

/// What a node can say about itself at any moment, for health checks and metrics.
#[derive(Clone, Debug, Default)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeId,
    /// Ticks since it started.
    pub now: Ticks,
    /// Whether it was told to retire.
    pub retiring: bool,
    /// Whether it was removed from the cluster: it has nothing more to do, and should stop for good.
    pub removed: bool,
    /// Whether its disk takes no writes for now, or is slow.
    pub disk_stalled: bool,
    /// Whether its disk was slow until recently, so that the node leads only what no other node can.
    pub disk_unsteady: bool,
    /// Peers that say so of their disks.
    pub peers_stalled: Vec<NodeId>,
    /// Requests not answered yet.
    pub requests_open: usize,
    /// Its replicas.
    pub shards: Vec<ShardStatus>,
    /// Its peers and whether each can be reached: a connection stands, and the peer sends frames
    /// through it.
    pub links: Vec<(NodeId, bool)>,
    /// Peers to which a connection stands, and that have sent nothing for two election timeouts: a
    /// process that is stopped, or a network that loses everything.
    pub silent: Vec<NodeId>,
    /// How far the clocks of peers are from this node's, of those that it could measure.
    pub clocks: Vec<PeerClock>,
    /// Moves of slots that it drives.
    pub moves: Vec<MoveStatus>,
    /// Totals since it started.
    pub counters: Counters,
}

/// How far the clock of a peer is from this node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerClock {
    /// The peer.
    pub node: NodeId,
    /// By how many milliseconds its clock is ahead; negative if it is behind.
    pub ahead_ms: i64,
    /// By how much that may be wrong: half of the round trip that it was measured with.
    pub error_ms: i64,
}

impl PeerClock {
    /// Whether it is certain that the clocks are further apart than
    /// [`crate::limits::CLOCK_OFFSET_MS_MAX`].
    pub fn is_beyond_limit(&self) -> bool {
        self.ahead_ms.saturating_abs().saturating_sub(self.error_ms) > crate::limits::CLOCK_OFFSET_MS_MAX
    }
}

/// A move of slots, as the leader of its giver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveStatus {
    /// Which.
    pub migration: MigrationId,
    /// The giver.
    pub from: ShardId,
    /// The receiver.
    pub to: ShardId,
    /// Parts of the copy that the receiver has.
    pub parts: u64,
    /// Whether the giver does not own the slots any more.
    pub is_frozen: bool,
}

/// One replica of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardStatus {
    /// Whose replica.
    pub shard: ShardId,
    /// Which.
    pub replica: ReplicaId,
    /// The leader, if one is known.
    pub leader: Option<NodeId>,
    /// Whether this node leads.
    pub leads: bool,
    /// Current term.
    pub term: Term,
    /// Highest index known to be committed.
    pub committed: LogIndex,
    /// Highest index applied.
    pub applied: LogIndex,
    /// Last index of the log.
    pub last: LogIndex,
    /// The index before the log's first entry: what came up to here is held by a snapshot alone.
    pub log_begin: LogIndex,
    /// Keys held.
    pub keys: u64,
    /// Bytes of commands in the log that is held in memory.
    pub log_bytes: u64,
    /// Whether this replica votes.
    pub votes: bool,
    /// The newest durable snapshot.
    pub snapshot: Option<SnapshotId>,
    /// Size of its file, 0 if there is none.
    pub snapshot_bytes: u64,
    /// Whether another one is in the making.
    pub makes_snapshot: bool,
    /// The last move of slots that it took part in; 0: none.
    pub last_move: MigrationId,
    /// Whether that is not over for it.
    pub is_moving: bool,
    /// The last checkpoint that was completed since the node started.
    pub checkpoint: Option<Checkpoint>,
    /// Whether a peer's log contradicts what is committed here.
    pub diverged: bool,
}

/// Totals since the node started. Each only rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Writes taken from clients of this node.
    pub writes: u64,
    /// Linearizable reads taken from clients of this node.
    pub reads_linearizable: u64,
    /// Stale reads taken from clients of this node.
    pub reads_stale: u64,
    /// Commands handed to the leader on another node.
    pub forwarded: u64,
    /// Raft entries proposed here.
    pub entries_proposed: u64,
    /// Commands inside them.
    pub commands_proposed: u64,
    /// ReadIndex rounds begun here.
    pub read_rounds: u64,
    /// Raft entries applied here.
    pub entries_applied: u64,
    /// Times a replica of this node became leader.
    pub leaderships: u64,
    /// Refusals for want of a leader.
    pub refused_no_leader: u64,
    /// Outcomes reported as unknown.
    pub refused_unknown: u64,
    /// Refusals for a full queue.
    pub refused_overloaded: u64,
    /// Refusals because a disk takes no writes.
    pub refused_disk_unavailable: u64,
    /// Frames from peers that could not be decoded.
    pub frames_invalid: u64,
    /// Requests of clients that took longer than [`Timing::slow_request_ticks`].
    pub slow_requests: u64,
}
