//! Finds the endpoint of a request by the tables of [`operations`](super::operations).
//!
//! Owns how a path matches: it reads the raw path and decodes nothing. `{key}` and `{id}` outside
//! of `/api` are the rest of the path, byte for byte, slashes included; every other parameter is
//! one segment. Any path at the root is a key of the kv1 dialect, except paths whose first segment
//! belongs to another interface or is reserved for a future one.

use std::sync::LazyLock;

use hyper::Method;

use super::atomics::Registers;
use super::auth::Auth;
use super::cluster::Cluster;
use super::config::Config;
use super::console::Console;
use super::health::Health;
use super::kv1::Kv1;
use super::leases::Leases;
use super::locks::Locks;
use super::native::Keys;
use super::operations::{self, Operation};
use super::raftdb::Raftdb;
use super::transactions::Transactions;
use crate::metrics::{Dialect, Kind};

/// What serves an operation: a part of the interface, and which of its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Keys(Keys),
    Registers(Registers),
    Transactions(Transactions),
    Leases(Leases),
    Locks(Locks),
    Raftdb(Raftdb),
    Kv1(Kv1),
    Config(Config),
    Cluster(Cluster),
    Auth(Auth),
    Health(Health),
    Console(Console),
}

/// The endpoint of a request, and the parameters of its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route<'a> {
    pub endpoint: Endpoint,
    pub arguments: Arguments<'a>,
    /// The path with the names of its parameters in braces.
    pub path: &'static str,
    /// Names of the query parameters that the endpoint takes.
    pub query: &'static [&'static str],
}

/// The parameters of a path, in its order, percent-encoded. Absent ones are empty.
pub(super) type Arguments<'a> = [&'a str; 2];

/// Why a request has no endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    NoSuchPath,
    /// The path has other methods.
    NoSuchMethod {
        /// Its methods, listed as in `Allow`.
        allow: String,
        /// The part of the interface to which it belongs.
        dialect: Dialect,
        /// The paths one segment below that have the method.
        below: Vec<&'static str>,
    },
}

/// First segments that are reserved for future interfaces.
const RESERVED: [&str; 4] = ["v2", "v3", "favicon.ico", ".well-known"];

/// The path of keys of the kv1 dialect.
const ROOT_KEY: &str = "/{key}";

static ROUTES: LazyLock<Routes> = LazyLock::new(|| {
    let mut routes = Routes::default();
    for operation in operations::all() {
        let entry = RouteEntry::of(&operation);
        match operation.path {
            ROOT_KEY => routes.root_keys.push(entry),
            path if path.starts_with("/api/") => routes.tree.at(&path[1..], KeyExtent::Segment).push(entry),
            path => routes.tree.at(&path[1..], KeyExtent::RestOfPath).push(entry),
        }
    }
    routes
});

#[derive(Debug, Default)]
struct Routes {
    tree: TrieNode,
    root_keys: Vec<RouteEntry>,
}

/// The paths with a common beginning, from one slash to the next.
#[derive(Debug, Default)]
struct TrieNode {
    /// Methods of the path that ends here.
    entries: Vec<RouteEntry>,
    literals: Vec<(&'static str, TrieNode)>,
    /// Paths on which a parameter of one segment follows.
    segment: Option<Box<TrieNode>>,
    /// Paths on which only a parameter of any length follows, up to a literal end.
    rest: Vec<(&'static str, Vec<RouteEntry>)>,
}

#[derive(Debug)]
struct RouteEntry {
    method: Method,
    endpoint: Endpoint,
    path: &'static str,
    query: Vec<&'static str>,
}

impl<'a> Route<'a> {
    /// The route of a request. `HEAD` is served as `GET` is.
    pub fn of(method: &Method, path: &'a str) -> Result<Route<'a>, NoRoute> {
        let routes = &*ROUTES;
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let mut search = Search { method, others: Vec::new(), other: None };
        let start = (0, Arguments::default());
        let below = path.strip_prefix('/').and_then(|rest| search.below(&routes.tree, rest, start));
        let found = match below {
            None if !is_reserved(path.as_bytes()) => search.among(&routes.root_keys, [path, ""]),
            found => found,
        };
        match found {
            Some(route) => Ok(route),
            None => Err(match search.other {
                None => NoRoute::NoSuchPath,
                Some(entry) => NoRoute::NoSuchMethod {
                    allow: search.others.join(", "),
                    dialect: entry.endpoint.dialect(),
                    below: paths_below(entry.path, method),
                },
            }),
        }
    }
}

/// The paths one segment below `path` that have a method.
fn paths_below(path: &str, method: &Method) -> Vec<&'static str> {
    let is_below = |operation: &Operation| {
        let segment = operation.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('/'));
        segment.is_some_and(|segment| !segment.contains(['/', '{']))
            && operation.method.eq_ignore_ascii_case(method.as_str())
    };
    operations::all().into_iter().filter(is_below).map(|operation| operation.path).collect()
}

/// A search for the entry of a path with one method.
struct Search<'m> {
    method: &'m Method,
    /// Methods of entries whose path matches.
    others: Vec<&'static str>,
    /// The first of these entries.
    other: Option<&'static RouteEntry>,
}

