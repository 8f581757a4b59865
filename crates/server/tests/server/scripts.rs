//! Runs the golden scripts of HTTP: each file against a fresh server, over one connection as long
//! as it stays open.
//!
//! ```text
//! METHOD "/target" [body="text"] [hex=ff00] [chunked=true] [hosts="one|two"] [version=1.0]
//!        [Header-Name="value"]…     one request, one answer; its Host is localhost unless hosts
//!                                   gives others
//! refuse no-leader|unknown-outcome|overloaded
//!                                   the store refuses every request from now on
//! accept                            the store answers again
//! registry                          the wanted role of each host, and the leader of each shard
//! leader-ahead MILLISECONDS         sets how far the clock of the shard's leader is ahead
//! expire MILLISECONDS               ends the keys and leases that end within this time
//! finish-moves                      completes all slot moves
//! node [retiring=true] [leaderless=SHARD] [unlinked=PEER] [silent=PEER] [clock=PEER:AHEAD_MS]
//!      [disk-error="text"]          sets the node's status
//! ```
//!
//! Every answer must match `/openapi.json`.
//!
//! `{x*100}` in any text means a hundred times `x`. Answers are shown without the date and without
//! the header that every answer must have; bytes of a body that are not printable ASCII are shown
//! as escapes.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use goldenscript::{Argument, Command, Context};
use tidelock_core::command::{
    Checkpoint, ClusterView, HostInfo, HostRole, HostView, Refusal, ReplicaView, ShardView, VersionView,
};
use tidelock_core::control::registry::Registry;
use tidelock_core::event::{NodeStatus, PeerClock, ShardStatus};
use tidelock_core::founding::Founding;
use tidelock_core::types::{LogIndex, MigrationId, NodeId, ReplicaId, ShardId, Term};
use tidelock_core::version::{ClusterVersion, RaiseBlocker};
use tidelock_server::http::HttpOptions;

use crate::client::{Answer, Client};
use crate::harness::Server;
use crate::openapi;
use crate::store::SHARD;

macro_rules! scripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_script_is_run() {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/scripts/http");
            let files = std::fs::read_dir(directory).unwrap();
            let mut files: Vec<String> =
                files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            files.sort();
            assert_eq!(files, [$(stringify!($name)),*]);
        }
    };
}

scripts! {
    atomics_exchange_numbers
    atomics_refuse_what_is_no_number
    changes_report_their_progress
    checkpoints_reach_every_shard
    cluster_is_described
    config_containers_follow_their_pairs
    config_drafts_are_reviewed
    config_dry_runs_change_nothing
    config_environments_inherit
    config_goes_into_files_and_back
    config_imports_change_no_values
    config_imports_make_a_pair_a_leaf
    config_is_published_and_rolled_back
    config_is_searched
    config_is_the_references
    config_long_polls_end_with_the_first_news
    config_namespaces_come_and_go
    config_pairs_have_datatypes
    config_pairs_keep_their_datatypes
    config_refusals_tell_what_happened
    config_says_who_wrote_what
    config_schemas_are_held_to
    config_secrets_are_masked
    config_types_have_names
    config_watches_of_a_namespace
    console_files_are_sent_once
    dialects_share_keys
    fences_guard_writes
    head_answers_like_get_without_a_body
    health_is_reported
    hosts_are_those_that_the_node_answers_for
    keys_are_any_bytes
    keys_are_bound_to_leases
    keys_are_limited
    keys_expire
    keys_name_the_leader_elsewhere
    kv1_fields_come_from_forms
    kv1_locks_optimistically
    kv1_refuses_what_it_does_not_understand
    leases_are_granted_renewed_and_revoked
    leases_name_what_is_wrong
    lists_are_folded
    lists_are_paged
    lists_show_any_bytes
    load_is_reported
    locks_are_held_and_queued
    locks_name_what_is_wrong
    membership_is_changed
    membership_is_refused_what_it_cannot_be
    methods_are_refused_with_what_is_allowed
    native_reads_are_conditional
    native_values_are_stored_and_read
    native_writes_are_conditional
    openapi_is_only_read
    pages_of_other_origins_change_nothing
    raftdb_stores_raw_bodies
    refusals_tell_what_happened
    reserved_paths_are_never_keys
    restores_are_refused_by_what_others_wrote
    restores_fill_what_nobody_wrote_to
    restores_of_others_are_discarded
    shards_are_added_and_removed
    shards_say_where_and_why
    slots_are_moved
    slots_are_refused_what_they_cannot_be
    transactions_happen_whole
    transactions_name_what_is_wrong
    values_are_limited
    versions_are_shown_and_held
    watches_name_what_is_wrong
    welcome_names_the_routes
}

