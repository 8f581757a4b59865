//! Lines of an audit log: JSON objects, each with the SHA-256 of the previous line (a hash chain).
//!
//! Owns the format and its verification. Changing, removing, inserting or moving a line breaks the
//! chain at the next line. Truncation at the end cannot be detected from the file alone: keep the
//! hash of the last line elsewhere.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read as _};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Maximum length of a line in bytes, including the line end.
pub const LINE_BYTES_MAX: usize = 8 << 10;

/// SHA-256 of a line; zeros before the first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineHash([u8; 32]);

/// The fields of a line, except for the hash of the previous line.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LineContent<'a> {
    pub unix_ms: u64,
    pub event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

#[derive(Serialize)]
struct ChainedLine<'a> {
    previous: String,
    #[serde(flatten)]
    content: &'a LineContent<'a>,
}

#[derive(Deserialize)]
struct PreviousHash {
    previous: String,
}

impl LineHash {
    /// The hash of a line without its end.
    pub fn of(line: &[u8]) -> LineHash {
        LineHash(Sha256::digest(line).into())
    }

    /// As 64 hexadecimal digits.
    pub fn text(self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("invariant: a string takes any text");
            text
        })
    }

    /// Encodes the next line, including its line end, and returns its hash.
    pub fn next(self, content: &LineContent<'_>) -> (Vec<u8>, LineHash) {
        let line = ChainedLine { previous: self.text(), content };
        let mut bytes = serde_json::to_vec(&line).expect("invariant: numbers and texts are JSON");
        let hash = LineHash::of(&bytes);
        bytes.push(b'\n');
        (bytes, hash)
    }
}

/// The hash of the previous line that a line contains; `None` if it is not a line of an audit log.
pub(super) fn previous_of(line: &[u8]) -> Option<String> {
    serde_json::from_slice::<PreviousHash>(line).ok().map(|link| link.previous)
}

/// The result of verifying an intact audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedAuditLog {
    /// Number of lines.
    pub lines: u64,
    /// SHA-256 of the last line, as 64 hexadecimal digits; zeros if there is none.
    pub last: String,
}

/// Why an audit log is not intact.
#[derive(Debug, thiserror::Error)]
pub enum AuditVerifyError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The first line that breaks the chain.
    #[error("line {line}: {reason}")]
    Broken {
        /// Line number, from 1.
        line: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Verifies the hash chain of an audit log.
///
/// # Errors
/// The first line that breaks the chain or is malformed.
pub fn verify(mut log: impl BufRead) -> Result<VerifiedAuditLog, AuditVerifyError> {
    let (mut lines, mut last, mut line) = (0, LineHash::default(), Vec::new());
    loop {
        line.clear();
        log.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(VerifiedAuditLog { lines, last: last.text() });
        }
        lines += 1;
        let broken = |reason| Err(AuditVerifyError::Broken { line: lines, reason });
        let Some(content) = line.strip_suffix(b"\n") else {
            return broken("it is not complete; a node that starts with this file cuts it off");
        };
        match previous_of(content) {
            None => return broken("it is no line of an audit log"),
            Some(previous) if previous != last.text() => {
                return broken(
                    "it does not fit to the line before it: one of the two was changed, or lines are missing",
                );
            }
            Some(_) => last = LineHash::of(content),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(detail: &str) -> LineContent<'_> {
        let (protocol, address) = (Some("http"), Some("127.0.0.1".to_owned()));
        let (principal, detail) = (Some("ann"), Some(detail));
        LineContent { unix_ms: 7, event: "forbidden", protocol, address, principal, detail, lost: None }
    }

    fn lines() -> Vec<Vec<u8>> {
        let mut last = LineHash::default();
        let details = ["GET /v1/auth", "GET /v1/audit", "\"\n\u{2028}", "DELETE /v1/keys/a"];
        let line = |detail| {
            let (bytes, hash) = last.next(&content(detail));
            last = hash;
            bytes
        };
        details.map(line).to_vec()
    }

    fn broken_line(lines: &[Vec<u8>]) -> Option<u64> {
        match verify(&*lines.concat()) {
            Ok(_) => None,
            Err(AuditVerifyError::Broken { line, .. }) => Some(line),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_log_as_it_was_written_is_verified() {
        let lines = lines();
        let verified = verify(&*lines.concat()).expect("it fits");
        let last = lines[3].strip_suffix(b"\n").expect("an end");
        assert_eq!((verified.lines, verified.last), (4, LineHash::of(last).text()));
        assert_eq!(verify(&b""[..]).expect("nothing is wrong").lines, 0);
    }

    #[test]
    fn the_first_line_that_does_not_fit_is_named() {
        let whole = lines();
        let changed = |number: usize, change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let mut lines = whole.clone();
            change(&mut lines);
            assert_eq!(broken_line(&lines), Some(number as u64));
        };
        changed(3, &|lines| lines[1] = String::from_utf8_lossy(&lines[1]).replace("ann", "bob").into_bytes());
        changed(1, &|lines| drop(lines.remove(0)));
        changed(2, &|lines| drop(lines.remove(1)));
        changed(2, &|lines| lines.swap(1, 2));
        changed(3, &|lines| lines.insert(2, lines[1].clone()));
        changed(2, &|lines| lines.insert(1, b"x\n".to_vec()));
        changed(4, &|lines| lines[3].truncate(30));
        changed(1, &|lines| lines[0] = vec![b'x'; 3 * LINE_BYTES_MAX]);
    }
}