impl Search<'_> {
    /// Searches the paths that continue with `rest` below `node`, behind `count` parameters.
    fn below<'a>(
        &mut self,
        node: &'static TrieNode,
        rest: &'a str,
        (count, arguments): (usize, Arguments<'a>),
    ) -> Option<Route<'a>> {
        let with = |value| {
            let mut arguments = arguments;
            arguments[count] = value;
            (count + 1, arguments)
        };
        if !node.literals.is_empty() || node.segment.is_some() {
            // Segments are short: a loop finds their end sooner than a search that is made for long
            // texts.
            let end = rest.bytes().position(|byte| byte == b'/');
            let (segment, tail) = end.map_or((rest, None), |end| (&rest[..end], Some(&rest[end + 1..])));
            let literal = node.literals.iter().find(|(literal, _)| *literal == segment);
            if let Some((_, child)) = literal
                && let Some(found) = self.at(child, tail, (count, arguments))
            {
                return Some(found);
            }
            if let Some(child) = &node.segment
                && let Some(found) = self.at(child, tail, with(segment))
            {
                return Some(found);
            }
        }
        let mut ends = node.rest.iter();
        ends.find_map(|(end, entries)| self.among(entries, with(rest.strip_suffix(end)?).1))
    }

    /// Searches the path that ends at `node`, or those that continue with `tail`.
    fn at<'a>(
        &mut self,
        node: &'static TrieNode,
        tail: Option<&'a str>,
        position: (usize, Arguments<'a>),
    ) -> Option<Route<'a>> {
        match tail {
            Some(tail) => self.below(node, tail, position),
            None => self.among(&node.entries, position.1),
        }
    }

    fn among<'a>(&mut self, entries: &'static [RouteEntry], arguments: Arguments<'a>) -> Option<Route<'a>> {
        let found = entries.iter().find(|entry| entry.method == *self.method);
        if found.is_none() {
            self.other = self.other.or(entries.first());
            self.others.extend(entries.iter().flat_map(|entry| match entry.method {
                Method::GET => &["GET", "HEAD"][..],
                Method::PUT => &["PUT"],
                Method::POST => &["POST"],
                _ => &["DELETE"],
            }));
        }
        found.map(|entry| {
            let RouteEntry { endpoint, path, query, .. } = entry;
            Route { endpoint: *endpoint, arguments, path, query }
        })
    }
}

impl RouteEntry {
    fn of(operation: &Operation) -> RouteEntry {
        let method = operation.method.to_ascii_uppercase();
        let method = method.parse().expect("invariant: the tables name methods");
        RouteEntry {
            method,
            endpoint: operation.endpoint,
            path: operation.path,
            query: operation.query().collect(),
        }
    }
}

/// How far a key in a path extends.
#[derive(Clone, Copy)]
enum KeyExtent {
    Segment,
    RestOfPath,
}

impl TrieNode {
    /// The entries of a path below this node, to which another is added.
    fn at(&mut self, path: &'static str, keys: KeyExtent) -> &mut Vec<RouteEntry> {
        let (segment, tail) = match path.split_once('/') {
            Some((segment, tail)) => (segment, Some(tail)),
            None => (path, None),
        };
        let child = match (segment, keys) {
            ("{key}" | "{id}", KeyExtent::RestOfPath) => {
                return get_or_add(&mut self.rest, &path[segment.len()..]);
            }
            _ if segment.starts_with('{') => &mut **self.segment.get_or_insert_default(),
            _ => get_or_add(&mut self.literals, segment),
        };
        match tail {
            Some(tail) => child.at(tail, keys),
            None => &mut child.entries,
        }
    }
}

/// The value of a key in a short list, added if it is not there.
fn get_or_add<'l, T: Default>(list: &'l mut Vec<(&'static str, T)>, key: &'static str) -> &'l mut T {
    let position = list.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        list.push((key, T::default()));
        list.len() - 1
    });
    &mut list[position].1
}

impl Endpoint {
    /// The label of the interface in metrics.
    pub fn dialect(self) -> Dialect {
        match self {
            Endpoint::Keys(_)
            | Endpoint::Registers(_)
            | Endpoint::Transactions(_)
            | Endpoint::Leases(_)
            | Endpoint::Locks(_)
            | Endpoint::Cluster(_)
            | Endpoint::Auth(_) => Dialect::Native,
            Endpoint::Raftdb(_) => Dialect::Raftdb,
            Endpoint::Kv1(_) => Dialect::Kv1,
            Endpoint::Config(_) => Dialect::Config,
            Endpoint::Health(_) | Endpoint::Console(_) => Dialect::Operations,
        }
    }

