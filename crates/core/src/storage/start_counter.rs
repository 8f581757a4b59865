//! The start counter: a number that rises at each start of a node on its data directory, even on a
//! full disk.
//!
//! Owns the layout of one small file and the order of writes to it. Peers use the number as
//! described in [`starts`](crate::starts).
//!
//! ```text
//! offset 0     slot 1     written by odd numbers
//! offset 512   slot 2     written by even numbers
//!
//! a slot:  "TIDESTRT", version (u32), number (u64), CRC of these 20 bytes (u32); the rest is zero
//! ```
//!
//! The control file cannot hold the number: it is replaced by a new file, which takes space, and a
//! node must be able to start on a full disk. Here a slot is overwritten in place, and the file
//! never changes its size. The slots alternate, and each is a sector, which a disk writes
//! atomically. If one is torn nevertheless, the other has the previous number.

use super::disk::{Disk, DiskError, DiskFile};
use super::le;

/// Name of the file in the data directory.
pub const NAME: &str = "starts";

const MAGIC: &[u8; 8] = b"TIDESTRT";
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 24;
/// The unit of atomic writes: see the contract of [`Disk`].
const SECTOR_BYTES: u64 = 512;
const FILE_BYTES: u64 = 2 * SECTOR_BYTES;

/// Why the starts cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartCounterError {
    /// A file operation failed.
    #[error("the file `{NAME}` cannot be accessed: {0}")]
    Disk(#[from] DiskError),
    /// The format is one that this release does not know, most likely of a newer one.
    #[error("the file `{NAME}` has format version {0}, which this release does not know")]
    Version(u32),
    /// No slot is intact.
    #[error("the file `{NAME}` is damaged: it holds no intact number")]
    Damaged,
}

/// Counts a start and returns its number: one more than the larger of the last one in the file and
/// `known`, the number in the control file. It is durable when this returns.
///
/// # Errors
/// When the file cannot be read or written, or is damaged. The node must not start then, because
/// peers would take it for an old copy.
pub fn count<D: Disk>(disk: &D, known: u64) -> Result<u64, StartCounterError> {
    let exists = disk.list()?.iter().any(|name| name == NAME);
    let mut file = if exists { disk.open(NAME)? } else { disk.create(NAME, FILE_BYTES)? };
    let last = read(&file)?;
    // No node starts that often, so such a number was never written.
    let number = last.unwrap_or(0).max(known).checked_add(1).ok_or(StartCounterError::Damaged)?;
    file.write_at((1 - number % 2) * SECTOR_BYTES, &slot(number))?;
    file.sync()?;
    Ok(number)
}

/// The last number; `None` if the file was created and never written.
fn read<F: DiskFile>(file: &F) -> Result<Option<u64>, StartCounterError> {
    if file.size()? != FILE_BYTES {
        return Err(StartCounterError::Damaged);
    }
    let mut bytes = [0; FILE_BYTES as usize];
    file.read_at(0, &mut bytes)?;
    let mut last = None;
    for slot in bytes.chunks(SECTOR_BYTES as usize) {
        last = last.max(read_slot(slot)?);
    }
    // The first start writes the first slot. Before it, both slots are zero.
    if last.is_none() && bytes.iter().any(|byte| *byte != 0) {
        return Err(StartCounterError::Damaged);
    }
    Ok(last)
}

fn slot(number: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(MAGIC);
    slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
    slot[12..20].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c(&slot[..20]);
    slot[20..].copy_from_slice(&crc.to_le_bytes());
    slot
}

fn read_slot(bytes: &[u8]) -> Result<Option<u64>, StartCounterError> {
    if &bytes[..8] != MAGIC || le::u32(bytes, 20) != crc32c::crc32c(&bytes[..20]) {
        return Ok(None);
    }
    match le::u32(bytes, 8) {
        VERSION => Ok(Some(le::u64(bytes, 12))),
        version => Err(StartCounterError::Version(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory_disk::{Crash, MemoryDisk};
    use super::*;

    #[test]
    fn each_start_has_the_next_number() {
        let disk = MemoryDisk::new(1);
        let numbers: alloc::vec::Vec<u64> = (0..5).map(|_| count(&disk, 0).unwrap()).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
        assert_eq!(disk.bytes(NAME).len() as u64, FILE_BYTES);
        assert_eq!(count(&disk, 9), Ok(10), "the control file remembers more");
        assert_eq!(count(&disk, 0), Ok(11));
    }

    #[test]
    fn a_number_that_was_returned_never_comes_again_whatever_crash_follows() {
        for seed in 0..300 {
            let disk = MemoryDisk::new(seed);
            let mut highest = 0;
            for start in 0..3 {
                highest = count(&disk, highest).unwrap();
                assert_eq!(highest, start + 1);
            }
            disk.set_fuse(seed % 3);
            let counted = count(&disk, 0);
            let disk = disk.crash(Crash::Tears);
            let next = count(&disk, 0).unwrap();
            assert!(next > counted.clone().unwrap_or(highest), "seed {seed}: {next} after {counted:?}");
            assert!(next <= highest + 2, "seed {seed}: {next}");
        }
    }

    #[test]
    fn damage_of_one_slot_is_survived_and_of_both_refused() {
        let disk = MemoryDisk::new(1);
        for _ in 0..4 {
            count(&disk, 0).unwrap();
        }
        let intact = disk.bytes(NAME);
        for bit in 0..SLOT_BYTES * 8 {
            let mut bytes = intact.clone();
            // The fourth start wrote the second slot.
            bytes[SECTOR_BYTES as usize + bit / 8] ^= 1 << (bit % 8);
            disk.put(NAME, bytes.clone());
            assert_eq!(count(&disk, 0), Ok(4), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
            disk.put(NAME, bytes);
            assert_eq!(count(&disk, 0), Err(StartCounterError::Damaged), "bit {bit}");
        }
        disk.put(NAME, intact[..100].to_vec());
        assert_eq!(count(&disk, 0), Err(StartCounterError::Damaged));
    }

    #[test]
    fn a_number_without_a_next_one_is_damage() {
        let disk = MemoryDisk::new(1);
        count(&disk, 0).unwrap();
        let mut bytes = disk.bytes(NAME);
        bytes[..SLOT_BYTES].copy_from_slice(&slot(u64::MAX));
        disk.put(NAME, bytes);
        assert_eq!(count(&disk, 0), Err(StartCounterError::Damaged));
    }

    #[test]
    fn an_unknown_version_is_told_from_damage() {
        let disk = MemoryDisk::new(1);
        count(&disk, 0).unwrap();
        let mut bytes = disk.bytes(NAME);
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        disk.put(NAME, bytes);
        assert_eq!(count(&disk, 0), Err(StartCounterError::Version(2)));
    }
}
