//! Connecting to a node by its address: one attempt, the backoff, and the log lines about failures.
//!
//! Owns what all outgoing attempts share, not what is sent on a connection or done with it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use super::connection;
use super::handshake::HandshakeError;
use crate::resolve;

/// Time limit for connecting to one address. A lost SYN is repeated after one second: a new
/// attempt, with the name resolved again, is as good.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Most addresses of one name that are tried in one attempt.
pub const ADDRESSES_MAX: usize = 8;

/// Default of [`BackoffLimits::min`]: long enough not to burn a core on refused connections, short
/// enough not to matter when a peer restarts.
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Default of [`BackoffLimits::max`]: how long a peer that was down for long may have to wait until
/// it is dialed again, unless it sends a wake-up.
pub const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// There is nothing to try: every known address is this node's own, or unspecified.
    #[error("no address of the peer is known")]
    Unknown,
    /// The host name (first) did not resolve.
    #[error("cannot resolve {0}: {1}")]
    Resolve(String, io::Error),
    /// The name resolved to no address.
    #[error("{0} resolves to no address")]
    NoAddress(String),
    /// The connection to this address was refused, or not established in time.
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// The connection was accepted, but the handshake failed.
    #[error("{0}: {1}")]
    Handshake(SocketAddr, HandshakeError),
}

impl AttemptError {
    /// Whether the reason may be that the node does not listen yet.
    pub(super) fn may_be_starting(&self) -> bool {
        matches!(self, AttemptError::Connect(_, error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// Why all addresses of a peer failed, in the order in which they were tried.
#[derive(Debug)]
pub struct RoundError(Vec<AttemptError>);

impl RoundError {
    /// The errors of the handshakes, with hosts that answered.
    pub(super) fn handshakes(&self) -> impl Iterator<Item = &HandshakeError> {
        self.0.iter().filter_map(|error| match error {
            AttemptError::Handshake(_, error) => Some(error),
            _ => None,
        })
    }

    /// Whether the reason may be that the node does not listen yet.
    pub(super) fn may_be_starting(&self) -> bool {
        self.0.iter().all(AttemptError::may_be_starting)
    }
}

impl fmt::Display for RoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.0.iter().enumerate() {
            let separator = if position > 0 { "; " } else { "" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

/// Tries addresses in turn until `talk`, which is told the address, succeeds on a connection; then
/// goes on only if `goes_on` says so. Returns the last success.
pub(super) async fn attempt_round<T>(
    addresses: &[String],
    goes_on: impl Fn() -> bool,
    talk: impl AsyncFn(TcpStream, &str) -> Result<T, HandshakeError>,
) -> Result<(SocketAddr, T), RoundError> {
    let (mut success, mut errors) = (None, vec![]);
    for address in addresses {
        match attempt(address, async |stream| talk(stream, address).await).await {
            Ok(talked) => success = Some(talked),
            Err(error) => errors.push(error),
        }
        if success.is_some() && !goes_on() {
            break;
        }
    }
    if errors.is_empty() {
        errors.push(AttemptError::Unknown);
    }
    success.ok_or(RoundError(errors))
}

/// Tries all addresses of a name (`HOST:PORT`, or `srv:NAME`) until `talk` succeeds on a
/// connection. The name is resolved each time, so a node that moved is found at its new address.
pub(super) async fn attempt<T>(
    name: &str,
    talk: impl AsyncFn(TcpStream) -> Result<T, HandshakeError>,
) -> Result<(SocketAddr, T), AttemptError> {
    let addresses =
        resolve::addresses(name).await.map_err(|error| AttemptError::Resolve(name.to_owned(), error))?;
    let mut outcome = Err(AttemptError::NoAddress(name.to_owned()));
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
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
    /// The wait after the first failure.
    pub min: Duration,
    /// The longest wait, however often it failed.
    pub max: Duration,
}

impl Default for BackoffLimits {
    fn default() -> Self {
        BackoffLimits { min: BACKOFF_MIN, max: BACKOFF_MAX }
    }
}

/// The wait before the next attempt. It doubles from one limit to the other, and each wait is
/// shortened by up to half at random, so that nodes that lost a peer together do not dial it
/// together.
pub(super) struct Backoff {
    limits: BackoffLimits,
    next: Duration,
    random: fastrand::Rng,
}

impl Backoff {
    pub fn new(limits: BackoffLimits) -> Self {
        // Seeded from a uuid: enabling `fastrand`'s own entropy would enable that feature in the
        // core, too.
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

/// The last logged error of a node that cannot be reached. A line is logged when the error changes,
/// not for each attempt, because the node may be down for days.
#[derive(Default)]
pub(super) struct DialErrorLog {
    last: Option<String>,
}

impl DialErrorLog {
    /// Records an error; returns its text, and whether it differs from the last one.
    pub fn note(&mut self, trouble: &impl fmt::Display) -> (&str, bool) {
        let text = trouble.to_string();
        let is_news = self.last.as_ref() != Some(&text);
        (self.last.insert(text), is_news)
    }

    /// Records that the node was reached: the next error is logged again.
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
        let mut dial_error_log = DialErrorLog::default();
        let trouble = |name: &str| AttemptError::NoAddress(name.to_owned());
        assert_eq!(dial_error_log.note(&trouble("a")), ("a resolves to no address", true));
        assert!(!dial_error_log.note(&trouble("a")).1);
        assert!(dial_error_log.note(&trouble("b")).1);
        dial_error_log.clear();
        assert!(dial_error_log.note(&trouble("b")).1);
    }
}
