//! The state of one client's session: its settings, its commands in progress, and its encoded
//! replies.
//!
//! Owns the state of a connection apart from its socket. Commands change it;
//! [`connection`](super::connection) moves its bytes. The order of commands and replies, open
//! transactions and watched keys are the [`Pipeline`]'s.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tidelock_core::auth::{LimitExceeded, Usage};
use tidelock_core::clients::pipeline::{CommandError, Executed, Pipeline};
use tidelock_core::command::{Consistency, Operation, Publication, Refusal, Reply, Request};
use tidelock_core::deliberate::Faults;
use tidelock_core::types::UnixMillis;

use super::RespContext;
use super::authentication::{Authentication, CommandDemand};
use super::dispatch::{CommandSpec, When};
use super::dyn_store::DynStore;
use super::encode::{Encoder, Protocol};
use super::executor::Executor;
use super::frame::CommandArguments;
use super::pub_sub::Subscriptions;
use super::redirects::RedirectInbox;
use super::replies::{
    Encoded, Gathered, Item, Render, RenderMany, ReplyEncoder, RespReplies, Style, refusal_text,
};
use super::tracking::Tracking;
use crate::access::ProtectedModeError;
use crate::audit_log::DeniedReason;
use crate::clock::TurnClock;
use crate::protocol::ListenerProtocol;
use crate::tls::ClientCertificate;

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
    pub store: Rc<dyn DynStore>,
    /// The address of the client.
    pub address: Option<IpAddr>,
    pub authentication: Authentication,
    pub clock: TurnClock,
    /// Whether the client is on another machine, and the node in protected mode.
    pub is_protected_from: bool,
    /// The channels to which it has subscribed.
    pub subscriptions: Subscriptions,
    /// Why it cannot get the messages of its channels any more, so that the connection must end.
    pub broken_subscription: Option<&'static str>,
    /// The invalidations of other clients that it gets.
    pub redirected: RedirectInbox,
    /// What it caches.
    pub tracking: Option<Box<Tracking>>,
    pipeline: Pipeline<RespReplies>,
    /// What the queued commands of the open transaction cost. `EXEC` is charged for them.
    queued_usage: Usage,
    out: Vec<u8>,
}

impl Session {
    /// Creates a session without commands yet.
    pub fn new(id: u64, context: Rc<RespContext>, store: Rc<dyn DynStore>) -> Session {
        let map_version = store.slot_map().version;
        Session {
            id,
            name: Bytes::new(),
            library: [Bytes::new(), Bytes::new()],
            protocol: Protocol::default(),
            is_readonly: false,
            is_cluster: false,
            clock: TurnClock::new(context.clock),
            subscriptions: context.pub_sub.connect(),
            broken_subscription: None,
            redirected: context.redirects.connect(id),
            tracking: None,
            context,
            authentication: Authentication::new(store.access()),
            is_protected_from: false,
            store,
            address: None,
            pipeline: Pipeline::new(map_version, Faults::NONE),
            queued_usage: Usage::default(),
            out: Vec::new(),
        }
    }

    /// Whether another command may be executed, see [`Pipeline::follow_slot_map`].
    pub fn keeps_order(&mut self) -> bool {
        let store = &self.store;
        self.pipeline.follow_slot_map(store.slot_map().version, |key| store.shard_of(key))
    }

