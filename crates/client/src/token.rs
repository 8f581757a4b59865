//! The token of a client: read from a file or from a command, sent as a header, and never shown.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use ureq::http::HeaderValue;

/// A longer text is no token.
const TOKEN_BYTES_MAX: usize = 512;

/// A secret that identifies a client. It appears in no output.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Parses a token. Space and line ends around it are dropped.
    ///
    /// # Errors
    /// When it is empty, longer than a token can be, or has other characters than a token has. The
    /// message does not repeat it.
    pub fn parse(text: &str) -> Result<Token, String> {
        let text = text.trim();
        let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        match text.len() {
            0 => Err("there is no token".to_owned()),
            1..=TOKEN_BYTES_MAX if text.bytes().all(is_token_byte) => Ok(Token(text.to_owned())),
            _ => Err("it is no token, which has only letters, digits, `_` and `-`".to_owned()),
        }
    }

    /// Reads a token from a file.
    ///
    /// # Errors
    /// When the file cannot be read, or has something else.
    pub fn read(path: &Path) -> Result<Token, String> {
        let name = path.display();
        let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        Token::parse(&text).map_err(|error| format!("{name}: {error}"))
    }

    /// Runs a command with `sh`, and takes its standard output for the token. It may ask the user
    /// on the terminal.
    ///
    /// # Errors
    /// When the command fails, or prints something else.
    pub fn of_command(command: &str) -> Result<Token, String> {
        let run = || -> io::Result<_> {
            Command::new("sh").args(["-c", command]).stdin(Stdio::inherit()).stderr(Stdio::inherit()).output()
        };
        let output = run().map_err(|error| format!("`{command}`: {error}"))?;
        if !output.status.success() {
            return Err(format!("`{command}` ended with {}", output.status));
        }
        Token::parse(&String::from_utf8_lossy(&output.stdout))
            .map_err(|error| format!("`{command}`: {error}"))
    }

    /// The token itself, to be sent or stored.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The value of an `Authorization` header with it.
    pub fn header(&self) -> HeaderValue {
        let text = format!("Bearer {}", self.0);
        let mut value = HeaderValue::from_str(&text).expect("invariant: a token has no control characters");
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_checked_and_never_shown() {
        let token = Token::parse(" tdl_1_aZ-9_c\n").expect("a token");
        assert_eq!((token.secret(), format!("{token:?}").as_str()), ("tdl_1_aZ-9_c", "Token(..)"));
        assert_eq!(token.header(), "Bearer tdl_1_aZ-9_c");
        assert!(!format!("{:?}", token.header()).contains("tdl"));
        let long = "a".repeat(TOKEN_BYTES_MAX + 1);
        for text in ["", " \n", "a b", "a\u{e9}", "a\"", long.as_str()] {
            let error = Token::parse(text).expect_err(text);
            assert!(text.trim().is_empty() || !error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_command_prints_the_token() {
        assert_eq!(Token::of_command("echo secret").expect("a token").secret(), "secret");
        assert!(Token::of_command("exit 3").expect_err("it failed").contains("ended with exit status: 3"));
        assert!(Token::of_command("true").expect_err("it prints nothing").contains("no token"));
    }
}
