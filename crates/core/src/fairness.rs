//! Fair queueing of client requests, for a node that has more of them than it can process at once.
//!
//! All requests that a node has taken enter the log together, and later requests wait for all of
//! them. So a client with thousands of requests would determine everyone's latency. To prevent
//! this, requests wait *before* the node takes them, in one queue for each client. The node serves
//! the queues by deficit round robin (Shreedhar and Varghese, 1995): a turn is worth a [`QUANTUM`]
//! of cost, whether a client spends it on many small requests or on few large ones. Clients that
//! were quiet come first, as new flows do in FQ-CoDel (RFC 8290). So the latency of a quiet client
//! does not depend on how many others have requests queued.
//!
//! A window bounds the requests that are taken and not answered yet, so that the queue forms here,
//! where it is fair, instead of behind it. Its size depends on who is there:
//! - While all clients send their next request upon each answer, only throughput counts, and the
//!   window is [`WINDOW_BATCH`]: large batches cost less for each request.
//! - While an *interactive* client is there, one that pauses between its requests for longer than
//!   it waits for answers, its latency counts too, and the window of a busy node shrinks to
//!   [`WINDOW_INTERACTIVE`].
//!
//! Two rules keep the window from limiting a node that is not busy:
//! - If the window is full and nothing was answered for a whole tick, its requests wait for a
//!   leader or a disk, and no longer count. Other shards may be healthy.
//! - If requests wait here while the node is idle, the latency has another cause, such as a slow
//!   disk or distant peers. The window then doubles with each tick. It shrinks when the node is
//!   busy.
//!
//! As long as less than [`WINDOW_INTERACTIVE`] is in flight, requests are taken without any entry
//! for their client.
//!
//! The shell passes the time as a number. The requests of one client keep their order.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::command::{Read, Request, Write};
use crate::types::ClientId;

/// Cost of a command beyond its operations and bytes. One unit of cost is about a microsecond of
/// processor time.
const COMMAND_COST: usize = 32;

/// Number of bytes that cost as much as an operation.
const BYTES_PER_COST: usize = 256;

/// Cost that a client may spend in one turn: one pipeline of a few hundred small operations, or a
/// dozen single requests.
pub const QUANTUM: i64 = 512;

/// Minimum window while an interactive client is there: 124 single requests, or pipelines of 4,096
/// operations. It is the work of a few milliseconds.
pub const WINDOW_INTERACTIVE: u64 = 4_096;

/// Minimum window otherwise: 620 single requests, or pipelines of 20,480 operations.
pub const WINDOW_BATCH: u64 = 5 * WINDOW_INTERACTIVE;

/// Maximum window. Beyond it, the queues of the shards bound the waiting requests.
const WINDOW_MAX: u64 = 1 << 22;

/// Quiet clients may exceed the window by one part in this many, so that they need not wait for
/// answers to other clients.
const PART_FOR_QUIET: u64 = 4;

/// After this many requests of quiet clients in a row, another client goes first, so that all
/// clients make progress.
const QUIET_IN_A_ROW: u32 = 8;

/// A client is quiet if it had nothing queued or unanswered for this long. A client that sends its
/// next request upon each answer is back much sooner.
pub const QUIET_MICROS: u64 = 4_000;

/// A client is interactive if it has paused before each request for this long. Clients that send
/// upon each answer may pause too while their machine is busy, but not before each request.
const INTERACTIVE_AFTER_MICROS: u64 = 150_000;

/// Minimum pause between an answer and the next request. The pause must also be at least as long as
/// the client has waited for that answer. With hundreds of clients that send upon each answer, a
/// busy processor delays the next request of each by milliseconds. That is no pause of the client,
/// and it is shorter than the wait for the answer.
const PAUSE_MICROS: u64 = 8_000;

/// The window stays small for this long after the last request of an interactive client. A client
/// without queued requests is forgotten after this time.
const MEMORY_MICROS: u64 = 1_000_000;

/// Percentage of a tick below which a node counts as idle, and above which it counts as busy.
const IDLE_PERCENT: u64 = 50;
const BUSY_PERCENT: u64 = 80;

