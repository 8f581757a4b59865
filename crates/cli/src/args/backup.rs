//! The command line of `backup`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ClientArgs, Output};

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(after_help = "Every night, from any node, while clients read and write:\n  \
    tidelock backup save --url http://10.0.0.1:8001 --out tidelock-$(date +%F).backup\n\n\
    Into a fresh cluster, of any number of nodes and shards:\n  \
    tidelock backup restore tidelock-2026-11-20.backup --url http://10.0.1.1:8001")]
pub struct BackupArgs {
    /// The command.
    #[command(subcommand)]
    pub command: BackupCommand,
}

/// The commands of `backup`.
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Save the state of every shard to a file
    ///
    /// The backup contains every write that was acknowledged before it began; writes continue
    /// meanwhile. Each shard is saved in one consistent state. An existing file is replaced only
    /// when the new one is complete, verified and on disk.
    Save(SaveArgs),
    /// Restore a backup into a fresh cluster
    ///
    /// The file is read and verified first. Keys get their old versions, and every later version is
    /// above all that the old cluster assigned. A cluster that clients have written to refuses it.
    /// Keep clients away until it is done; if it is interrupted, run it again.
    Restore(RestoreArgs),
    /// Verify that a backup is intact and can be restored; exit 1 if not
    Verify(FileArgs),
    /// Show the content of a backup: cluster, time, shards, versions, numbers of keys, sizes
    Inspect(FileArgs),
}

/// Arguments of `backup save`.
#[derive(Debug, Args)]
pub struct SaveArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The file to write; - is standard output
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Save what the node has applied, without consensus; for a cluster without a majority.
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
    /// The backup file
    pub file: PathBuf,
    /// First remove what another restore has stored (an unfinished one, or one of the wrong file).
    /// Refused if a client has written to the cluster
    #[arg(long)]
    pub discard: bool,
}

/// Arguments of `backup verify` and `backup inspect`.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// The backup file
    pub file: PathBuf,
    /// Format of the output
    #[arg(long, env = "TIDELOCK_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
