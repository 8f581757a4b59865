//! The logs of several nodes on one terminal: whole lines, each after the name of its node.
//!
//! Owns the splitting of a stream into lines. A line that is too long is cut, so that memory stays
//! bounded.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use tidelock_client::output;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A line is cut after this many bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Colours of the names, in turn.
const COLOURS: [AnsiColor; 6] = [
    AnsiColor::Cyan,
    AnsiColor::Yellow,
    AnsiColor::Green,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::Red,
];

/// Collects bytes until they are lines.
#[derive(Debug, Default)]
struct LineBuffer {
    pending: Vec<u8>,
}

impl LineBuffer {
    /// Adds bytes, and passes each line that they complete to `emit`, without its line break.
    fn push(&mut self, mut bytes: &[u8], mut emit: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.pending.extend_from_slice(&bytes[..end]);
            emit(&self.pending);
            self.pending.clear();
            bytes = &bytes[end + 1..];
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() > LINE_BYTES_MAX {
            self.finish(emit);
        }
    }

    /// Passes the rest to `emit`, if there is any.
    fn finish(&mut self, mut emit: impl FnMut(&[u8])) {
        if !self.pending.is_empty() {
            emit(&self.pending);
            self.pending.clear();
        }
    }
}

/// Copies `stream` to standard output, each line after the name of the node at `place`, until it
/// ends.
pub async fn copy(mut stream: impl AsyncRead + Unpin, name: String, place: usize) {
    let prefix = prefix(&name, place, output::is_coloured(&io::stdout()));
    let mut lines = LineBuffer::default();
    let mut chunk = vec![0; 16 << 10];
    loop {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(count) => lines.push(&chunk[..count], |line| print(&prefix, line)),
        }
    }
    lines.finish(|line| print(&prefix, line));
}

fn prefix(name: &str, place: usize, in_colour: bool) -> String {
    if !in_colour {
        return format!("{name} | ");
    }
    let style = Style::new().fg_color(Some(COLOURS[place % COLOURS.len()].into()));
    format!("{style}{name} |{style:#} ")
}

fn print(prefix: &str, line: &[u8]) {
    let mut whole = Vec::with_capacity(prefix.len() + line.len() + 1);
    whole.extend_from_slice(prefix.as_bytes());
    whole.extend_from_slice(line);
    whole.push(b'\n');
    // A closed output does not stop the cluster; the terminal's own signal does.
    let _ = io::stdout().lock().write_all(&whole);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut buffer = LineBuffer::default();
        let mut lines = vec![];
        for chunk in chunks {
            buffer.push(chunk, |line| lines.push(line.to_vec()));
        }
        buffer.finish(|line| lines.push(line.to_vec()));
        lines
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        for chunks in [&[&b"one\ntwo\n\nthree"[..]][..], &[b"on", b"e", b"\ntwo\n", b"\n", b"thr", b"ee"]] {
            assert_eq!(lines(chunks), [&b"one"[..], b"two", b"", b"three"]);
        }
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        assert_eq!(lines(&[&long, b"y\n"]), [&long[..], b"y"]);
    }

    #[test]
    fn names_stand_before_lines() {
        assert_eq!(prefix("node-1", 0, false), "node-1 | ");
        let coloured = prefix("node-1", 0, true);
        assert!(coloured.starts_with("\x1b[36mnode-1 |") && coloured.ends_with("\x1b[0m "), "{coloured:?}");
    }
}
