//! Errors as RFC 9457 problems: a detail for people, and a stable `type` for programs.
//!
//! The kinds with their statuses are those of `tidelock_api::problem`. Details name limits and the
//! client's mistake, never anything internal.

use std::borrow::Cow;

use hyper::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use tidelock_api::problem as api;
pub(super) use tidelock_api::problem::ProblemKind;
use tidelock_core::clients::Unanswered;
use tidelock_core::command::{Refusal, Rejection};
use tidelock_core::types::Version;

use super::response::{self, Response};
use crate::audit_log::DeniedReason;
use crate::memory::MemoryExhausted;
use crate::requests::{NoAnswer, NotWritten};

const TYPE_PREFIX: &str = "https://tidelock.dev/problems/";

/// The `Retry-After` of temporary problems, in seconds: about one election.
const RETRY_AFTER_SECONDS: &str = "1";

/// A problem to be sent as an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    kind: ProblemKind,
    detail: Cow<'static, str>,
    extension: Option<Extension>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Extension {
    Limit(u64),
    Current(Version),
    Allow(HeaderValue),
}

impl Problem {
    pub fn new(kind: ProblemKind, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem { kind, detail: detail.into(), extension: None }
    }

    pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(ProblemKind::InvalidRequest, detail)
    }

    /// A limit in bytes was exceeded; `what` begins the sentence that names it.
    pub fn over_limit(kind: ProblemKind, what: &str, limit_bytes: usize) -> Problem {
        let detail = format!("{what} is longer than {limit_bytes} bytes");
        Problem { kind, detail: detail.into(), extension: Some(Extension::Limit(limit_bytes as u64)) }
    }

    pub fn key_not_found() -> Problem {
        Problem::new(ProblemKind::NotFound, "there is no such key")
    }

    pub fn no_such_route() -> Problem {
        Problem::new(ProblemKind::NoSuchRoute, "nothing is served under this path")
    }

    /// Authentication is required, and there is no token, or one that is not accepted.
    pub fn unauthenticated(is_wrong: bool) -> Problem {
        let detail = if is_wrong {
            "the token is not accepted: it is wrong, was deleted or has expired; nothing was done"
        } else {
            "authentication is required: send `Authorization: Bearer TOKEN`; nothing was done"
        };
        Problem::new(ProblemKind::Unauthenticated, detail)
    }

    /// The key's version differs from the one that the client requires.
    pub fn condition_failed(current: Version) -> Problem {
        let detail = match current {
            Version::ABSENT => Cow::Borrowed("there is no such key; nothing was changed"),
            version => format!("the key's version is {version}; nothing was changed").into(),
        };
        Problem { kind: ProblemKind::ConditionFailed, detail, extension: Some(Extension::Current(current)) }
    }

    /// The state of a key or of a lease does not allow a write.
    pub fn rejected(rejection: Rejection) -> Problem {
        let kind = match rejection {
            Rejection::LockHeld => ProblemKind::LockHeld,
            Rejection::NoLease => ProblemKind::NoSuchLease,
            Rejection::LeaseFull => ProblemKind::LeaseFull,
            Rejection::KeyBound => ProblemKind::KeyBound,
            // Those of other operations.
            _ => return NoAnswer::mismatched().into(),
        };
        Problem::new(kind, format!("{rejection}; nothing was changed"))
    }

    /// `allow` lists the methods of the path, and `below` the paths below it that have this
    /// method.
    pub fn method_not_allowed(allow: &str, method: &Method, below: &[&str]) -> Problem {
        let methods = HeaderValue::from_str(allow).expect("invariant: methods are a header value");
        let mut detail = format!("this path takes {allow}");
        if !below.is_empty() {
            detail.push_str(&format!("; {method} is for {}", below.join(", ")));
        }
        Problem {
            kind: ProblemKind::MethodNotAllowed,
            detail: Cow::Owned(detail),
            extension: Some(Extension::Allow(methods)),
        }
    }

    /// A change has a query parameter that its endpoint does not take, which takes `known` ones.
    pub fn unknown_parameter(name: &str, known: &[&str]) -> Problem {
        let name = name.chars().take(64).collect::<String>();
        Problem::invalid(match known {
            [] => format!("there is no parameter {name:?} here, nor any other; nothing was done"),
            _ => format!("there is no parameter {name:?} here, only {}; nothing was done", known.join(", ")),
        })
    }

    /// Adapts the detail to a change of the cluster, which is not about a key.
    pub fn of_registry(self) -> Problem {
        match self.kind {
            ProblemKind::NoLeader => Problem::new(
                self.kind,
                "no leader of the prime shard, which holds the registry, is known or reachable: a majority of its \
                 voters must be up; nothing was done",
            ),
            _ => self,
        }
    }

    /// The last segment of the type.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.kind.status()).expect("invariant: problems have statuses of HTTP")
    }

    /// Why the request was denied, if it was because of who sent it.
    pub fn denied(&self) -> Option<DeniedReason> {
        match self.kind {
            ProblemKind::Unauthenticated => Some(DeniedReason::Unauthenticated),
            ProblemKind::Forbidden => Some(DeniedReason::Forbidden),
            ProblemKind::CrossOrigin => Some(DeniedReason::CrossOrigin),
            ProblemKind::ProtectedMode => Some(DeniedReason::ProtectedMode),
            ProblemKind::PermissionsUnknown => Some(DeniedReason::PermissionsUnknown),
            _ => None,
        }
    }

    /// Whether a bounded resource is used up.
    pub fn is_overload(&self) -> bool {
        self.kind == ProblemKind::Overloaded
    }

    /// The methods of the path, if the method is the problem.
    pub fn allow(&self) -> Option<&HeaderValue> {
        match &self.extension {
            Some(Extension::Allow(allow)) => Some(allow),
            _ => None,
        }
    }

    pub fn into_detail(self) -> Cow<'static, str> {
        self.detail
    }

    pub fn into_response(self) -> Response {
        let mut response = response::with_body(self.status(), self.body());
        response::mark_denied(&mut response, self.denied());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.kind.is_worth_retrying() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        if self.kind == ProblemKind::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        match self.extension {
            Some(Extension::Allow(allow)) => {
                headers.insert(ALLOW, allow);
            }
            Some(Extension::Current(version)) if version != Version::ABSENT => {
                headers.insert(ETAG, response::etag(version));
            }
            _ => {}
        }
        response
    }

    /// The whole answer as bytes, for a connection that is refused before any HTTP was read.
    pub fn into_raw_answer(self) -> Vec<u8> {
        let (status, title) = (self.kind.status(), self.kind.title());
        let body = self.body();
        let mut out = format!(
            "HTTP/1.1 {} {title}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
             x-content-type-options: nosniff\r\n\
             retry-after: {RETRY_AFTER_SECONDS}\r\nconnection: close\r\n\r\n",
            status,
            body.len()
        )
        .into_bytes();
        out.extend_from_slice(&body);
        out
    }

    fn body(&self) -> Vec<u8> {
        let (limit, current) = match self.extension {
            Some(Extension::Limit(limit)) => (Some(limit), None),
            Some(Extension::Current(version)) => (None, Some(version.0)),
            Some(Extension::Allow(_)) | None => (None, None),
        };
        let body = api::Problem {
            kind: format!("{TYPE_PREFIX}{}", self.kind.name()).into(),
            title: self.kind.title().into(),
            status: self.kind.status(),
            detail: (&*self.detail).into(),
            limit,
            current,
        };
        serde_json::to_vec(&body).expect("invariant: texts and numbers are JSON")
    }
}

