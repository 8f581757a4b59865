// "What may X do?" and "who may write Y?", answered from roles and grants. The questions are in the URL.
import { html } from "./lib-html.js";
import { href, navigate, route } from "./lib-router.js";
import { Table } from "./lib-table.js";
import { Name, Text, plural } from "./lib-text.js";
import { Badge, Notice, Section, SelectField, TextField } from "./lib-ui.js";
import { activeRoles, grantSentence, principalsWho } from "./lib-grants.js";

const VERBS = [
  ["read keys", "read the key"], ["write keys", "write the key"], ["watch keys", "watch the key"],
  ["read config", "read the namespace"], ["write config", "write the namespace"], ["reveal config",
    "see secrets of the namespace"],
  ["cluster:read", "see the cluster"], ["cluster:operate", "operate the cluster"], ["cluster:admin",
    "administer the cluster"],
];

const ask = (changes) => navigate(href(["access", "questions"], { ...route.value.params, ...changes }),
  { replace: true });

/** The question of the second form as `lib-grants.js` takes it; null if a name is missing. */
function questionOf(verb, name) {
  if (verb.startsWith("cluster:")) return { domain: "cluster", level: verb.slice("cluster:".length) };
  const [word, domain] = verb.split(" ");
  return name === "" ? null : { domain, verb: word, name, exact: true };
}

export function Questions({ access }) {
  return html`${!access.required && html`<${Notice} kind="warn" title="Tokens are not required">Everyone may
    do everything now.
      The answers hold once tokens are required.<//>`}
    <div class="columns-2 questions"><${WhatMay} access=${access} /><${WhoMay} access=${access} /></div>`;
}

function WhatMay({ access }) {
  const { principal: name = "" } = route.value.params;
  const principal = access.principals.find((entry) => entry.name === name);
  const rows = principal ? activeRoles(principal, access.roles, Date.now()).flatMap((role) =>
    role.grants.map((grant) => ({ role: role.name, grant }))) : [];
  const columns = [
    { label: "May", render: ({ grant }) => html`<${Text} value=${grantSentence(grant)} max=${300} />` },
    { label: "By grant", class: "hide-narrow", render: ({ grant }) => html`<${Name} value=${grant} />` },
    { label: "Of role", render: ({ role }) => html`<${Name} value=${role} />` },
  ];
  const options = [{ value: "", label: "choose a principal" }, ...access.principals.map((entry) =>
    entry.name)];
  return html`<${Section} title="What may a principal do?">
    <${SelectField} label="Principal" value=${principal ? name : ""} options=${options} onChange=${(value) =>
      ask({ principal: value })} />
    ${name && !principal && html`<${Notice} kind="warn" title="There is no such principal" />`}
    ${principal && (rows.length === 0
      ? html`<p class="muted">Nothing: none of its roles allows anything now.</p>`
      : html`<${Table} label=${`What ${name} may do`} columns=${columns} rows=${rows} rowKey=${({ role,
        grant }) => `${role} ${grant}`} />`)}<//>`;
}

function WhoMay({ access }) {
  const { verb = "write keys", name = "" } = route.value.params;
  const question = questionOf(verb, name);
  const rows = question ? principalsWho(question, access.principals, access.roles, Date.now()) : [];
  const columns = [
    { label: "Principal", render: ({ principal }) => html`<${Name} value=${principal} />` },
    { label: "By grant", render: ({ grant }) => html`<${Name} value=${grant} />` },
    { label: "Of role", render: ({ role }) => html`<${Badge}><${Name} value=${role} /><//>` },
  ];
  return html`<${Section} title="Who may do something?">
    <div class="row-end">
      <div class="question-verb"><${SelectField} label="Who may" value=${verb} onChange=${(value) =>
        ask({ verb: value })}
        options=${VERBS.map(([value, label]) => ({ value, label }))} /></div>
      ${!verb.startsWith("cluster:") && html`<div class="grow"><${TextField} label=${verb.endsWith("keys")
        ? "Key" : "Namespace"}
        value=${name} onInput=${(value) => ask({ name: value })} mono /></div>`}
    </div>
    ${question && html`<p class="muted" role="status">${rows.length === 0 ? "No principal may."
      : `${plural(rows.length, "principal")} may.`}</p>`}
    ${rows.length > 0 && html`<${Table} label="Who may" columns=${columns} rows=${rows}
      rowKey=${({ principal }) => principal} />`}<//>`;
}
