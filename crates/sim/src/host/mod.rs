//! A simulated host: a disk that lasts, and a process that starts and stops.
//!
//! Owns the shell around the core, in the server's order: collect events, `handle` each, `drive`,
//! execute the actions. `disk_threads` has the threads that use the disk, `old_copies` what happens
//! to a host whose disk is put back. This is the only module that touches [`Node`] and the
//! write-ahead log. The run decides when things happen.

mod addresses;
mod disk_threads;
mod old_copies;
mod releases;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tidelock_core::address_book::AddressBook;
use tidelock_core::audit::AuditTrail;
use tidelock_core::auth::{Access, Caller};
use tidelock_core::command::{
    Consistency, HostInfo, HostRole, Publication, Read, RegistryView, Reply, Request, Write as Command,
};
use tidelock_core::event::{
    Actions, ConfigUpdate, Contradiction, Event, KeyReport, NodeOptions, NodeStatus, OutgoingFrame,
    StallReason,
};
use tidelock_core::handshake::{HandshakeRefusal, HandshakeSide, Introduction, KnownPeer};
use tidelock_core::membership::Membership;
use tidelock_core::node::Node;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::spans::SpanEvent;
use tidelock_core::starts::{KnownStart, KnownStarts, ProcessStart};
use tidelock_core::storage::group_commit::{CommitStep, GroupCommit, GroupCommitOptions};
use tidelock_core::storage::slow_disk::SlowDiskDetector;
use tidelock_core::storage::snapshot::SnapshotTask;
use tidelock_core::storage::snapshot_files::SnapshotFiles;
use tidelock_core::storage::wal::WalOptions;
use tidelock_core::storage::{LogHeld, recovery};
use tidelock_core::trace::TraceEvent;
use tidelock_core::types::{LogIndex, NodeId, ReplicaId, ShardId, Term, Ticks, Token, UnixMillis};
use tidelock_core::version::{ClusterVersion, Release};
use uuid::Uuid;

use crate::capacity::TurnWork;
use crate::disk::SimDisk;
use crate::event_queue::Micros;
use crate::faults::CrashKind;
use crate::history::Incarnation;
use crate::plan::{DiskPace, Plan};
use old_copies::{KeptDisk, PutBack};

/// Small, so that a busy group commit takes several frames, and a crash may fall between them.
const FRAME_BYTES_MAX: usize = 1 << 10;

/// A simulated machine: its disk, its clock, and its process if one runs.
pub struct Host {
    options: NodeOptions,
    segment_bytes: u64,
    disk: SimDisk,
    life: u64,
    process: Option<Process>,
    /// What happens to the disk if the process dies inside a disk operation.
    pub loss_if_dies: CrashKind,
    /// Length of a tick of its clock.
    pub tick: Micros,
    /// Error of its wall clock, in milliseconds.
    pub clock_ahead_ms: i64,
    /// Factor by which syncs take longer than planned.
    pub slowness: u64,
    /// Additional duration of each sync; zero unless the disk hangs.
    pub hang: Micros,
    /// Number of active pauses of the process.
    pub pauses: u32,
    /// Whether the host is a member of the cluster.
    presence: Presence,
    /// How often it has started on its disk. The server keeps that in its data directory.
    starts: u64,
    /// What it remembers of its peers' starts. The server keeps that in its control file.
    known_starts: BTreeMap<NodeId, KnownStart>,
    /// The release that it ran before its present one.
    earlier_release: Option<Release>,
    /// Whether the log batches of its process are looked at.
    shows_log: bool,
    /// Its address in the registry when its process last ended. The server keeps that in its
    /// control file.
    registered_address: Option<String>,
    /// Its disk as it was before its latest start, if the plan needs that.
    earlier: Option<KeptDisk>,
    keeps_earlier: bool,
    /// The state before the disk was put back to an earlier one.
    put_back: Option<PutBack>,
}

/// Whether a host is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Absent,
    /// It is a member, up or down.
    Member,
    /// It learned that it was removed, and stopped for good.
    Gone,
}

