//! Metrics that a node publishes at `/metrics`: how they are counted, and how a scrape is written.
//!
//! Owns the I/O shell's counters and the OpenMetrics text. Counting costs a few nanoseconds: no
//! counter is behind a lock or in a map, and a scrape copies everything into one [`Scrape`] before
//! it formats it. Every label has a fixed set of values: a key, an address or a path never becomes
//! one.

mod plain;
mod resp;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tidelock_core::event::NodeStatus;
use tidelock_core::storage::LogHeld;

use crate::counters::{Counter, PerWorker};
use crate::memory::Memory;
use crate::transport::TransportCounters;
use crate::turns::TurnGauges;
pub use resp::{CommandCounters, Family, RespCounters};

/// Counters of the write-ahead log, raised by the disk thread.
#[derive(Clone, Debug, Default)]
pub struct DiskCounters {
    /// Calls of fdatasync that succeeded.
    pub fsyncs: Arc<AtomicU64>,
    /// Microseconds spent in these calls.
    pub fsync_micros: Arc<AtomicU64>,
    /// Bytes handed to the file system.
    pub bytes_written: Arc<AtomicU64>,
    /// How often the disk began to reject writes.
    pub stalls: Arc<AtomicU64>,
    /// How often the disk became slow.
    pub slow_stalls: Arc<AtomicU64>,
    /// Whether the disk is slow at present.
    pub is_slow: Arc<AtomicBool>,
    /// Bytes of all files of the log.
    pub file_bytes: Arc<AtomicU64>,
    /// Log data that is kept besides the segment being written.
    pub held: Arc<Mutex<LogHeld>>,
}

impl DiskCounters {
    /// Log data that is kept besides the segment being written.
    pub fn held(&self) -> LogHeld {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters of snapshots, raised by the thread that keeps their files.
#[derive(Clone, Debug, Default)]
pub struct SnapshotCounters {
    /// Snapshots that this node made.
    pub made: Arc<AtomicU64>,
    /// Microseconds from the first block of each to its end.
    pub making_micros: Arc<AtomicU64>,
    /// Snapshot tasks that failed, of any kind.
    pub failed: Arc<AtomicU64>,
    /// Snapshots received completely from another node.
    pub received: Arc<AtomicU64>,
    /// Bytes of snapshot parts received from leaders.
    pub bytes_received: Arc<AtomicU64>,
    /// Bytes of snapshot parts read for followers.
    pub bytes_sent: Arc<AtomicU64>,
    /// Bytes of all snapshot files on the disk.
    pub file_bytes: Arc<AtomicU64>,
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value, in the order of the discriminants.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The text of the label in `/metrics`.
            pub fn text(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
    };
}

label! {
    /// The part of the HTTP interface that a request belongs to.
    Dialect {
        /// `/v1`.
        Native = "native",
        /// Any other path at the root.
        Kv1 = "kv1",
        /// `/db`.
        Raftdb = "raftdb",
        /// `/api`.
        Config = "config",
        /// Health, metrics, the welcome page, and unknown paths.
        Operations = "operations",
    }
}

label! {
    /// What a request does, which determines its expected duration.
    Kind {
        /// One key, linearizable.
        Read = "read",
        /// One key or a list, from the local replica.
        StaleRead = "stale_read",
        /// A change of keys or configuration.
        Write = "write",
        /// A page of keys, linearizable.
        List = "list",
        /// Anything else.
        Other = "other",
    }
}

label! {
    /// HTTP methods by effect.
    MethodClass {
        /// GET, HEAD.
        Read = "read",
        /// PUT, POST, DELETE, PATCH.
        Write = "write",
        /// All other methods.
        Other = "other",
    }
}

label! {
    /// HTTP statuses by their first digit.
    StatusClass {
        /// 2xx.
        Success = "2xx",
        /// 3xx.
        Redirection = "3xx",
        /// 4xx.
        ClientError = "4xx",
        /// 5xx.
        ServerError = "5xx",
    }
}

const DIALECTS: usize = Dialect::ALL.len();
const KINDS: usize = Kind::ALL.len();
const METHODS: usize = MethodClass::ALL.len();
const STATUSES: usize = StatusClass::ALL.len();

/// Upper bounds of the duration buckets in microseconds; one more bucket counts longer durations.
const DURATION_BOUNDS_MICROS: [u64; 15] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    3_000_000,
];
const DURATION_BUCKETS: usize = DURATION_BOUNDS_MICROS.len() + 1;

#[derive(Debug, Default)]
struct Durations {
    buckets: [Counter; DURATION_BUCKETS],
    sum_nanos: Counter,
}

impl Durations {
    fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = DURATION_BOUNDS_MICROS.partition_point(|&bound| bound < micros);
        raise(&self.buckets[bucket]);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.add(nanos);
    }

