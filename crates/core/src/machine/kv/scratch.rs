//! A private copy of a few keys, on which operations are executed without a log.
//!
//! Owns nothing of the semantics: the copy is a [`KeyValue`], so an operation has the same effect
//! and the same reply as in a shard. What becomes of the copy is its owner's business.

use bytes::Bytes;

use super::KeyValue;
use crate::command::{OperationReplies, Operations, RestoredKey, StoredValue, Transaction, WriteReply};
use crate::types::UnixMillis;

/// Keys with the versions that they have in their shard.
#[derive(Debug, Default)]
pub struct ScratchKeys(KeyValue);

impl ScratchKeys {
    /// Copies a key without its lease. Writes of the copy get higher versions than all copied keys
    /// have.
    pub fn copy(&mut self, key: &Bytes, stored: StoredValue) {
        let StoredValue { version, value, expires, lease: _ } = stored;
        self.0.store_row(&RestoredKey { key: key.clone(), version, value, expires, lease: None });
        self.0.revision = self.0.revision.max(version);
    }

    /// The present state of a key, if it exists.
    pub fn get(&self, key: &[u8]) -> Option<StoredValue> {
        self.0.get(key)
    }

    /// Bytes of the value of a key; 0 if it does not exist.
    pub fn value_bytes(&self, key: &[u8]) -> usize {
        self.0.records.get(key).map_or(0, |record| record.value().len())
    }

    /// Executes operations, as a shard does whose leader proposes them at `now`.
    pub fn execute(&mut self, operations: &Operations, now: UnixMillis) -> OperationReplies {
        match self.0.transact(&Transaction::of(operations.at(now)), true) {
            WriteReply::Operations(replies) => replies,
            _ => unreachable!("invariant: a transaction without watches is executed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Condition, ExpiryCondition, Operation, OperationReply};
    use crate::types::Version;

    #[test]
    fn a_copy_keeps_versions_and_expiries_and_its_writes_get_higher_versions() {
        let mut keys = ScratchKeys::default();
        let (old, new) = (Bytes::from_static(b"old"), Bytes::from_static(b"new"));
        let stored = |version, expires| StoredValue {
            version: Version(version),
            value: "7".into(),
            expires,
            lease: None,
        };
        keys.copy(&new, stored(900, None));
        keys.copy(&old, stored(3, Some(UnixMillis(50))));
        assert_eq!(keys.get(&old), Some(stored(3, Some(UnixMillis(50)))));
        let operations = Operations::of(&[
            Operation::Add { key: &old, delta: 1 },
            Operation::ExpireAfter { key: &new, after_ms: 30, condition: ExpiryCondition::Always },
            Operation::Delete { key: b"none", condition: Condition::Always },
        ]);
        let replies = keys.execute(&operations, UnixMillis(1_000));
        let mut replies = replies.iter();
        assert_eq!(replies.next(), Some(OperationReply::Number { version: Version(901), value: 8 }));
        assert_eq!(replies.next(), Some(OperationReply::Written { version: Version(902), created: false }));
        assert_eq!(replies.next(), Some(OperationReply::Absent));
        assert_eq!(keys.get(&old).and_then(|stored| stored.expires), Some(UnixMillis(50)));
        assert_eq!(keys.get(&new).and_then(|stored| stored.expires), Some(UnixMillis(1_030)));
    }
}
