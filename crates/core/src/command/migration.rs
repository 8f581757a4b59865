//! Moves of slots between data shards: the steps of a move as commands, and the replies of the
//! shards.
//!
//! The giver is the shard that a move takes slots from, the receiver the shard that gets them. Owns
//! the steps, their limits and their layout. `machine::moving` owns the effect of a step,
//! `node::migrating` decides which shard takes which step when. Every step identifies itself by
//! migration, attempt and sequence, so a shard recognizes duplicates and late arrivals.

use alloc::vec::Vec;
use bytes::Bytes;

use super::config::Name;
use super::{KeptOutcome, RestoredKey, RowLayout, ShardRefusal, check_lease_block, validate_key};
use crate::codec::{self, DecodeError, Decoder, codes};
use crate::limits;
use crate::slots::slot_set::SlotSet;
use crate::types::{MigrationId, ShardId, UnixMillis, Version};
use crate::version::ClusterVersion;

/// A step of a move, in the log of the giver or the receiver. Answered by
/// [`WriteReply::Move`](super::WriteReply::Move).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The shard that takes the step.
    pub shard: ShardId,
    /// Later moves have higher numbers. A step of an earlier move has no effect.
    pub migration: MigrationId,
    /// What the shard does.
    pub step: MoveStep,
}

/// A step of a move on one of its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// Receiver: begins a copy. Each such command removes some keys of earlier attempts; it is
    /// answered by [`MoveReply::Again`] until none is left.
    Open {
        /// Rises with each leader of the giver that copies.
        attempt: u64,
        /// They must not overlap the slots that the receiver owns.
        slots: SlotSet,
        /// The slots that the receiver owned before its first move; ignored if it took part in one.
        founding: SlotSet,
        /// Maximum number of keys to inspect for removal, 1 to [`limits::MOVE_KEYS_PER_STEP_MAX`].
        limit: usize,
    },
    /// Receiver: stores a part of the copy.
    Import(Import),
    /// Receiver: the copy is complete and no shard owns the slots, so the receiver becomes their
    /// owner.
    Own {
        /// The attempt whose copy is complete.
        attempt: u64,
        /// Number of parts of that attempt.
        sequence: u64,
        /// The giver's revision. The next version that the receiver assigns is higher.
        revision: Version,
        /// A block with the giver's floor for the revisions of new namespaces.
        config: Bytes,
        /// The outcomes of transactions in the slots, at most [`limits::OUTCOMES_MAX`].
        outcomes: Vec<KeptOutcome>,
        /// Set if the slots have leases: the time at which the receiver's leader proposed the step;
        /// 0 until then. The leases last as after a change of the leader, because the giver's
        /// leader may have another clock.
        leases_at: Option<UnixMillis>,
    },
    /// Giver: gives up ownership of the slots.
    Freeze {
        /// The giver must own all of them.
        slots: SlotSet,
        /// The slots that the giver owned before its first move; ignored if it took part in one.
        founding: SlotSet,
    },
    /// Giver: the receiver owns the slots. The giver may remove its copy.
    Release {
        /// Number of keys in the slots when they were frozen.
        rows: u64,
    },
    /// Giver: removes some of the released keys. Answered by [`MoveReply::Again`] until none is
    /// left.
    Purge {
        /// Maximum number of keys to inspect, 1 to [`limits::MOVE_KEYS_PER_STEP_MAX`].
        limit: usize,
    },
}

/// A part of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The attempt to which it belongs.
    pub attempt: u64,
    /// Its number in that attempt, from 0 without gaps.
    pub sequence: u64,
    /// The giver's revision. No version in this part is higher.
    pub revision: Version,
    /// Current state of keys. Together with `removals` at most [`limits::RESTORE_BYTES_MAX`] bytes.
    pub rows: Vec<RestoredKey>,
    /// Keys of earlier parts that no longer exist.
    pub removals: Vec<Bytes>,
    /// A part of one configuration namespace.
    pub config: Option<NamespacePart>,
    /// A block of leases and locks. These are copied after the slots are frozen.
    pub leases: Option<Bytes>,
}

/// A part of the copy of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePart {
    /// Its slot belongs to the move.
    pub namespace: Name,
    /// Whether to drop what earlier parts brought of the namespace.
    pub begins: bool,
    /// A block of the namespace; `None` if the namespace no longer exists.
    pub block: Option<Bytes>,
}

/// A shard's reply to a step of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReply {
    /// The step was taken, now or earlier.
    Done,
    /// The step is incomplete; send it again.
    Again,
    /// The receiver owns the slots already.
    Owned,
    /// The step belongs to a move or an attempt that has ended. It has no effect now or later.
    Outdated,
}

