//! The plan of one run, drawn from its seed.
//!
//! A plan is data: a run is a function of it, and a test may change any field. Each concern of a
//! run has its own generator, split from the seed by name, so that leaving out one fault does not
//! change the network's behaviour.

use tidelock_core::deliberate::Faults;
use tidelock_core::event::{DivisionTiming, Timing};
use tidelock_core::types::NodeId;
use tidelock_core::version::{ClusterVersion, SupportedVersions};

use crate::capacity::Capacity;
use crate::event_queue::Micros;
use crate::faults::releases::OLD;
use crate::faults::{self, Fault, ScheduledFault, Severity, ShellBug, choose};
use crate::net::NetworkConditions;
use crate::operator_actions::{self, OperatorAction, ScheduledAction};

/// The plan of one run. The run is a function of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed from which it is drawn.
    pub seed: u64,
    /// Number of founders: 1 to 9.
    pub nodes: u64,
    /// Number of data shards at the founding.
    pub data_shards: u64,
    /// Voters of each data shard at the founding; `None`: a cluster of a release that had no
    /// default placement.
    pub replicas: Option<u64>,
    /// Whether the cluster adds data shards by itself.
    pub automatic_division: bool,
    /// Whether clients are principals whose permissions change during the run.
    pub has_principals: bool,
    /// When it does.
    pub division: DivisionTiming,
    /// The version at which the cluster is founded.
    pub founding_version: ClusterVersion,
    /// Founders that begin with a release that supports only the first version.
    pub old_hosts: Vec<NodeId>,
    /// Timeouts and intervals of the nodes, in ticks, and the length of a tick by a correct clock.
    pub timing: Timing,
    /// How the network behaves without faults.
    pub conditions: NetworkConditions,
    /// How the disks behave without faults.
    pub disk: DiskPace,
    /// Size of a log's full segments at which it is truncated after snapshots, in bytes.
    pub snapshot_log_bytes_min: u64,
    /// What clients do.
    pub load: Load,
    /// How long clients and faults are active.
    pub duration: Micros,
    /// Faults, in the order in which they strike.
    pub faults: Vec<ScheduledFault>,
    /// The actions of operators, by time.
    pub operator_actions: Vec<ScheduledAction>,
    /// A bug of the shell; never drawn, only for tests of the simulator.
    pub shell_bug: Option<ShellBug>,
    /// Deliberate faults of the store itself; never drawn either.
    pub deliberate: Faults,
    /// What the machines can do at most; `None`: work takes no time.
    pub capacity: Option<Capacity>,
}

/// How fast disks are, and how large their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPace {
    /// Shortest time from a write to the end of its sync.
    pub sync_min: Micros,
    /// Longest time from a write to the end of its sync.
    pub sync_max: Micros,
    /// Size of a segment of the write-ahead log.
    pub segment_bytes: u64,
}

/// The number of clients, and what they request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of clients; each waits for one operation at a time.
    pub clients: usize,
    /// Number of further clients, which iterate over all keys.
    pub scanners: usize,
    /// Number of further clients, which pipeline.
    pub pipelining_clients: usize,
    /// Number of further clients, which import configuration.
    pub importers: usize,
    /// Number of further clients, which take backups.
    pub backup_clients: usize,
    /// Keys for each shard: few, so that clients contend.
    pub keys_per_shard: usize,
    /// Longest pause of a client between two operations.
    pub pause_max: Micros,
    /// A client abandons an operation after this long and continues with the next.
    pub client_timeout: Micros,
    /// Of a thousand operations, how many are reads.
    pub reads_per_mille: u32,
    /// Of a thousand requests, how many remove all keys.
    pub flushes_per_mille: u32,
    /// Of a thousand requests, how many have operations.
    pub operations_per_mille: u32,
    /// Of a thousand operations, how many are of the configuration centre; the others are divided
    /// as above.
    pub config_per_mille: u32,
    /// How clients behave that watch configuration. There are none if no client writes any.
    pub watching: WatcherHabits,
    /// How many clients watch keys. They behave like those that watch configuration.
    pub key_watchers: usize,
    /// How many clients cache keys.
    pub caching_clients: usize,
    /// How many clients have leases and hold locks.
    pub lease_clients: usize,
    /// How many clients wait for locks.
    pub lock_waiters: usize,
    /// How many clients publish messages.
    pub publishing_clients: usize,
    /// How many clients run scripts.
    pub script_clients: usize,
    /// Longest value, in bytes.
    pub value_bytes_max: usize,
    /// Whether clients stay with one node, or take any for each operation.
    pub sticky: bool,
}

