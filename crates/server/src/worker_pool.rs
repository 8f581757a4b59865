//! The workers of a node besides the one that owns it: threads that serve clients.
//!
//! Owns their start, what each is given, and their end. Each has its own event loop and a share of
//! the connections of every protocol. It parses and encodes; its requests to the node cross to the
//! owning worker in batches (`remote`). The owning worker serves clients in the same way, without
//! crossing threads.
//!
//! Invariants: when the node stops, a worker ends once its last connection is closed. A worker that
//! ends earlier stops the node: a node must not go on with clients that no thread serves. When the
//! owning worker ends, the others end too, with their connections.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::accept::Acceptor;
use crate::audit_log::AuditLog;
use crate::backup::BackupSource;
use crate::clients::Clients;
use crate::clock::WallClock;
use crate::counters::PerWorker;
use crate::descriptors;
use crate::disk::DiskSpace;
use crate::http::{self, AllowedHosts, Documents, HttpContext, HttpOptions, NodeAddresses};
use crate::memory::Memory;
use crate::metrics::history::MetricsHistory;
use crate::metrics::{DiskCounters, HttpCounters, RespCounters, SnapshotCounters};
use crate::offload::Offload;
use crate::remote::{HandoverCounters, Remote, WorkerLink};
use crate::resp::pub_sub::PubSub;
use crate::resp::redirects::Redirects;
use crate::resp::scripts::Scripts;
use crate::resp::{self, Acceptors, RespContext, RespOptions};
use crate::secrets::SecretKeys;
use crate::service_manager::{self, ProgressAnswers, ProgressProbe};
use crate::spans::Tracer;
use crate::store::Store;
use crate::throttle::FailureThrottle;
use crate::tls::TlsAcceptor;
use crate::transport::{PeerRefusals, TransportCounters};
use crate::turns::TurnGauges;
use crate::worker::Worker;
use uuid::Uuid;

/// What the servers of all workers of a node share.
#[derive(Clone)]
pub(crate) struct SharedContext {
    pub workers: usize,
    pub descriptors: descriptors::DescriptorBudget,
    pub cluster: Uuid,
    pub addresses: NodeAddresses,
    pub allowed_hosts: AllowedHosts,
    pub warnings: Vec<String>,
    pub insecure_listeners: usize,
    pub protected_mode: bool,
    pub disk_error: Arc<Mutex<Option<String>>>,
    pub clients: Clients,
    pub turns: Arc<TurnGauges>,
    pub disk: DiskCounters,
    pub history: Arc<MetricsHistory>,
    pub snapshots: SnapshotCounters,
    pub transport: Arc<TransportCounters>,
    pub refusals: Arc<PeerRefusals>,
    pub backup: Arc<BackupSource>,
    pub offload: Offload,
    pub scripts: Scripts,
    pub redirects: Arc<Redirects>,
    pub pub_sub: Arc<PubSub>,
    pub tls: Option<TlsAcceptor>,
    pub memory: Memory,
    pub throttle: Arc<FailureThrottle>,
    pub audit_log: AuditLog,
    pub secret_keys: SecretKeys,
    pub tracer: Tracer,
    pub space: DiskSpace,
    pub stopping: watch::Receiver<bool>,
}

/// What the servers of one worker need.
pub(crate) struct WorkerContext {
    shared: SharedContext,
    started: Instant,
    acceptors: (Acceptor, Acceptors),
    http: PerWorker<HttpCounters>,
    resp: PerWorker<RespCounters>,
    handovers: PerWorker<HandoverCounters>,
}

impl WorkerContext {
    /// One context for each worker, the owning worker's first. Clients of HTTP and of the Redis
    /// protocol arrive through the acceptors.
    pub fn split(shared: SharedContext, http: Vec<Acceptor>, resp: Vec<Acceptors>) -> Vec<WorkerContext> {
        let (workers, started) = (shared.workers, Instant::now());
        let counters = PerWorker::of(workers).into_iter().zip(PerWorker::of(workers));
        let contexts = http.into_iter().zip(resp).zip(counters).zip(PerWorker::of(workers));
        let context = |((acceptors, (http, resp)), handovers)| {
            let shared = shared.clone();
            WorkerContext { shared, started, acceptors, http, resp, handovers }
        };
        contexts.map(context).collect()
    }

    /// The counters of the servers of the Redis protocol.
    pub fn resp_counters(&self) -> PerWorker<RespCounters> {
        self.resp.clone()
    }

