//! `/v1/cluster/hosts/…` and `/v1/cluster/shards/…`: changes of hosts and leaders by an operator.
//!
//! Owns the answers: 202 with the wanted state in the terms of `/v1/cluster`, or the registry's
//! refusal as a problem; and the progress of a change. The core owns the steps, and decides when a
//! change is done.

use serde::Serialize;
use tidelock_api::cluster::HostRole;
use tidelock_api::membership::{Progress, WantedOfHost, WantedOfShard};
use tidelock_core::command::{AdminAction, Denial, HostChange, RegistryWrite};
use tidelock_core::control::progress::Goal;
use tidelock_core::types::{NodeId, ShardId};

use super::audit;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use super::uri;
use crate::requests;
use crate::store::Store;

/// A requested change of a host. Only the cluster itself marks a host as gone, so there is no verb
/// for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostVerb {
    Add,
    Follow,
    Drain,
    Undrain,
    Remove,
}

impl HostVerb {
    fn change(self) -> HostChange {
        match self {
            HostVerb::Add => HostChange::Vote,
            HostVerb::Follow => HostChange::Follow,
            HostVerb::Drain => HostChange::Drain(true),
            HostVerb::Undrain => HostChange::Drain(false),
            HostVerb::Remove => HostChange::Leave,
        }
    }

    fn goal(self, node: NodeId) -> Goal {
        match self {
            HostVerb::Add => Goal::Votes(node),
            HostVerb::Follow => Goal::Follows(node),
            HostVerb::Drain => Goal::LeadsNothing(node),
            HostVerb::Undrain => Goal::MayLead(node),
            HostVerb::Remove => Goal::Gone(node),
        }
    }

    /// The answer: only what the verb determines. A host that is drained keeps its role.
    fn wanted(self, node: NodeId) -> WantedOfHost {
        let (standing, draining) = match self {
            HostVerb::Add => (Some(HostRole::Voter), Some(false)),
            HostVerb::Follow => (Some(HostRole::Learner), None),
            HostVerb::Drain => (None, Some(true)),
            HostVerb::Undrain => (None, Some(false)),
            HostVerb::Remove => (Some(HostRole::Leaving), None),
        };
        WantedOfHost { node: node.0, standing, draining }
    }
}

pub(super) async fn change_host<S: Store>(
    call: Call<'_, S>,
    raw_node: &str,
    verb: HostVerb,
) -> Result<Response, Problem> {
    let node = host("a host", raw_node)?;
    let write = RegistryWrite::ChangeHost { node, change: verb.change() };
    call.ask(requests::change_registry(write)).await?.map_err(denied)?;
    Ok(response::accepted(encode(&verb.wanted(node))))
}

/// The progress of a change of a host.
pub(super) async fn progress<S: Store>(
    call: Call<'_, S>,
    raw_node: &str,
    verb: HostVerb,
) -> Result<Response, Problem> {
    let node = host("a host", raw_node)?;
    progress_of(call, verb.goal(node)).await
}

/// The progress of a transfer of leadership.
pub(super) async fn transfer_progress<S: Store>(
    call: Call<'_, S>,
    raw_shard: &str,
) -> Result<Response, Problem> {
    let (shard, node) = transferred(&call, raw_shard)?;
    progress_of(call, Goal::Leads { shard, node }).await
}

async fn progress_of<S: Store>(call: Call<'_, S>, goal: Goal) -> Result<Response, Problem> {
    let view = call.ask(requests::cluster()).await?;
    let waiting_for = goal.missing(&view);
    Ok(response::json(encode(&Progress { done: waiting_for.is_empty(), waiting_for })))
}

/// The shard and the node of a transfer.
fn transferred<S: Store>(call: &Call<'_, S>, raw_shard: &str) -> Result<(ShardId, NodeId), Problem> {
    let to = call.parameters().get("to")?;
    let to = to.ok_or_else(|| Problem::invalid("to must name the node that should lead"))?;
    Ok((ShardId(number("a shard", raw_shard)?), host("the node to lead", to)?))
}

/// The number of a host. The progress of a change waits for hosts that the node does not know yet,
/// so a number that no host can have must be refused.
fn host(what: &str, digits: impl AsRef<[u8]>) -> Result<NodeId, Problem> {
    match number(what, digits)? {
        0 => Err(denied(Denial::UnknownHost)),
        node => Ok(NodeId(node)),
    }
}

pub(super) async fn transfer<S: Store>(call: Call<'_, S>, raw_shard: &str) -> Result<Response, Problem> {
    let (shard, to) = transferred(&call, raw_shard)?;
    audit::announce(&call, AdminAction::TransferLeadership { shard, to }).await?;
    call.ask(requests::transfer(shard, to)).await?;
    Ok(response::accepted(encode(&WantedOfShard { shard: shard.0, leader: to.0 })))
}

fn encode(wanted: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(wanted).expect("invariant: numbers, texts and flags are JSON")
}

pub(super) fn number(what: &str, digits: impl AsRef<[u8]>) -> Result<u64, Problem> {
    uri::parse_u64(digits.as_ref()).ok_or_else(|| Problem::invalid(format!("{what} is named by a number")))
}

pub(super) fn denied(denial: Denial) -> Problem {
    let kind = match denial {
        Denial::UnknownHost => ProblemKind::UnknownHost,
        Denial::HostRemoved | Denial::HostLeaves => ProblemKind::HostRemoved,
        Denial::LastVoter => ProblemKind::LastVoter,
        Denial::UnknownShard => ProblemKind::UnknownShard,
        Denial::ShardInUse => ProblemKind::ShardInUse,
        Denial::VersionTooLow | Denial::HostTooOld | Denial::VersionHeld => ProblemKind::ClusterVersion,
        Denial::UnknownRole | Denial::UnknownPrincipal | Denial::UnknownToken | Denial::UnknownAuthority => {
            ProblemKind::NotFound
        }
        Denial::RoleInUse => ProblemKind::RoleInUse,
        Denial::NoAdministrator | Denial::LastAdministrator => ProblemKind::LastAdministrator,
        Denial::BuiltInRole
        | Denial::TokenExists
        | Denial::CertificateNameTaken
        | Denial::TooManyRoles
        | Denial::TooManyPrincipals
        | Denial::TooManyTokens
        | Denial::NoAuthority
        | Denial::TooManyAuthorities
        | Denial::AuthoritySigns
        | Denial::AuthoritiesUnsettled
        | Denial::JoinTokenUnknown
        | Denial::JoinTokenExpired
        | Denial::JoinTokenUsed
        | Denial::HostIsMember => ProblemKind::InvalidRequest,
        Denial::TooManyMoves | Denial::SlotsMoving => ProblemKind::SlotsMoving,
        // The last two are denials of requests that only hosts and leaders send.
        Denial::InvalidPolicy | Denial::TooManyShards | Denial::NotLeaving | Denial::TooManyHosts => {
            ProblemKind::InvalidRequest
        }
    };
    Problem::new(kind, format!("{denial}; nothing was changed"))
}
