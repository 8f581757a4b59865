// Principals: somebody or something that makes requests. List, create, change, delete.
import { html, useState } from "./lib-html.js";
import { del, path, put } from "./lib-api.js";
import { ConfirmByName, FormDialog } from "./lib-dialog.js";
import { href } from "./lib-router.js";
import { VirtualTable } from "./lib-table.js";
import { Name, plural } from "./lib-text.js";
import { Badge, Button, CheckField, Empty, Section, TextField } from "./lib-ui.js";
import { tellChange } from "./access-change.js";

const FRESH = { name: "", roles: [], certificate_names: [] };

export function Principals({ access, onChanged }) {
  const [edited, setEdited] = useState(null);
  const [deleted, setDeleted] = useState(null);
  const tokensOf = (name) => access.tokens.filter(({ principal }) => principal === name).length;
  const columns = [
    { label: "Principal", render: ({ name }) => html`<${Name} value=${name} />` },
    { label: "Roles", render: ({ roles }) => roles.map((role) => html`<${Badge}><${Name}
      value=${role} /><//> `) },
    { label: "Tokens", class: "number hide-narrow", width: "90px", render: ({ name }) => tokensOf(name) },
    { label: "Certificates", class: "number hide-narrow", width: "110px", render: (principal) =>
      principal.certificate_names.length },
    { label: "Actions", class: "number", width: "240px", render: (principal) => html`<span
      class="cell-actions">
      <a class="hide-narrow" href=${href(["access", "questions"],
        { principal: principal.name })}>Permissions</a>
      <${Button} kind="quiet" onClick=${() => setEdited(principal)}
        aria-label=${`Change ${principal.name}`}>Change<//>
      <${Button} kind="quiet" onClick=${() => setDeleted(principal)}
        aria-label=${`Delete ${principal.name}`}>Delete<//></span>` },
  ];
  return html`<${Section} title="Principals" actions=${html`<${Button} kind="primary" onClick=${() =>
    setEdited(FRESH)}>New principal<//>`}>
    ${access.principals.length === 0
      ? html`<${Empty} title="No principals">A principal has roles, and tokens that prove who makes a
        request.<//>`
      : html`<${VirtualTable} label="List of principals" columns=${columns} rows=${access.principals}
        rowKey=${({ name }) => name} row_px=${40} />`}
    ${edited && html`<${PrincipalForm} principal=${edited} roles=${access.roles} onChanged=${onChanged}
      onClose=${() => setEdited(null)} />`}
    ${deleted && html`<${ConfirmByName} title="Delete a principal" name=${deleted.name} noun="principal"
      submit="Delete"
      onClose=${() => setDeleted(null)} run=${async () => {
        tellChange(await del(path`/v1/auth/principals/${deleted.name}`), `Deleted ${deleted.name}`);
        setDeleted(null);
        onChanged();
      }}><p>Its ${plural(tokensOf(deleted.name), "token")} end with it.</p><//>`}<//>`;
}

function PrincipalForm({ principal, roles, onChanged, onClose }) {
  const isNew = principal === FRESH;
  const [draft, setDraft] = useState({ ...principal, certificates: principal.certificate_names.join("\n") });
  const toggle = (role, isOn) =>
    setDraft({ ...draft, roles: isOn ? [...draft.roles, role] : draft.roles.filter((name) =>
      name !== role) });
  const save = async () => {
    const certificate_names = draft.certificates.split("\n").map((name) => name.trim()).filter((name) =>
      name !== "");
    const change = await put(path`/v1/auth/principals/${draft.name}`, { roles: draft.roles,
      certificate_names });
    tellChange(change, `Saved ${draft.name}`);
    onClose();
    onChanged();
  };
  return html`<${FormDialog} title=${isNew ? "New principal" : "Change a principal"} submit="Save"
    onClose=${onClose} onSubmit=${save}
    disabled=${draft.name === ""}>
    <${TextField} label="Name" value=${draft.name} onInput=${(name) => setDraft({ ...draft, name })} mono
      required disabled=${!isNew} />
    <fieldset class="choices"><legend>Roles</legend>${roles.map(({ name }) => html`<${CheckField}
      label=${html`<${Name} value=${name} />`}
      checked=${draft.roles.includes(name)} onChange=${(isOn) => toggle(name, isOn)} />`)}</fieldset>
    <${TextField} label="Names in client certificates, one a line (optional)" rows=${2} mono
      value=${draft.certificates}
      onInput=${(certificates) => setDraft({ ...draft, certificates })} /><//>`;
}
