//! `tidelock shell`: commands line by line, with completion and a history.
//!
//! Each line is run by this binary as a process of its own, so a command behaves as it does outside
//! of the shell: its output, its exit code, and Ctrl-C, which ends the command and not the shell.
//! The flags of the shell are the defaults of the commands.

mod completer;
mod expected;
mod words;

use std::env;
use std::fs::DirBuilder;
use std::io::{self, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use clap::ValueEnum;
use rustix::process::Signal;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use tidelock_client::{CliError, output};
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind, signal};

use self::completer::LineCompleter;
use crate::args::{ClientArgs, ShellArgs};

const PROMPT: &str = "tidelock> ";

/// At most as many lines are kept for the next time.
const HISTORY_LINES_MAX: usize = 1_000;

/// Runs `shell`.
pub fn run(args: &ShellArgs) -> Result<(), CliError> {
    let options = args.client.connection.resolve()?;
    let runner = Runner {
        program: env::current_exe().map_err(CliError::io("the path of this program"))?,
        variables: variables(&args.client),
    };
    if !io::stdin().is_terminal() {
        return runner.run_all(io::stdin().lines());
    }
    let nodes: Vec<String> = options.urls.iter().map(ToString::to_string).collect();
    output::line(&format!(
        "Commands for {}, without the word tidelock: try `kv list`, or `help`.\n\
         Tab completes, Ctrl-D leaves.",
        nodes.join(", ")
    ))?;
    let _interrupts = Interrupts::catch()?;
    let mut editor = editor(LineCompleter::new(options)).map_err(of_terminal)?;
    let history = history_file();
    if let Some(history) = &history {
        // Ignored: the first time there is none.
        let _ = editor.load_history(history);
    }
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(of_terminal(error)),
        };
        if let Some(history) = &history {
            // Ignored: a line that is not kept has been run all the same.
            let _ = editor.append_history(history);
        }
        match parse(&line) {
            Ok(Line::Empty) => {}
            Ok(Line::Leave) => return Ok(()),
            Ok(Line::Words(words)) => {
                let ended = runner.run(&words, Stdio::inherit())?;
                match ended.signal() {
                    // The prompt begins on a new line, after the ^C that the terminal shows.
                    Some(signal) if signal == Signal::INT.as_raw() => eprintln!(),
                    Some(signal) => eprintln!("the command was ended by signal {signal}"),
                    None => {}
                }
            }
            Err(error) => eprintln!("{error}"),
        }
    }
}

fn of_terminal(error: ReadlineError) -> CliError {
    CliError::io("the terminal")(io::Error::other(error))
}

fn editor(completer: LineCompleter) -> rustyline::Result<Editor<LineCompleter, FileHistory>> {
    let config = Config::builder()
        .auto_add_history(true)
        .history_ignore_space(true)
        .max_history_size(HISTORY_LINES_MAX)?
        .completion_type(CompletionType::List)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(completer));
    Ok(editor)
}

/// The file of the history, `$XDG_STATE_HOME/tidelock/history` or the same below `~/.local/state`,
/// in a directory that only its owner may read: lines have values in them.
fn history_file() -> Option<PathBuf> {
    let given = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given("XDG_STATE_HOME").or_else(|| Some(given("HOME")?.join(".local/state")));
    let directory = base?.join("tidelock");
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    Some(directory.join("history"))
}

/// A line that was typed.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// Nothing, or a comment.
    Empty,
    Leave,
    /// The arguments of a command.
    Words(Vec<String>),
}

fn parse(line: &str) -> Result<Line, &'static str> {
    let mut words = shlex::split(line).ok_or("a quote is not closed, or the line ends with a backslash")?;
    // A command that was copied from elsewhere begins so.
    if words.first().is_some_and(|word| word == "tidelock") {
        words.remove(0);
    }
    Ok(match words.first().map(String::as_str) {
        None => Line::Empty,
        Some("exit" | "quit") => Line::Leave,
        Some(_) => Line::Words(words),
    })
}

