//! The latest changes of keys, for watchers.
//!
//! Owns a ring of (revision, key, whether the key was removed), limited in bytes, and the answers
//! to [`Read::Changes`](crate::command::Read::Changes). The ring holds no values: an answer shows
//! the present state of each changed key, and leaves a change out if the key has changed again
//! since. So a watcher that reads late is sent the last state once.
//!
//! The ring is derived from the log, and is in no snapshot. It therefore begins at the revision of
//! the snapshot with which a replica began. Slots that another shard gave to this one begin at the
//! revision at which they came: their keys keep older versions, and keys that expired during the
//! move left without a revision. A question about earlier changes is answered with a gap.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;

use super::KeyValue;
use crate::command::{ChangedKeys, KeyChange, KeyChanges, KeyContent, KeyScope};
use crate::deliberate::Fault;
use crate::limits;
use crate::slots::slot_of;
use crate::slots::slot_revisions::SlotRevisions;
use crate::slots::slot_set::SlotSet;
use crate::types::Version;

/// Bytes of a block of the ring. The oldest block is dropped as a whole.
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of a block from one mark to the next.
const MARK_BYTES: usize = 4 << 10;

/// Bytes of a change before the key.
const HEAD_BYTES: usize = 6;
const _: () = assert!(HEAD_BYTES + limits::KEY_BYTES_MAX <= BLOCK_BYTES);

/// Number of blocks.
const BLOCKS_MAX: usize = limits::CHANGES_KEPT_BYTES / BLOCK_BYTES;

/// The keys of the latest changes.
#[derive(Debug, Default)]
pub(super) struct ChangeRing {
    blocks: VecDeque<Block>,
    /// All changes after this revision are in the ring.
    begin: Version,
    /// Slots that came from another shard, and the shard's revision when they came.
    arrived: SlotRevisions,
    /// How often the state has changed in a way that the ring does not contain.
    gaps: u64,
}

/// Changes with rising revisions. For each: a number of 32 bits, which is twice the difference to
/// the first revision of the block, plus one if the key was removed; the length of the key (16
/// bits); the key. Integers are little-endian: every write adds a change, and they cost less than
/// varints.
#[derive(Debug)]
struct Block {
    first: Version,
    last: Version,
    bytes: Vec<u8>,
    /// Some changes and where they begin, so that a search need not go through the whole block.
    marks: Vec<(Version, usize)>,
}

/// One change in the ring.
struct LoggedChange<'a> {
    revision: Version,
    key: &'a [u8],
    is_removal: bool,
}

/// How far the changes of a shard were reported to the watchers of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedChanges {
    revision: Version,
    gaps: u64,
}

impl ReportedChanges {
    /// All changes up to this revision were reported.
    pub fn revision(&self) -> Version {
        self.revision
    }
}

impl ChangeRing {
    /// A ring that begins at a revision.
    pub fn from_revision(begin: Version) -> ChangeRing {
        ChangeRing { begin, ..ChangeRing::default() }
    }

    /// Adds a change. Revisions rise.
    pub fn push(&mut self, revision: Version, key: &[u8], is_removal: bool) {
        let bytes = HEAD_BYTES + key.len();
        let has_room = |block: &Block| {
            block.bytes.len() + bytes <= BLOCK_BYTES && revision.0 - block.first.0 <= u64::from(u32::MAX >> 1)
        };
        if !self.blocks.back().is_some_and(has_room) {
            self.begin_block(revision);
        }
        let block = self.blocks.back_mut().expect("invariant: a block was added just now");
        let number = (revision.0 - block.first.0) as u32 * 2 + u32::from(is_removal);
        if block.bytes.len() >= block.marks.len() * MARK_BYTES {
            block.marks.push((revision, block.bytes.len()));
        }
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&number.to_le_bytes());
        head[4..].copy_from_slice(&(key.len() as u16).to_le_bytes());
        block.bytes.extend_from_slice(&head);
        block.bytes.extend_from_slice(key);
        block.last = revision;
    }

    /// Adds a block, in place of the oldest one if there are too many.
    #[cold]
    fn begin_block(&mut self, first: Version) {
        let mut reused = None;
        if self.blocks.len() == BLOCKS_MAX
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.begin = oldest.last;
            reused = Some((oldest.bytes, oldest.marks));
        }
        let (mut bytes, mut marks) = reused.unwrap_or_else(|| (Vec::with_capacity(BLOCK_BYTES), Vec::new()));
        bytes.clear();
        marks.clear();
        self.blocks.push_back(Block { first, last: first, bytes, marks });
    }

    /// The state was replaced, by a restore or its end, and now has this revision.
    pub fn restart(&mut self, revision: Version) {
        let gaps = self.gaps + 1;
        *self = ChangeRing { gaps, ..ChangeRing::from_revision(revision) };
    }

    /// Slots came from another shard; the shard's revision is now `revision`.
    pub fn slots_arrived(&mut self, slots: &SlotSet, revision: Version) {
        self.gaps += 1;
        self.arrived.raise(&SlotRevisions::at(slots, revision));
    }

    /// Whether all changes after these revisions are in the ring.
    fn is_whole_after(&self, revisions: &SlotRevisions) -> bool {
        let is_kept = revisions.lowest().is_none_or(|lowest| self.begin <= lowest);
        is_kept && revisions.reaches(&self.arrived.within(&revisions.slots()))
    }

    /// The changes after a revision.
    fn after(&self, revision: Version) -> impl Iterator<Item = LoggedChange<'_>> {
        let first = self.blocks.partition_point(|block| block.last <= revision);
        let changes = self.blocks.iter().skip(first).flat_map(move |block| block.changes_from(revision));
        changes.skip_while(move |change| change.revision <= revision)
    }
}

