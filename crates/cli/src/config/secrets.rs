//! `tidelock config secrets`: encrypts secrets again, and reads new ones.

use std::io::{self, Read as _};

use tidelock_client::CliError;
use tidelock_client::http::Method;

use super::{Session, Target};
use crate::args::SecretsCommand;

/// Most bytes that are read as a secret: more than a node accepts, so that the node refuses it.
const SECRET_BYTES_MAX: u64 = 1 << 20;

/// Runs one of the `config secrets` commands.
pub fn run(session: &Session, command: SecretsCommand) -> Result<(), CliError> {
    match command {
        SecretsCommand::Rotate { namespace, terms } => {
            let target = Target::of(&[&namespace, "secrets", "rotate"]).with_terms(&terms);
            session.change(Method::POST, target, b"")
        }
    }
}

/// The secret that an argument states; `-` reads it from standard input, so that it is in no list
/// of processes and in no history of a shell.
pub fn text_of(argument: String) -> Result<String, CliError> {
    if argument != "-" {
        return Ok(argument);
    }
    let mut text = String::new();
    let input = io::stdin().lock().take(SECRET_BYTES_MAX).read_to_string(&mut text);
    input.map_err(CliError::io("standard input"))?;
    Ok(without_line_break(&text).to_owned())
}

/// The text without the line break that `echo` adds.
fn without_line_break(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_break_at_the_end_is_not_part_of_a_secret() {
        for (text, secret) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("\na ", "\na "), ("", "")]
        {
            assert_eq!(without_line_break(text), secret, "{text:?}");
        }
    }
}