/// Estimated cost of a request.
pub fn cost(request: &Request) -> u32 {
    let (operations, bytes) = match request {
        Request::Write(Write::Keys(transaction)) => {
            (transaction.operations.len(), transaction.operations.encoded_bytes())
        }
        Request::Write(Write::Conditional(transaction)) => {
            (transaction.comparisons.len() + transaction.operations_max(), transaction.encoded_bytes())
        }
        Request::Write(Write::Lease(write)) => (write.tags().count(), 0),
        Request::Read { read: Read::Operations { operations, .. }, .. } => {
            (operations.len(), operations.encoded_bytes())
        }
        Request::Publish(publication) => (1, publication.content_bytes()),
        _ => (1, 0),
    };
    u32::try_from(COMMAND_COST + operations + bytes / BYTES_PER_COST).unwrap_or(u32::MAX)
}

/// A request's share of the window, held until the request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    client: ClientId,
    cost: u32,
    /// The window generation in which the request was taken; see [`FairQueue::tick`].
    generation: u64,
    /// Whether the request was queued, so that its client has an entry.
    is_tracked: bool,
}

/// The queues of waiting requests, and the window of unanswered ones.
#[derive(Debug)]
pub struct FairQueue<T> {
    clients: BTreeMap<ClientId, Client<T>>,
    /// Clients with queued requests that were quiet before, in the order of their turns.
    quiet: VecDeque<ClientId>,
    /// The other clients with queued requests.
    busy: VecDeque<ClientId>,
    waiting: usize,
    /// Requests of quiet clients taken since the last request of another client.
    quiet_in_a_row: u32,
    /// Cost of the unanswered requests of this generation.
    in_flight: u64,
    generation: u64,
    /// Whether a request was answered since the last tick.
    has_answered: bool,
    window: u64,
    /// Whether a request had to wait since the last tick.
    has_waited: bool,
    /// Time of the last request of an interactive client, in microseconds.
    interactive_at: Option<u64>,
}

#[derive(Debug)]
struct Client<T> {
    queue: VecDeque<Queued<T>>,
    /// Cost that it may still spend in its turn; negative if it spent more.
    deficit: i64,
    unanswered: u32,
    /// Time of the request that came when the client had nothing queued or unanswered.
    asked_at: u64,
    /// Time of the last answer, in microseconds.
    answered_at: Option<u64>,
    /// Time of the last request that came while [`WINDOW_INTERACTIVE`] was in flight.
    loaded_at: u64,
    /// Time of the first request since which each came after a pause; `None` if the last did not.
    pausing_since: Option<u64>,
}

#[derive(Debug)]
struct Queued<T> {
    item: T,
    cost: u32,
    since: u64,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue {
            clients: BTreeMap::new(),
            quiet: VecDeque::new(),
            busy: VecDeque::new(),
            waiting: 0,
            quiet_in_a_row: 0,
            in_flight: 0,
            generation: 0,
            has_answered: false,
            window: WINDOW_BATCH,
            has_waited: false,
            interactive_at: None,
        }
    }
}

impl<T> FairQueue<T> {
    /// Takes a request without queueing it, if none waits, little is in flight and the client has
    /// no entry. Requests of the node itself are always taken.
    pub fn take_at_once(&mut self, client: ClientId, cost: u32) -> Option<Ticket> {
        if client == ClientId::NODE {
            return Some(Ticket::default());
        }
        let is_untracked = self.in_flight < WINDOW_INTERACTIVE
            && self.waiting == 0
            && (self.clients.is_empty() || !self.clients.contains_key(&client));
        is_untracked.then(|| self.ticket(client, cost, false))
    }

    /// Appends a request to the queue of its client. `now` is in microseconds.
    pub fn queue(&mut self, client: ClientId, (cost, now): (u32, u64), item: T) {
        self.has_waited |= self.waiting > 0 || !self.has_room(self.window);
        self.waiting += 1;
        let has_load = self.in_flight >= WINDOW_INTERACTIVE;
        let entry = self.clients.entry(client).or_insert_with(|| Client::new(now));
        if has_load {
            entry.loaded_at = now;
        }
        if entry.record_request(now) {
            self.interactive_at = Some(now);
        }
        if entry.queue.is_empty() {
            if entry.is_quiet(now) {
                entry.deficit = QUANTUM;
                self.quiet.push_back(client);
            } else {
                self.busy.push_back(client);
            }
        }
        entry.queue.push_back(Queued { item, cost, since: now });
    }

