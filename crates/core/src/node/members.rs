//! Membership as a node sees it: the hosts in the registry, the peers to connect to, and the
//! reconciliation of shards by the leaders on this node.
//!
//! The registry holds the wanted state of each replica (`placing`). The leader of each shard takes
//! the steps for its shard (`raft::membership`). A host that leaves is removed from the data shards
//! first and from the prime shard last, through which it learns of its removal. Then the leader of
//! the prime shard records that it is gone. All peers tell it so in a last frame and close their
//! connections.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use super::Node;
use crate::audit::AuditTrail;
use crate::auth::{Access, Authorities, Caller};
use crate::command::{HostChange, HostRole, NodeReply, Refusal, RegistryWrite, Reply, Write};
use crate::control::placement;
use crate::event::OutgoingFrame;
use crate::limits;
use crate::machine::Machine;
use crate::membership::{Membership, Role};
use crate::peer;
use crate::peer::DiskState;
use crate::raft::Wanted;
use crate::router::Requester;
use crate::topology::HostEntry;
use crate::types::{LogIndex, NodeId, ShardId};

/// The state that a node has derived from the registry.
#[derive(Default)]
pub(super) struct AppliedRegistry {
    /// [`Registry::changed`](crate::control::registry::Registry::changed) of the registry that was
    /// last applied here.
    seen: Option<LogIndex>,
    peers: Vec<(NodeId, String)>,
    /// Whether `peers` has changed since the shell was informed.
    is_unreported: bool,
    /// Removed peers that must be sent their last frame.
    removal_notices: Vec<NodeId>,
    /// Peers that should be told which hosts this node knows.
    introductions: Vec<NodeId>,
    /// Addresses of registered hosts that differ from the registry's.
    reported: BTreeMap<NodeId, ReportedAddress>,
}

/// An address of a host that a peer reported: of itself, or of another host.
#[derive(PartialEq, Eq)]
struct ReportedAddress {
    address: String,
    /// The address in this node's registry at the time. Once the registry has another one, the
    /// report is over.
    instead_of: String,
}

impl Node {
    /// The peers to which this node should have a connection, with their addresses.
    pub fn peers(&self) -> &[(NodeId, String)] {
        &self.applied_registry.peers
    }

    /// The registry's entry of a node number, so that the transport can refuse an unauthorized
    /// node.
    pub fn host_entry(&self, node: NodeId) -> Option<&HostEntry> {
        self.registry().host_entries().get(&node)
    }

    /// The cluster's CAs and join tokens, as this node has applied them. Replaced as a whole when
    /// they change.
    pub fn authorities(&self) -> &Arc<Authorities> {
        self.registry().authorities()
    }

    /// Roles, principals and tokens, as this node has applied them. Replaced when they change.
    pub fn access(&self) -> &Arc<Access> {
        self.registry().access()
    }

    /// Whether [`Node::access`] is at least as new as the start of this node. If not, tokens may be
    /// required without this node knowing it.
    pub fn knows_access(&self) -> bool {
        self.router.knows_access()
    }

    /// The records of administrative changes, as this node has applied them.
    pub fn audit(&self) -> &AuditTrail {
        self.registry().audit()
    }

    /// Disk uuid and peer address of every host that belongs to the cluster, for the control file.
    pub fn known_hosts(&self) -> impl Iterator<Item = (NodeId, Uuid, &str)> {
        let host_entries = self
            .registry()
            .host_entries()
            .iter()
            .filter(|(_, host_entry)| host_entry.standing != HostRole::Removed);
        host_entries.filter_map(|(&node, host_entry)| {
            let info = &host_entry.host.as_ref()?.info;
            Some((node, info.uuid, info.peer_address.as_str()))
        })
    }

