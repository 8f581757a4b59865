// A canary: a draft that some readers see first. Begin, what it shows, publish or withdraw.
import { html, useState } from "./lib-html.js";
import { del, post } from "./lib-api.js";
import { useAction } from "./lib-load.js";
import { Button, ErrorNotice, Facts, Notice, Section, TextField, toast } from "./lib-ui.js";
import { Name } from "./lib-text.js";
import { useReason } from "./config-change.js";
import { configLink, draftPath, namespacePath } from "./config-api.js";

const labelsOf = (text) => text.split(/[\n,]/).map((label) => label.trim()).filter(Boolean);

const Labels = ({ labels, percent }) => html`${labels.length === 0 ? "no labels"
  : labels.map((label) => html`<${Name} value=${label} /> `)}${percent > 0 &&
  html` and ${percent} % of all other labels`}`;

/** Shown on all pages of a namespace: while a canary is open, the namespace takes no other change. */
export function CanaryNotice({ namespace, canary }) {
  if (!canary) return null;
  return html`<${Notice} kind="warn" title="A canary is open"
    actions=${html`<a href=${configLink(namespace, ["draft", canary.draft], { draft: undefined })}>Open its
    draft</a>`}>
    Readers with <${Labels} ...${canary} /> see the draft <${Name} value=${canary.draft}
      />. The namespace takes no other change until it is published or withdrawn.<//>`;
}

function OpenCanary({ namespace, canary, reload, canWrite }) {
  const { terms } = useReason();
  const action = useAction(async () => {
    await del(`${namespacePath(namespace)}/canary`, { query: terms() });
    toast("The canary was withdrawn. Its readers are sent the published configuration.");
    await reload();
  });
  return html`<${Notice} kind="warn" title="These readers see this draft now">
    <${Facts} items=${[["Readers", html`<${Labels} ...${canary} />`]]} />
      <p>Publish the draft to show it to all readers, or withdraw the canary.</p><//>
    <${ErrorNotice} error=${action.error} />
    <div class="actions">${canWrite && html`<${Button} onClick=${action.run}
      busy=${action.busy}>Withdraw the canary<//>`}
      <a href=${configLink(namespace, [], { tab: "readers", draft: undefined })}>Which revision each reader
        has</a></div>`;
}

function BeginCanary({ namespace, draft, reload }) {
  const [labels, setLabels] = useState("");
  const [percent, setPercent] = useState("0");
  const { terms } = useReason();
  const action = useAction(async () => {
    const body = { labels: labelsOf(labels), percent: Number(percent), edits: draft.edits };
    await post(`${draftPath(namespace, draft.name)}/canary`, body, { query: terms() });
    toast("The canary has begun.");
    await reload();
  });
  const submit = (event) => {
    event.preventDefault();
    action.run();
  };
  return html`<form class="stack" onSubmit=${submit}>
    <p class="muted">Programs that state one of these labels see the draft first. A program without a label
    never does.</p>
    <div class="row-end"><div class="grow">
      <${TextField} label="Labels" value=${labels} onInput=${setLabels} mono
      hint="Separated by commas; web-* stands for all that begin so." /></div>
      <${TextField} label="Share of other labels, %" type="number" min="0" max="100" value=${percent}
        onInput=${setPercent} hint="0 to 100." /></div>
    <${ErrorNotice} error=${action.error} />
    <div><${Button} type="submit" busy=${action.busy}
      disabled=${labelsOf(labels).length === 0 && Number(percent) === 0}>Begin the canary<//></div></form>`;
}

export function CanarySection({ draft, namespace, inheritance, reload, canWrite }) {
  const { canary } = inheritance;
  if (!canary && !canWrite) return null;
  return html`<${Section} title="Canary">${canary?.draft === draft.name
    ? html`<${OpenCanary} ...${{ namespace, canary, reload, canWrite }} />`
    : canary ? html`<${CanaryNotice} namespace=${namespace} canary=${canary} />`
      : html`<${BeginCanary} ...${{ namespace, draft, reload }} />`}<//>`;
}
