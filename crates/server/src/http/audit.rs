//! `/v1/audit`: the audit records; and records of administrative actions that change no registry
//! table.

use tidelock_api::audit as api;
use tidelock_core::audit::AuditRecord;
use tidelock_core::auth::Caller;
use tidelock_core::command::{AdminAction, Denial, Refusal, RegistryWrite};
use uuid::Uuid;

use super::membership::denied;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use super::uri;
use crate::requests::{self, NoAnswer};
use crate::store::Store;

/// Default of `limit`.
const DEFAULT_LIMIT: usize = 20;

pub(super) async fn answer<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let limit = number(&call, "limit")?.map_or(Ok(DEFAULT_LIMIT), usize::try_from);
    let limit = limit.ok().filter(|limit| (1..=api::LISTED_MAX).contains(limit));
    let limit = limit.ok_or_else(|| Problem::invalid("limit must be from 1 to 1000"))?;
    let before = number(&call, "before")?;
    let records = call.ask(requests::audit(before, limit)).await?;
    let records: Vec<api::AuditRecord> = records.iter().map(|record| shown(record)).collect();
    let oldest = records.last().map(|record| record.sequence);
    let before = oldest.filter(|&oldest| oldest > 1 && records.len() == limit);
    let body = serde_json::to_vec(&api::AuditRecords { records, before });
    Ok(response::json(body.expect("invariant: numbers and texts are JSON")))
}

fn number<S: Store>(call: &Call<'_, S>, name: &str) -> Result<Option<u64>, Problem> {
    let Some(digits) = call.parameters().get(name)? else { return Ok(None) };
    let number = uri::parse_u64(&digits);
    Ok(Some(number.ok_or_else(|| Problem::invalid(format!("{name} must be a number")))?))
}

fn shown(record: &AuditRecord) -> api::AuditRecord {
    let AuditRecord { sequence, index: _, at, caller, action, subject } = record;
    let (caller, principal) = match caller {
        Caller::Principal(name) => ("principal", Some(name.to_string())),
        Caller::Anonymous => ("anonymous", None),
        Caller::Node => ("node", None),
    };
    api::AuditRecord {
        sequence: *sequence,
        at_unix_ms: at.0,
        caller: caller.into(),
        principal,
        action: action.clone(),
        subject: subject.clone(),
    }
}

/// Writes an audit record before an action begins. On an error the action must not begin.
///
/// # Errors
/// When the record is not known to be committed.
pub(super) async fn announce<S: Store>(call: &Call<'_, S>, action: AdminAction) -> Result<(), Problem> {
    let request = requests::change_registry(RegistryWrite::Announce(action));
    match call.store().ask(request).await {
        // Some hosts run a release without audit records.
        Ok(Ok(()) | Err(Denial::VersionTooLow)) => Ok(()),
        Ok(Err(denial)) => Err(denied(denial)),
        // The record may be committed, but the action has not begun.
        Err(NoAnswer::Refused(Refusal::UnknownOutcome)) => Err(Problem::new(
            ProblemKind::NoLeader,
            "nothing was done: the record of who asks for this was not committed in time; look whether a majority of the nodes \
             can write",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Writes an audit record for a restore, unless the same caller has one for this backup: a restore
/// takes many requests.
///
/// # Errors
/// As [`announce`].
pub(super) async fn announce_restore<S: Store>(call: &Call<'_, S>, backup: Uuid) -> Result<(), Problem> {
    let change = RegistryWrite::Announce(AdminAction::RestoreBackup { backup });
    let (action, subject) = (change.audit_action().unwrap_or_default(), change.audit_subject());
    let caller = call.identity().caller();
    let is_same = |record: &AuditRecord| {
        (&record.caller, record.action.as_str(), &record.subject) == (&caller, action, &subject)
    };
    let newest = call.ask(requests::audit(None, api::LISTED_MAX)).await?;
    if newest.iter().any(|record| is_same(record)) {
        return Ok(());
    }
    announce(call, AdminAction::RestoreBackup { backup }).await
}
