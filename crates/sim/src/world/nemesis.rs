//! Strikes and relieves the faults of a plan.
//!
//! Owns which faults are active, and which hosts and links each has struck. What a fault does is in
//! [`faults`](crate::faults). When a fault of a host is relieved, the host is up, whatever else
//! happened to it.

use std::collections::BTreeMap;

use tidelock_core::event::{Event, ShardStatus};
use tidelock_core::types::{NodeId, ShardId};
use tidelock_core::version::SupportedVersions;

use super::World;
use crate::checkers::Violation;
use crate::disk::SimDisk;
use crate::event_queue::Direction;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::addresses::Relocate;
use crate::faults::{Cluster, CrashKind, Fault, Target};
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
        let fault = scheduled.fault.kind();
        let nodes = fault.target().map_or_else(Vec::new, |target| self.resolve(target));
        // A fault of links concerns every node.
        let concerned = if fault.target().is_some() { nodes.clone() } else { self.nodes() };
        for node in concerned {
            self.count_pairs(scheduled.fault.name(), node);
        }
        for &node in &nodes {
            fault.strike(self, node);
        }
        let blocked = fault.strike_links(self, &nodes);
        for &direction in &blocked {
            self.net.block(direction, &mut self.event_queue);
        }
        self.nemesis.active.insert(index, ActiveFault { nodes, blocked });
        self.event_queue.after(scheduled.lasts, SimEvent::Relief(index));
    }

    /// Ends a fault of the plan, if it is active, and starts the hosts that it stopped.
    pub(crate) fn relieve(&mut self, index: usize) -> Result<(), Violation> {
        let plan = self.plan;
        let Some(struck) = self.nemesis.active.remove(&index) else { return Ok(()) };
        self.note(&[21, index as u64], || format!("fault {index} is relieved"));
        for direction in struck.blocked {
            self.net.unblock(direction, &mut self.event_queue);
        }
        let fault = plan.faults[index].fault.kind();
        fault.relieve_links(self);
        for node in struck.nodes {
            fault.relieve(self, node);
            if !self.host(node).is_up() {
                self.start_host(node)?;
            }
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
        self.end_watch_pauses();
        self.end_key_watch_pauses();
        self.net.set_conditions(NetworkConditions {
            delay_min: Micros(100),
            delay_max: Micros(1_000),
            spikes_per_mille: 0,
            drops_per_mille: 0,
            stragglers_per_mille: 0,
        });
        self.disk_pace.sync_min = Micros(100);
        self.disk_pace.sync_max = Micros(1_000);
        self.upgrade_all();
        self.nodes().into_iter().for_each(|node| self.addressing.update_name(node));
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
            self.event_queue.after(Micros(0), SimEvent::DiskStepDone { node, life, operation });
        }
        if let Some(task) = task {
            self.event_queue.after(Micros(0), SimEvent::Filed { node, life, task });
        }
    }

    /// Whether slow disks are the only faults, and concern a minority of the voters of each shard,
    /// so that every shard can serve.
    pub(crate) fn only_few_disks_are_slow(&self) -> bool {
        let plan = self.plan;
        let is_about_disks =
            |index: &usize| matches!(plan.faults[*index].fault, Fault::HangDisk(_) | Fault::SlowDisk(_));
        let NetworkConditions { delay_max, spikes_per_mille, drops_per_mille, .. } = plan.conditions;
        let is_calm = spikes_per_mille + drops_per_mille == 0 && delay_max * 8 < plan.election_timeout();
        is_calm
            && plan.operator_actions.is_empty()
            && !plan.faults.iter().any(|scheduled| matches!(scheduled.fault, Fault::Relocate(_)))
            && self.nemesis.active.keys().all(is_about_disks)
            && self.hosts.iter().all(Host::is_running)
            && self.most_voters_are_quick()
    }

    /// Whether most voters of each shard have a disk that is not slow, and need no snapshot.
    fn most_voters_are_quick(&self) -> bool {
        let mut voters: BTreeMap<ShardId, (u64, u64)> = BTreeMap::new();
        for host in &self.hosts {
            let is_hindered = host.hang > Micros(0) || host.slowness > 1 || self.needs_snapshot(host);
            let replicas = host.status().map_or_else(Vec::new, |status| status.shards);
            for replica in replicas.iter().filter(|replica| replica.votes) {
                let (all, hindered) = voters.entry(replica.shard).or_default();
                *all += 1;
                *hindered += u64::from(is_hindered);
            }
        }
        voters.values().all(|(all, hindered)| 2 * hindered < *all)
    }

    /// Whether all hosts run, each link delivers what is sent over it, and no fault is active.
    pub(crate) fn is_calm(&self) -> bool {
        let NetworkConditions { spikes_per_mille, drops_per_mille, .. } = self.plan.conditions;
        (!self.is_loaded || spikes_per_mille + drops_per_mille == 0)
            && self.nemesis.active.is_empty()
            && self.hosts.iter().all(|host| !host.is_member() || host.is_running())
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

    fn resolve(&self, target: Target) -> Vec<NodeId> {
        let leads = |host: &Host, shard| {
            let is_led = |status: &ShardStatus| status.shard == shard && status.leads;
            host.status().is_some_and(|status| status.shards.iter().any(is_led))
        };
        match target {
            Target::Node(node) => self.nodes().into_iter().filter(|member| *member == node).collect(),
            Target::LeaderOf(shard) => {
                let leader = self.hosts.iter().find(|host| leads(host, shard));
                leader.map(Host::node).into_iter().collect()
            }
            Target::All => self.nodes(),
        }
    }
}

