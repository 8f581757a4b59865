//! Executes one plan and returns a verdict and a hash.
//!
//! Owns the phases of a run: the cluster starts, clients and faults are active for the planned
//! time, and all faults are relieved. Then the run checks that the healed cluster serves, that its
//! replicas are equal, and that its final state follows from the history. [`World`] handles the
//! single events.

use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checkers::{self, FinishedRun, Violation};
use crate::event_queue::Micros;
use crate::frames::FrameSample;
use crate::plan::Plan;
pub use crate::report::{Report, Tally};
use crate::trace::Detail;
use crate::world::World;

/// A run that violated a property.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of its plan, with which the run can be repeated.
    pub seed: u64,
    /// The first violation. The run ended there.
    pub violation: Violation,
    /// The hash of the run up to the failure.
    pub hash: u64,
    /// The simulated time of the failure.
    pub at: Micros,
    /// The last lines of the trace, if they were kept.
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

/// Runs a plan; if it fails, runs it again for the last lines of its trace.
pub fn run_traced(plan: &Plan) -> Result<Report, Box<Failure>> {
    run(plan, Detail::Hash).or_else(|_| run(plan, Detail::Tail(TAIL_LINES)))
}

/// Lines of trace that a failure shows.
pub const TAIL_LINES: usize = 60;

/// Runs plans, and returns the frames that their nodes sent each other.
pub fn sample_frames(plans: impl Iterator<Item = Plan>) -> FrameSample {
    let mut sample = FrameSample::default();
    for plan in plans {
        let mut world = World::new(&plan, Detail::Hash);
        world.keep_frames(sample);
        // A violation is found by other runs; what was sent until then counts.
        let _ = world.start().and_then(|()| world.run_until(plan.duration));
        sample = world.take_frames();
    }
    sample
}

fn play(plan: &Plan, world: &mut World<'_>) -> Result<(), Violation> {
    world.start()?;
    world.run_until(plan.duration)?;
    world.heal()?;
    world.inspect()?;
    world.close_connections();
    checkers::judge(&FinishedRun {
        history: world.history(),
        iterations: &world.iterations,
        connections: world.pipelining.records(),
        watchers: &world.watchers,
        key_watchers: &world.key_watchers,
        imports: &world.imports,
        counter_runs: &world.counter_runs,
        ledger: world.ledger(),
        data_shards: plan.data_shards,
        is_mixed: plan.is_mixed(),
        lineages: OnceCell::new(),
        ownership: OnceCell::new(),
    })
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").into()
}
