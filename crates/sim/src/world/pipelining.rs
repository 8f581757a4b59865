//! Clients that pipeline: where each connects, when it sends, and when its connection breaks.
//!
//! Owns the turns of their connections, in the server's order: replies of the store, replies to the
//! client, commands, requests to the store. What is sent is `pipelines`' choice.

use std::collections::BTreeMap;

use tidelock_core::clients::pipeline::Pipeline;
use tidelock_core::command::{Consistency, Reply};
use tidelock_core::types::{NodeId, Token};

use super::World;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::history::Incarnation;
use crate::pipelines::{Connection, ConnectionRecord, Generator};
use crate::plan::Plan;
use crate::slots::shard_of;

/// Commands that a client has sent and the node has not taken, above which it sends no more.
const UNREAD_MAX: usize = 300;

/// Of this many steps of a client, it closes its connection in one.
const STEPS_PER_CLOSE: u32 = 25;

/// All clients that pipeline.
#[derive(Debug)]
pub struct PipeliningClients {
    clients: Vec<PipeliningClient>,
    /// The requests in progress: the client, its connection's number, and the queue that waits.
    asked: BTreeMap<Token, (usize, usize, u64)>,
    /// What ended connections sent and received.
    records: Vec<ConnectionRecord>,
}

#[derive(Debug)]
struct PipeliningClient {
    generator: Generator,
    connection: Option<Connection>,
    /// Number of connections that it has opened.
    connections: usize,
    pause_max: Micros,
    /// Memory that its node has for each command's replies.
    room: usize,
    /// The reply that it gets next waits for memory.
    wants_room: bool,
    random: fastrand::Rng,
}

impl PipeliningClients {
    /// The clients of a plan, not connected.
    pub fn new(plan: &Plan, keys: &[bytes::Bytes]) -> PipeliningClients {
        let client = |number: usize| {
            let mut random = plan.generator(&format!("pipelining client {number}"));
            let shard_of = |key: &[u8]| shard_of(key, plan.data_shards);
            let generator = Generator::new(keys, shard_of, plan.load.value_bytes_max, &mut random);
            let pause_max = Micros::MILLISECOND * *choose(&mut random, &[100, 500, 2_000]);
            let (connection, connections, room, wants_room) = (None, 0, usize::MAX, false);
            PipeliningClient { generator, connection, connections, pause_max, room, wants_room, random }
        };
        let clients = (0..plan.load.pipelining_clients).map(client).collect();
        PipeliningClients { clients, asked: BTreeMap::new(), records: Vec::new() }
    }

    /// Number of replies on connections that have ended.
    pub fn replies(&self) -> u64 {
        self.records.iter().map(|record| record.replies.len() as u64).sum()
    }

    /// What every ended connection sent and received.
    pub fn records(&self) -> &[ConnectionRecord] {
        &self.records
    }
}

impl World<'_> {
    /// Schedules the first step of every client that pipelines.
    pub(crate) fn start_pipelining(&mut self) {
        (0..self.pipelining.clients.len()).for_each(|client| self.pipeline_after_pause(client));
    }

    fn pipeline_after_pause(&mut self, client: usize) {
        let PipeliningClient { pause_max, random, .. } = &mut self.pipelining.clients[client];
        let pause = Micros(random.u64(1..=pause_max.0));
        self.event_queue.after(pause, SimEvent::Pipeline(client));
    }

    /// A client connects, closes its connection, or sends commands.
    pub(crate) fn pipeline(&mut self, client: usize) {
        self.pipeline_after_pause(client);
        let PipeliningClient { generator, connection, random, room, wants_room, .. } =
            &mut self.pipelining.clients[client];
        let Some(connection) = connection else { return self.connect(client) };
        if random.u32(0..STEPS_PER_CLOSE) == 0 {
            return self.close(client);
        }
        // The client whose reply finds no memory waits for it, and for a limited time.
        if *wants_room && random.u8(0..3) == 0 {
            connection.pipeline.refuse_next();
        }
        *room = *choose(random, &[usize::MAX, usize::MAX, usize::MAX, 0, 8 << 10, 12 << 10, 64 << 10]);
        if connection.unread() < UNREAD_MAX {
            connection.send(generator.burst(random));
        }
        self.pipeline_turn(client);
    }

    fn connect(&mut self, client: usize) {
        let up: Vec<NodeId> = self.hosts.iter().filter(|host| host.is_up()).map(|host| host.node()).collect();
        if up.is_empty() {
            return;
        }
        let faults = self.plan.deliberate;
        let random = &mut self.pipelining.clients[client].random;
        let (node, owed_max) = (*choose(random, &up), *choose(random, &[4, 64, 1_000]));
        let host = self.host(node);
        let slots = host.slot_map().expect("invariant: a node that is up has a map");
        let connection = Connection::new(host.incarnation(), Pipeline::new(slots.version, faults), owed_max);
        let client = &mut self.pipelining.clients[client];
        client.connections += 1;
        client.connection = Some(connection);
    }

    /// A connection ends; its replies in progress reach nobody.
    fn close(&mut self, client: usize) {
        if let Some(connection) = self.pipelining.clients[client].connection.take() {
            self.pipelining.records.push(connection.end(&mut self.history));
        }
    }

    /// The connections to a process that died end.
    pub(crate) fn break_connections(&mut self, incarnation: Incarnation) {
        for client in 0..self.pipelining.clients.len() {
            let connection = &self.pipelining.clients[client].connection;
            if connection.as_ref().is_some_and(|connection| connection.at == incarnation) {
                self.close(client);
            }
        }
    }

    /// Every connection ends, so that all of them can be judged.
    pub(crate) fn close_connections(&mut self) {
        (0..self.pipelining.clients.len()).for_each(|client| self.close(client));
    }

    /// Handles a reply that may be for a connection.
    pub(crate) fn pipeline_hears(&mut self, token: Token, reply: Reply) {
        let Some((client, number, queue)) = self.pipelining.asked.remove(&token) else { return };
        let PipeliningClient { connection, connections, .. } = &mut self.pipelining.clients[client];
        let Some(connection) = connection.as_mut().filter(|_| *connections == number) else { return };
        connection.pipeline.complete(queue, reply);
        self.pipeline_turn(client);
    }

    fn pipeline_turn(&mut self, client: usize) {
        let is_loaded = self.is_loaded;
        let PipeliningClient { connection, connections, room, wants_room, .. } =
            &mut self.pipelining.clients[client];
        let Some(connection) = connection else { return };
        let (node, number) = (connection.at.node, *connections);
        connection.receive(&mut self.history);
        if is_loaded {
            let slots = self.hosts[(node.0 - 1) as usize].slot_map();
            let slots = slots.expect("invariant: the connection ends with its process");
            connection.take_commands(&slots, &mut self.history);
        }
        let spanning = connection.pipeline.take_cross_slot_transactions();
        let mut requests = Vec::new();
        *wants_room = false;
        connection.pipeline.submit(
            true,
            Consistency::Linearizable,
            |bytes, is_next| {
                let has_room = !is_loaded || bytes <= *room;
                *wants_room |= is_next && !has_room;
                has_room
            },
            |request, queue| requests.push((request, queue)),
        );
        self.tell_spanning(node, spanning);
        for (request, queue) in requests {
            let token = self.ask(node, request, false);
            self.history.carries(token);
            self.pipelining.asked.insert(token, (client, number, queue));
        }
    }
}
