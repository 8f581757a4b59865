//! Who this node is: read from its data directory, or decided at its first start, and kept up from then on.
//!
//! Owns the control file of a running node, and the rule that what a directory knows beats the settings. It neither
//! writes the log nor knows the registry; what there is to remember it is told.
//!
//! Invariant: what [`IdentityStore::identity`] says is on the disk.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;

use tidelock_core::storage::control_file::{self, ControlFileError, Identity, KnownHost};
use tidelock_core::types::NodeId;
use uuid::Uuid;

use crate::config::Settings;
use crate::disk::FsDisk;

/// Why a node cannot say who it is.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The control file cannot be read or written.
    #[error(transparent)]
    ControlFile(#[from] ControlFileError),
    /// The directory knows its node, and the node's log is gone.
    #[error(
        "the write-ahead log is missing; without it this node has forgotten what it acknowledged. \
         Restore it, or empty the directory: the other nodes will then refuse it, and go on without"
    )]
    LogMissing,
    /// The cluster has removed this node.
    #[error(
        "this node was removed from its cluster. To use the host again, empty the directory and start with --join: \
         it joins as a new node"
    )]
    Removed,
}

/// Reads who this node is or, in an empty directory, decides that it founds what its settings say. Counts the start.
///
/// # Errors
/// When the control file cannot be used, and when the node is none any more.
pub fn identify(disk: &FsDisk, settings: &Settings) -> Result<Identity, IdentityError> {
    let identity = match control_file::load(disk)? {
        Some(known) if known.removed => return Err(IdentityError::Removed),
        Some(known) => {
            if settings.cluster_id().is_some_and(|id| id != known.cluster_id) {
                tracing::warn!(
                    "--peers, --cluster-name or --shards differ from what the data directory knows, and are ignored"
                );
            }
            Identity { boots: known.boots + 1, ..known }
        }
        None => found(settings),
    };
    control_file::store(disk, &identity)?;
    Ok(identity)
}

fn found(settings: &Settings) -> Identity {
    Identity {
        cluster_id: settings.cluster_id().unwrap_or_else(Uuid::new_v4),
        node: settings.node_id(),
        founders: settings.founders(),
        data_shards: settings.shards,
        boots: 1,
        ..Identity::joining(Uuid::new_v4())
    }
}

/// Where the peers of a node were when it last heard of them, its own number included: what it goes by until the
/// registry is read. A founder knows the other founders from the beginning.
pub fn remembered_peers(identity: &Identity) -> BTreeMap<NodeId, String> {
    let mut peers = BTreeMap::new();
    if is_founder(identity) {
        peers.extend((1..).map(NodeId).zip(identity.founders.iter().cloned()));
    }
    let hosts = identity.hosts.iter();
    peers.extend(hosts.map(|(node, host)| (*node, host.peer_address.clone())));
    peers
}

/// Whether the node was there from the beginning: founders have the first numbers.
pub fn is_founder(identity: &Identity) -> bool {
    identity.node.0 <= identity.founders.len() as u64
}

/// The identity of a running node, in memory and on its disk.
#[derive(Debug)]
pub struct IdentityStore {
    disk: FsDisk,
    identity: RefCell<Identity>,
}

impl IdentityStore {
    /// Of a node whose log was looked for. Notes that the log is begun, or refuses a directory that has lost it: without
    /// its log a node has forgotten its votes and what it acknowledged, and must not take part under its old number.
    ///
    /// # Errors
    /// [`IdentityError::LogMissing`], and when the control file cannot be written.
    pub fn begin(disk: FsDisk, identity: Identity, log_found: bool) -> Result<Self, IdentityError> {
        if identity.has_log && !log_found {
            return Err(IdentityError::LogMissing);
        }
        let store = IdentityStore { disk, identity: RefCell::new(identity) };
        store.update(|identity| identity.has_log = true)?;
        Ok(store)
    }

