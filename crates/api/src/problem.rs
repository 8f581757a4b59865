//! Errors of all paths but `/api`: problem details (RFC 9457).
//!
//! Owns the table of problems, with the status and the meaning of each for a program. A problem
//! never changes its meaning.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of a refused or failed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem<'a> {
    /// Identifies the kind of error for programs: a URL whose last segment is enough.
    #[serde(rename = "type")]
    #[schemars(url)]
    pub kind: Cow<'a, str>,
    /// The kind of error, for people.
    pub title: Cow<'a, str>,
    /// The HTTP status.
    #[schemars(range(min = 400, max = 599))]
    pub status: u16,
    /// What happened, and what was done, for people.
    pub detail: Cow<'a, str>,
    /// The limit in bytes that was exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub limit: Option<u64>,
    /// The version of the key, which a condition did not expect; 0 if there is no such key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub current: Option<u64>,
}

impl Problem<'_> {
    /// The last segment of the type, which identifies the kind.
    pub fn name(&self) -> &str {
        self.kind.rsplit('/').next().unwrap_or_default()
    }
}

/// Declares `ProblemKind`: variant, HTTP status, last segment of the type, title.
macro_rules! problem_kinds {
    ($($kind:ident = $status:literal, $name:literal, $title:literal;)*) => {
        /// The kind of a problem. `docs/reference/errors.md` explains each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the titles in the table say what the variants are")]
        pub enum ProblemKind {
            $($kind,)*
        }

        impl ProblemKind {
            /// All kinds.
            pub const ALL: &[ProblemKind] = &[$(ProblemKind::$kind),*];

            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self { $(ProblemKind::$kind => $status,)* }
            }

            /// The last segment of the type, which identifies the kind for programs.
            pub fn name(self) -> &'static str {
                match self { $(ProblemKind::$kind => $name,)* }
            }

            /// The title, for people.
            pub fn title(self) -> &'static str {
                match self { $(ProblemKind::$kind => $title,)* }
            }
        }
    };
}

problem_kinds! {
    InvalidRequest = 400, "invalid-request", "Invalid request";
    CrossOrigin = 403, "cross-origin", "Cross-origin request";
    ProtectedMode = 403, "protected-mode", "Protected mode";
    Unauthenticated = 401, "unauthenticated", "Authentication required";
    Forbidden = 403, "forbidden", "Permission required";
    NotFound = 404, "not-found", "Not found";
    NoSuchRoute = 404, "no-such-route", "No such route";
    UnknownHost = 404, "unknown-host", "Unknown host";
    UnknownShard = 404, "unknown-shard", "Unknown shard";
    NoSuchLease = 404, "no-such-lease", "No such lease";
    MethodNotAllowed = 405, "method-not-allowed", "Method not allowed";
    RequestTimeout = 408, "request-timeout", "Request timeout";
    LimitExceeded = 429, "limit-exceeded", "Limit exceeded";
    HostRemoved = 409, "host-removed", "Host removed";
    LastVoter = 409, "last-voter", "Last voter";
    SlotsMoving = 409, "slots-moving", "Slots moving";
    SnapshotReplaced = 409, "snapshot-replaced", "Snapshot replaced";
    CertificateNotUsed = 409, "certificate-not-used", "Certificate not used";
    CrossShard = 409, "cross-shard", "Cross-shard transaction";
    IdReused = 409, "id-reused", "Id reused";
    LockHeld = 409, "lock-held", "Lock held";
    LockNotHeld = 409, "lock-not-held", "Lock not held";
    KeyExists = 409, "key-exists", "Key exists";
    KeyBound = 409, "key-bound", "Key bound to a lease";
    LeaseFull = 409, "lease-full", "Lease full";
    ShardInUse = 409, "shard-in-use", "Shard in use";
    ClusterVersion = 409, "cluster-version", "Cluster version";
    RoleInUse = 409, "role-in-use", "Role in use";
    LastAdministrator = 409, "last-administrator", "Last administrator";
    ConditionFailed = 412, "condition-failed", "Condition failed";
    StaleFence = 412, "stale-fence", "Stale fence";
    NotEmpty = 409, "not-empty", "Not empty";
    NotANumber = 409, "not-a-number", "Not a number";
    KeyTooLong = 413, "key-too-long", "Key too long";
    ValueTooLarge = 413, "value-too-large", "Value too large";
    BodyTooLarge = 413, "body-too-large", "Body too large";
    MisdirectedRequest = 421, "misdirected-request", "Misdirected request";
    HeadTooLarge = 431, "head-too-large", "Request line and headers too large";
    Internal = 500, "internal", "Internal error";
    NoLeader = 503, "no-leader", "No leader";
    NoSnapshot = 503, "no-snapshot", "No snapshot";
    PermissionsUnknown = 503, "permissions-unknown", "Permissions unknown";
    DiskUnavailable = 503, "disk-unavailable", "Disk unavailable";
    Overloaded = 503, "overloaded", "Overloaded";
    TooManyConnections = 503, "too-many-connections", "Too many connections";
    UnknownOutcome = 504, "unknown-outcome", "Unknown outcome";
}

