use super::*;
use crate::checkers::fixture::{HistoryBuilder, always, version};
use crate::checkers::lineage::lineages;
use tidelock_core::command::Refusal;

fn verdict(history_builder: &HistoryBuilder) -> Result<(), Violation> {
    check(&lineages(&history_builder.history).expect("the fault is one of order"))
}

#[track_caller]
fn fails(history_builder: &HistoryBuilder, expected: &str) {
    let message = verdict(history_builder).expect_err("the checker must see this").message;
    assert!(message.contains(expected), "{message}");
}

#[track_caller]
fn holds(history_builder: &HistoryBuilder) {
    assert_eq!(verdict(history_builder), Ok(()));
}

#[test]
fn a_read_behind_an_acknowledged_write_fails() {
    let mut history_builder = HistoryBuilder::default();
    let first = history_builder.puts(1, true);
    history_builder.puts(2, false);
    let get = history_builder.get();
    history_builder.sees(get, 1, first);
    fails(&history_builder, "version 2 had been current");
}

#[test]
fn a_read_behind_another_read_fails_even_if_both_race_with_the_write() {
    let mut history_builder = HistoryBuilder::default();
    let first = history_builder.puts(1, true);
    let second = history_builder.put(always());
    let get = history_builder.get();
    history_builder.sees(get, 2, second);
    let get = history_builder.get();
    history_builder.sees(get, 1, first);
    history_builder.written(second, 2, false);
    fails(&history_builder, "version 2 had been current");
}

#[test]
fn reads_that_race_with_a_write_may_see_either() {
    let mut history_builder = HistoryBuilder::default();
    let first = history_builder.puts(1, true);
    let second = history_builder.put(always());
    let (early, late) = (history_builder.get(), history_builder.get());
    history_builder.sees(late, 2, second);
    history_builder.sees(early, 1, first);
    history_builder.written(second, 2, false);
    holds(&history_builder);
}

#[test]
fn versions_against_real_time_fail() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(2, true);
    history_builder.puts(1, true);
    fails(&history_builder, "was invoked after version 2");
}

#[test]
fn a_write_seen_before_it_was_invoked_fails() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, true);
    let failed = history_builder.put(version(9));
    history_builder.condition_failed(failed, 3);
    history_builder.puts(3, false);
    fails(&history_builder, "was invoked after version 3");
}

#[test]
fn an_absence_after_an_acknowledged_put_fails() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, true);
    let get = history_builder.get();
    history_builder.not_found(get);
    fails(&history_builder, "no delete fits");
}

#[test]
fn an_absence_before_its_delete_was_invoked_fails() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, true);
    let get = history_builder.get();
    history_builder.not_found(get);
    history_builder.deletes(2);
    fails(&history_builder, "no delete fits");
}

#[test]
fn an_absence_between_delete_and_put_holds_and_binds_later_reads() {
    let mut history_builder = HistoryBuilder::default();
    let first = history_builder.puts(1, true);
    let delete = history_builder.delete(always());
    let get = history_builder.get();
    history_builder.not_found(get);
    holds(&history_builder);
    let get = history_builder.get();
    history_builder.sees(get, 1, first);
    history_builder.deleted(delete, 2);
    fails(&history_builder, "no delete fits");
}

#[test]
fn an_unknown_delete_explains_one_absence_only() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, true);
    let delete = history_builder.delete(always());
    history_builder.refused(delete, Refusal::UnknownOutcome);
    let get = history_builder.get();
    history_builder.not_found(get);
    history_builder.puts(3, true);
    holds(&history_builder);
    let get = history_builder.get();
    history_builder.not_found(get);
    fails(&history_builder, "more often than deletes can explain");
}

#[test]
fn an_unknown_delete_needs_a_version_of_its_own() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, true);
    let delete = history_builder.delete(always());
    history_builder.refused(delete, Refusal::UnknownOutcome);
    history_builder.puts(2, true);
    fails(&history_builder, "more often than deletes can explain");
}

#[test]
fn a_refused_delete_explains_nothing() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, true);
    let delete = history_builder.delete(always());
    history_builder.refused(delete, Refusal::NoLeader);
    let get = history_builder.get();
    history_builder.not_found(get);
    fails(&history_builder, "no delete fits");
}

#[test]
fn a_conditional_put_that_skips_a_version_fails() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, true);
    history_builder.puts(2, false);
    let put = history_builder.put(version(1));
    history_builder.written(put, 3, false);
    fails(&history_builder, "conditional on version 1");
}

#[test]
fn two_conditional_puts_on_one_version_fail() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, true);
    let (one, other) = (history_builder.put(version(1)), history_builder.put(version(1)));
    history_builder.written(one, 2, false);
    history_builder.written(other, 3, false);
    fails(&history_builder, "conditional on version 1");
}

#[test]
fn two_creations_without_a_delete_fail() {
    let mut history_builder = HistoryBuilder::default();
    let (one, other) = (history_builder.put(version(0)), history_builder.put(version(0)));
    history_builder.written(one, 1, true);
    history_builder.written(other, 3, true);
    fails(&history_builder, "more often than deletes can explain");
}

#[test]
fn a_replacement_of_nothing_fails() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, false);
    fails(&history_builder, "did not exist");
}

#[test]
fn a_reply_against_its_condition_fails() {
    let mut history_builder = HistoryBuilder::default();
    let put = history_builder.put(version(0));
    history_builder.written(put, 1, false);
    fails(&history_builder, "contradicts its condition");
}

#[test]
fn a_version_that_nobody_wrote_fails_and_one_of_an_unknown_put_holds() {
    let mut history_builder = HistoryBuilder::default();
    let put = history_builder.put(version(5));
    history_builder.condition_failed(put, 3);
    fails(&history_builder, "which no client wrote");

    let mut history_builder = HistoryBuilder::default();
    let unknown = history_builder.put(always());
    history_builder.refused(unknown, Refusal::UnknownOutcome);
    let put = history_builder.put(version(5));
    history_builder.condition_failed(put, 3);
    holds(&history_builder);
}

#[test]
fn a_sighting_at_the_version_of_a_delete_fails() {
    let mut history_builder = HistoryBuilder::default();
    history_builder.puts(1, true);
    history_builder.deletes(2);
    let put = history_builder.put(version(1));
    history_builder.condition_failed(put, 2);
    fails(&history_builder, "that of a delete");
}

#[test]
fn what_a_stale_read_saw_was_committed() {
    let mut history_builder = HistoryBuilder::default();
    let first = history_builder.puts(1, true);
    let unknown = history_builder.put(always());
    let stale = history_builder.get_stale();
    history_builder.sees(stale, 2, unknown);
    let get = history_builder.get();
    history_builder.sees(get, 1, first);
    history_builder.refused(unknown, Refusal::UnknownOutcome);
    fails(&history_builder, "version 2 had been current");
}

#[test]
fn a_stale_read_may_be_old() {
    let mut history_builder = HistoryBuilder::default();
    let first = history_builder.puts(1, true);
    history_builder.puts(2, false);
    let stale = history_builder.get_stale();
    history_builder.sees(stale, 1, first);
    let stale = history_builder.get_stale();
    history_builder.not_found(stale);
    holds(&history_builder);
}
