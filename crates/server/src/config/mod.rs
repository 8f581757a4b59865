//! The settings of a node: raw values from flags, environment and file, validated once into
//! [`Settings`].
//!
//! Owns defaults, precedence and validation; `raw` owns names and help texts, `ranges` the ranges
//! of values. It does not parse the command line: the binary does that, and passes flags and
//! environment as [`RawSettings`]. It does not own what the data directory stores either: once a
//! node has founded or joined its cluster, `identity` compares `peers`, `join`, `cluster_name`,
//! `shards`, `replicas` and `shard_tags` with the stored values.
//!
//! Precedence: flag, environment, file, default. A setting is replaced as a whole: tags given by
//! flags replace those of the file. Invariants: each default is defined once, here; nothing is
//! validated again after [`Settings::new`].

mod address;
mod allowed_hosts;
mod audit_writes;
mod error;
mod founders;
mod join;
mod listeners;
mod ranges;
mod raw;
mod secure;
mod srv;
#[cfg(test)]
mod tests;
mod traces;

pub use address::{Address, HOST_BYTES_MAX};
pub use allowed_hosts::ALLOWED_HOSTS_MAX;
pub use audit_writes::AUDIT_PREFIXES_MAX;
pub use error::ConfigError;
pub use founders::{FOUNDERS_MAX, FoundingTerms, cluster_id};
pub use join::JOIN_ADDRESSES_MAX;
pub use listeners::ListenerAddresses;
pub use ranges::{AllowedRange, REPLICAS_MAX, WORKERS_MAX, range};
pub use raw::RawSettings;
pub use srv::SrvFounders;
pub use traces::{DEFAULT_TRACE_RATIO, TraceEndpoint, TraceSettings};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidelock_core::event::{DivisionTiming, Timing};
use tidelock_core::placement_policy::{self, PlacementPolicy};
use tidelock_core::types::NodeId;
use uuid::Uuid;

use self::ranges::in_range;
use crate::memory;

/// Default of `data_dir`, below the working directory.
pub const DEFAULT_DATA_DIR: &str = "./tidelock-data";
/// Default of `http`. Loopback, like the others: exposing a node takes an explicit setting.
pub const DEFAULT_HTTP: &str = "127.0.0.1:8001";
/// Default of `resp`. Loopback, as for `http`.
pub const DEFAULT_RESP: &str = "127.0.0.1:7001";
/// The default port of `resp_cluster` is the port of `resp` plus this.
pub const RESP_CLUSTER_PORT_OFFSET: u16 = 100;
/// The value of `resp_cluster` that disables that listener.
pub const RESP_CLUSTER_OFF: &str = "off";
/// Default of `peer`. Loopback, as for `http`: enough for nodes on one machine.
pub const DEFAULT_PEER: &str = "127.0.0.1:9001";
/// Default of `cluster_name`. Clusters with the same founders need different names.
pub const DEFAULT_CLUSTER_NAME: &str = "tidelock";
/// Default of `shards`, the number of data shards of a new cluster. With one, every transaction and
/// every command on many keys works, and a write costs least. The cluster divides it when it has
/// hosts or load for more.
pub const DEFAULT_SHARDS: u64 = 1;
/// Default of `replicas`, the number of voters of each data shard of a new cluster: one may fail.
pub const DEFAULT_REPLICAS: u64 = 3;
/// Default of `secure`.
pub const DEFAULT_SECURE: bool = false;
/// Default of `insecure`: other machines do not reach a node without TLS by mistake.
pub const DEFAULT_INSECURE: bool = false;
/// Default of `sync`: writes are acknowledged when they are on disk.
pub const DEFAULT_SYNC: bool = true;
/// Default of `election_timeout_ms`: how long a follower waits for its leader.
pub const DEFAULT_ELECTION_TIMEOUT_MS: u64 = 1_000;
/// Default of `request_timeout_ms`: one and a half election timeouts, so that a request survives an
/// election and is still answered within three seconds.
pub const DEFAULT_REQUEST_TIMEOUT_MS: u64 = 2_500;
/// Default of `dead_after_s`: longer than a host takes to restart.
pub const DEFAULT_DEAD_AFTER_S: u64 = 300;
/// Default of `auth_stale_s`: longer than the prime shard is without a leader after a failure.
pub const DEFAULT_AUTH_STALE_S: u64 = 300;
/// Default of `slow_request_ms`: on a healthy cluster, a request that takes longer indicates a
/// fault.
pub const DEFAULT_SLOW_REQUEST_MS: u64 = 1_000;
/// Default of `log_format`: lines for people.
pub const DEFAULT_LOG_FORMAT: &str = "text";
/// Default of `log_filter`: one level for all targets.
pub const DEFAULT_LOG_FILTER: &str = "info";

