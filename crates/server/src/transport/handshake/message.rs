//! The encoding of handshake messages.
//!
//! ```text
//! magic    8 bytes   "TIDEPEER"
//! length   u16 LE    bytes of the body; the limit depends on the kind
//! crc32c   u32 LE    of the body
//! body               a kind byte, then fixed-width little-endian fields (for joins, see `join`)
//! ```
//!
//! This envelope never changes with the protocol version; otherwise versions could not be
//! negotiated. Bytes after the known fields of a body are ignored: a later version may add fields.

use bytes::{Buf, BufMut, BytesMut};
use tidelock_core::handshake::{HandshakeRefusal, Introduction};
use tidelock_core::starts::ProcessStart;
use tidelock_core::types::NodeId;
use tidelock_core::version::{ClusterVersion, SupportedVersions};
use uuid::Uuid;

use super::super::join::{JOIN_BYTES_MAX, JoinRefusal, JoinRequest, WELCOME_BYTES_MAX, Welcome};
use super::HandshakeError;
use super::refusal::{code_of, of_code};

/// Versions of the peer protocol that this build speaks.
///
/// Version 1 had no nonces: bytes recorded on one connection were accepted on another. Nodes of
/// version 2 cannot decode changes of keys as log entries hold them now.
pub const PROTOCOL_VERSIONS: VersionRange = VersionRange { min: 3, max: 3 };

/// The first version whose messages carry starts and nonces.
pub const FIRST_WITH_NONCES: u16 = 2;

/// Longest body in bytes, except of join messages. A `Hello` has 101 bytes and an address; the rest
/// is room for fields of later versions.
pub const HANDSHAKE_BYTES_MAX: usize = 512;

const MAGIC: &[u8; 8] = b"TIDEPEER";
/// Bytes before a body.
pub(super) const ENVELOPE_BYTES: usize = 14;
const KIND_HELLO: u8 = 1;
const KIND_ACCEPT: u8 = 2;
const KIND_REFUSE: u8 = 3;
const KIND_JOIN: u8 = 4;
const KIND_WELCOME: u8 = 5;
const KIND_JOIN_REFUSED: u8 = 6;
const KIND_CHALLENGE: u8 = 7;

/// Versions from `min` to `max`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// The lowest version that the sender speaks.
    pub min: u16,
    /// The highest version that the sender speaks.
    pub max: u16,
}

impl VersionRange {
    /// The highest version that both sides speak. Both sides compute the same result.
    pub fn common(self, other: VersionRange) -> Option<u16> {
        let highest = self.max.min(other.max);
        (highest >= self.min.max(other.min)).then_some(highest)
    }
}

/// The introduction with which each side of a connection begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The protocol versions that the node speaks.
    pub versions: VersionRange,
    /// What the node claims to be.
    pub identity: Introduction,
    /// Random for each connection; the other side must answer it.
    pub nonce: Uuid,
    /// The nonce of the `Hello` that this one answers; nil in the first one.
    pub answers: Uuid,
    /// The address at which peers reach the node. Earlier builds state none.
    pub address: Option<String>,
}

/// A message that is sent before the first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The introduction of either side.
    Hello(Hello),
    /// The dialer accepts the acceptor's introduction; frames follow.
    Accept {
        /// The version that both will speak.
        version: u16,
        /// The nonce of the message that it answers.
        answers: Uuid,
    },
    /// There will be no link; the sender closes.
    Refuse {
        /// Why there will be no link.
        refusal: HandshakeRefusal,
        /// The nonce of the message that it answers.
        answers: Uuid,
    },
    /// A host that is not a member asks to join.
    Join {
        /// The protocol versions that the host speaks.
        versions: VersionRange,
        /// What the host tells the cluster about itself.
        request: JoinRequest,
        /// Random for each connection; the challenge must answer it.
        nonce: Uuid,
    },
    /// The joining host must answer this before its request is considered.
    Challenge {
        /// Random for each connection; the joining host must answer it.
        nonce: Uuid,
        /// The nonce of the message that it answers.
        answers: Uuid,
    },
    /// The host is a member now; the sender closes.
    Welcome(Welcome),
    /// The host was not admitted; the sender closes.
    JoinRefused(JoinRefusal),
}

