//! `tidelock config agent`: keeps files up to date with containers, and runs commands when they
//! change.
//!
//! One thread owns all files and decides; a thread for each file polls a node and sends what it
//! finds, and a thread runs the command that is due. So a slow node or command delays no other
//! file. Nothing is written but whole files and their states, so the process may end at any moment.
//!
//! - `settings`: what to do, from arguments or a file.
//! - `managed_file`: one file, its lock and its state.
//! - `source`: polls of one container.
//! - `command`: when commands run.

mod command;
mod managed_file;
mod settings;
mod source;

pub(super) use settings::{format_by_name, format_of};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use tidelock_client::{CliError, Client};
use tokio::signal::unix::{SignalKind, signal};

use self::command::DueCommands;
use self::managed_file::{ApplyOutcome, ManagedFile};
use self::settings::AgentSettings;
use self::source::{Found, Polled, Source};
use crate::args::{AgentArgs, ClientArgs};

/// Longest wait of a poll: half of the time that a node has to answer.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Pause before a file that could not be written is written again.
const WRITE_PAUSE: Duration = Duration::from_secs(2);

/// What the thread that owns the files is told.
enum Message {
    Report(ReportOf, Result<Polled, CliError>),
    /// The command that ran has ended.
    CommandEnded(String, Result<(), String>),
    Reload,
    End,
}

/// Which file a report is about.
#[derive(Clone, Debug)]
struct ReportOf {
    file: usize,
    /// Set once the files are numbered anew.
    is_over: Arc<AtomicBool>,
}

impl ReportOf {
    /// Whether the polls have to end.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// A file with what has to be done for it.
struct AgentFile {
    file: ManagedFile,
    /// What could not be written yet.
    unwritten: Option<(Found, bool)>,
    /// It has changed since its command was started.
    changed: bool,
    /// The last complaint, which is not repeated.
    complaint: Option<String>,
}

struct Agent<'a> {
    args: &'a AgentArgs,
    client: Arc<Client>,
    wait: Duration,
    settings: AgentSettings,
    files: Vec<AgentFile>,
    /// Ends the polls of these files.
    is_over: Arc<AtomicBool>,
    due: DueCommands,
    /// Whether a command runs.
    is_running: bool,
    sender: Sender<Message>,
    messages: Receiver<Message>,
}

/// Runs `config agent`.
pub fn run(client: &ClientArgs, args: &AgentArgs) -> Result<(), CliError> {
    let settings = AgentSettings::read(args)?;
    let (sender, messages) = mpsc::channel();
    let mut agent = Agent {
        args,
        client: Arc::new(client.client()?),
        wait: (Duration::from_millis(client.timeout_ms) / 2).min(WAIT_MAX),
        files: open(&settings)?,
        settings,
        is_over: Arc::default(),
        due: DueCommands::default(),
        is_running: false,
        sender,
        messages,
    };
    if args.once {
        return agent.run_once();
    }
    listen_to_signals(agent.sender.clone())?;
    agent.begin();
    agent.serve();
    Ok(())
}

fn open(settings: &AgentSettings) -> Result<Vec<AgentFile>, CliError> {
    let open = |file: &settings::FileSettings| {
        let file = ManagedFile::open(file.clone(), settings.state_dir.as_deref())?;
        Ok(AgentFile { file, unwritten: None, changed: false, complaint: None })
    };
    settings.files.iter().map(open).collect()
}

/// Passes signals on, from a thread that waits for them.
fn listen_to_signals(to: Sender<Message>) -> Result<(), CliError> {
    let failed = || CliError::io("the handler of signals");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
    let entered = runtime.enter();
    let mut hangup = signal(SignalKind::hangup()).map_err(failed())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed())?;
    drop(entered);
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let message = tokio::select! {
                    _ = hangup.recv() => Message::Reload,
                    _ = interrupt.recv() => Message::End,
                    _ = terminate.recv() => Message::End,
                };
                if to.send(message).is_err() {
                    return;
                }
            }
        });
    });
    Ok(())
}

