//! Errors in settings. Owns their texts: each names the setting and says what to write instead.

use std::io;
use std::path::PathBuf;

use super::{
    ALLOWED_HOSTS_MAX, AUDIT_PREFIXES_MAX, CLUSTER_NAME_BYTES_MAX, FOUNDERS_MAX, JOIN_ADDRESSES_MAX,
    TAG_BYTES_MAX, TAGS_MAX,
};

/// Why settings are refused: a usage error, found before anything was changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The path as it was given.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file is not TOML, has an unknown key, or has a value of the wrong type.
    #[error("in the configuration file {}: {source}", path.display())]
    Parse {
        /// The path as it was given.
        path: PathBuf,
        /// The position and the cause; boxed, because it is large.
        source: Box<toml::de::Error>,
    },
    /// The value of a setting is not an address.
    #[error("{setting}: `{text}` is not an address; write HOST:PORT, such as 127.0.0.1:8001 or [::1]:8001")]
    Address {
        /// Name of the setting.
        setting: &'static str,
        /// The value as it was given.
        text: String,
    },
    /// The value of a setting is not an address to advertise.
    #[error(
        "{setting}: `{text}` does not say where others reach this node; write a name or an address, with or without a \
         port, such as kv-1.example.org or 10.0.0.1:9001"
    )]
    Advertise {
        /// Name of the setting.
        setting: &'static str,
        /// The value as it was given.
        text: String,
    },
    /// The URL of the collector of traces cannot be used.
    #[error(
        "trace_endpoint: `{0}` is not the URL of a collector; write http://HOST:PORT, such as http://127.0.0.1:4318. To send \
         traces over TLS, run a collector on this machine that does it"
    )]
    TraceEndpoint(String),
    /// The share of traced requests is none.
    #[error("trace_ratio: {0} is not a share; write a number from 0 to 1, such as 0.01")]
    TraceRatio(f64),
    /// There is a share of traced requests, and nowhere to send their traces.
    #[error("trace_ratio: give trace_endpoint too, the collector that gets the traces")]
    TraceRatioWithoutEndpoint,
    /// The peer listener listens on every address, and none to advertise is given.
    #[error(
        "peer: {0} means every address of this machine, and the other nodes need one that leads to it; give \
         advertise_peer too, a name or an address, such as kv-1.example.org or 10.0.0.1"
    )]
    UnspecifiedPeer(String),
    /// `peers` has an SRV name that is malformed or not alone.
    #[error(
        "peers: `{0}` is not the SRV name of all founders; write srv:NAME/COUNT, and nothing else, such as \
         srv:_tidelock-peer._tcp.example.org/3"
    )]
    SrvFounders(String),
    /// `join` has a malformed SRV name.
    #[error("join: `{0}` is not an SRV name; write srv:NAME, such as srv:_tidelock-peer._tcp.example.org")]
    SrvMembers(String),
    /// The port derived from that of `resp` exceeds 65535.
    #[error(
        "resp_cluster: there is no port 100 above that of resp, {resp}; give it an address of its own, or `off`"
    )]
    NoRespClusterPort {
        /// The address of `resp`, from whose port it is derived.
        resp: String,
    },
    /// Two settings have the same address.
    #[error("{one} and {other} are both {address}; give each its own port")]
    SameAddress {
        /// Name of one of the settings.
        one: &'static str,
        /// Name of the other.
        other: &'static str,
        /// The address that both have.
        address: String,
    },
    /// A number is out of its range.
    #[error("{setting}: {given} is out of range; write a number from {min} to {max}")]
    OutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// The value as it was given.
        given: u64,
        /// The smallest number that is allowed.
        min: u64,
        /// The largest number that is allowed.
        max: u64,
    },
    /// `replicas` is even, or too large.
    #[error(
        "replicas: {0} voters a shard; write 1, 3, 5 or 7. An even number survives no more failures than the odd one \
         below it, and costs one more copy of all data"
    )]
    Replicas(u64),
    /// `shard_tags` has a policy that cannot be read.
    #[error("shard_tags: {0}")]
    ShardTag(String),
    /// `peers` lists no founders, or too many.
    #[error(
        "peers: {0} founders; list 1 to {FOUNDERS_MAX} peer addresses (more nodes may join later), \
         or leave it out for a cluster of one"
    )]
    FounderCount(usize),
    /// A founder without a fixed port.
    #[error("peers: {0} has no fixed port; the founders must know each other's, write one from 1 to 65535")]
    FounderPort(String),
    /// A founder is listed more than once.
    #[error("peers: {0} is listed more than once; list each founder once")]
    FounderTwice(String),
    /// The node's own address is missing.
    #[error(
        "peers: this node's own peer address {own} is not among the founders ({founders}); set advertise_peer \
         (or peer) to the one of them that is this node, spelt the same"
    )]
    NotAFounder {
        /// The peer address of this node.
        own: String,
        /// The founders as they were given.
        founders: String,
    },
    /// `force_new_cluster` is not a uuid.
    #[error(
        "force_new_cluster: `{0}` is not the id of a cluster; the log of every start says which the directory belongs \
         to"
    )]
    ClusterId(String),
    /// Both `peers` and `join` are given.
    #[error("join: peers is given too; a node founds a cluster (peers) or joins one that exists (join)")]
    JoinAndPeers,
    /// A setting that excludes `secure` is given together with it.
    #[error(
        "secure: {0} is given too. With secure, a cluster begins with one node, which signs its own certificate, and the others \
         --join it with a token of `tidelock cluster join-token`; leave {0} out. For several founders, or an authority of your \
         own, leave secure out, and make certificates with `tidelock tls init`"
    )]
    SecureAnd(&'static str),
    /// A join token is given without `join`.
    #[error("join_token_file: join is missing; give the peer addresses of members of the cluster")]
    JoinTokenAlone,
    /// No member to ask, or too many.
    #[error(
        "join: {0} addresses; list the peer addresses of 1 to {JOIN_ADDRESSES_MAX} members of the cluster"
    )]
    JoinCount(usize),
    /// The only member to ask is this node itself.
    #[error("join: {0} is this node's own peer address; list that of a member of the cluster")]
    JoinSelf(String),
    /// Other nodes could not reach this node's peer address.
    #[error(
        "peer: {0} does not say where this node is; to join, write the address and port at which the members of the \
         cluster reach it"
    )]
    JoinPeer(String),
    /// An element of `allowed_hosts` is not a host name.
    #[error(
        "allowed_hosts: `{0}` is not the name of a host; write names without scheme and port, such as \
         tidelock.example.com"
    )]
    AllowedHost(String),
    /// `allowed_hosts` lists more than [`ALLOWED_HOSTS_MAX`] names.
    #[error("allowed_hosts: {0} are too many; give at most {ALLOWED_HOSTS_MAX}")]
    TooManyAllowedHosts(usize),
    /// `audit_writes` lists more than [`AUDIT_PREFIXES_MAX`] prefixes.
    #[error("audit_writes: {0} prefixes are too many; give at most {AUDIT_PREFIXES_MAX}")]
    TooManyAuditPrefixes(usize),
    /// There is no file for what `audit_writes` names.
    #[error("audit_writes: name the file of the audit log too, with --audit-log")]
    AuditWritesWithoutLog,
    /// A listener that other machines can reach, without TLS.
    #[error(
        "{setting}: other machines can reach {address}, and this node has no TLS: they could read and change everything. Start a new cluster with \
         --secure, or make certificates with `tidelock tls init --hosts {host} --out tidelock-tls`, listing all hosts of the cluster, and start with \
         `tidelock serve --tls-dir tidelock-tls/{host}`. In a network that you trust, give --insecure instead. If this node has been started \
         before, look whether data_dir is the directory of that start"
    )]
    Exposed {
        /// Name of the setting.
        setting: &'static str,
        /// Where the node would listen.
        address: String,
        /// The name or address of this node for clients.
        host: String,
    },
    /// A node that joins has a listener that other machines can reach, and no certificate.
    #[error(
        "{setting}: other machines can reach {address}, and this node has no certificate. Give --join-token-file, with a token for this \
         host: `tidelock cluster join-token --out FILE` makes one in a cluster with its own certificate authority. In a cluster with \
         certificates of another one give --tls-dir, and in one without TLS --insecure"
    )]
    JoinExposed {
        /// Name of the setting.
        setting: &'static str,
        /// Where the node would listen.
        address: String,
    },
    /// Certificates of clients without TLS.
    #[error(
        "client_ca: this node has no TLS, with which clients present certificates; give --tls-dir too, or start a new cluster with --secure"
    )]
    ClientCaWithoutTls,
    /// The cluster name is empty, too long, or has other characters.
    #[error(
        "cluster_name: `{0}` is not a name; write 1 to {CLUSTER_NAME_BYTES_MAX} letters, digits, dots, dashes and \
         underscores"
    )]
    ClusterName(String),
    /// `data_dir` is an empty path.
    #[error("data_dir: the path is empty; write a directory, such as ./tidelock-data")]
    DataDir,
    /// An element of `tags` or `shard_tags` is not a tag.
    #[error(
        "{setting}: `{text}` is not a tag; write K=V of at most {TAG_BYTES_MAX} bytes, such as geo:zone=us-west-1a; names \
         that begin with tidelock: are taken"
    )]
    Tag {
        /// Name of the setting.
        setting: &'static str,
        /// The element as it was given.
        text: String,
    },
    /// A tag is given more than once.
    #[error("{setting}: `{name}` is given more than once; give each tag one value")]
    TagTwice {
        /// Name of the setting.
        setting: &'static str,
        /// Name of the tag.
        name: String,
    },
    /// `tags` or `shard_tags` lists more than [`TAGS_MAX`] tags.
    #[error("{setting}: {count} are too many; give at most {TAGS_MAX}")]
    TooManyTags {
        /// Name of the setting.
        setting: &'static str,
        /// How many were given.
        count: usize,
    },
    /// Not a number of bytes, or too small.
    #[error("memory_limit: `{text}` is not a limit; write at least {min_mib}MiB, such as 512MiB or 2GiB")]
    MemoryLimit {
        /// The text of the setting.
        text: String,
        /// The smallest limit that is allowed, in MiB.
        min_mib: usize,
    },
    /// `log_format` is neither `text` nor `json`.
    #[error("log_format: `{0}` is unknown; write text or json")]
    LogFormat(String),
    /// The log filter is empty.
    #[error("log_filter: the filter is empty; write a level, such as info, or target=level pairs")]
    LogFilter,
}
