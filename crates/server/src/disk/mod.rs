//! The real disk: files of one locked directory, and the thread that writes the log to them.
//!
//! Owns system calls and the thread that waits for them. What is written, and whether it can be believed, is the
//! core's.

mod files;
mod thread;

pub use files::{FsDisk, FsFile};
pub use thread::DiskThread;
