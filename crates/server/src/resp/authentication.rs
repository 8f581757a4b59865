//! Who a client of the Redis protocol is, and whether that is enough for a command.
//!
//! Owns the state that `AUTH` changes. Without `AUTH`, the client's certificate may prove who it
//! is. The core checks every request. Operations on keys are checked here too, one by one: the core
//! refuses a burst or a transaction as a whole, and so only the command that is not allowed gets an
//! error, as in Redis.

use std::sync::Arc;

use tidelock_core::auth::{Caller, Demand, Permissions, Scope, Verb};
use tidelock_core::command::{Operation, Refusal};
use tidelock_core::types::UnixMillis;

use super::replies::refusal_text;
use super::session::Failure;
use crate::access::{AccessState, Proof, PublishedAccess};
use crate::clock::TurnClock;
use crate::limiter::PrincipalLimiter;
use crate::tls::ClientCertificate;
use crate::token::BearerToken;

/// What a command needs from its client, once authentication is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandDemand {
    /// Nothing.
    Open,
    /// A valid token.
    ValidToken,
    /// A valid token, and the demands of its operations and of its requests to the core.
    ByRequest,
    /// `cluster:read`.
    NodeState,
    /// `read keys:`.
    AllKeys,
    /// `cluster:admin`.
    Administer,
}

/// Who a client is, as far as it has proved that.
pub struct Authentication {
    state: AccessState,
    is_required: bool,
    proof: Option<Arc<Proof>>,
    /// What the principal may do in that state; `None` without a principal.
    permissions: Option<Permissions>,
    /// The certificate that the client presented.
    certificate: Option<Arc<ClientCertificate>>,
    /// Whether the client has proved something with a token. Then the end of the token does not
    /// make it the principal of its certificate again, which it did not choose to be.
    has_used_token: bool,
}

impl Authentication {
    /// A client that has proved nothing.
    pub fn new(access: &PublishedAccess) -> Authentication {
        let state = access.state();
        Authentication {
            state,
            is_required: state.is_required(),
            proof: None,
            permissions: None,
            certificate: None,
            has_used_token: false,
        }
    }

    /// Takes the certificate that the client has presented in its handshake.
    pub fn present(
        &mut self,
        certificate: Option<Arc<ClientCertificate>>,
        (access, clock): (&PublishedAccess, &TurnClock),
    ) {
        self.certificate = certificate;
        self.follow_rows(access, clock);
    }

    /// Follows changes of the rows, and the time. Returns whether the client's principal has
    /// changed.
    #[inline]
    pub fn follow(&mut self, access: &PublishedAccess, clock: &TurnClock) -> bool {
        let has_ended = |proof: &Arc<Proof>| proof.has_expired(|| clock.now());
        if self.state != access.state() {
            return self.follow_rows(access, clock);
        }
        let has_ended = self.proof.as_ref().is_some_and(has_ended);
        if has_ended {
            (self.proof, self.permissions) = (None, None);
        }
        has_ended
    }

    fn follow_rows(&mut self, access: &PublishedAccess, clock: &TurnClock) -> bool {
        // Before the rows: if they change meanwhile, they are looked at again.
        self.state = access.state();
        self.is_required = self.state.is_required();
        let (rows, now) = (access.rows(), clock.now());
        let before = self.proof.take();
        let proof = before.clone().filter(|proof| proof.holds(&rows, now));
        self.proof = proof.map(|proof| proof.renewed(access).into());
        if let (None, false, Some(certificate)) = (&self.proof, self.has_used_token, &self.certificate) {
            self.proof = Proof::of_certificate(certificate, access, now).map(Arc::new);
        }
        let principal = self.proof.as_ref().map(|proof| &proof.principal);
        self.permissions = principal.and_then(|name| rows.permissions(name).cloned());
        principal != before.as_ref().map(|proof| &proof.principal)
    }

    /// Whether the client must send a valid token before anything else.
    pub fn is_awaited(&self) -> bool {
        self.is_required && self.proof.is_none()
    }

    /// Whether authentication is required.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// The name of the client's principal.
    pub fn principal(&self) -> Option<&str> {
        self.proof.as_ref().map(|proof| &*proof.principal)
    }

    /// The caller of the client's requests.
    pub fn caller(&self) -> Caller {
        self.proof.as_ref().map_or(Caller::Anonymous, |proof| proof.caller())
    }

    /// The limiter of the client's principal; `None` if nothing limits the client.
    #[inline]
    pub fn limiter(&self) -> Option<&Arc<PrincipalLimiter>> {
        self.proof.as_ref().filter(|_| self.is_required)?.limiter()
    }

    /// Forgets what the client has proved with a token.
    pub fn reset(&mut self, access: &PublishedAccess, clock: &TurnClock) {
        (self.proof, self.has_used_token) = (None, false);
        self.follow_rows(access, clock);
    }

