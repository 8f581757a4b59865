// Tokens: what proves a principal. A new secret is shown once. List, create, rotate, delete.
import { html, useState } from "./lib-html.js";
import { del, path, post } from "./lib-api.js";
import { ConfirmByName, Dialog, FormDialog } from "./lib-dialog.js";
import { VirtualTable } from "./lib-table.js";
import { Name, Time } from "./lib-text.js";
import { Badge, Button, Empty, Notice, Section, SelectField, TextField } from "./lib-ui.js";
import { parseDuration } from "./lib-ops.js";
import { tellChange } from "./access-change.js";

export function Tokens({ access, onChanged }) {
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  const show = (issued, text) => {
    tellChange(issued, text);
    setOpen({ dialog: "issued", issued });
    onChanged();
  };
  const columns = [
    { label: "Principal", render: ({ principal }) => html`<${Name} value=${principal} />` },
    { label: "Token", class: "hide-narrow", width: "180px", render: ({ id }) => html`<${Name}
      value=${id} />` },
    { label: "Created", class: "hide-narrow", width: "130px", render: (token) => html`<${Time}
      ms=${token.created_unix_ms} />` },
    { label: "Expires", class: "hide-narrow", width: "130px", render: (token) =>
      (token.expires_unix_ms === undefined
      ? "never" : html`<${Time} ms=${token.expires_unix_ms} />`) },
    { label: "Secrets", class: "hide-narrow", width: "130px", render: ({ secrets }) => (secrets > 1
      ? html`<${Badge} kind="warn">2: rotated<//>` : "1") },
    { label: "Actions", class: "number", width: "160px", render: (token) => html`<span class="cell-actions">
      <${Button} kind="quiet" onClick=${() => setOpen({ dialog: "rotate", token })}
        aria-label=${`Rotate ${token.id}`}>Rotate<//>
      <${Button} kind="quiet" onClick=${() => setOpen({ dialog: "delete", token })}
        aria-label=${`Delete ${token.id}`}>Delete<//></span>` },
  ];
  const create = html`<${Button} kind="primary" disabled=${access.principals.length === 0} onClick=${() =>
    setOpen({ dialog: "create" })}>New token<//>`;
  return html`<${Section} title="Tokens" actions=${create}>
    ${access.tokens.length === 0
      ? html`<${Empty} title="No tokens">${access.principals.length === 0 ? "Create a principal first."
        : "A token proves who makes a request."}<//>`
      : html`<${VirtualTable} label="List of tokens" columns=${columns} rows=${access.tokens}
        rowKey=${({ id }) => id} row_px=${40} />`}
    ${open?.dialog === "create" && html`<${CreateToken} principals=${access.principals} onClose=${close}
      onIssued=${show} />`}
    ${open?.dialog === "issued" && html`<${IssuedToken} issued=${open.issued} onClose=${close} />`}
    ${open?.dialog === "rotate" && html`<${FormDialog} title="Rotate a token" submit="Rotate" onClose=${close}
      onSubmit=${async () =>
      show(await post(path`/v1/auth/tokens/${open.token.id}/rotate`), "Rotated")}>
      <p>The token gets another secret, which is shown once. The present secret stays valid until the next
        rotation; the one
        before it ends now.</p><//>`}
    ${open?.dialog === "delete" && html`<${ConfirmByName} title="Delete a token" name=${open.token.id}
      noun="token" submit="Delete"
      onClose=${close} run=${async () => {
        tellChange(await del(path`/v1/auth/tokens/${open.token.id}`), "Deleted the token");
        close();
        onChanged();
      }}><p>Requests with it are refused from then on, also on open connections.</p><//>`}<//>`;
}

function CreateToken({ principals, onClose, onIssued }) {
  const [principal, setPrincipal] = useState(principals[0].name);
  const [expires, setExpires] = useState("90d");
  const isWrong = expires !== "" && parseDuration(expires) === null;
  const run = async () => {
    const expiresInS = expires === "" ? undefined : Math.max(1, Math.round(parseDuration(expires) / 1000));
    onIssued(await post("/v1/auth/tokens", { principal, expires_in_s: expiresInS }), "Created");
  };
  return html`<${FormDialog} title="New token" submit="Create" onClose=${onClose} onSubmit=${run}
    disabled=${isWrong}>
    <${SelectField} label="Principal" value=${principal} onChange=${setPrincipal}
      options=${principals.map(({ name }) => name)} />
    <${TextField} label="Expires after" value=${expires} onInput=${setExpires} mono
      hint="Such as 90d; empty: never."
      error=${isWrong ? "Give a whole number with s, m, h or d." : ""} /><//>`;
}

function IssuedToken({ issued, onClose }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(issued.token);
    setCopied(true);
  };
  return html`<${Dialog} title="The new token" onClose=${onClose}>
    <${Notice} kind="warn" title="Store it now">It is shown this once: no node keeps it.<//>
    <${TextField} label="Token" value=${issued.token} readonly mono rows=${3} onInput=${() => {}}
      onFocus=${(event) => event.currentTarget.select()} />
    <div class="dialog-actions">
      ${navigator.clipboard && html`<${Button} onClick=${copy}>${isCopied ? "Copied" : "Copy"}<//>`}
      <${Button} kind="primary" onClick=${onClose}>Done<//></div><//>`;
}
