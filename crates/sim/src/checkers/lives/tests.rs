//! Each property broken once.

use std::collections::BTreeMap as Map;
use std::sync::Arc;

use tidelock_core::command::ConfigRead;
use tidelock_core::command::config::{
    Action, Change, Deed, Field, HistoryPage, Item, Pair, Policy, Refers, RevisionView, Stamp, Value,
};
use tidelock_core::command::config::{ConfigError, Export};
use tidelock_core::types::{LogIndex, NodeId, Term};

use super::*;
use crate::history::Incarnation;
use crate::watching::Told;

/// What was asked of one namespace, and the log of its shard.
#[derive(Default)]
struct Story {
    history: History,
    log: Vec<Write>,
    told: Vec<Told>,
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

fn publish(changes: Vec<Change>) -> Deed {
    Deed::Publish { changes, create: true }
}

impl Story {
    fn invoke(&mut self, request: Request) -> Token {
        self.history.invoke(Incarnation { node: NodeId(1), life: 1 }, request, false)
    }

    /// Somebody asks for a change.
    fn asks(&mut self, deed: Deed) -> (Token, Write) {
        let stamp = Stamp { author: self.history.next_token().0.to_string().into(), ..Stamp::default() };
        let write = Write::Config(ConfigWrite { namespace: name(), stamp, expected: None, deed });
        (self.invoke(Request::Write(write.clone())), write)
    }

    fn answered(&mut self, token: Token, reply: ConfigReply) {
        assert!(self.history.answer(token, Reply::Config(reply)));
    }

    /// A change that stands in the log and was acknowledged.
    fn does(&mut self, deed: Deed, revision: u64) {
        let (token, write) = self.asks(deed);
        self.log.push(write);
        self.answered(token, ConfigReply::Done { revision, changed: true });
    }

    fn reads(&mut self, query: Query, reply: ConfigReply) {
        let read = Read::Config(ConfigRead { namespace: name(), query });
        let token = self.invoke(Request::Read { read, consistency: Consistency::Linearizable });
        self.answered(token, reply);
    }

    /// Two lives, with revisions 1 and 2, and 3.
    fn two() -> Story {
        let mut story = Story::default();
        story.does(publish(vec![put(1), container()]), 1);
        story.does(publish(vec![put(2)]), 2);
        story.does(Deed::Delete { force: true }, 2);
        story.does(publish(vec![put(3)]), 3);
        story
    }

