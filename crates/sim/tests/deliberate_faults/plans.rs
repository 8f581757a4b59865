//! The plan for each deliberate fault: the load, the sizes, the actions of operators and the other
//! faults with which runs are likely to show it.

use tidelock_core::command::HostChange;
use tidelock_core::deliberate::Fault;
use tidelock_core::event::DivisionTiming;
use tidelock_core::types::{NodeId, ShardId};
use tidelock_sim::event_queue::Micros;
use tidelock_sim::faults::addresses::{Relocate, Relocation};
use tidelock_sim::faults::clocks::SetClock;
use tidelock_sim::faults::disks::{FullDisk, OldCopy, ReadOnlyDisk, SlowDisk};
use tidelock_sim::faults::network::{BreakLinks, CutPair, Isolate, Partition};
use tidelock_sim::faults::processes::{Crash, CrashInside, Pause};
use tidelock_sim::faults::{CrashKind, Fault as Strike, ScheduledFault, Target, Way, choose};
use tidelock_sim::operator_actions::{OperatorAction, ScheduledAction};
use tidelock_sim::plan::{NO_DIVISION, Plan, WatcherHabits};

/// A short, hard plan without deliberate faults: few keys, small logs, and frequent faults of the
/// kinds that the deliberate one needs.
pub fn plan(seed: u64, fault: Fault) -> Plan {
    // Only a cluster without other faults has to serve all the time.
    if matches!(fault, Fault::SlowDiskIgnored | Fault::HangingDiskAwaited) {
        return Plan::draw_slow_disks(seed);
    }
    if matches!(fault, Fault::EmptyFounderContinues | Fault::EmptyFounderVotes) {
        return Plan::draw_empty_disks(seed);
    }
    if matches!(
        fault,
        Fault::CallerLostInForward
            | Fault::OnlyFirstDemandChecked
            | Fault::AuditRecordLost
            | Fault::JoinTokenReused
    ) {
        return Plan::draw_principals(seed);
    }
    let drawn = Plan::draw(seed);
    let mut plan = Plan {
        nodes: 3,
        data_shards: 1,
        // Without a default placement, as when the other faults were planted.
        replicas: None,
        duration: Micros::SECOND * 10,
        faults: Vec::new(),
        operator_actions: Vec::new(),
        ..drawn
    };
    plan.load.clients = 8;
    plan.load.pause_max = Micros::MILLISECOND * 20;
    plan.load.value_bytes_max = plan.load.value_bytes_max.min(2_000);
    plan.load.config_per_mille = 0;
    plan.load.flushes_per_mille = 0;
    let backs_up = is_of_backups(fault);
    plan.load.backup_clients = if backs_up { 3 } else { 0 };
    plan.load.importers = if fault == Fault::ImportWithoutCondition { 2 } else { 0 };
    plan.load.scanners = if fault == Fault::ScanByLaterMap { 2 } else { 0 };
    plan.load.pipelining_clients = 0;
    (plan.load.lease_clients, plan.load.lock_waiters) = (0, 0);
    let publishes = matches!(fault, Fault::PublicationToOnePeer | Fault::PublicationSentTwice);
    plan.load.publishing_clients = if publishes { 3 } else { 0 };
    plan.load.script_clients = if fault == Fault::ScriptWithoutCondition { 4 } else { 0 };
    if fault == Fault::WithdrawalNotReported {
        // Only a run that ends soon after a withdrawal shows it: the next change of the container
        // is reported and hides it. So the runs are short, and all requests are about
        // configuration.
        plan.duration = Micros::SECOND * 3;
        plan.load.config_per_mille = 1_000;
        return plan;
    }
    let fault = if is_of_drafts(fault) { Fault::ContainerSchemaIgnored } else { fault };
    provoke(&mut plan, fault);
    // These plans have all their strikes.
    if !matches!(
        fault,
        Fault::OutcomeThroughLaterLink
            | Fault::ReadBeforeMove
            | Fault::GivenSlotsRead
            | Fault::VoterLeavesEarly
    ) {
        schedule_strikes(&mut plan, fault);
    }
    plan
}

fn is_of_backups(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::BackupOfTwoSlotMaps | Fault::BackupIgnoresMovesElsewhere | Fault::StaleBackupOfTwoSlotMaps
    )
}

/// Faults of inheritance, drafts and canaries, which need the plans of other faults of
/// configuration.
fn is_of_drafts(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::GrandchildForgotten
            | Fault::UnapprovedDraftPublished
            | Fault::CanaryShownToAll
            | Fault::WithdrawalNotReported
    )
}

