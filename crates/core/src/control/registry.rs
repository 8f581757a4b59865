//! The registry: the prime shard's machine.
//!
//! Owns which host stands behind each node number, which shards there are and which keys they hold, which replica of a
//! shard is to be on which host, and what is wanted of each; making that true is for the leaders of the shards
//! (`reconcile`), and what to want is `placement`'s. The first disk to register under a number keeps it: a wiped disk under
//! the same number has forgotten its votes and its log, and letting it vote could lose acknowledged writes, so it is
//! refused here and at the peer handshake. It joins under a new number.
//!
//! Invariants:
//! - No number of a host, shard or replica is ever given twice.
//! - A host has one replica of a shard at most, those that are on their way out included.
//! - Every host that belongs to the cluster has a replica of the prime shard.

mod assign;
pub mod migrations;
mod snapshot;
pub mod tables;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use crc::{CRC_64_XZ, Crc};

use crate::command::{Denial, HostChange, HostInfo, RegistryView, Reply, Standing};
use crate::control::slot_map::SlotMap;
use crate::deliberate::Faults;
use crate::limits;
use crate::membership::{Role, founding_replicas};
use crate::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Version};
use migrations::Migration;
use tables::{Replica, Shard};

/// State of the prime shard.
#[derive(Debug, Default)]
pub struct Registry {
    /// Every number that was ever given out. None is ever given back, so none is given twice.
    seats: BTreeMap<NodeId, Seat>,
    shards: BTreeMap<ShardId, Shard>,
    /// Those that are, are to be, or were and may still be needed to know what was.
    replicas: BTreeMap<ReplicaId, Replica>,
    last_replica: ReplicaId,
    last_shard: ShardId,
    slots: SlotMap,
    /// Moves of slots that are not finished.
    migrations: BTreeMap<MigrationId, Migration>,
    last_migration: MigrationId,
    /// Log index of the last change.
    changed: LogIndex,
    /// A snapshot that was begun, and not yet taken.
    snapshot: Option<Vec<u8>>,
    faults: Faults,
}

/// What stands behind a node number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// What is wanted of the node.
    pub standing: Standing,
    /// Whether it should lead nothing, and carry nothing that others can.
    pub draining: bool,
    /// Whether an operator took its vote away: then it gets none as a substitute for others either.
    pub is_barred: bool,
    /// Whether it has been silent for so long that others should take its place.
    pub is_dead: bool,
    /// Its host, once that has announced itself.
    pub host: Option<Host>,
}

/// A host that registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What it announced.
    pub info: HostInfo,
    /// Log index of its first announcement.
    pub created: LogIndex,
    /// Log index of the last change of it.
    pub updated: LogIndex,
}

impl Seat {
    /// A seat that was just given out.
    fn new(standing: Standing, host: Option<Host>) -> Seat {
        Seat { standing, draining: false, is_barred: false, is_dead: false, host }
    }

    /// Whether the host is one of the cluster's, and is to stay one.
    pub fn stays(&self) -> bool {
        matches!(self.standing, Standing::Voter | Standing::Learner)
    }

    fn touch(&mut self, index: LogIndex) {
        if let Some(host) = &mut self.host {
            host.updated = index;
        }
    }
}

impl Registry {
    /// The registry that a cluster begins with: all founders vote, in every shard.
    pub fn founded(founders: u64, data_shards: u64) -> Registry {
        let seats = (1..=founders).map(|node| (NodeId(node), Seat::new(Standing::Voter, None)));
        let shards = (0..=data_shards).map(ShardId);
        let founding = |shard| (shard, Shard::founded(shard, founding_replicas(shard, founders)));
        let replicas = shards.clone().flat_map(|shard| {
            let row = move |(replica, node)| (replica, Replica::founded(shard, node));
            founding_replicas(shard, founders).into_iter().map(row)
        });
        Registry {
            seats: seats.collect(),
            shards: shards.map(founding).collect(),
            replicas: replicas.collect(),
            last_replica: ReplicaId(founders * (data_shards + 1)),
            last_shard: ShardId(data_shards),
            slots: SlotMap::founded(data_shards),
            ..Registry::default()
        }
    }

    /// Takes note of an announcement; refuses another disk under a number that is taken.
    pub fn register(&mut self, index: LogIndex, info: HostInfo) -> Reply {
        let Some(seat) = self.seats.get_mut(&info.node) else { return Reply::Denied(Denial::UnknownHost) };
        if seat.standing == Standing::Removed {
            return Reply::Denied(Denial::HostRemoved);
        }
        match &mut seat.host {
            Some(host) if host.info.uuid != info.uuid => {
                return Reply::ConditionFailed { current: Version(host.updated.0) };
            }
            Some(host) if host.info == info => {}
            Some(host) => {
                (host.info, host.updated) = (info, index);
                self.changed = index;
            }
            None => {
                seat.host = Some(Host { info, created: index, updated: index });
                self.changed = index;
            }
        }
        Reply::Registered
    }

