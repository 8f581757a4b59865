//! Decimal numbers with 17 places, as the text of a value and as a number to add.
//!
//! Owns their arithmetic, for `INCRBYFLOAT`. Redis adds 80-bit floating-point numbers and prints 17
//! places. Such numbers exist only on some processors, and a sum of 64-bit ones shows rounding that
//! Redis hides: 0.1 and 0.2 give 0.30000000000000004. Integers in units of the last place are
//! exact, and equal on every replica.

use core::fmt;

use crate::codec::{self, DecodeError, Decoder};
use alloc::vec::Vec;

/// Digits after the decimal point.
const PLACES: u32 = 17;

/// Units of the number 1.
const ONE: u128 = 10_u128.pow(PLACES);

/// Digits of the largest number, in units: 21 before the decimal point.
const DIGITS_MAX: u32 = 21 + PLACES;

/// The magnitude that no number reaches, in units. A sum of two numbers may exceed an `i128`.
const UNITS_END: u128 = 10_u128.pow(DIGITS_MAX);

/// A decimal number of at most 17 places, with a magnitude below 10^21.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// The number, in units of 10^-17.
    units: i128,
}

/// Why a text is no [`Decimal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// It is not a decimal number.
    #[error("not a decimal number")]
    NotANumber,
    /// Its magnitude is 10^21 or more, or infinite.
    #[error("a magnitude of 10^21 or more")]
    TooLarge,
}

impl Decimal {
    /// The number 0.
    pub const ZERO: Decimal = Decimal { units: 0 };

    /// Parses digits with an optional sign, decimal point and exponent, and nothing before or after
    /// them. Places beyond the 17th are rounded, halves away from zero.
    ///
    /// # Errors
    /// When the text is not such a number, or its magnitude is 10^21 or more. `inf` and `infinity`
    /// are too large; `nan` is not a number.
    pub fn parse(text: &[u8]) -> Result<Decimal, DecimalError> {
        let (is_negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if [&b"inf"[..], b"infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name)) {
            return Err(DecimalError::TooLarge);
        }
        let exponent_at = unsigned.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = match exponent_at {
            Some(at) => (&unsigned[..at], parse_exponent(&unsigned[at + 1..])?),
            None => (unsigned, 0),
        };
        let point_at = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
        let (integer, fraction) = (&mantissa[..point_at], mantissa.get(point_at + 1..).unwrap_or_default());
        let digits = || integer.iter().chain(fraction);
        if digits().next().is_none() || !digits().all(u8::is_ascii_digit) {
            return Err(DecimalError::NotANumber);
        }
        // The power of ten, in units, of the first digit.
        let first = integer.len() as i64 - 1 + exponent + i64::from(PLACES);
        let mut magnitude = 0_u128;
        for (power, digit) in (0..).map(|position| first - position).zip(digits()) {
            let digit = u128::from(digit - b'0');
            match u32::try_from(power) {
                _ if digit == 0 => {}
                Ok(power) if power < DIGITS_MAX => magnitude += digit * 10_u128.pow(power),
                Ok(_) => return Err(DecimalError::TooLarge),
                Err(_) => magnitude += u128::from(power == -1 && digit >= 5),
            }
        }
        let magnitude = i128::try_from(magnitude).map_err(|_| DecimalError::TooLarge)?;
        Decimal::of_units(if is_negative { -magnitude } else { magnitude }).ok_or(DecimalError::TooLarge)
    }

    /// The sum; `None` if its magnitude is 10^21 or more.
    pub fn checked_add(self, other: Decimal) -> Option<Decimal> {
        Decimal::of_units(self.units.checked_add(other.units)?)
    }

    fn of_units(units: i128) -> Option<Decimal> {
        (units.unsigned_abs() < UNITS_END).then_some(Decimal { units })
    }

    /// Appends the units in 16 bytes, little-endian.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        codec::put_bytes(out, &self.units.to_le_bytes());
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Decimal, DecodeError> {
        let bytes = decoder.bytes()?.try_into().map_err(|_| DecodeError::Invalid("decimal number"))?;
        Decimal::of_units(i128::from_le_bytes(bytes)).ok_or(DecodeError::Invalid("decimal number"))
    }
}

/// The exponent of a number. One beyond 10^9 has the effect of 10^9.
fn parse_exponent(text: &[u8]) -> Result<i64, DecimalError> {
    const EXPONENT_MAX: i64 = 1_000_000_000;
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DecimalError::NotANumber);
    }
    let append = |number: i64, digit: &u8| (number * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX);
    Ok(sign * digits.iter().fold(0, append))
}

