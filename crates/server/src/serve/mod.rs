//! Runs one node: assembles it from its settings, serves until a signal or a disk failure, and
//! shuts it down in order.
//!
//! Owns the order of start and stop. The parts know of each other only what is passed to them here.
//!
//! Start: lock the disk, bind the ports, read the disk, then listen, then serve. Ports are bound
//! before the directory is given an identity, so that a first start that fails to bind leaves
//! nothing behind. A node restarts from its own disk: no peer has to be up, although without a
//! quorum the node cannot acknowledge anything. A new node that joins a cluster first waits to be
//! admitted.
//!
//! This thread owns the node and serves clients. Further workers, if any, serve clients too
//! (`worker_pool`).
//!
//! Stop, by a signal or because the node was removed from its cluster: transfer leaderships while
//! still serving, finish requests in flight, flush the peers' queues, let the log finish, release
//! the disk.

mod action_sink;
mod options;
mod periodic;
mod ports;
mod version_gate;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidelock_core::event::{Contradiction, Event};
use tidelock_core::limits;
use tidelock_core::node::Node;
use tidelock_core::node::force_new_cluster::{Survivor, force_new_cluster};
use tidelock_core::storage::WalBatch;
use tidelock_core::storage::control_file::{ControlFileError, Identity};
use tidelock_core::storage::disk::DiskError;
use tidelock_core::storage::recovery::{self, Opened, StorageRecoveryError, StorageRecoveryReport};
use tidelock_core::storage::start_counter::StartCounterError;
use tidelock_core::storage::wal::{WalError, WalOptions};
use tidelock_core::types::{NodeId, WalSequence};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use uuid::Uuid;

use crate::accept::Acceptor;
use crate::audit_log::AuditLog;
use crate::audited_writes::AuditedWrites;
use crate::backup::BackupSource;
use crate::clients;
use crate::clock::WallClock;
use crate::config::{Address, ConfigError, RESP_CLUSTER_OFF, Settings};
use crate::consensus_log::ConsensusLog;
use crate::descriptors::{self, ClientDescriptors, TooFewDescriptors};
use crate::disk::{DiskSpace, DiskThread, FsDisk, SnapshotPaces, SnapshotThread};
use crate::http::AllowedHosts;
use crate::identity::{self, IdentityError};
use crate::identity_store::IdentityStore;
use crate::memory::Memory;
use crate::offload::Offload;
use crate::resp::Acceptors;
use crate::resp::pub_sub::PubSub;
use crate::resp::scripts::Scripts;
use crate::secrets::{KeyFileError, SecretKeys};
use crate::secure::{self, NodeCertificateError};
use crate::service_manager::ServiceManager;
use crate::shutdown::{self, Signal};
use crate::spans::{self, Exporter, NodeSpans, Tracer};
use crate::status_log::SlowRequestLog;
use crate::store::Store;
use crate::tls::{TlsAcceptor, TlsError, TlsPaths, check_client_ca_file};
use crate::transport::{Transport, TransportOptions};
use crate::worker::{DiskReports, Worker, WorkerFailure};
use crate::worker_pool::{Servers, SharedContext, WorkerContext, WorkerPool};
use action_sink::ActionSink;
use options::{
    addresses, insecure_listeners, node_options, own_identity, protected_mode, transport_options, warnings,
};
use periodic::{
    LogWatch, SpanningWatch, log_changes, measure_space, reload_certificate, reload_secret_keys,
    remember_hosts, tick,
};
use ports::{Listeners, Ports};
use tidelock_core::handshake::HandshakeRefusal;
use version_gate::VersionGate;

/// How long a stopping node waits for others to take over its leaderships, in election timeouts.
/// Then it stops all the same, and its followers hold an election.
const HANDOVER_ELECTION_TIMEOUTS: u32 = 2;

