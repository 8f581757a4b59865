//! A request that waits in the queue of a lock.
//!
//! The queue of a lock is replicated state: a list of leases. This machine decides for one request
//! that has put its lease there. It takes the lease out of the queue when the time of the request
//! is over, when the client closes its connection, and when the node stops. If the node fails, the
//! lease stays in the queue until it ends; a client that repeats the request at another node keeps
//! its position.
//!
//! The request reads the lock whenever it is notified that the lock's key may have changed. It also
//! reads its lease from time to time, because nothing notifies it when the lease ends, or when an
//! earlier request for the same lease takes the lease out of the queue. Reads take no log entry.
//! When a read shows that the lease may hold the lock, the request acquires the lock again: that
//! changes nothing if the lease holds it, and the reply has the fence.

use super::asking::Unanswered;
use crate::command::{
    Consistency, KeyScope, LockOperation, LockReply, LockWrite, Read, ReadReply, Refusal, Reply, Request,
    WriteReply,
};
use crate::deliberate::{Fault, Faults};
use crate::types::UnixMillis;

/// Attempts to take the lease out of the queue. After the last one it stays there until it ends.
const CANCELLATIONS_MAX: u32 = 3;

/// The state of one request.
///
/// The driver registers a watcher of the lock's key before the first step: the lock may pass to the
/// lease as soon as the lease is in the queue. It calls [`LockWait::check_lease`] from time to
/// time.
#[derive(Debug)]
pub struct LockWait {
    acquisition: LockWrite,
    phase: LockWaitPhase,
    /// The key may have changed since it was read.
    is_notified: bool,
    must_check_lease: bool,
    /// Why the request ends before the lease holds the lock.
    end_reason: Option<EndReason>,
    faults: Faults,
}

#[derive(Debug)]
enum LockWaitPhase {
    Planned(LockRequest),
    Asked(LockRequest),
    Waiting {
        /// The latest request was answered, not refused.
        is_answered: bool,
    },
    Ended,
    End(LockWaitEnd),
}

#[derive(Clone, Debug)]
enum LockRequest {
    /// The first acquisition.
    Acquire,
    /// A read of changes, from which on the node reports changed keys.
    BeginReports,
    /// A read of the lock's key, which names the holder.
    Holder,
    /// A read of the lease, which names the locks that it waits for.
    Lease,
    /// The acquisition again, because the lease may hold the lock.
    AcquireAgain,
    /// Takes the lease out of the queue, unless it has become the holder.
    Cancel { attempts: u32, reason: EndReason },
}

#[derive(Clone, Debug)]
enum EndReason {
    TimeOver,
    ClientLeft,
    Refused(Refusal),
}

/// What the driver does next.
#[derive(Debug, PartialEq, Eq)]
pub enum LockWaitStep {
    /// Send this to the store, and pass the reply to [`LockWait::answered`].
    Ask {
        /// The request.
        request: Request,
        /// The client is the caller, so its permissions are checked. Otherwise the node is: the
        /// client was allowed to acquire the lock and sees nothing of the reply, and the lease must
        /// leave the queue although the client may have lost its permission.
        is_of_client: bool,
    },
    /// Wait for the reply to the latest request or, without one, for a notification or the end of
    /// the time.
    Wait,
    /// The request has ended.
    End(LockWaitEnd),
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockWaitEnd {
    /// The reply of the shard to the latest request.
    Decided(LockReply),
    /// The first acquisition was refused, or the client has lost its permission.
    NoAnswer(Unanswered),
    /// The time is over, and the lease could not be taken out of the queue: it may still become the
    /// holder, until it ends.
    StillQueued,
    /// The client has closed its connection. Nobody reads an answer.
    ClientLeft,
}

impl LockWait {
    /// A request with this acquisition, whose `waits` is true.
    pub fn new(acquisition: LockWrite, faults: Faults) -> LockWait {
        LockWait {
            acquisition,
            phase: LockWaitPhase::Planned(LockRequest::Acquire),
            is_notified: false,
            must_check_lease: false,
            end_reason: None,
            faults,
        }
    }