/// Ticks in an election timeout: fine enough that jitter separates the nodes' timeouts.
pub const TICKS_PER_ELECTION_TIMEOUT: u64 = 20;
/// Ticks between heartbeats. A leader sends ten in an election timeout, so that losing a few of
/// them does not cause an election.
pub const TICKS_PER_HEARTBEAT: u64 = TICKS_PER_ELECTION_TIMEOUT / 10;
/// Shortest tick, in milliseconds. Below it, the 1 ms resolution of the kernel's and the event
/// loop's timers is a large part of a tick.
pub const TICK_MS_MIN: u64 = 5;
/// Minimum time between two leaderships that are transferred for balance. Long, because each
/// transfer costs clients of the shard some milliseconds.
const BALANCE_INTERVAL: Duration = Duration::from_secs(60);
/// How long a founder with an empty directory waits for connections to all other founders: the
/// longest backoff and the timeout of one attempt ([`crate::transport::attempt`]), so that each
/// founder that runs has tried to connect.
const FOUNDERS_AWAITED: Duration = Duration::from_secs(3);
/// Interval between two reports of a node's load to the leader of the prime shard. A frame of some
/// bytes, so it could be shorter; no division is urgent.
const LOAD_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Requests a second at which a data shard counts as busy: about a third of what one core serves
/// unpipelined (a durable write takes 16 to 20 µs of it), so a division ends before the leader is
/// saturated.
const BUSY_REQUESTS_PER_SECOND: u64 = 20_000;
/// Reports in a row for which a shard is busy before it is divided: a minute, which no single batch
/// job of a few seconds reaches.
const BUSY_INTERVALS: u64 = 6;
/// How long a transaction that spans slots holds a division back. Hourly jobs repeat it in time.
const SPANNING_MEMORY: Duration = Duration::from_secs(3_600);
/// How long neither slots nor replicas have moved before a division. Hosts that start together, or
/// join one after another, are counted together.
const DIVISION_REST: Duration = Duration::from_secs(15);
/// Largest default number of workers. The first worker executes the requests of all workers, which
/// without pipelines is a quarter to a third of the work. With more workers than this, it is the
/// bottleneck.
pub const DEFAULT_WORKERS_MAX: usize = 6;
/// Longest cluster name, in bytes.
pub const CLUSTER_NAME_BYTES_MAX: usize = 64;
/// Most tags of a node. Every node stores the tags of all nodes.
pub const TAGS_MAX: usize = 64;
/// Tags whose names begin with this hold what releases add to the announcement of a host.
const RESERVED_TAGS: &str = "tidelock:";
/// Longest tag, `K=V`, in bytes.
pub const TAG_BYTES_MAX: usize = 256;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text, for people.
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Settings that passed all checks, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Directory of everything that the node keeps.
    pub data_dir: PathBuf,
    /// Where the node listens.
    pub listen: ListenerAddresses,
    /// Where others reach the node: what it tells the cluster and clients.
    pub advertise: ListenerAddresses,
    /// Host names, besides those of [`Settings::listen`] and [`Settings::advertise`], under which
    /// HTTP clients reach this node.
    pub allowed_hosts: Vec<String>,
    /// Directory of the certificate that clients and other nodes are shown; `None`: they connect
    /// without TLS.
    pub tls_dir: Option<PathBuf>,
    /// PEM file with the CAs that sign the certificates of clients; `None`: clients are not asked
    /// for certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether the cluster's own CA signs the certificate of the node, which is in the data
    /// directory.
    pub secure: bool,
    /// File with the join token with which the node requests its first certificate.
    pub join_token_file: Option<PathBuf>,
    /// File with the keys for secrets of configuration; `None`: the node has none.
    pub secret_key_file: Option<PathBuf>,
    /// File of the audit log; `None` disables it.
    pub audit_log: Option<PathBuf>,
    /// Prefixes of the keys whose changes are recorded in it.
    pub audit_writes: Vec<String>,
    /// Whether other machines may reach this node without TLS.
    pub insecure: bool,
    /// Data shards that a new cluster is founded with, 1 to [`tidelock_core::limits::SHARDS_MAX`].
    pub shards: u64,
    /// Voters of each data shard of a new cluster: an odd number up to [`REPLICAS_MAX`].
    pub replicas: u64,
    /// Tags of the data shards of a new cluster, placement policies among them.
    pub shard_tags: BTreeMap<String, String>,
    /// Tags of this node by name. Placement policies refer to them.
    pub tags: BTreeMap<String, String>,
    /// Whether a write is acknowledged only when it is on disk.
    pub sync: bool,
    /// How long a follower waits for its leader before it starts an election.
    pub election_timeout: Duration,
    /// How long a request may wait.
    pub request_timeout: Duration,
    /// How long a host may be silent before its replicas are placed on other hosts.
    pub dead_after: Duration,
    /// How long a node trusts the permissions that it knows without reaching the leader of the
    /// prime shard.
    pub auth_stale: Duration,
    /// Requests that take longer are logged as slow.
    pub slow_request: Duration,
    /// How requests are traced; `None`: they are not.
    pub traces: Option<TraceSettings>,
    /// Threads that serve clients, 1 to [`WORKERS_MAX`]. The first one also drives the node.
    pub workers: usize,
    /// Limit of the memory held for clients, in bytes, at least [`memory::LIMIT_BYTES_MIN`].
    pub memory_limit: usize,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// Filter of log lines in the grammar of the log subscriber; not empty.
    pub log_filter: String,
    /// Sorted, without duplicates; empty if they are to be found by `srv_founders`.
    founders: Vec<Address>,
    /// The DNS SRV name of the founders, if `peers` is one.
    srv_founders: Option<SrvFounders>,
    /// `None` for a cluster of one, and with `srv_founders`.
    cluster_id: Option<Uuid>,
    /// Members to ask for admission, and SRV names of members; empty for a founder.
    join: Vec<String>,
    /// `None` if it was not given.
    cluster_name: Option<String>,
    /// Whether `shards` was given, rather than its default.
    has_shards: bool,
    /// Whether `replicas` was given, rather than its default.
    has_replicas: bool,
    force_new_cluster: Option<Uuid>,
}

