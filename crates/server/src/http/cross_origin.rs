//! Refuses changes requested by a web page of another origin.
//!
//! A browser sends forms, beacons and simple fetches of any page to any address, including this
//! machine's own, without asking the server first. It states how page and server are related in
//! `Sec-Fetch-Site`, which pages cannot set. Browsers omit that header towards plain HTTP beyond
//! loopback, where `Origin` must suffice. The rules are those of `CrossOriginProtection` in Go's
//! `net/http`. Programs send neither header and are not affected. Reads are allowed: without CORS
//! headers a page cannot see the answers.

use hyper::Method;
use hyper::header::{HeaderValue, ORIGIN};
use hyper::http::request::Parts;

use super::fields::SEC_FETCH_SITE;
use super::problem::{Problem, ProblemKind};

/// Checks the origin of a request that has `Origin` or `Sec-Fetch-Site`.
///
/// # Errors
/// 403 for an unsafe method if a page of another origin sent the request, or may have sent it.
pub(super) fn check(head: &Parts, authority: Option<&str>) -> Result<(), Problem> {
    if matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let mut sites = head.headers.get_all(SEC_FETCH_SITE).iter().peekable();
    if sites.peek().is_some() {
        let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
        return if sites.all(is_own) { Ok(()) } else { Err(refused()) };
    }
    let is_own = |origin: &HeaderValue| authority.is_some_and(|authority| is_origin_of(origin, authority));
    if head.headers.get_all(ORIGIN).iter().all(is_own) { Ok(()) } else { Err(refused()) }
}

/// Whether an origin has this host and port. The scheme is not compared: a proxy may have
/// terminated TLS.
fn is_origin_of(origin: &HeaderValue, authority: &str) -> bool {
    let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
}

fn refused() -> Problem {
    let detail = "a web page of another origin asked for this change; nothing was done";
    Problem::new(ProblemKind::CrossOrigin, detail)
}
