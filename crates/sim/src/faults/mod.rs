//! Faults: which strike which host, when, and for how long.
//!
//! Owns the `FaultKind` of every fault, the table of all kinds, and how a schedule is drawn from
//! a seed. [`world::nemesis`](crate::world::nemesis) executes a schedule. It is a plain list, so a
//! failing run can be repeated with any of its faults left out, and a directed test can write its
//! own list.
//!
//! To add a fault: a type with `FaultKind` in one of the modules here, and a row of the table.

pub mod addresses;
pub mod clocks;
pub mod disks;
pub mod network;
pub mod processes;
pub mod releases;

use std::fmt;

use tidelock_core::types::{NodeId, ShardId};
use tidelock_core::version::SupportedVersions;

use self::addresses::Relocate;
use self::clocks::{SetClock, SkewClock};
use self::disks::{EmptyDisk, FailSync, FullDisk, HangDisk, NoDescriptors, OldCopy, ReadOnlyDisk, SlowDisk};
use self::network::{BreakLinks, CutPair, Isolate, Lossy, Partition};
use self::processes::{Crash, CrashInside, Pause, Retire};
use self::releases::ChangeRelease;
use crate::disk::SimDisk;
use crate::event_queue::{Direction, Micros};

/// A fault, with the time at which it strikes and its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledFault {
    /// When it begins, from the start of the run.
    pub at: Micros,
    /// How long it lasts; then a crashed host starts, or a partition heals.
    pub lasts: Micros,
    /// What strikes, and which host or links.
    pub fault: Fault,
}

/// What faults act on.
pub(crate) trait Cluster {
    /// Number of hosts over the whole run.
    fn hosts(&self) -> u64;

    /// The disk of a host.
    fn disk(&mut self, node: NodeId) -> &SimDisk;

    /// A process dies, if there is one.
    fn crash(&mut self, node: NodeId, loss: CrashKind);

    /// A process dies inside a disk operation, the `operation`th from now on.
    fn crash_inside(&mut self, node: NodeId, loss: CrashKind, operation: u64);

    /// A process is told to retire.
    fn retire(&mut self, node: NodeId);

    /// A process does not run. Pauses add up.
    fn pause(&mut self, node: NodeId);

    /// One pause of a process ends.
    fn resume(&mut self, node: NodeId);

    /// Syncs of a host take this many times as long as planned.
    fn set_slowness(&mut self, node: NodeId, factor: u64);

    /// Syncs of a host take longer by this much. Zero ends those that hang.
    fn set_hang(&mut self, node: NodeId, longer: Micros);

    /// A tick of a host takes this part of the planned one.
    fn set_tick_percent(&mut self, node: NodeId, percent: u64);

    /// Sets the error of a host's wall clock in milliseconds.
    fn set_clock_ahead(&mut self, node: NodeId, ahead_ms: i64);

    /// A host that is down gets another release.
    fn set_release(&mut self, node: NodeId, supported: SupportedVersions);

    /// A host starts on its disk as it was before its latest start, if every other host knows that
    /// start.
    fn put_back(&mut self, node: NodeId);

    /// A founder starts on an empty disk, if the registry of every host that is up has the uuid of
    /// its own.
    fn empty(&mut self, node: NodeId);

    /// A host that runs on another disk, and that a peer has refused, gets its disk back.
    fn get_disk_back(&mut self, node: NodeId);

    /// Breaks the connections of about this many of a thousand pairs of hosts.
    fn break_links(&mut self, per_mille: u32);

    /// Hosts stop, and start at other locations.
    fn relocate(&mut self, relocate: &Relocate);

    /// This many of a thousand droppable frames are dropped; `None` for as many as planned.
    fn set_drops(&mut self, per_mille: Option<u32>);
}

/// A kind of fault: its parameters, and what it does to a cluster.
pub(crate) trait FaultKind: fmt::Debug {
    /// Draws its parameters.
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> Self
    where
        Self: Sized;

    /// Whether runs of a severity may have it.
    fn is_possible(_: &Severity) -> bool
    where
        Self: Sized,
    {
        true
    }

    /// How many times longer than others it may last.
    fn duration_factor() -> u64
    where
        Self: Sized,
    {
        1
    }

    /// The hosts that it strikes; `None` if it strikes links.
    fn target(&self) -> Option<Target>;

    /// Begins on a host that it strikes.
    fn strike(&self, _: &mut dyn Cluster, _: NodeId) {}

    /// Ends on a host that it struck. A host that is then down is started.
    fn relieve(&self, _: &mut dyn Cluster, _: NodeId) {}

