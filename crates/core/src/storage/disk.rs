//! The disk as the core needs it: a flat directory of files. Two implementations exist: the server's, on a real
//! file system, and the simulator's, which loses, tears and flips bytes.
//!
//! Contract of every implementation: what was written but not synced may be lost or torn by a crash, in any
//! order, at 512-byte granularity; what was synced stays. `create`, `rename` and `remove` are durable when they
//! return. A failed `sync` leaves the file's state unknown: the caller never retries it, it stops. Any other operation
//! that fails with a [retryable](DiskErrorKind::is_retryable) error may be done again as it was; at most, a write has
//! left a part of its bytes where it was to leave all of them.

use alloc::string::String;
use alloc::vec::Vec;

/// A failed disk operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {file}: {reason}")]
pub struct DiskError {
    /// What was tried: `create`, `read`, `write`, `sync`, …
    pub operation: &'static str,
    /// On which file.
    pub file: String,
    /// What the system said.
    pub reason: String,
    /// Whether the cause may go away.
    pub kind: DiskErrorKind,
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// No room, or none within a quota.
    NoRoom,
    /// The file system takes no changes.
    ReadOnly,
    /// The process or the system has no file descriptor left, so no file can be opened or created. Files that
    /// are open work on.
    NoDescriptors,
    /// Anything else. A failed sync is always of this kind, whatever the system gave as its reason: what it should have
    /// made durable may be gone.
    Other,
}

impl DiskErrorKind {
    /// Whether the cause may go away without the process: the operation may then be done again.
    pub fn is_retryable(self) -> bool {
        match self {
            DiskErrorKind::NoRoom | DiskErrorKind::ReadOnly | DiskErrorKind::NoDescriptors => true,
            DiskErrorKind::Other => false,
        }
    }
}

impl DiskError {
    /// The same failure where the operation must not be done again.
    pub fn into_final(self) -> DiskError {
        DiskError { kind: DiskErrorKind::Other, ..self }
    }
}

/// A directory of files.
pub trait Disk {
    /// An open file.
    type File: DiskFile;

    /// Names of all files, sorted.
    fn list(&self) -> Result<Vec<String>, DiskError>;

    /// Creates a file of `bytes` zero bytes whose space is reserved: writing inside it cannot run out of room.
    /// Fails if the name exists. On failure nothing of it stays.
    fn create(&self, name: &str, bytes: u64) -> Result<Self::File, DiskError>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Renames, replacing `to` if it exists.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file.
    fn remove(&self, name: &str) -> Result<(), DiskError>;
}

/// An open file.
pub trait DiskFile {
    /// Its size in bytes.
    fn size(&self) -> Result<u64, DiskError>;

    /// Fills `buffer` from `offset`; the end of the file inside it is an error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes` at `offset`; visible at once, durable after [`DiskFile::sync`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Grows (with reserved zero bytes) or shrinks the file.
    fn resize(&mut self, bytes: u64) -> Result<(), DiskError>;

    /// Makes everything written so far durable.
    fn sync(&mut self) -> Result<(), DiskError>;
}
