//! Every request a client made of this node, from arrival to its one answer.
//!
//! Owns the way to the shard's leader, deadlines, and the truth about outcomes. It stands in the core so that the
//! simulator judges it: here is where a store loses acknowledged writes, or refuses what later turns out to have
//! happened.
//!
//! Invariants:
//! - A request gets exactly one answer, by its deadline.
//! - A write is in one place at a time: held here, queued at the local leader, or with one peer. It is tried again
//!   only when that place said that it is not done and never will be.
//! - A refusal other than `UnknownOutcome` is given only for a write that is held here, hence nowhere else.
//! - A forwarded write or read is never forwarded again: its receiver leads, or carries the shard, or says that it does not.

mod gather;
mod reads;
mod routes;
pub mod slots;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use slab::Slab;

use crate::command::{Refusal, Reply, Target, Write};
use crate::control::slot_map::SlotMap;
use crate::deliberate::{Fault, Faults};
use crate::event::{Counters, NodeOptions, SlowRequest};
use crate::limits;
use crate::peer;
use crate::raft::{Groups, LinkNumber, Origin, Outcome, ProposeError, RequestId};
use crate::types::{NodeId, ShardId, Term, Ticks, Token, UnixMillis};
use reads::{Displaced, Gathering, Remote, Served};
use routes::Routes;

/// The open requests of one node and its links to peers.
pub(crate) struct Router {
    node: NodeId,
    slots: Arc<SlotMap>,
    /// Data shards that the cluster was founded with: what they hold while they took part in no move follows from it.
    founding: u64,
    routes: Routes,
    request_ticks: u64,
    election_ticks: u64,
    slow_request_ticks: u64,
    now: Ticks,
    /// What time it is by this node's clock, once the shell said so. Commands are proposed with it.
    clock: Option<UnixMillis>,
    open: Slab<Open>,
    generation: u32,
    /// In order of their deadlines, because all requests have the same time.
    deadlines: VecDeque<(Ticks, RequestId)>,
    /// Writes that wait for a leader, and reads that wait for somebody who carries their shard.
    held: VecDeque<RequestId>,
    peers: Vec<Peer>,
    /// Links that this node has had, with anyone.
    links: u64,
    replies: Vec<(Token, Reply)>,
    /// To be told: see [`Actions::slow`](crate::event::Actions::slow).
    slow: Vec<SlowRequest>,
    errands: Vec<(Errand, Reply)>,
    /// A leader changed since held writes were last tried.
    leader_changed: bool,
    counters: Counters,
    faults: Faults,
}

struct Open {
    generation: u32,
    /// `None` for what the node asks of itself.
    token: Option<Token>,
    /// What the node asks of itself and wants to hear of.
    errand: Option<Errand>,
    /// When it came.
    opened: Ticks,
    work: Work,
}

/// Names what the node asked of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errand {
    /// For which shard.
    pub(crate) shard: ShardId,
    /// Rises with each.
    pub(crate) number: u64,
}

enum Work {
    Write {
        shard: ShardId,
        write: Write,
        place: Place,
    },
    /// A read of one shard, which is replicated here; `None` while it is being looked at.
    Read(Option<ShardId>),
    /// A read of one shard, which is not.
    RemoteRead(Remote),
    /// A read that has nobody to ask, because its slots are on their way. It is held.
    Displaced(Displaced),
    /// A read of all shards.
    Gathering(Gathering),
    /// A peer's read of a shard that is replicated here.
    Served(Served),
}

/// Where a write is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Here; nobody else knows of it.
    Held,
    /// In the queue or the log of the local leader.
    Local,
    /// With a peer that was believed to lead.
    Forwarded { to: NodeId, bytes: usize },
}

/// The link to one peer.
pub(crate) struct Peer {
    pub(crate) node: NodeId,
    /// Whether a link stands.
    pub(crate) up: bool,
    /// Whether a link stands and the peer has sent something lately.
    pub(crate) answers: bool,
    /// When it last sent something, or its link came up.
    heard: Ticks,
    /// Which link this is, or was.
    link: LinkNumber,
    /// Commands and outcomes for the next frames, the last of which is open to more.
    outgoing: Vec<Vec<u8>>,
    /// Reads and answers to reads, in frames.
    reads: Vec<Vec<u8>>,
    /// Bytes of commands forwarded and not answered yet.
    unanswered_bytes: usize,
}

