//! Membership as a node sees it: which hosts the registry wants, which it is to talk to, and what its leaders do about
//! both.
//!
//! The registry says what is wanted of each replica (`placing`). Each leader of a shard takes the steps for its shard
//! (`raft::membership`). A host that leaves goes out of the data shards first and
//! out of the prime shard last, where it learns of it; then the leader of the prime shard writes that it is gone, and
//! everyone tells it so and hangs up.

use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use super::Node;
use crate::command::{HostChange, Refusal, Reply, Standing, Write};
use crate::control::placement;
use crate::control::registry::Seat;
use crate::event::OutgoingFrame;
use crate::limits;
use crate::machine::Machine;
use crate::membership::{Membership, Role};
use crate::peer;
use crate::raft::Wanted;
use crate::types::{LogIndex, NodeId, ShardId};

/// What a node has made of the registry so far.
#[derive(Default)]
pub(super) struct Roster {
    /// [`Registry::changed`](crate::control::registry::Registry::changed) when it was last looked at.
    seen: Option<LogIndex>,
    /// Whom to talk to, and where.
    peers: Vec<(NodeId, String)>,
    /// The shell has not been told of `peers`.
    is_untold: bool,
    /// Peers that were removed and do not know it.
    farewells: Vec<NodeId>,
    /// Peers that should hear which hosts this node knows.
    introductions: Vec<NodeId>,
}

impl Node {
    /// Whom this node should have a connection with, and at which address.
    pub fn peers(&self) -> &[(NodeId, String)] {
        &self.roster.peers
    }

    /// What the registry knows of a number, so that the transport can refuse who should not have it.
    pub fn seat(&self, node: NodeId) -> Option<&Seat> {
        self.registry().seats().get(&node)
    }

    /// Disk and peer address of every host that belongs to the cluster, for the control file.
    pub fn known_hosts(&self) -> impl Iterator<Item = (NodeId, Uuid, &str)> {
        let seats = self.registry().seats().iter().filter(|(_, seat)| seat.standing != Standing::Removed);
        seats.filter_map(|(&node, seat)| {
            let info = &seat.host.as_ref()?.info;
            Some((node, info.uuid, info.peer_address.as_str()))
        })
    }

    /// Looks at the registry if it has changed.
    pub(super) fn follow_registry(&mut self) {
        let changed = self.registry().changed();
        if self.roster.seen == Some(changed) {
            return;
        }
        let own = self.options.host.node;
        let is_gone = |node: NodeId| self.seat(node).is_some_and(|seat| seat.standing == Standing::Removed);
        let is_removed = is_gone(own);
        let gone = self.roster.peers.iter().map(|(node, _)| *node).filter(|&node| is_gone(node));
        let farewells: Vec<NodeId> = gone.filter(|&node| self.router.is_linked(node)).collect();
        let peers = self.wanted_peers();
        // What the registry says by now need not be remembered from hearsay.
        let registered: Vec<NodeId> = self.known_hosts().map(|(node, _, _)| node).collect();
        self.options.hosts.retain(|node, _| !registered.contains(node));
        self.removed |= is_removed;
        let up = self.router.peers().iter().filter(|peer| peer.up).map(|peer| peer.node);
        self.roster.introductions = up.collect();
        self.roster.seen = Some(changed);
        self.carry();
        self.map_routes();
        self.roster.farewells.extend(farewells);
        if self.roster.peers != peers {
            self.router.set_peers(peers.iter().map(|(node, _)| *node));
            self.output.set_peers(peers.iter().map(|(node, _)| *node));
            self.roster.peers = peers;
            self.roster.is_untold = true;
        }
    }

    /// The registry is to be looked at again, though it has not changed.
    pub(super) fn look_again(&mut self) {
        self.roster.seen = None;
    }

    /// Tells the router who carries what, as the registry has it.
    fn map_routes(&mut self) {
        let registry = match self.groups.prime().machine() {
            Machine::Registry(registry) => registry,
            Machine::Data(_) => unreachable!("invariant: the prime shard holds the registry"),
        };
        let carriers = registry.replicas().values().filter(|replica| replica.wanted.is_some());
        self.router.set_map(registry.slots(), carriers.map(|replica| (replica.shard, replica.node)));
    }

    /// A link with a peer stands: it hears whom this node knows.
    pub(super) fn introduce(&mut self, peer: NodeId) {
        self.roster.introductions.push(peer);
    }

    /// A peer knows of a host. If the registry here does not yet, this may be the only way to learn of it: it may be the
    /// one who leads, and so the only one from whom the registry could be learnt.
    pub(super) fn heard_of(&mut self, node: NodeId, address: String) {
        let is_news = self.seat(node).is_none() && self.options.hosts.get(&node) != Some(&address);
        if is_news && self.options.hosts.len() < 2 * limits::HOSTS_MAX {
            self.options.hosts.insert(node, address);
            self.roster.seen = None;
        }
    }

