//! The node: `INFO`, `CONFIG GET`, `COMMAND`, `TIME`.

use tidelock_core::event::{NodeStatus, ShardStatus};

use super::super::RespContext;
use super::super::dispatch::{COMMANDS, CommandSpec};
use super::super::encode::Encoder;
use super::super::executor::Executor;
use super::super::frame::{CommandArguments, FRAME_BYTES_MAX};
use super::super::glob;
use super::super::session::{Action, Session};
use super::scan::{encoded, led_of};
use super::{Result, is};
use crate::metrics::Family;
use crate::metrics::resident_bytes;

/// The Redis release whose commands these resemble; clients choose features by it.
pub const REDIS_VERSION: &str = "7.4.0";

/// `INFO [section …]`
pub fn info(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let wanted: Vec<Vec<u8>> = arguments.from(1).map(<[u8]>::to_vec).collect();
    let (context, protocol, store) = (session.context.clone(), session.protocol, session.store.clone());
    let is_cluster = session.is_cluster;
    Ok(Action::Wait(Box::pin(async move {
        let status = store.status().await;
        let shown = is_cluster.then(|| led_of(&status, &store.slot_map()).cloned().collect());
        let text = text_of(&sections(&status, &context, shown), &wanted);
        encoded(protocol, |encoder| encoder.verbatim(&text))
    })))
}

