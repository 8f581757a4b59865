//! Hosts that come back at other addresses.

use tidelock_core::types::NodeId;

use super::World;
use crate::addressing;
use crate::event_queue::SimEvent;
use crate::faults::CrashKind;
use crate::faults::addresses::{Relocate, Relocation};
use crate::host::Host;

impl World<'_> {
    /// Stops hosts, moves them, and schedules their starts and the updates of their names.
    pub(super) fn relocate_hosts(&mut self, relocate: &Relocate) {
        if !self.is_every_address_known() {
            return;
        }
        let is_moved = |node: &NodeId| relocate.hosts >> (node.0 - 1) & 1 == 1;
        let mut nodes: Vec<NodeId> = self.nodes().into_iter().filter(is_moved).collect();
        self.limit_to_findable(&mut nodes, relocate.relocation);
        for &node in &nodes {
            self.crash(node, CrashKind::Process);
        }
        match relocate.relocation {
            Relocation::Exchange | Relocation::ExchangeBehindNames => self.addressing.rotate(&nodes),
            Relocation::Renew | Relocation::RenewBehindNames => {
                nodes.iter().for_each(|node| self.addressing.renew(*node));
            }
        }
        for node in nodes {
            let location = self.addressing.location(node).to_owned();
            self.note(&[26, node.0], || format!("node {node} moves to {location}: {relocate:?}"));
            match relocate.relocation {
                Relocation::Exchange | Relocation::Renew => self.host(node).advertise(location),
                Relocation::ExchangeBehindNames => self.host(node).advertise_name(),
                Relocation::RenewBehindNames => {
                    self.host(node).advertise_name();
                    self.addressing.lose_name(node);
                }
            }
            self.event_queue.after(relocate.name_lag, SimEvent::NameUpdated(node));
            self.event_queue.after(relocate.down, SimEvent::Started(node));
            self.tally.relocations += 1;
        }
    }

    /// Leaves only as many hosts as can find each other afterwards. Those that advertise locations
    /// are found where others of them were. Those with names are found once their names are right.
    /// One of either kind that nobody knows finds the others, which have not moved.
    fn limit_to_findable(&mut self, nodes: &mut Vec<NodeId>, relocation: Relocation) {
        let has_name =
            |world: &mut Self, node: NodeId| world.host(node).info().peer_address == addressing::name(node);
        let Some(&first) = nodes.first() else { return };
        let are_named = has_name(self, first);
        nodes.retain(|node| has_name(self, *node) == are_named);
        let is_closed = match relocation {
            Relocation::Exchange => true,
            Relocation::Renew => false,
            Relocation::ExchangeBehindNames | Relocation::RenewBehindNames => are_named,
        };
        if !is_closed {
            nodes.truncate(1);
        }
    }

    /// A host's name resolves to its present location.
    pub(super) fn update_name(&mut self, node: NodeId) {
        self.note(&[27, node.0], || format!("the name of node {node} resolves to its location"));
        self.addressing.update_name(node);
    }

    /// Whether every member runs, and its registry has every member's present address.
    fn is_every_address_known(&self) -> bool {
        let members: Vec<&Host> = self.hosts.iter().filter(|host| host.is_member()).collect();
        members
            .iter()
            .all(|host| host.is_running() && members.iter().all(|other| host.knows_address(other.info())))
    }
}