    /// Everyone but this node who belongs to the cluster: those of the registry, and those whom it does not know yet here.
    /// Numbers rise, so those are behind its last one.
    fn wanted_peers(&self) -> Vec<(NodeId, String)> {
        let registry = self.registry();
        let seats = registry.seats().iter().filter(|(_, seat)| seat.standing != Standing::Removed);
        let mut nodes: Vec<NodeId> = seats.map(|(&node, _)| node).collect();
        let last = registry.seats().last_key_value().map_or(NodeId(0), |(node, _)| *node);
        nodes.extend(self.options.hosts.keys().filter(|node| **node > last));
        nodes.retain(|&node| node != self.options.host.node);
        let address = |node: NodeId| {
            let registered = registry.host(node).map(|host| &host.info.peer_address);
            let founder = || self.options.founders.get(usize::try_from(node.0).ok()?.checked_sub(1)?);
            registered.or_else(|| self.options.hosts.get(&node)).or_else(founder).cloned()
        };
        nodes.into_iter().filter_map(|node| Some((node, address(node)?))).collect()
    }

    /// Hands out what the shell and removed peers must be told. A farewell goes before the shell hangs up.
    pub(super) fn emit_roster(&mut self, frames: &mut Vec<OutgoingFrame>) -> Option<Vec<(NodeId, String)>> {
        for to in self.roster.farewells.drain(..) {
            let payload = Bytes::from_static(&[peer::KIND_FAREWELL]);
            frames.push(OutgoingFrame { to, payload, droppable: false });
        }
        if !self.roster.introductions.is_empty() {
            let known = self.known_hosts().map(|(node, _, address)| (node, address));
            let payload = Bytes::from(peer::hosts(known));
            for to in self.roster.introductions.drain(..) {
                frames.push(OutgoingFrame { to, payload: payload.clone(), droppable: false });
            }
        }
        core::mem::take(&mut self.roster.is_untold).then(|| self.roster.peers.clone())
    }

    pub(super) fn has_roster_output(&self) -> bool {
        self.roster.is_untold || !self.roster.farewells.is_empty() || !self.roster.introductions.is_empty()
    }

    /// Peers that could take the leadership of a shard over: those whose replicas are to vote, so that nobody is handed what
    /// it would have to hand back. Those that are draining or have no steady disk only if `must` and there is nobody else.
    pub(super) fn heirs(&self, shard: ShardId, must: bool) -> Vec<NodeId> {
        let voters = self.registry().wanted(shard).filter(|(_, _, role)| *role == Some(Role::Voter));
        let able = voters.map(|(_, node, _)| node).filter(|&node| self.router.is_up(node));
        let is_unfit = |node: &NodeId| {
            self.seat(*node).is_none_or(|seat| seat.draining || !seat.stays()) || !self.disks.may_lead(*node)
        };
        let (unfit, willing): (Vec<NodeId>, Vec<NodeId>) = able.partition(is_unfit);
        if willing.is_empty() && must { unfit } else { willing }
    }

    /// Lets others lead what this node leads, as far as there are others.
    pub(super) fn hand_over(&mut self, must: bool) {
        let led: Vec<ShardId> =
            self.groups.iter().filter(|group| group.leads()).map(|group| group.shard()).collect();
        for shard in led {
            let heirs = self.heirs(shard, must);
            self.groups.with(shard, |group| group.transfer_leadership(|node| heirs.contains(&node)));
        }
    }

    /// Lets this node's leaders take the next step towards what the registry wants, once a tick.
    pub(super) fn reconcile(&mut self) {
        let changed = self.registry().changed();
        let leaders: Vec<ShardId> = self
            .groups
            .iter()
            .filter(|group| group.is_unsettled(changed))
            .map(|group| group.shard())
            .collect();
        if leaders.is_empty() {
            return;
        }
        let up: Vec<NodeId> =
            self.router.peers().iter().filter(|peer| peer.answers).map(|peer| peer.node).collect();
        for shard in leaders {
            let (wanted, heirs) = (self.wanted(shard), self.heirs(shard, true));
            self.groups.with(shard, |group| {
                group.reconcile(&wanted, changed, &up, |node| heirs.contains(&node));
            });
        }
    }

    /// What the registry wants of a shard's replicas.
    fn wanted(&self, shard: ShardId) -> Wanted {
        let mut wanted = Wanted::default();
        for (replica, node, role) in self.registry().wanted(shard) {
            wanted.roles.insert(replica, role);
            wanted.nodes.insert(replica, node);
        }
        wanted
    }

