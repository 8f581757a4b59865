//! The simulated world: hosts, network, clients and checkers, and the effect of each event on them.
//!
//! Owns the state of a run and the handling of one event. Faults are in [`nemesis`], the work of
//! disks in `disk_work`, the online checkers in `observation`, and the final checks of a healed
//! cluster in [`inspection`]. All randomness comes from the plan's generators, and all order from
//! the event queue and from ordered collections: nothing else may decide anything.

mod backups;
mod caching;
mod disk_work;
mod dividing;
mod enrolment;
mod handshakes;
mod importing;
pub mod inspection;
mod key_watching;
mod leasing;
mod lock_waiting;
pub mod nemesis;
mod observation;
pub mod operators;
mod options;
mod partial_backups;
mod permissions;
mod pipelining;
mod publishing;
mod releases;
mod relocation;
mod restoring;
mod scanning;
mod scripting;
mod steady;
mod watching;

use std::collections::BTreeMap;

use tidelock_core::clients::key_tracking::KeyTracking;
use tidelock_core::clients::watch_hub::WatchHub;
use tidelock_core::command::Reply;
use tidelock_core::event::Event;
use tidelock_core::types::{NodeId, ReplicaId, ShardId, Token};

use crate::addressing::Addressing;
use crate::capacity::Machines;
use crate::checkers::Violation;
use crate::checkers::online::{Conditions, Observation, OnlineCheckers};
use crate::checkers::operations::Ledger;
use crate::density::{Density, event_name};
use crate::describe::{brief_event, brief_reply, link_facts, reply_facts, trace_fact};
use crate::disk::SimDisk;
use crate::event_queue::{Direction, EventQueue, Micros, SimEvent};
use crate::faults::{CrashKind, ShellBug};
use crate::frames::FrameSample;
use crate::history::{CounterRun, Happened, History, ImportedDocument, Incarnation, Iteration, Outcome};
use crate::host::Host;
use crate::key_watcher::KeyWatchingClient;
use crate::net::Network;
use crate::plan::{DiskPace, Plan};
use crate::report::{Report, Tally};
use crate::slots::shard_of;
use crate::trace::{Detail, Trace, digest};
use crate::watcher::WatchingClient;
use crate::workload::Workload;
use backups::BackupClient;
use caching::CachingClient;
use importing::Importer;
use leasing::LeasingClient;
use lock_waiting::LockWaiter;
use nemesis::Nemesis;
use operators::Operators;
use permissions::Administrator;
use pipelining::PipeliningClients;
use publishing::PublishingClients;
use releases::REMOVAL;
use scanning::Scanner;
use scripting::ScriptClient;
use steady::SteadyClients;

/// The state of a run: the plan, the cluster, its clients and the checkers.
pub struct World<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) event_queue: EventQueue,
    pub(crate) net: Network,
    pub(crate) addressing: Addressing,
    pub(crate) hosts: Vec<Host>,
    pub(crate) workload: Workload,
    pub(crate) watchers: Vec<WatchingClient>,
    pub(crate) key_watchers: Vec<KeyWatchingClient>,
    /// The watchers of keys at each host.
    pub(crate) key_hubs: Vec<WatchHub>,
    caching_clients: Vec<CachingClient>,
    /// The keys that the clients at each host cache.
    tracked_keys: Vec<KeyTracking>,
    lease_clients: Vec<LeasingClient>,
    lock_waiters: Vec<LockWaiter>,
    publishing: PublishingClients,
    script_clients: Vec<ScriptClient>,
    /// Runs of scripts that were answered.
    pub(crate) counter_runs: Vec<CounterRun>,
    pub(crate) scanners: Vec<Scanner>,
    pub(crate) iterations: Vec<Iteration>,
    pub(crate) pipelining: PipeliningClients,
    pub(crate) backup_clients: Vec<BackupClient>,
    steady: SteadyClients,
    administrator: Option<Administrator>,
    pub(crate) importers: Vec<Importer>,
    /// Imports that succeeded.
    pub(crate) imports: Vec<ImportedDocument>,
    pub(crate) history: History,
    pub(crate) nemesis: Nemesis,
    pub(crate) disk_pace: DiskPace,
    pub(crate) operators: Operators,
    /// Whether clients send requests and faults strike; false once the cluster heals.
    pub(crate) is_loaded: bool,
    /// Frames between nodes, if they are kept.
    kept_frames: Option<FrameSample>,
    /// The machines, if their capacity is limited.
    machines: Option<Machines>,
    /// Draws the durations of work inside a host.
    pub(crate) pace: fastrand::Rng,
    /// The last replica seen of each shard on each node.
    carried: BTreeMap<(NodeId, ShardId), ReplicaId>,
    checkers: OnlineCheckers,
    ledger: Ledger,
    /// Answers of processes from their memory, on their way to the clients.
    at_once: BTreeMap<Token, Reply>,
    /// The client of each token.
    clients: BTreeMap<Token, usize>,
    /// Seeds each start of a process.
    boots: fastrand::Rng,
    pub(crate) density: Density,
    /// What is counted as it happens; [`World::report`] adds the rest.
    pub(crate) tally: Tally,
    trace: Trace,
}

