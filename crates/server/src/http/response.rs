//! Builds answers: bodies and headers. The modules of the dialects decide what they mean.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONNECTION, CONTENT_TYPE, ETAG, HeaderValue};
use tidelock_core::types::Version;

use super::connections::HttpConnection;
use super::events::Events;
use super::stream_permission::PermissionLost;
use crate::audit_log::DeniedReason;
use crate::backup::BackupParts;
use crate::memory::Reservation;

/// Media type of values and of backups. `HeaderValue::from_static` checks every byte. In a static
/// it does so at compile time, otherwise for each answer.
static OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

pub(super) type Response = hyper::Response<AnswerBody>;

pub(super) enum AnswerBody {
    Whole(Whole),
    /// Parts, produced as the client takes them. An error among them cuts the connection, which is
    /// the only way to report it after the head.
    Parts(BackupParts, PermissionLost),
    /// Events, as they happen.
    Events(Events),
    /// Events that another task writes once the head of the answer is sent.
    Hijacked(Rc<HttpConnection>),
}

/// A complete body, and the memory that it counts for until it is sent.
pub(super) struct Whole {
    body: Full<Bytes>,
    memory: Option<Reservation>,
}

impl Whole {
    /// Bytes that were not sent yet.
    pub fn len(&self) -> usize {
        self.body.size_hint().exact().unwrap_or_default() as usize
    }

    /// Counts it until it is sent.
    pub fn count(&mut self, memory: Reservation) {
        self.memory = Some(memory);
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context).map_err(|never| match never {});
        let Some(memory) = self.memory.take_if(|_| matches!(frame, Poll::Ready(Some(Ok(_))))) else {
            return frame;
        };
        frame.map_ok(|frame| frame.map_data(|data| memory.hold(data)))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            AnswerBody::Whole(whole) => whole.poll_frame(context),
            AnswerBody::Parts(parts, permission_lost) => {
                if permission_lost.as_mut().poll(context).is_ready() {
                    let error = "the client has lost the permission for the backup";
                    return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::PermissionDenied, error))));
                }
                parts.poll_next(context).map_ok(Frame::data)
            }
            AnswerBody::Events(events) => {
                events.poll_next(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            AnswerBody::Hijacked(connection) => {
                connection.handover().note_awaited();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Whole(whole) => whole.body.is_end_stream(),
            AnswerBody::Parts(..) | AnswerBody::Events(_) | AnswerBody::Hijacked(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Whole(whole) => whole.body.size_hint(),
            AnswerBody::Parts(..) | AnswerBody::Events(_) | AnswerBody::Hijacked(_) => SizeHint::default(),
        }
    }
}

/// An answer whose body is the parts of a backup. It is cut off when `permission_lost` completes.
pub(super) fn parts(parts: BackupParts, permission_lost: PermissionLost) -> Response {
    let mut response = Response::new(AnswerBody::Parts(parts, permission_lost));
    response.headers_mut().insert(CONTENT_TYPE, OCTETS.clone());
    response
}

/// The same of a partial backup, whose client may pause for long. Nothing else is asked on the
/// connection afterwards.
pub(super) fn partial(parts: BackupParts, permission_lost: PermissionLost) -> Response {
    let mut response = self::parts(parts, permission_lost);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.extensions_mut().insert(AllowsPauses);
    response
}

/// An answer whose client may take nothing of it for long, without being idle.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllowsPauses;

/// Notes in an answer that the request was denied because of who sent it, so that it is recorded.
pub(super) fn mark_denied(response: &mut Response, reason: Option<DeniedReason>) {
    if let Some(reason) = reason {
        response.extensions_mut().insert(reason);
    }
}

/// An answer whose body is server-sent events.
pub(super) fn events(events: Events) -> Response {
    let mut response = Response::new(AnswerBody::Events(events));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// An answer with a body of no stated type.
pub(super) fn with_body(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(AnswerBody::Whole(Whole { body: Full::new(body.into()), memory: None }));
    *response.status_mut() = status;
    response
}

pub(super) fn empty(status: StatusCode) -> Response {
    with_body(status, Bytes::new())
}

/// Text for people.
pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    typed(status, "text/plain; charset=utf-8", body)
}

/// JSON that is already encoded.
pub(super) fn json(body: Vec<u8>) -> Response {
    typed(StatusCode::OK, "application/json", body)
}

/// JSON that is already encoded, about a change that was accepted and is not complete yet.
pub(super) fn accepted(body: Vec<u8>) -> Response {
    typed(StatusCode::ACCEPTED, "application/json", body)
}

/// A value as it was stored.
pub(super) fn octets(body: Bytes) -> Response {
    with_type(StatusCode::OK, OCTETS.clone(), body)
}

/// An answer with a body of a stated type.
pub(super) fn typed(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response {
    with_type(status, HeaderValue::from_static(media_type), body)
}

fn with_type(status: StatusCode, media_type: HeaderValue, body: impl Into<Bytes>) -> Response {
    let mut response = with_body(status, body);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// `"<version>"`: a strong entity tag, because equal versions of a key are equal bytes.
pub(super) fn etag(version: Version) -> HeaderValue {
    // 20 digits and two quotes: formatted on the stack, copied once.
    let mut text = [b'"'; 22];
    let mut start = text.len() - 1;
    let mut rest = version.0;
    loop {
        start -= 1;
        text[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    HeaderValue::from_bytes(&text[start - 1..]).expect("invariant: digits and quotes are a header value")
}

/// Adds the entity tag of `version`.
pub(super) fn with_etag(mut response: Response, version: Version) -> Response {
    response.headers_mut().insert(ETAG, etag(version));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_are_quoted_versions() {
        for (version, expected) in
            [(0, "\"0\""), (7, "\"7\""), (10, "\"10\""), (u64::MAX, "\"18446744073709551615\"")]
        {
            assert_eq!(etag(Version(version)), expected);
        }
    }
}
