//! What a running node does periodically: ticks, log lines about the cluster, and the record of
//! hosts.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use tidelock_core::event::Event;
use tidelock_core::storage::LogHeld;
use tidelock_core::types::ShardId;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::clock::Ticker;
use crate::counters::PerWorker;
use crate::disk::{DiskSpace, SlowDiskWatch};
use crate::identity_store::IdentityStore;
use crate::metrics::{DiskCounters, RespCounters};
use crate::secrets::{KeyReload, SecretKeys};
use crate::status_log::{Change, StatusLog};
use crate::store::Store;
use crate::tls::{EXPIRY_WARNING, Reload, TlsAcceptor};
use crate::worker::Worker;

/// How often per election timeout changes of the cluster's status are logged.
const CHECKS_PER_ELECTION_TIMEOUT: u32 = 10;

/// What each tick looks at on the log's disk.
pub(super) struct LogWatch {
    pub(super) counters: DiskCounters,
    pub(super) slow: SlowDiskWatch,
}

/// The counters of the servers of the Redis protocol on all workers, of which each tick passes on
/// the transactions that span slots.
pub(super) struct SpanningWatch {
    pub(super) counters: PerWorker<RespCounters>,
    /// How many the node knows.
    pub(super) told: u64,
}

impl SpanningWatch {
    fn tick(&mut self) -> Option<Event> {
        let total = self.counters.sum(|worker| worker.cross_slot_transactions.get());
        let new = total - std::mem::replace(&mut self.told, total);
        (new > 0).then_some(Event::SpanningTransactions(new))
    }
}

/// Passes ticks, changes of the log's size and a slow disk to the node. Requests that have waited
/// for their turn for longer than `timeout` are refused.
pub(super) async fn tick(
    worker: Worker,
    (period, timeout): (Duration, Duration),
    mut log: LogWatch,
    mut spanning: SpanningWatch,
) {
    let mut ticker = Ticker::start(period);
    let mut held = LogHeld::default();
    loop {
        let ticks = ticker.ticks().await;
        for _ in 0..ticks {
            if let Some(slow) = log.slow.tick() {
                worker.set_disk_slow(slow);
            }
            worker.tell(Event::Tick);
        }
        if let Some(event) = spanning.tick() {
            worker.tell(event);
        }
        worker.tick_turns(timeout);
        worker.show_leaders();
        let now = log.counters.held();
        if std::mem::replace(&mut held, now) != now {
            worker.tell(Event::LogHeld(now));
        }
    }
}

/// How often the files of the certificate and of the keys for secrets are looked at.
const FILES_INTERVAL: Duration = Duration::from_secs(10);

/// Uses the certificate anew whenever its files have changed, and warns before it expires. Looks at
/// the files regularly, and at once after SIGHUP.
pub(super) async fn reload_certificate(tls: TlsAcceptor, mut hangups: tokio::signal::unix::Signal) {
    let mut interval = tokio::time::interval(FILES_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut refused, mut warned) = (None, false);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = hangups.recv() => tracing::info!("SIGHUP: looking at the certificate"),
        }
        // On another thread: the file system of the certificate may hang, and the node must not.
        let reloading = {
            let tls = tls.clone();
            tokio::task::spawn_blocking(move || tls.reload(SystemTime::now()))
        };
        match reloading.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            Reload::Unchanged => refused = None,
            Reload::Replaced => {
                (refused, warned) = (None, false);
                tracing::info!(
                    expires_unix_s = tls.expires_unix_s(),
                    "clients and other nodes are shown the new certificate"
                );
            }
            Reload::Kept(reason) => {
                let reason = reason.to_string();
                if refused.as_ref() != Some(&reason) {
                    tracing::error!(reason, "the new certificate is not used; the old one stays in place");
                    refused = Some(reason);
                }
            }
        }
        let left_s = tls.seconds_left(SystemTime::now());
        if left_s <= EXPIRY_WARNING.as_secs().cast_signed() && !std::mem::replace(&mut warned, true) {
            tracing::warn!(
                hours = left_s / 3600,
                "the certificate of this node expires soon, or has expired"
            );
        }
    }
}

