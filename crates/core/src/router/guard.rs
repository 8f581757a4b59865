//! Who may make which request, as this node knows it.
//!
//! Owns the check of a request, and how old the registry may be that it is checked against. A
//! request is checked where it enters, and again by the node to which it is forwarded, from that
//! node's own registry: a peer cannot be asked for more, and a caller that was lost on the way is
//! refused.
//!
//! While no role, principal or token was ever stored, there is nothing to check, and a request
//! costs one branch. From the first of them on, a node must confirm its registry, even if
//! authentication is not required by it: it may have missed that it is now. A node that cannot know
//! whether there are any confirms its registry first. It has just joined, or has not applied all of
//! its log.

use alloc::string::ToString;
use alloc::sync::Arc;

use super::{Requester, Router, Work};
use crate::auth::Access;
use crate::auth::{Caller, Demand};
use crate::command::{Read, Refusal, Request, ShardError, ShardRefusal, Write};
use crate::deliberate::{Fault, Faults};
use crate::raft::Groups;
use crate::types::{LogIndex, ShardId, Ticks, UnixMillis};

/// How many times a node tries to confirm the registry before it is too old.
const CONFIRMATIONS: u64 = 8;

/// What requests are checked against.
pub(super) struct Guard {
    /// `None` while there are no rows, and the node knows that.
    access: Option<Arc<Access>>,
    /// Whether the rows that the node has applied may be older than its own start.
    is_unknown: bool,
    /// When the last read round began that the leader of the prime shard confirmed; or when this
    /// node applied the first row, if none has been since.
    confirmed: Option<Ticks>,
    /// Whether a round is due whenever the last one was.
    is_due: bool,
    /// Whether such a round is under way.
    is_confirming: bool,
    stale_ticks: u64,
    faults: Faults,
}

impl Guard {
    pub(super) fn new(stale_ticks: u64, faults: Faults) -> Guard {
        Guard {
            access: None,
            is_unknown: false,
            confirmed: None,
            is_due: false,
            is_confirming: false,
            stale_ticks,
            faults,
        }
    }

    /// Whether requests are checked, so that callers must be sent along with forwarded ones.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.access.is_some()
    }

    /// The caller to send along with a forwarded write, for its check and for its audit record.
    pub(super) fn sent_with<'a>(&self, caller: &'a Caller, is_recorded: bool) -> Option<&'a Caller> {
        if is_recorded { Some(caller) } else { self.sent(caller) }
    }

    /// The caller to send along with a forwarded request.
    pub(super) fn sent<'a>(&self, caller: &'a Caller) -> Option<&'a Caller> {
        if self.faults.has(Fault::CallerLostInForward) {
            return self.is_active().then_some(&Caller::Node);
        }
        self.is_active().then_some(caller)
    }

    /// Checks the demands that `demands` passes to its argument one after another.
    #[cold]
    fn check_demands<'a>(
        &self,
        access: &Access,
        caller: &Caller,
        (now, clock): (Ticks, Option<UnixMillis>),
        demands: impl FnOnce(&mut dyn FnMut(&Demand<'a>) -> bool) -> Result<(), Demand<'a>>,
    ) -> Result<(), ShardRefusal> {
        let principal = match caller {
            Caller::Node => return Ok(()),
            Caller::Anonymous if access.is_required() => return Err(ShardRefusal::Unauthenticated),
            Caller::Anonymous => None,
            Caller::Principal(name) => Some(name),
        };
        if self.confirmed.is_none_or(|confirmed| now.0 - confirmed.0 > self.stale_ticks) {
            return Err(ShardRefusal::PermissionsUnknown);
        }
        if !access.is_required() {
            return Ok(());
        }
        // Looked up once: the request of a pipeline has a demand for each of its operations.
        let permissions = principal.and_then(|name| access.permissions(name));
        let mut is_first = true;
        let checked = demands(&mut |demand| {
            let is_skipped = self.faults.has(Fault::OnlyFirstDemandChecked) && !is_first;
            is_first = false;
            is_skipped || permissions.is_some_and(|permissions| permissions.cover(demand, clock))
        });
        checked.map_err(|demand| ShardRefusal::Forbidden(demand.to_string().into()))
    }
}

