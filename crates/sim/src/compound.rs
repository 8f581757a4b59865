//! Generates requests with operations: transactions, numbers, keys that expire at a time or after a
//! duration.
//!
//! Owns the choice, on separate keys (`{tag}o/…`), so that the histories of plain keys stay simple
//! enough to be checked without the log. Every command names its operation in the history: a
//! transaction ends with a read of a key that contains the token, and an exchange stores a number
//! that encodes it. So the log can be compared with the history.

use bytes::Bytes;
use tidelock_core::command::{
    Comparison, Condition, ConditionalTransaction, Consistency, ExpectedState, Expiry, ExpiryCondition,
    Operation, OperationReply, Operations, OperationsBuilder, Read, Reply, Request, Set, SetCondition,
    Transaction, Watch, Write, WriteReply, hash_of,
};
use tidelock_core::decimal::Decimal;
use tidelock_core::limits;
use tidelock_core::types::{ShardId, Token, UnixMillis, Version};

use crate::faults::choose;
use crate::slots::shard_of;

/// Numbers that name an operation are above all that clients count up to.
const NUMBERS_BEGIN: i64 = 1 << 40;

/// Transactions with an id that clients may still repeat.
const IDENTIFIED_MAX: usize = 20;

/// Longest time to live that a client gives a key, in milliseconds.
const LIFE_MS_MAX: u64 = 4_000;

/// Whether a key is one of those that are used with operations.
pub fn is_compound(key: &[u8]) -> bool {
    key.starts_with(b"{")
}

/// The operation in the history to which a logged command belongs, if this module generated it.
pub fn token_in(write: &Write) -> Option<Token> {
    let operations = match write {
        Write::Keys(transaction) => &transaction.operations,
        // Both branches name it.
        Write::Conditional(transaction) => &transaction.then,
        _ => return None,
    };
    match operations.iter().last()? {
        Operation::Describe { key } => {
            let digits = key.rsplit(|&byte| byte == b'#').next()?;
            std::str::from_utf8(digits).ok()?.parse().ok().map(Token)
        }
        Operation::Exchange { value: number, .. } | Operation::CompareExchange { new: number, .. } => {
            Some(Token((number - NUMBERS_BEGIN) as u64))
        }
        _ => None,
    }
}

/// Whether a command is a transaction with an id, which clients repeat.
pub fn is_identified(write: &Write) -> bool {
    matches!(write, Write::Conditional(transaction) if transaction.id.is_some())
}

/// Generator of requests with operations.
#[derive(Debug)]
pub struct Compound {
    /// For each data shard, the hash tag of its keys.
    tags: Vec<String>,
    keys_per_shard: usize,
    per_mille: u32,
    /// Versions that clients saw, for watches.
    seen: Vec<(Bytes, Version)>,
    /// The latest transactions with an id, which clients repeat.
    identified: Vec<Write>,
    random: fastrand::Rng,
}

impl Compound {
    /// For a cluster with `data_shards`; of a thousand requests `per_mille` have operations.
    pub fn new(data_shards: u64, keys_per_shard: usize, per_mille: u32, random: fastrand::Rng) -> Compound {
        let tag = |shard| {
            let mut tags = (0u64..).map(|number| number.to_string());
            tags.find(|tag| shard_of(tag.as_bytes(), data_shards) == shard)
                .expect("invariant: every shard has tags")
        };
        let tags = (1..=data_shards).map(|shard| tag(ShardId(shard))).collect();
        Compound { tags, keys_per_shard, per_mille, seen: Vec::new(), identified: Vec::new(), random }
    }

    /// For each data shard, the hash tag of its keys.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Every key, for the final inspection.
    pub fn keys(&self) -> Vec<Vec<Bytes>> {
        let keys = |shard| (0..self.keys_per_shard).map(move |number| self.key(shard, number)).collect();
        (0..self.tags.len()).map(keys).collect()
    }

    /// A request at a node whose clock shows `clock`, or none this time.
    pub fn request(&mut self, token: Token, clock: UnixMillis) -> Option<Request> {
        if self.random.u32(0..1000) >= self.per_mille {
            return None;
        }
        if !self.identified.is_empty() && self.random.u8(0..8) == 0 {
            return Some(Request::Write(choose(&mut self.random, &self.identified).clone()));
        }
        let shard = self.random.usize(0..self.tags.len());
        Some(match self.random.u8(0..10) {
            0 => Request::Write(self.exchange(shard, token)),
            1..=3 => {
                let stale = self.random.u8(0..4) == 0;
                let consistency = if stale { Consistency::Stale } else { Consistency::Linearizable };
                Request::Read { read: self.read(shard), consistency }
            }
            4..=6 => Request::Write(self.conditional_transaction(shard, token, clock)),
            _ => Request::Write(self.transaction(shard, token, clock)),
        })
    }