    /// Applies changes of the registry to this node.
    pub(super) fn follow_registry(&mut self) {
        let changed = self.registry().changed();
        if self.applied_registry.seen == Some(changed) {
            return;
        }
        self.record_version(self.registry().version());
        let own = self.options.host.node;
        let is_gone = |node: NodeId| {
            self.host_entry(node).is_some_and(|host_entry| host_entry.standing == HostRole::Removed)
        };
        let is_removed = is_gone(own);
        let gone = self.applied_registry.peers.iter().map(|(node, _)| *node).filter(|&node| is_gone(node));
        let removal_notices: Vec<NodeId> = gone.filter(|&node| self.router.is_linked(node)).collect();
        let peers = self.wanted_peers();
        // Hosts that the registry contains need not be remembered from indirect reports.
        let registered: Vec<NodeId> = self.known_hosts().map(|(node, _, _)| node).collect();
        self.options.hosts.retain(|node, _| !registered.contains(node));
        self.applied_registry.reported.retain(|node, _| registered.contains(node));
        self.removed |= is_removed;
        let up = self.router.peers().iter().filter(|peer| peer.up).map(|peer| peer.node);
        self.applied_registry.introductions = up.collect();
        self.applied_registry.seen = Some(changed);
        let access = self.registry().access().clone();
        // The client that changed permissions is answered once every node has reported this.
        self.report_due |= self.router.set_access(&access);
        self.update_replicas();
        self.map_routes();
        self.applied_registry.removal_notices.extend(removal_notices);
        self.set_peers(peers);
    }

    /// Whether there may be changes of roles, principals or tokens that this node has not applied
    /// at its start: there are some in its registry or its log, or it has joined and not seen the
    /// registry since.
    pub(super) fn may_miss_access(&self) -> bool {
        let own = &self.options.host;
        if self.registry().access().revision() > LogIndex(0) {
            return true;
        }
        let mut has_seen_itself = self.options.prime_replica.is_none() || self.host_entry(own.node).is_some();
        for writes in self.groups.prime().logged_writes() {
            let Ok(writes) = writes else { return true };
            for write in writes {
                let Write::Registry(write) = write else { continue };
                match write.change() {
                    RegistryWrite::Access(_) => return true,
                    RegistryWrite::JoinHost(host) => has_seen_itself |= host.uuid == own.uuid,
                    _ => {}
                }
            }
        }
        !has_seen_itself
    }

    fn set_peers(&mut self, peers: Vec<(NodeId, String)>) {
        if self.applied_registry.peers != peers {
            self.router.set_peers(peers.iter().map(|(node, _)| *node));
            self.output.set_peers(peers.iter().map(|(node, _)| *node));
            self.applied_registry.peers = peers;
            self.applied_registry.is_unreported = true;
        }
    }

    /// Makes the next [`Node::follow_registry`] apply the registry even if it has not changed.
    pub(super) fn reapply_registry(&mut self) {
        self.applied_registry.seen = None;
    }

    /// Gives the router the slot map and the nodes of all replicas.
    fn map_routes(&mut self) {
        let registry = match self.groups.prime().machine() {
            Machine::Registry(registry) => registry,
            Machine::Data(_) => unreachable!("invariant: the prime shard holds the registry"),
        };
        let replicas = registry.replicas().values().filter(|replica| replica.wanted.is_some());
        self.router.set_version(registry.version());
        self.router.set_map(registry.slots(), replicas.map(|replica| (replica.shard, replica.node)));
    }

    /// Schedules the list of known hosts for a peer whose connection is established.
    pub(super) fn introduce(&mut self, peer: NodeId) {
        self.applied_registry.introductions.push(peer);
    }

