//! A real server on a port of loopback, in a thread of its own, with a clock that a test sets.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use tidelock_core::types::UnixMillis;
use tidelock_server::clock::WallClock;
use tidelock_server::memory::Memory;
use tidelock_server::resp::{Entrances, RespContext, RespOptions, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::store::RespStore;

/// What the clock of all servers of this file shows. Only scripts look at it, one after the other.
pub static NOW: AtomicU64 = AtomicU64::new(0);

/// Stops when dropped, and fails the test if the server had panicked.
pub struct Server {
    pub address: SocketAddr,
    /// Where clients of Redis Cluster are served.
    pub cluster: SocketAddr,
    pub store: RespStore,
    pub memory: Memory,
    shutdown: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(options: RespOptions) -> Server {
        Server::start_within(options, Memory::new(1 << 30))
    }

    /// The same with so much memory for clients.
    pub fn start_within(options: RespOptions, memory: Memory) -> Server {
        let store = RespStore::new();
        let (shutdown, stopping) = watch::channel(false);
        let (started, address) = std::sync::mpsc::channel();
        let (served, limited) = (store.clone(), memory.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let cluster = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let addresses = (listener.local_addr().unwrap(), cluster.local_addr().unwrap());
                started.send(addresses).unwrap();
                let clock = WallClock(|| UnixMillis(NOW.load(Ordering::Relaxed)));
                let entrances = Entrances::from((listener, cluster));
                let mut context = RespContext::new(options, clock);
                context.memory = limited;
                serve(entrances, served, Rc::new(context), stopping).await;
            });
        });
        let (address, cluster) = address.recv().unwrap();
        Server { address, cluster, store, memory, shutdown, thread: Some(thread) }
    }

    /// Tells it to stop and waits until it has.
    pub fn stop(&mut self) {
        self.shutdown.send_replace(true);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.send_replace(true);
        if !std::thread::panicking() {
            self.stop();
        }
    }
}
