//! Reaching a node by its address: one attempt, when the next one is due, and what is logged about those that fail.
//!
//! Owns what every caller of this module's siblings does alike; owns neither what is said on a connection nor what
//! comes of it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use super::connection;
use super::handshake::HandshakeError;

/// Time to resolve a name, and again to connect to one address. A lost SYN is repeated after one second: a new
/// attempt, with the name resolved anew, is as good.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Addresses of one name tried in one attempt.
pub const ADDRESSES_MAX: usize = 8;

/// Default of [`BackoffLimits::min`]: long enough not to burn a core on a refused connection, short enough not to
/// matter when a peer restarts.
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Default of [`BackoffLimits::max`]: what a peer that was away for long may have to wait to be called again, unless
/// it knocks.
pub const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Why an attempt came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// The name did not resolve.
    #[error("cannot resolve {0}: {1}")]
    Resolve(String, io::Error),
    /// The name resolved to nothing.
    #[error("{0} resolves to no address")]
    NoAddress(String),
    /// Nobody took the connection.
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// Somebody did, and the talk failed.
    #[error("{0}: {1}")]
    Handshake(SocketAddr, HandshakeError),
}

impl AttemptError {
    /// Whether that may be because the node there does not listen yet.
    pub(super) fn may_be_starting(&self) -> bool {
        matches!(self, AttemptError::Connect(_, error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// One attempt over all addresses of a name (`HOST:PORT`), the first that works; `talk` is what must work once a
/// connection stands. The name is resolved each time: a node that moved is found under its new address.
pub(super) async fn attempt<T>(
    name: &str,
    talk: impl AsyncFn(TcpStream) -> Result<T, HandshakeError>,
) -> Result<(SocketAddr, T), AttemptError> {
    let addresses = within(CONNECT_TIMEOUT, tokio::net::lookup_host(name))
        .await
        .map_err(|error| AttemptError::Resolve(name.to_owned(), error))?;
    let mut outcome = Err(AttemptError::NoAddress(name.to_owned()));
    for address in addresses.take(ADDRESSES_MAX) {
        outcome = match connect(address).await {
            Ok(stream) => talk(stream).await.map_err(|error| AttemptError::Handshake(address, error)),
            Err(error) => Err(AttemptError::Connect(address, error)),
        }
        .map(|talked| (address, talked));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = within(CONNECT_TIMEOUT, TcpStream::connect(address)).await?;
    connection::configure(&stream)?;
    Ok(stream)
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Bounds of the wait between two attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffLimits {
    /// The first wait.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for BackoffLimits {
    fn default() -> Self {
        BackoffLimits { min: BACKOFF_MIN, max: BACKOFF_MAX }
    }
}

/// How long to wait before the next attempt: doubling from one limit to the other, each shortened by up to half at
/// random, so that nodes that lost a peer together do not call it together.
pub(super) struct Backoff {
    limits: BackoffLimits,
    next: Duration,
    random: fastrand::Rng,
}

impl Backoff {
    pub fn new(limits: BackoffLimits) -> Self {
        // Seeded from a uuid: `fastrand`'s own entropy is a feature that would reach into the core with it.
        Backoff::with_random(limits, fastrand::Rng::with_seed(Uuid::new_v4().as_u64_pair().0))
    }

    fn with_random(limits: BackoffLimits, random: fastrand::Rng) -> Self {
        Backoff { limits, next: limits.min, random }
    }

    pub fn reset(&mut self) {
        self.next = self.limits.min;
    }

    pub fn next_wait(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.limits.max);
        full.mul_f64(0.5 + self.random.f64() / 2.0)
    }
}

/// What was last said about a node that is not reached: one line when the trouble changes, not one an attempt, for it
/// may be down for days.
#[derive(Default)]
pub(super) struct Complaint {
    last: Option<String>,
}

impl Complaint {
    /// The trouble as text, and whether it is news.
    pub fn note(&mut self, trouble: &impl fmt::Display) -> (&str, bool) {
        let text = trouble.to_string();
        let is_news = self.last.as_ref() != Some(&text);
        (self.last.insert(text), is_news)
    }

    /// The node was reached; whatever comes next is news.
    pub fn clear(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BackoffLimits = BackoffLimits { min: BACKOFF_MIN, max: BACKOFF_MAX };

    #[test]
    fn waits_double_up_to_the_limit_and_start_over() {
        let mut backoff = Backoff::with_random(LIMITS, fastrand::Rng::with_seed(7));
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
            let mut backoff = Backoff::with_random(LIMITS, fastrand::Rng::with_seed(seed));
            std::array::from_fn::<_, 8, _>(|_| backoff.next_wait())
        };
        assert_ne!(waits(1), waits(2));
    }

    #[test]
    fn only_a_refused_connection_may_be_a_node_that_starts() {
        let address = "127.0.0.1:9001".parse().unwrap();
        let connect = |kind: io::ErrorKind| AttemptError::Connect(address, kind.into());
        assert!(connect(io::ErrorKind::ConnectionRefused).may_be_starting());
        assert!(!connect(io::ErrorKind::TimedOut).may_be_starting());
        assert!(!AttemptError::NoAddress("a".to_owned()).may_be_starting());
    }

    #[test]
    fn trouble_is_news_until_it_is_known() {
        let mut complaint = Complaint::default();
        let trouble = |name: &str| AttemptError::NoAddress(name.to_owned());
        assert_eq!(complaint.note(&trouble("a")), ("a resolves to no address", true));
        assert!(!complaint.note(&trouble("a")).1);
        assert!(complaint.note(&trouble("b")).1);
        complaint.clear();
        assert!(complaint.note(&trouble("b")).1);
    }
}
