// The list of namespaces, and the search over names and values of all of them.
import { html, useEffect, useState } from "./lib-html.js";
import { get, request } from "./lib-api.js";
import { may, mayAny } from "./lib-access.js";
import { useAction, useLoad, useTypedParam } from "./lib-load.js";
import { navigate } from "./lib-router.js";
import { FormDialog } from "./lib-dialog.js";
import { Badge, Button, Empty, ErrorNotice, Loaded, Notice, PageHead, TextField } from "./lib-ui.js";
import { Name, Text, plural } from "./lib-text.js";
import { Table, VirtualTable } from "./lib-table.js";
import { ImportDialog } from "./config-import.js";
import { author, configLink, namespacePath, needsAuthor, typeWord, valueLine } from "./config-api.js";

const PAGE = 1000;

function CreateDialog({ onClose }) {
  const [name, setName] = useState("");
  const create = async () => {
    await request("POST", namespacePath(name),
      { query: { author: needsAuthor() ? author.value : undefined } });
    navigate(configLink(name));
  };
  return html`<${FormDialog} title="Create a namespace" submit="Create" onSubmit=${create} onClose=${onClose}
    disabled=${name === ""}>
    <${TextField} label="Name" value=${name} onInput=${setName} mono maxlength="128" required
      hint="Namespaces that inherit from each other need the same text in braces: {shop}/dev and {shop}/prod."
        /><//>`;
}

const hitColumns = [
  { label: "Found", width: "32%", render: (hit) =>
    html`<a href=${configLink(hit.namespace, [hit.kind, hit.key])}><${Name} value=${hit.key} /></a>` },
  { label: "Namespace", width: "22%", render: (hit) =>
    html`<a href=${configLink(hit.namespace)}><${Name} value=${hit.namespace} /></a>` },
  { label: "Type", width: "12%", class: "hide-narrow",
    render: (hit) => html`<${Badge}>${hit.kind === "container" ? "container" : typeWord(hit.datatype)}<//>` },
  { label: "Value", class: "hide-narrow",
    render: (hit) => (hit.value === undefined ? null
    : html`<${Text} value=${valueLine(hit.value)} inline mono max=${200} />`) },
  { label: "Used by", width: "14%", class: "hide-narrow",
    render: (hit) => (hit.kind === "pair" ? plural(hit.containers.length, "container") : null) },
];

function Hits({ text }) {
  const first = useLoad((signal) => get("/api/search", { text }, { signal }), [text]);
  const [rest, setRest] = useState({ matches: [], next: undefined });
  useEffect(() => setRest({ matches: [], next: first.data?.next }), [first.data]);
  const more = useAction(async () => {
    const page = await get("/api/search", { text, after: rest.next });
    setRest({ matches: [...rest.matches, ...page.matches], next: page.next });
  });
  return html`<${Loaded} load=${first} label="Searching…" render=${(page) => {
    const hits = [...page.matches, ...rest.matches];
    if (hits.length === 0 && rest.next === undefined) return html`<${Empty}
      title="Nothing found">Keys, values and fields were searched; case matters. Secrets are never
      searched.<//>`;
    return html`<p class="muted" role="status">${plural(hits.length, "match", "matches")}
      ${rest.next !== undefined ? " so far" : ""}</p>
      <${VirtualTable} label="Matches" columns=${hitColumns} rows=${hits}
        rowKey=${(hit) => JSON.stringify([hit.namespace, hit.kind, hit.key])} />
      ${rest.next !== undefined && html`<${Button} onClick=${more.run} busy=${more.busy}>Search further<//>`}
        <${ErrorNotice} error=${more.error} />`;
  }} />`;
}

const nameColumns = [{ label: "Namespace",
  render: (name) => html`<a href=${configLink(name)}><${Name} value=${name} /></a>` }];

function Names({ onCreate }) {
  const load = useLoad((signal) => get("/api/namespaces", { limit: PAGE }, { signal }), []);
  const [rest, setRest] = useState({ names: [], isComplete: false });
  const more = useAction(async () => {
    const names = await get("/api/namespaces", { limit: PAGE, offset: load.data.length + rest.names.length });
    setRest({ names: [...rest.names, ...names], isComplete: names.length < PAGE });
  });
  return html`<${Loaded} load=${load} render=${(first) => {
    if (first.length === 0) return html`<${Empty} title="No configuration yet"
      actions=${onCreate}>A namespace holds pairs (typed values) and containers (the documents that programs
      read).<//>`;
    const hasMore = first.length === PAGE && !rest.isComplete;
    return html`<p class="muted">${plural(first.length + rest.names.length, "namespace")}
      ${hasMore ? ", and more" : ""}</p>
      <${VirtualTable} label="Namespaces" columns=${nameColumns} rows=${[...first, ...rest.names]}
        rowKey=${(name) => name} />
      ${hasMore && html`<${Button} onClick=${more.run} busy=${more.busy}>Show more<//>`}
        <${ErrorNotice} error=${more.error} />`;
  }} />`;
}

/** Goes to a namespace by its name, for people whose grants do not allow the list. */
function OpenByName() {
  const [name, setName] = useState("");
  const open = (event) => {
    event.preventDefault();
    navigate(configLink(name));
  };
  return html`<${Notice} title="Your grants do not cover all namespaces">The list needs read config:*. Open a
    namespace by its name.<//>
    <form class="row-end" onSubmit=${open}><div class="grow">
      <${TextField} label="Namespace" mono value=${name} onInput=${setName} /></div>
      <${Button} type="submit" disabled=${name === ""}>Open<//></form>`;
}

export function NamespacesPage() {
  const [dialog, setDialog] = useState(null);
  const [text, setText, settled] = useTypedParam("q", 400);
  const canList = may("read", "config:*");
  const actions = mayAny("write", "config") &&
    html`<${Button} onClick=${() => setDialog("import")}>Import a file<//>
    <${Button} kind="primary" onClick=${() => setDialog("create")}>Create namespace<//>`;
  return html`<${PageHead} title="Configuration" actions=${actions} />
    <div class="stack">
      ${canList && html`<div role="search">
        <${TextField} label="Search in all namespaces: keys, values, fields" type="search" value=${text}
        onInput=${setText} hideLabel
        placeholder="Search in all namespaces: keys, values, fields" /></div>`}
      ${!canList ? html`<${OpenByName} />` : settled !== "" ? html`<${Hits} text=${settled} />`
        : html`<${Names} onCreate=${actions} />`}
    </div>
    ${dialog === "create" && html`<${CreateDialog} onClose=${() => setDialog(null)} />`}
    ${dialog === "import" && html`<${ImportDialog} onClose=${() => setDialog(null)} />`}`;
}
