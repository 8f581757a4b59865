//! Clients that wait for locks. Each has a lease, acquires a lock with it through some node,
//! releases the lock a moment later, and begins again. Some requests run out of time, and some
//! clients close their connection before they get the lock.
//!
//! Owns when each step happens, and the watcher of each request. What a request does is decided by
//! the core's [`LockWait`]. A node drives it, so it ends when that process dies.
//!
//! Two properties are checked during the run. Once a node has applied that a lock passed to a
//! lease, it has notified the request that waits there with this lease. Once a request was answered
//! that its lease left the queue, the lease is not in it. `checkers::leases` judges answers and
//! fences.

use bytes::Bytes;
use tidelock_core::clients::lock_wait::{LockWait, LockWaitEnd, LockWaitStep};
use tidelock_core::clients::watch_hub::{Watched, WatcherId};
use tidelock_core::command::{
    Consistency, KeyScope, LeaseId, LeaseReply, LeaseTag, LeaseWrite, LockOperation, LockReply, LockView,
    LockWrite, Read, ReadReply, Reply, Request, WriteReply,
};
use tidelock_core::types::{NodeId, Token};

use super::World;
use crate::checkers::Violation;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::leases::{TTL_MS_MAX, UNPROPOSED};
use crate::plan::Plan;
use crate::workload::Workload;

const CHECKER: &str = "lock waits";

/// Longest pause between two steps of a client. In each step a client that waits renews its lease.
const PAUSE_MAX: Micros = Micros(400_000);

/// Longest time of a request.
const WAIT_MAX: Micros = Micros(8_000_000);

/// In one of this many steps a client that waits closes its connection.
const STEPS_PER_LEAVE: u8 = 30;

/// A client that waits for locks.
#[derive(Debug)]
pub(super) struct LockWaiter {
    /// The hash tags of the shards. Each has one lock.
    tags: Vec<String>,
    lease: Option<LeaseId>,
    /// The request of the client's own that it awaits: about its lease, a release, or a look at the
    /// lock.
    asked: Option<Token>,
    /// Whether a request for its lease ended without the answer to its acquisition. That may still
    /// be executed, also after a later request has left the queue.
    is_uncertain: bool,
    state: WaiterState,
    /// A step that is due at another time is obsolete.
    next_step: Micros,
    random: fastrand::Rng,
}

#[derive(Debug)]
enum WaiterState {
    Idle,
    Waiting(Box<QueuedRequest>),
    /// It holds the lock of its lease's tag, unless its lease has ended.
    Holding,
    /// A request was answered that its lease left the queue. The client checks that.
    GaveUp,
}

/// A request at a node.
#[derive(Debug)]
struct QueuedRequest {
    node: NodeId,
    id: WatcherId,
    wait: LockWait,
    asked: Option<Token>,
    ends: Micros,
}

/// The clients of a plan that wait for locks.
pub(super) fn lock_waiters(plan: &Plan, workload: &Workload) -> Vec<LockWaiter> {
    let client = |number| LockWaiter {
        tags: workload.tags().to_vec(),
        lease: None,
        asked: None,
        is_uncertain: false,
        state: WaiterState::Idle,
        next_step: Micros(0),
        random: plan.generator(&format!("lock waiter {number}")),
    };
    (0..plan.load.lock_waiters).map(client).collect()
}

impl LockWaiter {
    fn name(&self) -> Bytes {
        let lease = self.lease.as_ref().expect("invariant: the client has a lease");
        format!("{{{}}}lock/awaited", lease.tag().tag()).into()
    }

    fn change(&self, operation: LockOperation) -> LockWrite {
        let lease = self.lease.clone().expect("invariant: the client has a lease");
        LockWrite { name: self.name(), lease, operation }
    }

    fn loses_lease(&mut self) {
        self.lease = None;
        self.state = WaiterState::Idle;
    }
}

