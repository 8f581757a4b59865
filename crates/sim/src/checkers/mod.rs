//! What must hold, each property in its own room, and none of them trusting the store.
//!
//! Two kinds. *Online* checkers look at the nodes while the run goes on: [`agreement`], [`availability`], [`leaders`],
//! [`replicas`], [`replies`]. *Offline* ones judge the finished [`History`], which is all that a client
//! of the shipped binary could see: [`linearizability`], [`staleness`], [`durability`], [`lists`], [`scans`]; they share
//! [`lineage`], which orders what happened to each key by version. [`operations`] judges with the log in hand what a history
//! alone does not tell, [`config`] judges configuration by its revisions, [`lives`] namespaces that come and go by the log.
//!
//! Each has a test that shows it a violation, because a checker that cannot fail proves nothing.

pub mod agreement;
pub mod availability;
pub mod config;
pub mod durability;
pub mod leaders;
pub mod lineage;
pub mod linearizability;
pub mod lists;
pub mod lives;
pub mod operations;
pub mod replicas;
pub mod replies;
pub mod scans;
pub mod staleness;

#[cfg(test)]
mod fixture;

use tidelock_core::types::Version;

use crate::history::History;
use crate::scanning::Iteration;

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{checker}: {message}")]
pub struct Violation {
    /// The checker that saw it.
    pub checker: &'static str,
    /// What it saw.
    pub message: String,
}

impl Violation {
    /// A violation that `checker` saw.
    pub fn new(checker: &'static str, message: String) -> Violation {
        Violation { checker, message }
    }
}

/// Judges a finished history with every offline checker; `data_shards` tells which keys share a state; `None`: none
/// do for long, because slots move.
pub fn judge(
    (history, iterations): (&History, &[Iteration]),
    ledger: &operations::Ledger,
    data_shards: Option<u64>,
) -> Result<(), Violation> {
    operations::check(history, ledger)?;
    let lineages = lineage::lineages(history)?;
    durability::check(history, &lineages)?;
    linearizability::check(&lineages)?;
    staleness::check(&lineages)?;
    lists::check(history, &lineages, data_shards)?;
    scans::check(iterations, &lineages)
}

/// A key and what is seen of it, for messages.
fn describe(key: &[u8], version: Version) -> String {
    format!("key \"{}\" at version {version}", key.escape_ascii())
}
