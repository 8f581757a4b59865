//! Files with correct checksums from bytes that a fuzzer has made up.
//!
//! Follows `docs/reference/files.md`, not the code: so a checksum that the product computes over
//! other bytes than documented is found. Lengths, kinds and payloads stay as they are, so
//! everything that a checksum does not protect is still tested.

/// Reads little-endian numbers; bytes that are missing are zero.
fn number(bytes: &[u8], at: usize) -> u32 {
    let mut found = [0; 4];
    let rest = bytes.get(at..).unwrap_or_default();
    let count = rest.len().min(4);
    found[..count].copy_from_slice(&rest[..count]);
    u32::from_le_bytes(found)
}

fn put(bytes: &mut [u8], at: usize, checksum: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Corrects the checksum of the `bytes` before `at`, which stands at `at`. Returns it.
pub fn header(bytes: &mut [u8], at: usize) -> u32 {
    let checksum = crc32c::crc32c(&bytes[..at.min(bytes.len())]);
    put(bytes, at, checksum);
    checksum
}

/// Corrects the checksums of a snapshot file: header, blocks, trailer.
pub fn snapshot(bytes: &mut [u8]) {
    let mut chain = header(bytes, 40);
    let mut at = 44;
    while at + 8 <= bytes.len() {
        let length = number(bytes, at) as usize;
        // The trailer begins with a length of zero, and has a body of 24 bytes.
        let end = at.saturating_add(8).saturating_add(if length == 0 { 24 } else { length });
        let Some(payload) = bytes.get(at + 8..end) else { return };
        chain = crc32c::crc32c_append(crc32c::crc32c_append(chain, &(length as u32).to_le_bytes()), payload);
        put(bytes, at + 4, chain);
        at = end;
    }
}

/// Corrects the checksums of a backup: header and chunks.
pub fn backup(bytes: &mut [u8]) {
    let mut chain = header(bytes, 80);
    let mut at = 84;
    while at + 12 <= bytes.len() {
        let end = at.saturating_add(12).saturating_add(number(bytes, at) as usize);
        let Some(payload) = bytes.get(at + 12..end) else { return };
        chain = crc32c::crc32c_append(crc32c::crc32c_append(chain, &bytes[at..at + 8]), payload);
        put(bytes, at + 8, chain);
        at = end;
    }
}

/// Corrects the checksums of a segment of the write-ahead log of this number: its header, and the
/// frames from the first one on, as far as their lengths lead. Salt and number of the header are
/// what they are.
pub fn segment(bytes: &mut [u8]) {
    header(bytes, 40);
    if bytes.len() < 44 {
        return;
    }
    let seed = crc32c::crc32c_append(crc32c::crc32c(&bytes[32..40]), &bytes[16..24]);
    let salt: [u8; 8] = bytes[32..40].try_into().expect("invariant: eight bytes");
    let mut at = 4096;
    while at + 40 <= bytes.len() && bytes[at..at + 40].iter().any(|byte| *byte != 0) {
        let length = number(bytes, at + 4) as usize;
        let end = (at + 40).saturating_add(length.next_multiple_of(8));
        let Some(payload) = bytes.get(at + 40..end) else { return };
        let of_payload = crc32c::crc32c_append(seed, payload);
        bytes[at + 8..at + 16].copy_from_slice(&salt);
        put(bytes, at + 32, of_payload);
        let of_frame = crc32c::crc32c_append(seed, &(at as u64).to_le_bytes());
        let of_frame = crc32c::crc32c_append(of_frame, &bytes[at..at + 36]);
        put(bytes, at + 36, of_frame);
        at = end;
    }
}

/// Corrects the checksum of a token that stands at the beginning of `text`: eight hexadecimal
/// digits after the first `checked_bytes` and an underscore.
pub fn token(text: &mut [u8], checked_bytes: usize) {
    let Some((checked, rest)) = text.split_at_mut_checked(checked_bytes) else { return };
    let checksum = format!("_{:08x}", crc32c::crc32c(checked));
    if let Some(place) = rest.get_mut(..checksum.len()) {
        place.copy_from_slice(checksum.as_bytes());
    }
}
