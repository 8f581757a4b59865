//! The command line: every command, flag, environment variable and the text that `--help` teaches them with.
//!
//! Owns syntax only. What a setting of `serve` means, and its default, belongs to the server's configuration, so
//! the flags here are all optional; the defaults named in help texts are held to it by a test in `serve`.

mod config;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::bench::BenchArgs;
use crate::client::NodeUrl;
use crate::keys::KeyArg;
pub use config::{
    ConfigArgs, ConfigCommand, ContainerCommand, Datatype, DiffArgs, ExportArgs, Format, HistoryArgs,
    ImportArgs, ItemArgs, NsCommand, PairCommand, PublishArgs, RollbackArgs, TermsArgs, WatchArgs,
};

/// A replicated key-value store: every acknowledged write is on the disks of a majority, every read is
/// linearizable unless you ask for a stale one.
#[derive(Debug, Parser)]
#[command(name = "tidelock", version, max_term_width = 110)]
#[command(after_help = "Try it: `tidelock dev --nodes 3` in one terminal, then in another\n  \
    tidelock kv put hello world\n  tidelock kv get hello\n  tidelock cluster status\n\n\
    Exit codes: 0 done, 1 failed, 2 the command line is wrong.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one node of a cluster
    ///
    /// It runs in the foreground until SIGTERM or SIGINT. Without --peers it is a cluster of one. With --peers it
    /// is one of the founders of a cluster: start each of them with the same list, in any order; the cluster serves
    /// once a majority is up.
    ///
    /// With --join it becomes a member of a cluster that is there: it asks the members listed until one of them takes it
    /// in.
    ///
    /// The first start writes the cluster's identity to the data directory. From then on --peers, --join, --cluster-name
    /// and --shards are ignored, and the node needs its own disk and a majority, never a particular peer.
    ///
    /// A flag wins over its environment variable, which wins over --config.
    #[command(after_help = "One node:\n  tidelock serve --data-dir /var/lib/tidelock\n\n\
        The first of three founders:\n  tidelock serve --data-dir /var/lib/tidelock --http 10.0.0.1:8001 \\\n    \
        --peer 10.0.0.1:9001 --peers 10.0.0.1:9001,10.0.0.2:9001,10.0.0.3:9001\n\n\
        One more:\n  tidelock serve --data-dir /var/lib/tidelock --http 10.0.0.4:8001 \\\n    \
        --peer 10.0.0.4:9001 --join 10.0.0.1:9001,10.0.0.2:9001")]
    Serve(Box<ServeArgs>),
    /// Run a whole cluster on this machine, to try things and to break them
    ///
    /// Starts N real nodes as processes on loopback addresses, each with its own directory, prints their endpoints
    /// once all are ready, then their logs, until Ctrl-C stops them all.
    ///
    /// A node that dies is reported and stays dead: kill one with `kill -9`, watch the others carry on, and start it
    /// again with the command line printed. Settings of `serve` that are not given here can be set by their
    /// environment variables, such as TIDELOCK_LOG=debug.
    Dev(DevArgs),
    /// Read and write keys
    Kv(KvArgs),
    /// Typed configuration with history: namespaces, pairs, containers
    Config(Box<ConfigArgs>),
    /// Read and exchange numbers, each in one step
    Atomic(AtomicArgs),
    /// Look at the cluster, and change which hosts it is made of and which shard holds what
    Cluster(ClusterArgs),
    /// Save all keys to a file, and bring them back
    Backup(BackupArgs),
    /// Measure: load and latency of a cluster, with every answer checked, and what the disk can do
    Bench(Box<BenchArgs>),
}

