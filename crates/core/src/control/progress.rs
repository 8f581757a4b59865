//! Progress: what a requested change of hosts, leaders or slots still waits for.
//!
//! Owns when a change is done and how the rest is described, as functions of the cluster view of
//! one node. That view may be behind, so a change counts as done only when the view shows both the
//! wanted state and its effects.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::command::{ClusterView, HostRole, HostView, RegistryView, ReplicaView, ShardView};
use crate::types::{MigrationId, NodeId, ShardId};

/// What a change of the cluster leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The node may vote. In a cluster without a default placement, it votes in every shard.
    Votes(NodeId),
    /// The node votes in no shard. In a cluster without a default placement, it follows in every
    /// shard.
    Follows(NodeId),
    /// The node leads no shard.
    LeadsNothing(NodeId),
    /// The node may lead shards again.
    MayLead(NodeId),
    /// The node is no longer a member of the cluster.
    Gone(NodeId),
    /// The node leads a certain shard.
    Leads {
        /// The shard.
        shard: ShardId,
        /// The node that should lead it.
        node: NodeId,
    },
}

/// Whether a node knows all moves of slots up to `until`, and none of them remains to be done.
pub fn are_moves_done(view: &RegistryView, until: MigrationId) -> bool {
    view.last_migration >= until && view.migrations.iter().all(|(id, _)| *id > until)
}

impl Goal {
    /// Everything that is missing for the goal according to `view`; empty once it is reached.
    pub fn missing(self, view: &ClusterView) -> Vec<String> {
        let mut missing = match self {
            Goal::Votes(node) => role_missing(view, node, HostRole::Voter),
            Goal::Follows(node) => role_missing(view, node, HostRole::Learner),
            Goal::LeadsNothing(node) => leads_missing(view, node),
            Goal::MayLead(node) => match known(view, node) {
                Ok(host) if !host.draining => vec![],
                Ok(_) => not_shown(view, node, "as one that may lead"),
                Err(unknown) => unknown,
            },
            Goal::Gone(node) => departure_missing(view, node),
            Goal::Leads { shard, node } => match view.shards.iter().find(|other| other.shard == shard) {
                None => vec![format!("node {} knows no shard {shard}", view.node)],
                Some(shard) => match shard.leader {
                    Some(leader) if leader == node => vec![],
                    leader => vec![format!("shard {}: {}", shard.shard, leads(leader))],
                },
            },
        };
        if !missing.is_empty() {
            let is_missed = |host: &&HostView| !host.connected && Goal::Gone(host.info.node) != self;
            let disconnected = view.hosts.iter().filter(is_missed);
            missing.extend(disconnected.map(|host| format!("node {} is not connected", host.info.node)));
        }
        missing
    }
}

/// What is missing until a host is a voter, or a learner, in every shard. With a default placement,
/// a host that may vote has what it needs: placement decides where it votes, and when.
fn role_missing(view: &ClusterView, node: NodeId, role: HostRole) -> Vec<String> {
    let host = match known(view, node) {
        Ok(host) => host,
        Err(unknown) => return unknown,
    };
    if host.standing != role {
        return not_shown(view, node, if role == HostRole::Voter { "as a voter" } else { "as a learner" });
    }
    let votes = role == HostRole::Voter;
    if votes && view.has_default {
        return vec![];
    }
    let of_shard = |shard: &ShardView| {
        let replica = replica(view, shard, node);
        let needs_none = view.has_default && shard.shard != ShardId::PRIME;
        if replica.map_or(needs_none, |replica| replica.voter == votes) {
            return None;
        }
        let reason = match (votes, shard.leader) {
            (_, None) => leads(None),
            (true, _) => why_no_vote(view, shard, host),
            (false, _) => why_still_there(view, shard, node),
        };
        Some(format!("shard {}: {reason}", shard.shard))
    };
    let shards = view.shards.iter().filter_map(of_shard);
    if view.shards.is_empty() { vec![format!("node {} knows no shard", view.node)] } else { shards.collect() }
}