/// Longest delay from the arrival of an event until the process handles its inbox.
const WAKE_AFTER_MAX: Micros = Micros(150);

impl<'p> World<'p> {
    /// The world of a plan before its first event.
    pub fn new(plan: &'p Plan, detail: Detail) -> World<'p> {
        let mut disks = plan.generator("disks");
        let hosts = (1..=plan.hosts()).map(|node| {
            let disk = SimDisk::new(disks.u64(..));
            let host = Host::new(options::options(plan, NodeId(node)), disk, plan);
            if node <= plan.nodes { host } else { host.absent() }
        });
        let workload = Workload::new(plan);
        World {
            plan,
            event_queue: EventQueue::default(),
            net: Network::new(plan.hosts(), plan.conditions, plan.generator("network").u64(..))
                .with_links(plan.capacity.map(|capacity| capacity.link_bytes_per_second)),
            addressing: Addressing::new(plan.hosts()),
            hosts: hosts.collect(),
            watchers: watching::watchers(plan, &workload),
            key_watchers: key_watching::key_watchers(plan, &workload),
            caching_clients: caching::caching_clients(plan),
            tracked_keys: caching::tracked_keys(plan),
            lease_clients: leasing::lease_clients(plan, &workload),
            lock_waiters: lock_waiting::lock_waiters(plan, &workload),
            publishing: PublishingClients::new(plan),
            script_clients: scripting::script_clients(plan, &workload),
            counter_runs: Vec::new(),
            key_hubs: (0..plan.hosts()).map(|_| WatchHub::default()).collect(),
            scanners: (0..plan.load.scanners)
                .map(|number| Scanner::new(number, plan.generator(&format!("scanner {number}"))))
                .collect(),
            iterations: Vec::new(),
            pipelining: PipeliningClients::new(plan, workload.keys()),
            backup_clients: (0..plan.load.backup_clients)
                .map(|number| BackupClient::new(plan.generator(&format!("backup client {number}"))))
                .collect(),
            steady: SteadyClients::default(),
            administrator: plan.has_principals.then(|| {
                Administrator::new(
                    (plan.timing.access_stale_ticks, plan.nodes),
                    plan.generator("administrator"),
                )
            }),
            importers: (0..plan.load.importers)
                .map(|number| Importer::new(plan.generator(&format!("importer {number}"))))
                .collect(),
            imports: Vec::new(),
            workload,
            history: History::default(),
            nemesis: Nemesis::new(plan.generator("nemesis")),
            disk_pace: plan.disk,
            operators: Operators::new(plan.operator_actions.len()),
            is_loaded: true,
            kept_frames: None,
            machines: plan.capacity.map(|capacity| Machines::new(capacity, plan.hosts())),
            pace: plan.generator("pace"),
            carried: BTreeMap::new(),
            checkers: OnlineCheckers::new(plan),
            ledger: Ledger::default(),
            at_once: BTreeMap::new(),
            clients: BTreeMap::new(),
            boots: plan.generator("boots"),
            density: Density::default(),
            tally: Tally::default(),
            trace: Trace::new(detail),
        }
    }

    /// Starts hosts, links, clients and the schedule of faults.
    pub fn start(&mut self) -> Result<(), Violation> {
        for node in self.nodes() {
            self.start_host(node)?;
        }
        self.net.start(&mut self.event_queue);
        for client in 0..self.plan.load.clients {
            let pause = self.workload.pause();
            self.event_queue.after(pause, SimEvent::Client(client));
        }
        self.start_scanners();
        self.start_watchers();
        self.start_key_watchers();
        self.start_caching();
        self.start_lease_clients();
        self.start_lock_waiters();
        self.start_publishing();
        self.start_script_clients();
        self.start_pipelining();
        self.start_importers();
        self.start_backup_clients();
        self.start_administrator();
        for (index, scheduled) in self.plan.faults.iter().enumerate() {
            self.event_queue.at(scheduled.at, SimEvent::Fault(index));
        }
        for (index, scheduled) in self.plan.operator_actions.iter().enumerate() {
            self.event_queue.at(scheduled.at, SimEvent::OperatorAction(index));
        }
        Ok(())
    }

    /// Handles all events that are due before a time.
    pub fn run_until(&mut self, limit: Micros) -> Result<(), Violation> {
        while let Some(event) = self.event_queue.take_before(limit) {
            let handled = self.happen(event);
            // What an online checker has found comes first, because it is closer to the cause.
            self.checkers.verdict()?;
            handled?;
        }
        Ok(())
    }

    /// The requests and replies of clients.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What the cluster committed.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Statistics of the run so far.
    pub fn report(&self) -> Report {
        let count = |matches: &dyn Fn(&Outcome) -> bool| {
            self.history.of_clients().filter(|operation| matches(&operation.outcome)).count() as u64
        };
        let acknowledged = self.history.of_clients().filter(|done| done.happened() == Happened::Yes);
        let tally = Tally {
            requests: self.history.of_clients().count() as u64,
            acknowledged: acknowledged.count() as u64,
            refused: count(&|outcome| matches!(outcome, Outcome::Answered { reply: Reply::Refused(_), .. })),
            lost: count(&|outcome| *outcome == Outcome::Lost),
            iterations: self.iterations.len() as u64,
            pipelined: self.pipelining.replies(),
            served_on_slow_disks: self.checkers.availability.looks(),
            leaderships: self.checkers.leaders.count() as u64,
            replacements: self.checkers.replacements.judged(),
            checkpoints: self.checkers.replicas.checkpoints_compared(),
            versions_raised: self.checkers.versions.raises(),
            divisions: self.checkers.divisions.count(),
            slot_moves: self.checkers.divisions.slot_moves(),
            frames: self.net.counters().delivered,
            sectors_lost: self.hosts.iter().map(|host| host.disk().counters().sectors_lost).sum(),
            ..self.tally
        };
        Report {
            hash: self.trace.hash(),
            events: self.trace.events(),
            simulated: self.event_queue.now(),
            tally,
            density: self.density.clone(),
        }
    }

    /// By host: for how many nanoseconds its processor was occupied; empty without limits.
    pub fn processor_time_ns(&self) -> Vec<u64> {
        self.machines.as_ref().map(|machines| machines.used_ns().to_vec()).unwrap_or_default()
    }

    /// Adds the frames between nodes to this sample from now on.
    pub(crate) fn keep_frames(&mut self, sample: FrameSample) {
        self.kept_frames = Some(sample);
    }

    /// The frames that were kept.
    pub(crate) fn take_frames(&mut self) -> FrameSample {
        self.kept_frames.take().unwrap_or_default()
    }

    /// The lines of the trace that were kept.
    pub fn into_lines(self) -> Vec<String> {
        self.trace.into_lines()
    }

    /// The members, up or down.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.hosts.iter().filter(|host| host.is_member()).map(Host::node).collect()
    }

