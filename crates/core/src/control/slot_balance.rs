//! The balance of operations over data shards: which hot slots move from the busiest data shard to
//! another one. A pure function of the registry, of who leads, and of what clients ask for.
//!
//! Owns which slots move next. A move copies every key of its slots, so the groups with the most
//! operations move first, and a move must clearly relieve the busiest shard.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::command::HotSlotMove;
use crate::control::division::CAUSE_TAG;
use crate::control::registry::Registry;
use crate::slots::slot_map::SlotMap;
use crate::slots::slot_set::SlotSet;
use crate::slots::{GROUP_SLOTS, SlotGroup};
use crate::types::{NodeId, ShardId};

/// A move relieves the busiest shard by at least this part of its operations, so that small changes
/// between reports move nothing.
const GAIN_DIVISOR_MIN: u64 = 5;

/// The data shards that may exchange slots, with their leaders: those that own slots and have a
/// leader. None if the tags of data shards differ, because an operator has then chosen what each
/// shard is for. The tag that says why a shard was added does not count.
pub fn exchanging_shards(
    registry: &Registry,
    leader: impl Fn(ShardId) -> Option<NodeId>,
) -> BTreeMap<ShardId, NodeId> {
    let owning = registry.slots().shards();
    let tags = |shard: &ShardId| -> BTreeMap<&String, &String> {
        let row = registry.shards().get(shard);
        row.into_iter().flat_map(|row| &row.tags).filter(|(name, _)| *name != CAUSE_TAG).collect()
    };
    let first = owning.first().map(tags);
    if owning.iter().any(|shard| Some(tags(shard)) != first) {
        return BTreeMap::new();
    }
    owning.into_iter().filter_map(|shard| Some((shard, leader(shard)?))).collect()
}

/// The next move of slots between shards, which are given with their leaders. `None` if no move
/// relieves the busiest shard by at least `gain_min` operations a second. `rates` are operations a
/// second of all clients.
pub fn next_move(
    leaders: &BTreeMap<ShardId, NodeId>,
    slots: &SlotMap,
    rates: &BTreeMap<SlotGroup, u64>,
    gain_min: u64,
) -> Option<HotSlotMove> {
    let loads = loads(leaders, slots, rates);
    let (&from, busiest) = loads.iter().max_by_key(|(shard, load)| (load.operations, Reverse(**shard)))?;
    let others = loads.iter().filter(|(shard, _)| leaders[*shard] != leaders[&from]);
    let (&to, least) = others.min_by_key(|(shard, load)| (load.operations, **shard))?;
    let difference = busiest.operations.saturating_sub(least.operations);
    let groups = busiest.groups_to_move(difference);
    let operations: u64 = groups.iter().map(|(_, rate)| rate).sum();
    let gain = operations.min(difference.saturating_sub(operations));
    if gain == 0 || gain < gain_min.max(busiest.operations / GAIN_DIVISOR_MIN) {
        return None;
    }
    Some(HotSlotMove {
        from,
        from_operations: busiest.operations,
        to,
        to_operations: least.operations,
        slots: SlotSet::of(groups.iter().map(|(group, _)| group.slots())),
        operations,
    })
}

/// The operations a second for the slots of one shard.
#[derive(Default)]
struct OwnerLoad {
    operations: u64,
    /// The groups of which the shard owns every slot.
    groups: Vec<(SlotGroup, u64)>,
}

/// The loads of these shards. If several shards own slots of a group, its operations are divided
/// among them by the number of slots that each owns.
fn loads(
    leaders: &BTreeMap<ShardId, NodeId>,
    slots: &SlotMap,
    rates: &BTreeMap<SlotGroup, u64>,
) -> BTreeMap<ShardId, OwnerLoad> {
    let mut loads: BTreeMap<ShardId, OwnerLoad> =
        leaders.keys().map(|shard| (*shard, OwnerLoad::default())).collect();
    for (&group, &rate) in rates {
        let mut owners: BTreeMap<ShardId, u64> = BTreeMap::new();
        group.slots().for_each(|slot| *owners.entry(slots.shard_of(slot)).or_default() += 1);
        for (owner, owned) in owners {
            let Some(load) = loads.get_mut(&owner) else { continue };
            let part = (u128::from(rate) * u128::from(owned) / u128::from(GROUP_SLOTS)) as u64;
            load.operations = load.operations.saturating_add(part);
            if owned == u64::from(GROUP_SLOTS) {
                load.groups.push((group, part));
            }
        }
    }
    loads
}

