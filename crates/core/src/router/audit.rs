//! Wraps administrative writes with their caller before they are proposed.

use alloc::boxed::Box;

use crate::auth::Caller;
use crate::command::{AuditedWrite, RegistryWrite, Write};
use crate::types::UnixMillis;
use crate::version::ClusterVersion;

/// Whether the write must be wrapped, in a cluster of this version.
#[inline]
pub(super) fn is_recorded(version: ClusterVersion, write: &Write) -> bool {
    version >= ClusterVersion::WITH_AUDIT && matches!(write, Write::Registry(change) if change.is_audited())
}

/// Wraps a registry change with its caller. [`Write::at`] sets the time.
pub(super) fn recorded(caller: &Caller, write: &Write) -> Write {
    let Write::Registry(change) = write else { return write.clone() };
    let change = RegistryWrite::clone(change);
    let audited = AuditedWrite { at: UnixMillis(0), caller: caller.clone(), change };
    RegistryWrite::Audited(Box::new(audited)).into()
}
