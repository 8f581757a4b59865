// A pair: its editor with a type in words, who uses it, its schema and its history.
import { html, useState } from "./lib-html.js";
import { get } from "./lib-api.js";
import { may } from "./lib-access.js";
import { useAction, useLoad } from "./lib-load.js";
import { navigate, route } from "./lib-router.js";
import { Button, Empty, ErrorNotice, Facts, LinkButton, Loaded, Notice, PageHead, SelectField, Tabs,
  TextField } from "./lib-ui.js";
import { Name, Text, plural } from "./lib-text.js";
import { Editor, useEdit } from "./config-editor.js";
import { DraftBanner, goAfter } from "./config-change.js";
import { DeleteItem, InheritedBadge, Readers, SchemaEditor } from "./config-item.js";
import { History } from "./config-history.js";
import { CODES, MASK, TYPES, configLink, currentDraft, draftPath, editText, namespacePath, pairPath, typeWord,
  valueJson } from "./config-api.js";

async function published(namespace, key, signal) {
  const { revision } = await get(namespacePath(namespace), {}, { signal });
  const pair = await get(pairPath(namespace, key), {}, { signal });
  const schema = pair.datatype === 2 ? await get(`${pairPath(namespace, key)}/schema`, {}, { signal }) : null;
  const type = typeWord(pair.datatype, schema);
  return { text: editText(pair.value, type), type, values: (schema?.enum ?? []).join("\n"), revision,
    history: `${pairPath(namespace, key)}/history`, from: pair.inherited_from };
}

/** Within a draft, the edit begins with what the draft says. */
async function loadPair(namespace, key, signal) {
  const base = await published(namespace, key, signal).catch((error) => {
    if (error.code !== CODES.noPair || !currentDraft()) throw error;
    return { text: "", type: "string", values: "", revision: undefined,
      history: `${pairPath(namespace, key)}/history` };
  });
  if (!currentDraft()) return base;
  const draft = await get(draftPath(namespace, currentDraft()), {}, { signal }).catch(() => null);
  const after = draft?.effect?.changes?.find((change) => change.kind === "pair" && change.key === key)?.after;
  if (!after) return base;
  const type = typeWord(after.datatype, after.schema);
  return { ...base, text: editText(after.value, type), type, values: (after.schema?.enum ?? []).join("\n") };
}

/**
 * The request that stores an edit. An unchanged type is not stated: the pair keeps it. Secrets state it
 * always.
 */
export function buildPair(namespace, key, edit, isNew) {
  const value = valueJson(edit.text, edit.type);
  if (value.error) return value;
  const members = [`"value":${value.json}`];
  const isRetyped = isNew || edit.type !== edit.base.type ||
    (edit.type === "enum" && edit.values !== edit.base.values);
  if (isRetyped || edit.type === "secret") members.push(`"type":${JSON.stringify(edit.type)}`);
  if (isRetyped && edit.type === "enum") {
    const values = edit.values.split("\n").map((line) => line.trim()).filter(Boolean);
    if (values.length === 0) return { error: "List the texts that are allowed." };
    members.push(`"values":${JSON.stringify(values)}`);
  }
  const hadSchema = !isNew && ["duration", "bytes", "enum"].includes(edit.base.type);
  if (isRetyped && hadSchema && !["duration", "bytes", "enum"].includes(edit.type)) members.push(
    '"schema":null');
  return { change: { address: pairPath(namespace, key), body: `{${members.join(",")}}` } };
}

function typeControls(edit, set, readOnly) {
  const type = TYPES.find((entry) => entry.value === edit.type);
  return html`<${SelectField} label="Type" value=${edit.type} options=${TYPES} disabled=${readOnly}
    hint=${type.hint}
      onChange=${(chosen) => set({ type: chosen,
        text: chosen === "bool" && !["true", "false"].includes(edit.text) ? "true" : edit.text })} />
    ${edit.type === "enum" && html`<div class="grow">
      <${TextField} label="Allowed texts, one a line" rows="3" mono value=${edit.values} disabled=${readOnly}
      onInput=${(values) => set({ values })} /></div>`}`;
}

