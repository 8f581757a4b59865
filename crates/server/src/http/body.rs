//! Request bodies: read up to a limit, or discarded in a way that lets the client read the answer.
//!
//! Owns the body of one request from its head to its end. Nothing is read unless asked for: a
//! request without a body costs nothing here, and a client that waits for `100 Continue` is not
//! asked to send what would be refused.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::header::EXPECT;
use tokio::time::timeout;

use super::problem::{Problem, ProblemKind};
use super::server::BUFFER_BYTES_MAX;
use crate::memory::Reservation;

/// How many bytes of a refused body are read and discarded. A client that sends before it reads
/// gets its answer if its body fits into this and the socket's buffers; with a longer body, its
/// connection is cut.
const DISCARD_BYTES_MAX: usize = 64 << 20;

pub(super) struct RequestBody {
    incoming: Incoming,
    read_timeout: Duration,
    /// Whether the end was seen. A chunked body does not report that it ended, so it is stored
    /// here.
    ended: bool,
    /// Whether the client waits for `100 Continue` before it sends.
    awaits_invitation: bool,
    received_bytes: u64,
}

/// The limit of a body, by what the body is.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyLimit {
    /// The body is the value, of at most this many bytes.
    Value(usize),
    /// The body is a form that contains one.
    Form(usize),
}

impl BodyLimit {
    fn bytes(self) -> usize {
        match self {
            BodyLimit::Value(bytes) | BodyLimit::Form(bytes) => bytes,
        }
    }

    fn exceeded(self) -> Problem {
        match self {
            BodyLimit::Value(bytes) => Problem::over_limit(ProblemKind::ValueTooLarge, "the value", bytes),
            BodyLimit::Form(bytes) => Problem::over_limit(ProblemKind::BodyTooLarge, "the body", bytes),
        }
    }
}

impl RequestBody {
    pub fn new(incoming: Incoming, headers: &HeaderMap, read_timeout: Duration) -> RequestBody {
        let ended = incoming.is_end_stream();
        RequestBody {
            incoming,
            read_timeout,
            ended,
            awaits_invitation: !ended && headers.contains_key(EXPECT),
            received_bytes: 0,
        }
    }

    /// The length that the head states, in bytes; 0 if it states none.
    pub fn stated_bytes(&self) -> u64 {
        self.incoming.size_hint().exact().unwrap_or(0)
    }

    /// How many bytes were received.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Reads the whole body. A stated length over the limit is refused before anything is read.
    ///
    /// Received bytes are counted in `memory`. While there is none, nothing is read from the
    /// client; after a while the request is refused.
    pub async fn read(&mut self, limit: BodyLimit, memory: &mut Reservation) -> Result<Bytes, Problem> {
        if self.ended {
            return Ok(Bytes::new());
        }
        if self.incoming.size_hint().lower() > limit.bytes() as u64 {
            return Err(limit.exceeded());
        }
        self.awaits_invitation = false;
        match timeout(self.read_timeout, self.collect(limit, memory)).await {
            Ok(result) => result,
            Err(_) => {
                // The rest is not read, so the connection ends after the answer.
                self.ended = true;
                let detail = format!("the body did not arrive within {} s", self.read_timeout.as_secs_f64());
                Err(Problem::new(ProblemKind::RequestTimeout, detail))
            }
        }
    }

    async fn collect(&mut self, limit: BodyLimit, memory: &mut Reservation) -> Result<Bytes, Problem> {
        let held = memory.bytes();
        let first = self.next_data().await?.unwrap_or_default();
        memory.grow_to(held + first.len()).await?;
        if first.len() > limit.bytes() {
            return Err(limit.exceeded());
        }
        if self.ended {
            return Ok(first);
        }
        let Some(second) = self.next_data().await? else { return Ok(first) };
        // The stated length is within the limit here, so it is safe to reserve it at once.
        let stated = self.incoming.size_hint().exact().unwrap_or_default() as usize;
        let mut whole = BytesMut::with_capacity(first.len() + second.len() + stated);
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(data) = next {
            if whole.len() + data.len() > limit.bytes() {
                return Err(limit.exceeded());
            }
            memory.grow_to(held + whole.len() + data.len() + BUFFER_BYTES_MAX).await?;
            whole.extend_from_slice(&data);
            drop(data);
            next = self.next_data().await?;
        }
        memory.set(held + whole.len());
        Ok(whole.freeze())
    }

    /// The next bytes, or `None` at the end. Trailers are ignored.
    async fn next_data(&mut self) -> Result<Option<Bytes>, Problem> {
        while !self.ended {
            let Some(frame) = self.incoming.frame().await else {
                self.ended = true;
                break;
            };
            let Ok(frame) = frame else {
                self.ended = true;
                return Err(Problem::invalid("the body is cut short or malformed"));
            };
            self.ended = self.incoming.is_end_stream();
            if let Ok(data) = frame.into_data() {
                self.received_bytes += data.len() as u64;
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Releases the body when the answer is ready. If the client is still sending, its bytes are
    /// discarded while it is answered: closing with unread bytes would reset the connection, and
    /// the reset can overtake the answer (RFC 9112, section 9.6).
    pub fn finish(mut self) {
        if self.ended || self.awaits_invitation {
            return;
        }
        tokio::task::spawn_local(async move {
            let read_timeout = self.read_timeout;
            let discarding = async {
                let mut discarded = 0;
                while let Ok(Some(data)) = self.next_data().await {
                    discarded += data.len();
                    if discarded > DISCARD_BYTES_MAX {
                        break;
                    }
                }
            };
            // In any case the body is dropped now, which makes hyper end the connection unless the
            // body was complete.
            let _ = timeout(read_timeout, discarding).await;
        });
    }
}
