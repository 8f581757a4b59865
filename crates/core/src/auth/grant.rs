//! Grants: what a principal may do.
//!
//! Owns the rule by which a grant covers a demand. Prefixes are compared byte by byte, and never by
//! a computed end of a range. So there is no special case for an empty prefix, nor for one that
//! ends with the byte 0xff.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Demand, Scope, Verb};

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// Access to all keys that start with a prefix.
    Keys {
        /// What may be done with the keys.
        access: KeyAccess,
        /// At most [`GRANT_BYTES_MAX`](crate::limits::GRANT_BYTES_MAX) bytes; empty: all keys.
        prefix: Vec<u8>,
    },
    /// Access to configuration namespaces.
    Config {
        /// What may be done with the namespaces.
        access: ConfigAccess,
        /// One namespace, or all whose names start with a prefix.
        namespaces: Namespaces,
    },
    /// Access to the cluster.
    Cluster(ClusterLevel),
}

/// What a grant allows to do with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyAccess {
    /// To see the keys and their values.
    Read,
    /// To change the keys. It does not include [`KeyAccess::Read`].
    Write,
    /// To be notified of changes. It has no effect without [`KeyAccess::Read`] of the same keys.
    Watch,
}

/// What a grant allows to do with configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigAccess {
    /// To see and watch the content and the history.
    Read,
    /// To change the content, its history's length, and whether the namespace exists.
    Write,
    /// To see secrets in plain text. It has no effect without [`ConfigAccess::Read`] of the same
    /// namespaces, because a secret is read with its pair.
    Reveal,
}

/// The configuration namespaces that a grant covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespaces {
    /// The namespace of this name.
    Named(String),
    /// Every namespace whose name starts with this text; all if it is empty.
    StartingWith(String),
}

/// What a grant allows to do with the cluster. Each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterLevel {
    /// To see hosts, shards, replicas, metrics and the state of nodes.
    Read,
    /// To change members, shards, placement, slots and leaders.
    Operate,
    /// To save and restore backups, and to change permissions.
    Admin,
}

/// The grants of one principal or role, each once and sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(Vec<Grant>);

impl KeyAccess {
    fn verb(self) -> Verb {
        match self {
            KeyAccess::Read => Verb::Read,
            KeyAccess::Write => Verb::Write,
            KeyAccess::Watch => Verb::Watch,
        }
    }
}

impl ConfigAccess {
    fn verb(self) -> Verb {
        match self {
            ConfigAccess::Read => Verb::Read,
            ConfigAccess::Write => Verb::Write,
            ConfigAccess::Reveal => Verb::Reveal,
        }
    }
}

impl Namespaces {
    /// Whether it covers the namespace of this name.
    fn contain(&self, name: &str) -> bool {
        match self {
            Namespaces::Named(named) => named == name,
            Namespaces::StartingWith(prefix) => name.starts_with(prefix.as_str()),
        }
    }

    /// Whether it covers every namespace whose name starts with `prefix`.
    fn contain_all(&self, prefix: &[u8]) -> bool {
        match self {
            // Longer names start with the same bytes.
            Namespaces::Named(_) => false,
            Namespaces::StartingWith(granted) => prefix.starts_with(granted.as_bytes()),
        }
    }
}

impl ClusterLevel {
    /// Whether it allows to do `verb` to the cluster.
    fn allows(self, verb: Verb) -> bool {
        let needed = match verb {
            Verb::Read => ClusterLevel::Read,
            Verb::Operate => ClusterLevel::Operate,
            Verb::Administer => ClusterLevel::Admin,
            Verb::Write | Verb::Watch | Verb::Reveal | Verb::Internal => return false,
        };
        self >= needed
    }
}

