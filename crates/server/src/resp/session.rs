//! What one client has asked and is owed: its settings, its transaction in the making, its lanes and its slots.
//!
//! Owns the state of a connection apart from its socket. Commands change it, [`connection`](super::connection) moves its bytes.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use tidelock_core::command::{
    Consistency, Operation, OperationReply, OperationsBuilder, Reply, Request, Watch,
};
use tidelock_core::limits;
use tidelock_core::types::{ShardId, Version};

use super::RespContext;
use super::access::Access;
use super::encode::{Encoder, Protocol};
use super::lanes::{Lanes, Part};
use super::slots::{Item, Render, RenderMany, Slot, Style, refusal_text};

/// Why a command is not done, in the words that the client gets: a code in capitals, then text.
pub type Failure = std::borrow::Cow<'static, str>;

/// A reply that takes asking the store more than once.
pub type Pending = Pin<Box<dyn Future<Output = Vec<u8>>>>;

/// What a command wants next.
pub enum Action {
    /// Nothing.
    Done,
    /// Nothing else is done for this client until this is.
    Wait(Pending),
    /// The connection is to end once everything is answered.
    Close,
}

/// One client.
pub struct Session {
    /// What the client is numbered, over all of this node.
    pub id: u64,
    /// What it calls itself.
    pub name: Bytes,
    /// The library that it uses, by its own account.
    pub library: [Bytes; 2],
    /// The version of the protocol that it speaks.
    pub protocol: Protocol,
    /// Whether its reads may be stale.
    pub is_readonly: bool,
    /// Whether it came as a client of Redis Cluster: it is shown what this node leads.
    pub is_cluster: bool,
    /// Everything that all clients share.
    pub context: Rc<RespContext>,
    /// The store.
    pub store: Rc<dyn Access>,
    multi: Option<Multi>,
    watches: Vec<Watched>,
    /// Keys that were ever watched.
    watches_begun: u64,
    lanes: Lanes,
    /// The version of the map of slots by which operations have their lanes.
    map_version: u64,
    ring: VecDeque<Slot>,
    /// Bytes that the slots hold.
    ring_bytes: usize,
    out: Vec<u8>,
}

/// A transaction in the making.
#[derive(Debug, Default)]
struct Multi {
    operations: OperationsBuilder,
    /// The first key, and its shard.
    first: Option<(Bytes, ShardId)>,
    items: Vec<Item>,
    items_bytes: usize,
    /// A command was refused, so the whole will be.
    is_spoilt: bool,
}

/// A key that is watched.
#[derive(Debug)]
struct Watched {
    /// Tells it from others of the same client, also those that are forgotten.
    number: u64,
    key: Bytes,
    shard: ShardId,
    version: Seen,
}

/// The version of a watched key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It is being asked for.
    Asked,
    /// It could not be found out.
    Unknown,
    /// As it was when it was watched.
    At(Version),
}

const CROSS_SLOT: &str =
    "CROSSSLOT Keys in request don't hash to the same shard; give them a common {hash tag}";

impl Session {
    /// A client that has not said anything yet.
    pub fn new(id: u64, context: Rc<RespContext>, store: Rc<dyn Access>) -> Session {
        let map_version = store.slot_map().version;
        Session {
            id,
            name: Bytes::new(),
            library: [Bytes::new(), Bytes::new()],
            protocol: Protocol::default(),
            is_readonly: false,
            is_cluster: false,
            context,
            store,
            multi: None,
            watches: Vec::new(),
            watches_begun: 0,
            lanes: Lanes::new(),
            map_version,
            ring: VecDeque::new(),
            ring_bytes: 0,
            out: Vec::new(),
        }
    }

    /// Whether another command may be taken. Once slots have moved, what is under way is answered first: a command on one
    /// of those keys would go another way than earlier ones, and could overtake them.
    pub fn keeps_order(&mut self) -> bool {
        let version = self.store.slot_map().version;
        if version != self.map_version && self.lanes.is_idle() {
            self.map_version = version;
            if let Some((key, shard)) = self.multi.as_mut().and_then(|multi| multi.first.as_mut()) {
                *shard = self.store.shard_of(key);
            }
            for watched in &mut self.watches {
                watched.shard = self.store.shard_of(&watched.key);
            }
        }
        version == self.map_version
    }

