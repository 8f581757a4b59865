//! The enrolment protocol, by which a host with a join token requests its first certificate.
//! Contains both sides.
//!
//! ```text
//! host without a certificate       any member
//!   TLS 1.3 with the protocol      shows its certificate and the authorities
//!   tidelock-enrol/1
//!   EnrolRequest      ──────────▶   asks its owner
//!                     ◀──────────   certificate and authorities, or a refusal, and close
//! ```
//!
//! Owns the layout of the two messages and their limits. The owner of the transport decides whether
//! a host gets a certificate. A host that gets no answer retries with the same uuid.
//!
//! A message is its length (u32 LE) and a body, in the encoding of [`tidelock_core::codec`]:
//!
//! ```text
//! request    version 1, join token (bytes), host uuid (16 bytes), number of names, each a name
//!            (bytes), certificate signing request (bytes, DER)
//! answer     1, certificate (bytes, PEM), authorities (bytes, PEM)
//!            2, reason (bytes): refused
//!            3: no leader, ask again
//! ```

use std::io;

use tidelock_core::codec::{DecodeError, Decoder, put_bytes, put_varint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::attempt::{AttemptError, Backoff, BackoffLimits, attempt};
use super::handshake::HandshakeError;
use super::join::{JOIN_TIMEOUT, LocalBoxFuture};
use crate::config::ALLOWED_HOSTS_MAX;
use crate::resolve;
use crate::throttle::DELAY_MAX;
use crate::tls::{MaybeTlsStream, connect_to_enrol};
use crate::token::JoinTokenText;

/// Longest body of a request, in bytes: a token, names and a signing request.
const REQUEST_BYTES_MAX: usize = 32 << 10;

/// Longest body of an answer, in bytes: a certificate and two authorities.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Maximum number of names of a host: allowed hosts, listeners and loopback.
pub const NAMES_MAX: usize = ALLOWED_HOSTS_MAX + 16;

const VERSION: u64 = 1;

const ANSWER_CERTIFICATE: u8 = 1;
const ANSWER_REFUSED: u8 = 2;
const ANSWER_NO_LEADER: u8 = 3;

/// Handles enrolment requests.
pub type EnrolHandler = std::rc::Rc<dyn Fn(EnrolRequest) -> LocalBoxFuture<Result<Enrolment, EnrolRefusal>>>;

/// An enrolment request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrolRequest {
    /// Its join token.
    pub token: JoinTokenText,
    /// The uuid that the host has generated and stored.
    pub host: Uuid,
    /// The names and IP addresses by which clients reach it.
    pub names: Vec<String>,
    /// A certificate signing request (CSR), DER. Only its public key is used.
    pub signing_request: Vec<u8>,
}

/// The answer to a successful request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolment {
    /// Its certificate, PEM.
    pub certificate: Vec<u8>,
    /// The CA bundle of the cluster, PEM.
    pub authorities: Vec<u8>,
}

/// Why a member does not sign.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolRefusal {
    /// No leader is known or reachable. The host retries.
    #[error("the cluster has no leader at the moment")]
    NoLeader,
    /// A retry would not help.
    #[error("{0}")]
    Refused(String),
}

/// A permanent failure of an enrolment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolError {
    /// A member refuses to sign.
    #[error("{address} refuses: {reason}")]
    Refused {
        /// Address of the member that was asked.
        address: String,
        /// The reason, for the operator.
        reason: String,
    },
    /// The node that answers belongs to a cluster with another CA.
    #[error(
        "{0} is not a node of the cluster of the join token: no authority of its certificate has the token's fingerprint. \
         Look whether this is the peer address of a node of that cluster, port 9001 by default"
    )]
    OtherAuthority(String),
}

impl EnrolRequest {
    /// The body of the request.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_varint(&mut body, VERSION);
        put_bytes(&mut body, self.token.reveal().as_bytes());
        body.extend_from_slice(self.host.as_bytes());
        put_varint(&mut body, self.names.len() as u64);
        self.names.iter().for_each(|name| put_bytes(&mut body, name.as_bytes()));
        put_bytes(&mut body, &self.signing_request);
        body
    }

    /// Decodes the body of a request.
    ///
    /// # Errors
    /// When it is malformed or of another version.
    pub fn decode(body: &[u8]) -> Result<EnrolRequest, DecodeError> {
        let mut decoder = Decoder::new(body);
        if decoder.varint()? != VERSION {
            return Err(DecodeError::UnknownTag("version of an enrolment"));
        }
        let token = JoinTokenText::parse(decoder.bytes()?);
        let token = token.map_err(|_| DecodeError::Invalid("join token"))?;
        let host = decoder.uuid()?;
        let count = decoder.bounded(NAMES_MAX as u64, "number of names")?;
        let names = (0..count).map(|_| decoder.text()).collect::<Result<_, _>>()?;
        let signing_request = decoder.bytes()?.to_vec();
        decoder.finish()?;
        Ok(EnrolRequest { token, host, names, signing_request })
    }
}

/// Reads the request of a host.
pub(super) async fn read(stream: &mut MaybeTlsStream) -> Result<EnrolRequest, HandshakeError> {
    let body = read_message(stream, REQUEST_BYTES_MAX).await?;
    EnrolRequest::decode(&body).map_err(|_| HandshakeError::Malformed("no request for a certificate"))
}

/// Sends the answer to a host.
pub(super) async fn answer(
    stream: &mut MaybeTlsStream,
    decision: Result<Enrolment, EnrolRefusal>,
) -> io::Result<()> {
    write_message(stream, &encode_answer(&decision)).await
}

