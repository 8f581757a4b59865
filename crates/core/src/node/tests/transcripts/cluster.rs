//! Nodes in one process, over a network that delivers when a script says so.
//!
//! Owns what surrounds the nodes: frames in flight, links, disks, snapshot files, and the text of
//! what they do. Only one shard is described, because another one would only repeat it.

use crate::codec::Decoder;
use crate::peer::RequestMessage;
use std::string::ToString;

use super::super::stalls::holds_data;
use super::super::*;
use crate::command::HostInfo;
use crate::raft::describe_message;
use crate::storage::snapshot::SnapshotId;
use crate::trace::{TraceEvent, TraceKind};
use crate::types::ReplicaId;

/// The shard that is described: the only data shard.
const SHOWN: ShardId = ShardId(1);

/// Drives without end would mean that nodes make work for each other.
const DELIVERIES_MAX: usize = 10_000;

/// The nodes, and everything between them.
#[derive(Default)]
pub(super) struct Network {
    founders: Vec<String>,
    hosts: Vec<ScriptHost>,
    in_flight: VecDeque<SentFrame>,
    /// Nodes from and to which the network loses every frame, while connections stand.
    isolated: BTreeSet<NodeId>,
    links: BTreeSet<(NodeId, NodeId)>,
    tokens: u64,
    /// What happened since it was last taken, a line each.
    lines: String,
    /// Nodes that asked for votes since the last look.
    campaigned: BTreeSet<NodeId>,
    /// The node number and the replica that the last host was given that joined.
    joined: Option<(NodeId, ReplicaId)>,
}

struct ScriptHost {
    node: Node,
    runs: bool,
    /// The peers to which it wants a connection.
    peers: Vec<NodeId>,
    disk: HostDisk,
    files: SnapshotFiles<MemoryDisk>,
}

/// A disk, with the last batch that waits for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HostDisk {
    Healthy,
    /// It has no room for commands, but for terms and votes.
    Full(Option<WalSequence>),
    /// It completes nothing.
    Hanging(Option<WalSequence>),
}

struct SentFrame {
    from: NodeId,
    frame: OutgoingFrame,
}

fn empty_files() -> SnapshotFiles<MemoryDisk> {
    SnapshotFiles::open(MemoryDisk::new(1)).expect("an empty disk")
}

impl Network {
    /// A cluster of this many founders. No replica has ticked yet.
    pub(super) fn founded(count: u64) -> Network {
        let founders: Vec<String> = (1..=count).map(|node| format!("node-{node}:9001")).collect();
        let mut network = Network { founders, ..Network::default() };
        for node in 1..=count {
            network.add(network.options(node));
        }
        (1..=count).for_each(|node| network.drive(NodeId(node)));
        network.connect();
        network
    }

    fn options(&self, node: u64) -> NodeOptions {
        NodeOptions { data_shards: 1, ..options(node, &self.founders) }
    }

    fn add(&mut self, options: NodeOptions) {
        self.hosts.push(ScriptHost {
            node: Node::new(options, RecoveredShards::new()),
            runs: true,
            peers: Vec::new(),
            disk: HostDisk::Healthy,
            files: empty_files(),
        });
    }

    /// Takes the lines since the last call.
    pub(super) fn take_lines(&mut self) -> String {
        core::mem::take(&mut self.lines)
    }

