//! `tidelock-sim`: runs seeds until one fails, runs one seed and shows what happened, or shrinks
//! one that fails.
//!
//! Runs are independent, so they share all processors; the output does not depend on their number,
//! except for which of several failing seeds is found first. A panic of the store is an ordinary
//! failure where panics unwind, and ends the program where they abort; so each is reported with its
//! seed.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use clap::Parser;
use tidelock_sim::capacity::Capacity;
use tidelock_sim::density::Density;
use tidelock_sim::event_queue::Micros;
use tidelock_sim::plan::Plan;
use tidelock_sim::run::{self, Failure, Report, Tally};
use tidelock_sim::shrink::{Shrunk, shrink};
use tidelock_sim::throughput::{self, Throughput};
use tidelock_sim::trace::Detail;

/// Runs the store in a simulated cluster with injected faults.
#[derive(Debug, Parser)]
#[command(name = "tidelock-sim", version)]
struct Arguments {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed; fresh ones, from the clock, if not given.
    #[arg(long)]
    start: Option<u64>,
    /// Run this seed only, and print its plan.
    #[arg(long, conflicts_with_all = ["seeds", "start"])]
    seed: Option<u64>,
    /// With --seed: print every event as it happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// With --seed: if it fails, search for a shorter run that fails in the same way, and show
    /// that.
    #[arg(long, requires = "seed", conflicts_with = "trace")]
    shrink: bool,
    /// Inject only disk faults, on a minority of nodes, and check that the cluster serves all the
    /// time.
    #[arg(long)]
    slow_disks: bool,
    /// Let founders start on empty disks, as if theirs were not mounted, without other faults.
    #[arg(long, conflicts_with = "slow_disks")]
    empty_disks: bool,
    /// Found every cluster by an old release, and upgrade its hosts one by one among the other
    /// faults.
    #[arg(long, conflicts_with_all = ["slow_disks", "empty_disks"])]
    mixed_versions: bool,
    /// Found every cluster with one data shard that it divides by itself.
    #[arg(long, conflicts_with_all = ["slow_disks", "empty_disks", "mixed_versions"])]
    divided: bool,
    /// Let clients be principals whose permissions are granted and revoked during the run.
    #[arg(long, conflicts_with_all = ["slow_disks", "empty_disks", "mixed_versions", "divided"])]
    principals: bool,
    /// Number of concurrent runs; the number of processors if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print how often each fault met each stage of the protocols.
    #[arg(long)]
    pairs: bool,
    /// Print how the throughput of writes grows from 3 to 48 nodes, on machines of limited
    /// capacity.
    #[arg(long, conflicts_with_all = ["seeds", "start", "seed"])]
    throughput: bool,
    /// Print frames that nodes send each other, some of each kind, in hexadecimal.
    #[arg(long, conflicts_with_all = ["seed", "throughput"])]
    frames: bool,
    /// Continue after a failure, and list all failing seeds.
    #[arg(long)]
    keep_going: bool,
    /// Append each failing seed to this file, with what it violates.
    #[arg(long, value_name = "FILE")]
    failures: Option<PathBuf>,
}