fn run(name: &str) {
    let mut runner = Runner::start();
    let path = format!("{}/tests/server/scripts/http/{name}", env!("CARGO_MANIFEST_DIR"));
    goldenscript::run(&mut runner, path).unwrap();
}

struct Runner {
    server: Server,
    client: Client,
}

impl Runner {
    fn start() -> Runner {
        let server = Server::start(HttpOptions::default());
        server.store.state().status = status();
        server.store.state().cluster = cluster();
        server.store.state().registry = Registry::founded(&Founding::new(3, 1));
        let client = Client::connect(server.address);
        Runner { server, client }
    }

    fn request(&mut self, command: &Command) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let target = expand(arguments.next_pos().ok_or("a request needs a target")?);
        let mut body = None;
        let mut chunked = false;
        let (mut hosts, mut version) = ("localhost".to_owned(), "1.1".to_owned());
        let mut headers = String::new();
        for argument in arguments {
            let Argument::KeyValue(name, value) = argument else { return Err("one target, please".into()) };
            match name.as_str() {
                "body" => body = Some(expand(value).into_bytes()),
                "hex" => body = Some(decode_hex(value)?),
                "chunked" => chunked = value.parse()?,
                "hosts" => hosts = expand(value),
                "version" => value.clone_into(&mut version),
                header => write!(headers, "{header}: {}\r\n", expand(value))?,
            }
        }
        let hosts = hosts.split_terminator('|').map(|host| format!("host: {host}\r\n")).collect::<String>();
        let mut request =
            format!("{} {target} HTTP/{version}\r\n{hosts}{headers}", command.name).into_bytes();
        match body {
            Some(body) if chunked => {
                request.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
                for chunk in body.chunks(100_000) {
                    request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    request.extend_from_slice(chunk);
                    request.extend_from_slice(b"\r\n");
                }
                request.extend_from_slice(b"0\r\n\r\n");
            }
            Some(body) => {
                request.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
                request.extend_from_slice(&body);
            }
            None => request.extend_from_slice(b"\r\n"),
        }
        let answer = self.client.ask(&request);
        openapi::check(&command.name, &target, &answer)?;
        if answer.header("x-content-type-options") != Some("nosniff") {
            return Err(format!("a browser may guess what this is: {answer:?}").into());
        }
        Ok(show(&answer))
    }

    fn show_registry(&self) -> String {
        let state = self.server.store.state();
        let mut out = String::new();
        for (node, host_entry) in state.registry.host_entries() {
            let draining = if host_entry.draining { ", draining" } else { "" };
            writeln!(out, "node {node}: {:?}{draining}", host_entry.standing).unwrap();
        }
        for shard in &state.cluster.shards {
            writeln!(out, "shard {}: led by {:?}", shard.shard, shard.leader).unwrap();
        }
        out
    }

    fn change_node(&mut self, command: &Command) -> Result<String, Box<dyn Error>> {
        let mut state = self.server.store.state();
        for argument in command.consume_args() {
            let Argument::KeyValue(name, value) = argument else { return Err("NAME=VALUE, please".into()) };
            match name.as_str() {
                "retiring" => state.status.retiring = value.parse()?,
                "leaderless" => {
                    let shard = ShardId(value.parse()?);
                    let shards = &mut state.status.shards;
                    shards.iter_mut().find(|status| status.shard == shard).ok_or("no such shard")?.leader =
                        None;
                }
                "unlinked" => {
                    let peer = NodeId(value.parse()?);
                    let links = &mut state.status.links;
                    links.iter_mut().find(|(node, _)| *node == peer).ok_or("no such peer")?.1 = false;
                }
                "silent" => {
                    let peer = NodeId(value.parse()?);
                    state.status.silent.push(peer);
                    let links = &mut state.status.links;
                    links.iter_mut().find(|(node, _)| *node == peer).ok_or("no such peer")?.1 = false;
                }
                "clock" => {
                    let (peer, ahead_ms) = value.split_once(':').ok_or("PEER:AHEAD_MS, please")?;
                    let (node, ahead_ms) = (NodeId(peer.parse()?), ahead_ms.parse()?);
                    state.status.clocks.push(PeerClock { node, ahead_ms, error_ms: 1 });
                }
                "peer-stalled" => state.status.peers_stalled.push(NodeId(value.parse()?)),
                "disk-error" => {
                    let reason = Some(value.clone());
                    self.server.with_context(move |context| *context.disk_error.lock().unwrap() = reason);
                }
                _ => return Err(format!("no such setting: {name}").into()),
            }
        }
        Ok(String::new())
    }
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        match command.name.as_str() {
            "refuse" => {
                let refusal = match command.consume_args().next_pos() {
                    Some("no-leader") => Refusal::NoLeader,
                    Some("unknown-outcome") => Refusal::UnknownOutcome,
                    Some("disk-unavailable") => Refusal::DiskUnavailable,
                    Some("overloaded") => Refusal::Overloaded,
                    Some("invalid") => Refusal::invalid("a thing that the store does not take"),
                    other => return Err(format!("no such refusal: {other:?}").into()),
                };
                self.server.store.state().refusal = Some(refusal);
                Ok(String::new())
            }
            "accept" => {
                self.server.store.state().refusal = None;
                Ok(String::new())
            }
            "leader-ahead" => {
                let mut arguments = command.consume_args();
                let ahead_ms = arguments.next_pos().ok_or("by how much?")?.parse()?;
                self.server.store.state().leader_ahead_ms = ahead_ms;
                Ok(String::new())
            }
            "expire" => {
                let mut arguments = command.consume_args();
                let later_ms = arguments.next_pos().ok_or("how much later?")?.parse()?;
                self.server.store.state().expire(later_ms);
                Ok(String::new())
            }
            "leader" => {
                let mut arguments = command.consume_args();
                self.server.store.leaders.set(SHARD, arguments.next_pos());
                Ok(String::new())
            }
            "node" => self.change_node(command),
            "registry" => Ok(self.show_registry()),
            "finish-moves" => {
                self.server.store.state().finish_moves();
                Ok(String::new())
            }
            _ => self.request(command),
        }
    }
}