    /// Starts both servers on this thread. They end when the node stops and the last connection is
    /// closed.
    ///
    /// # Panics
    /// Outside of a [`LocalSet`].
    pub fn serve<S: Store>(self, store: S) -> Servers {
        let SharedContext { workers, descriptors, stopping, .. } = self.shared.clone();
        let clock = WallClock::default();
        let shared = self.shared;
        let options = RespOptions { connections_max: descriptors.resp_max, ..RespOptions::default() };
        let mut resp = RespContext::new(options, clock);
        (resp.counters, resp.started) = (self.resp.clone(), self.started);
        (resp.throttle, resp.audit_log) = (shared.throttle.clone(), shared.audit_log.clone());
        (resp.memory, resp.tls) = (shared.memory.clone(), shared.tls.clone());
        resp.protected_mode = shared.protected_mode;
        (resp.scripts, resp.redirects, resp.pub_sub) = (shared.scripts, shared.redirects, shared.pub_sub);
        let http = HttpContext {
            options: HttpOptions { connections_max: descriptors.http_max, ..HttpOptions::default() },
            cluster: shared.cluster,
            allowed_hosts: shared.allowed_hosts,
            addresses: shared.addresses,
            warnings: shared.warnings,
            insecure_listeners: shared.insecure_listeners,
            protected_mode: shared.protected_mode,
            disk_error: shared.disk_error,
            clients: shared.clients,
            turns: shared.turns,
            clock,
            counters: self.http,
            resp: self.resp,
            handovers: self.handovers,
            disk: shared.disk,
            history: shared.history,
            snapshots: shared.snapshots,
            transport: shared.transport,
            refusals: shared.refusals,
            documents: Documents::for_one_of(workers),
            offload: shared.offload,
            tls: shared.tls,
            memory: shared.memory,
            throttle: shared.throttle,
            audit_log: shared.audit_log,
            secret_keys: shared.secret_keys,
            tracer: shared.tracer,
            space: shared.space,
            backup: Some(shared.backup),
        };
        let (for_http, for_resp) = self.acceptors;
        let http = http::serve(for_http, store.clone(), http.into(), stopping.clone());
        let resp = resp::serve(for_resp, store, resp.into(), stopping);
        Servers([tokio::task::spawn_local(http), tokio::task::spawn_local(resp)])
    }
}

pub(crate) struct Servers([tokio::task::JoinHandle<()>; 2]);

impl Servers {
    /// Waits until the last connection is closed.
    pub async fn finished(self) {
        for task in self.0 {
            if let Err(error) = task.await {
                tracing::error!(%error, "a server of client connections failed");
            }
        }
    }
}

/// The workers besides the owning one. Dropping it ends them.
pub(crate) struct WorkerPool {
    node: Worker,
    threads: Vec<JoinHandle<()>>,
    serving: usize,
    ends: mpsc::UnboundedReceiver<WorkerEnd>,
    probes: Vec<ProgressProbe>,
}

#[derive(Clone, Copy, Debug)]
struct WorkerEnd {
    number: usize,
    was_stopped: bool,
}

impl WorkerPool {
    /// Starts a worker for each context.
    ///
    /// # Errors
    /// When the system has no descriptors or no thread for another one.
    pub fn start(node: &Worker, contexts: impl Iterator<Item = WorkerContext>) -> io::Result<WorkerPool> {
        let (ended, ends) = mpsc::unbounded_channel();
        let (threads, probes) = (Vec::new(), Vec::new());
        let mut worker_pool = WorkerPool { node: node.clone(), threads, serving: 0, ends, probes };
        for (number, context) in (2..).zip(contexts) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (link, ended) = (node.attach(), ended.clone());
            let (probe, answers) = service_manager::probe();
            worker_pool.probes.push(probe);
            let guard = WorkerGuard { number, stopping: context.shared.stopping.clone(), ended };
            let thread = std::thread::Builder::new().name(format!("worker-{number}"));
            worker_pool.threads.push(thread.spawn(move || guard.run(runtime, (link, answers), context))?);
            worker_pool.serving += 1;
        }
        Ok(worker_pool)
    }

    /// A probe of each of these workers. They are handed out once.
    pub fn take_probes(&mut self) -> Vec<ProgressProbe> {
        std::mem::take(&mut self.probes)
    }

    /// Returns once all workers have ended after the node was told to stop.
    ///
    /// # Errors
    /// The number of a worker that ended before that, at once.
    pub async fn finished(&mut self) -> Result<(), usize> {
        while self.serving > 0 {
            match self.ends.recv().await {
                Some(WorkerEnd { was_stopped: true, .. }) | None => self.serving -= 1,
                Some(WorkerEnd { number, .. }) => return Err(number),
            }
        }
        Ok(())
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.node.detach_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}

/// Lives as long as a worker's thread. Dropping it reports the thread's end, a panic included.
struct WorkerGuard {
    number: usize,
    stopping: watch::Receiver<bool>,
    ended: mpsc::UnboundedSender<WorkerEnd>,
}

impl WorkerGuard {
    fn run(self, runtime: Runtime, (link, answers): (WorkerLink, ProgressAnswers), context: WorkerContext) {
        LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(answers.answer());
            let remote = Remote::new(link, context.handovers.clone());
            let servers = context.serve(remote.clone());
            tokio::select! {
                // The owning worker is gone, and no request can be answered: connections end with
                // this thread.
                () = remote.run() => {}
                () = servers.finished() => {}
            }
        });
    }
}

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        let end = WorkerEnd { number: self.number, was_stopped: *self.stopping.borrow() };
        // The receiver may have been dropped already.
        let _ = self.ended.send(end);
    }
}
