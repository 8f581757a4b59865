//! The goal of a `cluster` command, and what is missing according to a node's view.
//!
//! Owns the texts for both, as pure functions of a view. A view is one node's and may be behind, so
//! a goal is reached only when the view shows both the wanted state and its effects.

use tidelock_api::cluster::{Cluster, Host, HostRole, Replica, Shard};

/// A goal. Nodes and shards are given by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The node votes in every shard.
    Votes(u64),
    /// The node follows in every shard, without a vote.
    Follows(u64),
    /// The node leads no shard.
    LeadsNothing(u64),
    /// The node may lead shards again.
    MayLead(u64),
    /// The node is no longer a member of the cluster.
    Gone(u64),
    /// The node leads a certain shard.
    Leads {
        shard: u64,
        /// The node that should lead it.
        node: u64,
    },
}

impl Goal {
    /// The path of its `POST` request.
    pub fn target(self) -> String {
        match self {
            Goal::Votes(node) => format!("/v1/cluster/hosts/{node}/add"),
            Goal::Follows(node) => format!("/v1/cluster/hosts/{node}/follow"),
            Goal::LeadsNothing(node) => format!("/v1/cluster/hosts/{node}/drain"),
            Goal::MayLead(node) => format!("/v1/cluster/hosts/{node}/undrain"),
            Goal::Gone(node) => format!("/v1/cluster/hosts/{node}/remove"),
            Goal::Leads { shard, node } => format!("/v1/cluster/shards/{shard}/transfer?to={node}"),
        }
    }

    /// The node that will have stopped when the goal is reached.
    pub fn leaving(self) -> Option<u64> {
        match self {
            Goal::Gone(node) => Some(node),
            _ => None,
        }
    }

    /// A sentence for the reached goal.
    pub fn reached(self) -> String {
        match self {
            Goal::Votes(node) => format!("node {node} votes in every shard"),
            Goal::Follows(node) => format!("node {node} follows without a vote"),
            Goal::LeadsNothing(node) => format!("node {node} leads nothing"),
            Goal::MayLead(node) => format!("node {node} may lead again"),
            Goal::Gone(node) => format!("node {node} is removed"),
            Goal::Leads { shard, node } => format!("node {node} leads shard {shard}"),
        }
    }

    /// A sentence for the recorded request.
    pub fn wanted(self) -> String {
        match self {
            Goal::Votes(node) => format!("node {node} is to vote"),
            Goal::Follows(node) => format!("node {node} is to follow without a vote"),
            Goal::LeadsNothing(node) => format!("node {node} is to lead nothing"),
            Goal::MayLead(node) => format!("node {node} may lead again"),
            Goal::Gone(node) => format!("node {node} is to leave"),
            Goal::Leads { shard, node } => format!("node {node} is to lead shard {shard}"),
        }
    }

    /// Whether the cluster pursues the goal by itself. It does not for a transfer of leadership.
    pub fn is_lasting(self) -> bool {
        !matches!(self, Goal::Leads { .. })
    }

    /// Everything that is missing for the goal according to `view`; empty once it is reached.
    pub fn missing(self, view: &Cluster) -> Vec<String> {
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
            Goal::Leads { shard, node } => match view.shards.iter().find(|other| other.id == shard) {
                None => vec![format!("node {} knows no shard {shard}", view.node)],
                Some(shard) => match shard.leader {
                    Some(leader) if leader == node => vec![],
                    leader => vec![format!("shard {}: {}", shard.id, leads(leader))],
                },
            },
        };
        if !missing.is_empty() {
            let away = |host: &&Host| !host.connected && Some(host.node) != self.leaving();
            let away = view.hosts.iter().filter(away);
            missing.extend(away.map(|host| format!("node {} is not connected", host.node)));
        }
        missing
    }
}

