//! The body of an answer that streams server-sent events.

use std::task::{Context, Poll};

use bytes::Bytes;

/// Events, encoded one by one as the client takes them.
pub(super) struct Events(Box<dyn EventSource>);

/// Where events come from.
pub(super) trait EventSource {
    /// The next event; `None` at the end of the stream.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

impl Events {
    pub fn new(source: impl EventSource + 'static) -> Events {
        Events(Box::new(source))
    }

    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.poll_next(context)
    }
}
