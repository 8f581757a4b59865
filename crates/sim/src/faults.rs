//! Faults as data: which faults strike which host, when, and for how long.
//!
//! Owns the kinds of faults and how a schedule is drawn from a seed. `world::nemesis` executes
//! them. A schedule is a plain list, so a failing run can be repeated with any of its faults left
//! out, and a directed test can write its own list.

use std::fmt;

use tidelock_core::types::{NodeId, ShardId};

use crate::event_queue::Micros;

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

/// A kind of fault, with its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process dies.
    Crash {
        /// The host whose process dies.
        target: Target,
        /// What happens to the host's disk.
        loss: CrashKind,
        /// It dies inside this many disk operations from now, rather than between two events.
        inside_operations: Option<u64>,
    },
    /// All processes die in one instant, by power loss.
    Blackout,
    /// A process is told to retire; a new one replaces it when the fault is relieved.
    Retire {
        /// The host whose process is told to retire.
        target: Target,
    },
    /// A process does not run (SIGSTOP), while its connections stand and its inbox fills.
    Pause {
        /// The host whose process stops.
        target: Target,
    },
    /// Some hosts are separated from all others.
    Partition {
        /// If bit `i` is set, host `i + 1` is on the separated side.
        side: u64,
        /// The directions that are blocked between the two sides.
        way: Way,
    },
    /// One host is separated from all others.
    Isolate {
        /// The host that is separated.
        target: Target,
        /// The directions that are blocked, as seen from the host.
        way: Way,
    },
    /// Some connections break at once and may be established again.
    BreakLinks {
        /// Of a thousand pairs of hosts, how many.
        per_mille: u32,
    },
    /// Frames are dropped by their sender.
    Lossy {
        /// Of a thousand droppable ones, how many.
        per_mille: u32,
    },
    /// Syncs take several times as long.
    SlowDisk {
        /// The host whose disk is slow.
        target: Target,
        /// Factor on the planned duration of a sync.
        factor: u64,
    },
    /// Syncs hang: each takes longer by this much until the fault is relieved.
    HangDisk {
        /// The host whose disk hangs.
        target: Target,
        /// Additional duration of each sync that begins before the fault is relieved.
        longer: Micros,
    },
    /// The next sync fails; a host that stopped for it starts when the fault is relieved.
    FailSync {
        /// The host whose disk fails.
        target: Target,
    },
    /// Files cannot grow. A running process waits; one that could not start is started when the
    /// fault is relieved.
    FullDisk {
        /// The host whose disk is full.
        target: Target,
        /// Number of bytes by which files may still grow.
        free_bytes: u64,
    },
    /// Nothing can be written. A process waits, as on a full disk.
    ReadOnlyDisk {
        /// The host whose disk is read-only.
        target: Target,
    },
    /// No file can be opened or created, because there are no descriptors. The process waits, as on
    /// a full disk.
    NoDescriptors {
        /// The host whose process has no free descriptors.
        target: Target,
    },
    /// A clock runs fast or slow.
    SkewClock {
        /// The host whose clock runs fast or slow.
        target: Target,
        /// Length of a tick in percent of [`Plan::tick`](crate::plan::Plan::tick); over 100 is
        /// slow.
        percent: u64,
    },
    /// A clock jumps forward or back, and continues from there. It is correct again when the fault
    /// is relieved.
    SetClock {
        /// The host whose wall clock jumps.
        target: Target,
        /// The error of the clock, in milliseconds; negative if it is behind.
        ahead_ms: i64,
    },
    /// A host starts with its disk as it was before its latest start. If its peers refuse it, it
    /// stops, and gets its later disk back when the fault is relieved. Strikes only if every other
    /// host knows that latest start: one that does not know it could accept the old copy, and the
    /// two together might be a majority.
    OldCopy {
        /// The host whose disk is put back.
        target: Target,
    },
}

