//! Proves that the simulator can fail: it detects every deliberate fault of the core, and the same
//! runs pass without the fault.

mod plans;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use plans::plan;
use tidelock_core::deliberate::{Fault, Faults};
use tidelock_sim::busy_shards;
use tidelock_sim::busy_votes;
use tidelock_sim::hot_slots::{self, SpanningTransactions};
use tidelock_sim::plan::Plan;
use tidelock_sim::run::{self, Failure};
use tidelock_sim::shrink::shrink;
use tidelock_sim::trace::Detail;

/// Number of seeds within which each fault must be detected.
const SEEDS_MAX: u64 = 1_000;

/// Number of the same runs that must pass without the fault, besides the one that detected it.
const HELD_SEEDS: u64 = 3;

/// The seed at which the search for a failure begins. Some faults show in few seeds: their search
/// begins at a seed in which they are known to show, so that it is short. If the fault no longer
/// shows in that seed, the search goes on with later seeds.
fn search_start(fault: Fault) -> u64 {
    match fault {
        Fault::CallerLostInForward => 10,
        Fault::ContainerSchemaIgnored => 357,
        Fault::GrandchildForgotten => 168,
        Fault::JoinTokenReused => 80,
        Fault::OldAttemptAccepted => 157,
        Fault::ReadBeforeMove => 150,
        Fault::WithdrawalNotReported => 135,
        _ => 0,
    }
}

fn broken(seed: u64, fault: Fault) -> Plan {
    Plan { deliberate: Faults::only(fault), ..plan(seed, fault) }
}

/// The first seed from `search_start` on that reveals a fault, searched on all processors.
fn first_failure(fault: Fault) -> Box<Failure> {
    let start = search_start(fault);
    let (next, found) = (AtomicU64::new(start), AtomicBool::new(false));
    let failures = Mutex::new(Vec::new());
    let search = || {
        while !found.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= start + SEEDS_MAX {
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
    first.unwrap_or_else(|| panic!("{SEEDS_MAX} seeds from {start} on do not catch {fault:?}"))
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
fn leases_that_a_clock_ahead_has_made_too_long_are_caught() {
    caught(Fault::LeaseNotShortened, &["leases"]);
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

/// Checkers that notice that founders with empty disks have founded the cluster again.
const FOUNDED_AGAIN: [&str; 7] =
    ["agreement", "contradiction", "durability", "leaders", "linearizability", "operations", "replicas"];

#[test]
fn empty_founder_continues_is_caught() {
    caught(Fault::EmptyFounderContinues, &FOUNDED_AGAIN);
}

#[test]
fn empty_founder_votes_is_caught() {
    caught(Fault::EmptyFounderVotes, &FOUNDED_AGAIN);
}

#[test]
fn removal_cancelled_too_late_is_caught() {
    caught(Fault::RemovalCancelledTooLate, &["membership", "placement"]);
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
fn a_trace_that_sticks_to_the_next_request_is_caught() {
    caught(Fault::TraceOfEarlierRequest, &["spans"]);
}

#[test]
fn a_span_that_does_not_end_is_caught() {
    caught(Fault::SpanNotEnded, &["spans"]);
}

#[test]
fn leaderships_by_number_are_caught() {
    let violation =
        busy_shards::check(0, Faults::only(Fault::LeadershipsByNumber)).expect_err("one node leads both");
    assert_eq!(violation.checker, "leaderships");
    busy_shards::check(0, Faults::NONE).expect("holds without the fault");
}

#[test]
fn votes_by_number_are_caught() {
    let violation =
        busy_votes::check(0, Faults::only(Fault::VotesByNumber)).expect_err("a node votes in both");
    assert_eq!(violation.checker, "votes");
    busy_votes::check(0, Faults::NONE).expect("holds without the fault");
}

#[test]
fn hot_slots_not_moved_are_caught() {
    let fault = Faults::only(Fault::HotSlotsNotMoved);
    let violation = hot_slots::check(0, SpanningTransactions::None, fault).expect_err("one shard keeps all");
    assert_eq!(violation.checker, "slots");
    let fault = Faults::only(Fault::SpanningTransactionsIgnored);
    let violation =
        hot_slots::check(0, SpanningTransactions::One, fault).expect_err("slots move all the same");
    assert_eq!(violation.checker, "division");
}
