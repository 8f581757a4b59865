//! The registry: the prime shard's machine.
//!
//! Owns which host stands behind each node number. The first disk to register under a number keeps it: a wiped
//! disk under the same number has forgotten its votes and its log, and letting it vote could lose acknowledged
//! writes, so it is refused here and at the peer handshake.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use crc::{CRC_64_XZ, Crc};
use uuid::Uuid;

use crate::codec::{self, DecodeError, Decoder};
use crate::command::{HostInfo, Reply, Write};
use crate::types::{LogIndex, NodeId, Version};

/// State of the prime shard.
#[derive(Debug, Default)]
pub struct Registry {
    hosts: BTreeMap<NodeId, Host>,
    /// A snapshot that was begun, and not yet taken.
    snapshot: Option<Vec<u8>>,
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
    /// Takes note of an announcement; refuses another disk under a number that is taken.
    pub fn register(&mut self, index: LogIndex, info: HostInfo) -> Reply {
        match self.hosts.get_mut(&info.node) {
            Some(host) if host.info.uuid != info.uuid => {
                return Reply::ConditionFailed { current: Version(host.updated.0) };
            }
            Some(host) if host.info == info => {}
            Some(host) => {
                host.info = info;
                host.updated = index;
            }
            None => {
                self.hosts.insert(info.node, Host { info, created: index, updated: index });
            }
        }
        Reply::Registered
    }

    /// The host registered under a number.
    pub fn host(&self, node: NodeId) -> Option<&Host> {
        self.hosts.get(&node)
    }

    /// The disks registered, by number.
    pub fn host_uuids(&self) -> impl Iterator<Item = (NodeId, Uuid)> {
        self.hosts.iter().map(|(&node, host)| (node, host.info.uuid))
    }

    /// The disk registered under a number.
    pub fn host_uuid(&self, node: NodeId) -> Option<Uuid> {
        self.host(node).map(|host| host.info.uuid)
    }

    /// Begins a snapshot behind `header`. The registry is small: its one block is made at once.
    pub(crate) fn begin_snapshot(&mut self, header: Vec<u8>) {
        let mut block = header;
        codec::put_varint(&mut block, self.hosts.len() as u64);
        for host in self.hosts.values() {
            host.info.encode(&mut block);
            codec::put_varint(&mut block, host.created.0);
            codec::put_varint(&mut block, host.updated.0);
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
        let mut hosts = BTreeMap::new();
        for _ in 0..decoder.varint()? {
            let info = HostInfo::decode(decoder)?;
            let host =
                Host { created: LogIndex(decoder.varint()?), updated: LogIndex(decoder.varint()?), info };
            hosts.insert(host.info.node, host);
        }
        Ok(Registry { hosts, snapshot: None })
    }

    /// How many hosts have registered.
    pub fn record_count(&self) -> u64 {
        self.hosts.len() as u64
    }

    /// A checksum over all records in node order.
    pub fn digest(&self) -> u64 {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        let mut digest = CRC.digest();
        let mut encoded = Vec::new();
        for host in self.hosts.values() {
            encoded.clear();
            Write::RegisterHost(host.info.clone()).encode(&mut encoded);
            digest.update(&encoded);
            digest.update(&host.created.0.to_le_bytes());
            digest.update(&host.updated.0.to_le_bytes());
        }
        digest.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn info(uuid: u128, http_address: &str) -> HostInfo {
        HostInfo {
            node: NodeId(1),
            uuid: Uuid::from_u128(uuid),
            peer_address: String::from("127.0.0.1:9001"),
            http_address: String::from(http_address),
            resp_address: String::new(),
            tags: BTreeMap::new(),
        }
    }

    #[test]
    fn the_first_disk_keeps_its_number_and_may_move() {
        let mut registry = Registry::default();
        assert_eq!(registry.register(LogIndex(3), info(1, "a")), Reply::Registered);
        assert_eq!(registry.register(LogIndex(4), info(1, "a")), Reply::Registered);
        assert_eq!(registry.host(NodeId(1)).map(|host| host.updated), Some(LogIndex(3)));
        assert_eq!(registry.register(LogIndex(5), info(1, "b")), Reply::Registered);
        let wiped = registry.register(LogIndex(6), info(2, "b"));
        assert_eq!(wiped, Reply::ConditionFailed { current: Version(5) });
        let host = registry.host(NodeId(1)).cloned().expect("registered");
        assert_eq!((host.info, host.created, host.updated), (info(1, "b"), LogIndex(3), LogIndex(5)));
    }
}
