//! What the command line allows at a place: taken from the definitions of the commands, so that it
//! is never behind them.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{Arg, Command};
use tidelock_client::keys::KeyArg;

/// The arguments that are names of namespaces which exist.
const NAMESPACES: [&str; 5] = ["namespace", "parents", "from", "to", "other"];

/// What the word at the cursor can be.
#[derive(Debug, PartialEq, Eq)]
pub enum Expected {
    /// One of these.
    OneOf(Vec<String>),
    /// A key of the store.
    Key,
    /// A namespace of the configuration.
    Namespace,
    /// A file or a directory.
    File,
    /// Something that cannot be completed.
    Other,
}

/// What can follow these words, if the next one begins so. `root` is a built command.
pub fn expected(root: &Command, words: &[String], begun: &str) -> Expected {
    let (mut command, mut positionals, mut option) = (root, 0, None);
    for word in words {
        if option.take().is_some() {
            continue;
        }
        if let Some(name) = word.strip_prefix("--") {
            option = command.get_arguments().find(|arg| arg.get_long() == Some(name)).filter(takes_value);
        } else if let Some(found) = command.find_subcommand(word).filter(|_| positionals == 0) {
            command = found;
        } else if !word.starts_with('-') {
            positionals += 1;
        }
    }
    if let Some(option) = option {
        return value_of(option);
    }
    if begun.starts_with('-') {
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        return Expected::OneOf(shown.filter_map(Arg::get_long).map(|name| format!("--{name}")).collect());
    }
    if command.has_subcommands() {
        let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
        return Expected::OneOf(shown.map(|subcommand| subcommand.get_name().to_owned()).collect());
    }
    let last = command.get_positionals().last().filter(|last| last.get_num_args().is_some_and(is_many));
    command.get_positionals().nth(positionals).or(last).map_or(Expected::Other, value_of)
}

fn takes_value(arg: &&Arg) -> bool {
    arg.get_action().takes_values()
}

fn is_many(count: clap::builder::ValueRange) -> bool {
    count.max_values() > 1
}

fn value_of(arg: &Arg) -> Expected {
    let possible: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let value_type = arg.get_value_parser().type_id();
    if !possible.is_empty() {
        Expected::OneOf(possible)
    } else if value_type == TypeId::of::<KeyArg>() {
        Expected::Key
    } else if value_type == TypeId::of::<PathBuf>() {
        Expected::File
    } else if value_type == TypeId::of::<String>() && NAMESPACES.contains(&arg.get_id().as_str()) {
        Expected::Namespace
    } else {
        Expected::Other
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn expected_in(line: &str, begun: &str) -> Expected {
        let mut root = Cli::command();
        root.build();
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        expected(&root, &words, begun)
    }

    #[test]
    fn commands_keys_namespaces_files_and_flags_are_expected() {
        let Expected::OneOf(commands) = expected_in("", "") else { panic!("commands") };
        assert!(commands.contains(&"kv".to_owned()) && commands.contains(&"cluster".to_owned()));
        let Expected::OneOf(commands) = expected_in("kv --stale", "g") else { panic!("commands") };
        assert!(commands.contains(&"get".to_owned()), "{commands:?}");
        let Expected::OneOf(flags) = expected_in("kv get", "--") else { panic!("flags") };
        assert!(flags.contains(&"--stale".to_owned()) && flags.contains(&"--url".to_owned()), "{flags:?}");
        for (line, found) in [
            ("kv get", Expected::Key),
            ("kv get --stale", Expected::Key),
            ("kv ls", Expected::Key),
            ("kv get k", Expected::Other),
            ("kv put --file", Expected::File),
            ("kv put k", Expected::Other),
            ("config pair get", Expected::Namespace),
            ("config ns parents ns", Expected::Namespace),
            ("config promote a", Expected::Namespace),
            ("config diff a", Expected::Other),
            ("config pair get ns", Expected::Other),
            ("backup verify", Expected::File),
            ("kv get --timeout-ms", Expected::Other),
            ("kv get --output", Expected::OneOf(vec!["text".to_owned(), "json".to_owned()])),
        ] {
            assert_eq!(expected_in(line, ""), found, "{line}");
        }
    }
}
