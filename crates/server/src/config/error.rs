//! What can be wrong with settings. Owns the texts: each names the setting and says what to write instead.

use std::io;
use std::path::PathBuf;

use super::{
    ALLOWED_HOSTS_MAX, CLUSTER_NAME_BYTES_MAX, FOUNDERS_MAX, JOIN_ADDRESSES_MAX, TAG_BYTES_MAX, TAGS_MAX,
};

/// Why a node does not start. A mistake of usage, found before anything was touched.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no TOML, has an unknown key or a value of the wrong type.
    #[error("in the configuration file {}: {source}", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Where and why; boxed, as it is large.
        source: Box<toml::de::Error>,
    },
    /// Not an address.
    #[error("{setting}: `{text}` is not an address; write HOST:PORT, such as 127.0.0.1:8001 or [::1]:8001")]
    Address {
        /// Which setting.
        setting: &'static str,
        /// What was given.
        text: String,
    },
    /// No port is left beside that of `resp`.
    #[error(
        "resp_cluster: there is no port 100 above that of resp, {resp}; give it an address of its own, or `off`"
    )]
    NoRespClusterPort {
        /// The address of `resp`.
        resp: String,
    },
    /// Two protocols on one address.
    #[error("{one} and {other} are both {address}; give each its own port")]
    SameAddress {
        /// One setting.
        one: &'static str,
        /// The other.
        other: &'static str,
        /// Their address.
        address: String,
    },
    /// A number out of range.
    #[error("{setting}: {given} is out of range; write a number from {min} to {max}")]
    OutOfRange {
        /// Which setting.
        setting: &'static str,
        /// What was given.
        given: u64,
        /// Lowest.
        min: u64,
        /// Highest.
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
        /// The node's address.
        own: String,
        /// The founders.
        founders: String,
    },
    /// Not the id of a cluster.
    #[error(
        "force_new_cluster: `{0}` is not the id of a cluster; the log of every start says which the directory belongs \
         to"
    )]
    ClusterId(String),
    /// Both founding and joining.
    #[error("join: peers is given too; a node founds a cluster (peers) or joins one that is there (join)")]
    JoinAndPeers,
    /// Nobody to ask, or too many.
    #[error(
        "join: {0} addresses; list the peer addresses of 1 to {JOIN_ADDRESSES_MAX} members of the cluster"
    )]
    JoinCount(usize),
    /// Nobody to ask but itself.
    #[error("join: {0} is this node's own peer address; list that of a member of the cluster")]
    JoinSelf(String),
    /// Nobody could reach the newcomer.
    #[error(
        "peer: {0} does not say where this node is; to join, write the address and port at which the members of the \
         cluster reach it"
    )]
    JoinPeer(String),
    /// Not the name of a host.
    #[error(
        "allowed_hosts: `{0}` is not the name of a host; write names without scheme and port, such as \
         tidelock.example.com"
    )]
    AllowedHost(String),
    /// Too many names of hosts.
    #[error("allowed_hosts: {0} are too many; give at most {ALLOWED_HOSTS_MAX}")]
    TooManyAllowedHosts(usize),
    /// Not a name.
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
    /// Not a number of bytes, or too few.
    #[error("memory_limit: `{text}` is not a limit; write at least {min_mib}MiB, such as 512MiB or 2GiB")]
    MemoryLimit {
        /// What was given.
        text: String,
        /// The least that a node needs.
        min_mib: usize,
    },
    /// Not a log format.
    #[error("log_format: `{0}` is unknown; write text or json")]
    LogFormat(String),
    /// An empty log filter.
    #[error("log_filter: the filter is empty; write a level, such as info, or target=level pairs")]
    LogFilter,
}
