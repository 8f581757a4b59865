//! `cluster top`: what the clients of all nodes asked for in the last minute.
//!
//! Owns the sum over the nodes and the tables. Each node counts the requests that it took, so every
//! node is asked for its part; one that does not answer is named.

use std::collections::BTreeMap;

use serde::Serialize;
use tidelock_api::clients::{ClientConnection, Clients};
use tidelock_api::cluster::Cluster;
use tidelock_api::load::{Division, HotKey, HotSlotMove, LeadershipTransfer, Load, VoteExchange};
use tidelock_client::{Call, CliError, Client, NodeUrl, output};

use crate::args::{ClientArgs, Output, TopArgs};

/// The load of the whole cluster, in events per second.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Top {
    hosts: Vec<HostRow>,
    shards: Vec<ShardRow>,
    #[serde(flatten)]
    next: NextChanges,
    keys: Vec<KeyRow>,
    prefixes: Vec<KeyRow>,
    clients: Vec<ClientRow>,
}

/// What the leader of the registry will change by itself. All are absent if it did not answer.
#[derive(Debug, Default, PartialEq, Serialize)]
struct NextChanges {
    /// Absent if the cluster was founded with a number of shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    division: Option<Division>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leadership_transfer: Option<LeadershipTransfer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot_move: Option<HotSlotMove>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vote_exchange: Option<VoteExchange>,
}

#[derive(Debug, PartialEq, Serialize)]
struct HostRow {
    node: u64,
    /// Requests of its clients; null if the node did not answer.
    requests_per_second: Option<f64>,
    /// Number of shards that it leads.
    leads: usize,
    connections: Option<u64>,
    /// Why there are no figures of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
struct ShardRow {
    shard: u64,
    leader: Option<u64>,
    reads_per_second: f64,
    writes_per_second: f64,
    bytes_written_per_second: f64,
}

#[derive(Debug, PartialEq, Serialize)]
struct KeyRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    requests_per_second: f64,
    /// By how much the rate may be too high, besides the error of sampling.
    error: f64,
}

#[derive(Debug, PartialEq, Serialize)]
struct ClientRow {
    node: u64,
    address: Option<String>,
    protocol: String,
    /// Since the connection was made.
    operations_per_second: f64,
}

/// What one node said.
type Answer = (u64, Result<(Load, Clients), String>);

pub(super) fn show(args: &TopArgs, client: &ClientArgs) -> Result<(), CliError> {
    let asked = client.client()?;
    let cluster: Cluster = asked.ask_for(200, &Call::get("/v1/cluster"))?.json()?;
    let like = asked.nodes().first().expect("invariant: there is a default");
    let ask_host = |address: &str| ask((&asked, like), address, args.limit);
    let answers: Vec<Answer> =
        cluster.hosts.iter().map(|host| (host.node, ask_host(&host.http_address))).collect();
    let top = sum(&cluster, &answers, args.limit.into());
    match client.output {
        Output::Json => {
            output::line(&serde_json::to_string(&top).expect("invariant: numbers and texts are JSON"))
        }
        Output::Text => output::line(&render(&top)),
    }
}

/// Asks one node for its part.
fn ask((client, like): (&Client, &NodeUrl), address: &str, limit: u16) -> Result<(Load, Clients), String> {
    if address.is_empty() {
        return Err("it has not announced yet where it listens".to_owned());
    }
    let url = like.at(address)?;
    let node = client.of(vec![url]);
    let ask = |path: &str| node.ask_for(200, &Call::get(format!("/v1/cluster/{path}?limit={limit}")));
    let answered = || Ok((ask("load")?.json()?, ask("clients")?.json()?));
    answered().map_err(|error: CliError| error.to_string())
}

fn per_second(count: u64, window_ms: u64) -> f64 {
    // Less than a second after a start, rates would be noise.
    let rate = count as f64 * 1e3 / window_ms.max(1_000) as f64;
    (rate * 10.0).round() / 10.0
}

