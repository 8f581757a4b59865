//! The commands that run after files have changed.
//!
//! Owns when a command is due, that one runs at a time, and how long it may take. Commands with the
//! same text are one command: it runs once for all files that changed.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How often the quiet time may begin anew before a command runs although its files go on changing.
const SETTLE_TIMES_MAX: u32 = 10;

/// How long a command may take. Its process group is killed afterwards.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The commands that have to run.
#[derive(Debug, Default)]
pub struct DueCommands {
    due: BTreeMap<String, Due>,
}

#[derive(Debug)]
struct Due {
    at: Instant,
    /// It runs then, even if its files go on changing.
    latest: Instant,
}

impl DueCommands {
    /// A file of the command has changed.
    pub fn changed(&mut self, command: &str, now: Instant, settle: Duration) {
        let due = self.due.entry(command.to_owned());
        let due = due.or_insert(Due { at: now, latest: now + settle * SETTLE_TIMES_MAX });
        due.at = (now + settle).min(due.latest);
    }

    /// When the next command is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.values().map(|due| due.at).min()
    }

    /// Takes a command that is due.
    pub fn take(&mut self, now: Instant) -> Option<String> {
        let command = self.due.iter().find(|(_, due)| due.at <= now)?.0.clone();
        self.due.remove(&command);
        Some(command)
    }

    /// Takes any command, due or not.
    pub fn take_any(&mut self) -> Option<String> {
        self.due.pop_first().map(|(command, _)| command)
    }
}

/// Runs a command for these files, and waits for it.
///
/// # Errors
/// Why it failed.
pub fn run(command: &str, files: &[PathBuf]) -> Result<(), String> {
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .env("TIDELOCK_FILES", names.join("\n"))
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (sender, ended) = mpsc::channel();
    let waiting = thread::spawn(move || sender.send(child.wait()));
    let status = ended.recv_timeout(COMMAND_TIMEOUT);
    if status.is_err() {
        // Ignored: it may have ended just now.
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    }
    let _ = waiting.join();
    match status {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("it ended with {status}")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("it was killed after {} s", COMMAND_TIMEOUT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_millis(100);

    #[test]
    fn a_command_runs_once_its_files_have_settled() {
        let (mut due, begin) = (DueCommands::default(), Instant::now());
        due.changed("reload", begin, SETTLE);
        due.changed("reload", begin + SETTLE / 2, SETTLE);
        assert_eq!(due.take(begin + SETTLE), None);
        assert_eq!(due.next_due(), Some(begin + SETTLE * 3 / 2));
        assert_eq!(due.take(begin + SETTLE * 2).as_deref(), Some("reload"));
        assert_eq!(due.take(begin + SETTLE * 2), None, "once for all changes");
        // Files that go on changing.
        for time in 0..20 {
            due.changed("reload", begin + SETTLE * time / 2, SETTLE);
        }
        assert_eq!(due.next_due(), Some(begin + SETTLE * SETTLE_TIMES_MAX));
    }

    #[test]
    fn failures_are_named() {
        let files = [PathBuf::from("a"), PathBuf::from("b")];
        assert_eq!(run("test \"$TIDELOCK_FILES\" = \"$(printf 'a\\nb')\"", &files), Ok(()));
        assert_eq!(run("exit 3", &files), Err("it ended with exit status: 3".into()));
    }
}
