// Small components that all screens share: heads, notices, buttons, fields, tabs, badges, toasts.
import { html, signal, useId } from "./lib-html.js";
import { Text } from "./lib-text.js";

/** The head of a page. `crumbs`: `[{ label, link }]`, the outermost first. */
export function PageHead({ title, crumbs = [], actions, children }) {
  return html`<header class="page-head">
    ${crumbs.length > 0 && html`<nav aria-label="Breadcrumb"><ol class="crumbs">
      ${crumbs.map(({ label, link }) =>
      html`<li><a href=${link}><${Text} value=${label} inline max=${60} /></a></li>`)}</ol></nav>`}
    <div class="page-head-row"><h1 tabindex="-1">${title}</h1>
      ${actions && html`<div class="actions">${actions}</div>`}</div>
    ${children}
  </header>`;
}

/** A titled part of a page. */
export function Section({ title, actions, children, level = 2 }) {
  const id = useId();
  return html`<section class="section" aria-labelledby=${id}>
    <div class="section-head"><${`h${level}`} id=${id}>${title}<//>
      ${actions && html`<div class="actions">${actions}</div>`}</div>
    ${children}
  </section>`;
}

/** `kind`: info, ok, warn or error. An error is announced at once. */
export function Notice({ kind = "info", title, actions, children }) {
  return html`<div class="notice notice-${kind}" role=${kind === "error" ? "alert" : "status"}>
    <div class="notice-text">${title && html`<strong>${title}</strong>`}
      ${children && html`<div>${children}</div>`}</div>
    ${actions && html`<div class="actions">${actions}</div>`}
  </div>`;
}

/** Shows an `ApiError` with its title and detail; nothing without one. */
export function ErrorNotice({ error, actions }) {
  if (!error) return null;
  return html`<${Notice} kind="error" title=${error.title} actions=${actions}>
    ${error.detail && html`<${Text} value=${error.detail} max=${1000} />`}<//>`;
}

/** `kind`: plain, primary, danger or quiet. */
export function Button({ kind = "plain", type = "button", busy = false, disabled = false, children,
  ...rest }) {
  return html`<button type=${type} class="button button-${kind}" disabled=${disabled || busy}
    aria-busy=${busy || undefined} ...${rest}>${children}</button>`;
}

/** A link that looks like a button. */
export const LinkButton = ({ kind = "plain", children, ...rest }) =>
  html`<a class="button button-${kind}" ...${rest}>${children}</a>`;

function Field({ label, hint, error, hideLabel, render }) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  return html`<div class="field">
    <label for=${id} class=${hideLabel ? "hidden-label" : ""}>${label}</label>
    ${render({ id, "aria-describedby": described, "aria-invalid": error ? "true" : undefined })}
    ${hint && html`<div class="hint" id=${`${id}-hint`}>${hint}</div>`}
    ${error && html`<div class="field-error" id=${`${id}-error`} role="alert">${error}</div>`}
  </div>`;
}

/** One line of text, or several with `rows`. `onInput` is called with the text. */
export function TextField({ label, value, onInput, hint, error, hideLabel, rows, mono = false, ...rest }) {
  const set = (event) => onInput(event.currentTarget.value);
  // `dir=auto` on a text area costs Chromium 15 s for 1 MiB; there the style sheet finds the direction.
  const common = { class: mono ? "input mono" : "input", value, onInput: set, dir: rows ? undefined : "auto",
    spellcheck: !mono,
    autocomplete: "off", autocapitalize: "off", ...rest };
  return html`<${Field} ...${{ label, hint, error, hideLabel }} render=${(ids) => (rows
    ? html`<textarea rows=${rows} ...${common} ...${ids}></textarea>`
    : html`<input type="text" ...${common} ...${ids} />`)} />`;
}

/** `options`: texts, or `{ value, label }`. `onChange` is called with the value. */
export function SelectField({ label, value, onChange, options, hint, error, hideLabel, ...rest }) {
  const entries = options.map((option) =>
    (typeof option === "string" ? { value: option, label: option } : option));
  return html`<${Field} ...${{ label, hint, error, hideLabel }} render=${(ids) => html`
    <select class="input" value=${value} onChange=${(event) => onChange(event.currentTarget.value)} ...${rest}
      ...${ids}>
      ${entries.map((entry) => html`<option value=${entry.value} selected=${entry.value === value}>
        ${entry.label}</option>`)}
    </select>`} />`;
}

/** `onChange` is called with true or false. */
export function CheckField({ label, checked, onChange, hint, ...rest }) {
  const id = useId();
  return html`<div class="field check"><label><input type="checkbox" checked=${checked}
    aria-describedby=${hint ? id : undefined} onChange=${(event) => onChange(event.currentTarget.checked)}
      ...${rest} />
    <span>${label}</span></label>${hint && html`<div class="hint" id=${id}>${hint}</div>`}</div>`;
}

/** Parts of a page that have links. `items`: `{ id, label, link, amount }`. */
export function Tabs({ label, items, current }) {
  return html`<nav class="tabs" aria-label=${label}>${items.map((item) => html`<a href=${item.link}
    aria-current=${item.id === current ? "page" : undefined}>${item.label}${item.amount !== undefined &&
      html` <span class="tab-amount">${item.amount}</span>`}</a>`)}</nav>`;
}

/** `kind`: plain, ok, warn, error or accent. */
export const Badge = ({ kind = "plain", title, children }) =>
  html`<span class="badge badge-${kind}" title=${title}>${children}</span>`;

/** What is shown where there is nothing. */
export const Empty = ({ title, actions, children }) =>
  html`<div class="empty"><p class="empty-title">${title}</p>
  ${children && html`<div class="muted">${children}</div>`}
    ${actions && html`<div class="actions">${actions}</div>`}</div>`;

export const Loading = ({ label = "Loading…" }) => html`<p class="loading muted" role="status">${label}</p>`;

/** Shows what `useLoad` loaded: the error, the progress, or `render(data)`. Data stay when a reload fails. */
export function Loaded({ load, render, label }) {
  const retry = html`<${Button} onClick=${load.reload}>Try again<//>`;
  return html`${load.error && html`<${ErrorNotice} error=${load.error} actions=${retry} />`}
    ${load.data !== undefined
    ? render(load.data)
    : load.loading && !load.error && html`<${Loading} label=${label} />`}`;
}

/** Names with values. `items`: `[label, content]`; null entries are left out. */
export const Facts = ({ items }) => html`<dl class="facts">${items.filter(Boolean).map(([label, content]) =>
  html`<div><dt>${label}</dt><dd>${content}</dd></div>`)}</dl>`;

const TOAST_MS = 6_000;
const toasts = signal([]);

/** A short message that disappears: what was done. Errors belong near what caused them. */
export function toast(text) {
  const entry = { text };
  toasts.value = [...toasts.value, entry];
  setTimeout(() => { toasts.value = toasts.value.filter((other) => other !== entry); }, TOAST_MS);
}

export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">
  ${toasts.value.map(({ text }) =>
  html`<div class="toast"><${Text} value=${text} max=${200} inline /></div>`)}</div>`;
