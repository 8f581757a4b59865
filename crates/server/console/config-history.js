// The history of a namespace, a pair or a container: a timeline, the difference of any two revisions, and the
// rollback with a preview.
import { html, useEffect, useState } from "./lib-html.js";
import { get } from "./lib-api.js";
import { may } from "./lib-access.js";
import { useAction, useLoad } from "./lib-load.js";
import { route, setParams } from "./lib-router.js";
import { Badge, Button, Empty, ErrorNotice, Loaded, Notice, SelectField } from "./lib-ui.js";
import { Name, Text, Time, plural } from "./lib-text.js";
import { ActionBadge, DiffView, ItemDiffs } from "./config-diff.js";
import { ChangeDialog, goAfter } from "./config-change.js";
import { CODES, configLink, pretty } from "./config-api.js";

const PAGE = 50;
const ITEMS_SHOWN = 6;

const words = { create: "created the namespace", publish: "published", policy: "set how much history is kept",
  rollback: "rolled back",
  parents: "set the parents", protect: "protected the namespace", unprotect: "ended the protection",
    inherit: "inherited a change",
  canary: "began a canary", withdraw: "withdrew the canary" };

export function Author({ of: { author, on_behalf_of: stated } }) {
  return html`<strong class="author">${author === "" ? "unnamed"
    : html`<${Text} value=${author} inline max=${60} />`}</strong>${stated &&
    html` <span class="muted">for <${Text} value=${stated} inline max=${60} /></span>`}`;
}

function Items({ namespace, changes }) {
  if (changes.length === 0) return null;
  return html`<ul class="item-list small">
    ${changes.slice(0, ITEMS_SHOWN).map((change) => html`<li><${ActionBadge} action=${change.action} />
    <span class="muted">${change.kind}</span> <a href=${configLink(namespace, [change.kind, change.key])}>
      <${Name} value=${change.key} /></a></li>`)}
    ${changes.length > ITEMS_SHOWN && html`<li
      class="muted">and ${plural(changes.length - ITEMS_SHOWN, "more item")}</li>`}</ul>`;
}

