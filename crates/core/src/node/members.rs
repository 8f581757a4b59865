//! Membership as a node sees it: which hosts the registry wants, which it is to talk to, and what its leaders do about
//! both.
//!
//! The registry says what is wanted of each host; every host follows it without a vote at least. Each leader of a
//! shard takes the steps for its shard (`raft::membership`). A host that leaves goes out of the data shards first and
//! out of the prime shard last, where it learns of it; then the leader of the prime shard writes that it is gone, and
//! everyone tells it so and hangs up.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use super::Node;
use crate::command::{HostChange, Refusal, Reply, Standing, Write};
use crate::control::registry::Seat;
use crate::event::OutgoingFrame;
use crate::limits;
use crate::membership::{Membership, Role};
use crate::peer;
use crate::types::{LogIndex, NodeId, ReplicaId, ShardId};

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
        let farewells: Vec<NodeId> = gone.filter(|&node| self.router.is_up(node)).collect();
        let peers = self.wanted_peers();
        // What the registry says by now need not be remembered from hearsay.
        let registered: Vec<NodeId> = self.known_hosts().map(|(node, _, _)| node).collect();
        self.options.hosts.retain(|node, _| !registered.contains(node));
        self.removed |= is_removed;
        let up = self.router.peers().iter().filter(|peer| peer.up).map(|peer| peer.node);
        self.roster.introductions = up.collect();
        self.roster.seen = Some(changed);
        self.roster.farewells.extend(farewells);
        if self.roster.peers != peers {
            self.router.set_peers(peers.iter().map(|(node, _)| *node));
            self.output.set_peers(peers.iter().map(|(node, _)| *node));
            self.roster.peers = peers;
            self.roster.is_untold = true;
        }
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

    /// Peers that could take a leadership over. Those that are draining or cannot write only if `must` and there is nobody
    /// else.
    pub(super) fn heirs(&self, must: bool) -> Vec<NodeId> {
        let up = self.router.peers().iter().filter(|peer| peer.up).map(|peer| peer.node);
        let seat_of = |node: NodeId| Some((node, self.seat(node)?));
        let voters = up.filter_map(seat_of).filter(|(_, seat)| seat.standing == Standing::Voter);
        let is_unfit =
            |(node, seat): &(NodeId, &Seat)| seat.draining || self.disks.peers_stalled.contains(node);
        let (unfit, willing): (Vec<_>, Vec<_>) = voters.partition(is_unfit);
        let heirs = if willing.is_empty() && must { unfit } else { willing };
        heirs.into_iter().map(|(node, _)| node).collect()
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
        let heirs = self.heirs(true);
        let up: Vec<NodeId> =
            self.router.peers().iter().filter(|peer| peer.up).map(|peer| peer.node).collect();
        let is_someone_leaving =
            self.registry().seats().values().any(|seat| seat.standing == Standing::Leaving);
        for shard in leaders {
            let wanted = self.wanted_roles(shard);
            // What the prime shard wants of a host that leaves depends on the data shards too.
            let is_final = shard != ShardId::PRIME || !is_someone_leaving;
            self.groups.with(shard, |group| {
                group.reconcile(&wanted, is_final.then_some(changed), &up, |node| heirs.contains(&node));
            });
        }
    }

    /// What each replica of a shard should be.
    fn wanted_roles(&self, shard: ShardId) -> BTreeMap<ReplicaId, Option<Role>> {
        let role = |(&node, seat): (&NodeId, &Seat)| {
            let role = match seat.standing {
                Standing::Voter => Some(Role::Voter),
                Standing::Learner => Some(Role::Learner),
                Standing::Leaving if shard == ShardId::PRIME && self.carries_data(node) => {
                    Some(Role::Learner)
                }
                Standing::Leaving | Standing::Removed => None,
            };
            (self.numbering.replica(shard, node), role)
        };
        self.registry().seats().iter().map(role).collect()
    }

    /// Whether a replica of a data shard is on a node, as far as this one knows.
    fn carries_data(&self, node: NodeId) -> bool {
        self.groups.iter().any(|group| group.shard() != ShardId::PRIME && group.is_on(node))
    }

    /// As the leader of the prime shard, writes down who has left.
    pub(super) fn bury(&mut self) {
        if !self.groups.get(ShardId::PRIME).leads() {
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
    /// only those who go.
    fn is_forgotten(&self, node: NodeId) -> bool {
        self.groups.iter().all(|group| {
            let changed = group.membership().changed;
            let remembers = |voter: NodeId| {
                let reported = self.reports.get(&(voter, group.shard())).map(|position| position.remembered);
                let known = if voter == self.options.host.node { Some(group.remembered()) } else { reported };
                known.is_some_and(|remembered| remembered >= changed)
            };
            let mut voters = group.carriers().filter(|(_, _, role)| *role == Role::Voter);
            !group.is_on(node) && voters.all(|(voter, _, _)| remembers(voter))
        }) && self.all_know_each_other()
    }

    /// Whether every host that stays has heard of all others that do. One that was away since before they joined would
    /// otherwise be left with nobody whom it could reach, or believe.
    fn all_know_each_other(&self) -> bool {
        let stays = |seat: &&Seat| matches!(seat.standing, Standing::Voter | Standing::Learner);
        let hosts = self.registry().seats().values().filter(stays).filter_map(|seat| seat.host.as_ref());
        let newest = hosts.clone().map(|host| host.created).max().unwrap_or_default();
        let knows = |node: NodeId| {
            let position = self.reports.get(&(node, ShardId::PRIME));
            position.is_some_and(|position| position.applied >= newest)
        };
        hosts.map(|host| host.info.node).all(|node| node == self.options.host.node || knows(node))
    }

    /// Asks the leader of a shard, here or elsewhere, to let another node lead.
    pub(super) fn transfer(&mut self, shard: ShardId, to: NodeId) -> Reply {
        let replica = self.numbering.replica(shard, to);
        let Some(group) = self.groups.find(shard) else {
            return Reply::Refused(Refusal::Invalid("there is no such shard"));
        };
        if !group.membership().voters.contains(&replica) {
            return Reply::Refused(Refusal::Invalid("the node has no replica of the shard that votes"));
        }
        match group.leader() {
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
        self.groups.iter().all(|group| {
            let wanted = self.wanted_roles(group.shard());
            let membership = group.membership();
            !membership.is_joint() && wanted.iter().all(|(&replica, &role)| membership.role(replica) == role)
        }) && self.registry().seats().values().all(|seat| seat.standing != Standing::Leaving)
    }

    /// Forgets what nodes that are gone reported.
    pub(super) fn forget_reports(&mut self) {
        let peers: Vec<NodeId> = self.roster.peers.iter().map(|(node, _)| *node).collect();
        self.reports.retain(|(node, _), _| peers.contains(node));
    }
}
