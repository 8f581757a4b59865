//! The replicas of this node: those on its disk, and those that the registry assigns to it or
//! removes.
//!
//! Owns the beginning and the end of a replica. A new replica knows only the shard's founding
//! membership and learns everything else from the leader. A replica ends when the registry has
//! forgotten it. That happens only once no voter of the shard would ask for its vote again. Its log
//! is then void, and its snapshots are removed when that is durable.
//!
//! Invariants:
//! - The disk records which replica a log belongs to before anything else about it, so a restart
//!   needs no registry.
//! - A replica that ended never begins again: replica numbers rise, and the disk keeps the last one
//!   that ended.
//! - The next replica of a shard begins only when all files of the previous one are gone from the
//!   disk.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::Node;
use crate::event::NodeOptions;
use crate::machine::Machine;
use crate::raft::{Group, GroupOptions, Groups};
use crate::slots::SLOTS;
use crate::storage::snapshot::{SnapshotId, SnapshotTask};
use crate::storage::{RecoveredShard, RecoveredShards, ReplicaIncarnation, WalRecord};
use crate::topology::Shard;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId, Term, WalSequence};

/// The ended replicas of a node, and what it needs to begin others.
pub(super) struct LocalReplicas {
    seeds: fastrand::Rng,
    /// The last replica of each shard that ended here.
    ended: BTreeMap<ShardId, ReplicaId>,
    closing: BTreeMap<ShardId, Closing>,
}

/// Progress of the end of a replica.
enum Closing {
    /// This batch records the end on disk.
    Writing(WalSequence),
    /// Its snapshots are being removed.
    Removing,
}

impl LocalReplicas {
    /// The replicas with which a node starts: those of its founding, and those on its disk. If
    /// `elections_held` is set, they take part in no election until [`Group::allow_elections`].
    pub(super) fn begin(
        options: &NodeOptions,
        mut recovered: RecoveredShards,
        elections_held: bool,
    ) -> (LocalReplicas, Groups) {
        let seeds = fastrand::Rng::with_seed(options.seed);
        let mut local_replicas = LocalReplicas { seeds, ended: BTreeMap::new(), closing: BTreeMap::new() };
        let founding = options.founding();
        for shard in (0..=options.data_shards).map(ShardId) {
            recovered.entry(shard).or_default();
        }
        let mut groups = Vec::new();
        for (shard, recovered) in recovered {
            let (replica, founding) = match &recovered.log.incarnation {
                Some(ReplicaIncarnation::Ended(replica)) => {
                    local_replicas.ended.insert(shard, *replica);
                    continue;
                }
                Some(ReplicaIncarnation::Begun { replica, founding }) => (*replica, founding.clone()),
                None => {
                    let own = founding.replica_on(shard, options.host.node);
                    let joined = options.prime_replica.filter(|_| shard == ShardId::PRIME);
                    match own.or(joined) {
                        Some(replica) => (replica, founding.voters_of(shard)),
                        None => {
                            assert!(shard != ShardId::PRIME, "who joined has a replica of the prime shard");
                            continue;
                        }
                    }
                }
            };
            let group = local_replicas.group(options, (shard, replica, founding), recovered, elections_held);
            groups.push(group);
        }
        (local_replicas, Groups::new(groups))
    }

    fn group(
        &mut self,
        options: &NodeOptions,
        (shard, replica, founding): (ShardId, ReplicaId, Vec<(ReplicaId, NodeId)>),
        recovered: RecoveredShard,
        elections_held: bool,
    ) -> Group {
        let options = GroupOptions {
            shard,
            replica,
            founding,
            machine: Machine::new(shard, &options.founding()).founded_at(options.founding_version),
            timing: options.timing,
            seed: self.seeds.u64(..),
            elections_held,
            faults: options.faults,
        };
        Group::new(options, recovered)
    }
}

