// A namespace: its head with what holds for all of it, and the tables of pairs and containers.
import { html, useEffect, useMemo, useState } from "./lib-html.js";
import { get } from "./lib-api.js";
import { may } from "./lib-access.js";
import { useLoad, usePolling, useTypedParam } from "./lib-load.js";
import { route } from "./lib-router.js";
import { Badge, Button, Empty, ErrorNotice, Facts, LinkButton, Loading, PageHead, Tabs,
  TextField } from "./lib-ui.js";
import { Name, Text, bytes, count, plural } from "./lib-text.js";
import { VirtualTable } from "./lib-table.js";
import { CanaryNotice } from "./config-canary.js";
import { DraftBanner } from "./config-change.js";
import { Drafts } from "./config-drafts.js";
import { Environments } from "./config-environments.js";
import { ExportDialog } from "./config-export.js";
import { History } from "./config-history.js";
import { ImportDialog } from "./config-import.js";
import { InheritedBadge, Readers } from "./config-item.js";
import { Settings } from "./config-settings.js";
import { allPages, configLink, namespacePath, typeWord, valueLine } from "./config-api.js";

const FILTER_CHARACTERS = 2_000;

/** All rows of a list, page by page, and which of them a filter keeps. */
function useRows(namespace, member, revision, textOf) {
  const [state, setState] = useState({ rows: [], total: undefined, error: null });
  useEffect(() => {
    const controller = new AbortController();
    const onPage = (all, total) => setState({ rows: all, total, error: null });
    allPages(`${namespacePath(namespace)}/${member}`, member, { signal: controller.signal, onPage })
      .catch((error) => { if (!controller.signal.aborted) setState((old) => ({ ...old, error })); });
    return () => controller.abort();
  }, [namespace, member, revision]);
  const texts = useMemo(() => state.rows.map((row) => textOf(row).slice(0, FILTER_CHARACTERS).toLowerCase()),
    [state.rows]);
  const keep = (filter) => (filter === "" ? state.rows
    : state.rows.filter((_, i) => texts[i].includes(filter.toLowerCase())));
  return { ...state, keep };
}

function Rows({ rows, noun, columns, filterLabel, empty }) {
  const [filter, setFilter] = useTypedParam("filter");
  const shown = useMemo(() => rows.keep(filter), [rows.rows, filter]);
  if (rows.error) return html`<${ErrorNotice} error=${rows.error} />`;
  if (rows.total === undefined) return html`<${Loading} />`;
  if (rows.total === 0) return empty;
  return html`<div class="stack"><div class="row"><div class="grow">
    <${TextField} label=${filterLabel} hideLabel type="search" placeholder=${filterLabel} value=${filter}
    onInput=${setFilter} /></div>
      <span class="muted" role="status">${count(shown.length)} of ${plural(rows.total, noun)}
        ${rows.rows.length < rows.total ? ` (${count(rows.rows.length)} loaded)` : ""}</span></div>
    <${VirtualTable} label=${`${noun}s`} columns=${columns} rows=${shown} rowKey=${(row) => row.key} />
      </div>`;
}

function Pairs({ namespace, revision, canWrite }) {
  const rows = useRows(namespace, "pairs", revision, (pair) => `${pair.key} ${valueLine(pair.value)}`);
  const columns = [
    { label: "Key", width: "36%", render: (pair) =>
      html`<a href=${configLink(namespace, ["pair", pair.key])}><${Name} value=${pair.key} /></a>` },
    { label: "Value", render: (pair) => html`<${Text} value=${valueLine(pair.value)} inline mono max=${300}
      />` },
    { label: "Type", width: "190px", class: "hide-narrow",
      render: (pair) => html`<${Badge}>${typeWord(pair.datatype)}
      <//> <${InheritedBadge} from=${pair.inherited_from} />` },
  ];
  const empty = html`<${Empty} title="No pairs yet"
    actions=${canWrite && html`<${LinkButton} kind="primary"
    href=${configLink(namespace, ["new-pair"])}>New pair<//>`}>A pair is a key with a typed value.<//>`;
  return html`<${Rows} rows=${rows} noun="pair" columns=${columns} filterLabel="Filter by key or value"
    empty=${empty} />`;
}

function Containers({ namespace, revision, canWrite }) {
  const rows = useRows(namespace, "containers", revision,
    (container) => `${container.key} ${container.fields.map((field) => field.key).join(" ")}`);
  const columns = [
    { label: "Container", width: "36%", render: (container) =>
      html`<a href=${configLink(namespace, ["container", container.key])}><${Name} value=${container.key} />
      </a>` },
    { label: "Fields", render: (container) =>
      html`<span class="muted">${count(container.fields.length)}:</span> <${Text} inline mono max=${200}
      value=${container.fields.slice(0, 30).map((field) => field.key).join(", ")} />` },
    { label: "Set in", width: "190px", class: "hide-narrow",
      render: (container) => html`<${InheritedBadge} from=${container.inherited_from} />` },
  ];
  const empty = html`<${Empty} title="No containers yet"
    actions=${canWrite && html`<${LinkButton} kind="primary"
    href=${configLink(namespace, ["new-container"])}>New container<//>`}>
    A container is the document that programs read. Its fields refer to pairs.<//>`;
  return html`<${Rows} rows=${rows} noun="container" columns=${columns}
    filterLabel="Filter by container or field" empty=${empty} />`;
}