/// How clients behave that watch configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatcherHabits {
    /// Longest pause before a client reads on.
    pub pause_max: Micros,
    /// Longest time from the end of a connection to the next one.
    pub absence_max: Micros,
    /// Of a thousand steps of a client, how many break its connection.
    pub breaks_per_mille: u32,
}

/// The fault intensity of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultIntensity {
    Calm,
    Rough,
    Wild,
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn draw(seed: u64) -> Plan {
        let random = &mut generator(seed, "plan");
        let intensity = *choose(
            random,
            &[
                FaultIntensity::Calm,
                FaultIntensity::Rough,
                FaultIntensity::Rough,
                FaultIntensity::Wild,
                FaultIntensity::Wild,
            ],
        );
        let drawn_nodes = *choose(random, &[1, 3, 3, 3, 3, 3, 5, 5]);
        let data_shards = random.u64(1..=4);
        let (nodes, replicas) = draw_founding(drawn_nodes, &mut generator(seed, "founding"));
        let duration = Micros::SECOND * random.u64(10..=40);
        let (interval_max, lasts_max) = match intensity {
            FaultIntensity::Calm => (Micros::SECOND * 30, Micros::SECOND * 2),
            FaultIntensity::Rough => (Micros::SECOND * 6, Micros::SECOND * 5),
            FaultIntensity::Wild => (Micros::SECOND, Micros::SECOND * 3),
        };
        let from = Micros::SECOND * random.u64(0..3);
        let operator_actions = draw_operator_actions(seed, nodes, data_shards, duration);
        let hosts = nodes + operator_actions::joins(&operator_actions);
        let severity = Severity {
            nodes: hosts,
            data_shards,
            // A shard's only voter asks nobody, so nobody can tell it that its disk is an old copy.
            is_fixed: !operator_actions::changes_members(&operator_actions) && replicas != Some(1),
            from,
            until: duration,
            interval_max,
            lasts_max,
        };
        Plan {
            seed,
            nodes,
            data_shards,
            replicas,
            automatic_division: false,
            has_principals: false,
            division: NO_DIVISION,
            founding_version: ClusterVersion::NEWEST,
            old_hosts: Vec::new(),
            timing: draw_timing(random.u64(15..60), random.u64(20..=100), &mut generator(seed, "patience")),
            conditions: draw_weather(intensity, random),
            disk: draw_disk(random),
            snapshot_log_bytes_min: *choose(
                &mut generator(seed, "snapshots"),
                &[1_000, 5_000, 20_000, 100_000, 1 << 30],
            ),
            load: draw_load(seed, random),
            duration,
            faults: draw_faults(seed, severity),
            operator_actions,
            shell_bug: None,
            deliberate: Faults::NONE,
            capacity: None,
        }
    }

    /// Draws a plan whose only faults are of disks, on fewer than half of the nodes at a time. The
    /// cluster must then acknowledge writes all the time (see
    /// [`availability`](crate::checkers::availability)).
    pub fn draw_slow_disks(seed: u64) -> Plan {
        let random = &mut generator(seed, "slow disks");
        let drawn = Plan::draw(seed);
        let nodes = *choose(random, &[3, 3, 5]);
        let data_shards = random.u64(1..=2);
        let duration = Micros::SECOND * 30;
        let load = draw_steady_load(drawn.load, random);
        Plan {
            nodes,
            data_shards,
            // The check of availability assumes that a majority of all nodes serves every shard.
            replicas: None,
            duration,
            load,
            timing: draw_timing(random.u64(15..30), drawn.timing.tick_ms, random),
            conditions: draw_calm_network(random),
            faults: faults::draw_slow_disks(nodes, data_shards, duration, random),
            operator_actions: Vec::new(),
            ..drawn
        }
    }

    /// Draws a plan whose only faults are founders on empty disks: some of the founders at a time,
    /// but not all. On this network, a peer that knows their disks reaches them in time.
    pub fn draw_empty_disks(seed: u64) -> Plan {
        let random = &mut generator(seed, "empty disks");
        let drawn = Plan::draw(seed);
        let nodes = *choose(random, &[2, 3, 3, 5]);
        let data_shards = random.u64(1..=2);
        let duration = Micros::SECOND * 15;
        Plan {
            nodes,
            data_shards,
            // As for slow disks: the check of availability is in force while no founder is down.
            replicas: None,
            load: draw_steady_load(drawn.load, random),
            duration,
            // Often an election takes less time than a peer needs to connect and refuse.
            timing: draw_timing(random.u64(30..60), random.u64(5..=50), random),
            conditions: draw_calm_network(random),
            faults: faults::draw_empty_disks(nodes, duration, random),
            operator_actions: Vec::new(),
            ..drawn
        }
    }

    /// The plan of a cluster without clients and without faults, for as long as it is needed.
    pub fn fresh_cluster(seed: u64, nodes: u64, data_shards: u64) -> Plan {
        let millisecond = Micros::MILLISECOND;
        Plan {
            seed,
            nodes,
            data_shards,
            replicas: Some(3),
            automatic_division: false,
            has_principals: false,
            division: NO_DIVISION,
            founding_version: ClusterVersion::NEWEST,
            old_hosts: Vec::new(),
            timing: Timing {
                tick_ms: 50,
                election_ticks: 10,
                heartbeat_ticks: 2,
                request_ticks: 60,
                dead_ticks: 1 << 40,
                balance_ticks: 0,
                slow_request_ticks: 30,
                access_stale_ticks: 100,
                founding_ticks: FOUNDERS_AWAITED_MS / 50,
            },
            conditions: NetworkConditions {
                delay_min: Micros(50),
                delay_max: millisecond,
                spikes_per_mille: 0,
                drops_per_mille: 0,
                stragglers_per_mille: 0,
            },
            disk: DiskPace { sync_min: Micros(20), sync_max: millisecond, segment_bytes: 1 << 20 },
            snapshot_log_bytes_min: 1 << 30,
            load: Load {
                clients: 0,
                scanners: 0,
                pipelining_clients: 0,
                importers: 0,
                backup_clients: 0,
                keys_per_shard: 1,
                pause_max: millisecond,
                client_timeout: Micros::SECOND,
                reads_per_mille: 0,
                operations_per_mille: 0,
                flushes_per_mille: 0,
                config_per_mille: 0,
                value_bytes_max: 0,
                key_watchers: 0,
                caching_clients: 0,
                lease_clients: 0,
                lock_waiters: 0,
                publishing_clients: 0,
                script_clients: 0,
                sticky: false,
                watching: WatcherHabits {
                    pause_max: millisecond,
                    absence_max: millisecond,
                    breaks_per_mille: 0,
                },
            },
            duration: Micros(0),
            faults: Vec::new(),
            operator_actions: Vec::new(),
            shell_bug: None,
            deliberate: Faults::NONE,
            capacity: None,
        }
    }

    /// Draws a plan whose cluster is founded by an old release, and whose hosts are upgraded one by
    /// one, among the faults of an ordinary plan.
    pub fn draw_mixed(seed: u64) -> Plan {
        let random = &mut generator(seed, "releases");
        let mut plan = Plan::draw(seed);
        plan.founding_version = ClusterVersion::FIRST;
        plan.replicas = None;
        // The default placement that operators set changes members, which an old copy of a disk may
        // not know.
        plan.faults.retain(|scheduled| !matches!(scheduled.fault, Fault::OldCopy(_)));
        plan.old_hosts = (1..=plan.nodes).filter(|_| random.u8(0..4) > 0).map(NodeId).collect();
        plan.faults.extend(faults::releases::draw_upgrades(plan.hosts(), plan.duration, random));
        plan.faults.sort_by_key(|scheduled| scheduled.at);
        plan.operator_actions.extend(operator_actions::draw_upgrade(plan.duration, random));
        plan
    }

    /// Draws a plan whose cluster is founded with one data shard and divides it, among the faults
    /// of an ordinary plan: there are more hosts than voters, or few requests make a shard busy. In
    /// one run of eight an operator chose the number of shards, so nothing may be divided.
    pub fn draw_divided(seed: u64) -> Plan {
        let random = &mut generator(seed, "division");
        let mut plan = Plan::draw(seed);
        plan.data_shards = 1;
        plan.nodes = plan.nodes.max(*choose(random, &[3, 5, 6]));
        plan.replicas = Some(*choose(random, &[1, 3, 3]));
        plan.automatic_division = random.u8(0..8) > 0;
        plan.division = DivisionTiming {
            report_ticks: 10,
            busy_requests_per_second: *choose(random, &[u64::MAX, 1, 10]),
            busy_intervals: random.u64(1..=3),
            memory_ticks: *choose(random, &[50, 150, 400]),
            rest_ticks: *choose(random, &[1, 20, 60]),
        };
        // Votes move to new shards' hosts and back, which an old copy of a disk may not know.
        plan.faults.retain(|scheduled| !matches!(scheduled.fault, Fault::OldCopy(_)));
        plan
    }

    /// Draws a plan whose clients are principals, among the faults of an ordinary plan. Slots stay
    /// where they are, so that it is known which node leads the shard of a key.
    pub fn draw_principals(seed: u64) -> Plan {
        let mut plan = Plan::draw(seed);
        plan.has_principals = true;
        plan.operator_actions.retain(|scheduled| {
            !matches!(
                scheduled.operator_action,
                OperatorAction::AddShard
                    | OperatorAction::RemoveShard(_)
                    | OperatorAction::Rebalance
                    | OperatorAction::MoveSlots { .. }
            )
        });
        plan.load.clients = plan.load.clients.max(3);
        plan.load.pause_max = plan.load.pause_max.min(Micros::MILLISECOND * 50);
        plan
    }

    /// Whether the releases of hosts differ.
    pub fn is_mixed(&self) -> bool {
        self.founding_version < ClusterVersion::NEWEST
    }

    /// What the first release of a host supports.
    pub fn release_of(&self, node: NodeId) -> SupportedVersions {
        if self.old_hosts.contains(&node) { OLD } else { SupportedVersions::OWN }
    }

    /// Length of a tick by a correct clock.
    pub fn tick(&self) -> Micros {
        Micros::MILLISECOND * self.timing.tick_ms
    }

    /// How long the nodes wait for a leader, without jitter.
    pub fn election_timeout(&self) -> Micros {
        self.tick() * self.timing.election_ticks
    }

    /// Whether disks are put back to earlier states.
    pub fn has_old_copies(&self) -> bool {
        self.faults.iter().any(|scheduled| matches!(scheduled.fault, Fault::OldCopy(_)))
    }

    /// Number of hosts over the whole run: founders, and those that join.
    pub fn hosts(&self) -> u64 {
        self.nodes + operator_actions::joins(&self.operator_actions)
    }

    /// The generator of one concern of this run.
    pub fn generator(&self, concern: &str) -> fastrand::Rng {
        generator(self.seed, concern)
    }
}