impl Router {
    /// A router without peers.
    pub(crate) fn new(options: &NodeOptions) -> Router {
        Router {
            node: options.host.node,
            slots: Arc::new(SlotMap::founded(options.data_shards)),
            founding: options.data_shards,
            routes: Routes::default(),
            request_ticks: options.timing.request_ticks,
            election_ticks: options.timing.election_ticks,
            slow_request_ticks: options.timing.slow_request_ticks,
            now: Ticks(0),
            clock: None,
            open: Slab::new(),
            generation: 0,
            deadlines: VecDeque::new(),
            held: VecDeque::new(),
            peers: Vec::new(),
            links: 0,
            replies: Vec::new(),
            slow: Vec::new(),
            errands: Vec::new(),
            leader_changed: false,
            counters: Counters::default(),
            faults: options.faults,
        }
    }

    /// Takes a write for the shard of its key, or for the one that it names.
    pub(crate) fn write(&mut self, token: Option<Token>, mut write: Write, groups: &mut Groups) {
        self.counters.writes += if token.is_some() { writes_in(&write) } else { 0 };
        if let Err(refusal) = write.validate() {
            return self.answer(token, Reply::Refused(refusal));
        }
        if self.faults.has(Fault::TimeOfNodeAsked)
            && let Some(clock) = self.clock
        {
            write = write.at(clock);
        }
        let shard = match self.destination(&mut write) {
            Ok(shard) => shard,
            Err(refusal) => return self.answer(token, Reply::Refused(refusal)),
        };
        let Some(request) = self.open(token, Work::Write { shard, write, place: Place::Held }) else {
            return;
        };
        self.dispatch(request, groups);
    }

    /// Takes a write of the node itself, which wants to hear what became of it: see [`Router::take_errands`].
    pub(crate) fn run_errand(&mut self, errand: Errand, mut write: Write, groups: &mut Groups) {
        let destination = write.validate().and_then(|()| self.destination(&mut write));
        let opened =
            destination.map(|shard| self.open(None, Work::Write { shard, write, place: Place::Held }));
        match opened {
            Ok(Some(request)) => {
                if let Some(open) = self.get(request) {
                    open.errand = Some(errand);
                }
                self.dispatch(request, groups);
            }
            Ok(None) => self.errands.push((errand, Reply::Refused(Refusal::Overloaded))),
            Err(refusal) => self.errands.push((errand, Reply::Refused(refusal))),
        }
    }

    /// What became of writes of the node itself.
    pub(crate) fn take_errands(&mut self) -> Vec<(Errand, Reply)> {
        core::mem::take(&mut self.errands)
    }

    /// The shard that a write is for, by the map as it is now. Operations go wherever all of their keys are.
    fn destination(&self, write: &mut Write) -> Result<ShardId, Refusal> {
        let shard = match write.target() {
            Target::Key(key) => return Ok(self.shard_of(key)),
            Target::Shard(shard) => shard,
        };
        let belongs = |key: &[u8]| self.shard_of(key) == shard;
        let all_belong = match write {
            Write::Restore(restoration) => restoration.records.iter().all(|record| belongs(&record.key)),
            Write::RestoreConfig(restoration) => {
                restoration.namespaces().iter().all(|name| belongs(name.routing_key()))
            }
            Write::Transaction(transaction) => {
                let first = transaction.keys().next().map_or(shard, |key| self.shard_of(key));
                let is_one = transaction.keys().all(|key| self.shard_of(key) == first);
                transaction.shard = first;
                return if is_one { Ok(first) } else { Err(Refusal::CrossShard) };
            }
            _ => true,
        };
        if all_belong { Ok(shard) } else { Err(Refusal::CrossShard) }
    }

    /// A held write goes where its keys are now; if they are in several shards by now, it is refused.
    fn redirect(&mut self, request: RequestId) {
        let (key, generation) = parts(request);
        let Some(open) = self.open.get_mut(key).filter(|open| open.generation == generation) else { return };
        let Work::Write { write, place: Place::Held, .. } = &mut open.work else { return };
        let mut write = core::mem::replace(write, Write::Rebalance);
        match self.destination(&mut write) {
            Ok(shard) => {
                if let Some(open) = self.get(request) {
                    open.work = Work::Write { shard, write, place: Place::Held };
                }
            }
            Err(refusal) => self.finish(request, Reply::Refused(refusal)),
        }
    }

