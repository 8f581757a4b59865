//! What the clients of this node ask for, as the router has counted it.

use alloc::collections::BTreeMap;

use super::Router;
use crate::command::LoadView;
use crate::slots::SlotGroup;
use crate::types::ShardId;

impl Router {
    /// What the clients of this node asked for recently, with at most `most` keys and prefixes.
    pub(crate) fn load(&self, most: usize) -> LoadView {
        let (window_ms, shards, [keys, prefixes]) = self.load.view(most);
        LoadView {
            node: self.node,
            window_ms,
            shards: shards.into_iter().collect(),
            keys,
            prefixes,
            ..LoadView::default()
        }
    }

    /// Requests a second of the clients of this node, by shard.
    pub(crate) fn rates(&self) -> BTreeMap<ShardId, u64> {
        self.load.rates()
    }

    /// Operations on keys a second of the clients of this node, by group of slots.
    pub(crate) fn group_rates(&self) -> BTreeMap<SlotGroup, u64> {
        self.load.group_rates()
    }
}
