//! Reads the document of one container as it changes.
//!
//! Owns the long polls of one file, in a thread of its own, and the pauses after failures. It hands
//! over what it found, and decides nothing about the file.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use serde_json::value::RawValue;
use tidelock_api::config::{Changes, ConfigError};
use tidelock_client::{Call, CliError, Client};

use super::super::{Target, data, name_of};
use super::settings::FileSettings;
use super::{Message, ReportOf};
use crate::args::Format;

/// First and longest pause after a failure. Each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What a container resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its document since this revision, in the format of the file.
    Document {
        /// The revision.
        revision: u64,
        /// The content of the file.
        content: Vec<u8>,
    },
    /// It does not exist.
    Missing,
}

/// What a poll has found.
#[derive(Debug)]
pub struct Polled {
    /// The last change, if there was one.
    pub found: Option<Found>,
    /// The history between this answer and the last one is not known.
    pub is_gap: bool,
    /// Where the next poll continues.
    index: u64,
}

/// The container of a file.
#[derive(Clone)]
pub struct Source {
    client: Arc<Client>,
    namespace: String,
    container: String,
    format: Format,
    /// Whether documents are downloaded with their secrets. Watches show the mask.
    reveal: bool,
    label: Option<String>,
}

impl Source {
    /// The source of a file.
    pub fn of(client: Arc<Client>, file: &FileSettings, label: Option<String>) -> Source {
        let (namespace, container) = (file.namespace.clone(), file.container.clone());
        Source { client, namespace, container, format: file.format, reveal: file.reveal, label }
    }

    /// The present state, or the next change after `index`.
    ///
    /// # Errors
    /// When no node answers, or the answer is a refusal.
    pub fn poll(&self, index: Option<u64>, wait: Duration) -> Result<Polled, CliError> {
        let target = Target::of(&[&self.namespace, "containers", &self.container, "watch"]);
        let target = target.with("index", index).with("label", self.label.as_ref());
        let target = target.with("wait", Some(format!("{}ms", wait.as_millis())));
        let answer = self.client.ask(&Call::get(target.into_text()))?;
        if answer.status == 404 && answer.json::<ConfigError>().is_ok() {
            // Poll from the beginning, for the change that creates it.
            return Ok(Polled { found: Some(Found::Missing), is_gap: false, index: 0 });
        }
        let Changes { index, gap, changes } = data(&answer)?;
        let found = match changes.last().map(|last| (last.revision, last.data.as_ref())) {
            None => None,
            Some((Some(revision), Some(document))) => {
                let content = match self.format {
                    Format::Json if !self.reveal => json_file(
                        &serde_json::value::to_raw_value(document)
                            .map_err(|error| answer.unintelligible(&error.to_string()))?,
                    ),
                    _ => self.download(revision)?,
                };
                Some(Found::Document { revision, content })
            }
            Some(_) => Some(Found::Missing),
        };
        Ok(Polled { found, is_gap: gap, index })
    }

    /// The present state. A node without a leader may show one older than `known`, the revision of
    /// the file. Then the answer is what came after that: nothing, or the state of another cluster.
    pub fn poll_first(&self, known: u64) -> Result<Polled, CliError> {
        let polled = self.poll(None, Duration::ZERO)?;
        match polled.found {
            Some(Found::Document { revision, .. }) if revision < known => {
                self.poll(Some(known), Duration::ZERO)
            }
            _ => Ok(polled),
        }
    }

    /// The document of a revision as a file. Any replica may have it. If the history does not hold
    /// it any more, the present document.
    fn download(&self, revision: u64) -> Result<Vec<u8>, CliError> {
        let file = |revision: Option<u64>, is_stale: bool| {
            let target = Target::of(&[&self.namespace, "containers", &self.container, "dl"]);
            let target = target.with("format", Some(name_of(self.format))).with("revision", revision);
            let target =
                target.with("reveal", self.reveal.then_some(true)).with("label", self.label.as_ref());
            self.client.ask(&Call::get(target.with("stale", is_stale.then_some(true)).into_text()))
        };
        let mut answer = file(Some(revision), true)?;
        if answer.status == 404 {
            answer = file(Some(revision), false)?;
        }
        if answer.status == 404 {
            answer = file(None, false)?;
        }
        match answer.status {
            200 => Ok(answer.body),
            _ => Err(data::<serde::de::IgnoredAny>(&answer).err().unwrap_or_else(|| answer.refusal())),
        }
    }

    /// Polls until the agent ends these polls, and sends what it finds. `known` is the revision of
    /// the file.
    pub fn follow(self, wait: Duration, known: u64, report_of: ReportOf, to: &Sender<Message>) {
        let (mut index, mut pause) = (None, PAUSE_MIN);
        while !report_of.is_over() {
            let polled = match index {
                None => self.poll_first(known),
                Some(_) => self.poll(index, wait),
            };
            let has_failed = polled.is_err();
            if let Ok(polled) = &polled {
                (index, pause) = (Some(polled.index), PAUSE_MIN);
            }
            if to.send(Message::Report(report_of.clone(), polled)).is_err() {
                return;
            }
            if has_failed {
                thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// A document as a file: as the node writes it for a download.
fn json_file(document: &RawValue) -> Vec<u8> {
    format!("{}\n", document.get()).into_bytes()
}