thread_local! {
    /// The seed that the thread is running.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    std::panic::set_hook(Box::new(|panic| eprintln!("seed {}: {panic}", SEED.get())));
    let passed = match arguments.seed {
        None if arguments.throughput => print_throughput(),
        None if arguments.frames => print_frames(&arguments),
        Some(seed) if arguments.shrink => shrink_one(arguments.plan(seed)),
        Some(seed) => run_one(arguments.plan(seed), arguments.trace),
        None => run_many(&arguments),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Arguments {
    fn plan(&self, seed: u64) -> Plan {
        if self.slow_disks {
            Plan::draw_slow_disks(seed)
        } else if self.mixed_versions {
            Plan::draw_mixed(seed)
        } else if self.empty_disks {
            Plan::draw_empty_disks(seed)
        } else if self.principals {
            Plan::draw_principals(seed)
        } else if self.divided {
            Plan::draw_divided(seed)
        } else {
            Plan::draw(seed)
        }
    }
}

fn print_frames(arguments: &Arguments) -> bool {
    let first = arguments.start.unwrap_or(0);
    let sample = run::sample_frames((first..first + arguments.seeds).map(|seed| arguments.plan(seed)));
    for frame in sample.frames() {
        println!("{frame:x}");
    }
    true
}

/// Sizes of the clusters whose throughput is measured.
const SIZES: [u64; 5] = [3, 6, 12, 24, 48];

fn print_throughput() -> bool {
    println!(
        "| nodes | data shards | writes/s | of linear | busiest processor | all processors | busiest without requests |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut first = None;
    for nodes in SIZES {
        let found = match throughput::measure(nodes, Capacity::MEASURED) {
            Ok(found) => found,
            Err(violation) => {
                println!("{violation}");
                return false;
            }
        };
        let Throughput { data_shards, writes_per_second, busiest, average, idle, .. } = found;
        let (fewest, least) = *first.get_or_insert((nodes, writes_per_second));
        let linear = least * nodes as f64 / fewest as f64;
        println!(
            "| {nodes} | {data_shards} | {writes_per_second:.0} | {:.2} | {busiest:.2} | {average:.2} | {idle:.3} |",
            writes_per_second / linear
        );
    }
    true
}

fn run_one(plan: Plan, trace: bool) -> bool {
    let seed = plan.seed;
    SEED.set(seed);
    println!("{plan:#?}");
    let result = if trace { run::run(&plan, Detail::Print) } else { run::run_traced(&plan) };
    match result {
        Ok(report) => {
            println!("seed {seed} holds, hash {:016x}\n{:#?}", report.hash, report.tally);
            true
        }
        Err(failure) => {
            print_failure(&failure);
            false
        }
    }
}

/// Most runs for shrinking one: a minute or two.
const SHRINK_ATTEMPTS_MAX: u32 = 500;

/// If the seed fails by a panic, this needs a build in which panics unwind.
fn shrink_one(plan: Plan) -> bool {
    let seed = plan.seed;
    // Each attempt may panic as the run did; the last one is shown.
    std::panic::set_hook(Box::new(|_| {}));
    let Some(Shrunk { plan: shorter, attempts, .. }) = shrink(&plan, SHRINK_ATTEMPTS_MAX) else {
        println!("seed {seed} holds: there is nothing to shrink");
        return true;
    };
    println!("{shorter:#?}");
    if let Err(failure) = run::run(&shorter, Detail::Tail(run::TAIL_LINES)) {
        print_failure(&failure);
    }
    println!(
        "after {attempts} attempts: {} of {} faults, {} of {}, {} of {} nodes, {} of {} shards, {} of {} clients",
        shorter.faults.len(),
        plan.faults.len(),
        shorter.duration,
        plan.duration,
        shorter.nodes,
        plan.nodes,
        shorter.data_shards,
        plan.data_shards,
        shorter.load.clients,
        plan.load.clients,
    );
    for scheduled in &shorter.faults {
        println!("  {scheduled}");
    }
    false
}

/// State that the workers of [`run_many`] share.
struct Progress {
    next: AtomicU64,
    stop: AtomicBool,
    totals: Mutex<Totals>,
}

#[derive(Default)]
struct Totals {
    runs: u64,
    events: u64,
    simulated: Micros,
    tally: Tally,
    density: Density,
    failed: Vec<u64>,
}

fn run_many(arguments: &Arguments) -> bool {
    let start = arguments.start.unwrap_or_else(fresh_seed);
    let end = start.saturating_add(arguments.seeds);
    let progress =
        Progress { next: AtomicU64::new(start), stop: AtomicBool::new(false), totals: Mutex::default() };
    let jobs = arguments.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| work(&progress, end, arguments));
        }
    });
    let totals = progress.totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    summarise(&totals, began.elapsed().as_secs_f64());
    println!("seeds from {start}");
    if arguments.pairs {
        print!("{}", totals.density.to_markdown());
    }
    totals.failed.is_empty()
}