    /// Checks a token, and the name that the client states with it. Clients that take only a
    /// password state the name `default`, which stands for the principal of any token. Returns
    /// whether both are right.
    pub fn prove(&mut self, name: Option<&[u8]>, token: &[u8], now: (&PublishedAccess, &TurnClock)) -> bool {
        let (access, clock) = now;
        let token = BearerToken::parse(token).ok();
        // Before the rows: if they change meanwhile, the token is checked again.
        let state = access.state();
        let proof = token.and_then(|token| Proof::of(&token, access, clock.now()));
        let is_named =
            |proof: &Proof| name.is_none_or(|name| name == b"default" || name == proof.principal.as_bytes());
        match proof.filter(is_named) {
            Some(proof) => {
                (self.state, self.is_required) = (state, state.is_required());
                self.permissions = access.rows().permissions(&proof.principal).cloned();
                (self.proof, self.has_used_token) = (Some(proof.into()), true);
                true
            }
            None => false,
        }
    }

    /// Checks whether the client may use a command.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check_command(&self, demand: CommandDemand, clock: &TurnClock) -> Result<(), Failure> {
        if !self.is_required || demand == CommandDemand::Open {
            return Ok(());
        }
        if self.proof.is_none() {
            return Err(refusal_text(&Refusal::Unauthenticated).into());
        }
        let (verb, scope) = match demand {
            CommandDemand::Open | CommandDemand::ValidToken | CommandDemand::ByRequest => return Ok(()),
            CommandDemand::NodeState => (Verb::Read, Scope::Cluster),
            CommandDemand::AllKeys => (Verb::Read, Scope::Keys { prefix: b"" }),
            CommandDemand::Administer => (Verb::Administer, Scope::Cluster),
        };
        self.check(clock, |covers| {
            let demand = Demand { verb, scope };
            if covers(&demand) { Ok(()) } else { Err(demand) }
        })
    }

    /// Checks whether the client may make an operation.
    ///
    /// # Errors
    /// Why it may not.
    #[inline]
    pub fn check_operation(&self, operation: Operation<'_>, clock: &TurnClock) -> Result<(), Failure> {
        if !self.is_required {
            return Ok(());
        }
        self.check(clock, |covers| operation.check(covers))
    }

    /// Checks whether the client has a valid token, if one is required.
    ///
    /// # Errors
    /// If it has none.
    pub fn check_token(&self) -> Result<(), Failure> {
        if self.is_awaited() { Err(refusal_text(&Refusal::Unauthenticated).into()) } else { Ok(()) }
    }

    /// Checks whether the client may learn what happens to keys.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check_watch(&self, scope: Scope<'_>, clock: &TurnClock) -> Result<(), Failure> {
        if !self.is_required {
            return Ok(());
        }
        self.check_token()?;
        self.check(clock, |covers| {
            let mut demands = [Verb::Read, Verb::Watch].map(|verb| Demand { verb, scope }).into_iter();
            demands.try_for_each(|demand| if covers(&demand) { Ok(()) } else { Err(demand) })
        })
    }

    /// Checks whether the client may do something, besides its operations on keys.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check_demand(&self, demand: Demand<'_>, clock: &TurnClock) -> Result<(), Failure> {
        if !self.is_required {
            return Ok(());
        }
        self.check_token()?;
        self.check(clock, |covers| if covers(&demand) { Ok(()) } else { Err(demand) })
    }

    /// What the client may do at present, for its operations elsewhere; `None` if that is
    /// everything, because authentication is not required.
    pub fn operation_permissions(&self, clock: &TurnClock) -> Option<OperationPermissions> {
        self.is_required
            .then(|| OperationPermissions { permissions: self.permissions.clone(), now: clock.now() })
    }

    fn check<'a>(
        &self,
        clock: &TurnClock,
        demands: impl FnOnce(&mut dyn FnMut(&Demand<'a>) -> bool) -> Result<(), Demand<'a>>,
    ) -> Result<(), Failure> {
        let permissions = self.permissions.as_ref();
        let now = permissions.is_some_and(Permissions::depend_on_time).then(|| clock.now());
        check(permissions, now, demands)
    }
}

/// What a client may do at one time.
#[derive(Clone, Debug)]
pub struct OperationPermissions {
    permissions: Option<Permissions>,
    now: UnixMillis,
}

impl OperationPermissions {
    /// Checks whether the client may make an operation.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(&self, operation: Operation<'_>) -> Result<(), Failure> {
        check(self.permissions.as_ref(), Some(self.now), |covers| operation.check(covers))
    }
}

fn check<'a>(
    permissions: Option<&Permissions>,
    now: Option<UnixMillis>,
    demands: impl FnOnce(&mut dyn FnMut(&Demand<'a>) -> bool) -> Result<(), Demand<'a>>,
) -> Result<(), Failure> {
    demands(&mut |demand| permissions.is_some_and(|permissions| permissions.cover(demand, now)))
        .map_err(|demand| refusal_text(&Refusal::Forbidden(demand.to_string().into())).into())
}
