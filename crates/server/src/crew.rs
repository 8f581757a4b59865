//! The workers of a node beside the one that owns it: threads that serve clients.
//!
//! Owns their start, what each is given, and their end. Each has an event loop of its own, its share of the connections of every
//! protocol; it parses and encodes, and what it asks of the node crosses in
//! batches (`remote`). The node's own worker serves clients in the same way, without crossing anything.
//!
//! Invariants: told to stop, a worker ends when its last connection is closed. One that ends before that takes the node with it:
//! a node is not to limp along with clients that nobody serves. When the node's worker ends, so do the others, and
//! their connections with them.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::accept::Entrance;
use crate::backup::BackupSource;
use crate::clients::Clients;
use crate::clock::WallClock;
use crate::counters::PerWorker;
use crate::descriptors;
use crate::http::{self, AllowedHosts, Documents, HttpContext, HttpOptions, NodeAddresses};
use crate::memory::Memory;
use crate::metrics::{DiskCounters, HttpCounters, SnapshotCounters};
use crate::offload::Offload;
use crate::remote::{HandoverCounters, Link, Remote};
use crate::resp::{self, Entrances, RespContext, RespCounters, RespOptions};
use crate::store::Store;
use crate::transport::TransportCounters;
use crate::turns::TurnGauges;
use crate::worker::Worker;

/// What the servers of all workers of a node share.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub workers: usize,
    pub descriptors: descriptors::Budget,
    pub addresses: NodeAddresses,
    pub allowed_hosts: AllowedHosts,
    pub warnings: Vec<String>,
    pub disk_error: Arc<Mutex<Option<String>>>,
    pub clients: Clients,
    pub turns: Arc<TurnGauges>,
    pub disk: DiskCounters,
    pub snapshots: SnapshotCounters,
    pub transport: Arc<TransportCounters>,
    pub backup: Arc<BackupSource>,
    pub offload: Offload,
    pub memory: Memory,
    pub stopping: watch::Receiver<bool>,
}

/// What the servers of one worker need.
pub(crate) struct Post {
    surroundings: Surroundings,
    started: Instant,
    entrances: (Entrance, Entrances),
    http: PerWorker<HttpCounters>,
    resp: PerWorker<RespCounters>,
    handovers: PerWorker<HandoverCounters>,
}

impl Post {
    /// One for each worker, that of the node's own first; clients of HTTP and of the Redis protocol come through the entrances.
    pub fn split(surroundings: Surroundings, http: Vec<Entrance>, resp: Vec<Entrances>) -> Vec<Post> {
        let (workers, started) = (surroundings.workers, Instant::now());
        let counters = PerWorker::of(workers).into_iter().zip(PerWorker::of(workers));
        let posts = http.into_iter().zip(resp).zip(counters).zip(PerWorker::of(workers));
        let post = |((entrances, (http, resp)), handovers)| {
            let surroundings = surroundings.clone();
            Post { surroundings, started, entrances, http, resp, handovers }
        };
        posts.map(post).collect()
    }

    /// Starts both servers on this thread. They end when the node stops and the last connection is closed.
    ///
    /// # Panics
    /// Outside of a [`LocalSet`].
    pub fn serve<S: Store>(self, store: S) -> Servers {
        let Surroundings { workers, descriptors, stopping, .. } = self.surroundings.clone();
        let clock = WallClock::default();
        let surroundings = self.surroundings;
        let options = RespOptions { connections_max: descriptors.resp_max, ..RespOptions::default() };
        let mut resp = RespContext::new(options, clock);
        (resp.counters, resp.started) = (self.resp.clone(), self.started);
        resp.memory = surroundings.memory.clone();
        let http = HttpContext {
            options: HttpOptions { connections_max: descriptors.http_max, ..HttpOptions::default() },
            allowed_hosts: surroundings.allowed_hosts,
            addresses: surroundings.addresses,
            warnings: surroundings.warnings,
            disk_error: surroundings.disk_error,
            clients: surroundings.clients,
            turns: surroundings.turns,
            clock,
            counters: self.http,
            resp: self.resp,
            handovers: self.handovers,
            disk: surroundings.disk,
            snapshots: surroundings.snapshots,
            transport: surroundings.transport,
            documents: Documents::for_one_of(workers),
            offload: surroundings.offload,
            memory: surroundings.memory,
            backup: Some(surroundings.backup),
        };
        let (for_http, for_resp) = self.entrances;
        let http = http::serve(for_http, store.clone(), http.into(), stopping.clone());
        let resp = resp::serve(for_resp, store, resp.into(), stopping);
        Servers([tokio::task::spawn_local(http), tokio::task::spawn_local(resp)])
    }
}

/// Those who serve clients on one thread.
pub(crate) struct Servers([tokio::task::JoinHandle<()>; 2]);

impl Servers {
    /// Waits until the last connection is closed.
    pub async fn finished(self) {
        for task in self.0 {
            if let Err(error) = task.await {
                tracing::error!(%error, "a server of clients ended badly");
            }
        }
    }
}

/// The workers beside the node's own. Dropping it ends them.
pub(crate) struct Crew {
    node: Worker,
    threads: Vec<JoinHandle<()>>,
    serving: usize,
    ends: mpsc::UnboundedReceiver<End>,
}

/// A worker ended.
#[derive(Clone, Copy, Debug)]
struct End {
    number: usize,
    was_told: bool,
}

impl Crew {
    /// Starts a worker for each post.
    ///
    /// # Errors
    /// When the system has no descriptors, or no thread, for one more.
    pub fn start(node: &Worker, posts: impl Iterator<Item = Post>) -> io::Result<Crew> {
        let (ended, ends) = mpsc::unbounded_channel();
        let mut crew = Crew { node: node.clone(), threads: Vec::new(), serving: 0, ends };
        for (number, post) in (2..).zip(posts) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (link, ended) = (node.attach(), ended.clone());
            let life = Life { number, stopping: post.surroundings.stopping.clone(), ended };
            let thread = std::thread::Builder::new().name(format!("worker-{number}"));
            crew.threads.push(thread.spawn(move || life.live(runtime, link, post))?);
            crew.serving += 1;
        }
        Ok(crew)
    }

    /// Returns once all have ended as they were told.
    ///
    /// # Errors
    /// The number of one that ended without being told, at once.
    pub async fn finished(&mut self) -> Result<(), usize> {
        while self.serving > 0 {
            match self.ends.recv().await {
                Some(End { was_told: true, .. }) | None => self.serving -= 1,
                Some(End { number, .. }) => return Err(number),
            }
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.node.detach_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}

/// A worker's thread while it lives; its end is told, however it comes.
struct Life {
    number: usize,
    stopping: watch::Receiver<bool>,
    ended: mpsc::UnboundedSender<End>,
}

impl Life {
    fn live(self, runtime: Runtime, link: Link, post: Post) {
        LocalSet::new().block_on(&runtime, async {
            let remote = Remote::new(link, post.handovers.clone());
            let servers = post.serve(remote.clone());
            tokio::select! {
                // Nobody is left who could answer: the connections end with this thread.
                () = remote.run() => {}
                () = servers.finished() => {}
            }
        });
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let end = End { number: self.number, was_told: *self.stopping.borrow() };
        // Whoever would listen may have gone first.
        let _ = self.ended.send(end);
    }
}
