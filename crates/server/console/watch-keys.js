// Follows the keys under a prefix. It owns the stream and the last changes; a pause keeps receiving and holds
// back what is shown, so that no change is missed.
import { html, useEffect, useRef, useState } from "./lib-html.js";
import { encode, href, navigate, useParam } from "./lib-router.js";
import { openStream } from "./lib-stream.js";
import { VirtualTable } from "./lib-table.js";
import { Name, Text, bytes, count, plural } from "./lib-text.js";
import { Badge, Button, Empty, ErrorNotice, TextField } from "./lib-ui.js";
import { base64ToBytes, bytesField, encodeText } from "./lib-bytes.js";
import { formatDuration } from "./lib-ops.js";

const CHANGES_MAX = 2000;
const REFRESH_MS = 200;
const PREVIEW_CHARS = 200;

/** A change as the table shows it. Values are cut: the Keys screen shows them whole. */
function changeOf({ event, data }, number) {
  const change = JSON.parse(data);
  const value = bytesField(change, "val");
  return {
    number,
    atMs: Date.now(),
    isDeletion: event === "delete",
    key: bytesField(change, "key"),
    version: change.ver,
    ttlMs: change.ttl_ms,
    size: value && (value.b64 === undefined ? encodeText(value.text).length
      : base64ToBytes(value.b64).length),
    preview: value?.text?.slice(0, PREVIEW_CHARS).toWellFormed() ?? null,
  };
}

/** Receives changes of a prefix: { changes, total, state, error }, refreshed at most five times a second. */
function useChanges(prefix) {
  const received = useRef({ changes: [], total: 0 });
  const [shown, setShown] = useState({ changes: [], total: 0 });
  const [connection, setConnection] = useState({ state: "connecting", error: null });
  useEffect(() => {
    let timer = null;
    received.current = { changes: [], total: 0 };
    setShown(received.current);
    const refresh = () => {
      timer = null;
      setShown({ ...received.current });
    };
    const onEvent = (event) => {
      if (event.event !== "put" && event.event !== "delete") return;
      const { changes, total } = received.current;
      received.current = { total: total + 1, changes: [changeOf(event, total + 1), ...changes].slice(0,
        CHANGES_MAX) };
      timer ??= setTimeout(refresh, REFRESH_MS);
    };
    // Written out, because `query` leaves out the empty prefix, which means all keys.
    const close = openStream(`/v1/watch?prefix=${encode(prefix)}&after=now`, {
      onEvent, onState: (state, error) => setConnection({ state, error }),
    });
    return () => {
      close();
      clearTimeout(timer);
    };
  }, [prefix]);
  const clear = () => {
    received.current = { changes: [], total: 0 };
    setShown(received.current);
  };
  return { ...shown, ...connection, clear };
}

const STATES = {
  connecting: ["warn", "connecting"], open: ["ok", "live"], paused: ["plain", "page hidden"],
    failed: ["error", "ended"],
};

export function WatchKeys() {
  const [prefix] = useParam("prefix");
  return html`<${PrefixForm} key=${prefix} prefix=${prefix} /><${Changes} prefix=${prefix} />`;
}

function PrefixForm({ prefix }) {
  const [typed, setTyped] = useState(prefix);
  const submit = (event) => {
    event.preventDefault();
    navigate(href(["watch", "keys"], { prefix: typed }));
  };
  return html`<form class="row-end watch-form" onSubmit=${submit}>
    <div class="grow"><${TextField} label="Keys that begin with" value=${typed} onInput=${setTyped} mono
      placeholder="all keys" /></div>
    <${Button} type="submit">Watch<//></form>`;
}

function Changes({ prefix }) {
  const live = useChanges(prefix);
  const [held, setHeld] = useState(null);
  const view = held ?? live;
  const [kind, word] = STATES[live.state];
  const missed = held ? live.total - held.total : 0;
  return html`<div class="stack">
    <div class="row watch-state">
      <${Badge} kind=${kind}>${word}<//>
      <span class="muted grow" role="status">${held
        ? `Paused. ${plural(missed, "change")} since.`
        : `${plural(live.total, "change")} since this page opened.${live.total > CHANGES_MAX
          ? ` The last ${count(CHANGES_MAX)} are shown.` : ""}`}</span>
      <${Button} onClick=${() => setHeld(held ? null : { changes: live.changes, total: live.total })}
        aria-pressed=${held !== null}>${
        held ? "Go on" : "Pause"}<//>
      <${Button} kind="quiet" onClick=${() => {
        setHeld(null);
        live.clear();
      }}>Clear<//>
    </div>
    <${ErrorNotice} error=${live.error} />
    ${view.changes.length === 0
      ? html`<${Empty} title="No changes yet">Changes appear here as they happen. Of a key that changes often,
        states in between
          may be left out.<//>`
      : html`<${ChangeTable} changes=${view.changes} />`}
  </div>`;
}

const keyHref = (key) => href(["keys"], key.b64 === undefined ? { key: key.text } : { key_b64: key.b64 });

function ChangeTable({ changes }) {
  const columns = [
    { label: "Time", width: "96px", render: ({ atMs }) =>
      html`<time>${new Date(atMs).toLocaleTimeString("sv")}</time>` },
    { label: "Change", width: "86px", render: ({ isDeletion }) => html`<${Badge} kind=${isDeletion ? "error"
      : "accent"}>${
      isDeletion ? "deleted" : "put"}<//>` },
    { label: "Key", width: "38%", render: ({ key }) => html`<a href=${keyHref(key)}><${Name} value=${key.text
      ?? `base64:${key.b64}`} /></a>` },
    { label: "Value", class: "hide-narrow", render: ({ preview, isDeletion }) => (isDeletion ? ""
      : preview === null ? html`<span class="muted">not UTF-8</span>` : html`<${Text} value=${preview} inline
        mono />`) },
    { label: "Size", class: "number hide-narrow", width: "90px", render: ({ size }) => (size === null ? ""
      : bytes(size)) },
    { label: "Expires in", class: "number hide-narrow", width: "96px", render: ({ ttlMs }) =>
      (ttlMs === undefined ? "" : formatDuration(ttlMs)) },
    { label: "Version", class: "number hide-narrow", width: "90px", render: ({ version }) =>
      String(version) },
  ];
  return html`<${VirtualTable} label="Changes, the newest first" columns=${columns} rows=${changes}
    rowKey=${({ number }) => number} />`;
}
