//! Drafts: changes that are reviewed before they are published, and that a part of the readers may
//! see first.
//!
//! A request that changes pairs or containers adds to a draft if it names one (`writes`,
//! `imports`).

use std::sync::Arc;

use tidelock_api::drafts as api;
use tidelock_core::command::config::{Audience, ConfigOperation, DraftAction, Name};

use super::super::response::{self, Response};
use super::super::service::Call;
use super::error::ApiError;
use super::input::Object;
use super::writes::{BodyTerms, WriteOptions, read_short_body, submit_and_show};
use super::{ask, measured_preview, offload, queries, show};
use crate::store::Store;

/// `GET …/drafts`.
pub(super) async fn drafts<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let drafts = ask(&call, &namespace, queries::drafts()).await?;
    let drafts = drafts.iter().map(|(name, draft)| show::listed_draft(name, draft));
    Ok(show::respond(drafts.collect::<Vec<api::ListedDraft>>()))
}

/// `GET …/drafts/:name`: the draft, and what publishing it would do.
pub(super) async fn draft<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    name: Arc<str>,
) -> Result<Response, ApiError> {
    let view = ask(&call, &namespace, queries::draft(name.clone())).await?;
    let bytes = view.effect.as_ref().map_or(0, measured_preview);
    let write = move || Ok(show::success(show::draft(&name, &view)));
    Ok(response::json(offload(&call, bytes, write).await?))
}

/// Submits an action on a draft.
async fn submit<S: Store>(
    call: &Call<'_, S>,
    (namespace, draft): (Name, Arc<str>),
    options: WriteOptions,
    action: DraftAction,
) -> Result<Response, ApiError> {
    submit_and_show(call, namespace, options, ConfigOperation::Draft { draft, action }).await
}

/// `DELETE …/drafts/:name`.
pub(super) async fn discard<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    name: Arc<str>,
) -> Result<Response, ApiError> {
    let options = WriteOptions::of(&call)?;
    submit(&call, (namespace, name), options, DraftAction::Discard).await
}

/// The body of an action on a draft, which may be empty: its terms and what `take` makes of the
/// rest.
async fn body<S: Store, T>(
    call: &mut Call<'_, S>,
    what: &'static str,
    take: impl FnOnce(&mut Object) -> Result<T, ApiError>,
) -> Result<(WriteOptions, T), ApiError> {
    let body = read_short_body(call).await?;
    let body: &[u8] = if body.is_empty() { b"{}" } else { &body };
    let mut object = Object::of_json(what, body)?;
    let options = WriteOptions::with_body(call, BodyTerms::take(&mut object)?)?;
    let taken = take(&mut object)?;
    object.finish()?;
    Ok((options, taken))
}

/// `POST …/drafts/:name/comments {"message":…}`.
pub(super) async fn comment<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    name: Arc<str>,
) -> Result<Response, ApiError> {
    let (options, ()) = body(&mut call, "a comment", |_| Ok(())).await?;
    submit(&call, (namespace, name), options, DraftAction::Comment).await
}

/// `POST …/drafts/:name/approve {"edits":…}`.
pub(super) async fn approve<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    name: Arc<str>,
) -> Result<Response, ApiError> {
    let take = |object: &mut Object| {
        let missing = || ApiError::invalid("an approval has no edits: those of the draft that was reviewed");
        object.number("edits")?.ok_or_else(missing)
    };
    let (options, edits) = body(&mut call, "an approval", take).await?;
    submit(&call, (namespace, name), options, DraftAction::Approve { edits }).await
}

/// `POST …/drafts/:name/publish {"edits":…}`.
pub(super) async fn publish<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    name: Arc<str>,
) -> Result<Response, ApiError> {
    let (options, edits) = body(&mut call, "a publication", |object| object.number("edits")).await?;
    submit(&call, (namespace, name), options, DraftAction::Publish { edits }).await
}

/// `POST …/drafts/:name/canary {"labels":[…],"percent":…,"edits":…}`.
pub(super) async fn begin_canary<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    name: Arc<str>,
) -> Result<Response, ApiError> {
    let take = |object: &mut Object| {
        let labels = object.texts("labels")?.unwrap_or_default();
        let percent = object.number("percent")?.unwrap_or(0);
        let percent = u8::try_from(percent).map_err(|_| ApiError::invalid("percent is 0 to 100"))?;
        Ok((object.number("edits")?, Audience { labels, percent }))
    };
    let (options, (edits, audience)) = body(&mut call, "a canary", take).await?;
    submit(&call, (namespace, name), options, DraftAction::Canary { edits, audience }).await
}

/// `DELETE …/canary`.
pub(super) async fn withdraw<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let options = WriteOptions::of(&call)?;
    submit_and_show(&call, namespace, options, ConfigOperation::Withdraw).await
}
