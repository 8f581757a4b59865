//! The formats of texts: durations such as `1h30m`, and sizes such as `10MiB`.
//!
//! ```text
//! duration = 1*(digits unit)    unit = d | h | m | s | ms | us | ns
//! bytes    = digits unit        unit = B | KB | MB | GB | TB | PB | KiB | MiB | GiB | TiB | PiB
//! ```
//! The units of a duration come from the largest to the smallest, each at most once. Both must be
//! representable in a signed integer of 64 bits: a duration in nanoseconds, a size in bytes.

/// Units of durations, the largest first, in nanoseconds.
const DURATION_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Units of sizes, in bytes.
const BYTES_UNITS: [(&str, u64); 11] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

/// Whether a text is a duration such as `30s` or `1h30m`.
pub fn is_duration(text: &str) -> bool {
    let mut rest = text;
    let mut units = DURATION_UNITS.iter();
    let mut total: u64 = 0;
    while let Some((number, unit, behind)) = quantity(rest) {
        let Some((_, factor)) = units.find(|(name, _)| *name == unit) else { return false };
        let sum = number.checked_mul(*factor).and_then(|part| total.checked_add(part));
        let Some(sum) = sum.filter(|sum| *sum <= i64::MAX as u64) else { return false };
        total = sum;
        if behind.is_empty() {
            return true;
        }
        rest = behind;
    }
    false
}

/// Whether a text is a size such as `512B` or `10MiB`.
pub fn is_bytes(text: &str) -> bool {
    let Some((number, unit, "")) = quantity(text) else { return false };
    let factor = BYTES_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let size = factor.and_then(|factor| number.checked_mul(factor));
    size.is_some_and(|size| size <= i64::MAX as u64)
}

/// The number and the unit at the beginning of a text, and what follows.
fn quantity(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (unit, behind) = rest.split_at(letters);
    (!unit.is_empty()).then_some((number.parse().ok()?, unit, behind))
}
