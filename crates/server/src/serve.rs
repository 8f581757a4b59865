//! One node: put together from its settings, run until a signal or a fault of its disk, taken apart in order.
//!
//! Owns the order of start and stop, and the node's identity on its disk. Parts know nothing of each other beyond
//! what is handed to them here.
//!
//! Start: lock and read the disk, then listen, then serve. A node restarts from its own disk: it needs no peer to be
//! up, only a quorum before it can promise anything.
//!
//! Stop: hand leaderships over while still serving, finish requests in flight, flush the peers' queues, let the log
//! finish, release the disk.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidelock_core::command::HostInfo;
use tidelock_core::event::{Event, NodeOptions, OutgoingFrame};
use tidelock_core::node::Node;
use tidelock_core::storage::control_file::{self, ControlFileError, Identity};
use tidelock_core::storage::disk::DiskError;
use tidelock_core::storage::recovery::{self, RecoverError, RecoverReport};
use tidelock_core::storage::snapshot::SnapshotTask;
use tidelock_core::storage::wal::{WalError, WalOptions};
use tidelock_core::storage::{LogHeld, WalBatch};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::LocalSet;
use uuid::Uuid;

use crate::clock::Ticker;
use crate::config::Settings;
use crate::disk::{DiskThread, FsDisk, SnapshotPaces, SnapshotThread};
use crate::http::{self, HttpContext, HttpOptions, NodeAddresses};
use crate::listen;
use crate::metrics::DiskCounters;
use crate::shutdown::{self, Signal};
use crate::store::Store;
use crate::transport::handshake::{self, HandshakeRefusal};
use crate::transport::{Transport, TransportLimits, TransportOptions};
use crate::worker::{DiskReports, Outlets, Worker};

/// How long a stopping node waits for others to take its leaderships over, in election timeouts. After that it stops
/// all the same: its followers elect without it.
const HANDOVER_ELECTION_TIMEOUTS: u32 = 2;

/// The log is cut behind snapshots once its full segments take so many bytes, unless snapshots are larger: little beside
/// a disk, and read again in well under a second.
const SNAPSHOT_LOG_BYTES_MIN: u64 = 64 << 20;

/// Between two looks at whether leaderships are handed over.
const HANDOVER_LOOK: Duration = Duration::from_millis(5);

/// Why a node did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket, the runtime or the signal handlers.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The data directory cannot be used.
    #[error("data directory: {0}")]
    Disk(#[from] DiskError),
    /// The node's identity cannot be read or written.
    #[error("data directory: {0}")]
    Identity(#[from] ControlFileError),
    /// What log and snapshots hold cannot be believed.
    #[error("data directory: {0}")]
    Recovery(#[from] RecoverError),
    /// The directory knows its node, and the node's log is gone.
    #[error(
        "data directory: the write-ahead log is missing; without it this node has forgotten what it acknowledged. \
         Restore it, or empty the directory: the other nodes will then refuse it, and go on without"
    )]
    LogMissing,
    /// The log can no longer be written: the node stopped rather than promise what it cannot keep.
    #[error("stopped: the write-ahead log failed: {0}")]
    Log(WalError),
}

/// Runs a node until the first SIGTERM or SIGINT. A second signal ends the process at once.
///
/// # Errors
/// When the node cannot start, or its disk fails.
pub fn run(settings: Settings) -> Result<(), ServeError> {
    let signals = shutdown::listen()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(settings, signals))
}