    fn absorb(&self, other: &Durations) {
        for (bucket, others) in self.buckets.iter().zip(&other.buckets) {
            bucket.add(others.get());
        }
        self.sum_nanos.add(other.sum_nanos.get());
    }
}

/// Adds one to a counter of this thread.
pub(crate) fn raise(counter: &Counter) {
    counter.add(1);
}

/// Counters of the HTTP server of one worker.
#[derive(Debug, Default)]
pub struct HttpCounters {
    requests: [[[Counter; STATUSES]; METHODS]; DIALECTS],
    durations: [[Durations; KINDS]; DIALECTS],
    /// Connections accepted and served, in total.
    pub connections_accepted: Counter,
    /// Connections refused because as many as allowed were open.
    pub connections_refused: Counter,
    /// Connections cut because a request head, or any data, did not arrive in time.
    pub connections_timed_out: Counter,
    /// Connections that ended in an error: malformed input, a reset.
    pub connections_failed: Counter,
    /// Failures of accept itself, such as running out of file descriptors.
    pub accept_errors: Counter,
    /// Connections that are open at present.
    pub connections_open: Counter,
}

/// The labels and the duration of a finished request.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The part of the HTTP interface.
    pub dialect: Dialect,
    /// The kind of the request, which chooses the histogram of durations.
    pub kind: Kind,
    /// The class of its method.
    pub method: MethodClass,
    /// The class of the answer's status.
    pub status: StatusClass,
    /// Time from the parsed head to the finished answer, without writing it.
    pub duration: Duration,
}

impl HttpCounters {
    /// Counts a finished request and its duration.
    pub fn observe(&self, observation: Observation) {
        let dialect = observation.dialect as usize;
        raise(&self.requests[dialect][observation.method as usize][observation.status as usize]);
        self.durations[dialect][observation.kind as usize].observe(observation.duration);
    }

    /// Returns the sum over all workers.
    pub fn sum(workers: &PerWorker<HttpCounters>) -> HttpCounters {
        let sum = HttpCounters::default();
        workers.all().for_each(|worker| sum.absorb(worker));
        sum
    }

    fn absorb(&self, other: &HttpCounters) {
        let requests = self.requests.iter().flatten().flatten();
        for (count, others) in requests.zip(other.requests.iter().flatten().flatten()) {
            count.add(others.get());
        }
        for (durations, others) in self.durations.iter().flatten().zip(other.durations.iter().flatten()) {
            durations.absorb(others);
        }
        for (count, others) in self.connections().into_iter().zip(other.connections()) {
            count.add(others.get());
        }
    }

    fn connections(&self) -> [&Counter; 6] {
        [
            &self.connections_accepted,
            &self.connections_refused,
            &self.connections_timed_out,
            &self.connections_failed,
            &self.accept_errors,
            &self.connections_open,
        ]
    }
}