    /// The next request to take, if the window has room.
    #[expect(clippy::should_implement_trait, reason = "it takes from a queue, and there may be more later")]
    pub fn next(&mut self) -> Option<(Ticket, T)> {
        loop {
            let is_quiet_turn =
                !self.quiet.is_empty() && (self.quiet_in_a_row < QUIET_IN_A_ROW || self.busy.is_empty());
            let (list, window) = if is_quiet_turn {
                (&mut self.quiet, self.window + self.window / PART_FOR_QUIET)
            } else {
                (&mut self.busy, self.window)
            };
            let client = *list.front()?;
            if self.in_flight >= window {
                if is_quiet_turn || self.quiet.is_empty() {
                    return None;
                }
                // The window has room for quiet clients only.
                self.quiet_in_a_row = 0;
                continue;
            }
            let entry = self.clients.get_mut(&client).expect("invariant: a listed client is known");
            if entry.deficit <= 0 {
                // The client's turn is over, and it no longer counts as quiet.
                entry.deficit += QUANTUM;
                list.pop_front();
                self.busy.push_back(client);
                continue;
            }
            let queued = entry.queue.pop_front().expect("invariant: a listed client has something queued");
            entry.deficit -= i64::from(queued.cost);
            entry.unanswered += 1;
            if entry.queue.is_empty() {
                list.pop_front();
            }
            self.quiet_in_a_row = if is_quiet_turn { self.quiet_in_a_row + 1 } else { 0 };
            self.waiting -= 1;
            return Some((self.ticket(client, queued.cost, true), queued.item));
        }
    }

    /// Records that a request was answered. `now` is called only if the time is needed.
    pub fn answered(&mut self, ticket: Ticket, now: impl FnOnce() -> u64) {
        self.has_answered = true;
        if ticket.generation == self.generation {
            self.in_flight -= u64::from(ticket.cost);
        }
        if ticket.is_tracked
            && let Some(entry) = self.clients.get_mut(&ticket.client)
        {
            entry.unanswered -= 1;
            entry.answered_at = Some(now());
        }
    }

    /// Adjusts the window after a tick in which the node was busy for `busy_percent` of the time.
    pub fn tick(&mut self, now: u64, busy_percent: u64) {
        if !core::mem::take(&mut self.has_answered) && !self.has_room(self.window) {
            self.generation += 1;
            self.in_flight = 0;
        }
        let is_recent = |then: u64| now.saturating_sub(then) < MEMORY_MICROS;
        let window_min =
            if self.interactive_at.is_some_and(is_recent) { WINDOW_INTERACTIVE } else { WINDOW_BATCH };
        self.window = self.window.max(window_min);
        if busy_percent >= BUSY_PERCENT {
            self.window = (self.window - self.window / 4).max(window_min);
        } else if busy_percent < IDLE_PERCENT && self.has_waited {
            self.window = (self.window * 2).min(WINDOW_MAX);
        }
        self.has_waited = self.waiting > 0;
        self.clients.retain(|_, client| {
            !client.queue.is_empty() || client.unanswered > 0 || is_recent(client.loaded_at)
        });
    }

