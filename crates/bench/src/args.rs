//! The command line of `tidelock bench`.
//!
//! Owns syntax, and the checks of single values. `plan` refuses invalid combinations.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tidelock_client::{ConnectionArgs, Output};

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "A minute with it:\n  \
    tidelock bench disk                                  what this disk can do\n  \
    tidelock bench kv -c 64 --reads 100                  linearizable reads\n  \
    tidelock bench kv -c 64 --reads 0                    writes, durable on a majority\n  \
    tidelock bench kv -c 64 --rate 2000                  latency at a load that does not depend on it\n  \
    tidelock bench resp -c 8 -P 512 --reads 0            as redis-benchmark -c 8 -P 512 -t set\n  \
    tidelock bench http -n 1000000 -c 64 http://127.0.0.1:8001/testkey   as hey and go-wrk do\n\n\
    Latency of a failed request is not counted, the failure is. Exit 1 if an answer was wrong, or none was right.")]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// The commands of `bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Read and write keys over HTTP, checking each answer
    ///
    /// Values carry their key, a number and a checksum. A linearizable read must not return a
    /// version below one that was acknowledged before it was sent; stale reads of one node must not
    /// go back in time.
    Kv(KvBenchArgs),
    /// Read and write keys over RESP, the protocol of Redis, also against redis-server itself
    ///
    /// Every write has a number. A linearizable read must not return a write that had certainly
    /// been overwritten when it was sent. No other client may write the same keys meanwhile.
    Resp(RespBenchArgs),
    /// Increment registers by compare-and-exchange, one for each thread
    ///
    /// Prints a line per second, and stops at an impossible value. No other client may write the
    /// same registers meanwhile. Start the nodes with --sync false to see the disk's share of the
    /// latency.
    Atomic(AtomicBenchArgs),
    /// Request one URL of any HTTP server repeatedly
    Http(HttpBenchArgs),
    /// Measure a small write to this disk, with and without fsync: a lower bound for every durable
    /// write
    Disk(DiskBenchArgs),
}

/// How much load, for how long.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Connections open at a time
    #[arg(short, long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub pipeline: u32,
    /// Threads of this client; one is enough for most loads, and leaves the other processors to the
    /// servers
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Stop after this many requests instead of after --duration-s
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration_s")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Stop after this many seconds [default: 10]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub duration_s: Option<Duration>,
    /// Send this many requests per second over all connections, evenly, without waiting for
    /// answers. Latency then counts from the moment at which a request was due. Without it each
    /// connection waits for its answers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rate: Option<u64>,
    /// Load before the measurement, in seconds [default: 1, with --requests 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds_or_none)]
    pub warm_up_s: Option<Duration>,
    /// Timeout after which a request counts as failed, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,
    /// Format of the output
    #[arg(long, env = "TIDELOCK_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Short for --output json
    #[arg(long)]
    pub json: bool,
}

impl LoadArgs {
    /// The form of the report.
    pub fn format(&self) -> Output {
        if self.json { Output::Json } else { self.output }
    }
}

/// Which keys, and what is done with them.
#[derive(Clone, Debug, Args)]
pub struct MixArgs {
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keys: u64,
    /// How the next key is chosen
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    pub distribution: Distribution,
    /// Exponent of `zipf`; 0 is a uniform distribution
    #[arg(long, value_name = "S", default_value_t = 0.99)]
    pub zipf_exponent: f64,
    /// Prefix of the keys
    #[arg(long, value_name = "TEXT", default_value = "bench:")]
    pub key_prefix: String,
    /// Length of a key in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub key_size: u32,
    /// Length of a value in bytes; 24 of them are used to check answers
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u32).range(24..=1_048_576))]
    pub value_size: u32,
    /// Share of reads in percent; the rest are writes
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0, value_parser = percent)]
    pub reads: f64,
    /// Consistency of reads
    #[arg(long, value_enum, default_value_t = Freshness::Linearizable)]
    pub consistency: Freshness,
    /// Do not write every key before the measurement; reads of missing keys then count as correct
    #[arg(long)]
    pub no_prepare: bool,
    /// Which node is asked for a key. `leader` and `follower` ask the cluster for the leaders once,
    /// at the beginning [default: `leader` of `bench kv`, `given` of `bench resp` and of keys in
    /// sequence]
    #[arg(long, value_enum)]
    pub via: Option<Via>,
    /// Seed of the choice of keys [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Arguments of `bench kv`.
