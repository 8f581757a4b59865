//! How much room the file system of the data directory has.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

/// Less free room than this is worth a warning if it is little of the whole, too: some segments of
/// the log and a snapshot.
const LITTLE_BYTES: u64 = 1 << 30;

/// See [`LITTLE_BYTES`].
const LITTLE_PERCENT: u64 = 10;

/// The data directory, for questions about its file system.
#[derive(Clone, Debug, Default)]
pub struct DiskRoom(PathBuf);

/// The room of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeRoom {
    /// What a process without privileges may still write.
    pub free: u64,
    /// The size of the file system.
    pub all: u64,
}

impl DiskRoom {
    /// For this directory.
    pub fn of(directory: &Path) -> DiskRoom {
        DiskRoom(directory.to_owned())
    }

    /// Its room now; `None` if the system does not say.
    pub fn free(&self) -> Option<FreeRoom> {
        let found = statvfs(&self.0).ok()?;
        Some(FreeRoom { free: found.f_bavail * found.f_frsize, all: found.f_blocks * found.f_frsize })
    }

    /// A warning for the operator, if there is little.
    pub fn warning(&self) -> Option<String> {
        self.free()?.warning()
    }
}

impl FreeRoom {
    fn warning(self) -> Option<String> {
        let percent = 100 * self.free / self.all.max(1);
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
    fn little_room_is_little_in_bytes_and_of_the_whole() {
        let warning = |free, all| FreeRoom { free, all }.warning();
        let (mib, gib) = (1 << 20, 1 << 30);
        let said = "only 31 MiB are free for the data directory, 3 % of its file system";
        assert_eq!(warning(31 * mib, gib).as_deref(), Some(said));
        assert_eq!(warning(200 * mib, gib), None, "a fifth of a small file system");
        assert_eq!(warning(2 * gib, 1_000 * gib), None, "room for some snapshots");
        assert!(warning(0, 0).is_some());
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_room_to_speak_of() {
        assert_eq!(DiskRoom::of(Path::new("/nonexistent/tidelock")).free(), None);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let room = DiskRoom::of(directory.path()).free().expect("the room of a directory");
        assert!(room.free <= room.all && room.all > 0);
    }
}
