// Environments: from which namespaces this one inherits, which inherit from it, the comparison with another
// one, and taking over what differs.
import { html, useMemo, useState } from "./lib-html.js";
import { get } from "./lib-api.js";
import { useLoad } from "./lib-load.js";
import { route, setParams } from "./lib-router.js";
import { Badge, Button, CheckField, Empty, Facts, Loaded, Notice, Section, TextField } from "./lib-ui.js";
import { Name, plural } from "./lib-text.js";
import { ItemDiff } from "./config-diff.js";
import { ChangeDialog, goAfter } from "./config-change.js";
import { allPages, configLink, namespacePath } from "./config-api.js";

const ITEMS_SHOWN = 100;

const Links = ({ names, none }) => (names.length === 0 ? html`<span class="muted">${none}</span>`
  : names.map((name) => html`<a href=${configLink(name, [], { tab: "environments" })}>
    <${Name} value=${name} /></a> `));

function Parents({ namespace, inheritance, canWrite, reload }) {
  const [text, setText] = useState(inheritance.parents.join("\n"));
  const [change, setChange] = useState(null);
  const parents = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const isSame = JSON.stringify(parents) === JSON.stringify(inheritance.parents);
  const review = (event) => {
    event.preventDefault();
    setChange({ address: `${namespacePath(namespace)}/parents`, body: JSON.stringify({ parents }),
      draftable: false });
  };
  const onDone = async () => {
    setChange(null);
    await reload();
  };
  return html`<${Section} title="Inheritance"><${Facts} items=${[
      ["Inherits from", html`<${Links} names=${inheritance.parents} none="no namespace" />`],
      ["Inherited by", html`<${Links} names=${inheritance.children} none="no namespace" />`]]} />
    ${canWrite && html`<form class="stack narrow" onSubmit=${review}>
      <${TextField} label="Parents, one a line; the first that has an item gives it" rows="3" mono
      value=${text} onInput=${setText}
        hint="All of them share the text in braces of their names: {shop}/base, {shop}/prod."
          />
      <div><${Button} type="submit" disabled=${isSame}>Review the parents<//></div></form>`}
    ${change && html`<${ChangeDialog} namespace=${namespace} title="Set the parents" change=${change}
      onClose=${() => setChange(null)} onDone=${onDone} />`}<//>`;
}

/** How many items are own and how many come from which namespace. */
function Origins({ namespace, revision }) {
  const load = useLoad(async (signal) => {
    const counts = new Map();
    for (const member of ["pairs", "containers"]) {
      let items = [];
      await allPages(`${namespacePath(namespace)}/${member}`, member,
        { signal, onPage: (all) => { items = all; } });
      for (const item of items) {
        const origin = item.inherited_from ?? namespace;
        const entry = counts.get(origin) ?? { pairs: 0, containers: 0 };
        entry[member] += 1;
        counts.set(origin, entry);
      }
    }
    return [...counts];
  }, [namespace, revision]);
  return html`<${Section} title="Where values come from">
    <${Loaded} load=${load} render=${(origins) => (origins.length === 0
    ? html`<p class="muted">The namespace is empty.</p>`
    : html`<ul class="stack-small">${origins.map(([origin, amounts]) => html`
      <li class="row">${origin === namespace
      ? html`<${Badge} kind="accent">set here<//>`
        : html`<a href=${configLink(origin)}><${Name} value=${origin} /></a>`}
      ${plural(amounts.pairs, "pair")}, ${plural(amounts.containers, "container")}</li>`)}</ul>`)} /><//>`;
}

function Comparison({ namespace, other, canWrite, reload }) {
  const load = useLoad((signal) => get(`${namespacePath(namespace)}/compare`, { with: other }, { signal }),
    [namespace, other]);
  const [left, setLeft] = useState(new Set());
  const [prune, setPrune] = useState(false);
  const [promotion, setPromotion] = useState(null);
  const changes = (load.data?.changes ?? []).filter((change) => prune || change.action !== "delete");
  const chosen = changes.filter((change) => !left.has(`${change.kind} ${change.key}`));
  const toggle = (id, isChosen) => setLeft((old) => {
    const next = new Set(old);
    if (isChosen) next.delete(id);
    else next.add(id);
    return next;
  });
  const promote = () => setPromotion({ address: `${namespacePath(namespace)}/promote`,
    body: JSON.stringify({ from: other, prune,
      ...(chosen.length < changes.length && { keys: [...new Set(chosen.map((change) => change.key))] }) }) });
  const onDone = async (done) => {
    setPromotion(null);
    if (done.draft) return goAfter(namespace, done);
    await Promise.all([load.reload(), reload()]);
    return undefined;
  };
  return html`<${Loaded} load=${load} render=${() => (load.data.changes.length === 0
    ? html`<${Empty} title="Both have the same content" />`
    : html`<div class="stack"><div class="row">
      <p class="muted grow">How this namespace would change if it had the content of <${Name} value=${other}
      />: ${plural(changes.length, "item")}.</p>
        ${canWrite && html`<${CheckField} label="Delete what the other does not have" checked=${prune}
          onChange=${setPrune} />
          <${Button} kind="primary" disabled=${chosen.length === 0}
            onClick=${promote}>Take over ${plural(chosen.length, "item")}<//>`}</div>
      ${changes.slice(0, ITEMS_SHOWN).map((change) => {
        const id = `${change.kind} ${change.key}`;
        return html`<div key=${id} class="compared">
          ${canWrite && html`<input type="checkbox" aria-label=${`Take over the ${id}`}
          checked=${!left.has(id)}
          onChange=${(event) => toggle(id, event.currentTarget.checked)} />`}
            <${ItemDiff} namespace=${namespace} change=${change} /></div>`;
      })}
      ${changes.length > ITEMS_SHOWN && html`<${Notice}>The first ${ITEMS_SHOWN} of ${plural(changes.length,
        "item")} are shown; taking over includes the others.<//>`}</div>
      ${promotion && html`<${ChangeDialog} namespace=${namespace} title=${`Take over from ${other}`}
        change=${promotion} onClose=${() => setPromotion(null)} onDone=${onDone} />`}`)} />`;
}

function Compare({ namespace, inheritance, canWrite, reload }) {
  const other = route.value.params.with ?? "";
  const [text, setText] = useState(other);
  const known = useMemo(() => [...inheritance.parents, ...inheritance.children], [inheritance]);
  const compare = (event) => {
    event.preventDefault();
    setParams({ with: text }, { replace: false });
  };
  return html`<${Section} title="Compare with another namespace">
    <form class="row-end narrow" onSubmit=${compare}><div class="grow">
      <${TextField} label="Namespace" mono value=${text} onInput=${setText} list="related-namespaces" /></div>
      <datalist id="related-namespaces">${known.map((name) => html`<option value=${name} />`)}</datalist>
      <${Button} type="submit" disabled=${text === "" || text === namespace}>Compare<//></form>
    ${other !== "" && html`<${Comparison} key=${other} ...${{ namespace, other, canWrite, reload }} />`}<//>`;
}

export function Environments({ namespace, inheritance, canWrite, reload }) {
  return html`<${Parents} key=${inheritance.parents.join("\n")}
    ...${{ namespace, inheritance, canWrite, reload }} />
    <${Origins} namespace=${namespace} revision=${inheritance.revision} />
      <${Compare} ...${{ namespace, inheritance, canWrite, reload }} />`;
}