    /// The next step.
    ///
    /// # Panics
    /// After the end.
    pub fn next_step(&mut self) -> LockWaitStep {
        if matches!(self.phase, LockWaitPhase::Waiting { .. })
            && let Some(request) = self.due()
        {
            self.phase = LockWaitPhase::Planned(request);
        }
        match core::mem::replace(&mut self.phase, LockWaitPhase::Ended) {
            LockWaitPhase::Planned(LockRequest::Cancel { reason, .. })
                if self.faults.has(Fault::CancelledLeaseQueued) =>
            {
                LockWaitStep::End(end_of(reason, LockWaitEnd::Decided(LockReply::Cancelled)))
            }
            LockWaitPhase::Planned(request) => {
                let is_of_client = matches!(request, LockRequest::Acquire | LockRequest::AcquireAgain);
                let step = LockWaitStep::Ask { request: self.to_store(&request), is_of_client };
                self.phase = LockWaitPhase::Asked(request);
                step
            }
            phase @ (LockWaitPhase::Asked(_) | LockWaitPhase::Waiting { .. }) => {
                self.phase = phase;
                LockWaitStep::Wait
            }
            LockWaitPhase::End(end) => LockWaitStep::End(end),
            LockWaitPhase::Ended => panic!("invariant: no step follows the end"),
        }
    }

    /// The lock's key may have changed.
    pub fn notified(&mut self) {
        self.is_notified = true;
    }

    /// Lets the request read its lease, to find out whether it is still in the queue.
    pub fn check_lease(&mut self) {
        self.must_check_lease = true;
    }

    /// The time is over, or the node stops.
    pub fn give_up(&mut self) {
        self.end_reason.get_or_insert(EndReason::TimeOver);
    }

    /// The client has closed its connection.
    pub fn client_left(&mut self) {
        self.end_reason = Some(EndReason::ClientLeft);
    }

    /// For checkers: whether only a notification tells the request that the lock has passed to its
    /// lease, since no reply is open, and the latest one showed that the lease waits.
    pub fn relies_on_notification(&self) -> bool {
        matches!(self.phase, LockWaitPhase::Waiting { is_answered: true })
    }

    /// The reply to the latest request.
    ///
    /// # Panics
    /// If no request is open.
    pub fn answered(&mut self, reply: Reply) {
        let LockWaitPhase::Asked(request) = core::mem::replace(&mut self.phase, LockWaitPhase::Ended) else {
            panic!("invariant: a reply answers an open request")
        };
        self.phase = match request {
            LockRequest::Acquire => match lock_reply(reply) {
                Ok(LockReply::Queued { .. }) => LockWaitPhase::Planned(LockRequest::BeginReports),
                Ok(decided) => LockWaitPhase::End(LockWaitEnd::Decided(decided)),
                Err(error) => LockWaitPhase::End(LockWaitEnd::NoAnswer(error)),
            },
            // The lock may have passed to the lease before the node began to report.
            LockRequest::BeginReports => LockWaitPhase::Planned(LockRequest::Holder),
            LockRequest::Holder if self.may_hold(&reply) => LockWaitPhase::Planned(LockRequest::AcquireAgain),
            LockRequest::Lease if self.has_left_queue(&reply) => {
                LockWaitPhase::Planned(LockRequest::AcquireAgain)
            }
            LockRequest::Holder | LockRequest::Lease => {
                LockWaitPhase::Waiting { is_answered: !matches!(reply, Reply::Refused(_)) }
            }
            LockRequest::AcquireAgain => self.acquired_again(reply),
            LockRequest::Cancel { attempts, reason } => cancelled(lock_reply(reply), attempts, reason),
        };
    }

    /// The next request for what the driver has reported, if anything.
    fn due(&mut self) -> Option<LockRequest> {
        if let Some(reason) = self.end_reason.take() {
            return Some(LockRequest::Cancel { attempts: 1, reason });
        }
        if core::mem::take(&mut self.is_notified) {
            return Some(LockRequest::Holder);
        }
        core::mem::take(&mut self.must_check_lease).then_some(LockRequest::Lease)
    }