    /// Records a host that a peer knows, or the peer's own address. If this node's registry does
    /// not contain it, or contains an address that the host no longer has, this may be the only way
    /// to learn of it: the host may be the leader, and so the only source of a newer registry.
    pub(super) fn learn_host(&mut self, from: NodeId, node: NodeId, address: String) {
        let Some(host_entry) = self.host_entry(node) else {
            let is_news = self.options.hosts.get(&node) != Some(&address);
            if is_news && self.options.hosts.len() < 2 * limits::HOSTS_MAX {
                self.options.hosts.insert(node, address);
                self.applied_registry.seen = None;
            }
            return;
        };
        let Some(host) = &host_entry.host else { return };
        // What others say of a linked host is older than what it says itself.
        if node == self.options.host.node || (from != node && self.router.is_linked(node)) {
            return;
        }
        let report = ReportedAddress { address, instead_of: host.info.peer_address.clone() };
        let is_known = match self.applied_registry.reported.get(&node) {
            Some(known) if known.instead_of == report.instead_of => *known == report,
            _ => report.address == report.instead_of,
        };
        if is_known {
            return;
        }
        self.applied_registry.reported.insert(node, report);
        let peers = self.wanted_peers();
        self.set_peers(peers);
        // Only what a host says of itself is passed on: two hosts with different reports of a third
        // would exchange them without end.
        if from == node {
            let up = self.router.peers().iter().filter(|peer| peer.up).map(|peer| peer.node);
            self.applied_registry.introductions = up.collect();
        }
    }

    /// The latest known peer address of a registered host: its own, one that was reported since the
    /// registry changed, or the registered one.
    fn latest_address<'a>(&'a self, node: NodeId, registered: &'a str) -> &'a str {
        if node == self.options.host.node {
            return &self.options.host.peer_address;
        }
        let report = self.applied_registry.reported.get(&node);
        let current = report.filter(|report| report.instead_of == registered);
        current.map_or(registered, |report| &report.address)
    }

    /// All other hosts of the cluster: those in the registry, and those known from peers that are
    /// newer than this node's registry. Node numbers rise, so newer hosts have numbers above its
    /// last.
    fn wanted_peers(&self) -> Vec<(NodeId, String)> {
        let registry = self.registry();
        let host_entries =
            registry.host_entries().iter().filter(|(_, host_entry)| host_entry.standing != HostRole::Removed);
        let mut nodes: Vec<NodeId> = host_entries.map(|(&node, _)| node).collect();
        let last = registry.host_entries().last_key_value().map_or(NodeId(0), |(node, _)| *node);
        nodes.extend(self.options.hosts.keys().filter(|node| **node > last));
        nodes.retain(|&node| node != self.options.host.node && !self.versions.excludes(node));
        let address = |node: NodeId| {
            let host = registry.host(node);
            let registered = host.map(|host| self.latest_address(node, &host.info.peer_address));
            let founder = || self.options.founders.get(usize::try_from(node.0).ok()?.checked_sub(1)?);
            let other = || self.options.hosts.get(&node).or_else(founder);
            registered.or_else(|| other().map(String::as_str)).map(String::from)
        };
        nodes.into_iter().filter_map(|node| Some((node, address(node)?))).collect()
    }

    /// Emits the frames for removed and newly connected peers, and the new set of peers. The last
    /// frame to a removed peer must be queued before the shell closes the connection.
    pub(super) fn emit_peers(&mut self, frames: &mut Vec<OutgoingFrame>) -> Option<Vec<(NodeId, String)>> {
        for to in self.applied_registry.removal_notices.drain(..) {
            let payload = Bytes::from_static(&[peer::KIND_REMOVED]);
            frames.push(OutgoingFrame { to, payload, droppable: false });
        }
        if !self.applied_registry.introductions.is_empty() {
            let known =
                self.known_hosts().map(|(node, _, address)| (node, self.latest_address(node, address)));
            let payload = Bytes::from(peer::hosts(known));
            let introductions = self.applied_registry.introductions.drain(..);
            for to in introductions.filter(|&to| !self.versions.excludes(to)) {
                frames.push(OutgoingFrame { to, payload: payload.clone(), droppable: false });
            }
        }
        core::mem::take(&mut self.applied_registry.is_unreported).then(|| self.applied_registry.peers.clone())
    }

    pub(super) fn has_roster_output(&self) -> bool {
        self.applied_registry.is_unreported
            || !self.applied_registry.removal_notices.is_empty()
            || !self.applied_registry.introductions.is_empty()
    }

