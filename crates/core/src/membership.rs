//! The membership of a shard: its replicas, the voters among them, and changes of both.
//!
//! Owns these types and their layout on disk and wire. `control::reconcile` decides which change is
//! wanted, `raft::membership` carries it out.
//!
//! A change of several votes passes through a joint configuration (Raft paper, section 6). Until
//! the shard leaves it, majorities of both the old and the new voters must agree.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::codec::{self, DecodeError, Decoder};
use crate::types::{LogIndex, NodeId, ReplicaId};

/// The role of a replica in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Counts towards majorities.
    Voter,
    /// Follows without a vote.
    Learner,
}

/// The replicas of a shard as of an entry of its log. Each list is sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The voters; in a joint configuration, the new voters.
    pub voters: Vec<ReplicaId>,
    /// Replicas that follow without a vote.
    pub learners: Vec<ReplicaId>,
    /// The old voters of a joint configuration; empty otherwise.
    pub voters_outgoing: Vec<ReplicaId>,
    /// Old voters that become learners when the shard leaves the joint configuration.
    pub learners_next: Vec<ReplicaId>,
    /// Index of the entry that made it so; 0 for the founding membership.
    pub changed: LogIndex,
    /// The newest registry on which a change was based, as the index of the registry's last change.
    /// A leader with an older registry must not return to what that wanted, because it could bring
    /// back a replica that was already forgotten.
    pub wanted_at: LogIndex,
    /// The node of each replica. It is part of the shard's own log, so that a replica that knows
    /// nothing of the registry can talk to the others.
    pub nodes: BTreeMap<ReplicaId, NodeId>,
}

/// An entry that changes the membership of its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// A new replica becomes a learner.
    Join(ReplicaId, NodeId),
    /// Replicas take these roles, or are removed. More than one makes the configuration joint.
    Roles(Vec<(ReplicaId, Option<Role>)>),
    /// Ends the joint configuration: only the new voters count.
    LeaveJoint,
}

impl Membership {
    /// The founding membership of a shard.
    pub fn founded(founding: &[(ReplicaId, NodeId)]) -> Membership {
        let nodes: BTreeMap<ReplicaId, NodeId> = founding.iter().copied().collect();
        Membership { voters: nodes.keys().copied().collect(), nodes, ..Membership::default() }
    }

    /// The node of a replica.
    pub fn node(&self, replica: ReplicaId) -> Option<NodeId> {
        self.nodes.get(&replica).copied()
    }

    /// The replica on a node.
    pub fn replica_on(&self, node: NodeId) -> Option<ReplicaId> {
        self.nodes.iter().find(|(_, on)| **on == node).map(|(replica, _)| *replica)
    }

    /// Whether majorities of two sets of voters are needed now.
    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    /// The role of a replica; `None` if it does not belong to the shard. An old voter of a joint
    /// configuration still votes.
    pub fn role(&self, replica: ReplicaId) -> Option<Role> {
        if self.voters.contains(&replica) || self.voters_outgoing.contains(&replica) {
            Some(Role::Voter)
        } else if self.learners.contains(&replica) {
            Some(Role::Learner)
        } else {
            None
        }
    }

