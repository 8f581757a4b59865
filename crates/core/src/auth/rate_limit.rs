//! Rate limits of principals, and the token buckets that enforce them.
//!
//! Owns the arithmetic. A node has one [`RateLimiter`] for each limited principal, and passes it
//! the time. Time and tokens are integers, so nothing is lost to rounding: a bucket is refilled
//! with exactly `rate` tokens a second, and holds at most the tokens of one second.
//!
//! The size of an answer is known only when it is sent. It is charged then, and the level of a
//! bucket may become negative. The next request waits until the level is high enough again. A
//! request that is larger than a full bucket is admitted when the bucket is full, because otherwise
//! it could never be made.

use alloc::vec::Vec;

use crate::codec::{self, DecodeError, Decoder};
use crate::limits;

/// How many operations and bytes a second a node serves to a principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Operations a second, 1 to [`limits::RATE_MAX`]; `None`: no limit.
    pub operations_per_s: Option<u64>,
    /// Bytes of requests and answers a second, 1 to [`limits::RATE_MAX`]; `None`: no limit.
    pub bytes_per_s: Option<u64>,
}

impl RateLimits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == RateLimits::default()
    }

    /// The lower of each limit.
    #[must_use]
    pub fn lowest(self, other: RateLimits) -> RateLimits {
        let lowest = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        RateLimits {
            operations_per_s: lowest(self.operations_per_s, other.operations_per_s),
            bytes_per_s: lowest(self.bytes_per_s, other.bytes_per_s),
        }
    }

    /// Whether each limit is in its range.
    pub(crate) fn is_valid(&self) -> bool {
        let is_valid = |rate: Option<u64>| rate.is_none_or(|rate| (1..=limits::RATE_MAX).contains(&rate));
        is_valid(self.operations_per_s) && is_valid(self.bytes_per_s)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        // No limit is 0.
        codec::put_varint(out, self.operations_per_s.unwrap_or(0));
        codec::put_varint(out, self.bytes_per_s.unwrap_or(0));
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<RateLimits, DecodeError> {
        let mut rate = || Ok(Some(decoder.varint()?).filter(|rate| *rate > 0));
        Ok(RateLimits { operations_per_s: rate()?, bytes_per_s: rate()? })
    }
}

/// What a request is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Operations.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The refusal of a request that is over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    /// When the request would be admitted without other ones, in milliseconds from now; at least 1.
    pub retry_after_ms: u64,
}

/// The buckets of one principal at one node.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    operations: Option<TokenBucket>,
    bytes: Option<TokenBucket>,
}

impl RateLimiter {
    /// Buckets that are full at `now_ms`, in milliseconds of a clock that does not go back.
    pub fn new(limits: RateLimits, now_ms: u64) -> RateLimiter {
        let bucket = |rate: Option<u64>| rate.map(|rate| TokenBucket::new(rate, now_ms));
        RateLimiter { operations: bucket(limits.operations_per_s), bytes: bucket(limits.bytes_per_s) }
    }

    /// Replaces the limits. The level of a bucket stays, within one second of the new rate.
    pub fn set_limits(&mut self, limits: RateLimits, now_ms: u64) {
        let set = |bucket: &mut Option<TokenBucket>, rate: Option<u64>| match (bucket.as_mut(), rate) {
            (Some(known), Some(rate)) => known.set_rate(rate, now_ms),
            (_, rate) => *bucket = rate.map(|rate| TokenBucket::new(rate, now_ms)),
        };
        set(&mut self.operations, limits.operations_per_s);
        set(&mut self.bytes, limits.bytes_per_s);
    }

    /// Admits a request and charges it to both buckets, or to neither.
    ///
    /// # Errors
    /// When a bucket has too few tokens.
    pub fn admit(&mut self, usage: Usage, now_ms: u64) -> Result<(), LimitExceeded> {
        let wait = |bucket: &mut Option<TokenBucket>, count: u64| {
            bucket.as_mut().map_or(0, |bucket| bucket.wait_ms(count, now_ms))
        };
        let waits = [wait(&mut self.operations, usage.operations), wait(&mut self.bytes, usage.bytes)];
        match waits.into_iter().max() {
            Some(retry_after_ms) if retry_after_ms > 0 => Err(LimitExceeded { retry_after_ms }),
            _ => {
                self.charge(usage);
                Ok(())
            }
        }
    }

    /// Charges what was not known when the request was admitted. A level may become negative.
    pub fn charge(&mut self, usage: Usage) {
        self.operations.iter_mut().for_each(|bucket| bucket.take(usage.operations));
        self.bytes.iter_mut().for_each(|bucket| bucket.take(usage.bytes));
    }
}

/// Thousandths of a token: what a rate of one token a second gains in one millisecond.
const UNITS: i128 = 1000;

/// A token bucket that holds the tokens of one second.
#[derive(Clone, Debug)]
struct TokenBucket {
    rate_per_s: u64,
    /// In units; negative if more was charged than the bucket held.
    level: i128,
    filled_ms: u64,
}

impl TokenBucket {
    fn new(rate_per_s: u64, now_ms: u64) -> TokenBucket {
        TokenBucket { rate_per_s, level: i128::from(rate_per_s) * UNITS, filled_ms: now_ms }
    }

    fn capacity(&self) -> i128 {
        i128::from(self.rate_per_s) * UNITS
    }

