//! Writes notices of a watch, as events or as the answer of a poll, with the members of
//! `tidelock_api::watch`.

use bytes::Bytes;
use tidelock_core::clients::key_poll::KeyPollAnswer;
use tidelock_core::clients::key_watcher::{KeyEvent, KeyNotice};
use tidelock_core::command::{KeyChange, KeyContent};
use tidelock_core::types::UnixMillis;
use uuid::Uuid;

use super::super::{json, ttl};
use super::cursor;

/// Bytes of an event besides key and value.
const EVENT_BYTES: usize = 96;

/// The events of a notice. The last one has the position as its id. `now` is the time by the clock
/// of a key's leader.
pub(super) fn events(notice: &KeyNotice, cluster: Uuid, now: impl Fn(&[u8]) -> UnixMillis) -> Bytes {
    let mut out = Vec::with_capacity(notice.events.iter().map(event_bytes).sum());
    for (number, event) in notice.events.iter().enumerate() {
        if number + 1 == notice.events.len()
            && let Some(position) = &notice.position
        {
            out.extend_from_slice(b"id: ");
            out.extend_from_slice(cursor::encode(cluster, position).as_bytes());
            out.push(b'\n');
        }
        match event {
            KeyEvent::Changed(change) => {
                let name: &[u8] = if change.content.is_some() { b"put" } else { b"delete" };
                out.extend_from_slice(b"event: ");
                out.extend_from_slice(name);
                out.extend_from_slice(b"\ndata: ");
                push_change(&mut out, change, &now);
                out.extend_from_slice(b"\n\n");
            }
            // An empty id makes clients forget the last one: they must not go on from there with a
            // part of the state.
            KeyEvent::Reset => out.extend_from_slice(b"id\nevent: reset\ndata: {}\n\n"),
            KeyEvent::Live => out.extend_from_slice(b"event: live\ndata: {}\n\n"),
            KeyEvent::Progress => out.extend_from_slice(b"event: progress\ndata: {}\n\n"),
        }
    }
    out.into()
}

/// The answer of a poll.
pub(super) fn answer(answer: &KeyPollAnswer, cluster: Uuid, now: impl Fn(&[u8]) -> UnixMillis) -> Vec<u8> {
    let KeyPollAnswer { is_reset, changes, position } = answer;
    let mut out = Vec::with_capacity(changes.iter().map(change_bytes).sum::<usize>() + 128);
    out.extend_from_slice(b"{\"cursor\":");
    json::push_text(&mut out, &cursor::encode(cluster, position));
    out.extend_from_slice(if *is_reset {
        b",\"reset\":true,\"changes\":["
    } else {
        b",\"reset\":false,\"changes\":["
    });
    for (number, change) in changes.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        push_change(&mut out, change, &now);
    }
    out.extend_from_slice(b"]}");
    out
}

/// About how many bytes a change takes when it is encoded.
fn change_bytes(change: &KeyChange) -> usize {
    change.key.len() + change.content.as_ref().map_or(0, KeyContent::value_bytes) + EVENT_BYTES
}

fn event_bytes(event: &KeyEvent) -> usize {
    match event {
        KeyEvent::Changed(change) => change_bytes(change),
        KeyEvent::Reset | KeyEvent::Live | KeyEvent::Progress => EVENT_BYTES,
    }
}

fn push_change(out: &mut Vec<u8>, change: &KeyChange, now: impl Fn(&[u8]) -> UnixMillis) {
    out.push(b'{');
    json::push_bytes_member(out, "key", &change.key);
    json::push_number_member(out, "ver", change.revision.0);
    match &change.content {
        None => out.extend_from_slice(b",\"deleted\":true"),
        Some(KeyContent { value, expires }) => {
            if let Some(expires) = expires {
                json::push_number_member(out, "ttl_ms", ttl::remaining_ms(*expires, now(&change.key)));
            }
            if let Some(value) = value {
                json::push_bytes_member(out, "val", value);
            }
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use tidelock_api::watch as api;
    use tidelock_core::slots::slot_revisions::SlotRevisions;
    use tidelock_core::slots::slot_set::SlotSet;
    use tidelock_core::types::Version;

    use super::*;

    fn changes() -> Vec<KeyChange> {
        let value = Some(Bytes::from_static(b"x\ny"));
        let content = Some(KeyContent { value, expires: Some(UnixMillis(5_000)) });
        vec![
            KeyChange { key: Bytes::from_static(b"a"), revision: Version(7), content },
            KeyChange { key: Bytes::from_static(b"\xff"), revision: Version(8), content: None },
        ]
    }

    #[test]
    fn answers_are_what_the_api_says() {
        let position = SlotRevisions::at(&SlotSet::all(), Version(8));
        let cluster = Uuid::from_u128(1);
        let cursor = cursor::encode(cluster, &position);
        let answered = KeyPollAnswer { is_reset: true, changes: changes(), position };
        let body = answer(&answered, cluster, |_| UnixMillis(2_000));
        let parsed: api::KeyChanges = serde_json::from_slice(&body).expect("an answer");
        let (key, val) = (Some("a".to_owned()), Some("x\ny".to_owned()));
        let put = api::KeyChange { key, ver: 7, ttl_ms: Some(3_000), val, ..api::KeyChange::default() };
        let key_b64 = Some("/w==".to_owned());
        let deleted = api::KeyChange { key_b64, ver: 8, deleted: true, ..api::KeyChange::default() };
        let changes = vec![put, deleted];
        assert_eq!(parsed, api::KeyChanges { cursor, reset: true, changes });
    }

    #[test]
    fn the_last_event_of_a_notice_has_the_cursor() {
        let position = SlotRevisions::at(&SlotSet::all(), Version(8));
        let events: Vec<KeyEvent> = changes().into_iter().map(KeyEvent::Changed).collect();
        let notice = KeyNotice { events, position: Some(position.clone()) };
        let cluster = Uuid::from_u128(1);
        let shown = super::events(&notice, cluster, |_| UnixMillis(2_000));
        let expected = format!(
            "event: put\ndata: {{\"key\":\"a\",\"ver\":7,\"ttl_ms\":3000,\"val\":\"x\\ny\"}}\n\n\
             id: {}\nevent: delete\ndata: {{\"key_b64\":\"/w==\",\"ver\":8,\"deleted\":true}}\n\n",
            cursor::encode(cluster, &position)
        );
        assert_eq!(String::from_utf8_lossy(&shown), expected);
        let reset = KeyNotice { events: vec![KeyEvent::Reset], position: None };
        assert_eq!(super::events(&reset, cluster, |_| UnixMillis(0)), "id\nevent: reset\ndata: {}\n\n");
    }
}
