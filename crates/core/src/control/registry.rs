//! The registry: the prime shard's machine.
//!
//! Owns which host stands behind each node number, and what is wanted of it; making that true is for the leaders of
//! the shards (`reconcile`). The first disk to register under a number keeps it: a wiped disk under the same number has
//! forgotten its votes and its log, and letting it vote could lose acknowledged writes, so it is refused here and at
//! the peer handshake. It joins under a new number.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use crc::{CRC_64_XZ, Crc};

use crate::codec::{self, DecodeError, Decoder};
use crate::command::{Denial, HostChange, HostInfo, Reply, Standing};
use crate::limits;
use crate::types::{LogIndex, NodeId, Version};

/// State of the prime shard.
#[derive(Debug, Default)]
pub struct Registry {
    /// Every number that was ever given out. None is ever given back, so none is given twice.
    seats: BTreeMap<NodeId, Seat>,
    /// Log index of the last change.
    changed: LogIndex,
    /// A snapshot that was begun, and not yet taken.
    snapshot: Option<Vec<u8>>,
}

/// What stands behind a node number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// What is wanted of the node.
    pub standing: Standing,
    /// Whether it should lead nothing.
    pub draining: bool,
    /// Its host, once that has announced itself.
    pub host: Option<Host>,
}

/// A host that registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What it announced.
    pub info: HostInfo,
    /// Log index of its first announcement.
    pub created: LogIndex,
    /// Log index of the last announcement that changed something.
    pub updated: LogIndex,
}

impl Registry {
    /// The registry that a cluster begins with: all founders vote.
    pub fn founded(founders: u64) -> Registry {
        let seat = || Seat { standing: Standing::Voter, draining: false, host: None };
        Registry { seats: (1..=founders).map(|node| (NodeId(node), seat())).collect(), ..Registry::default() }
    }

    /// Takes note of an announcement; refuses another disk under a number that is taken.
    pub fn register(&mut self, index: LogIndex, info: HostInfo) -> Reply {
        let Some(seat) = self.seats.get_mut(&info.node) else { return Reply::Denied(Denial::UnknownHost) };
        if seat.standing == Standing::Removed {
            return Reply::Denied(Denial::HostRemoved);
        }
        match &mut seat.host {
            Some(host) if host.info.uuid != info.uuid => {
                return Reply::ConditionFailed { current: Version(host.updated.0) };
            }
            Some(host) if host.info == info => {}
            Some(host) => {
                (host.info, host.updated) = (info, index);
                self.changed = index;
            }
            None => {
                seat.host = Some(Host { info, created: index, updated: index });
                self.changed = index;
            }
        }
        Reply::Registered
    }

    /// Gives a host that joins the next number, or the one that it was given before. It follows without a vote.
    pub fn join(&mut self, index: LogIndex, mut info: HostInfo) -> Reply {
        let is_same = |seat: &Seat| seat.host.as_ref().is_some_and(|host| host.info.uuid == info.uuid);
        if let Some((&node, seat)) = self.seats.iter().find(|(_, seat)| is_same(seat)) {
            if matches!(seat.standing, Standing::Leaving | Standing::Removed) {
                return Reply::Denied(Denial::HostRemoved);
            }
            return Reply::Joined { node };
        }
        let last = self.seats.last_key_value().map_or(0, |(node, _)| node.0);
        if self.seats.values().filter(|seat| seat.standing != Standing::Removed).count() >= limits::HOSTS_MAX
        {
            return Reply::Denied(Denial::TooManyHosts);
        }
        let node = NodeId(last + 1);
        info.node = node;
        let host = Some(Host { info, created: index, updated: index });
        self.seats.insert(node, Seat { standing: Standing::Learner, draining: false, host });
        self.changed = index;
        Reply::Joined { node }
    }