/// How long a founder with an empty disk waits for founders that are not reached, in milliseconds:
/// two attempts to connect.
const FOUNDERS_AWAITED_MS: u64 = 1_000;
/// How long a node trusts permissions that no leader has confirmed.
const ACCESS_STALE_TICKS: u64 = 40;

/// For clusters that are not divided automatically.
pub const NO_DIVISION: DivisionTiming = DivisionTiming {
    report_ticks: 10,
    busy_requests_per_second: u64::MAX,
    busy_intervals: 1,
    memory_ticks: 100,
    rest_ticks: 20,
};

/// Draws the number of founders and of voters a shard. In one run of eight the cluster is larger,
/// and in one of four it was founded before there was a default placement.
fn draw_founding(nodes: u64, random: &mut fastrand::Rng) -> (u64, Option<u64>) {
    let nodes = if random.u8(0..8) == 0 { *choose(random, &[2, 4, 6, 7, 8, 9]) } else { nodes };
    (nodes, *choose(random, &[None, None, Some(1), Some(3), Some(3), Some(3), Some(3), Some(5)]))
}

fn draw_operator_actions(seed: u64, nodes: u64, data_shards: u64, duration: Micros) -> Vec<ScheduledAction> {
    let random = |concern| generator(seed, concern);
    [
        operator_actions::draw(nodes, data_shards, duration, &mut random("operators")),
        operator_actions::draw_moves(data_shards, duration, &mut random("slots")),
        operator_actions::draw_removals(data_shards, duration, &mut random("removals")),
        operator_actions::draw_defaults(nodes, duration, &mut random("defaults")),
    ]
    .concat()
}