impl From<MemoryExhausted> for Problem {
    fn from(exhausted: MemoryExhausted) -> Problem {
        Problem::new(ProblemKind::Overloaded, exhausted.to_string())
    }
}

impl From<NotWritten> for Problem {
    fn from(reason: NotWritten) -> Problem {
        match reason {
            NotWritten::ConditionFailed { current } => Problem::condition_failed(current),
            NotWritten::StaleFence => Problem::new(
                ProblemKind::StaleFence,
                "the lock is not held with this fence: another client may hold it; nothing was changed",
            ),
            NotWritten::Rejected(rejection) => Problem::rejected(rejection),
            NotWritten::Denied(denial) => super::membership::denied(denial),
        }
    }
}

impl From<NoAnswer> for Problem {
    fn from(error: NoAnswer) -> Problem {
        match error {
            NoAnswer::Refused(refusal) => refusal.into(),
            NoAnswer::Mismatched => Problem::new(ProblemKind::Internal, error.to_string()),
        }
    }
}

impl From<Unanswered> for Problem {
    fn from(error: Unanswered) -> Problem {
        NoAnswer::from(error).into()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let kind = match refusal {
            Refusal::NoLeader => ProblemKind::NoLeader,
            Refusal::UnknownOutcome => ProblemKind::UnknownOutcome,
            Refusal::DiskUnavailable => ProblemKind::DiskUnavailable,
            Refusal::Overloaded => ProblemKind::Overloaded,
            Refusal::Unauthenticated => ProblemKind::Unauthenticated,
            Refusal::Forbidden(_) => ProblemKind::Forbidden,
            Refusal::PermissionsUnknown => ProblemKind::PermissionsUnknown,
            Refusal::VersionTooLow => ProblemKind::ClusterVersion,
            Refusal::CrossShard | Refusal::Invalid(_) => ProblemKind::InvalidRequest,
        };
        match refusal {
            // The problem's title already says that it is invalid.
            Refusal::Invalid(reason) => Problem::new(kind, reason),
            other => Problem::new(kind, other.to_string()),
        }
    }
}
