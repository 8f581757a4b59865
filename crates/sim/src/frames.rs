//! A sample of the frames between nodes, as runs produce them. Each release keeps one in
//! `tests/compat`, and later releases must read it.
//!
//! Owns which frames are kept: those with a name in the decoded payload that no earlier frame of
//! the same kind has.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidelock_core::formats::FramePayload;

/// Longest frame that is kept: long ones repeat what short ones contain.
const FRAME_BYTES_MAX: usize = 512;

/// Most frames of one kind that are kept. Messages of Raft contain the commands of clients, so
/// their names have no end.
const FRAMES_MAX: usize = 120;

/// The frames that are kept so far.
#[derive(Debug, Default)]
pub struct FrameSample {
    frames: Vec<Bytes>,
    /// Kinds of frames, with the names in their payloads.
    seen: BTreeSet<(u8, String)>,
}

impl FrameSample {
    /// Takes note of a frame.
    pub fn note(&mut self, payload: &Bytes) {
        if payload.len() > FRAME_BYTES_MAX {
            return;
        }
        let Ok(decoded) = FramePayload::decode(payload) else { return };
        let kind = payload[0];
        if self.frames.iter().filter(|frame| frame[0] == kind).count() >= FRAMES_MAX {
            return;
        }
        let before = self.seen.len();
        self.seen.extend(names(&format!("{decoded:?}")).map(|name| (kind, name)));
        if self.seen.len() > before {
            self.frames.push(payload.clone());
        }
    }

    /// The frames.
    pub fn frames(&self) -> &[Bytes] {
        &self.frames
    }
}

/// The names in a debug text that begin with a capital letter, outside of quoted texts.
fn names(text: &str) -> impl Iterator<Item = String> {
    let outside = text.split('"').step_by(2);
    let words = outside.flat_map(|part| part.split(|character: char| !character.is_ascii_alphanumeric()));
    words.filter(|word| word.starts_with(|first: char| first.is_ascii_uppercase())).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_kept_if_it_has_a_name_that_no_earlier_one_has() {
        let found: Vec<String> =
            names(r#"Reads([Ask { read: Get { key: b"Key" }, since: MigrationId(7) }])"#).collect();
        assert_eq!(found, ["Reads", "Ask", "Get", "MigrationId"]);
        let mut sample = FrameSample::default();
        // Reports of a clock: without what the peer sent, with it, and both again.
        let (without, with) = (&[9, 1, 0][..], &[9, 1, 1, 2, 3][..]);
        for payload in [without, with, &[9, 7, 0], &[9, 7, 1, 8, 9], &[77]] {
            sample.note(&Bytes::copy_from_slice(payload));
        }
        assert_eq!(sample.frames(), [without, with]);
    }
}
