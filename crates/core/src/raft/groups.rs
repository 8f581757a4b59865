//! The replicas of one node, by shard, and which of them have something to do.

use alloc::vec::Vec;

use super::Group;
use crate::types::ShardId;

/// All groups of a node. Shard `s` stands at position `s`: every host carries every shard.
pub(crate) struct Groups {
    groups: Vec<Group>,
    /// Positions of groups that were touched since they last ran; each once.
    dirty: Vec<usize>,
    is_dirty: Vec<bool>,
}

impl Groups {
    pub(crate) fn new(groups: Vec<Group>) -> Groups {
        let in_place = groups.iter().enumerate().all(|(position, group)| group.shard().0 == position as u64);
        assert!(in_place, "invariant: shards are numbered without gaps");
        let count = groups.len();
        Groups { groups, dirty: (0..count).collect(), is_dirty: alloc::vec![true; count] }
    }

    /// A group to look at. The shard must exist.
    pub(crate) fn get(&self, shard: ShardId) -> &Group {
        &self.groups[shard.0 as usize]
    }

    /// A group to look at, if there is such a shard.
    pub(crate) fn find(&self, shard: ShardId) -> Option<&Group> {
        self.groups.get(usize::try_from(shard.0).ok()?)
    }

    /// Does something to a group and marks it to run; `None` if there is no such shard here.
    pub(crate) fn with<R>(&mut self, shard: ShardId, action: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let position = usize::try_from(shard.0).ok()?;
        let result = action(self.groups.get_mut(position)?);
        self.touch(position);
        Some(result)
    }

    /// Does something to every group.
    pub(crate) fn for_each(&mut self, mut action: impl FnMut(&mut Group)) {
        for position in 0..self.groups.len() {
            action(&mut self.groups[position]);
            if self.groups[position].wants_drive() {
                self.touch(position);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Takes the groups that were touched, one at a time.
    pub(crate) fn next_dirty(&mut self) -> Option<&mut Group> {
        let position = self.dirty.pop()?;
        self.is_dirty[position] = false;
        Some(&mut self.groups[position])
    }

    fn touch(&mut self, position: usize) {
        if !self.is_dirty[position] {
            self.is_dirty[position] = true;
            self.dirty.push(position);
        }
    }
}