    /// Clients learn versions.
    pub fn learn(&mut self, request: &Request, reply: &Reply) {
        let Some(replies) = reply.operations() else { return };
        let operations = match request {
            Request::Write(Write::Keys(transaction)) => &transaction.operations,
            Request::Write(Write::Conditional(transaction)) => match reply {
                Reply::Write(WriteReply::Branched { succeeded, .. }) => transaction.branch(*succeeded),
                _ => return,
            },
            Request::Read { read: Read::Operations { operations, .. }, .. } => operations,
            _ => return,
        };
        for (operation, reply) in operations.iter().zip(replies.iter()) {
            if let OperationReply::Value { version, .. } | OperationReply::Written { version, .. } = reply {
                self.seen.push((Bytes::copy_from_slice(operation.key()), version));
            }
        }
        let excess = self.seen.len().saturating_sub(50);
        self.seen.drain(..excess);
    }

    fn key(&self, shard: usize, number: usize) -> Bytes {
        format!("{{{}}}o/{number}", self.tags[shard]).into()
    }

    fn any_key(&mut self, shard: usize) -> Bytes {
        let number = self.random.usize(0..self.keys_per_shard);
        self.key(shard, number)
    }

    fn read(&mut self, shard: usize) -> Read {
        match self.random.u8(0..12) {
            0 => return Read::Count,
            1 => return Read::Scan { shard: ShardId(shard as u64 + 1), after: 0, count: 3, version: 1 },
            _ => {}
        }
        let mut operations = OperationsBuilder::default();
        for _ in 0..self.random.usize(1..=3) {
            let key = self.any_key(shard);
            let get = self.random.bool();
            operations.push(&if get {
                Operation::Get { key: &key }
            } else {
                Operation::Describe { key: &key }
            });
        }
        // Values here are a few bytes long: these limits fit none, some, and all of them.
        let bytes_max =
            *choose(&mut self.random, &[0, 8, limits::REPLIES_BYTES_CLOSE, limits::REPLIES_BYTES_CLOSE]);
        Read::Operations { operations: operations.finish(), bytes_max }
    }

    fn exchange(&mut self, shard: usize, token: Token) -> Write {
        let (key, number) = (self.any_key(shard), NUMBERS_BEGIN + token.0 as i64);
        if self.random.bool() {
            Write::of(&Operation::Exchange { key: &key, value: number })
        } else {
            Write::of(&Operation::CompareExchange {
                key: &key,
                expected: self.random.i64(-2..3),
                new: number,
            })
        }
    }

    fn transaction(&mut self, shard: usize, token: Token, clock: UnixMillis) -> Write {
        let mut transaction = Transaction::of(self.operations(shard, token, clock));
        if self.random.u8(0..4) == 0 {
            let (key, version) = self.seen_version(shard);
            transaction.watches.push(Watch { key, version });
        }
        Write::Keys(transaction)
    }

    fn conditional_transaction(&mut self, shard: usize, token: Token, clock: UnixMillis) -> Write {
        let comparisons = (0..self.random.usize(0..=2)).map(|_| self.comparison(shard)).collect();
        let then = self.operations(shard, token, clock);
        let otherwise = self.operations(shard, token, clock);
        let mut transaction = ConditionalTransaction { comparisons, then, otherwise, id: None };
        if self.random.bool() {
            transaction = transaction.identified(token.0.to_string().into());
        }
        let is_identified = transaction.id.is_some();
        let write = Write::Conditional(Box::new(transaction));
        if is_identified {
            let excess = (self.identified.len() + 1).saturating_sub(IDENTIFIED_MAX);
            self.identified.drain(..excess);
            self.identified.push(write.clone());
        }
        write
    }

    fn comparison(&mut self, shard: usize) -> Comparison {
        match self.random.u8(0..4) {
            0 => {
                let (key, version) = self.seen_version(shard);
                Comparison { key, expected: ExpectedState::Version(version) }
            }
            1 => Comparison { key: self.any_key(shard), expected: ExpectedState::Exists },
            2 => {
                let expected = ExpectedState::Version(Version::ABSENT);
                Comparison { key: self.any_key(shard), expected }
            }
            _ => {
                let expected = ExpectedState::Value(Bytes::from_static(b"0"));
                Comparison { key: self.any_key(shard), expected }
            }
        }
    }

    /// A few operations, of which the last one names the operation in the history.
    fn operations(&mut self, shard: usize, token: Token, clock: UnixMillis) -> Operations {
        let mut operations = OperationsBuilder::default();
        for _ in 0..self.random.usize(1..=4) {
            match self.random.u8(0..4) {
                0 => self.push_newer_operation(shard, token, &mut operations),
                _ => self.push_operation(shard, (token, clock), &mut operations),
            }
        }
        let mark = format!("{{{}}}#{}", self.tags[shard], token.0);
        operations.push(&Operation::Describe { key: mark.as_bytes() });
        operations.finish()
    }