struct Process {
    node: Node,
    /// Where it looks for its peers.
    addresses: AddressBook,
    instance: Uuid,
    /// The log and the batches on their way to it, on the disk thread.
    commits: GroupCommit<SimDisk>,
    inbox: Vec<Event>,
    has_wake_up: bool,
    /// The present step of the disk thread.
    step: Option<CommitStep>,
    /// Until when the disk thread waits, if it was told to wait for a time.
    disk_timer: Option<Duration>,
    /// Counts the beginnings and ends of the disk thread's operations: odd while it works.
    transitions: u64,
    /// Detects a slow disk, as the shell does.
    detector: SlowDiskDetector,
    is_slow: bool,
    /// The last state of the disk that was reported to the node.
    reported: Option<StallReason>,
    files: SnapshotFiles<SimDisk>,
    tasks: VecDeque<SnapshotTask>,
    /// The present task of the snapshot thread.
    filing: Option<SnapshotTask>,
    /// Number of tasks that the snapshot thread has begun.
    filings: u64,
    /// The last state of the log that was reported to the node.
    held: LogHeld,
    ticks: Ticks,
}

/// What a member tells a host that joins through it.
pub struct KnownCluster {
    /// The addresses of the hosts that it knows, itself included.
    pub hosts: BTreeMap<NodeId, String>,
    /// The version that its directory has recorded.
    pub version: ClusterVersion,
}

/// The actions of a process after a turn.
#[derive(Default)]
pub struct Turn {
    /// Frames to send, in order.
    pub frames: Vec<OutgoingFrame>,
    /// Replies to clients, each with the token of its request.
    pub replies: Vec<(Token, Reply)>,
    /// What happened in the consensus of its shards.
    pub trace: Vec<TraceEvent>,
    /// What happened to traced requests.
    pub spans: Vec<SpanEvent>,
    /// Configuration that changed on this node.
    pub config: Vec<ConfigUpdate>,
    /// The writes that it is about to log, if they are looked at.
    pub logged: Vec<Command>,
    /// Keys that changed on this node.
    pub keys: Vec<KeyReport>,
    /// Messages for the subscribers of channels on this node.
    pub publications: Vec<Publication>,
    /// Slots of shards of which it has no replica.
    pub remote_slots: Vec<Range<u16>>,
    /// Slots of shards of which it knows no leader.
    pub leaderless_slots: Vec<Range<u16>>,
    /// The peers to which it keeps connections from now on, if they changed.
    pub peers: Option<Vec<NodeId>>,
    /// The contradiction for which it must stop.
    pub contradiction: Option<Contradiction>,
    /// Requests and frames that it handled.
    handled: TurnWork,
}

impl Turn {
    /// What the turn handled and sent.
    pub fn work(&self) -> TurnWork {
        let sent: usize = self.frames.iter().map(|frame| frame.payload.len()).sum();
        TurnWork {
            requests: self.handled.requests,
            frames: self.handled.frames + self.frames.len() as u64,
            frame_bytes: self.handled.frame_bytes + sent as u64,
        }
    }
}

/// Why a process ended while it used its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A fault made it die inside a disk operation.
    Died,
    /// The disk failed, and it stopped as it must.
    Disk(String),
}

/// The correct time at the beginning of a run, in milliseconds since 1970.
const CLOCK_BEGINS_MS: u64 = 1_800_000_000_000;

/// The cluster that every host belongs to.
const CLUSTER: Uuid = Uuid::from_u128(1);

/// A drive with more rounds than this is taken to be endless.
const DRIVES_MAX: u32 = 10_000;

impl Host {
    /// A host with an empty disk, down.
    pub fn new(options: NodeOptions, disk: SimDisk, plan: &Plan) -> Host {
        let Plan { disk: DiskPace { segment_bytes, .. }, .. } = *plan;
        Host {
            options,
            segment_bytes,
            disk,
            life: 0,
            process: None,
            loss_if_dies: CrashKind::Process,
            tick: plan.tick(),
            clock_ahead_ms: 0,
            slowness: 1,
            hang: Micros(0),
            pauses: 0,
            presence: Presence::Member,
            starts: 0,
            known_starts: BTreeMap::new(),
            earlier_release: None,
            shows_log: plan.is_mixed() || plan.automatic_division,
            registered_address: None,
            earlier: None,
            keeps_earlier: plan.has_old_copies(),
            put_back: None,
        }
    }

    /// Makes it a host that has not joined yet.
    pub fn absent(self) -> Host {
        Host { presence: Presence::Absent, ..self }
    }

