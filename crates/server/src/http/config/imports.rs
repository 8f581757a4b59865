//! Imports: a document into a container, or a whole namespace.
//!
//! Owns how a plain document becomes pairs and fields. A field whose value is unchanged keeps the
//! pairs that it refers to. Any other field gets pairs of the container, `<container>.<field>`, so
//! that an import never changes what other containers resolve to. An import reads the namespace,
//! and publishes on the condition that it is unchanged; otherwise it reads again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidelock_api::config::Done;
use tidelock_core::command::Consistency;
use tidelock_core::command::config::{Change, ConfigOperation, Export, Field, Item, Name, Refers, Value};
use tidelock_core::limits;

use super::super::response::Response;
use super::super::service::Call;
use super::error::ApiError;
use super::formats::{Document, Format, Notes, text_of};
use super::path::parse_key;
use super::queries;
use super::show;
use super::transfer::format;
use super::values::FILE_VALUES_MAX;
use super::writes::{WriteOptions, read_body, submit};
use super::{ask_store, measured_export, offload};
use crate::store::Store;

/// How often an import reads again because the namespace has changed.
const ATTEMPTS_MAX: usize = 8;

/// Reads the body as a file and converts it with `make`. Also returns the length of the file.
async fn read_file<S: Store, T: Send + 'static>(
    call: &mut Call<'_, S>,
    values_max: usize,
    make: impl FnOnce(Format, Value) -> Result<T, ApiError> + Send + 'static,
) -> Result<(T, Notes, usize), ApiError> {
    let format = format(call)?;
    let body = read_body(call).await?;
    let bytes = body.len();
    let read = move || {
        let file = std::str::from_utf8(&body).map_err(|_| ApiError::format("the file is not UTF-8"))?;
        let Document { value, notes } = format.read(file, values_max)?;
        Ok((make(format, value)?, notes, bytes))
    };
    offload(call, bytes, read).await
}

/// The current contents of a namespace; empty if it does not exist.
async fn current<S: Store>(store: &S, namespace: &Name) -> Result<Export, ApiError> {
    match ask_store(store, namespace, queries::export(None), Consistency::Linearizable).await {
        Err(error) if error.is_no_namespace() => Ok(Export {
            revision: 0,
            policy: tidelock_core::command::config::Policy::default(),
            pairs: BTreeMap::new(),
            containers: BTreeMap::new(),
        }),
        export => export,
    }
}

/// Computes the changes of an import from a namespace's current contents.
trait Changes: Send + Sync + 'static {
    fn changes(&self, export: &Export) -> Result<Vec<Change>, ApiError>;
}

/// An import to be published: its namespace, whether it may create that, and the length of its
/// file.
struct Publication<C> {
    namespace: Name,
    create: bool,
    bytes: usize,
    changes: Arc<C>,
}

