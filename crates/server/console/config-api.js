// The vocabulary of configuration: paths, types in words, and values as text that people edit.
import { signal } from "@preact/signals";
import { get, path, request } from "./lib-api.js";
import { session } from "./lib-access.js";
import { href, route } from "./lib-router.js";

export const namespacePath = (namespace) => path`/api/namespaces/${namespace}`;
export const pairPath = (namespace, key) => path`/api/namespaces/${namespace}/pairs/${key}`;
export const containerPath = (namespace, key) => path`/api/namespaces/${namespace}/containers/${key}`;
export const draftPath = (namespace, name) => path`/api/namespaces/${namespace}/drafts/${name}`;

/** A link inside of a namespace. It stays in the draft that is being edited. */
export const configLink = (namespace, parts = [], params = {}) =>
  href(["config", namespace, ...parts], { draft: route.value.params.draft, ...params });

/** The draft that changes go to, from the URL. */
export const currentDraft = () => route.value.params.draft;

export const CODES = { noNamespace: 40401, noPair: 40402, notKept: 40404, conflict: 40903, protected: 40909 };

const words = ["empty", "int", "string", "float", "bool", "list", "dict", "secret"];

/** The types that an editor offers, with what a person writes. */
export const TYPES = [
  { value: "string", label: "string", hint: "Any text." },
  { value: "int", label: "int", hint: "A whole number of 64 bits, such as 42." },
  { value: "float", label: "float", hint: "A number with a point or an exponent, such as 0.5." },
  { value: "bool", label: "bool", hint: "" },
  { value: "list", label: "list", hint: "JSON, values of one type: [\"a\", \"b\"]." },
  { value: "dict", label: "dict (JSON object)", hint: "JSON: {\"name\": 1}." },
  { value: "duration", label: "duration", hint: "Numbers with units d, h, m, s, ms, us, ns: 1h30m." },
  { value: "bytes", label: "bytes", hint: "A number with a unit: 512B, 10MiB, 1GB." },
  { value: "enum", label: "enum", hint: "One of the texts that you list." },
  { value: "secret", label: "secret", hint: "Text that is stored encrypted and shown masked." },
  { value: "empty", label: "empty", hint: "No value: null." },
];

export const MASK = "********";

/** The word for a pair's type: its datatype, or what its schema makes of a string. */
export function typeWord(datatype, schema) {
  if (datatype === 2 && schema?.format === "duration") return "duration";
  if (datatype === 2 && schema?.format === "bytes") return "bytes";
  if (datatype === 2 && Array.isArray(schema?.enum)) return "enum";
  return words[datatype] ?? String(datatype);
}

const isQuoted = (type) => ["string", "duration", "bytes", "enum", "secret"].includes(type);

/** A value as a person edits it: texts without quotes, all else as JSON. */
export function editText(value, type) {
  if (isQuoted(type)) return value ?? "";
  return type === "list" || type === "dict" ? JSON.stringify(value, null, 2) : JSON.stringify(value);
}

/** A value in one line. */
export const valueLine = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** A document or value as text for a comparison. */
export const pretty = (value) => (value === null || value === undefined ? ""
  : JSON.stringify(value, null, 2));

const isNumber = (text) => /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text);

/** The JSON of an edited value: `{ json }`, or `{ error }` in words. */
export function valueJson(text, type) {
  if (isQuoted(type)) return { json: JSON.stringify(text.toWellFormed()) };
  if (type === "empty") return { json: "null" };
  const trimmed = text.trim();
  if (trimmed === "") return { error: "A value is missing." };
  if (type === "int" || type === "float") {
    if (isNumber(trimmed)) return { json: trimmed };
    return { error: type === "int" ? "Not a whole number." : "Not a number." };
  }
  try {
    JSON.parse(trimmed);
    return { json: trimmed };
  } catch (error) {
    return { error: `Not valid JSON: ${error.message}.` };
  }
}

const AUTHOR = "tidelock-author";

/** The name that a person without a principal states; the browser remembers it. */
export const author = signal(localStorage.getItem(AUTHOR) ?? "");
export function rememberAuthor(name) {
  author.value = name;
  localStorage.setItem(AUTHOR, name);
}

export const needsAuthor = () => !session.value?.principal;

/** Sends a change: `{ method, address, body, query }` with author, message, condition and draft. */
export function sendChange(change, terms) {
  const { method = "POST", address, body, query } = change;
  return request(method, address, { body, query: { ...query, ...terms } });
}

/** What a change would do: the answer of its dry run. */
export const dryRun = (change, signal) =>
  request(change.method ?? "POST", change.address,
    { body: change.body, query: { ...change.query, dry_run: true }, signal });

/** All pages of a list, as they come: `onPage(all, total)`. */
export async function allPages(address, member, { query, signal, onPage }) {
  const all = [];
  for (;;) {
    const page = await get(address, { ...query, limit: 1000, offset: all.length }, { signal });
    all.push(...page[member]);
    onPage([...all], page.total);
    if (page[member].length === 0 || all.length >= page.total) return;
  }
}