    fn say(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    fn host(&mut self, node: NodeId) -> &mut ScriptHost {
        &mut self.hosts[node.0 as usize - 1]
    }

    fn running(&self) -> Vec<NodeId> {
        (1..).map(NodeId).zip(&self.hosts).filter(|(_, host)| host.runs).map(|(node, _)| node).collect()
    }

    /// Passes an event to a node, and executes what it does.
    fn tell(&mut self, node: NodeId, event: Event) {
        self.host(node).node.handle(event);
        self.drive(node);
    }

    fn drive(&mut self, node: NodeId) {
        let mut actions = Actions::default();
        while self.host(node).node.has_work() {
            self.host(node).node.drive(&mut actions);
            for event in actions.trace.drain(..) {
                self.trace(node, &event);
            }
            for frame in actions.frames.drain(..) {
                self.send(node, frame);
            }
            for (token, reply) in actions.replies.drain(..) {
                self.reply(node, token, &reply);
            }
            if let Some(batch) = actions.wal.take() {
                self.write(node, &batch);
            }
            for task in actions.snapshots.drain(..) {
                let host = self.host(node);
                let done = host.files.run(task);
                host.node.handle(Event::Snapshot(done));
            }
            if let Some(peers) = actions.peers.take() {
                let peers: Vec<NodeId> = peers.into_iter().map(|(peer, _)| peer).collect();
                let before = core::mem::replace(&mut self.host(node).peers, peers.clone());
                // The last frames arrive before the connection is closed.
                before.into_iter().filter(|peer| !peers.contains(peer)).for_each(|peer| {
                    self.deliver(Some(node), Some(peer));
                });
                self.connect();
            }
        }
        if self.host(node).runs && self.host(node).node.status().removed {
            self.say(&format!("n{node} learns that it was removed, and stops"));
            self.stop(node);
        }
    }

    fn trace(&mut self, node: NodeId, event: &TraceEvent) {
        if event.shard != SHOWN {
            return;
        }
        if matches!(event.kind, TraceKind::Campaigns(_) | TraceKind::Elected) {
            self.campaigned.insert(node);
        }
        self.say(&format!("n{node}: {event}"));
    }

    /// Puts a frame on its way, or loses it.
    fn send(&mut self, from: NodeId, frame: OutgoingFrame) {
        let to = frame.to;
        let is_lost =
            self.isolated.contains(&from) || self.isolated.contains(&to) || !self.is_linked(from, to);
        let arrow = if is_lost { "-x" } else { "->" };
        for message in describe_frame(&frame.payload) {
            self.say(&format!("n{from} {arrow} n{to}: {message}"));
        }
        if !is_lost {
            self.in_flight.push_back(SentFrame { from, frame });
        }
    }

    fn reply(&mut self, node: NodeId, token: Token, reply: &Reply) {
        if let Reply::Write(WriteReply::Joined { node, replica }) = reply {
            self.joined = Some((*node, *replica));
        }
        let text = match reply {
            Reply::Write(WriteReply::Operations(replies)) => match replies.only() {
                Some(OperationReply::Written { version, .. }) => format!("written as version {version}"),
                other => format!("{other:?}"),
            },
            Reply::Read(ReadReply::Value(Some(StoredValue { version, value, .. }))) => {
                format!("value {} of version {version}", String::from_utf8_lossy(value))
            }
            Reply::Refused(refusal) => format!("refused: {refusal}"),
            Reply::Write(WriteReply::Joined { node, .. }) => format!("joined as node {node}"),
            Reply::Node(NodeReply::Snapshots(_)) => String::from("snapshots begun"),
            Reply::Write(other) => format!("{other:?}"),
            Reply::Read(other) => format!("{other:?}"),
            Reply::Node(other) => format!("{other:?}"),
            other => format!("{other:?}"),
        };
        self.say(&format!("n{node}: reply to request {token}: {text}"));
    }

    fn write(&mut self, node: NodeId, batch: &WalBatch) {
        let host = self.host(node);
        match &mut host.disk {
            HostDisk::Full(waiting) if waiting.is_some() || holds_data(batch) => {
                *waiting = Some(batch.sequence);
            }
            HostDisk::Hanging(waiting) => *waiting = Some(batch.sequence),
            HostDisk::Full(_) | HostDisk::Healthy => host.node.handle(Event::Durable(batch.sequence)),
        }
    }

    fn is_linked(&self, one: NodeId, other: NodeId) -> bool {
        self.links.contains(&(one.min(other), one.max(other)))
    }

    /// Makes and breaks links: a link needs two running nodes that both want it.
    fn connect(&mut self) {
        let running = self.running();
        let wants = |one: NodeId, other: NodeId| self.hosts[one.0 as usize - 1].peers.contains(&other);
        let mut wanted = BTreeSet::new();
        for &low in &running {
            let highs = running.iter().filter(|&&high| high > low && wants(low, high) && wants(high, low));
            wanted.extend(highs.map(|&high| (low, high)));
        }
        let before = core::mem::replace(&mut self.links, wanted.clone());
        self.in_flight.retain(|sent| {
            let (from, to) = (sent.from, sent.frame.to);
            wanted.contains(&(from.min(to), from.max(to)))
        });
        for &(low, high) in before.symmetric_difference(&wanted) {
            for (node, peer) in [(low, high), (high, low)] {
                let is_up = wanted.contains(&(low, high));
                if self.host(node).runs {
                    self.tell(node, if is_up { Event::LinkUp(peer) } else { Event::LinkDown(peer) });
                }
            }
        }
    }

    /// Passes a tick to a node.
    pub(super) fn tick(&mut self, node: NodeId) {
        if self.host(node).runs {
            self.tell(node, Event::Tick);
        }
    }

    /// Passes a tick to every node, and delivers all frames.
    pub(super) fn run(&mut self) {
        for node in self.running() {
            self.tick(node);
        }
        self.settle();
    }

    /// Passes ticks to one node until it asks for votes.
    pub(super) fn campaign(&mut self, node: NodeId) -> Result<(), &'static str> {
        self.campaigned.clear();
        let ticks_max = 2 * self.options(1).timing.election_ticks;
        for _ in 0..ticks_max {
            self.tick(node);
            if self.campaigned.contains(&node) {
                return Ok(());
            }
        }
        Err("it does not stand for election")
    }

