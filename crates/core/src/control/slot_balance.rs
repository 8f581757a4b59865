//! The balance of operations over data shards: which slots of a busy shard should go to another
//! one. A pure function of who owns which slots, who leads, and what clients ask for.
//!
//! Owns which slots move next. A move copies all keys of its slots, so it takes the groups with
//! most operations first, and must bring a gain: the busier of the two shards has clearly less to
//! do afterwards.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::command::SlotTransfer;
use crate::slots::slot_set::SlotSet;
use crate::slots::{GROUP_SLOTS, SlotGroup};
use crate::types::{NodeId, ShardId};

/// A move relieves the busier shard by at least this part of its operations, so that rates that
/// vary from report to report move nothing.
const GAIN_DIVISOR_MIN: u64 = 5;

/// A data shard whose slots may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardShare {
    /// The shard.
    pub shard: ShardId,
    /// The node that leads it.
    pub leader: NodeId,
    /// The slots that it owns.
    pub slots: SlotSet,
}

/// The next slots to move, if a move relieves the busier shard by at least `gain_min` operations a
/// second. `rates` are operations a second of all clients.
pub fn next_transfer(
    shards: &[ShardShare],
    rates: &BTreeMap<SlotGroup, u64>,
    gain_min: u64,
) -> Option<SlotTransfer> {
    let rated = |share| RatedShare::of(share, rates);
    let rated: Vec<RatedShare<'_>> = shards.iter().map(rated).collect();
    let from = rated.iter().max_by_key(|rated| (rated.operations, Reverse(rated.share.shard)))?;
    let others = rated.iter().filter(|rated| rated.share.leader != from.share.leader);
    let to = others.min_by_key(|rated| (rated.operations, rated.share.shard))?;
    let difference = from.operations.saturating_sub(to.operations);
    let chosen = from.chosen(difference);
    let operations: u64 = chosen.iter().map(|(_, rate)| rate).sum();
    let gain = operations.min(difference.saturating_sub(operations));
    if gain == 0 || gain < gain_min.max(from.operations / GAIN_DIVISOR_MIN) {
        return None;
    }
    Some(SlotTransfer {
        from: from.share.shard,
        from_operations: from.operations,
        to: to.share.shard,
        to_operations: to.operations,
        slots: SlotSet::of(chosen.iter().map(|(group, _)| group.slots())),
        operations,
    })
}

/// A shard with the operations for its slots.
struct RatedShare<'a> {
    share: &'a ShardShare,
    operations: u64,
    /// The groups of which the shard owns every slot.
    groups: Vec<(SlotGroup, u64)>,
}

