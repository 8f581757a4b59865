//! Errors of commands, and their exit codes.
//!
//! Owns every failure that a user of the binary can see. The message says what to do if that is
//! known. A failure of unknown outcome says so, because a script must not simply repeat it.

use std::error::Error;
use std::io;
use std::process::ExitCode;

/// Why a command failed. It decides the exit code.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line is well formed but contradictory or out of range. Exit code 2, as for a
    /// malformed one.
    #[error("{0}")]
    Usage(String),
    /// The key does not exist.
    #[error("not found")]
    NotFound,
    /// A node refused the request.
    #[error("{0}")]
    Refused(String),
    /// The cluster recorded the requested change, but it was not done before the timeout.
    #[error("{0}")]
    Unfinished(String),
    /// A node's answer shows that the cluster does not serve.
    #[error("{0}")]
    Unavailable(String),
    /// No node could be asked. Nothing was done.
    #[error("no node is reachable; nothing was done\n{0}")]
    Unreachable(String),
    /// A write was sent and its answer was lost.
    #[error(
        "the outcome is unknown: {url} was sent the write, but {reason}\n\
         It may or may not have happened, so it was not sent again. Read the key and its version, then decide; \
         a write with --if-version or --if-absent can be repeated safely."
    )]
    OutcomeUnknown {
        /// The node to which it was sent.
        url: String,
        /// How the answer was lost, for example by a timeout.
        reason: String,
    },
    /// The answer does not come from a Tidelock node.
    #[error("{url} gave an answer that is not understood: {reason}")]
    Unintelligible {
        /// The address that answered.
        url: String,
        /// Why it is not understood.
        reason: String,
    },
    /// A file, a pipe or a process of this machine failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation, and the file or process that it was for.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A backup is damaged, or from a later release.
    #[error("{file}: {source}")]
    Damaged {
        /// The file, or the node that sent the backup.
        file: String,
        /// What is wrong with it; boxed, because this crate does not know the format.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The reader of the output closed the pipe (`tidelock kv list | head`). This is not reported.
    #[error("the reader of the output went away")]
    OutputClosed,
    /// The command that was run has ended with this exit code. This is not reported.
    #[error("the command ended with {0}")]
    Command(u8),
    /// The node or the local cluster that this process runs could not start, or had to stop.
    #[error("{0}")]
    Stopped(String),
}

impl CliError {
    /// Adds to an error which operation failed.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> CliError {
        move |source| CliError::Io { what: what.into(), source }
    }

    /// 2 for a command that cannot be carried out as written, 1 for one that failed.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Usage(_) => ExitCode::from(2),
            CliError::OutputClosed => ExitCode::SUCCESS,
            CliError::Command(code) => ExitCode::from(*code),
            _ => ExitCode::FAILURE,
        }
    }
}
