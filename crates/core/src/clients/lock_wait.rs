//! A request that waits in the queue of a lock.
//!
//! The queue is a part of the state, and names leases. This machine owns the place of one request
//! in it: the request gives the place up when its time is over, when its client has left and when
//! the node stops. The place of a request whose node fails stays until its lease ends, and a client
//! that asks another node meanwhile keeps it.
//!
//! The request looks at the lock whenever its key may have changed, and at its lease from time to
//! time: nothing notifies it that the lease has ended, or that an earlier request for the same
//! lease has given the place up. Looking takes no log entry. When it finds that the lease holds the
//! lock, it acquires the lock again, which changes nothing and is answered with the fence.

use super::asking::Unanswered;
use crate::command::{
    Consistency, KeyScope, LockOperation, LockReply, LockWrite, Read, ReadReply, Refusal, Reply, Request,
    WriteReply,
};
use crate::deliberate::{Fault, Faults};
use crate::types::UnixMillis;

/// How often a place is given up before it is left to the end of its lease.
const CANCELLATIONS_MAX: u32 = 3;

/// The state of one request.
///
/// The shell registers a watcher of the lock's key before the first step, so that no hand-over is
/// missed in between. It calls [`LockWait::look_at_lease`] from time to time.
#[derive(Debug)]
pub struct LockWait {
    acquisition: LockWrite,
    phase: Phase,
    /// The key may have changed since it was read.
    is_notified: bool,
    must_look_at_lease: bool,
    leaving: Option<Leaving>,
    faults: Faults,
}

#[derive(Debug)]
enum Phase {
    Planned(Question),
    Asked(Question),
    Waiting {
        /// The latest look at the lock, or the acquisition that followed it, was answered.
        is_answered: bool,
    },
    Ended,
    End(LockWaitEnd),
}

#[derive(Clone, Debug)]
enum Question {
    /// The first acquisition. The client's permissions count.
    Acquire,
    /// The node reports changed keys from the first read of changes on.
    BeginReports,
    Holder,
    Lease,
    /// Repeats the acquisition, because the lease may hold the lock.
    AcquireAgain,
    /// Gives the place up, unless the lease has become the holder.
    Cancel {
        attempts: u32,
        leaving: Leaving,
    },
}

#[derive(Clone, Debug)]
enum Leaving {
    TimeOver,
    ClientLeft,
    Refused(Refusal),
}

/// What the shell does next.
#[derive(Debug, PartialEq, Eq)]
pub enum LockWaitStep {
    /// Send this to the store, and pass the reply to [`LockWait::answered`].
    Ask {
        /// The request.
        request: Request,
        /// It is sent for the client, whose permissions count. Otherwise it is the node's own: the
        /// client was allowed to acquire the lock, nothing of the reply is shown to it, and giving
        /// up the place must not fail for lack of a permission.
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
    /// The first acquisition has no answer, or the client is not allowed to wait on.
    NoAnswer(Unanswered),
    /// The time is over, and the place could not be given up: the lease may still become the
    /// holder, until it ends.
    PlaceKept,
    /// The client left. Nobody reads an answer.
    ClientLeft,
}

impl LockWait {
    /// A request with this acquisition, which waits.
    pub fn new(acquisition: LockWrite, faults: Faults) -> LockWait {
        LockWait {
            acquisition,
            phase: Phase::Planned(Question::Acquire),
            is_notified: false,
            must_look_at_lease: false,
            leaving: None,
            faults,
        }
    }

    /// The next step.
    ///
    /// # Panics
    /// After the end.
    pub fn next_step(&mut self) -> LockWaitStep {
        if matches!(self.phase, Phase::Waiting { .. })
            && let Some(question) = self.due()
        {
            self.phase = Phase::Planned(question);
        }
        match core::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Planned(Question::Cancel { leaving, .. }) if self.faults.has(Fault::LockPlaceKept) => {
                LockWaitStep::End(end_of(leaving, LockWaitEnd::Decided(LockReply::Cancelled)))
            }
            Phase::Planned(question) => {
                let is_of_client = matches!(question, Question::Acquire | Question::AcquireAgain);
                let request = self.request(&question);
                self.phase = Phase::Asked(question);
                LockWaitStep::Ask { request, is_of_client }
            }
            phase @ (Phase::Asked(_) | Phase::Waiting { .. }) => {
                self.phase = phase;
                LockWaitStep::Wait
            }
            Phase::End(end) => LockWaitStep::End(end),
            Phase::Ended => panic!("invariant: no step follows the end"),
        }
    }

