//! Faults of the network: hosts are separated, connections break, frames are lost.

use tidelock_core::types::NodeId;

use super::{FaultKind, Severity, Target, Way, choose};
use crate::event_queue::Direction;
use crate::net::NetworkConditions;
use crate::world::World;

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

    fn strike_links(&self, world: &mut World<'_>, _: &[NodeId]) -> Vec<Direction> {
        separate(world, self.side, self.way)
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

    fn strike_links(&self, world: &mut World<'_>, struck: &[NodeId]) -> Vec<Direction> {
        let side = struck.iter().map(|node| 1 << (node.0 - 1)).sum();
        separate(world, side, self.way)
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

    fn strike_links(&self, world: &mut World<'_>, _: &[NodeId]) -> Vec<Direction> {
        let out = Direction { from: self.low, to: self.high };
        let blocked = self.way.of(out);
        block(world, &blocked);
        blocked
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

    fn strike_links(&self, world: &mut World<'_>, _: &[NodeId]) -> Vec<Direction> {
        let nodes = world.nodes();
        for &low in &nodes {
            for &high in nodes.iter().filter(|&&high| high > low) {
                if world.nemesis.random.u32(0..1000) < self.per_mille {
                    world.net.break_link(Direction { from: low, to: high }, &mut world.event_queue);
                }
            }
        }
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

    fn strike_links(&self, world: &mut World<'_>, _: &[NodeId]) -> Vec<Direction> {
        let drops_per_mille = self.per_mille;
        world.net.set_conditions(NetworkConditions { drops_per_mille, ..world.plan.conditions });
        Vec::new()
    }

    fn relieve_links(&self, world: &mut World<'_>) {
        world.net.set_conditions(world.plan.conditions);
    }
}

/// Blocks the links between a side and the rest. Returns the links that it blocked.
fn separate(world: &mut World<'_>, side: u64, way: Way) -> Vec<Direction> {
    let is_inside = |node: NodeId| side >> (node.0 - 1) & 1 == 1;
    let mut blocked = Vec::new();
    let (inside, outside): (Vec<NodeId>, Vec<NodeId>) =
        (1..=world.plan.hosts()).map(NodeId).partition(|&node| is_inside(node));
    for &inside in &inside {
        for &outside in &outside {
            blocked.extend(way.of(Direction { from: inside, to: outside }));
        }
    }
    block(world, &blocked);
    blocked
}

fn block(world: &mut World<'_>, blocked: &[Direction]) {
    for &direction in blocked {
        world.net.block(direction, &mut world.event_queue);
    }
}
