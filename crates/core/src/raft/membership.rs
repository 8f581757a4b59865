//! Membership changes of a shard: the leader proposes them, and every replica carries them out when
//! it applies them.
//!
//! The engine holds a change in an entry of a special kind, encoded as protobuf. On disk and wire,
//! where an entry is a term, an index and bytes, the first byte distinguishes a change from
//! commands, and the change has our own encoding. The engine's entry carries that encoding as its
//! context, so protobuf is never decoded.
//!
//! `control::reconcile` decides which change is due. The engine and [`Group::reconcile`] ensure
//! that only one is in progress.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType,
};

use super::group::Group;
use super::trace::RoleChangeCause;
use crate::codec::{self, DecodeError, Decoder};
use crate::control::reconcile::{self, ReconcileStep, Situation};
use crate::limits;
use crate::membership::{Membership, MembershipChange, Role};
use crate::types::{LogIndex, NodeId, ReplicaId, Term};

/// First byte of the data of a membership change. Other entries begin with the version of their
/// layout (`proposals`).
pub(super) const CHANGE_FORMAT: u8 = 2;

/// The data of an entry, as on disk and wire.
pub(super) fn data_of(entry: &Entry) -> &Bytes {
    match entry.get_entry_type() {
        EntryType::EntryNormal => &entry.data,
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => &entry.context,
    }
}

/// Converts data on disk or wire to the engine's entry.
pub(super) fn entry(index: LogIndex, term: Term, data: Bytes) -> Entry {
    let mut entry = Entry { index: index.0, term: term.0, ..Entry::default() };
    if data.first() == Some(&CHANGE_FORMAT) {
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.context = data;
    } else {
        entry.data = data;
    }
    entry
}

/// The data of a membership change that is based on the registry after its change at `wanted_at`.
pub(crate) fn encode_change(change: &MembershipChange, wanted_at: LogIndex) -> Bytes {
    let mut data = alloc::vec![CHANGE_FORMAT];
    codec::put_varint(&mut data, wanted_at.0);
    change.encode(&mut data);
    data.into()
}

/// Decodes the data of a membership change.
pub(crate) fn decode(data: &[u8]) -> Result<(MembershipChange, LogIndex), DecodeError> {
    let mut decoder = Decoder::new(data);
    if decoder.u8()? != CHANGE_FORMAT {
        return Err(DecodeError::UnknownTag("entry format"));
    }
    let wanted_at = LogIndex(decoder.varint()?);
    let change = MembershipChange::decode(&mut decoder)?;
    decoder.finish()?;
    Ok((change, wanted_at))
}

/// The membership change in the data of an entry, if it is one.
pub(crate) fn changes_of(data: &[u8]) -> Option<MembershipChange> {
    decode(data).ok().map(|(change, _)| change)
}

/// Converts a change to the engine's form. Leaving a joint configuration is an empty change. The
/// leader leaves a joint configuration explicitly, because the engine's automatic way can be lost
/// when the leader changes.
fn to_engine(change: &MembershipChange) -> ConfChangeV2 {
    let mut engine = ConfChangeV2::default();
    let joins;
    let roles = match change {
        MembershipChange::Join(replica, _) => {
            joins = [(*replica, Some(Role::Learner))];
            &joins[..]
        }
        MembershipChange::Roles(roles) => roles,
        MembershipChange::LeaveJoint => return engine,
    };
    if roles.len() > 1 {
        engine.set_transition(ConfChangeTransition::Explicit);
    }
    let single = |&(replica, role): &(ReplicaId, Option<Role>)| {
        let mut single = ConfChangeSingle { node_id: replica.0, ..ConfChangeSingle::default() };
        single.set_change_type(match role {
            Some(Role::Voter) => ConfChangeType::AddNode,
            Some(Role::Learner) => ConfChangeType::AddLearnerNode,
            None => ConfChangeType::RemoveNode,
        });
        single
    };
    engine.set_changes(roles.iter().map(single).collect::<Vec<_>>().into());
    engine
}

/// Converts a membership to the engine's form.
pub(super) fn conf_state(membership: &Membership) -> ConfState {
    let ids = |list: &[ReplicaId]| list.iter().map(|replica| replica.0).collect::<Vec<u64>>();
    let mut state = ConfState::from((ids(&membership.voters), ids(&membership.learners)));
    state.set_voters_outgoing(ids(&membership.voters_outgoing));
    state.set_learners_next(ids(&membership.learners_next));
    state
}

