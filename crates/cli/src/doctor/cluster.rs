//! Checks of a cluster, by asking its nodes.

use std::collections::BTreeMap;

use tidelock_api::auth::Authentication;
use tidelock_api::cluster::{Cluster, Host, HostRole};
use tidelock_api::membership::Progress;
use tidelock_api::version::Version;
use tidelock_client::{Call, CliError, Client, NodeUrl};
use tidelock_core::types::ShardId;

use super::Finding;
use crate::args::ClientArgs;
use crate::cluster::goal::Goal;
use crate::cluster::leaderless;
use crate::cluster::voters::{node_list, voters};

/// The page about a majority that is lost.
const LOST_MAJORITY: &str = "docs/how-to/lost-majority.md";
/// The page about disks without room.
const DISK_FULL: &str = "docs/how-to/disk-full.md";
/// The page about slow disks.
const SLOW_DISK: &str = "docs/how-to/slow-disk.md";
/// The page about TLS and certificates.
const SECURE: &str = "docs/how-to/secure.md";
/// The page about starting nodes.
const START: &str = "docs/how-to/start-nodes.md";
/// The page about votes, and which nodes have them.
const MEMBERS: &str = "docs/how-to/change-members.md";
/// The page about nodes that do not answer.
const NODE_DOWN: &str = "docs/how-to/monitor.md#a-node-is-down";
/// The page about replicas that contradict each other.
const REPLACE: &str = "docs/how-to/replace-a-node.md";
/// The page about releases and the cluster version.
const UPGRADE: &str = "docs/how-to/upgrade.md";
/// The page about tokens.
const TOKENS: &str = "docs/how-to/tokens.md";
/// The page about addresses that nodes tell others.
const ADDRESSES: &str = "docs/how-to/addresses.md";
/// The page about health checks and their warnings.
const MONITOR: &str = "docs/how-to/monitor.md";

/// All checks. Fails if no node answers: then there is nothing to check.
pub(super) fn check(args: &ClientArgs) -> Result<Vec<Finding>, CliError> {
    let given = args.client()?;
    let views = views(&given);
    let (client, cluster) = best_view(&given, &views)?;
    let mut findings = vec![shards(&cluster), failures(&cluster)];
    findings.extend(diverged(&cluster));
    findings.push(versions(&client.ask_for(200, &Call::get("/v1/cluster/version"))?.json()?));
    findings.extend(authentication(&client)?);
    findings.extend(check_given(&views, &cluster));
    for host in &cluster.hosts {
        findings.extend(node((&client, &views), host, &cluster));
    }
    findings.extend(shared_addresses(&cluster));
    findings.extend(draining(&cluster));
    for host in cluster.hosts.iter().filter(|host| host.standing == HostRole::Leaving) {
        findings.push(leaving(&client, &cluster, host.node));
    }
    Ok(findings)
}

/// Warns of drained nodes: a drain lasts until an operator undoes it.
fn draining(cluster: &Cluster) -> Option<Finding> {
    let stays = |host: &&Host| host.draining && host.standing != HostRole::Leaving;
    let nodes: Vec<u64> = cluster.hosts.iter().filter(stays).map(|host| host.node).collect();
    let message = format!("{} lead nothing, because of `tidelock cluster drain`", node_list(&nodes));
    (!nodes.is_empty()).then(|| Finding::warning("drained", message, MEMBERS))
}

/// Warns of a removal that was requested and is not done: what it waits for, and how to cancel it
/// while the host has replicas of data shards.
fn leaving(client: &Client, cluster: &Cluster, node: u64) -> Finding {
    let call = Call::get(Goal::Gone(node).target());
    let reason = match client.ask_for(200, &call).and_then(|answer| answer.json::<Progress>()) {
        Ok(progress) => progress.waiting_for.into_iter().next().unwrap_or("it ends now".to_owned()),
        Err(error) => format!("what it waits for is not known: {error}"),
    };
    let mut replicas = cluster.replicas.iter().filter(|replica| replica.node == node);
    let cure = match replicas.any(|replica| replica.shard != ShardId::PRIME.0) {
        true => format!("; `tidelock cluster add {node}` cancels that"),
        false => String::new(),
    };
    Finding::warning("leaving", format!("node {node} is being removed: {reason}{cure}"), MEMBERS)
}

