// The fields of a container: what each refers to. An edit is text per field, so that nothing typed is lost.
import { html } from "./lib-html.js";
import { get } from "./lib-api.js";
import { useLoad } from "./lib-load.js";
import { Button, Loading, SelectField, TextField } from "./lib-ui.js";
import { Editor, useEdit } from "./config-editor.js";
import { containerPath, namespacePath } from "./config-api.js";

const kinds = [{ value: "1", label: "one pair" }, { value: "2", label: "a list of pairs" },
  { value: "3", label: "pairs by name" }];

function keysOf(value) {
  if (Array.isArray(value)) return value.map(keysOf);
  if (typeof value?.key === "string" && "datatype" in value) return value.key;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, entry]) => [name, keysOf(entry)]));
}

function rowOf(field) {
  const keys = keysOf(field.value);
  if (field.fieldType === 1) return { key: field.key, kind: "1", refers: keys };
  return { key: field.key, kind: String(field.fieldType),
    refers: field.fieldType === 2 ? keys.join("\n") : JSON.stringify(keys, null, 2) };
}

// The rows are kept as one text, because an edit is compared with its base as text.
const write = (rows) => JSON.stringify(rows);

function fieldOf(row) {
  if (row.kind === "1") return { key: row.key, fieldType: 1, value: row.refers };
  if (row.kind === "2") return { key: row.key, fieldType: 2,
    value: row.refers.split("\n").filter((line) => line !== "") };
  return { key: row.key, fieldType: 3, value: JSON.parse(row.refers) };
}

export function buildFields(namespace, name, text) {
  if (name === "") return { error: "A name is missing." };
  const rows = JSON.parse(text);
  const unnamed = rows.find((row) => row.key === "" || row.refers === "");
  if (unnamed) return { error: unnamed.key === "" ? "A field has no name."
    : `The field ${unnamed.key} refers to nothing.` };
  try {
    return { change: { address: containerPath(namespace, name),
      body: JSON.stringify({ fields: rows.map(fieldOf) }) } };
  } catch (error) {
    return { error: `Pairs by name are not valid JSON: ${error.message}.` };
  }
}

function FieldRow({ row, onChange, onRemove, readOnly, list, number }) {
  const hints = { 1: "The key of a pair.", 2: "Keys of pairs, one a line.",
    3: "JSON: {\"name\": \"key of a pair\"}." };
  return html`<li class="field-row"><${TextField} label=${`Field ${number}`} mono value=${row.key}
    disabled=${readOnly} maxlength="128" onInput=${(key) => onChange({ key })} />
    <${SelectField} label="Refers to" value=${row.kind} options=${kinds} disabled=${readOnly}
      onChange=${(kind) => onChange({ kind })} />
    <${TextField} label=${hints[row.kind]} mono value=${row.refers} disabled=${readOnly}
      rows=${row.kind === "1" ? undefined : Math.min(8, row.refers.split("\n").length + 1)}
      list=${row.kind === "1" ? list : undefined} onInput=${(refers) => onChange({ refers })} />
    ${!readOnly && html`<${Button} kind="quiet" onClick=${onRemove}
      aria-label=${`Remove the field ${row.key || number}`}>Remove<//>`}</li>`;
}

function FieldRows({ edit, set, readOnly, namespace }) {
  const rows = JSON.parse(edit.text);
  const pairs = useLoad((signal) => get(`${namespacePath(namespace)}/pairs`, { limit: 1000 }, { signal }),
    [namespace]);
  const change = (i, changes) => set({ text:
    write(rows.map((row, j) => (i === j ? { ...row, ...changes } : row))) });
  return html`<ol class="field-rows">${rows.map((row, i) =>
    html`<${FieldRow} key=${i} number=${i + 1} row=${row} readOnly=${readOnly} list="pair-keys"
      onChange=${(changes) => change(i, changes)}
        onRemove=${() => set({ text: write(rows.filter((_, j) => j !== i)) })} />`)}</ol>
    <datalist id="pair-keys">${(pairs.data?.pairs ?? []).map((pair) => html`<option value=${pair.key} />`)}
      </datalist>
    ${!readOnly && html`<div><${Button} onClick=${() =>
      set({ text: write([...rows, { key: "", kind: "1", refers: "" }]) })}>Add a field<//></div>`}`;
}

function Form({ namespace, name, base, reload, onSaved, readOnly }) {
  const isNew = name === undefined;
  const state = useEdit(`fields ${JSON.stringify([namespace, name ?? null])}`, base);
  const nameOf = (edit) => (isNew ? edit.name : name);
  return html`<${Editor} namespace=${namespace} label="Fields" title="Review the change of the container"
    state=${state} readOnly=${readOnly}
    build=${(edit) => buildFields(namespace, nameOf(edit), edit.text)} reload=${reload}
      onSaved=${(done) => onSaved(done, nameOf(state.edit))}
    controls=${isNew && ((edit, set) => html`<div class="grow">
      <${TextField} label="Name of the container" mono maxlength="128" value=${edit.name}
      onInput=${(text) => set({ name: text })} /></div>`)}
    input=${(edit, set) => html`<${FieldRows} ...${{ edit, set, readOnly, namespace }} />`} />`;
}

const baseOf = (namespace, name, container, revision) =>
  ({ text: write(container.fields.map(rowOf)), revision,
  history: `${containerPath(namespace, name)}/history` });

/** `container` of null is a new one, whose name is edited too. */
export function FieldsEditor({ namespace, name, container, reload, onSaved, readOnly }) {
  const info = useLoad((signal) => get(namespacePath(namespace), {}, { signal }), [namespace, container]);
  if (container === null) return html`<${Form} ...${{ namespace, onSaved, readOnly }}
    base=${{ name: "", text: write([{ key: "", kind: "1", refers: "" }]) }} />`;
  if (!info.data) return html`<${Loading} />`;
  const reloadBase = async () => {
    const { revision } = await get(namespacePath(namespace));
    return baseOf(namespace, name, await reload(), revision);
  };
  return html`<${Form} ...${{ namespace, name, readOnly, onSaved }}
    base=${baseOf(namespace, name, container, info.data.revision)} reload=${reloadBase} />`;
}
