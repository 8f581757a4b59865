//! The settings as they are given, in one struct for all sources: flags, environment and file.
//!
//! Owns the names of the settings, the types of their values and their help texts. It does not own
//! what the values mean: `Settings::new` validates them and fills in the defaults; tests compare
//! the defaults in the help texts with it.
//!
//! Invariant: a setting is declared once, as a field of [`RawSettings`]. clap derives its flag and
//! its environment variable from the field, serde its key in the file, and `raw_settings` the merge
//! of two sources.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use serde::Deserialize;

use super::ConfigError;

/// Declares [`RawSettings`] and its merge from one list of fields. A macro, because a merge of
/// serialized values would refuse paths that are not UTF-8.
macro_rules! raw_settings {
    (
        $(#[$($struct_attribute:tt)*])*
        pub struct RawSettings {
            $($(#[$($attribute:tt)*])* pub $setting:ident: $type:ty,)*
        }
    ) => {
        $(#[$($struct_attribute)*])*
        pub struct RawSettings {
            $($(#[$($attribute)*])* pub $setting: $type,)*
        }

        impl RawSettings {
            /// These settings, with absent ones taken from `fallback`.
            #[must_use]
            pub fn or(self, fallback: RawSettings) -> RawSettings {
                RawSettings { $($setting: self.$setting.or(fallback.$setting),)* }
            }
        }
    };
}

raw_settings! {
    /// Settings from one source: a file, or flags and environment. Only types are checked. The
    /// documentation of a field is the help text of its flag. An element of a list of addresses or
    /// names may be a comma-separated list.
    #[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RawSettings {
        /// Directory of this node's data; created if missing [default: ./tidelock-data]
        #[arg(long, env = "TIDELOCK_DATA_DIR", value_name = "DIR")]
        pub data_dir: Option<PathBuf>,
        /// Address for HTTP clients, where the node listens and others reach it
        /// [default: 127.0.0.1:8001]
        #[arg(long, env = "TIDELOCK_HTTP", value_name = "ADDR")]
        pub http: Option<String>,
        /// Address to listen on for HTTP clients instead, such as 0.0.0.0:8001 [default: --http]
        #[arg(long, env = "TIDELOCK_LISTEN_HTTP", value_name = "ADDR")]
        pub listen_http: Option<String>,
        /// Name or address at which others reach the HTTP port, if it is another one; the port may
        /// be left out [default: --http]
        #[arg(long, env = "TIDELOCK_ADVERTISE_HTTP", value_name = "HOST")]
        pub advertise_http: Option<String>,
        /// Address for Redis clients, as --http [default: 127.0.0.1:7001]
        #[arg(long, env = "TIDELOCK_RESP", value_name = "ADDR")]
        pub resp: Option<String>,
        /// Address to listen on for Redis clients instead [default: --resp]
        #[arg(long, env = "TIDELOCK_LISTEN_RESP", value_name = "ADDR")]
        pub listen_resp: Option<String>,
        /// Name or address at which others reach the Redis port [default: --resp]
        #[arg(long, env = "TIDELOCK_ADVERTISE_RESP", value_name = "HOST")]
        pub advertise_resp: Option<String>,
        /// Address to listen on for clients of Redis Cluster, which shows the keys of the shards
        /// that this node leads; `off` for none [default: --resp, its port + 100]
        #[arg(long, env = "TIDELOCK_RESP_CLUSTER", value_name = "ADDR")]
        pub resp_cluster: Option<String>,
        /// Name or address that clients of Redis Cluster are told [default: host of
        /// --advertise-resp]
        #[arg(long, env = "TIDELOCK_ADVERTISE_RESP_CLUSTER", value_name = "HOST")]
        pub advertise_resp_cluster: Option<String>,
        /// Address for the other nodes, as --http, and this node's entry in --peers
        /// [default: 127.0.0.1:9001]
        #[arg(long, env = "TIDELOCK_PEER", value_name = "ADDR")]
        pub peer: Option<String>,
        /// Address to listen on for the other nodes instead [default: --peer]
        #[arg(long, env = "TIDELOCK_LISTEN_PEER", value_name = "ADDR")]
        pub listen_peer: Option<String>,
        /// Name or address at which the other nodes reach this one; its entry in --peers
        /// [default: --peer]
        #[arg(long, env = "TIDELOCK_ADVERTISE_PEER", value_name = "HOST")]
        pub advertise_peer: Option<String>,
        /// Additional host names under which HTTP clients reach this node, such as a load
        /// balancer's
        #[arg(long, env = "TIDELOCK_ALLOWED_HOSTS", value_name = "NAME,…", value_delimiter = ',')]
        pub allowed_hosts: Option<Vec<String>>,
        /// Directory with tls.crt, tls.key and ca.crt, PEM: clients and other nodes connect with
        /// TLS. `tidelock tls init` makes them. Changed files are used without a restart
        #[arg(long, env = "TIDELOCK_TLS_DIR", value_name = "DIR")]
        pub tls_dir: Option<PathBuf>,
        /// PEM file with the CAs that sign the certificates of clients. A client may then present a
        /// certificate instead of a token. Needs TLS. A changed file is used without a restart
        #[arg(long, env = "TIDELOCK_CLIENT_CA", value_name = "FILE")]
        pub client_ca: Option<PathBuf>,
        /// Use TLS with certificates of the cluster's own certificate authority (CA). With an empty
        /// data directory, create a cluster, its CA and an administrator, whose token is written to
        /// root.token in the data directory [default: false]
        #[arg(
            long,
            env = "TIDELOCK_SECURE",
            value_name = "BOOL",
            num_args = 0..=1,
            default_missing_value = "true",
            action = ArgAction::Set
        )]
        pub secure: Option<bool>,

        /// File with the keys that encrypt secrets of configuration, lines ID:KEY; the first key
        /// encrypts, every key decrypts. Only its owner may read it. A changed file is used without
        /// a restart
        #[arg(long, env = "TIDELOCK_SECRET_KEY_FILE", value_name = "FILE")]
        pub secret_key_file: Option<PathBuf>,
        /// File to which each denied request and connection is appended as a line of JSON; created
        /// if missing. `tidelock audit verify` detects changes in it
        #[arg(long, env = "TIDELOCK_AUDIT_LOG", value_name = "FILE")]
        pub audit_log: Option<PathBuf>,
        /// Prefixes of keys: each change of such a key by a client of this node is recorded in the
        /// audit log, which --audit-log names
        #[arg(long, env = "TIDELOCK_AUDIT_WRITES", value_name = "PREFIX,…", value_delimiter = ',')]
        pub audit_writes: Option<Vec<String>>,
        /// Listen beyond loopback without TLS, where everyone who can connect can read and change
        /// everything [default: false]
        #[arg(
            long,
            env = "TIDELOCK_INSECURE",
            value_name = "BOOL",
            num_args = 0..=1,
            default_missing_value = "true",
            action = ArgAction::Set
        )]
        pub insecure: Option<bool>,
        /// Peer addresses of all founders, including this node, the same list on each of them; or
        /// their DNS SRV name and their number, srv:NAME/COUNT
        #[arg(long, env = "TIDELOCK_PEERS", value_name = "ADDR,…", value_delimiter = ',')]
        pub peers: Option<Vec<String>>,
        /// Peer addresses of members of the cluster that a new node joins, or srv:NAME; one that is
        /// up is enough. A member looks for the others there too
        #[arg(long, env = "TIDELOCK_JOIN", value_name = "ADDR,…", value_delimiter = ',')]
        pub join: Option<Vec<String>>,
        /// File with a join token of `tidelock cluster join-token`, with which a new node gets its
        /// certificate from a `--secure` cluster; read at the first start only
        #[arg(long, env = "TIDELOCK_JOIN_TOKEN_FILE", value_name = "FILE")]
        pub join_token_file: Option<PathBuf>,
        /// Cluster name, the same on all founders; it keeps clusters apart [default: tidelock]
        #[arg(long, env = "TIDELOCK_CLUSTER_NAME", value_name = "NAME")]
        pub cluster_name: Option<String>,
        /// Last resort after the permanent loss of a majority: this node continues alone as a new
        /// cluster, with the data on its own disk. ID is the id of the old cluster, so that a
        /// restart does not repeat it
        #[arg(long, env = "TIDELOCK_FORCE_NEW_CLUSTER", value_name = "ID")]
        pub force_new_cluster: Option<String>,
        /// Number of data shards of a new cluster, which then stays; without it the cluster begins
        /// with one, and divides it when it has hosts or load for more [default: 1]
        #[arg(long, env = "TIDELOCK_SHARDS", value_name = "N")]
        pub shards: Option<u64>,
        /// Number of voters of each data shard of a new cluster: 1, 3, 5 or 7 [default: 3]
        #[arg(long, env = "TIDELOCK_REPLICAS", value_name = "N")]
        pub replicas: Option<u64>,
        /// A tag of the data shards of a new cluster, such as a placement policy; repeatable
        #[arg(
            long = "shard-tag",
            env = "TIDELOCK_SHARD_TAGS",
            value_name = "NAME=VALUE",
            value_delimiter = ','
        )]
        pub shard_tags: Option<Vec<String>>,
        /// A property of this host, such as geo:zone=us-west-1a; repeatable
        #[arg(long = "tag", env = "TIDELOCK_TAGS", value_name = "KEY=VALUE", value_delimiter = ',')]
        pub tags: Option<Vec<String>>,
        /// Whether writes are synced to disk before they are acknowledged. If not, a power failure
        /// may lose acknowledged writes [default: true]
        #[arg(long, env = "TIDELOCK_SYNC", value_name = "BOOL", action = ArgAction::Set)]
        pub sync: Option<bool>,
        /// How long a leader may be silent before another is elected, in milliseconds
        /// [default: 1000]
        #[arg(long, env = "TIDELOCK_ELECTION_TIMEOUT_MS", value_name = "MS")]
        pub election_timeout_ms: Option<u64>,
        /// Time within which every request is answered or refused, in milliseconds [default: 2500]
        #[arg(long, env = "TIDELOCK_REQUEST_TIMEOUT_MS", value_name = "MS")]
        pub request_timeout_ms: Option<u64>,
        /// How long a host may be silent before the cluster replaces it, where placement policies
        /// allow that, in seconds [default: 300]
        #[arg(long, env = "TIDELOCK_DEAD_AFTER_S", value_name = "SECONDS")]
        pub dead_after_s: Option<u64>,
        /// How long a node without contact to the leader of the prime shard still serves clients by
        /// the permissions that it knows, in seconds [default: 300]
        #[arg(long, env = "TIDELOCK_AUTH_STALE_S", value_name = "SECONDS")]
        pub auth_stale_s: Option<u64>,
        /// Duration from which a request is logged as slow, in milliseconds [default: 1000]
        #[arg(long, env = "TIDELOCK_SLOW_REQUEST_MS", value_name = "MS")]
        pub slow_request_ms: Option<u64>,
        /// URL of an OpenTelemetry collector (OTLP over HTTP) that gets traces of requests, such as
        /// http://127.0.0.1:4318
        #[arg(long, env = "TIDELOCK_TRACE_ENDPOINT", value_name = "URL")]
        pub trace_endpoint: Option<String>,
        /// Share of the HTTP requests without a `traceparent` header that are traced, from 0 to 1
        /// [default: 0]
        #[arg(long, env = "TIDELOCK_TRACE_RATIO", value_name = "RATIO")]
        pub trace_ratio: Option<f64>,
        /// Threads that serve clients; the first also drives the shards [default: by the number of
        /// cores]
        #[arg(long, env = "TIDELOCK_WORKERS", value_name = "N")]
        pub workers: Option<u64>,
        /// Limit of the memory for clients (requests, unread replies, connections), such as 512MiB
        /// [default: a quarter of the memory]
        #[arg(long, env = "TIDELOCK_MEMORY_LIMIT", value_name = "BYTES")]
        pub memory_limit: Option<String>,
        /// Format of the log on standard error: text or json [default: text]
        #[arg(long, env = "TIDELOCK_LOG_FORMAT", value_name = "FORMAT")]
        pub log_format: Option<String>,
        /// Filter of the log: a level, or directives such as info,tidelock_server=debug
        /// [default: info]
        #[arg(long = "log", env = "TIDELOCK_LOG", value_name = "FILTER")]
        pub log_filter: Option<String>,
    }
}

impl RawSettings {
    /// Reads a TOML file. Unknown keys are errors: a misspelt setting must not silently become the
    /// default.
    ///
    /// # Errors
    /// [`ConfigError::Read`] and [`ConfigError::Parse`], with the path and the position.
    pub fn read(path: &Path) -> Result<RawSettings, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        RawSettings::parse(&text)
            .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: source.into() })
    }

    /// Parses the text of a TOML file.
    ///
    /// # Errors
    /// When it is not TOML, or a key or a type is not that of a setting.
    pub fn parse(text: &str) -> Result<RawSettings, toml::de::Error> {
        toml::from_str(text)
    }
}