#[derive(Debug, Args)]
pub struct KvBenchArgs {
    /// The nodes, among which connections are shared out.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much load.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Of what.
    #[command(flatten)]
    pub mix: MixArgs,
}

/// Arguments of `bench resp`.
#[derive(Debug, Args)]
pub struct RespBenchArgs {
    /// Servers; connections are shared out among them
    #[arg(
        long = "address",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:7001"
    )]
    pub addresses: Vec<String>,
    /// Encrypt the connections; --ca says which certificates to trust
    #[arg(long)]
    pub tls: bool,
    /// The nodes that --via leader and --via follower ask for the leaders and their addresses; a
    /// token is sent only to their hosts.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// How much load.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Of what.
    #[command(flatten)]
    pub mix: MixArgs,
}

/// Arguments of `bench atomic`.
#[derive(Debug, Args)]
pub struct AtomicBenchArgs {
    /// The nodes, of which the first that answers is asked for the leaders.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Number of threads, and so of registers
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Prefix of the registers' names; the thread's number follows
    #[arg(long, value_name = "TEXT", default_value = "bench-atomic-", value_parser = plain_text)]
    pub id_prefix: String,
    /// Stop after this many seconds and print a report [default: never; 10 with --json]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub duration_s: Option<Duration>,
    /// Timeout after which a request counts as failed, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,
    /// Format of the output
    #[arg(long, env = "TIDELOCK_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Short for --output json
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench http`.
#[derive(Debug, Args)]
pub struct HttpBenchArgs {
    /// File with the certificates, PEM, of the authorities to trust; https:// needs it
    #[arg(long = "ca", env = "TIDELOCK_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// File with a token to send, which only you may read (mode 600). Neither a variable nor a
    /// profile applies here, because the URL may be that of another server
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The URL: http://host:port/path?query, or https://
    pub url: String,
    /// The method
    #[arg(short, long, value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// The body to send
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
    /// A header to send, as "Name: value"; repeatable
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// The body that every answer must have, exactly; another one counts as wrong
    #[arg(long, value_name = "TEXT")]
    pub expect: Option<String>,
    /// How much load.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// Arguments of `bench disk`.
#[derive(Debug, Args)]
pub struct DiskBenchArgs {
    /// Directory to write to; the file is deleted afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Bytes in one write
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub size: u32,
    /// How long to measure each way of writing, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub duration_s: Duration,
    /// Format of the output
    #[arg(long, env = "TIDELOCK_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Short for --output json
    #[arg(long)]
    pub json: bool,
}

/// Which key comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// Always the first.
    One,
    /// Each as likely as the others.
    Uniform,
    /// A few keys often, most of them rarely (Zipf's law).
    Zipf,
    /// One after the other, from the first to the last and again.
    Sequential,
}

/// Consistency of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Freshness {
    /// Reflects every write acknowledged before it was sent.
    Linearizable,
    /// What the node has applied; it may lag behind.
    Stale,
}

/// Which node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// The given nodes, in turn.
    Given,
    /// The leader of the key's shard.
    Leader,
    /// A node that does not lead the key's shard.
    Follower,
}

/// A duration above zero, and at most a day.
fn seconds(text: &str) -> Result<Duration, String> {
    seconds_or_none(text).and_then(|time| match time.is_zero() {
        true => Err("must be more than 0".to_owned()),
        false => Ok(time),
    })
}

fn seconds_or_none(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.0..=86_400.0).contains(&number) {
        return Err("between 0 and 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(number))
}

/// The characters that a URL contains unescaped.
fn plain_text(text: &str) -> Result<String, String> {
    match text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte)) {
        true => Ok(text.to_owned()),
        false => Err("only letters, digits and - . _ ~ :".to_owned()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=100.0).contains(&number) { Ok(number) } else { Err("between 0 and 100".to_owned()) }
}

/// For tests: the mix of a line of arguments.
#[cfg(test)]
pub(crate) fn mix(line: &str) -> MixArgs {
    #[derive(clap::Parser)]
    struct TestArgs {
        #[command(flatten)]
        mix: MixArgs,
    }
    <TestArgs as clap::Parser>::parse_from(format!("x {line}").split_whitespace()).mix
}
