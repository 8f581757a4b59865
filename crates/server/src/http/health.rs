//! Health, readiness, metrics and the welcome page.
//!
//! Ready means that this node can answer linearizable requests for every shard now, and is not
//! about to stop. Alive means only that the process answers. Neither uses the store's queue, so
//! both answer under any load.

use std::fmt::Write;
use std::sync::PoisonError;
use std::time::SystemTime;

use hyper::StatusCode;
use hyper::header::{HeaderValue, VARY};
use tidelock_api::metrics::{self, MetricSeries};
use tidelock_core::event::NodeStatus;
use tidelock_core::types::NodeId;

use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use super::{HttpContext, console, negotiate, openapi};
use crate::metrics::RespCounters;
use crate::metrics::history;
use crate::metrics::{HttpCounters, OPEN_METRICS_TYPE, PROMETHEUS_TEXT_TYPE, Scrape};
use crate::store::Store;

/// Operations for people, probes and scrapers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Welcome,
    Live,
    Ready,
    Metrics,
    MetricsHistory,
    OpenApi,
}

pub(super) async fn answer<S: Store>(call: &Call<'_, S>, operation: Health) -> Result<Response, Problem> {
    match operation {
        Health::Welcome if negotiate::wants_page(call.headers()) => {
            Ok(console::redirect(StatusCode::SEE_OTHER))
        }
        Health::Welcome => Ok(welcome(call).await),
        Health::Live => Ok(response::text(StatusCode::OK, "ok\n")),
        Health::Ready => ready(call).await,
        Health::Metrics => metrics(call).await,
        Health::MetricsHistory => metrics_history(call).await,
        Health::OpenApi => Ok(openapi::answer()),
    }
}

async fn welcome<S: Store>(call: &Call<'_, S>) -> Response {
    let node = call.store().status().await.node;
    let mut out = format!("Tidelock {}, node {node}\n\n", env!("CARGO_PKG_VERSION"));
    let addresses = &call.context.addresses;
    for (name, address) in [("http", &addresses.http), ("resp", &addresses.resp), ("peer", &addresses.peer)] {
        if !address.is_empty() {
            out.push_str(&format!("{name:<6}{address}\n"));
        }
    }
    out.push_str(
        "\nPUT, GET, DELETE  /v1/keys/{key}   one key, raw\n\
         GET               /v1/keys         a page of keys\n\
         GET, POST         /v1/atomics/{id} one number, exchanged in one step\n\
         POST              /v1/transactions several keys, all or none\n\
         GET               /v1/watch        keys as they change\n\
         POST, GET, DELETE /v1/leases       what keys and locks last for\n\
         POST, GET         /v1/locks/{key}  locks with fences\n\
         PUT, GET          /{key}           optimistic locks: ?val=...&ver=...\n\
         POST, GET         /db/{key}        store and read, raw\n\
         GET, POST, DELETE /api/namespaces  typed configuration with history\n\
         GET               /v1/cluster      hosts, shards, replicas\n\
         POST              /v1/cluster/...  add, drain and remove hosts\n\
         GET               /v1/backup       the state of every shard, as one file\n\
         GET               /livez  /readyz?verbose  /metrics  /openapi.json\n\
         GET               /ui/             the console, for a browser\n",
    );
    response::text(StatusCode::OK, out)
}

async fn ready<S: Store>(call: &Call<'_, S>) -> Result<Response, Problem> {
    let verbose = call.parameters().flag("verbose")?;
    let report = Readiness::of(&call.store().status().await, call.context);
    let status = if report.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(response::text(status, report.text(verbose)))
}

async fn metrics<S: Store>(call: &Call<'_, S>) -> Result<Response, Problem> {
    let context = call.context;
    let scrape = Scrape {
        status: call.store().status().await,
        http: &HttpCounters::sum(&context.counters),
        resp: &RespCounters::sum(&context.resp),
        handovers: [
            context.handovers.sum(|worker| worker.requests.get()),
            context.handovers.sum(|worker| worker.batches.get()),
        ],
        disk: &context.disk,
        snapshots: &context.snapshots,
        transport: &context.transport,
        disk_stalled: disk_error(context).is_some(),
        memory: &context.memory,
        tls: context.tls.as_ref(),
        insecure_listeners: context.insecure_listeners,
        audit_log: &context.audit_log,
        limited_requests: call.store().access().limiters().refused(),
        tracer: &context.tracer,
        free_bytes: context.space.free_bytes(),
        turns: &context.turns,
        busiest_open_requests: context.clients.most_open_requests(),
        version: env!("CARGO_PKG_VERSION"),
    };
    let media_type = negotiate::choose(call.headers(), &[OPEN_METRICS_TYPE, PROMETHEUS_TEXT_TYPE]);
    let mut response = response::typed(StatusCode::OK, media_type, scrape.encode_as(media_type));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

async fn metrics_history<S: Store>(call: &Call<'_, S>) -> Result<Response, Problem> {
    let (series, end) = call.context.history.series();
    let end = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok()).unwrap_or_default();
    let series = series.into_iter().map(|(name, values)| MetricSeries { name: name.into(), values });
    let body = metrics::MetricsHistory {
        node: call.store().status().await.node.0,
        step_s: history::STEP.as_secs(),
        end_unix_ms: u64::try_from(end.as_millis()).unwrap_or(u64::MAX),
        series: series.collect(),
    };
    Ok(response::json(serde_json::to_vec(&body).expect("invariant: numbers and texts are JSON")))
}

