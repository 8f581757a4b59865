//! Requests of these machines to the node, and the replies to them.
//!
//! Owns how a machine reads the reply that it expects. Requests of one action are all submitted
//! before the first reply is awaited, and their replies come back together, in the same order.

use alloc::vec::Vec;

use crate::command::{ClusterView, NodeReply, Refusal, RegistryView, Reply, Request, WriteReply};
use crate::types::{LogIndex, ShardId};

/// The next action of a machine that does nothing but ask the node.
#[derive(Debug)]
pub enum NextAction<T> {
    /// Submit all of these to the node, then report all replies.
    Ask(Vec<Request>),
    /// The result. The machine has ended.
    Done(T),
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The node refuses the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The reply answers another request: a bug, which must not take the node down.
    #[error("the reply does not match the request")]
    Mismatched,
}

/// The view of the cluster in the only reply.
pub(super) fn cluster_view(replies: Vec<Reply>) -> Result<ClusterView, Unanswered> {
    match only(replies)? {
        Reply::Node(NodeReply::Cluster(view)) => Ok(*view),
        other => Err(mismatched(other)),
    }
}

/// The tables of the registry in the only reply.
pub(super) fn registry_view(replies: Vec<Reply>) -> Result<RegistryView, Unanswered> {
    match only(replies)? {
        Reply::Node(NodeReply::Registry(view)) => Ok(*view),
        other => Err(mismatched(other)),
    }
}

/// The snapshots in the only reply, to [`Request::SnapshotHere`].
///
/// # Errors
/// When the reply is a refusal, or answers another request.
pub fn snapshots_here(replies: Vec<Reply>) -> Result<Vec<(ShardId, LogIndex)>, Unanswered> {
    match only(replies)? {
        Reply::Node(NodeReply::Snapshots(snapshots)) => Ok(snapshots),
        other => Err(mismatched(other)),
    }
}

/// The index of the checkpoint that a reply reports.
pub(super) fn checkpointed(reply: Reply) -> Result<LogIndex, Unanswered> {
    match reply {
        Reply::Write(WriteReply::Checkpointed { index }) => Ok(index),
        other => Err(mismatched(other)),
    }
}

/// The reply to the only request of an action.
pub(super) fn only(replies: Vec<Reply>) -> Result<Reply, Unanswered> {
    let mut replies = replies.into_iter();
    match (replies.next(), replies.next()) {
        (Some(reply), None) => Ok(reply),
        _ => Err(Unanswered::Mismatched),
    }
}

/// The error for a reply that is not the expected one.
pub(super) fn mismatched(reply: Reply) -> Unanswered {
    match reply {
        Reply::Refused(refusal) => Unanswered::Refused(refusal),
        _ => Unanswered::Mismatched,
    }
}