/// Everything that one scrape writes, copied at one moment.
pub struct Scrape<'a> {
    /// The status of the node, as the core reports it.
    pub status: NodeStatus,
    /// Sum of the HTTP servers of all workers.
    pub http: &'a HttpCounters,
    /// Sum of the Redis protocol servers of all workers.
    pub resp: &'a RespCounters,
    /// What other workers passed to the owning worker: requests, and batches of them.
    pub handovers: [u64; 2],
    /// Counters of the write-ahead log.
    pub disk: &'a DiskCounters,
    /// Counters of snapshots made, received and sent.
    pub snapshots: &'a SnapshotCounters,
    /// Counters of the links to peers.
    pub transport: &'a TransportCounters,
    /// Whether the disk rejects writes or is slow.
    pub disk_stalled: bool,
    /// The budget of memory for clients, and its use.
    pub memory: &'a Memory,
    /// Gauges of the requests that wait for their turns.
    pub turns: &'a TurnGauges,
    /// Open requests of the connection that has most.
    pub busiest_open_requests: u64,
}

/// A metric's name, its description and its value.
type NamedValue = (&'static str, &'static str, u64);

/// Media type of the OpenMetrics text format.
pub const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of the older text format.
pub const PROMETHEUS_TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Scrape<'_> {
    /// The text of one of the two media types.
    pub fn encode_as(&self, media_type: &str) -> String {
        let open = self.encode();
        if media_type == PROMETHEUS_TEXT_TYPE { plain::of_open_metrics(&open) } else { open }
    }

    /// Encodes the scrape as OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut registry = Registry::with_prefix("tidelock");
        registry.register_collector(Box::new(Snapshot {
            status: self.status.clone(),
            requests: snapshot_requests(self.http),
            durations: snapshot_durations(self.http),
            commands: Family::ALL.map(|family| (family.text(), self.resp.commands.of(family))),
            totals: self.totals(),
            gauges: self.gauges(),
            fsync_seconds: self.disk.fsync_micros.load(Ordering::Relaxed) as f64 / 1e6,
            snapshot_seconds: self.snapshots.making_micros.load(Ordering::Relaxed) as f64 / 1e6,
        }));
        let mut out = String::with_capacity(16 << 10);
        text::encode(&mut out, &registry).expect("invariant: writing to a String does not fail");
        out
    }

    fn totals(&self) -> Vec<NamedValue> {
        [self.request_totals(), self.disk_totals(), self.peer_totals(), self.connection_totals()].concat()
    }

    fn request_totals(&self) -> Vec<NamedValue> {
        let node = &self.status.counters;
        vec![
            ("writes", "Writes taken from clients", node.writes),
            ("reads_linearizable", "Linearizable reads taken from clients", node.reads_linearizable),
            ("reads_stale", "Stale reads taken from clients", node.reads_stale),
            ("commands_forwarded", "Commands handed to a leader on another node", node.forwarded),
            ("raft_entries_proposed", "Raft entries proposed here", node.entries_proposed),
            ("raft_commands_proposed", "Commands inside the entries proposed here", node.commands_proposed),
            ("raft_read_rounds", "ReadIndex rounds begun here", node.read_rounds),
            ("raft_entries_applied", "Raft entries applied here", node.entries_applied),
            ("raft_leaderships", "Times a replica of this node became leader", node.leaderships),
            ("refused_no_leader", "Requests refused for want of a leader", node.refused_no_leader),
            ("refused_unknown_outcome", "Requests whose outcome is unknown", node.refused_unknown),
            (
                "refused_disk_unavailable",
                "Requests refused because a disk took no writes",
                node.refused_disk_unavailable,
            ),
            ("refused_overloaded", "Requests refused because a queue was full", node.refused_overloaded),
            ("slow_requests", "Requests that took longer than --slow-request-ms", node.slow_requests),
            (
                "client_memory_refusals",
                "Requests and connections refused because the memory for clients was used up",
                self.memory.refused(),
            ),
            ("peer_frames_invalid", "Frames from peers that could not be decoded", node.frames_invalid),
            ("requests_waited", "Requests that had to wait for their turn", self.turns.waited.get()),
            ("requests_expired", "Requests refused because they waited too long", self.turns.expired.get()),
            ("worker_requests", "Requests that came to the node from other workers", self.handovers[0]),
            ("worker_batches", "Batches in which those requests came", self.handovers[1]),
        ]
    }

    fn disk_totals(&self) -> Vec<NamedValue> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("wal_fsyncs", "Calls of fdatasync on the log", load(&self.disk.fsyncs)),
            ("wal_bytes_written", "Bytes written to the log", load(&self.disk.bytes_written)),
            ("disk_stalls", "Times that the disk began to take no writes", load(&self.disk.stalls)),
            ("disk_slow_stalls", "Times that the disk began to be slow", load(&self.disk.slow_stalls)),
            ("snapshots_made", "Snapshots that replicas made of themselves", load(&self.snapshots.made)),
            (
                "snapshots_received",
                "Snapshots received whole from another node",
                load(&self.snapshots.received),
            ),
            ("snapshots_failed", "Steps of snapshots that failed", load(&self.snapshots.failed)),
            ("snapshot_bytes_sent", "Bytes of snapshots sent to followers", load(&self.snapshots.bytes_sent)),
            ("snapshot_bytes_received", "Bytes of snapshots received", load(&self.snapshots.bytes_received)),
        ]
    }

    fn peer_totals(&self) -> Vec<NamedValue> {
        vec![
            ("peer_frames_sent", "Frames sent to peers", self.transport.frames_sent.get()),
            ("peer_bytes_sent", "Bytes sent to peers", self.transport.bytes_sent.get()),
            ("peer_frames_received", "Frames received from peers", self.transport.frames_received.get()),
            ("peer_bytes_received", "Bytes received from peers", self.transport.bytes_received.get()),
            ("peer_frames_dropped", "Frames to peers that were dropped", self.transport.frames_dropped.get()),
            ("peer_reconnects", "Connections to peers made anew", self.transport.reconnects.get()),
            (
                "peer_handshakes_refused",
                "Handshakes with peers that this node ended",
                self.transport.handshakes_refused.get(),
            ),
            (
                "peer_frames_corrupt",
                "Links ended by a frame with a wrong checksum or length",
                self.transport.checksum_failures.get() + self.transport.length_violations.get(),
            ),
            (
                "peer_queue_overflows",
                "Links ended because a peer did not read",
                self.transport.queue_overflows.get(),
            ),
        ]
    }

    fn connection_totals(&self) -> Vec<NamedValue> {
        let http = self.http;
        vec![
            ("http_connections_accepted", "HTTP connections served", http.connections_accepted.get()),
            ("http_connections_refused", "HTTP connections over the limit", http.connections_refused.get()),
            ("http_connections_timed_out", "HTTP connections cut as idle", http.connections_timed_out.get()),
            ("http_connections_failed", "HTTP connections ended by an error", http.connections_failed.get()),
            ("http_accept_errors", "Failures to accept an HTTP connection", http.accept_errors.get()),
            ("resp_connections_accepted", "Redis connections served", self.resp.connections_accepted.get()),
            (
                "resp_connections_refused",
                "Redis connections over the limit",
                self.resp.connections_refused.get(),
            ),
            (
                "resp_connections_stalled",
                "Redis connections cut because nothing was read there",
                self.resp.connections_stalled.get(),
            ),
            (
                "resp_protocol_errors",
                "Redis connections ended by what is no command, or too long",
                self.resp.protocol_errors.get(),
            ),
            ("resp_accept_errors", "Failures to accept a Redis connection", self.resp.accept_errors.get()),
        ]
    }

    fn gauges(&self) -> Vec<NamedValue> {
        let load = |gauge: &AtomicU64| gauge.load(Ordering::Relaxed);
        vec![
            ("node_id", "The number of this node in its cluster", self.status.node.0),
            ("retiring", "Whether the node is about to stop", u64::from(self.status.retiring)),
            ("disk_stalled", "Whether the disk takes no writes, or is slow", u64::from(self.disk_stalled)),
            (
                "disk_slow",
                "Whether a write or sync of the log takes longer than an election timeout",
                u64::from(self.disk.is_slow.load(Ordering::Relaxed)),
            ),
            (
                "disk_unsteady",
                "Whether the disk was slow until recently, so that the node leads only what no other node can",
                u64::from(self.status.disk_unsteady),
            ),
            (
                "snapshots_in_progress",
                "Snapshots that replicas are making of themselves",
                self.status.shards.iter().filter(|shard| shard.makes_snapshot).count() as u64,
            ),
            (
                "slot_moves",
                "Moves of slots that this node drives, as the leader of their givers",
                self.status.moves.len() as u64,
            ),
            (
                "slot_moves_frozen",
                "Those of them whose slots no shard serves at the moment",
                self.status.moves.iter().filter(|a_move| a_move.is_frozen).count() as u64,
            ),
            ("wal_held_bytes", "Bytes of full log segments that are kept", self.disk.held().bytes),
            ("wal_file_bytes", "Bytes of all files of the log", load(&self.disk.file_bytes)),
            ("snapshot_file_bytes", "Bytes of all files of snapshots", load(&self.snapshots.file_bytes)),
            (
                "client_memory_bytes",
                "Bytes that clients make the node hold: requests, replies, connections",
                self.memory.used() as u64,
            ),
            ("client_memory_limit_bytes", "The limit of these, --memory-limit", self.memory.limit() as u64),
            ("requests_open", "Requests that the store has not answered", self.status.requests_open as u64),
            ("requests_waiting", "Requests that wait for their turn", self.turns.waiting.get()),
            ("request_window", "What the node takes at a time, in cost", self.turns.window.get()),
            (
                "busiest_client_open_requests",
                "Unanswered requests of the connection that has most",
                self.busiest_open_requests,
            ),
            ("http_connections_open", "HTTP connections open", self.http.connections_open.get()),
            ("resp_connections_open", "Redis connections open", self.resp.connections_open.get()),
        ]
    }
}

