//! Sends wake-ups to one peer with a higher number: asks it to dial this node while there is no
//! link.
//!
//! Owns when to send one; makes no link. It sends one at the start, when the peer may be in a long
//! backoff, and then with the backoff of a dialer. Invariant: a wake-up that was begun is finished
//! even if a link comes up meanwhile, because the peer would count an aborted one as a failed
//! handshake.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::time::{Instant, sleep, timeout};

use super::attempt::{Backoff, DialErrorLog, RoundError, attempt_round};
use super::dialer::{LINK_PROVEN_AFTER, log_dial_error};
use super::handshake::{DialTarget, HandshakeError, Judge};
use super::links::{Links, Peer};
use super::secure;

/// Runs until the transport stops or the peer is removed.
pub(super) async fn run(links: Rc<Links>, peer: Rc<Peer>) {
    tokio::select! {
        never = repeat_wake_ups(&links, &peer) => match never {},
        () = links.is_over(&peer) => {}
    }
    peer.is_sought.set(false);
}

async fn repeat_wake_ups(links: &Links, peer: &Peer) -> Infallible {
    let mut backoff = Backoff::new(links.options.limits.backoff);
    let mut dial_error_log = DialErrorLog::default();
    loop {
        if !peer.has_link() {
            match send_wake_up(links, peer).await {
                Ok((address, ())) => {
                    tracing::debug!(peer = %peer.node, %address, "asked the peer for a connection");
                    dial_error_log.clear();
                }
                Err(error) => log_dial_error(links, peer, &mut dial_error_log, &error),
            }
        }
        tokio::select! {
            () = peer.is_up(true) => {
                let since = Instant::now();
                peer.is_up(false).await;
                if since.elapsed() >= LINK_PROVEN_AFTER {
                    backoff.reset();
                }
                // The peer has most likely noticed too, and dials on its own.
                dial_error_log.clear();
                sleep(backoff.next_wait()).await;
            }
            () = sleep(backoff.next_wait()) => {}
            () = peer.called.notified() => backoff.reset(),
        }
    }
}

/// Sends a wake-up to every address at which the peer may be, until there is a link: whether it was
/// the peer that accepted a wake-up is known only then.
async fn send_wake_up(links: &Links, peer: &Peer) -> Result<(SocketAddr, ()), RoundError> {
    let candidates = links.candidates(peer.node);
    let sent = attempt_round(
        &candidates,
        || !peer.has_link(),
        async |stream, address| {
            let (mut stream, certificate) = secure::connect(links.options.tls.as_ref(), stream).await?;
            let judge = Judge { certificate: certificate.as_ref(), ..links.judge() };
            let wake_up = judge.wake_up(&mut stream, DialTarget { peer: peer.node, address });
            timeout(links.options.limits.handshake_timeout, wake_up)
                .await
                .unwrap_or(Err(HandshakeError::Timeout))
        },
    );
    let outcome = sent.await;
    links.dial_news();
    outcome
}
