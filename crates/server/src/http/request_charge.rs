//! Charges a request against the rate limits of its principal.
//!
//! A request is one operation, except for a transaction, which is as many as it has comparisons and
//! operations: one is charged before the request is served, the others afterwards. The bytes of a
//! request are those of path, query and body, and of the body of the answer. Headers and the
//! streamed events of a watch are not charged.

use std::sync::Arc;

use hyper::body::Body;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use tidelock_core::auth::{LimitExceeded, Usage};

use super::authentication::ClientIdentity;
use super::body::RequestBody;
use super::problem::{Problem, ProblemKind};
use super::response::Response;
use crate::limiter::PrincipalLimiter;

/// The charge of one request. Without a limit, nothing is charged.
#[derive(Default)]
pub(super) struct RequestCharge {
    limiter: Option<Arc<PrincipalLimiter>>,
    /// Bytes of the body that are charged already.
    stated_bytes: u64,
    refused: Option<LimitExceeded>,
}

impl RequestCharge {
    /// Charges what the head of the request says.
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

    /// Charges what is known only with the answer: the operations in `more`, and its bytes as far
    /// as the head did not state them. Of a refused request, adds `Retry-After` to the answer.
    pub fn finish(self, more: Usage, response: &mut Response) {
        if let Some(LimitExceeded { retry_after_ms }) = self.refused {
            let seconds = HeaderValue::from(retry_after_ms.div_ceil(1000));
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        if let Some(limiter) = self.limiter {
            let answer_bytes = response.body().size_hint().exact().unwrap_or(0);
            let unstated_bytes = more.bytes.saturating_sub(self.stated_bytes);
            limiter.charge(Usage {
                operations: more.operations,
                bytes: answer_bytes.saturating_add(unstated_bytes),
            });
        }
    }
}