    /// Begins on the links of the network. `struck` are the hosts of its target. Returns the links
    /// that are blocked until it ends.
    fn strike_links(&self, _: &mut dyn Cluster, _struck: &[NodeId]) -> Vec<Direction> {
        Vec::new()
    }

    /// Ends on the network, besides the blocked links.
    fn relieve_links(&self, _: &mut dyn Cluster) {}
}

/// How a kind is drawn, as data.
struct Row {
    draw: fn(&Severity, &mut fastrand::Rng) -> Fault,
    is_possible: fn(&Severity) -> bool,
    duration_factor: fn() -> u64,
}

/// Declares the kinds of faults: the enum of all of them, their names and their rows.
macro_rules! table {
    ($($kind:ident),* $(,)?) => {
        /// A kind of fault, with its target and its parameters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = concat!("See [`", stringify!($kind), "`].")] $kind($kind),)*
        }

        impl Fault {
            /// The names of all kinds.
            pub const NAMES: &[&'static str] = &[$(stringify!($kind)),*];

            /// The name of its kind.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Fault::$kind(_) => stringify!($kind),)*
                }
            }

            pub(crate) fn kind(&self) -> &dyn FaultKind {
                match self {
                    $(Fault::$kind(kind) => kind,)*
                }
            }
        }

        $(impl From<$kind> for Fault {
            fn from(kind: $kind) -> Fault {
                Fault::$kind(kind)
            }
        })*

        const TABLE: &[Row] = &[$(Row {
            draw: |severity, random| $kind::draw(severity, random).into(),
            is_possible: |severity| $kind::is_possible(severity),
            duration_factor: $kind::duration_factor,
        },)*];
    };
}

table! {
    Crash,
    CrashInside,
    Retire,
    Pause,
    Partition,
    Isolate,
    CutPair,
    BreakLinks,
    Lossy,
    SlowDisk,
    HangDisk,
    FailSync,
    FullDisk,
    ReadOnlyDisk,
    NoDescriptors,
    OldCopy,
    EmptyDisk,
    SkewClock,
    SetClock,
    ChangeRelease,
    Relocate,
}

/// The target of a fault; resolved when it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This host, if it is a member when the fault strikes.
    Node(NodeId),
    /// A host that believes it leads this shard; if there is none, the fault has no effect.
    LeaderOf(ShardId),
    /// All members at once.
    All,
}

impl Target {
    /// One host: as often a leader as any.
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> Target {
        if random.bool() {
            Target::LeaderOf(ShardId(random.u64(0..=severity.data_shards)))
        } else {
            Target::Node(NodeId(random.u64(1..=severity.nodes)))
        }
    }

    /// One host, or in one of four draws all of them.
    fn draw_wide(severity: &Severity, random: &mut fastrand::Rng) -> Target {
        if random.u8(0..4) == 0 { Target::All } else { Target::draw(severity, random) }
    }
}

/// What happens to the disk when a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// Nothing: the operating system stays up and keeps its pages.
    Process,
    /// Power loss: some data that was not synced is lost.
    Power,
}

/// The directions in which a separation blocks frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Frames are blocked in both directions.
    Both,
    /// Frames to the separated side are blocked; frames from it arrive.
    In,
    /// Frames from the separated side are blocked; frames to it arrive.
    Out,
}

impl Way {
    /// The blocked directions of a link, given the one that leads away from the separated side.
    fn of(self, out: Direction) -> Vec<Direction> {
        match self {
            Way::Both => vec![out, out.reversed()],
            Way::Out => vec![out],
            Way::In => vec![out.reversed()],
        }
    }
}

/// A bug of the shell, which breaks the core's contract during the whole run. Drawn plans never
/// have one: tests use them to prove that the checkers detect them. Deliberate faults of the core
/// are in `tidelock_core::deliberate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellBug {
    /// Frames that must arrive once arrive twice.
    FramesTwice,
}

impl fmt::Display for ScheduledFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}: {:?}", self.at, self.lasts, self.fault)
    }
}

/// The parameters from which a schedule is drawn: the cluster, and how often faults strike.
#[derive(Clone, Copy, Debug)]
pub struct Severity {
    /// Number of hosts, including those that join during the run.
    pub nodes: u64,
    /// Number of data shards with which the cluster was founded.
    pub data_shards: u64,
    /// Whether hosts stay members, with the replicas of their founding, during the whole run.
    pub is_fixed: bool,
    /// Earliest time of a fault, from the start of the run.
    pub from: Micros,
    /// Time from which on no fault begins.
    pub until: Micros,
    /// Longest time between two faults.
    pub interval_max: Micros,
    /// Longest time that one fault lasts.
    pub lasts_max: Micros,
}