    /// A leader said what became of a command of some node.
    pub(crate) fn outcome(&mut self, origin: Origin, outcome: Outcome) {
        if origin.node == self.node {
            self.own_outcome(origin.request, self.node, outcome);
        } else if let Some(peer) = self.peers.iter_mut().find(|peer| peer.is(&origin, self.faults)) {
            peer::put_outcome(peer.frame(), origin.request, &outcome);
        }
    }

    /// The node `from` said what became of our `request`.
    pub(crate) fn own_outcome(&mut self, request: RequestId, from: NodeId, outcome: Outcome) {
        let node = self.node;
        let Some(Open { work: Work::Write { place, .. }, .. }) = self.get(request) else { return };
        let expected = match *place {
            Place::Held => false,
            Place::Local => from == node,
            Place::Forwarded { to, .. } => from == to,
        };
        if !expected {
            return;
        }
        let left = core::mem::replace(place, Place::Held);
        self.left(left);
        match outcome {
            Outcome::Done(reply) => self.finish(request, reply),
            // Not dispatched at once: two nodes that each believe the other leads would play ping-pong.
            Outcome::NotDone => {
                self.routes.denied(from);
                self.held.push_back(request);
            }
            Outcome::NotHere => self.held.push_back(request),
        }
    }

    /// The peer `from` asks this node to propose a command.
    pub(crate) fn forwarded(
        &mut self,
        from: NodeId,
        request: RequestId,
        (shard, write): (ShardId, &Write),
        groups: &mut Groups,
    ) {
        let Some(peer) = self.peers.iter().find(|peer| peer.node == from) else { return };
        let origin = Origin { node: from, link: peer.link, request };
        let clock = self.clock;
        let outcome = match groups.with(shard, |group| group.propose(write, origin, clock)) {
            Some(Ok(())) => return,
            Some(Err(ProposeError::Refused(refusal))) => Outcome::Done(Reply::Refused(refusal)),
            Some(Err(ProposeError::NotHere)) => Outcome::NotHere,
            Some(Err(ProposeError::NotLeader)) | None => Outcome::NotDone,
        };
        self.outcome(origin, outcome);
    }

