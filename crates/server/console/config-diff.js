// Differences that people read before they save: texts line by line, items, and what a change would do.
import { html, useMemo, useState } from "./lib-html.js";
import { configLink, pretty, valueLine } from "./config-api.js";
import { diffLines, withContext } from "./diff-lines.js";
import { Badge, Notice } from "./lib-ui.js";
import { Name, Text, plural } from "./lib-text.js";

const ENTRIES_SHOWN = 400;
const ITEMS_SHOWN = 50;
const signs = { same: " ", added: "+", removed: "−" };
const spoken = { added: "added", removed: "removed" };

const Line = ({ line }) => (line.kind === "gap"
  ? html`<div class="diff-gap">${plural(line.lines, "unchanged line")}</div>`
  : html`<div class="diff-line diff-${line.kind}"><span class="diff-number" aria-hidden="true">
    ${line.before ?? ""}</span>
      <span class="diff-number" aria-hidden="true">${line.after ?? ""}</span>
        <span class="diff-sign" aria-hidden="true">${signs[line.kind]}</span>
      <span class="diff-text">${spoken[line.kind] &&
        html`<span class="hidden-label">${spoken[line.kind]}: </span>`}
        <${Text} value=${line.text} mono max=${500} /></span></div>`);

/** Two texts, with the lines that differ and their surroundings. */
export function DiffView({ label, before, after }) {
  const [all, setAll] = useState(false);
  const entries = useMemo(() => withContext(diffLines(before, after)), [before, after]);
  if (before === after) return html`<p class="muted">No difference.</p>`;
  const shown = all ? entries : entries.slice(0, ENTRIES_SHOWN);
  return html`<div class="diff" role="region" aria-label=${label} tabindex="0">
    ${shown.map((line, i) => html`<${Line} key=${i} line=${line} />`)}
    ${shown.length < entries.length && html`<button type="button" class="link diff-more"
      onClick=${() => setAll(true)}>
      Show all ${plural(entries.length, "line")}</button>`}</div>`;
}

const actionWords = { create: ["new", "ok"], update: ["changed", "accent"], delete: ["deleted", "error"] };

export function ActionBadge({ action }) {
  const [word, kind] = actionWords[action] ?? [action, "plain"];
  return html`<${Badge} kind=${kind}>${word}<//>`;
}

function DocumentDiff({ container, before, after }) {
  const action = before === null ? "create" : after === null ? "delete" : "update";
  return html`<div class="diff-item"><div class="diff-item-head">
    <span class="muted">Document</span> <${Name} value=${container} />
    <${ActionBadge} action=${action} /></div>
    ${pretty(before) === pretty(after)
      ? html`<p class="muted">Only secrets differ, which are masked.</p>`
      : html`<${DiffView} label=${`Difference of the document ${container}`} before=${pretty(before)}
        after=${pretty(after)} />`}</div>`;
}

function contentText(content) {
  if (!content) return "";
  if ("fields" in content) {
    const fields = Object.fromEntries(content.fields.map((field) => [field.key, field.value]));
    return pretty(content.schema ? { fields, schema: content.schema } : fields);
  }
  const value = typeof content.value === "string" ? content.value : pretty(content.value);
  const head = content.type && content.type !== "string" ? `${content.type} ` : "";
  return head + value + (content.schema ? `\nschema ${pretty(content.schema)}` : "");
}

/** A change of a pair or container, with what it was and is. */
export const ItemDiff = ({ namespace, change }) =>
  html`<div class="diff-item"><div class="diff-item-head"><span class="muted">${
  change.kind === "pair" ? "Pair" : "Container"}
    </span> <a href=${configLink(namespace, [change.kind, change.key])}><${Name} value=${change.key} /></a>
  <${ActionBadge} action=${change.action} /></div>
  <${DiffView} label=${`Difference of the ${change.kind} ${change.key}`} before=${contentText(change.before)}
    after=${contentText(change.after)} /></div>`;

/** All items that a list of changes names. */
export function ItemDiffs({ namespace, changes }) {
  const [all, setAll] = useState(false);
  const shown = all ? changes : changes.slice(0, ITEMS_SHOWN);
  if (changes.length === 0) return html`<p class="muted">Nothing differs.</p>`;
  return html`<div class="stack">${shown.map((change) =>
    html`<${ItemDiff} key=${`${change.kind} ${change.key}`} namespace=${namespace} change=${change} />`)}
    ${shown.length < changes.length && html`<div>
      <button type="button" class="link" onClick=${() => setAll(true)}>
      Show all ${plural(changes.length, "item")}</button></div>`}</div>`;
}

const oneLine = (content) => (content && "value" in content ? valueLine(content.value) : "");

const ItemLine = ({ change }) => html`<li><${ActionBadge} action=${change.action} /> <span class="muted">
  ${change.kind}</span>
  <${Name} value=${change.key} />${change.kind === "pair" &&
    html` <span class="muted item-values">${change.before &&
    html`<${Text} value=${oneLine(change.before)} inline mono max=${40} />`} → ${change.after
    && html`<${Text} value=${oneLine(change.after)} inline mono max=${40} />`}</span>`}</li>`;

/** What a dry run says: documents first, because programs read these, then items, heirs and notes. */
export function EffectView({ effect }) {
  const [all, setAll] = useState(false);
  const { changes = [], documents = [], notes = [], inherited_by: heirs = [] } = effect;
  if (!effect.changed) return html`<${Notice}>Nothing would change.<//>`;
  const shownItems = all ? changes : changes.slice(0, ITEMS_SHOWN);
  return html`<div class="stack effect">
    ${notes.length > 0 && html`<${Notice} kind="warn" title="Read differently from how it is written">
      <ul>${notes.map((note) => html`<li><${Text} value=${note} /></li>`)}</ul><//>`}
    ${documents.length === 0 && html`<${Notice}>No document changes: no container refers to what
      changes.<//>`}
    ${documents.slice(0, all ? documents.length : ITEMS_SHOWN).map((document) =>
      html`<${DocumentDiff} key=${document.container} ...${document} />`)}
    ${heirs.length > 0 && html`<${Notice} kind="warn"
      title=${`Inherited by ${plural(heirs.length, "namespace")}`}><ul>${heirs.map((heir) =>
      html`<li><${Name} value=${heir.namespace}
        />: ${heir.containers.length === 0 ? "no document changes"
        : heir.containers.map((key) => html`<${Name} value=${key} /> `)}</li>`)}</ul><//>`}
    ${changes.length > 0 && html`<ul class="item-list small">
      ${shownItems.map((change) => html`<${ItemLine} key=${`${change.kind} ${change.key}`} change=${change}
      />`)}</ul>`}
    ${!all && Math.max(changes.length, documents.length) > ITEMS_SHOWN &&
      html`<div><button type="button" class="link" onClick=${() => setAll(true)}>
      Show all ${plural(changes.length, "item")} and ${plural(documents.length, "document")}</button></div>`}
  </div>`;
}
