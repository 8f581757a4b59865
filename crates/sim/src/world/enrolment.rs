//! Workload of join tokens: an administrator creates them, and hosts use them at any node,
//! including tokens that another host has already used.

use tidelock_core::auth::{PrivateKey, SecretDigest, TokenId};
use tidelock_core::command::{AuthorityChange, AuthorityWrite, RegistryWrite};
use uuid::Uuid;

use crate::checkers::Violation;
use crate::checkers::admissions::Admissions;

/// Hosts that use join tokens.
const HOSTS: u128 = 3;

/// Lifetime of a join token in milliseconds: long enough for several uses.
const LIFETIME_MS: u64 = 3_000;

/// State of the workload, and its checker.
#[derive(Debug, Default)]
pub(super) struct Enrolments {
    checker: Admissions,
    /// The newest join token; 0 before the first.
    last: u64,
    /// The token and the host of the request in flight, if it uses a join token.
    in_flight: Option<(TokenId, Uuid)>,
}

impl Enrolments {
    /// The change that adds the only CA.
    pub(super) fn authority() -> RegistryWrite {
        let (certificate, key) = (b"certificate".to_vec(), PrivateKey(b"key".to_vec()));
        RegistryWrite::Authority(AuthorityWrite::new(AuthorityChange::Add { certificate, key }))
    }

    /// The next request. Most of them use the newest join token.
    pub(super) fn next(&mut self, random: &mut fastrand::Rng) -> RegistryWrite {
        self.in_flight = None;
        let change = if self.last == 0 || random.u8(0..4) == 0 {
            self.last += 1;
            let (id, digest) = (TokenId(self.last), digest(self.last));
            AuthorityChange::AddJoinToken { id, digest, lifetime_ms: LIFETIME_MS }
        } else {
            let (id, host) = (TokenId(self.last), Uuid::from_u128(random.u128(1..=HOSTS)));
            self.in_flight = Some((id, host));
            AuthorityChange::Enrol { id, digest: digest(self.last), host }
        };
        RegistryWrite::Authority(AuthorityWrite::new(change))
    }

    /// Records that the request in flight was answered.
    pub(super) fn served(&mut self) -> Result<(), Violation> {
        match self.in_flight.take() {
            Some((token, host)) => self.checker.admitted(token, host),
            None => Ok(()),
        }
    }

    /// Records that another request is in flight.
    pub(super) fn forget(&mut self) {
        self.in_flight = None;
    }
}

fn digest(token: u64) -> SecretDigest {
    SecretDigest::of(&token.to_be_bytes())
}
