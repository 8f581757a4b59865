//! Strikes and relieves the faults of a plan.
//!
//! Owns the effect of each kind of fault on hosts and network, and how it is undone. When a fault
//! of a host is relieved, the host is up, whatever else happened to it.

use std::collections::BTreeMap;

use tidelock_core::event::Event;
use tidelock_core::types::NodeId;

use super::World;
use crate::checkers::Violation;
use crate::event_queue::Direction;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::{CrashKind, Fault, Target, Way};
use crate::host::Host;
use crate::net::NetworkConditions;

/// The faults that are active.
#[derive(Debug)]
pub struct Nemesis {
    active: BTreeMap<usize, ActiveFault>,
    random: fastrand::Rng,
}

/// What must be undone when a fault is relieved.
#[derive(Debug, Default)]
struct ActiveFault {
    nodes: Vec<NodeId>,
    blocked: Vec<Direction>,
}

impl Nemesis {
    /// Creates it without active faults.
    pub fn new(random: fastrand::Rng) -> Nemesis {
        Nemesis { active: BTreeMap::new(), random }
    }
}

impl World<'_> {
    /// Starts a fault of the plan.
    pub(crate) fn strike(&mut self, index: usize) {
        let plan = self.plan;
        let scheduled = &plan.faults[index];
        self.note(&[20, index as u64], || format!("fault {index} strikes: {scheduled}"));
        let nodes: Vec<NodeId> = match (&scheduled.fault, scheduled.fault.target()) {
            (Fault::Blackout, _) => self.nodes(),
            (_, Some(target)) => self.resolve(target).into_iter().collect(),
            (_, None) => Vec::new(),
        };
        for &node in &nodes {
            self.strike_host(node, &scheduled.fault);
        }
        let blocked = self.strike_network(&nodes, &scheduled.fault);
        self.nemesis.active.insert(index, ActiveFault { nodes, blocked });
        self.event_queue.after(scheduled.lasts, SimEvent::Relief(index));
    }

    /// Ends a fault of the plan, if it is active, and starts the host that it stopped.
    pub(crate) fn relieve(&mut self, index: usize) -> Result<(), Violation> {
        let plan = self.plan;
        let Some(struck) = self.nemesis.active.remove(&index) else { return Ok(()) };
        self.note(&[21, index as u64], || format!("fault {index} is relieved"));
        for direction in struck.blocked {
            self.net.unblock(direction, &mut self.event_queue);
        }
        if let Fault::Lossy { .. } = plan.faults[index].fault {
            self.net.set_conditions(plan.conditions);
        }
        for node in struck.nodes {
            self.relieve_host(node, &plan.faults[index].fault)?;
        }
        Ok(())
    }

    /// Relieves every fault, starts every host, and restores network, disks and clocks.
    pub(crate) fn heal(&mut self) -> Result<(), Violation> {
        self.note(&[22], || "everything heals".into());
        let active: Vec<usize> = self.nemesis.active.keys().copied().collect();
        for index in active {
            self.relieve(index)?;
        }
        self.is_loaded = false;
        self.recall_watchers();
        self.net.set_conditions(NetworkConditions {
            delay_min: Micros(100),
            delay_max: Micros(1_000),
            spikes_per_mille: 0,
            drops_per_mille: 0,
            stragglers_per_mille: 0,
        });
        self.disk_pace.sync_min = Micros(100);
        self.disk_pace.sync_max = Micros(1_000);
        for node in self.nodes() {
            // It lost power, and its process has not noticed it yet.
            if self.host(node).is_up() && self.host(node).disk().is_dead() {
                let loss = self.host(node).loss_if_dies;
                self.crash(node, loss);
            }
            if !self.host(node).is_up() {
                self.start_host(node)?;
            }
        }
        Ok(())
    }

    /// Ends operations that hang on a disk.
    fn resume_disk(&mut self, node: NodeId) {
        let host = self.host(node);
        let life = host.incarnation().life;
        let (operation, task) = (host.disk_operation(), host.task_under_way());
        if let Some(operation) = operation {
            self.event_queue.after(Micros(0), SimEvent::Synced { node, life, operation });
        }
        if let Some(task) = task {
            self.event_queue.after(Micros(0), SimEvent::Filed { node, life, task });
        }
    }

    /// Whether only the disks of a minority are faulty, so that the cluster can serve.
    pub(crate) fn only_few_disks_are_slow(&self) -> bool {
        let plan = self.plan;
        let is_about_disks = |index: &usize| {
            matches!(plan.faults[*index].fault, Fault::HangDisk { .. } | Fault::SlowDisk { .. })
        };
        let is_slow = |host: &Host| host.hang > Micros(0) || host.slowness > 1;
        let NetworkConditions { delay_max, spikes_per_mille, drops_per_mille, .. } = plan.conditions;
        let is_calm = spikes_per_mille + drops_per_mille == 0 && delay_max * 8 < plan.election_timeout();
        is_calm
            && plan.operator_actions.is_empty()
            && 2 * self.count_hosts(is_slow) < plan.nodes
            && self.nemesis.active.keys().all(is_about_disks)
            && self.hosts.iter().all(Host::is_running)
            && 2 * self.count_hosts(|host| is_slow(host) || self.needs_snapshot(host)) < plan.nodes
    }

    fn count_hosts(&self, condition: impl Fn(&Host) -> bool) -> u64 {
        self.hosts.iter().filter(|host| condition(host)).count() as u64
    }

    /// Whether a replica of a host has fallen behind the log of another host. Until it has received
    /// a snapshot, it is of no more use for a majority than one with a disk that hangs.
    fn needs_snapshot(&self, host: &Host) -> bool {
        let shards = |host: &Host| host.status().map_or_else(Vec::new, |status| status.shards);
        let (own, others) = (shards(host), self.hosts.iter().flat_map(shards));
        let log_begins: Vec<_> = others.map(|other| (other.shard, other.log_begin)).collect();
        own.iter().any(|own| {
            log_begins.iter().any(|(shard, log_begin)| *shard == own.shard && *log_begin > own.last)
        })
    }

    fn resolve(&self, target: Target) -> Option<NodeId> {
        match target {
            Target::Node(node) => self.nodes().contains(&node).then_some(node),
            Target::LeaderOf(shard) => self.hosts.iter().find_map(|host| {
                let leads = host.status()?.shards.iter().any(|status| status.shard == shard && status.leads);
                leads.then(|| host.node())
            }),
        }
    }

    fn strike_host(&mut self, node: NodeId, fault: &Fault) {
        match *fault {
            Fault::Crash { loss, inside_operations: None, .. } => self.crash(node, loss),
            Fault::Crash { loss, inside_operations: Some(operations), .. } => {
                self.host(node).loss_if_dies = loss;
                self.host(node).disk().die_after(operations);
            }
            Fault::Blackout => self.crash(node, CrashKind::Power),
            Fault::Retire { .. } => self.post(node, Event::Retire),
            Fault::Pause { .. } => {
                self.host(node).pauses += 1;
                self.net.set_reachable(node, false);
            }
            Fault::SlowDisk { factor, .. } => self.host(node).slowness = factor,
            Fault::HangDisk { longer, .. } => self.host(node).hang = longer,
            Fault::FailSync { .. } => self.host(node).disk().fail_next_sync(),
            Fault::FullDisk { free_bytes, .. } => self.host(node).disk().set_free_bytes(Some(free_bytes)),
            Fault::ReadOnlyDisk { .. } => self.host(node).disk().set_read_only(true),
            Fault::NoDescriptors { .. } => self.host(node).disk().set_no_descriptors(true),
            Fault::SkewClock { percent, .. } => {
                self.host(node).tick = Micros(self.plan.tick.0 * percent / 100);
            }
            Fault::SetClock { ahead_ms, .. } => self.host(node).clock_ahead_ms = ahead_ms,
            Fault::OldCopy { .. } => self.put_back(node),
            Fault::Partition { .. }
            | Fault::Isolate { .. }
            | Fault::BreakLinks { .. }
            | Fault::Lossy { .. } => {}
        }
    }

    /// Starts a host on its disk as it was before its latest start, if every other host knows that
    /// start.
    fn put_back(&mut self, node: NodeId) {
        let Some(claim) = self.host(node).claim() else { return };
        let knows =
            |host: &Host| host.node() == node || host.is_gone() || host.known_start(node) == Some(claim);
        if !self.hosts.iter().all(knows) {
            return;
        }
        self.crash(node, CrashKind::Process);
        if self.host(node).put_back() {
            self.note(&[23, node.0], || format!("node {node} is put back to an earlier state of its disk"));
        }
        self.event_queue.after(Micros::MILLISECOND, SimEvent::Started(node));
    }

    fn strike_network(&mut self, nodes: &[NodeId], fault: &Fault) -> Vec<Direction> {
        match *fault {
            Fault::Partition { side, way } => self.separate(side, way),
            Fault::Isolate { way, .. } => {
                let side = nodes.iter().map(|node| 1 << (node.0 - 1)).sum();
                self.separate(side, way)
            }
            Fault::BreakLinks { per_mille } => {
                let nodes = self.nodes();
                for &low in &nodes {
                    for &high in nodes.iter().filter(|&&high| high > low) {
                        if self.nemesis.random.u32(0..1000) < per_mille {
                            self.net.break_link(Direction { from: low, to: high }, &mut self.event_queue);
                        }
                    }
                }
                Vec::new()
            }
            Fault::Lossy { per_mille } => {
                self.net
                    .set_conditions(NetworkConditions { drops_per_mille: per_mille, ..self.plan.conditions });
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Blocks the links between a side and the rest. Returns the links that it blocked.
    fn separate(&mut self, side: u64, way: Way) -> Vec<Direction> {
        let is_inside = |node: NodeId| side >> (node.0 - 1) & 1 == 1;
        let mut blocked = Vec::new();
        let (inside, outside): (Vec<NodeId>, Vec<NodeId>) =
            (1..=self.plan.hosts()).map(NodeId).partition(|&node| is_inside(node));
        for &inside in &inside {
            for &outside in &outside {
                let out = Direction { from: inside, to: outside };
                match way {
                    Way::Both => blocked.extend([out, out.reversed()]),
                    Way::Out => blocked.push(out),
                    Way::In => blocked.push(out.reversed()),
                }
            }
        }
        for &direction in &blocked {
            self.net.block(direction, &mut self.event_queue);
        }
        blocked
    }

    fn relieve_host(&mut self, node: NodeId, fault: &Fault) -> Result<(), Violation> {
        match *fault {
            Fault::Crash { .. } => self.host(node).disk().survive(),
            // The process was told to retire, and its time is over: it ends, and a new one replaces
            // it.
            Fault::Retire { .. } => self.crash(node, CrashKind::Process),
            Fault::Pause { .. } => {
                self.host(node).pauses -= 1;
                if self.host(node).is_running() {
                    self.net.set_reachable(node, true);
                    if self.host(node).arrange_wake_up() {
                        self.arrange_wake(node);
                    }
                }
            }
            Fault::SlowDisk { .. } => self.host(node).slowness = 1,
            Fault::HangDisk { .. } => {
                self.host(node).hang = Micros(0);
                self.resume_disk(node);
            }
            Fault::FailSync { .. } => self.host(node).disk().forgive_sync(),
            Fault::FullDisk { .. } => self.host(node).disk().set_free_bytes(None),
            Fault::ReadOnlyDisk { .. } => self.host(node).disk().set_read_only(false),
            Fault::NoDescriptors { .. } => self.host(node).disk().set_no_descriptors(false),
            Fault::SkewClock { .. } => self.host(node).tick = self.plan.tick,
            Fault::SetClock { .. } => self.host(node).clock_ahead_ms = 0,
            Fault::OldCopy { .. } => {
                if self.host(node).awaits_its_disk() {
                    self.crash(node, CrashKind::Process);
                }
                self.host(node).get_disk_back();
            }
            _ => {}
        }
        if self.host(node).is_up() { Ok(()) } else { self.start_host(node) }
    }
}
