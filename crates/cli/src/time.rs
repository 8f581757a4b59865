//! Moments and durations, as people write and read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Units of durations: their letter, and how many seconds they have.
const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];

/// Durations and moments beyond this are mistakes: a hundred years, in seconds.
const DURATION_S_MAX: u64 = 100 * 365 * 86_400;

/// This moment, in milliseconds since 1970.
pub fn now_unix_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// A duration such as `90d`, `12h`, `30m` or `60s`, in seconds.
///
/// # Errors
/// When the text is something else, none, or more than a hundred years.
pub fn duration_s(text: &str) -> Result<u64, String> {
    let parse = || {
        let unit = text.chars().last()?;
        let (_, unit_s) = UNITS.into_iter().find(|(letter, _)| *letter == unit)?;
        let digits = text.strip_suffix(unit)?;
        let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
        number.checked_mul(unit_s).filter(|seconds| (1..=DURATION_S_MAX).contains(seconds))
    };
    parse().ok_or_else(|| format!("`{text}` is no duration: write one such as 90d, 12h, 30m or 60s"))
}

/// A number of seconds in the largest unit that measures it exactly, such as `36h` or `90s`.
pub fn duration_text(seconds: u64) -> String {
    let units = UNITS.iter().rev();
    let (letter, unit_s) =
        units.copied().find(|(_, unit_s)| seconds.is_multiple_of(*unit_s)).unwrap_or(('s', 1));
    format!("{}{letter}", seconds / unit_s)
}

/// A time for which something lasts or is awaited, such as `1500ms`, `30s` or `0s`.
///
/// # Errors
/// When the text is something else, or more than a hundred years.
pub fn wait(text: &str) -> Result<Duration, String> {
    let parse = || {
        let Some(digits) = text.strip_suffix("ms") else {
            let is_zero = UNITS.iter().any(|(unit, _)| text.strip_suffix(*unit) == Some("0"));
            return if is_zero {
                Some(Duration::ZERO)
            } else {
                Some(Duration::from_secs(duration_s(text).ok()?))
            };
        };
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let wait = Duration::from_millis(digits.parse().ok().filter(|_| is_number)?);
        Some(wait).filter(|wait| wait.as_secs() <= DURATION_S_MAX)
    };
    parse().ok_or_else(|| format!("`{text}` is no time: write one such as 500ms, 30s, 10m or 2h"))
}

/// A moment in milliseconds since 1970: RFC 3339, or a duration from now on.
///
/// # Errors
/// When the text is neither, or a moment before 1970.
pub fn moment(text: &str, now_unix_ms: u64) -> Result<u64, String> {
    if let Ok(seconds) = duration_s(text) {
        return Ok(now_unix_ms.saturating_add(seconds * 1000));
    }
    let parsed = text.parse::<Timestamp>().ok();
    parsed.and_then(|moment| u64::try_from(moment.as_millisecond()).ok()).ok_or_else(|| {
        format!(
            "`{text}` is no moment: write one such as 2027-05-01T00:00:00Z, or a time from now such as 30d"
        )
    })
}

/// A moment as RFC 3339 writes it, in UTC, to the second. Moments beyond the year 9999, which only
/// damaged files have, are shown as its end.
pub fn rfc3339(unix_ms: u64) -> String {
    let second = i64::try_from(unix_ms / 1000).ok();
    let moment = second.and_then(|second| Timestamp::from_second(second).ok());
    format!("{:.0}", moment.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1000 + 7), text);
        }
        assert!(rfc3339(u64::MAX).starts_with("9999-12-"));
    }

    #[test]
    fn durations_have_a_unit() {
        for (text, seconds) in [("1s", 1), ("30m", 1800), ("12h", 43_200), ("90d", 7_776_000)] {
            assert_eq!(duration_s(text), Ok(seconds), "{text}");
            assert_eq!(duration_text(seconds), text);
        }
        for text in
            ["", "d", "90", "0d", "-1d", "+1d", "1.5h", "1w", "1 d", "40000d", "99999999999999999999s"]
        {
            assert!(duration_s(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_moment_is_a_date_or_a_time_from_now() {
        assert_eq!(moment("1d", 5), Ok(86_400_005));
        assert_eq!(moment("2000-02-28T23:59:59Z", 5), Ok(951_782_399_000));
        assert_eq!(moment("2000-02-29T00:59:59+01:00", 5), Ok(951_782_399_000));
        for text in ["", "tomorrow", "2027-05-01", "1969-01-01T00:00:00Z", "2027-05-01T00:00:00"] {
            assert!(moment(text, 5).is_err(), "{text}");
        }
    }
}
