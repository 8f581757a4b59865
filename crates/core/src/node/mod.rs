//! A node: the replicas of one worker, the requests of its clients, and its links to peers.
//!
//! Owns the conversion of events to actions. Use: call [`Node::handle`] for all available events,
//! then [`Node::drive`] once. Everything that queued in between becomes one Raft entry for each
//! shard, one log batch and one frame for each peer.

mod clocks;
mod disks;
mod dividing;
mod first_elections;
pub mod force_new_cluster;
mod frames;
mod key_reports;
mod leaderships;
mod load_reports;
mod local_replicas;
mod log_compaction;
mod members;
mod migrating;
mod placing;
mod planned;
mod publications;
mod slot_balance;
#[cfg(test)]
mod tests;
mod versions;
mod view;
mod vote_balance;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Range;
use crc::{CRC_64_XZ, Crc};

use self::log_compaction::LogCompaction;
pub use self::log_compaction::WALK_BYTES_PER_LOG_BYTE;

use crate::auth::Caller;
use crate::command::{
    HostRole, HotSlotMoveView, LoadView, NodeReply, Read, Refusal, RegistryWrite, Reply, Request,
    VoteExchange, Write,
};
use crate::control::registry::Registry;
use crate::deliberate::Fault;
use crate::event::{Actions, Event, NodeOptions, NodeStatus, OutgoingFrame, ShardStatus};
use crate::limits;
use crate::machine::Machine;
use crate::peer::DiskState;
use crate::peer::{self, Position};
use crate::raft::{Disks, Group, Groups, Output};
use crate::router::{Requester, Router};
use crate::slots::slot_map::SlotMap;
use crate::storage::snapshot::SnapshotDone;
use crate::storage::{RecoveredShards, WalBatch};
use crate::trace::{ProposalRefusal, TraceEvent, TraceKind};
use crate::types::{LogIndex, NodeId, ShardId, Term, Ticks, WalSequence};
use crate::version::ClusterVersion;
use clocks::PeerClocks;
use disks::DiskHistory;
use dividing::Dividing;
use first_elections::FirstElections;
use key_reports::KeyReports;
use leaderships::LeadershipBalance;
use load_reports::LoadReports;
use local_replicas::LocalReplicas;
use members::AppliedRegistry;
use migrating::Migrating;
use placing::HostLiveness;
use planned::Planned;
use publications::Publications;
use versions::Versions;
pub use versions::writes_of;

/// A node. See the module documentation for its use.
pub struct Node {
    options: NodeOptions,
    now: Ticks,
    retiring: bool,
    /// Whether the node was removed from the cluster.
    removed: bool,
    applied_registry: AppliedRegistry,
    local_replicas: LocalReplicas,
    first_elections: FirstElections,
    versions: Versions,
    watch: HostLiveness,
    migrating: Migrating,
    dividing: Dividing,
    load_reports: LoadReports,
    leadership_balance: LeadershipBalance,
    slot_balance: Planned<HotSlotMoveView>,
    vote_balance: Planned<VoteExchange>,
    clocks: PeerClocks,
    /// The states of the disks of this node and its peers.
    disks: Disks,
    disk_history: DiskHistory,
    groups: Groups,
    router: Router,
    output: Output,
    /// Log batches that are not durable yet, with the shards of their records.
    batches: VecDeque<(WalSequence, Vec<ShardId>)>,
    /// The leader of each shard as of the last drive, to detect changes.
    leaders: Vec<Option<NodeId>>,
    /// The last reported positions of peers' replicas.
    reports: BTreeMap<(NodeId, ShardId), Position>,
    /// Whether the positions of the replicas here should be reported to peers.
    report_due: bool,
    log_compaction: LogCompaction,
    /// Slots without a replica here, to report in the next [`Actions::remote_slots`].
    remote_slots: Vec<Range<u16>>,
    /// To report in the next [`Actions::leaderless_slots`].
    leaderless_slots: Vec<Range<u16>>,
    /// Slots without a replica here at the last report.
    reported_remote_slots: Vec<Range<u16>>,
    /// The version of the slot map at the last report.
    reported_map: u64,
    key_reports: KeyReports,
    publications: Publications,
    frames_invalid: u64,
}

