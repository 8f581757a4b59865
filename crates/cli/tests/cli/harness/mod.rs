//! Clusters of real processes for tests: start, query, stop, kill, restart, and clean up in every
//! case.

pub mod client;
pub mod cluster;
pub mod guarded;
pub mod history;
pub mod load;
pub mod machines;
pub mod namespaces;
pub mod ports;
pub mod process;
pub mod recorder;
pub mod reports;
pub mod resp;
pub mod shell;
pub mod slow_disk;
pub mod terminal;
pub mod tmpfs;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub use client::Response;
pub use cluster::{Cluster, Options};

/// Deadline of conditions that must become true. It is no promise of the product, but bounds a test
/// that hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Pause between two attempts of a poll.
pub const PAUSE: Duration = Duration::from_millis(10);

/// The value of a metric in an answer of `/metrics`; the name includes the labels.
pub fn metric(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

/// Retries until `attempt` returns something; panics with `what` after [`DEADLINE`].
pub fn eventually<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    within(DEADLINE, attempt).unwrap_or_else(|| panic!("not within {DEADLINE:?}: {what}"))
}

/// Retries until `attempt` returns something or `limit` is over.
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

/// The binary under test, without the settings of the environment, except the number of workers,
/// and without the profiles of the user.
pub fn tidelock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    clear_settings(&mut command);
    // The message of a panic is enough; a backtrace of a hundred frames would hide the rest of the
    // log.
    command.env("RUST_BACKTRACE", "0");
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Removes the settings of Tidelock from the environment of a command, except the number of
/// workers.
pub fn clear_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDELOCK_") && name != "TIDELOCK_WORKERS" {
            command.env_remove(name);
        }
    }
}

pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// The commands of the blocks of a page that are fenced as `sh`, one a line.
pub fn shell_commands(page: &str) -> String {
    let mut commands = String::new();
    let mut inside = false;
    for line in page.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => commands.extend([line, "\n"]),
            _ => {}
        }
    }
    commands
}
