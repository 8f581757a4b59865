//! `tidelock cluster status --verify`: checks that all replicas of a shard are equal.
//!
//! Owns the comparison and the wait for it. Every shard gets a checkpoint, every replica makes a
//! snapshot of its state there, and the checksums of these snapshots are compared. A replica that
//! does not report is not taken for equal.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidelock_api::checkpoints::Checkpoints;
use tidelock_api::cluster::{Checkpoint, Cluster};
use tidelock_client::{Call, CliError, Client, Output, output};

/// Interval between polls of the replicas' reports.
const LOOK: Duration = Duration::from_millis(100);

/// Time after which the command says what it waits for.
const QUIET: Duration = Duration::from_secs(2);

/// Checkpoints every shard, waits until every reachable replica has reported or `timeout` is over,
/// and prints the comparison.
///
/// # Errors
/// Also if replicas differ, or cannot be compared.
pub fn run(client: &Client, format: Output, timeout: Duration) -> Result<(), CliError> {
    let wanted = checkpoint(client)?;
    let (begun, mut is_told) = (Instant::now(), false);
    let shards = loop {
        let answer = client.ask_for(200, &Call::get("/v1/cluster"))?;
        let shards = compare(&wanted, &answer.json()?);
        if shards.iter().all(Comparison::is_settled) || begun.elapsed() >= timeout {
            break shards;
        }
        if !is_told && begun.elapsed() >= QUIET {
            is_told = true;
            eprintln!(
                "waits up to {} s until every replica has reported; --wait-s changes that",
                timeout.as_secs()
            );
        }
        thread::sleep(LOOK);
    };
    match format {
        Output::Json => {
            let equal = shards.iter().all(|shard| shard.verdict == Verdict::Equal);
            let text = serde_json::to_string(&Verification { equal, shards: &shards });
            output::line(&text.expect("invariant: texts and numbers are JSON"))?;
        }
        Output::Text => output::write(render(&shards).as_bytes())?,
    }
    complaint(&shards).map_or(Ok(()), |text| Err(CliError::Failed(text)))
}

/// Requests a checkpoint of every shard. Returns their indexes.
fn checkpoint(client: &Client) -> Result<BTreeMap<u64, u64>, CliError> {
    let answer = client.ask_for(200, &Call::post("/v1/cluster/checkpoint", &[]))?;
    let checkpoints: Checkpoints = answer.json()?;
    Ok(checkpoints.shards.into_iter().map(|shard| (shard.id, shard.index)).collect())
}

#[derive(Serialize)]
struct Verification<'a> {
    equal: bool,
    shards: &'a [Comparison],
}

/// The replicas of one shard, compared at one index.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Comparison {
    shard: u64,
    /// The index at which they are compared.
    index: u64,
    verdict: Verdict,
    replicas: Vec<Replica>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Equal,
    Differs,
    /// No two differ, but not all can be compared.
    Incomplete,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Replica {
    node: u64,
    connected: bool,
    /// The checksum at that index; `null` if none is reported.
    checksum: Option<String>,
    /// Its node has stopped because another replica's log contradicts entries committed in this
    /// one.
    diverged: bool,
}

impl Comparison {
    /// Whether waiting cannot change the result.
    fn is_settled(&self) -> bool {
        let is_settled =
            |replica: &Replica| replica.checksum.is_some() || replica.diverged || !replica.connected;
        self.replicas.iter().all(is_settled)
    }
}

