//! The removal of all keys: the request of a client, its parts for single shards, and the answers.
//!
//! Owns what a part removes, and its encoding. The router sends the parts and decides whether they
//! have covered every slot. Configuration, kept outcomes of transactions and everything else that
//! is no key stays.

use alloc::vec::Vec;
use bytes::Bytes;

use super::{Refusal, ShardRefusal, validate_key};
use crate::codec::{self, DecodeError, Decoder};
use crate::slots::slot_revisions::SlotRevisions;
use crate::slots::slot_set::SlotSet;
use crate::types::{ShardId, Version};

/// Removes keys that a shard owns. A shard that takes part in no move of slots removes all of them
/// at once. Otherwise it also holds keys that it does not own, and removes up to
/// [`limits::EXPIRED_KEYS_MAX`](crate::limits::EXPIRED_KEYS_MAX) keys; its answer then says where
/// to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Any data shard.
    pub shard: ShardId,
    /// Only keys of these slots; `None`: of all slots.
    pub slots: Option<SlotSet>,
    /// Only keys after this one; `None`: all keys.
    pub after: Option<Bytes>,
}

/// The answer of a shard to a [`Flush`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushedPart {
    /// The slots that the shard owned, as in [`ShardAnswer`](super::ShardAnswer).
    pub owned: Option<SlotSet>,
    /// The revision at which the keys of this step were removed.
    pub revision: Version,
    /// Continue after this key; `None`: no key is left.
    pub next: Option<Bytes>,
}

/// The answer to [`Request::Flush`](super::Request::Flush).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlushReply {
    /// Every key that existed when the request arrived is removed. The revisions at which the keys
    /// of each slot were removed; [`Version::ABSENT`] for slots that took several steps.
    Complete(SlotRevisions),
    /// The keys of some slots were removed. Those of the others may be, in part or as a whole.
    Incomplete {
        /// Number of slots whose keys were removed.
        slots: u32,
        /// Why the other keys were not, or are not known to be removed.
        cause: Refusal,
    },
}

impl Flush {
    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        self.after.as_ref().map_or(Ok(()), |after| validate_key(after))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.shard.0);
        put_slots(out, self.slots.as_ref());
        put_key(out, self.after.as_ref());
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Flush, DecodeError> {
        let shard = ShardId(decoder.varint()?);
        Ok(Flush { shard, slots: slots(decoder)?, after: key(decoder, owner)? })
    }
}

impl FlushedPart {
    /// Appends the encoding used between nodes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_slots(out, self.owned.as_ref());
        codec::put_varint(out, self.revision.0);
        put_key(out, self.next.as_ref());
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<FlushedPart, DecodeError> {
        let owned = slots(decoder)?;
        let revision = Version(decoder.varint()?);
        Ok(FlushedPart { owned, revision, next: key(decoder, owner)? })
    }
}

fn put_slots(out: &mut Vec<u8>, slots: Option<&SlotSet>) {
    out.push(u8::from(slots.is_some()));
    slots.iter().for_each(|slots| slots.encode(out));
}

fn slots(decoder: &mut Decoder<'_>) -> Result<Option<SlotSet>, DecodeError> {
    Ok(if decoder.bool()? { Some(SlotSet::decode(decoder)?) } else { None })
}

fn put_key(out: &mut Vec<u8>, key: Option<&Bytes>) {
    out.push(u8::from(key.is_some()));
    key.iter().for_each(|key| codec::put_bytes(out, key));
}

fn key(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Option<Bytes>, DecodeError> {
    Ok(if decoder.bool()? { Some(decoder.shared(owner)?) } else { None })
}

#[cfg(test)]
mod tests {
    use super::super::Write;
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;

    #[test]
    fn parts_and_answers_round_trip() {
        let slots = Some(SlotSet::from(3..9));
        for slots in [None, slots.clone()] {
            for after in [None, Some(Bytes::from_static(b"k"))] {
                let flush = Flush { shard: ShardId(300), slots: slots.clone(), after: after.clone() };
                assert_round_trip(Write::Flush(Box::new(flush)));
                let part = FlushedPart { owned: slots.clone(), revision: Version(1 << 40), next: after };
                let mut bytes = vec![];
                part.encode(&mut bytes);
                let bytes = Bytes::from(bytes);
                assert_eq!(FlushedPart::decode(&mut Decoder::new(&bytes), &bytes), Ok(part));
                for cut in 0..bytes.len() {
                    assert!(FlushedPart::decode(&mut Decoder::new(&bytes[..cut]), &bytes).is_err());
                }
            }
        }
    }

    #[test]
    fn keys_within_limits_are_accepted() {
        let flush = |after: &'static [u8]| Flush {
            shard: ShardId(1),
            slots: None,
            after: Some(Bytes::from_static(after)),
        };
        assert_eq!(flush(b"k").validate(), Ok(()));
        assert!(flush(b"").validate().is_err());
    }
}