/// Draws the faults of a run. One run of two has a subset of all kinds.
fn draw_faults(seed: u64, severity: Severity) -> Vec<ScheduledFault> {
    let random = &mut generator(seed, "faults");
    let mut faults =
        if random.bool() { faults::draw_swarm(severity, random) } else { faults::draw(severity, random) };
    faults.extend(faults::addresses::draw(severity, &mut generator(seed, "addresses")));
    faults.sort_by_key(|scheduled| scheduled.at);
    faults
}

/// Draws the timing of a run. In some runs a paused host counts as dead, in others none ever does.
fn draw_timing(request_ticks: u64, tick_ms: u64, random: &mut fastrand::Rng) -> Timing {
    Timing {
        tick_ms,
        election_ticks: 10,
        heartbeat_ticks: 2,
        request_ticks,
        dead_ticks: *choose(random, &[30, 60, 120, 1 << 40]),
        balance_ticks: *choose(random, &[0, 1, 100]),
        slow_request_ticks: request_ticks / 2,
        access_stale_ticks: ACCESS_STALE_TICKS,
        founding_ticks: FOUNDERS_AWAITED_MS.div_ceil(tick_ms),
    }
}

/// A load that writes keys of every shard often enough for
/// [`availability`](crate::checkers::availability), which expects acknowledgements.
fn draw_steady_load(drawn: Load, random: &mut fastrand::Rng) -> Load {
    Load {
        clients: random.usize(4..=12),
        pause_max: Micros::MILLISECOND * random.u64(1..=100),
        client_timeout: Micros::MILLISECOND * random.u64(100..=1_000),
        config_per_mille: 0,
        importers: 0,
        backup_clients: 0,
        ..drawn
    }
}

