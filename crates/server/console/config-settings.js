// What holds for a whole namespace: protection, how much history is kept, secrets, and its deletion.
import { html, useState } from "./lib-html.js";
import { del, post } from "./lib-api.js";
import { may } from "./lib-access.js";
import { useAction } from "./lib-load.js";
import { navigate } from "./lib-router.js";
import { ConfirmByName } from "./lib-dialog.js";
import { Badge, Button, ErrorNotice, Section, TextField, toast } from "./lib-ui.js";
import { plural } from "./lib-text.js";
import { useReason } from "./config-change.js";
import { namespacePath } from "./config-api.js";

const DAY_MS = 86_400_000;

function Protection({ namespace, inheritance, canWrite, reload }) {
  const { terms } = useReason();
  const isProtected = inheritance.protected;
  const action = useAction(async () => {
    await post(`${namespacePath(namespace)}/protection`, { protected: !isProtected }, { query: terms() });
    toast(isProtected ? "The protection has ended." : "The namespace is protected.");
    await reload();
  });
  const canProtect = canWrite && may("cluster:admin");
  return html`<${Section} title="Protection"><p><${Badge} kind=${isProtected ? "warn" : "plain"}>
    ${isProtected ? "protected" : "not protected"}<//></p>
    <p class="muted">In a protected namespace only an approved draft changes pairs and containers. To change
      this takes cluster:admin.</p>
    <${ErrorNotice} error=${action.error} />
    ${canProtect && html`<div><${Button} onClick=${action.run} busy=${action.busy}>
      ${isProtected ? "End the protection" : "Protect the namespace"}<//></div>`}<//>`;
}

function Policy({ namespace, info, canWrite, reload }) {
  const { policy } = info;
  const [revisions, setRevisions] = useState(String(policy.revisions));
  const [days, setDays] = useState(String(Math.round(policy.ageMs / DAY_MS)));
  const { terms } = useReason();
  const action = useAction(async () => {
    await post(`${namespacePath(namespace)}/policy`, { revisions: Number(revisions), days: Number(days) },
      { query: terms() });
    toast("The policy was changed.");
    await reload();
  });
  const save = (event) => {
    event.preventDefault();
    action.run();
  };
  return html`<${Section} title="History">
    <p class="muted">At most so many revisions, so many days and 32 MiB are kept. The newest two always
    are.</p>
    <form class="row-end" onSubmit=${save}>
      <${TextField} label="Revisions" type="number" min="2" max="10000" value=${revisions}
        onInput=${setRevisions} disabled=${!canWrite} />
      <${TextField} label="Days" type="number" min="1" value=${days} onInput=${setDays} disabled=${!canWrite}
        />
      ${canWrite && html`<${Button} type="submit" busy=${action.busy}>Save<//>`}</form>
        <${ErrorNotice} error=${action.error} /><//>`;
}

function Secrets({ namespace, reload }) {
  const { terms } = useReason();
  const action = useAction(async () => {
    const done = await post(`${namespacePath(namespace)}/secrets/rotate`, undefined, { query: terms() });
    toast(done.changed ? `Encrypted again in revision ${done.revision}.`
      : "There is no secret to encrypt again.");
    await reload();
  });
  return html`<${Section} title="Secrets">
    <p class="muted">After you have replaced the key of the nodes, encrypt the secrets again with the new
    one.</p>
    <${ErrorNotice} error=${action.error} /><div>
      <${Button} onClick=${action.run} busy=${action.busy}>Encrypt the secrets again<//></div><//>`;
}

function Deletion({ namespace, info }) {
  const [isOpen, setOpen] = useState(false);
  const { terms } = useReason();
  const remove = async () => {
    await del(namespacePath(namespace), { query: { ...terms(), force: true, expected: info.revision } });
    toast("The namespace was deleted.");
    navigate("#/config");
  };
  return html`<${Section} title="Delete">
    <p class="muted">Deletes all pairs, containers and drafts, with their history.</p>
    <div><${Button} kind="danger" onClick=${() => setOpen(true)}>Delete the namespace<//></div>
    ${isOpen && html`<${ConfirmByName} title="Delete the namespace" noun="namespace" name=${namespace}
      submit="Delete" run=${remove} onClose=${() => setOpen(false)}>
      <p>${plural(info.pairs, "pair")} and ${plural(info.containers, "container")} are deleted, with their
        history. Programs that watch them are told so. This cannot be undone.</p><//>`}<//>`;
}

export function Settings({ namespace, info, inheritance, canWrite, reload }) {
  const shared = { namespace, info, inheritance, canWrite, reload };
  return html`<div class="narrow"><${Protection} ...${shared} /><${Policy} ...${shared} />
    ${canWrite && may("reveal", `config:${namespace}`) && html`<${Secrets} ...${shared} />`}
    ${canWrite && html`<${Deletion} ...${shared} />`}</div>`;
}
