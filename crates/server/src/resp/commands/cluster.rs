//! The cluster: `CLUSTER …`, `READONLY`, `READWRITE`.
//!
//! Redis Cluster clients use this to reach a shard's leader directly. They need not: any node
//! forwards requests for shards that it does not lead, and none ever answers `MOVED`. On both
//! listeners the addresses shown are those of the listener for these clients.

use std::sync::Arc;

use tidelock_core::command::{ClusterView, HostRole, HostView, Read, ScanStep};
use tidelock_core::slots::slot_map::SlotMap;
use tidelock_core::slots::{SLOTS, slot_of};
use tidelock_core::types::{NodeId, ShardId};
use uuid::Uuid;

use super::super::encode::Encoder;
use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::session::{Action, Session};
use super::scan::{consistency, encoded, failure};
use super::{Result, integer, is};
use crate::requests;

/// Keys that one step of reading a slot takes.
const SLOT_STEP_KEYS: usize = 1_000;

const DISABLED: &str = "ERR This instance has cluster support disabled: no node listens for clients of Redis Cluster, see \
                        --resp-cluster";

/// `READONLY`: reads of this client may be stale.
pub fn readonly(session: &mut Session, _: CommandArguments<'_>) -> Result {
    session.is_readonly = true;
    session.ok()
}

/// `READWRITE`: reads of this client are linearizable.
pub fn readwrite(session: &mut Session, _: CommandArguments<'_>) -> Result {
    session.is_readonly = false;
    session.ok()
}

/// `ASKING`: has no effect, because any node serves any slot.
pub fn asking(session: &mut Session, _: CommandArguments<'_>) -> Result {
    session.ok()
}

/// `CLUSTER subcommand`
pub fn cluster(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let subcommand = &arguments[1];
    match arguments.len() {
        2 if is(subcommand, "slots") => with_view(session, |view, encoder| slots(&view, encoder)),
        2 if is(subcommand, "shards") => with_view(session, |view, encoder| shards(&view, encoder)),
        2 if is(subcommand, "nodes") => with_view(session, |view, encoder| encoder.verbatim(&nodes(&view))),
        2 if is(subcommand, "info") => with_view(session, |view, encoder| encoder.verbatim(&info(&view))),
        2 if is(subcommand, "myid") => with_view(session, |view, encoder| {
            let view = &view.cluster;
            let own = view.hosts.iter().find(|host| host.info.node == view.node);
            encoder.bulk(own.map_or_else(|| id(Uuid::nil()), |host| id(host.info.uuid)).as_bytes());
        }),
        3 if is(subcommand, "keyslot") => {
            let slot = slot_of(&arguments[2]);
            session.reply(|encoder| encoder.integer(slot.into()))
        }
        3 if is(subcommand, "countkeysinslot") => look_at_slot(session, slot(&arguments[2])?, None),
        4 if is(subcommand, "getkeysinslot") => {
            let count = usize::try_from(integer(&arguments[3])?).map_err(|_| "ERR Invalid number of keys")?;
            look_at_slot(session, slot(&arguments[2])?, Some(count.min(SLOT_STEP_KEYS)))
        }
        _ => {
            let text = "ERR unknown subcommand or wrong number of arguments for 'cluster'; this cluster is changed \
                        by `tidelock cluster`, and knows SLOTS, SHARDS, NODES, INFO, MYID, KEYSLOT, \
                        COUNTKEYSINSLOT and GETKEYSINSLOT";
            Err(text.into())
        }
    }
}

fn slot(text: &[u8]) -> Result<u16> {
    let slot = u16::try_from(integer(text)?).ok().filter(|slot| *slot < SLOTS);
    slot.ok_or("ERR Invalid slot".into())
}

/// The cluster, and the slot map.
struct View {
    cluster: ClusterView,
    slots: Arc<SlotMap>,
}

