// A container: the document that programs read, edited as a whole or by its fields; who wrote what; schema;
// history.
import { html, useState } from "./lib-html.js";
import { get, send, withQuery } from "./lib-api.js";
import { may } from "./lib-access.js";
import { useAction, useLoad } from "./lib-load.js";
import { navigate, route, useParam } from "./lib-router.js";
import { Badge, Button, ErrorNotice, Facts, LinkButton, Loaded, Notice, PageHead, SelectField, Tabs,
  TextField } from "./lib-ui.js";
import { Name, Text, Time, plural } from "./lib-text.js";
import { VirtualTable } from "./lib-table.js";
import { DraftBanner, goAfter } from "./config-change.js";
import { Editor, useEdit } from "./config-editor.js";
import { FieldsEditor } from "./config-fields.js";
import { Author, History } from "./config-history.js";
import { DeleteItem, InheritedBadge, Readers, SchemaEditor } from "./config-item.js";
import { configLink, containerPath, namespacePath, valueLine } from "./config-api.js";

const editable = ["yaml", "json", "toml", "properties"];
const all = [...editable, "env"];

async function document(namespace, name, format, signal, query = {}) {
  const response = await send("GET", `${containerPath(namespace, name)}/dl`,
    { query: { format, ...query }, signal });
  return response.text();
}

/**
 * Shows the document as a program with a label gets it, or with its secrets. It cannot be edited in this
 * form.
 */
