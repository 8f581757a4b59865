//! Frames of earlier releases: what they sent each other is read as they meant it.
//!
//! `tests/compat/vVERSION/frames.txt` has a sample of each release, made by `scripts/make-compat`.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidelock_core::formats::FramePayload;
use tidelock_core::version::ClusterVersion;

/// The samples, with the cluster versions of their releases.
fn samples() -> Vec<(u64, PathBuf)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/compat");
    let entries = fs::read_dir(directory).expect("tests/compat");
    let version = |path: &Path| path.file_name()?.to_str()?.strip_prefix('v')?.parse().ok();
    let mut samples: Vec<(u64, PathBuf)> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| Some((version(&path)?, path.join("frames.txt"))))
        .filter(|(_, path)| path.exists())
        .collect();
    samples.sort();
    samples
}

fn frames(path: &Path) -> Vec<Bytes> {
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("hexadecimal");
        u8::from_str_radix(text, 16).expect("hexadecimal")
    };
    let text = fs::read_to_string(path).expect("a sample");
    text.lines().map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

#[test]
fn frames_of_earlier_releases_are_read_and_written_as_they_were() {
    for (version, path) in samples() {
        for frame in frames(&path) {
            let decoded = FramePayload::decode(&frame);
            let decoded = decoded.unwrap_or_else(|error| panic!("version {version}: {frame:x}: {error}"));
            assert_eq!(decoded.encode(), frame, "version {version}: {decoded:?}");
        }
    }
}

#[test]
fn the_newest_version_has_a_sample_of_all_kinds_of_frames() {
    let (version, path) = samples().pop().expect("a sample");
    assert_eq!(version, ClusterVersion::NEWEST.0, "run scripts/make-compat");
    let mut kinds: Vec<u8> = frames(&path).iter().map(|frame| frame[0]).collect();
    kinds.sort_unstable();
    kinds.dedup();
    // Kind 11 is sent by clusters of versions 3 to 12 alone.
    assert_eq!(kinds, (1..=13).filter(|kind| *kind != 11).collect::<Vec<u8>>(), "kinds of frames");
}
