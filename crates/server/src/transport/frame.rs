//! The encoding of payloads on a peer connection after its handshake.
//!
//! ```text
//! length   u32 LE   bytes of the payload, 1 to PEER_FRAME_BYTES_MAX
//! crc32c   u32 LE   of the payload, continued from that of the previous frame
//! payload
//! ```
//!
//! The checksums of one direction form a chain that is seeded with the nonces of the connection
//! ([`FrameChains`]). So a frame is valid only on its connection and in its position: neither a
//! recorded frame nor one after an omitted frame is accepted.
//!
//! Owns the layout and its verification; owns no socket and interprets no message. Invariants: a
//! payload leaves the decoder only after its checksum was verified. The decoder's memory follows
//! the bytes received, never an announced length.
//!
//! An empty payload is refused: no message is empty, and a run of zero bytes would otherwise be a
//! valid frame.
//!
//! Payloads share the buffer that they were read into, so that no byte is copied on the way to the
//! core. One small payload that is kept therefore keeps up to [`READ_BYTES`] allocated: code that
//! stores bytes copies them.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tidelock_core::limits::PEER_FRAME_BYTES_MAX;
use uuid::Uuid;

/// Bytes before each payload.
pub const FRAME_HEADER_BYTES: usize = 8;

/// Least capacity offered to one read, in bytes: large enough that a busy link reads hundreds of
/// small messages per call.
pub const READ_BYTES: usize = 64 << 10;

/// Payloads up to this size are copied after their header; larger ones are written from where they
/// are. Below it a copy is cheaper than another element in a vectored write.
const COALESCE_BYTES_MAX: usize = 4 << 10;

/// Why a connection's bytes are not frames. The stream is unusable from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length of zero or over the limit.
    #[error("a frame claims {0} bytes; 1 to {PEER_FRAME_BYTES_MAX} are allowed")]
    Length(u32),
    /// The payload does not match its checksum.
    #[error("a frame of {0} bytes does not match its checksum")]
    Checksum(usize),
}

/// The checksums of the last frames in both directions or, before the first frames, their seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameChains {
    /// Of frames that this side sends.
    pub sent: u32,
    /// Of frames that this side receives.
    pub received: u32,
}

impl FrameChains {
    /// The seeds at the beginning of a connection. The order of the nonces depends on the
    /// direction, so that frames reflected to their sender are invalid too.
    pub fn of(own: Uuid, other: Uuid) -> FrameChains {
        let chain =
            |one: Uuid, two: Uuid| crc32c::crc32c_append(crc32c::crc32c(one.as_bytes()), two.as_bytes());
        FrameChains { sent: chain(own, other), received: chain(other, own) }
    }
}

/// Splits the bytes of a connection into verified payloads.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: BytesMut,
    chain: u32,
}

impl FrameDecoder {
    /// Starts with bytes that were read already, such as those after a handshake, and with
    /// [`FrameChains::received`].
    pub fn new(buffer: BytesMut, chain: u32) -> Self {
        FrameDecoder { buffer, chain }
    }

    /// The next payload, or `None` until more bytes have been read.
    pub fn next_payload(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = self.announced()? else { return Ok(None) };
        if self.buffer.len() < FRAME_HEADER_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(4);
        let checksum = self.buffer.get_u32_le();
        let payload = self.buffer.split_to(length).freeze();
        if crc32c::crc32c_append(self.chain, &payload) != checksum {
            return Err(FrameError::Checksum(length));
        }
        self.chain = checksum;
        Ok(Some(payload))
    }

    /// The buffer for the next read. Its capacity grows with the bytes received: it at most doubles
    /// the bytes of the current frame, so an attacker who announces 64 MiB must send half of that
    /// before the rest is allocated.
    pub fn read_buffer(&mut self) -> &mut BytesMut {
        let room = match self.announced() {
            Ok(Some(length)) => {
                let missing = (FRAME_HEADER_BYTES + length).saturating_sub(self.buffer.len());
                missing.min(self.buffer.len()).max(READ_BYTES)
            }
            Ok(None) | Err(_) => READ_BYTES,
        };
        if self.buffer.capacity() - self.buffer.len() < room {
            self.buffer.reserve(room);
        }
        &mut self.buffer
    }

