//! A real server on a loopback port, in a separate thread, over the fake store.

use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread::JoinHandle;

use tidelock_server::clock::WallClock;
use tidelock_server::http::{AllowedHosts, HttpContext, HttpOptions, NodeAddresses, serve};
use tidelock_server::memory::Memory;
use tidelock_server::secrets::SecretKeys;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::store::{FakeStore, NOW};

type Job = Box<dyn FnOnce(&HttpContext) + Send>;

/// A running server. Dropping it stops it, and fails the test if the server panicked.
pub struct Server {
    pub address: SocketAddr,
    pub store: FakeStore,
    shutdown: watch::Sender<bool>,
    jobs: mpsc::UnboundedSender<Job>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(options: HttpOptions) -> Server {
        Server::start_within(options, Memory::new(1 << 30))
    }

    /// Starts a server with this memory budget.
    pub fn start_within(options: HttpOptions, memory: Memory) -> Server {
        let store = FakeStore::new();
        let (shutdown, shutdown_receiver) = watch::channel(false);
        let (jobs, jobs_receiver) = mpsc::unbounded_channel();
        let (started, address) = std::sync::mpsc::channel();
        let served = store.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                started.send(listener.local_addr().unwrap()).unwrap();
                let context = Rc::new(context(options, memory));
                tokio::task::spawn_local(run_jobs(jobs_receiver, context.clone()));
                serve(listener.into(), served, context, shutdown_receiver).await;
            });
        });
        Server { address: address.recv().unwrap(), store, shutdown, jobs, thread: Some(thread) }
    }

    /// Runs `job` with the context on the server's thread.
    pub fn with_context<T: Send + 'static>(&self, job: impl FnOnce(&HttpContext) -> T + Send + 'static) -> T {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move |context| {
            let _ = done.send(job(context));
        });
        self.jobs.send(job).unwrap();
        result.blocking_recv().unwrap()
    }

    /// Asks it to stop, without waiting.
    pub fn request_shutdown(&self) {
        self.shutdown.send_replace(true);
    }

    /// Waits until it has stopped.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.store.release();
        self.request_shutdown();
        if !std::thread::panicking() {
            self.join();
        }
    }
}

fn context(options: HttpOptions, memory: Memory) -> HttpContext {
    HttpContext {
        options,
        allowed_hosts: AllowedHosts::new(["tidelock.example".to_owned()]),
        memory,
        clock: WallClock(|| NOW),
        addresses: NodeAddresses {
            http: "127.0.0.1:8001".to_owned(),
            resp: String::new(),
            peer: "127.0.0.1:9001".to_owned(),
        },
        secret_keys: secret_keys(),
        warnings: vec!["http listens on 0.0.0.0:8001 without TLS".to_owned()],
        ..HttpContext::default()
    }
}

/// The key `k1` of 32 bytes of ones.
fn secret_keys() -> SecretKeys {
    // Only its owner may read a temporary file.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"k1:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n").unwrap();
    SecretKeys::open(file.path()).unwrap()
}

async fn run_jobs(mut jobs: mpsc::UnboundedReceiver<Job>, context: Rc<HttpContext>) {
    while let Some(job) = jobs.recv().await {
        job(&context);
    }
}
