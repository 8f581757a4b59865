//! The command line: every command, flag and environment variable, and the texts of `--help`.
//!
//! Owns syntax only. The settings of `serve` are declared by the server crate, which also reads
//! them from a file: [`RawSettings`].

mod audit;
mod auth;
mod backup;
mod cluster;
mod config;
mod config_changes;
mod coordination;
mod keys;
mod packaging;
#[cfg(test)]
mod reference;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tidelock_bench::BenchArgs;
pub use tidelock_client::Output;
use tidelock_client::{CliError, Client, ConnectionArgs};
use tidelock_server::config::RawSettings;

pub use audit::{AuditArgs, AuditCommand};
pub use auth::{
    AuthArgs, AuthCommand, CreateTokenArgs, LoginArgs, PrincipalCommand, PutRoleArgs, RoleCommand,
    TokenCommand,
};
pub use backup::{BackupArgs, BackupCommand, FileArgs, RestoreArgs, SaveArgs};
pub use cluster::{
    AddShardArgs, ClientsArgs, ClusterArgs, ClusterCommand, ExplainArgs, JoinTokenArgs, MoveSlotsArgs,
    NodeSelector, RemoveShardArgs, SetArgs, StatusArgs, TagTarget, TopArgs, VersionArgs, WaitArgs,
    WaitForMoves,
};
pub use config::{
    AgentArgs, ConfigArgs, ConfigCommand, ContainerCommand, ContainerEditArgs, Datatype, DiffArgs,
    ExportArgs, Format, HistoryArgs, ImportArgs, ItemArgs, ItemKind, NsCommand, PairCommand, PublishArgs,
    ReadersArgs, RollbackArgs, SchemaCommand, SchemaItemArgs, SearchArgs, SecretsCommand, WatchArgs,
};
pub use config_changes::{ChangeArgs, CompareArgs, DraftCommand, DraftItemArgs, PromoteArgs, TermsArgs};
pub use coordination::{GrantArgs, LeaseArgs, LeaseCommand, ListLeasesArgs, LockArgs};
pub use keys::{
    AtomicArgs, AtomicCommand, DelArgs, FenceArg, GetArgs, KvArgs, KvCommand, ListArgs, PutArgs, TxnArgs,
    WatchKeysArgs,
};
pub use packaging::{CompletionsArgs, HealthArgs, ManArgs};
pub use tls::{AuthorityArgs, AuthorityCommand, ClientCertificateArgs, InitArgs, TlsArgs, TlsCommand};

