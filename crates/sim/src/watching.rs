//! Those who watch configuration.
//!
//! Owns who looks where and when: each stays at one node while that lives, and looks whenever that node has news. Of a
//! shard that its node does not carry there are no news, but a call to look now and then; the node then asks another one.

use std::ops::Range;
use std::sync::Arc;

use tidelock_core::command::config::{ConfigError, ConfigReply, Name, Query};
use tidelock_core::command::{ConfigRead, Consistency, Read, Reply, Request};
use tidelock_core::event::ConfigNews;
use tidelock_core::types::{NodeId, Token};

use crate::config::CONTAINERS;
use crate::host::Host;
use crate::slots::slot_of;
use crate::world::World;

/// What a watcher was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The revision that changed it.
    pub revision: u64,
    /// What the container resolves to since then; `None`: it is gone.
    pub document: Option<String>,
    /// Whether it was told that revisions before this one are not kept any more.
    pub after_gap: bool,
}

/// Somebody who watches one container, all his life.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// Of which namespace.
    pub namespace: Name,
    /// Which container.
    pub container: Arc<str>,
    /// Where; `None` while that node is down.
    pub node: Option<NodeId>,
    /// The question that its node has passed on to another, while that has no answer.
    pub asked: Option<Token>,
    /// There was news while it waited for that: it asks one thing at a time.
    pub is_due: bool,
    /// What it was told, in order.
    pub told: Vec<Told>,
    /// When it last looked there was no such namespace.
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
                told: Vec::new(),
                is_without: false,
            })
        };
        names.iter().flat_map(of_name).collect()
    }

    /// Whether this is about its container.
    pub fn cares(&self, news: &ConfigNews) -> bool {
        news.namespace == self.namespace && news.containers.contains(&self.container)
    }

    /// Whether its namespace is in one of these slots.
    fn is_in(&self, slots: &[Range<u16>]) -> bool {
        let slot = slot_of(self.namespace.as_str().as_bytes());
        slots.iter().any(|range| range.contains(&slot))
    }

    /// What it asks its node.
    pub fn question(&self) -> ConfigRead {
        let after = self.told.last().map_or(0, |told| told.revision);
        let query = Query::Changes { key: self.container.clone(), after };
        ConfigRead { namespace: self.namespace.clone(), query }
    }

    /// What its node says of the container now.
    pub fn present(&self) -> ConfigRead {
        let query = Query::Container { key: self.container.clone(), at: None, known: None };
        ConfigRead { namespace: self.namespace.clone(), query }
    }

    /// What it believes the container to resolve to.
    pub fn document(&self) -> Option<&String> {
        self.told.last().filter(|_| !self.is_without).and_then(|told| told.document.as_ref())
    }

    /// Whether it knows what there is: that is what it was told last, unless it saw that the namespace is gone.
    pub fn knows(&self, present: Option<&Reply>) -> bool {
        let told = self.document();
        match present {
            Some(Reply::Config(ConfigReply::Container(found))) => told == Some(&found.document()),
            Some(Reply::Config(ConfigReply::Failed(ConfigError::NoContainer(_)))) => told.is_none(),
            _ => true,
        }
    }

    /// Looks at what its node holds, unless it waits for an answer. Whether that was enough: while slots move, the node may
    /// have to wait or to ask another one.
    fn look(&mut self, host: &mut Host) -> bool {
        self.is_due = self.asked.is_some();
        while !self.is_due {
            match host.look(self.question()) {
                Some(reply) if self.hear(&reply) > 0 => {}
                found => return found.is_some(),
            }
        }
        true
    }

    /// Takes an answer. Returns how many events there were.
    pub fn hear(&mut self, reply: &Reply) -> usize {
        let Reply::Config(ConfigReply::Changes(changes)) = reply else {
            panic!("{reply:?} answers a watcher");
        };
        self.is_without = changes.revision == 0;
        self.told.extend(changes.events.iter().map(|event| Told {
            revision: event.revision,
            document: event.found.as_ref().map(|found| found.document()),
            after_gap: changes.has_gap,
        }));
        changes.events.len()
    }
}

impl World<'_> {
    /// Watchers at a node look if they are told to. Those without a node come to the first one that does something.
    pub(crate) fn tell_watchers(&mut self, node: NodeId, news: &[ConfigNews]) {
        for position in 0..self.watchers.len() {
            let watcher = &mut self.watchers[position];
            let comes = watcher.node.is_none();
            let concerned = watcher.node == Some(node) && news.iter().any(|news| watcher.cares(news));
            if comes || concerned {
                watcher.node = Some(node);
                self.look(position, node);
            }
        }
    }

    /// A watcher looks, and asks if its node cannot say at once.
    fn look(&mut self, position: usize, node: NodeId) {
        if !self.watchers[position].look(&mut self.hosts[(node.0 - 1) as usize]) {
            self.ask_for(position, node);
        }
    }

    fn ask_for(&mut self, position: usize, node: NodeId) {
        let read = Read::Config(self.watchers[position].question());
        let request = Request::Read { read, consistency: Consistency::Stale };
        self.watchers[position].asked = Some(self.ask(node, request, false));
    }

    /// Watchers at a node ask for what it does not carry, unless they have asked already.
    pub(crate) fn tell_elsewhere(&mut self, node: NodeId, slots: &[Range<u16>]) {
        for position in 0..self.watchers.len() {
            let watcher = &self.watchers[position];
            if watcher.node == Some(node) && watcher.asked.is_none() && watcher.is_in(slots) {
                self.ask_for(position, node);
            }
        }
    }

    /// A question was answered, perhaps a watcher's.
    pub(crate) fn watcher_hears(&mut self, token: Token, reply: &Reply) {
        let Some(position) = self.watchers.iter().position(|watcher| watcher.asked == Some(token)) else {
            return;
        };
        let watcher = &mut self.watchers[position];
        watcher.asked = None;
        let is_refused = matches!(reply, Reply::Refused(_));
        if !is_refused {
            watcher.hear(reply);
        }
        if let (true, Some(node)) = (watcher.is_due || is_refused, watcher.node) {
            self.look(position, node);
        }
    }
}
