//! The token in requests, and to which servers it may go.

use tidelock_client::{CliError, NodeUrl, Token};

use crate::transport::Transport;

/// The line of a request's head with the token; empty without one.
pub(crate) fn header(token: Option<&Token>) -> String {
    token.map_or_else(String::new, |token| format!("authorization: Bearer {}\r\n", token.expose()))
}

/// Fails if others could read a token on its way to `host:port`.
pub(crate) fn check_path(address: &str, transport: &Transport) -> Result<(), String> {
    Token::check_path(host(address), matches!(transport, Transport::Tls(_)))
}

/// As [`check_path`], for several servers.
pub(crate) fn check_paths(addresses: &[String], transport: &Transport) -> Result<(), CliError> {
    addresses.iter().try_for_each(|address| check_path(address, transport)).map_err(CliError::Usage)
}

/// Fails if a server is on another host than all the nodes to which the token belongs.
pub(crate) fn check_hosts(addresses: &[String], nodes: &[NodeUrl]) -> Result<(), CliError> {
    let nodes: Vec<String> = nodes.iter().map(NodeUrl::address).collect();
    let is_known = |address: &String| nodes.iter().any(|node| host(node) == host(address));
    match addresses.iter().find(|address| !is_known(address)) {
        None => Ok(()),
        Some(address) => Err(CliError::Usage(format!(
            "the token is not sent to {address}, because none of the nodes is on that host ({}): give its --url",
            nodes.join(", ")
        ))),
    }
}

fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_only_to_its_nodes() {
        let nodes = ["https://10.0.0.1:8001", "https://[::1]:8001"].map(|url| url.parse().expect("a URL"));
        let check = |addresses: &[&str]| {
            let addresses: Vec<String> = addresses.iter().map(|&address| address.to_owned()).collect();
            check_hosts(&addresses, &nodes).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["10.0.0.1:7001", "[::1]:7001"]), Ok(()));
        let refused = check(&["10.0.0.1:7001", "10.0.0.2:7001"]).expect_err("another host");
        assert!(refused.contains("not sent to 10.0.0.2:7001"), "{refused}");
        let plain = |address: &str| check_paths(&[address.to_owned()], &Transport::Plain).is_ok();
        assert!(plain("127.0.0.1:7001") && plain("[::1]:7001") && !plain("10.0.0.1:7001"));
    }
}