fn log(text: &str) {
    eprintln!("tidelock agent: {text}");
}

impl AgentFile {
    fn name(&self) -> String {
        let settings = self.file.settings();
        format!("{} of {}", settings.container, settings.namespace)
    }

    /// Writes a complaint, unless it is the last one.
    fn complain(&mut self, text: String) {
        if self.complaint.as_ref() != Some(&text) {
            log(&text);
            self.complaint = Some(text);
        }
    }

    /// Writes what was found. Returns whether the file has changed.
    fn take(&mut self, found: Found, is_gap: bool) -> bool {
        let path = self.file.path().display().to_string();
        let applied = match &found {
            Found::Document { revision, content } => self.file.apply(*revision, content, is_gap),
            Found::Missing if self.file.settings().delete => self
                .file
                .delete()
                .map(|existed| if existed { ApplyOutcome::Changed } else { ApplyOutcome::Same }),
            Found::Missing => {
                let text = format!("{} does not exist; {path} stays as it is", self.name());
                self.complain(text);
                return false;
            }
        };
        match applied {
            Ok(applied) => {
                self.complaint = None;
                if applied == ApplyOutcome::Changed {
                    log(&match found {
                        Found::Document { revision, .. } => format!("{path} is at revision {revision}"),
                        Found::Missing => format!("{} does not exist; {path} was deleted", self.name()),
                    });
                }
                self.changed |= applied == ApplyOutcome::Changed;
                applied == ApplyOutcome::Changed
            }
            Err(error) => {
                self.complain(format!("{path} cannot be written: {error}; trying again"));
                self.unwritten = Some((found, is_gap));
                false
            }
        }
    }
}

