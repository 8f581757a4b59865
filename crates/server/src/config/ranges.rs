//! Which values each setting allows, where that is a range.
//!
//! Owns the bounds of numbers, the check of a number against them, and the words for every range.
//! The bounds of lists and names are those of the modules that parse them.
//!
//! Invariant: [`range`] is the only place that says which bounds a setting has. Validation and the
//! page on settings ask it, and a test gives [`Settings::new`](super::Settings::new) the values at
//! both ends of each range and those beyond.

use std::fmt;
use std::ops::RangeInclusive;

use tidelock_core::limits::SHARDS_MAX;

use super::{
    ALLOWED_HOSTS_MAX, AUDIT_PREFIXES_MAX, CLUSTER_NAME_BYTES_MAX, ConfigError, FOUNDERS_MAX,
    JOIN_ADDRESSES_MAX, TAGS_MAX, TICK_MS_MIN, TICKS_PER_ELECTION_TIMEOUT,
};
use crate::memory;

/// Largest `replicas`: three hosts may fail. With more votes, every write waits for more disks.
pub const REPLICAS_MAX: u64 = 7;
/// Shortest election timeout, in milliseconds: with a shorter one, a tick would be below its
/// minimum.
const ELECTION_TIMEOUT_MS_MIN: u64 = TICKS_PER_ELECTION_TIMEOUT * TICK_MS_MIN;
/// Longest election timeout. A longer one is taken for a mistake in the unit.
const ELECTION_TIMEOUT_MS_MAX: u64 = 60_000;
/// Shortest request timeout. With a shorter one, a healthy cluster on a slow disk would refuse
/// requests.
const REQUEST_TIMEOUT_MS_MIN: u64 = 100;
/// Longest request timeout: waiting requests hold memory.
const REQUEST_TIMEOUT_MS_MAX: u64 = 60_000;
/// Largest `slow_request_ms`: no request takes longer.
const SLOW_REQUEST_MS_MAX: u64 = REQUEST_TIMEOUT_MS_MAX;
/// Longest `dead_after`, in seconds. A longer one is taken for a mistake in the unit.
const DEAD_AFTER_S_MAX: u64 = 30 * 86_400;
/// Shortest `auth_stale`, in seconds. A node confirms the permissions eight times within it, and an
/// election must not stop its requests.
const AUTH_STALE_S_MIN: u64 = 10;
/// Longest `auth_stale`, in seconds. A longer one is taken for a mistake in the unit.
const AUTH_STALE_S_MAX: u64 = 86_400;
/// Most workers. The one thread that drives the node is saturated long before.
pub const WORKERS_MAX: u64 = 64;
/// Fractions of a whole.
pub(super) const SHARES: RangeInclusive<f64> = 0.0..=1.0;

/// The values that a setting allows. Both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedRange {
    /// Numbers from `min` to `max`.
    Numbers {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// Odd numbers up to this one.
    OddNumbers(u64),
    /// Fractions of a whole.
    Share,
    /// At least so many bytes, whole MiB.
    Bytes(usize),
    /// Lists of `min` to `max` elements.
    Elements {
        /// The fewest.
        min: usize,
        /// The most.
        max: usize,
    },
    /// One to so many characters.
    Characters(usize),
}

impl fmt::Display for AllowedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AllowedRange::Numbers { min, max } => write!(f, "{min} to {max}"),
            AllowedRange::OddNumbers(max) => write!(f, "odd, 1 to {max}"),
            AllowedRange::Share => write!(f, "{} to {}", SHARES.start(), SHARES.end()),
            AllowedRange::Bytes(min) => write!(f, "at least {}MiB", min >> 20),
            AllowedRange::Elements { min: 0, max } => write!(f, "at most {max} elements"),
            AllowedRange::Elements { min, max } => write!(f, "{min} to {max} elements"),
            AllowedRange::Characters(max) => write!(f, "1 to {max} characters"),
        }
    }
}

/// The range of a setting, by its key in the file; `None` if it has none.
pub fn range(setting: &str) -> Option<AllowedRange> {
    let numbers = |min, max| AllowedRange::Numbers { min, max };
    let elements = |min, max| AllowedRange::Elements { min, max };
    Some(match setting {
        "allowed_hosts" => elements(0, ALLOWED_HOSTS_MAX),
        "audit_writes" => elements(0, AUDIT_PREFIXES_MAX),
        "peers" => elements(1, FOUNDERS_MAX),
        "join" => elements(1, JOIN_ADDRESSES_MAX),
        "cluster_name" => AllowedRange::Characters(CLUSTER_NAME_BYTES_MAX),
        "shards" => numbers(1, SHARDS_MAX),
        "replicas" => AllowedRange::OddNumbers(REPLICAS_MAX),
        "shard_tags" | "tags" => elements(0, TAGS_MAX),
        "election_timeout_ms" => numbers(ELECTION_TIMEOUT_MS_MIN, ELECTION_TIMEOUT_MS_MAX),
        "request_timeout_ms" => numbers(REQUEST_TIMEOUT_MS_MIN, REQUEST_TIMEOUT_MS_MAX),
        "dead_after_s" => numbers(1, DEAD_AFTER_S_MAX),
        "auth_stale_s" => numbers(AUTH_STALE_S_MIN, AUTH_STALE_S_MAX),
        "slow_request_ms" => numbers(1, SLOW_REQUEST_MS_MAX),
        "trace_ratio" => AllowedRange::Share,
        "workers" => numbers(1, WORKERS_MAX),
        "memory_limit" => AllowedRange::Bytes(memory::LIMIT_BYTES_MIN),
        _ => return None,
    })
}

