//! `tidelock config watch`: prints a container, or all of a namespace, now and after each change.
//!
//! Uses long polls. Each names the last position received, so no change that history still holds is
//! missed, whichever node answers; a gap in history is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use tidelock_api::config::{Changes, Event, NamespaceChanges};
use tidelock_client::{Call, CliError, Response, output};

use super::diff::Side;
use super::{Session, Target, diff};
use crate::args::{Output, WatchArgs};

/// Longest wait of a poll: half of the time that a node has to answer.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Pause before unreachable nodes are asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs `config watch`.
pub fn run(session: &Session, args: &WatchArgs) -> Result<(), CliError> {
    let wait = (session.timeout / 2).min(WAIT_MAX).as_millis();
    let mut index = args.after.map(|revision| revision.to_string());
    let mut printer = Printer {
        session,
        is_of_container: args.container.is_some(),
        left: args.count,
        shown: BTreeMap::new(),
        named: BTreeSet::new(),
    };
    let mut has_begun = false;
    while printer.left != Some(0) {
        let target = match &args.container {
            Some(key) => Target::of(&[&args.namespace, "containers", key, "watch"]),
            None => Target::of(&[&args.namespace, "watch"]),
        };
        let target = target.with("index", index.as_ref()).with("label", args.label.as_ref());
        let target = target.with("wait", Some(format!("{wait}ms")));
        // A watcher waits while a cluster elects a leader or restarts; a wrong name is reported at
        // once.
        let found = match session.client.ask(&Call::get(target.into_text())) {
            Ok(answer) if has_begun && matches!(answer.status, 503 | 504) => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(CliError::Unreachable(reason)) if has_begun => {
                eprintln!("no node answers, trying again\n{reason}");
                thread::sleep(PAUSE);
                continue;
            }
            answer => read(&answer?, args.container.is_some())?,
        };
        has_begun = true;
        printer.take(&found)?;
        index = Some(found.index);
    }
    Ok(())
}

/// The answer to either kind of poll.
fn read(answer: &Response, is_of_container: bool) -> Result<NamespaceChanges, CliError> {
    if !is_of_container {
        return super::data(answer);
    }
    let Changes { index, gap, changes } = super::data(answer)?;
    Ok(NamespaceChanges { index: index.to_string(), gap, current: None, changes })
}

struct Printer<'a> {
    session: &'a Session,
    is_of_container: bool,
    /// How many more changes are printed.
    left: Option<u64>,
    /// The documents as they were printed.
    shown: BTreeMap<String, String>,
    /// The containers that were named since the state began.
    named: BTreeSet<String>,
}

impl Printer<'_> {
    fn take(&mut self, found: &NamespaceChanges) -> Result<(), CliError> {
        if found.gap {
            eprintln!("earlier changes are no longer in the history");
            self.named.clear();
        }
        for change in &found.changes {
            self.named.extend(change.key.clone());
            self.print(change)?;
        }
        if let Some(revision) = found.current {
            // Deleted in the gap.
            let gone: Vec<String> =
                self.shown.keys().filter(|key| !self.named.contains(*key)).cloned().collect();
            gone.iter().try_for_each(|key| self.print_deletion(Some(key), revision))?;
        }
        Ok(())
    }

    /// Whether one more change is printed.
    fn is_wanted(&mut self) -> bool {
        let is_wanted = self.left != Some(0);
        self.left = self.left.map(|left| left.saturating_sub(1));
        is_wanted
    }

    fn print(&mut self, change: &Event) -> Result<(), CliError> {
        let revision = change.revision.unwrap_or_default();
        if self.session.format == Output::Json {
            return match self.is_wanted() {
                true => output::line(&String::from_utf8_lossy(&super::encode(change))),
                false => Ok(()),
            };
        }
        let (Some(data), Some(key)) = (&change.data, &change.key) else {
            return self.print_deletion(change.key.as_deref(), revision);
        };
        if !self.is_wanted() {
            return Ok(());
        }
        let document = diff::document(&data.value());
        let title = format!("revision {revision}{}", self.of(key));
        let text = match self.shown.get(key) {
            None => format!("{title}\n{document}"),
            Some(before) => {
                let before = Side { title: "before", text: before };
                let diff = diff::unified(before, Side { title: &title, text: &document });
                if diff::is_coloured() { diff::coloured(&diff) } else { diff }
            }
        };
        self.shown.insert(key.clone(), document);
        output::write(text.as_bytes())
    }

    /// Prints that a container, or all of the namespace, was deleted.
    fn print_deletion(&mut self, key: Option<&str>, revision: u64) -> Result<(), CliError> {
        match key {
            Some(key) => drop(self.shown.remove(key)),
            None => self.shown.clear(),
        }
        if self.session.format == Output::Json || !self.is_wanted() {
            return Ok(());
        }
        let of = key.map(|key| self.of(key)).unwrap_or_default();
        output::line(&format!("revision {revision}{of} deleted"))
    }

    /// The name of a container, if there are several.
    fn of(&self, key: &str) -> String {
        if self.is_of_container {
            return String::new();
        }
        format!(" {}", tidelock_client::keys::printable(key.as_bytes()))
    }
}
