//! Errors of commands, and their exit codes.
//!
//! Owns every failure that a user of the binary can see. The message says what to do if that is
//! known. A failure of unknown outcome says so, because a script must not simply repeat it. The
//! exit codes are those of `tidelock_api::problem::ErrorClass`.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};
use tidelock_api::problem::{ErrorClass, Problem};

/// Exit code of a change that is recorded, but was not done within the wait.
const UNFINISHED: u8 = 8;

/// Exit code of a node that must not be started again as it is. `packaging/tidelock.service` names
/// it.
const NEEDS_A_PERSON: u8 = 9;

/// Why a command failed. It decides the exit code.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line is well formed but contradictory or out of range.
    #[error("{0}")]
    Usage(String),
    /// The key does not exist.
    #[error("not found")]
    NotFound,
    /// The cluster does not have what the command names; the message lists what it has.
    #[error("{0}")]
    Unknown(String),
    /// A node refused the request.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// A condition that the command states did not hold.
    #[error("{0}")]
    ConditionFailed(String),
    /// The user may not do that.
    #[error("{0}")]
    NotPermitted(String),
    /// The command failed for another reason.
    #[error("{0}")]
    Failed(String),
    /// The cluster recorded the requested change, but it was not done before the timeout.
    #[error("{0}")]
    Unfinished(String),
    /// A node's answer shows that the cluster does not serve.
    #[error("{0}")]
    Unavailable(String),
    /// No node could be asked. Nothing was done.
    #[error("no node answers; nothing was done\n{0}")]
    Unreachable(String),
    /// A write was sent and its answer was lost.
    #[error(
        "the outcome is unknown: {url} was sent the write, but {reason}\n\
         It may have happened, or may still happen, so it was not sent again. A read that does not show it is no proof \
         yet; a write with --if-version or --if-absent can be repeated safely."
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
    /// The node must not be started again before a person has looked at its data directory.
    #[error("{0}")]
    NeedsAPerson(String),
}

/// The refusal of a node.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What a program can do about it.
    pub class: ErrorClass,
    /// What the node says, and what to do about it.
    pub message: String,
    /// The problem that the node sent, if it sent one.
    pub problem: Option<Problem<'static>>,
}

impl CliError {
    /// Adds to an error which operation failed.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> CliError {
        move |source| CliError::Io { what: what.into(), source }
    }

    /// What a program can do about the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            CliError::Usage(_) => ErrorClass::Invalid,
            CliError::NotFound | CliError::Unknown(_) => ErrorClass::NotFound,
            CliError::Refused(refusal) => refusal.class,
            CliError::ConditionFailed(_) => ErrorClass::ConditionFailed,
            CliError::NotPermitted(_) => ErrorClass::NotPermitted,
            CliError::Unavailable(_) | CliError::Unreachable(_) => ErrorClass::Unavailable,
            CliError::OutcomeUnknown { .. } => ErrorClass::UnknownOutcome,
            CliError::Failed(_)
            | CliError::Unfinished(_)
            | CliError::Unintelligible { .. }
            | CliError::Io { .. }
            | CliError::Damaged { .. }
            | CliError::OutputClosed
            | CliError::Command(_)
            | CliError::NeedsAPerson(_)
            | CliError::Stopped(_) => ErrorClass::Failed,
        }
    }

    fn code(&self) -> u8 {
        match self {
            CliError::OutputClosed => 0,
            CliError::Command(code) => *code,
            CliError::Unfinished(_) => UNFINISHED,
            CliError::NeedsAPerson(_) => NEEDS_A_PERSON,
            _ => self.class() as u8,
        }
    }

    /// The exit code of a command that failed with this error.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// The error as one JSON object: its name, the exit code, the message, and the problem that a
    /// node sent.
    pub fn to_json(&self) -> Value {
        let mut name = match self {
            CliError::Unfinished(_) => "unfinished",
            CliError::NeedsAPerson(_) => "needs-a-person",
            _ => self.class().name(),
        };
        let problem = match self {
            CliError::Refused(refusal) => refusal.problem.as_ref(),
            _ => None,
        };
        if let Some(problem) = problem {
            name = problem.name();
        }
        let mut error = json!({ "error": name, "exit_code": self.code(), "message": self.to_string() });
        if let Some(problem) = problem {
            error["problem"] = json!(problem);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_see_the_kind_of_an_error() {
        let unreachable = CliError::Unreachable("  http://a:1: connection refused".to_owned());
        let message = "no node answers; nothing was done\n  http://a:1: connection refused";
        let expected = json!({ "error": "unavailable", "exit_code": 5, "message": message });
        assert_eq!(unreachable.to_json(), expected);
        let unfinished = CliError::Unfinished("not within 1 s".to_owned());
        assert_eq!(unfinished.to_json()["exit_code"], 8);
    }
}
