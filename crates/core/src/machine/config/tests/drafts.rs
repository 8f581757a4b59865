//! Drafts, their review, and canaries.

use super::inheritance::act;
use super::*;
use crate::command::config::{Audience, Draft, DraftAction, DraftStep, DraftView, Preview};

fn by(author: &str, operation: ConfigOperation) -> ConfigWrite {
    let stamp = Stamp { author: author.into(), message: "".into(), ..stamp(1_000) };
    ConfigWrite { stamp, ..write(operation) }
}

fn on(draft: &str, action: DraftAction) -> ConfigOperation {
    ConfigOperation::Draft { draft: draft.into(), action }
}

fn edit(config: &mut Config, author: &str, changes: Vec<Change>) -> Result<(u64, bool), ConfigError> {
    apply_write(config, by(author, on("d", DraftAction::Edit(DraftStep::Publish(changes)))))
}

fn approve(config: &mut Config, author: &str, edits: u64) -> Result<(u64, bool), ConfigError> {
    apply_write(config, by(author, on("d", DraftAction::Approve { edits })))
}

fn release(config: &mut Config, author: &str) -> Result<(u64, bool), ConfigError> {
    apply_write(config, by(author, on("d", DraftAction::Publish { edits: None })))
}

fn begin(config: &mut Config) -> Result<(u64, bool), ConfigError> {
    let audience = Audience { labels: vec!["early".into()], percent: 0 };
    apply_write(config, by("ann", on("d", DraftAction::Canary { edits: None, audience })))
}