/// Replaces each `{x*100}` by a hundred times `x`.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let repetition = behind.split_once('}').and_then(|(inside, after)| {
            let (unit, times) = inside.rsplit_once('*')?;
            Some((unit.repeat(times.parse().ok()?), after))
        });
        out.push_str(before);
        match repetition {
            Some((repeated, after)) => {
                out.push_str(&repeated);
                rest = after;
            }
            None => {
                out.push('{');
                rest = behind;
            }
        }
    }
    out + rest
}

fn decode_hex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

/// The answer as scripts show it.
fn show(answer: &Answer) -> String {
    let mut out = format!("{}\n", answer.status_line);
    for (name, value) in &answer.headers {
        if !["date", "x-content-type-options"].contains(&name.as_str()) {
            writeln!(out, "{name}: {value}").unwrap();
        }
    }
    if !answer.body.is_empty() {
        writeln!(out, "body: {}", escape(&answer.body)).unwrap();
    }
    out
}

/// Printable ASCII as it is, other bytes escaped, long repetitions as `{x*100}`.
fn escape(bytes: &[u8]) -> String {
    let mut out = String::new();
    for run in bytes.chunk_by(|left, right| left == right) {
        let unit = match run[0] {
            b'\n' => "\\n".to_owned(),
            byte @ b' '..=b'~' => char::from(byte).to_string(),
            byte => format!("\\x{byte:02x}"),
        };
        if run.len() < 64 {
            out.push_str(&unit.repeat(run.len()));
        } else {
            write!(out, "{{{unit}*{}}}", run.len()).unwrap();
        }
    }
    out
}

