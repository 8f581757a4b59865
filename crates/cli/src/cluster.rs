//! `tidelock cluster`: what one node knows of its cluster, as tables or as the node's own JSON, and
//! changes of it.
//!
//! Owns the parsing of a node's view of the cluster, and the tables. `goal` knows what a command
//! waits for, `change` requests it, and `watch` polls the nodes meanwhile. Parsing is lenient: a
//! field that an older or newer node leaves out is shown as `-`, so that status still works between
//! releases.

mod change;
mod clients;
mod goal;
mod placement;
mod retry;
mod slots;
mod verify;
mod watch;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use tidelock_client::{Call, CliError, Client, output};
use tidelock_core::event::PeerClock;
use tidelock_core::types::NodeId;

use self::change::Change;
use self::goal::Goal;
use crate::args::{ClientArgs, ClusterArgs, ClusterCommand, Output, StatusArgs};

/// Runs one of the `cluster` commands.
pub fn run(args: ClusterArgs) -> Result<(), CliError> {
    let (goal, wait) = match args.command {
        ClusterCommand::Status(of) => return look(of, args.client),
        ClusterCommand::Dump => return placement::dump(args.client),
        ClusterCommand::Explain(of) => return placement::explain(of, args.client),
        ClusterCommand::Set(tags) => return placement::set(tags, args.client),
        ClusterCommand::AddShard(shard) => return slots::add_shard(shard, args.client),
        ClusterCommand::RemoveShard(shard) => return slots::remove_shard(&shard, args.client),
        ClusterCommand::Rebalance(wait) => return slots::rebalance(&wait, args.client),
        ClusterCommand::MoveSlots(moved) => return slots::move_slots(&moved, args.client),
        ClusterCommand::Slots => return slots::show(args.client),
        ClusterCommand::Clients(most) => return clients::show(&most, args.client),
        ClusterCommand::Add(host) => (Goal::Votes(host.node), host.wait),
        ClusterCommand::Follow(host) => (Goal::Follows(host.node), host.wait),
        ClusterCommand::Drain(drain) if drain.undo => (Goal::MayLead(drain.node), drain.wait),
        ClusterCommand::Drain(drain) => (Goal::LeadsNothing(drain.node), drain.wait),
        ClusterCommand::Remove(host) => (Goal::Gone(host.node), host.wait),
        ClusterCommand::Transfer(transfer) => {
            (Goal::Leads { shard: transfer.shard, node: transfer.node }, transfer.wait)
        }
    };
    Change::new(goal, args.client).run(wait)
}

fn look(args: StatusArgs, client: ClientArgs) -> Result<(), CliError> {
    let asked = Client::new(client.urls, Duration::from_millis(client.timeout_ms));
    if args.verify {
        verify::run(&asked, client.output, Duration::from_secs(args.wait_s))
    } else {
        status(&asked, client.output)
    }
}

fn status(client: &Client, format: Output) -> Result<(), CliError> {
    let answer = client.ask(&Call::get("/v1/cluster"))?;
    if answer.status != 200 {
        return Err(answer.refusal());
    }
    let cluster: Cluster = answer.json()?;
    match format {
        Output::Json => output::line(String::from_utf8_lossy(&answer.body).trim_end())?,
        Output::Text => output::write(render(&cluster).as_bytes())?,
    }
    match leaderless(&cluster) {
        Some(what) => Err(CliError::Unavailable(what)),
        None => Ok(()),
    }
}

