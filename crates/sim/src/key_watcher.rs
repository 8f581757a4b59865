//! Clients that watch keys, and their connections.
//!
//! Owns what each client has received, and what waits for it. What a connection reads and sends is
//! decided by the core's [`KeyWatcher`], as in the server. `world::key_watching` decides when
//! clients connect, read and leave; `checkers::key_watches` judges what they received.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tidelock_core::clients::key_watcher::{KeyEvent, KeyNotice, KeyWatchStep, KeyWatcher, WatchStart};
use tidelock_core::clients::watch_hub::WatcherId;
use tidelock_core::command::{KeyContent, KeyScope, Reply};
use tidelock_core::slots::slot_revisions::SlotRevisions;
use tidelock_core::types::{NodeId, Token, Version};

use crate::event_queue::Micros;

/// What happened to a client, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyWatchRecord {
    /// It connected, and asked to begin in this way.
    Connected(WatchStart),
    /// It received a message.
    Received {
        /// The events.
        events: Vec<KeyEvent>,
        /// With which the client may come back.
        position: Option<SlotRevisions>,
    },
}

/// A client that watches keys for the whole run.
#[derive(Debug)]
pub struct KeyWatchingClient {
    /// What it watches.
    pub scope: KeyScope,
    /// What happened to it.
    pub records: Vec<KeyWatchRecord>,
    /// Whether it begins with the present state when it has no position.
    pub wants_state: bool,
    /// Its connection, unless it is away.
    pub connection: Option<KeyWatchConnection>,
    /// The node of the latest connection.
    pub node: Option<NodeId>,
    /// A step that is scheduled for another time is obsolete.
    pub next_step: Micros,
    /// Draws its steps.
    pub random: fastrand::Rng,
    /// The last position that it received, unless a reset came after it.
    position: Option<SlotRevisions>,
}

/// A connection of a client to a node.
#[derive(Debug)]
pub struct KeyWatchConnection {
    /// The node that serves it.
    pub node: NodeId,
    /// Its number in the hub of the node.
    pub id: WatcherId,
    /// The open read of its watcher, if another turn of the node answers it.
    pub asked: Option<Token>,
    /// A thread other than the node's serves it, so that no read is answered at once.
    pub is_on_other_worker: bool,
    watcher: KeyWatcher,
    /// Messages that were sent, and that the client has not read.
    unread: VecDeque<KeyNotice>,
}

/// What a client knows of the keys in its scope.
#[derive(Clone, Debug, Default)]
pub struct KnownKeys {
    /// The existing keys, with version and content.
    pub present: BTreeMap<Bytes, (Version, KeyContent)>,
    /// The revisions of the keys of which it was told that they are gone.
    pub absent: BTreeMap<Bytes, Version>,
    /// Whether keys of which it was told nothing do not exist.
    pub is_whole: bool,
    /// Whether it knows the state as of its last position.
    pub is_live: bool,
}

impl KnownKeys {
    /// Learns from an event.
    pub fn learn(&mut self, event: &KeyEvent) {
        match event {
            KeyEvent::Reset => *self = KnownKeys { is_whole: true, ..KnownKeys::default() },
            KeyEvent::Live => self.is_live = true,
            KeyEvent::Progress => {}
            KeyEvent::Changed(change) => match &change.content {
                Some(content) => {
                    self.absent.remove(&change.key);
                    self.present.insert(change.key.clone(), (change.revision, content.clone()));
                }
                None => {
                    self.present.remove(&change.key);
                    self.absent.insert(change.key.clone(), change.revision);
                }
            },
        }
    }
}

impl KeyWatchingClient {
    /// A client that has not connected yet.
    pub fn new(scope: KeyScope, mut random: fastrand::Rng) -> KeyWatchingClient {
        KeyWatchingClient {
            scope,
            records: Vec::new(),
            wants_state: random.u8(0..4) > 0,
            connection: None,
            node: None,
            next_step: Micros(0),
            random,
            position: None,
        }
    }

    /// Connects to a node, whose hub has registered it, with the last position that it received.
    pub fn connect(&mut self, node: NodeId, id: WatcherId) {
        let start = match &self.position {
            Some(position) => WatchStart::After(position.clone()),
            None if self.wants_state => WatchStart::State,
            None => WatchStart::Now,
        };
        self.records.push(KeyWatchRecord::Connected(start.clone()));
        self.node = Some(node);
        self.connection = Some(KeyWatchConnection {
            node,
            id,
            asked: None,
            is_on_other_worker: self.random.bool(),
            watcher: KeyWatcher::new(self.scope.clone(), false, start),
            unread: VecDeque::new(),
        });
    }

    /// Reads up to `count` messages from its connection. Returns the number of their events.
    pub fn take(&mut self, count: usize) -> usize {
        let Some(connection) = &mut self.connection else { return 0 };
        let count = count.min(connection.unread.len());
        let mut received = 0;
        for KeyNotice { events, position } in connection.unread.drain(..count) {
            received += events.len();
            if position.is_some() || events.contains(&KeyEvent::Reset) {
                self.position.clone_from(&position);
            }
            self.records.push(KeyWatchRecord::Received { events, position });
        }
        received
    }

    /// What it knows.
    pub fn known(&self) -> KnownKeys {
        let mut known = KnownKeys::default();
        for record in &self.records {
            match record {
                KeyWatchRecord::Connected(WatchStart::After(_)) => known.is_live = false,
                KeyWatchRecord::Connected(_) => known = KnownKeys::default(),
                KeyWatchRecord::Received { events, .. } => events.iter().for_each(|event| known.learn(event)),
            }
        }
        known
    }
}

impl KeyWatchConnection {
    /// The number of messages that the client has not read.
    pub fn unread(&self) -> usize {
        self.unread.len()
    }

    /// The watcher's next step, once the client has read everything.
    pub fn next_step(&mut self) -> KeyWatchStep {
        if self.unread.is_empty() { self.watcher.next_step() } else { KeyWatchStep::Wait }
    }

    /// Keys may have changed.
    pub fn notified(&mut self) {
        self.watcher.notified();
    }

    /// The heartbeat: see [`KeyWatcher::heartbeat`].
    pub fn heartbeat(&mut self, matched: &SlotRevisions, is_due: bool) {
        self.watcher.heartbeat(matched, is_due);
    }

    /// A read was answered.
    pub fn answered(&mut self, reply: Reply) {
        self.asked = None;
        self.watcher.answered(reply);
    }

    /// Sends a message to the client.
    pub fn send(&mut self, notice: KeyNotice) {
        self.unread.push_back(notice);
    }
}
