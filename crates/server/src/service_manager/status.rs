//! The status of a node in one line, as `systemctl status` shows it.

use std::rc::Rc;
use std::sync::PoisonError;
use std::time::Duration;

use tidelock_core::event::NodeStatus;
use tokio::time::MissedTickBehavior;

use super::ServiceManager;
use crate::store::Store;
use crate::worker::Worker;

/// How often the status is looked at. It is sent only when it has changed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Tells the service manager how the node is, until the node begins to stop.
pub(crate) async fn report_status(manager: Rc<ServiceManager>, worker: Worker) {
    if manager.channel.is_none() {
        return;
    }
    let disk_error = worker.disk_error();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let status = worker.status().await;
        if status.retiring {
            return;
        }
        let disk = disk_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        manager.status(&text(&status, disk.as_deref()));
    }
}

/// What keeps a node from serving, or how many shards it leads.
fn text(status: &NodeStatus, disk_error: Option<&str>) -> String {
    let mut problems = Vec::new();
    let (reachable, nodes) = status.reachable_nodes();
    if !status.reaches_majority() {
        problems.push(format!("no majority: only {reachable} of {nodes} nodes can be reached"));
    }
    let shards = status.shards.len();
    let leaderless = status.shards.iter().filter(|shard| shard.leader.is_none()).count();
    if leaderless > 0 {
        problems.push(format!("no leader is known for {leaderless} of {shards} shards"));
    }
    if let Some(reason) = disk_error {
        problems.push(format!("the disk takes no writes: {reason}"));
    }
    if !problems.is_empty() {
        return problems.join("; ");
    }
    let leads = status.shards.iter().filter(|shard| shard.leads).count();
    format!("serving; leads {leads} of {shards} shards")
}

#[cfg(test)]
mod tests {
    use tidelock_core::event::ShardStatus;
    use tidelock_core::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term};

    use super::*;

    fn shard(number: u64, leader: Option<u64>) -> ShardStatus {
        ShardStatus {
            shard: ShardId(number),
            replica: ReplicaId(1),
            leader: leader.map(NodeId),
            leads: leader == Some(1),
            is_term_durable: true,
            term: Term(1),
            committed: LogIndex(1),
            applied: LogIndex(1),
            last: LogIndex(1),
            log_begin: LogIndex(0),
            keys: 0,
            log_bytes: 0,
            votes: true,
            snapshot: None,
            snapshot_bytes: 0,
            makes_snapshot: false,
            last_move: MigrationId(0),
            is_moving: false,
            slots: None,
            diverged: false,
            checkpoint: None,
        }
    }

    #[test]
    fn a_status_says_what_is_wrong_or_what_the_node_leads() {
        let status = |links: &[bool], leaders: &[Option<u64>]| NodeStatus {
            node: NodeId(1),
            links: (2..).map(NodeId).zip(links.iter().copied()).collect(),
            shards: (0..).zip(leaders).map(|(number, leader)| shard(number, *leader)).collect(),
            ..NodeStatus::default()
        };
        let full = Some("the disk is full");
        let cases = [
            (status(&[], &[Some(1), Some(1)]), None, "serving; leads 2 of 2 shards"),
            (status(&[true, false], &[Some(1), Some(2), Some(1)]), None, "serving; leads 2 of 3 shards"),
            (
                status(&[false, false], &[None, Some(2)]),
                None,
                "no majority: only 1 of 3 nodes can be reached; no leader is known for 1 of 2 shards",
            ),
            (status(&[true], &[Some(1)]), full, "the disk takes no writes: the disk is full"),
        ];
        for (status, disk, expected) in cases {
            assert_eq!(text(&status, disk), expected);
        }
    }
}
