//! The command line of `audit`.

use clap::Args;

use super::ClientArgs;

/// Arguments of `audit`.
#[derive(Debug, Args)]
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
}
