//! Which node an operator names by an address: one of those that a node knows of its cluster.
//!
//! Owns the comparison, and what is said if no host, or more than one, has the address. Addresses
//! are compared as text, without resolving host names: a name may resolve to something else on this
//! machine than on the nodes.
//!
//! Invariant: an address that does not name exactly one host changes nothing. A number is not
//! looked up, because the leader that records the change checks it.

use tidelock_api::cluster::{Cluster, Host};
use tidelock_client::{Call, CliError, Client, output};

use super::host_table;
use crate::args::NodeSelector;

/// The number of the node that is named.
pub(super) fn number(client: &Client, name: &NodeSelector) -> Result<u64, CliError> {
    let address = match name {
        NodeSelector::Number(number) => return Ok(*number),
        NodeSelector::Address(address) => address,
    };
    let cluster: Cluster = client.ask_for(200, &Call::get("/v1/cluster"))?.json()?;
    let number = find(&cluster, address)?;
    // Some changes cannot be undone, so the output says which node was meant.
    output::progress(&format!("{address} is node {number}"));
    Ok(number)
}

fn find(cluster: &Cluster, address: &str) -> Result<u64, CliError> {
    let hosts: Vec<&Host> = cluster.hosts.iter().filter(|host| has_address(host, address)).collect();
    let by = cluster.node;
    match hosts.as_slice() {
        [host] => Ok(host.node),
        [] => Err(CliError::Unknown(format!(
            "no node has the address {address}; nothing was done. Node {by} knows these:\n{}",
            host_table(by, &cluster.hosts)
        ))),
        // A host that lost its disk joins again at its former address, under a new number.
        _ => Err(CliError::Usage(format!(
            "{} nodes have the address {address}; nothing was done. Give the number of one of these:\n{}",
            hosts.len(),
            host_table(by, hosts.iter().copied())
        ))),
    }
}

/// Host names have no case.
fn has_address(host: &Host, address: &str) -> bool {
    let addresses = [&host.http_address, &host.resp_address, &host.peer_address];
    addresses.into_iter().any(|own| own.eq_ignore_ascii_case(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Node 3 lost its disk, and joined again at its address as node 4.
    fn cluster() -> Cluster {
        let host = |node, name: &str, connected| Host {
            node,
            http_address: format!("{name}:8001"),
            resp_address: format!("{name}:7001"),
            peer_address: format!("{name}:9001"),
            connected,
            ..Host::default()
        };
        // A founder that has not registered is known by its peer address alone.
        let founder = Host { node: 5, peer_address: "kv-5:9001".to_owned(), ..Host::default() };
        let hosts = [(1, "kv-1", true), (2, "[fd00::2]", true), (3, "kv-3", false), (4, "kv-3", true)];
        let hosts = hosts.into_iter().map(|(node, name, connected)| host(node, name, connected));
        Cluster { node: 1, hosts: hosts.chain([founder]).collect(), ..Cluster::default() }
    }

    #[test]
    fn any_address_of_a_host_names_it() {
        for (address, node) in [
            ("kv-1:8001", 1),
            ("kv-1:7001", 1),
            ("KV-1:9001", 1),
            ("[fd00::2]:8001", 2),
            ("[FD00::2]:9001", 2),
            ("kv-5:9001", 5),
        ] {
            assert_eq!(find(&cluster(), address).expect(address), node);
        }
    }

    #[test]
    fn an_unknown_address_is_told_which_there_are() {
        for address in ["kv-9:8001", "kv-1:8002", "127.0.0.1:8001"] {
            let error = find(&cluster(), address).expect_err(address);
            assert!(matches!(error, CliError::Unknown(_)));
            let text = error.to_string();
            let first = format!("no node has the address {address}; nothing was done. Node 1 knows these:");
            assert_eq!(text.lines().next(), Some(first.as_str()));
            for known in ["NODE", "kv-1:8001", "[fd00::2]:7001", "kv-3:9001", "kv-5:9001"] {
                assert!(text.contains(known), "{text}");
            }
        }
    }

    #[test]
    fn an_address_of_two_hosts_names_neither() {
        let error = find(&cluster(), "kv-3:8001").expect_err("two hosts");
        assert!(matches!(error, CliError::Usage(_)));
        assert_eq!(
            error.to_string(),
            "2 nodes have the address kv-3:8001; nothing was done. Give the number of one of these:\n\
             NODE  HTTP       RESP       PEER       CONNECTED  STANDING  ID  TAGS\n\
             3     kv-3:8001  kv-3:7001  kv-3:9001  no         unknown   -   -\n\
             4     kv-3:8001  kv-3:7001  kv-3:9001  yes        unknown   -   -"
        );
    }
}
