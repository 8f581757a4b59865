// The editor of a value: text, JSON or hexadecimal bytes, saved only over the version that was edited. It
// owns the draft; a conflict shows both versions and keeps the draft.
import { html, useEffect, useState } from "./lib-html.js";
import { useAction } from "./lib-load.js";
import { Text } from "./lib-text.js";
import { Button, ErrorNotice, Notice, toast } from "./lib-ui.js";
import { decodeText, equalBytes, keyId, keyLabel } from "./lib-bytes.js";
import {
  MODES, contentBytes, defaultMode, editorText, modeObstacle, textObstacle, unseenCharacters, usesCrLf,
} from "./keys-content.js";
import { isConflict, loadCurrent, saveValue } from "./keys-api.js";
import { draftOf, dropDraft, keepDraft } from "./keys-drafts.js";
import { Expiry, expiryOf, expiryOptions } from "./keys-expiry.js";
import { Conflict } from "./keys-conflict.js";

const freshDraft = (loaded) => {
  const mode = defaultMode(loaded.bytes);
  return { base: loaded, mode, text: editorText(loaded.bytes, mode), expiry: expiryOf(loaded) };
};

/** The bytes of a draft, or why it has none: { bytes } or { problem }. */
function draftContent(draft) {
  try {
    return { bytes: contentBytes(draft, draft.base.bytes) };
  } catch (error) {
    return { problem: error.message };
  }
}

export function ValueEditor({ name, loaded, mayChange, onSaved, onReload }) {
  const id = keyId(name);
  const [draft, setDraft] = useState(() => draftOf(id) ?? freshDraft(loaded));
  const [theirs, setTheirs] = useState(undefined);
  const content = draftContent(draft);
  const isEdited = content.bytes === undefined || !equalBytes(content.bytes, draft.base.bytes)
    || draft.expiry.choice !== expiryOf(draft.base).choice;

  useEffect(() => {
    if (isEdited) keepDraft(id, draft);
    else dropDraft(id);
  }, [id, draft, isEdited]);

  // A reload replaces a draft that holds no edits; edits stay with the version that they began with.
  useEffect(() => {
    if (!isEdited && loaded.version !== draft.base.version) setDraft(freshDraft(loaded));
  }, [loaded.version]);

  const save = useAction(async (version) => {
    const expiry = expiryOptions(draft.expiry, draft.base);
    try {
      const facts = await saveValue(name, content.bytes, { version, ...expiry });
      const saved = { ...facts, ttlMs: expiry.ttlMs, lease: expiry.lease ?? null, bytes: content.bytes,
        size: content.bytes.length };
      dropDraft(id);
      setTheirs(undefined);
      setDraft({ ...freshDraft(saved), mode: draft.mode, text: editorText(saved.bytes, draft.mode) });
      onSaved(saved);
      toast(`Saved ${keyLabel(name)} as version ${facts.version}`);
    } catch (error) {
      if (!isConflict(error)) throw error;
      setTheirs(await loadCurrent(name));
    }
  });

  const adopt = (base) => {
    dropDraft(id);
    setTheirs(undefined);
    if (base) setDraft(freshDraft(base));
    onReload();
  };
  return html`<div class="stack">
    ${theirs !== undefined && html`<${Conflict} base=${draft.base} theirs=${theirs} yours=${content.bytes
      ?? null}
      busy=${save.busy} onOverwrite=${() => save.run(theirs?.version ?? "0")} onAdopt=${() =>
        adopt(theirs)} />`}
    ${isEdited && loaded.version !== draft.base.version && theirs === undefined && html`
      <${Notice} kind="warn" title="Your edit began with an earlier version">It began with version ${
        draft.base.version}; the key has version ${loaded.version}. Saving compares them.<//>`}
    <${Modes} draft=${draft} content=${content} setDraft=${setDraft} />
    <${Content} draft=${draft} content=${content} setDraft=${setDraft} mayChange=${mayChange} />
    ${mayChange && html`<${Expiry} expiry=${draft.expiry} loaded=${draft.base}
      onChange=${(expiry) => setDraft({ ...draft, expiry })} />`}
    <${ErrorNotice} error=${save.error} />
    ${mayChange && html`<${SaveRow} isEdited=${isEdited} version=${draft.base.version} busy=${save.busy}
      isBlocked=${content.bytes === undefined || theirs !== undefined}
      onSave=${() => save.run(draft.base.version)} onDiscard=${() => adopt(loaded)} />`}
  </div>`;
}

function SaveRow({ isEdited, isBlocked, version, busy, onSave, onDiscard }) {
  return html`<div class="row">
    <${Button} kind="primary" busy=${busy} onClick=${onSave} disabled=${!isEdited || isBlocked}>Save<//>
    <${Button} disabled=${!isEdited || busy} onClick=${onDiscard}>Discard edits<//>
    <span class="muted small">${isEdited ? `Edited, based on version ${version}` : "No edits"}</span>
  </div>`;
}

function Modes({ draft, content, setDraft }) {
  const change = (mode) => setDraft({ ...draft, mode, text: editorText(content.bytes, mode) });
  return html`<div class="modes" role="group" aria-label="Show the value as">${MODES.map(([mode, label]) => {
    const isCurrent = mode === draft.mode;
    const obstacle = content.bytes === undefined ? content.problem : modeObstacle(content.bytes, mode);
    return html`<button type="button" class="mode" aria-pressed=${isCurrent} disabled=${!isCurrent
      && obstacle !== null}
      title=${isCurrent ? undefined : obstacle ?? undefined} onClick=${() => change(mode)}>${label}</button>`;
  })}</div>`;
}

/** Enough rows for the text, within what fits on a screen. */
function editorRows(text) {
  let rows = 2;
  for (let at = text.indexOf("\n"); at >= 0 && rows < 24; at = text.indexOf("\n", at + 1)) rows += 1;
  return Math.max(6, rows);
}

function Content({ draft, content, setDraft, mayChange }) {
  const obstacle = draft.mode === "hex" ? textObstacle(draft.base.bytes) : null;
  const unseen = draft.mode === "hex" ? [] : unseenCharacters(draft.text);
  const set = (event) => setDraft({ ...draft, text: event.currentTarget.value });
  return html`
    ${obstacle && html`<p class="muted small">${obstacle}</p>`}
    <textarea class="input mono value-editor" aria-label="Value" spellcheck="false" autocomplete="off"
      dir="auto"
      rows=${editorRows(draft.text)} readonly=${!mayChange} value=${draft.text} onInput=${set}
      aria-invalid=${content.problem ? "true" : undefined}></textarea>
    ${content.problem && html`<p class="field-error" role="alert"><${Text} value=${content.problem}
      max=${400} /></p>`}
    ${draft.mode !== "hex" && usesCrLf(draft.base.bytes)
      && html`<p class="muted small">Lines end with CR LF, which saving keeps.</p>`}
    ${unseen.length > 0 && html`<${UnseenNotice} unseen=${unseen} text=${decodeText(draft.base.bytes)
      ?? ""} />`}`;
}

function UnseenNotice({ unseen, text }) {
  const [isShown, setShown] = useState(false);
  return html`<${Notice} kind="warn"
    title="The text has characters that cannot be seen or that change its direction"
    actions=${html`<${Button} onClick=${() => setShown(!isShown)} aria-expanded=${isShown}>${
      isShown ? "Hide" : "Show them"}<//>`}>
    ${unseen.slice(0, 12).map(([name, amount]) => `${name} (${amount})`).join(", ")}
    ${isShown && html`<pre class="unseen-text"><${Text} value=${text} mono /></pre>`}<//>`;
}
