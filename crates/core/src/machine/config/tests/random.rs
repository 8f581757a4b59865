//! Random changes: derived data equals data computed from scratch, every kept state is correct, and
//! a snapshot shows the state at its beginning.

use super::*;
use crate::command::config::{SECRET_MASK, document_tree};
use crate::machine::config::namespace::{Contents, container_bytes, pair_bytes};

struct Walk {
    random: fastrand::Rng,
    config: Config,
    /// The content after each revision, as documents and pairs show it.
    states: BTreeMap<u64, String>,
}

impl Walk {
    fn new(seed: u64) -> Walk {
        let mut config = Config::default();
        apply(&mut config, ConfigOperation::Create).expect("created");
        Walk { random: fastrand::Rng::with_seed(seed), config, states: BTreeMap::new() }
    }

    fn namespace(&self) -> &Namespace {
        &self.config.namespaces[&name()]
    }

    fn key(&mut self, kind: &str) -> Arc<str> {
        alloc::format!("{kind}{}", self.random.u8(..6)).into()
    }

    fn change(&mut self) -> Change {
        match self.random.u8(..13) {
            12 => Change::KeepSecret { key: self.key("p") },
            0..5 => {
                let number = self.random.i64(..4);
                let value = match self.random.u8(..14) {
                    0 => Value::text("text"),
                    1 => Value::float(0.5).expect("finite"),
                    2 | 3 => secrets::sealed(number.rem_euclid(4)),
                    4 => Value::text(SECRET_MASK),
                    _ => Value::Int(number),
                };
                Change::PutPair { key: self.key("p"), value, retype: self.random.bool() }
            }
            5..7 => {
                let fields = ["a", "b", "c"].map(|key| Field { key: key.into(), refers: self.refers(3) });
                let retype = self.random.bool();
                Change::PutContainer { key: self.key("c"), fields: fields.into(), retype }
            }
            7 | 8 => Change::Delete(Item::Pair(self.key("p"))),
            9 => Change::Delete(Item::Container(self.key("c"))),
            10 => {
                let schema = (self.random.u8(..3) > 0).then(schemas::of_integers);
                Change::SetSchema { item: Item::Pair(self.key("p")), schema }
            }
            _ => {
                let schema = (self.random.u8(..3) > 0).then(schemas::of_integer_fields);
                Change::SetSchema { item: Item::Container(self.key("c")), schema }
            }
        }
    }

    /// A structure of at most `levels` dicts.
    fn refers(&mut self, levels: u8) -> Refers {
        match self.random.u8(..if levels == 0 { 2 } else { 3 }) {
            0 => Refers::One(self.key("p")),
            1 => Refers::List((0..self.random.u8(..3)).map(|_| self.key("p")).collect()),
            _ => {
                let entries = self.random.u8(..3);
                Refers::Dict((0..entries).map(|_| (self.key("n"), self.refers(levels - 1))).collect())
            }
        }
    }

    fn step(&mut self) {
        let newest = self.namespace().revision;
        let operation = match self.random.u8(..20) {
            0 => ConfigOperation::SetPolicy(Policy {
                revisions: self.random.u64(2..30),
                age_ms: self.random.u64(1..500),
            }),
            1 | 2 => ConfigOperation::Rollback {
                to: self.random.u64(newest.saturating_sub(20)..=newest + 1),
                item: None,
            },
            3 => {
                let item = Item::Pair(self.key("p"));
                ConfigOperation::Rollback {
                    to: self.random.u64(newest.saturating_sub(9)..=newest),
                    item: Some(item),
                }
            }
            _ => {
                let changes = (0..self.random.u8(1..4)).map(|_| self.change()).collect();
                ConfigOperation::Publish { changes, create: self.random.bool() }
            }
        };
        let stamp = stamp(self.random.u64(0..1_000));
        let before = self.config.digest(0);
        let preview = previews::preview(&self.config, operation.clone());
        let documents = previews::documents(&self.config);
        assert_eq!(self.config.digest(0), before, "a preview left a trace");
        let result = apply_write(&mut self.config, ConfigWrite { stamp, ..write(operation) });
        if !matches!(result, Ok((_, true))) {
            assert_eq!(self.config.digest(0), before, "{result:?} left a trace");
        }
        previews::assert_came_true(&preview, result, (newest, documents), &self.config);
        self.judge();
    }

