//! The primitives of every Tidelock format: LEB128 varints and length-prefixed bytes.
//!
//! Owns the layout of numbers and byte strings, not of messages. Checksums and versions belong to
//! the frames that carry these bytes (`storage::wal`, the peer transport), which verify them once,
//! before decoding. Decoding never panics. It allocates memory for the values that it has read, not
//! for the count that the input states.

use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

/// Most values of a list for which memory is reserved in advance: the stated count may be wrong.
const RESERVED_MAX: u64 = 1_024;

/// Why bytes could not be decoded. Their checksum was correct, so the sender has another version or
/// a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ended inside a value.
    #[error("the input ends inside a value")]
    Truncated,
    /// A varint of more than 64 bits.
    #[error("a number does not fit 64 bits")]
    Overflow,
    /// A discriminant that this version does not know. The text names the type.
    #[error("unknown {0}")]
    UnknownTag(&'static str),
    /// A value that decodes but breaks a limit or an invariant. The text names it.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// Bytes left over after the last value.
    #[error("bytes left over")]
    TrailingBytes,
}

/// Gives each value of a type the code that stands for it on wire and disk. A code is never reused.
macro_rules! codes {
    ($type:ident as $what:literal { $($value:expr => $code:literal,)+ }) => {
        impl $type {
            const CODES: &[($type, u8)] = &[$(($value, $code)),+];

            pub(crate) fn code(self) -> u8 {
                let found = $type::CODES.iter().find(|(value, _)| *value == self);
                found.expect("invariant: every value has a code").1
            }

            pub(crate) fn from_code(code: u8) -> Result<$type, $crate::codec::DecodeError> {
                let found = $type::CODES.iter().find(|(_, known)| *known == code);
                found.map(|(value, _)| *value).ok_or($crate::codec::DecodeError::UnknownTag($what))
            }
        }
    };
}

pub(crate) use codes;

/// Appends `value` as a varint of 1 to 10 bytes.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Number of bytes that [`put_varint`] appends.
pub fn varint_bytes(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Appends a signed `value` as a varint, small numbers of either sign in few bytes (zigzag).
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value << 1 ^ value >> 63) as u64);
}

/// Appends the length of `bytes`, then `bytes`.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Number of bytes that [`put_bytes`] appends.
pub fn length_prefixed_bytes(bytes: &[u8]) -> usize {
    varint_bytes(bytes.len() as u64) + bytes.len()
}

/// Reads values off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts at the front of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Decoder { rest: input }
    }

    /// Whether all input is consumed.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the bytes that are not consumed yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Fails unless all input is consumed.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    /// Reads a fixed number of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (&first, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    /// Reads one byte that is 0 or 1.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("boolean")),
        }
    }

    /// Reads a varint of at most ten bytes.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        // Most numbers are lengths and counts of one byte.
        match *self.rest {
            [byte, ref rest @ ..] if byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    /// Reads a count, then that many values.
    ///
    /// # Errors
    /// Those of the count and of the first value that cannot be read.
    pub fn list<T>(
        &mut self,
        mut value: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.varint()?;
        let mut values = Vec::with_capacity(count.min(RESERVED_MAX) as usize);
        for _ in 0..count {
            values.push(value(self)?);
        }
        Ok(values)
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Overflow);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Overflow)
    }

    /// Reads a signed varint (zigzag).
    pub fn signed(&mut self) -> Result<i64, DecodeError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads a varint of at most `max`. `what` names it in the error.
    pub fn bounded(&mut self, max: u64, what: &'static str) -> Result<u64, DecodeError> {
        let value = self.varint()?;
        if value <= max { Ok(value) } else { Err(DecodeError::Invalid(what)) }
    }

    /// Reads exactly `count` raw bytes.
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        if count > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    /// Reads the 16 bytes of a uuid.
    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        let bytes = self.raw(16)?.try_into().map_err(|_| DecodeError::Truncated)?;
        Ok(Uuid::from_bytes(bytes))
    }

    /// Reads length-prefixed bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let count = self.varint()?;
        self.raw(usize::try_from(count).map_err(|_| DecodeError::Truncated)?)
    }

    /// Reads length-prefixed UTF-8.
    pub fn text(&mut self) -> Result<String, DecodeError> {
        let text = core::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Invalid("text"))?;
        Ok(String::from(text))
    }

    /// Reads length-prefixed bytes as a reference-counted slice of `owner`, the buffer that this
    /// decoder reads.
    pub fn shared(&mut self, owner: &Bytes) -> Result<Bytes, DecodeError> {
        self.bytes().map(|slice| owner.slice_ref(slice))
    }

    /// Reads a count, a length in bytes, and that many bytes of encoded items, which stay encoded.
    /// Returns them only if `check` reads exactly `count` items from them. `what` names them in the
    /// error.
    pub fn packed(
        &mut self,
        owner: &Bytes,
        what: &'static str,
        mut check: impl FnMut(&mut Decoder<'_>) -> Result<(), DecodeError>,
    ) -> Result<(usize, Bytes), DecodeError> {
        let count = self.varint()?;
        let bytes = self.shared(owner)?;
        let mut items = Decoder::new(&bytes);
        let mut seen = 0;
        while !items.is_empty() {
            check(&mut items)?;
            seen += 1;
        }
        if seen as u64 != count { Err(DecodeError::Invalid(what)) } else { Ok((seen, bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn varints_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = vec![];
                put_varint(&mut out, value);
                let mut decoder = Decoder::new(&out);
                assert_eq!(decoder.varint(), Ok(value));
                assert_eq!(decoder.finish(), Ok(()));
            }
        }
    }

    #[test]
    fn signed_numbers_round_trip() {
        for value in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN, 1 << 40, -(1 << 40)] {
            let mut out = vec![];
            put_signed(&mut out, value);
            assert_eq!(Decoder::new(&out).signed(), Ok(value));
            assert_eq!(out.len() == 1, (-64..64).contains(&value), "{value}");
        }
    }

    #[test]
    fn hostile_input_is_an_error() {
        assert_eq!(Decoder::new(&[0x80; 11]).varint(), Err(DecodeError::Overflow));
        assert_eq!(Decoder::new(&[0xff; 9]).varint(), Err(DecodeError::Truncated));
        let mut too_wide = vec![0xff; 9];
        too_wide.push(2);
        assert_eq!(Decoder::new(&too_wide).varint(), Err(DecodeError::Overflow));
        assert_eq!(Decoder::new(&[5, 1, 2]).bytes(), Err(DecodeError::Truncated));
        assert_eq!(Decoder::new(&[2]).bool(), Err(DecodeError::Invalid("boolean")));
        assert_eq!(Decoder::new(&[1]).finish(), Err(DecodeError::TrailingBytes));
        let mut endless = vec![];
        put_varint(&mut endless, u64::MAX);
        endless.push(7);
        let mut read = 0;
        let values = Decoder::new(&endless).list(|decoder| decoder.varint().inspect(|_| read += 1));
        assert_eq!((values, read), (Err(DecodeError::Truncated), 1));
    }
}
