//! The command line of `login` and `logout`.

use clap::Args;

use super::ClientArgs;

/// Arguments of `login`.
#[derive(Debug, Args)]
#[command(after_help = "Once:\n  \
    tidelock login --url https://kv-1:8001,https://kv-2:8001 --ca ca.crt\n  \
    tidelock kv get hello\n\n\
    Another cluster:\n  \
    tidelock login --profile test --url https://kv-test:8001 --ca test-ca.crt\n  \
    tidelock kv get hello --profile test")]
pub struct LoginArgs {
    /// A command that prints the token whenever one is needed, such as that of a password manager;
    /// the token itself is not stored
    #[arg(long, value_name = "COMMAND", conflicts_with = "token_file")]
    pub token_command: Option<String>,
    /// The cluster, and the profile to store.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Arguments of `logout`.
#[derive(Debug, Args)]
pub struct LogoutArgs {
    /// The profile to forget [default: default]
    #[arg(long, env = "TIDELOCK_PROFILE", value_name = "NAME")]
    pub profile: Option<String>,
}