    /// A version that a client saw of a key of the shard, or the absence of one.
    fn seen_version(&mut self, shard: usize) -> (Bytes, Version) {
        let tag = format!("{{{}}}", self.tags[shard]);
        let seen: Vec<_> =
            self.seen.iter().filter(|(key, _)| key.starts_with(tag.as_bytes())).cloned().collect();
        let unseen = (self.any_key(shard), Version::ABSENT);
        if seen.is_empty() { unseen } else { choose(&mut self.random, &seen).clone() }
    }

    /// Adds an operation that needs a newer cluster version than the first.
    fn push_newer_operation(&mut self, shard: usize, token: Token, out: &mut OperationsBuilder) {
        let key = &self.any_key(shard)[..];
        let random = &mut self.random;
        let text = format!("t{}", token.0);
        let numbers = ["0.1", "-2.5", "1e-17", "999999999999999999999"];
        out.push(&match random.u8(0..4) {
            0 => Operation::SetRange { key, offset: random.u64(0..20), bytes: text.as_bytes() },
            1 => {
                let delta = Decimal::parse(choose(random, &numbers).as_bytes());
                Operation::AddDecimal { key, delta: delta.expect("invariant: these are numbers") }
            }
            2 => Operation::DeleteIf { key, condition: value_condition(random) },
            _ => Operation::SkipIfExists { key, count: random.u64(1..=3) },
        });
    }

    fn push_operation(
        &mut self,
        shard: usize,
        (token, clock): (Token, UnixMillis),
        out: &mut OperationsBuilder,
    ) {
        let key = &self.any_key(shard)[..];
        let random = &mut self.random;
        let text = format!("t{}-{}", token.0, random.u8(..));
        let life_ms = random.u64(0..LIFE_MS_MAX);
        let at = UnixMillis(clock.0 + life_ms);
        let is_relative = life_ms % 2 == 1;
        let condition = *choose(
            random,
            &[Condition::Always, Condition::Always, Condition::Exists, Condition::Version(Version::ABSENT)],
        );
        let value: &[u8] = if random.bool() { b"0" } else { text.as_bytes() };
        out.push(&match random.u8(0..13) {
            0 => Operation::Get { key },
            1 => Operation::Describe { key },
            2 => Operation::Put { key, value, condition },
            3..=5 => {
                let condition = match random.u8(0..4) {
                    0 | 1 => value_condition(random),
                    _ => SetCondition::Version(condition),
                };
                let end = if is_relative { Expiry::After(life_ms) } else { Expiry::At(at) };
                let expiry =
                    *choose(random, &[Expiry::Never, Expiry::Keep, end, end, Expiry::At(UnixMillis(0))]);
                Operation::Set(Set { key, value, condition, expiry, previous: random.bool() })
            }
            6 => Operation::Delete { key, condition },
            7 => Operation::Take { key },
            8 => Operation::Add { key, delta: *choose(random, &[1, -1, 1 << 20, i64::MAX]) },
            9 => Operation::Append { key, suffix: text.as_bytes() },
            10 => {
                let at = *choose(random, &[None, Some(at), Some(at), Some(UnixMillis(0))]);
                let conditions = [
                    ExpiryCondition::Always,
                    ExpiryCondition::Always,
                    ExpiryCondition::Never,
                    ExpiryCondition::Some,
                    ExpiryCondition::Later,
                    ExpiryCondition::SomeEarlier,
                ];
                let condition = *choose(random, &conditions);
                match at {
                    Some(UnixMillis(1..)) if is_relative => {
                        Operation::ExpireAfter { key, after_ms: life_ms, condition }
                    }
                    at => Operation::Expire { key, at, condition },
                }
            }
            11 => Operation::Exchange { key, value: random.i64(-2..3) },
            _ => Operation::CompareExchange { key, expected: random.i64(-2..3), new: random.i64(-2..3) },
        });
    }
}

/// A condition that holds for about half of the values.
fn value_condition(random: &mut fastrand::Rng) -> SetCondition<'static> {
    match random.u8(0..6) {
        0 | 1 => SetCondition::Equals(b"0"),
        2 | 3 => SetCondition::Differs(b"0"),
        4 => SetCondition::HashEquals(hash_of(b"0")),
        _ => SetCondition::HashDiffers(hash_of(b"0")),
    }
}

/// All keys of a shard in one read, for the final inspection.
pub fn read_all(keys: &[Bytes]) -> Read {
    let gets: Vec<Operation<'_>> = keys.iter().map(|key| Operation::Get { key }).collect();
    Read::Operations { operations: Operations::of(&gets), bytes_max: limits::REPLIES_BYTES_CLOSE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_operation_that_they_belong_to() {
        let mut compound = Compound::new(3, 2, 1000, fastrand::Rng::with_seed(1));
        let mut named = 0;
        for token in (1..500).map(Token) {
            if let Some(Request::Write(write)) = compound.request(token, UnixMillis(5)) {
                // A repetition names the operation that it repeats.
                let named_token = token_in(&write).expect("a token");
                assert!(named_token == token || (named_token < token && is_identified(&write)));
                assert_eq!(write.validate(), Ok(()));
                named += 1;
            }
        }
        assert!(named > 100);
    }
}
