//! The actions of watchers: each reads from its node when that reports a change.

use std::ops::Range;

use tidelock_core::command::{Consistency, Read, Reply, Request};
use tidelock_core::event::ConfigUpdate;
use tidelock_core::types::{NodeId, Token};

use super::World;

impl World<'_> {
    /// Watchers at a node read if the node told them to. Watchers without a node move to the first
    /// one that acts.
    pub(crate) fn tell_watchers(&mut self, node: NodeId, news: &[ConfigUpdate]) {
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

    /// A watcher reads, and sends a request if its node cannot answer at once.
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

    /// Watchers of shards without a replica on the node send requests, unless they already wait for
    /// one.
    pub(crate) fn notify_remote_slots(&mut self, node: NodeId, slots: &[Range<u16>]) {
        for position in 0..self.watchers.len() {
            let watcher = &self.watchers[position];
            if watcher.node == Some(node) && watcher.asked.is_none() && watcher.is_in(slots) {
                self.ask_for(position, node);
            }
        }
    }

    /// Handles an answer that may be for a watcher.
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