/// A replicated key-value store: every acknowledged write is on the disks of a majority, every read
/// is linearizable unless you ask for a stale one.
#[derive(Debug, Parser)]
#[command(name = "tidelock", version, max_term_width = 110)]
#[command(after_help = "Try it: `tidelock dev --nodes 3` in one terminal, then in another\n  \
    tidelock kv put hello world\n  tidelock kv get hello\n  tidelock cluster status\n\n\
    Exit codes:\n  \
    0 done\n  \
    1 failed for a reason that has no code of its own\n  \
    2 the command line or the request is wrong\n  \
    3 not found\n  \
    4 a condition did not hold, or the state does not allow the change\n  \
    5 nothing was done, and it can be repeated: no node answers, or they refuse for now\n  \
    6 the outcome is unknown: the change may have happened or not\n  \
    7 not permitted\n  \
    8 recorded, but not done before the wait was over\n  \
    9 a node stopped, and must not be started again before a person has looked at it\n\n\
    With --output json an error is one JSON object on standard error.")]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one node of a cluster
    ///
    /// It runs in the foreground until SIGTERM or SIGINT. Without --peers it is a cluster of one.
    /// With --peers it is one of the founders of a cluster: start each of them with the same list,
    /// in any order; the cluster serves once a majority is up.
    ///
    /// With --join it becomes a member of an existing cluster: it asks the listed members until one
    /// of them accepts it.
    ///
    /// The first start writes the cluster's identity to the data directory. From then on the node
    /// needs its own disk and a majority, never a particular peer. --peers, --join, --cluster-name
    /// and --shards may stay as they were at the first start or be left out; the node does not
    /// start if they contradict its directory.
    ///
    /// A flag overrides its environment variable, which overrides --config.
    #[command(after_help = "One node:\n  tidelock serve --data-dir /var/lib/tidelock\n\n\
        The first of several hosts, which makes all certificates, and one more with the output of\n        `tidelock cluster join-token`:\n  \
        tidelock serve --secure --data-dir /var/lib/tidelock --http 10.0.0.1:8001 --peer 10.0.0.1:9001\n  \
        tidelock serve --data-dir /var/lib/tidelock --http 10.0.0.2:8001 --peer 10.0.0.2:9001 \\\n    \
        --join 10.0.0.1:9001 --join-token-file join.token\n\n\
        The first of three founders, with its certificate of `tidelock tls init`:\n  \
        tidelock serve --data-dir /var/lib/tidelock --tls-dir /etc/tidelock/tls --http 10.0.0.1:8001 \\\n    \
        --peer 10.0.0.1:9001 --peers 10.0.0.1:9001,10.0.0.2:9001,10.0.0.3:9001\n\n\
        One more:\n  \
        tidelock serve --data-dir /var/lib/tidelock --tls-dir /etc/tidelock/tls --http 10.0.0.4:8001 \\\n    \
        --peer 10.0.0.4:9001 --join 10.0.0.1:9001,10.0.0.2:9001")]
    Serve(Box<ServeArgs>),
    /// Run a whole cluster on this machine, for experiments
    ///
    /// Starts N real nodes as processes on loopback addresses, each with its own directory, prints
    /// their endpoints once all are ready, then their logs, until Ctrl-C stops them all.
    ///
    /// A node that dies is reported and not restarted: kill one with `kill -9`, watch the others
    /// continue, and start it again with the printed command line. Settings of `serve` that are not
    /// flags here can be set by their environment variables, such as TIDELOCK_LOG=debug.
    Dev(DevArgs),
    /// Read and write keys
    Kv(KvArgs),
    /// Change several keys at once, or none of them, by the state of keys
    ///
    /// Reads a transaction as POST /v1/transactions takes it, from a file or from standard input,
    /// and prints the answer, which is JSON with either --output. Exits with 4 if a comparison did
    /// not hold and `else` happened; the answer is printed as well then.
    Txn(TxnArgs),
    /// Print keys as they change
    ///
    /// Each line is the last state of one key; states in between may be left out. No key that has
    /// changed is left out, also when nodes stop and come back. Ctrl-C ends it.
    Watch(WatchKeysArgs),
    /// Grant, renew and revoke leases: what keys and locks last for
    Lease(LeaseArgs),
    /// Hold a lock while a command runs, or show who holds it
    ///
    /// Waits for the lock, runs COMMAND with TIDELOCK_FENCE and TIDELOCK_LEASE in its environment,
    /// and exits with its exit code. The lease of the lock is renewed meanwhile. If it is lost, all
    /// processes of the command are killed before the lease ends, as far as this machine's clock
    /// can tell: so send the fence with every write that the lock protects.
    ///
    /// The command runs in a process group of its own. SIGINT, SIGTERM and SIGHUP are passed on to
    /// it.
    Lock(LockArgs),
    /// Typed configuration with history: namespaces, pairs, containers
    Config(Box<ConfigArgs>),
    /// Read and exchange numbers atomically
    Atomic(AtomicArgs),
    /// Show the cluster, and change its hosts, shards and placement
    Cluster(ClusterArgs),
    /// Save all keys to a file, and restore them
    Backup(BackupArgs),
    /// Run commands line by line, with completion and a history
    ///
    /// A line is a command without the word `tidelock`, and words are quoted as in a POSIX shell.
    /// The flags of the shell apply to every command that does not have its own. Tab completes
    /// commands, flags, files, keys and namespaces. Ctrl-C ends the command that runs, Ctrl-D the
    /// shell.
    ///
    /// The history is kept in ~/.local/state/tidelock/history, without lines that begin with a
    /// space. If standard input is not a terminal, the shell runs its lines until one fails, and
    /// exits with the exit code of that one.
    #[command(after_help = "Try it:\n  tidelock shell\n  tidelock> kv put app/name shop\n  \
        tidelock> kv get app/<Tab>\n\n\
        A script:\n  printf 'kv put a 1\\nkv put b 2\\n' | tidelock shell")]
    Shell(ShellArgs),
    /// Store the addresses of a cluster and your token, so that other commands need neither
    ///
    /// Without --client-cert, asks for the token, or reads one line of standard input if that is no
    /// terminal, checks it, and stores both in ~/.config/tidelock: the profile in config.toml, the
    /// token in PROFILE.token, which only you may read. There is no flag for the token, because a
    /// list of processes would show it.
    ///
    /// With https://, the profile also gets the other nodes that the cluster names, so that
    /// commands work while a node is down.
    Login(LoginArgs),
    /// Show who you are, and change roles, principals, tokens and whether they are required
    Auth(Box<AuthArgs>),
    /// Show who made which administrative change
    Audit(AuditArgs),
    /// Make certificates for the hosts of a cluster and for clients
    Tls(TlsArgs),
    /// Say what is wrong with a cluster, or with the machine of a node, and which page helps
    ///
    /// Asks every node for its health, and compares their releases. With --data-dir it checks this
    /// machine too: file system, free room, the speed of the disk, and limits. Exits with 1 if a
    /// check fails; warnings do not count.
    Doctor(DoctorArgs),
    /// Measure the latency of a cluster under load, checking every answer, and the speed of a disk
    Bench(Box<BenchArgs>),
    /// Check whether nodes are ready, or live
    ///
    /// Asks each node of --url. A node is ready when it answers linearizable requests for every
    /// shard. Fails if one of them is not, and says why. Needs no token.
    Health(HealthArgs),
    /// Print the script that completes commands in a shell
    ///
    /// Packages install it. To try it in bash: source <(tidelock completions bash)
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands to a directory
    Man(ManArgs),
}

