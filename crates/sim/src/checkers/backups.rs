//! Checks a backup, and the cluster into which it was restored.
//!
//! No key and no namespace is in two shards of the backup, because their slots would have moved
//! between the snapshots of the two. The restored cluster has every key of the backup with its
//! version and value, but those that were bound to a lease, and no other; it gives new writes
//! versions above all that the old cluster ever gave out.
//!
//! Whether the content follows from the history is for the other checkers: the history contains a
//! linearizable list of all keys and an export of each namespace, from the request for the backup
//! to its answer, which the restored cluster answers. So everything that was acknowledged before
//! the request must be there, each key as it was at one instant between the two, and each shard in
//! one state.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidelock_core::codec::Decoder;
use tidelock_core::command::config::Name;
use tidelock_core::command::{Page, Reply, RestoredKey, RowLayout};
use tidelock_core::machine::config::split_block;
use tidelock_core::storage::backup::{BackupReader, Part, Summary};
use tidelock_core::types::{ShardId, Version};

use super::{Violation, describe};

/// The name of this checker.
pub const CHECKER: &str = "backups";

/// What a backup contains.
#[derive(Clone, Debug)]
pub struct BackupContent {
    /// Its verified totals.
    pub summary: Summary,
    /// Its parts, in order.
    pub parts: Vec<Part>,
    keys: BTreeMap<Bytes, RestoredKey>,
}

/// What a cluster contains after a restore.
#[derive(Clone, Debug)]
pub struct RestoredContent {
    /// All keys.
    pub page: Page,
    /// The reply to an export of each namespace.
    pub exports: Vec<Reply>,
    /// Versions that writes after the restore got.
    pub next_versions: Vec<Version>,
    /// The hash of everything that happened in that cluster.
    pub hash: u64,
}

impl BackupContent {
    /// Reads a backup, in which each key and each namespace must be once.
    pub fn read(bytes: &[u8]) -> Result<BackupContent, Violation> {
        let mut reader = BackupReader::default();
        reader.push(bytes);
        let mut parts = Vec::new();
        while let Some(part) = reader.next_part().map_err(unreadable)? {
            parts.push(part);
        }
        let summary = reader.finish().map_err(unreadable)?;
        Ok(BackupContent { keys: keys_of(&parts)?, summary, parts })
    }
}

/// The keys of a backup, each of which is in one shard.
fn keys_of(parts: &[Part]) -> Result<BTreeMap<Bytes, RestoredKey>, Violation> {
    let mut keys = BTreeMap::new();
    let mut shards: BTreeMap<Name, ShardId> = BTreeMap::new();
    let mut shard = ShardId::PRIME;
    for part in parts {
        match part {
            Part::Shard(id) => shard = id.shard,
            Part::Keys(rows) => {
                let mut decoder = Decoder::new(rows);
                while !decoder.is_empty() {
                    let row =
                        RestoredKey::decode(RowLayout::Expiring, &mut decoder, rows).map_err(unreadable)?;
                    let here = describe(&row.key, row.version);
                    if let Some(other) = keys.insert(row.key.clone(), row) {
                        return blame(format!("{here} is also there at version {}", other.version));
                    }
                }
            }
            Part::Config(block) => {
                for name in split_block(block).map_err(unreadable)?.into_iter().filter_map(|(name, _)| name) {
                    let first = *shards.entry(name.clone()).or_insert(shard);
                    if first != shard {
                        return blame(format!("namespace {name} is in shards {first} and {shard}"));
                    }
                }
            }
            Part::Header(_) | Part::State(_) | Part::ShardEnd(_) | Part::End => {}
        }
    }
    Ok(keys)
}

/// Compares a restored cluster with the backup.
pub fn check(content: &BackupContent, restored: &RestoredContent) -> Result<(), Violation> {
    if restored.page.next.is_some() {
        return blame("the simulator writes more keys than one page has".into());
    }
    for item in &restored.page.items {
        let here = describe(&item.key, item.version);
        match content.keys.get(&item.key) {
            Some(row)
                if (row.version, Some(&row.value), row.expires, row.lease)
                    == (item.version, item.value.as_ref(), item.expires, None) => {}
            other => return blame(format!("{here} was restored from {other:?}")),
        }
    }
    // A key that expires may do so in the restored cluster.
    let is_missing = |row: &&RestoredKey| {
        row.expires.is_none()
            && row.lease.is_none()
            && !restored.page.items.iter().any(|item| item.key == row.key)
    };
    if let Some(row) = content.keys.values().find(is_missing) {
        return blame(format!("{} was not restored", describe(&row.key, row.version)));
    }
    let floor = content.summary.restored_revision();
    match restored.next_versions.iter().find(|version| **version <= floor) {
        Some(version) => blame(format!("a write after the restore got version {version}, not above {floor}")),
        None => Ok(()),
    }
}