/// The default number of workers on a machine with `cores` cores.
///
/// One worker on one or two cores: the disk thread, the kernel and other processes need the rest,
/// and in measurements a second worker gained nothing. With more cores, one worker less than cores,
/// up to [`DEFAULT_WORKERS_MAX`].
pub fn workers_of_cores(cores: usize) -> usize {
    cores.saturating_sub(1).clamp(1, DEFAULT_WORKERS_MAX)
}

fn parse_cluster_id(text: &str) -> Result<Uuid, ConfigError> {
    Uuid::parse_str(text.trim()).map_err(|_| ConfigError::ClusterId(text.to_owned()))
}

impl Settings {
    /// Completes settings from flags and environment with those of the file, if any, and the
    /// defaults.
    ///
    /// # Errors
    /// The first setting that is wrong; its text says what to write instead.
    pub fn load(given: RawSettings, file: Option<&Path>) -> Result<Settings, ConfigError> {
        match file {
            Some(path) => Settings::new(given.or(RawSettings::read(path)?)),
            None => Settings::new(given),
        }
    }

    /// Validates, and fills in defaults.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn new(raw: RawSettings) -> Result<Settings, ConfigError> {
        secure::check(&raw)?;
        let (listen, advertise) = listeners::parse(&raw)?;
        let given_name = raw.cluster_name.map(|name| name.trim().to_owned());
        let cluster_name = given_name.as_deref().unwrap_or(DEFAULT_CLUSTER_NAME);
        check_cluster_name(cluster_name)?;
        let shards = in_range("shards", raw.shards.unwrap_or(DEFAULT_SHARDS))?;
        let replicas = parse_replicas(raw.replicas)?;
        let shard_tags = parse_shard_tags(raw.shard_tags.unwrap_or_default())?;
        let srv_founders = raw.peers.as_deref().map(srv::founders).transpose()?.flatten();
        let founders = raw.peers.filter(|_| srv_founders.is_none());
        let founders = founders.map(|list| founders::parse(&list)).transpose()?;
        let cluster_id = founders.as_ref().map(|founders| {
            let texts: Vec<&str> = founders.iter().map(Address::as_str).collect();
            let terms = FoundingTerms { data_shards: raw.shards, replicas, shard_tags: &shard_tags };
            cluster_id(&texts, cluster_name, &terms)
        });
        let founders = match &srv_founders {
            Some(_) => vec![],
            None => founders.unwrap_or_else(|| vec![advertise.peer.clone()]),
        };
        let join = raw.join.map_or(Ok(vec![]), |list| join::parse(&list, &advertise.peer))?;

