//! The text of a scrape.
//!
//! Owns the names and descriptions of all metrics. A scrape copies everything before it formats it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tidelock_core::command::DivisionBlocker;
use tidelock_core::event::NodeStatus;

use super::durations::HistogramSnapshot;
use super::process::ProcessMetrics;
use super::{DiskCounters, Family, HttpCounters, RespCounters, SnapshotCounters, plain};
use crate::audit_log::{AuditLog, DeniedReason};
use crate::memory::Memory;
use crate::protocol::ListenerProtocol;
use crate::spans::Tracer;
use crate::tls::TlsAcceptor;
use crate::transport::TransportCounters;
use crate::turns::TurnGauges;

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
    /// The handshakes of clients, if they connect with TLS.
    pub tls: Option<&'a TlsAcceptor>,
    /// Number of listeners that other machines reach without TLS.
    pub insecure_listeners: usize,
    /// The audit log, which counts what is denied and which of its events were lost.
    pub audit_log: &'a AuditLog,
    /// Number of requests and commands that were over a limit of their principal.
    pub limited_requests: u64,
    /// Bytes that the file system of the data directory has free, if the system says so.
    pub free_bytes: Option<u64>,
    /// Counts the spans of traced requests.
    pub tracer: &'a Tracer,
    /// The budget of memory for clients, and its use.
    pub memory: &'a Memory,
    /// Gauges of the requests that wait for their turns.
    pub turns: &'a TurnGauges,
    /// Open requests of the connection that has most.
    pub busiest_open_requests: u64,
    /// The version of the program.
    pub version: &'static str,
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
            version: self.version,
            status: self.status.clone(),
            requests: self.http.request_series(),
            durations: self.http.duration_series(),
            denied: self.audit_log.denied_counts(),
            commands: Family::ALL.map(|family| (family.text(), self.resp.commands.of(family))),
            totals: self.totals(),
            gauges: [self.gauges(), self.division_gauges(), self.space_gauges()].concat(),
            fsyncs: self.disk.fsyncs.totals(),
            resp_durations: self.resp.durations.totals(),
            snapshot_seconds: self.snapshots.making_micros.load(Ordering::Relaxed) as f64 / 1e6,
        }));
        // Metrics of processes have the same names in all programs, so no prefix.
        let mut of_process = Registry::default();
        of_process.register_collector(Box::new(ProcessMetrics::measure()));
        let mut out = String::with_capacity(16 << 10);
        text::encode_registry(&mut out, &of_process)
            .and_then(|()| text::encode(&mut out, &registry))
            .expect("invariant: writing to a String does not fail");
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
            ("spans_exported", "Spans of traced requests that the collector took", self.tracer.exported()),
            (
                "spans_dropped",
                "Spans of traced requests that were dropped, because the collector was too slow or took none",
                self.tracer.dropped(),
            ),
            (
                "publications_dropped",
                "Messages of PUBLISH that were not sent to a peer because its link was too slow",
                node.publications_dropped,
            ),
            (
                "client_memory_refusals",
                "Requests and connections refused because the memory for clients was used up",
                self.memory.refused(),
            ),
            (
                "limited_requests",
                "Requests and commands refused because their principal was over a limit",
                self.limited_requests,
            ),
            (
                "audit_lost",
                "Events that --audit-log lacks, because its queue or disk was full",
                self.audit_log.lost(),
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
                "peer_tls_failures",
                "Connections with peers that TLS or a certificate prevented",
                self.transport.tls_failures.get(),
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
            (
                "resp_cross_slot_transactions",
                "Transactions with keys of several slots, which fail once these slots are in several shards",
                self.resp.cross_slot_transactions.get(),
            ),
            (
                "tls_handshake_failures",
                "Handshakes of TLS with clients that failed",
                self.tls.map_or(0, TlsAcceptor::failures),
            ),
            (
                "tls_reload_failures",
                "How often changed files of the certificate were not used",
                self.tls.map_or(0, TlsAcceptor::reload_failures),
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
            (
                "tls_certificate_expires_unix_seconds",
                "When the certificate of the node expires, in seconds since 1970; 0 without TLS",
                self.tls.map_or(0, TlsAcceptor::expires_unix_s).try_into().unwrap_or(0),
            ),
            (
                "insecure_listeners",
                "Ports that other machines reach without TLS, because of --insecure",
                self.insecure_listeners as u64,
            ),
            ("http_connections_open", "HTTP connections open", self.http.connections_open.get()),
            ("resp_connections_open", "Redis connections open", self.resp.connections_open.get()),
        ]
    }

    /// Nothing while the system does not say.
    fn space_gauges(&self) -> Vec<NamedValue> {
        let help = "Bytes that are free in the file system of the data directory";
        self.free_bytes.map(|bytes| ("data_free_bytes", help, bytes)).into_iter().collect()
    }

    fn division_gauges(&self) -> Vec<NamedValue> {
        vec![
            (
                "spanning_transactions",
                "Transactions of the last hour of this node's clients that span slots of one shard",
                self.status.spanning_transactions,
            ),
            (
                "data_shards_wanted",
                "Data shards that hosts and load call for; 0 unless this node leads the registry of a cluster that divides \
                 itself",
                self.status.division.as_ref().map_or(0, |view| view.wanted),
            ),
            (
                "division_held_back_transactions",
                "Transactions of the last hour, of all clients, that hold back another data shard; 0 if none does",
                match self.status.division.as_ref().and_then(|view| view.blocker.as_ref()) {
                    Some(DivisionBlocker::Spanning(count)) => *count,
                    _ => 0,
                },
            ),
        ]
    }
}

