//! One connection: bytes in, bytes out, and nobody else waits for it.
//!
//! Owns the turn of a connection: take replies, send what can be sent, take commands as far as limits allow, hand them to the store, read
//! on. Everything that is there is worked off before anything is waited for, so a burst costs one read, one hand-over a shard, one
//! wake-up and one write.
//!
//! Back-pressure: a client that does not read its replies is not read from. Then its commands pile
//! up in its own socket, not in our memory. The same while the node's memory for clients is used
//! up; a command that then waits for too long is answered with `TRYAGAIN`. A turn is bounded, so
//! that one client with much to do does not keep others waiting.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidelock_core::command::Reply;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::dispatch::Dispatched;
use super::frame::Parser;
use super::lanes::OUT_BYTES_CLOSE;
use super::session::{Action, Pending, Session};
use super::{READ_BYTES, RespContext};
use crate::clients::Client;
use crate::memory::{self, CONNECTION_BYTES, Reservation};
use crate::store::Mailbox;

/// Commands of one connection that are not answered yet. More would gain nothing: they wait in the socket instead.
const OWED_MAX: usize = 16_384;

/// What one connection may hold in operations and replies, there or expected, before it takes no
/// more commands.
const HELD_BYTES_MAX: usize = 8 << 20;

/// Buffers that are empty are kept up to this size; ten thousand idle connections must not hold ten thousand large ones.
const INPUT_BYTES_KEPT: usize = 4 << 10;
const OUT_BYTES_KEPT: usize = 4 << 10;

/// Turns after which a connection lets others have theirs.
const TURNS_MAX: u32 = 8;

/// Why a connection ends.
#[derive(Debug)]
pub enum End {
    /// The client asked for it, or is gone, or the node stops.
    Orderly,
    /// The socket failed.
    Failed(io::Error),
    /// What the client sent is no command; it was told.
    Protocol,
}

/// A connection.
pub struct Connection {
    stream: TcpStream,
    context: Rc<RespContext>,
    session: Session,
    mailbox: Rc<Mailbox>,
    delivered: Vec<(u64, Reply)>,
    parser: Parser,
    /// What was received and not taken yet: less than a command, unless earlier ones have to be answered first.
    input: Vec<u8>,
    /// Whether nothing can be done with the input as it is.
    wants_input: bool,
    /// How much of the session's output is sent.
    sent: usize,
    /// A reply that takes longer.
    pending: Option<Pending>,
    /// Nothing more is read or taken; what is owed is still answered.
    is_closing: bool,
    /// The client sends no more.
    is_read_out: bool,
    is_protocol_error: bool,
    /// What this connection holds of the node's memory for clients.
    memory: Reservation,
    /// Until when it waits for memory, if there is none for what it needs to go on.
    memory_timer: Option<Pin<Box<Sleep>>>,
    stalled_since: Rc<Cell<Option<Instant>>>,
    /// What operators see of it.
    client: Arc<Client>,
}

impl Connection {
    /// A connection of a new client. Since when the client has taken nothing, if it is owed something, is kept in
    /// `stalled_since`.
    pub fn new(
        stream: TcpStream,
        session: Session,
        stalled_since: Rc<Cell<Option<Instant>>>,
        client: Arc<Client>,
    ) -> Connection {
        let memory = session.context.memory.connection();
        Connection {
            stream,
            context: session.context.clone(),
            session,
            mailbox: Rc::default(),
            delivered: Vec::new(),
            parser: Parser::default(),
            input: Vec::new(),
            wants_input: true,
            sent: 0,
            pending: None,
            is_closing: false,
            is_read_out: false,
            is_protocol_error: false,
            memory,
            memory_timer: None,
            stalled_since,
            client,
        }
    }

    /// Serves until the end. The future may be dropped, and serving begun again.
    pub async fn serve(&mut self) -> End {
        poll_fn(|task| self.poll(task)).await
    }

    /// Takes no more commands; those that were taken are still answered.
    pub fn begin_closing(&mut self) {
        self.is_closing = true;
    }

