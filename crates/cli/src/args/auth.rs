//! The command line of `login` and `auth`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tidelock_client::{CertificateArgs, NodeUrl};

use super::{ClientArgs, Output};

/// Arguments of `login`.
#[derive(Debug, Args)]
#[command(after_help = "Once, with the address of a node and the token that an administrator gave you:\n  \
    tidelock login https://10.0.0.1:8001 --ca ca.crt\n\n\
    From then on:\n  \
    tidelock kv get hello\n\n\
    A script passes the token on standard input:\n  \
    tidelock login https://10.0.0.1:8001 --ca ca.crt < token\n\n\
    With a certificate instead of a token:\n  \
    tidelock login https://10.0.0.1:8001 --ca ca.crt --client-cert ann.crt --client-key ann.key")]
pub struct LoginArgs {
    /// The nodes' HTTP endpoints, separated by commas; with https:// one is enough, which names the
    /// others [default: those of the profile, or http://127.0.0.1:8001]
    #[arg(env = "TIDELOCK_URL", value_name = "URL", value_delimiter = ',')]
    pub urls: Vec<NodeUrl>,
    /// File with the certificates, PEM, of the authorities that may have signed those of the nodes;
    /// https:// needs it [default: of the profile, if it has these nodes]
    #[arg(long, env = "TIDELOCK_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The certificate to present instead of a token.
    #[command(flatten)]
    pub certificate: CertificateArgs,
    /// The profile to write [default: default]
    #[arg(long, env = "TIDELOCK_PROFILE", value_name = "NAME")]
    pub profile: Option<String>,
    /// Format of the output
    #[arg(long, env = "TIDELOCK_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// How long to wait for a node, in milliseconds
    #[arg(long, env = "TIDELOCK_TIMEOUT_MS", value_name = "MS", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub timeout_ms: u64,
}

/// Arguments of `auth`.
#[derive(Debug, Args)]
#[command(after_help = "An administrator, then authentication for all:\n  \
    tidelock auth principal put ann --role admin\n  \
    tidelock auth token create ann --out ann.token\n  \
    tidelock login < ann.token\n  \
    tidelock auth require\n\n\
    An application that reads and writes the keys below app/:\n  \
    tidelock auth role put app --grant 'read keys:app/' --grant 'write keys:app/'\n  \
    tidelock auth principal put web-1 --role app\n  \
    tidelock auth token create web-1 --expires 90d > web-1.token")]
pub struct AuthArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The command.
    #[command(subcommand)]
    pub command: AuthCommand,
}

/// The commands of `auth`.
#[derive(Debug, Subcommand)]
pub enum AuthCommand {
    /// Show who you are, by which token or certificate, and what that allows
    Whoami,
    /// Show and change roles, which are sets of grants
    #[command(subcommand)]
    Role(RoleCommand),
    /// Show and change principals, which are people and programs with roles
    #[command(subcommand)]
    Principal(PrincipalCommand),
    /// Show, create and delete tokens of principals
    #[command(subcommand)]
    Token(TokenCommand),
    /// Refuse requests without a valid token from now on
    ///
    /// Your own token must allow cluster:admin. Otherwise nothing is changed, because you could not
    /// undo it.
    Require,
    /// Allow all requests again, with and without a token
    Off,
}

/// The commands of `auth role`.
#[derive(Debug, Subcommand)]
pub enum RoleCommand {
    /// Show all roles
    List,
    /// Create a role, or replace all of its grants
    #[command(after_help = "Read and change the keys below app/:\n  \
        tidelock auth role put app --grant 'read keys:app/' --grant 'write keys:app/'\n\n\
        See the state of the cluster, for monitoring, until a day in May:\n  \
        tidelock auth role put monitoring --grant cluster:read --ends 2027-05-01T00:00:00Z\n\n\
        docs/reference/permissions.md describes the text of grants, and what each request needs.")]
    Put(PutRoleArgs),
    /// Delete a role that no principal has
    Delete(NameArgs),
}

/// Arguments of `auth role put`.
#[derive(Debug, Args)]
pub struct PutRoleArgs {
    /// Name of the role
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: String,
    /// What the role allows, such as 'read keys:app/'; repeatable
    #[arg(long = "grant", value_name = "GRANT", required = true)]
    pub grants: Vec<String>,
    /// When the role ends: a moment such as 2027-05-01T00:00:00Z, or a time from now such as 30d
    /// or 12h [default: never]
    #[arg(long, value_name = "WHEN")]
    pub ends: Option<String>,
    /// Most operations a second that each node serves to a principal with the role [default: no
    /// limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub operations_per_second: Option<u64>,
    /// Most bytes of requests and answers a second [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub bytes_per_second: Option<u64>,
}

/// The commands of `auth principal`.
#[derive(Debug, Subcommand)]
pub enum PrincipalCommand {
    /// Show all principals
    List,
    /// Create a principal, or replace all of its roles
    Put(PutPrincipalArgs),
    /// Delete a principal, and with it its tokens
    Delete(NameArgs),
}

/// Arguments of `auth principal put`.
#[derive(Debug, Args)]
pub struct PutPrincipalArgs {
    /// Name of the principal
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: String,
    /// One of its roles; repeatable
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub roles: Vec<String>,
    /// A whole URI or DNS name of client certificates that prove to be it; repeatable, and replaces
    /// all that it has [default: it keeps those that it has]
    #[arg(long = "certificate-name", value_name = "NAME")]
    pub certificate_names: Vec<String>,
    /// Let no certificate prove to be it any more
    #[arg(long, conflicts_with = "certificate_names")]
    pub no_certificate_names: bool,
}

/// A role or a principal.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// Its name
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: String,
}

/// The commands of `auth token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Show all tokens, without their secrets
    List,
    /// Create a token, and print it: no node stores it, and it is shown this once
    Create(CreateTokenArgs),
    /// Give a token a new secret, and print it; the former one stays valid until the next rotation
    Rotate(RotateTokenArgs),
    /// Delete a token: it is refused from then on
    Delete(TokenArgs),
}

/// Arguments of `auth token create`.
#[derive(Debug, Args)]
pub struct CreateTokenArgs {
    /// Name of the principal
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub principal: String,
    /// How long the token is valid, such as 90d, 12h, 30m or 60s [default: until it is deleted]
    #[arg(long, value_name = "DURATION")]
    pub expires: Option<String>,
    /// Write the token to this new file, which only you may read, instead of to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `auth token rotate`.
#[derive(Debug, Args)]
pub struct RotateTokenArgs {
    /// Number of the token, as `auth token list` shows it
    pub id: String,
    /// Write the token to this new file, which only you may read, instead of to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `auth token delete`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// Number of the token, as `auth token list` shows it
    pub id: String,
}
