//! Scripts in Lua (`EVAL`): their thread, their cache, and the runs of one script until its effect
//! is applied.
//!
//! Scripts are not part of the replicated state. [`tidelock_core::clients::script`] decides what is
//! read and written, and what a conflict means; this module runs the program in between.
//!
//! A script may take as long as [`SCRIPT_TIME_MS_MAX`](tidelock_core::limits::SCRIPT_TIME_MS_MAX),
//! and a worker drives shards and all other clients between two commands. So scripts run on a
//! thread of their own, which takes at most one core. It is not the thread for large documents: a
//! document may take seconds, and a lock is held for as long.

mod bits;
pub mod cache;
mod commands;
mod convert;
mod engine;
mod json;
pub mod latches;
mod patterns;
#[cfg(test)]
mod tests;

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, OnceLock};
use std::{fmt, io, thread};

use bytes::Bytes;
use tidelock_core::clients::script::ScriptKeys;
use tidelock_core::limits::SCRIPTS_WAITING_MAX;
use tokio::sync::oneshot;

use super::session::Failure;
use cache::{ScriptCache, ScriptDigest};
pub use commands::ScriptCommands;
use engine::Engine;
pub use engine::forbids_writes;

const THREAD_NAME: &str = "scripts";

const BUSY: &str = "TRYAGAIN too many scripts are waiting; nothing was done";

const FAILED: &str = "ERR the interpreter of scripts cannot be started; nothing was done";

/// The scripts of a node. Clones share them.
#[derive(Clone, Default)]
pub struct Scripts {
    /// The scripts that `EVALSHA` finds by their SHA-1 digests.
    pub cache: Arc<ScriptCache>,
    queue: Arc<OnceLock<Option<SyncSender<Job>>>>,
}

/// One run of a script.
#[derive(Debug)]
pub struct ScriptRun {
    /// The text of the script.
    pub source: Arc<[u8]>,
    /// Its digest, for messages.
    pub digest: ScriptDigest,
    /// `KEYS`
    pub keys: Arc<[Bytes]>,
    /// `ARGV`
    pub arguments: Arc<[Bytes]>,
    /// The commands that it may execute, on the keys that were read. The reply is encoded for their
    /// protocol.
    pub commands: ScriptCommands,
}

/// How a run ended.
#[derive(Debug)]
pub enum RunResult {
    /// The script returned.
    Finished {
        /// The keys with its writes.
        keys: Box<ScriptKeys>,
        /// The encoded reply.
        reply: Vec<u8>,
    },
    /// The script failed with this error, and has no effect.
    Failed(String),
    /// The text is not a script.
    NotCompiled(String),
}

enum Job {
    Run(Box<ScriptRun>, oneshot::Sender<RunResult>),
    Check(Arc<[u8]>, oneshot::Sender<Result<(), String>>),
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts").finish_non_exhaustive()
    }
}

impl Scripts {
    /// Runs a script on the thread.
    ///
    /// # Errors
    /// When [`SCRIPTS_WAITING_MAX`] scripts wait already, or the thread has ended.
    pub async fn run(&self, run: ScriptRun) -> Result<RunResult, Failure> {
        let (done, result) = oneshot::channel();
        self.submit(Job::Run(Box::new(run), done))?;
        result.await.map_err(|_| FAILED.into())
    }

    /// Checks on the thread whether a text is a script.
    ///
    /// # Errors
    /// Why it is not, or why that is not known.
    pub async fn check(&self, source: Arc<[u8]>) -> Result<(), Failure> {
        let (done, result) = oneshot::channel();
        self.submit(Job::Check(source, done))?;
        result.await.map_err(|_| FAILED)?.map_err(Failure::from)
    }

    fn submit(&self, job: Job) -> Result<(), Failure> {
        let queue = self.queue.get_or_init(start).as_ref().ok_or(FAILED)?;
        queue.try_send(job).map_err(|_| BUSY.into())
    }
}

/// Starts the thread, with the first script. It ends when the last handle is dropped.
fn start() -> Option<SyncSender<Job>> {
    let started = || -> io::Result<SyncSender<Job>> {
        let (queue, jobs) = mpsc::sync_channel(SCRIPTS_WAITING_MAX);
        thread::Builder::new().name(THREAD_NAME.into()).spawn(move || work(&jobs))?;
        Ok(queue)
    };
    started()
        .inspect_err(|error| {
            tracing::error!(
                %error,
                "the thread for scripts cannot be started; EVAL is refused until the node is restarted"
            );
        })
        .ok()
}

fn work(jobs: &Receiver<Job>) {
    let mut engine: Option<Engine> = None;
    for job in jobs {
        if engine.as_ref().is_none_or(Engine::must_be_replaced) {
            engine = Engine::new()
                .inspect_err(|error| tracing::error!(%error, "the interpreter of scripts cannot be started"))
                .ok();
        }
        // Without an interpreter the client is told by the end of its channel.
        let Some(engine) = &mut engine else { continue };
        // Sending fails if the client is gone.
        match job {
            Job::Run(run, done) if !done.is_closed() => drop(done.send(engine.run(*run))),
            Job::Check(source, done) => drop(done.send(engine.check(&source))),
            Job::Run(..) => {}
        }
    }
}