impl Block {
    /// The changes from the last mark on that is at or before a revision.
    fn changes_from(&self, revision: Version) -> impl Iterator<Item = LoggedChange<'_>> {
        let behind = self.marks.partition_point(|(marked, _)| *marked <= revision);
        let start = behind.checked_sub(1).map_or(0, |last| self.marks[last].1);
        let mut rest = &self.bytes[start..];
        core::iter::from_fn(move || {
            let (number, behind) = rest.split_first_chunk()?;
            let (length, behind) =
                behind.split_first_chunk().expect("invariant: a block holds whole changes");
            let (key, behind) = behind.split_at(usize::from(u16::from_le_bytes(*length)));
            rest = behind;
            let number = u32::from_le_bytes(*number);
            let revision = Version(self.first.0 + u64::from(number / 2));
            Some(LoggedChange { revision, key, is_removal: number % 2 == 1 })
        })
    }
}

impl KeyValue {
    /// Answers [`Read::Changes`](crate::command::Read::Changes) for the slots that this shard owns.
    pub(in crate::machine) fn changes(
        &self,
        scope: &KeyScope,
        after: Option<&SlotRevisions>,
        (limit, keys_only): (usize, bool),
    ) -> KeyChanges {
        let within = |revisions: SlotRevisions| match self.ownership.as_deref() {
            Some(ownership) => revisions.within(ownership.owned()),
            None => revisions,
        };
        let answer = |slots: &SlotSet, through| KeyChanges {
            through: SlotRevisions::at(slots, through),
            ..KeyChanges::default()
        };
        let Some(after) = after else {
            return answer(&within(SlotRevisions::at(&SlotSet::all(), self.revision)).slots(), self.revision);
        };
        let after = within(after.clone());
        let slots = after.slots();
        let mut answer = answer(&slots, self.revision);
        let Some(lowest) = after.lowest() else { return answer };
        answer.has_gap = self.has_gap(&after);
        if answer.has_gap || lowest >= self.revision {
            return answer;
        }
        let (mut bytes, mut last) = (0, lowest);
        let mut changes = self.changes_ring.after(lowest);
        for change in changes.by_ref().take(limits::CHANGES_READ_MAX) {
            let LoggedChange { revision, key, .. } = change;
            last = revision;
            if !scope.contains(key) || after.of(slot_of(key)).is_none_or(|known| revision <= known) {
                continue;
            }
            let Some(change) = self.state_after(&change, keys_only) else { continue };
            bytes += key.len() + change.content.as_ref().map_or(0, KeyContent::value_bytes);
            answer.changes.push(change);
            if answer.changes.len() == limit || bytes >= limits::CHANGES_BYTES_CLOSE {
                break;
            }
        }
        leave_last_removals(&mut answer.changes);
        answer.has_more = changes.next().is_some();
        if answer.has_more {
            answer.through = SlotRevisions::at(&slots, last);
        }
        answer
    }

    fn has_gap(&self, after: &SlotRevisions) -> bool {
        // The keys of a backup keep their versions, which are at most the shard's revision. So
        // until a client writes, a revision does not say which of them a watcher knows.
        let is_restored = self.restoring.is_some();
        is_restored || !self.faults.has(Fault::WatchGapIgnored) && !self.changes_ring.is_whole_after(after)
    }