/// Converts the engine's form to a membership, with the nodes of its replicas.
fn membership(state: &ConfState, changed: LogIndex, nodes: &BTreeMap<ReplicaId, NodeId>) -> Membership {
    let replicas = |ids: &[u64]| {
        let mut list: Vec<ReplicaId> = ids.iter().copied().map(ReplicaId).collect();
        list.sort_unstable();
        list
    };
    let mut membership = Membership {
        voters: replicas(state.get_voters()),
        learners: replicas(state.get_learners()),
        voters_outgoing: replicas(state.get_voters_outgoing()),
        learners_next: replicas(state.get_learners_next()),
        changed,
        ..Membership::default()
    };
    let kept = membership.replicas().into_iter();
    membership.nodes = kept.filter_map(|replica| Some((replica, *nodes.get(&replica)?))).collect();
    membership
}

/// The wanted replicas of a shard, from the registry. A replica that is not listed keeps its role.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// The wanted role of each replica; `None` for a replica to remove.
    pub(crate) roles: BTreeMap<ReplicaId, Option<Role>>,
    pub(crate) nodes: BTreeMap<ReplicaId, NodeId>,
}

impl Wanted {
    /// Whether a membership matches.
    pub(crate) fn matches(&self, membership: &Membership) -> bool {
        !membership.is_joint() && self.roles.iter().all(|(&replica, &role)| membership.role(replica) == role)
    }
}

impl Group {
    /// Carries out a committed change. A change that does not fit the membership has no effect, on
    /// every replica alike.
    pub(super) fn apply_change(&mut self, entry: &Entry) {
        let (change, wanted_at) =
            decode(&entry.context).expect("invariant: a committed change of membership decodes");
        let current = self.members.membership();
        let nodes = match change {
            // An earlier leader also proposed it. The replica is a member by now, with a role that
            // must not be lost.
            MembershipChange::Join(replica, _) if current.nodes.contains_key(&replica) => None,
            MembershipChange::Join(replica, node) => {
                let mut nodes = current.nodes.clone();
                nodes.insert(replica, node);
                Some(nodes)
            }
            MembershipChange::Roles(ref roles) => {
                // The node of a replica is known only for members.
                let known = roles.iter().all(|(replica, _)| current.nodes.contains_key(replica));
                known.then(|| current.nodes.clone())
            }
            MembershipChange::LeaveJoint => Some(current.nodes.clone()),
        };
        let engine = to_engine(&change);
        if let Some(nodes) = nodes
            && let Ok(state) = self.raft.apply_conf_change(&engine)
        {
            let wanted_at = wanted_at.max(current.wanted_at);
            let index = LogIndex(entry.index);
            let before = self.members.replace(Membership { wanted_at, ..membership(&state, index, &nodes) });
            self.trace_membership(&before, index);
            self.membership_changed();
        }
        let raft = &mut self.raft.raft;
        if raft.state == StateRole::Leader && !raft.promotable() {
            // An earlier leader removed this replica's vote, but could not commit the change before
            // its term ended. The engine would continue to lead and then access the progress of a
            // replica that no longer exists.
            raft.become_follower(raft.term, raft::INVALID_ID);
        }
        self.trace_role(RoleChangeCause::Membership);
    }

    /// Takes the next step towards the wanted membership, if this replica leads and no change is in
    /// progress. `changed` is the index of the registry's last change, and `up` are the nodes to
    /// which this node has a connection. A leader waits until it has committed an entry in its
    /// term, because it may not know the last change before. It also waits while its registry is
    /// older than the last change.
    pub fn reconcile(
        &mut self,
        wanted: &Wanted,
        changed: LogIndex,
        up: &[NodeId],
        may_lead: impl Fn(NodeId) -> bool,
    ) {
        let raft = &self.raft.raft;
        let may_change = raft.state == StateRole::Leader
            && raft.lead_transferee.is_none()
            && !raft.has_pending_conf()
            && changed >= self.members.membership().wanted_at
            && self.applied.term() == Term(raft.term);
        if !may_change {
            return;
        }
        let (mut active, mut caught_up) = (Vec::new(), Vec::new());
        let needed = raft.raft_log.last_index().saturating_sub(limits::CAUGHT_UP_ENTRIES_MAX);
        for (&id, progress) in raft.prs().iter() {
            if id != raft.id && progress.recent_active {
                active.push(ReplicaId(id));
                // A replica that has never acknowledged anything may not have begun, and the engine
                // counts new replicas as active.
                if progress.matched >= needed.max(1) {
                    caught_up.push(ReplicaId(id));
                }
            }
        }
        let members = self.members.iter().filter(|(node, ..)| up.contains(node));
        let connected: Vec<ReplicaId> = members.map(|(_, replica, _)| replica).collect();
        let step = reconcile::next_step(&Situation {
            membership: self.members.membership(),
            own: ReplicaId(raft.id),
            wanted: &wanted.roles,
            active: &active,
            connected: &connected,
            caught_up: &caught_up,
            faults: self.faults(),
        });
        match step {
            Some(ReconcileStep::Change(change)) => {
                let change = self.with_node(change, wanted);
                // Refused only during a leadership transfer: the next leader takes the step.
                let _ = self
                    .raft
                    .propose_conf_change(encode_change(&change, changed).to_vec(), to_engine(&change));
            }
            Some(ReconcileStep::HandOver) => self.transfer_leadership(may_lead),
            None if wanted.matches(self.members.membership()) => self.settle(changed),
            None => {}
        }
    }

