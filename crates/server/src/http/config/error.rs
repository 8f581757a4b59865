//! Refusals of the configuration centre: an HTTP status, a number for programs, a text for people.
//!
//! Owns the list of numbers, which `docs/reference/errors.md` shows; a number never changes its
//! meaning. The two digits after the status distinguish refusals with the same one.

use std::borrow::Cow;

use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use tidelock_core::clients::import::ImportFailure;
use tidelock_core::clients::watcher::WatchError;
use tidelock_core::command::Refusal;
use tidelock_core::command::config::{ConfigError, Datatype, SchemaError};

use super::super::problem::Problem;
use super::super::response::{self, Response};
use super::show;
use crate::audit_log::DeniedReason;
use crate::memory::MemoryExhausted;
use crate::offload::Busy;
use crate::requests::NoAnswer;
use crate::secrets::OpenError;

/// A refusal to be sent as an answer.
#[derive(Debug)]
pub(in crate::http) struct ApiError {
    status: StatusCode,
    errcode: u32,
    errmsg: Cow<'static, str>,
    allow: Option<HeaderValue>,
    denied: Option<DeniedReason>,
}

impl ApiError {
    fn new(status: StatusCode, errcode: u32, errmsg: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError { status, errcode, errmsg: errmsg.into(), allow: None, denied: None }
    }

