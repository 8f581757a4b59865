//! Two shards, messages that are delayed and duplicated, changing leaders, and a model of the
//! replies that clients got.

use super::*;
use crate::command::config::{Change, ConfigOperation, ConfigRead, ConfigWritten, Name, Query, Stamp, Value};
use crate::command::{
    Condition, ConditionalTransaction, ConfigReply, ConfigWrite, Expiry, Operation, OperationReply,
    Operations, ReadReply, RestoredKey, Set, SetCondition, ShardAnswer, ShardError, Transaction, WriteReply,
};
use crate::founding::Founding;
use crate::machine::{Machine, Restore};
use crate::membership::Membership;
use crate::slots::slot_of;
use crate::types::{LogIndex, ShardId, UnixMillis};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;

const GIVER: usize = 0;
const RECEIVER: usize = 1;

/// The leader of the giver, with its progress.
struct Driver {
    attempt: u64,
    sequence: u64,
    is_open: bool,
    /// The receiver has replied that it owns the slots, and the reply was lost.
    is_deaf: bool,
}

struct World {
    random: fastrand::Rng,
    shards: [Machine; 2],
    /// Values of keys according to the replies to clients, and the last version seen of each key.
    model: BTreeMap<Bytes, (Version, Bytes)>,
    versions: BTreeMap<Bytes, Version>,
    numbers: BTreeMap<String, (u64, i64)>,
    /// Transactions with an id, and their first outcomes.
    outcomes: Vec<(Write, WriteReply)>,
    /// Steps sent to the receiver, which may be delivered again at any time.
    sent: Vec<Move>,
    driver: Driver,
    migration: MigrationId,
    slots: SlotSet,
    now: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let half = random.u16(1..16384);
        let slots = SlotSet::from(0..half);
        World {
            random,
            shards: [
                Machine::new(ShardId(1), &Founding::new(3, 2)),
                Machine::new(ShardId(2), &Founding::new(3, 2)),
            ],
            model: BTreeMap::new(),
            versions: BTreeMap::new(),
            numbers: BTreeMap::new(),
            outcomes: Vec::new(),
            sent: Vec::new(),
            driver: Driver { attempt: 1, sequence: 0, is_open: false, is_deaf: false },
            migration: MigrationId(1),
            slots,
            now: 0,
        }
    }

    fn apply(&mut self, shard: usize, write: Write) -> Result<WriteReply, ShardError> {
        self.shards[shard].apply(LogIndex(1), write)
    }

    fn step(&mut self, shard: usize, step: MoveStep) -> MoveReply {
        let migration = self.migration;
        let step = Move { shard: ShardId(1 + shard as u64), migration, step };
        if shard == RECEIVER {
            self.sent.push(step.clone());
        }
        match self.apply(shard, Write::from(step)) {
            Ok(WriteReply::Move(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn data(&mut self, shard: usize) -> &mut Data {
        self.shards[shard].data_mut().expect("a data shard")
    }

    fn stage(&self, shard: usize) -> Option<&Stage> {
        Some(self.shards[shard].data()?.ownership_of()?.stage())
    }

    fn key(&mut self) -> Bytes {
        format!("key-{}", self.random.u16(..300)).into()
    }

    /// Sends a write to both shards in random order; the shard that owns the key answers.
    fn ask(&mut self, write: &Write) -> Option<WriteReply> {
        let first = self.random.usize(..2);
        let is_moving = self.stage(GIVER).is_some();
        for shard in [first, 1 - first] {
            // Before any move, clients do not ask the receiver. No shard owns frozen slots.
            if shard == RECEIVER && (!is_moving || self.stage(RECEIVER).is_none()) {
                continue;
            }
            match self.apply(shard, write.clone()) {
                Err(ShardError::NotHere) => {}
                reply => return Some(reply.expect("no limit is broken")),
            }
        }
        None
    }

    fn saw(&mut self, key: &Bytes, version: Version) {
        let last = self.versions.insert(key.clone(), version).unwrap_or_default();
        assert!(last < version, "{key:?} was at {last} and is at {version}");
    }

    fn client(&mut self) {
        let key = self.key();
        let value = Bytes::from(vec![self.random.u8(..); self.random.usize(..200)]);
        match self.random.u8(..14) {
            12 => self.transact(&key, &value),
            13 => self.repeat_transaction(),
            0..6 => {
                let write =
                    Write::of(&Operation::Put { key: &key, value: &value, condition: Condition::Always });
                let reply = self.ask(&write);
                if let Some(OperationReply::Written { version, created }) =
                    reply.as_ref().and_then(WriteReply::only)
                {
                    self.saw(&key, version);
                    let before = self.model.insert(key, (version, value));
                    assert_eq!(before.is_none(), created);
                }
            }
            6 | 7 => {
                let write = Write::of(&Operation::Delete { key: &key, condition: Condition::Always });
                match self.ask(&write).as_ref().and_then(WriteReply::only) {
                    Some(OperationReply::Deleted { version }) => {
                        self.saw(&key, version);
                        self.model.remove(&key).expect("there was one");
                    }
                    Some(OperationReply::Absent) => assert!(!self.model.contains_key(&key)),
                    _ => {}
                }
            }
            8 => self.put_expiring(&key, &value),
            9 => self.delete_two(&key),
            _ => self.publish(),
        }
    }

    /// Writes a key that expires in one of the next moments, and deletes it, or finds it gone.
    fn put_expiring(&mut self, key: &Bytes, value: &Bytes) {
        let at = UnixMillis(self.now + self.random.u64(1..40));
        let set = Set {
            key,
            value,
            expiry: Expiry::At(at),
            condition: SetCondition::Version(Condition::Always),
            previous: false,
        };
        let operations = Operations::of(&[Operation::Set(set)]);
        let write = Write::Keys(Transaction::of(operations));
        // Of a key that may expire at any moment, the model keeps only the version.
        if let Some(WriteReply::Operations(replies)) = self.ask(&write) {
            let version = match replies.only() {
                Some(OperationReply::Written { version, .. }) => version,
                other => panic!("{other:?}"),
            };
            self.saw(key, version);
            let write = Write::of(&Operation::Delete { key, condition: Condition::Always });
            self.now += self.random.u64(..20);
            self.expire();
            match self.ask(&write).as_ref().and_then(WriteReply::only) {
                Some(OperationReply::Deleted { version }) => self.saw(key, version),
                Some(OperationReply::Absent) => {}
                other => assert_eq!(other, None, "owned a moment ago"),
            }
            self.model.remove(key);
        }
    }

    /// Stores a value in a transaction with an id.
    fn transact(&mut self, key: &Bytes, value: &Bytes) {
        let then = Operations::of(&[Operation::Put { key, value, condition: Condition::Always }]);
        let transaction = ConditionalTransaction { then, ..ConditionalTransaction::default() };
        let name = self.outcomes.len().to_string();
        let write = Write::Conditional(Box::new(transaction.identified(name.into())));
        if let Some(reply) = self.ask(&write) {
            let WriteReply::Branched { succeeded: true, replies } = &reply else { panic!("{reply:?}") };
            let Some(OperationReply::Written { version, .. }) = replies.only() else { panic!("{reply:?}") };
            self.saw(key, version);
            self.model.insert(key.clone(), (version, value.clone()));
            self.outcomes.push((write, reply));
        }
    }

    /// Repeats a transaction, at the shard that owns its key by now.
    fn repeat_transaction(&mut self) {
        if !self.outcomes.is_empty() {
            let (write, first) = self.outcomes[self.random.usize(..self.outcomes.len())].clone();
            if let Some(reply) = self.ask(&write) {
                assert_eq!(reply, first);
            }
        }
    }

    /// Deletes `key` and another key in one transaction: both change, or none.
    fn delete_two(&mut self, key: &Bytes) {
        let other = self.key();
        let operations =
            Operations::of(&[key, &other].map(|key| Operation::Delete { key, condition: Condition::Always }));
        let write = Write::Keys(Transaction::of(operations));
        if let Some(WriteReply::Operations(replies)) = self.ask(&write) {
            for (key, reply) in [key, &other].into_iter().zip(replies.iter()) {
                match reply {
                    OperationReply::Deleted { version } => {
                        self.saw(key, version);
                        assert!(self.model.remove(key).is_some());
                    }
                    reply => {
                        assert_eq!(reply, OperationReply::Absent);
                        assert!(!self.model.contains_key(key));
                    }
                }
            }
        }
    }

    fn publish(&mut self) {
        let name = format!("ns-{}", self.random.u8(..12));
        let namespace = Name::new(&name).expect("a name");
        let number = self.random.i64(..);
        let operation = if self.random.u8(..6) == 0 {
            ConfigOperation::Delete { force: true }
        } else {
            let pair = format!("p{}", self.random.u8(..3)).into();
            ConfigOperation::Publish {
                changes: vec![Change::PutPair { key: pair, value: Value::Int(number), retype: false }],
                create: true,
            }
        };
        let is_delete = matches!(operation, ConfigOperation::Delete { .. });
        let write = ConfigWrite { namespace, stamp: Stamp::default(), expected: None, operation };
        if let Some(WriteReply::Config(Ok(ConfigWritten { revision, .. }))) = self.ask(&Write::from(write)) {
            let known = self.numbers.get(&name).map_or(0, |(revision, _)| *revision);
            assert!(revision > known || is_delete, "{name} was at {known} and is at {revision}");
            self.numbers.insert(name, (revision.max(known), if is_delete { i64::MIN } else { number }));
        }
    }

    fn expire(&mut self) {
        for shard in [GIVER, RECEIVER] {
            let (now, limit) = (UnixMillis(self.now + self.random.u64(..5)), self.random.usize(1..20));
            self.apply(shard, Write::Expire { shard: ShardId(1), now, limit, leases: None })
                .expect("applied");
        }
    }

    /// Changes the leader of the giver. The new leader restarts the copy; messages of the old one
    /// may still arrive.
    fn change_leader(&mut self) {
        self.data(GIVER).abandon_outgoing();
        self.driver =
            Driver { attempt: self.driver.attempt + 1, sequence: 0, is_open: false, is_deaf: false };
    }

    /// One step of the giver's leader.
    fn drive(&mut self) {
        if let Some(Stage::Released { .. }) = self.stage(GIVER) {
            self.step(GIVER, MoveStep::Purge { limit: 25 });
            return;
        }
        let (attempt, slots) = (self.driver.attempt, self.slots.clone());
        if !self.driver.is_open {
            let open =
                MoveStep::Open { attempt, slots: slots.clone(), founding: SlotSet::default(), limit: 25 };
            match self.step(RECEIVER, open) {
                MoveReply::Done => self.driver.is_open = true,
                MoveReply::Again => return,
                MoveReply::Owned if self.stage(GIVER) == Some(&Stage::Idle) => return,
                MoveReply::Owned => {
                    let slots = slots.clone();
                    self.data(GIVER).begin_outgoing(&slots);
                    while self.data(GIVER).outgoing_rest().is_none() {
                        self.data(GIVER).next_part((0, 0), 25);
                    }
                    self.release();
                    return;
                }
                MoveReply::Outdated => panic!("nobody is newer"),
            }
            self.data(GIVER).begin_outgoing(&slots);
            return;
        }
        let sequence = self.driver.sequence;
        let part = self.data(GIVER).next_part((attempt, sequence), 25);
        if !part.is_empty() {
            match self.step(RECEIVER, MoveStep::Import(part)) {
                MoveReply::Done => self.driver.sequence += 1,
                MoveReply::Owned if self.driver.is_deaf => self.release(),
                reply => panic!("{reply:?}"),
            }
        } else if self.data(GIVER).outgoing_rest().is_some() {
            if matches!(self.stage(GIVER), Some(Stage::Frozen { .. })) {
                let own = self.data(GIVER).own_step(attempt, sequence);
                assert_eq!(self.step(RECEIVER, own), MoveReply::Owned);
                match self.random.u8(..3) {
                    0 => self.release(),
                    1 => self.change_leader(),
                    // The reply is lost, and keys may expire before the retry.
                    _ => self.driver.is_deaf = true,
                }
            } else {
                let founding = SlotSet::all();
                assert_eq!(self.step(GIVER, MoveStep::Freeze { slots, founding }), MoveReply::Done);
            }
        }
    }

    fn release(&mut self) {
        let rest = self.data(GIVER).outgoing_rest().expect("the walk is complete");
        let removed = match self.stage(GIVER) {
            Some(Stage::Frozen { removed, .. }) => *removed,
            _ => 0,
        };
        let rows = rest.rows + removed;
        // Keys are counted before messages in transit are delivered.
        self.now += 3;
        self.expire();
        self.step(GIVER, MoveStep::Release { rows });
        self.data(GIVER).abandon_outgoing();
    }

    /// Delivers an earlier step again.
    fn repeat(&mut self) {
        if !self.sent.is_empty() {
            let step = self.sent[self.random.usize(..self.sent.len())].clone();
            self.apply(RECEIVER, Write::from(step)).expect("applied");
        }
    }

    /// Replaces a shard's state by one restored from its snapshot.
    fn snapshot(&mut self) {
        let shard = self.random.usize(..2);
        let machine = &mut self.shards[shard];
        let digest = machine.digest();
        machine.begin_snapshot(&Membership::default());
        let mut restore = Restore::default();
        while let Some(block) = machine.next_block() {
            restore.block(&block).expect("a block");
        }
        let restored = restore.finish().expect("a machine").machine;
        assert_eq!(restored.digest(), digest);
        assert_eq!(restored.record_count(), machine.record_count());
        if shard == RECEIVER {
            self.shards[RECEIVER] = restored;
        }
    }

    fn is_over(&self) -> bool {
        let idle = |shard| self.stage(shard) == Some(&Stage::Idle);
        let last = |shard: usize| self.shards[shard].data().and_then(Data::ownership_of).map(Ownership::last);
        idle(GIVER) && idle(RECEIVER) && last(GIVER) == Some(self.migration)
    }

    /// Checks all keys that both shards show together.
    fn check(&mut self) {
        let mut all: BTreeMap<Bytes, (Version, Bytes)> = BTreeMap::new();
        let mut owned = SlotSet::default();
        for shard in [GIVER, RECEIVER] {
            let Some(data) = self.shards[shard].data() else { panic!("a data shard") };
            let list = Read::List { prefix: Bytes::new(), after: None, limit: 10_000, keys_only: false };
            let ShardAnswer { owned: part, reply } = data.read(&list).expect("a page");
            match part {
                Some(part) => {
                    assert!(!owned.overlaps(&part));
                    owned = owned.union(&part);
                }
                None if shard == RECEIVER => continue,
                None => owned = SlotSet::all(),
            }
            let ReadReply::Page(page) = reply else { panic!("a page") };
            match data.read(&Read::Count) {
                Ok(count) => assert_eq!(count.reply, ReadReply::Count(page.items.len() as u64)),
                Err(error) => assert_eq!(error, ShardError::NotHere),
            }
            for item in page.items {
                let value = item.value.expect("values were asked for");
                assert!(all.insert(item.key, (item.version, value)).is_none(), "two owners");
            }
        }
        let missing = |key: &Bytes| !owned.contains(slot_of(key));
        for (key, held) in &self.model {
            assert!(
                missing(key) || all.get(key) == Some(held),
                "{key:?} should hold {held:?}: {:?}",
                all.get(key)
            );
        }
        assert!(all.keys().all(|key| self.model.contains_key(key)), "nothing came back");
    }

    fn check_config(&mut self) {
        for (name, (revision, _)) in self.numbers.clone() {
            let namespace = Name::new(&name).expect("a name");
            let read = Read::Config(ConfigRead { namespace, query: Query::Namespace });
            let answers = self.shards.iter().map(|shard| shard.read(&read));
            let own: Vec<_> = answers.filter(|answer| *answer != Err(ShardError::NotHere)).collect();
            assert_eq!(own.len(), 1, "{name} has one owner");
            if let Ok(ShardAnswer { reply: ReadReply::Config(Ok(ConfigReply::Namespace(view))), .. }) =
                &own[0]
            {
                assert_eq!(view.revision, revision);
            }
        }
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..world.random.usize(..400) {
        world.client();
    }
    for round in 0..3 {
        let busy = world.random.u8(1..12);
        for _ in 0..20_000 {
            match world.random.u8(..40) {
                0 => world.change_leader(),
                1 => world.snapshot(),
                2 | 3 => world.repeat(),
                4 => world.check(),
                choice if choice < 5 + busy => world.client(),
                _ => world.drive(),
            }
            if world.is_over() {
                break;
            }
        }
        assert!(world.is_over(), "it comes to an end");
        for _ in 0..10 {
            world.repeat();
        }
        world.check();
        world.check_config();
        // The next move continues with the remaining slots.
        let owned = world.data(GIVER).ownership_of().expect("it moved").owned().clone();
        let Some(range) = owned.ranges().first().cloned() else { break };
        world.slots = SlotSet::from(range.start..range.start + (range.end - range.start).div_ceil(2));
        world.migration = MigrationId(2 + round);
        world.driver =
            Driver { attempt: world.driver.attempt + 1, sequence: 0, is_open: false, is_deaf: false };
    }
}

#[test]
fn nothing_is_lost_or_doubled_whatever_comes_late_or_twice() {
    for seed in 0..60 {
        run(seed);
    }
}

#[test]
fn a_shard_that_never_moved_says_nothing_of_slots() {
    let machine = Machine::new(ShardId(1), &Founding::new(3, 2));
    assert_eq!(machine.read(&Read::Count), Ok(ShardAnswer { owned: None, reply: ReadReply::Count(0) }));
    assert!(machine.data().and_then(Data::ownership_of).is_none());
}

#[test]
fn a_part_of_an_older_attempt_is_not_believed() {
    let mut machine = Machine::new(ShardId(2), &Founding::new(3, 2));
    let slots = SlotSet::all();
    let mut step = |step| {
        let write = Write::from(Move { shard: ShardId(2), migration: MigrationId(1), step });
        machine.apply(LogIndex(1), write)
    };
    let open =
        |attempt| MoveStep::Open { attempt, slots: slots.clone(), founding: SlotSet::default(), limit: 25 };
    let part = |attempt, sequence, version| {
        let key = Bytes::from_static(b"k");
        let row =
            RestoredKey { key, version: Version(version), value: Bytes::new(), expires: None, lease: None };
        let (removals, config) = (Vec::new(), None);
        let revision = Version(version);
        MoveStep::Import(Import {
            attempt,
            sequence,
            revision,
            rows: vec![row],
            removals,
            config,
            leases: None,
        })
    };
    let own = |attempt, sequence| MoveStep::Own {
        attempt,
        sequence,
        revision: Version(9),
        config: crate::machine::config::Config::default().floor_block().into(),
        outcomes: vec![],
        leases_at: None,
    };
    assert_eq!(step(open(1)), Ok(WriteReply::Move(MoveReply::Done)));
    assert_eq!(step(part(1, 0, 5)), Ok(WriteReply::Move(MoveReply::Done)));
    assert_eq!(step(part(1, 0, 5)), Ok(WriteReply::Move(MoveReply::Done)), "twice is once");
    assert_eq!(step(part(1, 2, 5)), Ok(WriteReply::Move(MoveReply::Outdated)), "a part is missing");
    assert_eq!(step(open(2)), Ok(WriteReply::Move(MoveReply::Done)), "and all of the first is gone");
    assert_eq!(step(part(1, 1, 5)), Ok(WriteReply::Move(MoveReply::Outdated)));
    assert_eq!(step(own(1, 1)), Ok(WriteReply::Move(MoveReply::Outdated)));
    assert_eq!(step(own(2, 1)), Ok(WriteReply::Move(MoveReply::Outdated)), "not complete");
    assert_eq!(step(open(1)), Ok(WriteReply::Move(MoveReply::Outdated)));
    assert_eq!(step(own(2, 0)), Ok(WriteReply::Move(MoveReply::Owned)));
    assert_eq!(step(open(3)), Ok(WriteReply::Move(MoveReply::Owned)));
    assert_eq!(step(part(2, 0, 5)), Ok(WriteReply::Move(MoveReply::Owned)), "and it is not taken");
    let answer = machine.read(&Read::Count).expect("a number");
    assert_eq!((answer.owned, answer.reply), (Some(slots), ReadReply::Count(0)));
}
