//! A real server on a loopback port, in a separate thread, with a clock that tests set.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use tidelock_core::types::UnixMillis;
use tidelock_server::clock::WallClock;
use tidelock_server::memory::Memory;
use tidelock_server::resp::{Acceptors, RespContext, RespOptions, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::store::RespStore;

/// The clock of all servers of this file. Only the scripts use it, one after the other.
pub static NOW: AtomicU64 = AtomicU64::new(0);

/// A running server. Dropping it stops it, and fails the test if the server panicked.
pub struct Server {
    pub address: SocketAddr,
    /// The address for Redis Cluster clients.
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

    /// Starts a server with this memory budget.
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
                let acceptors = Acceptors::from((listener, cluster));
                let mut context = RespContext::new(options, clock);
                (context.memory, context.pub_sub) = (limited, served.pub_sub.clone());
                serve(acceptors, served, Rc::new(context), stopping).await;
            });
        });
        let (address, cluster) = address.recv().unwrap();
        Server { address, cluster, store, memory, shutdown, thread: Some(thread) }
    }

    /// Asks it to stop and waits until it has.
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
