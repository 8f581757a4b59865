//! About the cluster: `CLUSTER …`, `READONLY`, `READWRITE`.
//!
//! What smart clients go by to reach a shard's leader at once. Nobody has to: any node forwards what it does not lead, and none
//! ever answers `MOVED`.

use std::sync::Arc;

use tidelock_core::command::{ClusterView, HostView, Read, Reply, Request, ShardView, Standing};
use tidelock_core::control::slot_map::SlotMap;
use tidelock_core::slots::{SLOTS, slot_of};
use tidelock_core::types::{NodeId, ShardId};
use uuid::Uuid;

use super::super::encode::Encoder;
use super::super::frame::Arguments;
use super::super::session::{Action, Failure, Session};
use super::scan::{consistency, encoded, failure};
use super::{integer, is};

type Result<T = Action> = std::result::Result<T, Failure>;

/// Keys that one look at a slot takes at a time.
const SLOT_STEP_KEYS: usize = 1_000;

/// `READONLY`: reads of this client may be stale.
pub fn readonly(session: &mut Session, _: Arguments<'_>) -> Result {
    session.is_readonly = true;
    session.ok()
}

/// `READWRITE`: they may not.
pub fn readwrite(session: &mut Session, _: Arguments<'_>) -> Result {
    session.is_readonly = false;
    session.ok()
}

/// `ASKING`: nothing has to be asked for here, since any node serves any slot.
pub fn asking(session: &mut Session, _: Arguments<'_>) -> Result {
    session.ok()
}