/// Arguments of `serve`: every setting of a node, each optional.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Directory of everything this node remembers; made if it is not there [default: ./tidelock-data]
    #[arg(long, env = "TIDELOCK_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address for HTTP clients [default: 127.0.0.1:8001]
    #[arg(long, env = "TIDELOCK_HTTP", value_name = "ADDR")]
    pub http: Option<String>,
    /// Address for Redis clients [default: 127.0.0.1:7001]
    #[arg(long, env = "TIDELOCK_RESP", value_name = "ADDR")]
    pub resp: Option<String>,
    /// Address for the other nodes, and this node's name in --peers [default: 127.0.0.1:9001]
    #[arg(long, env = "TIDELOCK_PEER", value_name = "ADDR")]
    pub peer: Option<String>,
    /// Peer addresses of all founders, this node's included, the same list on each of them
    #[arg(long, env = "TIDELOCK_PEERS", value_name = "ADDR,…", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,
    /// Peer addresses of members of a cluster that is there, for a new node to join it; one that is up is enough
    #[arg(long, env = "TIDELOCK_JOIN", value_name = "ADDR,…", value_delimiter = ',')]
    pub join: Option<Vec<String>>,
    /// A name that founders must share, so that clusters cannot be mixed up [default: tidelock]
    #[arg(long, env = "TIDELOCK_CLUSTER_NAME", value_name = "NAME")]
    pub cluster_name: Option<String>,
    /// Last resort when a majority is lost for good: this node goes on alone, as a new cluster, with what its own disk
    /// holds. ID is that of the cluster it leaves, so that it happens once
    #[arg(long, env = "TIDELOCK_FORCE_NEW_CLUSTER", value_name = "ID")]
    pub force_new_cluster: Option<String>,
    /// Into how many shards a new cluster divides its keys [default: 4]
    #[arg(long, env = "TIDELOCK_SHARDS", value_name = "N")]
    pub shards: Option<u64>,
    /// A property of this host, such as geo:zone=us-west-1a; repeatable
    #[arg(long = "tag", env = "TIDELOCK_TAGS", value_name = "KEY=VALUE", value_delimiter = ',')]
    pub tags: Option<Vec<String>>,
    /// Whether a write is on the disk before it is acknowledged. Without it a power failure may lose
    /// acknowledged writes [default: true]
    #[arg(long, env = "TIDELOCK_SYNC", value_name = "BOOL", action = ArgAction::Set)]
    pub sync: Option<bool>,
    /// How long a silent leader is waited for before another is elected, in milliseconds [default: 1000]
    #[arg(long, env = "TIDELOCK_ELECTION_TIMEOUT_MS", value_name = "MS")]
    pub election_timeout_ms: Option<u64>,
    /// By when every request is answered, if only with a refusal, in milliseconds [default: 2500]
    #[arg(long, env = "TIDELOCK_REQUEST_TIMEOUT_MS", value_name = "MS")]
    pub request_timeout_ms: Option<u64>,
    /// How long a host may be silent before the cluster gives its place to another one, where its placement policies
    /// allow that, in seconds [default: 300]
    #[arg(long, env = "TIDELOCK_DEAD_AFTER_S", value_name = "SECONDS")]
    pub dead_after_s: Option<u64>,
    /// Threads that serve clients; the first also keeps the shards [default: by the cores]
    #[arg(long, env = "TIDELOCK_WORKERS", value_name = "N")]
    pub workers: Option<u64>,
    /// Form of the log on standard error: text or json [default: text]
    #[arg(long, env = "TIDELOCK_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// What the log shows: a level, or directives such as info,tidelock_server=debug [default: info]
    #[arg(long = "log", env = "TIDELOCK_LOG", value_name = "FILTER")]
    pub log_filter: Option<String>,
    /// TOML file with any of these settings, named as here with _ for -; an unknown name is an error
    #[arg(long, env = "TIDELOCK_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Stops the node when its standard input ends: how `tidelock dev` makes sure that no node outlives it.
    #[arg(long, hide = true)]
    pub stop_at_stdin_end: bool,
}

/// Arguments of `dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// How many nodes
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=7))]
    pub nodes: u16,
    /// Where the nodes keep their directories; kept from run to run
    #[arg(long, default_value = "./tidelock-data/dev", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Delete what an earlier run left in the directory first
    #[arg(long)]
    pub fresh: bool,
    /// HTTP port of the first node; the next ones follow
    #[arg(long, default_value_t = 8001, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub http_base: u16,
    /// Redis port of the first node; the next ones follow
    #[arg(long, default_value_t = 7001, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub resp_base: u16,
    /// Peer port of the first node; the next ones follow
    #[arg(long, default_value_t = 9001, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub peer_base: u16,
}