/// Uses the keys for secrets anew whenever their file has changed. Looks at the file regularly, and
/// at once after SIGHUP.
pub(super) async fn reload_secret_keys(keys: SecretKeys, mut hangups: tokio::signal::unix::Signal) {
    let mut interval = tokio::time::interval(FILES_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refused = None;
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = hangups.recv() => tracing::info!("SIGHUP: looking at the keys for secrets"),
        }
        // On another thread: the file system of the keys may hang, and the node must not.
        let reloading = {
            let keys = keys.clone();
            tokio::task::spawn_blocking(move || keys.reload())
        };
        match reloading.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            KeyReload::Unchanged => refused = None,
            KeyReload::Replaced => {
                refused = None;
                let ids = keys.keyring().map(|keyring| keyring.ids().collect::<Vec<_>>().join(","));
                tracing::info!(ids, "the changed keys for secrets are used; the first one seals");
            }
            KeyReload::Kept(reason) => {
                let reason = reason.to_string();
                if refused.as_ref() != Some(&reason) {
                    tracing::error!(
                        reason,
                        "the changed keys for secrets are not used; the old ones stay in place"
                    );
                    refused = Some(reason);
                }
            }
        }
    }
}

/// How often the free space of the data directory is measured. Metrics are seldom read more often.
const SPACE_INTERVAL: Duration = Duration::from_secs(5);

/// Measures the space of the data directory regularly.
pub(super) async fn measure_space(space: DiskSpace, directory: PathBuf) {
    let mut interval = tokio::time::interval(SPACE_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has_failed = false;
    loop {
        interval.tick().await;
        // On another thread: the file system may hang, and the node must not.
        let measuring = {
            let (space, directory) = (space.clone(), directory.clone());
            tokio::task::spawn_blocking(move || space.measure(&directory))
        };
        match measuring.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            Ok(()) => has_failed = false,
            // Later errors repeat every few seconds while the cause lasts.
            Err(error) if !std::mem::replace(&mut has_failed, true) => {
                tracing::warn!(%error, "the free space of the data directory is not known");
            }
            Err(_) => {}
        }
    }
}

/// Logs changes of the cluster's status: shards without a leader, and peers that do not answer.
pub(super) async fn log_changes(worker: Worker, election_timeout: Duration) {
    let mut interval = tokio::time::interval(election_timeout / CHECKS_PER_ELECTION_TIMEOUT);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut log = StatusLog::new(election_timeout);
    loop {
        interval.tick().await;
        let status = worker.status().await;
        log.look(&status, Instant::now()).iter().for_each(Change::log);
    }
}

/// Updates the control file with the hosts of the registry and with their starts, and notices when
/// the registry no longer contains this host.
pub(super) async fn remember_hosts(
    worker: Worker,
    store: Rc<IdentityStore>,
    removal: watch::Sender<bool>,
    period: Duration,
) {
    let mut interval = tokio::time::interval(period);
    let mut has_failed = false;
    loop {
        tokio::select! {
            _ = interval.tick() => {
                let status = worker.status().await;
                if status.removed {
                    removal.send_replace(true);
                }
                // Without a leader, after a restart, the registry may be older than what is stored.
                if status.shards.iter().any(|shard| shard.shard == ShardId::PRIME && shard.leader.is_some()) {
                    store.remember(worker.known_hosts());
                }
            }
            () = store.changed(), if !has_failed => {}
        }
        match store.save().await {
            Ok(()) => has_failed = false,
            // Later errors repeat every period while the cause lasts.
            Err(error) if !std::mem::replace(&mut has_failed, true) => {
                tracing::warn!(%error, "the control file could not be updated; trying again");
            }
            Err(_) => {}
        }
    }
}
