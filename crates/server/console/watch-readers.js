// Who reads a configuration namespace or container now: open watches and long polls, at all nodes.
import { html, useState } from "./lib-html.js";
import { get, path } from "./lib-api.js";
import { useLoad } from "./lib-load.js";
import { href, navigate, useParam } from "./lib-router.js";
import { VirtualTable } from "./lib-table.js";
import { Name, Text, plural } from "./lib-text.js";
import { Badge, Button, Empty, Loaded, Notice, TextField } from "./lib-ui.js";

const POLL_MS = 10_000;

export function Readers() {
  const [namespace] = useParam("namespace");
  const [container] = useParam("container");
  return html`<${Form} key=${`${namespace} ${container}`} namespace=${namespace} container=${container} />
    ${namespace === ""
      ? html`<${Empty} title="Which namespace?">Give a namespace, and a container of it if you like.<//>`
      : html`<${List} namespace=${namespace} container=${container} />`}`;
}

function Form({ namespace, container }) {
  const [typed, setTyped] = useState({ namespace, container });
  const submit = (event) => {
    event.preventDefault();
    navigate(href(["watch", "readers"], typed));
  };
  return html`<form class="row-end watch-form" onSubmit=${submit}>
    <div class="grow"><${TextField} label="Namespace" value=${typed.namespace} mono required
      onInput=${(value) => setTyped({ ...typed, namespace: value })} /></div>
    <div class="grow"><${TextField} label="Container (optional)" value=${typed.container} mono
      onInput=${(value) => setTyped({ ...typed, container: value })} /></div>
    <${Button} type="submit">Show readers<//></form>`;
}

function List({ namespace, container }) {
  const load = useLoad((signal) => get(path`/api/namespaces/${namespace}/readers`, { container }, { signal }),
    [namespace, container], { poll_ms: POLL_MS });
  const columns = [
    { label: "Client", render: ({ label, address }) => (label
      ? html`<${Name} value=${label} /> <span class="muted"><${Text} value=${address} inline mono /></span>`
      : html`<${Name} value=${address} />`) },
    { label: "Principal", class: "hide-narrow", width: "18%", render: ({ principal }) => html`<${Name}
      value=${principal ?? ""} />` },
    { label: "Reads", width: "20%", render: (reader) => (reader.container
      ? html`<${Name} value=${reader.container} />` : html`<span class="muted">the namespace</span>`) },
    { label: "By", class: "hide-narrow", width: "110px", render: ({ poll }) => html`<${Badge}>${poll
      ? "long poll" : "stream"}<//>` },
    { label: "Node", class: "number hide-narrow", width: "80px", render: ({ node }) => node },
    { label: "Revision", class: "number", width: "100px", render: ({ revision }) => String(revision) },
  ];
  return html`<${Loaded} load=${load} render=${({ total, readers, missing }) => html`<div class="stack">
    <p class="muted" role="status">${plural(total, "client")} ${total === 1 ? "reads" : "read"} it now.${
      readers.length < total ? ` The first ${readers.length} are shown.` : ""} Clients that fetch it from time
        to time are not among them.</p>
    ${missing.length > 0 && html`<${Notice} kind="warn"
      title="The list is not complete">Node ${missing.join(", ")} did not answer;
      its clients are missing.<//>`}
    ${readers.length === 0
      ? html`<${Empty} title="No readers" />`
      : html`<${VirtualTable} label="Readers" columns=${columns} rows=${readers}
          rowKey=${({ node, address, container: read, poll }) => `${node} ${address} ${read
            ?? ""} ${poll}`} />`}</div>`} />`;
}
