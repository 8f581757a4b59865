//! Names of nodes, resolved anew for each use.
//!
//! Owns the two kinds of names in settings and in the registry. A host name is resolved by the
//! system (`getaddrinfo`: `/etc/hosts`, DNS, whatever the machine is set up for), on a thread for
//! blocking calls, so that no worker waits. `srv:NAME` is a DNS SRV name: its records name hosts
//! and ports. The system has no call for those, so they are queried at the system's name servers.
//! Nothing is cached here: a node that moved must be found at its new address.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::RData;
use tidelock_core::address_book::SRV_PREFIX;
use tokio::time::timeout;

/// Time limit for resolving one name: longer than the five seconds after which resolvers ask the
/// second name server, if the first one does not answer.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(8);

/// Most hosts of one SRV name that are considered.
pub const SRV_TARGETS_MAX: usize = 64;

/// The addresses of `HOST:PORT`, or of all hosts of `srv:NAME`.
///
/// # Errors
/// When the name does not resolve within [`RESOLVE_TIMEOUT`]. Of the hosts of an SRV name, one
/// that resolves is enough.
pub async fn addresses(name: &str) -> io::Result<Vec<SocketAddr>> {
    let Some(service) = name.strip_prefix(SRV_PREFIX) else { return host_addresses(name).await };
    let (mut found, mut failure) = (vec![], None);
    for target in srv_targets(service).await? {
        match host_addresses(&target).await {
            Ok(addresses) => found.extend(addresses),
            Err(error) => failure = Some(error),
        }
    }
    failure.filter(|_| found.is_empty()).map_or(Ok(found), Err)
}

async fn host_addresses(name: &str) -> io::Result<Vec<SocketAddr>> {
    let addresses = timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host(name)).await;
    Ok(addresses.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?.collect())
}

/// Replaces each `srv:NAME` in a list of addresses by the hosts of its records.
///
/// # Errors
/// The first SRV name that does not resolve.
pub async fn expanded(names: &[String]) -> io::Result<Vec<String>> {
    let mut expanded: Vec<String> = vec![];
    for name in names {
        let targets = match name.strip_prefix(SRV_PREFIX) {
            Some(service) => srv_targets(service).await?,
            None => vec![name.clone()],
        };
        expanded.extend(targets);
    }
    Ok(expanded)
}

/// The hosts of an SRV name as `HOST:PORT`, sorted and without duplicates, in lower case and
/// without the dot of the root. Priorities and weights say nothing here: every host counts.
///
/// # Errors
/// When the name does not resolve within [`RESOLVE_TIMEOUT`], or has no or too many records.
pub async fn srv_targets(service: &str) -> io::Result<Vec<String>> {
    let in_context = |text: String| io::Error::other(format!("the SRV name {service}: {text}"));
    // Made for each use, because it caches, and reads the system's name servers when it is made.
    let resolver = TokioResolver::builder_tokio()
        .and_then(|builder| builder.build())
        .map_err(|error| in_context(error.to_string()))?;
    let lookup = timeout(RESOLVE_TIMEOUT, resolver.srv_lookup(service)).await;
    let lookup = lookup
        .map_err(|_| in_context("no answer in time".to_owned()))?
        .map_err(|error| in_context(error.to_string()))?;
    let mut targets: Vec<String> = vec![];
    for record in lookup.answers() {
        if let RData::SRV(srv) = &record.data {
            targets.push(target(&srv.target.to_utf8(), srv.port));
        }
    }
    targets.sort();
    targets.dedup();
    match targets.len() {
        0 => Err(in_context("it has no records".to_owned())),
        count if count > SRV_TARGETS_MAX => Err(in_context(format!("{count} hosts are too many"))),
        _ => Ok(targets),
    }
}

fn target(host: &str, port: u16) -> String {
    format!("{}:{port}", host.trim_end_matches('.').to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn literals_need_no_name_server() {
        for name in ["127.0.0.1:9001", "[::1]:9001"] {
            assert_eq!(addresses(name).await.unwrap(), [name.parse().unwrap()]);
        }
        assert!(addresses("nowhere").await.is_err());
        let names = ["a:1".to_owned(), "[::1]:2".to_owned()];
        assert_eq!(expanded(&names).await.unwrap(), names);
    }

    #[test]
    fn targets_are_spelled_alike() {
        assert_eq!(target("KV-1.Example.org.", 9001), "kv-1.example.org:9001");
    }
}
