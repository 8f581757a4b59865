//! Exports: a container's document in the formats that programs read, and a whole namespace in one
//! file.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tidelock_core::command::config::{Export, Field, Found, Name, Value, document_tree};

use super::super::response::{self, Response};
use super::super::service::Call;
use super::error::ApiError;
use super::formats::Format;
use super::queries;
use super::reads;
use super::secrets::{self, Reveal};
use super::{measured_export, offload, text};
use crate::store::Store;

/// The format that a request names.
pub(super) fn format<S: Store>(call: &Call<'_, S>) -> Result<Format, ApiError> {
    Format::of(&text(call.parameters(), "format")?.unwrap_or_else(|| "json".into()))
}

/// What a container resolves to, as a tree. Secrets are sealed in it, and masked when it is
/// written.
pub(super) fn tree(found: &Found) -> Value {
    document_tree(&found.container.fields, |key| found.pairs.get(key).map(|pair| &**pair))
}

/// `GET …/containers/:key/dl?format=&filename=&revision=&reveal=`.
pub(super) async fn download<S: Store>(
    call: Call<'_, S>,
    namespace: Name,
    key: Arc<str>,
) -> Result<Response, ApiError> {
    let format = format(&call)?;
    let reveal = Reveal::of(&call, &namespace)?;
    let mut found = reads::found(&call, &namespace, &key).await?;
    if let Some(reveal) = &reveal {
        found = reveal.document(&call, &key, found)?;
    }
    let (bytes, checksum) = (found.container.document_bytes, found.container.checksum);
    let write = move || match format {
        Format::Json => Ok(found.document() + "\n"),
        other => other.write(&tree(&found)),
    };
    let file = offload(&call, bytes, write).await?;
    let name = text(call.parameters(), "filename")?;
    let name =
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{key}.{}", format.extension()));
    let mut etag = super::cache::etag(&checksum);
    // Another format of the same content is another representation, and so are its secrets.
    if format != Format::Json {
        etag = extended(etag, format.extension());
    }
    if reveal.is_some() {
        etag = extended(etag, "revealed");
    }
    let response = reads::conditional(&call, &etag, || attachment(format, &name, file));
    Ok(if reveal.is_some() { secrets::uncached(response) } else { response })
}

/// An entity tag with a suffix.
fn extended(etag: HeaderValue, suffix: &str) -> HeaderValue {
    let text = etag.to_str().unwrap_or_default().trim_matches('"');
    HeaderValue::from_str(&format!("\"{text}-{suffix}\"")).unwrap_or(etag)
}

fn attachment(format: Format, name: &str, file: String) -> Response {
    let mut response = response::typed(StatusCode::OK, format.media_type(), file);
    // RFC 6266: `filename` in plain ASCII, and the exact name for clients that support `filename*`.
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
    let export = super::ask(&call, &namespace, queries::export(at)).await?;
    let name = format!("{namespace}.{}", format.extension());
    let bytes = measured_export(&export);
    let file = offload(&call, bytes, move || format.write(&export_tree(&namespace, &export))).await?;
    Ok(attachment(format, &name, file))
}

/// A namespace as it is exported.
pub(super) fn export_tree(namespace: &Name, export: &Export) -> Value {
    let dict = |entries: Vec<(&str, Value)>| {
        Value::Dict(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    };
    let pair = |(key, pair): (&Arc<str>, &Arc<tidelock_core::command::config::Pair>)| {
        let datatype = pair.value.datatype();
        let mut entries = vec![
            ("key", Value::Text(key.clone())),
            ("value", pair.value.to_value()),
            ("datatype", Value::Int(datatype as i64)),
            ("type", Value::text(datatype.name())),
        ];
        entries.extend(pair.schema.as_ref().map(|schema| ("schema", schema.source().clone())));
        dict(entries)
    };
    let field = |field: &Field| {
        let value = field.refers.value(&|key| Some(Value::Text(key.clone()))).unwrap_or(Value::Empty);
        let field_type = Value::Int(field.refers.field_type().into());
        dict(vec![("key", Value::Text(field.key.clone())), ("fieldType", field_type), ("value", value)])
    };
    let containers = export.containers.iter().map(|(key, container)| {
        let fields = container.fields.iter().map(field).collect();
        let mut entries = vec![("key", Value::Text(key.clone())), ("fields", Value::List(fields))];
        entries.extend(container.schema.as_ref().map(|schema| ("schema", schema.source().clone())));
        dict(entries)
    });
    dict(vec![
        ("namespace", Value::text(namespace.as_str())),
        ("revision", Value::Int(i64::try_from(export.revision).unwrap_or(i64::MAX))),
        ("pairs", Value::List(export.pairs.iter().map(pair).collect())),
        ("containers", Value::List(containers.collect())),
    ])
}