    /// Changes what is wanted of a host.
    pub fn change(&mut self, index: LogIndex, node: NodeId, change: HostChange) -> Reply {
        let is_other_voter =
            |(&other, seat): (&NodeId, &Seat)| other != node && seat.standing == Standing::Voter;
        let has_other_voter = self.seats.iter().any(is_other_voter);
        let Some(seat) = self.seats.get_mut(&node) else { return Reply::Denied(Denial::UnknownHost) };
        let before = seat.clone();
        match (seat.standing, change) {
            (Standing::Removed, HostChange::Removed) => {}
            (Standing::Removed, _) => return Reply::Denied(Denial::HostRemoved),
            (Standing::Leaving, HostChange::Removed) => seat.standing = Standing::Removed,
            (_, HostChange::Removed) => return Reply::Denied(Denial::NotLeaving),
            // Its replicas may be gone already, and the same ones must not come back.
            (Standing::Leaving, HostChange::Vote | HostChange::Follow) => {
                return Reply::Denied(Denial::HostRemoved);
            }
            (_, HostChange::Vote) => (seat.standing, seat.draining) = (Standing::Voter, false),
            (Standing::Voter, HostChange::Follow | HostChange::Leave) if !has_other_voter => {
                return Reply::Denied(Denial::LastVoter);
            }
            (_, HostChange::Follow) => seat.standing = Standing::Learner,
            (_, HostChange::Leave) => seat.standing = Standing::Leaving,
            (_, HostChange::Drain(draining)) => seat.draining = draining,
        }
        if *seat != before {
            self.changed = index;
        }
        Reply::HostChanged
    }

    /// Log index of the last change; 0 before the first.
    pub fn changed(&self) -> LogIndex {
        self.changed
    }

    /// All numbers that were ever given out.
    pub fn seats(&self) -> &BTreeMap<NodeId, Seat> {
        &self.seats
    }

    /// The host registered under a number.
    pub fn host(&self, node: NodeId) -> Option<&Host> {
        self.seats.get(&node)?.host.as_ref()
    }

    /// Begins a snapshot behind `header`. The registry is small: its one block is made at once.
    pub(crate) fn begin_snapshot(&mut self, header: Vec<u8>) {
        let mut block = header;
        codec::put_varint(&mut block, self.changed.0);
        codec::put_varint(&mut block, self.seats.len() as u64);
        for (node, seat) in &self.seats {
            encode_seat(*node, seat, &mut block);
        }
        self.snapshot = Some(block);
    }

    /// The block of the snapshot, once.
    pub(crate) fn next_block(&mut self) -> Option<Vec<u8>> {
        self.snapshot.take()
    }

    /// Drops the snapshot that was begun.
    pub(crate) fn abandon_snapshot(&mut self) {
        self.snapshot = None;
    }

    /// The registry of a snapshot, behind the header.
    pub(crate) fn restore(decoder: &mut Decoder<'_>) -> Result<Registry, DecodeError> {
        let changed = LogIndex(decoder.varint()?);
        let mut seats = BTreeMap::new();
        for _ in 0..decoder.varint()? {
            let (node, seat) = decode_seat(decoder)?;
            seats.insert(node, seat);
        }
        Ok(Registry { seats, changed, snapshot: None })
    }

    /// How many hosts have registered.
    pub fn record_count(&self) -> u64 {
        self.seats.values().filter(|seat| seat.host.is_some()).count() as u64
    }

    /// A checksum over all records in node order.
    pub fn digest(&self) -> u64 {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        let mut digest = CRC.digest();
        let mut encoded = Vec::new();
        for (node, seat) in &self.seats {
            encoded.clear();
            encode_seat(*node, seat, &mut encoded);
            digest.update(&encoded);
        }
        digest.finalize()
    }
}

fn encode_seat(node: NodeId, seat: &Seat, out: &mut Vec<u8>) {
    codec::put_varint(out, node.0);
    out.push(match seat.standing {
        Standing::Voter => 0,
        Standing::Learner => 1,
        Standing::Leaving => 2,
        Standing::Removed => 3,
    });
    out.push(u8::from(seat.draining));
    out.push(u8::from(seat.host.is_some()));
    if let Some(host) = &seat.host {
        host.info.encode(out);
        codec::put_varint(out, host.created.0);
        codec::put_varint(out, host.updated.0);
    }
}

