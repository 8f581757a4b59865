//! Clients that wait for locks: they have a lease, queue for a lock at one node, hold it for a
//! moment, release it, and begin again. Some stop waiting early, or leave.
//!
//! Owns when each step happens, and the watcher of each waiting request. What a request asks is
//! decided by the core's [`LockWait`]; a node drives it, so it ends with that process.
//!
//! Two properties are checked as it happens. A node notifies a request of a hand-over when the node
//! has applied it. A request that gave up is in no queue afterwards. Answers and fences are judged
//! by `checkers::leases`.

use bytes::Bytes;
use tidelock_core::clients::lock_wait::{LockWait, LockWaitEnd, LockWaitStep};
use tidelock_core::clients::watch_hub::{Watched, WatcherId};
use tidelock_core::command::{
    Consistency, KeyScope, LeaseId, LeaseReply, LeaseTag, LeaseWrite, LockOperation, LockReply, LockView,
    LockWrite, Read, ReadReply, Reply, Request, WriteReply,
};
use tidelock_core::types::{NodeId, Token, UnixMillis};

use super::World;
use crate::checkers::Violation;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::leases::TTL_MS_MAX;
use crate::plan::Plan;
use crate::workload::Workload;

const CHECKER: &str = "lock waits";

/// The time that a request has until a leader proposes it.
const UNPROPOSED: UnixMillis = UnixMillis(0);

/// Longest pause between two steps of a client. A client that waits renews its lease meanwhile.
const PAUSE_MAX: Micros = Micros(400_000);

/// Longest time of a request.
const WAIT_MAX: Micros = Micros(8_000_000);

/// Of this many steps of a request that waits, its client leaves in one.
const STEPS_PER_LEAVE: u8 = 30;

/// A client that waits for locks.
#[derive(Debug)]
pub(super) struct WaitingClient {
    /// The hash tags of the shards. Each has one lock.
    tags: Vec<String>,
    lease: Option<LeaseId>,
    /// The request of the client's own that it awaits: about its lease, a release, or a look at the
    /// lock.
    asked: Option<Token>,
    state: State,
    /// A step that is due at another time is obsolete.
    next_step: Micros,
    random: fastrand::Rng,
}

#[derive(Debug)]
enum State {
    Idle,
    Waiting(Box<WaitingRequest>),
    /// It holds the lock of its lease's tag, unless its lease has ended.
    Holding,
    /// A request that gave up left the queue.
    GaveUp,
}

/// A request at a node.
#[derive(Debug)]
struct WaitingRequest {
    node: NodeId,
    id: WatcherId,
    wait: LockWait,
    asked: Option<Token>,
    ends: Micros,
}

/// The clients of a plan that wait for locks.
pub(super) fn waiting_clients(plan: &Plan, workload: &Workload) -> Vec<WaitingClient> {
    let client = |number| WaitingClient {
        tags: workload.tags().to_vec(),
        lease: None,
        asked: None,
        state: State::Idle,
        next_step: Micros(0),
        random: plan.generator(&format!("lock waiter {number}")),
    };
    (0..plan.load.waiting_clients).map(client).collect()
}

impl WaitingClient {
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
        self.state = State::Idle;
    }
}