fn status() -> NodeStatus {
    let shard = |shard| ShardStatus {
        shard: ShardId(shard),
        replica: ReplicaId(1),
        leader: Some(NodeId(1)),
        leads: true,
        is_term_durable: true,
        term: Term(2),
        committed: LogIndex(9),
        applied: LogIndex(9),
        last: LogIndex(9),
        log_begin: LogIndex(4),
        keys: 3,
        log_bytes: 5,
        votes: true,
        snapshot: None,
        snapshot_bytes: 6,
        makes_snapshot: false,
        last_move: MigrationId(0),
        is_moving: false,
        slots: None,
        checkpoint: None,
        diverged: false,
    };
    NodeStatus {
        node: NodeId(1),
        shards: vec![shard(0), shard(1)],
        links: vec![(NodeId(2), true), (NodeId(3), true)],
        ..NodeStatus::default()
    }
}

fn held_version() -> VersionView {
    VersionView {
        version: ClusterVersion(1),
        next: Some(ClusterVersion(2)),
        blockers: vec![
            RaiseBlocker::Held,
            RaiseBlocker::ReleaseTooOld(NodeId(2)),
            RaiseBlocker::Disconnected(NodeId(3)),
        ],
        held: true,
    }
}

fn cluster() -> ClusterView {
    let host = |node, uuid: u128| HostView {
        info: HostInfo {
            node: NodeId(node),
            uuid: uuid::Uuid::from_u128(uuid),
            peer_address: format!("127.0.0.1:900{node}"),
            http_address: format!("127.0.0.1:800{node}"),
            resp_address: format!("127.0.0.1:700{node}"),
            resp_cluster_address: String::new(),
            tags: [("geo:region".to_owned(), "us-central1".to_owned())].into(),
            release: tidelock_core::version::Release::default(),
        },
        created: LogIndex(4),
        updated: LogIndex(5),
        connected: node == 1,
        disk_stalled: false,
        clock: None,
        standing: HostRole::Voter,
        draining: false,
        dead: false,
    };
    let unregistered = HostView {
        info: HostInfo { http_address: String::new(), resp_address: String::new(), ..host(2, 0).info },
        created: LogIndex(0),
        updated: LogIndex(0),
        clock: Some(PeerClock { node: NodeId(2), ahead_ms: -60_000, error_ms: 2 }),
        standing: HostRole::Learner,
        draining: true,
        dead: true,
        ..host(2, 0)
    };
    ClusterView {
        version: held_version(),
        node: NodeId(1),
        has_default: false,
        hosts: vec![host(1, 0x69f6_3dd0_50cb_4410_bebc_6442_d2c1_51af), unregistered],
        shards: vec![
            ShardView {
                shard: ShardId(0),
                name: "tidelock".to_owned(),
                kind: "registry",
                leader: Some(NodeId(1)),
                term: Term(2),
                slots: 0,
            },
            ShardView {
                shard: ShardId(1),
                name: "kv-00001".to_owned(),
                kind: "kv",
                leader: None,
                term: Term(3),
                slots: 16384,
            },
        ],
        replicas: replicas(),
    }
}

fn replicas() -> Vec<ReplicaView> {
    vec![
        ReplicaView {
            replica: ReplicaId(1),
            shard: ShardId(0),
            node: NodeId(1),
            voter: true,
            applied: Some(LogIndex(9)),
            checkpoint: Some(Checkpoint { index: LogIndex(8), checksum: 0xbeef }),
            diverged: false,
        },
        ReplicaView {
            replica: ReplicaId(2),
            shard: ShardId(0),
            node: NodeId(2),
            voter: false,
            applied: None,
            checkpoint: None,
            diverged: true,
        },
    ]
}