/// Arguments of `serve`: the settings of a node, and what concerns only its process.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The settings of the node.
    #[command(flatten)]
    pub settings: RawSettings,
    /// TOML file with any of these settings, named as here with _ for -; an unknown name is an
    /// error
    #[arg(long, env = "TIDELOCK_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Stops the node when its standard input ends: how `tidelock dev` makes sure that no node
    /// outlives it.
    #[arg(long, hide = true)]
    pub stop_at_stdin_end: bool,
}

/// Arguments of `dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Number of nodes
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub nodes: u16,
    /// Number of voters of each data shard of a new cluster [default: 3]
    #[arg(long, value_name = "N", value_parser = ["1", "3", "5", "7"])]
    pub replicas: Option<String>,
    /// Directory of the nodes' data directories; kept between runs
    #[arg(long, default_value = "./tidelock-data/dev", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Delete what an earlier run left in the directory first
    #[arg(long)]
    pub fresh: bool,
    /// Use TLS and tokens, as `serve --secure` does; the output shows the paths of the
    /// administrator's token and of the CA certificate
    #[arg(long)]
    pub secure: bool,
    /// HTTP port of the first node; each further node uses the next port
    #[arg(long, default_value_t = 8001, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub http_base: u16,
    /// Redis port of the first node; each further node uses the next port
    #[arg(long, default_value_t = 7001, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub resp_base: u16,
    /// Redis Cluster port of the first node; each further node uses the next port
    /// [default: --resp-base + 100]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub resp_cluster_base: Option<u16>,
    /// Peer port of the first node; each further node uses the next port
    #[arg(long, default_value_t = 9001, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub peer_base: u16,
    /// Print the registry once all nodes are in it, as `tidelock cluster dump` does
    #[arg(long)]
    pub dump: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Also check this machine for a node with this data directory, which need not exist yet:
    /// writes a temporary file of 16 MiB there for two seconds
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Arguments of `shell`.
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// What applies to commands that do not have their own flags.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// How to reach a cluster, and the format of the output.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// Which nodes to ask, and as whom.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Format of the output
    #[arg(long, env = "TIDELOCK_OUTPUT", value_enum, default_value_t = Output::Text, global = true)]
    pub output: Output,
    /// How long to wait for a node, in milliseconds. A node answers within its own
    /// --request-timeout-ms, so this should be longer
    #[arg(long, env = "TIDELOCK_TIMEOUT_MS", value_name = "MS", default_value_t = 10_000, global = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,
}

impl ClientArgs {
    /// A client of the given nodes.
    ///
    /// # Errors
    /// When a file with certificates, a token or profiles cannot be used.
    pub fn client(&self) -> Result<Client, CliError> {
        Ok(Client::new(self.connection.resolve()?, Duration::from_millis(self.timeout_ms)))
    }
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

