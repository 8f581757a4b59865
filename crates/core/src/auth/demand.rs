//! Demands: what a request needs to be allowed.

use core::fmt;

use super::text;

/// One permission that a request needs. A request may have several demands, and all of them must be
/// covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand<'a> {
    /// What is done.
    pub verb: Verb,
    /// To what it is done.
    pub scope: Scope<'a>,
}

/// What a request does to its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The reply shows stored data.
    Read,
    /// Stored data may change.
    Write,
    /// Changes are reported as they happen. Covered only together with [`Verb::Read`].
    Watch,
    /// The reply shows secrets in plain text.
    Reveal,
    /// The cluster's members, shards, placement or slots may change.
    Operate,
    /// Data is read or written as a whole, whatever the grants for keys and configuration.
    Administer,
    /// Only nodes make the request, for themselves. No grant covers it.
    Internal,
}

/// What a request reads or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// One key. It need not exist.
    Key(&'a [u8]),
    /// Every key that starts with a prefix; with an empty prefix, every key.
    Keys {
        /// Any bytes.
        prefix: &'a [u8],
    },
    /// One configuration namespace. It need not exist.
    Namespace(&'a str),
    /// Every configuration namespace whose name starts with a prefix.
    Namespaces {
        /// Any bytes. No name starts with bytes that are not UTF-8.
        prefix: &'a [u8],
    },
    /// The cluster: its hosts, shards and replicas, and its state as a whole.
    Cluster,
}

impl Verb {
    /// The word for the verb in the text form of grants.
    fn word(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::Watch => "watch",
            Verb::Reveal => "reveal",
            Verb::Operate => "operate",
            Verb::Administer => "admin",
            Verb::Internal => "internal",
        }
    }
}

impl fmt::Display for Demand<'_> {
    /// Writes the narrowest grant that covers the demand.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb.word();
        match self.scope {
            Scope::Key(prefix) | Scope::Keys { prefix } => {
                write!(f, "{verb} keys:")?;
                text::encode(prefix, f)
            }
            Scope::Namespace(name) => {
                write!(f, "{verb} config:")?;
                text::encode(name.as_bytes(), f)
            }
            Scope::Namespaces { prefix } => {
                write!(f, "{verb} config:")?;
                text::encode(prefix, f)?;
                f.write_str("*")
            }
            Scope::Cluster => write!(f, "cluster:{verb}"),
        }
    }
}
