// Importing a file: as a container, or as a whole namespace that was exported. The dry run is shown before.
import { html, useMemo, useState } from "./lib-html.js";
import { Dialog } from "./lib-dialog.js";
import { useAction, useLoad } from "./lib-load.js";
import { get } from "./lib-api.js";
import { navigate } from "./lib-router.js";
import { Button, CheckField, ErrorNotice, SelectField, TextField } from "./lib-ui.js";
import { Text, bytes } from "./lib-text.js";
import { ChangeDialog, goAfter } from "./config-change.js";
import { CODES, configLink, containerPath, currentDraft, namespacePath } from "./config-api.js";

const BODY_BYTES_MAX = 8 * 1024 * 1024;
const endings = { json: "json", yaml: "yaml", yml: "yaml", toml: "toml", properties: "properties" };
const CONTAINER = "container";
const WHOLE = "namespace";

function FileField({ file, onFile }) {
  const read = useAction(async (chosen) => {
    if (chosen.size > BODY_BYTES_MAX) throw new Error(
      `The file has ${bytes(chosen.size)}; at most ${bytes(BODY_BYTES_MAX)} can be imported.`);
    onFile({ name: chosen.name, text: await chosen.text() });
  });
  const choose = (event) => event.currentTarget.files[0] && read.run(event.currentTarget.files[0]);
  return html`<div class="field"><label for="import-file">File: JSON, YAML, TOML or properties</label>
    <input id="import-file" class="input" type="file" accept=".json,.yaml,.yml,.toml,.properties"
      onChange=${choose} />
    ${file && html`<div class="hint"><${Text} value=${file.name} inline
      />: ${bytes(new Blob([file.text]).size)}</div>`}
    <${ErrorNotice} error=${read.error} /></div>`;
}

function changeOf({ kind, namespace, container, format, text, replace, exists }) {
  const query = kind === CONTAINER ? { format, create: exists ? undefined : true }
    : { format, replace: replace || undefined };
  const address = kind === CONTAINER ? `${containerPath(namespace, container)}/import`
    : `${namespacePath(namespace)}/import`;
  return { address, query, body: text, creates: !exists, draftable: exists && kind === CONTAINER };
}

/** `namespace` is fixed if the import begins on its page. */
export function ImportDialog({ namespace: fixed, onClose }) {
  const [file, setFile] = useState(null);
  const [form, setForm] = useState({ kind: CONTAINER, namespace: fixed ?? "", container: "", format: "yaml",
    replace: false });
  const [isReviewed, setReviewed] = useState(false);
  const set = (changes) => setForm({ ...form, ...changes });
  const onFile = (chosen) => {
    const [, stem, ending] = /^(.*)\.([^.]*)$/.exec(chosen.name) ?? [null, chosen.name, ""];
    setFile(chosen);
    set({ format: endings[ending.toLowerCase()] ?? form.format, container: form.container || stem });
  };
  const submit = (event) => {
    event.preventDefault();
    setReviewed(true);
  };
  const isReady = file && form.namespace !== "" && (form.kind === WHOLE || form.container !== "");
  if (isReviewed) return html`<${ImportReview} form=${form} text=${file.text} onClose=${onClose}
    onBack=${() => setReviewed(false)} />`;
  const formats = form.kind === WHOLE ? ["json", "yaml", "toml"] : ["json", "yaml", "toml", "properties"];
  return html`<${Dialog} title="Import a file" onClose=${onClose}><form class="stack" onSubmit=${submit}>
    <${FileField} file=${file} onFile=${onFile} />
    <${SelectField} label="Format" value=${form.format} options=${formats}
      onChange=${(format) => set({ format })} />
    <${SelectField} label="The file is" value=${form.kind} onChange=${(kind) => set({ kind })} options=${[
      { value: CONTAINER, label: "the document of one container" },
        ...(currentDraft() ? [] : [{ value: WHOLE, label: "a whole namespace, as exported" }])]} />
    ${fixed === undefined && html`<${TextField} label="Namespace" value=${form.namespace}
      onInput=${(namespace) => set({ namespace })} mono maxlength="128"
      hint="It is created if it does not exist." />`}
    ${form.kind === CONTAINER
      ? html`<${TextField} label="Container" value=${form.container}
        onInput=${(container) => set({ container })} mono maxlength="128"
        hint="The name by which programs read the document." />`
      : html`<${CheckField} label="Delete what the file does not hold" checked=${form.replace}
        onChange=${(replace) => set({ replace })} />`}
    <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel<//>
      <${Button} type="submit" kind="primary" disabled=${!isReady}>Show what changes<//></div>
  </form><//>`;
}

function ImportReview({ form, text, onClose, onBack }) {
  const exists = useLoad((signal) => get(namespacePath(form.namespace), {}, { signal }).then(() => true,
    (error) => {
    if (error.code === CODES.noNamespace) return false;
    throw error;
  }), [form.namespace]);
  const change = useMemo(() => exists.data !== undefined && changeOf({ ...form, text, exists: exists.data }),
    [exists.data]);
  if (!change) return html`<${Dialog} title="Import a file" onClose=${onClose}>
    <${ErrorNotice} error=${exists.error} /><${Button} onClick=${onBack}>Back<//><//>`;
  const link = configLink(form.namespace, form.kind === CONTAINER ? ["container", form.container] : []);
  const onDone = (done) => {
    onClose();
    return done.draft ? goAfter(form.namespace, done) : navigate(link);
  };
  return html`<${ChangeDialog} namespace=${form.namespace} title="Review the import" change=${change}
    onClose=${onClose} onDone=${onDone}>
    <div class="row"><span>Into <${Text} value=${form.namespace} inline mono />
      ${form.kind === CONTAINER && html` as the container <${Text} value=${form.container} inline mono />`}${
      exists.data ? "" : ", which is created"}</span><${Button} kind="quiet" onClick=${onBack}>Change<//>
        </div><//>`;
}
