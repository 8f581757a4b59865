//! Times to live: `?ttl=30s` in requests, `Tidelock-TTL-Ms` in answers.
//!
//! Owns the notation. The leader of the key's shard adds relative times to its own clock. The
//! remaining time of a key is computed with that clock too, as far as this node has measured it.

use hyper::header::{HeaderName, HeaderValue};
use tidelock_core::types::UnixMillis;

use super::problem::Problem;
use super::response::Response;
use super::uri::{self, Parameters};
use crate::clock::WallClock;
use crate::store::Store;

/// Milliseconds that a key has left; 0 if it may expire at any moment.
const TTL_MS: HeaderName = HeaderName::from_static("tidelock-ttl-ms");

/// Longest time to live in milliseconds: a hundred years, so that no sum overflows.
const TTL_MS_MAX: u64 = 100 * 366 * 24 * 3_600 * 1_000;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60 * 1_000), ("h", 3_600 * 1_000), ("d", 24 * 3_600 * 1_000)];

/// The time to live of the key that a request writes, in milliseconds, if given.
pub(super) fn of_write(parameters: Parameters<'_>) -> Result<Option<u64>, Problem> {
    let Some(text) = parameters.get("ttl")? else { return Ok(None) };
    let millis = parse(&text).filter(|millis| (1..=TTL_MS_MAX).contains(millis)).ok_or_else(|| {
        Problem::invalid(
            "ttl must be a whole number and a unit, such as 1500ms, 30s, 5m, 2h or 7d, up to 36600d",
        )
    })?;
    Ok(Some(millis))
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

fn parse(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| name.as_bytes() == unit)?;
    uri::parse_u64(number)?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_have_units() {
        for (text, expected) in [
            ("1500ms", Some(1_500)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("7d", Some(604_800_000)),
            ("30", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("1.5s", None),
            ("1w", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
        let of = |query: &'static str| of_write(Parameters::new(query.as_bytes()));
        assert_eq!(of("ttl=2s").unwrap(), Some(2_000));
        assert_eq!(of("").unwrap(), None);
        for bad in ["ttl=0s", "ttl=36601d", "ttl"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert_eq!(remaining_ms(UnixMillis(5), UnixMillis(9)), 0);
    }
}