        Ok(Settings {
            election_timeout: Duration::from_millis(in_range(
                "election_timeout_ms",
                raw.election_timeout_ms.unwrap_or(DEFAULT_ELECTION_TIMEOUT_MS),
            )?),
            request_timeout: Duration::from_millis(in_range(
                "request_timeout_ms",
                raw.request_timeout_ms.unwrap_or(DEFAULT_REQUEST_TIMEOUT_MS),
            )?),
            dead_after: Duration::from_secs(in_range(
                "dead_after_s",
                raw.dead_after_s.unwrap_or(DEFAULT_DEAD_AFTER_S),
            )?),
            auth_stale: parse_auth_stale(raw.auth_stale_s)?,
            slow_request: parse_slow_request(raw.slow_request_ms)?,
            traces: traces::parse(raw.trace_endpoint.as_deref(), raw.trace_ratio)?,
            data_dir: parse_data_dir(raw.data_dir)?,
            allowed_hosts: allowed_hosts::parse(&raw.allowed_hosts.unwrap_or_default())?,
            listen,
            advertise,
            tls_dir: raw.tls_dir,
            client_ca: raw.client_ca,
            secure: raw.secure.unwrap_or(DEFAULT_SECURE),
            join_token_file: raw.join_token_file,
            secret_key_file: raw.secret_key_file,
            audit_writes: audit_writes::parse(raw.audit_writes, raw.audit_log.is_some())?,
            audit_log: raw.audit_log,
            insecure: raw.insecure.unwrap_or(DEFAULT_INSECURE),
            shards,
            replicas,
            shard_tags,
            tags: parse_tags("tags", &raw.tags.unwrap_or_default())?,
            sync: raw.sync.unwrap_or(DEFAULT_SYNC),
            workers: parse_workers(raw.workers)?,
            memory_limit: parse_memory_limit(raw.memory_limit.as_deref())?,
            log_format: parse_log_format(raw.log_format.as_deref().unwrap_or(DEFAULT_LOG_FORMAT))?,
            log_filter: parse_log_filter(raw.log_filter.as_deref().unwrap_or(DEFAULT_LOG_FILTER))?,
            founders,
            srv_founders,
            cluster_id,
            join,
            cluster_name: given_name,
            has_shards: raw.shards.is_some(),
            has_replicas: raw.replicas.is_some(),
            force_new_cluster: raw.force_new_cluster.as_deref().map(parse_cluster_id).transpose()?,
        })
    }

    /// The id of the cluster that this node leaves to continue as a cluster of one, if it was
    /// given.
    pub fn force_new_cluster(&self) -> Option<Uuid> {
        self.force_new_cluster
    }

    /// Every host name for which this node answers HTTP requests.
    pub fn http_hosts(&self) -> impl Iterator<Item = String> {
        let own = self.listen.by_name().chain(self.advertise.by_name());
        let mut names: Vec<String> = own.map(|(_, address)| address.host().to_owned()).collect();
        names.extend(self.allowed_hosts.iter().cloned());
        names.sort();
        names.dedup();
        names.into_iter()
    }

    /// Peer addresses of all founders, sorted by their bytes, 1 to [`FOUNDERS_MAX`]. Empty if
    /// [`Settings::srv_founders`] names them.
    pub fn founders(&self) -> Vec<String> {
        self.founders.iter().map(Address::to_string).collect()
    }

    /// The DNS SRV name of the founders, if `peers` is one. It is resolved by a node that founds
    /// its cluster, and by no other.
    pub fn srv_founders(&self) -> Option<&SrvFounders> {
        self.srv_founders.as_ref()
    }

    /// Addresses at which a member looks for any peer that it does not find otherwise: those of
    /// `peers` and `join`, with SRV names as `srv:NAME`.
    pub fn fallbacks(&self) -> Vec<String> {
        let listed = self.given_founders().unwrap_or_default().into_iter();
        let service = self.srv_founders.iter().map(SrvFounders::address);
        listed.chain(service).chain(self.join()).collect()
    }

    /// This node's number among the founders: its position in [`Settings::founders`], from 1.
    ///
    /// # Errors
    /// When the node's address is not among them. Only a node that founds its cluster calls this: a
    /// founder that has since moved to another address is still started with the original list.
    pub fn founder_number(&self) -> Result<NodeId, ConfigError> {
        let position = self.founders.iter().position(|founder| *founder == self.advertise.peer);
        let number = position.map(|position| NodeId(position as u64 + 1));
        number.ok_or_else(|| ConfigError::NotAFounder {
            own: self.advertise.peer.to_string(),
            founders: self.founders().join(", "),
        })
    }

    /// The founders that `peers` lists, sorted; `None` if it was not given.
    pub fn given_founders(&self) -> Option<Vec<String>> {
        self.cluster_id.map(|_| self.founders())
    }

    /// The number of voters of each data shard, if it was given.
    pub fn given_replicas(&self) -> Option<u64> {
        self.has_replicas.then_some(self.replicas)
    }

    /// The number of data shards, if it was given.
    pub fn given_shards(&self) -> Option<u64> {
        self.has_shards.then_some(self.shards)
    }

    /// The cluster name to use if this node founds a cluster.
    pub fn founding_name(&self) -> &str {
        self.cluster_name().unwrap_or(DEFAULT_CLUSTER_NAME)
    }

    /// The id of the cluster, derived from `peers` and `cluster_name`. `None` for a cluster of one,
    /// whose id is random: no other node has to derive it, and two such clusters on one machine
    /// must not share an id.
    pub fn cluster_id(&self) -> Option<Uuid> {
        self.cluster_id
    }

    /// Peer addresses of the members that a new node asks for admission, without this node's own,
    /// and SRV names of members as `srv:NAME`. Empty for a node that founds its cluster.
    pub fn join(&self) -> Vec<String> {
        self.join.clone()
    }

    /// What all founders must agree on, besides their addresses and the cluster's name.
    pub fn founding_terms(&self) -> FoundingTerms<'_> {
        FoundingTerms {
            data_shards: self.given_shards(),
            replicas: self.replicas,
            shard_tags: &self.shard_tags,
        }
    }

    /// The cluster's name, if it was given. A joining node without one accepts the cluster's name.
    pub fn cluster_name(&self) -> Option<&str> {
        self.cluster_name.as_deref()
    }

    /// The length of a tick; at least [`TICK_MS_MIN`].
    pub fn tick(&self) -> Duration {
        self.election_timeout / TICKS_PER_ELECTION_TIMEOUT as u32
    }

    /// The core's timeouts, in ticks, rounded up.
    pub fn timing(&self) -> Timing {
        let ticks = |time: Duration| time.as_nanos().div_ceil(self.tick().as_nanos()) as u64;
        Timing {
            tick_ms: self.tick().as_nanos().div_ceil(1_000_000) as u64,
            election_ticks: TICKS_PER_ELECTION_TIMEOUT,
            heartbeat_ticks: TICKS_PER_HEARTBEAT,
            request_ticks: ticks(self.request_timeout),
            dead_ticks: ticks(self.dead_after),
            balance_ticks: ticks(BALANCE_INTERVAL),
            slow_request_ticks: ticks(self.slow_request),
            access_stale_ticks: ticks(self.auth_stale),
            founding_ticks: ticks(FOUNDERS_AWAITED),
        }
    }

    /// When data shards are divided, in ticks, rounded up.
    pub fn division(&self) -> DivisionTiming {
        let ticks = |time: Duration| time.as_nanos().div_ceil(self.tick().as_nanos()) as u64;
        DivisionTiming {
            report_ticks: ticks(LOAD_REPORT_INTERVAL),
            busy_requests_per_second: BUSY_REQUESTS_PER_SECOND,
            busy_intervals: BUSY_INTERVALS,
            memory_ticks: ticks(SPANNING_MEMORY),
            rest_ticks: ticks(DIVISION_REST),
        }
    }
}

