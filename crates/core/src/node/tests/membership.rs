//! Hosts join, vote, are drained and leave, over a perfect network and disk.

use alloc::vec;

use super::*;
use crate::command::{Assignment, Denial, HostChange, HostInfo, RegistryWrite, ShardTags};

impl Cluster {
    /// Adds a node with an empty disk. Returns its node number.
    fn join(&mut self) -> u64 {
        let uuid = Uuid::from_u128(100 + self.nodes.len() as u128);
        let address = format!("node-{}:9001", self.nodes.len() + 1);
        let info = HostInfo {
            node: NodeId(0),
            uuid,
            peer_address: address,
            http_address: String::new(),
            resp_address: String::new(),
            resp_cluster_address: String::new(),
            tags: BTreeMap::new(),
            release: crate::version::Release::default(),
        };
        let asked = self.nodes.iter().position(|node| !node.status().removed).expect("a member");
        let token =
            self.ask(asked as u64 + 1, Request::Write(Write::from(RegistryWrite::JoinHost(info.clone()))));
        let Some(Reply::Write(WriteReply::Joined { node, replica })) = self.replies.remove(&token) else {
            panic!("not joined")
        };
        assert_eq!(node.0 as usize, self.nodes.len() + 1);
        let founders = self.nodes[0].options.founders.clone();
        let hosts = self.nodes[asked].known_hosts().map(|(node, _, address)| (node, address.into()));
        let options = NodeOptions {
            host: HostInfo { node, ..info },
            hosts: hosts.collect(),
            prime_replica: Some(replica),
            seed: node.0,
            ..options(1, &founders)
        };
        self.nodes.push(Node::new(options, RecoveredShards::new()));
        self.alive.push(true);
        self.peers.push(Vec::new());
        self.settle();
        node.0
    }

    fn change(&mut self, asked: u64, node: u64, change: HostChange) -> Reply {
        let token = self.ask(
            asked,
            Request::Write(Write::from(RegistryWrite::ChangeHost { node: NodeId(node), change })),
        );
        self.tick(1);
        self.replies.remove(&token).expect("answered")
    }

    fn view(&mut self, node: u64) -> crate::command::ClusterView {
        let Reply::Node(NodeReply::Cluster(view)) = self.answer(node, Request::Cluster) else {
            panic!("no view")
        };
        *view
    }

    /// The nodes that vote in every shard, as `node` reports them. Panics if shards differ.
    fn voters(&mut self, node: u64) -> Vec<u64> {
        let view = self.view(node);
        let of = |shard: u64| -> Vec<u64> {
            let replicas = view.replicas.iter().filter(|replica| replica.shard.0 == shard && replica.voter);
            replicas.map(|replica| replica.node.0).collect()
        };
        let voters = of(0);
        assert!((1..view.shards.len() as u64).all(|shard| of(shard) == voters), "{:?}", view.replicas);
        voters
    }
}

#[test]
fn a_host_joins_follows_votes_and_answers() {
    let mut cluster = Cluster::elected(3);
    cluster.answer(1, put("a", "1", Condition::Always));
    assert_eq!(cluster.join(), 4);
    cluster.tick(50);
    let stale = Request::Read { read: Read::Get { key: "a".into() }, consistency: Consistency::Stale };
    assert_eq!(cluster.answer(4, stale), value(1, "1"), "it follows at once");
    assert_eq!(cluster.answer(4, get("a")), value(1, "1"));
    assert_eq!(cluster.voters(4), [1, 2, 3]);
    assert!(wrote(&cluster.answer(4, put("b", "1", Condition::Always))));
    assert_eq!(cluster.change(2, 4, HostChange::Vote), Reply::Write(WriteReply::HostChanged));
    cluster.tick(50);
    assert_eq!(cluster.voters(1), [1, 2, 3, 4]);
    assert!(cluster.view(3).hosts.iter().all(|host| host.connected && host.created.0 > 0));
    assert_eq!(cluster.join(), 5);
}

#[test]
fn a_dead_host_is_replaced() {
    let mut cluster = Cluster::elected(3);
    cluster.kill(3);
    cluster.tick(60);
    cluster.answer(1, put("a", "1", Condition::Always));
    let four = cluster.join();
    assert_eq!(cluster.change(1, four, HostChange::Vote), Reply::Write(WriteReply::HostChanged));
    assert_eq!(cluster.change(1, 3, HostChange::Leave), Reply::Write(WriteReply::HostChanged));
    cluster.tick(100);
    assert_eq!(cluster.voters(1), [1, 2, 4]);
    let hosts: Vec<u64> = cluster.view(4).hosts.iter().map(|host| host.info.node.0).collect();
    assert_eq!(hosts, [1, 2, 4], "what was removed is not shown");
    cluster.kill(1);
    cluster.tick(60);
    assert!(wrote(&cluster.answer(4, put("a", "2", Condition::Always))));
    assert_eq!(
        cluster.nodes[1].host_entry(NodeId(3)).map(|host_entry| host_entry.standing),
        Some(HostRole::Removed)
    );
}

