//! Errors as RFC 9457 problems: a detail for people, and a stable `type` for programs.
//!
//! Owns the list of problem types with their statuses; a type never changes its meaning. Details
//! name limits and the client's mistake, never anything internal.

use std::borrow::Cow;

use hyper::StatusCode;
use hyper::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use tidelock_api::problem as api;
use tidelock_core::clients::Unanswered;
use tidelock_core::command::{Refusal, Rejection};
use tidelock_core::types::Version;

use super::response::{self, Response};
use crate::audit_log::DeniedReason;
use crate::memory::MemoryExhausted;
use crate::requests::{NoAnswer, NotWritten};

const TYPE_PREFIX: &str = "https://tidelock.dev/problems/";

/// The type of a problem. `docs/interfaces.md` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProblemKind {
    InvalidRequest,
    CrossOrigin,
    ProtectedMode,
    Unauthenticated,
    Forbidden,
    NotFound,
    NoSuchRoute,
    UnknownHost,
    UnknownShard,
    NoSuchLease,
    MethodNotAllowed,
    RequestTimeout,
    LimitExceeded,
    HostRemoved,
    LastVoter,
    SlotsMoving,
    SnapshotReplaced,
    CertificateNotUsed,
    CrossShard,
    IdReused,
    LockHeld,
    LockNotHeld,
    KeyExists,
    KeyBound,
    LeaseFull,
    ShardInUse,
    ClusterVersion,
    RoleInUse,
    LastAdministrator,
    ConditionFailed,
    StaleFence,
    NotEmpty,
    NotANumber,
    KeyTooLong,
    ValueTooLarge,
    BodyTooLarge,
    MisdirectedRequest,
    HeadTooLarge,
    Internal,
    NoLeader,
    NoSnapshot,
    PermissionsUnknown,
    DiskUnavailable,
    Overloaded,
    TooManyConnections,
    UnknownOutcome,
}