impl World<'_> {
    /// Schedules the first step of every client that waits for locks.
    pub(crate) fn start_lock_waiters(&mut self) {
        for position in 0..self.lock_waiters.len() {
            self.lock_step_after(position, Micros::MILLISECOND * 10);
        }
    }

    /// Takes a client's next step.
    pub(crate) fn wait_for_lock(&mut self, position: usize) -> Result<(), Violation> {
        if self.lock_waiters[position].next_step != self.event_queue.now() {
            return Ok(());
        }
        let up = self.running_nodes();
        self.lock_step_after(position, PAUSE_MAX);
        if up.is_empty() {
            return Ok(());
        }
        let client = &mut self.lock_waiters[position];
        let node = *choose(&mut client.random, &up);
        let Some(lease) = client.lease.clone() else {
            let tag = LeaseTag::new(choose(&mut client.random, &client.tags).as_bytes());
            let tag = tag.expect("invariant: the tags are short texts");
            let grant = LeaseWrite::Grant { tag, ttl_ms: TTL_MS_MAX, at: UNPROPOSED };
            self.lock_waiter_asks(position, node, Request::Write(grant.into()));
            return Ok(());
        };
        match &client.state {
            WaiterState::Idle => self.begin_waiting(position, node)?,
            WaiterState::Holding => {
                let release = client.change(LockOperation::Release);
                self.lock_waiter_asks(position, node, Request::Write(release.into()));
            }
            WaiterState::GaveUp => {
                let read = Read::Lock { name: client.name() };
                let look = Request::Read { read, consistency: Consistency::Linearizable };
                self.lock_waiter_asks(position, node, look);
            }
            WaiterState::Waiting(_) => {
                self.check_notified(position)?;
                self.step_of_waiting(position)?;
                let renew = LeaseWrite::Renew { leases: vec![lease], at: UNPROPOSED };
                self.lock_waiter_asks(position, node, Request::Write(renew.into()));
            }
        }
        Ok(())
    }

    /// A client sends a request of its own. It awaits no earlier one any more.
    fn lock_waiter_asks(&mut self, position: usize, node: NodeId, request: Request) {
        let asked = self.ask(node, request, false);
        self.lock_waiters[position].asked = Some(asked);
    }

    fn begin_waiting(&mut self, position: usize, node: NodeId) -> Result<(), Violation> {
        let now = self.event_queue.now();
        let client = &mut self.lock_waiters[position];
        let watched = Watched::Keys(KeyScope::Key(client.name()));
        let id = self.key_hubs[(node.0 - 1) as usize].register(watched);
        let operation = LockOperation::Acquire { value: Bytes::new(), waits: true, at: UNPROPOSED };
        let wait = LockWait::new(client.change(operation), self.plan.deliberate);
        let ends = now + Micros(client.random.u64(1..=WAIT_MAX.0));
        client.state = WaiterState::Waiting(Box::new(QueuedRequest { node, id, wait, asked: None, ends }));
        self.serve_waiting(position)
    }

    /// Lets a request check its lease, or end because its time is over or its client has left.
    fn step_of_waiting(&mut self, position: usize) -> Result<(), Violation> {
        let now = self.event_queue.now();
        let client = &mut self.lock_waiters[position];
        let leaves = client.random.u8(0..STEPS_PER_LEAVE) == 0;
        let WaiterState::Waiting(request) = &mut client.state else { return Ok(()) };
        if leaves {
            request.wait.client_left();
        } else if request.ends <= now {
            request.wait.give_up();
        } else {
            request.wait.check_lease();
        }
        self.serve_waiting(position)
    }

    /// Takes the steps of a request, as its node does, until it waits.
    fn serve_waiting(&mut self, position: usize) -> Result<(), Violation> {
        loop {
            let WaiterState::Waiting(request) = &mut self.lock_waiters[position].state else { return Ok(()) };
            let node = request.node;
            if !self.hosts[(node.0 - 1) as usize].is_running() {
                return Ok(());
            }
            if self.key_hubs[(node.0 - 1) as usize].take_due(request.id) {
                request.wait.notified();
            }
            match request.wait.next_step() {
                LockWaitStep::Ask { request, .. } => {
                    let host = &mut self.hosts[(node.0 - 1) as usize];
                    let at_once = match &request {
                        Request::Read { read, consistency: Consistency::Stale } => host.look(read),
                        _ => None,
                    };
                    let asked = if at_once.is_some() { None } else { Some(self.ask(node, request, false)) };
                    let WaiterState::Waiting(waiting) = &mut self.lock_waiters[position].state else {
                        return Ok(());
                    };
                    waiting.asked = asked;
                    match at_once {
                        Some(reply) => waiting.wait.answered(reply),
                        None => return Ok(()),
                    }
                }
                LockWaitStep::Wait => return Ok(()),
                LockWaitStep::End(end) => {
                    self.end_waiting(position, &end);
                    return Ok(());
                }
            }
        }
    }

    fn end_waiting(&mut self, position: usize, end: &LockWaitEnd) {
        let client = &mut self.lock_waiters[position];
        let WaiterState::Waiting(request) = std::mem::replace(&mut client.state, WaiterState::Idle) else {
            return;
        };
        client.is_uncertain |= request.asked.is_some();
        self.key_hubs[(request.node.0 - 1) as usize].remove(request.id);
        match end {
            LockWaitEnd::Decided(LockReply::Held { .. }) => {
                client.state = WaiterState::Holding;
                self.tally.locks_awaited += 1;
            }
            LockWaitEnd::Decided(LockReply::Cancelled) => client.state = WaiterState::GaveUp,
            LockWaitEnd::Decided(LockReply::NoLease) => client.loses_lease(),
            LockWaitEnd::Decided(_)
            | LockWaitEnd::NoAnswer(_)
            | LockWaitEnd::StillQueued
            | LockWaitEnd::ClientLeft => {}
        }
        self.end_key_reports(request.node);
    }

    /// Checks that a request was notified if its node has applied that its lease holds the lock.
    fn check_notified(&mut self, position: usize) -> Result<(), Violation> {
        let client = &self.lock_waiters[position];
        let (WaiterState::Waiting(request), name) = (&client.state, client.name()) else { return Ok(()) };
        let host = &mut self.hosts[(request.node.0 - 1) as usize];
        let is_due = self.key_hubs[(request.node.0 - 1) as usize].is_due(request.id);
        if is_due || !request.wait.relies_on_notification() || !host.is_running() {
            return Ok(());
        }
        let Some(Reply::Read(ReadReply::Lock(Some(lock)))) = host.look(&Read::Lock { name }) else {
            return Ok(());
        };
        if Some(&lock.holder.lease) == client.lease.as_ref() {
            let text = format!(
                "waiting client {position} at node {} was not notified that its lease {:?} holds the lock",
                request.node, client.lease
            );
            return Err(Violation::new(CHECKER, text));
        }
        Ok(())
    }

    /// Handles an answer that may be for a client that waits for locks, or for its request.
    pub(crate) fn lock_waiter_hears(&mut self, token: Token, reply: &Reply) -> Result<(), Violation> {
        let awaits = |client: &LockWaiter| match &client.state {
            WaiterState::Waiting(request) => request.asked == Some(token),
            _ => false,
        };
        if let Some(position) = self.lock_waiters.iter().position(awaits) {
            let client = &mut self.lock_waiters[position];
            client.is_uncertain |= matches!(reply, Reply::Refused(_));
            if let WaiterState::Waiting(request) = &mut client.state {
                request.asked = None;
                request.wait.answered(reply.clone());
            }
            return self.serve_waiting(position);
        }
        let Some(position) = self.lock_waiters.iter().position(|client| client.asked == Some(token)) else {
            return Ok(());
        };
        let client = &mut self.lock_waiters[position];
        client.asked = None;
        match reply {
            Reply::Write(WriteReply::Lease(LeaseReply::Granted { lease, .. })) => {
                client.lease = Some(lease.clone());
                client.is_uncertain = false;
            }
            Reply::Write(WriteReply::Lease(LeaseReply::Renewed(left)))
                if left.iter().all(Option::is_none) && !matches!(client.state, WaiterState::Waiting(_)) =>
            {
                client.loses_lease();
            }
            Reply::Write(WriteReply::Lock(LockReply::Released | LockReply::NotHeld)) => {
                client.state = WaiterState::Idle;
            }
            Reply::Write(WriteReply::Lock(LockReply::NoLease)) => client.loses_lease(),
            Reply::Read(ReadReply::Lock(found)) if matches!(client.state, WaiterState::GaveUp) => {
                client.state = WaiterState::Idle;
                if let (Some(lock), Some(lease)) = (found, &client.lease)
                    && !client.is_uncertain
                    && names(lock, lease)
                {
                    let text =
                        format!("lease {lease:?} of waiting client {position} is still there: {lock:?}");
                    return Err(Violation::new(CHECKER, text));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Notifies the requests that wait at a node.
    pub(crate) fn serve_lock_waiters_at(&mut self, node: NodeId) -> Result<(), Violation> {
        for position in 0..self.lock_waiters.len() {
            let WaiterState::Waiting(request) = &self.lock_waiters[position].state else { continue };
            if request.node == node && self.key_hubs[(node.0 - 1) as usize].is_due(request.id) {
                self.serve_waiting(position)?;
            }
        }
        Ok(())
    }

    /// Ends the requests at a node that died. Their leases stay in the queue.
    pub(crate) fn break_lock_waiters(&mut self, node: NodeId) {
        for client in &mut self.lock_waiters {
            if matches!(&client.state, WaiterState::Waiting(request) if request.node == node) {
                client.state = WaiterState::Idle;
                client.is_uncertain = true;
            }
        }
    }

    fn lock_step_after(&mut self, position: usize, longest: Micros) {
        let client = &mut self.lock_waiters[position];
        client.next_step = self.event_queue.now() + Micros(client.random.u64(1..=longest.0));
        self.event_queue.at(client.next_step, SimEvent::WaitForLock(position));
    }
}

/// Whether a lease holds a lock or waits for it.
fn names(lock: &LockView, lease: &LeaseId) -> bool {
    lock.holder.lease == *lease || lock.queue.iter().any(|waiter| waiter.lease == *lease)
}