impl Grant {
    /// Whether it alone covers the demand, except that [`KeyAccess::Watch`] also needs a grant to
    /// read: see [`Grants::cover`].
    fn covers(&self, demand: &Demand<'_>) -> bool {
        let Demand { verb, scope } = *demand;
        match self {
            Grant::Keys { access, prefix } => match scope {
                // A range is contained if its own prefix continues the granted one.
                Scope::Key(key) | Scope::Keys { prefix: key } => {
                    // Not only `starts_with`: an empty vector has no valid address, and a `memcmp`
                    // of 0 bytes there takes tens of nanoseconds with masked vector loads.
                    access.verb() == verb && (prefix.is_empty() || key.starts_with(prefix))
                }
                Scope::Namespace(_) | Scope::Namespaces { .. } | Scope::Cluster => false,
            },
            Grant::Config { access, namespaces } => match scope {
                Scope::Namespace(name) => access.verb() == verb && namespaces.contain(name),
                Scope::Namespaces { prefix } => access.verb() == verb && namespaces.contain_all(prefix),
                Scope::Key(_) | Scope::Keys { .. } | Scope::Cluster => false,
            },
            Grant::Cluster(level) => match scope {
                Scope::Cluster => level.allows(verb),
                Scope::Key(_) | Scope::Keys { .. } | Scope::Namespace(_) | Scope::Namespaces { .. } => false,
            },
        }
    }
}

impl Grants {
    /// Whether a demand is covered. It allocates nothing.
    pub fn cover(&self, demand: &Demand<'_>) -> bool {
        let covered = |demand: &Demand<'_>| self.0.iter().any(|grant| grant.covers(demand));
        covered(demand)
            && (demand.verb != Verb::Watch || covered(&Demand { verb: Verb::Read, scope: demand.scope }))
    }

    /// Whether a grant covers the demand, without the read that a watch also needs. The read may be
    /// granted by another role.
    pub(crate) fn cover_alone(&self, demand: &Demand<'_>) -> bool {
        self.0.iter().any(|grant| grant.covers(demand))
    }