fn with_view(session: &mut Session, encode: impl FnOnce(View, &mut Encoder<'_>) + 'static) -> Result {
    let (protocol, slots) = (session.protocol, session.store.slot_map());
    let view = session.store.ask(requests::cluster());
    Ok(Action::Wait(Box::pin(async move {
        let view = view.await;
        encoded(protocol, |encoder| match view {
            Ok(cluster) if hosts(&cluster).next().is_none() => encoder.error(DISABLED),
            Ok(cluster) => encode(View { cluster: *cluster, slots }, encoder),
            Err(error) => encoder.error(&failure(error)),
        })
    })))
}

/// Counts the keys of a slot, or returns some of them. Iterates over the keys of its shard in
/// steps.
fn look_at_slot(session: &mut Session, slot: u16, listed: Option<usize>) -> Result {
    let (store, protocol, consistency) = (session.store.clone(), session.protocol, consistency(session));
    Ok(Action::Wait(Box::pin(async move {
        let mut slots = store.slot_map();
        let (mut found, mut counted, mut after) = (Vec::new(), 0, Some(0));
        while let Some(place) = after {
            let (shard, version) = (slots.shard_of(slot), slots.version);
            let read = Read::Scan { shard, after: place, count: SLOT_STEP_KEYS, version };
            let ScanStep { keys, next } = match store.ask(requests::scan(read, consistency)).await {
                Ok(Some(step)) => step,
                Ok(None) => {
                    (slots, found, counted, after) = (store.slot_map(), Vec::new(), 0, Some(0));
                    continue;
                }
                Err(error) => return encoded(protocol, |encoder| encoder.error(&failure(error))),
            };
            for key in keys.into_iter().filter(|key| slot_of(key) == slot) {
                counted += 1;
                if listed.is_some_and(|most| found.len() < most) {
                    found.push(key);
                }
            }
            after = next.filter(|_| listed.is_none_or(|most| found.len() < most));
        }
        encoded(protocol, |encoder| match listed {
            None => encoder.integer(counted),
            Some(_) => {
                encoder.array(found.len());
                found.iter().for_each(|key| encoder.bulk(key));
            }
        })
    })))
}

/// 40 hexadecimal digits, as in Redis: a host's uuid, and eight zeros.
fn id(uuid: Uuid) -> String {
    format!("{}00000000", uuid.simple())
}

/// The address at which Redis Cluster clients reach a host. For an unspecified listen address the
/// name is empty, which means the address that the client is connected to.
fn endpoint(host: &HostView) -> (String, i64) {
    let address = &host.info.resp_cluster_address;
    let (name, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let name = name.trim_matches(['[', ']']);
    let is_unspecified = ["0.0.0.0", "::", ""].contains(&name);
    (if is_unspecified { String::new() } else { name.to_owned() }, port.parse().unwrap_or(0))
}

/// A Redis Cluster master: a host that leads shards, with the slots of all of them.
struct Master<'a> {
    host: &'a HostView,
    /// First and last slot of each range.
    ranges: Vec<(u16, u16)>,
    /// Hosts that lead nothing, each assigned to one master. They forward requests, or answer from
    /// their own replicas.
    replicas: Vec<&'a HostView>,
}

impl Master<'_> {
    fn slots(&self) -> u32 {
        self.ranges.iter().map(|(first, last)| u32::from(last - first) + 1).sum()
    }
}

/// Hosts that serve Redis Cluster clients.
fn hosts(view: &ClusterView) -> impl Iterator<Item = &HostView> {
    view.hosts.iter().filter(|host| !host.info.resp_cluster_address.is_empty())
}

/// Assigns each host that serves Redis Cluster clients one role: master, or replica of one master.
fn masters(View { cluster: view, slots }: &View) -> Vec<Master<'_>> {
    let leader = |shard: ShardId| view.shards.iter().find(|row| row.shard == shard)?.leader;
    let mut masters: Vec<Master<'_>> = Vec::new();
    for (range, shard) in slots.ranges() {
        let Some(host) = hosts(view).find(|host| Some(host.info.node) == leader(shard)) else { continue };
        let is_it = |master: &Master<'_>| master.host.info.node == host.info.node;
        let position = masters.iter().position(is_it).unwrap_or_else(|| {
            masters.push(Master { host, ranges: Vec::new(), replicas: Vec::new() });
            masters.len() - 1
        });
        match masters[position].ranges.last_mut() {
            Some((_, last)) if *last + 1 == range.start => *last = range.end - 1,
            _ => masters[position].ranges.push((range.start, range.end - 1)),
        }
    }
    for host in hosts(view).filter(|host| host.connected && host.standing != HostRole::Leaving) {
        let node = host.info.node;
        if masters.iter().any(|master| master.host.info.node == node) {
            continue;
        }
        let carried = view.replicas.iter().filter(|replica| replica.node == node);
        let leaders: Vec<NodeId> = carried.filter_map(|replica| leader(replica.shard)).collect();
        let own = masters.iter().position(|master| leaders.contains(&master.host.info.node));
        if let Some(master) = masters.get_mut(own.unwrap_or(0)) {
            master.replicas.push(host);
        }
    }
    masters
}