async fn serve(settings: Settings, signals: watch::Receiver<Option<Signal>>) -> Result<(), ServeError> {
    let disk = FsDisk::open(&settings.data_dir)?;
    let identity = identify(&disk, &settings)?;
    // A fresh seed for each boot: read contexts must not repeat, and jitter had better not.
    let (seed, _) = Uuid::new_v4().as_u64_pair();
    let opened = recovery::open(disk.clone(), WalOptions::new(seed))?;
    log_recovery(&opened.report);
    let identity = begin_log(&disk, identity, &opened.report)?;

    let listeners = Listeners::bind(&settings).await?;
    let reports = Arc::new(DiskReports::default());
    let (log_report, snapshot_report) = (reports.clone(), reports.clone());
    let log =
        DiskThread::start(opened.log, settings.sync, Box::new(move |result| log_report.report(result)))?;
    let snapshots =
        SnapshotThread::start(opened.snapshots, SnapshotPaces::default(), log.counters(), move |done| {
            snapshot_report.snapshot(done)
        })?;
    let node = Node::new(node_options(&settings, &identity, seed), opened.shards);
    let worker = Worker::new(node, reports);
    let transport = Rc::new(start_transport(&worker, &identity, listeners.peer));
    let context = Rc::new(http_context(&settings, (&log, &snapshots), &transport));

    let (stop_http, http_stopping) = watch::channel(false);
    let http = tokio::task::spawn_local(http::serve(listeners.http, worker.clone(), context, http_stopping));
    tokio::task::spawn_local(tick(worker.clone(), settings.tick(), log.counters()));
    tokio::task::spawn_local(remember_hosts(
        worker.clone(),
        disk,
        identity.clone(),
        settings.election_timeout,
    ));
    tracing::info!(
        node = identity.node.0, cluster = %identity.cluster_id, host = %identity.host_uuid,
        http = %settings.http, peer = %settings.peer, data = %settings.data_dir.display(), "serving"
    );

    let outlets = Outlet { log: &log, snapshots: &snapshots, transport: transport.clone() };
    let failure = tokio::select! {
        failure = worker.run(outlets) => Some(failure),
        () = stopped(&worker, signals, &settings, stop_http, http) => None,
    };
    if let Some(failure) = failure {
        tracing::error!(reason = %failure, "the write-ahead log failed: stopping, nothing more is acknowledged");
        return Err(ServeError::Log(failure));
    }
    transport.stop().await;
    drop(transport);
    log.stop();
    snapshots.stop();
    tracing::info!("stopped");
    Ok(())
}

/// Waits for the signal, then for everything that clients and peers still expect of this node.
async fn stopped(
    worker: &Worker,
    mut signals: watch::Receiver<Option<Signal>>,
    settings: &Settings,
    stop_http: watch::Sender<bool>,
    http: tokio::task::JoinHandle<()>,
) {
    // The sender lives as long as the process.
    let _ = signals.wait_for(Option::is_some).await;
    worker.tell(Event::Retire);
    let handover = async {
        while leads_with_followers(worker) {
            tokio::time::sleep(HANDOVER_LOOK).await;
        }
    };
    if tokio::time::timeout(settings.election_timeout * HANDOVER_ELECTION_TIMEOUTS, handover).await.is_err() {
        tracing::warn!("nobody took over every leadership in time; the others will elect");
    }
    stop_http.send_replace(true);
    if let Err(error) = http.await {
        tracing::error!(%error, "the HTTP server ended badly");
    }
}

/// Whether this node leads a shard that somebody else could lead.
fn leads_with_followers(worker: &Worker) -> bool {
    let status = worker.status();
    status.links.iter().any(|(_, up)| *up) && status.shards.iter().any(|shard| shard.leads)
}

/// Tells the node of time, and of what that brought in the log.
async fn tick(worker: Worker, period: Duration, log: DiskCounters) {
    let mut ticker = Ticker::start(period);
    let mut held = LogHeld::default();
    loop {
        for _ in 0..ticker.ticks().await {
            worker.tell(Event::Tick);
        }
        let now = log.held();
        if std::mem::replace(&mut held, now) != now {
            worker.tell(Event::LogHeld(now));
        }
    }
}

struct Outlet<'a> {
    log: &'a DiskThread,
    snapshots: &'a SnapshotThread,
    transport: Rc<Transport>,
}

impl Outlets for Outlet<'_> {
    fn send(&self, frame: OutgoingFrame) {
        self.transport.send(frame);
    }

    fn persist(&self, batch: WalBatch) {
        self.log.submit(batch);
    }

    fn file(&self, task: SnapshotTask) {
        self.snapshots.submit(task);
    }
}

struct Listeners {
    http: TcpListener,
    peer: TcpListener,
}

impl Listeners {
    async fn bind(settings: &Settings) -> Result<Listeners, ServeError> {
        let http = listen::bind(settings.http.as_str()).await?;
        Ok(Listeners { http, peer: listen::bind(settings.peer.as_str()).await? })
    }
}

/// Who this node is: what its disk says, or, on an empty disk, what its settings found.
fn identify(disk: &FsDisk, settings: &Settings) -> Result<Identity, ServeError> {
    let identity = match control_file::load(disk)? {
        Some(known) => {
            if settings.cluster_id().is_some_and(|id| id != known.cluster_id) {
                tracing::warn!(
                    "--peers, --cluster-name or --shards differ from what the data directory knows, and are ignored"
                );
            }
            Identity { boots: known.boots + 1, ..known }
        }
        None => Identity {
            cluster_id: settings.cluster_id().unwrap_or_else(Uuid::new_v4),
            node: settings.node_id(),
            host_uuid: Uuid::new_v4(),
            founders: settings.founders(),
            data_shards: settings.shards,
            boots: 1,
            has_log: false,
            hosts: BTreeMap::new(),
        },
    };
    control_file::store(disk, &identity)?;
    Ok(identity)
}

