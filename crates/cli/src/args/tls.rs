//! The command line of `tls`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ClientArgs;

/// Arguments of `tls`.
#[derive(Debug, Args)]
#[command(after_help = "Three hosts:\n  \
    tidelock tls init --hosts 10.0.0.1,10.0.0.2,10.0.0.3 --out tidelock-tls\n\n\
    Before 30 days have passed, the same command again, and copy the files again. One more host:\n  \
    tidelock tls init --hosts 10.0.0.4 --out tidelock-tls")]
pub struct TlsArgs {
    /// The command.
    #[command(subcommand)]
    pub command: TlsCommand,
}

/// The commands of `tls`.
#[derive(Debug, Subcommand)]
pub enum TlsCommand {
    /// Make or renew the certificates of hosts, and the authority that signs them
    ///
    /// Writes one directory a host for `serve --tls-dir`: tls.crt, tls.key and ca.crt. The first
    /// run makes the authority, ca.crt and ca.key; a later run uses it. A host whose directory
    /// exists gets a new certificate for the same host. A host whose data directory is lost needs a
    /// certificate of a new host: delete its directory here first.
    ///
    /// It connects to no node. Keep ca.key away from the hosts.
    Init(InitArgs),
    /// Make a certificate for a client, and the client CA that signs it
    ///
    /// The first run makes the client CA, client-ca.crt and client-ca.key in --ca-dir; a later run
    /// uses it. Writes NAME.crt and NAME.key; the certificate has the name tidelock://client/NAME.
    ///
    /// It connects to no node. Keep client-ca.key away from hosts and clients.
    Client(ClientCertificateArgs),
    /// Show and rotate the certificate authority (CA) of a `--secure` cluster
    Authority(AuthorityArgs),
}

/// Arguments of `tls authority`.
#[derive(Debug, Args)]
#[command(after_help = "Replace the authority, with at least 15 seconds between the steps:\n  \
    tidelock tls authority add\n  tidelock tls authority show --out ca.crt   \
    # for every client\n  tidelock tls authority use 2\n  tidelock tls authority remove 1")]
pub struct AuthorityArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The command.
    #[command(subcommand)]
    pub command: AuthorityCommand,
}

/// The commands of `tls authority`.
#[derive(Debug, Subcommand)]
pub enum AuthorityCommand {
    /// Show the CAs that the nodes trust, and which one signs
    Show {
        /// Also write their certificates to this file, for the --ca of clients
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Add a second CA; nodes trust it within seconds, and it does not sign yet
    ///
    /// Give the file of `show --out ca.crt` to all clients before the next step.
    Add,
    /// Make a CA the one that signs; every node renews its certificate within seconds
    Use {
        /// Number of the authority
        id: u64,
    },
    /// Remove a CA that no longer signs; nodes stop trusting it
    ///
    /// A node that has been down since the previous step still has a certificate of the old CA.
    /// Start it before this step, or it has to join again.
    Remove {
        /// Number of the authority
        id: u64,
    },
}

/// Arguments of `tls client`.
#[derive(Debug, Args)]
pub struct ClientCertificateArgs {
    /// Name of the client: letters, digits and the characters `.`, `_`, `-` and `@`
    pub name: String,
    /// Directory of the client CA; created if missing
    #[arg(long, value_name = "DIR")]
    pub ca_dir: PathBuf,
    /// Directory for the certificate and its key; created if missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How long the certificate is valid
    #[arg(long, default_value_t = 90, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
}

/// Arguments of `tls init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Names or IP addresses at which clients reach the hosts; NAME=UUID for a host whose data
    /// directory exists, with the ID that `tidelock cluster status` shows
    #[arg(long, required = true, value_name = "NAME,…", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Directory of the authority and of the hosts' directories; created if missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name of the cluster, as `serve --cluster-name`
    #[arg(long, default_value = tidelock_server::config::DEFAULT_CLUSTER_NAME, value_name = "NAME")]
    pub cluster_name: String,
    /// How long the certificates of hosts are valid
    #[arg(long, default_value_t = 30, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
}
