//! Rate limits of principals at this node.
//!
//! Owns the clock of the token buckets. All connections and workers of a node share the buckets of
//! a principal. The core owns the arithmetic (`auth::RateLimiter`). A principal without a limit has
//! no limiter, so its requests cost one check of an `Option`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tidelock_core::auth::{Access, LimitExceeded, RateLimiter, RateLimits, Usage};
use tidelock_core::types::LogIndex;

/// The limiters of all limited principals of a node.
#[derive(Debug)]
pub struct PrincipalLimiters {
    began: Instant,
    /// By principal: the limiter, and the revision of the rows from which its limits were read.
    by_principal: Mutex<BTreeMap<String, (LogIndex, Arc<PrincipalLimiter>)>>,
    refused: Arc<AtomicU64>,
}

/// The limiter of one principal.
#[derive(Debug)]
pub struct PrincipalLimiter {
    began: Instant,
    buckets: Mutex<RateLimiter>,
    refused: Arc<AtomicU64>,
}

impl Default for PrincipalLimiters {
    fn default() -> PrincipalLimiters {
        PrincipalLimiters { began: Instant::now(), by_principal: Mutex::default(), refused: Arc::default() }
    }
}

impl PrincipalLimiters {
    /// The limiter of a principal, with the limits in these rows; `None` if it has no limit.
    pub fn of(&self, principal: &str, rows: &Access) -> Option<Arc<PrincipalLimiter>> {
        let limits = rows.rates(principal);
        if limits.is_empty() {
            return None;
        }
        let mut limiters = self.by_principal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((revision, known)) = limiters.get_mut(principal) {
            // Another worker may have seen later rows already.
            if rows.revision() > *revision {
                *revision = rows.revision();
                known.set_limits(limits);
            }
            return Some(known.clone());
        }
        limiters.retain(|name, _| !rows.rates(name).is_empty());
        let buckets = Mutex::new(RateLimiter::new(limits, milliseconds_since(self.began)));
        let limiter =
            Arc::new(PrincipalLimiter { began: self.began, buckets, refused: self.refused.clone() });
        limiters.insert(principal.to_owned(), (rows.revision(), limiter.clone()));
        Some(limiter)
    }

    /// Number of requests and commands that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl PrincipalLimiter {
    /// Admits a request.
    ///
    /// # Errors
    /// When it is over the limit; it is counted then.
    pub fn admit(&self, usage: Usage) -> Result<(), LimitExceeded> {
        let now_ms = milliseconds_since(self.began);
        let admitted = self.buckets.lock().unwrap_or_else(PoisonError::into_inner).admit(usage, now_ms);
        if admitted.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// Charges what was not known when the request was admitted.
    pub fn charge(&self, usage: Usage) {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).charge(usage);
    }

    fn set_limits(&self, limits: RateLimits) {
        let now_ms = milliseconds_since(self.began);
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).set_limits(limits, now_ms);
    }
}

fn milliseconds_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}
