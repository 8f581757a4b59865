//! Checks what clients that watch keys were sent.
//!
//! 1. The revisions of a key rise on a connection, and do not go back on later ones.
//! 2. Each value that a client is sent was put at this version, as far as replies to the writers
//!    show it, and no key exists at the revision of its removal.
//! 3. A client that is sent a position knows, for each key in its scope, the last acknowledged
//!    change up to the position's revision of the key's slot, or a later one.
//!
//! Changes that no client was answered, such as expiries, are covered by the comparison of each
//! client's knowledge with the healed cluster ([`world`](crate::world)).

use std::collections::BTreeMap;

use bytes::Bytes;
use tidelock_core::clients::key_watcher::{KeyEvent, WatchStart};
use tidelock_core::command::{KeyChange, KeyScope};
use tidelock_core::slots::slot_of;
use tidelock_core::slots::slot_revisions::SlotRevisions;
use tidelock_core::types::Version;

use super::lineage::{Lineages, Mutation};
use super::{Checker, FinishedRun, Violation, describe};
use crate::history::token_of;
use crate::key_watcher::{KeyWatchRecord, KeyWatchingClient};

const CHECKER: &str = "key watches";

/// Judges what clients that watch keys were sent.
pub struct KeyWatches;

impl Checker for KeyWatches {
    fn judge(&self, run: &FinishedRun<'_>) -> Result<(), Violation> {
        if run.key_watchers.is_empty() {
            return Ok(());
        }
        let lineages = run.lineages()?;
        for (number, client) in run.key_watchers.iter().enumerate() {
            judge(client, lineages)
                .map_err(|text| Violation::new(CHECKER, format!("key watcher {number} {text}")))?;
        }
        Ok(())
    }
}

/// What a client was sent.
#[derive(Default)]
struct SentChanges {
    /// The last revision of each key that it was sent since the last reset.
    since_reset: BTreeMap<Bytes, Version>,
    /// The last revision of each key that it was ever sent.
    ever: BTreeMap<Bytes, Version>,
    /// The last revision of each key that it was sent on the present connection since the last
    /// reset.
    here: BTreeMap<Bytes, Version>,
    /// Changes up to here were not promised, because the client did not want the state.
    begin: Option<SlotRevisions>,
}

fn judge(client: &KeyWatchingClient, lineages: &Lineages) -> Result<(), String> {
    let mut sent = SentChanges::default();
    for record in &client.records {
        match record {
            KeyWatchRecord::Connected(start) => {
                sent.here.clear();
                if !matches!(start, WatchStart::After(_)) {
                    sent.since_reset.clear();
                    sent.begin = None;
                }
            }
            KeyWatchRecord::Received { events, position } => {
                for event in events {
                    sent.hear(event, (&client.scope, lineages))?;
                }
                if let Some(position) = position {
                    sent.judge_position(position, (&client.scope, lineages))?;
                }
            }
        }
    }
    Ok(())
}

impl SentChanges {
    fn hear(&mut self, event: &KeyEvent, (scope, lineages): (&KeyScope, &Lineages)) -> Result<(), String> {
        match event {
            KeyEvent::Reset => {
                self.since_reset.clear();
                self.here.clear();
                // The state follows, so everything is promised.
                self.begin = Some(SlotRevisions::default());
                Ok(())
            }
            KeyEvent::Live | KeyEvent::Progress => Ok(()),
            KeyEvent::Changed(change) => self.change(change, (scope, lineages)),
        }
    }

    fn change(
        &mut self,
        change: &KeyChange,
        (scope, lineages): (&KeyScope, &Lineages),
    ) -> Result<(), String> {
        let (key, revision) = (&change.key, change.revision);
        let shown = describe(key, revision);
        if !scope.contains(key) {
            return Err(format!("was sent {shown}, outside its scope {scope:?}"));
        }
        if let Some(before) = self.here.insert(key.clone(), revision).filter(|before| *before >= revision) {
            return Err(format!("was sent {shown} after version {before} on the same connection"));
        }
        if let Some(before) = self.ever.insert(key.clone(), revision).filter(|before| *before > revision) {
            return Err(format!("was sent {shown}, and version {before} on an earlier connection"));
        }
        self.since_reset.insert(key.clone(), revision);
        let Some(lineage) = lineages.get(key) else { return Ok(()) };
        let at = lineage.mutations.binary_search_by_key(&revision, |mutation| mutation.version);
        match (at.ok().map(|position| &lineage.mutations[position]), &change.content) {
            (Some(Mutation { is_put: false, .. }), Some(_)) => {
                Err(format!("was sent {shown}, which is a removal"))
            }
            (Some(Mutation { is_put: true, .. }), None) => {
                Err(format!("was sent the removal {shown}, which is a put"))
            }
            (Some(put), Some(content)) => {
                let value =
                    content.value.as_ref().ok_or_else(|| format!("was sent {shown} without its value"))?;
                if token_of(value) == Some(put.token) {
                    Ok(())
                } else {
                    Err(format!("was sent {shown} with another value than operation {} put", put.token))
                }
            }
            (_, None) | (None, Some(_)) => Ok(()),
        }
    }