/// Time between two checks of whether leaderships are transferred.
const HANDOVER_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How long a stopping process waits for blocking calls on other threads.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a node did not start, or stopped without being asked.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket, the runtime or the signal handlers failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The data directory cannot be used.
    #[error("data directory: {0}")]
    Disk(#[from] DiskError),
    /// The node's identity is unknown or invalid.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The log and the snapshots cannot be read or written now.
    #[error("data directory: {0}")]
    Recovery(StorageRecoveryError),
    /// The contents of log and snapshots are damaged, incomplete or inconsistent.
    #[error(
        "data directory: {0}. Nothing was changed. In a cluster the other nodes have what is missing: look at the disk's own \
         errors, and replace this node (docs/how-to/replace-a-node.md). Of a cluster of one, restore a backup"
    )]
    Damaged(StorageRecoveryError),
    /// The log can no longer be written: the node stopped, because it could not keep what it
    /// acknowledges.
    #[error("stopped: the write-ahead log failed: {0}")]
    Log(WalError),
    /// The settings are not those of a node that may start.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// The node cannot get or use a certificate of its cluster.
    #[error(transparent)]
    Secure(#[from] NodeCertificateError),
    /// The certificate cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The keys for secrets cannot be used.
    #[error(transparent)]
    SecretKeys(#[from] KeyFileError),
    /// The audit log cannot be opened, or the file is not an audit log.
    #[error("audit_log: {}: {source}", path.display())]
    AuditLog {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The process's limit of open files is too low.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// Other nodes know another process under this node's identity.
    #[error(
        "stopped: node {by} refuses this one: {refusal}. This directory will not start again: what the node has promised \
         since is not in it. If the current directory exists, start that one; if it is lost, remove the node from the \
         cluster, empty the directory, and start with --join"
    )]
    Superseded {
        /// The peer that refused this node.
        by: NodeId,
        /// Why it refused.
        refusal: HandshakeRefusal,
    },
    /// The state of this node and that of another one contradict each other.
    #[error(
        "stopped: {0}. One of the two nodes has lost what it acknowledged: its directory was put back to an earlier state, or \
         damaged. Empty no directory before you know which one is right; `tidelock cluster status --verify` on the others, \
         and docs/how-to/replace-a-node.md, \"Old copies\", say more"
    )]
    Contradiction(Contradiction),
    /// A worker that serves clients ended: the node stopped rather than leave its clients without
    /// service.
    #[error("stopped: worker {0} ended by itself")]
    Worker(usize),
}

impl From<StorageRecoveryError> for ServeError {
    fn from(error: StorageRecoveryError) -> ServeError {
        if error.is_damage() { ServeError::Damaged(error) } else { ServeError::Recovery(error) }
    }
}

impl ServeError {
    /// Whether the settings are the cause: another start with them fails in the same way.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            ServeError::Identity(IdentityError::Contradiction(_) | IdentityError::Settings(_))
                | ServeError::Settings(_)
                | ServeError::Tls(_)
                | ServeError::Secure(
                    NodeCertificateError::NotEmpty(_)
                        | NodeCertificateError::NoJoinToken
                        | NodeCertificateError::JoinTokenFile { .. }
                        | NodeCertificateError::JoinToken { .. }
                        // Members refuse a used or expired token again.
                        | NodeCertificateError::Enrol(_)
                )
                | ServeError::AuditLog { .. }
                | ServeError::SecretKeys(_)
        )
    }

    /// Whether the node must not be started again before a person has looked: its directory is
    /// damaged, an old copy, or that of a removed node, or two replicas contradict each other.
    pub fn needs_a_person(&self) -> bool {
        matches!(
            self,
            ServeError::Superseded { .. }
                | ServeError::Contradiction(_)
                | ServeError::Damaged(_)
                | ServeError::Identity(
                    IdentityError::Superseded(_)
                        | IdentityError::Removed
                        | IdentityError::Starts(StartCounterError::Damaged)
                        | IdentityError::ControlFile(ControlFileError::Damaged(_))
                )
        )
    }
}

/// Runs a node until the first SIGTERM or SIGINT, or until its cluster has removed it. A second
/// signal ends the process at once. `manager` is told what becomes of the node.
///
/// # Errors
/// When the node cannot start, or its disk fails.
pub fn run(settings: Settings, manager: ServiceManager) -> Result<(), ServeError> {
    let signals = shutdown::listen()?;
    let descriptors = descriptors::claim(settings.workers)?;
    // Not a `LocalSet`: it is a scheduler within the scheduler, and each wake-up would pass through
    // both.
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let manager = Rc::new(manager);
    let outcome = runtime.block_on(async {
        survive_hangups(&manager)?;
        serve(settings, descriptors, signals, &manager).await
    });
    match &outcome {
        Ok(()) => manager.status("stopped"),
        Err(error) => manager.stopping(&error.to_string()),
    }
    // A lookup of a name may hang in the system's resolver for longer than a stop should take.
    runtime.shutdown_timeout(BLOCKING_TIMEOUT);
    outcome
}

