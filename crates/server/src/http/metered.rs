//! What a request uses up of its principal's limits.
//!
//! One request is one operation. Its bytes are those of its path, query and body, and those of the
//! body of its answer. Headers do not count, nor does what is streamed: the events of a watch.

use std::sync::Arc;

use hyper::body::Body;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use tidelock_core::auth::{LimitExceeded, Usage};

use super::authentication::ClientIdentity;
use super::body::RequestBody;
use super::problem::{Problem, ProblemKind};
use super::response::Response;
use crate::limiter::Limiter;

/// A request and its answer. Nothing is metered without a limit.
#[derive(Default)]
pub(super) struct Metered {
    limiter: Option<Arc<Limiter>>,
    /// Bytes of the body that are taken already.
    stated_bytes: u64,
    refused: Option<LimitExceeded>,
}

impl Metered {
    /// Takes what is known from the head.
    ///
    /// # Errors
    /// When the request is over the limit.
    pub fn admit(
        &mut self,
        identity: &ClientIdentity,
        (head, body): (&Parts, &RequestBody),
    ) -> Result<(), Problem> {
        let Some(limiter) = identity.proof().and_then(|proof| proof.limiter()) else { return Ok(()) };
        let target_bytes = head.uri.path_and_query().map_or(0, |target| target.as_str().len() as u64);
        let stated_bytes = body.stated_bytes();
        let usage = Usage { operations: 1, bytes: target_bytes.saturating_add(stated_bytes) };
        if let Err(refused) = limiter.admit(usage) {
            self.refused = Some(refused);
            let detail = "the principal has used up its limit at this node; nothing was done";
            return Err(Problem::new(ProblemKind::LimitExceeded, detail));
        }
        (self.limiter, self.stated_bytes) = (Some(limiter.clone()), stated_bytes);
        Ok(())
    }

    /// Takes what is known only from the answer, or says in it when to try again.
    pub fn finish(self, received_bytes: u64, response: &mut Response) {
        if let Some(LimitExceeded { retry_after_ms }) = self.refused {
            let seconds = HeaderValue::from(retry_after_ms.div_ceil(1000));
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        if let Some(limiter) = self.limiter {
            let answer_bytes = response.body().size_hint().exact().unwrap_or(0);
            let unstated_bytes = received_bytes.saturating_sub(self.stated_bytes);
            limiter.charge_bytes(answer_bytes.saturating_add(unstated_bytes));
        }
    }
}
