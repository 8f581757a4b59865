//! `If-Match` and `If-None-Match` (RFC 9110, section 13) with entity tags that are versions.
//!
//! Also `If-Fence`, with the fence of a lock.
//!
//! Owns which conditions are understood. Others are refused rather than ignored: a write whose
//! condition is ignored is a lost update.

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use tidelock_api::etag::{self, EntityTag};
use tidelock_core::command::Condition;
use tidelock_core::types::Version;

use super::fields::{Field, Fields, IF_FENCE};
use super::problem::Problem;
use super::uri;
use crate::requests::Fence;

/// Parses the condition of a write from `If-Match` and `If-None-Match`.
pub(super) fn of_write(fields: &Fields<'_>) -> Result<Condition, Problem> {
    match (single(fields.if_match, IF_MATCH)?, single(fields.if_none_match, IF_NONE_MATCH)?) {
        (None, None) => Ok(Condition::Always),
        (Some(tag), None) if tag.as_bytes() == b"*" => Ok(Condition::Exists),
        (Some(tag), None) => EntityTag::parse(tag.as_bytes())
            .filter(|tag| !tag.is_weak)
            .and_then(EntityTag::version)
            .map(|version| Condition::Version(Version(version)))
            .ok_or_else(|| Problem::invalid("If-Match must be one version in quotes, such as \"7\", or *")),
        (None, Some(tag)) if tag.as_bytes() == b"*" => Ok(Condition::Version(Version::ABSENT)),
        (None, Some(_)) => Err(Problem::invalid("If-None-Match of a write must be *")),
        (Some(_), Some(_)) => Err(Problem::invalid("give either If-Match or If-None-Match")),
    }
}

/// Parses `If-Fence: <lock>=<fence>`, the condition that a lock is held with a fence. The name of
/// the lock is percent-encoded, as in a path.
pub(super) fn fence(fields: &Fields<'_>) -> Result<Option<Fence>, Problem> {
    let Some(header) = single(fields.if_fence, IF_FENCE)? else { return Ok(None) };
    let malformed = || Problem::invalid("If-Fence must be the name of a lock and its fence, such as jobs=12");
    let bytes = header.as_bytes();
    let at = bytes.iter().rposition(|&byte| byte == b'=').ok_or_else(malformed)?;
    let number = uri::parse_u64(&bytes[at + 1..]).ok_or_else(malformed)?;
    let lock = Bytes::from(uri::percent_decode(&bytes[..at])?.into_owned());
    if lock.is_empty() {
        return Err(malformed());
    }
    uri::check_key_length(&lock, "the name of the lock")?;
    Ok(Some(Fence { lock, number: Version(number) }))
}

/// The conditions of a read on the current version.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadConditions<'a> {
    if_match: Option<&'a HeaderValue>,
    if_none_match: Option<&'a HeaderValue>,
}

/// The result of evaluating a read's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer as usual.
    Proceed,
    /// 304: the client has the current version.
    NotModified,
    /// 412: the client required another version.
    Failed,
}

impl<'a> ReadConditions<'a> {
    pub fn of(fields: &Fields<'a>) -> Result<Self, Problem> {
        let conditions = ReadConditions {
            if_match: single(fields.if_match, IF_MATCH)?,
            if_none_match: single(fields.if_none_match, IF_NONE_MATCH)?,
        };
        for header in [conditions.if_match, conditions.if_none_match].into_iter().flatten() {
            let mut tags = etag::list(header.as_bytes()).peekable();
            let is_list = tags.peek().is_some() && tags.all(|tag| tag.and_then(EntityTag::version).is_some());
            if header.as_bytes() != b"*" && !is_list {
                let detail = "If-Match and If-None-Match must be versions in quotes, such as \"7\", or *";
                return Err(Problem::invalid(detail));
            }
        }
        Ok(conditions)
    }