function Entry({ entry, namespace, newest, onRollback, isCompared }) {
  const { revision, inherited_from: source, approved_by: approvers = [] } = entry;
  const compare = () => setParams({ from: revision, to: newest }, { replace: false });
  return html`<li class=${isCompared ? "timeline-entry timeline-compared" : "timeline-entry"}>
    <div class="timeline-head"><span class="revision">${revision}</span><${Author} of=${entry} />
      <span>${words[entry.action] ?? entry.action}${entry.to !== undefined && ` to revision ${entry.to}`}
        </span>
      ${entry.draft && html`<${Badge} kind="accent">draft <${Text} value=${entry.draft} inline max=${40} />
        <//>`}
      ${approvers.length > 0 && html`<${Badge}
        kind="ok">approved by ${approvers.map((name) => html`<${Text} value=${name} inline max=${40} /> `)}
        <//>`}
      ${source && html`<span class="muted">from <a
        href=${configLink(source.namespace, [], { tab: "history" })}><${Name} value=${source.namespace} />
        </a> ${source.revision}</span>`}
      <span class="muted"><${Time} ms=${entry.time} /></span></div>
    ${entry.message && html`<p class="timeline-message"><${Text} value=${entry.message} max=${300} /></p>`}
    <${Items} namespace=${namespace} changes=${entry.changes} />
    <div class="actions timeline-actions">
      ${revision < newest && html`<${Button} kind="quiet" onClick=${compare}
      aria-label=${`Compare with the newest: revision ${revision}`}>Compare with the newest<//>`}
      ${onRollback && revision < newest &&
        html`<${Button} kind="quiet" onClick=${() => onRollback(revision)}
        aria-label=${`Roll back to this: revision ${revision}`}>Roll back to this<//>`}</div>
  </li>`;
}

async function loadDiff(address, noun, namespace, from, to, signal) {
  if (noun === "pair") {
    const at = (revision) => get(address, { revision }, { signal }).catch((error) => {
      if (error.status !== 404 || error.code === CODES.notKept) throw error;
      return null;
    });
    const [before, after] = await Promise.all([at(from), at(to)]);
    return { before: pretty(before?.value), after: pretty(after?.value) };
  }
  const diff = await get(`${address}/diff`, { from, to }, { signal });
  return noun === "container" ? { before: pretty(diff.before), after: pretty(diff.after) }
    : { changes: diff.changes };
}

function Difference({ namespace, address, noun, from, to, revisions }) {
  const load = useLoad((signal) => loadDiff(address, noun, namespace, from, to, signal), [address, from, to]);
  const known = new Set([...revisions.map(({ revision }) => String(revision)), from, to]);
  const options = [...known].sort((a, b) => b - a);
  return html`<section class="section difference" aria-label="Difference of two revisions">
    <div class="row-end"><${SelectField} label="From revision" value=${from} options=${options}
      onChange=${(value) => setParams({ from: value })} />
      <${SelectField} label="To revision" value=${to} options=${options}
        onChange=${(value) => setParams({ to: value })} />
      <${Button} onClick=${() => setParams({ from: null, to: null }, { replace: false })}>Close<//></div>
    <${Loaded} load=${load} render=${(data) => (data.changes
      ? html`<${ItemDiffs} namespace=${namespace} changes=${data.changes} />`
      : html`<${DiffView} label="Difference" before=${data.before} after=${data.after} />`)} />
  </section>`;
}

function useHistory(address) {
  const first = useLoad((signal) => get(`${address}/history`, { limit: PAGE }, { signal }), [address]);
  const [older, setOlder] = useState([]);
  useEffect(() => setOlder([]), [first.data]);
  const pages = first.data ? [first.data, ...older] : [];
  const next = pages.at(-1)?.next;
  const more = useAction(async () => {
    const page = await get(`${address}/history`, { limit: PAGE, before: next });
    setOlder((pagesBefore) => [...pagesBefore, page]);
  });
  return { first, more, next, revisions: pages.flatMap((page) => page.revisions) };
}

/** `address` is the path of the namespace, pair or container; `noun` says which. */
export function History({ namespace, address, noun, onChanged = () => {} }) {
  const { first, more, next, revisions } = useHistory(address);
  const [change, setChange] = useState(null);
  const { from, to } = route.value.params;
  const canWrite = may("write", `config:${namespace}`);
  const rollBack = (revision) => setChange(
    { address: `${address}/rollback`, body: JSON.stringify({ revision }), revision });
  const onDone = (done) => {
    setChange(null);
    if (done.draft) return goAfter(namespace, done);
    onChanged();
    return first.reload();
  };
  const newest = revisions[0]?.revision;
  return html`<${Loaded} load=${first} render=${(page) => html`
    ${from && to && html`<${Difference} ...${{ namespace, address, noun, from, to, revisions }} />`}
    ${revisions.length === 0 && html`<${Empty} title="No revision is kept" />`}
    <ol class="timeline" aria-label="Revisions">
      ${revisions.map((entry) => html`<${Entry} key=${entry.revision} entry=${entry} namespace=${namespace}
      newest=${newest}
      isCompared=${[from, to].includes(String(entry.revision))} onRollback=${canWrite && rollBack} />`)}</ol>
    ${next !== null && next !== undefined
      ? html`<${Button} onClick=${more.run} busy=${more.busy}>Older revisions<//>`
      : page.oldest > 1 && html`<p class="muted">Revisions before ${page.oldest} are not kept any more.</p>`}
    <${ErrorNotice} error=${more.error} />
    ${change && html`<${ChangeDialog} namespace=${namespace}
      title=${`Roll back to revision ${change.revision}`} change=${change} onClose=${() => setChange(null)}
      onDone=${onDone}>
      <${Notice}>The content as of revision ${change.revision} becomes current again, as a new
        revision${noun === "namespace" ? "" : `, of this ${noun} alone`}.<//><//>`}`} />`;
}
