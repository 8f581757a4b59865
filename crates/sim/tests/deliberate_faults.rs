//! Proves that the simulator can fail: it detects every deliberate fault of the core, and the same
//! runs pass without the fault.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tidelock_core::command::HostChange;
use tidelock_core::deliberate::{Fault, Faults};
use tidelock_core::event::DivisionTiming;
use tidelock_core::types::{NodeId, ShardId};
use tidelock_sim::busy_shards;
use tidelock_sim::event_queue::Micros;
use tidelock_sim::faults::addresses::{Relocate, Relocation};
use tidelock_sim::faults::clocks::SetClock;
use tidelock_sim::faults::disks::{FullDisk, OldCopy, ReadOnlyDisk, SlowDisk};
use tidelock_sim::faults::network::{BreakLinks, CutPair, Isolate, Partition};
use tidelock_sim::faults::processes::{Crash, CrashInside, Pause};
use tidelock_sim::faults::{CrashKind, Fault as Strike, ScheduledFault, Target, Way, choose};
use tidelock_sim::operator_actions::{OperatorAction, ScheduledAction};
use tidelock_sim::plan::{NO_DIVISION, Plan, WatcherHabits};
use tidelock_sim::run::{self, Failure};
use tidelock_sim::shrink::shrink;
use tidelock_sim::trace::Detail;

/// Number of seeds within which each fault must be detected.
const SEEDS_MAX: u64 = 1_000;

/// Number of the same runs that must pass without the fault, besides the one that detected it.
const HELD_SEEDS: u64 = 5;