/// `systemctl reload` sends SIGHUP, which ends a process without a handler. The handler stays when
/// its receiver is dropped; what reads files again has receivers of its own.
fn survive_hangups(manager: &ServiceManager) -> Result<(), ServeError> {
    if manager.is_present() {
        drop(signal(SignalKind::hangup())?);
    }
    Ok(())
}

async fn serve(
    settings: Settings,
    descriptors: descriptors::DescriptorBudget,
    signals: watch::Receiver<Option<Signal>>,
    manager: &Rc<ServiceManager>,
) -> Result<(), ServeError> {
    let mut settings = checked(settings)?;
    let audit_log = start_audit_log(&settings)?;
    let secret_keys = start_secret_keys(&settings)?;
    let Some((tls, recovered, listeners)) = prepare(&mut settings, signals.clone(), manager).await? else {
        tracing::info!("stopped before a cluster had admitted this node");
        return Ok(());
    };
    let (removal, removal_seen) = watch::channel(false);
    let (supersede, superseded_seen) = watch::channel(None);
    let notices = Notices { removal: removal.clone(), supersede };
    let parts = NodeParts::start((&settings, tls.clone(), &audit_log), recovered, notices, listeners.peer)?;
    let (worker, identity) = (&parts.worker, &parts.identity);
    let (stop, stopping) = watch::channel(false);
    if let Some(tls) = &tls {
        keep_certificate(&settings, worker, tls)?;
    }
    let shared = parts.shared_context(&settings, descriptors, stopping);
    let shared = SharedContext { tls, audit_log: audit_log.clone(), secret_keys, ..shared };
    tokio::task::spawn_local(measure_space(shared.space.clone(), settings.data_dir.clone()));
    let clients = shared.clients.clone();
    if !settings.audit_writes.is_empty() {
        worker.audit_writes(AuditedWrites::new(&settings.audit_writes, (audit_log.clone(), clients.clone())));
    }
    let http = Acceptor::split(listeners.http, settings.workers, clients.clone());
    let resp = Acceptors::split(listeners.resp, listeners.resp_cluster, settings.workers, &clients);
    let mut contexts = WorkerContext::split(shared, http, resp).into_iter();
    let own = contexts.next().expect("invariant: there is a context for each worker");
    let spanning = SpanningWatch { counters: own.resp_counters(), told: 0 };
    parts.spawn_periodic(&settings, removal, spanning);
    let mut driving = parts.drive(&settings);
    // A new cluster must require authentication before it serves clients.
    let established = tokio::select! {
        biased;
        established = secure::establish(&settings, worker) => Some(established?),
        () = signalled(signals.clone()) => None,
        failure = &mut driving => return Err(driving_ended(failure, &parts.transport).await),
    };
    if established.is_none() {
        finish(driving, parts).await;
        return Ok(());
    }
    let mut worker_pool = WorkerPool::start(worker, contexts)?;
    let clients = ClientServers { stop, servers: own.serve(worker.clone()) };
    log_start(&settings, &identity.identity());
    manager.keep_informed(worker, worker_pool.take_probes());

    let occasion = async {
        tokio::select! {
            () = signalled(signals) => {}
            () = removed(removal_seen, identity) => {}
        }
        manager.stopping("stopping: others take over its leaderships, and open requests are answered");
    };
    let clients_gone = async {
        let stopped = async {
            stopped(worker, occasion, &settings, clients).await;
            Ok(())
        };
        tokio::try_join!(stopped, worker_pool.finished())
    };
    tokio::select! {
        failure = &mut driving => return Err(driving_ended(failure, &parts.transport).await),
        refused = superseded(superseded_seen, identity) => return Err(refused),
        gone = clients_gone => gone.map_err(ServeError::Worker)?,
    };
    drop(worker_pool);
    audit_log.stop();
    finish(driving, parts).await;
    Ok(())
}

