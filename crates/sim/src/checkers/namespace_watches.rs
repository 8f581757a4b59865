//! Checks what a watcher of a whole namespace received: each change of each container once, in the
//! order of revisions and keys, or a notice of the gap with the whole state after it.
//!
//! Owns what the client knows after each event. The documents of each revision come from the
//! checker that has them: `config` takes them from the history of the healed cluster, `lives` from
//! the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::ConfigState;
use crate::watcher::WatchedContent;

type Documents = BTreeMap<Arc<str>, String>;

/// A namespace from its creation to its deletion, as far as a checker knows it.
#[derive(Debug)]
pub struct KnownIncarnation {
    /// The number before its first revision, if it is known.
    began: Option<u64>,
    /// Every change after this revision is known.
    oldest: u64,
    newest: u64,
    /// The documents of all containers as of each known revision.
    states: BTreeMap<u64, Documents>,
    /// The documents that each change led to; `None`: the container was deleted.
    changes: BTreeMap<(u64, Arc<str>), Option<String>>,
}

impl KnownIncarnation {
    /// A life of which every state is known.
    pub fn of<'a>(began: u64, states: impl Iterator<Item = (u64, &'a ConfigState)>) -> KnownIncarnation {
        let mut life = KnownIncarnation {
            began: Some(began),
            oldest: began,
            newest: began,
            states: BTreeMap::new(),
            changes: BTreeMap::new(),
        };
        states.for_each(|(revision, state)| life.push(revision, state.documents()));
        life
    }

    /// A life of which the state as of `oldest` is known, and every later one.
    pub fn since<'a>(oldest: u64, states: impl Iterator<Item = (u64, &'a ConfigState)>) -> KnownIncarnation {
        let mut life = KnownIncarnation::of(oldest, states);
        life.began = None;
        life.changes.retain(|(revision, _), _| *revision > oldest);
        life
    }

    fn push(&mut self, revision: u64, documents: Documents) {
        let none = Documents::new();
        let before = self.states.get(&self.newest).unwrap_or(&none);
        for key in before.keys().chain(documents.keys()) {
            if before.get(key) != documents.get(key) {
                self.changes.insert((revision, key.clone()), documents.get(key).cloned());
            }
        }
        self.newest = revision;
        self.states.insert(revision, documents);
    }

    fn contains(&self, revision: u64) -> bool {
        self.began.is_none_or(|began| revision > began) && revision <= self.newest
    }
}

/// The last event that a client received: a revision, and the container unless all of the revision
/// is known.
type Place = (u64, Option<Arc<str>>);

/// What a client knows.
#[derive(Default)]
struct KnownNamespace<'a> {
    place: Place,
    documents: Documents,
    /// It is being sent the state as of this revision.
    state: Option<u64>,
    /// It was told that the namespace does not exist.
    is_absent: bool,
    previous: Option<&'a WatchedContent>,
}

/// Judges one watch, over all connections that continued it. `exists`: the last life goes on.
pub(super) fn judge(
    watch: &[WatchedContent],
    lives: &[KnownIncarnation],
    exists: bool,
) -> Result<(), String> {
    let mut known = KnownNamespace::default();
    for event in watch {
        known.take(event, lives, exists).map_err(|text| format!("{text}: {event:?}"))?;
        known.previous = Some(event);
    }
    Ok(())
}

impl<'a> KnownNamespace<'a> {
    fn take(
        &mut self,
        event: &'a WatchedContent,
        lives: &[KnownIncarnation],
        exists: bool,
    ) -> Result<(), String> {
        if event.revision == 0 && !event.is_current {
            return self.take_absence(lives.last().filter(|_| exists));
        }
        let Some(life) = lives.iter().find(|life| life.contains(event.revision)) else {
            return Err("received a revision of no lifetime".into());
        };
        if event.begins_state(self.previous) {
            (self.documents, self.state) = (Documents::new(), None);
        }
        match &event.container {
            None if event.is_current => self.take_current(event.revision, life),
            None => self.take_new_life(event, life),
            Some(key) if event.position.is_state => self.take_state(event, key, life),
            Some(key) => self.take_change(event, key, life),
        }?;
        self.is_absent = false;
        Ok(())
    }

