//! One test with a violation for each property.

use std::collections::BTreeMap as Map;
use std::sync::Arc;

use tidelock_core::command::config::{
    Action, Change, ConfigOperation, ConfigWritten, Field, HistoryPage, Item, Pair, Policy, Refers,
    RevisionView, Stamp, Value,
};
use tidelock_core::command::config::{ConfigError, Export};
use tidelock_core::command::{ConfigRead, ReadReply, Refusal, WriteReply};
use tidelock_core::types::{LogIndex, NodeId, Term};

use super::*;
use crate::history::Incarnation;
use tidelock_core::clients::watcher::WatchScope;

/// The requests for one namespace, and the log of its shard.
#[derive(Default)]
struct LifetimeHistory {
    history: History,
    log: Vec<Write>,
    received: Vec<WatchedContent>,
}

fn name() -> Name {
    Name::new("fleeting0").expect("a name")
}

fn put(number: i64) -> Change {
    Change::PutPair { key: "p".into(), value: Value::Int(number), retype: false }
}

fn container() -> Change {
    let fields = vec![Field { key: "f".into(), refers: Refers::One("p".into()) }];
    Change::PutContainer { key: "c".into(), fields, retype: false }
}

fn publish(changes: Vec<Change>) -> ConfigOperation {
    ConfigOperation::Publish { changes, create: true }
}

impl LifetimeHistory {
    fn invoke(&mut self, request: Request) -> Token {
        self.history.invoke(Incarnation { node: NodeId(1), life: 1 }, request, false)
    }

    /// A client requests a change.
    fn asks(&mut self, operation: ConfigOperation) -> (Token, Write) {
        let stamp = Stamp { author: self.history.next_token().0.to_string().into(), ..Stamp::default() };
        let write = Write::from(ConfigWrite { namespace: name(), stamp, expected: None, operation });
        (self.invoke(Request::Write(write.clone())), write)
    }

    /// A change is answered.
    fn answered(&mut self, token: Token, result: Result<ConfigWritten, ConfigError>) {
        assert!(self.history.answer(token, Reply::Write(WriteReply::Config(result))));
    }

    /// A change that is in the log and was acknowledged.
    fn does(&mut self, operation: ConfigOperation, revision: u64) {
        let (token, write) = self.asks(operation);
        self.log.push(write);
        self.answered(token, Ok(ConfigWritten { revision, changed: true }));
    }

    fn reads(&mut self, query: Query, answer: Answer) {
        let read = Read::Config(ConfigRead { namespace: name(), query });
        let token = self.invoke(Request::Read { read, consistency: Consistency::Linearizable });
        assert!(self.history.answer(token, Reply::Read(ReadReply::Config(answer))));
    }

    /// Two lives, with revisions 1 and 2, and 3.
    fn two() -> LifetimeHistory {
        let mut history = LifetimeHistory::default();
        history.does(publish(vec![put(1), container()]), 1);
        history.does(publish(vec![put(2)]), 2);
        history.does(ConfigOperation::Delete { force: true }, 2);
        history.does(publish(vec![put(3)]), 3);
        history
    }

    fn judge(self) -> Result<(), Violation> {
        let mut ledger = Ledger::default();
        let log = &self.log;
        ledger.observe(ShardId(1), LogIndex(log.len() as u64), |index| {
            log.get(index.0 as usize - 1).map(|write| (Term(1), vec![write.clone()]))
        });
        let mut watcher =
            WatchingClient::new(name(), WatchScope::Container("c".into()), fastrand::Rng::with_seed(1));
        watcher.received = self.received;
        check(&self.history, (&ledger, false), &[watcher])
    }
}

fn pair(revision: u64, number: i64) -> Answer {
    Ok(ConfigReply::Pair {
        revision,
        pair: Arc::new(Pair { value: Value::Int(number).into(), schema: None, revision, source: None }),
    })
}

fn get(at: Option<u64>) -> Query {
    Query::Pair { key: "p".into(), at }
}

fn content(revision: u64, document: Option<&str>) -> WatchedContent {
    WatchedContent { revision, document: document.map(str::to_owned), ..WatchedContent::default() }
}

fn history_page(revisions: &[(u64, u64)]) -> Answer {
    let view = |&(number, author): &(u64, u64)| RevisionView {
        number,
        stamp: Stamp { author: author.to_string().into(), ..Stamp::default() },
        action: Action::Publish,
        changes: Vec::new(),
    };
    let (newest, oldest) = (revisions[0].0, revisions[revisions.len() - 1].0);
    let revisions = revisions.iter().map(view).collect();
    Ok(ConfigReply::History(HistoryPage { revision: newest, oldest, revisions, next: None }))
}

fn blamed(history: LifetimeHistory, part: &str) {
    let violation = history.judge().expect_err("a violation");
    assert!(violation.message.contains(part), "{violation}");
}

