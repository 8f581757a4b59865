//! Generates the requests of clients: few keys over all shards, every command, any node.
//!
//! Owns the choice of the next operation and what a client remembers (versions it saw, so that its
//! conditional writes sometimes hold and sometimes do not). It neither delivers nor checks. A
//! client waits for one operation at a time, up to its timeout; a later reply is still recorded,
//! since the store promised one.

use std::collections::BTreeMap;

use crate::slots::shard_of;
use bytes::Bytes;
use tidelock_core::command::config::Name;
use tidelock_core::command::{
    Condition, Consistency, Discard, Operation, OperationReply, Read, ReadReply, Reply, Request, Restoration,
    RestoreWrite, StoredValue, Write,
};
use tidelock_core::types::{NodeId, ShardId, Token, UnixMillis, Version};
use uuid::Uuid;

use crate::compound::Compound;
use crate::config::ConfigWorkload;
use crate::event_queue::Micros;
use crate::faults::choose;
use crate::history::{VALUE_BYTES_MIN, value_of};
use crate::plan::{Load, Plan};

/// All clients, and the generators of their requests.
#[derive(Debug)]
pub struct Workload {
    load: Load,
    data_shards: u64,
    keys: Vec<Bytes>,
    clients: Vec<Client>,
    compound: Compound,
    config: ConfigWorkload,
    random: fastrand::Rng,
    /// Draws which requests remove all keys.
    flushes: fastrand::Rng,
}

#[derive(Debug)]
struct Client {
    node: NodeId,
    waits_for: Option<Token>,
    /// A step that is scheduled earlier than this is obsolete.
    next_step: Micros,
    versions: BTreeMap<Bytes, Version>,
}

impl Workload {
    /// The clients of a plan. Requests with operations and about configuration have separate
    /// generators.
    pub fn new(plan: &Plan) -> Workload {
        let Plan { load, nodes, data_shards, .. } = *plan;
        let mut random = plan.generator("workload");
        let compound = plan.generator("compound");
        let compound = Compound::new(data_shards, load.keys_per_shard, load.operations_per_mille, compound);
        let config = ConfigWorkload::new(data_shards, plan.generator("configuration of clients"));
        let clients = (0..load.clients)
            .map(|_| Client {
                node: NodeId(random.u64(1..=nodes)),
                waits_for: None,
                next_step: Micros(0),
                versions: BTreeMap::new(),
            })
            .collect();
        let keys = keys_over(data_shards, load.keys_per_shard);
        let flushes = plan.generator("removals of all keys by clients");
        Workload { load, data_shards, keys, clients, compound, config, random, flushes }
    }

    /// The keys of each shard that are used with operations.
    pub fn compound_keys(&self) -> Vec<Vec<Bytes>> {
        self.compound.keys()
    }

    /// For each data shard, a hash tag of it.
    pub fn tags(&self) -> &[String] {
        self.compound.tags()
    }

    /// Every key that any client may use, in no particular order.
    pub fn keys(&self) -> &[Bytes] {
        &self.keys
    }

    /// The namespaces of configuration that may exist, apart from those of
    /// [`Workload::inheriting_namespaces`].
    pub fn namespaces(&self) -> Vec<Name> {
        self.config.names()
    }

    /// The namespaces that may exist and inherit from each other.
    pub fn inheriting_namespaces(&self) -> Vec<Name> {
        self.config.inheriting()
    }

    /// How long a client rests before its next step.
    pub fn pause(&mut self) -> Micros {
        Micros(self.random.u64(0..=self.load.pause_max.0))
    }

    /// Whether a client is due; an obsolete step is not.
    pub fn is_due(&self, client: usize, now: Micros) -> bool {
        now >= self.clients[client].next_step
    }

    /// The node that a client asks next, of those that take connections.
    pub fn node_for(&mut self, client: usize, up: &[NodeId]) -> Option<NodeId> {
        let client = &mut self.clients[client];
        if !up.is_empty() && (!self.load.sticky || !up.contains(&client.node)) {
            client.node = *choose(&mut self.random, up);
        }
        up.contains(&client.node).then_some(client.node)
    }

    /// A client's next request, with the token `token`, to a node whose clock shows `clock`.
    pub fn request(&mut self, client: usize, token: Token, clock: UnixMillis) -> Request {
        if self.flushes.u32(0..1000) < self.load.flushes_per_mille {
            return Request::Flush;
        }
        if self.config.is_next(self.load.config_per_mille) {
            self.config.request(token)
        } else if let Some(request) = self.compound.request(token, clock) {
            request
        } else if self.random.u32(0..1000) < self.load.reads_per_mille {
            self.read()
        } else {
            self.write(client, token)
        }
    }

    /// A client waits for `token` from now on. Returns when it times out.
    pub fn waits(&mut self, client: usize, token: Token, now: Micros) -> Micros {
        self.clients[client].waits_for = Some(token);
        self.clients[client].next_step = now + self.load.client_timeout;
        self.clients[client].next_step
    }

    /// A reply arrived. Returns whether the client was waiting for it, and if so when it takes its
    /// next step.
    pub fn hears(&mut self, client: usize, token: Token, now: Micros) -> Option<Micros> {
        if self.clients[client].waits_for != Some(token) {
            return None;
        }
        let next = now + self.pause();
        self.clients[client].waits_for = None;
        self.clients[client].next_step = next;
        Some(next)
    }

