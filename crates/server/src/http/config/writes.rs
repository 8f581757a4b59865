//! Changes of configuration. Each is one command, answered with the namespace's resulting revision.

use std::sync::Arc;

use tidelock_core::command::config::{
    Change, ConfigOperation, ConfigPreview, DraftAction, DraftStep, Item, Name, Policy, Schema, Stamp,
};
use tidelock_core::command::{ConfigWrite, Consistency};
use tidelock_core::limits;

use super::super::body::BodyLimit;
use super::super::response::{self, Response};
use super::super::service::Call;
use super::error::ApiError;
use super::input::{self, Object};
use super::path::parse_key;
use super::queries;
use super::secrets::{self, Sealer};
use super::show;
use super::{ask_store, measured_preview, number, offload, stamp, state_author, text};
use crate::requests;
use crate::store::Store;

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Author, message and expected revision of a change.
pub(super) struct WriteOptions {
    pub stamp: Stamp,
    pub expected: Option<u64>,
    /// What the answer says of the body.
    pub notes: Vec<String>,
}

impl WriteOptions {
    pub fn of<S: Store>(call: &Call<'_, S>) -> Result<WriteOptions, ApiError> {
        let expected = number(call.parameters(), "expected")?;
        Ok(WriteOptions { stamp: stamp(call)?, expected, notes: Vec::new() })
    }

    /// Takes them from the body, or else from the parameters.
    pub fn with_body<S: Store>(call: &Call<'_, S>, body: BodyTerms) -> Result<WriteOptions, ApiError> {
        let mut options = WriteOptions::of(call)?;
        if let Some(author) = body.author {
            state_author(&mut options.stamp, author, call.identity());
        }
        if let Some(message) = body.message {
            options.stamp.message = message;
        }
        options.expected = body.expected.or(options.expected);
        Ok(options)
    }
}

/// The same fields in a body.
pub(super) struct BodyTerms {
    author: Option<Arc<str>>,
    message: Option<Arc<str>>,
    expected: Option<u64>,
}

impl BodyTerms {
    pub fn take(object: &mut Object) -> Result<BodyTerms, ApiError> {
        Ok(BodyTerms {
            author: object.text("author")?,
            message: object.text("message")?,
            expected: object.number("expected")?,
        })
    }
}

/// Whether a request only asks what its change would do.
pub(super) fn is_dry_run<S: Store>(call: &Call<'_, S>) -> Result<bool, ApiError> {
    Ok(call.parameters().flag("dry_run")?)
}

/// The draft to which a request adds its changes; `None`: they are published.
pub(super) fn draft<S: Store>(call: &Call<'_, S>) -> Result<Option<Arc<str>>, ApiError> {
    let Some(draft) = text(call.parameters(), "draft")? else { return Ok(None) };
    if is_dry_run(call)? {
        return Err(ApiError::invalid(
            "of dry_run and draft only one can be: a draft shows what it would do",
        ));
    }
    parse_key(&draft).map(Some)
}

/// The operation that adds another one to a draft.
fn in_draft(draft: Arc<str>, operation: ConfigOperation) -> Result<ConfigOperation, ApiError> {
    let step = match operation {
        ConfigOperation::Publish { changes, .. } => DraftStep::Publish(changes),
        ConfigOperation::Rollback { to, item } => DraftStep::Rollback { to, item },
        _ => return Err(ApiError::invalid("a draft holds changes of pairs and containers, and rollbacks")),
    };
    Ok(ConfigOperation::Draft { draft, action: DraftAction::Edit(step) })
}

/// Checks the lengths of author and message.
pub(super) fn check_stamp(stamp: &Stamp) -> Result<(), ApiError> {
    let longest = stamp.author.chars().count().max(stamp.on_behalf_of.chars().count());
    if longest > limits::CONFIG_AUTHOR_CHARACTERS_MAX {
        let max = limits::CONFIG_AUTHOR_CHARACTERS_MAX;
        return Err(ApiError::invalid(format!("author is longer than {max} characters")));
    }
    if stamp.message.chars().count() > limits::CONFIG_MESSAGE_CHARACTERS_MAX {
        let max = limits::CONFIG_MESSAGE_CHARACTERS_MAX;
        return Err(ApiError::invalid(format!("message is longer than {max} characters")));
    }
    Ok(())
}

