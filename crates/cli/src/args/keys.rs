//! The command line of `kv`, `txn`, `watch` and `atomic`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use tidelock_client::keys::KeyArg;

use super::ClientArgs;

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
    /// Print a key's value; exit 3 if there is no such key
    ///
    /// On a terminal the value is followed by a line break and its version. A pipe or file gets
    /// exactly the bytes of the value. --output json has the version too, and bytes that are not
    /// UTF-8 as val_b64.
    Get(GetArgs),
    /// Store a value under a key
    ///
    /// Replaces an existing value, unless a condition prevents it. Prints the new version.
    #[command(alias = "set")]
    Put(PutArgs),
    /// Delete a key; exit 3 if there is no such key
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
    /// Read the node's own replica without asking other nodes; the result may be outdated
    #[arg(long)]
    pub stale: bool,
    /// Print exactly the bytes of the value, also on a terminal
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
    /// Change nothing unless the key has this version
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
    /// Change nothing if the key exists
    #[arg(long, conflicts_with = "if_version")]
    pub if_absent: bool,
    /// Bind the key to this lease: it is removed when the lease ends
    #[arg(long, value_name = "ID")]
    pub lease: Option<String>,
    /// Change nothing unless this lock is held with this fence
    #[arg(long, value_name = "LOCK=FENCE")]
    pub fence: Option<FenceArg>,
}

/// The name of a lock and a fence, `jobs=12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceArg {
    /// The name of the lock: a key.
    pub lock: Vec<u8>,
    /// The fence.
    pub fence: u64,
}

impl FromStr for FenceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<FenceArg, String> {
        let parse = || {
            let (lock, fence) = text.rsplit_once('=').filter(|(lock, _)| !lock.is_empty())?;
            let is_number = fence.bytes().all(|byte| byte.is_ascii_digit());
            let fence = fence.parse().ok().filter(|_| is_number)?;
            Some(FenceArg { lock: lock.as_bytes().to_vec(), fence })
        };
        parse().ok_or_else(|| {
            format!("`{text}` is not the name of a lock and its fence: write one such as jobs=12")
        })
    }
}

/// Arguments of `kv del`.
#[derive(Debug, Args)]
pub struct DelArgs {
    /// The key
    pub key: KeyArg,
    /// Change nothing unless the key has this version
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
    /// Change nothing unless this lock is held with this fence
    #[arg(long, value_name = "LOCK=FENCE")]
    pub fence: Option<FenceArg>,
}

/// Arguments of `kv list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only keys that start with this prefix
    pub prefix: Option<KeyArg>,
    /// Print keys without values, one per line
    #[arg(long)]
    pub keys: bool,
    /// Maximum number of keys on one page [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
    /// Only keys after this one
    #[arg(long, value_name = "KEY")]
    pub after: Option<KeyArg>,
    /// Print all pages instead of only the first
    #[arg(long)]
    pub all: bool,
    /// Read the node's own replica without asking other nodes; the result may be outdated
    #[arg(long)]
    pub stale: bool,
}

/// Arguments of `txn`.
#[derive(Debug, Args)]
#[command(after_help = "Pay an order if it is new; read its state if it is not:\n  \
    tidelock txn <<'END'\n  \
    {\"if\":   [{\"key\": \"{order:7}state\", \"val\": \"new\"}],\n   \
     \"then\": [{\"put\": {\"key\": \"{order:7}state\", \"val\": \"paid\"}}],\n   \
     \"else\": [{\"get\": {\"key\": \"{order:7}state\"}}]}\n  \
    END\n\n\
    All keys must have the same tag in braces, so that they are in one slot. A comparison has one of ver, val,\n\
    val_b64 and exists; an operation is put, delete or get.")]
pub struct TxnArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The file with the transaction; - or nothing reads it from standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
#[command(after_help = "Print each change of a key that begins with service/, from now on:\n  \
    tidelock watch service/\n\n\
    Print the present keys first, then go on for ever, as JSON:\n  \
    tidelock watch service/ --state --output json")]
pub struct WatchKeysArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The beginning of the keys; '' for all keys
    #[arg(value_name = "PREFIX")]
    pub name: KeyArg,
    /// Watch the one key of this name, instead of a prefix
    #[arg(long)]
    pub key: bool,
    /// Print the present keys first
    #[arg(long, conflicts_with = "after")]
    pub state: bool,
    /// Leave values out
    #[arg(long)]
    pub keys: bool,
    /// Go on after this cursor, which is in lines of --output json; 'now' for changes from now on
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
    /// End after so many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
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
    /// Store a value and print the previous one
    Exchange(AtomicExchangeArgs),
    /// Store a value if the register holds the expected one; exit 4 if it does not
    Cas(AtomicCasArgs),
}

/// Arguments of `atomic get`.
#[derive(Debug, Args)]
pub struct AtomicGetArgs {
    /// The register's name
    pub id: KeyArg,
    /// Read the node's own replica without asking other nodes; the result may be outdated
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
    /// The expected value
    #[arg(allow_negative_numbers = true)]
    pub expected: i64,
    /// The new value
    #[arg(allow_negative_numbers = true)]
    pub new: i64,
}