impl Message {
    /// The bytes of the whole message.
    ///
    /// # Panics
    /// When it does not [fit](Message::fits).
    pub fn encode(&self) -> Vec<u8> {
        let body = self.encode_body();
        assert!(body.len() <= body_bytes_max(body[0]), "invariant: what is sent, the other side reads");
        let mut out = Vec::with_capacity(ENVELOPE_BYTES + body.len());
        out.put_slice(MAGIC);
        out.put_u16_le(body.len() as u16);
        out.put_u32_le(crc32c::crc32c(&body));
        out.put_slice(&body);
        out
    }

    /// Whether the message is within the limit of its kind. Only join messages can be too long:
    /// they carry lists.
    pub fn fits(&self) -> bool {
        let body = self.encode_body();
        body.len() <= body_bytes_max(body[0])
    }

    fn encode_body(&self) -> Vec<u8> {
        let mut body = vec![];
        match self {
            Message::Hello(Hello { versions, identity, nonce, answers, address }) => {
                body.put_u8(KIND_HELLO);
                body.put_u16_le(versions.min);
                body.put_u16_le(versions.max);
                body.put_slice(identity.cluster.as_bytes());
                body.put_u64_le(identity.node.0);
                body.put_slice(identity.host.as_bytes());
                body.put_u64_le(identity.start.number);
                body.put_slice(identity.start.instance.as_bytes());
                body.put_slice(nonce.as_bytes());
                body.put_slice(answers.as_bytes());
                let SupportedVersions { oldest, newest } = identity.supported;
                for version in [oldest, newest, identity.version] {
                    body.put_u64_le(version.0);
                }
                if let Some(address) = address {
                    body.put_u16_le(address.len() as u16);
                    body.put_slice(address.as_bytes());
                }
            }
            Message::Accept { version, answers } => {
                body.put_u8(KIND_ACCEPT);
                body.put_u16_le(*version);
                body.put_slice(answers.as_bytes());
            }
            Message::Refuse { refusal, answers } => {
                body.put_u8(KIND_REFUSE);
                body.put_u8(code_of(*refusal));
                body.put_slice(answers.as_bytes());
            }
            Message::Join { versions, request, nonce } => {
                body.put_u8(KIND_JOIN);
                request.encode(*versions, *nonce, &mut body);
            }
            Message::Challenge { nonce, answers } => {
                body.put_u8(KIND_CHALLENGE);
                body.put_slice(nonce.as_bytes());
                body.put_slice(answers.as_bytes());
            }
            Message::Welcome(welcome) => {
                body.put_u8(KIND_WELCOME);
                welcome.encode(&mut body);
            }
            Message::JoinRefused(refusal) => {
                body.put_u8(KIND_JOIN_REFUSED);
                refusal.encode(&mut body);
            }
        }
        body
    }

    /// Removes one message from the front of `buffer`, or returns `None` until more bytes have been
    /// read.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Message>, HandshakeError> {
        if buffer.starts_with(b"HTTP/") {
            return Err(HandshakeError::Malformed(
                "an HTTP server answers: nodes reach each other at the addresses of --peer, port 9001 by default, not at \
                 those of --http",
            ));
        }
        let known = buffer.len().min(MAGIC.len());
        if buffer[..known] != MAGIC[..known] {
            return Err(HandshakeError::Malformed("the connection does not begin with the magic bytes"));
        }
        if buffer.len() < ENVELOPE_BYTES {
            return Ok(None);
        }
        let mut envelope = &buffer[MAGIC.len()..ENVELOPE_BYTES];
        let (length, checksum) = (usize::from(envelope.get_u16_le()), envelope.get_u32_le());
        // The kind byte, the first of the body, determines the limit.
        let length_max = match buffer.get(ENVELOPE_BYTES) {
            Some(kind) => body_bytes_max(*kind),
            None => BODY_BYTES_MAX,
        };
        if length > length_max {
            return Err(HandshakeError::Malformed("a message is longer than allowed"));
        }
        if buffer.len() < ENVELOPE_BYTES + length {
            return Ok(None);
        }
        buffer.advance(ENVELOPE_BYTES);
        let body = buffer.split_to(length);
        if crc32c::crc32c(&body) != checksum {
            return Err(HandshakeError::Malformed("a message does not match its checksum"));
        }
        decode_body(&body)
            .map(Some)
            .ok_or(HandshakeError::Malformed("a message is of an unknown kind or too short"))
    }
}

