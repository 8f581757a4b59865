// One host: its facts, and what an operator may do with it. Changes are requested here and followed by
// cluster-progress.js.
import { html, useState } from "./lib-html.js";
import { post } from "./lib-api.js";
import { ConfirmByName, FormDialog } from "./lib-dialog.js";
import { setParams } from "./lib-router.js";
import { Badge, Button, Facts, Notice, Section } from "./lib-ui.js";
import { Name, Text, plural } from "./lib-text.js";

const CHANGES = {
  drain: { label: "Drain…", title: "Drain node", submit: "Drain",
    text: "It leads nothing, and holds no replica that another host can hold, until the drain is ended." },
  undrain: { label: "End drain…", title: "End the drain of node", submit: "End drain",
    text: "It may lead and hold replicas again." },
  follow: { label: "Take its votes…", title: "Take the votes of node", submit: "Take votes",
    text: "It gives away the votes that it has, and gets no others. It keeps following." },
  add: { label: "Let it vote…", title: "Let node vote", submit: "Let it vote",
    text: "It may vote where placement wants it to. This also ends a drain." },
  keep: { request: "add", label: "Cancel removal…", title: "Cancel the removal of node", submit: "Cancel removal",
    text: "It stays, and may vote where placement wants it to. Replicas that it has lost come back as new ones." },
  remove: { label: "Remove…", title: "Remove node", submit: "Remove", isFinal: true,
    text: "It gives up its replicas and leaves the cluster for good: it cannot come back under its number." },
};

/** The changes that make sense in the state of a host. */
function offered(host) {
  if (host.standing === "leaving") return ["keep"];
  return [
    host.draining ? "undrain" : "drain",
    host.standing === "voter" ? "follow" : "add",
    "remove",
  ];
}

export function HostDetail({ cluster, node, mayOperate, onChanged }) {
  const host = cluster.hosts.find((entry) => entry.node === node);
  const [open, setOpen] = useState(null);
  const close = html`<${Button} kind="quiet" onClick=${() => setParams({ host: null },
    { replace: false })}>Close<//>`;
  if (!host) {
    return html`<${Section} title=${`Node ${node}`} actions=${close}><${Notice} kind="warn"
      title="There is no such host" /><//>`;
  }
  const leads = cluster.shards.filter((shard) => shard.leader === node).length;
  const replicas = cluster.replicas.filter((replica) => replica.node === node);
  return html`<${Section} title=${`Node ${node}`} actions=${html`
      ${mayOperate && offered(host).map((change) => html`<${Button} onClick=${() =>
        setOpen(change)}>${CHANGES[change].label}<//>`)}
      ${close}`}>
    <div class="card"><${Facts} items=${[
      ["Role", html`${host.standing} ${host.draining && html`<${Badge} kind="warn">draining<//>`} ${
        host.dead && html`<${Badge} kind="error">dead<//>`}`],
      ["Connection", host.connected ? "connected" : "not connected"],
      ["Leads", `${leads} of its ${plural(replicas.length, "replica")}`],
      ["HTTP", html`<${Name} value=${host.http_address || "not registered"} />`],
      ["Redis", html`<${Name} value=${host.resp_address || "off"} />`],
      ["Peers", html`<${Name} value=${host.peer_address} />`],
      ["Id", html`<${Name} value=${host.id ?? "not registered"} />`],
      host.clock && ["Clock", `${host.clock.ahead_ms} ms ahead, ± ${host.clock.error_ms} ms`],
      ["Tags", html`<span class="row">${Object.entries(host.tags).map(([name, value]) =>
        html`<${Badge}><${Text} value=${`${name}=${value}`} inline /><//>`)}</span>`],
    ]} /></div>
    ${open && html`<${ChangeDialog} change=${open} host=${host} ownNode=${cluster.node} onClose=${() =>
      setOpen(null)} onChanged=${onChanged} />`}
  <//>`;
}

function ChangeDialog({ change, host, ownNode, onClose, onChanged }) {
  const { title, submit, text, isFinal, request = change } = CHANGES[change];
  const heading = change === "add" ? `Let node ${host.node} vote` : `${title} ${host.node}`;
  const run = async () => {
    await post(`/v1/cluster/hosts/${host.node}/${request}`);
    setParams({ progress: `hosts/${host.node}/${request}` });
    onClose();
    onChanged();
  };
  const warning = isFinal && host.node === ownNode
    && html`<${Notice} kind="warn" title="This node serves the page">Open the console of another node to
      follow the change.<//>`;
  return isFinal
    ? html`<${ConfirmByName} title=${heading} name=${`node-${host.node}`} noun="host" submit=${submit}
      run=${run} onClose=${onClose}>
        <p>${text}</p>${warning}<//>`
    : html`<${FormDialog} title=${heading} submit=${submit} onSubmit=${run}
      onClose=${onClose}><p>${text}</p><//>`;
}
