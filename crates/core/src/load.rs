//! What the clients of this node ask for: requests by shard and by group of slots, and the keys and
//! prefixes that are asked for most, over the last half to whole minute.
//!
//! Owns the counting, in a fixed amount of memory. Requests are counted where they enter the
//! cluster, so the sum over all nodes counts each once. Keys are sampled, and the samples counted
//! by Space-Saving (Metwally, Agrawal and El Abbadi, 2005): a key with more than one sample in
//! [`TRACKED_MAX`] is always among the tracked ones, and its count is too high by at most its
//! error.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::cmp::Reverse;

use crate::command::{HotKey, Operations, Read, ShardLoad, Write};
use crate::slots::{SlotGroup, slot_of};
use crate::types::{ShardId, UnixMillis};

/// Length of a window in milliseconds. The current and the previous window are shown together.
const WINDOW_MS: u64 = 30_000;

/// Rates are known after this many milliseconds. A clock that stands still shows none.
const RATE_WINDOW_MS_MIN: u64 = 5_000;

/// One of this many operations is sampled.
const SAMPLED: u64 = 64;

/// The sample of a batch is one of this many operations at its beginning, because operations must
/// be decoded one after another.
const SAMPLED_OF_BATCH: u64 = 16;

/// Number of keys, and of prefixes, that are tracked.
const TRACKED_MAX: usize = 64;

/// Of longer keys, only this many bytes are kept, as a prefix.
const KEY_BYTES_MAX: usize = 256;

/// A prefix ends behind one of these bytes.
const DELIMITERS: &[u8] = b":/";

/// How many prefixes of a key are counted, the shortest first.
const PREFIXES: usize = 2;

/// Counts the requests of this node's clients.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    now: UnixMillis,
    current: Window,
    /// The window before, and how long it was.
    previous: (Window, u64),
    operations: u64,
}

#[derive(Debug, Default)]
struct Window {
    began: UnixMillis,
    shards: BTreeMap<ShardId, ShardLoad>,
    /// Operations on keys, estimated from the samples.
    groups: BTreeMap<SlotGroup, u64>,
    keys: SpaceSaving,
    prefixes: SpaceSaving,
}

impl LoadMeter {
    /// Sets the time, by this node's clock. A clock that is set back begins a new window.
    pub(crate) fn set_now(&mut self, now: UnixMillis) {
        if self.now.0 == 0 || now < self.current.began {
            self.current.began = now;
        }
        self.now = now;
        let passed = now.0 - self.current.began.0;
        if passed >= WINDOW_MS {
            let ended = core::mem::replace(&mut self.current, Window { began: now, ..Window::default() });
            self.previous = (ended, passed);
        }
    }

    /// Counts a write of a client.
    pub(crate) fn write(&mut self, shard: ShardId, write: &Write) {
        let load = self.current.shards.entry(shard).or_default();
        match write {
            Write::Keys(transaction) => {
                load.writes += transaction.operations.len() as u64;
                load.bytes_written += transaction.operations.encoded_bytes() as u64;
                self.sample(&transaction.operations);
            }
            // Which branch is applied is not known yet.
            Write::Conditional(transaction) => {
                load.writes += transaction.operations_max() as u64;
                load.bytes_written += transaction.encoded_bytes() as u64;
                self.sample(transaction.branch(true));
            }
            _ => load.writes += 1,
        }
    }

    /// Counts a read of a client that one shard answers.
    pub(crate) fn read(&mut self, shard: ShardId, read: &Read) {
        let load = self.current.shards.entry(shard).or_default();
        match read {
            Read::Operations { operations, .. } => {
                load.reads += operations.len() as u64;
                self.sample(operations);
            }
            Read::Get { key } => {
                load.reads += 1;
                if let Some((weight, _)) = self.due(1) {
                    self.current.count(key, weight);
                }
            }
            _ => load.reads += 1,
        }
    }

    /// Requests of the current and the previous window by shard, the keys and prefixes with most of
    /// them, at most `most` each, and over how many milliseconds they were counted.
    pub(crate) fn view(&self, most: usize) -> (u64, BTreeMap<ShardId, ShardLoad>, [Vec<HotKey>; 2]) {
        let (previous, previous_ms) = &self.previous;
        let mut shards = previous.shards.clone();
        for (shard, load) in &self.current.shards {
            let sum = shards.entry(*shard).or_default();
            sum.reads += load.reads;
            sum.writes += load.writes;
            sum.bytes_written += load.bytes_written;
        }
        let window_ms = previous_ms + (self.now.0 - self.current.began.0);
        let hottest = |current, previous| hottest(&[current, previous], most);
        let keys = hottest(&self.current.keys, &previous.keys);
        (window_ms, shards, [keys, hottest(&self.current.prefixes, &previous.prefixes)])
    }

    /// Requests a second by shard, over the same time as [`LoadMeter::view`]. Empty if that is too
    /// short for a rate.
    pub(crate) fn rates(&self) -> BTreeMap<ShardId, u64> {
        self.rates_of(|window| window.shards.iter().map(|(shard, load)| (*shard, load.reads + load.writes)))
    }

