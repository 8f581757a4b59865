//! Tokens: where a command gets its own, and to which nodes it may be sent.
//!
//! Owns reading the file or running the command that holds it. Whether a token is good is for the
//! nodes to say; here only its form is checked, so that another secret is never sent by mistake.
//!
//! Invariant: the text is in no `Debug` output and no error. No flag takes it, because a list of
//! processes shows flags.

use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use ureq::http::HeaderValue;

use crate::error::CliError;
use crate::private_file;

/// The beginning of every token.
const PREFIX: &str = "tdl_";

/// Digits of a token's number, characters of its secret, and digits of its checksum.
const PARTS: [usize; 3] = [16, 43, 8];

/// Files and answers of commands that are longer are no tokens.
const FILE_BYTES_MAX: u64 = 4096;

/// A token. `Debug` shows only its number.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token of its text, without the line's end.
    ///
    /// # Errors
    /// When the text has not the form of a token. The error does not repeat the text.
    pub fn parse(text: &str) -> Result<Token, String> {
        let form = || "it has no token: a token is `tdl_`, 16 digits, a secret and a checksum".to_owned();
        let text = text.trim_end_matches(['\r', '\n']);
        let [id, secret, checksum] = PARTS;
        let bytes = text.strip_prefix(PREFIX).ok_or_else(form)?.as_bytes();
        if bytes.len() != id + secret + checksum + 2 {
            return Err(form());
        }
        let (number, rest) = bytes.split_at(id);
        let (middle, end) = rest.split_at(secret + 1);
        let is_digits = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
        let is_secret = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let is_whole = middle[0] == b'_' && end[0] == b'_' && middle[1..].iter().all(is_secret);
        if is_whole && is_digits(number) && is_digits(&end[1..]) {
            Ok(Token(text.to_owned()))
        } else {
            Err(form())
        }
    }

    /// Reads a token from a file that only its owner can read.
    ///
    /// # Errors
    /// When the file cannot be read, others can read it, or it has no token.
    pub fn read(path: &Path) -> Result<Token, CliError> {
        let name = path.display();
        let file = private_file::open(path, "token file")?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(CliError::io(name.to_string()))?;
        Token::parse(&text).map_err(|error| CliError::Usage(format!("{name}: {error}")))
    }

    /// Runs a command and takes its standard output, such as `["pass", "show", "tidelock"]`. There
    /// is no shell. Its standard input is empty, because that of this process may be a value.
    ///
    /// # Errors
    /// When the command fails, with what it says on standard error, or answers no token.
    pub fn from_command(command: &[String]) -> Result<Token, CliError> {
        let [program, arguments @ ..] = command else {
            return Err(CliError::Usage("token_command is empty".to_owned()));
        };
        let what = format!("token_command `{program}`");
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(CliError::io(what.as_str()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(CliError::Usage(format!("{what}: {}: {}", output.status, said.trim())));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Token::parse(&text).map_err(|error| CliError::Usage(format!("{what}: {error}")))
    }

    /// The text, to send or to store it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The number, 16 digits, which is no secret.
    pub fn id(&self) -> &str {
        let start = PREFIX.len();
        &self.0[start..start + PARTS[0]]
    }

    /// The value of the header `Authorization`, which its `Debug` does not show.
    pub fn authorization(&self) -> HeaderValue {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0))
            .expect("invariant: a token has only letters, digits, dashes and underscores");
        value.set_sensitive(true);
        value
    }

    /// Checks that nobody on the way to a host can read the token.
    ///
    /// # Errors
    /// When the connection is not encrypted and leaves this machine.
    pub fn check_path(host: &str, is_encrypted: bool) -> Result<(), String> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
        if is_encrypted || is_loopback {
            return Ok(());
        }
        Err(format!("the token is not sent to {host} without TLS, because others could read it"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.id()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TEXT: &str = "tdl_0123456789abcdef_Abcdefghij-lmnopqrstuv_xyzABCDEFGHIJKLMNOPQ_89abcdef";

    #[test]
    fn tokens_have_one_form() {
        for text in [TEXT.to_owned(), format!("{TEXT}\n"), format!("{TEXT}\r\n")] {
            let token = Token::parse(&text).expect("a token");
            assert_eq!((token.expose(), token.id()), (TEXT, "0123456789abcdef"));
            assert_eq!(format!("{token:?}"), "Token(\"0123456789abcdef\")");
            assert!(!format!("{:?}", token.authorization()).contains("xyz"));
        }
        for text in [
            "",
            "tdl_",
            "secret",
            &TEXT[1..],
            &TEXT[..TEXT.len() - 1],
            &format!("{TEXT}0"),
            &format!("{TEXT} "),
            &TEXT.replace("_Abc", "xAbc"),
            &TEXT.replace("cdef_A", "cdeg_A"),
            &TEXT.replace("bcdefghij-", "bcdefghij/"),
            &TEXT.replace("89abcdef", "89abcdeg"),
            &TEXT.replace("Abcdefgh", "Äbcdefg"),
        ] {
            let error = Token::parse(text).expect_err(text);
            assert!(text.len() < 10 || !error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("token");
        fs::write(&path, format!("{TEXT}\n")).expect("a file");
        for (mode, is_private) in
            [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o610, false)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
            match Token::read(&path) {
                Ok(token) => assert!(is_private && token.expose() == TEXT, "{mode:o}"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(!is_private && said.contains(&format!("chmod 600 {}", path.display())), "{said}");
                }
            }
        }
        let error = Token::read(&directory.path().join("none")).expect_err("no file").to_string();
        assert!(error.contains("none"), "{error}");
    }

    #[test]
    fn a_command_may_print_the_token() {
        let run = |script: &str| {
            Token::from_command(&["sh", "-c", script].map(str::to_owned)).map_err(|error| error.to_string())
        };
        assert_eq!(run(&format!("echo {TEXT}")).expect("a token").expose(), TEXT);
        let failed = run("echo the store is locked >&2; exit 3").expect_err("a failure");
        assert!(failed.contains("the store is locked") && failed.contains('3'), "{failed}");
        let other = run("echo another secret").expect_err("no token");
        assert!(!other.contains("another secret"), "{other}");
        assert!(Token::from_command(&[]).is_err());
        assert!(Token::from_command(&["/does/not/exist".to_owned()]).is_err());
    }

    #[test]
    fn without_tls_a_token_does_not_leave_the_machine() {
        for (host, is_encrypted, may) in [
            ("127.0.0.1", false, true),
            ("127.1.2.3", false, true),
            ("localhost", false, true),
            ("::1", false, true),
            ("[::1]", false, true),
            ("[::ffff:127.0.0.1]", false, true),
            ("10.0.0.1", false, false),
            ("localhost.example.org", false, false),
            ("127.0.0.1.example.org", false, false),
            ("10.0.0.1", true, true),
        ] {
            assert_eq!(Token::check_path(host, is_encrypted).is_ok(), may, "{host}");
        }
    }
}