/// Longest body of any kind.
const BODY_BYTES_MAX: usize = WELCOME_BYTES_MAX;

fn body_bytes_max(kind: u8) -> usize {
    match kind {
        KIND_JOIN => JOIN_BYTES_MAX,
        KIND_WELCOME | KIND_JOIN_REFUSED => WELCOME_BYTES_MAX,
        _ => HANDSHAKE_BYTES_MAX,
    }
}

fn decode_body(mut body: &[u8]) -> Option<Message> {
    let body = &mut body;
    match body.try_get_u8().ok()? {
        KIND_HELLO => decode_hello(body).map(Message::Hello),
        KIND_ACCEPT => {
            Some(Message::Accept { version: body.try_get_u16_le().ok()?, answers: decode_uuid(body)? })
        }
        KIND_REFUSE => {
            let refusal = of_code(body.try_get_u8().ok()?);
            // A node that speaks nothing but version 1 refuses without a nonce.
            let answers = if body.is_empty() { Uuid::nil() } else { decode_uuid(body)? };
            Some(Message::Refuse { refusal, answers })
        }
        KIND_JOIN => JoinRequest::decode(body).map(|(versions, request, nonce)| Message::Join {
            versions,
            request,
            nonce,
        }),
        KIND_CHALLENGE => Some(Message::Challenge { nonce: decode_uuid(body)?, answers: decode_uuid(body)? }),
        KIND_WELCOME => Welcome::decode(body).map(Message::Welcome),
        KIND_JOIN_REFUSED => JoinRefusal::decode(body).map(Message::JoinRefused),
        _ => None,
    }
}

/// Decodes a `Hello`. From a node that speaks nothing but version 1, decodes the fields of that
/// version only, so that it can be told why it is refused.
fn decode_hello(body: &mut &[u8]) -> Option<Hello> {
    let versions = VersionRange { min: body.try_get_u16_le().ok()?, max: body.try_get_u16_le().ok()? };
    let cluster = decode_uuid(body)?;
    let node = NodeId(body.try_get_u64_le().ok()?);
    let host = decode_uuid(body)?;
    let nil = Uuid::nil();
    let (mut start, mut nonces) = (ProcessStart { number: 0, instance: nil }, (nil, nil));
    if versions.max >= FIRST_WITH_NONCES {
        start = ProcessStart { number: body.try_get_u64_le().ok()?, instance: decode_uuid(body)? };
        nonces = (decode_uuid(body)?, decode_uuid(body)?);
    }
    let (nonce, answers) = nonces;
    let (supported, version) = decode_release(body)?;
    let is_stated = versions.max >= FIRST_WITH_NONCES && !body.is_empty();
    let address = if is_stated { Some(decode_address(body)?) } else { None };
    let identity = Introduction { cluster, node, host, start, supported, version };
    Some(Hello { versions, identity, nonce, answers, address })
}

/// Decodes what a node says of its release. One without cluster versions says nothing, and is of
/// the first.
fn decode_release(body: &mut &[u8]) -> Option<(SupportedVersions, ClusterVersion)> {
    if body.is_empty() {
        return Some((SupportedVersions::default(), ClusterVersion::FIRST));
    }
    let mut next = || body.try_get_u64_le().ok().map(ClusterVersion);
    Some((SupportedVersions { oldest: next()?, newest: next()? }, next()?))
}

fn decode_address(body: &mut &[u8]) -> Option<String> {
    let length = usize::from(body.try_get_u16_le().ok()?);
    let (address, rest) = body.split_at_checked(length)?;
    *body = rest;
    String::from_utf8(address.to_vec()).ok()
}