    /// Joins, with the number and the list of hosts that the cluster gave it. Its control file
    /// keeps both.
    pub fn found(&mut self, info: HostInfo, replica: ReplicaId, member: &KnownCluster) {
        assert!(self.presence == Presence::Absent && info.node == self.node(), "a number is given once");
        self.presence = Presence::Member;
        (self.options.host, self.options.hosts) = (info, member.hosts.clone());
        self.options.version = member.version;
        self.options.prime_replica = Some(replica);
    }

    /// Records that its process learned of the host's removal and ended. It will not be started
    /// again.
    pub fn leave(&mut self) {
        self.presence = Presence::Gone;
    }

    /// Whether it is a member, as far as it knows.
    pub fn is_member(&self) -> bool {
        self.presence == Presence::Member
    }

    /// Whether it learned that it was removed.
    pub fn is_gone(&self) -> bool {
        self.presence == Presence::Gone
    }

    /// What the host announces to the cluster: addresses and tags.
    pub fn info(&self) -> &HostInfo {
        &self.options.host
    }

    /// What it tells a node that joins through it.
    pub fn known_cluster(&self) -> KnownCluster {
        let own = (self.node(), self.options.host.peer_address.clone());
        let peers = self.process.iter().flat_map(|process| process.node.peers().iter().cloned());
        KnownCluster { hosts: peers.chain([own]).collect(), version: self.options.version }
    }

    /// Whether it knows that another host was removed.
    pub fn has_removed(&self, node: NodeId) -> bool {
        let host_entry = self.process.as_ref().and_then(|process| process.node.host_entry(node));
        host_entry.is_some_and(|host_entry| host_entry.standing == HostRole::Removed)
    }

    /// The membership of a shard, as far as it knows.
    pub fn membership(&self, shard: ShardId) -> Option<&Membership> {
        self.process.as_ref()?.node.membership(shard)
    }

    /// The wanted role of each host, as far as it knows; `None` unless its replicas match the
    /// registry.
    pub fn settled_host_roles(&self) -> Option<BTreeMap<NodeId, HostRole>> {
        let node = &self.process.as_ref()?.node;
        let mut host_entries = BTreeMap::new();
        for number in (1..).map(NodeId) {
            let Some(host_entry) = node.host_entry(number) else { break };
            host_entries.insert(number, host_entry.standing);
        }
        node.is_as_wanted().then_some(host_entries)
    }

    /// The slots that its replica of a shard owns, and whether the last slot move is over for it.
    pub fn owned_slots(&self, shard: ShardId) -> Option<(SlotSet, bool)> {
        self.process.as_ref()?.node.owned_slots(shard)
    }

    /// The tables of the registry, as far as it knows.
    pub fn registry(&self) -> Option<RegistryView> {
        Some(self.process.as_ref()?.node.registry_view())
    }

    /// The permissions that it has applied, if it is up.
    pub fn access(&self) -> Option<&Arc<Access>> {
        Some(self.process.as_ref()?.node.access())
    }

    /// The records of administrative changes that it has applied, if it is up.
    pub fn audit(&self) -> Option<&AuditTrail> {
        Some(self.process.as_ref()?.node.audit())
    }

    /// The slot map, as far as it knows.
    pub fn slot_map(&self) -> Option<Arc<SlotMap>> {
        Some(self.process.as_ref()?.node.slot_map().clone())
    }

    /// The version of its slot map, if it can answer for every key from its own memory.
    pub fn whole_map(&self) -> Option<u64> {
        self.process.as_ref()?.node.whole_map()
    }

    /// Changes its tags, from its next start on.
    pub fn retag(&mut self, name: &str, value: &str) {
        self.options.host.tags.insert(name.to_owned(), value.to_owned());
    }

    /// The number of the host.
    pub fn node(&self) -> NodeId {
        self.options.host.node
    }

    /// The disk of the host.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// The number of its present or last life (a run of its process).
    pub fn incarnation(&self) -> Incarnation {
        Incarnation { node: self.node(), life: self.life }
    }

    /// Whether its process runs, or would if it were not paused.
    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Whether its process makes progress.
    pub fn is_running(&self) -> bool {
        self.is_up() && self.pauses == 0
    }

