//! Faults of addresses: hosts stop, and come back at others.

use tidelock_core::types::NodeId;

use super::{Cluster, Fault, FaultKind, ScheduledFault, Severity, choose};
use crate::event_queue::{Direction, Micros};

/// Hosts stop, and start at other locations. It has no effect unless every host runs and knows
/// every host's present address: if several hosts have new addresses that nobody knows, they cannot
/// find each other (see [`tidelock_core::address_book`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocate {
    /// If bit `i` is set, host `i + 1` moves.
    pub hosts: u64,
    /// Where they are afterwards.
    pub relocation: Relocation,
    /// How long the hosts are down.
    pub down: Micros,
    /// How long their names are stale, if they have any. This may be longer than the hosts are
    /// down.
    pub name_lag: Micros,
}

/// Where hosts are that moved, and what they advertise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    /// Each has the location of the next one, which it advertises.
    Exchange,
    /// One of them has a location that was never used, which it advertises.
    Renew,
    /// Each has the location of the next one, and advertises its name, which still resolves to its
    /// former location.
    ExchangeBehindNames,
    /// Each has a location that was never used, and advertises its name, which has no address at
    /// first.
    RenewBehindNames,
}

impl FaultKind for Relocate {
    fn draw(severity: &Severity, random: &mut fastrand::Rng) -> Relocate {
        let all = [
            Relocation::Exchange,
            Relocation::Exchange,
            Relocation::Renew,
            Relocation::ExchangeBehindNames,
            Relocation::RenewBehindNames,
        ];
        Relocate {
            hosts: random.u64(1..1 << severity.nodes),
            relocation: *choose(random, &all),
            down: Micros::MILLISECOND * random.u64(1..3_000),
            name_lag: Micros::MILLISECOND * random.u64(1..6_000),
        }
    }

    /// Drawn by [`draw`] alone.
    fn is_possible(_: &Severity) -> bool {
        false
    }

    fn target(&self) -> Option<super::Target> {
        None
    }

    fn strike_links(&self, cluster: &mut dyn Cluster, _: &[NodeId]) -> Vec<Direction> {
        cluster.relocate(self);
        Vec::new()
    }
}

/// Draws moves of hosts; many runs have none.
pub fn draw(severity: Severity, random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    let count = *choose(random, &[0, 0, 1, 3, 8]);
    let mut faults: Vec<ScheduledFault> = (0..count)
        .map(|_| ScheduledFault {
            at: Micros(random.u64(severity.from.0..severity.until.0.max(severity.from.0 + 1))),
            lasts: Micros::MILLISECOND,
            fault: Fault::from(Relocate::draw(&severity, random)),
        })
        .collect();
    faults.sort_by_key(|scheduled| scheduled.at);
    faults
}
