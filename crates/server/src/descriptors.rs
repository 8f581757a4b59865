//! File descriptors: raises the limit, reserves what the node needs, and leaves the rest to
//! clients.
//!
//! A client connection holds one descriptor for as long as the client likes. If clients could take
//! all of them, the log could not open its next segment and peers could not connect, so idle
//! clients could stop a cluster. Therefore the limits of client connections are derived from the
//! limit of this process.
//!
//! Owns the arithmetic and the count of connections of all protocols together
//! ([`ClientDescriptors`]). `accept` decides which connections are refused, and how.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidelock_core::limits::HOSTS_MAX;

use crate::transport::join::JOINS_MAX;
use crate::transport::listener::HANDSHAKES_MAX;
use crate::watch::WATCHERS_MAX;

/// Most connections of one protocol open at a time. Each costs a descriptor and up to a read
/// buffer; a further connection is answered with an error and closed.
pub const CONNECTIONS_MAX: usize = 10_000;

/// Standard streams, listening sockets, the data directory and its lock, signals, and temporary
/// descriptors for name lookups and reads of `/proc`.
const PROCESS: u64 = 24;

/// The event loop of a worker and its wake-up descriptor.
const PER_WORKER: u64 = 4;

/// Segments of the log (the current one, the next ones, one to be removed), and snapshots being
/// written, received, sent and backed up.
const FILES: u64 = 64;

/// Per host one link, and a second one while a link is replaced; besides, unidentified connections.
const PEERS: u64 = (2 * HOSTS_MAX + HANDSHAKES_MAX + JOINS_MAX) as u64;

/// Rejected clients of one server that are still being sent the reason, at most. Above this the
/// connection is closed without waiting. Each holds a descriptor beyond those of clients.
pub(crate) const REFUSALS_MAX: usize = 64;

/// Clients of each protocol that are being told why they are refused.
const REFUSED: u64 = 2 * REFUSALS_MAX as u64;

/// Fewest client connections with which a node starts.
const CLIENTS_MIN: u64 = 32;

/// Each protocol leaves one part in this many to the other, so that clients that take all
/// connections of one do not lock operators out of the other.
const PART_FOR_OTHERS: usize = 8;

/// The descriptors of this process and their distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// The limit of open files of this process.
    pub limit: u64,
    /// Reserved for log, snapshots, peers and workers.
    pub reserved: u64,
    /// Most client connections of all protocols together.
    pub clients_max: usize,
    /// Most connections of HTTP clients, without watchers.
    pub http_max: usize,
    /// Most connections of Redis clients.
    pub resp_max: usize,
}

/// The limit leaves no room for clients.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the limit of open files is {limit}, and a node needs at least {needed}: raise it (`ulimit -n`, or LimitNOFILE \
     of a systemd unit)"
)]
pub struct TooFewDescriptors {
    limit: u64,
    needed: u64,
}

/// Raises the soft limit of open files to the hard limit, and divides it.
///
/// # Errors
/// When the limit leaves no room for clients.
pub fn claim(workers: usize) -> Result<DescriptorBudget, TooFewDescriptors> {
    let budget = DescriptorBudget::of(raise_limit(), workers)?;
    let DescriptorBudget { limit, reserved, clients_max, http_max, resp_max } = budget;
    tracing::info!(limit, reserved, clients_max, http_max, resp_max, "file descriptors");
    if http_max < CONNECTIONS_MAX || resp_max < CONNECTIONS_MAX {
        tracing::warn!(
            limit,
            clients_max,
            wanted = clients_wanted() as u64 + reserved,
            "the limit of open files allows fewer client connections than usual: raise it (`ulimit -n`, or \
             LimitNOFILE of a systemd unit)"
        );
    }
    Ok(budget)
}

/// Raises the limit as far as an unprivileged process may, and returns it.
fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum.unwrap_or(u64::MAX),
        // Some systems have an upper bound below an unlimited hard limit.
        Err(error) => {
            tracing::warn!(%error, "the limit of open files could not be raised");
            current.unwrap_or(u64::MAX)
        }
    }
}

/// The sum of the default limits of all protocols.
const fn clients_wanted() -> usize {
    2 * CONNECTIONS_MAX + WATCHERS_MAX
}