    /// The request as the store gets it.
    fn to_store(&self, request: &LockRequest) -> Request {
        let LockWrite { name, lease, .. } = &self.acquisition;
        let linearizable = |read| Request::Read { read, consistency: Consistency::Linearizable };
        match request {
            LockRequest::Acquire | LockRequest::AcquireAgain => {
                Request::Write(self.acquisition.clone().into())
            }
            LockRequest::BeginReports => {
                let scope = KeyScope::Key(name.clone());
                let read = Read::Changes { scope, after: None, limit: 1, keys_only: true };
                Request::Read { read, consistency: Consistency::Stale }
            }
            LockRequest::Holder => linearizable(Read::Get { key: name.clone() }),
            LockRequest::Lease => linearizable(Read::Lease { lease: lease.clone() }),
            LockRequest::Cancel { .. } => {
                let operation = LockOperation::Cancel { at: UnixMillis(0) };
                Request::Write(LockWrite { name: name.clone(), lease: lease.clone(), operation }.into())
            }
        }
    }

    /// Whether the reply shows that no other lease holds the lock. A refusal shows nothing: the
    /// next read of the lease decides.
    fn may_hold(&self, reply: &Reply) -> bool {
        let Reply::Read(ReadReply::Value(found)) = reply else { return false };
        let holder = found.as_ref().and_then(|found| found.lease.as_deref());
        holder.is_none_or(|holder| *holder == self.acquisition.lease)
    }

    /// Whether the reply shows that the lease is not in the queue any more. A refusal shows
    /// nothing.
    fn has_left_queue(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Read(ReadReply::Lease(Some(lease))) => !lease.awaited.contains(&self.acquisition.name),
            Reply::Read(ReadReply::Lease(None)) => true,
            _ => false,
        }
    }

    fn acquired_again(&self, reply: Reply) -> LockWaitPhase {
        match lock_reply(reply) {
            Ok(LockReply::Queued { .. }) => LockWaitPhase::Waiting { is_answered: true },
            Ok(decided) => LockWaitPhase::End(LockWaitEnd::Decided(decided)),
            Err(Unanswered::Refused(refusal @ (Refusal::Unauthenticated | Refusal::Forbidden(_)))) => {
                LockWaitPhase::Planned(LockRequest::Cancel {
                    attempts: 1,
                    reason: EndReason::Refused(refusal),
                })
            }
            // A later read leads to it again.
            Err(_) => LockWaitPhase::Waiting { is_answered: false },
        }
    }
}

fn lock_reply(reply: Reply) -> Result<LockReply, Unanswered> {
    match reply {
        Reply::Write(WriteReply::Lock(reply)) => Ok(reply),
        Reply::Refused(refusal) => Err(refusal.into()),
        _ => Err(Unanswered::Mismatched),
    }
}

/// What follows the reply to an attempt to take the lease out of the queue.
fn cancelled(reply: Result<LockReply, Unanswered>, attempts: u32, reason: EndReason) -> LockWaitPhase {
    let is_final = |error: &Unanswered| {
        matches!(
            error,
            Unanswered::Mismatched | Unanswered::Refused(Refusal::Invalid(_) | Refusal::CrossShard)
        )
    };
    match reply {
        Ok(reply) => LockWaitPhase::End(end_of(reason, LockWaitEnd::Decided(reply))),
        Err(error) if is_final(&error) || attempts == CANCELLATIONS_MAX => {
            LockWaitPhase::End(end_of(reason, LockWaitEnd::StillQueued))
        }
        Err(_) => LockWaitPhase::Planned(LockRequest::Cancel { attempts: attempts + 1, reason }),
    }
}

