//! Applies changes of the cluster's certificate authorities (CAs) and of join tokens.
//!
//! Owns the order of steps of a CA rotation, and the rules for using a join token.
//!
//! Invariants:
//! - If there are CAs, exactly one of them signs.
//! - A CA neither starts to sign nor is removed within [`limits::AUTHORITY_REST_MS`] of the
//!   previous step, so that running nodes have applied that step.
//! - A join token admits one host. That host may use it repeatedly.

use alloc::vec::Vec;

use uuid::Uuid;

use crate::auth::{Authorities, Authority, AuthorityId, JoinToken, PrivateKey, SecretDigest, TokenId};
use crate::command::{AuthorityChange, AuthorityWrite, Denial};
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::types::UnixMillis;

impl Authorities {
    /// The rows after a change. They are equal to the current rows if the change has no effect.
    ///
    /// # Errors
    /// Why the change is denied.
    pub(in crate::control) fn changed(
        &self,
        write: AuthorityWrite,
        faults: Faults,
    ) -> Result<Authorities, Denial> {
        let AuthorityWrite { at, change } = write;
        let mut next = self.clone();
        match change {
            AuthorityChange::Add { certificate, key } => next.add((certificate, key), at)?,
            AuthorityChange::Use { id } => next.sign_by(id, at)?,
            AuthorityChange::Remove { id } => next.remove(id, at)?,
            AuthorityChange::AddJoinToken { id, digest, lifetime_ms } => {
                let expires = UnixMillis(at.0.saturating_add(lifetime_ms));
                next.add_join_token(id, JoinToken { digest, expires, used_by: None }, at)?;
            }
            AuthorityChange::Enrol { id, digest, host } => {
                next.enrol((id, &digest), host, at, faults)?;
            }
        }
        Ok(next)
    }

    fn add(&mut self, (certificate, key): (Vec<u8>, PrivateKey), at: UnixMillis) -> Result<(), Denial> {
        if self.rows.values().any(|row| row.certificate == certificate) {
            return Ok(());
        }
        if self.rows.len() >= limits::AUTHORITIES_MAX {
            return Err(Denial::TooManyAuthorities);
        }
        self.last = AuthorityId(self.last.0 + 1);
        if self.rows.is_empty() {
            self.signing = self.last;
        }
        self.rows.insert(self.last, Authority { certificate, key, added: at });
        (self.changed, self.revision) = (at, self.revision + 1);
        Ok(())
    }

    fn sign_by(&mut self, id: AuthorityId, at: UnixMillis) -> Result<(), Denial> {
        if !self.rows.contains_key(&id) {
            return Err(Denial::UnknownAuthority);
        }
        if self.signing != id {
            self.check_settled(at)?;
            (self.signing, self.changed, self.revision) = (id, at, self.revision + 1);
        }
        Ok(())
    }

    fn remove(&mut self, id: AuthorityId, at: UnixMillis) -> Result<(), Denial> {
        // Without any authority, the number of the one that signs is 0, which none has.
        if !self.rows.contains_key(&id) {
            return Err(Denial::UnknownAuthority);
        }
        if self.signing == id {
            return Err(Denial::AuthoritySigns);
        }
        self.check_settled(at)?;
        self.rows.remove(&id);
        self.revision += 1;
        Ok(())
    }

    /// Checks that enough time has passed since the last step of a rotation.
    fn check_settled(&self, at: UnixMillis) -> Result<(), Denial> {
        if at.0 < self.changed.0.saturating_add(limits::AUTHORITY_REST_MS) {
            return Err(Denial::AuthoritiesUnsettled);
        }
        Ok(())
    }

    fn add_join_token(&mut self, id: TokenId, token: JoinToken, at: UnixMillis) -> Result<(), Denial> {
        if self.rows.is_empty() {
            return Err(Denial::NoAuthority);
        }
        self.join_tokens.retain(|_, known| at < known.expires);
        if let Some(known) = self.join_tokens.get(&id) {
            // A repetition of the same command, after an answer was lost.
            return if known.digest.matches(&token.digest) { Ok(()) } else { Err(Denial::TokenExists) };
        }
        if self.join_tokens.len() >= limits::JOIN_TOKENS_MAX {
            return Err(Denial::TooManyTokens);
        }
        self.join_tokens.insert(id, token);
        Ok(())
    }