impl OwnerLoad {
    /// The groups that should move, the busiest first, with at most half of `difference` operations
    /// in total. If every group has more than that, the group with the fewest operations.
    fn groups_to_move(&self, difference: u64) -> Vec<(SlotGroup, u64)> {
        let mut groups = self.groups.clone();
        groups.retain(|(_, rate)| *rate > 0);
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
    use crate::founding::Founding;
    use crate::types::{LogIndex, MigrationId};
    use alloc::string::ToString;

    /// Two shards with half of the slots each, led by nodes 1 and 2.
    fn halves() -> (BTreeMap<ShardId, NodeId>, SlotMap) {
        ([(ShardId(1), NodeId(1)), (ShardId(2), NodeId(2))].into(), SlotMap::founded(2))
    }

    fn rates(groups: &[(u8, u64)]) -> BTreeMap<SlotGroup, u64> {
        groups.iter().map(|(group, rate)| (SlotGroup(*group), *rate)).collect()
    }

    fn moved(groups: &[(u8, u64)], gain_min: u64) -> Option<(u64, u64, u64, u64)> {
        let (leaders, slots) = halves();
        let found = next_move(&leaders, &slots, &rates(groups), gain_min)?;
        Some((found.from.0, found.to.0, found.operations, found.slots.count().into()))
    }

    #[test]
    fn the_busiest_groups_go_to_the_shard_with_least_to_do() {
        let (leaders, slots) = halves();
        let groups = [(0, 3_000), (1, 2_000), (2, 4_000), (128, 1_000)];
        let found = next_move(&leaders, &slots, &rates(&groups), 1).expect("a move");
        assert_eq!(found.slots, SlotSet::from(SlotGroup(2).slots()));
        assert_eq!(
            found.to_string(),
            "shard 1 serves 9000 operations a second, 4000 of them on these slots, and shard 2 serves 1000"
        );
        assert_eq!(moved(&[(0, 600), (1, 600), (2, 600), (3, 600)], 1), Some((1, 2, 1_200, 128)));
        assert_eq!(moved(&[(200, 500), (201, 400)], 1), Some((2, 1, 400, 64)));
    }

    #[test]
    fn nothing_moves_without_a_gain() {
        assert_eq!(moved(&[(0, 9_000)], 1), None, "one group is as busy anywhere");
        assert_eq!(moved(&[(0, 9_000), (1, 1_000)], 1), None, "a tenth is too little");
        assert_eq!(moved(&[(0, 9_000), (1, 3_000)], 1), Some((1, 2, 3_000, 64)));
        assert_eq!(moved(&[(0, 9_000), (1, 3_000)], 3_001), None, "too few operations");
        assert_eq!(moved(&[(0, 5_000), (128, 4_900)], 1), None);
        assert_eq!(moved(&[(0, 0), (1, 0)], 1), None);
        assert_eq!(moved(&[], 1), None);
        assert_eq!(moved(&[(0, 700), (1, 800), (128, 100)], 1), Some((1, 2, 700, 64)));
        assert_eq!(moved(&[(0, u64::MAX), (1, u64::MAX)], 1), None, "rates do not overflow");
        let none = next_move(&BTreeMap::new(), &SlotMap::founded(2), &rates(&[(0, 9_000)]), 1);
        assert_eq!(none, None, "no shard has a leader");
    }

    #[test]
    fn shards_of_one_leader_exchange_nothing() {
        let (mut leaders, slots) = halves();
        leaders.insert(ShardId(2), NodeId(1));
        assert_eq!(next_move(&leaders, &slots, &rates(&[(0, 900), (1, 900)]), 1), None);
    }

    #[test]
    fn a_group_with_several_owners_stays_and_counts_for_each() {
        let (leaders, mut slots) = halves();
        slots.give(MigrationId(1), &SlotSet::from(0..16), (ShardId(1), ShardId(2)));
        let found = next_move(&leaders, &slots, &rates(&[(0, 6_400), (1, 2_000)]), 1).expect("a move");
        assert_eq!((found.from_operations, found.to_operations), (6_800, 1_600));
        assert_eq!(found.slots, SlotSet::from(SlotGroup(1).slots()));
    }

    #[test]
    fn shards_with_different_tags_exchange_nothing() {
        let mut registry = Registry::founded(&Founding::new(3, 2));
        let leader = |shard: ShardId| (shard != ShardId(9)).then_some(NodeId(shard.0));
        let shards =
            |registry: &Registry| exchanging_shards(registry, leader).into_keys().collect::<Vec<_>>();
        assert_eq!(shards(&registry), [ShardId(1), ShardId(2)], "not the registry");
        registry.tag_shard(LogIndex(10), ShardId(2), &[(CAUSE_TAG.into(), Some("load".into()))]);
        assert_eq!(shards(&registry).len(), 2, "why a shard was added does not count");
        registry.tag_shard(LogIndex(11), ShardId(2), &[("owner".into(), Some("us".into()))]);
        assert_eq!(shards(&registry), []);
        registry.tag_shard(LogIndex(12), ShardId(1), &[("owner".into(), Some("us".into()))]);
        assert_eq!(shards(&registry).len(), 2);
        assert_eq!(exchanging_shards(&registry, |_| None), BTreeMap::new(), "no leaders");
    }

    #[test]
    fn moves_end_and_every_one_relieves_the_busiest() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..100 {
            let count = random.u64(2..6);
            let leaders = (1..=count).map(|shard| (ShardId(shard), NodeId(random.u64(1..4)))).collect();
            let mut slots = SlotMap::founded(count);
            let groups: BTreeMap<SlotGroup, u64> =
                (0..random.u8(1..40)).map(|_| (SlotGroup(random.u8(..)), random.u64(..5_000))).collect();
            let busiest = |slots: &SlotMap| {
                loads(&leaders, slots, &groups).into_values().map(|load| load.operations).max()
            };
            for turn in 1.. {
                assert!(turn < 1_000, "moves go on for ever: {slots:?}");
                let Some(next) = next_move(&leaders, &slots, &groups, 10) else { break };
                let before = busiest(&slots);
                assert!(next.slots.is_within(&slots.share(next.from)));
                slots.give(MigrationId(turn), &next.slots, (next.from, next.to));
                assert!(busiest(&slots) <= before);
            }
        }
    }
}
