//! The timer after which entries that wait for more commands begin without them.
//!
//! Owns which delays (`raft::batch_delay`) have lasted for as long as the timer of the shell, of
//! which one runs at a time. So a delay ends after at most two periods of it.

use alloc::vec::Vec;

use super::Node;
use crate::deliberate::Fault;
use crate::event::Actions;
use crate::raft::Group;
use crate::types::ShardId;

/// The delays of the node, by their numbers.
#[derive(Default)]
pub(super) struct BatchTimer {
    /// The newest delay that had begun when the timer was started, while it runs.
    runs_for: Option<u64>,
    /// The newest delay that is over.
    over: u64,
}

impl Node {
    /// Starts the timer if a delay has begun for which none runs.
    pub(super) fn start_batch_timer(&mut self, actions: &mut Actions) {
        let begun = self.output.batch_delays;
        if self.batch_timer.runs_for.is_none() && begun > self.batch_timer.over {
            self.batch_timer.runs_for = Some(begun);
            actions.starts_batch_timer = true;
        }
    }

    /// Ends the delays for which the timer ran.
    pub(super) fn batch_timer_over(&mut self) {
        let Some(up_to) = self.batch_timer.runs_for.take() else { return };
        self.batch_timer.over = up_to;
        if self.options.faults.has(Fault::BatchDelayNeverOver) {
            return;
        }
        let is_over = |group: &&Group| group.is_delayed_among(up_to);
        let over: Vec<ShardId> = self.groups.iter().filter(is_over).map(Group::shard).collect();
        for shard in over {
            self.groups.with(shard, Group::end_delay);
        }
    }
}
