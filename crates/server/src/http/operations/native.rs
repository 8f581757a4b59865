//! Operations of `/v1`, and of the operational paths.

use serde_json::{Value, json};
use tidelock_api as api;

use super::super::cluster::Cluster;
use super::super::health::Health;
use super::super::membership::HostVerb;
use super::super::{clients, load};
use super::keys;
use super::operation::{
    Failures, JSON, OCTETS, Operation, Parameter, TEXT, Tag, flag, matching, number, number_in, query, text,
};
use super::schemas::schema_of;

const REVISION_MAX: u64 = 1 << 62;
const CLUSTER: Tag = Tag("cluster", Failures::Problems);
const OPERATIONS: Tag = Tag("operations", Failures::Problems);

pub(super) fn operations() -> Vec<Operation> {
    let mut all = keys::operations();
    all.extend(hosts());
    all.extend(shards());
    all.extend(default_placement());
    all.extend(slots());
    all.extend(version());
    all.extend(authorities());
    all.extend(backups());
    all.extend(snapshots());
    all.extend(operators());
    all
}

/// The parameter `stale` of reads.
pub(super) fn stale() -> Parameter {
    query("stale", flag(), "Read what this node has, at once")
}

/// A body of any bytes. Generators of clients take the empty schema for any JSON.
pub(super) fn bytes() -> Value {
    json!({ "type": "string", "format": "binary" })
}

fn hosts() -> Vec<Operation> {
    let most = |max| json!({ "type": "integer", "minimum": 1, "maximum": max });
    let mut all = vec![
        CLUSTER
            .operation(
                "get /v1/cluster",
                Cluster::View,
                "getCluster",
                "Hosts, shards and replicas as this node sees them",
            )
            .gives_json(schema_of::<api::cluster::Cluster>(), "From this node's memory, without a quorum"),
        CLUSTER
            .operation(
                "get /v1/cluster/dump",
                Cluster::Dump,
                "dumpRegistry",
                "The registry, one object a line",
            )
            .gives(200, [("application/jsonl", text())], "A header, hosts, shards and replicas"),
        CLUSTER
            .operation(
                "get /v1/cluster/clients",
                Cluster::Clients,
                "getClients",
                "The connections that have taken most",
            )
            .asks([query("limit", most(clients::LISTED_MAX), "Most connections; 20 if it is not given")])
            .gives_json(
                schema_of::<api::clients::Clients>(),
                "Those of the node that answers, the busiest first",
            ),
        CLUSTER
            .operation("get /v1/cluster/load", Cluster::Load, "getLoad", "What clients asked for recently")
            .asks([query("limit", most(load::LISTED_MAX), "Most keys, and prefixes; 20 if it is not given")])
            .gives_json(schema_of::<api::load::Load>(), "Requests that the node that answers took"),
    ];
    all.extend(changes_of_hosts());
    all
}

/// Each change of a host, and its progress.
fn changes_of_hosts() -> impl Iterator<Item = Operation> {
    let change = |verb, route, [id, progress_id]: [&'static str; 2], summary| {
        let change = CLUSTER
            .operation(route, Cluster::Host(verb), id, summary)
            .gives(202, [(JSON, schema_of::<api::membership::WantedOfHost>())], "What is wanted from now on")
            .fails([404, 409]);
        [progress(&change, Cluster::Progress(verb), progress_id), change]
    };
    let all = [
        change(
            HostVerb::Add,
            "post /v1/cluster/hosts/{node}/add",
            ["addHost", "addHostProgress"],
            "Lets a host vote in every shard",
        ),
        change(
            HostVerb::Follow,
            "post /v1/cluster/hosts/{node}/follow",
            ["followHost", "followHostProgress"],
            "Lets a host follow without a vote",
        ),
        change(
            HostVerb::Drain,
            "post /v1/cluster/hosts/{node}/drain",
            ["drainHost", "drainHostProgress"],
            "Takes all leaderships from a host",
        ),
        change(
            HostVerb::Undrain,
            "post /v1/cluster/hosts/{node}/undrain",
            ["undrainHost", "undrainHostProgress"],
            "Lets a host lead again",
        ),
        change(
            HostVerb::Remove,
            "post /v1/cluster/hosts/{node}/remove",
            ["removeHost", "removeHostProgress"],
            "Takes a host out of the cluster for good",
        ),
    ];
    all.into_iter().flatten()
}