/// The end of a request that ends for a reason; `time_over` if that is its time.
fn end_of(reason: EndReason, time_over: LockWaitEnd) -> LockWaitEnd {
    match reason {
        EndReason::TimeOver => time_over,
        EndReason::ClientLeft => LockWaitEnd::ClientLeft,
        EndReason::Refused(refusal) => LockWaitEnd::NoAnswer(refusal.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{LeaseId, LeaseTag, LeaseView, StoredValue};
    use crate::types::Version;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use bytes::Bytes;

    fn lease(number: u64) -> LeaseId {
        LeaseId::new(LeaseTag::new(b"l").expect("a tag"), Version(number))
    }

    fn name() -> Bytes {
        Bytes::from_static(b"l")
    }

    /// A request of lease 1.
    fn request() -> LockWait {
        let value = Bytes::new();
        let operation = LockOperation::Acquire { value, waits: true, at: UnixMillis(0) };
        LockWait::new(LockWrite { name: name(), lease: lease(1), operation }, Faults::NONE)
    }

    fn lock(reply: LockReply) -> Reply {
        Reply::Write(WriteReply::Lock(reply))
    }

    fn queued() -> Reply {
        lock(LockReply::Queued { position: 0 })
    }

    const HELD: LockReply = LockReply::Held { fence: Version(9), valid_for_ms: 1 };

    fn held_by(number: u64) -> Reply {
        let lease = Some(Box::new(lease(number)));
        let value = StoredValue { version: Version(9), value: Bytes::new(), expires: None, lease };
        Reply::Read(ReadReply::Value(Some(value)))
    }

    fn refused(refusal: Refusal) -> Reply {
        Reply::Refused(refusal)
    }

    /// The next request: its kind, and whether it is sent for the client.
    fn asks(wait: &mut LockWait) -> (&'static str, bool) {
        let LockWaitStep::Ask { request, is_of_client } = wait.next_step() else { panic!("no request") };
        let kind = match request {
            Request::Write(crate::command::Write::Lock(write)) => match write.operation {
                LockOperation::Acquire { .. } => "acquire",
                LockOperation::Cancel { .. } => "cancel",
                LockOperation::Release => "release",
            },
            Request::Read { read: Read::Changes { .. }, consistency: Consistency::Stale } => "report",
            Request::Read { read: Read::Get { .. }, consistency: Consistency::Linearizable } => "holder",
            Request::Read { read: Read::Lease { .. }, consistency: Consistency::Linearizable } => "lease",
            other => panic!("{other:?}"),
        };
        (kind, is_of_client)
    }

    /// A request that waits, since lease 2 holds the lock.
    fn waiting() -> LockWait {
        let mut wait = request();
        assert_eq!(asks(&mut wait), ("acquire", true));
        wait.answered(queued());
        assert_eq!(asks(&mut wait), ("report", false));
        wait.answered(refused(Refusal::NoLeader));
        assert_eq!(asks(&mut wait), ("holder", false), "the lock may have been handed over meanwhile");
        wait.answered(held_by(2));
        assert!(wait.relies_on_notification());
        assert_eq!(wait.next_step(), LockWaitStep::Wait);
        wait
    }

    /// A request that has acquired the lock again, and has no reply to that.
    fn acquiring_again() -> LockWait {
        let mut wait = waiting();
        wait.notified();
        assert_eq!(asks(&mut wait), ("holder", false));
        wait.answered(held_by(1));
        assert_eq!(asks(&mut wait), ("acquire", true));
        wait
    }

    #[test]
    fn a_free_lock_is_acquired_at_once() {
        for reply in [HELD, LockReply::NoLease, LockReply::QueueFull] {
            let mut wait = request();
            asks(&mut wait);
            wait.answered(lock(reply));
            assert_eq!(wait.next_step(), LockWaitStep::End(LockWaitEnd::Decided(reply)));
        }
        let mut wait = request();
        asks(&mut wait);
        wait.answered(refused(Refusal::NoLeader));
        let no_answer = LockWaitEnd::NoAnswer(Refusal::NoLeader.into());
        assert_eq!(wait.next_step(), LockWaitStep::End(no_answer));
    }

    #[test]
    fn a_hand_over_is_looked_at_and_answered_with_the_fence() {
        let mut wait = waiting();
        wait.notified();
        assert_eq!(asks(&mut wait), ("holder", false));
        wait.notified();
        assert_eq!(wait.next_step(), LockWaitStep::Wait, "one request at a time");
        wait.answered(held_by(3));
        assert_eq!(asks(&mut wait), ("holder", false), "it changed while it was read");
        wait.answered(held_by(1));
        assert_eq!(asks(&mut wait), ("acquire", true));
        wait.answered(lock(HELD));
        assert_eq!(wait.next_step(), LockWaitStep::End(LockWaitEnd::Decided(HELD)));
    }

    #[test]
    fn a_lease_that_left_the_queue_is_found_without_a_notification() {
        let view = |awaited: &[Bytes]| {
            let (keys, held, awaited) = (Vec::new(), Vec::new(), awaited.to_vec());
            let ends = UnixMillis(1);
            let view = LeaseView { lease: lease(1), ttl_ms: 1, ends, keys, held, awaited };
            Reply::Read(ReadReply::Lease(Some(Box::new(view))))
        };
        for (reply, has_left) in [
            (view(&[name()]), false),
            (view(&[]), true),
            (Reply::Read(ReadReply::Lease(None)), true),
            (refused(Refusal::NoLeader), false),
        ] {
            let mut wait = waiting();
            wait.check_lease();
            assert_eq!(asks(&mut wait), ("lease", false));
            wait.answered(reply.clone());
            let is_refused = matches!(reply, Reply::Refused(_));
            assert_eq!(wait.relies_on_notification(), !has_left && !is_refused, "{reply:?}");
            if has_left {
                assert_eq!(asks(&mut wait), ("acquire", true));
                wait.answered(lock(LockReply::NoLease));
                let end = LockWaitEnd::Decided(LockReply::NoLease);
                assert_eq!(wait.next_step(), LockWaitStep::End(end));
            }
        }
    }

    #[test]
    fn the_place_is_given_up_when_the_time_is_over() {
        for reply in [LockReply::Cancelled, HELD] {
            let mut wait = waiting();
            wait.notified();
            wait.give_up();
            assert_eq!(asks(&mut wait), ("cancel", false));
            wait.answered(lock(reply));
            assert_eq!(wait.next_step(), LockWaitStep::End(LockWaitEnd::Decided(reply)));
        }
    }

    #[test]
    fn a_place_that_cannot_be_given_up_is_left_to_the_lease() {
        for (refusal, attempts) in [
            (Refusal::NoLeader, CANCELLATIONS_MAX),
            (Refusal::UnknownOutcome, CANCELLATIONS_MAX),
            (Refusal::CrossShard, 1),
        ] {
            let mut wait = waiting();
            wait.give_up();
            for _ in 0..attempts {
                assert_eq!(asks(&mut wait), ("cancel", false));
                wait.answered(refused(refusal.clone()));
            }
            assert_eq!(wait.next_step(), LockWaitStep::End(LockWaitEnd::StillQueued), "{refusal:?}");
        }
    }

    #[test]
    fn a_client_that_leaves_or_loses_its_permission_waits_no_longer() {
        let mut left = waiting();
        left.client_left();
        assert_eq!(asks(&mut left), ("cancel", false));
        left.answered(lock(LockReply::Cancelled));
        assert_eq!(left.next_step(), LockWaitStep::End(LockWaitEnd::ClientLeft));

        let mut forbidden = acquiring_again();
        forbidden.answered(refused(Refusal::Unauthenticated));
        assert_eq!(asks(&mut forbidden), ("cancel", false), "the node may, when the client may not");
        forbidden.answered(lock(LockReply::Cancelled));
        let end = LockWaitEnd::NoAnswer(Refusal::Unauthenticated.into());
        assert_eq!(forbidden.next_step(), LockWaitStep::End(end));
    }

    #[test]
    fn an_acquisition_without_an_answer_is_repeated_later() {
        let mut wait = acquiring_again();
        wait.answered(refused(Refusal::UnknownOutcome));
        assert_eq!(wait.next_step(), LockWaitStep::Wait);
        assert!(!wait.relies_on_notification());
        wait.check_lease();
        assert_eq!(asks(&mut wait), ("lease", false));
    }
}