    /// The socket, once serving has ended.
    pub fn into_stream(self) -> TcpStream {
        if !self.session.is_settled() {
            // Replies may still be made; their memory is given back when the last one has come.
            self.mailbox.keep(self.memory);
        }
        self.stream
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<End> {
        for _ in 0..TURNS_MAX {
            match self.turn(task) {
                Ok(true) => {}
                Ok(false) if self.is_over() => {
                    return Poll::Ready(if self.is_protocol_error { End::Protocol } else { End::Orderly });
                }
                Ok(false) => return Poll::Pending,
                Err(error) => return Poll::Ready(End::Failed(error)),
            }
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }

    /// Does whatever can be done now. Returns whether there may be more.
    fn turn(&mut self, task: &mut Context<'_>) -> io::Result<bool> {
        let mut goes_on = self.take_replies(task) | self.poll_pending(task);
        self.session.settle(self.sent + OUT_BYTES_CLOSE);
        goes_on |= self.take_commands();
        let wanted_replies = self.submit();
        goes_on |= self.poll_write(task)?;
        let wanted_input = self.poll_read(task, &mut goes_on)?;
        let held = self.held_bytes();
        self.memory.set(held);
        self.client.held_bytes.set(held as u64);
        self.client.open_requests.set(self.session.owed() as u64);
        goes_on |= self.poll_wanted(task, wanted_replies.or(wanted_input));
        Ok(goes_on)
    }

    fn held_bytes(&self) -> usize {
        self.session.held_bytes() + self.input.len()
    }

    /// Hands commands to the store as far as there is memory for their replies. Returns how much
    /// must be held for the reply that the client gets next, if that is too much now.
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
            |request, lane| store.submit_to(request, mailbox, lane),
        );
        wanted
    }

    /// Waits for memory, if the connection needs more than it can have now: `wanted` bytes in all.
    /// Returns whether it goes on, because there is memory or because what waited for it was
    /// refused.
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
    }

    fn take_replies(&mut self, task: &Context<'_>) -> bool {
        self.mailbox.take(&mut self.delivered, task);
        let any = !self.delivered.is_empty();
        for (lane, reply) in self.delivered.drain(..) {
            self.session.complete(lane, reply);
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

    /// Takes commands from the input, as many as there is room for. Returns whether it took any.
    fn take_commands(&mut self) -> bool {
        let (mut consumed, mut commands) = (0, 0);
        if !self.session.keeps_order() {
            return false;
        }
        while !self.is_closing && self.pending.is_none() && self.has_room() {
            let input = &self.input[consumed..];
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

    /// Whether another command may be taken.
    fn has_room(&self) -> bool {
        self.session.encoded_bytes() - self.sent < OUT_BYTES_CLOSE
            && self.session.owed() < OWED_MAX
            && self.session.expected_held_bytes() - self.sent < HELD_BYTES_MAX
    }

    fn poll_write(&mut self, task: &mut Context<'_>) -> io::Result<bool> {
        let out = self.session.out();
        let before = self.sent;
        while self.sent < out.len() {
            if self.stream.poll_write_ready(task)?.is_pending() {
                break;
            }
            match self.stream.try_write(&out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let moved = self.sent > before;
        self.client.bytes_sent.add((self.sent - before) as u64);
        if self.sent == out.len() {
            self.sent = 0;
            out.clear();
            out.shrink_to(OUT_BYTES_KEPT);
            self.stalled_since.set(None);
        } else if moved || self.stalled_since.get().is_none() {
            self.stalled_since.set(Some(Instant::now()));
        }
        Ok(moved)
    }

    /// Reads what there is memory for. Returns how much must be held for that, if it is too much
    /// now and nothing that the connection has would make room.
    fn poll_read(&mut self, task: &mut Context<'_>, goes_on: &mut bool) -> io::Result<Option<usize>> {
        let waits = self.is_closing || self.is_read_out || self.pending.is_some() || !self.wants_input;
        if waits || !self.has_room() {
            return Ok(None);
        }
        let held = self.held_bytes();
        let bytes_max = match self.memory.could_grow_to(held + READ_BYTES) {
            true => READ_BYTES,
            false => CONNECTION_BYTES.saturating_sub(held).min(READ_BYTES),
        };
        if bytes_max == 0 {
            let is_alone = self.session.is_settled() && self.session.encoded_bytes() == self.sent;
            return Ok(is_alone.then_some(held + READ_BYTES));
        }
        let mut buffer = self.context.read_buffer.borrow_mut();
        let mut read = ReadBuf::new(&mut buffer[..bytes_max]);
        // `try_read` would be asked once more after each burst, only to hear that there is nothing; this one knows
        // that a read which did not fill the buffer was the last.
        if Pin::new(&mut self.stream).poll_read(task, &mut read)?.is_pending() {
            return Ok(None);
        }
        *goes_on = true;
        let bytes = read.filled();
        if bytes.is_empty() {
            self.is_read_out = true;
            return Ok(None);
        }
        self.client.bytes_received.add(bytes.len() as u64);
        self.input.extend_from_slice(bytes);
        self.wants_input = false;
        Ok(None)
    }
}
