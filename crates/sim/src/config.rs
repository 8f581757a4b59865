//! Generates clients' requests to the configuration centre.
//!
//! Owns the choice of the next change or read. It checks nothing; `checkers::config` does.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock_core::command::config::{
    Audience, Change, ConfigOperation, ConfigReply, ConfigWritten, DraftAction, DraftStep, Field, Item, Name,
    Policy, Preview, Query, Refers, Schema, Search, Selection, Stamp, Value,
};
use tidelock_core::command::{
    ConfigRead, ConfigWrite, Consistency, Read, ReadReply, Reply, Request, Write, WriteReply,
};
use tidelock_core::types::{ShardId, Token};

use crate::faults::choose;
use crate::slots::shard_of;

/// Containers that clients use in each namespace, and that are watched.
pub const CONTAINERS: [&str; 2] = ["c0", "c1"];

/// Pairs that clients use in each namespace.
const PAIRS: u8 = 4;

/// More pairs than a namespace ever has, with those of imports: a page shows all of them.
const PAIRS_PAGE: usize = 100;

/// Prefix of the names of namespaces that are created and deleted during a run.
const FLEETING: &str = "fleeting";

/// Whether a namespace is one of those that are created and deleted during a run.
pub fn is_fleeting(name: &Name) -> bool {
    name.as_str().starts_with(FLEETING)
}

/// Prefix of the names of namespaces that inherit from each other. Those of a family share a hash
/// tag.
const FAMILY: &str = "family";

/// Whether a namespace is one of those that inherit from each other.
pub fn is_inheriting(name: &Name) -> bool {
    name.as_str().trim_start_matches('{').starts_with(FAMILY)
}

/// The label of readers that see canaries. Others are not among their audience.
pub const CANARY_LABEL: &str = "early";

/// A schema that clients set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSchema {
    /// A number without a fraction, of a pair.
    Integer,
    /// A container whose field `a`, if it is there, is such a number.
    IntegerField,
    /// A container with a field `b`.
    RequiredField,
}

impl ClientSchema {
    const ALL: [ClientSchema; 3] =
        [ClientSchema::Integer, ClientSchema::IntegerField, ClientSchema::RequiredField];

    /// Creates it.
    pub fn schema(self) -> Arc<Schema> {
        let dict = |key: &str, value| Value::Dict([(key.into(), value)].into());
        let integer = dict("type", Value::text("integer"));
        let source = match self {
            ClientSchema::Integer => integer,
            ClientSchema::IntegerField => dict("properties", dict("a", integer)),
            ClientSchema::RequiredField => dict("required", Value::List(vec![Value::text("b")])),
        };
        Arc::new(Schema::new(source).expect("a schema"))
    }

    /// Which of them a schema is.
    ///
    /// # Panics
    /// When it is none of them.
    pub fn of(schema: &Schema) -> ClientSchema {
        let found = ClientSchema::ALL.into_iter().find(|known| *known.schema() == *schema);
        found.expect("invariant: clients set only these schemas")
    }
}

/// Generator of requests about configuration.
#[derive(Debug)]
pub struct ConfigWorkload {
    names: Vec<Name>,
    /// Namespaces that are created and deleted during a run.
    fleeting: Vec<Name>,
    /// Families of namespaces that inherit from each other.
    families: Vec<Vec<Name>>,
    /// The highest revision of each namespace that any client has seen.
    seen: BTreeMap<Name, u64>,
    /// The change that was previewed last, with the revision at which it was. It is made next.
    previewed: Option<(Name, u64, ConfigOperation)>,
    random: fastrand::Rng,
}

impl ConfigWorkload {
    /// Uses two namespaces for each shard: one that stays, and one that is created and deleted.
    pub fn new(data_shards: u64, random: fastrand::Rng) -> ConfigWorkload {
        let (names, fleeting) = (names("ns", data_shards), names(FLEETING, data_shards));
        let families = families(data_shards);
        ConfigWorkload { names, fleeting, families, seen: BTreeMap::new(), previewed: None, random }
    }

    /// The namespaces that inherit from each other.
    pub fn inheriting(&self) -> Vec<Name> {
        self.families.iter().flatten().cloned().collect()
    }

    /// All namespaces, those that stay and those that are created and deleted.
    pub fn names(&self) -> Vec<Name> {
        self.names.iter().chain(&self.fleeting).cloned().collect()
    }

    /// Whether the next request is about configuration.
    pub fn is_next(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.random.u32(0..1000) < per_mille
    }

