//! Log lines about the cluster as this node sees it: shards without a leader, silent peers, clocks.
//!
//! Owns what lasts, and what many shards have in common. It compares the node's status with the
//! previous one, several times per election timeout. Each single change of a leader is logged by
//! `consensus_log`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidelock_core::command::{DivisionBlocker, HotSlotMove, LeadershipTransfer, VoteExchange};
use tidelock_core::event::{NodeStatus, PeerClock, ShardStatus, SlowRequest};
use tidelock_core::limits::SILENT_ELECTION_TIMEOUTS;
use tidelock_core::types::{NodeId, ShardId, Term, Ticks};

/// If more shards than this change their leader between two checks, one line counts them. A failed
/// node may take hundreds of leaderships with it.
const SHARDS_NAMED_MAX: usize = 8;

/// A shard without a leader is logged after this many election timeouts. An election with one split
/// vote is over by then.
const LEADERLESS_ELECTION_TIMEOUTS: u32 = 3;

/// Minimum time between two lines about a division that is held back.
const HELD_BACK_INTERVAL: Duration = Duration::from_secs(3_600);

/// Minimum time between two lines about slow requests.
const SLOW_INTERVAL: Duration = Duration::from_secs(1);

/// A change of the node's status that becomes a line of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Many shards changed their leader between two checks.
    LeadersChanged {
        shards: usize,
        gained: usize,
        lost: usize,
        leads: usize,
    },
    /// These shards have had no known leader for `elapsed`.
    Leaderless {
        shards: Vec<ShardId>,
        elapsed: Duration,
    },
    /// These shards have leaders again.
    LedAgain {
        shards: Vec<ShardId>,
        elapsed: Duration,
    },
    /// A peer has sent nothing for a while, although it is connected.
    Silent {
        peer: NodeId,
        elapsed: Duration,
    },
    /// The peer sends again.
    AnswersAgain {
        peer: NodeId,
        elapsed: Duration,
    },
    /// A peer's clock differs too much from this node's.
    ClockApart(PeerClock),
    /// The peer's clock agrees again.
    ClockAgrees(PeerClock),
    /// Another data shard is wanted, and transactions that span slots hold it back.
    DivisionHeldBack {
        shards: u64,
        wanted: u64,
        transactions: u64,
    },
    /// This node, which leads the registry, has asked for a transfer of leadership.
    LeadershipTransferAsked(LeadershipTransfer),
    HotSlotMovePlanned(HotSlotMove),
    VoteExchangePlanned(VoteExchange),
}

/// Compares successive statuses of a node.
#[derive(Debug)]
pub struct StatusLog {
    election_timeout: Duration,
    shards: BTreeMap<ShardId, ObservedShard>,
    silent: BTreeMap<NodeId, Instant>,
    apart: Vec<NodeId>,
    /// When a division that is held back was last logged.
    held_back: Option<Instant>,
    /// When this node last asked for a transfer of leadership.
    leadership_asked: Option<Ticks>,
    slot_move_planned: Option<Ticks>,
    vote_exchange_planned: Option<Ticks>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ObservedShard {
    leads: bool,
    /// The last known leader, and its term.
    leader: Option<(NodeId, Term)>,
    leaderless_since: Option<Instant>,
    /// Whether the missing leader was logged.
    is_logged: bool,
}

impl StatusLog {
    /// A log that has seen no status yet.
    pub fn new(election_timeout: Duration) -> StatusLog {
        StatusLog {
            election_timeout,
            shards: BTreeMap::new(),
            silent: BTreeMap::new(),
            apart: Vec::new(),
            held_back: None,
            leadership_asked: None,
            slot_move_planned: None,
            vote_exchange_planned: None,
        }
    }