impl Router {
    /// Checks whether a caller may make a request.
    ///
    /// # Errors
    /// Why it may not.
    #[inline]
    pub(crate) fn check_request(&self, caller: &Caller, request: &Request) -> Result<(), Refusal> {
        let Some(access) = &self.guard.access else { return Ok(()) };
        let now = (self.now, self.clock);
        let checked = self.guard.check_demands(access, caller, now, |covers| request.check(covers));
        checked.map_err(Refusal::from)
    }

    /// Checks a write that a peer has forwarded. `None` if the peer has not sent the caller,
    /// because it does not know yet that there are rows.
    #[inline]
    pub(super) fn check_forwarded(
        &self,
        caller: Option<&Caller>,
        write: &Write,
    ) -> Option<Result<(), ShardRefusal>> {
        let Some(access) = &self.guard.access else { return Some(Ok(())) };
        let now = (self.now, self.clock);
        Some(self.guard.check_demands(access, caller?, now, |covers| write.check(covers)))
    }

    /// As [`Router::check_forwarded`], for a read.
    #[inline]
    pub(super) fn check_asked(&self, caller: Option<&Caller>, read: &Read) -> Result<(), ShardError> {
        if !self.guard.is_active() {
            return Ok(());
        }
        let caller = caller.ok_or(ShardError::NotHere)?;
        self.check_read(caller, read).map_err(ShardError::Refused)
    }

    /// As [`Router::check_request`], for a stale or a linearizable read.
    #[inline]
    pub(crate) fn check_read(&self, caller: &Caller, read: &Read) -> Result<(), ShardRefusal> {
        let Some(access) = &self.guard.access else { return Ok(()) };
        let now = (self.now, self.clock);
        self.guard.check_demands(access, caller, now, |covers| read.check(covers))
    }

    /// Whether a caller that a peer sent along may make a request that has no reply.
    pub(crate) fn may_ask(&self, caller: Option<&Caller>, request: &Request) -> bool {
        !self.guard.is_active() || caller.is_some_and(|caller| self.check_request(caller, request).is_ok())
    }

    /// Requires that the registry is confirmed before it is trusted, even if it has no rows.
    pub(crate) fn distrust_access(&mut self) {
        self.guard.is_unknown = true;
    }

    /// Whether the rows that this node has applied are not older than its own start.
    pub(crate) fn knows_access(&self) -> bool {
        !self.guard.is_unknown
    }

    /// Sets the roles, principals and tokens that this node has applied. Returns whether they have
    /// changed.
    pub(crate) fn set_access(&mut self, access: &Arc<Access>) -> bool {
        let has_rows = access.revision() > LogIndex(0);
        let guard = &mut self.guard;
        let known = guard.access.as_ref().map_or(LogIndex(0), |access| access.revision());
        if guard.access.is_none() && has_rows && !guard.is_unknown {
            // The first row must not stop requests until a read round has ended.
            (guard.confirmed, guard.is_due) = (Some(self.now), true);
        }
        guard.access = (has_rows || guard.is_unknown).then(|| access.clone());
        known != access.revision()
    }

    /// Confirms the registry through a read round to the leader of the prime shard, if that is due.
    pub(crate) fn confirm_access(&mut self, groups: &mut Groups) {
        let guard = &self.guard;
        let interval = guard.stale_ticks / CONFIRMATIONS;
        let is_due =
            guard.is_due || guard.confirmed.is_none_or(|confirmed| self.now.0 - confirmed.0 >= interval);
        if guard.access.is_none() || guard.is_confirming || !is_due {
            return;
        }
        let Some(request) = self.open(Requester::NODE, Work::ConfirmAccess) else { return };
        self.guard.is_confirming = true;
        groups.with(ShardId::PRIME, |group| group.read(request, Read::Count));
    }

    /// Records that the registry that this node has applied was current at `began`.
    pub(super) fn access_confirmed(&mut self, began: Ticks) {
        let guard = &mut self.guard;
        guard.confirmed = Some(began);
        (guard.is_confirming, guard.is_unknown, guard.is_due) = (false, false, false);
        guard.access = guard.access.take().filter(|access| access.revision() > LogIndex(0));
    }

    /// Records that no leader has confirmed the registry in time.
    pub(super) fn access_unconfirmed(&mut self) {
        self.guard.is_confirming = false;
    }
}
