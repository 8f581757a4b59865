//! The disk as the core uses it: a flat directory of files. There are two implementations: the
//! server's, on a real file system, and the simulator's, which loses, tears and flips bytes.
//!
//! Contract of every implementation: a crash may lose or tear writes that were not synced, in any
//! order, at 512-byte granularity; synced writes persist. `create`, `rename` and `remove` are
//! durable when they return. A failed `sync` leaves the file's state unknown: the caller never
//! retries it, but stops. Any other operation that fails with a
//! [retryable](DiskErrorKind::is_retryable) error may be repeated unchanged. A failed write may
//! have written a part of its bytes.

use alloc::string::String;
use alloc::vec::Vec;

/// A failed disk operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {file}: {reason}")]
pub struct DiskError {
    /// The failed operation: `create`, `read`, `write`, `sync`, …
    pub operation: &'static str,
    /// Name of the file in the directory.
    pub file: String,
    /// The system's error message, for the log.
    pub reason: String,
    /// Whether the cause may go away.
    pub kind: DiskErrorKind,
}

/// The cause of a failure, as far as it matters to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// The disk or a quota is full.
    NoRoom,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The process or the system has no free file descriptor, so no file can be opened or created.
    /// Open files still work.
    NoDescriptors,
    /// Any other failure. A failed sync is always of this kind, whatever reason the system gave,
    /// because its data may be lost.
    Other,
}

impl DiskErrorKind {
    /// Whether the cause may go away without a restart, so that the operation may be repeated.
    pub fn is_retryable(self) -> bool {
        match self {
            DiskErrorKind::NoRoom | DiskErrorKind::ReadOnly | DiskErrorKind::NoDescriptors => true,
            DiskErrorKind::Other => false,
        }
    }
}

impl DiskError {
    /// Converts it to a failure after which the operation must not be repeated.
    pub fn into_final(self) -> DiskError {
        DiskError { kind: DiskErrorKind::Other, ..self }
    }
}

/// A directory of files. The server implements it on a file system, the simulator in memory.
pub trait Disk {
    /// An open file of this directory.
    type File: DiskFile;

    /// Names of all files, sorted.
    fn list(&self) -> Result<Vec<String>, DiskError>;

    /// Creates a file of `bytes` zero bytes with reserved space, so that writes inside it cannot
    /// run out of space. Fails if the name exists. On failure no file remains.
    fn create(&self, name: &str, bytes: u64) -> Result<Self::File, DiskError>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Renames a file, replacing `to` if it exists.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file. Fails if there is none of this name.
    fn remove(&self, name: &str) -> Result<(), DiskError>;
}

/// An open file. Dropping it closes it.
pub trait DiskFile {
    /// Its size in bytes.
    fn size(&self) -> Result<u64, DiskError>;

    /// Fills `buffer` from `offset`. Reaching the end of the file is an error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes` at `offset`. Visible at once, durable after [`DiskFile::sync`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Grows the file with reserved zero bytes, or shrinks it.
    fn resize(&mut self, bytes: u64) -> Result<(), DiskError>;

    /// Makes everything written so far durable.
    fn sync(&mut self) -> Result<(), DiskError>;
}