    /// Returns what changed since the last check.
    pub fn look(&mut self, status: &NodeStatus, now: Instant) -> Vec<Change> {
        let mut changes = Vec::from_iter(self.look_at_leaders(status));
        changes.extend(self.look_for_leaderless(status, now));
        changes.extend(self.look_at_peers(status, now));
        changes.extend(self.look_at_clocks(status));
        changes.extend(self.look_at_division(status, now));
        changes.extend(self.look_at_balance(status));
        changes.extend(self.look_at_slot_moves(status));
        changes.extend(self.look_at_vote_exchanges(status));
        changes
    }

    fn look_at_leaders(&mut self, status: &NodeStatus) -> Option<Change> {
        let (mut shards, mut gained, mut lost) = (0, 0, 0);
        self.shards.retain(|shard, _| status.shards.iter().any(|carried| carried.shard == *shard));
        for &ShardStatus { shard, term, leads, leader, .. } in &status.shards {
            let seen = self.shards.entry(shard).or_default();
            let led = leader.map(|leader| (leader, term));
            let is_news = led.is_some() && led != seen.leader;
            shards += usize::from(is_news || seen.leads != leads);
            gained += usize::from(leads && (is_news || !seen.leads));
            lost += usize::from(seen.leads && !leads);
            seen.leads = leads;
            seen.leader = led.or(seen.leader);
        }
        let leads = status.shards.iter().filter(|shard| shard.leads).count();
        (shards > SHARDS_NAMED_MAX).then_some(Change::LeadersChanged { shards, gained, lost, leads })
    }

    fn look_for_leaderless(&mut self, status: &NodeStatus, now: Instant) -> Vec<Change> {
        let leaderless_max = self.election_timeout * LEADERLESS_ELECTION_TIMEOUTS;
        let (mut lost, mut back) = (Vec::new(), Vec::new());
        let (mut lost_for, mut back_after) = (Duration::ZERO, Duration::ZERO);
        for shard in &status.shards {
            let seen = self.shards.entry(shard.shard).or_default();
            if shard.leader.is_some() {
                let since = seen.leaderless_since.take();
                if let (true, Some(since)) = (std::mem::take(&mut seen.is_logged), since) {
                    back_after = back_after.max(now.saturating_duration_since(since));
                    back.push(shard.shard);
                }
                continue;
            }
            let elapsed = now.saturating_duration_since(*seen.leaderless_since.get_or_insert(now));
            if elapsed > self.election_timeout && !seen.is_logged {
                lost_for = lost_for.max(elapsed);
                lost.push(shard.shard);
            }
        }
        // A lost majority leaves one shard after the other without a leader, within about an
        // election timeout. Once the first has waited long enough, it is logged together with the
        // others.
        if lost_for <= leaderless_max {
            lost.clear();
        }
        for shard in &lost {
            self.shards.entry(*shard).or_default().is_logged = true;
        }
        let lost = (!lost.is_empty()).then_some(Change::Leaderless { shards: lost, elapsed: lost_for });
        let back = (!back.is_empty()).then_some(Change::LedAgain { shards: back, elapsed: back_after });
        lost.into_iter().chain(back).collect()
    }

    fn look_at_peers(&mut self, status: &NodeStatus, now: Instant) -> Vec<Change> {
        let noticed_after = self.election_timeout * SILENT_ELECTION_TIMEOUTS as u32;
        let mut changes = Vec::new();
        for &peer in &status.silent {
            self.silent.entry(peer).or_insert_with(|| {
                changes.push(Change::Silent { peer, elapsed: noticed_after });
                now
            });
        }
        let answers = |peer: &NodeId| status.links.iter().any(|(node, up)| node == peer && *up);
        self.silent.retain(|&peer, since| {
            let is_silent = status.silent.contains(&peer);
            if !is_silent && answers(&peer) {
                let elapsed = noticed_after + now.saturating_duration_since(*since);
                changes.push(Change::AnswersAgain { peer, elapsed });
            }
            // If its connection broke instead, the transport has logged that.
            is_silent
        });
        changes
    }