/// Why the disk takes no writes, or is slow; `None` while neither holds.
fn disk_error(context: &HttpContext) -> Option<String> {
    context.disk_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The readiness checks, each with its failure if any.
struct Readiness {
    checks: Vec<(String, Result<(), String>)>,
    warnings: Vec<String>,
}

impl Readiness {
    fn of(status: &NodeStatus, context: &HttpContext) -> Readiness {
        let disk = match disk_error(context) {
            None => Ok(()),
            Some(reason) => Err(reason),
        };
        let serving = if status.retiring { Err("the node is about to stop".to_owned()) } else { Ok(()) };
        let mut checks = vec![
            ("disk".to_owned(), disk),
            ("serving".to_owned(), serving),
            ("peers".to_owned(), peers(status)),
        ];
        if status.shards.is_empty() {
            checks.push(("shards".to_owned(), Err("the node carries none yet".to_owned())));
        }
        for shard in &status.shards {
            let leader = match shard.leader {
                Some(_) => Ok(()),
                None => Err("no leader is known".to_owned()),
            };
            checks.push((format!("shard {}", shard.shard), leader));
        }
        let mut warnings = context.warnings.clone();
        warnings.extend(context.tls.iter().flat_map(|tls| tls.warnings(SystemTime::now())));
        warnings.extend(context.secret_keys.warning());
        warnings.extend(context.space.warning());
        let is_silent = |peer: &NodeId| status.silent.contains(peer);
        let down = status.links.iter().filter(|(peer, connected)| !connected && !is_silent(peer));
        warnings.extend(down.map(|(peer, _)| match context.refusals.of(*peer) {
            Some(refusal) => format!("no connection to node {peer}, which refuses this node: {refusal}"),
            None => format!("no connection to node {peer}"),
        }));
        let silent = status.silent.iter();
        warnings.extend(silent.map(|peer| format!("node {peer} is connected and does not answer")));
        let stalled = status.peers_stalled.iter();
        warnings.extend(stalled.map(|peer| format!("the disk of node {peer} takes no writes")));
        if status.disk_unsteady {
            warnings.push("the disk was slow: this node leads nothing that another node can lead".to_owned());
        }
        let apart = status.clocks.iter().filter(|clock| clock.is_beyond_limit());
        warnings.extend(apart.map(|clock| {
            let direction = if clock.ahead_ms > 0 { "ahead of" } else { "behind" };
            let (node, ms) = (clock.node, clock.ahead_ms.unsigned_abs());
            format!("the clock of node {node} is {ms} ms {direction} this node's")
        }));
        Readiness { checks, warnings }
    }

    fn is_ready(&self) -> bool {
        self.checks.iter().all(|(_, result)| result.is_ok())
    }

    /// One line a check: all of them, or only failed ones.
    fn text(&self, verbose: bool) -> String {
        let mut out = String::new();
        for (name, result) in &self.checks {
            match result {
                Ok(()) if verbose => writeln!(out, "[+]{name} ok"),
                Ok(()) => Ok(()),
                Err(reason) => writeln!(out, "[-]{name} failed: {reason}"),
            }
            .expect("invariant: writing to a String does not fail");
        }
        if verbose {
            for warning in &self.warnings {
                writeln!(out, "[!]{warning}").expect("invariant: writing to a String does not fail");
            }
        }
        out.push_str(if self.is_ready() { "ready\n" } else { "not ready\n" });
        out
    }
}

/// Checks the links to the peers. One that is down is a warning. Without a majority the node is not
/// ready: it can answer no linearizable request.
fn peers(status: &NodeStatus) -> Result<(), String> {
    if status.reaches_majority() {
        return Ok(());
    }
    let (reachable, nodes) = status.reachable_nodes();
    Err(format!("only {reachable} of {nodes} nodes can be reached"))
}
