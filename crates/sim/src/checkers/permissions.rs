//! No request of a principal is served that the permissions at its place in the log forbade.
//!
//! It sees which permissions each process has applied after each of its turns, and when. A request
//! that was served must have been allowed at some time between its answer and the staleness bound
//! before it was made, by the ticks of the process that was asked. And if a write was served while
//! one other node led its shard throughout, that node's own permissions must have allowed it.
//!
//! A founder that has never applied a permission cannot know that there are any, and is not judged
//! until it had time to confirm them. A node that joins is judged from its first turn on.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock_core::auth::{Access, Caller};
use tidelock_core::command::Request;
use tidelock_core::types::{LogIndex, NodeId, ShardId, Ticks, Token};

use super::Violation;
use crate::history::Incarnation;

/// What is known of permissions, and the open requests of principals.
#[derive(Debug)]
pub struct Permissions {
    stale_ticks: u64,
    /// All states that a process has had after a turn, by their revision.
    states: BTreeMap<LogIndex, Arc<Access>>,
    /// The newest state of any process at each tick of a process, from its first.
    newest: BTreeMap<Incarnation, Vec<LogIndex>>,
    /// Number of founders, the nodes with the lowest numbers.
    founders: u64,
    /// Which process of each node was the first that had applied a permission, and when.
    informed: BTreeMap<NodeId, (Incarnation, Ticks)>,
    /// What each node has applied.
    applied: BTreeMap<NodeId, LogIndex>,
    /// The node that was last seen to lead a shard, and since which observation.
    leaders: BTreeMap<ShardId, (NodeId, u64)>,
    observations: u64,
    open: BTreeMap<Token, OpenRequest>,
}

/// An open request.
#[derive(Debug)]
struct OpenRequest {
    caller: Caller,
    request: Request,
    node: NodeId,
    /// The oldest state that the node may have had when it was asked.
    oldest: LogIndex,
    shard: Option<ShardId>,
    /// What each node had applied.
    applied: BTreeMap<NodeId, LogIndex>,
    observations: u64,
}

/// A request of a principal that enters a process.
#[derive(Debug)]
pub struct Entering {
    /// Identifies the request.
    pub token: Token,
    /// Who makes it.
    pub caller: Caller,
    /// What is asked.
    pub request: Request,
    /// The process that is asked.
    pub at: Incarnation,
    /// The time of that process.
    pub ticks: Ticks,
    /// The shard that it writes, if it writes one.
    pub shard: Option<ShardId>,
}

impl Permissions {
    /// A checker for nodes that trust unconfirmed permissions for so long.
    pub fn new(stale_ticks: u64, founders: u64) -> Permissions {
        Permissions {
            stale_ticks,
            founders,
            informed: BTreeMap::new(),
            // Without any permission.
            states: BTreeMap::from([(LogIndex(0), Arc::default())]),
            newest: BTreeMap::new(),
            applied: BTreeMap::new(),
            leaders: BTreeMap::new(),
            observations: 0,
            open: BTreeMap::new(),
        }
    }

    /// A process has these permissions after a turn, and leads these shards.
    pub fn observe(
        &mut self,
        (at, ticks): (Incarnation, Ticks),
        access: &Arc<Access>,
        leads: impl Iterator<Item = ShardId>,
    ) {
        self.observations += 1;
        self.applied.insert(at.node, access.revision());
        if access.revision() > LogIndex(0) {
            self.informed.entry(at.node).or_insert((at, ticks));
        }
        self.states.entry(access.revision()).or_insert_with(|| access.clone());
        let newest = self.newest_state();
        let of_ticks = self.newest.entry(at).or_default();
        if of_ticks.len() < ticks.0 as usize {
            of_ticks.resize(ticks.0 as usize, newest);
        }
        for shard in leads {
            let (leader, since) = self.leaders.entry(shard).or_insert((at.node, self.observations));
            if *leader != at.node {
                (*leader, *since) = (at.node, self.observations);
            }
        }
    }

    fn newest_state(&self) -> LogIndex {
        self.states.last_key_value().map_or(LogIndex(0), |(revision, _)| *revision)
    }

    /// A principal asks a node.
    pub fn asked(&mut self, entering: Entering) {
        let Entering { token, caller, request, at, ticks, shard } = entering;
        // One tick more: the node may handle the request after its next tick, and confirms its
        // permissions between two ticks.
        let tick = ticks.0.saturating_sub(self.stale_ticks + 2) as usize;
        // A process confirms its permissions after its start.
        let of_ticks = self.newest.get(&at).and_then(|of_ticks| of_ticks.get(tick).copied());
        let is_judged = at.node.0 > self.founders
            || self
                .informed
                .get(&at.node)
                .is_some_and(|&(first, since)| first != at || ticks.0 > since.0 + self.stale_ticks + 2);
        let oldest = if is_judged { of_ticks.unwrap_or(self.newest_state()) } else { LogIndex(0) };
        let (applied, observations) = (self.applied.clone(), self.observations);
        let asked = OpenRequest { caller, request, node: at.node, oldest, shard, applied, observations };
        self.open.insert(token, asked);
    }

    /// A request of a principal was answered. `None` if it is not one of a principal; otherwise
    /// whether it was served.
    ///
    /// # Errors
    /// When it was served and no state that the nodes may have known allowed it.
    pub fn answered(&mut self, token: Token, is_served: bool) -> Result<Option<bool>, Violation> {
        let Some(asked) = self.open.remove(&token) else { return Ok(None) };
        if !is_served {
            return Ok(Some(false));
        }
        let OpenRequest { caller, request, node, oldest, .. } = &asked;
        if !self.some_allows(*oldest, &asked) {
            return violation(format!(
                "operation {token} of {caller:?} was served at node {node} and was not allowed since {oldest}: {request:?}"
            ));
        }
        if let Some((leader, &(_, since))) =
            asked.shard.and_then(|shard| self.leaders.get(&shard)).map(|entry| (entry.0, entry))
            && leader != *node
            && since <= asked.observations
        {
            let applied = asked.applied.get(&leader).copied().unwrap_or(LogIndex(0));
            if !self.some_allows(applied, &asked) {
                return violation(format!(
                    "operation {token} of {caller:?} was forwarded by node {node} and served by node {leader}, whose \
                     permissions did not allow it since {applied}: {request:?}"
                ));
            }
        }
        Ok(Some(true))
    }

    fn some_allows(&self, oldest: LogIndex, asked: &OpenRequest) -> bool {
        let allows = |access: &Arc<Access>| {
            !access.is_required()
                || asked.request.demands().iter().all(|demand| access.covers(&asked.caller, demand, None))
        };
        self.states.range(oldest..).any(|(_, access)| allows(access))
    }
}

fn violation<T>(text: String) -> Result<T, Violation> {
    Err(Violation::new("permissions", text))
}