fn text_of(sections: &[(&'static str, InfoFields)], wanted: &[Vec<u8>]) -> String {
    let is_wanted = |name: &str| {
        let everything = ["all", "everything", "default"];
        wanted.is_empty()
            || wanted.iter().any(|section| is(section, name) || everything.iter().any(|all| is(section, all)))
    };
    let mut text = String::new();
    for (name, fields) in sections.iter().filter(|(name, _)| is_wanted(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str(&format!("# {name}\r\n"));
        fields.iter().for_each(|(field, value)| text.push_str(&format!("{field}:{value}\r\n")));
    }
    text
}

type InfoFields = Vec<(&'static str, String)>;

/// The sections of `INFO`. Redis Cluster clients see the shards in `led`.
fn sections(
    status: &NodeStatus,
    context: &RespContext,
    led: Option<Vec<ShardStatus>>,
) -> Vec<(&'static str, InfoFields)> {
    let counters = &context.counters;
    let ModeAndRole { mode, role } = mode_and_role(led.as_deref());
    let shown = led.as_ref().unwrap_or(&status.shards);
    let keys: u64 = shown.iter().filter(|shard| shard.shard.0 > 0).map(|shard| shard.keys).sum();
    let leads = status.shards.iter().filter(|shard| shard.leads).count();
    let peers = status.links.iter().filter(|(_, up)| *up).count();
    let uptime = context.started.elapsed().as_secs();
    let count = |value: u64| value.to_string();
    vec![
        (
            "Server",
            vec![
                ("redis_version", REDIS_VERSION.to_owned()),
                ("tidelock_version", env!("CARGO_PKG_VERSION").to_owned()),
                ("redis_mode", mode.to_owned()),
                ("os", std::env::consts::OS.to_owned()),
                ("arch_bits", usize::BITS.to_string()),
                ("process_id", std::process::id().to_string()),
                ("node_id", status.node.to_string()),
                ("uptime_in_seconds", count(uptime)),
                ("uptime_in_days", count(uptime / 86_400)),
            ],
        ),
        (
            "Clients",
            vec![
                ("connected_clients", count(counters.sum(|worker| worker.connections_open.get()))),
                ("maxclients", context.options.connections_max.to_string()),
            ],
        ),
        ("Memory", vec![("used_memory_rss", count(resident_bytes()))]),
        (
            "Persistence",
            vec![
                ("loading", "0".to_owned()),
                ("aof_enabled", "1".to_owned()),
                ("disk_stalled", u8::from(status.disk_stalled).to_string()),
            ],
        ),
        (
            "Stats",
            vec![
                (
                    "total_connections_received",
                    count(counters.sum(|worker| worker.connections_accepted.get())),
                ),
                ("total_commands_processed", count(counters.sum(|worker| worker.commands.total()))),
                ("rejected_connections", count(counters.sum(|worker| worker.connections_refused.get()))),
            ],
        ),
        (
            "Replication",
            vec![
                ("role", role.to_owned()),
                ("connected_slaves", peers.to_string()),
                ("shards_led", leads.to_string()),
            ],
        ),
        ("Cluster", vec![("cluster_enabled", u8::from(led.is_some()).to_string())]),
        (
            "Keyspace",
            if keys > 0 { vec![("db0", format!("keys={keys},expires=0,avg_ttl=0"))] } else { vec![] },
        ),
    ]
}

/// How a node describes itself, in the words of Redis.
#[derive(Clone, Copy)]
pub(super) struct ModeAndRole {
    pub mode: &'static str,
    pub role: &'static str,
}

/// The mode and role that a node shows. To clients of a single Redis every node is a master: it
/// accepts writes, and forwards those for other leaders. In Redis Cluster a master is a node with
/// slots.
pub(super) fn mode_and_role(led: Option<&[ShardStatus]>) -> ModeAndRole {
    match led {
        None => ModeAndRole { mode: "standalone", role: "master" },
        Some([]) => ModeAndRole { mode: "cluster", role: "slave" },
        Some(_) => ModeAndRole { mode: "cluster", role: "master" },
    }
}

/// `CONFIG GET pattern [pattern …]`: the settings that clients look for. Nothing can be set.
pub fn config(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    if !is(&arguments[1], "get") || arguments.len() < 3 {
        return Err(
            "ERR of CONFIG there is GET alone: settings are those with which the node was started".into()
        );
    }
    let connections_max = session.context.options.connections_max.to_string();
    let frame_bytes_max = FRAME_BYTES_MAX.to_string();
    let settings = [
        ("appendfsync", "always"),
        ("appendonly", "yes"),
        ("databases", "1"),
        ("maxclients", &connections_max),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("proto-max-bulk-len", &frame_bytes_max),
        ("save", ""),
        ("timeout", "0"),
    ];
    let found: Vec<_> = settings
        .iter()
        .filter(|(name, _)| {
            arguments.from(2).any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
        })
        .collect();
    session.reply(|encoder| {
        encoder.map(found.len());
        for (name, value) in found {
            encoder.bulk(name.as_bytes());
            encoder.bulk(value.as_bytes());
        }
    })
}

/// `COMMAND [COUNT|LIST|INFO [name …]|DOCS [name …]|GETKEYS command …]`
pub fn command(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let Some(subcommand) = arguments.get(1) else {
        return described(session, COMMANDS.iter().map(Some).collect());
    };
    let named: Vec<Option<&'static CommandSpec>> =
        arguments.from(2).map(|name| session.context.table.find(name)).collect();
    match arguments.len() {
        2 if is(subcommand, "count") => session.reply(|encoder| encoder.integer(COMMANDS.len() as i64)),
        2 if is(subcommand, "list") => session.reply(|encoder| {
            encoder.array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| encoder.bulk(spec.name.as_bytes()));
        }),
        2 if is(subcommand, "info") => described(session, COMMANDS.iter().map(Some).collect()),
        _ if is(subcommand, "info") => described(session, named),
        2 if is(subcommand, "docs") => documented(session, COMMANDS.iter().collect()),
        _ if is(subcommand, "docs") => documented(session, named.into_iter().flatten().collect()),
        3.. if is(subcommand, "getkeys") => {
            let spec = named.first().copied().flatten().ok_or("ERR Invalid command specified")?;
            let keys = keys_of(spec, arguments)?;
            session.reply(|encoder| {
                encoder.array(keys.len());
                keys.iter().for_each(|key| encoder.bulk(key));
            })
        }
        _ => Err("ERR of COMMAND there are COUNT, LIST, INFO, DOCS and GETKEYS".into()),
    }
}

/// The keys among the arguments of a command, given after `COMMAND GETKEYS`.
fn keys_of<'a>(spec: &CommandSpec, arguments: CommandArguments<'a>) -> Result<Vec<&'a [u8]>> {
    let given: Vec<&[u8]> = arguments.from(2).collect();
    let (first, last, step) = spec.keys_among(&given);
    if first == 0 {
        return Err("ERR The command has no key arguments".into());
    }
    let keys: Vec<&[u8]> = (first..=last)
        .step_by(step as usize)
        .filter_map(|index| given.get(index as usize).copied())
        .collect();
    if keys.is_empty() {
        Err("ERR Invalid number of arguments specified for command".into())
    } else {
        Ok(keys)
    }
}

fn described(session: &mut Session, specs: Vec<Option<&'static CommandSpec>>) -> Result {
    session.reply(|encoder| {
        encoder.array(specs.len());
        for spec in specs {
            match spec {
                Some(spec) => describe(spec, encoder),
                None => encoder.null_array(),
            }
        }
    })
}

/// The ten fields of Redis 7; the last three are empty.
fn describe(spec: &CommandSpec, encoder: &mut Encoder<'_>) {
    let (first, last, step) = spec.keys;
    encoder.array(10);
    encoder.bulk(spec.name.as_bytes());
    encoder.integer(spec.arity);
    encoder.set(spec.flags.len());
    spec.flags.iter().for_each(|flag| encoder.simple(flag));
    [first, last, step].iter().for_each(|number| encoder.integer(*number));
    encoder.set(1);
    encoder.simple(&format!("@{}", spec.category().name()));
    (0..3).for_each(|_| encoder.array(0));
}

fn documented(session: &mut Session, specs: Vec<&'static CommandSpec>) -> Result {
    session.reply(|encoder| {
        encoder.map(specs.len());
        for spec in specs {
            encoder.bulk(spec.name.as_bytes());
            encoder.map(2);
            encoder.bulk(b"summary");
            encoder.bulk(b"See docs/reference/redis-commands.md of Tidelock");
            encoder.bulk(b"group");
            encoder.bulk(group(spec.family).as_bytes());
        }
    })
}

/// Redis' name for a family.
fn group(family: Family) -> &'static str {
    match family {
        Family::Strings | Family::Numbers => "string",
        Family::Keys | Family::Expiry | Family::Scan => "generic",
        Family::Transactions => "transactions",
        Family::Cluster => "cluster",
        Family::Scripts => "scripting",
        Family::PubSub => "pubsub",
        Family::Node | Family::Unknown => "server",
    }
}

/// `TIME`: seconds since 1970, and the microseconds of that second, by this node's clock.
pub fn time<E: Executor>(executor: &mut E, _: CommandArguments<'_>) -> Result<E::Output> {
    let now = executor.now().0;
    executor.reply(|encoder| {
        encoder.array(2);
        encoder.bulk((now / 1_000).to_string().as_bytes());
        encoder.bulk((now % 1_000 * 1_000).to_string().as_bytes());
    })
}
