//! The router: every client request to this node, from its arrival to its reply.
//!
//! Owns forwarding to the shard's leader, deadlines, and the correctness of outcomes. It is part of
//! the core so that the simulator tests it. This is where a store could lose acknowledged writes,
//! or refuse a write that later takes effect.
//!
//! Invariants:
//! - A request gets exactly one reply, by its deadline.
//! - A write is in one place at a time: held here, queued at the local leader, or forwarded to one
//!   peer. It is retried only when that place reported that the write is not done and never will
//!   be.
//! - A refusal other than `UnknownOutcome` is given only for a write that is held here, and so is
//!   in no log.
//! - A forwarded write or read is never forwarded again. Its receiver leads, or has a replica of
//!   the shard, or replies that it does not.

mod audit;
mod flush;
mod forwarding;
mod gather;
mod guard;
mod links;
mod loads;
mod reads;
mod routes;
mod tracing;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use slab::Slab;

use crate::auth::Caller;
use crate::command::{CheckedWrite, Denial, Refusal, Reply, ShardRefusal, Write, WriteReply};
use crate::deliberate::{Fault, Faults};
use crate::event::{Counters, NodeOptions, SlowRequest};
use crate::limits;
use crate::load::LoadMeter;
use crate::peer::{self, LinkNumber, Origin, RequestId};
use crate::raft::{Groups, ProposeError};
use crate::slots::slot_map::SlotMap;
use crate::slots::slot_of;
use crate::spans::TraceContext;
use crate::types::{NodeId, ShardId, Term, Ticks, Token, UnixMillis};
use crate::version::ClusterVersion;
use flush::{FlushParent, Flushing};
use guard::Guard;
use links::Peer;
use reads::{PeerRead, Remote, RetryRead, ScatterGather};
use routes::Routes;
use tracing::{OpenSpan, Tracing};

/// The open requests of one node, and its links to peers.
pub(crate) struct Router {
    node: NodeId,
    slots: Arc<SlotMap>,
    /// The version of the cluster, as far as this node has applied the registry.
    version: ClusterVersion,
    /// Number of founding data shards, which determines the founding slots of each shard.
    founding: u64,
    routes: Routes,
    request_ticks: u64,
    election_ticks: u64,
    slow_request_ticks: u64,
    now: Ticks,
    /// This node's wall-clock time, once the shell has reported it. Commands are proposed with it.
    clock: Option<UnixMillis>,
    open: Slab<Open>,
    generation: u32,
    /// Sorted by deadline, because all requests have the same timeout.
    deadlines: VecDeque<(Ticks, RequestId)>,
    /// Writes that wait for a leader, and reads that wait for a node with a replica of their shard.
    held: VecDeque<RequestId>,
    peers: Vec<Peer>,
    /// Number of links that this node has had so far, to all peers.
    links: u64,
    replies: Vec<(Token, Reply)>,
    /// Slow requests, to report in [`Actions::slow`](crate::event::Actions::slow).
    slow: Vec<SlowRequest>,
    /// Shards whose writes were refused because no leader was known, each once.
    leaderless: Vec<ShardId>,
    internal_requests: Vec<(InternalRequest, Reply)>,
    /// Outcomes of writes that are parts of a flush.
    flush_parts: Vec<(FlushParent, Reply)>,
    /// Whether a leader has changed since held writes were last retried.
    leader_changed: bool,
    counters: Counters,
    load: LoadMeter,
    guard: Guard,
    tracing: Tracing,
    faults: Faults,
}

/// Who makes a request, and who gets the reply.
pub(crate) struct Requester {
    /// `None` for requests of the node itself.
    pub(crate) token: Option<Token>,
    pub(crate) caller: Caller,
    /// Set if the request is traced.
    pub(crate) trace: Option<TraceContext>,
}

impl Requester {
    /// The node itself, which does not await a reply.
    pub(crate) const NODE: Requester = Requester { token: None, caller: Caller::Node, trace: None };
}