    /// Checks whether the client may use a command, by its token and the current permissions.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check_command(&mut self, demand: CommandDemand) -> Result<(), Failure> {
        self.follow_access();
        if self.tracking.as_ref().is_some_and(|tracking| tracking.is_refused.get()) {
            self.end_tracking();
        }
        if self.is_protected_from && demand != CommandDemand::Open {
            let checked = self.store.access().state().check_protected_mode();
            checked.map_err(|error| match error {
                ProtectedModeError::Unconfirmed => refusal_text(&Refusal::PermissionsUnknown),
                ProtectedModeError::TokensNotRequired => format!("DENIED {}", ProtectedModeError::ADVICE),
            })?;
        }
        self.authentication.check_command(demand, &self.clock)
    }

    /// Follows changes of permissions, and the end of the client's token.
    pub fn follow_access(&mut self) {
        if self.authentication.follow(self.store.access(), &self.clock) {
            self.adopt_caller();
        }
    }

    /// Takes the certificate that the client has presented in its handshake.
    pub fn present(&mut self, certificate: Option<Arc<ClientCertificate>>) {
        if certificate.is_some() {
            self.authentication.present(certificate, (self.store.access(), &self.clock));
            self.adopt_caller();
        }
    }

    /// Makes the requests of the client those of the caller that it has proved to be.
    pub fn adopt_caller(&mut self) {
        self.store = self.store.for_caller(self.authentication.caller());
    }

    /// Charges a command against the rate limits of its principal. `EXEC` is charged for all
    /// commands of its transaction.
    ///
    /// # Errors
    /// When the command is over the limit. The transaction of an `EXEC` is discarded then.
    pub fn charge(&mut self, spec: &CommandSpec, arguments: CommandArguments<'_>) -> Result<(), Failure> {
        let Some(limiter) = self.authentication.limiter() else { return Ok(()) };
        let is_exec = self.is_in_multi() && spec.when == When::Watched;
        let usage =
            if is_exec { Some(std::mem::take(&mut self.queued_usage)) } else { spec.usage(arguments) };
        let Some(usage) = usage else { return Ok(()) };
        if self.is_in_multi() && !is_exec {
            self.queued_usage.operations += usage.operations;
            self.queued_usage.bytes += usage.bytes;
            return Ok(());
        }
        let Err(LimitExceeded { retry_after_ms }) = limiter.admit(usage) else { return Ok(()) };
        if is_exec {
            self.pipeline.discard_transaction().map_err(failure)?;
        }
        Err(format!(
            "LIMIT the principal has used up its limit at this node; retry after {retry_after_ms} ms"
        )
        .into())
    }

    /// Checks whether the client may make these operations. The keys that they read are tracked
    /// from here on, if the client caches them.
    fn admit_operations<'a>(
        &self,
        operations: impl Iterator<Item = Operation<'a>> + Clone,
    ) -> Result<(), Failure> {
        self.check_operations(operations.clone())?;
        if let Some(tracking) = &self.tracking {
            tracking.executing(operations);
        }
        Ok(())
    }

    /// Tracks the keys of a script, if the client caches them and may read them.
    pub fn track_keys(&self, keys: &[Bytes]) {
        if let Some(tracking) = &self.tracking {
            let gets = keys.iter().map(|key| Operation::Get { key });
            tracking.executing(gets.filter(|get| self.check_operations([*get].into_iter()).is_ok()));
        }
    }

    /// Ends the tracking of keys.
    pub fn end_tracking(&mut self) {
        self.tracking = None;
    }

    /// A command has ended: the exception that the client made for it is over, unless it began a
    /// transaction.
    pub fn end_caching_exception(&mut self) {
        if !self.is_in_multi()
            && let Some(tracking) = &mut self.tracking
        {
            tracking.is_exception = false;
        }
    }

    /// Whether the client has subscribed to a channel and speaks RESP2, in which it cannot tell
    /// messages from the replies to most commands.
    pub fn expects_messages_only(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions.count() > 0
    }

    fn check_operations<'a>(
        &self,
        mut operations: impl Iterator<Item = Operation<'a>>,
    ) -> Result<(), Failure> {
        if !self.authentication.is_required() {
            return Ok(());
        }
        operations.try_for_each(|operation| self.authentication.check_operation(operation, &self.clock))
    }

    /// Replies `OK`.
    pub fn ok(&mut self) -> Result<Action, Failure> {
        self.reply(|encoder| encoder.ok())
    }

    /// Owes an error. It makes an open transaction fail.
    pub fn fail(&mut self, failure: &str) {
        self.pipeline.fail_transaction();
        self.owe(|encoder| encoder.error(failure));
    }

    pub fn is_in_multi(&self) -> bool {
        self.pipeline.is_in_transaction()
    }

    pub fn begin_multi(&mut self) -> Result<Action, Failure> {
        if let Err(error) = self.pipeline.begin_transaction() {
            // As in Redis, this does not spoil the open transaction.
            let nested = failure(error);
            self.owe(|encoder| encoder.error(&nested));
            return Ok(Action::Done);
        }
        self.queued_usage = Usage::default();
        self.owe(|encoder| encoder.ok());
        Ok(Action::Done)
    }

    /// Ends a transaction and executes it. The caller makes sure that all watches are known.
    pub fn exec(&mut self) -> Result<Action, Failure> {
        let executed = self.pipeline.execute_transaction().map_err(|error| match error {
            CommandError::NoTransaction => "ERR EXEC without MULTI".into(),
            error => failure(error),
        })?;
        self.count_cross_slot();
        if let Executed::Empty(items) = executed {
            let (mut encoded, mut published) = (Vec::new(), Vec::new());
            let style = Style { protocol: self.protocol, now: self.clock.now() };
            let pub_sub = &*self.context.pub_sub;
            let mut encoder = ReplyEncoder { style, out: &mut encoded, pub_sub, published: &mut published };
            encoder.empty_transaction(&items);
            self.owe(|encoder| encoder.raw(&encoded));
            self.publish_all(published);
        }
        Ok(Action::Done)
    }

    fn count_cross_slot(&mut self) {
        let count = self.pipeline.take_cross_slot_transactions();
        self.context.counters.cross_slot_transactions.add(count);
    }

    /// Discards the open transaction and all watches.
    pub fn discard(&mut self) -> Result<Action, Failure> {
        self.pipeline.discard_transaction().map_err(failure)?;
        self.owe(|encoder| encoder.ok());
        Ok(Action::Done)
    }

    /// Requests the versions of keys, and watches them until `EXEC`, `DISCARD` or `UNWATCH`.
    pub fn watch<'a>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> Result<Action, Failure> {
        if self.is_in_multi() {
            // As in Redis, this does not spoil the transaction.
            self.owe(|encoder| encoder.error("ERR WATCH inside MULTI is not allowed"));
            return Ok(Action::Done);
        }
        self.check_operations(keys.clone().map(|key| Operation::Describe { key }))?;
        let store = &self.store;
        self.pipeline.watch(keys, |key| store.shard_of(key)).map_err(failure)?;
        Ok(Action::Done)
    }

    pub fn unwatch(&mut self) -> Result<Action, Failure> {
        self.pipeline.unwatch();
        self.ok()
    }

    /// Whether the version of every watched key is known.
    pub fn knows_watches(&self) -> bool {
        self.pipeline.knows_watches()
    }

    /// Resets what the client has set (`RESET`).
    pub fn reset(&mut self) {
        self.pipeline.reset();
        self.authentication.reset(self.store.access(), &self.clock);
        self.adopt_caller();
        self.name = Bytes::new();
        self.protocol = Protocol::default();
        self.is_readonly = false;
        self.subscriptions.clear();
        self.follow_redirects();
        self.end_tracking();
    }

    /// Appends a reply that was waited for.
    pub fn owe_encoded(&mut self, encoded: Vec<u8>) {
        self.pipeline.push_ready(Encoded(encoded));
    }

    /// Whether every owed reply is encoded.
    pub fn is_settled(&self) -> bool {
        self.pipeline.is_settled()
    }

    /// Number of owed replies that are not encoded yet.
    pub fn owed(&self) -> usize {
        self.pipeline.owed()
    }

    /// Bytes that are held for this client: operations, replies (available, possible or encoded).
    pub fn held_bytes(&self) -> usize {
        self.pipeline.held_bytes() + self.held_for_encoding_bytes() + self.held_for_pushes_bytes()
    }

    /// As [`Session::held_bytes`], with probable instead of largest replies.
    pub fn expected_held_bytes(&self) -> usize {
        self.pipeline.expected_held_bytes() + self.held_for_encoding_bytes()
    }

    fn held_for_encoding_bytes(&self) -> usize {
        self.out.len().max(self.pipeline.encoding_bytes())
    }

    /// Bytes of encoded replies that are not sent yet.
    pub fn encoded_bytes(&self) -> usize {
        self.out.len()
    }

    /// Passes commands to `submit`, see [`Pipeline::submit`].
    pub fn submit(
        &mut self,
        reads: bool,
        has_room: impl FnMut(usize, bool) -> bool,
        submit: impl FnMut(Request, u64),
    ) {
        self.pipeline.submit(reads, self.consistency(), has_room, submit);
    }

    /// Refuses the command behind the client's next reply, if it is not in flight yet. Returns
    /// whether there was one.
    pub fn refuse_next(&mut self) -> bool {
        self.pipeline.refuse_next()
    }

    /// Takes a reply of the store.
    pub fn complete(&mut self, queue: u64, reply: Reply) {
        self.pipeline.complete(queue, reply);
    }

    /// Encodes replies up to the first unknown one, or until `bytes_max` bytes are encoded.
    pub fn settle(&mut self, bytes_max: usize) {
        if self.pipeline.is_settled() {
            return;
        }
        let before = self.out.len();
        self.settle_replies(bytes_max);
        if let Some(limiter) = self.authentication.limiter() {
            limiter.charge(Usage { operations: 0, bytes: (self.out.len() - before) as u64 });
        }
    }

    fn settle_replies(&mut self, bytes_max: usize) {
        let style = Style { protocol: self.protocol, now: self.clock.now() };
        let mut published = Vec::new();
        loop {
            let begin = self.out.len();
            let pub_sub = &*self.context.pub_sub;
            let mut encoder = ReplyEncoder { style, out: &mut self.out, pub_sub, published: &mut published };
            if begin >= bytes_max || !self.pipeline.settle_next(&mut encoder) {
                break;
            }
            self.record_denied(begin);
        }
        self.publish_all(published);
    }

    /// Publishes the messages of transactions that are done. The outcome is not awaited, because
    /// the reply to the transaction is encoded already.
    fn publish_all(&self, published: Vec<Publication>) {
        for publication in published {
            self.store.submit_to(Request::Publish(publication), &Rc::default(), 0);
        }
    }

    /// Records the encoded reply that begins at offset `begin` if it denies the command. Its text
    /// contains the permission, but no arguments.
    #[inline]
    fn record_denied(&self, begin: usize) {
        if self.out.get(begin) == Some(&b'-') {
            self.record_denied_error(&self.out[begin + 1..]);
        }
    }

    #[cold]
    fn record_denied_error(&self, error: &[u8]) {
        let error = error.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let reason = match error.split(|byte| *byte == b' ').next() {
            Some(b"WRONGPASS") => DeniedReason::AuthenticationFailed,
            Some(b"NOAUTH") => DeniedReason::Unauthenticated,
            Some(b"NOPERM") => DeniedReason::Forbidden,
            Some(b"DENIED") => DeniedReason::ProtectedMode,
            Some(b"MASTERDOWN") => DeniedReason::PermissionsUnknown,
            _ => return,
        };
        let client = || (self.address, self.authentication.principal().map(ToOwned::to_owned));
        let detail = || String::from_utf8_lossy(error).into_owned();
        self.context.audit_log.denied(reason, ListenerProtocol::Resp, client, detail);
    }

    /// The encoded replies to be sent.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn consistency(&self) -> Consistency {
        if self.is_readonly { Consistency::Stale } else { Consistency::Linearizable }
    }

    /// Owes a reply or a message that is known already.
    pub(super) fn owe(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) {
        if self.pipeline.is_settled() {
            let begin = self.out.len();
            encode(&mut Encoder::new(&mut self.out, self.protocol));
            return self.record_denied(begin);
        }
        let mut encoded = Vec::new();
        encode(&mut Encoder::new(&mut encoded, self.protocol));
        self.pipeline.push_ready(Encoded(encoded));
    }

    /// Adds a message to the open transaction.
    pub fn queue_publication(&mut self, publication: Publication) -> Result<Action, Failure> {
        self.queue(std::iter::empty(), Item::Publish(publication))
    }

    /// Adds a command to the open transaction.
    fn queue<'a>(
        &mut self,
        operations: impl Iterator<Item = Operation<'a>> + Clone,
        item: Item,
    ) -> Result<Action, Failure> {
        let store = &self.store;
        self.pipeline.queue(operations, |key| store.shard_of(key), item).map_err(failure)?;
        self.owe(|encoder| encoder.simple("QUEUED"));
        Ok(Action::Done)
    }
}