impl<C: Changes> Publication<C> {
    /// Publishes the changes to the current contents, on the condition that these are still current
    /// then.
    async fn publish<S: Store>(self, call: &Call<'_, S>) -> Result<Done, ApiError> {
        let Publication { namespace, create, bytes, changes: import } = self;
        let mut attempts = 0;
        loop {
            let export = current(call.store(), &namespace).await?;
            let mut options = WriteOptions::of(call)?;
            let asked = options.expected;
            options.expected = Some(asked.unwrap_or(export.revision));
            let import = import.clone();
            let bytes = bytes.max(measured_export(&export));
            let changes = offload(call, bytes, move || import.changes(&export)).await?;
            let operation = ConfigOperation::Publish { changes, create };
            match submit(call.store(), namespace.clone(), options, operation).await {
                Ok(published) => return Ok(published),
                Err(error) if asked.is_none() && error.is_revision_mismatch() && attempts < ATTEMPTS_MAX => {
                    attempts += 1;
                }
                Err(error) => return Err(error),
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
    let (replace, retype) = (call.parameters().flag("replace")?, call.parameters().flag("retype")?);
    let make = move |_, value| super::input::namespace(value, retype);
    let (file, notes, bytes) = read_file(&mut call, FILE_VALUES_MAX, make).await?;
    let changes = Arc::new(NamespaceImport { file, replace });
    let published = Publication { namespace, create: true, bytes, changes }.publish(&call).await?;
    Ok(imported(published, notes))
}

/// The import of an exported namespace.
struct NamespaceImport {
    file: Vec<Change>,
    /// Whether to delete what the file does not contain.
    replace: bool,
}

impl Changes for NamespaceImport {
    fn changes(&self, export: &Export) -> Result<Vec<Change>, ApiError> {
        let mut changes = self.file.clone();
        if self.replace {
            let kept: BTreeSet<Item> = changes.iter().map(item_of).collect();
            let pairs = export.pairs.keys().cloned().map(Item::Pair);
            let all = pairs.chain(export.containers.keys().cloned().map(Item::Container));
            changes.extend(all.filter(|item| !kept.contains(item)).map(Change::Delete));
        }
        Ok(changes)
    }
}

fn item_of(change: &Change) -> Item {
    match change {
        Change::PutPair { key, .. } => Item::Pair(key.clone()),
        Change::PutContainer { key, .. } => Item::Container(key.clone()),
        Change::Delete(item) => item.clone(),
    }
}

/// `POST …/containers/:key/import?format=`: makes the container resolve to the document.
pub(super) async fn import_container<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let (create, retype) = (call.parameters().flag("create")?, call.parameters().flag("retype")?);
    let make = move |format, value| match value {
        Value::Dict(document) if document.len() > limits::CONFIG_FIELDS_MAX => {
            Err(ApiError::format(format!(
                "the document has {} fields, and a container at most {}",
                document.len(),
                limits::CONFIG_FIELDS_MAX
            )))
        }
        Value::Dict(document) => {
            Ok(ContainerImport { container: key, document, has_types: format != Format::Properties, retype })
        }
        _ => Err(ApiError::format("a document is a dict of fields")),
    };
    let (import, notes, bytes) = read_file(&mut call, limits::CONFIG_WRITE_VALUES_MAX, make).await?;
    let publication = Publication { namespace, create, bytes, changes: Arc::new(import) };
    Ok(imported(publication.publish(&call).await?, notes))
}

fn imported(done: Done, notes: Notes) -> Response {
    show::respond(Done { notes: notes.into_lines(), ..done })
}

/// The import of a document into a container.
struct ContainerImport {
    container: Arc<str>,
    document: BTreeMap<Arc<str>, Value>,
    /// Whether the file's format distinguishes text from numbers.
    has_types: bool,
    /// Whether fields may change their datatypes.
    retype: bool,
}

impl Changes for ContainerImport {
    /// The changes that make the container resolve to the document.
    fn changes(&self, export: &Export) -> Result<Vec<Change>, ApiError> {
        let container = &self.container;
        let old = export.containers.get(container);
        let old_fields: BTreeMap<&Arc<str>, &Refers> =
            old.iter().flat_map(|old| &old.fields).map(|field| (&field.key, &field.refers)).collect();
        let mut import = Import { container, export, retype: self.retype, changes: Vec::new() };
        let mut fields = Vec::new();
        for (key, value) in &self.document {
            let key = parse_key(key)?;
            let old = old_fields.get(&key).and_then(|refers| Some((*refers, resolve(refers, export)?)));
            let value = match &old {
                Some((_, old)) if !self.retype => fitted(value, old, self.has_types),
                _ => value.clone(),
            };
            let refers = match old {
                Some((refers, old)) if old == value => refers.clone(),
                _ => import.field(&key, &value)?,
            };
            fields.push(Field { key, refers });
        }
        let used: BTreeSet<&Arc<str>> = fields.iter().flat_map(|field| field.refers.pairs()).collect();
        let own = format!("{container}.");
        let unused = old
            .iter()
            .flat_map(|old| old.pairs())
            .filter(|pair| pair.starts_with(&own) && !used.contains(pair));
        let unused: BTreeSet<Arc<str>> =
            unused.filter(|pair| !is_used_elsewhere(pair, container, export)).cloned().collect();
        let mut changes = import.changes;
        changes.extend(unused.into_iter().map(|pair| Change::Delete(Item::Pair(pair))));
        changes.push(Change::PutContainer { key: container.clone(), fields, retype: self.retype });
        Ok(changes)
    }
}

/// Converts a value to the datatype of the present one if nothing is lost. An int becomes a float;
/// in a format without types, a number or a bool becomes a string.
fn fitted(value: &Value, old: &Value, has_types: bool) -> Value {
    match (value, old) {
        (Value::Int(_), Value::Float(_)) => value.int_as_float().unwrap_or_else(|| value.clone()),
        (Value::Int(_) | Value::Float(_) | Value::Bool(_), Value::Text(_)) if !has_types => {
            Value::text(&text_of(value))
        }
        (Value::List(items), Value::List(old)) => {
            // Items beyond the present ones get the datatype of the last one.
            let item = |(position, item)| match old.get(position).or(old.last()) {
                Some(old) => fitted(item, old, has_types),
                None => Value::clone(item),
            };
            Value::List(items.iter().enumerate().map(item).collect())
        }
        (Value::Dict(entries), Value::Dict(old)) => {
            let entry = |(key, value): (&Arc<str>, &Value)| match old.get(key) {
                Some(old) => (key.clone(), fitted(value, old, has_types)),
                None => (key.clone(), value.clone()),
            };
            Value::Dict(entries.iter().map(entry).collect())
        }
        _ => value.clone(),
    }
}

fn is_used_elsewhere(pair: &Arc<str>, container: &Arc<str>, export: &Export) -> bool {
    let mut others = export.containers.iter().filter(|(key, _)| *key != container);
    others.any(|(_, other)| other.pairs().any(|used| used == pair))
}

/// The value that a field resolves to.
fn resolve(refers: &Refers, export: &Export) -> Option<Value> {
    let value = |pair: &Arc<str>| export.pairs.get(pair).map(|pair| pair.value.clone());
    Some(match refers {
        Refers::One(pair) => value(pair)?,
        Refers::List(pairs) => Value::List(pairs.iter().map(value).collect::<Option<_>>()?),
        Refers::Dict(pairs) => {
            let entry = |(name, pair): (&Arc<str>, &Arc<str>)| Some((name.clone(), value(pair)?));
            Value::Dict(pairs.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}

/// Converts fields to pairs of the container.
struct Import<'a> {
    container: &'a Arc<str>,
    export: &'a Export,
    retype: bool,
    changes: Vec<Change>,
}

impl Import<'_> {
    /// Gives a value that one pair can hold one pair. A list or a dict that no pair can hold gets a
    /// pair for each of its items.
    fn field(&mut self, field: &Arc<str>, value: &Value) -> Result<Refers, ApiError> {
        match (value.validate(), value) {
            (Ok(()), value) => Ok(Refers::One(self.pair(field, value)?)),
            (Err(_), Value::List(items)) => {
                let items = items.iter().enumerate();
                let pairs = items.map(|(position, item)| self.pair(&format!("{field}.{position}"), item));
                Ok(Refers::List(pairs.collect::<Result<_, ApiError>>()?))
            }
            (Err(_), Value::Dict(entries)) => {
                let pairs = entries
                    .iter()
                    .map(|(name, item)| Ok((parse_key(name)?, self.pair(&format!("{field}.{name}"), item)?)));
                Ok(Refers::Dict(pairs.collect::<Result<_, ApiError>>()?))
            }
            (Err(error), _) => Err(ApiError::value(format!("field {field:?}: {error}"))),
        }
    }

    fn pair(&mut self, name: &str, value: &Value) -> Result<Arc<str>, ApiError> {
        value.validate().map_err(|error| ApiError::value(format!("{name:?}: {error}")))?;
        let key = parse_key(&format!("{}.{name}", self.container))?;
        let is_other = self.export.pairs.get(&key).is_some_and(|pair| pair.value != *value);
        if is_other && is_used_elsewhere(&key, self.container, self.export) {
            let text = format!("pair {key:?} would change, and another container uses it");
            return Err(ApiError::format(text));
        }
        let (value, retype) = (value.clone(), self.retype);
        self.changes.push(Change::PutPair { key: key.clone(), value, retype });
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_json(json: &str) -> Value {
        Format::Json.read(json, 100).unwrap().value
    }

    #[test]
    fn values_fit_what_stands_there_where_that_loses_nothing() {
        // The file's value, the present value, the result with types, the result without types.
        for (value, old, typed, untyped) in [
            ("2", "1.5", "2.0", "2.0"),
            ("1.5", "2", "1.5", "1.5"),
            ("2", "\"1.10\"", "2", "\"2\""),
            ("1.2", "\"1.10\"", "1.2", "\"1.2\""),
            ("true", "\"x\"", "true", "\"true\""),
            ("\"30s\"", "30", "\"30s\"", "\"30s\""),
            ("null", "\"x\"", "null", "null"),
            ("[1,2,3]", "[\"x\"]", "[1,2,3]", "[\"1\",\"2\",\"3\"]"),
            ("[1]", "[]", "[1]", "[1]"),
            ("[1,2]", "[0.5]", "[1.0,2.0]", "[1.0,2.0]"),
            ("{\"a\":1,\"b\":1}", "{\"a\":\"x\"}", "{\"a\":1,\"b\":1}", "{\"a\":\"1\",\"b\":1}"),
        ] {
            let (value, old) = (of_json(value), of_json(old));
            assert_eq!(fitted(&value, &old, true).to_json(), typed);
            assert_eq!(fitted(&value, &old, false).to_json(), untyped);
        }
    }
}
