//! Asks one peer of a higher number to call, while there is no link with it.
//!
//! Owns when to knock; makes no link. It knocks at the start, when the peer may be waiting long before it tries again,
//! and then as rarely as a dialer calls in vain. Invariant: a knock that was begun is finished, though a link may come
//! up meanwhile: the peer would take one that breaks off for a failed handshake.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::time::{Instant, sleep, timeout};

use super::attempt::{AttemptError, Backoff, Complaint, attempt};
use super::dialer::{LINK_PROVEN_AFTER, complain};
use super::handshake::HandshakeError;
use super::links::{Links, Peer};

/// Runs until the transport stops or the peer is none any more.
pub(super) async fn run(links: Rc<Links>, peer: Rc<Peer>) {
    tokio::select! {
        never = keep_knocking(&links, &peer) => match never {},
        () = links.is_over(&peer) => {}
    }
    peer.is_sought.set(false);
}

async fn keep_knocking(links: &Links, peer: &Peer) -> Infallible {
    let mut backoff = Backoff::new(links.options.limits.backoff);
    let mut complaint = Complaint::default();
    loop {
        if !peer.has_link() {
            match knock(links, peer).await {
                Ok((address, ())) => {
                    tracing::debug!(peer = %peer.node, %address, "knocked");
                    complaint.clear();
                }
                Err(error) => complain(links, peer, &mut complaint, &error),
            }
        }
        tokio::select! {
            () = peer.is_up(true) => {
                let since = Instant::now();
                peer.is_up(false).await;
                if since.elapsed() >= LINK_PROVEN_AFTER {
                    backoff.reset();
                }
                // The peer has most likely noticed too, and calls by itself.
                complaint.clear();
                sleep(backoff.next_wait()).await;
            }
            () = sleep(backoff.next_wait()) => {}
            () = peer.called.notified() => backoff.reset(),
        }
    }
}

async fn knock(links: &Links, peer: &Peer) -> Result<(SocketAddr, ()), AttemptError> {
    let name = peer.address();
    attempt(&name, async |mut stream| {
        let judge = links.judge();
        let knock = judge.knock(&mut stream, peer.node);
        timeout(links.options.limits.handshake_timeout, knock).await.unwrap_or(Err(HandshakeError::Timeout))
    })
    .await
}
