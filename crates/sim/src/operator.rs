//! What operators do while everything goes wrong: hosts join, vote, are drained and leave.
//!
//! Owns the deeds as data, how they are drawn from a seed, and their being asked again until they are answered: an
//! operator tries again. What a deed comes to is the cluster's business; that it settles is looked at in
//! [`inspection`](crate::inspection).

use std::collections::BTreeMap;
use std::fmt;

use tidelock_core::command::{HostChange, HostInfo, Refusal, Reply, Request, ShardTags, Write};
use tidelock_core::control::slot_set::SlotSet;
use tidelock_core::types::{NodeId, ShardId, Token};
use uuid::Uuid;

use crate::agenda::{Happening, Micros};
use crate::checkers::Violation;
use crate::faults::{Loss, choose};
use crate::world::{World, host_info};

/// A deed and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledDeed {
    /// When it is first tried, from the start of the run.
    pub at: Micros,
    /// What it is.
    pub deed: Deed,
}

/// What an operator can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A new host joins; the cluster gives it its number.
    Join,
    /// Something else is wanted of a host, which there may not be.
    Change {
        /// Which host.
        node: NodeId,
        /// What is wanted.
        change: HostChange,
    },
    /// A shard gets a placement policy, or loses one.
    Tag {
        /// Which shard.
        shard: ShardId,
        /// Which policy.
        name: &'static str,
        /// What it says from now on.
        value: Option<&'static str>,
    },
    /// A host moves to another zone: it restarts with another tag.
    Move {
        /// Which host.
        node: NodeId,
        /// Where it is from now on.
        zone: &'static str,
    },
    /// The cluster gets another data shard.
    AddShard,
    /// A shard, which there may not be, is removed if it owns no slots.
    RemoveShard(ShardId),
    /// All data shards shall hold as many slots.
    Rebalance,
    /// A shard, which there may not be, shall hold these slots.
    MoveSlots {
        /// The first.
        begin: u16,
        /// Behind the last.
        end: u16,
        /// Who shall hold them.
        to: ShardId,
    },
    /// Another node shall lead a shard.
    Transfer {
        /// Which shard.
        shard: ShardId,
        /// Who shall lead it.
        to: NodeId,
    },
}

impl fmt::Display for ScheduledDeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.at, self.deed)
    }
}

/// Most hosts that join in one run.
const JOINS_MAX: u64 = 3;

/// Most shards that are added in one run, unless it is asked again.
const SHARDS_ADDED_MAX: u64 = 2;

/// Times that each shard is asked to be removed: it may own slots at first.
const REMOVALS_TRIED: usize = 3;

/// An operator who heard nothing tries again after so long.
const TRY_AGAIN_AFTER: Micros = Micros(3_000_000);

/// Zones that hosts are in.
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

/// Draws what operators do in a cluster of so many founders. In many runs they do nothing.
pub fn draw(
    founders: u64,
    data_shards: u64,
    until: Micros,
    random: &mut fastrand::Rng,
) -> Vec<ScheduledDeed> {
    let count = *choose(random, &[0, 0, 0, 2, 4, 8, 16]);
    let mut times: Vec<u64> = (0..count).map(|_| random.u64(0..until.0)).collect();
    times.sort_unstable();
    let mut hosts = founders;
    let deed = |at: u64| {
        let node = NodeId(random.u64(1..=hosts));
        let deed = match random.u8(0..14) {
            10..=12 => {
                let (name, value) = *choose(random, &POLICIES);
                Deed::Tag { shard: ShardId(random.u64(0..=data_shards)), name, value }
            }
            13 => Deed::Move { node, zone: ZONES[random.usize(0..ZONES.len())] },
            0..=2 if hosts < founders + JOINS_MAX => {
                hosts += 1;
                Deed::Join
            }
            // The newest ones, so that it is often a host that joined.
            3..=4 => Deed::Change { node: NodeId(hosts), change: HostChange::Vote },
            5 => Deed::Change { node, change: HostChange::Vote },
            6 => Deed::Change { node, change: HostChange::Follow },
            7 => Deed::Change { node, change: HostChange::Drain(random.bool()) },
            8 => Deed::Transfer { shard: ShardId(random.u64(0..=data_shards)), to: node },
            _ => Deed::Change { node, change: HostChange::Leave },
        };
        ScheduledDeed { at: Micros(at), deed }
    };
    times.into_iter().map(deed).collect()
}

/// Draws how slots move, and which shards come. In most runs some do.
pub fn draw_moves(data_shards: u64, until: Micros, random: &mut fastrand::Rng) -> Vec<ScheduledDeed> {
    let count = *choose(random, &[0, 1, 2, 4, 8]);
    let mut shards = data_shards;
    let mut times: Vec<u64> = (0..count).map(|_| random.u64(0..until.0)).collect();
    times.sort_unstable();
    let deed = |at: u64| {
        let deed = match random.u8(0..8) {
            0..=1 if shards < data_shards + SHARDS_ADDED_MAX => {
                shards += 1;
                Deed::AddShard
            }
            0..=3 => Deed::Rebalance,
            _ => {
                let begin = if random.bool() { 0 } else { random.u16(..16_000) };
                let end = if random.bool() { 16_384 } else { random.u16(begin + 1..16_384) };
                Deed::MoveSlots { begin, end, to: ShardId(random.u64(1..=shards)) }
            }
        };
        ScheduledDeed { at: Micros(at), deed }
    };
    times.into_iter().map(deed).collect()
}

