//! Keeps one connection to one peer of a lower number: call, carry, wait, again.
//!
//! Owns when to call; owns neither the handshake's rules nor the link. Invariant: one dialer has at most one
//! connection, so it never replaces its own link.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::attempt::{AttemptError, Backoff, Complaint, attempt};
use super::connection;
use super::handshake::{Agreement, HandshakeError};
use super::links::{Links, Peer};

/// A link that stood this long proves that the peer works: the waits start over. One that breaks sooner does not,
/// or two nodes that disagree would reconnect twenty times a second.
pub const LINK_PROVEN_AFTER: Duration = Duration::from_secs(1);

/// A connection, the bytes that came behind its handshake, and what that agreed on.
type Dialed = (TcpStream, BytesMut, Agreement);

/// Runs until the transport stops or the peer is none any more. A link that stands then is flushed and closed first.
pub(super) async fn run(links: Rc<Links>, peer: Rc<Peer>) {
    let mut backoff = Backoff::new(links.options.limits.backoff);
    let mut complaint = Complaint::default();
    loop {
        let outcome = tokio::select! {
            outcome = dial(&links, &peer) => outcome,
            () = links.is_over(&peer) => break,
        };
        match outcome {
            Ok((address, (stream, buffer, agreement))) => {
                complaint.clear();
                if let Some(link) = links.raise(&agreement.peer) {
                    tracing::info!(peer = %peer.node, %address, "peer link up");
                    let since = Instant::now();
                    connection::run(&links, &link, stream, (buffer, agreement.chains)).await;
                    if since.elapsed() >= LINK_PROVEN_AFTER {
                        backoff.reset();
                    }
                }
            }
            Err(error) => complain(&links, &peer, &mut complaint, &error),
        }
        tokio::select! {
            () = sleep(backoff.next_wait()) => {}
            () = peer.called.notified() => backoff.reset(),
            () = links.is_over(&peer) => break,
        }
    }
    peer.is_sought.set(false);
}

/// Logs what is news about a peer that was not reached, and passes on what concerns more than this peer.
pub(super) fn complain(links: &Links, peer: &Peer, complaint: &mut Complaint, error: &AttemptError) {
    match error {
        AttemptError::Handshake(_, error) => links.note(error),
        _ => peer.was_reached_otherwise(),
    }
    if error.may_be_starting() && links.is_young() {
        tracing::debug!(peer = %peer.node, reason = %error, "peer not reached yet");
        return;
    }
    match complaint.note(error) {
        (reason, true) => tracing::warn!(peer = %peer.node, reason, "peer not reached; trying on"),
        (reason, false) => tracing::debug!(peer = %peer.node, reason, "peer still not reached"),
    }
}

async fn dial(links: &Links, peer: &Peer) -> Result<(SocketAddr, Dialed), AttemptError> {
    let name = peer.address();
    attempt(&name, async |mut stream| {
        let mut buffer = BytesMut::new();
        let judge = links.judge();
        let handshake = judge.dial(&mut stream, &mut buffer, peer.node);
        match timeout(links.options.limits.handshake_timeout, handshake).await {
            Ok(shaken) => shaken.map(|agreement| (stream, buffer, agreement)),
            Err(_) => Err(HandshakeError::Timeout),
        }
    })
    .await
}
