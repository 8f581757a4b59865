//! The pool of segment files: spare files, and segments that are made ready before they are needed.
//!
//! Owns how a file becomes a segment, and a segment a spare file. A file keeps the name of a spare
//! until its header is durable, so that every file with the name of a segment has an intact header.
//! A step that fails because the disk is full or read-only has no effect and may be repeated.
//!
//! A created file has reserved but unwritten blocks. Overwriting written blocks changes no file
//! metadata, so a write and fdatasync of 4 KiB takes about a third less time than in reserved
//! blocks. So files are filled with zeros while the log is idle, in small steps because a commit
//! may be waiting.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::WalOptions;
use super::segment::{DATA_START, FRAME_HEADER_BYTES, SegmentHeader, segment_name, spare_name};
use crate::storage::disk::{Disk, DiskError, DiskFile};

/// Maximum number of spare files. Two outlast any burst in which segments are used faster than
/// released.
pub(super) const SPARES_MAX: usize = 2;

/// Number of bytes to fill with zeros in one step. A commit that arrives meanwhile waits for the
/// step.
const FILL_STEP_BYTES: u64 = 256 << 10;

/// Number of bytes by which a file to be removed is truncated in one step. Removing 64 MiB at once
/// takes tens of milliseconds.
const SHRINK_STEP_BYTES: u64 = 4 << 20;

/// Block size of the file system.
const BLOCK_BYTES: u64 = 4096;

static ZEROS: [u8; FILL_STEP_BYTES as usize] = [0; FILL_STEP_BYTES as usize];

/// A segment open for writing.
#[derive(Debug)]
pub(super) struct Active<F> {
    pub file: F,
    pub header: SegmentHeader,
    /// Offset of the next frame.
    pub offset: u64,
    /// Blocks before this offset were written at least once.
    filled: u64,
}

impl<F: DiskFile> Active<F> {
    /// A segment that continues at `offset`. It was most likely filled before.
    pub fn resumed(file: F, header: SegmentHeader, offset: u64) -> Active<F> {
        Active { file, header, offset, filled: header.segment_bytes }
    }

    /// Durably fills some more blocks after the frames. Returns whether there was something to
    /// fill.
    pub fn fill_step(&mut self) -> Result<bool, DiskError> {
        let behind_frames = (self.offset + FRAME_HEADER_BYTES as u64).next_multiple_of(BLOCK_BYTES);
        let from = self.filled.max(behind_frames);
        let to = self.header.segment_bytes.min(from + FILL_STEP_BYTES);
        if from >= to {
            return Ok(false);
        }
        self.file.write_at(from, &ZEROS[..(to - from) as usize])?;
        self.file.sync().map_err(DiskError::into_final)?;
        self.filled = to;
        Ok(true)
    }
}

/// A file that becomes a segment again.
#[derive(Debug)]
struct Spare {
    name: String,
    filled: bool,
}

/// A file that is removed in steps.
#[derive(Debug)]
struct ExcessFile {
    name: String,
    bytes: u64,
}

/// Spare files and the next segments.
#[derive(Debug)]
pub(super) struct Pool<F> {
    segment_bytes: u64,
    salts: fastrand::Rng,
    spares: Vec<Spare>,
    /// Files to remove. They have the names of spares, and become spares if the process ends first.
    excess: Vec<ExcessFile>,
    /// The next segment, still under the name that comes with it.
    preparing: Option<(String, Active<F>)>,
    /// The next segments, in order. There is more than one only for a large group.
    ready: VecDeque<Active<F>>,
}

impl<F: DiskFile> Pool<F> {
    /// Creates a pool without segments.
    pub fn new(options: WalOptions) -> Pool<F> {
        Pool {
            segment_bytes: options.segment_bytes,
            salts: fastrand::Rng::with_seed(options.seed),
            spares: Vec::new(),
            excess: Vec::new(),
            preparing: None,
            ready: VecDeque::new(),
        }
    }

    /// Size of new segments.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Adopts a spare file found on disk, or removes it if its size is wrong.
    pub fn adopt<D: Disk<File = F>>(&mut self, disk: &D, name: String) -> Result<(), DiskError> {
        let fits = disk.open(&name)?.size()? == self.segment_bytes;
        if !fits || self.spares.len() == SPARES_MAX {
            return disk.remove(&name);
        }
        self.spares.push(Spare { name, filled: false });
        Ok(())
    }

    /// Adopts the segment after the last one in use, if its size is right. The caller ensures that
    /// nothing was written to it.
    pub fn adopt_ready<D: Disk<File = F>>(
        &mut self,
        disk: &D,
        header: SegmentHeader,
    ) -> Result<bool, DiskError> {
        if header.segment_bytes != self.segment_bytes {
            return Ok(false);
        }
        let file = disk.open(&segment_name(header.number))?;
        self.ready.push_back(Active::resumed(file, header, DATA_START));
        Ok(true)
    }

    /// Turns a segment that is no longer needed into a spare file, or into a file for
    /// [`Pool::shrink_step`] to remove.
    pub fn recycle<D: Disk<File = F>>(&mut self, disk: &D, header: SegmentHeader) -> Result<(), DiskError> {
        let name = segment_name(header.number);
        let spare = spare_name(header.number);
        // After a torn tail was cut off, segment numbers are reused, so a spare file may have this
        // name already.
        let mut taken = (self.spares.iter().map(|other| &other.name))
            .chain(self.excess.iter().map(|other| &other.name))
            .chain(self.preparing.iter().map(|(name, _)| name));
        if taken.any(|other| *other == spare) {
            return disk.remove(&name);
        }
        disk.rename(&name, &spare)?;
        if header.segment_bytes != self.segment_bytes || self.spares.len() >= SPARES_MAX {
            self.excess.push(ExcessFile { name: spare, bytes: header.segment_bytes });
        } else {
            self.spares.push(Spare { name: spare, filled: true });
        }
        Ok(())
    }