/// Runs lines as commands of this binary.
struct Runner {
    program: PathBuf,
    /// What the flags of the shell are for its commands.
    variables: Vec<(&'static str, String)>,
}

impl Runner {
    fn run(&self, words: &[String], input: Stdio) -> Result<ExitStatus, CliError> {
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        let mut command = Command::new(&self.program);
        command.args(words).envs(variables).stdin(input);
        command.status().map_err(CliError::io(self.program.display().to_string()))
    }

    /// Runs all lines of a script, up to the first that fails, whose exit code is that of the
    /// shell. Commands get no input, because the script is the input of the shell.
    fn run_all(&self, lines: impl Iterator<Item = io::Result<String>>) -> Result<(), CliError> {
        for (number, line) in (1..).zip(lines) {
            let line = line.map_err(CliError::io("standard input"))?;
            match parse(&line).map_err(|error| CliError::Usage(format!("line {number}: {error}")))? {
                Line::Empty => {}
                Line::Leave => return Ok(()),
                Line::Words(words) => {
                    let ended = self.run(&words, Stdio::null())?;
                    if !ended.success() {
                        eprintln!("tidelock: line {number} failed: {line}");
                        let code = ended.code().and_then(|code| u8::try_from(code).ok());
                        return Err(CliError::Command(code.unwrap_or(1)));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The environment variables that stand for these flags.
fn variables(args: &ClientArgs) -> Vec<(&'static str, String)> {
    let connection = &args.connection;
    let text = |path: &Path| path.display().to_string();
    let urls: Vec<String> = connection.urls.iter().map(ToString::to_string).collect();
    let output = args.output.to_possible_value().map(|value| value.get_name().to_owned());
    let given = [
        ("TIDELOCK_URL", (!urls.is_empty()).then(|| urls.join(","))),
        ("TIDELOCK_CA", connection.ca.as_deref().map(text)),
        ("TIDELOCK_TOKEN_FILE", connection.token_file.as_deref().map(text)),
        ("TIDELOCK_CLIENT_CERT", connection.certificate.client_cert.as_deref().map(text)),
        ("TIDELOCK_CLIENT_KEY", connection.certificate.client_key.as_deref().map(text)),
        ("TIDELOCK_PROFILE", connection.profile.clone()),
        ("TIDELOCK_OUTPUT", output),
        ("TIDELOCK_TIMEOUT_MS", Some(args.timeout_ms.to_string())),
    ];
    given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Keeps Ctrl-C, which the terminal sends to the command and to this process, from ending this
/// process.
struct Interrupts {
    _runtime: Runtime,
    _signal: unix::Signal,
}

impl Interrupts {
    fn catch() -> Result<Interrupts, CliError> {
        let handler = "the handler of signals";
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(CliError::io(handler))?;
        let caught = {
            let _guard = runtime.enter();
            signal(SignalKind::interrupt())
        };
        Ok(Interrupts { _runtime: runtime, _signal: caught.map_err(CliError::io(handler))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Result<Line, &'static str> {
        Ok(Line::Words(words.iter().map(|word| String::from(*word)).collect()))
    }

    #[test]
    fn lines_are_split_as_a_shell_does() {
        for (line, parsed) in [
            ("", Ok(Line::Empty)),
            ("  # kv get a", Ok(Line::Empty)),
            ("exit", Ok(Line::Leave)),
            ("quit", Ok(Line::Leave)),
            ("kv put 'a b' \"c \\\" d\" # text", words(&["kv", "put", "a b", "c \" d"])),
            ("tidelock kv get a", words(&["kv", "get", "a"])),
            ("kv put a ''", words(&["kv", "put", "a", ""])),
        ] {
            assert_eq!(parse(line), parsed, "{line}");
        }
        assert!(parse("kv put a 'b").is_err());
    }
}