/// `CLUSTER subcommand`
pub fn cluster(session: &mut Session, arguments: Arguments<'_>) -> Result {
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

/// The cluster, and which shard holds which slots.
struct View {
    cluster: ClusterView,
    slots: Arc<SlotMap>,
}

fn with_view(session: &mut Session, encode: impl FnOnce(View, &mut Encoder<'_>) + 'static) -> Result {
    let (protocol, slots) = (session.protocol, session.store.slot_map());
    let reply = session.store.ask(Request::Cluster);
    Ok(Action::Wait(Box::pin(async move {
        let reply = reply.await;
        encoded(protocol, |encoder| match reply {
            Reply::Cluster(cluster) => encode(View { cluster, slots }, encoder),
            other => encoder.error(&failure(other)),
        })
    })))
}

/// Counts the keys of a slot, or returns some of them. Walks over the keys of its shard, a step at a time.
fn look_at_slot(session: &mut Session, slot: u16, listed: Option<usize>) -> Result {
    let (store, protocol, consistency) = (session.store.clone(), session.protocol, consistency(session));
    Ok(Action::Wait(Box::pin(async move {
        let mut slots = store.slot_map();
        let (mut found, mut counted, mut after) = (Vec::new(), 0, Some(0));
        while let Some(place) = after {
            let (shard, version) = (slots.shard_of(slot), slots.version);
            let read = Read::Scan { shard, after: place, count: SLOT_STEP_KEYS, version };
            let (keys, next) = match store.ask(Request::Read { read, consistency }).await {
                Reply::Scanned { keys, next } => (keys, next),
                Reply::SlotsMoved => {
                    (slots, found, counted, after) = (store.slot_map(), Vec::new(), 0, Some(0));
                    continue;
                }
                other => return encoded(protocol, |encoder| encoder.error(&failure(other))),
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

/// 40 hexadecimal digits, as Redis' nodes have them: a host's uuid, and eight zeros.
fn id(uuid: Uuid) -> String {
    format!("{}00000000", uuid.simple())
}

/// Host and port of an address; an unspecified host is the one through which the client came, which it knows itself.
fn endpoint(host: &HostView) -> (String, i64) {
    let address = &host.info.resp_address;
    let (name, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let name = name.trim_matches(['[', ']']);
    let is_unspecified = ["0.0.0.0", "::", ""].contains(&name);
    (if is_unspecified { String::new() } else { name.to_owned() }, port.parse().unwrap_or(0))
}

/// A data shard with whoever serves it, the leader first.
struct Served<'a> {
    /// First and last slot of each range.
    ranges: Vec<(u16, u16)>,
    leader: Option<&'a HostView>,
    followers: Vec<&'a HostView>,
}

impl Served<'_> {
    fn slots(&self) -> u32 {
        self.ranges.iter().map(|(first, last)| u32::from(last - first) + 1).sum()
    }
}

fn served(View { cluster: view, slots }: &View) -> Vec<Served<'_>> {
    let host = |node: NodeId| {
        view.hosts.iter().find(|host| host.info.node == node && !host.info.resp_address.is_empty())
    };
    let of_shard = |shard: &ShardView| {
        let own = slots.ranges().filter(|(_, owner)| *owner == shard.shard);
        let ranges = own.map(|(range, _)| (range.start, range.end - 1)).collect();
        let leader = shard.leader.and_then(host);
        let followers = view
            .replicas
            .iter()
            .filter(|replica| replica.shard == shard.shard && Some(replica.node) != shard.leader)
            .filter_map(|replica| host(replica.node))
            .filter(|host| host.connected && host.standing != Standing::Leaving);
        Served { ranges, leader, followers: followers.collect() }
    };
    let served = view.shards.iter().filter(|shard| shard.shard != ShardId::PRIME).map(of_shard);
    served.filter(|served| !served.ranges.is_empty()).collect()
}

fn slots(view: &View, encoder: &mut Encoder<'_>) {
    let mut served = served(view);
    served.retain(|served| served.leader.is_some());
    encoder.array(served.iter().map(|served| served.ranges.len()).sum());
    let ranges = served.iter().flat_map(|served| served.ranges.iter().map(move |range| (range, served)));
    for ((first, last), Served { leader, followers, .. }) in ranges {
        encoder.array(2 + 1 + followers.len());
        encoder.integer(i64::from(*first));
        encoder.integer(i64::from(*last));
        for host in leader.iter().chain(followers) {
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
    let served = served(view);
    encoder.array(served.len());
    for Served { ranges, leader, followers } in &served {
        encoder.map(2);
        encoder.bulk(b"slots");
        encoder.array(2 * ranges.len());
        for (first, last) in ranges {
            encoder.integer(i64::from(*first));
            encoder.integer(i64::from(*last));
        }
        encoder.bulk(b"nodes");
        encoder.array(leader.iter().len() + followers.len());
        let roles =
            leader.iter().map(|host| (host, "master")).chain(followers.iter().map(|host| (host, "replica")));
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

/// A line for each host. One that leads several shards has several ranges; one that leads none is shown as a replica of the first
/// leader, since Redis knows no other kind.
fn nodes(view: &View) -> String {
    let served = served(view);
    let view = &view.cluster;
    let mut text = String::new();
    let first_leader = served.iter().find_map(|served| served.leader).map(|host| id(host.info.uuid));
    for host in view.hosts.iter().filter(|host| !host.info.resp_address.is_empty()) {
        let led = served
            .iter()
            .filter(|served| served.leader.is_some_and(|leader| leader.info.node == host.info.node));
        let ranges: Vec<String> =
            led.flat_map(|served| &served.ranges).map(|(first, last)| format!("{first}-{last}")).collect();
        let (name, port) = endpoint(host);
        let myself = if host.info.node == view.node { "myself," } else { "" };
        let role = if ranges.is_empty() { "slave" } else { "master" };
        let master = first_leader.as_deref().filter(|_| ranges.is_empty()).unwrap_or("-");
        let link = if host.connected { "connected" } else { "disconnected" };
        let own = id(host.info.uuid);
        text.push_str(&format!(
            "{own} {name}:{port}@{port} {myself}{role} {master} 0 0 {} {link}",
            host.info.node
        ));
        ranges.iter().for_each(|range| {
            text.push(' ');
            text.push_str(range);
        });
        text.push('\n');
    }
    text
}

fn info(view: &View) -> String {
    let served = served(view);
    let view = &view.cluster;
    let assigned: u32 = served.iter().map(Served::slots).sum();
    let led = served.iter().filter(|served| served.leader.is_some());
    let ok: u32 = led.map(Served::slots).sum();
    let state = if ok == u32::from(SLOTS) { "ok" } else { "fail" };
    let failing = assigned - ok;
    let size = served.len();
    let epoch = view.shards.iter().map(|shard| shard.term.0).max().unwrap_or(0);
    [
        ("cluster_state", state.to_owned()),
        ("cluster_slots_assigned", assigned.to_string()),
        ("cluster_slots_ok", ok.to_string()),
        ("cluster_slots_pfail", "0".to_owned()),
        ("cluster_slots_fail", failing.to_string()),
        ("cluster_known_nodes", view.hosts.len().to_string()),
        ("cluster_size", size.to_string()),
        ("cluster_current_epoch", epoch.to_string()),
        ("cluster_my_epoch", epoch.to_string()),
    ]
    .iter()
    .map(|(name, value)| format!("{name}:{value}\r\n"))
    .collect()
}