fn snapshot_requests(http: &HttpCounters) -> Vec<([(&'static str, &'static str); 3], u64)> {
    let mut series = Vec::new();
    for &dialect in Dialect::ALL {
        for &method in MethodClass::ALL {
            for &status in StatusClass::ALL {
                let count = http.requests[dialect as usize][method as usize][status as usize].get();
                if count > 0 {
                    let labels =
                        [("dialect", dialect.text()), ("method", method.text()), ("status", status.text())];
                    series.push((labels, count));
                }
            }
        }
    }
    series
}

fn snapshot_durations(http: &HttpCounters) -> Vec<DurationSeries> {
    let mut series = Vec::new();
    for &dialect in Dialect::ALL {
        for &kind in Kind::ALL {
            let durations = &http.durations[dialect as usize][kind as usize];
            let counts: Vec<u64> = durations.buckets.iter().map(Counter::get).collect();
            let count = counts.iter().sum();
            if count == 0 {
                continue;
            }
            let bounds = DURATION_BOUNDS_MICROS.iter().map(|&micros| micros as f64 / 1e6);
            series.push(DurationSeries {
                labels: [("dialect", dialect.text()), ("kind", kind.text())],
                buckets: bounds.chain([f64::INFINITY]).zip(counts).collect(),
                sum_seconds: durations.sum_nanos.get() as f64 / 1e9,
                count,
            });
        }
    }
    series
}

