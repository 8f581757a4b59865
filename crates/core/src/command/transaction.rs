//! Transactions: operations that are applied atomically as one command.
//!
//! Owns its limits and layout, and the rule that all its keys belong to one shard.

use alloc::vec::Vec;
use bytes::Bytes;

use super::{Operations, ShardRefusal, validate_key};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::{ShardId, Version};

/// Operations that are applied atomically, in order, if no watched key has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The watched keys; at most [`limits::WATCHES_MAX`].
    pub watches: Vec<Watch>,
    /// The operations; at most [`limits::TRANSACTION_BYTES_MAX`] bytes. There may be none if a
    /// client only checks its watches.
    pub operations: Operations,
}

/// A key that must not have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// It must belong to the shard of the transaction. It need not exist.
    pub key: Bytes,
    /// Its expected version; [`Version::ABSENT`] if the key must not exist.
    pub version: Version,
}

impl Transaction {
    /// A transaction without watches.
    pub fn of(operations: Operations) -> Transaction {
        Transaction { watches: Vec::new(), operations }
    }

    /// All watched keys and all keys of operations.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let watched = self.watches.iter().map(|watch| &watch.key[..]);
        watched.chain(self.operations.iter().map(|operation| operation.key()))
    }

    /// Checks the limits and returns the shard of the keys, in one pass over the operations;
    /// `shard_of` gives the shard of a key.
    pub(super) fn validate(&self, shard_of: impl Fn(&[u8]) -> ShardId) -> Result<ShardId, ShardRefusal> {
        if self.operations.encoded_bytes() > limits::TRANSACTION_BYTES_MAX {
            return Err(ShardRefusal::invalid(
                "the commands of one transaction are longer than 8 MiB together",
            ));
        }
        if self.watches.len() > limits::WATCHES_MAX {
            return Err(ShardRefusal::invalid("more than 1024 keys are watched"));
        }
        let mut shard = OneShard::default();
        for watch in &self.watches {
            validate_key(&watch.key)?;
            shard.add(shard_of(&watch.key));
        }
        for operation in self.operations.iter() {
            operation.validate()?;
            shard.add(shard_of(operation.key()));
        }
        shard.found()
    }

    /// The shard of the keys.
    pub(super) fn shard(&self, shard_of: impl Fn(&[u8]) -> ShardId) -> Result<ShardId, ShardRefusal> {
        let mut shard = OneShard::default();
        self.keys().for_each(|key| shard.add(shard_of(key)));
        shard.found()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.watches.len() as u64);
        for Watch { key, version } in &self.watches {
            codec::put_bytes(out, key);
            codec::put_varint(out, version.0);
        }
        self.operations.encode(out);
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Transaction, DecodeError> {
        let watches = decode_watches(decoder, owner)?;
        Ok(Transaction { watches, operations: Operations::decode(decoder, owner)? })
    }

    /// As [`Transaction::decode`], for a log entry: see [`Operations::decode_logged`].
    pub(super) fn decode_logged(
        decoder: &mut Decoder<'_>,
        owner: &Bytes,
    ) -> Result<Transaction, DecodeError> {
        let watches = decode_watches(decoder, owner)?;
        Ok(Transaction { watches, operations: Operations::decode_logged(decoder, owner)? })
    }
}

fn decode_watches(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<Vec<Watch>, DecodeError> {
    decoder.list(|decoder| {
        let key = decoder.shared(owner)?;
        Ok(Watch { key, version: Version(decoder.varint()?) })
    })
}

/// The shard of several keys, which must be the same for all of them.
#[derive(Default)]
struct OneShard {
    first: Option<ShardId>,
    is_crossed: bool,
}

impl OneShard {
    fn add(&mut self, shard: ShardId) {
        self.is_crossed |= *self.first.get_or_insert(shard) != shard;
    }

    fn found(self) -> Result<ShardId, ShardRefusal> {
        match self.first {
            Some(_) if self.is_crossed => Err(ShardRefusal::CrossShard),
            Some(shard) => Ok(shard),
            None => Err(ShardRefusal::invalid("no operations")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use crate::command::{Condition, LeaseExpiry, Operation, Write};
    use crate::types::UnixMillis;
    use alloc::vec;

    fn transaction() -> Transaction {
        let key = &b"k"[..];
        let operations = Operations::of(&[
            Operation::Get { key },
            Operation::Put { key, value: b"\0", condition: Condition::Always },
        ]);
        let watch = Watch { key: Bytes::from_static(b"w"), version: Version(300) };
        Transaction { watches: vec![watch], operations }
    }

    #[test]
    fn commands_on_keys_round_trip() {
        let key = &b"register"[..];
        let expire = |now, leases| Write::Expire { shard: ShardId(3), now, limit: 9, leases };
        for write in [
            Write::Keys(transaction()),
            Write::of(&Operation::Exchange { key, value: i64::MIN }),
            Write::of(&Operation::CompareExchange { key, expected: -7, new: 7 }),
            expire(UnixMillis(1 << 41), None),
            expire(UnixMillis(8), Some(LeaseExpiry { led_since: UnixMillis(7), shortens: false })),
            expire(UnixMillis(8), Some(LeaseExpiry { led_since: UnixMillis(7), shortens: true })),
        ] {
            assert_round_trip(write);
        }
    }

    #[test]
    fn limits_hold_for_every_part() {
        let validate = |change: &dyn Fn(&mut Transaction)| {
            let mut transaction = transaction();
            change(&mut transaction);
            Write::Keys(transaction).validate().is_ok()
        };
        let puts = |count, bytes: usize| {
            let value = vec![0; bytes];
            let put = Operation::Put { key: b"k", value: &value, condition: Condition::Always };
            Operations::of(&vec![put; count])
        };
        assert!(validate(&|_| ()));
        assert!(validate(&|it| it.operations = Operations::default()));
        assert!(!validate(&|it| it.watches[0].key = Bytes::new()));
        assert!(validate(&|it| it.watches = vec![it.watches[0].clone(); limits::WATCHES_MAX]));
        assert!(!validate(&|it| it.watches = vec![it.watches[0].clone(); limits::WATCHES_MAX + 1]));
        assert!(validate(&|it| it.operations = puts(1, limits::VALUE_BYTES_MAX)));
        assert!(!validate(&|it| it.operations = puts(1, limits::VALUE_BYTES_MAX + 1)));
        assert!(!validate(&|it| it.operations = puts(8, limits::VALUE_BYTES_MAX)));
        for limit in [0, limits::EXPIRED_KEYS_MAX + 1] {
            let (shard, now) = (ShardId(1), UnixMillis(0));
            assert!(Write::Expire { shard, now, limit, leases: None }.validate().is_err());
        }
    }
}
