//! Clients that iterate over all keys, as a client of Redis does with `SCAN`.
//!
//! Owns who takes the next step where and when, and what finished iterations returned. An iteration
//! goes from node to node with its cursor, preferably to one that has just started: that one knows
//! an old slot map. It judges nothing; `checkers::scans` does.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidelock_core::command::{Condition, Consistency, Reply, Request, Write};
use tidelock_core::scan::{Scan, Step};
use tidelock_core::types::{NodeId, Token};

use crate::agenda::{Happening, Micros};
use crate::faults::choose;
use crate::history::{Moment, value_of};
use crate::world::World;

/// Keys that each scanner writes and nobody ever deletes: what the checker has to hold on to when
/// deletes of unknown outcome leave every other key in doubt. They are spread over all shards.
const KEYS: u64 = 12;

/// Keys a step looks at: few, so that an iteration takes several steps.
const STEP_KEYS: usize = 2;

/// What one iteration returned, from its first step to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// When its first step was asked for.
    pub begun: Moment,
    /// When its last step was answered.
    pub ended: Moment,
    /// All keys that it returned.
    pub keys: BTreeSet<Bytes>,
}

/// One client that iterates again and again.
#[derive(Debug)]
pub struct Scanner {
    number: usize,
    /// Writes that it has asked for.
    writes: u64,
    /// Whether a write comes next: one before each iteration.
    is_write_next: bool,
    /// The iteration under way.
    current: Option<Iteration>,
    cursor: u64,
    /// What it waits for: a step, or nothing if it was a write.
    asked: Option<(Token, Option<Scan>)>,
    /// A step that comes at another time was overtaken by an answer.
    next_step: Micros,
    random: fastrand::Rng,
}

impl Scanner {
    /// One with its own generator.
    pub fn new(number: usize, random: fastrand::Rng) -> Scanner {
        Scanner {
            number,
            writes: 0,
            is_write_next: true,
            current: None,
            cursor: 0,
            asked: None,
            next_step: Micros(0),
            random,
        }
    }

    /// A put of one of its own keys.
    fn write(&mut self, token: Token) -> Request {
        self.writes += 1;
        self.is_write_next = false;
        let key = format!("scanned/{}/{}", self.number, self.writes % KEYS).into();
        Request::Write(Write::Put { key, value: value_of(token, 0), condition: Condition::Always })
    }
}

impl World<'_> {
    /// A scanner takes its next step: a write between two iterations, or else the next step of one.
    pub(crate) fn scan(&mut self, position: usize) {
        let now = self.agenda.now();
        if self.scanners[position].next_step != now {
            return;
        }
        let Some(node) = self.node_to_scan(position) else {
            return self.scan_after(position, Micros::MILLISECOND * 10);
        };
        let token = self.history.next_token();
        let slots = self.host(node).slot_map().expect("invariant: a node that is up has a map");
        let scanner = &mut self.scanners[position];
        let (scan, request) = if scanner.is_write_next {
            (None, scanner.write(token))
        } else {
            let scan = Scan::resume(scanner.cursor, slots).expect("invariant: a cursor that a node returned");
            let (read, consistency) = (scan.read(STEP_KEYS), Consistency::Linearizable);
            (Some(scan), Request::Read { read, consistency })
        };
        scanner.asked = Some((token, scan));
        let asked = self.ask(node, request, false);
        assert_eq!(asked, token, "tokens are given in order");
        if self.scanners[position].asked.as_ref().is_some_and(|(_, scan)| scan.is_some()) {
            let begun = self.history.operation(token).expect("invariant: just asked").invoked;
            let keys = BTreeSet::new();
            self.scanners[position].current.get_or_insert(Iteration { begun, ended: Moment::NEVER, keys });
        }
        // Impatient: the next step, with the same cursor, goes to another node.
        self.scan_after(position, self.plan.load.patience);
    }

    /// A question was answered, perhaps a scanner's. The history knows the answer already.
    pub(crate) fn scanner_hears(&mut self, node: NodeId, token: Token, reply: Reply) {
        let is_asked = |scanner: &Scanner| scanner.asked.as_ref().is_some_and(|(asked, _)| *asked == token);
        let Some(position) = self.scanners.iter().position(is_asked) else { return };
        let slots = self.host(node).slot_map().expect("invariant: the node has just answered");
        let ended = self.history.operation(token).map_or(Moment::NEVER, |operation| operation.completed());
        let scanner = &mut self.scanners[position];
        let pause = Micros(scanner.random.u64(1..=self.plan.load.pause_max.0));
        if let Some((_, Some(mut scan))) = scanner.asked.take() {
            let mut current = scanner.current.take().expect("invariant: a step is of an iteration");
            if let Step::Keys(keys) = scan.take(reply, slots) {
                current.keys.extend(keys);
            }
            scanner.cursor = scan.cursor();
            if scan.is_complete() {
                scanner.is_write_next = true;
                self.iterations.push(Iteration { ended, ..current });
            } else {
                scanner.current = Some(current);
            }
        }
        self.scan_after(position, pause);
    }

    fn scan_after(&mut self, position: usize, delay: Micros) {
        let at = self.agenda.now() + delay;
        self.scanners[position].next_step = at;
        self.agenda.at(at, Happening::Scan(position));
    }

    /// Every scanner takes its first step.
    pub(crate) fn start_scanners(&mut self) {
        for position in 0..self.scanners.len() {
            self.scan_after(position, Micros::MILLISECOND * 10);
        }
    }

    /// A node that is up, often the one that has run for the shortest time.
    fn node_to_scan(&mut self, position: usize) -> Option<NodeId> {
        let up: Vec<_> = self.hosts.iter().filter(|host| host.is_up()).collect();
        let youngest = up.iter().min_by_key(|host| host.ticks()).map(|host| host.node())?;
        let random = &mut self.scanners[position].random;
        Some(if random.bool() { youngest } else { choose(random, &up).node() })
    }
}
