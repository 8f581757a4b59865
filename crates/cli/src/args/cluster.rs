//! The command line of `cluster`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use tidelock_client::CliError;
use tidelock_server::config::Address;

use super::ClientArgs;

/// Arguments of `cluster`.
#[derive(Debug, Args)]
#[command(after_help = "Replace node 3 by a new one, which takes over its votes:\n  \
    tidelock serve --join 10.0.0.1:9001 --data-dir DIR --http ADDR --peer ADDR\n  \
    tidelock cluster remove 3\n\n\
    The same, by an address of node 3:\n  \
    tidelock cluster remove 10.0.0.3:8001")]
pub struct ClusterArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The command.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// The commands of `cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show hosts, shards with their leaders, and the applied index of each replica, as one node
    /// sees them
    Status(StatusArgs),
    /// Let a node vote again, after `follow` or `drain`, or cancel a `remove` that is not done
    ///
    /// A node that has joined gets votes by itself; `cluster explain` shows where. In a cluster
    /// without a default placement, which releases before this one founded, it follows until this
    /// gives it a vote in every shard; this waits until it votes.
    Add(HostArgs),
    /// Take a node's votes away, and give it none until `add`
    ///
    /// Other nodes get its votes as far as there are any. It still follows the registry, and the
    /// shards whose policies name it.
    Follow(HostArgs),
    /// Empty a node: it leads nothing, and keeps no replica that another node can hold
    ///
    /// For a node on a slow disk or a busy machine, or before it is removed. Replicas that no other
    /// node can take over stay. To stop a node, SIGTERM is enough: it transfers its leaderships by
    /// itself.
    Drain(DrainArgs),
    /// Take a node out of the cluster for good, whether it is up or not
    ///
    /// Its leaderships are transferred first. A running node then exits by itself with code 0. Its
    /// number is never given out again: to use the host again, start it with an empty data
    /// directory and --join. While it still has replicas of data shards, `cluster add` cancels the
    /// removal.
    Remove(HostArgs),
    /// Transfer the leadership of a shard to another node
    Transfer(TransferArgs),
    /// Create a one-time token with which a host gets a certificate and joins a `--secure` cluster
    ///
    /// Prints it, or writes it to a new file. Start the host with
    /// `tidelock serve --join ADDR --join-token-file FILE`. Another host needs another token.
    JoinToken(JoinTokenArgs),
    /// Print the registry, one JSON object per line: a header, then hosts, shards and replicas
    Dump,
    /// Explain why each replica of a shard is where it is, and why other nodes have none
    ///
    /// Below the table: the data shard that the cluster adds next, the leadership that it transfers
    /// next, the hot slots that it moves next, and the votes that nodes exchange next, if there are
    /// any. With `--output json`, `cluster top` has these.
    Explain(ExplainArgs),
    /// Set or remove tags of a shard, including its placement policies, or the cluster's default
    ///
    /// A shard inherits every placement policy of the default that it does not set itself.
    /// The cluster begins to move replicas at once, a few at a time; `cluster explain` shows the
    /// targets.
    Set(SetArgs),
    /// Add a data shard, which holds nothing until slots are moved to it
    ///
    /// `cluster rebalance` gives it its share.
    AddShard(AddShardArgs),
    /// Remove a data shard that owns no slots; its replicas release their disk
    ///
    /// Move its slots to other shards first, with `cluster move-slots`. Its number is never given
    /// out again.
    RemoveShard(RemoveShardArgs),
    /// Move slots until all data shards hold equally many
    ///
    /// It moves as few slots as possible, one move per shard at a time, while clients read and
    /// write. Waits until these moves and all earlier ones are done.
    Rebalance(WaitForMoves),
    /// Move slots to a shard, and wait until it is done
    MoveSlots(MoveSlotsArgs),
    /// Show which shard holds which slots, and which are moving
    Slots,
    /// Show the version of what the cluster writes, the releases of the nodes, and what the version
    /// waits for
    ///
    /// The version rises by itself once every node runs a release that supports a newer one. From
    /// then on, no node can go back to a release that does not. --hold keeps the version meanwhile.
    Version(VersionArgs),
    /// Show the busiest connections of a node
    ///
    /// Counts since each connection was made, for the node at --url: operations and bytes, requests
    /// that are not answered, and bytes of requests and replies in flight.
    Clients(ClientsArgs),
    /// Show what clients asked for in the last minute: by host and shard, and the hottest keys
    ///
    /// Asks every node, because each counts the requests that it took. Keys and prefixes are
    /// estimated from one request in 64.
    Top(TopArgs),
}

/// Arguments of `cluster join-token`.
#[derive(Debug, Args)]
pub struct JoinTokenArgs {
    /// Lifetime of the token, such as 24h, 30m or 60s, at most 30d [default: 24h]
    #[arg(long, value_name = "DURATION")]
    pub lifetime: Option<String>,
    /// Write the token to this new file, which only you may read, instead of to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `cluster top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Maximum number of keys, prefixes and connections to show
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub limit: u16,
}

