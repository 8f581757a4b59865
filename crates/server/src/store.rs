//! How protocol code reaches the store: submit a request, await its reply.
//!
//! Owns the hand-over between connections and the worker that drives the core, both on one thread. It knows
//! neither protocols nor consensus.

use std::future::Future;
use std::sync::Arc;

use tidelock_core::command::{Reply, Request};
use tidelock_core::event::NodeStatus;

use crate::watch::Hub;

/// A cheap handle to the worker of this thread.
pub trait Store: Clone + 'static {
    /// Hands `request` to the store. It gets exactly one reply, by its deadline; dropping the future abandons the
    /// reply, not the request.
    fn submit(&self, request: Request) -> impl Future<Output = Reply>;

    /// Those who watch configuration at this node.
    fn hub(&self) -> &Arc<Hub>;

    /// What the node says about itself now.
    fn status(&self) -> NodeStatus;
}
