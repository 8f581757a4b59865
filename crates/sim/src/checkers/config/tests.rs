//! One test with a violation for each property.

use tidelock_core::clients::watcher::WatchScope;
use tidelock_core::command::config::{
    ChangeView, ConfigError, ConfigPreview, ConfigWritten, Export, HistoryPage, Policy, Preview,
    PreviewedDocument, Stamp,
};
use tidelock_core::command::{ConfigRead, ReadReply, WriteReply};
use tidelock_core::types::NodeId;

use super::*;

/// Observations of clients and watchers of one namespace with one pair `p` and one container `c`.
#[derive(Default)]
struct ConfigHistory {
    history: History,
    revisions: Vec<RevisionView>,
    received: Vec<WatchedContent>,
    imports: Vec<ImportedDocument>,
}

fn name() -> Name {
    Name::new("ns").expect("a name")
}

fn pair(number: i64) -> Arc<Pair> {
    Arc::new(Pair { value: Value::Int(number).into(), schema: None, revision: 1, source: None })
}

fn container() -> Arc<Container> {
    let field = tidelock_core::command::config::Field { key: "f".into(), refers: Refers::One("p".into()) };
    let (revision, touched, changed) = (1, 1, 1);
    Arc::new(Container {
        fields: vec![field],
        schema: None,
        source: None,
        revision,
        touched,
        changed,
        checksum: [0; 32],
        document_bytes: 7,
    })
}

impl ConfigHistory {
    fn ask(&mut self, request: Request) -> Token {
        self.history.invoke(Incarnation { node: NodeId(1), life: 1 }, request, true)
    }

    fn publish(&mut self, number: i64) -> Token {
        self.publish_at(number, None)
    }

    fn publish_at(&mut self, number: i64, expected: Option<u64>) -> Token {
        let stamp = Stamp { author: self.history.next_token().0.to_string().into(), ..Stamp::default() };
        let changes = vec![Change::PutPair { key: "p".into(), value: Value::Int(number), retype: false }];
        let operation = ConfigOperation::Publish { changes, create: false };
        self.ask(Request::Write(Write::from(ConfigWrite { namespace: name(), stamp, expected, operation })))
    }

    fn done(&mut self, token: Token, revision: u64) {
        let done = Ok(ConfigWritten { revision, changed: true });
        assert!(self.history.answer(token, Reply::Write(WriteReply::Config(done))));
    }

    fn query(&mut self, query: Query, consistency: Consistency) -> Token {
        self.ask(Request::Read { read: Read::Config(ConfigRead { namespace: name(), query }), consistency })
    }

    fn sees(&mut self, token: Token, revision: u64, number: i64) {
        let reply = ConfigReply::Pair { revision, pair: pair(number) };
        assert!(self.history.answer(token, Reply::Read(ReadReply::Config(Ok(reply)))));
    }

    fn get(&mut self, consistency: Consistency) -> Token {
        self.query(Query::Pair { key: "p".into(), at: None }, consistency)
    }

    /// A revision in the history that gives `p` a new value.
    fn revision(&mut self, number: u64, author: Token, (before, after): (i64, i64)) {
        let content = |number| Some(Content::Pair(pair(number)));
        let change =
            ChangeView { item: Item::Pair("p".into()), before: content(before), after: content(after) };
        let stamp = Stamp { author: author.0.to_string().into(), ..Stamp::default() };
        self.revisions.push(RevisionView { number, stamp, action: Action::Publish, changes: vec![change] });
    }

    /// Two revisions, both acknowledged, the second of which is the last.
    fn two() -> ConfigHistory {
        let mut history = ConfigHistory::default();
        for (revision, number) in [(1, 10), (2, 20)] {
            let token = history.publish(number);
            history.done(token, revision);
            history.revision(revision, token, (number - 10, number));
        }
        history
    }