/// Draws how shards are removed: in some runs one shard is to own all slots, and each other one is removed as soon as it
/// owns none. Which ones there are then, and which own slots, differs from run to run.
pub fn draw_removals(data_shards: u64, until: Micros, random: &mut fastrand::Rng) -> Vec<ScheduledDeed> {
    if random.u8(0..3) > 0 {
        return Vec::new();
    }
    let keeper = ShardId(random.u64(1..=data_shards));
    let begin = random.u64(0..until.0);
    let emptied = Deed::MoveSlots { begin: 0, end: 16_384, to: keeper };
    let mut deeds = vec![ScheduledDeed { at: Micros(begin), deed: emptied }];
    let others = (1..=data_shards + SHARDS_ADDED_MAX).map(ShardId).filter(|shard| *shard != keeper);
    for shard in others.flat_map(|shard| [shard; REMOVALS_TRIED]) {
        let at = Micros(random.u64(begin..begin + until.0 / 2));
        deeds.push(ScheduledDeed { at, deed: Deed::RemoveShard(shard) });
    }
    deeds
}

/// Whether slots may move.
pub fn moves(deeds: &[ScheduledDeed]) -> bool {
    let is_move = |deed: &Deed| matches!(deed, Deed::Rebalance | Deed::MoveSlots { .. });
    deeds.iter().any(|scheduled| is_move(&scheduled.deed))
}

/// Whether the replicas of a shard may change.
pub fn changes_members(deeds: &[ScheduledDeed]) -> bool {
    let changes =
        |deed: &Deed| matches!(deed, Deed::Join | Deed::Change { .. } | Deed::Tag { .. } | Deed::Move { .. });
    deeds.iter().any(|scheduled| changes(&scheduled.deed))
}

/// How many hosts join.
pub fn joins(deeds: &[ScheduledDeed]) -> u64 {
    deeds.iter().filter(|scheduled| scheduled.deed == Deed::Join).count() as u64
}

/// Deeds under way.
#[derive(Debug, Default)]
pub struct Operators {
    asked: BTreeMap<Token, usize>,
    done: Vec<bool>,
}

impl Operators {
    /// Nothing was tried yet.
    pub fn new(deeds: usize) -> Operators {
        Operators { asked: BTreeMap::new(), done: vec![false; deeds] }
    }
}

impl World<'_> {
    /// An operator tries a deed, unless it is done. Once the cluster heals, only hosts that were about to join go on.
    pub(crate) fn try_deed(&mut self, index: usize) {
        let deed = self.plan.deeds[index].deed;
        if self.operators.done[index] || !(self.is_loaded || deed == Deed::Join) {
            return;
        }
        self.agenda.after(TRY_AGAIN_AFTER, Happening::Deed(index));
        let up: Vec<NodeId> = self.hosts.iter().filter(|host| host.is_up()).map(|host| host.node()).collect();
        if up.is_empty() {
            return;
        }
        let asked = *choose(&mut self.pace, &up);
        let request = match deed {
            Deed::Join => Request::Write(Write::JoinHost(self.candidate(index, NodeId(0)))),
            Deed::Change { node, change } => Request::Write(Write::ChangeHost { node, change }),
            Deed::Tag { shard, name, value } => {
                let tags = vec![(name.to_owned(), value.map(str::to_owned))];
                Request::Write(Write::TagShard(ShardTags { shard, tags }))
            }
            Deed::Move { node, zone } => return self.move_host(index, node, zone),
            Deed::AddShard => Request::Write(Write::AddShard { name: None, tags: BTreeMap::new() }),
            Deed::RemoveShard(shard) => Request::Write(Write::RemoveShard { shard }),
            Deed::Rebalance => Request::Write(Write::Rebalance),
            Deed::MoveSlots { begin, end, to } => {
                let slots = SlotSet::from(begin..end);
                Request::Write(Write::MoveSlots { slots, to })
            }
            Deed::Transfer { shard, to } => Request::Transfer { shard, to },
        };
        let token = self.ask(asked, request, false);
        self.operators.asked.insert(token, index);
    }

    /// A host is stopped, and started with another tag.
    fn move_host(&mut self, index: usize, node: NodeId, zone: &str) {
        self.operators.done[index] = true;
        let (is_up, is_running) = (self.host(node).is_up(), self.host(node).is_running());
        if is_up && !is_running {
            // Nobody can stop a process that is held; it stays where it is.
            return;
        }
        self.host(node).retag("zone", zone);
        if is_running {
            self.crash(node, Loss::Process);
            self.agenda.after(TRY_AGAIN_AFTER, Happening::Started(node));
        }
    }

    /// The reply to an operator.
    pub(crate) fn operator_hears(
        &mut self,
        asked: NodeId,
        token: Token,
        reply: &Reply,
    ) -> Result<(), Violation> {
        let Some(index) = self.operators.asked.remove(&token) else { return Ok(()) };
        let is_open = matches!(reply, Reply::Refused(refusal) if !matches!(refusal, Refusal::Invalid(_)));
        if is_open || std::mem::replace(&mut self.operators.done[index], true) {
            return Ok(());
        }
        match *reply {
            Reply::Joined { node, replica } => {
                let hosts = self.host(asked).peers();
                let info = self.candidate(index, node);
                self.host(node).found(info, replica, hosts);
                self.joined += 1;
                self.start_host(node)
            }
            _ => Ok(()),
        }
    }

    /// Whether every host that was about to join has.
    pub(crate) fn all_have_joined(&self) -> bool {
        let deeds = self.plan.deeds.iter().zip(&self.operators.done);
        deeds.into_iter().all(|(scheduled, done)| *done || scheduled.deed != Deed::Join)
    }

    fn candidate(&self, index: usize, node: NodeId) -> HostInfo {
        HostInfo { uuid: Uuid::from_u128(1_000 + index as u128), ..host_info(node) }
    }
}