/// Why a wanted voter does not vote in a shard yet.
fn why_no_vote(view: &ClusterView, shard: &ShardView, host: &HostView) -> String {
    let node = host.info.node;
    let Some(replica) = replica(view, shard, node) else {
        return match host.connected {
            false => format!("node {node} is not connected"),
            true => format!("node {node} has no replica yet"),
        };
    };
    let replicas = view.replicas.iter().filter(|replica| replica.shard == shard.shard);
    let newest = replicas.filter_map(|replica| replica.applied).max();
    match (replica.applied, newest) {
        _ if !host.connected => format!("node {node} is not connected"),
        (Some(applied), Some(newest)) if applied < newest => {
            format!("node {node} is catching up (applied {applied} of {newest})")
        }
        (Some(_), _) => format!("node {node} has caught up, its vote is next"),
        (None, _) => format!("node {node} is catching up (nothing applied yet)"),
    }
}

/// Why a host still has a vote or a replica in a shard that it should lose. New voters come before
/// removals.
fn why_still_there(view: &ClusterView, shard: &ShardView, node: NodeId) -> String {
    let is_due = |host: &&HostView| {
        let replica = replica(view, shard, host.info.node);
        // With a default placement, a host without a replica is not meant to vote, and each host
        // follows the prime shard.
        let is_meant = !view.has_default || (replica.is_some() && shard.shard != ShardId::PRIME);
        let votes = replica.is_some_and(|replica| replica.voter);
        host.info.node != node && host.standing == HostRole::Voter && is_meant && !votes
    };
    let what = match replica(view, shard, node).map(|replica| replica.voter) {
        _ if shard.leader == Some(node) => format!("node {node} leads it, and hands over first"),
        Some(true) => format!("node {node} still votes"),
        Some(false) => format!("node {node} still follows"),
        None => format!("node {node} has no replica yet"),
    };
    match view.hosts.iter().find(is_due) {
        Some(due) => format!("{what}; {}", why_no_vote(view, shard, due)),
        None => what,
    }
}

fn leads_missing(view: &ClusterView, node: NodeId) -> Vec<String> {
    let host = match known(view, node) {
        Ok(host) => host,
        Err(unknown) => return unknown,
    };
    if !host.draining {
        return not_shown(view, node, "as draining");
    }
    let open = view.shards.iter().filter(|shard| shard.leader.is_none_or(|leader| leader == node));
    let open: Vec<String> =
        open.map(|shard| format!("shard {}: {}", shard.shard, leads(shard.leader))).collect();
    let could_lead = |host: &HostView| {
        host.info.node != node && host.connected && !host.draining && host.standing == HostRole::Voter
    };
    let heirless = !open.is_empty() && !view.hosts.iter().any(could_lead);
    let nobody = heirless.then(|| "no other node votes, is connected and is not draining".to_owned());
    open.into_iter().chain(nobody).collect()
}

fn departure_missing(view: &ClusterView, node: NodeId) -> Vec<String> {
    let of_shard = |shard: &ShardView| {
        replica(view, shard, node)?;
        let reason = match shard.leader {
            None => leads(None),
            Some(_) => why_still_there(view, shard, node),
        };
        Some(format!("shard {}: {reason}", shard.shard))
    };
    if view.shards.is_empty() {
        // A node that knows no hosts yet cannot tell which are still members.
        return vec![format!("node {} knows no shard", view.node)];
    }
    let shards: Vec<String> = view.shards.iter().filter_map(of_shard).collect();
    match known(view, node) {
        Ok(host) if host.standing != HostRole::Leaving => not_shown(view, node, "as leaving"),
        Ok(_) if shards.is_empty() => {
            vec![format!("node {node} has no replica left; it is removed once every voter has recorded that")]
        }
        _ => shards,
    }
}

fn known(view: &ClusterView, node: NodeId) -> Result<&HostView, Vec<String>> {
    let host = view.hosts.iter().find(|host| host.info.node == node);
    host.ok_or_else(|| vec![format!("node {} does not know node {node}", view.node)])
}

fn replica<'a>(view: &'a ClusterView, shard: &ShardView, node: NodeId) -> Option<&'a ReplicaView> {
    view.replicas.iter().find(|replica| replica.shard == shard.shard && replica.node == node)
}