    /// The nodes whose process runs and is not paused.
    pub(crate) fn running_nodes(&self) -> Vec<NodeId> {
        self.hosts.iter().filter(|host| host.is_running()).map(Host::node).collect()
    }

    pub(crate) fn host(&mut self, node: NodeId) -> &mut Host {
        &mut self.hosts[(node.0 - 1) as usize]
    }

    pub(crate) fn note(&mut self, facts: &[u64], text: impl FnOnce() -> String) {
        self.trace.note(self.event_queue.now(), facts, text);
    }

    /// Counts a fault or an event of the protocols on a node, by the stages in which the node is.
    pub(crate) fn count_pairs(&mut self, name: &'static str, node: NodeId) {
        let host = &self.hosts[(node.0 - 1) as usize];
        self.density.count(name, host, self.plan.timing.election_ticks);
    }

    /// Hands an event to a process, and schedules its wake-up if none is scheduled.
    pub(crate) fn post(&mut self, node: NodeId, event: Event) {
        if self.host(node).post(event) {
            self.arrange_wake(node);
        }
    }

    pub(crate) fn arrange_wake(&mut self, node: NodeId) {
        let delay = Micros(self.pace.u64(0..=WAKE_AFTER_MAX.0));
        let life = self.host(node).incarnation().life;
        let due = self.event_queue.now() + delay;
        let begins = self.machines.as_ref().map_or(due, |machines| machines.turn_begins(node, due));
        self.event_queue.at(begins, SimEvent::Wake { node, life });
    }

