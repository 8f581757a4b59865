//! The real disk: files in one locked directory, and the threads that write log and snapshots to
//! them.
//!
//! Owns system calls and the threads that wait for them. The contents of files, and whether they
//! are valid, are the core's.

mod commit_loop;
mod files;
mod pace;
mod slow;
mod snapshot_thread;
mod space;
mod thread;

pub use files::{FsDisk, FsFile};
pub use pace::Pace;
pub use slow::SlowDiskWatch;
pub use snapshot_thread::{SnapshotPaces, SnapshotThread};
pub use space::DiskSpace;
pub use thread::DiskThread;
