//! The checkers: one module for each property. None of them trusts the store.
//!
//! Two kinds. *Online* checkers observe the nodes during the run: [`agreement`], [`availability`],
//! [`leaders`], [`replicas`], [`replies`]. *Offline* checkers judge the finished [`History`], which
//! contains only what clients of the shipped binary could observe: [`linearizability`],
//! [`staleness`], [`durability`], [`lists`], [`scans`]; they share [`lineage`], which orders the
//! mutations of each key by version. [`pipelines`] judges what the order of one connection's
//! commands promises. [`operations`] also uses the log, for properties that a history alone does
//! not show. [`config`] judges configuration by its revisions, and [`lives`] judges namespaces that
//! are created and deleted, by the log. [`backups`] judges each backup when it is restored.
//!
//! Each has a test with a violation, because a checker that cannot fail proves nothing.

pub mod agreement;
pub mod availability;
pub mod backups;
pub mod config;
pub mod durability;
pub mod leaders;
pub mod lineage;
pub mod linearizability;
pub mod lists;
pub mod lives;
pub mod operations;
pub mod pipelines;
mod replay;
pub mod replicas;
pub mod replies;
pub mod scans;
pub mod staleness;

#[cfg(test)]
mod fixture;

use tidelock_core::types::Version;

use crate::history::History;
use crate::history::Iteration;
use crate::pipelines::ConnectionRecord;

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

/// What is known of a finished run.
#[derive(Clone, Copy)]
pub struct FinishedRun<'a> {
    /// The requests and replies of clients.
    pub history: &'a History,
    /// The finished iterations over all keys.
    pub iterations: &'a [Iteration],
    /// What each connection of a client that pipelines sent and received.
    pub connections: &'a [ConnectionRecord],
    /// What the cluster committed.
    pub ledger: &'a operations::Ledger,
}

/// Judges a finished run with every offline checker. `data_shards` determines which keys share a
/// shard; `None` if slots move, because then no keys share one for the whole run.
pub fn judge(run: FinishedRun<'_>, data_shards: Option<u64>) -> Result<(), Violation> {
    let history = run.history;
    pipelines::check_replies(&run)?;
    operations::check(history, run.ledger)?;
    let lineages = lineage::lineages(history)?;
    durability::check(history, &lineages)?;
    linearizability::check(&lineages)?;
    staleness::check(&lineages)?;
    lists::check(history, &lineages, data_shards)?;
    scans::check(run.iterations, &lineages)?;
    pipelines::check(&run, &lineages, data_shards)
}

/// A key and an observation of it, for messages.
fn describe(key: &[u8], version: Version) -> String {
    format!("key \"{}\" at version {version}", key.escape_ascii())
}