    /// The label of the kind of request in metrics.
    pub fn kind(self, method: &Method) -> Kind {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        match self {
            Endpoint::Keys(Keys::List) => Kind::List,
            // How long these take is up to their clients.
            Endpoint::Keys(Keys::Watch)
            | Endpoint::Locks(Locks::Acquire)
            | Endpoint::Config(Config::WatchContainer | Config::WatchNamespace) => Kind::Other,
            Endpoint::Cluster(_) | Endpoint::Auth(_) | Endpoint::Health(_) | Endpoint::Console(_) => {
                Kind::Other
            }
            _ if is_read => Kind::Read,
            _ => Kind::Write,
        }
    }

    /// Whether a request is for the prime shard, which holds the registry.
    pub fn is_of_registry(self) -> bool {
        match self {
            Endpoint::Cluster(cluster) => cluster.is_of_registry(),
            Endpoint::Auth(_) => true,
            _ => false,
        }
    }
}

macro_rules! endpoints {
    ($($part:ident),*) => {
        $(impl From<$part> for Endpoint {
            fn from(endpoint: $part) -> Endpoint {
                Endpoint::$part(endpoint)
            }
        })*
    };
}
endpoints!(Keys, Registers, Transactions, Leases, Locks, Raftdb, Kv1, Config, Cluster, Auth, Health, Console);

/// Whether a path at the root is never a key: its first segment belongs to an interface, or is
/// reserved for a future one.
pub(super) fn is_reserved(path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(b"/") else { return true };
    let segment = rest.split(|&byte| byte == b'/').next().unwrap_or_default();
    let literals = ROUTES.tree.literals.iter().map(|(literal, _)| *literal);
    let mut reserved = literals.filter(|literal| !literal.is_empty()).chain(RESERVED);
    rest.is_empty() || reserved.any(|reserved| reserved.as_bytes() == segment)
}

#[cfg(test)]
mod tests {
    use super::super::membership::HostVerb;
    use super::*;

    fn found(method: &Method, path: &'static str) -> Result<(Endpoint, Arguments<'static>), NoRoute> {
        Route::of(method, path).map(|route| (route.endpoint, route.arguments))
    }

    #[test]
    fn every_row_of_the_tables_is_found_by_its_path() {
        for operation in operations::all() {
            let entry = RouteEntry::of(&operation);
            let path = operation.path.replace('{', "<").replace('}', ">");
            let route = Route::of(&entry.method, &path).expect("a route");
            assert_eq!((route.endpoint, route.query), (entry.endpoint, &entry.query[..]), "{path}");
        }
    }

    #[test]
    fn every_path_has_one_meaning() {
        for (path, endpoint, argument) in [
            ("/", Endpoint::Health(Health::Welcome), ""),
            ("/v1/keys", Keys::List.into(), ""),
            ("/v1/keys/", Keys::Get.into(), ""),
            ("/v1/keys/a/b%2Fc", Keys::Get.into(), "a/b%2Fc"),
            ("/v1/keys//testkey", Keys::Get.into(), "/testkey"),
            ("/v1/atomics/a/b/exchange", Registers::Get.into(), "a/b/exchange"),
            ("/v1/cluster", Cluster::View.into(), ""),
            ("/v1/cluster/clients", Cluster::Clients.into(), ""),
            ("/v1/cluster/shards/2/explain", Cluster::Explain.into(), "2"),
            ("/v1/leases", Leases::List.into(), ""),
            ("/v1/leases/{a/b}:1f", Leases::Get.into(), "{a/b}:1f"),
            ("/v1/leases/renew", Leases::Get.into(), "renew"),
            ("/v1/locks/a/b", Locks::Show.into(), "a/b"),
            ("/v1/locks/a/acquire", Locks::Show.into(), "a/acquire"),
            ("/v1/backup", Cluster::Backup.into(), ""),
            ("/v1/snapshots", Cluster::Snapshots.into(), ""),
            ("/v1/snapshots/backup", Cluster::PartialBackup.into(), ""),
            ("/db/foo", Raftdb::Get.into(), "foo"),
            ("/dbx", Kv1::Get.into(), "/dbx"),
            ("/api/namespaces", Config::Namespaces.into(), ""),
            ("/livez", Health::Live.into(), ""),
            ("/ui", Console::Begin.into(), ""),
            ("/ui/", Console::File.into(), ""),
            ("/ui/main.js", Console::File.into(), "main.js"),
            ("/openapi.json", Health::OpenApi.into(), ""),
            ("/testkey", Kv1::Get.into(), "/testkey"),
            ("/a/v1", Kv1::Get.into(), "/a/v1"),
            ("//", Kv1::Get.into(), "//"),
        ] {
            for method in [Method::GET, Method::HEAD] {
                assert_eq!(found(&method, path), Ok((endpoint, [argument, ""])), "{path}");
            }
        }
        for path in [
            "/v1/keysx",
            "/v1",
            "/v1/",
            "/v1/atomics",
            "/v1/locks",
            "/v1/cluster/",
            "/v1/cluster/shards/2/add",
            "/v1/cluster/hosts/4",
            "/v1/cluster/hosts/4/add/",
            "/v1/kv/a",
            "/db",
            "/api",
            "/api/",
            "/api/namespaces/ns/other",
            "/api/namespaces/ns/pairs/a/other",
            "/api/namespaces/ns/pairs/a/dl",
            "/livez/",
            "/ui/a/b",
            "/openapi.json/",
            "/favicon.ico",
            "/.well-known/acme",
            "*",
            "",
        ] {
            assert_eq!(found(&Method::GET, path), Err(NoRoute::NoSuchPath), "{path}");
        }
    }