/// The node that answers is behind, or another request has changed the wanted state since.
fn not_shown(view: &ClusterView, node: NodeId, what: &str) -> Vec<String> {
    vec![format!("node {} does not show node {node} {what}", view.node)]
}

fn leads(leader: Option<NodeId>) -> String {
    leader.map_or_else(|| "no leader is known".to_owned(), |leader| format!("node {leader} leads"))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;
    use crate::command::HostInfo;
    use crate::control::registry::Registry;
    use crate::slots::slot_set::SlotSet;
    use crate::topology::Migration;
    use crate::types::{LogIndex, ReplicaId, Term};

    /// Three voters and two shards, led by node 1 and 2, seen by node 1.
    fn view() -> ClusterView {
        let mut view = ClusterView { node: NodeId(1), ..ClusterView::default() };
        for node in 1..=3 {
            join(&mut view, node, HostRole::Voter);
        }
        for (shard, leader) in [(0, 1), (1, 2)] {
            view.shards.push(ShardView {
                shard: ShardId(shard),
                name: String::new(),
                kind: "kv",
                leader: Some(NodeId(leader)),
                term: Term(1),
                slots: 0,
            });
            for node in 1..=3 {
                replicate(&mut view, (shard, node), true, 50);
            }
        }
        view
    }

    fn join(view: &mut ClusterView, node: u64, standing: HostRole) {
        let info = HostInfo {
            node: NodeId(node),
            uuid: uuid::Uuid::nil(),
            peer_address: String::new(),
            http_address: String::new(),
            resp_address: String::new(),
            resp_cluster_address: String::new(),
            tags: BTreeMap::new(),
            release: crate::version::Release::default(),
        };
        view.hosts.push(HostView {
            info,
            created: LogIndex(0),
            updated: LogIndex(0),
            connected: true,
            disk_stalled: false,
            clock: None,
            standing,
            draining: false,
            dead: false,
        });
    }

    fn replicate(view: &mut ClusterView, (shard, node): (u64, u64), voter: bool, applied: u64) {
        let (shard, node) = (ShardId(shard), NodeId(node));
        leave(view, shard, node);
        view.replicas.push(ReplicaView {
            replica: ReplicaId(0),
            shard,
            node,
            voter,
            applied: Some(LogIndex(applied)),
            checkpoint: None,
            diverged: false,
        });
    }

    fn leave(view: &mut ClusterView, shard: ShardId, node: NodeId) {
        view.replicas.retain(|replica| (replica.shard, replica.node) != (shard, node));
    }

    fn host(view: &mut ClusterView, node: u64) -> &mut HostView {
        view.hosts.iter_mut().find(|host| host.info.node == NodeId(node)).expect("a host")
    }

    #[test]
    fn a_vote_is_waited_for_shard_by_shard() {
        let mut view = view();
        assert_eq!(Goal::Votes(NodeId(3)).missing(&view), [""; 0]);
        assert_eq!(Goal::Votes(NodeId(4)).missing(&view), ["node 1 does not know node 4"]);
        join(&mut view, 4, HostRole::Learner);
        assert_eq!(Goal::Votes(NodeId(4)).missing(&view), ["node 1 does not show node 4 as a voter"]);
        host(&mut view, 4).standing = HostRole::Voter;
        replicate(&mut view, (0, 4), false, 20);
        assert_eq!(
            Goal::Votes(NodeId(4)).missing(&view),
            ["shard 0: node 4 is catching up (applied 20 of 50)", "shard 1: node 4 has no replica yet"]
        );
        replicate(&mut view, (0, 4), true, 30);
        replicate(&mut view, (1, 4), false, 50);
        assert_eq!(
            Goal::Votes(NodeId(4)).missing(&view),
            ["shard 1: node 4 has caught up, its vote is next"]
        );
        view.replicas.last_mut().expect("a replica").applied = None;
        assert_eq!(
            Goal::Votes(NodeId(4)).missing(&view),
            ["shard 1: node 4 is catching up (nothing applied yet)"]
        );
        replicate(&mut view, (1, 4), true, 0);
        assert_eq!(Goal::Votes(NodeId(4)).missing(&view), [""; 0], "a vote is a vote, however far it is");
    }

    #[test]
    fn with_a_default_placement_a_host_that_may_vote_waits_for_nothing() {
        let mut view = view();
        view.has_default = true;
        join(&mut view, 4, HostRole::Voter);
        replicate(&mut view, (0, 4), false, 50);
        assert_eq!(Goal::Votes(NodeId(4)).missing(&view), [""; 0]);
        assert_eq!(Goal::Follows(NodeId(4)).missing(&view)[0], "node 1 does not show node 4 as a learner");
        host(&mut view, 4).standing = HostRole::Learner;
        assert_eq!(Goal::Follows(NodeId(4)).missing(&view), [""; 0], "it needs no replica of a data shard");
        replicate(&mut view, (1, 4), true, 50);
        assert_eq!(Goal::Follows(NodeId(4)).missing(&view), ["shard 1: node 4 still votes"]);
        host(&mut view, 3).standing = HostRole::Leaving;
        leave(&mut view, ShardId(1), NodeId(1));
        assert_eq!(
            Goal::Gone(NodeId(3)).missing(&view),
            ["shard 0: node 3 still votes", "shard 1: node 3 still votes"],
            "node 1 is not meant to vote in shard 1"
        );
        replicate(&mut view, (1, 1), false, 7);
        assert_eq!(
            Goal::Gone(NodeId(3)).missing(&view)[1],
            "shard 1: node 3 still votes; node 1 is catching up (applied 7 of 50)"
        );
    }

    #[test]
    fn what_stands_in_the_way_of_a_vote_is_named() {
        let mut view = view();
        join(&mut view, 4, HostRole::Voter);
        host(&mut view, 4).connected = false;
        host(&mut view, 2).connected = false;
        view.shards[1].leader = None;
        assert_eq!(
            Goal::Votes(NodeId(4)).missing(&view),
            [
                "shard 0: node 4 is not connected",
                "shard 1: no leader is known",
                "node 2 is not connected",
                "node 4 is not connected"
            ]
        );
        view.shards.clear();
        assert_eq!(Goal::Votes(NodeId(4)).missing(&view)[0], "node 1 knows no shard");
    }

    #[test]
    fn a_vote_that_is_taken_away() {
        let mut view = view();
        assert_eq!(Goal::Follows(NodeId(2)).missing(&view), ["node 1 does not show node 2 as a learner"]);
        host(&mut view, 2).standing = HostRole::Learner;
        assert_eq!(
            Goal::Follows(NodeId(2)).missing(&view),
            ["shard 0: node 2 still votes", "shard 1: node 2 leads it, and hands over first"]
        );
        replicate(&mut view, (0, 2), false, 50);
        leave(&mut view, ShardId(1), NodeId(2));
        view.shards[1].leader = Some(NodeId(3));
        assert_eq!(Goal::Follows(NodeId(2)).missing(&view), ["shard 1: node 2 has no replica yet"]);
        replicate(&mut view, (1, 2), false, 0);
        assert_eq!(Goal::Follows(NodeId(2)).missing(&view), [""; 0]);
    }

    #[test]
    fn a_departure_waits_for_the_successor() {
        let mut view = view();
        assert_eq!(Goal::Gone(NodeId(3)).missing(&view), ["node 1 does not show node 3 as leaving"]);
        host(&mut view, 3).standing = HostRole::Leaving;
        host(&mut view, 3).connected = false;
        join(&mut view, 4, HostRole::Voter);
        replicate(&mut view, (0, 4), true, 50);
        replicate(&mut view, (1, 4), false, 7);
        assert_eq!(
            Goal::Gone(NodeId(3)).missing(&view),
            [
                "shard 0: node 3 still votes",
                "shard 1: node 3 still votes; node 4 is catching up (applied 7 of 50)"
            ],
            "that a node which goes is away does not matter"
        );
        replicate(&mut view, (0, 3), false, 50);
        replicate(&mut view, (1, 4), true, 50);
        leave(&mut view, ShardId(1), NodeId(3));
        assert_eq!(Goal::Gone(NodeId(3)).missing(&view), ["shard 0: node 3 still follows"]);
        view.replicas.retain(|replica| replica.node != NodeId(3));
        assert_eq!(
            Goal::Gone(NodeId(3)).missing(&view),
            ["node 3 has no replica left; it is removed once every voter has recorded that"]
        );
        view.hosts.retain(|host| host.info.node != NodeId(3));
        assert_eq!(Goal::Gone(NodeId(3)).missing(&view), [""; 0]);
        let unaware = ClusterView { node: NodeId(2), ..ClusterView::default() };
        assert_eq!(Goal::Gone(NodeId(3)).missing(&unaware), ["node 2 knows no shard"]);
    }

    #[test]
    fn a_departure_that_others_hold_up() {
        let mut view = view();
        host(&mut view, 2).standing = HostRole::Leaving;
        host(&mut view, 3).connected = false;
        view.shards[0].leader = None;
        assert_eq!(
            Goal::Gone(NodeId(2)).missing(&view),
            [
                "shard 0: no leader is known",
                "shard 1: node 2 leads it, and hands over first",
                "node 3 is not connected"
            ]
        );
        view.hosts.retain(|host| host.info.node != NodeId(2));
        assert_eq!(Goal::Gone(NodeId(2)).missing(&view).len(), 3, "its replicas are still there");
    }

    #[test]
    fn a_drained_node_leads_nothing() {
        let mut view = view();
        assert_eq!(Goal::MayLead(NodeId(2)).missing(&view), [""; 0]);
        assert_eq!(Goal::LeadsNothing(NodeId(3)).missing(&view), ["node 1 does not show node 3 as draining"]);
        for node in 1..=3 {
            host(&mut view, node).draining = node == 2;
        }
        assert_eq!(Goal::LeadsNothing(NodeId(2)).missing(&view), ["shard 1: node 2 leads"]);
        assert_eq!(
            Goal::MayLead(NodeId(2)).missing(&view),
            ["node 1 does not show node 2 as one that may lead"]
        );
        view.shards[0].leader = None;
        host(&mut view, 1).standing = HostRole::Learner;
        host(&mut view, 3).draining = true;
        assert_eq!(
            Goal::LeadsNothing(NodeId(2)).missing(&view),
            [
                "shard 0: no leader is known",
                "shard 1: node 2 leads",
                "no other node votes, is connected and is not draining"
            ]
        );
        for shard in &mut view.shards {
            shard.leader = Some(NodeId(1));
        }
        assert_eq!(Goal::LeadsNothing(NodeId(2)).missing(&view), [""; 0]);
    }

    #[test]
    fn a_shard_is_led_by_whom_it_should() {
        let mut view = view();
        let goal = |node| Goal::Leads { shard: ShardId(1), node: NodeId(node) };
        assert_eq!(goal(2).missing(&view), [""; 0]);
        assert_eq!(goal(3).missing(&view), ["shard 1: node 2 leads"]);
        host(&mut view, 3).connected = false;
        view.shards[1].leader = None;
        assert_eq!(goal(3).missing(&view), ["shard 1: no leader is known", "node 3 is not connected"]);
        assert_eq!(
            Goal::Leads { shard: ShardId(9), node: NodeId(1) }.missing(&view)[0],
            "node 1 knows no shard 9"
        );
    }

    #[test]
    fn moves_are_done_when_none_up_to_the_last_one_is_left() {
        let migration =
            Migration { from: ShardId(1), to: ShardId(2), slots: SlotSet::default(), created: LogIndex(1) };
        let moved = |id| (MigrationId(id), migration.clone());
        let mut view = Registry::default().view();
        view.last_migration = MigrationId(7);
        assert!(are_moves_done(&view, MigrationId(7)));
        assert!(!are_moves_done(&view, MigrationId(8)), "the node has not heard of it yet");
        view.migrations = vec![moved(6), moved(7)];
        assert!(are_moves_done(&view, MigrationId(5)) && !are_moves_done(&view, MigrationId(6)));
    }
}