    /// Starts a process on the disk's content. `seed` is the randomness of this life.
    pub fn start(&mut self, seed: u64) -> Result<(), Stop> {
        assert!(self.process.is_none(), "a host runs one process");
        // Out of scope, see `tidelock_core::starts`: an old copy that starts again before any peer
        // could refuse it may reach a number above the known one.
        if self.put_back.as_ref().is_some_and(|put_back| put_back.has_run && !put_back.is_refused) {
            self.get_disk_back();
        }
        let earlier = self.keeps_earlier.then(|| self.kept_disk());
        let options = WalOptions {
            segment_bytes: self.segment_bytes,
            frame_bytes_max: FRAME_BYTES_MAX,
            seed,
            begun: false,
            faults: self.options.faults,
        };
        let opened = recovery::open(self.disk.clone(), options).map_err(|error| self.stopped(&error))?;
        self.life += 1;
        self.starts += 1;
        if let Some(put_back) = &mut self.put_back {
            put_back.has_run = true;
        }
        self.earlier = earlier;
        let node = Node::new(NodeOptions { seed, ..self.options.clone() }, opened.shards);
        let commit_options = GroupCommitOptions { sync: true, faults: self.options.faults };
        self.process = Some(Process {
            node,
            addresses: self.remembered_addresses(),
            instance: Uuid::from_u128(u128::from(self.life) << 64 | u128::from(seed)),
            commits: GroupCommit::new(opened.log, commit_options),
            inbox: Vec::new(),
            has_wake_up: false,
            step: None,
            disk_timer: None,
            transitions: 0,
            detector: SlowDiskDetector::new(self.options.timing.election_ticks),
            is_slow: false,
            reported: None,
            files: opened.snapshots,
            tasks: VecDeque::new(),
            filing: None,
            filings: 0,
            held: LogHeld::default(),
            ticks: Ticks(0),
        });
        Ok(())
    }

    /// The start that its process states in handshakes.
    pub fn claim(&self) -> Option<KnownStart> {
        let instance = self.process.as_ref()?.instance;
        let start = ProcessStart { number: self.starts, instance };
        Some(KnownStart { host: self.options.host.uuid, start })
    }

    /// The known start of another host.
    pub fn known_start(&self, node: NodeId) -> Option<KnownStart> {
        self.known_starts.get(&node).copied()
    }

    /// What its process claims to be in handshakes.
    pub fn introduction(&self) -> Option<Introduction> {
        let start = self.claim()?.start;
        Some(Introduction {
            cluster: CLUSTER,
            node: self.node(),
            host: self.options.host.uuid,
            start,
            supported: self.supported(),
            version: self.recorded_version(),
        })
    }

    /// Judges a peer that introduces itself, and remembers its start if it is accepted. Connections
    /// need no check here, because the network ends one before it makes the next.
    pub fn meet(
        &mut self,
        peer: &Introduction,
        role: HandshakeSide,
        is_wanted: bool,
    ) -> Result<(), HandshakeRefusal> {
        let own = self.introduction().expect("invariant: a process judges");
        let (is_removed, host) = (self.has_removed(peer.node), self.known_uuid(peer.node));
        let known = KnownPeer { is_removed, host, is_wanted };
        let mut starts = KnownStarts::new(std::mem::take(&mut self.known_starts), self.options.faults);
        let judged = own.judge(peer, role, known, &starts);
        let connected = judged.and_then(|()| Ok(starts.connect(peer.node, peer.known_start()).map(drop)?));
        self.known_starts = starts.into_kept();
        connected
    }

    /// Kills the process. Returns whether there was one.
    pub fn crash(&mut self, loss: CrashKind) -> bool {
        self.remember_own_address();
        let was_up = self.process.take().is_some();
        match loss {
            CrashKind::Process => self.disk.kill(),
            CrashKind::Power => self.disk.power_loss(),
        }
        was_up
    }

    /// Puts an event into the inbox of the process, if there is one. Returns whether a wake-up must
    /// be arranged.
    pub fn post(&mut self, event: Event) -> bool {
        if let Some(process) = &mut self.process {
            process.inbox.push(event);
        }
        self.arrange_wake_up()
    }

    /// Whether a wake-up must be arranged: the process runs and none is arranged yet.
    pub fn arrange_wake_up(&mut self) -> bool {
        let running = self.is_running();
        self.process
            .as_mut()
            .is_some_and(|process| running && !std::mem::replace(&mut process.has_wake_up, true))
    }

    /// Drops a wake-up that arrives while the process is paused.
    pub fn cancel_wake_up(&mut self) {
        if let Some(process) = &mut self.process {
            process.has_wake_up = false;
        }
    }

