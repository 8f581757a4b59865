//! One Redis connection.
//!
//! Owns the iterations of a connection: take replies, send what can be sent, take commands as far
//! as limits allow, submit them to the store, read more. All available data is processed before
//! anything is waited for, so a burst costs one read, one hand-over a shard, one wake-up and one
//! write.
//!
//! Back-pressure: nothing is read from a client that does not read its replies, so its commands
//! accumulate in its own socket, not in this node's memory. The same holds while the node's memory
//! for clients is used up; a command that waits too long for it is answered with `TRYAGAIN`. The
//! number of iterations without yielding is bounded, so that one busy client does not delay others.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidelock_core::clients::operation_queues::OUT_BYTES_CLOSE;
use tidelock_core::command::Reply;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::command_latencies::CommandLatencies;
use super::dispatch::Dispatched;
use super::frame::Parser;
use super::session::{Action, ReplyFuture, Session};
use super::{READ_BYTES, RespContext};
use crate::clients::Client;
use crate::memory::{self, CONNECTION_BYTES, Reservation};
use crate::store::Mailbox;
use crate::tls::MaybeTlsStream;

/// Most unanswered commands of one connection. More would gain nothing; they wait in the socket
/// instead.
const OWED_MAX: usize = 16_384;

/// Most bytes of operations and replies, held or expected, before a connection takes no more
/// commands.
const HELD_BYTES_MAX: usize = 8 << 20;

/// Empty buffers are kept up to this size: ten thousand idle connections must not hold ten thousand
/// large ones.
const INPUT_BYTES_KEPT: usize = 4 << 10;
const OUT_BYTES_KEPT: usize = 4 << 10;

/// Most bytes of replies that a client leaves unread before it sends a valid token, while
/// authentication is required.
const UNREAD_BYTES_MAX: usize = 4 << 10;

/// Iterations after which a connection yields.
const TURNS_MAX: u32 = 8;

/// Why a connection ended.
#[derive(Debug)]
pub enum ConnectionEnd {
    /// The client quit or is gone, or the node stops.
    Orderly,
    /// The socket failed.
    Failed(io::Error),
    /// The client sent malformed input, and was told so.
    Protocol,
}

/// The outcome of an attempt to read from the socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadOutcome {
    /// Nothing was read: there is nothing, or no room for it.
    Nothing,
    /// Bytes or the end of the stream were read.
    Received,
    /// Nothing was read, because the connection must be granted so many bytes of memory in all. It
    /// owes no reply whose memory will become free.
    NeedsMemory(usize),
}

/// One connection of a Redis client, from its acceptance to its end.
pub struct RespConnection {
    stream: MaybeTlsStream,
    context: Rc<RespContext>,
    session: Session,
    mailbox: Rc<Mailbox>,
    delivered: Vec<(u64, Reply)>,
    parser: Parser,
    /// Bytes received and not parsed yet: less than a command, unless earlier commands must be
    /// answered first.
    input: Vec<u8>,
    /// Whether nothing can be done without more input.
    wants_input: bool,
    /// How many bytes of the session's output are sent.
    sent: usize,
    /// Whether the stream may hold bytes that are not on the socket.
    is_unflushed: bool,
    /// A reply that takes several requests to the store.
    pending: Option<ReplyFuture>,
    /// Nothing more is read or executed; owed replies are still sent.
    is_closing: bool,
    /// The client has closed its sending side.
    is_read_out: bool,
    is_protocol_error: bool,
    /// The part of the node's memory budget that this connection holds.
    memory: Reservation,
    /// The time limit of waiting for memory, if it cannot continue without.
    memory_timer: Option<Pin<Box<Sleep>>>,
    stalled_since: Rc<Cell<Option<Instant>>>,
    /// The counters shown to operators.
    client: Arc<Client>,
    latencies: CommandLatencies,
}

