//! The fields `val` and `ver` of the kv1 dialect, from the query, an urlencoded form or multipart
//! form data.
//!
//! Owns where they are looked up: a field in the body overrides the same one in the query, and the
//! first of several is used. A body of another type is ignored. Values are bytes: no form is forced
//! into UTF-8.

use bytes::Bytes;
use http_body_util::{BodyDataStream, Full};
use hyper::header::CONTENT_TYPE;
use multer::Multipart;

use super::body::BodyLimit;
use super::problem::Problem;
use super::service::Call;
use super::uri::Parameters;
use crate::store::Store;

/// The fields that were found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FormFields {
    pub val: Option<Bytes>,
    pub ver: Option<Bytes>,
}

/// Reads the fields from the body, then from the query.
pub(super) async fn read<S: Store>(call: &mut Call<'_, S>) -> Result<FormFields, Problem> {
    let mut fields = read_body(call).await?;
    let query = call.parameters();
    if fields.val.is_none() {
        fields.val = owned(query, "val")?;
    }
    if fields.ver.is_none() {
        fields.ver = owned(query, "ver")?;
    }
    Ok(fields)
}

async fn read_body<S: Store>(call: &mut Call<'_, S>) -> Result<FormFields, Problem> {
    // Read regardless of its type, so that a body over the limit is refused as such.
    let body = call.read_body(BodyLimit::Form(call.context.options.body_bytes_max)).await?;
    let content_type =
        call.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        parse_urlencoded(&body)
    } else if media_type.eq_ignore_ascii_case("multipart/form-data") {
        let boundary = multer::parse_boundary(content_type)
            .map_err(|_| Problem::invalid("the content type of a multipart body must state its boundary"))?;
        // Boxed because the parser is large: unboxed, every request would reserve memory for it.
        Box::pin(parse_multipart(body, boundary)).await
    } else {
        Ok(FormFields::default())
    }
}

/// Parses an urlencoded form.
pub(super) fn parse_urlencoded(body: &[u8]) -> Result<FormFields, Problem> {
    let form = Parameters::new(body);
    Ok(FormFields { val: owned(form, "val")?, ver: owned(form, "ver")? })
}

fn owned(parameters: Parameters<'_>, name: &str) -> Result<Option<Bytes>, Problem> {
    Ok(parameters.get(name)?.map(|value| Bytes::from(value.into_owned())))
}

/// Parses a body that was read completely: its size is bounded, and no part of a form is used
/// before the whole is known to be well-formed.
pub(super) async fn parse_multipart(body: Bytes, boundary: String) -> Result<FormFields, Problem> {
    let malformed = |_| Problem::invalid("the multipart body is malformed");
    let stream = BodyDataStream::new(Full::<Bytes>::new(body));
    let mut parts = Multipart::new(stream, boundary);
    let mut fields = FormFields::default();
    while let Some(part) = parts.next_field().await.map_err(malformed)? {
        let slot = match part.name() {
            Some("val") => &mut fields.val,
            Some("ver") => &mut fields.ver,
            _ => continue,
        };
        let bytes = part.bytes().await.map_err(malformed)?;
        slot.get_or_insert(bytes);
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(val: Option<&'static [u8]>, ver: Option<&'static [u8]>) -> FormFields {
        FormFields { val: val.map(Bytes::from_static), ver: ver.map(Bytes::from_static) }
    }

    #[test]
    fn an_urlencoded_form_holds_bytes() {
        let form = parse_urlencoded(b"ver=6&val=a+b%FF%00&val=second").unwrap();
        assert_eq!(form, fields(Some(b"a b\xff\x00"), Some(b"6")));
        assert_eq!(parse_urlencoded(b"val=").unwrap(), fields(Some(b""), None));
        assert_eq!(parse_urlencoded(b"").unwrap(), FormFields::default());
        assert!(parse_urlencoded(b"val=50%").is_err());
    }

    #[test]
    fn a_multipart_form_holds_bytes() {
        let parse = |body: &'static [u8]| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(parse_multipart(Bytes::from_static(body), "b".to_owned()))
        };
        let body = b"--b\r\ncontent-disposition: form-data; name=\"other\"\r\n\r\nx\r\n\
            --b\r\ncontent-disposition: form-data; name=\"val\"; filename=\"f\"\r\n\r\n\xff\r\n\x00\r\n\
            --b\r\ncontent-disposition: form-data; name=\"val\"\r\n\r\nsecond\r\n\
            --b\r\ncontent-disposition: form-data; name=\"ver\"\r\n\r\n6\r\n--b--\r\n";
        assert_eq!(parse(body).unwrap(), fields(Some(b"\xff\r\n\x00"), Some(b"6")));
        let cut = &body[..body.len() - 8];
        assert!(parse(cut).is_err(), "a form without its end may lack fields");
        assert!(parse(b"").is_err());
    }
}