    fn look_at_clocks(&mut self, status: &NodeStatus) -> Vec<Change> {
        let mut changes = Vec::new();
        for &clock in &status.clocks {
            let known = self.apart.iter().position(|node| *node == clock.node);
            match (clock.is_beyond_limit(), known) {
                (true, None) => {
                    self.apart.push(clock.node);
                    changes.push(Change::ClockApart(clock));
                }
                (false, Some(position)) => {
                    self.apart.swap_remove(position);
                    changes.push(Change::ClockAgrees(clock));
                }
                _ => {}
            }
        }
        changes
    }

    fn look_at_division(&mut self, status: &NodeStatus, now: Instant) -> Option<Change> {
        let view = status.division.as_ref()?;
        let Some(DivisionBlocker::Spanning(transactions)) = view.blocker else { return None };
        let is_logged = |at: Instant| now.saturating_duration_since(at) < HELD_BACK_INTERVAL;
        if self.held_back.is_some_and(is_logged) {
            return None;
        }
        self.held_back = Some(now);
        Some(Change::DivisionHeldBack { shards: view.shards, wanted: view.wanted, transactions })
    }

    fn look_at_balance(&mut self, status: &NodeStatus) -> Option<Change> {
        let (at, asked) = status.leadership_asked?;
        let is_news = self.leadership_asked.replace(at) != Some(at);
        is_news.then_some(Change::LeadershipTransferAsked(asked))
    }

    fn look_at_slot_moves(&mut self, status: &NodeStatus) -> Option<Change> {
        let (at, planned) = status.slot_move_planned.as_ref()?;
        let is_news = self.slot_move_planned.replace(*at) != Some(*at);
        is_news.then(|| Change::HotSlotMovePlanned(planned.clone()))
    }