    /// All replicas, each once, in order.
    pub fn replicas(&self) -> Vec<ReplicaId> {
        let lists = [&self.voters, &self.learners, &self.voters_outgoing];
        let mut all: Vec<ReplicaId> = lists.into_iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for list in [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next] {
            codec::put_varint(out, list.len() as u64);
            for replica in list {
                codec::put_varint(out, replica.0);
            }
        }
        codec::put_varint(out, self.changed.0);
        codec::put_varint(out, self.wanted_at.0);
        encode_nodes(self.nodes.iter().map(|(replica, node)| (*replica, *node)), out);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Membership, DecodeError> {
        let membership = Membership {
            voters: replicas(decoder)?,
            learners: replicas(decoder)?,
            voters_outgoing: replicas(decoder)?,
            learners_next: replicas(decoder)?,
            changed: LogIndex(decoder.varint()?),
            wanted_at: LogIndex(decoder.varint()?),
            nodes: decode_nodes(decoder)?.into_iter().collect(),
        };
        if !membership.replicas().iter().eq(membership.nodes.keys()) {
            return Err(DecodeError::Invalid("nodes of replicas"));
        }
        Ok(membership)
    }
}

/// Appends the number of replicas, then each replica with its node.
pub(crate) fn encode_nodes(nodes: impl ExactSizeIterator<Item = (ReplicaId, NodeId)>, out: &mut Vec<u8>) {
    codec::put_varint(out, nodes.len() as u64);
    for (replica, node) in nodes {
        codec::put_varint(out, replica.0);
        codec::put_varint(out, node.0);
    }
}

/// Reads what [`encode_nodes`] wrote. Replica numbers must rise.
pub(crate) fn decode_nodes(decoder: &mut Decoder<'_>) -> Result<Vec<(ReplicaId, NodeId)>, DecodeError> {
    rising(decoder, |decoder| Ok(NodeId(decoder.varint()?)))
}

fn replicas(decoder: &mut Decoder<'_>) -> Result<Vec<ReplicaId>, DecodeError> {
    Ok(rising(decoder, |_| Ok(()))?.into_iter().map(|(replica, ())| replica).collect())
}

/// Reads a number of replicas, then each replica with what follows it.
fn rising<T>(
    decoder: &mut Decoder<'_>,
    next: impl Fn(&mut Decoder<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<(ReplicaId, T)>, DecodeError> {
    let mut list: Vec<(ReplicaId, T)> = Vec::new();
    for _ in 0..decoder.varint()? {
        let replica = ReplicaId(decoder.varint()?);
        if list.last().is_some_and(|(last, _)| *last >= replica) {
            return Err(DecodeError::Invalid("order of replicas"));
        }
        list.push((replica, next(decoder)?));
    }
    Ok(list)
}

/// The code of a new learner; its node follows.
const ROLE_JOINS: u8 = 3;

/// The code of a role on wire and disk.
pub(crate) fn role_code(role: Option<Role>) -> u8 {
    match role {
        None => 0,
        Some(Role::Voter) => 1,
        Some(Role::Learner) => 2,
    }
}

/// The role of a code.
pub(crate) fn role_of(code: u8) -> Result<Option<Role>, DecodeError> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(Role::Voter)),
        2 => Ok(Some(Role::Learner)),
        _ => Err(DecodeError::UnknownTag("role of a replica")),
    }
}

impl MembershipChange {
    /// Leaving a joint configuration is encoded as a change of no roles.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let roles: &[_] = match self {
            MembershipChange::Join(replica, node) => {
                for number in [1, replica.0, ROLE_JOINS.into(), node.0] {
                    codec::put_varint(out, number);
                }
                return;
            }
            MembershipChange::Roles(roles) => roles,
            MembershipChange::LeaveJoint => &[],
        };
        codec::put_varint(out, roles.len() as u64);
        for (replica, role) in roles {
            codec::put_varint(out, replica.0);
            out.push(role_code(*role));
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<MembershipChange, DecodeError> {
        let mut roles = Vec::new();
        let count = decoder.varint()?;
        for _ in 0..count {
            let replica = ReplicaId(decoder.varint()?);
            let code = decoder.u8()?;
            if code == ROLE_JOINS && count == 1 {
                return Ok(MembershipChange::Join(replica, NodeId(decoder.varint()?)));
            }
            roles.push((replica, role_of(code)?));
        }
        Ok(if roles.is_empty() { MembershipChange::LeaveJoint } else { MembershipChange::Roles(roles) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn memberships_and_changes_round_trip() {
        let membership = Membership {
            voters: vec![ReplicaId(1), ReplicaId(300)],
            learners: vec![ReplicaId(7)],
            voters_outgoing: vec![ReplicaId(1), ReplicaId(2)],
            learners_next: vec![ReplicaId(2)],
            changed: LogIndex(9),
            wanted_at: LogIndex(8),
            nodes: [(1, 1), (2, 2), (7, 3), (300, 4)]
                .map(|(replica, node)| (ReplicaId(replica), NodeId(node)))
                .into(),
        };
        let mut bytes = vec![];
        membership.encode(&mut bytes);
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(Membership::decode(&mut decoder).as_ref(), Ok(&membership));
        assert!(decoder.is_empty());
        assert_eq!(membership.replicas(), [1, 2, 7, 300].map(ReplicaId));
        let roles = [(1, None), (2, Some(Role::Voter)), (3, Some(Role::Learner))];
        let roles = roles.map(|(replica, role)| (ReplicaId(replica), role)).to_vec();
        let join = MembershipChange::Join(ReplicaId(9), NodeId(300));
        for change in [join, MembershipChange::Roles(roles), MembershipChange::LeaveJoint] {
            let mut bytes = vec![];
            change.encode(&mut bytes);
            assert_eq!(MembershipChange::decode(&mut Decoder::new(&bytes)).as_ref(), Ok(&change));
            for cut in 0..bytes.len() {
                assert!(MembershipChange::decode(&mut Decoder::new(&bytes[..cut])).is_err());
            }
        }
    }
}