const STEP_OPEN: u8 = 1;
const STEP_IMPORT: u8 = 2;
const STEP_OWN: u8 = 3;
const STEP_FREEZE: u8 = 4;
const STEP_RELEASE: u8 = 5;
const STEP_PURGE: u8 = 6;
const STEP_OWN_OUTCOMES: u8 = 7;
/// A part of a copy with leases, and the last step of a move of slots with leases.
const STEP_IMPORT_LEASES: u8 = 8;
const STEP_OWN_LEASES: u8 = 9;

impl Move {
    /// See [`Write::needed_version`](super::Write::needed_version).
    pub(super) fn needed_version(&self) -> ClusterVersion {
        match &self.step {
            MoveStep::Own { leases_at: Some(_), .. } => ClusterVersion::WITH_COORDINATION,
            MoveStep::Import(import) if import.has_leases() => ClusterVersion::WITH_COORDINATION,
            MoveStep::Own { outcomes, .. } if !outcomes.is_empty() => ClusterVersion::WITH_TRANSACTIONS,
            _ => ClusterVersion::FIRST,
        }
    }

    /// Whether the shard's leader must fill in the time at which it proposes the step.
    pub(super) fn needs_clock(&self) -> bool {
        matches!(self.step, MoveStep::Own { leases_at: Some(_), .. })
    }