#[test]
fn a_host_is_not_removed_while_those_who_stay_could_not_agree() {
    let mut cluster = Cluster::elected(3);
    let leader = cluster.leader(ShardId(1));
    let (other, dead) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.kill(dead);
    // At once, so that only the lost connection shows that the third node is dead.
    cluster.ask(
        leader,
        Request::Write(Write::from(RegistryWrite::ChangeHost {
            node: NodeId(other),
            change: HostChange::Leave,
        })),
    );
    cluster.tick(100);
    assert!(wrote(&cluster.answer(leader, put("a", "1", Condition::Always))));
    assert_eq!(cluster.voters(leader), [1, 2, 3]);
}

#[test]
fn a_leader_that_is_removed_hands_over_and_is_told() {
    let mut cluster = Cluster::elected(3);
    let leader = cluster.leader(ShardId::PRIME);
    let other = leader % 3 + 1;
    assert_eq!(cluster.change(leader, leader, HostChange::Leave), Reply::Write(WriteReply::HostChanged));
    cluster.tick(100);
    assert!(cluster.nodes[leader as usize - 1].status().removed);
    let mut expected = alloc::vec![1, 2, 3];
    expected.retain(|&node| node != leader);
    assert_eq!(cluster.voters(other), expected);
    assert!(wrote(&cluster.answer(other, put("a", "1", Condition::Always))));
    let back = cluster.change(other, leader, HostChange::Vote);
    assert_eq!(back, Reply::Write(WriteReply::Denied(Denial::HostRemoved)));
}

#[test]
fn the_last_voter_stays_and_unknown_hosts_are_told_apart() {
    let mut cluster = Cluster::elected(1);
    assert_eq!(cluster.change(1, 1, HostChange::Leave), Reply::Write(WriteReply::Denied(Denial::LastVoter)));
    assert_eq!(cluster.change(1, 2, HostChange::Vote), Reply::Write(WriteReply::Denied(Denial::UnknownHost)));
    let two = cluster.join();
    assert_eq!(cluster.change(1, two, HostChange::Vote), Reply::Write(WriteReply::HostChanged));
    cluster.tick(50);
    assert_eq!(cluster.voters(2), [1, 2]);
    assert_eq!(cluster.change(2, 1, HostChange::Leave), Reply::Write(WriteReply::HostChanged));
    cluster.tick(100);
    assert_eq!(cluster.voters(2), [2]);
    assert!(cluster.nodes[0].status().removed);
    assert!(wrote(&cluster.answer(2, put("a", "1", Condition::Always))));
}

#[test]
fn a_draining_host_leads_nothing_until_it_votes_again() {
    let mut cluster = Cluster::elected(3);
    let leader = cluster.leader(ShardId(1));
    let other = leader % 3 + 1;
    assert_eq!(cluster.change(other, leader, HostChange::Drain(true)), Reply::Write(WriteReply::HostChanged));
    cluster.tick(20);
    assert!(cluster.nodes[leader as usize - 1].status().shards.iter().all(|shard| !shard.leads));
    assert_eq!(cluster.change(other, leader, HostChange::Vote), Reply::Write(WriteReply::HostChanged));
    assert!(!cluster.view(other).hosts[leader as usize - 1].draining);
    let transfer = |to| Request::Transfer { shard: ShardId(1), to: NodeId(to) };
    assert_eq!(cluster.answer(other, transfer(leader)), Reply::Node(NodeReply::Asked));
    cluster.tick(5);
    assert_eq!(cluster.leader(ShardId(1)), leader);
    let refused = |reply| matches!(reply, Reply::Refused(Refusal::Invalid(_)));
    assert!(refused(cluster.answer(other, transfer(9))));
    assert!(refused(cluster.answer(other, Request::Transfer { shard: ShardId(9), to: NodeId(1) })));
}

