//! Environments: namespaces that inherit from others, their comparison, and taking content over
//! from one to another.

use tidelock_core::clients::import::Promotion;
use tidelock_core::command::config::{ConfigOperation, Name};

use super::super::response::{self, Response};
use super::super::service::Call;
use super::error::ApiError;
use super::input::Object;
use super::reads::{AtRevision, show_namespace_diff};
use super::writes::{BodyTerms, WriteOptions, read_short_body, submit_and_show};
use super::{ask, imports, measured_export, number, offload, path, queries, show, text};
use crate::store::Store;

/// `GET …/inheritance`.
pub(super) async fn inheritance<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let inheritance = ask(&call, &namespace, queries::inheritance()).await?;
    Ok(show::respond(show::inheritance(&inheritance)))
}

/// `POST …/parents {"parents":[…]}`.
pub(super) async fn set_parents<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
) -> Result<Response, ApiError> {
    let body = read_short_body(&mut call).await?;
    let mut object = Object::of_json("a list of parents", &body)?;
    let options = WriteOptions::with_body(&call, BodyTerms::take(&mut object)?)?;
    let parents = object.texts("parents")?.ok_or_else(|| ApiError::invalid("the body has no parents"))?;
    object.finish()?;
    let parents = parents.iter().map(|parent| path::parse_name(parent)).collect::<Result<_, _>>()?;
    submit_and_show(&call, namespace, options, ConfigOperation::SetParents { parents }).await
}

/// `POST …/protection {"protected":…}`.
pub(super) async fn set_protection<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
) -> Result<Response, ApiError> {
    let body = read_short_body(&mut call).await?;
    let mut object = Object::of_json("a protection", &body)?;
    let options = WriteOptions::with_body(&call, BodyTerms::take(&mut object)?)?;
    let is_protected = object.required_flag("protected")?;
    object.finish()?;
    submit_and_show(&call, namespace, options, ConfigOperation::SetProtected(is_protected)).await
}

/// `GET …/compare?with=&revision=&with_revision=`: what would change if the namespace had the
/// content of the other one.
pub(super) async fn compare<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let parameters = call.parameters();
    let other = text(parameters, "with")?.ok_or_else(|| ApiError::invalid("with must be a namespace"))?;
    let other = path::parse_name(&other)?;
    let (at, other_at) = (number(parameters, "revision")?, number(parameters, "with_revision")?);
    let before = ask(&call, &namespace, queries::export(at)).await?;
    let after = ask(&call, &other, queries::export(other_at)).await?;
    let bytes = measured_export(&before).max(measured_export(&after));
    let before = AtRevision { revision: before.revision, content: before };
    let after = AtRevision { revision: after.revision, content: after };
    let write = move || Ok(show::success(show_namespace_diff(&before, &after)));
    Ok(response::json(offload(&call, bytes, write).await?))
}

/// `POST …/promote {"from":…,"revision":…,"keys":[…],"prune":…,"retype":…}`: takes over what
/// another namespace has.
pub(super) async fn promote<S: Store>(mut call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let body = read_short_body(&mut call).await?;
    let mut object = Object::of_json("a promotion", &body)?;
    let options = WriteOptions::with_body(&call, BodyTerms::take(&mut object)?)?;
    let from = object.text("from")?.ok_or_else(|| ApiError::invalid("from must be a namespace"))?;
    let (from, at) = (path::parse_name(&from)?, object.number("revision")?);
    let keys = object.texts("keys")?.map(|keys| keys.into_iter().collect());
    let (prunes, retype) = (object.flag("prune")?, object.flag("retype")?);
    object.finish()?;
    let from = ask(&call, &from, queries::export(at)).await?;
    imports::promote(&call, namespace, options, Promotion { from, keys, prunes, retype }).await
}
