//! What nodes send each other: frames and their payloads, handshakes, requests to join and to be
//! enrolled.

use bytes::{Buf, Bytes, BytesMut};
use tidelock_core::command::HostInfo;
use tidelock_core::formats::FramePayload;
use tidelock_core::handshake::{HandshakeRefusal, Introduction};
use tidelock_core::limits::PEER_FRAME_BYTES_MAX;
use tidelock_core::starts::ProcessStart;
use tidelock_core::storage::control_file::KnownHost;
use tidelock_core::types::{NodeId, ReplicaId};
use tidelock_core::version::{ClusterVersion, Release, SupportedVersions};
use tidelock_server::token::{BearerToken, JoinTokenText};
use tidelock_server::transport::enrol::{self, EnrolRefusal, EnrolRequest, Enrolment};
use tidelock_server::transport::frame::{FRAME_HEADER_BYTES, FrameBatch, FrameDecoder, READ_BYTES};
use tidelock_server::transport::handshake::{
    FIRST_WITH_NONCES, Hello, Message, PROTOCOL_VERSIONS, VersionRange,
};
use tidelock_server::transport::join::{JoinRefusal, JoinRequest, Welcome};
use uuid::Uuid;

use super::{Target, commands};

pub const TARGETS: &[Target] = &[
    Target { name: "peer-payloads", run: payloads, seeds: payload_seeds },
    Target { name: "peer-frames", run: frames, seeds: frame_seeds },
    Target { name: "peer-handshakes", run: handshakes, seeds: handshake_seeds },
    Target { name: "peer-enrolments", run: enrolments, seeds: enrolment_seeds },
];

/// A payload is the same after it was encoded.
fn payloads(input: &[u8]) {
    let Ok(payload) = FramePayload::decode(&Bytes::copy_from_slice(input)) else { return };
    let again = Bytes::from(payload.encode());
    assert_eq!(FramePayload::decode(&again), Ok(payload));
}

fn payload_seeds() -> Vec<Vec<u8>> {
    let mut requests = vec![2];
    for (number, write) in (1..).zip(commands::sample_writes()) {
        requests.extend_from_slice(&[1, number, 1]);
        write.encode(&mut requests);
    }
    vec![
        requests,
        // Raft: a heartbeat of shard 3, and an append with an empty entry.
        vec![1, 3, 3, 0, 1, 2, 7, 0, 0, 5, 0, 0, 0, 0, 0, 0],
        vec![1, 3, 1, 0, 1, 2, 7, 6, 41, 40, 0, 0, 0, 0, 0, 1, 7, 42, 0],
        // Outcomes: registered, joined, expired, a denial, a transfer.
        vec![2, 2, 5, 6, 2, 6, 9, 2, 3, 2, 7, 18, 4, 2, 8, 11, 1, 3, 1, 2],
        // Reads: of a key, a page, a scan, a count; answers: no value, a value, a page, a count.
        vec![8, 1, 7, 2, 0, 1, 1, 1, b'k', 1, 8, 2, 0, 0, 2, 1, b'a', 0, 5, 1, 1, 9, 2, 0, 0, 5],
        vec![8, 2, 7, 2, 1, 2, 7, 2, 2, 4, 1, b'v', 0, 2, 7, 2, 8, 5, 2, 7, 2, 0],
        // The state of a disk with a position, hosts, a part of a snapshot, a receipt.
        vec![3, 0, 1, 7, 41, 40, 1, 41, 9],
        [&[7, 1, 10][..], b"10.0.0.1:9", &[2, 0]].concat(),
        vec![4, 1, 41, 7, 0, 2, b'x', b'y'],
        vec![5, 1, 41, 7, 100],
        // Removed, clock, version, load, a publication with an acknowledgement.
        vec![6],
        vec![9, 5, 1, 3, 4],
        vec![10, 8],
        vec![11, 3, 1, 100, 2, 50],
        vec![12, 1, 1, b'c', 2, b'h', b'i', 2, 7],
    ]
}