    pub(crate) fn link_up(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
            self.links += 1;
            (peer.up, peer.answers, peer.heard) = (true, true, self.now);
            peer.link = LinkNumber(self.links);
        }
    }

    /// A peer sent something.
    pub(crate) fn heard(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
            peer.heard = self.now;
            // What is held may go there now.
            self.leader_changed |= peer.up && !core::mem::replace(&mut peer.answers, peer.up);
        }
    }

    /// Peers that have sent nothing for too long count as unreachable, though their links
    /// stand; what they were asked to read, others are asked.
    fn find_silent_peers(&mut self) {
        let (now, limit) = (self.now.0, limits::SILENT_ELECTION_TIMEOUTS * self.election_ticks);
        let is_silent = |peer: &Peer| peer.answers && now - peer.heard.0 > limit;
        let silent: Vec<NodeId> =
            self.peers.iter().filter(|peer| is_silent(peer)).map(|peer| peer.node).collect();
        for node in silent {
            if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
                peer.answers = false;
            }
            self.routes.lose(node);
            self.reads_lost(node);
        }
    }

    /// Sets who the peers are. To those who are none any more it is as if the link had broken.
    pub(crate) fn set_peers(&mut self, nodes: impl Iterator<Item = NodeId>) {
        let nodes: Vec<NodeId> = nodes.collect();
        let gone: Vec<NodeId> =
            self.peers.iter().map(|peer| peer.node).filter(|node| !nodes.contains(node)).collect();
        for &node in &gone {
            self.link_down(node);
        }
        self.peers.retain(|peer| !gone.contains(&peer.node));
        for node in nodes {
            if !self.peers.iter().any(|peer| peer.node == node) {
                self.peers.push(Peer::new(node));
            }
        }
        self.peers.sort_unstable_by_key(|peer| peer.node);
    }

    /// Asks `leader` to let `to` lead a shard. Returns whether it can be asked.
    pub(crate) fn ask_transfer(&mut self, leader: NodeId, shard: ShardId, to: NodeId) -> bool {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == leader && peer.up) else {
            return false;
        };
        peer::put_transfer(peer.frame(), shard, to);
        true
    }

    /// The link to `node` broke: what was with it may or may not happen.
    pub(crate) fn link_down(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
            (peer.up, peer.answers) = (false, false);
            peer.outgoing.clear();
            peer.reads.clear();
        }
        self.routes.lose(node);
        self.reads_lost(node);
        let with_peer = |open: &Open| matches!(open.work, Work::Write { place: Place::Forwarded { to, .. }, .. } if to == node);
        let lost: Vec<RequestId> = self
            .open
            .iter()
            .filter(|(_, open)| with_peer(open))
            .map(|(key, open)| id(key, open.generation))
            .collect();
        for request in lost {
            self.finish(request, Reply::Refused(Refusal::UnknownOutcome));
        }
    }

    /// Time passed: answers what is due, tries again what is held.
    pub(crate) fn tick(&mut self, now: Ticks, groups: &mut Groups) {
        self.now = now;
        self.find_silent_peers();
        while let Some(&(due, request)) = self.deadlines.front() {
            if due > now {
                break;
            }
            self.deadlines.pop_front();
            self.expire(request);
        }
        self.retry_held(groups);
    }

    /// What time it is by this node's clock.
    pub(crate) fn set_clock(&mut self, time: UnixMillis) {
        self.clock = Some(time);
    }

    /// See [`Router::set_clock`].
    pub(crate) fn clock(&self) -> Option<UnixMillis> {
        self.clock
    }

    /// Held writes are tried again at the next opportunity rather than at the next tick.
    pub(crate) fn leader_changed(&mut self) {
        self.leader_changed = true;
    }

    /// Tries held writes again if a leader changed.
    pub(crate) fn retry_after_change(&mut self, groups: &mut Groups) {
        if core::mem::take(&mut self.leader_changed) {
            self.retry_held(groups);
        }
    }

    fn retry_held(&mut self, groups: &mut Groups) {
        for request in core::mem::take(&mut self.held) {
            self.redirect(request);
            self.dispatch(request, groups);
            self.read_again(request, groups);
        }
    }

    /// The payloads of the next frames of requests and outcomes, in order for each peer.
    pub(crate) fn take_payloads(&mut self) -> impl Iterator<Item = (NodeId, Vec<u8>)> {
        let peers = self.peers.iter_mut();
        peers.flat_map(|peer| peer.outgoing.drain(..).map(|payload| (peer.node, payload)))
    }

    /// The data shard of a key.
    pub(crate) fn shard_of(&self, key: &[u8]) -> ShardId {
        self.slots.shard_of(slots::slot_of(key))
    }

    /// Which shard holds which slots.
    pub(crate) fn slot_map(&self) -> &Arc<SlotMap> {
        &self.slots
    }

    /// Frames of reads and their answers. One that is lost costs its reader time only.
    pub(crate) fn take_reads(&mut self) -> impl Iterator<Item = (NodeId, Vec<u8>)> {
        let frames = |peer: &mut Peer| {
            let node = peer.node;
            core::mem::take(&mut peer.reads).into_iter().map(move |frame| (node, frame))
        };
        self.peers.iter_mut().flat_map(frames)
    }

    pub(crate) fn answer(&mut self, token: Option<Token>, reply: Reply) {
        match reply {
            Reply::Refused(Refusal::NoLeader) => self.counters.refused_no_leader += 1,
            Reply::Refused(Refusal::UnknownOutcome) => self.counters.refused_unknown += 1,
            Reply::Refused(Refusal::Overloaded) => self.counters.refused_overloaded += 1,
            Reply::Refused(Refusal::DiskUnavailable) => self.counters.refused_disk_unavailable += 1,
            _ => {}
        }
        self.replies.extend(token.map(|token| (token, reply)));
    }

    pub(crate) fn replies(&mut self) -> &mut Vec<(Token, Reply)> {
        &mut self.replies
    }

    /// Whether there are replies or payloads to hand out.
    pub(crate) fn has_output(&self) -> bool {
        let has_frames = |peer: &Peer| !peer.outgoing.is_empty() || !peer.reads.is_empty();
        !self.replies.is_empty() || !self.errands.is_empty() || self.peers.iter().any(has_frames)
    }

    pub(crate) fn count_stale_read(&mut self) {
        self.counters.reads_stale += 1;
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Whether a link to a node stands.
    pub(crate) fn is_linked(&self, node: NodeId) -> bool {
        self.peers.iter().any(|peer| peer.node == node && peer.up)
    }

    /// Whether a node can be reached: a link stands, and the node sends something through it.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.peers.iter().any(|peer| peer.node == node && peer.answers)
    }

    /// Sets which shard holds which slots, and who carries the shards that this node does not.
    pub(crate) fn set_map(&mut self, slots: &SlotMap, carriers: impl Iterator<Item = (ShardId, NodeId)>) {
        if *self.slots != *slots {
            self.slots = Arc::new(slots.clone());
        }
        self.routes.set(carriers);
        self.leader_changed = true;
    }

    /// Who is believed to lead a shard that is not replicated here.
    pub(crate) fn leader(&self, shard: ShardId) -> Option<NodeId> {
        self.routes.leader(shard)
    }

    /// A peer says that it leads, or does not lead, a shard.
    pub(crate) fn heard_of_leader(&mut self, shard: ShardId, node: NodeId, led: Option<Term>) {
        self.leader_changed |= self.routes.hear(shard, node, led);
    }

    /// Requests not answered yet.
    pub(crate) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Opens a request, or refuses it when too many are.
    fn open(&mut self, token: Option<Token>, work: Work) -> Option<RequestId> {
        if self.open.len() >= limits::REQUESTS_OPEN_MAX {
            self.answer(token, Reply::Refused(Refusal::Overloaded));
            return None;
        }
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let request = id(
            self.open.insert(Open { generation, token, errand: None, opened: self.now, work }),
            generation,
        );
        self.deadlines.push_back((Ticks(self.now.0 + self.request_ticks), request));
        Some(request)
    }

    fn get(&mut self, request: RequestId) -> Option<&mut Open> {
        let (key, generation) = parts(request);
        self.open.get_mut(key).filter(|open| open.generation == generation)
    }

    /// Sends a held write to its leader, if one is known and can be reached; holds it otherwise.
    fn dispatch(&mut self, request: RequestId, groups: &mut Groups) {
        let origin = Origin { node: self.node, link: LinkNumber(0), request };
        let (key, generation) = parts(request);
        let Some(open) = self.open.get_mut(key).filter(|open| open.generation == generation) else { return };
        let Work::Write { shard, write, place } = &mut open.work else { return };
        debug_assert!(*place == Place::Held, "invariant: a write is in one place at a time");
        match groups.with(*shard, |group| group.propose(write, origin, self.clock)) {
            Some(Ok(())) => *place = Place::Local,
            Some(Err(ProposeError::Refused(refusal))) => self.finish(request, Reply::Refused(refusal)),
            Some(Err(ProposeError::NotHere)) => self.held.push_back(request),
            None if !self.routes.knows(*shard) => {
                self.finish(request, Reply::Refused(Refusal::Invalid("no such shard")));
            }
            None | Some(Err(ProposeError::NotLeader)) => {
                let known = groups.member(*shard).map(|group| group.leader());
                let leader = known.unwrap_or_else(|| self.routes.leader(*shard));
                let Some(peer) = self.peers.iter_mut().find(|peer| Some(peer.node) == leader && peer.answers)
                else {
                    self.held.push_back(request);
                    return;
                };
                if peer.unanswered_bytes >= limits::FORWARD_BYTES_MAX {
                    return self.finish(request, Reply::Refused(Refusal::Overloaded));
                }
                let frame = peer.frame();
                let before = frame.len();
                peer::put_forward(frame, request, *shard, write);
                let bytes = frame.len() - before;
                peer.unanswered_bytes += bytes;
                *place = Place::Forwarded { to: peer.node, bytes };
                self.counters.forwarded += 1;
            }
        }
    }

    fn expire(&mut self, request: RequestId) {
        let Some(open) = self.get(request) else { return };
        let refusal = match open.work {
            Work::Read(_)
            | Work::RemoteRead(_)
            | Work::Displaced(_)
            | Work::Gathering(_)
            | Work::Served(_)
            | Work::Write { place: Place::Held, .. } => Refusal::NoLeader,
            Work::Write { place: Place::Local | Place::Forwarded { .. }, .. } => Refusal::UnknownOutcome,
        };
        self.finish(request, Reply::Refused(refusal));
    }

    fn finish(&mut self, request: RequestId, reply: Reply) {
        let (key, generation) = parts(request);
        if self.open.get(key).is_none_or(|open| open.generation != generation) {
            return;
        }
        let open = self.open.remove(key);
        if open.token.is_some() && self.now.0 - open.opened.0 > self.slow_request_ticks {
            self.note_slow(&open, &reply);
        }
        match open.work {
            Work::Write { place, .. } => self.left(place),
            Work::Served(served) => return self.answer_reader(&served, &reply),
            Work::Read(_) | Work::RemoteRead(_) | Work::Displaced(_) | Work::Gathering(_) => {}
        }
        if let Some(errand) = open.errand {
            return self.errands.push((errand, reply));
        }
        self.answer(open.token, reply);
    }

    /// A request of a client took long.
    #[cold]
    fn note_slow(&mut self, open: &Open, reply: &Reply) {
        self.counters.slow_requests += 1;
        if self.slow.len() >= limits::SLOW_REQUESTS_MAX {
            return;
        }
        let (kind, shard, peer) = match &open.work {
            Work::Write { shard, place: Place::Forwarded { to, .. }, .. } => {
                ("write", Some(*shard), Some(*to))
            }
            Work::Write { shard, .. } => ("write", Some(*shard), None),
            Work::Read(shard) => ("read", *shard, None),
            Work::RemoteRead(remote) => ("read", Some(remote.shard()), remote.asked()),
            Work::Displaced(_) | Work::Gathering(_) | Work::Served(_) => ("read", None, None),
        };
        let refusal = if let Reply::Refused(refusal) = reply { Some(*refusal) } else { None };
        let waited = Ticks(self.now.0 - open.opened.0);
        self.slow.push(SlowRequest { kind, shard, peer, waited, refusal });
    }

    /// Requests that took long, since they were last taken.
    pub(crate) fn slow(&mut self) -> &mut Vec<SlowRequest> {
        &mut self.slow
    }

    /// A write left the place where it was.
    fn left(&mut self, place: Place) {
        if let Place::Forwarded { to, bytes } = place
            && let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == to)
        {
            peer.unanswered_bytes -= bytes;
        }
    }
}