    /// Operations on keys a second by group of slots, over the same time, estimated from samples.
    pub(crate) fn group_rates(&self) -> BTreeMap<SlotGroup, u64> {
        self.rates_of(|window| window.groups.iter().map(|(group, operations)| (*group, *operations)))
    }

    fn rates_of<'a, K: Ord, I: Iterator<Item = (K, u64)>>(
        &'a self,
        counts: impl Fn(&'a Window) -> I,
    ) -> BTreeMap<K, u64> {
        let (previous, previous_ms) = &self.previous;
        let window_ms = previous_ms + (self.now.0 - self.current.began.0);
        let mut rates = BTreeMap::new();
        if window_ms < RATE_WINDOW_MS_MIN {
            return rates;
        }
        for (key, count) in counts(previous).chain(counts(&self.current)) {
            *rates.entry(key).or_default() += count;
        }
        rates.values_mut().for_each(|count| *count = *count * 1_000 / window_ms);
        rates
    }

    fn sample(&mut self, operations: &Operations) {
        let count = operations.len() as u64;
        if let Some((weight, before)) = self.due(count) {
            let position = before % count.min(SAMPLED_OF_BATCH);
            if let Some(operation) = operations.iter().nth(position as usize) {
                self.current.count(operation.key(), weight);
            }
        }
    }

    /// Counts operations. If one of them is to be sampled, returns for how many operations it
    /// stands, and how many samples there were before.
    fn due(&mut self, count: u64) -> Option<(u64, u64)> {
        let before = samples_among(self.operations);
        self.operations += count;
        let samples = samples_among(self.operations) - before;
        (samples > 0).then_some((samples * SAMPLED, before))
    }
}

impl Window {
    fn count(&mut self, key: &[u8], weight: u64) {
        *self.groups.entry(SlotGroup::of(slot_of(key))).or_default() += weight;
        let ends = key.iter().zip(1..).filter(|(byte, _)| DELIMITERS.contains(byte)).map(|(_, end)| end);
        for end in ends.take(PREFIXES).filter(|end| *end < key.len().min(KEY_BYTES_MAX)) {
            self.prefixes.count(&key[..end], weight);
        }
        match key.get(..KEY_BYTES_MAX) {
            Some(prefix) if key.len() > KEY_BYTES_MAX => self.prefixes.count(prefix, weight),
            _ => self.keys.count(key, weight),
        }
    }
}

/// How many of the first operations are sampled: one of each [`SAMPLED`] in a row. Which one
/// differs from row to row (the fractional parts of multiples of the golden ratio), because a
/// client that repeats a few keys in turn would otherwise have the same one sampled each time.
fn samples_among(operations: u64) -> u64 {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let (rows, rest) = (operations / SAMPLED, operations % SAMPLED);
    let sampled = rows.wrapping_mul(GOLDEN_RATIO) >> (u64::BITS - SAMPLED.ilog2());
    rows + u64::from(rest > sampled)
}

/// The sum of several sketches, the highest counts first.
fn hottest(sketches: &[&SpaceSaving], most: usize) -> Vec<HotKey> {
    let mut sums: BTreeMap<&Bytes, (u64, u64)> = BTreeMap::new();
    for tracked in sketches.iter().flat_map(|sketch| &sketch.tracked) {
        let (requests, error) = sums.entry(&tracked.key).or_default();
        *requests += tracked.requests;
        *error += tracked.error;
    }
    let hot = |(key, (requests, error)): (&Bytes, (u64, u64))| HotKey { key: key.clone(), requests, error };
    let mut all: Vec<HotKey> = sums.into_iter().map(hot).collect();
    // A count that may be all error says nothing about the key.
    all.retain(|hot| hot.error < hot.requests);
    all.sort_by_key(|hot| Reverse(hot.requests - hot.error));
    all.truncate(most);
    all
}

/// The most frequent of many keys, approximately, in a fixed amount of memory.
#[derive(Debug, Default)]
struct SpaceSaving {
    tracked: Vec<HotKey>,
}

impl SpaceSaving {
    fn count(&mut self, key: &[u8], weight: u64) {
        if let Some(tracked) = self.tracked.iter_mut().find(|tracked| tracked.key == key) {
            tracked.requests += weight;
            return;
        }
        let key = Bytes::copy_from_slice(key);
        if self.tracked.len() < TRACKED_MAX {
            self.tracked.push(HotKey { key, requests: weight, error: 0 });
            return;
        }
        let least = self.tracked.iter_mut().min_by_key(|tracked| tracked.requests);
        let least = least.expect("invariant: a full sketch tracks keys");
        *least = HotKey { key, requests: least.requests + weight, error: least.requests };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Condition, Operation, Transaction};
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;

    const SHARD: ShardId = ShardId(1);

    fn get(meter: &mut LoadMeter, key: &str) {
        meter.read(SHARD, &Read::Get { key: Bytes::copy_from_slice(key.as_bytes()) });
    }

    fn shown(keys: &[HotKey]) -> Vec<&str> {
        keys.iter().map(|hot| core::str::from_utf8(&hot.key).expect("text")).collect()
    }