    fn look_at_vote_exchanges(&mut self, status: &NodeStatus) -> Option<Change> {
        let (at, planned) = status.vote_exchange_planned?;
        let is_news = self.vote_exchange_planned.replace(at) != Some(at);
        is_news.then_some(Change::VoteExchangePlanned(planned))
    }
}

impl Change {
    pub fn log(&self) {
        match self {
            Change::LeadersChanged { shards, gained, lost, leads } => {
                tracing::info!(shards, gained, lost, leads, "many shards have new leaders");
            }
            Change::Leaderless { shards, elapsed } => {
                tracing::error!(
                    shards = names(shards),
                    elapsed_ms = elapsed.as_millis() as u64,
                    "no leader is known: writes and linearizable reads of these shards wait and are then refused; start the nodes \
                     that are down, or mend the network between them"
                );
            }
            Change::LedAgain { shards, elapsed } => {
                tracing::info!(
                    shards = names(shards),
                    elapsed_ms = elapsed.as_millis() as u64,
                    "these shards have leaders again"
                );
            }
            Change::DivisionHeldBack { shards, wanted, transactions } => {
                tracing::warn!(
                    shards,
                    wanted,
                    transactions,
                    "another data shard is wanted, and not added: transactions of the last hour span slots that a division would \
                     part, and would fail then; give their keys a common hash tag, or divide all the same with `tidelock cluster \
                     add-shard` and `tidelock cluster rebalance`"
                );
            }
            Change::LeadershipTransferAsked(asked) => log_leadership_transfer(asked),
            Change::HotSlotMovePlanned(planned) => log_slot_move(planned),
            Change::VoteExchangePlanned(planned) => log_vote_exchange(planned),
            Change::Silent { peer, elapsed } => {
                tracing::warn!(
                    peer = peer.0,
                    elapsed_ms = elapsed.as_millis() as u64,
                    "the peer is connected and sends nothing: this node goes on without it; look whether its process is stopped, \
                     swapping or starved"
                );
            }
            Change::AnswersAgain { peer, elapsed } => {
                tracing::info!(
                    peer = peer.0,
                    elapsed_ms = elapsed.as_millis() as u64,
                    "the peer answers again"
                );
            }
            Change::ClockApart(PeerClock { node, ahead_ms, error_ms }) => {
                tracing::warn!(
                    peer = node.0,
                    ahead_ms,
                    error_ms,
                    "the peer's clock and this node's are too far apart: keys may expire early or late when leaders change; check \
                     that NTP runs on both"
                );
            }
            Change::ClockAgrees(PeerClock { node, ahead_ms, error_ms }) => {
                tracing::info!(
                    peer = node.0,
                    ahead_ms,
                    error_ms,
                    "the peer's clock agrees with this node's again"
                );
            }
        }
    }
}

fn log_leadership_transfer(asked: &LeadershipTransfer) {
    let LeadershipTransfer { shard, from, to, .. } = asked;
    tracing::info!(
        %shard, %from, %to, reason = %asked,
        "a leadership is about to be transferred, so that all nodes lead for about equally many requests"
    );
}

fn log_slot_move(planned: &HotSlotMove) {
    let HotSlotMove { from, to, slots, .. } = planned;
    tracing::info!(
        %from, %to, slots = slots.count(), reason = %planned,
        "hot slots are about to move from a busy shard to another one"
    );
}

fn log_vote_exchange(planned: &VoteExchange) {
    let VoteExchange { from, given, to, returned, .. } = planned;
    tracing::info!(
        %from, %given, %to, returned = returned.map(|shard| shard.0), reason = %planned,
        "nodes are about to exchange votes, so that both vote in about equally busy shards"
    );
}

/// The first of some shards, and how many more there are.
fn names(shards: &[ShardId]) -> String {
    let first: Vec<String> = shards.iter().take(SHARDS_NAMED_MAX).map(ToString::to_string).collect();
    let first = first.join(",");
    match shards.len().saturating_sub(SHARDS_NAMED_MAX) {
        0 => first,
        others => format!("{first} and {others} more"),
    }
}

/// Log lines about slow requests, limited in rate.
#[derive(Debug)]
pub struct SlowRequestLog {
    tick: Duration,
    state: RefCell<SlowState>,
}

#[derive(Debug, Default)]
struct SlowState {
    logged: Option<Instant>,
    /// Slow requests since then that were not logged.
    others: u64,
}

impl SlowRequestLog {
    /// For a core with ticks of this length.
    pub fn new(tick: Duration) -> SlowRequestLog {
        SlowRequestLog { tick, state: RefCell::default() }
    }

    /// Logs the slowest of these requests, unless a line was written a moment ago.
    pub fn log(&self, requests: impl Iterator<Item = SlowRequest>, now: Instant) {
        let Some((request, others)) = self.pick(requests, now) else { return };
        let elapsed_ms = (self.tick * u32::try_from(request.waited.0).unwrap_or(u32::MAX)).as_millis() as u64;
        tracing::warn!(
            kind = request.kind,
            shard = request.shard.map(|shard| shard.0),
            peer = request.peer.map(|peer| peer.0),
            elapsed_ms,
            refusal = request.refusal.map(|refusal| refusal.to_string()),
            others,
            "slow request"
        );
    }

    /// The request to log now, if a line is due, and how many others were slow since the last line.
    fn pick(&self, requests: impl Iterator<Item = SlowRequest>, now: Instant) -> Option<(SlowRequest, u64)> {
        let mut state = self.state.borrow_mut();
        let mut slowest: Option<SlowRequest> = None;
        for request in requests {
            state.others += 1;
            if slowest.as_ref().is_none_or(|slowest| request.waited > slowest.waited) {
                slowest = Some(request);
            }
        }
        let is_due = state.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= SLOW_INTERVAL);
        let slowest = slowest.filter(|_| is_due)?;
        state.logged = Some(now);
        Some((slowest, std::mem::take(&mut state.others) - 1))
    }
}

