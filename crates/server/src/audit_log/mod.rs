//! The audit log of a node: one line for each denied request or connection, for each write of the
//! keys that `--audit-writes` names, and for each answer with secrets in plain text. Counts what is
//! denied, with and without a log.
//!
//! Owns the file, and the thread that writes it. Workers send events through a bounded queue and
//! never wait, so that denied requests cannot slow down the node. Events that do not fit into the
//! queue or onto the disk are counted; the next line that can be written states how many were lost.
//! Lines contain no values and no secrets.

mod chain;
mod event;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::WallClock;
use crate::protocol::ListenerProtocol;
pub use chain::{AuditVerifyError, LINE_BYTES_MAX, VerifiedAuditLog, verify};
use chain::{LineContent, LineHash};
pub use event::{AuditEvent, AuditEventKind, DeniedReason};

/// Capacity of the queue in events: a few megabytes.
const QUEUE_EVENTS_MAX: usize = 16_384;

/// Maximum length of the detail of an event in bytes. With JSON escapes it still fits into a line.
const DETAIL_BYTES_MAX: usize = 512;

/// Minimum time between two warnings about lost events.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// While no events arrive, the thread checks this often whether to warn about lost ones.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time for which a stopping node waits until the queue is written.
const STOP_MAX: Duration = Duration::from_secs(1);

const THREAD_NAME: &str = "audit-log";

/// A handle to the audit log, which may be disabled, and to the counters. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    denied: Arc<DeniedCounters>,
    queue: Option<Arc<AuditQueue>>,
}

/// Numbers of denied requests and connections, by protocol and reason.
#[derive(Debug, Default)]
struct DeniedCounters([[AtomicU64; DeniedReason::ALL.len()]; ListenerProtocol::ALL.len()]);

#[derive(Debug)]
struct AuditQueue {
    queue: SyncSender<WriterMessage>,
    lost: Arc<AtomicU64>,
    clock: WallClock,
}

#[derive(Debug)]
enum WriterMessage {
    Event(u64, AuditEvent),
    Stop(SyncSender<()>),
}

impl AuditLog {
    /// Opens or creates the file, and starts the thread. An existing chain is continued.
    ///
    /// # Errors
    /// When the file cannot be opened, or is no audit log; or when the thread cannot be started.
    pub fn start(path: &Path, clock: WallClock) -> io::Result<AuditLog> {
        let file = LogFile::open(path)?;
        let lost = Arc::<AtomicU64>::default();
        let (queue, messages) = mpsc::sync_channel(QUEUE_EVENTS_MAX);
        let writer = Writer { file, lost: lost.clone(), reported: 0, warned: None, failure: None };
        thread::Builder::new().name(THREAD_NAME.into()).spawn(move || writer.run(&messages))?;
        Ok(AuditLog::of(AuditQueue { queue, lost, clock }))
    }

    fn of(queue: AuditQueue) -> AuditLog {
        AuditLog { denied: Arc::default(), queue: Some(queue.into()) }
    }

    /// Counts a denied request or connection, and records it if there is a log. It never waits.
    #[cold]
    pub fn denied(
        &self,
        reason: DeniedReason,
        protocol: ListenerProtocol,
        client: impl FnOnce() -> (Option<IpAddr>, Option<String>),
        detail: impl FnOnce() -> String,
    ) {
        self.denied.0[protocol as usize][reason as usize].fetch_add(1, Ordering::Relaxed);
        if self.queue.is_some() {
            let (address, principal) = client();
            let (kind, protocol) = (AuditEventKind::Denied(reason), Some(protocol));
            self.record(AuditEvent { kind, protocol, address, principal, detail: detail() });
        }
    }

    /// The numbers of denied requests and connections, without those that are 0.
    pub fn denied_counts(&self) -> Vec<(ListenerProtocol, DeniedReason, u64)> {
        let count = |protocol: ListenerProtocol, reason: DeniedReason| {
            self.denied.0[protocol as usize][reason as usize].load(Ordering::Relaxed)
        };
        ListenerProtocol::ALL
            .into_iter()
            .flat_map(|protocol| DeniedReason::ALL.map(|reason| (protocol, reason, count(protocol, reason))))
            .filter(|(_, _, count)| *count > 0)
            .collect()
    }

