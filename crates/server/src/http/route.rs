//! Maps a path to the part of the interface that serves it.
//!
//! Owns the map of paths and the list of first segments that are never keys. It reads the raw path
//! and decodes nothing: what follows a prefix belongs to the key, byte for byte.

use super::membership::HostVerb;
use crate::metrics::Dialect;

/// The target of a request. Keys are still percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// `/v1/keys/{key}`.
    Key(&'a str),
    /// `/v1/keys`.
    List,
    /// `/v1/atomics/{id}`, and operations below it.
    Atomic(&'a str),
    /// `/v1/cluster`.
    Cluster,
    /// `/v1/cluster/dump`.
    Dump,
    /// `/v1/cluster/shards/{shard}/explain`; the shard's number is not parsed yet.
    Explain(&'a str),
    /// `/v1/cluster/shards/{shard}/tags`; the shard's number is not parsed yet.
    Tags(&'a str),
    /// `/v1/cluster/clients`.
    Clients,
    /// `/v1/cluster/moves`.
    Moves,
    /// `/v1/cluster/rebalance`.
    Rebalance,
    /// `/v1/cluster/shards`.
    AddShard,
    /// `/v1/cluster/shards/{shard}/slots`; the shard's number is not parsed yet.
    MoveSlots(&'a str),
    /// `/v1/cluster/shards/{shard}`; the shard's number is not parsed yet.
    Shard(&'a str),
    /// `/v1/cluster/checkpoint`.
    Checkpoint,
    /// `/v1/backup`.
    Backup,
    /// `/v1/restore`.
    Restore,
    /// `/v1/cluster/hosts/{node}/{verb}`; the node's number is not parsed yet.
    Host {
        /// The node as the path writes it.
        node: &'a str,
        verb: HostVerb,
    },
    /// `/v1/cluster/shards/{shard}/transfer`; the shard's number is not parsed yet.
    Transfer(&'a str),
    /// `/db/{key}`.
    Raftdb(&'a str),
    /// `/api/{rest}`: the configuration centre.
    Config(&'a str),
    /// Any other path; decoded, it may still be a reserved one.
    Kv1(&'a str),
    /// `/`.
    Welcome,
    /// `/livez`.
    Live,
    /// `/readyz`.
    Ready,
    /// `/metrics`.
    Metrics,
    /// `/openapi.json`.
    OpenApi,
    /// An unknown path under a reserved segment.
    Nothing,
}

impl<'a> Route<'a> {
    pub fn of(path: &'a str) -> Route<'a> {
        if let Some(rest) = path.strip_prefix("/v1/") {
            if let Some(id) = rest.strip_prefix("atomics/") {
                return Route::Atomic(id);
            }
            return match rest.strip_prefix("keys/") {
                Some(key) => Route::Key(key),
                None => match rest {
                    "keys" => Route::List,
                    "cluster" => Route::Cluster,
                    "cluster/dump" => Route::Dump,
                    "cluster/clients" => Route::Clients,
                    "cluster/moves" => Route::Moves,
                    "cluster/rebalance" => Route::Rebalance,
                    "cluster/shards" => Route::AddShard,
                    "cluster/checkpoint" => Route::Checkpoint,
                    "backup" => Route::Backup,
                    "restore" => Route::Restore,
                    _ => Route::below_cluster(rest).unwrap_or(Route::Nothing),
                },
            };
        }
        if let Some(key) = path.strip_prefix("/db/") {
            return Route::Raftdb(key);
        }
        if let Some(rest) = path.strip_prefix("/api/") {
            return Route::Config(rest);
        }
        match path {
            "/" => Route::Welcome,
            "/livez" => Route::Live,
            "/readyz" => Route::Ready,
            "/metrics" => Route::Metrics,
            "/openapi.json" => Route::OpenApi,
            _ if is_reserved(path.as_bytes()) => Route::Nothing,
            _ => Route::Kv1(path),
        }
    }

    /// The routes below `/v1/cluster/`.
    fn below_cluster(rest: &'a str) -> Option<Route<'a>> {
        let rest = rest.strip_prefix("cluster/")?;
        if let Some(("shards", number)) = rest.split_once('/')
            && !number.is_empty()
            && !number.contains('/')
        {
            return Some(Route::Shard(number));
        }
        let mut segments = rest.splitn(3, '/');
        let (kind, number, verb) = (segments.next()?, segments.next()?, segments.next()?);
        match (kind, verb) {
            ("hosts", verb) => Some(Route::Host { node: number, verb: HostVerb::of(verb)? }),
            ("shards", "transfer") => Some(Route::Transfer(number)),
            ("shards", "explain") => Some(Route::Explain(number)),
            ("shards", "tags") => Some(Route::Tags(number)),
            ("shards", "slots") => Some(Route::MoveSlots(number)),
            _ => None,
        }
    }

    /// Whether a request is for the prime shard, which holds the registry.
    pub fn is_of_registry(self) -> bool {
        matches!(
            self,
            Route::Host { .. }
                | Route::Tags(_)
                | Route::AddShard
                | Route::MoveSlots(_)
                | Route::Shard(_)
                | Route::Rebalance
        )
    }

    pub fn dialect(self) -> Dialect {
        match self {
            Route::Key(_)
            | Route::Atomic(_)
            | Route::List
            | Route::Cluster
            | Route::Dump
            | Route::Explain(_)
            | Route::Tags(_)
            | Route::Clients
            | Route::Moves
            | Route::Rebalance
            | Route::AddShard
            | Route::MoveSlots(_)
            | Route::Shard(_)
            | Route::Checkpoint
            | Route::Backup
            | Route::Restore
            | Route::Host { .. }
            | Route::Transfer(_) => Dialect::Native,
            Route::Raftdb(_) => Dialect::Raftdb,
            Route::Config(_) => Dialect::Config,
            Route::Kv1(_) => Dialect::Kv1,
            Route::Welcome
            | Route::Live
            | Route::Ready
            | Route::Metrics
            | Route::OpenApi
            | Route::Nothing => Dialect::Operations,
        }
    }
}

/// Whether a path at the root is never a key: its first segment belongs to an interface, or is
/// reserved for a future one.
pub(super) fn is_reserved(path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(b"/") else { return true };
    let segment = rest.split(|&byte| byte == b'/').next().unwrap_or_default();
    rest.is_empty()
        || matches!(
            segment,
            b"v1"
                | b"v2"
                | b"v3"
                | b"api"
                | b"db"
                | b"ui"
                | b"metrics"
                | b"livez"
                | b"readyz"
                | b"openapi.json"
                | b"favicon.ico"
                | b".well-known"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_one_meaning() {
        for (path, route) in [
            ("/", Route::Welcome),
            ("/v1/keys", Route::List),
            ("/v1/keys/", Route::Key("")),
            ("/v1/keys/a/b%2Fc", Route::Key("a/b%2Fc")),
            ("/v1/keys//testkey", Route::Key("/testkey")),
            ("/v1/keysx", Route::Nothing),
            ("/v1", Route::Nothing),
            ("/v1/", Route::Nothing),
            ("/v1/atomics/a/b/exchange", Route::Atomic("a/b/exchange")),
            ("/v1/atomics", Route::Nothing),
            ("/v1/cluster", Route::Cluster),
            ("/v1/cluster/", Route::Nothing),
            ("/v1/cluster/dump", Route::Dump),
            ("/v1/cluster/clients", Route::Clients),
            ("/v1/cluster/moves", Route::Moves),
            ("/v1/cluster/rebalance", Route::Rebalance),
            ("/v1/cluster/shards", Route::AddShard),
            ("/v1/cluster/shards/7/slots", Route::MoveSlots("7")),
            ("/v1/cluster/checkpoint", Route::Checkpoint),
            ("/v1/backup", Route::Backup),
            ("/v1/restore", Route::Restore),
            ("/v1/kv/a", Route::Nothing),
            ("/db/foo", Route::Raftdb("foo")),
            ("/db", Route::Nothing),
            ("/dbx", Route::Kv1("/dbx")),
            ("/api/namespaces", Route::Config("namespaces")),
            ("/api/", Route::Config("")),
            ("/api", Route::Nothing),
            ("/livez", Route::Live),
            ("/livez/", Route::Nothing),
            ("/readyz", Route::Ready),
            ("/metrics", Route::Metrics),
            ("/openapi.json", Route::OpenApi),
            ("/openapi.json/", Route::Nothing),
            ("/favicon.ico", Route::Nothing),
            ("/.well-known/acme", Route::Nothing),
            ("/testkey", Route::Kv1("/testkey")),
            ("/a/v1", Route::Kv1("/a/v1")),
            ("//", Route::Kv1("//")),
            ("*", Route::Nothing),
            ("", Route::Nothing),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }

    #[test]
    fn changes_of_the_cluster_have_one_path_each() {
        let of_4 = |verb| Route::Host { node: "4", verb };
        for (rest, route) in [
            ("hosts/4/add", of_4(HostVerb::Add)),
            ("hosts/4/follow", of_4(HostVerb::Follow)),
            ("hosts/4/drain", of_4(HostVerb::Drain)),
            ("hosts/4/undrain", of_4(HostVerb::Undrain)),
            ("hosts/4/remove", of_4(HostVerb::Remove)),
            ("hosts//add", Route::Host { node: "", verb: HostVerb::Add }),
            ("shards/2/transfer", Route::Transfer("2")),
            ("shards/2/explain", Route::Explain("2")),
            ("shards/2/tags", Route::Tags("2")),
            ("hosts/4/removed", Route::Nothing),
            ("hosts/4/add/", Route::Nothing),
            ("hosts/4/", Route::Nothing),
            ("hosts/4", Route::Nothing),
            ("hosts/4/transfer", Route::Nothing),
            ("shards/2/add", Route::Nothing),
            ("shards/2", Route::Shard("2")),
            ("shards/2/", Route::Nothing),
            ("shards/", Route::Nothing),
            ("hosts/2", Route::Nothing),
            ("", Route::Nothing),
        ] {
            assert_eq!(Route::of(&format!("/v1/cluster/{rest}")), route, "{rest}");
        }
    }

    #[test]
    fn an_encoded_path_cannot_reach_a_reserved_segment() {
        assert!(is_reserved(b"/v1"));
        assert!(is_reserved(b"/v1/keys/a"));
        assert!(!is_reserved(b"/v1x"));
        assert!(!is_reserved(b"//v1"));
    }
}
