//! The text of a position: what a client of `GET /v1/watch` comes back with.
//!
//! Base64 (URL alphabet, no padding) of: the format 1, a checksum of the cluster's id (4 bytes),
//! and a revision for each range of slots. A position of another cluster says nothing here, so it
//! is treated as one that is too old. Clients must not look inside.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidelock_core::slots::slot_revisions::SlotRevisions;
use uuid::Uuid;

const FORMAT: u8 = 1;

/// Longest accepted text: a revision for each of ten thousand ranges.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// What a client's text says.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) enum Cursor {
    Here(SlotRevisions),
    /// It comes from another cluster.
    Foreign,
}

pub(in crate::http) fn encode(cluster: Uuid, position: &SlotRevisions) -> String {
    let mut bytes = vec![FORMAT];
    bytes.extend_from_slice(&crc32c::crc32c(cluster.as_bytes()).to_le_bytes());
    position.encode(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// `None` if the text is not a cursor.
pub(in crate::http) fn decode(cluster: Uuid, text: &[u8]) -> Option<Cursor> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (head, position) = bytes.split_at_checked(5)?;
    let position = SlotRevisions::from_bytes(position).ok().filter(|_| head[0] == FORMAT)?;
    let is_here = head[1..] == crc32c::crc32c(cluster.as_bytes()).to_le_bytes();
    Some(if is_here { Cursor::Here(position) } else { Cursor::Foreign })
}

#[cfg(test)]
mod tests {
    use tidelock_core::slots::slot_set::SlotSet;
    use tidelock_core::types::Version;

    use super::*;

    #[test]
    fn cursors_round_trip_and_other_texts_are_none() {
        let (here, there) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let position = SlotRevisions::at(&SlotSet::from(3..900), Version(1 << 40));
        let text = encode(here, &position);
        assert_eq!(decode(here, text.as_bytes()), Some(Cursor::Here(position)));
        assert_eq!(decode(there, text.as_bytes()), Some(Cursor::Foreign));
        assert_eq!(text.len(), 20);
        for length in 0..text.len() {
            assert_eq!(decode(here, &text.as_bytes()[..length]), None, "{length}");
        }
        for bad in ["now", "AQ", "AgAAAAAA", "AQAAAAAAAA==", "é"] {
            assert_eq!(decode(here, bad.as_bytes()), None, "{bad}");
        }
    }
}