fn check_cluster_name(name: &str) -> Result<(), ConfigError> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if name.is_empty() || name.len() > CLUSTER_NAME_BYTES_MAX || !is_plain {
        return Err(ConfigError::ClusterName(name.to_owned()));
    }
    Ok(())
}

fn parse_data_dir(given: Option<PathBuf>) -> Result<PathBuf, ConfigError> {
    match given {
        Some(path) if path.as_os_str().is_empty() => Err(ConfigError::DataDir),
        Some(path) => Ok(path),
        None => Ok(DEFAULT_DATA_DIR.into()),
    }
}

fn parse_tags(setting: &'static str, list: &[String]) -> Result<BTreeMap<String, String>, ConfigError> {
    if list.len() > TAGS_MAX {
        return Err(ConfigError::TooManyTags { setting, count: list.len() });
    }
    let mut tags = BTreeMap::new();
    for tag in list {
        match tag.split_once('=') {
            Some((name, value))
                if !name.trim().is_empty()
                    && !name.trim().starts_with(RESERVED_TAGS)
                    && tag.len() <= TAG_BYTES_MAX =>
            {
                let name = name.trim().to_owned();
                if tags.insert(name.clone(), value.trim().to_owned()).is_some() {
                    return Err(ConfigError::TagTwice { setting, name });
                }
            }
            _ => return Err(ConfigError::Tag { setting, text: tag.clone() }),
        }
    }
    Ok(tags)
}