/// Notes that the log is begun, or refuses a directory that has lost it: without its log a node has forgotten its
/// votes and what it acknowledged, and must not take part under its old number.
fn begin_log(disk: &FsDisk, identity: Identity, report: &RecoverReport) -> Result<Identity, ServeError> {
    if !identity.has_log {
        let identity = Identity { has_log: true, ..identity };
        control_file::store(disk, &identity)?;
        return Ok(identity);
    }
    if report.log.segments == 0 { Err(ServeError::LogMissing) } else { Ok(identity) }
}

/// Keeps the control file's list of hosts up with the registry. It changes when the cluster is founded, so writing
/// it on this thread delays nobody.
async fn remember_hosts(worker: Worker, disk: FsDisk, mut identity: Identity, period: Duration) {
    let mut interval = tokio::time::interval(period);
    loop {
        interval.tick().await;
        let known = worker.known_hosts();
        if known.iter().all(|(node, host)| identity.hosts.get(node) == Some(host)) {
            continue;
        }
        identity.hosts.extend(known);
        if let Err(error) = control_file::store(&disk, &identity) {
            tracing::warn!(%error, "the control file could not be updated; trying again");
            identity.hosts.clear();
        }
    }
}

fn node_options(settings: &Settings, identity: &Identity, seed: u64) -> NodeOptions {
    NodeOptions {
        host: HostInfo {
            node: identity.node,
            uuid: identity.host_uuid,
            peer_address: settings.peer.to_string(),
            http_address: settings.http.to_string(),
            resp_address: settings.resp.to_string(),
            tags: settings.tags.clone(),
        },
        founders: identity.founders.clone(),
        faults: tidelock_core::deliberate::Faults::NONE,
        data_shards: identity.data_shards,
        timing: settings.timing(),
        snapshot_log_bytes_min: SNAPSHOT_LOG_BYTES_MIN,
        seed,
    }
}

fn start_transport(worker: &Worker, identity: &Identity, listener: TcpListener) -> Transport {
    let (sink, registry) = (worker.clone(), worker.clone());
    let remembered = identity.hosts.clone();
    let numbers = (1..).map(tidelock_core::types::NodeId);
    let options = TransportOptions {
        identity: handshake::Identity {
            cluster: identity.cluster_id,
            node: identity.node,
            host: identity.host_uuid,
        },
        peers: numbers.zip(identity.founders.iter().cloned()).collect(),
        sink: Rc::new(move |event| sink.tell(event)),
        accepts: Rc::new(move |node, host| {
            match registry.known_host(node).or(remembered.get(&node).copied()) {
                Some(known) if known != host => Err(HandshakeRefusal::HostMismatch),
                _ => Ok(()),
            }
        }),
        limits: TransportLimits::default(),
    };
    Transport::start(listener, options)
}

fn http_context(
    settings: &Settings,
    (log, snapshots): (&DiskThread, &SnapshotThread),
    transport: &Transport,
) -> HttpContext {
    let exposed = settings.exposed().into_iter();
    HttpContext {
        options: HttpOptions::default(),
        addresses: NodeAddresses {
            http: settings.http.to_string(),
            resp: String::new(),
            peer: settings.peer.to_string(),
        },
        warnings: exposed
            .map(|(name, address)| {
                format!("{name} listens on {address}, beyond loopback, without TLS or tokens")
            })
            .inspect(|warning| tracing::warn!("{warning}"))
            .collect(),
        disk: log.counters(),
        snapshots: snapshots.counters(),
        transport: transport.counters(),
        ..HttpContext::default()
    }
}

fn log_recovery(report: &RecoverReport) {
    for damaged in &report.damaged {
        tracing::warn!(%damaged, "a damaged snapshot was removed; the log made up for it");
    }
    let report = &report.log;
    if let Some(torn) = &report.torn_tail {
        tracing::warn!(
            file = torn.file,
            offset = torn.offset,
            bytes = torn.bytes,
            "cut back a torn write at the end of the log"
        );
    }
    tracing::info!(segments = report.segments, frames = report.frames, bytes = report.bytes, "read the log");
}