fn unreadable(error: impl std::fmt::Display) -> Violation {
    Violation::new(CHECKER, format!("a backup cannot be read: {error}"))
}

fn blame<T>(text: String) -> Result<T, Violation> {
    Err(Violation::new(CHECKER, text))
}

#[cfg(test)]
mod tests {
    use tidelock_core::command::{Condition, Item, Operation, Write};
    use tidelock_core::founding::Founding;
    use tidelock_core::machine::Machine;
    use tidelock_core::membership::Membership;
    use tidelock_core::storage::backup::{BackupWriter, Header};
    use tidelock_core::storage::snapshot::SnapshotId;
    use tidelock_core::types::{LogIndex, NodeId, Term};
    use uuid::Uuid;

    use super::*;

    /// A backup of shards with these keys.
    fn backup(shards: &[&[&str]]) -> Vec<u8> {
        let mut out = Vec::new();
        let header = Header {
            cluster: Uuid::nil(),
            backup: Uuid::from_u128(1),
            node: NodeId(1),
            created_unix_ms: 0,
            is_stale: false,
            shards: shards.len() as u64,
            about_bytes: 0,
        };
        let mut writer = BackupWriter::begin(header, &mut out);
        for (shard, keys) in (1..).map(ShardId).zip(shards) {
            let mut machine = Machine::new(shard, &Founding::new(shards.len() as u64, 1));
            for (index, key) in (1..).map(LogIndex).zip(*keys) {
                let put = Operation::Put { key: key.as_bytes(), value: b"v", condition: Condition::Always };
                machine.apply(index, Write::of(&put)).expect("a valid write");
            }
            writer.begin_shard(SnapshotId { shard, index: LogIndex(1), term: Term(1) }, &mut out);
            machine.begin_snapshot(&Membership::default());
            while let Some(block) = machine.next_block() {
                writer.block(&block, &mut out).expect("a block");
            }
            writer.end_shard(&mut out);
        }
        writer.finish(&mut out);
        out
    }

    fn restored(content: &BackupContent) -> RestoredContent {
        let item = |row: &RestoredKey| Item {
            key: row.key.clone(),
            version: row.version,
            value: Some(row.value.clone()),
            expires: row.expires,
        };
        let next_versions = vec![Version(content.summary.restored_revision().0 + 1)];
        let page = Page { items: content.keys.values().map(item).collect(), next: None };
        RestoredContent { page, exports: Vec::new(), next_versions, hash: 0 }
    }

    fn content() -> BackupContent {
        BackupContent::read(&backup(&[&["a", "b"], &["c"]])).expect("a backup")
    }

    fn blamed(result: Result<(), Violation>, part: &str) {
        let violation = result.expect_err("a violation");
        assert!(violation.message.contains(part), "{violation}");
    }

    #[test]
    fn a_whole_restore_holds() {
        assert_eq!(check(&content(), &restored(&content())), Ok(()));
    }

    #[test]
    fn a_key_in_two_shards_is_found() {
        blamed(BackupContent::read(&backup(&[&["a", "b"], &["b"]])).map(drop), "also there");
    }

    #[test]
    fn a_truncated_backup_is_found() {
        let bytes = backup(&[&["a"]]);
        blamed(BackupContent::read(&bytes[..bytes.len() - 1]).map(drop), "cannot be read");
    }

    #[test]
    fn keys_that_are_missing_changed_or_added_are_found() {
        let mut less = restored(&content());
        less.page.items.pop();
        blamed(check(&content(), &less), "was not restored");
        let mut other = restored(&content());
        other.page.items[0].version = Version(9);
        blamed(check(&content(), &other), "was restored from Some");
        let mut more = restored(&content());
        more.page.items[0].key = Bytes::from_static(b"z");
        blamed(check(&content(), &more), "was restored from None");
    }

    #[test]
    fn versions_that_the_old_cluster_may_have_given_out_are_found() {
        let mut low = restored(&content());
        low.next_versions.push(content().summary.restored_revision());
        blamed(check(&content(), &low), "not above");
    }
}
