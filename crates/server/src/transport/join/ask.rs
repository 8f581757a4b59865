//! The joining host's side: asks the configured members in turn, until one gives a final answer.
//!
//! Owns the waits and their log lines; decides nothing. It stores nothing either: the caller has
//! stored the host's uuid before, so every repetition is the same request.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::BytesMut;
use tidelock_core::address_book::SRV_PREFIX;
use tidelock_core::handshake::HandshakeRefusal;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::super::HANDSHAKE_TIMEOUT;
use super::super::attempt::{AttemptError, Backoff, BackoffLimits, DialErrorLog, attempt};
use super::super::handshake::{
    HandshakeError, Message, PROTOCOL_VERSIONS, read_answer, read_message, write_message,
};
use super::super::secure::{self, SecuredStream};
use super::{JOIN_TIMEOUT, JoinRefusal, JoinRequest, Welcome};
use crate::resolve;
use crate::tls::TlsAcceptor;

/// Why a cluster does not admit this host; asking again would not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The member's transport refused the host.
    #[error("{address} refuses: {refusal}")]
    Handshake {
        /// Address of the member that was asked.
        address: String,
        /// What the member answered.
        refusal: HandshakeRefusal,
    },
    /// The cluster refused the host permanently.
    #[error("{address} refuses: {reason}")]
    Refused {
        /// Address of the member that was asked.
        address: String,
        /// The reason, for the operator.
        reason: String,
    },
}

enum JoinAnswer {
    Welcome(Welcome),
    JoinRefused(JoinRefusal),
    Refused(HandshakeRefusal),
}

/// Asks the members at `addresses` (`HOST:PORT` or `srv:NAME`, at least one) in turn, repeatedly,
/// until one admits the host. Can be dropped at any time: asking again repeats the same request.
///
/// # Errors
/// When a member refuses permanently.
///
/// # Panics
/// When the request is longer than [`JOIN_BYTES_MAX`](super::JOIN_BYTES_MAX).
pub async fn ask(
    addresses: &[String],
    request: &JoinRequest,
    tls: Option<&TlsAcceptor>,
) -> Result<Welcome, AskError> {
    tracing::info!(host = %request.host.uuid, members = addresses.join(", "), "asking to join the cluster");
    let mut backoff = Backoff::new(BackoffLimits::default());
    let mut logs: BTreeMap<String, DialErrorLog> = BTreeMap::new();
    loop {
        // An SRV name is resolved anew each time: it may list other members by now.
        let members = resolve::expanded(addresses).await.unwrap_or_else(|error| {
            tracing::warn!(reason = %error, "not a member yet; asking again");
            addresses.iter().filter(|address| !address.starts_with(SRV_PREFIX)).cloned().collect()
        });
        logs.retain(|address, _| members.contains(address));
        for address in &members {
            let dial_error_log = logs.entry(address.clone()).or_default();
            let trouble = match ask_one(address, request, tls).await {
                Ok((_, JoinAnswer::Welcome(welcome))) => return Ok(welcome),
                Ok((_, JoinAnswer::JoinRefused(JoinRefusal::Refused(reason)))) => {
                    return Err(AskError::Refused { address: address.clone(), reason });
                }
                Ok((_, JoinAnswer::Refused(refusal))) => {
                    return Err(AskError::Handshake { address: address.clone(), refusal });
                }
                Ok((_, JoinAnswer::JoinRefused(refusal))) => dial_error_log.note(&refusal),
                Err(error) => dial_error_log.note(&error),
            };
            match trouble {
                (reason, true) => tracing::warn!(%address, reason, "not a member yet; asking again"),
                (reason, false) => tracing::debug!(%address, reason, "still not a member"),
            }
        }
        sleep(backoff.next_wait()).await;
    }
}

async fn ask_one(
    address: &str,
    request: &JoinRequest,
    tls: Option<&TlsAcceptor>,
) -> Result<(SocketAddr, JoinAnswer), AttemptError> {
    attempt(address, async |stream| {
        // The member has its own time limit for the decision; this leaves it time to report that it
        // expired.
        let limit = JOIN_TIMEOUT + HANDSHAKE_TIMEOUT;
        // Members show which cluster they are of. Which host they are is not known here.
        let secured = secure::connect(tls, stream).await?;
        timeout(limit, talk(secured, request)).await.unwrap_or(Err(HandshakeError::Timeout))
    })
    .await
}

async fn talk(
    (mut stream, certificate): SecuredStream,
    request: &JoinRequest,
) -> Result<JoinAnswer, HandshakeError> {
    let out_of_turn = Err(HandshakeError::Malformed("a message is out of turn"));
    let (nonce, mut buffer) = (Uuid::new_v4(), BytesMut::new());
    let join = Message::Join { versions: PROTOCOL_VERSIONS, request: request.clone(), nonce };
    write_message(&mut stream, &join).await?;
    let challenge = match read_answer(&mut stream, &mut buffer, certificate.as_ref()).await? {
        Message::Challenge { nonce: challenge, answers } if answers == nonce => challenge,
        // Nil from a node that speaks nothing but version 1.
        Message::Refuse { refusal, answers } if answers == nonce || answers.is_nil() => {
            return Ok(JoinAnswer::Refused(refusal));
        }
        _ => return out_of_turn,
    };
    write_message(&mut stream, &Message::Accept { version: PROTOCOL_VERSIONS.max, answers: challenge })
        .await?;
    match read_message(&mut stream, &mut buffer).await? {
        Message::Welcome(welcome) => Ok(JoinAnswer::Welcome(welcome)),
        Message::JoinRefused(refusal) => Ok(JoinAnswer::JoinRefused(refusal)),
        _ => out_of_turn,
    }
}
