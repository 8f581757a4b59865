//! What the word at the cursor can be, by the definitions of the commands: what they accept and
//! what is completed cannot differ.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{Arg, Command};
use tidelock_client::keys::KeyArg;

/// The arguments whose value is the name of an existing namespace.
const NAMESPACES: [&str; 5] = ["namespace", "parents", "from", "to", "other"];

/// How a word is completed.
#[derive(Debug, PartialEq, Eq)]
pub enum Completion {
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

/// How a word that begins with `begun` is completed behind these words. `root` is a built command.
pub fn completion(root: &Command, words: &[String], begun: &str) -> Completion {
    let (mut command, mut positionals, mut option) = (root, 0, None);
    for word in words {
        if option.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            option = command.get_arguments().find(|arg| is_named(arg, word)).filter(takes_value);
        } else if let Some(found) = command.find_subcommand(word).filter(|_| positionals == 0) {
            command = found;
        } else {
            positionals += 1;
        }
    }
    if let Some(option) = option {
        return value_of(option);
    }
    if begun.starts_with('-') {
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        return Completion::OneOf(shown.filter_map(Arg::get_long).map(|name| format!("--{name}")).collect());
    }
    if command.has_subcommands() {
        let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
        return Completion::OneOf(shown.map(|subcommand| subcommand.get_name().to_owned()).collect());
    }
    let last = command.get_positionals().last().filter(|last| last.get_num_args().is_some_and(is_many));
    command.get_positionals().nth(positionals).or(last).map_or(Completion::Other, value_of)
}

/// Whether an argument is the flag that this word is, such as `--message` or `-m`.
fn is_named(arg: &Arg, word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| word[1..].chars().eq([short])),
    }
}

fn takes_value(arg: &&Arg) -> bool {
    arg.get_action().takes_values()
}

fn is_many(count: clap::builder::ValueRange) -> bool {
    count.max_values() > 1
}

fn value_of(arg: &Arg) -> Completion {
    let possible: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let value_type = arg.get_value_parser().type_id();
    if !possible.is_empty() {
        Completion::OneOf(possible)
    } else if value_type == TypeId::of::<KeyArg>() {
        Completion::Key
    } else if value_type == TypeId::of::<PathBuf>() {
        Completion::File
    } else if value_type == TypeId::of::<String>() && NAMESPACES.contains(&arg.get_id().as_str()) {
        Completion::Namespace
    } else {
        Completion::Other
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn completion_in(line: &str, begun: &str) -> Completion {
        let mut root = Cli::command();
        root.build();
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        completion(&root, &words, begun)
    }

    #[test]
    fn commands_keys_namespaces_files_and_flags_are_expected() {
        let Completion::OneOf(commands) = completion_in("", "") else { panic!("commands") };
        assert!(commands.contains(&"kv".to_owned()) && commands.contains(&"cluster".to_owned()));
        let Completion::OneOf(commands) = completion_in("kv --stale", "g") else { panic!("commands") };
        assert!(commands.contains(&"get".to_owned()), "{commands:?}");
        let Completion::OneOf(flags) = completion_in("kv get", "--") else { panic!("flags") };
        assert!(flags.contains(&"--stale".to_owned()) && flags.contains(&"--url".to_owned()), "{flags:?}");
        for (line, found) in [
            ("kv get", Completion::Key),
            ("kv get --stale", Completion::Key),
            ("kv ls", Completion::Key),
            ("kv get k", Completion::Other),
            ("kv put --file", Completion::File),
            ("kv put k", Completion::Other),
            ("config pair get", Completion::Namespace),
            ("config ns parents ns", Completion::Namespace),
            ("config ns parents -m why", Completion::Namespace),
            ("config promote a", Completion::Namespace),
            ("config diff a", Completion::Other),
            ("config pair get ns", Completion::Other),
            ("backup verify", Completion::File),
            ("kv get --timeout-ms", Completion::Other),
            ("kv get --output", Completion::OneOf(vec!["text".to_owned(), "json".to_owned()])),
        ] {
            assert_eq!(completion_in(line, ""), found, "{line}");
        }
    }
}