    /// Starts a host that is down, if it is a member. A refused start is a violation unless a fault
    /// caused it.
    pub(crate) fn start_host(&mut self, node: NodeId) -> Result<(), Violation> {
        if !self.host(node).is_member() || self.host(node).does_not_start() {
            return Ok(());
        }
        self.check_release(node);
        self.tell_checkers(&Observation::HostStarted);
        let seed = self.boots.u64(..);
        let tick = self.host(node).tick;
        let refusals = self.host(node).disk().counters().refusals;
        let started = self.host(node).start(seed);
        self.note(&[2, node.0, u64::from(started.is_ok())], || format!("node {node} starts: {started:?}"));
        if let Err(stop) = started {
            return self.stopped(node, &stop, refusals);
        }
        let reachable = self.host(node).is_running();
        self.net.set_reachable(node, reachable);
        let life = self.host(node).incarnation().life;
        let first_tick = Micros(self.pace.u64(0..=tick.0));
        self.event_queue.after(first_tick, SimEvent::Tick { node, life });
        if self.host(node).arrange_wake_up() {
            self.arrange_wake(node);
        }
        Ok(())
    }

    /// A process dies, if there is one.
    pub(crate) fn crash(&mut self, node: NodeId, loss: CrashKind) {
        let incarnation = self.host(node).incarnation();
        if !self.host(node).crash(loss) {
            return;
        }
        self.note(&[3, node.0], || format!("node {node} dies, {loss:?}"));
        self.tally.crashes += 1;
        self.forget_life(incarnation);
    }

    /// Cleans up after a process that ended.
    fn forget_life(&mut self, incarnation: Incarnation) {
        let node = incarnation.node;
        self.break_watchers(node);
        self.break_key_watchers(node);
        self.break_caches(node);
        self.break_lock_waiters(node);
        self.history.lose(incarnation);
        self.break_connections(incarnation);
        self.tell_checkers(&Observation::ProcessEnded(node));
        self.net.node_died(node, &mut self.event_queue);
    }

    /// What arrives on a link next, if its connection still stands.
    fn deliver(&mut self, direction: Direction) {
        if let Some(event) = self.net.deliver(direction, &mut self.event_queue) {
            let (from, to) = (direction.from, direction.to);
            let (kind, content) = link_facts(&event);
            self.note(&[4, from.0, to.0, kind, content], || {
                format!("node {to} <- node {from}: {}", brief_event(&event))
            });
            if matches!(event, Event::LinkUp(_)) {
                self.introduce_release(from, to);
            }
            if let Event::Frame { from, payload } = &event {
                if let Some(kept) = &mut self.kept_frames {
                    kept.note(payload);
                }
                let to = self.host(to).incarnation();
                self.tell_checkers(&Observation::FrameArrived { to, from: *from, payload });
            }
            self.post(to, event);
        }
    }