/// The registry of a returning node is behind, and only a leader that it does not know could update
/// it. A peer must tell it about that leader.
#[test]
fn a_node_that_was_away_is_told_whom_it_does_not_know() {
    let mut cluster = Cluster::elected(3);
    cluster.tick(30);
    cluster.kill(3);
    let four = cluster.join();
    assert_eq!(cluster.change(1, four, HostChange::Vote), Reply::Write(WriteReply::HostChanged));
    cluster.tick(60);
    let away = &cluster.nodes[2];
    assert!(away.host_entry(NodeId(four)).is_none() && away.peers().iter().all(|(node, _)| node.0 != four));
    // No Raft message reaches it: it knows only the hosts that its peers list.
    let hosts = peer::hosts([(NodeId(1), "node-1:9001"), (NodeId(four), "node-4:9001")].into_iter());
    cluster.nodes[2].handle(Event::Frame { from: NodeId(1), payload: hosts.into() });
    let mut actions = Actions::default();
    cluster.nodes[2].drive(&mut actions);
    let peers = actions.peers.expect("they have changed");
    assert_eq!(peers.last(), Some(&(NodeId(four), "node-4:9001".into())));
    assert_eq!(peers.len(), 3);
    cluster.peers[2] = peers.into_iter().map(|(node, _)| node).collect();
    cluster.revive(3);
    cluster.tick(60);
    assert!(
        cluster.nodes[2].options.hosts.is_empty(),
        "what the registry says need not be kept from indirect reports"
    );
    assert_eq!(cluster.voters(3), [1, 2, 3, 4]);
}

#[test]
fn a_link_begins_with_what_is_known_of_hosts() {
    let mut cluster = Cluster::elected(3);
    cluster.tick(30);
    let node = &mut cluster.nodes[0];
    node.handle(Event::LinkDown(NodeId(2)));
    node.handle(Event::LinkUp(NodeId(2)));
    let mut actions = Actions::default();
    node.drive(&mut actions);
    let introduced = |frame: &OutgoingFrame| {
        frame.to == NodeId(2) && frame.payload.first() == Some(&peer::KIND_HOSTS) && !frame.droppable
    };
    assert_eq!(actions.frames.iter().filter(|frame| introduced(frame)).count(), 1);
}

/// Two hosts that moved at the same time have no link to each other, and neither can register its
/// new address without a leader. A third host to which both have a link tells them.
#[test]
fn a_moved_host_is_reported_to_hosts_that_do_not_reach_it() {
    let mut cluster = Cluster::elected(3);
    cluster.tick(30);
    let from = |node: u64, hosts: &[(u64, &str)]| Event::Frame {
        from: NodeId(node),
        payload: peer::hosts(hosts.iter().map(|(node, address)| (NodeId(*node), *address))).into(),
    };
    let drive = |node: &mut Node, event: Event| {
        node.handle(event);
        let mut actions = Actions::default();
        node.drive(&mut actions);
        actions
    };
    // Host 3 says itself where it is. The other two are told, and its link is not changed.
    let actions = drive(&mut cluster.nodes[0], from(3, &[(3, "moved:9001")]));
    let moved = (NodeId(3), "moved:9001".into());
    assert!(actions.peers.expect("they have changed").contains(&moved));
    let told: Vec<&OutgoingFrame> = actions
        .frames
        .iter()
        .filter(|frame| frame.to == NodeId(2) && frame.payload.first() == Some(&peer::KIND_HOSTS))
        .collect();
    let [told] = told[..] else { panic!("one list of hosts, not {}", told.len()) };
    assert!(told.payload.windows(10).any(|text| text == b"moved:9001"));
    // While host 2 has a link to host 3, it ignores what others report about host 3.
    let event = || Event::Frame { from: NodeId(1), payload: told.payload.clone() };
    assert!(drive(&mut cluster.nodes[1], event()).peers.is_none());
    cluster.nodes[1].handle(Event::LinkDown(NodeId(3)));
    let actions = drive(&mut cluster.nodes[1], event());
    assert!(actions.peers.expect("they have changed").contains(&moved));
    // A report is not passed on: two hosts with different reports would exchange them without end.
    assert!(!actions.frames.iter().any(|frame| frame.payload.first() == Some(&peer::KIND_HOSTS)));
    assert!(drive(&mut cluster.nodes[1], event()).peers.is_none(), "it is no news again");
}

#[test]
fn a_host_goes_only_when_all_who_stay_know_each_other() {
    let mut cluster = Cluster::elected(3);
    let four = cluster.join();
    cluster.tick(50);
    cluster.kill(four);
    let five = cluster.join();
    assert_eq!(cluster.change(1, 3, HostChange::Leave), Reply::Write(WriteReply::HostChanged));
    cluster.tick(150);
    let standing =
        |cluster: &Cluster| cluster.nodes[0].host_entry(NodeId(3)).map(|host_entry| host_entry.standing);
    assert_eq!(cluster.voters(1), [1, 2]);
    assert_eq!(standing(&cluster), Some(HostRole::Leaving), "{four} has not heard of {five}");
    cluster.revive(four);
    cluster.tick(100);
    assert_eq!(standing(&cluster), Some(HostRole::Removed));
}

