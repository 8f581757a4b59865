//! Describes requests, replies and events for a trace, as text and as numbers.
//!
//! Owns how they are distinguished in the hash of a run, and shortened for people. It decides
//! nothing.

use tidelock_core::command::{ReadReply, Reply, Request, StoredValue};
use tidelock_core::event::Event;
use tidelock_core::storage::snapshot::SnapshotDone;
use tidelock_core::trace::TraceEvent;

use crate::trace::digest;

/// What distinguishes an event of a link, as numbers.
pub fn link_facts(event: &Event) -> (u64, u64) {
    match event {
        Event::Frame { payload, .. } => (0, digest(payload)),
        Event::LinkUp(_) => (1, 0),
        _ => (2, 0),
    }
}

/// What distinguishes what happened in the consensus of a shard, as a number.
pub fn trace_fact(event: &TraceEvent) -> u64 {
    digest(format!("{:?}", event.kind).as_bytes())
}

/// What distinguishes a reply, as numbers.
pub fn reply_facts(reply: &Reply) -> (u64, u64) {
    match reply {
        Reply::Read(ReadReply::Value(Some(StoredValue { version, value, .. }))) => {
            (1, version.0 ^ digest(value))
        }
        Reply::Read(ReadReply::Value(None)) => (2, 0),
        Reply::Read(ReadReply::Page(page)) => {
            let versions: Vec<u8> = page.items.iter().flat_map(|item| item.version.0.to_le_bytes()).collect();
            (3, digest(&versions))
        }
        // Two different replies have different texts.
        reply => (4, digest(format!("{reply:?}").as_bytes())),
    }
}

/// A request for the trace; values are truncated, since they only name their operation.
pub fn brief(request: &Request) -> String {
    shorten(format!("{request:?}"))
}

/// A reply for the trace.
pub fn brief_reply(reply: &Reply) -> String {
    shorten(format!("{reply:?}"))
}

/// The outcome of a task on snapshot files, for the trace.
pub fn brief_done(done: &SnapshotDone) -> String {
    let id = done.id();
    let what = match done {
        SnapshotDone::Written { .. } => "block written",
        SnapshotDone::Finished { .. } => "finished",
        SnapshotDone::Read { .. } => "part read",
        SnapshotDone::Received { .. } => "part received",
        SnapshotDone::Loaded { .. } => "loaded",
        SnapshotDone::Discarded { .. } => "in place",
        SnapshotDone::Removed { .. } => "removed",
        SnapshotDone::Failed { reason, .. } => reason,
    };
    format!("snapshot of shard {} at {}: {what}", id.shard, id.index)
}

/// An event of a link, for the trace.
pub fn brief_event(event: &Event) -> String {
    match event {
        Event::Frame { payload, .. } => format!("{} bytes", payload.len()),
        other => format!("{other:?}"),
    }
}

/// Shortens the text of a request or reply, and shows its keys and values as text.
fn shorten(text: String) -> String {
    const CHARACTERS_MAX: usize = 160;
    let mut text = with_readable_bytes(&text);
    if let Some((end, _)) = text.char_indices().nth(CHARACTERS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Writes the lists of numbers that `Debug` prints for keys and values as `b"…"`.
fn with_readable_bytes(text: &str) -> String {
    let mut readable = String::new();
    let mut rest = text;
    while let Some(colon) = rest.find(": [") {
        let (before, list) = rest.split_at(colon + 2);
        readable.push_str(before);
        rest = list;
        let is_bytes = before.ends_with("key: ") || before.ends_with("value: ");
        let bytes = list[1..].split_once(']').filter(|_| is_bytes).and_then(|(numbers, rest)| {
            let numbers: Result<Vec<u8>, _> = numbers.split(", ").map(str::parse).collect();
            Some((numbers.ok()?, rest))
        });
        if let Some((bytes, after)) = bytes {
            readable.push_str(&format!("b\"{}\"", bytes.escape_ascii()));
            rest = after;
        }
    }
    readable.push_str(rest);
    readable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_shown_as_text() {
        let text = "Put { key: [97, 47, 0, 255], value: [0, 7], nodes: [1, 2] }, Get { key: [98] }";
        let expected = r#"Put { key: b"a/\x00\xff", value: b"\x00\x07", nodes: [1, 2] }, Get { key: b"b" }"#;
        assert_eq!(with_readable_bytes(text), expected);
        for other in ["Put { key: [], value: [300] }", "key: [1", "key: [", ": [", ""] {
            assert_eq!(with_readable_bytes(other), other);
        }
    }
}