    fn happen(&mut self, event: SimEvent) -> Result<(), Violation> {
        match event {
            SimEvent::Tick { node, life } if self.lives(node, life) => return self.tick(node, life),
            SimEvent::Wake { node, life } if self.lives(node, life) => return self.wake(node),
            SimEvent::DiskStepDone { node, life, operation } if self.lives(node, life) => {
                return self.disk_step_done(node, life, operation);
            }
            SimEvent::DiskTimer { node, life } if self.lives(node, life) => {
                return self.disk_timer(node, life);
            }
            SimEvent::AnsweredAtOnce { node, life, token } => {
                let reply = self.at_once.remove(&token).expect("invariant: the answer was kept for this");
                if self.lives(node, life) {
                    self.history.answered_at_once(token);
                    return self.answer(node, token, reply);
                }
            }
            SimEvent::Filed { node, life, task } if self.lives(node, life) => {
                return self.filed(node, life, task);
            }
            SimEvent::Tick { .. }
            | SimEvent::Wake { .. }
            | SimEvent::DiskStepDone { .. }
            | SimEvent::DiskTimer { .. }
            | SimEvent::Filed { .. } => {}
            SimEvent::Deliver(direction) => self.deliver(direction),
            SimEvent::Connect(link) => return self.meet(link),
            SimEvent::GiveUp { link, connection } => {
                self.net.give_up(link, connection, &mut self.event_queue)
            }
            SimEvent::Client(client) if self.is_loaded => self.client(client),
            SimEvent::Scan(scanner) if self.is_loaded => self.scan(scanner),
            SimEvent::Watch(watcher) => self.watch(watcher),
            SimEvent::WatchKeys(watcher) => self.watch_keys(watcher),
            SimEvent::Cache(client) => return self.cache(client),
            SimEvent::Lease(client) if self.is_loaded => self.lease(client),
            SimEvent::WaitForLock(client) if self.is_loaded => return self.wait_for_lock(client),
            SimEvent::Script(client) if self.is_loaded => self.script(client),
            SimEvent::Publish(client) if self.is_loaded => self.publish(client),
            SimEvent::Pipeline(client) if self.is_loaded => self.pipeline(client),
            SimEvent::BackUp(client) if self.is_loaded => return self.back_up(client),
            SimEvent::Import(importer) if self.is_loaded => self.import(importer),
            SimEvent::Administer if self.is_loaded => self.administer(),
            SimEvent::Fault(index) if self.is_loaded => self.strike(index),
            SimEvent::Relief(index) if self.is_loaded => return self.relieve(index),
            SimEvent::OperatorAction(index) => self.try_operator_action(index),
            SimEvent::Started(node) if !self.host(node).is_up() => return self.start_host(node),
            SimEvent::Started(_) => {}
            SimEvent::NameUpdated(node) => self.update_name(node),
            SimEvent::Client(_) | SimEvent::Scan(_) | SimEvent::Pipeline(_) | SimEvent::Script(_) => {}
            SimEvent::Publish(_) | SimEvent::Lease(_) | SimEvent::WaitForLock(_) => {}
            SimEvent::Import(_) | SimEvent::BackUp(_) | SimEvent::Administer => {}
            SimEvent::Fault(_) | SimEvent::Relief(_) => {}
        }
        Ok(())
    }

    fn lives(&mut self, node: NodeId, life: u64) -> bool {
        let host = self.host(node);
        host.is_up() && host.incarnation().life == life
    }

    fn tick(&mut self, node: NodeId, life: u64) -> Result<(), Violation> {
        let tick = self.host(node).tick;
        self.event_queue.after(tick, SimEvent::Tick { node, life });
        // A process that does not run misses its ticks: timers do not pile up.
        if self.host(node).is_running() {
            self.note(&[5, node.0], || format!("node {node} ticks"));
            self.host(node).look_at_disk();
            self.tell_disk(node);
            self.post(node, Event::Tick);
            self.work_disk(node)?;
        }
        // Judged at ticks, when the process has just looked at its disk: an election that the disk
        // held up may be won at the moment at which the disk recovers.
        let status = self.host(node).is_slow().then(|| self.host(node).status()).flatten();
        let shards = status.iter().flat_map(|status| &status.shards).filter(|shard| shard.leads);
        let led: Vec<ShardId> = shards.map(|shard| shard.shard).collect();
        self.tell_checkers(&Observation::Tick(Conditions {
            is_fair: self.is_loaded && self.only_few_disks_are_slow(),
            is_calm: self.is_calm(),
            led_on_slow_disk: (node, &led),
        }));
        Ok(())
    }

