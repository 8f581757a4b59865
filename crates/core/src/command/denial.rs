//! Why the registry refuses a change. Owns the reasons, their texts and their codes.

use crate::codec::codes;

/// Why the registry refuses a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// No host was ever given this number.
    #[error("there is no such host")]
    UnknownHost,
    /// The host has left, or its removal can no longer be cancelled.
    #[error("the host was removed; it can only join again as a new one, with an empty data directory")]
    HostRemoved,
    /// The host is being removed, so its drain cannot be undone.
    #[error("the host is being removed; `tidelock cluster add` cancels that")]
    HostLeaves,
    /// No voter would remain.
    #[error("it is the last voter, and cannot be removed or lose its vote; add another voter first")]
    LastVoter,
    /// The host is not leaving.
    #[error("the host is not leaving")]
    NotLeaving,
    /// See [`limits::HOSTS_MAX`](crate::limits::HOSTS_MAX).
    #[error("the cluster has as many hosts as it can have")]
    TooManyHosts,
    /// See [`limits::SHARDS_MAX`](crate::limits::SHARDS_MAX).
    #[error("the cluster has as many shards as it can have; remove one that owns no slots")]
    TooManyShards,
    /// The shard owns slots, or is the giver or the receiver of a move.
    #[error("the shard owns slots, or slots are being moved to it; move them to other shards first")]
    ShardInUse,
    /// See [`limits::MIGRATIONS_MAX`](crate::limits::MIGRATIONS_MAX).
    #[error("too many moves of slots are in progress; wait until some are done")]
    TooManyMoves,
    /// Some of the slots are already being moved.
    #[error("some of these slots are being moved already; wait until that is done")]
    SlotsMoving,
    /// No shard was ever given this number, or the shard was removed.
    #[error("there is no such shard")]
    UnknownShard,
    /// A placement policy cannot be parsed, or the tags are too long.
    #[error("the placement policy cannot be read, or the tags of the shard are too long")]
    InvalidPolicy,
    /// The command is newer than the cluster's version.
    #[error(
        "the cluster's version is too low for this; it rises once every host runs a release that knows it: \
         `tidelock cluster version` shows what it waits for"
    )]
    VersionTooLow,
    /// A host does not support the cluster's version, or the one to which it should be raised.
    #[error("the host runs a release that does not support the cluster's version; run a newer release on it")]
    HostTooOld,
    /// An operator has stopped the rise of the cluster's version.
    #[error(
        "the rise of the cluster's version is held; `tidelock cluster version --resume` lets it continue"
    )]
    VersionHeld,
    /// No role has this name.
    #[error("there is no such role")]
    UnknownRole,
    /// No principal has this name.
    #[error("there is no such principal")]
    UnknownPrincipal,
    /// No token has this id.
    #[error("there is no such token")]
    UnknownToken,
    /// The built-in role cannot be changed.
    #[error("the role `admin` is built in and cannot be changed; define another role")]
    BuiltInRole,
    /// A principal has the role.
    #[error("a principal has this role; take the role from its principals first")]
    RoleInUse,
    /// Another token has this id.
    #[error("another token has this id; create the token again")]
    TokenExists,
    /// Another principal has the certificate name.
    #[error("another principal has one of these certificate names")]
    CertificateNameTaken,
    /// See [`limits::ROLES_MAX`](crate::limits::ROLES_MAX).
    #[error("there are too many roles; delete some first")]
    TooManyRoles,
    /// See [`limits::PRINCIPALS_MAX`](crate::limits::PRINCIPALS_MAX).
    #[error("there are too many principals; delete some first")]
    TooManyPrincipals,
    /// See [`limits::TOKENS_MAX`](crate::limits::TOKENS_MAX).
    #[error("there are too many tokens; delete some first")]
    TooManyTokens,
    /// Authentication would lock everyone out.
    #[error(
        "nobody could change permissions any more; first create a token for a principal that has `cluster:admin`"
    )]
    NoAdministrator,
    /// The change would lock everyone out.
    #[error(
        "the last token or certificate name with `cluster:admin` would be lost; first create another one, or make authentication optional"
    )]
    LastAdministrator,
    /// The cluster has no CA of its own.
    #[error(
        "the cluster signs no certificates: its nodes have theirs from an authority outside of it; make the \
         certificate of a new host there"
    )]
    NoAuthority,
    /// No CA has this number.
    #[error("there is no such authority")]
    UnknownAuthority,
    /// See [`limits::AUTHORITIES_MAX`](crate::limits::AUTHORITIES_MAX).
    #[error("there are two authorities already; remove the one that no longer signs first")]
    TooManyAuthorities,
    /// The CA is the one that signs.
    #[error("this authority signs certificates; let another one sign first")]
    AuthoritySigns,
    /// See [`limits::AUTHORITY_REST_MS`](crate::limits::AUTHORITY_REST_MS).
    #[error("the nodes need 15 seconds to take over the last change of the authorities; try again then")]
    AuthoritiesUnsettled,
    /// No join token has this id, or the secret is wrong.
    #[error(
        "the join token is unknown, or not of this cluster; create another one with `tidelock cluster join-token`"
    )]
    JoinTokenUnknown,
    /// The join token has expired.
    #[error("the join token has expired; create another one with `tidelock cluster join-token`")]
    JoinTokenExpired,
    /// Another host has used the join token.
    #[error(
        "another host has used the join token; create one for each host with `tidelock cluster join-token`"
    )]
    JoinTokenUsed,
    /// The host is already a member of the cluster.
    #[error("the host is a member of the cluster already; a join token is for an empty data directory")]
    HostIsMember,
}

codes!(Denial as "denial" {
    Denial::UnknownHost => 1,
    Denial::HostRemoved => 2,
    Denial::LastVoter => 3,
    Denial::NotLeaving => 4,
    Denial::TooManyHosts => 5,
    Denial::UnknownShard => 6,
    Denial::InvalidPolicy => 7,
    Denial::TooManyShards => 8,
    Denial::TooManyMoves => 9,
    Denial::SlotsMoving => 10,
    Denial::ShardInUse => 11,
    Denial::VersionTooLow => 12,
    Denial::HostTooOld => 13,
    Denial::VersionHeld => 14,
    Denial::UnknownRole => 15,
    Denial::UnknownPrincipal => 16,
    Denial::UnknownToken => 17,
    Denial::BuiltInRole => 18,
    Denial::RoleInUse => 19,
    Denial::TokenExists => 20,
    Denial::CertificateNameTaken => 21,
    Denial::TooManyRoles => 22,
    Denial::TooManyPrincipals => 23,
    Denial::TooManyTokens => 24,
    Denial::NoAdministrator => 25,
    Denial::LastAdministrator => 26,
    Denial::NoAuthority => 40,
    Denial::UnknownAuthority => 41,
    Denial::TooManyAuthorities => 42,
    Denial::AuthoritySigns => 43,
    Denial::AuthoritiesUnsettled => 44,
    Denial::JoinTokenUnknown => 45,
    Denial::JoinTokenExpired => 46,
    Denial::JoinTokenUsed => 47,
    Denial::HostIsMember => 48,
    Denial::HostLeaves => 49,
});
