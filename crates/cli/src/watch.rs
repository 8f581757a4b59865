//! `tidelock watch`: prints keys as they change.
//!
//! Uses polls. Each names the cursor of the last answer, so no change is missed, whichever node
//! answers. If changes are not known any more, the present keys are printed instead.

use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tidelock_client::{Call, CliError, Client, keys, output};

use crate::args::{Output, WatchKeysArgs};

/// Longest wait of a poll: half of the time that a node has to answer.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Pause before unreachable nodes are asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs `watch`.
pub fn run(args: &WatchKeysArgs) -> Result<(), CliError> {
    let client = args.client.client()?;
    let wait = (Duration::from_millis(args.client.timeout_ms) / 2).min(WAIT_MAX).as_millis();
    let mut printer = Printer { format: args.client.output, left: args.count };
    let mut cursor = args.after.clone();
    let mut is_wanted = args.state;
    let mut has_begun = false;
    while printer.left != Some(0) {
        let mut target = format!("/v1/watch?{}&wait={wait}ms", scope(args));
        if let Some(cursor) = &cursor {
            target.push_str(&format!("&after={cursor}"));
        }
        // A watcher waits while a cluster elects a leader or restarts; a mistake is reported at
        // once.
        let answer = match client.ask(&Call::get(target)) {
            Ok(answer) if has_begun && matches!(answer.status, 503 | 504) => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(CliError::Unreachable(reason)) if has_begun => {
                eprintln!("no node answers, trying again\n{reason}");
                thread::sleep(PAUSE);
                continue;
            }
            answer => answer?.accept(200)?,
        };
        let mut found: Value = answer.json()?;
        let next =
            found["cursor"].as_str().map(str::to_owned).ok_or_else(|| answer.unintelligible("no cursor"))?;
        if found["reset"] == true && (is_wanted || cursor.is_some()) {
            if cursor.is_some() {
                eprintln!("changes may have been missed: the present keys follow");
            }
            print_state(&client, args, &mut printer)?;
        }
        (is_wanted, has_begun, cursor) = (false, true, Some(next.clone()));
        // The cursor is the position after all changes of the answer, so only the last one gets it.
        let changes = found["changes"].as_array_mut();
        if let Some(last) = changes.and_then(|changes| changes.last_mut()) {
            last["cursor"] = next.into();
        }
        for change in found["changes"].as_array().into_iter().flatten() {
            printer.print(change)?;
        }
    }
    Ok(())
}

fn scope(args: &WatchKeysArgs) -> String {
    let name = if args.key { "key" } else { "prefix" };
    let keys_only = if args.keys { "&keys_only=true" } else { "" };
    format!("{name}={}{keys_only}", keys::query_value(&args.name.0))
}

/// Prints the present keys: those that a watcher begins with.
fn print_state(client: &Client, args: &WatchKeysArgs, printer: &mut Printer) -> Result<(), CliError> {
    let prefix = keys::query_value(&args.name.0);
    let keys_only = if args.keys { "&keys=true" } else { "" };
    // The first key with a prefix is the key of this name, if there is one.
    let limit = if args.key { "&limit=1" } else { "" };
    let mut after = String::new();
    loop {
        let target = format!("/v1/keys?prefix={prefix}{keys_only}{limit}{after}");
        let answer = client.ask_for(200, &Call::get(target))?;
        let page: Value = answer.json()?;
        for item in page["items"].as_array().into_iter().flatten() {
            if !args.key || bytes(item, "key") == args.name.0 {
                printer.print(item)?;
            }
        }
        let next = bytes(&page, "next");
        if next.is_empty() || args.key {
            return Ok(());
        }
        after = format!("&after={}", keys::query_value(&next));
    }
}

struct Printer {
    format: Output,
    /// How many more changes are printed.
    left: Option<u64>,
}

impl Printer {
    fn print(&mut self, change: &Value) -> Result<(), CliError> {
        if self.left == Some(0) {
            return Ok(());
        }
        self.left = self.left.map(|left| left - 1);
        if self.format == Output::Json {
            return output::line(&change.to_string());
        }
        let (key, version) = (keys::printable(&bytes(change, "key")), &change["ver"]);
        let has_value = change.get("val").is_some() || change.get("val_b64").is_some();
        output::line(&match (change["deleted"] == true, has_value) {
            (true, _) => format!("delete {key} (version {version})"),
            (false, true) => {
                format!("put {key} = {} (version {version})", keys::printable(&bytes(change, "val")))
            }
            (false, false) => format!("put {key} (version {version})"),
        })
    }
}

/// The bytes of a member, which is a text or in base64; empty if it is missing or not base64.
fn bytes(object: &Value, name: &str) -> Vec<u8> {
    match (object[name].as_str(), object[format!("{name}_b64")].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_default(),
        (None, None) => Vec::new(),
    }
}
