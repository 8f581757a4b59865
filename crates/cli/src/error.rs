//! Why a command failed, and the exit code that tells a script.
//!
//! Owns every failure that a user of the binary can see. The message says what to do where that is known; a
//! failure whose outcome is open says so, because it is the one that a script must not simply repeat.

use std::io;
use std::process::ExitCode;

use tidelock_core::storage::backup::BackupError;

/// A command that did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line is well formed but cannot mean anything. Exit code 2, as for a malformed one.
    #[error("{0}")]
    Usage(String),
    /// The key does not exist.
    #[error("not found")]
    NotFound,
    /// A node answered, and the answer is no.
    #[error("{0}")]
    Refused(String),
    /// What was asked for was taken note of, and has not come about in the time that was given to it.
    #[error("{0}")]
    Unfinished(String),
    /// A node answered, and shows that the cluster does not do its work.
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
        /// The node that has or has not done it.
        url: String,
        /// How the answer was lost.
        reason: String,
    },
    /// The answer is not one that a Tidelock node gives.
    #[error("{url} gave an answer that is not understood: {reason}")]
    Unintelligible {
        /// Who answered.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file, a pipe or a process of this machine failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A backup that must not be believed.
    #[error("{file}: {source}")]
    Backup {
        /// Where it comes from.
        file: String,
        /// What is wrong with it.
        source: BackupError,
    },
    /// Whoever read the output has gone (`tidelock kv list | head`). Nothing to report, and no one to report it to.
    #[error("the reader of the output went away")]
    OutputClosed,
    /// The node could not start or had to stop.
    #[error("{0}")]
    Node(String),
    /// The local cluster could not start or had to stop.
    #[error("{0}")]
    Dev(String),
}

impl CliError {
    /// Names what was tried.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> CliError {
        move |source| CliError::Io { what: what.into(), source }
    }

    /// 2 for a command that cannot be carried out as written, 1 for one that failed.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Usage(_) => ExitCode::from(2),
            CliError::OutputClosed => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}