impl ProblemKind {
    /// The kind with this name; `None` for one of a later release.
    pub fn named(name: &str) -> Option<ProblemKind> {
        ProblemKind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// What a program can do about the problem.
    pub fn class(self) -> ErrorClass {
        match self {
            // The client and the node are of different releases.
            ProblemKind::NoSuchRoute => ErrorClass::Failed,
            _ => ErrorClass::of_status(self.status()),
        }
    }

    /// Whether the same request may succeed soon, so that answers have `Retry-After`.
    pub fn is_worth_retrying(self) -> bool {
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

/// What a program can do about an error. The values are exit codes of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ErrorClass {
    /// It failed for a reason that has no class of its own.
    Failed = 1,
    /// The request is wrong: it fails each time.
    Invalid = 2,
    /// What it is about does not exist.
    NotFound = 3,
    /// A condition did not hold, or the state does not allow the change.
    ConditionFailed = 4,
    /// Nothing was done, and the request can be repeated.
    Unavailable = 5,
    /// The change may have happened or not.
    UnknownOutcome = 6,
    /// The client may not do that.
    NotPermitted = 7,
}

impl ErrorClass {
    /// The class of an answer with this HTTP status, which is 400 or more.
    pub fn of_status(status: u16) -> ErrorClass {
        match status {
            401 | 403 => ErrorClass::NotPermitted,
            404 => ErrorClass::NotFound,
            408 | 429 | 503 => ErrorClass::Unavailable,
            409 | 412 => ErrorClass::ConditionFailed,
            400..500 => ErrorClass::Invalid,
            504 => ErrorClass::UnknownOutcome,
            _ => ErrorClass::Failed,
        }
    }

    /// The name that programs see where no node has named a problem.
    pub fn name(self) -> &'static str {
        match self {
            ErrorClass::Failed => "failed",
            ErrorClass::Invalid => ProblemKind::InvalidRequest.name(),
            ErrorClass::NotFound => ProblemKind::NotFound.name(),
            ErrorClass::ConditionFailed => ProblemKind::ConditionFailed.name(),
            ErrorClass::Unavailable => "unavailable",
            ErrorClass::UnknownOutcome => ProblemKind::UnknownOutcome.name(),
            ErrorClass::NotPermitted => ProblemKind::Forbidden.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_identify_problems() {
        for (place, kind) in ProblemKind::ALL.iter().enumerate() {
            assert!((400..600).contains(&kind.status()), "{kind:?}");
            let others = &ProblemKind::ALL[place + 1..];
            assert!(others.iter().all(|other| other.name() != kind.name()), "{kind:?}");
        }
    }

    #[test]
    fn classes_follow_from_the_outcome() {
        for (kind, class) in [
            (ProblemKind::InvalidRequest, ErrorClass::Invalid),
            (ProblemKind::ValueTooLarge, ErrorClass::Invalid),
            (ProblemKind::Unauthenticated, ErrorClass::NotPermitted),
            (ProblemKind::NotFound, ErrorClass::NotFound),
            (ProblemKind::NoSuchRoute, ErrorClass::Failed),
            (ProblemKind::ConditionFailed, ErrorClass::ConditionFailed),
            (ProblemKind::LockHeld, ErrorClass::ConditionFailed),
            (ProblemKind::NoLeader, ErrorClass::Unavailable),
            (ProblemKind::LimitExceeded, ErrorClass::Unavailable),
            (ProblemKind::UnknownOutcome, ErrorClass::UnknownOutcome),
            (ProblemKind::Internal, ErrorClass::Failed),
        ] {
            assert_eq!(kind.class(), class, "{kind:?}");
        }
    }

    #[test]
    fn what_is_worth_retrying_was_not_done() {
        for kind in ProblemKind::ALL {
            assert!(!kind.is_worth_retrying() || kind.class() == ErrorClass::Unavailable, "{kind:?}");
        }
    }
}