    /// Error 40000: the request is invalid.
    pub fn invalid(errmsg: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, 40000, errmsg)
    }

    /// Error 40001: a name or a key is invalid.
    pub fn name(errmsg: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, 40001, errmsg)
    }

    /// A value that does not match its datatype, or has none.
    pub fn value(errmsg: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, 40002, errmsg)
    }

    /// A value that the format cannot represent, or a file that is not of the format.
    pub fn format(errmsg: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, 40004, errmsg)
    }

    /// The node has no keys for secrets.
    pub fn secret_keys(errmsg: &'static str) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, 40920, errmsg)
    }

    /// Whether the namespace has another revision than expected.
    pub fn is_revision_mismatch(&self) -> bool {
        self.errcode == 40903
    }

    /// A bounded resource is used up. Nothing was done.
    pub fn overloaded(errmsg: &'static str) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, 50301, errmsg)
    }

    /// Whether the namespace, or what it should contain, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    pub fn is_no_container(&self) -> bool {
        self.errcode == 40403
    }

    /// Prefixes the text with a position.
    pub fn at(mut self, place: &str) -> ApiError {
        self.errmsg = format!("{place}: {}", self.errmsg).into();
        self
    }

    /// Appends a hint to the text.
    pub fn with(mut self, hint: &str) -> ApiError {
        self.errmsg = format!("{}; {hint}", self.errmsg).into();
        self
    }

    /// The text for people.
    pub fn into_text(self) -> String {
        self.errmsg.into_owned()
    }

    pub fn into_response(self) -> Response {
        let mut body = Vec::new();
        let (errcode, errmsg) = (self.errcode, self.errmsg);
        show::push(&mut body, &tidelock_api::config::ConfigError { errcode, errmsg, data: () });
        let mut response = response::typed(self.status, "application/json", body);
        response::mark_denied(&mut response, self.denied);
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

impl From<ConfigError> for ApiError {
    fn from(error: ConfigError) -> ApiError {
        let (status, errcode) = match &error {
            ConfigError::MissingPair { .. } => (StatusCode::BAD_REQUEST, 40003),
            ConfigError::SchemaViolated { .. } => (StatusCode::BAD_REQUEST, 40005),
            ConfigError::NoSecret(_) => (StatusCode::BAD_REQUEST, 40020),
            ConfigError::NoNamespace => (StatusCode::NOT_FOUND, 40401),
            ConfigError::NoPair(_) => (StatusCode::NOT_FOUND, 40402),
            ConfigError::NoContainer(_) => (StatusCode::NOT_FOUND, 40403),
            ConfigError::NoRevision { .. } => (StatusCode::NOT_FOUND, 40404),
            ConfigError::NamespaceExists => (StatusCode::CONFLICT, 40900),
            ConfigError::NamespaceNotEmpty { .. } => (StatusCode::CONFLICT, 40901),
            ConfigError::PairInUse { .. } => (StatusCode::CONFLICT, 40902),
            ConfigError::RevisionMismatch { .. } => (StatusCode::CONFLICT, 40903),
            ConfigError::PairRetyped { .. } | ConfigError::FieldRetyped { .. } => {
                (StatusCode::CONFLICT, 40904)
            }
            ConfigError::ParentElsewhere(_) => (StatusCode::BAD_REQUEST, 40007),
            ConfigError::OwnApproval => (StatusCode::BAD_REQUEST, 40008),
            ConfigError::EmptyComment => (StatusCode::BAD_REQUEST, 40009),
            ConfigError::NoParent(_) => (StatusCode::NOT_FOUND, 40401),
            ConfigError::NoDraft(_) => (StatusCode::NOT_FOUND, 40405),
            ConfigError::NoCanary => (StatusCode::NOT_FOUND, 40406),
            ConfigError::Inherited { .. } => (StatusCode::CONFLICT, 40906),
            ConfigError::ParentCycle(_) => (StatusCode::CONFLICT, 40907),
            ConfigError::HasChildren(_) => (StatusCode::CONFLICT, 40908),
            ConfigError::Protected | ConfigError::NotApproved => (StatusCode::CONFLICT, 40909),
            ConfigError::DraftEdited { .. } => (StatusCode::CONFLICT, 40910),
            ConfigError::DraftChangesNothing => (StatusCode::CONFLICT, 40911),
            ConfigError::CanaryOpen(_) => (StatusCode::CONFLICT, 40912),
            ConfigError::InChild { .. } => (StatusCode::CONFLICT, 40913),
            ConfigError::InheritanceTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, 41316),
            ConfigError::TooManyDrafts => (StatusCode::PAYLOAD_TOO_LARGE, 41317),
            ConfigError::DraftFull => (StatusCode::PAYLOAD_TOO_LARGE, 41318),
            ConfigError::TooManyNamespaces => (StatusCode::PAYLOAD_TOO_LARGE, 41310),
            ConfigError::TooManyPairs => (StatusCode::PAYLOAD_TOO_LARGE, 41311),
            ConfigError::TooManyContainers => (StatusCode::PAYLOAD_TOO_LARGE, 41312),
            ConfigError::NamespaceFull => (StatusCode::PAYLOAD_TOO_LARGE, 41313),
            ConfigError::DocumentsTooLong => (StatusCode::PAYLOAD_TOO_LARGE, 41314),
            ConfigError::SchemasTooCostly => (StatusCode::PAYLOAD_TOO_LARGE, 41315),
        };
        let mut errmsg = error.to_string();
        match &error {
            ConfigError::PairRetyped { now: Datatype::Secret, .. } => {
                errmsg.push_str("; state that the value is a secret (\"type\":\"secret\", --type secret)");
            }
            ConfigError::PairRetyped { wanted, .. } => errmsg.push_str(&format!(
                "; to change its datatype, state it (\"datatype\":{}, --type {}) or ask for retype=true (--retype)",
                *wanted as u8,
                wanted.name()
            )),
            // Not what makes it readable.
            ConfigError::FieldRetyped { now: Datatype::Secret, .. } => errmsg.push_str(
                "; leave ******** in the document, and set the secret by its pair (\"type\":\"secret\", `tidelock config pair set NAMESPACE PAIR - --type secret`)",
            ),
            ConfigError::FieldRetyped { .. } => {
                errmsg.push_str("; to change its datatype, ask for retype=true (--retype)");
            }
            _ => {}
        }
        if (40900..41000).contains(&errcode)
            || [40005, 40020].contains(&errcode)
            || status == StatusCode::PAYLOAD_TOO_LARGE
        {
            errmsg.push_str("; nothing was changed");
        }
        ApiError::new(status, errcode, errmsg)
    }
}