    /// Adds the node to the change that makes a new replica a learner.
    fn with_node(&self, change: MembershipChange, wanted: &Wanted) -> MembershipChange {
        match &change {
            MembershipChange::Roles(roles) => match roles[..] {
                [(replica, Some(Role::Learner))] if self.membership().role(replica).is_none() => {
                    let node = wanted.nodes.get(&replica).expect("invariant: who is wanted has a node");
                    MembershipChange::Join(replica, *node)
                }
                _ => change,
            },
            MembershipChange::Join(..) | MembershipChange::LeaveJoint => change,
        }
    }

    /// The membership as of the last applied entry.
    pub fn membership(&self) -> &Membership {
        self.members.membership()
    }

    /// Whether this replica is a member according to its own log. If so, it has applied all entries
    /// before it joined. If not, it is new and knows nothing, or it was removed and receives
    /// nothing any more.
    pub fn is_member(&self) -> bool {
        self.membership().role(self.replica()).is_some()
    }

    /// Whether the shard has a replica on a node.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.replicas().any(|(replica_node, _, _)| replica_node == node)
    }

    /// The replicas with their nodes and roles.
    pub fn replicas(&self) -> impl Iterator<Item = (NodeId, ReplicaId, Role)> {
        self.members.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn changes_keep_their_kind_through_log_and_engine() {
        let change = MembershipChange::Roles(vec![(ReplicaId(4), Some(Role::Learner))]);
        for change in [change, MembershipChange::LeaveJoint] {
            let data = encode_change(&change, LogIndex(5));
            let entry = entry(LogIndex(7), Term(3), data.clone());
            assert_eq!(entry.get_entry_type(), EntryType::EntryConfChangeV2);
            assert_eq!((data_of(&entry), entry.index, entry.term), (&data, 7, 3));
            assert_eq!(decode(&entry.context), Ok((change, LogIndex(5))));
        }
        let normal = entry(LogIndex(8), Term(3), Bytes::from_static(b"\x01\x00"));
        assert_eq!(normal.get_entry_type(), EntryType::EntryNormal);
        assert_eq!(data_of(&normal), &Bytes::from_static(b"\x01\x00"));
        assert_eq!(entry(LogIndex(9), Term(3), Bytes::new()).get_entry_type(), EntryType::EntryNormal);
    }

    #[test]
    fn memberships_survive_the_engine() {
        let given = Membership {
            voters: vec![ReplicaId(1), ReplicaId(4)],
            learners: vec![ReplicaId(5)],
            voters_outgoing: vec![ReplicaId(1), ReplicaId(3)],
            learners_next: vec![ReplicaId(3)],
            changed: LogIndex(9),
            wanted_at: LogIndex(0),
            nodes: [(1, 1), (3, 3), (4, 4), (5, 5)]
                .map(|(replica, node)| (ReplicaId(replica), NodeId(node)))
                .into(),
        };
        assert_eq!(membership(&conf_state(&given), LogIndex(9), &given.nodes), given);
    }

    #[test]
    fn several_roles_at_a_time_are_a_joint_change() {
        let one = MembershipChange::Roles(vec![(ReplicaId(4), Some(Role::Voter))]);
        assert!(to_engine(&one).enter_joint().is_none());
        let two = MembershipChange::Roles(vec![(ReplicaId(4), Some(Role::Voter)), (ReplicaId(3), None)]);
        assert_eq!(to_engine(&two).enter_joint(), Some(false), "the leader ends it");
        assert!(to_engine(&MembershipChange::LeaveJoint).leave_joint());
    }
}
