//! The header fields that nearly every request is checked for, found in one pass over its head.
//!
//! A lookup in a header map hashes the name. Comparing the few names of a request costs less than
//! two lookups.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, ORIGIN};

pub(super) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
pub(super) const IF_FENCE: HeaderName = HeaderName::from_static(tidelock_api::IF_FENCE_HEADER);

/// A field that a request may have once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Field<'a> {
    #[default]
    Absent,
    Once(&'a HeaderValue),
    Repeated,
}

impl<'a> Field<'a> {
    fn add(&mut self, value: &'a HeaderValue) {
        *self = if *self == Field::Absent { Field::Once(value) } else { Field::Repeated };
    }
}

/// What the head of a request contains.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields<'a> {
    /// Length of all header lines.
    pub bytes: usize,
    pub host: Field<'a>,
    pub if_match: Field<'a>,
    pub if_none_match: Field<'a>,
    pub if_fence: Field<'a>,
    pub authorization: Field<'a>,
    pub cookie: Field<'a>,
    /// Whether there is `Origin` or `Sec-Fetch-Site`, as browsers send them.
    pub has_origin: bool,
}

impl<'a> Fields<'a> {
    pub fn of(headers: &'a HeaderMap) -> Fields<'a> {
        const SEPARATORS_BYTES: usize = ": \r\n".len();
        let mut fields = Fields::default();
        for (name, value) in headers {
            fields.bytes += name.as_str().len() + value.len() + SEPARATORS_BYTES;
            if *name == HOST {
                fields.host.add(value);
            } else if *name == IF_MATCH {
                fields.if_match.add(value);
            } else if *name == IF_NONE_MATCH {
                fields.if_none_match.add(value);
            } else if *name == IF_FENCE {
                fields.if_fence.add(value);
            } else if *name == AUTHORIZATION {
                fields.authorization.add(value);
            } else if *name == COOKIE {
                fields.cookie.add(value);
            } else if *name == ORIGIN || *name == SEC_FETCH_SITE {
                fields.has_origin = true;
            }
        }
        fields
    }
}