    /// The next request, with `token` as its author, so that a revision names the request that made
    /// it.
    pub fn request(&mut self, token: Token) -> Request {
        match self.random.u8(0..20) {
            0..7 => self.read(),
            7 | 8 => self.preview(token),
            _ => self.write(token),
        }
    }

    /// Learns revisions from a reply.
    pub fn learn(&mut self, request: &Request, reply: &Reply) {
        if let Request::Write(Write::Config(write)) = request
            && let Reply::Write(WriteReply::Config(Ok(ConfigWritten { revision, .. }))) = reply
        {
            let seen = self.seen.entry(write.namespace.clone()).or_default();
            *seen = (*seen).max(*revision);
        }
        if let Request::Read { read: Read::Config(ConfigRead { namespace, query }), .. } = request
            && let Query::Preview(preview) = query
            && let Reply::Read(ReadReply::Config(Ok(ConfigReply::Preview(found)))) = reply
        {
            self.previewed = Some((namespace.clone(), found.revision, preview.operation.clone()));
        }
    }

    fn key(&mut self) -> Arc<str> {
        format!("p{}", self.random.u8(0..PAIRS)).into()
    }

    fn container(&mut self) -> Arc<str> {
        (*choose(&mut self.random, &CONTAINERS)).into()
    }

    fn read(&mut self) -> Request {
        let consistency = if self.random.bool() { Consistency::Linearizable } else { Consistency::Stale };
        if self.random.u8(0..4) == 0 {
            return Request::Read { read: Read::Config(self.read_inheriting()), consistency };
        }
        let is_fleeting = self.random.u8(0..3) == 0;
        let names = if is_fleeting { &self.fleeting } else { &self.names };
        let namespace = choose(&mut self.random, names).clone();
        let at = self.seen.get(&namespace).copied().filter(|_| self.random.u8(0..4) == 0);
        let query = match self.random.u8(0..12) {
            0 => Query::Namespace,
            1 => Query::Pairs(Selection { contains: "".into(), offset: 0, limit: PAIRS_PAGE }),
            2 => Query::Pair { key: self.key(), at: at.map(|at| self.somewhat_before(at)) },
            3 => Query::History { item: None, before: None, limit: 5 },
            4 => Query::Export { at },
            5 => {
                let read = Read::ConfigNamespaces { prefix: bytes::Bytes::new(), after: None, limit: 10 };
                return Request::Read { read, consistency };
            }
            6 => Query::Users { key: self.key() },
            8 => Query::Blame { key: self.container() },
            7 => {
                let text = if self.random.bool() { "1".into() } else { self.container() };
                Query::Search(Search { text, after: None, limit: PAIRS_PAGE })
            }
            _ => Query::Container { key: self.container(), at, known: None },
        };
        Request::Read { read: Read::Config(ConfigRead { namespace, query }), consistency }
    }

    fn write(&mut self, token: Token) -> Request {
        let stamp = Stamp {
            author: token.0.to_string().into(),
            on_behalf_of: if token.0.is_multiple_of(3) { "claimed".into() } else { "".into() },
            // As from the clocks of several nodes, none of them right.
            time_ms: 1_000_000 + token.0 * 10 + self.random.u64(0..1_000),
            message: "".into(),
        };
        if let Some((namespace, revision, operation)) = self.previewed.take() {
            let expected = Some(revision);
            return Request::Write(Write::from(ConfigWrite { namespace, stamp, expected, operation }));
        }
        match self.random.u8(0..12) {
            0..3 => return self.write_fleeting(token, stamp),
            3..7 => return self.write_inheriting(token, stamp),
            _ => {}
        }
        let position = self.random.usize(0..self.names.len());
        let namespace = self.names[position].clone();
        let newest = self.seen.get(&namespace).copied().unwrap_or_default();
        let operation = self.operation(token, position);
        let expected = (self.random.u8(0..6) == 0).then_some(newest);
        Request::Write(Write::from(ConfigWrite { namespace, stamp, expected, operation }))
    }

    /// A change of a namespace that stays.
    fn operation(&mut self, token: Token, position: usize) -> ConfigOperation {
        let newest = self.seen.get(&self.names[position]).copied().unwrap_or_default();
        match self.random.u8(0..20) {
            0 => ConfigOperation::Create,
            // The first namespace keeps little history, the others all of it.
            1 if position == 0 => {
                ConfigOperation::SetPolicy(Policy { revisions: self.random.u64(2..20), age_ms: 5_000 })
            }
            1 => ConfigOperation::SetPolicy(Policy { revisions: 10_000, age_ms: u64::MAX }),
            2 | 3 => {
                let to = newest.saturating_sub(self.random.u64(0..8));
                let item = (self.random.u8(0..3) == 0).then(|| Item::Pair(self.key()));
                ConfigOperation::Rollback { to, item }
            }
            _ => {
                let changes = (0..self.random.u8(1..4)).map(|_| self.change(token)).collect();
                ConfigOperation::Publish { changes, create: self.random.u8(0..4) > 0 }
            }
        }
    }

