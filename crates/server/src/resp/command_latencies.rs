//! Latency of the commands of a connection.
//!
//! Owns the times at which unanswered commands were parsed. The commands of a pipeline that were
//! parsed together have the same time, so a pipeline of hundreds reads the clock twice.

use std::collections::VecDeque;
use std::time::Instant;

use crate::metrics::DurationHistogram;

/// Commands that were parsed together.
#[derive(Debug)]
struct Batch {
    parsed_at: Instant,
    unanswered: u64,
}

/// The commands of a connection that are not answered yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct CommandLatencies {
    batches: VecDeque<Batch>,
    /// The sum of those of all batches.
    unanswered: u64,
}

impl CommandLatencies {
    /// Notes commands that were just parsed.
    pub(super) fn parsed(&mut self, commands: u64) {
        if commands > 0 {
            self.unanswered += commands;
            self.batches.push_back(Batch { parsed_at: Instant::now(), unanswered: commands });
        }
    }

    /// Records the latency of the commands answered since the last call. `unanswered` is the number
    /// of replies still to come. A command with several replies counts as answered with the last
    /// one.
    pub(super) fn answered(&mut self, unanswered: u64, durations: &DurationHistogram) {
        let mut answered = self.unanswered.saturating_sub(unanswered);
        if answered == 0 {
            return;
        }
        self.unanswered -= answered;
        let now = Instant::now();
        while let Some(batch) = self.batches.front_mut().filter(|_| answered > 0) {
            let count = batch.unanswered.min(answered);
            durations.observe(now.saturating_duration_since(batch.parsed_at), count);
            batch.unanswered -= count;
            answered -= count;
            if batch.unanswered == 0 {
                self.batches.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_counted_once_and_the_oldest_first() {
        let (mut commands, durations) = (CommandLatencies::default(), DurationHistogram::default());
        commands.parsed(3);
        commands.parsed(2);
        commands.parsed(0);
        commands.answered(5, &durations);
        assert_eq!(durations.count(), 0);
        commands.answered(1, &durations);
        assert_eq!(durations.count(), 4);
        assert_eq!(commands.batches.len(), 1);
        commands.answered(7, &durations);
        assert_eq!(durations.count(), 4, "more replies are owed than there are commands");
        commands.answered(0, &durations);
        assert_eq!((durations.count(), commands.batches.len()), (5, 0));
    }
}
