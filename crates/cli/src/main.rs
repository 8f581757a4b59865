//! The binary `tidelock`: `serve`, `dev`, `kv`, `atomic`, `config`, `cluster`, `backup` and
//! `bench`.
//!
//! Parses the command line, runs the command, and sets the exit code. Each command has its own
//! file.

mod args;
mod atomic;
mod backup;
mod bench;
mod client;
mod cluster;
mod config;
mod dev;
mod error;
mod item;
mod keys;
mod kv;
mod logging;
mod output;
mod serve;
mod time;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::error::CliError;

/// jemalloc returns freed memory to the system: its background thread does so within seconds, also
/// on an idle node. glibc's allocator keeps it for as long as the process runs.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::Dev(args) => dev::run(&args),
        Command::Kv(args) => kv::run(args),
        Command::Config(args) => config::run(*args),
        Command::Atomic(args) => atomic::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Bench(args) => bench::run(*args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, CliError::OutputClosed) {
                eprintln!("tidelock: {error}");
            }
            error.exit_code()
        }
    }
}
