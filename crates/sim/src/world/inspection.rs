//! The final inspection of a healed cluster: it serves through every node, its replicas are equal,
//! nothing is missing.
//!
//! Time is counted in ticks, as in the cluster's own timers. The bounds are generous for a cluster
//! that works and finite for one that does not.

use tidelock_core::command::config::{ConfigReply, Query};
use tidelock_core::command::{
    ClusterView, Condition, ConfigRead, Consistency, HostInfo, HostRole, NodeReply, Operation,
    OperationReply, Page, Read, ReadReply, Refusal, Reply, Request, Write,
};
use tidelock_core::event::PeerClock;
use tidelock_core::limits::{CONFIG_HISTORY_REVISIONS_MAX, LIST_PAGE_ITEMS_MAX};
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::types::{LogIndex, NodeId, ReplicaId, ShardId, Token};

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::World;
use crate::checkers::Violation;
use crate::checkers::online::Observation;
use crate::checkers::placement::{self, PlacedCluster, PlacedHost, PlacedShard};
use crate::compound::{is_compound, read_all};
use crate::event_queue::Micros;
use crate::history::value_of;
use crate::host::Host;
use crate::slots::{SLOTS, shard_of};

/// Elections that a healed cluster may need before it serves: a few, since votes may split.
const ELECTIONS_TO_SETTLE: u64 = 6;

/// Election timeouts within which all changes of membership end: each takes a few rounds, and some
/// a snapshot.
const ELECTIONS_TO_RECONCILE: u64 = 150;
/// Election timeouts within which the snapshots of a healed cluster are made: after a failed one, a
/// node waits for ten.
const ELECTIONS_TO_SETTLE_LOGS: u64 = 25;

/// Election timeouts within which a node measures the clocks of its peers again after they were
/// set.
const ELECTIONS_TO_MEASURE_CLOCKS: u64 = 25;

/// Times that a probe may be refused.
const PROBES_MAX: u32 = 3;