/// Reads the certificate again when its files change, and renews it if the cluster signs it.
fn keep_certificate(settings: &Settings, worker: &Worker, tls: &TlsAcceptor) -> Result<(), ServeError> {
    worker.leaders().use_https();
    tokio::task::spawn_local(reload_certificate(tls.clone(), signal(SignalKind::hangup())?));
    tokio::task::spawn_local(secure::keep_renewed(settings.clone(), worker.clone(), tls.clone()));
    Ok(())
}

/// The settings with what `--secure` implies, if they do not expose the node by mistake.
fn checked(settings: Settings) -> Result<Settings, ServeError> {
    let settings = secure::resolved(settings);
    settings.check_exposure()?;
    settings.check_client_ca()?;
    Ok(settings)
}

/// Stops a node whose client servers have ended.
async fn finish(driving: JoinHandle<WorkerFailure>, parts: NodeParts) {
    driving.abort();
    // Its result is known: it was aborted.
    let _ = driving.await;
    parts.stop().await;
    tracing::info!("stopped");
}

/// Converts the result of a node's driver that ended by itself into an error.
async fn driving_ended(ended: Result<WorkerFailure, JoinError>, transport: &Transport) -> ServeError {
    let failure = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    failed(failure, transport).await
}

/// Opens the audit log, if the settings have one.
fn start_audit_log(settings: &Settings) -> Result<AuditLog, ServeError> {
    let Some(path) = &settings.audit_log else { return Ok(AuditLog::default()) };
    AuditLog::start(path, WallClock::default())
        .map_err(|source| ServeError::AuditLog { path: path.clone(), source })
}

/// Reads the keys for secrets, if the settings have a file of them, and watches the file.
fn start_secret_keys(settings: &Settings) -> Result<SecretKeys, ServeError> {
    let Some(path) = &settings.secret_key_file else { return Ok(SecretKeys::default()) };
    let keys = SecretKeys::open(path)?;
    tokio::task::spawn_local(reload_secret_keys(keys.clone(), signal(SignalKind::hangup())?));
    Ok(keys)
}

/// What this node's disk holds, and under which identity this process uses it.
struct Recovered {
    disk: FsDisk,
    opened: Opened<FsDisk>,
    identity: Rc<IdentityStore>,
    /// Distinguishes this process from earlier and later ones of this node.
    instance: Uuid,
    seed: u64,
}

/// Opens the certificate in the directory `tls_dir`, if that is set.
fn open_tls(settings: &Settings) -> Result<Option<TlsAcceptor>, TlsError> {
    let Some(directory) = settings.tls_dir.clone() else { return Ok(None) };
    let paths = TlsPaths { directory, client_ca: settings.client_ca.clone() };
    TlsAcceptor::open(paths, SystemTime::now()).map(Some)
}

/// Gets a certificate, binds the ports, identifies the node, reads its disk, and then listens. The
/// settings then have the ports that the system chose. `None` if a signal came before a cluster
/// admitted the node.
async fn prepare(
    settings: &mut Settings,
    signals: watch::Receiver<Option<Signal>>,
    manager: &ServiceManager,
) -> Result<Option<(Option<TlsAcceptor>, Recovered, Listeners)>, ServeError> {
    // Check the given files before the data directory is created.
    settings.client_ca.as_deref().map(check_client_ca_file).transpose()?;
    let given_tls = if settings.secure { None } else { open_tls(settings)? };
    let disk = FsDisk::open(&settings.data_dir)?;
    manager.status(if identity::is_joining(&disk, settings).map_err(IdentityError::from)? {
        "starting: waits until a member of the cluster admits this node"
    } else {
        "starting"
    });
    // Before anything is made in the directory: a start that fails here leaves no authority behind.
    let mut ports = Ports::bind(settings).await?;
    ports.fill_in(settings)?;
    let settings = &*settings;
    tokio::select! {
        biased;
        provided = secure::provide(settings, &disk) => provided?,
        () = signalled(signals.clone()) => return Ok(None),
    }
    let tls = if settings.secure { open_tls(settings)? } else { given_tls };
    if identity::is_founding(&disk, settings).map_err(IdentityError::from)? {
        // Another process may have bound the same ports; only the first one to listen gets them.
        ports = ports.listening()?;
    }
    let mut identity = tokio::select! {
        biased;
        identity = identity::identify(&disk, settings, tls.as_ref()) => identity?,
        () = signalled(signals) => return Ok(None),
    };
    // A fresh seed for each start: read contexts must not repeat, and jitter should not.
    let instance = Uuid::new_v4();
    let (seed, _) = instance.as_u64_pair();
    manager.status("starting: reads the log");
    let mut opened =
        recovery::open(disk.clone(), WalOptions { begun: identity.has_log, ..WalOptions::new(seed) })?;
    log_recovery(&opened.report);
    if settings.force_new_cluster().is_some() {
        identity = leave_cluster(&disk, &mut opened, identity)?;
    }
    let identity = IdentityStore::begin(disk.clone(), identity).map_err(IdentityError::from)?;
    let identity = Rc::new(identity);
    if settings.force_new_cluster().is_some() {
        identity.forget_others().await.map_err(IdentityError::from)?;
    }
    let listeners = ports.listen()?;
    Ok(Some((tls, Recovered { disk, opened, identity, instance, seed }, listeners)))
}

