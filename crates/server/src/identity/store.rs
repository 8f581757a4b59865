//! The identity of a running node: what it learns of itself and of its peers, and how that reaches the control file.
//!
//! A write of the file waits for syncs, and a disk may take seconds for one or never return. The worker that learns a fact
//! drives shards, heartbeats and clients, so it only notes the fact here; the file is written on another thread, by one
//! write at a time, each with all that is known when it begins.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;

use tidelock_core::starts::KnownStart;
use tidelock_core::storage::control_file::{self, ControlFileError, Identity, KnownHost};
use tidelock_core::types::NodeId;
use tokio::sync::{Mutex, Notify};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::disk::FsDisk;

/// The identity of a running node, in memory and on its disk.
#[derive(Debug)]
pub struct IdentityStore {
    disk: FsDisk,
    /// What is known.
    identity: RefCell<Identity>,
    /// What the file holds. Locked while it is written.
    written: Mutex<Identity>,
    changed: Notify,
}

impl IdentityStore {
    /// Of a node whose log is open. Notes that it is begun: a directory that has lost it is refused from then on, since
    /// without its log a node has forgotten its votes and what it acknowledged, and must not take part under its old
    /// number. Called before the node serves, so it writes the file at once.
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

    /// What is known, on the disk or to be written by the next [`IdentityStore::save`]. Not to be held across an `.await`.
    pub fn identity(&self) -> Ref<'_, Identity> {
        self.identity.borrow()
    }

    /// The disk that was last seen behind a node's number: in the registry, or, before that was known, in a handshake.
    pub fn known_host(&self, node: NodeId) -> Option<Uuid> {
        let identity = self.identity();
        let registered = identity.hosts.get(&node).map(|host| host.uuid);
        registered.or_else(|| identity.starts.get(&node).map(|known| known.host))
    }

    /// Adds to what is known of other hosts, and replaces what is known differently.
    pub fn remember(&self, hosts: BTreeMap<NodeId, KnownHost>) {
        self.change(|identity| identity.hosts.extend(hosts));
    }

    /// Remembers the latest start of a peer.
    pub fn remember_start(&self, node: NodeId, start: KnownStart) {
        self.change(|identity| {
            identity.starts.insert(node, start);
        });
    }

    /// Forgets all other hosts: they are of the cluster that this node has left.
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

    /// Marks the directory as an old copy, or a clone: it starts no more.
    ///
    /// # Errors
    /// As [`IdentityStore::save`].
    pub async fn mark_superseded(&self) -> Result<(), ControlFileError> {
        self.change(|identity| identity.superseded = true);
        self.save().await
    }

    /// Marks the directory as that of a node that its cluster has removed: it starts no more.
    ///
    /// # Errors
    /// As [`IdentityStore::save`].
    pub async fn mark_removed(&self) -> Result<(), ControlFileError> {
        self.change(|identity| identity.removed = true);
        self.save().await
    }

    /// Returns once something has changed that may not be on the disk yet. For one caller.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Writes to the file what has changed since it was written last. Takes as long as the disk does.
    ///
    /// # Errors
    /// When the file cannot be written. What has changed is still known, and the next call tries again.
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
