//! The identity of a running node: what it learns about itself and its peers, and how that is
//! stored in the control file.
//!
//! A write of the file waits for syncs, and a disk may take seconds for one or never return. The
//! worker that learns a fact drives shards, heartbeats and clients, so it only records the fact in
//! memory. Another thread writes the file, one write at a time, each with everything known at its
//! start.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;

use tidelock_core::starts::KnownStart;
use tidelock_core::storage::control_file::{self, ControlFileError, Identity, KnownHost};
use tidelock_core::types::NodeId;
use tidelock_core::version::ClusterVersion;
use tokio::sync::{Mutex, Notify};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::disk::FsDisk;

/// The identity of a running node, in memory and on its disk.
#[derive(Debug)]
pub struct IdentityStore {
    disk: FsDisk,
    /// What the node knows, possibly newer than the file.
    identity: RefCell<Identity>,
    /// The contents of the file. Locked while it is written.
    written: Mutex<Identity>,
    changed: Notify,
}

impl IdentityStore {
    /// For a node whose log is open. Records in the control file that a log exists: from then on a
    /// directory without one is refused. Without its log a node has forgotten its votes and what it
    /// acknowledged, and must not take part under its old number. Called before the node serves, so
    /// it writes the file at once.
    ///
    /// # Errors
    /// When the control file cannot be written.
    pub fn begin(disk: FsDisk, known: Identity) -> Result<Self, ControlFileError> {
        let identity = Identity { has_log: true, ..known.clone() };
        if identity != known {
            control_file::store(&disk, &identity)?;
        }
        let written = Mutex::new(identity.clone());
        Ok(IdentityStore { disk, identity: RefCell::new(identity), written, changed: Notify::new() })
    }

    /// What is known, whether stored or still to be written by [`IdentityStore::save`]. Do not hold
    /// it across an `.await`.
    pub fn identity(&self) -> Ref<'_, Identity> {
        self.identity.borrow()
    }

    /// The uuid of the host that last used a node's number. It comes from the registry or, without
    /// an entry there, from a handshake.
    pub fn known_host(&self, node: NodeId) -> Option<Uuid> {
        let identity = self.identity();
        let registered = identity.hosts.get(&node).map(|host| host.uuid);
        registered.or_else(|| identity.starts.get(&node).map(|known| known.host))
    }

    /// Adds hosts, and replaces those that are known differently.
    pub fn remember(&self, hosts: BTreeMap<NodeId, KnownHost>) {
        self.change(|identity| identity.hosts.extend(hosts));
    }

    /// Records the latest start of a peer.
    pub fn remember_start(&self, node: NodeId, start: KnownStart) {
        self.change(|identity| {
            identity.starts.insert(node, start);
        });
    }

    /// Records the newest version of anything that will be in the directory. It is not on disk
    /// before [`IdentityStore::save_version`] returns.
    pub fn record_version(&self, version: ClusterVersion) {
        self.change(|identity| identity.version = identity.version.max(version));
    }

    /// Writes the file until it has the newest recorded version.
    ///
    /// # Errors
    /// As [`IdentityStore::save`].
    pub async fn save_version(&self) -> Result<(), ControlFileError> {
        loop {
            self.save().await?;
            let known = self.identity().version;
            if self.written.lock().await.version >= known {
                return Ok(());
            }
        }
    }

    /// Forgets all other hosts, which belong to the cluster that this node has left.
    ///
    /// # Errors
    /// As [`IdentityStore::save`].
    pub async fn forget_others(&self) -> Result<(), ControlFileError> {
        self.change(|identity| {
            identity.hosts.clear();
            identity.starts.clear();
        });
        self.save().await
    }

    /// Marks the directory as an old copy or a clone: later starts are refused.
    ///
    /// # Errors
    /// As [`IdentityStore::save`].
    pub async fn mark_superseded(&self) -> Result<(), ControlFileError> {
        self.change(|identity| identity.superseded = true);
        self.save().await
    }

    /// Marks the directory as that of a removed node: later starts are refused.
    ///
    /// # Errors
    /// As [`IdentityStore::save`].
    pub async fn mark_removed(&self) -> Result<(), ControlFileError> {
        self.change(|identity| identity.removed = true);
        self.save().await
    }

    /// Returns once something has changed that may not be on disk yet. For one caller.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Writes the file if something has changed since the last write. Takes as long as the disk
    /// takes.
    ///
    /// # Errors
    /// When the file cannot be written. Changes remain known, and the next call retries.
    pub async fn save(&self) -> Result<(), ControlFileError> {
        let mut written = self.written.lock().await;
        let known = self.identity().clone();
        if known == *written {
            return Ok(());
        }
        let (disk, image) = (self.disk.clone(), known.clone());
        let stored = spawn_blocking(move || control_file::store(&disk, &image)).await;
        stored.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        *written = known;
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Identity)) {
        change(&mut self.identity.borrow_mut());
        self.changed.notify_one();
    }
}
