//! The state of one client's session: its settings, its open transaction, its shard queues and the
//! replies that it is owed.
//!
//! Owns the state of a connection apart from its socket. Commands change it;
//! [`connection`](super::connection) moves its bytes.

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
use super::shard_queues::{Part, ShardQueues};
use super::slots::{Exec, Item, PendingReply, Render, RenderMany, Style, refusal_text};

/// The error text of a command that is not executed: a code in capitals, then text.
pub type Failure = std::borrow::Cow<'static, str>;

/// A reply that takes several requests to the store.
pub type ReplyFuture = Pin<Box<dyn Future<Output = Vec<u8>>>>;

/// What the connection does after a command.
pub enum Action {
    /// Continues with the next command.
    Done,
    /// Execute no further command of this client before this future completes.
    Wait(ReplyFuture),
    /// Close the connection once everything is answered.
    Close,
}

/// The state of one client between commands.
pub struct Session {
    /// The client's number, unique on this node.
    pub id: u64,
    /// The name that the client gave itself (`CLIENT SETNAME`).
    pub name: Bytes,
    /// Name and version of the client's library, as it stated them (`CLIENT SETINFO`).
    pub library: [Bytes; 2],
    /// The protocol version that the client speaks.
    pub protocol: Protocol,
    /// Whether its reads may be stale (`READONLY`).
    pub is_readonly: bool,
    /// Whether it is a Redis Cluster client, which is shown the slots that this node leads.
    pub is_cluster: bool,
    pub context: Rc<RespContext>,
    pub store: Rc<dyn Access>,
    multi: Option<Multi>,
    watches: Vec<Watched>,
    /// Number of keys that were ever watched.
    watches_begun: u64,
    shard_queues: ShardQueues,
    /// The version of the slot map by which operations were assigned to shard queues.
    map_version: u64,
    ring: VecDeque<PendingReply>,
    /// Bytes that the owed replies hold.
    ring_bytes: usize,
    out: Vec<u8>,
}

/// An open transaction (`MULTI`).
#[derive(Debug, Default)]
struct Multi {
    operations: OperationsBuilder,
    /// The first key, and its shard.
    first: Option<(Bytes, ShardId)>,
    items: Vec<Item>,
    items_bytes: usize,
    /// A command was refused, so `EXEC` will be.
    is_failed: bool,
}

/// A key that the client watches (`WATCH`).
#[derive(Debug)]
struct Watched {
    /// Unique among the client's watches, including former ones.
    number: u64,
    key: Bytes,
    shard: ShardId,
    version: WatchedVersion,
}

/// The version of a watched key, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchedVersion {
    /// Requested, and not known yet.
    Asked,
    /// The request for its version failed, so `EXEC` will be aborted.
    Unknown,
    /// The version when the key was watched.
    At(Version),
}

const CROSS_SLOT: &str =
    "CROSSSLOT Keys in request don't hash to the same shard; give them a common {hash tag}";

