//! Reads and writes of keys: the shared part of `bench kv` and `bench resp`.
//!
//! Owns which connection asks which node for which keys. The `ledger` checks the answers.

use std::sync::Arc;
use std::time::Instant;

use tidelock_client::CliError;

use crate::args::{Distribution, MixArgs, Via};
use crate::keys::{Chooser, KeySpace};
use crate::ledger::Ledger;
use crate::protocol::{Answer, Kind, Operation, Ticket, Work};
use crate::routes::{Listener, Routes};

/// How often a key of another node is drawn before the next key of this node is taken instead.
const DRAWS_MAX: usize = 64;

/// No leader is known.
const NOBODY: u8 = u8::MAX;

/// The leader is a node that gets no requests.
const ELSEWHERE: u8 = u8::MAX - 1;

/// The assignment of connections and keys to nodes.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    /// `host:port` of every node that gets requests.
    pub addresses: Vec<String>,
    /// For each key the index of the node that leads it; `None` if any node is asked for any key.
    leaders: Option<Arc<Vec<u8>>>,
    wants_leader: bool,
}

impl Targets {
    /// Distributes connections over these nodes, each for any key.
    pub fn given(addresses: Vec<String>) -> Targets {
        Targets { addresses, leaders: None, wants_leader: false }
    }

    /// Distributes connections so that keys are asked of their leaders, or of other nodes.
    pub fn routed(
        via: Via,
        mix: &MixArgs,
        keys: &KeySpace,
        routes: &Routes,
        listener: Listener,
    ) -> Result<Targets, CliError> {
        if mix.distribution == Distribution::Sequential {
            return Err(CliError::Usage(
                "--via leader and follower draw keys at random, not in sequence".to_owned(),
            ));
        }
        let wants_leader = via == Via::Leader;
        let index_of = |node| routes.nodes.iter().position(|known| known.node == node);
        let mut key = vec![];
        let leaders: Vec<u8> = (0..keys.count())
            .map(|index| {
                key.clear();
                keys.push(index, &mut key);
                routes.leader(&key).and_then(index_of).and_then(|at| u8::try_from(at).ok()).unwrap_or(NOBODY)
            })
            .collect();
        // A node without keys gets no connection; the others keep their order under new indexes.
        let useful = |node: usize| leaders.iter().any(|&leader| suits(leader, node, wants_leader));
        let kept: Vec<usize> = (0..routes.nodes.len()).filter(|&node| useful(node)).collect();
        if kept.is_empty() {
            return Err(CliError::Failed("no node of that kind is known for any of the keys".to_owned()));
        }
        let renamed = |leader: u8| {
            let at = kept.iter().position(|&node| node == usize::from(leader));
            let elsewhere = if leader == NOBODY { NOBODY } else { ELSEWHERE };
            at.and_then(|at| u8::try_from(at).ok()).unwrap_or(elsewhere)
        };
        let addresses: Vec<_> = kept.iter().map(|&node| routes.nodes[node].of(listener).to_owned()).collect();
        if addresses.iter().any(String::is_empty) {
            let what = "the cluster does not say where each node listens: one has only just started, or has that listener off";
            return Err(CliError::Failed(what.to_owned()));
        }
        let leaders = leaders.iter().map(|&leader| renamed(leader)).collect();
        Ok(Targets { addresses, leaders: Some(Arc::new(leaders)), wants_leader })
    }
}

fn suits(leader: u8, node: usize, wants_leader: bool) -> bool {
    leader != NOBODY && (usize::from(leader) == node) == wants_leader
}

/// What the connections of a pass share.
pub(crate) struct KeyPlan {
    pub mix: MixArgs,
    pub keys: Arc<KeySpace>,
    pub ledger: Arc<Ledger>,
    /// The nodes of each key.
    pub targets: Targets,
    /// Seed of the choice of keys.
    pub seed: u64,
}

/// The requests of one connection on keys, and the checks of their answers.
pub(crate) struct KeyWork {
    ledger: Arc<Ledger>,
    chooser: Chooser,
    targets: Targets,
    keys: u64,
    connection: usize,
    /// Index of the node that it asks.
    node: usize,
    settled_below: u64,
}

impl KeyWork {
    /// The work of the connection with this index.
    pub fn new(plan: &KeyPlan, connection: usize) -> Result<KeyWork, CliError> {
        Ok(KeyWork {
            ledger: Arc::clone(&plan.ledger),
            chooser: Chooser::new(&plan.mix, &plan.keys, plan.seed, connection as u64)?,
            targets: plan.targets.clone(),
            keys: plan.keys.count(),
            connection,
            node: connection % plan.targets.addresses.len(),
            settled_below: 0,
        })
    }

