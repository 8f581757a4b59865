//! Clients that iterate over all keys, as a client of Redis does with `SCAN`.
//!
//! Owns where and when each scanner takes its next step, and the results of finished iterations. An
//! iteration takes its cursor from node to node, preferably to one that has just started, because
//! that one knows an old slot map. It checks nothing; `checkers::scans` does.

use std::collections::BTreeSet;

use tidelock_core::command::{Condition, Consistency, Operation, ReadReply, Reply, Request, Write};
use tidelock_core::scan::Scan;
use tidelock_core::types::{NodeId, Token};

use super::World;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::history::{Iteration, Moment, value_of};

/// Keys that each scanner writes and no client deletes, spread over all shards. The checker can
/// rely on them even if deletes of unknown outcome leave every other key in doubt.
const KEYS: u64 = 12;

/// Keys that a step reads: few, so that an iteration takes several steps.
const STEP_KEYS: usize = 2;

/// A client that iterates repeatedly.
#[derive(Debug)]
pub struct Scanner {
    number: usize,
    /// Number of writes that it has requested.
    writes: u64,
    /// Whether a write comes next: one before each iteration.
    is_write_next: bool,
    current: Option<Iteration>,
    cursor: u64,
    /// The step that it waits for, or nothing if it waits for a write.
    asked: Option<(Token, Option<Scan>)>,
    /// A step that is due at another time is obsolete, because an answer came first.
    next_step: Micros,
    random: fastrand::Rng,
}

impl Scanner {
    /// A scanner with its own generator.
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
        let key = format!("scanned/{}/{}", self.number, self.writes % KEYS);
        Request::Write(Write::of(&Operation::Put {
            key: key.as_bytes(),
            value: &value_of(token, 0),
            condition: Condition::Always,
        }))
    }
}

impl World<'_> {
    /// Takes a scanner's next step: a write between two iterations, or else the next step of one.
    pub(crate) fn scan(&mut self, position: usize) {
        let now = self.event_queue.now();
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
        // Timed out: the next step, with the same cursor, goes to another node.
        self.scan_after(position, self.plan.load.client_timeout);
    }

    /// Handles an answer that may be for a scanner. The history has recorded it already.
    pub(crate) fn scanner_hears(&mut self, node: NodeId, token: Token, reply: Reply) {
        let is_asked = |scanner: &Scanner| scanner.asked.as_ref().is_some_and(|(asked, _)| *asked == token);
        let Some(position) = self.scanners.iter().position(is_asked) else { return };
        let slots = self.host(node).slot_map().expect("invariant: the node has just answered");
        let ended = self.history.operation(token).map_or(Moment::NEVER, |operation| operation.completed());
        let scanner = &mut self.scanners[position];
        let pause = Micros(scanner.random.u64(1..=self.plan.load.pause_max.0));
        if let Some((_, Some(mut scan))) = scanner.asked.take() {
            let mut current = scanner.current.take().expect("invariant: a step is of an iteration");
            match reply {
                Reply::Read(ReadReply::Scanned(step)) => current.keys.extend(scan.take(step)),
                Reply::SlotsMoved => scan.start_over(slots),
                _ => {}
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
        let at = self.event_queue.now() + delay;
        self.scanners[position].next_step = at;
        self.event_queue.at(at, SimEvent::Scan(position));
    }

    /// Schedules the first step of every scanner.
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