/// More hosts than voters a shard, with a new shard, with hosts that leave, or with transactions
/// that span slots.
fn provoke_more_hosts(plan: &mut Plan, fault: Fault) {
    if fault == Fault::DefaultIgnoredByNewShards {
        (plan.nodes, plan.replicas) = (5, Some(3));
        plan.operator_actions = vec![operator_action(2_000, OperatorAction::AddShard)];
        return;
    }
    if fault == Fault::VoterLeavesEarly {
        return provoke_replacement(plan);
    }
    if fault == Fault::RemovalCancelledTooLate {
        return provoke_cancelled_removal(plan);
    }
    (plan.nodes, plan.replicas, plan.automatic_division) = (3, Some(1), true);
    plan.division = DivisionTiming { memory_ticks: 400, rest_ticks: 5, ..NO_DIVISION };
    plan.load.pipelining_clients = 3;
    plan.load.keys_per_shard = 4;
}

/// Operators set the default before every host is upgraded.
fn provoke_upgrade(plan: &mut Plan) {
    let upgrade = Plan::draw_mixed(plan.seed);
    (plan.founding_version, plan.old_hosts) = (upgrade.founding_version, vec![NodeId(1), NodeId(3)]);
    plan.replicas = upgrade.replicas;
    let set = OperatorAction::Default { name: "placement:member", value: Some("3") };
    plan.operator_actions = vec![operator_action(2_000, set)];
}

/// Whether the deliberate fault shows while slots move.
fn is_of_moves(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::OwnedBeforeLastRows
            | Fault::OldAttemptAccepted
            | Fault::ScanByLaterMap
            | Fault::ReadBeforeMove
            | Fault::GivenSlotsRead
            | Fault::MovedOperationOvertakes
            | Fault::FlushSkipsMovedSlots
            | Fault::HalvesReordered
    )
}

/// Adds the load, the sizes and the actions of operators that the deliberate fault needs to show.
fn provoke(plan: &mut Plan, fault: Fault) {
    match fault {
        Fault::ChangesSkipped | Fault::CaughtUpByStaleRead | Fault::RestOfRevisionSkipped => {
            provoke_watchers(plan, fault);
        }
        Fault::EvictedKeyNotInvalidated | Fault::TrackingGapIgnored => provoke_caching(plan),
        Fault::WatchGapIgnored | Fault::WatchMissesMovedSlots | Fault::FlushNotReported => {
            provoke_key_watchers(plan, fault);
        }
        Fault::RenewalNotApplied
        | Fault::LeaseFloorIgnored
        | Fault::ClockStepIgnored
        | Fault::LeaseNotShortened
        | Fault::FenceUsedTwice => {
            plan.load.lease_clients = 6;
        }
        Fault::StaleReadNotReported | Fault::CancelledLeaseQueued => provoke_lock_waiters(plan),
        Fault::LeasesLeftBehind => {
            provoke_moves(plan, fault);
            plan.load.lease_clients = 6;
        }
        Fault::OnlyLeaderNotifies
        | Fault::ImportWithoutCondition
        | Fault::PreviewCommitted
        | Fault::ContainerSchemaIgnored
        | Fault::ClaimedAuthorDropped => {
            plan.load.config_per_mille = 800;
        }
        Fault::OnlyLeaderExpires | Fault::ReceiverClockUsed | Fault::SkippedOperationExecuted => {
            plan.load.operations_per_mille = 900;
        }
        _ if is_of_moves(fault) || is_of_backups(fault) => provoke_moves(plan, fault),
        Fault::NewCommandBeforeRaise => provoke_upgrade(plan),
        Fault::ReplyOvertakes => {
            plan.data_shards = 3;
            plan.load.pipelining_clients = 3;
        }
        // Slots move back and forth, and shards are removed regardless of what they own.
        Fault::ShardRemovedWithSlots => {
            plan.data_shards = 2;
            plan.operator_actions = vec![operator_action(3_000, OperatorAction::RemoveShard(ShardId(2)))];
        }
        Fault::StaleSnapshotInstalled | Fault::OvertakenCommandRetried | Fault::OutcomesNotInSnapshot => {
            plan.snapshot_log_bytes_min = 500;
            plan.disk.segment_bytes = 8 << 10;
        }
        Fault::DeposedSessionAnswered => provoke_entries_in_flight(plan),
        Fault::OutcomeThroughLaterLink => {
            plan.faults = young_lives(&mut plan.generator("lives"));
            plan.load.reads_per_mille = 50;
            plan.load.client_timeout = Micros::MILLISECOND * 200;
        }
        Fault::DefaultIgnoredByNewShards
        | Fault::RemovalCancelledTooLate
        | Fault::SpanningTransactionsIgnored
        | Fault::VoterLeavesEarly => provoke_more_hosts(plan, fault),
        Fault::LedBeforeDurable => provoke_lone_founder(plan),
        Fault::MembershipNotPersisted => provoke_leaving(plan),
        // Followers that fall behind apply many entries at once, and other snapshots do not
        // interfere.
        Fault::CheckpointTakenLate => {
            plan.load.reads_per_mille = 50;
            plan.load.pause_max = Micros::MILLISECOND * 2;
            plan.snapshot_log_bytes_min = 1 << 30;
        }
        _ => {}
    }
}