    const LINES_THAT_PARSE: &[&str] = &[
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
        "tidelock shell --url http://127.0.0.1:1 --output json",
        "tidelock backup restore f --url http://127.0.0.1:1",
        "tidelock backup verify f --output json",
        "tidelock backup inspect f",
        "tidelock cluster add 4 --url http://127.0.0.1:1",
        "tidelock cluster follow 4 --wait-s 10",
        "tidelock cluster drain 2 --undo --no-wait",
        "tidelock cluster remove 3 --output json",
        "tidelock cluster transfer 1 2",
        "tidelock cluster remove 10.0.0.3:8001 --no-wait",
        "tidelock cluster drain [::1]:9001 --undo",
        "tidelock cluster transfer 1 kv-2:7001",
        "tidelock txn f --url http://127.0.0.1:1 --output json",
        "tidelock kv put k v --lease {k}:1f --fence jobs=12 --if-version 3",
        "tidelock kv del k --fence a=b=12",
        "tidelock lease grant --ttl 10s --tag jobs --output json",
        "tidelock lease renew {a}:1 {b}:2",
        "tidelock lease keep {a}:1",
        "tidelock lease revoke {a}:1",
        "tidelock lease list --tag a",
        "tidelock lease show {a}:1",
        "tidelock lock jobs -- make --help",
        "tidelock lock jobs --ttl 30s --wait 0s --value host-1 -- true",
        "tidelock lock jobs --show --output json",
        "tidelock atomic get a --stale",
        "tidelock atomic exchange a -5 --output json",
        "tidelock atomic cas a -1 -2 --url http://127.0.0.1:1",
        "tidelock doctor --data-dir d --url http://a:1 --output json",
        "tidelock login",
        "tidelock login https://a:1,https://b:1 --ca f --profile blue --output json",
        "tidelock login https://a:1 --ca f --client-cert c --client-key k",
        "tidelock kv get k --url https://a:1 --client-cert c --client-key k",
        "tidelock auth whoami --token-file f --url https://a:1 --output json",
        "tidelock auth role list",
        "tidelock auth role put app --grant cluster:read --grant read --ends 30d",
        "tidelock auth role put app --grant read --operations-per-second 10 --bytes-per-second 1000",
        "tidelock auth role delete app",
        "tidelock auth principal put ann --role admin --role app",
        "tidelock auth principal put ann --role app --certificate-name spiffe://a/b --certificate-name b.c",
        "tidelock auth principal put ann --role app --no-certificate-names",
        "tidelock auth principal delete ann",
        "tidelock tls client ann --ca-dir d --out e --days 7",
        "tidelock auth token create ann --expires 90d --out f",
        "tidelock auth token rotate 0123456789abcdef --out f",
        "tidelock auth token delete 0123456789abcdef",
        "tidelock auth require",
        "tidelock auth off",
        "tidelock bench atomic -t 3 -d 1 --id-prefix a: --url http://a:1,http://b:2",
        "tidelock bench kv -c 64 -P 2 -t 2 -n 100 --reads 90 --keys 5 --distribution zipf --via leader --json",
        "tidelock bench kv -d 0.5 --warm-up-s 0 --rate 1000 --consistency stale --url http://a:1,http://b:2",
        "tidelock bench resp -c 8 -P 512 --address 127.0.0.1:6379,127.0.0.1:6380 --no-prepare --seed 1",
        "tidelock bench http -n 1000 -c 50 http://127.0.0.1:1/api?limit=1 -m POST --body x -H A:b --expect y",
        "tidelock bench disk --dir /tmp --size 32 -d 1 --output json",
        "tidelock health --live --url http://127.0.0.1:1,http://127.0.0.1:2 --output json",
        "tidelock completions bash",
        "tidelock man",
        "tidelock man d",
    ];

    #[test]
    fn lines_that_parse() {
        for line in LINES_THAT_PARSE {
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
            "tidelock dev --nodes 10",
            "tidelock kv get",
            "tidelock kv get k --raw --output json",
            "tidelock kv put k",
            "tidelock kv put k v --file f",
            "tidelock kv put k v --if-version 3 --if-absent",
            "tidelock kv put k v --if-version abc",
            "tidelock kv list --limit 0",
            "tidelock kv list --limit 1001",
            "tidelock kv get k --url ftp://127.0.0.1:1",
            "tidelock cluster",
            "tidelock kv put k v --fence jobs",
            "tidelock kv put k v --fence =12",
            "tidelock lease renew",
            "tidelock lease grant --ttl 10",
            "tidelock lock jobs",
            "tidelock lock jobs true",
            "tidelock lock jobs --show -- true",
            "tidelock lock jobs --show --value v",
            "tidelock cluster status --wait-s 10",
            "tidelock login ftp://a:1",
            "tidelock login --token t",
            "tidelock auth",
            "tidelock auth role put app",
            "tidelock auth role put app --grant read --operations-per-second 0",
            "tidelock auth principal put ann",
            "tidelock auth token create",
            "tidelock kv get k --token t",
            "tidelock backup",
            "tidelock backup save",
            "tidelock backup restore",
            "tidelock backup inspect f --url http://127.0.0.1:1",
            "tidelock cluster add",
            "tidelock cluster add four",
            "tidelock cluster add -1",
            "tidelock cluster remove kv-3",
            "tidelock cluster remove http://kv-3:8001",
            "tidelock cluster remove kv-3:port",
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
            "tidelock completions",
            "tidelock completions sh",
        ] {
            assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
        }
        assert_eq!(Cli::try_parse_from(["tidelock", "kv", "get", ""]).expect_err("empty key").exit_code(), 2);
    }

    #[test]
    fn lists_of_urls_add_up() {
        let cli = parse("tidelock kv --url http://a:1,http://b:2 --url http://c:3 get k").unwrap();
        let Command::Kv(kv) = cli.command else { panic!("kv") };
        let urls: Vec<_> = kv.client.connection.urls.iter().map(ToString::to_string).collect();
        assert_eq!(urls, ["http://a:1", "http://b:2", "http://c:3"]);
    }
}