function Actions({ namespace, canWrite }) {
  const [dialog, setDialog] = useState(null);
  return html`<${Button} onClick=${() => setDialog("export")}>Export<//>
    ${canWrite && html`<${Button} onClick=${() => setDialog("import")}>Import a file<//>
      <${LinkButton} href=${configLink(namespace, ["new-container"])}>New container<//>
      <${LinkButton} kind="primary" href=${configLink(namespace, ["new-pair"])}>New pair<//>`}
    ${dialog === "export" && html`<${ExportDialog} namespace=${namespace} onClose=${() => setDialog(null)}
      />`}
    ${dialog === "import" && html`<${ImportDialog} namespace=${namespace} onClose=${() => setDialog(null)}
      />`}`;
}

function tabItems(namespace, info, drafts) {
  const link = (tab) => configLink(namespace, [], { tab });
  return [
    { id: "pairs", label: "Pairs", link: link(), amount: count(info.pairs) },
    { id: "containers", label: "Containers", link: link("containers"), amount: count(info.containers) },
    { id: "drafts", label: "Drafts", link: link("drafts"), amount: drafts.length || undefined },
    { id: "history", label: "History", link: link("history") },
    { id: "environments", label: "Environments", link: link("environments") },
    { id: "readers", label: "Readers", link: link("readers") },
    { id: "settings", label: "Settings", link: link("settings") },
  ];
}

function Body({ namespace, tab, data, reload, canWrite }) {
  const { info, inheritance } = data;
  if (tab === "containers") return html`<${Containers} key="containers" namespace=${namespace}
    revision=${info.revision} canWrite=${canWrite} />`;
  if (tab === "drafts") return html`<${Drafts} namespace=${namespace} />`;
  if (tab === "history") return html`<${History} namespace=${namespace} address=${namespacePath(namespace)}
    noun="namespace" onChanged=${reload} />`;
  if (tab === "environments") return html`<${Environments} ...${{ namespace, inheritance, canWrite, reload }}
    />`;
  if (tab === "readers") return html`<${Readers} namespace=${namespace} revision=${info.revision} />`;
  if (tab === "settings") return html`<${Settings} ...${{ namespace, info, inheritance, canWrite, reload }}
    />`;
  return html`<${Pairs} key="pairs" namespace=${namespace} revision=${info.revision} canWrite=${canWrite} />`;
}

export function NamespacePage({ namespace }) {
  const tab = route.value.params.tab ?? "pairs";
  const load = useLoad(async (signal) => {
    const root = namespacePath(namespace);
    const [info, inheritance, drafts] = await Promise.all(
      ["", "/inheritance", "/drafts"].map((part) => get(root + part, {}, { signal })));
    return { info, inheritance, drafts };
  }, [namespace]);
  // One small request, and all others only after a change.
  usePolling(async () => {
    const latest = await get(namespacePath(namespace)).catch(() => null);
    if (latest && latest.revision !== load.data?.info.revision) await load.reload();
  }, 15_000);
  const canWrite = may("write", `config:${namespace}`);
  const { info, inheritance, drafts } = load.data ?? {};
  return html`<${PageHead} title=${html`<${Name} value=${namespace}
    /> ${inheritance?.protected && html`<${Badge} kind="warn">protected<//>`}`}
      crumbs=${[{ label: "Configuration", link: "#/config" }]}
        actions=${info && html`<${Actions} namespace=${namespace} canWrite=${canWrite} />`}>
      <${DraftBanner} namespace=${namespace} />
        <${CanaryNotice} namespace=${namespace} canary=${inheritance?.canary} />
      ${info && html`<${Facts} items=${[["Revision", count(info.revision)], ["Size", bytes(info.bytes)],
        ["History", bytes(info.historyBytes)],
        inheritance.parents.length > 0 &&
          ["Inherits from", inheritance.parents.map((parent) =>
          html`<a href=${configLink(parent)}><${Name} value=${parent} /></a> `)]]} />`}<//>
    <${ErrorNotice} error=${load.error} actions=${html`<${Button} onClick=${load.reload}>Try again<//>`} />
    ${!load.data && !load.error && html`<${Loading} />`}
    ${load.data && html`<${Tabs} label="Parts of the namespace" current=${tab}
      items=${tabItems(namespace, info, drafts)} />
      <${Body} ...${{ namespace, tab, canWrite }} data=${load.data} reload=${load.reload} />`}`;
}
