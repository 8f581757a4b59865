// Overview: whether the cluster is healthy or why not, unsafe settings, hosts with their leaders and lag, and
// the state of the node that serves the page. It owns no state but the last answers.
import { html } from "./lib-html.js";
import { session } from "./lib-access.js";
import { get } from "./lib-api.js";
import { useLoad } from "./lib-load.js";
import { loadCluster, loadMetrics, loadReadiness, members, replicaLag, zoneOf } from "./lib-ops.js";
import { Name, Text, Time, count } from "./lib-text.js";
import { Badge, Facts, Loaded, Notice, PageHead, Section } from "./lib-ui.js";
import { Table } from "./lib-table.js";
import { assessHealth, nodeFacts, unsafeSettings } from "./overview-health.js";

// Three requests each time: one in five seconds.
const POLL_MS = 15_000;

async function loadOverview(signal) {
  const [readiness, cluster, metrics] = await Promise.all(
    [loadReadiness(signal), loadCluster(signal), loadMetrics(signal)]);
  return { readiness, cluster, metrics, atMs: Date.now() };
}

export default function Overview() {
  const load = useLoad(loadOverview, [], { poll_ms: POLL_MS });
  const version = useLoad((signal) => get("/v1/cluster/version", {}, { signal }), []);
  return html`<${PageHead} title="Overview" />
    <${Loaded} load=${load} render=${(data) => html`<div class="stack stack-wide">
      ${load.error && html`<p class="muted">The page shows the state of <${Time} ms=${data.atMs}
        full />.</p>`}
      <${Health} data=${data} isCurrent=${!load.error} />
      <${Hosts} cluster=${data.cluster} version=${version.data} />
      <${Shards} cluster=${data.cluster} metrics=${data.metrics} />
      <${ThisNode} data=${data} version=${version.data} />
    </div>`} />`;
}

function Health({ data, isCurrent }) {
  const health = assessHealth(data, data.atMs);
  const unsafe = unsafeSettings({ ...data, who: session.value });
  return html`
    ${unsafe.map(({ title, text, link }) => html`<${Notice} kind="warn" title=${title}
      actions=${link && html`<a href=${link}>Open access</a>`}><${Text} value=${text} /><//>`)}
    <div class="health health-${isCurrent ? health.level : "unknown"}" role="status">
      <span class="health-dot" aria-hidden="true"></span>
      <p class="health-sentence">${isCurrent ? "" : "Last known: "}<${Text} value=${health.sentence} /></p>
    </div>
    ${(health.problems.length > 1 || health.level === "ok") && health.problems.length > 0 && html`
      <ul class="problems">${health.problems.map(({ level, text, link }) => html`<li>
        <${Badge} kind=${level === "info" ? "plain" : level}>${{ error: "Problem", warn: "Warning",
          info: "Note" }[level]}<//>
        <${Text} value=${text} />${link && html` <a href=${link}>Show</a>`}</li>`)}</ul>`}`;
}

function hostState(host) {
  if (host.dead) return ["error", "dead"];
  if (!host.connected) return ["error", "not connected"];
  if (host.standing !== "voter") return ["warn", host.standing];
  return host.draining ? ["warn", "draining"] : ["ok", "up"];
}

function Hosts({ cluster, version }) {
  const lag = replicaLag(cluster);
  const releases = new Map((version?.hosts ?? []).map((host) => [host.node, host.release]));
  const leads = (host) => cluster.shards.filter((shard) => shard.leader === host.node).length;
  const worstLag = (host) => {
    const lags = cluster.replicas.filter(({ node }) => node === host.node)
      .map(({ shard, node }) => lag.get(`${shard}:${node}`)).filter((entries) => entries !== null);
    return lags.length === 0 ? "not reported" : count(Math.max(...lags));
  };
  const columns = [
    { label: "Host", render: (host) => html`<a href="#/cluster?host=${host.node}">Node ${host.node}</a>${
      host.node === cluster.node && html` <${Badge}>serves this page<//>`}` },
    { label: "State", render: (host) => {
      const [kind, text] = hostState(host);
      return html`<${Badge} kind=${kind}>${text}<//>`;
    } },
    { label: "Zone", class: "hide-narrow", render: (host) => html`<${Text} value=${zoneOf(host) || "none"}
      inline />` },
    { label: "HTTP address", class: "hide-narrow", render: (host) => html`<${Name}
      value=${host.http_address} />` },
    { label: "Leads", class: "number", render: (host) => count(leads(host)) },
    { label: "Lag (entries)", class: "number", render: worstLag },
    { label: "Clock", class: "number hide-narrow", render: (host) => clockText(host, cluster.node) },
    { label: "Release", class: "hide-narrow", render: (host) => html`<${Text} value=${releases.get(host.node)
      ?? ""} inline />` },
  ];
  return html`<${Section} title="Hosts"><${Table} label="List of hosts" columns=${columns}
    rows=${members(cluster)}
    rowKey=${(host) => host.node} /><//>`;
}

function clockText(host, ownNode) {
  if (host.node === ownNode) return "reference";
  if (!host.clock) return "not measured";
  return `${host.clock.ahead_ms > 0 ? "+" : ""}${host.clock.ahead_ms} ms ± ${host.clock.error_ms}`;
}

function Shards({ cluster, metrics }) {
  const data = cluster.shards.filter((shard) => shard.type !== "registry");
  const hasLeader = cluster.shards.filter((shard) => shard.leader !== null).length;
  const keys = data.map((shard) => metrics("shard_keys", `shard="${shard.id}"`));
  const known = keys.filter((amount) => amount !== undefined);
  const total = known.reduce((sum, amount) => sum + amount, 0);
  return html`<${Section} title="Data" actions=${html`<a href="#/cluster">Show the map</a>`}>
    <div class="figures">
      <${Figure} label="Shards with a leader"
        value=${`${count(hasLeader)} of ${count(cluster.shards.length)}`} />
      <${Figure} label=${known.length === keys.length ? "Keys" : "Keys in the shards of this node"}
        value=${count(total)} />
      <${Figure} label="Replicas" value=${count(cluster.replicas.length)} />
      <${Figure} label="Replicas without a vote" value=${count(cluster.replicas.filter(({ voter }) =>
        !voter).length)} />
    </div><//>`;
}

const Figure = ({ label, value }) =>
  html`<div class="figure"><div class="figure-value">${value}</div><div class="muted">${label}</div></div>`;

function ThisNode({ data, version }) {
  const { readiness, cluster, metrics, atMs } = data;
  const items = nodeFacts(metrics, atMs);
  if (version) {
    items.push(["Cluster version", `${version.version}${version.held ? " (held by an operator)" : ""}`]);
  }
  return html`<${Section} title=${`Node ${cluster.node}, which serves this page`}>
    <${Facts} items=${items} />
    <ul class="checks" aria-label="Checks">${readiness.checks.map((check) => html`<li>
      <${Badge} kind=${check.ok ? "ok" : "error"}><${Text} value=${check.name} inline />: ${check.ok ? "ok"
        : "failed"}<//></li>`)}</ul>
    ${version?.waiting_for.length > 0 && html`<p class="muted">The cluster version waits: <${Text}
      value=${version.waiting_for.join("; ")} /></p>`}<//>`;
}