/// Draws the faults of a run, by time. Each run favours some kinds: with all kinds equally likely,
/// particular ones would coincide too rarely.
pub fn draw(severity: Severity, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    let possible = possible(&severity);
    let favoured: Vec<&Row> = (0..random.usize(1..=4)).map(|_| *choose(random, &possible)).collect();
    schedule(severity, random, |random| {
        let rows = if random.u8(0..4) == 0 { &possible } else { &favoured };
        *choose(random, rows)
    })
}

/// Draws the faults of a run in which each kind is absent or present at a rate of its own, by time
/// (swarm testing: Groce et al., ISSTA 2012). A run without crashes may reach states that frequent
/// crashes prevent.
pub fn draw_swarm(severity: Severity, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    let mut faults = Vec::new();
    for row in possible(&severity) {
        if random.bool() {
            continue;
        }
        let interval_max = severity.interval_max * random.u64(1..=16);
        let lasts_max = Micros(severity.lasts_max.0 * random.u64(1..=16) / 8);
        let own = Severity { interval_max, lasts_max, ..severity };
        faults.extend(schedule(own, random, |_| row));
    }
    faults.sort_by_key(|scheduled| scheduled.at);
    faults
}

fn possible(severity: &Severity) -> Vec<&'static Row> {
    TABLE.iter().filter(|row| (row.is_possible)(severity)).collect()
}

/// Schedules faults of the rows that `next` returns, at random intervals.
fn schedule<'r>(
    severity: Severity,
    random: &mut fastrand::Rng,
    next: impl Fn(&mut fastrand::Rng) -> &'r Row,
) -> Vec<ScheduledFault> {
    let mut faults = Vec::new();
    let mut at = severity.from;
    loop {
        at = at + Micros(random.u64(1..=severity.interval_max.0));
        if at >= severity.until {
            return faults;
        }
        let row = next(random);
        let lasts_max = severity.lasts_max * (row.duration_factor)();
        let lasts = Micros(random.u64(1_000..=lasts_max.0.max(1_000)));
        faults.push(ScheduledFault { at, lasts, fault: (row.draw)(&severity, random) });
    }
}

/// Draws disks that hang, of fewer than half of the nodes at a time, one time after the other.
pub fn draw_slow_disks(
    nodes: u64,
    data_shards: u64,
    until: Micros,
    random: &mut fastrand::Rng,
) -> Vec<ScheduledFault> {
    let mut faults = Vec::new();
    let mut at = Micros::MILLISECOND * random.u64(2_000..8_000);
    while at < until {
        let lasts = Micros::MILLISECOND * random.u64(100..12_000);
        let first = match random.bool() {
            true => Target::LeaderOf(ShardId(random.u64(0..=data_shards))),
            false => Target::Node(NodeId(random.u64(1..=nodes))),
        };
        let others = random.u64(0..nodes.div_ceil(2) - 1);
        let others = (0..others).map(|_| Target::Node(NodeId(random.u64(1..=nodes)))).collect::<Vec<_>>();
        for target in [first].into_iter().chain(others) {
            faults.push(ScheduledFault { at, lasts, fault: HangDisk::of(target, random).into() });
        }
        // Often the next disk hangs soon after the last one has recovered.
        let pause_max_ms = *choose(random, &[10, 500, 5_000]);
        at = at + lasts + Micros::MILLISECOND * random.u64(1..=pause_max_ms);
    }
    faults
}

/// Draws faults in which some founders at a time, but not all, start on empty disks.
pub fn draw_empty_disks(nodes: u64, until: Micros, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    let mut faults = Vec::new();
    let mut at = Micros::MILLISECOND * random.u64(1_000..4_000);
    while at < until {
        let lasts = Micros::MILLISECOND * random.u64(1_000..6_000);
        let mut founders: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        random.shuffle(&mut founders);
        for node in &founders[..random.usize(1..founders.len())] {
            let target = Target::Node(*node);
            faults.push(ScheduledFault { at, lasts, fault: EmptyDisk { target }.into() });
        }
        at = at + lasts + Micros::MILLISECOND * random.u64(500..4_000);
    }
    faults
}

/// One of `choices`, which must not be empty.
pub fn choose<'a, T>(random: &mut fastrand::Rng, choices: &'a [T]) -> &'a T {
    &choices[random.usize(0..choices.len())]
}