    /// Takes one step to remove unneeded files. Returns whether there was one.
    pub fn shrink_step<D: Disk<File = F>>(&mut self, disk: &D) -> Result<bool, DiskError> {
        let Some(excess) = self.excess.last_mut() else { return Ok(false) };
        if excess.bytes <= SHRINK_STEP_BYTES {
            disk.remove(&excess.name)?;
            self.excess.pop();
        } else {
            let bytes = excess.bytes - SHRINK_STEP_BYTES;
            disk.open(&excess.name)?.resize(bytes)?;
            excess.bytes = bytes;
        }
        Ok(true)
    }

    /// Size of all its files in bytes.
    pub fn file_bytes(&self) -> u64 {
        let files = self.spares.len() + self.preparing.iter().len() + self.ready.iter().len();
        files as u64 * self.segment_bytes + self.excess.iter().map(|excess| excess.bytes).sum::<u64>()
    }

    /// Takes one step to make segment `number` ready. Returns whether more steps are needed.
    pub fn prepare_step<D: Disk<File = F>>(&mut self, disk: &D, number: u64) -> Result<bool, DiskError> {
        if !self.ready.is_empty() {
            return Ok(false);
        }
        let Some((_, segment)) = &mut self.preparing else {
            self.preparing = Some(self.begin(disk, number)?);
            return Ok(true);
        };
        if segment.fill_step()? {
            return Ok(true);
        }
        self.finish(disk)?;
        Ok(false)
    }

    /// Makes the next `count` segments ready, beginning with `number`. They are not filled further,
    /// because a commit is waiting.
    pub fn reserve<D: Disk<File = F>>(
        &mut self,
        disk: &D,
        number: u64,
        count: usize,
    ) -> Result<(), DiskError> {
        while self.ready.len() < count {
            if self.preparing.is_none() {
                self.preparing = Some(self.begin(disk, number + self.ready.len() as u64)?);
            }
            self.finish(disk)?;
        }
        Ok(())
    }

    /// Takes segment `number`, which must be reserved.
    pub fn take(&mut self, number: u64) -> Active<F> {
        let segment = self.ready.pop_front().expect("invariant: a segment is reserved before it is used");
        assert_eq!(segment.header.number, number, "invariant: the segment after the current one is prepared");
        segment
    }

    /// Completes the file being prepared: writes its header and an end mark, and then renames it to
    /// a segment.
    fn finish<D: Disk<File = F>>(&mut self, disk: &D) -> Result<(), DiskError> {
        let Some((name, segment)) = &mut self.preparing else { return Ok(()) };
        assert!(
            self.ready.back().is_none_or(|last| last.header.number + 1 == segment.header.number),
            "invariant: segments are made ready in order"
        );
        let mut page = vec![0; DATA_START as usize + FRAME_HEADER_BYTES];
        segment.header.encode(&mut page);
        segment.file.write_at(0, &page)?;
        segment.file.sync().map_err(DiskError::into_final)?;
        disk.rename(name, &segment_name(segment.header.number))?;
        self.ready.extend(self.preparing.take().map(|(_, segment)| segment));
        Ok(())
    }

    fn begin<D: Disk<File = F>>(&mut self, disk: &D, number: u64) -> Result<(String, Active<F>), DiskError> {
        let header = SegmentHeader { number, segment_bytes: self.segment_bytes, salt: self.salts.u64(..) };
        let (name, file, filled) = match self.spares.last() {
            Some(spare) => {
                let file = disk.open(&spare.name)?;
                let filled = if spare.filled { self.segment_bytes } else { 0 };
                let name = self.spares.pop().expect("invariant: it was there just now").name;
                (name, file, filled)
            }
            None => {
                let name = spare_name(number);
                // After a torn tail was cut off, segment numbers are reused.
                if let Some(at) = self.excess.iter().position(|excess| excess.name == name) {
                    disk.remove(&name)?;
                    self.excess.swap_remove(at);
                }
                let file = disk.create(&name, self.segment_bytes)?;
                (name, file, 0)
            }
        };
        Ok((name, Active { file, header, offset: DATA_START, filled }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::memory_disk::MemoryDisk;
    use crate::storage::wal::tests::options;

    #[test]
    #[should_panic(expected = "invariant: the segment after the current one is prepared")]
    fn another_segment_than_the_next_one_is_not_taken() {
        let disk = MemoryDisk::new(1);
        let mut pool = Pool::new(options(1));
        pool.reserve(&disk, 1, 1).unwrap();
        pool.take(2);
    }

    #[test]
    #[should_panic(expected = "invariant: a segment is reserved before it is used")]
    fn a_segment_that_is_not_reserved_is_not_taken() {
        Pool::<<MemoryDisk as Disk>::File>::new(options(1)).take(1);
    }

    #[test]
    #[should_panic(expected = "invariant: segments are made ready in order")]
    fn a_segment_is_not_made_ready_before_an_earlier_one() {
        let disk = MemoryDisk::new(1);
        let mut pool = Pool::new(options(1));
        pool.reserve(&disk, 2, 1).unwrap();
        pool.reserve(&disk, 3, 2).unwrap();
    }
}
