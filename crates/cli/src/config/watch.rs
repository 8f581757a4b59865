//! `tidelock config watch`: prints a container now and after each change of its document.
//!
//! Uses long polls. Each names the last revision received, so no change that history still holds is
//! missed, whichever node answers; a gap in history is reported.

use std::thread;
use std::time::Duration;

use tidelock_api::config::{Changes, Event};
use tidelock_client::{Call, CliError, output};

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
    let mut index = args.after;
    let mut shown = String::new();
    let (mut count, mut has_begun) = (0, false);
    while args.count.is_none_or(|max| count < max) {
        let target = Target::of(&[&args.namespace, "containers", &args.container, "watch"]);
        let target = target.with("index", index).with("wait", Some(format!("{wait}ms")));
        // A watcher waits while a cluster elects a leader or restarts; a wrong name is reported at
        // once.
        let found = match session.client.ask(&Call::get(target.into_text())) {
            Ok(answer) if has_begun && matches!(answer.status, 503 | 504) => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(CliError::Unreachable(reason)) if has_begun => {
                eprintln!("no node is reachable, trying again\n{reason}");
                thread::sleep(PAUSE);
                continue;
            }
            answer => super::data::<Changes>(&answer?)?,
        };
        has_begun = true;
        if found.gap {
            eprintln!("earlier changes are no longer in the history");
        }
        for change in &found.changes {
            print(session, change, &mut shown)?;
            count += 1;
            if args.count.is_some_and(|max| count >= max) {
                break;
            }
        }
        index = Some(found.index);
    }
    Ok(())
}

fn print(session: &Session, change: &Event, shown: &mut String) -> Result<(), CliError> {
    if session.format == Output::Json {
        return output::line(&String::from_utf8_lossy(&super::encode(change)));
    }
    let document = change.data.as_ref().map(|data| diff::document(&data.value())).unwrap_or_default();
    let revision = change.revision.unwrap_or_default();
    let text = if shown.is_empty() || document.is_empty() {
        let state = if document.is_empty() { "deleted" } else { "" };
        format!("revision {revision} {state}").trim_end().to_owned() + "\n" + &document
    } else {
        let before = Side { title: "before", text: shown };
        let diff = diff::unified(before, Side { title: &format!("revision {revision}"), text: &document });
        if diff::is_coloured() { diff::coloured(&diff) } else { diff }
    };
    *shown = document;
    output::write(text.as_bytes())
}
