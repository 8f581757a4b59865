//! Placement policies: the tags of a shard that say where its replicas should be.
//!
//! Owns the syntax:
//!
//! ```text
//! placement:member=3;geo:region=us-central1  three voters, on hosts with this tag
//! placement:vary=geo:zone                    voters with distinct values of this tag, if possible
//! placement:replica:reports=2;disk=large     two more learners, on hosts with this tag
//! placement:cover=geo:region=us-east1        a learner on every host with this tag
//! ```
//!
//! A condition is `name=value`, or `name` alone for any value. Several conditions are separated by
//! `;`, and all must hold. Tags with other names have no effect on placement.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::limits;

const PREFIX: &str = "placement:";
/// Name of the policy for voters.
pub const MEMBER_POLICY: &str = "placement:member";
const REPLICA_PREFIX: &str = "replica:";

/// The placement policies of one shard, as parsed from its tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementPolicy {
    /// Number of voters and the hosts allowed for them.
    pub member: Option<ReplicaGroup>,
    /// Names of the tags in whose values voters should differ.
    pub vary: Vec<String>,
    /// Groups of learners, by name.
    pub replicas: BTreeMap<String, ReplicaGroup>,
    /// Hosts that should all have a learner.
    pub cover: Option<Conditions>,
}

/// A number of replicas on hosts with certain tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaGroup {
    /// Number of replicas, 1 to [`limits::HOSTS_MAX`].
    pub count: usize,
    /// What the tags of a host must satisfy.
    pub conditions: Conditions,
}

/// Conditions on the tags of a host. Without conditions, every host is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(Vec<(String, Option<String>)>);

/// Why a policy does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is no policy of this name.
    #[error("`{PREFIX}{0}` is no policy: there are member, vary, replica:<group> and cover")]
    Unknown(String),
    /// The policy does not begin with a number.
    #[error("`{PREFIX}{0}` must begin with a number of replicas, 1 to {max}", max = limits::HOSTS_MAX)]
    Count(String),
    /// A condition has a value but no name.
    #[error("`{PREFIX}{0}` has a condition without a name; write name=value, or a name alone")]
    Condition(String),
    /// The default of a cluster has a tag that is no policy.
    #[error(
        "`{0}` is no policy: the default of the cluster has {PREFIX}member, vary, replica:<group> and cover"
    )]
    NoPolicy(String),
    /// The default of a cluster does not say how many voters a shard has.
    #[error("the default of the cluster needs {PREFIX}member: the number of voters of each shard")]
    NoVoters,
}

impl PlacementPolicy {
    /// Parses the policies among a shard's tags.
    ///
    /// # Errors
    /// When one of them does not parse.
    pub fn parse(tags: &BTreeMap<String, String>) -> Result<PlacementPolicy, PolicyError> {
        let mut policy = PlacementPolicy::default();
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

/// Whether a tag of this name is a policy.
pub fn is_policy(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Checks the policies that all shards of a cluster inherit: each must parse, all names must be
/// those of policies, and the number of voters must be among them. Without it, the shards would
/// have no number of voters.
///
/// # Errors
/// Which rule the tags break.
pub fn check_default(tags: &BTreeMap<String, String>) -> Result<PlacementPolicy, PolicyError> {
    if let Some(name) = tags.keys().find(|name| !is_policy(name)) {
        return Err(PolicyError::NoPolicy(name.clone()));
    }
    let policy = PlacementPolicy::parse(tags)?;
    if policy.member.is_none() { Err(PolicyError::NoVoters) } else { Ok(policy) }
}

/// Whether the name of a tag looks like a misspelt policy, which would be a tag without effect.
/// Only new tags are checked, so that an older cluster can still change tags that it has stored.
pub fn is_misspelt(name: &str) -> bool {
    const WORD: &str = "placement";
    if name.starts_with(PREFIX) {
        return false;
    }
    let word = name.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default();
    let has_more = word.len() < name.len();
    let is_policy = ["member", "vary", "cover"].contains(&name) || name.starts_with(REPLICA_PREFIX);
    let word = word.to_lowercase();
    // Other words, such as "replacement", begin with another letter.
    is_policy || (has_more && word.starts_with('p') && distance(&word, WORD) <= MISSPELT_EDITS_MAX)
}

/// Maximum number of letters missing, added or wrong.
const MISSPELT_EDITS_MAX: usize = 2;

/// Edit distance (Levenshtein): the number of letters to insert, remove or replace.
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

fn group(name: &str, value: &str) -> Result<ReplicaGroup, PolicyError> {
    let (count, rest) = value.split_once(';').unwrap_or((value, ""));
    let count = count.trim().parse().ok().filter(|count| (1..=limits::HOSTS_MAX).contains(count));
    let count = count.ok_or_else(|| PolicyError::Count(String::from(name)))?;
    Ok(ReplicaGroup { count, conditions: conditions(name, rest)? })
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
    /// Whether a host with these tags is allowed.
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
        let policy = PlacementPolicy::parse(&tags(&[
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
            let error = PlacementPolicy::parse(&tags(&[(name, value)])).expect_err(name).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_default_says_how_many_voters_there_are_and_nothing_but_policies() {
        let checked = |list: &[(&str, &str)]| check_default(&tags(list)).map_err(|error| error.to_string());
        let policy =
            checked(&[("placement:member", "5"), ("placement:vary", "geo:rack")]).expect("a default");
        assert_eq!((policy.member.map(|member| member.count), policy.vary.len()), (Some(5), 1));
        for (list, expected) in [
            (&[("placement:vary", "geo:zone")][..], "needs placement:member"),
            (&[], "needs placement:member"),
            (&[("placement:member", "3"), ("owner", "us")], "`owner` is no policy"),
            (&[("placement:members", "3")], "`placement:members` is no policy"),
            (&[("placement:member", "many")], "must begin with a number"),
        ] {
            let error = checked(list).expect_err(expected);
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