/// Bytes are frames or an error, in pieces as in one, and a length that is only announced reserves
/// no memory. What is framed, is read.
fn frames(input: &[u8]) {
    let whole = decoded(input, input.len().max(1));
    assert_eq!(decoded(input, 3), whole);
    let payloads: Vec<Bytes> =
        input.chunks(11).map(Bytes::copy_from_slice).filter(|payload| !payload.is_empty()).collect();
    let mut chain = 77;
    let mut batch = FrameBatch::new(&payloads, &mut chain);
    let wire = batch.copy_to_bytes(batch.remaining());
    for piece_bytes in [1, 5, wire.len().max(1)] {
        assert_eq!(decoded(&wire, piece_bytes), (payloads.clone(), None));
    }
}

/// The payloads up to the first error, and that error.
fn decoded(wire: &[u8], piece_bytes: usize) -> (Vec<Bytes>, Option<String>) {
    let (mut decoder, mut payloads) = (FrameDecoder::new(BytesMut::new(), 77), Vec::new());
    for piece in wire.chunks(piece_bytes) {
        let buffer = decoder.read_buffer();
        let most = (2 * (buffer.len() + FRAME_HEADER_BYTES)).max(READ_BYTES) * 2;
        assert!(buffer.capacity() <= most.min(2 * PEER_FRAME_BYTES_MAX), "{} bytes", buffer.capacity());
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next_payload() {
                Ok(Some(payload)) => payloads.push(payload),
                Ok(None) => break,
                Err(error) => return (payloads, Some(error.to_string())),
            }
        }
    }
    (payloads, None)
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let payloads = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
    let mut batch = FrameBatch::new(&payloads, &mut 77);
    vec![batch.copy_to_bytes(batch.remaining()).to_vec(), vec![0, 0, 0, 4, 1, 2, 3, 4], b"a".repeat(40)]
}

/// The input as the bytes of a connection, in pieces as in one; and as the body of a message, which
/// is read as it was written.
fn handshakes(input: &[u8]) {
    let whole = message(input, input.len().max(1));
    assert_eq!(message(input, 1), whole, "in pieces");
    let mut wire = b"TIDEPEER".to_vec();
    wire.extend_from_slice(&(input.len() as u16).to_le_bytes());
    wire.extend_from_slice(&crc32c::crc32c(input).to_le_bytes());
    wire.extend_from_slice(input);
    let Ok(Some(found)) = message(&wire, wire.len()) else { return };
    // Nodes of the first version are only told why they are refused; nothing is written for them.
    let is_old = match &found {
        Message::Hello(Hello { versions, .. }) | Message::Join { versions, .. } => {
            versions.max < FIRST_WITH_NONCES
        }
        _ => false,
    };
    if is_old || !found.fits() {
        return;
    }
    let written = found.encode();
    let again = message(&written, written.len()).expect("it was written").expect("and is complete");
    // A reason that is too long is shortened when it is written.
    if !matches!(found, Message::JoinRefused(_)) {
        assert_eq!(again, found);
    }
    assert_eq!(again.encode(), written);
}

/// The first message. Why there is none depends on how much has arrived, so it is left out.
fn message(wire: &[u8], piece_bytes: usize) -> Result<Option<Message>, ()> {
    let mut buffer = BytesMut::new();
    for piece in wire.chunks(piece_bytes) {
        buffer.extend_from_slice(piece);
        if let Some(message) = Message::decode(&mut buffer).map_err(drop)? {
            return Ok(Some(message));
        }
    }
    Ok(None)
}

