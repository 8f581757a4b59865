//! Errors in settings. Owns their texts: each names the setting and says what to write instead.

use std::io;
use std::path::PathBuf;

use super::{
    ALLOWED_HOSTS_MAX, CLUSTER_NAME_BYTES_MAX, FOUNDERS_MAX, JOIN_ADDRESSES_MAX, TAG_BYTES_MAX, TAGS_MAX,
};

/// Why settings are refused: a usage error, found before anything was changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not TOML, has an unknown key, or has a value of the wrong type.
    #[error("in the configuration file {}: {source}", path.display())]
    Parse {
        /// The path of the file.
        path: PathBuf,
        /// The position and the cause; boxed, because it is large.
        source: Box<toml::de::Error>,
    },
    /// Not an address.
    #[error("{setting}: `{text}` is not an address; write HOST:PORT, such as 127.0.0.1:8001 or [::1]:8001")]
    Address {
        /// The setting.
        setting: &'static str,
        /// The given text.
        text: String,
    },
    /// The port derived from that of `resp` exceeds 65535.
    #[error(
        "resp_cluster: there is no port 100 above that of resp, {resp}; give it an address of its own, or `off`"
    )]
    NoRespClusterPort {
        /// The address of `resp`.
        resp: String,
    },
    /// Two settings have the same address.
    #[error("{one} and {other} are both {address}; give each its own port")]
    SameAddress {
        /// The first setting.
        one: &'static str,
        /// The second setting.
        other: &'static str,
        /// Their address.
        address: String,
    },
    /// A number out of range.
    #[error("{setting}: {given} is out of range; write a number from {min} to {max}")]
    OutOfRange {
        /// The setting.
        setting: &'static str,
        /// The given number.
        given: u64,
        /// Lowest allowed number.
        min: u64,
        /// Highest allowed number.
        max: u64,
    },
    /// No founders, or too many.
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
        "peers: this node's own peer address {own} is not among the founders ({founders}); set peer to the one of \
         them that is this node, spelt the same"
    )]
    NotAFounder {
        /// The address of this node.
        own: String,
        /// The founders.
        founders: String,
    },
    /// Not a cluster id.
    #[error(
        "force_new_cluster: `{0}` is not the id of a cluster; the log of every start says which the directory belongs \
         to"
    )]
    ClusterId(String),
    /// Both `peers` and `join` are given.
    #[error("join: peers is given too; a node founds a cluster (peers) or joins one that is there (join)")]
    JoinAndPeers,
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
    /// Not a host name.
    #[error(
        "allowed_hosts: `{0}` is not the name of a host; write names without scheme and port, such as \
         tidelock.example.com"
    )]
    AllowedHost(String),
    /// Too many host names.
    #[error("allowed_hosts: {0} are too many; give at most {ALLOWED_HOSTS_MAX}")]
    TooManyAllowedHosts(usize),
    /// Not a valid cluster name.
    #[error(
        "cluster_name: `{0}` is not a name; write 1 to {CLUSTER_NAME_BYTES_MAX} letters, digits, dots, dashes and \
         underscores"
    )]
    ClusterName(String),
    /// An empty path.
    #[error("data_dir: the path is empty; write a directory, such as ./tidelock-data")]
    DataDir,
    /// Not a tag.
    #[error(
        "tags: `{0}` is not a tag; write K=V of at most {TAG_BYTES_MAX} bytes, such as geo:zone=us-west-1a"
    )]
    Tag(String),
    /// A tag is given more than once.
    #[error("tags: `{0}` is given more than once; give each tag one value")]
    TagTwice(String),
    /// Too many tags.
    #[error("tags: {0} are too many; give at most {TAGS_MAX}")]
    TooManyTags(usize),
    /// Not a number of bytes, or too small.
    #[error("memory_limit: `{text}` is not a limit; write at least {min_mib}MiB, such as 512MiB or 2GiB")]
    MemoryLimit {
        /// The given text.
        text: String,
        /// The smallest limit, in MiB.
        min_mib: usize,
    },
    /// Not a log format.
    #[error("log_format: `{0}` is unknown; write text or json")]
    LogFormat(String),
    /// An empty log filter.
    #[error("log_filter: the filter is empty; write a level, such as info, or target=level pairs")]
    LogFilter,
}