fn decode_seat(decoder: &mut Decoder<'_>) -> Result<(NodeId, Seat), DecodeError> {
    let node = NodeId(decoder.varint()?);
    let standing = match decoder.u8()? {
        0 => Standing::Voter,
        1 => Standing::Learner,
        2 => Standing::Leaving,
        3 => Standing::Removed,
        _ => return Err(DecodeError::UnknownTag("standing of a host")),
    };
    let draining = decoder.bool()?;
    let host = if decoder.bool()? {
        let info = HostInfo::decode(decoder)?;
        Some(Host { created: LogIndex(decoder.varint()?), updated: LogIndex(decoder.varint()?), info })
    } else {
        None
    };
    Ok((node, Seat { standing, draining, host }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use alloc::string::String;
    use uuid::Uuid;

    fn info(node: u64, uuid: u128, http_address: &str) -> HostInfo {
        HostInfo {
            node: NodeId(node),
            uuid: Uuid::from_u128(uuid),
            peer_address: String::from("127.0.0.1:9001"),
            http_address: String::from(http_address),
            resp_address: String::new(),
            tags: BTreeMap::new(),
        }
    }

    #[test]
    fn the_first_disk_keeps_its_number_and_may_move() {
        let mut registry = Registry::founded(1);
        assert_eq!(registry.register(LogIndex(3), info(1, 1, "a")), Reply::Registered);
        assert_eq!(registry.register(LogIndex(4), info(1, 1, "a")), Reply::Registered);
        assert_eq!(registry.host(NodeId(1)).map(|host| host.updated), Some(LogIndex(3)));
        assert_eq!(registry.register(LogIndex(5), info(1, 1, "b")), Reply::Registered);
        let wiped = registry.register(LogIndex(6), info(1, 2, "b"));
        assert_eq!(wiped, Reply::ConditionFailed { current: Version(5) });
        let host = registry.host(NodeId(1)).cloned().expect("registered");
        assert_eq!((host.info, host.created, host.updated), (info(1, 1, "b"), LogIndex(3), LogIndex(5)));
        assert_eq!(registry.register(LogIndex(7), info(2, 9, "c")), Reply::Denied(Denial::UnknownHost));
    }

    #[test]
    fn a_number_is_given_once_and_never_again() {
        let mut registry = Registry::founded(3);
        let joined = |node| Reply::Joined { node: NodeId(node) };
        assert_eq!(registry.join(LogIndex(1), info(0, 10, "a")), joined(4));
        assert_eq!(registry.join(LogIndex(2), info(0, 11, "b")), joined(5));
        assert_eq!(registry.join(LogIndex(3), info(0, 10, "a")), joined(4), "asked again");
        assert_eq!(registry.change(LogIndex(4), NodeId(5), HostChange::Leave), Reply::HostChanged);
        assert_eq!(registry.change(LogIndex(5), NodeId(5), HostChange::Removed), Reply::HostChanged);
        assert_eq!(registry.join(LogIndex(6), info(0, 12, "c")), joined(6));
        assert_eq!(registry.join(LogIndex(7), info(0, 11, "b")), Reply::Denied(Denial::HostRemoved));
        assert_eq!(registry.register(LogIndex(8), info(5, 11, "b")), Reply::Denied(Denial::HostRemoved));
        assert_eq!(registry.changed(), LogIndex(6));
    }

    #[test]
    fn the_last_voter_stays_and_who_leaves_does_not_return() {
        let mut registry = Registry::founded(2);
        let mut change = |node, change| registry.change(LogIndex(9), NodeId(node), change);
        assert_eq!(change(1, HostChange::Removed), Reply::Denied(Denial::NotLeaving));
        assert_eq!(change(1, HostChange::Leave), Reply::HostChanged);
        assert_eq!(change(1, HostChange::Vote), Reply::Denied(Denial::HostRemoved));
        assert_eq!(change(2, HostChange::Leave), Reply::Denied(Denial::LastVoter));
        assert_eq!(change(2, HostChange::Follow), Reply::Denied(Denial::LastVoter));
        assert_eq!(change(2, HostChange::Drain(true)), Reply::HostChanged);
        assert_eq!(change(2, HostChange::Vote), Reply::HostChanged);
        assert_eq!(change(3, HostChange::Vote), Reply::Denied(Denial::UnknownHost));
        assert!(!registry.seats()[&NodeId(2)].draining, "a vote ends it");
    }

    #[test]
    fn snapshots_hold_everything() {
        let mut registry = Registry::founded(3);
        registry.register(LogIndex(1), info(1, 1, "a"));
        registry.join(LogIndex(2), info(0, 10, "b"));
        registry.change(LogIndex(3), NodeId(2), HostChange::Drain(true));
        registry.change(LogIndex(4), NodeId(3), HostChange::Leave);
        let digest = registry.digest();
        registry.begin_snapshot(Vec::new());
        let block = registry.next_block().expect("one block");
        let restored = Registry::restore(&mut Decoder::new(&block)).expect("a registry");
        assert_eq!((restored.digest(), restored.changed()), (digest, LogIndex(4)));
        assert_eq!(restored.seats(), registry.seats());
        assert!(matches!(Machine::Registry(restored).record_count(), 2));
    }
}
