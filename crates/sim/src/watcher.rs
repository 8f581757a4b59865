//! Clients that watch configuration, and their connections.
//!
//! Owns what each client has received and what waits for it. What a connection looks up and sends
//! is decided by the core's [`Watcher`], as in the server. `world::watching` decides when clients
//! connect, read and leave; the checkers judge what they received.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use tidelock_core::clients::watcher::{Notice, WatchError, WatchScope, WatchStep, Watcher};
use tidelock_core::command::config::{ConfigError, ConfigReply, Name, Query, WatchPosition};
use tidelock_core::command::{ConfigRead, ReadReply, Reply};
use tidelock_core::deliberate::Faults;
use tidelock_core::event::ConfigUpdate;
use tidelock_core::types::{NodeId, Token};

use crate::config::{CANARY_LABEL, CONTAINERS, is_inheriting};
use crate::event_queue::Micros;
use crate::slots::slot_of;

/// One event that a client received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedContent {
    /// The revision that changed the container; 0 if the namespace does not exist.
    pub revision: u64,
    /// The position of the client after the event.
    pub position: WatchPosition,
    /// The container; `None`: the event is about the whole namespace.
    pub container: Option<Arc<str>>,
    /// The client knows the namespace's state as of the revision. It is not a change.
    pub is_current: bool,
    /// The document since then; `None` if the container does not exist.
    pub document: Option<String>,
    /// Changes before this one are not promised: the answer reported a gap, or the watch began with
    /// the present state.
    pub after_gap: bool,
    /// It is the first event of a watch that does not continue an earlier one, because the client
    /// had no revision to name.
    pub begins: bool,
}

impl WatchedContent {
    /// Whether a state of a whole namespace begins with this event, which followed `previous`.
    pub fn begins_state(&self, previous: Option<&WatchedContent>) -> bool {
        let is_part = |event: &WatchedContent| event.position.is_state;
        let continues = |previous: &WatchedContent| {
            is_part(previous) && previous.position.revision == self.position.revision
        };
        (is_part(self) || self.is_current) && !previous.is_some_and(continues)
    }
}

/// A client that watches one container, or a namespace, for the whole run.
#[derive(Debug)]
pub struct WatchingClient {
    /// The namespace.
    pub namespace: Name,
    /// What of the namespace it watches.
    pub scope: WatchScope,
    /// Its label; empty if it has none.
    pub label: &'static str,
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
    /// One for each container that clients use, and one for each namespace, away.
    pub fn all(names: &[Name], random: &mut fastrand::Rng) -> Vec<WatchingClient> {
        let containers = CONTAINERS.map(|container| WatchScope::Container(container.into()));
        let scopes = containers.into_iter().chain([WatchScope::Namespace]);
        let all = scopes.flat_map(|scope| names.iter().map(move |name| (name.clone(), scope.clone())));
        let client = |(position, (namespace, scope)): (usize, (Name, WatchScope))| {
            // Half of the clients of namespaces with canaries have the label that canaries are
            // shown to.
            let is_early = is_inheriting(&namespace) && position.is_multiple_of(2);
            let label = if is_early { CANARY_LABEL } else { "" };
            WatchingClient { label, ..WatchingClient::new(namespace, scope, random.fork()) }
        };
        all.enumerate().map(client).collect()
    }