/// Checks a number against the range of its setting.
pub(super) fn in_range(setting: &'static str, given: u64) -> Result<u64, ConfigError> {
    let Some(AllowedRange::Numbers { min, max }) = range(setting) else {
        panic!("invariant: {setting} has a range of numbers");
    };
    if (min..=max).contains(&given) {
        Ok(given)
    } else {
        Err(ConfigError::OutOfRange { setting, given, min, max })
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;
    use crate::config::{RawSettings, Settings};

    /// What a setting needs beside it.
    fn beside(setting: &str) -> &'static str {
        match setting {
            "trace_ratio" => "trace_endpoint = 'http://collector'",
            "audit_writes" => "audit_log = 'f'",
            _ => "",
        }
    }

    /// A list of different elements, each of the form that the setting wants.
    fn list(setting: &str, count: usize) -> String {
        let element = |number: usize| match setting {
            "peers" | "join" => format!("'h{number}:1'"),
            "tags" | "shard_tags" => format!("'k{number}=v'"),
            _ => format!("'e{number}'"),
        };
        format!("[{}]", (0..count).map(element).collect::<Vec<_>>().join(", "))
    }

    /// The values at the ends of a range, and the nearest ones beyond.
    fn ends(setting: &str, range: AllowedRange) -> (Vec<String>, Vec<String>) {
        let numbers = |list: &[u64]| list.iter().map(u64::to_string).collect();
        let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        match range {
            AllowedRange::Numbers { min, max } => (numbers(&[min, max]), numbers(&[min - 1, max + 1])),
            AllowedRange::OddNumbers(max) => (numbers(&[1, max]), numbers(&[0, 2, max + 1, max + 2])),
            AllowedRange::Share => (texts(&["0.0", "1.0"]), texts(&["-0.001", "1.001", "nan"])),
            AllowedRange::Bytes(min) => (vec![format!("'{min}'")], vec![format!("'{}'", min - 1)]),
            AllowedRange::Elements { min, max } => {
                let fewer = min.checked_sub(1).map(|count| list(setting, count));
                let beyond = fewer.into_iter().chain([list(setting, max + 1)]).collect();
                (vec![list(setting, min), list(setting, max)], beyond)
            }
            AllowedRange::Characters(max) => {
                let name = |length| format!("'{}'", "n".repeat(length));
                (vec![name(1), name(max)], vec![name(0), name(max + 1)])
            }
        }
    }

    #[test]
    fn every_range_is_the_one_that_counts() {
        let command = RawSettings::augment_args(Command::new("settings"));
        let settings = command.get_arguments().map(|flag| flag.get_id().to_string());
        let ranges: Vec<(String, AllowedRange)> =
            settings.filter_map(|setting| range(&setting).map(|range| (setting, range))).collect();
        assert_eq!(ranges.len(), 17, "a range whose setting is misspelt belongs to none: {ranges:?}");
        for (setting, range) in ranges {
            let (within, beyond) = ends(&setting, range);
            let outcome = |value: &str| {
                let toml = format!("{setting} = {value}\n{}", beside(&setting));
                Settings::new(RawSettings::parse(&toml).unwrap()).map_err(|error| error.to_string())
            };
            for value in within {
                assert!(outcome(&value).is_ok(), "{setting} = {value}: {:?}", outcome(&value));
            }
            for value in beyond {
                let refusal = outcome(&value).expect_err(&value);
                assert!(refusal.starts_with(&setting), "{setting} = {value} said: {refusal}");
            }
        }
    }

    #[test]
    fn ranges_in_words() {
        for (setting, words) in [
            ("shards", "1 to 512"),
            ("replicas", "odd, 1 to 7"),
            ("trace_ratio", "0 to 1"),
            ("memory_limit", "at least 64MiB"),
            ("peers", "1 to 9 elements"),
            ("tags", "at most 64 elements"),
            ("cluster_name", "1 to 64 characters"),
        ] {
            assert_eq!(range(setting).map(|range| range.to_string()).as_deref(), Some(words));
        }
        assert_eq!(range("http"), None);
    }
}