/// Compares the replicas of each shard at the requested checkpoint. If another client has requested
/// a later one meanwhile, all replicas will report that one.
fn compare(wanted: &BTreeMap<u64, u64>, cluster: &Cluster) -> Vec<Comparison> {
    let is_connected = |node: u64| {
        let host = cluster.hosts.iter().find(|host| host.node == node);
        host.is_some_and(|host| host.connected) || cluster.node == node
    };
    let comparison = |(&shard, &wanted): (&u64, &u64)| {
        let replicas: Vec<_> = cluster.replicas.iter().filter(|replica| replica.shard == shard).collect();
        let reported = replicas.iter().filter_map(|replica| Some(replica.checkpoint.as_ref()?.index));
        let index = reported.max().unwrap_or(wanted).max(wanted);
        let at_index = |checkpoint: &Checkpoint| checkpoint.index == index;
        let replicas: Vec<Replica> = replicas
            .iter()
            .map(|replica| Replica {
                node: replica.node,
                connected: is_connected(replica.node),
                checksum: replica.checkpoint.clone().filter(at_index).map(|checkpoint| checkpoint.checksum),
                diverged: replica.diverged,
            })
            .collect();
        Comparison { shard, index, verdict: verdict(&replicas), replicas }
    };
    wanted.iter().map(comparison).collect()
}

fn verdict(replicas: &[Replica]) -> Verdict {
    let mut checksums = replicas.iter().filter_map(|replica| replica.checksum.as_deref());
    let first = checksums.next();
    if checksums.any(|checksum| Some(checksum) != first) || replicas.iter().any(|replica| replica.diverged) {
        Verdict::Differs
    } else if first.is_none() || replicas.iter().any(|replica| replica.checksum.is_none()) {
        Verdict::Incomplete
    } else {
        Verdict::Equal
    }
}