    /// Delivers the frames in flight, but not those that are sent in reply.
    pub(super) fn deliver(&mut self, from: Option<NodeId>, to: Option<NodeId>) {
        for SentFrame { from, frame } in self.take_in_flight(from, to) {
            if self.is_linked(from, frame.to) {
                self.tell(frame.to, Event::Frame { from, payload: frame.payload });
            }
        }
    }

    /// Loses the frames in flight.
    pub(super) fn lose(&mut self, from: Option<NodeId>, to: Option<NodeId>) {
        for SentFrame { from, frame } in self.take_in_flight(from, to) {
            for message in describe_frame(&frame.payload) {
                self.say(&format!("n{from} -x n{}: {message}", frame.to));
            }
        }
    }

    fn take_in_flight(&mut self, from: Option<NodeId>, to: Option<NodeId>) -> VecDeque<SentFrame> {
        let is_meant = |sent: &SentFrame| {
            from.is_none_or(|from| sent.from == from) && to.is_none_or(|to| sent.frame.to == to)
        };
        let (taken, left) = core::mem::take(&mut self.in_flight).into_iter().partition(is_meant);
        self.in_flight = left;
        taken
    }

    /// Delivers frames until none are left.
    pub(super) fn settle(&mut self) {
        for _ in 0..DELIVERIES_MAX {
            let Some(SentFrame { from, frame }) = self.in_flight.pop_front() else { return };
            self.tell(frame.to, Event::Frame { from, payload: frame.payload });
        }
        panic!("the nodes send frames without end");
    }

    /// Lets the network lose every frame from and to a node from now on, or no longer.
    pub(super) fn set_isolated(&mut self, node: NodeId, is_isolated: bool) {
        if is_isolated {
            self.isolated.insert(node);
            self.in_flight.retain(|sent| sent.from != node && sent.frame.to != node);
        } else {
            self.isolated.remove(&node);
        }
    }

    /// Stops a process: its peers lose their connections.
    pub(super) fn stop(&mut self, node: NodeId) {
        self.host(node).runs = false;
        self.connect();
    }

    /// Starts a stopped node with an empty disk.
    pub(super) fn start_empty(&mut self, node: NodeId) {
        let options = self.options(node.0);
        let host = self.host(node);
        host.node = Node::new(options, RecoveredShards::new());
        (host.runs, host.disk, host.files) = (true, HostDisk::Healthy, empty_files());
        host.peers.clear();
        self.drive(node);
    }

    /// Sends a request to a node.
    pub(super) fn ask(&mut self, node: NodeId, request: Request) {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.tell(node, Event::Request { token, caller: Caller::Anonymous, request, trace: None });
    }

