//! Keeps one connection to one peer of a lower number: resolve, connect, shake hands, carry, wait, again.
//!
//! Owns when to try and what to log about failures; owns neither the handshake's rules nor the link. Invariant: one
//! dialer has at most one connection, so it never replaces its own link.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tidelock_core::types::NodeId;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::connection;
use super::handshake::HandshakeError;
use super::links::Links;

/// First wait between two attempts: long enough not to burn a core on a refused connection, short enough not to
/// matter when a peer restarts.
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Longest wait between two attempts; what a peer that was away for long may have to wait for its link.
pub const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// A link that stood this long proves that the peer works: the waits start over. One that breaks sooner does not,
/// or two nodes that disagree would reconnect twenty times a second.
pub const LINK_PROVEN_AFTER: Duration = Duration::from_secs(1);

/// Time to resolve a name, and again to connect to one address. A lost SYN is repeated after one second: a new
/// attempt, with the name resolved anew, is as good.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Addresses of one name tried in one attempt.
pub const ADDRESSES_MAX: usize = 8;

#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("cannot resolve {0}: {1}")]
    Resolve(String, io::Error),
    #[error("{0} resolves to no address")]
    NoAddress(String),
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    #[error("{0}: {1}")]
    Handshake(SocketAddr, HandshakeError),
}

/// Runs until the transport stops. A link that stands then is flushed and closed first.
pub(super) async fn run(links: Rc<Links>, peer: NodeId) {
    // Seeded from a uuid: `fastrand`'s own entropy is a feature that would reach into the core with it.
    let mut backoff = Backoff::new(fastrand::Rng::with_seed(Uuid::new_v4().as_u64_pair().0));
    let mut last_complaint = None;
    loop {
        let outcome = tokio::select! {
            outcome = dial(&links, peer) => outcome,
            () = links.stopped() => return,
        };
        match outcome {
            Ok((address, stream, buffer)) => {
                tracing::info!(%peer, %address, "peer link up");
                last_complaint = None;
                let since = Instant::now();
                let link = links.raise(peer);
                connection::run(&links, &link, stream, buffer).await;
                if since.elapsed() >= LINK_PROVEN_AFTER {
                    backoff.reset();
                }
            }
            Err(error) => complain(&mut last_complaint, peer, &error),
        }
        tokio::select! {
            () = sleep(backoff.next_wait()) => {}
            () = links.stopped() => return,
        }
    }
}

/// One line when the trouble changes, not one an attempt: a peer may be down for days.
fn complain(last: &mut Option<String>, peer: NodeId, error: &DialError) {
    let text = error.to_string();
    if last.as_ref() == Some(&text) {
        tracing::debug!(%peer, reason = text, "peer still not reached");
    } else {
        tracing::warn!(%peer, reason = text, "peer not reached; trying on");
        *last = Some(text);
    }
}

/// One attempt over all addresses of the peer's name, the first that works. The name is resolved each time: a peer
/// that moved is found under its new address without a restart here.
async fn dial(links: &Links, peer: NodeId) -> Result<(SocketAddr, TcpStream, BytesMut), DialError> {
    let name = links.address(peer);
    let addresses = within(CONNECT_TIMEOUT, tokio::net::lookup_host(name))
        .await
        .map_err(|error| DialError::Resolve(name.to_owned(), error))?;
    let mut outcome = Err(DialError::NoAddress(name.to_owned()));
    for address in addresses.take(ADDRESSES_MAX) {
        outcome = dial_address(links, peer, address).await;
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

async fn dial_address(
    links: &Links,
    peer: NodeId,
    address: SocketAddr,
) -> Result<(SocketAddr, TcpStream, BytesMut), DialError> {
    let mut stream = within(CONNECT_TIMEOUT, TcpStream::connect(address))
        .await
        .and_then(|stream| connection::configure(&stream).map(|()| stream))
        .map_err(|error| DialError::Connect(address, error))?;
    let mut buffer = BytesMut::new();
    let judge = links.judge();
    let handshake = judge.dial(&mut stream, &mut buffer, peer);
    let shaken = match timeout(links.options.limits.handshake_timeout, handshake).await {
        Ok(shaken) => shaken,
        Err(_) => Err(HandshakeError::Timeout),
    };
    match shaken {
        Ok(()) => Ok((address, stream, buffer)),
        Err(error) => {
            if error.is_ours() {
                links.counters.handshakes_refused.add(1);
            }
            Err(DialError::Handshake(address, error))
        }
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// How long to wait before the next attempt: doubling from [`BACKOFF_MIN`] to [`BACKOFF_MAX`], each shortened by up
/// to half at random, so that nodes that lost a peer together do not call it together.
struct Backoff {
    next: Duration,
    random: fastrand::Rng,
}

impl Backoff {
    fn new(random: fastrand::Rng) -> Self {
        Backoff { next: BACKOFF_MIN, random }
    }

    fn reset(&mut self) {
        self.next = BACKOFF_MIN;
    }

    fn next_wait(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(BACKOFF_MAX);
        full.mul_f64(0.5 + self.random.f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_start_over() {
        let mut backoff = Backoff::new(fastrand::Rng::with_seed(7));
        let mut full = BACKOFF_MIN;
        for _ in 0..10 {
            let wait = backoff.next_wait();
            assert!(wait >= full / 2 && wait <= full, "{wait:?} of {full:?}");
            full = (full * 2).min(BACKOFF_MAX);
        }
        assert_eq!(full, BACKOFF_MAX);
        backoff.reset();
        assert!(backoff.next_wait() <= BACKOFF_MIN);
    }

    #[test]
    fn two_nodes_do_not_wait_alike() {
        let waits = |seed| {
            let mut backoff = Backoff::new(fastrand::Rng::with_seed(seed));
            std::array::from_fn::<_, 8, _>(|_| backoff.next_wait())
        };
        assert_ne!(waits(1), waits(2));
    }
}
