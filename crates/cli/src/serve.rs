//! `tidelock serve`: runs a node with the settings of flags and environment.
//!
//! Passes the settings to the server crate, which defines their meaning, defaults and validity.
//! Also stops a node that must not outlive the process that started it.

use std::error::Error;
use std::io::{self, Read};
use std::thread;

use rustix::process::{Signal, getpid, kill_process};
use tidelock_client::CliError;
use tidelock_server::config::Settings;
use tidelock_server::service_manager::ServiceManager;

use crate::args::ServeArgs;
use crate::logging;

/// Runs the node until it is told to stop.
pub fn run(args: ServeArgs) -> Result<(), CliError> {
    let settings = Settings::load(args.settings, args.config.as_deref())
        .map_err(|error| CliError::Usage(with_causes(&error)))?;
    logging::init(settings.log_format, &settings.log_filter)?;
    if args.stop_at_stdin_end {
        stop_at_stdin_end()?;
    }
    start(settings)
}

/// Runs the server with its settings until it has stopped.
fn start(settings: Settings) -> Result<(), CliError> {
    let manager = ServiceManager::from_environment();
    tidelock_server::serve::run(settings, manager).map_err(|error| {
        let kind = match &error {
            error if error.is_usage() => CliError::Usage,
            error if error.needs_a_person() => CliError::NeedsAPerson,
            _ => CliError::Stopped,
        };
        kind(with_causes(&error))
    })
}

/// An error and its causes, on one line; a cause that the error's text already contains is not
/// repeated.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Stops this process gracefully, as SIGTERM does, once standard input ends: the process that held
/// the other end of the pipe has ended.
fn stop_at_stdin_end() -> Result<(), CliError> {
    let watch = || {
        let mut ignored = [0; 64];
        loop {
            match io::stdin().lock().read(&mut ignored) {
                Ok(count) if count > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        // A process can always signal itself.
        let _ = kill_process(getpid(), Signal::TERM);
    };
    let lifeline = thread::Builder::new().name("lifeline".to_owned()).spawn(watch);
    lifeline.map(drop).map_err(CliError::io("the lifeline's thread"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{text}")]
        struct Layer {
            text: &'static str,
            source: Option<Box<Layer>>,
        }
        let layer = |text, source: Option<Layer>| Layer { text, source: source.map(Box::new) };
        let error = layer("cannot start", Some(layer("port taken", Some(layer("taken", None)))));
        assert_eq!(with_causes(&error), "cannot start: port taken");
    }
}