/// How to reach a cluster, and how to print what it says.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// A node's HTTP endpoint. Give several (repeat it, or separate them by commas) and the next one is asked when
    /// one is unreachable or has no leader. A write whose answer was lost is never sent again: it may have happened
    #[arg(
        long = "url",
        env = "TIDELOCK_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:8001",
        global = true
    )]
    pub urls: Vec<NodeUrl>,
    /// For people or for programs
    #[arg(long, env = "TIDELOCK_OUTPUT", value_enum, default_value_t = Output::Text, global = true)]
    pub output: Output,
    /// How long to wait for a node, in milliseconds. A node answers within its own --request-timeout-ms, so this
    /// should be longer
    #[arg(long, env = "TIDELOCK_TIMEOUT_MS", value_name = "MS", default_value_t = 10_000, global = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Arguments of `kv`.
#[derive(Debug, Args)]
#[command(after_help = "Every key has a version, which rises with every write of it:\n  \
    tidelock kv put config v1                  created, version 6\n  \
    tidelock kv put config v2 --if-version 6   replaced, version 8\n  \
    tidelock kv put config v3 --if-version 6   fails: the version is 8\n\n\
    A key is bytes, passed as they are; write -- before one that starts with a hyphen.")]
pub struct KvArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: KvCommand,
}

/// The commands of `kv`.
#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Print a key's value; exit 1 if there is no such key
    ///
    /// On a terminal the value is followed by a line break and its version. Into a pipe or file go exactly the
    /// bytes of the value. --output json has the version too; bytes that are not UTF-8 stand there as val_b64.
    Get(GetArgs),
    /// Store a value under a key
    ///
    /// Replaces what is there, unless a condition says otherwise. Prints the version that the value got.
    Put(PutArgs),
    /// Delete a key; exit 1 if there is no such key
    #[command(visible_alias = "delete")]
    Del(DelArgs),
    /// List keys in byte order
    #[command(visible_alias = "ls")]
    List(ListArgs),
}

/// Arguments of `kv get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The key
    pub key: KeyArg,
    /// Answer from the node's own memory at once, without asking the others: it may lag behind
    #[arg(long)]
    pub stale: bool,
    /// Exactly the bytes of the value, on a terminal too
    #[arg(long, conflicts_with = "output")]
    pub raw: bool,
}

/// Arguments of `kv put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// The key
    pub key: KeyArg,
    /// The value; - reads it from standard input
    #[arg(required_unless_present = "file", allow_negative_numbers = true)]
    pub value: Option<OsString>,
    /// Take the value from this file, byte for byte
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub file: Option<PathBuf>,
    /// Only if this is the key's version now
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
    /// Only if there is no such key
    #[arg(long, conflicts_with = "if_version")]
    pub if_absent: bool,
}

/// Arguments of `kv del`.
#[derive(Debug, Args)]
pub struct DelArgs {
    /// The key
    pub key: KeyArg,
    /// Only if this is the key's version now
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
}

/// Arguments of `kv list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only keys that start with this
    pub prefix: Option<KeyArg>,
    /// Keys alone, one a line
    #[arg(long)]
    pub keys: bool,
    /// Most keys on one page [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
    /// Only keys after this one
    #[arg(long, value_name = "KEY")]
    pub after: Option<KeyArg>,
    /// All pages, not only the first
    #[arg(long)]
    pub all: bool,
    /// Answer from the node's own memory at once, without asking the others: it may lag behind
    #[arg(long)]
    pub stale: bool,
}

/// Arguments of `atomic`.
#[derive(Debug, Args)]
#[command(
    after_help = "A register is the key of its name, holding a decimal number of 64 bits; an absent one holds 0:\n  \
    tidelock atomic cas counter 0 1      exchanged\n  \
    tidelock atomic cas counter 0 1      fails: the value is 1\n  \
    tidelock atomic exchange counter -5  exchanged, the value was 1"
)]
pub struct AtomicArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: AtomicCommand,
}

/// The commands of `atomic`.
#[derive(Debug, Subcommand)]
pub enum AtomicCommand {
    /// Print a register's value; 0 if it was never written
    Get(AtomicGetArgs),
    /// Store a value and print the one that was there
    Exchange(AtomicExchangeArgs),
    /// Store a value if the register holds the expected one; exit 1 if it does not
    Cas(AtomicCasArgs),
}

/// Arguments of `atomic get`.
#[derive(Debug, Args)]
pub struct AtomicGetArgs {
    /// The register's name
    pub id: KeyArg,
    /// Answer from the node's own memory at once, without asking the others: it may lag behind
    #[arg(long)]
    pub stale: bool,
}

