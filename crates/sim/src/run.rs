//! One run: a plan in, a verdict and a hash out.
//!
//! Owns the acts of a run: the cluster starts, clients and faults keep on for the planned time, everything heals, and
//! then the healed cluster has to show that it serves, that its replicas are equal and that its final state follows
//! from the history. What happens at each moment is the business of [`World`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::agenda::Micros;
use crate::checkers::{self, Violation};
use crate::plan::Plan;
use crate::trace::Detail;
use crate::world::World;

/// What a run without violation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The hash of everything that happened.
    pub hash: u64,
    /// Happenings worked off.
    pub events: u64,
    /// Simulated time.
    pub simulated: Micros,
    /// What the run consisted of.
    pub tally: Tally,
}

/// Counts of what happened, so that a run that tests nothing is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests of clients.
    pub requests: u64,
    /// Of these, writes that were acknowledged.
    pub acknowledged: u64,
    /// Of these, requests that were answered with a refusal of any kind.
    pub refused: u64,
    /// Of these, requests whose process died first.
    pub lost: u64,
    /// Processes that died or stopped.
    pub crashes: u64,
    /// Of these, how many stopped because the disk failed them.
    pub disk_stops: u64,
    /// Hosts that joined.
    pub joined: u64,
    /// Hosts that learned that they were removed.
    pub removed: u64,
    /// Processes on old copies of their disks that their peers refused.
    pub old_copies_refused: u64,
    /// Replicas that came after another one of the same shard on the same node.
    pub replaced: u64,
    /// Iterations over all keys that came to their end.
    pub iterations: u64,
    /// Checkpoints of a replica that were compared with another's at the same index.
    pub checkpoints: u64,
    /// Times that a disk took no writes, and its process waited until it did.
    pub disk_stalls: u64,
    /// Times that a process found its disk slow.
    pub slow_disks: u64,
    /// Ticks at which the cluster had to serve although a disk was slow.
    pub served_on_slow_disks: u64,
    /// Snapshots that replicas made of themselves.
    pub snapshots_made: u64,
    /// Snapshots that followers received whole.
    pub snapshots_received: u64,
    /// Leaderships over all shards.
    pub leaderships: u64,
    /// Frames that arrived.
    pub frames: u64,
    /// Sectors that power losses took back.
    pub sectors_lost: u64,
}

impl Tally {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.lost += other.lost;
        self.crashes += other.crashes;
        self.joined += other.joined;
        self.removed += other.removed;
        self.old_copies_refused += other.old_copies_refused;
        self.replaced += other.replaced;
        self.iterations += other.iterations;
        self.checkpoints += other.checkpoints;
        self.snapshots_made += other.snapshots_made;
        self.snapshots_received += other.snapshots_received;
        self.disk_stops += other.disk_stops;
        self.disk_stalls += other.disk_stalls;
        self.slow_disks += other.slow_disks;
        self.served_on_slow_disks += other.served_on_slow_disks;
        self.leaderships += other.leaderships;
        self.frames += other.frames;
        self.sectors_lost += other.sectors_lost;
    }
}

/// A run that found something.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of its plan.
    pub seed: u64,
    /// What it found.
    pub violation: Violation,
    /// The hash up to there.
    pub hash: u64,
    /// When, in simulated time.
    pub at: Micros,
    /// The last lines of the trace, if they were asked for.
    pub lines: Vec<String>,
}

/// Runs a plan. A panic of the store is a violation like any other.
pub fn run(plan: &Plan, detail: Detail) -> Result<Report, Box<Failure>> {
    let mut world = World::new(plan, detail);
    let verdict = catch_unwind(AssertUnwindSafe(|| play(plan, &mut world)));
    let violation = match verdict {
        Ok(Ok(())) => return Ok(world.report()),
        Ok(Err(violation)) => violation,
        Err(panic) => Violation::new("panic", message_of(&*panic)),
    };
    let Report { hash, simulated: at, .. } = world.report();
    Err(Box::new(Failure { seed: plan.seed, violation, hash, at, lines: world.into_lines() }))
}

/// Runs a seed; if it fails, runs it again for the last lines of its trace.
pub fn run_seed(seed: u64) -> Result<Report, Box<Failure>> {
    run_traced(&Plan::draw(seed))
}

/// Runs a plan; if it fails, runs it again for the last lines of its trace.
pub fn run_traced(plan: &Plan) -> Result<Report, Box<Failure>> {
    run(plan, Detail::Hash).or_else(|_| run(plan, Detail::Tail(TAIL_LINES)))
}

/// Lines of trace that a failure shows.
pub const TAIL_LINES: usize = 60;

fn play(plan: &Plan, world: &mut World<'_>) -> Result<(), Violation> {
    world.start()?;
    world.run_until(plan.duration)?;
    world.heal()?;
    world.inspect()?;
    // Keys of one shard have one revision only while none moves.
    let state_shards = (!crate::operator::moves(&plan.deeds)).then_some(plan.data_shards);
    checkers::judge((world.history(), &world.iterations), world.ledger(), state_shards)?;
    checkers::config::check(world.history(), &world.watchers)?;
    if state_shards.is_some() {
        checkers::lives::check(world.history(), world.ledger(), &world.watchers)?;
    }
    Ok(())
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").into()
}