fn sum(cluster: &Cluster, answers: &[Answer], most: usize) -> Top {
    let leads = |node| cluster.shards.iter().filter(|shard| shard.leader == Some(node)).count();
    let host = |(node, answer): &Answer| {
        let figures = answer.as_ref().ok();
        let requests = |load: &Load| load.shards.iter().map(|shard| shard.reads + shard.writes).sum();
        HostRow {
            node: *node,
            requests_per_second: figures.map(|(load, _)| per_second(requests(load), load.window_ms)),
            leads: leads(*node),
            connections: figures.map(|(_, clients)| clients.connections),
            error: answer.as_ref().err().cloned(),
        }
    };
    let mut shards: BTreeMap<u64, ShardRow> = cluster
        .shards
        .iter()
        .map(|shard| (shard.id, ShardRow { shard: shard.id, leader: shard.leader, ..ShardRow::default() }))
        .collect();
    let figures = || answers.iter().filter_map(|(node, answer)| Some((*node, answer.as_ref().ok()?)));
    for (_, (load, _)) in figures() {
        for shard in &load.shards {
            let row = shards
                .entry(shard.shard)
                .or_insert_with(|| ShardRow { shard: shard.shard, ..ShardRow::default() });
            row.reads_per_second += per_second(shard.reads, load.window_ms);
            row.writes_per_second += per_second(shard.writes, load.window_ms);
            row.bytes_written_per_second += per_second(shard.bytes_written, load.window_ms);
        }
    }
    let loads: Vec<&Load> = figures().map(|(_, (load, _))| load).collect();
    let client = |node, client: &ClientConnection| ClientRow {
        node,
        address: client.address.clone(),
        protocol: client.protocol.to_string(),
        operations_per_second: per_second(client.operations, client.age_ms),
    };
    let mut clients: Vec<ClientRow> = figures()
        .flat_map(|(node, (_, clients))| clients.clients.iter().map(move |row| client(node, row)))
        .collect();
    clients.sort_by(|a, b| b.operations_per_second.total_cmp(&a.operations_per_second));
    clients.truncate(most);
    Top {
        hosts: answers.iter().map(host).collect(),
        shards: shards.into_values().collect(),
        next: NextChanges::of(&loads),
        keys: hottest(&loads, |load| &load.keys, most),
        prefixes: hottest(&loads, |load| &load.prefixes, most),
        clients,
    }
}

/// The keys or prefixes of all nodes, those with most requests first.
fn hottest(loads: &[&Load], listed: impl Fn(&Load) -> &[HotKey], most: usize) -> Vec<KeyRow> {
    let mut rows: Vec<KeyRow> = vec![];
    for load in loads {
        for hot in listed(load) {
            let rate = per_second(hot.requests, load.window_ms);
            let error = per_second(hot.error, load.window_ms);
            match rows.iter_mut().find(|row| (&row.key, &row.key_b64) == (&hot.key, &hot.key_b64)) {
                Some(row) => {
                    row.requests_per_second += rate;
                    row.error += error;
                }
                None => rows.push(KeyRow {
                    key: hot.key.clone(),
                    key_b64: hot.key_b64.clone(),
                    requests_per_second: rate,
                    error,
                }),
            }
        }
    }
    let certain = |row: &KeyRow| row.requests_per_second - row.error;
    rows.sort_by(|a, b| certain(b).total_cmp(&certain(a)));
    rows.truncate(most);
    rows
}