#[test]
fn a_member_whose_row_the_registry_has_forgotten_is_removed() {
    let mut cluster = Cluster::elected(3);
    let shard = ShardId(1);
    let (replica, seen) = {
        let registry = cluster.nodes[0].registry();
        let (replica, _) = registry.replica_on(shard, NodeId(3)).expect("a row");
        (replica, registry.changed())
    };
    // Both without a tick in between, so the leader of the shard has not acted on the first.
    let assignments = vec![Assignment { shard, node: NodeId(3), role: None }];
    for write in [RegistryWrite::Assign { seen, assignments }, RegistryWrite::ForgetReplica { replica }] {
        let reply = cluster.answer(1, Request::Write(Write::from(write)));
        assert_eq!(reply, Reply::Write(WriteReply::HostChanged));
    }
    let node = &cluster.nodes[0];
    assert!(node.membership(shard).is_some_and(|members| members.role(replica).is_some()));
    assert!(node.registry().replicas().get(&replica).is_none());
    let wanted = node.wanted(shard);
    assert_eq!(wanted.roles.get(&replica), Some(&None));
    assert!(!wanted.matches(node.membership(shard).expect("a replica")));
    cluster.tick(60);
    let members = cluster.nodes[0].membership(shard).expect("a replica");
    assert_eq!(members.role(replica), None);
    // Placement gives the host another replica, with a number of its own.
    assert!(members.nodes.iter().any(|(other, node)| *node == NodeId(3) && *other > replica));
}

#[test]
fn reads_of_a_replica_that_ends_are_answered_by_another_node() {
    let mut cluster = Cluster::elected(3);
    let reader = cluster.join();
    cluster.tick(50);
    let shard = ShardId(1);
    let key = ["a", "b", "c", "d"].into_iter().find(|key| cluster.nodes[0].shard_of(key.as_bytes()) == shard);
    let key = key.expect("one of them is of the shard");
    assert!(wrote(&cluster.answer(1, put(key, "1", Condition::Always))));
    cluster.kill(reader);
    let tags = vec![("placement:cover".into(), Some("none".into()))];
    let uncover = Request::Write(Write::from(RegistryWrite::TagShard(ShardTags { shard, tags })));
    assert_eq!(cluster.answer(1, uncover), Reply::Write(WriteReply::HostChanged));
    // While it is down, it is removed from the shard, and the registry forgets the replica.
    cluster.tick(60);
    cluster.revive(reader);
    let token = Token(1 << 32);
    cluster.nodes[reader as usize - 1].handle(Event::Request {
        token,
        caller: Caller::Anonymous,
        request: get(key),
        trace: None,
    });
    cluster.settle();
    cluster.tick(10);
    assert!(cluster.nodes[reader as usize - 1].membership(shard).is_none());
    assert_eq!(cluster.replies.remove(&token), Some(value(1, "1")));
}

#[test]
fn a_removed_replica_hides_no_leader() {
    let mut cluster = Cluster::elected(5);
    let shard = ShardId(1);
    let leader = cluster.leader(shard);
    let mut others = (1..=5).filter(|node| *node != leader);
    let [down, removed, next] = core::array::from_fn(|_| others.next().expect("five nodes"));
    // The row of the removed replica stays, because a voter has not stored the removal.
    cluster.kill(down);
    let seen = cluster.nodes[leader as usize - 1].registry().changed();
    let assignments = vec![Assignment { shard, node: NodeId(removed), role: None }];
    let assign = Request::Write(Write::from(RegistryWrite::Assign { seen, assignments }));
    assert_eq!(cluster.answer(leader, assign), Reply::Write(WriteReply::HostChanged));
    cluster.tick(60);
    let node = &cluster.nodes[removed as usize - 1];
    let replica = node.membership(shard).expect("it keeps its replica");
    assert!(!replica.nodes.values().any(|member| *member == NodeId(removed)), "it is not a member");
    cluster.ask(leader, Request::Transfer { shard, to: NodeId(next) });
    cluster.tick(60);
    assert_eq!(cluster.leader(shard), next);
    let status = cluster.nodes[removed as usize - 1].status();
    let of_shard = status.shards.iter().find(|status| status.shard == shard).expect("a replica");
    assert_eq!(of_shard.leader, Some(NodeId(next)));
}
