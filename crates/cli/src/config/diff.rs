//! `tidelock config diff`: the differences between two revisions, for people.
//!
//! Owns the text that is compared (documents with one entry per line, keys in order) and its
//! colours. With `--output json` programs get the node's answer.

use std::fmt::Write as _;
use std::io;

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use similar::TextDiff;
use tidelock_api::config::{Content, Done, InheritedChange, ItemChange, Json, PreviewedDocument};
use tidelock_api::revisions::{ContainerDiff, NamespaceDiff};
use tidelock_client::{CliError, keys, output};

use super::{Session, Target, show};
use crate::args::DiffArgs;

/// Lines shown around a difference.
const CONTEXT_LINES: usize = 3;

/// Runs `config diff`.
pub fn run(session: &Session, args: &DiffArgs) -> Result<(), CliError> {
    let target = match &args.container {
        Some(container) => Target::of(&[&args.namespace, "containers", container, "diff"]),
        None => Target::of(&[&args.namespace, "diff"]),
    };
    let target = target.with("from", Some(args.from)).with("to", args.to);
    let name = args.container.as_deref().unwrap_or(&args.namespace);
    let title = |revision: u64| format!("{name} at revision {revision}");
    let (from, to, before, after) = if args.container.is_some() {
        let Some(found) = session.show::<ContainerDiff>(target)? else { return Ok(()) };
        (found.from, found.to, document(&found.before.value()), document(&found.after.value()))
    } else {
        let Some(found) = session.show::<NamespaceDiff>(target)? else { return Ok(()) };
        let before = listing(&found.changes, |change| change.before.as_ref());
        (found.from, found.to, before, listing(&found.changes, |change| change.after.as_ref()))
    };
    let (from, to) = (title(from), title(to));
    let diff = unified(Side { title: &from, text: &before }, Side { title: &to, text: &after });
    output::write(if is_coloured() { coloured(&diff) } else { diff }.as_bytes())
}

/// Prints the items that differ between two states with these titles.
pub fn items((from, to): (&str, &str), changes: &[ItemChange]) -> Result<(), CliError> {
    let before = listing(changes, |change| change.before.as_ref());
    let after = listing(changes, |change| change.after.as_ref());
    let diff = unified(Side { title: from, text: &before }, Side { title: to, text: &after });
    output::write(if is_coloured() { coloured(&diff) } else { diff }.as_bytes())
}

/// Prints what a change would do: the differences of the documents, and the items that would
/// change.
pub fn preview(what: &str, done: &Done) -> Result<(), CliError> {
    let Done { revision, changed, changes, documents, inherited_by, .. } = done;
    if !changed {
        return output::line(&format!("{what}: nothing would change at revision {revision}"));
    }
    let (now, then) = (format!("at revision {revision}"), "after the change");
    let diff: String = documents.iter().flatten().map(|found| previewed(found, &now, then)).collect();
    output::write(if is_coloured() { coloured(&diff) } else { diff }.as_bytes())?;
    for InheritedChange { namespace, containers } in inherited_by {
        let containers: Vec<String> = containers.iter().map(|key| show::name(key)).collect();
        let namespace = show::name(namespace);
        output::line(&format!("{what}: namespace {namespace} inherits it: {}", containers.join(", ")))?;
    }
    match changes.as_deref().unwrap_or_default() {
        [] => output::line(&format!("{what}: would be the next revision after {revision}")),
        changes => {
            let changes = show::effects(changes);
            output::line(&format!("{what}: would be the next revision after {revision}: {changes}"))
        }
    }
}

fn previewed(found: &PreviewedDocument, now: &str, then: &str) -> String {
    let (before, after) = (document(&found.before.value()), document(&found.after.value()));
    let container = keys::printable(found.container.as_bytes());
    let (now, then) = (format!("{container} {now}"), format!("{container} {then}"));
    unified(Side { title: &now, text: &before }, Side { title: &then, text: &after })
}

/// Whether to colour the output: on a terminal, unless `NO_COLOR` is set (no-color.org).
pub fn is_coloured() -> bool {
    output::is_coloured(&io::stdout())
}

/// A document with one entry per line; empty for a missing one.
pub fn document(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    serde_json::to_string_pretty(value).expect("invariant: what was JSON is JSON") + "\n"
}

/// One side of a namespace's changes.
fn listing(changes: &[ItemChange], side: impl Fn(&ItemChange) -> Option<&Content>) -> String {
    let mut out = String::new();
    for change in changes {
        let content = match side(change) {
            None | Some(Content::None) => continue,
            Some(Content::Pair(pair)) => pair.value.as_ref().map_or(Value::Null, Json::value),
            Some(Content::Container(container)) => {
                serde_json::to_value(&container.fields).expect("invariant: fields are JSON")
            }
        };
        let shown = if content.is_null() { "null\n".to_owned() } else { document(&content) };
        let key = Value::from(&*change.key);
        write!(out, "{} {key} = {shown}", change.kind).expect("invariant: a string takes all text");
    }
    out
}

/// One side of a diff.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// What the head of the diff calls it.
    pub title: &'a str,
    /// Its lines.
    pub text: &'a str,
}

/// A unified diff; empty if there is no difference.
pub fn unified(before: Side<'_>, after: Side<'_>) -> String {
    TextDiff::from_lines(before.text, after.text)
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(before.title, after.title)
        .to_string()
}

/// Colours a unified diff.
pub fn coloured(diff: &str) -> String {
    let style = |line: &str| match line.as_bytes().first() {
        _ if line.starts_with("---") || line.starts_with("+++") => Style::new().bold(),
        Some(b'-') => AnsiColor::Red.on_default(),
        Some(b'+') => AnsiColor::Green.on_default(),
        Some(b'@') => AnsiColor::Cyan.on_default(),
        _ => Style::new(),
    };
    diff.lines().fold(String::new(), |mut out, line| {
        let style = style(line);
        writeln!(out, "{style}{line}{style:#}").expect("invariant: a string takes all text");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_differ_line_by_line() {
        let (before, after) = (document(&json!({"a": 1, "b": [1]})), document(&json!({"a": 2, "b": [1]})));
        let (old, new) = (Side { title: "old", text: &before }, Side { title: "new", text: &after });
        let diff = unified(old, new);
        assert_eq!(
            diff,
            "--- old\n+++ new\n@@ -1,5 +1,5 @@\n {\n-  \"a\": 1,\n+  \"a\": 2,\n   \"b\": [\n     1\n   ]\n"
        );
        assert_eq!(unified(old, Side { title: "new", text: &before }), "");
        assert!(coloured(&diff).contains("\u{1b}[31m-  \"a\": 1,\u{1b}[0m\n"), "{:?}", coloured(&diff));
    }

    #[test]
    fn what_was_not_there_is_all_new() {
        let changes = json!([{"kind": "pair", "key": "p", "action": "create", "before": null, "after": {"value": "x", "datatype": 2}}]);
        let changes: Vec<ItemChange> = serde_json::from_value(changes).expect("changes");
        let before = listing(&changes, |change| change.before.as_ref());
        let after = listing(&changes, |change| change.after.as_ref());
        assert_eq!((before.as_str(), after.as_str()), ("", "pair \"p\" = \"x\"\n"));
    }
}