struct Open {
    generation: u32,
    /// `None` for requests of the node itself.
    token: Option<Token>,
    /// Set for requests of the node itself whose outcome it wants to know.
    internal_request: Option<InternalRequest>,
    /// Set for writes that are parts of a flush.
    parent: Option<FlushParent>,
    opened: Ticks,
    /// Set if the request is traced.
    span: Option<OpenSpan>,
    /// Sent along when the request is forwarded.
    caller: Caller,
    work: Work,
}

/// Identifies a request of the node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InternalRequest {
    /// The shard for which the node makes the request.
    pub(crate) shard: ShardId,
    pub(crate) number: u64,
}

enum Work {
    Write {
        write: CheckedWrite,
        place: WriteProgress,
    },
    /// A read of one shard that has a replica here; `None` while it is being processed.
    Read(Option<ShardId>),
    /// A read of one shard without a replica here.
    RemoteRead(Remote),
    /// A held read that no shard can answer now, because its slots are being moved.
    RetryRead(RetryRead),
    ScatterGather(Box<ScatterGather>),
    /// A removal of all keys, whose parts are writes.
    Flush(Box<Flushing>),
    /// A peer's read of a shard with a replica here.
    PeerRead(PeerRead),
    /// A read round of the prime shard: see [`Router::confirm_access`].
    ConfirmAccess,
}

impl Work {
    /// A write that is held here.
    fn held(write: CheckedWrite) -> Work {
        Work::Write { write, place: WriteProgress::Held }
    }
}

/// Where a write is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteProgress {
    /// Held here; no other node knows of it.
    Held,
    /// In the queue or the log of the local leader.
    Local,
    /// Forwarded to a peer that was believed to lead.
    Forwarded { to: NodeId, bytes: usize },
}

impl Router {
    /// A router without peers.
    pub(crate) fn new(options: &NodeOptions) -> Router {
        Router {
            node: options.host.node,
            slots: Arc::new(SlotMap::founded(options.data_shards)),
            version: options.founding_version,
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
            leaderless: Vec::new(),
            internal_requests: Vec::new(),
            flush_parts: Vec::new(),
            leader_changed: false,
            counters: Counters::default(),
            load: LoadMeter::default(),
            guard: Guard::new(options.timing.access_stale_ticks, options.faults),
            tracing: Tracing::new(options.seed),
            faults: options.faults,
        }
    }

    /// Accepts a write for the shard of its key, or for the shard that it names.
    pub(crate) fn write(&mut self, requester: Requester, mut write: Write, groups: &mut Groups) {
        let token = requester.token;
        self.counters.writes += if token.is_some() { writes_in(&write) } else { 0 };
        if self.faults.has(Fault::ReceiverClockUsed)
            && let Some(clock) = self.clock
        {
            write = write.at(clock);
        }
        if let Write::Config(config) = &mut write
            && (self.version < ClusterVersion::WITH_CLAIMED_AUTHORS
                || self.faults.has(Fault::ClaimedAuthorDropped))
            && !self.faults.has(Fault::NewCommandBeforeRaise)
        {
            // As an earlier release does.
            config.stamp.on_behalf_of = "".into();
        }
        if self.is_too_new(&write) {
            return self.answer(token, Reply::Write(WriteReply::Denied(Denial::VersionTooLow)));
        }
        let checked = match self.check(write) {
            Ok(checked) => checked,
            Err(refusal) => return self.answer(token, Reply::Refused(refusal.into())),
        };
        if token.is_some() {
            self.load.write(checked.shard(), checked.write());
        }
        if let Some(request) = self.open(requester, Work::held(checked)) {
            self.dispatch(request, groups);
        }
    }

    /// Accepts a write of the node itself that wants to know the outcome: see
    /// [`Router::take_internal_requests`].
    pub(crate) fn run_internal_request(
        &mut self,
        internal_request: InternalRequest,
        write: Write,
        groups: &mut Groups,
    ) {
        match self.check(write).map(|checked| self.open(Requester::NODE, Work::held(checked))) {
            Ok(Some(request)) => {
                if let Some(open) = self.get(request) {
                    open.internal_request = Some(internal_request);
                }
                self.dispatch(request, groups);
            }
            Ok(None) => self.internal_requests.push((internal_request, Reply::Refused(Refusal::Overloaded))),
            Err(refusal) => {
                self.internal_requests.push((internal_request, Reply::Refused(refusal.into())));
            }
        }
    }