/// The cluster as each of the given nodes sees it, or why it does not say.
type Views = Vec<(NodeUrl, Result<Cluster, CliError>)>;

fn views(client: &Client) -> Views {
    let view = |url: &NodeUrl| (url.clone(), view(&client.of(vec![url.clone()])));
    client.nodes().iter().map(view).collect()
}

fn view(client: &Client) -> Result<Cluster, CliError> {
    client.ask_for(200, &Call::get("/v1/cluster"))?.json()
}

/// The cluster as the first node sees it that knows all leaders, and a client of that node. A node
/// that is cut off knows no leader while the others serve. If every node misses a leader: the view
/// of the first one that answers.
fn best_view(client: &Client, views: &Views) -> Result<(Client, Cluster), CliError> {
    let answered = || views.iter().filter_map(|(url, view)| Some((url, view.as_ref().ok()?)));
    let found = answered().find(|(_, view)| leaderless(view).is_none()).or_else(|| answered().next());
    match found {
        Some((url, view)) => Ok((client.of(vec![url.clone()]), view.clone())),
        // For the error, which names all of them.
        None => Ok((client.of(client.nodes().to_vec()), view(client)?)),
    }
}

/// Checks the URLs that the user gave: nodes of another cluster, and URLs of no host of this
/// cluster that do not answer. The hosts of this cluster are checked separately.
fn check_given(views: &Views, cluster: &Cluster) -> Vec<Finding> {
    let find = |(url, view): &(NodeUrl, Result<Cluster, CliError>)| match view {
        Ok(view) => is_of_another_cluster(view, cluster).then(|| {
            let message = format!("node {} of another cluster answers", view.node);
            Finding::failure(url.to_string(), message, START)
        }),
        Err(error) => {
            let is_host = cluster.hosts.iter().any(|host| url.to_string().ends_with(&host.http_address));
            (!is_host).then(|| Finding::failure(url.to_string(), error.to_string(), ADDRESSES))
        }
    };
    views.iter().filter_map(find).collect()
}

/// Whether the node of a view is no host of a cluster. The uuids say so, because numbers repeat.
fn is_of_another_cluster(view: &Cluster, cluster: &Cluster) -> bool {
    let own = view.hosts.iter().find(|host| host.node == view.node).and_then(|host| host.id.as_ref());
    own.is_some_and(|id| cluster.hosts.iter().all(|host| host.id.as_ref() != Some(id)))
}

/// Warns of an address that several hosts of the registry have. A node that lost its data directory
/// and joined again at the same address has a new number; the old number stays until an operator
/// removes it.
fn shared_addresses(cluster: &Cluster) -> Vec<Finding> {
    let mut nodes: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for host in &cluster.hosts {
        for address in [&host.peer_address, &host.http_address].into_iter().filter(|text| !text.is_empty()) {
            nodes.entry(address).or_default().push(host.node);
        }
    }
    nodes.retain(|_, nodes| nodes.len() > 1);
    let findings = nodes.iter().map(|(address, nodes)| {
        let message = format!("{} have the same address {address}", node_list(nodes));
        Finding::warning("addresses", message, ADDRESSES)
    });
    findings.collect()
}

fn shards(cluster: &Cluster) -> Finding {
    match leaderless(cluster) {
        None => Finding::ok("shards", format!("all {} have a leader", cluster.shards.len())),
        Some(what) => Finding::failure("shards", what, LOST_MAJORITY),
    }
}

