//! One pass of load: threads, their connections, and their common start.
//!
//! Each thread has its own runtime; on the path of a request threads share only counters. The
//! calling thread shows the progress, and otherwise sleeps.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tidelock_client::CliError;
use tokio::task::{JoinSet, LocalSet};

use crate::connection::Connection;
use crate::pace::{Budget, PassState, Schedule};
use crate::protocol::{Protocol, Work};
use crate::record::Record;
use crate::transport::{Stream, Transport};

/// Interval between updates of the progress.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub(crate) struct Pass {
    /// The label of the progress bar.
    pub name: &'static str,
    pub connections: usize,
    pub threads: usize,
    /// Most requests in flight on one connection.
    pub depth: usize,
    /// Ends the pass; otherwise `duration` does.
    pub requests: Option<u64>,
    pub duration: Option<Duration>,
    /// Requests a second of all connections, in an open loop.
    pub rate: Option<u64>,
    /// After how long a request counts as failed.
    pub timeout: Duration,
    /// How the servers are reached.
    pub transport: Transport,
}

/// Creates the connections of a pass.
pub(crate) trait Recipe: Sync {
    type Protocol: Protocol + 'static;
    type Work: Work + 'static;

    /// The address, protocol and work of the connection with this index.
    fn connection(&self, index: usize) -> Result<(String, Self::Protocol, Self::Work), CliError>;
}

/// The result of a pass.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The measurements of all connections.
    pub record: Record,
    /// From the first request to the last answer.
    pub elapsed: Duration,
}

/// The barrier at which the threads meet before they begin.
struct Start {
    barrier: Barrier,
    failure: Mutex<Option<CliError>>,
    begun: OnceLock<(Instant, Arc<PassState>)>,
}

/// Runs one pass. Fails if any of its connections cannot be made at the beginning.
pub(crate) fn run<R: Recipe>(pass: &Pass, recipe: &R) -> Result<Outcome, CliError> {
    let threads = pass.threads.min(pass.connections);
    let start = Start { barrier: Barrier::new(threads), failure: Mutex::new(None), begun: OnceLock::new() };
    let records = thread::scope(|scope| {
        let start = &start;
        let workers: Vec<_> =
            (0..threads).map(|index| scope.spawn(move || work(pass, recipe, start, index))).collect();
        let bar = progress_bar(pass);
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::park_timeout(LOOK_INTERVAL);
            show(&bar, pass, start);
        }
        bar.finish_and_clear();
        let panicked = "invariant: a thread of the load does not panic";
        workers.into_iter().map(|worker| worker.join().expect(panicked)).collect::<Vec<_>>()
    });
    if let Some(error) = start.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let begun = start.begun.get().map_or_else(Instant::now, |(begun, _)| *begun);
    let mut all = Record::new();
    records.into_iter().for_each(|record| all.merge(record));
    let elapsed = all.last.map_or(Duration::ZERO, |last| last.saturating_duration_since(begun));
    Ok(Outcome { record: all, elapsed })
}

fn work<R: Recipe>(pass: &Pass, recipe: &R, start: &Start, index: usize) -> Record {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let made = runtime.map_err(CliError::io("a runtime for the load")).and_then(|runtime| {
        let mine = (index..pass.connections).step_by(pass.threads.min(pass.connections));
        let parts = runtime.block_on(open(pass, recipe, mine))?;
        Ok((runtime, parts))
    });
    let made = made.map_err(|error| {
        start.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    });
    start.barrier.wait();
    // From here on every thread knows whether all have connected.
    let failed = start.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let (Ok((runtime, parts)), false) = (made, failed) else { return Record::new() };
    let (begun, shared) = start.begun.get_or_init(|| begin(pass));
    let record = Rc::new(RefCell::new(Record::new()));
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        let mut connections = JoinSet::new();
        for (index, stream, (address, protocol, work)) in parts {
            let (rate, of) = (pass.rate, pass.connections as u64);
            let schedule = rate.map(|rate| Schedule::new(*begun, rate, index as u64, of));
            let (depth, timeout) = (pass.depth, pass.timeout);
            let (shared, record) = (Arc::clone(shared), Rc::clone(&record));
            let transport = pass.transport.clone();
            let connection =
                Connection { address, transport, protocol, work, shared, depth, schedule, timeout, record };
            connections.spawn_local(connection.run(stream));
        }
        wait(&mut connections, shared, index == 0).await;
    }));
    drop(tasks);
    Rc::try_unwrap(record).expect("invariant: every task of the load has ended").into_inner()
}

/// Waits until all connections are done. After a Ctrl-C the measurements so far are reported; a
/// second one aborts.
async fn wait(connections: &mut JoinSet<()>, shared: &PassState, heeds_signals: bool) {
    loop {
        tokio::select! {
            ended = connections.join_next() => match ended {
                Some(ended) => ended.expect("invariant: a connection of the load does not panic"),
                None => return,
            },
            _ = tokio::signal::ctrl_c(), if heeds_signals => {
                if shared.budget.is_over(Instant::now()) {
                    connections.shutdown().await;
                    return;
                }
                shared.budget.stop();
            }
        }
    }
}

fn begin(pass: &Pass) -> (Instant, Arc<PassState>) {
    let now = Instant::now();
    let end = pass.duration.map(|duration| now + duration);
    (now, Arc::new(PassState::new(Budget::new(pass.requests, end))))
}

type Opened<R> = (usize, Stream, (String, <R as Recipe>::Protocol, <R as Recipe>::Work));

async fn open<R: Recipe>(
    pass: &Pass,
    recipe: &R,
    indexes: impl Iterator<Item = usize>,
) -> Result<Vec<Opened<R>>, CliError> {
    let mut parts = vec![];
    for index in indexes {
        let part = recipe.connection(index)?;
        let stream = pass.transport.connect(&part.0, pass.timeout).await.map_err(CliError::Unreachable)?;
        parts.push((index, stream, part));
    }
    Ok(parts)
}

fn progress_bar(pass: &Pass) -> ProgressBar {
    let template = "{prefix} {wide_bar} {msg}";
    let length = match (pass.requests, pass.duration) {
        (Some(requests), _) => requests,
        (None, Some(duration)) => duration.as_millis() as u64,
        (None, None) => 0,
    };
    let style = ProgressStyle::with_template(template).expect("invariant: the template is one");
    ProgressBar::new(length).with_prefix(pass.name).with_style(style)
}

fn show(bar: &ProgressBar, pass: &Pass, start: &Start) {
    let Some((begun, shared)) = start.begun.get() else { return };
    let (done, elapsed) = (shared.answers(), begun.elapsed());
    bar.set_position(if pass.requests.is_some() { done } else { elapsed.as_millis() as u64 });
    bar.set_message(format!("{done} answers, {:.0}/s", done as f64 / elapsed.as_secs_f64().max(0.001)));
}
