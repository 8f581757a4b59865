//! The memory that is available to this process: the machine's, or the limit of a control group.

use std::fs;
use std::path::{Path, PathBuf};

/// One part in this many: the rest is for keys, the log and the page cache.
const PARTS: u64 = 4;

/// Assumed in bytes if the system does not report it.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The default limit of the memory for clients, in bytes.
pub fn default_limit() -> usize {
    usize::try_from(available(Path::new("/")) / PARTS).unwrap_or(usize::MAX)
}

/// The smallest of the machine's memory and the limits of the control groups of this process, of
/// either version.
fn available(root: &Path) -> u64 {
    let read = |path: PathBuf| fs::read_to_string(path).ok();
    let machine = read(root.join("proc/meminfo")).and_then(|text| total_of_meminfo(&text));
    let groups = read(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(files_of_group).flat_map(|(file, below)| {
        // A limit applies to all groups below, and a container may see itself as the root.
        Path::new(&below)
            .ancestors()
            .map(|group| root.join("sys/fs/cgroup").join(group).join(file))
            .collect::<Vec<_>>()
    });
    let limits = limits.filter_map(|path| read(path)?.trim().parse::<u64>().ok());
    limits.chain(machine).filter(|bytes| *bytes > 0).min().unwrap_or(UNKNOWN_BYTES)
}

/// `MemTotal:       24105000 kB`
fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The name of the file with the limit, and the group's directory below `/sys/fs/cgroup`, from
/// `0::/a/b` (version 2) or `4:memory:/a/b` (version 1).
fn files_of_group(line: &str) -> Option<(&'static str, String)> {
    let mut parts = line.splitn(3, ':');
    let (hierarchy, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let path = path.trim_start_matches('/');
    match controllers {
        "" if hierarchy == "0" => Some(("memory.max", path.to_owned())),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            Some(("memory.limit_in_bytes", format!("memory/{path}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available(root.path())
    }

    #[test]
    fn the_smallest_limit_counts() {
        let meminfo = ("proc/meminfo", "MemFree:  1 kB\nMemTotal:       4194304 kB\n");
        assert_eq!(machine(&[]), UNKNOWN_BYTES);
        assert_eq!(machine(&[meminfo]), 4 << 30);
        let version_2 = ("proc/self/cgroup", "0::/a/b\n");
        let max = |path, text| (path, text);
        assert_eq!(machine(&[meminfo, version_2, max("sys/fs/cgroup/a/b/memory.max", "max\n")]), 4 << 30);
        assert_eq!(
            machine(&[meminfo, version_2, max("sys/fs/cgroup/a/memory.max", "1073741824\n")]),
            1 << 30
        );
        assert_eq!(machine(&[meminfo, version_2, max("sys/fs/cgroup/memory.max", "2147483648\n")]), 2 << 30);
        let version_1 = ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n");
        let limit = |path| (path, "536870912\n");
        assert_eq!(
            machine(&[meminfo, version_1, limit("sys/fs/cgroup/memory/a/memory.limit_in_bytes")]),
            512 << 20
        );
        let unlimited = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(machine(&[meminfo, version_1, unlimited]), 4 << 30);
    }
}
