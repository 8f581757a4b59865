//! `tidelock cluster`: what one node knows of its cluster, as tables or as the node's own JSON, and
//! changes of it.
//!
//! Owns the tables. `node_selector` finds the node that an operator names, `goal` names what a
//! command requests, `change` requests it, and `watch` polls the nodes until they say that it is
//! done. `tidelock_api` has the types of answers, and the rules by which commands and nodes of
//! different releases understand each other.

mod change;
mod clients;
pub(crate) mod goal;
mod join_token;
mod node_selector;
mod placement;
mod retry;
mod slots;
mod top;
mod verify;
mod version;
pub(crate) mod voters;
mod watch;

use std::time::Duration;

use tidelock_api::cluster::{Clock, Cluster, Host, Shard};
use tidelock_client::{Call, CliError, Client, output};
use tidelock_core::event::PeerClock;
use tidelock_core::types::NodeId;

use self::change::Change;
use self::goal::Goal;
use crate::args::{ClientArgs, ClusterArgs, ClusterCommand, Output, StatusArgs};

/// Runs one of the `cluster` commands.
pub fn run(args: ClusterArgs) -> Result<(), CliError> {
    let client = args.client;
    match args.command {
        ClusterCommand::Status(of) => look(&of, &client),
        ClusterCommand::JoinToken(of) => join_token::run(&of, &client),
        ClusterCommand::Dump => placement::dump(&client),
        ClusterCommand::Explain(of) => placement::explain(&of, &client),
        ClusterCommand::Set(tags) => placement::set(&tags, &client),
        ClusterCommand::AddShard(shard) => slots::add_shard(shard, &client),
        ClusterCommand::RemoveShard(shard) => slots::remove_shard(&shard, &client),
        ClusterCommand::Rebalance(wait) => slots::rebalance(&wait, &client),
        ClusterCommand::MoveSlots(moved) => slots::move_slots(&moved, &client),
        ClusterCommand::Version(of) => version::run(&of, &client),
        ClusterCommand::Slots => slots::show(&client),
        ClusterCommand::Top(most) => top::show(&most, &client),
        ClusterCommand::Clients(most) => clients::show(&most, &client),
        ClusterCommand::Add(host) => Change::new(client, &host.node, Goal::Votes)?.run(host.wait),
        ClusterCommand::Follow(host) => Change::new(client, &host.node, Goal::Follows)?.run(host.wait),
        ClusterCommand::Drain(drain) => {
            let goal = if drain.undo { Goal::MayLead } else { Goal::LeadsNothing };
            Change::new(client, &drain.node, goal)?.run(drain.wait)
        }
        ClusterCommand::Remove(host) => Change::new(client, &host.node, Goal::Gone)?.run(host.wait),
        ClusterCommand::Transfer(transfer) => {
            let goal = |node| Goal::Leads { shard: transfer.shard, node };
            Change::new(client, &transfer.node, goal)?.run(transfer.wait)
        }
    }
}

fn look(args: &StatusArgs, client: &ClientArgs) -> Result<(), CliError> {
    let asked = client.client()?;
    if args.verify {
        verify::run(&asked, client.output, Duration::from_secs(args.wait_s))
    } else {
        status(&asked, client.output)
    }
}

fn status(client: &Client, format: Output) -> Result<(), CliError> {
    let answer = client.ask_for(200, &Call::get("/v1/cluster"))?;
    let cluster: Cluster = answer.json()?;
    output::answer(format, &answer, || Ok(render(&cluster).trim_end().to_owned()))?;
    match leaderless(&cluster).or_else(|| voters::unwritable(&cluster)) {
        Some(what) => Err(CliError::Unavailable(what)),
        None => Ok(()),
    }
}

/// An error that names the shards without a leader, if there are any.
pub(crate) fn leaderless(cluster: &Cluster) -> Option<String> {
    let leaderless = cluster.shards.iter().filter(|shard| shard.leader.is_none());
    let leaderless: Vec<String> = leaderless.map(|shard| shard.id.to_string()).collect();
    (!leaderless.is_empty()).then(|| {
        format!(
            "no leader is known of {} of {} shards ({}): their writes and linearizable reads are refused",
            leaderless.len(),
            cluster.shards.len(),
            leaderless.join(", ")
        )
    })
}

