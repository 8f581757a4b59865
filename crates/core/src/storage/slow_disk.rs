//! Detection of a slow disk: one operation on the log has been in progress for longer than a bound.
//!
//! The thread that waits for the disk cannot report this while it hangs. So the shell compares the
//! thread's operation counter with its value at the previous tick. Time is counted in ticks of the
//! shell. A suspended process misses its ticks, and so does not mistake its own pause for a slow
//! disk. The simulator runs the same code.

/// Detector of a slow disk, called at each tick.
#[derive(Clone, Debug)]
pub struct SlowDiskDetector {
    bound_ticks: u64,
    /// The last argument of [`SlowDiskDetector::tick`].
    transitions: u64,
    /// Ticks during which the current operation was seen.
    age_ticks: u64,
    slow: Option<Slow>,
}

/// A period in which the disk is slow.
#[derive(Clone, Copy, Debug)]
struct Slow {
    /// Ticks since an operation was last seen to take more than half of the bound.
    calm_ticks: u64,
    /// The transition count at that time.
    calm_since: u64,
}

/// Two transitions make a complete operation; one more ends the slow operation.
const TRANSITIONS_OF_RECOVERY: u64 = 3;

impl SlowDiskDetector {
    /// A detector of operations that take more than `bound_ticks`.
    pub fn new(bound_ticks: u64) -> SlowDiskDetector {
        SlowDiskDetector { bound_ticks, transitions: 0, age_ticks: 0, slow: None }
    }

    /// Checks the disk. `transitions` counts beginnings and ends of operations, so it is odd during
    /// an operation. Returns whether the disk is slow.
    ///
    /// The disk stops being slow when no operation has taken more than half of the bound for as
    /// long as the bound, and at least one complete operation was seen. So the shell must probe a
    /// slow disk that is otherwise idle.
    pub fn tick(&mut self, transitions: u64) -> bool {
        let is_busy = transitions % 2 == 1;
        let is_same = transitions == self.transitions;
        self.age_ticks = if is_busy && is_same { self.age_ticks + 1 } else { 0 };
        self.transitions = transitions;
        match &mut self.slow {
            None if self.age_ticks >= self.bound_ticks => {
                self.slow = Some(Slow { calm_ticks: 0, calm_since: transitions });
            }
            None => {}
            Some(slow) if 2 * self.age_ticks > self.bound_ticks => {
                *slow = Slow { calm_ticks: 0, calm_since: transitions };
            }
            Some(slow) => {
                slow.calm_ticks += 1;
                let has_worked = transitions >= slow.calm_since + TRANSITIONS_OF_RECOVERY;
                if slow.calm_ticks >= self.bound_ticks && has_worked {
                    self.slow = None;
                }
            }
        }
        self.slow.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `tick` with the same counter `ticks` times. Returns the last result.
    fn look(detector: &mut SlowDiskDetector, transitions: u64, ticks: u64) -> bool {
        (0..ticks).map(|_| detector.tick(transitions)).last().expect("at least one look")
    }

    #[test]
    fn an_operation_is_slow_when_it_outlasts_the_bound() {
        let mut detector = SlowDiskDetector::new(10);
        assert!(!look(&mut detector, 0, 100), "an idle disk is not slow");
        assert!(!look(&mut detector, 1, 10), "the first look may come right after the operation began");
        assert!(look(&mut detector, 1, 1));
    }

    #[test]
    fn many_short_operations_are_not_a_long_one() {
        let mut detector = SlowDiskDetector::new(10);
        assert!((0..1000).all(|operation| !look(&mut detector, 2 * operation + 1, 5)));
    }

    #[test]
    fn a_slow_disk_recovers_when_operations_were_fast_for_as_long_as_the_bound() {
        let mut detector = SlowDiskDetector::new(10);
        assert!(look(&mut detector, 1, 11));
        assert!(look(&mut detector, 2, 100), "that nothing is under way shows nothing");
        assert!(look(&mut detector, 3, 5) && !look(&mut detector, 4, 1), "one operation shows it");
    }

    #[test]
    fn a_disk_on_which_every_operation_is_slow_stays_slow() {
        let mut detector = SlowDiskDetector::new(10);
        assert!(look(&mut detector, 1, 11));
        for operation in 1..20 {
            assert!(look(&mut detector, 2 * operation, 5), "operation {operation}");
            assert!(look(&mut detector, 2 * operation + 1, 7), "operation {operation}");
        }
        assert!(look(&mut detector, 41, 3), "one fast operation is not enough");
        assert!(look(&mut detector, 42, 5));
        assert!(!look(&mut detector, 44, 5));
    }
}