/// What is missing until a host is a voter, or a learner, in every shard.
fn role_missing(view: &Cluster, node: u64, role: HostRole) -> Vec<String> {
    let host = match known(view, node) {
        Ok(host) => host,
        Err(unknown) => return unknown,
    };
    if host.standing != role {
        return not_shown(view, node, &format!("as a {role}"));
    }
    let votes = role == HostRole::Voter;
    let of_shard = |shard: &Shard| {
        let replica = replica(view, shard, node);
        if replica.is_some_and(|replica| replica.voter == votes) {
            return None;
        }
        let reason = match (votes, shard.leader) {
            (_, None) => leads(None),
            (true, _) => why_no_vote(view, shard, host),
            (false, _) => why_still_there(view, shard, node),
        };
        Some(format!("shard {}: {reason}", shard.id))
    };
    let shards = view.shards.iter().filter_map(of_shard);
    if view.shards.is_empty() { vec![format!("node {} knows no shard", view.node)] } else { shards.collect() }
}

/// Why a wanted voter does not vote in a shard yet.
fn why_no_vote(view: &Cluster, shard: &Shard, host: &Host) -> String {
    let node = host.node;
    let Some(replica) = replica(view, shard, node) else {
        return match host.connected {
            false => format!("node {node} is not connected"),
            true => format!("node {node} has no replica yet"),
        };
    };
    let replicas = view.replicas.iter().filter(|replica| replica.shard == shard.id);
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
fn why_still_there(view: &Cluster, shard: &Shard, node: u64) -> String {
    let is_due = |host: &&Host| {
        let votes = replica(view, shard, host.node).is_some_and(|replica| replica.voter);
        host.node != node && host.standing == HostRole::Voter && !votes
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

fn leads_missing(view: &Cluster, node: u64) -> Vec<String> {
    let host = match known(view, node) {
        Ok(host) => host,
        Err(unknown) => return unknown,
    };
    if !host.draining {
        return not_shown(view, node, "as draining");
    }
    let open = view.shards.iter().filter(|shard| shard.leader.is_none_or(|leader| leader == node));
    let open: Vec<String> =
        open.map(|shard| format!("shard {}: {}", shard.id, leads(shard.leader))).collect();
    let could_lead = |host: &Host| {
        host.node != node && host.connected && !host.draining && host.standing == HostRole::Voter
    };
    let heirless = !open.is_empty() && !view.hosts.iter().any(could_lead);
    let nobody = heirless.then(|| "no other node votes, is connected and is not draining".to_owned());
    open.into_iter().chain(nobody).collect()
}

fn departure_missing(view: &Cluster, node: u64) -> Vec<String> {
    let of_shard = |shard: &Shard| {
        replica(view, shard, node)?;
        let reason = match shard.leader {
            None => leads(None),
            Some(_) => why_still_there(view, shard, node),
        };
        Some(format!("shard {}: {reason}", shard.id))
    };
    if view.shards.is_empty() {
        // A node that knows no hosts yet cannot tell which are still members.
        return vec![format!("node {} knows no shard", view.node)];
    }
    let shards: Vec<String> = view.shards.iter().filter_map(of_shard).collect();
    match known(view, node) {
        Ok(host) if host.standing != HostRole::Leaving => not_shown(view, node, "as leaving"),
        Ok(_) if shards.is_empty() => {
            vec![format!(
                "node {node} has left every shard; it is removed from the registry once every voter has recorded that"
            )]
        }
        _ => shards,
    }
}

fn known(view: &Cluster, node: u64) -> Result<&Host, Vec<String>> {
    let host = view.hosts.iter().find(|host| host.node == node);
    host.ok_or_else(|| vec![format!("node {} does not know node {node}", view.node)])
}

fn replica<'a>(view: &'a Cluster, shard: &Shard, node: u64) -> Option<&'a Replica> {
    view.replicas.iter().find(|replica| replica.shard == shard.id && replica.node == node)
}

/// The node that answers is behind, or another request has changed the wanted state since.
fn not_shown(view: &Cluster, node: u64, what: &str) -> Vec<String> {
    vec![format!("node {} does not show node {node} {what}", view.node)]
}

fn leads(leader: Option<u64>) -> String {
    leader.map_or_else(|| "no leader is known".to_owned(), |leader| format!("node {leader} leads"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three voters and two shards, led by node 1 and 2, seen by node 1.
    fn view() -> Cluster {
        let mut view = Cluster { node: 1, ..Cluster::default() };
        for node in 1..=3 {
            join(&mut view, node, HostRole::Voter);
        }
        for (id, leader) in [(0, 1), (1, 2)] {
            view.shards.push(Shard { id, leader: Some(leader), ..Shard::default() });
            for node in 1..=3 {
                replicate(&mut view, (id, node), true, 50);
            }
        }
        view
    }

    fn join(view: &mut Cluster, node: u64, standing: HostRole) {
        view.hosts.push(Host { node, standing, connected: true, ..Host::default() });
    }

    fn replicate(view: &mut Cluster, (shard, node): (u64, u64), votes: bool, applied: u64) {
        view.replicas.retain(|replica| (replica.shard, replica.node) != (shard, node));
        let applied = Some(applied);
        view.replicas.push(Replica { shard, node, voter: votes, applied, ..Replica::default() });
    }

    fn host(view: &mut Cluster, node: u64) -> &mut Host {
        view.hosts.iter_mut().find(|host| host.node == node).expect("a host")
    }

    #[test]
    fn a_vote_is_waited_for_shard_by_shard() {
        let mut view = view();
        assert_eq!(Goal::Votes(3).missing(&view), [""; 0]);
        assert_eq!(Goal::Votes(4).missing(&view), ["node 1 does not know node 4"]);
        join(&mut view, 4, HostRole::Learner);
        assert_eq!(Goal::Votes(4).missing(&view), ["node 1 does not show node 4 as a voter"]);
        host(&mut view, 4).standing = HostRole::Voter;
        replicate(&mut view, (0, 4), false, 20);
        assert_eq!(
            Goal::Votes(4).missing(&view),
            ["shard 0: node 4 is catching up (applied 20 of 50)", "shard 1: node 4 has no replica yet"]
        );
        replicate(&mut view, (0, 4), true, 30);
        replicate(&mut view, (1, 4), false, 50);
        assert_eq!(Goal::Votes(4).missing(&view), ["shard 1: node 4 has caught up, its vote is next"]);
        view.replicas.last_mut().expect("a replica").applied = None;
        assert_eq!(Goal::Votes(4).missing(&view), ["shard 1: node 4 is catching up (nothing applied yet)"]);
        replicate(&mut view, (1, 4), true, 0);
        assert_eq!(Goal::Votes(4).missing(&view), [""; 0], "a vote is a vote, however far it is");
    }

    #[test]
    fn what_stands_in_the_way_of_a_vote_is_named() {
        let mut view = view();
        join(&mut view, 4, HostRole::Voter);
        host(&mut view, 4).connected = false;
        host(&mut view, 2).connected = false;
        view.shards[1].leader = None;
        assert_eq!(
            Goal::Votes(4).missing(&view),
            [
                "shard 0: node 4 is not connected",
                "shard 1: no leader is known",
                "node 2 is not connected",
                "node 4 is not connected"
            ]
        );
        view.shards.clear();
        assert_eq!(Goal::Votes(4).missing(&view)[0], "node 1 knows no shard");
    }

    #[test]
    fn a_vote_that_is_taken_away() {
        let mut view = view();
        assert_eq!(Goal::Follows(2).missing(&view), ["node 1 does not show node 2 as a learner"]);
        host(&mut view, 2).standing = HostRole::Learner;
        assert_eq!(
            Goal::Follows(2).missing(&view),
            ["shard 0: node 2 still votes", "shard 1: node 2 leads it, and hands over first"]
        );
        replicate(&mut view, (0, 2), false, 50);
        view.replicas.retain(|replica| (replica.shard, replica.node) != (1, 2));
        view.shards[1].leader = Some(3);
        assert_eq!(Goal::Follows(2).missing(&view), ["shard 1: node 2 has no replica yet"]);
        replicate(&mut view, (1, 2), false, 0);
        assert_eq!(Goal::Follows(2).missing(&view), [""; 0]);
    }

    #[test]
    fn a_departure_waits_for_the_successor() {
        let mut view = view();
        assert_eq!(Goal::Gone(3).missing(&view), ["node 1 does not show node 3 as leaving"]);
        host(&mut view, 3).standing = HostRole::Leaving;
        host(&mut view, 3).connected = false;
        join(&mut view, 4, HostRole::Voter);
        replicate(&mut view, (0, 4), true, 50);
        replicate(&mut view, (1, 4), false, 7);
        assert_eq!(
            Goal::Gone(3).missing(&view),
            [
                "shard 0: node 3 still votes",
                "shard 1: node 3 still votes; node 4 is catching up (applied 7 of 50)"
            ],
            "that a node which goes is away does not matter"
        );
        replicate(&mut view, (0, 3), false, 50);
        replicate(&mut view, (1, 4), true, 50);
        view.replicas.retain(|replica| (replica.shard, replica.node) != (1, 3));
        assert_eq!(Goal::Gone(3).missing(&view), ["shard 0: node 3 still follows"]);
        view.replicas.retain(|replica| replica.node != 3);
        assert_eq!(
            Goal::Gone(3).missing(&view),
            [
                "node 3 has left every shard; it is removed from the registry once every voter has recorded that"
            ]
        );
        view.hosts.retain(|host| host.node != 3);
        assert_eq!(Goal::Gone(3).missing(&view), [""; 0]);
        let unaware = Cluster { node: 2, ..Cluster::default() };
        assert_eq!(Goal::Gone(3).missing(&unaware), ["node 2 knows no shard"]);
    }

    #[test]
    fn a_departure_that_others_hold_up() {
        let mut view = view();
        host(&mut view, 2).standing = HostRole::Leaving;
        host(&mut view, 3).connected = false;
        view.shards[0].leader = None;
        assert_eq!(
            Goal::Gone(2).missing(&view),
            [
                "shard 0: no leader is known",
                "shard 1: node 2 leads it, and hands over first",
                "node 3 is not connected"
            ]
        );
        view.hosts.retain(|host| host.node != 2);
        assert_eq!(Goal::Gone(2).missing(&view).len(), 3, "its replicas are still there");
    }

    #[test]
    fn a_drained_node_leads_nothing() {
        let mut view = view();
        assert_eq!(Goal::MayLead(2).missing(&view), [""; 0]);
        assert_eq!(Goal::LeadsNothing(3).missing(&view), ["node 1 does not show node 3 as draining"]);
        for node in 1..=3 {
            host(&mut view, node).draining = node == 2;
        }
        assert_eq!(Goal::LeadsNothing(2).missing(&view), ["shard 1: node 2 leads"]);
        assert_eq!(Goal::MayLead(2).missing(&view), ["node 1 does not show node 2 as one that may lead"]);
        view.shards[0].leader = None;
        host(&mut view, 1).standing = HostRole::Learner;
        host(&mut view, 3).draining = true;
        assert_eq!(
            Goal::LeadsNothing(2).missing(&view),
            [
                "shard 0: no leader is known",
                "shard 1: node 2 leads",
                "no other node votes, is connected and is not draining"
            ]
        );
        for shard in &mut view.shards {
            shard.leader = Some(1);
        }
        assert_eq!(Goal::LeadsNothing(2).missing(&view), [""; 0]);
    }

    #[test]
    fn a_shard_is_led_by_whom_it_should() {
        let mut view = view();
        let goal = |node| Goal::Leads { shard: 1, node };
        assert_eq!(goal(2).missing(&view), [""; 0]);
        assert_eq!(goal(3).missing(&view), ["shard 1: node 2 leads"]);
        host(&mut view, 3).connected = false;
        view.shards[1].leader = None;
        assert_eq!(goal(3).missing(&view), ["shard 1: no leader is known", "node 3 is not connected"]);
        assert_eq!(Goal::Leads { shard: 9, node: 1 }.missing(&view)[0], "node 1 knows no shard 9");
    }

    #[test]
    fn a_role_of_a_later_release_is_never_taken_for_success() {
        let mut view = view();
        host(&mut view, 3).standing = HostRole::Unknown;
        for goal in [Goal::Votes(3), Goal::Follows(3), Goal::Gone(3)] {
            assert!(!goal.missing(&view).is_empty(), "{goal:?}");
        }
    }
}
