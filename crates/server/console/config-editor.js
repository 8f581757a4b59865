// The editor of a value or document: most of the window, checked by the server while typing, with what the
// change does beside it. It owns the edit until it is saved, also while another page is shown.
import { html, useRef, useState } from "./lib-html.js";
import { get } from "./lib-api.js";
import { useDebounced, useLoad } from "./lib-load.js";
import { Button, ErrorNotice, Notice, TextField, toast } from "./lib-ui.js";
import { discardUnsaved, keepUnsaved, unsaved } from "./lib-unsaved.js";
import { ChangeDialog } from "./config-change.js";
import { ConflictDialog } from "./config-conflict.js";
import { CODES, dryRun } from "./config-api.js";
import { EffectView } from "./config-diff.js";

/** The state of an edit: `{ edit, isDirty, set, discard, rebase }`. `base`: `{ text, revision, … }`. */
export function useEdit(id, base) {
  const kept = unsaved(id);
  const edit = kept ?? { ...base, base };
  const set = (changes) => {
    const next = { ...edit, ...changes };
    const isSame = Object.keys(next).every((name) => name === "base" || next[name] === next.base[name]);
    if (isSame) discardUnsaved(id);
    else keepUnsaved(id, next);
  };
  return { edit, isDirty: kept !== undefined, set, discard: () => discardUnsaved(id),
    rebase: (newBase, text) => keepUnsaved(id, { ...edit, text, base: newBase }) };
}

function Verdict({ check, built, isDirty }) {
  if (!isDirty) return html`<span class="muted">Unchanged</span>`;
  if (built.error) return html`<span class="verdict-error">${built.error}</span>`;
  if (check.loading) return html`<span class="muted">Checking…</span>`;
  if (check.error?.code === CODES.protected) return html`<span
    class="muted">Protected: goes to a draft</span>`;
  if (check.error) return html`<span class="verdict-error">Not accepted</span>`;
  return html`<span class="verdict-ok">Accepted by the server</span>`;
}

function useCheck(built, isDirty) {
  const key = isDirty && built.change ? `${built.change.address} ${JSON.stringify(
    built.change.query ?? {})} ${built.change.body}` : "";
  const settled = useDebounced(key, 350);
  const check = useLoad(settled !== "" && settled === key ? (signal) => dryRun(built.change, signal) : null,
    [settled === key ? key : ""]);
  const last = useRef(null);
  if (check.data) last.current = check.data;
  return { ...check, data: check.data ?? last.current,
    loading: key !== settled || (key !== "" && check.loading) };
}

function Effect({ check, built, isDirty }) {
  if (!isDirty) return html`<p class="muted">What your change does to the documents of programs is shown here
    while you type.</p>`;
  if (check.error && check.error.code !== CODES.protected) return html`<${ErrorNotice} error=${check.error}
    />`;
  if (check.error) return html`<${Notice}
    title="This namespace is protected">Save the change to a draft: the draft shows what it does.<//>`;
  if (!check.data || built.error) return null;
  return html`<div class=${check.loading ? "effect-stale" : ""}><${EffectView} effect=${check.data} /></div>`;
}

function useConflict({ edit, reload }) {
  const [conflict, setConflict] = useState(null);
  // True if somebody else has changed this item. Otherwise only the namespace moved, and the review shows the
  // effect again.
  const onConflict = async () => {
    const theirs = await reload();
    if (theirs.text === edit.base.text) return false;
    const { revisions } = await get(theirs.history, { limit: 1 }).catch(() => ({ revisions: [] }));
    const author = revisions[0]?.author;
    setConflict({ theirs, who: revisions[0] &&
      `Revision ${revisions[0].revision}${author ? ` by ${author}` : ""} has changed it.` });
    return true;
  };
  return { conflict, setConflict, onConflict };
}

/**
 * `build(edit)` gives `{ change }` or `{ error }`. `reload()` reads what is published now: `{ text, revision,
 * history }`. `controls(edit, set)` are the fields above the text; `input(edit, set)` replaces the text area.
 */
export function Editor({ namespace, label, title, state, build, reload, controls, input, onSaved, readOnly,
  actions }) {
  const { edit, isDirty, set, discard, rebase } = state;
  const [change, setChange] = useState(null);
  const built = build(edit);
  const check = useCheck(built, isDirty);
  const { conflict, setConflict, onConflict } = useConflict({ edit, reload });
  const review = () => setChange({ ...built.change, expected: edit.base.revision });
  const onDone = async (done) => {
    setChange(null);
    discard();
    await onSaved(done);
  };
  const takeOver = async () => {
    const isConflict = await onConflict();
    if (isConflict) setChange(null);
    return isConflict;
  };
  const resolve = (text) => {
    rebase({ ...edit.base, ...conflict.theirs }, text);
    setConflict(null);
    toast("Your edit now begins from what is published. Review it again.");
  };
  const text = input?.(edit, set) ?? html`<${TextField} label=${label} hideLabel value=${edit.text} mono
    rows="8" class="input mono editor-text"
    onInput=${(value) => set({ text: value })} readonly=${readOnly}
      aria-invalid=${isDirty && (built.error || check.error) ? "true" : undefined} />`;
  return html`<div class="editor">
    <div class="editor-main">
      ${controls && html`<div class="editor-controls row-end">${controls(edit, set)}</div>`}
      ${text}
      <div class="editor-bar"><span role="status">
        <${Verdict} check=${check} built=${built} isDirty=${isDirty} /></span>
        <div class="actions">${actions}${isDirty && html`<${Button} onClick=${discard}>Discard edit<//>`}
        ${!readOnly && html`<${Button} kind="primary" disabled=${!isDirty || Boolean(built.error)}
          onClick=${review}>Review and save<//>`}</div></div>
    </div>
    <section class="editor-effect" aria-label="Effect of the change"><h2>Effect</h2>
      <${Effect} check=${check} built=${built} isDirty=${isDirty} /></section>
    ${change && html`<${ChangeDialog} namespace=${namespace} title=${title} change=${change}
      onClose=${() => setChange(null)}
      onDone=${onDone} onConflict=${reload && takeOver} />`}
    ${conflict && html`<${ConflictDialog} base=${edit.base.text} theirs=${conflict.theirs.text}
      yours=${edit.text} who=${conflict.who}
      onResolve=${resolve} onClose=${() => setConflict(null)} />`}
  </div>`;
}