impl Session {
    /// Creates a session without commands yet.
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
            shard_queues: ShardQueues::new(),
            map_version,
            ring: VecDeque::new(),
            ring_bytes: 0,
            out: Vec::new(),
        }
    }

    /// Whether another command may be executed. Once slots have moved, commands in flight are
    /// answered first: a later command on a moved key would take another path and could overtake
    /// them.
    pub fn keeps_order(&mut self) -> bool {
        let version = self.store.slot_map().version;
        if version != self.map_version && self.shard_queues.is_idle() {
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

    /// Executes one operation and owes its reply.
    pub fn one(&mut self, operation: &Operation<'_>, render: Render) -> Result<Action, Failure> {
        check(operation)?;
        if self.multi.is_some() {
            self.queue([*operation].into_iter(), Item::One(render))?;
        } else {
            let shard_queue = self.shard_queues.push(self.store.shard_of(operation.key()), operation);
            self.push_slot(PendingReply::One { shard_queue, render });
        }
        Ok(Action::Done)
    }

    /// Executes several operations, each in its key's shard queue, and owes one reply to all.
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
            let shard_queues = operations.map(|operation| {
                self.shard_queues.push_together(self.store.shard_of(operation.key()), &operation)
            });
            let slot = PendingReply::many(render, shard_queues.collect());
            self.push_slot(slot);
        }
        Ok(Action::Done)
    }

    /// Executes several operations on keys of one shard, all or none, and owes one reply.
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
        let shard_queue = self.shard_queues.push_transaction(shard, builder, Vec::new());
        self.push_slot(PendingReply::many(render, std::iter::repeat_n(shard_queue, count).collect()));
        Ok(Action::Done)
    }

    /// Replies without the store, in the order of the commands.
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

    /// Owes an error. It makes an open transaction fail.
    pub fn fail(&mut self, failure: &str) {
        if let Some(multi) = &mut self.multi {
            multi.is_failed = true;
        }
        self.owe(|encoder| encoder.error(failure));
    }

    pub fn is_in_multi(&self) -> bool {
        self.multi.is_some()
    }

    pub fn begin_multi(&mut self) -> Result<Action, Failure> {
        if self.multi.is_some() {
            return Err("ERR MULTI calls can not be nested".into());
        }
        self.multi = Some(Multi::default());
        self.owe(|encoder| encoder.ok());
        Ok(Action::Done)
    }

    /// Ends a transaction and executes it. The caller makes sure that all watches are known.
    pub fn exec(&mut self) -> Result<Action, Failure> {
        let multi = self.multi.take().ok_or("ERR EXEC without MULTI")?;
        let watches = std::mem::take(&mut self.watches);
        if multi.is_failed {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        let mut shard = multi.first.map(|(_, shard)| shard);
        let mut conditions = Vec::with_capacity(watches.len());
        for watched in watches {
            join(&mut shard, watched.shard)?;
            let WatchedVersion::At(version) = watched.version else {
                return Err(
                    "EXECABORT Transaction discarded because a WATCH was answered with an error.".into()
                );
            };
            conditions.push(Watch { key: watched.key, version });
        }
        if let Some(shard) = shard {
            let shard_queue = self.shard_queues.push_transaction(shard, multi.operations, conditions);
            self.push_slot(PendingReply::Exec(Exec { shard_queue, items: multi.items }));
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

    /// Discards the open transaction and all watches.
    pub fn discard(&mut self) -> Result<Action, Failure> {
        self.multi.take().ok_or("ERR DISCARD without MULTI")?;
        self.watches.clear();
        self.owe(|encoder| encoder.ok());
        Ok(Action::Done)
    }

    /// Requests the versions of keys, and watches them until `EXEC`, `DISCARD` or `UNWATCH`.
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
            let shard_queue = self.shard_queues.push(shard, &Operation::Describe { key });
            self.watches_begun += 1;
            let (watch, is_last) = (self.watches_begun, number + 1 == count);
            self.push_slot(PendingReply::Watch { shard_queue, watch, is_last });
            let key = Bytes::copy_from_slice(key);
            self.watches.push(Watched { number: watch, key, shard, version: WatchedVersion::Asked });
        }
        Ok(Action::Done)
    }

    pub fn unwatch(&mut self) -> Result<Action, Failure> {
        self.watches.clear();
        self.ok()
    }

    /// Whether the version of every watched key is known.
    pub fn knows_watches(&self) -> bool {
        self.watches.iter().all(|watched| watched.version != WatchedVersion::Asked)
    }

    /// Resets what the client has set (`RESET`).
    pub fn reset(&mut self) {
        self.multi = None;
        self.watches.clear();
        self.name = Bytes::new();
        self.protocol = Protocol::default();
        self.is_readonly = false;
    }

    /// Appends a reply that was waited for.
    pub fn owe_encoded(&mut self, encoded: Vec<u8>) {
        self.push_slot(PendingReply::Ready(encoded));
    }

    /// Whether every owed reply is encoded.
    pub fn is_settled(&self) -> bool {
        self.ring.is_empty()
    }

    /// Number of owed replies that are not encoded yet.
    pub fn owed(&self) -> usize {
        self.ring.len()
    }

    /// Bytes that are held for this client: operations, replies (available, possible or encoded).
    pub fn held_bytes(&self) -> usize {
        self.shard_queues.held_bytes() + self.held_apart_bytes()
    }

    /// As [`Session::held_bytes`], with probable instead of largest replies.
    pub fn expected_held_bytes(&self) -> usize {
        self.shard_queues.expected_held_bytes() + self.held_apart_bytes()
    }

    /// Bytes that are held outside of the shard queues.
    fn held_apart_bytes(&self) -> usize {
        let multi =
            self.multi.as_ref().map_or(0, |multi| multi.operations.encoded_bytes() + multi.items_bytes);
        let slots = self.ring_bytes + self.ring.len() * size_of::<PendingReply>();
        let encoded = self.out.len().max(self.shard_queues.encoding_bytes());
        encoded + slots + multi + self.watches.len() * size_of::<Watched>()
    }

    /// Bytes of encoded replies that are not sent yet.
    pub fn encoded_bytes(&self) -> usize {
        self.out.len()
    }

    /// Passes the shard queues' commands to `submit`, as far as `has_room` grants memory for their
    /// replies. Its arguments are the bytes, and whether the reply is the next one for the client.
    /// If the client `reads` nothing, no reply is the next one.
    pub fn submit(
        &mut self,
        reads: bool,
        has_room: impl FnMut(usize, bool) -> bool,
        submit: impl FnMut(Request, u64),
    ) {
        let first = self.ring.front().filter(|_| reads).and_then(PendingReply::shard_queue);
        self.shard_queues.submit(first, self.consistency(), has_room, submit);
    }

    /// Refuses the command behind the client's next reply, if it is not in flight yet. Returns
    /// whether there was one.
    pub fn refuse_next(&mut self) -> bool {
        let first = self.ring.front().and_then(PendingReply::shard_queue);
        first.is_some_and(|shard_queue| self.shard_queues.refuse_next(shard_queue))
    }

    /// Takes a reply of the store.
    pub fn complete(&mut self, shard_queue: u64, reply: Reply) {
        self.shard_queues.complete(shard_queue, reply);
    }

    /// Encodes replies up to the first unknown one, or until `bytes_max` bytes are encoded.
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
                PendingReply::Watch { shard_queue, watch, is_last } => {
                    let (shard_queue, watch, is_last) = (*shard_queue, *watch, *is_last);
                    self.settle_watch(shard_queue, watch, is_last)
                }
                slot => slot.settle(&mut self.shard_queues, style, &mut self.out),
            };
            let held_after = self.ring.front().map_or(0, PendingReply::held_bytes);
            self.ring_bytes = self.ring_bytes + held_after - held_before;
            if !is_settled {
                break;
            }
            self.ring_bytes -= held_after;
            self.ring.pop_front();
        }
    }

    /// The encoded replies to be sent.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn consistency(&self) -> Consistency {
        if self.is_readonly { Consistency::Stale } else { Consistency::Linearizable }
    }

    fn push_slot(&mut self, slot: PendingReply) {
        self.ring_bytes += slot.held_bytes();
        self.ring.push_back(slot);
    }

    fn owe(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) {
        if self.ring.is_empty() {
            return encode(&mut Encoder::new(&mut self.out, self.protocol));
        }
        let mut encoded = Vec::new();
        encode(&mut Encoder::new(&mut encoded, self.protocol));
        self.push_slot(PendingReply::Ready(encoded));
    }

    /// Adds a command to the open transaction.
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

    fn settle_watch(&mut self, shard_queue: u32, watch: u64, is_last: bool) -> bool {
        let found = self.shard_queues.take(shard_queue, |part| match part {
            Part::Reply(OperationReply::Described { version, .. }) => Ok(version),
            Part::Reply(_) => Ok(Version::ABSENT),
            Part::Refused(refusal) => Err(refusal),
        });
        let Some(found) = found else { return false };
        // The client may have sent UNWATCH meanwhile.
        if let Some(watched) = self.watches.iter_mut().find(|watched| watched.number == watch) {
            watched.version =
                found.as_ref().map_or(WatchedVersion::Unknown, |&version| WatchedVersion::At(version));
        }
        let mut encoder = Encoder::new(&mut self.out, self.protocol);
        match found {
            _ if !is_last => {}
            Ok(_) => encoder.ok(),
            Err(refusal) => encoder.error(&refusal_text(&refusal)),
        }
        true
    }
}

fn check(operation: &Operation<'_>) -> Result<(), Failure> {
    operation.validate().map_err(|refusal| refusal_text(&refusal.into()).into())
}

fn check_length(operations: &OperationsBuilder) -> Result<(), Failure> {
    if operations.encoded_bytes() > limits::TRANSACTION_BYTES_MAX {
        return Err("ERR the commands of one transaction are longer than 8 MiB together".into());
    }
    Ok(())
}

/// Checks that a transaction stays within one shard.
fn join(shard: &mut Option<ShardId>, other: ShardId) -> Result<(), Failure> {
    if *shard.get_or_insert(other) == other { Ok(()) } else { Err(CROSS_SLOT.into()) }
}

#[cfg(test)]
mod tests;