/// The owned, thread-safe copy that the registry requires, for the duration of one scrape.
#[derive(Debug)]
struct Snapshot {
    status: NodeStatus,
    requests: Vec<([(&'static str, &'static str); 3], u64)>,
    durations: Vec<([(&'static str, &'static str); 2], HistogramSnapshot)>,
    denied: Vec<(ListenerProtocol, DeniedReason, u64)>,
    commands: [(&'static str, u64); Family::ALL.len()],
    totals: Vec<NamedValue>,
    gauges: Vec<NamedValue>,
    fsyncs: HistogramSnapshot,
    resp_durations: HistogramSnapshot,
    snapshot_seconds: f64,
    version: &'static str,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in &self.totals {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(*value).encode(metric)?;
        }
        let help = "Time that snapshots were in the making";
        let unit = Some(&Unit::Seconds);
        let metric = encoder.encode_descriptor("snapshot_duration", help, unit, MetricType::Counter)?;
        ConstCounter::new(self.snapshot_seconds).encode(metric)?;
        let histograms = [
            ("wal_fsync_duration", "How long calls of fdatasync on the log took", &self.fsyncs),
            (
                "resp_command_duration",
                "From the parsed Redis command to its encoded reply",
                &self.resp_durations,
            ),
        ];
        for (name, help, totals) in histograms {
            encode_durations(
                &mut encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?,
                totals,
            )?;
        }
        for (name, help, value) in &self.gauges {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(*value).encode(metric)?;
        }
        self.encode_build(&mut encoder)?;
        self.encode_shards(&mut encoder)?;
        self.encode_links(&mut encoder)?;
        self.encode_commands(&mut encoder)?;
        self.encode_denied(&mut encoder)?;
        self.encode_requests(&mut encoder)
    }
}

/// Writes a histogram.
fn encode_durations(metric: &mut MetricEncoder<'_>, totals: &HistogramSnapshot) -> fmt::Result {
    metric.encode_histogram::<NoLabelSet>(totals.sum_seconds, totals.count, &totals.buckets, None)
}

impl Snapshot {
    fn encode_build(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1; the label is the version of the program";
        let mut metric = encoder.encode_descriptor("build_info", help, None, MetricType::Gauge)?;
        ConstGauge::new(1_u64).encode(metric.encode_family(&[("version", self.version)])?)
    }

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

    fn encode_denied(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests and connections that were denied because of who sent them";
        let mut metric = encoder.encode_descriptor("denied", help, None, MetricType::Counter)?;
        for (protocol, reason, count) in &self.denied {
            let labels = [("protocol", protocol.name()), ("reason", reason.name())];
            ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
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
        for (labels, totals) in &self.durations {
            encode_durations(&mut metric.encode_family(labels)?, totals)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Dialect, Kind, MethodClass, Observation, StatusClass};
    use super::*;
    use tidelock_core::event::{PeerClock, ShardStatus};
    use tidelock_core::types::{LogIndex, MigrationId, NodeId, ShardId, Term};

    fn scrape(status: NodeStatus, http: &HttpCounters) -> String {
        let disk = DiskCounters::default();
        disk.fsyncs.observe(Duration::from_millis(3), 7);
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
            tls: None,
            insecure_listeners: 0,
            audit_log: &AuditLog::default(),
            limited_requests: 0,
            free_bytes: Some(7 << 30),
            tracer: &Tracer::default(),
            memory: &Memory::new(0),
            turns: &TurnGauges::default(),
            busiest_open_requests: 3,
            version: "1.2.3",
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
        assert!(text.contains("tidelock_wal_fsync_duration_seconds_bucket{le=\"0.005\"} 7\n"), "{text}");
        assert!(text.contains("tidelock_resp_command_duration_seconds_count 0\n"), "{text}");
        assert!(text.contains("tidelock_build_info{version=\"1.2.3\"} 1\n"), "{text}");
        assert!(text.contains("\nprocess_threads "), "{text}");
        assert!(text.contains("tidelock_worker_requests_total 8\n"), "{text}");
        assert!(text.contains("tidelock_worker_batches_total 2\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn shards_and_peers_become_labels() {
        let shard = ShardStatus {
            shard: ShardId(2),
            replica: tidelock_core::types::ReplicaId(1),
            leader: Some(NodeId(3)),
            leads: false,
            is_term_durable: true,
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
            slots: None,
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
