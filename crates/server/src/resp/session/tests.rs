//! A session whose slots move between its commands, over a store that has only a slot map.

use std::cell::RefCell;
use std::sync::Arc;

use tidelock_core::command::{
    Condition, Operation, OperationRepliesBuilder, OperationReply, Write, WriteReply,
};
use tidelock_core::control::registry::Registry;
use tidelock_core::event::NodeStatus;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::slots::slot_of;
use tidelock_core::slots::slot_set::SlotSet;
use tidelock_core::types::LogIndex;

use super::*;
use crate::clock::WallClock;
use crate::resp::RespOptions;
use crate::store::Mailbox;
use tidelock_core::types::{ClientId, UnixMillis};

const SHARDS: u64 = 2;

struct MapAlone(RefCell<Registry>);

impl MapAlone {
    fn give(&self, key: &[u8], to: ShardId) {
        let mut registry = self.0.borrow_mut();
        let slot = slot_of(key);
        registry.move_slots(LogIndex(1), &SlotSet::from(slot..slot + 1), to);
        let migration = registry.last_migration();
        registry.finish_migration(LogIndex(1), migration);
    }
}

impl Access for MapAlone {
    fn for_client(&self, _: ClientId) -> Rc<dyn Access> {
        unreachable!("a session is given its own store")
    }

    fn submit(&self, _: Request) -> Pin<Box<dyn Future<Output = Reply>>> {
        unreachable!("no command here takes more than its shard queue")
    }

    fn submit_to(&self, _: Request, _: &Rc<Mailbox>, _: u64) {
        unreachable!("the tests take what a session submits")
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        self.slot_map().shard_of(slot_of(key))
    }

    fn slot_map(&self) -> Arc<SlotMap> {
        Arc::new(self.0.borrow().view().slots)
    }

    fn leader_ahead_ms(&self, _: ShardId) -> i64 {
        0
    }

    fn status(&self) -> Pin<Box<dyn Future<Output = NodeStatus>>> {
        unreachable!("no command here asks for it")
    }
}

fn session() -> (Session, Rc<MapAlone>) {
    let store = Rc::new(MapAlone(RefCell::new(Registry::founded(1, SHARDS))));
    let context = Rc::new(RespContext::new(RespOptions::default(), WallClock(|| UnixMillis(0))));
    (Session::new(1, context, store.clone()), store)
}

fn put(session: &mut Session, key: &[u8]) {
    let put = Operation::Put { key, value: b"v", condition: Condition::Always };
    assert!(matches!(session.one(&put, Render::Ok), Ok(Action::Done)));
}

/// The shard queues of the commands submitted now, and their numbers of operations.
fn submitted(session: &mut Session) -> Vec<(u64, usize)> {
    let mut found = Vec::new();
    session.submit(
        true,
        |_, _| true,
        |request, shard_queue| {
            let Request::Write(Write::Keys(transaction)) = request else { panic!("{request:?}") };
            found.push((shard_queue, transaction.operations.len()));
        },
    );
    found
}

fn complete(session: &mut Session, shard_queue: u64, count: usize) {
    let mut replies = OperationRepliesBuilder::default();
    (0..count).for_each(|_| replies.push(&OperationReply::Written { version: Version(1), created: true }));
    session.complete(shard_queue, Reply::Write(WriteReply::Operations(replies.finish())));
}

#[test]
fn once_slots_have_moved_nothing_is_taken_until_all_before_is_answered() {
    let (mut session, store) = session();
    // Slot 5061, in the first of two shards.
    assert!(session.keeps_order());
    put(&mut session, b"bar");
    assert_eq!(submitted(&mut session), [(1, 1)]);
    put(&mut session, b"bar");
    store.give(b"bar", ShardId(2));
    assert!(!session.keeps_order(), "one is under way, one waits for it");
    complete(&mut session, 1, 1);
    assert!(!session.keeps_order(), "the second is not done");
    assert_eq!(submitted(&mut session), [(1, 1)]);
    assert!(!session.keeps_order());
    complete(&mut session, 1, 1);
    assert!(session.keeps_order());
    put(&mut session, b"bar");
    assert_eq!(submitted(&mut session), [(2, 1)], "it goes where the key is now");
    assert!(session.keeps_order());
}

#[test]
fn a_transaction_in_the_making_follows_its_keys() {
    let (mut session, store) = session();
    assert!(session.watch([&b"bar"[..]].into_iter()).is_ok());
    session.submit(true, |_, _| true, |_, shard_queue| assert_eq!(shard_queue, 1));
    let mut replies = OperationRepliesBuilder::default();
    replies.push(&OperationReply::Described { version: Version(7), expires: None, value_bytes: 1 });
    session.complete(1, Reply::Write(WriteReply::Operations(replies.finish())));
    session.settle(usize::MAX);
    assert!(session.begin_multi().is_ok());
    put(&mut session, b"bar");
    store.give(b"bar", ShardId(2));
    assert!(session.keeps_order());
    put(&mut session, b"{bar}2");
    assert!(session.exec().is_ok(), "all of it is in the second shard by now");
    assert_eq!(submitted(&mut session), [(2, 2)]);
}