/// A network without losses.
fn draw_calm_network(random: &mut fastrand::Rng) -> NetworkConditions {
    NetworkConditions {
        delay_min: Micros(50),
        delay_max: Micros(random.u64(100..2_000)),
        spikes_per_mille: 0,
        drops_per_mille: 0,
        stragglers_per_mille: 0,
    }
}

fn draw_weather(intensity: FaultIntensity, random: &mut fastrand::Rng) -> NetworkConditions {
    let delay_min = Micros(random.u64(50..1_000));
    let spread = *choose(random, &[1_000, 10_000, 60_000]);
    let delay_max = delay_min + Micros(random.u64(100..spread));
    let harsh = intensity != FaultIntensity::Calm;
    NetworkConditions {
        delay_min,
        delay_max,
        spikes_per_mille: if harsh { random.u32(0..20) } else { 0 },
        drops_per_mille: if harsh { random.u32(0..30) } else { 0 },
        stragglers_per_mille: random.u32(0..=1000),
    }
}

fn draw_disk(random: &mut fastrand::Rng) -> DiskPace {
    let sync_min = Micros(random.u64(20..3_000));
    DiskPace {
        sync_min,
        sync_max: sync_min + Micros(random.u64(100..20_000)),
        segment_bytes: *choose(random, &[8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]),
    }
}

