//! One connection: sends requests that are due, receives answers, and reconnects after a break.
//!
//! `protocol` knows the meaning of bytes, and a [`Work`] knows which answers are right. Sending and
//! receiving are concurrent, so that a server that stops reading until its answers are read causes
//! no deadlock.
//!
//! Invariant: every request that was taken from the budget ends in the record exactly once: as a
//! success, as a wrong answer or as a failure.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Sleep;

use crate::pace::{Alarm, PassState, Schedule};
use crate::protocol::{Answer, Decoded, Protocol, Ticket, Work};
use crate::record::Record;
use crate::transport::{Stream, Transport};

/// Size of a read, in bytes: hundreds of small answers.
const READ_BYTES: usize = 64 << 10;

/// Most bytes that wait to be sent. Otherwise a deep pipeline of large values would all be in
/// memory.
const OUT_BYTES_MAX: usize = 4 << 20;

/// Interval between attempts to reconnect: short compared with an election, long compared with a
/// refusal.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Length of a refusal's text that is kept to distinguish refusals.
const REASON_BYTES: usize = 160;

pub(crate) struct Connection<P, W> {
    /// The address to connect to, `host:port`.
    pub address: String,
    pub transport: Transport,
    pub protocol: P,
    pub work: W,
    /// The budget that all connections spend.
    pub shared: Arc<PassState>,
    /// Most requests in flight.
    pub depth: usize,
    /// When requests are due, in an open loop.
    pub schedule: Option<Schedule>,
    /// After how long a request counts as failed.
    pub timeout: Duration,
    /// The measurements of all connections of this thread.
    pub record: Rc<RefCell<Record>>,
}

/// The state of one TCP connection.
#[derive(Default)]
struct ConnectionState {
    in_flight: VecDeque<Ticket>,
    out: Vec<u8>,
    sent: usize,
    /// TLS may still hold bytes that were written.
    must_flush: bool,
    input: BytesMut,
    greeted: bool,
    /// The server accepts no further requests.
    closing: bool,
}

enum End {
    /// All requests were sent and answered.
    Done,
    /// It failed; this says why.
    Broken(String),
}