    fn wake(&mut self, node: NodeId) -> Result<(), Violation> {
        if !self.host(node).is_running() {
            self.host(node).cancel_wake_up();
            return Ok(());
        }
        let now = self.event_queue.now();
        let time = self.host(node).clock(now);
        self.ledger.clock(node, time, now);
        let turn = self.host(node).turn(time);
        if let Some(machines) = &mut self.machines {
            machines.turn(node, now, turn.work());
        }
        self.tell_of_log(node, &turn);
        self.tell_of_spans(node, &turn);
        for event in turn.trace {
            let facts = [25, node.0, event.shard.0, event.term.0, event.index.0, trace_fact(&event)];
            self.note(&facts, || format!("node {node}: {event}"));
            if let Some(name) = event_name(&event.kind) {
                self.count_pairs(name, node);
            }
        }
        for frame in turn.frames {
            let content = digest(&frame.payload);
            let (to, bytes) = (frame.to, frame.payload.len());
            self.note(&[6, node.0, to.0, content], || format!("node {node} -> node {to}: {bytes} bytes"));
            if self.plan.shell_bug == Some(ShellBug::FramesTwice) {
                self.net.send(node, frame.clone(), &mut self.event_queue);
            }
            let (is_removal, kind) = (frame.payload[..] == REMOVAL, frame.payload[0]);
            if self.net.send(node, frame, &mut self.event_queue) && !is_removal {
                self.tell_of_frame(node, to, kind);
            }
        }
        self.publications_arrive(node, &turn.publications)?;
        for (token, reply) in turn.replies {
            self.answer(node, token, reply)?;
        }
        if let Some(contradiction) = turn.contradiction {
            return Err(Violation::new("contradiction", format!("node {node} stops: {contradiction}")));
        }
        self.notify_watchers(node, &turn.config);
        self.notify_remote_slots(node, &turn.remote_slots);
        self.invalidate_caches(
            node,
            &turn.keys,
            &[turn.remote_slots.clone(), turn.leaderless_slots].concat(),
        );
        self.notify_key_watchers(node, &turn.keys);
        self.notify_key_watchers_in(node, &turn.remote_slots);
        self.serve_lock_waiters_at(node)?;
        if let Some(peers) = turn.peers {
            self.net.set_peers(node, peers, &mut self.event_queue);
        }
        self.work_disk(node)?;
        self.file(node);
        if self.observe(node)? {
            self.dismiss(node);
        }
        Ok(())
    }

    fn answer(&mut self, node: NodeId, token: Token, reply: Reply) -> Result<(), Violation> {
        let facts = reply_facts(&reply);
        self.note(&[7, node.0, token.0, facts.0, facts.1], || {
            format!("node {node} -> {token}: {}", brief_reply(&reply))
        });
        let request = self.history.operation(token).map(|operation| operation.request.clone());
        if let (Some(&client), Some(request)) = (self.clients.get(&token), &request) {
            self.workload.learn(client, request, &reply);
            if let Some(next) = self.workload.hears(client, token, self.event_queue.now()) {
                self.event_queue.at(next, SimEvent::Client(client));
            }
        }
        self.operator_hears(node, token, &reply)?;
        self.watcher_hears(token, &reply);
        self.key_watcher_hears(token, &reply);
        self.caching_client_hears(token, &reply);
        self.lease_client_hears(token, &reply);
        self.lock_waiter_hears(token, &reply)?;
        self.publishing_client_hears(token, &reply)?;
        let is_served = !matches!(reply, Reply::Refused(_));
        if request.is_some_and(|request| request.is_stale_read()) {
            let whole_map = self.host(node).whole_map();
            self.history.answered_with(token, whole_map);
        }
        let was_open = self.history.answer(token, reply.clone());
        self.judge_permission(token, &reply)?;
        self.importer_hears(token, &reply);
        self.script_client_hears(token, &reply);
        self.backup_client_hears(token, &reply);
        self.steady_client_hears(token, &reply)?;
        self.scanner_hears(node, token, reply.clone());
        self.pipeline_hears(token, reply);
        let written = is_served.then(|| self.written_shard(token)).flatten();
        self.tell_checkers(&Observation::Answered { node, token, was_open, written });
        Ok(())
    }

    /// Tells the online checkers what has happened.
    pub(super) fn tell_checkers(&mut self, observation: &Observation<'_>) {
        self.checkers.tell(self.event_queue.now(), observation);
    }

    /// The shard of the key that an operation writes, if any.
    fn written_shard(&self, token: Token) -> Option<ShardId> {
        let operation = self.history.operation(token)?.write()?.only_operation()?;
        let key = operation.key();
        Some(shard_of(key, self.plan.data_shards))
    }

    fn client(&mut self, client: usize) {
        let now = self.event_queue.now();
        if !self.workload.is_due(client, now) {
            return;
        }
        let up: Vec<NodeId> = self.hosts.iter().filter(|host| host.is_up()).map(Host::node).collect();
        let Some(node) = self.workload.node_for(client, &up) else {
            let pause = self.workload.pause();
            self.event_queue.after(pause + Micros::MILLISECOND, SimEvent::Client(client));
            return;
        };
        let clock = self.host(node).clock(now);
        let request = self.workload.request(client, self.history.next_token(), clock);
        let token = self.ask_of_client(client, node, request);
        self.clients.insert(token, client);
        let impatient = self.workload.waits(client, token, now);
        self.event_queue.at(impatient, SimEvent::Client(client));
    }
}