    /// A client that has not connected yet.
    pub fn new(namespace: Name, scope: WatchScope, random: fastrand::Rng) -> WatchingClient {
        WatchingClient {
            namespace,
            scope,
            label: "",
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
        let last = self.received.last().map(|event| event.position.clone());
        let last = last.or_else(|| self.random.bool().then(WatchPosition::default));
        self.node = Some(node);
        self.connection = Some(WatchConnection {
            node,
            asked: None,
            ends: None,
            is_on_other_worker: self.random.bool(),
            unread: VecDeque::new(),
            begins: last.as_ref().is_none_or(|last| last.revision == 0),
            is_from_present: last.is_none(),
            watcher: Watcher::new(self.scope.clone(), last, faults).with_label(self.label),
        });
    }

    /// Whether this change concerns what it watches.
    pub fn cares(&self, news: &ConfigUpdate) -> bool {
        let is_watched = match &self.scope {
            WatchScope::Container(key) => news.containers.contains(key),
            WatchScope::Namespace => true,
        };
        news.namespace == self.namespace && is_watched
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

    fn labelled(&self, query: Query) -> ConfigRead {
        self.read(match self.label {
            "" => query,
            label => Query::Labelled { label: label.into(), query: query.into() },
        })
    }

    /// A read of the present state.
    pub fn present(&self) -> ConfigRead {
        self.labelled(match &self.scope {
            WatchScope::Container(key) => Query::Container { key: key.clone(), at: None, known: None },
            WatchScope::Namespace => Query::NamespaceChanges { after: None },
        })
    }

    /// A read of the changes since its last event.
    pub fn missed(&self) -> ConfigRead {
        let after = self.received.last().map(|event| event.position.clone()).unwrap_or_default();
        self.labelled(match &self.scope {
            WatchScope::Container(key) => Query::Changes { key: key.clone(), after: after.revision },
            WatchScope::Namespace => Query::NamespaceChanges { after: Some(after) },
        })
    }

    /// The documents as it knows them.
    pub fn documents(&self) -> BTreeMap<Arc<str>, String> {
        let mut documents = BTreeMap::new();
        let mut previous = None;
        for event in &self.received {
            if event.begins_state(previous) {
                documents.clear();
            }
            match (&event.container, &event.document) {
                (Some(key), Some(document)) => drop(documents.insert(key.clone(), document.clone())),
                (Some(key), None) => drop(documents.remove(key)),
                (None, _) if event.is_current => {}
                (None, _) => documents.clear(),
            }
            previous = Some(event);
        }
        documents
    }

    /// Whether the documents that it knows are the present ones.
    pub fn knows(&self, present: &Reply) -> bool {
        let known = self.documents();
        match present {
            Reply::Read(ReadReply::Config(Ok(ConfigReply::Container(found)))) => {
                known.into_values().eq([found.document()])
            }
            Reply::Read(ReadReply::Config(Ok(ConfigReply::NamespaceChanges(state)))) => {
                let documents = state.events.iter().filter_map(|event| {
                    event.found.as_ref().map(|found| (event.container.clone(), found.document()))
                });
                known == documents.collect()
            }
            Reply::Read(ReadReply::Config(Err(ConfigError::NoContainer(_) | ConfigError::NoNamespace))) => {
                known.is_empty()
            }
            _ => false,
        }
    }

    /// Whether it has received these changes; `None` if they are no changes. The deletion of a
    /// container that it knows to be missing is nothing new: that is the answer if history does not
    /// reach back to its last revision, or if the namespace was created again.
    pub fn has_received(&self, missed: &Reply) -> Option<bool> {
        let Reply::Read(ReadReply::Config(Ok(missed))) = missed else { return None };
        let mut events: Vec<bool> = Vec::new();
        match missed {
            ConfigReply::Changes(changes) => {
                events.extend(changes.events.iter().map(|event| event.found.is_none()))
            }
            // The state, which `knows` compares.
            ConfigReply::NamespaceChanges(changes) if changes.state.is_some() => {}
            ConfigReply::NamespaceChanges(changes) => {
                events.extend(changes.events.iter().map(|event| event.found.is_none()));
            }
            _ => return None,
        }
        let is_deletion_only = events.iter().all(|is_deletion| *is_deletion);
        Some(events.is_empty() || is_deletion_only && self.documents().is_empty())
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
        let after_gap = notice.gap_after.is_some();
        let current = notice.current;
        for event in notice.events {
            let begins = std::mem::take(&mut self.begins);
            let is_state = event.position.is_state;
            self.unread.push_back(WatchedContent {
                revision: event.revision,
                position: event.position,
                container: event.container,
                is_current: false,
                document: event.found.map(|found| found.document()),
                after_gap: after_gap || is_state || begins && self.is_from_present,
                begins,
            });
        }
        if let Some(revision) = current {
            let begins = std::mem::take(&mut self.begins);
            self.unread.push_back(WatchedContent {
                revision,
                position: WatchPosition::through(revision),
                is_current: true,
                after_gap: true,
                begins,
                ..WatchedContent::default()
            });
        }
    }
}