    /// Reachable peers that could take over the leadership of a shard. Their replicas should vote,
    /// because another leader would have to transfer the leadership back. Peers that are draining
    /// or whose disks are not healthy are returned only if `must` is set and there are no others.
    pub(super) fn successors(&self, shard: ShardId, must: bool) -> Vec<NodeId> {
        let voters = self.registry().wanted(shard).filter(|(_, _, role)| *role == Some(Role::Voter));
        let able = voters.map(|(_, node, _)| node).filter(|&node| self.router.is_up(node));
        let (willing, unfit): (Vec<NodeId>, Vec<NodeId>) = able.partition(|&node| self.may_lead(node));
        if willing.is_empty() && must { unfit } else { willing }
    }

    /// Whether a host may lead: it stays, is not draining, and its disk is healthy.
    pub(super) fn may_lead(&self, node: NodeId) -> bool {
        let is_own = node == self.options.host.node;
        let has_healthy_disk =
            if is_own { self.disks.own() == DiskState::Healthy } else { self.disks.may_lead(node) };
        has_healthy_disk && self.host_entry(node).is_some_and(|entry| entry.stays() && !entry.draining)
    }

    /// Whether a node is this one, or has a connection to it.
    pub(super) fn is_reachable(&self, node: NodeId) -> bool {
        node == self.options.host.node || self.router.is_up(node)
    }

    /// Transfers the leaderships of this node, as far as there are successors.
    pub(super) fn hand_over(&mut self, must: bool) {
        let led: Vec<ShardId> =
            self.groups.iter().filter(|group| group.leads()).map(|group| group.shard()).collect();
        for shard in led {
            let successors = self.successors(shard, must);
            self.groups.with(shard, |group| group.transfer_leadership(|node| successors.contains(&node)));
        }
    }