    /// Evaluates the conditions on the current version, [`Version::ABSENT`] if the key does not
    /// exist.
    pub fn judge(self, current: Version) -> Verdict {
        let names = |header: &HeaderValue, weakly: bool| {
            let exists = current != Version::ABSENT;
            let mut tags = etag::list(header.as_bytes()).flatten();
            exists
                && (header.as_bytes() == b"*"
                    || tags.any(|tag| tag.version() == Some(current.0) && (weakly || !tag.is_weak)))
        };
        if self.if_match.is_some_and(|header| !names(header, false)) {
            return Verdict::Failed;
        }
        if self.if_none_match.is_some_and(|header| names(header, true)) {
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }
}

/// The only header of this name. Several lines would form a list; no client sends that, so it is
/// refused.
fn single(field: Field<'_>, name: HeaderName) -> Result<Option<&HeaderValue>, Problem> {
    match field {
        Field::Absent => Ok(None),
        Field::Once(value) => Ok(Some(value)),
        Field::Repeated => Err(Problem::invalid(format!("{name} is given more than once"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn writes_take_one_strong_version_or_a_star() {
        let at = |version| Some(Condition::Version(Version(version)));
        for (pairs, expected) in [
            (&[][..], Some(Condition::Always)),
            (&[(IF_MATCH, "\"7\"")], at(7)),
            (&[(IF_MATCH, "\"0\"")], at(0)),
            (&[(IF_MATCH, "*")], Some(Condition::Exists)),
            (&[(IF_NONE_MATCH, "*")], at(0)),
            (&[(IF_MATCH, "7")], None),
            (&[(IF_MATCH, "W/\"7\"")], None),
            (&[(IF_MATCH, "\"7\", \"8\"")], None),
            (&[(IF_MATCH, "\"\"")], None),
            (&[(IF_MATCH, "\"abc\"")], None),
            (&[(IF_MATCH, "")], None),
            (&[(IF_MATCH, "\"7\""), (IF_MATCH, "\"7\"")], None),
            (&[(IF_NONE_MATCH, "\"7\"")], None),
            (&[(IF_MATCH, "*"), (IF_NONE_MATCH, "*")], None),
        ] {
            assert_eq!(of_write(&Fields::of(&headers(pairs))).ok(), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_fence_is_a_lock_and_a_number() {
        let parse = |text: &'static str| fence(&Fields::of(&headers(&[(IF_FENCE, text)])));
        for (text, lock, number) in
            [("jobs=12", &b"jobs"[..], 12), ("%7Ba%7Db=c=0", b"{a}b=c", 0), ("%3D=7", b"=", 7)]
        {
            let expected = Fence { lock: Bytes::copy_from_slice(lock), number: Version(number) };
            assert_eq!(parse(text), Ok(Some(expected)), "{text}");
        }
        for bad in ["", "jobs", "=12", "jobs=", "jobs=x", "jobs=-1", "%zz=1", "jobs=12 "] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(fence(&Fields::default()), Ok(None));
        assert!(fence(&Fields::of(&headers(&[(IF_FENCE, "a=1"), (IF_FENCE, "a=1")]))).is_err());
    }

    #[test]
    fn reads_judge_the_version_that_they_find() {
        use Verdict::{Failed, NotModified, Proceed};
        for (pairs, current, expected) in [
            (&[][..], 7, Proceed),
            (&[(IF_NONE_MATCH, "\"7\"")], 7, NotModified),
            (&[(IF_NONE_MATCH, "W/\"7\"")], 7, NotModified),
            (&[(IF_NONE_MATCH, "\"6\" , \"7\"")], 7, NotModified),
            (&[(IF_NONE_MATCH, "\"7\",")], 7, NotModified),
            (&[(IF_NONE_MATCH, "\"6\"")], 7, Proceed),
            (&[(IF_NONE_MATCH, "*")], 7, NotModified),
            (&[(IF_NONE_MATCH, "*")], 0, Proceed),
            (&[(IF_NONE_MATCH, "\"0\"")], 0, Proceed),
            (&[(IF_MATCH, "\"7\"")], 7, Proceed),
            (&[(IF_MATCH, "\"6\", \"7\"")], 7, Proceed),
            (&[(IF_MATCH, "W/\"7\"")], 7, Failed),
            (&[(IF_MATCH, "\"6\"")], 7, Failed),
            (&[(IF_MATCH, "*")], 7, Proceed),
            (&[(IF_MATCH, "*")], 0, Failed),
            (&[(IF_MATCH, "\"6\""), (IF_NONE_MATCH, "\"7\"")], 7, Failed),
        ] {
            let headers = headers(pairs);
            let conditions = ReadConditions::of(&Fields::of(&headers)).unwrap();
            assert_eq!(conditions.judge(Version(current)), expected, "{pairs:?} on {current}");
        }
        for bad in ["7", "\"a\"", "\"7\" \"8\"", "W/7", "", ","] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static(bad));
            assert!(ReadConditions::of(&Fields::of(&headers)).is_err(), "{bad}");
        }
    }
}