    /// Checks that all derived data equals data computed from scratch.
    fn judge(&mut self) {
        let namespace = self.namespace();
        let Contents { pairs, containers } = &namespace.contents;
        for pair in pairs.values() {
            schemas::assert_holds(pair.schema.as_deref(), &pair.value);
        }
        let pair_total: usize = pairs.iter().map(|(key, pair)| pair_bytes(key, pair)).sum();
        let container_total: usize = containers.iter().map(|(key, held)| container_bytes(key, held)).sum();
        assert_eq!(namespace.bytes, pair_total + container_total);
        assert_eq!(namespace.history_bytes, namespace.history.iter().map(|revision| revision.bytes()).sum());
        let mut users: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        let mut documents_bytes = 0;
        let pair_of = |key: &str| pairs.get(key).map(|pair| &**pair);
        for (key, container) in containers {
            let text = document(&self.config, key, None).expect("it resolves");
            documents_bytes += text.len();
            schemas::assert_holds(container.schema.as_deref(), &document_tree(&container.fields, pair_of));
            for pair in container.pairs() {
                assert!(pairs.contains_key(pair), "{key} refers to {pair}");
                users.entry(pair.clone()).or_default().insert(key.clone());
            }
        }
        assert_eq!((&namespace.users, namespace.documents_bytes), (&users, documents_bytes));
        let (revision, oldest) = (namespace.revision, namespace.oldest());
        let state = picture(&namespace.contents);
        assert_eq!(*self.states.entry(revision).or_insert_with(|| state.clone()), state);
        for (revision, state) in self.states.range(oldest..) {
            assert_eq!(picture(&self.namespace().at(*revision).expect("kept")), *state, "as of {revision}");
        }
        if oldest > 1 {
            assert!(self.namespace().at(oldest - 1).is_err());
        }
    }
}

/// The content as text, without derived data.
fn picture(contents: &Contents) -> String {
    let pairs = contents
        .pairs
        .iter()
        .map(|(key, pair)| alloc::format!("{key}={}{:?} ", secrets::text_of(&pair.value), pair.schema));
    let containers = contents
        .containers
        .iter()
        .map(|(key, container)| alloc::format!("{key}:{:?}{:?} ", container.fields, container.schema));
    pairs.chain(containers).collect()
}

#[test]
fn everything_that_follows_from_content_follows() {
    for seed in 0..40 {
        let mut walk = Walk::new(seed);
        (0..120).for_each(|_| walk.step());
        assert!(walk.namespace().revision > 30, "seed {seed} did little");
    }
}

#[test]
fn a_watcher_of_a_namespace_hears_what_watchers_of_its_containers_hear() {
    for seed in 0..20 {
        let mut walk = Walk::new(seed);
        for _ in 0..60 {
            walk.step();
            let (revision, oldest) = (walk.namespace().revision, walk.namespace().oldest());
            for after in [oldest - 1, oldest, revision.saturating_sub(3).max(oldest), revision] {
                let mut expected = Vec::new();
                for key in (0..6).map(|number| alloc::format!("c{number}")) {
                    let changes = changes_since(&walk.config, &key, after);
                    assert!(!changes.has_gap);
                    let events = shown(&changes.events).into_iter();
                    expected.extend(events.map(|(revision, text)| (revision, key.clone(), text)));
                }
                expected.sort();
                let found = all_after(&walk.config, Some(WatchPosition::through(after)));
                let found: Vec<_> = named(&found)
                    .into_iter()
                    .map(|(revision, key, text)| (revision, String::from(key), text))
                    .collect();
                assert_eq!(found, expected, "seed {seed}, after {after} of {revision}");
            }
            let state = all_after(&walk.config, None);
            assert_eq!(state.len(), walk.namespace().contents.containers.len());
        }
    }
}

#[test]
fn a_snapshot_in_the_midst_shows_its_beginning() {
    for seed in 0..40 {
        let mut walk = Walk::new(seed);
        (0..60).for_each(|_| walk.step());
        let before = walk.config.digest(0);
        walk.config.begin_snapshot();
        let mut restored = Config::default();
        while let Some(block) = {
            (0..5).for_each(|_| walk.step());
            walk.config.next_block()
        } {
            restored.take_block(&block).expect("a block");
        }
        assert_eq!(restored.digest(0), before);
        let namespace = restored.namespaces.get(&name()).expect("it is there");
        assert_eq!(
            namespace.bytes,
            namespace.contents.pairs.iter().map(|(key, pair)| pair_bytes(key, pair)).sum::<usize>()
                + namespace
                    .contents
                    .containers
                    .iter()
                    .map(|(key, held)| container_bytes(key, held))
                    .sum::<usize>()
        );
        let mut again = Walk { config: restored, states: BTreeMap::new(), ..Walk::new(seed + 1_000) };
        (0..20).for_each(|_| again.step());
    }
}
