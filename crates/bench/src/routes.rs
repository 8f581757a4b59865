//! The leaders of shards, asked once, so that a load can be sent to leaders or to followers.
//!
//! Maps a key to its slot, shard and leader, as the cluster reports them. An outdated view, or
//! slots that have moved since, only cost a forward: every node answers for every key.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_api::cluster::{Cluster, Host, HostRole};
use tidelock_api::slots::{Moves, ShardSlots};
use tidelock_client::{Call, CliError, Client};
use tidelock_core::slots;
use tidelock_core::slots::slot_set::{NoSlots, SlotSet};

/// Interval between attempts to learn the routes.
const ASK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddresses {
    pub node: u64,
    /// `host:port` for HTTP.
    pub http: String,
    /// `host:port` for RESP; empty if it does not listen for that.
    pub resp: String,
}

/// Which of a node's listeners takes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    Http,
    Resp,
}

impl NodeAddresses {
    /// The address of a listener; empty if the node does not have it.
    pub fn of(&self, listener: Listener) -> &str {
        match listener {
            Listener::Http => &self.http,
            Listener::Resp => &self.resp,
        }
    }
}

/// The nodes, and the leader of each slot.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    /// In the order of their numbers.
    pub nodes: Vec<NodeAddresses>,
    /// The leader of each slot, by slot.
    pub leaders: Vec<Option<u64>>,
}

impl Routes {
    /// Asks a node for the cluster and its slots.
    pub fn ask(client: &Client) -> Result<Routes, CliError> {
        let ask = |path| client.ask_for(200, &Call::get(path));
        let view = ask("/v1/cluster")?.json()?;
        Routes::of(view, ask("/v1/cluster/moves")?.json()?)
    }

    /// Asks the cluster; repeats that, for at most `timeout`, while a node that has just started
    /// has not reported its addresses.
    pub fn ask_for_all(client: &Client, timeout: Duration) -> Result<Routes, CliError> {
        let asked = Instant::now();
        loop {
            let routes = Routes::ask(client)?;
            let is_silent = |node: &NodeAddresses| node.http.is_empty() && node.resp.is_empty();
            if !routes.nodes.iter().any(is_silent) || asked.elapsed() >= timeout {
                return Ok(routes);
            }
            thread::sleep(ASK_AGAIN);
        }
    }

    fn of(mut view: Cluster, assigned: Moves) -> Result<Routes, CliError> {
        view.hosts.sort_by_key(|host| host.node);
        let gone = |host: &Host| matches!(host.standing, HostRole::Leaving | HostRole::Removed);
        let nodes = view.hosts.into_iter().filter(|host| !gone(host)).map(|host| NodeAddresses {
            node: host.node,
            http: host.http_address,
            resp: host.resp_address,
        });
        let by_shard: BTreeMap<u64, Option<u64>> =
            view.shards.iter().map(|shard| (shard.id, shard.leader)).collect();
        let mut leaders = vec![None; slots::SLOTS.into()];
        for ShardSlots { shard, slots, .. } in assigned.shards.iter().filter(|share| !share.slots.is_empty())
        {
            let slots: SlotSet = slots.parse().map_err(|error: NoSlots| {
                CliError::Failed(format!("the node's map of slots says `{slots}`: {error}"))
            })?;
            let leader = by_shard.get(shard).copied().flatten();
            slots.ranges().iter().cloned().flatten().for_each(|slot| leaders[usize::from(slot)] = leader);
        }
        Ok(Routes { nodes: nodes.collect(), leaders })
    }

    /// The number of the node that leads the shard of `key`, if one is known.
    pub fn leader(&self, key: &[u8]) -> Option<u64> {
        self.leaders[usize::from(slots::slot_of(key))]
    }
}

#[cfg(test)]
mod tests {
    use tidelock_api::cluster::Shard;

    use super::*;

    #[test]
    fn a_view_tells_who_leads_a_key() {
        let host = |node, http: &str, standing| Host {
            node,
            http_address: http.to_owned(),
            standing,
            ..Host::default()
        };
        let hosts = vec![
            host(2, "b:1", HostRole::Voter),
            host(1, "a:1", HostRole::Voter),
            host(3, "c:1", HostRole::Leaving),
        ];
        let leaders = [(0, Some(1)), (2, None), (1, Some(2)), (3, Some(1))];
        let shards = leaders.map(|(id, leader)| Shard { id, leader, ..Shard::default() }).into();
        let view = Cluster { node: 1, hosts, shards, ..Cluster::default() };
        // Of "foo", "bar" and "123456789" the slots are 12182, 5061 and 12739.
        let shares = r#"{"version":7,"moves":[],"shards":[{"shard":1,"count":8192,"slots":"0-8191"},
            {"shard":2,"count":8191,"slots":"8192-12738,12740-16383"},{"shard":3,"count":1,"slots":"12739"},
            {"shard":4,"count":0,"slots":""}],"last":0,"done":true}"#;
        let routes = Routes::of(view, serde_json::from_str(shares).unwrap()).unwrap();
        let names: Vec<_> = routes.nodes.iter().map(|node| (node.node, node.http.as_str())).collect();
        assert_eq!(names, [(1, "a:1"), (2, "b:1")]);
        assert_eq!((routes.leader(b"bar"), routes.leader(b"foo")), (Some(2), None));
        assert_eq!(routes.leader(b"123456789"), Some(1));
        let share = ShardSlots { shard: 1, count: 0, slots: "all".into() };
        let unreadable = Moves { version: 7, shards: vec![share], moves: vec![], last: 0, done: true };
        assert!(Routes::of(Cluster::default(), unreadable).is_err());
    }
}
