//! What executes the operations of a command on keys: the session of a client, or a script.
//!
//! Owns the interface between the handlers of these commands and what becomes of their operations.
//! So a command means the same to a client and within a script, and is written once.

use tidelock_core::command::Operation;
use tidelock_core::types::UnixMillis;

use super::encode::Encoder;
use super::replies::{Render, RenderMany};
use super::session::Failure;

/// Executes the operations of one command at a time.
pub trait Executor {
    /// What a handler returns.
    type Output;

    /// Executes one operation, and replies in this form.
    fn one(&mut self, operation: &Operation<'_>, render: Render) -> Result<Self::Output, Failure>;

    /// Executes several operations, all at one instant only if their keys share a shard, and gives
    /// one reply.
    fn many<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        render: RenderMany,
    ) -> Result<Self::Output, Failure>;

    /// Executes several operations on keys of one shard, all or none, and gives one reply.
    fn together<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        render: RenderMany,
    ) -> Result<Self::Output, Failure>;

    /// Replies without the store.
    fn reply(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) -> Result<Self::Output, Failure>;

    /// The time by this node's clock.
    fn now(&self) -> UnixMillis;

    /// By how many milliseconds the clock of the leader of a key's shard is ahead of this node's.
    fn leader_ahead_ms(&self, key: &[u8]) -> i64;
}
