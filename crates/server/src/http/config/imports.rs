//! Imports: a document into a container, or a whole namespace.
//!
//! Owns the parameters, and parsing files on the documents thread. `core::clients::import` decides
//! what an import changes, and publishes it.

use std::sync::Arc;

use tidelock_core::clients::import::{
    ContainerDocument, ImportAction, ImportContent, ImportOutcome, ImportRequest, ImportTarget, Promotion,
};
use tidelock_core::command::config::{Name, Value};
use tidelock_core::deliberate::Faults;
use tidelock_core::limits;

use super::super::response::Response;
use super::super::service::Call;
use super::error::ApiError;
use super::formats::{Document, Format, Notes};
use super::secrets::{self, Sealer};
use super::show;
use super::transfer::format;
use super::values::FILE_VALUES_MAX;
use super::writes::{WriteOptions, check_stamp, draft, is_dry_run, read_body, show_preview};
use super::{measured_export, offload};
use crate::store::Store;

/// A file that was parsed.
struct ParsedFile {
    content: ImportContent,
    notes: Notes,
    bytes: usize,
}

/// Reads the body as a file and converts it with `make`.
async fn read_file<S: Store>(
    call: &mut Call<'_, S>,
    values_max: usize,
    make: impl FnOnce(Format, Value) -> Result<ImportContent, ApiError> + Send + 'static,
) -> Result<ParsedFile, ApiError> {
    let format = format(call)?;
    let body = read_body(call).await?;
    let bytes = body.len();
    let read = move || {
        let file = std::str::from_utf8(&body).map_err(|_| ApiError::format("the file is not UTF-8"))?;
        let Document { value, notes } = format.read(file, values_max)?;
        Ok(ParsedFile { content: make(format, value)?, notes, bytes })
    };
    offload(call, bytes, read).await
}

/// Executes an import. Comparisons of large content run on the documents thread.
async fn import<S: Store>(
    call: &Call<'_, S>,
    namespace: Name,
    create: bool,
    file: ParsedFile,
) -> Result<Response, ApiError> {
    let options = WriteOptions::of(call)?;
    run(call, (namespace, create), options, file).await
}

async fn run<S: Store>(
    call: &Call<'_, S>,
    (namespace, create): (Name, bool),
    WriteOptions { stamp, expected, .. }: WriteOptions,
    file: ParsedFile,
) -> Result<Response, ApiError> {
    check_stamp(&stamp)?;
    let ParsedFile { content, notes, bytes } = file;
    let mut notes = notes.into_lines();
    match &content {
        ImportContent::Namespace { file, .. } => notes.extend(secrets::notes(file)),
        ImportContent::Promotion(promotion) => {
            let note = |key| format!("pair {key:?}: a secret is not taken over; set it in {namespace}");
            notes.extend(promotion.secrets().map(note));
        }
        ImportContent::Container(_) => {}
    }
    let (is_dry_run, draft) = (is_dry_run(call)?, draft(call)?);
    let target = ImportTarget { namespace, create, stamp, expected, is_dry_run, draft };
    let (mut import, mut action) = ImportRequest::begin(target, content, Faults::NONE);
    loop {
        action = match action {
            ImportAction::Ask(request) => import.answered(call.store().submit(request).await),
            ImportAction::Run(job) => {
                let bytes = bytes.max(measured_export(job.export()));
                match call.context.offload.run(bytes, move || job.run()).await {
                    Ok(changes) => import.finished(changes, call.context.clock.now()),
                    Err(_) => import.refused(),
                }
            }
            ImportAction::Done(result) => {
                return match result? {
                    ImportOutcome::Written(written) => Ok(show::respond(show::written(written, notes))),
                    ImportOutcome::Previewed(preview) => show_preview(call, preview, notes).await,
                };
            }
        }
    }
}

/// `POST /namespaces/:ns/import?format=&replace=`: imports an exported namespace. Creates the
/// namespace if it does not exist; `replace` deletes what the file does not contain.
pub(super) async fn import_namespace<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
) -> Result<Response, ApiError> {
    let (replaces, retype) = (call.parameters().flag("replace")?, call.parameters().flag("retype")?);
    let sealer = Sealer::of(&call, &namespace);
    let make = move |_, value| {
        let file = super::input::namespace(value, (retype, &sealer))?;
        Ok(ImportContent::Namespace { file, replaces })
    };
    let file = read_file(&mut call, FILE_VALUES_MAX, make).await?;
    import(&call, namespace, true, file).await
}

/// Gives a namespace the content of another one.
pub(super) async fn promote<S: Store>(
    call: &Call<'_, S>,
    namespace: Name,
    options: WriteOptions,
    promotion: Promotion,
) -> Result<Response, ApiError> {
    let bytes = measured_export(&promotion.from);
    let file = ParsedFile { content: ImportContent::Promotion(promotion), notes: Notes::default(), bytes };
    run(call, (namespace, false), options, file).await
}

/// `POST …/containers/:key/import?format=`: makes the container resolve to the document.
pub(super) async fn import_container<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let (create, retype) = (call.parameters().flag("create")?, call.parameters().flag("retype")?);
    let make = move |format, value| {
        let has_types = format != Format::Properties;
        Ok(ImportContent::Container(ContainerDocument::new(key, value, has_types, retype)?))
    };
    let file = read_file(&mut call, limits::CONFIG_WRITE_VALUES_MAX, make).await?;
    import(&call, namespace, create, file).await
}