/// Arguments of `atomic exchange`.
#[derive(Debug, Args)]
pub struct AtomicExchangeArgs {
    /// The register's name
    pub id: KeyArg,
    /// The new value
    #[arg(allow_negative_numbers = true)]
    pub value: i64,
}

/// Arguments of `atomic cas`.
#[derive(Debug, Args)]
pub struct AtomicCasArgs {
    /// The register's name
    pub id: KeyArg,
    /// What it must hold
    #[arg(allow_negative_numbers = true)]
    pub expected: i64,
    /// The new value
    #[arg(allow_negative_numbers = true)]
    pub new: i64,
}

/// Arguments of `cluster`.
#[derive(Debug, Args)]
#[command(after_help = "Replace node 3 by a new one, which is given the number 4:\n  \
    tidelock serve --join 10.0.0.1:9001 --data-dir DIR --http ADDR --peer ADDR\n  \
    tidelock cluster add 4\n  tidelock cluster remove 3")]
pub struct ClusterArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// The commands of `cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Hosts, shards with their leaders, and how far each replica has come, as one node sees it
    Status(StatusArgs),
    /// Give a node a vote in every shard, once it has caught up
    ///
    /// A node that has joined follows without a vote; this lets it count. It also ends a drain. Keep 3 or 5 voters:
    /// an even number survives no more failures than the odd one below it.
    Add(HostArgs),
    /// Take a node's vote away and keep it as a follower
    Follow(HostArgs),
    /// Empty a node: it leads nothing, and carries nothing that others can carry in its place
    ///
    /// For a node on a slow disk or a busy machine, or before it is removed. What no other node could take over stays.
    /// To stop one, SIGTERM is enough: it hands over by itself.
    Drain(DrainArgs),
    /// Take a node out of the cluster for good, whether it is up or not
    ///
    /// What it leads is handed over first. A running node then stops by itself, with exit code 0. Its number is never
    /// given out again: to use the host again, start it with an empty data directory and --join.
    Remove(HostArgs),
    /// Let another node lead a shard
    Transfer(TransferArgs),
    /// The tables of the registry, one JSON object a line: a header, then hosts, shards and replicas
    Dump,
    /// Why each replica of a shard is where it is, and why other nodes have none
    Explain(ExplainArgs),
    /// Set or take away tags of a shard, its placement policies among them
    ///
    /// The cluster begins to move replicas at once, a few at a time; `cluster explain` shows where to.
    Set(SetArgs),
    /// Give the cluster another data shard, which holds nothing until slots are moved there
    ///
    /// `cluster rebalance` gives it its share.
    AddShard(AddShardArgs),
    /// Move slots until every data shard holds as many as any other
    ///
    /// As few as that takes, one move of a shard at a time, while clients go on. Waits until that is done, and
    /// what was wanted before it.
    Rebalance(WaitForMoves),
    /// Move slots to a shard, and wait until it is done
    MoveSlots(MoveSlotsArgs),
    /// Which shard holds which slots, and which are on their way
    Slots,
}

/// Arguments of `cluster add-shard`.
#[derive(Debug, Args)]
pub struct AddShardArgs {
    /// Its name, for people; made of its number if there is none
    #[arg(long)]
    pub name: Option<String>,
    /// A tag, such as a placement policy; may be given several times
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    pub tags: Vec<String>,
}

/// How long to wait for slots to move.
#[derive(Debug, Args)]
pub struct WaitForMoves {
    /// How long to wait, in seconds; 0: not at all. The moves go on either way
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub wait_s: u64,
}

/// Arguments of `cluster move-slots`.
#[derive(Debug, Args)]
pub struct MoveSlotsArgs {
    /// Which of the 16384, such as 0-99,200; the shard may hold some of them already
    pub slots: String,
    /// The shard that shall hold them
    #[arg(long, value_name = "SHARD")]
    pub to: u64,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitForMoves,
}

/// Arguments of `cluster explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The shard
    pub shard: u64,
}

/// Arguments of `cluster set`.
#[derive(Debug, Args)]
#[command(after_help = "Three voters in one region, each in a zone of its own:\n  \
    tidelock cluster set 1 'placement:member=3;geo:region=us-central1' placement:vary=geo:zone\n\n\
    Two more replicas without a vote on hosts with large disks, and one on every host in another region:\n  \
    tidelock cluster set 1 'placement:replica:reports=2;disk=large' placement:cover=geo:region=us-east1\n\n\
    NAME= takes a tag away.")]