/// A host with a vote leaves, while nothing else happens.
fn provoke_replacement(plan: &mut Plan) {
    (plan.nodes, plan.replicas, plan.duration) = (5, Some(3), Micros::SECOND * 60);
    (plan.conditions.spikes_per_mille, plan.conditions.drops_per_mille) = (0, 0);
    let node = NodeId(plan.generator("replacement").u64(1..=5));
    let leave = OperatorAction::Change { node, change: HostChange::Leave };
    plan.operator_actions = vec![operator_action(40_000, leave)];
}

/// Hosts leave one after the other, and an operator cancels each removal soon afterwards.
fn provoke_cancelled_removal(plan: &mut Plan) {
    (plan.nodes, plan.replicas, plan.duration) = (5, Some(3), Micros::SECOND * 60);
    let mut random = plan.generator("cancelled-removals");
    for node in 1..=5 {
        let leave = OperatorAction::Change { node: NodeId(node), change: HostChange::Leave };
        let stay = OperatorAction::Change { node: NodeId(node), change: HostChange::Vote };
        let left = node * 10_000;
        let actions = [operator_action(left, leave), operator_action(left + random.u64(0..2_000), stay)];
        plan.operator_actions.extend(actions);
    }
}

/// A founder with followers that have no vote.
fn provoke_lone_founder(plan: &mut Plan) {
    plan.nodes = 1;
    plan.operator_actions = [1, 2].map(|second| operator_action(second * 500, OperatorAction::Join)).to_vec();
}

/// A second entry is in flight only under load, and the first meets the empty one of the next
/// leader.
fn provoke_entries_in_flight(plan: &mut Plan) {
    plan.load.clients = 150;
    plan.load.reads_per_mille = 50;
    plan.load.pause_max = Micros::MILLISECOND * 5;
    plan.timing.request_ticks = 60;
}

/// Clients that wait for locks, and no others that let nodes report changed keys.
fn provoke_lock_waiters(plan: &mut Plan) {
    (plan.load.lock_waiters, plan.load.key_watchers, plan.load.caching_clients) = (5, 0, 0);
}

/// Clients that cache keys, at nodes that restart and get snapshots.
fn provoke_caching(plan: &mut Plan) {
    plan.load.caching_clients = 8;
    plan.load.pause_max = Micros::MILLISECOND * 20;
    plan.load.keys_per_shard = 4;
    plan.snapshot_log_bytes_min = 500;
}

/// Two voters, then one: the remaining one has to remember that durably.
fn provoke_leaving(plan: &mut Plan) {
    let leave = |node| OperatorAction::Change { node: NodeId(node), change: HostChange::Leave };
    // Any further write would bring the commit index along.
    plan.load.clients = 1;
    plan.load.pause_max = Micros::SECOND * 5;
    let random = &mut plan.generator("leave");
    let mut nodes = [1, 2, 3];
    random.shuffle(&mut nodes);
    plan.operator_actions = vec![
        operator_action(1_500, leave(nodes[0])),
        operator_action(random.u64(2_000..6_000), leave(nodes[1])),
    ];
}