    fn enrol(
        &mut self,
        (id, digest): (TokenId, &SecretDigest),
        host: Uuid,
        at: UnixMillis,
        faults: Faults,
    ) -> Result<(), Denial> {
        match self.check_join_token((id, digest), host, at) {
            Err(Denial::JoinTokenUsed) if faults.has(Fault::JoinTokenReused) => {}
            checked => checked?,
        }
        self.join_tokens.entry(id).and_modify(|token| token.used_by = Some(host));
        Ok(())
    }

    /// Checks whether a join token with this secret admits a host at `at`.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check_join_token(
        &self,
        (id, digest): (TokenId, &SecretDigest),
        host: Uuid,
        at: UnixMillis,
    ) -> Result<(), Denial> {
        if self.rows.is_empty() {
            return Err(Denial::NoAuthority);
        }
        let token = self.join_tokens.get(&id).filter(|token| token.digest.matches(digest));
        let token = token.ok_or(Denial::JoinTokenUnknown)?;
        if at >= token.expires {
            return Err(Denial::JoinTokenExpired);
        }
        match token.used_by {
            Some(used_by) if used_by != host => Err(Denial::JoinTokenUsed),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{PresentedCertificate, bundle_revision};
    use crate::codec::Decoder;

    const REST: u64 = limits::AUTHORITY_REST_MS;

    #[derive(Default)]
    struct TestAuthorities(Authorities);

    impl TestAuthorities {
        /// Makes a change; returns why it is denied, if it is.
        fn make(&mut self, at: u64, change: AuthorityChange) -> Option<Denial> {
            let write = AuthorityWrite { at: UnixMillis(at), change };
            match self.0.changed(write, Faults::NONE) {
                Ok(next) => {
                    self.0 = next;
                    None
                }
                Err(denial) => Some(denial),
            }
        }

        fn add(&mut self, at: u64, name: u8) -> Option<Denial> {
            let key = PrivateKey([b'k', name].to_vec());
            self.make(at, AuthorityChange::Add { certificate: [b'c', name].to_vec(), key })
        }

        fn token(&mut self, at: u64, id: u64) -> Option<Denial> {
            let digest = SecretDigest::of(&[id as u8]);
            self.make(at, AuthorityChange::AddJoinToken { id: TokenId(id), digest, lifetime_ms: 100 })
        }

        fn enrol(&mut self, at: u64, (id, secret): (u64, u8), host: u128) -> Option<Denial> {
            let (id, digest, host) = (TokenId(id), SecretDigest::of(&[secret]), Uuid::from_u128(host));
            self.make(at, AuthorityChange::Enrol { id, digest, host })
        }
    }

    #[test]
    fn an_authority_is_rotated_in_three_steps() {
        let (mut rows, one, two) = (TestAuthorities::default(), AuthorityId(1), AuthorityId(2));
        assert_eq!(rows.make(0, AuthorityChange::Use { id: one }), Some(Denial::UnknownAuthority));
        assert_eq!((rows.add(0, 1), rows.add(5, 1)), (None, None), "repeated");
        assert_eq!(rows.0.signing().map(|(id, _)| id), Some(one));
        assert_eq!((rows.add(10, 2), rows.add(11, 3)), (None, Some(Denial::TooManyAuthorities)));
        let bundle = rows.0.bundle();
        assert!(bundle.ends_with(b" revision 2\nc\x01\nc\x02\n"), "{bundle:?}");
        assert_eq!((bundle_revision(&bundle), bundle_revision(b""), bundle_revision(b"c")), (2, 0, 0));
        let use_two = AuthorityChange::Use { id: two };
        assert_eq!(rows.make(9 + REST, use_two.clone()), Some(Denial::AuthoritiesUnsettled));
        assert_eq!(rows.make(10 + REST, AuthorityChange::Remove { id: one }), Some(Denial::AuthoritySigns));
        assert_eq!((rows.make(10 + REST, use_two.clone()), rows.make(20 + REST, use_two)), (None, None));
        let remove = AuthorityChange::Remove { id: one };
        assert_eq!(rows.make(20 + REST, remove.clone()), Some(Denial::AuthoritiesUnsettled));
        assert_eq!(rows.make(10 + 2 * REST, remove.clone()), None);
        assert_eq!(rows.make(10 + 2 * REST, remove), Some(Denial::UnknownAuthority));
        assert_eq!(rows.add(10 + 2 * REST, 3), None);
        assert_eq!(rows.0.rows().keys().copied().collect::<Vec<_>>(), [two, AuthorityId(3)]);
    }

    #[test]
    fn a_join_token_admits_one_host_until_it_expires() {
        let mut rows = TestAuthorities::default();
        assert_eq!(
            (rows.token(0, 1), rows.enrol(0, (1, 1), 7)),
            (Some(Denial::NoAuthority), Some(Denial::NoAuthority))
        );
        assert_eq!((rows.add(0, 1), rows.token(0, 1), rows.token(0, 2)), (None, None, None));
        assert_eq!(rows.enrol(1, (3, 3), 7), Some(Denial::JoinTokenUnknown));
        assert_eq!(rows.enrol(1, (1, 2), 7), Some(Denial::JoinTokenUnknown), "another secret");
        assert_eq!(
            (rows.enrol(1, (1, 1), 7), rows.enrol(99, (1, 1), 7)),
            (None, None),
            "the same host again"
        );
        assert_eq!(rows.enrol(2, (1, 1), 8), Some(Denial::JoinTokenUsed));
        assert_eq!(rows.token(2, 1), None, "repeated");
        assert_eq!(rows.enrol(2, (1, 1), 8), Some(Denial::JoinTokenUsed), "the repetition renews nothing");
        assert_eq!(rows.enrol(100, (2, 2), 8), Some(Denial::JoinTokenExpired));
        assert_eq!(rows.token(150, 4), None);
        assert_eq!(rows.0.join_tokens().keys().copied().collect::<Vec<_>>(), [TokenId(4)], "expired ones go");
    }

    #[test]
    fn join_tokens_are_bounded_and_rows_are_read_as_they_are_written() {
        let mut rows = TestAuthorities::default();
        assert_eq!(rows.add(0, 1), None);
        for id in 0..limits::JOIN_TOKENS_MAX as u64 {
            assert_eq!(rows.token(1, id), None);
        }
        assert_eq!(rows.token(1, u64::MAX), Some(Denial::TooManyTokens));
        assert_eq!(rows.enrol(1, (1, 1), 9), None);
        let mut encoded = Vec::new();
        rows.0.encode(&mut encoded);
        let mut decoder = Decoder::new(&encoded);
        assert_eq!(Authorities::decode(&mut decoder).as_ref(), Ok(&rows.0));
        assert!(decoder.is_empty());
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_time_or_by_another_authority() {
        let mut rows = TestAuthorities::default();
        let day = |days: u64| UnixMillis(days * 24 * 3_600_000);
        let shown = |signed_by| PresentedCertificate { begins: day(10), ends: day(40), signed_by };
        let renewed_by = |rows: &TestAuthorities, signed_by, now| {
            rows.0.renewal(shown(signed_by), now).map(|(id, _)| id.0)
        };
        let (one, two) = (Some(AuthorityId(1)), Some(AuthorityId(2)));
        assert_eq!(renewed_by(&rows, None, day(40)), None, "nothing signs");
        assert_eq!(rows.add(0, 1), None);
        assert_eq!(renewed_by(&rows, one, UnixMillis(day(30).0 - 1)), None);
        assert_eq!(renewed_by(&rows, one, day(30)), Some(1));
        assert_eq!(renewed_by(&rows, one, day(50)), Some(1), "also when it has expired");
        assert_eq!(renewed_by(&rows, None, day(10)), Some(1), "signed by one that was removed");
        assert_eq!(rows.add(0, 2), None);
        assert_eq!(renewed_by(&rows, one, day(10)), None);
        assert_eq!(rows.make(REST, AuthorityChange::Use { id: AuthorityId(2) }), None);
        assert_eq!((renewed_by(&rows, one, day(10)), renewed_by(&rows, two, day(10))), (Some(2), None));
    }
}