/// Arguments of `cluster version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Keep the version as it is, so that nodes can go back to the release before
    #[arg(long, conflicts_with = "resume")]
    pub hold: bool,
    /// Let the version rise again
    #[arg(long)]
    pub resume: bool,
}

/// Arguments of `cluster clients`.
#[derive(Debug, Args)]
pub struct ClientsArgs {
    /// Maximum number of connections to show
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub limit: u16,
}

/// Arguments of `cluster add-shard`.
#[derive(Debug, Args)]
pub struct AddShardArgs {
    /// Display name [default: derived from its number]
    #[arg(long)]
    pub name: Option<String>,
    /// A tag, such as a placement policy; may be given several times
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    pub tags: Vec<String>,
}

/// Arguments of `cluster remove-shard`.
#[derive(Debug, Args)]
pub struct RemoveShardArgs {
    /// The shard
    pub shard: u64,
}

/// How long to wait for slots to move.
#[derive(Debug, Args)]
pub struct WaitForMoves {
    /// How long to wait, in seconds; 0: not at all. The moves continue either way
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub wait_s: u64,
}

/// Arguments of `cluster move-slots`.
#[derive(Debug, Args)]
pub struct MoveSlotsArgs {
    /// The slots, 0 to 16383, such as 0-99,200; the shard may hold some of them already
    pub slots: String,
    /// The shard that receives the slots
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
#[command(after_help = "Three voters in one region, each in a different zone:\n  \
    tidelock cluster set 1 'placement:member=3;geo:region=us-central1' placement:vary=geo:zone\n\n\
    Two more replicas without a vote on hosts with large disks, and one on every host in another region:\n  \
    tidelock cluster set 1 'placement:replica:reports=2;disk=large' placement:cover=geo:region=us-east1\n\n\
    Five voters in every shard that has no number of its own:\n  \
    tidelock cluster set --default placement:member=5\n\n\
    NAME= removes a tag.")]
pub struct SetArgs {
    /// Set the policies that all shards inherit, instead of those of one shard
    #[arg(long)]
    pub default: bool,
    /// The shard, unless --default is given; then the tags to set
    #[arg(required = true, value_name = "SHARD | NAME=VALUE")]
    pub shard_and_tags: Vec<String>,
}

impl SetArgs {
    /// What the tags are set on, and the tags.
    ///
    /// # Errors
    /// When the shard is missing or superfluous, or no tag is given.
    pub fn target(&self) -> Result<(TagTarget, &[String]), CliError> {
        let usage = |text: &str| CliError::Usage(text.to_owned());
        let first = self.shard_and_tags.first().map_or("", String::as_str);
        let (target, tags) = match (self.default, first.parse()) {
            (true, Ok::<u64, _>(_)) => return Err(usage("give a shard or --default, not both")),
            (true, Err(_)) => (TagTarget::Default, &self.shard_and_tags[..]),
            (false, Ok(shard)) => (TagTarget::Shard(shard), &self.shard_and_tags[1..]),
            (false, Err(_)) => {
                return Err(usage(&format!("`{first}` is no shard: give its number, or --default")));
            }
        };
        if tags.is_empty() { Err(usage("give tags to set: NAME=VALUE")) } else { Ok((target, tags)) }
    }
}

/// What `cluster set` changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagTarget {
    /// The default of the cluster.
    Default,
    /// A shard.
    Shard(u64),
}

/// Arguments of `cluster status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Compare the replicas of every shard instead: each makes a snapshot at the same log index,
    /// and the checksums must be equal. Writes continue meanwhile. Exit 1 if any differ, or cannot
    /// be compared
    #[arg(long)]
    pub verify: bool,
    /// How long --verify waits for the replicas to report, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "verify")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait_s: u64,
}

/// A node, as an operator names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeSelector {
    /// By its number.
    Number(u64),
    /// By one of its addresses, `HOST:PORT`. Without a port it would name every node of a machine,
    /// and a misspelt number or command could pass for a host.
    Address(String),
}

impl FromStr for NodeSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeSelector, String> {
        if let Ok(number) = text.parse() {
            return Ok(NodeSelector::Number(number));
        }
        let address = Address::parse("node", text).map_err(|_| {
            "a node's number is wanted, or one of its addresses with the port, such as 3 or 10.0.0.3:8001, as \
             `tidelock cluster status` shows them"
        })?;
        Ok(NodeSelector::Address(address.to_string()))
    }
}

/// Arguments of `cluster` commands about one node.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// The node: its number, or one of its addresses (HOST:PORT), as `cluster status` shows them
    pub node: NodeSelector,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Arguments of `cluster drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node: its number, or one of its addresses (HOST:PORT), as `cluster status` shows them
    pub node: NodeSelector,
    /// End the drain: the node may lead again
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
    /// The node that should lead it, one that votes: its number, or one of its addresses
    pub node: NodeSelector,
    /// How long to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// How long a command waits for its change.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArgs {
    /// Return as soon as the cluster has recorded the request
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait, in seconds; after that, exit with 8 and print what is missing
    #[arg(long, value_name = "SECONDS", default_value_t = 60, conflicts_with = "no_wait")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait_s: u64,
}
