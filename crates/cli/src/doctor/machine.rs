//! Checks of this machine, where a node runs or is to run.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{StatVfs, statfs, statvfs};
use rustix::process::{Resource, getrlimit};
use tidelock_bench::{SyncLatency, sync_latency};

use super::Finding;

/// The page about full disks.
const DISK_FULL: &str = "docs/how-to/disk-full.md";
/// The page about slow disks.
const SLOW_DISK: &str = "docs/how-to/slow-disk.md";
/// The page about files on disk, and what they rely on.
const FILES: &str = "docs/reference/files.md";
/// The page about processors, memory and connections.
const SIZE: &str = "docs/how-to/size-a-node.md";

/// How long the disk is measured.
const MEASURED: Duration = Duration::from_secs(2);

/// A disk whose median sync takes longer limits every write; solid-state disks need a tenth of it.
const SYNC_P50_US_MAX: f64 = 10_000.0;

/// An election begins when a leader is silent for so long, by default: a disk whose slowest syncs
/// take as long makes the node hand over its leaderships.
const SYNC_P99_US_MAX: f64 = 1_000_000.0;

/// Least free room: some segments of the log and a snapshot.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// A file system that is fuller than this soon takes no writes.
const FREE_PERCENT_MIN: u64 = 10;

/// Fewest file descriptors with which a node serves as many clients as it can.
const DESCRIPTORS_MIN: u64 = 20_000;

/// File systems that do not keep what is written, or whose syncs do not promise it, by the numbers
/// of `statfs(2)`.
const UNSUITABLE: [(i64, &str); 4] = [
    (0x0102_1994, "tmpfs, which keeps files in memory: they are lost at a restart of the machine"),
    (0x8584_58f6, "ramfs, which keeps files in memory: they are lost at a restart of the machine"),
    (0x794c_7630, "overlayfs, the layer of a container: it is lost with the container"),
    (0x6969, "NFS: whether a sync is durable depends on the server and its mount options"),
];

/// All checks for a data directory, which need not exist yet.
pub(super) fn check(directory: &Path) -> Vec<Finding> {
    let existing = existing(directory);
    let name = existing.display().to_string();
    let failed =
        |check: &str, error: &dyn Display, page| Finding::failure(check, format!("{name}: {error}"), page);
    vec![
        match statfs(&existing) {
            Ok(kind) => file_system(&name, kind.f_type),
            Err(error) => failed("file system", &error, FILES),
        },
        match statvfs(&existing) {
            Ok(room) => free_room(&name, &room),
            Err(error) => failed("disk space", &error, DISK_FULL),
        },
        match sync_latency(&existing, MEASURED) {
            Ok(latency) => disk_speed(&name, latency),
            Err(error) => {
                failed("disk speed", &format_args!("no file can be written there: {error}"), DISK_FULL)
            }
        },
        descriptors(getrlimit(Resource::Nofile).maximum),
    ]
}

/// The directory, or the nearest one above it that exists.
fn existing(directory: &Path) -> PathBuf {
    let mut candidate = directory;
    while !candidate.is_dir() {
        match candidate.parent() {
            Some(parent) if parent != Path::new("") => candidate = parent,
            _ => return PathBuf::from("."),
        }
    }
    candidate.to_owned()
}

fn file_system(name: &str, kind: i64) -> Finding {
    match UNSUITABLE.iter().find(|(number, _)| *number == kind) {
        Some((_, reason)) => Finding::warning("file system", format!("{name} is on {reason}"), FILES),
        None => Finding::ok("file system", format!("{name} is on one that keeps files")),
    }
}

fn free_room(name: &str, room: &StatVfs) -> Finding {
    let (free, all) = (room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize);
    let percent = 100 * free / all.max(1);
    let message = format!("{} MiB are free in {name}, {percent} %", free >> 20);
    if free < FREE_BYTES_MIN || percent < FREE_PERCENT_MIN {
        Finding::warning("disk space", message, DISK_FULL)
    } else {
        Finding::ok("disk space", message)
    }
}

fn disk_speed(name: &str, latency: SyncLatency) -> Finding {
    let SyncLatency { p50_us, p99_us } = latency;
    let message = format!("a synced write in {name} takes {p50_us:.0} µs, one in a hundred {p99_us:.0} µs");
    if p99_us > SYNC_P99_US_MAX {
        Finding::failure("disk speed", message, SLOW_DISK)
    } else if p50_us > SYNC_P50_US_MAX {
        Finding::warning("disk speed", message, SLOW_DISK)
    } else {
        Finding::ok("disk speed", message)
    }
}

/// `None`: there is no limit.
fn descriptors(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) if limit < DESCRIPTORS_MIN => Finding::warning(
            "descriptors",
            format!("this user may open {limit} files: a node accepts fewer clients than it could"),
            SIZE,
        ),
        Some(limit) => Finding::ok("descriptors", format!("this user may open {limit} files")),
        None => Finding::ok("descriptors", "this user may open any number of files"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn slow_disks_are_noticed() {
        for (p50_us, p99_us, level) in [
            (200.0, 2_000.0, Level::Ok),
            (12_000.0, 20_000.0, Level::Warning),
            (200.0, 1_500_000.0, Level::Failure),
        ] {
            assert_eq!(disk_speed("d", SyncLatency { p50_us, p99_us }).level, level, "{p50_us} {p99_us}");
        }
    }

    #[test]
    fn limits_are_noticed() {
        assert_eq!(descriptors(Some(1_024)).level, Level::Warning);
        assert_eq!(descriptors(Some(1 << 20)).level, Level::Ok);
        assert_eq!(file_system("d", 0x0102_1994).level, Level::Warning);
        assert_eq!(file_system("d", 0xef53).level, Level::Ok);
    }

    #[test]
    fn a_directory_need_not_exist_yet() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(existing(&directory.path().join("a/b")), directory.path());
        let findings = check(&directory.path().join("a"));
        assert_eq!(findings.len(), 4);
        assert!(!directory.path().join("a").exists());
    }
}