/// The body of an answer.
pub fn encode_answer(decision: &Result<Enrolment, EnrolRefusal>) -> Vec<u8> {
    let mut body = Vec::new();
    match decision {
        Ok(Enrolment { certificate, authorities }) => {
            body.push(ANSWER_CERTIFICATE);
            put_bytes(&mut body, certificate);
            put_bytes(&mut body, authorities);
        }
        Err(EnrolRefusal::Refused(reason)) => {
            body.push(ANSWER_REFUSED);
            put_bytes(&mut body, reason.as_bytes());
        }
        Err(EnrolRefusal::NoLeader) => body.push(ANSWER_NO_LEADER),
    }
    body
}

/// Decodes the body of an answer.
///
/// # Errors
/// When it is malformed or of a later version.
pub fn decode_answer(body: &[u8]) -> Result<Result<Enrolment, EnrolRefusal>, DecodeError> {
    let mut decoder = Decoder::new(body);
    let answer = match decoder.u8()? {
        ANSWER_CERTIFICATE => {
            let certificate = decoder.bytes()?.to_vec();
            Ok(Enrolment { certificate, authorities: decoder.bytes()?.to_vec() })
        }
        ANSWER_REFUSED => Err(EnrolRefusal::Refused(decoder.text()?)),
        ANSWER_NO_LEADER => Err(EnrolRefusal::NoLeader),
        _ => return Err(DecodeError::UnknownTag("answer to an enrolment")),
    };
    decoder.finish()?;
    Ok(answer)
}

async fn write_message(stream: &mut MaybeTlsStream, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_le_bytes(), body].concat()).await?;
    stream.flush().await
}

async fn read_message(stream: &mut MaybeTlsStream, bytes_max: usize) -> Result<Vec<u8>, HandshakeError> {
    let length = stream.read_u32_le().await? as usize;
    if length > bytes_max {
        return Err(HandshakeError::Malformed("a message is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// Asks the members at `addresses` (`HOST:PORT` or `srv:NAME`, at least one) in turn, repeatedly,
/// until one gives a final answer. Can be dropped at any time, and called again with the same uuid.
///
/// # Errors
/// When a member refuses, or belongs to another cluster.
pub async fn ask(addresses: &[String], request: &EnrolRequest) -> Result<Enrolment, EnrolError> {
    tracing::info!(host = %request.host, members = addresses.join(", "), "asking for a certificate");
    let mut backoff = Backoff::new(BackoffLimits::default());
    loop {
        let members = resolve::expanded(addresses).await.unwrap_or_else(|_| addresses.to_vec());
        for address in members {
            match ask_one(&address, request).await {
                Ok(Ok(enrolment)) => return Ok(enrolment),
                Ok(Err(EnrolRefusal::Refused(reason))) => {
                    return Err(EnrolError::Refused { address, reason });
                }
                Ok(Err(refusal)) => {
                    tracing::info!(address, reason = %refusal, "no certificate yet; asking again")
                }
                Err(AttemptError::Handshake(_, HandshakeError::Tls(error))) if is_other_authority(&error) => {
                    return Err(EnrolError::OtherAuthority(address));
                }
                Err(error) => tracing::warn!(address, reason = %error, "no certificate yet; asking again"),
            }
        }
        sleep(backoff.next_wait()).await;
    }
}

async fn ask_one(
    address: &str,
    request: &EnrolRequest,
) -> Result<Result<Enrolment, EnrolRefusal>, AttemptError> {
    let talked = attempt(address, async |stream| {
        let stream = connect_to_enrol(stream, request.token.authority).await;
        let mut stream = stream.map_err(HandshakeError::Tls)?;
        let talk = async {
            write_message(&mut stream, &request.encode()).await?;
            let body = read_message(&mut stream, ANSWER_BYTES_MAX).await?;
            decode_answer(&body).map_err(|_| HandshakeError::Malformed("no answer to an enrolment"))
        };
        timeout(JOIN_TIMEOUT + DELAY_MAX, talk).await.unwrap_or(Err(HandshakeError::Timeout))
    });
    talked.await.map(|(_, answer)| answer)
}

/// Whether the TLS handshake failed because the member's CA has another fingerprint.
fn is_other_authority(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::BearerToken;

    fn request() -> EnrolRequest {
        let token = BearerToken::generate().unwrap();
        EnrolRequest {
            token: JoinTokenText { token, authority: [7; 32] },
            host: Uuid::from_u128(9),
            names: vec!["kv-1.example".to_owned(), "::1".to_owned()],
            signing_request: vec![1, 2, 3],
        }
    }

    #[test]
    fn requests_are_read_as_they_are_written() {
        let request = request();
        let body = request.encode();
        assert_eq!(EnrolRequest::decode(&body), Ok(request.clone()));
        for length in 0..body.len() {
            assert!(EnrolRequest::decode(&body[..length]).is_err(), "{length}");
        }
        let names = vec!["a".to_owned(); NAMES_MAX + 1];
        assert!(EnrolRequest::decode(&EnrolRequest { names, ..request }.encode()).is_err());
    }

    #[test]
    fn a_request_shows_no_secret() {
        let request = request();
        let text = request.token.reveal();
        // The secret may contain the separator.
        let secret = &text.splitn(3, '_').nth(2).unwrap()[..43];
        assert!(!format!("{request:?}").contains(secret));
    }
}
