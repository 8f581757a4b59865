//! Which slots a shard owns, once it takes part in a move of slots.
//!
//! Owns that part of the state: what is owned, which move came last, and how far it has come here. All of it changes by
//! entries of the shard's own log alone, so nobody has to be asked whether a key belongs here. A shard that never took part
//! has none of this, and checks nothing.
//!
//! While a move is under way, keys lie among the others that are not owned: those of a copy that is not complete, and those
//! that another shard owns by now and that have not been removed. They are *hidden*: no answer shows or counts them. Keys
//! expire all the same, hidden or not: what is removed so from a copy, its giver removes, too.
//!
//! Invariants:
//! - A shard takes part in one move at a time, in the order of their numbers.
//! - How many keys are hidden is known exactly, but between freezing and release, when the giver says nothing of its number.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::codec::{self, DecodeError, Decoder};
use crate::control::slot_set::SlotSet;
use crate::router::slots::slot_of;
use crate::types::MigrationId;

/// What a shard owns, and its part in a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    pub(in crate::machine) owned: SlotSet,
    /// The last move that this shard took part in.
    pub(in crate::machine) last: MigrationId,
    pub(in crate::machine) stage: Stage,
}

/// How far the last move has come here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is over.
    Idle,
    /// A copy arrives.
    Arriving(Arrival),
    /// The slots are not owned any more; perhaps nobody owns them yet.
    Frozen {
        /// Which.
        slots: SlotSet,
        /// How many of their keys have expired since.
        removed: u64,
    },
    /// The receiver owns the slots; what is left of them here is being removed.
    Released {
        /// Which.
        slots: SlotSet,
        /// How many of their keys are left.
        rows: u64,
        /// All keys up to here were looked at.
        swept: Option<Box<[u8]>>,
    },
}

/// A copy that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// What is to come.
    pub slots: SlotSet,
    /// Which attempt.
    pub attempt: u64,
    /// The number of its next part.
    pub sequence: u64,
    /// How many keys are here already.
    pub rows: u64,
    /// What an earlier attempt brought is being removed: all keys up to here were looked at.
    pub sweeping: Option<Box<[u8]>>,
}

impl Ownership {
    /// What a shard begins its first move with.
    pub(in crate::machine) fn founded(owned: SlotSet) -> Ownership {
        Ownership { owned, last: MigrationId(0), stage: Stage::Idle }
    }

    /// What the shard owns.
    pub fn owned(&self) -> &SlotSet {
        &self.owned
    }

    /// The last move that the shard took part in.
    pub fn last(&self) -> MigrationId {
        self.last
    }

    /// How far that has come here.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Whether a key belongs here.
    pub(in crate::machine) fn owns(&self, key: &[u8]) -> bool {
        self.owned.contains(slot_of(key))
    }

    /// Whether there may be hidden keys.
    pub(in crate::machine) fn hides(&self) -> bool {
        self.stage != Stage::Idle
    }

    /// How many keys are hidden, if that is known.
    pub(in crate::machine) fn hidden(&self) -> Option<u64> {
        match &self.stage {
            Stage::Idle => Some(0),
            Stage::Arriving(Arrival { rows, .. }) | Stage::Released { rows, .. } => Some(*rows),
            Stage::Frozen { .. } => None,
        }
    }

    /// A key is removed, perhaps a hidden one.
    pub(super) fn removed(&mut self, key: &[u8]) {
        if !self.hides() || self.owns(key) {
            return;
        }
        match &mut self.stage {
            Stage::Idle => {}
            Stage::Arriving(Arrival { rows, .. }) | Stage::Released { rows, .. } => *rows -= 1,
            Stage::Frozen { removed, .. } => *removed += 1,
        }
    }

    pub(in crate::machine) fn encode(&self, out: &mut Vec<u8>) {
        self.owned.encode(out);
        codec::put_varint(out, self.last.0);
        match &self.stage {
            Stage::Idle => out.push(0),
            Stage::Arriving(arrival) => {
                out.push(1);
                arrival.slots.encode(out);
                for number in [arrival.attempt, arrival.sequence, arrival.rows] {
                    codec::put_varint(out, number);
                }
                put_place(out, arrival.sweeping.as_deref());
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
                Stage::Arriving(Arrival { slots, attempt, sequence, rows, sweeping: place(decoder)? })
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
        let arrival = Arrival {
            slots: slots.clone(),
            attempt: 3,
            sequence: 4,
            rows: 5,
            sweeping: Some((*b"k").into()),
        };
        for stage in [
            Stage::Idle,
            Stage::Arriving(arrival.clone()),
            Stage::Arriving(Arrival { sweeping: None, ..arrival }),
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