pub struct SetArgs {
    /// The shard
    pub shard: u64,
    /// Tags to set
    #[arg(required = true, value_name = "NAME=VALUE")]
    pub tags: Vec<String>,
}

/// Arguments of `cluster status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Compare the replicas of every shard instead: each makes a snapshot at the same place of the log, and the
    /// checksums must be equal. Writes go on meanwhile. Exit 1 if any differ, or cannot be compared
    #[arg(long)]
    pub verify: bool,
    /// How long --verify waits for the replicas to report, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "verify")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait_s: u64,
}

/// Arguments of `cluster` commands about one node.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// The node's number
    pub node: u64,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Arguments of `cluster drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node's number
    pub node: u64,
    /// Let it lead again
    #[arg(long)]
    pub undo: bool,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Arguments of `cluster transfer`.
#[derive(Debug, Args)]
pub struct TransferArgs {
    /// The shard's number
    pub shard: u64,
    /// The number of the node that should lead it, one that votes
    pub node: u64,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// How long a command waits for what it has asked for.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArgs {
    /// Return as soon as the cluster has taken note of it
    #[arg(long)]
    pub no_wait: bool,
    /// By when it must be true, in seconds; after that, exit 1 and say what is missing
    #[arg(long, value_name = "SECONDS", default_value_t = 60, conflicts_with = "no_wait")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait_s: u64,
}

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(after_help = "Every night, from any node, while clients read and write:\n  \
    tidelock backup save --url http://10.0.0.1:8001 --out tidelock-$(date +%F).backup\n\n\
    Into a fresh cluster, of any number of nodes and shards:\n  \
    tidelock backup restore tidelock-2026-11-20.backup --url http://10.0.1.1:8001")]
pub struct BackupArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BackupCommand,
}

/// The commands of `backup`.
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Save the state of every shard to a file
    ///
    /// Everything that was acknowledged before is in it; writes go on meanwhile. Of each shard it holds one consistent
    /// state. The file gets its name when it is complete, verified and on disk; until then an earlier one stays.
    Save(SaveArgs),
    /// Bring a backup into a fresh cluster
    ///
    /// The file is read and verified first. Keys get the versions that they had, and every version given out afterwards
    /// is above all that the old cluster gave out. A cluster that was ever written to refuses. Keep clients away until
    /// it is done; if it is interrupted, run it again.
    Restore(RestoreArgs),
    /// Read all of a backup, check every checksum, and that it could be restored; exit 1 if not
    Verify(FileArgs),
    /// Show what a backup holds: cluster, time, shards, versions, numbers of keys, sizes
    Inspect(FileArgs),
}

/// Arguments of `backup save`.
#[derive(Debug, Args)]
pub struct SaveArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Where to; - is standard output
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Save what the node itself has, without asking the others: for a cluster that has lost its majority.
    /// Acknowledged writes may be missing
    #[arg(long)]
    pub stale: bool,
}

/// Arguments of `backup restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The backup
    pub file: PathBuf,
}