    /// Lets the leaders on this node take the next step towards the wanted membership, once a tick.
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
            let (wanted, successors) = (self.wanted(shard), self.successors(shard, true));
            self.groups.with(shard, |group| {
                group.reconcile(&wanted, changed, &up, |node| successors.contains(&node));
            });
        }
    }

    /// The wanted replicas of a shard, from the registry. A member without a row that the registry
    /// once had is not wanted: its row was forgotten while a leader with an older registry added
    /// it. A member that the registry never had is newer than the registry.
    pub(super) fn wanted(&self, shard: ShardId) -> Wanted {
        let mut wanted = Wanted::default();
        for (replica, node, role) in self.registry().wanted(shard) {
            wanted.roles.insert(replica, role);
            wanted.nodes.insert(replica, node);
        }
        let (last, _) = self.registry().last_numbers();
        let group = self.groups.find(shard).filter(|_| self.registry().shards().contains_key(&shard));
        for (_, replica, _) in group.iter().flat_map(|group| group.replicas()) {
            if replica <= last {
                wanted.roles.entry(replica).or_insert(None);
            }
        }
        wanted
    }

    /// Proposes the removal of hosts that have left, if this node leads the prime shard.
    pub(super) fn remove_departed_hosts(&mut self) {
        if !self.groups.prime().leads() {
            return;
        }
        let host_entries = self.registry().host_entries().iter();
        let leaving = host_entries
            .filter(|(_, host_entry)| host_entry.standing == HostRole::Leaving)
            .map(|(&node, _)| node);
        let gone: Vec<NodeId> = leaving.filter(|&node| self.is_forgotten(node)).collect();
        for node in gone {
            let write = Write::from(RegistryWrite::ChangeHost { node, change: HostChange::Removed });
            self.router.write(Requester::NODE, write, &mut self.groups);
        }
    }

    /// Whether a leaving node can be removed: no shard has a replica on it, no voter would ask for
    /// its vote again, and no remaining host depends on it for knowing the others. The second
    /// condition needs no check for data shards, because the registry forgets their replicas only
    /// when it holds.
    fn is_forgotten(&self, node: NodeId) -> bool {
        let group = self.groups.prime();
        let mut rows = self.registry().replicas_on(node).into_iter();
        !group.is_on(node)
            && rows.all(|(_, shard)| shard == ShardId::PRIME)
            && self.all_persisted(group)
            && self.all_know_each_other()
    }

    /// Whether every remaining host knows all other remaining hosts. Otherwise, a host that was
    /// away since before the others joined could be left without any peer that it can reach or
    /// trust.
    fn all_know_each_other(&self) -> bool {
        let stays =
            |host_entry: &&HostEntry| matches!(host_entry.standing, HostRole::Voter | HostRole::Learner);
        let hosts = self
            .registry()
            .host_entries()
            .values()
            .filter(stays)
            .filter_map(|host_entry| host_entry.host.as_ref());
        let newest = hosts.clone().map(|host| host.created).max().unwrap_or_default();
        let knows = |node: NodeId| {
            let position = self.reports.get(&(node, ShardId::PRIME));
            let own = (node == self.options.host.node).then(|| self.groups.prime().applied_and_durable());
            own.or(position.map(|position| position.applied)).is_some_and(|applied| applied >= newest)
        };
        hosts.map(|host| host.info.node).all(knows)
    }

    /// Asks the leader of a shard, on this or another node, to transfer leadership to a node.
    pub(super) fn transfer(&mut self, caller: Caller, shard: ShardId, to: NodeId) -> Reply {
        if !self.registry().shards().contains_key(&shard) {
            return Reply::Refused(Refusal::invalid("there is no such shard"));
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
            return Reply::Refused(Refusal::invalid("the node has no replica of the shard that votes"));
        }
        match self.leader(shard) {
            Some(leader) if leader == self.options.host.node => {
                self.groups.with(shard, |group| group.transfer_to(to));
                Reply::Node(NodeReply::Asked)
            }
            Some(leader) if self.router.ask_transfer(leader, &caller, (shard, to)) => {
                Reply::Node(NodeReply::Asked)
            }
            _ => Reply::Refused(Refusal::NoLeader),
        }
    }

    /// For checkers: the membership of a shard, as far as this node has applied its log.
    pub fn membership(&self, shard: ShardId) -> Option<&Membership> {
        Some(self.groups.find(shard)?.membership())
    }

    /// For checkers: whether every shard with a replica here is replicated as the registry wants,
    /// as far as this node knows both.
    pub fn is_as_wanted(&self) -> bool {
        let is_placed = |row: &crate::topology::Replica| row.wanted.is_some() || row.shard == ShardId::PRIME;
        let registry = self.registry();
        self.groups.iter().all(|group| self.wanted(group.shard()).matches(group.membership()))
            && registry.host_entries().values().all(|host_entry| host_entry.standing != HostRole::Leaving)
            && registry.replicas().values().all(is_placed)
            && placement::assignments(registry, 1).is_empty()
            && placement::balance(registry).is_empty()
            && self.is_carrying_as_wanted()
            && registry.migrations().is_empty()
            && self
                .groups
                .iter()
                .all(|group| self.owned_slots(group.shard()).is_none_or(|(_, is_over)| is_over))
    }

    fn is_carrying_as_wanted(&self) -> bool {
        let own = self.registry().replicas_on(self.options.host.node);
        own.len() == self.groups.iter().count()
            && own.iter().all(|(replica, shard)| {
                self.groups.find(*shard).is_some_and(|group| group.replica() == *replica)
            })
    }

    /// Forgets the reports of removed nodes, and reports about removed shards.
    pub(super) fn forget_reports(&mut self) {
        let peers: Vec<NodeId> = self.applied_registry.peers.iter().map(|(node, _)| *node).collect();
        let shards: Vec<ShardId> = self.registry().shards().keys().copied().collect();
        self.reports.retain(|(node, shard), _| peers.contains(node) && shards.binary_search(shard).is_ok());
    }
}