/// Only odd numbers: an even one costs one more copy of all data than the odd one below it, and
/// survives no more failures.
fn parse_replicas(given: Option<u64>) -> Result<u64, ConfigError> {
    let replicas = given.unwrap_or(DEFAULT_REPLICAS);
    let is_allowed = replicas <= REPLICAS_MAX && replicas % 2 == 1;
    if is_allowed { Ok(replicas) } else { Err(ConfigError::Replicas(replicas)) }
}

/// The tags of founding shards. Their policies are checked as those of running clusters are.
fn parse_shard_tags(list: Vec<String>) -> Result<BTreeMap<String, String>, ConfigError> {
    let tags = parse_tags("shard_tags", &list)?;
    PlacementPolicy::parse(&tags).map_err(|error| ConfigError::ShardTag(error.to_string()))?;
    if let Some(name) = tags.keys().find(|name| placement_policy::is_misspelt(name)) {
        return Err(ConfigError::ShardTag(format!("`{name}` looks like a policy that is misspelt")));
    }
    Ok(tags)
}

fn parse_auth_stale(raw: Option<u64>) -> Result<Duration, ConfigError> {
    let raw_s = raw.unwrap_or(DEFAULT_AUTH_STALE_S);
    in_range("auth_stale_s", raw_s).map(Duration::from_secs)
}

fn parse_slow_request(raw: Option<u64>) -> Result<Duration, ConfigError> {
    let raw_ms = raw.unwrap_or(DEFAULT_SLOW_REQUEST_MS);
    in_range("slow_request_ms", raw_ms).map(Duration::from_millis)
}

fn parse_workers(given: Option<u64>) -> Result<usize, ConfigError> {
    match given {
        Some(given) => Ok(in_range("workers", given)? as usize),
        // If the system does not report the number of cores, use one worker.
        None => Ok(workers_of_cores(std::thread::available_parallelism().map_or(1, usize::from))),
    }
}

fn parse_memory_limit(given: Option<&str>) -> Result<usize, ConfigError> {
    let Some(text) = given else { return Ok(memory::default_limit().max(memory::LIMIT_BYTES_MIN)) };
    let bytes = parse_bytes(text.trim()).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|bytes| *bytes >= memory::LIMIT_BYTES_MIN).ok_or_else(|| ConfigError::MemoryLimit {
        text: text.to_owned(),
        min_mib: memory::LIMIT_BYTES_MIN >> 20,
    })
}

/// `536870912`, `512MiB`, `2 GiB`.
fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kib" => 10,
        "mib" => 20,
        "gib" => 30,
        "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn parse_log_format(text: &str) -> Result<LogFormat, ConfigError> {
    match text.trim() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(ConfigError::LogFormat(other.to_owned())),
    }
}

fn parse_log_filter(text: &str) -> Result<String, ConfigError> {
    let text = text.trim();
    if text.is_empty() { Err(ConfigError::LogFilter) } else { Ok(text.to_owned()) }
}