    /// Whether a part of a frame waits for the rest.
    pub fn is_inside_frame(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The payload length of the first frame, as soon as it can be read: an impossible one is
    /// refused before anything is stored for it.
    fn announced(&self) -> Result<Option<usize>, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*prefix);
        if length == 0 || length as usize > PEER_FRAME_BYTES_MAX {
            return Err(FrameError::Length(length));
        }
        Ok(Some(length as usize))
    }
}

/// Encoded frames for one write; a [`Buf`], so that a vectored write takes as many pieces at once
/// as it can.
#[derive(Debug, Default)]
pub struct FrameBatch {
    pieces: VecDeque<Bytes>,
    remaining: usize,
}

impl FrameBatch {
    /// Encodes `payloads`, each of 1 to [`PEER_FRAME_BYTES_MAX`] bytes. `chain` is
    /// [`FrameChains::sent`], and is updated.
    pub fn new(payloads: &[Bytes], chain: &mut u32) -> Self {
        let copied = payloads.iter().map(|payload| FRAME_HEADER_BYTES + copied_bytes(payload)).sum();
        let mut small = BytesMut::with_capacity(copied);
        let mut batch = FrameBatch::default();
        for payload in payloads {
            assert_valid_payload(payload);
            small.put_u32_le(payload.len() as u32);
            *chain = crc32c::crc32c_append(*chain, payload);
            small.put_u32_le(*chain);
            if copied_bytes(payload) > 0 {
                small.put_slice(payload);
            } else {
                batch.push(small.split().freeze());
                batch.push(payload.clone());
            }
        }
        batch.push(small.freeze());
        batch
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.remaining += piece.len();
            self.pieces.push_back(piece);
        }
    }
}

impl Buf for FrameBatch {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.remaining, "invariant: nobody consumes more than there is");
        self.remaining -= count;
        let mut left = count;
        while left > 0 {
            let front = self.pieces.front_mut().expect("invariant: pieces hold the remaining bytes");
            if left < front.len() {
                front.advance(left);
                return;
            }
            left -= front.len();
            self.pieces.pop_front();
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.len().min(self.pieces.len());
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
        }
        filled
    }
}

fn copied_bytes(payload: &Bytes) -> usize {
    if payload.len() <= COALESCE_BYTES_MAX { payload.len() } else { 0 }
}

