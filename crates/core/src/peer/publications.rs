//! Publications between nodes, and the acknowledgements by which a sender learns how many bytes are
//! on their way.

use alloc::vec::Vec;
use bytes::Bytes;

use crate::codec::{self, DecodeError, Decoder};
use crate::command::Publication;

const TAG_PUBLICATION: u8 = 1;
const TAG_RECEIVED: u8 = 2;

/// One message of a [`KIND_PUBLICATIONS`](super::KIND_PUBLICATIONS) payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PublicationMessage {
    /// A client of the sender has published it.
    Publication(Publication),
    /// The sender has received this many more bytes of publications through this link, as
    /// [`Publication::link_bytes`] counts them.
    Received(u64),
}

/// Appends a publication.
pub(crate) fn put_publication(out: &mut Vec<u8>, publication: &Publication) {
    out.push(TAG_PUBLICATION);
    codec::put_bytes(out, &publication.channel);
    codec::put_bytes(out, &publication.message);
}

/// Appends an acknowledgement.
pub(crate) fn put_received(out: &mut Vec<u8>, bytes: u64) {
    out.push(TAG_RECEIVED);
    codec::put_varint(out, bytes);
}

/// Reads the next message of a payload.
pub(crate) fn publication_message(
    decoder: &mut Decoder<'_>,
    payload: &Bytes,
) -> Result<PublicationMessage, DecodeError> {
    match decoder.u8()? {
        TAG_PUBLICATION => {
            let (channel, message) = (decoder.shared(payload)?, decoder.shared(payload)?);
            let publication = Publication { channel, message };
            if publication.validate().is_err() {
                return Err(DecodeError::Invalid("publication"));
            }
            Ok(PublicationMessage::Publication(publication))
        }
        TAG_RECEIVED => Ok(PublicationMessage::Received(decoder.varint()?)),
        _ => Err(DecodeError::UnknownTag("publication")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{CHANNEL_BYTES_MAX, MESSAGE_BYTES_MAX};

    fn publication(channel_bytes: usize, message_bytes: usize) -> Publication {
        Publication {
            channel: alloc::vec![7; channel_bytes].into(),
            message: alloc::vec![8; message_bytes].into(),
        }
    }

    fn encoded(publication: &Publication) -> Bytes {
        let mut out = Vec::new();
        put_publication(&mut out, publication);
        out.into()
    }

    fn decode(bytes: &Bytes) -> Result<PublicationMessage, DecodeError> {
        publication_message(&mut Decoder::new(bytes), bytes)
    }

    #[test]
    fn messages_round_trip_and_every_cut_is_noticed() {
        for publication in
            [publication(1, 0), publication(CHANNEL_BYTES_MAX, MESSAGE_BYTES_MAX), publication(3, 200)]
        {
            let bytes = encoded(&publication);
            let is_long = bytes.len() > 1_000;
            assert_eq!(decode(&bytes), Ok(PublicationMessage::Publication(publication)));
            for end in (0..bytes.len()).step_by(if is_long { 4_096 } else { 1 }) {
                assert!(decode(&bytes.slice(..end)).is_err(), "cut after {end}");
            }
        }
        let mut out = Vec::new();
        put_received(&mut out, u64::MAX);
        let bytes = Bytes::from(out);
        assert_eq!(decode(&bytes), Ok(PublicationMessage::Received(u64::MAX)));
        assert!(decode(&bytes.slice(..bytes.len() - 1)).is_err());
    }

    #[test]
    fn publications_over_a_limit_are_malformed() {
        for refused in
            [publication(0, 1), publication(CHANNEL_BYTES_MAX + 1, 1), publication(1, MESSAGE_BYTES_MAX + 1)]
        {
            assert_eq!(decode(&encoded(&refused)), Err(DecodeError::Invalid("publication")));
        }
        let claims_too_much = Bytes::from_static(b"\x01\xff\xff\xff\xff\x0fc");
        assert!(decode(&claims_too_much).is_err());
        assert_eq!(decode(&Bytes::from_static(b"\x03")), Err(DecodeError::UnknownTag("publication")));
    }
}
