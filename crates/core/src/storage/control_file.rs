//! The control file: the identity of this node and its cluster. It is written when the data
//! directory is created, at each start, and when the remembered state of the cluster changes.
//!
//! Owns the layout and the atomic replacement of this file. The caller enforces that an existing
//! identity takes precedence over the command line.
//!
//! Invariant: a file of this name is always complete. A new one is written beside it and renamed
//! over it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use uuid::Uuid;

use super::disk::{Disk, DiskError, DiskFile};
use super::le;
use crate::codec::{self, DecodeError, Decoder};
use crate::founding::Founding;
use crate::starts::{KnownStart, ProcessStart};
use crate::topology;
use crate::types::{NodeId, ReplicaId};
use crate::version::{ClusterVersion, SupportedVersions, Unsupported};

/// Name of the control file in the data directory.
pub const NAME: &str = "control";

const TEMPORARY_NAME: &str = "control.new";
const MAGIC: &[u8; 8] = b"TIDECTRL";
const HEADER_BYTES: usize = 20;
/// The layout of a directory that holds nothing newer than the first version of clusters. Releases
/// without versions read and write only this one.
const FORMAT: u32 = 5;
/// The layout of all other directories: it begins with the version.
const FORMAT_VERSIONED: u32 = 6;

/// Control files are always smaller than this; a larger one is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The identity of a node. A founder's is fixed at its first start. A joining node has only a host
/// uuid until the cluster has told it the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster; nil while the node joins.
    pub cluster_id: Uuid,
    /// Its node number; 0 while the node joins.
    pub node: NodeId,
    /// Generated with the data directory, see [`HostInfo::uuid`](crate::command::HostInfo::uuid).
    pub host_uuid: Uuid,
    /// The replica of the prime shard that a joined host was given; 0 for a founder, which computes
    /// it.
    pub prime_replica: ReplicaId,
    /// The name with which the cluster was founded; empty while the node joins.
    pub cluster_name: String,
    /// Peer addresses of all founders, sorted.
    pub founders: Vec<String>,
    /// Number of data shards with which the cluster was founded.
    pub data_shards: u64,
    /// See [`Founding::replicas`].
    pub replicas: Option<u64>,
    /// See [`Founding::shard_tags`].
    pub shard_tags: BTreeMap<String, String>,
    /// See [`Founding::automatic_division`].
    pub automatic_division: bool,
    /// The version at which the cluster was founded.
    pub founding_version: ClusterVersion,
    /// The newest version of anything in the directory; at least `founding_version`. It is recorded
    /// before anything of that version is written here. A release that does not support it does not
    /// start here.
    pub version: ClusterVersion,
    /// Number of starts on this directory, including this one.
    /// [`start_counter`](super::start_counter) keeps the exact number; this copy may lag if the
    /// disk was full.
    pub boots: u64,
    /// Whether a log was begun here. A directory without a log has then lost it.
    pub has_log: bool,
    /// Whether the cluster has removed this node. Its knowledge is then outdated, and its number is
    /// never used again.
    pub removed: bool,
    /// Registered hosts by node number, as the node last knew them. The registry is known only once
    /// a quorum has confirmed its log. Until then, the node uses this list to detect a wiped disk,
    /// and to find peers that joined after the founding.
    pub hosts: BTreeMap<NodeId, KnownHost>,
    /// The latest start of each peer with which this node had a connection. Connections of earlier
    /// starts are refused.
    pub starts: BTreeMap<NodeId, KnownStart>,
    /// Whether peers have refused this directory as an old copy or a clone of the node's directory.
    /// The node never starts on it again: each start would raise its count, until peers took it for
    /// a later start.
    pub superseded: bool,
}

/// What a node remembers of another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHost {
    /// Its [`Identity::host_uuid`]. Another uuid under the same number is another host.
    pub uuid: Uuid,
    /// `HOST:PORT`, as it was last announced.
    pub peer_address: String,
}

