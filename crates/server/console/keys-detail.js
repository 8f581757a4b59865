// One key: its value, version and expiry; deleting it. It loads the value and hands it to the editor.
import { html, useState } from "./lib-html.js";
import { may, mayAny } from "./lib-access.js";
import { useLoad } from "./lib-load.js";
import { ConfirmByName } from "./lib-dialog.js";
import { Name, Text, bytes } from "./lib-text.js";
import { Button, Facts, Loaded, Notice, toast } from "./lib-ui.js";
import { hasPath, keyId, keyLabel } from "./lib-bytes.js";
import { formatDuration, saveFile } from "./lib-ops.js";
import { deleteKey, loadValue } from "./keys-api.js";
import { unseenCharacters } from "./keys-content.js";
import { dropDraft } from "./keys-drafts.js";
import { ValueEditor } from "./keys-editor.js";

/** Whether the grants allow to change a key under a condition, which also demands `read`. */
const mayChange = (key) => (key.text === undefined
  ? mayAny("write", "keys") && mayAny("read", "keys")
  : may("write", `keys:${key.text}`) && may("read", `keys:${key.text}`));

export function KeyDetail({ name, onChanged, onClose, onDeleted }) {
  return html`<section class="keys-detail stack" aria-labelledby="key-title">
    <div class="section-head">
      <h2 id="key-title" class="key-title"><${Text} value=${name.text ?? name.b64} mono max=${300} />${
        name.b64 !== undefined && html` <span class="badge">base64</span>`}</h2>
      <${Button} kind="quiet" onClick=${onClose}>Close<//>
    </div>
    ${hasPath(name)
      ? html`<${LoadedKey} name=${name} onChanged=${onChanged} onDeleted=${onDeleted} />`
      : html`<${Notice} kind="warn" title="A browser cannot open this key">Browsers remove “.” and “..” from
          addresses. Use <code>tidelock kv get</code>.<//>`}
  </section>`;
}

function LoadedKey({ name, onChanged, onDeleted }) {
  const [all, setAll] = useState(false);
  const load = useLoad((signal) => loadValue(name, all, signal), [keyId(name), all]);
  return html`<${Loaded} load=${load} render=${(value) => html`
    <${KeyFacts} name=${name} value=${value} onDeleted=${onDeleted} />
    ${value.bytes === null
      ? html`<${LargeValue} name=${name} size=${value.size} onShow=${() => setAll(true)} />`
      : html`<${ValueEditor} name=${name} loaded=${value} mayChange=${mayChange(name)} onReload=${load.reload}
          onSaved=${(saved) => {
            load.setData(saved);
            onChanged();
          }} />`}`} />`;
}

/** What a person types to confirm: the key, or its version if the key is hard to type. */
function confirmation(name, { version }) {
  const isTypeable = name.text !== undefined && name.text.length <= 100
    && unseenCharacters(name.text).length === 0
    && !name.text.includes("\n");
  return isTypeable ? { name: name.text, noun: "key" } : { name: version, noun: "version" };
}

function KeyFacts({ name, value, onDeleted }) {
  const [isDeleting, setDeleting] = useState(false);
  return html`<div class="row key-facts">
    <${Facts} items=${[
      ["Version", value.version],
      ["Size", bytes(value.size)],
      ["Expires", value.ttlMs === null ? "never" : `in ${formatDuration(value.ttlMs)}`],
      value.lease && ["Lease", html`<${Name} value=${value.lease} />`],
    ]} />
    <span class="actions">
      ${value.bytes && html`<${Button} kind="quiet" onClick=${() =>
        saveFile(keyLabel(name).split("/").pop() || "value", new Blob([value.bytes]))}>Download<//>`}
      ${mayChange(name) && html`<${Button} kind="quiet" onClick=${() => setDeleting(true)}>Delete…<//>`}
    </span>
    ${isDeleting && html`<${ConfirmByName} title="Delete this key" submit="Delete" ...${confirmation(name,
      value)}
      onClose=${() => setDeleting(false)} run=${async () => {
        await deleteKey(name, value.version);
        dropDraft(keyId(name));
        toast(`Deleted ${keyLabel(name)}`);
        setDeleting(false);
        onDeleted();
      }}><p>Version ${value.version} is deleted. If the key has changed since, nothing is deleted.</p><//>`}
  </div>`;
}

const LargeValue = ({ size, onShow }) => html`<${Notice} title=${`The value has ${bytes(size)}`}
  actions=${html`<${Button} onClick=${onShow}>Load it<//>`}>Values over 64 KiB are loaded on request
    only.<//>`;