impl World<'_> {
    /// Inspects the cluster after [`World::heal`].
    pub(crate) fn inspect(&mut self) -> Result<(), Violation> {
        let timing = self.plan.timing;
        self.pass_ticks(ELECTIONS_TO_SETTLE * timing.election_ticks + timing.request_ticks)?;
        self.settle()?;
        self.settle_version()?;
        self.settle_division()?;
        self.check_placement()?;
        for node in self.nodes() {
            for shard in (1..=self.plan.data_shards).map(ShardId) {
                self.probe(node, shard)?;
            }
        }
        self.settle_leases()?;
        self.converge()?;
        self.check_slots()?;
        self.settle_logs()?;
        self.settle_clocks()?;
        for node in self.nodes() {
            self.check_view(node)?;
        }
        self.settle_publications()?;
        self.read_back()
    }

    /// Checks that every joining host has joined, every leaving host has left, and every shard is
    /// replicated as the registry wants it.
    pub(super) fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..ELECTIONS_TO_RECONCILE {
            if self.all_have_joined() && self.is_settled() {
                return Ok(());
            }
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        let mut text = String::from("the members of a healed cluster do not settle:");
        for host in self.hosts.iter().filter(|host| host.is_member()) {
            if let Some(registry) = host.registry() {
                text.push_str(&format!("\nnode {} knows {:?}", host.node(), registry.replicas));
                let host_entries = registry.host_entries.iter().map(|(node, host_entry)| {
                    let zone = host_entry.host.as_ref().map(|host| &host.info.tags);
                    (
                        node,
                        host_entry.standing,
                        host_entry.draining,
                        host_entry.is_barred,
                        host_entry.is_dead,
                        zone,
                    )
                });
                text.push_str(&format!(" {:?}", host_entries.collect::<Vec<_>>()));
                let tags = registry.shards.iter().map(|(shard, row)| (shard, &row.tags));
                text.push_str(&format!(" {:?}", tags.collect::<Vec<_>>()));
            }
            for shard in host.status().map(|status| status.shards).unwrap_or_default() {
                let membership = host.membership(shard.shard);
                text.push_str(&format!("\nnode {}: {shard:?} {membership:?}", host.node()));
            }
        }
        Err(Violation::new("membership", text))
    }

    fn is_settled(&self) -> bool {
        let members: Vec<_> = self.hosts.iter().filter(|host| host.is_member()).collect();
        let Some(host_entries) = members.first().and_then(|host| host.settled_host_roles()) else {
            return false;
        };
        let wanted = host_entries
            .iter()
            .filter(|(_, standing)| **standing != HostRole::Removed)
            .map(|(node, _)| *node);
        wanted.eq(members.iter().map(|host| host.node()))
            && members.iter().all(|host| host.settled_host_roles().as_ref() == Some(&host_entries))
    }

    /// Checks that the replicas of a settled cluster are on the hosts that its policies ask for.
    fn check_placement(&mut self) -> Result<(), Violation> {
        let registry = self.hosts.iter().find_map(|host| host.registry());
        let registry = registry.expect("invariant: a healed cluster has nodes");
        let hosts = registry.host_entries.iter().filter_map(|(node, row)| {
            let tags = row.host.as_ref()?.info.tags.clone();
            let is_able = row.standing == HostRole::Voter && !row.draining && !row.is_dead;
            (row.standing != HostRole::Removed).then_some((*node, PlacedHost { is_able, tags }))
        });
        let shards = registry.shards.iter().filter_map(|(shard, row)| {
            let membership = self.hosts.iter().find_map(|host| host.membership(*shard))?;
            let nodes = |replicas: &[ReplicaId]| {
                replicas.iter().filter_map(|replica| membership.node(*replica)).collect()
            };
            let (voters, learners) = (nodes(&membership.voters), nodes(&membership.learners));
            Some(PlacedShard { shard: *shard, tags: row.tags.clone(), voters, learners })
        });
        let cluster = PlacedCluster {
            default: registry.default_tags.clone(),
            hosts: hosts.collect(),
            shards: shards.collect(),
        };
        self.tally.placed += placement::judge(&cluster)?;
        Ok(())
    }

    /// Checks that every slot has one owner, the one in the registry, and that no state of a move
    /// is left.
    fn check_slots(&self) -> Result<(), Violation> {
        let registry = self.hosts.iter().find_map(|host| host.registry());
        let registry = registry.expect("invariant: a healed cluster has nodes");
        let mut all = SlotSet::default();
        for (shard, _) in registry.shards.iter().filter(|(shard, _)| *shard != ShardId::PRIME) {
            for (owned, is_over) in self.hosts.iter().filter_map(|host| host.owned_slots(*shard)) {
                if !is_over || owned != registry.slots.share(*shard) {
                    let text = format!(
                        "shard {shard} owns {owned} ({is_over}), and the registry says {}",
                        registry.slots.share(*shard)
                    );
                    return Err(Violation::new("slots", text));
                }
            }
            let share = registry.slots.share(*shard);
            if all.overlaps(&share) {
                return Err(Violation::new("slots", format!("{share} have two owners")));
            }
            all = all.union(&share);
        }
        if all != SlotSet::all() {
            return Err(Violation::new("slots", format!("only {all} have an owner")));
        }
        Ok(())
    }

    pub(super) fn pass_ticks(&mut self, ticks: u64) -> Result<(), Violation> {
        let until = self.event_queue.now() + self.plan.tick() * ticks;
        self.run_until(until)
    }

    /// Checks that a write to a shard succeeds through any node.
    fn probe(&mut self, node: NodeId, shard: ShardId) -> Result<(), Violation> {
        let data_shards = self.plan.data_shards;
        let key = self.workload.keys().iter().find(|key| shard_of(key, data_shards) == shard).cloned();
        let key = key.expect("invariant: every shard has keys");
        let mut last = None;
        for _ in 0..PROBES_MAX {
            let value = value_of(self.history.next_token(), 0);
            let write = Write::of(&Operation::Put { key: &key, value: &value, condition: Condition::Always });
            let token = self.ask(node, Request::Write(write), false);
            let reply = self.reply(token)?;
            if let Some(OperationReply::Written { .. }) = reply.only() {
                return Ok(());
            }
            last = Some(reply);
        }
        let text = format!("node {node} does not write to shard {shard} of a healed cluster: {last:?}");
        Err(Violation::new("service", text))
    }

    /// Waits for the reply to a request, which must come by its deadline.
    pub(super) fn reply(&mut self, token: Token) -> Result<Reply, Violation> {
        let deadline = self.event_queue.now() + self.plan.tick() * (self.plan.timing.request_ticks + 5);
        while self.event_queue.now() < deadline {
            if let Some(reply) = self.history.operation(token).and_then(|operation| operation.reply()) {
                return Ok(reply.clone());
            }
            self.run_until(self.event_queue.now() + Micros::MILLISECOND)?;
        }
        Err(Violation::new("replies", format!("request {token} to a healed cluster has no reply")))
    }

    /// Checks that without load all replicas reach the same last, committed and applied index.
    fn converge(&mut self) -> Result<(), Violation> {
        for _ in 0..ELECTIONS_TO_SETTLE {
            self.pass_ticks(self.plan.timing.election_ticks)?;
            if self.is_converged() {
                return self.compare_states();
            }
        }
        let positions: Vec<_> = self.hosts.iter().filter_map(|host| Some(host.status()?.shards)).collect();
        Err(Violation::new("replicas", format!("a healed cluster does not converge: {positions:?}")))
    }

    /// Checks that without load all logs become as short as they should, whichever shard retained
    /// them.
    fn settle_logs(&mut self) -> Result<(), Violation> {
        for _ in 0..ELECTIONS_TO_SETTLE_LOGS {
            if self.hosts.iter().filter(|host| host.is_member()).all(|host| self.has_short_log(host)) {
                return Ok(());
            }
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        let held: Vec<_> = self.hosts.iter().map(|host| (host.node(), host.log_held())).collect();
        Err(Violation::new("space", format!("the logs of a healed cluster stay too long: {held:?}")))
    }

    /// Checks that every node soon measures the corrected clock of every other.
    fn settle_clocks(&mut self) -> Result<(), Violation> {
        for _ in 0..ELECTIONS_TO_MEASURE_CLOCKS {
            if self.clocks_agree() {
                return Ok(());
            }
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        let clocks: Vec<_> =
            self.hosts.iter().filter_map(|host| Some((host.node(), host.status()?.clocks))).collect();
        Err(Violation::new("clocks", format!("nodes of a healed cluster see clocks apart: {clocks:?}")))
    }

    fn clocks_agree(&self) -> bool {
        let members: Vec<&Host> = self.hosts.iter().filter(|host| host.is_member()).collect();
        members.iter().all(|host| {
            let clocks = host.status().map(|status| status.clocks).unwrap_or_default();
            let is_right = |clock: &PeerClock| clock.ahead_ms.abs() <= clock.error_ms;
            clocks.len() + 1 == members.len() && clocks.iter().all(is_right)
        })
    }

    fn has_short_log(&self, host: &Host) -> bool {
        let (Some(held), Some(status)) = (host.log_held(), host.status()) else { return false };
        let snapshot_bytes: u64 = status.shards.iter().map(|shard| shard.snapshot_bytes).sum();
        held.bytes < self.plan.snapshot_log_bytes_min.max(snapshot_bytes / 2)
    }

    fn is_converged(&self) -> bool {
        let mut expected: BTreeMap<ShardId, LogIndex> = BTreeMap::new();
        self.hosts.iter().filter(|host| host.is_member()).all(|host| {
            let Some(status) = host.status() else { return false };
            status.shards.iter().all(|shard| {
                let is_settled = shard.applied == shard.last && shard.leader.is_some();
                is_settled && *expected.entry(shard.shard).or_insert(shard.applied) == shard.applied
            })
        })
    }

    fn compare_states(&mut self) -> Result<(), Violation> {
        let (now, mut seen) = (self.event_queue.now(), BTreeSet::new());
        for host in self.hosts.iter().filter(|host| host.is_member()) {
            for shard in host.status().map(|status| status.shards).unwrap_or_default() {
                let state = host.state_digest(shard.shard).expect("invariant: it carries the shard");
                self.checkers.tell(now, &Observation::State(host.node(), shard.shard, state));
                seen.insert(shard.shard);
            }
        }
        self.checkers.verdict()?;
        let slots = self.hosts.iter().filter(|host| host.is_member()).find_map(Host::slot_map);
        let shards = slots.map(|slots| slots.shards()).unwrap_or_default();
        let missing = [ShardId::PRIME].into_iter().chain(shards).find(|shard| !seen.contains(shard));
        match missing {
            Some(shard) => Err(Violation::new("replicas", format!("no node replicates shard {shard}"))),
            None => Ok(()),
        }
    }

    /// Checks that every node knows every host's uuid, is connected to it, and knows every shard's
    /// leader, within a few elections: leaderships are still being balanced.
    fn check_view(&mut self, node: NodeId) -> Result<(), Violation> {
        let mut seen = String::new();
        for _ in 0..ELECTIONS_TO_SETTLE {
            let token = self.ask(node, Request::Cluster, true);
            let reply = self.reply(token)?;
            let Reply::Node(NodeReply::Cluster(view)) = &reply else {
                let text = format!("{reply:?} answers a question for the cluster");
                return Err(Violation::new("registry", text));
            };
            if self.is_whole(view) {
                return Ok(());
            }
            seen = format!("{view:?}");
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        let text = format!("node {node} of a healed cluster does not know all of it: {seen}");
        Err(Violation::new("registry", text))
    }

    fn is_whole(&self, view: &ClusterView) -> bool {
        let members: Vec<&HostInfo> =
            self.hosts.iter().filter(|host| host.is_member()).map(|host| host.info()).collect();
        let hosts_known = view.hosts.iter().map(|host| &host.info).eq(members)
            && view.hosts.iter().all(|host| host.connected);
        let shards_known = view.shards.iter().any(|shard| shard.shard == ShardId::PRIME)
            && view.shards.iter().map(|shard| u64::from(shard.slots)).sum::<u64>() == SLOTS;
        let leaders_known = view.shards.iter().all(|shard| shard.leader.is_some());
        hosts_known && shards_known && leaders_known
    }

    /// Reads everything through every node: from the leader's state, key by key, and from the
    /// node's own.
    fn read_back(&mut self) -> Result<(), Violation> {
        let mut expected: Option<Page> = None;
        for node in self.nodes() {
            for consistency in [Consistency::Linearizable, Consistency::Stale] {
                let mut page = self.list(node, consistency)?;
                // These may expire at any time; `operations` checks against the log that they
                // expire everywhere.
                page.items.retain(|item| !is_compound(&item.key));
                let expected = expected.get_or_insert_with(|| page.clone());
                if *expected != page {
                    let text = format!("node {node} lists otherwise than others ({consistency:?})");
                    return Err(Violation::new("replicas", text));
                }
            }
            for key in self.workload.keys().to_vec() {
                let read = Read::Get { key };
                let token =
                    self.ask(node, Request::Read { read, consistency: Consistency::Linearizable }, true);
                self.reply(token)?;
            }
            for keys in self.workload.compound_keys() {
                for consistency in [Consistency::Linearizable, Consistency::Stale] {
                    let token = self.ask(node, Request::Read { read: read_all(&keys), consistency }, true);
                    self.reply(token)?;
                }
            }
        }
        self.read_configuration()?;
        self.compare_key_watchers()?;
        self.compare_caches()
    }

    /// Reads all configuration, with its history, through every node, and checks that no watcher
    /// has missed a change.
    fn read_configuration(&mut self) -> Result<(), Violation> {
        for (node, namespace) in self
            .nodes()
            .into_iter()
            .flat_map(|node| {
                let names = [self.workload.namespaces(), self.workload.inheriting_namespaces()].concat();
                names.into_iter().map(move |name| (node, name))
            })
            .collect::<Vec<_>>()
        {
            let ask = |query| {
                let read = Read::Config(ConfigRead { namespace: namespace.clone(), query });
                Request::Read { read, consistency: Consistency::Linearizable }
            };
            let token = self.ask(node, ask(Query::Export { at: None }), true);
            if let Reply::Read(ReadReply::Config(Err(_))) = self.reply(token)? {
                continue;
            }
            let history =
                Query::History { item: None, before: None, limit: CONFIG_HISTORY_REVISIONS_MAX as usize };
            let token = self.ask(node, ask(history), true);
            let Reply::Read(ReadReply::Config(Ok(ConfigReply::History(page)))) = self.reply(token)? else {
                return Err(Violation::new("config", format!("node {node} shows no history of {namespace}")));
            };
            let token = self.ask(node, ask(Query::Export { at: Some(page.oldest) }), true);
            self.reply(token)?;
        }
        // Enough time for watchers at nodes without a replica.
        self.pass_ticks(3 * self.plan.timing.election_ticks)?;
        (0..self.watchers.len()).try_for_each(|position| self.check_watcher(position))
    }

    /// Checks that a watcher knows the present state and has missed no change.
    fn check_watcher(&mut self, position: usize) -> Result<(), Violation> {
        let client = &self.watchers[position];
        let (present, missed) = (client.present(), client.missed());
        let Some(node) = client.node else {
            return Err(Violation::new("config", format!("watcher {position} has never connected")));
        };
        let present = self.read_at(node, present)?;
        // While a host runs an earlier release, watches of namespaces are refused.
        if present == Reply::Refused(Refusal::VersionTooLow) && self.plan.is_mixed() {
            return Ok(());
        }
        let client = &self.watchers[position];
        if !client.knows(&present) {
            let last = client.received.last();
            let text = format!("a watcher at node {node} received {last:?} last: {present:?}");
            return Err(Violation::new("config", text));
        }
        let missed = self.read_at(node, missed)?;
        match self.watchers[position].has_received(&missed) {
            Some(true) => Ok(()),
            Some(false) => {
                let text = format!("a watcher at node {node} has not received {missed:?}");
                Err(Violation::new("config", text))
            }
            None => Err(Violation::new("config", format!("node {node} does not answer watcher {position}"))),
        }
    }

    /// Checks that every client that watches keys soon knows the present state.
    fn compare_key_watchers(&mut self) -> Result<(), Violation> {
        for _ in 0..ELECTIONS_TO_SETTLE {
            if self.ignorant_key_watcher()?.is_none() {
                return Ok(());
            }
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        match self.ignorant_key_watcher()? {
            Some(text) => Err(Violation::new("key watches", text)),
            None => Ok(()),
        }
    }

    /// Checks that clients that cache keys soon have the present values alone.
    fn compare_caches(&mut self) -> Result<(), Violation> {
        for _ in 0..ELECTIONS_TO_SETTLE {
            if self.outdated_cache()?.is_none() {
                return Ok(());
            }
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        match self.outdated_cache()? {
            Some(text) => Err(Violation::new("caches", text)),
            None => Ok(()),
        }
    }

    /// Compares what the clients know with a list of all keys. Returns the first difference.
    fn ignorant_key_watcher(&mut self) -> Result<Option<String>, Violation> {
        let node = self.nodes()[0];
        let page = self.list(node, Consistency::Linearizable)?;
        for (position, client) in self.key_watchers.iter().enumerate() {
            let known = client.known();
            // While a host runs an earlier release, watches are refused.
            if !known.is_live && self.plan.is_mixed() {
                continue;
            }
            if !known.is_live {
                return Ok(Some(format!("key watcher {position} at {:?} is not served", client.node)));
            }
            let items = || page.items.iter().filter(|item| client.scope.contains(&item.key));
            for item in items() {
                let held = known.present.get(&item.key).map(|(version, content)| (*version, &content.value));
                if held.is_none() && !known.is_whole && !known.absent.contains_key(&item.key) {
                    continue;
                }
                if held != Some((item.version, &item.value)) {
                    let text = format!("key watcher {position} knows {held:?} instead of {item:?}");
                    return Ok(Some(text));
                }
            }
            let is_there = |key: &Bytes| items().any(|item| item.key == *key);
            if let Some(key) = known.present.keys().find(|key| !is_there(key)) {
                let text = format!("key watcher {position} knows {key:?}, which does not exist");
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// The answer to a watcher at a node, from the node itself or through it.
    fn read_at(&mut self, node: NodeId, read: ConfigRead) -> Result<Reply, Violation> {
        if let Some(reply) = self.hosts[(node.0 - 1) as usize].look(&Read::Config(read.clone())) {
            return Ok(reply);
        }
        let request = Request::Read { read: Read::Config(read), consistency: Consistency::Linearizable };
        let token = self.ask(node, request, true);
        self.reply(token)
    }

    pub(super) fn list(&mut self, node: NodeId, consistency: Consistency) -> Result<Page, Violation> {
        let read =
            Read::List { prefix: Bytes::new(), after: None, limit: LIST_PAGE_ITEMS_MAX, keys_only: false };
        let token = self.ask(node, Request::Read { read, consistency }, true);
        match self.reply(token)? {
            Reply::Read(ReadReply::Page(page)) => Ok(page),
            other => Err(Violation::new("service", format!("node {node} does not list: {other:?}"))),
        }
    }
}