    /// Who the node is. Not to be held across an `.await`.
    pub fn identity(&self) -> Ref<'_, Identity> {
        self.identity.borrow()
    }

    /// The disk that was last seen behind a node's number.
    pub fn known_host(&self, node: NodeId) -> Option<Uuid> {
        self.identity().hosts.get(&node).map(|host| host.uuid)
    }

    /// Adds to what is known of other hosts, and replaces what is known differently.
    ///
    /// # Errors
    /// When the control file cannot be written; then nothing has changed.
    pub fn remember(&self, hosts: BTreeMap<NodeId, KnownHost>) -> Result<(), ControlFileError> {
        self.update(|identity| identity.hosts.extend(hosts))
    }

    /// Marks the directory as that of a node that its cluster has removed: it starts no more.
    ///
    /// # Errors
    /// As [`IdentityStore::remember`].
    pub fn mark_removed(&self) -> Result<(), ControlFileError> {
        self.update(|identity| identity.removed = true)
    }

    /// Changes come with membership, rarely, so writing them on the caller's thread delays nobody.
    fn update(&self, change: impl FnOnce(&mut Identity)) -> Result<(), ControlFileError> {
        let mut changed = self.identity().clone();
        change(&mut changed);
        if changed != *self.identity() {
            control_file::store(&self.disk, &changed)?;
            self.identity.replace(changed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawSettings;
    use tempfile::TempDir;

    fn settings(peers: &[&str]) -> Settings {
        let list = |peers: &[&str]| peers.iter().map(ToString::to_string).collect();
        Settings::new(RawSettings {
            peer: Some("b:1".into()),
            peers: (!peers.is_empty()).then(|| list(peers)),
            ..RawSettings::default()
        })
        .unwrap()
    }

    fn directory() -> (TempDir, FsDisk) {
        let directory = tempfile::tempdir().unwrap();
        let disk = FsDisk::open(directory.path()).unwrap();
        (directory, disk)
    }

    fn host(node: u64, uuid: u128, address: &str) -> (NodeId, KnownHost) {
        (NodeId(node), KnownHost { uuid: Uuid::from_u128(uuid), peer_address: address.into() })
    }

    #[test]
    fn a_founder_keeps_what_it_was_founded_as() {
        let (_directory, disk) = directory();
        let first = identify(&disk, &settings(&["a:1", "b:1"])).unwrap();
        assert_eq!((first.node, first.boots, first.has_log), (NodeId(2), 1, false));
        assert_eq!(Some(first.cluster_id), settings(&["a:1", "b:1"]).cluster_id());
        let second = identify(&disk, &settings(&["b:1", "c:1"])).unwrap();
        assert_eq!(second, Identity { boots: 2, ..first });
    }

    #[test]
    fn a_log_that_was_begun_must_be_there() {
        let (_directory, disk) = directory();
        let identity = identify(&disk, &settings(&[])).unwrap();
        IdentityStore::begin(disk.clone(), identity, false).unwrap();
        let identity = identify(&disk, &settings(&[])).unwrap();
        let lost = IdentityStore::begin(disk.clone(), identity.clone(), false);
        assert!(matches!(lost, Err(IdentityError::LogMissing)));
        IdentityStore::begin(disk, identity, true).unwrap();
    }

    #[test]
    fn hosts_are_remembered_with_where_they_are() {
        let (_directory, disk) = directory();
        let identity = identify(&disk, &settings(&["a:1", "b:1"])).unwrap();
        let store = IdentityStore::begin(disk.clone(), identity, false).unwrap();
        assert_eq!(store.known_host(NodeId(1)), None);
        store.remember([host(1, 7, "a:1"), host(3, 8, "c:1")].into()).unwrap();
        store.remember([host(3, 8, "moved:1")].into()).unwrap();
        assert_eq!(store.known_host(NodeId(1)), Some(Uuid::from_u128(7)));
        let reread = identify(&disk, &settings(&[])).unwrap();
        let peers: Vec<_> = remembered_peers(&reread).into_values().collect();
        assert_eq!(peers, ["a:1", "b:1", "moved:1"]);
        // One that joined goes by what it was told alone: founders may be long gone.
        let joined = Identity { node: NodeId(3), ..reread };
        let peers: Vec<_> = remembered_peers(&joined).into_values().collect();
        assert_eq!(peers, ["a:1", "moved:1"]);
    }

    #[test]
    fn a_removed_node_starts_no_more_and_says_what_to_do() {
        let (_directory, disk) = directory();
        let identity = identify(&disk, &settings(&[])).unwrap();
        let store = IdentityStore::begin(disk.clone(), identity, false).unwrap();
        store.mark_removed().unwrap();
        assert!(store.identity().removed);
        let refused = identify(&disk, &settings(&[])).unwrap_err();
        assert!(matches!(refused, IdentityError::Removed) && refused.to_string().contains("--join"));
    }
}
