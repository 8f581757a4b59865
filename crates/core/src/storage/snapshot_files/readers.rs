//! Readers of snapshot files outside the snapshot thread.
//!
//! Owns only a counter. A reader registers before it opens a file. While any reader is registered,
//! files are removed at once instead of being truncated step by step. So a file that was opened
//! under its name can be read to its end, even after the name is gone.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The counter of a node's snapshot readers. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readers(Arc<AtomicUsize>);

/// A registered reader; dropping it unregisters.
#[derive(Debug)]
pub struct Reading(Readers);

impl Readers {
    /// Registers a reader. Call it before the first file is opened.
    #[must_use]
    pub fn enter(&self) -> Reading {
        self.0.fetch_add(1, Ordering::SeqCst);
        Reading(self.clone())
    }

    /// Whether any reader is registered.
    pub(super) fn are_there(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