/// Two tables: the hosts, and the shards with each node's applied index. Then what is wrong with
/// hosts, as far as the node that answers knows.
fn render(cluster: &Cluster) -> String {
    let hosts = host_table(cluster.node, &cluster.hosts);
    let shards = render_shards(cluster);
    format!("{hosts}\n\n{shards}\n{}{}", render_hosts(cluster), render_clocks(cluster))
}

/// A table of hosts, as the node `by` knows them.
fn host_table<'a>(by: u64, hosts: impl IntoIterator<Item = &'a Host>) -> String {
    let row = |host: &Host| {
        let connected = match host.connected {
            _ if host.node == by => "itself",
            true => "yes",
            false => "no",
        };
        let tags = host.tags.iter().map(|(name, value)| format!("{name}={value}"));
        vec![
            host.node.to_string(),
            or_dash(&host.http_address),
            or_dash(&host.resp_address),
            or_dash(&host.peer_address),
            connected.to_owned(),
            standing(host),
            or_dash(host.id.as_deref().unwrap_or_default()),
            or_dash(&tags.collect::<Vec<_>>().join(" ")),
        ]
    };
    let header = ["NODE", "HTTP", "RESP", "PEER", "CONNECTED", "STANDING", "ID", "TAGS"];
    output::table(&header, hosts.into_iter().map(row).collect())
}

/// One word, so that columns can be cut.
fn standing(host: &Host) -> String {
    if host.draining { format!("{},draining", host.standing) } else { host.standing.to_string() }
}

/// The hosts that cannot be reached, and those whose disks take no writes.
fn render_hosts(cluster: &Cluster) -> String {
    let line = |host: &Host| {
        let (node, address) = (host.node, &host.peer_address);
        if !host.connected {
            format!(
                "\nWARNING: node {node} ({address}) cannot be reached; what it has applied is its last report\n"
            )
        } else if host.disk_stalled {
            format!("\nWARNING: the disk of node {node} ({address}) takes no writes\n")
        } else {
            String::new()
        }
    };
    cluster.hosts.iter().map(line).collect()
}

fn render_clocks(cluster: &Cluster) -> String {
    let clock = |host: &Host| {
        let Clock { ahead_ms, error_ms } = host.clock?;
        let clock = PeerClock { node: NodeId(host.node), ahead_ms, error_ms };
        clock.is_beyond_limit().then(|| {
            let direction = if ahead_ms > 0 { "ahead of" } else { "behind" };
            let ms = ahead_ms.unsigned_abs();
            format!(
                "\nWARNING: the clock of node {} is {ms} ms {direction} that of node {}\n",
                host.node, cluster.node
            )
        })
    };
    cluster.hosts.iter().filter_map(clock).collect()
}