/// What is said of the cluster if only the machine could be checked.
pub(super) fn unknown(error: &CliError) -> Finding {
    let message = format!("only this machine was checked: {error}");
    match error {
        CliError::Unreachable(_) => Finding::warning("cluster", message, START),
        _ => Finding::failure("cluster", message, TOKENS),
    }
}

/// How many nodes the shard with the fewest working voters can lose.
fn failures(cluster: &Cluster) -> Finding {
    let voters = voters(cluster);
    let Some(weakest) = voters.iter().min_by_key(|voters| voters.spare()) else {
        return Finding::warning("voters", "no voter is known of any shard", MEMBERS);
    };
    let as_weak = voters.iter().filter(|voters| voters.spare() == weakest.spare());
    let numbers: Vec<String> = as_weak.map(|voters| voters.shard.to_string()).collect();
    let shards = format!("shard{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "));
    let loses = if numbers.len() == 1 { "loses its" } else { "lose their" };
    let missing = weakest.missing();
    match weakest.spare() {
        None => {
            let page = if weakest.stalled.is_empty() { LOST_MAJORITY } else { DISK_FULL };
            let message = format!("no majority of {shards} can write, so writes are refused: {missing}");
            Finding::failure("voters", message, page)
        }
        Some(0) if missing.is_empty() => {
            let message = format!("{shards} {loses} service with the first node that fails");
            Finding::warning("voters", message, MEMBERS)
        }
        Some(0) => {
            let page = if weakest.stalled.is_empty() { NODE_DOWN } else { DISK_FULL };
            let message = format!("{missing}: {shards} {loses} service with the next node that fails");
            Finding::warning("voters", message, page)
        }
        Some(lost) => {
            Finding::ok("voters", format!("every shard continues after the loss of {lost} of its voters"))
        }
    }
}

/// Replicas whose contents differ, which no fault may cause.
fn diverged(cluster: &Cluster) -> impl Iterator<Item = Finding> {
    let diverged = cluster.replicas.iter().filter(|replica| replica.diverged);
    diverged.map(|replica| {
        let message = format!(
            "the replica of shard {} at node {} differs from the others",
            replica.shard, replica.node
        );
        Finding::failure("replicas", message, REPLACE)
    })
}

fn versions(version: &Version) -> Finding {
    let mut releases: BTreeMap<Option<&str>, Vec<u64>> = BTreeMap::new();
    for host in &version.hosts {
        releases.entry(host.release.as_deref()).or_default().push(host.node);
    }
    if let Some(nodes) = releases.get(&None) {
        let message = format!("the release of {} is not known yet", node_list(nodes));
        return Finding::warning("releases", message, UPGRADE);
    }
    let mut releases = releases.iter().map(|(release, nodes)| (release.unwrap_or_default(), nodes));
    if releases.len() > 1 {
        let nodes = releases.map(|(release, nodes)| format!("{release} at {}", node_list(nodes)));
        let message = format!("nodes run different releases: {}", nodes.collect::<Vec<_>>().join("; "));
        return Finding::warning("releases", message, UPGRADE);
    }
    if version.held {
        let message = format!("the cluster version is held at {}", version.version);
        return Finding::warning("releases", message, UPGRADE);
    }
    let release = releases.next().map_or("no release", |(release, _)| release);
    Finding::ok("releases", format!("all nodes run {release}; the cluster version is {}", version.version))
}

/// Nothing is found where the caller may not know.
fn authentication(client: &Client) -> Result<Option<Finding>, CliError> {
    let answer = client.ask(&Call::get("/v1/auth"))?;
    if answer.status != 200 {
        return Ok(None);
    }
    let Authentication { required } = answer.json()?;
    Ok(Some(match required {
        true => Finding::ok("tokens", "authentication is required"),
        false => {
            Finding::warning("tokens", "every client that reaches a node may make every request", TOKENS)
        }
    }))
}

