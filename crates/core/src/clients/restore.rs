//! One request of a restore: keys or configuration of a backup, written into the shards of a
//! cluster without other data.
//!
//! Owns splitting a body by shard into commands of bounded size. A body contains keys, or a block
//! of configuration; the latter begins with a zero byte, which no key's length does. Each shard
//! decides, when it applies a command, whether to accept it. Every request may be repeated. With
//! `discards`, data of another restore is removed from the shards first, as long as no client has
//! written to them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use super::asking::{self, NextAction, Unanswered};
use crate::codec::{DecodeError, Decoder};
use crate::command::config::block::{is_block, split_block};
use crate::command::{
    ConfigRestoration, Discard, Reply, Request, Restoration, RestoreWrite, RestoredKey, RowLayout, Write,
    WriteReply,
};
use crate::limits;
use crate::slots::slot_map::SlotMap;
use crate::slots::slot_of;
use crate::types::{ShardId, Version};

/// The next action of a [`RestoreRequest`].
pub type RestoreAction = NextAction<Result<(), RestoreFailure>>;

/// Why a part of a backup is not restored. Other shards may have accepted theirs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreFailure {
    /// A shard has been written to by something else than this restore.
    #[error("the cluster has been written to by something else than this restore")]
    NotEmpty,
    /// The body is not a sequence of keys.
    #[error("the body is no row of keys: {0}")]
    Keys(#[source] DecodeError),
    /// The body is not a block of configuration, although it begins like one.
    #[error("the body is no block of configuration: {0}")]
    Config(#[source] DecodeError),
    /// A request has no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// What one request restores.
#[derive(Clone, Debug)]
pub struct RestoreBody {
    /// [`Header::backup`](crate::storage::backup::Header::backup) of the file.
    pub backup: Uuid,
    /// The revision of every shard becomes at least this.
    pub revision: Version,
    /// Layout of the keys.
    pub layout: RowLayout,
    /// Whether to discard what another restore has written.
    pub discards: bool,
    /// Keys, or a block of configuration. If it is empty, every shard is claimed for the backup and
    /// raised to the revision.
    pub bytes: Bytes,
}

/// Restores one body.
#[derive(Debug)]
pub struct RestoreRequest {
    body: RestoreBody,
    phase: RestorePhase,
}

#[derive(Debug)]
enum RestorePhase {
    /// Asks for the slot map.
    Slots,
    /// Discards other restores, in the last of these shards now.
    Discards(SlotMap, Vec<ShardId>),
    Writes,
}

impl RestoreRequest {
    /// Begins with a question for the slot map.
    pub fn begin(body: RestoreBody) -> (RestoreRequest, RestoreAction) {
        (RestoreRequest { body, phase: RestorePhase::Slots }, NextAction::Ask(vec![Request::Registry]))
    }

    /// Takes the replies to the last action.
    pub fn answered(&mut self, replies: Vec<Reply>) -> RestoreAction {
        match core::mem::replace(&mut self.phase, RestorePhase::Writes) {
            RestorePhase::Slots => match asking::registry_view(replies) {
                Ok(view) => self.discard(view.slots),
                Err(error) => NextAction::Done(Err(error.into())),
            },
            RestorePhase::Discards(slots, mut shards) => match discarded(replies) {
                Ok(keys_left) => {
                    if keys_left == 0 {
                        shards.pop();
                    }
                    self.discard_in(slots, shards)
                }
                Err(failure) => NextAction::Done(Err(failure)),
            },
            // The first failure is reported.
            RestorePhase::Writes => NextAction::Done(replies.into_iter().try_for_each(restored)),
        }
    }

    fn discard(&mut self, slots: SlotMap) -> RestoreAction {
        let mut shards = if self.body.discards { slots.shards() } else { Vec::new() };
        shards.reverse();
        self.discard_in(slots, shards)
    }

    fn discard_in(&mut self, slots: SlotMap, shards: Vec<ShardId>) -> RestoreAction {
        let Some(&shard) = shards.last() else { return self.write(&slots) };
        self.phase = RestorePhase::Discards(slots, shards);
        let discard = Discard { shard, backup: self.body.backup };
        NextAction::Ask(vec![Request::Write(Write::Restore(RestoreWrite::Discard(discard)))])
    }

    fn write(&self, slots: &SlotMap) -> RestoreAction {
        match self.writes(slots) {
            Ok(writes) if writes.is_empty() => NextAction::Done(Ok(())),
            Ok(writes) => {
                let request = |write| Request::Write(Write::Restore(write));
                NextAction::Ask(writes.into_iter().map(request).collect())
            }
            Err(failure) => NextAction::Done(Err(failure)),
        }
    }

    fn writes(&self, slots: &SlotMap) -> Result<Vec<RestoreWrite>, RestoreFailure> {
        let RestoreBody { backup, revision, layout, ref bytes, .. } = self.body;
        if is_block(bytes) {
            return config_writes(backup, bytes, slots);
        }
        let commands = if bytes.is_empty() {
            slots.shards().into_iter().map(|shard| (shard, Vec::new())).collect()
        } else {
            split(decode(layout, bytes)?, slots)
        };
        let write = |(shard, records)| RestoreWrite::Keys(Restoration { shard, backup, revision, records });
        Ok(commands.into_iter().map(write).collect())
    }
}

/// Number of keys that remain to be discarded.
fn discarded(replies: Vec<Reply>) -> Result<u64, RestoreFailure> {
    match asking::only(replies)? {
        Reply::Write(WriteReply::Discarded { keys_left }) => Ok(keys_left),
        Reply::Write(WriteReply::ConditionFailed { .. }) => Err(RestoreFailure::NotEmpty),
        other => Err(asking::mismatched(other).into()),
    }
}

fn restored(reply: Reply) -> Result<(), RestoreFailure> {
    match reply {
        Reply::Write(WriteReply::Restored) => Ok(()),
        Reply::Write(WriteReply::ConditionFailed { .. }) => Err(RestoreFailure::NotEmpty),
        other => Err(asking::mismatched(other).into()),
    }
}

/// Sends each namespace of a block of configuration to its shard, and the state of the block's own
/// shard to all shards.
fn config_writes(backup: Uuid, block: &[u8], slots: &SlotMap) -> Result<Vec<RestoreWrite>, RestoreFailure> {
    let mut writes = Vec::new();
    for (name, part) in split_block(block).map_err(RestoreFailure::Config)? {
        let part = Bytes::from(part);
        let shards = match &name {
            Some(name) => vec![slots.shard_of(slot_of(name.routing_key()))],
            None => slots.shards(),
        };
        let write = |shard| RestoreWrite::Config(ConfigRestoration { shard, backup, block: part.clone() });
        writes.extend(shards.into_iter().map(write));
    }
    Ok(writes)
}

fn decode(layout: RowLayout, body: &Bytes) -> Result<Vec<RestoredKey>, RestoreFailure> {
    let mut decoder = Decoder::new(body);
    let mut records = Vec::new();
    while !decoder.is_empty() {
        records.push(RestoredKey::decode(layout, &mut decoder, body).map_err(RestoreFailure::Keys)?);
    }
    Ok(records)
}

/// Groups keys by shard, without those of leases, in commands that are closed at the size limit of
/// a log entry.
fn split(records: Vec<RestoredKey>, slots: &SlotMap) -> Vec<(ShardId, Vec<RestoredKey>)> {
    let mut open: BTreeMap<ShardId, (usize, Vec<RestoredKey>)> = BTreeMap::new();
    let mut commands = Vec::new();
    // The holders of the leases are not clients of this cluster, so nobody would remove these keys.
    for record in records.into_iter().filter(|record| record.lease.is_none()) {
        let shard = slots.shard_of(slot_of(&record.key));
        let (bytes, records) = open.entry(shard).or_default();
        *bytes += record.key.len() + record.value.len();
        records.push(record);
        if *bytes >= limits::ENTRY_BYTES_CLOSE {
            *bytes = 0;
            commands.push((shard, core::mem::take(records)));
        }
    }
    let rest = open.into_iter().map(|(shard, (_, records))| (shard, records));
    commands.extend(rest.filter(|(_, records)| !records.is_empty()));
    commands
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;
    use crate::command::{NodeReply, Refusal, RegistryView};
    use crate::types::{LogIndex, MigrationId, ReplicaId};

    const SHARDS: u64 = 3;

    fn body(bytes: Vec<u8>, discards: bool) -> RestoreBody {
        let (backup, revision) = (Uuid::from_u128(9), Version(200));
        RestoreBody { backup, revision, layout: RowLayout::Plain, discards, bytes: bytes.into() }
    }

    fn slots() -> Vec<Reply> {
        let view = RegistryView {
            index: LogIndex(1),
            host_entries: Vec::new(),
            shards: Vec::new(),
            replicas: Vec::new(),
            last_replica: ReplicaId(0),
            last_shard: ShardId(SHARDS),
            slots: SlotMap::founded(SHARDS),
            migrations: Vec::new(),
            last_migration: MigrationId(0),
            default_tags: None,
        };
        vec![Reply::Node(NodeReply::Registry(Box::new(view)))]
    }

    fn record(number: u64, bytes: usize) -> RestoredKey {
        RestoredKey {
            key: Bytes::copy_from_slice(&number.to_be_bytes()),
            version: Version(number + 1),
            value: vec![0; bytes].into(),
            expires: None,
            lease: None,
        }
    }

    fn asked(action: RestoreAction) -> Vec<RestoreWrite> {
        let NextAction::Ask(requests) = action else { panic!("{action:?} is no question") };
        let write = |request| match request {
            Request::Write(Write::Restore(write)) => write,
            other => panic!("{other:?} restores nothing"),
        };
        requests.into_iter().map(write).collect()
    }

    fn done(action: RestoreAction) -> Result<(), RestoreFailure> {
        let NextAction::Done(result) = action else { panic!("{action:?} is no result") };
        result
    }

    fn restored() -> Reply {
        Reply::Write(WriteReply::Restored)
    }

    fn not_empty() -> Reply {
        Reply::Write(WriteReply::ConditionFailed { current: Version(3) })
    }

    #[test]
    fn keys_are_split_over_shards_and_commands() {
        let mut records: Vec<_> = (0..100).map(|number| record(number, 20_000)).collect();
        records.push(record(100, limits::VALUE_BYTES_MAX));
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(RowLayout::Plain, &mut bytes));
        let (mut restore, action) = RestoreRequest::begin(body(bytes, false));
        assert!(matches!(action, NextAction::Ask(requests) if requests == [Request::Registry]));
        let commands = asked(restore.answered(slots()));
        assert!(commands.len() > 4);
        let replies = commands.iter().map(|_| restored()).collect();
        let mut found = vec![];
        for command in commands {
            assert_eq!(Write::Restore(command.clone()).validate(), Ok(()), "within the limits");
            let RestoreWrite::Keys(Restoration { shard, records, .. }) = command else { panic!("keys") };
            let belongs =
                |record: &RestoredKey| SlotMap::founded(SHARDS).shard_of(slot_of(&record.key)) == shard;
            assert!(!records.is_empty() && records.iter().all(belongs));
            found.extend(records);
        }
        found.sort_by_key(|record| record.version);
        assert_eq!(found, records);
        assert_eq!(done(restore.answered(replies)), Ok(()));
    }

    #[test]
    fn an_empty_body_claims_every_shard() {
        let (mut restore, _) = RestoreRequest::begin(body(Vec::new(), false));
        let commands = asked(restore.answered(slots()));
        let claims = |command: &RestoreWrite| match command {
            RestoreWrite::Keys(restoration) if restoration.records.is_empty() => Some(restoration.shard.0),
            _ => None,
        };
        assert_eq!(commands.iter().filter_map(claims).collect::<Vec<_>>(), [1, 2, 3]);
        let replies = vec![Reply::Refused(Refusal::NoLeader), not_empty(), restored()];
        let first = RestoreFailure::Unanswered(Unanswered::Refused(Refusal::NoLeader));
        assert_eq!(done(restore.answered(replies)), Err(first));
    }

    #[test]
    fn other_restores_are_discarded_shard_by_shard_before_anything_is_written() {
        let (mut restore, _) = RestoreRequest::begin(body(Vec::new(), true));
        let mut action = restore.answered(slots());
        for (shard, keys_left) in [(1, 5), (1, 0), (2, 0), (3, 0)] {
            let discard = Discard { shard: ShardId(shard), backup: Uuid::from_u128(9) };
            assert_eq!(asked(action), [RestoreWrite::Discard(discard)]);
            action = restore.answered(vec![Reply::Write(WriteReply::Discarded { keys_left })]);
        }
        assert_eq!(asked(action).len(), 3, "then every shard is claimed");

        let (mut restore, _) = RestoreRequest::begin(body(Vec::new(), true));
        restore.answered(slots());
        assert_eq!(done(restore.answered(vec![not_empty()])), Err(RestoreFailure::NotEmpty));
    }

    #[test]
    fn malformed_bodies_are_refused() {
        let failure = |bytes: &[u8]| {
            let (mut restore, _) = RestoreRequest::begin(body(bytes.to_vec(), false));
            done(restore.answered(slots())).unwrap_err()
        };
        assert!(matches!(failure(b"\x07a"), RestoreFailure::Keys(_)));
        assert!(matches!(failure(b"\0\xff"), RestoreFailure::Config(_)));
    }

    #[test]
    fn the_state_of_a_block_goes_to_all_shards() {
        // A block with only the properties of its shard: floor 7, touched.
        let (mut restore, _) = RestoreRequest::begin(body(vec![0, 1, 7, 1], false));
        let shard = |command: RestoreWrite| match command {
            RestoreWrite::Config(restoration) => restoration.shard.0,
            other => panic!("{other:?} is no configuration"),
        };
        let commands = asked(restore.answered(slots()));
        assert_eq!(commands.into_iter().map(shard).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
