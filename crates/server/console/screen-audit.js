// Audit: who made which administrative change. It owns the records that are loaded, follows new ones while it
// is not paused, and filters and exports what is loaded. The filter is in the URL.
import { html, useRef, useState } from "./lib-html.js";
import { get } from "./lib-api.js";
import { useAction, useLoad, usePolling } from "./lib-load.js";
import { setParams, useParam } from "./lib-router.js";
import { VirtualTable } from "./lib-table.js";
import { Name, Text, Time, count, plural } from "./lib-text.js";
import { Button, Empty, ErrorNotice, Loading, PageHead, SelectField, TextField } from "./lib-ui.js";
import { fileStamp, saveFile } from "./lib-ops.js";

const POLL_MS = 5000;
const PAGE_RECORDS = 1000;

const page = (before, signal) => get("/v1/audit", { limit: PAGE_RECORDS, before }, { signal });

/** Loads the records newer than `known`, page by page, and puts them in front of it. */
async function withNewer(known, signal) {
  const newest = known[0]?.sequence ?? 0;
  const fresh = [];
  let before;
  do {
    const answer = await page(before, signal);
    const newer = answer.records.filter(({ sequence }) => sequence > newest);
    fresh.push(...newer);
    before = known.length > 0 && newer.length === answer.records.length ? answer.before : undefined;
  } while (before !== undefined);
  return [...fresh, ...known];
}

export const whoOf = (record) => (record.caller === "principal" ? record.principal : `(${record.caller})`);

function matches(record, { who, action, text }) {
  return (who === "" || whoOf(record) === who) && (action === "" || record.action === action)
    && (text === "" || record.subject.includes(text));
}

/** The loaded records: { records, before, error, isLoaded, older }. */
function useRecords(isPaused) {
  const records = useRef([]);
  const [before, setBefore] = useState(undefined);
  const first = useLoad(async (signal) => {
    const answer = await page(undefined, signal);
    records.current = answer.records;
    setBefore(answer.before);
    return answer.records.length;
  }, []);
  const newer = useAction(async () => {
    records.current = await withNewer(records.current);
  });
  const older = useAction(async () => {
    const answer = await page(before);
    records.current = [...records.current, ...answer.records];
    setBefore(answer.before);
  });
  usePolling(newer.run, isPaused || first.data === undefined ? 0 : POLL_MS);
  return {
    records: records.current, before, older, isLoaded: first.data !== undefined,
    error: first.error ?? newer.error ?? older.error,
  };
}

export default function Audit() {
  const [isPaused, setPaused] = useState(false);
  const { records, before, older, isLoaded, error } = useRecords(isPaused);
  const [who] = useParam("who");
  const [action] = useParam("action");
  const [text] = useParam("subject");
  const shown = records.filter((record) => matches(record, { who, action, text }));
  return html`<${PageHead} title="Audit" actions=${html`
      <${Button} onClick=${() => setPaused(!isPaused)} aria-pressed=${isPaused}>${isPaused ? "Follow"
        : "Pause"}<//>
      <${Button} disabled=${shown.length === 0} onClick=${() => exportRecords(shown)}>Export<//>`}>
    <p class="muted">Administrative changes, as the node that serves this page has applied them. Reads, and
      changes of keys, are
      not recorded.</p><//>
    <${Filter} records=${records} filter=${{ who, action, text }} />
    <${ErrorNotice} error=${error} />
    ${!isLoaded && !error && html`<${Loading} />`}
    ${isLoaded && html`<p class="muted audit-count" role="status">${countSentence(shown.length,
      records.length, before)} ${isPaused
        ? "Paused: new records are not shown." : "New records appear by themselves."}
        ${before !== undefined && html` <${Button} onClick=${older.run} busy=${older.busy}>Load
          older<//>`}</p>
      ${shown.length === 0
        ? html`<${Empty} title="No records">${records.length > 0 ? "No loaded record matches the filter."
          : "No administrative change was made yet."}<//>`
        : html`<${Records} records=${shown} />`}`}`;
}

function countSentence(shown, loaded, before) {
  const all = before === undefined ? plural(loaded, "record") : `the newest ${plural(loaded, "record")}`;
  return shown === loaded ? `${all.charAt(0).toUpperCase()}${all.slice(1)}.` : `${count(shown)} of ${all}.`;
}

const distinct = (values, chosen) => [...new Set([...values, chosen])].filter((value) => value !== "").sort();

function Filter({ records, filter: { who, action, text } }) {
  const options = (values, chosen) => [{ value: "", label: "all" }, ...distinct(values, chosen)];
  return html`<div class="row-end audit-filter">
    <${SelectField} label="Who" value=${who} options=${options(records.map(whoOf), who)} onChange=${(value) =>
      setParams({ who: value })} />
    <${SelectField} label="Action" value=${action} options=${options(records.map((record) => record.action),
      action)}
      onChange=${(value) => setParams({ action: value })} />
    <div class="grow"><${TextField} label="Subject contains" value=${text} onInput=${(value) =>
      setParams({ subject: value })} /></div>
  </div>`;
}

function Records({ records }) {
  const columns = [
    { label: "Time", width: "178px", render: (record) => html`<${Time} ms=${record.at_unix_ms} full />` },
    { label: "Who", width: "22%", render: (record) => html`<${Name} value=${whoOf(record)} />` },
    { label: "Action", width: "24%", render: (record) => html`<${Name} value=${record.action} />` },
    { label: "Subject", class: "hide-narrow", render: (record) => html`<${Text} value=${record.subject} inline
      mono />` },
    { label: "Number", class: "number hide-narrow", width: "90px", render: (record) =>
      count(record.sequence) },
  ];
  return html`<${VirtualTable} label="Records" columns=${columns} rows=${records} rowKey=${({ sequence }) =>
    sequence} />`;
}

const exportRecords = (records) =>
  saveFile(`tidelock-audit-${fileStamp()}.jsonl`, records.map((record) =>
    `${JSON.stringify(record)}\n`).join(""), "application/jsonl");
