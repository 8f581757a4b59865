// Drafts: changes under review. The list of a namespace, and one draft with its effect, comments, approvals
// and canary.
import { html, useState } from "./lib-html.js";
import { get, post } from "./lib-api.js";
import { may, session } from "./lib-access.js";
import { useAction, useLoad } from "./lib-load.js";
import { navigate } from "./lib-router.js";
import { ConfirmByName } from "./lib-dialog.js";
import { Badge, Button, Empty, ErrorNotice, Facts, LinkButton, Loaded, Notice, PageHead, Section, TextField,
  toast } from "./lib-ui.js";
import { Name, Text, Time } from "./lib-text.js";
import { Table } from "./lib-table.js";
import { EffectView } from "./config-diff.js";
import { ReasonFields, useReason } from "./config-change.js";
import { CanarySection } from "./config-canary.js";
import { Author } from "./config-history.js";
import { configLink, draftPath, namespacePath, sendChange } from "./config-api.js";

const draftLink = (namespace, name) => configLink(namespace, ["draft", name], { draft: undefined });

export function Drafts({ namespace }) {
  const load = useLoad((signal) => get(`${namespacePath(namespace)}/drafts`, {}, { signal }), [namespace]);
  const columns = [
    { label: "Draft", render: (draft) =>
      html`<a href=${draftLink(namespace, draft.name)}><${Name} value=${draft.name} /></a>` },
    { label: "By", render: (draft) => html`<${Author} of=${draft.created} />` },
    { label: "Edits", class: "number", render: (draft) => draft.edits },
    { label: "Comments", class: "number hide-narrow", render: (draft) => draft.comments.length },
    { label: "Approved by", render: (draft) =>
      (draft.approvals.length === 0 ? html`<span class="muted">nobody yet</span>`
      : draft.approvals.map((approval) => html`<${Author} of=${approval} /> `)) },
    { label: "Created", class: "hide-narrow", render: (draft) => html`<${Time} ms=${draft.created.time} />` },
  ];
  return html`<${Loaded} load=${load} render=${(drafts) => (drafts.length === 0
    ? html`<${Empty} title="No drafts">Edit a pair or a container, and choose “Add to a new draft” when you
      save it. Others then see what it would do, comment and approve.<//>`
    : html`<${Table} label="Drafts" columns=${columns} rows=${drafts} rowKey=${(draft) => draft.name} />`)}
      />`;
}

function Comments({ draft, address, reload, canWrite }) {
  const [text, setText] = useState("");
  const { fields, terms } = useReason();
  const action = useAction(async () => {
    await post(`${address}/comments`, undefined, { query: { ...terms(), message: text } });
    setText("");
    await reload();
  });
  const submit = (event) => {
    event.preventDefault();
    action.run();
  };
  return html`<${Section} title="Comments">
    ${draft.comments.length === 0 && html`<p class="muted">No comments yet.</p>`}
    <ol class="stack">${draft.comments.map((comment) =>
      html`<li class="comment"><${Author} of=${comment} /> <span class="muted"><${Time} ms=${comment.time} />
      </span>
      <div><${Text} value=${comment.message} max=${1200} /></div></li>`)}</ol>
    ${canWrite && html`<form class="stack" onSubmit=${submit}>
      <${TextField} label="Comment" rows="3" value=${text} onInput=${setText} maxlength="1024" />
      ${!session.value.principal && html`<${TextField} label="Your name" value=${fields.author}
        onInput=${fields.setAuthor} maxlength="128" />`}
      <${ErrorNotice} error=${action.error} /><div>
        <${Button} type="submit" disabled=${text.trim() === ""} busy=${action.busy}>Comment<//></div></form>`}
  <//>`;
}

/**
 * Approve, publish and discard. The number of edits is sent with each: a later edit is not approved unseen.
 */
