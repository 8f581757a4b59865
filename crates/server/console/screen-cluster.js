// Cluster: a map of hosts and shards, one host or shard in detail, and unfinished changes. The route holds
// what is selected and which change is being followed; the parts are in cluster-*.js.
import { html, useState } from "./lib-html.js";
import { may } from "./lib-access.js";
import { get, post } from "./lib-api.js";
import { useLoad } from "./lib-load.js";
import { FormDialog } from "./lib-dialog.js";
import { route, setParams } from "./lib-router.js";
import { Button, Loaded, PageHead, TextField, toast } from "./lib-ui.js";
import { plural } from "./lib-text.js";
import { loadCluster } from "./lib-ops.js";
import { ClusterMap } from "./cluster-map.js";
import { HostDetail } from "./cluster-host.js";
import { ShardDetail } from "./cluster-shard.js";
import { ChangeProgress, Moves } from "./cluster-progress.js";

// Two requests each time: one in five seconds.
const POLL_MS = 10_000;

async function loadState(signal) {
  const [cluster, moves] = await Promise.all([loadCluster(signal), get("/v1/cluster/moves", {}, { signal })]);
  return { cluster, moves };
}

export default function ClusterScreen() {
  const load = useLoad(loadState, [], { poll_ms: POLL_MS });
  const { host, shard, progress } = route.value.params;
  const mayOperate = may("cluster:operate");
  return html`<${PageHead} title="Cluster" actions=${mayOperate && html`<${ClusterActions}
    onChanged=${load.reload} />`} />
    ${progress && html`<${ChangeProgress} key=${progress} change=${progress} onDone=${load.reload} />`}
    <${Loaded} load=${load} render=${({ cluster, moves }) => html`
      <${ClusterMap} cluster=${cluster} moves=${moves} />
      ${host && html`<${HostDetail} key=${`host ${host}`} cluster=${cluster} node=${Number(host)}
        mayOperate=${mayOperate}
        onChanged=${load.reload} />`}
      ${shard && html`<${ShardDetail} key=${`shard ${shard}`} cluster=${cluster} moves=${moves}
        id=${Number(shard)}
        mayOperate=${mayOperate} onChanged=${load.reload} />`}
      <${Moves} moves=${moves} />`} />`;
}

function ClusterActions({ onChanged }) {
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  return html`
    <${Button} onClick=${() => setOpen("rebalance")}>Rebalance…<//>
    <${Button} onClick=${() => setOpen("add")}>Add shard…<//>
    ${open === "rebalance" && html`<${Rebalance} onClose=${close} onChanged=${onChanged} />`}
    ${open === "add" && html`<${AddShard} onClose=${close} onChanged=${onChanged} />`}`;
}

function Rebalance({ onClose, onChanged }) {
  const run = async () => {
    const { moves } = await post("/v1/cluster/rebalance");
    toast(moves === 0 ? "The slots are spread evenly already" : `${plural(moves, "move")} requested`);
    onClose();
    onChanged();
  };
  return html`<${FormDialog} title="Rebalance" submit="Rebalance" onClose=${onClose} onSubmit=${run}>
    <p>All data shards will hold equally many slots. Slots move one after the other while clients go on
      reading and
      writing. No backup can be made until the moves are done.</p><//>`;
}

function AddShard({ onClose, onChanged }) {
  const [name, setName] = useState("");
  const run = async () => {
    const { shard } = await post("/v1/cluster/shards", name === "" ? {} : { name });
    toast(`Shard ${shard} requested`);
    onClose();
    setParams({ shard, host: null }, { replace: false });
    onChanged();
  };
  return html`<${FormDialog} title="Add a shard" submit="Add" onClose=${onClose} onSubmit=${run}>
    <p>The new data shard owns no slots. Rebalance, or move slots to it, afterwards.</p>
    <${TextField} label="Name (optional)" value=${name} onInput=${setName} maxlength="64" /><//>`;
}
