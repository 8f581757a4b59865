//! The way of disk work to the disk's threads, which waits while the data directory records a new
//! version of the cluster.
//!
//! Invariant: nothing of a version is written to the directory before the control file has recorded
//! that version durably. A release that does not support it then refuses the directory, instead of
//! meeting entries that it cannot read.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tidelock_core::storage::WalBatch;
use tidelock_core::storage::snapshot::SnapshotTask;
use tidelock_core::version::ClusterVersion;

use crate::disk::{DiskThread, SnapshotThread};
use crate::identity_store::IdentityStore;

/// Interval between attempts to write the control file, for example on a full disk.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Passes work on to the disk's threads, or keeps it while a version is being recorded.
pub(super) struct VersionGate {
    log: Rc<DiskThread>,
    snapshots: Rc<SnapshotThread>,
    identity: Rc<IdentityStore>,
    /// What waits for the control file, in order; `None` while nothing has to. Bounded by what the
    /// node has in flight: replies and acknowledgements wait for the log.
    waiting: RefCell<Option<VecDeque<DiskWork>>>,
}

enum DiskWork {
    Batch(WalBatch),
    Task(SnapshotTask),
}

impl VersionGate {
    pub(super) fn new(
        log: Rc<DiskThread>,
        snapshots: Rc<SnapshotThread>,
        identity: Rc<IdentityStore>,
    ) -> Rc<VersionGate> {
        Rc::new(VersionGate { log, snapshots, identity, waiting: RefCell::default() })
    }

    pub(super) fn persist(&self, batch: WalBatch) {
        self.pass(DiskWork::Batch(batch));
    }

    pub(super) fn file(&self, task: SnapshotTask) {
        self.pass(DiskWork::Task(task));
    }

    /// Holds all later work until the directory has recorded a version. The disk may take long for
    /// it or refuse; the event loop goes on meanwhile.
    pub(super) fn record(self: &Rc<Self>, version: ClusterVersion) {
        tracing::info!(
            %version,
            "the cluster writes a new version: releases that do not support it can no longer use this data directory"
        );
        let (gate, identity) = (Rc::downgrade(self), self.identity.clone());
        identity.record_version(version);
        if self.waiting.borrow().is_some() {
            // The task that waits already stores the newest version that is known.
            return;
        }
        *self.waiting.borrow_mut() = Some(VecDeque::new());
        tokio::task::spawn_local(async move {
            while let Err(error) = identity.save_version().await {
                tracing::warn!(%error, "the control file could not be updated, and the log waits for it; trying again");
                tokio::time::sleep(RETRY_AFTER).await;
            }
            // The node may have stopped meanwhile.
            if let Some(gate) = gate.upgrade() {
                gate.open();
            }
        });
    }

    fn open(&self) {
        let waiting = self.waiting.take();
        waiting.into_iter().flatten().for_each(|work| self.submit(work));
    }

    fn pass(&self, work: DiskWork) {
        if let Some(waiting) = &mut *self.waiting.borrow_mut() {
            waiting.push_back(work);
            return;
        }
        self.submit(work);
    }

    fn submit(&self, work: DiskWork) {
        match work {
            DiskWork::Batch(batch) => self.log.submit(batch),
            DiskWork::Task(task) => self.snapshots.submit(task),
        }
    }
}
