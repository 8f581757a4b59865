// One shard: why its replicas are where they are, its slots, and what an operator may do with it.
import { html, useState } from "./lib-html.js";
import { del, get, post } from "./lib-api.js";
import { useLoad } from "./lib-load.js";
import { ConfirmByName, FormDialog } from "./lib-dialog.js";
import { setParams } from "./lib-router.js";
import { Badge, Button, Facts, Loaded, Notice, Section, SelectField, TextField, toast } from "./lib-ui.js";
import { Table } from "./lib-table.js";
import { Text, count, plural } from "./lib-text.js";
import { replicaLag, shardTitle } from "./lib-ops.js";

const SLOT_SET = /^\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*$/;

export function ShardDetail({ cluster, moves, id, mayOperate, onChanged }) {
  const shard = cluster.shards.find((entry) => entry.id === id);
  const [open, setOpen] = useState(null);
  const closeDialog = () => setOpen(null);
  const close = html`<${Button} kind="quiet" onClick=${() => setParams({ shard: null },
    { replace: false })}>Close<//>`;
  if (!shard) {
    return html`<${Section} title=${`Shard ${id}`} actions=${close}><${Notice} kind="warn"
      title="There is no such shard" /><//>`;
  }
  const isData = shard.type !== "registry";
  const dialogs = { transfer: Transfer, slots: MoveSlots, remove: RemoveShard };
  const slots = moves.shards.find((entry) => entry.shard === id);
  return html`<${Section} title=${shardTitle(shard)} actions=${html`
      ${mayOperate && html`<${Button} onClick=${() => setOpen("transfer")}>Transfer leadership…<//>`}
      ${mayOperate && isData && html`<${Button} onClick=${() => setOpen("slots")}>Move slots here…<//>`}
      ${mayOperate && isData && shard.slots === 0 && html`<${Button} onClick=${() =>
        setOpen("remove")}>Remove…<//>`}
      ${close}`}>
    <${Facts} items=${[
      ["Name", html`<${Text} value=${shard.name} inline />`],
      ["Leader", shard.leader === null ? html`<${Badge} kind="error">none known<//>`
        : `node ${shard.leader}`],
      ["Term", count(shard.term)],
      isData && ["Slots", html`${count(shard.slots)} ${slots?.slots && html`<${Text} value=${slots.slots} mono
        max=${120} />`}`],
    ]} />
    <${Placement} cluster=${cluster} shard=${shard} />
    ${open && html`<${dialogs[open]} shard=${shard} cluster=${cluster} onClose=${closeDialog}
      onChanged=${onChanged} />`}
  <//>`;
}

function Placement({ cluster, shard }) {
  const load = useLoad((signal) => get(`/v1/cluster/shards/${shard.id}/explain`, {}, { signal }), [shard.id]);
  const lag = replicaLag(cluster);
  const columns = [
    { label: "Host", render: ({ node }) => `Node ${node}` },
    { label: "Role", render: ({ node, role, written }) => html`<${Badge} kind=${role === "none" ? "plain"
      : "accent"}>${
      shard.leader === node && role === "voter" ? "leader" : role}<//>${!written && html` <${Badge}
        kind="warn">not yet<//>`}` },
    { label: "Lag", class: "number", render: ({ node }) => {
      const entries = lag.get(`${shard.id}:${node}`);
      return entries === undefined || entries === null ? "" : count(entries);
    } },
    { label: "Why", render: ({ reason }) => html`<${Text} value=${reason} />` },
  ];
  return html`<h3>Why its replicas are where they are</h3><${Loaded} load=${load} render=${({ hosts }) =>
    html`<${Table} label="Placement of the shard" columns=${columns} rows=${hosts} rowKey=${({ node }) =>
      node} />`} />`;
}

function Transfer({ shard, cluster, onClose, onChanged }) {
  const candidates = cluster.replicas.filter(({ shard: id, voter, node }) => id === shard.id && voter
    && node !== shard.leader);
  const [to, setTo] = useState(String(candidates[0]?.node ?? ""));
  const run = async () => {
    await post(`/v1/cluster/shards/${shard.id}/transfer`, undefined, { query: { to } });
    setParams({ progress: `shards/${shard.id}/transfer/${to}` });
    onClose();
    onChanged();
  };
  return html`<${FormDialog} title=${`Transfer the leadership of shard ${shard.id}`} submit="Transfer"
    onClose=${onClose}
    onSubmit=${run} disabled=${to === ""}>
    ${candidates.length === 0
      ? html`<${Notice} kind="warn" title="No other host has a vote in this shard" />`
      : html`<p>Done once: the cluster may transfer it again later.</p>
        <${SelectField} label="New leader" value=${to} onChange=${setTo}
          options=${candidates.map(({ node }) => ({ value: String(node), label: `Node ${node}` }))} />`}<//>`;
}

function MoveSlots({ shard, onClose, onChanged }) {
  const [slots, setSlots] = useState("");
  const isWrong = slots !== "" && !SLOT_SET.test(slots);
  const run = async () => {
    const { moves } = await post(`/v1/cluster/shards/${shard.id}/slots`, { slots });
    toast(moves === 0 ? "The shard owns these slots already" : `${plural(moves, "move")} requested`);
    onClose();
    onChanged();
  };
  return html`<${FormDialog} title=${`Move slots to shard ${shard.id}`} submit="Move" onClose=${onClose}
    onSubmit=${run}
    disabled=${slots === "" || isWrong}>
    <p>The shard will own these slots. Clients go on reading and writing; no backup can be made until the
      moves are done.</p>
    <${TextField} label="Slots" value=${slots} onInput=${setSlots} mono placeholder="0-99,200"
      hint="Slots from 0 to 16383, as numbers and ranges with commas." error=${isWrong
        ? "Write slots such as 0-99,200." : ""} /><//>`;
}

function RemoveShard({ shard, onClose, onChanged }) {
  const run = async () => {
    await del(`/v1/cluster/shards/${shard.id}`);
    toast(`Shard ${shard.id} removed`);
    onClose();
    setParams({ shard: null });
    onChanged();
  };
  return html`<${ConfirmByName} title=${`Remove shard ${shard.id}`} name=${shard.name} noun="shard"
    submit="Remove" run=${run}
    onClose=${onClose}><p>It owns no slots. Its replicas are deleted, and its number is never given
      again.</p><//>`;
}