#[test]
fn an_honest_story_holds() {
    let mut history = LifetimeHistory::two();
    history.reads(get(None), pair(3, 3));
    history.reads(get(Some(2)), Err(ConfigError::NoRevision { revision: 2, oldest: 3, newest: 3 }));
    history.reads(Query::History { item: None, before: None, limit: 5 }, history_page(&[(3, 4)]));
    let pairs = Map::from([(
        "p".into(),
        Arc::new(Pair { value: Value::Int(3).into(), schema: None, revision: 3, source: None }),
    )]);
    let export = Export { revision: 3, policy: Policy::default(), pairs, containers: Map::new() };
    history.reads(Query::Export { at: None }, Ok(ConfigReply::Export(export)));
    history.received = vec![content(1, Some(r#"{"f":1}"#)), content(2, Some(r#"{"f":2}"#)), content(3, None)];
    let (token, write) = history.asks(ConfigOperation::Delete { force: false });
    history.log.push(write);
    history.answered(token, Err(ConfigError::NamespaceNotEmpty { pairs: 1, containers: 0 }));
    history.does(ConfigOperation::Delete { force: true }, 3);
    history.reads(get(None), Err(ConfigError::NoNamespace));
    assert_eq!(history.judge(), Ok(()));
}

#[test]
fn a_deletion_that_content_forbids_is_noticed() {
    let mut history = LifetimeHistory::two();
    history.does(ConfigOperation::Delete { force: false }, 3);
    blamed(history, "the log says Failed");
}

#[test]
fn a_deletion_that_is_lost_or_came_although_refused_is_noticed() {
    let mut history = LifetimeHistory::two();
    let (token, _) = history.asks(ConfigOperation::Delete { force: true });
    history.answered(token, Ok(ConfigWritten { revision: 3, changed: true }));
    blamed(history, "stands in no log");
    let mut history = LifetimeHistory::two();
    let (token, write) = history.asks(ConfigOperation::Delete { force: true });
    history.log.push(write);
    assert!(history.history.answer(token, Reply::Refused(Refusal::NoLeader)));
    blamed(history, "was refused and stands in the log");
    let mut history = LifetimeHistory::two();
    let twice = history.log[3].clone();
    history.log.push(twice);
    blamed(history, "twice");
}

#[test]
fn a_revision_that_comes_again_is_noticed() {
    let mut history = LifetimeHistory::two();
    history.does(ConfigOperation::Delete { force: true }, 3);
    history.does(ConfigOperation::Create, 1);
    blamed(history, "the log says Done((4, true))");
}

#[test]
fn what_an_earlier_life_held_does_not_come_back() {
    let mut history = LifetimeHistory::two();
    history.reads(get(Some(2)), pair(2, 2));
    blamed(history, "no state from");
    let mut history = LifetimeHistory::two();
    history.reads(get(None), pair(3, 2));
    blamed(history, "no state from");
    let mut history = LifetimeHistory::two();
    history.reads(Query::History { item: None, before: None, limit: 5 }, history_page(&[(3, 4), (2, 2)]));
    blamed(history, "no state from");
    let mut history = LifetimeHistory::two();
    let (token, write) =
        history.asks(ConfigOperation::Rollback { to: 1, item: Some(Item::Pair("p".into())) });
    history.log.push(write);
    history.answered(token, Ok(ConfigWritten { revision: 4, changed: true }));
    blamed(history, "the log says Failed");
}

#[test]
fn a_read_of_what_is_deleted_is_noticed() {
    let mut history = LifetimeHistory::two();
    history.does(ConfigOperation::Delete { force: true }, 3);
    history.reads(get(None), pair(3, 3));
    blamed(history, "no state from");
    let mut history = LifetimeHistory::two();
    history.reads(get(None), Err(ConfigError::NoNamespace));
    blamed(history, "no state from");
}

#[test]
fn a_watcher_who_misses_or_dreams_is_noticed() {
    let history = |received: &[WatchedContent]| LifetimeHistory {
        received: received.to_vec(),
        ..LifetimeHistory::two()
    };
    let (first, second) = (content(1, Some(r#"{"f":1}"#)), content(2, Some(r#"{"f":2}"#)));
    assert_eq!(history(&[first.clone(), second.clone()]).judge(), Ok(()));
    blamed(history(std::slice::from_ref(&second)), "did not receive revision 1");
    blamed(history(&[second.clone(), first.clone()]), "before 1");
    blamed(history(&[first, content(2, Some(r#"{"f":3}"#))]), "received a wrong document");
    blamed(history(&[content(3, Some(r#"{"f":3}"#))]), "received a wrong document");
    blamed(history(&[content(4, None)]), "of no lifetime");
    let after_gap = WatchedContent { after_gap: true, ..second };
    assert_eq!(history(&[after_gap]).judge(), Ok(()));
}

#[test]
fn a_watcher_who_hears_of_no_deletion_or_of_a_wrong_one_is_noticed() {
    let history = |received: &[WatchedContent]| LifetimeHistory {
        received: received.to_vec(),
        ..LifetimeHistory::two()
    };
    let (first, second) = (content(1, Some(r#"{"f":1}"#)), content(2, Some(r#"{"f":2}"#)));
    let absent = content(0, None);
    assert_eq!(history(&[first.clone(), absent.clone()]).judge(), Ok(()));
    blamed(history(&[first.clone(), absent.clone(), absent.clone()]), "received twice");
    blamed(history(&[content(3, None), absent.clone()]), "and it exists");
    // Only a client that names no revision may receive changes again.
    blamed(history(&[first.clone(), absent.clone(), first.clone(), second.clone()]), "before 1");
    let begins = WatchedContent { begins: true, ..first.clone() };
    assert_eq!(history(&[first.clone(), absent.clone(), begins.clone(), second]).judge(), Ok(()));
    let begins_late = WatchedContent { begins: true, ..content(2, Some(r#"{"f":2}"#)) };
    blamed(history(&[first, absent, begins_late]), "did not receive revision 1");
}