#[cfg(test)]
mod tests {
    use tidelock_core::command::LeaderLoad;
    use tidelock_core::slots::slot_set::SlotSet;
    use tidelock_core::types::{LogIndex, MigrationId, ReplicaId};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(1_000);

    fn shard(shard: u64, leader: Option<u64>, term: u64) -> ShardStatus {
        ShardStatus {
            shard: ShardId(shard),
            replica: ReplicaId(1),
            leader: leader.map(NodeId),
            leads: leader == Some(1),
            is_term_durable: true,
            term: Term(term),
            committed: LogIndex(1),
            applied: LogIndex(1),
            last: LogIndex(1),
            log_begin: LogIndex(0),
            keys: 0,
            log_bytes: 0,
            votes: true,
            snapshot: None,
            snapshot_bytes: 0,
            makes_snapshot: false,
            last_move: MigrationId(0),
            is_moving: false,
            slots: None,
            diverged: false,
            checkpoint: None,
        }
    }

    /// Passes statuses to a log, each at a number of milliseconds after the start.
    fn changes(looks: Vec<(u64, NodeStatus)>) -> Vec<Vec<Change>> {
        let (begun, mut log) = (Instant::now(), StatusLog::new(TIMEOUT));
        looks.into_iter().map(|(ms, status)| log.look(&status, begun + Duration::from_millis(ms))).collect()
    }

    fn shards(shards: Vec<ShardStatus>) -> NodeStatus {
        NodeStatus { node: NodeId(1), shards, ..NodeStatus::default() }
    }

    #[test]
    fn many_shards_that_change_at_once_are_one_line() {
        let all = |leader, term| shards((0..100).map(|number| shard(number, leader, term)).collect());
        let seen = changes(vec![(0, all(Some(1), 1)), (100, all(None, 1)), (3_200, all(None, 1))]);
        let changed = |gained, lost, leads| Change::LeadersChanged { shards: 100, gained, lost, leads };
        let few = changes(vec![(0, shards((0..8).map(|number| shard(number, Some(1), 1)).collect()))]);
        assert_eq!(few, [vec![]], "each has a line in the log of consensus");
        assert_eq!(seen[0], [changed(100, 0, 100)]);
        assert_eq!(seen[1], [changed(0, 100, 0)]);
        let [Change::Leaderless { shards, .. }] = &seen[2][..] else { panic!("{seen:?}") };
        assert_eq!(names(shards), "0,1,2,3,4,5,6,7 and 92 more");
    }

    #[test]
    fn a_lost_majority_is_told_once_and_so_is_its_end() {
        let without = |ms| (ms, shards(vec![shard(1, None, 3)]));
        let seen = changes(vec![
            (0, shards(vec![shard(1, Some(2), 2)])),
            without(100),
            without(3_100),
            without(3_101),
            without(9_000),
            (10_100, shards(vec![shard(1, Some(2), 4)])),
        ]);
        let shards = vec![ShardId(1)];
        let elapsed = Duration::from_millis(3_001);
        assert_eq!(seen[1..3], [vec![], vec![]]);
        assert_eq!(seen[3], [Change::Leaderless { shards: shards.clone(), elapsed }]);
        assert_eq!(seen[4], []);
        let again = Change::LedAgain { shards, elapsed: Duration::from_secs(10) };
        assert!(seen[5].contains(&again), "{seen:?}");
    }

    #[test]
    fn silent_peers_are_told_once_and_when_they_answer() {
        let status = |silent: &[u64], up| NodeStatus {
            links: vec![(NodeId(2), up)],
            silent: silent.iter().copied().map(NodeId).collect(),
            ..NodeStatus::default()
        };
        let (peer, elapsed) = (NodeId(2), Duration::from_secs(2));
        let seen = changes(vec![
            (0, status(&[], true)),
            (100, status(&[2], false)),
            (200, status(&[2], false)),
            (5_100, status(&[], true)),
            (6_000, status(&[2], false)),
            (6_100, status(&[], false)),
        ]);
        assert_eq!(seen[1], [Change::Silent { peer, elapsed }]);
        assert_eq!(seen[2], []);
        assert_eq!(seen[3], [Change::AnswersAgain { peer, elapsed: Duration::from_secs(7) }]);
        assert_eq!(seen[5], [], "its connection broke, which the transport tells");
    }

