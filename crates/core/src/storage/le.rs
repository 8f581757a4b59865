//! Little-endian numbers at fixed offsets of a header whose length was checked.

/// The number at `bytes[at..at + 4]`.
pub(super) fn u32(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

/// The number at `bytes[at..at + 8]`.
pub(super) fn u64(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}
