// Tables. `Table` shows all rows; `VirtualTable` renders only rows in view, for lists of thousands.
import { html, useLayoutEffect, useRef, useState } from "./lib-html.js";

const OVERSCAN_ROWS = 12;

const Head = ({ columns }) => html`<thead><tr aria-rowindex="1">${columns.map((column) =>
  html`<th scope="col" class=${column.class ?? ""}>${column.label}</th>`)}</tr></thead>`;

const Cells = ({ columns, row }) => columns.map((column, i) => (i === 0
  ? html`<th scope="row" class=${column.class ?? ""}>${column.render(row)}</th>`
  : html`<td class=${column.class ?? ""}>${column.render(row)}</td>`));

const Columns = ({ columns }) => html`<colgroup>${columns.map((column) =>
  html`<col class=${column.class ?? ""} style=${{ width: column.width }} />`)}</colgroup>`;

/**
 * `columns`: `{ label, render(row), width, class }`; the first one heads its row. `key(row)` identifies a
 * row.
 */
export function Table({ label, columns, rows, rowKey, rowClass = () => "" }) {
  return html`<div class="table-frame" role="region" aria-label=${label} tabindex="0"><table class="table">
    <${Columns} columns=${columns} /><${Head} columns=${columns} />
    <tbody>${rows.map((row) => html`<tr key=${rowKey(row)} class=${rowClass(row)}>
      <${Cells} columns=${columns} row=${row} /></tr>`)}</tbody>
  </table></div>`;
}

/** As `Table`, in a frame that scrolls. All rows have the height `row_px`. */
export function VirtualTable({ label, columns, rows, rowKey, row_px = 36, rowClass = () => "" }) {
  const frame = useRef(null);
  const [view, setView] = useState({ first: 0, last: 60 });
  const measure = () => {
    const { scrollTop, clientHeight } = frame.current;
    const first = Math.max(0, Math.floor(scrollTop / row_px) - OVERSCAN_ROWS);
    const last = Math.ceil((scrollTop + clientHeight) / row_px) + OVERSCAN_ROWS;
    setView((old) => (old.first === first && old.last === last ? old : { first, last }));
  };
  // A change of the rows scrolls or resizes the frame if it changes what is in view.
  useLayoutEffect(() => {
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.min(view.first, rows.length);
  const shown = rows.slice(first, view.last);
  const after = Math.max(0, rows.length - first - shown.length);
  const spacer = (amount) => amount > 0 &&
    html`<tr class="spacer" aria-hidden="true">
      <td colspan=${columns.length} style=${{ height: `${amount * row_px}px` }}></td></tr>`;
  return html`<div class="table-frame table-virtual" ref=${frame} onScroll=${measure} role="region"
    aria-label=${label} tabindex="0">
    <table class="table table-fixed" aria-rowcount=${rows.length + 1}>
      <${Columns} columns=${columns} /><${Head} columns=${columns} />
      <tbody>${spacer(first)}${shown.map((row, i) => html`<tr key=${rowKey(row)} class=${rowClass(row)}
        aria-rowindex=${first + i + 2} style=${{ height: `${row_px}px` }}>
          <${Cells} columns=${columns} row=${row} /></tr>`)}${spacer(after)}</tbody>
    </table></div>`;
}
