//! Reports of changed keys to the watchers of this node's clients.
//!
//! Owns which changes of which shards were reported. A node begins to report when one of its
//! clients asks for changes, and ends when the shell says that no client watches keys. Reports
//! cover the shards with a replica here. For the others, the node names their slots once each
//! election timeout ([`Actions::remote_slots`](crate::event::Actions::remote_slots)), and watchers
//! of these slots read.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Node;
use crate::command::{ChangedKeys, Read};
use crate::deliberate::Fault;
use crate::event::KeyReport;
use crate::machine::ReportedChanges;
use crate::raft::Group;
use crate::types::ShardId;

/// What was reported of each shard; `None` while no client watches keys.
#[derive(Debug, Default)]
pub(super) struct KeyReports {
    reported: Option<BTreeMap<ShardId, ReportedChanges>>,
}

impl KeyReports {
    /// No client watches keys any more.
    pub fn end(&mut self) {
        self.reported = None;
    }
}

impl Node {
    /// A client makes this read. If it asks for changes, they are reported from here on.
    #[inline]
    pub(super) fn report_keys_for(&mut self, read: &Read) {
        if !matches!(read, Read::Changes { .. }) || self.key_reports.reported.is_some() {
            return;
        }
        let data = |group: &Group| Some((group.shard(), group.machine().data()?.reported()));
        self.key_reports.reported = Some(self.groups.iter().filter_map(data).collect());
    }

    /// Reports the slots of whose changes this node may learn nothing, because its replicas know no
    /// leader. Otherwise a client of a node that is cut off would keep what it has cached.
    pub(super) fn report_leaderless_slots(&mut self) {
        if self.key_reports.reported.is_none() {
            return;
        }
        let is_leaderless = |shard| self.groups.member(shard).is_some_and(|group| group.leader().is_none());
        let ranges = self.router.slot_map().ranges().filter(|(_, shard)| is_leaderless(*shard));
        self.leaderless_slots = ranges.map(|(range, _)| range).collect();
    }

    /// The keys that changed on this node since the last report.
    pub(super) fn take_key_reports(&mut self) -> Vec<KeyReport> {
        let Some(mut reported) = self.key_reports.reported.take() else { return Vec::new() };
        let mut reports = Vec::new();
        // A shard whose replica comes back is reported as a new one.
        reported.retain(|shard, _| self.groups.find(*shard).is_some());
        for group in self.groups.iter() {
            let Some(data) = group.machine().data() else { continue };
            let shard = group.shard();
            let changed = match reported.get(&shard) {
                None => Some((ChangedKeys::Any, data.reported())),
                Some(before) => data.reportable(*before),
            };
            let Some((keys, now)) = changed else { continue };
            reported.insert(shard, now);
            let is_silent = self.options.faults.has(Fault::OnlyLeaderNotifies) && !group.leads();
            if let Some((slots, _)) = self.owned_slots(shard).filter(|_| !is_silent) {
                reports.push(KeyReport { slots, revision: now.revision(), keys });
            }
        }
        self.key_reports.reported = Some(reported);
        reports
    }
}
