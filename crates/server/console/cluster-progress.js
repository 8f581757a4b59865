// The progress of requested changes: one change of a host or a leader, and the moves of slots. It polls only
// until the change is done.
import { html, useState } from "./lib-html.js";
import { get } from "./lib-api.js";
import { useLoad, usePolling } from "./lib-load.js";
import { setParams } from "./lib-router.js";
import { Button, ErrorNotice, Notice, Section } from "./lib-ui.js";
import { Table } from "./lib-table.js";
import { Text, count, plural } from "./lib-text.js";

const POLL_MS = 2000;
const HOST_CHANGE = /^hosts\/(\d+)\/(add|follow|drain|undrain|remove)$/;
const TRANSFER = /^shards\/(\d+)\/transfer\/(\d+)$/;
const WORDS = {
  add: "may vote", follow: "gives away its votes", drain: "is drained", undrain: "may lead again",
    remove: "leaves the cluster",
};

/** The address and the sentence of a change in the URL; null if it is not one. */
function changeOf(text) {
  const host = HOST_CHANGE.exec(text);
  if (host) return { address: `/v1/cluster/${text}`, sentence: `Node ${host[1]} ${WORDS[host[2]]}` };
  const transfer = TRANSFER.exec(text);
  return transfer && {
    address: `/v1/cluster/shards/${transfer[1]}/transfer?to=${transfer[2]}`,
    sentence: `Node ${transfer[2]} leads shard ${transfer[1]}`,
  };
}

export function ChangeProgress({ change, onDone }) {
  const known = changeOf(change);
  const [isDone, setDone] = useState(false);
  const load = useLoad(known && (async (signal) => {
    const progress = await get(known.address, {}, { signal });
    if (progress.done && !isDone) {
      setDone(true);
      onDone();
    }
    return progress;
  }), [change]);
  usePolling(load.reload, known && !isDone ? POLL_MS : 0);
  if (!known) return null;
  const dismiss = html`<${Button} onClick=${() => setParams({ progress: null })}>${isDone ? "Close"
    : "Stop following"}<//>`;
  return html`<div class="stack change-progress">
    <${Notice} kind=${isDone ? "ok" : "info"} title=${isDone ? `Done: ${known.sentence}.`
      : `In progress: ${known.sentence}.`}
      actions=${dismiss}>${load.data?.waiting_for.length > 0 && html`<ul>${load.data.waiting_for.map((text) =>
        html`<li><${Text} value=${text} /></li>`)}</ul>`}<//>
    <${ErrorNotice} error=${load.error} />
  </div>`;
}

/** The unfinished moves of slots, in their order. */
export function Moves({ moves }) {
  if (moves.moves.length === 0) return null;
  const slots = moves.moves.reduce((sum, move) => sum + move.count, 0);
  const columns = [
    { label: "Move", render: ({ id }) => count(id) },
    { label: "From shard", class: "number", render: ({ from }) => from },
    { label: "To shard", class: "number", render: ({ to }) => to },
    { label: "Slots", class: "number", render: (move) => count(move.count) },
    { label: "Which", render: (move) => html`<${Text} value=${move.slots} mono max=${80} />` },
  ];
  return html`<${Section} title="Moves of slots">
    <p class="muted" role="status">${plural(moves.moves.length, "move")} with ${plural(slots, "slot")} left.
      They are done one
      after the other; no backup can be made meanwhile.</p>
    <${Table} label="List of moves" columns=${columns} rows=${moves.moves} rowKey=${({ id }) => id} /><//>`;
}