/// The readiness checks and warnings of one node of a cluster.
fn node((client, views): (&Client, &Views), host: &Host, cluster: &Cluster) -> Vec<Finding> {
    let name = format!("node {}", host.node);
    let Some(Ok(url)) = client.nodes().first().map(|asked| asked.at(&host.http_address)) else {
        return vec![Finding::warning(
            name,
            "it has not told the cluster its address for clients",
            ADDRESSES,
        )];
    };
    // The request for the cluster has already failed. Another one to a node that hangs would take a
    // second timeout.
    let known = views.iter().find(|(asked, _)| *asked == url);
    if let Some((_, Err(error @ CliError::Unreachable(_)))) = known {
        return vec![Finding::failure(name, format!("{url}: {error}"), NODE_DOWN)];
    }
    let client = client.of(vec![url.clone()]);
    let answer = match client.ask(&Call::get("/readyz?verbose=true")) {
        Ok(answer) => answer,
        Err(error) => return vec![Finding::failure(name, format!("{url}: {error}"), NODE_DOWN)],
    };
    if let Ok(view) = view(&client)
        && (view.node != host.node || is_of_another_cluster(&view, cluster))
    {
        let which = if is_of_another_cluster(&view, cluster) { " of another cluster" } else { "" };
        let message = format!("{url}: node {}{which} answers at its address", view.node);
        return vec![Finding::failure(name, message, ADDRESSES)];
    }
    if !matches!(answer.status, 200 | 503) {
        return vec![Finding::failure(name, answer.refusal().to_string(), MONITOR)];
    }
    let text = String::from_utf8_lossy(&answer.body);
    let mut findings = readiness(&name, &text, leaderless(cluster).is_none());
    if answer.status == 200 {
        findings.insert(0, Finding::ok(name, format!("{url} is ready")));
    }
    findings
}

/// The lines of `/readyz?verbose` that are not well. `has_leaders`: another node knows the leaders
/// of all shards.
fn readiness(name: &str, text: &str, has_leaders: bool) -> Vec<Finding> {
    let page_about = |line: &str| match page_about(line) {
        // The node alone knows of none: it is cut off, or has just started.
        LOST_MAJORITY if has_leaders => NODE_DOWN,
        page => page,
    };
    let findings = text.lines().filter_map(|line| {
        if let Some(failed) = line.strip_prefix("[-]") {
            Some(Finding::failure(name, failed, page_about(failed)))
        } else {
            line.strip_prefix("[!]").map(|warning| Finding::warning(name, warning, page_about(warning)))
        }
    });
    findings.collect()
}