    /// What a change would do. If it is answered, the change itself is often made afterwards.
    fn preview(&mut self, token: Token) -> Request {
        let is_fleeting = self.random.u8(0..3) == 0;
        let (namespace, operation) = if is_fleeting {
            let namespace = choose(&mut self.random, &self.fleeting).clone();
            let operation = self.fleeting_operation(token, &namespace);
            (namespace, operation)
        } else {
            let position = self.random.usize(0..self.names.len());
            (self.names[position].clone(), self.operation(token, position))
        };
        let newest = self.seen.get(&namespace).copied().unwrap_or_default();
        let expected = (self.random.u8(0..6) == 0).then_some(newest);
        let query = Query::Preview(Preview { expected, operation }.into());
        let read = Read::Config(ConfigRead { namespace, query });
        let is_linearizable = self.random.u8(0..4) > 0;
        let consistency = if is_linearizable { Consistency::Linearizable } else { Consistency::Stale };
        Request::Read { read, consistency }
    }

    /// A change of a namespace that is created and deleted: often its deletion, and as often one
    /// that is refused because of its content.
    fn write_fleeting(&mut self, token: Token, stamp: Stamp) -> Request {
        let namespace = choose(&mut self.random, &self.fleeting).clone();
        let newest = self.seen.get(&namespace).copied().unwrap_or_default();
        let operation = self.fleeting_operation(token, &namespace);
        let expected = (self.random.u8(0..6) == 0).then_some(newest);
        Request::Write(Write::from(ConfigWrite { namespace, stamp, expected, operation }))
    }

    fn fleeting_operation(&mut self, token: Token, namespace: &Name) -> ConfigOperation {
        let newest = self.seen.get(namespace).copied().unwrap_or_default();
        match self.random.u8(0..16) {
            0 => ConfigOperation::Create,
            1..=3 => ConfigOperation::Delete { force: true },
            4 | 5 => ConfigOperation::Delete { force: false },
            // Perhaps to a revision before the namespace was deleted, which must not come back.
            6 | 7 => {
                let to = self.somewhat_before(newest);
                let item = self.random.bool().then(|| Item::Pair(self.key()));
                ConfigOperation::Rollback { to, item }
            }
            _ => {
                let changes = (0..self.random.u8(0..3)).map(|_| self.change(token)).collect();
                ConfigOperation::Publish { changes, create: self.random.u8(0..4) > 0 }
            }
        }
    }

    /// A read of a namespace that may inherit from others.
    fn read_inheriting(&mut self) -> ConfigRead {
        let family = choose(&mut self.random, &self.families).clone();
        let namespace = choose(&mut self.random, &family).clone();
        let query = match self.random.u8(0..10) {
            0 => Query::Inheritance,
            1 => Query::Drafts,
            2 => Query::Pairs(Selection { contains: "".into(), offset: 0, limit: PAIRS_PAGE }),
            3 => Query::History { item: None, before: None, limit: 5 },
            4 => Query::Export { at: None },
            5 => Query::Pair { key: self.key(), at: None },
            6 => Query::Container { key: self.container(), at: None, known: None },
            _ => {
                let label = if self.random.bool() { CANARY_LABEL } else { "late" };
                let query = Query::Container { key: self.container(), at: None, known: None };
                Query::Labelled { label: label.into(), query: query.into() }
            }
        };
        ConfigRead { namespace, query }
    }

    /// A change of a namespace that may inherit from others.
    fn write_inheriting(&mut self, token: Token, stamp: Stamp) -> Request {
        let family = choose(&mut self.random, &self.families).clone();
        let namespace = choose(&mut self.random, &family).clone();
        let newest = self.seen.get(&namespace).copied().unwrap_or_default();
        let operation = match self.random.u8(0..26) {
            0 | 1 => ConfigOperation::Create,
            2 => ConfigOperation::Delete { force: true },
            3..6 => {
                let mut parents = family.clone();
                self.random.shuffle(&mut parents);
                parents.truncate(self.random.usize(0..3));
                ConfigOperation::SetParents { parents }
            }
            6 => ConfigOperation::SetProtected(self.random.u8(0..3) == 0),
            7 => ConfigOperation::SetProtected(false),
            8 => ConfigOperation::Withdraw,
            9..16 => {
                let draft = if self.random.bool() { "d0" } else { "d1" };
                ConfigOperation::Draft { draft: draft.into(), action: self.draft_action(token, newest) }
            }
            16 => ConfigOperation::Rollback { to: self.somewhat_before(newest), item: None },
            _ => {
                let changes = (0..self.random.u8(1..4)).map(|_| self.change(token)).collect();
                ConfigOperation::Publish { changes, create: self.random.u8(0..4) > 0 }
            }
        };
        let is_comment = matches!(&operation, ConfigOperation::Draft { action: DraftAction::Comment, .. });
        let message = if is_comment && self.random.bool() { "why?" } else { "" };
        let stamp = Stamp { message: message.into(), ..stamp };
        let expected = (self.random.u8(0..6) == 0).then_some(newest);
        Request::Write(Write::from(ConfigWrite { namespace, stamp, expected, operation }))
    }