/// The target of a fault; resolved when it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This host, if it is a member when the fault strikes.
    Node(NodeId),
    /// A host that believes it leads this shard; if there is none, the fault has no effect.
    LeaderOf(ShardId),
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

/// A bug of the shell, which breaks the core's contract during the whole run. Drawn plans never
/// have one: tests use them to prove that the checkers detect them. Deliberate faults of the core
/// are in `tidelock_core::deliberate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellBug {
    /// Frames that must arrive once arrive twice.
    FramesTwice,
}

impl Fault {
    /// The only host that it strikes; `None` if it strikes all hosts, or links.
    pub fn target(&self) -> Option<Target> {
        match *self {
            Fault::Crash { target, .. }
            | Fault::Retire { target }
            | Fault::Pause { target }
            | Fault::Isolate { target, .. }
            | Fault::SlowDisk { target, .. }
            | Fault::HangDisk { target, .. }
            | Fault::FailSync { target }
            | Fault::FullDisk { target, .. }
            | Fault::ReadOnlyDisk { target }
            | Fault::NoDescriptors { target }
            | Fault::SkewClock { target, .. }
            | Fault::SetClock { target, .. }
            | Fault::OldCopy { target } => Some(target),
            Fault::Blackout | Fault::Partition { .. } | Fault::BreakLinks { .. } | Fault::Lossy { .. } => {
                None
            }
        }
    }
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
    /// Earliest time of a fault, from the start of the run.
    pub from: Micros,
    /// Time from which on no fault begins.
    pub until: Micros,
    /// Longest time between two faults.
    pub interval_max: Micros,
    /// Longest time that one fault lasts.
    pub lasts_max: Micros,
}

impl Severity {
    fn rarer(self, factor: u64) -> Severity {
        Severity { interval_max: self.interval_max * factor, ..self }
    }
}

/// Draws the faults of a run, by time.
pub fn draw(severity: Severity, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    // Each run favours some kinds: with all kinds equally likely, particular ones would coincide
    // too rarely.
    let favoured: Vec<u8> = (0..random.usize(1..=4)).map(|_| random.u8(0..KINDS)).collect();
    schedule(severity, random, |random| {
        let kind = if random.u8(0..4) == 0 { random.u8(0..KINDS) } else { *choose(random, &favoured) };
        vec![draw_fault(kind, severity, random)]
    })
}

/// Schedules what `draw` returns, at random intervals.
fn schedule(
    severity: Severity,
    random: &mut fastrand::Rng,
    draw: impl Fn(&mut fastrand::Rng) -> Vec<Fault>,
) -> Vec<ScheduledFault> {
    let mut faults = Vec::new();
    let mut at = severity.from;
    loop {
        at = at + Micros(random.u64(1..=severity.interval_max.0));
        if at >= severity.until {
            return faults;
        }
        let lasts = Micros(random.u64(1_000..=severity.lasts_max.0));
        faults.extend(draw(random).into_iter().map(|fault| ScheduledFault { at, lasts, fault }));
    }
}

/// As [`schedule`], for one run in three. These faults are drawn separately, so that existing seeds
/// keep their other faults.
fn schedule_in_some(
    severity: Severity,
    random: &mut fastrand::Rng,
    draw: impl Fn(&mut fastrand::Rng) -> Vec<Fault>,
) -> Vec<ScheduledFault> {
    if random.u8(0..3) > 0 { Vec::new() } else { schedule(severity.rarer(2), random, draw) }
}

/// Draws disks that take no writes, of one host or of all at once.
pub fn draw_stalls(severity: Severity, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    schedule_in_some(severity, random, |random| {
        let targets = match random.u8(0..4) {
            0 => (1..=severity.nodes).map(|node| Target::Node(NodeId(node))).collect(),
            _ => vec![draw_target(severity, random)],
        };
        let is_full = random.bool();
        let free_bytes_below = 1 << random.u8(8..18);
        let stall = |target| match is_full {
            true => Fault::FullDisk { target, free_bytes: random.u64(0..free_bytes_below) },
            false => Fault::ReadOnlyDisk { target },
        };
        targets.into_iter().map(stall).collect()
    })
}