    /// Whether a write must not be proposed or sent yet, because a host of the cluster may not know
    /// it.
    fn is_too_new(&self, write: &Write) -> bool {
        write.needed_version() > self.version && !self.faults.has(Fault::NewCommandBeforeRaise)
    }

    /// Takes the outcomes of writes of the node itself.
    pub(crate) fn take_internal_requests(&mut self) -> Vec<(InternalRequest, Reply)> {
        core::mem::take(&mut self.internal_requests)
    }

    /// Checks a write and finds its shard by the current slot map.
    fn check(&self, write: Write) -> Result<CheckedWrite, ShardRefusal> {
        CheckedWrite::new(write, |key| self.shard_of(key))
    }

    /// Sends a held write to the current shard of its keys. It is refused if its keys are in
    /// several shards by now.
    fn redirect(&mut self, request: RequestId) {
        let (key, generation) = parts(request);
        let Some(open) = self.open.get_mut(key).filter(|open| open.generation == generation) else { return };
        let Work::Write { write, place: WriteProgress::Held } = &mut open.work else { return };
        if let Err(refusal) = write.route(|key| self.slots.shard_of(slot_of(key))) {
            self.finish(request, Reply::Refused(refusal.into()));
        }
    }

    /// Handles a broken link: requests forwarded to the node may take effect or not.
    pub(crate) fn link_down(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
            peer.link_down();
        }
        self.routes.lose(node);
        self.reads_lost(node);
        let with_peer = |open: &Open| matches!(open.work, Work::Write { place: WriteProgress::Forwarded { to, .. }, .. } if to == node);
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

    /// Handles a tick: times out requests and retries held ones.
    pub(crate) fn tick(&mut self, now: Ticks, groups: &mut Groups) {
        self.now = now;
        self.find_silent_peers();
        self.expire_spans();
        while let Some(&(due, request)) = self.deadlines.front() {
            if due > now {
                break;
            }
            self.deadlines.pop_front();
            self.expire(request);
        }
        self.retry_held(groups);
    }

    /// Sets this node's wall-clock time.
    pub(crate) fn set_clock(&mut self, time: UnixMillis) {
        self.load.set_now(time);
        self.clock = Some(time);
    }

    /// See [`Router::set_clock`].
    pub(crate) fn clock(&self) -> Option<UnixMillis> {
        self.clock
    }

    /// Retries held writes at the next opportunity instead of the next tick.
    pub(crate) fn leader_changed(&mut self) {
        self.leader_changed = true;
    }

