//! Clients that write all the time, each to the leader of its shard, to measure throughput.
//!
//! Owns what they ask and how many answers they got. A client sends its next request as soon as the
//! last one is answered.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidelock_core::command::{Condition, Operation, Reply, Request, Write};
use tidelock_core::types::{NodeId, ShardId, Token};

use super::World;
use crate::checkers::Violation;
use crate::slots::shard_of;

/// Bytes of each value.
const VALUE: [u8; 32] = [b'v'; 32];

/// Keys of each client.
const KEYS: usize = 8;

/// The clients and what they were answered.
#[derive(Debug, Default)]
pub struct SteadyClients {
    /// By client: its keys, all of one shard.
    keys: Vec<Vec<Bytes>>,
    waiting: BTreeMap<Token, usize>,
    /// Number of writes that were acknowledged.
    pub acknowledged: u64,
    /// Number of writes that were refused.
    pub refused: u64,
}

impl World<'_> {
    /// Starts `for_each_shard` clients for each of these data shards.
    pub fn start_steady_clients(
        &mut self,
        shards: impl IntoIterator<Item = ShardId>,
        for_each_shard: usize,
    ) -> Result<(), Violation> {
        let mut missing: BTreeMap<ShardId, usize> =
            shards.into_iter().map(|shard| (shard, for_each_shard)).collect();
        let mut unfinished: BTreeMap<ShardId, Vec<Bytes>> = BTreeMap::new();
        for number in 0u64.. {
            if missing.is_empty() {
                break;
            }
            let key = Bytes::from(format!("key-{number}"));
            let shard = shard_of(&key, self.plan.data_shards);
            let Some(left) = missing.get_mut(&shard) else { continue };
            let keys = unfinished.entry(shard).or_default();
            keys.push(key);
            if keys.len() == KEYS {
                self.steady.keys.push(std::mem::take(keys));
                *left -= 1;
                if *left == 0 {
                    missing.remove(&shard);
                }
            }
        }
        (0..self.steady.keys.len()).try_for_each(|client| self.write_steadily(client))
    }

    /// The leader of a shard in the highest term in which one was seen.
    pub fn leader(&self, shard: ShardId) -> Option<NodeId> {
        self.checkers.leaders.latest(shard)
    }

    /// The keys that the clients write.
    pub fn steady_keys(&self) -> impl Iterator<Item = Bytes> {
        self.steady.keys.iter().flatten().cloned()
    }

    /// What the clients were answered so far.
    pub fn steady_clients(&self) -> &SteadyClients {
        &self.steady
    }

    /// Handles a reply that may be for one of the clients.
    pub(super) fn steady_client_hears(&mut self, token: Token, reply: &Reply) -> Result<(), Violation> {
        let Some(client) = self.steady.waiting.remove(&token) else { return Ok(()) };
        match reply {
            Reply::Refused(_) => self.steady.refused += 1,
            _ => self.steady.acknowledged += 1,
        }
        self.write_steadily(client)
    }

    fn write_steadily(&mut self, client: usize) -> Result<(), Violation> {
        let turn = self.steady.acknowledged as usize;
        let key = self.steady.keys[client][turn % KEYS].clone();
        let shard = shard_of(&key, self.plan.data_shards);
        let Some(leader) = self.leader(shard) else {
            return Err(Violation::new("throughput", format!("shard {shard} has no leader")));
        };
        let put = Operation::Put { key: &key, value: &VALUE, condition: Condition::Always };
        let token = self.ask(leader, Request::Write(Write::of(&put)), false);
        self.steady.waiting.insert(token, client);
        Ok(())
    }
}
