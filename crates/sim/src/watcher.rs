//! Simulated watchers of configuration.
//!
//! Owns where and when each watcher reads. A watcher stays at one node while that node is up, and
//! reads whenever the node reports a change. If the node has no replica of the shard, it reports no
//! changes; it tells the watcher to read from time to time, and asks another node.

use std::ops::Range;
use std::sync::Arc;

use tidelock_core::command::config::{ConfigError, ConfigReply, Name, Query};
use tidelock_core::command::{ConfigRead, ReadReply, Reply};
use tidelock_core::event::ConfigUpdate;
use tidelock_core::types::{NodeId, Token};

use crate::config::CONTAINERS;
use crate::host::Host;
use crate::slots::slot_of;

/// One event that a watcher received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedContent {
    /// The revision that changed the container.
    pub revision: u64,
    /// The document since then; `None` if the container was deleted.
    pub document: Option<String>,
    /// Whether the answer said that revisions before this one are no longer kept.
    pub after_gap: bool,
}

/// A watcher of one container, for the whole run.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// Namespace of the container.
    pub namespace: Name,
    /// Key of the watched container.
    pub container: Arc<str>,
    /// The node that it asks; `None` while that node is down.
    pub node: Option<NodeId>,
    /// The open request that its node has forwarded to another node.
    pub asked: Option<Token>,
    /// A change was reported while it waited for that request: it sends one at a time.
    pub is_due: bool,
    /// The events that it received, in order.
    pub received: Vec<WatchedContent>,
    /// At its last read the namespace did not exist.
    pub is_without: bool,
}

impl Watcher {
    /// One for each container that clients use.
    pub fn all(names: &[Name]) -> Vec<Watcher> {
        let of_name = |name: &Name| {
            let namespace = name.clone();
            CONTAINERS.map(|container| Watcher {
                namespace: namespace.clone(),
                container: container.into(),
                node: None,
                asked: None,
                is_due: false,
                received: Vec::new(),
                is_without: false,
            })
        };
        names.iter().flat_map(of_name).collect()
    }

    /// Whether this change concerns its container.
    pub fn cares(&self, news: &ConfigUpdate) -> bool {
        news.namespace == self.namespace && news.containers.contains(&self.container)
    }

    /// Whether its namespace is in one of these slots.
    pub(crate) fn is_in(&self, slots: &[Range<u16>]) -> bool {
        let slot = slot_of(self.namespace.as_str().as_bytes());
        slots.iter().any(|range| range.contains(&slot))
    }

    /// A read of the changes since its last event.
    pub fn question(&self) -> ConfigRead {
        let after = self.received.last().map_or(0, |event| event.revision);
        let query = Query::Changes { key: self.container.clone(), after };
        ConfigRead { namespace: self.namespace.clone(), query }
    }

    /// A read of the container's present state.
    pub fn present(&self) -> ConfigRead {
        let query = Query::Container { key: self.container.clone(), at: None, known: None };
        ConfigRead { namespace: self.namespace.clone(), query }
    }

    /// The document as it knows it.
    pub fn document(&self) -> Option<&String> {
        self.received.last().filter(|_| !self.is_without).and_then(|event| event.document.as_ref())
    }

    /// Whether its knowledge is current: its last event, unless it has seen that the namespace was
    /// deleted.
    pub fn knows(&self, present: Option<&Reply>) -> bool {
        let document = self.document();
        match present {
            Some(Reply::Read(ReadReply::Config(Ok(ConfigReply::Container(found))))) => {
                document == Some(&found.document())
            }
            Some(Reply::Read(ReadReply::Config(Err(ConfigError::NoContainer(_))))) => document.is_none(),
            _ => true,
        }
    }

    /// Reads from its node, unless it waits for an answer. Returns whether that was enough: while
    /// slots move, the node may have to wait or to ask another node.
    pub(crate) fn look(&mut self, host: &mut Host) -> bool {
        self.is_due = self.asked.is_some();
        while !self.is_due {
            match host.look(self.question()) {
                Some(reply) if self.hear(&reply) > 0 => {}
                found => return found.is_some(),
            }
        }
        true
    }

    /// Processes an answer. Returns the number of events in it.
    pub fn hear(&mut self, reply: &Reply) -> usize {
        let Reply::Read(ReadReply::Config(Ok(ConfigReply::Changes(changes)))) = reply else {
            panic!("{reply:?} answers a watcher");
        };
        self.is_without = changes.revision == 0;
        self.received.extend(changes.events.iter().map(|event| WatchedContent {
            revision: event.revision,
            document: event.found.as_ref().map(|found| found.document()),
            after_gap: changes.has_gap,
        }));
        changes.events.len()
    }
}
