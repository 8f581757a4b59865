//! `tidelock shell`: commands line by line, with completion and a history.
//!
//! Each line is run by this binary as a process of its own, so a command behaves as it does outside
//! of the shell: its output, its exit code, and Ctrl-C, which ends the command and not the shell.
//! The flags of the shell are the defaults of the commands.

mod completer;
mod completion;
mod words;

use std::env;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use clap::ValueEnum;
use rustix::process::Signal;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use tidelock_client::profiles::user_directory;
use tidelock_client::{CliError, output};
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind, signal};

use self::completer::LineCompleter;
use self::words::without_program_name;
use crate::args::{ClientArgs, ShellArgs};

const PROMPT: &str = "tidelock> ";

/// At most as many lines are kept for the next time.
const HISTORY_LINES_MAX: usize = 1_000;

/// Runs `shell`.
pub fn run(args: &ShellArgs) -> Result<(), CliError> {
    let options = args.client.connection.resolve()?;
    let runner = CommandRunner {
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
    let _interrupts = InterruptHandler::catch()?;
    let mut editor = editor(LineCompleter::new(options)).map_err(of_terminal)?;
    let history = history_file();
    if let Some(history) = &history {
        // Ignored: there is no file before the first line.
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
            // Ignored: the command runs also if the history cannot be written.
            let _ = editor.append_history(history);
        }
        match parse(&line) {
            Ok(Input::Empty) => {}
            Ok(Input::Leave) => return Ok(()),
            Ok(Input::Words(words)) => {
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

/// The file of the history, in a directory that only its owner may read, because lines have values
/// in them.
fn history_file() -> Option<PathBuf> {
    let directory = user_directory("XDG_STATE_HOME", ".local/state")?;
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    Some(directory.join("history"))
}

/// A line that was typed.
#[derive(Debug, PartialEq, Eq)]
enum Input {
    /// Nothing, or a comment.
    Empty,
    Leave,
    /// The arguments of a command.
    Words(Vec<String>),
}

fn parse(line: &str) -> Result<Input, &'static str> {
    let words = shlex::split(line).ok_or("a quote is not closed, or the line ends with a backslash")?;
    let words = without_program_name(&words);
    Ok(match words.first().map(String::as_str) {
        None => Input::Empty,
        Some("exit" | "quit") => Input::Leave,
        Some(_) => Input::Words(words.to_vec()),
    })
}

/// Runs lines as commands of this binary.
struct CommandRunner {
    program: PathBuf,
    /// The flags of the shell as environment variables.
    variables: Vec<(&'static str, OsString)>,
}

impl CommandRunner {
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
                Input::Empty => {}
                Input::Leave => return Ok(()),
                Input::Words(words) => {
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

/// These flags as environment variables, which a command's own flags override.
fn variables(args: &ClientArgs) -> Vec<(&'static str, OsString)> {
    let connection = &args.connection;
    let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
    let urls: Vec<String> = connection.urls.iter().map(ToString::to_string).collect();
    let output = args.output.to_possible_value().map(|value| value.get_name().into());
    let given = [
        ("TIDELOCK_URL", (!urls.is_empty()).then(|| urls.join(",").into())),
        ("TIDELOCK_CA", path(&connection.ca)),
        ("TIDELOCK_TOKEN_FILE", path(&connection.token_file)),
        ("TIDELOCK_CLIENT_CERT", path(&connection.certificate.client_cert)),
        ("TIDELOCK_CLIENT_KEY", path(&connection.certificate.client_key)),
        ("TIDELOCK_PROFILE", connection.profile.clone().map(OsString::from)),
        ("TIDELOCK_OUTPUT", output),
        ("TIDELOCK_TIMEOUT_MS", Some(args.timeout_ms.to_string().into())),
    ];
    given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Keeps Ctrl-C, which the terminal sends to the command and to this process, from ending this
/// process.
struct InterruptHandler {
    _runtime: Runtime,
    _signal: unix::Signal,
}

impl InterruptHandler {
    fn catch() -> Result<InterruptHandler, CliError> {
        let handler = "the handler of signals";
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(CliError::io(handler))?;
        let caught = {
            let _guard = runtime.enter();
            signal(SignalKind::interrupt())
        };
        Ok(InterruptHandler { _runtime: runtime, _signal: caught.map_err(CliError::io(handler))? })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn every_flag_reaches_the_commands() {
        let line = "tidelock shell --url http://a:1 --ca f --token-file f --client-cert f --client-key f \
                    --profile p --output json --timeout-ms 5";
        let Command::Shell(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("a shell")
        };
        let passed: BTreeSet<&str> = variables(&args.client).into_iter().map(|(name, _)| name).collect();
        let cli = Cli::command();
        let shell = cli.find_subcommand("shell").expect("a command");
        let named = shell.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
        assert_eq!(passed, named);
    }

    fn words(words: &[&str]) -> Result<Input, &'static str> {
        Ok(Input::Words(words.iter().map(|word| String::from(*word)).collect()))
    }

    #[test]
    fn lines_are_split_as_a_shell_does() {
        for (line, parsed) in [
            ("", Ok(Input::Empty)),
            ("  # kv get a", Ok(Input::Empty)),
            ("exit", Ok(Input::Leave)),
            ("quit", Ok(Input::Leave)),
            ("kv put 'a b' \"c \\\" d\" # text", words(&["kv", "put", "a b", "c \" d"])),
            ("tidelock kv get a", words(&["kv", "get", "a"])),
            ("kv put a ''", words(&["kv", "put", "a", ""])),
        ] {
            assert_eq!(parse(line), parsed, "{line}");
        }
        assert!(parse("kv put a 'b").is_err());
    }
}
