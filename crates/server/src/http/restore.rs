//! `/v1/restore`: writes the keys of a backup into a cluster without other data.
//!
//! Owns the parameters and the texts of refusals. `core::clients::restore` decides which part of a
//! body goes to which shard.

use hyper::StatusCode;
use tidelock_core::clients::restore::{RestoreBody, RestoreFailure, RestoreRequest};
use tidelock_core::command::RowLayout;
use tidelock_core::types::Version;
use uuid::Uuid;

use super::audit;
use super::body::BodyLimit;
use super::drive;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use super::uri::{self, Parameters};
use crate::store::Store;

pub(super) async fn answer<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let (backup, revision) = parameters(call.parameters())?;
    audit::announce_restore(&call, backup).await?;
    let (expiring, discards) = (call.parameters().flag("expiring")?, call.parameters().flag("discard")?);
    let layout = if expiring { RowLayout::Expiring } else { RowLayout::Plain };
    let bytes = call.read_body(BodyLimit::Form(call.context.options.body_bytes_max)).await?;
    let body = RestoreBody { backup, revision, layout, discards, bytes };
    let (mut restore, action) = RestoreRequest::begin(body);
    drive::until_done(call.store(), action, |replies| restore.answered(replies)).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

impl From<RestoreFailure> for Problem {
    fn from(failure: RestoreFailure) -> Problem {
        match failure {
            RestoreFailure::NotEmpty => Problem::new(
                ProblemKind::NotEmpty,
                "the cluster has been written to by something else than this restore; a backup goes into a fresh \
                 cluster. If that was only another restore, discard=true removes what it has brought",
            ),
            RestoreFailure::Keys(_) | RestoreFailure::Config(_) => Problem::invalid(failure.to_string()),
            RestoreFailure::Unanswered(error) => error.into(),
        }
    }
}

fn parameters(parameters: Parameters<'_>) -> Result<(Uuid, Version), Problem> {
    let backup = parameters.get("backup")?;
    let backup = backup.and_then(|text| Uuid::try_parse_ascii(&text).ok());
    let backup = backup.ok_or_else(|| Problem::invalid("backup must be the UUID of the backup"))?;
    let revision = parameters.get("revision")?.and_then(|digits| uri::parse_u64(&digits));
    let revision = revision.ok_or_else(|| Problem::invalid("revision must be a number of 64 bits"))?;
    Ok((backup, Version(revision)))
}
