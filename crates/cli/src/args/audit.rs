//! The command line of `audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ClientArgs;

/// Arguments of `audit`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "The last changes of members, shards, placement, roles, principals and tokens:\n  \
    tidelock audit --limit 50\n\n\
    All that are kept, for another program:\n  \
    tidelock audit --limit 10000 --output json\n\n\
    The token must allow cluster:admin.")]
pub struct AuditArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// How many records to show, the newest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub limit: u64,
    /// The command.
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
}

/// The commands of `audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Verify the hash chain of a file that `serve --audit-log` wrote
    ///
    /// Reports the first line whose hash does not match the line before it. Connects to no node.
    /// Truncation at the end cannot be detected from the file alone: keep the printed hash of the
    /// last line, and compare.
    Verify(VerifyArgs),
}

/// Arguments of `audit verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The file
    pub file: PathBuf,
}
