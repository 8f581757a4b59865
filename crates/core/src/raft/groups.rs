//! The replicas of one node, by shard, and which of them have something to do.

use alloc::vec::Vec;

use super::Group;
use crate::machine::Data;
use crate::types::ShardId;

/// All groups of a node. Shard `s` stands at position `s`, if it is replicated here: shards are numbered from 0 with few
/// gaps.
pub(crate) struct Groups {
    groups: Vec<Option<Group>>,
    /// Positions of groups that were touched since they last ran; each once.
    dirty: Vec<usize>,
    is_dirty: Vec<bool>,
}

impl Groups {
    pub(crate) fn new(groups: Vec<Group>) -> Groups {
        let mut all = Groups { groups: Vec::new(), dirty: Vec::new(), is_dirty: Vec::new() };
        groups.into_iter().for_each(|group| all.insert(group));
        all
    }

    /// Takes a group in, which is to run. There must be none of its shard.
    pub(crate) fn insert(&mut self, group: Group) {
        let position = group.shard().0 as usize;
        if self.groups.len() <= position {
            self.groups.resize_with(position + 1, || None);
            self.is_dirty.resize(position + 1, false);
        }
        assert!(self.groups[position].is_none(), "invariant: a node has one replica of a shard at most");
        self.groups[position] = Some(group);
        self.touch(position);
    }

    /// Takes a group out for good.
    pub(crate) fn remove(&mut self, shard: ShardId) -> Option<Group> {
        self.groups.get_mut(usize::try_from(shard.0).ok()?)?.take()
    }

    /// The group of the prime shard, which every node has.
    pub(crate) fn prime(&self) -> &Group {
        self.find(ShardId::PRIME).expect("invariant: every node carries the prime shard")
    }

    /// A group to look at, if the shard is replicated here.
    pub(crate) fn find(&self, shard: ShardId) -> Option<&Group> {
        self.groups.get(usize::try_from(shard.0).ok()?)?.as_ref()
    }

    /// A group whose word counts: one that is a member of its shard.
    pub(crate) fn member(&self, shard: ShardId) -> Option<&Group> {
        self.find(shard).filter(|group| group.is_member() || shard == ShardId::PRIME)
    }

    /// Does something to a group and marks it to run; `None` if there is no such shard here.
    pub(crate) fn with<R>(&mut self, shard: ShardId, action: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let position = usize::try_from(shard.0).ok()?;
        let result = action(self.groups.get_mut(position)?.as_mut()?);
        self.touch(position);
        Some(result)
    }

    /// Copies from a group's state, for which it need not run.
    pub(crate) fn copy_from<R>(&mut self, shard: ShardId, action: impl FnOnce(&mut Data) -> R) -> Option<R> {
        let position = usize::try_from(shard.0).ok()?;
        self.groups.get_mut(position)?.as_mut()?.data_mut().map(action)
    }

    /// Does something to every group.
    pub(crate) fn for_each(&mut self, mut action: impl FnMut(&mut Group)) {
        for position in 0..self.groups.len() {
            let Some(group) = &mut self.groups[position] else { continue };
            action(group);
            if group.wants_drive() {
                self.touch(position);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().flatten()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Takes the groups that were touched, one at a time.
    pub(crate) fn next_dirty(&mut self) -> Option<&mut Group> {
        loop {
            let position = self.dirty.pop()?;
            self.is_dirty[position] = false;
            if self.groups[position].is_some() {
                return self.groups[position].as_mut();
            }
        }
    }

    fn touch(&mut self, position: usize) {
        if !self.is_dirty[position] {
            self.is_dirty[position] = true;
            self.dirty.push(position);
        }
    }
}