impl Cluster for World<'_> {
    fn hosts(&self) -> u64 {
        self.plan.hosts()
    }

    fn disk(&mut self, node: NodeId) -> &SimDisk {
        self.host(node).disk()
    }

    fn crash(&mut self, node: NodeId, loss: CrashKind) {
        World::crash(self, node, loss);
    }

    fn crash_inside(&mut self, node: NodeId, loss: CrashKind, operation: u64) {
        let host = self.host(node);
        host.loss_if_dies = loss;
        host.disk().die_after(operation);
    }

    fn retire(&mut self, node: NodeId) {
        self.post(node, Event::Retire);
    }

    fn pause(&mut self, node: NodeId) {
        self.host(node).pauses += 1;
        self.net.set_reachable(node, false);
    }

    fn resume(&mut self, node: NodeId) {
        self.host(node).pauses -= 1;
        if self.host(node).is_running() {
            self.net.set_reachable(node, true);
            if self.host(node).arrange_wake_up() {
                self.arrange_wake(node);
            }
        }
    }

    fn set_slowness(&mut self, node: NodeId, factor: u64) {
        self.host(node).slowness = factor;
    }

    fn set_hang(&mut self, node: NodeId, longer: Micros) {
        self.host(node).hang = longer;
        if longer == Micros(0) {
            self.resume_disk(node);
        }
    }

    fn set_tick_percent(&mut self, node: NodeId, percent: u64) {
        self.host(node).tick = Micros(self.plan.tick().0 * percent / 100);
    }

    fn set_clock_ahead(&mut self, node: NodeId, ahead_ms: i64) {
        self.host(node).clock_ahead_ms = ahead_ms;
    }

    fn set_release(&mut self, node: NodeId, supported: SupportedVersions) {
        self.host(node).set_release(supported);
        self.tally.releases_changed += 1;
    }

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

    fn empty(&mut self, node: NodeId) {
        let uuid = self.host(node).info().uuid;
        if self.hosts.iter().any(|host| host.is_up() && host.known_uuid(node) != Some(uuid)) {
            return;
        }
        self.crash(node, CrashKind::Process);
        if self.host(node).empty() {
            self.note(&[28, node.0], || format!("node {node} starts on an empty disk"));
        }
        self.event_queue.after(Micros::MILLISECOND, SimEvent::Started(node));
    }

    fn get_disk_back(&mut self, node: NodeId) {
        if self.host(node).awaits_its_disk() {
            self.crash(node, CrashKind::Process);
        }
        self.host(node).get_disk_back();
    }

    fn break_links(&mut self, per_mille: u32) {
        let nodes = self.nodes();
        for &low in &nodes {
            for &high in nodes.iter().filter(|&&high| high > low) {
                if self.nemesis.random.u32(0..1000) < per_mille {
                    self.net.break_link(Direction { from: low, to: high }, &mut self.event_queue);
                }
            }
        }
    }

    fn relocate(&mut self, relocate: &Relocate) {
        self.relocate_hosts(relocate);
    }

    fn set_drops(&mut self, per_mille: Option<u32>) {
        let drops_per_mille = per_mille.unwrap_or(self.plan.conditions.drops_per_mille);
        self.net.set_conditions(NetworkConditions { drops_per_mille, ..self.plan.conditions });
    }
}
