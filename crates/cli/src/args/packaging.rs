//! Arguments of the commands that packages and images use: `completions`, `man` and `health`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::ClientArgs;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory for the pages of all commands; created if missing
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Arguments of `health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Ask only whether the process answers, as /livez does, not whether it serves requests
    #[arg(long)]
    pub live: bool,
    /// How to reach the nodes.
    #[command(flatten)]
    pub client: ClientArgs,
}
