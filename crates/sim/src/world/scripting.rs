//! Clients that run scripts: a script adds one to a counter, which is kept in two keys.
//!
//! Owns where and when each client begins, and how long its script runs. The node that it asks
//! drives the core's machine, so a script ends with that process. The script itself is a few
//! operations here: the core does not know what runs on the keys. It checks nothing;
//! `checkers::scripts` does.

use bytes::Bytes;
use tidelock_core::clients::script::{ScriptAction, ScriptKeys, ScriptRequest};
use tidelock_core::command::{Consistency, Operation, OperationReply, Operations, Reply, Request};
use tidelock_core::types::{Token, UnixMillis, Version};

use super::World;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::history::{CounterRun, Incarnation};
use crate::plan::Plan;
use crate::workload::Workload;

/// Longest run of a script.
const RUN_MAX: Micros = Micros(10_000);

/// Longest pause of a client between two scripts.
const PAUSE_MAX: Micros = Micros(100_000);

/// Of this many scripts, one only reads its counter.
const SCRIPTS_PER_READING_ONE: u8 = 4;

/// A client that runs scripts, one at a time.
#[derive(Debug)]
pub(super) struct ScriptClient {
    /// The hash tags of the shards. Each has one counter.
    tags: Vec<String>,
    current: Option<Script>,
    /// A step that is due at another time is obsolete.
    next_step: Micros,
    random: fastrand::Rng,
}

/// A script in progress.
#[derive(Debug)]
struct Script {
    request: ScriptRequest,
    /// The process that drives it.
    at: Incarnation,
    keys: [Bytes; 2],
    only_reads: bool,
    /// The request that was sent last.
    token: Token,
    /// The keys, while the script runs.
    running: Option<Box<ScriptKeys>>,
    /// What the last run read.
    run: Option<CounterRun>,
}

/// The clients of a plan that run scripts.
pub(super) fn script_clients(plan: &Plan, workload: &Workload) -> Vec<ScriptClient> {
    let client = |number| ScriptClient {
        tags: workload.tags().to_vec(),
        current: None,
        next_step: Micros(0),
        random: plan.generator(&format!("script client {number}")),
    };
    (0..plan.load.script_clients).map(client).collect()
}

impl World<'_> {
    /// Schedules the first step of every client that runs scripts.
    pub(crate) fn start_script_clients(&mut self) {
        for position in 0..self.script_clients.len() {
            self.script_after(position, Micros::MILLISECOND * 10);
        }
    }

    /// Takes a client's next step: its script ends, or a new one begins. The previous one, if it
    /// has not ended, is abandoned.
    pub(crate) fn script(&mut self, position: usize) {
        if self.script_clients[position].next_step != self.event_queue.now() {
            return;
        }
        match self.script_clients[position].current.take() {
            Some(current) if current.running.is_some() && self.has_process(current.at) => {
                if self.is_paused(current.at.node) {
                    self.script_clients[position].current = Some(current);
                    return self.script_after(position, Micros::MILLISECOND * 10);
                }
                self.run_script(position, current);
            }
            _ => self.begin_script(position),
        }
    }

    /// Handles a reply that may be for a client that runs scripts. The history has recorded it.
    pub(crate) fn script_client_hears(&mut self, token: Token, reply: &Reply) {
        let awaits = |client: &ScriptClient| {
            let current = client.current.as_ref();
            current.is_some_and(|current| current.token == token && current.running.is_none())
        };
        let Some(position) = self.script_clients.iter().position(awaits) else { return };
        let mut current = self.script_clients[position].current.take().expect("invariant: it waits");
        let action = current.request.answered(reply.clone());
        self.continue_script(position, current, action);
    }

    fn begin_script(&mut self, position: usize) {
        let up = self.running_nodes();
        if up.is_empty() {
            return self.script_after(position, Micros::MILLISECOND * 10);
        }
        let client = &mut self.script_clients[position];
        let node = *choose(&mut client.random, &up);
        let tag = choose(&mut client.random, &client.tags).clone();
        let only_reads = client.random.u8(0..SCRIPTS_PER_READING_ONE) == 0;
        let keys = [1, 2].map(|number| Bytes::from(format!("{{{tag}}}s/{number}")));
        let declared = keys.iter().cloned();
        let begun = ScriptRequest::begin(declared, Consistency::Linearizable, self.plan.deliberate);
        let (request, action) = begun.expect("invariant: the keys have one hash tag");
        let (at, token) = (self.host(node).incarnation(), Token(0));
        let current = Script { request, at, keys, only_reads, token, running: None, run: None };
        self.continue_script(position, current, action);
    }

    fn continue_script(&mut self, position: usize, mut current: Script, action: ScriptAction) {
        match action {
            ScriptAction::Ask(request) => {
                let (node, is_write) = (current.at.node, matches!(request, Request::Write(_)));
                let token = self.history.next_token();
                current.token = token;
                if let Some(run) = current.run.as_mut().filter(|_| is_write) {
                    run.write = Some(token);
                }
                self.script_clients[position].current = Some(current);
                let asked = self.ask(node, request, false);
                assert_eq!(asked, token, "tokens are given in order");
                self.script_after(position, self.plan.load.client_timeout);
            }
            ScriptAction::Run(keys) => {
                current.running = Some(keys);
                let client = &mut self.script_clients[position];
                client.current = Some(current);
                let duration = Micros(client.random.u64(0..=RUN_MAX.0));
                self.script_after(position, duration);
            }
            ScriptAction::Done(result) => {
                if let Some(run) = current.run.filter(|_| result.is_ok()) {
                    self.tally.scripts += 1;
                    self.counter_runs.push(run);
                }
                let pause = Micros(self.script_clients[position].random.u64(1..=PAUSE_MAX.0));
                self.script_after(position, pause);
            }
        }
    }

    /// The script runs, at the end of its time.
    fn run_script(&mut self, position: usize, mut current: Script) {
        let now = self.event_queue.now();
        let clock = self.host(current.at.node).clock(now);
        let mut keys = current.running.take().expect("invariant: the script runs");
        let states = current.keys.each_ref().map(|key| counter_state(&mut keys, key, clock));
        let [(version, first), (_, second)] = states;
        let key = current.keys[0].clone();
        let run = CounterRun { key, read: current.token, version, counts: [first, second], write: None };
        current.run = Some(run);
        if !current.only_reads {
            let add = current.keys.each_ref().map(|key| Operation::Add { key, delta: 1 });
            keys.execute(&Operations::of(&add), clock).expect("invariant: the script declares the keys");
        }
        let action = current.request.finished(&keys);
        self.continue_script(position, current, action);
    }

    fn script_after(&mut self, position: usize, delay: Micros) {
        let at = self.event_queue.now() + delay;
        self.script_clients[position].next_step = at;
        self.event_queue.at(at, SimEvent::Script(position));
    }
}

/// The version of a key, and what it counts.
fn counter_state(keys: &mut ScriptKeys, key: &[u8], clock: UnixMillis) -> (Version, u64) {
    let get = Operations::of(&[Operation::Get { key }]);
    let replies = keys.execute(&get, clock).expect("invariant: the script declares the key");
    match replies.only() {
        Some(OperationReply::Value { version, value, .. }) => {
            let count = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            (version, count.expect("invariant: only scripts write the key"))
        }
        _ => (Version::ABSENT, 0),
    }
}