function OtherViews({ namespace, name, format }) {
  const [label, setLabel] = useState("");
  const [shown, setShown] = useState(null);
  const asLabel = useAction(async () => setShown(
    { title: `As a reader with the label ${label}`,
    text: await document(namespace, name, format, undefined, { label }) }));
  const reveal = useAction(async () => setShown(
    { title: "With its secrets", text: await document(namespace, name, format, undefined,
    { reveal: true }) }));
  return html`<details class="other-views"><summary>As another reader sees it</summary><div class="stack">
    <div class="row-end"><${TextField} label="Label of the reader" value=${label} onInput=${setLabel} mono
      maxlength="128" />
      <${Button} onClick=${asLabel.run} busy=${asLabel.busy} disabled=${label === ""}>Show<//>
      ${may("reveal", `config:${namespace}`) &&
        html`<${Button} onClick=${reveal.run} busy=${reveal.busy}>Reveal secrets<//>`}</div>
    <${ErrorNotice} error=${asLabel.error ?? reveal.error} />
    ${shown && html`<div class="row"><h3><${Text} value=${shown.title} inline /></h3>
      <${Button} kind="quiet" onClick=${() => setShown(null)}>Hide<//></div>
      <pre class="document" tabindex="0"><${Text} value=${shown.text} mono max=${20_000} /></pre>`}</div>
        </details>`;
}

function DocumentForm({ namespace, name, format, base, reload, onSaved, readOnly, from }) {
  const state = useEdit(`document ${JSON.stringify([namespace, name, format])}`, base);
  const build = ({ text }) => ({ change:
    { address: `${containerPath(namespace, name)}/import`, query: { format }, body: text } });
  return html`<${Editor} namespace=${namespace} label="Document" title="Review the change of the document"
    state=${state} build=${build} reload=${reload}
    onSaved=${onSaved} readOnly=${readOnly}
      actions=${!readOnly && from === undefined &&
      html`<${DeleteItem} namespace=${namespace} noun="container" name=${name}
      address=${containerPath(namespace, name)} />`} />`;
}

function DocumentView({ namespace, name, readOnly, from }) {
  const [format, setFormat] = useParam("format", "yaml");
  const loadBase = async (signal) => {
    const { revision } = await get(namespacePath(namespace), {}, { signal });
    return { text: await document(namespace, name, format, signal), revision,
      history: `${containerPath(namespace, name)}/history` };
  };
  const load = useLoad(loadBase, [namespace, name, format]);
  const canEdit = !readOnly && editable.includes(format);
  const download = withQuery(`${containerPath(namespace, name)}/dl`,
    { format, filename: `${name}.${format}` });
  return html`<div class="row-end document-bar">
    <${SelectField} label="Format" value=${format} options=${all} onChange=${setFormat} />
      <${LinkButton} href=${download} download=${`${name}.${format}`}>Download<//>
      ${!editable.includes(format) && html`<span
        class="muted">env files can be downloaded, but not read back.</span>`}</div>
    <${Loaded} load=${load} render=${(base) =>
      html`<${DocumentForm} key=${format} ...${{ namespace, name, format, base, from }} readOnly=${!canEdit}
      reload=${() => loadBase()} onSaved=${(done) => (done.draft ? goAfter(namespace, done) : load.reload())}
        />`} />
    <${OtherViews} ...${{ namespace, name, format }} />`;
}

function Blame({ namespace, name }) {
  const load = useLoad((signal) => get(`${containerPath(namespace, name)}/blame`, {}, { signal }),
    [namespace, name]);
  const columns = [
    { label: "Path", width: "24%", render: (row) =>
      html`<a href=${configLink(namespace, ["pair", row.pair])}><${Name} value=${row.path} /></a>` },
    { label: "Value", render: (row) => html`<${Text} value=${valueLine(row.value)} inline mono max=${200}
      />` },
    { label: "Revision", width: "86px", class: "number", render: (row) => row.revision },
    { label: "Author", width: "16%", class: "hide-narrow",
      render: (row) => (row.author === undefined ? html`<span class="muted">not kept</span>`
      : html`<${Author} of=${row} />`) },
    { label: "Message", width: "18%", class: "hide-narrow",
      render: (row) => html`<${Text} value=${row.message ?? ""} inline max=${120} />` },
    { label: "When", width: "120px", class: "hide-narrow",
      render: (row) => html`<${Time} ms=${row.time} />` },
  ];
  return html`<${Loaded} load=${load} render=${(rows) =>
    html`<${VirtualTable} label="Who wrote which value" columns=${columns} rows=${rows}
    rowKey=${(row) => row.path} />`} />`;
}

const tabs = [["document", "Document"], ["fields", "Fields"], ["blame", "Who wrote what"],
  ["history", "History"], ["schema", "Schema"], ["readers", "Readers"]];

function View({ view, namespace, name, container, reload, readOnly }) {
  const address = containerPath(namespace, name);
  const onSaved = (done) => (done.draft ? goAfter(namespace, done) : reload());
  if (view === "fields") return html`<${FieldsEditor} ...${{ namespace, name, container, readOnly, onSaved }}
    reload=${() => get(address)} />`;
  if (view === "blame") return html`<${Blame} namespace=${namespace} name=${name} />`;
  if (view === "history") return html`<${History} namespace=${namespace} address=${address} noun="container"
    onChanged=${reload} />`;
  if (view === "schema") return html`<${SchemaEditor} namespace=${namespace}
    id=${`container ${namespace} ${name}`} address=${address} history=${`${address}/history`}
    readOnly=${readOnly} />`;
  if (view === "readers") return html`<${Readers} namespace=${namespace} container=${name} />`;
  return html`<${DocumentView} ...${{ namespace, name, readOnly }} from=${container.inherited_from} />`;
}

export function ContainerPage({ namespace, name }) {
  const view = route.value.params.view ?? "document";
  const load = useLoad((signal) => get(containerPath(namespace, name), {}, { signal }), [namespace, name]);
  const readers = useLoad((signal) => get(`${namespacePath(namespace)}/readers`, { container: name },
    { signal }), [namespace, name]);
  const crumbs = [{ label: "Configuration", link: "#/config" },
    { label: namespace, link: configLink(namespace) },
    { label: "Containers", link: configLink(namespace, [], { tab: "containers" }) }];
  const readOnly = !may("write", `config:${namespace}`);
  return html`<${PageHead} title=${html`<${Name} value=${name} /> <${Badge}>container<//> <${InheritedBadge}
    from=${load.data?.inherited_from} />`} crumbs=${crumbs}>
      <${DraftBanner} namespace=${namespace} />
      ${load.data && html`<${Facts} items=${[["Fields", String(load.data.fields.length)],
        readers.data && ["Watched by", plural(readers.data.total, "watcher")],
        ["Checksum", html`<code class="checksum">${load.data.checkSum.slice(0, 16)}…</code>`]]} />`}<//>
    <${Tabs} label="Parts of the container" current=${view}
      items=${tabs.map(([id, label]) => (
      { id, label, link: configLink(namespace, ["container", name],
      { view: id === "document" ? undefined : id }) }))} />
    <${Loaded} load=${load} render=${(container) => html`
      ${container.inherited_from !== undefined &&
        html`<${Notice}>Inherited from <a href=${configLink(container.inherited_from, ["container", name])}>
        <${Name} value=${container.inherited_from} />
        </a>. Saving here makes an own container in this namespace.<//>`}
      <${View} ...${{ view, namespace, name, container, readOnly }} reload=${load.reload} />`} />`;
}

/** A container that does not exist yet, by its fields. A whole document is imported instead. */
export function NewContainerPage({ namespace }) {
  const crumbs = [{ label: "Configuration", link: "#/config" },
    { label: namespace, link: configLink(namespace) }];
  const onSaved = (done, name) => (done.draft ? goAfter(namespace, done)
    : navigate(configLink(namespace, ["container", name])));
  return html`<${PageHead} title="New container" crumbs=${crumbs}><${DraftBanner} namespace=${namespace} />
      <p class="muted">Each field refers to a pair, to a list of pairs, or to pairs by name. To begin with a
        whole document, import a file on the page of the namespace.</p><//>
    <${FieldsEditor} namespace=${namespace} container=${null} readOnly=${!may("write", `config:${namespace}`)}
      onSaved=${onSaved} />`;
}