fn render_shards(cluster: &Cluster) -> String {
    let mut nodes: Vec<u64> = cluster.replicas.iter().map(|replica| replica.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let applied = |shard: &Shard, node: u64| match cluster
        .replicas
        .iter()
        .find(|replica| replica.shard == shard.id && replica.node == node)
    {
        None => String::new(),
        Some(replica) => {
            let index = replica.applied.map_or_else(|| "-".to_owned(), |index| index.to_string());
            if replica.voter { index } else { format!("{index} (no vote)") }
        }
    };
    let shards = cluster.shards.iter().map(|shard| {
        let leader = shard.leader.map_or_else(|| "none".to_owned(), |node| format!("node {node}"));
        let mut row = vec![
            shard.id.to_string(),
            or_dash(&shard.kind),
            leader,
            shard.term.to_string(),
            shard.slots.to_string(),
        ];
        row.extend(nodes.iter().map(|&node| applied(shard, node)));
        row
    });
    let applied_by: Vec<String> = nodes.iter().map(|node| format!("APPLIED BY {node}")).collect();
    let mut header = vec!["SHARD", "TYPE", "LEADER", "TERM", "SLOTS"];
    header.extend(applied_by.iter().map(String::as_str));
    output::table(&header, shards.collect())
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use tidelock_api::cluster::{HostRole, Replica};

    use super::*;

    #[test]
    fn a_cluster_with_a_node_down() {
        let host = |node: u64, standing| Host {
            node,
            peer_address: format!("127.0.0.1:900{node}"),
            http_address: format!("127.0.0.1:800{node}"),
            resp_address: format!("127.0.0.1:700{node}"),
            connected: true,
            standing,
            ..Host::default()
        };
        let first = Host { id: Some("6f1c".into()), draining: true, ..host(1, HostRole::Voter) };
        let tags = [("geo:zone", "a"), ("geo:region", "r")];
        let first = Host { tags: tags.map(|(name, value)| (name.into(), value.into())).into(), ..first };
        let second = Host { id: Some("a2b0".into()), ..host(2, HostRole::Learner) };
        // A founder that has not registered.
        let third = Host { http_address: String::new(), connected: false, ..host(3, HostRole::Voter) };
        let third = Host { resp_address: String::new(), ..third };
        let shard = |id, kind: &'static str, leader, term, slots| Shard {
            id,
            kind: kind.into(),
            leader,
            term,
            slots,
            ..Shard::default()
        };
        let replica =
            |shard, node, voter, applied| Replica { shard, node, voter, applied, ..Replica::default() };
        let cluster = Cluster {
            node: 1,
            hosts: vec![first, second, third],
            shards: vec![shard(0, "registry", Some(1), 2, 0), shard(1, "kv", None, 5, 16384)],
            replicas: vec![
                replica(0, 1, true, Some(9)),
                replica(0, 2, true, Some(8)),
                replica(1, 1, true, Some(120)),
                replica(1, 2, false, None),
            ],
        };
        assert_eq!(
            render(&cluster),
            "NODE  HTTP            RESP            PEER            CONNECTED  STANDING        ID    TAGS\n\
             1     127.0.0.1:8001  127.0.0.1:7001  127.0.0.1:9001  itself     voter,draining  6f1c  \
             geo:region=r geo:zone=a\n\
             2     127.0.0.1:8002  127.0.0.1:7002  127.0.0.1:9002  yes        learner         a2b0  -\n\
             3     -               -               127.0.0.1:9003  no         voter           -     -\n\
             \n\
             SHARD  TYPE      LEADER  TERM  SLOTS  APPLIED BY 1  APPLIED BY 2\n\
             0      registry  node 1  2     0      9             8\n\
             1      kv        none    5     16384  120           - (no vote)\n\n\
             WARNING: node 3 (127.0.0.1:9003) cannot be reached; what it has applied is its last report\n"
        );
    }

    #[test]
    fn clocks_that_are_apart_are_warned_of() {
        let clocks = [None, Some((-60_000, 2)), Some((600, 200)), Some((501, 0))];
        let clock = |(ahead_ms, error_ms)| Clock { ahead_ms, error_ms };
        let hosts = (1..).zip(clocks).map(|(node, measured)| {
            let clock = measured.map(clock);
            Host { node, clock, ..Host::default() }
        });
        let cluster = Cluster { node: 1, hosts: hosts.collect(), ..Cluster::default() };
        assert_eq!(
            render_clocks(&cluster),
            "\nWARNING: the clock of node 2 is 60000 ms behind that of node 1\n\
             \nWARNING: the clock of node 4 is 501 ms ahead of that of node 1\n"
        );
    }

    #[test]
    fn a_shard_without_a_leader_is_a_failure() {
        let of = |leaders: &[Option<u64>]| {
            let shards = (0..).zip(leaders).map(|(id, &leader)| Shard { id, leader, ..Shard::default() });
            leaderless(&Cluster { shards: shards.collect(), ..Cluster::default() })
        };
        assert_eq!(of(&[Some(1), Some(2)]), None);
        let said = of(&[Some(1), None, None]).expect("a failure");
        assert!(said.starts_with("no leader is known of 2 of 3 shards (1, 2): "), "{said}");
    }
}