    /// The lock's key may have changed.
    pub fn notified(&mut self) {
        self.is_notified = true;
    }

    /// The request should find out whether its lease still waits.
    pub fn look_at_lease(&mut self) {
        self.must_look_at_lease = true;
    }

    /// The time is over, or the node stops.
    pub fn give_up(&mut self) {
        self.leaving.get_or_insert(Leaving::TimeOver);
    }

    /// The client has closed its connection.
    pub fn client_left(&mut self) {
        self.leaving = Some(Leaving::ClientLeft);
    }

    /// Whether the request relies on being notified of a hand-over: it awaits no reply, and has got
    /// one to its latest look at the lock.
    pub fn relies_on_notification(&self) -> bool {
        matches!(self.phase, Phase::Waiting { is_answered: true })
    }

    /// The reply to the latest request.
    ///
    /// # Panics
    /// If no request is open.
    pub fn answered(&mut self, reply: Reply) {
        let Phase::Asked(question) = core::mem::replace(&mut self.phase, Phase::Ended) else {
            panic!("invariant: a reply answers an open request")
        };
        self.phase = match question {
            Question::Acquire => match lock_reply(reply) {
                Ok(LockReply::Queued { .. }) => Phase::Planned(Question::BeginReports),
                Ok(decided) => Phase::End(LockWaitEnd::Decided(decided)),
                Err(error) => Phase::End(LockWaitEnd::NoAnswer(error)),
            },
            // What happened before the node began to report is found by looking.
            Question::BeginReports => Phase::Planned(Question::Holder),
            Question::Holder if self.may_hold(&reply) => Phase::Planned(Question::AcquireAgain),
            Question::Lease if self.has_left_queue(&reply) => Phase::Planned(Question::AcquireAgain),
            Question::Holder | Question::Lease => {
                Phase::Waiting { is_answered: !matches!(reply, Reply::Refused(_)) }
            }
            Question::AcquireAgain => self.acquired_again(reply),
            Question::Cancel { attempts, leaving } => cancelled(lock_reply(reply), attempts, leaving),
        };
    }

    /// What a request that waits does about what has happened.
    fn due(&mut self) -> Option<Question> {
        if let Some(leaving) = self.leaving.take() {
            return Some(Question::Cancel { attempts: 1, leaving });
        }
        if core::mem::take(&mut self.is_notified) {
            return Some(Question::Holder);
        }
        core::mem::take(&mut self.must_look_at_lease).then_some(Question::Lease)
    }

    fn request(&self, question: &Question) -> Request {
        let LockWrite { name, lease, .. } = &self.acquisition;
        let linearizable = |read| Request::Read { read, consistency: Consistency::Linearizable };
        match question {
            Question::Acquire | Question::AcquireAgain => Request::Write(self.acquisition.clone().into()),
            Question::BeginReports => {
                let scope = KeyScope::Key(name.clone());
                let read = Read::Changes { scope, after: None, limit: 1, keys_only: true };
                Request::Read { read, consistency: Consistency::Stale }
            }
            Question::Holder => linearizable(Read::Get { key: name.clone() }),
            Question::Lease => linearizable(Read::Lease { lease: lease.clone() }),
            Question::Cancel { .. } => {
                let operation = LockOperation::Cancel { at: UnixMillis(0) };
                Request::Write(LockWrite { name: name.clone(), lease: lease.clone(), operation }.into())
            }
        }
    }

