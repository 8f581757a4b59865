//! Keeps one connection to one peer with a lower number: dials it, carries frames, waits, and
//! repeats.
//!
//! Owns when to dial, not the rules of the handshake or the link. Invariant: a dialer has at most
//! one connection, so it never replaces its own link.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::{Instant, sleep, timeout};

use super::attempt::{Backoff, DialErrorLog, RoundError, attempt_round};
use super::handshake::{Agreement, DialTarget, HandshakeError, Judge};
use super::links::{Links, Peer};
use super::{connection, secure};
use crate::tls::MaybeTlsStream;

/// A link that existed for this long proves that the peer works, and resets the backoff. A shorter
/// one does not: otherwise two nodes that disagree would reconnect twenty times a second.
pub const LINK_PROVEN_AFTER: Duration = Duration::from_secs(1);

/// A connection, the bytes after its handshake, and the handshake's result.
type Dialed = (MaybeTlsStream, BytesMut, Agreement);

/// Runs until the transport stops or the peer is removed. An existing link is flushed and closed
/// first.
pub(super) async fn run(links: Rc<Links>, peer: Rc<Peer>) {
    let mut backoff = Backoff::new(links.options.limits.backoff);
    let mut dial_error_log = DialErrorLog::default();
    loop {
        let outcome = tokio::select! {
            outcome = dial(&links, &peer) => outcome,
            () = links.is_over(&peer) => break,
        };
        match outcome {
            Ok((address, (stream, buffer, agreement))) => {
                dial_error_log.clear();
                if let Some(link) = links.raise(&agreement.peer) {
                    tracing::info!(peer = %peer.node, %address, "peer link up");
                    let since = Instant::now();
                    connection::run(&links, &link, stream, (buffer, agreement.chains)).await;
                    if since.elapsed() >= LINK_PROVEN_AFTER {
                        backoff.reset();
                    }
                }
            }
            Err(error) => log_dial_error(&links, &peer, &mut dial_error_log, &error),
        }
        tokio::select! {
            () = sleep(backoff.next_wait()) => {}
            () = peer.called.notified() => backoff.reset(),
            () = links.is_over(&peer) => break,
        }
    }
    peer.is_sought.set(false);
}

/// Logs a new reason why a peer was not reached, and passes on errors that concern more than this
/// peer.
pub(super) fn log_dial_error(
    links: &Links,
    peer: &Peer,
    dial_error_log: &mut DialErrorLog,
    error: &RoundError,
) {
    if error.handshakes().next().is_none() {
        peer.was_reached_otherwise();
    }
    error.handshakes().for_each(|error| links.note(error));
    if error.may_be_starting() && links.is_young() {
        tracing::debug!(peer = %peer.node, reason = %error, "peer not reached yet");
        return;
    }
    match dial_error_log.note(error) {
        (reason, true) => tracing::warn!(peer = %peer.node, reason, "peer not reached; retrying"),
        (reason, false) => tracing::debug!(peer = %peer.node, reason, "peer still not reached"),
    }
}

async fn dial(links: &Links, peer: &Peer) -> Result<(SocketAddr, Dialed), RoundError> {
    let candidates = links.candidates(peer.node);
    let dialed = attempt_round(
        &candidates,
        || false,
        async |stream, address| {
            let mut buffer = BytesMut::new();
            let (mut stream, certificate) = secure::connect(links.options.tls.as_ref(), stream).await?;
            let judge = Judge { certificate: certificate.as_ref(), ..links.judge() };
            let handshake = judge.dial(&mut stream, &mut buffer, DialTarget { peer: peer.node, address });
            match timeout(links.options.limits.handshake_timeout, handshake).await {
                Ok(result) => result.map(|agreement| (stream, buffer, agreement)),
                Err(_) => Err(HandshakeError::Timeout),
            }
        },
    );
    let outcome = dialed.await;
    links.dial_news();
    outcome
}
