//! The binary `tidelock`: `serve`, `dev`, `kv`, `txn`, `watch`, `lease`, `lock`, `atomic`,
//! `config`, `cluster`, `backup`, `shell`, `login`, `auth`, `audit`, `tls`, `bench`, `doctor`,
//! `health`, `completions` and `man`.
//!
//! Parses the command line, runs the command, and sets the exit code. Each command has its own
//! file.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Tidelock runs on Linux alone: it relies on epoll, fallocate and the guarantees of fdatasync there. \
     Build it on Linux, or in a container of it"
);

mod args;
mod atomic;
mod audit;
mod auth;
mod backup;
mod cluster;
mod completions;
mod config;
mod dev;
mod doctor;
mod health;
mod item;
mod kv;
mod lease;
mod lock;
mod logging;
mod login;
mod man;
mod new_file;
mod serve;
mod shell;
mod time;
mod tls;
mod txn;
mod watch;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use tidelock_client::CliError;

use crate::args::{Cli, Command, Output};

/// jemalloc returns freed memory to the system: its background thread does so within seconds, also
/// on an idle node. glibc's allocator keeps it for as long as the process runs.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Dev(args) => dev::run(&args),
        Command::Kv(args) => kv::run(args),
        Command::Txn(args) => txn::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Lease(args) => lease::run(&args),
        Command::Lock(args) => lock::run(&args),
        Command::Config(args) => config::run(*args),
        Command::Atomic(args) => atomic::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Shell(args) => shell::run(&args),
        Command::Login(args) => login::run(args),
        Command::Auth(args) => auth::run(*args),
        Command::Audit(args) => audit::run(&args),
        Command::Tls(args) => tls::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => tidelock_bench::run(*args),
        Command::Health(args) => health::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match error {
                CliError::OutputClosed | CliError::Command(_) => {}
                _ if wants_json(&matches) => eprintln!("{}", error.to_json()),
                _ => eprintln!("tidelock: {error}"),
            }
            error.exit_code()
        }
    }
}

/// Whether the command was asked for JSON, if it has that choice.
fn wants_json(matches: &ArgMatches) -> bool {
    let chosen = matches.try_get_one::<Output>("output").ok().flatten();
    chosen == Some(&Output::Json) || matches.subcommand().is_some_and(|(_, matches)| wants_json(matches))
}