/// Submits a change, or asks what it would do, and shows the answer.
pub(super) async fn submit_and_show<S: Store>(
    call: &Call<'_, S>,
    namespace: Name,
    options: WriteOptions,
    operation: ConfigOperation,
) -> Result<Response, ApiError> {
    let WriteOptions { stamp, expected, mut notes } = options;
    check_stamp(&stamp)?;
    if let ConfigOperation::Publish { changes, .. } = &operation {
        notes.extend(secrets::notes(changes));
    }
    let operation = match draft(call)? {
        Some(draft) => in_draft(draft, operation)?,
        None => operation,
    };
    if is_dry_run(call)? {
        let query = queries::preview(operation, expected);
        let preview = ask_store(call.store(), &namespace, query, Consistency::Linearizable).await?;
        return show_preview(call, preview, notes).await;
    }
    let write = ConfigWrite { namespace, stamp, expected, operation };
    let written = call.store().ask(requests::write_config(write)).await???;
    Ok(show::respond(show::written(written, notes)))
}

/// Shows what a change would do.
pub(super) async fn show_preview<S: Store>(
    call: &Call<'_, S>,
    preview: ConfigPreview,
    mut notes: Vec<String>,
) -> Result<Response, ApiError> {
    notes.extend(secrets::effects(&preview, call.context.secret_keys.keyring().as_deref()));
    let bytes = measured_preview(&preview);
    let write = move || Ok(show::success(show::preview(&preview, notes)));
    Ok(response::json(offload(call, bytes, write).await?))
}

pub(super) async fn read_body<S: Store>(call: &mut Call<'_, S>) -> Result<bytes::Bytes, ApiError> {
    let limit = call.context.options.body_bytes_max;
    Ok(call.read_body(BodyLimit::Form(limit)).await?)
}

/// Longest body of a rollback or a policy, in bytes: a message of 1,024 characters, all of them
/// escaped, and some numbers. The worker itself parses it.
const SHORT_BODY_BYTES_MAX: usize = 16 << 10;

pub(super) async fn read_short_body<S: Store>(call: &mut Call<'_, S>) -> Result<bytes::Bytes, ApiError> {
    let limit = call.context.options.body_bytes_max.min(SHORT_BODY_BYTES_MAX);
    Ok(call.read_body(BodyLimit::Form(limit)).await?)
}

/// `POST /namespaces/:ns`.
pub(super) async fn create<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let options = WriteOptions::of(&call)?;
    submit_and_show(&call, namespace, options, ConfigOperation::Create).await
}

/// `DELETE /namespaces/:ns?force=`.
pub(super) async fn delete_namespace<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
) -> Result<Response, ApiError> {
    let (options, force) = (WriteOptions::of(&call)?, call.parameters().flag("force")?);
    submit_and_show(&call, namespace, options, ConfigOperation::Delete { force }).await
}

/// `POST /namespaces/:ns/pairs/:key` and `…/containers/:key`: creates or replaces.
pub(super) async fn put<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    item: Item,
) -> Result<Response, ApiError> {
    let mut options = WriteOptions::of(&call)?;
    let retype = call.parameters().flag("retype")?;
    let body = read_body(&mut call).await?;
    let sealer = Sealer::of(&call, &namespace);
    let read = move |body: &[u8]| match item {
        Item::Pair(key) => {
            let (value, notes) = input::json("a pair", body)?;
            Ok((input::pair(key, Object::of("a pair", value)?, (retype, &sealer))?, notes.into_lines()))
        }
        Item::Container(key) => {
            let changes = input::container(key, Object::of_json("a container", body)?, retype)?;
            Ok((changes, Vec::new()))
        }
    };
    let changes;
    (changes, options.notes) = offload(&call, body.len(), move || read(&body)).await?;
    let operation = ConfigOperation::Publish { changes, create: call.parameters().flag("create")? };
    submit_and_show(&call, namespace, options, operation).await
}

/// `DELETE /namespaces/:ns/pairs/:key` and `…/containers/:key`.
pub(super) async fn delete<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    item: Item,
) -> Result<Response, ApiError> {
    let options = WriteOptions::of(&call)?;
    let operation = ConfigOperation::Publish { changes: vec![Change::Delete(item)], create: false };
    submit_and_show(&call, namespace, options, operation).await
}

/// `POST …/schema`: sets the schema of a pair or a container.
pub(super) async fn set_schema<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    item: Item,
) -> Result<Response, ApiError> {
    let options = WriteOptions::of(&call)?;
    let body = read_body(&mut call).await?;
    let schema = offload(&call, body.len(), move || input::schema(input::json("a schema", &body)?.0)).await?;
    change_schema(&call, (namespace, item), options, Some(schema)).await
}

/// `DELETE …/schema`.
pub(super) async fn delete_schema<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    item: Item,
) -> Result<Response, ApiError> {
    let options = WriteOptions::of(&call)?;
    change_schema(&call, (namespace, item), options, None).await
}