    /// A new host with an empty disk joins the cluster.
    pub(super) fn join(&mut self) -> Result<(), &'static str> {
        let number = self.hosts.len() + 1;
        let info = HostInfo {
            node: NodeId(0),
            uuid: Uuid::from_u128(100 + number as u128),
            peer_address: format!("node-{number}:9001"),
            ..self.options(1).host
        };
        let asked = *self.running().first().ok_or("no node runs")?;
        self.ask(asked, Request::Write(RegistryWrite::JoinHost(info.clone()).into()));
        self.settle();
        let (node, replica) = self.joined.take().ok_or("not admitted")?;
        let known = self.host(asked).node.known_hosts();
        let hosts = known.map(|(node, _, address)| (node, address.to_string())).collect();
        let host = HostInfo { node, ..info };
        let prime_replica = Some(replica);
        self.add(NodeOptions { host, hosts, prime_replica, seed: node.0, ..self.options(1) });
        self.drive(node);
        self.settle();
        Ok(())
    }

    /// Fills the disk of a node, and tells the node.
    pub(super) fn fill_disk(&mut self, node: NodeId) {
        self.host(node).disk = HostDisk::Full(None);
        self.tell(node, Event::DiskStalled(StallReason::Refused));
    }

    /// Lets the disk of a node hang, and tells the node.
    pub(super) fn hang_disk(&mut self, node: NodeId) {
        self.host(node).disk = HostDisk::Hanging(None);
        self.tell(node, Event::DiskStalled(StallReason::Slow));
    }

    /// The disk of a node completes what waits, and is healthy from then on.
    pub(super) fn recover_disk(&mut self, node: NodeId) {
        let disk = core::mem::replace(&mut self.host(node).disk, HostDisk::Healthy);
        if let HostDisk::Full(Some(waiting)) | HostDisk::Hanging(Some(waiting)) = disk {
            self.tell(node, Event::Durable(waiting));
        }
        self.tell(node, Event::DiskRecovered);
    }

    /// Describes the replicas of the shard.
    pub(super) fn describe(&mut self) {
        for node in self.running() {
            let host = &self.hosts[node.0 as usize - 1];
            let Some(shard) = host.node.status().shards.into_iter().find(|shard| shard.shard == SHOWN) else {
                continue;
            };
            let membership = host.node.membership(SHOWN).expect("it has a replica");
            let nodes = |replicas: &[ReplicaId]| {
                let nodes = replicas.iter().filter_map(|replica| membership.node(*replica));
                nodes.map(|node| format!("n{node}")).collect::<Vec<String>>().join(" ")
            };
            let role = if shard.leads { "leader" } else { "follower" };
            let line = format!(
                "n{node}: {role} term={} committed={} applied={} log={}..{} voters=[{}] learners=[{}]",
                shard.term,
                shard.committed,
                shard.applied,
                shard.log_begin,
                shard.last,
                nodes(&membership.voters),
                nodes(&membership.learners),
            );
            self.say(&line);
        }
    }
}

/// The messages of a frame that concern the shard, and are not repeated all the time.
fn describe_frame(payload: &Bytes) -> Vec<String> {
    let mut decoder = Decoder::new(payload);
    let mut lines = Vec::new();
    match decoder.u8().expect("a kind") {
        peer::KIND_RAFT => {
            while !decoder.is_empty() {
                let shard = ShardId(decoder.varint().expect("a shard"));
                let message = describe_message(&mut decoder, payload).expect("a message");
                lines.extend(message.filter(|_| shard == SHOWN));
            }
        }
        peer::KIND_REQUESTS => {
            while !decoder.is_empty() {
                lines.extend(describe_request(&mut decoder, payload));
            }
        }
        peer::KIND_SNAPSHOT_PART => {
            let part = peer::decode_snapshot_part(&mut decoder, payload).expect("a part");
            let what = if part.bytes.is_empty() { "snapshot-question" } else { "snapshot-part" };
            lines.extend(describe_snapshot(what, part.id));
        }
        peer::KIND_SNAPSHOT_RECEIPT => {
            let (id, _) = peer::decode_snapshot_receipt(&mut decoder).expect("a receipt");
            lines.extend(describe_snapshot("snapshot-receipt", id));
        }
        _ => {}
    }
    lines
}

fn describe_request(decoder: &mut Decoder<'_>, payload: &Bytes) -> Option<String> {
    match peer::request_message(decoder, payload).expect("a request") {
        RequestMessage::Forward { shard, .. } if shard == SHOWN => Some(String::from("forwarded command")),
        RequestMessage::Transfer { shard, to } if shard == SHOWN => {
            Some(format!("asks for a transfer to n{to}"))
        }
        RequestMessage::Forward { .. }
        | RequestMessage::Transfer { .. }
        | RequestMessage::Outcome { .. }
        | RequestMessage::Metadata(_) => None,
    }
}

fn describe_snapshot(what: &str, id: SnapshotId) -> Option<String> {
    (id.shard == SHOWN).then(|| format!("{what} at={}@{}", id.index, id.term))
}
