// Keys: folders and keys below a prefix, and one key beside them. It owns the route of the screen: prefix,
// delimiter, selected key and whether a new key is being created are all in the URL.
import { html, useState } from "./lib-html.js";
import { mayAny } from "./lib-access.js";
import { href, navigate, route } from "./lib-router.js";
import { Name } from "./lib-text.js";
import { Button, LinkButton, Notice, PageHead, SelectField, TextField } from "./lib-ui.js";
import { keyId, sameKey } from "./lib-bytes.js";
import { prefixSteps } from "./keys-api.js";
import { KeyList } from "./keys-list.js";
import { KeyDetail } from "./keys-detail.js";
import { NewKey } from "./keys-new.js";

const DELIMITERS = [
  { value: "/", label: "/ (slash)" }, { value: ":", label: ": (colon)" },
  { value: ".", label: ". (dot)" }, { value: "none", label: "none" },
];

/** A key or prefix in the route: { text } or { b64 }; null if it is absent. */
function routeBytes(name) {
  const { params } = route.value;
  if (params[`${name}_b64`] !== undefined) return { b64: params[`${name}_b64`] };
  return params[name] === undefined ? null : { text: params[name] };
}

const routeValue = (name, key) =>
  key === null ? {} : { [key.b64 === undefined ? name : `${name}_b64`]: key.text ?? key.b64 };

/** A link to a place of the screen. The delimiter stays as it is. */
function keysHref({ prefix, key = null, isNew = false }) {
  const { delimiter } = route.value.params;
  return href(["keys"], {
    delimiter, ...routeValue("prefix", prefix), ...routeValue("key", key), new: isNew ? "true" : "",
  });
}

export default function Keys() {
  const prefix = routeBytes("prefix") ?? { text: "" };
  const selected = routeBytes("key");
  const delimiter = route.value.params.delimiter ?? "/";
  const isNew = route.value.params.new === "true";
  const [changes, setChanges] = useState(0);
  const onChanged = () => setChanges((number) => number + 1);
  const place = { prefix, delimiter: delimiter === "none" ? "" : delimiter };
  const close = () => navigate(keysHref({ prefix }));
  const isSplit = selected !== null || isNew;
  return html`<${PageHead} title="Keys" actions=${mayAny("write", "keys")
    && html`<${LinkButton} kind="primary" href=${keysHref({ prefix, isNew: true })}>New key<//>`} />
    <${Search} key=${keyId(prefix)} prefix=${prefix} delimiter=${delimiter} />
    <div class=${isSplit ? "keys keys-split" : "keys"}>
      <div class="keys-list">
        <${Steps} prefix=${prefix} delimiter=${place.delimiter} />
        <${KeyList} key=${`${keyId(prefix)} ${delimiter}`} place=${place} selected=${selected}
          changes=${changes}
          linkTo=${(row) => keysHref(row.folder ? { prefix: row.folder } : { prefix, key: row.key })} />
      </div>
      ${isNew && html`<${NewKey} prefix=${prefix} onClose=${close} onCreated=${(key) => {
        onChanged();
        navigate(keysHref({ prefix, key }), { replace: true });
      }} linkTo=${(key) => keysHref({ prefix, key })} />`}
      ${!isNew && selected && html`<${KeyDetail} key=${keyId(selected)} name=${selected}
        onChanged=${onChanged}
        onClose=${close} onDeleted=${() => {
          onChanged();
          if (sameKey(selected, routeBytes("key"))) close();
        }} />`}
    </div>`;
}

function Search({ prefix, delimiter }) {
  const [typed, setTyped] = useState(prefix.text ?? "");
  const setDelimiter = (value) => navigate(href(["keys"], {
    ...routeValue("prefix", prefix), ...routeValue("key", routeBytes("key")), delimiter: value === "/" ? ""
      : value,
  }));
  const submit = (event) => {
    event.preventDefault();
    navigate(keysHref({ prefix: { text: typed } }));
  };
  if (prefix.b64 !== undefined) {
    return html`<${Notice} title="The prefix is not UTF-8" actions=${html`<a href="#/keys">All keys</a>`}>
      In base64: <${Name} value=${prefix.b64} /><//>`;
  }
  return html`<form class="row-end keys-search" onSubmit=${submit} role="search">
    <div class="grow"><${TextField} label="Keys that begin with" value=${typed} onInput=${setTyped} mono
      placeholder="all keys" /></div>
    <${SelectField} label="Folders end with" value=${delimiter} onChange=${setDelimiter}
      options=${DELIMITERS} />
    <${Button} type="submit">Show<//>
  </form>`;
}

function Steps({ prefix, delimiter }) {
  const steps = prefixSteps(prefix, delimiter);
  if (steps.length === 0) return null;
  return html`<nav aria-label="Folders above"><ol class="crumbs keys-steps">
    <li><a href=${keysHref({ prefix: { text: "" } })}>All keys</a></li>
    ${steps.map((step, at) => html`<li>${at === steps.length - 1
      ? html`<span aria-current="page"><${Name} value=${step.name} /></span>`
      : html`<a href=${keysHref({ prefix: step.prefix })}><${Name} value=${step.name} /></a>`}</li>`)}
  </ol></nav>`;
}
