// Roles: named sets of grants, with an end and limits. List, create, change, delete.
import { html, useState } from "./lib-html.js";
import { del, path, put } from "./lib-api.js";
import { ConfirmByName, FormDialog } from "./lib-dialog.js";
import { VirtualTable } from "./lib-table.js";
import { Name, Text, Time, bytes, count } from "./lib-text.js";
import { Button, Section, TextField } from "./lib-ui.js";
import { grantSentence, parseGrant } from "./lib-grants.js";
import { tellChange } from "./access-change.js";

const FRESH = { name: "", grants: [] };
const BUILT_IN = "admin";

export function Roles({ access, onChanged }) {
  const [edited, setEdited] = useState(null);
  const [deleted, setDeleted] = useState(null);
  const holders = (name) => access.principals.filter(({ roles }) => roles.includes(name)).length;
  const columns = [
    { label: "Role", width: "22%", render: ({ name }) => html`<${Name} value=${name} />` },
    { label: "Allows", render: ({ grants }) => html`<${Text} value=${grants.join(", ") || "nothing"} inline
      mono />` },
    { label: "Principals", class: "number hide-narrow", width: "90px", render: ({ name }) => holders(name) },
    { label: "Ends", class: "hide-narrow", width: "110px", render: (role) => html`<${Time}
      ms=${role.ends_unix_ms} />` },
    { label: "Limits", class: "hide-narrow", width: "150px", render: limitText },
    { label: "Actions", class: "number", width: "160px", render: (role) => (role.name === BUILT_IN
      ? html`<span class="muted">built in</span>`
      : html`<span class="cell-actions">
        <${Button} kind="quiet" onClick=${() => setEdited(role)}
          aria-label=${`Change ${role.name}`}>Change<//>
        <${Button} kind="quiet" onClick=${() => setDeleted(role)}
          aria-label=${`Delete ${role.name}`}>Delete<//></span>`) },
  ];
  return html`<${Section} title="Roles" actions=${html`<${Button} kind="primary" onClick=${() =>
    setEdited(FRESH)}>New role<//>`}>
    <${VirtualTable} label="List of roles" columns=${columns} rows=${access.roles} rowKey=${({ name }) =>
      name} row_px=${40} />
    ${edited && html`<${RoleForm} role=${edited} onChanged=${onChanged} onClose=${() => setEdited(null)} />`}
    ${deleted && html`<${ConfirmByName} title="Delete a role" name=${deleted.name} noun="role" submit="Delete"
      onClose=${() => setDeleted(null)} run=${async () => {
        tellChange(await del(path`/v1/auth/roles/${deleted.name}`), `Deleted ${deleted.name}`);
        setDeleted(null);
        onChanged();
      }}><p>A role that a principal has cannot be deleted.</p><//>`}<//>`;
}

function limitText({ operations_per_s: operations, bytes_per_s: size }) {
  return [operations && `${count(operations)} op/s`, size && `${bytes(size)}/s`].filter(Boolean).join(", ");
}

/** The local time of a role's end, as an input of the type `datetime-local` takes it. */
function localInput(unixMs) {
  if (unixMs === undefined) return "";
  const date = new Date(unixMs);
  return new Date(unixMs - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

const positive = (text) => (text.trim() === "" ? undefined : Number(text));
const isLimit = (text) => text.trim() === "" || /^[1-9][0-9]{0,12}$/.test(text.trim());

function RoleForm({ role, onChanged, onClose }) {
  const isNew = role === FRESH;
  const [draft, setDraft] = useState({
    name: role.name, grants: role.grants.join("\n"), ends: localInput(role.ends_unix_ms),
    operations: String(role.operations_per_s ?? ""), bytes: String(role.bytes_per_s ?? ""),
  });
  const set = (member) => (value) => setDraft({ ...draft, [member]: value });
  const grants = draft.grants.split("\n").map((grant) => grant.trim()).filter((grant) => grant !== "");
  const wrong = grants.find((grant) => !parseGrant(grant));
  const save = async () => {
    const change = await put(path`/v1/auth/roles/${draft.name}`, {
      grants,
      ends_unix_ms: draft.ends === "" ? undefined : new Date(draft.ends).valueOf(),
      operations_per_s: positive(draft.operations),
      bytes_per_s: positive(draft.bytes),
    });
    tellChange(change, `Saved ${draft.name}`);
    onClose();
    onChanged();
  };
  const limit = (member, label) => html`<${TextField} label=${label} value=${draft[member]}
    onInput=${set(member)} mono
    inputmode="numeric" placeholder="no limit" error=${isLimit(draft[member]) ? ""
      : "Give a whole number."} />`;
  return html`<${FormDialog} title=${isNew ? "New role" : "Change a role"} submit="Save" onClose=${onClose}
    onSubmit=${save}
    disabled=${draft.name === "" || wrong !== undefined || !isLimit(draft.operations)
      || !isLimit(draft.bytes)}>
    <${TextField} label="Name" value=${draft.name} onInput=${set("name")} mono required disabled=${!isNew} />
    <${TextField} label="Grants, one a line" value=${draft.grants} onInput=${set("grants")} rows=${5} mono
      placeholder="read keys:app/" error=${wrong === undefined ? "" : `“${wrong}” is not a grant.`}
      hint="Such as: read keys:app/, write keys:app/, watch keys:app/, read config:web*, cluster:read" />
    ${grants.length > 0 && html`<ul class="grant-list small muted">${grants.map((grant) =>
      html`<li>to <${Text} value=${grantSentence(grant)} inline /></li>`)}</ul>`}
    <${TextField} label="Ends (optional, local time)" type="datetime-local" value=${draft.ends}
      onInput=${set("ends")} />
    <div class="columns-2">${limit("operations", "Operations a second")}${limit("bytes",
      "Bytes a second")}</div><//>`;
}