function valueInput(edit, set, readOnly) {
  const choices = edit.type === "bool" ? ["true", "false"] : edit.type === "enum"
    ? edit.values.split("\n").filter(Boolean) : null;
  if (edit.type === "empty") return html`<p class="muted">The value is null.</p>`;
  if (["int", "float", "duration", "bytes"].includes(edit.type)) {
    return html`<${TextField} label="Value" hideLabel mono value=${edit.text} disabled=${readOnly}
      onInput=${(text) => set({ text })} />`;
  }
  if (!choices || choices.length === 0) return undefined;
  const options = choices.includes(edit.text) ? choices : [edit.text, ...choices];
  return html`<${SelectField} label="Value" hideLabel value=${edit.text} options=${options}
    disabled=${readOnly} onChange=${(text) => set({ text })} />`;
}

/** The text of a secret, on request and with the grant only. It is never kept. */
function RevealSecret({ namespace, name }) {
  const [shown, setShown] = useState(null);
  const action = useAction(async () => setShown(
    (await get(pairPath(namespace, name), { reveal: true })).value));
  if (!may("reveal", `config:${namespace}`)) return html`<p
    class="muted">Your grants do not include reveal config: the secret stays masked.</p>`;
  if (shown !== null) return html`<div class="row"><code><${Text} value=${shown} mono /></code>
    <${Button} onClick=${() => setShown(null)}>Hide<//></div>`;
  return html`<div class="row"><span class="mono">${MASK}</span>
    <${Button} onClick=${action.run} busy=${action.busy}>Reveal<//></div>
    <${ErrorNotice} error=${action.error} />`;
}

function PairEditor({ namespace, name, base, reload, onSaved }) {
  const state = useEdit(`pair ${JSON.stringify([namespace, name, currentDraft()])}`, base);
  const readOnly = !may("write", `config:${namespace}`);
  const isSecret = base.type === "secret";
  return html`${isSecret && html`<${RevealSecret} namespace=${namespace} name=${name} />
      <p class="muted">To replace the secret, write the new one over the mask below.</p>`}
    <${Editor} namespace=${namespace} label="Value" title="Review the change" state=${state} reload=${reload}
      onSaved=${onSaved} readOnly=${readOnly}
      build=${(edit) => buildPair(namespace, name, edit, base.revision === undefined)}
      controls=${(edit, set) => typeControls(edit, set, readOnly)}
        input=${(edit, set) => valueInput(edit, set, readOnly)}
      actions=${!readOnly && base.from === undefined &&
        html`<${DeleteItem} namespace=${namespace} noun="pair" name=${name}
        address=${pairPath(namespace, name)} />`} />`;
}

/** "3 containers, 12 watchers": who gets another value when this pair changes. */
function UsedBy({ namespace, name }) {
  const load = useLoad(async (signal) => {
    const [containers, readers, inheritance] = await Promise.all([
      get(`${pairPath(namespace, name)}/containers`, {}, { signal }),
      get(`${namespacePath(namespace)}/readers`, {}, { signal }),
      get(`${namespacePath(namespace)}/inheritance`, {}, { signal })]);
    const watchers = readers.readers.filter((reader) => reader.container === undefined ||
      containers.includes(reader.container)).length;
    return { containers, watchers: containers.length === 0 ? 0 : watchers, children: inheritance.children };
  }, [namespace, name]);
  if (load.error) return html`<${ErrorNotice} error=${load.error} />`;
  if (!load.data) return html`<p class="muted small">Used by …</p>`;
  const { containers, watchers, children } = load.data;
  return html`<${Facts} items=${[
    ["Used by", html`<span>${plural(containers.length, "container")}${containers.length > 0 && ": "}
      ${containers.slice(0, 8).map((key) =>
      html` <a href=${configLink(namespace, ["container", key])}><${Name} value=${key} /></a>`)}
        ${containers.length > 8 && " …"}</span>`],
    ["Watched by", plural(watchers, "watcher")],
    children.length > 0 && ["Inherited by",
      children.map((child) => html`<a href=${configLink(child)}><${Name} value=${child} /></a> `)],
  ]} />`;
}