    fn judge(mut self) -> Result<(), Violation> {
        let oldest = self.revisions.first().map_or(1, |view| view.number);
        let number = match self.revisions.first().map(|view| &view.changes[0].after) {
            Some(Some(Content::Pair(pair))) => match *pair.value {
                Value::Int(number) => number,
                _ => 0,
            },
            _ => 0,
        };
        let export = self.query(Query::Export { at: Some(oldest) }, Consistency::Linearizable);
        let base = Export {
            revision: oldest,
            policy: Policy::default(),
            pairs: [("p".into(), pair(number))].into(),
            containers: [("c".into(), container())].into(),
        };
        assert!(self.history.answer(export, Reply::Read(ReadReply::Config(Ok(ConfigReply::Export(base))))));
        let newest = self.revisions.last().map_or(0, |view| view.number);
        let revisions = self.revisions.iter().rev().cloned().collect();
        let page = HistoryPage { revision: newest, oldest, revisions, next: None };
        let query = Query::History { item: None, before: None, limit: 10_000 };
        let token = self.query(query, Consistency::Linearizable);
        assert!(self.history.answer(token, Reply::Read(ReadReply::Config(Ok(ConfigReply::History(page))))));
        let mut watcher =
            WatchingClient::new(name(), WatchScope::Container("c".into()), fastrand::Rng::with_seed(1));
        watcher.received = self.received;
        check(&self.history, &[watcher], &self.imports)
    }
}

fn content(revision: u64, document: &str) -> WatchedContent {
    WatchedContent { revision, document: Some(document.into()), ..WatchedContent::default() }
}

fn blamed(history: ConfigHistory, part: &str) {
    let violation = history.judge().expect_err("a violation");
    assert!(violation.message.contains(part), "{violation}");
}

