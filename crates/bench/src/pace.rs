//! Decides when requests are sent, and when a run ends.
//!
//! A closed loop sends when an answer has arrived; an open loop sends by the clock. In an open loop
//! every request has a due time, fixed at the beginning, and its latency counts from there even if
//! it had to wait for its connection. So a server that stops for a second affects all requests of
//! that second, not only one (this avoids coordinated omission).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The requests that all connections together may still send.
#[derive(Debug)]
pub(crate) struct Budget {
    requests: Option<AtomicU64>,
    end: Option<Instant>,
    stopped: AtomicBool,
}

impl Budget {
    /// A budget of so many requests, or without a number until `end` or [`Budget::stop`].
    pub fn new(requests: Option<u64>, end: Option<Instant>) -> Budget {
        Budget { requests: requests.map(AtomicU64::new), end, stopped: AtomicBool::new(false) }
    }

    /// Ends the budget before it is spent.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self, now: Instant) -> bool {
        self.stopped.load(Ordering::Relaxed)
            || self.end.is_some_and(|end| now >= end)
            || self.requests.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }

    /// Takes one request from the budget; whether that was possible.
    pub fn take(&self, now: Instant) -> bool {
        if self.stopped.load(Ordering::Relaxed) || self.end.is_some_and(|end| now >= end) {
            return false;
        }
        let one_less = |left: u64| left.checked_sub(1);
        self.requests
            .as_ref()
            .is_none_or(|left| left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok())
    }

    /// When the budget ends, if a time was set.
    pub fn end(&self) -> Option<Instant> {
        self.end
    }
}

/// State that all connections of a pass share.
#[derive(Debug)]
pub(crate) struct PassState {
    /// The requests that may still be sent.
    pub budget: Budget,
    answers: AtomicU64,
}

impl PassState {
    pub fn new(budget: Budget) -> PassState {
        PassState { budget, answers: AtomicU64::new(0) }
    }

    /// Counts further answers.
    pub fn answered(&self, answers: u64) {
        self.answers.fetch_add(answers, Ordering::Relaxed);
    }

    /// Number of answers so far.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }
}

/// The due times of one connection's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    start: Instant,
    per_second: u64,
    next: u64,
    step: u64,
}

impl Schedule {
    /// Every `of`-th request from the `index`-th on, of `per_second` evenly spaced ones.
    pub fn new(start: Instant, per_second: u64, index: u64, of: u64) -> Schedule {
        Schedule { start, per_second, next: index, step: of }
    }

    /// When the next request is due.
    pub fn due(&self) -> Instant {
        let nanos = u128::from(self.next) * 1_000_000_000 / u128::from(self.per_second);
        self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Records that the next request was sent.
    pub fn advance(&mut self) {
        self.next += self.step;
    }

    /// Number of requests that are due before `end` and were not sent.
    pub fn missed(mut self, end: Instant) -> u64 {
        let mut missed = 0;
        while self.due() < end {
            self.advance();
            missed += 1;
        }
        missed
    }
}

/// A timer with a precision of some microseconds: the runtime's own timers round up to a
/// millisecond, which would be most of the measured latency.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: AsyncFd<OwnedFd>,
    set_for: Option<Instant>,
}

impl Alarm {
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types that may give out another descriptor; an OwnedFd does not"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Alarm { timer, set_for: None })
    }

    /// Sets the timer, unless it is already set to that moment.
    pub fn set(&mut self, at: Instant, now: Instant) -> io::Result<()> {
        if self.set_for == Some(at) {
            return Ok(());
        }
        // A time of zero would disarm it.
        let wait = at.saturating_duration_since(now).max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: never, it_value: value };
        rustix::time::timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &setting)?;
        self.set_for = Some(at);
        Ok(())
    }

    /// Waits until it expires.
    pub async fn wait(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            let mut count = [0; 8];
            match ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut count)?)) {
                Ok(read) => {
                    read?;
                    self.set_for = None;
                    return Ok(());
                }
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_of_requests_is_spent_once() {
        let budget = Budget::new(Some(3), None);
        let now = Instant::now();
        assert!(!budget.is_over(now));
        assert_eq!([(); 5].map(|()| budget.take(now)), [true, true, true, false, false]);
        assert!(budget.is_over(now));
    }

    #[test]
    fn a_budget_of_time_ends_at_its_end() {
        let now = Instant::now();
        let budget = Budget::new(None, Some(now + Duration::from_secs(1)));
        assert!(budget.take(now) && !budget.is_over(now));
        assert!(!budget.take(now + Duration::from_secs(1)) && budget.is_over(now + Duration::from_secs(1)));
        budget.stop();
        assert!(!budget.take(now) && budget.is_over(now));
    }

    #[test]
    fn schedules_of_all_connections_make_up_one_even_row() {
        let start = Instant::now();
        let mut due = vec![];
        for index in 0..3 {
            let mut schedule = Schedule::new(start, 1000, index, 3);
            for _ in 0..4 {
                due.push(schedule.due().duration_since(start).as_millis());
                schedule.advance();
            }
        }
        due.sort_unstable();
        assert_eq!(due, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_due_and_not_sent_is_counted() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 100, 0, 1);
        assert_eq!(schedule.missed(start + Duration::from_secs(1)), 100);
        schedule.advance();
        assert_eq!(schedule.missed(start + Duration::from_secs(1)), 99);
        assert_eq!(schedule.missed(start), 0);
    }
}