fn render(shards: &[Comparison]) -> String {
    let mut nodes: Vec<u64> =
        shards.iter().flat_map(|shard| &shard.replicas).map(|replica| replica.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let cell = |shard: &Comparison, node: u64| match shard.replicas.iter().find(|it| it.node == node) {
        None => String::new(),
        Some(Replica { diverged: true, .. }) => "contradicted".to_owned(),
        Some(Replica { checksum: Some(checksum), .. }) => checksum.clone(),
        Some(Replica { connected: true, .. }) => "not reported".to_owned(),
        Some(Replica { connected: false, .. }) => "unreachable".to_owned(),
    };
    let rows = shards.iter().map(|shard| {
        let mut row = vec![shard.shard.to_string(), shard.index.to_string()];
        row.extend(nodes.iter().map(|&node| cell(shard, node)));
        row.push(match shard.verdict {
            Verdict::Equal => "equal".to_owned(),
            Verdict::Differs => "DIFFERS".to_owned(),
            Verdict::Incomplete => "incomplete".to_owned(),
        });
        row
    });
    let nodes: Vec<String> = nodes.iter().map(|node| format!("NODE {node}")).collect();
    let mut header = vec!["SHARD", "INDEX"];
    header.extend(nodes.iter().map(String::as_str));
    header.push("REPLICAS");
    output::table(&header, rows.collect()) + "\n"
}

/// The error, with what to do about it; `None` if all replicas are equal.
fn complaint(shards: &[Comparison]) -> Option<String> {
    let of = |verdict| {
        let shards = shards.iter().filter(|shard| shard.verdict == verdict);
        shards.map(|shard| shard.shard.to_string()).collect::<Vec<_>>().join(", ")
    };
    let (differs, incomplete) = (of(Verdict::Differs), of(Verdict::Incomplete));
    if !differs.is_empty() {
        return Some(format!(
            "replicas differ in shard {differs}: this must never be. If a data directory was put back to an earlier state, \
             or copied, see \"Old copies\" in docs/how-to/replace-a-node.md; if not, make a backup, and report it"
        ));
    }
    if incomplete.is_empty() {
        return None;
    }
    Some(format!(
        "not every replica of shard {incomplete} could be compared. One that is unreachable comes back or is \
         replaced; one that has not reported is catching up, was restarted, or has no room for a snapshot: try again"
    ))
}

#[cfg(test)]
mod tests {
    use tidelock_api::cluster as api;

    use super::*;

    /// A cluster of three as node 1 sees it. `replicas` are the reports of shard 1.
    fn cluster(third_connected: bool, reports: [Option<(u64, &str)>; 3]) -> Cluster {
        let replica = |(node, report): (u64, Option<(u64, &str)>)| {
            let checkpoint = report.map(|(index, sum)| Checkpoint { index, checksum: sum.to_owned() });
            api::Replica { shard: 1, node, checkpoint, ..api::Replica::default() }
        };
        let replicas = (1..).zip(reports).map(replica).collect();
        let host = |node, connected| api::Host { node, connected, ..api::Host::default() };
        let hosts = vec![host(1, true), host(2, true), host(3, third_connected)];
        Cluster { node: 1, hosts, replicas, ..Cluster::default() }
    }

    fn compared(cluster: &Cluster) -> Comparison {
        compare(&BTreeMap::from([(1, 50)]), cluster).remove(0)
    }

    #[test]
    fn equal_checksums_at_one_index_are_equal() {
        let comparison = compared(&cluster(true, [Some((50, "aa")), Some((50, "aa")), Some((50, "aa"))]));
        assert_eq!((comparison.verdict, comparison.index), (Verdict::Equal, 50));
        assert!(comparison.is_settled());
        assert_eq!(
            render(&[comparison]),
            "SHARD  INDEX  NODE 1  NODE 2  NODE 3  REPLICAS\n1      50     aa      aa      aa      equal\n"
        );
    }

    #[test]
    fn one_that_differs_is_found() {
        for reports in [
            [Some((50, "aa")), Some((50, "ab")), Some((50, "aa"))],
            [Some((50, "ab")), Some((50, "aa")), Some((50, "aa"))],
            [Some((50, "aa")), None, Some((50, "ab"))],
        ] {
            let comparison = compared(&cluster(true, reports));
            assert_eq!(comparison.verdict, Verdict::Differs);
            assert!(render(std::slice::from_ref(&comparison)).contains("DIFFERS"));
            assert!(complaint(&[comparison]).is_some_and(|text| text.contains("differ in shard 1")));
        }
    }

    #[test]
    fn one_that_stopped_over_a_contradiction_differs_though_it_says_nothing_more() {
        let mut cluster = cluster(false, [Some((50, "aa")), Some((50, "aa")), None]);
        cluster.replicas[2].diverged = true;
        let comparison = compared(&cluster);
        assert_eq!(comparison.verdict, Verdict::Differs);
        assert!(comparison.is_settled());
        let text = render(&[comparison]);
        assert!(text.contains("contradicted") && text.contains("DIFFERS"), "{text}");
    }

    #[test]
    fn silence_is_not_equality() {
        let waiting = compared(&cluster(true, [Some((50, "aa")), Some((50, "aa")), None]));
        assert_eq!(waiting.verdict, Verdict::Incomplete);
        assert!(!waiting.is_settled(), "it may still report");
        let old = compared(&cluster(true, [Some((50, "aa")), Some((50, "aa")), Some((49, "aa"))]));
        assert_eq!(old.verdict, Verdict::Incomplete, "an earlier checkpoint says nothing about this one");
        let unreachable = compared(&cluster(false, [Some((50, "aa")), Some((50, "aa")), None]));
        assert!(unreachable.is_settled() && unreachable.verdict == Verdict::Incomplete);
        assert!(render(std::slice::from_ref(&unreachable)).contains("unreachable"));
        assert!(complaint(&[unreachable]).is_some_and(|text| text.contains("could be compared")));
        let none = compared(&cluster(true, [None; 3]));
        assert_eq!(none.verdict, Verdict::Incomplete);
    }

    #[test]
    fn a_later_checkpoint_of_somebody_else_serves_too() {
        let under_way = compared(&cluster(true, [Some((60, "bb")), Some((50, "aa")), Some((60, "bb"))]));
        assert_eq!((under_way.index, under_way.verdict), (60, Verdict::Incomplete));
        assert!(!under_way.is_settled());
        let done = compared(&cluster(true, [Some((60, "bb")), Some((60, "bb")), Some((60, "bb"))]));
        assert_eq!(done.verdict, Verdict::Equal);
    }
}
