//! The checkers: one module for each property. None of them trusts the store.
//!
//! Two kinds. *Online* checkers are told everything that happens, as it happens; [`online`] has
//! their list. *Offline* checkers judge the finished [`History`], which contains only what clients
//! of the shipped binary could observe: [`linearizability`], [`staleness`], [`durability`],
//! [`lists`], [`scans`], [`flushes`]; they share [`lineage`], which orders the mutations of each
//! key by version, and [`ownership`], which says in which log a key was at which time.
//! [`placement`] judges the healed cluster, and [`admissions`] the hosts that join.
//! [`pipelines`] judges what the order of one connection's commands promises. [`operations`] also
//! uses the log, for properties that a history alone does not show. [`config`] judges configuration
//! by its revisions, and [`lives`] judges namespaces that are created and deleted, by the log.
//! [`key_watches`] judges what watchers of keys received, [`leases`] leases, locks and fences,
//! [`scripts`] that no script overwrites the effect of another. [`backups`] judges each backup when
//! it is restored. [`permissions`] and [`audit`] judge runs with principals.
//!
//! Each has a test with a violation, because a checker that cannot fail proves nothing.

pub mod admissions;
pub mod agreement;
pub mod audit;
pub mod availability;
pub mod backups;
pub mod config;
pub mod division;
pub mod durability;
pub mod flushes;
pub mod key_watches;
pub mod leaders;
pub mod leases;
pub mod lineage;
pub mod linearizability;
pub mod lists;
pub mod lives;
mod namespace_watches;
pub mod online;
pub mod operations;
pub mod ownership;
pub mod permissions;
pub mod pipelines;
pub mod placement;
pub mod replacements;
mod replay;
pub mod replicas;
pub mod replies;
pub mod scans;
pub mod scripts;
pub mod spans;
pub mod staleness;
pub mod versions;

#[cfg(test)]
mod fixture;

use std::cell::OnceCell;

use tidelock_core::types::Version;

use crate::history::{CounterRun, History, ImportedDocument, Iteration};
use crate::key_watcher::KeyWatchingClient;
use crate::pipelines::ConnectionRecord;
use crate::watcher::WatchingClient;
use lineage::Lineages;
use ownership::SlotOwnership;

/// A property that a run violated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{checker}: {message}")]
pub struct Violation {
    /// Name of the checker that found it.
    pub checker: &'static str,
    /// What the checker expected, and what it saw instead.
    pub message: String,
}

impl Violation {
    /// Creates a violation that `checker` found.
    pub fn new(checker: &'static str, message: String) -> Violation {
        Violation { checker, message }
    }
}

/// A property that is judged when a run has ended.
pub trait Checker {
    /// Judges the run.
    ///
    /// # Errors
    /// The first violation of the property.
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation>;
}

/// Every checker of finished runs, in the order in which they judge: those first whose violations
/// say most about the cause.
const CHECKERS: &[&dyn Checker] = &[
    &pipelines::ConnectionReplies,
    &leases::Leases,
    &scripts::Scripts,
    &operations::OperationsByLog,
    &durability::Durability,
    &flushes::Flushes,
    &linearizability::Linearizability,
    &staleness::Staleness,
    &lists::Lists,
    &scans::Scans,
    &pipelines::ConnectionOrder,
    &config::Configuration,
    &lives::NamespaceLives,
    &key_watches::KeyWatches,
];

/// What is known of a finished run.
pub struct FinishedRun<'a> {
    /// The requests and replies of clients.
    pub history: &'a History,
    /// The finished iterations over all keys.
    pub iterations: &'a [Iteration],
    /// What each connection of a client that pipelines sent and received.
    pub connections: &'a [ConnectionRecord],
    /// What each client received that watches configuration.
    pub watchers: &'a [WatchingClient],
    /// What happened to each client that watches keys.
    pub key_watchers: &'a [KeyWatchingClient],
    /// Imports of configuration that succeeded.
    pub imports: &'a [ImportedDocument],
    /// Runs of scripts that were answered.
    pub counter_runs: &'a [CounterRun],
    /// What the cluster committed.
    pub ledger: &'a operations::Ledger,
    /// Number of data shards at the founding.
    pub data_shards: u64,
    /// Whether hosts ran different releases.
    pub is_mixed: bool,
    /// What several checkers share, once one has asked for it.
    pub lineages: OnceCell<Result<Lineages, Violation>>,
    /// The same, of the owners of slots.
    pub ownership: OnceCell<Result<SlotOwnership, Violation>>,
}

impl FinishedRun<'_> {
    /// The mutations of each key, in order.
    ///
    /// # Errors
    /// When no order of mutations explains the replies.
    pub fn lineages(&self) -> Result<&Lineages, Violation> {
        self.lineages.get_or_init(|| lineage::lineages(self.history)).as_ref().map_err(Violation::clone)
    }

    /// Which shard owned which slots.
    ///
    /// # Errors
    /// When slots had two owners at a time.
    pub fn ownership(&self) -> Result<&SlotOwnership, Violation> {
        let replay = || SlotOwnership::of(self.ledger, self.data_shards);
        self.ownership.get_or_init(replay).as_ref().map_err(Violation::clone)
    }
}

/// Judges a finished run with every checker.
///
/// # Errors
/// The first violation.
pub fn judge(run: &FinishedRun<'_>) -> Result<(), Violation> {
    CHECKERS.iter().try_for_each(|checker| checker.judge(run))
}

/// A key and an observation of it, for messages.
fn describe(key: &[u8], version: Version) -> String {
    format!("key \"{}\" at version {version}", key.escape_ascii())
}