    /// As the leader of the prime shard, writes down who has left.
    pub(super) fn bury(&mut self) {
        if !self.groups.prime().leads() {
            return;
        }
        let seats = self.registry().seats().iter();
        let leaving = seats.filter(|(_, seat)| seat.standing == Standing::Leaving).map(|(&node, _)| node);
        let gone: Vec<NodeId> = leaving.filter(|&node| self.is_forgotten(node)).collect();
        for node in gone {
            let write = Write::ChangeHost { node, change: HostChange::Removed };
            self.router.write(None, write, &mut self.groups);
        }
    }

    /// Whether a node can go: no shard has a replica on it, nobody would ask for its vote again, and nobody who stays knows
    /// only those who go. Of the data shards, the registry forgets a replica only then.
    fn is_forgotten(&self, node: NodeId) -> bool {
        let group = self.groups.prime();
        let mut rows = self.registry().carried_by(node).into_iter();
        !group.is_on(node)
            && rows.all(|(_, shard)| shard == ShardId::PRIME)
            && self.all_remember(group)
            && self.all_know_each_other()
    }

    /// Whether every host that stays has heard of all others that do. One that was away since before they joined would
    /// otherwise be left with nobody whom it could reach, or believe.
    fn all_know_each_other(&self) -> bool {
        let stays = |seat: &&Seat| matches!(seat.standing, Standing::Voter | Standing::Learner);
        let hosts = self.registry().seats().values().filter(stays).filter_map(|seat| seat.host.as_ref());
        let newest = hosts.clone().map(|host| host.created).max().unwrap_or_default();
        let knows = |node: NodeId| {
            let position = self.reports.get(&(node, ShardId::PRIME));
            let own = (node == self.options.host.node).then(|| self.groups.prime().applied_and_durable());
            own.or(position.map(|position| position.applied)).is_some_and(|applied| applied >= newest)
        };
        hosts.map(|host| host.info.node).all(knows)
    }

    /// Asks the leader of a shard, here or elsewhere, to let another node lead.
    pub(super) fn transfer(&mut self, shard: ShardId, to: NodeId) -> Reply {
        if !self.registry().shards().contains_key(&shard) {
            return Reply::Refused(Refusal::Invalid("there is no such shard"));
        }
        let votes = match self.groups.find(shard) {
            Some(group) => {
                let replica = group.membership().replica_on(to);
                replica.is_some_and(|replica| group.membership().voters.contains(&replica))
            }
            None => {
                self.registry().replica_on(shard, to).is_some_and(|(_, row)| row.wanted == Some(Role::Voter))
            }
        };
        if !votes {
            return Reply::Refused(Refusal::Invalid("the node has no replica of the shard that votes"));
        }
        let leader = match self.groups.find(shard) {
            Some(group) => group.leader(),
            None => self.router.leader(shard),
        };
        match leader {
            Some(leader) if leader == self.options.host.node => {
                self.groups.with(shard, |group| group.transfer_to(to));
                Reply::Asked
            }
            Some(leader) if self.router.ask_transfer(leader, shard, to) => Reply::Asked,
            _ => Reply::Refused(Refusal::NoLeader),
        }
    }

    /// For checkers: who replicates a shard, as far as this node has applied its log.
    pub fn membership(&self, shard: ShardId) -> Option<&Membership> {
        Some(self.groups.find(shard)?.membership())
    }

    /// For checkers: whether every replica that this node carries is of a shard that is replicated just as the registry
    /// wants it, as far as both are known here.
    pub fn is_as_wanted(&self) -> bool {
        let is_placed = |row: &crate::control::registry::tables::Replica| {
            row.wanted.is_some() || row.shard == ShardId::PRIME
        };
        let registry = self.registry();
        self.groups.iter().all(|group| self.wanted(group.shard()).is_true_of(group.membership()))
            && registry.seats().values().all(|seat| seat.standing != Standing::Leaving)
            && registry.replicas().values().all(is_placed)
            && placement::assignments(registry, 1).is_empty()
            && self.is_carrying_as_wanted()
            && registry.migrations().is_empty()
            && self
                .groups
                .iter()
                .all(|group| self.owned_slots(group.shard()).is_none_or(|(_, is_over)| is_over))
    }

    fn is_carrying_as_wanted(&self) -> bool {
        let own = self.registry().carried_by(self.options.host.node);
        own.len() == self.groups.iter().count()
            && own.iter().all(|(replica, shard)| {
                self.groups.find(*shard).is_some_and(|group| group.replica() == *replica)
            })
    }

    /// Forgets what nodes that are gone reported, and what was reported of shards that are.
    pub(super) fn forget_reports(&mut self) {
        let peers: Vec<NodeId> = self.roster.peers.iter().map(|(node, _)| *node).collect();
        let shards: Vec<ShardId> = self.registry().shards().keys().copied().collect();
        self.reports.retain(|(node, shard), _| peers.contains(node) && shards.binary_search(shard).is_ok());
    }
}