impl DescriptorBudget {
    /// Divides a limit.
    fn of(limit: u64, workers: usize) -> Result<DescriptorBudget, TooFewDescriptors> {
        let reserved = PROCESS + FILES + PEERS + REFUSED + PER_WORKER * workers as u64;
        let left = limit.saturating_sub(reserved);
        if left < CLIENTS_MIN {
            return Err(TooFewDescriptors { limit, needed: reserved + CLIENTS_MIN });
        }
        let clients_max = usize::try_from(left).unwrap_or(usize::MAX).min(clients_wanted());
        let most = share(clients_max);
        Ok(DescriptorBudget {
            limit,
            reserved,
            clients_max,
            http_max: most.min(CONNECTIONS_MAX),
            resp_max: most.min(CONNECTIONS_MAX),
        })
    }
}

/// The most client connections that one protocol may take.
fn share(clients_max: usize) -> usize {
    clients_max - clients_max / PART_FOR_OTHERS
}

/// The client connections of all protocols, counted together. Clones share the count.
#[derive(Clone, Debug)]
pub struct ClientDescriptors {
    clients_max: usize,
    open: Arc<AtomicUsize>,
}

/// One connection among [`ClientDescriptors`], until it is dropped.
#[derive(Debug)]
pub(crate) struct DescriptorPermit(Arc<AtomicUsize>);

impl ClientDescriptors {
    /// At most `clients_max` connections.
    pub fn new(clients_max: usize) -> ClientDescriptors {
        ClientDescriptors { clients_max, open: Arc::default() }
    }

    /// A permit for one more connection of a protocol that has `of_protocol` connections, if one is
    /// available.
    pub(crate) fn permit(&self, of_protocol: usize) -> Option<DescriptorPermit> {
        // Only one thread takes permits, so the check and the increment need not be atomic
        // together.
        if of_protocol >= share(self.clients_max) || self.open.load(Relaxed) >= self.clients_max {
            return None;
        }
        self.open.fetch_add(1, Relaxed);
        Some(DescriptorPermit(self.open.clone()))
    }
}

impl Default for ClientDescriptors {
    /// Permits without a limit.
    fn default() -> ClientDescriptors {
        ClientDescriptors::new(usize::MAX)
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Whether an operation failed because the process (EMFILE) or the system (ENFILE) has no
/// descriptor left.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_limit_gives_every_protocol_its_default() {
        let budget = DescriptorBudget::of(1 << 20, 8).unwrap();
        assert_eq!((budget.http_max, budget.resp_max), (CONNECTIONS_MAX, CONNECTIONS_MAX));
        assert_eq!(budget.clients_max, clients_wanted());
        assert_eq!(DescriptorBudget::of(u64::MAX, 1).unwrap().clients_max, clients_wanted());
    }

    #[test]
    fn a_small_limit_is_divided_and_none_is_given_twice() {
        for limit in [700, 1024, 4096, 20_000] {
            let DescriptorBudget { reserved, clients_max, http_max, resp_max, .. } =
                DescriptorBudget::of(limit, 2).unwrap();
            assert_eq!(reserved + clients_max as u64, limit);
            assert!(http_max < clients_max && resp_max < clients_max, "one protocol cannot take all");
        }
    }

    #[test]
    fn a_limit_without_room_for_clients_is_an_error_that_says_what_is_needed() {
        let error = DescriptorBudget::of(100, 1).unwrap_err();
        assert!(
            DescriptorBudget::of(error.needed, 1).is_ok()
                && DescriptorBudget::of(error.needed - 1, 1).is_err()
        );
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }

    #[test]
    fn permits_are_counted_over_protocols_and_come_back() {
        let descriptors = ClientDescriptors::new(16);
        let clone = descriptors.clone();
        let mut http: Vec<DescriptorPermit> = (0..14).map_while(|open| descriptors.permit(open)).collect();
        assert_eq!(http.len(), 14);
        assert!(descriptors.permit(14).is_none(), "an eighth is left to the other protocol");
        let resp: Vec<DescriptorPermit> = (0..14).map_while(|open| clone.permit(open)).collect();
        assert_eq!(resp.len(), 2);
        http.pop();
        assert!(clone.permit(2).is_some());
    }
}
