// The list of the Keys screen: folders and keys directly below a prefix, page by page, with an honest count.
// It owns the pages that are loaded; the server folds keys into folders.
import { html, useEffect, useRef, useState } from "./lib-html.js";
import { useAction } from "./lib-load.js";
import { VirtualTable } from "./lib-table.js";
import { Name, count, plural } from "./lib-text.js";
import { Button, Empty, ErrorNotice, Loading } from "./lib-ui.js";
import { keyId, sameKey } from "./lib-bytes.js";
import { formatDuration } from "./lib-ops.js";
import { behindPrefix, loadPage } from "./keys-api.js";

const RELOADED_ROWS_MAX = 5000;

/** Loads pages behind each other. A reload loads as many rows as were shown before. */
function usePages(place, changes) {
  const [state, setState] = useState({ rows: [], next: null, isLoaded: false });
  const controller = useRef(null);
  const load = useAction(async (after, rows, wantedRows) => {
    controller.current?.abort();
    controller.current = new AbortController();
    const { signal } = controller.current;
    let cursor = after;
    let all = rows;
    do {
      const page = await loadPage({ ...place, after: cursor }, signal);
      all = all.concat(page.rows);
      cursor = page.next;
    } while (cursor && all.length < wantedRows);
    setState({ rows: all, next: cursor, isLoaded: true });
  });
  useEffect(() => {
    load.run(null, [], Math.min(state.rows.length, RELOADED_ROWS_MAX));
    return () => controller.current?.abort();
  }, [changes]);
  return { ...state, ...load, reload: () => load.run(null, [], 0), more: () => load.run(state.next,
    state.rows, 0) };
}

export function KeyList({ place, selected, changes, linkTo }) {
  const pages = usePages(place, changes);
  const isAborted = pages.error?.detail.startsWith("AbortError");
  return html`<div class="stack">
    <div class="row keys-count">
      <p class="muted" role="status">${pages.isLoaded && countSentence(pages.rows, pages.next)}</p>
      <span class="actions">
        ${pages.next && html`<${Button} onClick=${pages.more} busy=${pages.busy}>Load more<//>`}
        <${Button} kind="quiet" onClick=${pages.reload} busy=${pages.busy}>Reload<//>
      </span>
    </div>
    ${!isAborted && html`<${ErrorNotice} error=${pages.error} />`}
    ${!pages.isLoaded && pages.busy && html`<${Loading} />`}
    ${pages.isLoaded && (pages.rows.length === 0
      ? html`<${Empty} title="No keys">No key begins with this prefix.<//>`
      : html`<${KeyTable} rows=${pages.rows} place=${place} selected=${selected} linkTo=${linkTo} />`)}
  </div>`;
}

/** Says how much is shown, and whether that is all. */
function countSentence(rows, next) {
  const folders = rows.filter((row) => row.folder);
  const keys = rows.length - folders.length;
  const inside = folders.reduce((sum, folder) => sum + folder.keys, 0);
  const isExact = folders.every((folder) => folder.complete) && !next;
  const shown = [
    folders.length > 0 && plural(folders.length, "folder"),
    (keys > 0 || folders.length === 0) && plural(keys, "key"),
  ].filter(Boolean).join(" and ");
  const total = folders.length > 0 ? ` with ${isExact ? "" : "at least "}${plural(inside + keys,
    "key")} in all` : "";
  return next ? `The first ${shown}${total}; there are more.` : `${shown}${total}.`;
}

function KeyTable({ rows, place, selected, linkTo }) {
  const columns = [
    { label: "Name", render: (row) => html`<${RowName} row=${row} place=${place} link=${linkTo(row)}
      isSelected=${sameKey(row.key, selected)} />` },
    { label: "Version", class: "number", width: "104px", render: (row) => (row.folder
      ? html`<span class="muted">${row.complete ? "" : "≥ "}${plural(row.keys, "key")}</span>`
      : String(row.ver)) },
    { label: "Expires in", class: "number hide-narrow", width: "100px", render: (row) =>
      row.ttl_ms === undefined ? "" : formatDuration(row.ttl_ms) },
  ];
  return html`<${VirtualTable} label="Folders and keys" columns=${columns} rows=${rows} row_px=${34}
    rowKey=${(row) => (row.folder ? `folder ${keyId(row.folder)}` : keyId(row.key))}
    rowClass=${(row) => (sameKey(row.key, selected) ? "row-selected" : "")} />`;
}

function RowName({ row, place, link, isSelected }) {
  const rest = behindPrefix(row.folder ?? row.key, place.prefix);
  const name = rest.b64 === undefined
    ? html`<${Name} value=${rest.text === "" ? "(the prefix itself)" : rest.text} />`
    : html`<${Name} value=${rest.b64} /> <span class="badge">base64</span>`;
  return html`<a class=${row.folder ? "keys-folder" : "keys-key"} href=${link}
    aria-current=${isSelected ? "true" : undefined}
    aria-label=${row.folder ? `Folder ${rest.text ?? rest.b64}, ${count(row.keys)} keys`
      : undefined}>${name}</a>`;
}