/// Without an exponent, and without zeros at the end of the places.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.units.unsigned_abs();
        let (integer, mut fraction) = (magnitude / ONE, magnitude % ONE);
        let sign = if self.units < 0 { "-" } else { "" };
        if fraction == 0 {
            return write!(f, "{sign}{integer}");
        }
        let mut places = PLACES as usize;
        while fraction.is_multiple_of(10) {
            (fraction, places) = (fraction / 10, places - 1);
        }
        write!(f, "{sign}{integer}.{fraction:0places$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    fn shown(text: &str) -> Result<String, DecimalError> {
        Decimal::parse(text.as_bytes()).map(|number| number.to_string())
    }

    #[test]
    fn numbers_are_shown_without_an_exponent_and_zeros_at_the_end() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("007", "7"),
            ("+1.50", "1.5"),
            (".5", "0.5"),
            ("5.", "5"),
            ("-.25e2", "-25"),
            ("5.0e3", "5000"),
            ("12E-3", "0.012"),
            ("0e999999999999", "0"),
            ("1e-999999999999", "0"),
            ("0.00000000000000001", "0.00000000000000001"),
            ("0.000000000000000005", "0.00000000000000001"),
            ("0.0000000000000000049", "0"),
            ("-0.000000000000000005", "-0.00000000000000001"),
            ("999999999999999999999.99999999999999999", "999999999999999999999.99999999999999999"),
            ("1e20", "100000000000000000000"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_or_too_large_is_refused() {
        for text in [
            "", "-", "+", ".", "e5", "1e", "1e+", "1 ", " 1", "1.2.3", "0x10", "nan", "-nan", "1,5", "--1",
            "1e5e5",
        ] {
            assert_eq!(shown(text), Err(DecimalError::NotANumber), "{text}");
        }
        for text in [
            "1e21",
            "1000000000000000000000",
            "999999999999999999999.999999999999999999",
            "1e999999999999",
            "inf",
            "-Infinity",
        ] {
            assert_eq!(shown(text), Err(DecimalError::TooLarge), "{text}");
        }
    }

    #[test]
    fn sums_are_exact_within_the_range() {
        let sum = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| Decimal::parse(text.as_bytes()).expect("a number"));
            one.checked_add(other).map(|sum| sum.to_string())
        };
        assert_eq!(sum("0.1", "0.2").as_deref(), Some("0.3"));
        assert_eq!(sum("1", "-1.1").as_deref(), Some("-0.1"));
        assert_eq!(sum("17179869184", "1.5").as_deref(), Some("17179869185.5"));
        assert_eq!(sum("999999999999999999999", "1"), None);
        assert_eq!(sum("-999999999999999999999", "-999999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn numbers_round_trip_as_text_and_as_bytes(high in any::<i64>(), low in any::<i64>()) {
            let number = Decimal { units: i128::from(high) * i128::from(low) };
            if number.units.unsigned_abs() < UNITS_END {
                prop_assert_eq!(Decimal::parse(number.to_string().as_bytes()), Ok(number));
                let mut bytes = Vec::new();
                number.encode(&mut bytes);
                prop_assert_eq!(Decimal::decode(&mut Decoder::new(&bytes)), Ok(number));
            }
        }

        #[test]
        fn sums_are_those_of_integers(one in -1_000_000_i64..1_000_000, other in -1_000_000_i64..1_000_000) {
            let thousandths = |number: i64| Decimal::parse(format!("{number}e-3").as_bytes()).expect("a number");
            let sum = thousandths(one).checked_add(thousandths(other));
            prop_assert_eq!(sum, Some(thousandths(one + other)));
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(text in "[-+.e0-9]{0,60}") {
            if let Ok(number) = Decimal::parse(text.as_bytes()) {
                prop_assert_eq!(Decimal::parse(number.to_string().as_bytes()), Ok(number));
            }
        }
    }
}
