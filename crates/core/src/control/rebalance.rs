//! Which slots should move so that all data shards hold equally many.
//!
//! A pure function of the current shares. Every shard ends with the same number of slots, or one
//! more. The shards with the most slots get the larger shares, so as few slots as possible move.
//! Slots are taken from the ends of a giver's ranges, so shares stay in few ranges.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::slots::slot_set::SlotSet;
use crate::types::ShardId;

/// Slots that should go from one shard to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMove {
    /// The shard with too many slots.
    pub from: ShardId,
    /// The shard with too few slots.
    pub to: ShardId,
    /// Not empty; a part of what `from` holds or will hold.
    pub slots: SlotSet,
}

/// The moves that even the shares out.
pub fn plan(shares: &BTreeMap<ShardId, SlotSet>) -> Vec<SlotMove> {
    let total: u32 = shares.values().map(SlotSet::count).sum();
    let shards = u32::try_from(shares.len()).unwrap_or(u32::MAX);
    if shards == 0 {
        return Vec::new();
    }
    let (least, larger) = (total / shards, total % shards);
    let mut by_count: Vec<(&ShardId, &SlotSet)> = shares.iter().collect();
    by_count.sort_by_key(|(shard, share)| (core::cmp::Reverse(share.count()), **shard));
    let wanted: BTreeMap<ShardId, u32> = by_count
        .iter()
        .zip(0..)
        .map(|((shard, _), position)| (**shard, least + u32::from(position < larger)))
        .collect();
    let mut spare: Vec<(ShardId, SlotSet)> = Vec::new();
    for (shard, share) in shares {
        let excess = share.count().saturating_sub(wanted[shard]);
        if excess > 0 {
            spare.push((*shard, share.last(excess)));
        }
    }
    let mut moves = Vec::new();
    let mut spare = spare.into_iter().peekable();
    for (&to, share) in shares {
        let mut missing = wanted[&to].saturating_sub(share.count());
        while missing > 0
            && let Some((from, left)) = spare.peek_mut()
        {
            let slots = left.first(missing);
            missing -= slots.count();
            *left = left.without(&slots);
            moves.push(SlotMove { from: *from, to, slots });
            if left.is_empty() {
                spare.next();
            }
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::SLOTS;

    /// Random shares of some shards, some of them empty.
    fn random_shares(random: &mut fastrand::Rng) -> BTreeMap<ShardId, SlotSet> {
        let shards = random.u64(1..9);
        let mut shares: BTreeMap<ShardId, SlotSet> =
            (1..=shards).map(|shard| (ShardId(shard), SlotSet::default())).collect();
        let holders = random.u64(1..=shards);
        let mut begin = 0;
        while begin < SLOTS {
            let end = (begin + random.u16(1..4_000)).min(SLOTS);
            let share = shares.entry(ShardId(random.u64(1..=holders))).or_default();
            *share = share.union(&SlotSet::from(begin..end));
            begin = end;
        }
        shares
    }

    #[test]
    fn shares_come_out_even_and_no_slot_moves_without_need() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let before = random_shares(&mut random);
            let mut after = before.clone();
            let moves = plan(&before);
            for SlotMove { from, to, slots } in &moves {
                assert!(from != to && !slots.is_empty() && slots.is_within(&before[from]));
                let (given, received) = (after[from].without(slots), after[to].union(slots));
                after.insert(*from, given);
                after.insert(*to, received);
            }
            let counts: Vec<u32> = after.values().map(SlotSet::count).collect();
            assert_eq!(counts.iter().sum::<u32>(), u32::from(SLOTS));
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most <= least.map(|least| least + 1).as_ref(), "{counts:?}");
            // As few as possible: a shard with too many slots gives only the excess, and as many of
            // those shards as possible keep one more.
            let (share, larger) =
                (u32::from(SLOTS) / counts.len() as u32, u32::from(SLOTS) % counts.len() as u32);
            let mut excess: Vec<u32> = before.values().map(|set| set.count().saturating_sub(share)).collect();
            excess.sort_unstable_by(|a, b| b.cmp(a));
            let kept = excess.iter().take(larger as usize).filter(|excess| **excess > 0).count() as u32;
            let moved: u32 = moves.iter().map(|a_move| a_move.slots.count()).sum();
            assert_eq!(moved, excess.iter().sum::<u32>() - kept);
            assert_eq!(plan(&after), [], "what is even stays as it is");
        }
    }

    #[test]
    fn nothing_comes_of_no_shards() {
        assert_eq!(plan(&BTreeMap::new()), []);
    }
}