    fn draft_action(&mut self, token: Token, newest: u64) -> DraftAction {
        let edits = (self.random.u8(0..3) == 0).then(|| self.random.u64(1..4));
        match self.random.u8(0..16) {
            0..6 => {
                let changes = (0..self.random.u8(1..3)).map(|_| self.change(token)).collect();
                DraftAction::Edit(DraftStep::Publish(changes))
            }
            6 => {
                let item = self.random.bool().then(|| Item::Pair(self.key()));
                DraftAction::Edit(DraftStep::Rollback { to: self.somewhat_before(newest), item })
            }
            7 => DraftAction::Comment,
            8 | 9 => DraftAction::Approve { edits: self.random.u64(1..4) },
            10 => DraftAction::Discard,
            11 | 12 => DraftAction::Publish { edits },
            _ => {
                let audience = Audience { labels: vec![CANARY_LABEL.into()], percent: 0 };
                DraftAction::Canary { edits, audience }
            }
        }
    }

    fn somewhat_before(&mut self, revision: u64) -> u64 {
        revision.saturating_sub(self.random.u64(0..6))
    }

    fn change(&mut self, token: Token) -> Change {
        match self.random.u8(0..14) {
            0..=6 => {
                let number = if self.random.bool() { token.0 as i64 } else { self.random.i64(0..3) };
                let value = match self.random.u8(0..16) {
                    0 => Value::text("text"),
                    1 => Value::float(0.5).expect("a finite number"),
                    _ => Value::Int(number),
                };
                Change::PutPair { key: self.key(), value, retype: self.random.bool() }
            }
            7..=9 => {
                let list = (0..self.random.u8(0..3)).map(|_| self.key()).collect();
                let mut fields = vec![
                    Field { key: "a".into(), refers: Refers::One(self.key()) },
                    Field { key: "b".into(), refers: Refers::List(list) },
                ];
                if self.random.bool() {
                    let inner = Refers::Dict([("x".into(), Refers::One(self.key()))].into());
                    let outer = [("d".into(), inner), ("p".into(), Refers::One(self.key()))];
                    fields.push(Field { key: "c".into(), refers: Refers::Dict(outer.into()) });
                }
                Change::PutContainer { key: self.container(), fields, retype: self.random.bool() }
            }
            10 => Change::Delete(Item::Pair(self.key())),
            11 => Change::Delete(Item::Container(self.container())),
            12 => {
                let schema = self.random.bool().then(|| ClientSchema::Integer.schema());
                Change::SetSchema { item: Item::Pair(self.key()), schema }
            }
            _ => {
                let schema = match self.random.u8(0..4) {
                    0 => None,
                    1 => Some(ClientSchema::RequiredField.schema()),
                    _ => Some(ClientSchema::IntegerField.schema()),
                };
                Change::SetSchema { item: Item::Container(self.container()), schema }
            }
        }
    }
}

/// A family of three namespaces for each shard.
fn families(data_shards: u64) -> Vec<Vec<Name>> {
    let family = |first: Name| {
        let others = ["b", "c"].map(|end| format!("{{{first}}}{end}"));
        let others = others.map(|name| Name::new(&name).expect("a name"));
        [first].into_iter().chain(others).collect()
    };
    names(FAMILY, data_shards).into_iter().map(family).collect()
}

/// One name for each shard.
fn names(prefix: &str, data_shards: u64) -> Vec<Name> {
    let mut found: BTreeMap<ShardId, Name> = BTreeMap::new();
    for number in 0u64.. {
        let name = format!("{prefix}{number}");
        let shard = shard_of(name.as_bytes(), data_shards);
        found.entry(shard).or_insert_with(|| Name::new(&name).expect("a name"));
        if found.len() as u64 == data_shards {
            break;
        }
    }
    found.into_values().collect()
}
