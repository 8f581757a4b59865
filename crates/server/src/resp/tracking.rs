//! `CLIENT TRACKING`: which keys a client caches, and how it is told that they have changed.
//!
//! Owns the options of one connection. What is invalidated is decided by the core's
//! [`KeyTracking`](tidelock_core::clients::key_tracking).

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use tidelock_core::command::Operation;
use tidelock_core::limits::KEY_BYTES_MAX;

use crate::watch::Tracker;

/// The channel of invalidations, to which a client of RESP2 subscribes.
pub const INVALIDATION_CHANNEL: &[u8] = b"__redis__:invalidate";

/// Which keys are tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingMode {
    /// Those that the client reads.
    Reads,
    /// Those that it reads by the next command after `CLIENT CACHING YES`.
    OptIn,
    /// Those that it reads, except by the next command after `CLIENT CACHING NO`.
    OptOut,
    /// Those with certain prefixes, whether it reads them or not.
    Broadcast,
}

/// The tracking of one connection.
#[derive(Debug)]
pub struct Tracking {
    /// Its entry among the clients that cache keys, which ends with it.
    pub tracker: Tracker,
    pub mode: TrackingMode,
    /// The client that gets the invalidations; `None`: this one.
    pub redirect: Option<u64>,
    /// Whether the client that gets the invalidations is gone, and this one was told.
    pub is_broken: Cell<bool>,
    /// The node has refused to report changes, so nothing may be cached.
    pub is_refused: Rc<Cell<bool>>,
    /// The client has made the exception of its mode for the next command.
    pub is_exception: bool,
}

impl TrackingMode {
    /// Its name among the flags of `CLIENT TRACKINGINFO`, if it has one.
    pub fn flag(self) -> Option<&'static str> {
        match self {
            TrackingMode::Reads => None,
            TrackingMode::OptIn => Some("optin"),
            TrackingMode::OptOut => Some("optout"),
            TrackingMode::Broadcast => Some("bcast"),
        }
    }
}

impl Tracking {
    /// Whether the keys that the next command reads are tracked.
    fn tracks_reads(&self) -> bool {
        match self.mode {
            TrackingMode::Reads => true,
            TrackingMode::OptIn => self.is_exception,
            TrackingMode::OptOut => !self.is_exception,
            TrackingMode::Broadcast => false,
        }
    }

    /// These operations are about to be executed.
    pub fn executing<'a>(&self, operations: impl Iterator<Item = Operation<'a>>) {
        if self.tracks_reads() {
            let read = operations.filter(Operation::is_read).map(|operation| operation.key());
            read.filter(|key| key.len() <= KEY_BYTES_MAX).for_each(|key| self.tracker.track(key));
        }
    }

    /// What `CLIENT TRACKINGINFO` shows of it.
    pub fn flags(&self) -> Vec<&'static str> {
        let exception = match self.mode {
            TrackingMode::OptIn => Some("caching-yes"),
            TrackingMode::OptOut => Some("caching-no"),
            TrackingMode::Reads | TrackingMode::Broadcast => None,
        };
        let exception = exception.filter(|_| self.is_exception);
        let broken = self.is_broken.get().then_some("broken_redirect");
        [Some("on"), self.mode.flag(), exception, broken].into_iter().flatten().collect()
    }

    /// The prefixes of broadcast mode.
    pub fn prefixes(&self) -> Vec<Bytes> {
        self.tracker.prefixes()
    }
}