    /// The namespace does not exist.
    fn take_absence(&mut self, present_life: Option<&KnownIncarnation>) -> Result<(), String> {
        if self.is_absent {
            return Err("received twice that the namespace does not exist".into());
        }
        if present_life.is_some_and(|life| self.place.0 > 0 && life.contains(self.place.0)) {
            return Err("received that the namespace was deleted, and it exists".into());
        }
        *self = KnownNamespace { is_absent: true, ..KnownNamespace::default() };
        Ok(())
    }

    /// The namespace was deleted and created again.
    fn take_new_life(&mut self, event: &WatchedContent, life: &KnownIncarnation) -> Result<(), String> {
        let is_first = match life.began {
            Some(began) => event.revision == began + 1 && self.place.0 <= began,
            None => event.revision <= life.oldest,
        };
        if !is_first && !event.after_gap {
            return Err("received a deletion of the namespace that did not happen".into());
        }
        self.documents.clear();
        self.state = None;
        self.place = (event.revision, Some("".into()));
        Ok(())
    }

    /// A part of the state.
    fn take_state(
        &mut self,
        event: &WatchedContent,
        key: &Arc<str>,
        life: &KnownIncarnation,
    ) -> Result<(), String> {
        let state = event.position.revision;
        let place = (state, Some(key.clone()));
        if self.state.is_some() && place <= self.place {
            return Err("received a part of the state out of order".into());
        }
        if event.revision > state {
            return Err("received a change as a part of an older state".into());
        }
        let document = event.document.clone().ok_or("received a deletion as a part of the state")?;
        if life.states.get(&state).is_some_and(|documents| documents.get(key) != Some(&document)) {
            return Err("received a wrong part of the state".into());
        }
        if event.revision != state {
            self.judge_document(event, key, life)?;
        }
        self.documents.insert(key.clone(), document);
        (self.place, self.state) = (place, Some(state));
        Ok(())
    }

    /// The state is complete.
    fn take_current(&mut self, revision: u64, life: &KnownIncarnation) -> Result<(), String> {
        if self.state.is_some_and(|state| state != revision) {
            return Err("received the end of another state".into());
        }
        if life.states.get(&revision).is_some_and(|documents| *documents != self.documents) {
            return Err(format!("knows {:?} instead of {:?}", self.documents, life.states[&revision]));
        }
        (self.place, self.state) = ((revision, None), None);
        Ok(())
    }

    fn take_change(
        &mut self,
        event: &WatchedContent,
        key: &Arc<str>,
        life: &KnownIncarnation,
    ) -> Result<(), String> {
        if self.state.is_some() {
            return Err("received a change before the end of the state".into());
        }
        let mut last = self.place.clone();
        if let Some(began) = life.began.filter(|began| last.0 <= *began) {
            if last.0 > 0 {
                return Err("did not receive that the namespace was deleted".into());
            }
            last = (began, None);
        }
        let is_later = |(revision, container): (u64, &Arc<str>)| {
            revision > last.0 || revision == last.0 && last.1.as_ref().is_some_and(|last| container > last)
        };
        if !is_later((event.revision, key)) {
            return Err(format!("received it after {last:?}"));
        }
        let mut before = life.changes.range(..(event.revision, key.clone()));
        let missing = before.next_back().filter(|((revision, key), _)| is_later((*revision, key)));
        if let Some(((revision, key), _)) = missing {
            return Err(format!("did not receive the change of {key} at revision {revision} before"));
        }
        self.judge_document(event, key, life)?;
        match &event.document {
            Some(document) => drop(self.documents.insert(key.clone(), document.clone())),
            None => drop(self.documents.remove(key)),
        }
        self.place = (event.revision, Some(key.clone()));
        Ok(())
    }

