//! What a node records: requests and connections that it denies, writes of chosen keys, and secrets
//! that it reveals.
//!
//! Owns the names, which the audit log and `tidelock_denied_total` share. A name never changes its
//! meaning.

use std::net::IpAddr;

use tidelock_core::command::Refusal;

use crate::protocol::ListenerProtocol;

/// Why a request or a connection was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedReason {
    /// A token was wrong, was deleted or has expired.
    AuthenticationFailed,
    /// A request without a token, or on a connection that has not authenticated.
    Unauthenticated,
    /// The principal lacks a permission.
    Forbidden,
    /// A web page of another origin has sent the request.
    CrossOrigin,
    /// The client is on another machine, and the node in protected mode.
    ProtectedMode,
    /// The node cannot know the current permissions.
    PermissionsUnknown,
    /// The other side does not use TLS, or one side does not accept the certificate of the other.
    TlsFailed,
    /// A host was not admitted to the cluster, or got no certificate.
    JoinRefused,
}

impl DeniedReason {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [DeniedReason; 8] = [
        DeniedReason::AuthenticationFailed,
        DeniedReason::Unauthenticated,
        DeniedReason::Forbidden,
        DeniedReason::CrossOrigin,
        DeniedReason::ProtectedMode,
        DeniedReason::PermissionsUnknown,
        DeniedReason::TlsFailed,
        DeniedReason::JoinRefused,
    ];

    /// The reason of a refusal, if it is about who sent the request.
    pub fn of(refusal: &Refusal) -> Option<DeniedReason> {
        match refusal {
            Refusal::Unauthenticated => Some(DeniedReason::Unauthenticated),
            Refusal::Forbidden(_) => Some(DeniedReason::Forbidden),
            Refusal::PermissionsUnknown => Some(DeniedReason::PermissionsUnknown),
            _ => None,
        }
    }

    /// Its name in the audit log and in `/metrics`.
    pub fn name(self) -> &'static str {
        match self {
            DeniedReason::AuthenticationFailed => "authentication-failed",
            DeniedReason::Unauthenticated => "unauthenticated",
            DeniedReason::Forbidden => "forbidden",
            DeniedReason::CrossOrigin => "cross-origin",
            DeniedReason::ProtectedMode => "protected-mode",
            DeniedReason::PermissionsUnknown => "permissions-unknown",
            DeniedReason::TlsFailed => "tls-failed",
            DeniedReason::JoinRefused => "join-refused",
        }
    }
}

/// What a line of the log is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEventKind {
    /// A denied request or connection.
    Denied(DeniedReason),
    /// A write of a key that `--audit-writes` names.
    Written,
    /// Such a write whose outcome is unknown.
    MaybeWritten,
    /// A client was shown secrets in plain text.
    Revealed,
}

impl AuditEventKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            AuditEventKind::Denied(reason) => reason.name(),
            AuditEventKind::Written => "written",
            AuditEventKind::MaybeWritten => "maybe-written",
            AuditEventKind::Revealed => "revealed",
        }
    }
}

/// One event.
#[derive(Clone, Debug)]
pub struct AuditEvent {
    /// What happened.
    pub kind: AuditEventKind,
    /// How the client came; `None` if its connection has ended meanwhile.
    pub protocol: Option<ListenerProtocol>,
    /// Address of the client, if known.
    pub address: Option<IpAddr>,
    /// The authenticated principal.
    pub principal: Option<String>,
    /// What was denied, written or revealed. It holds no values and no secrets.
    pub detail: String,
}
