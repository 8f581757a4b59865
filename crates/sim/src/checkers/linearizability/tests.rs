use super::*;
use crate::checkers::fixture::{Story, always, version};
use crate::checkers::lineage::lineages;
use tidelock_core::command::Refusal;

fn verdict(story: &Story) -> Result<(), Violation> {
    check(&lineages(&story.history).expect("the fault is one of order"))
}

#[track_caller]
fn fails(story: &Story, expected: &str) {
    let message = verdict(story).expect_err("the checker must see this").message;
    assert!(message.contains(expected), "{message}");
}

#[track_caller]
fn holds(story: &Story) {
    assert_eq!(verdict(story), Ok(()));
}

#[test]
fn a_read_behind_an_acknowledged_write_fails() {
    let mut story = Story::default();
    let first = story.puts(1, true);
    story.puts(2, false);
    let get = story.get();
    story.sees(get, 1, first);
    fails(&story, "version 2 had been current");
}

#[test]
fn a_read_behind_another_read_fails_even_if_both_race_with_the_write() {
    let mut story = Story::default();
    let first = story.puts(1, true);
    let second = story.put(always());
    let get = story.get();
    story.sees(get, 2, second);
    let get = story.get();
    story.sees(get, 1, first);
    story.written(second, 2, false);
    fails(&story, "version 2 had been current");
}

#[test]
fn reads_that_race_with_a_write_may_see_either() {
    let mut story = Story::default();
    let first = story.puts(1, true);
    let second = story.put(always());
    let (early, late) = (story.get(), story.get());
    story.sees(late, 2, second);
    story.sees(early, 1, first);
    story.written(second, 2, false);
    holds(&story);
}

#[test]
fn versions_against_real_time_fail() {
    let mut story = Story::default();
    story.puts(2, true);
    story.puts(1, true);
    fails(&story, "was invoked after version 2");
}

#[test]
fn a_write_seen_before_it_was_invoked_fails() {
    let mut story = Story::default();
    story.puts(1, true);
    let failed = story.put(version(9));
    story.condition_failed(failed, 3);
    story.puts(3, false);
    fails(&story, "was invoked after version 3");
}

#[test]
fn an_absence_after_an_acknowledged_put_fails() {
    let mut story = Story::default();
    story.puts(1, true);
    let get = story.get();
    story.not_found(get);
    fails(&story, "no delete fits");
}

#[test]
fn an_absence_before_its_delete_was_invoked_fails() {
    let mut story = Story::default();
    story.puts(1, true);
    let get = story.get();
    story.not_found(get);
    story.deletes(2);
    fails(&story, "no delete fits");
}

#[test]
fn an_absence_between_delete_and_put_holds_and_binds_later_reads() {
    let mut story = Story::default();
    let first = story.puts(1, true);
    let delete = story.delete(always());
    let get = story.get();
    story.not_found(get);
    holds(&story);
    let get = story.get();
    story.sees(get, 1, first);
    story.deleted(delete, 2);
    fails(&story, "no delete fits");
}

#[test]
fn an_unknown_delete_explains_one_absence_only() {
    let mut story = Story::default();
    story.puts(1, true);
    let delete = story.delete(always());
    story.refused(delete, Refusal::UnknownOutcome);
    let get = story.get();
    story.not_found(get);
    story.puts(3, true);
    holds(&story);
    let get = story.get();
    story.not_found(get);
    fails(&story, "more often than deletes can explain");
}

#[test]
fn an_unknown_delete_needs_a_version_of_its_own() {
    let mut story = Story::default();
    story.puts(1, true);
    let delete = story.delete(always());
    story.refused(delete, Refusal::UnknownOutcome);
    story.puts(2, true);
    fails(&story, "more often than deletes can explain");
}

#[test]
fn a_refused_delete_explains_nothing() {
    let mut story = Story::default();
    story.puts(1, true);
    let delete = story.delete(always());
    story.refused(delete, Refusal::NoLeader);
    let get = story.get();
    story.not_found(get);
    fails(&story, "no delete fits");
}

#[test]
fn a_conditional_put_that_skips_a_version_fails() {
    let mut story = Story::default();
    story.puts(1, true);
    story.puts(2, false);
    let put = story.put(version(1));
    story.written(put, 3, false);
    fails(&story, "conditional on version 1");
}

#[test]
fn two_conditional_puts_on_one_version_fail() {
    let mut story = Story::default();
    story.puts(1, true);
    let (one, other) = (story.put(version(1)), story.put(version(1)));
    story.written(one, 2, false);
    story.written(other, 3, false);
    fails(&story, "conditional on version 1");
}

#[test]
fn two_creations_without_a_delete_fail() {
    let mut story = Story::default();
    let (one, other) = (story.put(version(0)), story.put(version(0)));
    story.written(one, 1, true);
    story.written(other, 3, true);
    fails(&story, "more often than deletes can explain");
}

#[test]
fn a_replacement_of_nothing_fails() {
    let mut story = Story::default();
    story.puts(1, false);
    fails(&story, "did not exist");
}

#[test]
fn a_reply_against_its_condition_fails() {
    let mut story = Story::default();
    let put = story.put(version(0));
    story.written(put, 1, false);
    fails(&story, "contradicts its condition");
}

#[test]
fn a_version_that_nobody_wrote_fails_and_one_of_an_unknown_put_holds() {
    let mut story = Story::default();
    let put = story.put(version(5));
    story.condition_failed(put, 3);
    fails(&story, "which nobody wrote");

    let mut story = Story::default();
    let unknown = story.put(always());
    story.refused(unknown, Refusal::UnknownOutcome);
    let put = story.put(version(5));
    story.condition_failed(put, 3);
    holds(&story);
}

#[test]
fn a_sighting_at_the_version_of_a_delete_fails() {
    let mut story = Story::default();
    story.puts(1, true);
    story.deletes(2);
    let put = story.put(version(1));
    story.condition_failed(put, 2);
    fails(&story, "that of a delete");
}

#[test]
fn what_a_stale_read_saw_was_committed() {
    let mut story = Story::default();
    let first = story.puts(1, true);
    let unknown = story.put(always());
    let stale = story.get_stale();
    story.sees(stale, 2, unknown);
    let get = story.get();
    story.sees(get, 1, first);
    story.refused(unknown, Refusal::UnknownOutcome);
    fails(&story, "version 2 had been current");
}

#[test]
fn a_stale_read_may_be_old() {
    let mut story = Story::default();
    let first = story.puts(1, true);
    story.puts(2, false);
    let stale = story.get_stale();
    story.sees(stale, 1, first);
    let stale = story.get_stale();
    story.not_found(stale);
    holds(&story);
}