impl Identity {
    /// The identity of a node that is about to join. The uuid is stored before the cluster learns
    /// of it. A node that crashed before it received the answer asks again as the same host, and
    /// gets the same number.
    pub fn joining(host_uuid: Uuid) -> Identity {
        Identity {
            cluster_id: Uuid::nil(),
            node: NodeId(0),
            host_uuid,
            prime_replica: ReplicaId(0),
            cluster_name: String::new(),
            founders: Vec::new(),
            data_shards: 0,
            replicas: None,
            shard_tags: BTreeMap::new(),
            automatic_division: false,
            founding_version: ClusterVersion::FIRST,
            version: ClusterVersion::FIRST,
            boots: 0,
            has_log: false,
            removed: false,
            hosts: BTreeMap::new(),
            starts: BTreeMap::new(),
            superseded: false,
        }
    }

    /// The founding of the node's cluster.
    pub fn founding(&self) -> Founding {
        Founding {
            founders: self.founders.len() as u64,
            data_shards: self.data_shards,
            replicas: self.replicas,
            shard_tags: self.shard_tags.clone(),
            automatic_division: self.automatic_division,
        }
    }

    /// Whether the node has no number yet.
    pub fn is_joining(&self) -> bool {
        self.node == NodeId(0)
    }
}

/// Why the control file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlFileError {
    /// A file operation failed.
    #[error("the control file cannot be accessed: {0}")]
    Disk(#[from] DiskError),
    /// The bytes of the file are not those that were written.
    #[error("the control file `{NAME}` is damaged: {0}")]
    Damaged(&'static str),
    /// The format is one that this release does not know, most likely of a newer one.
    #[error("the control file `{NAME}` has format version {0}, which this release does not know")]
    Version(u32),
    /// The directory belongs to a cluster of a version that this release does not support.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// Intact, but not a layout that this release writes.
    #[error("the control file `{NAME}` cannot be decoded: {0}")]
    Decode(#[from] DecodeError),
    /// The directory contains a node's data but no control file.
    #[error("the control file `{NAME}` is missing beside `{0}`: restore it, or empty the directory")]
    Missing(String),
}

/// Reads the node's identity; `None` if the directory is empty.
///
/// # Errors
/// When it cannot be read or is damaged, or when it is missing beside other files: a node with a
/// new identity would be mistaken for another node.
pub fn load<D: Disk>(disk: &D) -> Result<Option<Identity>, ControlFileError> {
    load_for(disk, SupportedVersions::OWN)
}

/// As [`load`], for a binary that supports these versions.
///
/// # Errors
/// As [`load`], and when the binary is too old or too new for the directory.
pub fn load_for<D: Disk>(
    disk: &D,
    supported: SupportedVersions,
) -> Result<Option<Identity>, ControlFileError> {
    let mut names = disk.list()?;
    if !names.iter().any(|name| name == NAME) {
        names.retain(|name| name != TEMPORARY_NAME);
        return match names.pop() {
            Some(name) => Err(ControlFileError::Missing(name)),
            None => Ok(None),
        };
    }
    let file = disk.open(NAME)?;
    let size = file.size()?;
    if size > FILE_BYTES_MAX {
        return Err(ControlFileError::Damaged("it is too large"));
    }
    let mut bytes = vec![0; size as usize];
    file.read_at(0, &mut bytes)?;
    decode(&bytes, supported).map(Some)
}

/// Durably replaces the node's identity. After a crash the file has either the old or the new
/// content.
pub fn store<D: Disk>(disk: &D, identity: &Identity) -> Result<(), ControlFileError> {
    if disk.list()?.iter().any(|name| name == TEMPORARY_NAME) {
        disk.remove(TEMPORARY_NAME)?;
    }
    let bytes = encode(identity);
    let mut file = disk.create(TEMPORARY_NAME, bytes.len() as u64)?;
    file.write_at(0, &bytes)?;
    file.sync()?;
    disk.rename(TEMPORARY_NAME, NAME)?;
    Ok(())
}

fn encode(identity: &Identity) -> Vec<u8> {
    let mut body = Vec::new();
    let format = if identity.version > ClusterVersion::FIRST { FORMAT_VERSIONED } else { FORMAT };
    if format == FORMAT_VERSIONED {
        codec::put_varint(&mut body, identity.version.0);
        codec::put_varint(&mut body, identity.founding_version.0);
    }
    body.extend_from_slice(identity.cluster_id.as_bytes());
    body.extend_from_slice(identity.host_uuid.as_bytes());
    codec::put_varint(&mut body, identity.node.0);
    codec::put_varint(&mut body, identity.prime_replica.0);
    codec::put_varint(&mut body, identity.data_shards);
    codec::put_varint(&mut body, identity.boots);
    codec::put_bytes(&mut body, identity.cluster_name.as_bytes());
    codec::put_varint(&mut body, identity.founders.len() as u64);
    for founder in &identity.founders {
        codec::put_bytes(&mut body, founder.as_bytes());
    }
    body.push(u8::from(identity.has_log));
    body.push(u8::from(identity.removed));
    codec::put_varint(&mut body, identity.hosts.len() as u64);
    for (node, host) in &identity.hosts {
        codec::put_varint(&mut body, node.0);
        body.extend_from_slice(host.uuid.as_bytes());
        codec::put_bytes(&mut body, host.peer_address.as_bytes());
    }
    body.push(u8::from(identity.superseded));
    codec::put_varint(&mut body, identity.starts.len() as u64);
    for (node, known) in &identity.starts {
        codec::put_varint(&mut body, node.0);
        body.extend_from_slice(known.host.as_bytes());
        codec::put_varint(&mut body, known.start.number);
        body.extend_from_slice(known.start.instance.as_bytes());
    }
    if identity.founding_version >= ClusterVersion::WITH_DEFAULTS {
        codec::put_varint(&mut body, identity.replicas.unwrap_or_default());
        topology::put_tags(&mut body, &identity.shard_tags);
    }
    if identity.founding_version >= ClusterVersion::WITH_DIVISION {
        body.push(u8::from(identity.automatic_division));
    }
    let length = u32::try_from(body.len()).expect("invariant: an identity is small");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&checksum(&bytes, &body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

fn decode(bytes: &[u8], supported: SupportedVersions) -> Result<Identity, ControlFileError> {
    if bytes.len() < HEADER_BYTES {
        return Err(ControlFileError::Damaged("it is cut off"));
    }
    let (header, body) = bytes.split_at(HEADER_BYTES);
    if &header[..8] != MAGIC {
        return Err(ControlFileError::Damaged("it has no magic number"));
    }
    if le::u32(header, 12) as usize != body.len() {
        return Err(ControlFileError::Damaged("its length does not match"));
    }
    if le::u32(header, 16) != checksum(&header[..16], body) {
        return Err(ControlFileError::Damaged("its checksum does not match"));
    }
    let mut decoder = Decoder::new(body);
    let (mut version, mut founding_version) = (ClusterVersion::FIRST, ClusterVersion::FIRST);
    match le::u32(header, 8) {
        FORMAT => supported.check(version)?,
        FORMAT_VERSIONED => {
            version = ClusterVersion(decoder.varint()?);
            // Before the rest, whose layout may be of that version.
            supported.check(version)?;
            founding_version = ClusterVersion(decoder.bounded(version.0, "founding version")?);
            if founding_version < ClusterVersion::FIRST {
                return Err(DecodeError::Invalid("founding version").into());
            }
        }
        format => return Err(ControlFileError::Version(format)),
    }
    let mut identity = decode_body(&mut decoder)?;
    (identity.founding_version, identity.version) = (founding_version, version);
    if founding_version >= ClusterVersion::WITH_DEFAULTS {
        identity.replicas = Some(decoder.varint()?).filter(|replicas| *replicas > 0);
        identity.shard_tags = topology::tags(&mut decoder)?;
    }
    if founding_version >= ClusterVersion::WITH_DIVISION {
        identity.automatic_division = decoder.bool()?;
    }
    decoder.finish()?;
    Ok(identity)
}

/// Decodes what follows the versions, up to what the founding version adds.
fn decode_body(decoder: &mut Decoder<'_>) -> Result<Identity, DecodeError> {
    let cluster_id = decoder.uuid()?;
    let host_uuid = decoder.uuid()?;
    let node = NodeId(decoder.varint()?);
    let prime_replica = ReplicaId(decoder.varint()?);
    let data_shards = decoder.varint()?;
    let boots = decoder.varint()?;
    let cluster_name = decoder.text()?;
    let mut founders = Vec::new();
    for _ in 0..decoder.varint()? {
        founders.push(decoder.text()?);
    }
    let has_log = decoder.bool()?;
    let removed = decoder.bool()?;
    let mut hosts = BTreeMap::new();
    for _ in 0..decoder.varint()? {
        let node = NodeId(decoder.varint()?);
        let uuid = decoder.uuid()?;
        hosts.insert(node, KnownHost { uuid, peer_address: decoder.text()? });
    }
    let superseded = decoder.bool()?;
    let mut starts = BTreeMap::new();
    for _ in 0..decoder.varint()? {
        let node = NodeId(decoder.varint()?);
        let host = decoder.uuid()?;
        let start = ProcessStart { number: decoder.varint()?, instance: decoder.uuid()? };
        starts.insert(node, KnownStart { host, start });
    }
    Ok(Identity {
        cluster_id,
        node,
        host_uuid,
        prime_replica,
        cluster_name,
        founders,
        data_shards,
        replicas: None,
        shard_tags: BTreeMap::new(),
        automatic_division: false,
        founding_version: ClusterVersion::FIRST,
        version: ClusterVersion::FIRST,
        boots,
        has_log,
        removed,
        hosts,
        starts,
        superseded,
    })
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), body)
}

#[cfg(test)]
mod tests {
    use super::super::memory_disk::{Crash, MemoryDisk};
    use super::*;

    fn identity(boots: u64) -> Identity {
        Identity {
            prime_replica: ReplicaId(7),
            cluster_id: Uuid::from_u128(1 << 100),
            node: NodeId(2),
            host_uuid: Uuid::from_u128(7),
            cluster_name: "blue".into(),
            founders: vec!["10.0.0.1:9001".into(), "[::1]:9001".into()],
            data_shards: 4,
            founding_version: ClusterVersion(boots.min(3)),
            version: ClusterVersion(boots.min(3)),
            automatic_division: boots == 300,
            replicas: (boots > 1).then_some(3),
            shard_tags: if boots == 300 { [("owner".into(), "us".into())].into() } else { BTreeMap::new() },
            boots,
            has_log: boots > 1,
            removed: boots == 2,
            hosts: BTreeMap::from([host(1, 9, "10.0.0.1:9001"), host(2, 7, ""), host(700, 8, "h:1")]),
            starts: BTreeMap::from([start(1, 9), start(700, 300)]),
            superseded: boots == 300,
        }
    }

    fn host(node: u64, uuid: u128, peer_address: &str) -> (NodeId, KnownHost) {
        (NodeId(node), KnownHost { uuid: Uuid::from_u128(uuid), peer_address: peer_address.into() })
    }

    fn start(node: u64, number: u64) -> (NodeId, KnownStart) {
        let start = ProcessStart { number, instance: Uuid::from_u128(number.into()) };
        (NodeId(node), KnownStart { host: Uuid::from_u128(node.into()), start })
    }

    #[test]
    fn a_joining_node_keeps_its_uuid_and_nothing_else() {
        let disk = MemoryDisk::new(1);
        let joining = Identity::joining(Uuid::from_u128(7));
        store(&disk, &joining).unwrap();
        let loaded = load(&disk).unwrap().unwrap();
        assert!(loaded.is_joining() && !identity(1).is_joining());
        assert_eq!(loaded, joining);
    }

    #[test]
    fn it_is_absent_then_replaced() {
        let disk = MemoryDisk::new(1);
        assert_eq!(load(&disk), Ok(None));
        for boots in [1, 300, 2] {
            store(&disk, &identity(boots)).unwrap();
            assert_eq!(load(&disk), Ok(Some(identity(boots))));
        }
        assert_eq!(disk.list().unwrap(), [NAME]);
    }

    #[test]
    fn no_cluster_was_founded_at_version_0() {
        let disk = MemoryDisk::new(1);
        store(&disk, &Identity { founding_version: ClusterVersion(0), ..identity(2) }).unwrap();
        assert_eq!(load(&disk), Err(DecodeError::Invalid("founding version").into()));
    }

    #[test]
    fn a_directory_that_lost_it_is_refused() {
        let disk = MemoryDisk::new(1);
        disk.put(TEMPORARY_NAME, vec![1]);
        assert_eq!(load(&disk), Ok(None), "a first start that was cut short");
        disk.put("wal-1.log", vec![1]);
        assert_eq!(load(&disk), Err(ControlFileError::Missing("wal-1.log".into())));
    }

    #[test]
    fn a_crash_leaves_the_old_one_or_the_new_one() {
        let mut seen = [false; 2];
        for seed in 0..200 {
            let disk = MemoryDisk::new(seed);
            store(&disk, &identity(1)).unwrap();
            disk.set_fuse(seed % 5);
            let stored = store(&disk, &identity(2));
            let disk = disk.crash(Crash::Tears);
            let boots = load(&disk).unwrap().unwrap().boots;
            assert!(boots == 2 || stored.is_err());
            seen[boots as usize - 1] = true;
            store(&disk, &identity(3)).unwrap();
            assert_eq!(load(&disk), Ok(Some(identity(3))));
        }
        assert_eq!(seen, [true, true]);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_an_error() {
        let disk = MemoryDisk::new(1);
        store(&disk, &identity(1)).unwrap();
        let intact = disk.bytes(NAME);
        for bit in 0..intact.len() * 8 {
            let mut bytes = intact.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            disk.put(NAME, bytes);
            assert!(matches!(load(&disk), Err(ControlFileError::Damaged(_))), "bit {bit}");
        }
        for length in 0..intact.len() {
            disk.put(NAME, intact[..length].to_vec());
            assert!(matches!(load(&disk), Err(ControlFileError::Damaged(_))), "length {length}");
        }
        disk.put(NAME, vec![0; FILE_BYTES_MAX as usize + 1]);
        assert_eq!(load(&disk), Err(ControlFileError::Damaged("it is too large")));
    }

    #[test]
    fn an_unknown_version_is_told_from_damage() {
        let disk = MemoryDisk::new(1);
        for version in [1, 2, 3, 4, 7] {
            let mut bytes = encode(&identity(1));
            bytes[8] = version;
            let crc = checksum(&bytes[..16], &bytes[HEADER_BYTES..]);
            bytes[16..20].copy_from_slice(&crc.to_le_bytes());
            disk.put(NAME, bytes);
            assert_eq!(load(&disk), Err(ControlFileError::Version(version.into())));
        }
    }

    #[test]
    fn a_directory_of_the_first_version_keeps_its_layout() {
        let bytes = encode(&identity(1));
        assert_eq!(bytes[8..12], [5, 0, 0, 0]);
        assert_eq!(encode(&identity(2))[8..12], [6, 0, 0, 0]);
    }

    #[test]
    fn a_binary_of_other_versions_is_refused_whatever_the_rest_of_the_file_is() {
        let disk = MemoryDisk::new(1);
        let mut body = vec![200, 1];
        body.extend_from_slice(b"a layout of version 200");
        let header = [&MAGIC[..], &[6, 0, 0, 0], &(body.len() as u32).to_le_bytes()].concat();
        let crc = checksum(&header, &body).to_le_bytes();
        disk.put(NAME, [&header[..], &crc, &body].concat());
        let (version, supported) = (ClusterVersion(200), SupportedVersions::OWN);
        assert_eq!(load(&disk), Err(Unsupported::TooOld { version, supported }.into()));
        store(&disk, &identity(1)).unwrap();
        let supported = SupportedVersions { oldest: ClusterVersion(2), newest: ClusterVersion(3) };
        let version = ClusterVersion(1);
        assert_eq!(load_for(&disk, supported), Err(Unsupported::TooNew { version, supported }.into()));
    }
}
