//! The command line of `lease` and `lock`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use tidelock_client::keys::KeyArg;

use super::ClientArgs;
use crate::time;

/// Arguments of `lease`.
#[derive(Debug, Args)]
#[command(after_help = "Keep a key for as long as a lease is renewed:\n  \
    LEASE=$(tidelock lease grant --ttl 10s --tag web)\n  \
    tidelock kv put '{web}/host-1' 10.0.0.1:80 --lease \"$LEASE\"\n  \
    tidelock lease keep \"$LEASE\"\n\n\
    The tag of a lease is that of its keys, in braces: keys of other tags cannot be bound to it.")]
pub struct LeaseArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: LeaseCommand,
}

/// The commands of `lease`.
#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// Grant a lease and print its id
    Grant(GrantArgs),
    /// Renew leases once; exit 1 if one of them has ended
    Renew(RenewArgs),
    /// Renew a lease until it ends or this command is stopped
    Keep(LeaseIdArgs),
    /// End a lease, and with it its keys and locks
    Revoke(LeaseIdArgs),
    /// List leases
    List(ListLeasesArgs),
    /// Show a lease with its keys and locks
    Show(LeaseIdArgs),
}

/// Arguments of `lease grant`.
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// How long the lease lasts without a renewal, from 1s to 24h
    #[arg(long, value_parser = time::wait)]
    pub ttl: Duration,
    /// The tag of the keys and locks that the lease is for; a random one by default
    #[arg(long)]
    pub tag: Option<String>,
}

/// Arguments of `lease renew`.
#[derive(Debug, Args)]
pub struct RenewArgs {
    /// Ids of leases, of any tags
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
}

/// Arguments of commands for one lease.
#[derive(Debug, Args)]
pub struct LeaseIdArgs {
    /// The id of the lease
    pub id: String,
}

/// Arguments of `lease list`.
#[derive(Debug, Args)]
pub struct ListLeasesArgs {
    /// Only leases with this tag
    #[arg(long)]
    pub tag: Option<String>,
}

/// Arguments of `lock`.
#[derive(Debug, Args)]
#[command(after_help = "Run a job on one machine at a time; give up after 10 minutes:\n  \
    tidelock lock jobs --wait 10m -- ./nightly.sh\n\n\
    An election: run a command on one of several machines, and see which one it is:\n  \
    tidelock lock scheduler --value \"$(hostname)\" -- ./scheduler.sh\n  \
    tidelock watch scheduler --key --state")]
pub struct LockArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The name of the lock, a key
    pub name: KeyArg,
    /// Show who holds the lock and who waits for it
    #[arg(long)]
    pub show: bool,
    /// How long the lock stays held after this machine has failed, from 1s to 24h
    #[arg(long, default_value = "10s", value_parser = time::wait, conflicts_with = "show")]
    pub ttl: Duration,
    /// How long to wait for the lock; 0s fails at once if it is held [default: as long as it takes]
    #[arg(long, value_parser = time::wait, conflicts_with = "show")]
    pub wait: Option<Duration>,
    /// What others see as the value of the lock, such as the name of this machine
    #[arg(long, default_value = "", conflicts_with = "show")]
    pub value: OsString,
    /// Runs as the guard of the command for the process PID, which holds the lock. `tidelock lock`
    /// starts itself with it.
    #[arg(long, hide = true, value_name = "PID", conflicts_with = "show", value_parser = clap::value_parser!(i32).range(1..))]
    pub holder: Option<i32>,
    /// The command to run
    #[arg(last = true, required_unless_present = "show", conflicts_with = "show")]
    pub command: Vec<OsString>,
}
