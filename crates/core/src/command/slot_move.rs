//! Moves of hot slots from busy shards, as nodes show them.
//!
//! Owns the types and their texts. `control::slot_balance` decides.

use core::fmt;

use super::DivisionBlocker;
use crate::slots::slot_set::SlotSet;
use crate::types::ShardId;

/// A move of slots from a busy data shard to another one, so that both serve about equally many
/// operations. `Display` writes the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotSlotMove {
    /// The shard that owns the slots.
    pub from: ShardId,
    /// Operations on keys a second of all clients, for all slots of that shard.
    pub from_operations: u64,
    /// The shard that will own them.
    pub to: ShardId,
    /// Operations a second for the slots that it owns already.
    pub to_operations: u64,
    /// The slots. Not empty.
    pub slots: SlotSet,
    /// Operations a second for these slots.
    pub operations: u64,
}

impl fmt::Display for HotSlotMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HotSlotMove { from, from_operations, to, to_operations, operations, .. } = self;
        write!(
            f,
            "shard {from} serves {from_operations} operations a second, {operations} of them on these slots, and \
             shard {to} serves {to_operations}"
        )
    }
}

/// The next move of hot slots, as the leader of the prime shard sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotSlotMoveView {
    /// The move.
    pub next: HotSlotMove,
    /// What holds it back; `None` if it is about to begin.
    pub blocker: Option<DivisionBlocker>,
}
