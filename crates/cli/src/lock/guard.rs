//! The process between `tidelock lock` and its command: it ends the command if `tidelock lock` ends
//! first.
//!
//! Owns noticing that end. A process that is killed with SIGKILL cannot end its children, and the
//! command must not go on without the lock. This process leads the process group of the command and
//! kills the whole group.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpgrp, getppid, kill_process_group, pidfd_open};
use tidelock_client::CliError;
use tokio::process::Command;

use super::guarded_command::{Signals, code};

/// What an error of the system concerns.
const HOLDER: &str = "the process that holds the lock";

/// Runs the command until it ends, and ends with its exit code, or until the process `holder` has
/// ended, which must be the parent of this one.
pub async fn run(holder: i32, command: &[OsString]) -> Result<(), CliError> {
    // Signals for the group reach this process too. Only the command shall act on them.
    let _signals = Signals::new()?;
    let holder = Pid::from_raw(holder).filter(|holder| holder.as_raw_nonzero().get() > 0);
    let holder =
        holder.ok_or_else(|| CliError::Usage("--holder needs the number of a process".to_owned()))?;
    let end = pidfd_open(holder, PidfdFlags::empty()).map_err(|error| CliError::io(HOLDER)(error.into()))?;
    // Only now: another process may have got the number of a holder that has ended.
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
        // This process is a member of the group, too.
        () = ended(end) => kill_process_group(getpgrp(), Signal::KILL).map_err(|error| failed(error.into())),
    }
}

/// Completes when a process has ended.
async fn ended(process: OwnedFd) {
    let wait = move || while poll(&mut [PollFd::new(&process, PollFlags::IN)], None) == Err(Errno::INTR) {};
    // An error means that the runtime is shut down.
    let _ = tokio::task::spawn_blocking(wait).await;
}
