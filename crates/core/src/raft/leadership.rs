//! Whether a replica leads, and what a leader remembers until its leadership changes.
//!
//! Invariant: what one leadership has found or proposed does not survive it. The next leader may
//! have changed the membership, and a proposal may be lost with the leadership.

use crate::limits;
use crate::types::{LogIndex, Term, Ticks, UnixMillis};

/// The leadership of a replica.
#[derive(Default)]
pub(super) struct Leadership {
    leads: bool,
    /// [`Registry::changed`](crate::control::registry::Registry::changed) of the registry to which
    /// the membership conforms.
    settled_at: Option<LogIndex>,
    /// When the removal of overdue keys was proposed; `None` once it was applied.
    expiry_proposed: Option<Ticks>,
    /// Since when it leads, by its clock.
    led_since: Option<LedSince>,
}

/// Since when a replica leads, by its clock.
#[derive(Clone, Copy)]
struct LedSince {
    term: Term,
    since: UnixMillis,
    /// What the clock showed when it was last looked at, and when that was.
    shown: (UnixMillis, Ticks),
}

/// What a clock shows, and the ticks that have passed.
#[derive(Clone, Copy)]
pub(super) struct ClockReading {
    pub shown: UnixMillis,
    pub at: Ticks,
    /// Milliseconds of a tick.
    pub tick_ms: u64,
}

impl Leadership {
    /// Whether the replica leads.
    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    /// Records that a leadership began or ended, on this or another replica. Returns whether this
    /// replica led before.
    pub(super) fn change(&mut self, leads: bool) -> bool {
        core::mem::replace(self, Leadership { leads, ..Leadership::default() }).leads
    }

    /// Whether this replica leads and its membership is not known to conform to the registry after
    /// its change at `changed`.
    pub(super) fn is_unsettled(&self, changed: LogIndex) -> bool {
        self.leads && self.settled_at != Some(changed)
    }

    /// Records that the membership conforms to the registry after its change at `changed`.
    pub(super) fn settle(&mut self, changed: LogIndex) {
        self.settled_at = Some(changed);
    }

    /// Records that the membership has changed.
    pub(super) fn membership_changed(&mut self) {
        self.settled_at = None;
    }

    /// Since when this replica leads in `term`, by its clock, which must be read once a tick. It
    /// begins anew when the clock was set: forward, because leases would end at once although they
    /// have not lasted; back, because none would end until the clock shows that time again.
    pub(super) fn led_since(&mut self, term: Term, clock: ClockReading) -> UnixMillis {
        let steady = self.led_since.filter(|led| led.term == term && led.is_steady(clock));
        let since = steady.map_or(clock.shown, |led| led.since);
        self.led_since = Some(LedSince { term, since, shown: (clock.shown, clock.at) });
        since
    }

    /// Whether [`Leadership::led_since`] has this value in `term`.
    pub(super) fn leads_since(&self, term: Term, since: UnixMillis) -> bool {
        self.led_since.is_some_and(|led| led.term == term && led.since == since)
    }

    /// Whether the removal of overdue keys may be proposed: the last proposal was applied, or is
    /// taken for lost because it is older than `timeout_ticks`.
    pub(super) fn may_propose_expiry(&self, now: Ticks, timeout_ticks: u64) -> bool {
        self.expiry_proposed.is_none_or(|proposed| now.0 >= proposed.0 + timeout_ticks)
    }

    /// Records that the removal of overdue keys is being proposed.
    pub(super) fn expiry_proposed(&mut self, now: Ticks) {
        self.expiry_proposed = Some(now);
    }

    /// Records that a removal of overdue keys was applied.
    pub(super) fn expiry_applied(&mut self) {
        self.expiry_proposed = None;
    }
}