function Review({ draft, namespace, address, reload, isProtected }) {
  const [isDiscarding, setDiscarding] = useState(false);
  const reason = useReason();
  const approve = useAction(async () => {
    await post(`${address}/approve`, { edits: draft.edits }, { query: reason.terms() });
    toast("Approved.");
    await reload();
  });
  const publish = useAction(async () => {
    const done = await sendChange({ address: `${address}/publish`,
      body: JSON.stringify({ edits: draft.edits }) },
      { ...reason.terms(), expected: draft.effect?.revision });
    toast(`Published as revision ${done.revision}.`);
    navigate(configLink(namespace, [], { tab: "history", draft: undefined }));
  });
  const discard = async () => {
    await sendChange({ method: "DELETE", address }, reason.terms());
    toast(`The draft ${draft.name} was discarded.`);
    navigate(configLink(namespace, [], { tab: "drafts", draft: undefined }));
  };
  const principal = session.value.principal ?? reason.fields.author;
  const isOwn = draft.authors.includes(principal);
  const lacksApproval = isProtected && draft.approvals.length === 0;
  return html`<${Section} title="Review">
    <${ReasonFields} ...${reason.fields} />
    ${isOwn && html`<p class="muted">Who has edited a draft cannot approve it.</p>`}
    ${lacksApproval && html`<p class="muted">The namespace is protected: the draft can be published once
      somebody else has approved it.</p>`}
    <${ErrorNotice} error=${approve.error} /><${ErrorNotice} error=${publish.error}
      actions=${html`<${Button} onClick=${() => { publish.clear(); reload(); }}>Read the draft again<//>`} />
    <div class="actions"><${Button} kind="primary" onClick=${publish.run} busy=${publish.busy}
      disabled=${Boolean(draft.error) || lacksApproval || !draft.effect?.changed}>Publish<//>
      <${Button} onClick=${approve.run} busy=${approve.busy} disabled=${isOwn}>Approve<//>
      <${LinkButton} href=${configLink(namespace, [], { draft: draft.name })}>Edit more<//>
      <${Button} onClick=${() => setDiscarding(true)}>Discard<//></div>
    ${isDiscarding && html`<${ConfirmByName} title="Discard the draft" noun="draft" name=${draft.name}
      submit="Discard" run=${discard} onClose=${() => setDiscarding(false)}>
      <p>Its changes and comments are lost.</p><//>`}
  <//>`;
}

async function loadDraft(namespace, name, signal) {
  const [draft, inheritance] = await Promise.all([get(draftPath(namespace, name), {}, { signal }),
    get(`${namespacePath(namespace)}/inheritance`, {}, { signal })]);
  return { draft, inheritance };
}

export function DraftPage({ namespace, name }) {
  const load = useLoad((signal) => loadDraft(namespace, name, signal), [namespace, name]);
  const address = draftPath(namespace, name);
  const crumbs = [{ label: "Configuration", link: "#/config" },
    { label: namespace, link: configLink(namespace, [], { draft: undefined }) },
    { label: "Drafts", link: configLink(namespace, [], { tab: "drafts", draft: undefined }) }];
  const canWrite = may("write", `config:${namespace}`);
  return html`<${PageHead} title=${html`Draft <${Name} value=${name} />`} crumbs=${crumbs} />
    <${Loaded} load=${load} render=${({ draft, inheritance }) => html`
      <div class="split"><div>
        <${Section} title="What it changes">
          ${draft.error && html`<${Notice} kind="error" title="It cannot be published now">
          <${Text} value=${draft.error} /><//>`}
          ${draft.effect && html`<${EffectView} effect=${draft.effect} />`}<//>
        ${canWrite && html`<${Review} ...${{ draft, namespace, address }} isProtected=${inheritance.protected}
          reload=${load.reload} />`}
        <${CanarySection} ...${{ draft, namespace, inheritance, canWrite }} reload=${load.reload} />
      </div><div>
        <${Section} title="State"><div class="facts-stacked"><${Facts} items=${[
          ["Created by", html`<${Author} of=${draft.created} />`],
            ["Created", html`<${Time} ms=${draft.created.time} />`],
          ["Edits", String(draft.edits)],
            ["Edited by", draft.authors.map((author) => html`<${Author} of=${{ author }} /> `)],
          ["Last edit at", `revision ${draft.revision}`],
          ["Approved by", draft.approvals.length === 0 ? "nobody yet"
            : draft.approvals.map((approval) =>
            html`<div><${Badge} kind="ok">✓<//> <${Author} of=${approval} /> <${Time} ms=${approval.time} />
            </div>`)],
        ]} /></div><//>
        <${Comments} draft=${draft} address=${address} reload=${load.reload} canWrite=${canWrite} />
      </div></div>`} />`;
}