    /// The state that a change left, unless the key has changed again since.
    fn state_after(&self, change: &LoggedChange<'_>, keys_only: bool) -> Option<KeyChange> {
        let LoggedChange { revision, key, is_removal } = *change;
        let content = match self.records.get(key) {
            Some(record) => {
                let (version, value) = record.version_and_value();
                if is_removal || version != revision {
                    return None;
                }
                let value = (!keys_only).then(|| Bytes::copy_from_slice(value));
                Some(KeyContent { value, expires: self.expires(key) })
            }
            None if is_removal => None,
            None => return None,
        };
        Some(KeyChange { key: Bytes::copy_from_slice(key), revision, content })
    }

    /// What is to be reported from now on, if nothing was reported before.
    pub(crate) fn reported_changes(&self) -> ReportedChanges {
        ReportedChanges { revision: self.revision, gaps: self.changes_ring.gaps }
    }

    /// The keys that changed since the last report, and the new state of the reports; `None` if
    /// nothing has changed.
    pub(crate) fn reportable_keys(
        &self,
        reported: ReportedChanges,
    ) -> Option<(ChangedKeys, ReportedChanges)> {
        let now = self.reported_changes();
        if now == reported {
            return None;
        }
        let ring = &self.changes_ring;
        let is_whole = ring.gaps == reported.gaps && ring.begin <= reported.revision;
        if !is_whole || now.revision < reported.revision || self.restoring.is_some() {
            return Some((ChangedKeys::Any, now));
        }
        let keys = ring.after(reported.revision).map(|change| Bytes::copy_from_slice(change.key));
        Some((ChangedKeys::Keys(keys.collect()), now))
    }

    /// The slots became this shard's.
    pub(in crate::machine) fn slots_arrived(&mut self, slots: &SlotSet) {
        if !self.faults.has(Fault::WatchMissesMovedSlots) {
            self.changes_ring.slots_arrived(slots, self.revision);
        }
    }
}