#[test]
fn an_honest_story_holds() {
    let mut history = ConfigHistory::two();
    let read = history.get(Consistency::Linearizable);
    history.sees(read, 2, 20);
    let read = history.get(Consistency::Stale);
    history.sees(read, 1, 10);
    history.received = vec![content(1, r#"{"f":10}"#), content(2, r#"{"f":20}"#)];
    assert_eq!(history.judge(), Ok(()));
}

#[test]
fn a_lost_change_is_noticed() {
    let mut history = ConfigHistory::two();
    let (lost, last) = (history.publish(30), history.publish(40));
    history.done(lost, 3);
    history.done(last, 4);
    history.revision(4, last, (20, 40));
    blamed(history, "is not in history");
}

#[test]
fn a_change_that_was_refused_or_made_twice_is_noticed() {
    let mut history = ConfigHistory::two();
    let token = history.publish(30);
    let refused = Reply::Refused(tidelock_core::command::Refusal::NoLeader);
    assert!(history.history.answer(token, refused));
    history.revision(3, token, (20, 30));
    blamed(history, "which got the reply");
    let mut history = ConfigHistory::two();
    history.revision(3, Token(2), (20, 20));
    blamed(history, "was answered revision 2 and made 3");
    let mut history = ConfigHistory::two();
    let lost = history.publish(30);
    history.revision(3, lost, (20, 30));
    history.revision(4, lost, (30, 30));
    blamed(history, "made revisions 3 and 4");
}

#[test]
fn revisions_that_contradict_real_time_are_noticed() {
    let mut history = ConfigHistory::two();
    let token = history.publish(30);
    history.done(token, 2);
    blamed(history, "both made revision 2");
    let mut history = ConfigHistory::default();
    for (revision, number) in [(2, 20), (1, 10)] {
        let token = history.publish(number);
        history.done(token, revision);
    }
    blamed(history, "made revision 1 after");
}

#[test]
fn a_read_of_the_past_or_of_what_never_was_is_noticed() {
    let mut history = ConfigHistory::two();
    let read = history.get(Consistency::Linearizable);
    history.sees(read, 1, 10);
    blamed(history, "saw revision 1 after");
    let mut history = ConfigHistory::two();
    let read = history.get(Consistency::Linearizable);
    history.sees(read, 2, 30);
    blamed(history, "read 3 of revision 2 saw");
    let mut history = ConfigHistory::two();
    for (revision, number) in [(2, 20), (1, 10)] {
        let read = history.get(Consistency::Stale);
        history.sees(read, revision, number);
    }
    blamed(history, "went back");
}

#[test]
fn a_revision_that_did_something_else_is_noticed() {
    let mut history = ConfigHistory::two();
    let token = history.publish(30);
    history.done(token, 3);
    history.revision(3, token, (20, 31));
    blamed(history, "revision 3 of 3 is");
    let mut history = ConfigHistory::two();
    let token = history.publish(30);
    history.done(token, 3);
    history.revision(3, token, (21, 30));
    blamed(history, "says that");
}

#[test]
fn a_pair_that_did_not_keep_its_datatype_is_noticed() {
    let history = |retype| {
        let mut history = ConfigHistory::two();
        let token = history.history.next_token();
        let stamp = Stamp { author: token.0.to_string().into(), ..Stamp::default() };
        let value = Value::text("x");
        let operation = ConfigOperation::Publish {
            changes: vec![Change::PutPair { key: "p".into(), value: value.clone(), retype }],
            create: false,
        };
        let write = ConfigWrite { namespace: name(), stamp: stamp.clone(), expected: None, operation };
        history.ask(Request::Write(write.into()));
        history.done(token, 3);
        let change = ChangeView {
            item: Item::Pair("p".into()),
            before: Some(Content::Pair(pair(20))),
            after: Some(Content::Pair(Arc::new(Pair {
                value: value.into(),
                schema: None,
                revision: 3,
                source: None,
            }))),
        };
        history.revisions.push(RevisionView {
            number: 3,
            stamp,
            action: Action::Publish,
            changes: vec![change],
        });
        history
    };
    assert_eq!(history(true).judge(), Ok(()));
    blamed(history(false), "gave away a datatype");
}

/// Revision 3 sets the schema of an integer for `p`, or does not, and gives it a value.
fn with_schema(value: Value, stays: bool) -> ConfigHistory {
    let mut history = ConfigHistory::two();
    let token = history.history.next_token();
    let stamp = Stamp { author: token.0.to_string().into(), ..Stamp::default() };
    let item = Item::Pair("p".into());
    let schema = Some(ClientSchema::Integer.schema());
    let changes = vec![
        Change::SetSchema { item: item.clone(), schema: schema.clone() },
        Change::PutPair { key: "p".into(), value: value.clone(), retype: true },
    ];
    let operation = ConfigOperation::Publish { changes, create: false };
    let write = ConfigWrite { namespace: name(), stamp: stamp.clone(), expected: None, operation };
    history.ask(Request::Write(write.into()));
    history.done(token, 3);
    let schema = schema.filter(|_| stays);
    let after =
        Some(Content::Pair(Arc::new(Pair { value: value.into(), schema, revision: 3, source: None })));
    let changes = vec![ChangeView { item, before: Some(Content::Pair(pair(20))), after }];
    history.revisions.push(RevisionView { number: 3, stamp, action: Action::Publish, changes });
    history
}

#[test]
fn a_schema_that_is_lost_or_violated_is_noticed() {
    assert_eq!(with_schema(Value::Int(30), true).judge(), Ok(()));
    blamed(with_schema(Value::text("x"), true), "violates a schema");
    blamed(with_schema(Value::Int(30), false), "revision 3 of");
}

#[test]
fn a_watcher_who_misses_repeats_or_dreams_is_noticed() {
    let three = || {
        let mut history = ConfigHistory::two();
        let token = history.publish(30);
        history.done(token, 3);
        history.revision(3, token, (20, 30));
        history
    };
    let (second, third) = (content(2, r#"{"f":20}"#), content(3, r#"{"f":30}"#));
    let history = |received: &[WatchedContent]| ConfigHistory { received: received.to_vec(), ..three() };
    assert_eq!(history(&[second.clone(), third.clone()]).judge(), Ok(()));
    blamed(history(std::slice::from_ref(&third)), "did not receive revision 2");
    let after_gap = WatchedContent { after_gap: true, ..third.clone() };
    assert_eq!(history(&[after_gap]).judge(), Ok(()), "the gap was reported");
    blamed(history(&[second.clone(), second.clone()]), "before 2");
    blamed(history(&[third.clone(), second]), "before 2");
    blamed(history(&[content(2, r#"{"f":21}"#), third.clone()]), "received a wrong document");
    let absent = WatchedContent { revision: 0, document: None, ..WatchedContent::default() };
    blamed(history(&[third, absent]), "never deleted");
}

/// The second of two publications, as an import of this document that was answered this revision.
fn import(document: &str, revision: u64, expected: Option<u64>) -> ConfigHistory {
    let mut history = ConfigHistory::default();
    let first = history.publish(10);
    history.done(first, 1);
    history.revision(1, first, (0, 10));
    let second = history.publish_at(20, expected);
    history.done(second, 2);
    history.revision(2, second, (10, 20));
    let (namespace, container, document) = (name(), "c".into(), document.to_owned());
    history.imports = vec![ImportedDocument {
        namespace,
        container,
        document,
        replaced_by: None,
        expected: None,
        token: second,
        revision,
    }];
    history
}

#[test]
fn an_import_is_a_conditional_write_of_exactly_its_document() {
    assert_eq!(import("{\"f\":20}", 2, Some(1)).judge(), Ok(()));
    blamed(import("{\"f\":21}", 2, Some(1)), "which has");
    blamed(import("{\"f\":20}", 2, None), "and is Some");
    blamed(import("{\"f\":10}", 1, Some(1)), "and is Some");
    let mut other = import("{\"f\":20}", 2, Some(1));
    other.imports[0].expected = Some(2);
    blamed(other, "and is Some");
    let whole = |pairs: [&str; 2]| {
        let mut history = import("{\"f\":20}", 2, Some(1));
        history.imports[0].replaced_by = Some(pairs.map(Into::into).into());
        history
    };
    assert_eq!(whole(["p", "p"]).judge(), Ok(()));
    blamed(whole(["p", "q"]), "replaced all content");
}

/// The preview at revision 2 of a change that gives `p` the value 30, as the store answers it.
fn shown() -> ConfigPreview {
    let content = |number| Some(Content::Pair(pair(number)));
    let item = Item::Pair("p".into());
    let changes = vec![ChangeView { item, before: content(20), after: content(30) }];
    let document = |number| Some(format!("{{\"f\":{number}}}").as_str().into());
    let documents =
        vec![PreviewedDocument { container: "c".into(), before: document(20), after: document(30) }];
    ConfigPreview { revision: 2, changed: true, changes, documents, inherited_by: Vec::new() }
}

impl ConfigHistory {
    fn previews(&mut self, number: i64, shown: ConfigPreview) {
        let changes = vec![Change::PutPair { key: "p".into(), value: Value::Int(number), retype: false }];
        let operation = ConfigOperation::Publish { changes, create: false };
        let query = Query::Preview(Preview { expected: None, operation }.into());
        let token = self.query(query, Consistency::Linearizable);
        let reply = Reply::Read(ReadReply::Config(Ok(ConfigReply::Preview(shown))));
        assert!(self.history.answer(token, reply));
    }
}

#[test]
fn previews_come_true() {
    let mut history = ConfigHistory::two();
    history.previews(30, shown());
    let token = history.publish_at(30, Some(2));
    history.done(token, 3);
    history.revision(3, token, (20, 30));
    history.judge().expect("what was shown happened");
}

#[test]
fn previews_of_another_effect_are_caught() {
    let wrong: [fn(&mut ConfigPreview); 5] = [
        |shown| shown.documents.clear(),
        |shown| shown.documents[0].after = Some("{\"f\":31}".into()),
        |shown| shown.documents[0].before = None,
        |shown| shown.changes[0].before = None,
        |shown| shown.changes.clear(),
    ];
    for change in wrong {
        let mut history = ConfigHistory::two();
        let mut shown = shown();
        change(&mut shown);
        history.previews(30, shown);
        let violation = history.judge().expect_err("another effect was shown");
        assert!(violation.to_string().contains("preview"), "{violation}");
    }
}

#[test]
fn a_change_with_another_effect_than_its_preview_is_caught() {
    // The change of the preview is refused although its revision is there.
    let mut history = ConfigHistory::two();
    history.previews(30, shown());
    let token = history.publish_at(30, Some(2));
    let refused = Reply::Write(WriteReply::Config(Err(ConfigError::NoNamespace)));
    assert!(history.history.answer(token, refused));
    assert!(history.judge().expect_err("it is refused").to_string().contains("is not what"));
    // It changes nothing.
    let mut history = ConfigHistory::two();
    history.previews(30, shown());
    let token = history.publish_at(30, Some(2));
    let written = Ok(ConfigWritten { revision: 2, changed: false });
    assert!(history.history.answer(token, Reply::Write(WriteReply::Config(written))));
    assert!(history.judge().expect_err("it changes nothing").to_string().contains("is not what"));
}

#[test]
fn a_preview_at_another_revision_than_expected_is_caught() {
    let mut history = ConfigHistory::two();
    history.previews(30, ConfigPreview { revision: 1, ..shown() });
    assert!(history.judge().is_err());
}
