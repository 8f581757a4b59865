//! Who leads what, asked once: so that a load can be sent to leaders, or past them.
//!
//! A view that is out of date, or slots that have moved since, only cost a forward: every node answers for every key.

use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tidelock_core::slots;

use crate::client::{Call, Client};
use crate::error::CliError;

/// Between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// What is read of `/v1/cluster`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct View {
    hosts: Vec<HostView>,
    shards: Vec<ShardView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HostView {
    node: u64,
    http_address: Option<String>,
    resp_address: Option<String>,
    standing: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ShardView {
    id: u64,
    r#type: Option<String>,
    leader: Option<u64>,
}

/// Where one node is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeAddresses {
    /// Its number.
    pub node: u64,
    /// `host:port` for HTTP.
    pub http: String,
    /// `host:port` for RESP; empty while it does not listen for that.
    pub resp: String,
}

/// The nodes, and the leader of each data shard.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    /// By number.
    pub nodes: Vec<NodeAddresses>,
    /// Indexed by shard, without the prime one.
    pub leaders: Vec<Option<u64>>,
}

impl Routes {
    /// Asks the cluster.
    pub fn ask(client: &Client) -> Result<Routes, CliError> {
        let answer = client.ask(&Call::get("/v1/cluster"))?;
        if answer.status != 200 {
            return Err(answer.refusal());
        }
        Ok(Routes::of(answer.json()?))
    }

    /// Asks the cluster, again while a node that has only just started has not told where it listens, for at most `patience`.
    pub fn ask_for_all(client: &Client, patience: Duration) -> Result<Routes, CliError> {
        let asked = Instant::now();
        loop {
            let routes = Routes::ask(client)?;
            let is_silent = |node: &NodeAddresses| node.http.is_empty() && node.resp.is_empty();
            if !routes.nodes.iter().any(is_silent) || asked.elapsed() >= patience {
                return Ok(routes);
            }
            thread::sleep(ASK_AGAIN);
        }
    }

    fn of(mut view: View) -> Routes {
        view.hosts.sort_by_key(|host| host.node);
        view.shards.sort_by_key(|shard| shard.id);
        let gone = |host: &HostView| matches!(host.standing.as_deref(), Some("leaving" | "removed"));
        let nodes = view.hosts.into_iter().filter(|host| !gone(host)).map(|host| NodeAddresses {
            node: host.node,
            http: host.http_address.unwrap_or_default(),
            resp: host.resp_address.unwrap_or_default(),
        });
        let data = view.shards.into_iter().filter(|shard| shard.r#type.as_deref() == Some("kv"));
        Routes { nodes: nodes.collect(), leaders: data.map(|shard| shard.leader).collect() }
    }

    /// The number of the node that leads the shard of `key`, if one is known.
    pub fn leader(&self, key: &[u8]) -> Option<u64> {
        let shard = slots::shard_of(slots::slot_of(key), self.leaders.len() as u64);
        *self.leaders.get(usize::try_from(shard.0 - 1).ok()?)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_tells_who_leads_a_key() {
        let view = r#"{"node":1,"hosts":[
            {"node":2,"http_address":"b:1","resp_address":"b:2","standing":"voter"},
            {"node":1,"http_address":"a:1","resp_address":"a:2","standing":"voter"},
            {"node":3,"http_address":"c:1","standing":"leaving"}],
            "shards":[{"id":0,"type":"registry","leader":1},{"id":2,"type":"kv","leader":null},
            {"id":1,"type":"kv","leader":2}]}"#;
        let routes = Routes::of(serde_json::from_str(view).unwrap());
        let names: Vec<_> = routes.nodes.iter().map(|node| (node.node, node.http.as_str())).collect();
        assert_eq!(names, [(1, "a:1"), (2, "b:1")]);
        // The slots of "foo" and "bar" are 12182 and 5061 of 16384: the second and the first of two shards.
        assert_eq!((routes.leader(b"bar"), routes.leader(b"foo")), (Some(2), None));
    }
}
