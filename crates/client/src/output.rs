//! Standard output: whole writes, and a silent exit when its reader closes the pipe.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use rustix::termios::tcgetwinsize;

use crate::client::Response;
use crate::error::CliError;

/// The form of what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Writes `bytes` to standard output and flushes them.
pub fn write(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::OutputClosed,
        _ => CliError::io("standard output")(error),
    })
}

/// Writes one line.
pub fn line(text: &str) -> Result<(), CliError> {
    write(format!("{text}\n").as_bytes())
}

/// Prints an answer: its body as it is if JSON is wanted, otherwise a text.
pub fn answer(
    format: Output,
    answer: &Response,
    text: impl FnOnce() -> Result<String, CliError>,
) -> Result<(), CliError> {
    match format {
        Output::Json => line(String::from_utf8_lossy(&answer.body).trim_end()),
        Output::Text => line(&text()?),
    }
}

/// Whether to colour the output of a stream: it is a terminal, and `NO_COLOR` is not set
/// (<https://no-color.org>).
pub fn is_coloured(stream: &impl IsTerminal) -> bool {
    may_colour(stream.is_terminal(), std::env::var_os("NO_COLOR").as_deref())
}

fn may_colour(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Reports on standard error why a command takes longer.
pub fn progress(text: &str) {
    eprintln!("{text}");
}

/// Columns without borders, two spaces apart. They are as wide as their content, which is easy to
/// cut with `awk`, except on a terminal that is too narrow: there, long cells continue on the next
/// line.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    table_within(terminal_width(), header, rows)
}

/// Number of columns of the terminal; `None` if standard output is none, or does not say.
fn terminal_width() -> Option<u16> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten();
    size.map(|size| size.ws_col).filter(|width| *width > 0)
}

fn table_within(width: Option<u16>, header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    if !header.is_empty() {
        table.set_header(header.iter().copied());
    }
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["a".to_owned(), "1".to_owned()], vec!["longer".to_owned(), "22".to_owned()]];
        assert_eq!(table(&["KEY", "VERSION"], rows.clone()), "KEY     VERSION\na       1\nlonger  22");
        assert_eq!(table(&[], rows), "a       1\nlonger  22");
    }

    #[test]
    fn a_table_is_no_wider_than_the_terminal() {
        let row = ["17", "2026-11-27 01:00:00", "dns:app.example.org", &"a long message ".repeat(6)];
        let rows = vec![row.map(str::to_owned).to_vec()];
        let header = ["NUMBER", "TIME", "WHO", "MESSAGE"];
        let table = table_within(Some(80), &header, rows.clone());
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        assert!(table.lines().count() > 2 && table.contains("2026-11-27 01:00:00"), "{table}");
        let whole = table_within(None, &header, rows);
        assert!(whole.lines().count() == 2 && whole.lines().any(|line| line.len() > 120), "{whole}");
    }

    #[test]
    fn colours_are_for_terminals_whose_users_want_them() {
        for (is_terminal, no_color, expected) in
            [(true, None, true), (true, Some(""), true), (true, Some("1"), false), (false, None, false)]
        {
            assert_eq!(may_colour(is_terminal, no_color.map(OsStr::new)), expected, "{no_color:?}");
        }
    }

    #[test]
    fn wide_characters_count_by_their_width() {
        let rows = vec![vec!["潮".to_owned(), "1".to_owned()], vec!["ab".to_owned(), "2".to_owned()]];
        assert_eq!(table(&[], rows), "潮  1\nab  2");
    }
}
