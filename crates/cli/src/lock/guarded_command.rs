//! The command that runs while a lock is held.
//!
//! Owns its process group, its signals and its end. It is asked to end shortly before its lease
//! does, and killed when the lease is lost. It is a child of the [guard](super::guard), a second
//! process, which kills it if this process has ended.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process_group};
use tidelock_client::CliError;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::LockArgs;
use crate::lease::session::{LeaseLost, LeaseSession, Validity};

/// The command gets SIGTERM when less than this part of the time to live is left.
const TERMINATION_MARGIN: u32 = 6;

/// Added to the number of a signal that ended a process, for its exit code, as shells do.
const SIGNAL_CODE: u8 = 128;

/// The executable of this process, even if an upgrade has replaced its file.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A command for a lock that is held.
pub struct GuardedCommand<'a> {
    /// The arguments of `tidelock lock`.
    pub args: &'a LockArgs,
    /// The lease that holds the lock.
    pub session: &'a LeaseSession,
    /// The fence of the lock.
    pub fence: u64,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// With this exit code; 128 and the number of the signal that ended it.
    Exited(u8),
    /// It was killed, because the lease was lost.
    Killed(LeaseLost),
}

impl GuardedCommand<'_> {
    /// Runs the command to its end.
    pub async fn run(&self, validity: &Validity, signals: &mut Signals) -> Result<CommandEnd, CliError> {
        let mut child = self.guard().spawn().map_err(CliError::io(OWN_PROGRAM))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let send = |signal| {
            // All processes of the group may have ended.
            let _ = group.map(|group| kill_process_group(group, signal));
        };
        let mut termination = std::pin::pin!(validity.ends_within(self.session.ttl / TERMINATION_MARGIN));
        let mut lost = std::pin::pin!(self.session.renew_until_lost(validity));
        let mut is_terminated = false;
        loop {
            tokio::select! {
                biased;
                ended = child.wait() => {
                    let status = ended.map_err(CliError::io(OWN_PROGRAM))?;
                    if status.signal().is_some() {
                        // The guard itself was killed, so the command may still run.
                        send(Signal::KILL);
                    }
                    return Ok(CommandEnd::Exited(code(status)));
                }
                lost = &mut lost => {
                    send(Signal::KILL);
                    child.wait().await.map_err(CliError::io(OWN_PROGRAM))?;
                    return Ok(CommandEnd::Killed(lost));
                }
                () = &mut termination, if !is_terminated => {
                    eprintln!("the lease could not be renewed yet: the command gets SIGTERM");
                    is_terminated = true;
                    send(Signal::TERM);
                }
                signal = signals.next() => send(signal),
            }
        }
    }

    /// The guard of the command, in a process group of its own.
    fn guard(&self) -> Command {
        let LockArgs { name, client, command, .. } = self.args;
        let output = client.output.to_possible_value().expect("invariant: every form has a name");
        let mut guard = Command::new(OWN_PROGRAM);
        guard
            .arg0("tidelock")
            .args([OsStr::new("lock"), OsStr::from_bytes(&name.0)])
            .args(["--output", output.get_name()])
            .args(["--holder", &std::process::id().to_string(), "--"])
            .args(command)
            .env("TIDELOCK_FENCE", self.fence.to_string())
            .env("TIDELOCK_LEASE", &self.session.id)
            .process_group(0);
        guard
    }
}

/// The exit code that a shell would report for this status.
pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let signal = || status.signal().and_then(|signal| u8::try_from(signal).ok());
    code.or_else(|| signal().map(|signal| SIGNAL_CODE.saturating_add(signal))).unwrap_or(1)
}

/// The exit code of a process that ends because of a signal.
pub fn code_of_signal(signal: Signal) -> u8 {
    let number = u8::try_from(signal.as_raw()).unwrap_or_default();
    SIGNAL_CODE.saturating_add(number)
}

/// The signals that ask this process to end. They are passed on to the command.
pub struct Signals {
    hangup: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Receives these signals from now on, in place of their default effect.
    pub fn new() -> Result<Signals, CliError> {
        let receive = |kind| signal(kind).map_err(CliError::io("the handler of signals"));
        Ok(Signals {
            hangup: receive(SignalKind::hangup())?,
            interrupt: receive(SignalKind::interrupt())?,
            terminate: receive(SignalKind::terminate())?,
        })
    }

    /// The next signal.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::HUP,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        for (status, expected) in [(0, 0), (3 << 8, 3), (255 << 8, 255), (9, 137), (15, 143)] {
            assert_eq!(code(ExitStatus::from_raw(status)), expected);
        }
        assert_eq!(code_of_signal(Signal::INT), 130);
    }
}