    /// Removes the requests that have waited since before `since`, in microseconds.
    pub fn expire(&mut self, since: u64) -> Vec<T> {
        let mut expired = Vec::new();
        if self.waiting == 0 {
            return expired;
        }
        for client in self.clients.values_mut() {
            while client.queue.front().is_some_and(|queued| queued.since < since) {
                expired.extend(client.queue.pop_front().map(|queued| queued.item));
            }
        }
        if !expired.is_empty() {
            self.waiting -= expired.len();
            let clients = &self.clients;
            let has_queued = |client: &ClientId| !clients[client].queue.is_empty();
            self.quiet.retain(has_queued);
            self.busy.retain(has_queued);
        }
        expired
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The window: maximum cost of unanswered requests.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Whether [`FairQueue::next`] would return something.
    pub fn is_ready(&self) -> bool {
        let window =
            if self.quiet.is_empty() { self.window } else { self.window + self.window / PART_FOR_QUIET };
        self.waiting > 0 && self.has_room(window)
    }

    fn has_room(&self, window: u64) -> bool {
        self.in_flight < window
    }

    fn ticket(&mut self, client: ClientId, cost: u32, is_tracked: bool) -> Ticket {
        self.in_flight += u64::from(cost);
        Ticket { client, cost, generation: self.generation, is_tracked }
    }
}

impl<T> Client<T> {
    fn new(now: u64) -> Client<T> {
        Client {
            queue: VecDeque::new(),
            deficit: 0,
            unanswered: 0,
            asked_at: now,
            answered_at: None,
            loaded_at: now,
            pausing_since: None,
        }
    }

    /// Records a request. Returns whether the client is interactive.
    fn record_request(&mut self, now: u64) -> bool {
        let is_idle = self.unanswered == 0 && self.queue.is_empty();
        let has_paused = self.answered_at.is_some_and(|answered| {
            let waited = answered.saturating_sub(self.asked_at);
            is_idle && now.saturating_sub(answered) >= waited.max(PAUSE_MICROS)
        });
        if is_idle {
            self.asked_at = now;
        }
        self.pausing_since = if has_paused { self.pausing_since.or(Some(now)) } else { None };
        self.pausing_since.is_some_and(|since| now.saturating_sub(since) >= INTERACTIVE_AFTER_MICROS)
    }