    /// Records an event, unless the queue is full. It never waits.
    pub fn record(&self, event: AuditEvent) {
        let Some(sender) = &self.queue else { return };
        if sender.queue.try_send(WriterMessage::Event(sender.clock.now().0, event)).is_err() {
            sender.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of events lost since the node started.
    pub fn lost(&self) -> u64 {
        self.queue.as_ref().map_or(0, |sender| sender.lost.load(Ordering::Relaxed))
    }

    /// Waits until the queued events are written, at most one second, because the disk may hang.
    pub fn stop(&self) {
        let Some(sender) = &self.queue else { return };
        let (done, is_done) = mpsc::sync_channel(1);
        if sender.queue.try_send(WriterMessage::Stop(done)).is_ok() {
            // The node stops in any case.
            let _ = is_done.recv_timeout(STOP_MAX);
        }
    }
}

/// The file, and the hash of its last line.
struct LogFile {
    file: File,
    /// Length of the complete lines in bytes; `None` if it is not a regular file and cannot be
    /// truncated.
    whole_bytes: Option<u64>,
    /// Whether an incomplete line may follow them.
    is_torn: bool,
    last: LineHash,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<LogFile> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(LogFile { file, whole_bytes: None, is_torn: false, last: LineHash::default() });
        }
        let tail_bytes = metadata.len().min(2 * LINE_BYTES_MAX as u64);
        let mut tail = Vec::new();
        file.seek(SeekFrom::End(-tail_bytes.cast_signed()))?;
        file.read_to_end(&mut tail)?;
        let is_whole_file = tail_bytes == metadata.len();
        let (torn_bytes, last) = last_line(&tail, is_whole_file).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the file is no audit log; give the name of a new file",
            )
        })?;
        let whole_bytes = metadata.len() - torn_bytes as u64;
        Ok(LogFile { file, whole_bytes: Some(whole_bytes), is_torn: torn_bytes > 0, last })
    }

    fn append(&mut self, content: &LineContent<'_>) -> io::Result<()> {
        if let (true, Some(whole_bytes)) = (self.is_torn, self.whole_bytes) {
            self.file.set_len(whole_bytes)?;
            self.is_torn = false;
        }
        let (line, hash) = self.last.next(content);
        self.is_torn = true;
        self.file.write_all(&line)?;
        self.is_torn = false;
        self.whole_bytes = self.whole_bytes.map(|bytes| bytes + line.len() as u64);
        self.last = hash;
        Ok(())
    }
}

/// The length of an incomplete line at the end in bytes, and the hash of the last complete line;
/// `None` if the file is not an audit log.
fn last_line(tail: &[u8], is_whole_file: bool) -> Option<(usize, LineHash)> {
    let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else {
        return (is_whole_file && (tail.is_empty() || tail[0] == b'{'))
            .then_some((tail.len(), LineHash::default()));
    };
    let begin = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
    let line = &tail[begin..end];
    chain::previous_of(line)?;
    Some((tail.len() - end - 1, LineHash::of(line)))
}

/// The state of the thread.
struct Writer {
    file: LogFile,
    lost: Arc<AtomicU64>,
    /// How many of them a line in the log has reported.
    reported: u64,
    /// When the last warning was logged, and the number of lost events at that time.
    warned: Option<(Instant, u64)>,
    /// Why the last line could not be written.
    failure: Option<io::Error>,
}

impl Writer {
    fn run(mut self, messages: &Receiver<WriterMessage>) {
        loop {
            match messages.recv_timeout(IDLE_INTERVAL) {
                Ok(WriterMessage::Event(unix_ms, event)) => self.write(unix_ms, &event),
                Ok(WriterMessage::Stop(done)) => {
                    // Fails if the node has stopped waiting.
                    let _ = done.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.warn();
        }
    }

    fn write(&mut self, unix_ms: u64, event: &AuditEvent) {
        let written = self.report_lost(unix_ms).and_then(|()| self.file.append(&content(unix_ms, event)));
        self.failure = written.err();
        if self.failure.is_some() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes a line with the number of events lost since the last such line, if there are any.
    fn report_lost(&mut self, unix_ms: u64) -> io::Result<()> {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > self.reported {
            self.file.append(&LineContent {
                unix_ms,
                event: "lost",
                protocol: None,
                address: None,
                principal: None,
                detail: None,
                lost: Some(lost - self.reported),
            })?;
            self.reported = lost;
        }
        Ok(())
    }

    fn warn(&mut self) {
        let lost = self.lost.load(Ordering::Relaxed);
        let (is_due, warned) =
            self.warned.map_or((true, 0), |(at, warned)| (at.elapsed() >= WARNING_INTERVAL, warned));
        if lost > warned && is_due {
            self.warned = Some((Instant::now(), lost));
            let reason =
                self.failure.as_ref().map_or_else(|| "the queue was full".into(), ToString::to_string);
            tracing::warn!(
                lost = lost - warned,
                %reason,
                "events are missing in the audit log; the node serves on. Make room for the file, and see in it who causes \
                 so many"
            );
        }
    }
}

fn content(unix_ms: u64, event: &AuditEvent) -> LineContent<'_> {
    let AuditEvent { kind, protocol, address, principal, detail } = event;
    let end = (0..=DETAIL_BYTES_MAX.min(detail.len())).rev().find(|end| detail.is_char_boundary(*end));
    LineContent {
        unix_ms,
        event: kind.name(),
        protocol: protocol.map(ListenerProtocol::name),
        address: address.map(|address| address.to_string()),
        principal: principal.as_deref(),
        detail: Some(&detail[..end.unwrap_or_default()]),
        lost: None,
    }
}
