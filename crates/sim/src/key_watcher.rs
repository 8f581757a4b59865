//! Clients that watch keys, and their connections.
//!
//! Owns what each client has received, and what waits for it. What a connection reads and sends is
//! decided by the core's [`KeyWatcher`] and [`KeyPoll`], as in the server. `world::key_watching`
//! decides when clients connect, read and leave; `checkers::key_watches` judges what they received.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tidelock_core::clients::key_poll::{KeyPoll, KeyPollAnswer, KeyPollStep};
use tidelock_core::clients::key_watcher::{KeyEvent, KeyNotice, KeyWatchStep, KeyWatcher, WatchStart};
use tidelock_core::clients::watch_hub::WatcherId;
use tidelock_core::command::{
    Item, KeyChange, KeyContent, KeyScope, Page, Read, ReadReply, Reply, StoredValue,
};
use tidelock_core::limits::LIST_PAGE_ITEMS_MAX;
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
    /// A poll has told it to read the keys, and to go on from this position.
    must_list: Option<SlotRevisions>,
    /// Its read of the keys.
    pub listing: Option<Token>,
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
    /// When the time of a poll is over; `None` for a stream of events.
    pub ends: Option<Micros>,
    watcher: Serving,
    /// Messages that were sent, and that the client has not read.
    unread: VecDeque<KeyNotice>,
}

#[derive(Debug)]
enum Serving {
    Events(KeyWatcher),
    Poll(KeyPoll),
    /// A poll that was answered.
    Answered,
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
            must_list: None,
            listing: None,
        }
    }

    /// Connects to a node, whose hub has registered it, with the last position that it received:
    /// for events, or for a poll whose time is over at `ends`.
    pub fn connect(&mut self, (node, id): (NodeId, WatcherId), ends: Option<Micros>) {
        let start = match &self.position {
            Some(position) => WatchStart::After(position.clone()),
            None if self.wants_state && ends.is_none() => WatchStart::State,
            None => WatchStart::Now,
        };
        self.records.push(KeyWatchRecord::Connected(start.clone()));
        self.node = Some(node);
        self.connection = Some(KeyWatchConnection {
            node,
            id,
            asked: None,
            is_on_other_worker: self.random.bool(),
            ends,
            watcher: match (ends, start) {
                (None, start) => Serving::Events(KeyWatcher::new(self.scope.clone(), false, start)),
                (Some(_), WatchStart::After(position)) => {
                    Serving::Poll(KeyPoll::new(self.scope.clone(), false, Some(position)))
                }
                (Some(_), _) => Serving::Poll(KeyPoll::new(self.scope.clone(), false, None)),
            },
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
            if connection.ends.is_some() && events.contains(&KeyEvent::Reset) {
                self.must_list = position;
                continue;
            }
            if position.is_some() || events.contains(&KeyEvent::Reset) {
                self.position.clone_from(&position);
            }
            self.records.push(KeyWatchRecord::Received { events, position });
        }
        received
    }

    /// The read of all keys in its scope, if a poll has told it to read them.
    pub fn read_of_keys(&self) -> Option<Read> {
        self.must_list.as_ref()?;
        Some(match &self.scope {
            KeyScope::Key(key) => Read::Get { key: key.clone() },
            KeyScope::Prefix(prefix) => Read::List {
                prefix: prefix.clone(),
                after: None,
                limit: LIST_PAGE_ITEMS_MAX,
                keys_only: false,
            },
        })
    }

    /// The answer to its read of the keys. If it was refused, the client reads again.
    pub fn keys_read(&mut self, reply: &Reply) {
        self.listing = None;
        let items = match reply {
            Reply::Read(ReadReply::Page(Page { items, next: None })) => items.clone(),
            Reply::Read(ReadReply::Value(value)) => {
                let item = value.clone().map(|StoredValue { version, value, expires, lease: _ }| Item {
                    key: self.scope.bytes().clone(),
                    version,
                    value: Some(value),
                    expires,
                });
                item.into_iter().collect()
            }
            _ => return,
        };
        let change = |Item { key, version, value, expires }| {
            let content = Some(KeyContent { value, expires });
            KeyEvent::Changed(KeyChange { key, revision: version, content })
        };
        let events = [KeyEvent::Reset].into_iter().chain(items.into_iter().map(change)).collect();
        // The keys may be newer than the position, so the next answer is the first that shows what
        // the client knows.
        self.records.push(KeyWatchRecord::Received { events, position: None });
        self.position = self.must_list.take();
    }

    /// What it knows.
    pub fn known(&self) -> KnownKeys {
        let mut known = KnownKeys::default();
        for record in &self.records {
            match record {
                KeyWatchRecord::Connected(WatchStart::After(_)) => {}
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

    /// The next step, once the client has read everything.
    pub fn next_step(&mut self) -> KeyWatchStep {
        if !self.unread.is_empty() {
            return KeyWatchStep::Wait;
        }
        match &mut self.watcher {
            Serving::Events(watcher) => watcher.next_step(),
            Serving::Poll(poll) => match poll.next_step() {
                KeyPollStep::Ask { read, consistency } => KeyWatchStep::Ask { read, consistency },
                KeyPollStep::Wait => KeyWatchStep::Wait,
                KeyPollStep::End(refusal) => KeyWatchStep::End(refusal),
                KeyPollStep::Answer(answer) => self.answer(answer),
            },
            Serving::Answered => KeyWatchStep::Wait,
        }
    }

    /// Ends a poll with its answer. After one that is no reset, the client knows the state.
    fn answer(&mut self, KeyPollAnswer { is_reset, changes, position }: KeyPollAnswer) -> KeyWatchStep {
        self.watcher = Serving::Answered;
        let last = if is_reset { KeyEvent::Reset } else { KeyEvent::Live };
        let events = changes.into_iter().map(KeyEvent::Changed).chain([last]).collect();
        KeyWatchStep::Tell(KeyNotice { events, position: Some(position) })
    }

    /// Whether its poll was answered.
    pub fn is_answered(&self) -> bool {
        matches!(self.watcher, Serving::Answered)
    }

    /// Keys may have changed: see [`KeyWatcher::notified`].
    pub fn notified(&mut self, matched: &SlotRevisions) {
        match &mut self.watcher {
            Serving::Events(watcher) => watcher.notified(matched),
            Serving::Poll(poll) => poll.notified(matched),
            Serving::Answered => {}
        }
    }

    /// The heartbeat: see [`KeyWatcher::heartbeat`].
    pub fn heartbeat(&mut self, matched: &SlotRevisions, is_due: bool) {
        if let Serving::Events(watcher) = &mut self.watcher {
            watcher.heartbeat(matched, is_due);
        }
    }

    /// The time of a poll is over: see [`KeyPoll::time_over`].
    pub fn time_over(&mut self, matched: &SlotRevisions, is_due: bool) {
        if let Serving::Poll(poll) = std::mem::replace(&mut self.watcher, Serving::Answered)
            && let Ok(answer) = poll.time_over(matched, is_due)
            && let KeyWatchStep::Tell(notice) = self.answer(answer)
        {
            self.send(notice);
        }
    }

    /// A read was answered.
    pub fn answered(&mut self, reply: Reply) {
        self.asked = None;
        match &mut self.watcher {
            Serving::Events(watcher) => watcher.answered(reply),
            Serving::Poll(poll) => poll.answered(reply),
            Serving::Answered => {}
        }
    }

    /// Sends a message to the client.
    pub fn send(&mut self, notice: KeyNotice) {
        self.unread.push_back(notice);
    }
}