impl Agent<'_> {
    /// Starts the polls of all files, and makes the commands due that did not run before this
    /// process began.
    fn begin(&mut self) {
        self.is_over = Arc::default();
        for position in 0..self.files.len() {
            let file = &self.files[position].file;
            let source = Source::of(self.client.clone(), file.settings(), self.settings.label.clone());
            let report_of = ReportOf { file: position, is_over: self.is_over.clone() };
            let (wait, known, to) = (self.wait, file.revision(), self.sender.clone());
            thread::spawn(move || source.follow(wait, known, report_of, &to));
            if file.is_command_due() {
                self.file_changed(position);
            }
        }
    }

    fn file_changed(&mut self, position: usize) {
        if let Some(command) = &self.files[position].file.settings().exec {
            self.due.changed(command, Instant::now(), self.settings.settle);
        }
    }

    /// Serves until a signal ends it.
    fn serve(&mut self) {
        loop {
            let message = match self.next_wake_up() {
                None => self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.messages.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::Report(of, polled)) if !of.is_over() => self.take(of.file, polled),
                Ok(Message::Report(..)) => {}
                Ok(Message::CommandEnded(command, result)) => self.command_ended(&command, result),
                Ok(Message::Reload) => self.reload(),
                Ok(Message::End) => return,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("invariant: the agent has a sender itself")
                }
            }
            self.write_again();
            self.run_due_command();
        }
    }

    fn next_wake_up(&self) -> Option<Instant> {
        let command = self.due.next_due().filter(|_| !self.is_running);
        let has_unwritten = self.files.iter().any(|file| file.unwritten.is_some());
        command.into_iter().chain(has_unwritten.then(|| Instant::now() + WRITE_PAUSE)).min()
    }

    fn take(&mut self, position: usize, polled: Result<Polled, CliError>) {
        let file = &mut self.files[position];
        match polled {
            Err(error) => {
                let (name, path) = (file.name(), file.file.path().display().to_string());
                file.complain(format!("{name}: {error}\n{path} stays as it is; trying again"));
            }
            Ok(Polled { found: None, .. }) => file.complaint = None,
            Ok(Polled { found: Some(found), is_gap, .. }) => {
                file.unwritten = None;
                if file.take(found, is_gap) {
                    self.file_changed(position);
                }
            }
        }
    }

    /// Writes what could not be written before.
    fn write_again(&mut self) {
        for position in 0..self.files.len() {
            if let Some((found, is_gap)) = self.files[position].unwritten.take()
                && self.files[position].take(found, is_gap)
            {
                self.file_changed(position);
            }
        }
    }

    /// The files of a command whose change it has to be told.
    fn files_of(&self, command: &str) -> Vec<PathBuf> {
        let is_concerned = |file: &&AgentFile| {
            file.file.settings().exec.as_deref() == Some(command) && file.file.is_command_due()
        };
        self.files.iter().filter(is_concerned).map(|file| file.file.path().to_owned()).collect()
    }

    /// Starts the next command, unless one runs.
    fn run_due_command(&mut self) {
        if self.is_running {
            return;
        }
        let Some(command) = self.due.take(Instant::now()) else { return };
        let files = self.files_of(&command);
        if files.is_empty() {
            return;
        }
        self.files.iter_mut().for_each(|file| file.changed = false);
        self.is_running = true;
        let to = self.sender.clone();
        thread::spawn(move || {
            let result = command::run(&command, &files);
            // The process may have ended its service.
            let _ = to.send(Message::CommandEnded(command, result));
        });
    }

    fn command_ended(&mut self, command: &str, result: Result<(), String>) {
        self.is_running = false;
        if let Err(reason) = result {
            log(&format!("the command {command:?} failed: {reason}; it runs again with the next change"));
            return;
        }
        for file in &mut self.files {
            let is_done = file.file.settings().exec.as_deref() == Some(command) && !file.changed;
            if is_done && let Err(error) = file.file.command_done() {
                log(&format!("the state of {} cannot be written: {error}", file.file.path().display()));
            }
        }
    }

    /// Reads the settings again. Wrong ones change nothing.
    fn reload(&mut self) {
        if self.args.config.is_none() {
            return log("there is no --config to read again");
        }
        let settings = match AgentSettings::read(self.args) {
            Ok(settings) => settings,
            Err(error) => return log(&format!("the settings stay as they are: {error}")),
        };
        self.is_over.store(true, Ordering::Relaxed);
        // The locks are given up before they are taken again.
        self.files = Vec::new();
        match open(&settings) {
            Ok(files) => {
                (self.files, self.settings, self.due) = (files, settings, DueCommands::default());
                log("the settings were read again");
            }
            Err(error) => {
                log(&format!("the settings stay as they are: {error}"));
                match open(&self.settings) {
                    Ok(files) => self.files = files,
                    Err(error) => log(&format!("no file is kept up to date any more: {error}")),
                }
            }
        }
        self.begin();
    }

    /// Writes every file once, and runs the commands of those that changed.
    fn run_once(&mut self) -> Result<(), CliError> {
        let mut failure = None;
        for position in 0..self.files.len() {
            let settings = self.files[position].file.settings();
            let source = Source::of(self.client.clone(), settings, self.settings.label.clone());
            let file = &mut self.files[position];
            match source.poll_first(file.file.revision()) {
                Ok(Polled { found: Some(Found::Missing), .. }) if !file.file.settings().delete => {
                    failure = Some(CliError::Failed(format!("{} does not exist", file.name())));
                }
                Ok(Polled { found: Some(found), is_gap, .. }) => {
                    file.take(found, is_gap);
                    if file.unwritten.is_some() {
                        let path = file.file.path().display();
                        failure = Some(CliError::Stopped(format!("{path} cannot be written")));
                    }
                }
                Ok(Polled { found: None, .. }) => {}
                Err(error) => failure = Some(error),
            }
            if self.files[position].file.is_command_due() {
                self.file_changed(position);
            }
        }
        while let Some(command) = self.due.take_any() {
            let result = command::run(&command, &self.files_of(&command));
            if let Err(reason) = &result {
                failure = Some(CliError::Stopped(format!("the command {command:?} failed: {reason}")));
            }
            self.files.iter_mut().for_each(|file| file.changed = false);
            self.command_ended(&command, result);
        }
        failure.map_or(Ok(()), Err)
    }
}
