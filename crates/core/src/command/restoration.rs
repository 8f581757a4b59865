//! Restoring a backup into a shard: the commands, their limits and their layout.

use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use super::{ConfigRestoration, ShardRefusal, put_expiry, validate_key, validate_value};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::{ShardId, UnixMillis, Version};

/// A step of filling a shard from a backup. Answered by
/// [`WriteReply::Restored`](super::WriteReply::Restored) unless stated otherwise, or by
/// [`WriteReply::ConditionFailed`](super::WriteReply::ConditionFailed) with the shard's revision if
/// anything but restores of this backup has written to the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreWrite {
    /// Restores keys.
    Keys(Restoration),
    /// Restores configuration.
    Config(ConfigRestoration),
    /// Makes room for a backup. Answered by [`WriteReply::Discarded`](super::WriteReply::Discarded)
    /// with the number of keys left; refused only if a client has written to the shard.
    Discard(Discard),
}

/// Removes up to [`limits::DISCARD_KEYS_MAX`] keys that a restore of another backup has put into a
/// shard, and claims the shard for this backup once no such key is left. Versions continue after
/// those of the other restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// Any data shard.
    pub shard: ShardId,
    /// The backup to restore instead. Keys that were already restored from it stay.
    pub backup: Uuid,
}

/// A part of a backup to restore into one data shard. It may be repeated: keys that are already
/// restored stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restoration {
    /// The shard. Every key must belong to it.
    pub shard: ShardId,
    /// [`Header::backup`](crate::storage::backup::Header::backup) of the file.
    pub backup: Uuid,
    /// The shard's revision becomes at least this. It is no smaller than the version of any record,
    /// and at most [`limits::RESTORE_REVISION_MAX`].
    pub revision: Version,
    /// The keys to restore; none if only the revision should rise. At most
    /// [`limits::RESTORE_BYTES_MAX`] bytes of keys and values.
    pub records: Vec<RestoredKey>,
}

/// A key as it was at the time of the backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredKey {
    /// At most [`limits::KEY_BYTES_MAX`] bytes.
    pub key: Bytes,
    /// Its version, which the restore keeps.
    pub version: Version,
    /// At most [`limits::VALUE_BYTES_MAX`] bytes.
    pub value: Bytes,
    /// When it expires; `None`: never.
    pub expires: Option<UnixMillis>,
    /// The number of the lease to which the key is bound, in the slot of the key. Such a key has no
    /// expiry. For a held lock, the number of the holder's lease.
    pub lease: Option<Version>,
}

/// Layout of sequences of keys in blocks of snapshots and backups, and in restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLayout {
    /// Key, version, value. It has no room for an expiry.
    Plain,
    /// Key, version, value, and expiry if the key has one.
    Expiring,
}

impl RestoreWrite {
    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        match self {
            RestoreWrite::Keys(restoration) => restoration.validate(),
            RestoreWrite::Config(restoration) => restoration.validate(),
            RestoreWrite::Discard(_) => Ok(()),
        }
    }

    /// The shard that it names, if its content belongs there.
    pub(super) fn shard(&self, shard_of: impl Fn(&[u8]) -> ShardId) -> Result<ShardId, ShardRefusal> {
        let (shard, belongs) = match self {
            RestoreWrite::Keys(Restoration { shard, .. })
            | RestoreWrite::Config(ConfigRestoration { shard, .. })
            | RestoreWrite::Discard(Discard { shard, .. }) => {
                (*shard, self.all_keys(|key| shard_of(key) == *shard))
            }
        };
        if belongs { Ok(shard) } else { Err(ShardRefusal::CrossShard) }
    }

    /// Whether a condition holds for all keys and for the names of all namespaces.
    pub fn all_keys(&self, condition: impl Fn(&[u8]) -> bool) -> bool {
        match self {
            RestoreWrite::Keys(restoration) => {
                restoration.records.iter().all(|record| condition(&record.key))
            }
            RestoreWrite::Config(restoration) => {
                restoration.namespaces().iter().all(|name| condition(name.routing_key()))
            }
            RestoreWrite::Discard(_) => true,
        }
    }
}

impl Discard {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.shard.0);
        out.extend_from_slice(self.backup.as_bytes());
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Discard, DecodeError> {
        let shard = ShardId(decoder.varint()?);
        let backup = decoder.uuid()?;
        Ok(Discard { shard, backup })
    }
}

impl RestoredKey {
    /// Checks keys that came from a state of this revision. Returns their bytes.
    pub(super) fn validate_all(keys: &[RestoredKey], revision: Version) -> Result<usize, ShardRefusal> {
        let mut bytes = 0;
        for RestoredKey { key, version, value, .. } in keys {
            validate_key(key)?;
            validate_value(value)?;
            if *version == Version::ABSENT || *version > revision {
                return Err(ShardRefusal::invalid("version of a key beyond the revision of its origin"));
            }
            bytes += key.len() + value.len();
        }
        Ok(bytes)
    }
}

