//! What all files with a header and checksums share: why a header is not accepted, and checksums
//! that form a chain.

/// Why the header of a file is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// Names the check that failed.
    Damaged(&'static str),
    /// Intact, but in a format that this release does not know.
    Version(u32),
}

/// The CRC-32C over all bytes of a file so far. A part of the file is valid only at its position,
/// because each checksum continues the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainedChecksum(pub u32);

impl ChainedChecksum {
    /// The checksum after these bytes, which need not be adjacent.
    pub fn after(self, parts: &[&[u8]]) -> ChainedChecksum {
        ChainedChecksum(parts.iter().fold(self.0, |checksum, part| crc32c::crc32c_append(checksum, part)))
    }
}
