// What a pair page and a container page share: the deletion, who reads an item, and its schema.
import { html, useState } from "./lib-html.js";
import { get } from "./lib-api.js";
import { useLoad } from "./lib-load.js";
import { Badge, Button, Empty, Loaded, Notice } from "./lib-ui.js";
import { Table } from "./lib-table.js";
import { Name, Text, plural } from "./lib-text.js";
import { ChangeDialog, goAfter } from "./config-change.js";
import { Editor, useEdit } from "./config-editor.js";
import { configLink, namespacePath, pretty } from "./config-api.js";

/** The button that deletes a pair or container, or an override, so that the inherited item shows again. */
export function DeleteItem({ namespace, noun, name, address }) {
  const [change, setChange] = useState(null);
  const onDone = (done) => goAfter(namespace, done,
    configLink(namespace, [], { tab: noun === "pair" ? undefined : "containers" }));
  return html`<${Button} onClick=${() => setChange({ method: "DELETE", address })}>Delete<//>
    ${change && html`<${ChangeDialog} namespace=${namespace} title=${`Delete the ${noun}`} change=${change}
      danger onClose=${() => setChange(null)} onDone=${onDone}>
      <p>The ${noun} <strong><${Text} value=${name} inline mono />
        </strong> is deleted. A rollback brings it back as long as history holds it.</p><//>`}`;
}

const readerColumns = [
  { label: "Client", render: (reader) =>
    html`<${Name} value=${reader.label ?? reader.address ?? "unknown"} />` },
  { label: "Principal", render: (reader) =>
    (reader.principal ? html`<${Name} value=${reader.principal} />`
    : html`<span class="muted">none</span>`) },
  { label: "Reads", render: (reader) => (reader.container === undefined ? "the whole namespace"
    : html`<${Name} value=${reader.container} />`) },
  { label: "Revision", class: "number", render: (reader) => reader.revision },
  { label: "Node", class: "number hide-narrow", render: (reader) => reader.node },
  { label: "How", class: "hide-narrow", render: (reader) => (reader.poll ? "long poll" : "stream") },
];

/** The clients that watch now. Without `container`: all of the namespace. */
export function Readers({ namespace, container, revision }) {
  const load = useLoad((signal) => get(`${namespacePath(namespace)}/readers`, { container }, { signal }),
    [namespace, container], { poll_ms: 10_000 });
  return html`<${Loaded} load=${load} render=${({ readers, total, missing }) => html`
    ${missing.length > 0 && html`<${Notice} kind="warn">
      ${plural(missing.length, "node")} did not answer (${missing.join(", ")}): clients there are not
      listed.<//>`}
    ${total === 0
      ? html`<${Empty} title="No client watches this now">Programs that download without watching are not
        listed.<//>`
      : html`<p class="muted">${plural(total, "client")} watch now${revision
        ? `. The namespace is at revision ${revision}` : ""}.</p>
        <${Table} label="Clients that watch" columns=${readerColumns} rows=${readers}
          rowKey=${(reader) => JSON.stringify(reader)} />`}`} />`;
}

/** Edits the schema of a pair or container. An empty text removes it. */
export function SchemaEditor({ namespace, id, address, history, readOnly }) {
  const loadBase = async (signal) => {
    const { revision } = await get(namespacePath(namespace), {}, { signal });
    const schema = await get(`${address}/schema`, {}, { signal });
    return { text: pretty(schema), revision, history };
  };
  const load = useLoad(loadBase, [address]);
  const build = ({ text }) => {
    if (text.trim() === "") return { change: { method: "DELETE", address: `${address}/schema` } };
    try {
      JSON.parse(text);
      return { change: { address: `${address}/schema`, body: text } };
    } catch (error) {
      return { error: `Not valid JSON: ${error.message}.` };
    }
  };
  return html`<p class="muted">JSON Schema (draft 2020-12). Every change is checked against it. An empty text
    removes the schema.</p>
    <${Loaded} load=${load} render=${(base) =>
      html`<${SchemaForm} ...${{ namespace, id, base, build, readOnly }} reload=${loadBase}
      onSaved=${load.reload} />`} />`;
}

function SchemaForm({ namespace, id, base, build, reload, onSaved, readOnly }) {
  const state = useEdit(`${id} schema`, base);
  return html`<${Editor} namespace=${namespace} label="Schema" title="Change the schema"
    ...${{ state, build, reload, readOnly }} onSaved=${onSaved} />`;
}

export const InheritedBadge = ({ from }) => from !== undefined &&
  html`<${Badge} kind="accent" title="Another namespace sets it">from <${Text} value=${from} inline max=${40}
    /><//>`;