impl RespConnection {
    /// The connection of a new client. `stalled_since` is kept up to date with the time since which
    /// the client has taken none of the bytes owed to it.
    pub fn new(
        stream: MaybeTlsStream,
        session: Session,
        stalled_since: Rc<Cell<Option<Instant>>>,
        client: Arc<Client>,
    ) -> RespConnection {
        let memory = session.context.memory.connection();
        RespConnection {
            stream,
            context: session.context.clone(),
            session,
            mailbox: Rc::default(),
            delivered: Vec::new(),
            parser: Parser::default(),
            input: Vec::new(),
            wants_input: true,
            sent: 0,
            is_unflushed: false,
            pending: None,
            is_closing: false,
            is_read_out: false,
            is_protocol_error: false,
            memory,
            memory_timer: None,
            stalled_since,
            client,
            latencies: CommandLatencies::default(),
        }
    }

    /// Serves until the connection ends. The future may be dropped, and serving resumed with a new
    /// one.
    pub async fn serve(&mut self) -> ConnectionEnd {
        poll_fn(|task| self.poll(task)).await
    }

    /// Accepts no more commands; those accepted are still answered.
    pub fn begin_closing(&mut self) {
        self.is_closing = true;
    }

    /// The socket, after serving has ended.
    pub fn into_stream(self) -> MaybeTlsStream {
        if !self.session.is_settled() {
            // Replies may still arrive; their memory is released with the last one.
            self.mailbox.keep(self.memory);
        }
        self.stream
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<ConnectionEnd> {
        // A connection that owes no replies is usually woken by a new command. Without this read,
        // the first iteration would do nothing but read it.
        if self.session.is_settled()
            && self.input.is_empty()
            && let Err(error) = self.poll_read(task)
        {
            return Poll::Ready(ConnectionEnd::Failed(error));
        }
        for _ in 0..TURNS_MAX {
            match self.turn(task) {
                Ok(true) => {}
                Ok(false) if self.is_over() => {
                    return Poll::Ready(if self.is_protocol_error {
                        ConnectionEnd::Protocol
                    } else {
                        ConnectionEnd::Orderly
                    });
                }
                Ok(false) => return Poll::Pending,
                Err(error) => return Poll::Ready(ConnectionEnd::Failed(error)),
            }
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }

    /// One iteration: does everything that can be done now. Returns whether there may be more.
    fn turn(&mut self, task: &mut Context<'_>) -> io::Result<bool> {
        self.session.clock.begin_turn();
        let mut has_changed = self.take_replies(task) | self.poll_pending(task);
        self.encode_replies();
        if self.take_commands() {
            has_changed = true;
            // Some commands need no answer of the store.
            self.encode_replies();
        }
        if let Some(reason) = self.session.poll_subscriptions(task) {
            return Err(io::Error::other(reason));
        }
        self.record_latencies();
        has_changed |= self.take_pushes(task);
        let wanted_replies = self.submit();
        let bytes_sent = self.poll_write(task)?;
        let read = self.poll_read(task)?;
        let wanted_input = if let ReadOutcome::NeedsMemory(bytes) = read { Some(bytes) } else { None };
        let held = self.held_bytes();
        self.memory.set(held);
        self.client.held_bytes.set(held as u64);
        self.client.open_requests.set(self.session.owed() as u64);
        let has_memory = self.poll_wanted(task, wanted_replies.or(wanted_input));
        let may_do_more = (has_changed || bytes_sent > 0) && !self.has_done_all(bytes_sent);
        // The next iteration ends a connection whose subscription has broken.
        let is_broken = self.session.broken_subscription.is_some();
        Ok(read == ReadOutcome::Received || has_memory || may_do_more || is_broken)
    }

    /// Encodes the replies that are known, as far as there is room for them.
    fn encode_replies(&mut self) {
        self.session.settle(self.sent + OUT_BYTES_CLOSE);
    }

    /// Whether the iteration that ends has left nothing that another one could do at once.
    ///
    /// `bytes_sent` is what it sent at its end. If the output was longer, commands, replies and
    /// messages may have been left because it was full, and there is room for them now.
    fn has_done_all(&self, bytes_sent: usize) -> bool {
        // Output below the lowest limit of unread bytes holds nothing back.
        let was_output_short = bytes_sent < UNREAD_BYTES_MAX && self.session.encoded_bytes() == self.sent;
        was_output_short
            && self.input.is_empty()
            && (self.wants_input || self.is_closing)
            && self.pending.is_none()
            && !self.session.is_in_multi()
    }

    fn held_bytes(&self) -> usize {
        self.session.held_bytes() + self.input.len()
    }

    /// Records the latency of the commands whose replies are encoded.
    fn record_latencies(&mut self) {
        let unanswered = self.session.owed() + usize::from(self.pending.is_some());
        self.latencies.answered(unanswered as u64, &self.context.counters.durations);
    }

    /// Submits commands as far as there is memory for their replies. If there is too little for the
    /// reply that the client gets next, returns how many bytes must be held.
    fn submit(&mut self) -> Option<usize> {
        let (store, mailbox, memory) = (self.session.store.clone(), &self.mailbox, &mut self.memory);
        let (mut held, mut wanted) = (self.session.held_bytes() + self.input.len(), None);
        let reads = self.session.encoded_bytes() - self.sent < OUT_BYTES_CLOSE;
        self.session.submit(
            reads,
            |bytes, is_next| {
                let has_room = memory.try_grow_to(held + bytes);
                if has_room {
                    held += bytes;
                } else if is_next {
                    wanted = Some(held + bytes);
                }
                has_room
            },
            |request, queue| store.submit_to(request, mailbox, queue),
        );
        wanted
    }

    /// Waits for memory if `wanted` says how many bytes are needed in all. Returns whether to
    /// continue, because there is memory or because the waiting command was refused.
    fn poll_wanted(&mut self, task: &mut Context<'_>, wanted: Option<usize>) -> bool {
        let Some(bytes) = wanted else {
            self.memory.leave_queue();
            self.memory_timer = None;
            return false;
        };
        if self.memory.poll_grow_to(bytes, task).is_ready() {
            return true;
        }
        let timer = self.memory_timer.get_or_insert_with(|| Box::pin(sleep(memory::WAIT)));
        if timer.as_mut().poll(task).is_pending() {
            return false;
        }
        self.memory_timer = None;
        self.memory.leave_queue();
        self.context.memory.note_refused();
        if !self.session.refuse_next() {
            self.session.fail("TRYAGAIN the memory for clients is used up; nothing was done");
            (self.is_closing, self.is_protocol_error) = (true, true);
        }
        true
    }

    fn is_over(&self) -> bool {
        (self.is_closing || self.is_read_out)
            && self.pending.is_none()
            && self.session.is_settled()
            && self.session.encoded_bytes() == self.sent
            && !self.is_unflushed
    }

    fn take_replies(&mut self, task: &Context<'_>) -> bool {
        self.mailbox.take(&mut self.delivered, task);
        let any = !self.delivered.is_empty();
        for (queue, reply) in self.delivered.drain(..) {
            self.session.complete(queue, reply);
        }
        any
    }

    fn poll_pending(&mut self, task: &mut Context<'_>) -> bool {
        let Some(pending) = &mut self.pending else { return false };
        let Poll::Ready(encoded) = pending.as_mut().poll(task) else { return false };
        self.pending = None;
        self.session.owe_encoded(encoded);
        true
    }

    /// Owes messages that answer no command, as many as there is room for. They wait while a reply
    /// does that takes several requests, because they must not overtake it. Returns whether there
    /// were any.
    fn take_pushes(&mut self, task: &Context<'_>) -> bool {
        let mut any = false;
        while !self.is_closing && self.pending.is_none() && self.has_room() && self.session.poll_pushes(task)
        {
            any = true;
        }
        any
    }

    /// Executes commands from the input, as many as there is room for. Returns whether there were
    /// any.
    fn take_commands(&mut self) -> bool {
        let (mut consumed, mut commands) = (0, 0);
        if !self.session.keeps_order() {
            return false;
        }
        while !self.is_closing && self.pending.is_none() && self.has_room() {
            let input = &self.input[consumed..];
            self.parser.limit(self.session.authentication.is_awaited());
            let length = match self.parser.parse(input) {
                Ok(Some(length)) => length,
                Ok(None) => {
                    self.wants_input = true;
                    break;
                }
                Err(error) => {
                    self.session.fail(&format!("ERR Protocol error: {error}"));
                    (self.is_closing, self.is_protocol_error) = (true, true);
                    break;
                }
            };
            let arguments = self.parser.arguments(input);
            let Dispatched::Action(action) = self.context.table.dispatch(&mut self.session, arguments) else {
                break;
            };
            self.parser.advance();
            consumed += length;
            commands += 1;
            match action {
                Action::Done => {}
                Action::Wait(pending) => self.pending = Some(pending),
                Action::Close => self.is_closing = true,
            }
        }
        self.client.operations.add(commands);
        self.latencies.parsed(commands);
        if self.is_closing {
            consumed = self.input.len();
        }
        if consumed == self.input.len() && self.input.capacity() > INPUT_BYTES_KEPT {
            self.input = Vec::new();
        } else {
            self.input.drain(..consumed);
        }
        consumed > 0
    }

    /// Whether another command may be executed.
    fn has_room(&self) -> bool {
        let unread_max =
            if self.session.authentication.is_awaited() { UNREAD_BYTES_MAX } else { OUT_BYTES_CLOSE };
        self.session.encoded_bytes() - self.sent < unread_max
            && self.session.owed() < OWED_MAX
            && self.session.expected_held_bytes() - self.sent < HELD_BYTES_MAX
    }

    /// Sends what the socket takes, and returns how many bytes that were.
    fn poll_write(&mut self, task: &mut Context<'_>) -> io::Result<usize> {
        let out = self.session.out();
        let before = self.sent;
        while self.sent < out.len() {
            match Pin::new(&mut self.stream).poll_write(task, &out[self.sent..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(bytes)) => self.sent += bytes,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        let bytes = self.sent - before;
        self.client.bytes_sent.add(bytes as u64);
        // TLS may hold back encrypted bytes that the socket did not take.
        self.is_unflushed |= bytes > 0;
        if self.is_unflushed && Pin::new(&mut self.stream).poll_flush(task)?.is_ready() {
            self.is_unflushed = false;
        }
        if self.sent == out.len() {
            self.sent = 0;
            out.clear();
            out.shrink_to(OUT_BYTES_KEPT);
            self.stalled_since.set(None);
        } else if bytes > 0 || self.stalled_since.get().is_none() {
            self.stalled_since.set(Some(Instant::now()));
        }
        Ok(bytes)
    }

    /// Reads what there is memory for.
    fn poll_read(&mut self, task: &mut Context<'_>) -> io::Result<ReadOutcome> {
        let waits = self.is_closing || self.is_read_out || self.pending.is_some() || !self.wants_input;
        if waits || !self.has_room() {
            return Ok(ReadOutcome::Nothing);
        }
        let held = self.held_bytes();
        let bytes_max = match self.memory.could_grow_to(held + READ_BYTES) {
            true => READ_BYTES,
            false => CONNECTION_BYTES.saturating_sub(held).min(READ_BYTES),
        };
        if bytes_max == 0 {
            let is_alone = self.session.is_settled() && self.session.encoded_bytes() == self.sent;
            let wanted = held + READ_BYTES;
            return Ok(if is_alone { ReadOutcome::NeedsMemory(wanted) } else { ReadOutcome::Nothing });
        }
        let mut buffer = self.context.read_buffer.borrow_mut();
        let mut read = ReadBuf::new(&mut buffer[..bytes_max]);
        // `try_read` would need one more call after each burst to learn that there is nothing.
        // `poll_read` knows that a read that did not fill the buffer was the last.
        if Pin::new(&mut self.stream).poll_read(task, &mut read)?.is_pending() {
            return Ok(ReadOutcome::Nothing);
        }
        let bytes = read.filled();
        if bytes.is_empty() {
            self.is_read_out = true;
            return Ok(ReadOutcome::Received);
        }
        self.client.bytes_received.add(bytes.len() as u64);
        self.input.extend_from_slice(bytes);
        self.wants_input = false;
        Ok(ReadOutcome::Received)
    }
}