fn sample_messages() -> Vec<Message> {
    let uuid = Uuid::from_u128;
    let supported = SupportedVersions { oldest: ClusterVersion(1), newest: ClusterVersion(3) };
    let start = ProcessStart { number: 6, instance: uuid(9) };
    let (cluster, host, version) = (uuid(7), uuid(8), ClusterVersion(2));
    let identity = Introduction { cluster, node: NodeId(2), host, start, supported, version };
    let hello = |address: Option<&str>| {
        let (versions, nonce, answers) = (PROTOCOL_VERSIONS, uuid(1), uuid(2));
        Message::Hello(Hello { versions, identity, nonce, answers, address: address.map(Into::into) })
    };
    let info = HostInfo {
        node: NodeId(0),
        uuid: host,
        peer_address: "10.0.0.1:9001".into(),
        http_address: "10.0.0.1:8001".into(),
        resp_address: "10.0.0.1:7001".into(),
        resp_cluster_address: String::new(),
        tags: [("geo:zone".into(), "a".into())].into(),
        release: Release::default(),
    };
    let request = JoinRequest { cluster_name: Some("blue".into()), data_shards: Some(4), host: info };
    let known = KnownHost { uuid: host, peer_address: "10.0.0.1:9001".into() };
    let welcome = Welcome {
        cluster,
        cluster_name: "blue".into(),
        node: NodeId(4),
        replica: ReplicaId(9),
        founders: vec!["10.0.0.1:9001".into()],
        data_shards: 4,
        replicas: Some(3),
        shard_tags: [("owner".into(), "us".into())].into(),
        automatic_division: true,
        founding_version: ClusterVersion::NEWEST,
        version: ClusterVersion::NEWEST,
        hosts: [(NodeId(1), known)].into(),
    };
    vec![
        hello(None),
        hello(Some("10.0.0.1:9001")),
        Message::Accept { version: 3, answers: uuid(1) },
        Message::Refuse { refusal: HandshakeRefusal::Removed, answers: uuid(1) },
        Message::Join { versions: VersionRange { min: 2, max: 3 }, request, nonce: uuid(5) },
        Message::Challenge { nonce: uuid(1), answers: uuid(2) },
        Message::Welcome(welcome),
        Message::JoinRefused(JoinRefusal::Refused("why".into())),
    ]
}

/// Whole messages, and their bodies.
fn handshake_seeds() -> Vec<Vec<u8>> {
    let messages: Vec<Vec<u8>> = sample_messages().iter().map(Message::encode).collect();
    let bodies: Vec<Vec<u8>> = messages.iter().map(|message| message[14..].to_vec()).collect();
    messages.into_iter().chain(bodies).collect()
}

/// Requests for a certificate, and answers, are the same after they were encoded. The checksum of
/// the token in a request is corrected.
fn enrolments(input: &[u8]) {
    let mut request = input.to_vec();
    if let Some(token) = request.get_mut(2..) {
        crate::checksums::token(token, JOIN_TOKEN_CHECKED_BYTES);
    }
    for body in [input, &request] {
        if let Ok(request) = EnrolRequest::decode(body) {
            assert_eq!(EnrolRequest::decode(&request.encode()), Ok(request));
        }
    }
    if let Ok(answer) = enrol::decode_answer(input) {
        assert_eq!(enrol::decode_answer(&enrol::encode_answer(&answer)), Ok(answer));
    }
}

/// Bytes of a join token before its checksum.
pub const JOIN_TOKEN_CHECKED_BYTES: usize = 4 + 16 + 44 + 44;

fn enrolment_seeds() -> Vec<Vec<u8>> {
    let secret = "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk";
    let checked = format!("tdl_0000000000000007_{secret}");
    let token =
        BearerToken::parse(format!("{checked}_{:08x}", crc32c::crc32c(checked.as_bytes())).as_bytes());
    let token = JoinTokenText { token: token.expect("a token"), authority: [1; 32] };
    let request = EnrolRequest {
        token,
        host: Uuid::from_u128(7),
        names: vec!["node-1".into(), "10.0.0.1".into()],
        signing_request: vec![0x30, 0x03, 1, 2, 3],
    };
    let answers = [
        Ok(Enrolment { certificate: b"PEM".to_vec(), authorities: b"PEM PEM".to_vec() }),
        Err(EnrolRefusal::Refused("why".into())),
        Err(EnrolRefusal::NoLeader),
    ];
    let mut seeds = vec![request.encode()];
    seeds.extend(answers.iter().map(enrol::encode_answer));
    seeds
}
