//! Completion of the word at the cursor: commands and flags from their definitions, keys and
//! namespaces from the cluster, files from the disk.
//!
//! Keys are completed as paths are, up to the next slash, so that a large store shows a page of
//! choices. A node lists them from its own replica, and has a second for it: without an answer by
//! then, nothing is completed.

use std::time::Duration;

use clap::{Command, CommandFactory};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use serde_json::Value;
use tidelock_api::keys::KeyPage;
use tidelock_client::{Call, Client, ClientOptions, keys};

use super::completion::{Completion, completion};
use super::words::{before_cursor, without_program_name};
use crate::args::Cli;

/// How long a node may take to list keys or namespaces.
const TIMEOUT: Duration = Duration::from_secs(1);

/// At most as many keys are listed.
const KEYS_MAX: usize = 200;

/// Completes lines for a cluster.
pub struct LineCompleter {
    client: Client,
    commands: Command,
    files: FilenameCompleter,
}

impl LineCompleter {
    /// Asks these nodes for keys and namespaces.
    pub fn new(options: ClientOptions) -> LineCompleter {
        let mut commands = Cli::command();
        commands.build();
        LineCompleter { client: Client::new(options, TIMEOUT), commands, files: FilenameCompleter::new() }
    }

    /// Keys, and beginnings of keys up to the next slash, that begin with `begun`.
    fn keys(&self, begun: &str) -> Vec<Pair> {
        let prefix = keys::query_value(begun.as_bytes());
        let target = format!("/v1/keys?prefix={prefix}&delimiter=/&limit={KEYS_MAX}&stale=true");
        let answer = self.client.ask_for(200, &Call::get(target));
        let Ok(page) = answer.and_then(|answer| answer.json::<KeyPage>()) else { return Vec::new() };
        let folders = page.folders.into_iter().flatten().filter_map(|folder| folder.prefix);
        let keys = page.items.into_iter().filter_map(|item| item.key);
        let folders = folders.filter_map(|folder| replacement(&folder, ""));
        keys.filter_map(|key| replacement(&key, " ")).chain(folders).collect()
    }

    fn namespaces(&self, begun: &str) -> Vec<Pair> {
        let target = format!("/api/namespaces?key={}", keys::query_value(begun.as_bytes()));
        let answer = self.client.ask_for(200, &Call::get(target));
        let Ok(found) = answer.and_then(|answer| answer.json::<Value>()) else { return Vec::new() };
        let names = found["data"].as_array().into_iter().flatten();
        names.filter_map(|name| replacement(name.as_str()?, " ")).collect()
    }
}

/// A word, quoted if a shell would split it; `None` if no quotes can hold it.
fn replacement(word: &str, end: &str) -> Option<Pair> {
    let quoted = shlex::try_quote(word).ok()?;
    Some(Pair { display: word.to_owned(), replacement: format!("{quoted}{end}") })
}

impl Completer for LineCompleter {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let cursor = before_cursor(&line[..pos]);
        let found = match completion(&self.commands, without_program_name(&cursor.words), &cursor.begun) {
            Completion::OneOf(words) => {
                let fitting = words.into_iter().filter(|word| word.starts_with(&cursor.begun));
                fitting.filter_map(|word| replacement(&word, " ")).collect()
            }
            Completion::Key => self.keys(&cursor.begun),
            Completion::Namespace => self.namespaces(&cursor.begun),
            Completion::File => return self.files.complete_path(line, pos),
            Completion::Other => Vec::new(),
        };
        Ok((cursor.start, found))
    }
}

impl Helper for LineCompleter {}
impl Hinter for LineCompleter {
    type Hint = String;
}
impl Highlighter for LineCompleter {}
impl Validator for LineCompleter {}
