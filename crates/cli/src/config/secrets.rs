//! `tidelock config secrets`: encrypts secrets again.

use tidelock_client::CliError;
use tidelock_client::http::Method;

use super::{Session, Target};
use crate::args::SecretsCommand;

/// Runs one of the `config secrets` commands.
pub fn run(session: &Session, command: SecretsCommand) -> Result<(), CliError> {
    match command {
        SecretsCommand::Rotate { namespace, terms } => {
            let target = Target::of(&[&namespace, "secrets", "rotate"]).with_terms(&terms);
            session.change(Method::POST, target, b"")
        }
    }
}
