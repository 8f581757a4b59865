//! Why there is no answer: from the asked node to its client, and from a shard to that node.

use alloc::borrow::Cow;

/// Why a client gets no answer. Only `UnknownOutcome` leaves open whether the request took effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No leader was known or reachable by the deadline. The request did not and will not take
    /// effect.
    #[error("no leader of a shard that this needs is known or reachable; nothing was done")]
    NoLeader,
    /// The command was passed on and its outcome is not known by the deadline. It may have taken
    /// effect or may still do so.
    #[error("the outcome is unknown: the write may have happened, or may still happen")]
    UnknownOutcome,
    /// A bounded queue is full. The request did not and will not take effect.
    #[error("the node is overloaded; nothing was done")]
    Overloaded,
    /// The disk of the shard's leader, or the disks of a majority of its replicas, take no writes
    /// for now. For a read: the disk of this node takes no writes, and its replica has fallen
    /// behind. The request did not and will not take effect.
    #[error("the disk of the shard's leader, or of this node, cannot be written now; nothing was done")]
    DiskUnavailable,
    /// The keys of one command do not belong to one shard, or not to the shard that it names. The
    /// request did not and will not take effect.
    #[error("the keys of one command do not belong to one shard; nothing was done")]
    CrossShard,
    /// Authentication is required, and the client has not proved who it is. The request did not and
    /// will not take effect.
    #[error("authentication is required; nothing was done")]
    Unauthenticated,
    /// No role of the principal has the grant that is named. The request did not and will not take
    /// effect.
    #[error("this needs the permission `{0}`; nothing was done")]
    Forbidden(Cow<'static, str>),
    /// A node has not confirmed for too long that it knows the current permissions. The request did
    /// not and will not take effect.
    #[error(
        "the node does not know the current permissions, because it does not reach the leader of the prime shard; \
         nothing was done"
    )]
    PermissionsUnknown,
    /// A host of the cluster may run a release that does not know the request. It did not and will
    /// not take effect.
    #[error("the cluster's version is too low for this; nothing was done")]
    VersionTooLow,
    /// The request breaks a limit or an invariant of the commands. It did not and will not take
    /// effect.
    #[error("invalid request: {0}")]
    Invalid(Cow<'static, str>),
}

/// Why a shard refuses a request for good. The request did not and will not take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardRefusal {
    /// See [`Refusal::Overloaded`].
    Overloaded,
    /// See [`Refusal::DiskUnavailable`].
    DiskUnavailable,
    /// See [`Refusal::CrossShard`].
    CrossShard,
    /// See [`Refusal::Unauthenticated`].
    Unauthenticated,
    /// See [`Refusal::Forbidden`].
    Forbidden(Cow<'static, str>),
    /// See [`Refusal::PermissionsUnknown`].
    PermissionsUnknown,
    /// See [`Refusal::Invalid`].
    Invalid(Cow<'static, str>),
}

/// Why a replica of a shard does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardError {
    /// The shard does not own the slot of a key, because the slot moved or is being moved. In the
    /// answer of a peer also: the peer has no replica of the shard. The request did not take
    /// effect. Nodes retry it at the shard that owns the slot, so this never reaches a client.
    NotHere,
    /// The shard refuses the request.
    Refused(ShardRefusal),
}

impl Refusal {
    /// [`Refusal::Invalid`] for a reason, which says what the request breaks.
    pub const fn invalid(reason: &'static str) -> Refusal {
        Refusal::Invalid(Cow::Borrowed(reason))
    }
}

impl ShardRefusal {
    /// [`ShardRefusal::Invalid`] for a reason, which says what the request breaks.
    pub const fn invalid(reason: &'static str) -> ShardRefusal {
        ShardRefusal::Invalid(Cow::Borrowed(reason))
    }
}

impl From<ShardRefusal> for Refusal {
    fn from(refusal: ShardRefusal) -> Refusal {
        match refusal {
            ShardRefusal::Overloaded => Refusal::Overloaded,
            ShardRefusal::DiskUnavailable => Refusal::DiskUnavailable,
            ShardRefusal::CrossShard => Refusal::CrossShard,
            ShardRefusal::Unauthenticated => Refusal::Unauthenticated,
            ShardRefusal::Forbidden(demand) => Refusal::Forbidden(demand),
            ShardRefusal::PermissionsUnknown => Refusal::PermissionsUnknown,
            ShardRefusal::Invalid(reason) => Refusal::Invalid(reason),
        }
    }
}

impl From<ShardRefusal> for ShardError {
    fn from(refusal: ShardRefusal) -> ShardError {
        ShardError::Refused(refusal)
    }
}
