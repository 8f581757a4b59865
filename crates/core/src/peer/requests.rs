//! Identities and outcomes of requests between nodes.

use alloc::vec::Vec;

use super::{TAG_FORBIDDEN, TAG_INVALID};
use crate::codec;
use crate::command::{ShardError, ShardRefusal, WriteReply};
use crate::types::NodeId;

/// Identifies an open request in the whole cluster: the node that received it from a client, the
/// link through which it was forwarded, and that node's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The node that answers the client.
    pub node: NodeId,
    /// The link through which it came. The outcome must not be sent through a later link, because
    /// the other node may have restarted and reused the number.
    pub link: LinkNumber,
    /// That node's number for the request.
    pub request: RequestId,
}

impl Origin {
    /// Whether this node received the request, or asks for it itself.
    pub(crate) fn is_own(&self) -> bool {
        self.link == LinkNumber(0)
    }
}

/// Number of a link between this node and one peer, counted up; 0 stands for the node itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkNumber(pub u64);

/// A node's own number for an open request. Not reused while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The outcome of a command that was handed to a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is committed and applied.
    Done(WriteReply),
    /// It was refused permanently.
    Refused(ShardRefusal),
    /// It is not in the log and never will be; it may be retried at another leader.
    NotDone,
    /// As `NotDone`, because the shard does not own the keys: their slots moved or are being moved.
    NotHere,
}

impl From<Result<WriteReply, ShardError>> for Outcome {
    /// The outcome of a command that was applied.
    fn from(applied: Result<WriteReply, ShardError>) -> Outcome {
        match applied {
            Ok(reply) => Outcome::Done(reply),
            Err(ShardError::Refused(refusal)) => Outcome::Refused(refusal),
            Err(ShardError::NotHere) => Outcome::NotHere,
        }
    }
}

/// Appends the outcome of a refused command.
pub(super) fn put_refusal(out: &mut Vec<u8>, refusal: &ShardRefusal) {
    match refusal {
        ShardRefusal::Overloaded => out.push(7),
        ShardRefusal::DiskUnavailable => out.push(14),
        ShardRefusal::Invalid(reason) => {
            out.push(TAG_INVALID);
            codec::put_bytes(out, reason.as_bytes());
        }
        ShardRefusal::CrossShard => out.push(19),
        ShardRefusal::Unauthenticated => out.push(26),
        ShardRefusal::PermissionsUnknown => out.push(27),
        ShardRefusal::Forbidden(demand) => {
            out.push(TAG_FORBIDDEN);
            codec::put_bytes(out, demand.as_bytes());
        }
    }
}