    /// Gives a host that joins the next number, or the one that it was given before. It follows without a vote.
    pub fn join(&mut self, index: LogIndex, mut info: HostInfo) -> Reply {
        let is_same = |seat: &Seat| seat.host.as_ref().is_some_and(|host| host.info.uuid == info.uuid);
        if let Some((&node, seat)) = self.seats.iter().find(|(_, seat)| is_same(seat)) {
            if matches!(seat.standing, Standing::Leaving | Standing::Removed) {
                return Reply::Denied(Denial::HostRemoved);
            }
            let replica = self.replica_on(ShardId::PRIME, node);
            let (replica, _) = replica.expect("invariant: every host has a replica of the prime shard");
            return Reply::Joined { node, replica };
        }
        let last = self.seats.last_key_value().map_or(0, |(node, _)| node.0);
        if self.seats.values().filter(|seat| seat.standing != Standing::Removed).count() >= limits::HOSTS_MAX
        {
            return Reply::Denied(Denial::TooManyHosts);
        }
        let node = NodeId(last + 1);
        info.node = node;
        let host = Some(Host { info, created: index, updated: index });
        self.seats.insert(node, Seat::new(Standing::Learner, host));
        self.changed = index;
        let replica = self.add_replica(index, (ShardId::PRIME, node), Role::Learner);
        Reply::Joined { node, replica }
    }

    /// Changes what is wanted of a host.
    pub fn change(&mut self, index: LogIndex, node: NodeId, change: HostChange) -> Reply {
        let is_other_voter =
            |(&other, seat): (&NodeId, &Seat)| other != node && seat.standing == Standing::Voter;
        let has_other_voter = self.seats.iter().any(is_other_voter);
        let Some(seat) = self.seats.get_mut(&node) else { return Reply::Denied(Denial::UnknownHost) };
        let before = seat.clone();
        match (seat.standing, change) {
            (Standing::Removed, HostChange::Removed) => {}
            (Standing::Removed, _) => return Reply::Denied(Denial::HostRemoved),
            (Standing::Leaving, HostChange::Removed) => seat.standing = Standing::Removed,
            (_, HostChange::Removed) => return Reply::Denied(Denial::NotLeaving),
            // Its replicas may be gone already, and the same ones must not come back.
            (Standing::Leaving, HostChange::Vote | HostChange::Follow) => {
                return Reply::Denied(Denial::HostRemoved);
            }
            (_, HostChange::Vote) => {
                (seat.standing, seat.draining, seat.is_barred) = (Standing::Voter, false, false);
            }
            (Standing::Voter, HostChange::Follow | HostChange::Leave) if !has_other_voter => {
                return Reply::Denied(Denial::LastVoter);
            }
            (_, HostChange::Follow) => (seat.standing, seat.is_barred) = (Standing::Learner, true),
            (_, HostChange::Leave) => seat.standing = Standing::Leaving,
            (_, HostChange::Drain(draining)) => seat.draining = draining,
            (_, HostChange::Dead(is_dead)) => seat.is_dead = is_dead,
        }
        let is_removed = seat.standing == Standing::Removed;
        if *seat != before {
            seat.touch(index);
            self.changed = index;
        }
        if is_removed {
            self.replicas.retain(|_, replica| replica.node != node);
        }
        Reply::HostChanged
    }

    /// Sets which faults the state has.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Log index of the last change; 0 before the first.
    pub fn changed(&self) -> LogIndex {
        self.changed
    }

    /// All numbers that were ever given out.
    pub fn seats(&self) -> &BTreeMap<NodeId, Seat> {
        &self.seats
    }

    /// The host registered under a number.
    pub fn host(&self, node: NodeId) -> Option<&Host> {
        self.seats.get(&node)?.host.as_ref()
    }

    /// All shards.
    pub fn shards(&self) -> &BTreeMap<ShardId, Shard> {
        &self.shards
    }

    /// All replicas that are, are to be, or are on their way out.
    pub fn replicas(&self) -> &BTreeMap<ReplicaId, Replica> {
        &self.replicas
    }

    /// The highest numbers of a replica and of a shard that were given out.
    pub fn last_numbers(&self) -> (ReplicaId, ShardId) {
        (self.last_replica, self.last_shard)
    }

    /// Which shard holds which slots.
    pub fn slots(&self) -> &SlotMap {
        &self.slots
    }

    /// All tables, to be shown.
    pub fn view(&self) -> RegistryView {
        RegistryView {
            index: self.changed,
            seats: self.seats.iter().map(|(&node, seat)| (node, seat.clone())).collect(),
            shards: self.shards.iter().map(|(&shard, row)| (shard, row.clone())).collect(),
            replicas: self.replicas.iter().map(|(&replica, row)| (replica, row.clone())).collect(),
            last_replica: self.last_replica,
            last_shard: self.last_shard,
            slots: self.slots.clone(),
            migrations: self.migrations.iter().map(|(&id, row)| (id, row.clone())).collect(),
            last_migration: self.last_migration,
        }
    }

    /// The replica of a shard on a node, also one on its way out.
    pub fn replica_on(&self, shard: ShardId, node: NodeId) -> Option<(ReplicaId, &Replica)> {
        let found = self.replicas.iter().find(|(_, replica)| replica.shard == shard && replica.node == node);
        found.map(|(&id, replica)| (id, replica))
    }

    /// How many hosts have registered.
    pub fn record_count(&self) -> u64 {
        self.seats.values().filter(|seat| seat.host.is_some()).count() as u64
    }

    /// A checksum over all tables.
    pub fn digest(&self) -> u64 {
        let mut encoded = Vec::new();
        self.encode(&mut encoded);
        Crc::<u64>::new(&CRC_64_XZ).checksum(&encoded)
    }
}