    #[test]
    fn clocks_apart_are_told_once_and_when_they_agree() {
        let status = |ahead_ms, error_ms| NodeStatus {
            clocks: vec![PeerClock { node: NodeId(2), ahead_ms, error_ms }],
            ..NodeStatus::default()
        };
        let looks = [(500, 0), (900, 500), (-60_000, 1), (-60_000, 1), (3, 1)];
        let seen = changes(looks.map(|(ahead, error)| (0, status(ahead, error))).to_vec());
        let clock = |ahead_ms| PeerClock { node: NodeId(2), ahead_ms, error_ms: 1 };
        assert_eq!(seen[..2], [vec![], vec![]], "it is not certain");
        assert_eq!(
            seen[2..],
            [vec![Change::ClockApart(clock(-60_000))], vec![], vec![Change::ClockAgrees(clock(3))]]
        );
    }

    #[test]
    fn a_transfer_of_leadership_is_told_when_it_is_asked_for() {
        let load = |leads, requests| LeaderLoad { leads, requests };
        let asked = |at| NodeStatus {
            leadership_asked: Some((
                Ticks(at),
                LeadershipTransfer {
                    shard: ShardId(1),
                    from: NodeId(1),
                    from_load: load(3, 900),
                    to: NodeId(2),
                    to_load: load(1, 0),
                },
            )),
            ..NodeStatus::default()
        };
        let looks = [NodeStatus::default(), asked(100), asked(100), asked(1_300)];
        let seen = changes(looks.map(|status| (0, status)).to_vec());
        assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 0, 1], "{seen:?}");
    }

    #[test]
    fn moves_of_hot_slots_and_exchanges_of_votes_are_told_when_they_are_planned() {
        let planned = |at| NodeStatus {
            slot_move_planned: Some((
                Ticks(at),
                HotSlotMove {
                    from: ShardId(1),
                    from_operations: 9_000,
                    to: ShardId(2),
                    to_operations: 0,
                    slots: SlotSet::from(0..64),
                    operations: 4_000,
                },
            )),
            vote_exchange_planned: Some((
                Ticks(at),
                VoteExchange {
                    from: NodeId(1),
                    from_requests: 9_000,
                    given: ShardId(1),
                    to: NodeId(2),
                    to_requests: 0,
                    returned: None,
                },
            )),
            ..NodeStatus::default()
        };
        let looks = [NodeStatus::default(), planned(100), planned(100), planned(1_300)];
        let seen = changes(looks.map(|status| (0, status)).to_vec());
        assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [0, 2, 0, 2], "{seen:?}");
    }

    #[test]
    fn slow_requests_get_a_line_a_second() {
        let log = SlowRequestLog::new(Duration::from_millis(50));
        let begun = Instant::now();
        let request = |waited| SlowRequest {
            kind: "write",
            shard: Some(ShardId(1)),
            peer: None,
            waited: Ticks(waited),
            refusal: None,
        };
        let pick = |waited: &[u64], ms| {
            let picked = log.pick(waited.iter().copied().map(request), begun + Duration::from_millis(ms));
            picked.map(|(request, others)| (request.waited.0, others))
        };
        assert_eq!(pick(&[21, 50, 30], 0), Some((50, 2)));
        assert_eq!(pick(&[40, 41], 999), None);
        assert_eq!(pick(&[22], 1_000), Some((22, 2)));
        assert_eq!(pick(&[], 5_000), None);
    }
}