    fn is_quiet(&self, now: u64) -> bool {
        self.unanswered == 0 && self.answered_at.is_none_or(|then| now.saturating_sub(then) >= QUIET_MICROS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const SINGLE: u32 = COMMAND_COST as u32 + 1;
    const BURST: u32 = COMMAND_COST as u32 + 512;

    fn client(number: u64) -> ClientId {
        ClientId(number)
    }

    /// Fills the window, so that the next request is queued.
    fn fill(queue: &mut FairQueue<u64>) -> Vec<Ticket> {
        core::iter::from_fn(|| {
            if !queue.has_room(queue.window) {
                return None;
            }
            queue.take_at_once(client(1), BURST).or_else(|| {
                queue.queue(client(1), (BURST, 0), 1);
                queue.next().map(|(ticket, _)| ticket)
            })
        })
        .collect()
    }

    /// Lets a client ask `times` times, each time `pause` microseconds after its last answer.
    fn ask(queue: &mut FairQueue<u64>, number: u64, times: u64, (pause, now): (u64, &mut u64)) {
        for _ in 0..times {
            *now += pause;
            queue.queue(client(number), (SINGLE, *now), number);
            let (ticket, item) = queue.next().expect("there is room for quiet clients");
            assert_eq!(item, number);
            queue.answered(ticket, || *now);
        }
    }

    fn drain(queue: &mut FairQueue<u64>) -> Vec<u64> {
        let mut taken = vec![];
        while let Some((ticket, item)) = queue.next() {
            taken.push(item);
            queue.answered(ticket, || 0);
        }
        taken
    }

    #[test]
    fn without_load_nothing_is_queued() {
        let mut queue: FairQueue<u64> = FairQueue::default();
        for _ in 0..10_000 {
            let ticket = queue.take_at_once(client(1), SINGLE).expect("there is room");
            queue.answered(ticket, || unreachable!("no time is asked for"));
        }
        assert!(queue.clients.is_empty() && queue.in_flight == 0);
    }

    #[test]
    fn what_the_node_asks_of_itself_never_waits() {
        let mut queue: FairQueue<u64> = FairQueue::default();
        fill(&mut queue);
        assert!(queue.take_at_once(client(2), SINGLE).is_none());
        let ticket = queue.take_at_once(ClientId::NODE, BURST).expect("it is taken");
        queue.answered(ticket, || 0);
    }

    #[test]
    fn turns_are_worth_the_same_whatever_they_are_spent_on() {
        let mut queue = FairQueue::default();
        let filling = fill(&mut queue);
        // Both clients send again upon each answer, so neither is quiet. One sends pipelines, the
        // other single requests.
        for round in 0..400 {
            queue.queue(client(2), (BURST, round), 2);
            queue.queue(client(3), (SINGLE, round), 3);
        }
        for ticket in filling {
            queue.answered(ticket, || 0);
        }
        let (mut bursts, mut singles) = (0, 0);
        while singles < 300 {
            let (ticket, item) = queue.next().expect("there is room");
            queue.answered(ticket, || 0);
            if item == 2 { bursts += 1 } else { singles += 1 }
        }
        let (of_bursts, of_singles) = (bursts * BURST, singles * SINGLE);
        assert!(of_bursts.abs_diff(of_singles) <= 2 * BURST, "{of_bursts} and {of_singles}");
    }

    #[test]
    fn requests_of_one_client_keep_their_order() {
        let mut queue = FairQueue::default();
        let filling = fill(&mut queue);
        (0..100).for_each(|item| queue.queue(client(2), (BURST, 0), item));
        filling.into_iter().for_each(|ticket| queue.answered(ticket, || 0));
        assert!(drain(&mut queue).into_iter().eq(0..100));
    }

    #[test]
    fn a_client_that_asks_again_at_once_is_not_quiet() {
        let mut queue = FairQueue::default();
        let filling = fill(&mut queue);
        let mut now = 0;
        for number in 2..200 {
            queue.queue(client(number), (SINGLE, now), number);
        }
        filling.into_iter().for_each(|ticket| queue.answered(ticket, || 0));
        // Each client sends again shortly after its answer, while others wait.
        for _ in 0..1000 {
            now += 10;
            let (ticket, item) = queue.next().expect("there is room");
            queue.answered(ticket, || now);
            queue.queue(client(item), (SINGLE, now + 100), item);
        }
        assert!(queue.quiet.is_empty());
        queue.queue(client(1_000), (SINGLE, now), 1_000);
        assert_eq!(queue.next().map(|(_, item)| item), Some(1_000));
    }

    #[test]
    fn quiet_clients_go_first_and_others_proceed_all_the_same() {
        let mut queue = FairQueue::default();
        let filling = fill(&mut queue);
        queue.queue(client(2), (SINGLE, 0), 2);
        filling.into_iter().for_each(|ticket| queue.answered(ticket, || 0));
        let (ticket, _) = queue.next().expect("there is room");
        let filling = fill(&mut queue);
        queue.queue(client(2), (SINGLE, 1), 2);
        (10..40).for_each(|number| queue.queue(client(number), (SINGLE, 1), number));
        queue.answered(ticket, || 1);
        filling.into_iter().for_each(|ticket| queue.answered(ticket, || 1));
        let order = drain(&mut queue);
        assert_eq!(order.iter().position(|&item| item == 2), Some(QUIET_IN_A_ROW as usize), "{order:?}");
        assert_eq!(order.len(), 31);
    }

    #[test]
    fn a_full_window_without_answers_for_a_tick_makes_room() {
        let mut queue = FairQueue::default();
        let mut stuck = fill(&mut queue);
        queue.queue(client(2), (BURST, 0), 2);
        queue.queue(client(3), (SINGLE, 0), 3);
        // These clients are not quiet, so the reserve for quiet clients does not apply to them.
        let others = core::mem::take(&mut queue.quiet);
        queue.busy.extend(others);
        assert!(queue.next().is_none(), "the window is full");
        queue.answered(stuck.pop().expect("the window is full"), || 0);
        queue.tick(0, 100);
        stuck.extend(queue.next().map(|(ticket, _)| ticket));
        assert!(queue.next().is_none(), "a node that answers is slow, but not stuck");
        queue.tick(0, 100);
        assert_eq!(drain(&mut queue), vec![3]);
        stuck.into_iter().for_each(|ticket| queue.answered(ticket, || 0));
        assert_eq!(queue.in_flight, 0, "late answers count for nothing");
    }

    #[test]
    fn the_window_shrinks_while_an_interactive_client_is_there() {
        let mut queue = FairQueue::default();
        let filling = fill(&mut queue);
        let mut now = 0;
        // A client that sends upon each answer, and one that pauses.
        ask(&mut queue, 2, 1_000, (PAUSE_MICROS - 1, &mut now));
        queue.tick(now, 100);
        assert_eq!(queue.window(), WINDOW_BATCH);
        ask(&mut queue, 3, INTERACTIVE_AFTER_MICROS / PAUSE_MICROS + 1, (PAUSE_MICROS, &mut now));
        (0..100).for_each(|_| queue.tick(now, 100));
        assert_eq!(queue.window(), WINDOW_BATCH, "it may have been chance so far");
        ask(&mut queue, 3, 2, (PAUSE_MICROS, &mut now));
        (0..100).for_each(|_| queue.tick(now, 100));
        assert_eq!(queue.window(), WINDOW_INTERACTIVE);
        queue.tick(now + MEMORY_MICROS - 1, 100);
        assert_eq!(queue.window(), WINDOW_INTERACTIVE, "it may come back");
        queue.tick(now + MEMORY_MICROS, 60);
        assert_eq!(queue.window(), WINDOW_BATCH);
        filling.into_iter().for_each(|ticket| queue.answered(ticket, || now));
    }

    /// As with 512 connections that send upon each answer: an answer takes 12 milliseconds, and the
    /// busy machine of the clients delays the next request by 9.
    #[test]
    fn a_pause_shorter_than_the_wait_for_the_answer_is_not_interactive() {
        let mut queue: FairQueue<u64> = FairQueue::default();
        let mut now = 1_000_000;
        for _ in 0..20 {
            now += PAUSE_MICROS + 1_000;
            queue.queue(client(2), (SINGLE, now), 2);
            let (ticket, _) = queue.next().expect("there is room");
            now += 12_000;
            queue.answered(ticket, || now);
        }
        queue.tick(now, 100);
        assert_eq!(queue.window, WINDOW_BATCH);
        for _ in 0..20 {
            now += 20_000;
            queue.queue(client(2), (SINGLE, now), 2);
            let (ticket, _) = queue.next().expect("there is room");
            now += 12_000;
            queue.answered(ticket, || now);
        }
        (0..20).for_each(|_| queue.tick(now, 100));
        assert_eq!(queue.window, WINDOW_INTERACTIVE, "its pauses are longer than its waits");
    }

    #[test]
    fn one_request_without_a_pause_ends_the_interactive_time() {
        let mut queue = FairQueue::default();
        fill(&mut queue);
        let mut now = 0;
        ask(&mut queue, 3, 100, (PAUSE_MICROS, &mut now));
        let last = queue.interactive_at;
        assert_eq!(last, Some(now));
        ask(&mut queue, 3, 1, (PAUSE_MICROS / 2, &mut now));
        ask(&mut queue, 3, 10, (PAUSE_MICROS, &mut now));
        assert_eq!(queue.interactive_at, last);
    }

    #[test]
    fn the_window_grows_while_an_idle_node_lets_requests_wait() {
        let mut queue = FairQueue::default();
        fill(&mut queue);
        queue.tick(0, 10);
        assert_eq!(queue.window(), WINDOW_BATCH, "nothing had to wait");
        fill(&mut queue);
        queue.queue(client(2), (SINGLE, 0), 2);
        queue.tick(0, 10);
        assert_eq!(queue.window(), 2 * WINDOW_BATCH);
        queue.tick(0, 60);
        assert_eq!(queue.window(), 2 * WINDOW_BATCH);
        (0..10).for_each(|_| queue.tick(0, 100));
        assert_eq!(queue.window(), WINDOW_BATCH);
        (0..100).for_each(|_| {
            queue.has_waited = true;
            queue.tick(0, 0);
        });
        assert_eq!(queue.window(), WINDOW_MAX);
    }

    #[test]
    fn what_waits_too_long_is_handed_back() {
        let mut queue = FairQueue::default();
        let filling = fill(&mut queue);
        (2..6).for_each(|number| queue.queue(client(number), (SINGLE, number * 10), number));
        let mut expired = queue.expire(40);
        expired.sort_unstable();
        assert_eq!((expired, queue.waiting()), (vec![2, 3], 2));
        filling.into_iter().for_each(|ticket| queue.answered(ticket, || 0));
        assert_eq!(drain(&mut queue), vec![4, 5]);
        assert!(queue.expire(1_000).is_empty());
    }

    #[test]
    fn clients_that_are_gone_are_forgotten() {
        let mut queue = FairQueue::default();
        let filling = fill(&mut queue);
        (2..1_000).for_each(|number| queue.queue(client(number), (SINGLE, 0), number));
        filling.into_iter().for_each(|ticket| queue.answered(ticket, || 0));
        drain(&mut queue);
        queue.tick(MEMORY_MICROS - 1, 0);
        assert!(!queue.clients.is_empty(), "their pauses are counted");
        queue.tick(MEMORY_MICROS, 0);
        assert!(queue.clients.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A quiet client's request is among the next few to be taken, whatever other clients have
        /// queued. It is taken at once unless the window is exceeded by the whole reserve for quiet
        /// clients.
        #[test]
        fn the_wait_of_a_quiet_client_is_bounded(
            queued in prop::collection::vec((2_u64..100, 1_u32..5_000), 1..400),
            answers in 0_usize..50,
        ) {
            let mut queue = FairQueue::default();
            let mut in_flight = fill(&mut queue);
            for &(number, cost) in &queued {
                queue.queue(client(number), (cost, 0), number);
            }
            // As if all of them had sent again upon each answer.
            let others = core::mem::take(&mut queue.quiet);
            queue.busy.extend(others);
            for _ in 0..answers {
                if let Some(ticket) = in_flight.pop() {
                    queue.answered(ticket, || 1);
                }
                in_flight.extend(queue.next().map(|(ticket, _)| ticket));
            }
            queue.queue(client(1_000), (SINGLE, QUIET_MICROS / 2), 1_000);
            let mut ahead = 0;
            while let Some((ticket, item)) = {
                while !queue.is_ready() {
                    let Some(ticket) = in_flight.pop() else { break };
                    queue.answered(ticket, || 2);
                }
                queue.next()
            } {
                in_flight.push(ticket);
                if item == 1_000 {
                    break;
                }
                ahead += 1;
            }
            prop_assert!(ahead <= 1, "{ahead} requests of others went first");
        }

        /// Every queued request leaves once, in the order of its client, and all counters end at
        /// zero.
        #[test]
        fn nothing_is_lost_or_taken_twice(
            steps in prop::collection::vec((0_u8..4, 2_u64..8, 1_u32..3_000), 1..300),
        ) {
            let mut queue: FairQueue<(u64, usize)> = FairQueue::default();
            let (mut in_flight, mut left) = (vec![], vec![]);
            let mut now = 0;
            let mut offered = 0;
            for (number, &(step, of, cost)) in steps.iter().enumerate() {
                now += u64::from(cost);
                match step {
                    0 | 1 => {
                        offered += 1;
                        match queue.take_at_once(client(of), cost) {
                            Some(ticket) => {
                                left.push((of, number));
                                in_flight.push(ticket);
                            }
                            None => queue.queue(client(of), (cost, now), (of, number)),
                        }
                    }
                    2 => while let Some((ticket, item)) = queue.next() {
                        left.push(item);
                        in_flight.push(ticket);
                    },
                    _ => {
                        in_flight.drain(..in_flight.len() / 2).for_each(|ticket| queue.answered(ticket, || now));
                        if cost % 7 == 0 {
                            queue.tick(now, u64::from(cost % 100));
                        }
                    }
                }
            }
            loop {
                in_flight.drain(..).for_each(|ticket| queue.answered(ticket, || now));
                let Some((ticket, item)) = queue.next() else { break };
                left.push(item);
                in_flight.push(ticket);
            }
            prop_assert_eq!(left.len(), offered);
            prop_assert_eq!((queue.waiting(), queue.in_flight), (0, 0));
            for of in 2..8 {
                let of_client = left.iter().filter(|(client, _)| *client == of);
                prop_assert!(of_client.clone().zip(of_client.skip(1)).all(|(one, next)| one.1 < next.1));
            }
        }
    }
}
