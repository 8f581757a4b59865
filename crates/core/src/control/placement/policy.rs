//! Placement policies: what the tags of a shard say about where its replicas should be.
//!
//! Owns the words:
//!
//! ```text
//! placement:member=3;geo:region=us-central1     three voters, on hosts with this tag
//! placement:vary=geo:zone                       no two voters where this tag has the same value, if that can be
//! placement:replica:reports=2;disk=large        two more replicas without a vote, on hosts with this tag
//! placement:cover=geo:region=us-east1           a replica without a vote on every host with this tag
//! ```
//!
//! A condition is `name=value`, or `name` alone for any value; several are separated by `;`, and all must hold. Tags of
//! other names mean nothing here.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::limits;

const PREFIX: &str = "placement:";
const REPLICA_PREFIX: &str = "replica:";

/// The policies of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How many voters, and on which hosts. Without it, the hosts vote that operators gave a vote, and the founders.
    pub member: Option<Group>,
    /// Names of tags in whose values voters should differ.
    pub vary: Vec<String>,
    /// Replicas without a vote, by the names of their groups.
    pub replicas: BTreeMap<String, Group>,
    /// Hosts that all have a replica without a vote.
    pub cover: Option<Conditions>,
}

/// So many replicas, on hosts with these tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// How many.
    pub count: usize,
    /// Where.
    pub conditions: Conditions,
}

/// What the tags of a host must be; nothing else is asked if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(Vec<(String, Option<String>)>);

/// Why a policy cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is none of this name.
    #[error("`{PREFIX}{0}` is no policy: there are member, vary, replica:<group> and cover")]
    Unknown(String),
    /// A number is missing in front.
    #[error("`{PREFIX}{0}` must begin with a number of replicas, 1 to {max}", max = limits::HOSTS_MAX)]
    Count(String),
    /// A condition has no name.
    #[error("`{PREFIX}{0}` has a condition without a name; write name=value, or a name alone")]
    Condition(String),
}

impl Policy {
    /// Reads the policies among a shard's tags.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn parse(tags: &BTreeMap<String, String>) -> Result<Policy, PolicyError> {
        let mut policy = Policy::default();
        for (name, value) in tags {
            let Some(name) = name.strip_prefix(PREFIX) else { continue };
            match (name, name.strip_prefix(REPLICA_PREFIX)) {
                ("member", _) => policy.member = Some(group(name, value)?),
                ("vary", _) => {
                    let names = value.split([';', ',']).map(str::trim);
                    policy.vary = names.filter(|name| !name.is_empty()).map(String::from).collect();
                }
                ("cover", _) => policy.cover = Some(conditions(name, value)?),
                (_, Some(of)) if !of.is_empty() => {
                    policy.replicas.insert(String::from(of), group(name, value)?);
                }
                _ => return Err(PolicyError::Unknown(String::from(name))),
            }
        }
        Ok(policy)
    }
}

/// Whether the name of a tag was probably meant to be that of a policy: it would be a note without effect. Stored tags are
/// not judged by this, so that no older cluster is left with tags that it cannot change.
pub fn is_misspelt(name: &str) -> bool {
    const WORD: &str = "placement";
    if name.starts_with(PREFIX) {
        return false;
    }
    let word = name.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default();
    let has_more = word.len() < name.len();
    let is_policy = ["member", "vary", "cover"].contains(&name) || name.starts_with(REPLICA_PREFIX);
    let word = word.to_lowercase();
    // A word of its own, such as replacement, begins with another letter.
    is_policy || (has_more && word.starts_with('p') && distance(&word, WORD) <= MISSPELT_EDITS_MAX)
}

/// So many letters may be missing, added or wrong.
const MISSPELT_EDITS_MAX: usize = 2;

/// How many letters must be inserted, removed or replaced to come from one word to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], line + 1);
        for (column, other) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.chars().count()]
}

fn group(name: &str, value: &str) -> Result<Group, PolicyError> {
    let (count, rest) = value.split_once(';').unwrap_or((value, ""));
    let count = count.trim().parse().ok().filter(|count| (1..=limits::HOSTS_MAX).contains(count));
    let count = count.ok_or_else(|| PolicyError::Count(String::from(name)))?;
    Ok(Group { count, conditions: conditions(name, rest)? })
}

fn conditions(name: &str, value: &str) -> Result<Conditions, PolicyError> {
    let mut list = Vec::new();
    for condition in value.split(';').map(str::trim).filter(|condition| !condition.is_empty()) {
        let (tag, value) = match condition.split_once('=') {
            Some((tag, value)) => (tag, Some(String::from(value))),
            None => (condition, None),
        };
        if tag.is_empty() {
            return Err(PolicyError::Condition(String::from(name)));
        }
        list.push((String::from(tag), value));
    }
    Ok(Conditions(list))
}

impl Conditions {
    /// Whether a host with these tags will do.
    pub fn hold(&self, tags: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(name, wanted)| match (tags.get(name), wanted) {
            (Some(value), Some(wanted)) => value == wanted,
            (found, None) => found.is_some(),
            (None, Some(_)) => false,
        })
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, value)) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ";" };
            match value {
                Some(value) => write!(f, "{separator}{name}={value}")?,
                None => write!(f, "{separator}{name}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn tags(tags: &[(&str, &str)]) -> BTreeMap<String, String> {
        tags.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn policies_are_read_from_tags() {
        let policy = Policy::parse(&tags(&[
            ("placement:member", "3;geo:region=us-central1"),
            ("placement:vary", "geo:zone"),
            ("placement:replica:reports", "2;disk=large;fast"),
            ("placement:cover", ""),
            ("owner", "somebody"),
        ]))
        .expect("a policy");
        let member = policy.member.expect("voters");
        assert_eq!((member.count, member.conditions.to_string().as_str()), (3, "geo:region=us-central1"));
        assert_eq!(policy.vary, ["geo:zone"]);
        let reports = &policy.replicas["reports"];
        assert_eq!((reports.count, reports.conditions.to_string().as_str()), (2, "disk=large;fast"));
        assert!(reports.conditions.hold(&tags(&[("disk", "large"), ("fast", "")])));
        assert!(!reports.conditions.hold(&tags(&[("disk", "large")])));
        assert!(!reports.conditions.hold(&tags(&[("disk", "small"), ("fast", "yes")])));
        assert!(policy.cover.expect("a cover").hold(&tags(&[])), "every host");
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        for (name, value, expected) in [
            ("placement:members", "3", "`placement:members` is no policy"),
            ("placement:replica:", "3", "is no policy"),
            ("placement:member", "", "must begin with a number"),
            ("placement:member", "0", "1 to 64"),
            ("placement:replica:a", "65", "1 to 64"),
            ("placement:member", "a=b", "must begin with a number"),
            ("placement:cover", "=b", "a condition without a name"),
        ] {
            let error = Policy::parse(&tags(&[(name, value)])).expect_err(name).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn names_that_were_meant_to_be_policies_are_found() {
        for name in [
            "placment:member",
            "Placement:vary",
            "placements:member",
            "plaement:cover",
            "placement-member",
            "placement.vary",
            "member",
            "vary",
            "cover",
            "replica:reports",
        ] {
            assert!(is_misspelt(name), "{name}");
        }
        for name in [
            "placement:member",
            "placement:replica:r",
            "placement:members",
            "place:of",
            "owner",
            "replacement:for",
            "basement:b",
            "member-of",
            "note",
            "placement",
            "",
        ] {
            assert!(!is_misspelt(name), "{name}");
        }
    }
}