    /// The grants, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.0.iter()
    }

    /// Number of grants.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no grants, so that nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Grant> for Grants {
    fn from_iter<I: IntoIterator<Item = Grant>>(grants: I) -> Grants {
        let mut grants: Vec<Grant> = grants.into_iter().collect();
        grants.sort_unstable();
        grants.dedup();
        Grants(grants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(texts: &[&str]) -> Grants {
        texts.iter().map(|text| text.parse().expect("a grant")).collect()
    }

    fn covers(texts: &[&str], verb: Verb, scope: Scope<'_>) -> bool {
        grants(texts).cover(&Demand { verb, scope })
    }

    #[test]
    fn a_prefix_covers_the_keys_that_start_with_it() {
        for (grant, key, is_covered) in [
            ("read keys:", &b""[..], true),
            ("read keys:", b"\xff\xff", true),
            ("read keys:", b"\0", true),
            ("read keys:a", b"", false),
            ("read keys:a", b"a", true),
            ("read keys:a", b"a\xff", true),
            ("read keys:a", b"b", false),
            ("read keys:a", b"`\xff", false),
            ("read keys:a%FF", b"a\xff", true),
            ("read keys:a%FF", b"a\xff\xff", true),
            ("read keys:a%FF", b"a\xff\0", true),
            ("read keys:a%FF", b"b", false),
            ("read keys:a%FF", b"a\xfe\xff", false),
            ("read keys:%FF%FF", b"\xff", false),
            ("read keys:%FF%FF", b"\xff\xff", true),
            ("read keys:%00", b"\0", true),
            ("read keys:%00", b"", false),
            ("write keys:a", b"a", false),
            ("watch keys:a", b"a", false),
            ("read config:*", b"a", false),
            ("cluster:admin", b"a", false),
        ] {
            assert_eq!(covers(&[grant], Verb::Read, Scope::Key(key)), is_covered, "{grant} {key:?}");
        }
    }

    #[test]
    fn a_range_must_lie_within_one_grant() {
        for (texts, prefix, is_covered) in [
            (&["read keys:"][..], &b""[..], true),
            (&["read keys:a"], b"", false),
            (&["read keys:a"], b"a", true),
            (&["read keys:a"], b"ab", true),
            (&["read keys:ab"], b"a", false),
            (&["read keys:a%FF"], b"a", false),
            (&["read keys:a%FF"], b"a\xff", true),
            (&["read keys:%00", "read keys:%FF"], b"", false),
        ] {
            assert_eq!(covers(texts, Verb::Read, Scope::Keys { prefix }), is_covered, "{texts:?} {prefix:?}");
        }
        let every_byte = (0..=255).map(|byte| {
            let prefix = alloc::vec![byte];
            Grant::Keys { access: KeyAccess::Read, prefix }
        });
        let all = Demand { verb: Verb::Read, scope: Scope::Keys { prefix: b"" } };
        assert!(!every_byte.collect::<Grants>().cover(&all), "the empty key is not among them");
    }

    #[test]
    fn a_namespace_is_covered_by_its_name_or_a_prefix() {
        for (grant, name, is_covered) in [
            ("read config:web", "web", true),
            ("read config:web", "web2", false),
            ("read config:web", "we", false),
            ("read config:web*", "web", true),
            ("read config:web*", "web2", true),
            ("read config:web*", "we", false),
            ("read config:*", "anything", true),
            ("read config:web%2A", "web*", true),
            ("read config:web%2A", "web2", false),
            ("read keys:", "web", false),
        ] {
            assert_eq!(covers(&[grant], Verb::Read, Scope::Namespace(name)), is_covered, "{grant} {name}");
        }
        for (grant, prefix, is_covered) in [
            ("read config:*", &b""[..], true),
            ("read config:*", b"\xff", true),
            ("read config:web", b"web", false),
            ("read config:web*", b"web", true),
            ("read config:web*", b"we", false),
            ("read config:web*", b"", false),
            ("write config:*", b"", false),
        ] {
            let scope = Scope::Namespaces { prefix };
            assert_eq!(covers(&[grant], Verb::Read, scope), is_covered, "{grant} {prefix:?}");
        }
    }

    #[test]
    fn a_grant_to_read_or_write_reveals_nothing() {
        let reveals = |texts: &[&str]| covers(texts, Verb::Reveal, Scope::Namespace("web"));
        assert!(reveals(&["reveal config:web"]));
        assert!(reveals(&["reveal config:w*"]));
        assert!(!reveals(&["reveal config:we"]));
        assert!(!reveals(&["read config:*", "write config:*", "read keys:", "cluster:admin"]));
        assert!(!covers(&["reveal config:web"], Verb::Read, Scope::Namespace("web")));
    }

    #[test]
    fn cluster_levels_include_lower_ones_and_no_data() {
        let levels = ["cluster:read", "cluster:operate", "cluster:admin"];
        for (verb, lowest) in [(Verb::Read, 0), (Verb::Operate, 1), (Verb::Administer, 2)] {
            for (level, grant) in levels.iter().enumerate() {
                assert_eq!(covers(&[grant], verb, Scope::Cluster), level >= lowest, "{grant} {verb:?}");
            }
        }
        for verb in [Verb::Read, Verb::Write] {
            assert!(!covers(&levels, verb, Scope::Key(b"a")));
            assert!(!covers(&levels, verb, Scope::Namespace("a")));
        }
    }

    #[test]
    fn a_watch_needs_a_read_of_the_same_keys() {
        let watches = |texts: &[&str]| covers(texts, Verb::Watch, Scope::Keys { prefix: b"a/" });
        assert!(watches(&["watch keys:a/", "read keys:a"]));
        assert!(!watches(&["watch keys:a/"]));
        assert!(!watches(&["read keys:a"]));
        assert!(!watches(&["watch keys:a/", "read keys:a/b"]));
        assert!(!watches(&["watch keys:a/", "write keys:a/"]));
    }

    #[test]
    fn no_grant_covers_what_only_nodes_do() {
        let all = [
            "read keys:",
            "write keys:",
            "watch keys:",
            "read config:*",
            "write config:*",
            "reveal config:*",
            "cluster:admin",
        ];
        let scopes = [
            Scope::Key(b"a"),
            Scope::Keys { prefix: b"" },
            Scope::Namespace("a"),
            Scope::Namespaces { prefix: b"" },
            Scope::Cluster,
        ];
        for scope in scopes {
            assert!(!covers(&all, Verb::Internal, scope), "{scope:?}");
        }
        assert!(!Grants::default().cover(&Demand { verb: Verb::Read, scope: Scope::Key(b"a") }));
    }
}