    #[test]
    fn the_busiest_keys_and_prefixes_are_found_among_many() {
        let mut meter = LoadMeter::default();
        meter.set_now(UnixMillis(1_000));
        let mut random = fastrand::Rng::with_seed(7);
        let (mut of_hot, all) = (0, 200_000);
        for _ in 0..all {
            if random.u8(..10) < 3 {
                of_hot += 1;
                get(&mut meter, "user:7:name");
            } else {
                get(&mut meter, &format!("session:{}", random.u32(..)));
            }
        }
        let (_, shards, [keys, prefixes]) = meter.view(3);
        assert_eq!(shards[&SHARD].reads, all);
        assert_eq!(shown(&keys)[0], "user:7:name");
        assert!(keys[0].requests.abs_diff(of_hot) < of_hot / 5, "{} of {of_hot}", keys[0].requests);
        assert_eq!(shown(&prefixes), ["session:", "user:", "user:7:"]);
    }

    #[test]
    fn batches_count_every_operation_and_are_sampled_once() {
        let mut meter = LoadMeter::default();
        let put = |key| Operation::Put { key, value: b"v", condition: Condition::Always };
        let batch = [put(b"a"), put(b"a"), put(b"b")];
        let many: Vec<Operation<'_>> = batch.iter().cycle().take(300).copied().collect();
        let write = Write::Keys(Transaction::of(Operations::of(&many)));
        (0..100).for_each(|_| meter.write(SHARD, &write));
        let (_, shards, [keys, _]) = meter.view(9);
        assert_eq!(shards[&SHARD].writes, 30_000);
        assert!(shards[&SHARD].bytes_written > 30_000);
        assert_eq!(shown(&keys), ["a", "b"], "twice as often");
        let sum: u64 = keys.iter().map(|hot| hot.requests).sum();
        assert!((29_000..=31_000).contains(&sum), "{sum}");
    }

    #[test]
    fn what_was_asked_for_long_ago_is_forgotten() {
        let mut meter = LoadMeter::default();
        let mut at = |second: u64, key| {
            meter.set_now(UnixMillis(1_000 * second));
            (0..SAMPLED).for_each(|_| get(&mut meter, key));
            let (window_ms, _, [keys, _]) = meter.view(9);
            (window_ms / 1_000, shown(&keys).into_iter().map(Into::into).collect::<Vec<String>>())
        };
        assert_eq!(at(100, "a"), (0, vec!["a".into()]));
        assert_eq!(at(131, "b"), (31, vec!["a".into(), "b".into()]));
        assert_eq!(at(162, "c"), (31, vec!["b".into(), "c".into()]));
        assert_eq!(at(40, "d").1, ["b", "c", "d"], "the clock was set back");
    }

    #[test]
    fn rates_are_of_all_requests_a_second_once_there_is_time_enough() {
        let mut meter = LoadMeter::default();
        let mut at = |ms: u64| {
            meter.set_now(UnixMillis(1_000_000 + ms));
            (0..10_000).for_each(|_| get(&mut meter, "a"));
            meter.rates().get(&SHARD).copied()
        };
        assert_eq!([at(0), at(4_000)], [None, None]);
        assert_eq!(at(10_000), Some(3_000));
        assert_eq!(at(40_000), Some(1_000), "the first window counts whole");
    }

    #[test]
    fn rates_of_groups_of_slots_add_up() {
        let mut meter = LoadMeter::default();
        meter.set_now(UnixMillis(1_000));
        for number in 0..200_000 {
            get(&mut meter, if number % 4 == 0 { "a" } else { "b" });
        }
        meter.set_now(UnixMillis(11_000));
        let rates = meter.group_rates();
        let [a, b] = [b"a", b"b"].map(|key| rates[&SlotGroup::of(slot_of(key))]);
        assert!(a.abs_diff(5_000) < 500 && b.abs_diff(15_000) < 500, "{a} {b}");
        assert_eq!(rates.len(), 2);
    }

    #[test]
    fn long_keys_are_counted_by_their_beginning() {
        let mut meter = LoadMeter::default();
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        (0..SAMPLED).for_each(|_| get(&mut meter, &long));
        let (_, _, [keys, prefixes]) = meter.view(9);
        assert_eq!((shown(&keys), shown(&prefixes)), (vec![], vec![&long[1..]]));
    }

    #[test]
    fn a_frequent_key_is_never_lost() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let mut sketch = SpaceSaving::default();
            let mut exact: BTreeMap<u64, u64> = BTreeMap::new();
            let all = 4_000;
            for _ in 0..all {
                let key = random.u64(..random.clone().u64(1..2_000));
                *exact.entry(key).or_default() += 1;
                sketch.count(&key.to_be_bytes(), 1);
            }
            for (key, count) in exact {
                let tracked = sketch.tracked.iter().find(|tracked| *tracked.key == key.to_be_bytes());
                assert!(tracked.is_some() || count <= all / TRACKED_MAX as u64, "{key}: {count}");
                if let Some(hot) = tracked {
                    assert!(hot.requests >= count && hot.requests - hot.error <= count);
                }
            }
        }
    }
}
