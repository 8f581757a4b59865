//! How long the commands of a connection take.
//!
//! Owns which of them are not answered yet. Commands that arrive together are measured together, so
//! a burst of hundreds reads the clock twice.

use std::collections::VecDeque;
use std::time::Instant;

use crate::metrics::Durations;

/// Commands that were taken at the same time.
#[derive(Debug)]
struct Burst {
    since: Instant,
    unanswered: u64,
}

/// The commands of a connection that are not answered yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct CommandDurations {
    bursts: VecDeque<Burst>,
    unanswered: u64,
}

impl CommandDurations {
    /// Notes commands that were just taken from the input.
    pub(super) fn took(&mut self, commands: u64) {
        if commands > 0 {
            self.unanswered += commands;
            self.bursts.push_back(Burst { since: Instant::now(), unanswered: commands });
        }
    }

    /// Observes the durations of the commands answered since the last call. `unanswered` is how
    /// many replies are still owed: for commands with several replies more than there are commands,
    /// so these count as answered with their last one.
    pub(super) fn answered(&mut self, unanswered: u64, durations: &Durations) {
        let mut answered = self.unanswered.saturating_sub(unanswered);
        if answered == 0 {
            return;
        }
        self.unanswered -= answered;
        let now = Instant::now();
        while let Some(burst) = self.bursts.front_mut().filter(|_| answered > 0) {
            let count = burst.unanswered.min(answered);
            durations.observe(now.saturating_duration_since(burst.since), count);
            burst.unanswered -= count;
            answered -= count;
            if burst.unanswered == 0 {
                self.bursts.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_counted_once_and_the_oldest_first() {
        let (mut commands, durations) = (CommandDurations::default(), Durations::default());
        commands.took(3);
        commands.took(2);
        commands.took(0);
        commands.answered(5, &durations);
        assert_eq!(durations.count(), 0);
        commands.answered(1, &durations);
        assert_eq!(durations.count(), 4);
        assert_eq!(commands.bursts.len(), 1);
        commands.answered(7, &durations);
        assert_eq!(durations.count(), 4, "more replies are owed than there are commands");
        commands.answered(0, &durations);
        assert_eq!((durations.count(), commands.bursts.len()), (5, 0));
    }
}
