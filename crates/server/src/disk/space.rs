//! How much space the file system of the data directory has.
//!
//! Owns the last measurement, which is taken regularly on a thread that may block: a file system
//! that hangs must not stop health checks and metrics. After a minute without a new measurement the
//! free space is reported as unknown.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

/// Less free space than this is worth a warning if it is little of the whole, too: some segments of
/// the log and a snapshot.
const LITTLE_BYTES: u64 = 1 << 30;

/// See [`LITTLE_BYTES`].
const LITTLE_PERCENT: u64 = 10;

/// After this time without a new measurement the space is unknown.
const AGE_MAX: Duration = Duration::from_secs(60);

/// The space of the data directory, as it was measured last. Copies share the measurement.
#[derive(Clone, Debug, Default)]
pub struct DiskSpace(Arc<Mutex<Option<(Instant, Capacity)>>>);

/// The size of a file system, and what is free of it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Capacity {
    /// Free for processes without privileges, whom the system keeps off its reserve.
    free: u64,
    /// The size of the file system.
    total: u64,
}

impl DiskSpace {
    /// Measures the file system of this directory. Blocks while the file system does.
    ///
    /// # Errors
    /// When the system does not say; the last measurement is forgotten then.
    pub fn measure(&self, directory: &Path) -> io::Result<()> {
        let found = statvfs(directory).map(|found| Capacity {
            free: found.f_bavail * found.f_frsize,
            total: found.f_blocks * found.f_frsize,
        });
        let measured = found.ok().map(|capacity| (Instant::now(), capacity));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = measured;
        Ok(found.map(drop)?)
    }

    /// Bytes that a process without privileges may still write; `None` while unknown.
    pub fn free_bytes(&self) -> Option<u64> {
        self.known_at(Instant::now()).map(|space| space.free)
    }

    /// A warning for the operator, if there is little.
    pub fn warning(&self) -> Option<String> {
        self.known_at(Instant::now())?.warning()
    }

    fn known_at(&self, now: Instant) -> Option<Capacity> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(at, _)| now.saturating_duration_since(*at) <= AGE_MAX).map(|(_, capacity)| capacity)
    }
}

impl Capacity {
    fn warning(self) -> Option<String> {
        let percent = 100 * self.free / self.total.max(1);
        (self.free < LITTLE_BYTES && percent < LITTLE_PERCENT).then(|| {
            format!(
                "only {} MiB are free for the data directory, {percent} % of its file system",
                self.free >> 20
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space_is_little_in_bytes_and_of_the_whole() {
        let warning = |free, total| Capacity { free, total }.warning();
        let (mib, gib) = (1 << 20, 1 << 30);
        let said = "only 31 MiB are free for the data directory, 3 % of its file system";
        assert_eq!(warning(31 * mib, gib).as_deref(), Some(said));
        assert_eq!(warning(200 * mib, gib), None, "a fifth of a small file system");
        assert_eq!(warning(2 * gib, 1_000 * gib), None, "enough for some snapshots");
        assert!(warning(0, 0).is_some());
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_known_space() {
        let space = DiskSpace::default();
        assert_eq!((space.free_bytes(), space.warning()), (None, None));
        let directory = tempfile::tempdir().expect("a temporary directory");
        space.measure(directory.path()).expect("the space of a directory");
        let now = Instant::now();
        let measured = space.known_at(now).expect("a measurement");
        assert!(measured.free <= measured.total && measured.total > 0);
        assert_eq!(space.known_at(now + AGE_MAX + Duration::from_secs(1)), None, "the file system hangs");
        space.clone().measure(Path::new("/nonexistent/tidelock")).expect_err("nothing is there");
        assert_eq!(space.free_bytes(), None);
    }
}
