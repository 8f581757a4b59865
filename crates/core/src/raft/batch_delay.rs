//! How long the next entry of a shard waits for more commands.
//!
//! Clients that wait for each answer send the next command as soon as they have the answer. If the
//! next entry began at the moment at which the one before is applied, it would hold only commands
//! that came too late for that one. The clients would then stay in two groups that take turns, and
//! each round of consensus would serve half of them. So the next entry waits until most of the
//! clients that were just answered have sent their next command, or until a timer of the shell is
//! over. PostgreSQL's `commit_delay` and `commit_siblings` do the same for the sync of its log.
//! Rounds of reads do not wait: they take no disk, and pipelines of reads became slower.
//!
//! If the commands do not come in time, the following entries do not wait: one at first, and after
//! each further time twice as many and one more.

/// An entry with fewer commands delays nothing: a round that serves one command more is not worth
/// a timer.
const COMMANDS_MIN: usize = 3;

/// With more commands than this, entries overlap and are large anyway: to wait for 512 clients made
/// them slower.
const COMMANDS_MAX: usize = 64;

/// Most entries that do not wait after a delay that was in vain, so that the slowest hundredth of
/// the commands is not among those that waited.
const ENTRIES_WITHOUT_MAX: u32 = 255;

/// The delay of one shard's next entry.
#[derive(Default)]
pub(super) struct BatchDelay {
    /// How many commands the next entry waits for; 0 if it does not wait.
    awaited: usize,
    /// The number of this delay among those of the node.
    number: u64,
    /// How many entries will begin without a delay.
    entries_without: u32,
    /// How many did after the last delay that was in vain; 0 after one that was not.
    last_without: u32,
}

impl BatchDelay {
    /// Begins a delay if it is likely to end by commands: the last entry in flight is applied,
    /// `answered` clients have their answers, and `queued` commands wait already. `begun` counts
    /// the delays of the node.
    pub(super) fn begin(&mut self, queued: usize, answered: usize, begun: &mut u64) {
        if answered < COMMANDS_MIN || queued + answered > COMMANDS_MAX {
            return;
        }
        if self.entries_without > 0 {
            self.entries_without -= 1;
            return;
        }
        self.awaited = queued + answered * 3 / 4;
        *begun += 1;
        self.number = *begun;
    }

    /// Whether the next entry waits for more than the `queued` commands.
    pub(super) fn holds(&self, queued: usize) -> bool {
        queued < self.awaited
    }

    /// Ends the delay, if there is one, because there are enough commands.
    pub(super) fn enough(&mut self) {
        if self.awaited > 0 {
            *self = BatchDelay::default();
        }
    }

    /// Whether this is one of the first `up_to` delays of the node, and not over.
    pub(super) fn is_among(&self, up_to: u64) -> bool {
        self.awaited > 0 && self.number <= up_to
    }

    /// Ends the delay in vain: its time is over.
    pub(super) fn time_over(&mut self) {
        self.awaited = 0;
        self.last_without = (self.last_without * 2 + 1).min(ENTRIES_WITHOUT_MAX);
        self.entries_without = self.last_without;
    }

    /// Ends the delay because nothing is proposed here any more.
    pub(super) fn cancel(&mut self) {
        self.awaited = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn an_entry_waits_for_most_of_the_clients_that_were_answered() {
        let (mut delay, mut begun) = (BatchDelay::default(), 0);
        delay.begin(2, 8, &mut begun);
        assert_eq!(begun, 1);
        assert!(delay.is_among(1));
        assert!(delay.holds(2) && delay.holds(7));
        assert!(!delay.holds(8), "six of eight have come");
        delay.enough();
        assert!(!delay.holds(1), "the delay is over");
        assert!(!delay.is_among(1));
    }

    #[test]
    fn few_commands_and_many_delay_nothing() {
        let (mut delay, mut begun) = (BatchDelay::default(), 0);
        for (queued, answered) in [(5, 2), (10, 55), (0, 65)] {
            delay.begin(queued, answered, &mut begun);
            assert!(!delay.holds(1));
        }
        assert_eq!(begun, 0);
        delay.begin(10, 54, &mut begun);
        assert!(delay.holds(49));
    }

    #[test]
    fn after_a_delay_in_vain_more_and_more_entries_do_not_wait() {
        let (mut delay, mut begun) = (BatchDelay::default(), 0);
        let mut without = |delay: &mut BatchDelay| {
            let before = begun;
            let entries = (0..).take_while(|_| {
                delay.begin(0, 8, &mut begun);
                begun == before
            });
            entries.count()
        };
        let counts: Vec<usize> = (0..10)
            .map(|_| {
                let count = without(&mut delay);
                delay.time_over();
                count
            })
            .collect();
        assert_eq!(counts, [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]);
        assert_eq!(without(&mut delay), 255);
        assert!(!delay.holds(6));
        delay.enough();
        assert_eq!(without(&mut delay), 0, "a delay that was not in vain");
    }

    #[test]
    fn a_delay_that_began_after_the_timer_is_not_over_with_it() {
        let (mut delay, mut begun) = (BatchDelay::default(), 4);
        delay.begin(0, 8, &mut begun);
        assert!(!delay.is_among(4));
        assert!(delay.is_among(5));
        delay.cancel();
        assert!(!delay.holds(1));
    }
}
