//! Faults of the network: hosts are separated, connections break, frames are lost.

use tidelock_core::types::NodeId;

use super::{Cluster, FaultKind, Severity, Target, Way, choose};
use crate::event_queue::Direction;

fn draw_way(random: &mut fastrand::Rng) -> Way {
    *choose(random, &[Way::Both, Way::Both, Way::In, Way::Out])
}

/// Some hosts are separated from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// If bit `i` is set, host `i + 1` is on the separated side.
    pub side: u64,
    /// The directions that are blocked between the two sides.
    pub way: Way,
}

impl FaultKind for Partition {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> Partition {
        Partition { side: random.u64(1..1 << severity.nodes), way: draw_way(random) }
    }

    fn target(&self) -> Option<Target> {
        None
    }

    fn strike_links(&self, cluster: &mut dyn Cluster, _: &[NodeId]) -> Vec<Direction> {
        separate(cluster, self.side, self.way)
    }
}

/// One host is separated from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolate {
    /// The host that is separated.
    pub target: Target,
    /// The directions that are blocked, as seen from the host.
    pub way: Way,
}

impl FaultKind for Isolate {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> Isolate {
        Isolate { target: Target::draw(severity, random), way: draw_way(random) }
    }

    fn target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn strike_links(&self, cluster: &mut dyn Cluster, struck: &[NodeId]) -> Vec<Direction> {
        let side = struck.iter().map(|node| 1 << (node.0 - 1)).sum();
        separate(cluster, side, self.way)
    }
}

/// Two hosts are separated from each other, and from no other one. So what one of them leads does
/// not reach the other, while what the rest lead does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutPair {
    /// One of the hosts.
    pub low: NodeId,
    /// The other one.
    pub high: NodeId,
    /// The directions that are blocked, as seen from the first one.
    pub way: Way,
}

impl FaultKind for CutPair {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> CutPair {
        let low = random.u64(1..severity.nodes);
        let high = random.u64(low + 1..=severity.nodes);
        CutPair { low: NodeId(low), high: NodeId(high), way: draw_way(random) }
    }

    fn is_possible(severity: &Severity) -> bool {
        severity.nodes >= 2
    }

    fn target(&self) -> Option<Target> {
        None
    }

    fn strike_links(&self, _: &mut dyn Cluster, _: &[NodeId]) -> Vec<Direction> {
        self.way.of(Direction { from: self.low, to: self.high })
    }
}

/// Some connections break at once and may be established again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakLinks {
    /// Of a thousand pairs of hosts, how many.
    pub per_mille: u32,
}

impl FaultKind for BreakLinks {
    fn draw(_: &Severity, random: &mut fastrand::Rng) -> BreakLinks {
        BreakLinks { per_mille: random.u32(100..=1000) }
    }

    fn target(&self) -> Option<Target> {
        None
    }

    fn strike_links(&self, cluster: &mut dyn Cluster, _: &[NodeId]) -> Vec<Direction> {
        cluster.break_links(self.per_mille);
        Vec::new()
    }
}

/// Frames are dropped by their sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lossy {
    /// Of a thousand droppable ones, how many.
    pub per_mille: u32,
}

impl FaultKind for Lossy {
    fn draw(_: &Severity, random: &mut fastrand::Rng) -> Lossy {
        Lossy { per_mille: random.u32(10..500) }
    }

    fn target(&self) -> Option<Target> {
        None
    }

    fn strike_links(&self, cluster: &mut dyn Cluster, _: &[NodeId]) -> Vec<Direction> {
        cluster.set_drops(Some(self.per_mille));
        Vec::new()
    }

    fn relieve_links(&self, cluster: &mut dyn Cluster) {
        cluster.set_drops(None);
    }
}

/// The links between a side and the rest.
fn separate(cluster: &dyn Cluster, side: u64, way: Way) -> Vec<Direction> {
    let is_inside = |node: NodeId| side >> (node.0 - 1) & 1 == 1;
    let (inside, outside): (Vec<NodeId>, Vec<NodeId>) =
        (1..=cluster.hosts()).map(NodeId).partition(|&node| is_inside(node));
    let pairs = inside.iter().flat_map(|&from| outside.iter().map(move |&to| Direction { from, to }));
    pairs.flat_map(|out| way.of(out)).collect()
}
