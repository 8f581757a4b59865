//! Clients that watch configuration, and their connections.
//!
//! Owns what each client has received and what waits for it. What a connection looks up and sends
//! is decided by the core's [`Watcher`], as in the server. `world::watching` decides when clients
//! connect, read and leave; the checkers judge what they received.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use tidelock_core::clients::watcher::{Notice, WatchError, WatchStep, Watcher};
use tidelock_core::command::config::{Changes, ConfigError, ConfigReply, Name, Query};
use tidelock_core::command::{ConfigRead, ReadReply, Reply};
use tidelock_core::deliberate::Faults;
use tidelock_core::event::ConfigUpdate;
use tidelock_core::types::{NodeId, Token};

use crate::config::CONTAINERS;
use crate::event_queue::Micros;
use crate::slots::slot_of;

/// One event that a client received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedContent {
    /// The revision that changed the container; 0 if the namespace does not exist.
    pub revision: u64,
    /// The document since then; `None` if the container does not exist.
    pub document: Option<String>,
    /// Changes before this one are not promised: the answer reported a gap, or the watch began with
    /// the present state.
    pub after_gap: bool,
    /// It is the first event of a watch that does not continue an earlier one, because the client
    /// had no revision to name.
    pub begins: bool,
}

/// A client that watches one container for the whole run.
#[derive(Debug)]
pub struct WatchingClient {
    /// Namespace of the container.
    pub namespace: Name,
    /// Key of the watched container.
    pub container: Arc<str>,
    /// The events that it received, in order.
    pub received: Vec<WatchedContent>,
    /// Its connection, unless it is away.
    pub connection: Option<WatchConnection>,
    /// The node of the latest connection.
    pub node: Option<NodeId>,
    /// A step that is scheduled for another time is obsolete.
    pub next_step: Micros,
    /// Draws its steps.
    pub random: fastrand::Rng,
}

/// A connection of a client to a node: a stream of events or a long poll.
#[derive(Debug)]
pub struct WatchConnection {
    /// The node that serves it.
    pub node: NodeId,
    /// The open query of its watcher, if another turn of the node answers it.
    pub asked: Option<Token>,
    /// When a long poll ends without a change; `None` for a stream of events.
    pub ends: Option<Micros>,
    /// A thread other than the node's serves it, so that no query is answered at once.
    pub is_on_other_worker: bool,
    watcher: Watcher,
    /// Events that were sent, and that the client has not read.
    unread: VecDeque<WatchedContent>,
    /// Whether the next event begins a watch.
    begins: bool,
    /// The watch begins with the present state.
    is_from_present: bool,
}

impl WatchingClient {
    /// One for each container that clients use, away.
    pub fn all(names: &[Name], random: &mut fastrand::Rng) -> Vec<WatchingClient> {
        let containers =
            names.iter().flat_map(|name| CONTAINERS.map(|container| (name.clone(), container.into())));
        containers
            .map(|(namespace, container)| WatchingClient::new(namespace, container, random.fork()))
            .collect()
    }

    /// A client that has not connected yet.
    pub fn new(namespace: Name, container: Arc<str>, random: fastrand::Rng) -> WatchingClient {
        WatchingClient {
            namespace,
            container,
            received: Vec::new(),
            connection: None,
            node: None,
            next_step: Micros(0),
            random,
        }
    }

    /// The last revision that it received.
    pub fn last(&self) -> Option<u64> {
        self.received.last().map(|event| event.revision)
    }

    /// Connects to a node with the last revision that it received. A client that has received
    /// nothing begins with the present state or with the first change.
    pub fn connect(&mut self, node: NodeId, faults: Faults) {
        let last = self.last().or_else(|| self.random.bool().then_some(0));
        self.node = Some(node);
        self.connection = Some(WatchConnection {
            node,
            asked: None,
            ends: None,
            is_on_other_worker: self.random.bool(),
            watcher: Watcher::new(self.container.clone(), last, faults),
            unread: VecDeque::new(),
            begins: last.is_none_or(|last| last == 0),
            is_from_present: last.is_none(),
        });
    }

    /// Whether this change concerns its container.
    pub fn cares(&self, news: &ConfigUpdate) -> bool {
        news.namespace == self.namespace && news.containers.contains(&self.container)
    }

    /// Whether its namespace is in one of these slots.
    pub fn is_in(&self, slots: &[Range<u16>]) -> bool {
        let slot = slot_of(self.namespace.as_str().as_bytes());
        slots.iter().any(|range| range.contains(&slot))
    }

    /// A read of its namespace.
    pub fn read(&self, query: Query) -> ConfigRead {
        ConfigRead { namespace: self.namespace.clone(), query }
    }

    /// A read of the container's present state.
    pub fn present(&self) -> ConfigRead {
        self.read(Query::Container { key: self.container.clone(), at: None, known: None })
    }

    /// A read of the changes since its last event.
    pub fn missed(&self) -> ConfigRead {
        let after = self.last().unwrap_or_default();
        self.read(Query::Changes { key: self.container.clone(), after })
    }

    /// The document as it knows it.
    pub fn document(&self) -> Option<&String> {
        self.received.last().and_then(|event| event.document.as_ref())
    }

    /// Whether the document that it knows is the present one.
    pub fn knows(&self, present: &Reply) -> bool {
        match present {
            Reply::Read(ReadReply::Config(Ok(ConfigReply::Container(found)))) => {
                self.document() == Some(&found.document())
            }
            Reply::Read(ReadReply::Config(Err(ConfigError::NoContainer(_) | ConfigError::NoNamespace))) => {
                self.document().is_none()
            }
            _ => false,
        }
    }

    /// Whether it has received these changes. The deletion of a container that it knows to be
    /// missing is nothing new: that is the answer if history does not reach back to its last
    /// revision, or if the namespace was created again.
    pub fn has_received(&self, missed: &Changes) -> bool {
        let is_deletion_only = missed.events.iter().all(|event| event.found.is_none());
        missed.events.is_empty() || is_deletion_only && self.document().is_none()
    }

    /// Reads up to `count` events from its connection.
    pub fn take(&mut self, count: usize) {
        if let Some(connection) = &mut self.connection {
            let count = count.min(connection.unread.len());
            self.received.extend(connection.unread.drain(..count));
        }
    }
}

impl WatchConnection {
    /// The number of events that the client has not read.
    pub fn unread(&self) -> usize {
        self.unread.len()
    }

    /// The watcher's next step, once the client has read everything.
    pub fn next_step(&mut self) -> WatchStep {
        if self.unread.is_empty() { self.watcher.next_step() } else { WatchStep::Wait }
    }

    /// The container may have changed.
    pub fn notified(&mut self) {
        self.watcher.notified();
    }

    /// The heartbeat of a stream.
    pub fn heartbeat(&mut self) {
        self.watcher.heartbeat();
    }

    /// A query was answered.
    pub fn answered(&mut self, reply: &Reply) {
        self.asked = None;
        self.watcher.answered(match reply {
            Reply::Read(ReadReply::Config(answer)) => answer.clone().map_err(WatchError::Config),
            Reply::Refused(refusal) => Err(WatchError::Refused(refusal.clone())),
            _ => Err(WatchError::Mismatched),
        });
    }

    /// Sends a notice to the client.
    pub fn send(&mut self, notice: Notice) {
        for change in notice.changes {
            let begins = std::mem::take(&mut self.begins);
            self.unread.push_back(WatchedContent {
                revision: change.revision,
                document: change.found.map(|found| found.document()),
                after_gap: notice.gap_after.is_some() || begins && self.is_from_present,
                begins,
            });
        }
    }
}