fn work(progress: &Progress, end: u64, arguments: &Arguments) {
    while !progress.stop.load(Ordering::Relaxed) {
        let seed = progress.next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        SEED.set(seed);
        let result = run::run_traced(&arguments.plan(seed));
        let mut totals = progress.totals.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(report) => totals.add(&report),
            Err(failure) => {
                print_failure(&failure);
                if let Some(file) = &arguments.failures {
                    keep_failure(file, &failure);
                }
                totals.failed.push(seed);
                progress.stop.store(!arguments.keep_going, Ordering::Relaxed);
            }
        }
    }
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.events += report.events;
        self.simulated = self.simulated + report.simulated;
        self.tally.add(&report.tally);
        self.density.add(&report.density);
    }
}

fn summarise(totals: &Totals, seconds: f64) {
    let Totals { runs, events, simulated, tally, failed, .. } = totals;
    println!(
        "{runs} seeds hold, {} fail; {:.2} simulated hours in {seconds:.1} s, {:.0} simulated seconds a second; \
         {events} events, {:.0} events/s",
        failed.len(),
        simulated.as_seconds() / 3600.0,
        simulated.as_seconds() / seconds,
        *events as f64 / seconds,
    );
    println!(
        "{} requests: {} writes acknowledged, {} refused, {} lost with their node; {} replies on pipelines; \
         {} iterations over all keys; {} events to watchers, {} watches resumed; {} imports of configuration; \
         {} scripts; {} locks awaited; {} backups, {} of them of several nodes, {} stale; {} frames between nodes",
        tally.requests,
        tally.acknowledged,
        tally.refused,
        tally.lost,
        tally.pipelined,
        tally.iterations,
        tally.watched,
        tally.watches_resumed,
        tally.imports,
        tally.scripts,
        tally.locks_awaited,
        tally.backups,
        tally.backups_gathered,
        tally.stale_backups,
        tally.frames
    );
    println!(
        "{} crashes, {} of them stops on a failing disk; {} disk stalls, {} slow disks; {} sectors lost; {} leaderships; \
         {} snapshots made, {} received; {} checkpoints compared; {} hosts joined, {} removed, {} \
         replicas replaced, {} changes that took votes judged, {} shards judged by their placement; {} disks refused; {} releases changed, {} refused, {} \
          versions raised",
        tally.crashes,
        tally.disk_stops,
        tally.disk_stalls,
        tally.slow_disks,
        tally.sectors_lost,
        tally.leaderships,
        tally.snapshots_made,
        tally.snapshots_received,
        tally.checkpoints,
        tally.joined,
        tally.removed,
        tally.replaced,
        tally.replacements,
        tally.placed,
        tally.disks_refused,
        tally.releases_changed,
        tally.releases_refused,
        tally.versions_raised
    );
    if !failed.is_empty() {
        println!("failing seeds: {failed:?}");
    }
}

fn print_failure(failure: &Failure) {
    println!("seed {} fails at {}, hash {:016x}", failure.seed, failure.at, failure.hash);
    for line in &failure.lines {
        println!("  {line}");
    }
    println!("{}", failure.violation);
    println!("look at it: tidelock-sim --seed {0} --trace, or --seed {0} --shrink", failure.seed);
}

/// Appends a failing seed to the file. Panics if that fails, because the seed would be lost.
fn keep_failure(file: &Path, failure: &Failure) {
    let mut opened = OpenOptions::new().create(true).append(true).open(file).expect("the file can be opened");
    writeln!(opened, "{} {}", failure.seed, failure.violation).expect("the file can be written");
}

/// Fresh seeds: the clock decides which seeds are run, never what a seed does.
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_micros() as u64)
}
