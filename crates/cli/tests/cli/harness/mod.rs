//! Clusters of real processes for tests: start, ask, stop, kill, restart, and clean up whatever happens.

pub mod client;
pub mod cluster;
pub mod history;
pub mod load;
pub mod ports;
pub mod resp;
pub mod shell;
pub mod slow_disk;
pub mod tmpfs;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub use client::Response;
pub use cluster::{Cluster, Options};

/// By when a condition that must come about has. Not a promise of the product: the bound of a test that hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How long a poll yields between two attempts.
pub const PAUSE: Duration = Duration::from_millis(10);

/// Tries until `attempt` gives something; panics with `what` if it has not by [`DEADLINE`].
pub fn eventually<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    within(DEADLINE, attempt).unwrap_or_else(|| panic!("not within {DEADLINE:?}: {what}"))
}

/// Tries until `attempt` gives something or `limit` is over.
pub fn within<T>(limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return Some(done);
        }
        if start.elapsed() > limit {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

/// The binary under test, free of settings that the environment of the test run may hold, but for one: with how many workers
/// the nodes are run.
pub fn tidelock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDELOCK_") && name != "TIDELOCK_WORKERS" {
            command.env_remove(name);
        }
    }
    // The message of a panic says what a log needs to say; a hundred frames would push the rest out of sight.
    command.env("RUST_BACKTRACE", "0");
    command
}
