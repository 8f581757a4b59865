//! Self-describing values, so that a reader can tell whether a value is the right one.
//!
//! ```text
//! crc32c of the rest, 4 | run, 4 | index of the key, 8 | number of the write, 8 | filling
//! ```
//!
//! All little-endian. The checksum detects a damaged value, the key detects one that was stored
//! under another key, and the number one that is out of date. The run distinguishes values of this
//! run from earlier ones.

/// Bytes of a stamp, and so of the smallest value.
pub(crate) const STAMP_BYTES: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Distinguishes the values of this run from those of other runs.
    pub run: u32,
    /// Index of the key under which the value is stored.
    pub key: u64,
    /// Number of the write in the run, from 1.
    pub sequence: u64,
}

impl Stamp {
    /// Writes a value into all of `out`, which holds at least [`STAMP_BYTES`].
    pub fn fill(self, out: &mut [u8]) {
        out[4..8].copy_from_slice(&self.run.to_le_bytes());
        out[8..16].copy_from_slice(&self.key.to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        // The bytes vary within a value and from write to write, so that compression or
        // deduplication gains nothing.
        let mut state = self.sequence ^ self.key.rotate_left(32);
        for chunk in out[STAMP_BYTES..].chunks_mut(8) {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let word = (state ^ (state >> 29)).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        let checksum = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The stamp of `value`; `None` if it was not made by [`Stamp::fill`], or is damaged.
    pub fn read(value: &[u8]) -> Option<Stamp> {
        let (checksum, rest) = value.split_first_chunk::<4>()?;
        let (run, rest_of_stamp) = rest.split_first_chunk::<4>()?;
        let (key, rest_of_stamp) = rest_of_stamp.split_first_chunk::<8>()?;
        let (sequence, _) = rest_of_stamp.split_first_chunk::<8>()?;
        (crc32c::crc32c(rest) == u32::from_le_bytes(*checksum)).then_some(Stamp {
            run: u32::from_le_bytes(*run),
            key: u64::from_le_bytes(*key),
            sequence: u64::from_le_bytes(*sequence),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for size in [24, 25, 32, 1000] {
            let stamp = Stamp { run: 3, key: 5, sequence: 7 };
            let mut value = vec![0; size];
            stamp.fill(&mut value);
            assert_eq!(Stamp::read(&value), Some(stamp));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_lost_byte_is_found() {
        let mut value = vec![0; 40];
        Stamp { run: 1, key: 2, sequence: 3 }.fill(&mut value);
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Stamp::read(&damaged), None, "bit {bit}");
        }
        for length in 0..value.len() {
            assert_eq!(Stamp::read(&value[..length]), None, "{length} bytes");
        }
    }
}