    fn judge(self) -> Result<(), Violation> {
        let mut ledger = Ledger::default();
        let log = &self.log;
        ledger.observe(ShardId(1), LogIndex(log.len() as u64), |index| {
            log.get(index.0 as usize - 1).map(|write| (Term(1), vec![write.clone()]))
        });
        let node = Some(NodeId(1));
        let (namespace, container, is_without) = (name(), "c".into(), false);
        let (asked, is_due) = (None, false);
        let watcher = Watcher { namespace, container, node, asked, is_due, told: self.told, is_without };
        check(&self.history, &ledger, &[watcher])
    }
}

fn pair(revision: u64, number: i64) -> ConfigReply {
    ConfigReply::Pair { revision, pair: Arc::new(Pair { value: Value::Int(number), revision }) }
}

fn get(at: Option<u64>) -> Query {
    Query::Pair { key: "p".into(), at }
}

fn told(revision: u64, document: Option<&str>) -> Told {
    Told { revision, document: document.map(str::to_owned), after_gap: false }
}

fn history(revisions: &[(u64, u64)]) -> ConfigReply {
    let view = |&(number, author): &(u64, u64)| RevisionView {
        number,
        stamp: Stamp { author: author.to_string().into(), ..Stamp::default() },
        action: Action::Publish,
        changes: Vec::new(),
    };
    let (newest, oldest) = (revisions[0].0, revisions[revisions.len() - 1].0);
    let revisions = revisions.iter().map(view).collect();
    ConfigReply::History(HistoryPage { revision: newest, oldest, revisions, next: None })
}

fn blamed(story: Story, part: &str) {
    let violation = story.judge().expect_err("a violation");
    assert!(violation.message.contains(part), "{violation}");
}

#[test]
fn an_honest_story_holds() {
    let mut story = Story::two();
    story.reads(get(None), pair(3, 3));
    story.reads(
        get(Some(2)),
        ConfigReply::Failed(ConfigError::NoRevision { revision: 2, oldest: 3, newest: 3 }),
    );
    story.reads(Query::History { item: None, before: None, limit: 5 }, history(&[(3, 4)]));
    let pairs = Map::from([("p".into(), Arc::new(Pair { value: Value::Int(3), revision: 3 }))]);
    let export = Export { revision: 3, policy: Policy::default(), pairs, containers: Map::new() };
    story.reads(Query::Export { at: None }, ConfigReply::Export(export));
    story.told = vec![told(1, Some(r#"{"f":1}"#)), told(2, Some(r#"{"f":2}"#)), told(3, None)];
    let (token, write) = story.asks(Deed::Delete { force: false });
    story.log.push(write);
    story.answered(token, ConfigReply::Failed(ConfigError::NamespaceNotEmpty { pairs: 1, containers: 0 }));
    story.does(Deed::Delete { force: true }, 3);
    story.reads(get(None), ConfigReply::Failed(ConfigError::NoNamespace));
    assert_eq!(story.judge(), Ok(()));
}

#[test]
fn a_deletion_that_content_forbids_is_noticed() {
    let mut story = Story::two();
    story.does(Deed::Delete { force: false }, 3);
    blamed(story, "the log says Failed");
}

#[test]
fn a_deletion_that_is_lost_or_came_although_refused_is_noticed() {
    let mut story = Story::two();
    let (token, _) = story.asks(Deed::Delete { force: true });
    story.answered(token, ConfigReply::Done { revision: 3, changed: true });
    blamed(story, "stands in no log");
    let mut story = Story::two();
    let (token, write) = story.asks(Deed::Delete { force: true });
    story.log.push(write);
    assert!(story.history.answer(token, Reply::Refused(Refusal::NoLeader)));
    blamed(story, "was refused and stands in the log");
    let mut story = Story::two();
    let twice = story.log[3].clone();
    story.log.push(twice);
    blamed(story, "twice");
}

#[test]
fn a_revision_that_comes_again_is_noticed() {
    let mut story = Story::two();
    story.does(Deed::Delete { force: true }, 3);
    story.does(Deed::Create, 1);
    blamed(story, "the log says Done((4, true))");
}

#[test]
fn what_an_earlier_life_held_does_not_come_back() {
    let mut story = Story::two();
    story.reads(get(Some(2)), pair(2, 2));
    blamed(story, "no state from");
    let mut story = Story::two();
    story.reads(get(None), pair(3, 2));
    blamed(story, "no state from");
    let mut story = Story::two();
    story.reads(Query::History { item: None, before: None, limit: 5 }, history(&[(3, 4), (2, 2)]));
    blamed(story, "no state from");
    let mut story = Story::two();
    let (token, write) = story.asks(Deed::Rollback { to: 1, item: Some(Item::Pair("p".into())) });
    story.log.push(write);
    story.answered(token, ConfigReply::Done { revision: 4, changed: true });
    blamed(story, "the log says Failed");
}

#[test]
fn a_read_of_what_is_deleted_is_noticed() {
    let mut story = Story::two();
    story.does(Deed::Delete { force: true }, 3);
    story.reads(get(None), pair(3, 3));
    blamed(story, "no state from");
    let mut story = Story::two();
    story.reads(get(None), ConfigReply::Failed(ConfigError::NoNamespace));
    blamed(story, "no state from");
}

#[test]
fn a_watcher_who_misses_or_dreams_is_noticed() {
    let story = |told: &[Told]| Story { told: told.to_vec(), ..Story::two() };
    let (first, second) = (told(1, Some(r#"{"f":1}"#)), told(2, Some(r#"{"f":2}"#)));
    assert_eq!(story(&[first.clone(), second.clone()]).judge(), Ok(()));
    blamed(story(std::slice::from_ref(&second)), "was not told of revision 1");
    blamed(story(&[second.clone(), first.clone()]), "before 1");
    blamed(story(&[first, told(2, Some(r#"{"f":3}"#))]), "was told wrongly");
    blamed(story(&[told(3, Some(r#"{"f":3}"#))]), "was told wrongly");
    blamed(story(&[told(4, None)]), "of no life");
    let after_gap = Told { after_gap: true, ..second };
    assert_eq!(story(&[after_gap]).judge(), Ok(()));
}
