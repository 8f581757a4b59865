//! Counters of a transport.

use crate::counters::Counter;

/// Totals of one transport since it started.
#[derive(Debug, Default)]
pub struct TransportCounters {
    /// Frames passed to the kernel, delivered or not.
    pub frames_sent: Counter,
    /// Bytes of those frames, headers included.
    pub bytes_sent: Counter,
    /// Frames received completely and with the right checksum.
    pub frames_received: Counter,
    /// Bytes of those frames, headers included.
    pub bytes_received: Counter,
    /// Frames that were not passed to the kernel as far as known: there was no link, the queue was
    /// full, or the link ended first.
    pub frames_dropped: Counter,
    /// Links with a peer that had one before.
    pub reconnects: Counter,
    /// Handshakes that this node ended: refused, malformed, too slow, or too many at a time.
    pub handshakes_refused: Counter,
    /// Connections that failed because of TLS, or of a certificate that is not that of the host.
    pub tls_failures: Counter,
    /// Links ended because a payload did not match its checksum.
    pub checksum_failures: Counter,
    /// Links ended because a frame claimed an impossible length.
    pub length_violations: Counter,
    /// Links ended because the queue could not hold a frame that must not be dropped.
    pub queue_overflows: Counter,
}