/// The progress of a change, under the same path.
fn progress(change: &Operation, endpoint: Cluster, id: &'static str) -> Operation {
    change
        .reading(endpoint, id, "Whether this change is done, and what it waits for")
        .gives_json(schema_of::<api::membership::Progress>(), "As the node that answers knows")
}

fn shards() -> Vec<Operation> {
    let transfer = CLUSTER
        .operation(
            "post /v1/cluster/shards/{shard}/transfer",
            Cluster::Transfer,
            "transferShard",
            "Asks a node to lead a shard",
        )
        .asks([query("to", number_in(1, i64::MAX.unsigned_abs()), "The node").required()])
        .gives(202, [(JSON, schema_of::<api::membership::WantedOfShard>())], "What was asked for");
    vec![
        CLUSTER
            .operation(
                "get /v1/cluster/shards/{shard}/explain",
                Cluster::Explain,
                "explainShard",
                "What each host is to a shard, and why",
            )
            .gives_json(schema_of::<api::shards::Explanation>(), "A reason for every host")
            .fails([404]),
        CLUSTER
            .operation(
                "post /v1/cluster/shards/{shard}/tags",
                Cluster::Tag,
                "tagShard",
                "Sets tags of a shard, its policies among them; null takes one away",
            )
            .takes_json(schema_of::<api::shards::TagChanges>())
            .gives(202, [(JSON, schema_of::<api::shards::ChangedShard>())], "They are set")
            .fails([404]),
        CLUSTER
            .operation(
                "post /v1/cluster/shards",
                Cluster::AddShard,
                "addShard",
                "Adds a data shard, which holds no slots",
            )
            .takes_json(schema_of::<api::shards::AddShardRequest>())
            .or_nothing()
            .gives(202, [(JSON, schema_of::<api::shards::ChangedShard>())], "Its number"),
        CLUSTER
            .operation(
                "delete /v1/cluster/shards/{shard}",
                Cluster::RemoveShard,
                "removeShard",
                "Removes a data shard that owns no slots",
            )
            .gives(
                202,
                [(JSON, schema_of::<api::shards::ChangedShard>())],
                "It is removed; its replicas end and release their disk",
            )
            .fails([404, 409]),
        progress(&transfer, Cluster::TransferProgress, "transferShardProgress"),
        transfer,
    ]
}

/// The placement policies that shards inherit.
fn default_placement() -> [Operation; 2] {
    [
        CLUSTER
            .operation(
                "get /v1/cluster/default",
                Cluster::Default,
                "defaultPlacement",
                "The placement policies that shards inherit, as the node knows them",
            )
            .gives(200, [(JSON, schema_of::<api::shards::DefaultPlacement>())], "The policies"),
        CLUSTER
            .operation(
                "post /v1/cluster/default",
                Cluster::SetDefault,
                "setDefaultPlacement",
                "Sets placement policies that shards inherit; null takes one away",
            )
            .takes_json(schema_of::<api::shards::TagChanges>())
            .gives(202, [(JSON, schema_of::<api::shards::DefaultPlacement>())], "All policies from now on"),
    ]
}

fn slots() -> Vec<Operation> {
    vec![
        CLUSTER
            .operation(
                "get /v1/cluster/moves",
                Cluster::Moves,
                "getMoves",
                "Which shard holds which slots, and what is on its way",
            )
            .asks([query("until", number(), "A move: `done` is about the moves up to it")])
            .gives_json(schema_of::<api::slots::Moves>(), "As the node that answers knows"),
        CLUSTER
            .operation(
                "post /v1/cluster/rebalance",
                Cluster::Rebalance,
                "rebalance",
                "Lets all data shards hold as many slots",
            )
            .gives(202, [(JSON, schema_of::<api::slots::RequestedMoves>())], "How many moves that takes")
            .fails([409]),
        CLUSTER
            .operation(
                "post /v1/cluster/shards/{shard}/slots",
                Cluster::MoveSlots,
                "moveSlots",
                "Lets a shard hold these slots",
            )
            .takes_json(schema_of::<api::slots::WantedSlots>())
            .gives(202, [(JSON, schema_of::<api::slots::RequestedMoves>())], "How many moves that takes")
            .fails([404, 409]),
    ]
}