/// The parts of a running node, apart from its servers of clients.
struct NodeParts {
    worker: Worker,
    log: Rc<DiskThread>,
    snapshots: Rc<SnapshotThread>,
    transport: Rc<Transport>,
    identity: Rc<IdentityStore>,
    backup: Arc<BackupSource>,
    pub_sub: Arc<PubSub>,
    tracer: Tracer,
    exporter: Option<Exporter>,
}

impl NodeParts {
    /// Starts the threads of the disk, the node, and the links to its peers.
    fn start(
        (settings, tls, audit_log): (&Settings, Option<TlsAcceptor>, &AuditLog),
        recovered: Recovered,
        notices: Notices,
        peers: TcpListener,
    ) -> Result<NodeParts, ServeError> {
        let Recovered { disk, opened, identity, instance, seed } = recovered;
        let (tracer, exporter) = spans::start(settings.traces.as_ref(), resource(&identity.identity()))?;
        let reports = Arc::new(DiskReports::default());
        let (log_report, snapshot_report) = (reports.clone(), reports.clone());
        let log =
            DiskThread::start(opened.log, settings.sync, Box::new(move |report| log_report.report(report)))?;
        let readers = opened.snapshots.readers();
        let snapshots =
            SnapshotThread::start(opened.snapshots, SnapshotPaces::default(), log.counters(), move |done| {
                snapshot_report.snapshot(done)
            })?;
        let node = Node::new(node_options(settings, &identity.identity(), seed), opened.shards);
        let worker = Worker::new(node, reports);
        let own = own_identity(&identity.identity(), instance);
        let options = transport_options(settings, (&worker, &identity), own, notices);
        let options = TransportOptions { tls, audit_log: audit_log.clone(), ..options };
        let transport = Rc::new(Transport::start(peers, options));
        let backup = {
            let own = identity.identity();
            Arc::new(BackupSource::new(disk, readers, own.cluster_id, own.node))
        };
        let (log, snapshots) = (Rc::new(log), Rc::new(snapshots));
        let pub_sub = Arc::default();
        Ok(NodeParts { worker, log, snapshots, transport, identity, backup, pub_sub, tracer, exporter })
    }

    /// What the servers of clients use of the node, on all workers.
    fn shared_context(
        &self,
        settings: &Settings,
        descriptors: descriptors::DescriptorBudget,
        stopping: watch::Receiver<bool>,
    ) -> SharedContext {
        SharedContext {
            workers: settings.workers,
            descriptors,
            addresses: addresses(settings),
            allowed_hosts: AllowedHosts::new(settings.http_hosts()),
            warnings: warnings(settings),
            insecure_listeners: insecure_listeners(settings),
            protected_mode: protected_mode(settings),
            cluster: self.identity.identity().cluster_id,
            disk_error: self.worker.disk_error(),
            clients: clients::Clients::new(ClientDescriptors::new(descriptors.clients_max)),
            turns: self.worker.turn_gauges(),
            disk: self.log.counters(),
            history: Arc::default(),
            snapshots: self.snapshots.counters(),
            transport: self.transport.counters(),
            refusals: self.transport.refusals(),
            backup: self.backup.clone(),
            offload: Offload::default(),
            scripts: Scripts::default(),
            redirects: Arc::default(),
            pub_sub: self.pub_sub.clone(),
            tls: None,
            memory: Memory::new(settings.memory_limit),
            throttle: Arc::default(),
            audit_log: AuditLog::default(),
            secret_keys: SecretKeys::default(),
            tracer: self.tracer.clone(),
            space: DiskSpace::default(),
            stopping,
        }
    }