/// Arguments of `backup verify` and `backup inspect`.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// The backup
    pub file: PathBuf,
    /// For people or for programs
    #[arg(long, env = "TIDELOCK_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lines_that_parse() {
        for line in [
            "tidelock serve",
            "tidelock serve --data-dir d --http 127.0.0.1:0 --resp 127.0.0.1:0 --peer 127.0.0.1:0",
            "tidelock serve --peers 127.0.0.1:9001,127.0.0.1:9002,127.0.0.1:9003 --cluster-name a --shards 8",
            "tidelock serve --join 127.0.0.1:9001,127.0.0.1:9002 --peer 127.0.0.1:9004",
            "tidelock serve --tag geo:region=us-central1 --tag geo:zone=us-west-1a --sync false",
            "tidelock serve --election-timeout-ms 500 --request-timeout-ms 2000 --log-format json --log debug",
            "tidelock dev",
            "tidelock dev --nodes 7 --fresh --data-dir d --http-base 1 --resp-base 20 --peer-base 30",
            "tidelock kv get k --stale --raw",
            "tidelock kv get k --output json --url http://127.0.0.1:1,http://127.0.0.1:2 --url http://127.0.0.1:3",
            "tidelock kv put k v --if-version 3",
            "tidelock kv put k -1",
            "tidelock kv put k -",
            "tidelock kv put k -- --not-a-flag",
            "tidelock kv put k --file f --if-absent",
            "tidelock kv del k --if-version 3",
            "tidelock kv delete k",
            "tidelock kv list",
            "tidelock kv list app/ --keys --limit 10 --after app/k --all",
            "tidelock --version",
            "tidelock kv put --help",
            "tidelock cluster status --output json",
            "tidelock cluster status --verify --wait-s 10",
            "tidelock backup save --url http://127.0.0.1:1 --out f --stale --output json",
            "tidelock backup save --out -",
            "tidelock backup restore f --url http://127.0.0.1:1",
            "tidelock backup verify f --output json",
            "tidelock backup inspect f",
            "tidelock cluster add 4 --url http://127.0.0.1:1",
            "tidelock cluster follow 4 --wait-s 10",
            "tidelock cluster drain 2 --undo --no-wait",
            "tidelock cluster remove 3 --output json",
            "tidelock cluster transfer 1 2",
            "tidelock atomic get a --stale",
            "tidelock atomic exchange a -5 --output json",
            "tidelock atomic cas a -1 -2 --url http://127.0.0.1:1",
            "tidelock bench atomic -t 3 -d 1 --id-prefix a: --url http://a:1,http://b:2",
            "tidelock bench kv -c 64 -P 2 -t 2 -n 100 --reads 90 --keys 5 --distribution zipf --via leader --json",
            "tidelock bench kv -d 0.5 --warm-up-s 0 --rate 1000 --consistency stale --url http://a:1,http://b:2",
            "tidelock bench resp -c 8 -P 512 --address 127.0.0.1:6379,127.0.0.1:6380 --no-prepare --seed 1",
            "tidelock bench http -n 1000 -c 50 http://127.0.0.1:1/api?limit=1 -m POST --body x -H A:b --expect y",
            "tidelock bench disk --dir /tmp --size 32 -d 1 --output json",
        ] {
            match parse(line) {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {}
                Err(error) => panic!("{line}: {error}"),
            }
        }
    }

    #[test]
    fn lines_that_do_not_parse() {
        for line in [
            "tidelock",
            "tidelock serve --sync maybe",
            "tidelock dev --nodes 0",
            "tidelock dev --nodes 8",
            "tidelock kv get",
            "tidelock kv get k --raw --output json",
            "tidelock kv put k",
            "tidelock kv put k v --file f",
            "tidelock kv put k v --if-version 3 --if-absent",
            "tidelock kv put k v --if-version abc",
            "tidelock kv list --limit 0",
            "tidelock kv list --limit 1001",
            "tidelock kv get k --url https://127.0.0.1:1",
            "tidelock cluster",
            "tidelock cluster status --wait-s 10",
            "tidelock backup",
            "tidelock backup save",
            "tidelock backup restore",
            "tidelock backup inspect f --url http://127.0.0.1:1",
            "tidelock cluster add",
            "tidelock cluster add four",
            "tidelock cluster add -1",
            "tidelock cluster add 4 --undo",
            "tidelock cluster remove 3 --wait-s 0",
            "tidelock cluster remove 3 --wait-s 10 --no-wait",
            "tidelock cluster transfer 1",
            "tidelock atomic cas a 1",
            "tidelock atomic exchange a one",
            "tidelock atomic exchange a 9223372036854775808",
            "tidelock bench atomic --id-prefix a/b",
            "tidelock bench",
            "tidelock bench kv -n 1 -d 1",
            "tidelock bench kv -n 0",
            "tidelock bench kv -c 0",
            "tidelock bench kv --reads 101",
            "tidelock bench kv --value-size 23",
            "tidelock bench http",
            "tidelock bench disk -d 0",
        ] {
            assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
        }
        assert_eq!(Cli::try_parse_from(["tidelock", "kv", "get", ""]).expect_err("empty key").exit_code(), 2);
    }

    #[test]
    fn lists_of_urls_add_up() {
        let cli = parse("tidelock kv --url http://a:1,http://b:2 --url http://c:3 get k").unwrap();
        let Command::Kv(kv) = cli.command else { panic!("kv") };
        let urls: Vec<_> = kv.client.urls.iter().map(ToString::to_string).collect();
        assert_eq!(urls, ["http://a:1", "http://b:2", "http://c:3"]);
    }
}