impl Node {
    /// Creates a node from the state on its disk.
    ///
    /// # Panics
    /// If the options contradict themselves: no founders, no node number, no data shard, or a node
    /// that is no founder without a replica of the prime shard.
    pub fn new(options: NodeOptions, mut recovered: RecoveredShards) -> Node {
        let founders = options.founders.len() as u64;
        let node = options.host.node;
        assert!(founders > 0 && node.0 > 0, "a cluster has founders, and a node a number");
        assert!((1..=limits::SHARDS_MAX).contains(&options.data_shards), "a cluster has data shards");
        let first_elections = FirstElections::begin(&options, &recovered);
        if options.faults.has(Fault::ReplicaIdReused) {
            recovered.clear();
        }
        let (local_replicas, groups) = LocalReplicas::begin(&options, recovered, first_elections.are_held());
        let mut node = Node {
            now: Ticks(0),
            retiring: false,
            removed: false,
            applied_registry: AppliedRegistry::default(),
            local_replicas,
            first_elections,
            versions: Versions::new(options.version),
            watch: HostLiveness::default(),
            migrating: Migrating::default(),
            dividing: Dividing::default(),
            load_reports: LoadReports::default(),
            leadership_balance: LeadershipBalance::default(),
            slot_balance: Planned::default(),
            vote_balance: Planned::default(),
            clocks: PeerClocks::default(),
            disks: Disks::default(),
            disk_history: DiskHistory::default(),
            leaders: Vec::new(),
            groups,
            router: Router::new(&options),
            output: Output::new(),
            batches: VecDeque::new(),
            reports: BTreeMap::new(),
            report_due: false,
            log_compaction: LogCompaction::default(),
            remote_slots: Vec::new(),
            leaderless_slots: Vec::new(),
            reported_remote_slots: Vec::new(),
            reported_map: 1,
            key_reports: KeyReports::default(),
            publications: Publications::default(),
            frames_invalid: 0,
            options,
        };
        if node.may_miss_access() {
            node.router.distrust_access();
        }
        node.follow_registry();
        node
    }

