//! Process starts: which process may act as a given host, based on the starts of peers that a node
//! remembers.
//!
//! Owns the check in every handshake, before any frame of a peer is accepted. Each start of a node
//! increments a number in its data directory, durably, before the node sends anything. Each process
//! also draws a random instance id. A peer remembers both. This detects two situations that the
//! host's uuid cannot show, because it is copied with the directory:
//!
//! - A directory was restored to an earlier state. Its number is not above the one that peers
//!   remember, with another instance id. Such a node has forgotten votes that it gave and entries
//!   that it acknowledged.
//! - Two processes run on copies of one directory, whatever their numbers. While a connection with
//!   one of them stands, the other is refused.
//!
//! Not detected: a copy that was made after the host's last start, and that is started after the
//! original has stopped, looks like the next start of the original. An old copy that has been
//! started more often than the original since the copy was made, without reaching a peer that could
//! refuse it, has a higher number and is accepted.
//!
//! The check is a pure function of the remembered starts and the claim. The shell owns time and
//! connections.

use alloc::collections::BTreeMap;
use uuid::Uuid;

use crate::deliberate::{Fault, Faults};
use crate::types::NodeId;

/// One start of a node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStart {
    /// Number of starts on the data directory, including this one.
    pub number: u64,
    /// Random, so that two processes with the same number differ.
    pub instance: Uuid,
}

/// The latest start of a host with which a peer had a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownStart {
    /// The uuid in the host's data directory.
    pub host: Uuid,
    /// The latest of its starts.
    pub start: ProcessStart,
}

/// Why a process may not act as a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartRefusal {
    /// A later start of the host is known.
    Outdated,
    /// Another process is known by the same start number.
    Duplicate,
    /// A connection with an earlier start of the host stands. Usually its process has ended, and
    /// the connection breaks within seconds. Otherwise two processes run on copies of one
    /// directory.
    StillConnected,
}

impl StartRefusal {
    /// Whether a retry cannot succeed: the process must stop, and its directory must not be started
    /// again.
    pub fn is_final(self) -> bool {
        match self {
            StartRefusal::Outdated | StartRefusal::Duplicate => true,
            StartRefusal::StillConnected => false,
        }
    }
}

/// The starts of peers that a node remembers, and its current connections.
#[derive(Clone, Debug, Default)]
pub struct KnownStarts {
    /// The latest start of each peer; persisted in the control file.
    starts: BTreeMap<NodeId, KnownStart>,
    connected: BTreeMap<NodeId, ProcessStart>,
    faults: Faults,
}

impl KnownStarts {
    /// Creates it from the persisted starts, without connections. `faults` is [`Faults::NONE`],
    /// except in tests of the simulator.
    pub fn new(starts: BTreeMap<NodeId, KnownStart>, faults: Faults) -> KnownStarts {
        KnownStarts { starts, connected: BTreeMap::new(), faults }
    }

    /// The known start of a node.
    pub fn known(&self, node: NodeId) -> Option<KnownStart> {
        self.starts.get(&node).copied()
    }

    /// Returns the starts to persist.
    pub fn into_kept(self) -> BTreeMap<NodeId, KnownStart> {
        self.starts
    }

    /// Checks whether a process may act as a node.
    ///
    /// # Errors
    /// When it may not, with the reason.
    pub fn judge(&self, node: NodeId, claimed: KnownStart) -> Result<(), StartRefusal> {
        if self.faults.has(Fault::OldCopyAccepted) {
            return Ok(());
        }
        // Whether the number belongs to this disk is checked separately, by the registry.
        let known = self.starts.get(&node).filter(|known| known.host == claimed.host);
        let (number, instance) = (claimed.start.number, claimed.start.instance);
        if let Some(KnownStart { start: known, .. }) = known {
            if number < known.number {
                return Err(StartRefusal::Outdated);
            }
            if number == known.number && instance != known.instance {
                return Err(StartRefusal::Duplicate);
            }
        }
        match self.connected.get(&node) {
            Some(connected) if connected.instance != instance => Err(StartRefusal::StillConnected),
            _ => Ok(()),
        }
    }

    /// The deliberate faults of this node.
    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    /// Records a connection with a process that acts as a node. Returns whether the starts must be
    /// persisted first.
    ///
    /// # Errors
    /// As [`KnownStarts::judge`]; then nothing has changed.
    pub fn connect(&mut self, node: NodeId, claimed: KnownStart) -> Result<bool, StartRefusal> {
        self.judge(node, claimed)?;
        self.connected.insert(node, claimed.start);
        Ok(self.starts.insert(node, claimed) != Some(claimed))
    }

    /// Records the end of the connection with a node.
    pub fn disconnect(&mut self, node: NodeId) {
        self.connected.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);

    fn start(number: u64, instance: u128) -> KnownStart {
        let start = ProcessStart { number, instance: Uuid::from_u128(instance) };
        KnownStart { host: Uuid::from_u128(1), start }
    }

    /// A node that was connected with start 5, instance 50.
    fn known() -> KnownStarts {
        let mut known = KnownStarts::default();
        assert_eq!(known.connect(NODE, start(5, 50)), Ok(true));
        known.disconnect(NODE);
        known
    }

    #[test]
    fn numbers_rise_and_the_same_process_may_come_back() {
        let mut known = known();
        assert_eq!(known.connect(NODE, start(5, 50)), Ok(false), "its connection broke");
        assert_eq!(known.connect(NODE, start(5, 50)), Ok(false), "it noticed first");
        known.disconnect(NODE);
        assert_eq!(known.connect(NODE, start(9, 90)), Ok(true), "it was started again");
        assert_eq!(known.known(NODE), Some(start(9, 90)));
        assert_eq!(known.judge(NodeId(4), start(1, 1)), Ok(()), "of others nothing is known");
    }

    #[test]
    fn an_old_copy_is_refused_for_good_and_also_after_a_restart_of_the_peer() {
        let known = known();
        let restarted = KnownStarts::new([(NODE, start(5, 50))].into(), Faults::NONE);
        for known in [known, restarted] {
            assert_eq!(known.judge(NODE, start(4, 99)), Err(StartRefusal::Outdated));
            assert_eq!(known.judge(NODE, start(5, 99)), Err(StartRefusal::Duplicate));
            assert_eq!(known.judge(NODE, start(5, 50)), Ok(()));
        }
        assert!(StartRefusal::Outdated.is_final() && StartRefusal::Duplicate.is_final());
    }

    #[test]
    fn a_clone_is_refused_while_the_original_is_connected() {
        let mut known = known();
        assert_eq!(known.connect(NODE, start(5, 50)), Ok(false));
        assert_eq!(known.connect(NODE, start(6, 60)), Err(StartRefusal::StillConnected));
        assert_eq!(known.known(NODE), Some(start(5, 50)), "one that was refused leaves no trace");
        assert_eq!(known.judge(NODE, start(5, 60)), Err(StartRefusal::Duplicate));
        assert!(!StartRefusal::StillConnected.is_final());
        known.disconnect(NODE);
        assert_eq!(known.connect(NODE, start(6, 60)), Ok(true), "the connection was a dead one");
        assert_eq!(known.judge(NODE, start(5, 50)), Err(StartRefusal::Outdated));
    }

    #[test]
    fn another_disk_has_starts_of_its_own() {
        let other = KnownStart { host: Uuid::from_u128(2), ..start(1, 1) };
        assert_eq!(known().judge(NODE, other), Ok(()));
    }
}