/// Draws processes without file descriptors.
pub fn draw_shortages(severity: Severity, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    schedule_in_some(severity, random, |random| {
        vec![Fault::NoDescriptors { target: draw_target(severity, random) }]
    })
}

/// Draws disks that are slow or hang.
pub fn draw_hangs(severity: Severity, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    let severity = Severity { lasts_max: severity.lasts_max * 4, ..severity.rarer(2) };
    schedule_in_some(severity, random, |random| vec![draw_hang(draw_target(severity, random), random)])
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
            faults.push(ScheduledFault { at, lasts, fault: draw_hang(target, random) });
        }
        // Often the next disk hangs soon after the last one has recovered.
        let pause_max_ms = *choose(random, &[10, 500, 5_000]);
        at = at + lasts + Micros::MILLISECOND * random.u64(1..=pause_max_ms);
    }
    faults
}

/// Durations of hangs: from a little longer than a heartbeat to longer than any run.
pub fn draw_hang(target: Target, random: &mut fastrand::Rng) -> Fault {
    let longest_ms = *choose(random, &[100, 1_000, 10_000, 60_000]);
    Fault::HangDisk { target, longer: Micros::MILLISECOND * random.u64(50..=longest_ms) }
}

/// Draws clocks that jump, for one run in two.
pub fn draw_clocks(severity: Severity, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    if random.bool() {
        return Vec::new();
    }
    schedule(severity.rarer(2), random, |random| {
        let (target, ahead_ms) = (draw_target(severity, random), random.i64(-20_000..20_000));
        vec![Fault::SetClock { target, ahead_ms }]
    })
}

/// Draws hosts with disks that were put back.
pub fn draw_old_copies(severity: Severity, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    schedule_in_some(severity, random, |random| {
        vec![Fault::OldCopy { target: draw_target(severity, random) }]
    })
}

const KINDS: u8 = 13;

fn draw_fault(kind: u8, severity: Severity, random: &mut fastrand::Rng) -> Fault {
    let target = draw_target(severity, random);
    let way = *choose(random, &[Way::Both, Way::Both, Way::In, Way::Out]);
    match kind {
        0 => Fault::Crash { target, loss: CrashKind::Process, inside_operations: None },
        1 => Fault::Crash { target, loss: CrashKind::Power, inside_operations: None },
        2 | 3 => {
            let loss = *choose(random, &[CrashKind::Process, CrashKind::Power, CrashKind::Power]);
            Fault::Crash { target, loss, inside_operations: Some(random.u64(1..20)) }
        }
        4 => Fault::Blackout,
        5 => Fault::Retire { target },
        6 => Fault::Pause { target },
        7 => Fault::Partition { side: random.u64(1..1 << severity.nodes), way },
        8 => Fault::Isolate { target, way },
        9 => Fault::BreakLinks { per_mille: random.u32(100..=1000) },
        10 => Fault::Lossy { per_mille: random.u32(10..500) },
        11 => match random.u8(0..3) {
            0 => Fault::SlowDisk { target, factor: random.u64(2..100) },
            1 => Fault::FailSync { target },
            _ => Fault::FullDisk { target, free_bytes: random.u64(0..1 << 20) },
        },
        _ => Fault::SkewClock { target, percent: random.u64(40..250) },
    }
}

fn draw_target(severity: Severity, random: &mut fastrand::Rng) -> Target {
    if random.bool() {
        Target::LeaderOf(ShardId(random.u64(0..=severity.data_shards)))
    } else {
        Target::Node(NodeId(random.u64(1..=severity.nodes)))
    }
}

/// One of `choices`, which must not be empty.
pub fn choose<'a, T>(random: &mut fastrand::Rng, choices: &'a [T]) -> &'a T {
    &choices[random.usize(0..choices.len())]
}
