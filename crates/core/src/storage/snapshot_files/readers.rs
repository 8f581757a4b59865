//! Who reads snapshots beside the thread that keeps their files.
//!
//! Owns a count and nothing else: a reader enters before it opens a file, and the file is let go whole, not step by step,
//! while there is any. A file that was opened under its name can then be read to its end, whatever happens to the name.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The readers of a node's snapshots. Clones count the same ones.
#[derive(Clone, Debug, Default)]
pub struct Readers(Arc<AtomicUsize>);

/// One reader, while it lives.
#[derive(Debug)]
pub struct Reading(Readers);

impl Readers {
    /// Counts one more. To be called before the first file is opened.
    #[must_use]
    pub fn enter(&self) -> Reading {
        self.0.fetch_add(1, Ordering::SeqCst);
        Reading(self.clone())
    }

    /// Whether there is any.
    pub(super) fn are_there(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