impl Restoration {
    /// The layout that has room for the records.
    pub(super) fn layout(&self) -> RowLayout {
        let expires = self.records.iter().any(|record| record.expires.is_some() || record.lease.is_some());
        if expires { RowLayout::Expiring } else { RowLayout::Plain }
    }

    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        if self.revision.0 > limits::RESTORE_REVISION_MAX {
            return Err(ShardRefusal::invalid("revision beyond any that a cluster gives out"));
        }
        if RestoredKey::validate_all(&self.records, self.revision)? > limits::RESTORE_BYTES_MAX {
            return Err(ShardRefusal::invalid("too much of a backup at a time"));
        }
        if self.records.iter().any(|record| record.lease.is_some()) {
            return Err(ShardRefusal::invalid("a backup has no leases, so it restores no keys of leases"));
        }
        Ok(())
    }

    pub(super) fn encode(&self, layout: RowLayout, out: &mut Vec<u8>) {
        codec::put_varint(out, self.shard.0);
        out.extend_from_slice(self.backup.as_bytes());
        codec::put_varint(out, self.revision.0);
        codec::put_varint(out, self.records.len() as u64);
        for record in &self.records {
            record.encode(layout, out);
        }
    }

    pub(super) fn decode(
        layout: RowLayout,
        decoder: &mut Decoder<'_>,
        owner: &Bytes,
    ) -> Result<Restoration, DecodeError> {
        let shard = ShardId(decoder.varint()?);
        let backup = decoder.uuid()?;
        let revision = Version(decoder.varint()?);
        let records = decoder.list(|decoder| RestoredKey::decode(layout, decoder, owner))?;
        Ok(Restoration { shard, backup, revision, records })
    }
}

/// In place of an expiry: the key is bound to a lease, whose number follows.
const BOUND: u64 = u64::MAX;

/// Appends when a key ends: its expiry, or the number of its lease.
pub(crate) fn put_end(out: &mut Vec<u8>, expires: Option<UnixMillis>, lease: Option<Version>) {
    match lease {
        Some(lease) => {
            codec::put_varint(out, BOUND);
            codec::put_varint(out, lease.0);
        }
        // So that no expiry is taken for a lease: both of these times are never reached.
        None => put_expiry(out, expires.map(|at| UnixMillis(at.0.min(BOUND - 2)))),
    }
}

/// Reads what [`put_end`] wrote.
pub(crate) fn end(decoder: &mut Decoder<'_>) -> Result<(Option<UnixMillis>, Option<Version>), DecodeError> {
    match decoder.varint()? {
        BOUND => Ok((None, Some(Version(decoder.varint()?)))),
        at => Ok((at.checked_sub(1).map(UnixMillis), None)),
    }
}

impl RestoredKey {
    /// Appends the record. [`RowLayout::Plain`] has no room for the expiry.
    pub fn encode(&self, layout: RowLayout, out: &mut Vec<u8>) {
        codec::put_bytes(out, &self.key);
        codec::put_varint(out, self.version.0);
        codec::put_bytes(out, &self.value);
        match layout {
            RowLayout::Plain => {
                debug_assert!(
                    self.expires.is_none() && self.lease.is_none(),
                    "invariant: the layout fits the record"
                )
            }
            RowLayout::Expiring => put_end(out, self.expires, self.lease),
        }
    }

    /// Reads one record. Key and value share `owner`, the buffer that `decoder` reads.
    ///
    /// # Errors
    /// When the bytes are not a record.
    pub fn decode(
        layout: RowLayout,
        decoder: &mut Decoder<'_>,
        owner: &Bytes,
    ) -> Result<RestoredKey, DecodeError> {
        let key = decoder.shared(owner)?;
        let version = Version(decoder.varint()?);
        let value = decoder.shared(owner)?;
        let (expires, lease) = match layout {
            RowLayout::Plain => (None, None),
            RowLayout::Expiring => end(decoder)?,
        };
        Ok(RestoredKey { key, version, value, expires, lease })
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use crate::command::Write;
    use alloc::vec;

    fn keys(restoration: Restoration) -> Write {
        Write::Restore(RestoreWrite::Keys(restoration))
    }

    fn restoration() -> Restoration {
        let record = |key: &'static str, version| RestoredKey {
            key: Bytes::from_static(key.as_bytes()),
            version: Version(version),
            value: Bytes::from_static(b"\xff\0"),
            expires: None,
            lease: None,
        };
        Restoration {
            shard: ShardId(3),
            backup: Uuid::from_u128(9),
            revision: Version(1 << 41),
            records: vec![record("a", 1), record("b", 1 << 40)],
        }
    }

    #[test]
    fn writes_that_name_their_shard_round_trip() {
        let mut expiring = restoration();
        expiring.records[1].expires = Some(UnixMillis(1 << 41));
        for write in [Write::Checkpoint { shard: ShardId(7) }, keys(restoration()), keys(expiring)] {
            assert_round_trip(write);
        }
    }

    #[test]
    fn what_a_restore_must_not_contain_is_refused() {
        let validate = |change: &dyn Fn(&mut Restoration)| {
            let mut restoration = restoration();
            change(&mut restoration);
            keys(restoration).validate()
        };
        assert_eq!(validate(&|_| ()), Ok(()));
        assert_eq!(validate(&|it| it.records.clear()), Ok(()));
        assert!(validate(&|it| it.records[1].key = Bytes::new()).is_err());
        assert!(validate(&|it| it.records[0].version = Version(0)).is_err());
        assert!(validate(&|it| it.records[0].version = Version((1 << 41) + 1)).is_err());
        // A higher revision would leave no versions for later writes.
        assert_eq!(validate(&|it| it.revision = Version(limits::RESTORE_REVISION_MAX)), Ok(()));
        assert!(validate(&|it| it.revision = Version(limits::RESTORE_REVISION_MAX + 1)).is_err());
        assert!(validate(&|it| it.records[0].lease = Some(Version(1))).is_err());
        let large = Bytes::from(vec![0; limits::VALUE_BYTES_MAX]);
        assert_eq!(validate(&|it| it.records[0].value = large.clone()), Ok(()));
        assert!(
            validate(&|it| it.records.iter_mut().for_each(|record| record.value = large.clone())).is_err()
        );
    }
}