/// A session owes the replies, in the order of its commands.
impl Executor for Session {
    type Output = Action;

    fn one(&mut self, operation: &Operation<'_>, render: Render) -> Result<Action, Failure> {
        self.admit_operations([*operation].into_iter())?;
        if self.is_in_multi() {
            return self.queue([*operation].into_iter(), Item::One(render));
        }
        let store = &self.store;
        self.pipeline.push_one(operation, |key| store.shard_of(key), render).map_err(failure)?;
        Ok(Action::Done)
    }

    fn many<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        render: RenderMany,
    ) -> Result<Action, Failure> {
        self.admit_operations(operations.clone())?;
        if self.is_in_multi() {
            let item = Item::Many(render, operations.len());
            return self.queue(operations, item);
        }
        let store = &self.store;
        self.pipeline
            .push_many(operations, |key| store.shard_of(key), Gathered::new(render))
            .map_err(failure)?;
        Ok(Action::Done)
    }

    fn together<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        render: RenderMany,
    ) -> Result<Action, Failure> {
        if self.is_in_multi() {
            return self.many(operations, render);
        }
        self.admit_operations(operations.clone())?;
        let store = &self.store;
        self.pipeline
            .push_transaction(operations, |key| store.shard_of(key), Gathered::new(render))
            .map_err(failure)?;
        self.count_cross_slot();
        Ok(Action::Done)
    }

    fn reply(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) -> Result<Action, Failure> {
        if self.is_in_multi() {
            let mut encoded = Vec::new();
            encode(&mut Encoder::new(&mut encoded, self.protocol));
            return self.queue(std::iter::empty(), Item::Ready(encoded));
        }
        self.owe(encode);
        Ok(Action::Done)
    }

    fn now(&self) -> UnixMillis {
        self.context.clock.now()
    }

    fn leader_ahead_ms(&self, key: &[u8]) -> i64 {
        self.store.leader_ahead_ms(self.store.shard_of(key))
    }
}

fn failure(error: CommandError) -> Failure {
    match error {
        CommandError::Invalid(refusal) => return refusal_text(&refusal.into()).into(),
        CommandError::CrossShard => {
            "CROSSSLOT Keys in request don't hash to the same shard; give them a common {hash tag}"
        }
        CommandError::NoOperations => "ERR wrong number of arguments",
        CommandError::TransactionTooLong => {
            "ERR the commands of one transaction are longer than 8 MiB together"
        }
        CommandError::TooManyCommands => "ERR too many commands in one transaction",
        CommandError::TooManyWatches => "ERR more than 1024 keys are watched",
        CommandError::TransactionOpen => "ERR MULTI calls can not be nested",
        CommandError::NoTransaction => "ERR DISCARD without MULTI",
        CommandError::TransactionFailed => "EXECABORT Transaction discarded because of previous errors.",
        CommandError::WatchUnknown => {
            "EXECABORT Transaction discarded because a WATCH was answered with an error."
        }
    }
    .into()
}