impl Node {
    /// Begins and ends replicas as the registry says.
    pub(super) fn update_replicas(&mut self) {
        let registry = self.registry();
        let (last_replica, _) = registry.last_numbers();
        let is_forgotten = |group: &&Group| {
            let is_known = group.replica() <= last_replica;
            let is_there = registry.replicas().contains_key(&group.replica());
            is_known && !is_there && group.shard() != ShardId::PRIME
        };
        let over: Vec<ShardId> = self.groups.iter().filter(is_forgotten).map(Group::shard).collect();
        let own = self.options.host.node;
        let due: Vec<(ReplicaId, ShardId)> = registry
            .replicas_on(own)
            .into_iter()
            .filter(|(replica, shard)| {
                let ended = self.local_replicas.ended.get(shard).is_some_and(|ended| ended >= replica);
                // The other replicas of a new shard wait for the vote of each founding replica,
                // including one that will be removed.
                let founds = |row: &Shard| row.founding.iter().any(|(founding, _)| founding == replica);
                let is_founding = registry.shards().get(shard).is_some_and(founds);
                let is_wanted = registry.replicas()[replica].wanted.is_some();
                (is_wanted || is_founding)
                    && !ended
                    && self.groups.find(*shard).is_none()
                    && !self.local_replicas.closing.contains_key(shard)
            })
            .collect();
        for shard in over {
            self.end(shard);
        }
        for (replica, shard) in due {
            self.begin(shard, replica);
        }
    }

    fn begin(&mut self, shard: ShardId, replica: ReplicaId) {
        let Some(row) = self.registry().shards().get(&shard) else { return };
        let founding = row.founding.clone();
        let incarnation = ReplicaIncarnation::Begun { replica, founding: founding.clone() };
        self.output.records.push(WalRecord::ReplicaIncarnation { shard, incarnation, is_restated: false });
        let recovered = RecoveredShard::default();
        let group = self.local_replicas.group(&self.options, (shard, replica, founding), recovered, false);
        self.groups.insert(group);
        self.groups.with(shard, |group| group.set_disks(&self.disks));
    }

    fn end(&mut self, shard: ShardId) {
        let Some(mut group) = self.groups.remove(shard) else { return };
        for done in group.take_reads() {
            self.router.read_done(done);
        }
        let replica = group.replica();
        let incarnation = ReplicaIncarnation::Ended(replica);
        self.output.forget(shard);
        self.output.records.push(WalRecord::ReplicaIncarnation { shard, incarnation, is_restated: false });
        self.local_replicas.ended.insert(shard, replica);
        self.local_replicas.closing.insert(shard, Closing::Writing(self.output.sequence));
    }

    /// Removes the snapshots of replicas whose end is durable: all batches up to `sequence` are.
    pub(super) fn remove_files(&mut self, sequence: WalSequence) {
        for (&shard, closing) in &mut self.local_replicas.closing {
            if matches!(closing, Closing::Writing(batch) if *batch <= sequence) {
                *closing = Closing::Removing;
                let id = SnapshotId { shard, index: LogIndex(0), term: Term(0) };
                self.output.snapshot_tasks.push(SnapshotTask::Remove { id });
            }
        }
    }

    /// All files of an ended replica are gone; another replica may begin.
    pub(super) fn files_removed(&mut self, shard: ShardId) {
        self.local_replicas.closing.remove(&shard);
        self.reapply_registry();
    }

    /// Reports the slots whose shards have no replica here. Slots that came here since the last
    /// report are included once more, because changes between the clients' last query and the first
    /// local notification were not reported.
    pub(super) fn report_remote_slots(&mut self) {
        let ranges = self.router.slot_map().ranges();
        let remote_slots = ranges.filter(|(_, shard)| self.groups.member(*shard).is_none());
        let remote_slots: Vec<Range<u16>> = remote_slots.map(|(range, _)| range).collect();
        let before = core::mem::replace(&mut self.reported_remote_slots, remote_slots.clone());
        self.remote_slots = remote_slots;
        // Queries during the move of slots may have been refused.
        let version = self.router.slot_map().version;
        if core::mem::replace(&mut self.reported_map, version) != version {
            self.remote_slots.push(0..SLOTS);
        }
        self.remote_slots
            .extend(before.into_iter().filter(|range| !self.reported_remote_slots.contains(range)));
    }

    /// The version of the slot map, if the replicas here own every slot as the map says. This node
    /// can then answer for all keys by itself.
    pub fn whole_map(&self) -> Option<u64> {
        let map = self.router.slot_map();
        let owns = |shard: ShardId| {
            let Some(member) = self.groups.member(shard) else { return false };
            let owned = self.owned_slots(shard).is_some_and(|(owned, _)| map.share(shard).is_within(&owned));
            owned && member.machine().last_move().0 >= map.last_move(shard)
        };
        map.shards().into_iter().all(owns).then_some(map.version)
    }
}
