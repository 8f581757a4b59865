//! The store behind a pointer, for commands, so that a connection does not depend on its type.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tidelock_core::auth::Caller;
use tidelock_core::command::{Reply, Request};
use tidelock_core::event::NodeStatus;
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::types::{ClientId, ShardId};

use crate::access::PublishedAccess;
use crate::requests::{NoAnswer, TypedRequest};
use crate::store::{Mailbox, Store};
use crate::watch::WatchRegistry;

/// A [`Store`] behind a pointer.
pub trait DynStore {
    /// As [`Store::for_client`].
    fn for_client(&self, client: ClientId) -> Rc<dyn DynStore>;

    /// As [`Store::for_caller`].
    fn for_caller(&self, caller: Caller) -> Rc<dyn DynStore>;

    /// As [`Store::access`].
    fn access(&self) -> &Arc<PublishedAccess>;

    /// As [`Store::submit`].
    fn submit(&self, request: Request) -> Pin<Box<dyn Future<Output = Reply>>>;

    /// As [`Store::submit_to`].
    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64);

    /// As [`Store::shard_of`].
    fn shard_of(&self, key: &[u8]) -> ShardId;

    /// As [`Store::slot_map`].
    fn slot_map(&self) -> Arc<SlotMap>;

    /// As [`Store::leader_ahead_ms`].
    fn leader_ahead_ms(&self, shard: ShardId) -> i64;

    /// As [`Store::watch_registry`].
    fn watch_registry(&self) -> &Arc<WatchRegistry>;

    /// As [`Store::status`].
    fn status(&self) -> Pin<Box<dyn Future<Output = NodeStatus>>>;
}

impl dyn DynStore + '_ {
    /// As [`Store::ask`].
    pub fn ask<A>(&self, request: TypedRequest<A>) -> impl Future<Output = Result<A, NoAnswer>> + use<A> {
        let (request, answer) = request.into_parts();
        let reply = self.submit(request);
        async { answer(reply.await) }
    }
}

impl<S: Store> DynStore for S {
    fn for_client(&self, client: ClientId) -> Rc<dyn DynStore> {
        Rc::new(Store::for_client(self, client))
    }

    fn for_caller(&self, caller: Caller) -> Rc<dyn DynStore> {
        Rc::new(Store::for_caller(self, caller))
    }

    fn access(&self) -> &Arc<PublishedAccess> {
        Store::access(self)
    }

    fn submit(&self, request: Request) -> Pin<Box<dyn Future<Output = Reply>>> {
        let store = self.clone();
        Box::pin(async move { Store::submit(&store, request).await })
    }

    fn submit_to(&self, request: Request, mailbox: &Rc<Mailbox>, tag: u64) {
        Store::submit_to(self, request, mailbox, tag);
    }

    fn shard_of(&self, key: &[u8]) -> ShardId {
        Store::shard_of(self, key)
    }

    fn slot_map(&self) -> Arc<SlotMap> {
        Store::slot_map(self)
    }

    fn leader_ahead_ms(&self, shard: ShardId) -> i64 {
        Store::leader_ahead_ms(self, shard)
    }

    fn watch_registry(&self) -> &Arc<WatchRegistry> {
        Store::watch_registry(self)
    }

    fn status(&self) -> Pin<Box<dyn Future<Output = NodeStatus>>> {
        let store = self.clone();
        Box::pin(async move { Store::status(&store).await })
    }
}