export function PairPage({ namespace, name }) {
  const tab = route.value.params.view ?? "value";
  const load = useLoad((signal) => loadPair(namespace, name, signal), [namespace, name, currentDraft()]);
  const onSaved = (done) => (done.draft && done.draft !== currentDraft() ? goAfter(namespace, done)
    : load.reload());
  const link = (view) => configLink(namespace, ["pair", name], { view });
  const readOnly = !may("write", `config:${namespace}`);
  const crumbs = [{ label: "Configuration", link: "#/config" },
    { label: namespace, link: configLink(namespace) }];
  return html`<${PageHead} title=${html`<${Name} value=${name}
    /> ${load.data && html`<${InheritedBadge} from=${load.data.from} />`}`} crumbs=${crumbs}>
      <${DraftBanner} namespace=${namespace} /><${UsedBy} namespace=${namespace} name=${name} /><//>
    <${Tabs} label="Parts of the pair" current=${tab} items=${[{ id: "value", label: "Value", link: link() },
      { id: "history", label: "History", link: link("history") },
        { id: "schema", label: "Schema", link: link("schema") },
        { id: "readers", label: "Readers", link: link("readers") }]} />
    ${tab === "value" && html`<${Loaded} load=${load} render=${(base) => html`
      ${base.from !== undefined && html`<${Notice}>Inherited from <a
        href=${configLink(base.from, ["pair", name])}><${Name} value=${base.from} />
        </a>. Saving here sets an own value for this namespace.<//>`}
      <${PairEditor} ...${{ namespace, name, base, onSaved }} reload=${() => published(namespace, name)} />`}
        />`}
    ${tab === "history" && html`<${History} namespace=${namespace} address=${pairPath(namespace, name)}
      noun="pair" />`}
    ${tab === "schema" && html`<${SchemaEditor} namespace=${namespace} id=${`pair ${namespace} ${name}`}
      address=${pairPath(namespace, name)}
      history=${`${pairPath(namespace, name)}/history`} readOnly=${readOnly} />`}
    ${tab === "readers" && html`<${Readers} namespace=${namespace} />`}`;
}

/** A pair that does not exist yet. */
export function NewPairPage({ namespace }) {
  const state = useEdit(`new pair ${namespace}`, { name: "", text: "", type: "string", values: "" });
  const { name } = state.edit;
  const crumbs = [{ label: "Configuration", link: "#/config" },
    { label: namespace, link: configLink(namespace) }];
  if (!may("write", `config:${namespace}`)) return html`<${Empty}
    title="Your grants do not allow to change this namespace" />`;
  const build = (edit) => (edit.name === "" ? { error: "A key is missing." }
    : buildPair(namespace, edit.name, edit, true));
  const onSaved = (done) => (done.draft ? goAfter(namespace, done)
    : navigate(configLink(namespace, ["pair", name])));
  return html`<${PageHead} title="New pair" crumbs=${crumbs}
    actions=${html`<${LinkButton} href=${configLink(namespace)}>Back<//>`}>
    <${DraftBanner} namespace=${namespace} /><//>
    <${Editor} namespace=${namespace} label="Value" title="Review the new pair" state=${state} build=${build}
      onSaved=${onSaved}
      controls=${(edit, set) => html`<div class="grow">
        <${TextField} label="Key" value=${edit.name} mono maxlength="128"
        onInput=${(key) => set({ name: key })} /></div>${typeControls(edit, set)}`}
      input=${(edit, set) => valueInput(edit, set)} />`;
}
