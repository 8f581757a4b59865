//! Moments for people.

use jiff::Timestamp;

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
}