    /// Whether no other lease holds the lock. Without an answer, the next look at the lease
    /// decides.
    fn may_hold(&self, reply: &Reply) -> bool {
        let Reply::Read(ReadReply::Value(found)) = reply else { return false };
        let holder = found.as_ref().and_then(|found| found.lease.as_deref());
        holder.is_none_or(|holder| *holder == self.acquisition.lease)
    }

    /// Whether the lease does not wait for the lock any more. Without an answer, the next look may
    /// find out.
    fn has_left_queue(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Read(ReadReply::Lease(Some(lease))) => !lease.awaited.contains(&self.acquisition.name),
            Reply::Read(ReadReply::Lease(None)) => true,
            _ => false,
        }
    }

    fn acquired_again(&self, reply: Reply) -> Phase {
        match lock_reply(reply) {
            Ok(LockReply::Queued { .. }) => Phase::Waiting { is_answered: true },
            Ok(decided) => Phase::End(LockWaitEnd::Decided(decided)),
            Err(Unanswered::Refused(refusal @ (Refusal::Unauthenticated | Refusal::Forbidden(_)))) => {
                Phase::Planned(Question::Cancel { attempts: 1, leaving: Leaving::Refused(refusal) })
            }
            // A later look repeats it.
            Err(_) => Phase::Waiting { is_answered: false },
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

/// What follows the reply to an attempt to give up the place.
fn cancelled(reply: Result<LockReply, Unanswered>, attempts: u32, leaving: Leaving) -> Phase {
    let is_final = |error: &Unanswered| {
        matches!(
            error,
            Unanswered::Mismatched | Unanswered::Refused(Refusal::Invalid(_) | Refusal::CrossShard)
        )
    };
    match reply {
        Ok(reply) => Phase::End(end_of(leaving, LockWaitEnd::Decided(reply))),
        Err(error) if is_final(&error) || attempts == CANCELLATIONS_MAX => {
            Phase::End(end_of(leaving, LockWaitEnd::PlaceKept))
        }
        Err(_) => Phase::Planned(Question::Cancel { attempts: attempts + 1, leaving }),
    }
}

/// The end of a request that leaves for a reason; `time_over` if its time is over.
fn end_of(leaving: Leaving, time_over: LockWaitEnd) -> LockWaitEnd {
    match leaving {
        Leaving::TimeOver => time_over,
        Leaving::ClientLeft => LockWaitEnd::ClientLeft,
        Leaving::Refused(refusal) => LockWaitEnd::NoAnswer(refusal.into()),
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
            wait.look_at_lease();
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
            assert_eq!(wait.next_step(), LockWaitStep::End(LockWaitEnd::PlaceKept), "{refusal:?}");
        }
    }

    #[test]
    fn a_client_that_leaves_or_loses_its_permission_waits_no_longer() {
        let mut left = waiting();
        left.client_left();
        assert_eq!(asks(&mut left), ("cancel", false));
        left.answered(lock(LockReply::Cancelled));
        assert_eq!(left.next_step(), LockWaitStep::End(LockWaitEnd::ClientLeft));

        let mut forbidden = waiting();
        forbidden.notified();
        asks(&mut forbidden);
        forbidden.answered(held_by(1));
        asks(&mut forbidden);
        forbidden.answered(refused(Refusal::Unauthenticated));
        assert_eq!(asks(&mut forbidden), ("cancel", false), "the node may, when the client may not");
        forbidden.answered(lock(LockReply::Cancelled));
        let end = LockWaitEnd::NoAnswer(Refusal::Unauthenticated.into());
        assert_eq!(forbidden.next_step(), LockWaitStep::End(end));
    }

    #[test]
    fn an_acquisition_without_an_answer_is_repeated_later() {
        let mut wait = waiting();
        wait.notified();
        asks(&mut wait);
        wait.answered(held_by(1));
        asks(&mut wait);
        wait.answered(refused(Refusal::UnknownOutcome));
        assert_eq!(wait.next_step(), LockWaitStep::Wait);
        assert!(!wait.relies_on_notification());
        wait.look_at_lease();
        assert_eq!(asks(&mut wait), ("lease", false));
    }
}