    /// The step as the log holds it, proposed at `now` by the clock of the shard's leader.
    pub(super) fn at(&self, now: UnixMillis) -> Move {
        let mut step = self.clone();
        if let MoveStep::Own { leases_at: Some(at), .. } = &mut step.step {
            *at = now;
        }
        step
    }

    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        if self.shard == ShardId::PRIME {
            return Err(ShardRefusal::invalid("the prime shard holds no slots"));
        }
        match &self.step {
            MoveStep::Import(import) => import.validate(),
            MoveStep::Own { config, outcomes, .. } => {
                if outcomes.len() > limits::OUTCOMES_MAX {
                    return Err(ShardRefusal::invalid("more outcomes than a shard keeps"));
                }
                check_config(config)
            }
            MoveStep::Open { limit, .. } | MoveStep::Purge { limit }
                if !(1..=limits::MOVE_KEYS_PER_STEP_MAX).contains(limit) =>
            {
                Err(ShardRefusal::invalid("more keys of a move than one command may look at"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.shard.0);
        codec::put_varint(out, self.migration.0);
        match &self.step {
            MoveStep::Open { attempt, slots, founding, limit } => {
                out.push(STEP_OPEN);
                codec::put_varint(out, *attempt);
                slots.encode(out);
                founding.encode(out);
                codec::put_varint(out, *limit as u64);
            }
            MoveStep::Import(import) => {
                out.push(if import.has_leases() { STEP_IMPORT_LEASES } else { STEP_IMPORT });
                import.encode(out);
            }
            MoveStep::Own { attempt, sequence, revision, config, outcomes, leases_at } => {
                // Earlier releases know only the step without outcomes, or the one without leases.
                out.push(match leases_at {
                    Some(_) => STEP_OWN_LEASES,
                    None if outcomes.is_empty() => STEP_OWN,
                    None => STEP_OWN_OUTCOMES,
                });
                leases_at.iter().for_each(|at| codec::put_varint(out, at.0));
                for number in [*attempt, *sequence, revision.0] {
                    codec::put_varint(out, number);
                }
                codec::put_bytes(out, config);
                if !outcomes.is_empty() || leases_at.is_some() {
                    codec::put_varint(out, outcomes.len() as u64);
                    outcomes.iter().for_each(|outcome| outcome.encode(out));
                }
            }
            MoveStep::Freeze { slots, founding } => {
                out.push(STEP_FREEZE);
                slots.encode(out);
                founding.encode(out);
            }
            MoveStep::Release { rows } => {
                out.push(STEP_RELEASE);
                codec::put_varint(out, *rows);
            }
            MoveStep::Purge { limit } => {
                out.push(STEP_PURGE);
                codec::put_varint(out, *limit as u64);
            }
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Move, DecodeError> {
        let (shard, migration) = (ShardId(decoder.varint()?), MigrationId(decoder.varint()?));
        let step = match decoder.u8()? {
            STEP_OPEN => {
                let attempt = decoder.varint()?;
                let (slots, founding) = (SlotSet::decode(decoder)?, SlotSet::decode(decoder)?);
                MoveStep::Open { attempt, slots, founding, limit: limit(decoder)? }
            }
            tag @ (STEP_IMPORT | STEP_IMPORT_LEASES) => {
                MoveStep::Import(Import::decode(tag == STEP_IMPORT_LEASES, decoder, owner)?)
            }
            tag @ (STEP_OWN | STEP_OWN_OUTCOMES | STEP_OWN_LEASES) => {
                let has_leases = tag == STEP_OWN_LEASES;
                let leases_at = if has_leases { Some(UnixMillis(decoder.varint()?)) } else { None };
                let (attempt, sequence) = (decoder.varint()?, decoder.varint()?);
                let (revision, config) = (Version(decoder.varint()?), decoder.shared(owner)?);
                let mut outcomes = Vec::new();
                if tag != STEP_OWN {
                    for _ in 0..decoder.bounded(limits::OUTCOMES_MAX as u64, "number of outcomes")? {
                        outcomes.push(KeptOutcome::decode(decoder)?);
                    }
                }
                MoveStep::Own { attempt, sequence, revision, config, outcomes, leases_at }
            }
            STEP_FREEZE => {
                let slots = SlotSet::decode(decoder)?;
                MoveStep::Freeze { slots, founding: SlotSet::decode(decoder)? }
            }
            STEP_RELEASE => MoveStep::Release { rows: decoder.varint()? },
            STEP_PURGE => MoveStep::Purge { limit: limit(decoder)? },
            _ => return Err(DecodeError::UnknownTag("step of a move")),
        };
        Ok(Move { shard, migration, step })
    }
}

impl Import {
    /// Whether the part is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.removals.is_empty() && self.config.is_none() && self.leases.is_none()
    }

    /// Whether earlier releases do not know the content.
    fn has_leases(&self) -> bool {
        self.leases.is_some() || self.rows.iter().any(|row| row.lease.is_some())
    }

    fn validate(&self) -> Result<(), ShardRefusal> {
        let mut bytes = RestoredKey::validate_all(&self.rows, self.revision)?;
        for key in &self.removals {
            validate_key(key)?;
            bytes += key.len();
        }
        if bytes > limits::RESTORE_BYTES_MAX {
            return Err(ShardRefusal::invalid("too much of a move at a time"));
        }
        if let Some(block) = &self.leases
            && (block.len() > limits::CONFIG_BLOCK_BYTES_MAX || check_lease_block(block).is_err())
        {
            return Err(ShardRefusal::invalid("what is no block of leases"));
        }
        self.config.iter().filter_map(|part| part.block.as_ref()).try_for_each(|block| check_config(block))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.attempt, self.sequence, self.revision.0, self.rows.len() as u64] {
            codec::put_varint(out, number);
        }
        for row in &self.rows {
            row.encode(RowLayout::Expiring, out);
        }
        codec::put_varint(out, self.removals.len() as u64);
        for key in &self.removals {
            codec::put_bytes(out, key);
        }
        out.push(u8::from(self.config.is_some()));
        if let Some(part) = &self.config {
            codec::put_bytes(out, part.namespace.routing_key());
            out.push(u8::from(part.begins));
            codec::put_bytes(out, part.block.as_deref().unwrap_or_default());
        }
        if self.has_leases() {
            codec::put_bytes(out, self.leases.as_deref().unwrap_or_default());
        }
    }

    fn decode(has_leases: bool, decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Import, DecodeError> {
        let (attempt, sequence) = (decoder.varint()?, decoder.varint()?);
        let revision = Version(decoder.varint()?);
        let (mut rows, mut removals, mut config) = (Vec::new(), Vec::new(), None);
        for _ in 0..decoder.varint()? {
            rows.push(RestoredKey::decode(RowLayout::Expiring, decoder, owner)?);
        }
        for _ in 0..decoder.varint()? {
            removals.push(decoder.shared(owner)?);
        }
        if decoder.bool()? {
            let namespace = Name::decode(decoder)?;
            let (begins, block) = (decoder.bool()?, decoder.shared(owner)?);
            config = Some(NamespacePart { namespace, begins, block: (!block.is_empty()).then_some(block) });
        }
        let leases = if has_leases { decoder.shared(owner)? } else { Bytes::new() };
        let leases = (!leases.is_empty()).then_some(leases);
        Ok(Import { attempt, sequence, revision, rows, removals, config, leases })
    }
}

fn limit(decoder: &mut Decoder<'_>) -> Result<usize, DecodeError> {
    let limit = decoder.bounded(limits::MOVE_KEYS_PER_STEP_MAX as u64, "number of keys to look at")?;
    Ok(limit as usize)
}

/// Checks that every shard can apply a block.
fn check_config(block: &[u8]) -> Result<(), ShardRefusal> {
    if block.len() > limits::CONFIG_BLOCK_BYTES_MAX {
        return Err(ShardRefusal::invalid("a block of configuration longer than any"));
    }
    super::config::block::check_block(block)
        .map_err(|_| ShardRefusal::invalid("what is no block of configuration"))
}

codes!(MoveReply as "reply to a step of a move" {
    MoveReply::Done => 1,
    MoveReply::Again => 2,
    MoveReply::Owned => 3,
    MoveReply::Outdated => 4,
});

#[cfg(test)]
mod tests {
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use crate::command::{OperationReplies, OperationReply, Write};
    use crate::types::UnixMillis;
    use alloc::vec;

    fn import() -> Import {
        let row = |key: &'static str, expires| RestoredKey {
            key: key.into(),
            version: Version(7),
            value: Bytes::from_static(b"\xff"),
            expires,
            lease: None,
        };
        let namespace = Name::new("ns").expect("a name");
        Import {
            attempt: 3,
            sequence: 1 << 40,
            revision: Version(9),
            rows: vec![row("a", None), row("b", Some(UnixMillis(5)))],
            removals: vec![Bytes::from_static(b"c")],
            config: Some(NamespacePart { namespace, begins: true, block: Some(vec![0].into()) }),
            leases: None,
        }
    }

    #[test]
    fn every_step_round_trips() {
        let (slots, founding) = (SlotSet::from(3..9), SlotSet::of([0..4, 16380..16384]));
        let outcome = KeptOutcome {
            slot: 16_383,
            name: Bytes::from_static(b"id"),
            digest: [7; 32],
            proposed: UnixMillis(1 << 41),
            succeeded: true,
            replies: OperationReplies::of(&[OperationReply::Absent]),
        };
        let config = Bytes::from_static(b"0");
        let own = |outcomes| {
            let (revision, config) = (Version(6), config.clone());
            MoveStep::Own { attempt: 4, sequence: 5, revision, config, outcomes, leases_at: None }
        };
        let leases_at = Some(UnixMillis(300));
        let own_leases = |outcomes| match own(outcomes) {
            MoveStep::Own { attempt, sequence, revision, config, outcomes, .. } => {
                MoveStep::Own { attempt, sequence, revision, config, outcomes, leases_at }
            }
            step => step,
        };
        let mut bound = import();
        bound.rows[0].lease = Some(Version(3));
        for step in [
            MoveStep::Open { attempt: 4, slots: slots.clone(), founding: founding.clone(), limit: 200 },
            MoveStep::Import(import()),
            MoveStep::Import(Import { config: None, ..import() }),
            MoveStep::Import(bound),
            MoveStep::Import(Import { leases: Some(Bytes::from_static(&[0, 64])), ..import() }),
            own(Vec::new()),
            own(alloc::vec![outcome.clone()]),
            own_leases(Vec::new()),
            own_leases(alloc::vec![outcome]),
            MoveStep::Freeze { slots, founding },
            MoveStep::Release { rows: 300 },
            MoveStep::Purge { limit: 7 },
        ] {
            let (shard, migration) = (ShardId(200), MigrationId(300));
            assert_round_trip(Write::from(Move { shard, migration, step }));
        }
        for &(reply, code) in MoveReply::CODES {
            assert_eq!((MoveReply::from_code(code), reply.code()), (Ok(reply), code));
        }
    }

    #[test]
    fn what_a_part_must_not_contain_is_refused() {
        let validate = |change: &dyn Fn(&mut Import)| {
            let mut import = import();
            change(&mut import);
            let step = MoveStep::Import(import);
            Write::from(Move { shard: ShardId(1), migration: MigrationId(1), step }).validate()
        };
        assert_eq!(validate(&|_| ()), Ok(()));
        assert!(validate(&|it| it.rows[0].version = Version(10)).is_err());
        assert!(validate(&|it| it.rows[0].version = Version::ABSENT).is_err());
        assert!(validate(&|it| it.removals[0] = Bytes::new()).is_err());
        let text = Some(Bytes::from_static(b"none"));
        assert!(validate(&|it| it.config.iter_mut().for_each(|part| part.block = text.clone())).is_err());
        let large = Bytes::from(vec![0; limits::VALUE_BYTES_MAX]);
        assert!(validate(&|it| it.rows.iter_mut().for_each(|row| row.value = large.clone())).is_err());
        let purge = |shard, limit| {
            let step = MoveStep::Purge { limit };
            Write::from(Move { shard, migration: MigrationId(1), step }).validate()
        };
        assert_eq!(purge(ShardId(1), 1), Ok(()));
        assert!(purge(ShardId::PRIME, 1).is_err());
        assert!(purge(ShardId(1), 0).is_err());
    }
}