fn version() -> Vec<Operation> {
    let hold = |path, endpoint, id, summary| {
        let answer = [(JSON, schema_of::<api::version::Hold>())];
        CLUSTER.operation(path, endpoint, id, summary).gives(202, answer, "What was asked for").fails([404])
    };
    vec![
        CLUSTER
            .operation(
                "get /v1/cluster/version",
                Cluster::Version,
                "getVersion",
                "The version of what the cluster writes, and what it waits for",
            )
            .gives_json(schema_of::<api::version::Version>(), "As the node that answers knows"),
        hold(
            "post /v1/cluster/version/hold",
            Cluster::HoldVersion,
            "holdVersion",
            "Keeps the version, so that a node can go back to the release before",
        ),
        hold(
            "post /v1/cluster/version/resume",
            Cluster::ResumeVersion,
            "resumeVersion",
            "Lets the version rise again",
        ),
    ]
}

/// What nodes that make a backup ask other nodes for.
fn snapshots() -> [Operation; 3] {
    const IDS: &str = "^[0-9]+:[0-9]+:[0-9]+(,[0-9]+:[0-9]+:[0-9]+)*$";
    [
        CLUSTER
            .operation(
                "get /v1/snapshots",
                Cluster::Snapshots,
                "getSnapshots",
                "The snapshots of this node's replicas, for backups that other nodes make",
            )
            .gives_json(schema_of::<api::snapshots::Snapshots>(), "From this node's memory")
            .fails([404]),
        CLUSTER
            .operation(
                "post /v1/snapshots",
                Cluster::BeginSnapshots,
                "beginSnapshots",
                "Begins a snapshot of what this node has applied of each shard",
            )
            .gives_json(schema_of::<api::snapshots::BegunSnapshots>(), "What they will contain")
            .fails([404]),
        CLUSTER
            .operation(
                "get /v1/snapshots/backup",
                Cluster::PartialBackup,
                "getPartialBackup",
                "These snapshots of this node in the format of backups, for the backup of another node",
            )
            .asks(
                [query("ids", matching(IDS), "SHARD:INDEX:TERM of each, by number of the shard").required()],
            )
            .gives(200, [(OCTETS, bytes())], "A part of a backup, which is none by itself")
            .fails([404, 409]),
    ]
}

/// Certificates that the cluster signs itself.
fn authorities() -> Vec<Operation> {
    let change = |route, endpoint, id, summary| {
        let shown = schema_of::<api::authorities::Authorities>();
        CLUSTER
            .operation(route, endpoint, id, summary)
            .gives_json(shown, "By number, after the change")
            .fails([404])
    };
    vec![
        CLUSTER
            .operation(
                "post /v1/cluster/join-tokens",
                Cluster::CreateJoinToken,
                "createJoinToken",
                "Creates a one-time token with which a host gets a certificate and joins",
            )
            .takes_json(schema_of::<api::authorities::CreateJoinToken>())
            .or_nothing()
            .gives(
                201,
                [(JSON, schema_of::<api::authorities::IssuedJoinToken>())],
                "The token, which is shown this once",
            ),
        CLUSTER
            .operation(
                "get /v1/tls/authorities",
                Cluster::Authorities,
                "getAuthorities",
                "The certificate authorities (CAs), without their private keys",
            )
            .gives_json(schema_of::<api::authorities::Authorities>(), "By number"),
        change(
            "post /v1/tls/authorities",
            Cluster::AddAuthority,
            "addAuthority",
            "Adds a second CA, which nodes then trust",
        ),
        change(
            "post /v1/tls/authorities/{authority}/use",
            Cluster::UseAuthority,
            "useAuthority",
            "Makes a CA the one that signs; all nodes renew their certificates",
        ),
        change(
            "delete /v1/tls/authorities/{authority}",
            Cluster::RemoveAuthority,
            "removeAuthority",
            "Removes a CA, which nodes then stop trusting",
        ),
    ]
}

