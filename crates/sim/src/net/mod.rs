//! The simulated network between hosts, within the contract of the core.
//!
//! Owns connections (one for each pair of hosts), frames in flight, delays, losses and partitions.
//! The contract (`tidelock_core::event`): frames to one peer arrive in order, whole and once, or
//! not at all, and `LinkDown` comes before anything of the next connection. So nothing is
//! duplicated or reordered inside a connection, as with TCP. Everything else may happen: each side
//! learns of a connection's beginning and end at a different time. A break loses a suffix of the
//! frames in flight; frames that had reached the other host's socket may still be read there after
//! this side knows of the break. A partition stalls frames silently in one or both directions.
//! Frames that the sender may drop are dropped.
//!
//! All events from one peer to one host are in one queue (`Channel`), so the order of the contract
//! holds by construction.

use std::collections::VecDeque;

use bytes::Bytes;
use tidelock_core::event::{Event, OutgoingFrame};
use tidelock_core::types::NodeId;

use crate::event_queue::{Direction, EventQueue, Micros, SimEvent};

/// How the network behaves when no fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkConditions {
    /// Shortest delay of a frame.
    pub delay_min: Micros,
    /// Longest delay of a frame, apart from spikes.
    pub delay_max: Micros,
    /// Of a thousand frames, how many take twenty times as long (and delay the following ones).
    pub spikes_per_mille: u32,
    /// Of a thousand droppable frames, how many the sender drops.
    pub drops_per_mille: u32,
    /// Of a thousand broken connections, how many still deliver some frames after one side knows of
    /// the break.
    pub stragglers_per_mille: u32,
}

/// Counts of the network's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Frames that arrived at their receiver.
    pub delivered: u64,
    /// Frames dropped by their sender or lost with a connection.
    pub lost: u64,
    /// Connections that were established.
    pub connections: u64,
}

/// The simulated network: links between hosts, and frames in transit.
#[derive(Debug)]
pub struct Network {
    nodes: u64,
    conditions: NetworkConditions,
    /// By `from`, then `to`.
    channels: Vec<Channel>,
    /// Under the direction from the lower node to the higher one.
    links: Vec<Link>,
    /// Which hosts can answer a connection attempt.
    reachable: Vec<bool>,
    /// By host, the peers to which it wants a connection.
    wanted: Vec<Vec<NodeId>>,
    counters: NetCounters,
    /// Bytes that a host can send in a second, if that is limited.
    bytes_per_second: Option<u64>,
    /// By host: until when its link is occupied by what it has sent, in nanoseconds.
    occupied_until: Vec<u64>,
    random: fastrand::Rng,
}

/// The state of one pair of hosts.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// The number of the latest connection.
    connection: u64,
    standing: bool,
}

/// The queue of events from one peer to one host.
#[derive(Debug, Default)]
struct Channel {
    queue: VecDeque<Packet>,
    /// The connection that is open as far as the receiver knows.
    open_connection: Option<u64>,
    /// How many partitions stall this direction.
    blocked: u32,
    /// Whether a delivery is on the event queue.
    armed: bool,
}

#[derive(Debug)]
struct Packet {
    at: Micros,
    payload: Payload,
}

#[derive(Debug, PartialEq, Eq)]
enum Payload {
    Up(u64),
    Frame(Bytes),
    Down,
}

/// Most frames in the queue from one peer to one host; the server's queue is bounded too.
const CHANNEL_FRAMES_MAX: usize = 4_096;

/// A lost connection is tried again after up to this long.
const RECONNECT_AFTER_MAX: Micros = Micros(400_000);

/// A side learns of a break after up to this long, most often much sooner.
const DETECT_AFTER_MAX: Micros = Micros(1_500_000);

/// A connection that is blocked is given up after up to this long.
const GIVE_UP_AFTER_MAX: Micros = Micros(6_000_000);