impl LedSince {
    /// Whether the clock has only advanced with the time.
    fn is_steady(&self, clock: ClockReading) -> bool {
        let (shown, at) = self.shown;
        let passed_ms = clock.at.0.saturating_sub(at.0).saturating_mul(clock.tick_ms);
        let advanced_ms = clock.shown.0.saturating_sub(shown.0);
        self.since <= clock.shown && advanced_ms <= passed_ms.saturating_add(limits::CLOCK_STEP_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::super::group::ProposeError;
    use super::*;
    use crate::command::{LeaseExpiry, LeaseTag, LeaseWrite, Write};
    use crate::peer::{LinkNumber, Origin, RequestId};
    use crate::storage::RecoveredLog;
    use crate::types::{NodeId, ShardId};
    use crate::version::ClusterVersion;

    #[test]
    fn a_new_leadership_remembers_nothing_of_the_last_one() {
        let mut leadership = Leadership::default();
        assert!(!leadership.is_unsettled(LogIndex(7)), "only a leader settles the membership");
        assert!(!leadership.change(true), "it did not lead before");
        assert!(leadership.is_unsettled(LogIndex(7)));
        leadership.settle(LogIndex(7));
        leadership.expiry_proposed(Ticks(1));
        assert!(!leadership.is_unsettled(LogIndex(7)) && leadership.is_unsettled(LogIndex(8)));
        assert!(!leadership.may_propose_expiry(Ticks(20), 20));
        assert!(leadership.change(true), "it led before, in an earlier term");
        assert!(leadership.is_unsettled(LogIndex(7)) && leadership.may_propose_expiry(Ticks(2), 20));
    }

    #[test]
    fn a_leader_leads_since_its_clock_was_first_read_in_its_term() {
        let mut leadership = Leadership::default();
        leadership.change(true);
        let since = |leadership: &mut Leadership, term, shown, at| {
            let clock = ClockReading { shown: UnixMillis(shown), at: Ticks(at), tick_ms: 25 };
            leadership.led_since(Term(term), clock).0
        };
        assert_eq!(since(&mut leadership, 3, 5_000, 1), 5_000);
        assert_eq!(since(&mut leadership, 3, 5_030, 2), 5_000);
        assert_eq!(since(&mut leadership, 3, 6_530, 62), 5_000, "1.5 s have passed");
        assert_eq!(since(&mut leadership, 3, 7_555, 63), 5_000, "it is a second ahead");
        assert_eq!(since(&mut leadership, 3, 8_581, 64), 8_581, "it was set forward");
        assert_eq!(since(&mut leadership, 3, 8_606, 65), 8_581);
        assert_eq!(since(&mut leadership, 3, 8_500, 66), 8_500, "it was set back");
        assert_eq!(since(&mut leadership, 3, 8_525, 67), 8_500);
        assert_eq!(since(&mut leadership, 4, 8_550, 68), 8_550, "another replica may have led in between");
        leadership.change(false);
        leadership.change(true);
        assert_eq!(since(&mut leadership, 4, 8_575, 69), 8_575);
    }

    /// A leader that lost its leadership before it proposed the ends of leases sends them on, as
    /// any write.
    #[test]
    fn leases_end_only_by_the_leader_that_has_led_for_them() {
        let shard = ShardId(1);
        let mut group = fixture::group(shard, RecoveredLog::default());
        group.raft.raft.become_candidate();
        group.raft.raft.become_leader();
        assert_eq!(group.expiries(UnixMillis(100), true), None);
        let mut propose = |link, since| {
            let origin = Origin { node: NodeId(1), link: LinkNumber(link), request: RequestId(1) };
            let leases = Some(LeaseExpiry { led_since: UnixMillis(since), shortens: true });
            group.propose(&Write::Expire { shard, now: UnixMillis(9_000), limit: 1, leases }, origin, None)
        };
        assert_eq!(propose(0, 100), Ok(()));
        for (link, since) in [(0, 99), (1, 100)] {
            assert!(matches!(propose(link, since), Err(ProposeError::Refused(_))), "{link} {since}");
        }
    }

    #[test]
    fn leases_of_a_clock_that_was_ahead_are_shortened_if_the_cluster_version_allows_it() {
        let shard = ShardId(1);
        let mut group = fixture::group(shard, RecoveredLog::default());
        let (tag, at) = (LeaseTag::new(b"t").expect("a tag"), UnixMillis(90_000));
        let grant = Write::from(LeaseWrite::Grant { tag, ttl_ms: 5_000, at });
        group.applied.machine_mut().apply(LogIndex(1), grant).expect("granted");
        group.raft.raft.become_candidate();
        group.raft.raft.become_leader();
        let now = UnixMillis(9_000);
        assert_eq!(group.expiries(now, false), None, "it ends when this clock shows 95 s");
        let leases = Some(LeaseExpiry { led_since: now, shortens: true });
        let expire = Write::Expire { shard, now, limit: limits::EXPIRED_KEYS_MAX, leases };
        assert_eq!(expire.needed_version(), ClusterVersion::WITH_SHORTENED_LEASES);
        assert_eq!(group.expiries(now, true), Some((expire, 1)));
    }

    #[test]
    fn a_removal_of_keys_is_proposed_again_when_it_was_applied_or_is_lost() {
        let mut leadership = Leadership::default();
        leadership.change(true);
        leadership.expiry_proposed(Ticks(5));
        assert!(!leadership.may_propose_expiry(Ticks(24), 20));
        assert!(leadership.may_propose_expiry(Ticks(25), 20));
        leadership.expiry_applied();
        assert!(leadership.may_propose_expiry(Ticks(6), 20));
    }
}