    fn judge_position(
        &mut self,
        position: &SlotRevisions,
        (scope, lineages): (&KeyScope, &Lineages),
    ) -> Result<(), String> {
        let begin = self.begin.get_or_insert_with(|| position.clone());
        for (key, lineage) in lineages.iter().filter(|(key, _)| scope.contains(key)) {
            let slot = slot_of(key);
            let Some(revision) = position.of(slot) else {
                return Err(format!("was sent a position without slot {slot}"));
            };
            let last = lineage.mutations.iter().rev().find(|mutation| mutation.version <= revision);
            let promised = begin.of(slot).unwrap_or(Version::ABSENT);
            let Some(last) = last.filter(|last| last.version > promised) else { continue };
            let known = self.since_reset.get(key).copied().unwrap_or(Version::ABSENT);
            // A key that was gone before the state was sent is not mentioned. It may have been
            // deleted without an answer.
            let may_be_gone = !last.is_put || !lineage.unknown_deletes.is_empty();
            let is_known = known >= last.version || may_be_gone && known == Version::ABSENT;
            if !is_known {
                let missed = describe(key, last.version);
                return Err(format!("was sent position {revision} of slot {slot}, and not {missed}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::value_of;
    use tidelock_core::command::{Condition, KeyContent};
    use tidelock_core::slots::slot_set::SlotSet;
    use tidelock_core::types::Token;

    use super::super::lineage::Lineage;
    use crate::history::Moment;

    const KEY: Bytes = Bytes::from_static(b"k");

    fn mutation(version: u64, is_put: bool) -> Mutation {
        Mutation {
            version: Version(version),
            is_put,
            existed: None,
            condition: Condition::Always,
            token: Token(version * 10),
            invoked: Moment::NEVER,
            completed: Moment::NEVER,
        }
    }

    fn lineages() -> Lineages {
        let mutations = vec![mutation(2, true), mutation(5, true), mutation(7, false)];
        Lineages::from([(KEY, Lineage { mutations, ..Lineage::default() })])
    }

    fn put(version: u64) -> KeyEvent {
        let value = Some(value_of(Token(version * 10), 8));
        let content = Some(KeyContent { value, expires: None });
        KeyEvent::Changed(KeyChange { key: KEY, revision: Version(version), content })
    }

    fn removal(version: u64) -> KeyEvent {
        KeyEvent::Changed(KeyChange { key: KEY, revision: Version(version), content: None })
    }

    fn received(events: Vec<KeyEvent>, position: u64) -> KeyWatchRecord {
        let position = Some(SlotRevisions::at(&SlotSet::all(), Version(position)));
        KeyWatchRecord::Received { events, position }
    }

    fn judged(records: Vec<KeyWatchRecord>) -> Result<(), String> {
        let mut client = KeyWatchingClient::new(KeyScope::Prefix(Bytes::new()), fastrand::Rng::with_seed(1));
        client.records = [vec![KeyWatchRecord::Connected(WatchStart::State)], records].concat();
        judge(&client, &lineages())
    }

    #[test]
    fn whole_streams_are_accepted() {
        let whole = vec![
            received(vec![KeyEvent::Reset, put(2), KeyEvent::Live], 4),
            received(vec![put(5)], 5),
            received(vec![removal(7)], 9),
        ];
        assert_eq!(judged(whole), Ok(()));
        assert_eq!(
            judged(vec![
                received(vec![KeyEvent::Reset, put(2), KeyEvent::Live], 3),
                received(vec![removal(7)], 7)
            ]),
            Ok(())
        );
        assert_eq!(judged(vec![received(vec![KeyEvent::Reset, KeyEvent::Live], 8)]), Ok(()));
    }

    #[test]
    fn missing_repeated_and_wrong_events_are_found() {
        for records in [
            vec![received(vec![KeyEvent::Reset, KeyEvent::Live], 3)],
            vec![received(vec![KeyEvent::Reset, put(2), KeyEvent::Live], 5)],
            vec![
                received(vec![KeyEvent::Reset, put(2), KeyEvent::Live], 3),
                received(vec![KeyEvent::Progress], 7),
            ],
            vec![received(vec![KeyEvent::Reset, put(2), put(2), KeyEvent::Live], 3)],
            vec![received(vec![KeyEvent::Reset, put(5), KeyEvent::Live], 5), received(vec![put(2)], 6)],
            vec![received(vec![KeyEvent::Reset, removal(5), KeyEvent::Live], 6)],
            vec![received(vec![KeyEvent::Reset, put(7), KeyEvent::Live], 7)],
        ] {
            assert!(judged(records.clone()).is_err(), "{records:?}");
        }
    }
}
