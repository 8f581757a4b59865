//! The slots that a shard owns, once it takes part in a move of slots.
//!
//! Owns this part of the state: the owned slots, the last move, and its stage on this shard. All of
//! it changes only by entries of the shard's own log, so the shard decides on its own whether it
//! owns a key. A shard that never took part in a move has no such state and checks nothing.
//!
//! During a move, a shard may hold keys that it does not own: keys of an incomplete copy, and keys
//! that another shard owns by now and that are not removed yet. These keys are *hidden*: no reply
//! shows or counts them. Hidden keys still expire. The giver also removes every key that expires in
//! the copy.
//!
//! Invariants:
//! - A shard takes part in one move at a time, in the order of their numbers.
//! - The number of hidden keys is known exactly, except at the giver between freeze and release.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::codec::{self, DecodeError, Decoder};
use crate::slots::slot_of;
use crate::slots::slot_set::SlotSet;
use crate::types::MigrationId;

/// The owned slots, and the shard's part in a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    pub(in crate::machine) owned: SlotSet,
    /// The last move in which this shard took part.
    pub(in crate::machine) last: MigrationId,
    pub(in crate::machine) stage: Stage,
}

/// The stage of the last move on this shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The move is finished on this shard.
    Idle,
    /// Receiver: a copy is arriving.
    Incoming(IncomingSlots),
    /// Giver: it no longer owns the slots. Possibly no shard owns them yet.
    Frozen {
        /// The slots that were frozen.
        slots: SlotSet,
        /// Number of their keys that have expired since.
        removed: u64,
    },
    /// Giver: the receiver owns the slots, and the remaining keys here are being removed.
    Released {
        /// The slots that were released.
        slots: SlotSet,
        /// Number of their keys that are not removed yet.
        rows: u64,
        /// All keys up to here were inspected.
        swept: Option<Box<[u8]>>,
    },
}

/// An incomplete copy at the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingSlots {
    /// They become owned when the copy is complete.
    pub slots: SlotSet,
    /// Rises with each leader of the giver that copies.
    pub attempt: u64,
    /// Number of the part that must come next; earlier ones are duplicates.
    pub sequence: u64,
    /// Number of keys received so far.
    pub rows: u64,
    /// Set while keys of an earlier attempt are removed: all keys up to here were inspected.
    pub sweeping: Option<Box<[u8]>>,
}

impl Ownership {
    /// The ownership of a shard before its first move.
    pub(in crate::machine) fn founded(owned: SlotSet) -> Ownership {
        Ownership { owned, last: MigrationId(0), stage: Stage::Idle }
    }

    /// The slots that the shard owns now.
    pub fn owned(&self) -> &SlotSet {
        &self.owned
    }

    /// The last move in which the shard took part.
    pub fn last(&self) -> MigrationId {
        self.last
    }

    /// The stage of that move on this shard.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Whether this shard owns a key.
    pub(in crate::machine) fn owns(&self, key: &[u8]) -> bool {
        self.owned.contains(slot_of(key))
    }

    /// Whether there may be hidden keys.
    pub(in crate::machine) fn hides(&self) -> bool {
        self.stage != Stage::Idle
    }

    /// Number of hidden keys, if known.
    pub(in crate::machine) fn hidden(&self) -> Option<u64> {
        match &self.stage {
            Stage::Idle => Some(0),
            Stage::Incoming(IncomingSlots { rows, .. }) | Stage::Released { rows, .. } => Some(*rows),
            Stage::Frozen { .. } => None,
        }
    }

    /// Counts the removal of a key that may be hidden.
    pub(super) fn removed(&mut self, key: &[u8]) {
        if !self.hides() || self.owns(key) {
            return;
        }
        match &mut self.stage {
            Stage::Idle => {}
            Stage::Incoming(IncomingSlots { rows, .. }) | Stage::Released { rows, .. } => *rows -= 1,
            Stage::Frozen { removed, .. } => *removed += 1,
        }
    }

    pub(in crate::machine) fn encode(&self, out: &mut Vec<u8>) {
        self.owned.encode(out);
        codec::put_varint(out, self.last.0);
        match &self.stage {
            Stage::Idle => out.push(0),
            Stage::Incoming(incoming) => {
                out.push(1);
                incoming.slots.encode(out);
                for number in [incoming.attempt, incoming.sequence, incoming.rows] {
                    codec::put_varint(out, number);
                }
                put_place(out, incoming.sweeping.as_deref());
            }
            Stage::Frozen { slots, removed } => {
                out.push(2);
                slots.encode(out);
                codec::put_varint(out, *removed);
            }
            Stage::Released { slots, rows, swept } => {
                out.push(3);
                slots.encode(out);
                codec::put_varint(out, *rows);
                put_place(out, swept.as_deref());
            }
        }
    }

    pub(in crate::machine) fn decode(decoder: &mut Decoder<'_>) -> Result<Ownership, DecodeError> {
        let owned = SlotSet::decode(decoder)?;
        let last = MigrationId(decoder.varint()?);
        let stage = match decoder.u8()? {
            0 => Stage::Idle,
            1 => {
                let slots = SlotSet::decode(decoder)?;
                let (attempt, sequence) = (decoder.varint()?, decoder.varint()?);
                let rows = decoder.varint()?;
                Stage::Incoming(IncomingSlots { slots, attempt, sequence, rows, sweeping: place(decoder)? })
            }
            2 => Stage::Frozen { slots: SlotSet::decode(decoder)?, removed: decoder.varint()? },
            3 => {
                let (slots, rows) = (SlotSet::decode(decoder)?, decoder.varint()?);
                Stage::Released { slots, rows, swept: place(decoder)? }
            }
            _ => return Err(DecodeError::UnknownTag("stage of a move")),
        };
        Ok(Ownership { owned, last, stage })
    }
}

fn put_place(out: &mut Vec<u8>, place: Option<&[u8]>) {
    out.push(u8::from(place.is_some()));
    place.iter().for_each(|key| codec::put_bytes(out, key));
}

fn place(decoder: &mut Decoder<'_>) -> Result<Option<Box<[u8]>>, DecodeError> {
    Ok(if decoder.bool()? { Some(decoder.bytes()?.into()) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn every_stage_round_trips() {
        let slots = SlotSet::from(5..9);
        let incoming = IncomingSlots {
            slots: slots.clone(),
            attempt: 3,
            sequence: 4,
            rows: 5,
            sweeping: Some((*b"k").into()),
        };
        for stage in [
            Stage::Idle,
            Stage::Incoming(incoming.clone()),
            Stage::Incoming(IncomingSlots { sweeping: None, ..incoming }),
            Stage::Frozen { slots: slots.clone(), removed: 300 },
            Stage::Released { slots, rows: 7, swept: Some((*b"").into()) },
        ] {
            let ownership = Ownership { owned: SlotSet::from(10..20), last: MigrationId(200), stage };
            let mut bytes = vec![];
            ownership.encode(&mut bytes);
            assert_eq!(Ownership::decode(&mut Decoder::new(&bytes)), Ok(ownership));
            for cut in 0..bytes.len() {
                assert!(Ownership::decode(&mut Decoder::new(&bytes[..cut])).is_err());
            }
        }
    }
}