    /// Retries held writes if a leader changed.
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
            self.flush_again(request, groups);
        }
    }

    /// The data shard of a key.
    pub(crate) fn shard_of(&self, key: &[u8]) -> ShardId {
        self.slots.shard_of(slot_of(key))
    }

    pub(crate) fn slot_map(&self) -> &Arc<SlotMap> {
        &self.slots
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

    /// Whether there are replies or payloads to take.
    pub(crate) fn has_output(&self) -> bool {
        !self.replies.is_empty()
            || !self.internal_requests.is_empty()
            || !self.flush_parts.is_empty()
            || !self.leaderless.is_empty()
            || self.peers.iter().any(Peer::has_frames)
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether the cluster has at least this version, as far as this node knows.
    pub(crate) fn has_version(&self, version: ClusterVersion) -> bool {
        self.version >= version
    }

    /// Sets the version of the cluster.
    pub(crate) fn set_version(&mut self, version: ClusterVersion) {
        self.version = version;
    }

    /// Sets the slot map, and the nodes of the replicas of all shards.
    pub(crate) fn set_map(&mut self, slots: &SlotMap, nodes: impl Iterator<Item = (ShardId, NodeId)>) {
        if *self.slots != *slots {
            self.slots = Arc::new(slots.clone());
        }
        self.routes.set(nodes);
        self.leader_changed = true;
    }

    /// The node that is believed to lead a shard without a replica here.
    pub(crate) fn leader(&self, shard: ShardId) -> Option<NodeId> {
        self.routes.leader(shard)
    }

    /// Records a peer's report that it leads, or does not lead, a shard.
    pub(crate) fn heard_of_leader(&mut self, shard: ShardId, node: NodeId, led: Option<Term>) {
        self.leader_changed |= self.routes.hear(shard, node, led);
    }

    /// Requests not answered yet.
    pub(crate) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Opens a request; refuses it if too many are open.
    fn open(&mut self, Requester { token, caller, trace }: Requester, work: Work) -> Option<RequestId> {
        if self.open.len() >= limits::REQUESTS_OPEN_MAX {
            self.answer(token, Reply::Refused(Refusal::Overloaded));
            return None;
        }
        let span = trace.and_then(|context| self.tracing.begin(context, tracing::work_of(&work)));
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let request = id(
            self.open.insert(Open {
                generation,
                token,
                internal_request: None,
                parent: None,
                opened: self.now,
                span,
                caller,
                work,
            }),
            generation,
        );
        self.deadlines.push_back((Ticks(self.now.0 + self.request_ticks), request));
        Some(request)
    }

    fn get(&mut self, request: RequestId) -> Option<&mut Open> {
        let (key, generation) = parts(request);
        self.open.get_mut(key).filter(|open| open.generation == generation)
    }

    /// Sends a held write to the shard's leader, if one is known and reachable. Otherwise it stays
    /// held.
    fn dispatch(&mut self, request: RequestId, groups: &mut Groups) {
        let origin = Origin { node: self.node, link: LinkNumber(0), request };
        let (key, generation) = parts(request);
        let Some(open) = self.open.get_mut(key).filter(|open| open.generation == generation) else { return };
        let Work::Write { write, place } = &mut open.work else { return };
        debug_assert!(*place == WriteProgress::Held, "invariant: a write is in one place at a time");
        let (shard, write) = (write.shard(), write.write());
        let is_recorded = audit::is_recorded(self.version, write);
        let recorded = is_recorded.then(|| audit::recorded(&open.caller, write));
        let proposed = recorded.as_ref().unwrap_or(write);
        match groups.with(shard, |group| group.propose(proposed, origin, self.clock)) {
            Some(Ok(())) => *place = WriteProgress::Local,
            Some(Err(ProposeError::Refused(refusal))) => {
                self.finish(request, Reply::Refused(refusal.into()));
            }
            Some(Err(ProposeError::NotHere)) => self.hold(request),
            None if !self.routes.knows(shard) => {
                self.finish(request, Reply::Refused(Refusal::invalid("no such shard")));
            }
            None | Some(Err(ProposeError::NotLeader)) => {
                let known = groups.member(shard).map(|group| group.leader());
                let leader = known.unwrap_or_else(|| self.routes.leader(shard));
                let Some(peer) = self.peers.iter_mut().find(|peer| Some(peer.node) == leader && peer.answers)
                else {
                    return self.hold(request);
                };
                if peer.unanswered_bytes >= limits::FORWARD_BYTES_MAX {
                    return self.finish(request, Reply::Refused(Refusal::Overloaded));
                }
                let sent = (peer.node, shard);
                let context = self.tracing.forwarded(open.span.as_mut(), sent, self.version);
                let frame = peer.frame();
                let before = frame.len();
                self.guard
                    .sent_with(&open.caller, is_recorded)
                    .iter()
                    .for_each(|caller| peer::put_caller(frame, caller));
                context.iter().for_each(|context| peer::put_trace(frame, *context));
                peer::put_forward(frame, request, shard, write);
                let bytes = frame.len() - before;
                peer.unanswered_bytes += bytes;
                *place = WriteProgress::Forwarded { to: peer.node, bytes };
                self.counters.forwarded += 1;
            }
        }
    }

    fn expire(&mut self, request: RequestId) {
        let Some(open) = self.get(request) else { return };
        if let Work::Flush(_) = &open.work {
            return self.end_flush(request, Refusal::NoLeader);
        }
        let refusal = match &open.work {
            Work::Read(_)
            | Work::RemoteRead(_)
            | Work::RetryRead(_)
            | Work::ScatterGather(_)
            | Work::PeerRead(_)
            | Work::Flush(_)
            | Work::ConfirmAccess => Refusal::NoLeader,
            Work::Write { write, place: WriteProgress::Held } => {
                let shard = write.shard();
                if !self.leaderless.contains(&shard) {
                    self.leaderless.push(shard);
                }
                Refusal::NoLeader
            }
            Work::Write { place: WriteProgress::Local | WriteProgress::Forwarded { .. }, .. } => {
                Refusal::UnknownOutcome
            }
        };
        self.finish(request, Reply::Refused(refusal));
    }

    fn finish(&mut self, request: RequestId, reply: Reply) {
        let (key, generation) = parts(request);
        if self.open.get(key).is_none_or(|open| open.generation != generation) {
            return;
        }
        let open = self.open.remove(key);
        self.tracing.end(open.span, tracing::end_of(&reply));
        if open.token.is_some() && self.now.0 - open.opened.0 > self.slow_request_ticks {
            self.note_slow(&open, &reply);
        }
        match open.work {
            Work::Write { place, .. } => self.left(place),
            // The peer has its own deadline.
            Work::PeerRead(_) => return,
            Work::ConfirmAccess => return self.access_unconfirmed(),
            Work::Read(_)
            | Work::RemoteRead(_)
            | Work::RetryRead(_)
            | Work::ScatterGather(_)
            | Work::Flush(_) => {}
        }
        if let Some(parent) = open.parent {
            return self.flush_parts.push((parent, reply));
        }
        if let Some(internal_request) = open.internal_request {
            return self.internal_requests.push((internal_request, reply));
        }
        self.answer(open.token, reply);
    }

    /// Records a slow client request.
    #[cold]
    fn note_slow(&mut self, open: &Open, reply: &Reply) {
        self.counters.slow_requests += 1;
        if self.slow.len() >= limits::SLOW_REQUESTS_MAX {
            return;
        }
        let (kind, shard, peer) = match &open.work {
            Work::Write { write, place: WriteProgress::Forwarded { to, .. } } => {
                ("write", Some(write.shard()), Some(*to))
            }
            Work::Write { write, .. } => ("write", Some(write.shard()), None),
            Work::Flush(_) => ("write", None, None),
            Work::Read(shard) => ("read", *shard, None),
            Work::RemoteRead(remote) => ("read", Some(remote.shard()), remote.asked()),
            Work::RetryRead(_) | Work::ScatterGather(_) | Work::PeerRead(_) | Work::ConfirmAccess => {
                ("read", None, None)
            }
        };
        let refusal = if let Reply::Refused(refusal) = reply { Some(refusal.clone()) } else { None };
        let waited = Ticks(self.now.0 - open.opened.0);
        self.slow.push(SlowRequest { kind, shard, peer, waited, refusal });
    }

    /// Slow requests since they were last taken.
    pub(crate) fn slow(&mut self) -> &mut Vec<SlowRequest> {
        &mut self.slow
    }

    /// Shards whose writes were refused since the last call because no leader was known.
    pub(crate) fn take_leaderless(&mut self) -> Vec<ShardId> {
        core::mem::take(&mut self.leaderless)
    }

    /// Releases what a write took up at its previous place.
    fn left(&mut self, place: WriteProgress) {
        if let WriteProgress::Forwarded { to, bytes } = place
            && let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == to)
        {
            peer.unanswered_bytes -= bytes;
        }
    }
}

/// Number of client writes that one write counts as.
fn writes_in(write: &Write) -> u64 {
    match write {
        Write::Keys(transaction) => transaction.operations.len() as u64,
        Write::Conditional(transaction) => transaction.operations_max() as u64,
        Write::Lease(write) => write.tags().count() as u64,
        _ => 1,
    }
}

/// The low half is the slab's key, the high half a generation that distinguishes requests with the
/// same key.
fn id(key: usize, generation: u32) -> RequestId {
    RequestId(u64::from(generation) << 32 | key as u64)
}

fn parts(request: RequestId) -> (usize, u32) {
    ((request.0 & u64::from(u32::MAX)) as usize, (request.0 >> 32) as u32)
}
