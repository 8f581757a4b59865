//! The guard: a second process of `tidelock lock`, which starts the command and kills it when the
//! first process, the holder of the lock, has ended.
//!
//! Owns how the end of the holder is detected. A process that gets SIGKILL cannot kill its own
//! children, and the command must not run without the lock. The guard is the leader of the process
//! group in which the command runs, and kills the whole group.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpgrp, getppid, kill_process_group, pidfd_open};
use tidelock_client::CliError;
use tokio::process::Command;

use super::guarded_command::{Signals, code};

/// Names the holder in error messages.
const HOLDER: &str = "the process that holds the lock";

/// Runs the command, and returns its exit code as an error unless it is 0. Kills the command, and
/// this process with it, when `holder`, the parent of this process, has ended.
pub async fn run(holder: i32, command: &[OsString]) -> Result<(), CliError> {
    // The holder sends signals to the whole group. This process ignores them: the command decides
    // what to do.
    let _signals = Signals::new()?;
    let holder = Pid::from_raw(holder).expect("invariant: the command line takes positive numbers only");
    let end = pidfd_open(holder, PidfdFlags::empty()).map_err(|error| CliError::io(HOLDER)(error.into()))?;
    // After `pidfd_open`: if the holder is still the parent, the descriptor is not that of a later
    // process with the same number.
    if getppid() != Some(holder) {
        return Err(CliError::Failed(format!("{HOLDER} has ended: the command was not started")));
    }
    let (program, arguments) = command.split_first().expect("invariant: the command line has a command");
    let failed = |error| CliError::io(program.to_string_lossy())(error);
    let mut child = Command::new(program).args(arguments).spawn().map_err(failed)?;
    tokio::select! {
        ended = child.wait() => match code(ended.map_err(failed)?) {
            0 => Ok(()),
            code => Err(CliError::Command(code)),
        },
        // This kills the guard too, which is in the group.
        () = ended(end) => kill_process_group(getpgrp(), Signal::KILL).map_err(|error| failed(error.into())),
    }
}

/// Completes when a process has ended.
async fn ended(process: OwnedFd) {
    let wait = move || while poll(&mut [PollFd::new(&process, PollFlags::IN)], None) == Err(Errno::INTR) {};
    // This fails only while the runtime shuts down.
    let _ = tokio::task::spawn_blocking(wait).await;
}
