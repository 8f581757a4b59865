//! `/ui/…`: the files of the console, a client of this API that runs in a browser.
//!
//! Owns how they are sent: compressed, with an entity tag, and the page with a content security
//! policy that restricts it to the files and the API of its own node. The build script compresses
//! what is in `console/`. The files contain no data, so no permission is needed to read them.

use std::io::Read;

use flate2::read::GzDecoder;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY,
};
use hyper::{HeaderMap, StatusCode};

use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use crate::store::Store;

include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The media types of files, by the ends of their names.
pub(super) const MEDIA_TYPES: [(&str, &str); 5] = [
    (".css", "text/css; charset=utf-8"),
    (".html", "text/html; charset=utf-8"),
    (".js", "text/javascript; charset=utf-8"),
    (".svg", "image/svg+xml"),
    (".txt", "text/plain; charset=utf-8"),
];

/// Where the console begins.
pub(super) const PATH: &str = "/ui/";

/// The page that is served at [`PATH`].
const PAGE: &str = "index.html";

/// A file of the console.
struct ConsoleFile {
    name: &'static str,
    entity_tag: &'static str,
    gzip: &'static [u8],
}

/// Operations of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Console {
    /// Sends the client to [`PATH`], to which the links of the page are relative.
    Begin,
    File,
}

pub(super) fn answer<S: Store>(
    call: &Call<'_, S>,
    operation: Console,
    [name, _]: Arguments<'_>,
) -> Result<Response, Problem> {
    match operation {
        Console::Begin => Ok(redirect(StatusCode::PERMANENT_REDIRECT)),
        Console::File => {
            let name = if name.is_empty() { PAGE } else { name };
            let missing = || Problem::new(ProblemKind::NotFound, "the console has no such file");
            Ok(send(file(name).ok_or_else(missing)?, call.headers()))
        }
    }
}

/// Sends a client to the console.
pub(super) fn redirect(status: StatusCode) -> Response {
    let mut response = response::empty(status);
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(PATH));
    response
}

fn file(name: &str) -> Option<&'static ConsoleFile> {
    FILES.binary_search_by(|file| file.name.cmp(name)).ok().map(|position| &FILES[position])
}

fn send(file: &ConsoleFile, headers: &HeaderMap) -> Response {
    let is_known = lists(headers, &IF_NONE_MATCH, |tag| tag.trim_start_matches("W/") == file.entity_tag);
    let mut response = if is_known {
        response::empty(StatusCode::NOT_MODIFIED)
    } else if lists(headers, &ACCEPT_ENCODING, accepts_gzip) {
        let mut response = response::typed(StatusCode::OK, file.media_type(), file.gzip);
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    } else {
        response::typed(StatusCode::OK, file.media_type(), file.plain())
    };
    for (name, value) in [
        (ETAG, file.entity_tag),
        // A node of another release may answer the next request: the browser asks each time, and is
        // told that nothing has changed.
        (CACHE_CONTROL, "no-cache"),
        (VARY, "accept-encoding"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if file.name == PAGE {
        let policy = content_security_policy();
        let policy = HeaderValue::from_str(&policy).expect("invariant: it is visible ASCII");
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

impl ConsoleFile {
    fn media_type(&self) -> &'static str {
        let found = MEDIA_TYPES.iter().find(|(end, _)| self.name.ends_with(end));
        found.expect("invariant: a test finds the type of every file").1
    }

    fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        GzDecoder::new(self.gzip).read_to_end(&mut plain).expect("invariant: the build script compressed it");
        plain
    }
}

/// Whether one element of a header that is a list fulfils a condition.
fn lists(headers: &HeaderMap, name: &HeaderName, condition: impl Fn(&str) -> bool) -> bool {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|element| condition(element.trim()))
}

/// Whether an element of `Accept-Encoding` is gzip, with a quality above 0.
fn accepts_gzip(element: &str) -> bool {
    let (coding, parameters) = element.split_once(';').unwrap_or((element, ""));
    let quality = parameters.trim().strip_prefix("q=").and_then(|quality| quality.parse::<f32>().ok());
    coding.trim().eq_ignore_ascii_case("gzip") && quality.is_none_or(|quality| quality > 0.0)
}

/// Allows the page its own files and the API of its node, one inline script, which maps the names
/// of modules to files, and nothing else. It may set no HTML from text.
fn content_security_policy() -> String {
    format!(
        "default-src 'none'; script-src 'self' 'sha256-{IMPORT_MAP_SHA256}'; style-src 'self'; \
         img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn every_file_is_found_and_can_be_decompressed() {
        assert!(FILES.is_sorted_by_key(|file| file.name));
        for listed in FILES {
            assert!(std::ptr::eq(file(listed.name).expect("a file"), listed));
            assert!(!listed.plain().is_empty() && !listed.media_type().is_empty(), "{}", listed.name);
        }
        assert!(file("none.js").is_none());
    }

    #[test]
    fn a_client_is_sent_what_it_accepts_and_does_not_have() {
        let page = file(PAGE).expect("the page");
        let plain = send(page, &HeaderMap::new());
        assert_eq!((plain.status(), plain.headers().get(CONTENT_ENCODING)), (StatusCode::OK, None));
        for (accepted, is_compressed) in
            [("gzip, deflate, br", true), ("br;q=1, GZIP;q=0.5", true), ("gzip;q=0", false), ("br", false)]
        {
            let answer = send(page, &headers(ACCEPT_ENCODING, accepted));
            assert_eq!(answer.headers().contains_key(CONTENT_ENCODING), is_compressed, "{accepted}");
        }
        let known = headers(IF_NONE_MATCH, page.entity_tag);
        assert_eq!(send(page, &known).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(send(page, &headers(IF_NONE_MATCH, "\"other\"")).status(), StatusCode::OK);
    }

    #[test]
    fn the_policy_allows_no_unsafe_source() {
        let policy = content_security_policy();
        assert!(!policy.contains("unsafe") && policy.contains("'sha256-"), "{policy}");
    }
}