    /// Starts what happens regularly: ticks, log lines about the cluster, and the record of hosts,
    /// which reports to `removal`.
    fn spawn_periodic(&self, settings: &Settings, removal: watch::Sender<bool>, spanning: SpanningWatch) {
        let slow = self.log.watch(settings.timing().election_ticks);
        let log = LogWatch { counters: self.log.counters(), slow };
        let times = (settings.tick(), settings.request_timeout);
        tokio::task::spawn_local(tick(self.worker.clone(), times, log, spanning));
        let period = settings.election_timeout;
        tokio::task::spawn_local(log_changes(self.worker.clone(), period));
        tokio::task::spawn_local(remember_hosts(self.worker.clone(), self.identity.clone(), removal, period));
    }

    /// Drives the node in a separate task, scheduled after the tasks that have work for it. In the
    /// `select!` that waits for the end, each drive would poll all the rare events there again.
    fn drive(&self, settings: &Settings) -> JoinHandle<WorkerFailure> {
        let worker = self.worker.clone();
        let sinks = ActionSink {
            disk: VersionGate::new(self.log.clone(), self.snapshots.clone(), self.identity.clone()),
            transport: self.transport.clone(),
            pub_sub: self.pub_sub.clone(),
            slow: SlowRequestLog::new(settings.tick()),
            consensus: ConsensusLog::new(self.identity.identity().node),
            spans: NodeSpans::new(self.tracer.clone()),
        };
        tokio::task::spawn_local(async move { worker.run(sinks).await })
    }

    /// Flushes the peers' queues, and then lets the threads of the disk and of traces finish.
    async fn stop(self) {
        let NodeParts { log, snapshots, transport, exporter, .. } = self;
        transport.stop().await;
        drop(transport);
        Rc::into_inner(log).expect("invariant: the worker has let go of it").stop();
        Rc::into_inner(snapshots).expect("invariant: the worker has let go of it").stop();
        if let Some(exporter) = exporter {
            exporter.stop();
        }
    }
}

/// Makes this node the only member of a new cluster, in its identity and in all its logs. The other
/// members are left out, also lost ones that this node may not know of.
fn leave_cluster(
    disk: &FsDisk,
    opened: &mut Opened<FsDisk>,
    identity: Identity,
) -> Result<Identity, ServeError> {
    let identity = identity::leave_others(disk, identity).map_err(IdentityError::from)?;
    let founders = identity.founders.len() as u64;
    let highest = identity.hosts.keys().map(|node| node.0).fold(founders.max(identity.node.0), u64::max);
    let numbers = (1..=highest + limits::HOSTS_MAX as u64).map(NodeId);
    let lost: Vec<NodeId> = numbers.filter(|&node| node != identity.node).collect();
    let (version, now) = (identity.version, WallClock::default().now());
    let survivor =
        Survivor { node: identity.node, lost: &lost, founding: &identity.founding(), version, now };
    let records = force_new_cluster(&mut opened.shards, survivor);
    let batch = WalBatch { sequence: WalSequence(0), records, released: vec![] };
    opened.log.append(&[batch]).and_then(|()| opened.log.sync()).map_err(ServeError::Log)?;
    Ok(identity)
}

/// Returns once the process is asked to stop.
async fn signalled(mut signals: watch::Receiver<Option<Signal>>) {
    // The sender lives as long as the process.
    let _ = signals.wait_for(Option::is_some).await;
}