fn render(top: &Top) -> String {
    let rate = |rate: f64| format!("{rate:.0}");
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let hosts = top.hosts.iter().map(|host| {
        vec![
            host.node.to_string(),
            or_dash(host.requests_per_second.map(rate)),
            host.leads.to_string(),
            or_dash(host.connections.map(|count| count.to_string())),
            host.error.as_deref().map_or_else(String::new, |error| error.replace('\n', " ")),
        ]
    });
    let shards = top.shards.iter().map(|shard| {
        vec![
            shard.shard.to_string(),
            or_dash(shard.leader.map(|leader| leader.to_string())),
            rate(shard.reads_per_second),
            rate(shard.writes_per_second),
            rate(shard.bytes_written_per_second),
        ]
    });
    let keys = |rows: &[KeyRow]| -> Vec<Vec<String>> {
        let key = |row: &KeyRow| match (&row.key, &row.key_b64) {
            (Some(key), _) => key.escape_debug().to_string(),
            (None, key_b64) => format!("base64:{}", key_b64.as_deref().unwrap_or_default()),
        };
        rows.iter().map(|row| vec![key(row), rate(row.requests_per_second)]).collect()
    };
    let clients = top.clients.iter().map(|client| {
        vec![
            or_dash(client.address.clone()),
            client.protocol.clone(),
            client.node.to_string(),
            rate(client.operations_per_second),
        ]
    });
    let tables = [
        output::table(&["NODE", "REQUESTS/S", "LEADS", "CONNECTIONS", ""], hosts.collect()),
        output::table(&["SHARD", "LEADER", "READS/S", "WRITES/S", "BYTES WRITTEN/S"], shards.collect()),
        output::table(&["KEY", "REQUESTS/S"], keys(&top.keys)),
        output::table(&["PREFIX", "REQUESTS/S"], keys(&top.prefixes)),
        output::table(&["CLIENT", "PROTOCOL", "NODE", "OPERATIONS/S"], clients.collect()),
    ];
    tables.into_iter().chain(top.next.sentences()).collect::<Vec<_>>().join("\n\n")
}

/// What the leader of the registry will change by itself, a sentence each. Empty if it will change
/// nothing, or cannot be asked.
pub(super) fn ask_for_next_changes(client: &Client) -> Vec<String> {
    let ask_leader = || -> Option<Load> {
        let cluster: Cluster = client.ask_for(200, &Call::get("/v1/cluster")).ok()?.json().ok()?;
        let leader = cluster.shards.iter().find(|shard| shard.id == 0)?.leader?;
        let host = cluster.hosts.iter().find(|host| host.node == leader)?;
        let like = client.nodes().first().expect("invariant: there is a default");
        let node = client.of(vec![like.at(&host.http_address).ok()?]);
        node.ask_for(200, &Call::get("/v1/cluster/load?limit=1")).ok()?.json().ok()
    };
    ask_leader().map_or_else(Vec::new, |load| NextChanges::of(&[&load]).sentences())
}

impl NextChanges {
    /// What the leader says, which is among these nodes or is missing.
    fn of(loads: &[&Load]) -> NextChanges {
        NextChanges {
            division: loads.iter().find_map(|load| load.division.clone()),
            leadership_transfer: loads.iter().find_map(|load| load.leadership_transfer.clone()),
            slot_move: loads.iter().find_map(|load| load.slot_move.clone()),
            vote_exchange: loads.iter().find_map(|load| load.vote_exchange.clone()),
        }
    }

    fn sentences(&self) -> Vec<String> {
        let sentences = [
            self.division.as_ref().and_then(division_sentence),
            self.leadership_transfer.as_ref().map(transfer_sentence),
            self.slot_move.as_ref().map(slot_move_sentence),
            self.vote_exchange.as_ref().map(vote_exchange_sentence),
        ];
        sentences.into_iter().flatten().collect()
    }
}

fn vote_exchange_sentence(next: &VoteExchange) -> String {
    let VoteExchange { from, given, to, returned, reason } = next;
    let back = returned.map(|shard| format!(", and that in shard {shard} from node {to} to node {from}"));
    format!(
        "The vote in shard {given} goes from node {from} to node {to}{}: {reason}",
        back.unwrap_or_default()
    )
}

fn slot_move_sentence(next: &HotSlotMove) -> String {
    let HotSlotMove { from, to, slots, reason, held_back_by } = next;
    let held_back = held_back_by.as_ref().map(|by| format!(". Not moved: {by}")).unwrap_or_default();
    format!("{slots} slots go from shard {from} to shard {to}: {reason}{held_back}")
}

fn transfer_sentence(next: &LeadershipTransfer) -> String {
    let LeadershipTransfer { shard, from, to, reason } = next;
    format!("The leadership of shard {shard} goes from node {from} to node {to}: {reason}")
}