    /// Checks that an event is a change, and its document.
    fn judge_document(
        &self,
        event: &WatchedContent,
        key: &Arc<str>,
        life: &KnownIncarnation,
    ) -> Result<(), String> {
        if event.revision <= life.oldest {
            return Ok(());
        }
        match life.changes.get(&(event.revision, key.clone())) {
            Some(document) if *document == event.document => Ok(()),
            Some(document) => Err(format!("received a wrong document instead of {document:?}")),
            None => Err("received an event without a change".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidelock_core::command::config::{Refers, Value, WatchPosition};

    use super::*;

    /// A state whose containers resolve to these numbers.
    fn state(documents: &[(&str, i64)]) -> ConfigState {
        let mut state = ConfigState::default();
        for (key, number) in documents {
            state.pairs.insert((*key).into(), Value::Int(*number));
            state.containers.insert((*key).into(), vec![("f".into(), Refers::One((*key).into()))]);
        }
        state
    }

    /// Revision 1 creates two containers, revision 2 changes both, revision 3 deletes one.
    fn life() -> KnownIncarnation {
        let states = [state(&[("a", 1), ("b", 1)]), state(&[("a", 2), ("b", 2)]), state(&[("b", 2)])];
        KnownIncarnation::of(0, (1..).zip(&states))
    }

    fn event(revision: u64, key: &str, number: Option<i64>, state: Option<u64>) -> WatchedContent {
        WatchedContent {
            revision,
            position: WatchPosition {
                revision: state.unwrap_or(revision),
                container: Some(key.into()),
                is_state: state.is_some(),
            },
            container: Some(key.into()),
            document: number.map(|number| format!("{{\"f\":{number}}}")),
            after_gap: state.is_some(),
            ..WatchedContent::default()
        }
    }

    fn change(revision: u64, key: &str, number: i64) -> WatchedContent {
        event(revision, key, Some(number), None)
    }

    fn current(revision: u64) -> WatchedContent {
        let position = WatchPosition::through(revision);
        WatchedContent { revision, position, is_current: true, after_gap: true, ..WatchedContent::default() }
    }

    fn all() -> Vec<WatchedContent> {
        vec![
            change(1, "a", 1),
            change(1, "b", 1),
            change(2, "a", 2),
            change(2, "b", 2),
            event(3, "a", None, None),
        ]
    }

    #[test]
    fn every_change_once_and_in_order_is_right() {
        assert_eq!(judge(&all(), &[life()], true), Ok(()));
        let from_state = [event(1, "a", Some(1), Some(1)), event(1, "b", Some(1), Some(1)), current(1)];
        let watch = [&from_state[..], &all()[2..]].concat();
        assert_eq!(judge(&watch, &[life()], true), Ok(()));
        // A gap: the state as of revision 3 follows.
        let watch = [all()[0].clone(), event(2, "b", Some(2), Some(3)), current(3)];
        assert_eq!(judge(&watch, &[life()], true), Ok(()));
    }

    #[test]
    fn what_is_missing_repeated_wrong_or_out_of_order_is_noticed() {
        for position in 0..4 {
            let mut watch = all();
            watch.remove(position);
            assert!(judge(&watch, &[life()], true).is_err(), "without event {position}");
            let mut watch = all();
            watch.insert(position, watch[position].clone());
            assert!(judge(&watch, &[life()], true).is_err(), "event {position} twice");
            let mut watch = all();
            watch.swap(position, position + 1);
            assert!(judge(&watch, &[life()], true).is_err(), "event {position} late");
        }
        assert!(judge(&[change(1, "a", 7)], &[life()], true).is_err(), "another document");
        assert!(judge(&[change(4, "a", 7)], &[life()], true).is_err(), "no such revision");
        let half = [event(1, "a", Some(1), Some(1)), current(1)];
        assert!(judge(&half, &[life()], true).is_err(), "a container of the state is missing");
        let early = [event(1, "a", Some(1), Some(1)), change(2, "a", 2)];
        assert!(judge(&early, &[life()], true).is_err(), "a change before the state is complete");
    }

    #[test]
    fn lives_of_a_namespace_follow_each_other() {
        let second = state(&[("a", 9)]);
        let lives = || [life(), KnownIncarnation::of(3, [(4, &second)].into_iter())];
        let absent = WatchedContent::default();
        let again = WatchedContent {
            revision: 4,
            position: WatchPosition { revision: 4, container: Some("".into()), is_state: false },
            ..WatchedContent::default()
        };
        let with = |more: &[WatchedContent]| [&all()[..], more].concat();
        assert_eq!(judge(&with(&[absent.clone(), change(4, "a", 9)]), &lives(), true), Ok(()));
        assert_eq!(judge(&with(&[again.clone(), change(4, "a", 9)]), &lives(), true), Ok(()));
        assert!(judge(&with(&[change(4, "a", 9)]), &lives(), true).is_err(), "not told of the deletion");
        assert!(judge(&with(&[absent.clone(), absent.clone()]), &lives(), true).is_err(), "told twice");
        let too_much = with(&[again, change(4, "a", 9), absent]);
        assert!(judge(&too_much, &lives(), true).is_err(), "it exists");
        assert_eq!(judge(&too_much, &lives(), false), Ok(()));
    }
}
