//! Division of data shards: what the checker sees of it, and the end of it in a healed cluster.

use tidelock_core::command::{RegistryView, RegistryWrite, Request, ShardTags, Write};
use tidelock_core::control::division::AUTOMATIC_TAG;
use tidelock_core::event::Event;
use tidelock_core::types::{NodeId, ShardId};

use super::World;
use crate::checkers::Violation;
use crate::checkers::division;
use crate::checkers::online::Observation;
use crate::host::Host;

/// Election timeouts within which a healed cluster has as many shards as it wants: recent
/// transactions are forgotten, and then one shard is added after the other.
const ELECTIONS_TO_DIVIDE: u64 = 400;

/// Election timeouts within which the last moves of slots end.
const ELECTIONS_TO_MOVE: u64 = 100;

impl World<'_> {
    /// Tells a node that transactions of its clients span slots, as a server does.
    pub(crate) fn tell_spanning(&mut self, node: NodeId, count: u64) {
        if count > 0 && self.plan.automatic_division {
            let at = self.host(node).incarnation();
            self.tell_checkers(&Observation::SpanningCounted(at));
            self.post(node, Event::SpanningTransactions(count));
        }
    }

    /// Checks that a healed cluster has at least as many data shards as its hosts call for, then
    /// ends automatic division as an operator does, so that nothing moves during further checks.
    pub(super) fn settle_division(&mut self) -> Result<(), Violation> {
        if !self.plan.automatic_division {
            return self.check_founding_shards();
        }
        self.wait_for_registries(ELECTIONS_TO_DIVIDE, |registry| {
            registry.migrations.is_empty() && division::has_wanted_shards(registry)
        })?;
        let node = self.nodes()[0];
        let tags = ShardTags { shard: ShardId::PRIME, tags: vec![(AUTOMATIC_TAG.to_owned(), None)] };
        let token = self.ask(node, Request::Write(Write::from(RegistryWrite::TagShard(tags))), true);
        self.reply(token)?;
        self.wait_for_registries(ELECTIONS_TO_MOVE, |registry| {
            registry.migrations.is_empty() && !division::is_automatic(registry)
        })?;
        self.settle()
    }

    /// Checks that no shard of a cluster with a chosen number of shards was added by a division.
    fn check_founding_shards(&self) -> Result<(), Violation> {
        match self.hosts.iter().find_map(Host::registry) {
            Some(registry) => division::judge_founding_shards(&registry),
            None => Ok(()),
        }
    }

    fn wait_for_registries(
        &mut self,
        elections: u64,
        is_reached: impl Fn(&RegistryView) -> bool,
    ) -> Result<(), Violation> {
        for _ in 0..elections {
            let mut members = self.hosts.iter().filter(|host| host.is_member());
            if members.all(|host| host.registry().is_some_and(|registry| is_reached(&registry))) {
                return Ok(());
            }
            self.pass_ticks(self.plan.timing.election_ticks)?;
        }
        let mut text = String::from("a healed cluster is not divided as its hosts call for:");
        for host in self.hosts.iter().filter(|host| host.is_member()) {
            let registry = host.registry();
            let moves = registry.as_ref().map(|registry| &registry.migrations);
            let shards = registry.as_ref().map(|registry| registry.shards.len());
            let seen = host.status().map(|status| (status.division, status.spanning_transactions));
            text.push_str(&format!("\nnode {}: {shards:?} shards, {seen:?}, {moves:?}", host.node()));
        }
        Err(Violation::new("division", text))
    }
}
