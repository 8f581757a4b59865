//! Operators, which retry their actions until each is answered.

use std::collections::BTreeMap;

use tidelock_core::command::{
    HostInfo, Refusal, RegistryWrite, Reply, Request, ShardTags, Write, WriteReply,
};
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::types::{NodeId, Token};
use uuid::Uuid;

use super::World;
use super::options::{host_info, tags};
use crate::addressing;
use crate::checkers::Violation;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::{CrashKind, choose};
use crate::operator_actions::OperatorAction;

/// An operator without an answer tries again after this long.
const TRY_AGAIN_AFTER: Micros = Micros(3_000_000);

/// Operator actions in progress.
#[derive(Debug, Default)]
pub struct Operators {
    asked: BTreeMap<Token, usize>,
    done: Vec<bool>,
}

impl Operators {
    /// Creates it without actions in progress.
    pub fn new(operator_actions: usize) -> Operators {
        Operators { asked: BTreeMap::new(), done: vec![false; operator_actions] }
    }
}

impl World<'_> {
    /// Tries an operator action, unless it is done. Once the cluster heals, only joins are still
    /// tried.
    pub(crate) fn try_operator_action(&mut self, index: usize) {
        let operator_action = self.plan.operator_actions[index].operator_action;
        if self.operators.done[index] || !(self.is_loaded || operator_action == OperatorAction::Join) {
            return;
        }
        self.event_queue.after(TRY_AGAIN_AFTER, SimEvent::OperatorAction(index));
        let up: Vec<NodeId> = self.hosts.iter().filter(|host| host.is_up()).map(|host| host.node()).collect();
        if up.is_empty() {
            return;
        }
        let asked = *choose(&mut self.pace, &up);
        let request = match operator_action {
            OperatorAction::Join => {
                Request::Write(Write::from(RegistryWrite::JoinHost(self.candidate(index))))
            }
            OperatorAction::Change { node, change } => {
                Request::Write(Write::from(RegistryWrite::ChangeHost { node, change }))
            }
            OperatorAction::Tag { shard, name, value } => {
                let tags = vec![(name.to_owned(), value.map(str::to_owned))];
                Request::Write(Write::from(RegistryWrite::TagShard(ShardTags { shard, tags })))
            }
            OperatorAction::Default { name, value } => {
                let tags = vec![(name.to_owned(), value.map(str::to_owned))];
                Request::Write(Write::from(RegistryWrite::SetDefault { tags }))
            }
            OperatorAction::Move { node, zone } => return self.move_host(index, node, zone),
            OperatorAction::AddShard => {
                Request::Write(Write::from(RegistryWrite::AddShard { name: None, tags: BTreeMap::new() }))
            }
            OperatorAction::RemoveShard(shard) => {
                Request::Write(Write::from(RegistryWrite::RemoveShard { shard }))
            }
            OperatorAction::Rebalance => Request::Write(Write::from(RegistryWrite::Rebalance)),
            OperatorAction::MoveSlots { begin, end, to } => {
                let slots = SlotSet::from(begin..end);
                Request::Write(Write::from(RegistryWrite::MoveSlots { slots, to }))
            }
            OperatorAction::Transfer { shard, to } => Request::Transfer { shard, to },
        };
        let token = self.ask(asked, request, false);
        self.operators.asked.insert(token, index);
    }

    /// A host is stopped, and started with another tag.
    fn move_host(&mut self, index: usize, node: NodeId, zone: &str) {
        self.operators.done[index] = true;
        let (is_up, is_running) = (self.host(node).is_up(), self.host(node).is_running());
        if is_up && !is_running {
            // A paused process cannot be stopped; it keeps its zone.
            return;
        }
        for (name, value) in tags(zone) {
            self.host(node).retag(&name, &value);
        }
        if is_running {
            self.crash(node, CrashKind::Process);
            self.event_queue.after(TRY_AGAIN_AFTER, SimEvent::Started(node));
        }
    }

    /// Handles the reply to an operator.
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
            Reply::Write(WriteReply::Joined { node, replica }) => {
                let member = self.host(asked).known_cluster();
                self.addressing.add_name(addressing::name_of_candidate(index), node);
                let info = HostInfo { uuid: self.candidate(index).uuid, ..host_info(node) };
                self.host(node).found(info, replica, &member);
                self.tally.joined += 1;
                self.start_host(node)
            }
            _ => Ok(()),
        }
    }

    /// Whether every host that was joining has joined.
    pub(crate) fn all_have_joined(&self) -> bool {
        let operator_actions = self.plan.operator_actions.iter().zip(&self.operators.done);
        operator_actions
            .into_iter()
            .all(|(scheduled, done)| *done || scheduled.operator_action != OperatorAction::Join)
    }

    /// What a host that joins tells about itself before it knows its number.
    fn candidate(&self, index: usize) -> HostInfo {
        let peer_address = addressing::name_of_candidate(index);
        HostInfo { uuid: Uuid::from_u128(1_000 + index as u128), peer_address, ..host_info(NodeId(0)) }
    }
}