    /// Handles an event. This is cheap: the work follows in [`Node::drive`].
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Request { token, caller, request, trace } => {
                self.request(Requester { token: Some(token), caller, trace }, request);
            }
            Event::Frame { from, payload } => {
                if self.frame(from, &payload).is_err() {
                    self.frames_invalid += 1;
                }
            }
            Event::PeerVersions { peer, supported, recorded } => {
                self.peer_versions(peer, supported, recorded);
            }
            Event::LinkUp(peer) => {
                self.router.link_up(peer);
                self.publications.link_changed(peer);
                self.introduce(peer);
                self.peer_linked(peer);
                self.founder_linked(peer);
                self.report_due |= self.disks.own() != DiskState::Healthy;
            }
            Event::LinkDown(peer) => {
                self.router.link_down(peer);
                self.publications.link_changed(peer);
                self.peer_versions_lost(peer);
                self.clock_lost(peer);
                self.peer_disk_changed(peer, DiskState::Healthy);
                self.groups.for_each(|group| group.link_lost(peer));
            }
            Event::Tick => self.tick(),
            Event::Clock(time) => self.router.set_clock(time),
            Event::Durable(sequence) => self.durable(sequence),
            Event::Snapshot(SnapshotDone::Removed { id }) => self.files_removed(id.shard),
            Event::Snapshot(done) => {
                let output = &mut self.output;
                // It may be a checkpoint, for which a client may be waiting.
                self.report_due |= matches!(done, SnapshotDone::Finished { .. });
                self.groups.with(done.id().shard, |group| group.snapshot_done(done, output));
                self.schedule_compaction_check();
            }
            Event::SpanningTransactions(count) => self.spanning_transactions(count),
            Event::LogHeld(held) => self.log_held(held),
            Event::DiskStalled(reason) => self.disk_stalled(reason),
            Event::DiskRecovered => self.disk_recovered(),
            Event::KeysUnwatched => self.key_reports.end(),
            Event::Retire => self.retiring = true,
        }
    }

    /// Whether [`Node::drive`] would do something.
    pub fn has_work(&self) -> bool {
        !self.groups.is_idle()
            || self.report_due
            || self.has_clocks_due()
            || self.log_compaction.is_due()
            || !self.remote_slots.is_empty()
            || !self.leaderless_slots.is_empty()
            || self.router.has_output()
            || self.output.has_output()
            || self.versions.has_output()
            || self.load_reports.has_output()
            || self.publications.has_output()
            || self.has_roster_output()
    }

    /// Processes the events handled since the last call and fills `actions`.
    pub fn drive(&mut self, actions: &mut Actions) {
        loop {
            self.output.is_tracing = self.router.is_tracing();
            while let Some(group) = self.groups.next_dirty() {
                group.drive(&mut self.output);
                let leader = group.leader();
                let position = group.shard().0 as usize;
                if self.leaders.len() <= position {
                    self.leaders.resize(position + 1, None);
                }
                if self.leaders[position] != leader {
                    // Nodes without a replica of the shard learn its leader only from the leader's
                    // own report.
                    self.report_due |= group.leads();
                    self.leaders[position] = leader;
                    self.router.leader_changed();
                }
            }
            for (shard, index, origins) in self.output.logged.drain(..) {
                self.router.logged((shard, index), &origins);
            }
            for (origin, outcome) in self.output.outcomes.drain(..) {
                self.router.outcome(origin, outcome);
            }
            for done in self.output.reads.drain(..) {
                self.router.read_done(done);
            }
            self.follow_registry();
            self.migrate();
            self.router.retry_after_change(&mut self.groups);
            self.router.continue_flushes(&mut self.groups);
            if self.groups.is_idle() {
                self.begin_due_snapshot();
            }
            if self.groups.is_idle() {
                break;
            }
        }
        self.emit(actions);
    }

    /// Answers a stale read at once. It is a shortcut for [`Event::Request`] with the same read.
    /// `None` if a shard that the read needs has no replica here; then the event gets an answer.
    pub fn read_stale(&mut self, caller: &Caller, read: &Read) -> Option<Reply> {
        if let Err(refusal) = self.router.check_read(caller, read) {
            return Some(Reply::Refused(refusal.into()));
        }
        if !self.options.faults.has(Fault::StaleReadNotReported) {
            self.report_keys_for(read);
        }
        self.router.read_stale(read, &self.groups)
    }

    /// The shard of a key, according to this node's slot map.
    pub fn shard_of(&self, key: &[u8]) -> ShardId {
        self.router.shard_of(key)
    }

    /// This node's slot map: which shard holds which slots.
    pub fn slot_map(&self) -> &Arc<SlotMap> {
        self.router.slot_map()
    }

    /// Collects the status of the node and of its replicas.
    pub fn status(&self) -> NodeStatus {
        let mut counters = self.router.counters();
        let raft = self.output.counters;
        counters.entries_proposed = raft.entries_proposed;
        counters.commands_proposed = raft.commands_proposed;
        counters.read_rounds = raft.read_rounds;
        counters.entries_applied = raft.entries_applied;
        counters.leaderships = raft.leaderships;
        counters.frames_invalid = self.frames_invalid;
        counters.publications_dropped = self.publications.dropped;
        NodeStatus {
            node: self.options.host.node,
            now: self.now,
            retiring: self.retiring,
            removed: self.removed,
            disk_stalled: self.disks.own() == DiskState::Stalled,
            disk_unsteady: self.disks.own() == DiskState::Unsteady,
            peers_stalled: self.disks.peers_stalled(),
            requests_open: self.router.open_count(),
            shards: self
                .groups
                .iter()
                .map(|group| ShardStatus {
                    leader: self.leader(group.shard()),
                    slots: self.owned_slots(group.shard()).map(|(slots, _)| slots),
                    ..group.status()
                })
                .collect(),
            links: self.router.peers().iter().map(|peer| (peer.node, peer.answers)).collect(),
            silent: self
                .router
                .peers()
                .iter()
                .filter(|peer| peer.up && !peer.answers)
                .map(|peer| peer.node)
                .collect(),
            clocks: self.peer_clocks(),
            moves: self.moves(),
            spanning_transactions: self.recent_spanning(),
            division: self.division_view(),
            leadership_asked: self.leadership_balance.asked(),
            slot_move_planned: self.slot_balance.proposed().map(|(at, view)| (at, view.next.clone())),
            vote_exchange_planned: self.vote_balance.proposed().map(|(at, exchange)| (at, *exchange)),
            counters,
        }
    }

    /// For checkers: the index that this replica has applied, and a checksum of its state there.
    /// Takes time linear in the state.
    pub fn state_digest(&self, shard: ShardId) -> Option<(LogIndex, u64)> {
        let group = self.groups.iter().find(|group| group.shard() == shard)?;
        Some((group.status().applied, group.machine().digest()))
    }

    /// For checkers: term and checksum of a committed entry that is still in the log here.
    pub fn committed_entry(&self, shard: ShardId, index: LogIndex) -> Option<(Term, u64)> {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        let group = self.groups.iter().find(|group| group.shard() == shard)?;
        let (term, data) = group.committed_entry(index)?;
        Some((term, CRC.checksum(&data)))
    }

    /// For checkers: the writes of a committed entry that is still in the log here.
    pub fn committed_writes(&self, shard: ShardId, index: LogIndex) -> Option<Vec<Write>> {
        self.groups.find(shard)?.committed_writes(index)
    }

    fn request(&mut self, requester: Requester, request: Request) {
        let token = requester.token;
        if let Err(refusal) = self.router.check_request(&requester.caller, &request) {
            return self.router.answer(token, Reply::Refused(refusal));
        }
        match request {
            Request::Write(write) => {
                self.router.write(requester, write, &mut self.groups);
            }
            Request::Read { read, consistency } => {
                self.report_keys_for(&read);
                self.router.read(requester, (read, consistency), &mut self.groups);
            }
            Request::Flush => {
                self.router.flush(requester, &mut self.groups);
            }
            Request::Authorities => {
                let authorities = self.registry().authorities().clone();
                self.router.answer(token, Reply::Node(NodeReply::Authorities(authorities)));
            }
            Request::Access => {
                let access = self.registry().access().clone();
                self.router.answer(token, Reply::Node(NodeReply::Access(access)));
            }
            Request::Audit { before, most } => {
                let records = self.registry().audit().page(before, most);
                self.router.answer(token, Reply::Node(NodeReply::Audit(records)));
            }
            Request::Cluster => {
                let view = self.cluster_view().into();
                self.router.answer(token, Reply::Node(NodeReply::Cluster(view)));
            }
            Request::Registry => {
                let view = self.registry_view().into();
                self.router.answer(token, Reply::Node(NodeReply::Registry(view)));
            }
            Request::Load { most } => {
                let load = LoadView {
                    spanning_transactions: self.recent_spanning(),
                    division: self.division_view(),
                    leadership_transfer: self.leadership_balance.next(),
                    slot_move: self.slot_balance.next().cloned(),
                    vote_exchange: self.vote_balance.next().copied(),
                    ..self.router.load(most)
                };
                let load = load.into();
                self.router.answer(token, Reply::Node(NodeReply::Load(load)));
            }
            Request::Explain { shard } => {
                let unknown = Reply::Refused(Refusal::invalid("there is no such shard"));
                let explained = |explanation| Reply::Node(NodeReply::Explained(explanation));
                let reply = self.explain(shard).map_or(unknown, explained);
                self.router.answer(token, reply);
            }
            Request::Transfer { shard, to } => {
                let reply = self.transfer(requester.caller, shard, to);
                self.router.answer(token, reply);
            }
            Request::SnapshotHere => {
                let (output, mut snapshots) = (&mut self.output, Vec::new());
                self.groups.for_each(|group| snapshots.push((group.shard(), group.snapshot_here(output))));
                self.router.answer(token, Reply::Node(NodeReply::Snapshots(snapshots)));
            }
            Request::Publish(publication) => {
                let published = self.publish(publication);
                let reply = published.map_or_else(Reply::Refused, |()| Reply::Node(NodeReply::Published));
                self.router.answer(token, reply);
            }
        }
    }

    fn tick(&mut self) {
        self.now.0 += 1;
        self.tick_first_elections();
        let now = self.now;
        let output = &mut self.output;
        self.groups.for_each(|group| group.tick(now, output));
        if self.retiring
            || self.host_entry(self.options.host.node).is_some_and(|host_entry| host_entry.draining)
        {
            self.hand_over(self.retiring);
        }
        self.tick_disk();
        self.release_logs();
        self.schedule_compaction_check();
        self.reconcile();
        self.watch_hosts();
        self.place();
        self.report_load();
        self.divide();
        self.balance_slots();
        self.balance_votes();
        self.router.tick(now, &mut self.groups);
        self.router.confirm_access(&mut self.groups);
        self.expire_keys();
        self.migrate();
        if now.0.is_multiple_of(self.options.timing.election_ticks) {
            self.register_host();
            self.raise_version();
            self.remove_departed_hosts();
            self.forget_replicas();
            self.balance_leaderships();
            self.report_due = true;
            self.send_clocks();
            self.report_remote_slots();
            self.report_leaderless_slots();
        }
    }

    /// Proposes the removal of overdue keys and leases in each shard that this node leads.
    fn expire_keys(&mut self) {
        let Some(time) = self.router.clock() else { return };
        let may_shorten = self.router.has_version(ClusterVersion::WITH_SHORTENED_LEASES);
        let mut due = Vec::new();
        self.groups.for_each(|group| due.extend(group.expiries(time, may_shorten)));
        for (expire, count) in due {
            for _ in 0..count {
                self.router.write(Requester::NODE, expire.clone(), &mut self.groups);
            }
        }
    }

    /// Announces this host until the registry contains its current announcement.
    fn register_host(&mut self) {
        let own = self.options.host.node;
        let announced = self.registry().host(own);
        // The registry would refuse a number that was never assigned or whose host was removed.
        let may_announce =
            self.host_entry(own).is_some_and(|host_entry| host_entry.standing != HostRole::Removed)
                && !self.removed;
        // If another disk holds our number, the registry would always refuse the announcement, and
        // the peers report the reason.
        let settled = announced
            .is_some_and(|host| host.info == self.options.host || host.info.uuid != self.options.host.uuid);
        if may_announce && !settled && self.groups.prime().leader().is_some() {
            self.router.write(
                Requester::NODE,
                Write::from(RegistryWrite::RegisterHost(self.options.host.clone())),
                &mut self.groups,
            );
        }
    }

    fn durable(&mut self, sequence: WalSequence) {
        assert!(
            sequence < self.output.sequence,
            "invariant: only batches that were passed to the disk become durable"
        );
        while self.batches.front().is_some_and(|(batch, _)| *batch <= sequence) {
            let (batch, shards) = self.batches.pop_front().expect("invariant: there is a front");
            for shard in shards {
                self.groups.with(shard, |group| group.durable(batch, &mut self.output));
            }
        }
        self.remove_files(sequence);
    }

    fn emit(&mut self, actions: &mut Actions) {
        self.note_raises();
        self.emit_version(actions);
        // Emit a batch without records too: the log may be waiting for the space that is released.
        if !self.output.records.is_empty() || !self.output.released.is_empty() {
            let records = core::mem::take(&mut self.output.records);
            let sequence = self.output.sequence;
            self.output.sequence = WalSequence(sequence.0 + 1);
            let mut shards: Vec<ShardId> = records.iter().map(crate::storage::WalRecord::shard).collect();
            shards.sort_unstable();
            shards.dedup();
            assert!(
                self.batches.back().is_none_or(|(last, _)| last.0 + 1 == sequence.0),
                "invariant: the sequence of batches rises by one"
            );
            self.batches.push_back((sequence, shards));
            assert!(actions.wal.is_none(), "invariant: the shell takes the batch of each drive");
            let released = core::mem::take(&mut self.output.released);
            actions.wal = Some(WalBatch { sequence, records, released });
        }
        actions.snapshots.append(&mut self.output.snapshot_tasks);
        for (to, messages) in &mut self.output.messages {
            for payload in messages.drain(..) {
                actions.frames.push(OutgoingFrame { to: *to, payload: payload.into(), droppable: true });
            }
        }
        let is_awaited = core::mem::take(&mut self.output.is_awaited);
        let raft_frames = actions.frames.len();
        for (to, payload) in self.output.snapshot_frames.drain(..) {
            actions.frames.push(OutgoingFrame { to, payload: payload.into(), droppable: true });
        }
        for (to, payload) in self.router.take_payloads() {
            actions.frames.push(OutgoingFrame { to, payload: payload.into(), droppable: false });
        }
        for (to, payload) in self.router.take_reads() {
            actions.frames.push(OutgoingFrame { to, payload: payload.into(), droppable: true });
        }
        // Before this node stops because of a contradiction, it reports it to its peers.
        self.report_due |= self.output.contradiction.is_some();
        if core::mem::take(&mut self.report_due) {
            let positions = self.groups.iter().map(position);
            let payload = Bytes::from(peer::report(self.disks.own(), positions));
            let links = self.router.peers().iter().filter(|peer| peer.up);
            let frames =
                links.map(|peer| OutgoingFrame { to: peer.node, payload: payload.clone(), droppable: true });
            actions.frames.extend(frames);
        }
        self.emit_load(&mut actions.frames);
        self.emit_clocks(&mut actions.frames);
        self.emit_publications(&mut actions.frames, &mut actions.publications);
        self.drop_excluded(&mut actions.frames);
        actions.replies.append(self.router.replies());
        actions.slow.append(self.router.slow());
        self.trace_leaderless();
        actions.trace.append(&mut self.output.trace);
        actions.spans.append(self.router.span_events());
        actions.config.append(&mut self.output.config);
        actions.keys.append(&mut self.take_key_reports());
        actions.remote_slots.append(&mut self.remote_slots);
        actions.leaderless_slots.append(&mut self.leaderless_slots);
        actions.contradiction = actions.contradiction.or(self.output.contradiction.take());
        let peers = self.emit_peers(&mut actions.frames);
        if peers.is_some() {
            self.forget_reports();
            actions.peers = peers;
        }
        actions.replies_first = !is_awaited && actions.frames.len() == raft_frames;
    }

    /// Records the shards whose writes were refused because no leader was known.
    fn trace_leaderless(&mut self) {
        for shard in self.router.take_leaderless() {
            let replica = self.groups.find(shard).map(Group::status);
            let (term, index) = replica.map_or_else(Default::default, |replica| (replica.term, replica.last));
            let kind = TraceKind::ProposalRefused(ProposalRefusal::NoLeader);
            self.output.trace.push(TraceEvent { shard, term, index, kind });
        }
    }

    fn registry(&self) -> &Registry {
        match self.groups.prime().machine() {
            Machine::Registry(registry) => registry,
            Machine::Data(_) => unreachable!("invariant: the prime shard holds the registry"),
        }
    }
}

fn position(group: &Group) -> Position {
    let ShardStatus { shard, term, checkpoint, leads, diverged, .. } = group.status();
    let applied = group.applied_and_durable();
    Position { shard, term, applied, remembered: group.remembered(), leads, diverged, checkpoint }
}