    /// Does one operation and owes its reply.
    pub fn one(&mut self, operation: &Operation<'_>, render: Render) -> Result<Action, Failure> {
        check(operation)?;
        if self.multi.is_some() {
            self.queue([*operation].into_iter(), Item::One(render))?;
        } else {
            let lane = self.lanes.push(self.store.shard_of(operation.key()), operation);
            self.push_slot(Slot::One { lane, render });
        }
        Ok(Action::Done)
    }

    /// Does several operations, each in the lane of its key, and owes one reply to all.
    pub fn many<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        render: RenderMany,
    ) -> Result<Action, Failure> {
        operations.clone().try_for_each(|operation| check(&operation))?;
        if self.multi.is_some() {
            let item = Item::Many(render, operations.len());
            self.queue(operations, item)?;
        } else {
            let lanes = operations
                .map(|operation| self.lanes.push_together(self.store.shard_of(operation.key()), &operation));
            let slot = Slot::many(render, lanes.collect());
            self.push_slot(slot);
        }
        Ok(Action::Done)
    }

    /// Does several operations on keys of one shard, all or none, and owes one reply.
    pub fn together<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        render: RenderMany,
    ) -> Result<Action, Failure> {
        if self.multi.is_some() {
            return self.many(operations, render);
        }
        operations.clone().try_for_each(|operation| check(&operation))?;
        let mut builder = OperationsBuilder::default();
        let mut shard = None;
        let count = operations.len();
        for operation in operations {
            join(&mut shard, self.store.shard_of(operation.key()))?;
            builder.push(&operation);
        }
        check_length(&builder)?;
        let shard = shard.ok_or("ERR wrong number of arguments")?;
        let lane = self.lanes.push_transaction(shard, builder, Vec::new());
        self.push_slot(Slot::many(render, std::iter::repeat_n(lane, count).collect()));
        Ok(Action::Done)
    }

    /// Replies at once, in the order of the commands.
    pub fn reply(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) -> Result<Action, Failure> {
        if self.multi.is_some() {
            let mut encoded = Vec::new();
            encode(&mut Encoder::new(&mut encoded, self.protocol));
            self.queue(std::iter::empty(), Item::Ready(encoded))?;
        } else {
            self.owe(encode);
        }
        Ok(Action::Done)
    }

    /// Replies `OK`.
    pub fn ok(&mut self) -> Result<Action, Failure> {
        self.reply(|encoder| encoder.ok())
    }

    /// Owes an error. A transaction in the making is spoilt by it.
    pub fn fail(&mut self, failure: &str) {
        if let Some(multi) = &mut self.multi {
            multi.is_spoilt = true;
        }
        self.owe(|encoder| encoder.error(failure));
    }

    /// Whether a transaction is in the making.
    pub fn is_in_multi(&self) -> bool {
        self.multi.is_some()
    }

    /// Begins a transaction.
    pub fn begin_multi(&mut self) -> Result<Action, Failure> {
        if self.multi.is_some() {
            return Err("ERR MULTI calls can not be nested".into());
        }
        self.multi = Some(Multi::default());
        self.owe(|encoder| encoder.ok());
        Ok(Action::Done)
    }

    /// Ends a transaction and does it. Whoever calls makes sure that all watches are known.
    pub fn exec(&mut self) -> Result<Action, Failure> {
        let multi = self.multi.take().ok_or("ERR EXEC without MULTI")?;
        let watches = std::mem::take(&mut self.watches);
        if multi.is_spoilt {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        let mut shard = multi.first.map(|(_, shard)| shard);
        let mut conditions = Vec::with_capacity(watches.len());
        for watched in watches {
            join(&mut shard, watched.shard)?;
            let Seen::At(version) = watched.version else {
                return Err(
                    "EXECABORT Transaction discarded because a WATCH was answered with an error.".into()
                );
            };
            conditions.push(Watch { key: watched.key, version });
        }
        if let Some(shard) = shard {
            let lane = self.lanes.push_transaction(shard, multi.operations, conditions);
            self.push_slot(Slot::Exec { lane, items: multi.items });
        } else {
            self.owe(|encoder| {
                encoder.array(multi.items.len());
                for item in &multi.items {
                    if let Item::Ready(encoded) = item {
                        encoder.raw(encoded);
                    }
                }
            });
        }
        Ok(Action::Done)
    }

    /// Forgets a transaction in the making, and what is watched.
    pub fn discard(&mut self) -> Result<Action, Failure> {
        self.multi.take().ok_or("ERR DISCARD without MULTI")?;
        self.watches.clear();
        self.owe(|encoder| encoder.ok());
        Ok(Action::Done)
    }

    /// Watches keys from now on.
    pub fn watch<'a>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> Result<Action, Failure> {
        if self.multi.is_some() {
            // As in Redis, this does not spoil the transaction.
            self.owe(|encoder| encoder.error("ERR WATCH inside MULTI is not allowed"));
            return Ok(Action::Done);
        }
        let count = keys.len();
        if self.watches.len() + count > limits::WATCHES_MAX {
            return Err("ERR more than 1024 keys are watched".into());
        }
        keys.clone().try_for_each(|key| check(&Operation::Describe { key }))?;
        for (number, key) in keys.enumerate() {
            let shard = self.store.shard_of(key);
            let lane = self.lanes.push(shard, &Operation::Describe { key });
            self.watches_begun += 1;
            let (watch, is_last) = (self.watches_begun, number + 1 == count);
            self.push_slot(Slot::Watch { lane, watch, is_last });
            let key = Bytes::copy_from_slice(key);
            self.watches.push(Watched { number: watch, key, shard, version: Seen::Asked });
        }
        Ok(Action::Done)
    }

    /// Watches nothing any more.
    pub fn unwatch(&mut self) -> Result<Action, Failure> {
        self.watches.clear();
        self.ok()
    }

    /// Whether the version of every watched key is known.
    pub fn knows_watches(&self) -> bool {
        self.watches.iter().all(|watched| watched.version != Seen::Asked)
    }

    /// Forgets everything that the client said of itself.
    pub fn reset(&mut self) {
        self.multi = None;
        self.watches.clear();
        self.name = Bytes::new();
        self.protocol = Protocol::default();
        self.is_readonly = false;
    }

    /// Appends a reply that was waited for.
    pub fn owe_encoded(&mut self, encoded: Vec<u8>) {
        self.push_slot(Slot::Ready(encoded));
    }

    /// Whether nothing is owed but what is encoded.
    pub fn is_settled(&self) -> bool {
        self.ring.is_empty()
    }

    /// Replies that are owed and not encoded yet.
    pub fn owed(&self) -> usize {
        self.ring.len()
    }

    /// Bytes that are held for this client: of operations, of replies that are there or may come,
    /// and encoded.
    pub fn held_bytes(&self) -> usize {
        self.lanes.held_bytes() + self.held_apart_bytes()
    }

    /// The same without what replies may take and probably do not.
    pub fn expected_held_bytes(&self) -> usize {
        self.lanes.expected_held_bytes() + self.held_apart_bytes()
    }

    /// What is held besides what the lanes hold.
    fn held_apart_bytes(&self) -> usize {
        let multi =
            self.multi.as_ref().map_or(0, |multi| multi.operations.encoded_bytes() + multi.items_bytes);
        let slots = self.ring_bytes + self.ring.len() * size_of::<Slot>();
        let encoded = self.out.len().max(self.lanes.encoding_bytes());
        encoded + slots + multi + self.watches.len() * size_of::<Watched>()
    }

    /// Bytes that are encoded, sent or not.
    pub fn encoded_bytes(&self) -> usize {
        self.out.len()
    }

    /// Hands what the lanes have to `submit`, as far as `has_room` grants memory for the replies:
    /// so many bytes, for the reply that the client gets next or a later one. If the client `reads`
    /// nothing, all of them are later ones.
    pub fn submit(
        &mut self,
        reads: bool,
        has_room: impl FnMut(usize, bool) -> bool,
        submit: impl FnMut(Request, u64),
    ) {
        let (first, consistency) =
            (self.ring.front().filter(|_| reads).and_then(Slot::lane), self.consistency());
        self.lanes.submit((first, consistency), has_room, submit);
    }

    /// Refuses what the client gets its next reply of, if that is not under way yet. Returns
    /// whether there was something.
    pub fn refuse_next(&mut self) -> bool {
        let first = self.ring.front().and_then(Slot::lane);
        first.is_some_and(|lane| self.lanes.refuse_next(lane))
    }

    /// Takes a reply of the store.
    pub fn complete(&mut self, lane: u64, reply: Reply) {
        self.lanes.complete(lane, reply);
    }

    /// Encodes replies up to the first that is not known, or until there are `bytes_max` of them.
    pub fn settle(&mut self, bytes_max: usize) {
        if self.ring.is_empty() {
            return;
        }
        let style = Style { protocol: self.protocol, now: self.context.clock.now() };
        while self.out.len() < bytes_max
            && let Some(slot) = self.ring.front_mut()
        {
            let held_before = slot.held_bytes();
            let is_settled = match slot {
                Slot::Watch { lane, watch, is_last } => {
                    let (lane, watch, is_last) = (*lane, *watch, *is_last);
                    self.settle_watch(lane, watch, is_last)
                }
                slot => slot.settle(&mut self.lanes, style, &mut self.out),
            };
            let held_after = self.ring.front().map_or(0, Slot::held_bytes);
            self.ring_bytes = self.ring_bytes + held_after - held_before;
            if !is_settled {
                break;
            }
            self.ring_bytes -= held_after;
            self.ring.pop_front();
        }
    }

    /// What is to be sent.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn consistency(&self) -> Consistency {
        if self.is_readonly { Consistency::Stale } else { Consistency::Linearizable }
    }

    fn push_slot(&mut self, slot: Slot) {
        self.ring_bytes += slot.held_bytes();
        self.ring.push_back(slot);
    }

    fn owe(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) {
        if self.ring.is_empty() {
            return encode(&mut Encoder::new(&mut self.out, self.protocol));
        }
        let mut encoded = Vec::new();
        encode(&mut Encoder::new(&mut encoded, self.protocol));
        self.push_slot(Slot::Ready(encoded));
    }

    /// Takes a command into the transaction in the making.
    fn queue<'a>(
        &mut self,
        operations: impl Iterator<Item = Operation<'a>>,
        item: Item,
    ) -> Result<(), Failure> {
        let multi = self.multi.as_mut().expect("invariant: there is a transaction in the making");
        for operation in operations {
            let shard = self.store.shard_of(operation.key());
            let (_, first) =
                multi.first.get_or_insert_with(|| (Bytes::copy_from_slice(operation.key()), shard));
            if *first != shard {
                return Err(CROSS_SLOT.into());
            }
            multi.operations.push(&operation);
        }
        check_length(&multi.operations)?;
        multi.items_bytes += item.held_bytes();
        if multi.items_bytes > limits::TRANSACTION_BYTES_MAX {
            return Err("ERR too many commands in one transaction".into());
        }
        multi.items.push(item);
        self.owe(|encoder| encoder.simple("QUEUED"));
        Ok(())
    }

    fn settle_watch(&mut self, lane: u32, watch: u64, is_last: bool) -> bool {
        let found = self.lanes.take(lane, |part| match part {
            Part::Reply(OperationReply::Described { version, .. }) => Ok(version),
            Part::Reply(_) => Ok(Version::ABSENT),
            Part::Refused(refusal) => Err(refusal),
        });
        let Some(found) = found else { return false };
        // An UNWATCH may have come meanwhile.
        if let Some(watched) = self.watches.iter_mut().find(|watched| watched.number == watch) {
            watched.version = found.map_or(Seen::Unknown, Seen::At);
        }
        let mut encoder = Encoder::new(&mut self.out, self.protocol);
        match found {
            _ if !is_last => {}
            Ok(_) => encoder.ok(),
            Err(refusal) => encoder.error(&refusal_text(refusal)),
        }
        true
    }
}

fn check(operation: &Operation<'_>) -> Result<(), Failure> {
    operation.validate().map_err(|refusal| refusal_text(refusal).into())
}

fn check_length(operations: &OperationsBuilder) -> Result<(), Failure> {
    if operations.encoded_bytes() > limits::TRANSACTION_BYTES_MAX {
        return Err("ERR the commands of one transaction are longer than 8 MiB together".into());
    }
    Ok(())
}

/// A transaction is of one shard.
fn join(shard: &mut Option<ShardId>, other: ShardId) -> Result<(), Failure> {
    if *shard.get_or_insert(other) == other { Ok(()) } else { Err(CROSS_SLOT.into()) }
}

#[cfg(test)]
mod tests;
