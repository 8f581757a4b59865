// The map of the cluster: hosts as rows, shards as columns, and in each cell the replica that the host has of
// the shard. It owns the page of shards that is shown, in the URL.
import { html } from "./lib-html.js";
import { href, route } from "./lib-router.js";
import { LinkButton, Section } from "./lib-ui.js";
import { Text, count, plural } from "./lib-text.js";
import { members, replicaLag, shardTitle, zoneOf } from "./lib-ops.js";

const SHARDS_PER_PAGE = 24;

const select = (kind, id) => {
  const { params } = route.value;
  return href(["cluster"], { from: params.from, [kind]: id });
};

/** What a host has of a shard, with the word, the sign and the class of its cell. */
function cellOf(shard, replica, host) {
  if (!replica) return null;
  if (replica.diverged) return { word: "diverged", sign: "!", kind: "diverged" };
  if (shard.leader === host.node) return { word: "leader", sign: "L", kind: "leader" };
  return replica.voter
    ? { word: "voter", sign: "V", kind: "voter" }
    : { word: "learner, without a vote", sign: "N", kind: "learner" };
}

function HostHead({ host, ownNode }) {
  const { params } = route.value;
  const state = host.dead ? "dead" : !host.connected ? "not connected"
    : host.standing !== "voter" ? host.standing : host.draining ? "draining" : "";
  return html`<th scope="row" class=${params.host === String(host.node) ? "is-selected" : ""}>
    <a href=${select("host", host.node)}>Node ${host.node}</a>${host.node === ownNode && html` <span
      class="badge">this page</span>`}
    ${state && html` <span class="badge badge-${host.dead || !host.connected ? "error"
      : "warn"}">${state}</span>`}
    <div class="muted small"><${Text} value=${zoneOf(host) || "no zone"} inline /></div></th>`;
}

function Cell({ shard, replica, host, lag }) {
  const cell = cellOf(shard, replica, host);
  if (!cell) return html`<td class="map-cell"><span class="hidden-label">no replica</span></td>`;
  const isDown = host.dead || !host.connected;
  const behind = lag ? `, ${plural(lag, "entry", "entries")} behind` : "";
  return html`<td class="map-cell"><span class="replica replica-${cell.kind} ${isDown ? "replica-down" : ""}"
    title=${`Shard ${shard.id} on node ${host.node}: ${cell.word}${behind}${isDown ? ", not reachable"
      : ""}`}>
    <span aria-hidden="true">${cell.sign}</span><span
      class="hidden-label">${cell.word}${behind}</span></span>${
    lag > 0 && html`<span class="map-lag" aria-hidden="true">−${count(lag)}</span>`}</td>`;
}

export function ClusterMap({ cluster, moves }) {
  const { params } = route.value;
  const from = Math.min(Math.max(0, Number(params.from) || 0), Math.max(0, cluster.shards.length - 1));
  const shards = cluster.shards.slice(from, from + SHARDS_PER_PAGE);
  const replicas = new Map(cluster.replicas.map((replica) => [`${replica.shard}:${replica.node}`, replica]));
  const lag = replicaLag(cluster);
  const moving = new Set(moves.moves.flatMap((move) => [move.from, move.to]));
  return html`<${Section} title="Hosts and shards" actions=${html`<${Pages} from=${from}
    total=${cluster.shards.length} />`}>
    <div class="table-frame" role="region" aria-label="Map" tabindex="0"><table class="table map">
      <thead><tr><th scope="col">Host</th>${shards.map((shard) => html`
        <th scope="col" class="map-cell ${params.shard === String(shard.id) ? "is-selected" : ""}">
          <a href=${select("shard", shard.id)} aria-label=${shardTitle(shard)}>${shard.id}</a>
          <div class="map-slots">${shard.type === "registry" ? "registry"
            : html`${count(shard.slots)}<span class="hidden-label"> slots</span>`}${moving.has(shard.id)
              && " ⇄"}</div>
          ${shard.leader === null && html`<span class="badge badge-error">no
            leader</span>`}</th>`)}</tr></thead>
      <tbody>${members(cluster).map((host) => html`<tr key=${host.node}><${HostHead} host=${host}
        ownNode=${cluster.node} />
        ${shards.map((shard) => html`<${Cell} key=${shard.id} shard=${shard} host=${host}
          replica=${replicas.get(`${shard.id}:${host.node}`)}
            lag=${lag.get(`${shard.id}:${host.node}`)} />`)}</tr>`)}</tbody>
    </table></div>
    <p class="map-legend muted small" aria-hidden="true">
      <span><span class="replica replica-leader">L</span> leader</span>
      <span><span class="replica replica-voter">V</span> voter</span>
      <span><span class="replica replica-learner">N</span> learner, no vote</span>
      <span>below a shard: its slots</span><span>−n: entries behind</span></p><//>`;
}

function Pages({ from, total }) {
  if (total <= SHARDS_PER_PAGE) return null;
  const link = (start) => href(["cluster"], { ...route.value.params, from: start || "" });
  return html`<span class="muted small">Shards ${count(from + 1)} to ${count(Math.min(from + SHARDS_PER_PAGE,
    total))} of ${count(total)}</span>
    ${from > 0 && html`<${LinkButton} href=${link(Math.max(0, from - SHARDS_PER_PAGE))}>Previous<//>`}
    ${from + SHARDS_PER_PAGE < total && html`<${LinkButton} href=${link(from + SHARDS_PER_PAGE)}>Next<//>`}`;
}
