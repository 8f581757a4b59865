//! A connection that carries events and nothing else any more.
//!
//! An answer that never ends would hold everything that hyper keeps for a connection: two buffers of 8 KiB and the room of
//! a request. So hyper writes the head of such an answer, and then the connection is taken from it: events are written by
//! a task of their own, which holds the socket, the events and nothing else. [`Handover`] is how the two sides agree on the
//! moment.
//!
//! Invariants: no byte is written here before the whole head is on the socket; what is written is chunked, as the head
//! says; the connection is not used again afterwards, which the head says, too.

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
use tokio::net::TcpStream;

use super::config::Events;
use super::connections::{Connection, Order, Place, WatchedStream};
use super::response::{AnswerBody, Response};

/// What a chunked body ends with.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Whether and when a connection is taken over.
#[derive(Default)]
pub(super) struct Handover {
    events: RefCell<Option<Events>>,
    stage: Cell<Stage>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Unasked,
    /// hyper asked for the body: the head is in its buffer, or further.
    Awaited,
    /// Since then hyper flushed the socket, which it does when its buffer is empty.
    Flushed,
}

impl Handover {
    /// hyper asks for a body that it does not get.
    pub fn note_awaited(&self) {
        if self.stage.get() == Stage::Unasked {
            self.stage.set(Stage::Awaited);
        }
    }

    /// hyper has nothing in its buffer that is not written.
    pub fn note_flushed(&self) {
        if self.stage.get() == Stage::Awaited {
            self.stage.set(Stage::Flushed);
        }
    }

    /// The events, once the head of their answer is out.
    pub fn take(&self) -> Option<Events> {
        if self.stage.get() == Stage::Flushed { self.events.borrow_mut().take() } else { None }
    }
}

/// Puts the events of an answer aside for this connection, unless the client's HTTP has no chunks or it asked for the head
/// alone: then hyper deals with them.
pub(super) fn put_aside(
    response: Response,
    method: &Method,
    version: Version,
    to: &Rc<Connection>,
) -> Response {
    if *method != Method::GET || version != Version::HTTP_11 {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = match body {
        AnswerBody::Events(events) => {
            head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
            *to.handover().events.borrow_mut() = Some(events);
            AnswerBody::Carried(to.clone())
        }
        body => body,
    };
    Response::from_parts(head, body)
}

/// Everything that is left of a connection that carries events.
pub(super) struct Carrier {
    pub stream: TcpStream,
    pub place: Place,
    pub events: Events,
}

impl Carrier {
    /// Writes events until there are no more, the client is gone, or the connection is cut.
    pub async fn carry(mut self) -> io::Result<()> {
        let connection = &*self.place.connection;
        let mut stream = WatchedStream { stream: self.stream, connection };
        let events = &mut self.events;
        let mut writing = pin!(async move {
            while let Some(bytes) = poll_fn(|task| events.poll_next(task)).await {
                stream.write_all_buf(&mut chunk(bytes)).await?;
            }
            stream.write_all(LAST_CHUNK).await?;
            stream.shutdown().await
        });
        poll_fn(|task| match connection.poll_order(task) {
            Order::Cut => Poll::Ready(Ok(())),
            // Its source ends by itself when the node stops.
            Order::Serve | Order::Finish => writing.as_mut().poll(task),
        })
        .await
    }
}

/// `bytes` between their length and a line break, without a copy of them.
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