    #[test]
    fn a_path_with_other_methods_names_them() {
        let drain = Endpoint::from(Cluster::Host(HostVerb::Drain));
        assert_eq!(found(&Method::POST, "/v1/cluster/hosts/4/drain"), Ok((drain, ["4", ""])));
        let exchange = Endpoint::from(Registers::Exchange);
        assert_eq!(found(&Method::POST, "/v1/atomics/a/b/exchange"), Ok((exchange, ["a/b", ""])));
        let renew = Endpoint::from(Leases::Renew);
        assert_eq!(found(&Method::POST, "/v1/leases/renew"), Ok((renew, ["", ""])));
        let acquire = Endpoint::from(Locks::Acquire);
        assert_eq!(found(&Method::POST, "/v1/locks/a/b/acquire"), Ok((acquire, ["a/b", ""])));
        let history = Endpoint::from(Config::PairHistory);
        let path = "/api/namespaces/n%73/pairs/a%2Fb/history";
        assert_eq!(found(&Method::GET, path), Ok((history, ["n%73", "a%2Fb"])));
        assert_eq!(found(&Method::GET, "/api/namespaces//pairs/a/history"), Ok((history, ["", "a"])));
        for (method, path, allow) in [
            (Method::PUT, "/v1/cluster/hosts/4/drain", "GET, HEAD, POST"),
            (Method::POST, "/v1/keys/a", "GET, HEAD, PUT, DELETE"),
            (Method::POST, "/v1/atomics/a", "GET, HEAD"),
            (Method::PUT, "/v1/atomics/a/exchange", "GET, HEAD, POST"),
            (Method::PUT, "/v1/leases", "POST, GET, HEAD"),
            (Method::PUT, "/v1/leases/renew", "POST, GET, HEAD, DELETE"),
            (Method::POST, "/v1/locks/a", "GET, HEAD"),
            (Method::DELETE, "/db/a", "GET, HEAD, POST, PUT"),
            (Method::DELETE, "/a", "GET, HEAD, PUT"),
            (Method::GET, "/v1/cluster/shards/2", "DELETE"),
            (Method::GET, "/v1/cluster/shards/", "DELETE"),
            (Method::PUT, "/api/namespaces/ns", "GET, HEAD, POST, DELETE"),
        ] {
            let missing = found(&method, path);
            assert!(
                matches!(&missing, Err(NoRoute::NoSuchMethod { allow: found, .. }) if found == allow),
                "{missing:?}"
            );
        }
    }

    #[test]
    fn a_method_of_paths_below_is_shown_with_them() {
        let below = |method: &Method, path| match Route::of(method, path) {
            Err(NoRoute::NoSuchMethod { below, .. }) => below,
            found => panic!("{found:?}"),
        };
        let atomics = ["/v1/atomics/{id}/compare-exchange", "/v1/atomics/{id}/exchange"];
        let mut found = below(&Method::POST, "/v1/atomics/a/b");
        found.sort_unstable();
        assert_eq!(found, atomics);
        assert!(below(&Method::PUT, "/v1/atomics/a").is_empty());
        assert!(below(&Method::POST, "/v1/keys/a").is_empty());
    }

    #[test]
    fn an_encoded_path_cannot_reach_a_reserved_segment() {
        assert!(is_reserved(b"/v1"));
        assert!(is_reserved(b"/v1/keys/a"));
        assert!(is_reserved(b"/ui"));
        assert!(!is_reserved(b"/v1x"));
        assert!(!is_reserved(b"//v1"));
    }
}
