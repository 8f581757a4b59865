//! Durations in queries: a whole number and a unit, such as `1500ms`, `30s`, `5m`, `2h` or `7d`.

use super::uri;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60 * 1_000), ("h", 3_600 * 1_000), ("d", 24 * 3_600 * 1_000)];

/// Parses a duration, in milliseconds.
pub(super) fn parse_ms(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| name.as_bytes() == unit)?;
    uri::parse_u64(number)?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, expected) in [
            ("0s", Some(0)),
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
            assert_eq!(parse_ms(text.as_bytes()), expected, "{text}");
        }
    }
}
