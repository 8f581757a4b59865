//! Files in and out: a container's document in the formats that programs read, a whole namespace as one file.
//!
//! Owns how a plain document becomes pairs and fields again. A field whose value stays keeps the pairs that it refers to;
//! any other gets pairs of the container's own, `<container>.<field>`, so that an import never changes what other
//! containers resolve to. An import reads, and publishes on the condition that nothing came between; if something did, it
//! reads again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tidelock_core::command::Consistency;
use tidelock_core::command::config::{
    Change, ConfigReply, Deed, Export, Field, Found, Item, Name, Query, Refers, Value,
};

use super::super::response::{self, Response};
use super::super::service::Call;
use super::error::ApiError;
use super::formats::{Document, Format, Notes};
use super::path::parse_key;
use super::reads;
use super::show::Show;
use super::writes::{Terms, done, read_body, submit};
use super::{ask_store, text};
use crate::store::Store;

/// How often an import reads anew because something came between.
const ATTEMPTS_MAX: usize = 8;

fn format<S: Store>(call: &Call<'_, S>) -> Result<Format, ApiError> {
    Format::of(&text(call.parameters(), "format")?.unwrap_or_else(|| "json".into()))
}

/// What a container resolves to, as a tree. A list or a dict of pairs may mix datatypes there.
pub(super) fn tree(found: &Found) -> Value {
    let value = |key: &Arc<str>| found.pairs.get(key).map_or(Value::Empty, |pair| pair.value.clone());
    let fields = found.container.fields.iter().map(|field| {
        let value = match &field.refers {
            Refers::One(pair) => value(pair),
            Refers::List(pairs) => Value::List(pairs.iter().map(value).collect()),
            Refers::Dict(pairs) => {
                Value::Dict(pairs.iter().map(|(name, pair)| (name.clone(), value(pair))).collect())
            }
        };
        (field.key.clone(), value)
    });
    Value::Dict(fields.collect())
}

/// `GET …/containers/:key/dl?format=&filename=&revision=`.
pub(super) async fn download<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let format = format(&call)?;
    let found = reads::found(&call, &namespace, &key).await?;
    let file = match format {
        Format::Json => found.document() + "\n",
        other => other.write(&tree(&found))?,
    };
    let name = text(call.parameters(), "filename")?;
    let name =
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{key}.{}", format.extension()));
    let etag = super::cache::etag(&found.container.checksum);
    // Another format of the same content is another representation.
    let etag = match format {
        Format::Json => etag,
        other => {
            let text = etag.to_str().unwrap_or_default().trim_matches('"');
            HeaderValue::from_str(&format!("\"{text}-{}\"", other.extension())).unwrap_or(etag)
        }
    };
    Ok(reads::conditional(&call, &etag, || attachment(format, &name, file)))
}

fn attachment(format: Format, name: &str, file: String) -> Response {
    let mut response = response::typed(StatusCode::OK, format.media_type(), file);
    // RFC 6266: plain names for everybody, others for those who read the second form.
    let plain: String =
        name.chars()
            .map(|character| {
                if matches!(character, ' '..='~') && !r#""\/%"#.contains(character) { character } else { '_' }
            })
            .collect();
    let mut disposition = format!("attachment; filename=\"{plain}\"");
    if plain != name {
        disposition.push_str(&format!("; filename*=UTF-8''{}", utf8_percent_encode(name, NON_ALPHANUMERIC)));
    }
    let disposition =
        HeaderValue::from_str(&disposition).expect("invariant: printable ASCII is a header value");
    response.headers_mut().insert(CONTENT_DISPOSITION, disposition);
    response
}

/// `GET /namespaces/:ns/export?format=&revision=`.
pub(super) async fn export<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    let format = format(&call)?;
    if !matches!(format, Format::Json | Format::Yaml | Format::Toml) {
        return Err(ApiError::format("a namespace is exported as json, yaml or toml"));
    }
    let at = super::number(call.parameters(), "revision")?;
    let ConfigReply::Export(export) = super::ask(&call, &namespace, Query::Export { at }).await? else {
        return Err(ApiError::mismatched_reply());
    };
    let file = format.write(&export_tree(&namespace, &export))?;
    Ok(attachment(format, &format!("{namespace}.{}", format.extension()), file))
}

