//! Damage to the log on disk: damage that a crash can leave is repaired, any other is refused and
//! named.
//!
//! Depends on two facts about the format: the log's segments are the files `wal-<digits>.log`, and
//! unwritten space is zero.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::harness::Cluster;

const KEYS: usize = 50;

fn key(number: usize) -> String {
    format!("/v1/keys/key-{number}")
}

/// A long, unique value, so that its place in the log can be found.
fn value(number: usize) -> String {
    format!("value-{number:04}-").repeat(20)
}

fn filled() -> Cluster {
    let cluster = Cluster::start(1);
    for number in 0..KEYS {
        assert_eq!(cluster.put(1, &key(number), value(number).as_bytes()).status, 201);
    }
    cluster
}

fn assert_holds(cluster: &Cluster, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let read = cluster.get(1, &key(number));
        assert_eq!((read.status, read.text()), (200, value(number)));
    }
}

/// The segments of the log, oldest first.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut segments = vec![];
    for entry in fs::read_dir(directory).expect("the data directory") {
        let path = entry.expect("an entry").path();
        let digits =
            path.file_name().and_then(|name| name.to_str()?.strip_prefix("wal-")?.strip_suffix(".log"));
        if digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        {
            segments.push(path);
        } else if path.is_dir() {
            segments.extend(self::segments(&path));
        }
    }
    segments.sort();
    segments
}

/// The segment that was written last, and its bytes.
fn last_segment(cluster: &Cluster) -> (PathBuf, Vec<u8>) {
    let path = segments(cluster.directory(1)).pop().expect("a log has a segment");
    let bytes = fs::read(&path).expect("a segment can be read");
    (path, bytes)
}

#[test]
fn a_file_cut_at_its_end_starts() {
    let mut cluster = filled();
    cluster.kill(1);
    let (path, bytes) = last_segment(&cluster);
    cut(&path, bytes.len() as u64 - 3);
    cluster.restart(1);
    assert_holds(&cluster, 0..KEYS);
    assert!(matches!(cluster.put(1, &key(KEYS), b"new").status, 200 | 201));
}

#[test]
fn a_log_cut_in_its_last_record_starts() {
    let mut cluster = filled();
    cluster.kill(1);
    let (path, bytes) = last_segment(&cluster);
    let written = bytes.iter().rposition(|&byte| byte != 0).expect("something is written") as u64 + 1;
    cut(&path, written - 3);
    cluster.restart(1);
    // The last record contained at most the last write, since they were made one after the other.
    assert_holds(&cluster, 0..KEYS - 1);
    assert_eq!(cluster.put(1, &key(0), b"on it goes").status, 200);
    cluster.kill(1);
    cluster.restart(1);
    assert_eq!(cluster.get(1, &key(0)).text(), "on it goes");
    assert_holds(&cluster, 1..KEYS - 1);
}

#[test]
fn a_follower_cut_in_its_last_record_gets_it_back() {
    let mut cluster = Cluster::start(3);
    for number in 0..KEYS {
        assert_eq!(cluster.put(1, &key(number), value(number).as_bytes()).status, 201);
    }
    cluster.kill(1);
    let (path, bytes) = last_segment(&cluster);
    let written = bytes.iter().rposition(|&byte| byte != 0).expect("something is written") as u64 + 1;
    cut(&path, written - 3);
    cluster.restart(1);
    assert_holds(&cluster, 0..KEYS);
}

#[test]
fn a_flipped_bit_refuses_to_start_and_is_named() {
    let mut cluster = filled();
    cluster.kill(1);
    let needle = value(KEYS / 2);
    let (path, offset) = segments(cluster.directory(1))
        .into_iter()
        .find_map(|path| {
            let bytes = fs::read(&path).expect("a segment can be read");
            let found = bytes.windows(needle.len()).position(|window| window == needle.as_bytes());
            found.map(|offset| (path, offset as u64 + 7))
        })
        .expect("the value stands in the log");
    flip_a_bit(&path, offset);
    cluster.spawn(1);
    let status = cluster.wait_exit(1);
    assert_eq!(status.code(), Some(9), "{status}");
    let log = cluster.log(1);
    let last = log.lines().rev().take(20).collect::<Vec<_>>().join("\n");
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(last.contains(name) && last.contains("offset"), "neither file nor offset is named:\n{last}");

    // With the byte restored, the node starts and has everything: the refused start destroyed
    // nothing.
    flip_a_bit(&path, offset);
    cluster.restart(1);
    assert_holds(&cluster, 0..KEYS);
}

#[test]
fn writes_go_on_without_sync() {
    let options = crate::harness::Options { flags: vec!["--sync", "false"] };
    let mut cluster = Cluster::start_with(1, &options);
    assert_eq!(cluster.put(1, &key(0), b"v").status, 201);
    // A killed process loses no data that it has written to the operating system.
    cluster.kill(1);
    cluster.restart(1);
    assert_eq!(cluster.get(1, &key(0)).text(), "v");
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("a segment opens");
    file.set_len(bytes).expect("a segment can be cut");
}

fn flip_a_bit(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a segment opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("a byte");
}