    fn key(&mut self) -> u64 {
        let drawn = self.chooser.key();
        let Some(leaders) = &self.targets.leaders else { return drawn };
        let (node, wants_leader) = (self.node, self.targets.wants_leader);
        let belongs = |key: u64| suits(leaders[key as usize], node, wants_leader);
        let mut key = drawn;
        for _ in 0..DRAWS_MAX {
            if belongs(key) {
                return key;
            }
            key = self.chooser.key();
        }
        let behind = (0..self.keys).map(|step| (key + step) % self.keys);
        { behind }.find(|&key| belongs(key)).expect("invariant: a node is only asked if it suits a key")
    }
}

impl Work for KeyWork {
    fn begin(&mut self, idle: bool) {
        self.settled_below = self.ledger.begin(self.connection, idle);
    }

    fn next(&mut self, due: Instant) -> Ticket {
        let key = self.key();
        let kind = if self.chooser.reads() { Kind::Read } else { Kind::Write };
        let floor = self.ledger.floor(self.node, key);
        let sequence = self.ledger.sequence(kind);
        let settled_below = self.settled_below;
        Ticket { operation: Operation { kind, key, sequence }, due, floor, settled_below }
    }

    fn judge(&mut self, ticket: &Ticket, answer: &Answer<'_>) -> Result<(), String> {
        self.ledger.judge(self.node, ticket, answer)
    }

    fn failed(&mut self, ticket: &Ticket) {
        if ticket.operation.kind == Kind::Write {
            self.ledger.unknown(ticket.operation.sequence);
        }
    }

    fn end(&mut self, oldest: Option<&Ticket>) {
        self.ledger.end(self.connection, oldest.map(|ticket| ticket.operation.sequence));
    }

    fn reconnected(&mut self) {
        self.ledger.forget(self.node);
    }
}

/// The work of `bench http`: one URL, repeated.
pub(crate) struct FixedWork {
    /// The expected answer, if it is known.
    pub expected: Option<Arc<[u8]>>,
}

impl Work for FixedWork {
    fn begin(&mut self, _idle: bool) {}

    fn next(&mut self, due: Instant) -> Ticket {
        let operation = Operation { kind: Kind::Read, key: 0, sequence: 0 };
        Ticket { operation, due, floor: 0, settled_below: 0 }
    }

    fn judge(&mut self, _ticket: &Ticket, answer: &Answer<'_>) -> Result<(), String> {
        match (&self.expected, answer) {
            (Some(expected), Answer::Value { value, .. }) if **expected != **value => {
                let found = String::from_utf8_lossy(&value[..value.len().min(100)]);
                Err(format!("another body than the one expected, {} bytes: {found}", value.len()))
            }
            _ => Ok(()),
        }
    }

    fn failed(&mut self, _ticket: &Ticket) {}

    fn end(&mut self, _oldest: Option<&Ticket>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::mix;
    use crate::ledger::{LedgerPlan, Marks};
    use crate::routes::NodeAddresses;

    /// Three nodes; the second leads everything.
    fn routed(line: &str) -> (MixArgs, Arc<KeySpace>, Targets) {
        let mix = mix(line);
        let keys = Arc::new(KeySpace::new(&mix).unwrap());
        let address = |node| NodeAddresses { node, http: format!("h{node}"), resp: String::new() };
        let routes = Routes { nodes: (1..=3).map(address).collect(), leaders: vec![Some(2); 16384] };
        let targets = Targets::routed(mix.via.unwrap(), &mix, &keys, &routes, Listener::Http).unwrap();
        (mix, keys, targets)
    }

    #[test]
    fn keys_are_asked_of_those_who_do_not_lead_them() {
        for (line, expected) in [
            ("--via leader --distribution one", vec!["h2"]),
            ("--via follower --distribution one", vec!["h1", "h3"]),
            ("--via follower --keys 100", vec!["h1", "h3"]),
        ] {
            let (mix, keys, targets) = routed(line);
            assert_eq!(targets.addresses, expected, "{line}");
            for connection in 0..4 {
                let ledger = Arc::new(Ledger::new(LedgerPlan {
                    marks: Marks::Versions,
                    freshness: mix.consistency,
                    keys: keys.count(),
                    nodes: targets.addresses.len(),
                    connections: 4,
                    run: 1,
                }));
                let (mix, keys, targets) = (mix.clone(), Arc::clone(&keys), targets.clone());
                let plan = KeyPlan { mix, keys, ledger, targets, seed: 1 };
                let mut work = KeyWork::new(&plan, connection).unwrap();
                assert!(work.next(Instant::now()).operation.key < plan.keys.count(), "{line}");
            }
        }
    }
}