fn backups() -> Vec<Operation> {
    vec![
        CLUSTER
            .operation(
                "post /v1/cluster/checkpoint",
                Cluster::Checkpoint,
                "checkpoint",
                "Puts every shard at one place of its log",
            )
            .gives_json(schema_of::<api::checkpoints::Checkpoints>(), "The places, to compare replicas by"),
        CLUSTER
            .operation(
                "post /v1/tls/reload",
                Cluster::ReloadCertificate,
                "reloadCertificate",
                "Looks at the files of this node's certificate now",
            )
            .gives_json(schema_of::<api::certificate::Certificate>(), "The certificate that the node shows")
            .fails([409]),
        CLUSTER
            .operation(
                "get /v1/audit",
                Cluster::Audit,
                "getAudit",
                "The audit records of administrative changes",
            )
            .asks([
                query(
                    "limit",
                    number_in(1, api::audit::LISTED_MAX as u64),
                    "Most records; 20 if it is not given",
                ),
                query("before", number(), "Only records with lower numbers"),
            ])
            .gives_json(
                schema_of::<api::audit::AuditRecords>(),
                "The newest first, as far as the node that answers has applied them",
            ),
        CLUSTER
            .operation(
                "get /v1/backup",
                Cluster::Backup,
                "getBackup",
                "The state of every shard, as one file",
            )
            .asks([query("stale", flag(), "Without consensus: what this node has applied")])
            .gives(200, [(OCTETS, bytes())], "The file, which says itself whether it is whole")
            .fails([404, 409]),
        CLUSTER
            .operation(
                "post /v1/restore",
                Cluster::Restore,
                "restore",
                "Puts keys of a backup into a fresh cluster",
            )
            .asks([
                query("backup", json!({ "type": "string", "format": "uuid" }), "Names the source").required(),
                query("revision", number_in(0, REVISION_MAX), "What revisions are lifted to").required(),
                query("expiring", flag(), "The rows say when each key expires"),
                query(
                    "discard",
                    flag(),
                    "What another restore has brought is removed first, unless a client has written since",
                ),
            ])
            .takes([(OCTETS, bytes())])
            .or_nothing()
            .gives_nothing(204, "They are there")
            .fails([409]),
    ]
}

fn operators() -> Vec<Operation> {
    let report = || [(TEXT, text())];
    vec![
        OPERATIONS
            .operation("get /", Health::Welcome, "welcome", "A short welcome that names the routes")
            .gives(200, report(), "For people")
            .gives_nothing(303, "To the console, for a browser that wants a page"),
        OPERATIONS.operation("get /livez", Health::Live, "live", "Whether the process answers").gives(
            200,
            report(),
            "It does",
        ),
        OPERATIONS
            .operation(
                "get /readyz",
                Health::Ready,
                "ready",
                "Whether the node can answer linearizable requests",
            )
            .asks([query("verbose", flag(), "Every check, also those that hold")])
            .gives(200, report(), "It is ready")
            .gives(503, report(), "It is not: the checks that fail"),
        OPERATIONS.operation("get /metrics", Health::Metrics, "metrics", "Numbers for Prometheus").gives(
            200,
            [(crate::metrics::OPEN_METRICS_TYPE, text()), (crate::metrics::PROMETHEUS_TEXT_TYPE, text())],
            "OpenMetrics, or the older text format for clients that prefer it or state no preference",
        ),
        OPERATIONS
            .operation(
                "get /v1/metrics/history",
                Health::MetricsHistory,
                "getMetricsHistory",
                "The last hour of the answering node in numbers",
            )
            .gives_json(schema_of::<api::metrics::MetricsHistory>(), "One value for each ten seconds"),
        OPERATIONS
            .operation("get /openapi.json", Health::OpenApi, "openapi", "This document")
            .gives_json(json!({ "type": "object" }), "OpenAPI 3.1"),
    ]
}