/// Slots that move back and forth under load. A copy takes a while, and its leader changes often.
fn provoke_moves(plan: &mut Plan, fault: Fault) {
    let to_and_fro = |end, every_ms| {
        let there = |turn: u64| OperatorAction::MoveSlots { begin: 0, end, to: ShardId(1 + turn % 2) };
        (1..9_000 / every_ms).map(|turn| operator_action(every_ms * turn, there(turn))).collect()
    };
    plan.data_shards = 2;
    plan.load.keys_per_shard = 4;
    match fault {
        // Keys of one shard part and meet again, under connections with many commands in flight.
        Fault::MovedOperationOvertakes | Fault::HalvesReordered => {
            plan.load.pipelining_clients = 4;
            plan.operator_actions = to_and_fro(4_096, 600);
        }
        // A node misses two moves of one shard, whose leader it cannot reach, and hears of both
        // from the leaders of the registry and of the other shard; or it misses in the registry
        // that slots have moved, and asks their last owner.
        Fault::ReadBeforeMove | Fault::GivenSlotsRead => {
            if fault == Fault::GivenSlotsRead {
                plan.load.operations_per_mille = 1_000;
            }
            plan.load.keys_per_shard = 2;
            plan.load.pause_max = Micros::MILLISECOND * 4;
            plan.load.reads_per_mille = 600;
            plan.operator_actions = to_and_fro(16_384, 400);
            let random = &mut plan.generator("pairs");
            for second in [1, 5] {
                let (low, high) = *choose(random, &[(1, 2), (1, 3), (2, 3)]);
                let fault = CutPair { low: NodeId(low), high: NodeId(high), way: Way::Both }.into();
                let (at, lasts) = (Micros::SECOND * second, Micros::SECOND * 3);
                plan.faults.push(ScheduledFault { at, lasts, fault });
            }
        }
        _ => {
            // More hosts than voters a shard, so that most nodes lack one or both.
            if matches!(fault, Fault::BackupIgnoresMovesElsewhere | Fault::StaleBackupOfTwoSlotMaps) {
                (plan.nodes, plan.replicas) = (6, Some(3));
            }
            if fault == Fault::FlushSkipsMovedSlots {
                plan.load.flushes_per_mille = 20;
            }
            plan.load.pause_max = Micros::MILLISECOND * 4;
            plan.load.reads_per_mille = 300;
            plan.operator_actions = to_and_fro(16_384, 600);
        }
    }
}

/// Watchers that break their connections often.
fn provoke_watchers(plan: &mut Plan, fault: Fault) {
    let pause_max = Micros::MILLISECOND * 20;
    if matches!(fault, Fault::CaughtUpByStaleRead | Fault::RestOfRevisionSkipped) {
        // They come back soon, to nodes that are behind.
        plan.load.config_per_mille = 800;
        plan.load.watching = WatcherHabits { pause_max, absence_max: pause_max, breaks_per_mille: 200 };
        return;
    }
    // They stay away while more changes are made than one answer holds, in namespaces that keep
    // their history.
    plan.data_shards = 2;
    plan.load.clients = 40;
    plan.load.config_per_mille = 1_000;
    plan.load.pause_max = Micros::MILLISECOND * 4;
    plan.load.watching = WatcherHabits { pause_max, absence_max: Micros::SECOND * 5, breaks_per_mille: 50 };
}

/// Watchers of keys that stay away while keys change, at nodes that restart or get slots.
fn provoke_key_watchers(plan: &mut Plan, fault: Fault) {
    plan.load.key_watchers = 6;
    let (pause_max, absence_max) = (Micros::MILLISECOND * 20, Micros::SECOND * 2);
    plan.load.watching = WatcherHabits { pause_max, absence_max, breaks_per_mille: 100 };
    plan.snapshot_log_bytes_min = 500;
    match fault {
        Fault::WatchMissesMovedSlots => provoke_moves(plan, fault),
        Fault::FlushNotReported => plan.load.flushes_per_mille = 10,
        _ => {}
    }
}

fn schedule_strikes(plan: &mut Plan, fault: Fault) {
    let random = &mut plan.generator("strikes");
    let mut at = Micros::SECOND;
    while at < plan.duration {
        let lasts = Micros::MILLISECOND * random.u64(20..2_000);
        let target = match random.u8(0..3) {
            0 => Target::Node(NodeId(random.u64(1..=plan.hosts()))),
            _ => Target::LeaderOf(ShardId(random.u64(0..=1))),
        };
        plan.faults.push(ScheduledFault { at, lasts, fault: strike(fault, target, random) });
        at = at + Micros::MILLISECOND * random.u64(50..800);
    }
}

fn operator_action(at_ms: u64, operator_action: OperatorAction) -> ScheduledAction {
    ScheduledAction { at: Micros::MILLISECOND * at_ms, operator_action }
}

