//! Roles, principals and tokens as this node has applied them, for all of its workers.
//!
//! Owns how the rows reach the workers, and the proof that a client is a principal. The worker that
//! owns the node publishes the rows when they change. The other workers see one number, which
//! changes with the rows, and look at the rows only then. So a connection that sends the same token
//! again costs one atomic load a request.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidelock_core::auth::{Access, Caller, SecretDigest, TokenId};
use tidelock_core::types::UnixMillis;
use tokio::sync::watch;

use crate::limiter::{PrincipalLimiter, PrincipalLimiters};
use crate::tls::ClientCertificate;
use crate::token::BearerToken;

/// Why protected mode refuses a client of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectedModeError {
    /// The node has not confirmed yet whether tokens are required.
    Unconfirmed,
    /// Tokens are not required.
    TokensNotRequired,
}

impl ProtectedModeError {
    /// What to do about [`ProtectedModeError::TokensNotRequired`].
    pub const ADVICE: &str = "this node is in protected mode, because tokens are not required: it serves only clients on its \
         own machine. There, run `tidelock auth principal put root --role admin`, `tidelock auth token create root` and \
         `tidelock auth require`; nothing was done";
}

/// The rows that all workers of a node check tokens against.
#[derive(Debug, Default)]
pub struct PublishedAccess {
    /// Four times the number of changes so far, 2 more if the rows may be older than the start of
    /// the node, and 1 more if authentication is required.
    state: AtomicU64,
    rows: watch::Sender<Arc<Access>>,
    limiters: PrincipalLimiters,
}

/// The state of the rows at some moment. Another one means that the rows may have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessState(u64);

impl AccessState {
    /// Whether requests without a valid token are refused.
    #[inline]
    pub fn is_required(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the rows may be older than the start of the node, so that authentication may be
    /// required, or a token be valid, without its knowledge.
    pub(crate) fn is_unconfirmed(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether protected mode serves clients of other machines.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check_protected_mode(self) -> Result<(), ProtectedModeError> {
        match (self.is_required(), self.is_unconfirmed()) {
            (true, _) => Ok(()),
            (false, true) => Err(ProtectedModeError::Unconfirmed),
            (false, false) => Err(ProtectedModeError::TokensNotRequired),
        }
    }
}

impl PublishedAccess {
    /// The first rows, which are confirmed to be current.
    pub fn new(rows: Arc<Access>) -> PublishedAccess {
        let state = (1 << 2) | u64::from(rows.is_required());
        PublishedAccess {
            state: state.into(),
            rows: watch::Sender::new(rows),
            limiters: PrincipalLimiters::default(),
        }
    }

    /// The current state.
    #[inline]
    pub fn state(&self) -> AccessState {
        AccessState(self.state.load(Ordering::Acquire))
    }

    /// The current rows.
    pub fn rows(&self) -> Arc<Access> {
        self.rows.borrow().clone()
    }

    /// The limits of principals at this node.
    pub fn limiters(&self) -> &PrincipalLimiters {
        &self.limiters
    }

    /// Waits until the rows are other ones than these.
    pub async fn until_changed(&self, known: &Arc<Access>) {
        let mut rows = self.rows.subscribe();
        // The sender lives as long as this.
        drop(rows.wait_for(|rows| !Arc::ptr_eq(rows, known)).await);
    }
}

/// Publishes the rows of the worker that owns the node.
#[derive(Debug)]
pub(crate) struct AccessPublisher {
    published: Arc<PublishedAccess>,
    last: RefCell<Arc<Access>>,
}

impl AccessPublisher {
    pub fn new(rows: &Arc<Access>, is_confirmed: bool) -> AccessPublisher {
        let published = PublishedAccess::new(rows.clone()).into();
        let publisher = AccessPublisher { published, last: RefCell::new(rows.clone()) };
        publisher.publish(rows, is_confirmed);
        publisher
    }

    pub fn published(&self) -> &Arc<PublishedAccess> {
        &self.published
    }

    /// Publishes the rows if they have changed, and whether they are at least as new as the start
    /// of the node.
    pub fn publish(&self, rows: &Arc<Access>, is_confirmed: bool) {
        let published = &self.published;
        let was_confirmed = !published.state().is_unconfirmed();
        if Arc::ptr_eq(&self.last.borrow(), rows) && was_confirmed == is_confirmed {
            return;
        }
        *self.last.borrow_mut() = rows.clone();
        published.rows.send_replace(rows.clone());
        // After the rows, so that a worker that sees the new state finds the new rows.
        let changes = (published.state.load(Ordering::Relaxed) >> 2) + 1;
        let flags = u64::from(!is_confirmed) << 1 | u64::from(rows.is_required());
        published.state.store(changes << 2 | flags, Ordering::Release);
    }
}

/// The proof that a client is a principal.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The name of the principal.
    pub principal: Arc<str>,
    /// When the proof expires; `None` if it does not.
    pub expires: Option<UnixMillis>,
    evidence: Evidence,
    limiter: Option<Arc<PrincipalLimiter>>,
}

/// What proves that a client is a principal.
#[derive(Clone, Debug)]
enum Evidence {
    /// A token whose secret was right.
    Token { id: TokenId, digest: SecretDigest },
    /// A certificate, and the name in it that belongs to the principal.
    Certificate { certificate: Arc<ClientCertificate>, name: Box<str> },
}

impl Proof {
    /// Checks a token. `None` if there is no such token, its secret is wrong or it has expired.
    pub fn of(token: &BearerToken, access: &PublishedAccess, now: UnixMillis) -> Option<Proof> {
        let (digest, rows) = (token.digest(), access.rows());
        let principal: Arc<str> = rows.authenticate(token.id, &digest, now)?.into();
        let expires = rows.tokens().get(&token.id).and_then(|row| row.expires);
        let limiter = access.limiters.of(&principal, &rows);
        Some(Proof { principal, expires, evidence: Evidence::Token { id: token.id, digest }, limiter })
    }

