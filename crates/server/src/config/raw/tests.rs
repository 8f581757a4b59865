//! Raw settings: each is the same from a flag and from a file, and its help states its default.
//!
//! These tests visit all settings as clap lists them, so that a new setting needs no change here.

use clap::{Arg, Command, FromArgMatches};

use super::*;
use crate::config::Settings;

/// Settings whose default depends on the machine or on other settings. Their help describes it.
const COMPUTED_DEFAULTS: [&str; 10] = [
    "listen_http",
    "advertise_http",
    "listen_resp",
    "advertise_resp",
    "resp_cluster",
    "advertise_resp_cluster",
    "listen_peer",
    "advertise_peer",
    "workers",
    "memory_limit",
];

fn command() -> Command {
    RawSettings::augment_args(Command::new("serve").no_binary_name(true))
}

fn of_flags(line: &str) -> RawSettings {
    let matches = command().try_get_matches_from(line.split_whitespace()).unwrap();
    RawSettings::from_arg_matches(&matches).unwrap()
}

fn of_flag(flag: &Arg, value: &str) -> RawSettings {
    of_flags(&format!("--{} {value}", flag.get_long().unwrap()))
}

/// The settings of a file with one line, for the key that is named as the field of `flag`: a number
/// or a boolean, a string, or a list of strings, whichever type the key has.
fn of_file(flag: &Arg, value: &str) -> RawSettings {
    let key = flag.get_id();
    let lines = [format!("{key} = {value}"), format!("{key} = '{value}'"), format!("{key} = ['{value}']")];
    lines.iter().find_map(|line| toml::from_str(line).ok()).unwrap_or_else(|| panic!("no type fits {key}"))
}

/// Two values that the type of a flag allows.
fn two_values(flag: &Arg) -> [String; 2] {
    match flag.get_possible_values().as_slice() {
        [] => ["1", "2"].map(str::to_owned),
        [one, two] => [one, two].map(|value| value.get_name().to_owned()),
        other => panic!("{}: {other:?}", flag.get_id()),
    }
}

#[test]
fn every_setting_is_the_same_by_flag_and_by_file_and_the_flag_wins() {
    for flag in command().get_arguments() {
        let values = two_values(flag);
        let [one, two] = values.each_ref().map(|value| of_flag(flag, value));
        let [one_of_file, two_of_file] = values.each_ref().map(|value| of_file(flag, value));
        let name = flag.get_id();
        assert!(one != two && one != RawSettings::default(), "{name}");
        assert_eq!((&one, &two), (&one_of_file, &two_of_file), "{name}");
        assert_eq!(two.clone().or(one_of_file.clone()), two, "{name}");
        assert_eq!(RawSettings::default().or(one_of_file), one, "{name}");
        assert_eq!(two.clone().or(RawSettings::default()), two, "{name}");
    }
}

#[test]
fn lists_are_separated_by_commas_or_repeated() {
    let list = |items: &[&str]| Some(items.iter().map(ToString::to_string).collect());
    let given =
        of_flags("--peers p:3,q:3 --join m:4,n:4 --allowed-hosts x.example,y --tag a=1 --tag b=2,c=3");
    let expected = RawSettings {
        peers: list(&["p:3", "q:3"]),
        join: list(&["m:4", "n:4"]),
        allowed_hosts: list(&["x.example", "y"]),
        tags: list(&["a=1", "b=2", "c=3"]),
        ..RawSettings::default()
    };
    assert_eq!(given, expected);
}

/// The settings that result from raw ones, without the distinction of a default that was given.
fn effective(raw: RawSettings) -> Settings {
    let mut settings = Settings::new(raw).unwrap();
    settings.cluster_name = Some(settings.founding_name().to_owned());
    (settings.has_shards, settings.has_replicas) = (true, true);
    settings
}

#[test]
fn the_help_states_the_defaults() {
    let mut without_default = vec![];
    for flag in command().get_arguments() {
        let help = flag.get_help().unwrap().to_string();
        let default = help.split("[default: ").nth(1).and_then(|rest| rest.strip_suffix(']'));
        let name = flag.get_id().to_string();
        match default {
            None => without_default.push(name),
            Some(_) if COMPUTED_DEFAULTS.contains(&&*name) => {}
            Some(default) => {
                assert_eq!(effective(of_flag(flag, default)), effective(RawSettings::default()), "{name}");
            }
        }
    }
    assert_eq!(
        without_default,
        [
            "allowed_hosts",
            "tls_dir",
            "client_ca",
            "secret_key_file",
            "audit_log",
            "audit_writes",
            "peers",
            "join",
            "join_token_file",
            "force_new_cluster",
            "shard_tags",
            "tags",
            "trace_endpoint"
        ]
    );
}
