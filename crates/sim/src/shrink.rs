//! Shrinks a failing run until a person can read it.
//!
//! Owns the search for a smaller plan that fails in the same way: less time, fewer faults (delta
//! debugging), less of everything else. Each attempt is a whole run, so their number is bounded; a
//! run is a function of its plan, so the shrunk plan fails every time.
//!
//! A shrunk plan is a different run, and may fail for a different reason. It is accepted only if
//! the same checker rejects it; this module cannot tell which of several bugs the checker found.

use crate::event_queue::Micros;
use crate::faults::{Fault, ScheduledFault, Target};
use crate::plan::Plan;
use crate::run::{self, Failure};
use crate::trace::Detail;

/// A shorter run that fails like the one that was given.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest plan found that still fails.
    pub plan: Plan,
    /// Its failure, found by the same checker as the original one.
    pub failure: Box<Failure>,
    /// How many runs it took to find.
    pub attempts: u32,
}

/// The search state: the plan that is being shrunk.
struct Search {
    best: Plan,
    failure: Box<Failure>,
    attempts: u32,
    attempts_max: u32,
}

/// Shrinks a plan within `attempts_max` runs. `None` if the plan does not fail.
pub fn shrink(plan: &Plan, attempts_max: u32) -> Option<Shrunk> {
    let failure = run::run(plan, Detail::Hash).err()?;
    let mut search = Search { best: plan.clone(), failure, attempts: 0, attempts_max };
    loop {
        let before = search.best.clone();
        search.stop_at_the_failure();
        search.remove_faults();
        search.remove_operator_actions();
        search.reduce(shorter);
        search.reduce(fewer_nodes);
        search.reduce(fewer_shards);
        search.reduce(fewer_clients);
        search.reduce(fewer_pipelining_clients);
        search.reduce(no_importers);
        search.reduce(no_backups);
        search.reduce(calmer);
        if search.best == before || search.is_exhausted() {
            break;
        }
    }
    let Search { best: plan, failure, attempts, .. } = search;
    Some(Shrunk { plan, failure, attempts })
}

impl Search {
    fn is_exhausted(&self) -> bool {
        self.attempts >= self.attempts_max
    }

    /// Runs a candidate and keeps it if it fails in the same way.
    fn attempt(&mut self, candidate: Plan) -> bool {
        if self.is_exhausted() || candidate == self.best {
            return false;
        }
        self.attempts += 1;
        match run::run(&candidate, Detail::Hash) {
            Err(failure) if failure.violation.checker == self.failure.violation.checker => {
                self.best = candidate;
                self.failure = failure;
                true
            }
            _ => false,
        }
    }

    /// Removes what comes after the failure.
    fn stop_at_the_failure(&mut self) {
        if self.failure.at < self.best.duration {
            let end = Micros(self.failure.at.0 + 1);
            self.attempt(until(&self.best, end));
        }
    }

    /// Leaves out ever smaller parts of the schedule, until every fault that is left is necessary.
    fn remove_faults(&mut self) {
        let mut part = self.best.faults.len();
        while part > 0 && !self.is_exhausted() {
            let mut start = 0;
            while start < self.best.faults.len() {
                let mut candidate = self.best.clone();
                let end = (start + part).min(candidate.faults.len());
                candidate.faults.drain(start..end);
                if !self.attempt(candidate) {
                    start = end;
                }
            }
            part /= 2;
        }
    }

    /// Leaves out operator actions, beginning with the last.
    fn remove_operator_actions(&mut self) {
        for index in (0..self.best.operator_actions.len()).rev() {
            let mut candidate = self.best.clone();
            candidate.operator_actions.remove(index);
            self.attempt(candidate);
        }
    }

    /// Repeats a step as long as the failure stays.
    fn reduce(&mut self, step: impl Fn(&Plan) -> Option<Plan>) {
        while let Some(candidate) = step(&self.best) {
            if !self.attempt(candidate) {
                return;
            }
        }
    }
}

fn until(plan: &Plan, duration: Micros) -> Plan {
    let mut plan = Plan { duration, ..plan.clone() };
    plan.faults.retain(|scheduled| scheduled.at < duration);
    plan.operator_actions.retain(|scheduled| scheduled.at < duration);
    plan
}

fn shorter(plan: &Plan) -> Option<Plan> {
    let duration = Micros(plan.duration.0 * 3 / 4);
    (duration > Micros::MILLISECOND * 100).then(|| until(plan, duration))
}

fn fewer_nodes(plan: &Plan) -> Option<Plan> {
    let nodes = match plan.nodes {
        0..=1 => return None,
        2..=3 => 1,
        more => more - 2,
    };
    let mut plan = Plan { nodes, ..plan.clone() };
    let hosts = plan.hosts();
    plan.faults.retain_mut(|scheduled| strikes_among(scheduled, hosts));
    Some(plan)
}

/// Whether a fault has a target in a cluster of so many nodes.
fn strikes_among(scheduled: &mut ScheduledFault, nodes: u64) -> bool {
    if let Fault::Partition(partition) = &mut scheduled.fault {
        partition.side &= (1 << nodes) - 1;
        return partition.side != 0;
    }
    if let Fault::CutPair(pair) = &scheduled.fault {
        return pair.high.0 <= nodes;
    }
    match scheduled.fault.kind().target() {
        Some(Target::Node(node)) => node.0 <= nodes,
        Some(Target::LeaderOf(_) | Target::All) | None => true,
    }
}

fn fewer_shards(plan: &Plan) -> Option<Plan> {
    (plan.data_shards > 1).then(|| Plan { data_shards: plan.data_shards - 1, ..plan.clone() })
}

fn fewer_clients(plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    plan.load.clients = plan.load.clients.checked_sub(1).filter(|&clients| clients > 0)?;
    Some(plan)
}

fn fewer_pipelining_clients(plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    plan.load.pipelining_clients = plan.load.pipelining_clients.checked_sub(1)?;
    Some(plan)
}

fn no_importers(plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let had_any = std::mem::take(&mut plan.load.importers) > 0;
    had_any.then_some(plan)
}

fn no_backups(plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let had_any = std::mem::take(&mut plan.load.backup_clients) > 0;
    had_any.then_some(plan)
}

/// A network that loses and delays nothing by itself.
fn calmer(plan: &Plan) -> Option<Plan> {
    let mut plan = plan.clone();
    let is_calm = plan.conditions.drops_per_mille == 0 && plan.conditions.spikes_per_mille == 0;
    plan.conditions.drops_per_mille = 0;
    plan.conditions.spikes_per_mille = 0;
    (!is_calm).then_some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_holds_is_not_shrunk() {
        assert!(shrink(&Plan::draw(1000), 1).is_none());
    }

    #[test]
    fn a_smaller_cluster_has_only_faults_of_its_own_nodes() {
        let plan = (0..)
            .map(Plan::draw)
            .find(|plan| plan.nodes == 5 && plan.faults.len() > 20)
            .expect("there are such seeds");
        let smaller = fewer_nodes(&plan).expect("five nodes are not the fewest");
        assert_eq!(smaller.nodes, 3);
        assert!(smaller.faults.len() < plan.faults.len());
        let hosts = smaller.hosts();
        for mut scheduled in smaller.faults {
            let before = scheduled.clone();
            assert!(strikes_among(&mut scheduled, hosts) && scheduled == before, "{before}");
        }
    }
}