/// Returns once this node is known to be removed from its cluster and its directory is marked so.
async fn removed(mut removal: watch::Receiver<bool>, identity: &IdentityStore) {
    if removal.wait_for(|removed| *removed).await.is_err() {
        // The sender is gone, so no removal can be reported any more.
        std::future::pending().await
    }
    tracing::warn!("this node was removed from the cluster: stopping");
    if let Err(error) = identity.mark_removed().await {
        tracing::error!(%error, "the data directory could not be marked as that of a removed node");
    }
}

/// Logs why the node cannot continue. On a contradiction, lets the transport send what is queued,
/// so that the other nodes learn of it.
async fn failed(failure: WorkerFailure, transport: &Transport) -> ServeError {
    match failure {
        WorkerFailure::Log(error) => {
            tracing::error!(reason = %error, "the write-ahead log failed: stopping, nothing more is acknowledged");
            ServeError::Log(error)
        }
        WorkerFailure::Contradiction(contradiction) => {
            tracing::error!(
                shard = contradiction.shard.0, peer = contradiction.peer.0, index = contradiction.index.0,
                reason = %contradiction, "two replicas contradict each other: stopping, nothing more is acknowledged"
            );
            transport.stop().await;
            ServeError::Contradiction(contradiction)
        }
    }
}

/// Returns once a peer has permanently refused this process and its directory is marked so.
async fn superseded(
    mut seen: watch::Receiver<Option<(NodeId, HandshakeRefusal)>>,
    identity: &IdentityStore,
) -> ServeError {
    let refused = seen.wait_for(Option::is_some).await.ok().and_then(|refused| *refused);
    let Some((by, refusal)) = refused else {
        // The sender is gone, so no refusal can be reported any more.
        return std::future::pending().await;
    };
    tracing::error!(peer = by.0, reason = %refusal, "this process may not act as its node: stopping");
    if let Err(error) = identity.mark_superseded().await {
        tracing::error!(%error, "the data directory could not be marked as an old copy: do not start it again");
    }
    ServeError::Superseded { by, refusal }
}

/// How traces name this node.
fn resource(identity: &Identity) -> spans::Resource {
    spans::Resource { node: identity.node.0, instance: identity.host_uuid.to_string() }
}

/// Senders for what peers report about this node.
struct Notices {
    removal: watch::Sender<bool>,
    supersede: watch::Sender<Option<(NodeId, HandshakeRefusal)>>,
}

struct ClientServers {
    /// Stops the servers of all workers.
    stop: watch::Sender<bool>,
    servers: Servers,
}

/// Waits for `occasion`, the reason to stop, then until leaderships are transferred and clients are
/// served.
async fn stopped(
    worker: &Worker,
    occasion: impl Future<Output = ()>,
    settings: &Settings,
    clients: ClientServers,
) {
    occasion.await;
    worker.tell(Event::Retire);
    let handover = async {
        while leads_with_followers(worker).await {
            tokio::time::sleep(HANDOVER_POLL_INTERVAL).await;
        }
    };
    if tokio::time::timeout(settings.election_timeout * HANDOVER_ELECTION_TIMEOUTS, handover).await.is_err() {
        tracing::warn!("not every leadership was transferred in time; the other nodes will elect");
    }
    clients.stop.send_replace(true);
    clients.servers.finished().await;
}

/// Whether this node leads a shard that another node could lead.
async fn leads_with_followers(worker: &Worker) -> bool {
    let status = worker.status().await;
    status.links.iter().any(|(_, up)| *up) && status.shards.iter().any(|shard| shard.leads)
}

fn log_start(settings: &Settings, identity: &Identity) {
    let Settings { listen, advertise, .. } = settings;
    tracing::info!(
        node = identity.node.0, cluster = %identity.cluster_id, host = %identity.host_uuid, start = identity.boots,
        http = %listen.http, resp = %listen.resp,
        resp_cluster = listen.resp_cluster.as_ref().map_or(RESP_CLUSTER_OFF, Address::as_str), peer = %listen.peer,
        advertise_http = %advertise.http, advertise_resp = %advertise.resp, advertise_peer = %advertise.peer,
        workers = settings.workers, memory_limit_bytes = settings.memory_limit, data = %settings.data_dir.display(), "serving"
    );
}

fn log_recovery(report: &StorageRecoveryReport) {
    for damaged in &report.damaged {
        tracing::warn!(%damaged, "removed a damaged snapshot; the state was recovered without it");
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