    fn fill(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.filled_ms);
        let gained = i128::from(elapsed_ms) * i128::from(self.rate_per_s);
        self.level = (self.level + gained).min(self.capacity());
        self.filled_ms = self.filled_ms.max(now_ms);
    }

    fn set_rate(&mut self, rate_per_s: u64, now_ms: u64) {
        self.fill(now_ms);
        self.rate_per_s = rate_per_s;
        // A debt of many tokens, made at a high rate, would take long to repay at a low one.
        self.level = self.level.clamp(-self.capacity(), self.capacity());
    }

    /// Milliseconds until so many tokens may be taken; 0: now.
    fn wait_ms(&mut self, count: u64, now_ms: u64) -> u64 {
        self.fill(now_ms);
        let needed = (i128::from(count) * UNITS).min(self.capacity());
        let lacking = (needed - self.level).max(0).unsigned_abs();
        u64::try_from(lacking.div_ceil(u128::from(self.rate_per_s))).unwrap_or(u64::MAX)
    }

    fn take(&mut self, count: u64) {
        self.level = self.level.saturating_sub(i128::from(count) * UNITS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn operations(count: u64) -> Usage {
        Usage { operations: count, bytes: 0 }
    }

    fn limits(operations_per_s: u64, bytes_per_s: u64) -> RateLimits {
        let rate = |rate: u64| Some(rate).filter(|rate| *rate > 0);
        RateLimits { operations_per_s: rate(operations_per_s), bytes_per_s: rate(bytes_per_s) }
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_and_one_burst(
            rate in 1..10_000_u64,
            requests in prop::collection::vec((0..2_000_u64, 1..100_u64), 1..200),
        ) {
            let mut limiter = RateLimiter::new(limits(rate, 0), 0);
            let (mut now_ms, mut admitted) = (0, 0);
            for (pause_ms, count) in requests {
                now_ms += pause_ms;
                let count = count.min(rate);
                let before = limiter.clone();
                match limiter.admit(operations(count), now_ms) {
                    Ok(()) => admitted += count,
                    // It is admitted at the time that the refusal names, and not before.
                    Err(LimitExceeded { retry_after_ms }) => {
                        prop_assert!(before.clone().admit(operations(count), now_ms + retry_after_ms).is_ok());
                        let early = now_ms + retry_after_ms - 1;
                        prop_assert!(before.clone().admit(operations(count), early).is_err());
                    }
                }
                prop_assert!(admitted * 1000 <= rate * now_ms + rate * 1000);
            }
        }

        #[test]
        fn never_less_if_asked_evenly(rate in 1..1_000_u64, seconds in 1..20_u64) {
            let mut limiter = RateLimiter::new(limits(rate, 0), 0);
            limiter.charge(operations(rate));
            for number in 1..=rate * seconds {
                let now_ms = (number * 1000).div_ceil(rate);
                prop_assert!(limiter.admit(operations(1), now_ms).is_ok(), "{number} at {now_ms} ms");
            }
        }
    }

    #[test]
    fn a_request_takes_from_both_buckets_or_from_none() {
        let mut limiter = RateLimiter::new(limits(10, 100), 0);
        let usage = |operations, bytes| Usage { operations, bytes };
        assert_eq!(limiter.admit(usage(1, 100), 0), Ok(()));
        assert_eq!(limiter.admit(usage(9, 1), 0), Err(LimitExceeded { retry_after_ms: 10 }));
        assert_eq!(limiter.admit(usage(9, 0), 0), Ok(()), "the refused request has taken nothing");
        assert_eq!(limiter.admit(usage(1, 0), 0), Err(LimitExceeded { retry_after_ms: 100 }));
    }

    #[test]
    fn a_request_larger_than_a_full_bucket_waits_until_it_is_full() {
        let mut limiter = RateLimiter::new(limits(0, 100), 0);
        let bytes = |bytes| Usage { operations: 1, bytes };
        assert_eq!(limiter.admit(bytes(1), 0), Ok(()));
        assert_eq!(limiter.admit(bytes(1_000), 0), Err(LimitExceeded { retry_after_ms: 10 }));
        assert_eq!(limiter.admit(bytes(1_000), 10), Ok(()));
        assert_eq!(limiter.admit(bytes(0), 10), Err(LimitExceeded { retry_after_ms: 9_000 }));
        assert_eq!(limiter.admit(bytes(0), 9_010), Ok(()));
    }

    #[test]
    fn changed_limits_count_at_once() {
        let mut limiter = RateLimiter::new(limits(1_000, 0), 0);
        limiter.charge(operations(5_000));
        limiter.set_limits(limits(10, 5), 0);
        assert_eq!(limiter.admit(operations(0), 0), Err(LimitExceeded { retry_after_ms: 1_000 }));
        limiter.set_limits(limits(0, 5), 0);
        assert_eq!(limiter.admit(operations(1_000_000), 0), Ok(()));
    }

    #[test]
    fn time_that_goes_back_gives_nothing() {
        let mut limiter = RateLimiter::new(limits(1, 0), 5_000);
        assert_eq!(limiter.admit(operations(1), 4_000), Ok(()));
        assert!(limiter.admit(operations(1), 0).is_err());
        assert!(limiter.admit(operations(1), 5_999).is_err());
        assert!(limiter.admit(operations(1), 6_000).is_ok());
    }

    #[test]
    fn the_lowest_limit_counts() {
        assert_eq!(limits(5, 0).lowest(limits(3, 7)), limits(3, 7));
        assert_eq!(limits(0, 0).lowest(limits(0, 7)), limits(0, 7));
        assert!(limits(0, 0).is_empty() && !limits(0, 1).is_empty());
        assert!(!RateLimits { operations_per_s: Some(0), bytes_per_s: None }.is_valid());
    }
}