fn draw_load(seed: u64, random: &mut fastrand::Rng) -> Load {
    let [mut operations, mut config, mut scans, mut pipelining, mut imports, mut backups] =
        ["operations", "configuration", "scans", "pipelining clients", "imports", "backups"]
            .map(|concern| generator(seed, concern));
    let [mut key_watching, mut flushes, mut leases, mut scripts, mut caching] =
        ["watching keys", "removals of all keys", "leases", "scripts", "caches"]
            .map(|concern| generator(seed, concern));
    Load {
        clients: random.usize(1..=12),
        scanners: *choose(&mut scans, &[0, 0, 1, 2]),
        pipelining_clients: if pipelining.bool() { pipelining.usize(1..=4) } else { 0 },
        importers: *choose(&mut imports, &[0, 0, 1, 3]),
        backup_clients: *choose(&mut backups, &[0, 0, 1]),
        keys_per_shard: random.usize(1..=4),
        pause_max: Micros::MILLISECOND * random.u64(1..=200),
        client_timeout: Micros::MILLISECOND * random.u64(100..=5_000),
        reads_per_mille: random.u32(100..=900),
        operations_per_mille: *choose(&mut operations, &[0, 100, 300, 300, 900]),
        flushes_per_mille: *choose(&mut flushes, &[0, 0, 0, 5, 20]),
        config_per_mille: *choose(&mut config, &[0, 0, 200, 800]),
        watching: draw_watching(&mut generator(seed, "watching")),
        key_watchers: *choose(&mut key_watching, &[0, 0, 1, 3]),
        caching_clients: *choose(&mut caching, &[0, 0, 1, 4]),
        lease_clients: *choose(&mut leases, &[0, 0, 2, 5]),
        lock_waiters: *choose(&mut generator(seed, "waiting for locks"), &[0, 0, 2, 4]),
        publishing_clients: *choose(&mut generator(seed, "publications"), &[0, 0, 1, 3]),
        script_clients: *choose(&mut scripts, &[0, 0, 2, 4]),
        value_bytes_max: *choose(random, &[8, 8, 200, 2_000, 20_000]),
        sticky: random.bool(),
    }
}

/// Draws fast and slow readers, and clients that are away for a moment or for many changes.
fn draw_watching(random: &mut fastrand::Rng) -> WatcherHabits {
    WatcherHabits {
        pause_max: Micros::MILLISECOND * *choose(random, &[20, 100, 1_000]),
        absence_max: Micros::MILLISECOND * *choose(random, &[20, 500, 5_000]),
        breaks_per_mille: *choose(random, &[5, 50, 200]),
    }
}

/// Splits a generator off a seed by name.
fn generator(seed: u64, concern: &str) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed ^ crate::trace::digest(concern.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_function_of_its_seed() {
        assert_eq!(Plan::draw(7), Plan::draw(7));
        assert_ne!(Plan::draw(7), Plan::draw(8));
    }

    #[test]
    fn seeds_reach_every_kind_of_cluster_and_of_fault() {
        let plans: Vec<Plan> = (0..300).map(Plan::draw).collect();
        let others = (0..30).flat_map(|seed| [Plan::draw_mixed(seed), Plan::draw_empty_disks(seed)]);
        let others: Vec<Plan> = others.collect();
        for nodes in 1..=9 {
            assert!(plans.iter().any(|plan| plan.nodes == nodes), "{nodes} nodes");
        }
        for replicas in [None, Some(1), Some(3), Some(5)] {
            assert!(plans.iter().any(|plan| plan.replicas == replicas), "{replicas:?} replicas");
        }
        for name in Fault::NAMES {
            let has = |plan: &Plan| plan.faults.iter().any(|scheduled| scheduled.fault.name() == *name);
            assert!(plans.iter().any(has) || others.iter().any(has), "{name}");
        }
        assert!(plans.iter().any(|plan| plan.faults.is_empty()));
    }
}
