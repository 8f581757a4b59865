//! The session of a browser: a cookie that stands for a token.
//!
//! Owns the cookie's name, its attributes and how the token is read from it. The cookie holds the
//! token itself, so that every node understands it, and a revoked or expired token ends the session
//! everywhere. Scripts cannot read it, pages of other sites do not send it, and changes that pages
//! of other origins ask for are refused (`cross_origin`).

use hyper::StatusCode;
use hyper::header::{HeaderValue, SET_COOKIE};

use super::response::{self, Response};
use crate::token::BearerToken;

/// The name of the cookie.
pub(super) const COOKIE_NAME: &str = "tidelock_session";

/// How long a browser keeps the cookie, in seconds.
const MAX_AGE_S: u32 = 12 * 3_600;

/// Whether the header `Cookie` has a session, valid or not.
pub(super) fn is_in(header: &HeaderValue) -> bool {
    value(header).is_some()
}

/// The token of the session in the header `Cookie`.
pub(super) fn token(header: &HeaderValue) -> Option<BearerToken> {
    BearerToken::parse(value(header)?).ok()
}

/// The header `Authorization` for a token.
pub(super) fn authorization(token: &BearerToken) -> HeaderValue {
    let mut header = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
        .expect("invariant: a token is visible ASCII");
    header.set_sensitive(true);
    header
}

fn value(header: &HeaderValue) -> Option<&[u8]> {
    let mut cookies = header.as_bytes().split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    cookies.find_map(|cookie| cookie.strip_prefix(COOKIE_NAME.as_bytes())?.strip_prefix(b"="))
}

/// Adds the cookie for a token to an answer. With TLS, browsers send it over TLS only.
pub(super) fn begin(response: &mut Response, token: &BearerToken, is_secure: bool) {
    set(response, token.reveal().as_ref(), MAX_AGE_S, is_secure);
}

/// An answer that removes the cookie.
pub(super) fn end(is_secure: bool) -> Response {
    let mut response = response::empty(StatusCode::NO_CONTENT);
    set(&mut response, "", 0, is_secure);
    response
}

fn set(response: &mut Response, value: &str, max_age_s: u32, is_secure: bool) {
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE_NAME}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}");
    let mut cookie = HeaderValue::try_from(cookie).expect("invariant: a token is visible ASCII");
    cookie.set_sensitive(true);
    response.headers_mut().insert(SET_COOKIE, cookie);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_among_other_cookies() {
        let secret = BearerToken::generate().expect("random numbers");
        for (text, is_session, is_token) in [
            (format!("tidelock_session={}", secret.reveal()), true, true),
            (format!("a=b; tidelock_session={}; c", secret.reveal()), true, true),
            ("tidelock_session=x".to_owned(), true, false),
            ("tidelock_session=".to_owned(), true, false),
            (format!("other_tidelock_session={}", secret.reveal()), false, false),
            ("a=b".to_owned(), false, false),
        ] {
            let header = HeaderValue::from_str(&text).expect("a header");
            assert_eq!((is_in(&header), token(&header).is_some()), (is_session, is_token), "{text}");
        }
    }

    #[test]
    fn scripts_and_other_sites_do_not_get_the_cookie() {
        let secret = BearerToken::generate().expect("random numbers");
        for is_secure in [false, true] {
            let mut response = response::empty(StatusCode::OK);
            begin(&mut response, &secret, is_secure);
            let cookie = response.headers()[SET_COOKIE].to_str().expect("text").to_owned();
            assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
            assert_eq!(cookie.ends_with("; Secure"), is_secure, "{cookie}");
            assert!(token(&HeaderValue::from_str(cookie.split(';').next().unwrap()).unwrap()).is_some());
        }
        assert!(end(false).headers()[SET_COOKIE].to_str().unwrap().contains("=; Path=/; Max-Age=0;"));
    }
}