fn slots(view: &View, encoder: &mut Encoder<'_>) {
    let masters = masters(view);
    encoder.array(masters.iter().map(|master| master.ranges.len()).sum());
    let ranges = masters.iter().flat_map(|master| master.ranges.iter().map(move |range| (range, master)));
    for ((first, last), Master { host, replicas, .. }) in ranges {
        encoder.array(2 + 1 + replicas.len());
        encoder.integer(i64::from(*first));
        encoder.integer(i64::from(*last));
        for host in [host].into_iter().chain(replicas) {
            let (name, port) = endpoint(host);
            encoder.array(4);
            if name.is_empty() {
                encoder.null()
            } else {
                encoder.bulk(name.as_bytes())
            }
            encoder.integer(port);
            encoder.bulk(id(host.info.uuid).as_bytes());
            encoder.array(0);
        }
    }
}

fn shards(view: &View, encoder: &mut Encoder<'_>) {
    let masters = masters(view);
    encoder.array(masters.len());
    for Master { host, ranges, replicas } in &masters {
        encoder.map(2);
        encoder.bulk(b"slots");
        encoder.array(2 * ranges.len());
        for (first, last) in ranges {
            encoder.integer(i64::from(*first));
            encoder.integer(i64::from(*last));
        }
        encoder.bulk(b"nodes");
        encoder.array(1 + replicas.len());
        let roles = [(host, "master")].into_iter().chain(replicas.iter().map(|host| (host, "replica")));
        for (host, role) in roles {
            let (name, port) = endpoint(host);
            encoder.map(7);
            for (field, text) in [("id", id(host.info.uuid)), ("ip", name.clone()), ("endpoint", name)] {
                encoder.bulk(field.as_bytes());
                encoder.bulk(text.as_bytes());
            }
            encoder.bulk(b"port");
            encoder.integer(port);
            encoder.bulk(b"role");
            encoder.bulk(role.as_bytes());
            encoder.bulk(b"replication-offset");
            encoder.integer(0);
            encoder.bulk(b"health");
            encoder.bulk(if host.connected { b"online" } else { b"fail" });
        }
    }
}

/// One line for each host that serves Redis Cluster clients. A host that is down and leads nothing
/// is shown as a replica of the first master: Redis has no other role.
fn nodes(view: &View) -> String {
    let masters = masters(view);
    let mut text = String::new();
    for host in hosts(&view.cluster) {
        let node = host.info.node;
        let own = masters.iter().find(|master| master.host.info.node == node);
        let is_of = |master: &&Master<'_>| master.replicas.iter().any(|replica| replica.info.node == node);
        let master = masters.iter().find(is_of).or(masters.first()).filter(|_| own.is_none());
        let (name, port) = endpoint(host);
        let myself = if node == view.cluster.node { "myself," } else { "" };
        let role = if own.is_some() { "master" } else { "slave" };
        let master = master.map_or_else(|| "-".to_owned(), |master| id(master.host.info.uuid));
        let link = if host.connected { "connected" } else { "disconnected" };
        let id = id(host.info.uuid);
        text.push_str(&format!("{id} {name}:{port}@{port} {myself}{role} {master} 0 0 {node} {link}"));
        for (first, last) in own.iter().flat_map(|master| &master.ranges) {
            text.push_str(&format!(" {first}-{last}"));
        }
        text.push('\n');
    }
    text
}

fn info(view: &View) -> String {
    let masters = masters(view);
    let ok: u32 = masters.iter().map(Master::slots).sum();
    let state = if ok == u32::from(SLOTS) { "ok" } else { "fail" };
    let epoch = view.cluster.shards.iter().map(|shard| shard.term.0).max().unwrap_or(0);
    [
        ("cluster_state", state.to_owned()),
        ("cluster_slots_assigned", SLOTS.to_string()),
        ("cluster_slots_ok", ok.to_string()),
        ("cluster_slots_pfail", "0".to_owned()),
        ("cluster_slots_fail", (u32::from(SLOTS) - ok).to_string()),
        ("cluster_known_nodes", hosts(&view.cluster).count().to_string()),
        ("cluster_size", masters.len().to_string()),
        ("cluster_current_epoch", epoch.to_string()),
        ("cluster_my_epoch", epoch.to_string()),
    ]
    .iter()
    .map(|(name, value)| format!("{name}:{value}\r\n"))
    .collect()
}
