//! Actions of operators during the faults: hosts join, vote, are drained and leave.
//!
//! Owns operator actions as data and how they are drawn from a seed. Operators retry an action
//! until it is answered. That the cluster settles afterwards is checked in
//! [`inspection`](crate::world::inspection).

use std::fmt;

use tidelock_core::command::HostChange;
use tidelock_core::control::registry::version::HOLD_TAG;
use tidelock_core::types::{NodeId, ShardId};

use crate::event_queue::Micros;
use crate::faults::choose;

/// An operator action and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledAction {
    /// When it is first tried, from the start of the run.
    pub at: Micros,
    /// What the operator tries, until it succeeds.
    pub operator_action: OperatorAction,
}

/// An action of an operator on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// A new host joins; the cluster gives it its number.
    Join,
    /// The wanted role of a host changes. The host may not exist.
    Change {
        /// The host to change.
        node: NodeId,
        /// The role or state that it should have.
        change: HostChange,
    },
    /// A shard gets a placement policy, or loses one.
    Tag {
        /// The shard whose tags change.
        shard: ShardId,
        /// The name of the policy's tag.
        name: &'static str,
        /// The new value; `None` removes the policy.
        value: Option<&'static str>,
    },
    /// The cluster's default placement changes, or a cluster without one gets one.
    Default {
        /// The name of the policy's tag.
        name: &'static str,
        /// The new value; `None` removes the policy.
        value: Option<&'static str>,
    },
    /// A host moves to another zone: it restarts with another tag.
    Move {
        /// The host that moves.
        node: NodeId,
        /// One of [`ZONES`].
        zone: &'static str,
    },
    /// The cluster gets another data shard.
    AddShard,
    /// A shard is removed if it owns no slots. The shard may not exist.
    RemoveShard(ShardId),
    /// All data shards get equally many slots.
    Rebalance,
    /// A shard gets these slots. The shard may not exist.
    MoveSlots {
        /// The first slot to move.
        begin: u16,
        /// One past the last slot to move.
        end: u16,
        /// The receiver of the slots.
        to: ShardId,
    },
    /// The leadership of a shard is transferred.
    Transfer {
        /// The shard whose leadership is transferred.
        shard: ShardId,
        /// The node that leads it afterwards.
        to: NodeId,
    },
}

impl fmt::Display for ScheduledAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.at, self.operator_action)
    }
}

/// Most hosts that join in one run.
const JOINS_MAX: u64 = 3;

/// Most hosts that join in one run besides those, where the default placement changes.
const DEFAULT_JOINS_MAX: u64 = 2;

/// Most shards that are added in one run, not counting retries.
const SHARDS_ADDED_MAX: u64 = 2;

/// Attempts to remove each shard: it may own slots at first.
const REMOVALS_TRIED: usize = 3;

/// The zones that hosts are in. Placement policies vary over them.
pub const ZONES: [&str; 3] = ["a", "b", "c"];

/// Policies that shards get and lose.
const POLICIES: [(&str, Option<&str>); 12] = [
    ("placement:member", Some("1")),
    ("placement:member", Some("2")),
    ("placement:member", Some("3")),
    ("placement:member", Some("3;zone=a")),
    ("placement:member", Some("2;zone=b")),
    ("placement:member", None),
    ("placement:vary", Some("zone")),
    ("placement:vary", None),
    ("placement:cover", Some("zone=c")),
    ("placement:cover", None),
    ("placement:replica:r", Some("1")),
    ("placement:replica:r", None),
];

/// Draws the actions of operators in a cluster that is upgraded: they set the default placement
/// again and again, and some hold the version for a while or for good.
pub fn draw_upgrade(until: Micros, random: &mut fastrand::Rng) -> Vec<ScheduledAction> {
    let mut actions = Vec::new();
    let mut add =
        |at: u64, operator_action| actions.push(ScheduledAction { at: Micros(at), operator_action });
    for _ in 0..random.usize(4..=12) {
        let (name, value) = *choose(random, &DEFAULTS);
        add(random.u64(0..until.0), OperatorAction::Default { name, value });
    }
    if random.u8(0..3) == 0 {
        let held = random.u64(0..until.0);
        let hold = |value| OperatorAction::Tag { shard: ShardId::PRIME, name: HOLD_TAG, value };
        add(held, hold(Some("yes")));
        if random.u8(0..4) > 0 {
            add(random.u64(held..until.0), hold(None));
        }
    }
    actions
}

/// Draws the actions of operators in a cluster of so many founders. Many runs have none.
pub fn draw(
    founders: u64,
    data_shards: u64,
    until: Micros,
    random: &mut fastrand::Rng,
) -> Vec<ScheduledAction> {
    let count = *choose(random, &[0, 0, 0, 2, 4, 8, 16]);
    let mut times: Vec<u64> = (0..count).map(|_| random.u64(0..until.0)).collect();
    times.sort_unstable();
    let mut hosts = founders;
    let operator_action = |at: u64| {
        let node = NodeId(random.u64(1..=hosts));
        let operator_action = match random.u8(0..14) {
            10..=12 => {
                let (name, value) = *choose(random, &POLICIES);
                OperatorAction::Tag { shard: ShardId(random.u64(0..=data_shards)), name, value }
            }
            13 => OperatorAction::Move { node, zone: ZONES[random.usize(0..ZONES.len())] },
            0..=2 if hosts < founders + JOINS_MAX => {
                hosts += 1;
                OperatorAction::Join
            }
            // The newest hosts, so that it is often one that joined.
            3..=4 => OperatorAction::Change { node: NodeId(hosts), change: HostChange::Vote },
            5 => OperatorAction::Change { node, change: HostChange::Vote },
            6 => OperatorAction::Change { node, change: HostChange::Follow },
            7 => OperatorAction::Change { node, change: HostChange::Drain(random.bool()) },
            8 => OperatorAction::Transfer { shard: ShardId(random.u64(0..=data_shards)), to: node },
            _ => OperatorAction::Change { node, change: HostChange::Leave },
        };
        ScheduledAction { at: Micros(at), operator_action }
    };
    times.into_iter().map(operator_action).collect()
}