/// What is to happen to the number of data shards; `None` if nothing is.
fn division_sentence(division: &Division) -> Option<String> {
    let Division { shards, wanted, held_back_by, .. } = division;
    let cause = division.cause.as_deref()?;
    let noun = if *shards == 1 { "shard" } else { "shards" };
    let wants = format!("{shards} data {noun}, {wanted} wanted by {cause}");
    Some(match held_back_by {
        Some(reason) => format!(
            "{wants}. Not divided: {reason}. To divide all the same: tidelock cluster add-shard && tidelock cluster rebalance"
        ),
        None => format!("{wants}: another one is about to be added"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(node: u64, text: &str) -> Answer {
        let clients = format!(
            r#"{{"node":{node},"connections":3,"requests_waiting":0,"clients":[{{"id":1,"address":"10.0.0.{node}:5",
                "protocol":"resp","age_ms":2000,"operations":{node}000,"bytes_received":0,"bytes_sent":0,
                "open_requests":0,"held_bytes":0}}]}}"#
        );
        let parsed = (serde_json::from_str(text).unwrap(), serde_json::from_str(&clients).unwrap());
        (node, Ok(parsed))
    }

    #[test]
    fn the_parts_of_all_nodes_add_up() {
        let cluster: Cluster = serde_json::from_str(
            r#"{"node":1,"hosts":[],"replicas":[],"shards":[
                {"id":0,"name":"registry","type":"registry","leader":1,"term":1,"slots":0},
                {"id":1,"name":"a","type":"kv","leader":2,"term":1,"slots":16384}]}"#,
        )
        .unwrap();
        let answers = [
            load(
                1,
                r#"{"node":1,"window_ms":10000,"shards":[{"shard":1,"reads":100,"writes":50,"bytes_written":5000}],
                    "keys":[{"key":"a","requests":640,"error":0},{"key":"b","requests":1280,"error":1200}],
                    "prefixes":[],"spanning_transactions":2,"division":{"shards":1,"wanted":2,"cause":"hosts",
                    "spanning_transactions":2,"held_back_by":"2 transactions"},
                    "leadership_transfer":{"shard":1,"from":2,"to":1,"reason":"node 2 leads all"},
                    "slot_move":{"from":1,"to":2,"slots":64,"reason":"busy","held_back_by":"2 transactions"},
                    "vote_exchange":{"from":1,"given":4,"to":2,"returned":3,"reason":"node 1 has more"}}"#,
            ),
            load(
                2,
                r#"{"node":2,"window_ms":20000,"shards":[{"shard":1,"reads":40,"writes":0,"bytes_written":0}],
                    "keys":[{"key":"a","requests":640,"error":0},{"key_b64":"/w==","requests":64,"error":0}],
                    "prefixes":[{"key":"user:","requests":2000,"error":0}]}"#,
            ),
            (3, Err("no node answers".to_owned())),
        ];
        let top = sum(&cluster, &answers, 2);
        assert_eq!(
            top.hosts.iter().map(|host| host.requests_per_second).collect::<Vec<_>>(),
            [Some(15.0), Some(2.0), None]
        );
        let row = &top.shards[1];
        assert_eq!((row.reads_per_second, row.writes_per_second), (12.0, 5.0));
        let keys: Vec<_> = top.keys.iter().map(|row| (row.key.as_deref(), row.requests_per_second)).collect();
        assert_eq!(keys, [(Some("a"), 96.0), (Some("b"), 128.0)], "the error of b is almost its count");
        assert_eq!(top.clients[0].node, 2, "the busiest first");
        let text = render(&top);
        for part in [
            "3     -           0      -            no node answers",
            "user:   100",
            "1      2       12",
            "1 data shard, 2 wanted by hosts. Not divided: 2 transactions. To divide",
            "The leadership of shard 1 goes from node 2 to node 1: node 2 leads all",
            "64 slots go from shard 1 to shard 2: busy. Not moved: 2 transactions",
            "The vote in shard 4 goes from node 1 to node 2, and that in shard 3 from node 2 to node 1: node 1 has more",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