impl Network {
    /// A network of hosts 1 to `nodes`, none of which is reachable yet.
    pub fn new(nodes: u64, conditions: NetworkConditions, seed: u64) -> Network {
        let channels = (0..nodes * nodes).map(|_| Channel::default()).collect();
        Network {
            nodes,
            conditions,
            channels,
            links: vec![Link::default(); (nodes * nodes) as usize],
            reachable: vec![false; nodes as usize],
            wanted: vec![Vec::new(); nodes as usize],
            counters: NetCounters::default(),
            bytes_per_second: None,
            occupied_until: vec![0; nodes as usize],
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Limits how many bytes each host can send in a second.
    pub fn with_links(self, bytes_per_second: Option<u64>) -> Network {
        Network { bytes_per_second, ..self }
    }

    /// Schedules a connection attempt of every pair of hosts.
    pub fn start(&mut self, event_queue: &mut EventQueue) {
        for low in 1..=self.nodes {
            for high in low + 1..=self.nodes {
                let link = Direction { from: NodeId(low), to: NodeId(high) };
                event_queue.after(self.up_to(RECONNECT_AFTER_MAX), SimEvent::Connect(link));
            }
        }
    }

    /// Counts of the network's work so far.
    pub fn counters(&self) -> NetCounters {
        self.counters
    }

    /// Changes how the network behaves from now on.
    pub fn set_conditions(&mut self, conditions: NetworkConditions) {
        self.conditions = conditions;
    }

    /// Sets whether a host answers connection attempts: a running process does, one that is down or
    /// paused does not.
    pub fn set_reachable(&mut self, node: NodeId, reachable: bool) {
        self.reachable[(node.0 - 1) as usize] = reachable;
    }

    /// Sets the peers to which a host wants connections.
    pub fn set_peers(&mut self, node: NodeId, peers: Vec<NodeId>, event_queue: &mut EventQueue) {
        let before = std::mem::replace(&mut self.wanted[(node.0 - 1) as usize], peers.clone());
        for peer in before.into_iter().filter(|peer| !peers.contains(peer)) {
            self.break_link(Direction { from: node, to: peer }, event_queue);
        }
    }

    /// Whether a host wants a connection with another one.
    pub fn wants(&self, node: NodeId, peer: NodeId) -> bool {
        self.wanted[(node.0 - 1) as usize].contains(&peer)
    }

    fn is_mutual(&self, link: Direction) -> bool {
        self.wants(link.from, link.to) && self.wants(link.to, link.from)
    }

    /// A process died: its connections break, and frames in flight to it are lost.
    pub fn node_died(&mut self, node: NodeId, event_queue: &mut EventQueue) {
        self.set_reachable(node, false);
        for peer in (1..=self.nodes).map(NodeId).filter(|&peer| peer != node) {
            self.break_link(Direction { from: node, to: peer }, event_queue);
            let channel = self.channel(Direction { from: peer, to: node });
            channel.queue.clear();
            channel.open_connection = None;
        }
    }

    /// Sends a frame from `from`, or loses it. Returns whether the receiver may get it.
    pub fn send(&mut self, from: NodeId, frame: OutgoingFrame, event_queue: &mut EventQueue) -> bool {
        let direction = Direction { from, to: frame.to };
        let Link { connection, standing } = *self.link(direction);
        let believed = self.channel(direction.reversed()).open_connection;
        if !standing || believed != Some(connection) {
            self.counters.lost += 1;
            return false;
        }
        let full = self.channel(direction).queue.len() >= CHANNEL_FRAMES_MAX;
        let dropped = frame.droppable && (full || self.chance(self.conditions.drops_per_mille));
        if dropped || full {
            self.counters.lost += 1;
            if !dropped {
                self.break_link(direction, event_queue);
            }
            return false;
        }
        let delay = self.delay() + self.transfer(from, frame.payload.len(), event_queue.now());
        self.enqueue(direction, delay, Payload::Frame(frame.payload), event_queue);
        true
    }

    /// Delivers the due head of a queue, as an event for `direction.to`.
    pub fn deliver(&mut self, direction: Direction, event_queue: &mut EventQueue) -> Option<Event> {
        let now = event_queue.now();
        let channel = self.channel(direction);
        channel.armed = false;
        let due = channel.queue.front().is_some_and(|head| head.at <= now) && !channel.stalls();
        let packet = if due { channel.queue.pop_front() } else { None };
        let event = packet.map(|packet| match packet.payload {
            Payload::Up(connection) => {
                channel.open_connection = Some(connection);
                Event::LinkUp(direction.from)
            }
            Payload::Down => {
                channel.open_connection = None;
                Event::LinkDown(direction.from)
            }
            Payload::Frame(payload) => Event::Frame { from: direction.from, payload },
        });
        if matches!(event, Some(Event::Frame { .. })) {
            self.counters.delivered += 1;
        }
        self.arm(direction, event_queue);
        event
    }

    /// Whether one of two hosts could receive the other's refusal now.
    pub fn can_meet(&mut self, link: Direction) -> bool {
        let reachable = [link.from, link.to].iter().all(|node| self.reachable[(node.0 - 1) as usize]);
        reachable && self.channel(link).blocked + self.channel(link.reversed()).blocked == 0
    }

    /// Two hosts that cannot connect now will try again.
    pub fn retry(&mut self, link: Direction, event_queue: &mut EventQueue) {
        event_queue.after(self.up_to(RECONNECT_AFTER_MAX), SimEvent::Connect(link));
    }

    /// Two hosts try to connect; if they cannot, they will try again.
    pub fn connect(&mut self, link: Direction, event_queue: &mut EventQueue) {
        if !self.can_meet(link) || !self.is_mutual(link) {
            self.retry(link, event_queue);
            return;
        }
        let state = self.link(link);
        assert!(!state.standing, "a pair of hosts has one connection");
        state.standing = true;
        state.connection += 1;
        let connection = state.connection;
        self.counters.connections += 1;
        for direction in [link, link.reversed()] {
            let delay = self.delay();
            self.enqueue(direction, delay, Payload::Up(connection), event_queue);
        }
    }

    /// Stalls one direction until as many calls of [`Network::unblock`].
    pub fn block(&mut self, direction: Direction, event_queue: &mut EventQueue) {
        self.channel(direction).blocked += 1;
        let Link { connection, standing } = *self.link(direction);
        if standing {
            let give_up = SimEvent::GiveUp { link: direction, connection };
            event_queue.after(self.up_to(GIVE_UP_AFTER_MAX), give_up);
        }
    }

    /// Ends one stall of a direction.
    pub fn unblock(&mut self, direction: Direction, event_queue: &mut EventQueue) {
        let channel = self.channel(direction);
        channel.blocked = channel.blocked.checked_sub(1).expect("invariant: what is unblocked was blocked");
        self.arm(direction, event_queue);
    }

    /// Breaks a connection if it is still the given one and still makes no progress.
    pub fn give_up(&mut self, link: Direction, connection: u64, event_queue: &mut EventQueue) {
        let blocked = self.channel(link).blocked + self.channel(link.reversed()).blocked > 0;
        if blocked && self.link(link).connection == connection {
            self.break_link(link, event_queue);
        }
    }

    /// Breaks the connection of a pair, if there is one.
    pub fn break_link(&mut self, link: Direction, event_queue: &mut EventQueue) {
        if !std::mem::take(&mut self.link(link).standing) {
            return;
        }
        let connection = self.link(link).connection;
        for direction in [link, link.reversed()] {
            self.break_channel(direction, connection, event_queue);
        }
        let (low, high) = (link.from.min(link.to), link.from.max(link.to));
        let retry = SimEvent::Connect(Direction { from: low, to: high });
        event_queue.after(self.up_to(RECONNECT_AFTER_MAX), retry);
    }

    fn break_channel(&mut self, direction: Direction, connection: u64, event_queue: &mut EventQueue) {
        let stragglers = self.chance(self.conditions.stragglers_per_mille);
        let channel = self.channel(direction);
        if let Some(unheard) =
            channel.queue.iter().position(|packet| packet.payload == Payload::Up(connection))
        {
            // The receiver never learned of the connection and never will.
            let lost = channel.queue.len() - unheard - 1;
            channel.queue.truncate(unheard);
            self.counters.lost += lost as u64;
            return;
        }
        let waiting = channel.queue.len();
        let arrive = if stragglers && channel.blocked == 0 { self.random.usize(0..=waiting) } else { 0 };
        self.channel(direction).queue.truncate(arrive);
        self.counters.lost += (waiting - arrive) as u64;
        let late = if self.random.u8(0..4) == 0 { DETECT_AFTER_MAX } else { self.conditions.delay_max };
        let delay = self.up_to(late);
        self.enqueue(direction, delay, Payload::Down, event_queue);
    }

    fn enqueue(
        &mut self,
        direction: Direction,
        delay: Micros,
        payload: Payload,
        event_queue: &mut EventQueue,
    ) {
        let at = event_queue.now() + delay;
        let channel = self.channel(direction);
        let at = channel.queue.back().map_or(at, |last| at.max(last.at));
        channel.queue.push_back(Packet { at, payload });
        self.arm(direction, event_queue);
    }

    /// Schedules the delivery of the head of a queue, unless one is there or the head cannot move.
    fn arm(&mut self, direction: Direction, event_queue: &mut EventQueue) {
        let channel = self.channel(direction);
        if channel.armed || channel.stalls() {
            return;
        }
        if let Some(head) = channel.queue.front() {
            channel.armed = true;
            event_queue.at(head.at.max(event_queue.now()), SimEvent::Deliver(direction));
        }
    }

    /// Time until a frame has left its sender: after the frames that it sent before.
    fn transfer(&mut self, from: NodeId, bytes: usize, now: Micros) -> Micros {
        let Some(bytes_per_second) = self.bytes_per_second else { return Micros(0) };
        let until = &mut self.occupied_until[(from.0 - 1) as usize];
        *until = (*until).max(now.0 * 1_000) + bytes as u64 * 1_000_000_000 / bytes_per_second;
        Micros(*until / 1_000 - now.0)
    }

    fn delay(&mut self) -> Micros {
        let NetworkConditions { delay_min, delay_max, spikes_per_mille, .. } = self.conditions;
        let delay = Micros(self.random.u64(delay_min.0..=delay_max.0));
        if self.chance(spikes_per_mille) { delay * 20 } else { delay }
    }

    fn up_to(&mut self, most: Micros) -> Micros {
        Micros(self.random.u64(0..=most.0))
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        self.random.u32(0..1000) < per_mille
    }

    fn channel(&mut self, direction: Direction) -> &mut Channel {
        &mut self.channels[((direction.from.0 - 1) * self.nodes + direction.to.0 - 1) as usize]
    }

    fn link(&mut self, direction: Direction) -> &mut Link {
        let (low, high) = (direction.from.min(direction.to), direction.from.max(direction.to));
        &mut self.links[((low.0 - 1) * self.nodes + high.0 - 1) as usize]
    }
}

impl Channel {
    /// Whether the head is a frame that a partition holds back. Frames queued before the end of a
    /// connection have already reached the receiver's socket, and events about connections are
    /// local.
    fn stalls(&self) -> bool {
        self.blocked > 0
            && matches!(self.queue.front(), Some(Packet { payload: Payload::Frame(_), .. }))
            && !self.queue.iter().any(|packet| packet.payload == Payload::Down)
    }
}

#[cfg(test)]
mod tests;
