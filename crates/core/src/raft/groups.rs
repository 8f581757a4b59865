//! The replicas of one node, by shard, and the set of those with work to do.

use alloc::vec::Vec;

use super::Group;
use crate::machine::Data;
use crate::types::ShardId;

/// All groups of a node, sorted by shard. Shard numbers are never reused, so they do not indicate
/// how many groups there are.
pub(crate) struct Groups {
    groups: Vec<GroupEntry>,
    /// Shards of groups that were changed since they last ran, each once.
    dirty: Vec<ShardId>,
}

struct GroupEntry {
    shard: ShardId,
    is_dirty: bool,
    group: Group,
}

impl Groups {
    pub(crate) fn new(groups: Vec<Group>) -> Groups {
        let mut all = Groups { groups: Vec::new(), dirty: Vec::new() };
        groups.into_iter().for_each(|group| all.insert(group));
        all
    }

    /// Adds a group and marks it to run. There must be none of the same shard.
    pub(crate) fn insert(&mut self, group: Group) {
        let shard = group.shard();
        let Err(position) = self.position(shard) else {
            unreachable!("invariant: a node has one replica of a shard at most")
        };
        self.groups.insert(position, GroupEntry { shard, is_dirty: true, group });
        self.dirty.push(shard);
    }

    pub(crate) fn remove(&mut self, shard: ShardId) -> Option<Group> {
        let position = self.position(shard).ok()?;
        self.dirty.retain(|dirty| *dirty != shard);
        Some(self.groups.remove(position).group)
    }

    /// The group of the prime shard. Every node has one.
    pub(crate) fn prime(&self) -> &Group {
        self.find(ShardId::PRIME).expect("invariant: every node carries the prime shard")
    }

    /// The group of a shard; `None` if the shard has no replica here.
    pub(crate) fn find(&self, shard: ShardId) -> Option<&Group> {
        let position = self.position(shard).ok()?;
        Some(&self.groups[position].group)
    }

    /// The group of a shard if this replica is a member of the shard. The prime shard's group is
    /// always returned.
    pub(crate) fn member(&self, shard: ShardId) -> Option<&Group> {
        self.find(shard).filter(|group| group.is_member() || shard == ShardId::PRIME)
    }

    /// Changes a group and marks it to run; `None` if the shard has no replica here.
    pub(crate) fn with<R>(&mut self, shard: ShardId, action: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let position = self.position(shard).ok()?;
        let result = action(&mut self.groups[position].group);
        self.touch(position);
        Some(result)
    }

    /// Copies from a group's state, which does not require the group to run.
    pub(crate) fn copy_from<R>(&mut self, shard: ShardId, action: impl FnOnce(&mut Data) -> R) -> Option<R> {
        let position = self.position(shard).ok()?;
        self.groups[position].group.data_mut().map(action)
    }

    /// Calls `action` on every group, and marks those with work to run.
    pub(crate) fn for_each(&mut self, mut action: impl FnMut(&mut Group)) {
        for position in 0..self.groups.len() {
            let group = &mut self.groups[position].group;
            action(group);
            if group.wants_drive() {
                self.touch(position);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().map(|slot| &slot.group)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Takes the next group marked to run.
    pub(crate) fn next_dirty(&mut self) -> Option<&mut Group> {
        let shard = self.dirty.pop()?;
        let position = self.position(shard).expect("invariant: a group that is removed is not touched");
        let slot = &mut self.groups[position];
        slot.is_dirty = false;
        Some(&mut slot.group)
    }

    fn position(&self, shard: ShardId) -> Result<usize, usize> {
        self.groups.binary_search_by_key(&shard, |slot| slot.shard)
    }

    fn touch(&mut self, position: usize) {
        let slot = &mut self.groups[position];
        if !slot.is_dirty {
            slot.is_dirty = true;
            self.dirty.push(slot.shard);
        }
    }
}