/// The page that says what to do about a check or a warning of `/readyz?verbose`.
fn page_about(line: &str) -> &'static str {
    const PAGES: [(&str, &str); 11] = [
        ("takes longer than", SLOW_DISK),
        ("the disk was slow", SLOW_DISK),
        ("disk failed", DISK_FULL),
        ("the disk of node", DISK_FULL),
        ("no leader is known", LOST_MAJORITY),
        ("nodes can be reached", LOST_MAJORITY),
        ("no connection to node", NODE_DOWN),
        ("--insecure", SECURE),
        ("protected mode", SECURE),
        ("certificate", SECURE),
        ("free for the data directory", DISK_FULL),
    ];
    PAGES.iter().find(|(words, _)| line.contains(words)).map_or(MONITOR, |(_, page)| page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::voters::cluster_of_three;
    use tidelock_api::version::HostRelease;

    fn found(connected: &[u64], stalled: &[u64]) -> Finding {
        failures(&cluster_of_three(connected, stalled))
    }

    #[test]
    fn voters_that_cannot_take_part_do_not_count() {
        let ok = "every shard continues after the loss of 1 of its voters";
        assert_eq!(found(&[1, 2, 3], &[]), Finding::ok("voters", ok));
        let next = "no connection to node 3: shard 1 loses its service with the next node that fails";
        assert_eq!(found(&[1, 2], &[]), Finding::warning("voters", next, NODE_DOWN));
        let down = "no majority of shard 1 can write, so writes are refused: no connection to nodes 2, 3";
        assert_eq!(found(&[1], &[]), Finding::failure("voters", down, LOST_MAJORITY));
        let full = "no majority of shard 1 can write, so writes are refused: no connection to node 2, and a disk that \
                    takes no writes at node 3";
        assert_eq!(found(&[1, 3], &[3]), Finding::failure("voters", full, DISK_FULL));
    }

    #[test]
    fn nodes_of_another_cluster_are_told_by_their_uuids() {
        let host = |node, id: &str| Host { node, id: Some(id.to_owned()), ..Host::default() };
        let view = |node, hosts| Cluster { node, hosts, ..Cluster::default() };
        let cluster = view(1, vec![host(1, "a"), host(2, "b")]);
        assert!(!is_of_another_cluster(&view(2, vec![host(1, "a"), host(2, "b")]), &cluster));
        assert!(is_of_another_cluster(&view(2, vec![host(1, "a"), host(2, "z")]), &cluster));
        let unregistered = Host { node: 2, ..Host::default() };
        assert!(!is_of_another_cluster(&view(2, vec![unregistered]), &cluster));
        let url: NodeUrl = "http://c:1".parse().expect("a URL");
        let found = check_given(&vec![(url.clone(), Ok(view(1, vec![host(1, "y")])))], &cluster);
        assert_eq!(found, [Finding::failure(url.to_string(), "node 1 of another cluster answers", START)]);
    }

    #[test]
    fn nodes_with_one_address_are_found() {
        let host = |node, peer: &str, http: &str| Host {
            node,
            peer_address: peer.into(),
            http_address: http.into(),
            ..Host::default()
        };
        let hosts =
            vec![host(1, "a:1", "a:2"), host(2, "b:1", ""), host(3, "c:1", "a:2"), host(4, "d:1", "")];
        let found = shared_addresses(&Cluster { hosts, ..Cluster::default() });
        let same = "nodes 1, 3 have the same address a:2";
        assert_eq!(found, [Finding::warning("addresses", same, ADDRESSES)]);
    }

    #[test]
    fn nodes_of_other_or_unknown_releases_are_named() {
        let host = |node, release: Option<&str>| HostRelease {
            node,
            release: release.map(str::to_owned),
            ..HostRelease::default()
        };
        let found = |hosts: Vec<HostRelease>| versions(&Version { version: 11, hosts, ..Version::default() });
        let (one, two) = (host(1, Some("0.1.0")), host(2, Some("0.2.0")));
        let same = "all nodes run 0.1.0; the cluster version is 11";
        assert_eq!(found(vec![one.clone(), host(3, Some("0.1.0"))]), Finding::ok("releases", same));
        let differ = "nodes run different releases: 0.1.0 at node 1; 0.2.0 at nodes 2, 3";
        assert_eq!(
            found(vec![one.clone(), two, host(3, Some("0.2.0"))]),
            Finding::warning("releases", differ, UPGRADE)
        );
        let unknown = "the release of node 4 is not known yet";
        assert_eq!(found(vec![one, host(4, None)]), Finding::warning("releases", unknown, UPGRADE));
    }

    #[test]
    fn failed_checks_and_warnings_of_a_node_are_found() {
        let text = "[+]disk ok\n[-]shard 1 failed: no leader is known\n[!]no connection to node 2\n\
             [!]only 31 MiB are free for the data directory, 3 % of its file system\nnot ready\n";
        let alone = readiness("node 1", "[-]shard 1 failed: no leader is known", true);
        assert_eq!(alone, [Finding::failure("node 1", "shard 1 failed: no leader is known", NODE_DOWN)]);
        assert_eq!(
            readiness("node 1", text, false),
            [
                Finding::failure("node 1", "shard 1 failed: no leader is known", LOST_MAJORITY),
                Finding::warning("node 1", "no connection to node 2", NODE_DOWN),
                Finding::warning(
                    "node 1",
                    "only 31 MiB are free for the data directory, 3 % of its file system",
                    DISK_FULL
                ),
            ]
        );
    }
}
