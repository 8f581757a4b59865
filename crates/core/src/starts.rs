//! Which process may speak for a host: what a node remembers of the starts of its peers, and what follows from it.
//!
//! Owns the rule that every handshake asks, before a frame of a peer counts. Each start of a node on its data directory
//! raises a number that is kept there, durably, before the node says a word; each process draws a random instance besides.
//! A peer remembers both. So two things are noticed that the host's uuid does not show, since it is copied along:
//!
//! - A directory was put back to an earlier state. Its number is not above the one that peers remember, under another
//!   instance. Such a node has forgotten votes that it gave and entries that it acknowledged.
//! - Two processes run on copies of one directory. Their numbers may rise as they like: while a connection with one of
//!   them stands, the other is refused.
//!
//! Left out: a copy that was made since the host's last start and that is started when the original runs no more is taken
//! for the next start of the original. And an old copy that is started, without reaching a peer that could refuse it, more
//! often than the original was since, has a number above the known one and is believed.
//!
//! It is a pure function of what is remembered and what is said; time and connections are the shell's.

use alloc::collections::BTreeMap;
use uuid::Uuid;

use crate::deliberate::{Fault, Faults};
use crate::types::NodeId;

/// One start of a node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStart {
    /// How often the node has started on its directory, this time included.
    pub number: u64,
    /// Random for each process.
    pub instance: Uuid,
}

/// The latest start of a host that a peer has had a connection with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownStart {
    /// The host's uuid.
    pub host: Uuid,
    /// The start.
    pub start: ProcessStart,
}

/// Why a process may not speak for its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartRefusal {
    /// A later start of the host is known.
    Outdated,
    /// Another process is known by the same number.
    Duplicate,
    /// A connection with an earlier start of the host stands. Most often its process has ended, and the connection breaks
    /// within seconds; if not, two processes run on copies of one directory.
    StillConnected,
}

impl StartRefusal {
    /// Whether trying again changes nothing: the process must stop, and its directory must not be started again.
    pub fn is_final(self) -> bool {
        match self {
            StartRefusal::Outdated | StartRefusal::Duplicate => true,
            StartRefusal::StillConnected => false,
        }
    }
}

/// What a node remembers of its peers' starts, and with which of them it has connections.
#[derive(Clone, Debug, Default)]
pub struct KnownStarts {
    /// To be kept on the disk.
    starts: BTreeMap<NodeId, KnownStart>,
    connected: BTreeMap<NodeId, ProcessStart>,
    faults: Faults,
}

impl KnownStarts {
    /// What the disk remembers; no connection stands. `faults` is [`Faults::NONE`], except in tests of the simulator.
    pub fn new(starts: BTreeMap<NodeId, KnownStart>, faults: Faults) -> KnownStarts {
        KnownStarts { starts, connected: BTreeMap::new(), faults }
    }

    /// What is remembered of a node.
    pub fn known(&self, node: NodeId) -> Option<KnownStart> {
        self.starts.get(&node).copied()
    }

    /// What is to be kept on the disk.
    pub fn into_kept(self) -> BTreeMap<NodeId, KnownStart> {
        self.starts
    }

    /// Whether a process may speak for a node.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, node: NodeId, claimed: KnownStart) -> Result<(), StartRefusal> {
        if self.faults.has(Fault::OldCopyBelieved) {
            return Ok(());
        }
        // Whether the number may come from this disk at all is another question, which the registry answers.
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

    /// A process begins to speak for a node. Returns whether that has to be kept on the disk, first of all.
    ///
    /// # Errors
    /// As [`KnownStarts::judge`]; then nothing has changed.
    pub fn connect(&mut self, node: NodeId, claimed: KnownStart) -> Result<bool, StartRefusal> {
        self.judge(node, claimed)?;
        self.connected.insert(node, claimed.start);
        Ok(self.starts.insert(node, claimed) != Some(claimed))
    }

    /// The connection with a node has ended.
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

    /// A node that had a connection with start 5, instance 50.
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
