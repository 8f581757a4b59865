//! Expiry of keys.
//!
//! Owns the expiry times, by key and in order of time. No clock is read here: a key lives until a
//! command removes it ([`Write::Expire`](crate::command::Write::Expire)), at the same log index on
//! every replica. So no removed key comes back, and none is removed before its time by the clock of
//! the leader that proposed the command.
//!
//! Invariant: both maps hold the same entries, and only for existing keys.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use super::KeyValue;
use crate::types::UnixMillis;

/// The expiry times of the keys that have one.
#[derive(Debug, Default)]
pub(in crate::machine) struct Expiries {
    by_key: BTreeMap<Box<[u8]>, UnixMillis>,
    by_time: BTreeSet<(UnixMillis, Box<[u8]>)>,
}

impl Expiries {
    /// When a key expires; `None`: never.
    pub fn of(&self, key: &[u8]) -> Option<UnixMillis> {
        // Most shards have no such key, and every write checks.
        if self.by_key.is_empty() { None } else { self.by_key.get(key).copied() }
    }

    /// Sets or clears the expiry of a key. Returns its previous expiry.
    pub fn set(&mut self, key: &[u8], expires: Option<UnixMillis>) -> Option<UnixMillis> {
        let before = self.of(key);
        if before == expires {
            return before;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, Box::from(key)));
        }
        match expires {
            Some(at) => {
                self.by_key.insert(key.into(), at);
                self.by_time.insert((at, key.into()));
            }
            None => {
                self.by_key.remove(key);
            }
        }
        before
    }

    /// Frees an expiry time. Returns whether there was one.
    pub fn pop_first(&mut self) -> bool {
        self.by_key.pop_first();
        self.by_time.pop_first().is_some()
    }

    /// Expiry times in order, with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (UnixMillis, &[u8])> {
        self.by_time.iter().map(|(at, key)| (*at, &**key))
    }

    /// The first key, if it expires at `now` or before.
    fn overdue(&self, now: UnixMillis) -> Option<Box<[u8]>> {
        self.by_time.first().filter(|(at, _)| *at <= now).map(|(_, key)| key.clone())
    }
}

impl KeyValue {
    /// Removes at most `limit` keys that expire at `now` or before, in the order of their times.
    /// Returns how many.
    pub fn expire(&mut self, now: UnixMillis, limit: usize) -> u64 {
        let mut keys = 0;
        // A backup may contain overdue keys. Their removal must not end its restore.
        let restoring = self.restoring;
        while keys < limit as u64
            && let Some(key) = self.expiries.overdue(now)
        {
            if self.ownership.as_ref().is_some_and(|ownership| !ownership.owns(&key)) {
                // This shard does not own the key, so the removal does not change what it owns.
                self.take_out(&key);
            } else {
                self.remove(&key);
            }
            keys += 1;
        }
        self.restoring = restoring;
        keys
    }

    /// Number of keys that expire at `now` or before, counted up to `limit`.
    pub fn overdue(&self, now: UnixMillis, limit: usize) -> usize {
        self.expiries.iter().take(limit).take_while(|(at, _)| *at <= now).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Condition;
    use crate::types::Version;

    fn holds(kv: &KeyValue) -> alloc::vec::Vec<&[u8]> {
        kv.records.iter().map(crate::machine::kv::Record::key).collect()
    }

    #[test]
    fn keys_go_in_the_order_of_their_times_and_none_before() {
        let mut kv = KeyValue::default();
        for (key, at) in [(b"c", 10), (b"a", 30), (b"b", 10), (b"d", 20)] {
            kv.store(key, b"v", Some(UnixMillis(at)));
        }
        kv.put(b"e", b"v", Condition::Always);
        assert_eq!(kv.overdue(UnixMillis(9), 9), 0);
        assert_eq!(kv.expire(UnixMillis(9), 9), 0);
        assert_eq!(kv.overdue(UnixMillis(20), 9), 3);
        assert_eq!(kv.overdue(UnixMillis(20), 2), 2);
        assert_eq!(kv.expire(UnixMillis(20), 1), 1);
        assert_eq!(holds(&kv), [b"a", b"c", b"d", b"e"]);
        assert_eq!(kv.expire(UnixMillis(20), 9), 2);
        assert_eq!(holds(&kv), [b"a", b"e"]);
        assert_eq!(kv.revision, Version(8), "each key that goes takes a revision");
        assert_eq!(kv.expire(UnixMillis(10), 9), 0, "a clock that went back");
    }

    #[test]
    fn who_writes_a_key_anew_takes_its_time_away() {
        let mut kv = KeyValue::default();
        kv.store(b"a", b"1", Some(UnixMillis(5)));
        kv.put(b"a", b"2", Condition::Always);
        kv.store(b"b", b"1", Some(UnixMillis(5)));
        kv.delete(b"b", Condition::Always);
        kv.put(b"b", b"2", Condition::Always);
        kv.store(b"c", b"1", Some(UnixMillis(5)));
        kv.store(b"c", b"1", Some(UnixMillis(50)));
        assert_eq!(kv.expire(UnixMillis(49), 9), 0);
        assert_eq!(kv.expire(UnixMillis(50), 9), 1);
        assert!(kv.expiries.by_key.is_empty() && kv.expiries.by_time.is_empty());
    }

    #[test]
    fn the_time_is_part_of_the_state() {
        let (mut one, mut other) = (KeyValue::default(), KeyValue::default());
        one.store(b"a", b"1", Some(UnixMillis(5)));
        other.store(b"a", b"1", Some(UnixMillis(6)));
        assert_ne!(one.digest(), other.digest());
    }
}