#[derive(Debug)]
struct DurationSeries {
    labels: [(&'static str, &'static str); 2],
    buckets: Vec<(f64, u64)>,
    sum_seconds: f64,
    count: u64,
}

/// The owned, thread-safe copy that the registry requires, for the duration of one scrape.
#[derive(Debug)]
struct Snapshot {
    status: NodeStatus,
    requests: Vec<([(&'static str, &'static str); 3], u64)>,
    durations: Vec<DurationSeries>,
    commands: [(&'static str, u64); Family::ALL.len()],
    totals: Vec<NamedValue>,
    gauges: Vec<NamedValue>,
    fsync_seconds: f64,
    snapshot_seconds: f64,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in &self.totals {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(*value).encode(metric)?;
        }
        let durations = [
            ("wal_fsync_duration", "Time spent in fdatasync on the log", self.fsync_seconds),
            ("snapshot_duration", "Time that snapshots were in the making", self.snapshot_seconds),
        ];
        for (name, help, seconds) in durations {
            let metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
            ConstCounter::new(seconds).encode(metric)?;
        }
        for (name, help, value) in &self.gauges {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(*value).encode(metric)?;
        }
        self.encode_shards(&mut encoder)?;
        self.encode_links(&mut encoder)?;
        self.encode_commands(&mut encoder)?;
        self.encode_requests(&mut encoder)
    }
}

impl Snapshot {
    fn encode_shards(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Column = (&'static str, &'static str, fn(&tidelock_core::event::ShardStatus) -> u64);
        let columns: [Column; 10] = [
            ("shard_leads", "Whether this node leads the shard", |shard| u64::from(shard.leads)),
            ("shard_leader", "The node that leads the shard, 0 if unknown", |shard| {
                shard.leader.map_or(0, |node| node.0)
            }),
            ("shard_term", "Raft term of the shard", |shard| shard.term.0),
            ("shard_committed", "Highest log index known to be committed", |shard| shard.committed.0),
            ("shard_applied", "Highest log index applied", |shard| shard.applied.0),
            ("shard_last", "Last log index", |shard| shard.last.0),
            (
                "shard_log_begin",
                "The log index up to which only a snapshot holds the shard's history",
                |shard| shard.log_begin.0,
            ),
            ("shard_keys", "Keys held by the shard", |shard| shard.keys),
            ("shard_log_bytes", "Bytes of the shard's log held in memory", |shard| shard.log_bytes),
            ("shard_snapshot_bytes", "Size of the shard's newest snapshot", |shard| shard.snapshot_bytes),
        ];
        for (name, help, value) in columns {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for shard in &self.status.shards {
                ConstGauge::new(value(shard)).encode(metric.encode_family(&[("shard", shard.shard.0)])?)?;
            }
        }
        Ok(())
    }