fn view(config: &Config) -> DraftView {
    match ask(config, Query::Draft { draft: "d".into() }) {
        Ok(ConfigReply::Draft(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn drafts(config: &Config) -> Vec<Arc<Draft>> {
    match ask(config, Query::Drafts) {
        Ok(ConfigReply::Drafts { drafts, .. }) => drafts.into_iter().map(|(_, draft)| draft).collect(),
        other => panic!("{other:?}"),
    }
}

fn as_reader(label: &str, query: Query) -> Query {
    Query::Labelled { label: label.into(), query: query.into() }
}

fn read_as(config: &Config, label: &str) -> String {
    let query = as_reader(label, Query::Container { key: "c".into(), at: None, known: None });
    match ask(config, query) {
        Ok(ConfigReply::Container(found)) => found.document(),
        other => panic!("{other:?}"),
    }
}

fn changes_for(config: &Config, label: &str, after: u64) -> Vec<(u64, Option<String>)> {
    let changes = match ask(config, as_reader(label, Query::Changes { key: "c".into(), after })) {
        Ok(ConfigReply::Changes(changes)) => changes,
        other => panic!("{other:?}"),
    };
    let query = Query::NamespaceChanges { after: Some(WatchPosition::through(after)) };
    let Ok(ConfigReply::NamespaceChanges(all)) = ask(config, as_reader(label, query)) else { panic!() };
    let of_namespace: Vec<_> =
        named(&all.events).into_iter().map(|(revision, _, text)| (revision, text)).collect();
    let shown: Vec<_> = shown(&changes.events).into_iter().collect();
    assert_eq!(shown, of_namespace, "watchers of a namespace and of a container disagree");
    shown
}

#[test]
fn a_draft_changes_nothing_until_it_is_published_as_one_revision() {
    let mut config = sample();
    assert_eq!(edit(&mut config, "ann", vec![int("p", 7)]), Ok((2, true)));
    assert_eq!(edit(&mut config, "bob", vec![int("q", 8)]), Ok((2, true)));
    assert_eq!(document(&config, "c", None).unwrap(), r#"{"f":1}"#);
    let shown = view(&config);
    assert_eq!((shown.revision, shown.draft.edits, shown.draft.steps.len()), (2, 2, 1));
    let effect = shown.effect.expect("it can be published");
    assert_eq!(effect.documents.len(), 1);
    assert_eq!(effect.documents[0].after.as_deref(), Some(r#"{"f":7}"#));
    assert_eq!(release(&mut config, "cy"), Ok((3, true)));
    assert_eq!(document(&config, "c", None).unwrap(), r#"{"f":7}"#);
    assert!(drafts(&config).is_empty());
    assert_eq!(release(&mut config, "cy"), Err(ConfigError::NoDraft("d".into())));
}

#[test]
fn a_preview_of_an_edit_shows_no_change_of_the_namespace() {
    let config = sample();
    let operation = on("d", DraftAction::Edit(DraftStep::Publish(vec![int("p", 7)])));
    let preview = previews::preview(&config, operation).expect("an edit");
    assert_eq!((preview.revision, preview.changed), (2, true));
    assert!(preview.changes.is_empty() && preview.documents.is_empty(), "{preview:?}");
}

#[test]
fn a_label_matters_only_for_what_programs_read() {
    let config = sample();
    let create = Preview { expected: None, operation: ConfigOperation::Create };
    for query in [Query::Preview(create.into()), Query::Inheritance, Query::Drafts, Query::Namespace] {
        assert_eq!(ask(&config, as_reader("early", query.clone())), ask(&config, query));
    }
}

#[test]
fn a_draft_that_cannot_be_applied_says_why_and_stays() {
    let mut config = sample();
    assert_eq!(edit(&mut config, "ann", vec![delete_pair("p")]), Ok((2, true)));
    let error = ConfigError::PairInUse { pair: "p".into(), container: "c".into() };
    assert_eq!(view(&config).effect, Err(error.clone().into()));
    assert_eq!(release(&mut config, "ann"), Err(error));
    assert_eq!(drafts(&config).len(), 1);
    assert_eq!(apply_write(&mut config, by("ann", on("d", DraftAction::Discard))), Ok((2, true)));
    assert_eq!(edit(&mut config, "ann", vec![int("p", 1)]), Ok((2, true)));
    assert_eq!(release(&mut config, "ann"), Err(ConfigError::DraftChangesNothing));
}

#[test]
fn a_rollback_in_a_draft_takes_back_the_edits_before_it() {
    let mut config = sample();
    let roll_back = |config: &mut Config, item: Option<Item>| {
        let step = DraftStep::Rollback { to: 2, item };
        apply_write(config, by("ann", on("d", DraftAction::Edit(step))))
    };
    let pair = |key: &str| Some(Item::Pair(key.into()));
    // Of a pair that is as it was, and of one that only the draft has.
    assert_eq!(edit(&mut config, "ann", vec![int("p", 7), int("new", 8), int("q", 9)]), Ok((2, true)));
    assert_eq!(roll_back(&mut config, pair("p")), Ok((2, true)));
    assert_eq!(roll_back(&mut config, pair("new")), Ok((2, true)));
    let changed: Vec<Item> =
        view(&config).effect.expect("an effect").changes.into_iter().map(|change| change.item).collect();
    assert_eq!(changed, [Item::Pair("q".into())]);
    // Of the whole namespace.
    assert_eq!(roll_back(&mut config, None), Ok((2, true)));
    assert_eq!(release(&mut config, "ann"), Err(ConfigError::DraftChangesNothing));
    // What is edited afterwards stays.
    assert_eq!(edit(&mut config, "ann", vec![int("p", 7)]), Ok((2, true)));
    assert_eq!(release(&mut config, "ann"), Ok((3, true)));
    assert_eq!(document(&config, "c", None).unwrap(), r#"{"f":7}"#);
}

#[test]
fn a_draft_may_delete_what_it_has_rolled_back() {
    let mut config = sample();
    assert_eq!(publish(&mut config, vec![int("q", 5)]), Ok((3, true)));
    assert_eq!(publish(&mut config, vec![int("q", 6)]), Ok((4, true)));
    let step = DraftStep::Rollback { to: 3, item: None };
    assert_eq!(apply_write(&mut config, by("ann", on("d", DraftAction::Edit(step)))), Ok((4, true)));
    assert_eq!(edit(&mut config, "ann", vec![delete_pair("q")]), Ok((4, true)));
    assert_eq!(release(&mut config, "ann"), Ok((5, true)));
}

#[test]
fn a_draft_may_roll_back() {
    let mut config = sample();
    assert_eq!(publish(&mut config, vec![int("p", 5)]), Ok((3, true)));
    let step = DraftStep::Rollback { to: 2, item: None };
    assert_eq!(apply_write(&mut config, by("ann", on("d", DraftAction::Edit(step)))), Ok((3, true)));
    assert_eq!(release(&mut config, "ann"), Ok((4, true)));
    assert_eq!(document(&config, "c", None).unwrap(), r#"{"f":1}"#);
}

#[test]
fn a_protected_namespace_needs_the_approval_of_somebody_else_for_what_was_reviewed() {
    let mut config = sample();
    assert_eq!(apply(&mut config, ConfigOperation::SetProtected(true)), Ok((3, true)));
    assert_eq!(apply(&mut config, ConfigOperation::SetProtected(true)), Ok((3, false)));
    assert_eq!(publish(&mut config, vec![int("p", 7)]), Err(ConfigError::Protected));
    let rollback = ConfigOperation::Rollback { to: 1, item: None };
    assert_eq!(apply(&mut config, rollback), Err(ConfigError::Protected));
    let parents = ConfigOperation::SetParents { parents: vec![] };
    assert_eq!(apply(&mut config, parents), Err(ConfigError::Protected));
    assert_eq!(edit(&mut config, "ann", vec![int("p", 7)]), Ok((3, true)));
    assert!(view(&config).effect.is_ok(), "the effect is shown before the approval");
    assert_eq!(release(&mut config, "bob"), Err(ConfigError::NotApproved));
    assert_eq!(begin(&mut config), Err(ConfigError::NotApproved));
    assert_eq!(approve(&mut config, "ann", 1), Err(ConfigError::OwnApproval));
    assert_eq!(approve(&mut config, "", 1), Err(ConfigError::OwnApproval));
    assert_eq!(approve(&mut config, "bob", 2), Err(ConfigError::DraftEdited { edits: 1 }));
    assert_eq!(approve(&mut config, "bob", 1), Ok((3, true)));
    // A later edit is not approved.
    assert_eq!(edit(&mut config, "cy", vec![int("p", 8)]), Ok((3, true)));
    assert_eq!(release(&mut config, "bob"), Err(ConfigError::NotApproved));
    assert_eq!(approve(&mut config, "cy", 2), Err(ConfigError::OwnApproval));
    assert_eq!(approve(&mut config, "bob", 2), Ok((3, true)));
    assert_eq!(release(&mut config, "ann"), Ok((4, true)));
    let action = config.namespaces[&name()].history.back().unwrap().action.clone();
    assert_eq!(action, Action::PublishDraft { draft: "d".into(), approved_by: vec!["bob".into()] });
    assert_eq!(document(&config, "c", None).unwrap(), r#"{"f":8}"#);
}

#[test]
fn a_canary_is_seen_by_its_audience_until_it_is_withdrawn() {
    let mut config = sample();
    assert_eq!(edit(&mut config, "ann", vec![int("p", 7)]), Ok((2, true)));
    config.take_updates();
    assert_eq!(begin(&mut config), Ok((3, true)));
    assert_eq!(config.take_updates().len(), 1, "watchers are told");
    assert_eq!(
        (read_as(&config, "early"), read_as(&config, "late")),
        (r#"{"f":7}"#.into(), r#"{"f":1}"#.into())
    );
    assert_eq!(changes_for(&config, "early", 2), [(3, Some(r#"{"f":7}"#.into()))]);
    assert_eq!(changes_for(&config, "late", 2), []);
    // Nothing else changes meanwhile.
    let open = || Err(ConfigError::CanaryOpen("d".into()));
    assert_eq!(publish(&mut config, vec![int("p", 9)]), open());
    assert_eq!(edit(&mut config, "ann", vec![int("p", 9)]), open());
    assert_eq!(begin(&mut config), open());
    assert_eq!(apply(&mut config, ConfigOperation::SetPolicy(Policy { revisions: 5, age_ms: 9 })), open());
    assert_eq!(apply(&mut config, ConfigOperation::Withdraw), Ok((4, true)));
    assert_eq!(config.take_updates().len(), 1);
    assert_eq!(read_as(&config, "early"), r#"{"f":1}"#);
    assert_eq!(changes_for(&config, "early", 3), [(4, Some(r#"{"f":1}"#.into()))]);
    assert_eq!(changes_for(&config, "late", 2), []);
    assert_eq!(apply(&mut config, ConfigOperation::Withdraw), Err(ConfigError::NoCanary));
    assert_eq!(drafts(&config).len(), 1, "the draft stays");
}

#[test]
fn watchers_of_what_only_the_canary_has_are_told_of_its_end() {
    let began = || {
        let mut config = sample();
        assert_eq!(edit(&mut config, "ann", vec![container("new", vec![one("f", "p")])]), Ok((2, true)));
        assert_eq!(begin(&mut config), Ok((3, true)));
        config.take_updates();
        config
    };
    let mut config = began();
    assert_eq!(apply(&mut config, ConfigOperation::Delete { force: true }), Ok((3, true)));
    assert_eq!(config.take_updates()[0].containers, ["c".into(), "new".into()]);
    // A snapshot that is installed over the canary, and one with it.
    let (before, mut after) = (began(), began());
    assert_eq!(apply(&mut after, ConfigOperation::Withdraw), Ok((4, true)));
    assert_eq!(after.updates_since(&before)[0].containers, ["new".into()]);
    assert_eq!(before.updates_since(&sample())[0].containers, ["new".into()]);
    assert_eq!(before.all_updates()[0].containers, ["c".into(), "new".into()]);
}

#[test]
fn a_canary_is_published_to_all() {
    let mut config = sample();
    assert_eq!(edit(&mut config, "ann", vec![int("p", 7)]), Ok((2, true)));
    assert_eq!(begin(&mut config), Ok((3, true)));
    assert_eq!(release(&mut config, "ann"), Ok((4, true)));
    assert_eq!(
        (read_as(&config, "early"), read_as(&config, "late")),
        (r#"{"f":7}"#.into(), r#"{"f":7}"#.into())
    );
    assert_eq!(changes_for(&config, "late", 3), [(4, Some(r#"{"f":7}"#.into()))]);
    assert_eq!(publish(&mut config, vec![int("p", 9)]), Ok((5, true)));
}

#[test]
fn a_snapshot_keeps_drafts_and_the_canary() {
    let mut config = sample();
    assert_eq!(edit(&mut config, "ann", vec![int("p", 7)]), Ok((2, true)));
    assert_eq!(begin(&mut config), Ok((3, true)));
    let other = on("other", DraftAction::Edit(DraftStep::Publish(vec![int("q", 1)])));
    assert_eq!(act(&mut config, &name(), other), Ok((3, true)));
    let mut restored = Config::default();
    // A block that is applied twice changes nothing.
    for block in blocks(&config) {
        (0..2).for_each(|_| restored.take_block(&block).expect("a block"));
    }
    assert_eq!(restored.digest(0), config.digest(0));
    assert_eq!(
        (read_as(&restored, "early"), read_as(&restored, "late")),
        (r#"{"f":7}"#.into(), r#"{"f":1}"#.into())
    );
    assert_eq!(changes_for(&restored, "early", 2), changes_for(&config, "early", 2));
    assert_eq!(apply(&mut restored, ConfigOperation::Withdraw), Ok((4, true)));
    assert_eq!(changes_for(&restored, "early", 3), [(4, Some(r#"{"f":1}"#.into()))]);
}

#[test]
fn comments_and_drafts_are_bounded() {
    let mut config = sample();
    let comment = |config: &mut Config, text: &str| {
        let stamp = Stamp { message: text.into(), ..stamp(1) };
        let operation = on("d", DraftAction::Comment);
        config.apply(ConfigWrite { stamp, ..write(operation) }).map(|written| written.revision)
    };
    assert_eq!(comment(&mut config, "why?"), Err(ConfigError::NoDraft("d".into())));
    assert_eq!(edit(&mut config, "ann", vec![int("p", 7)]), Ok((2, true)));
    assert_eq!(comment(&mut config, ""), Err(ConfigError::EmptyComment));
    for _ in 0..limits::CONFIG_DRAFT_COMMENTS_MAX {
        assert_eq!(comment(&mut config, "why?"), Ok(2));
    }
    assert_eq!(comment(&mut config, "why?"), Err(ConfigError::DraftFull));
    let long = put("q", Value::text(&"x".repeat(limits::CONFIG_DRAFT_BYTES_MAX)));
    assert_eq!(edit(&mut config, "ann", vec![long]), Err(ConfigError::DraftFull));
    for number in 1..=limits::CONFIG_DRAFTS_MAX {
        let draft = alloc::format!("d{number}");
        let step = DraftStep::Publish(vec![int("p", 1)]);
        let result = act(&mut config, &name(), on(&draft, DraftAction::Edit(step)));
        assert_eq!(result == Err(ConfigError::TooManyDrafts), number == limits::CONFIG_DRAFTS_MAX);
    }
}