/// Leaves only the last removal of each key. A put that a later one replaced was left out before.
fn leave_last_removals(changes: &mut Vec<KeyChange>) {
    let mut removed = BTreeSet::new();
    let mut is_last: Vec<bool> = Vec::with_capacity(changes.len());
    for change in changes.iter().rev() {
        is_last.push(change.content.is_some() || removed.insert(&change.key[..]));
    }
    changes.retain(|_| is_last.pop().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Condition;
    use alloc::format;
    use alloc::vec;

    fn all() -> KeyScope {
        KeyScope::Prefix(Bytes::new())
    }

    fn at(revision: u64) -> SlotRevisions {
        SlotRevisions::at(&SlotSet::all(), Version(revision))
    }

    fn put(kv: &mut KeyValue, key: &str) {
        kv.put(key.as_bytes(), b"v", Condition::Always);
    }

    fn after(kv: &KeyValue, revision: u64) -> KeyChanges {
        kv.changes(&all(), Some(&at(revision)), (1_000, false))
    }

    /// Each change of an answer: its key, its revision, and whether the key exists after it.
    fn shown(changes: &KeyChanges) -> Vec<(&[u8], u64, bool)> {
        let shown = |change: &'_ KeyChange| (change.revision.0, change.content.is_some());
        changes.changes.iter().map(|change| (&change.key[..], shown(change).0, shown(change).1)).collect()
    }

    #[test]
    fn the_last_state_of_each_key_is_shown_once() {
        let mut kv = KeyValue::default();
        for key in ["a", "b", "a", "c"] {
            put(&mut kv, key);
        }
        kv.delete(b"b", Condition::Always);
        let changes = after(&kv, 0);
        assert_eq!(shown(&changes), [(&b"a"[..], 3, true), (b"c", 4, true), (b"b", 5, false)]);
        assert_eq!((changes.has_gap, changes.has_more, changes.through), (false, false, at(5)));
        assert_eq!(shown(&after(&kv, 4)), [(&b"b"[..], 5, false)]);
        assert_eq!(after(&kv, 5), KeyChanges { through: at(5), ..KeyChanges::default() });
        assert_eq!(after(&kv, 9).through, at(5), "a replica that is behind says so");
        put(&mut kv, "b");
        kv.delete(b"b", Condition::Always);
        assert_eq!(shown(&after(&kv, 3)), [(&b"c"[..], 4, true), (b"b", 7, false)], "not its first removal");
        let key = KeyScope::Key(Bytes::from_static(b"a"));
        let part = kv.changes(&key, Some(&at(0)), (1_000, true));
        assert_eq!(shown(&part), [(&b"a"[..], 3, true)]);
        assert_eq!(part.changes[0].content, Some(KeyContent { value: None, expires: None }));
        assert_eq!(kv.changes(&key, None, (1, false)).through, at(7));
    }

    #[test]
    fn answers_are_limited_and_continue() {
        let mut kv = KeyValue::default();
        (0..50_000).for_each(|number| put(&mut kv, &format!("key-{number}")));
        let (mut position, mut keys, mut answers) = (at(0), 0, 0);
        loop {
            let part = kv.changes(&all(), Some(&position), (1_000, true));
            keys += part.changes.len();
            answers += 1;
            position = part.through;
            if !part.has_more {
                break;
            }
        }
        assert_eq!((keys, answers, position), (50_000, 50, at(50_000)));
        // None matches: each answer still looks at a limited number of changes.
        let none = KeyScope::Prefix(Bytes::from_static(b"x"));
        let part = kv.changes(&none, Some(&at(0)), (1_000, true));
        assert_eq!((part.has_more, part.through), (true, at(limits::CHANGES_READ_MAX as u64)));
    }

    #[test]
    fn what_is_kept_is_bounded_and_older_questions_have_a_gap() {
        let mut kv = KeyValue::default();
        let key = "k".repeat(1_000);
        let count = 2 * limits::CHANGES_KEPT_BYTES as u64 / 1_000;
        for number in 0..count {
            kv.changes_ring.push(Version(number + 1), key.as_bytes(), false);
        }
        kv.revision = Version(count);
        let ring = &kv.changes_ring;
        let bytes: usize = ring.blocks.iter().map(|block| block.bytes.len()).sum();
        assert!(bytes <= limits::CHANGES_KEPT_BYTES, "{bytes}");
        assert!(bytes > limits::CHANGES_KEPT_BYTES * 9 / 10, "{bytes}");
        let begin = ring.begin.0;
        assert!(!after(&kv, begin).has_gap);
        assert_eq!(kv.changes_ring.after(Version(begin)).count() as u64, count - begin);
        let gap = after(&kv, begin - 1);
        assert!(gap.has_gap && gap.changes.is_empty());
    }

    #[test]
    fn slots_that_came_and_restores_leave_gaps() {
        let mut kv = KeyValue::default();
        put(&mut kv, "a");
        let reported = kv.reported_changes();
        let (slot, other) = (slot_of(b"a"), slot_of(b"b"));
        kv.raise_revision(Version(10));
        kv.slots_arrived(&SlotSet::from(slot..slot + 1));
        put(&mut kv, "b");
        let of = |slot: u16, revision| SlotRevisions::at(&SlotSet::from(slot..slot + 1), Version(revision));
        let changes = |kv: &KeyValue, after: SlotRevisions| kv.changes(&all(), Some(&after), (9, true));
        assert!(changes(&kv, of(slot, 9)).has_gap && !changes(&kv, of(slot, 10)).has_gap);
        assert_eq!(shown(&changes(&kv, of(other, 9))), [(&b"b"[..], 11, true)]);
        assert!(matches!(kv.reportable_keys(reported), Some((ChangedKeys::Any, _))));
        let mut empty = KeyValue::default();
        let backup = uuid::Uuid::from_u128(1);
        let restoration = crate::command::Restoration {
            shard: crate::types::ShardId(1),
            backup,
            revision: Version(5),
            records: Vec::new(),
        };
        empty.restore(&restoration);
        assert!(after(&empty, 5).has_gap, "more may come of the backup");
        put(&mut empty, "a");
        assert!(!after(&empty, 5).has_gap && after(&empty, 4).has_gap);
    }

    #[test]
    fn reports_name_the_keys_since_the_last_one() {
        let mut kv = KeyValue::default();
        put(&mut kv, "a");
        let first = kv.reported_changes();
        assert_eq!(kv.reportable_keys(first), None);
        put(&mut kv, "b");
        put(&mut kv, "b");
        let keys = ChangedKeys::Keys(vec![Bytes::from_static(b"b"); 2]);
        let (reported, second) = kv.reportable_keys(first).expect("a report");
        assert_eq!((reported, second.revision()), (keys, Version(3)));
        assert_eq!(kv.reportable_keys(second), None);
        let replaced = KeyValue::restored(Version(9), None, None);
        assert!(matches!(replaced.reportable_keys(second), Some((ChangedKeys::Any, _))));
    }
}