fn decode_uuid(body: &mut &[u8]) -> Option<Uuid> {
    Some(Uuid::from_u128(body.try_get_u128().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::refusal::REFUSAL_CODES;
    use super::*;
    use tidelock_core::command::HostInfo;
    use tidelock_core::storage::control_file::KnownHost;

    pub fn identity(node: u64) -> Introduction {
        Introduction {
            cluster: Uuid::from_u128(7),
            node: NodeId(node),
            host: Uuid::from_u128(100 + u128::from(node)),
            start: ProcessStart { number: 6, instance: Uuid::from_u128(200 + u128::from(node)) },
            supported: SupportedVersions { oldest: ClusterVersion(1), newest: ClusterVersion(3) },
            version: ClusterVersion(2),
        }
    }

    pub fn hello(identity: Introduction) -> Hello {
        Hello {
            versions: PROTOCOL_VERSIONS,
            identity,
            nonce: Uuid::from_u128(301),
            answers: Uuid::from_u128(302),
            address: None,
        }
    }

    #[test]
    fn the_highest_common_version_is_spoken() {
        let range = |min, max| VersionRange { min, max };
        for (one, other, common) in [
            (range(1, 1), range(1, 1), Some(1)),
            (range(1, 3), range(2, 5), Some(3)),
            (range(1, 2), range(3, 4), None),
            (range(2, 9), range(4, 5), Some(5)),
        ] {
            assert_eq!(one.common(other), common);
            assert_eq!(other.common(one), common);
        }
    }

    fn messages() -> Vec<Message> {
        let refusals = REFUSAL_CODES.iter().map(|(refusal, _)| *refusal);
        let refusals = refusals
            .chain([HandshakeRefusal::Other(250)])
            .map(|refusal| Message::Refuse { refusal, answers: Uuid::from_u128(9) });
        let nameless = JoinRequest { cluster_name: None, data_shards: None, ..join_request(0) };
        let join = [join_request(64), nameless].map(|request| Message::Join {
            versions: VersionRange { min: 1, max: 258 },
            request,
            nonce: Uuid::from_u128(8),
        });
        let join_refusals =
            [JoinRefusal::NoLeader, JoinRefusal::Busy, JoinRefusal::Refused("no \u{2014} never".into())]
                .map(Message::JoinRefused);
        [
            Message::Hello(hello(identity(5))),
            Message::Hello(Hello { address: Some("kv-1.example:9001".into()), ..hello(identity(5)) }),
            Message::Accept { version: 513, answers: Uuid::from_u128(5) },
            Message::Challenge { nonce: Uuid::from_u128(3), answers: Uuid::from_u128(4) },
            Message::Welcome(welcome(1000)),
        ]
        .into_iter()
        .chain(refusals)
        .chain(join)
        .chain(join_refusals)
        .collect()
    }

    fn join_request(tags: usize) -> JoinRequest {
        let host = HostInfo {
            node: NodeId(0),
            uuid: Uuid::from_u128(77),
            peer_address: "10.0.0.4:9001".into(),
            http_address: "10.0.0.4:8001".into(),
            resp_address: "10.0.0.4:7001".into(),
            resp_cluster_address: "10.0.0.4:7101".into(),
            tags: (0..tags).map(|tag| (format!("{tag:03}"), "v".repeat(252))).collect(),
            release: tidelock_core::version::Release::default(),
        };
        JoinRequest { cluster_name: Some("blue".into()), data_shards: Some(7), host }
    }

    fn welcome(hosts: u64) -> Welcome {
        let host = |node| {
            let peer_address = format!("10.10.{}.{}:9001", node / 250, node % 250);
            (NodeId(node), KnownHost { uuid: Uuid::from_u128(node.into()), peer_address })
        };
        Welcome {
            cluster: Uuid::from_u128(7),
            cluster_name: "blue".into(),
            node: NodeId(300),
            replica: tidelock_core::types::ReplicaId(19),
            founders: vec!["10.0.0.1:9001".into(), "[::1]:9001".into()],
            data_shards: 512,
            replicas: (hosts > 1).then_some(3),
            shard_tags: [("owner".to_owned(), "us".to_owned())].into_iter().filter(|_| hosts > 1).collect(),
            automatic_division: hosts > 1,
            founding_version: ClusterVersion(if hosts > 1 { 3 } else { 1 }),
            version: ClusterVersion(3),
            hosts: (1..=hosts).map(host).collect(),
        }
    }

    #[test]
    fn what_does_not_fit_is_known_before_it_is_sent() {
        let join = |tags| Message::Join {
            versions: PROTOCOL_VERSIONS,
            request: join_request(tags),
            nonce: Uuid::nil(),
        };
        assert!(join(64).fits() && !join(200).fits());
        assert!(Message::Welcome(welcome(1000)).fits() && !Message::Welcome(welcome(10_000)).fits());
        let long = "\u{2014}".repeat(100_000);
        let cut = Message::JoinRefused(JoinRefusal::Refused(long)).encode();
        let mut buffer = BytesMut::from(&cut[..]);
        let Some(Message::JoinRefused(JoinRefusal::Refused(text))) = Message::decode(&mut buffer).unwrap()
        else {
            panic!("a refusal")
        };
        assert_eq!(text.chars().count(), 1_000);
    }

    #[test]
    fn each_kind_has_its_longest_body() {
        for (kind, longest) in
            [(KIND_HELLO, HANDSHAKE_BYTES_MAX), (KIND_JOIN, JOIN_BYTES_MAX), (9, HANDSHAKE_BYTES_MAX)]
        {
            for (length, is_refused) in [(longest, false), (longest + 1, true)] {
                let mut buffer = BytesMut::from(&MAGIC[..]);
                buffer.put_u16_le(length as u16);
                buffer.put_u32_le(0);
                assert!(matches!(Message::decode(&mut buffer), Ok(None)), "the kind is not there yet");
                buffer.put_u8(kind);
                assert_eq!(Message::decode(&mut buffer).is_err(), is_refused, "{kind}, {length}");
            }
        }
    }

    #[test]
    fn a_welcome_that_nobody_could_start_from_is_refused() {
        let whole = welcome(2);
        for broken in [
            Welcome { cluster: Uuid::nil(), ..whole.clone() },
            Welcome { node: NodeId(0), ..whole.clone() },
            Welcome { founders: vec![], ..whole.clone() },
            Welcome { data_shards: 0, ..whole.clone() },
            Welcome { cluster_name: String::new(), ..whole.clone() },
            Welcome { data_shards: 513, ..whole },
        ] {
            let mut buffer = BytesMut::from(&Message::Welcome(broken).encode()[..]);
            assert!(Message::decode(&mut buffer).is_err());
        }
    }

    #[test]
    fn messages_of_joining_that_are_cut_short_are_refused() {
        for message in [
            Message::Join {
                versions: PROTOCOL_VERSIONS,
                request: join_request(3),
                nonce: Uuid::from_u128(1),
            },
            Message::Welcome(welcome(3)),
            Message::JoinRefused(JoinRefusal::Refused("no".into())),
        ] {
            let body = message.encode().split_off(ENVELOPE_BYTES);
            // Where the welcome of a release without versions ends, of which it sent none.
            let version = ClusterVersion::FIRST;
            let whole = Welcome { founding_version: version, version, ..welcome(3) };
            let whole = Message::Welcome(whole).encode().len() - ENVELOPE_BYTES - 2;
            let is_whole = |length| matches!(message, Message::Welcome(_)) && length == whole;
            for length in (0..body.len()).filter(|length| !is_whole(*length)) {
                assert_eq!(decode_body(&body[..length]), None, "{length}");
            }
            assert_eq!(decode_body(&[&body[..], b"of a later version"].concat()), Some(message));
        }
    }

    #[test]
    fn messages_round_trip_byte_by_byte_and_keep_what_follows() {
        for message in messages() {
            let bytes = message.encode();
            let mut buffer = BytesMut::new();
            for byte in &bytes[..bytes.len() - 1] {
                buffer.put_u8(*byte);
                assert!(matches!(Message::decode(&mut buffer), Ok(None)));
            }
            buffer.put_slice(&[bytes[bytes.len() - 1], 1, 2, 3]);
            assert_eq!(Message::decode(&mut buffer).unwrap(), Some(message));
            assert_eq!(&buffer[..], [1, 2, 3]);
        }
    }

    #[test]
    fn the_layout_of_version_3_stays() {
        let hello = Message::Hello(hello(identity(5))).encode();
        assert_eq!(&hello[..10], b"TIDEPEER\x7d\0");
        assert_eq!(&hello[14..19], [1, 3, 0, 3, 0]);
        assert_eq!(&hello[19..35], Uuid::from_u128(7).as_bytes());
        assert_eq!(&hello[35..43], [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&hello[43..59], Uuid::from_u128(105).as_bytes());
        assert_eq!(&hello[59..67], [6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&hello[67..83], Uuid::from_u128(205).as_bytes());
        assert_eq!(&hello[83..99], Uuid::from_u128(301).as_bytes());
        assert_eq!(&hello[99..115], Uuid::from_u128(302).as_bytes());
        assert_eq!(hello[115..], [1u64, 3, 2].map(u64::to_le_bytes).concat());
        // Releases without cluster versions end before them.
        let old = decode_body(&hello[14..115]);
        let Some(Message::Hello(Hello { identity: old, .. })) = old else { panic!("an introduction") };
        assert_eq!((old.supported, old.version), Default::default());
        let stated = Hello { address: Some("a:1".into()), ..self::hello(identity(5)) };
        assert_eq!(&Message::Hello(stated).encode()[139..], b"\x03\0a:1");
    }

    #[test]
    fn messages_of_version_1_are_understood_well_enough_to_refuse_them() {
        let mut introduction = Message::Hello(hello(identity(5))).encode().split_off(ENVELOPE_BYTES);
        introduction.truncate(45);
        introduction[1..5].copy_from_slice(&[1, 0, 1, 0]);
        let Some(Message::Hello(hello)) = decode_body(&introduction) else { panic!("an introduction") };
        assert_eq!((hello.versions.max, hello.identity.node), (1, NodeId(5)));
        introduction[3] = 2;
        assert_eq!(decode_body(&introduction), None, "version 2 has more to say");

        let request = JoinRequest { data_shards: None, ..join_request(1) };
        let versions = VersionRange { min: 1, max: 1 };
        let mut join = vec![KIND_JOIN];
        request.encode(versions, Uuid::nil(), &mut join);
        let length_of_version_1 = join.len() - 17;
        join.truncate(length_of_version_1);
        assert_eq!(decode_body(&join), Some(Message::Join { versions, request, nonce: Uuid::nil() }));

        let refusal = HandshakeRefusal::UnsupportedVersion;
        let refuse = Some(Message::Refuse { refusal, answers: Uuid::nil() });
        assert_eq!(decode_body(&[KIND_REFUSE, code_of(refusal)]), refuse);
    }

    #[test]
    fn fields_of_a_later_version_are_ignored() {
        let hello = Message::Hello(Hello { address: Some("a:1".into()), ..hello(identity(5)) });
        let mut body = hello.encode().split_off(ENVELOPE_BYTES);
        body.extend_from_slice(b"more to come");
        let mut buffer = BytesMut::from(&MAGIC[..]);
        buffer.put_u16_le(body.len() as u16);
        buffer.put_u32_le(crc32c::crc32c(&body));
        buffer.put_slice(&body);
        assert_eq!(Message::decode(&mut buffer).unwrap(), Some(hello));
    }

    #[test]
    fn any_flipped_bit_is_refused_or_waits_for_more() {
        let bytes = Message::Hello(hello(identity(5))).encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = BytesMut::from(&bytes[..]);
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Message::decode(&mut flipped), Err(_) | Ok(None)), "bit {bit}");
        }
    }

    #[test]
    fn strangers_are_recognised_at_their_first_byte() {
        let mut http = BytesMut::from(&b"G"[..]);
        assert!(matches!(Message::decode(&mut http), Err(HandshakeError::Malformed(_))));
        let mut server = BytesMut::from(&b"HTTP/1.1 400 Bad Request\r\n"[..]);
        let mistaken = Message::decode(&mut server).unwrap_err().to_string();
        assert!(mistaken.contains("an HTTP server answers") && mistaken.contains("--peer"), "{mistaken}");
        let mut long = BytesMut::from(&MAGIC[..]);
        long.put_slice(&[0xff; 6]);
        long.put_u8(KIND_HELLO);
        assert!(matches!(Message::decode(&mut long), Err(HandshakeError::Malformed(_))));
    }
}