impl<P: Protocol, W: Work> Connection<P, W> {
    /// Uses `stream`, and later connections, until the budget is spent.
    pub async fn run(mut self, stream: Stream) {
        let mut stream = Some(stream);
        let mut lost_since = None;
        loop {
            let connected = match stream.take() {
                Some(stream) => Ok(stream),
                None => self.transport.connect(&self.address, self.timeout).await,
            };
            match connected {
                Ok(stream) => {
                    lost_since = None;
                    match self.drive(stream).await {
                        End::Done => break,
                        End::Broken(_) if self.is_over() => break,
                        End::Broken(_) => self.work.reconnected(),
                    }
                }
                Err(reason) => {
                    self.record.borrow_mut().failed(&reason, 1);
                    let since = *lost_since.get_or_insert_with(Instant::now);
                    if self.is_over() || since.elapsed() > self.timeout {
                        break;
                    }
                }
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
        if let (Some(schedule), Some(end)) = (self.schedule, self.shared.budget.end()) {
            self.record.borrow_mut().unsent += schedule.missed(end.min(Instant::now()));
        }
    }

    fn is_over(&self) -> bool {
        self.shared.budget.is_over(Instant::now())
    }

    async fn drive(&mut self, stream: Stream) -> End {
        let mut line = ConnectionState::default();
        self.protocol.greet(&mut line.out);
        let exchanged = match stream {
            Stream::Plain(mut stream) => {
                let (reader, writer) = stream.split();
                self.exchange(reader, writer, &mut line).await
            }
            Stream::Tls(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                self.exchange(reader, writer, &mut line).await
            }
        };
        let end = match exchanged {
            Ok(()) => End::Done,
            Err(reason) => End::Broken(reason),
        };
        let reason = match &end {
            End::Done => "",
            End::Broken(reason) => reason,
        };
        self.record.borrow_mut().failed(reason, line.in_flight.len() as u64);
        line.in_flight.iter().for_each(|ticket| self.work.failed(ticket));
        self.work.end(None);
        end
    }

    async fn exchange(
        &mut self,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
        line: &mut ConnectionState,
    ) -> Result<(), String> {
        let mut alarm = Alarm::new().map_err(|error| format!("timer: {error}"))?;
        let mut watchdog: Pin<Box<Sleep>> = Box::pin(tokio::time::sleep(self.timeout));
        loop {
            let now = Instant::now();
            self.fill(line, now);
            let next_due = self.next_due(line, now);
            if line.in_flight.is_empty() && line.sent == line.out.len() {
                if line.closing {
                    return Err("the server closed the connection".to_owned());
                }
                let Some(due) = next_due else { return Ok(()) };
                alarm.set(due, now).map_err(|error| format!("timer: {error}"))?;
            } else if let Some(due) = next_due {
                alarm.set(due, now).map_err(|error| format!("timer: {error}"))?;
            }
            line.input.reserve(READ_BYTES);
            tokio::select! {
                biased;
                sent = send(&mut writer, &line.out[line.sent..]), if line.must_send() => {
                    line.wrote(sent.map_err(|error| format!("write: {error}"))?);
                }
                read = reader.read_buf(&mut line.input), if !line.in_flight.is_empty() => {
                    match read.map_err(|error| format!("read: {error}"))? {
                        0 => return Err("the server closed the connection".to_owned()),
                        _ => self.take_answers(line)?,
                    }
                }
                rang = alarm.wait(), if next_due.is_some() => {
                    rang.map_err(|error| format!("timer: {error}"))?;
                }
                () = watchdog.as_mut() => {
                    let oldest = line.in_flight.front().map_or_else(Instant::now, |ticket| ticket.due);
                    if oldest.elapsed() >= self.timeout {
                        return Err(format!("no answer within {} ms", self.timeout.as_millis()));
                    }
                    watchdog.as_mut().reset((oldest + self.timeout).into());
                }
            }
        }
    }

    /// Appends what may be sent now.
    fn fill(&mut self, line: &mut ConnectionState, now: Instant) {
        // Half a window at a time: otherwise a deep pipeline that is answered in small pieces would
        // be sent in small pieces too, with a system call for each on both sides.
        let waits = self.schedule.is_none() && line.in_flight.len() > self.depth / 2;
        if waits || line.closing {
            return;
        }
        let mut begun = false;
        while line.in_flight.len() < self.depth && line.out.len() - line.sent < OUT_BYTES_MAX {
            let due = match &mut self.schedule {
                Some(schedule) if schedule.due() > now => return,
                Some(schedule) => schedule.due(),
                None => now,
            };
            if !self.shared.budget.take(now) {
                return;
            }
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
            if !begun {
                self.work.begin(line.in_flight.is_empty());
                begun = true;
            }
            let ticket = self.work.next(due);
            self.protocol.encode(&ticket.operation, &mut line.out);
            line.in_flight.push_back(ticket);
        }
    }

    /// When the next request is due that cannot be sent yet.
    fn next_due(&self, line: &ConnectionState, now: Instant) -> Option<Instant> {
        let schedule = self.schedule.as_ref()?;
        if line.in_flight.len() >= self.depth || line.closing || self.shared.budget.is_over(now) {
            return None;
        }
        let due = schedule.due();
        match self.shared.budget.end() {
            Some(end) if due >= end => None,
            _ => Some(due),
        }
    }

    /// Removes every complete answer from the input.
    fn take_answers(&mut self, line: &mut ConnectionState) -> Result<(), String> {
        let now = Instant::now();
        let mut at = 0;
        if !line.greeted {
            match self.protocol.skip_greeting(&line.input)? {
                None => return Ok(()),
                Some(bytes) => at = bytes,
            }
            line.greeted = true;
        }
        let mut record = self.record.borrow_mut();
        let mut completed = 0;
        while let Some(ticket) = line.in_flight.front() {
            let Some(decoded) = self.protocol.decode(&line.input[at..], ticket.operation.kind)? else {
                break;
            };
            at += decoded.bytes;
            line.closing |= decoded.closes;
            settle(&mut self.work, &mut record, ticket, decoded, now);
            line.in_flight.pop_front();
            completed += 1;
            if line.closing {
                break;
            }
        }
        line.input.advance(at);
        if line.in_flight.is_empty() && !line.input.is_empty() {
            return Err("an answer to nothing that was asked".to_owned());
        }
        self.work.end(line.in_flight.front());
        self.shared.answered(completed);
        if line.closing && !line.in_flight.is_empty() {
            return Err("the server closed the connection".to_owned());
        }
        Ok(())
    }
}

impl ConnectionState {
    fn must_send(&self) -> bool {
        self.sent < self.out.len() || self.must_flush
    }

    /// Records that so many bytes were written, or, if none, that they were flushed.
    fn wrote(&mut self, bytes: usize) {
        self.must_flush = bytes > 0;
        self.sent += bytes;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }
}

/// Writes some of the bytes, or flushes if there are none.
async fn send(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(bytes).await }
}

/// Checks one answer and records the result.
fn settle(work: &mut impl Work, record: &mut Record, ticket: &Ticket, decoded: Decoded<'_>, now: Instant) {
    record.last = Some(now);
    if let Answer::Refused(text) = decoded.answer {
        let text = String::from_utf8_lossy(&text[..text.len().min(REASON_BYTES)]);
        record.failed(&format!("{}: {text}", decoded.status), 1);
        record.answered(decoded.status);
        work.failed(ticket);
        return;
    }
    record.answered(decoded.status);
    match work.judge(ticket, &decoded.answer) {
        Ok(()) => record.succeeded(
            ticket.operation.kind,
            now.saturating_duration_since(ticket.due),
            decoded.content_bytes,
        ),
        Err(what) => record.wrong(what),
    }
}
