//! Checks that a request is addressed to a host that this node answers for.
//!
//! A web page may bind a name of its own domain to this node's address (DNS rebinding). Its
//! requests then have the page's own origin, and only their `Host` reveals it. So a node answers
//! for IP addresses, `localhost`, the names that it listens on and those of `--allowed-hosts`, as
//! etcd does with `--host-whitelist`. For others it answers 421: the request may be valid, but not
//! at this server (RFC 9110 section 15.5.20). That distinguishes it from the 403 of
//! [`super::cross_origin`].

use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::Version;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;

use super::fields::Field;
use super::problem::{Problem, ProblemKind};
use crate::config::HOST_BYTES_MAX;

/// A well-formed `host[:port]` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Authority<'a> {
    text: &'a str,
    host: &'a str,
}

impl<'a> Authority<'a> {
    /// The authority of a request: that of an absolute target, otherwise `Host`. `None` for
    /// HTTP/1.0 without `Host`, which no browser sends.
    ///
    /// # Errors
    /// 400 if `Host` is missing, malformed, or given more than once (RFC 9112 section 3.2).
    fn of(head: &'a Parts, host: Field<'a>) -> Result<Option<Authority<'a>>, Problem> {
        let field = match host {
            Field::Once(field) => field,
            Field::Absent if head.version < Version::HTTP_11 => return Ok(None),
            Field::Absent => return Err(Problem::invalid("the header Host is missing")),
            Field::Repeated => return Err(Problem::invalid("the header Host is there more than once")),
        };
        let malformed = || Problem::invalid("the header Host is not HOST or HOST:PORT");
        let of_field = field.to_str().ok().and_then(Authority::parse).ok_or_else(malformed)?;
        match head.uri.authority() {
            None => Ok(Some(of_field)),
            Some(target) => {
                let of_target = Authority::parse(target.as_str());
                of_target.map(Some).ok_or_else(|| Problem::invalid("the target's host is malformed"))
            }
        }
    }

    fn parse(text: &'a str) -> Option<Authority<'a>> {
        let (host, port) = match text.rfind([':', ']']) {
            Some(at) if text.as_bytes()[at] == b':' => (&text[..at], &text[at + 1..]),
            _ => (text, ""),
        };
        let port_is_valid = port.bytes().all(|byte| byte.is_ascii_digit())
            && (port.is_empty() || port.parse::<u16>().is_ok());
        let host_is_valid = match host.strip_prefix('[') {
            Some(bracketed) => bracketed.strip_suffix(']').is_some_and(is_ipv6),
            None => !host.is_empty() && host.bytes().all(is_of_name),
        };
        (port_is_valid && host_is_valid).then_some(Authority { text, host })
    }

    /// Whether the host is an IP address, which a page cannot bind to another address.
    fn is_ip(self) -> bool {
        self.host.starts_with('[') || self.host.parse::<Ipv4Addr>().is_ok()
    }
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

/// Whether a byte may be part of a registered name, RFC 3986 section 3.2.2.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

/// The names that a node answers for.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    names: Vec<String>,
    /// The last allowed `Host`. Nearly every request has the same one, and parsing it again would
    /// take as long as parsing the rest of a short request.
    last: RefCell<Option<HeaderValue>>,
}

impl AllowedHosts {
    /// Allows `names`, besides IP addresses and `localhost`.
    pub fn new(names: impl IntoIterator<Item = String>) -> AllowedHosts {
        AllowedHosts { names: names.into_iter().collect(), last: RefCell::default() }
    }

    /// The `host[:port]` of a request, as it was written. `None` for HTTP/1.0 without `Host`.
    ///
    /// # Errors
    /// Those of [`Authority::of`], and 421 if this node does not answer for that host.
    pub(super) fn authority<'a>(&self, head: &'a Parts, host: Field<'a>) -> Result<Option<&'a str>, Problem> {
        let only = match host {
            Field::Once(field) if head.uri.authority().is_none() => Some(field),
            _ => None,
        };
        if only.is_some() && only == self.last.borrow().as_ref() {
            return Ok(only.and_then(|field| field.to_str().ok()));
        }
        let Some(authority) = Authority::of(head, host)? else { return Ok(None) };
        self.check(authority)?;
        self.last.replace(only.cloned());
        Ok(Some(authority.text))
    }

