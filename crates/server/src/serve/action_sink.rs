//! Where the actions of the node go: the disk's threads, the transport, the log.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tidelock_core::command::Publication;
use tidelock_core::event::{OutgoingFrame, SlowRequest};
use tidelock_core::spans::SpanEvent;
use tidelock_core::storage::WalBatch;
use tidelock_core::storage::snapshot::SnapshotTask;
use tidelock_core::trace::TraceEvent;
use tidelock_core::types::NodeId;
use tidelock_core::version::ClusterVersion;

use super::version_gate::VersionGate;
use crate::consensus_log::ConsensusLog;
use crate::resp::pub_sub::PubSub;
use crate::spans::NodeSpans;
use crate::status_log::SlowRequestLog;
use crate::transport::Transport;
use crate::worker::ActionSinks;

/// The sinks of a running node.
pub(super) struct ActionSink {
    pub(super) disk: Rc<VersionGate>,
    pub(super) transport: Rc<Transport>,
    pub(super) pub_sub: Arc<PubSub>,
    pub(super) slow: SlowRequestLog,
    pub(super) consensus: ConsensusLog,
    pub(super) spans: NodeSpans,
}

impl ActionSinks for ActionSink {
    fn send(&self, frame: OutgoingFrame) {
        self.transport.send(frame);
    }

    fn record_version(&self, version: ClusterVersion) {
        self.disk.record(version);
    }

    fn persist(&self, batch: WalBatch) {
        self.disk.persist(batch);
    }

    fn file(&self, task: SnapshotTask) {
        self.disk.file(task);
    }

    fn deliver(&self, publications: &mut Vec<Publication>) {
        publications.drain(..).for_each(|publication| self.pub_sub.deliver(&publication));
    }

    fn log_slow(&self, requests: &mut Vec<SlowRequest>) {
        self.slow.log(requests.drain(..), Instant::now());
    }

    fn log_trace(&self, events: &mut Vec<TraceEvent>) {
        self.consensus.log(events.drain(..), Instant::now());
    }

    fn record_spans(&self, events: &mut Vec<SpanEvent>) {
        self.spans.record(events.drain(..));
    }

    fn set_peers(&self, peers: Vec<(NodeId, String)>) {
        self.transport.set_peers(peers);
    }
}