/// An error that names the shards without a leader, if there are any.
fn leaderless(cluster: &Cluster) -> Option<String> {
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

/// A node's view of the cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// Number of the node whose view it is.
    pub node: Option<u64>,
    pub hosts: Vec<Host>,
    shards: Vec<Shard>,
    pub replicas: Vec<Replica>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Host {
    pub node: u64,
    id: Option<String>,
    peer_address: Option<String>,
    http_address: Option<String>,
    resp_address: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    /// Whether the node that answers reaches it.
    pub connected: Option<bool>,
    clock: Option<Clock>,
    standing: Option<String>,
    draining: Option<bool>,
}

/// The offset of a host's clock from that of the node that answers.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Clock {
    ahead_ms: i64,
    error_ms: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Shard {
    id: u64,
    r#type: Option<String>,
    leader: Option<u64>,
    term: Option<u64>,
    slots: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Replica {
    pub shard: u64,
    /// Number of the node that holds it.
    pub node: u64,
    voter: Option<bool>,
    applied: Option<u64>,
    /// The last checkpoint that it has completed.
    pub checkpoint: Option<Checkpoint>,
    /// Whether its node has stopped because another replica's log contradicts entries committed in
    /// this one.
    pub diverged: bool,
}

/// The checksum of a replica's state at one index.
#[derive(Clone, Debug, Deserialize)]
pub struct Checkpoint {
    pub index: u64,
    /// The checksum of the whole state.
    pub checksum: String,
}

/// Two tables: the hosts, and the shards with each node's applied index. Then the hosts whose
/// clocks differ too much from that of the node that answers.
fn render(cluster: &Cluster) -> String {
    let hosts = cluster.hosts.iter().map(|host| {
        let connected = match host.connected {
            _ if Some(host.node) == cluster.node => "answers",
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        let tags = host.tags.iter().flatten().map(|(name, value)| format!("{name}={value}"));
        vec![
            host.node.to_string(),
            or_dash(host.http_address.as_deref()),
            or_dash(host.resp_address.as_deref()),
            or_dash(host.peer_address.as_deref()),
            connected.to_owned(),
            standing(host),
            or_dash(host.id.as_deref()),
            or_dash(Some(&tags.collect::<Vec<_>>().join(" "))),
        ]
    });
    let hosts = output::table(
        &["NODE", "HTTP", "RESP", "PEER", "CONNECTED", "STANDING", "ID", "TAGS"],
        hosts.collect(),
    );
    format!("{hosts}\n\n{}\n{}", render_shards(cluster), render_clocks(cluster))
}

/// One word, so that columns can be cut.
fn standing(host: &Host) -> String {
    let standing = or_dash(host.standing.as_deref());
    if host.draining == Some(true) { format!("{standing},draining") } else { standing }
}

fn render_clocks(cluster: &Cluster) -> String {
    let by = cluster.node.map_or_else(|| "the node that answers".to_owned(), |node| format!("node {node}"));
    let clock = |host: &Host| {
        let Clock { ahead_ms, error_ms } = host.clock?;
        let clock = PeerClock { node: NodeId(host.node), ahead_ms, error_ms };
        clock.is_beyond_limit().then(|| {
            let direction = if ahead_ms > 0 { "ahead of" } else { "behind" };
            let ms = ahead_ms.unsigned_abs();
            format!("\nWARNING: the clock of node {} is {ms} ms {direction} that of {by}\n", host.node)
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
            let index = number(replica.applied);
            if replica.voter == Some(false) { format!("{index} (no vote)") } else { index }
        }
    };
    let shards = cluster.shards.iter().map(|shard| {
        let leader = shard.leader.map_or_else(|| "none".to_owned(), |node| format!("node {node}"));
        let mut row = vec![
            shard.id.to_string(),
            or_dash(shard.r#type.as_deref()),
            leader,
            number(shard.term),
            number(shard.slots),
        ];
        row.extend(nodes.iter().map(|&node| applied(shard, node)));
        row
    });
    let applied_by: Vec<String> = nodes.iter().map(|node| format!("APPLIED BY {node}")).collect();
    let mut header = vec!["SHARD", "TYPE", "LEADER", "TERM", "SLOTS"];
    header.extend(applied_by.iter().map(String::as_str));
    output::table(&header, shards.collect())
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn or_dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_with_a_node_down() {
        let cluster = serde_json::from_str(
            r#"{"node":1,"hosts":[
                {"node":1,"id":"6f1c","peer_address":"127.0.0.1:9001","http_address":"127.0.0.1:8001",
                 "resp_address":"127.0.0.1:7001","tags":{"geo:zone":"a","geo:region":"r"},"connected":true,
                 "standing":"voter","draining":true,
                 "created":3,"updated":3},
                {"node":2,"id":"a2b0","peer_address":"127.0.0.1:9002","http_address":"127.0.0.1:8002",
                 "resp_address":"127.0.0.1:7002","tags":{},"connected":true,"standing":"learner",
                 "draining":false,"created":4,"updated":4},
                {"node":3,"id":null,"peer_address":"127.0.0.1:9003","connected":false}],
              "shards":[{"id":0,"type":"registry","leader":1,"term":2,"slots":0},
                        {"id":1,"type":"kv","leader":null,"term":5,"slots":16384}],
              "replicas":[{"id":1,"shard":0,"node":1,"voter":true,"applied":9},
                          {"id":2,"shard":0,"node":2,"voter":true,"applied":8},
                          {"id":3,"shard":1,"node":1,"voter":true,"applied":120},
                          {"id":4,"shard":1,"node":2,"voter":false,"applied":null}]}"#,
        )
        .unwrap();
        assert_eq!(
            render(&cluster),
            "NODE  HTTP            RESP            PEER            CONNECTED  STANDING        ID    TAGS\n\
             1     127.0.0.1:8001  127.0.0.1:7001  127.0.0.1:9001  answers    voter,draining  6f1c  \
             geo:region=r geo:zone=a\n\
             2     127.0.0.1:8002  127.0.0.1:7002  127.0.0.1:9002  yes        learner         a2b0  -\n\
             3     -               -               127.0.0.1:9003  no         -               -     -\n\
             \n\
             SHARD  TYPE      LEADER  TERM  SLOTS  APPLIED BY 1  APPLIED BY 2\n\
             0      registry  node 1  2     0      9             8\n\
             1      kv        none    5     16384  120           - (no vote)\n"
        );
    }

    #[test]
    fn clocks_that_are_apart_are_warned_of() {
        let cluster = serde_json::from_str(
            r#"{"node":1,"hosts":[{"node":1,"clock":null},{"node":2,"clock":{"ahead_ms":-60000,"error_ms":2}},
                {"node":3,"clock":{"ahead_ms":600,"error_ms":200}},{"node":4,"clock":{"ahead_ms":501,"error_ms":0}}]}"#,
        )
        .unwrap();
        assert_eq!(
            render_clocks(&cluster),
            "\nWARNING: the clock of node 2 is 60000 ms behind that of node 1\n\
             \nWARNING: the clock of node 4 is 501 ms ahead of that of node 1\n"
        );
    }

    #[test]
    fn a_shard_without_a_leader_is_a_failure() {
        let of =
            |shards: &str| leaderless(&serde_json::from_str(&format!(r#"{{"shards":[{shards}]}}"#)).unwrap());
        assert_eq!(of(r#"{"id":0,"leader":1},{"id":1,"leader":2}"#), None);
        let said = of(r#"{"id":0,"leader":1},{"id":1,"leader":null},{"id":2}"#).expect("a failure");
        assert!(said.starts_with("no leader is known of 2 of 3 shards (1, 2): "), "{said}");
    }

    #[test]
    fn fields_that_are_missing_or_new_do_no_harm() {
        let cluster =
            serde_json::from_str(r#"{"hosts":[{"node":1}],"shards":[{"id":0}],"later":true}"#).unwrap();
        assert_eq!(
            render(&cluster),
            "NODE  HTTP  RESP  PEER  CONNECTED  STANDING  ID  TAGS\n\
             1     -     -     -     -          -         -   -\n\n\
             SHARD  TYPE  LEADER  TERM  SLOTS\n0      -     none    -     -\n"
        );
    }
}
