//! Takes a connection over from hyper in order to stream events.
//!
//! An answer that never ends would hold everything that hyper keeps for a connection: two buffers
//! of 8 KiB and the state of a request. So hyper writes the head of such an answer, and then the
//! connection is taken from it. A separate task writes the events and holds only them and the
//! socket. [`Handover`] determines the moment.
//!
//! Invariants: nothing is written here before the whole head is on the socket. The body is chunked,
//! as the head says. The connection is not used again afterwards, as the head says too.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Buf, Bytes};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::{Method, Version};
use tokio::io::AsyncWriteExt;

use super::connections::{ConnectionEntry, HttpConnection, WatchedStream};
use super::events::Events;
use super::response::{AnswerBody, Response};
use crate::accept::CloseMode;
use crate::tls::MaybeTlsStream;

/// The end of a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Whether and when a connection is taken over from hyper.
#[derive(Default)]
pub(super) struct Handover {
    events: RefCell<Option<Events>>,
    stage: Cell<Stage>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    NotAsked,
    /// hyper has asked for the body: the head is in its buffer, or already on the socket.
    Awaited,
    /// Since then hyper has flushed the socket, which it does when its buffer is empty.
    Flushed,
}

impl Handover {
    /// Records that hyper asked for a body, which it does not get.
    pub fn note_awaited(&self) {
        if self.stage.get() == Stage::NotAsked {
            self.stage.set(Stage::Awaited);
        }
    }

    /// Records that hyper's buffer is empty.
    pub fn note_flushed(&self) {
        if self.stage.get() == Stage::Awaited {
            self.stage.set(Stage::Flushed);
        }
    }

    /// Returns the events, once the head of their answer is on the socket.
    pub fn take(&self) -> Option<Events> {
        if self.stage.get() == Stage::Flushed { self.events.borrow_mut().take() } else { None }
    }
}

/// Keeps the events of an answer for the take-over. If the client's HTTP version has no chunks, or
/// it asked for the head only, hyper handles them.
pub(super) fn put_aside(
    response: Response,
    method: &Method,
    version: Version,
    to: &Rc<HttpConnection>,
) -> Response {
    if *method != Method::GET || version != Version::HTTP_11 {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = match body {
        AnswerBody::Events(events) => {
            head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
            *to.handover().events.borrow_mut() = Some(events);
            AnswerBody::Hijacked(to.clone())
        }
        body => body,
    };
    Response::from_parts(head, body)
}

/// What remains of a connection that streams events.
pub(super) struct HijackedConnection {
    pub stream: MaybeTlsStream,
    pub place: ConnectionEntry,
    pub events: Events,
}

impl HijackedConnection {
    /// Writes events until there are no more, the client is gone, or the connection is cut.
    /// Thousands of connections wait here, so it holds references only.
    pub async fn hijack(&mut self) -> io::Result<()> {
        let HijackedConnection { stream, place, events } = self;
        let connection = &*place.connection;
        let mut stream = WatchedStream { stream, connection };
        let mut writing = pin!(async {
            while let Some(bytes) = poll_fn(|task| events.poll_next(task)).await {
                stream.write_all_buf(&mut chunk(bytes)).await?;
            }
            stream.write_all(LAST_CHUNK).await?;
            stream.shutdown().await
        });
        poll_fn(|task| match connection.poll_order(task) {
            CloseMode::Cut => Poll::Ready(Ok(())),
            // The source of events ends when the node stops.
            CloseMode::Serve | CloseMode::Finish => writing.as_mut().poll(task),
        })
        .await
    }
}

/// `bytes` as a chunk, without copying them.
fn chunk(bytes: Bytes) -> impl Buf {
    let length = Bytes::from(format!("{:x}\r\n", bytes.len()));
    length.chain(bytes).chain(&b"\r\n"[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_states_its_length() {
        let mut chunk = chunk(Bytes::from_static(b"event: gap\ndata: 1\n\n"));
        assert_eq!(chunk.copy_to_bytes(chunk.remaining()), "14\r\nevent: gap\ndata: 1\n\n\r\n");
    }

    #[test]
    fn a_flush_counts_only_behind_the_head() {
        let handover = Handover::default();
        handover.note_flushed();
        handover.note_awaited();
        assert_eq!(handover.stage.get(), Stage::Awaited);
        handover.note_awaited();
        handover.note_flushed();
        handover.note_awaited();
        assert_eq!(handover.stage.get(), Stage::Flushed);
    }
}