fn export_tree(namespace: &Name, export: &Export) -> Value {
    let dict = |entries: Vec<(&str, Value)>| {
        Value::Dict(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    };
    let pair = |(key, pair): (&Arc<str>, &Arc<tidelock_core::command::config::Pair>)| {
        dict(vec![
            ("key", Value::Text(key.clone())),
            ("value", pair.value.clone()),
            ("datatype", Value::Int(pair.value.datatype() as i64)),
        ])
    };
    let field = |field: &Field| {
        let value = match &field.refers {
            Refers::One(pair) => Value::Text(pair.clone()),
            Refers::List(pairs) => Value::List(pairs.iter().cloned().map(Value::Text).collect()),
            Refers::Dict(pairs) => Value::Dict(
                pairs.iter().map(|(name, pair)| (name.clone(), Value::Text(pair.clone()))).collect(),
            ),
        };
        let field_type = Value::Int(field.refers.field_type().into());
        dict(vec![("key", Value::Text(field.key.clone())), ("fieldType", field_type), ("value", value)])
    };
    let containers = export.containers.iter().map(|(key, container)| {
        let fields = container.fields.iter().map(field).collect();
        dict(vec![("key", Value::Text(key.clone())), ("fields", Value::List(fields))])
    });
    dict(vec![
        ("namespace", Value::text(namespace.as_str())),
        ("revision", Value::Int(i64::try_from(export.revision).unwrap_or(i64::MAX))),
        ("pairs", Value::List(export.pairs.iter().map(pair).collect())),
        ("containers", Value::List(containers.collect())),
    ])
}

async fn read_file<S: Store>(call: &mut Call<'_, S>) -> Result<Document, ApiError> {
    let format = format(call)?;
    let body = read_body(call).await?;
    let file = std::str::from_utf8(&body).map_err(|_| ApiError::format("the file is not UTF-8"))?;
    format.read(file)
}

/// What a namespace holds now; nothing if it is not there.
async fn current<S: Store>(store: &S, namespace: &Name) -> Result<Export, ApiError> {
    match ask_store(store, namespace, Query::Export { at: None }, Consistency::Linearizable).await {
        Ok(ConfigReply::Export(export)) => Ok(export),
        Ok(_) => Err(ApiError::mismatched_reply()),
        Err(error) if error.is_no_namespace() => Ok(Export {
            revision: 0,
            policy: tidelock_core::command::config::Policy::default(),
            pairs: BTreeMap::new(),
            containers: BTreeMap::new(),
        }),
        Err(error) => Err(error),
    }
}

/// Publishes what `changes` makes of the present content, if that is still the content then.
async fn publish_over<S: Store>(
    call: &Call<'_, S>,
    namespace: &Name,
    create: bool,
    changes: impl Fn(&Export) -> Result<Vec<Change>, ApiError>,
) -> Result<(u64, bool), ApiError> {
    let mut attempts = 0;
    loop {
        let export = current(call.store(), namespace).await?;
        let mut terms = Terms::of(call)?;
        let asked = terms.expected;
        terms.expected = Some(asked.unwrap_or(export.revision));
        let deed = Deed::Publish { changes: changes(&export)?, create };
        match submit(call.store(), namespace.clone(), terms, deed).await {
            Ok(published) => return Ok(published),
            Err(error) if asked.is_none() && error.is_revision_mismatch() && attempts < ATTEMPTS_MAX => {
                attempts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// `POST /namespaces/:ns/import?format=&replace=`: a namespace as it was exported. Makes the namespace if there is none;
/// `replace` removes what the file does not hold.
pub(super) async fn import_namespace<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
) -> Result<Response, ApiError> {
    let replace = call.parameters().flag("replace")?;
    let Document { value, notes } = read_file(&mut call).await?;
    let file = super::input::namespace(value)?;
    let published = publish_over(&call, &namespace, true, |export| {
        let mut changes = file.clone();
        if replace {
            let kept: BTreeSet<Item> = changes.iter().map(item_of).collect();
            let pairs = export.pairs.keys().cloned().map(Item::Pair);
            let all = pairs.chain(export.containers.keys().cloned().map(Item::Container));
            changes.extend(all.filter(|item| !kept.contains(item)).map(Change::Delete));
        }
        Ok(changes)
    })
    .await?;
    Ok(imported(published, notes))
}

fn item_of(change: &Change) -> Item {
    match change {
        Change::PutPair { key, .. } => Item::Pair(key.clone()),
        Change::PutContainer { key, .. } => Item::Container(key.clone()),
        Change::Delete(item) => item.clone(),
    }
}

/// `POST …/containers/:key/import?format=`: the container resolves to the document from then on.
pub(super) async fn import_container<S: Store>(
    mut call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let Document { value, notes } = read_file(&mut call).await?;
    let Value::Dict(document) = value else {
        return Err(ApiError::format("a document is a dict of fields"));
    };
    let create = call.parameters().flag("create")?;
    let published =
        publish_over(&call, &namespace, create, |export| changes_for(&key, &document, export)).await?;
    Ok(imported(published, notes))
}

/// `{"revision":…,"changed":…}`, with `"notes"` if there are some.
fn imported((revision, changed): (u64, bool), notes: Notes) -> Response {
    let lines = notes.into_lines();
    if lines.is_empty() {
        return done((revision, changed));
    }
    let lines = Value::List(lines.iter().map(|line| Value::text(line)).collect()).to_json();
    let mut show = Show::success();
    show.raw(&format!(r#"{{"revision":{revision},"changed":{changed},"notes":{lines}}}"#));
    show.respond()
}

/// The changes that make a container resolve to a document.
fn changes_for(
    container: &Arc<str>,
    document: &BTreeMap<Arc<str>, Value>,
    export: &Export,
) -> Result<Vec<Change>, ApiError> {
    let old = export.containers.get(container);
    let old_fields: BTreeMap<&Arc<str>, &Refers> =
        old.iter().flat_map(|old| &old.fields).map(|field| (&field.key, &field.refers)).collect();
    let mut import = Import { container, export, changes: Vec::new() };
    let mut fields = Vec::new();
    for (key, value) in document {
        let key = parse_key(key)?;
        let kept = old_fields.get(&key).filter(|refers| resolve(refers, export).as_ref() == Some(value));
        let refers = match kept {
            Some(refers) => Refers::clone(refers),
            None => import.field(&key, value)?,
        };
        fields.push(Field { key, refers });
    }
    let used: BTreeSet<&Arc<str>> = fields.iter().flat_map(|field| field.refers.pairs()).collect();
    let own = format!("{container}.");
    let unused =
        old.iter().flat_map(|old| old.pairs()).filter(|pair| pair.starts_with(&own) && !used.contains(pair));
    let unused: BTreeSet<Arc<str>> =
        unused.filter(|pair| !is_used_elsewhere(pair, container, export)).cloned().collect();
    let mut changes = import.changes;
    changes.extend(unused.into_iter().map(|pair| Change::Delete(Item::Pair(pair))));
    changes.push(Change::PutContainer { key: container.clone(), fields });
    Ok(changes)
}

fn is_used_elsewhere(pair: &Arc<str>, container: &Arc<str>, export: &Export) -> bool {
    let mut others = export.containers.iter().filter(|(key, _)| *key != container);
    others.any(|(_, other)| other.pairs().any(|used| used == pair))
}

/// What a field resolves to.
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

/// Fields on their way into pairs of the container's own.
struct Import<'a> {
    container: &'a Arc<str>,
    export: &'a Export,
    changes: Vec<Change>,
}

impl Import<'_> {
    /// A value that one pair can hold gets one; a list or a dict that none can gets one for each of its items.
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
        self.changes.push(Change::PutPair { key: key.clone(), value: value.clone() });
        Ok(key)
    }
}
