//! Checks that a disk that hangs does not stop the cluster while most disks, all links and all
//! processes are healthy: writes are acknowledged again within [`BOUND_ELECTION_TIMEOUTS`], and a
//! node with a slow disk no longer leads by then.
//!
//! Owns the timers of that promise. The world reports whether there are other faults. Any other
//! fault suspends the promise, and the timers start again when it ends.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tidelock_core::types::{NodeId, ShardId};

use super::Violation;
use super::online::{Conditions, Observation, OnlineChecker};
use crate::event_queue::Micros;

const CHECKER: &str = "availability";

/// One election timeout to detect the slow disk, one or two to transfer or elect, and as many again
/// if a disk that has just recovered is needed for the majority.
pub const BOUND_ELECTION_TIMEOUTS: u64 = 6;

/// The beginnings of conditions that must end soon.
#[derive(Debug)]
pub struct Availability {
    bound: Micros,
    /// Since when only disks are faulty.
    fair_since: Option<Micros>,
    /// Shards with a write requested since the last acknowledgement, and when.
    unserved: BTreeMap<ShardId, Micros>,
    /// Nodes whose disks are slow, and since when.
    slow: BTreeMap<NodeId, Micros>,
    /// The node whose disk was found slow last.
    last_slow: Option<NodeId>,
    /// Number of checks at which the promise was in force while a disk was slow.
    looks: u64,
}

impl Availability {
    /// Creates the checker for this election timeout.
    pub fn new(election_timeout: Micros) -> Availability {
        Availability {
            bound: election_timeout * BOUND_ELECTION_TIMEOUTS,
            fair_since: None,
            unserved: BTreeMap::new(),
            slow: BTreeMap::new(),
            last_slow: None,
            looks: 0,
        }
    }

    /// Sets whether only the disks of a minority are faulty now.
    fn conditions(&mut self, now: Micros, is_fair: bool) {
        if !is_fair {
            self.fair_since = None;
        } else if self.fair_since.is_none() {
            self.fair_since = Some(now);
        }
    }

    /// Records that a write of a key of this shard was requested.
    fn asked(&mut self, now: Micros, shard: ShardId) {
        self.unserved.entry(shard).or_insert(now);
    }

    /// Records that such a write was acknowledged.
    fn served(&mut self, shard: ShardId) {
        self.unserved.remove(&shard);
    }

    /// Sets whether the process of a node has found its disk slow. When that is another node than
    /// the last time, the cluster has to recover once more, and has the whole bound for it. A disk
    /// that becomes slow again and again does not extend the bound.
    fn disk(&mut self, now: Micros, node: NodeId, is_slow: bool) {
        if !is_slow {
            self.slow.remove(&node);
        } else if let Entry::Vacant(entry) = self.slow.entry(node) {
            entry.insert(now);
            if self.last_slow.replace(node) != Some(node) {
                self.unserved.values_mut().for_each(|since| *since = now);
            }
        }
    }

    /// How long a condition has lasted that began at `since`. Only time in which the promise is in
    /// force counts, and only after the cluster had time to recover from other faults.
    fn lasted(&self, now: Micros, since: Micros) -> Option<Micros> {
        let fair_from = self.fair_since?;
        let from = since.max(fair_from + self.bound);
        now.0.checked_sub(from.0).map(Micros)
    }

    /// Checks that no shard has been unserved for too long.
    fn look(&mut self, now: Micros) -> Result<(), Violation> {
        self.looks += u64::from(self.fair_since.is_some() && !self.slow.is_empty());
        for (shard, &since) in &self.unserved {
            if self.lasted(now, since).is_some_and(|lasted| lasted > self.bound) {
                let text =
                    format!("shard {shard} acknowledges no write since {since}; slow disks: {:?}", self.slow);
                return Err(Violation::new(CHECKER, text));
            }
        }
        Ok(())
    }

    /// Checks a node that leads a shard: its disk must not have been slow for too long.
    fn leads(&self, now: Micros, node: NodeId, shard: ShardId) -> Result<(), Violation> {
        let Some(&since) = self.slow.get(&node) else { return Ok(()) };
        if self.lasted(now, since).is_some_and(|lasted| lasted > self.bound) {
            let text = format!("node {node} leads shard {shard}, and its disk has been slow since {since}");
            return Err(Violation::new(CHECKER, text));
        }
        Ok(())
    }

    /// How often the promise was in force while a disk was slow.
    pub fn looks(&self) -> u64 {
        self.looks
    }
}

impl OnlineChecker for Availability {
    fn observe(&mut self, now: Micros, observation: &Observation<'_>) -> Result<(), Violation> {
        match observation {
            Observation::Asked { written: Some(shard), .. } => self.asked(now, *shard),
            Observation::Answered { written: Some(shard), .. } => self.served(*shard),
            Observation::Disk { node, is_slow } => self.disk(now, *node, *is_slow),
            Observation::ProcessEnded(node) => self.disk(now, *node, false),
            Observation::Tick(Conditions { is_fair, led_on_slow_disk: (node, shards), .. }) => {
                self.conditions(now, *is_fair);
                shards.iter().try_for_each(|shard| self.leads(now, *node, *shard))?;
                return self.look(now);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(1);
    const NODE: NodeId = NodeId(1);

    fn fair() -> Availability {
        let mut availability = Availability::new(Micros(100));
        availability.conditions(Micros(0), true);
        availability
    }

    #[test]
    fn a_shard_that_acknowledges_nothing_is_noticed() {
        let mut availability = fair();
        availability.asked(Micros(1_000), SHARD);
        availability.asked(Micros(1_500), SHARD);
        availability.look(Micros(1_600)).unwrap();
        assert!(availability.look(Micros(1_601)).unwrap_err().message.contains("no write since"));
        availability.served(SHARD);
        availability.look(Micros(9_000)).unwrap();
    }

    #[test]
    fn a_node_that_leads_on_a_slow_disk_is_noticed() {
        let mut availability = fair();
        availability.disk(Micros(1_000), NODE, true);
        availability.disk(Micros(1_500), NODE, true);
        availability.leads(Micros(1_600), NODE, SHARD).unwrap();
        assert!(availability.leads(Micros(1_601), NODE, SHARD).is_err());
        availability.leads(Micros(1_601), NodeId(2), SHARD).unwrap();
        availability.disk(Micros(1_700), NODE, false);
        availability.leads(Micros(9_000), NODE, SHARD).unwrap();
    }

    #[test]
    fn each_further_disk_gives_the_cluster_time_and_the_same_one_does_not() {
        let mut availability = fair();
        let (one, two) = (NodeId(1), NodeId(2));
        availability.disk(Micros(900), one, true);
        availability.asked(Micros(1_000), SHARD);
        availability.disk(Micros(1_300), two, true);
        for now in [1_400, 1_500] {
            availability.disk(Micros(now), one, true);
            availability.disk(Micros(now), two, true);
        }
        availability.disk(Micros(1_600), two, false);
        availability.disk(Micros(1_700), two, true);
        availability.look(Micros(1_900)).unwrap();
        assert!(availability.look(Micros(1_901)).is_err(), "600 after the disk of the second node");
    }

    #[test]
    fn what_else_goes_wrong_suspends_the_promise() {
        let mut availability = fair();
        availability.asked(Micros(1_000), SHARD);
        availability.conditions(Micros(1_100), false);
        availability.look(Micros(9_000)).unwrap();
        availability.conditions(Micros(9_000), true);
        availability.look(Micros(10_200)).unwrap();
        assert!(availability.look(Micros(10_201)).is_err());
    }
}