    /// Checks the certificate of a client, whose handshake has verified it. `None` if it proves no
    /// principal, or has expired since.
    pub fn of_certificate(
        certificate: &Arc<ClientCertificate>,
        access: &PublishedAccess,
        now: UnixMillis,
    ) -> Option<Proof> {
        let rows = access.rows();
        let (principal, name) = certificate.principal(&rows).filter(|_| now < certificate.expires())?;
        let evidence = Evidence::Certificate { certificate: certificate.clone(), name: name.into() };
        let (expires, limiter) = (Some(certificate.expires()), access.limiters.of(principal, &rows));
        Some(Proof { principal: principal.into(), expires, evidence, limiter })
    }

    /// Whether these rows still accept the proof.
    pub fn holds(&self, rows: &Access, now: UnixMillis) -> bool {
        let principal = match &self.evidence {
            Evidence::Token { id, digest } => rows.authenticate(*id, digest, now),
            Evidence::Certificate { certificate, .. } => certificate
                .principal(rows)
                .map(|(principal, _)| principal)
                .filter(|_| now < certificate.expires()),
        };
        principal == Some(&*self.principal)
    }

    /// This proof after a change of the rows, which still accept it: the limits may be other ones.
    pub fn renewed(&self, access: &PublishedAccess) -> Proof {
        Proof { limiter: access.limiters.of(&self.principal, &access.rows()), ..self.clone() }
    }

    /// The limiter of the principal; `None` if it has no limit.
    #[inline]
    pub fn limiter(&self) -> Option<&Arc<PrincipalLimiter>> {
        self.limiter.as_ref()
    }

    /// The token, if that is the proof.
    pub fn token(&self) -> Option<TokenId> {
        match &self.evidence {
            Evidence::Token { id, .. } => Some(*id),
            Evidence::Certificate { .. } => None,
        }
    }

    /// The name in a certificate, if that is the proof.
    pub fn certificate_name(&self) -> Option<&str> {
        match &self.evidence {
            Evidence::Token { .. } => None,
            Evidence::Certificate { name, .. } => Some(name),
        }
    }

    /// Whether the proof has expired.
    #[inline]
    pub fn has_expired(&self, now: impl FnOnce() -> UnixMillis) -> bool {
        self.expires.is_some_and(|expires| now() >= expires)
    }

    /// The caller of the client's requests.
    pub fn caller(&self) -> Caller {
        Caller::Principal(self.principal.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_mode_follows_whether_tokens_are_required_and_that_is_confirmed() {
        let rows = Arc::new(Access::default());
        let publisher = AccessPublisher::new(&rows, false);
        let state = || publisher.published().state();
        assert_eq!(state().check_protected_mode(), Err(ProtectedModeError::Unconfirmed));
        let before = state();
        publisher.publish(&rows, true);
        assert_eq!(state().check_protected_mode(), Err(ProtectedModeError::TokensNotRequired));
        assert_ne!(state(), before, "connections look at the rows again");
        let before = state();
        publisher.publish(&rows, true);
        assert_eq!(state(), before, "nothing has changed");
    }
}