    /// One turn of the process: handles its inbox, until the node has nothing more to do. `time` is
    /// its wall-clock time.
    pub fn turn(&mut self, time: UnixMillis) -> Turn {
        let mut turn = Turn::default();
        let Some(process) = &mut self.process else { return turn };
        process.has_wake_up = false;
        process.node.handle(Event::Clock(time));
        for event in process.inbox.drain(..) {
            process.ticks.0 += u64::from(matches!(event, Event::Tick));
            turn.handled.requests += u64::from(matches!(event, Event::Request { .. }));
            if let Event::Frame { payload, .. } = &event {
                turn.handled.frames += 1;
                turn.handled.frame_bytes += payload.len() as u64;
            }
            process.node.handle(event);
        }
        let mut drives = 0;
        let mut actions = Actions::default();
        while drives == 0 || process.node.has_work() {
            drives += 1;
            assert!(
                drives < DRIVES_MAX,
                "node {} still has work after {DRIVES_MAX} drives",
                self.options.host.node
            );
            process.node.drive(&mut actions);
            if let Some(version) = actions.version.take() {
                // The control file keeps it.
                self.options.version = version;
            }
            if self.shows_log {
                turn.logged.extend(actions.wal.iter().flat_map(releases::logged));
            }
            process.commits.submit(actions.wal.take());
            process.tasks.extend(actions.snapshots.drain(..));
            turn.frames.append(&mut actions.frames);
            turn.replies.append(&mut actions.replies);
            turn.trace.append(&mut actions.trace);
            turn.spans.append(&mut actions.spans);
            turn.config.append(&mut actions.config);
            turn.keys.append(&mut actions.keys);
            turn.publications.append(&mut actions.publications);
            turn.remote_slots.append(&mut actions.remote_slots);
            turn.leaderless_slots.append(&mut actions.leaderless_slots);
            turn.contradiction = turn.contradiction.or(actions.contradiction.take());
            if let Some(peers) = actions.peers.take() {
                let known = peers.iter().map(|(node, address)| (*node, address.as_str()));
                process.addresses.set_peers(known);
                turn.peers = Some(peers.iter().map(|(node, _)| *node).collect());
                // The control file keeps the known hosts. Without a leader, the registry may be
                // older than what it has.
                if process
                    .node
                    .status()
                    .shards
                    .iter()
                    .any(|shard| shard.shard == ShardId::PRIME && shard.leader.is_some())
                {
                    self.options.hosts = peers.into_iter().collect();
                }
            }
        }
        turn
    }

    /// Ticks that the process has handled in this life.
    pub fn ticks(&self) -> Ticks {
        self.process.as_ref().map_or(Ticks(0), |process| process.ticks)
    }

    /// The node's status, if it is up.
    pub fn status(&self) -> Option<NodeStatus> {
        Some(self.process.as_ref()?.node.status())
    }

    /// The result of a watcher's local read at this node, if it is up.
    pub fn look(&mut self, read: &Read) -> Option<Reply> {
        self.process.as_mut()?.node.read_stale(&Caller::Node, read)
    }

    /// The answer to a stale read from the node's memory, if that is sufficient.
    pub fn answer_at_once(&mut self, caller: &Caller, request: &Request) -> Option<Reply> {
        let Request::Read { read, consistency: Consistency::Stale } = request else { return None };
        self.process.as_mut()?.node.read_stale(caller, read)
    }

    /// The checksum of a replica's state at its applied index.
    pub fn state_digest(&self, shard: ShardId) -> Option<(LogIndex, u64)> {
        self.process.as_ref()?.node.state_digest(shard)
    }

    /// Its wall-clock time at a time of the run.
    pub fn clock(&self, now: Micros) -> UnixMillis {
        UnixMillis((CLOCK_BEGINS_MS + now.0 / 1_000).saturating_add_signed(self.clock_ahead_ms))
    }

    /// The writes of a committed entry.
    pub fn committed_writes(&self, shard: ShardId, index: LogIndex) -> Option<Vec<Command>> {
        self.process.as_ref()?.node.committed_writes(shard, index)
    }

    /// Term and checksum of a committed entry, if it is in the log in memory.
    pub fn committed_entry(&self, shard: ShardId, index: LogIndex) -> Option<(Term, u64)> {
        self.process.as_ref()?.node.committed_entry(shard, index)
    }

    fn stopped(&self, error: &dyn std::error::Error) -> Stop {
        if self.disk.is_dead() { Stop::Died } else { Stop::Disk(error.to_string()) }
    }
}
