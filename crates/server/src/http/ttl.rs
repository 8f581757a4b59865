//! Times to live: `?ttl=30s` in requests, `Tidelock-TTL-Ms` in answers.
//!
//! The leader of the key's shard adds relative times to its own clock. The
//! remaining time of a key is computed with that clock too, as far as this node has measured it.

use hyper::header::{HeaderName, HeaderValue};
use tidelock_core::types::UnixMillis;

use super::duration;
use super::problem::Problem;
use super::response::Response;
use super::uri::Parameters;
use crate::clock::WallClock;
use crate::store::Store;

/// Milliseconds that a key has left; 0 if it may expire at any moment.
const TTL_MS: HeaderName = HeaderName::from_static("tidelock-ttl-ms");

/// Longest time to live in milliseconds: a hundred years, so that no sum overflows.
const TTL_MS_MAX: u64 = 100 * 366 * 24 * 3_600 * 1_000;

/// What [`parse`] accepts.
pub(super) const NOTATION: &str =
    "ttl must be a whole number and a unit, such as 1500ms, 30s, 5m, 2h or 7d, up to 36600d";

/// The time to live of the key that a request writes, in milliseconds, if given.
pub(super) fn of_write(parameters: Parameters<'_>) -> Result<Option<u64>, Problem> {
    let Some(text) = parameters.get("ttl")? else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| Problem::invalid(NOTATION))
}

/// Parses a time to live, in milliseconds; `None` if it is malformed or out of bounds.
pub(super) fn parse(text: &[u8]) -> Option<u64> {
    duration::parse_ms(text).filter(|millis| (1..=TTL_MS_MAX).contains(millis))
}

/// The current time by the clock of the leader of a key's shard.
pub(super) fn leader_time<S: Store>(store: &S, clock: WallClock, key: &[u8]) -> UnixMillis {
    let ahead_ms = store.leader_ahead_ms(store.shard_of(key));
    UnixMillis(clock.now().0.saturating_add_signed(ahead_ms))
}

/// Milliseconds from `now` to `expires`; 0 if that is past.
pub(super) fn remaining_ms(expires: UnixMillis, now: UnixMillis) -> u64 {
    expires.0.saturating_sub(now.0)
}

/// Adds the header with the remaining milliseconds, if the key expires.
pub(super) fn with_ttl(mut response: Response, remaining_ms: Option<u64>) -> Response {
    if let Some(millis) = remaining_ms {
        response.headers_mut().insert(TTL_MS, HeaderValue::from(millis));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_limited() {
        let of = |query: &'static str| of_write(Parameters::new(query.as_bytes()));
        assert_eq!(of("ttl=2s").unwrap(), Some(2_000));
        assert_eq!(of("").unwrap(), None);
        for bad in ["ttl=0s", "ttl=36601d", "ttl"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert_eq!(remaining_ms(UnixMillis(5), UnixMillis(9)), 0);
    }
}
