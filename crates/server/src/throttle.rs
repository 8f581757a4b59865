//! How soon a client is told that its token is wrong.
//!
//! Owns the count of failures for each remote address, in bounded memory. After
//! [`FREE_FAILURES`] failures within a minute, the answers to further ones are spread to one a
//! second. Only answers to failures wait: a valid token from the same address is served at once, so
//! nobody can lock others out by failing.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures within a minute that are answered at once.
pub const FREE_FAILURES: u32 = 10;

const WINDOW: Duration = Duration::from_secs(60);

/// Shortest time between two answers after that.
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest delay of one answer. It bounds how long a failing client keeps a connection busy.
pub const DELAY_MAX: Duration = Duration::from_secs(10);

/// Addresses that are remembered. Beyond that, the one whose last failure is the oldest is
/// forgotten.
const ADDRESSES_MAX: usize = 1_024;

/// The failures of each remote address.
#[derive(Debug, Default)]
struct Failures(Vec<AddressFailures>);

#[derive(Debug)]
struct AddressFailures {
    address: IpAddr,
    /// When the window began, and the failures in it.
    began: Instant,
    count: u32,
    /// When the last failure was or will be answered.
    answered: Instant,
}

impl Failures {
    /// Records a failure. Returns how long its answer waits.
    fn record(&mut self, address: IpAddr, now: Instant) -> Duration {
        let known = self.0.iter().position(|entry| entry.address == address);
        let position = known.unwrap_or_else(|| self.add(address, now));
        let entry = &mut self.0[position];
        if now.saturating_duration_since(entry.began) >= WINDOW {
            (entry.began, entry.count) = (now, 0);
        }
        entry.count += 1;
        if entry.count <= FREE_FAILURES {
            entry.answered = entry.answered.max(now);
            return Duration::ZERO;
        }
        entry.answered = (entry.answered + INTERVAL).max(now).min(now + DELAY_MAX);
        entry.answered.saturating_duration_since(now)
    }

    fn add(&mut self, address: IpAddr, now: Instant) -> usize {
        let entry = AddressFailures { address, began: now, count: 0, answered: now };
        if self.0.len() < ADDRESSES_MAX {
            self.0.push(entry);
            return self.0.len() - 1;
        }
        let oldest = (0..self.0.len()).min_by_key(|&position| self.0[position].answered);
        let oldest = oldest.expect("invariant: the list is full");
        self.0[oldest] = entry;
        oldest
    }
}

/// The failures of all clients of a node, for all of its workers.
#[derive(Debug, Default)]
pub struct FailureThrottle(Mutex<Failures>);

impl FailureThrottle {
    /// Records a failed authentication, and waits before it may be answered. A client without an
    /// address does not wait.
    pub async fn failed(&self, address: Option<IpAddr>) {
        let Some(address) = address else { return };
        let delay = {
            let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            failures.record(address, Instant::now())
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn ten_failures_are_answered_at_once_and_others_once_a_second() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let seconds = Duration::from_secs;
        for _ in 0..FREE_FAILURES {
            assert_eq!(failures.record(address(1), start), Duration::ZERO);
        }
        for count in 1..=3 {
            assert_eq!(failures.record(address(1), start), seconds(count));
        }
        assert_eq!(failures.record(address(2), start), Duration::ZERO, "another address");
        assert_eq!(failures.record(address(1), start + seconds(3)), seconds(1));
        assert_eq!(failures.record(address(1), start + seconds(30)), Duration::ZERO, "none for long");
        assert_eq!(failures.record(address(1), start + seconds(30)), seconds(1));
        for _ in 0..100 {
            assert!(failures.record(address(1), start + seconds(31)) <= DELAY_MAX);
        }
        for _ in 0..FREE_FAILURES {
            assert_eq!(failures.record(address(1), start + seconds(90)), Duration::ZERO, "a new minute");
        }
    }

    #[test]
    fn only_so_many_addresses_are_remembered() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        for number in 0..3 * ADDRESSES_MAX as u32 {
            failures.record(address(number), start + Duration::from_millis(number.into()));
        }
        assert_eq!(failures.0.len(), ADDRESSES_MAX);
        assert!(failures.0.iter().all(|entry| entry.address > address(2 * ADDRESSES_MAX as u32 - 1)));
    }
}