/// Policies that the default of a cluster gets and loses.
const DEFAULTS: [(&str, Option<&str>); 8] = [
    ("placement:member", Some("1")),
    ("placement:member", Some("3")),
    ("placement:member", Some("3")),
    ("placement:member", Some("5")),
    ("placement:vary", Some("zone")),
    ("placement:vary", None),
    ("placement:cover", Some("zone=b")),
    ("placement:cover", None),
];

/// Draws changes of the default placement, and hosts that join: they get votes by themselves. Half
/// of the runs have none.
pub fn draw_defaults(founders: u64, until: Micros, random: &mut fastrand::Rng) -> Vec<ScheduledAction> {
    let count = *choose(random, &[0, 0, 1, 2, 4]);
    let mut times: Vec<u64> = (0..count).map(|_| random.u64(0..until.0)).collect();
    times.sort_unstable();
    let mut joins = 0;
    let operator_action = |at: u64| {
        let operator_action = if random.u8(0..3) == 0 && joins < DEFAULT_JOINS_MAX && founders < 7 {
            joins += 1;
            OperatorAction::Join
        } else {
            let (name, value) = *choose(random, &DEFAULTS);
            OperatorAction::Default { name, value }
        };
        ScheduledAction { at: Micros(at), operator_action }
    };
    times.into_iter().map(operator_action).collect()
}

/// Draws slot moves and added shards. Most runs have some.
pub fn draw_moves(data_shards: u64, until: Micros, random: &mut fastrand::Rng) -> Vec<ScheduledAction> {
    let count = *choose(random, &[0, 1, 2, 4, 8]);
    let mut shards = data_shards;
    let mut times: Vec<u64> = (0..count).map(|_| random.u64(0..until.0)).collect();
    times.sort_unstable();
    let operator_action = |at: u64| {
        let operator_action = match random.u8(0..8) {
            0..=1 if shards < data_shards + SHARDS_ADDED_MAX => {
                shards += 1;
                OperatorAction::AddShard
            }
            0..=3 => OperatorAction::Rebalance,
            _ => {
                let begin = if random.bool() { 0 } else { random.u16(..16_000) };
                let end = if random.bool() { 16_384 } else { random.u16(begin + 1..16_384) };
                OperatorAction::MoveSlots { begin, end, to: ShardId(random.u64(1..=shards)) }
            }
        };
        ScheduledAction { at: Micros(at), operator_action }
    };
    times.into_iter().map(operator_action).collect()
}

/// Draws how shards are removed: in some runs one shard gets all slots, and each other one is
/// removed as soon as it owns none. Which shards exist then, and which own slots, differs from run
/// to run.
pub fn draw_removals(data_shards: u64, until: Micros, random: &mut fastrand::Rng) -> Vec<ScheduledAction> {
    if random.u8(0..3) > 0 {
        return Vec::new();
    }
    let keeper = ShardId(random.u64(1..=data_shards));
    let begin = random.u64(0..until.0);
    let emptied = OperatorAction::MoveSlots { begin: 0, end: 16_384, to: keeper };
    let mut operator_actions = vec![ScheduledAction { at: Micros(begin), operator_action: emptied }];
    let others = (1..=data_shards + SHARDS_ADDED_MAX).map(ShardId).filter(|shard| *shard != keeper);
    for shard in others.flat_map(|shard| [shard; REMOVALS_TRIED]) {
        let at = Micros(random.u64(begin..begin + until.0 / 2));
        operator_actions.push(ScheduledAction { at, operator_action: OperatorAction::RemoveShard(shard) });
    }
    operator_actions
}

/// Whether slots may move.
pub fn moves(operator_actions: &[ScheduledAction]) -> bool {
    let is_move = |operator_action: &OperatorAction| {
        matches!(operator_action, OperatorAction::Rebalance | OperatorAction::MoveSlots { .. })
    };
    operator_actions.iter().any(|scheduled| is_move(&scheduled.operator_action))
}

/// Whether the replicas of a shard may change.
pub fn changes_members(operator_actions: &[ScheduledAction]) -> bool {
    let changes = |operator_action: &OperatorAction| {
        matches!(
            operator_action,
            OperatorAction::Join
                | OperatorAction::Change { .. }
                | OperatorAction::Tag { .. }
                | OperatorAction::Default { .. }
                | OperatorAction::Move { .. }
        )
    };
    operator_actions.iter().any(|scheduled| changes(&scheduled.operator_action))
}

/// How many hosts join.
pub fn joins(operator_actions: &[ScheduledAction]) -> u64 {
    operator_actions.iter().filter(|scheduled| scheduled.operator_action == OperatorAction::Join).count()
        as u64
}