impl World<'_> {
    /// Schedules the first step of every client that waits for locks.
    pub(crate) fn start_waiting_clients(&mut self) {
        for position in 0..self.waiting_clients.len() {
            self.lock_step_after(position, Micros::MILLISECOND * 10);
        }
    }

    /// Takes a client's next step.
    pub(crate) fn wait_for_lock(&mut self, position: usize) -> Result<(), Violation> {
        if self.waiting_clients[position].next_step != self.event_queue.now() {
            return Ok(());
        }
        let up: Vec<NodeId> =
            self.hosts.iter().filter(|host| host.is_running()).map(|host| host.node()).collect();
        self.lock_step_after(position, PAUSE_MAX);
        if up.is_empty() {
            return Ok(());
        }
        let client = &mut self.waiting_clients[position];
        let node = *choose(&mut client.random, &up);
        let Some(lease) = client.lease.clone() else {
            let tag = LeaseTag::new(choose(&mut client.random, &client.tags).as_bytes());
            let tag = tag.expect("invariant: the tags are short texts");
            let grant = LeaseWrite::Grant { tag, ttl_ms: TTL_MS_MAX, at: UNPROPOSED };
            return self.lock_client_asks(position, node, Request::Write(grant.into()));
        };
        match &client.state {
            State::Idle => self.begin_waiting(position, node),
            State::Holding => {
                let release = client.change(LockOperation::Release);
                self.lock_client_asks(position, node, Request::Write(release.into()))
            }
            State::GaveUp => {
                let read = Read::Lock { name: client.name() };
                let look = Request::Read { read, consistency: Consistency::Linearizable };
                self.lock_client_asks(position, node, look)
            }
            State::Waiting(_) => {
                self.check_notified(position)?;
                self.step_of_waiting(position)?;
                let renew = LeaseWrite::Renew { leases: vec![lease], at: UNPROPOSED };
                self.lock_client_asks(position, node, Request::Write(renew.into()))
            }
        }
    }

    /// A client sends a request of its own. It awaits no earlier one any more.
    fn lock_client_asks(&mut self, position: usize, node: NodeId, request: Request) -> Result<(), Violation> {
        let asked = self.ask(node, request, false);
        self.waiting_clients[position].asked = Some(asked);
        Ok(())
    }

    fn begin_waiting(&mut self, position: usize, node: NodeId) -> Result<(), Violation> {
        let now = self.event_queue.now();
        let client = &mut self.waiting_clients[position];
        let watched = Watched::Keys(KeyScope::Key(client.name()));
        let id = self.key_hubs[(node.0 - 1) as usize].register(watched);
        let operation = LockOperation::Acquire { value: Bytes::new(), waits: true, at: UNPROPOSED };
        let wait = LockWait::new(client.change(operation), self.plan.deliberate);
        let ends = now + Micros(client.random.u64(1..=WAIT_MAX.0));
        client.state = State::Waiting(Box::new(WaitingRequest { node, id, wait, asked: None, ends }));
        self.serve_waiting(position)
    }

    /// Time passes for a request that waits.
    fn step_of_waiting(&mut self, position: usize) -> Result<(), Violation> {
        let now = self.event_queue.now();
        let client = &mut self.waiting_clients[position];
        let leaves = client.random.u8(0..STEPS_PER_LEAVE) == 0;
        let State::Waiting(request) = &mut client.state else { return Ok(()) };
        if leaves {
            request.wait.client_left();
        } else if request.ends <= now {
            request.wait.give_up();
        } else {
            request.wait.look_at_lease();
        }
        self.serve_waiting(position)
    }

    /// Takes the steps of a request, as its node does, until it waits.
    fn serve_waiting(&mut self, position: usize) -> Result<(), Violation> {
        loop {
            let State::Waiting(request) = &mut self.waiting_clients[position].state else { return Ok(()) };
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
                    let State::Waiting(waiting) = &mut self.waiting_clients[position].state else {
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
        let client = &mut self.waiting_clients[position];
        let State::Waiting(request) = std::mem::replace(&mut client.state, State::Idle) else { return };
        self.key_hubs[(request.node.0 - 1) as usize].remove(request.id);
        match end {
            LockWaitEnd::Decided(LockReply::Held { .. }) => {
                client.state = State::Holding;
                self.tally.locks_awaited += 1;
            }
            LockWaitEnd::Decided(LockReply::Cancelled) => client.state = State::GaveUp,
            LockWaitEnd::Decided(LockReply::NoLease) => client.loses_lease(),
            LockWaitEnd::Decided(_)
            | LockWaitEnd::NoAnswer(_)
            | LockWaitEnd::PlaceKept
            | LockWaitEnd::ClientLeft => {}
        }
        self.end_key_reports(request.node);
    }

    /// Checks that a request that waits knows of a hand-over that its node has applied.
    fn check_notified(&mut self, position: usize) -> Result<(), Violation> {
        let client = &self.waiting_clients[position];
        let (State::Waiting(request), name) = (&client.state, client.name()) else { return Ok(()) };
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
    pub(crate) fn waiting_client_hears(&mut self, token: Token, reply: &Reply) -> Result<(), Violation> {
        let awaits = |client: &WaitingClient| match &client.state {
            State::Waiting(request) => request.asked == Some(token),
            _ => false,
        };
        if let Some(position) = self.waiting_clients.iter().position(awaits) {
            if let State::Waiting(request) = &mut self.waiting_clients[position].state {
                request.asked = None;
                request.wait.answered(reply.clone());
            }
            return self.serve_waiting(position);
        }
        let Some(position) = self.waiting_clients.iter().position(|client| client.asked == Some(token))
        else {
            return Ok(());
        };
        let client = &mut self.waiting_clients[position];
        client.asked = None;
        match reply {
            Reply::Write(WriteReply::Lease(LeaseReply::Granted { lease, .. })) => {
                client.lease = Some(lease.clone());
            }
            Reply::Write(WriteReply::Lease(LeaseReply::Renewed(left)))
                if left.iter().all(Option::is_none) && !matches!(client.state, State::Waiting(_)) =>
            {
                client.loses_lease();
            }
            Reply::Write(WriteReply::Lock(LockReply::Released | LockReply::NotHeld)) => {
                client.state = State::Idle;
            }
            Reply::Write(WriteReply::Lock(LockReply::NoLease)) => client.loses_lease(),
            Reply::Read(ReadReply::Lock(found)) if matches!(client.state, State::GaveUp) => {
                client.state = State::Idle;
                if let (Some(lock), Some(lease)) = (found, &client.lease)
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
    pub(crate) fn serve_waiting_at(&mut self, node: NodeId) -> Result<(), Violation> {
        for position in 0..self.waiting_clients.len() {
            let State::Waiting(request) = &self.waiting_clients[position].state else { continue };
            if request.node == node && self.key_hubs[(node.0 - 1) as usize].is_due(request.id) {
                self.serve_waiting(position)?;
            }
        }
        Ok(())
    }

    /// Ends the requests at a node that died. Their leases stay in the queue.
    pub(crate) fn break_waiting(&mut self, node: NodeId) {
        for client in &mut self.waiting_clients {
            if matches!(&client.state, State::Waiting(request) if request.node == node) {
                client.state = State::Idle;
            }
        }
    }

    fn lock_step_after(&mut self, position: usize, longest: Micros) {
        let client = &mut self.waiting_clients[position];
        client.next_step = self.event_queue.now() + Micros(client.random.u64(1..=longest.0));
        self.event_queue.at(client.next_step, SimEvent::WaitForLock(position));
    }
}

/// Whether a lease holds a lock or waits for it.
fn names(lock: &LockView, lease: &LeaseId) -> bool {
    lock.holder.lease == *lease || lock.queue.iter().any(|waiter| waiter.lease == *lease)
}
