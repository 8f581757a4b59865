// A conflict of a save: the version that the edit began with, the one saved meanwhile, and the edit, side by
// side with the lines that differ. Nothing is lost: either version can be kept, and the edit goes on.
import { html, useEffect, useMemo, useRef } from "./lib-html.js";
import { diffLines } from "./diff-lines.js";
import { Text } from "./lib-text.js";
import { Button } from "./lib-ui.js";
import { decodeText, bytesToHex } from "./lib-bytes.js";
import { formatJson } from "./lib-json.js";

const LINES_SHOWN = 500;

function shownText(bytes) {
  if (bytes === null) return "";
  const text = decodeText(bytes);
  return text === null ? bytesToHex(bytes) : formatJson(text) ?? text;
}

/** The lines of `bytes`, marked if `base` does not have them. */
function markedLines(base, bytes) {
  return diffLines(shownText(base), shownText(bytes)).filter((line) => line.kind !== "removed");
}

function Column({ title, base, bytes, note }) {
  const lines = useMemo(() => markedLines(base, bytes), [base, bytes]);
  return html`<div class="conflict-column"><h4>${title}</h4>${note
    ? html`<p class="muted">${note}</p>`
    : html`<div class="conflict-text" role="region" aria-label=${title} tabindex="0">${lines.slice(0,
      LINES_SHOWN).map((line) =>
      html`<div class=${line.kind === "added" ? "conflict-line is-added"
        : "conflict-line"}>${line.kind === "added"
        && html`<span class="hidden-label">differs: </span>`}<${Text} value=${line.text}
          max=${500} /></div>`)}${
      lines.length > LINES_SHOWN && html`<p class="muted conflict-line">${lines.length - LINES_SHOWN} more
        lines</p>`}</div>`}</div>`;
}

export function Conflict({ base, theirs, yours, busy, onOverwrite, onAdopt }) {
  const place = useRef(null);
  useEffect(() => place.current.focus(), []);
  return html`<section class="conflict stack" aria-labelledby="conflict-title" tabindex="-1" ref=${place}>
    <h3 id="conflict-title">${theirs
      ? `Version ${theirs.version} was saved while you edited version ${base.version}`
      : `The key was deleted while you edited version ${base.version}`}</h3>
    <p class="muted">Nothing was saved. Your text stays in the editor below until you choose.</p>
    <div class="columns-3">
      <${Column} title=${`Before: version ${base.version}`} base=${base.bytes} bytes=${base.bytes} />
      <${Column} title=${theirs ? `Saved meanwhile: version ${theirs.version}` : "Saved meanwhile"}
        base=${base.bytes}
        bytes=${theirs?.bytes ?? null} note=${theirs ? "" : "The key does not exist."} />
      <${Column} title="Yours" base=${base.bytes} bytes=${yours} note=${yours ? ""
        : "The editor holds no valid value."} />
    </div>
    <div class="row">
      <${Button} kind="primary" onClick=${onOverwrite} busy=${busy} disabled=${yours === null}>${theirs
        ? `Save yours over version ${theirs.version}` : "Create the key again with yours"}<//>
      ${theirs && html`<${Button} onClick=${onAdopt} disabled=${busy}>Discard yours, take
        version ${theirs.version}<//>`}
    </div>
  </section>`;
}
