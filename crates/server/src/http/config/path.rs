//! Parses paths of the configuration centre.
//!
//! Owns the map of paths under `/api`. Segments are percent-decoded one by one, so a key may
//! contain a slash (`%2F`).

use std::sync::Arc;

use tidelock_core::command::config::{Item, Name, NameError, check_key};

use super::super::uri;
use super::error::ApiError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConfigPath {
    /// `/namespaces`.
    Namespaces,
    /// `/namespaces/:ns`.
    Namespace(Name),
    /// `/namespaces/:ns/pairs`.
    Pairs(Name),
    /// `/namespaces/:ns/containers`.
    Containers(Name),
    /// `/namespaces/:ns/pairs/:key` or `…/containers/:key`.
    Item(Name, Item),
    /// `/namespaces/:ns/…`.
    Verb(Name, Verb),
    /// `/namespaces/:ns/pairs/:key/…` or `…/containers/:key/…`.
    ItemVerb(Name, Item, Verb),
}

/// The last segment of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Diff,
    Download,
    Export,
    History,
    Import,
    Policy,
    Publish,
    Rollback,
    Watch,
}

impl Verb {
    fn of(segment: &str) -> Option<Verb> {
        Some(match segment {
            "diff" => Verb::Diff,
            "dl" => Verb::Download,
            "export" => Verb::Export,
            "history" => Verb::History,
            "import" => Verb::Import,
            "policy" => Verb::Policy,
            "publish" => Verb::Publish,
            "rollback" => Verb::Rollback,
            "watch" => Verb::Watch,
            _ => return None,
        })
    }
}

impl ConfigPath {
    /// Parses the raw rest of a path after `/api/`.
    pub fn of(rest: &str) -> Result<ConfigPath, ApiError> {
        let mut segments = rest.split('/');
        if segments.next() != Some("namespaces") {
            return Err(ApiError::no_such_route());
        }
        let segments: Vec<&str> = segments.collect();
        match segments[..] {
            [] => Ok(ConfigPath::Namespaces),
            [ns] => Ok(ConfigPath::Namespace(name(ns)?)),
            [ns, "pairs"] => Ok(ConfigPath::Pairs(name(ns)?)),
            [ns, "containers"] => Ok(ConfigPath::Containers(name(ns)?)),
            [ns, verb] => match Verb::of(verb) {
                Some(verb) => Ok(ConfigPath::Verb(name(ns)?, verb)),
                None => Err(ApiError::no_such_route()),
            },
            [ns, "pairs", item] => Ok(ConfigPath::Item(name(ns)?, Item::Pair(key(item)?))),
            [ns, "containers", item] => Ok(ConfigPath::Item(name(ns)?, Item::Container(key(item)?))),
            [ns, kind @ ("pairs" | "containers"), item, verb] => {
                let Some(verb) = Verb::of(verb) else { return Err(ApiError::no_such_route()) };
                let key = key(item)?;
                let item = if kind == "pairs" { Item::Pair(key) } else { Item::Container(key) };
                Ok(ConfigPath::ItemVerb(name(ns)?, item, verb))
            }
            _ => Err(ApiError::no_such_route()),
        }
    }
}

fn text(segment: &str) -> Result<String, ApiError> {
    let bytes = uri::percent_decode(segment.as_bytes())?;
    String::from_utf8(bytes.into_owned()).map_err(|_| ApiError::name("names and keys are UTF-8"))
}

fn name(segment: &str) -> Result<Name, ApiError> {
    Name::new(&text(segment)?).map_err(|error| wrong("the namespace's name", error))
}

fn key(segment: &str) -> Result<Arc<str>, ApiError> {
    parse_key(&text(segment)?)
}

/// Checks a key of a pair, a container or a field.
pub(super) fn parse_key(key: &str) -> Result<Arc<str>, ApiError> {
    check_key(key).map_err(|error| wrong(&format!("key {key:?}"), error))?;
    Ok(key.into())
}

fn wrong(what: &str, error: NameError) -> ApiError {
    ApiError::name(format!("{what} cannot be: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_one_meaning() {
        let ns = || Name::new("ns").unwrap();
        let pair = || Item::Pair("a/b".into());
        for (rest, place) in [
            ("namespaces", ConfigPath::Namespaces),
            ("namespaces/ns", ConfigPath::Namespace(ns())),
            ("namespaces/n%73", ConfigPath::Namespace(ns())),
            ("namespaces/pairs", ConfigPath::Namespace(Name::new("pairs").unwrap())),
            ("namespaces/ns/pairs", ConfigPath::Pairs(ns())),
            ("namespaces/ns/containers", ConfigPath::Containers(ns())),
            ("namespaces/ns/pairs/a%2Fb", ConfigPath::Item(ns(), pair())),
            ("namespaces/ns/containers/pairs", ConfigPath::Item(ns(), Item::Container("pairs".into()))),
            ("namespaces/ns/publish", ConfigPath::Verb(ns(), Verb::Publish)),
            ("namespaces/ns/pairs/a%2Fb/history", ConfigPath::ItemVerb(ns(), pair(), Verb::History)),
        ] {
            assert_eq!(ConfigPath::of(rest).unwrap(), place, "{rest}");
        }
        let long = format!("namespaces/{}", "x".repeat(33));
        let longer = format!("namespaces/ns/pairs/{}", "ü".repeat(65));
        for rest in [
            "",
            "namespace",
            "namespaces/",
            "namespaces/ns/",
            "namespaces/ns/other",
            "namespaces/ns/pairs/",
            "namespaces/ns/pairs/a/other",
            "namespaces/ns/pairs/a/history/",
            "namespaces/%ff",
            "namespaces/%0a",
            "namespaces/%zz",
            &long,
            &longer,
        ] {
            assert!(ConfigPath::of(rest).is_err(), "{rest}");
        }
        assert!(ConfigPath::of(&format!("namespaces/{}", "ü".repeat(32))).is_ok(), "characters, not bytes");
    }
}