/// A short, hard plan without deliberate faults: few keys, small logs, and frequent faults of the
/// kinds that the deliberate one needs.
fn plan(seed: u64, fault: Fault) -> Plan {
    // Only a cluster without other faults has to serve all the time.
    if matches!(fault, Fault::SlowDiskIgnored | Fault::HangingDiskAwaited) {
        return Plan::draw_slow_disks(seed);
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
    let is_of_withdrawals = fault == Fault::WithdrawalNotReported;
    let fault = if is_of_drafts(fault) { Fault::ContainerSchemaIgnored } else { fault };
    provoke(&mut plan, fault);
    if is_of_withdrawals {
        // A later change of the container would be reported, so what counts is how many runs end.
        plan.duration = Micros::SECOND * 3;
        plan.load.config_per_mille = 1_000;
        return plan;
    }
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

/// More hosts than voters a shard, with a new shard, with a host that leaves, or with transactions
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
        Fault::OwnedBeforeLastRows
        | Fault::OldAttemptAccepted
        | Fault::ScanByLaterMap
        | Fault::ReadBeforeMove
        | Fault::GivenSlotsRead
        | Fault::MovedOperationOvertakes
        | Fault::FlushSkipsMovedSlots
        | Fault::HalvesReordered => provoke_moves(plan, fault),
        _ if is_of_backups(fault) => provoke_moves(plan, fault),
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
        Fault::DefaultIgnoredByNewShards | Fault::SpanningTransactionsIgnored | Fault::VoterLeavesEarly => {
            provoke_more_hosts(plan, fault)
        }
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
        Fault::ReceiverClockUsed | Fault::ClockStepIgnored => {
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

fn broken(seed: u64, fault: Fault) -> Plan {
    Plan { deliberate: Faults::only(fault), ..plan(seed, fault) }
}

/// The first seed that reveals a fault, searched on all processors.
fn first_failure(fault: Fault) -> Box<Failure> {
    let (next, found) = (AtomicU64::new(0), AtomicBool::new(false));
    let failures = Mutex::new(Vec::new());
    let search = || {
        while !found.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= SEEDS_MAX {
                return;
            }
            if let Err(failure) = run::run(&broken(seed, fault), Detail::Hash) {
                found.store(true, Ordering::Relaxed);
                failures.lock().expect("no search panics").push(failure);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(search);
        }
    });
    // Seeds are taken in order and each run is finished, so the lowest failed seed is the first one
    // that fails.
    let failures = failures.into_inner().expect("no search panics");
    let first = failures.into_iter().min_by_key(|failure| failure.seed);
    first.unwrap_or_else(|| panic!("{SEEDS_MAX} seeds do not catch {fault:?}"))
}

/// Checks that one of `checkers` detects the fault, and that the same run without the fault passes.
fn caught(fault: Fault, checkers: &[&str]) {
    let failure = first_failure(fault);
    let (seed, violation) = (failure.seed, &failure.violation);
    println!("{fault:?}: seed {seed} at {}: {violation}", failure.at);
    assert!(checkers.contains(&violation.checker), "{fault:?} is noticed by {violation}");
    for seed in (0..HELD_SEEDS).chain([seed]) {
        let unbroken = run::run(&plan(seed, fault), Detail::Hash);
        assert!(unbroken.is_ok(), "seed {seed} fails without {fault:?} too: {unbroken:?}");
    }
}

#[test]
fn acknowledged_before_sync_is_caught() {
    caught(
        Fault::AcknowledgedBeforeSync,
        &["agreement", "contradiction", "durability", "leaders", "linearizability", "operations", "panic"],
    );
}

#[test]
fn durable_before_sync_is_caught() {
    caught(
        Fault::DurableBeforeSync,
        &["agreement", "contradiction", "durability", "linearizability", "operations", "panic"],
    );
}

#[test]
fn refused_batches_durable_is_caught() {
    caught(
        Fault::RefusedBatchesDurable,
        &["agreement", "durability", "linearizability", "operations", "panic", "recovery"],
    );
}

#[test]
fn led_before_durable_is_caught() {
    caught(Fault::LedBeforeDurable, &["agreement", "replicas", "linearizability", "operations", "lineage"]);
}

#[test]
fn owned_before_last_rows_is_caught() {
    caught(
        Fault::OwnedBeforeLastRows,
        &["durability", "linearizability", "lineage", "operations", "replicas", "slots"],
    );
}

#[test]
fn waiting_for_a_lock_without_reports_is_caught() {
    caught(Fault::StaleReadNotReported, &["lock waits"]);
}

#[test]
fn a_lease_that_stays_in_the_queue_is_caught() {
    caught(Fault::CancelledLeaseQueued, &["lock waits"]);
}

#[test]
fn scripts_that_overwrite_each_other_are_caught() {
    caught(Fault::ScriptWithoutCondition, &["scripts"]);
}

#[test]
fn a_gap_before_the_kept_changes_is_caught() {
    caught(Fault::WatchGapIgnored, &["key watches"]);
}

#[test]
fn changes_missed_with_moved_slots_are_caught() {
    caught(Fault::WatchMissesMovedSlots, &["key watches"]);
}

#[test]
fn a_flush_that_watchers_do_not_notice_is_caught() {
    caught(Fault::FlushNotReported, &["key watches"]);
}

#[test]
fn a_flush_that_slots_move_past_is_caught() {
    caught(Fault::FlushSkipsMovedSlots, &["flushes"]);
}

#[test]
fn a_renewal_that_is_only_answered_is_caught() {
    caught(Fault::RenewalNotApplied, &["leases", "operations"]);
}

#[test]
fn leases_that_end_early_under_a_new_leader_are_caught() {
    caught(Fault::LeaseFloorIgnored, &["leases"]);
}

#[test]
fn leases_that_end_because_a_clock_was_set_are_caught() {
    caught(Fault::ClockStepIgnored, &["leases"]);
}

#[test]
fn a_fence_of_two_holders_is_caught() {
    caught(Fault::FenceUsedTwice, &["leases", "operations"]);
}

#[test]
fn leases_left_behind_by_a_move_are_caught() {
    caught(Fault::LeasesLeftBehind, &["leases", "operations"]);
}

#[test]
fn old_attempt_believed_is_caught() {
    caught(Fault::OldAttemptAccepted, &["durability", "linearizability", "lineage", "operations"]);
}

#[test]
fn read_before_move_is_caught() {
    caught(Fault::ReadBeforeMove, &["staleness", "lineage", "lists", "operations"]);
}

#[test]
fn reads_of_operations_on_given_slots_are_caught() {
    caught(Fault::GivenSlotsRead, &["operations"]);
}

#[test]
fn scan_by_later_map_is_caught() {
    caught(Fault::ScanByLaterMap, &["scans"]);
}

#[test]
fn writes_discarded_is_caught() {
    caught(Fault::WritesDiscarded, &["durability", "linearizability", "operations"]);
}

#[test]
fn shard_removed_with_slots_is_caught() {
    caught(Fault::ShardRemovedWithSlots, &["slots", "service", "membership", "durability"]);
}

#[test]
fn default_ignored_by_new_shards_is_caught() {
    caught(Fault::DefaultIgnoredByNewShards, &["placement"]);
}

#[test]
fn voter_leaves_early_is_caught() {
    caught(Fault::VoterLeavesEarly, &["replacements"]);
}

#[test]
fn spanning_transactions_ignored_is_caught() {
    caught(Fault::SpanningTransactionsIgnored, &["division"]);
}

#[test]
fn new_command_before_raise_is_caught() {
    caught(Fault::NewCommandBeforeRaise, &["versions"]);
}

#[test]
fn news_of_the_leader_alone() {
    caught(Fault::OnlyLeaderNotifies, &["config"]);
}

#[test]
fn changes_skipped_is_caught() {
    caught(Fault::ChangesSkipped, &["config", "lives"]);
}

#[test]
fn rest_of_a_revision_skipped_is_caught() {
    caught(Fault::RestOfRevisionSkipped, &["config", "lives"]);
}

#[test]
fn caught_up_by_stale_read_is_caught() {
    caught(Fault::CaughtUpByStaleRead, &["config", "lives"]);
}

#[test]
fn expired_by_leader_alone_is_caught() {
    caught(Fault::OnlyLeaderExpires, &["replicas", "operations"]);
}

#[test]
fn time_of_node_asked_is_caught() {
    caught(Fault::ReceiverClockUsed, &["operations"]);
}

#[test]
fn unequal_values_that_match_are_caught() {
    caught(Fault::UnequalValuesMatch, &["operations"]);
}

#[test]
fn outcomes_not_in_a_snapshot_are_missed() {
    caught(Fault::OutcomesNotInSnapshot, &["operations", "replicas", "checkpoints"]);
}

#[test]
fn skipped_operation_executed_is_caught() {
    caught(Fault::SkippedOperationExecuted, &["operations"]);
}

#[test]
fn change_not_remembered_is_caught() {
    caught(Fault::MembershipNotPersisted, &["membership", "service"]);
}

#[test]
fn vote_not_persisted_is_caught() {
    caught(Fault::VoteNotPersisted, &["leaders", "agreement", "replicas"]);
}

#[test]
fn read_without_round_is_caught() {
    caught(Fault::ReadWithoutRound, &["linearizability", "operations"]);
}

#[test]
fn applied_out_of_order_is_caught() {
    caught(Fault::AppliedOutOfOrder, &["replicas"]);
}

#[test]
fn stale_snapshot_installed_is_caught() {
    caught(
        Fault::StaleSnapshotInstalled,
        &["replicas", "durability", "linearizability", "lineage", "operations", "checkpoints"],
    );
}

#[test]
fn replica_id_reused_is_caught() {
    caught(Fault::ReplicaIdReused, &["agreement", "durability", "leaders", "linearizability", "operations"]);
}

#[test]
fn old_copy_believed_is_caught() {
    caught(
        Fault::OldCopyAccepted,
        &["agreement", "contradiction", "durability", "leaders", "linearizability", "operations", "replicas"],
    );
}

#[test]
fn deposed_session_answered_is_caught() {
    caught(Fault::DeposedSessionAnswered, &["linearizability", "operations", "lineage"]);
}

#[test]
fn torn_tail_believed_is_caught() {
    caught(Fault::TornTailAccepted, &["agreement", "recovery", "replicas"]);
}

#[test]
fn outcome_through_later_link_is_caught() {
    caught(Fault::OutcomeThroughLaterLink, &["linearizability", "operations", "lineage"]);
}

#[test]
fn overtaken_tried_again_is_caught() {
    caught(Fault::OvertakenCommandRetried, &["linearizability", "operations", "lineage", "pipelines"]);
}

#[test]
fn checkpoint_taken_late_is_caught() {
    caught(Fault::CheckpointTakenLate, &["checkpoints"]);
}

#[test]
fn reply_that_overtakes_is_caught() {
    caught(Fault::ReplyOvertakes, &["pipelines"]);
}

#[test]
fn moved_operation_that_overtakes_is_caught() {
    caught(Fault::MovedOperationOvertakes, &["pipelines"]);
}

#[test]
fn halves_in_the_wrong_order_are_caught() {
    caught(Fault::HalvesReordered, &["pipelines", "lineage", "panic"]);
}

#[test]
fn slow_disk_ignored_is_caught() {
    caught(Fault::SlowDiskIgnored, &["availability"]);
}

#[test]
fn hanging_disk_awaited_is_caught() {
    caught(Fault::HangingDiskAwaited, &["availability"]);
}

#[test]
fn a_failing_run_shrinks_and_still_fails() {
    let fault = Fault::AcknowledgedBeforeSync;
    let failing = broken(first_failure(fault).seed, fault);
    let shrunk = shrink(&failing, 100).expect("it fails");
    println!(
        "after {} attempts {} of {} faults are left: {:#?}",
        shrunk.attempts,
        shrunk.plan.faults.len(),
        failing.faults.len(),
        shrunk.plan
    );
    assert!(shrunk.attempts <= 100);
    assert!(!shrunk.plan.faults.is_empty() && shrunk.plan.faults.len() < failing.faults.len());
    assert!(shrunk.plan.duration < failing.duration);
    let again = run::run(&shrunk.plan, Detail::Hash).expect_err("what was shrunk fails");
    assert_eq!(again.violation, shrunk.failure.violation);
}

#[test]
fn import_without_condition_is_caught() {
    caught(Fault::ImportWithoutCondition, &["config"]);
}

#[test]
fn container_schema_ignored_is_caught() {
    caught(Fault::ContainerSchemaIgnored, &["config", "lives"]);
}

#[test]
fn grandchild_forgotten_is_caught() {
    caught(Fault::GrandchildForgotten, &["config", "lives"]);
}

#[test]
fn unapproved_draft_published_is_caught() {
    caught(Fault::UnapprovedDraftPublished, &["lives"]);
}

#[test]
fn canary_shown_to_all_is_caught() {
    caught(Fault::CanaryShownToAll, &["lives"]);
}

#[test]
fn withdrawal_not_reported_is_caught() {
    caught(Fault::WithdrawalNotReported, &["config", "lives"]);
}

#[test]
fn preview_committed_is_caught() {
    caught(Fault::PreviewCommitted, &["config", "lives"]);
}

#[test]
fn backup_of_two_slot_maps_is_caught() {
    caught(Fault::BackupOfTwoSlotMaps, &["backups", "durability", "linearizability", "lineage", "lists"]);
}

#[test]
fn stale_backup_of_two_slot_maps_is_caught() {
    caught(Fault::StaleBackupOfTwoSlotMaps, &["backups"]);
}

#[test]
fn backup_that_ignores_moves_elsewhere_is_caught() {
    caught(
        Fault::BackupIgnoresMovesElsewhere,
        &["backups", "durability", "linearizability", "lineage", "lists"],
    );
}

#[test]
fn caller_lost_in_forward_is_caught() {
    caught(Fault::CallerLostInForward, &["permissions"]);
}

#[test]
fn only_first_demand_checked_is_caught() {
    caught(Fault::OnlyFirstDemandChecked, &["permissions"]);
}

#[test]
fn a_join_token_that_admits_two_hosts_is_detected() {
    caught(Fault::JoinTokenReused, &["admissions"]);
}

#[test]
fn audit_record_lost_is_caught() {
    caught(Fault::AuditRecordLost, &["audit"]);
}

#[test]
fn claimed_author_dropped_is_caught() {
    caught(Fault::ClaimedAuthorDropped, &["lives"]);
}

#[test]
fn unexpected_node_accepted_is_caught() {
    caught(Fault::UnexpectedNodeAccepted, &["identity"]);
}

#[test]
fn stale_address_kept_is_caught() {
    caught(Fault::StaleAddressKept, &["membership", "service", "replies", "registry"]);
}

#[test]
fn evicted_key_not_invalidated_is_caught() {
    caught(Fault::EvictedKeyNotInvalidated, &["caches"]);
}

#[test]
fn tracking_gap_ignored_is_caught() {
    caught(Fault::TrackingGapIgnored, &["caches"]);
}

#[test]
fn publication_to_one_peer_is_caught() {
    caught(Fault::PublicationToOnePeer, &["publications"]);
}

#[test]
fn publication_sent_twice_is_caught() {
    caught(Fault::PublicationSentTwice, &["publications"]);
}

/// Random runs have too little load to show it, so a scenario of its own does.
#[test]
fn leaderships_by_number_are_caught() {
    let violation =
        busy_shards::check(0, Faults::only(Fault::LeadershipsByNumber)).expect_err("one node leads both");
    assert_eq!(violation.checker, "leaderships");
    busy_shards::check(0, Faults::NONE).expect("holds without the fault");
}