impl From<SchemaError> for ApiError {
    fn from(error: SchemaError) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, 40006, format!("invalid schema: {error}"))
    }
}

impl From<OpenError> for ApiError {
    fn from(error: OpenError) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, 40921, error.to_string())
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> ApiError {
        let status = problem.status();
        let errcode = match status {
            StatusCode::PAYLOAD_TOO_LARGE => 41300,
            _ if problem.is_overload() => 50301,
            other => u32::from(other.as_u16()) * 100,
        };
        let (allow, denied) = (problem.allow().cloned(), problem.denied());
        ApiError { allow, denied, ..ApiError::new(status, errcode, problem.into_detail()) }
    }
}

impl From<Busy> for ApiError {
    fn from(busy: Busy) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, 50301, busy.to_string())
    }
}

impl From<ImportFailure> for ApiError {
    fn from(failure: ImportFailure) -> ApiError {
        let errmsg = failure.to_string();
        match failure {
            ImportFailure::NotADocument | ImportFailure::TooManyFields(_) | ImportFailure::PairInUse(_) => {
                ApiError::format(errmsg)
            }
            ImportFailure::Key { .. } => ApiError::name(errmsg),
            ImportFailure::FieldValue { .. } | ImportFailure::PairValue { .. } => ApiError::value(errmsg),
            ImportFailure::UnknownKey(_) => ApiError::new(StatusCode::NOT_FOUND, 40402, errmsg),
            ImportFailure::Masked(_) => ApiError::new(StatusCode::BAD_REQUEST, 40020, errmsg),
            ImportFailure::Refused(error) => error.into(),
            ImportFailure::Unanswered(error) => NoAnswer::from(error).into(),
            ImportFailure::Busy => Busy.into(),
        }
    }
}

impl From<MemoryExhausted> for ApiError {
    fn from(exhausted: MemoryExhausted) -> ApiError {
        Problem::from(exhausted).into()
    }
}

impl From<NoAnswer> for ApiError {
    fn from(error: NoAnswer) -> ApiError {
        match error {
            NoAnswer::Refused(refusal) => refusal.into(),
            NoAnswer::Mismatched => Problem::from(error).into(),
        }
    }
}

impl From<WatchError> for ApiError {
    fn from(error: WatchError) -> ApiError {
        match error {
            WatchError::Refused(refusal) => refusal.into(),
            WatchError::Config(error) => error.into(),
            WatchError::Mismatched => NoAnswer::mismatched().into(),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        let status = match refusal {
            Refusal::UnknownOutcome => StatusCode::GATEWAY_TIMEOUT,
            Refusal::Invalid(_) | Refusal::CrossShard => StatusCode::BAD_REQUEST,
            Refusal::Unauthenticated => StatusCode::UNAUTHORIZED,
            Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
            Refusal::VersionTooLow => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let errcode = match refusal {
            Refusal::NoLeader => 50300,
            Refusal::Overloaded => 50301,
            Refusal::DiskUnavailable => 50302,
            Refusal::PermissionsUnknown => 50303,
            Refusal::UnknownOutcome => 50400,
            Refusal::Unauthenticated => 40100,
            Refusal::Forbidden(_) => 40300,
            Refusal::VersionTooLow => 40905,
            Refusal::Invalid(_) | Refusal::CrossShard => 40000,
        };
        let denied = DeniedReason::of(&refusal);
        let errmsg = match refusal {
            Refusal::NoLeader => {
                "no leader for the namespace's shard is known or reachable; nothing was done".into()
            }
            other => other.to_string(),
        };
        ApiError { denied, ..ApiError::new(status, errcode, errmsg) }
    }
}