impl ProblemKind {
    fn status(self) -> StatusCode {
        match self {
            ProblemKind::InvalidRequest => StatusCode::BAD_REQUEST,
            ProblemKind::CrossOrigin | ProblemKind::ProtectedMode | ProblemKind::Forbidden => {
                StatusCode::FORBIDDEN
            }
            ProblemKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ProblemKind::NotFound
            | ProblemKind::NoSuchRoute
            | ProblemKind::UnknownHost
            | ProblemKind::UnknownShard
            | ProblemKind::NoSuchLease => StatusCode::NOT_FOUND,
            ProblemKind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            ProblemKind::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            ProblemKind::LimitExceeded => StatusCode::TOO_MANY_REQUESTS,
            ProblemKind::HostRemoved
            | ProblemKind::LastVoter
            | ProblemKind::SlotsMoving
            | ProblemKind::SnapshotReplaced
            | ProblemKind::CertificateNotUsed
            | ProblemKind::CrossShard
            | ProblemKind::IdReused
            | ProblemKind::LockHeld
            | ProblemKind::LockNotHeld
            | ProblemKind::KeyExists
            | ProblemKind::KeyBound
            | ProblemKind::LeaseFull
            | ProblemKind::ShardInUse
            | ProblemKind::RoleInUse
            | ProblemKind::LastAdministrator
            | ProblemKind::ClusterVersion
            | ProblemKind::NotANumber
            | ProblemKind::NotEmpty => StatusCode::CONFLICT,
            ProblemKind::ConditionFailed | ProblemKind::StaleFence => StatusCode::PRECONDITION_FAILED,
            ProblemKind::KeyTooLong | ProblemKind::ValueTooLarge | ProblemKind::BodyTooLarge => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            ProblemKind::MisdirectedRequest => StatusCode::MISDIRECTED_REQUEST,
            ProblemKind::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            ProblemKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            ProblemKind::NoLeader
            | ProblemKind::NoSnapshot
            | ProblemKind::PermissionsUnknown
            | ProblemKind::DiskUnavailable
            | ProblemKind::Overloaded
            | ProblemKind::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            ProblemKind::UnknownOutcome => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The last segment of the type, and the title.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            ProblemKind::InvalidRequest => ("invalid-request", "Invalid request"),
            ProblemKind::CrossOrigin => ("cross-origin", "Cross-origin request"),
            ProblemKind::ProtectedMode => ("protected-mode", "Protected mode"),
            ProblemKind::Unauthenticated => ("unauthenticated", "Authentication required"),
            ProblemKind::Forbidden => ("forbidden", "Permission required"),
            ProblemKind::NotFound => ("not-found", "Not found"),
            ProblemKind::NoSuchRoute => ("no-such-route", "No such route"),
            ProblemKind::UnknownHost => ("unknown-host", "Unknown host"),
            ProblemKind::UnknownShard => ("unknown-shard", "Unknown shard"),
            ProblemKind::NoSuchLease => ("no-such-lease", "No such lease"),
            ProblemKind::MethodNotAllowed => ("method-not-allowed", "Method not allowed"),
            ProblemKind::RequestTimeout => ("request-timeout", "Request timeout"),
            ProblemKind::LimitExceeded => ("limit-exceeded", "Limit exceeded"),
            ProblemKind::HostRemoved => ("host-removed", "Host removed"),
            ProblemKind::LastVoter => ("last-voter", "Last voter"),
            ProblemKind::SlotsMoving => ("slots-moving", "Slots moving"),
            ProblemKind::SnapshotReplaced => ("snapshot-replaced", "Snapshot replaced"),
            ProblemKind::CertificateNotUsed => ("certificate-not-used", "Certificate not used"),
            ProblemKind::CrossShard => ("cross-shard", "Cross-shard transaction"),
            ProblemKind::IdReused => ("id-reused", "Id reused"),
            ProblemKind::LockHeld => ("lock-held", "Lock held"),
            ProblemKind::LockNotHeld => ("lock-not-held", "Lock not held"),
            ProblemKind::KeyExists => ("key-exists", "Key exists"),
            ProblemKind::KeyBound => ("key-bound", "Key bound to a lease"),
            ProblemKind::LeaseFull => ("lease-full", "Lease full"),
            ProblemKind::ShardInUse => ("shard-in-use", "Shard in use"),
            ProblemKind::RoleInUse => ("role-in-use", "Role in use"),
            ProblemKind::LastAdministrator => ("last-administrator", "Last administrator"),
            ProblemKind::ClusterVersion => ("cluster-version", "Cluster version"),
            ProblemKind::ConditionFailed => ("condition-failed", "Condition failed"),
            ProblemKind::StaleFence => ("stale-fence", "Stale fence"),
            ProblemKind::NotANumber => ("not-a-number", "Not a number"),
            ProblemKind::NotEmpty => ("not-empty", "Not empty"),
            ProblemKind::KeyTooLong => ("key-too-long", "Key too long"),
            ProblemKind::ValueTooLarge => ("value-too-large", "Value too large"),
            ProblemKind::BodyTooLarge => ("body-too-large", "Body too large"),
            ProblemKind::MisdirectedRequest => ("misdirected-request", "Misdirected request"),
            ProblemKind::HeadTooLarge => ("head-too-large", "Request line and headers too large"),
            ProblemKind::Internal => ("internal", "Internal error"),
            ProblemKind::NoLeader => ("no-leader", "No leader"),
            ProblemKind::NoSnapshot => ("no-snapshot", "No snapshot"),
            ProblemKind::PermissionsUnknown => ("permissions-unknown", "Permissions unknown"),
            ProblemKind::DiskUnavailable => ("disk-unavailable", "Disk unavailable"),
            ProblemKind::Overloaded => ("overloaded", "Overloaded"),
            ProblemKind::TooManyConnections => ("too-many-connections", "Too many connections"),
            ProblemKind::UnknownOutcome => ("unknown-outcome", "Unknown outcome"),
        }
    }

    fn is_worth_retrying(self) -> bool {
        matches!(
            self,
            ProblemKind::NoLeader
                | ProblemKind::PermissionsUnknown
                | ProblemKind::DiskUnavailable
                | ProblemKind::Overloaded
                | ProblemKind::TooManyConnections
        )
    }
}

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

    /// `allow` lists the methods of the path.
    pub fn method_not_allowed(allow: &str) -> Problem {
        let methods = HeaderValue::from_str(allow).expect("invariant: methods are a header value");
        Problem {
            kind: ProblemKind::MethodNotAllowed,
            detail: Cow::Owned(format!("this path takes {allow}")),
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
        self.kind.names().0
    }

    pub fn status(&self) -> StatusCode {
        self.kind.status()
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
        let mut response = response::with_body(self.kind.status(), self.body());
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
        let (status, (_, title)) = (self.kind.status(), self.kind.names());
        let body = self.body();
        let mut out = format!(
            "HTTP/1.1 {} {title}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
             x-content-type-options: nosniff\r\n\
             retry-after: {RETRY_AFTER_SECONDS}\r\nconnection: close\r\n\r\n",
            status.as_u16(),
            body.len()
        )
        .into_bytes();
        out.extend_from_slice(&body);
        out
    }

    fn body(&self) -> Vec<u8> {
        let (name, title) = self.kind.names();
        let (limit, current) = match self.extension {
            Some(Extension::Limit(limit)) => (Some(limit), None),
            Some(Extension::Current(version)) => (None, Some(version.0)),
            Some(Extension::Allow(_)) | None => (None, None),
        };
        let body = api::Problem {
            kind: format!("{TYPE_PREFIX}{name}").into(),
            title: title.into(),
            status: self.kind.status().as_u16(),
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