    /// A client learns versions from a reply to its request.
    pub fn learn(&mut self, client: usize, request: &Request, reply: &Reply) {
        self.compound.learn(request, reply);
        self.config.learn(request, reply);
        let versions = &mut self.clients[client].versions;
        let key = match request {
            Request::Write(write) => {
                write.only_operation().map(|operation| Bytes::copy_from_slice(operation.key()))
            }
            Request::Read { read: Read::Get { key }, .. } => Some(key.clone()),
            Request::Read { read: Read::Config(_) | Read::ConfigNamespaces { .. }, .. } => return,
            Request::Read { .. }
            | Request::Cluster
            | Request::Registry
            | Request::Load { .. }
            | Request::Explain { .. }
            | Request::Transfer { .. }
            | Request::Access
            | Request::Authorities
            | Request::Audit { .. }
            | Request::Flush
            | Request::SnapshotHere
            | Request::Publish(_) => None,
        };
        let seen = match (reply, reply.only()) {
            (Reply::Read(ReadReply::Page(page)), _) => {
                versions.extend(page.items.iter().map(|item| (item.key.clone(), item.version)));
                None
            }
            (Reply::Read(ReadReply::Value(Some(StoredValue { version, .. }))), _) => Some(*version),
            (_, Some(OperationReply::Written { version, .. })) => Some(version),
            (_, Some(OperationReply::ConditionFailed { current })) => Some(current),
            (Reply::Read(ReadReply::Value(None)), _)
            | (_, Some(OperationReply::Deleted { .. } | OperationReply::Absent)) => Some(Version::ABSENT),
            _ => None,
        };
        versions.extend(key.zip(seen));
    }

    fn read(&mut self) -> Request {
        let random = &mut self.random;
        let stale = random.u8(0..3) == 0;
        let consistency = if stale { Consistency::Stale } else { Consistency::Linearizable };
        let read = match random.u8(0..100) {
            0 if stale => return Request::SnapshotHere,
            0 => return Request::Cluster,
            1..=75 => Read::Get { key: choose(random, &self.keys).clone() },
            _ => {
                let after = random.bool().then(|| choose(random, &self.keys).clone());
                let limit = *choose(random, &[1, 2, 3, 1000]);
                let prefix = Bytes::from_static(choose(random, &["", "", "a", "b/", "none"]).as_bytes());
                Read::List { prefix, after, limit, keys_only: random.u8(0..4) == 0 }
            }
        };
        Request::Read { read, consistency }
    }

    fn write(&mut self, client: usize, token: Token) -> Request {
        let random = &mut self.random;
        match random.u8(0..100) {
            0 | 1 => {
                return Request::Write(Write::Checkpoint {
                    shard: ShardId(random.u64(0..=self.data_shards)),
                });
            }
            2 => {
                let restoration = lift(self.data_shards, random);
                let Restoration { shard, backup, .. } = restoration;
                return Request::Write(match random.bool() {
                    true => Write::Restore(RestoreWrite::Keys(restoration)),
                    false => Write::Restore(RestoreWrite::Discard(Discard { shard, backup })),
                });
            }
            _ => {}
        }
        let key = choose(random, &self.keys).clone();
        let seen = self.clients[client].versions.get(&key).copied().unwrap_or(Version::ABSENT);
        let condition = match random.u8(0..100) {
            0..=54 => Condition::Always,
            55..=79 => Condition::Version(seen),
            80..=83 => Condition::Version(Version(random.u64(1..100))),
            84..=91 => Condition::Version(Version::ABSENT),
            _ => Condition::Exists,
        };
        Request::Write(if random.u8(0..4) == 0 {
            Write::of(&Operation::Delete { key: &key, condition })
        } else {
            let length = random.usize(VALUE_BYTES_MIN..=self.load.value_bytes_max.max(VALUE_BYTES_MIN));
            Write::of(&Operation::Put { key: &key, value: &value_of(token, length), condition })
        })
    }
}

/// A restore without keys. A shard that has been written to refuses it; a fresh one continues at a
/// higher revision.
fn lift(data_shards: u64, random: &mut fastrand::Rng) -> Restoration {
    Restoration {
        shard: ShardId(random.u64(1..=data_shards)),
        backup: Uuid::from_u128(random.u128(1..=2)),
        revision: Version(random.u64(0..1_000)),
        records: Vec::new(),
    }
}

/// `per_shard` keys for each of `data_shards`, under two prefixes, some of them not text.
fn keys_over(data_shards: u64, per_shard: usize) -> Vec<Bytes> {
    let mut found: BTreeMap<ShardId, Vec<Bytes>> = BTreeMap::new();
    for number in 0u64.. {
        let mut key = format!("{}/{number}", if number % 2 == 0 { "a" } else { "b" }).into_bytes();
        if number % 3 == 0 {
            key.extend_from_slice(&[0, 0xff]);
        }
        let keys = found.entry(shard_of(&key, data_shards)).or_default();
        if keys.len() < per_shard {
            keys.push(key.into());
        }
        let complete = found.values().filter(|keys| keys.len() == per_shard).count();
        if complete as u64 == data_shards {
            break;
        }
    }
    found.into_values().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_gets_its_keys() {
        for data_shards in 1..=4 {
            let keys = keys_over(data_shards, 3);
            for shard in 1..=data_shards {
                let here = keys.iter().filter(|key| shard_of(key, data_shards) == ShardId(shard));
                assert_eq!(here.count(), 3);
            }
        }
    }
}
