//! Writes the pages on the command line and on settings from their definitions, and holds the pages
//! to them.
//!
//! Owns what those pages show: every command with its flags, variables and defaults, and every
//! setting of a node with its range. The text around the markers of the page on settings is written
//! by people.
//! `UPDATE_GOLDENFILES=1` writes both pages anew.

use std::path::Path;
use std::{env, fs};

use clap::{Arg, Args, Command, CommandFactory};
use tidelock_server::config::{self, RawSettings};

use super::{Cli, ClientArgs};

const MARKERS: [&str; 2] = ["<!-- settings: begin -->\n", "<!-- settings: end -->\n"];

/// Columns of prose in documents.
const COLUMNS: usize = 120;

const HEAD: &str = "\
# The command line

For someone who types or scripts `tidelock`: every command with its arguments, flags, variables and defaults. This page
is generated from the definitions of the commands, and `tidelock COMMAND --help` shows the same.

A flag overrides its environment variable. [Errors](errors.md#exit-codes) lists the exit codes.

";

/// Heading of the flags that commands of a cluster have in common, and the link to it.
const CONNECTION: &str = "## Flags of commands that talk to a cluster\n\n";
const CONNECTION_LINK: &str = "[how to reach a cluster](#flags-of-commands-that-talk-to-a-cluster)";

/// The page on the command line.
fn command_line() -> String {
    let common = ClientArgs::augment_args(Command::new("common"));
    let common: Vec<&Arg> = common.get_arguments().collect();
    let settings = RawSettings::augment_args(Command::new("settings"));
    let text = HEAD.to_owned() + CONNECTION + &flags(&common);
    let mut page = Page { text, common, settings: settings.get_arguments().collect() };
    // Hands the flags that commands share down to those below them, and completes the usage.
    let mut root = Cli::command();
    root.build();
    for command in root.get_subcommands().filter(|command| command.get_name() != "help") {
        page.describe(command, &format!("tidelock {}", command.get_name()), false);
    }
    page.text
}

/// A page under way, and the arguments that it does not repeat for each command.
struct Page<'a> {
    text: String,
    common: Vec<&'a Arg>,
    settings: Vec<&'a Arg>,
}

impl Page<'_> {
    /// Appends a command and those below it. With `inherited`, the common flags are named by the
    /// command above it.
    fn describe(&mut self, command: &Command, path: &str, inherited: bool) {
        self.text += &format!("{} {path}\n\n", "#".repeat(path.split(' ').count()));
        let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
        self.text += &paragraphs(&about.unwrap_or_default());
        if !command.has_subcommands() {
            let usage = command.clone().render_usage().to_string();
            self.text += &format!("```text\n{}\n```\n\n", usage.trim_start_matches("Usage: "));
        }
        let is_in = |list: &[&Arg], argument: &Arg| list.iter().any(|other| is_same(other, argument));
        let shown = |argument: &&Arg| !argument.is_hide_set() && argument.get_id() != "help";
        let (common, own): (Vec<&Arg>, Vec<&Arg>) =
            command.get_arguments().filter(shown).partition(|argument| is_in(&self.common, argument));
        let (settings, own): (Vec<&Arg>, Vec<&Arg>) =
            own.into_iter().partition(|argument| path == "tidelock serve" && is_in(&self.settings, argument));
        self.text += &flags(&own);
        if !settings.is_empty() {
            self.text += "All other flags are [settings](settings.md).\n\n";
        }
        if !inherited && common.len() == self.common.len() {
            let place = if command.has_subcommands() { "Also, in each of its commands" } else { "Also" };
            self.text += &format!("{place}: {CONNECTION_LINK}.\n\n");
        } else if !inherited && !common.is_empty() {
            let names: Vec<String> = common.iter().map(|flag| format!("`{}`", spelling(flag))).collect();
            self.text += &paragraphs(&format!("Also {}: {CONNECTION_LINK}.", names.join(", ")));
        }
        if let Some(examples) = command.get_after_help() {
            self.text += &format!("```text\n{}\n```\n\n", examples.to_string().trim_end());
        }
        let inherited = inherited || !common.is_empty();
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            self.describe(below, &format!("{path} {}", below.get_name()), inherited);
        }
    }
}

fn is_same(one: &Arg, other: &Arg) -> bool {
    one.get_id() == other.get_id()
        && one.get_help().map(ToString::to_string) == other.get_help().map(ToString::to_string)
}