async fn change_schema<S: Store>(
    call: &Call<'_, S>,
    (namespace, item): (Name, Item),
    options: WriteOptions,
    schema: Option<Arc<Schema>>,
) -> Result<Response, ApiError> {
    let changes = vec![Change::SetSchema { item, schema }];
    submit_and_show(call, namespace, options, ConfigOperation::Publish { changes, create: false }).await
}

/// `POST /namespaces/:ns/publish {"changes":[…],"author","message","expected","create","retype"}`.
pub(super) async fn publish<S: Store>(mut call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let body = read_body(&mut call).await?;
    let publication = offload(&call, body.len(), {
        let retype = call.parameters().flag("retype")?;
        let sealer = Sealer::of(&call, &namespace);
        move || Publication::of_body(&body, retype, &sealer)
    });
    let Publication { options, changes, create, notes } = publication.await?;
    let options = WriteOptions { notes, ..WriteOptions::with_body(&call, options)? };
    let create = create || call.parameters().flag("create")?;
    submit_and_show(&call, namespace, options, ConfigOperation::Publish { changes, create }).await
}

struct Publication {
    options: BodyTerms,
    changes: Vec<Change>,
    create: bool,
    notes: Vec<String>,
}

impl Publication {
    fn of_body(body: &[u8], retype: bool, sealer: &Sealer) -> Result<Publication, ApiError> {
        let (value, notes) = input::json("a publication", body)?;
        let mut object = Object::of("a publication", value)?;
        let options = BodyTerms::take(&mut object)?;
        let changes =
            object.list("changes")?.ok_or_else(|| ApiError::invalid("a publication has no changes"))?;
        let create = object.flag("create")?;
        let retype = object.flag("retype")? || retype;
        object.finish()?;
        let numbered = changes.into_iter().enumerate().map(|(position, change)| {
            input::change(change, (retype, sealer)).map_err(|error| error.at(&format!("change {position}")))
        });
        let changes = numbered.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        Ok(Publication { options, changes, create, notes: notes.into_lines() })
    }
}

/// `POST …/rollback {"revision":…,"author","message","expected"}`, of a namespace or of one item.
pub(super) async fn roll_back<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    item: Option<Item>,
) -> Result<Response, ApiError> {
    let body = read_short_body(&mut call).await?;
    let mut object = Object::of_json("a rollback", &body)?;
    let mut options = WriteOptions::with_body(&call, BodyTerms::take(&mut object)?)?;
    let to = object.number("revision")?.ok_or_else(|| ApiError::invalid("a rollback has no revision"))?;
    object.finish()?;
    let operation = ConfigOperation::Rollback { to, item };
    if !is_dry_run(&call)? {
        let query = queries::preview(operation.clone(), options.expected);
        // The notes are optional. A client with the permission to write but not to read gets none,
        // and for any other error of the preview the rollback below fails too.
        if let Ok(preview) = ask_store(call.store(), &namespace, query, Consistency::Linearizable).await {
            options.notes = secrets::effects(&preview, call.context.secret_keys.keyring().as_deref());
        }
    }
    submit_and_show(&call, namespace, options, operation).await
}

/// `POST /namespaces/:ns/policy {"revisions":…,"days":…}`, or `"ageMs"` for `"days"`; absent fields
/// keep their values.
pub(super) async fn set_policy<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
) -> Result<Response, ApiError> {
    let body = read_short_body(&mut call).await?;
    let mut object = Object::of_json("a policy", &body)?;
    let options = WriteOptions::with_body(&call, BodyTerms::take(&mut object)?)?;
    let (revisions, days, age_ms) =
        (object.number("revisions")?, object.number("days")?, object.number("ageMs")?);
    object.finish()?;
    let view = super::ask(&call, &namespace, queries::namespace()).await?;
    let policy = Policy {
        revisions: revisions.unwrap_or(view.policy.revisions),
        age_ms: age_ms.or(days.map(|days| days.saturating_mul(DAY_MS))).unwrap_or(view.policy.age_ms),
    };
    let range = limits::CONFIG_HISTORY_REVISIONS_MIN..=limits::CONFIG_HISTORY_REVISIONS_MAX;
    if !range.contains(&policy.revisions) || policy.age_ms == 0 {
        let (min, max) = (range.start(), range.end());
        return Err(ApiError::invalid(format!("a policy keeps {min} to {max} revisions, for at least 1 ms")));
    }
    submit_and_show(&call, namespace, options, ConfigOperation::SetPolicy(policy)).await
}