    fn check(&self, authority: Authority<'_>) -> Result<(), Problem> {
        if authority.is_ip() {
            return Ok(());
        }
        // The trailing dot of the root is part of a name, and resolvers accept it.
        let name = authority.host.strip_suffix('.').unwrap_or(authority.host);
        let is_allowed = name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
        if is_allowed { Ok(()) } else { Err(misdirected(name)) }
    }
}

fn misdirected(name: &str) -> Problem {
    let (host, name) = if name.len() <= HOST_BYTES_MAX { (name, name) } else { ("of this request", "NAME") };
    let detail = format!(
        "this node does not answer for the host {host}; address it by IP address, as localhost, or by a name that it \
         listens on, or start it with --allowed-hosts {name}; nothing was done"
    );
    Problem::new(ProblemKind::MisdirectedRequest, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::fields::Fields;
    use hyper::header::HOST;

    #[test]
    fn an_authority_is_a_host_and_perhaps_a_port() {
        for (text, host) in [
            ("localhost", "localhost"),
            ("localhost:", "localhost"),
            ("a.example.:8001", "a.example."),
            ("a_b~%41!:1", "a_b~%41!"),
            ("127.0.0.1:65535", "127.0.0.1"),
            ("[::1]", "[::1]"),
            ("[fe80::1]:8001", "[fe80::1]"),
        ] {
            assert_eq!(Authority::parse(text), Some(Authority { text, host }));
        }
        for text in [
            "",
            ":8001",
            "a b",
            "a,b c",
            "a/b",
            "user@a",
            "http://a",
            "a:b",
            "a:-1",
            "a:+1",
            "a:65536",
            "a:1:2",
            "::1",
            "[::1",
            "::1]",
            "[::1]x",
            "[]",
            "[a]",
            "[fe80::1%25eth0]",
            "[v1.a]",
            "a\"b",
            "\u{e4}",
        ] {
            assert_eq!(Authority::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_addresses_localhost_and_listed_names_are_answered_for() {
        let hosts = AllowedHosts::new(["tidelock.example".to_owned()]);
        let is_allowed = |text| hosts.check(Authority::parse(text).unwrap()).is_ok();
        for text in [
            "127.0.0.1",
            "10.0.0.1:8001",
            "[::1]:8001",
            "localhost",
            "LocalHost.:1",
            "tidelock.example",
            "TIDELOCK.example.:8001",
        ] {
            assert!(is_allowed(text), "{text}");
        }
        for text in [
            "evil.example",
            "tidelock.example.evil",
            "x.tidelock.example",
            "tidelock.example..",
            "localhost.evil",
            "127.0.0.1.evil",
            "2130706433",
            "0x7f.1",
            ".",
        ] {
            assert!(!is_allowed(text), "{text}");
        }
    }

    #[test]
    fn what_was_allowed_last_is_allowed_again_and_nothing_else() {
        let hosts = AllowedHosts::new(["tidelock.example".to_owned()]);
        let ask = |names: &[&str], target: &str| {
            let mut request = hyper::Request::builder().uri(target);
            for name in names {
                request = request.header(HOST, *name);
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            let found = hosts.authority(&head, Fields::of(&head.headers).host);
            found.map(|text| text.map(str::to_owned)).map_err(|problem| problem.status())
        };
        let allowed = "tidelock.example:8001";
        for _ in 0..2 {
            assert_eq!(ask(&[allowed], "/"), Ok(Some(allowed.to_owned())));
            assert!(ask(&["evil.example"], "/").is_err());
            assert!(ask(&[allowed, allowed], "/").is_err());
            assert!(ask(&[allowed], "http://evil.example/").is_err());
            assert!(ask(&[], "/").is_err());
        }
    }
}