/// A node that dies again and again soon after its start, with a disk so slow that its requests
/// outlive it. Nothing commits without it, because the third node is down.
fn young_lives(random: &mut fastrand::Rng) -> Vec<ScheduledFault> {
    let (at, lasts, target) = (Micros::SECOND, Micros::SECOND * 9, Target::Node(NodeId(1)));
    let isolate: Strike = Isolate { target: Target::Node(NodeId(3)), way: Way::Both }.into();
    let slow: Strike = SlowDisk { target, factor: random.u64(5..30) }.into();
    let mut faults =
        vec![ScheduledFault { at, lasts, fault: isolate }, ScheduledFault { at, lasts, fault: slow }];
    for _ in 0..10 {
        let at = at + Micros::MILLISECOND * random.u64(0..9_000);
        let fault: Strike = Crash { target, loss: CrashKind::Process }.into();
        faults.push(ScheduledFault { at, lasts: Micros::MILLISECOND * random.u64(1..100), fault });
    }
    faults
}

/// The plan that is likely to reveal a fault.
fn strike(fault: Fault, target: Target, random: &mut fastrand::Rng) -> Strike {
    let blackout: Strike = Crash { target: Target::All, loss: CrashKind::Power }.into();
    let power: Strike = Crash { target, loss: CrashKind::Power }.into();
    let torn: Strike = CrashInside { target, loss: CrashKind::Power, operation: random.u64(1..20) }.into();
    let isolate: Strike = Isolate { target, way: *choose(random, &[Way::Both, Way::In, Way::Out]) }.into();
    let partition: Strike = Partition { side: random.u64(1..7), way: Way::Both }.into();
    let pause: Strike = Pause { target }.into();
    let break_links: Strike = BreakLinks { per_mille: 700 }.into();
    let slow: Strike = SlowDisk { target, factor: random.u64(5..50) }.into();
    let strikes = match fault {
        Fault::AcknowledgedBeforeSync | Fault::DurableBeforeSync | Fault::TornTailAccepted => {
            [torn, power, blackout, slow]
        }
        Fault::RefusedBatchesDurable => {
            let read_only: Strike = ReadOnlyDisk { target }.into();
            [read_only.clone(), read_only, FullDisk { target, free_bytes: 0 }.into(), power]
        }
        Fault::LedBeforeDurable | Fault::MembershipNotPersisted => [power.clone(), power, torn, slow],
        Fault::FlushNotReported
        | Fault::EvictedKeyNotInvalidated
        | Fault::TrackingGapIgnored
        | Fault::WatchGapIgnored
        | Fault::VoteNotPersisted
        | Fault::ReplicaIdReused => [power, blackout, isolate, break_links],
        Fault::ReadWithoutRound
        | Fault::AppliedOutOfOrder
        | Fault::OnlyLeaderNotifies
        | Fault::OnlyLeaderExpires
        | Fault::SkippedOperationExecuted
        | Fault::CaughtUpByStaleRead
        | Fault::ChangesSkipped
        | Fault::RestOfRevisionSkipped
        | Fault::NewCommandBeforeRaise
        | Fault::ClaimedAuthorDropped
        | Fault::RenewalNotApplied
        | Fault::LeaseFloorIgnored
        | Fault::FenceUsedTwice
        | Fault::StaleReadNotReported
        | Fault::CancelledLeaseQueued
        | Fault::UnequalValuesMatch
        | Fault::ScriptWithoutCondition
        | Fault::DeposedSessionAnswered
        | Fault::OvertakenCommandRetried
        | Fault::OutcomeThroughLaterLink
        | Fault::ImportWithoutCondition
        | Fault::PreviewCommitted
        | Fault::ContainerSchemaIgnored => [isolate, partition, pause, slow],
        // A restarted node knows an old slot map, and learns the newer one while it waits for its
        // shards.
        Fault::ScanByLaterMap => [Crash { target, loss: CrashKind::Process }.into(), isolate, pause, slow],
        Fault::ReceiverClockUsed | Fault::ClockStepIgnored | Fault::LeaseNotShortened => {
            let set: Strike = SetClock { target, ahead_ms: random.i64(-60_000..60_000) }.into();
            [set.clone(), set.clone(), set, isolate]
        }
        // Hosts that exchange their addresses and advertise no names.
        Fault::UnexpectedNodeAccepted | Fault::StaleAddressKept => {
            let exchange = exchange_addresses(random);
            [exchange.clone(), exchange, power, break_links]
        }
        Fault::OldCopyAccepted => [OldCopy { target }.into(), OldCopy { target }.into(), power, isolate],
        _ => [isolate, pause, slow, break_links],
    };
    choose(random, &strikes).clone()
}

fn exchange_addresses(random: &mut fastrand::Rng) -> Strike {
    Relocate {
        hosts: 1 << random.u64(0..3) | 1 << random.u64(0..3),
        relocation: Relocation::Exchange,
        down: Micros::MILLISECOND * 100,
        name_lag: Micros::MILLISECOND * 500,
    }
    .into()
}