/// Panics on a payload that the receiver would refuse. The core bounds what it sends, so this is a
/// bug. It should show here rather than as a link that repeatedly ends.
pub fn assert_valid_payload(payload: &Bytes) {
    assert!(
        !payload.is_empty() && payload.len() <= PEER_FRAME_BYTES_MAX,
        "invariant: a payload has 1 to {PEER_FRAME_BYTES_MAX} bytes, this one has {}",
        payload.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: u32 = 77;

    fn wire(payloads: &[Bytes]) -> Vec<u8> {
        let mut batch = FrameBatch::new(payloads, &mut CHAIN.clone());
        let mut out = vec![];
        while batch.has_remaining() {
            // An odd stride crosses every boundary between pieces.
            let count = batch.chunk().len().min(7);
            out.extend_from_slice(&batch.chunk()[..count]);
            batch.advance(count);
        }
        out
    }

    fn payloads() -> Vec<Bytes> {
        [1, 7, COALESCE_BYTES_MAX, COALESCE_BYTES_MAX + 1, 3, READ_BYTES * 3, 2]
            .iter()
            .enumerate()
            .map(|(fill, &length)| Bytes::from(vec![fill as u8; length]))
            .collect()
    }

    #[test]
    fn payloads_survive_any_fragmentation() {
        let sent = payloads();
        let wire = wire(&sent);
        for fragment in [1, 3, 8, 1000, wire.len()] {
            let mut decoder = FrameDecoder::new(BytesMut::new(), CHAIN);
            let mut received = vec![];
            for bytes in wire.chunks(fragment) {
                decoder.read_buffer().extend_from_slice(bytes);
                while let Some(payload) = decoder.next_payload().unwrap() {
                    received.push(payload);
                }
            }
            assert!(received == sent, "fragments of {fragment}");
            assert!(!decoder.is_inside_frame());
        }
    }

    #[test]
    fn a_batch_offers_its_pieces_together() {
        let batch = FrameBatch::new(&payloads(), &mut CHAIN.clone());
        let mut slices = [IoSlice::new(&[]); 16];
        let filled = batch.chunks_vectored(&mut slices);
        // Three small payloads and the fourth's header, the fourth, the fifth and the sixth's
        // header, the sixth, the seventh.
        assert_eq!(filled, 5);
        assert_eq!(slices[..filled].iter().map(|slice| slice.len()).sum::<usize>(), batch.remaining());
    }

    #[test]
    fn impossible_lengths_are_refused_as_soon_as_they_are_read() {
        for length in [0, PEER_FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
            let mut decoder = FrameDecoder::new(BytesMut::from(&length.to_le_bytes()[..]), CHAIN);
            assert_eq!(decoder.next_payload(), Err(FrameError::Length(length)));
        }
        let mut decoder =
            FrameDecoder::new(BytesMut::from(&(PEER_FRAME_BYTES_MAX as u32).to_le_bytes()[..]), CHAIN);
        assert_eq!(decoder.next_payload(), Ok(None));
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let wire = wire(&[Bytes::from_static(b"payload")]);
        for bit in 32..wire.len() * 8 {
            let mut flipped = wire.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mut decoder = FrameDecoder::new(BytesMut::from(&flipped[..]), CHAIN);
            assert_eq!(decoder.next_payload(), Err(FrameError::Checksum(7)), "bit {bit}");
        }
    }

    #[test]
    fn frames_are_valid_on_their_connection_and_in_their_place_only() {
        let sent = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        let wire = wire(&sent);
        let first = FRAME_HEADER_BYTES + 3;
        let received = |bytes: &[u8], chain| {
            let mut decoder = FrameDecoder::new(BytesMut::from(bytes), chain);
            let mut payloads = vec![];
            while let Ok(Some(payload)) = decoder.next_payload() {
                payloads.push(payload);
            }
            payloads
        };
        assert_eq!(received(&wire, CHAIN), sent);
        assert!(received(&wire, CHAIN + 1).is_empty(), "of another connection");
        assert!(received(&wire[first..], CHAIN).is_empty(), "the one before it was left out");
        assert_eq!(received(&[&wire[..first], &wire[..]].concat(), CHAIN), sent[..1], "sent again");
        let (own, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let chains = FrameChains::of(own, other);
        assert_eq!(chains.sent, FrameChains::of(other, own).received);
        assert_ne!(chains.sent, chains.received, "what comes back to its sender is no frame");
    }

    #[test]
    fn memory_follows_what_arrived() {
        let mut decoder =
            FrameDecoder::new(BytesMut::from(&(PEER_FRAME_BYTES_MAX as u32).to_le_bytes()[..]), CHAIN);
        for arrived in [4, READ_BYTES, 1 << 20, 8 << 20] {
            let buffer = decoder.read_buffer();
            buffer.resize(arrived, 1);
            assert!(decoder.read_buffer().capacity() <= 4 * arrived.max(READ_BYTES), "after {arrived}");
        }
    }

    #[test]
    #[should_panic(expected = "a payload has 1 to")]
    fn an_empty_payload_is_a_bug_of_the_sender() {
        FrameBatch::new(&[Bytes::new()], &mut CHAIN.clone());
    }
}