impl RatedShare<'_> {
    fn of<'a>(share: &'a ShardShare, rates: &BTreeMap<SlotGroup, u64>) -> RatedShare<'a> {
        let mut rated = RatedShare { share, operations: 0, groups: Vec::new() };
        for (&group, &rate) in rates {
            let slots = SlotSet::from(group.slots());
            let owned = slots.count() - slots.without(&share.slots).count();
            rated.operations += rate.saturating_mul(owned.into()) / u64::from(GROUP_SLOTS);
            if owned == u32::from(GROUP_SLOTS) && rate > 0 {
                rated.groups.push((group, rate));
            }
        }
        rated
    }

    /// Groups with at most half of `difference` together, the busiest first. If each of them has
    /// more, the one with the least.
    fn chosen(&self, difference: u64) -> Vec<(SlotGroup, u64)> {
        let mut groups = self.groups.clone();
        groups.sort_by_key(|(group, rate)| (Reverse(*rate), *group));
        let mut left = difference / 2;
        let mut chosen = Vec::new();
        for &(group, rate) in &groups {
            if rate <= left {
                left -= rate;
                chosen.push((group, rate));
            }
        }
        if chosen.is_empty() { groups.last().copied().into_iter().collect() } else { chosen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::SLOTS;
    use alloc::string::ToString;

    /// Two shards with half of the slots each, led by nodes 1 and 2.
    fn halves() -> Vec<ShardShare> {
        let share = |number, slots| ShardShare {
            shard: ShardId(number),
            leader: NodeId(number),
            slots: SlotSet::from(slots),
        };
        alloc::vec![share(1, 0..SLOTS / 2), share(2, SLOTS / 2..SLOTS)]
    }

    fn rates(groups: &[(u8, u64)]) -> BTreeMap<SlotGroup, u64> {
        groups.iter().map(|(group, rate)| (SlotGroup(*group), *rate)).collect()
    }

    fn moved(shards: &[ShardShare], groups: &[(u8, u64)], gain_min: u64) -> Option<(u64, u64, u64, u64)> {
        let found = next_transfer(shards, &rates(groups), gain_min)?;
        Some((found.from.0, found.to.0, found.operations, found.slots.count().into()))
    }

    #[test]
    fn the_busiest_groups_go_to_the_shard_with_least_to_do() {
        let groups = [(0, 3_000), (1, 2_000), (2, 4_000), (128, 1_000)];
        let found = next_transfer(&halves(), &rates(&groups), 1).expect("a move");
        assert_eq!(found.slots, SlotSet::from(SlotGroup(2).slots()));
        assert_eq!(
            found.to_string(),
            "shard 1 serves 9000 operations a second, 4000 of them on these slots, and shard 2 serves 1000"
        );
        assert_eq!(moved(&halves(), &[(0, 600), (1, 600), (2, 600), (3, 600)], 1), Some((1, 2, 1_200, 128)));
        assert_eq!(moved(&halves(), &[(200, 500), (201, 400)], 1), Some((2, 1, 400, 64)));
    }

    #[test]
    fn nothing_moves_without_a_gain() {
        assert_eq!(moved(&halves(), &[(0, 9_000)], 1), None, "one group is as busy anywhere");
        assert_eq!(moved(&halves(), &[(0, 9_000), (1, 1_000)], 1), None, "a tenth is too little");
        assert_eq!(moved(&halves(), &[(0, 9_000), (1, 3_000)], 1), Some((1, 2, 3_000, 64)));
        assert_eq!(moved(&halves(), &[(0, 9_000), (1, 3_000)], 3_001), None, "too few operations");
        assert_eq!(moved(&halves(), &[(0, 5_000), (128, 4_900)], 1), None);
        assert_eq!(moved(&halves(), &[], 1), None);
        assert_eq!(moved(&[], &[(0, 9_000)], 1), None);
        assert_eq!(moved(&halves(), &[(0, 700), (1, 800), (128, 100)], 1), Some((1, 2, 700, 64)));
    }

    #[test]
    fn shards_of_one_leader_exchange_nothing() {
        let mut shards = halves();
        shards[1].leader = NodeId(1);
        assert_eq!(moved(&shards, &[(0, 900), (1, 900)], 1), None);
    }

    #[test]
    fn a_group_with_several_owners_stays_and_counts_for_each() {
        let mut shards = halves();
        let part = SlotSet::from(0..16);
        shards[0].slots = shards[0].slots.without(&part);
        shards[1].slots = shards[1].slots.union(&part);
        let found = next_transfer(&shards, &rates(&[(0, 6_400), (1, 2_000)]), 1).expect("a move");
        assert_eq!((found.from_operations, found.to_operations), (6_800, 1_600));
        assert_eq!(found.slots, SlotSet::from(SlotGroup(1).slots()));
    }

    #[test]
    fn moves_end_and_every_one_relieves_the_busiest() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..100 {
            let count = random.u64(2..6);
            let part = |number: u64| (number * u64::from(SLOTS) / count) as u16;
            let mut shards: Vec<ShardShare> = (0..count)
                .map(|number| ShardShare {
                    shard: ShardId(number + 1),
                    leader: NodeId(random.u64(1..4)),
                    slots: SlotSet::from(part(number)..part(number + 1)),
                })
                .collect();
            let groups: BTreeMap<SlotGroup, u64> =
                (0..random.u8(1..40)).map(|_| (SlotGroup(random.u8(..)), random.u64(..5_000))).collect();
            let busiest = |shards: &[ShardShare]| {
                shards.iter().map(|share| RatedShare::of(share, &groups).operations).max()
            };
            for turn in 0.. {
                assert!(turn < 1_000, "moves go on for ever: {shards:?}");
                let Some(next) = next_transfer(&shards, &groups, 10) else { break };
                let before = busiest(&shards);
                for share in &mut shards {
                    if share.shard == next.from {
                        assert!(next.slots.is_within(&share.slots));
                        share.slots = share.slots.without(&next.slots);
                    } else if share.shard == next.to {
                        share.slots = share.slots.union(&next.slots);
                    }
                }
                assert!(busiest(&shards) <= before);
            }
        }
    }
}