impl Peer {
    fn new(node: NodeId) -> Peer {
        Peer {
            node,
            up: false,
            answers: false,
            heard: Ticks(0),
            link: LinkNumber(0),
            outgoing: Vec::new(),
            reads: Vec::new(),
            unanswered_bytes: 0,
        }
    }

    /// Whether an outcome for `origin` may leave through this link.
    fn is(&self, origin: &Origin, faults: Faults) -> bool {
        let same_link = self.link == origin.link || faults.has(Fault::OutcomeThroughLaterLink);
        self.up && self.node == origin.node && same_link
    }

    /// The frame that the next message goes into. A message may make it longer than it is closed at.
    fn frame(&mut self) -> &mut Vec<u8> {
        if self.outgoing.last().is_none_or(|frame| frame.len() >= limits::PEER_FRAME_BYTES_CLOSE) {
            self.outgoing.push(alloc::vec![peer::KIND_REQUESTS]);
        }
        self.outgoing.last_mut().expect("invariant: a frame was begun just now")
    }
}

/// How many writes of clients one write stands for.
fn writes_in(write: &Write) -> u64 {
    match write {
        Write::Transaction(transaction) => transaction.operations.len() as u64,
        _ => 1,
    }
}

/// The slab's key tells where, the generation that it is still the same request.
fn id(key: usize, generation: u32) -> RequestId {
    RequestId(u64::from(generation) << 32 | key as u64)
}

fn parts(request: RequestId) -> (usize, u32) {
    ((request.0 & u64::from(u32::MAX)) as usize, (request.0 >> 32) as u32)
}