    fn encode_links(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether a connection to the peer stands and the peer answers";
        let mut metric = encoder.encode_descriptor("peer_connected", help, None, MetricType::Gauge)?;
        for &(peer, connected) in &self.status.links {
            let value = ConstGauge::new(u64::from(connected));
            value.encode(metric.encode_family(&[("peer", peer.0)])?)?;
        }
        let help = "By how much the peer's clock is ahead of this node's, as measured";
        let unit = Some(&Unit::Seconds);
        let mut metric = encoder.encode_descriptor("peer_clock_offset", help, unit, MetricType::Gauge)?;
        for clock in &self.status.clocks {
            let value = ConstGauge::new(clock.ahead_ms as f64 / 1e3);
            value.encode(metric.encode_family(&[("peer", clock.node.0)])?)?;
        }
        Ok(())
    }

    fn encode_commands(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Commands of the Redis protocol, by family";
        let mut metric = encoder.encode_descriptor("resp_commands", help, None, MetricType::Counter)?;
        for (family, count) in self.commands {
            ConstCounter::new(count).encode(metric.encode_family(&[("family", family)])?)?;
        }
        Ok(())
    }

    fn encode_requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "HTTP requests answered";
        let mut metric = encoder.encode_descriptor("http_requests", help, None, MetricType::Counter)?;
        for (labels, count) in &self.requests {
            ConstCounter::new(*count).encode(metric.encode_family(labels)?)?;
        }
        let help = "From the parsed request head to the finished answer";
        let unit = Some(&Unit::Seconds);
        let mut metric =
            encoder.encode_descriptor("http_request_duration", help, unit, MetricType::Histogram)?;
        for series in &self.durations {
            metric.encode_family(&series.labels)?.encode_histogram::<NoLabelSet>(
                series.sum_seconds,
                series.count,
                &series.buckets,
                None,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_core::event::{PeerClock, ShardStatus};
    use tidelock_core::types::{LogIndex, MigrationId, NodeId, ShardId, Term};

    fn scrape(status: NodeStatus, http: &HttpCounters) -> String {
        let disk = DiskCounters::default();
        disk.fsyncs.store(7, Ordering::Relaxed);
        let (snapshots, transport) = (SnapshotCounters::default(), TransportCounters::default());
        Scrape {
            status,
            http,
            resp: &RespCounters::default(),
            handovers: [8, 2],
            disk: &disk,
            snapshots: &snapshots,
            transport: &transport,
            disk_stalled: false,
            memory: &Memory::new(0),
            turns: &TurnGauges::default(),
            busiest_open_requests: 3,
        }
        .encode()
    }

    #[test]
    fn a_request_is_counted_once_under_its_labels() {
        let http = HttpCounters::default();
        http.observe(Observation {
            dialect: Dialect::Kv1,
            kind: Kind::Write,
            method: MethodClass::Write,
            status: StatusClass::ClientError,
            duration: Duration::from_micros(100),
        });
        let text = scrape(NodeStatus::default(), &http);
        let line = r#"tidelock_http_requests_total{dialect="kv1",method="write",status="4xx"} 1"#;
        assert!(text.contains(line), "{text}");
        let bucket =
            r#"tidelock_http_request_duration_seconds_bucket{le="0.00005",dialect="kv1",kind="write"} "#;
        assert!(text.contains(&format!("{bucket}0")), "{text}");
        let bucket = bucket.replace("0.00005", "0.0001");
        assert!(text.contains(&format!("{bucket}1")), "a bound is inclusive: {text}");
        assert!(text.contains("tidelock_wal_fsyncs_total 7"), "{text}");
        assert!(text.contains("tidelock_worker_requests_total 8\n"), "{text}");
        assert!(text.contains("tidelock_worker_batches_total 2\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_duration_beyond_every_bound_is_still_counted() {
        let durations = Durations::default();
        durations.observe(Duration::from_secs(60));
        assert_eq!(durations.buckets[DURATION_BUCKETS - 1].get(), 1);
        assert_eq!(durations.sum_nanos.get(), 60_000_000_000);
    }

    #[test]
    fn shards_and_peers_become_labels() {
        let shard = ShardStatus {
            shard: ShardId(2),
            replica: tidelock_core::types::ReplicaId(1),
            leader: Some(NodeId(3)),
            leads: false,
            term: Term(5),
            committed: LogIndex(9),
            applied: LogIndex(8),
            last: LogIndex(10),
            log_begin: LogIndex(7),
            keys: 4,
            log_bytes: 5,
            votes: true,
            snapshot: None,
            snapshot_bytes: 6,
            makes_snapshot: true,
            last_move: MigrationId(0),
            is_moving: false,
            checkpoint: None,
            diverged: false,
        };
        let clocks = vec![PeerClock { node: NodeId(3), ahead_ms: -60_000, error_ms: 1 }];
        let status = NodeStatus {
            shards: vec![shard],
            links: vec![(NodeId(3), true)],
            clocks,
            ..NodeStatus::default()
        };
        let text = scrape(status, &HttpCounters::default());
        assert!(text.contains("tidelock_shard_leader{shard=\"2\"} 3"), "{text}");
        assert!(text.contains("tidelock_shard_applied{shard=\"2\"} 8"), "{text}");
        assert!(text.contains("tidelock_shard_log_begin{shard=\"2\"} 7"), "{text}");
        assert!(text.contains("tidelock_shard_snapshot_bytes{shard=\"2\"} 6"), "{text}");
        assert!(text.contains("tidelock_snapshots_in_progress 1"), "{text}");
        assert!(text.contains("tidelock_peer_connected{peer=\"3\"} 1"), "{text}");
        assert!(text.contains("tidelock_peer_clock_offset_seconds{peer=\"3\"} -60.0"), "{text}");
    }
}
