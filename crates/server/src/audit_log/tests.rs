use std::fs;
use std::io::BufReader;
use std::path::PathBuf;

use tidelock_core::types::UnixMillis;

use super::*;

fn event(detail: &str) -> AuditEvent {
    AuditEvent {
        kind: AuditEventKind::Denied(DeniedReason::Forbidden),
        protocol: Some(ListenerProtocol::Http),
        address: Some(IpAddr::from([127, 0, 0, 1])),
        principal: Some("ann".to_owned()),
        detail: detail.to_owned(),
    }
}

/// Writes events in one process of a node.
fn write(path: &Path, details: &[&str]) -> AuditLog {
    let log = AuditLog::start(path, WallClock(|| UnixMillis(7))).expect("a log");
    details.iter().for_each(|detail| log.record(event(detail)));
    log.stop();
    log
}

fn verified(path: &Path) -> VerifiedAuditLog {
    verify(BufReader::new(File::open(path).expect("a file"))).expect("a chain")
}

fn path() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("audit.log");
    (directory, path)
}

#[test]
fn a_restart_continues_the_chain() {
    let (_directory, path) = path();
    write(&path, &["GET /a", "GET /b"]);
    write(&path, &["GET /c"]);
    assert_eq!(verified(&path).lines, 3);
    let text = fs::read_to_string(&path).expect("text");
    let zeros = "0".repeat(64);
    let first = format!(
        r#"{{"previous":"{zeros}","unix_ms":7,"event":"forbidden","protocol":"http","address":"127.0.0.1","principal":"ann","detail":"GET /a"}}"#
    );
    assert_eq!(text.lines().next(), Some(&*first));
}

#[test]
fn a_line_that_a_crash_cut_short_is_cut_off() {
    let (_directory, path) = path();
    write(&path, &["GET /a", "GET /b"]);
    for left in [40, 1] {
        let bytes = fs::read(&path).expect("bytes");
        fs::write(&path, &bytes[..bytes.len() - left]).expect("written");
        write(&path, &["GET /c"]);
        assert_eq!(verified(&path).lines, 2);
    }
    fs::write(&path, b"{\"previous\":\"0").expect("written");
    write(&path, &["GET /c"]);
    assert_eq!(verified(&path).lines, 1, "not even the first line was complete");
}

#[test]
fn denials_are_counted_with_and_without_a_log() {
    let (_directory, path) = path();
    let logged = AuditLog::start(&path, WallClock::default()).expect("a log");
    for log in [&AuditLog::default(), &logged] {
        for reason in [DeniedReason::Forbidden, DeniedReason::TlsFailed, DeniedReason::Forbidden] {
            log.denied(reason, ListenerProtocol::Resp, || (None, None), || "GET".to_owned());
        }
        let counts = [(DeniedReason::Forbidden, 2), (DeniedReason::TlsFailed, 1)];
        let counts = counts.map(|(reason, count)| (ListenerProtocol::Resp, reason, count));
        assert_eq!(log.denied_counts(), counts);
    }
    logged.stop();
    assert_eq!(verified(&path).lines, 3);
    for (index, reason) in DeniedReason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
    }
    for (index, protocol) in ListenerProtocol::ALL.into_iter().enumerate() {
        assert_eq!(protocol as usize, index);
    }
}

#[test]
fn another_file_is_not_written_to() {
    let (_directory, path) = path();
    for other in [&b"root:x:0:0\n"[..], b"abc", b"{\"a\":1}\n", &[b'\n'; 40_000], &[b'{'; 40_000]] {
        fs::write(&path, other).expect("written");
        let error = AuditLog::start(&path, WallClock::default()).expect_err("no audit log");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read(&path).expect("bytes"), other);
    }
}

#[test]
fn a_full_disk_is_counted() {
    let log = write(Path::new("/dev/full"), &["GET /a", "GET /b"]);
    assert_eq!(log.lost(), 2);
    assert_eq!(AuditLog::default().lost(), 0);
}

#[test]
fn a_line_says_how_many_are_missing() {
    let (_directory, path) = path();
    let lost = Arc::new(AtomicU64::new(5));
    let file = LogFile::open(&path).expect("a log");
    let mut writer = Writer { file, lost: lost.clone(), reported: 0, warned: None, failure: None };
    writer.write(7, &event("GET /a"));
    lost.fetch_add(2, Ordering::Relaxed);
    writer.write(8, &event("GET /b"));
    writer.write(9, &event("GET /c"));
    let text = fs::read_to_string(&path).expect("text");
    let members: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("\"event\"").map(|parts| parts.1)).collect();
    assert_eq!((members[0], members[2]), (":\"lost\",\"lost\":5}", ":\"lost\",\"lost\":2}"));
    assert_eq!(verified(&path).lines, 5);
}

#[test]
fn the_longest_detail_fits_into_a_line() {
    let (_directory, path) = path();
    write(&path, &["\u{1}".repeat(10_000).as_str(), "ä".repeat(10_000).as_str()]);
    assert_eq!(verified(&path).lines, 2);
}

#[test]
fn a_full_queue_loses_events_and_does_not_wait() {
    let (queue, _messages) = mpsc::sync_channel(1);
    let sender = AuditQueue { queue, lost: Arc::default(), clock: WallClock::default() };
    let log = AuditLog::of(sender);
    (0..5).for_each(|_| log.record(event("GET /a")));
    assert_eq!(log.lost(), 4);
    log.stop();
}

#[test]
fn a_part_of_a_line_that_found_no_room_is_cut_off() {
    let (_directory, path) = path();
    let mut file = LogFile::open(&path).expect("a log");
    file.append(&content(7, &event("GET /a"))).expect("written");
    // As a write leaves it that fills the disk.
    file.file.write_all(b"{\"previous\":").expect("written");
    file.is_torn = true;
    file.append(&content(8, &event("GET /b"))).expect("written");
    assert_eq!(verified(&path).lines, 2);
}