/// A table of arguments; nothing if there are none.
fn flags(arguments: &[&Arg]) -> String {
    if arguments.is_empty() {
        return String::new();
    }
    let mut table = "| argument | variable | default | |\n|---|---|---|---|\n".to_owned();
    for argument in arguments {
        let (help, default) = help_and_default(argument);
        let values: Vec<String> =
            argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        let is_switch = !argument.get_action().takes_values();
        let values =
            if values.is_empty() || is_switch { String::new() } else { format!(": {}", values.join(", ")) };
        let (variable, default) = (code(&variable(argument)), shown(&default));
        table += &format!("| `{}` | {variable} | {default} | {help}{values} |\n", spelling(argument));
    }
    table + "\n"
}

/// How an argument is written: `-c, --clients N`, `KEY` or `[KEY]`.
fn spelling(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let value = if value.is_empty() { argument.get_id().to_string().to_uppercase() } else { value };
    let many = if argument.get_num_args().is_some_and(|count| count.max_values() > 1) { "…" } else { "" };
    let flag = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) if argument.is_required_set() => return format!("{value}{many}"),
        (None, None) => return format!("[{value}]{many}"),
    };
    if argument.get_action().takes_values() { format!("{flag} {value}") } else { flag }
}

fn variable(argument: &Arg) -> String {
    argument.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The help of an argument as a cell of a table, and its default: that of clap, or the one that the
/// help states in brackets.
fn help_and_default(argument: &Arg) -> (String, String) {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, stated) = match help.split_once("[default: ") {
        Some((before, rest)) => {
            let (default, after) = rest.split_once(']').expect("the end of the default");
            (format!("{}{after}", before.trim_end()), default.to_owned())
        }
        None => (help, String::new()),
    };
    let of_clap: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = if argument.get_action().takes_values() { of_clap.join(",") } else { String::new() };
    (plain(&help), if default.is_empty() { stated } else { default })
}

/// Text for a cell of a table: on one line, and nothing that Markdown takes for a tag or a column.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

/// A default: a value as code, a rule as text.
fn shown(default: &str) -> String {
    if default.contains(' ') { plain(default) } else { code(default) }
}

/// The paragraphs of a help text, wrapped.
fn paragraphs(text: &str) -> String {
    let mut out = String::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let mut columns = 0;
        for word in paragraph.replace('<', "&lt;").split_whitespace() {
            let width = word.chars().count();
            if columns > 0 && columns + 1 + width > COLUMNS {
                out.push('\n');
                columns = 0;
            } else if columns > 0 {
                out.push(' ');
                columns += 1;
            }
            out += word;
            columns += width;
        }
        out += "\n\n";
    }
    out
}

/// The table of the settings of a node.
fn settings() -> String {
    let mut table =
        "\n| flag | variable | key of the file | default | allowed | |\n|---|---|---|---|---|---|\n"
            .to_owned();
    let command = RawSettings::augment_args(Command::new("settings"));
    for setting in command.get_arguments() {
        let (help, default) = help_and_default(setting);
        let (variable, default) = (code(&variable(setting)), shown(&default));
        let key = setting.get_id();
        let allowed = config::range(key.as_str()).map(|range| range.to_string()).unwrap_or_default();
        let flag = spelling(setting);
        table += &format!("| `{flag}` | {variable} | `{key}` | {default} | {allowed} | {help} |\n");
    }
    table + "\n"
}

/// Compares a page with what it should be, or writes it if that is asked for.
fn hold(page: &str, expected: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(page);
    let document = fs::read_to_string(&path).unwrap_or_default();
    let expected = expected(&document);
    if env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&path, &expected).expect("written");
        return;
    }
    assert_eq!(document, expected, "UPDATE_GOLDENFILES=1 writes it anew");
}

#[test]
fn the_page_on_the_command_line_lists_every_command() {
    hold("command-line.md", |_| command_line().trim_end().to_owned() + "\n");
}

#[test]
fn the_page_on_settings_lists_every_setting() {
    hold("settings.md", |document| {
        let (before, rest) = document.split_once(MARKERS[0]).expect("the first marker");
        let (_, after) = rest.split_once(MARKERS[1]).expect("the second marker");
        [before, MARKERS[0], &settings(), MARKERS[1], after].concat()
    });
}

#[test]
fn every_setting_has_a_variable_and_is_a_flag() {
    let command = RawSettings::augment_args(Command::new("settings"));
    assert!(command.get_arguments().count() > 30);
    for setting in command.get_arguments() {
        assert!(setting.get_long().is_some() && setting.get_env().is_some(), "{}", setting.get_id());
    }
}
