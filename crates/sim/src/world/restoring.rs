//! Restores a backup into a fresh simulated cluster without faults, with another number of shards.
//!
//! Owns the order of requests, which is that of `tidelock backup restore`: first every shard is
//! claimed, then the keys and the configuration are sent. In some runs another restore was begun
//! before, and is discarded.

use bytes::Bytes;
use tidelock_core::clients::restore::{RestoreBody, RestoreFailure, RestoreRequest};
use tidelock_core::clients::{NextAction, Unanswered};
use tidelock_core::command::config::{Name, Query};
use tidelock_core::command::{
    Condition, ConfigRead, Consistency, Operation, OperationReply, Read, Reply, Request, RowLayout, Write,
};
use tidelock_core::storage::backup::Part;
use tidelock_core::types::{NodeId, ShardId, Version};
use uuid::Uuid;

use super::World;
use crate::checkers::Violation;
use crate::checkers::backups::{self, BackupContent, RestoredContent};
use crate::faults::choose;
use crate::history::value_of;
use crate::plan::Plan;
use crate::slots::shard_of;
use crate::trace::Detail;

/// Times that a request is repeated because it was refused.
const RETRIES_MAX: usize = 20;

/// Restores a backup into a cluster that is drawn from `random`. Returns what that cluster then
/// contains, which the checker has accepted.
pub(super) fn restore(
    content: &BackupContent,
    namespaces: &[Name],
    random: &mut fastrand::Rng,
) -> Result<RestoredContent, Violation> {
    let plan = Plan::fresh_cluster(random.u64(..), *choose(random, &[1, 3]), random.u64(1..=4));
    let mut world = World::new(&plan, Detail::Hash);
    world.start()?;
    let restored = world.fill(content, namespaces, random)?;
    backups::check(content, &restored)?;
    Ok(restored)
}

impl World<'_> {
    fn fill(
        &mut self,
        content: &BackupContent,
        namespaces: &[Name],
        random: &mut fastrand::Rng,
    ) -> Result<RestoredContent, Violation> {
        let (summary, parts) = (&content.summary, &content.parts);
        let revision = summary.restored_revision();
        let body = |backup: Uuid, bytes: &Bytes, discards| {
            let (layout, bytes) = (RowLayout::Expiring, bytes.clone());
            RestoreBody { backup, revision, layout, discards, bytes }
        };
        let discards = random.bool();
        if discards {
            let other = Uuid::from_u128(random.u128(1..));
            for bytes in parts.iter().filter_map(bytes_of).take(random.usize(0..3)) {
                self.restore_body(&body(other, bytes, false), random)?;
            }
        }
        let backup = summary.header.backup;
        self.restore_body(&body(backup, &Bytes::new(), discards), random)?;
        for bytes in parts.iter().filter_map(bytes_of) {
            self.restore_body(&body(backup, bytes, false), random)?;
            if random.u8(0..4) == 0 {
                self.restore_body(&body(backup, bytes, false), random)?;
            }
        }
        let node = NodeId(random.u64(1..=self.plan.nodes));
        let page = self.list(node, Consistency::Linearizable)?;
        let mut exports = Vec::new();
        for namespace in namespaces {
            let read = ConfigRead { namespace: namespace.clone(), query: Query::Export { at: None } };
            let (read, consistency) = (Read::Config(read), Consistency::Linearizable);
            let token = self.ask(node, Request::Read { read, consistency }, false);
            exports.push(self.reply(token)?);
        }
        let next_versions = self.next_versions(node)?;
        Ok(RestoredContent { page, exports, next_versions, hash: self.report().hash })
    }

    /// Sends one request of a restore to any node, again if it is refused.
    fn restore_body(&mut self, body: &RestoreBody, random: &mut fastrand::Rng) -> Result<(), Violation> {
        let mut last = None;
        for _ in 0..RETRIES_MAX {
            let node = NodeId(random.u64(1..=self.plan.nodes));
            match self.try_restore_body(body, node)? {
                Ok(()) => return Ok(()),
                Err(failure @ RestoreFailure::Unanswered(Unanswered::Refused(_))) => last = Some(failure),
                Err(failure) => {
                    let text = format!("a fresh cluster refuses a part of a backup: {failure}");
                    return Err(Violation::new(backups::CHECKER, text));
                }
            }
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        Err(Violation::new(backups::CHECKER, format!("a fresh cluster takes no backup: {last:?}")))
    }

    fn try_restore_body(
        &mut self,
        body: &RestoreBody,
        node: NodeId,
    ) -> Result<Result<(), RestoreFailure>, Violation> {
        let (mut restore, mut action) = RestoreRequest::begin(body.clone());
        loop {
            match action {
                NextAction::Ask(requests) => {
                    let tokens: Vec<_> =
                        requests.into_iter().map(|request| self.ask(node, request, false)).collect();
                    let replies: Result<Vec<Reply>, Violation> =
                        tokens.into_iter().map(|token| self.reply(token)).collect();
                    action = restore.answered(replies?);
                }
                NextAction::Done(result) => return Ok(result),
            }
        }
    }

    /// Writes a key of each shard. Returns the versions.
    fn next_versions(&mut self, node: NodeId) -> Result<Vec<Version>, Violation> {
        let data_shards = self.plan.data_shards;
        let mut versions = Vec::new();
        for shard in (1..=data_shards).map(ShardId) {
            let key = self.workload.keys().iter().find(|key| shard_of(key, data_shards) == shard).cloned();
            let key = key.expect("invariant: every shard has keys");
            let value = value_of(self.history.next_token(), 0);
            let write = Write::of(&Operation::Put { key: &key, value: &value, condition: Condition::Always });
            let token = self.ask(node, Request::Write(write), false);
            let reply = self.reply(token)?;
            let Some(OperationReply::Written { version, .. }) = reply.only() else {
                let text = format!("a restored cluster does not write: {reply:?}");
                return Err(Violation::new(backups::CHECKER, text));
            };
            versions.push(version);
        }
        Ok(versions)
    }
}

/// What a request of a restore sends of a part.
fn bytes_of(part: &Part) -> Option<&Bytes> {
    match part {
        Part::Keys(bytes) | Part::Config(bytes) => Some(bytes),
        Part::Header(_) | Part::Shard(_) | Part::State(_) | Part::ShardEnd(_) | Part::End => None,
    }
}
